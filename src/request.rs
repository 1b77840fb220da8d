//! One call on its way through the call stack: what the layers and the tool get.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use futures_util::future::BoxFuture;
use serde_json::{Map, Value};
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::clock::Timeline;
use crate::layer::admit::Admission;
use crate::plan::policy::OnCancel;
use crate::reading::CallError;
use crate::snapshot::{Lease, Views};
use crate::tool::{ArgumentMap, ResolvedCall};

/// One call on its way. Cheap to clone: everything big is shared.
#[derive(Clone, Debug)]
pub struct CallRequest {
    /// The call as the registry resolved it.
    pub call: Arc<ResolvedCall>,
    /// Its arguments, placeholders filled in.
    pub arguments: Arc<ArgumentMap>,
    /// What all calls of the set share.
    pub set: Arc<SetContext>,
    /// When it must have ended: the set's deadline. The tool's own timeout starts when the call starts.
    pub deadline: Option<Instant>,
    /// What it holds of its set's places and its dependency's allowance, once it is admitted. They are free again when
    /// the last clone is gone, so that work which outlives the call's future still counts if it keeps the request.
    pub admission: Option<Arc<Admission>>,
}

/// What all calls of a set share.
pub struct SetContext {
    /// The set's id.
    pub set_id: Arc<str>,
    /// Who asks; never printed.
    pub scope: Arc<Map<String, Value>>,
    /// The set's time.
    pub timeline: Timeline,
    /// The set's views.
    pub views: Views,
    /// Places: how many calls of the set may run at once.
    pub places: Arc<tokio::sync::Semaphore>,
    /// Asked when a call is admitted, before it starts.
    pub gate: Option<Arc<dyn StartGate>>,
    /// Cancellation, for the set and for each call.
    pub signals: Signals,
    /// What a cancelled set does with what runs.
    pub on_cancel: OnCancel,
    /// The set's span, parent of its calls' spans.
    pub span: tracing::Span,
}

impl fmt::Debug for SetContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SetContext")
            .field("set_id", &self.set_id)
            .finish_non_exhaustive()
    }
}

/// Asked by the `Admit` layer when a call holds its permits, before it starts.
pub trait StartGate: Send + Sync {
    /// Lets the call start, or says why not. Runs what must happen before a start: checks, records, hooks.
    fn start<'a>(&'a self, request: &'a CallRequest) -> Start<'a>;
}

/// A gate's answer.
pub enum Start<'a> {
    /// Now.
    Go,
    /// Never.
    No(CallError),
    /// Not yet: give the permits back, wait for this, and be admitted again.
    Hold(BoxFuture<'a, ()>),
    /// Ask this, and take its answer.
    Ask(BoxFuture<'a, Result<(), CallError>>),
}

impl fmt::Debug for Start<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Go => f.write_str("Go"),
            Self::No(error) => f.debug_tuple("No").field(error).finish(),
            Self::Hold(_) => f.write_str("Hold"),
            Self::Ask(_) => f.write_str("Ask"),
        }
    }
}

impl SetContext {
    /// The context of calls that run outside a coordinator: no views, no gate, as many places as there are calls.
    pub fn alone(timeline: Timeline, calls: usize) -> Self {
        Self {
            set_id: "alone".into(),
            scope: Arc::default(),
            timeline,
            views: Views::none(),
            places: Arc::new(tokio::sync::Semaphore::new(calls.max(1))),
            gate: None,
            signals: Signals::new(calls),
            on_cancel: OnCancel::Signal,
            span: tracing::Span::none(),
        }
    }
}

impl CallRequest {
    /// A request as the executor makes it.
    pub fn new(call: Arc<ResolvedCall>, set: Arc<SetContext>, deadline: Option<Instant>) -> Self {
        let arguments = Arc::clone(&call.arguments);
        Self {
            call,
            arguments,
            set,
            deadline,
            admission: None,
        }
    }

    /// Its place in the set.
    pub fn position(&self) -> usize {
        self.call.position
    }

    /// The tool's name.
    pub fn tool(&self) -> &Arc<str> {
        &self.call.tool
    }

    /// Who asks: set by the host, never by the model.
    pub fn scope(&self) -> &Map<String, Value> {
        &self.set.scope
    }

    /// Whether the call or its set was cancelled.
    pub fn is_cancelled(&self) -> bool {
        self.set.signals.is_cancelled(self.position())
    }

    /// Ends when the call or its set is cancelled, or the call's deadline has passed.
    ///
    /// A tool that has ever asked for this is a listener: when it is cancelled it is given a grace period to end well.
    /// Any other tool's future is dropped at once.
    ///
    /// # Cancel safety
    /// Safe: nothing is lost by dropping it.
    pub async fn cancelled(&self) {
        self.set.signals.listen(self.position());
        self.set.signals.cancelled(self.position()).await;
    }

