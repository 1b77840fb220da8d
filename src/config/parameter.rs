//! The parameters of a declared tool: the schema a model sees, and the values a statement is given.
//!
//! A parameter is checked twice. The schema tells the model what fits and stops most of what doesn't; [`bind`] then
//! turns a call's arguments into the statement's values and owes nothing to the schema, since a placeholder may have
//! been filled in after it was checked.
//!
//! - `null` is the same as missing: the default, else NULL if the parameter isn't required.
//! - Numbers may come as text, since integers beyond ±2^53 and decimals are printed so; they are read exactly.
//! - Texts in `allowedValues` are patterns for the *whole* text. Texts in `excludedValues` are patterns that may match
//!   anywhere. So neither lets through what the same file refuses elsewhere.
//! - A parameter bound to the scope is hidden from the model, which can't set it either.

use std::fmt;
use std::sync::Arc;

use serde_json::{Map, Number, Value, json};

use crate::call::kind_of;
use crate::reading::{CallError, ErrorCode};
use crate::tool::ArgumentMap;

mod matcher;

pub use matcher::Matcher;
pub(super) use matcher::is_literal;

/// A parameter of a tool.
#[derive(Clone)]
#[non_exhaustive]
pub struct Parameter {
    /// Its name.
    pub name: Arc<str>,
    /// What the model is told about it.
    pub description: String,
    /// What values it takes.
    pub kind: ParameterKind,
    /// Whether a call without it is refused.
    pub required: bool,
    /// What stands in when it is missing.
    pub default: Option<Value>,
    /// If not empty, only these fit.
    pub allowed: Vec<Matcher>,
    /// These don't fit.
    pub excluded: Vec<Matcher>,
    /// The members of the scope it is taken from: the first that is there. Empty: the model gives it.
    pub from_scope: Vec<Arc<str>>,
}

/// Without default and lists: what comes from the environment may be a secret.
impl fmt::Debug for Parameter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("Parameter");
        shown
            .field("name", &self.name)
            .field("kind", &self.kind)
            .field("required", &self.required);
        shown
            .field("from_scope", &self.from_scope)
            .finish_non_exhaustive()
    }
}

/// What values a parameter takes.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum ParameterKind {
    /// Text.
    String {
        /// The delimiters it is put in before it is given to the statement.
        escape: Option<Escape>,
    },
    /// A whole number of 64 bits.
    Integer {
        /// No less than this.
        min: Option<i64>,
        /// No more than this.
        max: Option<i64>,
    },
    /// A number.
    Float {
        /// No less than this.
        min: Option<f64>,
        /// No more than this.
        max: Option<f64>,
    },
    /// True or false.
    Boolean,
    /// A list. SQLite gets it as JSON text, for `json_each`.
    Array {
        /// What each item must be.
        items: Box<Parameter>,
    },
    /// An object. SQLite gets it as JSON text.
    Map {
        /// What each value must be; `None` takes any text, number or boolean.
        values: Option<Box<Parameter>>,
    },
}

/// Delimiters around a text; one inside it is doubled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Escape {
    /// `'`
    SingleQuotes,
    /// `"`
    DoubleQuotes,
    /// `` ` ``
    Backticks,
    /// `[` and `]`
    SquareBrackets,
}

impl Escape {
    fn apply(self, text: &str) -> String {
        let (open, close) = match self {
            Self::SingleQuotes => ('\'', '\''),
            Self::DoubleQuotes => ('"', '"'),
            Self::Backticks => ('`', '`'),
            Self::SquareBrackets => ('[', ']'),
        };
        let inside = text.replace(close, &format!("{close}{close}"));
        format!("{open}{inside}{close}")
    }
}

impl Parameter {
    /// A required parameter of this kind.
    pub(super) fn new(name: impl Into<Arc<str>>, kind: ParameterKind) -> Self {
        Self {
            name: name.into(),
            description: String::new(),
            kind,
            required: true,
            default: None,
            allowed: Vec::new(),
            excluded: Vec::new(),
            from_scope: Vec::new(),
        }
    }

    /// Whether the model sees it.
    pub fn is_visible(&self) -> bool {
        self.from_scope.is_empty()
    }

