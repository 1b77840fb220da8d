//! A call that was planned as a read is one when it runs, or it doesn't run.
//!
//! What a call does may depend on its arguments, and its arguments may have held placeholders when the plan was made. So
//! the tool is asked again, with the arguments as they are now.

use std::future::{Ready, ready};
use std::sync::Arc;
use std::task::{Context, Poll};

use futures_util::future::Either;
use tower::util::Oneshot;
use tower::{Layer, Service, ServiceExt};

use crate::reading::{CallError, ErrorCode};
use crate::registry::Registered;
use crate::request::CallRequest;
use crate::tool::Class;

/// Makes [`ReadOnly`]s.
#[derive(Clone, Debug)]
pub struct ReadOnlyLayer {
    tool: Arc<Registered>,
    reads_only: bool,
}

impl ReadOnlyLayer {
    /// Refuses calls of this tool that were planned as reads and are none.
    pub fn new(tool: Arc<Registered>) -> Self {
        Self {
            tool,
            reads_only: false,
        }
    }

    /// Refuses every call that is not a read, planned or not: for hosts that want reads alone.
    #[must_use]
    pub fn reads_only(mut self) -> Self {
        self.reads_only = true;
        self
    }
}

impl<S> Layer<S> for ReadOnlyLayer {
    type Service = ReadOnly<S>;

    fn layer(&self, inner: S) -> ReadOnly<S> {
        ReadOnly {
            inner,
            tool: Arc::clone(&self.tool),
            reads_only: self.reads_only,
        }
    }
}

/// Answers `not_read_only` instead of running what is no read.
#[derive(Clone, Debug)]
pub struct ReadOnly<S> {
    inner: S,
    tool: Arc<Registered>,
    reads_only: bool,
}

impl<S> ReadOnly<S> {
    fn refusal(&self, request: &CallRequest) -> Option<CallError> {
        let planned = request.call.facts.class;
        if planned != Class::Read && !self.reads_only {
            return None;
        }
        if planned == Class::Read && self.tool.always_reads() {
            return None;
        }
        let facts = self.tool.classify(&request.arguments).facts;
        let tool = request.tool();
        let because = facts
            .because
            .as_ref()
            .map(|because| format!(", because {because}"))
            .unwrap_or_default();
        let message = match (planned, facts.class) {
            (Class::Read, Class::Read) => return None,
            (Class::Read, Class::Write) => {
                format!("{tool} was planned as a read, but with these arguments it writes.")
            }
            (Class::Read, Class::Exclusive) => {
                format!(
                    "{tool} was planned as a read, but with these arguments it has to run alone{because}."
                )
            }
            (Class::Write | Class::Exclusive, _) => {
                format!("{tool} is not known to only read{because}, and only reads may run here.")
            }
        };
        Some(CallError::new(ErrorCode::NotReadOnly, message))
    }
}

impl<S> Service<CallRequest> for ReadOnly<S>
where
    S: Service<CallRequest, Error = CallError> + Clone,
{
    type Response = S::Response;
    type Error = CallError;
    type Future = Either<Ready<Result<S::Response, CallError>>, Oneshot<S, CallRequest>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), CallError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: CallRequest) -> Self::Future {
        match self.refusal(&request) {
            Some(refusal) => Either::Left(ready(Err(refusal))),
            None => Either::Right(self.inner.clone().oneshot(request)),
        }
    }
}
