//! Documents held against each other: names that must exist, facts that must fit.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use super::document::{self, Declared};
use super::environment::Environment;
use super::fault::{ConfigFault, ConfigFaults};
use super::fields::{Reader, Spanned};
use super::key::{KeyTemplate, KeyTemplates};
use super::parameter::Parameter;
use super::yaml::{SourceFile, documents};
use super::{
    Config, Coordination, DependencyConfig, Settings, SnapshotConfig, SourceConfig, ToolConfig, Toolset,
};
use crate::source::sqlite::CheckedSql;
use crate::spelling::nearest;
use crate::tool::{Cover, Effect};

type Name = Arc<str>;

/// The configuration that these files are together.
pub(super) fn config(
    files: &[(&str, &[u8])],
    environment: &Environment<'_>,
    mut unreadable: Vec<ConfigFault>,
) -> Result<Config, ConfigFaults> {
    let mut reader = Reader::new(environment);
    for (name, bytes) in files {
        match SourceFile::new(name, bytes) {
            Ok(file) => reader.files.push(file),
            Err(fault) => unreadable.push(fault),
        }
    }
    let mut declared = Declared::default();
    let (mut nodes, mut broken) = (Vec::new(), Vec::new());
    for (index, file) in reader.files.iter().enumerate() {
        nodes.extend(documents(index, file, &mut broken));
    }
    for (at, message, help) in broken {
        match help {
            Some(help) => reader.fault_with(at, message, help),
            None => reader.fault(at, message),
        }
    }
    for node in &nodes {
        declared.read(&mut reader, node);
    }
    drop(nodes);
    let config = Resolver {
        reader: &mut reader,
        unreadable: declared.unreadable.clone(),
    }
    .resolve(declared);
    let (faults, warnings) = reader.finish();
    unreadable.extend(faults);
    if unreadable.is_empty() {
        Ok(Config { warnings, ..config })
    } else {
        Err(ConfigFaults(unreadable))
    }
}

struct Resolver<'r, 'e> {
    reader: &'r mut Reader<'e>,
    /// Declared names that couldn't be read: nothing is said about what refers to them.
    unreadable: HashSet<Name>,
}

impl Resolver<'_, '_> {
    fn resolve(mut self, declared: Declared) -> Config {
        let Declared {
            sources,
            tools,
            toolsets,
            dependencies,
            coordinations,
            snapshots,
            policies,
            ..
        } = declared;
        self.no_repetition("source", sources.iter().map(|s| &s.name));
        self.no_repetition(
            "tool",
            tools
                .iter()
                .map(|t| &t.name)
                .chain(snapshots.iter().map(|s| &s.name)),
        );
        self.no_repetition("toolset", toolsets.iter().map(|t| &t.name));
        self.no_repetition("dependency", dependencies.iter().map(|d| &d.name));
        self.no_repetition("coordination of", coordinations.iter().map(|c| &c.tool));

        let sources: Vec<_> = sources.into_iter().map(|source| self.source(source)).collect();
        let source_names: Vec<Name> = sources.iter().map(|source| Arc::clone(&source.name)).collect();
        let statements: Vec<Name> = tools.iter().map(|tool| Arc::clone(&tool.name.value)).collect();
        let callable: Vec<Name> = statements
            .iter()
            .cloned()
            .chain(snapshots.iter().map(|s| Arc::clone(&s.name.value)))
            .collect();

        for coordination in &coordinations {
            let tool = &coordination.tool;
            if callable.contains(&tool.value) && !statements.contains(&tool.value) {
                let message = format!(
                    "{:?} is a snapshot, whose coordination is that of the tools it covers",
                    &*tool.value
                );
                self.reader.fault_with(tool.at, message, "leave the document out");
                continue;
            }
            self.known("coordination for", "tool", &coordination.tool, &statements);
        }
        self.dependencies(&dependencies, &coordinations, &source_names);
        let mut by_tool: HashMap<Name, document::Coordination> = coordinations
            .into_iter()
            .map(|c| (Arc::clone(&c.tool.value), c))
            .collect();
        let tools: Vec<_> = tools
            .into_iter()
            .filter_map(|tool| {
                self.known(
                    &format!("tool {:?} reads", &*tool.name.value),
                    "source",
                    &tool.source,
                    &source_names,
                );
                let name = Arc::clone(&tool.name.value);
                let coordination = by_tool.remove(&name);
                let tool = self.tool(tool, coordination, &callable);
                if tool.is_none() {
                    self.unreadable.insert(name);
                }
                tool
            })
            .collect();
        let snapshots = snapshots
            .into_iter()
            .filter_map(|snapshot| self.snapshot(snapshot, &tools))
            .collect();
        let toolsets = toolsets
            .into_iter()
            .map(|toolset| self.toolset(toolset, &callable))
            .collect();
        let settings = self.settings(policies);
        let dependencies = dependencies
            .into_iter()
            .map(|d| DependencyConfig {
                name: d.name.value,
                allowance: d.allowance,
                quota: d.quota,
            })
            .collect();
        Config {
            sources,
            tools,
            toolsets,
            dependencies,
            snapshots,
            settings,
            warnings: Vec::new(),
        }
    }

