//! The SQLite source over real files: sharing, safety, cancellation, values.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use coeval::clock::{SystemClock, Timeline};
use coeval::reading::{Answer, Basis, CallError, ErrorCode, UnprovenReason};
use coeval::request::{CallRequest, SetContext};
use coeval::snapshot::Views;
use coeval::source::sqlite::{
    CheckedSql, SqlParameter, SqliteError, SqliteOptions, SqliteSource, SqliteTool, SqliteView,
};
use coeval::source::{Source, View};
use coeval::tool::{Class, Effect, Facts, FieldOrigin, Keys, PerCall, ResolvedCall};
use futures_util::future::join_all;
use serde_json::{Value, json};
use sqlx::sqlite::{SqliteConnectOptions, SqliteJournalMode};
use sqlx::{AssertSqlSafe, ConnectOptions as _, Connection as _, Executor as _, SqliteConnection};
use tokio::time::Instant;
use tokio_util::task::TaskTracker;
use tower::ServiceExt as _;

/// A database file of its own, in a folder that is removed with it.
struct Database {
    path: PathBuf,
    _folder: tempfile::TempDir,
}

impl Database {
    async fn new(mode: SqliteJournalMode, sql: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("atlas.db");
        make(&path, mode, sql).await;
        Self {
            path,
            _folder: folder,
        }
    }

    async fn wal(sql: &str) -> Self {
        Self::new(SqliteJournalMode::Wal, sql).await
    }

    fn source(&self) -> SqliteSource {
        SqliteSource::open(SqliteOptions::new("atlas", &self.path)).unwrap()
    }

    /// A connection of somebody else.
    async fn other(&self) -> SqliteConnection {
        SqliteConnectOptions::new()
            .filename(&self.path)
            .connect()
            .await
            .unwrap()
    }
}

async fn make(path: &Path, mode: SqliteJournalMode, sql: &str) {
    let options = SqliteConnectOptions::new()
        .filename(path)
        .create_if_missing(true)
        .journal_mode(mode);
    let mut connection = options.connect().await.unwrap();
    connection.execute(AssertSqlSafe(sql.to_owned())).await.unwrap();
    connection.close().await.unwrap();
}

async fn run(connection: &mut SqliteConnection, sql: &str) {
    connection.execute(AssertSqlSafe(sql.to_owned())).await.unwrap();
}

fn timeline() -> Timeline {
    Timeline::start(Arc::new(SystemClock::new()))
}

fn sql(text: &str) -> CheckedSql {
    CheckedSql::new(text, &[""; 0]).unwrap()
}

async fn open(source: &SqliteSource, width: usize) -> Result<Arc<dyn View>, CallError> {
    Source::open(source, width, &timeline()).await
}

fn snapshot(view: &Arc<dyn View>) -> &SqliteView {
    view.as_any().downcast_ref().unwrap()
}

/// One read in a view of its own.
async fn alone(source: &SqliteSource, text: &str) -> Result<Answer, CallError> {
    let view = open(source, 1).await?;
    let answer = snapshot(&view).read(&sql(text), &[]).await;
    source.close(view).await.unwrap();
    answer
}

/// The only value of the only row.
fn only(answer: &Answer) -> &Value {
    let row = answer.value["rows"][0].as_object().unwrap();
    row.values().next().unwrap()
}

/// A statement that runs until it is stopped.
const ENDLESS: &str =
    "WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c) SELECT count(*) FROM c";

mod views {
    use super::*;

    /// Rows that every transaction changes together, and a list that every transaction makes longer.
    const LEDGER: &str = "CREATE TABLE a (n INTEGER); CREATE TABLE b (n INTEGER); CREATE TABLE c (n INTEGER); \
                          CREATE TABLE list (n INTEGER); \
                          INSERT INTO a VALUES (0); INSERT INTO b VALUES (0); INSERT INTO c VALUES (0);";

    const STEP: &str = "BEGIN IMMEDIATE; UPDATE a SET n = n + 1; UPDATE b SET n = n + 1; UPDATE c SET n = n + 1; \
                        INSERT INTO list SELECT n FROM a; COMMIT";

