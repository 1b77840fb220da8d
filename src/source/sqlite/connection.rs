//! One connection, and how a statement on it is stopped.
//!
//! A driver's future is never dropped before it is done: whatever runs on a connection runs in a task that owns the
//! connection, and the caller waits for the task. A caller who goes away asks for a stop, which the engine's progress
//! handler sees within a thousand steps; the task then ends in its own time, and the connection is as good as before.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures_util::TryStreamExt as _;
use sqlx::sqlite::{SqliteArguments, SqliteConnectOptions, SqliteConnection, SqliteRow};
use sqlx::{AssertSqlSafe, ConnectOptions as _, Connection as _, Either, Executor as _, Row as _};
use tokio::time::Instant;

use super::catalogue::Shape;
use super::error::Fault;
use super::file::Written;
use super::value::Rows;

/// How many steps of the engine lie between two looks at [`Stop`]: about 10 µs.
const STEPS: i32 = 1_000;

/// Opens the transaction and fixes its snapshot. `BEGIN` alone fixes nothing: the first read does.
const BEGIN: &str = "BEGIN; SELECT 1 FROM sqlite_master LIMIT 1; PRAGMA schema_version; PRAGMA data_version";

/// The same, and before it how far the log has been copied back: the only thing that may write the file meanwhile.
const BEGIN_WITH_LOG: &str = "PRAGMA wal_checkpoint(NOOP); BEGIN; SELECT 1 FROM sqlite_master LIMIT 1; \
                              PRAGMA schema_version; PRAGMA data_version";

/// The jobs of a connection are numbered; those up to a number can be stopped. Asking for a job that has ended stops
/// nothing, so a caller may ask too late.
#[derive(Debug, Default)]
pub(super) struct Stop {
    running: AtomicU64,
    stopped: AtomicU64,
}

impl Stop {
    /// Starts the next job. There must be none.
    pub(super) fn next_job(&self) -> u64 {
        self.running.fetch_add(1, Ordering::SeqCst) + 1
    }

    /// Asks a job to stop.
    pub(super) fn stop(&self, job: u64) {
        self.stopped.fetch_max(job, Ordering::SeqCst);
    }

    /// Asks whatever runs to stop.
    pub(super) fn stop_running(&self) {
        self.stop(self.running.load(Ordering::SeqCst));
    }

    pub(super) fn is_stopped(&self) -> bool {
        self.stopped.load(Ordering::SeqCst) >= self.running.load(Ordering::SeqCst)
    }
}

/// What a transaction found when its snapshot was fixed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Begun {
    /// Which version of the schema.
    pub(super) schema: i64,
    /// Which version of the data, by this connection's own count.
    pub(super) data: i64,
    /// How many frames of the log had been copied into the file, if that could be asked.
    pub(super) copied: Option<i64>,
}

/// What a statement may return at most.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bounds {
    pub(super) rows: usize,
    pub(super) bytes: usize,
    /// Whether a statement that has more to return is stopped. One that writes mustn't be: it would be undone.
    pub(super) stop: bool,
}

/// A connection of our own.
pub(super) struct Connection {
    driver: SqliteConnection,
    pub(super) stop: Arc<Stop>,
    /// The schema that cached statements were prepared under.
    schema: Option<i64>,
    /// What it saw when it was last used.
    pub(super) last: Option<(Written, Begun)>,
    /// Its number, for witnesses: counts of different connections mean nothing to each other.
    pub(super) number: u64,
}

impl std::fmt::Debug for Connection {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Connection")
            .field("number", &self.number)
            .finish_non_exhaustive()
    }
}

/// Counts connections; a number is never given twice in a process.
static CONNECTIONS: AtomicU64 = AtomicU64::new(1);

impl Connection {
    /// Opens one.
    pub(super) async fn open(options: &SqliteConnectOptions) -> Result<Self, Fault> {
        let mut driver = options.connect().await.map_err(Fault::from_sqlx)?;
        let stop = Arc::new(Stop::default());
        stop.next_job();
        let seen = Arc::clone(&stop);
        let mut handle = driver.lock_handle().await.map_err(Fault::from_sqlx)?;
        handle.set_progress_handler(STEPS, move || !seen.is_stopped());
        drop(handle);
        let number = CONNECTIONS.fetch_add(1, Ordering::Relaxed);
        Ok(Self {
            driver,
            stop,
            schema: None,
            last: None,
            number,
        })
    }

