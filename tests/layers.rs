//! Each layer alone, over services that assert what a layer owes them.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use coeval::clock::{Timeline, VirtualClock};
use coeval::layer::{CallService, CallStack};
use coeval::limit::Limits;
use coeval::reading::{CallError, Reading};
use coeval::registry::{Registered, Registry, Resolved};
use coeval::request::{CallRequest, SetContext};
use coeval::tool::{RetryPolicy, Tool, ToolSpec};
use coeval::{Call, CallSet};
use serde_json::{Value, json};
use tokio::task::JoinHandle;
use tokio::time::Instant;
use tower::ServiceExt;

mod admit; // allowance, place, gate, quota: who waits for what, and what is given back
mod deadline; // what ends a call from outside, and how well it may end
mod discipline; // readiness: polled before called, awaited inside the future
mod guards; // panics, reads that write, spans
mod http; // what a response's status and headers say
mod registry; // what is refused, and what a call is found to be
mod retry; // who is asked again, how often and when
mod tools; // services, functions, views as tools

fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// What a set of so many calls shares, on virtual time.
fn context(calls: usize) -> SetContext {
    let clock = VirtualClock::starting_at("2026-01-02T03:04:05Z".parse().unwrap());
    SetContext::alone(Timeline::start(Arc::new(clock)), calls)
}

fn registry_of(tools: impl IntoIterator<Item = Tool>) -> Registry {
    let registry = Registry::new();
    for tool in tools {
        registry.register(tool).unwrap();
    }
    registry
}

/// One registered tool.
fn registered(tool: Tool) -> Arc<Registered> {
    let name = Arc::clone(&tool.spec().name);
    registry_of([tool]).get(&name).unwrap()
}

/// `calls` calls of one tool with no arguments, resolved.
fn resolve(tool: Tool, calls: usize) -> Vec<Resolved> {
    let name = Arc::clone(&tool.spec().name);
    let set =
        CallSet::new((0..calls).map(|index| Call::new(format!("c{index}"), Arc::clone(&name), json!({}))));
    registry_of([tool]).resolve(&set)
}

/// Calls of one tool below the standard stack, with a set around them.
struct Bench {
    calls: Vec<Resolved>,
    set: Arc<SetContext>,
    stack: CallService,
    deadline: Option<Instant>,
}

impl Bench {
    fn new(tool: Tool, calls: usize, limits: Limits) -> Self {
        Self::with(tool, calls, CallStack::new(limits), context(calls))
    }

    fn with(tool: Tool, calls: usize, stack: CallStack, set: SetContext) -> Self {
        let calls = resolve(tool, calls);
        let stack = stack.compose(calls[0].tool.as_ref().unwrap());
        Self {
            calls,
            set: Arc::new(set),
            stack,
            deadline: None,
        }
    }

    /// A deadline, from now.
    fn within(mut self, time: Duration) -> Self {
        self.deadline = Some(Instant::now() + time);
        self
    }

    fn request(&self, position: usize) -> CallRequest {
        CallRequest::new(
            Arc::clone(&self.calls[position].call),
            Arc::clone(&self.set),
            self.deadline,
        )
    }

    async fn run(&self, position: usize) -> Result<Reading, CallError> {
        self.stack.clone().oneshot(self.request(position)).await
    }

    /// Runs beside the test. Started calls have been polled once when this returns.
    async fn spawn(&self, position: usize) -> JoinHandle<Result<Reading, CallError>> {
        let task = tokio::spawn(self.stack.clone().oneshot(self.request(position)));
        settle().await;
        task
    }
}

/// Lets everything run that can without time moving.
async fn settle() {
    for _ in 0..20 {
        tokio::task::yield_now().await;
    }
}

/// Counts what runs, what ran, and the most that ran at once.
#[derive(Clone, Default)]
struct Gauge(Arc<[AtomicUsize; 3]>);

impl Gauge {
    fn enter(&self) -> Running {
        self.0[1].fetch_add(1, Ordering::SeqCst);
        let now = self.0[0].fetch_add(1, Ordering::SeqCst) + 1;
        self.0[2].fetch_max(now, Ordering::SeqCst);
        Running(self.clone())
    }

    fn running(&self) -> usize {
        self.0[0].load(Ordering::SeqCst)
    }

    fn ran(&self) -> usize {
        self.0[1].load(Ordering::SeqCst)
    }

    fn peak(&self) -> usize {
        self.0[2].load(Ordering::SeqCst)
    }
}

struct Running(Gauge);

impl Drop for Running {
    fn drop(&mut self) {
        self.0.0[0].fetch_sub(1, Ordering::SeqCst);
    }
}

/// A tool that takes a time, and is counted.
fn sleeper(spec: ToolSpec, time: Duration, gauge: &Gauge) -> Tool {
    let gauge = gauge.clone();
    Tool::raw_fn(spec, move |call: CallRequest| {
        let gauge = gauge.clone();
        async move {
            let _running = gauge.enter();
            tokio::time::sleep(time).await;
            Ok::<_, CallError>(json!(call.position()))
        }
    })
}

fn retries(attempts: u32, backoff: Duration) -> RetryPolicy {
    RetryPolicy {
        attempts: NonZeroU32::new(attempts).unwrap(),
        backoff,
    }
}

fn value(result: Result<Reading, CallError>) -> Value {
    result.unwrap().value
}
