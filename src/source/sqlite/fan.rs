//! Over how many connections a view's reads should run, learned from those before.
//!
//! A point read takes less time than opening a second transaction and proving that both see the same version. So reads
//! fan out only if the time they save is more than that costs; the state they see is the same either way.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// What fanning out costs before it was ever measured.
const FIRST_COST: u64 = 200_000;

/// Each new measurement counts for one part in so many.
const WEIGHT: u64 = 8;

/// What is known, in nanoseconds; nothing yet is 0.
#[derive(Debug, Default)]
pub(super) struct Fan {
    read: AtomicU64,
    alone: AtomicU64,
    together: AtomicU64,
}

impl Fan {
    /// A read took so long on its connection.
    pub(super) fn read_took(&self, time: Duration) {
        learn(&self.read, time);
    }

    /// Opening took so long, over so many connections.
    pub(super) fn open_took(&self, connections: usize, time: Duration) {
        learn(
            if connections > 1 {
                &self.together
            } else {
                &self.alone
            },
            time,
        );
    }

    /// What fanning out costs.
    pub(super) fn cost(&self) -> Duration {
        let (together, alone) = (
            self.together.load(Ordering::Relaxed),
            self.alone.load(Ordering::Relaxed),
        );
        // Two questions to the monitor, each about as far away as the transaction itself.
        let supposed = FIRST_COST.max(2 * alone);
        Duration::from_nanos(if together == 0 {
            supposed
        } else {
            together.saturating_sub(alone)
        })
    }

    /// Over how many of `most` connections `reads` reads should run. What was never measured counts as slow: then
    /// fanning out is what can't be badly wrong.
    pub(super) fn width(&self, reads: usize, most: usize) -> usize {
        let most = reads.min(most).max(1);
        let read = self.read.load(Ordering::Relaxed);
        let in_turn = read.saturating_mul(u64::try_from(reads).unwrap_or(u64::MAX));
        let rounds = u64::try_from(reads.div_ceil(most)).unwrap_or(u64::MAX);
        let fanned = read
            .saturating_mul(rounds)
            .saturating_add(u64::try_from(self.cost().as_nanos()).unwrap_or(0));
        if read == 0 || in_turn > fanned { most } else { 1 }
    }
}

fn learn(mean: &AtomicU64, time: Duration) {
    let time = u64::try_from(time.as_nanos())
        .unwrap_or(u64::MAX)
        .clamp(1, u64::MAX / WEIGHT);
    let old = mean.load(Ordering::Relaxed);
    // Two writers at once lose one measurement; the mean stays one.
    let new = if old == 0 {
        time
    } else {
        old - old / WEIGHT + time / WEIGHT
    };
    mean.store(new.max(1), Ordering::Relaxed);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_fan_out_when_that_pays() {
        let fan = Fan::default();
        assert_eq!(fan.width(4, 8), 4, "unknown reads may be slow");
        fan.read_took(Duration::from_micros(20));
        assert_eq!(fan.width(4, 8), 1);
        for _ in 0..50 {
            fan.read_took(Duration::from_millis(5));
        }
        assert_eq!(fan.width(4, 8), 4);
        assert_eq!(fan.width(8, 2), 2);
        assert_eq!(fan.width(1, 8), 1);
    }
}
