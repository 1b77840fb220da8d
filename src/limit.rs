//! How much of each dependency may be used: calls in flight (the **allowance**) and calls per time (the **quota**).
//!
//! One [`Limits`] is shared by all sets of a process, so that limits hold across them (G5). It decides and never waits on
//! a clock: a spent quota answers with the time to wait, and who waits, how long at most, and what is given back
//! meanwhile is the [`Admit`](crate::layer::admit) layer's business. Where the state lies is nobody's business but this
//! module's.
//!
//! ```
//! use std::time::Duration;
//! use coeval::limit::{Limits, Quota};
//! use coeval::plan::Allowances;
//!
//! let limits = Limits::builder()
//!     .allowance("crm-api", 2)
//!     .quota("crm-api", Quota::new(10, Duration::from_secs(1)).burst(5))
//!     .build()?;
//! assert_eq!(limits.allowance("crm-api"), 2);
//! // Undeclared is the default, never unlimited.
//! assert_eq!(limits.allowance("anything"), 8);
//! # Ok::<(), coeval::limit::LimitError>(())
//! ```

use std::collections::HashMap;
use std::fmt;
use std::num::NonZeroU32;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use foldhash::fast::RandomState;
use governor::RateLimiter;
use governor::clock::Clock;
use governor::middleware::NoOpMiddleware;
use governor::nanos::Nanos;
use governor::state::StateStore;
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::Instant;

use crate::plan::Allowances;

/// What a dependency takes at once when nothing is declared: enough to be useful, little enough to be polite.
pub const DEFAULT_ALLOWANCE: usize = 8;

/// So many undeclared dependencies are remembered before idle ones are forgotten.
const REMEMBERED: usize = 1024;

/// A name to dependency table.
type Table = HashMap<Arc<str>, Arc<Dependency>, RandomState>;

/// Calls per time: at most `limit` in each `per` on average, at most `burst` at once.
///
/// No half-open window of `per` sees more than `limit + burst − 1` starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Quota {
    /// Calls per `per`.
    pub limit: u32,
    /// The time in which `limit` calls become possible again.
    pub per: Duration,
    /// Calls at once, after a pause. 1 spaces all calls evenly.
    pub burst: u32,
}

impl Quota {
    /// `limit` calls per `per`, evenly spaced.
    pub const fn new(limit: u32, per: Duration) -> Self {
        Self { limit, per, burst: 1 }
    }

    /// Allows so many at once.
    #[must_use]
    pub const fn burst(mut self, burst: u32) -> Self {
        self.burst = burst;
        self
    }
}

/// Why limits can't be set.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LimitError {
    /// Nothing could ever run.
    #[error("the allowance of {0:?} is 0, so that none of its calls could ever run: give it at least 1")]
    NoAllowance(Arc<str>),
    /// Nothing could ever run, or a window of no length.
    #[error("the quota of {0:?} has a limit, a time or a burst of 0: each has to be at least 1")]
    NoQuota(Arc<str>),
    /// More than the arithmetic can hold.
    #[error("the quota of {0:?} spans too long a time: keep `per` times `burst` under a year")]
    TooLong(Arc<str>),
}

/// Sets limits.
#[derive(Clone, Debug)]
#[must_use]
pub struct LimitsBuilder {
    default_allowance: usize,
    declared: HashMap<Arc<str>, (Option<usize>, Option<Quota>)>,
}

impl LimitsBuilder {
    /// What a dependency takes at once if nothing else is said of it.
    pub fn default_allowance(mut self, calls: usize) -> Self {
        self.default_allowance = calls;
        self
    }

    /// How many calls a dependency takes at once.
    pub fn allowance(mut self, dependency: impl Into<Arc<str>>, calls: usize) -> Self {
        self.declared.entry(dependency.into()).or_default().0 = Some(calls);
        self
    }

    /// How many calls a dependency takes per time.
    pub fn quota(mut self, dependency: impl Into<Arc<str>>, quota: Quota) -> Self {
        self.declared.entry(dependency.into()).or_default().1 = Some(quota);
        self
    }

