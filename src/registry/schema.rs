//! The JSON Schema of a tool's arguments: compiled once, asked for every call, told in a line when it says no.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::{self, Write as _};
use std::sync::Arc;

use boon::{Compiler, SchemaIndex, Schemas, ValidationError};
use foldhash::fast::RandomState;
use serde_json::{Map, Value};

use crate::tool::ArgumentMap;

/// Where a schema is known to its own references.
const LOCATION: &str = "mem://arguments";

/// How many properties a hint names, and how deep a schema is searched for lists of values.
const HINT_PROPERTIES: usize = 20;
const SEARCH_DEPTH: usize = 8;

/// What is said about one fault, at most, in characters.
const FAULT_LENGTH: usize = 300;

/// A tool's compiled schema.
pub(super) struct ArgumentSchema {
    check: Check,
    hint: String,
    /// Parameters whose values are a closed list.
    pub(super) filters: Arc<[Arc<str>]>,
}

enum Check {
    /// Nothing can be wrong.
    Anything,
    /// The top level is checked here and each property by its own schema: the arguments are a map, and the validator
    /// wants values, so that handing it the whole would mean copying all of them for each call.
    Properties {
        schemas: Schemas,
        properties: std::collections::HashMap<Arc<str>, SchemaIndex, RandomState>,
        required: Vec<Arc<str>>,
        closed: bool,
    },
    /// The top level says more than that.
    Whole { schemas: Schemas, index: SchemaIndex },
}

impl fmt::Debug for ArgumentSchema {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ArgumentSchema")
            .field("hint", &self.hint)
            .finish_non_exhaustive()
    }
}

/// Why a schema can't be used.
pub(super) enum SchemaFault {
    NotObject(String),
    Bad(String),
}

/// Remote references are never fetched: a schema is complete in itself.
struct Nowhere;

impl boon::UrlLoader for Nowhere {
    fn load(&self, url: &str) -> Result<Value, Box<dyn std::error::Error>> {
        Err(format!("references to other documents are not followed ({url})").into())
    }
}

impl ArgumentSchema {
    /// Takes any object.
    pub(super) fn anything() -> Self {
        Self {
            check: Check::Anything,
            hint: "any object".into(),
            filters: Arc::from([]),
        }
    }

    pub(super) fn compile(schema: &Value) -> Result<Self, SchemaFault> {
        let Some(top) = schema.as_object() else {
            return Err(SchemaFault::NotObject(schema.to_string()));
        };
        match top.get("type") {
            Some(Value::String(kind)) if kind == "object" => {}
            Some(other) => return Err(SchemaFault::NotObject(other.to_string())),
            None => return Err(SchemaFault::NotObject("no type".into())),
        }
        let mut schemas = Schemas::new();
        let mut compiler = Compiler::new();
        compiler.use_loader(Box::new(Nowhere));
        let bad = |error: boon::CompileError| SchemaFault::Bad(format!("{error:#}"));
        compiler.add_resource(LOCATION, schema.clone()).map_err(bad)?;
        let index = compiler.compile(LOCATION, &mut schemas).map_err(bad)?;
        let check = match flat(top) {
            None => Check::Whole { schemas, index },
            Some(flat) if flat.properties.is_empty() && flat.required.is_empty() && !flat.closed => {
                Check::Anything
            }
            Some(flat) => {
                let mut properties = std::collections::HashMap::default();
                for name in flat.properties {
                    let pointer = name.replace('~', "~0").replace('/', "~1");
                    let location = format!("{LOCATION}#/properties/{}", percent_encoded(&pointer));
                    let index = compiler.compile(&location, &mut schemas).map_err(bad)?;
                    properties.insert(Arc::from(name.as_str()), index);
                }
                Check::Properties {
                    schemas,
                    properties,
                    required: flat.required,
                    closed: flat.closed,
                }
            }
        };
        Ok(Self {
            check,
            hint: hint(top),
            filters: filters(schema),
        })
    }

    /// Whether the schema has a property of this name, if it lists them at all.
    pub(super) fn has(schema: &Value, name: &str) -> bool {
        schema
            .get("properties")
            .and_then(Value::as_object)
            .is_none_or(|properties| properties.contains_key(name))
    }

    /// What the arguments may be, in a line.
    pub(super) fn hint(&self) -> &str {
        &self.hint
    }

