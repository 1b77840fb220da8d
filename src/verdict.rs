//! What may be claimed about the readings of a set together. Pure: same readings, same verdict.
//!
//! Two readings may be compared if they are functions of one state. There is one way to know that here: both were read
//! through one view (they carry its id), each is all of its answer, neither looked at anything outside the view, and no
//! argument of either rests on a value from elsewhere. Whatever isn't known counts against the claim, never for it.
//!
//! The *set* is judged, not pairs, and the verdict is derived each time, never stored. What follows from it:
//!
//! - Each reading is in one **group** (at least two readings of one view) or is excluded, with the reason.
//! - `comparable` is true only if each comparison that was asked for (by default: all readings with all) lies in one
//!   group. It is `null` if a needed reading is missing or there are fewer than two, else false.
//! - The **spread** is the published check: how far the readings' times lie apart. A small one proves nothing (two reads
//!   of the same second may straddle a write), so it never makes anything comparable; a large one is a warning.

use std::borrow::Cow;
use std::collections::HashMap;
use std::time::Duration;

use foldhash::fast::RandomState;

use crate::call::Purpose;
use crate::reading::{Outcome, Stamp, UnprovenReason, ViewId};
use crate::report::{
    Asked, CallResult, Comparison, Consistency, EarlierReading, Excluded, Issue, IssueKind, VerdictKind,
    millis,
};
use crate::tool::Class;

mod spread;
mod words;

pub use words::note;

use spread::Spread;

/// One call as the judge sees it.
#[derive(Clone, Copy, Debug)]
pub struct Member<'a> {
    /// The tool's name, for sentences.
    pub tool: &'a str,
    /// How it took part. A write is no reading; what is exclusive may be one.
    pub class: Class,
    /// How it ended.
    pub outcome: Outcome,
    /// Whether the value is all of the answer.
    pub complete: bool,
    /// The view it was read through.
    pub view: Option<&'a ViewId>,
    /// When it was true.
    pub stamp: Option<&'a Stamp>,
    /// Why it is no function of its view.
    pub unsound: Option<UnprovenReason>,
    /// Whether one answer is declared to be one state.
    pub one_state: bool,
    /// The call whose execution answered this one too. It carries the same view and stamp.
    pub shared_with: Option<usize>,
    /// The calls its arguments took values from.
    pub leans_on: &'a [usize],
    /// Whether an argument rests on an earlier set's result.
    pub leans_on_earlier: bool,
    /// How many writes and exclusive calls had started before it.
    pub epoch: usize,
}

impl<'a> Member<'a> {
    /// A call by what its result says.
    pub fn of(result: &'a CallResult) -> Self {
        Self {
            tool: &result.tool,
            class: result.facts.class,
            outcome: result.outcome,
            complete: result.complete,
            view: result.view.as_ref(),
            stamp: result.stamp.as_ref(),
            unsound: result.unsound,
            one_state: result.facts.one_state,
            shared_with: result.shared_with,
            leans_on: &result.facts.leans_on,
            leans_on_earlier: result.facts.leans_on_earlier,
            epoch: result.facts.epoch,
        }
    }

    /// Whether it has a value that was read.
    fn is_reading(&self) -> bool {
        self.outcome == Outcome::Ok && self.class != Class::Write
    }
}

/// What else the verdict depends on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// What the readings are for. For a report, what can't be compared is no trouble to show.
    pub purpose: Purpose,
    /// How far apart the readings' times may lie before it is reported.
    pub tolerance: Duration,
}

/// The published tolerance.
pub const TOLERANCE: Duration = Duration::from_secs(2);

impl Default for Settings {
    fn default() -> Self {
        Self {
            purpose: Purpose::Compare,
            tolerance: TOLERANCE,
        }
    }
}

/// Where a call stands: in a comparable group, or outside, for the first reason that applies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    In(usize),
    Out(Why),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Why {
    /// A write.
    Write,
    /// No value.
    Missing,
    /// No interval: when it was true isn't known.
    Timeless,
    /// Not a function of its view.
    Unsound(UnprovenReason),
    /// Truncated or paged.
    Incomplete,
    /// An argument came from a call outside its group.
    Stale(usize),
    /// An argument came from an earlier set.
    StaleEarlier,
    /// Outside every view, and its answers need not be one state.
    Opaque,
    /// Outside every view, although its answers are one state.
    Unwitnessed,
    /// Nothing else was read through its view.
    Alone,
}