    fn no_repetition<'s>(&mut self, what: &str, names: impl Iterator<Item = &'s Spanned<Name>>) {
        let mut first: HashMap<Name, super::yaml::At> = HashMap::new();
        for name in names {
            if let Some(at) = first.get(&name.value) {
                let place = self.reader.place(*at);
                let message = format!("there is already a {what} {:?}", &*name.value);
                self.reader.fault_with(
                    name.at,
                    message,
                    format!("the first is in {}:{}", place.file, place.line),
                );
            } else {
                first.insert(Arc::clone(&name.value), name.at);
            }
        }
    }

    /// Tells a name that stands for nothing. `who` says who uses it.
    fn known(&mut self, who: &str, what: &str, name: &Spanned<Name>, known: &[Name]) -> bool {
        if known.contains(&name.value) {
            return true;
        }
        if !self.unreadable.contains(&name.value) {
            let unreadable = self.unreadable.clone();
            let known: Vec<&str> = known.iter().chain(&unreadable).map(|name| &**name).collect();
            let message = format!("{who} the {what} {:?}, which is not declared", &*name.value);
            self.reader.unknown(name.at, message, &name.value, &known);
        }
        false
    }

    fn source(&mut self, source: document::Source) -> SourceConfig {
        let document::Source {
            name,
            database,
            origin,
            time_zone,
            never_changes,
            all_writers_log,
            trusted,
        } = source;
        let place = self.reader.place(name.at);
        let name = name.value;
        SourceConfig {
            name,
            database,
            origin,
            time_zone,
            never_changes,
            all_writers_log,
            trusted,
            place,
        }
    }

    fn dependencies(
        &mut self,
        dependencies: &[document::Dependency],
        coordinations: &[document::Coordination],
        sources: &[Name],
    ) {
        let used: HashSet<&Name> = coordinations
            .iter()
            .filter_map(|c| Some(&c.dependency.as_ref()?.value))
            .collect();
        for dependency in dependencies {
            let name = &dependency.name.value;
            if !used.contains(name) && !sources.contains(name) && !self.unreadable.contains(name) {
                let message = format!("nothing leans on the dependency {:?}", &**name);
                let others = used
                    .iter()
                    .map(|name| &***name)
                    .chain(sources.iter().map(|name| &**name));
                let help = match nearest(name, others) {
                    Some(near) => format!("did you mean {near:?}?"),
                    None => "name it in a `kind: coordination`, or leave it out".to_owned(),
                };
                self.reader.warn(dependency.name.at, message, help);
            }
        }
        for dependency in coordinations.iter().filter_map(|c| c.dependency.as_ref()) {
            let name = &dependency.value;
            let declared = dependencies
                .iter()
                .map(|d| &d.name.value)
                .chain(sources)
                .any(|known| known == name);
            if !declared && !self.unreadable.contains(name) {
                let message = format!("the dependency {:?} has no limits of its own", &**name);
                let known = dependencies
                    .iter()
                    .map(|d| &*d.name.value)
                    .chain(sources.iter().map(|name| &**name));
                let help = match nearest(name, known) {
                    Some(near) => format!("did you mean {near:?}?"),
                    None => "it gets the default allowance; declare it with `kind: dependency`".to_owned(),
                };
                self.reader.warn(dependency.at, message, help);
            }
        }
    }

    fn tool(
        &mut self,
        tool: document::Tool,
        coordination: Option<document::Coordination>,
        callable: &[Name],
    ) -> Option<ToolConfig> {
        let names: Vec<Name> = tool
            .parameters
            .iter()
            .map(|parameter| Arc::clone(&parameter.value.name))
            .collect();
        let at = tool.statement.at;
        let statement = match CheckedSql::new(&tool.statement.value, &names) {
            Ok(statement) => Some(statement),
            Err(error) => {
                // Of a parameter that couldn't be read nobody knows what it would have been.
                if tool.whole {
                    self.reader
                        .fault(at, format!("tool {:?}: {error}", &*tool.name.value));
                }
                None
            }
        };
        let writes = statement
            .as_ref()
            .is_some_and(|statement| statement.effect() == Effect::Write);
        if let Some(why) = statement.as_ref().and_then(CheckedSql::restless) {
            let message = format!("what {:?} returns is never comparable: {why}", &*tool.name.value);
            self.reader
                .warn(at, message, "take that out of the statement if it shall be");
        }
        let parameters: Vec<Parameter> = tool
            .parameters
            .into_iter()
            .map(|parameter| parameter.value)
            .collect();
        let place = self.reader.place(at);
        let name = tool.name.value;
        let mut coordination = match coordination {
            Some(coordination) => self.coordination(coordination, &name, &parameters, writes, callable),
            None => Coordination::default(),
        };
        match tool.read_only_hint {
            // A hint may tighten. It never makes a read of what isn't proved to be one.
            Some(Spanned { value: false, .. }) => {
                coordination.effect = coordination.effect.or(Some(Effect::Write));
            }
            Some(Spanned { value: true, at }) if writes => {
                self.reader.warn(
                    at,
                    format!("{:?} is said to only read, but its statement writes", &*name),
                    "it is taken for a write",
                );
            }
            _ => {}
        }
        let (description, source, statement) = (tool.description, tool.source.value, statement?);
        Some(ToolConfig {
            name,
            description,
            source,
            statement,
            parameters,
            coordination,
            place,
        })
    }

    fn coordination(
        &mut self,
        c: document::Coordination,
        tool: &Name,
        parameters: &[Parameter],
        writes: bool,
        callable: &[Name],
    ) -> Coordination {
        if let Some(Spanned {
            value: Effect::Read,
            at,
        }) = c.effect
            && writes
            && !c.trusted
        {
            let message = format!("tool {:?} is declared a read, but its statement writes", &**tool);
            let help = "leave `effect` out, or add `trusted: true` if what it writes concerns nobody";
            self.reader.fault_with(at, message, help);
        }
        for precondition in &c.preconditions {
            if precondition.value == *tool {
                self.reader.fault(
                    precondition.at,
                    format!("tool {:?} can't be its own precondition", &**tool),
                );
            } else {
                self.known("a precondition names", "tool", precondition, callable);
            }
        }
        let mut keys = KeyTemplates::default();
        for (templates, list) in [(c.reads, &mut keys.reads), (c.writes, &mut keys.writes)] {
            for template in templates {
                self.template(&template, tool, parameters);
                list.push(template.value);
            }
        }
        if let Some(template) = &c.partition_key {
            self.template(template, tool, parameters);
        }
        if let Some(field) = &c.as_of_field
            && looks_like_a_row_time(&field.value)
        {
            let message = format!(
                "{:?} sounds like when a row was changed last, not as of when the data is",
                &*field.value
            );
            self.reader.warn(
                field.at,
                message,
                "name a field that says when everything was loaded, or leave it out",
            );
        }
        let writes = c
            .effect
            .as_ref()
            .map_or(writes, |effect| effect.value == Effect::Write);
        if let (Some(retry), true) = (&c.retry, writes) {
            self.reader
                .warn(retry.at, "a write is never tried again", "leave `retry` out");
        }
        if let (Some(key), false) = (&c.partition_key, writes) {
            self.reader
                .warn(key.at, "`partitionKey` says nothing about a read", "leave it out");
        }
        Coordination {
            effect: c.effect.map(|effect| effect.value),
            trusted: c.trusted,
            exclusive: c.exclusive,
            dependency: c.dependency.map(|dependency| dependency.value),
            output_fields: c.output_fields.map(Into::into),
            preconditions: c.preconditions.into_iter().map(|tool| tool.value).collect(),
            keys,
            partition_key: c.partition_key.map(|template| template.value),
            as_of_field: c.as_of_field.map(|field| field.value),
            one_state: c.one_state,
            timeout: c.timeout,
            retry: c.retry.map(|retry| retry.value),
            is_final: c.is_final,
        }
    }

    /// Every name in a key is a parameter that calls can set.
    fn template(&mut self, template: &Spanned<KeyTemplate>, tool: &Name, parameters: &[Parameter]) {
        for name in template.value.parameters() {
            match parameters.iter().find(|parameter| parameter.name == *name) {
                None => {
                    let known: Vec<&str> = parameters.iter().map(|parameter| &*parameter.name).collect();
                    let message = format!("tool {:?} has no parameter {:?} for a key", &**tool, &**name);
                    self.reader.unknown(template.at, message, name, &known);
                }
                Some(parameter) if !parameter.is_visible() => {
                    let message = format!(
                        "{:?} is taken from the scope, which is the same for a whole set",
                        &**name
                    );
                    self.reader
                        .fault_with(template.at, message, "leave it out of the key");
                }
                Some(_) => {}
            }
        }
    }

    fn toolset(&mut self, toolset: document::Toolset, callable: &[Name]) -> Toolset {
        for tool in &toolset.tools {
            self.known(
                &format!("toolset {:?} names", &*toolset.name.value),
                "tool",
                tool,
                callable,
            );
        }
        Toolset {
            name: toolset.name.value,
            tools: toolset.tools.into_iter().map(|tool| tool.value).collect(),
        }
    }

    fn snapshot(&mut self, snapshot: document::Snapshot, tools: &[ToolConfig]) -> Option<SnapshotConfig> {
        let statements: Vec<Name> = tools.iter().map(|tool| Arc::clone(&tool.name)).collect();
        let who = format!("snapshot {:?} covers", &*snapshot.name.value);
        let place = self.reader.place(snapshot.name.at);
        let (mut covers, mut parameters): (Vec<Cover>, Vec<Parameter>) = (Vec::new(), Vec::new());
        let mut source: Option<Name> = None;
        for cover in snapshot.covers {
            if !self.known(&who, "tool", &cover.tool, &statements) {
                continue;
            }
            let Some(tool) = tools.iter().find(|tool| tool.name == cover.tool.value) else {
                continue;
            };
            if covers.iter().any(|known| known.tool == tool.name) {
                self.reader
                    .fault(cover.tool.at, format!("{who} {:?} twice", &*tool.name));
                continue;
            }
            if tool.effect() == Effect::Write {
                let message = format!("{who} {:?}, which is a write", &*tool.name);
                self.reader
                    .fault_with(cover.tool.at, message, "a snapshot only reads");
            }
            match &source {
                Some(source) if *source != tool.source => {
                    let message = format!(
                        "{who} tools of two sources, {:?} and {:?}",
                        &**source, &*tool.source
                    );
                    self.reader
                        .fault_with(cover.tool.at, message, "one view is of one source");
                }
                _ => source = Some(Arc::clone(&tool.source)),
            }
            let part = self.part(&cover, &covers);
            let arguments = self.arguments(&cover, tool, &mut parameters);
            covers.push(Cover {
                tool: Arc::clone(&tool.name),
                part,
                arguments,
            });
        }
        Some(SnapshotConfig {
            name: snapshot.name.value,
            description: snapshot.description,
            source: source?,
            covers,
            parameters,
            place,
        })
    }

    /// Where a covered tool's answer goes: one member of the snapshot's object.
    fn part(&mut self, cover: &document::Cover, others: &[Cover]) -> Option<String> {
        let part = match &cover.part {
            Some(part) => part.value.to_string(),
            None => format!("/{}", cover.tool.value),
        };
        let at = cover.part.as_ref().map_or(cover.tool.at, |part| part.at);
        let member = part
            .strip_prefix('/')
            .filter(|m| !m.is_empty() && !m.contains(['/', '~']));
        if member.is_none() {
            self.reader
                .fault_with(at, "a part is one member of the answer", "write /name");
        }
        if others.iter().any(|other| other.part.as_deref() == Some(&*part)) {
            self.reader
                .fault(at, format!("two covered tools have the part {part:?}"));
        }
        Some(part)
    }

    /// The covered tool's arguments by the snapshot's, which get their parameters from them.
    fn arguments(
        &mut self,
        cover: &document::Cover,
        tool: &ToolConfig,
        parameters: &mut Vec<Parameter>,
    ) -> Vec<(Name, Name)> {
        let visible = || tool.parameters.iter().filter(|parameter| parameter.is_visible());
        let pairs: Vec<_> = match &cover.arguments {
            Some(pairs) => pairs
                .iter()
                .map(|(theirs, ours)| (theirs.clone(), ours.clone()))
                .collect(),
            None => visible()
                .map(|parameter| Spanned {
                    value: Arc::clone(&parameter.name),
                    at: cover.tool.at,
                })
                .map(|name| (name.clone(), name))
                .collect(),
        };
        for parameter in visible().filter(|p| p.required && p.default.is_none()) {
            if !pairs.iter().any(|(theirs, _)| theirs.value == parameter.name) {
                let message = format!(
                    "tool {:?} needs {:?}, which the snapshot doesn't give it",
                    &*tool.name, &*parameter.name
                );
                self.reader.fault_with(
                    cover.tool.at,
                    message,
                    format!("add it to `arguments`: {0}: {0}", parameter.name),
                );
            }
        }
        let mut mapped = Vec::new();
        for (theirs, ours) in pairs {
            let Some(parameter) = visible().find(|parameter| parameter.name == theirs.value) else {
                let known: Vec<&str> = visible().map(|parameter| &*parameter.name).collect();
                let message = format!("tool {:?} has no argument {:?}", &*tool.name, &*theirs.value);
                self.reader.unknown(theirs.at, message, &theirs.value, &known);
                continue;
            };
            match parameters.iter_mut().find(|known| known.name == ours.value) {
                None => parameters.push(Parameter {
                    name: Arc::clone(&ours.value),
                    ..parameter.clone()
                }),
                Some(known) if known.schema()["type"] == parameter.schema()["type"] => {
                    // Required by one is required by the whole, since its answer would lack that part.
                    if parameter.required && parameter.default.is_none() {
                        (known.required, known.default) = (true, None);
                    }
                }
                Some(_) => {
                    let message = format!("{:?} is of another type in another covered tool", &*ours.value);
                    self.reader
                        .fault_with(ours.at, message, "give the two different names");
                }
            }
            mapped.push((theirs.value, ours.value));
        }
        mapped
    }

    fn settings(&mut self, policies: Vec<(super::yaml::At, document::Policy)>) -> Settings {
        let mut settings = Settings::default();
        let mut policies = policies.into_iter();
        let Some((first, policy)) = policies.next() else {
            return settings;
        };
        for (at, _) in policies {
            let place = self.reader.place(first);
            self.reader.fault_with(
                at,
                "there is already a policy",
                format!("the first is in {}:{}", place.file, place.line),
            );
        }
        let document::Policy {
            policy,
            max_concurrency,
            default_allowance,
            tolerance,
            max_rows,
            view_max,
            drain,
            minimum_purpose,
        } = policy;
        settings.max_concurrency = max_concurrency;
        settings.policy = policy.unwrap_or(settings.policy);
        settings.default_allowance = default_allowance.unwrap_or(settings.default_allowance);
        settings.tolerance = tolerance.unwrap_or(settings.tolerance);
        settings.max_rows = max_rows.unwrap_or(settings.max_rows);
        settings.view_max = view_max.unwrap_or(settings.view_max);
        settings.drain = drain.unwrap_or(settings.drain);
        settings.minimum_purpose = minimum_purpose.unwrap_or(settings.minimum_purpose);
        settings
    }
}

/// Names of columns that say when one row was changed: the newest of them says nothing about the rows that are missing.
fn looks_like_a_row_time(field: &str) -> bool {
    let plain: String = field
        .chars()
        .filter(char::is_ascii_alphanumeric)
        .collect::<String>()
        .to_ascii_lowercase();
    [
        "updated",
        "modified",
        "changed",
        "created",
        "edited",
        "mtime",
        "lastupdate",
        "lastmodif",
    ]
    .iter()
    .any(|word| plain.starts_with(word) || plain.starts_with(&format!("last{word}")))
}