    /// The first fault, with its JSON pointer.
    pub(super) fn fault(&self, arguments: &ArgumentMap) -> Option<String> {
        match &self.check {
            Check::Anything => None,
            Check::Whole { schemas, index } => {
                let whole = Value::Object(arguments.clone());
                schemas
                    .validate(&whole, *index)
                    .err()
                    .map(|error| told("", &error))
            }
            Check::Properties {
                schemas,
                properties,
                required,
                closed,
            } => {
                for (name, value) in arguments {
                    match properties.get(name.as_str()) {
                        Some(index) => {
                            if let Err(error) = schemas.validate(value, *index) {
                                return Some(told(
                                    &format!("/{}", name.replace('~', "~0").replace('/', "~1")),
                                    &error,
                                ));
                            }
                        }
                        None if *closed => return Some(format!("{name:?} is no argument of it")),
                        None => {}
                    }
                }
                let missing = required.iter().find(|name| !arguments.contains_key(&***name))?;
                Some(format!("{missing:?} is missing"))
            }
        }
    }
}

struct Flat<'a> {
    properties: Vec<&'a String>,
    required: Vec<Arc<str>>,
    closed: bool,
}

/// The top level of a schema, if it constrains nothing but its properties.
fn flat(top: &Map<String, Value>) -> Option<Flat<'_>> {
    const SILENT: [&str; 11] = [
        "type",
        "title",
        "description",
        "default",
        "examples",
        "$schema",
        "$defs",
        "definitions",
        "$comment",
        "readOnly",
        "writeOnly",
    ];
    let mut flat = Flat {
        properties: Vec::new(),
        required: Vec::new(),
        closed: false,
    };
    for (keyword, value) in top {
        match keyword.as_str() {
            "properties" => flat.properties = value.as_object()?.keys().collect(),
            "required" => {
                let names = value.as_array()?;
                flat.required = names
                    .iter()
                    .map(|name| name.as_str().map(Arc::from))
                    .collect::<Option<_>>()?;
            }
            "additionalProperties" => flat.closed = !value.as_bool()?,
            silent if SILENT.contains(&silent) => {}
            // Unknown extensions say nothing to a validator; everything else may.
            extension if extension.starts_with("x-") => {}
            _ => return None,
        }
    }
    Some(flat)
}

fn percent_encoded(pointer: &str) -> String {
    let mut encoded = String::with_capacity(pointer.len());
    for byte in pointer.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' | b'/' => {
                encoded.push(byte.into())
            }
            _ => {
                let _ = write!(encoded, "%{byte:02X}");
            }
        }
    }
    encoded
}

/// The deepest first cause: the one that names a value and not just a group of rules.
fn told(prefix: &str, error: &ValidationError<'_, '_>) -> String {
    let mut leaf = error;
    while let Some(cause) = leaf.causes.first() {
        leaf = cause;
    }
    let place = format!("{prefix}{}", leaf.instance_location);
    let text = if place.is_empty() {
        leaf.kind.to_string()
    } else {
        format!("at {place}: {}", leaf.kind)
    };
    shortened(text)
}

fn shortened(text: String) -> String {
    match text.char_indices().nth(FAULT_LENGTH) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text,
    }
}

/// `account_id (string, required), limit (integer)`.
fn hint(top: &Map<String, Value>) -> String {
    let Some(properties) = top
        .get("properties")
        .and_then(Value::as_object)
        .filter(|map| !map.is_empty())
    else {
        return "any object".into();
    };
    let required: Vec<&str> = top
        .get("required")
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .collect();
    let mut text = String::new();
    for (index, (name, property)) in properties.iter().enumerate() {
        if index == HINT_PROPERTIES {
            let _ = write!(text, " and {} more", properties.len() - index);
            break;
        }
        if index > 0 {
            text.push_str(", ");
        }
        text.push_str(name);
        let kind = match property.get("type") {
            Some(Value::String(kind)) => Some(kind.clone()),
            Some(Value::Array(kinds)) => Some(
                kinds
                    .iter()
                    .filter_map(Value::as_str)
                    .collect::<Vec<_>>()
                    .join(" or "),
            ),
            _ => None,
        };
        let is_required = required.contains(&name.as_str());
        match (kind, is_required) {
            (Some(kind), true) => drop(write!(text, " ({kind}, required)")),
            (Some(kind), false) => drop(write!(text, " ({kind})")),
            (None, true) => text.push_str(" (required)"),
            (None, false) => {}
        }
    }
    text
}

