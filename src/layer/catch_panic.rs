//! A panic of anything below is the answer of that one call (LC-15, B41); its siblings carry on.

use std::any::Any;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use pin_project_lite::pin_project;
use tower::util::Oneshot;
use tower::{Layer, Service, ServiceExt};

use crate::reading::{CallError, ErrorCode};
use crate::registry::said;
use crate::request::CallRequest;
use crate::tool::Class;

/// Makes [`CatchPanic`]s.
#[derive(Clone, Copy, Debug, Default)]
pub struct CatchPanicLayer;

impl CatchPanicLayer {
    /// Answers panics.
    pub fn new() -> Self {
        Self
    }
}

impl<S> Layer<S> for CatchPanicLayer {
    type Service = CatchPanic<S>;

    fn layer(&self, inner: S) -> CatchPanic<S> {
        CatchPanic { inner }
    }
}

/// Answers `panicked`, with what the panic said. A write that panicked may have happened.
#[derive(Clone, Debug)]
pub struct CatchPanic<S> {
    inner: S,
}

impl<S> Service<CallRequest> for CatchPanic<S>
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
        let tool = Arc::clone(request.tool());
        let writes = request.call.facts.class != Class::Read;
        ResponseFuture {
            tool,
            writes,
            inner: Some(self.inner.clone().oneshot(request)),
        }
    }
}

pin_project! {
    /// The future of a [`CatchPanic`].
    pub struct ResponseFuture<S: Service<CallRequest>> {
        tool: Arc<str>,
        writes: bool,
        // Dropped as soon as it has panicked: what it holds is needed elsewhere.
        #[pin]
        inner: Option<Oneshot<S, CallRequest>>,
    }
}

impl<S: Service<CallRequest>> std::fmt::Debug for ResponseFuture<S> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ResponseFuture")
            .field("tool", &self.tool)
            .finish_non_exhaustive()
    }
}

impl<S: Service<CallRequest, Error = CallError>> Future for ResponseFuture<S> {
    type Output = Result<S::Response, CallError>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut this = self.project();
        let inner = this
            .inner
            .as_mut()
            .as_pin_mut()
            .expect("a future that has ended is not polled again");
        // The future is never touched again after a panic, so nobody sees what it left half done.
        match catch_unwind(AssertUnwindSafe(|| inner.poll(cx))) {
            Ok(poll) => poll,
            Err(payload) => {
                // Its destructor may panic too; what is answered is the first panic.
                let _ = catch_unwind(AssertUnwindSafe(|| this.inner.set(None)));
                Poll::Ready(Err(answer(this.tool, *this.writes, &*payload)))
            }
        }
    }
}

fn answer(tool: &str, writes: bool, payload: &(dyn Any + Send)) -> CallError {
    let error = CallError::new(
        ErrorCode::Panicked,
        format!("{tool} panicked: {}.", said(payload)),
    );
    if writes { error.may_have_happened() } else { error }
}
