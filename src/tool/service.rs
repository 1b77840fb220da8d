//! Tools from `tower` services, functions and closures.
//!
//! ```
//! use coeval::tool::{IntoTool, Tool, ToolSpec};
//! use serde::{Deserialize, Serialize};
//!
//! #[derive(Deserialize, schemars::JsonSchema)]
//! struct Of { account_id: String }
//! #[derive(Serialize)]
//! struct Contract { threshold: u32 }
//!
//! // An async function ...
//! async fn get_contract(of: Of) -> Result<Contract, std::io::Error> {
//!     Ok(Contract { threshold: of.account_id.len() as u32 })
//! }
//! let spec = || ToolSpec::read("get_contract").input::<Of>();
//! let tool = Tool::from_fn(spec(), get_contract);
//!
//! // ... or any service whose request can be read from JSON and whose response can be written as JSON.
//! let service = tower::service_fn(get_contract);
//! let same = service.into_tool(spec());
//! assert_eq!(tool.spec().name, same.spec().name);
//! ```

use std::any::Any;
use std::fmt;
use std::future::Future;
use std::marker::PhantomData;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use pin_project_lite::pin_project;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use tower::util::BoxCloneSyncService;
use tower::{Service, service_fn};

use crate::BoxError;
use crate::reading::{Answer, CallError, ErrorCode, Stamp};
use crate::registry::said;
use crate::request::CallRequest;
use crate::tool::{ArgumentMap, Class, ToolSpec};

/// A tool at the bottom of its call stack: a request in, an answer out, everything else forgotten.
pub type ToolService = BoxCloneSyncService<CallRequest, Answer, CallError>;

/// What is declared about a tool, and the service that does it.
#[derive(Clone)]
pub struct Tool {
    spec: ToolSpec,
    service: ToolService,
    /// Whether every call of it will ask for a view of the declared source.
    needs_source: bool,
}

impl fmt::Debug for Tool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tool")
            .field("spec", &self.spec)
            .finish_non_exhaustive()
    }
}

impl Tool {
    /// A tool from an async function or closure of its arguments.
    ///
    /// Give the spec its schema with [`ToolSpec::input`], so that the model knows what to send.
    pub fn from_fn<F, T, Fut, R, E>(spec: ToolSpec, function: F) -> Self
    where
        F: Fn(T) -> Fut + Clone + Send + Sync + 'static,
        T: DeserializeOwned + Send + 'static,
        Fut: Future<Output = Result<R, E>> + Send + 'static,
        R: IntoAnswer,
        E: Into<BoxError>,
    {
        service_fn(function).into_tool(spec)
    }

    /// A tool that takes the whole request: arguments as they are, scope, views, cancellation.
    pub fn raw<S>(spec: ToolSpec, service: S) -> Self
    where
        S: Service<CallRequest> + Clone + Send + Sync + 'static,
        S::Future: Send + 'static,
        S::Response: IntoAnswer,
        S::Error: Into<BoxError>,
    {
        Self::adapted(spec, service, Ok::<CallRequest, CallError>)
    }

    /// A tool from an async function or closure of the whole request.
    pub fn raw_fn<F, Fut, R, E>(spec: ToolSpec, function: F) -> Self
    where
        F: Fn(CallRequest) -> Fut + Clone + Send + Sync + 'static,
        Fut: Future<Output = Result<R, E>> + Send + 'static,
        R: IntoAnswer,
        E: Into<BoxError>,
    {
        Self::raw(spec, service_fn(function))
    }

    /// What is declared about it.
    pub fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    /// The service that does it.
    pub fn service(&self) -> &ToolService {
        &self.service
    }

    pub(crate) fn into_parts(self) -> (ToolSpec, ToolService, bool) {
        (self.spec, self.service, self.needs_source)
    }

    /// For adaptors that do more than make a request.
    pub(super) fn from_service(spec: ToolSpec, service: ToolService) -> Self {
        Self {
            spec,
            service,
            needs_source: false,
        }
    }

    pub(super) fn needs_source(mut self) -> Self {
        self.needs_source = true;
        self
    }

