use coeval::reading::{ErrorCode, Outcome};
use coeval::registry::RegistryError;
use coeval::tool::{ArgumentMap, Class, Cover, Effect, Keys, PerCall};

use super::*;

fn tool(spec: ToolSpec) -> Tool {
    Tool::from_fn(spec, |value: Value| async move { Ok::<_, CallError>(value) })
}

fn refused(spec: ToolSpec) -> String {
    let registry = registry_of([tool(ToolSpec::read("taken")), tool(ToolSpec::read("other"))]);
    let before = registry.generation();
    let error = registry.register(tool(spec)).unwrap_err().to_string();
    assert_eq!(
        (registry.generation(), registry.names().len()),
        (before, 2),
        "nothing is changed"
    );
    error
}

fn cover(tool: &str) -> Cover {
    Cover {
        tool: tool.into(),
        part: None,
        arguments: Vec::new(),
    }
}

/// What is registered can work: everything else is refused, by name and with the way out.
#[test]
fn what_cannot_work_is_refused() {
    for (spec, said) in [
        (
            ToolSpec::read("taken"),
            "tool \"taken\" is registered already: replace it or choose another name",
        ),
        (ToolSpec::read(""), "\"\" is no name for a tool"),
        (ToolSpec::read("two words"), "\"two words\" is no name for a tool"),
        (
            ToolSpec::read("t").input_schema(json!({"type": "array"})),
            "has to say \"type\": \"object\", not \"array\"",
        ),
        (ToolSpec::read("t").input_schema(json!({})), "not no type"),
        (
            ToolSpec::read("t").input_schema(json!({"type": "object", "required": 7})),
            "is not valid",
        ),
        (
            ToolSpec::read("t")
                .input_schema(json!({"type": "object", "properties": {"a": {"$ref": "http://x.example/s"}}})),
            "references to other documents are not followed",
        ),
        (
            ToolSpec::read("t").preconditions(["t"]),
            "tool \"t\" has to succeed before itself",
        ),
        (
            ToolSpec::read("t").timeout(Duration::ZERO),
            "tool \"t\" may take no time at all",
        ),
        (
            ToolSpec::read("t").covers(cover("absent")),
            "covers \"absent\", which is not registered",
        ),
        (
            ToolSpec::read("t").covers(cover("t")),
            "covers \"t\", which is itself",
        ),
        (
            ToolSpec::read("t").covers(cover("other")).covers(cover("other")),
            "which is covered twice",
        ),
        (
            ToolSpec::write("t").covers(cover("other")),
            "only a read may stand in for reads",
        ),
        (
            ToolSpec::new("t").covers(cover("other")),
            "only a read may stand in for reads",
        ),
        (
            ToolSpec::read("t").covers(Cover {
                part: Some("orders".into()),
                ..cover("other")
            }),
            "a JSON pointer begins with \"/\"",
        ),
        (
            ToolSpec::read("t")
                .input_schema(json!({"type": "object", "properties": {"account_id": {}}}))
                .covers(Cover {
                    arguments: vec![("id".into(), "acount_id".into())],
                    ..cover("other")
                }),
            "bound to \"acount_id\", which is no argument in the schema",
        ),
    ] {
        let error = refused(spec);
        assert!(error.contains(said), "{error}\ndoes not say\n{said}");
    }
    let registry = registry_of([tool(ToolSpec::read("other"))]);
    registry
        .register(tool(ToolSpec::read("snapshot").covers(cover("other"))))
        .unwrap();
    assert_eq!(
        registry.replace(tool(ToolSpec::read(" "))).unwrap_err(),
        RegistryError::BadName(" ".into())
    );
}

