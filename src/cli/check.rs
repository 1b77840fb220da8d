//! `coeval check`: what each tool was found to be, and what can't be proved.

use std::fmt::{self, Write};
use std::sync::Arc;

use anstyle::Style;
use coeval::config::{Assembly, Config, ConfigFault, ToolConfig};
use coeval::limit::Quota;
use coeval::plan::Allowances;
use coeval::source::sqlite::{Description, SqliteSource};
use coeval::source::{Capability, Source};
use coeval::tool::{Effect, FieldOrigin, PerCall, ToolSpec};
use serde::Serialize;

use super::terminal::{DOUBT, FAINT, GOOD, Paint, STRONG, wrapped};
use super::{Check, Ending, Failure, Terminal};

/// What fits beside what it is called.
const WIDTH: usize = 90;

/// What was found, by contract.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Findings {
    sources: Vec<SourceFound>,
    tools: Vec<ToolFound>,
    warnings: Vec<WarningFound>,
}

/// A source and what it can promise.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct SourceFound {
    name: Arc<str>,
    /// Several reads can see one state.
    snapshot: bool,
    /// They can do so at once.
    shared: bool,
    connections: usize,
}

/// A tool.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ToolFound {
    name: Arc<str>,
    /// `null` if nothing is known.
    effect: Option<Effect>,
    effect_from: EffectFrom,
    /// Whether each call runs alone.
    exclusive: bool,
    dependency: DependencyFound,
    source: Option<Arc<str>>,
    output_fields: Vec<FieldFound>,
    preconditions: Vec<Arc<str>>,
    keys: KeysFound,
    partition_key: Option<String>,
    timeout_ms: Option<u128>,
    attempts: u32,
    ends_turn: bool,
    as_of_field: Option<Arc<str>>,
    one_state: bool,
    covers: Vec<Arc<str>>,
    hints: Hints,
    cannot_prove: Vec<String>,
}

/// Who says what a tool does.
#[derive(Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum EffectFrom {
    /// Its statement was read.
    Derived,
    /// Its owner.
    Declared,
    /// Nobody.
    Unknown,
}