    fn adapted<S, Req, P>(spec: ToolSpec, inner: S, prepare: P) -> Self
    where
        S: Service<Req> + Clone + Send + Sync + 'static,
        S::Future: Send + 'static,
        S::Response: IntoAnswer,
        S::Error: Into<BoxError>,
        Req: Send + 'static,
        P: Fn(CallRequest) -> Result<Req, CallError> + Clone + Send + Sync + 'static,
    {
        let adapted = Adapted {
            tool: Arc::clone(&spec.name),
            inner,
            prepare,
            request: PhantomData,
        };
        Self {
            spec,
            service: BoxCloneSyncService::new(adapted),
            needs_source: false,
        }
    }
}

/// The adaptor behind all the others: a request is made of the call, and what the service returns becomes an answer, or
/// an error that names the tool. The service's own readiness is its readiness.
struct Adapted<S, Req, P> {
    tool: Arc<str>,
    inner: S,
    prepare: P,
    request: PhantomData<fn(Req)>,
}

impl<S: Clone, Req, P: Clone> Clone for Adapted<S, Req, P> {
    fn clone(&self) -> Self {
        let Self {
            tool, inner, prepare, ..
        } = self;
        Self {
            tool: Arc::clone(tool),
            inner: inner.clone(),
            prepare: prepare.clone(),
            request: PhantomData,
        }
    }
}

impl<S, Req, P> Service<CallRequest> for Adapted<S, Req, P>
where
    S: Service<Req>,
    S::Response: IntoAnswer,
    S::Error: Into<BoxError>,
    P: Fn(CallRequest) -> Result<Req, CallError>,
{
    type Response = Answer;
    type Error = CallError;
    type Future = Adapting<S::Future>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), CallError>> {
        // Nothing was asked for yet, so nothing can have happened.
        self.inner
            .poll_ready(cx)
            .map_err(|error| failure(&self.tool, false, error.into()))
    }

    fn call(&mut self, call: CallRequest) -> Self::Future {
        let tool = Arc::clone(call.tool());
        let writes = call.call.facts.class != Class::Read;
        let run = match (self.prepare)(call) {
            Ok(request) => Run::Asked {
                response: self.inner.call(request),
            },
            Err(error) => Run::Refused { error: Some(error) },
        };
        Adapting { tool, writes, run }
    }
}

pin_project! {
    struct Adapting<F> {
        tool: Arc<str>,
        writes: bool,
        #[pin]
        run: Run<F>,
    }
}

pin_project! {
    #[project = RunProjection]
    enum Run<F> {
        Refused { error: Option<CallError> },
        Asked { #[pin] response: F },
    }
}

impl<F, R, E> Future for Adapting<F>
where
    F: Future<Output = Result<R, E>>,
    R: IntoAnswer,
    E: Into<BoxError>,
{
    type Output = Result<Answer, CallError>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        let response = match this.run.project() {
            RunProjection::Refused { error } => {
                return Poll::Ready(Err(error
                    .take()
                    .expect("a future that has ended is not polled again")));
            }
            RunProjection::Asked { response } => ready!(response.poll(cx)),
        };
        Poll::Ready(match response {
            Ok(response) => response
                .into_answer()
                .map_err(|error| failure(this.tool, *this.writes, error)),
            Err(error) => Err(failure(this.tool, *this.writes, error.into())),
        })
    }
}

/// Makes a tool of a service.
///
/// Takes any `Service<Req>` whose request can be read from JSON (`DeserializeOwned`), whose response can be written as
/// JSON (`Serialize`), is [`Stamped`] or an [`Answer`], and whose error is an error or text. A [`CallError`] inside a
/// boxed error is kept as it is, fatal too.
#[diagnostic::on_unimplemented(
    message = "`{Self}` can't be made a tool",
    label = "no clonable service of `{Req}`",
    note = "a tool needs a `tower::Service<Req> + Clone + Send + Sync` with `Req: DeserializeOwned`, a response that is \
            `Serialize`, `Stamped<_>` or `Answer`, and `Error: Into<BoxError>`",
    note = "if the service is not `Clone`, put tower's `Buffer` in front of it: `coeval::tool::buffered(service, n)`"
)]
pub trait IntoTool<Req> {
    /// The service as a tool of this spec.
    fn into_tool(self, spec: ToolSpec) -> Tool;
}