#[test]
fn a_schema_made_from_a_type_is_taken() {
    #[derive(serde::Deserialize, schemars::JsonSchema)]
    #[expect(dead_code, reason = "only its schema is wanted")]
    struct Input {
        account_id: String,
        status: Option<Status>,
        limit: Option<u32>,
    }
    #[derive(serde::Deserialize, schemars::JsonSchema)]
    #[serde(rename_all = "snake_case")]
    enum Status {
        Open,
        Closed,
    }
    let registry = registry_of([tool(ToolSpec::read("t").input::<Input>())]);
    let set = CallSet::new([
        Call::new("a", "t", json!({"account_id": "henderson", "status": "open"})),
        Call::new("b", "t", json!({"account_id": "henderson", "status": "gone"})),
        Call::new("c", "t", json!({"status": "open"})),
    ]);
    let resolved = registry.resolve(&set);
    let faults: Vec<_> = resolved
        .iter()
        .map(|resolved| resolved.call.fault.as_ref().map(CallError::code))
        .collect();
    assert_eq!(
        faults,
        [
            None,
            Some(ErrorCode::InvalidArguments),
            Some(ErrorCode::InvalidArguments)
        ]
    );
    assert_eq!(
        &*resolved[0].call.facts.filters,
        ["status".into()],
        "an enum is a filter, never a guess"
    );
}

/// B10, LC-05: an unknown tool is answered with the names there are, and with the one that was perhaps meant.
#[test]
fn an_unknown_tool_is_told_what_there_is() {
    let registry = registry_of(["get_contract", "list_orders"].map(|name| tool(ToolSpec::read(name))));
    let set = CallSet::new([
        Call::new("a", "list_order", json!({})),
        Call::new("b", "zzz", json!({})),
    ]);
    let resolved = registry.resolve(&set);
    let errors: Vec<_> = resolved
        .iter()
        .map(|resolved| resolved.call.fault.clone().unwrap())
        .collect();
    assert_eq!(
        (errors[0].code(), errors[0].outcome()),
        (ErrorCode::UnknownTool, Outcome::UnknownTool)
    );
    assert_eq!(
        errors[0].message(),
        "There is no tool \"list_order\". Did you mean \"list_orders\"? There are: get_contract, list_orders."
    );
    assert_eq!(
        errors[1].message(),
        "There is no tool \"zzz\". There are: get_contract, list_orders."
    );
    assert_eq!(
        (resolved[0].call.facts.class, &*resolved[0].call.facts.dependency),
        (Class::Exclusive, "list_order")
    );
    assert!(resolved[0].tool.is_none());
}

/// However many unknown names come and however many tools there are, the answer is bounded and soon made.
#[test]
fn unknown_tools_by_the_thousand_are_answered_briefly() {
    let registry = registry_of((0..2_000).map(|index| tool(ToolSpec::read(format!("tool_number_{index}")))));
    let set = CallSet::new((0..2_000).map(|index| Call::new("", format!("tool_nomber_{index}"), json!({}))));
    let resolved = registry.resolve(&set);
    assert!(
        resolved[0]
            .call
            .fault
            .as_ref()
            .unwrap()
            .message()
            .contains("Did you mean \"tool_number_0\"?")
    );
    assert!(
        resolved
            .iter()
            .all(|resolved| resolved.call.fault.as_ref().unwrap().message().len() < 600)
    );
}

/// B68, DS-22: arguments that are no object are never replaced by an empty one; an empty text is one.
#[test]
fn arguments_that_are_no_object_are_told_what_the_tool_takes() {
    let schema =
        json!({"type": "object", "required": ["id"], "properties": {"id": {"type": "string"}, "n": {}}});
    let registry = registry_of([
        tool(ToolSpec::read("t").input_schema(schema)),
        tool(ToolSpec::read("free")),
    ]);
    let set = CallSet::new([
        Call::new("a", "t", "not json"),
        Call::new("b", "t", ""),
        Call::new("c", "free", ""),
        Call::new("d", "t", json!({"id": 7})),
    ]);
    let resolved = registry.resolve(&set);
    let told = |index: usize| {
        resolved[index]
            .call
            .fault
            .as_ref()
            .map(|fault| fault.message().to_owned())
    };
    assert_eq!(
        told(0).unwrap(),
        "The arguments of t don't fit: expected a JSON object, got text that is not JSON: expected ident at line 1 \
         column 2. It takes: id (string, required), n."
    );
    assert_eq!(
        resolved[0].call.facts.class,
        Class::Exclusive,
        "DS-01: nobody knows what was meant"
    );
    assert_eq!(
        told(1).unwrap(),
        "The arguments of t don't fit: \"id\" is missing. It takes: id (string, required), n."
    );
    assert_eq!(told(2), None);
    assert_eq!(
        told(3).unwrap(),
        "The arguments of t don't fit: at /id: want string, but got number. It takes: id (string, required), n."
    );
}

