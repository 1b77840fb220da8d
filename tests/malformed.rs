use coeval::CallSet;
use coeval::config::{Config, ConfigFaults};
use proptest::prelude::*;
use proptest::sample::Index;
use serde_json::{Value, json};

const REFERENCE: &str = include_str!("../src/config/reference.yaml");

fn config(bytes: &[u8]) -> Result<Config, ConfigFaults> {
    Config::parse("t.yaml", bytes, &|name| {
        (name.len() % 2 == 0).then(|| format!("value of {name}: ["))
    })
}

/// Whatever is told must have a place in the file and words; whatever is accepted must be usable.
fn read_config(bytes: &[u8]) {
    match config(bytes) {
        Ok(config) => {
            for tool in &config.tools {
                let spec = tool.spec();
                assert!(!spec.name.is_empty());
                assert!(spec.input_schema.is_some());
            }
        }
        Err(faults) => {
            let lines = bytes.split(|byte| *byte == b'\n').count();
            assert!(faults.iter().count() > 0);
            for fault in &faults {
                assert!(!fault.message().is_empty());
                assert!(fault.line().is_none_or(|line| line <= lines + 1), "{fault}");
            }
            assert!(!faults.to_string().is_empty());
        }
    }
}

fn read_set(bytes: &[u8]) -> Option<CallSet> {
    match CallSet::from_json(bytes) {
        Ok(set) => {
            // What was read can be written and read again.
            let again = CallSet::from_json(serde_json::to_vec(&set).unwrap()).unwrap();
            assert_eq!(again, set);
            Some(set)
        }
        Err(fault) => {
            assert!(!fault.message().is_empty());
            assert!(
                fault.to_string().len() < 100_000,
                "a fault is a line, not the file"
            );
            None
        }
    }
}

/// One small change somewhere: what a slip, a bad merge or a cut-off write does to a file.
fn changed(text: &str, at: &Index, other: &Index, change: u8, byte: u8) -> Vec<u8> {
    let mut bytes = text.as_bytes().to_vec();
    let (at, other) = (at.index(bytes.len()), other.index(bytes.len()));
    match change {
        0 => bytes[at] = byte,
        1 => bytes.truncate(at),
        2 => drop(bytes.drain(at.min(other)..at.max(other))),
        3 => {
            let piece = bytes[at.min(other)..at.max(other)].to_vec();
            bytes.splice(at..at, piece);
        }
        4 => bytes.insert(at, 0),
        _ => {
            let indicators = b"{}[]:,\"'#&*!|>-?%@`\n\t $";
            bytes[at] = indicators[byte as usize % indicators.len()];
        }
    }
    bytes
}

fn arbitrary_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::Bool),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        ".{0,8}".prop_map(Value::String),
        prop::sample::select(vec![
            "tool_use",
            "function_call",
            "function",
            "max_tokens",
            "{{c1.a}}"
        ])
        .prop_map(Value::from),
    ];
    let key = prop_oneof![
        ".{0,6}",
        prop::sample::select(vec![
            "calls",
            "tool",
            "arguments",
            "id",
            "after",
            "content",
            "type",
            "name",
            "input",
            "tool_calls",
            "function",
            "function_call",
            "output",
            "call_id",
            "parts",
            "functionCall",
            "args",
            "candidates",
            "choices",
            "message",
            "messages",
            "role",
            "stop_reason",
            "scope",
            "earlier",
            "compare",
            "known",
            "status",
            "custom",
        ])
        .prop_map(str::to_owned),
    ];
    leaf.prop_recursive(6, 96, 6, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..6).prop_map(Value::Array),
            prop::collection::vec((key.clone(), inner), 0..6)
                .prop_map(|fields| Value::Object(fields.into_iter().collect())),
        ]
    })
}

