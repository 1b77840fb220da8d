//! Configuration files: sources, tools and what is known about running them together.
//!
//! The files are YAML, several documents each. `source`, `tool` and `toolset` documents are those of Google's MCP
//! Toolbox, in its flat form or its older nested one, so that a `tools.yaml` runs as it is; Coeval's own settings are
//! documents of other kinds (`dependency`, `coordination`, `snapshot`, `policy`), in the same file or in one beside it.
//! This version reads SQLite sources and `sqlite-sql` tools; what else Toolbox knows is recognised and refused by name.
//! `config/reference.yaml` shows every field.
//!
//! ```
//! # use coeval::config::Config;
//! let config = Config::parse(
//!     "shop.yaml",
//!     b"
//! kind: source
//! name: shop
//! type: sqlite
//! database: ${SHOP_DB:-shop.db}
//! ---
//! kind: tool
//! name: list_orders
//! type: sqlite-sql
//! source: shop
//! description: Orders of an account.
//! parameters:
//!   - {name: account_id, type: string, description: The account.}
//! statement: SELECT id, total FROM orders WHERE account_id = $1 ORDER BY id
//! ",
//!     &|name| std::env::var(name).ok(),
//! )?;
//! assert_eq!(&*config.tools[0].name, "list_orders");
//! # Ok::<(), coeval::config::ConfigFaults>(())
//! ```
//!
//! Reading goes in three steps: files become trees of nodes with places (`yaml`), nodes become typed documents
//! (`document`), and documents are held against each other and become a [`Config`] (`resolve`). Each step tells every
//! fault it finds, and all are reported together.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;

use crate::call::Purpose;
use crate::limit::Quota;
use crate::plan::PolicyName;
use crate::source::sqlite::CheckedSql;
use crate::tool::{Cover, Effect, PerCall, RetryPolicy, ToolSpec};

mod build;
mod document;
mod environment;
mod fault;
mod fields;
mod key;
pub mod parameter;
mod resolve;
mod yaml;

pub use build::Assembly;
pub use environment::Environment;
pub use fault::{ConfigFault, ConfigFaults};
pub use key::{KeyTemplate, KeyTemplates};
pub use parameter::Parameter;

use fault::Place;

/// A configuration whose parts fit together. Nothing was opened yet.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Config {
    /// Where readings come from.
    pub sources: Vec<SourceConfig>,
    /// What may be called.
    pub tools: Vec<ToolConfig>,
    /// Named selections of tools.
    pub toolsets: Vec<Toolset>,
    /// Allowances and quotas by name; a source is a dependency of its own name.
    pub dependencies: Vec<DependencyConfig>,
    /// Comparison tools: one view over several tools.
    pub snapshots: Vec<SnapshotConfig>,
    /// How sets run.
    pub settings: Settings,
    /// What is probably not meant as it is said.
    pub warnings: Vec<ConfigFault>,
}

/// A SQLite database.
#[derive(Clone)]
#[non_exhaustive]
pub struct SourceConfig {
    /// Its name.
    pub name: Arc<str>,
    /// The file, relative to the file that says so, or `:memory:`.
    pub database: Arc<str>,
    /// The logical database it may be a copy of.
    pub origin: Option<Arc<str>>,
    /// The time zone its texts are in.
    pub time_zone: Option<Arc<str>>,
    /// Whether nobody ever writes to it.
    pub never_changes: bool,
    /// Whether everybody who writes to it also keeps its log of changes.
    pub all_writers_log: bool,
    /// Functions that are said to have no side effect.
    pub trusted: Vec<Arc<str>>,
    pub(crate) place: Place,
}

/// Without the database, which may come from the environment.
impl fmt::Debug for SourceConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SourceConfig")
            .field("name", &self.name)
            .field("at", &self.place)
            .finish_non_exhaustive()
    }
}

/// A statement with parameters, and what is known about running it.
#[derive(Clone)]
#[non_exhaustive]
pub struct ToolConfig {
    /// The name the model uses.
    pub name: Arc<str>,
    /// What the model is told.
    pub description: Arc<str>,
    /// The source it reads.
    pub source: Arc<str>,
    /// The statement, which was looked at.
    pub statement: CheckedSql,
    /// What its placeholders stand for: the n-th is `$n`, or the n-th `?`.
    pub parameters: Vec<Parameter>,
    /// What can't be derived from the statement.
    pub coordination: Coordination,
    pub(crate) place: Place,
}