    /// Its JSON Schema.
    pub fn schema(&self) -> Value {
        let mut schema = Map::new();
        // What is one of a few known values needs no second spelling.
        let closed = !self.allowed.is_empty() && self.allowed.iter().all(|entry| entry.only().is_some());
        let (name, number) = match &self.kind {
            ParameterKind::String { .. } => ("string", None),
            ParameterKind::Integer { .. } => ("integer", Some("^-?[0-9]+$")),
            ParameterKind::Float { .. } => ("number", Some(r"^-?[0-9]+(\.[0-9]+)?([eE][+-]?[0-9]+)?$")),
            ParameterKind::Boolean => ("boolean", None),
            ParameterKind::Array { .. } => ("array", None),
            ParameterKind::Map { .. } => ("object", None),
        };
        let mut types = vec![name];
        let mut set = |name: &str, value: Value| {
            schema.insert(name.to_owned(), value);
        };
        if let Some(pattern) = number.filter(|_| !closed) {
            types.push("string");
            set("pattern", json!(pattern));
        }
        if self.is_optional() {
            types.push("null");
        }
        match &self.kind {
            ParameterKind::Integer { min, max } => {
                min.iter().for_each(|min| set("minimum", json!(min)));
                max.iter().for_each(|max| set("maximum", json!(max)));
            }
            ParameterKind::Float { min, max } => {
                min.iter().for_each(|min| set("minimum", json!(min)));
                max.iter().for_each(|max| set("maximum", json!(max)));
            }
            ParameterKind::Array { items } => set("items", items.schema()),
            ParameterKind::Map { values } => {
                let any = || json!({"type": ["string", "number", "boolean"]});
                set(
                    "additionalProperties",
                    values.as_ref().map_or_else(any, |values| values.schema()),
                );
            }
            ParameterKind::String { .. } | ParameterKind::Boolean => {}
        }
        if !self.description.is_empty() {
            set("description", json!(self.description));
        }
        if closed {
            let null = self.is_optional().then_some(Value::Null);
            set(
                "enum",
                self.allowed
                    .iter()
                    .filter_map(Matcher::only)
                    .chain(null)
                    .collect(),
            );
        } else if let Some(pattern) = self.allowed_pattern() {
            set("pattern", json!(pattern));
        }
        if let Some(default) = &self.default {
            set("default", default.clone());
        }
        set(
            "type",
            if let [name] = types[..] {
                json!(name)
            } else {
                json!(types)
            },
        );
        Value::Object(schema)
    }

    /// Whether a call may leave it out, or say `null`, which is the same.
    fn is_optional(&self) -> bool {
        !self.required || self.default.is_some()
    }

    /// One pattern for a text's whole `allowedValues`.
    fn allowed_pattern(&self) -> Option<String> {
        if self.allowed.is_empty() || !matches!(self.kind, ParameterKind::String { .. }) {
            return None;
        }
        let one = |entry: &Matcher| match entry {
            Matcher::Equal(value) => regex::escape(value.as_str().unwrap_or_default()),
            Matcher::Pattern { written, .. } => written.clone(),
        };
        Some(format!(
            "^(?:{})$",
            self.allowed.iter().map(one).collect::<Vec<_>>().join("|")
        ))
    }

    /// The value a call gives it: `None` if it is missing and has no default.
    ///
    /// # Errors
    /// The words that follow its name in a sentence: what it must be.
    pub(super) fn value(&self, given: Option<&Value>) -> Result<Option<Value>, Misfit> {
        match given.filter(|value| !value.is_null()) {
            Some(value) => self.fit(value, &self.name).map(Some),
            // Checked when it was declared.
            None if self.default.is_some() => Ok(self.default.clone()),
            None if self.required => Err(Misfit::new(&self.name, "is missing".to_owned())),
            None => Ok(None),
        }
    }

