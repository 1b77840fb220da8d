//! What came of a call: a value with the interval in which it was true, or an error that says what to do.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use chrono::{DateTime, SecondsFormat, Utc};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize, Serializer};
use serde_json::Value;

use crate::BoxError;
use crate::clock::Moment;

pub mod as_of;

/// What a tool returns: a value, and what it can attest about it. Becomes a [`Reading`] in the `Stamp` layer.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Answer {
    /// The value.
    pub value: Value,
    /// Whether the value is all of the answer: `false` for what is truncated, paged or ordered by nothing under a limit.
    pub complete: bool,
    /// When it was true, if the tool knows better than the time of the call.
    pub stamp: Option<Stamp>,
    /// The view it was read through.
    pub view: Option<ViewId>,
    /// Why it is no function of its view although it was read through one.
    pub unsound: Option<UnprovenReason>,
    /// Values for the report's `route.extra`: what a snapshot tool returned beyond the calls it stood in for.
    pub extra: Option<Value>,
}

impl Answer {
    /// A value about which nothing is attested.
    pub fn new(value: impl Into<Value>) -> Self {
        Self {
            value: value.into(),
            complete: true,
            stamp: None,
            view: None,
            unsound: None,
            extra: None,
        }
    }

    /// Says that the value is not the whole answer.
    #[must_use]
    pub fn incomplete(mut self) -> Self {
        self.complete = false;
        self
    }

    /// Attests when the value was true.
    #[must_use]
    pub fn stamp(mut self, stamp: Stamp) -> Self {
        self.stamp = Some(stamp);
        self
    }

    /// Attests through which view it was read.
    #[must_use]
    pub fn view(mut self, view: ViewId) -> Self {
        self.view = Some(view);
        self
    }

    /// Says why the value can't be compared although it has a view.
    #[must_use]
    pub fn unsound(mut self, reason: UnprovenReason) -> Self {
        self.unsound = Some(reason);
        self
    }
}

impl From<Value> for Answer {
    fn from(value: Value) -> Self {
        Self::new(value)
    }
}

/// A value with its stamp.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Reading {
    /// The value.
    pub value: Value,
    /// Whether it is all of the answer.
    pub complete: bool,
    /// When it was true.
    pub stamp: Stamp,
    /// The view it was read through.
    pub view: Option<ViewId>,
    /// Why it is no function of its view although it was read through one.
    pub unsound: Option<UnprovenReason>,
    /// How often the tool was asked.
    pub attempts: u32,
    /// Time spent in the tool itself, without any waiting before it.
    pub elapsed: Duration,
}

impl Reading {
    /// An answer with its stamp, asked once.
    pub fn new(answer: Answer, stamp: Stamp, elapsed: Duration) -> Self {
        let Answer {
            value,
            complete,
            view,
            unsound,
            ..
        } = answer;
        Self {
            value,
            complete,
            stamp,
            view,
            unsound,
            attempts: 1,
            elapsed,
        }
    }
}

/// The opaque id of a view: two readings may be compared if they carry the same one.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(transparent)]
pub struct ViewId(Arc<str>);

impl ViewId {
    /// An id nobody else has.
    pub fn fresh() -> Self {
        Self(uuid::Uuid::new_v4().simple().to_string().into())
    }

    /// The id as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for ViewId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// When a value was true: an interval on our clock that is sure to contain the instant at which the value's view was
/// fixed, and what its source says about itself.
///
/// Missing knowledge stays missing: an answer that may predate the request has no `earliest`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Stamp {
    /// The view was fixed no earlier.
    pub earliest: Option<Moment>,
    /// The view was fixed no later.
    pub latest: Option<Moment>,
    /// What the interval rests on.
    pub basis: Basis,
    /// Where the value came from.
    pub source: Option<Arc<str>>,
    /// As of when the data is by the source's own clock.
    #[serde(serialize_with = "microseconds")]
    pub source_time: Option<DateTime<Utc>>,
    /// What the source attests about the version it served.
    pub witness: Option<Arc<str>>,
}

fn microseconds<S: Serializer>(time: &Option<DateTime<Utc>>, serializer: S) -> Result<S::Ok, S::Error> {
    time.map(|time| time.to_rfc3339_opts(SecondsFormat::Micros, true))
        .serialize(serializer)
}

