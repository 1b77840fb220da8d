//! A SQLite database as a source: reads that run at once and see one version of the file.
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! use coeval::clock::{SystemClock, Timeline};
//! use coeval::source::Source as _;
//! use coeval::source::sqlite::{CheckedSql, SqliteOptions, SqliteSource, SqliteView};
//! use serde_json::json;
//!
//! # let folder = tempfile::tempdir()?;
//! # let path = folder.path().join("atlas.db");
//! # std::fs::File::create(&path)?;
//! let atlas = SqliteSource::open(SqliteOptions::new("atlas", &path))?;
//! # atlas.write(&CheckedSql::new("CREATE TABLE orders (id INTEGER PRIMARY KEY, cents INTEGER)", &[""; 0])?, &[]).await?;
//! # atlas.write(&CheckedSql::new("INSERT INTO orders VALUES (1, 15000)", &[""; 0])?, &[]).await?;
//! let timeline = Timeline::start(std::sync::Arc::new(SystemClock::new()));
//! let view = atlas.open(2, &timeline).await?;
//! let snapshot = view.as_any().downcast_ref::<SqliteView>().expect("our own view");
//!
//! let order = CheckedSql::new("SELECT cents FROM orders WHERE id = :id", &["id"])?;
//! let answer = snapshot.read(&order, &[json!(1)]).await?;
//! assert_eq!(answer.value["rows"], json!([{ "cents": 15000 }]));
//! atlas.close(view).await?;
//! # Ok(())
//! # }
//! ```
//!
//! # What is promised, and when
//!
//! | the database | its view |
//! |---|---|
//! | write-ahead log, on a disk of this machine | several connections, shown to see one version; nobody is held up |
//! | rollback journal; another or an unknown file system | one connection, reads take turns; with a rollback journal writers wait |
//! | `:memory:` | the same; it lives as long as the source |
//!
//! A file that is replaced, removed, or written past the engine while it is read is noticed when the view is closed, and
//! then nothing is claimed for what was read; nor is it for a file with a second name (a hard link), behind which it has
//! another log. What isn't noticed: a raw write to the database's file while a view is open in which the engine copied its
//! log there too, and a raw write into the log itself. Nothing in this process may open the file but through SQLite: closing any
//! other descriptor of it drops the engine's locks.
//!
//! # What stops a write
//!
//! Reads are kept from writing three times, each on its own: the statement is checked ([`CheckedSql`]), the connection is
//! opened with `SQLITE_OPEN_READONLY`, and `query_only` is on. What each stops alone:
//!
//! | escape | statement | read-only | `query_only` |
//! |---|---|---|---|
//! | `INSERT`, `UPDATE`, `DELETE`, DDL, also behind `WITH` | yes | yes | yes |
//! | several statements in one text | yes | what they write | what they write |
//! | `PRAGMA user_version = 1`, `journal_mode = …` | yes | yes | the first |
//! | `PRAGMA query_only = off` | yes | what follows | no |
//! | `CREATE TEMP TABLE` | yes | no | yes |
//! | `ATTACH` of a file that is there: reading it | yes | no | no |
//! | `ATTACH` of a file that isn't: making it | yes | yes | what it would write |
//! | `VACUUM INTO` another file | yes | no | yes |
//! | `COMMIT`, `ROLLBACK`: leaving the view | yes | no | no |
//! | `load_extension()`, `fts3_tokenizer()` | yes | no | no |
//!
//! More stands behind these: the last row's functions are switched off in the engine, `VACUUM` is refused inside a view's
//! transaction, and a view whose transaction ended before it is found out when it is closed. The tests hold each column to
//! what it claims.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::future::BoxFuture;
use sqlx::ConnectOptions as _;
use sqlx::sqlite::SqliteConnectOptions;
use tokio::sync::{OnceCell, Semaphore};
use tokio_util::task::TaskTracker;

use crate::clock::{SystemClock, Timeline};
use crate::reading::{CallError, ErrorCode};
use crate::source::{Capability, Source, Unsound, View};
use crate::tool::{Effect, ToolSpec};

mod catalogue;
mod connection;
mod error;
mod fan;
mod file;
mod function;
mod generation;
mod limit;
mod statement;
mod token;
mod tool;
mod value;
mod view;
mod write;

