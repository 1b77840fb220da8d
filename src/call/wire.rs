//! What comes in: sets, and the messages in which models ask for tools.
//!
//! [`CallSet::from_json`] takes one JSON document and finds out what it is by the fields that only one format has:
//!
//! | it has | it is |
//! |---|---|
//! | `calls` | a set |
//! | `content` with `tool_use` blocks | an Anthropic message |
//! | `tool_calls` (or the old `function_call`), `choices`, or `message` | an OpenAI message, completion, or choice of one |
//! | `output`, or `type: function_call` | an OpenAI response, or an item of one |
//! | `parts` with `functionCall`, `candidates`, or a `content` with `parts` | a Gemini content, response, or candidate |
//!
//! An array is what stands in such a message's list, or the calls of a set. Whatever fits two rows is refused, not
//! guessed. A message that was cut off is refused as a whole: its last call may be half of one (DS-23).
//!
//! ```
//! use coeval::CallSet;
//!
//! let set = CallSet::from_json(r#"{"role": "assistant", "content": [
//!     {"type": "text", "text": "Let me look."},
//!     {"type": "tool_use", "id": "toolu_1", "name": "get_contract", "input": {"account_id": "henderson"}}]}"#)?;
//! assert_eq!(&*set.calls[0].tool, "get_contract");
//!
//! let fault = CallSet::from_json(r#"{"calls": [{"tool": "get_contract", "argument": {}}]}"#).unwrap_err();
//! assert_eq!(fault.to_string(), "calls[0] has no field \"argument\"; did you mean \"arguments\"?");
//! # Ok::<(), coeval::call::wire::SetFault>(())
//! ```

use std::fmt;

use serde_json::{Map, Value};

use super::{CallSet, kind_of};
use crate::spelling::nearest;

mod message;

use message::{Form, list};

/// The largest document that is read, in bytes: ten thousand calls have about one million.
pub const MAX_BYTES: usize = 16 << 20;

/// Why a document is no set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SetFault {
    message: String,
    help: Option<String>,
    place: Option<(usize, usize)>,
}

impl SetFault {
    fn new(message: impl Into<String>) -> Self {
        Self {
            message: message.into(),
            help: None,
            place: None,
        }
    }

    fn help(mut self, help: impl Into<String>) -> Self {
        self.help = Some(help.into());
        self
    }

    /// What is wrong, with the path to it.
    pub fn message(&self) -> &str {
        &self.message
    }

    /// How to mend it, if that is known.
    pub fn suggestion(&self) -> Option<&str> {
        self.help.as_deref()
    }

    /// Line and column, counted from 1, if it is the text that is wrong.
    pub fn place(&self) -> Option<(usize, usize)> {
        self.place
    }
}

impl fmt::Display for SetFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some((line, column)) = self.place {
            write!(f, "line {line}, column {column}: ")?;
        }
        f.write_str(&self.message)?;
        match &self.help {
            Some(help) => write!(f, "; {help}"),
            None => Ok(()),
        }
    }
}

impl std::error::Error for SetFault {}

impl From<serde_json::Error> for SetFault {
    fn from(error: serde_json::Error) -> Self {
        let place = (error.line() > 0).then(|| (error.line(), error.column()));
        // The place is told in our own words.
        let mut message = error.to_string();
        if let Some(end) = message.rfind(" at line ") {
            message.truncate(end);
        }
        let message = match error.classify() {
            serde_json::error::Category::Data => message,
            _ => format!("this is not JSON: {message}"),
        };
        Self {
            message,
            help: None,
            place,
        }
    }
}

