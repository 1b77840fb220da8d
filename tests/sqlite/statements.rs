//! Placeholders, values, and which answers are functions of the state.

use super::*;

fn checked(text: &str, names: &[&str]) -> Result<CheckedSql, String> {
    CheckedSql::new(text, names).map_err(|error| error.to_string())
}

async fn ask(source: &SqliteSource, text: &str, names: &[&str], values: &[Value]) -> Answer {
    let view = open(source, 1).await.unwrap();
    let answer = snapshot(&view)
        .read(&checked(text, names).unwrap(), values)
        .await
        .unwrap();
    source.close(view).await.unwrap();
    answer
}

fn memory() -> SqliteSource {
    SqliteSource::open(SqliteOptions::new("memory", ":memory:")).unwrap()
}

/// Numbers bind by number, also with `$`; a bare `?` by SQLite's own rule; names by name.
#[tokio::test]
async fn every_placeholder_takes_its_parameter() {
    let source = memory();
    let (names, values) = (["a", "b", "c"], [json!(1), json!(2), json!(3)]);
    for (text, expected) in [
        ("SELECT ? || ? || ?", "123"),
        ("SELECT $2 || $3 || $1", "231"),
        ("SELECT ?3 || ?1 || ?2 || ?1", "3121"),
        ("SELECT :c || @a || $b || :c", "3123"),
        ("SELECT ?2 || ? || $1", "231"),
        (
            "SELECT '?9 :x' || $1 || /* ? */ $2 || \"b?\" FROM (SELECT $3 AS \"b?\")",
            "?9 :x123",
        ),
    ] {
        assert_eq!(
            only(&ask(&source, text, &names, &values).await),
            expected,
            "{text}"
        );
    }
}

#[test]
fn placeholders_and_parameters_must_fit() {
    for (text, names, why) in [
        (
            "SELECT ?",
            vec![],
            "the statement uses a placeholder number 1, and 0 parameters are declared",
        ),
        (
            "SELECT $3, $1",
            vec!["a", "b"],
            "the statement uses $3, and 2 parameters are declared",
        ),
        (
            "SELECT ?0",
            vec!["a"],
            "the statement uses ?0, and 1 parameters are declared",
        ),
        (
            "SELECT $1, $3",
            vec!["a", "b", "c"],
            "parameter 2, \"b\", is declared and the statement never uses it",
        ),
        (
            "SELECT :x",
            vec!["a"],
            "the statement uses :x and no parameter is called \"x\"",
        ),
        (
            "SELECT ?, :b",
            vec!["a", "b"],
            "the statement mixes ? with named placeholders; use one kind",
        ),
    ] {
        let said = checked(text, &names).unwrap_err();
        assert_eq!(
            said,
            format!("parameters don't fit the statement: {why}"),
            "{text}"
        );
    }
}

/// The bounds of JSON and of SQLite, by storage class.
#[tokio::test]
async fn values_come_back_by_storage_class_and_exact() {
    let source = memory();
    for (text, value, class) in [
        ("NULL", json!(null), ""),
        ("9007199254740992", json!(9_007_199_254_740_992_i64), "INTEGER"),
        ("9007199254740993", json!("9007199254740993"), "INTEGER"),
        ("-9007199254740993", json!("-9007199254740993"), "INTEGER"),
        ("-9223372036854775808", json!("-9223372036854775808"), "INTEGER"),
        ("1.5", json!(1.5), "REAL"),
        ("1.0", json!(1.0), "REAL"),
        ("9e999", json!("Infinity"), "REAL"),
        ("-9e999", json!("-Infinity"), "REAL"),
        ("9e999 - 9e999", json!(null), ""),
        ("1 = 1", json!(1), "INTEGER"),
        ("'{\"a\": 1}'", json!("{\"a\": 1}"), "TEXT"),
        ("'2026-01-02'", json!("2026-01-02"), "TEXT"),
        ("''", json!(""), "TEXT"),
        ("'a' || char(0) || 'b'", json!("a\u{0}b"), "TEXT"),
        ("x''", json!(""), "BLOB"),
        ("x'00ff'", json!("AP8="), "BLOB"),
        (
            "CAST(x'ff41' AS TEXT)",
            json!("/0E="),
            "TEXT (base64 where not UTF-8)",
        ),
    ] {
        let answer = alone(&source, &format!("SELECT {text} AS v")).await.unwrap();
        assert_eq!(only(&answer), &value, "{text}");
        assert_eq!(
            answer.value["columns"],
            json!([{ "name": "v", "type": class }]),
            "{text}"
        );
    }
    let mixed = alone(&source, "SELECT 1 AS v UNION ALL SELECT 'a'")
        .await
        .unwrap();
    assert_eq!(mixed.value["columns"][0]["type"], "");
}

