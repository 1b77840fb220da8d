//! What a model asked for: calls, in its order, of one turn.
//!
//! Results are paired with calls by **position**, never by id: providers send ids that are missing, empty or repeated
//! (B23), so an id is data that is handed back, and a name that placeholders may use while it is unique.

use std::fmt;
use std::sync::Arc;

use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::{Map, Value};

use crate::plan::PolicyName;
use crate::report::SetReport;

pub mod wire;

/// The calls of one turn and what the caller says about them. Only `calls` is required.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct CallSet {
    /// Names the set; repeated while it is remembered, the first report is returned and nothing runs again.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub set_id: Option<String>,
    /// The conversation the set belongs to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session: Option<String>,
    /// Who asks: set by the host, never by the model; part of every key of sharing, never printed.
    #[serde(skip_serializing_if = "Map::is_empty")]
    pub scope: Map<String, Value>,
    /// The user's question, from which the purpose is read if `purpose` is not given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub question: Option<String>,
    /// What the results are for; used as it is when given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub purpose: Option<Purpose>,
    /// The calls, in the model's order.
    pub calls: Vec<Call>,
    /// Tools that succeeded in earlier turns: their preconditions count as met.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub called: Vec<Arc<str>>,
    /// Values the model may rightly know: an argument equal to one of them is no guess.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub known: Vec<Value>,
    /// Which calls will be compared with which; by default all with all.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub compare: Vec<Vec<CallRef>>,
    /// What the caller insists on; readings that don't meet it are withheld.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub require: Option<Require>,
    /// How long the whole set may take, in milliseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub deadline_ms: Option<u64>,
    /// The policy, if it isn't the coordinator's own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub policy: Option<PolicyName>,
    /// What to do with arguments that look guessed, if it isn't the policy's own answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub on_guess: Option<OnGuess>,
    /// A pinned view to read through.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pin: Option<String>,
    /// Reports of earlier sets whose values will be compared with these.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub earlier: Vec<SetReport>,
}

impl CallSet {
    /// A set of these calls and nothing said about them.
    pub fn new(calls: impl IntoIterator<Item = Call>) -> Self {
        Self {
            calls: calls.into_iter().collect(),
            ..Self::default()
        }
    }

    /// Says what the user asked.
    #[must_use]
    pub fn question(mut self, question: impl Into<String>) -> Self {
        self.question = Some(question.into());
        self
    }

    /// Says what the results are for.
    #[must_use]
    pub fn purpose(mut self, purpose: Purpose) -> Self {
        self.purpose = Some(purpose);
        self
    }

    /// Withholds readings that may not be compared.
    #[must_use]
    pub fn require_comparable(mut self) -> Self {
        self.require = Some(Require::Comparable);
        self
    }
}

/// One use of a tool.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Call {
    /// The provider's id, handed back as it came.
    #[serde(default, deserialize_with = "null_is_default")]
    pub id: Arc<str>,
    /// The tool's name.
    pub tool: Arc<str>,
    /// The arguments.
    #[serde(default)]
    pub arguments: Arguments,
    /// Calls that must have succeeded before this one starts.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub after: Vec<CallRef>,
}

fn null_is_default<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Arc<str>, D::Error> {
    Ok(Option::<Arc<str>>::deserialize(deserializer)?.unwrap_or_default())
}

impl Call {
    /// A call of `tool` with these arguments: an object, or its JSON text.
    pub fn new(id: impl Into<Arc<str>>, tool: impl Into<Arc<str>>, arguments: impl Into<Arguments>) -> Self {
        Self {
            id: id.into(),
            tool: tool.into(),
            arguments: arguments.into(),
            after: Vec::new(),
        }
    }

    /// Declares that these calls must have succeeded first.
    #[must_use]
    pub fn after(mut self, calls: impl IntoIterator<Item = impl Into<CallRef>>) -> Self {
        self.after.extend(calls.into_iter().map(Into::into));
        self
    }
}

/// Names a call of the set by its id or by its position.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum CallRef {
    /// Counted from 0.
    Position(usize),
    /// The id of exactly one call.
    Id(Arc<str>),
}

impl From<usize> for CallRef {
    fn from(position: usize) -> Self {
        Self::Position(position)
    }
}