impl CallSet {
    /// The set that a JSON document holds: a set, or a model's message in the form of one of the providers.
    ///
    /// # Errors
    /// A document that is too large, is no JSON, holds no calls in a form that is known, or was cut off. The fault says
    /// where and, if that is known, what was meant.
    pub fn from_json(json: impl AsRef<[u8]>) -> Result<Self, SetFault> {
        let bytes = json.as_ref();
        if bytes.len() > MAX_BYTES {
            let message = format!("the set has {} bytes; at most {MAX_BYTES} are read", bytes.len());
            return Err(SetFault::new(message).help("split it"));
        }
        let text = std::str::from_utf8(bytes).map_err(|error| {
            let at = error.valid_up_to();
            SetFault::new(format!("the set is not UTF-8: byte {at} begins no character"))
                .help("save it as UTF-8")
        })?;
        let text = text.strip_prefix('\u{feff}').unwrap_or(text);
        if text.trim().is_empty() {
            return Err(
                SetFault::new("there is no set: the document is empty").help(r#"write {"calls": [...]}"#)
            );
        }
        let document: Value = serde_json::from_str(text)?;
        match document {
            Value::Object(fields) => match Form::of(&fields)? {
                None => {
                    check_set(&fields)?;
                    // From the text again: only there a field given twice is seen, and a wrong one has its place.
                    Ok(serde_json::from_str(text)?)
                }
                Some(form) => form.message(fields, "the message"),
            },
            Value::Array(items) => list(items),
            other => Err(
                SetFault::new(format!("a set must be an object, not {}", kind_of(&other)))
                    .help(r#"write {"calls": [...]}"#),
            ),
        }
    }
}

const SET_FIELDS: [&str; 15] = [
    "setId",
    "session",
    "scope",
    "question",
    "purpose",
    "calls",
    "called",
    "known",
    "compare",
    "require",
    "deadlineMs",
    "policy",
    "onGuess",
    "pin",
    "earlier",
];
const CALL_FIELDS: [&str; 4] = ["id", "tool", "arguments", "after"];
/// What people write instead.
const MISTAKES: [(&str, &str); 9] = [
    ("name", "tool"),
    ("function", "tool"),
    ("args", "arguments"),
    ("input", "arguments"),
    ("params", "arguments"),
    ("parameters", "arguments"),
    ("depends_on", "after"),
    ("tools", "calls"),
    ("prompt", "question"),
];

/// Tells what the types alone would tell badly: a field that isn't known, and parts of another type.
fn check_set(fields: &Map<String, Value>) -> Result<(), SetFault> {
    known_fields(fields, "the set", &SET_FIELDS)?;
    let Some(calls) = fields.get("calls") else {
        return Err(SetFault::new("the set has no \"calls\"").help(r#"write {"calls": [...]}"#));
    };
    let Value::Array(calls) = calls else {
        return Err(SetFault::new(format!(
            "\"calls\" must be an array, not {}",
            kind_of(calls)
        )));
    };
    for (index, call) in calls.iter().enumerate() {
        let Value::Object(call) = call else {
            return Err(SetFault::new(format!(
                "calls[{index}] must be an object, not {}",
                kind_of(call)
            )));
        };
        known_fields(call, &format!("calls[{index}]"), &CALL_FIELDS)?;
        match call.get("tool") {
            Some(Value::String(_)) => {}
            Some(other) => {
                return Err(SetFault::new(format!(
                    "calls[{index}].tool must be a string, not {}",
                    kind_of(other)
                )));
            }
            None => return Err(SetFault::new(format!("calls[{index}] has no \"tool\""))),
        }
    }
    // Nothing of the scope is ever printed, and a type's own message would quote it.
    match fields.get("scope") {
        None | Some(Value::Object(_)) => Ok(()),
        Some(other) => Err(SetFault::new(format!(
            "\"scope\" must be an object, not {}",
            kind_of(other)
        ))),
    }
}

fn known_fields(fields: &Map<String, Value>, owner: &str, known: &[&str]) -> Result<(), SetFault> {
    let Some(unknown) = fields.keys().find(|field| !known.contains(&field.as_str())) else {
        return Ok(());
    };
    let fault = SetFault::new(format!("{owner} has no field {unknown:?}"));
    let mistake = MISTAKES
        .iter()
        .find(|(wrong, right)| wrong == unknown && known.contains(right));
    let meant = mistake
        .map(|(_, right)| *right)
        .or_else(|| nearest(unknown, known.iter().copied()));
    Err(match meant {
        Some(meant) => fault.help(format!("did you mean {meant:?}?")),
        None => fault.help(format!("known: {}", known.join(", "))),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::call::{Arguments, Call};
    use serde_json::json;

    fn read(document: Value) -> Result<CallSet, String> {
        CallSet::from_json(document.to_string()).map_err(|fault| fault.to_string())
    }

    fn told(document: Value) -> String {
        read(document).expect_err("it should be refused")
    }

    /// The same two calls in every form that a provider sends them in.
    #[test]
    fn every_form_holds_the_same_calls() {
        let (one, two) = (json!({"a": 1}), json!({}));
        let expected = CallSet::new([Call::new("1", "x", one.clone()), Call::new("2", "y", two.clone())]);
        let anthropic = json!([
            {"type": "thinking", "thinking": "…"},
            {"type": "tool_use", "id": "1", "name": "x", "input": one},
            {"type": "server_tool_use", "id": "s", "name": "web_search", "input": {}},
            {"type": "tool_use", "id": "2", "name": "y", "input": two},
        ]);
        let openai = json!([
            {"id": "1", "type": "function", "function": {"name": "x", "arguments": "{\"a\": 1}"}},
            {"id": "2", "type": "function", "function": {"name": "y", "arguments": ""}},
        ]);
        let response = json!([
            {"type": "reasoning", "id": "rs", "summary": []},
            {"type": "function_call", "id": "fc_1", "call_id": "1", "name": "x", "arguments": "{\"a\": 1}", "status": "completed"},
            {"type": "function_call", "id": "fc_2", "call_id": "2", "name": "y", "arguments": "{}", "status": "completed"},
        ]);
        let gemini = json!([
            {"text": "Let me look."},
            {"functionCall": {"id": "1", "name": "x", "args": {"a": 1}}},
            {"function_call": {"id": "2", "name": "y"}},
        ]);
        for document in [
            json!({"calls": [{"id": "1", "tool": "x", "arguments": {"a": 1}}, {"id": "2", "tool": "y"}]}),
            json!([{"id": "1", "tool": "x", "arguments": "{\"a\": 1}"}, {"id": "2", "tool": "y"}]),
            anthropic.clone(),
            json!({"role": "assistant", "content": anthropic, "stop_reason": "tool_use"}),
            openai.clone(),
            json!({"role": "assistant", "content": null, "tool_calls": openai, "function_call": null}),
            json!({"choices": [{"index": 0, "finish_reason": "tool_calls", "message": {"role": "assistant", "content": "", "tool_calls": openai}}]}),
            json!({"finish_reason": "tool_calls", "message": {"role": "assistant", "tool_calls": openai}}),
            response.clone(),
            json!({"object": "response", "status": "completed", "output": response}),
            gemini.clone(),
            json!({"role": "model", "parts": gemini}),
            json!({"content": {"role": "model", "parts": gemini}, "finishReason": "STOP"}),
            json!({"candidates": [{"content": {"role": "model", "parts": gemini}, "finishReason": "STOP"}]}),
        ] {
            assert_eq!(read(document.clone()), Ok(expected.clone()), "{document}");
        }
        let one = json!({"type": "function_call", "call_id": "1", "name": "x", "arguments": "{\"a\": 1}"});
        assert_eq!(read(one).unwrap().calls, expected.calls[..1]);
        let old =
            json!({"role": "assistant", "content": null, "function_call": {"name": "y", "arguments": "{}"}});
        assert_eq!(read(old).unwrap().calls, [Call::new("", "y", json!({}))]);
    }

    /// DS-23: the last call of such a message may be half of one.
    #[test]
    fn a_message_that_was_cut_off_is_refused_as_a_whole() {
        let block = json!([{"type": "tool_use", "id": "1", "name": "x", "input": {}}]);
        let calls =
            json!([{"id": "1", "type": "function", "function": {"name": "x", "arguments": "{\"a\""}}]);
        let item = json!({"type": "function_call", "call_id": "1", "name": "x", "arguments": "{", "status": "incomplete"});
        for document in [
            json!({"role": "assistant", "content": block, "stop_reason": "max_tokens"}),
            json!({"choices": [{"finish_reason": "length", "message": {"tool_calls": calls}}]}),
            json!({"status": "incomplete", "output": [item]}),
            json!([item]),
            item,
            json!({"candidates": [{"finishReason": "MAX_TOKENS", "content": {"parts": [{"functionCall": {"name": "x"}}]}}]}),
        ] {
            let told = told(document.clone());
            assert!(
                told.contains("was cut off") && told.contains("none of its calls"),
                "{document}: {told}"
            );
        }
        let refused = json!({"role": "assistant", "content": block, "stop_reason": "refusal"});
        assert!(told(refused).contains("was broken off"));
    }

    /// DS-22, B68: a call with unusable arguments keeps its slot; its siblings are not harmed.
    #[test]
    fn unusable_arguments_are_an_error_of_their_call_alone() {
        let set = read(json!({"tool_calls": [
            {"id": "1", "function": {"name": "x", "arguments": "not json"}},
            {"id": "2", "type": "custom", "custom": {"name": "y", "input": "SELECT"}},
            {"id": "3", "function": {"name": "z", "arguments": "{}"}},
        ]}))
        .unwrap();
        let invalid: Vec<_> = set
            .calls
            .iter()
            .map(|c| matches!(c.arguments, Arguments::Invalid { .. }))
            .collect();
        assert_eq!(invalid, [true, true, false]);
    }

    #[test]
    fn faults_say_where_and_what_was_meant() {
        for (document, expected) in [
            (
                json!({"call": []}),
                "the set has no field \"call\"; did you mean \"calls\"?",
            ),
            (
                json!({"tools": []}),
                "the set has no field \"tools\"; did you mean \"calls\"?",
            ),
            (
                json!({"question": "?"}),
                "the set has no \"calls\"; write {\"calls\": [...]}",
            ),
            (json!({"calls": {}}), "\"calls\" must be an array, not an object"),
            (
                json!({"calls": ["x"]}),
                "calls[0] must be an object, not a string",
            ),
            (
                json!({"calls": [{"tool": "x"}, {"name": "y"}]}),
                "calls[1] has no field \"name\"; did you mean \"tool\"?",
            ),
            (
                json!({"calls": [{"tool": "x", "args": {}}]}),
                "calls[0] has no field \"args\"; did you mean \"arguments\"?",
            ),
            (
                json!({"calls": [{"tool": 5}]}),
                "calls[0].tool must be a string, not a number",
            ),
            (json!({"calls": [{"id": "a"}]}), "calls[0] has no \"tool\""),
            (
                json!({"calls": [], "colour": 1}),
                "the set has no field \"colour\"; known: setId, session, scope, question, purpose, calls, called, known, compare, require, deadlineMs, policy, onGuess, pin, earlier",
            ),
            (
                json!({"calls": [], "tool_calls": []}),
                "it has \"calls\" and \"tool_calls\", and can't be told apart from two things; keep one of them",
            ),
            (
                json!({"messages": [{"role": "user"}]}),
                "it is a whole conversation, of which only the last message can be run; give the last message of \"messages\" alone",
            ),
            (
                json!({"role": "assistant", "content": "Hello."}),
                "the message asks for no tool: there is nothing to run",
            ),
            (
                json!({"content": [{"type": "text"}], "stop_reason": "end_turn"}),
                "the message asks for no tool: there is nothing to run",
            ),
            (
                json!({"content": [{"type": "tool_use", "id": "1"}]}),
                "content[0] has no \"name\"",
            ),
            (
                json!({"choices": [{}, {}]}),
                "\"choices\" holds 2 alternatives, of which only one can be run; give one of them alone",
            ),
            (
                json!({"tool_calls": [{"id": 1, "function": {"name": "x"}}]}),
                "the id of tool_calls[0] must be a string, not a number",
            ),
            (
                json!([{"tool": "x"}, {"functionCall": {"name": "y"}}]),
                "the list mixes calls of several forms; keep one form",
            ),
            (
                json!([]),
                "the list holds no calls in a form that is known; write {\"calls\": [...]}",
            ),
            (
                json!("x"),
                "a set must be an object, not a string; write {\"calls\": [...]}",
            ),
        ] {
            assert_eq!(told(document), expected);
        }
    }

    #[test]
    fn text_that_is_wrong_has_its_place() {
        let told = |text: &str| CallSet::from_json(text).unwrap_err().to_string();
        assert_eq!(
            told("{\"calls\": [\n  {\"tool\": \"x\",}\n]}"),
            "line 2, column 16: this is not JSON: trailing comma"
        );
        assert!(told("{\"calls\": [], \"calls\": []}").ends_with("duplicate field `calls`"));
        assert!(
            told("{\"calls\": [], \"purpose\": \"comparison\"}").contains("unknown variant `comparison`")
        );
        assert!(told(&"[".repeat(100_000)).contains("recursion limit"));
        assert!(told("{\"calls\": []} {}").contains("trailing characters"));
        assert!(told("  ").contains("the document is empty"));
        assert!(
            CallSet::from_json(b"{\"calls\": [{\"tool\": \"\xff\"}]}")
                .unwrap_err()
                .to_string()
                .contains("byte 21")
        );
        assert!(CallSet::from_json("\u{feff}{\"calls\": []}").is_ok());
        let fault = CallSet::from_json(vec![b' '; MAX_BYTES + 1]).unwrap_err();
        assert!(fault.to_string().contains("at most"));
    }

    /// Who asks is never printed, not even when it is given wrongly.
    #[test]
    fn the_scope_is_not_quoted() {
        assert_eq!(
            told(json!({"calls": [], "scope": "s3cret"})),
            "\"scope\" must be an object, not a string"
        );
    }

    #[test]
    fn the_known_fields_are_those_of_the_types() {
        let set = serde_json::to_value(schemars::schema_for!(CallSet)).unwrap();
        let fields = |schema: &Value| {
            schema["properties"]
                .as_object()
                .unwrap()
                .keys()
                .cloned()
                .collect::<Vec<_>>()
        };
        assert_eq!(fields(&set), SET_FIELDS);
        assert_eq!(fields(&set["$defs"]["Call"]), CALL_FIELDS);
    }
}
