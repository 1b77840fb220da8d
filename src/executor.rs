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

mod gate;
mod schedule;

use std::collections::{HashMap, HashSet, VecDeque};
use std::fmt;
use std::future::{Future, poll_fn};
use std::hash::BuildHasher;
use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, ready};

use futures_util::future::BoxFuture;
use futures_util::stream::{FuturesUnordered, StreamExt};
use futures_util::FutureExt;
use serde_json::{Map, Value};
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;
use tokio_util::task::TaskTracker;
use tower::{Service, ServiceExt};

use crate::clock::Moment;
use crate::dependency::{self, GuessCheck, ProducerState};
use crate::hook::Hook;
use crate::layer::plan::Planned;
use crate::layer::{CallService, CallStack};
use crate::plan::{self, Commit, EdgeReason, FailurePolicy};
use crate::reading::{CallError, ErrorClass, ErrorCode, Outcome, Reading, UnprovenReason, ViewId};
use crate::registry::Registered;
use crate::report::{Asked, CallFacts, CallResult, Consistency, ErrorReport, Route, SetReport, Status, millis};
use crate::request::{CallRequest, SetContext, Signals};
use crate::run::{Event, SetError};
use crate::tool::{Class, ResolvedCall};

use gate::{Ended, Gate, GateSettings};
use schedule::{Release, Schedule};

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
    composed: Mutex<HashMap<Arc<str>, Composed>>,
}

/// A tool, and the stack that was made of it.
type Composed = (Arc<Registered>, CallService);

impl fmt::Debug for Executor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Executor").field("hooks", &self.0.hooks.len()).finish_non_exhaustive()
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
        Box::pin(async move { Ok(run(&settings, planned).await) })
    }
}

