//! What the files for readers say is so: the README's code and tables, and the example's databases.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use coeval::CallSet;
use coeval::clock::{SystemClock, Timeline};
use coeval::config::Config;
use coeval::plan::{Condition, EdgeReason};
use coeval::reading::ErrorCode;
use coeval::report::VerdictKind;
use coeval::source::Source as _;
use coeval::source::sqlite::{CheckedSql, SqliteOptions, SqliteSource, SqliteView};
use schemars::schema_for;
use serde_json::{Value, json};
use sqlx::sqlite::SqliteConnectOptions;
use sqlx::{AssertSqlSafe, ConnectOptions, Connection};

/// Orders that don't cost what the contract in force says, and invoices that don't ask for what the order costs.
const NOT_AS_AGREED: &str = "
    SELECT o.order_id FROM orders o
    LEFT JOIN contracts c ON c.account_id = o.account_id
        AND o.ordered_on BETWEEN c.effective_from AND coalesce(c.effective_to, '9999-12-31')
    WHERE o.discount_cents <> iif(o.subtotal_cents >= c.threshold_cents,
        (o.subtotal_cents * c.discount_percent + 50) / 100, 0)
    UNION ALL
    SELECT i.invoice_id FROM invoices i JOIN orders o ON o.order_id = i.order_id
    WHERE i.amount_cents <> o.total_cents";

