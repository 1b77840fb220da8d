//! The published check: how far the times of a set's readings lie apart.
//!
//! Measured on what is printed: within a set that is the wall clock at issue plus monotonic time, so a step of the wall
//! clock doesn't change it. It proves nothing either way. It is zero for readings of one view, which are counted once.

use std::collections::HashMap;
use std::time::Duration;

use chrono::{DateTime, TimeDelta, Utc};
use foldhash::fast::RandomState;

use super::Member;
use crate::reading::{Stamp, ViewId};
use crate::report::{Asked, millis};

/// How far the needed readings' times lie apart.
#[derive(Debug)]
pub(super) struct Spread {
    /// From the earliest start to the latest end, if readings of at least two views have times.
    known: Option<(TimeDelta, Option<[usize; 2]>)>,
    /// Whether each reading has its time.
    whole: bool,
}

/// One reading's interval; of several readings of a view, the interval of all.
#[derive(Clone, Copy, Debug)]
struct Span {
    from: DateTime<Utc>,
    to: DateTime<Utc>,
    /// Where it starts and ends; `None` is in an earlier set.
    first: Option<usize>,
    last: Option<usize>,
}

impl Span {
    fn of(stamp: Option<&Stamp>, on_points: bool, position: Option<usize>) -> Option<Self> {
        let stamp = stamp?;
        let (from, to) = match stamp.earliest.zip(stamp.latest) {
            Some((earliest, latest)) if !on_points => (earliest.wall, latest.wall),
            // What may be older than its request is as of when its source says.
            None if !on_points => (stamp.source_time?, stamp.source_time?),
            _ => (stamp.as_of()?, stamp.as_of()?),
        };
        Some(Self {
            from,
            to,
            first: position,
            last: position,
        })
    }

    fn join(self, other: Self) -> Self {
        let (from, first) = if other.from < self.from {
            (other.from, other.first)
        } else {
            (self.from, self.first)
        };
        let (to, last) = if other.to > self.to {
            (other.to, other.last)
        } else {
            (self.to, self.last)
        };
        Self {
            from,
            to,
            first,
            last,
        }
    }
}

/// What is read once, however often it is handed out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Origin<'a> {
    View(&'a ViewId),
    Execution(usize),
    Earlier(usize),
}

impl Spread {
    pub(super) fn of(members: &[Member<'_>], needed: &[bool], asked: &Asked) -> Self {
        let on_points = asked.spread_on_points;
        let here = members
            .iter()
            .enumerate()
            .filter(|(position, _)| needed[*position]);
        let here = here.map(|(position, member)| {
            let origin = match member.view {
                Some(view) => Origin::View(view),
                None => Origin::Execution(member.shared_with.unwrap_or(position)),
            };
            (origin, Span::of(member.stamp, on_points, Some(position)))
        });
        let earlier = asked.earlier.iter().enumerate().map(|(number, earlier)| {
            let origin = earlier
                .view
                .as_ref()
                .map_or(Origin::Earlier(number), Origin::View);
            (origin, Span::of(earlier.stamp.as_ref(), on_points, None))
        });

        let mut whole = true;
        let mut numbers: HashMap<Origin<'_>, usize, RandomState> =
            HashMap::with_capacity_and_hasher(members.len(), RandomState::default());
        let mut spans: Vec<Span> = Vec::with_capacity(members.len());
        for (origin, span) in here.chain(earlier) {
            let Some(span) = span else {
                whole = false;
                continue;
            };
            let number = *numbers.entry(origin).or_insert_with(|| {
                spans.push(span);
                spans.len() - 1
            });
            spans[number] = spans[number].join(span);
        }
        if spans.len() < 2 {
            return Self { known: None, whole };
        }
        let all = spans
            .iter()
            .copied()
            .reduce(Span::join)
            .expect("there are two or more");
        let widest = widest(&spans).and_then(|(early, late)| Some([early.first?, late.last?]));
        Self {
            known: Some((all.to - all.from, widest)),
            whole,
        }
    }

    /// The spread in ms, whether it is over the tolerance, and between which calls. If some reading has no time, what is
    /// known can only grow: it is told when that is too much already, and is else unknown (AT-22).
    pub(super) fn against(&self, tolerance: Duration) -> (Option<f64>, Option<bool>, Option<[usize; 2]>) {
        let Some((spread, widest)) = self.known else {
            return (None, None, None);
        };
        let spread = spread.to_std().unwrap_or_default();
        let exceeded = spread > tolerance;
        if exceeded || self.whole {
            (Some(millis(spread)), Some(exceeded), widest)
        } else {
            (None, None, None)
        }
    }
}

/// Which two spans lie furthest apart: the first to start and the last to end, if these are two. If one span does both,
/// it and the one that ends first.
fn widest(spans: &[Span]) -> Option<(Span, Span)> {
    let (early, from) = spans.iter().enumerate().min_by_key(|(_, span)| span.from)?;
    let (late, to) = spans.iter().enumerate().max_by_key(|(_, span)| span.to)?;
    if early != late {
        return Some((*from, *to));
    }
    let others = spans
        .iter()
        .enumerate()
        .filter(|(number, _)| *number != early)
        .map(|(_, span)| span);
    others.min_by_key(|span| span.to).map(|other| (*other, *to))
}
