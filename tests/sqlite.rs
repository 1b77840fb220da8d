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

mod escapes;
mod files;
mod statements;
mod stopping;
mod tools;
mod views;

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
