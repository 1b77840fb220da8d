//! The declared set of tools: what is registered can work, and whatever a model calls is answered from here.
//!
//! A [`Registry`] may change while sets run. Readers take the current table and keep it: a call that has begun keeps its
//! tool though it was removed (LC-28), and the next one sees the change. Nothing here runs a tool; classifiers are asked
//! at any time, by anybody, and one that fails makes its call exclusive instead of failing anything (DS-01).

use std::any::Any;
use std::collections::{HashMap, HashSet};
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use foldhash::fast::RandomState;

use crate::call::{Arguments, CallSet};
use crate::dependency::has_placeholders;
use crate::reading::{CallError, ErrorCode};
use crate::spelling::nearest;
use crate::tool::{
    ArgumentMap, Class, Effect, Facts, Keys, PerCall, ResolvedCall, Tool, ToolService, ToolSpec,
};

mod schema;

use schema::{ArgumentSchema, SchemaFault};

/// How many names an answer lists when the called one is unknown.
const NAMES_TOLD: usize = 20;

/// How many names are compared with unknown ones, for all calls of a set together.
const NAMES_COMPARED: usize = 4096;

/// The tools there are. Clones share them.
#[derive(Clone, Default)]
pub struct Registry(Arc<RwLock<Table>>);

/// Replaced as a whole if a reader holds it, so that nobody sees half a change.
#[derive(Clone, Default)]
struct Table {
    tools: Arc<HashMap<Arc<str>, Arc<Registered>, RandomState>>,
    /// Names that may be of tools that answer for others: few, so that a set need not look at all tools for them.
    snapshots: Arc<HashSet<Arc<str>>>,
    generation: u64,
}

impl fmt::Debug for Registry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.names()).finish()
    }
}

/// Why a tool can't be registered.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RegistryError {
    /// The name is empty or holds white space or control characters.
    #[error("{0:?} is no name for a tool: give it one without white space")]
    BadName(Arc<str>),
    /// There is such a tool already.
    #[error("tool {0:?} is registered already: replace it or choose another name")]
    Duplicate(Arc<str>),
    /// The input schema is no JSON Schema.
    #[error("the input schema of tool {tool:?} is not valid: {why}")]
    BadSchema {
        /// The tool.
        tool: Arc<str>,
        /// What is wrong.
        why: String,
    },
    /// The input schema is not one of objects.
    #[error(
        "the input schema of tool {tool:?} has to say \"type\": \"object\", not {found}: arguments are always an \
         object; leave the schema out to take any"
    )]
    SchemaNotObject {
        /// The tool.
        tool: Arc<str>,
        /// What it says.
        found: String,
    },
    /// It names itself as its precondition.
    #[error("tool {0:?} has to succeed before itself: take it out of its own preconditions")]
    PreconditionItself(Arc<str>),
    /// Its timeout is zero.
    #[error("tool {0:?} may take no time at all: give it a timeout above zero, or none")]
    NoTime(Arc<str>),
    /// It reads through a view and names no source.
    #[error("tool {0:?} reads through a view but names no source: say which with `ToolSpec::source`")]
    NeedsSource(Arc<str>),
    /// It answers for other tools and isn't known to only read.
    #[error("tool {0:?} covers others but is not declared as a read: only a read may stand in for reads")]
    CoversMustRead(Arc<str>),
    /// It covers what isn't there, or itself.
    #[error("tool {tool:?} covers {covered:?}, which is {why}")]
    Covers {
        /// The tool.
        tool: Arc<str>,
        /// The tool that it is said to cover.
        covered: Arc<str>,
        /// What is wrong.
        why: String,
    },
}

/// A call and its tool, if there is one.
#[derive(Clone, Debug)]
pub struct Resolved {
    /// All that the plan needs.
    pub call: Arc<ResolvedCall>,
    /// The tool; `None` if there is no such tool.
    pub tool: Option<Arc<Registered>>,
}

/// What a call was found to be.
#[derive(Clone, Debug, PartialEq)]
pub struct Classified {
    /// Facts that the plan needs; shared by all calls of a tool whose facts are fixed.
    pub facts: Arc<Facts>,
    /// Resources that the call names. Asked only of calls that are reads (LC-08).
    pub keys: Keys,
    /// What the call is confined to. Asked only of calls that aren't reads.
    pub partition_key: Option<Arc<str>>,
}

