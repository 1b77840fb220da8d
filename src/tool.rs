//! A declared operation on data: what it is called, what it takes, and what must be known to run it beside others.
//!
//! A [`ToolSpec`] is inert data; [`Registry`](crate::registry::Registry) is where it becomes valid. Every fact that matters
//! to the plan may depend on the arguments ([`PerCall`]): the same tool may read with `mode: "get"` and write with
//! `mode: "set"` (DS-02). Whatever can't be decided makes the call exclusive: it runs alone.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::BoxError;

pub mod http;
pub mod service;
pub mod view;

pub use service::{IntoAnswer, IntoTool, Stamped, Tool, ToolService, buffered};
pub use view::In;

/// The arguments of a call, as tools and classifiers see them.
pub type ArgumentMap = Map<String, Value>;

/// What a call does to data.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Effect {
    /// Changes nothing anybody could see.
    Read,
    /// May change something.
    Write,
}

/// How a call takes part in a plan: its effect, or that it must run alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Class {
    /// May run beside other reads.
    Read,
    /// A barrier.
    Write,
    /// A barrier, because it said so or because nothing is known about it.
    Exclusive,
}

/// A fact about a tool that is fixed, or decided for each call from its arguments.
pub enum PerCall<T> {
    /// The same for every call.
    Always(T),
    /// Decided per call. If it errs or panics the call is exclusive.
    Decide(Arc<Decide<T>>),
}

/// A classifier: arguments in, a fact out.
pub type Decide<T> = dyn Fn(&ArgumentMap) -> Result<T, BoxError> + Send + Sync;

impl<T> PerCall<T> {
    /// Decided by `f` for each call.
    pub fn decide<F, E>(f: F) -> Self
    where
        F: Fn(&ArgumentMap) -> Result<T, E> + Send + Sync + 'static,
        E: Into<BoxError>,
    {
        Self::Decide(Arc::new(move |arguments| f(arguments).map_err(Into::into)))
    }
}

impl<T: Clone> Clone for PerCall<T> {
    fn clone(&self) -> Self {
        match self {
            Self::Always(value) => Self::Always(value.clone()),
            Self::Decide(f) => Self::Decide(Arc::clone(f)),
        }
    }
}

impl<T: fmt::Debug> fmt::Debug for PerCall<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Always(value) => value.fmt(f),
            Self::Decide(_) => f.write_str("decided per call"),
        }
    }
}

impl<T> From<T> for PerCall<T> {
    fn from(value: T) -> Self {
        Self::Always(value)
    }
}

/// A field of a tool's output.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct OutputField {
    /// The field's name.
    pub name: Arc<str>,
    /// Who says so.
    pub origin: FieldOrigin,
}

/// How an output field became known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FieldOrigin {
    /// The tool's owner declared it: an equally named argument of a sibling is suspected whatever the name.
    Declared,
    /// It was derived by describing a statement: suspected only if it looks like an identifier.
    Derived,
}

/// Resources a call names, for calls that may share everything but these.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Keys {
    /// Shared with other readers.
    pub reads: Vec<Arc<str>>,
    /// Shared with nobody.
    pub writes: Vec<Arc<str>>,
}

impl Keys {
    /// No keys.
    pub const NONE: Keys = Keys {
        reads: Vec::new(),
        writes: Vec::new(),
    };

    /// Whether the call names no resource.
    pub fn is_empty(&self) -> bool {
        self.reads.is_empty() && self.writes.is_empty()
    }
}

/// What is declared about a tool.
///
/// Built with by-value setters. Whatever is not said has the safe meaning: no effect declared means exclusive, no
/// dependency means the tool leans on a dependency of its own name.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ToolSpec {
    /// The name the model uses.
    pub name: Arc<str>,
    /// What the model is told about it.
    pub description: String,
    /// JSON Schema of the arguments; `None` takes any object.
    pub input_schema: Option<Value>,
    /// Read or write; `None` is unknown, hence exclusive.
    pub effect: Option<PerCall<Effect>>,
    /// Whether the call must run alone although it only reads.
    pub exclusive: PerCall<bool>,
    /// What it leans on; `None` is a dependency of the tool's own name.
    pub dependency: Option<PerCall<Arc<str>>>,
    /// The source whose views its readings come from.
    pub source: Option<Arc<str>>,
    /// What its output contains.
    pub output_fields: PerCall<Arc<[OutputField]>>,
    /// Tools that must each have succeeded before.
    pub preconditions: PerCall<Arc<[Arc<str>]>>,
    /// Resources a call names.
    pub keys: PerCall<Keys>,
    /// What a write is confined to; evidence only.
    pub partition_key: PerCall<Option<Arc<str>>>,
    /// How long one call may take.
    pub timeout: PerCall<Option<Duration>>,
    /// Whether an accepted call ends the turn: later calls are not started (GO-10).
    pub is_final: bool,
    /// Whether a failed read may be tried again, and how.
    pub retry: Option<RetryPolicy>,
    /// A field of the output that says as of when the data is: shown, never proof.
    pub as_of_field: Option<Arc<str>>,
    /// Whether one response is one state of one system (no cache, paging, fan-out or replica behind it).
    pub one_state: bool,
    /// The tools whose calls this one answers together, from one transaction.
    pub covers: Vec<Cover>,
}

