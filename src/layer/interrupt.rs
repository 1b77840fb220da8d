//! What ends a call's waiting from outside: its cancellation, or its deadline.

use std::future::{Future, pending};
use std::pin::pin;

use futures_util::future::{Either, select};
use tokio::time::Instant;

use crate::reading::{CallError, ErrorCode};
use crate::request::CallRequest;

/// Why a call may not go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Interrupt {
    Cancelled,
    Deadline,
}

impl Interrupt {
    /// Whether a call may not even begin to wait.
    pub(super) fn already(call: &CallRequest) -> Option<Self> {
        if call.is_cancelled() {
            return Some(Self::Cancelled);
        }
        // The clock is read only if there is a deadline to hold it against.
        call.deadline
            .is_some_and(|deadline| deadline <= Instant::now())
            .then_some(Self::Deadline)
    }

    /// What the caller is told, which depends on whether the call has started.
    pub(super) fn error(self, call: &CallRequest) -> CallError {
        let (tool, position) = (call.tool(), call.position());
        let signals = &call.set.signals;
        match (self, signals.has_started(position)) {
            (Self::Cancelled, false) if signals.all_cancelled() => CallError::new(
                ErrorCode::SetCancelled,
                format!("The set was cancelled before {tool} started."),
            ),
            (Self::Cancelled, false) => CallError::new(
                ErrorCode::SetCancelled,
                format!("The call was cancelled before {tool} started."),
            ),
            (Self::Deadline, false) => CallError::new(
                ErrorCode::DeadlineBeforeStart,
                format!("The deadline passed while {tool} waited for its turn; it did not start."),
            ),
            (Self::Cancelled, true) => CallError::new(
                ErrorCode::Cancelled,
                format!("{tool} was cancelled while it ran."),
            )
            .attempts(signals.attempts(position)),
            (Self::Deadline, true) => CallError::new(
                ErrorCode::DeadlineExceeded,
                format!("{tool} did not end before the set's deadline."),
            )
            .attempts(signals.attempts(position)),
        }
    }
}

/// Waits for `what`, unless the call is interrupted first. If both happen at once, what was waited for wins.
///
/// # Errors
/// The answer of an interrupted call.
///
/// # Cancel safety
/// As safe as `what`.
pub(super) async fn unless_interrupted<F: Future>(
    call: &CallRequest,
    what: F,
) -> Result<F::Output, CallError> {
    let deadline = async {
        match call.deadline {
            Some(deadline) => tokio::time::sleep_until(deadline).await,
            None => pending().await,
        }
    };
    let cancelled = call.set.signals.cancelled(call.position());
    match select(pin!(what), select(pin!(cancelled), pin!(deadline))).await {
        Either::Left((output, _)) => Ok(output),
        Either::Right((Either::Left(_), _)) => Err(Interrupt::Cancelled.error(call)),
        Either::Right((Either::Right(_), _)) => Err(Interrupt::Deadline.error(call)),
    }
}
