//! Configurations that run, over real files.

use coeval::call::{Call, CallSet, Purpose};
use coeval::config::{Assembly, Config, ConfigFaults};
use coeval::coordinator::Coordinator;
use coeval::reading::{ErrorCode, Outcome};
use coeval::report::{CallResult, SetReport, VerdictKind};
use coeval::source::sqlite::{CheckedSql, SqliteOptions, SqliteSource};
use serde_json::{Value, json};

const TOOLS: &str = "
kind: source
name: shop
type: sqlite
database: ${DB}
---
kind: tool
name: get_contract
type: sqlite-sql
source: shop
description: The contract of an account.
parameters:
  - {name: account_id, type: string, description: The account.}
  - {name: tenant, type: integer, fromScope: tenant_id}
statement: SELECT threshold FROM contracts WHERE account_id = $1 AND tenant = $2
---
kind: tool
name: list_orders
type: sqlite-sql
source: shop
description: Orders of an account.
parameters:
  - {name: account_id, type: string, description: The account.}
  - {name: least, type: integer, description: The least total., default: 0, minValue: 0}
  - {name: only, type: array, description: Only these., required: false, items: {name: id, type: integer, description: An id.}}
  - {name: tenant, type: integer, authServices: [{name: login, field: tenant_id}]}
statement: |
  SELECT id, total FROM orders WHERE account_id = $1 AND total >= $2 AND tenant = $4
    AND ($3 IS NULL OR id IN (SELECT value FROM json_each($3))) ORDER BY id
---
kind: tool
name: add_order
type: sqlite-sql
source: shop
description: Adds an order.
parameters:
  - {name: account_id, type: string, description: The account.}
  - {name: total, type: integer, description: The total.}
  - {name: tenant, type: integer, fromScope: tenant_id}
statement: INSERT INTO orders (account_id, total, tenant) VALUES ($1, $2, $3)
---
kind: snapshot
name: get_account
description: Contract and orders of an account as one view.
covers:
  - tool: get_contract
  - {tool: list_orders, part: /orders, arguments: {account_id: account_id, least: least_total}}
---
kind: coordination
tool: get_contract
preconditions: [list_orders]
---
kind: dependency
name: shop
allowance: 3
";

struct Shop {
    _folder: tempfile::TempDir,
    path: String,
}

async fn shop() -> Shop {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("shop.db").display().to_string();
    std::fs::File::create(&path).unwrap();
    let source = SqliteSource::open(SqliteOptions::new("setup", &path)).unwrap();
    for statement in [
        "CREATE TABLE contracts (account_id TEXT, threshold INTEGER, tenant INTEGER)",
        "CREATE TABLE orders (id INTEGER PRIMARY KEY, account_id TEXT, total INTEGER, tenant INTEGER)",
        "INSERT INTO contracts VALUES ('henderson', 15000, 1), ('henderson', 99, 2)",
        "INSERT INTO orders VALUES (1, 'henderson', 9007199254740993, 1), (2, 'henderson', 5, 1), (3, 'henderson', 7, 2)",
    ] {
        let statement = CheckedSql::new(statement, &[""; 0]).unwrap();
        source.write(&statement, &[]).await.unwrap();
    }
    source.shutdown().await;
    Shop {
        _folder: folder,
        path,
    }
}

impl Shop {
    fn config(&self, text: &str) -> Config {
        let config = Config::parse("shop.yaml", text.as_bytes(), &|name| {
            (name == "DB").then(|| self.path.clone())
        });
        config.unwrap_or_else(|faults| panic!("{faults}"))
    }

    async fn build(&self, text: &str) -> Result<Assembly, ConfigFaults> {
        self.config(text).build().await
    }

    async fn coordinator(&self) -> Coordinator {
        let assembly = self
            .build(TOOLS)
            .await
            .unwrap_or_else(|faults| panic!("{faults}"));
        assert_eq!(assembly.warnings, []);
        assembly.coordinator.build()
    }
}

