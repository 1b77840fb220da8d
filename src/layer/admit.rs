//! Lets a call start when it may: allowance, place, gate and quota, in this order.
//!
//! 1. A permit of its dependency's **allowance**, in the order of asking.
//! 2. A **place** of its set.
//! 3. A look at the **quota**: if it is spent, the place is given back and the call waits, keeping its turn at the
//!    dependency, since all behind it wait for the same quota. A wait that can't fit the deadline is refused at once.
//! 4. The **gate**: checks, records and hooks of whoever runs the set. Asked once per call, not per attempt.
//! 5. A token of the quota is taken **last**, so that no refusal costs one and the start is when it is taken (G5).
//!
//! So nothing holds a place while it waits (B22). Reads through a view take connections, which are the allowance, and no
//! tokens.

use std::fmt;
use std::sync::Arc;
use std::task::{Context, Poll};

use futures_util::future::BoxFuture;
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::Instant;
use tower::{Layer, Service, ServiceExt};

use super::interrupt::{Interrupt, unless_interrupted};
use crate::clock::Mono;
use crate::limit::{Dependency, Limits, Permit, Spent};
use crate::reading::{CallError, ErrorCode};
use crate::request::{CallRequest, Start};
use crate::tool::Class;

/// Makes [`Admit`]s.
#[derive(Clone, Debug)]
pub struct AdmitLayer {
    limits: Limits,
    usual: Option<Arc<Dependency>>,
}

impl AdmitLayer {
    /// Admits by these limits.
    pub fn new(limits: Limits) -> Self {
        Self { limits, usual: None }
    }

    /// Most calls will lean on this dependency, which is then not looked up for each.
    #[must_use]
    pub fn usually(mut self, dependency: &Arc<str>) -> Self {
        self.usual = Some(self.limits.of(dependency));
        self
    }
}

impl<S> Layer<S> for AdmitLayer {
    type Service = Admit<S>;

    fn layer(&self, inner: S) -> Admit<S> {
        Admit {
            inner,
            limits: self.limits.clone(),
            usual: self.usual.clone(),
        }
    }
}

/// Starts each call when it may. Dropping a call that waits gives everything back.
#[derive(Clone, Debug)]
pub struct Admit<S> {
    inner: S,
    limits: Limits,
    usual: Option<Arc<Dependency>>,
}

/// What a call holds while it runs.
#[must_use = "dropping it lets the next call in"]
pub struct Admission {
    permit: Permit,
    _place: OwnedSemaphorePermit,
}

impl fmt::Debug for Admission {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Admission")
            .field("dependency", self.permit.dependency().name())
            .finish_non_exhaustive()
    }
}

impl<S> Service<CallRequest> for Admit<S>
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

    fn call(&mut self, mut request: CallRequest) -> Self::Future {
        let inner = self.inner.clone();
        let wanted = &request.call.facts.dependency;
        let dependency = match &self.usual {
            Some(usual) if usual.name() == wanted => Arc::clone(usual),
            _ => self.limits.of(wanted),
        };
        Box::pin(async move {
            let admission = Arc::new(Waiting::new(&request).admission(dependency).await?);
            // Held here too: a tool may let go of its request long before it ends.
            request.admission = Some(Arc::clone(&admission));
            let result = inner.oneshot(request).await;
            drop(admission);
            result
        })
    }
}

/// A call on its way to its start.
struct Waiting<'a> {
    call: &'a CallRequest,
    /// Whether it had started before: another attempt, which the gate has let pass already.
    again: bool,
    /// When it had to wait for the first time. A call that needn't wait doesn't read the clock.
    since: Option<Mono>,
}

impl<'a> Waiting<'a> {
    fn new(call: &'a CallRequest) -> Self {
        Self {
            call,
            again: call.set.signals.has_started(call.position()),
            since: None,
        }
    }

    /// Everything a call needs to start; it is started when this returns.
    async fn admission(mut self, dependency: Arc<Dependency>) -> Result<Admission, CallError> {
        let facts = &self.call.call.facts;
        let views = &self.call.set.views;
        let through_view =
            facts.class == Class::Read && facts.source.as_ref().is_some_and(|name| views.knows(name));
        let mut passed = self.again;
        let (permit, place) = 'turn: loop {
            let permit = match dependency.try_permit() {
                Some(permit) => permit,
                None => self.wait(dependency.permit()).await?,
            };
            loop {
                let place = self.place().await?;
                if let Some(interrupt) = self.interrupted() {
                    return Err(interrupt.error(self.call));
                }
                if !through_view && let Err(spent) = permit.look() {
                    drop(place);
                    self.wait_for_quota(&permit, spent).await?;
                    continue;
                }
                if !passed {
                    match self
                        .call
                        .set
                        .gate
                        .as_ref()
                        .map_or(Start::Go, |gate| gate.start(self.call))
                    {
                        Start::Go => {}
                        Start::No(error) => return Err(error),
                        Start::Hold(released) => {
                            drop((place, permit));
                            self.wait(released).await?;
                            continue 'turn;
                        }
                        Start::Ask(answer) => self.wait(answer).await??,
                    }
                    passed = true;
                    // The gate may have taken its time, and nothing starts after a cancellation (B39).
                    if let Some(interrupt) = self.interrupted() {
                        return Err(interrupt.error(self.call));
                    }
                }
                // Others may have taken what was there when we looked: then the call waits again, past the gate.
                if !through_view && let Err(spent) = permit.take() {
                    drop(place);
                    self.wait_for_quota(&permit, spent).await?;
                    continue;
                }
                break 'turn (permit, place);
            }
        };
        let (signals, position) = (&self.call.set.signals, self.call.position());
        if let Some(since) = self.since.filter(|_| !self.again) {
            signals.waited(position, self.call.set.timeline.mono().since(since));
        }
        signals.start(position);
        Ok(Admission {
            permit,
            _place: place,
        })
    }

    async fn place(&mut self) -> Result<OwnedSemaphorePermit, CallError> {
        let places = &self.call.set.places;
        if let Ok(place) = Arc::clone(places).try_acquire_owned() {
            return Ok(place);
        }
        Ok(self
            .wait(Arc::clone(places).acquire_owned())
            .await?
            .expect("a set never closes its places"))
    }

    /// Refuses at once what can't be had in time, so that the caller may do something better than wait.
    async fn wait_for_quota(&mut self, permit: &Permit, spent: Spent) -> Result<(), CallError> {
        let then = Instant::now().checked_add(spent.wait);
        let fits = self
            .call
            .deadline
            .is_none_or(|deadline| then.is_some_and(|then| then < deadline));
        if !fits {
            let message = format!(
                "The quota of {} is spent: {} could start in {:?} at the earliest, which is after the deadline.",
                permit.dependency().name(),
                self.call.tool(),
                spent.wait
            );
            return Err(CallError::new(ErrorCode::RateLimited, message).retry_after(spent.wait));
        }
        self.wait(tokio::time::sleep(spent.wait)).await
    }

    async fn wait<F: Future>(&mut self, what: F) -> Result<F::Output, CallError> {
        self.since.get_or_insert_with(|| self.call.set.timeline.mono());
        // Boxed: who waits can pay for it, and who needn't isn't made bigger by all that a wait is made of.
        Box::pin(unless_interrupted(self.call, what)).await
    }

    /// Whether the call may not start any more. Its deadline can only have passed if it waited.
    fn interrupted(&self) -> Option<Interrupt> {
        match self.since {
            Some(_) => Interrupt::already(self.call),
            None => self.call.is_cancelled().then_some(Interrupt::Cancelled),
        }
    }
}
