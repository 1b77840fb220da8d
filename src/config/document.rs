//! Documents by kind: Toolbox's `source`, `tool` and `toolset`, and Coeval's own. What they say, not yet whether it
//! fits together.

use std::collections::HashSet;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use super::fields::{Fields, Reader, Spanned};
use super::key::KeyTemplate;
use super::parameter::{Escape, Matcher, Parameter, ParameterKind, is_literal};
use super::yaml::{At, Key, Kind, Node, Scalar};
use crate::call::Purpose;
use crate::plan::PolicyName;
use crate::tool::{Effect, RetryPolicy};

/// Everything that was declared and could be read.
#[derive(Default)]
pub(super) struct Declared {
    pub(super) sources: Vec<Source>,
    pub(super) tools: Vec<Tool>,
    pub(super) toolsets: Vec<Toolset>,
    pub(super) dependencies: Vec<Dependency>,
    pub(super) coordinations: Vec<Coordination>,
    pub(super) snapshots: Vec<Snapshot>,
    pub(super) policies: Vec<(At, Policy)>,
    /// Names that are declared but couldn't be read: who refers to them is not told that there is no such thing.
    pub(super) unreadable: HashSet<Arc<str>>,
}

pub(super) struct Source {
    pub(super) name: Spanned<Arc<str>>,
    pub(super) database: Arc<str>,
    pub(super) origin: Option<Arc<str>>,
    pub(super) time_zone: Option<Arc<str>>,
    pub(super) never_changes: bool,
    pub(super) all_writers_log: bool,
    pub(super) trusted: Vec<Arc<str>>,
}

pub(super) struct Tool {
    pub(super) name: Spanned<Arc<str>>,
    pub(super) description: Arc<str>,
    pub(super) source: Spanned<Arc<str>>,
    pub(super) statement: Spanned<Arc<str>>,
    pub(super) parameters: Vec<Spanned<Parameter>>,
    /// Whether its parameters could all be read: else nothing is said about its placeholders.
    pub(super) whole: bool,
    pub(super) read_only_hint: Option<Spanned<bool>>,
}

pub(super) struct Toolset {
    pub(super) name: Spanned<Arc<str>>,
    pub(super) tools: Vec<Spanned<Arc<str>>>,
}

pub(super) struct Dependency {
    pub(super) name: Spanned<Arc<str>>,
    pub(super) allowance: Option<usize>,
    pub(super) quota: Option<super::Quota>,
}

pub(super) struct Coordination {
    pub(super) tool: Spanned<Arc<str>>,
    pub(super) effect: Option<Spanned<Effect>>,
    pub(super) trusted: bool,
    pub(super) exclusive: bool,
    pub(super) dependency: Option<Spanned<Arc<str>>>,
    pub(super) output_fields: Option<Vec<Arc<str>>>,
    pub(super) preconditions: Vec<Spanned<Arc<str>>>,
    pub(super) reads: Vec<Spanned<KeyTemplate>>,
    pub(super) writes: Vec<Spanned<KeyTemplate>>,
    pub(super) partition_key: Option<Spanned<KeyTemplate>>,
    pub(super) as_of_field: Option<Spanned<Arc<str>>>,
    pub(super) one_state: bool,
    pub(super) timeout: Option<Duration>,
    pub(super) retry: Option<Spanned<RetryPolicy>>,
    pub(super) is_final: bool,
}

pub(super) struct Snapshot {
    pub(super) name: Spanned<Arc<str>>,
    pub(super) description: Arc<str>,
    pub(super) covers: Vec<Cover>,
}

pub(super) struct Cover {
    pub(super) tool: Spanned<Arc<str>>,
    pub(super) part: Option<Spanned<Arc<str>>>,
    /// The covered tool's argument, and the snapshot's. `None`: each under its own name.
    pub(super) arguments: Option<Vec<Mapped>>,
}

/// An argument of a covered tool, and the argument of the snapshot it comes from.
pub(super) type Mapped = (Spanned<Arc<str>>, Spanned<Arc<str>>);

