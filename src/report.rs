//! What a set comes back as. The JSON of these types is a contract: its schema lies in `report/schema.json`, and a test
//! compares the two.
//!
//! camelCase; timestamps RFC 3339 in UTC with microseconds; durations in milliseconds as numbers. A result that is not
//! ok has an `error` and no `value`; one that is ok has a `value` and no `error` (and neither if it was withheld).

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use chrono::{DateTime, Utc};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::call::{CallRef, CallSet, Purpose, Require};
use crate::clock::Moment;
use crate::plan::{Decision, Plan, PolicyName};
use crate::reading::{CallError, ErrorClass, ErrorCode, Outcome, Stamp, UnprovenReason, ViewId};
use crate::tool::Class;

pub mod text;

/// A set, answered: one result for each call, in the calls' order.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct SetReport {
    /// The set's id, its own or a fresh one.
    pub set_id: String,
    /// Whether it ran to its end.
    pub status: Status,
    /// When the set was issued.
    pub issued_at: Moment,
    /// From issue to report.
    pub elapsed_ms: f64,
    /// The policy it ran under.
    pub policy: PolicyName,
    /// The time zone in which sources were asked to speak.
    pub time_zone: String,
    /// Every tool that has succeeded so far, earlier turns included.
    pub called: Vec<Arc<str>>,
    /// The pinned view that was read through, or that is now held.
    pub pin: Option<String>,
    /// Whether all calls could run at once, and why not.
    pub decision: Decision,
    /// The order they ran in.
    pub plan: Plan,
    /// What was done because of the question and the set.
    pub route: Route,
    /// One for each call, in the calls' order.
    pub results: Vec<CallResult>,
    /// What is known about the readings together.
    pub consistency: Consistency,
    /// One or two sentences for the model and the user.
    pub note: String,
    /// What the caller asked of the readings together. For the judge; not printed.
    #[serde(skip)]
    pub asked: Asked,
}

/// What a caller asks of the readings of a set together.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Asked {
    /// The comparisons that will be made; none means all calls with all.
    pub compare: Vec<Comparison>,
    /// What the caller insists on.
    pub require: Option<Require>,
    /// Readings of earlier sets that will be compared with these.
    pub earlier: Vec<EarlierReading>,
    /// Whether the spread is measured between `asOf` points, as it was published, and not over intervals.
    pub spread_on_points: bool,
}

/// One comparison that will be made.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Comparison {
    /// The positions it needs.
    pub calls: Vec<usize>,
    /// Names in it that are no call of the set, or of several: it can't be made.
    pub unknown: Vec<CallRef>,
}

/// A reading of an earlier set, as far as it says with what it may be compared.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct EarlierReading {
    /// The view it was read through, if what was read through it is sound.
    pub view: Option<ViewId>,
    /// When it was true.
    pub stamp: Option<Stamp>,
}

impl Asked {
    /// What this set asks.
    pub fn of(set: &CallSet) -> Self {
        let compare = set.compare.iter().map(|group| {
            let mut comparison = Comparison::default();
            for name in group {
                match position(set, name) {
                    Some(position) if comparison.calls.contains(&position) => {}
                    Some(position) => comparison.calls.push(position),
                    None => comparison.unknown.push(name.clone()),
                }
            }
            comparison
        });
        Self {
            compare: compare.collect(),
            require: set.require,
            earlier: set.earlier.iter().flat_map(EarlierReading::of).collect(),
            spread_on_points: false,
        }
    }
}

impl EarlierReading {
    /// The values a report brings. One keeps its view if the report let it be compared, or if it was the only one: of
    /// the rest the printed report doesn't tell whether they may be compared with anything read through that view.
    fn of(report: &SetReport) -> impl Iterator<Item = Self> {
        let Consistency { groups, verdict, .. } = &report.consistency;
        let values = report
            .results
            .iter()
            .enumerate()
            .filter(|(_, result)| result.is_ok() && !result.withheld);
        values.map(move |(position, result)| {
            let grouped = groups.iter().any(|group| group.contains(&position));
            let vouched = result.complete && (grouped || *verdict == VerdictKind::Single);
            Self {
                view: result.view.clone().filter(|_| vouched),
                stamp: result.stamp.clone(),
            }
        })
    }
}

