//! Asks again when a read fails in a way that may pass.
//!
//! Only reads, only errors that say they are worth it, only within the set's deadline, and never sooner than the error
//! says. Nothing is held between attempts, and each is admitted anew. An attempt reads through the set's view like the
//! first; a view that is lost is not a read's to open again, because the others would not see it (hole 15).

use std::task::{Context, Poll};
use std::time::Duration;

use futures_util::future::{BoxFuture, Either};
use tokio::time::Instant;
use tower::util::Oneshot;
use tower::{Layer, Service, ServiceExt};

use super::interrupt::unless_interrupted;
use crate::reading::{CallError, ErrorCode, Outcome, Reading};
use crate::request::CallRequest;
use crate::tool::{Class, RetryPolicy};

/// Makes [`Retry`]s.
#[derive(Clone, Copy, Debug)]
pub struct RetryLayer {
    policy: Option<RetryPolicy>,
}

impl RetryLayer {
    /// Retries by this policy, or never.
    pub fn new(policy: Option<RetryPolicy>) -> Self {
        // One attempt is no retry.
        Self {
            policy: policy.filter(|policy| policy.attempts.get() > 1),
        }
    }
}

impl<S> Layer<S> for RetryLayer {
    type Service = Retry<S>;

    fn layer(&self, inner: S) -> Retry<S> {
        Retry {
            inner,
            policy: self.policy,
        }
    }
}

/// Asks again. Counts the attempts in the reading or the error.
#[derive(Clone, Debug)]
pub struct Retry<S> {
    inner: S,
    policy: Option<RetryPolicy>,
}

impl<S> Service<CallRequest> for Retry<S>
where
    S: Service<CallRequest, Response = Reading, Error = CallError> + Clone + Send + Sync + 'static,
    S::Future: Send,
{
    type Response = Reading;
    type Error = CallError;
    type Future = Either<Oneshot<S, CallRequest>, BoxFuture<'static, Result<Reading, CallError>>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), CallError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: CallRequest) -> Self::Future {
        let inner = self.inner.clone();
        match self.policy {
            Some(policy) if request.call.facts.class == Class::Read => Either::Right(Box::pin(async move {
                let mut attempt = 1;
                loop {
                    let error = match inner.clone().oneshot(request.clone()).await {
                        Ok(mut reading) => {
                            reading.attempts = attempt;
                            return Ok(reading);
                        }
                        // A call that never started was asked no time at all.
                        Err(error) if matches!(error.outcome(), Outcome::NotStarted | Outcome::Refused) => {
                            return Err(error.attempts(attempt - 1));
                        }
                        Err(error) => error.attempts(attempt),
                    };
                    let wait = back_off(policy, attempt).max(error.retry_wait().unwrap_or_default());
                    let fits = request.deadline.is_none_or(|deadline| {
                        Instant::now()
                            .checked_add(wait)
                            .is_some_and(|then| then < deadline)
                    });
                    if attempt == policy.attempts.get() || !may_pass(&error) || !fits {
                        return Err(error);
                    }
                    unless_interrupted(&request, tokio::time::sleep(wait)).await?;
                    attempt += 1;
                }
            })),
            _ => Either::Left(inner.oneshot(request)),
        }
    }
}

/// Doubled each time.
fn back_off(policy: RetryPolicy, attempt: u32) -> Duration {
    policy
        .backoff
        .saturating_mul(1_u32.checked_shl(attempt - 1).unwrap_or(u32::MAX))
}

/// Whether the same call might succeed if it is made again now.
fn may_pass(error: &CallError) -> bool {
    let of_the_view = matches!(error.code(), ErrorCode::ViewLost | ErrorCode::ViewUnavailable);
    error.is_retryable() && !error.is_fatal() && error.outcome() == Outcome::Failed && !of_the_view
}