use error::Fault;
pub use error::SqliteError;
use fan::Fan;
use file::Files;
use generation::Generation;
pub use statement::CheckedSql;
pub use tool::{SqlParameter, SqliteTool};
pub use value::{Column, Description};
pub use view::SqliteView;
use write::Writer;

/// Which database, and within what bounds it is used.
#[derive(Clone, Debug)]
#[must_use]
pub struct SqliteOptions {
    name: Arc<str>,
    path: PathBuf,
    connections: usize,
    busy_timeout: Duration,
    max_rows: usize,
    max_bytes: usize,
    view_max: Duration,
    write_max: Duration,
    read_only: bool,
}

impl SqliteOptions {
    /// The database at this path, or `:memory:` for one that lives as long as the source.
    pub fn new(name: impl Into<Arc<str>>, path: impl AsRef<Path>) -> Self {
        Self {
            name: name.into(),
            path: path.as_ref().to_owned(),
            // The allowance of a dependency that declares none.
            connections: 8,
            // SQLite's drivers commonly wait as long.
            busy_timeout: Duration::from_secs(5),
            max_rows: 1_000,
            // More than a model can read, less than a process must fear.
            max_bytes: 8 << 20,
            // A reader keeps the log from starting anew, so it may not stay.
            view_max: Duration::from_secs(30),
            write_max: Duration::from_secs(60),
            read_only: false,
        }
    }

    /// How many connections read at most; at least 1. One more watches, and one more writes.
    pub fn connections(mut self, connections: usize) -> Self {
        self.connections = connections.max(1);
        self
    }

    /// How long to wait for a lock that somebody else holds.
    pub fn busy_timeout(mut self, time: Duration) -> Self {
        self.busy_timeout = time;
        self
    }

    /// How many rows an answer has at most; what has more is truncated.
    pub fn max_rows(mut self, rows: usize) -> Self {
        self.max_rows = rows;
        self
    }

    /// How many bytes an answer has at most, about; what has more is truncated after a whole row.
    pub fn max_bytes(mut self, bytes: usize) -> Self {
        self.max_bytes = bytes;
        self
    }

    /// How long a view may be open. After that its reads are answered `view_lost`.
    pub fn view_max(mut self, time: Duration) -> Self {
        self.view_max = time;
        self
    }

    /// How long a write may run before it is undone.
    pub fn write_max(mut self, time: Duration) -> Self {
        self.write_max = time;
        self
    }

    /// Refuses every write.
    pub fn read_only(mut self, read_only: bool) -> Self {
        self.read_only = read_only;
        self
    }

    /// Over how many connections one view may spread: more than there are processors gains little, but reads that wait
    /// for a disk gain something.
    fn most_at_once(&self) -> usize {
        let processors = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        self.connections.min((2 * processors).max(4))
    }
}

/// A SQLite database. Clones share its connections.
#[derive(Clone)]
pub struct SqliteSource(Arc<Shared>);

struct Shared {
    name: Arc<str>,
    options: SqliteOptions,
    /// None for a database in memory.
    files: Option<Files>,
    anchor_options: SqliteConnectOptions,
    read_options: SqliteConnectOptions,
    write_options: SqliteConnectOptions,
    current: Mutex<Arc<OnceCell<Arc<Generation>>>>,
    places: Arc<Semaphore>,
    writer: Arc<tokio::sync::Mutex<Writer>>,
    fan: Fan,
    /// Owns whatever runs on a connection.
    tasks: TaskTracker,
}

impl fmt::Debug for SqliteSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SqliteSource")
            .field("name", &self.0.name)
            .field("path", &self.0.options.path)
            .finish()
    }
}