fn messages() -> Vec<Value> {
    let calls =
        json!([{"id": "1", "type": "function", "function": {"name": "x", "arguments": "{\"a\": 1}"}}]);
    vec![
        json!({"question": "?", "purpose": "compare", "calls": [{"id": "c1", "tool": "x", "arguments": {"a": [1, "2"]}, "after": []}],
               "called": ["y"], "known": [1], "compare": [["c1", 0]], "require": "comparable", "scope": {"t": 1}, "onGuess": "check"}),
        json!({"role": "assistant", "content": [{"type": "tool_use", "id": "1", "name": "x", "input": {"a": 1}}]}),
        json!({"choices": [{"finish_reason": "tool_calls", "message": {"tool_calls": calls}}]}),
        json!({"output": [{"type": "function_call", "call_id": "1", "name": "x", "arguments": "{}"}]}),
        json!({"candidates": [{"content": {"parts": [{"functionCall": {"name": "x", "args": {}}}]}}]}),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn arbitrary_bytes_are_answered(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
        read_config(&bytes);
        read_set(&bytes);
    }

    #[test]
    fn arbitrary_text_is_answered(text in "([ \n\t]|[a-z]{1,4}|[-:,\\[\\]{}\"'|>&*!#%$?@`~0-9.]|\\PC){0,120}") {
        read_config(text.as_bytes());
        read_set(text.as_bytes());
    }

    #[test]
    fn a_damaged_configuration_is_answered(at: Index, other: Index, change in 0..6u8, byte: u8) {
        read_config(&changed(REFERENCE, &at, &other, change, byte));
    }

    #[test]
    fn a_damaged_set_or_message_is_answered(which: Index, at: Index, other: Index, change in 0..6u8, byte: u8) {
        let messages = messages();
        let text = which.get(&messages).to_string();
        read_set(&changed(&text, &at, &other, change, byte));
    }

    #[test]
    fn arbitrary_json_is_answered(document in arbitrary_json()) {
        read_set(document.to_string().as_bytes());
        // YAML is nearly a superset of JSON.
        read_config(document.to_string().as_bytes());
    }

    /// A well-formed value where it isn't expected, under every field of the reference file.
    #[test]
    fn any_value_in_any_field_is_answered(line: Index, value in arbitrary_json()) {
        let lines: Vec<&str> = REFERENCE.lines().collect();
        let fields: Vec<usize> = (0..lines.len()).filter(|index| lines[*index].contains(": ")).collect();
        let index = fields[line.index(fields.len())];
        let (field, _) = lines[index].split_once(": ").unwrap();
        let replaced = format!("{field}: {value}");
        let mut lines = lines;
        lines[index] = &replaced;
        read_config(lines.join("\n").as_bytes());
    }

    /// Every slot stays: as many calls come out as went in, in their order, whatever their ids and arguments are.
    #[test]
    fn no_call_is_lost_on_the_way_in(calls in prop::collection::vec((prop::option::of("[ab]?"), "[xy]", ".{0,6}"), 1..40)) {
        let blocks: Vec<_> = calls.iter().map(|(id, tool, input)| json!({"type": "tool_use", "id": id, "name": tool, "input": input})).collect();
        let functions: Vec<_> = calls.iter().map(|(id, tool, input)| json!({"id": id, "function": {"name": tool, "arguments": input}})).collect();
        let parts: Vec<_> = calls.iter().map(|(id, tool, input)| json!({"functionCall": {"id": id, "name": tool, "args": input}})).collect();
        let own: Vec<_> = calls.iter().map(|(id, tool, input)| json!({"id": id, "tool": tool, "arguments": input})).collect();
        for document in [json!({"content": blocks}), json!({"tool_calls": functions}), json!({"parts": parts}), json!({"calls": own})] {
            let set = CallSet::from_json(document.to_string()).unwrap();
            prop_assert_eq!(set.calls.len(), calls.len());
            for (call, (id, tool, input)) in set.calls.iter().zip(&calls) {
                prop_assert_eq!(&*call.id, id.as_deref().unwrap_or(""));
                prop_assert_eq!(&*call.tool, tool.as_str());
                prop_assert_eq!(&call.arguments, &coeval::call::Arguments::from(input.as_str()));
            }
        }
    }
}

#[test]
fn ten_thousand_calls_are_a_set() {
    let calls: Vec<_> = (0..10_000)
        .map(|n| json!({"id": "same", "tool": "t", "arguments": {"n": n}}))
        .collect();
    let set = read_set(json!({"calls": calls}).to_string().as_bytes()).unwrap();
    assert_eq!(set.calls.len(), 10_000);
    assert_eq!(read_set(b"{\"calls\": []}").unwrap().calls.len(), 0);
}

/// Deep and long input is refused in no time and without using up the stack.
#[test]
fn depth_and_length_are_bounded() {
    let deep = 20_000;
    for text in [
        "[".repeat(deep),
        "{\"a\":".repeat(deep),
        format!(
            "{{\"calls\": [{{\"tool\": \"t\", \"arguments\": {}{}}}]}}",
            "[".repeat(deep),
            "]".repeat(deep)
        ),
        "- ".repeat(deep),
        (0..2_000).map(|n| format!("{}a:\n", " ".repeat(n))).collect(),
        format!("a: {}", "&a ".repeat(deep)),
        format!("a: {}\n", "!".repeat(deep)),
        format!("kind: {}\n", "x".repeat(3 << 20)),
        format!("{}: 1\n", "x".repeat(3 << 20)),
        format!("kind: tool\nname: \"{}\"\n", "\\n".repeat(deep)),
        format!("kind: tool\nname: ${{{}}}\n", "x".repeat(deep)),
        "---\n".repeat(deep),
        "a: 1\n".repeat(deep),
        "x".repeat(5 << 20),
    ] {
        read_config(text.as_bytes());
        assert!(read_set(text.as_bytes()).is_none());
    }
    // The text of arguments is JSON of its own, and no deeper.
    let text = json!({"calls": [{"tool": "t", "arguments": "[".repeat(deep)}]}).to_string();
    let set = CallSet::from_json(text).unwrap();
    assert!(matches!(
        set.calls[0].arguments,
        coeval::call::Arguments::Invalid { .. }
    ));
}

#[test]
fn text_that_is_no_utf8_or_holds_nul_is_told_as_that() {
    for (bytes, expected) in [
        (
            &b"kind: tool\nname: \xff\n"[..],
            "t.yaml:2:7: the file is not UTF-8 from here on; save it as UTF-8",
        ),
        (b"\xff\xfek\0i\0", "t.yaml: the file is UTF-16; save it as UTF-8"),
        (
            b"kind: tool\nname: a\0b\n",
            "t.yaml:2:8: the file holds a NUL character",
        ),
    ] {
        assert_eq!(config(bytes).unwrap_err().to_string(), expected);
    }
    assert!(CallSet::from_json(b"{\"calls\": [{\"tool\": \"a\0b\"}]}").is_err());
    let set = CallSet::from_json(br#"{"calls": [{"tool": "a\u0000b"}]}"#).unwrap();
    assert_eq!(
        &*set.calls[0].tool, "a\0b",
        "an escaped NUL is a character like others"
    );
}