/// Arguments that may hold placeholders aren't themselves yet: they are held against the schema when they are.
#[test]
fn arguments_with_placeholders_are_validated_later() {
    let schema = json!({"type": "object", "properties": {"n": {"type": "integer"}, "deep": {}}});
    let registry = registry_of([tool(ToolSpec::read("t").input_schema(schema))]);
    for (arguments, is_faulty) in [
        (json!({"n": "{{c1.n}}"}), false),
        (json!({"n": "x", "deep": [{"a": "see {{c1.n}}"}]}), false),
        (json!({"n": "x", "deep": [{"a": "{c1.n}"}]}), true),
    ] {
        let resolved = registry.resolve(&CallSet::new([Call::new("c", "t", arguments.clone())]));
        assert_eq!(resolved[0].call.fault.is_some(), is_faulty, "{arguments}");
    }
    let filled = json!({"n": "x"});
    let error = registry
        .get("t")
        .unwrap()
        .validate(filled.as_object().unwrap())
        .unwrap_err();
    assert_eq!(error.code(), ErrorCode::InvalidArguments);
}

fn class_of(spec: ToolSpec, arguments: Value) -> (Class, Option<String>) {
    let facts = registered(tool(spec))
        .classify(arguments.as_object().unwrap())
        .facts;
    (facts.class, facts.because.as_deref().map(str::to_owned))
}

/// DS-01: what is missing, errs or panics makes a call exclusive, and asking never brings anything down.
#[test]
fn a_call_that_cannot_be_classified_is_exclusive() {
    fn broken<T: Send + 'static>(_: &ArgumentMap) -> Result<T, String> {
        Err("no idea".into())
    }
    fn panics<T: Send + 'static>(_: &ArgumentMap) -> Result<T, String> {
        panic!("oh")
    }
    let read = || ToolSpec::read("t");
    for (spec, because) in [
        (ToolSpec::new("t"), "its effect is not declared"),
        (
            ToolSpec::new("t").effect(PerCall::decide(broken)),
            "its effect could not be decided: no idea",
        ),
        (
            ToolSpec::new("t").effect(PerCall::decide(panics)),
            "its effect could not be decided: the classifier panicked: oh",
        ),
        (
            read().exclusive(PerCall::decide(broken)),
            "its exclusiveness could not be decided: no idea",
        ),
        (
            read().dependency_per_call(PerCall::decide(broken)),
            "its dependency could not be decided: no idea",
        ),
        (
            read().output_fields_from(PerCall::decide(broken)),
            "its output fields could not be decided: no idea",
        ),
        (
            read().preconditions_per_call(PerCall::decide(broken)),
            "its preconditions could not be decided: no idea",
        ),
        (
            read().timeout_per_call(PerCall::decide(broken)),
            "its timeout could not be decided: no idea",
        ),
        (
            read().keys(PerCall::decide(panics)),
            "its keys could not be decided: the classifier panicked: oh",
        ),
        (
            ToolSpec::write("t").partition_key(PerCall::decide(broken)),
            "its partition key could not be decided: no idea",
        ),
    ] {
        assert_eq!(
            class_of(spec.clone(), json!({})),
            (Class::Exclusive, Some(because.into())),
            "{spec:?}"
        );
    }
    assert_eq!(class_of(read(), json!({})), (Class::Read, None));
    assert_eq!(
        class_of(read().exclusive(true), json!({})),
        (Class::Exclusive, None),
        "that is simply declared"
    );
    assert_eq!(class_of(ToolSpec::write("t"), json!({})), (Class::Write, None));
}

/// DS-02: the same tool may read and write, by its arguments.
#[test]
fn a_call_is_classified_by_its_arguments() {
    let spec = || {
        ToolSpec::new("t").effect(PerCall::decide(|arguments| match arguments["mode"].as_str() {
            Some("get") => Ok(Effect::Read),
            _ => Ok::<_, String>(Effect::Write),
        }))
    };
    assert_eq!(class_of(spec(), json!({"mode": "get"})).0, Class::Read);
    assert_eq!(class_of(spec(), json!({"mode": "set"})).0, Class::Write);
    assert_eq!(
        class_of(spec(), json!({})).0,
        Class::Exclusive,
        "the classifier panicked"
    );
}

