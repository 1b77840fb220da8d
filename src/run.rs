//! A set that is being run: its events, its cancellation, its report.

use std::fmt;
use std::future::IntoFuture;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

use futures_util::Stream;
use futures_util::future::BoxFuture;
use tokio::sync::{Notify, mpsc};

use crate::reading::Outcome;
use crate::report::{CallResult, SetReport};

/// Why a set has no report at all. Whatever goes wrong with a *call* is in its slot instead.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SetError {
    /// More calls than the coordinator takes in one set.
    #[error("the set has {calls} calls, and at most {limit} are taken; split it, or raise `max_calls`")]
    TooLarge {
        /// How many there are.
        calls: usize,
        /// How many may be.
        limit: usize,
    },
    /// The coordinator was shut down.
    #[error("the coordinator was shut down")]
    Closed,
    /// The report could not be recorded.
    #[error("the set ran but could not be recorded: {0}")]
    Ledger(String),
}

/// What happens while a set runs.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Event {
    /// A call was admitted and starts.
    Started {
        /// The call's position.
        position: usize,
    },
    /// A call has ended. Provisional: another result may still be committed in its place.
    Finished {
        /// The call's position.
        position: usize,
        /// How it ended.
        outcome: Outcome,
    },
    /// A result is final. In the model's order; under `require` only once the set was judged.
    Committed {
        /// The call's position.
        position: usize,
        /// The result.
        result: Arc<CallResult>,
    },
}

/// Ends a set, or one call of it, from anywhere. Clones are the same handle.
#[derive(Clone, Default)]
pub struct Control(Arc<Orders>);

#[derive(Default)]
struct Orders {
    cancelled: AtomicBool,
    calls: Mutex<Vec<usize>>,
    given: Notify,
    watched: AtomicBool,
    events: Mutex<Option<mpsc::UnboundedSender<Event>>>,
}

impl fmt::Debug for Control {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Control")
            .field("cancelled", &self.is_cancelled())
            .finish_non_exhaustive()
    }
}

impl Control {
    /// Cancels the set: nothing more starts, what runs is signalled, and every call is answered.
    pub fn cancel(&self) {
        self.0.cancelled.store(true, Ordering::SeqCst);
        self.0.given.notify_one();
    }

    /// Cancels one call and leaves its siblings. Nothing happens if it has already ended or there is no such position.
    pub fn cancel_call(&self, position: usize) {
        lock(&self.0.calls).push(position);
        self.0.given.notify_one();
    }

    /// Whether the set was cancelled.
    pub fn is_cancelled(&self) -> bool {
        self.0.cancelled.load(Ordering::SeqCst)
    }

    pub(crate) fn take_calls(&self) -> Vec<usize> {
        std::mem::take(&mut lock(&self.0.calls))
    }

    pub(crate) fn given(&self) -> &Notify {
        &self.0.given
    }

    /// Events from now on. A later subscriber takes an earlier one's place.
    pub(crate) fn subscribe(&self) -> Events {
        let (sender, receiver) = mpsc::unbounded_channel();
        *lock(&self.0.events) = Some(sender);
        self.0.watched.store(true, Ordering::SeqCst);
        Events(receiver)
    }

    pub(crate) fn is_watched(&self) -> bool {
        self.0.watched.load(Ordering::Relaxed)
    }

    pub(crate) fn emit(&self, event: impl FnOnce() -> Event) {
        if self.is_watched()
            && let Some(events) = &*lock(&self.0.events)
        {
            // Nobody listening any more is no fault of the set.
            let _ = events.send(event());
        }
    }

    /// Ends the events, whoever still holds a handle.
    pub(crate) fn finish(&self) {
        lock(&self.0.events).take();
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The events of a set, in the order they happened.
///
/// At most three a call are kept while nobody takes them.
#[derive(Debug)]
pub struct Events(mpsc::UnboundedReceiver<Event>);

impl Events {
    /// The next event; `None` once the set has ended.
    ///
    /// # Cancel safety
    /// Safe: no event is lost.
    pub async fn next(&mut self) -> Option<Event> {
        self.0.recv().await
    }
}

impl Stream for Events {
    type Item = Event;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Event>> {
        self.0.poll_recv(cx)
    }
}

/// A set on its way. Nothing runs until its report is awaited.
///
/// Dropping it, or the future of its report, ends the set: nothing starts any more, reads are signalled and dropped, and
/// what must end in its own time (a write, a database session) is owned by the coordinator, whose `idle` tells when it
/// has.
#[must_use = "a set runs while its report is awaited"]
pub struct Run {
    report: BoxFuture<'static, Result<SetReport, SetError>>,
    control: Control,
}

impl fmt::Debug for Run {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Run")
            .field("control", &self.control)
            .finish_non_exhaustive()
    }
}

impl Run {
    pub(crate) fn new(report: BoxFuture<'static, Result<SetReport, SetError>>, control: Control) -> Self {
        Self { report, control }
    }

    /// What happens while it runs, from now on. If it is asked again, the events before go nowhere else.
    pub fn events(&mut self) -> Events {
        self.control.subscribe()
    }

    /// A handle that cancels it from elsewhere.
    pub fn control(&self) -> Control {
        self.control.clone()
    }

    /// Cancels the set.
    pub fn cancel(&self) {
        self.control.cancel();
    }

    /// Cancels one call and leaves its siblings.
    pub fn cancel_call(&self, position: usize) {
        self.control.cancel_call(position);
    }

    /// Runs the set to its report.
    ///
    /// # Errors
    /// Only what leaves no report at all; whatever befalls a call is in its slot.
    ///
    /// # Cancel safety
    /// Dropping it ends the set, as dropping the `Run` does.
    pub async fn report(self) -> Result<SetReport, SetError> {
        self.report.await
    }
}

impl IntoFuture for Run {
    type Output = Result<SetReport, SetError>;
    type IntoFuture = BoxFuture<'static, Self::Output>;

    fn into_future(self) -> Self::IntoFuture {
        self.report
    }
}
