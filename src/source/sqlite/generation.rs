//! All connections to one file, from its opening until it is another file.
//!
//! A *monitor* connection is opened first and stays: `PRAGMA data_version`, asked twice on one connection, tells whether
//! anybody committed in between. It never writes, and by being there it keeps the log and its index from being removed.
//! When the monitor is lost, or the path leads to another file, the generation has ended: nothing that it attested is
//! repeated, and whoever reads next gets a new one.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::time::Duration;

use sqlx::Row as _;
use sqlx::sqlite::SqliteConnectOptions;

use super::catalogue::Catalogue;
use super::connection::Connection;
use super::error::Fault;
use super::file::{Files, Identity, Look};
use super::lock;

/// The first engine that can be asked about its log without doing anything to it.
const ASKABLE_LOG: (u32, u32) = (3, 51);

/// Counts generations; a number is never given twice in a process.
static GENERATIONS: AtomicU64 = AtomicU64::new(1);

/// All connections to one file.
#[derive(Debug)]
pub(super) struct Generation {
    pub(super) number: u64,
    options: SqliteConnectOptions,
    /// None for a database in memory.
    files: Option<Files>,
    identity: Option<Identity>,
    /// Whether several connections can be shown to see one version.
    pub(super) shared: bool,
    /// Whether the log can be asked how far it was copied into the file.
    pub(super) asks_log: bool,
    monitor: tokio::sync::Mutex<Connection>,
    /// What the monitor last counted.
    seen: AtomicI64,
    idle: Mutex<Vec<Connection>>,
    ended: AtomicBool,
    pub(super) catalogue: Mutex<Catalogue>,
}

impl Generation {
    /// Opens the file at the path and looks at what it is.
    pub(super) async fn open(
        anchor: &SqliteConnectOptions,
        readers: &SqliteConnectOptions,
        files: Option<Files>,
        patience: Duration,
    ) -> Result<Self, Fault> {
        let before = match &files {
            Some(files) => Some(files.look().ok_or_else(|| {
                Fault::Lost(format!("there is no database at {}", files.database.display()))
            })?),
            None => None,
        };
        let mut monitor = Connection::open(anchor).await?;
        let begun = monitor.begin(false, patience).await?;
        let text = |rows: Vec<sqlx::sqlite::SqliteRow>| -> Result<String, Fault> {
            let row = rows
                .first()
                .ok_or_else(|| Fault::Lost("the engine says nothing about itself".into()))?;
            row.try_get(0).map_err(Fault::from_sqlx)
        };
        let mode = text(monitor.ask("PRAGMA journal_mode").await?)?;
        let version = text(monitor.ask("SELECT sqlite_version()").await?)?;
        monitor.rollback().await?;
        let identity = files.as_ref().and_then(Files::look).map(|look| look.identity);
        if let (Some(before), Some(identity)) = (before, identity)
            && !before.identity.same_database(&identity)
        {
            return Err(Fault::Lost("the file was replaced while it was opened".into()));
        }
        let wal = mode.eq_ignore_ascii_case("wal");
        let local = files.as_ref().is_some_and(Files::is_local);
        Ok(Self {
            number: GENERATIONS.fetch_add(1, Ordering::Relaxed),
            options: readers.clone(),
            shared: wal && local && identity.is_some_and(|identity| identity.has_log()),
            asks_log: wal && can_ask_log(&version),
            files,
            identity,
            monitor: tokio::sync::Mutex::new(monitor),
            seen: AtomicI64::new(begun.data),
            idle: Mutex::default(),
            ended: AtomicBool::new(false),
            catalogue: Mutex::default(),
        })
    }

    /// What stands at the path, if it is still the file that was opened. A database in memory has no path.
    ///
    /// # Errors
    /// What became of the file; the generation has ended.
    pub(super) fn look(&self) -> Result<Option<Look>, &'static str> {
        let Some(files) = &self.files else { return Ok(None) };
        let look = files.look();
        match look {
            Some(look) if Some(look.identity) == self.identity && !self.has_ended() => Ok(Some(look)),
            None => self.ended_because("the database's file is gone"),
            Some(_) => self.ended_because("the database's file, or its log, was replaced"),
        }
    }

    fn ended_because<T>(&self, why: &'static str) -> Result<T, &'static str> {
        self.end();
        Err(why)
    }

    pub(super) fn has_ended(&self) -> bool {
        self.ended.load(Ordering::SeqCst)
    }

    /// Nothing more is read from this file: its connections close as they come back.
    pub(super) fn end(&self) {
        self.ended.store(true, Ordering::SeqCst);
        lock(&self.idle).clear();
    }

    /// What the monitor last counted: it stood there at some time before now.
    pub(super) fn seen(&self) -> i64 {
        self.seen.load(Ordering::SeqCst)
    }

    /// The count of foreign commits, now. Equal at two times, nobody committed between them.
    pub(super) async fn data_version(&self) -> Result<i64, Fault> {
        let mut monitor = self.monitor.lock().await;
        let version = monitor.ask_integer("PRAGMA data_version").await;
        match version {
            Ok(version) => self.seen.store(version, Ordering::SeqCst),
            Err(Fault::Busy(_)) => {}
            Err(_) => self.end(),
        }
        version
    }

    /// How many frames of the log were copied into the file; nothing if that can't be asked.
    pub(super) async fn copied(&self) -> Option<i64> {
        if !self.asks_log {
            return None;
        }
        let rows = self
            .monitor
            .lock()
            .await
            .ask("PRAGMA wal_checkpoint(NOOP)")
            .await
            .ok()?;
        rows.first()?.try_get(2).ok()
    }

    /// A connection to this file, opened if none is idle.
    pub(super) async fn take(&self) -> Result<Connection, Fault> {
        let idle = lock(&self.idle).pop();
        match idle {
            Some(connection) => Ok(connection),
            None => Connection::open(&self.options).await,
        }
    }

    /// Takes back a connection that has no transaction.
    pub(super) fn give_back(&self, connection: Connection) {
        let mut idle = lock(&self.idle);
        // Asked under the lock, so that none is left behind by `end`.
        if !self.has_ended() {
            idle.push(connection);
        }
    }

    /// Closes every idle connection and the monitor.
    pub(super) async fn close(self) {
        self.end();
        self.monitor.into_inner().close().await;
    }
}

fn can_ask_log(version: &str) -> bool {
    let mut parts = version.split('.').map(|part| part.parse::<u32>().unwrap_or(0));
    (parts.next().unwrap_or(0), parts.next().unwrap_or(0)) >= ASKABLE_LOG
}