    /// The limits.
    ///
    /// # Errors
    /// - [`LimitError::NoAllowance`], [`LimitError::NoQuota`]: a zero, under which nothing could ever run.
    /// - [`LimitError::TooLong`]: a quota over years.
    pub fn build(self) -> Result<Limits, LimitError> {
        let checked = |name: &Arc<str>, calls: usize| match calls {
            0 => Err(LimitError::NoAllowance(Arc::clone(name))),
            // More than a semaphore holds is as good as what it holds.
            calls => Ok(calls.min(Semaphore::MAX_PERMITS)),
        };
        let default_allowance = checked(&"default".into(), self.default_allowance)?;
        let mut declared = Table::default();
        for (name, (allowance, quota)) in self.declared {
            let allowance = checked(&name, allowance.unwrap_or(default_allowance))?;
            let meter = quota.map(|quota| Meter::new(&name, quota)).transpose()?;
            declared.insert(
                Arc::clone(&name),
                Arc::new(Dependency::new(name, allowance, meter)),
            );
        }
        let undeclared = Mutex::default();
        Ok(Limits(Arc::new(Shared {
            default_allowance,
            declared,
            undeclared,
        })))
    }
}

/// The limits of all dependencies. Clones share them.
#[derive(Clone)]
pub struct Limits(Arc<Shared>);

struct Shared {
    default_allowance: usize,
    declared: Table,
    /// Made when they are first named. A name may come out of arguments, so that there is no end of them: those that
    /// nobody uses are forgotten when there are many. Nothing is lost, for they have no quota to remember.
    undeclared: Mutex<Table>,
}

impl fmt::Debug for Limits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut map = f.debug_map();
        map.entries(
            self.0
                .declared
                .iter()
                .map(|(name, dependency)| (name, dependency.allowance)),
        );
        map.finish()
    }
}

impl Default for Limits {
    fn default() -> Self {
        Self::builder()
            .build()
            .expect("the default allowance is not zero")
    }
}

impl Allowances for Limits {
    fn allowance(&self, dependency: &str) -> usize {
        self.0
            .declared
            .get(dependency)
            .map_or(self.0.default_allowance, |dependency| dependency.allowance)
    }
}

impl Limits {
    /// Nothing declared: every dependency has [`DEFAULT_ALLOWANCE`] and no quota.
    pub fn builder() -> LimitsBuilder {
        LimitsBuilder {
            default_allowance: DEFAULT_ALLOWANCE,
            declared: HashMap::new(),
        }
    }

    /// The limits of one dependency.
    pub fn of(&self, dependency: &Arc<str>) -> Arc<Dependency> {
        if let Some(declared) = self.0.declared.get(dependency) {
            return Arc::clone(declared);
        }
        let mut undeclared = self.undeclared();
        if let Some(known) = undeclared.get(dependency) {
            return Arc::clone(known);
        }
        if undeclared.len() >= REMEMBERED {
            // Whoever holds a permit or waits for one holds the dependency too. New holders come through this lock.
            undeclared.retain(|_, dependency| Arc::strong_count(dependency) > 1);
        }
        let made = Arc::new(Dependency::new(
            Arc::clone(dependency),
            self.0.default_allowance,
            None,
        ));
        undeclared.insert(Arc::clone(dependency), Arc::clone(&made));
        made
    }

    fn undeclared(&self) -> MutexGuard<'_, Table> {
        // Nothing panics while it holds the lock, so a poisoned one is still whole.
        self.0.undeclared.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One dependency's limits.
pub struct Dependency {
    name: Arc<str>,
    allowance: usize,
    permits: Semaphore,
    meter: Option<Meter>,
}

impl fmt::Debug for Dependency {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Dependency")
            .field("name", &self.name)
            .field("allowance", &self.allowance)
            .field("available", &self.permits.available_permits())
            .finish_non_exhaustive()
    }
}

/// A call in flight. Dropping it lets the next one in.
#[derive(Debug)]
#[must_use = "dropping it lets the next call in"]
pub struct Permit {
    /// Also keeps the dependency from being forgotten: one with a permit out is not idle.
    dependency: Arc<Dependency>,
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.dependency.permits.add_permits(1);
    }
}

/// A quota that is spent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Spent {
    /// When it is worth asking again, at the earliest.
    pub wait: Duration,
}

impl Dependency {
    fn new(name: Arc<str>, allowance: usize, meter: Option<Meter>) -> Self {
        Self {
            name,
            allowance,
            permits: Semaphore::new(allowance),
            meter,
        }
    }

    /// Its name.
    pub fn name(&self) -> &Arc<str> {
        &self.name
    }