impl Registry {
    /// No tools.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a tool. Covered tools come before the one that covers them.
    ///
    /// # Errors
    /// Whatever could not work: see [`RegistryError`]. Nothing is changed then.
    pub fn register(&self, tool: Tool) -> Result<(), RegistryError> {
        let (spec, service, needs_source) = tool.into_parts();
        let checked = Checked::new(spec, needs_source)?;
        let mut table = self.write();
        if table.tools.contains_key(&checked.spec.name) {
            return Err(RegistryError::Duplicate(checked.spec.name));
        }
        table.insert(checked, service).map(drop)
    }

    /// Puts a tool in the place of the one of its name, or adds it. Calls that have begun keep the old one, which is
    /// returned.
    ///
    /// # Errors
    /// As [`register`](Self::register), except that the name may be taken.
    pub fn replace(&self, tool: Tool) -> Result<Option<Arc<Registered>>, RegistryError> {
        let (spec, service, needs_source) = tool.into_parts();
        let checked = Checked::new(spec, needs_source)?;
        self.write().insert(checked, service)
    }

    /// Takes a tool out. Calls that have begun keep it.
    pub fn remove(&self, name: &str) -> Option<Arc<Registered>> {
        let mut table = self.write();
        let removed = Arc::make_mut(&mut table.tools).remove(name);
        table.generation += u64::from(removed.is_some());
        removed
    }

    /// The tool of this name.
    pub fn get(&self, name: &str) -> Option<Arc<Registered>> {
        self.read().tools.get(name).cloned()
    }

    /// All names, sorted.
    pub fn names(&self) -> Vec<Arc<str>> {
        sorted(&self.table())
    }

    /// All tools, sorted by name.
    pub fn tools(&self) -> Vec<Arc<Registered>> {
        let mut tools: Vec<_> = self.table().tools.values().cloned().collect();
        tools.sort_unstable_by(|a, b| a.spec.name.cmp(&b.spec.name));
        tools
    }

    /// The tools that answer for others, sorted by name.
    pub fn snapshot_tools(&self) -> Vec<Arc<Registered>> {
        let table = self.read();
        let mut tools: Vec<_> = table
            .snapshots
            .iter()
            .filter_map(|name| table.tools.get(name))
            .cloned()
            .collect();
        tools.sort_unstable_by(|a, b| a.spec.name.cmp(&b.spec.name));
        tools
    }

    /// Counts the changes: equal numbers mean equal tools.
    pub fn generation(&self) -> u64 {
        self.read().generation
    }

    /// Finds out what each call of a set is, all by one and the same table.
    ///
    /// A call that can't run carries its fault: an unknown tool, arguments that are no object, or arguments that don't
    /// fit the tool's schema. Arguments that may hold placeholders are not held against the schema yet, because they
    /// aren't themselves yet; whoever fills them in asks [`Registered::validate`] then.
    pub fn resolve(&self, set: &CallSet) -> Vec<Resolved> {
        let table = self.table();
        let mut unknowns = Unknown::new(&table);
        set.calls
            .iter()
            .enumerate()
            .map(|(position, call)| {
                let tool = table.tools.get(&call.tool).cloned();
                let (arguments, unusable) = match &call.arguments {
                    Arguments::Object(map) => (Arc::clone(map), None),
                    Arguments::Invalid { why, .. } => (Arc::default(), Some(why)),
                };
                let mut unchecked = false;
                let (classified, fault) = match (&tool, unusable) {
                    (None, _) => (unknown(&call.tool), Some(unknowns.answer(&call.tool))),
                    // Nothing to ask a classifier about: nobody knows what this call was meant to do.
                    (Some(tool), Some(why)) => (
                        exclusive(&tool.spec, "its arguments are not usable"),
                        Some(tool.invalid(&format!("{why}."))),
                    ),
                    (Some(tool), None) => {
                        unchecked = tool.validates && has_placeholders(&arguments);
                        let fault = match unchecked {
                            true => None,
                            false => tool.validate(&arguments).err(),
                        };
                        (tool.classify(&arguments), fault)
                    }
                };
                let call = ResolvedCall {
                    position,
                    id: Arc::clone(&call.id),
                    tool: Arc::clone(&call.tool),
                    arguments,
                    after: call.after.clone(),
                    facts: classified.facts,
                    keys: classified.keys,
                    partition_key: classified.partition_key,
                    unchecked,
                    fault,
                };
                Resolved {
                    call: Arc::new(call),
                    tool,
                }
            })
            .collect()
    }