/// The only call that goes by this name.
fn position(set: &CallSet, name: &CallRef) -> Option<usize> {
    match name {
        CallRef::Position(position) => (*position < set.calls.len()).then_some(*position),
        CallRef::Id(id) => {
            let mut found = set.calls.iter().enumerate().filter(|(_, call)| call.id == *id);
            let first = found.next().map(|(position, _)| position);
            first.filter(|_| found.next().is_none())
        }
    }
}

/// Whether a set ran to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Status {
    /// Every call was given its chance.
    Complete,
    /// The caller ended it.
    Cancelled,
    /// A tool said that nothing more can work.
    Fatal,
    /// A call failed and the set was to be all or nothing.
    Aborted,
}

/// What was done because of the question and the set.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Route {
    /// What the readings are for.
    pub purpose: Purpose,
    /// Why that is thought.
    pub because: String,
    /// The way that was taken.
    pub taken: RouteTaken,
    /// How often it was tried.
    pub tries: u32,
    /// What a snapshot tool returned beyond the calls it stood in for.
    pub extra: Option<Value>,
}

/// The way a set was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum RouteTaken {
    /// All readings through one view.
    SharedView,
    /// A declared snapshot tool stood in for the calls.
    SnapshotTool,
    /// Views on several sources, certified together.
    Certified,
    /// As they came.
    AsIs,
    /// Withheld: the caller requires what can't be had.
    Refused,
}

/// What came of one call.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct CallResult {
    /// The call's id, as it came.
    pub id: Arc<str>,
    /// The tool's name, as it came.
    pub tool: Arc<str>,
    /// How it ended.
    pub outcome: Outcome,
    /// What it returned. Double option: `null` is a value, absence is none.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        deserialize_with = "present"
    )]
    pub value: Option<Value>,
    /// Why there is no value.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<ErrorReport>,
    /// Whether the value is all of the answer.
    pub complete: bool,
    /// The view it was read through.
    pub view: Option<ViewId>,
    /// As of when it is.
    pub as_of: Option<Moment>,
    /// When it was true.
    pub stamp: Option<Stamp>,
    /// Set if the value was replaced while the set was read.
    pub replaced: Option<Replaced>,
    /// The position of the equal call whose execution answered this one too.
    pub shared_with: Option<usize>,
    /// The snapshot tool that answered for it.
    pub via: Option<Arc<str>>,
    /// Arguments that look guessed and could not be checked.
    pub unverified: Vec<String>,
    /// Whether the value was kept back because the caller requires what it can't have.
    pub withheld: bool,
    /// From being ready to its start: allowance, place and quota.
    pub queued_ms: f64,
    /// Time in the tool.
    pub elapsed_ms: f64,
    /// How often the tool was asked.
    pub attempts: u32,
    /// Why the reading is no function of its view. For the judge; not printed.
    #[serde(skip)]
    pub unsound: Option<UnprovenReason>,
    /// What else the judge must know. Not printed.
    #[serde(skip)]
    pub facts: CallFacts,
}

/// What the judge must know of a call besides what is printed. Filled in by whoever ran it.
#[derive(Clone, Debug, PartialEq)]
pub struct CallFacts {
    /// How it took part when it started, or was to if it never did. A write is no reading.
    pub class: Class,
    /// Whether one answer of its tool is declared to be one state of one system.
    pub one_state: bool,
    /// The calls its arguments took values from: placeholders, and guesses that were found.
    pub leans_on: Vec<usize>,
    /// Whether an argument is grounded in an earlier set's result only.
    pub leans_on_earlier: bool,
    /// How many writes and exclusive calls had started when it started.
    pub epoch: usize,
}

impl CallFacts {
    /// A call of this class that leans on nothing.
    pub fn new(class: Class) -> Self {
        Self {
            class,
            one_state: false,
            leans_on: Vec::new(),
            leans_on_earlier: false,
            epoch: 0,
        }
    }
}

/// Of a call that nothing is known about: it may be a reading, and it may be a write.
impl Default for CallFacts {
    fn default() -> Self {
        Self::new(Class::Exclusive)
    }
}

fn present<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Option<Value>, D::Error> {
    Value::deserialize(deserializer).map(Some)
}

/// An error as it is printed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ErrorReport {
    /// What kind of trouble: what a caller acts on.
    pub class: ErrorClass,
    /// Which trouble exactly.
    pub code: ErrorCode,
    /// What happened, in a sentence.
    pub message: String,
    /// Whether it is worth asking again.
    pub retryable: bool,
    /// When it is worth asking again.
    pub retry_after_ms: Option<f64>,
    /// A write whose end nobody saw. Absent unless true.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub may_have_happened: bool,
}

