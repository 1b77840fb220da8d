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

    /// Reads that turn out slow get more connections, as long as nobody has committed since the snapshot was fixed.
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_view_grows_only_while_nobody_commits() {
        let database = Database::wal(LEDGER).await;
        let slow = sql(
            "WITH RECURSIVE w(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM w WHERE x < 100000) \
                        SELECT (SELECT n FROM a) AS n, count(*) FROM w",
        );
        for commits in [false, true] {
            let options = SqliteOptions::new("atlas", &database.path).connections(2);
            let source = SqliteSource::open(options).unwrap();
            // Another view holds one of the two connections, so that this one starts with the other.
            let (first, view) = (open(&source, 1).await.unwrap(), open(&source, 4).await.unwrap());
            assert_eq!(snapshot(&view).connections(), 1);
            source.close(first).await.unwrap();
            if commits {
                run(&mut database.other().await, STEP).await;
            }
            let answers = join_all((0..4).map(|_| snapshot(&view).read(&slow, &[]))).await;
            let answers: Vec<Answer> = answers.into_iter().map(Result::unwrap).collect();
            assert!(agree(&answers), "{answers:?}");
            assert_eq!(snapshot(&view).connections(), if commits { 1 } else { 2 });
            source.close(view).await.unwrap();
        }
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

    /// The file's content is gone while it is read: no value is made of what is left, and nothing is claimed.
    #[tokio::test]
    async fn a_truncated_database_is_noticed() {
        let rows = "CREATE TABLE t (n INTEGER, s TEXT); INSERT INTO t WITH RECURSIVE c(x) AS \
                    (SELECT 1 UNION ALL SELECT x + 1 FROM c WHERE x < 20000) SELECT x, printf('%0100d', x) FROM c";
        let database = Database::new(SqliteJournalMode::Delete, rows).await;
        let source = database.source();
        let view = open(&source, 1).await.unwrap();
        snapshot(&view)
            .read(&sql("SELECT n FROM t LIMIT 1"), &[])
            .await
            .unwrap();
        overwrite(Path::new("/dev/null"), &database.path).await;
        let error = snapshot(&view)
            .read(&sql("SELECT sum(length(s)) FROM t"), &[])
            .await
            .unwrap_err();
        assert_eq!(error.code(), ErrorCode::ViewLost, "{error}");
        source.close(view).await.unwrap_err();
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
}

mod statements {
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
        let database = Database::wal(
            "PRAGMA encoding = 'UTF-16'; CREATE TABLE t (s TEXT); INSERT INTO t VALUES ('zażółć')",
        )
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
        let million = "WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c WHERE x < 1000000) SELECT x FROM c";
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
            "CREATE VIEW calm AS SELECT 'random()' AS n, date(at) FROM t",
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
            ("SELECT sqlite_version()", true),
            ("SELECT date(at, '+1 day') FROM t", true),
            ("SELECT date('now'), CURRENT_TIMESTAMP", true),
            ("SELECT date(coalesce(at, 'now')) FROM t", false),
            ("SELECT date(\"now\")", false),
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
}

mod stopping {
    use super::*;

    /// Dropping a read stops its statement, and the view reads on, in the same snapshot.
    #[tokio::test]
    async fn a_dropped_read_is_stopped_and_its_connection_works_on() {
        let database = Database::wal("CREATE TABLE t (n INTEGER); INSERT INTO t VALUES (1)").await;
        let source = database.source();
        let view = open(&source, 1).await.unwrap();
        run(&mut database.other().await, "UPDATE t SET n = 2").await;
        for _ in 0..5 {
            let read = sql(ENDLESS);
            let late =
                tokio::time::timeout(Duration::from_millis(20), snapshot(&view).read(&read, &[])).await;
            assert!(late.is_err());
            // The next read waits for the connection, which is only free when the endless statement has stopped.
            let started = Instant::now();
            let next = snapshot(&view).read(&sql("SELECT n FROM t"), &[]).await.unwrap();
            assert_eq!(only(&next), 1);
            assert!(
                started.elapsed() < Duration::from_secs(2),
                "{:?}",
                started.elapsed()
            );
        }
        source.close(view).await.unwrap();
        assert_eq!(only(&alone(&source, "SELECT n FROM t").await.unwrap()), 2);
    }

    /// G7: closing a view ends what still runs in it.
    #[tokio::test]
    async fn closing_a_view_ends_what_runs_in_it() {
        let database = Database::wal("CREATE TABLE t (n INTEGER)").await;
        let source = database.source();
        let view = open(&source, 1).await.unwrap();
        let read = sql(ENDLESS);
        let running = Arc::clone(&view);
        let task = tokio::spawn(async move { snapshot(&running).read(&read, &[]).await });
        tokio::time::sleep(Duration::from_millis(20)).await;
        tokio::time::timeout(Duration::from_secs(2), source.close(view))
            .await
            .unwrap()
            .unwrap();
        assert_eq!(task.await.unwrap().unwrap_err().code(), ErrorCode::ViewLost);
        tokio::time::timeout(Duration::from_secs(2), source.shutdown())
            .await
            .unwrap();
    }

    #[tokio::test]
    async fn a_write_ends_in_its_own_time_though_its_caller_is_gone() {
        let database = Database::wal("CREATE TABLE t (n INTEGER)").await;
        let source = database.source();
        let long = sql(
            "WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c WHERE x < 300000) \
                        INSERT INTO t SELECT x FROM c",
        );
        let gone = tokio::time::timeout(Duration::from_millis(5), source.write(&long, &[])).await;
        assert!(gone.is_err());
        source.shutdown().await;
        assert_eq!(
            only(&alone(&source, "SELECT count(*) FROM t").await.unwrap()),
            300_000
        );
    }

    #[tokio::test]
    async fn a_write_that_never_ends_is_undone() {
        let database = Database::wal("CREATE TABLE t (n INTEGER)").await;
        let options = SqliteOptions::new("atlas", &database.path).write_max(Duration::from_millis(50));
        let source = SqliteSource::open(options).unwrap();
        let endless = sql(
            "WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c) INSERT INTO t SELECT x FROM c",
        );
        let error = source.write(&endless, &[]).await.unwrap_err();
        assert_eq!(error.code(), ErrorCode::DeadlineExceeded);
        assert_eq!(error.message(), "atlas was undone: it ran for longer than 50 ms.");
        assert!(!error.happened_perhaps());
        source.write(&sql("INSERT INTO t VALUES (1)"), &[]).await.unwrap();
        assert_eq!(only(&alone(&source, "SELECT count(*) FROM t").await.unwrap()), 1);
    }

    #[tokio::test]
    async fn a_write_that_fails_leaves_nothing_and_the_next_one_works() {
        let database = Database::wal("CREATE TABLE t (n INTEGER UNIQUE); INSERT INTO t VALUES (1)").await;
        let source = database.source();
        let error = source
            .write(&sql("INSERT INTO t VALUES (2), (1)"), &[])
            .await
            .unwrap_err();
        assert_eq!(error.code(), ErrorCode::StatementFailed);
        assert_eq!(
            error.message(),
            "Could not complete atlas: UNIQUE constraint failed: t.n."
        );
        source.write(&sql("INSERT INTO t VALUES (3)"), &[]).await.unwrap();
        assert_eq!(
            alone(&source, "SELECT n FROM t").await.unwrap().value["rows"],
            json!([{ "n": 1 }, { "n": 3 }])
        );
        // A write changes the schema under the connection that writes.
        source
            .write(&sql("ALTER TABLE t ADD COLUMN m"), &[])
            .await
            .unwrap();
        let back = source
            .write(&sql("INSERT INTO t VALUES (4, 5) RETURNING *"), &[])
            .await
            .unwrap();
        assert_eq!(back.value["rows"], json!([{ "n": 4, "m": 5 }]));
    }

    /// More rows than an answer may have don't undo the write that returned them.
    #[tokio::test]
    async fn a_write_that_returns_much_is_done_all_the_same() {
        let database = Database::wal("CREATE TABLE t (n INTEGER)").await;
        let options = SqliteOptions::new("atlas", &database.path).max_rows(3);
        let source = SqliteSource::open(options).unwrap();
        let many = sql("INSERT INTO t SELECT value FROM json_each('[1,2,3,4,5,6,7,8,9]') RETURNING n");
        let answer = source.write(&many, &[]).await.unwrap();
        assert_eq!(
            (answer.value["rowCount"].as_u64(), &answer.value["truncated"]),
            (Some(3), &json!(true))
        );
        assert_eq!(answer.value["rowsAffected"], 9);
        assert_eq!(only(&alone(&source, "SELECT count(*) FROM t").await.unwrap()), 9);
    }
}

/// The statement as a tool, called as the executor calls it.
mod tools {
    use super::*;

    const ORDERS: &str = "CREATE TABLE orders (order_id INTEGER PRIMARY KEY, account TEXT, cents INTEGER); \
                          INSERT INTO orders VALUES (1, 'henderson', 15000), (2, 'henderson', 500), (3, 'ngo', 7)";

    /// A set whose calls lean on this source.
    fn set(source: &SqliteSource, calls: usize) -> Arc<SetContext> {
        let name = Arc::clone(Source::name(source));
        let sources = [(Arc::clone(&name), Arc::new(source.clone()) as Arc<dyn Source>)]
            .into_iter()
            .collect();
        let views = Views::new(
            Arc::new(sources),
            [(name, calls)].into_iter().collect(),
            TaskTracker::new(),
        );
        Arc::new(SetContext {
            views,
            ..SetContext::alone(timeline(), calls)
        })
    }

    fn request(
        set: &Arc<SetContext>,
        position: usize,
        arguments: Value,
        deadline: Option<Instant>,
    ) -> CallRequest {
        let Value::Object(arguments) = arguments else {
            panic!("an object")
        };
        let facts = Facts {
            class: Class::Read,
            because: None,
            dependency: "atlas".into(),
            source: Some("atlas".into()),
            outputs: Arc::from([]),
            preconditions: Arc::from([]),
            filters: Arc::from([]),
            timeout: None,
            is_final: false,
        };
        let call = ResolvedCall {
            position,
            id: "c".into(),
            tool: "list_orders".into(),
            arguments: Arc::new(arguments),
            after: Vec::new(),
            facts: Arc::new(facts),
            keys: Keys::NONE,
            partition_key: None,
            unchecked: false,
            fault: None,
        };
        CallRequest::new(Arc::new(call), Arc::clone(set), deadline)
    }

    async fn orders(source: &SqliteSource) -> SqliteTool {
        let text = "SELECT order_id, cents FROM orders WHERE account = :account AND cents >= :least ORDER BY order_id";
        let least = SqlParameter::new("least").default(0);
        let parameters = [SqlParameter::new("account"), least];
        let (spec, tool) = source.tool("list_orders", text, parameters).await.unwrap();
        assert!(matches!(spec.effect, Some(PerCall::Always(Effect::Read))));
        assert_eq!(spec.source.as_deref(), Some("atlas"));
        let PerCall::Always(fields) = &spec.output_fields else {
            panic!("fixed")
        };
        let fields: Vec<_> = fields.iter().map(|field| (&*field.name, field.origin)).collect();
        assert_eq!(
            fields,
            [
                ("order_id", FieldOrigin::Derived),
                ("cents", FieldOrigin::Derived)
            ]
        );
        let schema = spec.input_schema.unwrap();
        assert_eq!(
            schema["properties"],
            json!({ "account": {}, "least": { "default": 0 } })
        );
        tool
    }

    #[tokio::test]
    async fn a_set_reads_one_view_and_a_write_ends_it() {
        let database = Database::wal(ORDERS).await;
        let source = database.source();
        let read = orders(&source).await;
        let set = set(&source, 4);
        let call = |position, arguments| read.clone().oneshot(request(&set, position, arguments, None));
        let henderson = json!({ "account": "henderson" });
        let (first, second) = tokio::join!(
            call(0, henderson.clone()),
            call(
                1,
                json!({ "account": "henderson", "least": 1_000, "other": null })
            )
        );
        let (first, second) = (first.unwrap(), second.unwrap());
        assert_eq!(
            first.value["rows"],
            json!([{ "order_id": 1, "cents": 15000 }, { "order_id": 2, "cents": 500 }])
        );
        assert_eq!(second.value["rows"], json!([{ "order_id": 1, "cents": 15000 }]));
        assert!(first.complete && first.view.is_some());
        assert_eq!(first.view, second.view);
        // As the executor does before a write.
        set.views.close().await;
        assert_eq!(set.views.unsound(), []);
        let (spec, write) = source
            .tool("raise", "UPDATE orders SET cents = cents + 1", [""; 0])
            .await
            .unwrap();
        assert!(matches!(spec.effect, Some(PerCall::Always(Effect::Write))));
        let written = write.oneshot(request(&set, 2, json!({}), None)).await.unwrap();
        assert_eq!(
            (
                written.value["rowsAffected"].as_u64(),
                written.view,
                written.stamp
            ),
            (Some(3), None, None)
        );
        let third = call(3, henderson).await.unwrap();
        assert_eq!(third.value["rows"][0]["cents"], 15001);
        assert_ne!(third.view, first.view);
        set.views.close().await;
    }

    #[tokio::test]
    async fn a_cancelled_or_late_call_ends_at_once_and_leaves_the_view_usable() {
        let database = Database::wal(ORDERS).await;
        let source = database.source();
        let endless = source.undescribed_tool(ENDLESS, [""; 0]).unwrap();
        let read = orders(&source).await;
        let set = set(&source, 3);
        let late = Instant::now() + Duration::from_millis(30);
        let error = endless
            .clone()
            .oneshot(request(&set, 0, json!({}), Some(late)))
            .await
            .unwrap_err();
        assert_eq!(
            (error.code(), error.message()),
            (
                ErrorCode::DeadlineExceeded,
                "list_orders was not done by the deadline."
            )
        );
        let cancelled = endless.oneshot(request(&set, 1, json!({}), None));
        let cancel = async {
            tokio::time::sleep(Duration::from_millis(30)).await;
            set.signals.cancel(1);
        };
        let (error, ()) = tokio::join!(cancelled, cancel);
        assert_eq!(error.unwrap_err().code(), ErrorCode::Cancelled);
        let answer = read
            .oneshot(request(&set, 2, json!({ "account": "ngo" }), None))
            .await
            .unwrap();
        assert_eq!(answer.value["rowCount"], 1);
        set.views.close().await;
        tokio::time::timeout(Duration::from_secs(2), source.shutdown())
            .await
            .unwrap();
    }

    #[tokio::test]
    async fn a_file_replaced_during_a_set_is_told_to_the_judge() {
        let database = Database::wal(ORDERS).await;
        let source = database.source();
        let read = orders(&source).await;
        let set = set(&source, 1);
        let answer = read
            .oneshot(request(&set, 0, json!({ "account": "ngo" }), None))
            .await
            .unwrap();
        let new = database.path.with_file_name("new.db");
        make(&new, SqliteJournalMode::Wal, ORDERS).await;
        std::fs::rename(&new, &database.path).unwrap();
        set.views.close().await;
        let unsound = set.views.unsound();
        assert_eq!(unsound.len(), 1);
        assert_eq!(Some(&unsound[0].0), answer.view.as_ref());
    }

    #[tokio::test]
    async fn a_tool_tells_its_own_name() {
        let database = Database::wal(ORDERS).await;
        let source = database.source();
        let tool = source.undescribed_tool("SELECT * FROM missing", [""; 0]).unwrap();
        let set = set(&source, 1);
        let error = tool.oneshot(request(&set, 0, json!({}), None)).await.unwrap_err();
        assert_eq!(
            error.message(),
            "Could not complete list_orders: no such table: missing."
        );
        let error = source
            .tool("missing", "SELECT * FROM missing", [""; 0])
            .await
            .unwrap_err();
        assert_eq!(
            error.to_string(),
            "the database refused the statement: no such table: missing"
        );
        let away = SqliteSource::open(SqliteOptions::new(
            "away",
            database.path.with_file_name("away.db"),
        ))
        .unwrap();
        let error = away.tool("t", "SELECT 1", [""; 0]).await.unwrap_err();
        assert!(matches!(error, SqliteError::Unavailable(_)), "{error}");
        set.views.close().await;
    }
}