/// How often and how a failed read is tried again. Only retryable errors are, and only within the deadline.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RetryPolicy {
    /// Attempts in all, the first included.
    pub attempts: std::num::NonZeroU32,
    /// The wait before the second attempt; doubled each time.
    pub backoff: Duration,
}

/// One tool that a snapshot tool answers for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cover {
    /// The covered tool.
    pub tool: Arc<str>,
    /// Where its answer lies in the snapshot tool's output, as a JSON pointer; `None` is `/<tool>`.
    pub part: Option<String>,
    /// The covered tool's arguments, each with the name of the equal argument of the snapshot tool.
    pub arguments: Vec<(Arc<str>, Arc<str>)>,
}

impl ToolSpec {
    /// A tool about which nothing is known: any object is taken, and it runs alone.
    pub fn new(name: impl Into<Arc<str>>) -> Self {
        Self {
            name: name.into(),
            description: String::new(),
            input_schema: None,
            effect: None,
            exclusive: PerCall::Always(false),
            dependency: None,
            source: None,
            output_fields: PerCall::Always(Arc::from([])),
            preconditions: PerCall::Always(Arc::from([])),
            keys: PerCall::Always(Keys::NONE),
            partition_key: PerCall::Always(None),
            timeout: PerCall::Always(None),
            is_final: false,
            retry: None,
            as_of_field: None,
            one_state: false,
            covers: Vec::new(),
        }
    }

    /// A tool that only reads.
    pub fn read(name: impl Into<Arc<str>>) -> Self {
        Self::new(name).effect(Effect::Read)
    }

    /// A tool that may change something.
    pub fn write(name: impl Into<Arc<str>>) -> Self {
        Self::new(name).effect(Effect::Write)
    }

    /// What the model is told.
    #[must_use]
    pub fn description(mut self, text: impl Into<String>) -> Self {
        self.description = text.into();
        self
    }

    /// Read or write, fixed or per call.
    #[must_use]
    pub fn effect(mut self, effect: impl Into<PerCall<Effect>>) -> Self {
        self.effect = Some(effect.into());
        self
    }

    /// Must it run alone?
    #[must_use]
    pub fn exclusive(mut self, exclusive: impl Into<PerCall<bool>>) -> Self {
        self.exclusive = exclusive.into();
        self
    }

    /// What it leans on.
    #[must_use]
    pub fn dependency(mut self, name: impl Into<Arc<str>>) -> Self {
        self.dependency = Some(PerCall::Always(name.into()));
        self
    }

    /// What it leans on, decided per call.
    #[must_use]
    pub fn dependency_per_call(mut self, dependency: PerCall<Arc<str>>) -> Self {
        self.dependency = Some(dependency);
        self
    }

    /// The source its readings come from; also its dependency, unless another is said.
    #[must_use]
    pub fn source(mut self, name: impl Into<Arc<str>>) -> Self {
        self.source = Some(name.into());
        self
    }

    /// The JSON Schema of its arguments.
    #[must_use]
    pub fn input_schema(mut self, schema: Value) -> Self {
        self.input_schema = Some(schema);
        self
    }

    /// The JSON Schema of its arguments, from the type they are read into.
    #[must_use]
    pub fn input<T: JsonSchema>(self) -> Self {
        self.input_schema(schemars::schema_for!(T).into())
    }

    /// Declares fields of its output.
    #[must_use]
    pub fn output_fields<I, S>(mut self, fields: I) -> Self
    where
        I: IntoIterator<Item = S>,
        S: Into<Arc<str>>,
    {
        let fields = fields.into_iter();
        self.output_fields = PerCall::Always(
            fields
                .map(|name| OutputField {
                    name: name.into(),
                    origin: FieldOrigin::Declared,
                })
                .collect(),
        );
        self
    }

