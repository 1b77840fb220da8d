//! From a configuration to what runs: sources opened, statements described, tools registered.

use std::collections::HashMap;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use futures_util::future::try_join_all;
use serde_json::{Map, Value};

use super::fault::{ConfigFault, ConfigFaults, Place};
use super::parameter::{Parameter, bind};
use super::{Config, Settings, SnapshotConfig, SourceConfig, ToolConfig};
use crate::coordinator::{Builder, Coordinator};
use crate::limit::{LimitError, Limits};
use crate::plan::Policy;
use crate::reading::{Answer, CallError, UnprovenReason};
use crate::registry::Registry;
use crate::request::CallRequest;
use crate::source::Source;
use crate::source::sqlite::{CheckedSql, SqliteError, SqliteOptions, SqliteSource};
use crate::tool::{ArgumentMap, Cover, Effect, FieldOrigin, OutputField, PerCall, Tool, ToolSpec};

/// What a configuration is when its sources are there.
#[derive(Debug)]
#[non_exhaustive]
pub struct Assembly {
    /// A coordinator of every tool and snapshot, under the configuration's limits and settings. What the configuration
    /// can't say (a clock, hooks, a recorder) may still be said.
    pub coordinator: Builder,
    /// The sources, to be shut down when all is done.
    pub sources: Vec<SqliteSource>,
    /// What is probably not meant as it is said: that of the configuration, and what the databases say to it.
    pub warnings: Vec<ConfigFault>,
}

impl Config {
    /// Opens the sources and makes the tools.
    ///
    /// A database that can't be read now stops nobody: its tools are there, and their calls are answered by what it says
    /// then. Only their output fields, where they are not declared, stay unknown, which is a warning. So is a statement
    /// that the database refuses.
    ///
    /// # Errors
    /// What could not work whatever the databases say, all of it at once.
    ///
    /// # Cancel safety
    /// Safe: nothing is left open.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use coeval::call::{Call, CallSet};
    /// use coeval::config::Config;
    /// use serde_json::json;
    ///
    /// let text = b"
    /// kind: source
    /// name: numbers
    /// type: sqlite
    /// database: ':memory:'
    /// ---
    /// kind: tool
    /// name: double
    /// type: sqlite-sql
    /// source: numbers
    /// description: Twice a number.
    /// parameters: [{name: n, type: integer, description: The number.}]
    /// statement: SELECT 2 * $1 AS twice
    /// ";
    /// let config = Config::parse("numbers.yaml", text, &|_| None)?;
    /// let coordinator = config.build().await?.coordinator.build();
    /// let report = coordinator.run(CallSet::new([Call::new("c1", "double", json!({"n": 21}))])).await?;
    /// assert_eq!(report.results[0].value.as_ref().unwrap()["rows"], json!([{"twice": 42}]));
    /// # Ok(())
    /// # }
    /// ```
    pub async fn build(&self) -> Result<Assembly, ConfigFaults> {
        let mut faults = Vec::new();
        let mut sources = self.open_sources(&mut faults);
        let mut described = Described {
            fields: HashMap::new(),
            warnings: self.warnings.clone(),
        };
        for (name, source) in &sources {
            described
                .ask(source, self.tools.iter().filter(|tool| tool.source == *name))
                .await;
        }
        let registry = Registry::new();
        let mut register = |tool: Tool, place: &Place| {
            if let Err(error) = registry.register(tool) {
                faults.push(ConfigFault::new(place.clone(), error.to_string()));
            }
        };
        for tool in &self.tools {
            if let Some(source) = sources.get(&tool.source) {
                let spec = described.spec(tool);
                register(statement_tool(tool, spec, source.clone()), &tool.place);
            }
        }
        for snapshot in &self.snapshots {
            if let Some(source) = sources.get(&snapshot.source) {
                register(
                    self.snapshot_tool(snapshot, &described, source.clone()),
                    &snapshot.place,
                );
            }
        }
        let limits = self.limits().map_err(|error| {
            let place = Place {
                file: "configuration".into(),
                line: 0,
                column: 0,
                snippet: "".into(),
            };
            faults.push(ConfigFault::new(place, error.to_string()));
        });
        let Some(limits) = limits.ok().filter(|_| faults.is_empty()) else {
            return Err(ConfigFaults(faults));
        };
        let sources: Vec<_> = self
            .sources
            .iter()
            .filter_map(|source| sources.remove(&source.name))
            .collect();
        let Settings {
            policy,
            max_concurrency,
            tolerance,
            drain,
            minimum_purpose,
            ..
        } = self.settings;
        let mut coordinator = Coordinator::builder(registry)
            .limits(limits)
            .policy(Policy::named(policy))
            .tolerance(tolerance)
            .drain(drain)
            .minimum_purpose(minimum_purpose);
        if let Some(calls) = max_concurrency.and_then(NonZeroUsize::new) {
            coordinator = coordinator.max_concurrency(calls);
        }
        for source in &sources {
            coordinator = coordinator.source(Arc::new(source.clone()));
        }
        Ok(Assembly {
            coordinator,
            sources,
            warnings: described.warnings,
        })
    }