impl Stamp {
    /// All that is known is when we asked and when the answer was there.
    pub fn receipt(earliest: Moment, latest: Moment) -> Self {
        Self {
            earliest: Some(earliest),
            latest: Some(latest),
            basis: Basis::Receipt,
            source: None,
            source_time: None,
            witness: None,
        }
    }

    /// What is printed as `asOf`: the latest instant up to which the source's changes are known to be included.
    pub fn as_of(&self) -> Option<DateTime<Utc>> {
        self.source_time.or(self.earliest.map(|moment| moment.wall))
    }
}

/// What a stamp rests on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Basis {
    /// A snapshot that was opened for the set.
    Snapshot,
    /// The source said so.
    Source,
    /// A declared field of the output.
    Field,
    /// Only our clock.
    Receipt,
}

/// Why comparability is not proved.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum UnprovenReason {
    /// Nothing attests which version was read.
    NoWitness,
    /// Certification was tried and given up.
    BudgetSpent,
    /// A tool from outside every view, of which it isn't declared that one answer is one state.
    UndeclaredSource,
    /// Several sources, of which it isn't declared that none is a copy of another.
    OriginUndeclared,
    /// A replica beside another source.
    ReplicaLag,
    /// Definitions changed while they were read.
    DefinitionsChanged,
    /// An argument rests on a value that may have changed since.
    StaleArgument,
    /// A database that only speaks a known protocol.
    UnknownEngine,
    /// A needed answer is not whole.
    Incomplete,
}

/// How a call ended. Every call has exactly one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// It has a value.
    Ok,
    /// The tool or its source said no.
    Failed,
    /// The tool panicked.
    Panicked,
    /// Our deadline passed while it ran.
    TimedOut,
    /// It had started and was cancelled.
    Cancelled,
    /// It never started: the set ended before.
    NotStarted,
    /// A call it needs did not succeed.
    DependencyFailed,
    /// It was not allowed to run.
    Refused,
    /// Its arguments don't fit the tool.
    InvalidArguments,
    /// There is no such tool.
    UnknownTool,
}

/// What kind of trouble it is: what a caller acts on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ErrorClass {
    /// It may work later.
    Unavailable,
    /// Too many calls in a time.
    RateLimited,
    /// It took too long.
    Timeout,
    /// The request itself is wrong.
    Invalid,
    /// It is not allowed.
    Denied,
    /// It clashes with something else that happens.
    Conflict,
    /// A fault of the tool, or of Coeval.
    Internal,
}

/// Which trouble exactly. Each code belongs to one [`Outcome`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum ErrorCode {
    /// The tool or its source failed.
    CallFailed,
    /// The source is busy.
    SourceBusy,
    /// The view could not be opened.
    ViewUnavailable,
    /// The view was lost while it was read.
    ViewLost,
    /// The database refused the statement.
    StatementFailed,
    /// The tool panicked.
    Panicked,
    /// The call's or the set's deadline passed.
    DeadlineExceeded,
    /// The call or its set was cancelled while it ran.
    Cancelled,
    /// The set was cancelled before the call started.
    SetCancelled,
    /// The deadline passed before the call could start.
    DeadlineBeforeStart,
    /// An earlier call said that nothing more can work.
    FatalBefore,
    /// Another call failed and the set was to be all or nothing.
    Aborted,
    /// An earlier call ended the turn.
    TurnEnded,
    /// A call it needs did not succeed.
    DependencyFailed,
    /// A tool that must have succeeded before has not.
    PreconditionUnmet,
    /// An argument was guessed.
    GuessedArgument,
    /// Calls need each other.
    DependencyCycle,
    /// The quota can't be had within the deadline.
    RateLimited,
    /// A hook, or the source's rules, said no.
    Denied,
    /// It would write where only reads may run, or was planned as a read and is none.
    NotReadOnly,
    /// The pinned view it names is not held (any more).
    PinExpired,
    /// The arguments don't fit the tool's schema.
    InvalidArguments,
    /// A reference fits several calls.
    ReferenceAmbiguous,
    /// A reference leads to nothing.
    ReferenceUnresolved,
    /// There is no such tool.
    UnknownTool,
}

