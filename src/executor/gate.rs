//! Asked when a call is admitted: may it start, as the world is now?
//!
//! The plan was made from what was known when the set was issued. When a call starts, its tool may have been replaced or
//! removed, its own classifier may answer differently, its set may have ended. What is found exclusive only now waits for
//! all that runs, and holds back every later call that has not started.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures_util::FutureExt;
use tokio::sync::Notify;

use crate::clock::{Mono, Timeline};
use crate::hook::Hook;
use crate::plan;
use crate::reading::{CallError, ErrorClass, ErrorCode};
use crate::registry::{Registered, Registry};
use crate::request::{CallRequest, Start, StartGate};
use crate::run::{Control, Event};
use crate::snapshot::Views;
use crate::tool::Class;

/// Names of tools.
pub(super) type Names = std::collections::HashSet<Arc<str>, foldhash::fast::RandomState>;

/// Why nothing more of a set starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ended {
    Cancelled,
    Fatal,
    Aborted,
    Deadline,
}

impl Ended {
    /// The answer of a call that did not start because of it.
    pub(super) fn error(self) -> CallError {
        match self {
            Self::Cancelled => CallError::new(
                ErrorCode::SetCancelled,
                "The set was cancelled before this call started.",
            ),
            Self::Fatal => CallError::new(
                ErrorCode::FatalBefore,
                "Another call of the set failed in a way that leaves no call a chance; this one was not started.",
            ),
            Self::Aborted => CallError::new(
                ErrorCode::Aborted,
                "Another call failed and the set is all or nothing; this one was not started.",
            ),
            Self::Deadline => CallError::new(
                ErrorCode::DeadlineBeforeStart,
                "The deadline passed before this call could start.",
            ),
        }
    }
}

/// What a call was when it started.
#[derive(Clone, Copy, Debug)]
pub(super) struct Started {
    pub(super) at: Mono,
    pub(super) class: Class,
    /// How many writes and exclusive calls had started before.
    pub(super) epoch: usize,
}

pub(super) struct Gate {
    state: Mutex<State>,
    changed: Arc<Notify>,
    hooks: Arc<[Arc<dyn Hook>]>,
    /// One before-hook at a time, in the order calls are admitted.
    turn: tokio::sync::Mutex<()>,
    registry: Registry,
    generation: u64,
    recheck: bool,
    /// What the plan took each call for.
    planned: Vec<Class>,
    called: Names,
    views: Views,
    timeline: Timeline,
    control: Control,
}

struct State {
    ended: Option<Ended>,
    /// The accepted call that ended the turn.
    turn_ended_by: Option<usize>,
    running: usize,
    /// How many writes and exclusive calls have started.
    epoch: usize,
    /// Whether a call was told to wait since the last change.
    waited_for: bool,
    /// Calls that run alone now.
    alone: BTreeSet<usize>,
    /// Calls found exclusive at their start, waiting for what runs.
    holding: BTreeSet<usize>,
    started: Vec<Option<Started>>,
    tools: Vec<Option<Arc<Registered>>>,
    /// Calls to be dispatched anew: their tool was replaced, or they are no reads any more.
    restart: BTreeSet<usize>,
    /// Calls for which a before-hook threw.
    thrown: BTreeSet<usize>,
    succeeded: Names,
}

pub(super) struct GateSettings {
    pub(super) hooks: Arc<[Arc<dyn Hook>]>,
    pub(super) registry: Registry,
    pub(super) generation: u64,
    pub(super) recheck: bool,
    pub(super) planned: Vec<Class>,
    pub(super) called: Names,
    pub(super) views: Views,
    pub(super) timeline: Timeline,
    pub(super) control: Control,
}