impl Why {
    /// What stands in the way of a comparison that needs the reading.
    fn reason(self) -> UnprovenReason {
        match self {
            Self::Unsound(reason) => reason,
            Self::Incomplete => UnprovenReason::Incomplete,
            Self::Stale(_) | Self::StaleEarlier => UnprovenReason::StaleArgument,
            Self::Opaque => UnprovenReason::UndeclaredSource,
            Self::Write | Self::Missing | Self::Timeless | Self::Unwitnessed | Self::Alone => {
                UnprovenReason::NoWitness
            }
        }
    }
}

/// What a reason is worth as an explanation: what went wrong comes before what was never known.
fn rank(reason: UnprovenReason) -> u8 {
    match reason {
        UnprovenReason::DefinitionsChanged => 0,
        UnprovenReason::UnknownEngine => 1,
        UnprovenReason::ReplicaLag => 2,
        UnprovenReason::OriginUndeclared => 3,
        UnprovenReason::BudgetSpent => 4,
        UnprovenReason::Incomplete => 5,
        UnprovenReason::StaleArgument => 6,
        UnprovenReason::UndeclaredSource => 7,
        UnprovenReason::NoWitness => 8,
    }
}

/// What is known about one comparison.
#[derive(Debug)]
struct Finding {
    kind: VerdictKind,
    reason: Option<UnprovenReason>,
    comparable: Option<bool>,
}

/// Judges the calls of a set, in the model's order.
///
/// `groups` and `excluded` of the result together name each call once, writes and failed calls included.
pub fn judge(members: &[Member<'_>], asked: &Asked, settings: &Settings) -> Consistency {
    let (places, groups) = places(members, &asked.earlier);
    let comparisons = comparisons(members, asked);
    let findings: Vec<Finding> = comparisons
        .iter()
        .map(|comparison| weigh(comparison, members, &places, &groups, &asked.earlier))
        .collect();

    // The weakest claim is the set's.
    let kind = findings
        .iter()
        .map(|finding| finding.kind)
        .max_by_key(|kind| severity(*kind));
    let kind = kind.unwrap_or(VerdictKind::Single);
    let reasons = findings
        .iter()
        .filter(|finding| finding.kind == kind)
        .filter_map(|finding| finding.reason);
    let reason = reasons.min_by_key(|reason| rank(*reason));
    let missing = comparisons
        .iter()
        .any(|comparison| is_missing(comparison, members));
    let comparable = if missing || findings.is_empty() {
        None
    } else if findings.iter().any(|finding| finding.comparable == Some(false)) {
        Some(false)
    } else {
        findings
            .iter()
            .all(|finding| finding.comparable == Some(true))
            .then_some(true)
    };

    let mut needed = vec![false; members.len()];
    for position in comparisons
        .iter()
        .flat_map(|comparison| readings(comparison, members))
    {
        needed[position] = true;
    }
    let spread = Spread::of(members, &needed, asked);
    let (spread_ms, spread_exceeded, widest) = match comparable {
        Some(true) => (Some(0.0), Some(false), None),
        _ => spread.against(settings.tolerance),
    };
    let inconsistent = match (comparable, kind, spread_exceeded) {
        (Some(true), ..) => Some(false),
        (_, VerdictKind::Fractured, _) | (_, _, Some(true)) => Some(true),
        _ => None,
    };

    let case = words::Case {
        members,
        places: &places,
        asked,
        comparisons: &comparisons,
        needed: &needed,
    };
    let compared =
        settings.purpose == Purpose::Compare || !asked.compare.is_empty() || asked.require.is_some();
    let issue = match comparable {
        Some(true) => None,
        _ if compared && missing => Some(IssueKind::MissingReading),
        _ if compared && reason == Some(UnprovenReason::Incomplete) => Some(IssueKind::Incomplete),
        _ if spread_exceeded == Some(true) => Some(IssueKind::InconsistentViews),
        _ if compared && matches!(kind, VerdictKind::Unproven | VerdictKind::Unknown) => {
            Some(IssueKind::Unproven)
        }
        _ => None,
    };
    let issue = issue.map(|kind| Issue {
        kind,
        spread_ms,
        message: case.issue(kind, spread_ms),
    });

    let because = case.because(kind, reason);
    let would_help = match comparable {
        Some(true) => None,
        _ => case.would_help(kind, reason, missing),
    };
    let excluded = places.iter().enumerate().filter_map(|(call, place)| match place {
        Place::In(_) => None,
        Place::Out(why) => Some(Excluded {
            call,
            why: case.why(call, *why),
            alone: *why == Why::Alone,
        }),
    });
    Consistency {
        verdict: kind,
        reason,
        comparable,
        inconsistent,
        spread_ms,
        tolerance_ms: millis(settings.tolerance),
        spread_exceeded,
        excluded: excluded.collect(),
        groups: groups.into_iter().map(|group| group.calls).collect(),
        widest,
        because,
        changes_per_second: None,
        would_help,
        issue,
    }
}

/// How little a verdict claims.
fn severity(kind: VerdictKind) -> u8 {
    match kind {
        VerdictKind::Single => 0,
        VerdictKind::SameView => 1,
        VerdictKind::Coexisted => 2,
        VerdictKind::SourceClock => 3,
        VerdictKind::Unproven => 4,
        VerdictKind::Unknown => 5,
        VerdictKind::Fractured => 6,
    }
}

/// Readings of one view.
#[derive(Debug)]
struct Group<'a> {
    view: &'a ViewId,
    calls: Vec<usize>,
}

