//! The future that drives a set.

use std::collections::{HashMap, HashSet, VecDeque};
use std::future::{Future, poll_fn};
use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use futures_util::stream::{FuturesUnordered, StreamExt};
use serde_json::{Map, Value};
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;

use super::Settings;
use super::gate::{Ended, Gate, GateSettings};
use super::schedule::{Release, Schedule};
use crate::clock::Mono;
use crate::layer::CallService;
use crate::layer::plan::Planned;
use crate::plan::Commit;
use crate::reading::{CallError, ErrorCode, Outcome, Reading};
use crate::report::{CallResult, SetReport};
use crate::request::{CallRequest, SetContext, Signals};
use crate::run::Event;
use crate::tool::ResolvedCall;

pin_project_lite::pin_project! {
    /// One execution in the pool: polled in the set's own future, or awaited from its own task.
    #[project = ExecutionProjection]
    pub(super) enum Execution {
        Here { position: usize, #[pin] call: tower::util::Oneshot<CallService, CallRequest> },
        Spawned { position: usize, tool: Arc<str>, task: JoinHandle<Result<Reading, CallError>> },
    }
}

impl Future for Execution {
    type Output = (usize, Result<Reading, CallError>);

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        match self.project() {
            ExecutionProjection::Here { position, call } => {
                let result = ready!(call.poll(cx));
                Poll::Ready((*position, result))
            }
            ExecutionProjection::Spawned { position, tool, task } => {
                let result = ready!(task.poll_unpin(cx)).unwrap_or_else(|error| {
                    // `CatchPanic` is inside the task, so this is a stack without it.
                    let message = format!("{tool} panicked: {error}");
                    Err(CallError::new(ErrorCode::Panicked, message))
                });
                Poll::Ready((*position, result))
            }
        }
    }
}

/// Positions that one execution answers.
pub(super) type Answers = smallvec::SmallVec<[usize; 2]>;

/// One call's state.
#[derive(Default)]
pub(super) struct Slot {
    pub(super) result: Option<CallResult>,
    pub(super) ready: Option<Mono>,
    /// The position whose execution answers this call; its own if it is dispatched itself.
    pub(super) execution: Option<usize>,
    /// While it executes: every call it answers, itself first unless it was cancelled.
    pub(super) answers: Answers,
    pub(super) arguments: Option<Arc<Map<String, Value>>>,
    pub(super) leans_on: Vec<usize>,
    pub(super) leans_on_earlier: bool,
    pub(super) unverified: Vec<String>,
}

/// What woke the set.
#[expect(
    clippy::large_enum_variant,
    reason = "the large one is the frequent one, and it lives for a moment"
)]
enum Woken {
    Finished(usize, Result<Reading, CallError>),
    Committed,
    Ordered,
    Late,
    /// Nothing is left that could happen.
    Stuck,
}

pub(super) struct Engine<'s> {
    pub(super) settings: &'s Settings,
    pub(super) planned: &'s Planned,
    pub(super) set: Arc<SetContext>,
    pub(super) gate: Arc<Gate>,
    pub(super) slots: Vec<Slot>,
    pub(super) schedule: Schedule<'s>,
    pub(super) released: VecDeque<Release>,
    pub(super) pool: FuturesUnordered<Execution>,
    pub(super) unsettled: usize,
    pub(super) committed: usize,
    /// How often each tool is called in the set: equal calls are only looked for where there are several.
    pub(super) equal: Option<HashMap<u64, Vec<usize>>>,
    pub(super) hasher: foldhash::fast::RandomState,
    pub(super) fatal: bool,
    pub(super) aborted: bool,
    /// What a snapshot tool returned beyond the calls it stood in for.
    pub(super) extra: Option<Value>,
}

/// Ends a set whose future is dropped: nothing starts any more, and what was spawned is signalled.
struct Ends<'s> {
    signals: &'s Signals,
    gate: &'s Gate,
    armed: bool,
}

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        if self.armed {
            self.gate.end(Ended::Cancelled);
            self.signals.cancel_all();
        }
    }
}

pub(super) async fn run(settings: &Settings, planned: Planned) -> SetReport {
    let calls = planned.calls.len();
    let set = &planned.request.set;
    let gate = Arc::new(Gate::new(GateSettings {
        hooks: Arc::clone(&settings.hooks),
        registry: planned.registry.clone(),
        generation: planned.generation,
        recheck: planned.policy.recheck_at_start,
        planned: planned
            .calls
            .iter()
            .map(|resolved| resolved.call.facts.class)
            .collect(),
        called: set.called.iter().cloned().collect(),
        views: planned.views.clone(),
        timeline: planned.timeline.clone(),
        control: planned.request.control.clone(),
    }));
    let places = settings
        .max_concurrency
        .unwrap_or(planned.policy.max_concurrency)
        .max(1);
    let signals = Signals::new(calls);
    let context = Arc::new(SetContext {
        set_id: Arc::clone(&planned.request.set_id),
        scope: Arc::new(set.scope.clone()),
        timeline: planned.timeline.clone(),
        views: planned.views.clone(),
        places: Arc::new(Semaphore::new(places)),
        gate: Some(Arc::clone(&gate) as _),
        signals: signals.clone(),
        on_cancel: planned.policy.on_cancel,
        span: tracing::info_span!("set", id = %planned.request.set_id, calls),
    });
    let repeated = {
        let mut seen: HashSet<&str, foldhash::fast::RandomState> = HashSet::default();
        planned
            .calls
            .iter()
            .any(|resolved| !seen.insert(&resolved.call.tool))
    };
    let mut engine = Engine {
        settings,
        planned: &planned,
        set: context,
        gate: Arc::clone(&gate),
        slots: std::iter::repeat_with(Slot::default).take(calls).collect(),
        schedule: Schedule::new(&planned.plan, calls),
        released: VecDeque::new(),
        pool: FuturesUnordered::new(),
        unsettled: calls,
        committed: 0,
        equal: (repeated && planned.policy.share_equal_calls).then(HashMap::new),
        hasher: foldhash::fast::RandomState::default(),
        fatal: false,
        aborted: false,
        extra: None,
    };
    for (position, field) in &planned.plan.unverified {
        engine.slots[*position].unverified.push(field.clone());
    }
    for &position in &planned.plan.leans_on_earlier {
        engine.slots[position].leans_on_earlier = true;
    }
    let mut ends = Ends {
        signals: &signals,
        gate: &gate,
        armed: true,
    };
    engine.drive().await;
    ends.armed = false;
    planned.views.close().await;
    let told = engine.told();
    told.report(planned)
}

