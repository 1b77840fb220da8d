//! G10: a table of escapes, and which of the three means stops each alone.

use super::*;

const TABLE: &str =
    "CREATE TABLE t (n INTEGER PRIMARY KEY); CREATE INDEX i ON t (n); INSERT INTO t VALUES (1)";

/// What a layer does to a text: stops it with an error, or lets it through without a trace or with one.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Layer {
    Stops,
    Lets,
}
use Layer::{Lets, Stops};

/// Text, then what `SQLITE_OPEN_READONLY` and what `query_only` does to it. The statement check stops all.
fn escapes(folder: &Path) -> Vec<(String, Layer, Layer)> {
    let there = folder.join("there.db").display().to_string();
    let missing = folder.join("missing.db").display().to_string();
    let copy = folder.join("copy").display().to_string();
    [
        ("INSERT INTO t VALUES (2)", Stops, Stops),
        ("  /* SELECT */ -- SELECT\n DELETE FROM t", Stops, Stops),
        ("\u{feff}DELETE FROM t", Stops, Stops),
        ("UPDATE t SET n = 3 RETURNING n", Stops, Stops),
        ("REPLACE INTO t VALUES (1)", Stops, Stops),
        (
            "WITH x AS (SELECT 5 AS n) INSERT INTO t SELECT n FROM x",
            Stops,
            Stops,
        ),
        (
            "WITH x(n) AS MATERIALIZED (SELECT 1) DELETE FROM t WHERE n IN (SELECT n FROM x)",
            Stops,
            Stops,
        ),
        ("SELECT 1; DELETE FROM t", Stops, Stops),
        ("SELECT 1;; DELETE FROM t", Stops, Stops),
        ("SELECT ';' /* ; */; DELETE FROM t", Stops, Stops),
        ("COMMIT; DELETE FROM t", Stops, Stops),
        ("CREATE TABLE u (n)", Stops, Stops),
        ("CREATE TEMP TABLE u (n)", Lets, Stops),
        ("ALTER TABLE t ADD COLUMN x", Stops, Stops),
        ("DROP TABLE t", Stops, Stops),
        ("REINDEX", Stops, Stops),
        ("ANALYZE", Stops, Stops),
        ("VACUUM", Stops, Stops),
        ("PRAGMA user_version = 9", Stops, Stops),
        ("PRAGMA journal_mode = WAL", Stops, Lets),
        ("PRAGMA query_only = off", Lets, Lets),
        ("PRAGMA query_only = off; DELETE FROM t", Stops, Lets),
        (
            "PRAGMA writable_schema = on; DELETE FROM sqlite_master",
            Stops,
            Stops,
        ),
        ("EXPLAIN DELETE FROM t", Lets, Lets),
        ("SELECT load_extension('x')", Stops, Stops),
        ("SELECT \"load_extension\"('x')", Stops, Stops),
        ("SELECT fts3_tokenizer('x', x'00')", Stops, Stops),
        ("SELECT * FROM pragma_query_only", Lets, Lets),
        ("BEGIN; COMMIT", Lets, Lets),
    ]
    .into_iter()
    .map(|(text, read_only, query_only)| (text.to_owned(), read_only, query_only))
    .chain([
        (format!("ATTACH '{there}' AS x"), Lets, Lets),
        (
            format!("ATTACH '{there}' AS x; INSERT INTO x.secrets VALUES (1)"),
            Stops,
            Stops,
        ),
        (format!("ATTACH '{missing}' AS x"), Stops, Lets),
        (
            format!("ATTACH '{missing}' AS x; CREATE TABLE x.u (n)"),
            Stops,
            Stops,
        ),
        (format!("VACUUM INTO '{copy}'"), Lets, Stops),
    ])
    .collect()
}

async fn layer(database: &Database, options: SqliteConnectOptions, text: &str) -> Layer {
    let mut connection = options.filename(&database.path).connect().await.unwrap();
    let result = connection.execute(AssertSqlSafe(text.to_owned())).await;
    connection.close().await.unwrap();
    if result.is_err() { Stops } else { Lets }
}

