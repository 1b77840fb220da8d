//! The forms in which providers send a model's calls.

use std::sync::Arc;

use serde_json::{Map, Value};

use super::{SetFault, check_set};
use crate::call::{Arguments, Call, CallSet, kind_of};

/// A provider's form of a message, and how much of it was given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    /// `content` with blocks, perhaps `stop_reason`.
    Anthropic,
    /// `choices`.
    Completion,
    /// `message` with `finish_reason`.
    Choice,
    /// `tool_calls`.
    OpenAi,
    /// `output`.
    Response,
    /// One item of `output`.
    ResponseItem,
    /// `candidates`.
    Gemini,
    /// `content` with `parts`, and `finishReason`.
    Candidate,
    /// `parts`.
    Content,
}

/// Which field makes which form.
const FORMS: [(&str, Form); 7] = [
    ("choices", Form::Completion),
    ("message", Form::Choice),
    ("tool_calls", Form::OpenAi),
    ("function_call", Form::OpenAi),
    ("output", Form::Response),
    ("candidates", Form::Gemini),
    ("parts", Form::Content),
];

/// What a model says when it stopped before it had said all, or was made to.
const CUT_OFF: [&str; 4] = [
    "max_tokens",
    "length",
    "model_context_window_exceeded",
    "incomplete",
];
const BROKEN_OFF: [&str; 9] = [
    "content_filter",
    "refusal",
    "safety",
    "recitation",
    "blocklist",
    "prohibited_content",
    "spii",
    "malformed_function_call",
    "failed",
];

impl Form {
    /// The provider's form that an object has; `None` is a set.
    pub(super) fn of(fields: &Map<String, Value>) -> Result<Option<Self>, SetFault> {
        let mut found: Option<(&str, Option<Self>)> = fields.contains_key("calls").then_some(("calls", None));
        let mut seen = |field: &'static str, form: Self| match found {
            Some((_, Some(known))) if known == form => Ok(()),
            Some((other, _)) => {
                let message =
                    format!("it has {other:?} and {field:?}, and can't be told apart from two things");
                Err(SetFault::new(message).help("keep one of them"))
            }
            None => {
                found = Some((field, Some(form)));
                Ok(())
            }
        };
        for (field, form) in FORMS {
            // Providers' libraries print what isn't there as null.
            if fields.get(field).is_some_and(|value| !value.is_null()) {
                seen(field, form)?;
            }
        }
        match fields.get("content") {
            // OpenAI's messages have a content beside their calls.
            Some(Value::Object(content)) if content.contains_key("parts") => {
                seen("content", Self::Candidate)?
            }
            Some(Value::Array(blocks)) if blocks.iter().any(|block| block["type"] == "tool_use") => {
                seen("content", Self::Anthropic)?;
            }
            Some(Value::Array(_)) if fields.contains_key("stop_reason") => seen("content", Self::Anthropic)?,
            _ => {}
        }
        if fields.get("type").is_some_and(|of| of == "function_call") {
            seen("type", Self::ResponseItem)?;
        }
        if fields.get("messages").is_some_and(Value::is_array) {
            let message = "it is a whole conversation, of which only the last message can be run";
            return Err(SetFault::new(message).help("give the last message of \"messages\" alone"));
        }
        match found {
            Some((_, form)) => Ok(form),
            None if fields.contains_key("role") => Err(no_calls("the message")),
            None => Ok(None),
        }
    }

    /// The set that a message of this form asks for.
    pub(super) fn message(self, mut fields: Map<String, Value>, path: &str) -> Result<CallSet, SetFault> {
        for field in ["stop_reason", "finish_reason", "finishReason", "status"] {
            not_cut_off(&fields, field, path)?;
        }
        let mut take = |field: &str| fields.remove(field).unwrap_or_default();
        match self {
            Self::Anthropic => set(
                blocks(array(take("content"), path, "content")?, path, "content")?,
                path,
            ),
            Self::Completion => {
                let choice = only(array(take("choices"), path, "choices")?, path, "choices")?;
                Self::Choice.message(choice, "choices[0]")
            }
            Self::Choice => match take("message") {
                Value::Object(message) => Self::OpenAi.message(message, &format!("{path}.message")),
                other => Err(SetFault::new(format!(
                    "{path}.message must be an object, not {}",
                    kind_of(&other)
                ))),
            },
            Self::OpenAi => {
                let mut calls = match take("tool_calls") {
                    Value::Null => Vec::new(),
                    list => tool_calls(array(list, path, "tool_calls")?, path, "tool_calls")?,
                };
                if let Value::Object(function) = take("function_call") {
                    calls.push(function_call(
                        function,
                        "",
                        &format!("{path}.function_call"),
                        "arguments",
                    )?);
                }
                set(calls, path)
            }
            Self::Response => set(
                output(array(take("output"), path, "output")?, path, "output")?,
                path,
            ),
            Self::ResponseItem => set(vec![response_item(fields, path)?], path),
            Self::Gemini => {
                let candidate = only(array(take("candidates"), path, "candidates")?, path, "candidates")?;
                Self::Candidate.message(candidate, "candidates[0]")
            }
            Self::Candidate => match take("content") {
                Value::Object(content) => Self::Content.message(content, &format!("{path}.content")),
                other => Err(SetFault::new(format!(
                    "{path}.content must be an object, not {}",
                    kind_of(&other)
                ))),
            },
            Self::Content => set(parts(array(take("parts"), path, "parts")?, path, "parts")?, path),
        }
    }
}