    /// The value in this parameter's own form, if it fits.
    pub(super) fn fit(&self, value: &Value, path: &str) -> Result<Value, Misfit> {
        let must = |what: &str| Misfit::new(path, format!("must be {what}, got {}", kind_of(value)));
        let fitted = match &self.kind {
            ParameterKind::String { .. } => value
                .as_str()
                .map(|_| value.clone())
                .ok_or_else(|| must("a string"))?,
            ParameterKind::Boolean => value
                .as_bool()
                .map(Value::Bool)
                .ok_or_else(|| must("a boolean"))?,
            ParameterKind::Integer { min, max } => {
                let number = integer(value).ok_or_else(|| must("an integer of 64 bits"))?;
                within(number, *min, *max).map_err(|why| Misfit::new(path, why))?;
                number.into()
            }
            ParameterKind::Float { min, max } => {
                let number = float(value).ok_or_else(|| must("a number"))?;
                let size = number.as_f64().unwrap_or(f64::NAN);
                within(size, *min, *max).map_err(|why| Misfit::new(path, why))?;
                Value::Number(number)
            }
            ParameterKind::Array { items } => {
                let list = value.as_array().ok_or_else(|| must("an array"))?;
                let fit = |(index, item)| items.fit(item, &format!("{path}[{index}]"));
                Value::Array(list.iter().enumerate().map(fit).collect::<Result<_, _>>()?)
            }
            ParameterKind::Map { values } => {
                let map = value.as_object().ok_or_else(|| must("an object"))?;
                let fit = |(key, value): (&String, &Value)| {
                    let path = format!("{path}.{key}");
                    match values {
                        Some(values) => Ok((key.clone(), values.fit(value, &path)?)),
                        None if value.is_string() || value.is_number() || value.is_boolean() => {
                            Ok((key.clone(), value.clone()))
                        }
                        None => {
                            let why = format!("must be a string, number or boolean, got {}", kind_of(value));
                            Err(Misfit::new(&path, why))
                        }
                    }
                };
                Value::Object(map.iter().map(fit).collect::<Result<_, _>>()?)
            }
        };
        if !self.allowed.is_empty() && !self.allowed.iter().any(|entry| entry.matches(&fitted)) {
            return Err(Misfit::new(path, self.allowed_in_words()));
        }
        if self.excluded.iter().any(|entry| entry.matches(&fitted)) {
            return Err(Misfit::new(path, "has a value that is excluded".to_owned()));
        }
        Ok(fitted)
    }

    fn allowed_in_words(&self) -> String {
        const TOLD: usize = 12;
        let word = |entry: &Matcher| match entry {
            Matcher::Equal(value) => value.to_string(),
            Matcher::Pattern { written, .. } => written.clone(),
        };
        let words: Vec<_> = self.allowed.iter().take(TOLD).map(word).collect();
        let more = if self.allowed.len() > TOLD { ", …" } else { "" };
        format!("must be one of {}{more}", words.join(", "))
    }

    fn escaped(&self, value: Value) -> Value {
        match (&self.kind, value) {
            (ParameterKind::String { escape: Some(escape) }, Value::String(text)) => {
                escape.apply(&text).into()
            }
            (ParameterKind::Array { items }, Value::Array(list)) => {
                list.into_iter().map(|item| items.escaped(item)).collect()
            }
            (_, value) => value,
        }
    }
}

/// Why a value doesn't fit.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Misfit {
    path: String,
    pub(super) why: String,
}

impl Misfit {
    fn new(path: &str, why: String) -> Self {
        Self {
            path: path.to_owned(),
            why,
        }
    }
}

/// A whole number, or its text, if it has 64 bits at most. Nothing is rounded.
fn integer(value: &Value) -> Option<i64> {
    match value {
        Value::String(text) => {
            let digits = text.strip_prefix('-').unwrap_or(text);
            let is_whole = !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit());
            is_whole.then(|| text.parse().ok()).flatten()
        }
        Value::Number(number) => number.as_i64().or_else(|| {
            // `5.0` is 5; above 2^53 such a spelling no longer says which integer is meant.
            let float = number
                .as_f64()
                .filter(|f| f.fract() == 0.0 && f.abs() <= 9_007_199_254_740_992.0)?;
            format!("{float:.0}").parse().ok()
        }),
        _ => None,
    }
}

fn float(value: &Value) -> Option<Number> {
    match value {
        Value::Number(number) => Some(number.clone()),
        Value::String(text) => {
            let is_number = text
                .bytes()
                .all(|b| b.is_ascii_digit() || matches!(b, b'-' | b'+' | b'.' | b'e' | b'E'));
            is_number.then(|| serde_json::from_str(text).ok()).flatten()
        }
        _ => None,
    }
}