#[tokio::test]
async fn each_layer_stops_what_it_claims_and_together_they_stop_all() {
    let folder = tempfile::tempdir().unwrap();
    let texts = escapes(folder.path());
    for (text, read_only, query_only) in &texts {
        let _ = std::fs::remove_file(folder.path().join("copy"));
        let _ = std::fs::remove_file(folder.path().join("missing.db"));
        make(
            &folder.path().join("there.db"),
            SqliteJournalMode::Delete,
            "DROP TABLE IF EXISTS secrets; CREATE TABLE secrets (n)",
        )
        .await;
        let database = Database::new(SqliteJournalMode::Delete, TABLE).await;
        let refused =
            CheckedSql::new(text, &[""; 0]).is_err_and(|error| matches!(error, SqliteError::Refused { .. }));
        let writes = CheckedSql::new(text, &[""; 0]).is_ok_and(|checked| checked.effect() == Effect::Write);
        assert!(refused || writes, "the statement check lets through: {text}");
        let base = SqliteConnectOptions::new;
        assert_eq!(
            layer(&database, base().read_only(true), text).await,
            *read_only,
            "read-only: {text}"
        );
        assert_eq!(
            layer(
                &database,
                base().create_if_missing(true).pragma("query_only", "on"),
                text
            )
            .await,
            *query_only,
            "query_only: {text}"
        );
        // What is a write is no read, whoever asks.
        if writes {
            let source = database.source();
            let view = open(&source, 1).await.unwrap();
            let error = snapshot(&view).read(&sql(text), &[]).await.unwrap_err();
            assert_eq!(error.code(), ErrorCode::NotReadOnly);
            source.close(view).await.unwrap();
        }
    }
}

/// A false alarm is a fault as well: text about SQL is text.
#[test]
fn reads_that_only_look_dangerous_are_reads() {
    for text in [
        "SELECT 'DELETE FROM t; DROP TABLE t' AS \"delete\" -- ; DELETE",
        "SELECT CONCAT('INSERT ', 'INTO') FROM t;",
        "select replace(a, 'x', 'y'), CAST(b AS DECIMAL(10, 2)), CAST(c AS DOUBLE PRECISION) FROM t ; ; ",
        "VALUES (1), (2)",
        "/* c */ WITH RECURSIVE w(x, y) AS (SELECT 1, 2), v(z) AS NOT MATERIALIZED (VALUES (3)) SELECT * FROM w, v",
        "WITH x AS (SELECT 1) SELECT * FROM x WHERE a IN (1) AND EXISTS (SELECT 1) AND NOT (b)",
        "SELECT count(*) FILTER (WHERE a) OVER (PARTITION BY b ORDER BY (c)) FROM t GROUP BY (a) HAVING (1)",
        "SELECT * FROM pragma_table_info('t') AS i JOIN json_each(i.name) AS j ON (1)",
        "SELECT a ->> '$.b', a->'$.c' FROM t WHERE name LIKE 'pragma_%' AND x'0a' = [b c]",
        "EXPLAIN QUERY PLAN SELECT 1",
        "SELECT * FROM t WHERE t MATCH ('x') LIMIT (1)",
    ] {
        let checked = CheckedSql::new(text, &[""; 0]);
        assert_eq!(
            checked
                .map(|checked| checked.effect())
                .map_err(|error| error.to_string()),
            Ok(Effect::Read),
            "{text}"
        );
    }
}

/// Shapes that make a call look like something else.
#[test]
fn no_call_hides_behind_another_construct() {
    for text in [
        "SELECT 1 AS a WHERE load_extension(1)",
        "SELECT 1 AS a UNION SELECT load_extension(1)",
        "SELECT 1, load_extension('x') AS y",
        "SELECT CAST(1 AS load_extension(x'00'))",
        "SELECT [load_extension](1)",
        "SELECT `load_extension` ( 1 )",
        "SELECT load_extension/**/(1)",
        "SELECT load_extension--\n(1)",
        "SELECT * FROM pragma_optimize",
        "SELECT * FROM 'pragma_optimize'",
        "SELECT * FROM main.\"pragma_optimize\"",
        "SELECT * FROM t, Pragma_Optimize()",
        "SELECT unheard_of(1)",
        "EXPLAIN EXPLAIN SELECT 1",
        "SELECT 1 \0; DELETE FROM t",
        "SELECT 'open",
        "(SELECT 1)",
        "",
        " ; ",
        "INSERT INTO t SELECT load_extension('x')",
    ] {
        let error = CheckedSql::new(text, &[""; 0]).expect_err(text);
        assert!(matches!(error, SqliteError::Refused { .. }), "{text}: {error}");
    }
}

/// Behind the check: a view from which somebody got out is found out. Its transaction is ended here by hand, in the
/// only way there is without the check: by an error of the file itself.
#[tokio::test]
async fn a_read_only_source_runs_no_write() {
    let database = Database::wal(TABLE).await;
    let options = SqliteOptions::new("atlas", &database.path).read_only(true);
    let source = SqliteSource::open(options).unwrap();
    let error = source.undescribed_tool("DELETE FROM t", [""; 0]).unwrap_err();
    assert_eq!(
        error.to_string(),
        "statement refused: it writes, and source atlas is read-only"
    );
    let error = source.write(&sql("DELETE FROM t"), &[]).await.unwrap_err();
    assert_eq!(error.code(), ErrorCode::NotReadOnly);
    assert_eq!(only(&alone(&source, "SELECT count(*) FROM t").await.unwrap()), 1);
}