/// Puts each call into a group or says why not.
fn places<'a>(members: &[Member<'a>], earlier: &[EarlierReading]) -> (Vec<Place>, Vec<Group<'a>>) {
    // Until the groups are known, a call that may be in one carries its view.
    let mut standing: Vec<Result<&'a ViewId, Why>> = members.iter().map(stand).collect();

    // An argument ties its call to the reading it came from: outside the group, it may have changed since (hole 14).
    // Leaving one out may leave its consumers out, so this goes on until nobody leaves.
    loop {
        let mut left = false;
        for position in 0..members.len() {
            let (member, Ok(view)) = (&members[position], standing[position]) else {
                continue;
            };
            let foreign = member
                .leans_on
                .iter()
                .find(|producer| standing.get(**producer) != Some(&Ok(view)));
            let why = match foreign {
                Some(producer) => Why::Stale(*producer),
                None if member.leans_on_earlier && !all_of(earlier, view) => Why::StaleEarlier,
                None => continue,
            };
            standing[position] = Err(why);
            left = true;
        }
        if !left {
            break;
        }
    }

    let mut counts: HashMap<&ViewId, usize, RandomState> = HashMap::default();
    for view in standing.iter().flatten() {
        *counts.entry(view).or_default() += 1;
    }
    let mut numbers: HashMap<&ViewId, usize, RandomState> = HashMap::default();
    let mut groups: Vec<Group<'_>> = Vec::new();
    let place = |(position, standing): (usize, Result<&'a ViewId, Why>)| {
        let view = match standing {
            Ok(view) => view,
            Err(why) => return Place::Out(why),
        };
        let has_company =
            counts[view] > 1 || earlier.iter().any(|earlier| earlier.view.as_ref() == Some(view));
        if !has_company {
            return Place::Out(Why::Alone);
        }
        let number = *numbers.entry(view).or_insert_with(|| {
            groups.push(Group {
                view,
                calls: Vec::new(),
            });
            groups.len() - 1
        });
        groups[number].calls.push(position);
        Place::In(number)
    };
    let places = standing.into_iter().enumerate().map(place).collect();
    (places, groups)
}

/// The view a call may be compared within, as far as the call alone tells.
fn stand<'a>(member: &Member<'a>) -> Result<&'a ViewId, Why> {
    if member.class == Class::Write {
        return Err(Why::Write);
    }
    if member.outcome != Outcome::Ok {
        return Err(Why::Missing);
    }
    if !has_time(member.stamp) {
        return Err(Why::Timeless);
    }
    if let Some(reason) = member.unsound {
        return Err(Why::Unsound(reason));
    }
    if !member.complete {
        return Err(Why::Incomplete);
    }
    let view = member.view.filter(|_| member.stamp.is_some_and(has_window));
    view.ok_or(if member.one_state {
        Why::Unwitnessed
    } else {
        Why::Opaque
    })
}

