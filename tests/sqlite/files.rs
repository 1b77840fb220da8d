//! The file is not the database (hole 11): moved, copied over, removed, emptied.

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

/// Through another name of the file a process has a log of its own: what it writes is seen by no snapshot of ours.
#[cfg(unix)]
#[tokio::test]
async fn nothing_is_claimed_of_a_file_with_a_second_name() {
    let database = Database::wal(ONE).await;
    let source = database.source();
    let view = open(&source, 1).await.unwrap();
    assert_eq!(source.close(view).await, Ok(()));
    std::fs::hard_link(&database.path, database.path.with_file_name("other.db")).unwrap();
    let view = open(&source, 1).await.unwrap();
    let message = source.close(view).await.unwrap_err().message;
    assert!(message.contains("a hard link"), "{message}");
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