#[derive(Default)]
pub(super) struct Policy {
    pub(super) policy: Option<PolicyName>,
    pub(super) max_concurrency: Option<usize>,
    pub(super) default_allowance: Option<usize>,
    pub(super) tolerance: Option<Duration>,
    pub(super) max_rows: Option<usize>,
    pub(super) view_max: Option<Duration>,
    pub(super) drain: Option<Duration>,
    pub(super) minimum_purpose: Option<Purpose>,
}

/// A day: longer than anything that anybody waits for, and far from where clocks overflow.
const LONGEST_MS: u64 = 24 * 60 * 60 * 1000;
/// More calls at once than any database or API takes.
const MOST_CALLS: u64 = 100_000;
/// How deeply `items` may lie in each other.
const MAX_ITEMS_DEPTH: usize = 8;

const KINDS: [&str; 7] = [
    "source",
    "tool",
    "toolset",
    "dependency",
    "coordination",
    "snapshot",
    "policy",
];
/// Kinds of Toolbox that come later.
const LATER_KINDS: [&str; 5] = [
    "prompt",
    "group",
    "embeddingModel",
    "resource",
    "resourceTemplate",
];
/// The keys of Toolbox's older form, and the kind each holds.
const NESTED: [(&str, &str); 7] = [
    ("sources", "source"),
    ("tools", "tool"),
    ("toolsets", "toolset"),
    ("authServices", "authService"),
    ("authSources", "authService"),
    ("embeddingModels", "embeddingModel"),
    ("prompts", "prompt"),
];

impl Declared {
    /// Reads one document, of whichever form.
    pub(super) fn read(&mut self, reader: &mut Reader<'_>, document: &Node) {
        let Kind::Map(entries) = &document.kind else {
            let message = format!(
                "a document must be a mapping with a `kind`, not {}",
                document.description()
            );
            reader.fault(document.at, message);
            return;
        };
        if entries.iter().any(|(key, _)| &*key.name == "kind") {
            self.read_flat(reader, document);
        } else if entries
            .iter()
            .any(|(key, _)| NESTED.iter().any(|(name, _)| *name == &*key.name))
        {
            for (key, value) in entries {
                self.read_nested(reader, key, value);
            }
        } else {
            let message = "the document has no `kind`";
            reader.fault_with(
                document.at,
                message,
                format!("say which it is: {}", KINDS.join(", ")),
            );
        }
    }

    fn read_flat(&mut self, reader: &mut Reader<'_>, document: &Node) {
        let Some(mut fields) = Fields::of(reader, document, "the document") else {
            return;
        };
        let Some(kind) = fields
            .require(reader, "kind")
            .and_then(|node| reader.text(node, "`kind`"))
        else {
            return;
        };
        let known = match &*kind.value {
            "source" => self.source(reader, fields),
            "tool" => self.tool(reader, fields),
            "toolset" => self.toolset(reader, fields),
            "dependency" => self.dependency(reader, fields),
            "coordination" => self.coordination(reader, fields),
            "snapshot" => self.snapshot(reader, fields),
            "policy" => self.policy(reader, fields),
            "authService" => {
                let help =
                    "check the caller's token in front of Coeval and put its claims into the set's `scope`";
                reader.warn(kind.at, "tokens are not checked here", help);
                Some(())
            }
            later if LATER_KINDS.contains(&later) => {
                let message = format!("not supported yet by this version: kind {later:?}");
                reader.fault_with(kind.at, message, "leave the document out");
                Some(())
            }
            other => {
                let plural = NESTED.iter().find(|(plural, _)| *plural == other);
                let message = format!("there is no kind {other:?}");
                match plural {
                    Some((_, singular)) => {
                        reader.fault_with(kind.at, message, format!("did you mean {singular:?}?"))
                    }
                    None => reader.unknown(kind.at, message, other, &KINDS),
                }
                Some(())
            }
        };
        if known.is_none()
            && let Some(name) = document.field("name")
        {
            self.unreadable.insert(name);
        }
    }

