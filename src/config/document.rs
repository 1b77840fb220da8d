//! Documents by kind: Toolbox's `source`, `tool` and `toolset`, and Coeval's own. What they say, not yet whether it
//! fits together.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use super::fields::{Fields, Reader, Spanned};
use super::yaml::{At, Key, Kind, Node, Scalar};

mod coordination;
mod parameter;
mod toolbox;

pub(super) use coordination::{Coordination, Cover, Dependency, Policy, Snapshot};
pub(super) use toolbox::{Source, Tool, Toolset};

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

/// A day: longer than anything that anybody waits for, and far from where clocks overflow.
const LONGEST_MS: u64 = 24 * 60 * 60 * 1000;
/// More calls at once than any database or API takes.
const MOST_CALLS: u64 = 100_000;

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