impl From<&str> for CallRef {
    fn from(id: &str) -> Self {
        Self::Id(id.into())
    }
}

impl fmt::Display for CallRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Position(position) => write!(f, "#{position}"),
            Self::Id(id) => write!(f, "{id:?}"),
        }
    }
}

/// The arguments as the provider sent them: an object, or the text of one.
///
/// `""` is `{}` (DS-22). Anything that is not one JSON object stays [`Arguments::Invalid`] and is answered
/// `invalid_arguments`; it is never replaced by `{}` (B68).
#[derive(Clone, Debug, PartialEq)]
pub enum Arguments {
    /// Usable.
    Object(Arc<Map<String, Value>>),
    /// What came instead, and why it can't be used.
    Invalid {
        /// As it came.
        raw: Value,
        /// In a sentence.
        why: String,
    },
}

impl Default for Arguments {
    fn default() -> Self {
        Self::Object(Arc::default())
    }
}

impl From<Value> for Arguments {
    fn from(value: Value) -> Self {
        match value {
            Value::Object(map) => Self::Object(Arc::new(map)),
            Value::String(text) if text.trim().is_empty() => Self::default(),
            Value::String(text) => match serde_json::from_str::<Value>(&text) {
                Ok(Value::Object(map)) => Self::Object(Arc::new(map)),
                Ok(other) => Self::Invalid {
                    why: format!("expected a JSON object, got the text of {}", kind_of(&other)),
                    raw: Value::String(text),
                },
                Err(error) => Self::Invalid {
                    why: format!("expected a JSON object, got text that is not JSON: {error}"),
                    raw: Value::String(text),
                },
            },
            other => Self::Invalid {
                why: format!("expected a JSON object, got {}", kind_of(&other)),
                raw: other,
            },
        }
    }
}

impl From<Map<String, Value>> for Arguments {
    fn from(map: Map<String, Value>) -> Self {
        Self::Object(Arc::new(map))
    }
}

impl From<&str> for Arguments {
    fn from(text: &str) -> Self {
        Value::String(text.to_owned()).into()
    }
}

impl Serialize for Arguments {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Object(map) => map.serialize(serializer),
            Self::Invalid { raw, .. } => raw.serialize(serializer),
        }
    }
}

impl<'de> Deserialize<'de> for Arguments {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Value::deserialize(deserializer).map(Into::into)
    }
}

impl JsonSchema for Arguments {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Arguments".into()
    }

    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({ "type": ["object", "string"], "description": "an object, or the JSON text of one" })
    }
}

/// The JSON type of a value with its article, for messages.
pub(crate) fn kind_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "an array",
        Value::Object(_) => "an object",
    }
}

/// What the readings of a set are for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Purpose {
    /// Each is told on its own: a moving database can't make that wrong.
    Report,
    /// They are held against each other: they must have been true together.
    Compare,
}

impl fmt::Display for Purpose {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Report => "report",
            Self::Compare => "compare",
        })
    }
}

/// What a caller insists on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Require {
    /// Readings that are in no comparable group are withheld.
    Comparable,
}

/// What to do with an argument that looks guessed: a value named like an output of a sibling and grounded nowhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum OnGuess {
    /// Run the producers first and look the value up in what they returned.
    Check,
    /// Run the producers first, and the call after them whatever they returned.
    Serialise,
    /// Refuse the call.
    Refuse,
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn arguments_are_an_object_or_its_text_and_nothing_else() {
        let object: Arguments = json!({"a": 1}).into();
        assert_eq!(Arguments::from("{\"a\": 1}"), object);
        assert_eq!(Arguments::from("  "), Arguments::default());
        for bad in [
            json!("not json"),
            json!("[1]"),
            json!("{} {}"),
            json!(null),
            json!(7),
            json!([1]),
        ] {
            assert!(
                matches!(Arguments::from(bad.clone()), Arguments::Invalid { .. }),
                "{bad}"
            );
        }
    }

    #[test]
    fn ids_may_be_missing_null_or_empty() {
        for text in [
            r#"{"tool": "t"}"#,
            r#"{"id": null, "tool": "t"}"#,
            r#"{"id": "", "tool": "t"}"#,
        ] {
            assert_eq!(
                serde_json::from_str::<Call>(text).unwrap(),
                Call::new("", "t", json!({}))
            );
        }
    }
}