    /// Output fields of any origin, or decided per call.
    #[must_use]
    pub fn output_fields_from(mut self, fields: impl Into<PerCall<Arc<[OutputField]>>>) -> Self {
        self.output_fields = fields.into();
        self
    }

    /// Tools that must each have succeeded before.
    #[must_use]
    pub fn preconditions<I, S>(mut self, tools: I) -> Self
    where
        I: IntoIterator<Item = S>,
        S: Into<Arc<str>>,
    {
        self.preconditions = PerCall::Always(tools.into_iter().map(Into::into).collect());
        self
    }

    /// Preconditions decided per call.
    #[must_use]
    pub fn preconditions_per_call(mut self, preconditions: PerCall<Arc<[Arc<str>]>>) -> Self {
        self.preconditions = preconditions;
        self
    }

    /// The resources a call names.
    #[must_use]
    pub fn keys(mut self, keys: impl Into<PerCall<Keys>>) -> Self {
        self.keys = keys.into();
        self
    }

    /// What a write is confined to.
    #[must_use]
    pub fn partition_key(mut self, key: impl Into<PerCall<Option<Arc<str>>>>) -> Self {
        self.partition_key = key.into();
        self
    }

    /// How long one call may take.
    #[must_use]
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = PerCall::Always(Some(timeout));
        self
    }

    /// How long one call may take, decided per call.
    #[must_use]
    pub fn timeout_per_call(mut self, timeout: PerCall<Option<Duration>>) -> Self {
        self.timeout = timeout;
        self
    }

    /// An accepted call of it ends the turn.
    #[must_use]
    pub fn ends_turn(mut self) -> Self {
        self.is_final = true;
        self
    }

    /// Failed reads are tried again like this.
    #[must_use]
    pub fn retry(mut self, policy: RetryPolicy) -> Self {
        self.retry = Some(policy);
        self
    }

    /// The output field that says as of when the data is.
    #[must_use]
    pub fn as_of_field(mut self, field: impl Into<Arc<str>>) -> Self {
        self.as_of_field = Some(field.into());
        self
    }

    /// One response is one state of one system.
    #[must_use]
    pub fn one_state(mut self) -> Self {
        self.one_state = true;
        self
    }

    /// Adds a tool whose calls this one answers together with others.
    #[must_use]
    pub fn covers(mut self, cover: Cover) -> Self {
        self.covers.push(cover);
        self
    }
}

/// What a call was found to be. Shared by all calls of a tool whose facts are fixed.
#[derive(Clone, Debug, PartialEq)]
pub struct Facts {
    /// How it takes part in a plan.
    pub class: Class,
    /// Why it is exclusive, when that isn't simply declared.
    pub because: Option<Arc<str>>,
    /// What it leans on.
    pub dependency: Arc<str>,
    /// The source whose views it reads.
    pub source: Option<Arc<str>>,
    /// What it returns.
    pub outputs: Arc<[OutputField]>,
    /// Tools that must each have succeeded.
    pub preconditions: Arc<[Arc<str>]>,
    /// Parameters that have a closed list of values: never guesses.
    pub filters: Arc<[Arc<str>]>,
    /// How long it may take.
    pub timeout: Option<Duration>,
    /// Whether it ends the turn.
    pub is_final: bool,
}

/// A call after the registry was asked about it: all that the plan needs, and nothing that runs.
#[derive(Clone, Debug)]
pub struct ResolvedCall {
    /// Its place in the set.
    pub position: usize,
    /// The provider's id.
    pub id: Arc<str>,
    /// The tool's name as the model wrote it.
    pub tool: Arc<str>,
    /// Its arguments, placeholders still in them. Empty if they were not usable.
    pub arguments: Arc<ArgumentMap>,
    /// Calls that must have succeeded before.
    pub after: Vec<crate::call::CallRef>,
    /// What it was found to be.
    pub facts: Arc<Facts>,
    /// Resources it names.
    pub keys: Keys,
    /// What it is confined to, if it writes.
    pub partition_key: Option<Arc<str>>,
    /// Whether its arguments were not held against the schema, because placeholders may be in them.
    pub unchecked: bool,
    /// Why it is answered without running: unknown tool, arguments that don't fit.
    pub fault: Option<crate::reading::CallError>,
}