    /// Toolbox's older form: maps by name, in which `kind` is what `type` is now.
    fn read_nested(&mut self, reader: &mut Reader<'_>, key: &Key, value: &Node) {
        let Some((_, kind)) = NESTED.iter().find(|(name, _)| *name == &*key.name) else {
            let names: Vec<_> = NESTED.iter().map(|(name, _)| *name).collect();
            reader.unknown(
                key.at,
                format!("the document has no field {:?}", &*key.name),
                &key.name,
                &names,
            );
            return;
        };
        let Kind::Map(entries) = &value.kind else {
            reader.fault(
                value.at,
                format!(
                    "{:?} must be a mapping of names, not {}",
                    &*key.name,
                    value.description()
                ),
            );
            return;
        };
        for (name, entry) in entries {
            let mut fields = match (&entry.kind, *kind) {
                (Kind::Map(fields), _) => fields
                    .iter()
                    .map(|(key, value)| (renamed(key), value.clone()))
                    .collect(),
                (_, "toolset") => vec![(
                    Key {
                        name: "tools".into(),
                        at: name.at,
                    },
                    entry.clone(),
                )],
                _ => {
                    reader.fault(
                        entry.at,
                        format!(
                            "{kind} {:?} must be a mapping, not {}",
                            &*name.name,
                            entry.description()
                        ),
                    );
                    self.unreadable.insert(Arc::clone(&name.name));
                    continue;
                }
            };
            for (field, text) in [("name", &*name.name), ("kind", kind)] {
                let scalar = Scalar {
                    text: text.into(),
                    plain: false,
                };
                let key = Key {
                    name: field.into(),
                    at: name.at,
                };
                fields.push((
                    key,
                    Node {
                        at: name.at,
                        kind: Kind::Scalar(scalar),
                    },
                ));
            }
            self.read_flat(
                reader,
                &Node {
                    at: name.at,
                    kind: Kind::Map(fields),
                },
            );
        }
    }