/// What a tool leans on.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct DependencyFound {
    name: Arc<str>,
    /// Calls in flight.
    allowance: usize,
    quota: Option<QuotaFound>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct QuotaFound {
    limit: u32,
    per_ms: u128,
    burst: u32,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct FieldFound {
    name: Arc<str>,
    origin: FieldOrigin,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct KeysFound {
    reads: Vec<String>,
    writes: Vec<String>,
}

/// What an MCP client is told.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Hints {
    read_only_hint: bool,
    destructive_hint: bool,
    idempotent_hint: bool,
    open_world_hint: bool,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct WarningFound {
    file: String,
    line: Option<usize>,
    column: Option<usize>,
    message: String,
    suggestion: Option<String>,
}

pub(super) async fn check(command: Check, terminal: &Terminal) -> Result<Ending, Failure> {
    let config = command.config.read(None, terminal)?;
    let Assembly {
        coordinator,
        sources,
        warnings,
        ..
    } = super::build(&config, terminal).await?;
    let coordinator = coordinator.build();
    let mut tools = Vec::new();
    for tool in coordinator.registry().tools() {
        let mut found = ToolFound::of(tool.spec(), &config, coordinator.limits());
        found.doubt(config.tool(&tool.spec().name), &sources).await;
        tools.push(found);
    }
    let findings = Findings {
        // Asked last: by now each was opened, and knows what it can promise.
        sources: sources.iter().map(SourceFound::of).collect(),
        tools,
        warnings: warnings.iter().map(WarningFound::of).collect(),
    };
    super::shut_down(coordinator, &sources).await;
    match command.output.is_json() {
        true => terminal.print_json(&findings, &command.output, false)?,
        false => terminal.print(&text(&findings, terminal.paint))?,
    }
    Ok(Ending::Fine)
}

impl SourceFound {
    fn of(source: &SqliteSource) -> Self {
        let Capability {
            snapshot,
            shared,
            connections,
            ..
        } = source.capability();
        Self {
            name: Arc::clone(source.name()),
            snapshot,
            shared,
            connections,
        }
    }
}

impl WarningFound {
    fn of(warning: &ConfigFault) -> Self {
        Self {
            file: warning.file().to_owned(),
            line: warning.line(),
            column: warning.column(),
            message: warning.message().to_owned(),
            suggestion: warning.suggestion().map(str::to_owned),
        }
    }
}

impl ToolFound {
    fn of(spec: &ToolSpec, config: &Config, limits: &dyn Allowances) -> Self {
        let own = config.tool(&spec.name);
        let coordination = own.map(|tool| &tool.coordination);
        let effect = fixed(spec.effect.as_ref());
        let effect_from = match (effect, coordination.and_then(|c| c.effect)) {
            (None, _) => EffectFrom::Unknown,
            (Some(_), Some(_)) => EffectFrom::Declared,
            (Some(_), None) => EffectFrom::Derived,
        };
        let exclusive = effect.is_none() || fixed(Some(&spec.exclusive)) != Some(false);
        let dependency = match fixed(spec.dependency.as_ref()) {
            Some(declared) => declared,
            None => Arc::clone(spec.source.as_ref().unwrap_or(&spec.name)),
        };
        let quota = config
            .dependencies
            .iter()
            .find(|declared| declared.name == dependency)
            .and_then(|d| d.quota);
        let reads = effect == Some(Effect::Read);
        let outputs = fixed(Some(&spec.output_fields)).unwrap_or_default();
        Self {
            name: Arc::clone(&spec.name),
            effect,
            effect_from,
            exclusive,
            dependency: DependencyFound {
                allowance: limits.allowance(&dependency),
                quota: quota.map(|Quota { limit, per, burst }| QuotaFound {
                    limit,
                    per_ms: per.as_millis(),
                    burst,
                }),
                name: dependency,
            },
            source: spec.source.clone(),
            output_fields: outputs
                .iter()
                .map(|field| FieldFound {
                    name: Arc::clone(&field.name),
                    origin: field.origin,
                })
                .collect(),
            preconditions: fixed(Some(&spec.preconditions)).unwrap_or_default().to_vec(),
            keys: KeysFound {
                reads: coordination.map(|c| shown(&c.keys.reads)).unwrap_or_default(),
                writes: coordination.map(|c| shown(&c.keys.writes)).unwrap_or_default(),
            },
            partition_key: coordination
                .and_then(|c| c.partition_key.as_ref())
                .map(ToString::to_string),
            timeout_ms: fixed(Some(&spec.timeout))
                .flatten()
                .map(|timeout| timeout.as_millis()),
            attempts: spec.retry.map_or(1, |retry| retry.attempts.get()),
            ends_turn: spec.is_final,
            as_of_field: spec.as_of_field.clone(),
            one_state: spec.one_state,
            covers: spec.covers.iter().map(|cover| Arc::clone(&cover.tool)).collect(),
            hints: Hints {
                read_only_hint: reads,
                destructive_hint: !reads,
                idempotent_hint: reads,
                open_world_hint: spec.source.is_none(),
            },
            cannot_prove: Vec::new(),
        }
    }

    /// What keeps its readings from being compared, and what its calls can't be held against.
    async fn doubt(&mut self, own: Option<&ToolConfig>, sources: &[SqliteSource]) {
        let mut doubts = Vec::new();
        if self.effect.is_none() {
            doubts.push("what it does is not known: each call runs alone".to_owned());
        }
        if self.effect == Some(Effect::Read) {
            if self.source.is_none() {
                doubts.push("it reads outside every view: its readings join no comparison".to_owned());
            }
            if self.output_fields.is_empty() {
                doubts.push(
                    "what it returns is not known: arguments that were guessed of it are not found out"
                        .to_owned(),
                );
            }
        }
        if let Some(tool) = own {
            let source = sources.iter().find(|source| **source.name() == *tool.source);
            doubts.extend(self.doubt_statement(tool, source).await);
        }
        self.cannot_prove = doubts;
    }

    async fn doubt_statement(&self, tool: &ToolConfig, source: Option<&SqliteSource>) -> Vec<String> {
        let mut doubts = Vec::new();
        if tool.statement.effect() == Effect::Write {
            if self.effect == Some(Effect::Read) {
                doubts.push("it is declared a read, but its statement writes".to_owned());
            }
            return doubts;
        }
        // What the database refuses, or that it isn't there, was a warning when the tool was made.
        if let Some(source) = source
            && let Ok(Description { steady, whole, .. }) = source.describe(&tool.statement).await
        {
            if !whole {
                doubts.push(
                    "LIMIT without a total order gives some rows, not the rows: its answers are incomplete and join no \
                     comparison; order by a key"
                        .to_owned(),
                );
            }
            if !steady {
                let what = tool.statement.restless().unwrap_or("a view that it reads");
                doubts.push(format!(
                    "{what} is no function of the data: its answers join no comparison"
                ));
            }
        }
        doubts
    }
}

/// A fact that is the same for every call.
fn fixed<T: Clone>(fact: Option<&PerCall<T>>) -> Option<T> {
    match fact {
        Some(PerCall::Always(value)) => Some(value.clone()),
        Some(PerCall::Decide(_)) | None => None,
    }
}

fn shown(templates: &[impl fmt::Display]) -> Vec<String> {
    templates.iter().map(ToString::to_string).collect()
}

/// The findings for people.
fn text(findings: &Findings, paint: Paint) -> String {
    let mut out = String::new();
    for source in &findings.sources {
        let promise = match (source.snapshot, source.shared) {
            (true, true) => "one view for many reads at once",
            (true, false) => "one view, reads take turns",
            (false, _) => "no view",
        };
        line(
            &mut out,
            format_args!(
                "{}  {promise}",
                paint.with(STRONG, format_args!("source {}", source.name))
            ),
        );
    }
    let width = findings
        .tools
        .iter()
        .map(|tool| tool.name.chars().count())
        .max()
        .unwrap_or_default();
    for tool in &findings.tools {
        line(&mut out, "");
        tool.tell(&mut out, width, paint);
    }
    let doubtful = findings
        .tools
        .iter()
        .filter(|tool| !tool.cannot_prove.is_empty())
        .count();
    line(&mut out, "");
    let (tools, warnings) = (findings.tools.len(), findings.warnings.len());
    let counted = format!(
        "{tools} {}, {doubtful} of which with something that can't be proved, {warnings} {}",
        if tools == 1 { "tool" } else { "tools" },
        if warnings == 1 { "warning" } else { "warnings" },
    );
    line(&mut out, paint.with(FAINT, counted));
    out
}

fn line(out: &mut String, text: impl fmt::Display) {
    // Writing to a string can't fail.
    let _ = writeln!(out, "{text}");
}

impl ToolFound {
    fn tell(&self, out: &mut String, width: usize, paint: Paint) {
        let (effect, style) = match self.effect {
            Some(Effect::Read) if !self.exclusive => ("read", GOOD),
            Some(Effect::Read) => ("read, runs alone", DOUBT),
            Some(Effect::Write) => ("write, runs alone", DOUBT),
            None => ("unknown, runs alone", DOUBT),
        };
        let from = match self.effect_from {
            EffectFrom::Derived if !self.covers.is_empty() => " (from what it covers)",
            EffectFrom::Derived => " (from its statement)",
            EffectFrom::Declared => " (declared)",
            EffectFrom::Unknown => "",
        };
        let name = format!("{:<width$}", self.name);
        line(
            out,
            format_args!(
                "{}  {}{from}",
                paint.with(STRONG, name),
                paint.with(style, effect)
            ),
        );

        let mut told = |what: &str, style: Style, text: &dyn fmt::Display| {
            for (number, text) in wrapped(&text.to_string(), WIDTH).iter().enumerate() {
                let what = if number == 0 { what } else { "" };
                line(
                    out,
                    format_args!("  {} {text}", paint.with(style, format_args!("{what:<12}"))),
                );
            }
        };
        let mut fact = |what: &str, text: &dyn fmt::Display| told(what, FAINT, text);
        let DependencyFound {
            name,
            allowance,
            quota,
        } = &self.dependency;
        let quota = quota.as_ref().map(|QuotaFound { limit, per_ms, burst }| {
            format!(", {limit} calls per {per_ms} ms, {burst} at once after a pause")
        });
        fact(
            "leans on",
            &format_args!("{name}, {allowance} at once{}", quota.unwrap_or_default()),
        );
        if self.effect == Some(Effect::Read) {
            match &self.source {
                Some(source) => fact("reads", &format_args!("through the view of {source}")),
                None => fact("reads", &"outside every view"),
            }
        }
        for (origin, word) in [
            (FieldOrigin::Derived, "derived"),
            (FieldOrigin::Declared, "declared"),
        ] {
            let fields = self.output_fields.iter().filter(|field| field.origin == origin);
            let fields: Vec<&str> = fields.map(|field| &*field.name).collect();
            if !fields.is_empty() {
                fact("returns", &format_args!("{} ({word})", fields.join(", ")));
            }
        }
        if !self.preconditions.is_empty() {
            fact("after", &self.preconditions.join(", "));
        }
        if !self.covers.is_empty() {
            fact("covers", &self.covers.join(", "));
        }
        let reads = self.keys.reads.iter().map(|key| format!("reads {key}"));
        let keys: Vec<String> = reads
            .chain(self.keys.writes.iter().map(|key| format!("writes {key}")))
            .collect();
        if !keys.is_empty() {
            fact("keys", &keys.join(", "));
        }
        if let Some(key) = &self.partition_key {
            fact("confined to", key);
        }
        if let Some(timeout) = self.timeout_ms {
            fact("timeout", &format_args!("{timeout} ms"));
        }
        if self.attempts > 1 {
            fact("attempts", &self.attempts);
        }
        if self.ends_turn {
            fact("ends turn", &"calls after it are not started");
        }
        if let Some(field) = &self.as_of_field {
            fact("as of", &format_args!("its field {field}: shown, never proof"));
        }
        if self.one_state {
            fact(
                "one state",
                &"an answer is declared to be one state of one system",
            );
        }
        fact("hints", &self.hints);
        for doubt in &self.cannot_prove {
            told("not proved", DOUBT, doubt);
        }
    }
}

impl fmt::Display for Hints {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let hints = [
            (self.read_only_hint, "readOnlyHint"),
            (self.destructive_hint, "destructiveHint"),
            (self.idempotent_hint, "idempotentHint"),
            (self.open_world_hint, "openWorldHint"),
        ];
        let mut given = hints.iter().filter(|(given, _)| *given).map(|(_, name)| *name);
        f.write_str(given.next().unwrap_or("none"))?;
        given.try_for_each(|name| write!(f, ", {name}"))
    }
}
