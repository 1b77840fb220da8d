//! Reads that are stopped, writes that are not.

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
        let late = tokio::time::timeout(Duration::from_millis(20), snapshot(&view).read(&read, &[])).await;
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
    let endless =
        sql("WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c) INSERT INTO t SELECT x FROM c");
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