/// The calls of a bare list: of a set, or of one of the providers' lists.
pub(super) fn list(items: Vec<Value>) -> Result<CallSet, SetFault> {
    let has = |test: &dyn Fn(&Value) -> bool| items.iter().any(test);
    let kinds = [
        has(&|item| item.get("tool").is_some()),
        has(&|item| item["type"] == "tool_use"),
        has(&|item| item["type"] == "function" || item["type"] == "custom"),
        has(&|item| item["type"] == "function_call" || item["type"] == "custom_tool_call"),
        has(&|item| function_of(item).is_some()),
    ];
    let path = "the list";
    match kinds {
        [true, false, false, false, false] => {
            let fields = Map::from_iter([("calls".to_owned(), Value::Array(items))]);
            check_set(&fields)?;
            Ok(serde_json::from_value(Value::Object(fields))?)
        }
        [false, true, false, false, false] => set(blocks(items, "", "")?, path),
        [false, false, true, false, false] => set(tool_calls(items, "", "")?, path),
        [false, false, false, true, false] => set(output(items, "", "")?, path),
        [false, false, false, false, true] => set(parts(items, "", "")?, path),
        [false, false, false, false, false] => {
            Err(SetFault::new("the list holds no calls in a form that is known")
                .help(r#"write {"calls": [...]}"#))
        }
        _ => Err(SetFault::new("the list mixes calls of several forms").help("keep one form")),
    }
}

fn no_calls(path: &str) -> SetFault {
    SetFault::new(format!("{path} asks for no tool: there is nothing to run"))
}

fn set(calls: Vec<Call>, path: &str) -> Result<CallSet, SetFault> {
    if calls.is_empty() {
        Err(no_calls(path))
    } else {
        Ok(CallSet::new(calls))
    }
}

fn not_cut_off(fields: &Map<String, Value>, field: &str, path: &str) -> Result<(), SetFault> {
    let Some(reason) = fields.get(field).and_then(Value::as_str) else {
        return Ok(());
    };
    let plain = reason.to_ascii_lowercase();
    if CUT_OFF.contains(&plain.as_str()) {
        let message = format!("{path} was cut off ({field}: {reason:?}), so none of its calls may be run");
        return Err(SetFault::new(message).help("let the model say it again, with room for more tokens"));
    }
    if BROKEN_OFF.contains(&plain.as_str()) {
        let message = format!("{path} was broken off ({field}: {reason:?}), so none of its calls may be run");
        return Err(SetFault::new(message).help("ask the model again"));
    }
    Ok(())
}

fn array(value: Value, path: &str, field: &str) -> Result<Vec<Value>, SetFault> {
    match value {
        Value::Array(items) => Ok(items),
        other => Err(SetFault::new(format!(
            "\"{field}\" of {path} must be an array, not {}",
            kind_of(&other)
        ))),
    }
}

/// The one alternative of a list of them.
fn only(mut items: Vec<Value>, path: &str, field: &str) -> Result<Map<String, Value>, SetFault> {
    match (items.len(), items.pop()) {
        (1, Some(Value::Object(fields))) => Ok(fields),
        (1, Some(other)) => Err(SetFault::new(format!(
            "{field}[0] must be an object, not {}",
            kind_of(&other)
        ))),
        (0, _) => Err(no_calls(path)),
        (count, _) => {
            let message = format!("\"{field}\" holds {count} alternatives, of which only one can be run");
            Err(SetFault::new(message).help("give one of them alone"))
        }
    }
}

/// Where the item stands, for messages.
fn at(path: &str, field: &str, index: usize) -> String {
    match (path, field) {
        (_, "") => format!("the list's item {index}"),
        ("the message", field) => format!("{field}[{index}]"),
        (path, field) => format!("{path}.{field}[{index}]"),
    }
}

/// Each item with its path, as an object.
fn objects<'a>(
    items: Vec<Value>,
    path: &'a str,
    field: &'a str,
) -> impl Iterator<Item = Result<(String, Map<String, Value>), SetFault>> + 'a {
    items.into_iter().enumerate().map(move |(index, item)| {
        let path = at(path, field, index);
        match item {
            Value::Object(fields) => Ok((path, fields)),
            other => Err(SetFault::new(format!(
                "{path} must be an object, not {}",
                kind_of(&other)
            ))),
        }
    })
}

