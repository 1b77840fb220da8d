use super::*;
use serde_json::json;

fn filled(arguments: Value, references: &[(&str, usize)], values: &[Value]) -> Result<Value, CallError> {
    let Value::Object(arguments) = arguments else {
        panic!("arguments are an object")
    };
    let mut references: Vec<_> = references
        .iter()
        .map(|&(head, producer)| Reference {
            consumer: 9,
            producer,
            head: head.into(),
        })
        .collect();
    references.sort_by(|a, b| a.head.cmp(&b.head));
    let filled = substitute(&Arc::new(arguments), &references, |producer| values.get(producer))?;
    Ok(Value::Object((*filled).clone()))
}

fn code(arguments: Value, value: Value) -> ErrorCode {
    filled(arguments, &[("c", 0)], &[value])
        .expect_err("it can't be filled in")
        .code()
}

#[test]
fn a_placeholder_alone_keeps_the_type_and_several_become_text() {
    let values = [json!({"id": 7, "tags": ["a", null], "name": "Ann", "deep": {"x": [{"y": 1.5}]}})];
    let arguments = json!({
        "id": "{{c.id}}",
        "nested": [{"tags": "{{ c.tags }}"}],
        "text": "{{c.name}} has {{c.id}} and {{c.tags}}, {{c.tags[1]}}, {{c.tags.0}}",
        "y": "{{c.deep.x[0].y}}",
        "all": "{{c}}",
        "$15": "$15",
    });
    let expected = json!({
        "id": 7,
        "nested": [{"tags": ["a", null]}],
        "text": "Ann has 7 and [\"a\",null], null, a",
        "y": 1.5,
        "all": values[0],
        "$15": "$15",
    });
    assert_eq!(filled(arguments, &[("c", 0)], &values).unwrap(), expected);
}

#[test]
fn the_only_row_is_reached_by_the_name_of_its_field() {
    let table = |rows: Value| json!({"rows": rows, "rowCount": 1, "truncated": false});
    let arguments = || json!({"x": "{{c.threshold}}"});
    let one = table(json!([{"threshold": 15000, "rowCount": "hidden"}]));
    assert_eq!(
        filled(arguments(), &[("c", 0)], std::slice::from_ref(&one)).unwrap(),
        json!({"x": 15000})
    );
    // What the answer itself has comes first.
    assert_eq!(
        filled(json!({"x": "{{c.rowCount}}"}), &[("c", 0)], &[one]).unwrap(),
        json!({"x": 1})
    );
    for rows in [
        json!([]),
        json!([{"threshold": 1}, {"threshold": 1}]),
        json!([{"other": 1}]),
        json!([7]),
    ] {
        assert_eq!(code(arguments(), table(rows)), ErrorCode::ReferenceUnresolved);
    }
    // A truncated answer may have had more rows.
    let cut = json!({"rows": [{"threshold": 1}], "truncated": true});
    assert_eq!(code(arguments(), cut), ErrorCode::ReferenceUnresolved);
}

#[test]
fn paths_that_lead_nowhere_are_errors_and_say_where_they_end() {
    for path in [
        "missing", "list[2]", "list.x", "list.-1", "id.x", "id[0]", "rows[0]", "deep[0]",
    ] {
        let arguments = json!({"x": format!("a {{{{c.{path}}}}}")});
        let value = json!({"id": 1, "list": [1, 2], "deep": {}});
        assert_eq!(code(arguments, value), ErrorCode::ReferenceUnresolved, "{path}");
    }
    let error = filled(
        json!({"x": "{{c.list[2]}}"}),
        &[("c", 0)],
        &[json!({"list": [1]})],
    )
    .unwrap_err();
    assert!(
        error.message().contains("\"x\"") && error.message().contains("1 items"),
        "{error}"
    );
    let error = filled(json!({"x": "{{c}}"}), &[("c", 5)], &[]).unwrap_err();
    assert_eq!(error.code(), ErrorCode::DependencyFailed);
}