    fn source(&mut self, reader: &mut Reader<'_>, mut fields: Fields<'_>) -> Option<()> {
        let name = named(reader, &mut fields, "source");
        let of = fields
            .require(reader, "type")
            .and_then(|node| reader.text(node, "`type`"))?;
        if &*of.value != "sqlite" {
            not_yet(
                reader,
                &of,
                "source",
                "this version reads SQLite files: `type: sqlite`",
            );
            return None;
        }
        let database = fields
            .require(reader, "database")
            .and_then(|node| reader.text(node, "`database`"));
        if let Some(node) = fields.take("sqlCommenter") {
            reader.boolean(node, "`sqlCommenter`");
        }
        let text = |reader: &mut Reader<'_>, node: Option<&Node>, what: &str| {
            node.and_then(|node| reader.text(node, what))
                .map(|text| text.value)
        };
        let origin = fields.take("origin");
        let origin = text(reader, origin, "`origin`");
        let time_zone = fields.take("timeZone");
        let time_zone = text(reader, time_zone, "`timeZone`");
        let never_changes = flag(reader, &mut fields, "neverChanges");
        let all_writers_log = flag(reader, &mut fields, "allWritersLog");
        let trusted = fields
            .take("trusted")
            .map_or_else(Vec::new, |node| values(reader.texts(node, "`trusted`")));
        fields.finish(reader);
        let (name, database) = (name?, database?.value);
        self.sources.push(Source {
            name,
            database,
            origin,
            time_zone,
            never_changes,
            all_writers_log,
            trusted,
        });
        Some(())
    }

    fn tool(&mut self, reader: &mut Reader<'_>, mut fields: Fields<'_>) -> Option<()> {
        let name = named(reader, &mut fields, "tool");
        let of = fields
            .require(reader, "type")
            .and_then(|node| reader.text(node, "`type`"))?;
        if &*of.value != "sqlite-sql" {
            not_yet(
                reader,
                &of,
                "tool",
                "this version runs statements on SQLite: `type: sqlite-sql`",
            );
            return None;
        }
        let description = fields
            .require(reader, "description")
            .and_then(|node| reader.text(node, "`description`"));
        let source = fields
            .require(reader, "source")
            .and_then(|node| reader.name(node, "`source`"));
        let statement = fields
            .require(reader, "statement")
            .and_then(|node| reader.text(node, "`statement`"));
        let (mut parameters, mut whole): (Vec<Spanned<Parameter>>, _) = (Vec::new(), true);
        if let Some(node) = fields.take("parameters") {
            // An empty list is what generated files say when there are none.
            let empty = matches!(&node.kind, Kind::List(items) if items.is_empty());
            let items = if empty {
                Some(&[][..])
            } else {
                reader.items(node, "`parameters`")
            };
            whole = items.is_some();
            for item in items.unwrap_or_default() {
                match parameter(reader, item, None, 0) {
                    Some(parameter) if parameters.iter().any(|p| p.value.name == parameter.name) => {
                        reader.fault(
                            item.at,
                            format!("there are two parameters {:?}", &*parameter.name),
                        );
                        whole = false;
                    }
                    Some(value) => parameters.push(Spanned { value, at: item.at }),
                    None => whole = false,
                }
            }
        }
        let mut read_only_hint = None;
        if let Some(node) = fields.take("annotations")
            && let Some(mut hints) = Fields::of(reader, node, "annotations")
        {
            read_only_hint = hints
                .take("readOnlyHint")
                .and_then(|node| reader.boolean(node, "`readOnlyHint`"));
            for hint in ["destructiveHint", "idempotentHint", "openWorldHint"] {
                flag(reader, &mut hints, hint);
            }
            hints.finish(reader);
        }
        fields.unsupported(
            reader,
            &[
                ("templateParameters", "write the statement out, with parameters"),
                ("authRequired", "check the caller's token in front of Coeval"),
                ("scopesRequired", "check the caller's token in front of Coeval"),
                ("ui", "leave it out"),
            ],
        );
        fields.finish(reader);
        let (name, description, source) = (name?, description?.value, source?);
        let statement = statement?;
        self.tools.push(Tool {
            name,
            description,
            source,
            statement,
            parameters,
            whole,
            read_only_hint,
        });
        Some(())
    }

    fn toolset(&mut self, reader: &mut Reader<'_>, mut fields: Fields<'_>) -> Option<()> {
        let name = named(reader, &mut fields, "toolset");
        let tools = fields
            .require(reader, "tools")
            .map(|node| reader.texts(node, "`tools`"));
        fields.finish(reader);
        self.toolsets.push(Toolset {
            name: name?,
            tools: tools?,
        });
        Some(())
    }

    fn dependency(&mut self, reader: &mut Reader<'_>, mut fields: Fields<'_>) -> Option<()> {
        let name = named(reader, &mut fields, "dependency");
        let allowance = count(reader, &mut fields, "allowance");
        let quota = fields.take("quota").and_then(|node| quota(reader, node));
        fields.finish(reader);
        self.dependencies.push(Dependency {
            name: name?,
            allowance,
            quota,
        });
        Some(())
    }

    fn coordination(&mut self, reader: &mut Reader<'_>, mut fields: Fields<'_>) -> Option<()> {
        let tool = fields
            .require(reader, "tool")
            .and_then(|node| reader.name(node, "`tool`"));
        fields.owner = tool.as_ref().map_or("coordination".into(), |tool| {
            format!("coordination of {:?}", &*tool.value)
        });
        let effects = [("read", Effect::Read), ("write", Effect::Write)];
        let effect = fields
            .take("effect")
            .and_then(|node| reader.choice(node, "`effect`", &effects));
        let trusted = flag(reader, &mut fields, "trusted");
        let exclusive = flag(reader, &mut fields, "exclusive");
        let dependency = fields
            .take("dependency")
            .and_then(|node| reader.name(node, "`dependency`"));
        let output_fields = fields
            .take("outputFields")
            .map(|node| values(reader.texts(node, "`outputFields`")));
        let preconditions = fields
            .take("preconditions")
            .map_or_else(Vec::new, |node| reader.texts(node, "`preconditions`"));
        let (mut reads, mut writes) = (Vec::new(), Vec::new());
        if let Some(node) = fields.take("key")
            && let Some(mut key) = Fields::of(reader, node, "key")
        {
            for (name, list) in [("reads", &mut reads), ("writes", &mut writes)] {
                if let Some(node) = key.take(name) {
                    let texts = reader.texts(node, &format!("`{name}`"));
                    list.extend(texts.into_iter().filter_map(|text| template(reader, text)));
                }
            }
            key.finish(reader);
        }
        let partition_key = fields
            .take("partitionKey")
            .and_then(|node| reader.text(node, "`partitionKey`"));
        let partition_key = partition_key.and_then(|text| template(reader, text));
        let mut as_of_field = None;
        if let Some(node) = fields.take("asOf")
            && let Some(mut as_of) = Fields::of(reader, node, "asOf")
        {
            as_of_field = as_of
                .require(reader, "field")
                .and_then(|node| reader.text(node, "`field`"));
            as_of.finish(reader);
        }
        let one_state = flag(reader, &mut fields, "oneState");
        let timeout = millis(reader, &mut fields, "timeoutMs", 1);
        let retry = fields.take("retry").and_then(|node| retry(reader, node));
        let is_final = flag(reader, &mut fields, "final");
        fields.finish(reader);
        self.coordinations.push(Coordination {
            tool: tool?,
            effect,
            trusted,
            exclusive,
            dependency,
            output_fields,
            preconditions,
            reads,
            writes,
            partition_key,
            as_of_field,
            one_state,
            timeout,
            retry,
            is_final,
        });
        Some(())
    }

    fn snapshot(&mut self, reader: &mut Reader<'_>, mut fields: Fields<'_>) -> Option<()> {
        let name = named(reader, &mut fields, "snapshot");
        let description = fields
            .require(reader, "description")
            .and_then(|node| reader.text(node, "`description`"));
        let covers = fields
            .require(reader, "covers")
            .and_then(|node| reader.items(node, "`covers`"));
        let covers = covers.map(|items| items.iter().filter_map(|item| cover(reader, item)).collect());
        fields.finish(reader);
        self.snapshots.push(Snapshot {
            name: name?,
            description: description?.value,
            covers: covers?,
        });
        Some(())
    }

    fn policy(&mut self, reader: &mut Reader<'_>, mut fields: Fields<'_>) -> Option<()> {
        fields.owner = "policy".to_owned();
        let policies = [
            ("standard", PolicyName::Standard),
            ("atlas", PolicyName::Atlas),
            ("harness", PolicyName::Harness),
            ("go", PolicyName::Go),
            ("loopctl", PolicyName::Loopctl),
        ];
        let purposes = [("report", Purpose::Report), ("compare", Purpose::Compare)];
        let policy = Policy {
            policy: fields
                .take("policy")
                .and_then(|node| Some(reader.choice(node, "`policy`", &policies)?.value)),
            max_concurrency: count(reader, &mut fields, "maxConcurrency"),
            default_allowance: count(reader, &mut fields, "defaultAllowance"),
            tolerance: millis(reader, &mut fields, "toleranceMs", 0),
            max_rows: count(reader, &mut fields, "maxRows"),
            view_max: millis(reader, &mut fields, "viewMaxMs", 1),
            drain: millis(reader, &mut fields, "drainMs", 0),
            minimum_purpose: fields
                .take("minimumPurpose")
                .and_then(|node| Some(reader.choice(node, "`minimumPurpose`", &purposes)?.value)),
        };
        let at = fields.at;
        fields.finish(reader);
        self.policies.push((at, policy));
        Some(())
    }
}