async fn run(coordinator: &Coordinator, calls: Vec<Call>) -> SetReport {
    let mut set = CallSet::new(calls).purpose(Purpose::Compare);
    set.scope.insert("tenant_id".to_owned(), json!(1));
    coordinator.run(set).await.unwrap()
}

fn rows(value: &Value) -> &Value {
    &value["rows"]
}

#[tokio::test]
async fn configured_tools_read_one_view_and_see_only_their_tenant() {
    let shop = shop().await;
    let coordinator = shop.coordinator().await;
    let calls = vec![
        Call::new("a", "list_orders", json!({"account_id": "henderson"})),
        Call::new(
            "b",
            "list_orders",
            json!({"account_id": "henderson", "least": "9007199254740993", "only": null}),
        ),
        Call::new(
            "c",
            "list_orders",
            json!({"account_id": "henderson", "only": [2, "3"]}),
        ),
    ];
    let report = run(&coordinator, calls).await;
    let value = |result: &CallResult| match &result.value {
        Some(value) => rows(value).clone(),
        None => panic!("{:?}", result.error),
    };
    let values: Vec<_> = report.results.iter().map(value).collect();
    let (large, small) = (
        json!({"id": 1, "total": "9007199254740993"}),
        json!({"id": 2, "total": 5}),
    );
    assert_eq!(values, [json!([large, small]), json!([large]), json!([small])]);
    assert_eq!(report.consistency.verdict, VerdictKind::SameView);
    assert!(report.consistency.is_comparable());
}

/// Whatever the model sends, the tenant is the scope's; without one nothing runs.
#[tokio::test]
async fn the_scope_is_neither_given_nor_left_out() {
    let shop = shop().await;
    let coordinator = shop.coordinator().await;
    let call = |arguments: Value| Call::new("c", "list_orders", arguments);
    let report = run(
        &coordinator,
        vec![call(json!({"account_id": "henderson", "tenant": 2}))],
    )
    .await;
    assert_eq!(report.results[0].outcome, Outcome::InvalidArguments);
    let report = coordinator
        .run(CallSet::new([call(json!({"account_id": "henderson"}))]))
        .await
        .unwrap();
    let error = report.results[0].error.as_ref().unwrap();
    assert_eq!(
        (report.results[0].outcome, error.code),
        (Outcome::Refused, ErrorCode::Denied)
    );
    assert_eq!(
        error.message,
        "The tool is bound to tenant_id of the caller's scope, which the caller does not have."
    );
}

#[tokio::test]
async fn a_snapshot_answers_for_the_tools_it_covers_from_one_view() {
    let shop = shop().await;
    let coordinator = shop.coordinator().await;
    let registered = coordinator.registry().get("get_account").unwrap();
    let spec = registered.spec();
    assert_eq!(spec.covers.len(), 2);
    let outputs: Vec<_> = match &spec.output_fields {
        coeval::tool::PerCall::Always(fields) => fields.iter().map(|f| f.name.to_string()).collect(),
        coeval::tool::PerCall::Decide(_) => panic!("they are known"),
    };
    assert_eq!(outputs, ["threshold", "id", "total"], "described by the database");
    let schema = spec.input_schema.as_ref().unwrap();
    let names: Vec<_> = schema["properties"].as_object().unwrap().keys().collect();
    assert_eq!(names, ["account_id", "least_total"]);

    let mut set = CallSet::new([Call::new(
        "s",
        "get_account",
        json!({"account_id": "henderson", "least_total": 6}),
    )]);
    set.scope.insert("tenant_id".to_owned(), json!(1));
    // What is asked of a covered tool is asked of the snapshot.
    let report = coordinator.run(set.clone()).await.unwrap();
    assert_eq!(
        report.results[0].error.as_ref().unwrap().code,
        ErrorCode::PreconditionUnmet
    );
    set.called = vec!["list_orders".into()];
    let report = coordinator.run(set).await.unwrap();
    let result = &report.results[0];
    let value = result
        .value
        .as_ref()
        .unwrap_or_else(|| panic!("{:?}", result.error));
    assert_eq!(rows(&value["get_contract"]), &json!([{"threshold": 15000}]));
    assert_eq!(
        rows(&value["orders"]),
        &json!([{"id": 1, "total": "9007199254740993"}])
    );
    assert!(result.complete && result.view.is_some() && result.as_of.is_some());
}