fn in_repository(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

fn text(path: &str) -> String {
    std::fs::read_to_string(in_repository(path)).unwrap()
}

/// Runs these files on a database, one after the other.
async fn execute(database: &Path, files: &[&str]) {
    let options = SqliteConnectOptions::new()
        .filename(database)
        .create_if_missing(true);
    let mut connection = options.connect().await.unwrap();
    for file in files {
        sqlx::raw_sql(AssertSqlSafe(text(file)))
            .execute(&mut connection)
            .await
            .unwrap();
    }
    connection.close().await.unwrap();
}

/// The rows of several reads, all of one state.
async fn rows(database: &Path, reads: &[&str]) -> Vec<Value> {
    let source = SqliteSource::open(SqliteOptions::new("db", database)).unwrap();
    let timeline = Timeline::start(Arc::new(SystemClock::new()));
    let view = source.open(1, &timeline).await.unwrap();
    let snapshot = view.as_any().downcast_ref::<SqliteView>().unwrap();
    let mut all = Vec::new();
    for read in reads {
        let answer = snapshot
            .read(&CheckedSql::new(read, &[""; 0]).unwrap(), &[])
            .await
            .unwrap();
        assert!(answer.complete, "{read}");
        all.push(answer.value["rows"].clone());
    }
    source.close(view).await.unwrap();
    source.shutdown().await;
    all
}

const TABLES: [&str; 7] = [
    "SELECT * FROM accounts ORDER BY account_id",
    "SELECT * FROM contracts ORDER BY contract_id",
    "SELECT * FROM orders ORDER BY order_id",
    "SELECT * FROM invoices ORDER BY invoice_id",
    "SELECT * FROM payments ORDER BY payment_id",
    "SELECT * FROM tickets ORDER BY ticket_id",
    "SELECT type, name, tbl_name, sql FROM sqlite_schema ORDER BY name",
];

#[tokio::test]
async fn the_committed_databases_are_what_their_sql_makes() {
    let folder = tempfile::tempdir().unwrap();
    let (atlas, crm) = (folder.path().join("atlas.db"), folder.path().join("crm.db"));
    let mut migrations: Vec<String> = std::fs::read_dir(in_repository("migrations/atlas"))
        .unwrap()
        .map(|entry| {
            format!(
                "migrations/atlas/{}",
                entry.unwrap().file_name().into_string().unwrap()
            )
        })
        .collect();
    migrations.sort();
    execute(&atlas, &migrations.iter().map(String::as_str).collect::<Vec<_>>()).await;
    execute(&crm, &["examples/henderson/crm.sql"]).await;

    let made = rows(&atlas, &TABLES).await;
    assert!(
        made.iter()
            .all(|rows| rows.as_array().is_some_and(|rows| !rows.is_empty()))
    );
    assert_eq!(
        made,
        rows(&in_repository("examples/henderson/atlas.db"), &TABLES).await
    );
    let cards = ["SELECT * FROM customer_cards ORDER BY account_id"];
    assert_eq!(
        rows(&crm, &cards).await,
        rows(&in_repository("examples/henderson/crm.db"), &cards).await
    );
}

/// The example rests on it: what mixes two states shows as a discount that doesn't follow from its contract (AT-17).
#[tokio::test]
async fn each_state_of_the_example_keeps_the_contracts_and_a_mixture_does_not() {
    let folder = tempfile::tempdir().unwrap();
    let atlas = folder.path().join("atlas.db");
    std::fs::copy(in_repository("examples/henderson/atlas.db"), &atlas).unwrap();
    let contract = "SELECT threshold_cents FROM contracts WHERE contract_id = 'CT-2001'";
    let order = "SELECT subtotal_cents, discount_cents FROM orders WHERE order_id = 'SO-12009'";
    let reads = [NOT_AS_AGREED, contract, order];

    let before = rows(&atlas, &reads).await;
    execute(&atlas, &["examples/henderson/amend.sql"]).await;
    let after = rows(&atlas, &reads).await;
    execute(&atlas, &["examples/henderson/revert.sql"]).await;

    assert_eq!(before[0], json!([]));
    assert_eq!(after[0], json!([]));
    assert_eq!(
        before[1..],
        [
            json!([{"threshold_cents": 2_500_000}]),
            json!([{"subtotal_cents": 1_840_000, "discount_cents": 0}])
        ]
    );
    assert_eq!(
        after[1..],
        [
            json!([{"threshold_cents": 1_500_000}]),
            json!([{"subtotal_cents": 1_840_000, "discount_cents": 220_800}])
        ]
    );
    assert_eq!(rows(&atlas, &reads).await, before);
}

/// The databases lie beside the configuration, not where the tests run.
#[tokio::test]
async fn the_example_runs_as_it_lies_there() {
    let config = Config::load(&[in_repository("examples/henderson")], &|_| None).unwrap();
    let assembly = config.build().await.unwrap();
    assert!(assembly.warnings.is_empty(), "{:?}", assembly.warnings);
    let coordinator = assembly.coordinator.build();
    let run = |file: &str| {
        let set: CallSet = serde_json::from_str(&text(&format!("examples/henderson/{file}"))).unwrap();
        coordinator.run(set)
    };

    let set = run("set.json").await.unwrap();
    assert_eq!(set.consistency.verdict, VerdictKind::SameView);
    assert_eq!(
        (set.consistency.comparable, &set.consistency.groups[..]),
        (Some(true), &[vec![0, 1, 2]][..])
    );

    // A copy in another database proves nothing about now; what is beside it stays comparable.
    let with_crm = run("with-crm.json").await.unwrap();
    assert!(with_crm.results.iter().all(|result| result.is_ok()));
    assert_eq!(with_crm.consistency.verdict, VerdictKind::Unproven);
    assert_eq!(
        (with_crm.consistency.comparable, &with_crm.consistency.groups[..]),
        (Some(false), &[vec![0, 1]][..])
    );
    assert_eq!(
        json!(with_crm.results[2].as_of),
        json!("2026-11-30T02:00:00.000000Z")
    );

    // A placeholder, a guessed id that is found, a precondition met by a sibling.
    let lookup = run("lookup.json").await.unwrap();
    assert!(
        lookup.results.iter().all(|result| result.is_ok()),
        "{:?}",
        lookup.results
    );
    assert_eq!(lookup.decision.reason, Some(Condition::Dependency));
    let reasons: Vec<EdgeReason> = lookup.plan.edges.iter().map(|edge| edge.reason).collect();
    assert_eq!(reasons.len(), 3, "{:?}", lookup.plan.edges);
    for reason in [
        EdgeReason::Placeholder,
        EdgeReason::Guess,
        EdgeReason::Precondition,
    ] {
        assert!(reasons.contains(&reason), "{reason:?}");
    }
}

#[test]
fn the_readme_shows_the_quickstart_as_it_is() {
    let example = text("examples/quickstart.rs");
    let code = &example[example.find("use std::").unwrap()..];
    assert!(
        text("README.md").contains(&format!("```rust\n{code}```\n")),
        "copy it from examples/quickstart.rs"
    );
}

/// Every name that a type of the contract has in JSON.
fn names(schema: &schemars::Schema) -> Vec<String> {
    fn collect(schema: &Value, names: &mut Vec<String>) {
        match schema {
            Value::Object(map) => {
                names.extend(map.get("const").and_then(Value::as_str).map(str::to_owned));
                for value in map.get("enum").and_then(Value::as_array).into_iter().flatten() {
                    names.extend(value.as_str().map(str::to_owned));
                }
                map.values().for_each(|value| collect(value, names));
            }
            Value::Array(items) => items.iter().for_each(|value| collect(value, names)),
            _ => {}
        }
    }
    let mut found = Vec::new();
    collect(schema.as_value(), &mut found);
    found.sort();
    found
}

/// The rows of the README's table with this head, each by the name in its first cell.
fn table(head: &str) -> BTreeMap<String, Vec<String>> {
    let readme = text("README.md");
    let start = readme
        .find(head)
        .unwrap_or_else(|| panic!("the README has no table {head:?}"));
    let rows = readme[start..]
        .lines()
        .skip(2)
        .take_while(|line| line.starts_with('|'));
    rows.map(|row| {
        let mut cells = row
            .trim_matches('|')
            .split('|')
            .map(|cell| cell.trim().trim_matches('`').to_owned());
        (cells.next().unwrap(), cells.collect())
    })
    .collect()
}

#[test]
fn the_readme_lists_every_error_code_with_its_outcome_and_advice() {
    let listed = table("| code | outcome |");
    assert_eq!(
        listed.keys().cloned().collect::<Vec<_>>(),
        names(&schema_for!(ErrorCode))
    );
    for (name, cells) in listed {
        let code: ErrorCode = serde_json::from_value(json!(name)).unwrap();
        assert_eq!(json!(cells[0]), json!(code.outcome()), "{name}");
        assert_eq!(cells[2].starts_with("yes"), code.retryable(), "{name}");
    }
}

#[test]
fn the_readme_lists_every_verdict() {
    let listed = table("| verdict | what it means");
    assert_eq!(
        listed.into_keys().collect::<Vec<_>>(),
        names(&schema_for!(VerdictKind))
    );
}
