//! Ends a call on its deadline or its cancellation, and lets it end as well as it can.
//!
//! The set's deadline covers all of the call, its waiting too; the tool's own timeout begins when the call starts. Past
//! either, or when cancelled:
//! - a call that **had not started** is dropped and never will start;
//! - a **read** is signalled and dropped, at once if it doesn't listen
//!   ([`CallRequest::cancelled`]), else after a grace period (B37); its answer is that it was late, whatever it still says;
//! - a **write**, or anything that isn't known to only read, is signalled and waited for, because what it did matters more
//!   than when: its real answer is given if it comes in time, else the answer says that it may have happened.

use std::fmt;
use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use futures_util::future::BoxFuture;
use pin_project_lite::pin_project;
use tokio::time::{Instant, Sleep};
use tower::util::Oneshot;
use tower::{Layer, Service, ServiceExt};

use super::interrupt::Interrupt;
use crate::plan::policy::OnCancel;
use crate::reading::{CallError, ErrorCode};
use crate::request::CallRequest;
use crate::tool::Class;

/// Makes [`Deadline`]s.
#[derive(Clone, Debug)]
pub struct DeadlineLayer {
    grace: Duration,
    drain: Duration,
    starts_at_once: bool,
}

impl Default for DeadlineLayer {
    fn default() -> Self {
        Self::new()
    }
}

impl DeadlineLayer {
    /// With one second of grace and ten of drain.
    pub fn new() -> Self {
        Self {
            // Long enough to roll something back, short enough not to be noticed as a hang.
            grace: Duration::from_secs(1),
            // Most writes that end at all end within it.
            drain: Duration::from_secs(10),
            starts_at_once: false,
        }
    }

    /// How long a read that listens for its cancellation may take to end well.
    #[must_use]
    pub fn grace(mut self, grace: Duration) -> Self {
        self.grace = grace;
        self
    }

    /// How long a write is waited for.
    #[must_use]
    pub fn drain(mut self, drain: Duration) -> Self {
        self.drain = drain;
        self
    }

    /// Counts a call as started as soon as it gets here. For stacks without an [`Admit`](super::admit) layer below, which
    /// otherwise says when a call starts.
    #[must_use]
    pub fn starts_at_once(mut self) -> Self {
        self.starts_at_once = true;
        self
    }
}

impl<S> Layer<S> for DeadlineLayer {
    type Service = Deadline<S>;

    fn layer(&self, inner: S) -> Deadline<S> {
        Deadline {
            inner,
            settings: self.clone(),
        }
    }
}

/// Bounds each call in time.
#[derive(Clone, Debug)]
pub struct Deadline<S> {
    inner: S,
    settings: DeadlineLayer,
}

impl<S> Service<CallRequest> for Deadline<S>
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
        ResponseFuture {
            call: Some(self.inner.clone().oneshot(request.clone())),
            request,
            settings: self.settings.clone(),
            phase: Phase::Fresh,
        }
    }
}

pin_project! {
    /// The future of a [`Deadline`].
    pub struct ResponseFuture<S: Service<CallRequest>> {
        // Dropped as soon as the call is given up: what it holds is needed elsewhere.
        #[pin]
        call: Option<Oneshot<S, CallRequest>>,
        request: CallRequest,
        settings: DeadlineLayer,
        phase: Phase,
    }
}

/// Fresh => (Bounded | ended); Bounded => (Late | ended); Late => ended.
enum Phase {
    Fresh,
    /// Boxed: who waits can pay for it, and who needn't isn't made bigger by all that a wait is made of.
    Bounded(BoxFuture<'static, Interrupt>),
    Late {
        error: CallError,
        patience: Pin<Box<Sleep>>,
    },
}

impl<S: Service<CallRequest>> fmt::Debug for ResponseFuture<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ResponseFuture")
            .field("tool", self.request.tool())
            .finish_non_exhaustive()
    }
}

