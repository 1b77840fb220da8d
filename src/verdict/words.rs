//! A verdict in sentences: plain enough to put before a user, and naming what they are about.

use std::borrow::Cow;
use std::fmt;

use chrono::{DateTime, Utc};

use super::{Member, Place, Why};
use crate::reading::{Outcome, Stamp, UnprovenReason};
use crate::report::{Asked, Comparison, IssueKind, RouteTaken, SetReport, VerdictKind};
use crate::tool::Class;

/// A judged set, for telling why.
pub(super) struct Case<'a> {
    pub(super) members: &'a [Member<'a>],
    pub(super) places: &'a [Place],
    pub(super) asked: &'a Asked,
    pub(super) comparisons: &'a [Cow<'a, Comparison>],
    /// Which calls' readings a comparison needs.
    pub(super) needed: &'a [bool],
}

impl Case<'_> {
    /// Why a call is in no group.
    pub(super) fn why(&self, call: usize, why: Why) -> Cow<'static, str> {
        let name = |position| Name {
            members: self.members,
            position,
        };
        match why {
            Why::Write => "It writes, and a write is no reading.".into(),
            Why::Missing => format!("It has no value: {}.", outcome(self.members[call].outcome)).into(),
            Why::Timeless => "When it was true is not known.".into(),
            Why::Unsound(UnprovenReason::DefinitionsChanged) => {
                "What it read was replaced or redefined while it was read.".into()
            }
            Why::Unsound(UnprovenReason::UnknownEngine) => {
                "Its database only speaks a known protocol; what its snapshots hold is not known.".into()
            }
            Why::Unsound(UnprovenReason::ReplicaLag) => "It came from a replica, which may be behind.".into(),
            Why::Unsound(_) => "It looked at something outside its snapshot.".into(),
            Why::Incomplete => {
                "It is only a part of the answer, and which part may differ from read to read.".into()
            }
            Why::Stale(producer) => match self.members.get(producer) {
                Some(_) => format!(
                    "An argument came from {}, which was read at another moment and may have changed since.",
                    name(producer)
                )
                .into(),
                None => "An argument came from a call that is not in the set.".into(),
            },
            Why::StaleEarlier => {
                "An argument came from an earlier answer, which may have changed since.".into()
            }
            Why::Opaque => "It was read outside every snapshot.".into(),
            Why::Unwitnessed => "Nothing attests which version of its source it read.".into(),
            Why::Alone if self.readings() == 1 => "It is the only reading.".into(),
            Why::Alone => "No other reading came through its snapshot.".into(),
        }
    }

    /// How the verdict is known.
    pub(super) fn because(&self, kind: VerdictKind, reason: Option<UnprovenReason>) -> String {
        match (kind, reason) {
            (VerdictKind::Single, _) => self.single(),
            (VerdictKind::SameView, _) => self.same_view(),
            (VerdictKind::Unknown, _) => {
                let timeless = self.needed_where(|why| why == Why::Timeless);
                if timeless.is_empty() {
                    return "When an earlier reading was true is not known.".into();
                }
                let was = if timeless.len() == 1 { "was" } else { "were" };
                format!("When {} {was} true is not known.", self.names(&timeless))
            }
            (_, Some(reason)) => self.unproven(reason),
            (_, None) => "They were never true at the same time.".into(),
        }
    }

    fn single(&self) -> String {
        let lacking = self.lacking();
        match (self.readings(), lacking.is_empty()) {
            (0, _) => "There is no reading to compare.".into(),
            (_, false) => format!("Nothing to compare with: {lacking}."),
            (1, true) => "There is only one reading, so there is nothing to compare.".into(),
            (_, true) if self.comparisons.is_empty() => "No reading is to be compared with another.".into(),
            (_, true) => "One reading answered these calls, so there is nothing to compare.".into(),
        }
    }

    fn same_view(&self) -> String {
        let needed: Vec<usize> = (0..self.needed.len())
            .filter(|position| self.needed[*position])
            .collect();
        let stamp = needed.first().and_then(|first| self.members[*first].stamp);
        let mut text = match (self.comparisons.len(), needed.len()) {
            (1, count) => {
                let all = match count {
                    1 => "The reading comes".into(),
                    2 => Cow::from("Both readings come"),
                    count => format!("All {count} readings come").into(),
                };
                let earlier = match self.asked.earlier.len() {
                    0 => "",
                    1 => ", as the earlier one does",
                    _ => ", as the earlier ones do",
                };
                format!("{all} from one snapshot{}{earlier}", Snapshot(stamp))
            }
            _ => "In each comparison, all readings come from one snapshot".into(),
        };
        let lacking = self.lacking();
        if !lacking.is_empty() {
            text.push_str("; but ");
            text.push_str(&lacking);
        }
        text.push('.');
        text
    }

    fn unproven(&self, reason: UnprovenReason) -> String {
        let culprits = self.needed_where(|why| why.reason() == reason);
        let names = self.names(&culprits);
        let was = if culprits.len() == 1 { "was" } else { "were" };
        match reason {
            UnprovenReason::NoWitness => self.no_witness(),
            UnprovenReason::UndeclaredSource => format!(
                "{names} {was} read outside every snapshot: a change in between can't be ruled out, so a mismatch is \
                 not a finding."
            ),
            UnprovenReason::Incomplete => format!(
                "{names} returned only a part of the answer, and which part may differ from read to read: it can't be \
                 compared."
            ),
            UnprovenReason::StaleArgument => {
                let from = culprits.iter().find_map(|position| match self.places[*position] {
                    Place::Out(Why::Stale(producer)) => Some(self.names(&[producer])),
                    _ => None,
                });
                let from = from.unwrap_or_else(|| "an earlier answer".into());
                format!(
                    "An argument of {names} came from {from}, which was read at another moment and may have changed \
                     since."
                )
            }
            UnprovenReason::DefinitionsChanged => {
                format!("What {names} read was replaced or redefined while it was read.")
            }
            UnprovenReason::UnknownEngine => {
                format!("{names} came from a database whose snapshots are not known to hold.")
            }
            UnprovenReason::ReplicaLag => format!("{names} came from a replica, which may be behind."),
            UnprovenReason::OriginUndeclared => {
                "Several sources were read, and it isn't declared that none is a copy of another.".into()
            }
            UnprovenReason::BudgetSpent => {
                "The sources kept changing while they were read; they could not be caught standing still."
                    .into()
            }
        }
    }

    fn no_witness(&self) -> String {
        let unwitnessed = self.needed_where(|why| matches!(why, Why::Unwitnessed | Why::Unsound(_)));
        if !unwitnessed.is_empty() {
            return format!(
                "Nothing attests which version {} read: a change in between can't be ruled out, so a mismatch is not a \
                 finding.",
                self.names(&unwitnessed)
            );
        }
        match self.apart() {
            Some((one, other)) => format!(
                "{} and {} were read through different snapshots{}: a change in between can't be ruled out, so a \
                 mismatch is not a finding.",
                self.names(&[one]),
                self.names(&[other]),
                if self.parted_by_write(one, other) { ", because a write ran between them" } else { "" },
            ),
            None => "Nothing confirms that the earlier readings still held when these were taken: a mismatch with them \
                     is not a finding."
                .into(),
        }
    }

    /// What would make the readings comparable.
    pub(super) fn would_help(
        &self,
        kind: VerdictKind,
        reason: Option<UnprovenReason>,
        missing: bool,
    ) -> Option<String> {
        let snapshot_tool = "Declare one tool that reads both in one transaction (a snapshot tool), or keep both in one \
                             database.";
        let text = match (kind, reason) {
            (VerdictKind::Single | VerdictKind::SameView, _) if missing => {
                "Ask again when the missing readings can be had.".into()
            }
            (VerdictKind::Single | VerdictKind::SameView, _) => return None,
            (VerdictKind::Unknown, _) => {
                "Read through a source that opens snapshots; an answer of unknown age can't be compared.".into()
            }
            (_, Some(UnprovenReason::NoWitness)) => match self.apart() {
                Some((one, other)) if self.parted_by_write(one, other) => {
                    "Ask for these readings in one turn, all before the write or all after it.".into()
                }
                Some(_) => snapshot_tool.into(),
                None => "Ask for the earlier readings again, in one turn with these.".into(),
            },
            (_, Some(UnprovenReason::UndeclaredSource)) => format!(
                "Give {} a source that opens snapshots, or declare one tool that reads all of it in one transaction (a \
                 snapshot tool).",
                self.names(&self.needed_where(|why| why == Why::Opaque))
            ),
            (_, Some(UnprovenReason::Incomplete)) => format!(
                "Ask {} for less, by a filter, a total order or an aggregate, so that the answer is whole; or raise \
                 maxRows.",
                self.names(&self.needed_where(|why| why == Why::Incomplete))
            ),
            (_, Some(UnprovenReason::StaleArgument)) => {
                "Ask again for the call that the argument came from, in one turn with what uses it and with no write \
                 between, from one database."
                    .into()
            }
            (_, Some(UnprovenReason::DefinitionsChanged | UnprovenReason::BudgetSpent)) => {
                "Ask again when the source is quieter.".into()
            }
            (_, Some(UnprovenReason::OriginUndeclared)) => {
                "Declare the origin of each source, if none is a copy of another.".into()
            }
            (_, Some(UnprovenReason::ReplicaLag)) => "Read all of it from one server.".into(),
            (_, Some(UnprovenReason::UnknownEngine)) | (_, None) => return None,
        };
        Some(text)
    }

    /// The trouble, for a user.
    pub(super) fn issue(&self, kind: IssueKind, spread_ms: Option<f64>) -> String {
        match kind {
            IssueKind::MissingReading => format!("The comparison can't be made: {}.", self.lacking()),
            IssueKind::Incomplete => {
                "A part of an answer can't be compared: which part was returned may differ from read to read."
                    .into()
            }
            IssueKind::InconsistentViews => format!(
                "These were read up to {} apart and may disagree.",
                Span(spread_ms.unwrap_or_default())
            ),
            IssueKind::Unproven if self.needed_where(|why| why == Why::Timeless).is_empty() => {
                "These were read at different moments and may disagree.".into()
            }
            IssueKind::Unproven => {
                "When some of this was true is not known; it may disagree with the rest.".into()
            }
            IssueKind::Fractured => "These were never true at the same time.".into(),
        }
    }

    fn readings(&self) -> usize {
        self.members.iter().filter(|member| member.is_reading()).count()
    }

    /// The needed readings that are in no group for such a reason.
    fn needed_where(&self, is: impl Fn(Why) -> bool) -> Vec<usize> {
        let out = self
            .places
            .iter()
            .enumerate()
            .filter_map(|(position, place)| match place {
                Place::Out(why) if self.needed[position] && is(*why) => Some(position),
                _ => None,
            });
        out.collect()
    }

    /// What the comparisons need and don't have, as a clause; empty if nothing.
    fn lacking(&self) -> String {
        let mut calls: Vec<usize> = Vec::new();
        let mut writes: Vec<usize> = Vec::new();
        let mut unknown: Vec<String> = Vec::new();
        for comparison in self.comparisons {
            for position in comparison.calls.iter().copied() {
                match self.members.get(position) {
                    Some(member) if member.is_reading() => {}
                    Some(member) if member.class == Class::Write => writes.push(position),
                    Some(_) => calls.push(position),
                    None => unknown.push(format!("#{position}")),
                }
            }
            unknown.extend(comparison.unknown.iter().map(ToString::to_string));
        }
        for list in [&mut calls, &mut writes] {
            list.sort_unstable();
            list.dedup();
        }
        let has = |list: &[usize]| if list.len() == 1 { "has" } else { "have" };
        let mut parts = Vec::new();
        if !calls.is_empty() {
            parts.push(format!("{} {} no value", self.names(&calls), has(&calls)));
        }
        if !writes.is_empty() {
            let what = if writes.len() == 1 {
                "is a write and no reading"
            } else {
                "are writes and no readings"
            };
            parts.push(format!("{} {what}", self.names(&writes)));
        }
        if !unknown.is_empty() {
            let what = if unknown.len() == 1 {
                "is the name of no call, or of several"
            } else {
                "are names of no call, or of several"
            };
            parts.push(format!("{} {what}", unknown.join(", ")));
        }
        parts.join(", and ")
    }

    /// Two needed readings of one comparison that have different views, as early as there are.
    fn apart(&self) -> Option<(usize, usize)> {
        self.comparisons.iter().find_map(|comparison| {
            let mut readings = comparison
                .calls
                .iter()
                .copied()
                .filter(|position| self.needed[*position]);
            let first = readings.next()?;
            let other = readings.find(|position| self.members[*position].view != self.members[first].view)?;
            Some((first, other))
        })
    }

    /// Whether two readings of one source lie on either side of a write.
    fn parted_by_write(&self, one: usize, other: usize) -> bool {
        let (one, other) = (&self.members[one], &self.members[other]);
        let source = |member: &Member<'_>| member.stamp.and_then(|stamp| stamp.source.clone());
        one.epoch != other.epoch && source(one) == source(other)
    }

    fn names(&self, positions: &[usize]) -> String {
        Names {
            members: self.members,
            positions,
        }
        .to_string()
    }
}