/// The answer of a snapshot is whole only if each of its parts is.
#[tokio::test]
async fn a_snapshot_is_complete_only_if_every_part_is() {
    let shop = shop().await;
    let text = TOOLS.replace("preconditions: [list_orders]", "timeoutMs: 5000");
    let assembly = shop
        .build(&format!("{text}---\nkind: policy\nmaxRows: 1\n"))
        .await
        .unwrap();
    let coordinator = assembly.coordinator.build();
    let report = run(
        &coordinator,
        vec![Call::new("s", "get_account", json!({"account_id": "henderson"}))],
    )
    .await;
    let result = &report.results[0];
    assert_eq!(result.value.as_ref().unwrap()["orders"]["truncated"], json!(true));
    assert!(!result.complete);
}

#[tokio::test]
async fn a_write_is_a_barrier_and_what_follows_sees_it() {
    let shop = shop().await;
    let coordinator = shop.coordinator().await;
    let orders = |id: &str| Call::new(id, "list_orders", json!({"account_id": "new"}));
    let write = Call::new("w", "add_order", json!({"account_id": "new", "total": "12"}));
    let report = run(&coordinator, vec![orders("a"), write, orders("b")]).await;
    assert_eq!(report.plan.stages, [[0], [1], [2]]);
    let counts: Vec<_> = [0, 2]
        .map(|i| report.results[i].value.as_ref().unwrap()["rowCount"].clone())
        .into();
    assert_eq!(counts, [json!(0), json!(1)]);
    assert_eq!(report.consistency.comparable, Some(false));
}

/// One missing database stops nobody else, and is told.
#[tokio::test]
async fn a_database_that_is_not_there_is_a_warning_and_an_error_of_its_calls() {
    let shop = shop().await;
    let gone = format!(
        "{TOOLS}---\nkind: source\nname: gone\ntype: sqlite\ndatabase: ${{DB}}.gone\n---\nkind: tool\nname: lost\ntype: sqlite-sql\n\
         source: gone\ndescription: d\nstatement: SELECT 1\n"
    );
    let assembly = shop.build(&gone).await.unwrap();
    assert_eq!(assembly.warnings.len(), 1, "{:?}", assembly.warnings);
    assert!(
        assembly.warnings[0]
            .message()
            .contains("what the tools of \"gone\" return is not known")
    );
    let coordinator = assembly.coordinator.build();
    let calls = vec![
        Call::new("a", "lost", json!({})),
        Call::new("b", "list_orders", json!({"account_id": "henderson"})),
    ];
    let report = run(&coordinator, calls).await;
    assert_eq!(
        report.results[0].error.as_ref().unwrap().code,
        ErrorCode::ViewUnavailable
    );
    assert_eq!(report.results[1].outcome, Outcome::Ok);
}

/// A statement that the database refuses is loaded as elsewhere, and told before it is called.
#[tokio::test]
async fn a_statement_that_the_database_refuses_is_a_warning_and_an_error_of_its_calls() {
    let shop = shop().await;
    let wrong = format!(
        "{TOOLS}---\nkind: tool\nname: wrong\ntype: sqlite-sql\nsource: shop\ndescription: d\nstatement: SELECT * FROM nowhere\n"
    );
    let assembly = shop.build(&wrong).await.unwrap();
    let told: Vec<_> = assembly.warnings.iter().map(ToString::to_string).collect();
    assert!(
        told.len() == 1 && told[0].contains("tool \"wrong\": ") && told[0].contains("nowhere"),
        "{told:?}"
    );
    let report = run(
        &assembly.coordinator.build(),
        vec![Call::new("a", "wrong", json!({}))],
    )
    .await;
    assert_eq!(
        report.results[0].error.as_ref().unwrap().code,
        ErrorCode::StatementFailed
    );
}