    /// Statements that must agree, each with some work so that they last a while.
    fn reads() -> Vec<CheckedSql> {
        let burn = "WITH RECURSIVE w(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM w WHERE x < 800) SELECT";
        [
            "(SELECT n FROM a)",
            "(SELECT n FROM b)",
            "(SELECT n FROM c)",
            "(SELECT count(*) FROM list)",
        ]
        .iter()
        .map(|what| sql(&format!("{burn} {what} AS n, (SELECT count(*) FROM w) AS burnt")))
        .collect()
    }

    struct Writer {
        stop: Arc<AtomicBool>,
        commits: Arc<AtomicU64>,
        task: tokio::task::JoinHandle<()>,
    }

    async fn writer(database: &Database, pause: Duration) -> Writer {
        let (stop, commits) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let mut connection = database.other().await;
        run(&mut connection, "PRAGMA synchronous = off").await;
        let (stopped, committed) = (Arc::clone(&stop), Arc::clone(&commits));
        let task = tokio::spawn(async move {
            while !stopped.load(Ordering::SeqCst) {
                run(&mut connection, STEP).await;
                committed.fetch_add(1, Ordering::SeqCst);
                tokio::time::sleep(pause).await;
            }
            connection.close().await.unwrap();
        });
        Writer { stop, commits, task }
    }

    impl Writer {
        async fn end(self) -> u64 {
            self.stop.store(true, Ordering::SeqCst);
            self.task.await.unwrap();
            self.commits.load(Ordering::SeqCst)
        }
    }

    fn agree(answers: &[Answer]) -> bool {
        answers
            .windows(2)
            .all(|pair| pair[0].value["rows"][0]["n"] == pair[1].value["rows"][0]["n"])
    }

    /// G8: parallel reads of one view are one state. The plain reads beside them show that there was something to see.
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn reads_of_one_view_agree_while_somebody_writes() {
        let database = Database::wal(LEDGER).await;
        let source = database.source();
        let writer = writer(&database, Duration::from_micros(200)).await;
        let reads = reads();
        let (mut sets, mut wide, mut at_risk) = (0, 0, 0);
        let until = Instant::now() + Duration::from_secs(3);
        while Instant::now() < until {
            let view = open(&source, reads.len()).await.unwrap();
            let before = writer.commits.load(Ordering::SeqCst);
            let answers = join_all(reads.iter().map(|read| snapshot(&view).read(read, &[]))).await;
            let answers: Vec<Answer> = answers.into_iter().map(Result::unwrap).collect();
            at_risk += u64::from(writer.commits.load(Ordering::SeqCst) > before);
            wide += u64::from(snapshot(&view).connections() > 1);
            sets += 1;
            assert!(agree(&answers), "{answers:?}");
            source.close(view).await.unwrap();
        }
        let mut fractured = 0;
        let mut plain = 0;
        while Instant::now() < until + Duration::from_secs(5) && (plain < 100 || fractured == 0) {
            let answers = join_all(reads.iter().map(|read| alone(&source, read.sql()))).await;
            let answers: Vec<Answer> = answers.into_iter().map(Result::unwrap).collect();
            fractured += u64::from(!agree(&answers));
            plain += 1;
        }
        let commits = writer.end().await;
        println!("{sets} sets, {wide} over several connections, {at_risk} at risk, {commits} commits");
        println!("plain reads: {fractured} of {plain} sets fractured");
        assert!(
            fractured > 0,
            "plain reads agreed as well: the test shows nothing"
        );
        assert!(wide > 0, "every view had one connection: nothing was shared");
        assert!(
            at_risk > 20,
            "hardly a commit fell into a set: {at_risk} of {sets}"
        );
    }