    fn open_sources(&self, faults: &mut Vec<ConfigFault>) -> HashMap<Arc<str>, SqliteSource> {
        let mut sources = HashMap::new();
        for source in &self.sources {
            let writes =
                |tool: &ToolConfig| tool.source == source.name && tool.statement.effect() == Effect::Write;
            let options = SqliteOptions::new(Arc::clone(&source.name), path_of(source))
                .connections(self.allowance(&source.name))
                .max_rows(self.settings.max_rows)
                .view_max(self.settings.view_max)
                .read_only(!self.tools.iter().any(writes));
            match SqliteSource::open(options) {
                Ok(open) => drop(sources.insert(Arc::clone(&source.name), open)),
                // Its text would name the path, which may come from the environment.
                Err(SqliteError::Path { why, .. }) => {
                    let message = format!("the database of {:?} can't be used: {why}", &*source.name);
                    faults.push(ConfigFault::new(source.place.clone(), message));
                }
                Err(other) => faults.push(ConfigFault::new(source.place.clone(), other.to_string())),
            }
        }
        sources
    }

    /// How many calls a dependency takes at once.
    fn allowance(&self, name: &str) -> usize {
        let declared = self
            .dependencies
            .iter()
            .find(|dependency| *dependency.name == *name);
        declared
            .and_then(|dependency| dependency.allowance)
            .unwrap_or(self.settings.default_allowance)
    }

    fn limits(&self) -> Result<Limits, LimitError> {
        let mut limits = Limits::builder().default_allowance(self.settings.default_allowance);
        for source in &self.sources {
            limits = limits.allowance(Arc::clone(&source.name), self.allowance(&source.name));
        }
        for dependency in &self.dependencies {
            limits = limits.allowance(Arc::clone(&dependency.name), self.allowance(&dependency.name));
            if let Some(quota) = dependency.quota {
                limits = limits.quota(Arc::clone(&dependency.name), quota);
            }
        }
        limits.build()
    }

    fn snapshot_tool(&self, snapshot: &SnapshotConfig, described: &Described, source: SqliteSource) -> Tool {
        let covered = |cover: &Cover| self.tool(&cover.tool).map(|tool| (cover.clone(), tool));
        let covered: Vec<_> = snapshot.covers.iter().filter_map(covered).collect();
        let mut spec = ToolSpec::read(Arc::clone(&snapshot.name))
            .description(&*snapshot.description)
            .input_schema(snapshot.input_schema())
            .source(Arc::clone(&snapshot.source));
        // It does what each of them does, so whatever holds one of them back holds it back.
        let mut preconditions: Vec<Arc<str>> = Vec::new();
        let mut outputs = Vec::new();
        for (cover, tool) in &covered {
            let coordination = &tool.coordination;
            let new = coordination
                .preconditions
                .iter()
                .filter(|tool| !preconditions.contains(tool));
            let new: Vec<_> = new.cloned().collect();
            preconditions.extend(new);
            if let PerCall::Always(fields) = described.spec(tool).output_fields {
                outputs.extend(fields.iter().cloned());
            }
            spec.is_final |= coordination.is_final;
            if coordination.exclusive {
                spec = spec.exclusive(true);
            }
            spec = spec.covers(cover.clone());
        }
        spec.preconditions = PerCall::Always(preconditions.into());
        spec.output_fields = PerCall::Always(outputs.into());
        let timeouts: Option<Vec<_>> = covered
            .iter()
            .map(|(_, tool)| tool.coordination.timeout)
            .collect();
        spec.timeout = PerCall::Always(timeouts.and_then(|timeouts| timeouts.into_iter().max()));
        let parts: Arc<[Part]> = covered
            .into_iter()
            .map(|(cover, tool)| Part::new(&cover, tool))
            .collect();
        Tool::raw_fn(spec, move |request: CallRequest| {
            let (source, parts) = (source.clone(), Arc::clone(&parts));
            async move { read_parts(&source, &parts, &request).await }
        })
    }
}

/// Where a database is. A relative path starts at the file that says it, so that a configuration means the same wherever
/// it is used from.
fn path_of(source: &SourceConfig) -> PathBuf {
    match &*source.database {
        // Left as they are: no path, or one that is refused by name.
        special if special.is_empty() || special == ":memory:" || special.starts_with("file:") => {
            special.into()
        }
        path => Path::new(&*source.place.file)
            .parent()
            .unwrap_or(Path::new(""))
            .join(path),
    }
}