/// Without the statement, which may hold what comes from the environment.
impl fmt::Debug for ToolConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("ToolConfig");
        shown
            .field("name", &self.name)
            .field("at", &self.place)
            .field("source", &self.source);
        shown.field("parameters", &self.parameters);
        shown
            .field("coordination", &self.coordination)
            .finish_non_exhaustive()
    }
}

/// What can't be derived about a tool.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct Coordination {
    /// Read or write; `None` leaves it to the statement.
    pub effect: Option<Effect>,
    /// Whether `effect` may call a read what the statement doesn't prove to be one.
    pub trusted: bool,
    /// Whether its calls must run alone.
    pub exclusive: bool,
    /// What it leans on besides its source's own dependency.
    pub dependency: Option<Arc<str>>,
    /// What it returns; `None` leaves it to the statement.
    pub output_fields: Option<Arc<[Arc<str>]>>,
    /// Tools that must have succeeded before.
    pub preconditions: Arc<[Arc<str>]>,
    /// Resources its calls name.
    pub keys: KeyTemplates,
    /// What its writes are confined to.
    pub partition_key: Option<KeyTemplate>,
    /// The output field that says as of when the data is.
    pub as_of_field: Option<Arc<str>>,
    /// Whether one response is one state of one system.
    pub one_state: bool,
    /// How long a call may take.
    pub timeout: Option<Duration>,
    /// How failed reads are tried again.
    pub retry: Option<RetryPolicy>,
    /// Whether an accepted call ends the turn.
    pub is_final: bool,
}

/// A named selection of tools.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Toolset {
    /// Its name.
    pub name: Arc<str>,
    /// Its tools, snapshots among them.
    pub tools: Vec<Arc<str>>,
}

/// What a dependency takes.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct DependencyConfig {
    /// Its name.
    pub name: Arc<str>,
    /// Calls in flight; `None` is the default allowance. For a source: its connections.
    pub allowance: Option<usize>,
    /// Calls per time; `None` is no limit.
    pub quota: Option<Quota>,
}

/// A tool that answers for several tools of one source, from one view.
#[derive(Clone)]
#[non_exhaustive]
pub struct SnapshotConfig {
    /// The name the model uses.
    pub name: Arc<str>,
    /// What the model is told.
    pub description: Arc<str>,
    /// The source of all covered tools.
    pub source: Arc<str>,
    /// The tools it answers for, their parts and arguments spelled out.
    pub covers: Vec<Cover>,
    /// Its own parameters: those of the covered tools, under the names it gives them.
    pub parameters: Vec<Parameter>,
    pub(crate) place: Place,
}

/// As for the tools it covers.
impl fmt::Debug for SnapshotConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("SnapshotConfig");
        shown
            .field("name", &self.name)
            .field("at", &self.place)
            .field("source", &self.source);
        shown
            .field("covers", &self.covers)
            .field("parameters", &self.parameters)
            .finish_non_exhaustive()
    }
}

/// How sets run: the `policy` document with its defaults.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Settings {
    /// The profile.
    pub policy: PolicyName,
    /// Calls in flight per set; `None` is the profile's own.
    pub max_concurrency: Option<usize>,
    /// The allowance of a dependency that declares none.
    pub default_allowance: usize,
    /// The spread over which readings are suspected to disagree.
    pub tolerance: Duration,
    /// Rows of one answer; more are cut off, and the answer says so.
    pub max_rows: usize,
    /// How long a view may be held.
    pub view_max: Duration,
    /// How long what runs is waited for when a set ends early.
    pub drain: Duration,
    /// The least that results are taken to be for, whatever the question sounds like.
    pub minimum_purpose: Purpose,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            policy: PolicyName::Standard,
            max_concurrency: None,
            default_allowance: 8,
            tolerance: Duration::from_secs(2),
            max_rows: 1000,
            view_max: Duration::from_secs(30),
            drain: Duration::from_secs(10),
            minimum_purpose: Purpose::Report,
        }
    }
}

/// More files than this in a folder are not meant.
const MAX_FILES: usize = 1000;