/// One or two sentences for the model and the user: what may be compared with what, as of when.
///
/// Told from a report whose consistency is judged.
pub fn note(report: &SetReport) -> String {
    let members: Vec<Member<'_>> = report.results.iter().map(Member::of).collect();
    let names = |positions: &[usize]| {
        Names {
            members: &members,
            positions,
        }
        .to_string()
    };
    let readings: Vec<usize> = (0..members.len())
        .filter(|position| members[*position].is_reading())
        .collect();
    let consistency = &report.consistency;
    let group = |group: &Vec<usize>| {
        let stamp = group.first().and_then(|first| members[*first].stamp);
        format!("{}{}", names(group), AsOf(stamp))
    };

    let mut text = match (consistency.groups.as_slice(), consistency.comparable) {
        _ if readings.is_empty() => "No call returned a reading.".into(),
        ([all], Some(true)) if *all == readings && all.len() > 1 => {
            let stamp = members[all[0]].stamp;
            let all = if all.len() == 2 {
                "Both".into()
            } else {
                format!("All {}", all.len())
            };
            let earlier = if report.asked.earlier.is_empty() {
                ""
            } else {
                ", and with the earlier ones"
            };
            format!(
                "{all} readings may be compared with each other{earlier}: one snapshot{}{}.",
                Of(stamp),
                AsOf(stamp)
            )
        }
        ([], _) if readings.len() == 1 && consistency.verdict == VerdictKind::Single => {
            let only = readings[0];
            format!(
                "One reading, {}{}. {}",
                names(&[only]),
                AsOf(members[only].stamp),
                consistency.because
            )
        }
        ([], None) => format!(
            "{} Report each reading on its own{}.",
            consistency.because,
            Between(&members)
        ),
        ([], _) => {
            format!(
                "Don't compare these readings; report each on its own{}. {}",
                Between(&members),
                consistency.because
            )
        }
        (groups, comparable) => {
            let groups: Vec<String> = groups.iter().map(group).collect();
            let mut text = format!("May be compared with each other: {}.", groups.join("; "));
            let rest: Vec<usize> = readings
                .iter()
                .copied()
                .filter(|position| !is_grouped(report, *position))
                .collect();
            if !rest.is_empty() {
                text.push_str(&format!(
                    " Don't compare {} with anything; report each on its own.",
                    names(&rest)
                ));
            } else if groups.len() > 1 {
                text.push_str(" Don't compare across these groups.");
            }
            if comparable != Some(true) {
                text.push(' ');
                text.push_str(&consistency.because);
            }
            text
        }
    };
    if report.route.taken == RouteTaken::Refused {
        text.push_str(
            " The values that may not be compared are withheld, because comparable readings were required.",
        );
    }
    text
}

