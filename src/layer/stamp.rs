//! Says of each answer when it was true.
//!
//! The innermost layer, right around the tool: whatever waits (a place, a quota, a retry) lies outside, so waiting never
//! widens a stamp. Above it there are only [`Reading`]s.

use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Context, Poll};

use futures_util::future::BoxFuture;
use tower::{Layer, Service};

use crate::reading::{self, Answer, Basis, CallError, Reading, as_of};
use crate::request::CallRequest;

/// Makes [`Stamp`]s.
#[derive(Clone, Debug, Default)]
pub struct StampLayer {
    as_of_field: Option<Arc<str>>,
}

impl StampLayer {
    /// For a tool whose output says nothing about its age.
    pub fn new() -> Self {
        Self::default()
    }

    /// For a tool whose output may have a field that says as of when it is; see [`as_of::field`] for how it is read.
    #[must_use]
    pub fn as_of_field(mut self, field: Option<Arc<str>>) -> Self {
        self.as_of_field = field;
        self
    }
}

impl<S> Layer<S> for StampLayer {
    type Service = Stamp<S>;

    fn layer(&self, inner: S) -> Stamp<S> {
        Stamp {
            inner,
            as_of_field: self.as_of_field.clone(),
        }
    }
}

/// Stamps what its inner service answers.
///
/// - An answer's own stamp is kept.
/// - Without one, the stamp is what our clock saw: from just before the request to just after the answer.
/// - A declared field is shown as the source's time. Data that says its own age may be older than the request, so
///   unless the answer has a stamp of its own there is no `earliest` then, whatever the field says. If it can't be read,
///   when the answer was true is unknown.
#[derive(Clone, Debug)]
pub struct Stamp<S> {
    inner: S,
    as_of_field: Option<Arc<str>>,
}

impl<S> Service<CallRequest> for Stamp<S>
where
    S: Service<CallRequest, Response = Answer, Error = CallError> + Clone + Send + 'static,
    S::Future: Send,
{
    type Response = Reading;
    type Error = CallError;
    type Future = BoxFuture<'static, Result<Reading, CallError>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), CallError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: CallRequest) -> Self::Future {
        let Self {
            mut inner,
            as_of_field,
        } = self.clone();
        Box::pin(async move {
            // Waiting for the tool to be ready is waiting: the clock starts after it.
            poll_fn(|context| inner.poll_ready(context)).await?;
            let set = Arc::clone(&request.set);
            let source = request.call.facts.source.clone();
            let before = set.timeline.mono();
            let mut answer = inner.call(request).await?;
            let after = set.timeline.mono();

            let mut stamp = answer.stamp.take().unwrap_or_else(|| {
                let mut receipt = reading::Stamp::receipt(set.timeline.at(before), set.timeline.at(after));
                if as_of_field.is_some() {
                    receipt.earliest = None;
                }
                receipt
            });
            if let Some(field) = &as_of_field
                && let Some(time) = as_of::field(&answer.value, field)
            {
                // Data is no fresher than the older of what its source and its own field say.
                stamp.source_time = Some(stamp.source_time.map_or(time, |own| own.min(time)));
                if stamp.basis == Basis::Receipt {
                    stamp.basis = Basis::Field;
                }
            }
            stamp.source = stamp.source.or(source);
            Ok(Reading::new(answer, stamp, after.since(before)))
        })
    }
}