/// What the databases said about the statements.
struct Described {
    fields: HashMap<Arc<str>, Arc<[OutputField]>>,
    warnings: Vec<ConfigFault>,
}

impl Described {
    /// Asks a source what its tools return, as far as nobody has declared it.
    async fn ask(&mut self, source: &SqliteSource, tools: impl Iterator<Item = &ToolConfig>) {
        for tool in tools {
            if tool.coordination.output_fields.is_some() || tool.statement.effect() == Effect::Write {
                continue;
            }
            match source.describe(&tool.statement).await {
                Ok(description) => {
                    let field = |name| OutputField {
                        name,
                        origin: FieldOrigin::Derived,
                    };
                    let fields = description
                        .columns
                        .into_iter()
                        .map(|column| field(column.name))
                        .collect();
                    self.fields.insert(Arc::clone(&tool.name), fields);
                }
                Err(SqliteError::Unavailable(error)) => {
                    // The next would hear the same, perhaps after the same wait.
                    let message = format!(
                        "what the tools of {:?} return is not known: {error}",
                        &*tool.source
                    );
                    self.warn(
                        tool,
                        &message,
                        "declare `outputFields`, or let the database be there",
                    );
                    return;
                }
                Err(error) => self.warn(tool, &error.to_string(), "its calls will be told the same"),
            }
        }
    }

    fn warn(&mut self, tool: &ToolConfig, message: &str, help: &str) {
        let message = format!("tool {:?}: {}", &*tool.name, message.trim_end_matches('.'));
        self.warnings
            .push(ConfigFault::new(tool.place.clone(), message).help(help));
    }

    /// What is declared about a tool, and what its database says it returns.
    fn spec(&self, tool: &ToolConfig) -> ToolSpec {
        let spec = tool.spec();
        match self.fields.get(&tool.name) {
            Some(fields) => spec.output_fields_from(Arc::clone(fields)),
            None => spec,
        }
    }
}

fn statement_tool(tool: &ToolConfig, spec: ToolSpec, source: SqliteSource) -> Tool {
    let (statement, parameters): (_, Arc<[Parameter]>) =
        (tool.statement.clone(), tool.parameters.clone().into());
    Tool::raw_fn(spec, move |request: CallRequest| {
        let (source, statement, parameters) = (source.clone(), statement.clone(), Arc::clone(&parameters));
        async move {
            let values = bind(&parameters, &request.arguments, request.scope())?;
            source.answer(&request, &statement, &values).await
        }
    })
}

/// A covered tool's share of a snapshot.
struct Part {
    member: String,
    statement: CheckedSql,
    parameters: Vec<Parameter>,
    /// The tool's argument, and the snapshot's.
    arguments: Vec<(Arc<str>, Arc<str>)>,
}

impl Part {
    fn new(cover: &Cover, tool: &ToolConfig) -> Self {
        let pointer = cover.part.as_deref().and_then(|part| part.strip_prefix('/'));
        Self {
            member: pointer.unwrap_or(&tool.name).to_owned(),
            statement: tool.statement.clone(),
            parameters: tool.parameters.clone(),
            arguments: cover.arguments.clone(),
        }
    }

    fn values(&self, request: &CallRequest) -> Result<Vec<Value>, CallError> {
        let given = |(theirs, ours): &(Arc<str>, Arc<str>)| {
            request
                .arguments
                .get(&**ours)
                .map(|value| (theirs.to_string(), value.clone()))
        };
        let arguments: ArgumentMap = self.arguments.iter().filter_map(given).collect();
        bind(&self.parameters, &arguments, request.scope())
    }
}

/// Every part, through the set's one view of the source. If one fails, the whole does.
async fn read_parts(
    source: &SqliteSource,
    parts: &[Part],
    request: &CallRequest,
) -> Result<Answer, CallError> {
    let values = parts
        .iter()
        .map(|part| part.values(request))
        .collect::<Result<Vec<_>, _>>()?;
    // Held until all is read, so that no part could find another view.
    let lease = request.view(source.name()).await?;
    let reads = parts
        .iter()
        .zip(&values)
        .map(|(part, values)| source.answer(request, &part.statement, values));
    let answers = try_join_all(reads).await?;
    let view = lease.view().id();
    let mut whole = Answer::new(Map::new()).view(view.clone());
    let mut members = Map::new();
    for (part, answer) in parts.iter().zip(answers) {
        whole.complete &= answer.complete;
        whole.unsound = whole.unsound.or(answer.unsound);
        if answer.view.as_ref() != Some(view) {
            whole.unsound = Some(UnprovenReason::NoWitness);
        }
        whole.stamp = whole.stamp.or(answer.stamp);
        members.insert(part.member.clone(), answer.value);
    }
    whole.value = Value::Object(members);
    Ok(whole)
}