impl ErrorCode {
    /// The outcome a call with this code has.
    pub fn outcome(self) -> Outcome {
        match self {
            Self::CallFailed
            | Self::SourceBusy
            | Self::ViewUnavailable
            | Self::ViewLost
            | Self::StatementFailed => Outcome::Failed,
            Self::Panicked => Outcome::Panicked,
            Self::DeadlineExceeded => Outcome::TimedOut,
            Self::Cancelled => Outcome::Cancelled,
            Self::SetCancelled
            | Self::DeadlineBeforeStart
            | Self::FatalBefore
            | Self::Aborted
            | Self::TurnEnded => Outcome::NotStarted,
            Self::DependencyFailed => Outcome::DependencyFailed,
            Self::PreconditionUnmet
            | Self::GuessedArgument
            | Self::DependencyCycle
            | Self::RateLimited
            | Self::Denied
            | Self::NotReadOnly
            | Self::PinExpired => Outcome::Refused,
            Self::InvalidArguments | Self::ReferenceAmbiguous | Self::ReferenceUnresolved => {
                Outcome::InvalidArguments
            }
            Self::UnknownTool => Outcome::UnknownTool,
        }
    }

    /// The class a call with this code has unless its maker knows better.
    pub fn class(self) -> ErrorClass {
        match self {
            Self::CallFailed | Self::SourceBusy | Self::ViewUnavailable | Self::ViewLost => {
                ErrorClass::Unavailable
            }
            Self::DeadlineExceeded | Self::DeadlineBeforeStart => ErrorClass::Timeout,
            Self::Cancelled
            | Self::SetCancelled
            | Self::FatalBefore
            | Self::Aborted
            | Self::TurnEnded
            | Self::DependencyFailed
            | Self::PreconditionUnmet
            | Self::PinExpired => ErrorClass::Conflict,
            Self::Panicked => ErrorClass::Internal,
            Self::RateLimited => ErrorClass::RateLimited,
            Self::Denied | Self::NotReadOnly => ErrorClass::Denied,
            Self::StatementFailed
            | Self::GuessedArgument
            | Self::DependencyCycle
            | Self::InvalidArguments
            | Self::ReferenceAmbiguous
            | Self::ReferenceUnresolved
            | Self::UnknownTool => ErrorClass::Invalid,
        }
    }

    /// Whether the same call may work if it is made again, as it is.
    pub fn retryable(self) -> bool {
        matches!(
            self,
            Self::CallFailed
                | Self::SourceBusy
                | Self::ViewUnavailable
                | Self::ViewLost
                | Self::DeadlineExceeded
                | Self::Cancelled
                | Self::SetCancelled
                | Self::DeadlineBeforeStart
                | Self::Aborted
                | Self::DependencyFailed
                | Self::RateLimited
        )
    }
}

/// Why a call has no value.
///
/// A tool may return one (boxed as its service's error, if need be) to choose code, class and retry advice itself;
/// any other error becomes `call_failed`.
#[derive(Clone)]
pub struct CallError(Box<Inner>);

#[derive(Clone)]
struct Inner {
    class: ErrorClass,
    code: ErrorCode,
    message: String,
    retryable: bool,
    retry_after: Option<Duration>,
    fatal: bool,
    may_have_happened: bool,
    attempts: u32,
    source: Option<Arc<dyn std::error::Error + Send + Sync>>,
}

impl CallError {
    /// An error of this code, with the code's own class and retry advice.
    pub fn new(code: ErrorCode, message: impl Into<String>) -> Self {
        Self(Box::new(Inner {
            class: code.class(),
            code,
            message: message.into(),
            retryable: code.retryable(),
            retry_after: None,
            fatal: false,
            may_have_happened: false,
            attempts: 0,
            source: None,
        }))
    }

    /// The tool failed, for the reason its error gives. A `CallError` inside is kept as it is.
    pub fn from_tool(tool: &str, error: BoxError) -> Self {
        match error.downcast::<CallError>() {
            Ok(known) => *known,
            Err(other) => {
                let message = format!("Could not complete {tool}: {}", Chain(&*other));
                Self::new(ErrorCode::CallFailed, message).caused_by(other)
            }
        }
    }

    /// Another class than the code's own.
    #[must_use]
    pub fn class(mut self, class: ErrorClass) -> Self {
        self.0.class = class;
        self
    }