    fn table(&self) -> Table {
        self.read().clone()
    }

    fn read(&self) -> RwLockReadGuard<'_, Table> {
        // Nothing panics while it holds the lock, so a poisoned one is still whole.
        self.0.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, Table> {
        self.0.write().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Table {
    fn insert(
        &mut self,
        checked: Checked,
        service: ToolService,
    ) -> Result<Option<Arc<Registered>>, RegistryError> {
        let Checked { spec, schema } = checked;
        for cover in &spec.covers {
            if !self.tools.contains_key(&cover.tool) {
                return Err(RegistryError::Covers {
                    tool: spec.name,
                    covered: Arc::clone(&cover.tool),
                    why: "not registered: register it first".into(),
                });
            }
        }
        self.generation += 1;
        let registered = Arc::new(Registered::new(spec, schema, service, self.generation));
        let name = Arc::clone(&registered.spec.name);
        match registered.spec.covers.is_empty() {
            true => Arc::make_mut(&mut self.snapshots).remove(&name),
            false => Arc::make_mut(&mut self.snapshots).insert(Arc::clone(&name)),
        };
        Ok(Arc::make_mut(&mut self.tools).insert(name, registered))
    }
}

/// A spec that can work as far as it goes by itself.
struct Checked {
    spec: ToolSpec,
    schema: ArgumentSchema,
}

impl Checked {
    fn new(spec: ToolSpec, needs_source: bool) -> Result<Self, RegistryError> {
        let name = || Arc::clone(&spec.name);
        if spec.name.is_empty() || spec.name.chars().any(|c| c.is_whitespace() || c.is_control()) {
            return Err(RegistryError::BadName(name()));
        }
        let schema = match &spec.input_schema {
            None => ArgumentSchema::anything(),
            Some(schema) => ArgumentSchema::compile(schema).map_err(|fault| match fault {
                SchemaFault::NotObject(found) => RegistryError::SchemaNotObject { tool: name(), found },
                SchemaFault::Bad(why) => RegistryError::BadSchema { tool: name(), why },
            })?,
        };
        if let PerCall::Always(needed) = &spec.preconditions
            && needed.contains(&spec.name)
        {
            return Err(RegistryError::PreconditionItself(name()));
        }
        if matches!(spec.timeout, PerCall::Always(Some(timeout)) if timeout.is_zero()) {
            return Err(RegistryError::NoTime(name()));
        }
        if needs_source && spec.source.is_none() {
            return Err(RegistryError::NeedsSource(name()));
        }
        if !spec.covers.is_empty() && !matches!(spec.effect, Some(PerCall::Always(Effect::Read))) {
            return Err(RegistryError::CoversMustRead(name()));
        }
        for (index, cover) in spec.covers.iter().enumerate() {
            let wrong = |why: String| RegistryError::Covers {
                tool: name(),
                covered: Arc::clone(&cover.tool),
                why,
            };
            if cover.tool == spec.name {
                return Err(wrong("itself".into()));
            }
            if spec.covers[..index].iter().any(|other| other.tool == cover.tool) {
                return Err(wrong("covered twice: name it once".into()));
            }
            if let Some(part) = cover
                .part
                .as_ref()
                .filter(|part| !part.is_empty() && !part.starts_with('/'))
            {
                return Err(wrong(format!(
                    "to be found at {part:?}: a JSON pointer begins with \"/\""
                )));
            }
            let mine = cover.arguments.iter().map(|(_, mine)| mine);
            let missing = spec
                .input_schema
                .as_ref()
                .and_then(|schema| mine.into_iter().find(|mine| !ArgumentSchema::has(schema, mine)));
            if let Some(missing) = missing {
                return Err(wrong(format!(
                    "bound to {missing:?}, which is no argument in the schema"
                )));
            }
        }
        Ok(Self { spec, schema })
    }
}

/// A tool that can work.
pub struct Registered {
    spec: ToolSpec,
    schema: ArgumentSchema,
    /// Whether a schema was declared at all.
    validates: bool,
    service: ToolService,
    id: u64,
    /// The facts, if they are the same for every call.
    fixed: Option<Arc<Facts>>,
}

impl fmt::Debug for Registered {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Registered")
            .field("spec", &self.spec)
            .field("id", &self.id)
            .finish_non_exhaustive()
    }
}

impl Registered {
    fn new(spec: ToolSpec, schema: ArgumentSchema, service: ToolService, id: u64) -> Self {
        let validates = spec.input_schema.is_some();
        let mut registered = Self {
            spec,
            schema,
            validates,
            service,
            id,
            fixed: None,
        };
        if registered.is_fixed() {
            registered.fixed = Some(Arc::new(registered.facts(&ArgumentMap::new())));
        }
        registered
    }