/// Anthropic's blocks; what isn't `tool_use` is text, thought, or a tool the provider runs itself.
fn blocks(items: Vec<Value>, path: &str, field: &str) -> Result<Vec<Call>, SetFault> {
    let mut calls = Vec::new();
    for item in objects(items, path, field) {
        let (path, mut block) = item?;
        if block.get("type").is_some_and(|of| of == "tool_use") {
            let id = identifier(block.remove("id"), &path)?;
            calls.push(function_call(block, &id, &path, "input")?);
        }
    }
    Ok(calls)
}

/// OpenAI's `tool_calls`.
fn tool_calls(items: Vec<Value>, path: &str, field: &str) -> Result<Vec<Call>, SetFault> {
    let mut calls = Vec::new();
    for item in objects(items, path, field) {
        let (path, mut call) = item?;
        let id = identifier(call.remove("id"), &path)?;
        match (call.remove("function"), call.remove("custom")) {
            (Some(Value::Object(function)), _) => {
                calls.push(function_call(
                    function,
                    &id,
                    &format!("{path}.function"),
                    "arguments",
                )?);
            }
            (_, Some(Value::Object(custom))) => {
                calls.push(free_text(custom, &id, &format!("{path}.custom"))?);
            }
            _ => return Err(SetFault::new(format!("{path} has no \"function\""))),
        }
    }
    Ok(calls)
}

/// The items of an OpenAI response; what is no call is text, reasoning, or a tool the provider runs itself.
fn output(items: Vec<Value>, path: &str, field: &str) -> Result<Vec<Call>, SetFault> {
    let mut calls = Vec::new();
    for item in objects(items, path, field) {
        let (path, mut item) = item?;
        match item.get("type").and_then(Value::as_str) {
            Some("function_call") => calls.push(response_item(item, &path)?),
            Some("custom_tool_call") => {
                let id = identifier(item.remove("call_id"), &path)?;
                calls.push(free_text(item, &id, &path)?);
            }
            _ => {}
        }
    }
    Ok(calls)
}

/// One call of an OpenAI response. Its results are paired by `call_id`; `id` names the item only.
fn response_item(mut item: Map<String, Value>, path: &str) -> Result<Call, SetFault> {
    not_cut_off(&item, "status", path)?;
    let id = identifier(item.remove("call_id"), path)?;
    function_call(item, &id, path, "arguments")
}

/// Gemini's parts; what has no call is text or thought.
fn parts(items: Vec<Value>, path: &str, field: &str) -> Result<Vec<Call>, SetFault> {
    let mut calls = Vec::new();
    for (index, item) in items.into_iter().enumerate() {
        if let Some(function) = function_of(&item) {
            let path = format!("{}.functionCall", at(path, field, index));
            let mut function = function.clone();
            let id = identifier(function.remove("id"), &path)?;
            calls.push(function_call(function, &id, &path, "args")?);
        }
    }
    Ok(calls)
}

/// The call in a Gemini part, as the API or as its Python library spells it.
fn function_of(part: &Value) -> Option<&Map<String, Value>> {
    part.get("functionCall")
        .or_else(|| part.get("function_call"))?
        .as_object()
}

/// A provider's id: text, or nothing.
fn identifier(id: Option<Value>, path: &str) -> Result<Arc<str>, SetFault> {
    match id.unwrap_or_default() {
        Value::Null => Ok("".into()),
        Value::String(id) => Ok(id.into()),
        other => Err(SetFault::new(format!(
            "the id of {path} must be a string, not {}",
            kind_of(&other)
        ))),
    }
}

fn name(function: &mut Map<String, Value>, path: &str) -> Result<Arc<str>, SetFault> {
    match function.remove("name") {
        Some(Value::String(name)) => Ok(name.into()),
        Some(other) => Err(SetFault::new(format!(
            "the name of {path} must be a string, not {}",
            kind_of(&other)
        ))),
        None => Err(SetFault::new(format!("{path} has no \"name\""))),
    }
}

fn function_call(
    mut function: Map<String, Value>,
    id: &str,
    path: &str,
    field: &str,
) -> Result<Call, SetFault> {
    let tool = name(&mut function, path)?;
    // None at all are none; anything else that is no object is an error of that call alone (DS-22, B68).
    let arguments = function
        .remove(field)
        .map_or_else(Arguments::default, Arguments::from);
    Ok(Call::new(id, tool, arguments))
}

/// A call whose input is text in a grammar of its own: it has its place in the set, and is answered there.
fn free_text(mut custom: Map<String, Value>, id: &str, path: &str) -> Result<Call, SetFault> {
    let tool = name(&mut custom, path)?;
    let why = "expected a JSON object, got the free text of a custom tool".to_owned();
    let arguments = Arguments::Invalid {
        raw: custom.remove("input").unwrap_or_default(),
        why,
    };
    Ok(Call::new(id, tool, arguments))
}