    /// The set's view of a source, opened if this is the first read that wants it.
    ///
    /// # Errors
    /// What the source answered when it was asked to open one; `internal` if no such source is known.
    ///
    /// # Cancel safety
    /// Safe: if the opener is dropped, another waiting read opens instead.
    pub async fn view(&self, source: &str) -> Result<Lease, CallError> {
        self.set.views.lease(source, &self.set.timeline).await
    }
}

const CANCELLED: u8 = 1;
const STARTED: u8 = 2;
const LISTENING: u8 = 4;

/// Cancellation of a set and of each of its calls, and what is known of their starts. Clones share the state.
#[derive(Clone)]
pub struct Signals(Arc<SignalState>);

struct SignalState {
    all: AtomicBool,
    calls: Box<[CallState]>,
    changed: Notify,
}

#[derive(Default)]
struct CallState {
    bits: AtomicU8,
    attempts: AtomicU32,
    /// Nanoseconds.
    queued: AtomicU64,
}

impl fmt::Debug for Signals {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Signals")
            .field("all", &self.0.all)
            .field("calls", &self.0.calls.len())
            .finish()
    }
}

impl Signals {
    /// Signals for a set of so many calls.
    pub fn new(calls: usize) -> Self {
        let calls = (0..calls).map(|_| CallState::default()).collect();
        Self(Arc::new(SignalState {
            all: AtomicBool::new(false),
            calls,
            changed: Notify::new(),
        }))
    }

    /// Cancels the set.
    pub fn cancel_all(&self) {
        self.0.all.store(true, Ordering::SeqCst);
        self.0.changed.notify_waiters();
    }

    /// Cancels one call.
    pub fn cancel(&self, position: usize) {
        self.set(position, CANCELLED);
        self.0.changed.notify_waiters();
    }

    /// Whether the set was cancelled.
    pub fn all_cancelled(&self) -> bool {
        self.0.all.load(Ordering::SeqCst)
    }

    /// Whether the call or its set was cancelled.
    pub fn is_cancelled(&self, position: usize) -> bool {
        self.all_cancelled() || self.has(position, CANCELLED)
    }

    /// Notes that the call starts now, for the first time or again.
    pub fn start(&self, position: usize) {
        self.set(position, STARTED);
        if let Some(call) = self.0.calls.get(position) {
            call.attempts.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// How often the call has started.
    pub fn attempts(&self, position: usize) -> u32 {
        self.0
            .calls
            .get(position)
            .map_or(0, |call| call.attempts.load(Ordering::Relaxed))
    }

    /// Notes how long the call waited, from being ready, for allowance, place, quota and gate.
    pub fn waited(&self, position: usize, queued: Duration) {
        if let Some(call) = self.0.calls.get(position) {
            call.queued.store(
                u64::try_from(queued.as_nanos()).unwrap_or(u64::MAX),
                Ordering::Relaxed,
            );
        }
    }

    /// How long the call waited to be admitted; of no meaning before it was.
    pub fn queued(&self, position: usize) -> Duration {
        self.0.calls.get(position).map_or(Duration::ZERO, |call| {
            Duration::from_nanos(call.queued.load(Ordering::Relaxed))
        })
    }

    /// Whether the call has started.
    pub fn has_started(&self, position: usize) -> bool {
        self.has(position, STARTED)
    }

    /// Notes that the tool waits for its cancellation, and so deserves a grace period.
    pub fn listen(&self, position: usize) {
        self.set(position, LISTENING);
    }

    /// Whether the tool waits for its cancellation.
    pub fn is_listening(&self, position: usize) -> bool {
        self.has(position, LISTENING)
    }

    /// Ends when the call or its set is cancelled.
    ///
    /// # Cancel safety
    /// Safe: nothing is lost by dropping it.
    pub async fn cancelled(&self, position: usize) {
        loop {
            let changed = self.0.changed.notified();
            tokio::pin!(changed);
            // Registered before looking, so that a cancellation in between wakes us.
            changed.as_mut().enable();
            if self.is_cancelled(position) {
                return;
            }
            changed.await;
        }
    }

    fn set(&self, position: usize, bit: u8) {
        if let Some(call) = self.0.calls.get(position) {
            call.bits.fetch_or(bit, Ordering::SeqCst);
        }
    }

    fn has(&self, position: usize, bit: u8) -> bool {
        self.0
            .calls
            .get(position)
            .is_some_and(|call| call.bits.load(Ordering::SeqCst) & bit != 0)
    }
}