    /// Opens a read transaction and fixes its snapshot, waiting up to `patience` for whoever holds a lock.
    pub(super) async fn begin(&mut self, with_log: bool, patience: Duration) -> Result<Begun, Fault> {
        let sql = if with_log { BEGIN_WITH_LOG } else { BEGIN };
        let until = Instant::now() + patience;
        let mut wait = Duration::from_millis(1);
        let rows = loop {
            match self.ask(sql).await {
                Ok(rows) => break rows,
                Err(fault) => {
                    // BEGIN may have worked; a ROLLBACK that has nothing to roll back is refused, and that is fine.
                    let _ = self.rollback().await;
                    if !matches!(fault, Fault::Busy(_)) || Instant::now() + wait > until {
                        return Err(fault);
                    }
                }
            }
            // The engine's own waiting can't be stopped, so it is told not to wait.
            tokio::time::sleep(wait).await;
            wait = (wait * 2).min(Duration::from_millis(50));
        };
        let value = |from_end: usize, column: usize| -> Result<i64, Fault> {
            let row = rows.len().checked_sub(from_end).and_then(|place| rows.get(place));
            let row = row.ok_or_else(|| Fault::Lost("a snapshot without its version".into()))?;
            row.try_get(column).map_err(Fault::from_sqlx)
        };
        let copied = if with_log {
            rows.first().and_then(|row| row.try_get(2).ok())
        } else {
            None
        };
        let begun = Begun {
            schema: value(2, 0)?,
            data: value(1, 0)?,
            copied,
        };
        if self.schema.replace(begun.schema) != Some(begun.schema) {
            // The driver keeps a statement's columns from when it was first prepared; under another schema they would
            // be another's.
            self.forget_statements().await?;
        }
        Ok(begun)
    }

    /// Ends the transaction without a trace. An error means that it had ended already: what was read after that moment
    /// was read in no snapshot.
    pub(super) async fn rollback(&mut self) -> Result<(), Fault> {
        self.ask("ROLLBACK").await.map(drop)
    }

    /// Whether the transaction is still open: in one, `BEGIN` is refused.
    pub(super) async fn is_in_transaction(&mut self) -> bool {
        let began = self.ask("BEGIN").await;
        if began.is_ok() {
            let _ = self.rollback().await;
        }
        matches!(began, Err(Fault::Statement(_)))
    }

    /// Runs statements of our own and returns all their rows.
    pub(super) async fn ask(&mut self, sql: &'static str) -> Result<Vec<SqliteRow>, Fault> {
        self.driver
            .fetch_all(sqlx::query(sql))
            .await
            .map_err(Fault::from_sqlx)
    }

    /// The first column of the first row of a statement of our own.
    pub(super) async fn ask_integer(&mut self, sql: &'static str) -> Result<i64, Fault> {
        let rows = self.ask(sql).await?;
        let row = rows
            .first()
            .ok_or_else(|| Fault::Lost(format!("no answer to {sql}")))?;
        row.try_get(0).map_err(Fault::from_sqlx)
    }

    /// Runs a statement of our own with one text argument.
    pub(super) async fn ask_about(&mut self, sql: &'static str, name: &str) -> Result<Vec<SqliteRow>, Fault> {
        self.driver
            .fetch_all(sqlx::query(sql).bind(name))
            .await
            .map_err(Fault::from_sqlx)
    }

    /// The columns of a statement: each with its name, its table and its name there.
    pub(super) async fn columns(
        &mut self,
        sql: &Arc<str>,
    ) -> Result<Vec<(String, Option<(String, String)>)>, Fault> {
        use sqlx::{Column as _, SqlSafeStr as _, Statement as _};
        let sql = AssertSqlSafe(Arc::clone(sql)).into_sql_str();
        let prepared = self.driver.prepare(sql).await.map_err(Fault::from_sqlx)?;
        let columns = prepared.columns().iter().map(|column| {
            let origin = match column.origin() {
                sqlx::ColumnOrigin::Table(of) => Some((of.table.to_string(), of.name.to_string())),
                _ => None,
            };
            (column.name().to_owned(), origin)
        });
        Ok(columns.collect())
    }

    /// Runs a checked statement and takes in what it returns, up to the bounds.
    pub(super) async fn run(
        &mut self,
        job: u64,
        sql: &Arc<str>,
        arguments: SqliteArguments,
        shape: &Shape,
        bounds: Bounds,
    ) -> Result<Rows, Fault> {
        let mut rows = Rows::default();
        let query = sqlx::query_with(AssertSqlSafe(Arc::clone(sql)), arguments);
        let mut results = self.driver.fetch_many(query);
        loop {
            match results.try_next().await {
                Ok(None) => return Ok(rows),
                Ok(Some(Either::Left(done))) => rows.changed += done.rows_affected(),
                Ok(Some(Either::Right(_))) if rows.len() == bounds.rows => rows.truncated = true,
                Ok(Some(Either::Right(_))) if rows.truncated => {}
                Ok(Some(Either::Right(row))) => {
                    rows.push(&shape.names, &row, bounds.bytes)
                        .map_err(Fault::from_sqlx)?;
                }
                Err(error) => return Err(Fault::from_sqlx(error)),
            }
            if rows.truncated && bounds.stop {
                break;
            }
        }
        // The rest is not wanted. The stream is read to its end all the same, so that the statement is over when this
        // returns; being stopped, it is over soon.
        self.stop.stop(job);
        while let Ok(Some(_)) = results.try_next().await {}
        Ok(rows)
    }

    /// Forgets every prepared statement.
    pub(super) async fn forget_statements(&mut self) -> Result<(), Fault> {
        self.driver
            .clear_cached_statements()
            .await
            .map_err(Fault::from_sqlx)
    }

    /// Closes the connection and waits until its thread has ended.
    pub(super) async fn close(self) {
        let _ = self.driver.close().await;
    }
}