fn within<T: PartialOrd + fmt::Display>(number: T, min: Option<T>, max: Option<T>) -> Result<(), String> {
    if let Some(min) = min.filter(|min| number < *min) {
        return Err(format!("must be at least {min}"));
    }
    if let Some(max) = max.filter(|max| number > *max) {
        return Err(format!("must be at most {max}"));
    }
    Ok(())
}

/// The schema of a call's arguments: what the scope gives is not in it, and nothing else may be given.
pub fn input_schema<'a>(parameters: impl IntoIterator<Item = &'a Parameter>) -> Value {
    let mut properties = Map::new();
    let mut required = Vec::new();
    for parameter in parameters.into_iter().filter(|parameter| parameter.is_visible()) {
        properties.insert(parameter.name.to_string(), parameter.schema());
        if !parameter.is_optional() {
            required.push(Value::from(&*parameter.name));
        }
    }
    let mut schema = json!({"type": "object", "properties": properties, "additionalProperties": false});
    if !required.is_empty() {
        schema["required"] = required.into();
    }
    schema
}

/// A statement's values, in the order of its parameters.
///
/// # Errors
/// - `invalid_arguments`: an argument is missing, has no parameter, or doesn't fit; the message names it with its path.
/// - `denied`: the scope lacks a value the tool is bound to. The call must not run without it.
pub fn bind(
    parameters: &[Parameter],
    arguments: &ArgumentMap,
    scope: &Map<String, Value>,
) -> Result<Vec<Value>, CallError> {
    for name in arguments.keys() {
        if !parameters
            .iter()
            .any(|parameter| parameter.is_visible() && *parameter.name == **name)
        {
            let message = format!("The tool takes no argument {name:?}.");
            return Err(CallError::new(ErrorCode::InvalidArguments, message));
        }
    }
    parameters
        .iter()
        .map(|parameter| bind_one(parameter, arguments, scope))
        .collect()
}

