//! What is told without running anything: `coeval plan`, `check` and `classify`.

use serde_json::json;

use super::{Folder, Ran, SLOW};

// ===== plan =====

#[test]
fn a_plan_tells_every_reason_and_runs_nothing() {
    let folder = Folder::with_henderson();
    let text = folder.run("plan henderson/lookup.json").exits(0);
    text.prints(&[
        "dependency",
        "concurrent_precondition",
        "placeholder: {{c1.account_id}}",
        "guess: order_id",
    ]);
    let answer = folder
        .run("plan --format json henderson/lookup.json")
        .exits(0)
        .json();
    let fields: Vec<_> = answer.as_object().unwrap().keys().collect();
    assert_eq!(fields, ["decision", "plan"]);
    assert_eq!(answer["decision"]["reason"], "dependency");
    assert_eq!(answer["plan"]["stages"], json!([[0, 1, 2]]));
    let atlas = folder
        .run("plan --format json --policy atlas henderson/lookup.json")
        .exits(0)
        .json();
    assert_eq!(atlas["plan"]["stages"], json!([[0], [1], [2]]));

    folder.write("tools.yaml", SLOW);
    folder.write(
        "slow.json",
        json!({"calls": [{"tool": "count_forever"}]}).to_string(),
    );
    // It ends, so it was not run.
    folder.run("plan slow.json").exits(0).prints(&["count_forever"]);
}

#[test]
fn a_plan_with_a_call_that_would_not_run_exits_1() {
    let folder = Folder::with_henderson();
    let calls = json!([{"tool": "nothing"}, {"tool": "get_contract", "arguments": {"account": "x"}}]);
    folder.write("henderson/bad.json", json!({"calls": calls}).to_string());
    folder.run("plan henderson/bad.json").exits(1);
    let ran = folder.run("plan --format json henderson/bad.json").exits(1);
    ran.says(&["call 0", "\"nothing\"", "call 1", "account_id"]);
    assert!(ran.json()["plan"].is_object());
}

// ===== check =====

#[test]
fn check_tells_what_each_tool_was_found_to_be() {
    let folder = Folder::with_henderson();
    let text = folder.run("check --config henderson").exits(0);
    text.prints(&[
        "get_contract",
        "read (from its statement)",
        "threshold_cents",
        "(derived)",
        "readOnlyHint",
    ]);
    text.prints(&["crm, 2 at once, 20 calls per 1000 ms"]);
    let found = folder
        .run("check --config henderson --format json")
        .exits(0)
        .json();
    let tool = |name: &str| {
        let tools = found["tools"].as_array().unwrap();
        tools
            .iter()
            .find(|tool| tool["name"] == name)
            .unwrap_or_else(|| panic!("no {name}"))
            .clone()
    };
    let status = tool("get_order_status");
    assert_eq!(status["preconditions"], json!(["list_orders"]));
    assert_eq!(status["timeoutMs"], 5000);
    assert_eq!([&status["effect"], &status["effectFrom"]], ["read", "derived"]);
    assert_eq!(status["hints"]["readOnlyHint"], true);
    assert_eq!(status["source"], "atlas");
    assert_eq!(
        status["dependency"],
        json!({"name": "atlas", "allowance": 8, "quota": null})
    );
    let card = tool("get_customer_card");
    assert_eq!(card["asOfField"], "copied_at");
    assert_eq!(
        card["dependency"]["quota"],
        json!({"limit": 20, "perMs": 1000, "burst": 5})
    );
    assert_eq!(
        card["outputFields"][0],
        json!({"name": "account_id", "origin": "derived"})
    );
}

#[test]
fn check_tells_what_can_t_be_proved() {
    let folder = Folder::with_henderson();
    let tools = [
        "kind: tool\nname: some_orders\ntype: sqlite-sql\nsource: atlas\ndescription: Some.\n\
         statement: SELECT order_id, total_cents FROM orders LIMIT 3\n",
        "kind: tool\nname: any_order\ntype: sqlite-sql\nsource: atlas\ndescription: Any.\n\
         statement: SELECT order_id FROM orders ORDER BY random()\n",
        "kind: tool\nname: first_orders\ntype: sqlite-sql\nsource: atlas\ndescription: The first.\n\
         statement: SELECT order_id FROM orders ORDER BY order_id LIMIT 3\n",
        "kind: tool\nname: close_ticket\ntype: sqlite-sql\nsource: atlas\ndescription: Closes.\n\
         statement: UPDATE tickets SET closed_on = '2026-11-30' WHERE ticket_id = 'T-2001'\n",
        "kind: coordination\ntool: first_orders\nasOf: {field: updated_at}\noutputFields: [order_id]\n",
    ];
    folder.write("henderson/more.yaml", tools.join("---\n"));
    let ran = folder.run("check --config henderson --format json").exits(0);
    let found = ran.json();
    let doubts = |name: &str| {
        let tools = found["tools"].as_array().unwrap();
        let tool = tools
            .iter()
            .find(|tool| tool["name"] == name)
            .unwrap_or_else(|| panic!("no {name}"));
        tool["cannotProve"].to_string()
    };
    assert!(
        doubts("some_orders").contains("LIMIT"),
        "{}",
        doubts("some_orders")
    );
    assert!(doubts("any_order").contains("random"), "{}", doubts("any_order"));
    assert_eq!(doubts("first_orders"), "[]");
    let tools = found["tools"].as_array().unwrap();
    let write = tools.iter().find(|tool| tool["name"] == "close_ticket").unwrap();
    assert_eq!(
        [&write["effect"], &write["hints"]["readOnlyHint"]],
        [&json!("write"), &json!(false)]
    );
    // A warning is no fault, and is told on stderr and in the answer.
    ran.says(&["warning:", "updated_at"]);
    let warnings = found["warnings"].to_string();
    assert!(warnings.contains("updated_at"), "{warnings}");
    folder
        .run("check --config henderson")
        .exits(0)
        .prints(&["not proved", "LIMIT", "write, runs alone"]);
}

#[test]
fn check_needs_a_configuration() {
    Folder::new()
        .run("check")
        .refuses(&["coeval.yaml", "tools.yaml", "--config"]);
    Folder::new().run("check --config .").refuses(&["no .yaml"]);
}

// ===== classify =====

#[test]
fn a_question_is_classified() {
    let folder = Folder::new();
    let ask = |line: &[&str]| Ran::from(folder.command(line).output().expect("the command starts"));
    let text = ask(&["classify", "Is Henderson's discount being applied?"]).exits(0);
    assert!(text.stdout.starts_with("compare"), "{}", text.stdout);
    let answer = ask(&[
        "classify",
        "--format",
        "json",
        "List all open orders for vendor 302",
    ])
    .exits(0)
    .json();
    assert_eq!(answer["purpose"], "report");
    assert!(
        answer["confidence"]
            .as_f64()
            .is_some_and(|sure| (0.5..=1.0).contains(&sure))
    );
    let fields: Vec<_> = answer.as_object().unwrap().keys().collect();
    assert_eq!(fields, ["purpose", "confidence", "because"]);

    let questions = "How many orders are open?\n\nDoes the invoice match the order?\n";
    let lines = folder
        .feed("classify --format json -", questions)
        .exits(0)
        .json_lines();
    let purposes: Vec<_> = lines.iter().map(|answer| &answer["purpose"]).collect();
    assert_eq!(purposes, ["report", "compare"]);
    folder.feed("classify -", b"\xff\n").exits(2).says(&["UTF-8"]);
    folder.run("classify").refuses(&["<QUESTION>"]);
}