impl SqliteSource {
    /// A source that opens its database when it is first needed, so that one missing file stops nobody else.
    ///
    /// # Errors
    /// [`SqliteError::Path`]: the path names no database of which anything could be promised.
    pub fn open(options: SqliteOptions) -> Result<Self, SqliteError> {
        let given = options.path.to_str();
        let refuse = |why| {
            Err(SqliteError::Path {
                path: options.path.to_string_lossy().into_owned(),
                why,
            })
        };
        let base = SqliteConnectOptions::new()
            // Waiting is ours, so that it can be cancelled.
            .busy_timeout(Duration::ZERO)
            // What views and triggers of the schema call is held to what is harmless.
            .pragma("trusted_schema", "OFF")
            .disable_statement_logging();
        let (base, files) = match given {
            None => return refuse("it isn't UTF-8"),
            Some("") => return refuse("it is empty; for a database in memory write :memory:"),
            Some(path) if path.contains('\0') => return refuse("it contains a NUL"),
            Some(path) if path.starts_with("file:") => {
                return refuse(
                    "it is a URI, which can hide a file's changes (immutable, nolock); give a plain path",
                );
            }
            Some(":memory:") => {
                // Connections of one process share such a database by its name, which nobody else knows.
                let name = format!("/coeval-{}", uuid::Uuid::new_v4().simple());
                (base.filename(name).vfs("memdb"), None)
            }
            Some(_) => {
                let path = std::path::absolute(&options.path).unwrap_or_else(|_| options.path.clone());
                (base.filename(&path), Some(Files::at(&path)))
            }
        };
        let read_options = base.clone().read_only(true).pragma("query_only", "ON");
        let write_options = base.create_if_missing(files.is_none());
        let anchor_options = if files.is_none() {
            write_options.clone()
        } else {
            read_options.clone()
        };
        Ok(Self(Arc::new(Shared {
            name: Arc::clone(&options.name),
            places: Arc::new(Semaphore::new(options.connections)),
            options,
            files,
            anchor_options,
            read_options,
            write_options,
            current: Mutex::default(),
            writer: Arc::default(),
            fan: Fan::default(),
            tasks: TaskTracker::new(),
        })))
    }

    /// A statement as a tool, and what is declared about it; the columns of its result become derived output fields.
    ///
    /// # Errors
    /// - [`SqliteError::Refused`], [`SqliteError::Parameters`]: as [`CheckedSql::new`] says; also for a write if the
    ///   source is read-only.
    /// - [`SqliteError::Statement`]: the engine refused it, for a table that isn't there for instance.
    /// - [`SqliteError::Unavailable`]: the database can't be opened now. [`SqliteSource::undescribed_tool`] doesn't
    ///   need it.
    ///
    /// # Cancel safety
    /// Safe: nothing is left behind.
    pub async fn tool(
        &self,
        name: impl Into<Arc<str>>,
        sql: &str,
        parameters: impl IntoIterator<Item = impl Into<SqlParameter>>,
    ) -> Result<(ToolSpec, SqliteTool), SqliteError> {
        let tool = self.undescribed_tool(sql, parameters)?;
        let columns = match tool.statement().effect() {
            Effect::Read => self.describe(tool.statement()).await?.columns,
            // What a write returns is known when it has run: describing it here would have to prepare it for writing.
            Effect::Write => Vec::new(),
        };
        Ok((tool.described(name, &columns), tool))
    }

    /// A statement as a tool, without asking the database anything.
    ///
    /// # Errors
    /// [`SqliteError::Refused`], [`SqliteError::Parameters`]: as [`CheckedSql::new`] says; also for a write if the source
    /// is read-only.
    pub fn undescribed_tool(
        &self,
        sql: &str,
        parameters: impl IntoIterator<Item = impl Into<SqlParameter>>,
    ) -> Result<SqliteTool, SqliteError> {
        let parameters: Arc<[SqlParameter]> = parameters.into_iter().map(Into::into).collect();
        let statement = CheckedSql::new(sql, &parameters)?;
        if self.0.options.read_only && statement.effect() == Effect::Write {
            return Err(SqliteError::refused(format!(
                "it writes, and source {} is read-only",
                self.0.name
            )));
        }
        Ok(SqliteTool::new(self.clone(), statement, parameters))
    }

    /// What a read returns, under the schema as it is now.
    ///
    /// # Errors
    /// [`SqliteError::Statement`] if the engine refuses it, [`SqliteError::Unavailable`] if the database can't be opened.
    ///
    /// # Cancel safety
    /// Safe: nothing is left behind.
    pub async fn describe(&self, statement: &CheckedSql) -> Result<Description, SqliteError> {
        let (shared, statement) = (Arc::clone(&self.0), statement.clone());
        let described = self.0.tasks.spawn(async move {
            let timeline = Timeline::start(Arc::new(SystemClock::new()));
            let view = SqliteView::open(shared, 1, timeline).await?;
            let shape = view.describe(&statement).await;
            let _ = view.close().await;
            shape.map(|shape| Description {
                columns: shape.columns.to_vec(),
                steady: shape.steady,
                whole: shape.whole,
            })
        });
        match described.await {
            Ok(Ok(description)) => Ok(description),
            Ok(Err(Fault::Statement(message))) => Err(SqliteError::Statement { message }),
            Ok(Err(fault)) => Err(SqliteError::Unavailable(self.unavailable(fault))),
            Err(_) => Err(SqliteError::Unavailable(
                self.unavailable(Fault::Lost("its task has ended".into())),
            )),
        }
    }