    /// A permit, if nobody waits and one is free.
    pub fn try_permit(self: &Arc<Self>) -> Option<Permit> {
        self.permits.try_acquire().ok().map(|permit| self.taken(permit))
    }

    /// A permit, in the order of asking.
    ///
    /// # Cancel safety
    /// Dropping it gives the place in the queue up, and nothing else.
    pub async fn permit(self: &Arc<Self>) -> Permit {
        self.taken(
            self.permits
                .acquire()
                .await
                .expect("the semaphore is never closed"),
        )
    }

    /// From here on dropping the permit gives it back.
    fn taken(self: &Arc<Self>, permit: SemaphorePermit<'_>) -> Permit {
        permit.forget();
        Permit {
            dependency: Arc::clone(self),
        }
    }
}

impl Permit {
    /// The dependency.
    pub fn dependency(&self) -> &Arc<Dependency> {
        &self.dependency
    }

    /// Whether a call could start now, without starting it.
    ///
    /// # Errors
    /// If the quota is spent: how long to wait.
    pub fn look(&self) -> Result<(), Spent> {
        self.ask(Ask::Look)
    }

    /// Starts a call, as far as the quota is concerned.
    ///
    /// # Errors
    /// If the quota is spent: how long to wait. Nothing is taken then.
    pub fn take(&self) -> Result<(), Spent> {
        self.ask(Ask::Take)
    }

    fn ask(&self, ask: Ask) -> Result<(), Spent> {
        self.dependency
            .meter
            .as_ref()
            .map_or(Ok(()), |meter| meter.ask(ask))
    }
}

/// A quota and what was taken of it.
struct Meter(RateLimiter<Ask, Taken, TokioClock, NoOpMiddleware<Nanos>>);

impl Meter {
    fn new(name: &Arc<str>, quota: Quota) -> Result<Self, LimitError> {
        const YEAR: u128 = 365 * 24 * 3600 * 1_000_000_000;
        let zero = || LimitError::NoQuota(Arc::clone(name));
        let burst = NonZeroU32::new(quota.burst).ok_or_else(zero)?;
        if quota.limit == 0 || quota.per.is_zero() {
            return Err(zero());
        }
        if quota.per.as_nanos() * u128::from(quota.burst) > YEAR {
            return Err(LimitError::TooLong(Arc::clone(name)));
        }
        // Rounded up: rounded down, a window of `per` would see one more than was allowed.
        let interval = quota.per.as_nanos().div_ceil(u128::from(quota.limit));
        let interval = Duration::from_nanos(u64::try_from(interval).expect("less than a year"));
        let quota = governor::Quota::with_period(interval)
            .ok_or_else(zero)?
            .allow_burst(burst);
        Ok(Self(RateLimiter::new(
            quota,
            Taken::default(),
            TokioClock(Instant::now()),
        )))
    }

    fn ask(&self, ask: Ask) -> Result<(), Spent> {
        self.0.check_key(&ask).map_err(|not_until| {
            // Never nothing: who waits for nothing asks again at once, for ever.
            let wait = not_until
                .wait_time_from(self.0.clock().now())
                .max(Duration::from_nanos(1));
            Spent { wait }
        })
    }
}

/// What is asked of a meter. It stands where the limiter expects a key, because that is what reaches the state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Ask {
    Look,
    Take,
}

/// The limiter's state, one for all keys: its theoretical arrival time, in nanoseconds since the limiter began, plus one,
/// so that zero is none.
#[derive(Debug, Default)]
struct Taken(AtomicU64);

impl StateStore for Taken {
    type Key = Ask;

    fn measure_and_replace<T, F, E>(&self, ask: &Ask, decide: F) -> Result<T, E>
    where
        F: Fn(Option<Nanos>) -> Result<(T, Nanos), E>,
    {
        let mut before = self.0.load(Ordering::Acquire);
        loop {
            let (yes, after) = decide(before.checked_sub(1).map(Nanos::new))?;
            if *ask == Ask::Look {
                return Ok(yes);
            }
            let after = after.as_u64().saturating_add(1);
            match self
                .0
                .compare_exchange_weak(before, after, Ordering::AcqRel, Ordering::Acquire)
            {
                Ok(_) => return Ok(yes),
                Err(now) => before = now,
            }
        }
    }
}

/// Tokio's time, so that waiting and deciding agree also where it is paused.
#[derive(Clone, Debug)]
struct TokioClock(Instant);

