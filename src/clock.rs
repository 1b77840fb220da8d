//! Time: one monotonic clock for proofs, one wall clock for people.
//!
//! Every interval that Coeval reasons about lies on a single monotonic clock ([`Mono`]), because wall clocks step. What is
//! printed is a [`Moment`]: the wall clock at the time the set was issued plus the monotonic time since. A `Moment` that
//! was read back from JSON has no monotonic part, since monotonic times mean nothing in another process; whatever needs
//! it for a proof therefore gets nothing.
//!
//! Waiting (deadlines, quotas, drains) uses `tokio::time`, so that tests can pause it; [`VirtualClock`] moves with it.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use chrono::{DateTime, SecondsFormat, TimeDelta, Utc};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// An instant on the monotonic clock of this process, in nanoseconds since an epoch of the clock's own choice.
///
/// Two values of *different* clocks mustn't be compared; a coordinator has one clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Mono(u64);

impl Mono {
    /// The instant `nanos` nanoseconds after the clock's epoch.
    pub const fn from_nanos(nanos: u64) -> Self {
        Self(nanos)
    }

    /// Nanoseconds since the clock's epoch.
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// The time from `earlier` to `self`, zero if `earlier` is later.
    pub fn since(self, earlier: Mono) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

/// Where time comes from.
///
/// Implementors owe one thing: `mono` never goes back, on any thread.
pub trait Clock: Send + Sync + fmt::Debug {
    /// Now, on the monotonic clock.
    fn mono(&self) -> Mono;
    /// Now, on the wall clock. May step at any time.
    fn wall(&self) -> DateTime<Utc>;
}

/// The machine's clocks.
#[derive(Clone, Debug)]
pub struct SystemClock {
    base: std::time::Instant,
}

impl SystemClock {
    /// A clock whose monotonic epoch is now.
    #[expect(
        clippy::disallowed_methods,
        reason = "this is the one place where machine time enters"
    )]
    pub fn new() -> Self {
        Self {
            base: std::time::Instant::now(),
        }
    }
}

impl Default for SystemClock {
    fn default() -> Self {
        Self::new()
    }
}

impl Clock for SystemClock {
    fn mono(&self) -> Mono {
        Mono(nanos(self.base.elapsed()))
    }

    #[expect(
        clippy::disallowed_methods,
        reason = "this is the one place where machine time enters"
    )]
    fn wall(&self) -> DateTime<Utc> {
        Utc::now()
    }
}

/// A clock that moves with `tokio::time`: under a paused runtime, virtual time drives stamps and waits alike.
#[derive(Clone, Debug)]
pub struct VirtualClock {
    base: tokio::time::Instant,
    wall: DateTime<Utc>,
}

impl VirtualClock {
    /// A clock that reads `wall` now, and from then on as much more as tokio's time has moved.
    pub fn starting_at(wall: DateTime<Utc>) -> Self {
        Self {
            base: tokio::time::Instant::now(),
            wall,
        }
    }
}

impl Clock for VirtualClock {
    fn mono(&self) -> Mono {
        Mono(nanos(self.base.elapsed()))
    }

    fn wall(&self) -> DateTime<Utc> {
        add(self.wall, self.base.elapsed())
    }
}

/// A clock that is moved by hand, for tests of what doesn't wait. Clones share the time.
#[derive(Clone, Debug)]
pub struct ManualClock {
    nanos: Arc<AtomicU64>,
    wall: DateTime<Utc>,
    /// How far the wall clock was stepped away from the monotonic one, in nanoseconds.
    step: Arc<std::sync::atomic::AtomicI64>,
}

impl ManualClock {
    /// A clock that stands at `wall`.
    pub fn starting_at(wall: DateTime<Utc>) -> Self {
        Self {
            nanos: Arc::new(AtomicU64::new(0)),
            wall,
            step: Arc::default(),
        }
    }

    /// Moves both clocks on.
    pub fn advance(&self, by: Duration) {
        self.nanos.fetch_add(nanos(by), Ordering::SeqCst);
    }

    /// Steps the wall clock alone, as an administrator or a time daemon would.
    pub fn step_wall(&self, by: TimeDelta) {
        self.step
            .fetch_add(by.num_nanoseconds().unwrap_or(0), Ordering::SeqCst);
    }
}