impl<S, Req> IntoTool<Req> for S
where
    S: Service<Req> + Clone + Send + Sync + 'static,
    S::Future: Send + 'static,
    S::Response: IntoAnswer,
    S::Error: Into<BoxError>,
    Req: DeserializeOwned + Send + 'static,
{
    fn into_tool(self, spec: ToolSpec) -> Tool {
        Tool::adapted(spec, self, |call: CallRequest| {
            typed(call.tool(), &call.arguments)
        })
    }
}

/// What may become an [`Answer`]: anything that can be written as JSON, a [`Stamped`] value, or an answer itself.
pub trait IntoAnswer: Send {
    /// The answer.
    ///
    /// # Errors
    /// If the value can't be written as JSON.
    fn into_answer(self) -> Result<Answer, BoxError>;
}

impl<T: Serialize + Send + 'static> IntoAnswer for T {
    fn into_answer(self) -> Result<Answer, BoxError> {
        let mut own = Some(self);
        // A value that is JSON already isn't written again.
        match (&mut own as &mut dyn Any)
            .downcast_mut::<Option<Value>>()
            .and_then(Option::take)
        {
            Some(value) => Ok(Answer::new(value)),
            None => Ok(Answer::new(serde_json::to_value(own)?)),
        }
    }
}

impl IntoAnswer for Answer {
    fn into_answer(self) -> Result<Answer, BoxError> {
        Ok(self)
    }
}

/// A value of which its tool knows when it was true.
///
/// ```
/// # use coeval::tool::{Stamped, Tool, ToolSpec};
/// # use coeval::{clock::Moment, reading::Stamp, request::CallRequest};
/// // A service that read its value from a log position it can name.
/// let tool = Tool::raw_fn(ToolSpec::read("balance"), |call: CallRequest| async move {
///     let asked = call.set.timeline.now();
///     let balance = 15_000;
///     let mut stamp = Stamp::receipt(asked, call.set.timeline.now());
///     stamp.source_time = "2026-01-02T03:04:05Z".parse().ok();
///     Ok::<_, std::io::Error>(Stamped { value: balance, stamp })
/// });
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Stamped<T> {
    /// The value.
    pub value: T,
    /// When it was true.
    pub stamp: Stamp,
}

impl<T: Serialize + Send> IntoAnswer for Stamped<T> {
    fn into_answer(self) -> Result<Answer, BoxError> {
        Ok(Answer::new(serde_json::to_value(self.value)?).stamp(self.stamp))
    }
}

/// Makes a service clonable: a task of its own calls it, at most `bound` requests wait for it.
///
/// Must be called inside a tokio runtime. The readiness of the service, its backpressure, is kept.
pub fn buffered<S, Req>(service: S, bound: usize) -> tower::buffer::Buffer<Req, S::Future>
where
    S: Service<Req> + Send + 'static,
    S::Future: Send,
    S::Error: Into<BoxError> + Send + Sync,
    Req: Send + 'static,
{
    tower::buffer::Buffer::new(service, bound)
}

/// Arguments as the type that a tool wants.
pub(super) fn typed<T: DeserializeOwned>(tool: &str, arguments: &ArgumentMap) -> Result<T, CallError> {
    T::deserialize(arguments).map_err(|error| {
        // Said again with the path: that costs, and only here.
        let error = match serde_path_to_error::deserialize::<_, T>(arguments) {
            Err(error) if error.path().iter().next().is_some() => error.to_string(),
            _ => error.to_string(),
        };
        CallError::new(
            ErrorCode::InvalidArguments,
            format!("The arguments of {tool} don't fit: {error}."),
        )
    })
}

/// A tool's error. A panic in a task that the tool spawned is a panic of the tool (B41); a write whose error says
/// nothing about itself may have happened.
pub(super) fn failure(tool: &str, writes: bool, error: BoxError) -> CallError {
    let error = match error.downcast::<tokio::task::JoinError>() {
        Ok(error) if error.is_panic() => {
            let payload = error.into_panic();
            let error = CallError::new(
                ErrorCode::Panicked,
                format!("{tool} panicked: {}.", said(&*payload)),
            );
            return if writes { error.may_have_happened() } else { error };
        }
        Ok(error) => error,
        Err(error) => {
            let known = error.is::<CallError>();
            let error = CallError::from_tool(tool, error);
            return if writes && !known {
                error.may_have_happened()
            } else {
                error
            };
        }
    };
    let error = CallError::from_tool(tool, error);
    if writes { error.may_have_happened() } else { error }
}