/// Names of parameters that take a closed list of values wherever they occur: a value of theirs is a filter, never a
/// guess.
fn filters(root: &Value) -> Arc<[Arc<str>]> {
    let mut found = BTreeMap::new();
    properties(root, root, SEARCH_DEPTH, &mut found);
    found
        .into_iter()
        .filter(|(_, closed)| *closed)
        .map(|(name, _)| Arc::from(name))
        .collect()
}

fn properties<'a>(schema: &'a Value, root: &'a Value, depth: usize, found: &mut BTreeMap<&'a str, bool>) {
    if depth == 0 {
        return;
    }
    let schema = followed(schema, root, &mut BTreeSet::new());
    for (name, property) in schema
        .get("properties")
        .and_then(Value::as_object)
        .into_iter()
        .flatten()
    {
        let is_closed = closed(property, root, depth - 1);
        found
            .entry(name)
            .and_modify(|all| *all &= is_closed)
            .or_insert(is_closed);
        properties(property, root, depth - 1, found);
    }
    for part in ["items", "additionalProperties"]
        .into_iter()
        .filter_map(|key| schema.get(key))
    {
        properties(part, root, depth - 1, found);
    }
    for part in ["anyOf", "oneOf", "allOf"]
        .into_iter()
        .filter_map(|key| schema.get(key)?.as_array())
        .flatten()
    {
        properties(part, root, depth - 1, found);
    }
}

/// Whether a schema lists its values.
fn closed(schema: &Value, root: &Value, depth: usize) -> bool {
    if depth == 0 {
        return false;
    }
    let schema = followed(schema, root, &mut BTreeSet::new());
    let all = |key: &str| {
        let parts = schema.get(key).and_then(Value::as_array);
        parts.is_some_and(|parts| !parts.is_empty() && parts.iter().all(|part| closed(part, root, depth - 1)))
    };
    let any = |key: &str| {
        let parts = schema.get(key).and_then(Value::as_array);
        parts.is_some_and(|parts| parts.iter().any(|part| closed(part, root, depth - 1)))
    };
    schema.get("enum").is_some()
        || schema.get("const").is_some()
        || schema
            .get("type")
            .is_some_and(|kind| kind == "boolean" || kind == "null")
        || schema
            .get("items")
            .is_some_and(|items| closed(items, root, depth - 1))
        || all("anyOf")
        || all("oneOf")
        || any("allOf")
}

