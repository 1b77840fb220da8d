//! A span per call, its parent the set's span (B88).

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use pin_project_lite::pin_project;
use tower::util::Oneshot;
use tower::{Layer, Service, ServiceExt};
use tracing::Span;
use tracing::field::Empty;

use crate::reading::CallError;
use crate::request::CallRequest;

/// Makes [`Trace`]s.
#[derive(Clone, Copy, Debug, Default)]
pub struct TraceLayer;

impl TraceLayer {
    /// A span per call.
    pub fn new() -> Self {
        Self
    }
}

impl<S> Layer<S> for TraceLayer {
    type Service = Trace<S>;

    fn layer(&self, inner: S) -> Trace<S> {
        Trace { inner }
    }
}

/// Runs each call inside a span named `call`, with its `tool`, `id` and `position`, and the `code` it failed with.
/// Arguments and values are data of the user's and don't appear.
#[derive(Clone, Debug)]
pub struct Trace<S> {
    inner: S,
}

impl<S> Service<CallRequest> for Trace<S>
where
    S: Service<CallRequest, Error = CallError> + Clone,
{
    type Response = S::Response;
    type Error = CallError;
    type Future = ResponseFuture<S>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), CallError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: CallRequest) -> Self::Future {
        let span = tracing::info_span!(
            parent: &request.set.span,
            "call",
            tool = &**request.tool(),
            id = &*request.call.id,
            position = request.position(),
            code = Empty,
        );
        ResponseFuture {
            span,
            inner: self.inner.clone().oneshot(request),
        }
    }
}

pin_project! {
    /// The future of a [`Trace`].
    pub struct ResponseFuture<S: Service<CallRequest>> {
        span: Span,
        #[pin]
        inner: Oneshot<S, CallRequest>,
    }
}

impl<S: Service<CallRequest>> std::fmt::Debug for ResponseFuture<S> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ResponseFuture")
            .field("span", &self.span)
            .finish_non_exhaustive()
    }
}

impl<S: Service<CallRequest, Error = CallError>> Future for ResponseFuture<S> {
    type Output = Result<S::Response, CallError>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        let _entered = this.span.enter();
        let result = ready!(this.inner.poll(cx));
        if let Err(error) = &result
            && !this.span.is_disabled()
        {
            this.span.record("code", tracing::field::debug(error.code()));
        }
        Poll::Ready(result)
    }
}
