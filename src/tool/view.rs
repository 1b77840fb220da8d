//! Tools that read through a view of their source.

use std::fmt;
use std::future::Future;
use std::marker::PhantomData;
use std::ops::Deref;

use serde::de::DeserializeOwned;
use tower::service_fn;
use tower::util::BoxCloneSyncService;

use super::service::{failure, typed};
use crate::BoxError;
use crate::reading::{CallError, ErrorCode, ViewId};
use crate::request::CallRequest;
use crate::snapshot::Lease;
use crate::source::View;
use crate::tool::{Class, IntoAnswer, Tool, ToolSpec};

/// The set's view of a tool's source, as the source's own type, held open as long as this is kept.
pub struct In<V> {
    lease: Lease,
    view: PhantomData<fn() -> V>,
}

impl<V: View> In<V> {
    /// The view behind a lease, if it is of this type.
    pub fn new(lease: Lease) -> Option<Self> {
        lease.get::<V>()?;
        Some(Self {
            lease,
            view: PhantomData,
        })
    }

    /// The view's id, which the readings of it carry.
    pub fn id(&self) -> &ViewId {
        self.lease.view().id()
    }
}

impl<V: View> Deref for In<V> {
    type Target = V;

    fn deref(&self) -> &V {
        self.lease.get().expect("the type was checked when this was made")
    }
}

impl<V> fmt::Debug for In<V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.lease.fmt(f)
    }
}

impl Tool {
    /// A tool from an async function of the set's view of its source, and of its arguments.
    ///
    /// The view is opened by the first read that wants it, shared by all, and closed by the last. Return the
    /// [`Answer`](crate::reading::Answer) that the view gave, with another value if need be: it says through which view
    /// it was read and whether it is whole. A value of any other type attests nothing, so it is comparable with nothing.
    pub fn from_view_fn<V, F, T, Fut, R, E>(spec: ToolSpec, function: F) -> Self
    where
        V: View,
        F: Fn(In<V>, T) -> Fut + Clone + Send + Sync + 'static,
        T: DeserializeOwned + Send + 'static,
        Fut: Future<Output = Result<R, E>> + Send + 'static,
        R: IntoAnswer,
        E: Into<BoxError>,
    {
        let source = spec.source.clone();
        let service = service_fn(move |call: CallRequest| {
            let (function, source) = (function.clone(), source.clone());
            async move {
                let tool = call.tool();
                let arguments = typed(tool, &call.arguments)?;
                let source = source.as_deref().unwrap_or_default();
                let view = In::new(call.view(source).await?).ok_or_else(|| {
                    let wanted = std::any::type_name::<V>();
                    let message =
                        format!("The view of {source:?} is not a {wanted}, which {tool} was made for.");
                    CallError::new(ErrorCode::ViewUnavailable, message).retryable(false)
                })?;
                let writes = call.call.facts.class != Class::Read;
                let response = function(view, arguments)
                    .await
                    .map_err(|error| failure(tool, writes, error.into()))?;
                response
                    .into_answer()
                    .map_err(|error| CallError::from_tool(tool, error))
            }
        });
        Self::from_service(spec, BoxCloneSyncService::new(service)).needs_source()
    }
}