impl Clock for ManualClock {
    fn mono(&self) -> Mono {
        Mono(self.nanos.load(Ordering::SeqCst))
    }

    fn wall(&self) -> DateTime<Utc> {
        let steady = add(self.wall, Duration::from_nanos(self.nanos.load(Ordering::SeqCst)));
        steady + TimeDelta::nanoseconds(self.step.load(Ordering::SeqCst))
    }
}

/// A point in time that can be printed, and compared if it was taken in this process.
///
/// In JSON it is its wall time alone, RFC 3339 in UTC with microseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Moment {
    /// What people read.
    pub wall: DateTime<Utc>,
    /// What proofs use; `None` when the moment came out of JSON or from another machine.
    pub mono: Option<Mono>,
}

impl Moment {
    /// A moment known only by its wall time.
    pub fn from_wall(wall: DateTime<Utc>) -> Self {
        Self { wall, mono: None }
    }
}

impl fmt::Display for Moment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.wall.to_rfc3339_opts(SecondsFormat::Micros, true))
    }
}

impl Serialize for Moment {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Moment {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        DateTime::<Utc>::deserialize(deserializer).map(Moment::from_wall)
    }
}

impl schemars::JsonSchema for Moment {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Moment".into()
    }

    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({ "type": "string", "format": "date-time" })
    }
}

/// One set's time: both clocks read together when the set was issued, monotonic from then on.
#[derive(Clone, Debug)]
pub struct Timeline {
    clock: Arc<dyn Clock>,
    issued: Mono,
    issued_wall: DateTime<Utc>,
}

impl Timeline {
    /// Starts now.
    pub fn start(clock: Arc<dyn Clock>) -> Self {
        let issued = clock.mono();
        let issued_wall = clock.wall();
        Self {
            clock,
            issued,
            issued_wall,
        }
    }

    /// When the set was issued.
    pub fn issued(&self) -> Moment {
        Moment {
            wall: self.issued_wall,
            mono: Some(self.issued),
        }
    }

    /// Now.
    pub fn now(&self) -> Moment {
        self.at(self.clock.mono())
    }

    /// Now, on the monotonic clock alone.
    pub fn mono(&self) -> Mono {
        self.clock.mono()
    }

    /// The moment of a monotonic instant, which may lie before the set was issued.
    pub fn at(&self, mono: Mono) -> Moment {
        let wall = if mono >= self.issued {
            add(self.issued_wall, mono.since(self.issued))
        } else {
            let back = TimeDelta::from_std(self.issued.since(mono)).unwrap_or(TimeDelta::zero());
            self.issued_wall
                .checked_sub_signed(back)
                .unwrap_or(self.issued_wall)
        };
        Moment {
            wall,
            mono: Some(mono),
        }
    }

    /// Time since the set was issued.
    pub fn elapsed(&self) -> Duration {
        self.clock.mono().since(self.issued)
    }
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

fn add(wall: DateTime<Utc>, duration: Duration) -> DateTime<Utc> {
    TimeDelta::from_std(duration)
        .ok()
        .and_then(|delta| wall.checked_add_signed(delta))
        .unwrap_or(wall)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_moment_prints_microseconds_and_loses_its_monotonic_part_in_json() {
        let clock = ManualClock::starting_at("2026-01-02T03:04:05Z".parse().unwrap());
        let timeline = Timeline::start(Arc::new(clock.clone()));
        clock.advance(Duration::from_micros(1_500));
        let now = timeline.now();
        assert_eq!(now.to_string(), "2026-01-02T03:04:05.001500Z");
        let back: Moment = serde_json::from_str(&serde_json::to_string(&now).unwrap()).unwrap();
        assert_eq!(back.wall, now.wall);
        assert_eq!(back.mono, None);
    }

    #[test]
    fn a_stepped_wall_clock_does_not_move_the_timeline() {
        let clock = ManualClock::starting_at("2026-01-02T03:04:05Z".parse().unwrap());
        let timeline = Timeline::start(Arc::new(clock.clone()));
        clock.advance(Duration::from_secs(1));
        clock.step_wall(TimeDelta::seconds(-30));
        assert_eq!(timeline.now().to_string(), "2026-01-02T03:04:06.000000Z");
    }
}