fn is_grouped(report: &SetReport, position: usize) -> bool {
    report
        .consistency
        .groups
        .iter()
        .any(|group| group.contains(&position))
}

fn outcome(outcome: Outcome) -> &'static str {
    match outcome {
        Outcome::Ok => "it was withheld",
        Outcome::Failed => "it failed",
        Outcome::Panicked => "its tool panicked",
        Outcome::TimedOut => "it took too long",
        Outcome::Cancelled => "it was cancelled",
        Outcome::NotStarted => "it never started",
        Outcome::DependencyFailed => "a call it needs failed",
        Outcome::Refused => "it was refused",
        Outcome::InvalidArguments => "its arguments don't fit",
        Outcome::UnknownTool => "there is no such tool",
    }
}

/// A call by its tool's name, with its position if the name doesn't tell it from another call.
struct Name<'a> {
    members: &'a [Member<'a>],
    position: usize,
}

impl fmt::Display for Name<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let tool = self.members[self.position].tool;
        f.write_str(tool)?;
        if self
            .members
            .iter()
            .filter(|member| member.tool == tool)
            .nth(1)
            .is_some()
        {
            write!(f, " (#{})", self.position)?;
        }
        Ok(())
    }
}

/// Calls by name, not too many of them.
struct Names<'a> {
    members: &'a [Member<'a>],
    positions: &'a [usize],
}