impl Engine<'_> {
    pub(super) async fn drive(&mut self) {
        let orders = self.planned.request.control.given();
        let mut ordered = std::pin::pin!(orders.notified());
        let deadline = self.planned.deadline;
        let mut late = std::pin::pin!(deadline.map(tokio::time::sleep_until));
        let mut committing: Option<BoxFuture<'static, ()>> = None;

        // An order that was given before the set began is one that nothing started against.
        self.obey();
        for (position, error) in &self.planned.plan.refused {
            self.settle_error(*position, error.clone(), None);
        }
        self.schedule.open(&mut self.released);
        loop {
            self.work(&mut committing);
            if self.unsettled == 0 && committing.is_none() && self.pool.is_empty() {
                return;
            }
            let woken = poll_fn(|cx| {
                // Before the pool: what a commit changes holds for the calls that start next (DS-07).
                if let Some(commit) = &mut committing
                    && commit.poll_unpin(cx).is_ready()
                {
                    return Poll::Ready(Woken::Committed);
                }
                if let Poll::Ready(Some((position, result))) = self.pool.poll_next_unpin(cx) {
                    return Poll::Ready(Woken::Finished(position, result));
                }
                if ordered.as_mut().poll(cx).is_ready() {
                    return Poll::Ready(Woken::Ordered);
                }
                if let Some(sleep) = late.as_mut().as_pin_mut()
                    && sleep.poll(cx).is_ready()
                {
                    return Poll::Ready(Woken::Late);
                }
                match self.pool.is_empty() && committing.is_none() {
                    true => Poll::Ready(Woken::Stuck),
                    false => Poll::Pending,
                }
            })
            .await;
            match woken {
                Woken::Finished(position, result) => self.finish(position, result),
                Woken::Committed => {
                    committing = None;
                    self.committed += 1;
                }
                Woken::Ordered => {
                    ordered.set(orders.notified());
                    self.obey();
                }
                Woken::Late => {
                    late.set(None);
                    self.end(Ended::Deadline);
                }
                Woken::Stuck => self.settle_stuck(),
            }
        }
    }

    /// Does all that can be done without waiting.
    pub(super) fn work(&mut self, committing: &mut Option<BoxFuture<'static, ()>>) {
        loop {
            // Calls that may start together start in the model's order, whichever edge let them go.
            self.released.make_contiguous().sort_by_key(Release::position);
            for release in std::mem::take(&mut self.released) {
                match release {
                    Release::Ready(position) => self.dispatch(position),
                    Release::Failed {
                        position,
                        edge,
                        culprit,
                    } => self.fail_edge(position, edge, culprit),
                }
            }
            if !self.released.is_empty() {
                continue;
            }
            if committing.is_none() {
                *committing = self.commit();
            }
            // A barrier is held through its after-hooks: what follows sees a world in which it is wholly done.
            let held = committing.is_some() && !self.settings.hooks.is_empty();
            if self.schedule.can_advance() && !held {
                self.schedule.advance(&mut self.released);
            } else {
                return;
            }
        }
    }

    pub(super) fn call(&self, position: usize) -> &Arc<ResolvedCall> {
        &self.planned.calls[position].call
    }

    /// Commits what may be, in the model's order, up to the first result whose hooks must be awaited.
    pub(super) fn commit(&mut self) -> Option<BoxFuture<'static, ()>> {
        while let Some(slot) = self.slots.get(self.committed) {
            let result = slot.result.as_ref()?;
            let may = match self.planned.policy.commit {
                Commit::Prefix => true,
                Commit::Stage => {
                    let stage = self.schedule.stage_of(self.committed);
                    stage < self.schedule.stage() || self.schedule.can_advance() || self.unsettled == 0
                }
                Commit::Batch => self.unsettled == 0,
            };
            if !may {
                return None;
            }
            let position = self.committed;
            let control = &self.planned.request.control;
            let told = self.planned.request.set.require.is_none();
            let hooked = !self.settings.hooks.is_empty()
                && result.outcome != Outcome::NotStarted
                && !self.gate.threw(position);
            if !hooked {
                if told {
                    control.emit(|| Event::Committed {
                        position,
                        result: Arc::new(result.clone()),
                    });
                }
                self.committed += 1;
                continue;
            }
            let (hooks, control) = (Arc::clone(&self.settings.hooks), control.clone());
            let result = Arc::new(result.clone());
            return Some(Box::pin(async move {
                for hook in hooks.iter() {
                    // A hook that panics here has nothing left to stop.
                    let _ = AssertUnwindSafe(hook.after(position, &result))
                        .catch_unwind()
                        .await;
                }
                if told {
                    control.emit(|| Event::Committed { position, result });
                }
            }));
        }
        None
    }
}