    /// Reads that turn out slow get more connections, as long as nobody has committed.
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_view_grows_when_its_reads_turn_out_slow() {
        let database = Database::wal(LEDGER).await;
        let source = database.source();
        for _ in 0..40 {
            alone(&source, "SELECT n FROM a").await.unwrap();
        }
        let view = open(&source, 4).await.unwrap();
        let slow = sql(
            "WITH RECURSIVE w(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM w WHERE x < 300000) \
                        SELECT (SELECT n FROM a) AS n, count(*) FROM w",
        );
        let answers = join_all((0..4).map(|_| snapshot(&view).read(&slow, &[]))).await;
        let answers: Vec<Answer> = answers.into_iter().map(Result::unwrap).collect();
        assert!(snapshot(&view).connections() > 1);
        assert!(agree(&answers));
        // A commit since the snapshot: nobody can join it any more.
        let grown = snapshot(&view).connections();
        source.close(view).await.unwrap();
        for _ in 0..60 {
            alone(&source, "SELECT n FROM a").await.unwrap();
        }
        let view = open(&source, 4).await.unwrap();
        let narrow = snapshot(&view).connections();
        let mut other = database.other().await;
        run(&mut other, STEP).await;
        let answers = join_all((0..4).map(|_| snapshot(&view).read(&slow, &[]))).await;
        assert!(agree(
            &answers.into_iter().map(Result::unwrap).collect::<Vec<_>>()
        ));
        assert_eq!(snapshot(&view).connections(), narrow, "after {grown}");
        source.close(view).await.unwrap();
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_view_keeps_its_state_and_the_next_one_sees_what_was_written() {
        let database = Database::wal(LEDGER).await;
        let source = database.source();
        let view = open(&source, 2).await.unwrap();
        let changed = source
            .write(&sql("UPDATE a SET n = 7 RETURNING n, 'x' AS n"), &[])
            .await
            .unwrap();
        assert_eq!(changed.value["rowsAffected"], 1);
        assert_eq!(changed.value["rows"], json!([{ "n": 7, "n_2": "x" }]));
        assert_eq!(changed.view, None);
        let old = snapshot(&view).read(&sql("SELECT n FROM a"), &[]).await.unwrap();
        assert_eq!(only(&old), 0);
        source.close(view).await.unwrap();
        let new = alone(&source, "SELECT n FROM a").await.unwrap();
        assert_eq!(only(&new), 7);
        let (old, new) = (old.stamp.unwrap(), new.stamp.unwrap());
        assert_eq!(
            (old.basis, old.source.as_deref()),
            (Basis::Snapshot, Some("atlas"))
        );
        assert!(
            old.latest.unwrap().mono < new.latest.unwrap().mono
                || old.latest.unwrap().wall < new.latest.unwrap().wall
        );
        assert_ne!(old.witness, new.witness);
        assert_eq!(old.source_time, Some(old.earliest.unwrap().wall));
    }

    /// A witness is the same again only if nothing was committed.
    #[tokio::test]
    async fn an_equal_witness_means_an_equal_state() {
        let database = Database::wal(LEDGER).await;
        let source = database.source();
        let witness = async || {
            let view = open(&source, 1).await.unwrap();
            let witness = view.witness().unwrap();
            source.close(view).await.unwrap();
            witness
        };
        let first = witness().await;
        assert_eq!(first, witness().await);
        run(&mut database.other().await, STEP).await;
        assert_ne!(first, witness().await);
    }

    /// Inside one transaction a change of the schema is not seen; after it, no statement keeps its old columns.
    #[tokio::test]
    async fn definitions_belong_to_the_snapshot() {
        let database = Database::wal("CREATE TABLE t (a INTEGER); INSERT INTO t VALUES (1)").await;
        let source = database.source();
        let read = sql("SELECT * FROM t");
        let view = open(&source, 1).await.unwrap();
        let before = snapshot(&view).read(&read, &[]).await.unwrap();
        run(
            &mut database.other().await,
            "ALTER TABLE t ADD COLUMN b TEXT DEFAULT 'new'",
        )
        .await;
        assert_eq!(
            snapshot(&view).read(&read, &[]).await.unwrap().value,
            before.value
        );
        source.close(view).await.unwrap();
        let after = alone(&source, "SELECT * FROM t").await.unwrap();
        assert_eq!(after.value["rows"], json!([{ "a": 1, "b": "new" }]));
        assert_eq!(after.value["columns"][1], json!({ "name": "b", "type": "TEXT" }));
        run(
            &mut database.other().await,
            "DROP TABLE t; CREATE TABLE t (c DECIMAL(10, 2)); INSERT INTO t VALUES (12.10)",
        )
        .await;
        let dropped = alone(&source, "SELECT * FROM t").await.unwrap();
        assert_eq!(dropped.value["rows"], json!([{ "c": 12.1 }]));
        assert_eq!(
            dropped.value["columns"],
            json!([{ "name": "c", "type": "DECIMAL(10, 2)" }])
        );
    }

    /// G12: a set is never wider than the pool, and never waits for itself.
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_small_pool_serves_a_wide_set() {
        let database = Database::wal(LEDGER).await;
        for connections in [1, 2] {
            let options = SqliteOptions::new("atlas", &database.path).connections(connections);
            let source = SqliteSource::open(options).unwrap();
            // Two sets at once: with one connection the second waits until the first has closed its view.
            let set = async || {
                let view = open(&source, 8).await.unwrap();
                assert!(snapshot(&view).connections() <= connections);
                let read = sql("SELECT n FROM a");
                let answers = join_all((0..8).map(|_| snapshot(&view).read(&read, &[]))).await;
                assert!(answers.iter().all(Result::is_ok));
                source.close(view).await.unwrap();
            };
            let both = async { tokio::join!(set(), set()) };
            tokio::time::timeout(Duration::from_secs(10), both)
                .await
                .expect("the sets wait for each other");
            assert_eq!(source.capability().connections, connections);
        }
    }

    #[tokio::test]
    async fn a_view_ends_when_its_time_is_up_and_gives_its_connections_back() {
        let database = Database::wal(LEDGER).await;
        let options = SqliteOptions::new("atlas", &database.path)
            .connections(1)
            .view_max(Duration::from_millis(100));
        let source = SqliteSource::open(options).unwrap();
        let view = open(&source, 1).await.unwrap();
        let error = snapshot(&view).read(&sql(ENDLESS), &[]).await.unwrap_err();
        assert_eq!(error.code(), ErrorCode::ViewLost);
        assert_eq!(
            error.message(),
            "The view of atlas can't be read: it was open for 100 ms, the longest a view may be."
        );
        let error = snapshot(&view).read(&sql("SELECT 1"), &[]).await.unwrap_err();
        assert_eq!(error.code(), ErrorCode::ViewLost);
        // Its connection is free although nobody has closed it yet.
        alone(&source, "SELECT n FROM a").await.unwrap();
        source.close(view).await.unwrap();
    }

    #[tokio::test]
    async fn a_view_that_is_dropped_gives_its_connections_back() {
        let database = Database::wal(LEDGER).await;
        let options = SqliteOptions::new("atlas", &database.path).connections(1);
        let source = SqliteSource::open(options).unwrap();
        drop(open(&source, 1).await.unwrap());
        // And one whose opener goes away before it is open.
        let line = timeline();
        drop(Source::open(&source, 1, &line));
        alone(&source, "SELECT n FROM a").await.unwrap();
        source.shutdown().await;
        alone(&source, "SELECT n FROM a").await.unwrap();
    }

    /// A rollback journal: one connection, the same promise, and the writer waits instead.
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn with_a_rollback_journal_reads_take_turns_in_one_snapshot() {
        let database = Database::new(SqliteJournalMode::Delete, LEDGER).await;
        let source = database.source();
        let view = open(&source, 4).await.unwrap();
        assert_eq!(snapshot(&view).connections(), 1);
        assert!(!source.capability().shared);
        let mut other = database.other().await;
        run(&mut other, "PRAGMA busy_timeout = 0").await;
        assert!(
            other.execute("UPDATE a SET n = 1").await.is_err(),
            "a reader holds the file"
        );
        let reads = reads();
        let answers = join_all(reads.iter().map(|read| snapshot(&view).read(read, &[]))).await;
        assert!(agree(
            &answers.into_iter().map(Result::unwrap).collect::<Vec<_>>()
        ));
        source.close(view).await.unwrap();
        run(&mut other, STEP).await;
        assert_eq!(only(&alone(&source, "SELECT n FROM a").await.unwrap()), 1);
        // Reads between foreign commits stay sound: the engine sees each of them.
        for round in 2..20 {
            run(&mut other, STEP).await;
            assert_eq!(only(&alone(&source, "SELECT n FROM a").await.unwrap()), round);
        }
    }

    #[tokio::test]
    async fn a_database_in_memory_is_one_database() {
        let source = SqliteSource::open(SqliteOptions::new("memory", ":memory:")).unwrap();
        source
            .write(&sql("CREATE TABLE t (n INTEGER)"), &[])
            .await
            .unwrap();
        for round in 1..=5 {
            source.write(&sql("INSERT INTO t VALUES (1)"), &[]).await.unwrap();
            assert_eq!(
                only(&alone(&source, "SELECT count(*) FROM t").await.unwrap()),
                round
            );
        }
        let other = SqliteSource::open(SqliteOptions::new("memory", ":memory:")).unwrap();
        assert_eq!(
            alone(&other, "SELECT count(*) FROM t").await.unwrap_err().code(),
            ErrorCode::StatementFailed
        );
    }

    /// Whoever holds the lock is waited for, then the call is told to ask again; the waiting can be cancelled.
    #[tokio::test]
    async fn a_busy_database_is_retryable() {
        let database = Database::new(SqliteJournalMode::Delete, LEDGER).await;
        let mut other = database.other().await;
        let options = SqliteOptions::new("atlas", &database.path).busy_timeout(Duration::from_millis(50));
        let source = SqliteSource::open(options).unwrap();
        run(&mut other, "BEGIN EXCLUSIVE; UPDATE a SET n = 5").await;
        let error = open(&source, 1).await.unwrap_err();
        assert_eq!(error.code(), ErrorCode::SourceBusy);
        assert!(error.is_retryable());
        assert_eq!(
            error.message(),
            "The database atlas is busy: database is locked. Ask again."
        );
        let error = source.write(&sql("UPDATE a SET n = 6"), &[]).await.unwrap_err();
        assert_eq!(error.code(), ErrorCode::SourceBusy);
        assert!(!error.happened_perhaps());
        run(&mut other, "COMMIT").await;
        assert_eq!(only(&alone(&source, "SELECT n FROM a").await.unwrap()), 5);
        source.write(&sql("UPDATE a SET n = 6"), &[]).await.unwrap();
        assert_eq!(only(&alone(&source, "SELECT n FROM a").await.unwrap()), 6);
    }
}

mod files {
    use super::*;