impl Clock for TokioClock {
    type Instant = Nanos;

    fn now(&self) -> Nanos {
        self.0.elapsed().into()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn limits(quota: Quota) -> Limits {
        Limits::builder()
            .quota("d", quota)
            .allowance("d", 1000)
            .build()
            .unwrap()
    }

    #[test]
    fn zeroes_and_ages_are_refused() {
        let second = Duration::from_secs(1);
        let built = |quota| Limits::builder().quota("d", quota).build().map(drop);
        assert_eq!(
            Limits::builder().allowance("d", 0).build().map(drop),
            Err(LimitError::NoAllowance("d".into()))
        );
        assert!(Limits::builder().default_allowance(0).build().is_err());
        assert_eq!(built(Quota::new(0, second)), Err(LimitError::NoQuota("d".into())));
        assert_eq!(
            built(Quota::new(1, Duration::ZERO)),
            Err(LimitError::NoQuota("d".into()))
        );
        assert_eq!(
            built(Quota::new(1, second).burst(0)),
            Err(LimitError::NoQuota("d".into()))
        );
        assert_eq!(
            built(Quota::new(1, second).burst(u32::MAX)),
            Err(LimitError::TooLong("d".into()))
        );
        assert_eq!(
            built(Quota::new(1, Duration::MAX)),
            Err(LimitError::TooLong("d".into()))
        );
        assert_eq!(
            built(Quota::new(u32::MAX, second).burst(u32::MAX)),
            Err(LimitError::TooLong("d".into()))
        );
        assert_eq!(built(Quota::new(u32::MAX, Duration::from_nanos(1))), Ok(()));
    }

    #[tokio::test(start_paused = true)]
    async fn looking_takes_nothing_and_a_refusal_says_how_long() {
        let limits = limits(Quota::new(2, Duration::from_secs(1)));
        let permit = limits.of(&"d".into()).permit().await;
        for _ in 0..5 {
            assert_eq!(permit.look(), Ok(()));
        }
        assert_eq!(permit.take(), Ok(()));
        let wait = Duration::from_millis(500);
        assert_eq!(permit.look(), Err(Spent { wait }));
        assert_eq!(permit.take(), Err(Spent { wait }));
        tokio::time::advance(wait).await;
        assert_eq!(permit.take(), Ok(()));
    }

    #[test]
    fn undeclared_dependencies_share_the_default_and_are_forgotten_when_idle() {
        let limits = Limits::builder().default_allowance(1).build().unwrap();
        let held = limits.of(&"held".into()).try_permit().unwrap();
        for index in 0..5 * REMEMBERED {
            drop(limits.of(&format!("d{index}").into()).try_permit().unwrap());
        }
        assert!(limits.undeclared().len() <= REMEMBERED);
        assert!(
            limits.of(&"held".into()).try_permit().is_none(),
            "the same one, which is in use"
        );
        drop(held);
        assert!(limits.of(&"held".into()).try_permit().is_some());
    }

    proptest! {
        /// G5: no half-open window of `per` sees more than `limit + burst − 1` starts, whenever calls ask.
        #[test]
        fn no_window_sees_more_starts_than_the_quota_allows(
            limit in 1u32..20, burst in 1u32..6, per_ms in 1u64..2_000,
            pauses in proptest::collection::vec(proptest::option::of(0u64..400_000), 1..200),
        ) {
            let per = Duration::from_millis(per_ms);
            let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
            let starts: Vec<Duration> = runtime.block_on(async {
                let permit = limits(Quota::new(limit, per).burst(burst)).of(&"d".into()).permit().await;
                let begin = Instant::now();
                let mut starts = Vec::new();
                for pause in &pauses {
                    // As soon as it is allowed, or at any other time: then as many as go.
                    let until_allowed = permit.look().err().map_or(Duration::ZERO, |spent| spent.wait);
                    tokio::time::advance(pause.map_or(until_allowed, Duration::from_micros)).await;
                    while permit.take().is_ok() {
                        starts.push(begin.elapsed());
                    }
                }
                starts
            });
            for (index, start) in starts.iter().enumerate() {
                let seen = starts[index..].iter().take_while(|other| **other < *start + per).count();
                prop_assert!(seen <= (limit + burst - 1) as usize, "{seen} starts within {per:?} of {start:?}");
            }
            prop_assert!(!starts.is_empty());
        }
    }
}