fn bind_one(
    parameter: &Parameter,
    arguments: &ArgumentMap,
    scope: &Map<String, Value>,
) -> Result<Value, CallError> {
    let value = if parameter.is_visible() {
        parameter
            .value(arguments.get(&*parameter.name))
            .map_err(|misfit| {
                let message = format!("The argument {:?} {}.", misfit.path, misfit.why);
                CallError::new(ErrorCode::InvalidArguments, message)
            })?
    } else {
        // The default of such a parameter would be somebody else's rows.
        let found = parameter
            .from_scope
            .iter()
            .find_map(|member| scope.get(&**member).filter(|v| !v.is_null()));
        let members = parameter.from_scope.join(" or ");
        let denied = |why: &str| {
            let message = format!("The tool is bound to {members} of the caller's scope, which {why}.");
            CallError::new(ErrorCode::Denied, message)
        };
        let value = found.ok_or_else(|| denied("the caller does not have"))?;
        // The value itself is never printed.
        Some(
            parameter
                .fit(value, &parameter.name)
                .map_err(|_| denied("does not fit the tool"))?,
        )
    };
    Ok(value.map_or(Value::Null, |value| parameter.escaped(value)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parameter(kind: ParameterKind) -> Parameter {
        Parameter::new("p", kind)
    }

    const INTEGER: ParameterKind = ParameterKind::Integer { min: None, max: None };
    const FLOAT: ParameterKind = ParameterKind::Float { min: None, max: None };
    const STRING: ParameterKind = ParameterKind::String { escape: None };

    fn bound(parameter: &Parameter, value: Value) -> Result<Value, String> {
        let arguments = Map::from_iter([("p".to_owned(), value)]);
        bind(std::slice::from_ref(parameter), &arguments, &Map::new())
            .map(|mut values| values.remove(0))
            .map_err(|error| error.message().to_owned())
    }

    /// A number that was printed as text comes back as the number it was, to the last digit.
    #[test]
    fn numbers_may_come_as_text_and_are_read_exactly() {
        let p = parameter(INTEGER);
        assert_eq!(
            bound(&p, json!("9007199254740993")),
            Ok(json!(9_007_199_254_740_993_i64))
        );
        assert_eq!(bound(&p, json!("-9223372036854775808")), Ok(json!(i64::MIN)));
        assert_eq!(bound(&p, json!(5.0)), Ok(json!(5)));
        for bad in [
            json!("9223372036854775808"),
            json!(1e300),
            json!(1.5),
            json!("1.0"),
            json!(""),
            json!("+1"),
            json!(" 1"),
            json!("0x1"),
            json!(true),
            json!(u64::MAX),
        ] {
            assert!(
                bound(&p, bad.clone()).unwrap_err().contains("integer of 64 bits"),
                "{bad}"
            );
        }
        let p = parameter(FLOAT);
        assert_eq!(bound(&p, json!("12.5")), Ok(json!(12.5)));
        assert_eq!(bound(&p, json!(3)), Ok(json!(3)));
        for bad in [
            json!("NaN"),
            json!("inf"),
            json!("1."),
            json!("1e999"),
            json!("1 "),
            json!([1]),
        ] {
            assert!(bound(&p, bad.clone()).is_err(), "{bad}");
        }
    }

    #[test]
    fn missing_null_default_and_optional_are_told_apart() {
        let mut p = parameter(INTEGER);
        assert_eq!(
            bound(&p, Value::Null),
            Err("The argument \"p\" is missing.".to_owned())
        );
        assert!(bind(std::slice::from_ref(&p), &Map::new(), &Map::new()).is_err());
        p.default = Some(json!(7));
        assert_eq!(bound(&p, Value::Null), Ok(json!(7)));
        p.default = None;
        p.required = false;
        assert_eq!(bound(&p, Value::Null), Ok(Value::Null));
    }

    #[test]
    fn limits_hold_for_numbers_and_for_their_text() {
        let p = parameter(ParameterKind::Integer {
            min: Some(1),
            max: Some(10),
        });
        for bad in [json!(0), json!("0"), json!(11), json!("11")] {
            assert!(bound(&p, bad.clone()).is_err(), "{bad}");
        }
        assert_eq!(bound(&p, json!("10")), Ok(json!(10)));
    }

    /// An unanchored `id` would let `id; drop` through.
    #[test]
    fn allowed_patterns_stand_for_the_whole_text_and_excluded_ones_for_any_part() {
        let mut p = parameter(STRING);
        p.allowed = [json!("id"), json!("a.c|d"), json!("(")]
            .map(Matcher::allowed)
            .into();
        for good in ["id", "abc", "d", "("] {
            assert!(bound(&p, json!(good)).is_ok(), "{good}");
        }
        for bad in ["id; drop", "xid", "abcd", "dd", "id\n", ""] {
            assert!(bound(&p, json!(bad)).is_err(), "{bad}");
        }
        p.allowed.clear();
        p.excluded = vec![Matcher::excluded(json!("drop"))];
        assert!(bound(&p, json!("a drop b")).is_err());
        assert!(bound(&p, json!("fine")).is_ok());
    }

    #[test]
    fn a_pattern_cannot_break_out_of_its_anchors() {
        let mut p = parameter(STRING);
        p.allowed = vec![Matcher::allowed(json!("a)|(b"))];
        assert!(bound(&p, json!("a then anything")).is_err());
        assert!(
            bound(&p, json!("a)|(b")).is_ok(),
            "what is no pattern stands for itself"
        );
    }

    #[test]
    fn nested_values_are_checked_and_named_by_their_path() {
        let p = parameter(ParameterKind::Array {
            items: Box::new(parameter(INTEGER)),
        });
        assert_eq!(bound(&p, json!([1, "2"])), Ok(json!([1, 2])));
        assert!(
            bound(&p, json!([1, "x"]))
                .unwrap_err()
                .starts_with("The argument \"p[1]\" must be an integer")
        );
        let p = parameter(ParameterKind::Map {
            values: Some(Box::new(parameter(STRING))),
        });
        assert!(
            bound(&p, json!({"a": 1}))
                .unwrap_err()
                .starts_with("The argument \"p.a\" must be a string")
        );
        let p = parameter(ParameterKind::Map { values: None });
        assert_eq!(
            bound(&p, json!({"a": 1, "b": true})),
            Ok(json!({"a": 1, "b": true}))
        );
        assert!(bound(&p, json!({"a": null})).is_err());
    }

    #[test]
    fn escapes_double_the_delimiter() {
        for (escape, expected) in [
            (Escape::SingleQuotes, "'a''b\"c`d[e]'"),
            (Escape::DoubleQuotes, "\"a'b\"\"c`d[e]\""),
            (Escape::Backticks, "`a'b\"c``d[e]`"),
            (Escape::SquareBrackets, "[a'b\"c`d[e]]]"),
        ] {
            let p = parameter(ParameterKind::String { escape: Some(escape) });
            assert_eq!(bound(&p, json!("a'b\"c`d[e]")), Ok(json!(expected)));
        }
    }

    /// The model can't set what the scope gives, and the scope's value is in no message.
    #[test]
    fn scope_bound_parameters_come_from_the_scope_alone() {
        let mut p = parameter(INTEGER);
        p.from_scope = vec!["tenant_id".into(), "org".into()];
        p.default = Some(json!(1));
        let bind = |arguments: Value, scope: Value| {
            bind(
                std::slice::from_ref(&p),
                arguments.as_object().unwrap(),
                scope.as_object().unwrap(),
            )
        };
        assert_eq!(bind(json!({}), json!({"tenant_id": 42})).unwrap(), [json!(42)]);
        assert_eq!(bind(json!({}), json!({"org": "43"})).unwrap(), [json!(43)]);
        assert_eq!(
            bind(json!({"p": 1}), json!({"tenant_id": 42}))
                .unwrap_err()
                .code(),
            ErrorCode::InvalidArguments
        );
        assert_eq!(bind(json!({}), json!({})).unwrap_err().code(), ErrorCode::Denied);
        let error = bind(json!({}), json!({"tenant_id": "s3cret"})).unwrap_err();
        assert_eq!(error.code(), ErrorCode::Denied);
        assert!(!error.message().contains("s3cret"));
        assert_eq!(
            input_schema([&p]),
            json!({"type": "object", "properties": {}, "additionalProperties": false})
        );
    }

    /// The schema and the binding agree: what one takes, the other takes.
    #[test]
    fn the_schema_takes_what_binding_takes() {
        let mut closed = parameter(INTEGER);
        closed.allowed = [json!(1), json!(2)].map(Matcher::allowed).into();
        let mut words = parameter(STRING);
        words.allowed = [json!("open"), json!("in-progress")].map(Matcher::allowed).into();
        let mut pattern = parameter(STRING);
        pattern.allowed = [json!("[a-c]+"), json!("x")].map(Matcher::allowed).into();
        let candidates = [
            json!(1),
            json!(3),
            json!("1"),
            json!("9007199254740993"),
            json!("x"),
            json!("open"),
            json!("abc"),
            json!(""),
            json!(1.5),
            json!("1.5"),
            json!(true),
            json!([1]),
            json!(["1"]),
            json!(["x"]),
            json!({"a": 1}),
            json!({"a": "x"}),
            json!({"a": [1]}),
            Value::Null,
        ];
        let mut optional = parameter(INTEGER);
        optional.required = false;
        let mut defaulted = words.clone();
        defaulted.default = Some(json!("open"));
        let kinds = [
            optional,
            defaulted,
            parameter(STRING),
            parameter(INTEGER),
            parameter(FLOAT),
            parameter(ParameterKind::Boolean),
            parameter(ParameterKind::Array {
                items: Box::new(parameter(INTEGER)),
            }),
            parameter(ParameterKind::Map {
                values: Some(Box::new(parameter(INTEGER))),
            }),
            parameter(ParameterKind::Map { values: None }),
            closed,
            words,
            pattern,
        ];
        for p in &kinds {
            let mut schemas = boon::Schemas::new();
            let mut compiler = boon::Compiler::new();
            compiler.add_resource("schema", input_schema([p])).unwrap();
            let schema = compiler.compile("schema", &mut schemas).unwrap();
            for value in &candidates {
                let by_schema = schemas.validate(&json!({"p": value}), schema).is_ok();
                let by_binding = bound(p, value.clone()).is_ok();
                // A closed list of numbers is shown without the second spelling, which binding still takes.
                let stricter = p.schema().get("enum").is_some() && !by_schema;
                assert!(
                    by_schema == by_binding || stricter,
                    "{value} for {}: {by_schema}, {by_binding}",
                    p.schema()
                );
            }
        }
    }
}