    /// What is declared about it.
    pub fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    /// Names this registration: another tool in its place has another id.
    pub fn id(&self) -> u64 {
        self.id
    }

    /// The tool itself, below every layer.
    pub fn service(&self) -> &ToolService {
        &self.service
    }

    /// What a call with these arguments is.
    ///
    /// May be asked at any time. A classifier that is missing, errs or panics makes the call exclusive, and the facts
    /// say because of what.
    pub fn classify(&self, arguments: &ArgumentMap) -> Classified {
        let facts = match &self.fixed {
            Some(facts) => Arc::clone(facts),
            None => Arc::new(self.facts(arguments)),
        };
        let mut classified = Classified {
            facts,
            keys: Keys::NONE,
            partition_key: None,
        };
        let failed = if classified.facts.class == Class::Read {
            ask("keys", &self.spec.keys, arguments)
                .map(|keys| classified.keys = keys)
                .err()
        } else {
            ask("partition key", &self.spec.partition_key, arguments)
                .map(|key| classified.partition_key = key)
                .err()
        };
        if let Some(because) = failed {
            let facts = Facts {
                class: Class::Exclusive,
                because: Some(because),
                ..(*classified.facts).clone()
            };
            classified.facts = Arc::new(facts);
        }
        classified
    }

    /// Whether every call of it is a read, so that there is nothing to ask.
    pub fn always_reads(&self) -> bool {
        let keys_are_fixed = matches!(self.spec.keys, PerCall::Always(_));
        keys_are_fixed
            && self
                .fixed
                .as_ref()
                .is_some_and(|facts| facts.class == Class::Read)
    }

    /// Holds arguments against the schema. Costs nothing if no schema constrains them.
    ///
    /// # Errors
    /// `invalid_arguments`, with the JSON pointer of the first fault and a hint of what the tool takes.
    pub fn validate(&self, arguments: &ArgumentMap) -> Result<(), CallError> {
        match self.schema.fault(arguments) {
            None => Ok(()),
            Some(fault) => Err(self.invalid(&format!("{fault}."))),
        }
    }

    fn invalid(&self, fault: &str) -> CallError {
        let message = format!(
            "The arguments of {} don't fit: {fault} It takes: {}.",
            self.spec.name,
            self.schema.hint()
        );
        CallError::new(ErrorCode::InvalidArguments, message)
    }

    /// What all its calls lean on, if that is the same for all.
    pub(crate) fn fixed_dependency(&self) -> Option<&Arc<str>> {
        self.fixed.as_ref().map(|facts| &facts.dependency)
    }

    /// Whether its facts are the same for every call, so that asking again at the start could bring nothing new.
    pub fn is_fixed(&self) -> bool {
        let ToolSpec {
            effect,
            exclusive,
            dependency,
            output_fields,
            preconditions,
            timeout,
            ..
        } = &self.spec;
        !matches!(effect, Some(PerCall::Decide(_)))
            && !matches!(dependency, Some(PerCall::Decide(_)))
            && matches!(exclusive, PerCall::Always(_))
            && matches!(output_fields, PerCall::Always(_))
            && matches!(preconditions, PerCall::Always(_))
            && matches!(timeout, PerCall::Always(_))
    }