impl Gate {
    pub(super) fn new(settings: GateSettings) -> Self {
        let GateSettings {
            hooks,
            registry,
            generation,
            recheck,
            planned,
            called,
            views,
            timeline,
            control,
        } = settings;
        Self {
            state: Mutex::new(State {
                ended: None,
                turn_ended_by: None,
                running: 0,
                epoch: 0,
                waited_for: false,
                alone: BTreeSet::new(),
                holding: BTreeSet::new(),
                started: vec![None; planned.len()],
                tools: vec![None; planned.len()],
                restart: BTreeSet::new(),
                thrown: BTreeSet::new(),
                succeeded: Names::default(),
            }),
            changed: Arc::new(Notify::new()),
            hooks,
            turn: tokio::sync::Mutex::new(()),
            registry,
            generation,
            recheck,
            planned,
            called,
            views,
            timeline,
            control,
        }
    }

    /// Nothing more starts. The first reason stays.
    pub(super) fn end(&self, why: Ended) {
        self.lock().ended.get_or_insert(why);
        self.changed.notify_waiters();
    }

    pub(super) fn ended(&self) -> Option<Ended> {
        self.lock().ended
    }

    /// A call ended the turn: later ones don't start.
    pub(super) fn end_turn(&self, position: usize) {
        let mut state = self.lock();
        let by = state.turn_ended_by.get_or_insert(position);
        *by = position.min(*by);
    }

    /// Why this call must not start any more, if it must not.
    pub(super) fn closed_to(&self, position: usize) -> Option<CallError> {
        self.lock().closed_to(position)
    }

    /// What the call was when it started; `None` if it has not.
    pub(super) fn started(&self, position: usize) -> Option<Started> {
        self.lock().started[position]
    }

    /// Whether a before-hook threw for it.
    pub(super) fn threw(&self, position: usize) -> bool {
        self.lock().thrown.contains(&position)
    }

    /// The tool a call is dispatched to, looked at again when it starts.
    pub(super) fn bind(&self, position: usize, tool: Arc<Registered>) {
        self.lock().tools[position] = Some(tool);
    }

    /// A call turned out to be no read only now: later calls that have not started wait for it.
    pub(super) fn hold_for(&self, position: usize) {
        self.lock().holding.insert(position);
    }

    /// Whether a call of this tool has succeeded, in an earlier turn or in this set.
    pub(super) fn has_succeeded(&self, tool: &str) -> bool {
        self.called.contains(tool) || self.lock().succeeded.contains(tool)
    }

    /// A call's execution has ended. Whether it must be dispatched anew.
    pub(super) fn finished(&self, position: usize, tool: &Arc<str>, ok: bool) -> bool {
        let mut state = self.lock();
        if state.started[position].is_some() {
            state.running -= 1;
        }
        if ok && !state.succeeded.contains(tool) {
            state.succeeded.insert(Arc::clone(tool));
        }
        state.alone.remove(&position);
        state.holding.remove(&position);
        let restart = !state.restart.is_empty() && state.restart.remove(&position);
        let waited_for = std::mem::take(&mut state.waited_for);
        drop(state);
        if waited_for {
            self.changed.notify_waiters();
        }
        restart
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Nothing panics while it holds this lock.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether the tool still is what the call was dispatched to, and the call still what it was taken for.
    fn look_again(&self, request: &CallRequest, tool: &Arc<Registered>) -> Result<(), Changed> {
        let name = &request.call.tool;
        if self.registry.generation() != self.generation {
            match self.registry.get(&tool.spec().name) {
                None => {
                    let message = format!("The tool {name:?} was removed before this call started.");
                    return Err(Changed::No(CallError::new(ErrorCode::UnknownTool, message)));
                }
                Some(now) if !Arc::ptr_eq(&now, tool) => return Err(Changed::DispatchAnew),
                Some(_) => {}
            }
        }
        if tool.is_fixed() {
            return Ok(());
        }
        let facts = tool.classify(&request.arguments).facts;
        // A call that was taken for more than a read is on its own already, whatever it is taken for now.
        if request.call.facts.class == Class::Read && facts.class != Class::Read {
            return Err(Changed::DispatchAnew);
        }
        plan::precondition_met(name, &facts, |tool| self.has_succeeded(tool)).map_err(Changed::No)
    }
}

enum Changed {
    No(CallError),
    /// It has to be dispatched again, as what it is now.
    DispatchAnew,
}

impl State {
    fn closed_to(&self, position: usize) -> Option<CallError> {
        if let Some(ended) = self.ended {
            return Some(ended.error());
        }
        match self.turn_ended_by {
            Some(by) if position > by => Some(CallError::new(
                ErrorCode::TurnEnded,
                format!("Call #{by} ended the turn; this one was not started."),
            )),
            _ => None,
        }
    }