impl Config {
    /// Reads these files as one configuration. Of a folder, the `.yaml` and `.yml` files directly in it, by name.
    ///
    /// `environment` gives the value of a variable; `&|name| std::env::var(name).ok()` is the process's own.
    ///
    /// # Errors
    /// Every fault of every file, each with its line and how to mend it.
    pub fn load(paths: &[impl AsRef<Path>], environment: &Environment<'_>) -> Result<Self, ConfigFaults> {
        let mut unreadable = Vec::new();
        let mut files = Vec::new();
        for path in paths.iter().map(AsRef::as_ref) {
            match files_of(path) {
                Ok(found) if found.is_empty() => {
                    unreadable.push(whole_file(
                        path,
                        "the folder holds no .yaml or .yml file".to_owned(),
                    ));
                }
                Ok(found) if found.len() > MAX_FILES => {
                    unreadable.push(whole_file(
                        path,
                        format!("the folder holds more than {MAX_FILES} files"),
                    ));
                }
                Ok(found) => {
                    for path in found {
                        match read_bounded(&path) {
                            Ok(bytes) => files.push((path.display().to_string(), bytes)),
                            Err(error) => {
                                unreadable.push(whole_file(&path, format!("can't be read: {error}")))
                            }
                        }
                    }
                }
                Err(error) => unreadable.push(whole_file(path, format!("can't be read: {error}"))),
            }
        }
        let files: Vec<_> = files
            .iter()
            .map(|(name, bytes)| (name.as_str(), bytes.as_slice()))
            .collect();
        resolve::config(&files, environment, unreadable)
    }

    /// Reads one configuration from memory. `name` stands for it in faults.
    ///
    /// # Errors
    /// Every fault, each with its line and how to mend it.
    pub fn parse(name: &str, bytes: &[u8], environment: &Environment<'_>) -> Result<Self, ConfigFaults> {
        resolve::config(&[(name, bytes)], environment, Vec::new())
    }

    /// The tool of this name.
    pub fn tool(&self, name: &str) -> Option<&ToolConfig> {
        self.tools.iter().find(|tool| *tool.name == *name)
    }
}

fn whole_file(path: &Path, message: String) -> ConfigFault {
    let place = Place {
        file: path.display().to_string().into(),
        line: 0,
        column: 0,
        snippet: "".into(),
    };
    ConfigFault::new(place, message)
}

/// The file itself, or the YAML files of a folder, by name.
fn files_of(path: &Path) -> std::io::Result<Vec<PathBuf>> {
    if !path.is_dir() {
        return Ok(vec![path.to_owned()]);
    }
    let mut files = Vec::new();
    for entry in std::fs::read_dir(path)? {
        let path = entry?.path();
        let is_yaml = path
            .extension()
            .is_some_and(|extension| extension == "yaml" || extension == "yml");
        if is_yaml && path.is_file() {
            files.push(path);
        }
    }
    files.sort();
    Ok(files)
}

/// The bytes of a file, up to one more than may be read, so that a device or a huge file can't fill the memory.
fn read_bounded(path: &Path) -> std::io::Result<Vec<u8>> {
    use std::io::Read as _;
    let mut bytes = Vec::new();
    std::fs::File::open(path)?
        .take(yaml::MAX_BYTES as u64 + 1)
        .read_to_end(&mut bytes)?;
    Ok(bytes)
}

impl ToolConfig {
    /// The JSON Schema of its arguments.
    pub fn input_schema(&self) -> Value {
        parameter::input_schema(&self.parameters)
    }

    /// Read or write, as it is declared or else as the statement says.
    pub fn effect(&self) -> Effect {
        self.coordination.effect.unwrap_or(self.statement.effect())
    }

    /// What is declared about it, its output fields only as far as the configuration names them.
    pub fn spec(&self) -> ToolSpec {
        let Coordination {
            output_fields,
            preconditions,
            keys,
            partition_key,
            timeout,
            ..
        } = &self.coordination;
        let mut spec = ToolSpec::new(Arc::clone(&self.name))
            .description(&*self.description)
            .input_schema(self.input_schema())
            .source(Arc::clone(&self.source))
            .effect(self.effect())
            .exclusive(self.coordination.exclusive)
            .keys(keys.per_call(&self.parameters));
        spec.dependency = self.coordination.dependency.clone().map(PerCall::Always);
        if let Some(fields) = output_fields {
            spec = spec.output_fields(fields.iter().cloned());
        }
        spec.preconditions = PerCall::Always(Arc::clone(preconditions));
        if let Some(template) = partition_key {
            let (template, parameters) = (template.clone(), self.parameters.clone());
            spec.partition_key =
                PerCall::decide(move |arguments| template.render(&parameters, arguments).map(Some));
        }
        spec.timeout = PerCall::Always(*timeout);
        spec.is_final = self.coordination.is_final;
        spec.retry = self.coordination.retry;
        spec.as_of_field = self.coordination.as_of_field.clone();
        spec.one_state = self.coordination.one_state;
        spec
    }
}

impl SnapshotConfig {
    /// The JSON Schema of its arguments.
    pub fn input_schema(&self) -> Value {
        parameter::input_schema(&self.parameters)
    }
}