impl Node {
    /// The text of a field, as it is written.
    fn field(&self, name: &str) -> Option<Arc<str>> {
        let Kind::Map(entries) = &self.kind else {
            return None;
        };
        let (_, value) = entries.iter().find(|(key, _)| &*key.name == name)?;
        match &value.kind {
            Kind::Scalar(scalar) => Some(Arc::clone(&scalar.text)),
            _ => None,
        }
    }
}

/// A key of the older form as it is called now.
fn renamed(key: &Key) -> Key {
    let name = if &*key.name == "kind" {
        "type".into()
    } else {
        Arc::clone(&key.name)
    };
    Key { name, at: key.at }
}

fn named(reader: &mut Reader<'_>, fields: &mut Fields<'_>, kind: &str) -> Option<Spanned<Arc<str>>> {
    fields.owner = kind.to_owned();
    let name = fields
        .require(reader, "name")
        .and_then(|node| reader.name(node, "`name`"))?;
    fields.owner = format!("{kind} {:?}", &*name.value);
    Some(name)
}

fn values<T>(spanned: Vec<Spanned<T>>) -> Vec<T> {
    spanned.into_iter().map(|spanned| spanned.value).collect()
}

fn flag(reader: &mut Reader<'_>, fields: &mut Fields<'_>, name: &'static str) -> bool {
    let node = fields.take(name);
    node.and_then(|node| reader.boolean(node, &format!("`{name}`")))
        .is_some_and(|flag| flag.value)
}