/// A declared type is shown and decides nothing.
#[tokio::test]
async fn a_declared_type_decides_no_value() {
    let source = memory();
    let table = "CREATE TABLE t (b BOOLEAN, d DECIMAL(10, 2), j JSON, u, i INT, at DATETIME)";
    source.write(&sql(table), &[]).await.unwrap();
    let rows =
        "INSERT INTO t VALUES ('yes', 12.10, '{}', 1, '07', '2026-01-02'), (1, NULL, '1', x'00', 'x', 5)";
    source.write(&sql(rows), &[]).await.unwrap();
    let answer = alone(&source, "SELECT *, rowid FROM t").await.unwrap();
    let expected = json!({
        "columns": [
            { "name": "b", "type": "BOOLEAN" }, { "name": "d", "type": "DECIMAL(10, 2)" },
            { "name": "j", "type": "JSON" }, { "name": "u", "type": "" }, { "name": "i", "type": "INT" },
            { "name": "at", "type": "DATETIME" }, { "name": "rowid", "type": "INTEGER" }
        ],
        "rows": [
            { "b": "yes", "d": 12.1, "j": "{}", "u": 1, "i": 7, "at": "2026-01-02", "rowid": 1 },
            { "b": 1, "d": null, "j": 1, "u": "AA==", "i": "x", "at": 5, "rowid": 2 }
        ],
        "rowCount": 2,
        "truncated": false
    });
    assert_eq!(answer.value, expected);
    assert_eq!(
        answer.value.to_string(),
        expected.to_string(),
        "also in its order"
    );
}

#[tokio::test]
async fn a_database_in_utf16_is_read_as_text() {
    let database =
        Database::wal("PRAGMA encoding = 'UTF-16'; CREATE TABLE t (s TEXT); INSERT INTO t VALUES ('zażółć')")
            .await;
    assert_eq!(
        only(&alone(&database.source(), "SELECT s FROM t").await.unwrap()),
        "zażółć"
    );
}

#[tokio::test]
async fn arguments_are_stored_as_what_they_are() {
    let source = memory();
    for (value, shown) in [
        (json!(null), json!("null|")),
        (json!(true), json!("integer|1")),
        (
            json!(9_007_199_254_740_993_i64),
            json!("integer|9007199254740993"),
        ),
        (json!(1.5), json!("real|1.5")),
        (json!("007"), json!("text|007")),
        (json!("a\u{0}b"), json!("text|a\u{0}b")),
        (json!([1, "a"]), json!("text|[1,\"a\"]")),
        (json!({"a": null}), json!("text|{\"a\":null}")),
    ] {
        let answer = ask(
            &source,
            "SELECT typeof(:v) || '|' || ifnull(:v, '')",
            &["v"],
            std::slice::from_ref(&value),
        )
        .await;
        assert_eq!(only(&answer), &shown, "{value}");
    }
    let view = open(&source, 1).await.unwrap();
    let read = checked("SELECT ?", &["n"]).unwrap();
    let error = snapshot(&view)
        .read(&read, &[json!(18_446_744_073_709_551_615_u64)])
        .await
        .unwrap_err();
    assert_eq!(error.code(), ErrorCode::InvalidArguments);
    assert!(
        error
            .message()
            .contains("\"n\" is 18446744073709551615, beyond SQLite's 64-bit integers"),
        "{error}"
    );
    let error = snapshot(&view).read(&read, &[]).await.unwrap_err();
    assert_eq!(
        error.message(),
        "parameters don't fit the statement: 0 values were given for 1 parameters"
    );
    source.close(view).await.unwrap();
}