/// Whether it is known when something was true: by our clock, or by what its source says.
fn has_time(stamp: Option<&Stamp>) -> bool {
    stamp.is_some_and(|stamp| has_window(stamp) || stamp.source_time.is_some())
}

fn has_window(stamp: &Stamp) -> bool {
    stamp.earliest.is_some() && stamp.latest.is_some()
}

/// Whether there are earlier readings and all were read through this view.
fn all_of(earlier: &[EarlierReading], view: &ViewId) -> bool {
    !earlier.is_empty() && earlier.iter().all(|earlier| earlier.view.as_ref() == Some(view))
}

/// What will be compared. A comparison of fewer than two things is none.
fn comparisons<'a>(members: &[Member<'_>], asked: &'a Asked) -> Vec<Cow<'a, Comparison>> {
    let all = if asked.compare.is_empty() {
        let calls = (0..members.len())
            .filter(|position| members[*position].class != Class::Write)
            .collect();
        vec![Cow::Owned(Comparison {
            calls,
            unknown: Vec::new(),
        })]
    } else {
        asked.compare.iter().map(Cow::Borrowed).collect()
    };
    let is_one = |comparison: &Cow<'_, Comparison>| {
        !comparison.unknown.is_empty() || comparison.calls.len() + asked.earlier.len() >= 2
    };
    all.into_iter().filter(is_one).collect()
}

/// Whether a comparison lacks something it needs.
fn is_missing(comparison: &Comparison, members: &[Member<'_>]) -> bool {
    !comparison.unknown.is_empty() || readings(comparison, members).count() < comparison.calls.len()
}

/// The calls of a comparison that were read.
fn readings(comparison: &Comparison, members: &[Member<'_>]) -> impl Iterator<Item = usize> {
    let calls = comparison.calls.iter().copied();
    calls.filter(|position| members.get(*position).is_some_and(Member::is_reading))
}

/// What is known about one comparison; with readings missing, about the rest.
fn weigh(
    comparison: &Comparison,
    members: &[Member<'_>],
    places: &[Place],
    groups: &[Group<'_>],
    earlier: &[EarlierReading],
) -> Finding {
    let readings: Vec<usize> = readings(comparison, members).collect();
    let whole = !is_missing(comparison, members);
    // One execution outside a view that answered several calls is one reading.
    let distinct = readings.iter().filter(|position| {
        let member = &members[**position];
        let repeats = member
            .shared_with
            .is_some_and(|leader| readings.contains(&leader));
        member.view.is_some() || !repeats
    });
    let distinct = distinct.count();
    let Some(first) = readings.first().filter(|_| distinct + earlier.len() >= 2) else {
        return Finding {
            kind: VerdictKind::Single,
            reason: None,
            comparable: None,
        };
    };

    let together = match places[*first] {
        Place::In(group) => {
            readings
                .iter()
                .all(|position| places[*position] == Place::In(group))
                && (earlier.is_empty() || all_of(earlier, groups[group].view))
        }
        Place::Out(_) => false,
    };
    if together {
        return Finding {
            kind: VerdictKind::SameView,
            reason: None,
            comparable: whole.then_some(true),
        };
    }
    let whys = || {
        readings.iter().filter_map(|position| match places[*position] {
            Place::In(_) => None,
            Place::Out(why) => Some(why),
        })
    };
    let comparable = whole.then_some(false);
    let timeless_earlier = earlier
        .iter()
        .any(|earlier| earlier.view.is_none() && !has_time(earlier.stamp.as_ref()));
    if timeless_earlier || whys().any(|why| why == Why::Timeless) {
        return Finding {
            kind: VerdictKind::Unknown,
            reason: None,
            comparable,
        };
    }
    // Readings of different groups are each well witnessed; what is missing is a witness for both.
    let reason = whys()
        .map(Why::reason)
        .min_by_key(|reason| rank(*reason))
        .unwrap_or(UnprovenReason::NoWitness);
    Finding {
        kind: VerdictKind::Unproven,
        reason: Some(reason),
        comparable,
    }
}