impl From<&CallError> for ErrorReport {
    fn from(error: &CallError) -> Self {
        Self {
            class: error.error_class(),
            code: error.code(),
            message: error.message().to_owned(),
            retryable: error.is_retryable(),
            retry_after_ms: error.retry_wait().map(millis),
            may_have_happened: error.happened_perhaps(),
        }
    }
}

/// A value that changed while the set was read.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Replaced {
    /// What was read first.
    pub old: Value,
    /// What holds now.
    pub new: Value,
}

/// What is known about the readings of a set together.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Consistency {
    /// The claim.
    pub verdict: VerdictKind,
    /// Why nothing better could be proved.
    pub reason: Option<UnprovenReason>,
    /// Whether every comparison asked for may be made; `null` when there is nothing to compare.
    pub comparable: Option<bool>,
    /// Whether the readings are known (or, by the published check, suspected) to disagree in time.
    pub inconsistent: Option<bool>,
    /// The window in which the views can disagree.
    pub spread_ms: Option<f64>,
    /// The published check's tolerance.
    pub tolerance_ms: f64,
    /// Whether the spread is over the tolerance. Proves nothing either way.
    pub spread_exceeded: Option<bool>,
    /// Positions whose readings may be compared with each other.
    pub groups: Vec<Vec<usize>>,
    /// The positions in no group, and why.
    pub excluded: Vec<Excluded>,
    /// The two readings that lie furthest apart.
    pub widest: Option<[usize; 2]>,
    /// How the verdict is known, in a sentence.
    pub because: String,
    /// How often the sources changed while they were read.
    pub changes_per_second: Option<f64>,
    /// What would make the readings comparable.
    pub would_help: Option<String>,
    /// The trouble to show a user.
    pub issue: Option<Issue>,
}

impl Consistency {
    /// What stands in a report of so many calls until it is judged: nothing is claimed.
    pub fn not_judged(calls: usize) -> Self {
        let why = "Nothing has judged it.";
        Self {
            verdict: VerdictKind::Unknown,
            reason: None,
            comparable: Some(false),
            inconsistent: None,
            spread_ms: None,
            tolerance_ms: 0.0,
            spread_exceeded: None,
            groups: Vec::new(),
            excluded: (0..calls)
                .map(|call| Excluded {
                    call,
                    why: why.into(),
                    alone: false,
                })
                .collect(),
            widest: None,
            because: "Nothing has judged these readings together.".to_owned(),
            changes_per_second: None,
            would_help: None,
            issue: None,
        }
    }

    /// Whether every comparison that was asked for may be made.
    pub fn is_comparable(&self) -> bool {
        self.comparable == Some(true)
    }
}

/// What is claimed about readings together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum VerdictKind {
    /// All are functions of one state of one database.
    SameView,
    /// There was an instant at which all were true at once.
    Coexisted,
    /// Each is as of its own source's time.
    SourceClock,
    /// A change in between can't be ruled out.
    Unproven,
    /// They were never true at the same time.
    Fractured,
    /// When this was true is not known.
    Unknown,
    /// Fewer than two readings.
    Single,
}

/// A call in no comparable group.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Excluded {
    /// Its position.
    pub call: usize,
    /// Why.
    pub why: Cow<'static, str>,
    /// Whether nothing is wrong with it but that no other reading came through its view: it may still be compared with
    /// other sets' readings of that view. Not printed; the reading's `view` is, and only then.
    #[serde(skip)]
    pub alone: bool,
}

/// The trouble to show a user.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Issue {
    /// Which.
    pub kind: IssueKind,
    /// The spread it was seen with.
    pub spread_ms: Option<f64>,
    /// In a sentence.
    pub message: String,
}

/// Kinds of trouble with readings together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum IssueKind {
    /// A change in between can't be ruled out.
    Unproven,
    /// They were never true together.
    Fractured,
    /// A needed answer is not whole.
    Incomplete,
    /// A needed reading is missing.
    MissingReading,
    /// The published check's finding: the spread is over the tolerance.
    InconsistentViews,
}

/// A duration in milliseconds.
pub fn millis(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1e3
}

impl CallResult {
    /// An ok result without anything said about it yet.
    pub fn is_ok(&self) -> bool {
        self.outcome == Outcome::Ok
    }

    /// As of when the value is by its source's own time, else by our clock.
    pub fn as_of_time(&self) -> Option<DateTime<Utc>> {
        self.as_of.map(|moment| moment.wall)
    }
}
