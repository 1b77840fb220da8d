//! Writes: one at a time, each in a transaction of its own that always comes to an end.

use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use tokio::time::Instant;

use super::catalogue::{Shape, Tainted};
use super::connection::{Bounds, Connection};
use super::error::Fault;
use super::file::Identity;
use super::statement::CheckedSql;
use super::value::{Bound, Rows};
use super::{Shared, SqliteSource};
use crate::reading::{Answer, CallError, ErrorCode};
use crate::tool::Effect;

/// The one connection that may write, and the file it writes to.
#[derive(Debug, Default)]
pub(super) struct Writer(Option<(Option<Identity>, Connection)>);

/// How a write went wrong.
enum Broken {
    /// It was rolled back.
    Undone(Fault),
    /// It took too long, and was rolled back.
    Late,
    /// Nobody knows whether its COMMIT happened.
    Unknown(Fault),
}

impl From<Fault> for Broken {
    fn from(fault: Fault) -> Self {
        Self::Undone(fault)
    }
}

impl SqliteSource {
    /// Runs a write in a transaction of its own, after the writes before it.
    ///
    /// # Errors
    /// - `not_read_only`: the source is declared read-only, or the statement is a read.
    /// - `source_busy`: somebody else held the lock for too long; nothing happened.
    /// - `statement_failed`: the engine refused it; nothing happened.
    /// - `deadline_exceeded`: it ran for longer than a write may and was undone.
    /// - `view_lost`: the database can't be written; if that showed only at the end it may have happened.
    ///
    /// # Cancel safety
    /// Dropped while it waits for its turn, it never starts. Later it goes on to its end without its caller.
    pub async fn write(&self, statement: &CheckedSql, values: &[Value]) -> Result<Answer, CallError> {
        self.write_keeping(&self.0.name, statement, values, ()).await
    }

    /// The same, for a tool; `kept` is dropped when the write is over.
    pub(super) async fn write_keeping(
        &self,
        tool: &str,
        statement: &CheckedSql,
        values: &[Value],
        kept: impl Send + 'static,
    ) -> Result<Answer, CallError> {
        if self.0.options.read_only || statement.effect() != Effect::Write {
            let why = if self.0.options.read_only {
                "its source is read-only"
            } else {
                "its statement is a read"
            };
            let text = format!("Could not complete {tool}: {why}.");
            return Err(CallError::new(ErrorCode::NotReadOnly, text));
        }
        let bound = super::view::bound(statement, values)?;
        let arguments = Bound::arguments(bound)?;
        let mut writer = Arc::clone(&self.0.writer).lock_owned().await;
        let (source, statement) = (Arc::clone(&self.0), statement.clone());
        let task = self.0.tasks.spawn(async move {
            let _kept = kept;
            source.write(&mut writer, &statement, arguments).await
        });
        match task.await {
            Ok(Ok((rows, shape))) => {
                let changed = rows.changed;
                let mut value = rows.into_json(&shape.columns);
                if let Some(value) = value.as_object_mut() {
                    value.insert("rowsAffected".to_owned(), changed.into());
                }
                Ok(Answer::new(value))
            }
            Ok(Err(Broken::Undone(fault))) => Err(fault.into_call(tool)),
            Ok(Err(Broken::Late)) => {
                let longest = self.0.options.write_max.as_millis();
                let text = format!("{tool} was undone: it ran for longer than {longest} ms.");
                Err(CallError::new(ErrorCode::DeadlineExceeded, text))
            }
            Ok(Err(Broken::Unknown(fault))) => Err(fault.into_call(tool).may_have_happened()),
            Err(_) => {
                let fault = Fault::Lost("its task has ended".to_owned());
                Err(fault.into_call(tool).may_have_happened())
            }
        }
    }
}

impl Shared {
    async fn write(
        &self,
        writer: &mut Writer,
        statement: &CheckedSql,
        arguments: sqlx::sqlite::SqliteArguments,
    ) -> Result<(Rows, Shape), Broken> {
        let mut connection = self.writer(writer).await?;
        let result = self.transact(&mut connection, statement, arguments).await;
        connection.stop.next_job();
        // A connection that can't be rolled back or has seen worse isn't used again.
        let usable = match &result {
            Ok(_) => true,
            Err(Broken::Undone(Fault::Lost(_)) | Broken::Unknown(_)) => false,
            Err(_) => !connection.is_in_transaction().await,
        };
        if usable {
            let identity = self
                .files
                .as_ref()
                .and_then(|files| files.look())
                .map(|look| look.identity);
            writer.0 = Some((identity, connection));
        }
        result
    }

    /// The writing connection, to the file that the path leads to now.
    async fn writer(&self, writer: &mut Writer) -> Result<Connection, Fault> {
        // A database in memory lives as long as it has a connection: the generation's monitor.
        self.generation().await?;
        let now = self
            .files
            .as_ref()
            .and_then(|files| files.look())
            .map(|look| look.identity);
        match writer.0.take() {
            Some((then, connection)) if then == now => Ok(connection),
            _ => Connection::open(&self.write_options).await,
        }
    }

    async fn transact(
        &self,
        connection: &mut Connection,
        statement: &CheckedSql,
        arguments: sqlx::sqlite::SqliteArguments,
    ) -> Result<(Rows, Shape), Broken> {
        self.patiently(connection, "BEGIN IMMEDIATE").await?;
        let result = self.run_write(connection, statement, arguments).await;
        let committed = match result {
            Ok(done) => {
                self.patiently(connection, "COMMIT")
                    .await
                    .map(|()| done)
                    .map_err(|fault| match fault {
                        Fault::Lost(_) => Broken::Unknown(fault),
                        refused => Broken::Undone(refused),
                    })
            }
            Err(broken) => Err(broken),
        };
        if committed.is_err() {
            connection.stop.next_job();
            // Refused if the engine has rolled back already.
            let _ = connection.rollback().await;
        }
        committed
    }

    async fn run_write(
        &self,
        connection: &mut Connection,
        statement: &CheckedSql,
        arguments: sqlx::sqlite::SqliteArguments,
    ) -> Result<(Rows, Shape), Broken> {
        // The driver keeps columns from when a statement was first prepared, and a write may change the schema.
        connection.forget_statements().await?;
        let shape = Shape::read(connection, statement, &Tainted::default()).await?;
        let bounds = Bounds {
            rows: self.options.max_rows,
            bytes: self.options.max_bytes,
            stop: false,
        };
        let stop = Arc::clone(&connection.stop);
        let job = stop.next_job();
        let result = {
            let running = connection.run(job, statement.engine_sql(), arguments, &shape, bounds);
            tokio::pin!(running);
            tokio::select! {
                result = &mut running => result,
                () = tokio::time::sleep(self.options.write_max) => {
                    stop.stop(job);
                    running.await
                }
            }
        };
        match result {
            Ok(rows) => Ok((rows, shape)),
            Err(Fault::Stopped) => Err(Broken::Late),
            Err(fault) => Err(Broken::Undone(fault)),
        }
    }

    /// Runs a statement of the transaction's own, waiting for whoever holds the lock.
    async fn patiently(&self, connection: &mut Connection, sql: &'static str) -> Result<(), Fault> {
        let until = Instant::now() + self.options.busy_timeout;
        let mut wait = Duration::from_millis(1);
        loop {
            match connection.ask(sql).await {
                Err(Fault::Busy(message)) => {
                    if Instant::now() + wait > until {
                        return Err(Fault::Busy(message));
                    }
                }
                other => return other.map(drop),
            }
            tokio::time::sleep(wait).await;
            wait = (wait * 2).min(Duration::from_millis(50));
        }
    }
}