    /// Waits until nothing of this source runs any more, and closes its connections. Views that are still open are
    /// waited for.
    ///
    /// # Cancel safety
    /// Safe: call it again.
    pub async fn shutdown(&self) {
        self.0.tasks.close();
        self.0.tasks.wait().await;
        self.0.tasks.reopen();
        *self.0.writer.lock().await = Writer::default();
        let slot = std::mem::take(&mut *lock(&self.0.current));
        if let Some(generation) = Arc::into_inner(slot).and_then(OnceCell::into_inner)
            && let Some(generation) = Arc::into_inner(generation)
        {
            generation.close().await;
        }
    }

    /// What a call is told when no view can be had.
    fn unavailable(&self, fault: Fault) -> CallError {
        let name = &self.0.name;
        match fault {
            Fault::Busy(message) => {
                let text = format!("The database {name} is busy: {message}. Ask again.");
                CallError::new(ErrorCode::SourceBusy, text)
            }
            Fault::Statement(message) | Fault::Lost(message) => CallError::new(
                ErrorCode::ViewUnavailable,
                format!("The database {name} can't be read: {message}."),
            ),
            Fault::Stopped => {
                CallError::new(ErrorCode::ViewUnavailable, format!("Opening {name} was stopped."))
            }
        }
    }
}

impl Source for SqliteSource {
    fn name(&self) -> &Arc<str> {
        &self.0.name
    }

    fn capability(&self) -> Capability {
        let current = lock(&self.0.current);
        let known = current.get().map(|generation| generation.shared);
        Capability {
            snapshot: true,
            // Before the file was opened the common case is supposed; a view is sound either way.
            shared: known.unwrap_or(self.0.files.is_some()),
            connections: self.0.options.connections,
        }
    }

    fn open<'a>(
        &'a self,
        width: usize,
        timeline: &'a Timeline,
    ) -> BoxFuture<'a, Result<Arc<dyn View>, CallError>> {
        // In a task of its own: if the caller goes away, the view is opened all the same, and closes as it is dropped.
        let opened = self.0.tasks.spawn(SqliteView::open(
            Arc::clone(&self.0),
            width.max(1),
            timeline.clone(),
        ));
        Box::pin(async move {
            match opened.await {
                Ok(Ok(view)) => Ok(Arc::new(view) as Arc<dyn View>),
                Ok(Err(fault)) => Err(self.unavailable(fault)),
                Err(_) => Err(self.unavailable(Fault::Lost("its task has ended".into()))),
            }
        })
    }

    fn close(&self, view: Arc<dyn View>) -> BoxFuture<'_, Result<(), Unsound>> {
        let closed = self.0.tasks.spawn(async move {
            match view.as_any().downcast_ref::<SqliteView>() {
                Some(view) => view.close().await,
                None => Ok(()),
            }
        });
        Box::pin(async move {
            closed.await.unwrap_or_else(|_| {
                let message = format!("{}: its view ended badly", self.0.name);
                Err(Unsound {
                    reason: crate::reading::UnprovenReason::NoWitness,
                    message,
                })
            })
        })
    }
}

impl Shared {
    /// The connections to the file that stands at the path now.
    async fn generation(&self) -> Result<Arc<Generation>, Fault> {
        // A file that is replaced again and again is given up on.
        for _ in 0..3 {
            let slot = Arc::clone(&*lock(&self.current));
            let open = async {
                let (anchor, readers) = (&self.anchor_options, &self.read_options);
                let patience = self.options.busy_timeout;
                Generation::open(anchor, readers, self.files.clone(), patience)
                    .await
                    .map(Arc::new)
            };
            let generation = slot.get_or_try_init(|| open).await?;
            if generation.look().is_ok() && !generation.has_ended() {
                return Ok(Arc::clone(generation));
            }
            let mut current = lock(&self.current);
            if Arc::ptr_eq(&current, &slot) {
                *current = Arc::default();
            }
        }
        Err(Fault::Lost("its file keeps being replaced".into()))
    }
}

/// Nothing here panics while it holds a lock, so a poisoned one is still whole.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