/// How many calls a sentence names.
const NAMED: usize = 5;

impl fmt::Display for Names<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let count = self.positions.len();
        let named = if count > NAMED { NAMED - 1 } else { count };
        for (number, position) in self.positions[..named].iter().enumerate() {
            match number {
                0 => {}
                _ if number + 1 == count => f.write_str(" and ")?,
                _ => f.write_str(", ")?,
            }
            Name {
                members: self.members,
                position: *position,
            }
            .fmt(f)?;
        }
        if count > named {
            write!(f, " and {} more", count - named)?;
        }
        Ok(())
    }
}

/// Of which source a snapshot is.
struct Of<'a>(Option<&'a Stamp>);

impl fmt::Display for Of<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.and_then(|stamp| stamp.source.as_deref()) {
            Some(source) => write!(f, " of {source}"),
            None => Ok(()),
        }
    }
}

/// Of which source a snapshot is, and when it was taken.
struct Snapshot<'a>(Option<&'a Stamp>);

impl fmt::Display for Snapshot<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Of(self.0).fmt(f)?;
        match self.0.and_then(|stamp| stamp.earliest) {
            Some(taken) => write!(f, ", taken at {}", Time(taken.wall)),
            None => Ok(()),
        }
    }
}

/// As of when a reading is, if that is known.
struct AsOf<'a>(Option<&'a Stamp>);

impl fmt::Display for AsOf<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.and_then(Stamp::as_of) {
            Some(time) => write!(f, ", as of {}", Time(time)),
            None => Ok(()),
        }
    }
}

/// As of when all readings are, if that is known of each.
struct Between<'a>(&'a [Member<'a>]);

impl fmt::Display for Between<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let times = || {
            let readings = self.0.iter().filter(|member| member.is_reading());
            readings.map(|member| member.stamp.and_then(Stamp::as_of))
        };
        // The least of them is none if any is.
        match (times().min().flatten(), times().max().flatten()) {
            (Some(first), Some(last)) if first == last => write!(f, ", as of {}", Time(first)),
            (Some(first), Some(last)) => write!(f, ", as of {} to {}", Time(first), Time(last)),
            _ => Ok(()),
        }
    }
}

/// A time as people read it.
struct Time(DateTime<Utc>);

impl fmt::Display for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.format("%Y-%m-%d %H:%M:%S%.3f UTC").fmt(f)
    }
}

/// A time span in milliseconds, as people read it.
struct Span(f64);

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0 < 1e3 {
            write!(f, "{:.0} ms", self.0)
        } else {
            write!(f, "{:.1} s", self.0 / 1e3)
        }
    }
}