#[tokio::test]
async fn a_path_that_can_not_be_used_is_told_without_naming_it() {
    let config = Config::parse(
        "t.yaml",
        b"kind: source\nname: s\ntype: sqlite\ndatabase: ${P}\n",
        &|_| Some("file:s3cret?immutable=1".to_owned()),
    )
    .unwrap();
    let faults = config.build().await.unwrap_err().to_string();
    assert!(
        faults.starts_with("t.yaml:2:7: the database of \"s\" can't be used: it is a URI"),
        "{faults}"
    );
    assert!(!faults.contains("s3cret"), "{faults}");
}

#[tokio::test]
async fn limits_and_settings_are_those_of_the_configuration() {
    let shop = shop().await;
    let coordinator = shop.coordinator().await;
    let limits = coordinator.limits();
    let free = |name: &str| {
        let dependency = limits.of(&name.into());
        let permits: Vec<_> = std::iter::from_fn(|| dependency.try_permit()).take(100).collect();
        permits.len()
    };
    assert_eq!((free("shop"), free("another")), (3, 8));
    let policy = format!("{TOOLS}---\nkind: policy\npolicy: atlas\ntoleranceMs: 1500\ndefaultAllowance: 2\n");
    let coordinator = shop.build(&policy).await.unwrap().coordinator.build();
    let report = run(
        &coordinator,
        vec![Call::new("a", "list_orders", json!({"account_id": "x"}))],
    )
    .await;
    assert_eq!(serde_json::to_value(report.policy).unwrap(), json!("atlas"));
    assert_eq!(report.consistency.tolerance_ms, 1500.0);
}

/// A snapshot gives an argument to every tool that it maps to. A call that left the argument out asked something else.
#[tokio::test]
async fn a_snapshot_stands_in_only_for_the_very_calls_that_were_made() {
    let shop = shop().await;
    let tool = |name: &str| {
        format!(
            "---\nkind: tool\nname: {name}\ntype: sqlite-sql\nsource: shop\ndescription: d\n\
             parameters: [{{name: least, type: integer, description: d, default: 0}}]\n\
             statement: SELECT count(*) AS n FROM orders WHERE total >= $1\n"
        )
    };
    let text = format!(
        "kind: source\nname: shop\ntype: sqlite\ndatabase: ${{DB}}\n{}{}---\nkind: snapshot\nname: both\ndescription: d\n\
         covers: [{{tool: one}}, {{tool: two}}]\n---\nkind: source\nname: other\ntype: sqlite\ndatabase: ':memory:'\n---\n\
         kind: tool\nname: three\ntype: sqlite-sql\nsource: other\ndescription: d\nstatement: SELECT 1\n",
        tool("one"),
        tool("two")
    );
    let coordinator = shop.build(&text).await.unwrap().coordinator.build();
    for (two, expected, via) in [
        (json!({"least": 6}), [2, 2], Some("both")),
        (json!({}), [2, 3], None),
        (json!({"least": 0}), [2, 3], None),
    ] {
        let calls = vec![
            Call::new("a", "one", json!({"least": 6})),
            Call::new("b", "two", two.clone()),
            Call::new("c", "three", json!({})),
        ];
        let report = run(&coordinator, calls).await;
        let counts = [0, 1].map(|i| report.results[i].value.as_ref().unwrap()["rows"][0]["n"].clone());
        assert_eq!(counts, expected.map(|n| json!(n)), "{two}");
        assert_eq!(report.results[1].via.as_deref(), via, "{two}");
    }
}