#[tokio::test]
async fn equal_names_are_kept_apart() {
    let answer = alone(&memory(), "SELECT 1 AS id, 2 AS id_2, 3 AS id, 4 AS id")
        .await
        .unwrap();
    assert_eq!(
        answer.value["rows"],
        json!([{ "id": 1, "id_2": 2, "id_3": 3, "id_4": 4 }])
    );
}

/// Hole 16 and G12: what isn't all of the answer says so.
#[tokio::test]
async fn too_many_rows_or_bytes_are_cut_and_said_so() {
    let million =
        "WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c WHERE x < 1000000) SELECT x FROM c";
    let options = SqliteOptions::new("memory", ":memory:")
        .max_rows(1_000)
        .max_bytes(100_000);
    let source = SqliteSource::open(options).unwrap();
    let cut = alone(&source, million).await.unwrap();
    assert_eq!(
        (cut.value["rowCount"].as_u64(), &cut.value["truncated"]),
        (Some(1_000), &json!(true))
    );
    assert_eq!(cut.value["rows"].as_array().unwrap().len(), 1_000);
    assert!(!cut.complete);
    let exact = alone(&source, &format!("{million} WHERE x <= 1000"))
        .await
        .unwrap();
    assert_eq!((&exact.value["truncated"], exact.complete), (&json!(false), true));
    let heavy = alone(
        &source,
        "SELECT printf('%.*c', 30000, 'x') AS s FROM json_each('[1,2,3,4,5]')",
    )
    .await
    .unwrap();
    assert_eq!(
        (heavy.value["rowCount"].as_u64(), &heavy.value["truncated"]),
        (Some(3), &json!(true))
    );
    let one = alone(&source, "SELECT zeroblob(1000000)").await.unwrap();
    assert_eq!((one.value["rowCount"].as_u64(), one.complete), (Some(0), false));
}

/// Hole 16: a limit without a total order is no function of the state.
#[tokio::test]
async fn a_limit_needs_a_total_order() {
    let source = memory();
    for table in [
        "CREATE TABLE t (id INTEGER PRIMARY KEY, name TEXT, code TEXT NOT NULL UNIQUE, loose TEXT UNIQUE, n INT)",
        "CREATE TABLE pair (a TEXT NOT NULL, b TEXT NOT NULL, n INT, PRIMARY KEY (a, b)) WITHOUT ROWID",
        "CREATE TABLE late (name TEXT NOT NULL)",
        "CREATE UNIQUE INDEX late_name ON late (name COLLATE BINARY)",
        "CREATE TABLE folded (n TEXT COLLATE NOCASE NOT NULL, UNIQUE (n COLLATE BINARY))",
        "CREATE VIEW some AS SELECT id FROM t LIMIT 3",
        "CREATE VIEW over AS SELECT id FROM some",
    ] {
        source.write(&sql(table), &[]).await.unwrap();
    }
    for (text, whole) in [
        ("SELECT * FROM t", true),
        ("SELECT * FROM t LIMIT 5", false),
        ("SELECT * FROM t ORDER BY name LIMIT 5", false),
        ("SELECT * FROM t ORDER BY name, id LIMIT 5", true),
        ("SELECT * FROM T AS x ORDER BY X.ROWID LIMIT 5", true),
        ("SELECT * FROM t ORDER BY code LIMIT 5", true),
        ("SELECT * FROM t ORDER BY loose LIMIT 5", false),
        ("SELECT * FROM t WHERE id = 7 LIMIT 1", true),
        ("SELECT * FROM t WHERE name = 'x' LIMIT 1", false),
        ("SELECT * FROM pair ORDER BY a LIMIT 1", false),
        ("SELECT * FROM pair WHERE a = 'x' ORDER BY b DESC LIMIT 1", true),
        ("SELECT * FROM pair ORDER BY rowid LIMIT 1", false),
        ("SELECT * FROM late ORDER BY name LIMIT 1", false),
        ("SELECT * FROM folded ORDER BY n LIMIT 1", false),
        ("SELECT max(n) FROM t LIMIT 1", true),
        ("SELECT * FROM some", false),
        ("SELECT * FROM \"over\" ORDER BY id", false),
        (
            "SELECT * FROM t WHERE id IN (SELECT id FROM t ORDER BY n LIMIT 2)",
            false,
        ),
    ] {
        match alone(&source, text).await {
            Ok(answer) => assert_eq!(answer.complete, whole, "{text}"),
            Err(error) => assert!(text.contains("pair ORDER BY rowid"), "{text}: {error}"),
        }
    }
    // The same statement under another schema is looked at again.
    let by_code = "SELECT * FROM t ORDER BY code LIMIT 5";
    source.write(&sql("DROP TABLE t"), &[]).await.unwrap();
    source
        .write(&sql("CREATE TABLE t (id INTEGER PRIMARY KEY, code TEXT)"), &[])
        .await
        .unwrap();
    assert!(!alone(&source, by_code).await.unwrap().complete);
}