    fn facts(&self, arguments: &ArgumentMap) -> Facts {
        let spec = &self.spec;
        let mut failed = None;
        let mut or_failed = |because| {
            failed.get_or_insert(because);
        };
        let effect = match &spec.effect {
            None => Err("its effect is not declared".into()),
            Some(effect) => ask("effect", effect, arguments),
        };
        let exclusive = ask("exclusiveness", &spec.exclusive, arguments);
        let dependency = match &spec.dependency {
            None => Ok(own_dependency(spec)),
            Some(dependency) => ask("dependency", dependency, arguments),
        };
        let outputs = ask("output fields", &spec.output_fields, arguments);
        let preconditions = ask("preconditions", &spec.preconditions, arguments);
        let timeout = ask("timeout", &spec.timeout, arguments);
        let class = match (effect.map_err(&mut or_failed), exclusive.map_err(&mut or_failed)) {
            (Ok(Effect::Read), Ok(false)) => Class::Read,
            (Ok(Effect::Write), Ok(false)) => Class::Write,
            _ => Class::Exclusive,
        };
        let dependency = dependency
            .map_err(&mut or_failed)
            .unwrap_or_else(|()| own_dependency(spec));
        let outputs = outputs.map_err(&mut or_failed).unwrap_or_else(|()| Arc::from([]));
        let preconditions = preconditions
            .map_err(&mut or_failed)
            .unwrap_or_else(|()| Arc::from([]));
        let timeout = timeout.map_err(&mut or_failed).unwrap_or(None);
        Facts {
            class: if failed.is_some() { Class::Exclusive } else { class },
            because: failed,
            dependency,
            source: spec.source.clone(),
            outputs,
            preconditions,
            filters: Arc::clone(&self.schema.filters),
            timeout,
            is_final: spec.is_final,
        }
    }
}

/// Asks one classifier; what went wrong comes back as a phrase.
fn ask<T: Clone>(what: &str, fact: &PerCall<T>, arguments: &ArgumentMap) -> Result<T, Arc<str>> {
    match fact {
        PerCall::Always(value) => Ok(value.clone()),
        // Nothing of ours is touched inside, so nothing of ours can be left half done.
        PerCall::Decide(decide) => match catch_unwind(AssertUnwindSafe(|| decide(arguments))) {
            Ok(Ok(value)) => Ok(value),
            Ok(Err(error)) => Err(format!("its {what} could not be decided: {error}").into()),
            Err(payload) => Err(format!(
                "its {what} could not be decided: the classifier panicked: {}",
                said(&*payload)
            )
            .into()),
        },
    }
}

/// What a panic said.
pub(crate) fn said(payload: &(dyn Any + Send)) -> &str {
    let text = payload.downcast_ref::<&str>().copied();
    text.or_else(|| payload.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("no message")
}

fn own_dependency(spec: &ToolSpec) -> Arc<str> {
    Arc::clone(spec.source.as_ref().unwrap_or(&spec.name))
}

/// A call of which no classifier can be asked.
fn exclusive(spec: &ToolSpec, because: &str) -> Classified {
    alone(own_dependency(spec), spec.source.clone(), because)
}

fn unknown(tool: &Arc<str>) -> Classified {
    alone(Arc::clone(tool), None, "there is no such tool")
}

fn alone(dependency: Arc<str>, source: Option<Arc<str>>, because: &str) -> Classified {
    let facts = Facts {
        class: Class::Exclusive,
        because: Some(because.into()),
        dependency,
        source,
        outputs: Arc::from([]),
        preconditions: Arc::from([]),
        filters: Arc::from([]),
        timeout: None,
        is_final: false,
    };
    Classified {
        facts: Arc::new(facts),
        keys: Keys::NONE,
        partition_key: None,
    }
}

fn sorted(table: &Table) -> Vec<Arc<str>> {
    let mut names: Vec<_> = table.tools.keys().cloned().collect();
    names.sort_unstable();
    names
}

/// Answers unknown names. One set may call many, so what is spent on suggestions is bounded for all of them together.
struct Unknown<'a> {
    table: &'a Table,
    names: Option<Vec<Arc<str>>>,
    comparisons: usize,
}

impl<'a> Unknown<'a> {
    fn new(table: &'a Table) -> Self {
        Self {
            table,
            names: None,
            comparisons: NAMES_COMPARED,
        }
    }

    fn answer(&mut self, called: &str) -> CallError {
        let names = self.names.get_or_insert_with(|| sorted(self.table));
        let mut message = format!("There is no tool {called:?}.");
        let compared = names.iter().take(self.comparisons).map(|name| &**name);
        let meant = nearest(called, compared);
        self.comparisons = self.comparisons.saturating_sub(names.len());
        if let Some(name) = meant {
            message.push_str(&format!(" Did you mean {name:?}?"));
        }
        if names.is_empty() {
            message.push_str(" No tools are registered.");
        } else {
            let told: Vec<&str> = names.iter().take(NAMES_TOLD).map(|name| &**name).collect();
            message.push_str(&format!(" There are: {}", told.join(", ")));
            if names.len() > NAMES_TOLD {
                message.push_str(&format!(" and {} more", names.len() - NAMES_TOLD));
            }
            message.push('.');
        }
        CallError::new(ErrorCode::UnknownTool, message)
    }
}