    const ONE: &str = "CREATE TABLE t (n INTEGER); INSERT INTO t VALUES (1)";
    const TWO: &str = "CREATE TABLE t (n INTEGER); INSERT INTO t VALUES (2)";

    /// Hole 11: after `mv` open connections go on with the old file, so nothing is claimed, and the next view reads the
    /// new one.
    #[tokio::test]
    async fn a_file_moved_over_the_database_is_noticed() {
        for mode in [SqliteJournalMode::Wal, SqliteJournalMode::Delete] {
            let database = Database::new(mode, ONE).await;
            let new = database.path.with_file_name("new.db");
            make(&new, SqliteJournalMode::Delete, TWO).await;
            let source = database.source();
            let view = open(&source, 2).await.unwrap();
            let read = snapshot(&view).read(&sql("SELECT n FROM t"), &[]).await.unwrap();
            assert_eq!(only(&read), 1);
            std::fs::rename(&new, &database.path).unwrap();
            let unsound = source.close(view).await.unwrap_err();
            assert_eq!(unsound.reason, UnprovenReason::NoWitness);
            assert_eq!(
                unsound.message,
                "atlas: the database's file, or its log, was replaced"
            );
            if mode == SqliteJournalMode::Delete {
                assert_eq!(only(&alone(&source, "SELECT n FROM t").await.unwrap()), 2);
            }
        }
    }