/// Chance and the connection's own past are no functions of the state; in a view of the schema neither.
#[tokio::test]
async fn what_rests_on_chance_joins_nothing() {
    let source = memory();
    for text in [
        "CREATE TABLE t (id INTEGER PRIMARY KEY, at TEXT)",
        "CREATE VIEW dice AS SELECT random() AS n",
        "CREATE VIEW today AS SELECT * FROM t WHERE at >= date('now')",
        "CREATE VIEW computed AS SELECT strftime('%f', 'no' || 'w') AS at FROM t",
        "CREATE VIEW calm AS SELECT 'random()' AS n, date('2026-01-02', '+1 day') FROM t",
        "CREATE VIEW by_row AS SELECT date(at) FROM t",
        "CREATE VIEW lots AS SELECT 1 AS id, random() AS x",
        "CREATE VIRTUAL TABLE found USING fts5(x, content='lots', content_rowid='id')",
    ] {
        source.write(&sql(text), &[]).await.unwrap();
    }
    for (text, steady) in [
        ("SELECT 'random()' FROM t", true),
        ("SELECT random()", false),
        ("SELECT * FROM t ORDER BY random()", false),
        ("SELECT last_insert_rowid(), changes()", false),
        ("SELECT * FROM dice", false),
        ("SELECT * FROM [Today]", false),
        ("SELECT * FROM calm", true),
        ("SELECT * FROM computed", false),
        ("SELECT x FROM found", false),
        // A row may say `now`, and the text of a view can't be guarded against it.
        ("SELECT * FROM by_row", false),
        ("SELECT sqlite_version()", true),
        ("SELECT date(at, '+1 day') FROM t", true),
        ("SELECT date('now'), CURRENT_TIMESTAMP", true),
        ("SELECT date(coalesce(at, 'now')) FROM t", false),
        ("SELECT date(\"now\")", false),
        // Whatever is computed may come out as `now`.
        ("SELECT strftime('%f', 'no' || 'w')", false),
        ("SELECT strftime('%f', char(110, 111, 119))", false),
        ("SELECT strftime('%f', replace('nox', 'x', 'w'))", false),
        ("SELECT strftime('%f', (SELECT 'subse' || 'c'))", false),
        ("SELECT unixepoch(lower(at)) FROM t", false),
        (
            "SELECT date('2026-01-02'), date(2461042.5), date(at), date(t.at) FROM t",
            true,
        ),
        ("SELECT date(x'6e6f77')", false),
        ("SELECT datetime('subsec')", false),
        ("SELECT 1 AS current_date", false),
    ] {
        let answer = alone(&source, text).await.unwrap();
        assert_eq!(
            answer.unsound,
            (!steady).then_some(UnprovenReason::NoWitness),
            "{text}"
        );
    }
    for (value, steady) in [("now", false), ("NOW", false), ("2026-01-02", true)] {
        let answer = ask(&source, "SELECT date(:day)", &["day"], &[json!(value)]).await;
        assert_eq!(answer.unsound.is_none(), steady, "{value}");
    }
}