    fn start(&mut self, position: usize, class: Class, at: Mono) {
        self.running += 1;
        self.holding.remove(&position);
        self.started[position] = Some(Started {
            at,
            class,
            epoch: self.epoch,
        });
        if class != Class::Read {
            self.alone.insert(position);
            self.epoch += 1;
        }
    }
}

impl StartGate for Gate {
    fn start<'a>(&'a self, request: &'a CallRequest) -> Start<'a> {
        let position = request.position();
        let class = request.call.facts.class;
        let tool = self.lock().tools[position].clone();
        if self.recheck
            && let Some(tool) = tool
        {
            match self.look_again(request, &tool) {
                Ok(()) => {}
                Err(Changed::No(error)) => return Start::No(error),
                Err(Changed::DispatchAnew) => {
                    self.lock().restart.insert(position);
                    let message = format!("{:?} changed before this call started.", request.call.tool);
                    return Start::No(CallError::new(ErrorCode::CallFailed, message).retryable(false));
                }
            }
        }
        let mut state = self.lock();
        if let Some(error) = state.closed_to(position) {
            return Start::No(error);
        }
        let held =
            state.alone.iter().next().is_some() || state.holding.iter().next().is_some_and(|&h| h < position);
        let late = class != Class::Read && self.planned[position] == Class::Read;
        if held || (late && state.running > 0) {
            // Registered while the state is locked, so that no change in between is missed.
            let mut changed = Box::pin(Arc::clone(&self.changed).notified_owned());
            changed.as_mut().enable();
            state.waited_for = true;
            return Start::Hold(changed);
        }
        let at = self.timeline.mono();
        state.start(position, class, at);
        drop(state);
        if self.hooks.is_empty() && class == Class::Read {
            self.control.emit(|| Event::Started { position });
            return Start::Go;
        }
        let reserved = Reserved {
            gate: self,
            position,
            kept: false,
        };
        Start::Ask(Box::pin(self.prepare(request, class, reserved)))
    }
}

impl Gate {
    /// What must happen before a start: the views of before a write are closed, and the hooks asked.
    async fn prepare(
        &self,
        request: &CallRequest,
        class: Class,
        mut reserved: Reserved<'_>,
    ) -> Result<(), CallError> {
        let position = request.position();
        if !self.hooks.is_empty() {
            let _turn = self.turn.lock().await;
            for hook in self.hooks.iter() {
                if let Some(error) = self.closed_to(position) {
                    return Err(error);
                }
                let asked = std::panic::AssertUnwindSafe(hook.before(request))
                    .catch_unwind()
                    .await;
                let Err(error) = asked.unwrap_or_else(|_| {
                    let message = format!("A hook panicked before {} could start.", request.call.tool);
                    Err(CallError::new(ErrorCode::CallFailed, message).class(ErrorClass::Internal))
                }) else {
                    continue;
                };
                if error.code() != ErrorCode::Denied {
                    self.lock().thrown.insert(position);
                }
                return Err(error);
            }
        }
        if let Some(error) = self.closed_to(position) {
            return Err(error);
        }
        if class != Class::Read {
            self.views.close().await;
        }
        if let Some(started) = &mut self.lock().started[position] {
            started.at = self.timeline.mono();
        }
        reserved.kept = true;
        self.control.emit(|| Event::Started { position });
        Ok(())
    }
}

/// A start that is being prepared: taken back if it comes to nothing.
struct Reserved<'a> {
    gate: &'a Gate,
    position: usize,
    kept: bool,
}

impl Drop for Reserved<'_> {
    fn drop(&mut self) {
        if !self.kept {
            let mut state = self.gate.lock();
            state.started[self.position] = None;
            state.running -= 1;
            state.alone.remove(&self.position);
            drop(state);
            self.gate.changed.notify_waiters();
        }
    }
}
