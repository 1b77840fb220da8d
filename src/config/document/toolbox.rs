//! Toolbox's `source`, `tool` and `toolset`.

use std::sync::Arc;

use super::{Declared, flag, named, parameter, values};
use crate::config::fields::{Fields, Reader, Spanned};
use crate::config::parameter::Parameter;
use crate::config::yaml::{Kind, Node};

pub(in crate::config) struct Source {
    pub(in crate::config) name: Spanned<Arc<str>>,
    pub(in crate::config) database: Arc<str>,
    pub(in crate::config) origin: Option<Arc<str>>,
    pub(in crate::config) time_zone: Option<Arc<str>>,
    pub(in crate::config) never_changes: bool,
    pub(in crate::config) all_writers_log: bool,
    pub(in crate::config) trusted: Vec<Arc<str>>,
}

pub(in crate::config) struct Tool {
    pub(in crate::config) name: Spanned<Arc<str>>,
    pub(in crate::config) description: Arc<str>,
    pub(in crate::config) source: Spanned<Arc<str>>,
    pub(in crate::config) statement: Spanned<Arc<str>>,
    pub(in crate::config) parameters: Vec<Spanned<Parameter>>,
    /// Whether its parameters could all be read: else nothing is said about its placeholders.
    pub(in crate::config) whole: bool,
    pub(in crate::config) read_only_hint: Option<Spanned<bool>>,
}

pub(in crate::config) struct Toolset {
    pub(in crate::config) name: Spanned<Arc<str>>,
    pub(in crate::config) tools: Vec<Spanned<Arc<str>>>,
}

impl Declared {
    pub(super) fn source(&mut self, reader: &mut Reader<'_>, mut fields: Fields<'_>) -> Option<()> {
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
        let origin = extra(reader, &mut fields, "origin", |reader, node| {
            reader.text(node, "`origin`")
        });
        let time_zone = extra(reader, &mut fields, "timeZone", |reader, node| {
            reader.text(node, "`timeZone`")
        });
        let flag = |name: &'static str| {
            move |reader: &mut Reader<'_>, node: &Node| reader.boolean(node, &format!("`{name}`"))
        };
        let never_changes = extra(reader, &mut fields, "neverChanges", flag("neverChanges"));
        let all_writers_log = extra(reader, &mut fields, "allWritersLog", flag("allWritersLog"));
        let trusted = extra(reader, &mut fields, "trusted", |reader, node| {
            Some(reader.texts(node, "`trusted`"))
        });
        fields.finish(reader);
        let (name, database) = (name?, database?.value);
        self.sources.push(Source {
            name,
            database,
            origin: origin.map(|origin| origin.value),
            time_zone: time_zone.map(|zone| zone.value),
            never_changes: never_changes.is_some_and(|flag| flag.value),
            all_writers_log: all_writers_log.is_some_and(|flag| flag.value),
            trusted: values(trusted.unwrap_or_default()),
        });
        Some(())
    }

    pub(super) fn tool(&mut self, reader: &mut Reader<'_>, mut fields: Fields<'_>) -> Option<()> {
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
                match parameter::read(reader, item, None, 0) {
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
        // A statement that is still a template is none yet.
        whole &= !fields.has("templateParameters");
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

    pub(super) fn toolset(&mut self, reader: &mut Reader<'_>, mut fields: Fields<'_>) -> Option<()> {
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
}

/// A source's own extra. It is read, so that a file can say it already.
fn extra<T>(
    reader: &mut Reader<'_>,
    fields: &mut Fields<'_>,
    name: &'static str,
    read: impl FnOnce(&mut Reader<'_>, &Node) -> Option<T>,
) -> Option<T> {
    let node = fields.take(name)?;
    let message = format!("`{name}` is not used yet by this version");
    reader.warn(node.at, message, "it changes nothing for a SQLite source");
    read(reader, node)
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