/// Hole 6: all reads of a view are told one time, the one at which it was fixed.
/// A row may hold the text `now`: it then means the view's time, the same in every read.
#[tokio::test]
async fn a_row_that_says_now_means_the_views_time() {
    let database =
        Database::wal("CREATE TABLE t (at TEXT); INSERT INTO t VALUES ('NOW'), ('2026-01-02'), (NULL)").await;
    let source = database.source();
    let view = open(&source, 1).await.unwrap();
    let read = "SELECT group_concat(coalesce(strftime('%Y-%m-%d %H:%M:%f', t.at), '-'), ' ') AS a FROM t";
    let first = snapshot(&view).read(&sql(read), &[]).await.unwrap();
    let slow = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 300000) SELECT max(i) FROM n";
    snapshot(&view).read(&sql(slow), &[]).await.unwrap();
    let second = snapshot(&view).read(&sql(read), &[]).await.unwrap();
    assert_eq!(first.unsound, None);
    assert_eq!(only(&first), only(&second));
    let told = only(&first).as_str().unwrap().to_owned();
    assert!(told.ends_with(" 2026-01-02 00:00:00.000 -"), "{told}");
    source.close(view).await.unwrap();
}

#[tokio::test]
async fn now_is_one_moment_in_a_view() {
    let source = memory();
    let view = open(&source, 1).await.unwrap();
    let all = "SELECT strftime('%Y-%m-%d %H:%M:%f', 'now') AS a, strftime('%Y-%m-%d %H:%M:%f') AS b, \
               CURRENT_TIMESTAMP = datetime() AS c, CURRENT_DATE = date('NOW') AS d, CURRENT_TIME = time('now') AS e, \
               unixepoch() = unixepoch('now', 'utc') AS f, julianday() = julianday('now') AS g, \
               abs(julianday(:day) - julianday('now')) < 0.1 AS h";
    let read = checked(all, &["day"]).unwrap();
    let today = coeval::clock::Clock::wall(&SystemClock::new())
        .format("%F %T")
        .to_string();
    let first = snapshot(&view).read(&read, &[json!(today)]).await.unwrap();
    tokio::time::sleep(Duration::from_millis(5)).await;
    let second = snapshot(&view).read(&read, &[json!(today)]).await.unwrap();
    assert_eq!(first.value, second.value);
    let row = &first.value["rows"][0];
    assert_eq!(row["a"], row["b"]);
    for name in ["c", "d", "e", "f", "g", "h"] {
        assert_eq!(row[name], 1, "{name}: {row}");
    }
    let fixed = first
        .stamp
        .unwrap()
        .latest
        .unwrap()
        .wall
        .format("%F %T%.3f")
        .to_string();
    assert_eq!(row["a"], fixed);
    assert_eq!(first.unsound, None);
    source.close(view).await.unwrap();
}

/// A failing read leaves the view, and its siblings, as they were.
#[tokio::test]
async fn the_engines_refusal_is_passed_on_and_harms_nobody() {
    let database = Database::wal("CREATE TABLE t (n INTEGER); INSERT INTO t VALUES (1)").await;
    let source = database.source();
    let view = open(&source, 1).await.unwrap();
    run(&mut database.other().await, "UPDATE t SET n = 2").await;
    for (text, message) in [
        (
            "SELECT * FROM missing",
            "Could not complete atlas: no such table: missing.",
        ),
        (
            "SELECT abs(-9223372036854775808)",
            "Could not complete atlas: integer overflow.",
        ),
        ("SELECT json('{')", "Could not complete atlas: malformed JSON."),
        (
            "SELECT FROM",
            "Could not complete atlas: near \"FROM\": syntax error.",
        ),
    ] {
        let error = snapshot(&view).read(&sql(text), &[]).await.unwrap_err();
        assert_eq!(
            (error.code(), error.message()),
            (ErrorCode::StatementFailed, message)
        );
        assert!(!error.is_retryable());
        let still = snapshot(&view).read(&sql("SELECT n FROM t"), &[]).await.unwrap();
        assert_eq!(only(&still), 1, "the snapshot was lost after {text}");
    }
    source.close(view).await.unwrap();
}
