//! A tool's parameters, as they are written.

use std::sync::Arc;

use super::named;
use crate::config::fields::{Fields, Reader};
use crate::config::parameter::{Escape, Matcher, Parameter, ParameterKind, is_literal};
use crate::config::yaml::Node;

/// How deeply `items` may lie in each other.
const MAX_ITEMS_DEPTH: usize = 8;

/// A parameter; an item of an array has no name of its own.
pub(super) fn read(
    reader: &mut Reader<'_>,
    node: &Node,
    item_of: Option<&str>,
    depth: usize,
) -> Option<Parameter> {
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
            let items = read(reader, node, Some(name), depth + 1)?;
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