pin_project_lite::pin_project! {
    /// One execution in the pool: polled in the set's own future, or awaited from its own task.
    #[project = ExecutionProjection]
    enum Execution {
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

/// One call's state.
#[derive(Default)]
struct Slot {
    result: Option<CallResult>,
    ready: Option<crate::clock::Mono>,
    /// The position whose execution answers this call; its own if it is dispatched itself.
    execution: Option<usize>,
    /// While it executes: every call it answers, itself first unless it was cancelled.
    answers: Vec<usize>,
    arguments: Option<Arc<Map<String, Value>>>,
    leans_on: Vec<usize>,
    leans_on_earlier: bool,
    unverified: Vec<String>,
}

/// What woke the set.
#[expect(clippy::large_enum_variant, reason = "the large one is the frequent one, and it lives for a moment")]
enum Woken {
    Finished(usize, Result<Reading, CallError>),
    Committed,
    Ordered,
    Late,
    /// Nothing is left that could happen.
    Stuck,
}

struct Engine<'s> {
    settings: &'s Settings,
    planned: &'s Planned,
    set: Arc<SetContext>,
    gate: Arc<Gate>,
    slots: Vec<Slot>,
    schedule: Schedule<'s>,
    released: VecDeque<Release>,
    pool: FuturesUnordered<Execution>,
    unsettled: usize,
    committed: usize,
    /// How often each tool is called in the set: equal calls are only looked for where there are several.
    equal: Option<HashMap<u64, Vec<usize>>>,
    hasher: foldhash::fast::RandomState,
    fatal: bool,
    aborted: bool,
    /// What a snapshot tool returned beyond the calls it stood in for.
    extra: Option<Value>,
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

async fn run(settings: &Settings, planned: Planned) -> SetReport {
    let calls = planned.calls.len();
    let set = &planned.request.set;
    let gate = Arc::new(Gate::new(GateSettings {
        hooks: Arc::clone(&settings.hooks),
        registry: planned.registry.clone(),
        generation: planned.generation,
        recheck: planned.policy.recheck_at_start,
        planned: planned.calls.iter().map(|resolved| resolved.call.facts.class).collect(),
        called: set.called.iter().cloned().collect(),
        views: planned.views.clone(),
        timeline: planned.timeline.clone(),
        control: planned.request.control.clone(),
    }));
    let places = settings.max_concurrency.unwrap_or(planned.policy.max_concurrency).max(1);
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
        planned.calls.iter().any(|resolved| !seen.insert(&resolved.call.tool))
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
    let mut ends = Ends { signals: &signals, gate: &gate, armed: true };
    engine.drive().await;
    ends.armed = false;
    planned.views.close().await;
    engine.report()
}

impl Engine<'_> {
    async fn drive(&mut self) {
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
                if let Poll::Ready(Some((position, result))) = self.pool.poll_next_unpin(cx) {
                    return Poll::Ready(Woken::Finished(position, result));
                }
                if let Some(commit) = &mut committing
                    && commit.poll_unpin(cx).is_ready()
                {
                    return Poll::Ready(Woken::Committed);
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
    fn work(&mut self, committing: &mut Option<BoxFuture<'static, ()>>) {
        loop {
            // Calls that may start together start in the model's order, whichever edge let them go.
            self.released.make_contiguous().sort_by_key(Release::position);
            for release in std::mem::take(&mut self.released) {
                match release {
                    Release::Ready(position) => self.dispatch(position),
                    Release::Failed { position, edge, culprit } => self.fail_edge(position, edge, culprit),
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

    fn call(&self, position: usize) -> &Arc<ResolvedCall> {
        &self.planned.calls[position].call
    }

    // ===== starting =====

    /// Nothing holds the call back any more.
    fn dispatch(&mut self, position: usize) {
        if self.slots[position].result.is_some() || self.slots[position].execution.is_some() {
            return;
        }
        self.slots[position].ready = Some(self.set.timeline.mono());
        if let Some(error) = self.gate.closed_to(position) {
            return self.settle_error(position, error, None);
        }
        let Some(tool) = self.planned.calls[position].tool.clone() else {
            let message = format!("There is no tool called {:?}.", self.call(position).tool);
            return self.settle_error(position, CallError::new(ErrorCode::UnknownTool, message), None);
        };
        let call = Arc::clone(self.call(position));
        if let Some(pin) = &self.planned.request.set.pin
            && call.facts.source.is_some()
        {
            let message = format!("No view is pinned as {pin:?}; pin one again, or read without `pin`.");
            return self.settle_error(position, CallError::new(ErrorCode::PinExpired, message), None);
        }
        let arguments = match self.arguments(&call, &tool) {
            Ok(arguments) => arguments,
            Err(error) => return self.settle_error(position, error, None),
        };
        self.slots[position].arguments = Some(Arc::clone(&arguments));
        if self.join_stand_in(position) || self.join_equal(position, &call, &arguments) {
            return;
        }
        self.execute(position, call, tool, arguments);
    }

    /// The call's arguments, placeholders filled in and guesses looked up, checked against the tool's schema.
    fn arguments(
        &mut self,
        call: &Arc<ResolvedCall>,
        tool: &Arc<Registered>,
    ) -> Result<Arc<Map<String, Value>>, CallError> {
        let position = call.position;
        let plan = &self.planned.plan;
        let references = plan.references_of(position);
        let mut arguments = Arc::clone(&call.arguments);
        if !references.is_empty() {
            let slots = &self.slots;
            let value_of = |producer: usize| slots[producer].result.as_ref().and_then(|result| result.value.as_ref());
            arguments = dependency::substitute(&arguments, references, value_of)?;
            let producers: Vec<usize> = references.iter().map(|reference| reference.producer).collect();
            self.slots[position].leans_on.extend(producers);
        }
        for guess in plan.guesses_of(position) {
            let slots = &self.slots;
            let checked = dependency::check_guess(guess, |producer| {
                let result = slots[producer].result.as_ref();
                match result.and_then(|result| result.value.as_ref().map(|value| (value, result.complete))) {
                    Some((value, true)) => ProducerState::Whole(value),
                    Some((value, false)) => ProducerState::Part(value),
                    None => ProducerState::Nothing,
                }
            });
            match checked {
                GuessCheck::Found => self.slots[position].leans_on.extend(guess.producers()),
                GuessCheck::Unverified => self.slots[position].unverified.push(guess.field.to_string()),
                GuessCheck::NotFound(error) => return Err(error),
            }
        }
        if call.unchecked {
            tool.validate(&arguments)?;
        }
        Ok(arguments)
    }

    /// Joins the execution of the snapshot tool that answers for this call, starting it if it is the first.
    fn join_stand_in(&mut self, position: usize) -> bool {
        let Some(stand_in) = &self.planned.stand_in else { return false };
        if !stand_in.members.iter().any(|(member, _)| *member == position) {
            return false;
        }
        let running = stand_in.members.iter().find_map(|(member, _)| self.slots[*member].execution);
        match running {
            Some(leader) => self.join(position, leader),
            None => {
                let spec = stand_in.tool.spec();
                let call = ResolvedCall {
                    tool: Arc::clone(&spec.name),
                    arguments: Arc::clone(&stand_in.arguments),
                    ..ResolvedCall::clone(self.call(position))
                };
                let (tool, arguments) = (Arc::clone(&stand_in.tool), Arc::clone(&stand_in.arguments));
                self.execute(position, Arc::new(call), tool, arguments);
            }
        }
        true
    }

    /// Joins an equal read of the same stage that is still unanswered, if there is one.
    fn join_equal(&mut self, position: usize, call: &ResolvedCall, arguments: &Arc<Map<String, Value>>) -> bool {
        if call.facts.class != Class::Read {
            return false;
        }
        let Some(equal) = &mut self.equal else { return false };
        let place = self.hasher.hash_one((&*call.tool, self.schedule.stage_of(position)));
        let key = place ^ canonical_hash(&self.hasher, arguments);
        let same = equal.entry(key).or_default();
        let leader = same.iter().copied().find(|&other| {
            let slot = &self.slots[other];
            let twin = &self.planned.calls[other].call;
            slot.execution == Some(other)
                && !slot.answers.is_empty()
                && twin.tool == call.tool
                && self.schedule.stage_of(other) == self.schedule.stage_of(position)
                && slot.arguments.as_deref() == Some(&**arguments)
        });
        match leader {
            Some(leader) => {
                self.join(position, leader);
                true
            }
            None => {
                same.push(position);
                false
            }
        }
    }

    fn join(&mut self, position: usize, leader: usize) {
        self.slots[position].execution = Some(leader);
        self.slots[leader].answers.push(position);
    }

    fn execute(
        &mut self,
        position: usize,
        call: Arc<ResolvedCall>,
        tool: Arc<Registered>,
        arguments: Arc<Map<String, Value>>,
    ) {
        let planned = self.planned.calls[position].tool.as_ref();
        let call = match planned.is_some_and(|planned| Arc::ptr_eq(planned, &tool)) && tool.is_fixed() {
            true => call,
            // The tool is another than was planned, or its classifiers have only seen placeholders so far.
            false => {
                let classified = tool.classify(&arguments);
                let facts = match (call.facts.class, classified.facts.class) {
                    // It has a stage of its own and keeps it.
                    (Class::Write | Class::Exclusive, Class::Read) => Arc::clone(&call.facts),
                    _ => classified.facts,
                };
                Arc::new(ResolvedCall { facts, keys: classified.keys, ..ResolvedCall::clone(&call) })
            }
        };
        let alone = call.facts.class != Class::Read;
        if alone && self.call(position).facts.class == Class::Read {
            self.gate.hold_for(position);
        }
        let mut request = CallRequest::new(call, Arc::clone(&self.set), self.planned.deadline);
        request.arguments = arguments;
        let service = self.settings.service(&tool);
        let name = Arc::clone(&tool.spec().name);
        self.gate.bind(position, tool);
        self.slots[position].execution = Some(position);
        self.slots[position].answers.push(position);
        let call = service.oneshot(request);
        self.pool.push(match alone {
            false => Execution::Here { position, call },
            true => Execution::Spawned { position, tool: name, task: self.settings.owner.spawn(call) },
        });
    }

    // ===== settling =====

    /// An execution has ended: every call it answers is settled.
    fn finish(&mut self, position: usize, result: Result<Reading, CallError>) {
        let stand_in = self.planned.stand_in.as_ref().filter(|s| s.members.iter().any(|(m, _)| *m == position));
        let name = match stand_in {
            Some(stand_in) => &stand_in.tool.spec().name,
            None => &self.call(position).tool,
        };
        let replaced = self.gate.finished(position, name, result.is_ok());
        let answers = std::mem::take(&mut self.slots[position].answers);
        if replaced && self.gate.closed_to(position).is_none() {
            return self.dispatch_anew(position, answers);
        }
        match &result {
            Err(error) if error.is_fatal() => {
                self.fatal = true;
                self.end(Ended::Fatal);
            }
            Err(error) if error.outcome() != Outcome::NotStarted => {
                let on_failure = self.settings.on_failure.unwrap_or(self.planned.policy.on_failure);
                if on_failure == FailurePolicy::Abort && self.gate.ended().is_none() {
                    self.aborted = true;
                    self.end(Ended::Aborted);
                    self.set.signals.cancel_all();
                }
            }
            Ok(_) if self.call(position).facts.is_final => self.end_turn(position),
            _ => {}
        }
        match (result, stand_in) {
            (Ok(reading), Some(_)) => self.fan_out(position, &answers, reading),
            (Ok(reading), None) => {
                let leader = answers.first().copied();
                for &answered in answers.iter().skip(1) {
                    let mut result = self.ok_result(answered, position, reading.clone());
                    result.shared_with = leader;
                    self.settle(answered, result);
                }
                if let Some(leader) = leader {
                    let result = self.ok_result(leader, position, reading);
                    self.settle(leader, result);
                }
            }
            (Err(error), _) => {
                let leader = answers.first().copied();
                for answered in answers {
                    let shared = leader.filter(|leader| *leader != answered && stand_in.is_none());
                    self.settle_error(answered, error.clone(), shared);
                    if let (Some(stand_in), Some(result)) = (stand_in, &mut self.slots[answered].result) {
                        result.via = Some(Arc::clone(&stand_in.tool.spec().name));
                    }
                }
            }
        }
    }

    /// The tool was replaced between plan and start: the call is resolved again, and meets the new one.
    fn dispatch_anew(&mut self, position: usize, answers: Vec<usize>) {
        let call = Arc::clone(self.call(position));
        let Some(tool) = self.planned.registry.get(&call.tool) else {
            let message = format!("The tool {:?} was removed before this call started.", call.tool);
            let error = CallError::new(ErrorCode::UnknownTool, message);
            return answers.into_iter().for_each(|answered| self.settle_error(answered, error.clone(), None));
        };
        let arguments = self.slots[position].arguments.clone().unwrap_or_else(|| Arc::clone(&call.arguments));
        if let Err(error) = tool.validate(&arguments) {
            return answers.into_iter().for_each(|answered| self.settle_error(answered, error.clone(), None));
        }
        self.execute(position, call, tool, arguments);
        self.slots[position].answers = answers;
    }

    /// The snapshot tool has answered: each call it stood in for gets its part.
    fn fan_out(&mut self, position: usize, answers: &[usize], mut reading: Reading) {
        let Some(stand_in) = &self.planned.stand_in else { return };
        let spec = stand_in.tool.spec();
        if reading.view.is_none() && spec.one_state && reading.complete && reading.unsound.is_none() {
            // Declared: one answer is one state of one system. Its parts are functions of that state.
            reading.view = Some(ViewId::fresh());
        }
        let extra: Map<String, Value> = stand_in
            .extra
            .iter()
            .filter_map(|(tool, pointer)| Some((tool.to_string(), reading.value.pointer(pointer)?.clone())))
            .collect();
        self.extra = (!extra.is_empty()).then_some(Value::Object(extra));
        for (member, pointer) in &stand_in.members {
            if !answers.contains(member) {
                continue;
            }
            match reading.value.pointer(pointer).cloned() {
                Some(value) => {
                    let mut result = self.ok_result(*member, position, Reading { value, ..reading.clone() });
                    result.via = Some(Arc::clone(&spec.name));
                    self.settle(*member, result);
                }
                None => {
                    let message = format!("{} answered without the part {pointer} that stands for this call.", spec.name);
                    let error = CallError::new(ErrorCode::CallFailed, message).class(ErrorClass::Internal);
                    self.settle_error(*member, error, None);
                }
            }
        }
    }

    fn ok_result(&self, position: usize, leader: usize, reading: Reading) -> CallResult {
        let mut result = self.blank(position, Outcome::Ok);
        result.value = Some(reading.value);
        result.complete = reading.complete;
        result.view = reading.view;
        result.as_of = reading.stamp.as_of().map(Moment::from_wall);
        result.stamp = Some(reading.stamp);
        result.unsound = reading.unsound;
        result.attempts = reading.attempts;
        result.elapsed_ms = millis(reading.elapsed);
        self.times(&mut result, position, leader);
        result
    }

    /// Settles a call without a value.
    fn settle_error(&mut self, position: usize, error: CallError, shared_with: Option<usize>) {
        let mut result = self.blank(position, error.outcome());
        result.attempts = error.attempts_made();
        result.error = Some(ErrorReport::from(&error));
        result.shared_with = shared_with;
        let leader = self.slots[position].execution.unwrap_or(position);
        if let Some(started) = self.gate.started(leader) {
            result.elapsed_ms = millis(self.set.timeline.mono().since(started.at));
            result.attempts = result.attempts.max(1);
        }
        self.times(&mut result, position, leader);
        self.settle(position, result);
    }

    /// When it waited, and what it was when it started.
    fn times(&self, result: &mut CallResult, position: usize, leader: usize) {
        let started = self.gate.started(leader);
        if let Some(ready) = self.slots[position].ready {
            let until = started.map_or_else(|| self.set.timeline.mono(), |started| started.at);
            result.queued_ms = millis(until.since(ready));
        }
        if let Some(started) = started {
            result.facts.class = started.class;
            result.facts.epoch = started.epoch;
        }
    }

    fn blank(&self, position: usize, outcome: Outcome) -> CallResult {
        let call = self.call(position);
        let slot = &self.slots[position];
        let mut facts = CallFacts::new(call.facts.class);
        facts.one_state = self.planned.calls[position].tool.as_ref().is_some_and(|tool| tool.spec().one_state);
        facts.leans_on = slot.leans_on.clone();
        facts.leans_on_earlier = slot.leans_on_earlier;
        CallResult {
            id: Arc::clone(&call.id),
            tool: Arc::clone(&call.tool),
            outcome,
            value: None,
            error: None,
            complete: false,
            view: None,
            as_of: None,
            stamp: None,
            replaced: None,
            shared_with: None,
            via: None,
            unverified: slot.unverified.clone(),
            withheld: false,
            queued_ms: 0.0,
            elapsed_ms: 0.0,
            attempts: 0,
            unsound: None,
            facts,
        }
    }

    /// A call has its result. A second one is ignored: a slot is filled once.
    fn settle(&mut self, position: usize, result: CallResult) {
        let slot = &mut self.slots[position];
        if slot.result.is_some() {
            return;
        }
        let ok = result.is_ok();
        let outcome = result.outcome;
        slot.result = Some(result);
        self.unsettled -= 1;
        self.planned.request.control.emit(|| Event::Finished { position, outcome });
        self.schedule.settle(position, ok, &mut self.released);
    }

    /// An edge that can't be met any more.
    fn fail_edge(&mut self, position: usize, edge: usize, culprit: usize) {
        let edge = &self.planned.plan.edges[edge];
        let call = self.call(position);
        // Only the first in a chain tells the cause, or the last of ten thousand would tell it ten thousand times.
        let because = self.slots[culprit].result.as_ref().and_then(|result| result.error.as_ref());
        let because = match because {
            Some(error) if error.code != ErrorCode::DependencyFailed => format!(": {}", error.message),
            _ => ".".to_owned(),
        };
        let error = match edge.reason {
            EdgeReason::Precondition => {
                // An edge lists who may meet it, but not always all who may: a success before a barrier counts too.
                match plan::precondition_met(&call.tool, &call.facts, |tool| self.gate.has_succeeded(tool)) {
                    Ok(()) => return self.schedule.meet(position, &mut self.released),
                    Err(error) => error,
                }
            }
            _ => {
                let message = format!(
                    "{} needs what call #{culprit} ({}) returns, and that did not succeed{because}",
                    call.tool,
                    self.call(culprit).tool,
                );
                CallError::new(ErrorCode::DependencyFailed, message)
            }
        };
        self.settle_error(position, error, None);
    }

    /// Nothing runs and nothing can start: the plan's edges contradict each other. Every call is answered all the same.
    fn settle_stuck(&mut self) {
        for position in 0..self.slots.len() {
            if self.slots[position].result.is_none() {
                let message = "This call waits for calls that wait for it.";
                self.settle_error(position, CallError::new(ErrorCode::DependencyCycle, message), None);
            }
        }
    }

    // ===== ending =====

    /// Does what the control was told.
    fn obey(&mut self) {
        let control = &self.planned.request.control;
        let calls = control.take_calls();
        if control.is_cancelled() && self.gate.ended().is_none() {
            self.set.signals.cancel_all();
            self.end(Ended::Cancelled);
        }
        for position in calls {
            if position < self.slots.len() && self.slots[position].result.is_none() {
                self.cancel_call(position);
            }
        }
    }

    /// Ends one call. An execution that answers others too goes on for them.
    fn cancel_call(&mut self, position: usize) {
        let Some(leader) = self.slots[position].execution else {
            let message = "The call was cancelled before it started.";
            return self.settle_error(position, CallError::new(ErrorCode::SetCancelled, message), None);
        };
        if self.slots[leader].answers == [position] {
            return self.set.signals.cancel(leader);
        }
        self.slots[leader].answers.retain(|&answered| answered != position);
        let error = match self.gate.started(leader) {
            Some(_) => CallError::new(ErrorCode::Cancelled, "The call was cancelled."),
            None => CallError::new(ErrorCode::SetCancelled, "The call was cancelled before it started."),
        };
        self.settle_error(position, error, None);
    }

    /// Nothing more starts: what was not dispatched is answered now, the rest by its own stack.
    fn end(&mut self, why: Ended) {
        self.gate.end(why);
        for position in 0..self.slots.len() {
            let slot = &self.slots[position];
            if slot.result.is_none() && slot.execution.is_none() {
                self.settle_error(position, why.error(), None);
            }
        }
    }

    /// The turn is over for every later call.
    fn end_turn(&mut self, by: usize) {
        self.gate.end_turn(by);
        for position in by + 1..self.slots.len() {
            let slot = &self.slots[position];
            if slot.result.is_none() && slot.execution.is_none()
                && let Some(error) = self.gate.closed_to(position)
            {
                self.settle_error(position, error, None);
            }
        }
    }

    // ===== committing =====

    /// Commits what may be, in the model's order, up to the first result whose hooks must be awaited.
    fn commit(&mut self) -> Option<BoxFuture<'static, ()>> {
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
                    control.emit(|| Event::Committed { position, result: Arc::new(result.clone()) });
                }
                self.committed += 1;
                continue;
            }
            let (hooks, control) = (Arc::clone(&self.settings.hooks), control.clone());
            let result = Arc::new(result.clone());
            return Some(Box::pin(async move {
                for hook in hooks.iter() {
                    // A hook that panics here has nothing left to stop.
                    let _ = AssertUnwindSafe(hook.after(position, &result)).catch_unwind().await;
                }
                if told {
                    control.emit(|| Event::Committed { position, result });
                }
            }));
        }
        None
    }

    // ===== reporting =====

    fn report(mut self) -> SetReport {
        let planned = self.planned;
        let set = &planned.request.set;
        let unsound: HashMap<ViewId, UnprovenReason> =
            planned.views.unsound().into_iter().map(|(view, unsound)| (view, unsound.reason)).collect();
        let mut results: Vec<CallResult> = Vec::with_capacity(self.slots.len());
        for slot in &mut self.slots {
            let mut result = slot.result.take().expect("every slot is filled before the set reports");
            if let Some(reason) = result.view.as_ref().and_then(|view| unsound.get(view)) {
                result.unsound.get_or_insert(*reason);
            }
            results.push(result);
        }
        let mut called = set.called.clone();
        let mut known: HashSet<Arc<str>> = called.iter().cloned().collect();
        for result in &results {
            let counts = result.is_ok()
                || (planned.policy.failures_count_as_called && result.attempts > 0);
            let name = result.via.as_ref().unwrap_or(&result.tool);
            for name in [name, &result.tool] {
                if counts && known.insert(Arc::clone(name)) {
                    called.push(Arc::clone(name));
                }
            }
        }
        let calls = results.len();
        let mut asked = Asked::of(set);
        asked.spread_on_points = planned.policy.spread_on_points;
        SetReport {
            set_id: planned.request.set_id.to_string(),
            status: match self.gate.ended() {
                Some(Ended::Cancelled) => Status::Cancelled,
                _ if self.fatal => Status::Fatal,
                _ if self.aborted => Status::Aborted,
                _ => Status::Complete,
            },
            issued_at: planned.timeline.issued(),
            elapsed_ms: millis(planned.timeline.elapsed()),
            policy: planned.policy.name,
            time_zone: "UTC".to_owned(),
            called,
            pin: None,
            decision: planned.decision.clone(),
            plan: planned.plan.clone(),
            route: Route { extra: self.extra, ..planned.route.clone() },
            results,
            consistency: Consistency::not_judged(calls),
            note: String::new(),
            asked,
        }
    }
}

/// A hash that is the same for equal arguments in any order of their names.
fn canonical_hash(hasher: &foldhash::fast::RandomState, arguments: &Map<String, Value>) -> u64 {
    fn value_hash(hasher: &foldhash::fast::RandomState, value: &Value) -> u64 {
        match value {
            Value::Null => 1,
            Value::Bool(value) => hasher.hash_one(value),
            // Numbers are told apart by equality later; a shared hash only costs a comparison.
            Value::Number(number) => number.as_f64().map_or(2, |number| hasher.hash_one(number.to_bits())),
            Value::String(text) => hasher.hash_one(text),
            Value::Array(items) => items.iter().fold(3, |sum: u64, item| sum.rotate_left(5) ^ value_hash(hasher, item)),
            Value::Object(members) => canonical_hash(hasher, members),
        }
    }
    arguments.iter().fold(4, |sum: u64, (name, value)| {
        sum.wrapping_add(hasher.hash_one((name, value_hash(hasher, value))))
    })
}