fn count(reader: &mut Reader<'_>, fields: &mut Fields<'_>, name: &'static str) -> Option<usize> {
    let count = reader.count(fields.take(name)?, &format!("`{name}`"), 1, MOST_CALLS)?;
    usize::try_from(count).ok()
}

fn millis(
    reader: &mut Reader<'_>,
    fields: &mut Fields<'_>,
    name: &'static str,
    least: u64,
) -> Option<Duration> {
    reader
        .count(fields.take(name)?, &format!("`{name}`"), least, LONGEST_MS)
        .map(Duration::from_millis)
}

/// A type of Toolbox's that comes later, or no type at all.
fn not_yet(reader: &mut Reader<'_>, of: &Spanned<Arc<str>>, what: &str, help: &str) {
    let name = &*of.value;
    let known = if what == "source" { "sqlite" } else { "sqlite-sql" };
    if crate::spelling::nearest(name, [known]).is_some() {
        reader.fault_with(
            of.at,
            format!("there is no {what} type {name:?}"),
            format!("did you mean {known:?}?"),
        );
    } else {
        reader.fault_with(
            of.at,
            format!("not supported yet by this version: {what} type {name:?}"),
            help,
        );
    }
}

fn template(reader: &mut Reader<'_>, text: Spanned<Arc<str>>) -> Option<Spanned<KeyTemplate>> {
    match KeyTemplate::parse(&text.value) {
        Ok(value) => Some(Spanned { value, at: text.at }),
        Err(why) => {
            reader.fault_with(text.at, why, "write {parameter}, and {{ for a brace");
            None
        }
    }
}

fn quota(reader: &mut Reader<'_>, node: &Node) -> Option<super::Quota> {
    let mut fields = Fields::of(reader, node, "quota")?;
    let calls = |reader: &mut Reader<'_>, node: &Node, what: &str| {
        let count = reader.count(node, what, 1, u64::from(u32::MAX))?;
        u32::try_from(count).ok().and_then(NonZeroU32::new)
    };
    let limit = fields
        .require(reader, "limit")
        .and_then(|node| calls(reader, node, "`limit`"));
    let units = [("second", 1), ("minute", 60), ("hour", 3_600), ("day", 86_400)];
    let per = fields
        .require(reader, "per")
        .and_then(|node| reader.choice(node, "`per`", &units));
    let burst = match fields.take("burst") {
        Some(node) => calls(reader, node, "`burst`"),
        None => Some(NonZeroU32::MIN),
    };
    fields.finish(reader);
    Some(super::Quota {
        limit: limit?,
        per: Duration::from_secs(per?.value),
        burst: burst?,
    })
}

fn retry(reader: &mut Reader<'_>, node: &Node) -> Option<Spanned<RetryPolicy>> {
    let mut fields = Fields::of(reader, node, "retry")?;
    let attempts = fields.require(reader, "attempts");
    let attempts = attempts.and_then(|node| reader.count(node, "`attempts`", 1, 100));
    let backoff = fields.require(reader, "backoffMs");
    let backoff = backoff.and_then(|node| reader.count(node, "`backoffMs`", 0, LONGEST_MS));
    fields.finish(reader);
    let attempts = u32::try_from(attempts?).ok().and_then(NonZeroU32::new)?;
    Some(Spanned {
        value: RetryPolicy {
            attempts,
            backoff: Duration::from_millis(backoff?),
        },
        at: node.at,
    })
}

fn cover(reader: &mut Reader<'_>, node: &Node) -> Option<Cover> {
    let mut fields = Fields::of(reader, node, "an item of covers")?;
    let tool = fields
        .require(reader, "tool")
        .and_then(|node| reader.name(node, "`tool`"));
    let part = fields.take("part").and_then(|node| reader.text(node, "`part`"));
    let arguments = fields.take("arguments").and_then(|node| match &node.kind {
        Kind::Map(entries) => {
            let pair = |(key, value): &(Key, Node)| {
                let theirs = Spanned {
                    value: Arc::clone(&key.name),
                    at: key.at,
                };
                Some((theirs, reader.name(value, "an argument of the snapshot")?))
            };
            entries.iter().map(pair).collect::<Option<Vec<_>>>()
        }
        _ => {
            let message = format!(
                "`arguments` must map the covered tool's arguments to the snapshot's, not {}",
                node.description()
            );
            reader.fault(node.at, message);
            None
        }
    });
    fields.finish(reader);
    Some(Cover {
        tool: tool?,
        part,
        arguments,
    })
}