/// LC-08: keys are asked only of calls that are reads already; what they are confined to only of the others.
#[test]
fn keys_are_asked_only_of_reads() {
    let spec = |effect| {
        let key = |arguments: &ArgumentMap| Ok::<_, String>(arguments["id"].as_str().unwrap().into());
        ToolSpec::new("t")
            .effect(effect)
            .keys(PerCall::decide(move |arguments| {
                Ok::<_, String>(Keys {
                    reads: vec![key(arguments)?],
                    writes: vec![],
                })
            }))
            .partition_key(PerCall::decide(move |arguments| key(arguments).map(Some)))
    };
    let arguments = json!({"id": "a"});
    let classify = |effect| registered(tool(spec(effect))).classify(arguments.as_object().unwrap());
    let (read, write) = (classify(Effect::Read), classify(Effect::Write));
    assert_eq!((read.keys.reads, read.partition_key), (vec!["a".into()], None));
    assert_eq!((write.keys, write.partition_key), (Keys::NONE, Some("a".into())));
}

#[test]
fn the_facts_of_a_tool_are_shared_if_they_are_fixed() {
    let registry = registry_of([tool(ToolSpec::read("t").source("atlas"))]);
    let set = CallSet::new([
        Call::new("a", "t", json!({})),
        Call::new("b", "t", json!({"x": 1})),
    ]);
    let resolved = registry.resolve(&set);
    assert!(Arc::ptr_eq(&resolved[0].call.facts, &resolved[1].call.facts));
    assert_eq!(
        &*resolved[0].call.facts.dependency, "atlas",
        "a source is a dependency of its own name"
    );
}

/// LC-28: a tool that is taken out while its call runs completes it; a later call is unknown.
#[tokio::test(start_paused = true)]
async fn a_call_keeps_a_tool_that_is_taken_out() {
    let registry = registry_of([sleeper(ToolSpec::read("t"), ms(50), &Gauge::default())]);
    let set = CallSet::new([Call::new("a", "t", json!({}))]);
    let resolved = registry.resolve(&set).remove(0);
    let stack = CallStack::new(Limits::default()).compose(resolved.tool.as_ref().unwrap());
    let running = tokio::spawn(stack.oneshot(CallRequest::new(resolved.call, Arc::new(context(1)), None)));
    settle().await;
    let before = registry.generation();
    assert!(registry.remove("t").is_some() && registry.remove("t").is_none());
    assert_eq!(registry.generation(), before + 1);
    assert_eq!(value(running.await.unwrap()), json!(0));
    assert_eq!(
        registry.resolve(&set)[0].call.fault.as_ref().map(CallError::code),
        Some(ErrorCode::UnknownTool)
    );
}

/// A set is resolved by one and the same table, and a replaced tool has another id (DS-06).
#[test]
fn a_registry_changes_under_its_readers_as_a_whole() {
    let registry = registry_of([tool(ToolSpec::read("a")), tool(ToolSpec::read("b"))]);
    let first = registry.get("a").unwrap().id();
    let old = registry.replace(tool(ToolSpec::write("a"))).unwrap().unwrap();
    assert_eq!((old.id(), old.spec().effect.is_some()), (first, true));
    assert_ne!(registry.get("a").unwrap().id(), first);

    let set =
        CallSet::new((0..64).map(|index| Call::new("", if index % 2 == 0 { "a" } else { "b" }, json!({}))));
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            for round in 0..200 {
                let spec = |name| {
                    if round % 2 == 0 {
                        ToolSpec::read(name)
                    } else {
                        ToolSpec::write(name)
                    }
                };
                registry.replace(tool(spec("a"))).unwrap();
                registry.replace(tool(spec("b"))).unwrap();
            }
        });
        while !writer.is_finished() {
            let resolved = registry.resolve(&set);
            let mut ids: Vec<_> = resolved
                .iter()
                .map(|resolved| resolved.tool.as_ref().unwrap().id())
                .collect();
            ids.sort_unstable();
            ids.dedup();
            assert_eq!(ids.len(), 2, "every call of a tool met the same registration");
        }
    });
}