impl<S: Service<CallRequest, Error = CallError>> Future for ResponseFuture<S> {
    type Output = Result<S::Response, CallError>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut this = self.project();
        let signals = &this.request.set.signals;
        let position = this.request.position();
        if let Phase::Fresh = this.phase {
            if let Some(interrupt) = Interrupt::already(this.request) {
                this.call.set(None);
                return Poll::Ready(Err(interrupt.error(this.request)));
            }
            if this.settings.starts_at_once {
                signals.start(position);
            }
        }
        let call = this
            .call
            .as_mut()
            .as_pin_mut()
            .expect("a future that has ended is not polled again");
        // What ends at the very instant of its deadline has ended in time.
        let result = call.poll(cx);
        if let Poll::Ready(result) = &result
            && let Phase::Late { error, .. } = this.phase
            && this.request.call.facts.class == Class::Read
        {
            let is_fatal = result.as_ref().is_err_and(CallError::is_fatal);
            return Poll::Ready(Err(if is_fatal {
                error.clone().fatal()
            } else {
                error.clone()
            }));
        }
        if result.is_ready() {
            return result;
        }
        // A call that is ready at once costs neither a timer nor a place in the list of those that wait for a signal.
        if let Phase::Fresh = this.phase {
            *this.phase = Phase::Bounded(Box::pin(interrupted(this.request.clone())));
        }
        if let Phase::Bounded(watch) = this.phase {
            let interrupt = ready!(watch.as_mut().poll(cx));
            let error = late(interrupt, this.request);
            let patience = if !signals.has_started(position) {
                None
            } else {
                signals.cancel(position);
                match this.request.call.facts.class {
                    Class::Write | Class::Exclusive => Some(this.settings.drain),
                    Class::Read => signals.is_listening(position).then_some(this.settings.grace),
                }
            };
            let Some(patience) = patience else {
                this.call.set(None);
                return Poll::Ready(Err(error));
            };
            *this.phase = Phase::Late {
                error,
                patience: Box::pin(tokio::time::sleep(patience)),
            };
        }
        let Phase::Late { error, patience } = this.phase else {
            return Poll::Pending;
        };
        ready!(patience.as_mut().poll(cx));
        this.call.set(None);
        Poll::Ready(Err(error.clone()))
    }
}

/// Ends when the call has to: on its cancellation, its set's deadline, or its own timeout once it has started. Looks for
/// the start whenever it is polled, which is after every poll of the call itself.
async fn interrupted(request: CallRequest) -> Interrupt {
    let signals = &request.set.signals;
    let position = request.position();
    let mut cancelled = pin!(signals.cancelled(position));
    let mut due = Due {
        at: request.deadline,
        started: false,
    };
    let mut alarm = pin!(due.at.map(tokio::time::sleep_until));
    let mut hears = true;
    poll_fn(|cx| {
        let before = due.at;
        due.look(&request);
        if due.at != before {
            alarm.set(due.at.map(tokio::time::sleep_until));
        }
        if hears && cancelled.as_mut().poll(cx).is_ready() {
            // A set that drains keeps what runs, and its results; it only starts nothing more.
            hears = !(request.set.on_cancel == OnCancel::Drain && signals.has_started(position));
            if hears {
                return Poll::Ready(Interrupt::Cancelled);
            }
        }
        match alarm.as_mut().as_pin_mut().map(|alarm| alarm.poll(cx)) {
            Some(Poll::Ready(())) => Poll::Ready(Interrupt::Deadline),
            _ => Poll::Pending,
        }
    })
    .await
}

/// When a call has to have ended.
struct Due {
    at: Option<Instant>,
    started: bool,
}

impl Due {
    /// The tool's own timeout begins with the start, and the start happens while the call is polled: so it is seen at once.
    fn look(&mut self, request: &CallRequest) {
        if !self.started && request.set.signals.has_started(request.position()) {
            self.started = true;
            if let Some(own) = request
                .call
                .facts
                .timeout
                .and_then(|timeout| Instant::now().checked_add(timeout))
            {
                self.at = Some(self.at.map_or(own, |set| set.min(own)));
            }
        }
    }
}

fn late(interrupt: Interrupt, request: &CallRequest) -> CallError {
    let error = match (interrupt, request.call.facts.timeout) {
        (Interrupt::Deadline, Some(timeout))
            if request.set.signals.has_started(request.position())
                && request.deadline.is_none_or(|deadline| Instant::now() < deadline) =>
        {
            let message = format!(
                "{} did not end within its timeout of {timeout:?}.",
                request.tool()
            );
            CallError::new(ErrorCode::DeadlineExceeded, message)
                .attempts(request.set.signals.attempts(request.position()))
        }
        _ => interrupt.error(request),
    };
    let started = request.set.signals.has_started(request.position());
    match request.call.facts.class {
        // Asking again might do it twice.
        Class::Write | Class::Exclusive if started => error.may_have_happened().retryable(false),
        _ => error,
    }
}