    /// Whether it is worth asking again.
    #[must_use]
    pub fn retryable(mut self, retryable: bool) -> Self {
        self.0.retryable = retryable;
        self
    }

    /// When it is worth asking again.
    #[must_use]
    pub fn retry_after(mut self, wait: Duration) -> Self {
        self.0.retryable = true;
        self.0.retry_after = Some(wait);
        self
    }

    /// Nothing more can work: no further call of the set is started.
    #[must_use]
    pub fn fatal(mut self) -> Self {
        self.0.fatal = true;
        self
    }

    /// A write whose end nobody saw: it may have happened.
    #[must_use]
    pub fn may_have_happened(mut self) -> Self {
        self.0.may_have_happened = true;
        self
    }

    /// How often the tool was asked before it was given up.
    #[must_use]
    pub fn attempts(mut self, attempts: u32) -> Self {
        self.0.attempts = attempts;
        self
    }

    /// What it came from, for `source()`.
    #[must_use]
    pub fn caused_by(mut self, cause: impl Into<BoxError>) -> Self {
        self.0.source = Some(Arc::from(cause.into()));
        self
    }

    /// How the call ended.
    pub fn outcome(&self) -> Outcome {
        self.0.code.outcome()
    }

    /// Which trouble exactly.
    pub fn code(&self) -> ErrorCode {
        self.0.code
    }

    /// What kind of trouble.
    pub fn error_class(&self) -> ErrorClass {
        self.0.class
    }

    /// What happened, in a sentence.
    pub fn message(&self) -> &str {
        &self.0.message
    }

    /// Whether it is worth asking again.
    pub fn is_retryable(&self) -> bool {
        self.0.retryable
    }

    /// When it is worth asking again.
    pub fn retry_wait(&self) -> Option<Duration> {
        self.0.retry_after
    }

    /// Whether nothing more can work.
    pub fn is_fatal(&self) -> bool {
        self.0.fatal
    }

    /// Whether a write may have happened all the same.
    pub fn happened_perhaps(&self) -> bool {
        self.0.may_have_happened
    }

    /// How often the tool was asked.
    pub fn attempts_made(&self) -> u32 {
        self.0.attempts
    }
}

impl fmt::Debug for CallError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CallError")
            .field("code", &self.0.code)
            .field("class", &self.0.class)
            .field("message", &self.0.message)
            .field("retryable", &self.0.retryable)
            .field("retry_after", &self.0.retry_after)
            .field("fatal", &self.0.fatal)
            .finish_non_exhaustive()
    }
}

impl fmt::Display for CallError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.message)
    }
}

impl std::error::Error for CallError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.0.source.as_deref().map(|source| source as _)
    }
}

/// Equal in everything but the cause.
impl PartialEq for CallError {
    fn eq(&self, other: &Self) -> bool {
        let (a, b) = (&*self.0, &*other.0);
        (
            a.class,
            a.code,
            &a.message,
            a.retryable,
            a.retry_after,
            a.fatal,
            a.may_have_happened,
        ) == (
            b.class,
            b.code,
            &b.message,
            b.retryable,
            b.retry_after,
            b.fatal,
            b.may_have_happened,
        )
    }
}

/// An error and its causes, parted by colons.
pub(crate) struct Chain<'a>(pub(crate) &'a (dyn std::error::Error + 'static));

impl fmt::Display for Chain<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut last = self.0.to_string();
        f.write_str(&last)?;
        let mut next = self.0.source();
        while let Some(error) = next {
            let text = error.to_string();
            // Many errors repeat their cause in their own text.
            if !last.contains(&text) {
                write!(f, ": {text}")?;
            }
            last = text;
            next = error.source();
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_error_inside_a_boxed_error_is_kept_fatal_too() {
        let inner = CallError::new(ErrorCode::Denied, "no").fatal();
        let kept = CallError::from_tool("t", Box::new(inner.clone()));
        assert_eq!(kept, inner);
        assert!(kept.is_fatal());
    }

    #[test]
    fn any_other_error_names_the_tool_and_keeps_its_causes() {
        let error = std::io::Error::other("socket closed");
        let error = CallError::from_tool("list_orders", Box::new(error));
        assert_eq!(error.code(), ErrorCode::CallFailed);
        assert_eq!(error.message(), "Could not complete list_orders: socket closed");
        assert!(error.is_retryable());
    }
}