    #[tokio::test]
    async fn a_deleted_database_is_noticed() {
        let database = Database::wal(ONE).await;
        let source = database.source();
        let view = open(&source, 1).await.unwrap();
        std::fs::remove_file(&database.path).unwrap();
        assert_eq!(
            source.close(view).await.unwrap_err().message,
            "atlas: the database's file is gone"
        );
        let error = open(&source, 1).await.unwrap_err();
        assert_eq!(error.code(), ErrorCode::ViewUnavailable);
        assert!(
            error
                .message()
                .starts_with("The database atlas can't be read: there is no database at "),
            "{error}"
        );
    }

    /// `cp` over the open file keeps its inode: what tells is that the file was written though the engine wrote nothing.
    #[tokio::test]
    async fn a_file_copied_over_the_database_is_noticed() {
        for mode in [SqliteJournalMode::Wal, SqliteJournalMode::Delete] {
            let database = Database::new(mode, ONE).await;
            let new = database.path.with_file_name("new.db");
            make(&new, mode, TWO).await;
            let source = database.source();
            let view = open(&source, 1).await.unwrap();
            snapshot(&view).read(&sql("SELECT n FROM t"), &[]).await.unwrap();
            overwrite(&new, &database.path).await;
            assert_eq!(
                source.close(view).await.unwrap_err().message,
                "atlas: the database's file was written past the engine"
            );
            // What connections remember of the old file isn't mixed with the new one.
            assert_eq!(only(&alone(&source, "SELECT n FROM t").await.unwrap()), 2);
        }
    }