/// Follows references into the document itself.
fn followed<'a>(schema: &'a Value, root: &'a Value, seen: &mut BTreeSet<&'a str>) -> &'a Value {
    let target = schema
        .get("$ref")
        .and_then(Value::as_str)
        .filter(|reference| seen.insert(reference));
    match target
        .and_then(|reference| reference.strip_prefix('#'))
        .and_then(|pointer| root.pointer(pointer))
    {
        Some(next) => followed(next, root, seen),
        None => schema,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn compiled(schema: &Value) -> ArgumentSchema {
        ArgumentSchema::compile(schema).unwrap_or_else(|_| panic!("{schema} compiles"))
    }

    fn fault(schema: &Value, arguments: &Value) -> Option<String> {
        compiled(schema).fault(arguments.as_object().unwrap())
    }

    #[test]
    fn a_fault_names_the_value_by_its_pointer() {
        let schema = json!({"type": "object", "required": ["id"], "additionalProperties": false, "properties": {
            "id": {"type": "string"}, "a/b": {"type": "integer"},
            "filter": {"type": "object", "properties": {"limit": {"type": "integer", "minimum": 1}}}}});
        for (arguments, said) in [
            (json!({"id": 7}), "at /id: want string, but got number"),
            (
                json!({"id": "x", "a/b": "1"}),
                "at /a~1b: want integer, but got string",
            ),
            (
                json!({"id": "x", "filter": {"limit": 0}}),
                "at /filter/limit: must be >=1, but got 0",
            ),
            (json!({}), "\"id\" is missing"),
            (json!({"id": "x", "other": 1}), "\"other\" is no argument of it"),
        ] {
            assert_eq!(fault(&schema, &arguments).as_deref(), Some(said), "{arguments}");
        }
        assert_eq!(
            fault(&schema, &json!({"id": "x", "a/b": 1, "filter": {"limit": 1}})),
            None
        );
    }

    #[test]
    fn a_top_level_that_says_more_than_properties_is_checked_as_a_whole() {
        let schema = json!({"type": "object", "properties": {"a": {}, "b": {}}, "oneOf": [
            {"required": ["a"]}, {"required": ["b"]}]});
        assert_eq!(fault(&schema, &json!({"a": 1})), None);
        assert!(fault(&schema, &json!({"a": 1, "b": 1})).is_some());
        assert!(fault(&schema, &json!({})).is_some());
    }

    #[test]
    fn references_lead_nowhere_but_into_the_schema_itself() {
        let inside = json!({"type": "object", "properties": {"a": {"$ref": "#/$defs/small"}},
            "$defs": {"small": {"type": "integer", "maximum": 9}}});
        assert!(fault(&inside, &json!({"a": 10})).is_some());
        let outside = json!({"type": "object", "properties": {"a": {"$ref": "file:///etc/hostname"}}});
        assert!(matches!(
            ArgumentSchema::compile(&outside),
            Err(SchemaFault::Bad(_))
        ));
    }

    #[test]
    fn parameters_with_a_closed_list_of_values_are_filters_unless_the_name_is_open_elsewhere() {
        let schema = json!({"type": "object", "$defs": {"kind": {"enum": ["a", "b"]}}, "properties": {
            "status": {"type": "string", "enum": ["open", "closed"]},
            "kind": {"anyOf": [{"$ref": "#/$defs/kind"}, {"type": "null"}]},
            "kinds": {"type": "array", "items": {"$ref": "#/$defs/kind"}},
            "one_of": {"oneOf": [{"const": "x"}, {"const": "y"}]},
            "flag": {"type": "boolean"},
            "id": {"enum": ["x"]},
            "nested": {"type": "object", "properties": {"id": {"type": "string"}, "side": {"const": 1}}},
            "free": {"type": "string"}}});
        let names: Vec<_> = compiled(&schema)
            .filters
            .iter()
            .map(|name| name.to_string())
            .collect();
        assert_eq!(names, ["flag", "kind", "kinds", "one_of", "side", "status"]);
    }

    #[test]
    fn a_schema_that_refers_to_itself_is_searched_to_an_end() {
        let schema = json!({"type": "object", "properties": {"next": {"$ref": "#"}, "loop": {"$ref": "#/$defs/a"}},
            "$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}});
        assert!(filters(&schema).is_empty());
    }

    proptest! {
        /// Checking property by property says yes exactly when the validator says yes to the whole.
        #[test]
        fn checking_by_property_agrees_with_checking_the_whole(
            kinds in proptest::collection::vec(0usize..5, 4),
            required in proptest::collection::vec(any::<bool>(), 4),
            is_closed in any::<bool>(),
            values in proptest::collection::vec(proptest::option::of(0usize..6), 5),
        ) {
            const NAMES: [&str; 5] = ["a", "b%2", "c/d", "e~f", "other"];
            let kind = |index: usize| [json!({"type": "string"}), json!({"type": "integer"}), json!({}), json!(false),
                json!({"enum": [1, "x"]})][index].clone();
            let value = |index: usize| [json!("x"), json!(1), json!(1.5), json!(null), json!([]), json!({})][index].clone();
            let properties: Map<_, _> = (0..4).map(|i| (NAMES[i].to_owned(), kind(kinds[i]))).collect();
            let required: Vec<_> = (0..4).filter(|i| required[*i]).map(|i| NAMES[i]).collect();
            let schema = json!({"type": "object", "properties": properties, "required": required,
                "additionalProperties": !is_closed});
            let arguments: Map<_, _> = (0..5).filter_map(|i| Some((NAMES[i].to_owned(), value(values[i]?)))).collect();
            let mut schemas = Schemas::new();
            let mut compiler = Compiler::new();
            compiler.add_resource(LOCATION, schema.clone()).unwrap();
            let index = compiler.compile(LOCATION, &mut schemas).unwrap();
            let whole = schemas.validate(&Value::Object(arguments.clone()), index).is_ok();
            prop_assert_eq!(compiled(&schema).fault(&arguments).is_none(), whole);
        }
    }
}
