//! Ends a call on its deadline or its cancellation, and lets it end as well as it can.
//!
//! The set's deadline covers all of the call, its waiting too; the tool's own timeout begins when the call starts. Past
//! either, or when cancelled:
//! - a call that **had not started** is dropped and never will start;
//! - a **read** is signalled and dropped, at once if it doesn't listen
//!   ([`CallRequest::cancelled`]), else after a grace period (B37); its answer is that it was late, whatever it still says;
//! - a **write**, or anything that isn't known to only read, is signalled and waited for, because what it did matters more
//!   than when: its real answer is given if it comes in time, else the answer says that it may have happened.

use std::future::Future;
use std::pin::{Pin, pin};
use std::task::{Context, Poll};
use std::time::Duration;

use futures_util::future::BoxFuture;
use tokio::time::{Instant, Sleep};
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
    S: Service<CallRequest, Error = CallError> + Clone + Send + 'static,
    S::Response: Send,
    S::Future: Send,
{
    type Response = S::Response;
    type Error = CallError;
    type Future = BoxFuture<'static, Result<S::Response, CallError>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), CallError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: CallRequest) -> Self::Future {
        let inner = self.inner.clone();
        let settings = self.settings.clone();
        Box::pin(async move {
            if let Some(interrupt) = Interrupt::already(&request) {
                return Err(interrupt.error(&request));
            }
            if settings.starts_at_once {
                request.set.signals.start(request.position());
            }
            let mut call = pin!(inner.oneshot(request.clone()));
            // A call that is ready at once costs neither a timer nor a place in the list of those that wait for a signal.
            if let Poll::Ready(result) = futures_util::poll!(call.as_mut()) {
                return result;
            }
            // Boxed, both: who waits can pay for it, and who needn't isn't made bigger by all that a wait is made of.
            let interrupt = match Box::pin(bounded(call.as_mut(), &request)).await {
                Ok(result) => return result,
                Err(interrupt) => interrupt,
            };
            let signals = &request.set.signals;
            let position = request.position();
            let error = late(interrupt, &request);
            if !signals.has_started(position) {
                return Err(error);
            }
            signals.cancel(position);
            let writes = request.call.facts.class != Class::Read;
            let patience = match writes {
                true => settings.drain,
                false if signals.is_listening(position) => settings.grace,
                false => return Err(error),
            };
            match Box::pin(tokio::time::timeout(patience, call)).await {
                Ok(result) if writes => result,
                _ => Err(error),
            }
        })
    }
}

/// Drives a call that was polled just now until it ends by itself, or has to.
async fn bounded<F: Future>(mut call: Pin<&mut F>, request: &CallRequest) -> Result<F::Output, Interrupt> {
    let signals = &request.set.signals;
    let position = request.position();
    let mut cancelled = pin!(signals.cancelled(position));
    let mut due: Due = Due {
        at: request.deadline,
        started: false,
    };
    let mut alarm = pin!(None::<Sleep>);
    let mut polled = true;
    let mut hears = true;
    std::future::poll_fn(move |cx| {
        if !std::mem::take(&mut polled)
            && let Poll::Ready(output) = call.as_mut().poll(cx)
        {
            return Poll::Ready(Ok(output));
        }
        let before = due.at;
        due.look(request);
        if due.at != before || alarm.is_none() {
            alarm.set(due.at.map(tokio::time::sleep_until));
        }
        if hears && cancelled.as_mut().poll(cx).is_ready() {
            // A set that drains keeps what runs, and its results; it only starts nothing more.
            hears = !(request.set.on_cancel == OnCancel::Drain && signals.has_started(position));
            if hears {
                return Poll::Ready(Err(Interrupt::Cancelled));
            }
        }
        match alarm.as_mut().as_pin_mut().map(|alarm| alarm.poll(cx)) {
            Some(Poll::Ready(())) => Poll::Ready(Err(Interrupt::Deadline)),
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