/// A parameter; an item of an array has no name of its own.
fn parameter(reader: &mut Reader<'_>, node: &Node, item_of: Option<&str>, depth: usize) -> Option<Parameter> {
    let mut fields = Fields::of(reader, node, "parameter")?;
    let name: Arc<str> = match item_of {
        None => named(reader, &mut fields, "parameter")?.value,
        Some(array) => {
            // Toolbox wants items to have names too; nobody sees them. An item that is there is never missing.
            for idle in ["name", "required", "default"] {
                fields.take(idle);
            }
            fields.owner = format!("parameter {array:?}'s items");
            array.into()
        }
    };
    let scope = fields
        .take("fromScope")
        .and_then(|node| reader.text(node, "`fromScope`"));
    let mut from_scope: Vec<Arc<str>> = scope.into_iter().map(|scope| scope.value).collect();
    if let Some(node) = fields.take("authServices") {
        for item in reader.items(node, "`authServices`").unwrap_or_default() {
            let Some(mut service) = Fields::of(reader, item, "an item of authServices") else {
                continue;
            };
            service.require(reader, "name");
            from_scope.extend(
                service
                    .require(reader, "field")
                    .and_then(|node| reader.text(node, "`field`"))
                    .map(|text| text.value),
            );
            service.finish(reader);
        }
    }
    let wants_description = from_scope.is_empty() && item_of.is_none();
    let described = if wants_description {
        fields.require(reader, "description")
    } else {
        fields.take("description")
    };
    let description = described.and_then(|node| reader.text(node, "`description`"));
    let kind = parameter_kind(reader, &mut fields, &name, depth);
    let required = fields
        .take("required")
        .and_then(|node| reader.boolean(node, "`required`"));
    let default = if item_of.is_some() {
        None
    } else {
        fields.take("default")
    };
    let allowed = matchers(reader, &mut fields, "allowedValues", Matcher::allowed);
    let excluded = matchers(reader, &mut fields, "excludedValues", Matcher::excluded);
    fields.unsupported(
        reader,
        &[
            (
                "valueFromParam",
                "use the other parameter's number in the statement once more",
            ),
            ("embeddedBy", "leave it out"),
            ("secure", "bind it to the scope with `fromScope`"),
        ],
    );
    fields.finish(reader);
    let mut parameter = Parameter::new(name, kind?);
    parameter.description = description.map_or_else(String::new, |text| text.value.to_string());
    parameter.required = required.is_none_or(|required| required.value);
    (parameter.allowed, parameter.excluded, parameter.from_scope) = (allowed, excluded, from_scope);
    if let Some(node) = default
        && let Some(value) = reader.json(node, "`default`")
    {
        let what = format!("the default of {:?}", &*parameter.name);
        if !parameter.is_visible() {
            reader.fault_with(
                node.at,
                format!("{what} would stand in for the caller's own"),
                "leave it out",
            );
        } else {
            match parameter.fit(&value, &parameter.name) {
                Ok(value) => parameter.default = Some(value),
                Err(misfit) => reader.fault(node.at, format!("{what} {}", misfit.why)),
            }
        }
    }
    Some(parameter)
}

/// The types by their names.
#[derive(Clone, Copy)]
enum Type {
    String,
    Integer,
    Float,
    Boolean,
    Array,
    Map,
}

const TYPES: [(&str, Type); 6] = [
    ("string", Type::String),
    ("integer", Type::Integer),
    ("float", Type::Float),
    ("boolean", Type::Boolean),
    ("array", Type::Array),
    ("map", Type::Map),
];

