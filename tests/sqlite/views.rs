//! Views: what several connections see together, and how views begin and end.

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
