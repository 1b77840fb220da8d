//! Runs a planned set: a rolling pool over stages and edges, every call answered in its own slot, on every path.
//!
//! One future drives a whole set. Reads are polled inside it, because spawning them costs more than all the coordination
//! together; calls that may write are spawned, with an owner, because they must end in their own time even if the set is
//! dropped. A call waits for its edges here, without holding anything; then for its allowance, its place and its quota
//! inside its own stack (`Admit`), which asks the gate before it starts.
//!
//! ```text
//! waiting ──edges settled──▶ dispatched ──admitted, gate──▶ started ──▶ settled ──in model order──▶ committed
//!    │                          │                              │            ▲
//!    └── refused, failed edge ──┴── set ended, deadline ───────┴────────────┘
//! ```

mod engine;
mod gate;
mod result;
mod schedule;
mod settle;
mod start;

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};

use futures_util::future::BoxFuture;
use tokio_util::task::TaskTracker;
use tower::Service;

use crate::hook::Hook;
use crate::layer::plan::Planned;
use crate::layer::{CallService, CallStack};
use crate::plan::FailurePolicy;
use crate::registry::Registered;
use crate::report::SetReport;
use crate::run::SetError;

/// Runs planned sets. The innermost service of the set stack.
#[derive(Clone)]
pub struct Executor(Arc<Settings>);

struct Settings {
    stack: CallStack,
    hooks: Arc<[Arc<dyn Hook>]>,
    owner: TaskTracker,
    on_failure: Option<FailurePolicy>,
    max_concurrency: Option<usize>,
    /// The call stacks that are in use, by the tool's name: a tool that takes another's place takes its stack's too.
    composed: Mutex<HashMap<Arc<str>, Composed, foldhash::fast::RandomState>>,
}

/// A tool, and the stack that was made of it.
type Composed = (Arc<Registered>, CallService);

impl fmt::Debug for Executor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Executor")
            .field("hooks", &self.0.hooks.len())
            .finish_non_exhaustive()
    }
}

impl Executor {
    /// Runs calls through this stack. `owner` is where what outlives a dropped set is awaited.
    pub fn new(stack: CallStack, owner: TaskTracker) -> Self {
        Self(Arc::new(Settings {
            stack,
            hooks: Arc::from([]),
            owner,
            on_failure: None,
            max_concurrency: None,
            composed: Mutex::default(),
        }))
    }

    /// Asks these hooks around each call, in this order before it and after it.
    #[must_use]
    pub fn hooks(self, hooks: Vec<Arc<dyn Hook>>) -> Self {
        self.with(|settings| settings.hooks = hooks.into())
    }

    /// What a failing call does to its siblings, whatever the policy says.
    #[must_use]
    pub fn on_failure(self, policy: FailurePolicy) -> Self {
        self.with(|settings| settings.on_failure = Some(policy))
    }

    /// How many calls of a set run at once, whatever the policy says; 0 means 1.
    #[must_use]
    pub fn max_concurrency(self, places: usize) -> Self {
        self.with(|settings| settings.max_concurrency = Some(places))
    }

    fn with(self, change: impl FnOnce(&mut Settings)) -> Self {
        let mut settings = match Arc::try_unwrap(self.0) {
            Ok(settings) => settings,
            Err(shared) => Settings {
                stack: shared.stack.clone(),
                hooks: Arc::clone(&shared.hooks),
                owner: shared.owner.clone(),
                on_failure: shared.on_failure,
                max_concurrency: shared.max_concurrency,
                composed: Mutex::default(),
            },
        };
        change(&mut settings);
        Self(Arc::new(settings))
    }
}

impl Settings {
    fn service(&self, tool: &Arc<Registered>) -> CallService {
        let mut composed = self.composed.lock().unwrap_or_else(PoisonError::into_inner);
        match composed.get(&tool.spec().name) {
            Some((known, service)) if Arc::ptr_eq(known, tool) => service.clone(),
            _ => {
                let service = self.stack.compose(tool);
                composed.insert(Arc::clone(&tool.spec().name), (Arc::clone(tool), service.clone()));
                service
            }
        }
    }
}

impl Service<Planned> for Executor {
    type Response = SetReport;
    type Error = SetError;
    type Future = BoxFuture<'static, Result<SetReport, SetError>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), SetError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, planned: Planned) -> Self::Future {
        let settings = Arc::clone(&self.0);
        Box::pin(async move { Ok(engine::run(&settings, planned).await) })
    }
}