fn parameter_kind(
    reader: &mut Reader<'_>,
    fields: &mut Fields<'_>,
    name: &str,
    depth: usize,
) -> Option<ParameterKind> {
    let node = fields.require(reader, "type")?;
    match reader.choice(node, "`type`", &TYPES)?.value {
        Type::String => {
            let delimiters = [
                ("single-quotes", Escape::SingleQuotes),
                ("double-quotes", Escape::DoubleQuotes),
                ("backticks", Escape::Backticks),
                ("square-brackets", Escape::SquareBrackets),
            ];
            let escape = fields
                .take("escape")
                .and_then(|node| reader.choice(node, "`escape`", &delimiters));
            if let Some(escape) = &escape {
                let message = "the delimiters become part of the value, since it is bound and not pasted";
                reader.warn(escape.at, message, "a bound value needs none");
            }
            Some(ParameterKind::String {
                escape: escape.map(|escape| escape.value),
            })
        }
        Type::Integer => {
            let (min, max) = limits(reader, fields, |value| value.as_i64(), "a whole number")?;
            Some(ParameterKind::Integer { min, max })
        }
        Type::Float => {
            let (min, max) = limits(reader, fields, |value| value.as_f64(), "a number")?;
            Some(ParameterKind::Float { min, max })
        }
        Type::Boolean => Some(ParameterKind::Boolean),
        Type::Array => {
            let node = fields.require(reader, "items")?;
            if depth == MAX_ITEMS_DEPTH {
                reader.fault(
                    node.at,
                    format!("arrays can lie in each other {MAX_ITEMS_DEPTH} deep"),
                );
                return None;
            }
            let items = parameter(reader, node, Some(name), depth + 1)?;
            if !items.is_visible() {
                reader.fault(node.at, "items can't be taken from the scope".to_owned());
            }
            Some(ParameterKind::Array {
                items: Box::new(items),
            })
        }
        Type::Map => {
            let Some(node) = fields.take("valueType") else {
                return Some(ParameterKind::Map { values: None });
            };
            // The first four: what lies in a map can't hold more.
            let kind = match reader.choice(node, "`valueType`", &TYPES[..4])?.value {
                Type::Integer => ParameterKind::Integer { min: None, max: None },
                Type::Float => ParameterKind::Float { min: None, max: None },
                Type::Boolean => ParameterKind::Boolean,
                _ => ParameterKind::String { escape: None },
            };
            Some(ParameterKind::Map {
                values: Some(Box::new(Parameter::new(name, kind))),
            })
        }
    }
}

fn limits<T: PartialOrd>(
    reader: &mut Reader<'_>,
    fields: &mut Fields<'_>,
    read: impl Fn(&serde_json::Value) -> Option<T>,
    wanted: &str,
) -> Option<(Option<T>, Option<T>)> {
    let mut limit = |name| {
        let Some(node) = fields.take(name) else {
            return Some(None);
        };
        let value = reader.json(node, &format!("`{name}`"))?;
        let read = read(&value);
        if read.is_none() {
            reader.fault(node.at, format!("`{name}` needs {wanted}"));
        }
        Some(Some((read?, node.at)))
    };
    let (min, max) = (limit("minValue"), limit("maxValue"));
    let (min, max) = (min?, max?);
    if let (Some((min, _)), Some((max, at))) = (&min, &max)
        && min > max
    {
        reader.fault(*at, "`maxValue` is less than `minValue`: nothing fits".to_owned());
    }
    Some((min.map(|(value, _)| value), max.map(|(value, _)| value)))
}

fn matchers(
    reader: &mut Reader<'_>,
    fields: &mut Fields<'_>,
    name: &'static str,
    matcher: fn(serde_json::Value) -> Matcher,
) -> Vec<Matcher> {
    let Some(node) = fields.take(name) else {
        return Vec::new();
    };
    let items = reader.items(node, &format!("`{name}`")).unwrap_or_default();
    let mut matchers = Vec::new();
    for item in items {
        let Some(value) = reader.json(item, &format!("`{name}`")) else {
            continue;
        };
        if let (serde_json::Value::String(text), "allowedValues") = (&value, name)
            && !is_literal(text)
            && !(text.starts_with('^') && text.ends_with('$'))
            && regex::Regex::new(text).is_ok()
        {
            let message = "the pattern must match the whole text here, not just a part of it";
            reader.warn(
                item.at,
                message,
                "put ^ before it and $ after it if that is meant",
            );
        }
        matchers.push(matcher(value));
    }
    matchers
}