#[test]
fn what_was_put_in_is_never_looked_at_again() {
    let values = [json!("{{d}} {{{{ $1"), json!("secret")];
    let arguments = json!({"alone": "{{c}}", "text": "a {{c}} b", "{{c}}": 1});
    let expected = json!({"alone": "{{d}} {{{{ $1", "text": "a {{d}} {{{{ $1 b", "{{c}}": 1});
    assert_eq!(
        filled(arguments, &[("c", 0), ("d", 1)], &values).unwrap(),
        expected
    );
}

#[test]
fn unknown_heads_and_escapes_are_text() {
    let arguments = json!({"a": "{{{{c}} {{name}} {{c}}", "b": "{{{{"});
    let expected = json!({"a": "{{c}} {{name}} 1", "b": "{{"});
    assert_eq!(filled(arguments, &[("c", 0)], &[json!(1)]).unwrap(), expected);
}

/// Nothing to fill in costs nothing: the same arguments come back.
#[test]
fn arguments_without_braces_come_back_as_they_are() {
    let arguments = Arc::new(ArgumentMap::from_iter([("a".to_owned(), json!({"b": "{ {"}))]));
    assert!(!has_placeholders(&arguments));
    let same = substitute(&arguments, &[], |_| None).unwrap();
    assert!(Arc::ptr_eq(&arguments, &same));
}

/// G12: one large answer, named often, must not fill the memory.
#[test]
fn substitution_is_bounded() {
    let large = json!("x".repeat(1 << 20));
    let often = json!({"x": "{{c}} ".repeat(1000)});
    assert_eq!(
        filled(often, &[("c", 0)], std::slice::from_ref(&large))
            .unwrap_err()
            .code(),
        ErrorCode::InvalidArguments
    );
    let often = json!({"x": vec!["{{c}}"; 1000]});
    assert_eq!(
        filled(often, &[("c", 0)], &[large]).unwrap_err().code(),
        ErrorCode::InvalidArguments
    );
}

#[test]
fn huge_and_odd_strings_are_read_in_linear_time() {
    let size = 1 << 20;
    for odd in [
        "{", "{{", "{{a", "{{\"", "{{\"\\\"", "{{a.", "{{a[", "}}", "{{ ", "{{{{{", "{{a}}{",
    ] {
        let text = odd.repeat(size / odd.len());
        let pieces = placeholder::pieces(&text).count();
        assert!(pieces <= text.len());
    }
}

fn guess(value: Value, producers: usize) -> Guess {
    Guess {
        consumer: 9,
        tool: "get_order".into(),
        field: "order_id".into(),
        value,
        returned_by: "list_orders".into(),
        all_producers: (0..producers).collect(),
        reach: producers,
    }
}

