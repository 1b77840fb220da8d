//! The two stacks, as small `tower` layers: one around a set, one around each call.
//!
//! Each layer can be taken alone, moved or left out; each is always ready and awaits the readiness of what is below inside
//! its own future, so that a deadline covers that wait too.
//!
//! # The call stack
//!
//! `Trace → CatchPanic → ReadOnly → Deadline → Retry → Admit → Stamp → the tool`, outermost first. Why in this order:
//! - [`Trace`](trace) sees everything, refusals too.
//! - [`CatchPanic`](catch_panic) turns a panic of anything below into the call's own answer.
//! - [`ReadOnly`](read_only) looks at the arguments as they really are, placeholders filled in, before anything is waited for.
//! - [`Deadline`](deadline) is above all that waits, so that it bounds the queue, the back-off and the tool alike.
//! - [`Retry`](retry) is above `Admit`: nothing is held while it backs off, and every attempt is counted by the limits.
//! - [`Admit`](admit) gives the call its permits and starts it.
//! - [`Stamp`](stamp) is innermost, so that waiting never widens a stamp.
//!
//! Below `Stamp` the response is an [`Answer`](crate::reading::Answer), above it a [`Reading`].
//!
//! [`CallStack`] puts them together as the coordinator uses them. One's own stack is an ordinary `tower` stack:
//!
//! ```
//! use std::sync::Arc;
//! use coeval::clock::{SystemClock, Timeline};
//! use coeval::layer::{deadline::DeadlineLayer, stamp::StampLayer, trace::TraceLayer};
//! use coeval::registry::Registry;
//! use coeval::request::{CallRequest, SetContext};
//! use coeval::tool::{Tool, ToolSpec};
//! use coeval::{Call, CallSet};
//! use tower::{ServiceBuilder, ServiceExt};
//!
//! # tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(async {
//! let registry = Registry::new();
//! registry.register(Tool::from_fn(ToolSpec::read("echo"), |value: serde_json::Value| async {
//!     Ok::<_, std::io::Error>(value)
//! }))?;
//! let set = CallSet::new([Call::new("c1", "echo", serde_json::json!({"a": 1}))]);
//! let [call] = &registry.resolve(&set)[..] else { unreachable!() };
//! let tool = call.tool.as_ref().expect("it is registered");
//!
//! let stack = ServiceBuilder::new()
//!     .layer(TraceLayer::new())
//!     .layer(DeadlineLayer::new().starts_at_once())
//!     .layer(StampLayer::new())
//!     .service(tool.service().clone());
//! let alone = Arc::new(SetContext::alone(Timeline::start(Arc::new(SystemClock::new())), 1));
//! let reading = stack.oneshot(CallRequest::new(Arc::clone(&call.call), alone, None)).await?;
//! assert_eq!(reading.value, serde_json::json!({"a": 1}));
//! # Ok::<(), coeval::BoxError>(())
//! # }).unwrap();
//! ```

use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use tower::util::BoxCloneSyncService;
use tower::{Service, ServiceBuilder};

use crate::limit::Limits;
use crate::reading::{CallError, Reading};
use crate::registry::Registered;
use crate::request::CallRequest;

pub mod admit;
pub mod catch_panic;
pub mod deadline;
mod interrupt;
pub mod judge;
pub mod plan;
pub mod read_only;
pub mod record;
pub mod retry;
pub mod route;
pub mod stamp;
pub mod trace;

use admit::AdmitLayer;
use catch_panic::CatchPanicLayer;
use deadline::DeadlineLayer;
use read_only::ReadOnlyLayer;
use retry::RetryLayer;
use stamp::StampLayer;
use trace::TraceLayer;

/// A tool with its whole call stack, boxed once.
pub type CallService = BoxCloneSyncService<CallRequest, Reading, CallError>;

/// Composes call stacks: the settings that all tools of a coordinator share.
#[derive(Clone, Debug)]
#[must_use]
pub struct CallStack {
    limits: Limits,
    deadline: DeadlineLayer,
    reads_only: bool,
}

impl CallStack {
    /// Stacks over these limits.
    pub fn new(limits: Limits) -> Self {
        Self {
            limits,
            deadline: DeadlineLayer::new(),
            reads_only: false,
        }
    }

    /// How long a read that listens for its cancellation may take to end well.
    pub fn grace(mut self, grace: Duration) -> Self {
        self.deadline = self.deadline.grace(grace);
        self
    }

    /// How long a write that was cancelled, or is past its deadline, is waited for.
    pub fn drain(mut self, drain: Duration) -> Self {
        self.deadline = self.deadline.drain(drain);
        self
    }

    /// Refuses every call that isn't a read.
    pub fn reads_only(mut self) -> Self {
        self.reads_only = true;
        self
    }

    /// The limits.
    pub fn limits(&self) -> &Limits {
        &self.limits
    }

    /// A tool's stack. It goes on working when the tool is taken out of its registry (LC-28).
    pub fn compose(&self, tool: &Arc<Registered>) -> CallService {
        let read_only = ReadOnlyLayer::new(Arc::clone(tool));
        let admit = AdmitLayer::new(self.limits.clone());
        let stack = ServiceBuilder::new()
            .layer(TraceLayer::new())
            .layer(CatchPanicLayer::new())
            .layer(if self.reads_only {
                read_only.reads_only()
            } else {
                read_only
            })
            .layer(self.deadline.clone())
            .layer(RetryLayer::new(tool.spec().retry))
            .layer_fn(Shared::new)
            .layer(match tool.fixed_dependency() {
                Some(dependency) => admit.usually(dependency),
                None => admit,
            })
            .layer(StampLayer::new().as_of_field(tool.spec().as_of_field.clone()))
            .service(Shared::new(tool.service().clone()));
        BoxCloneSyncService::new(stack)
    }
}

/// A service behind a counter, so that it is cheap to clone. Every layer clones what is below it for each call: a boxed
/// tool allocates for that, and the lower half of a stack would be cloned piece by piece by each layer of the upper.
struct Shared<S> {
    service: Arc<S>,
    /// The clone that was polled ready is the one that is called.
    polled: Option<S>,
}

impl<S> Shared<S> {
    fn new(service: S) -> Self {
        Self {
            service: Arc::new(service),
            polled: None,
        }
    }
}

impl<S> Clone for Shared<S> {
    fn clone(&self) -> Self {
        Self {
            service: Arc::clone(&self.service),
            polled: None,
        }
    }
}

impl<S: Service<CallRequest> + Clone> Service<CallRequest> for Shared<S> {
    type Response = S::Response;
    type Error = S::Error;
    type Future = S::Future;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.polled
            .get_or_insert_with(|| S::clone(&self.service))
            .poll_ready(cx)
    }

    fn call(&mut self, request: CallRequest) -> S::Future {
        self.polled
            .take()
            .expect("a service is polled ready before it is called")
            .call(request)
    }
}