    /// In another process, as `cp` is: closing a descriptor of the file in ours would drop our own locks.
    async fn overwrite(from: &Path, to: &Path) {
        let (from, to) = (from.to_owned(), to.to_owned());
        let copy = move || {
            std::process::Command::new("cp")
                .arg(from)
                .arg(to)
                .status()
                .unwrap()
        };
        assert!(tokio::task::spawn_blocking(copy).await.unwrap().success());
    }

    /// Between two views the same: the connections are opened anew.
    #[tokio::test]
    async fn a_file_copied_between_two_views_is_read_afresh() {
        let database = Database::new(SqliteJournalMode::Delete, ONE).await;
        let new = database.path.with_file_name("new.db");
        make(&new, SqliteJournalMode::Delete, TWO).await;
        let source = database.source();
        assert_eq!(only(&alone(&source, "SELECT n FROM t").await.unwrap()), 1);
        overwrite(&new, &database.path).await;
        assert_eq!(only(&alone(&source, "SELECT n FROM t").await.unwrap()), 2);
    }

    /// The engine's own copying of its log into the file is no alarm.
    #[tokio::test]
    async fn a_checkpoint_during_a_view_is_no_alarm() {
        let database = Database::wal(ONE).await;
        let source = database.source();
        let mut other = database.other().await;
        for _ in 0..20 {
            run(&mut other, "UPDATE t SET n = n + 1").await;
            let view = open(&source, 1).await.unwrap();
            run(&mut other, "PRAGMA wal_checkpoint(PASSIVE)").await;
            snapshot(&view).read(&sql("SELECT n FROM t"), &[]).await.unwrap();
            source.close(view).await.unwrap();
            run(&mut other, "PRAGMA wal_checkpoint(TRUNCATE)").await;
        }
        assert_eq!(only(&alone(&source, "SELECT n FROM t").await.unwrap()), 21);
    }

    /// A path that turns from a rollback journal to a write-ahead log is opened anew.
    #[tokio::test]
    async fn a_changed_journal_mode_is_noticed() {
        let database = Database::new(SqliteJournalMode::Delete, ONE).await;
        let source = database.source();
        alone(&source, "SELECT n FROM t").await.unwrap();
        assert!(!source.capability().shared);
        let mut other = database.other().await;
        run(&mut other, "PRAGMA journal_mode = wal; UPDATE t SET n = 3").await;
        assert_eq!(only(&alone(&source, "SELECT n FROM t").await.unwrap()), 3);
        assert!(source.capability().shared);
    }

    #[test]
    fn paths_that_promise_nothing_are_refused() {
        for (path, why) in [
            (
                "file:/tmp/a.db?immutable=1",
                "it is a URI, which can hide a file's changes (immutable, nolock); give a plain path",
            ),
            ("", "it is empty; for a database in memory write :memory:"),
            ("a\0b", "it contains a NUL"),
        ] {
            let error = SqliteSource::open(SqliteOptions::new("a", path)).unwrap_err();
            assert!(
                matches!(error, SqliteError::Path { why: said, .. } if said == why),
                "{error}"
            );
        }
    }

    #[tokio::test]
    async fn what_is_no_database_is_unavailable_and_nothing_else() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("notes.txt");
        std::fs::write(
            &path,
            "not a database, and long enough to be looked at as one".repeat(100),
        )
        .unwrap();
        let source = SqliteSource::open(SqliteOptions::new("notes", &path)).unwrap();
        let error = open(&source, 1).await.unwrap_err();
        assert_eq!(error.code(), ErrorCode::ViewUnavailable);
        assert_eq!(
            error.message(),
            "The database notes can't be read: file is not a database."
        );
    }
}

/// G10: a table of escapes, and which of the three means stops each alone.
mod escapes {
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
            let refused = CheckedSql::new(text, &[""; 0])
                .is_err_and(|error| matches!(error, SqliteError::Refused { .. }));
            let writes =
                CheckedSql::new(text, &[""; 0]).is_ok_and(|checked| checked.effect() == Effect::Write);
            assert!(refused || writes, "the statement check lets through: {text}");
            let base = SqliteConnectOptions::new;
            assert_eq!(
                layer(&database, base().read_only(true), text).await,
                *read_only,
                "read-only: {text}"
            );
            assert_eq!(
                layer(&database, base().create_if_missing(true).pragma("query_only", "on"), text).await,
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
}