fn check(guess: &Guess, states: &[ProducerState<'_>]) -> GuessCheck {
    check_guess(guess, |producer| states[producer])
}

#[test]
fn a_value_is_found_at_any_depth_and_in_the_union_of_its_producers() {
    let (none, deep) = (json!({"order_id": 1}), json!([{"a": {"order_id": [7, "x"]}}]));
    let states = [ProducerState::Whole(&none), ProducerState::Whole(&deep)];
    assert_eq!(check(&guess(json!(7), 2), &states), GuessCheck::Found);
    assert_eq!(check(&guess(json!("x"), 2), &states), GuessCheck::Found);
    assert!(
        matches!(check(&guess(json!("X"), 2), &states), GuessCheck::NotFound(_)),
        "case counts"
    );
}

/// Integers beyond 2^53 come as strings, and some producers print every number with a point.
#[test]
fn numbers_and_their_text_are_the_same() {
    for (value, returned) in [
        (json!(7), json!("7")),
        (json!("7"), json!(7)),
        (json!(7), json!(7.0)),
        (json!(9_007_199_254_740_993_u64), json!("9007199254740993")),
        (json!("-3"), json!(-3)),
    ] {
        let returned = json!({ "order_id": returned });
        assert_eq!(
            check(&guess(value, 1), &[ProducerState::Whole(&returned)]),
            GuessCheck::Found
        );
    }
    let returned = json!({"order_id": 7.5});
    assert!(matches!(
        check(&guess(json!(7), 1), &[ProducerState::Whole(&returned)]),
        GuessCheck::NotFound(_)
    ));
}

#[test]
fn a_value_that_is_not_there_is_refused_with_its_field_and_their_number() {
    let returned = json!({"rows": [{"order_id": 1}, {"order_id": 2}, {"order_id": 2}, {"order_id": null}]});
    let GuessCheck::NotFound(error) = check(&guess(json!(7), 1), &[ProducerState::Whole(&returned)]) else {
        panic!("7 was not returned")
    };
    assert_eq!(error.code(), ErrorCode::GuessedArgument);
    for part in ["\"order_id\"", "get_order", "list_orders", "2 values", "\"7\""] {
        assert!(error.message().contains(part), "{part}: {error}");
    }
}

/// An empty table with the column says that there are no values; an answer without the field says nothing.
#[test]
fn no_rows_is_an_answer_and_no_field_is_none() {
    let empty = json!({"columns": [{"name": "order_id", "type": "INTEGER"}], "rows": [], "rowCount": 0});
    assert!(matches!(
        check(&guess(json!(7), 1), &[ProducerState::Whole(&empty)]),
        GuessCheck::NotFound(_)
    ));
    for silent in [
        json!([]),
        json!({"rows": []}),
        json!("7"),
        json!({"columns": [{"name": "x"}], "rows": []}),
    ] {
        assert_eq!(
            check(&guess(json!(7), 1), &[ProducerState::Whole(&silent)]),
            GuessCheck::Unverified
        );
    }
}

/// The names of columns are no values of a field called `name`.
#[test]
fn the_description_of_columns_is_not_searched() {
    let returned = json!({"columns": [{"name": "name", "type": "TEXT"}], "rows": [{"name": "Ann"}]});
    let guess = |value| Guess {
        field: "name".into(),
        ..guess(value, 1)
    };
    assert!(matches!(
        check(&guess(json!("name")), &[ProducerState::Whole(&returned)]),
        GuessCheck::NotFound(_)
    ));
    assert_eq!(
        check(&guess(json!("Ann")), &[ProducerState::Whole(&returned)]),
        GuessCheck::Found
    );
}

#[test]
fn what_was_not_seen_whole_proves_nothing() {
    let returned = json!({"order_id": 1});
    let whole = ProducerState::Whole(&returned);
    for other in [ProducerState::Part(&returned), ProducerState::Nothing] {
        assert_eq!(
            check(&guess(json!(7), 2), &[whole, other]),
            GuessCheck::Unverified
        );
    }
    // But what was seen was seen.
    assert_eq!(
        check(
            &guess(json!(1), 2),
            &[ProducerState::Nothing, ProducerState::Part(&returned)]
        ),
        GuessCheck::Found
    );
    // A producer that can't be waited for may have had it.
    let reachable = Guess {
        reach: 1,
        ..guess(json!(7), 2)
    };
    assert_eq!(check(&reachable, &[whole]), GuessCheck::Unverified);
}

#[test]
fn identifiers_are_told_by_their_names() {
    for name in [
        "id",
        "ID",
        "uuid",
        "order_id",
        "ORDER_ID",
        "orderId",
        "api_key",
        "po_no",
        "tax_number",
        "zip_code",
    ] {
        assert!(is_identifier(name), "{name}");
    }
    for name in [
        "status", "paid", "_id", "grid", "GRID", "code", "number", "identity", "", "ä_i",
    ] {
        assert!(!is_identifier(name), "{name}");
    }
}
