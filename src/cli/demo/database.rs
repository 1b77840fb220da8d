//! The Atlas database, made anew, and those who use it without Coeval.

use std::path::{Path, PathBuf};

use coeval::BoxError;
use coeval::config::ToolConfig;
use serde_json::{Map, Value, json};
use sqlx::sqlite::{SqliteConnectOptions, SqliteConnection, SqliteJournalMode, SqliteSynchronous};
use sqlx::{AssertSqlSafe, Column, ConnectOptions, Connection, Row, TypeInfo, ValueRef};
use tempfile::TempDir;
use tokio::sync::Mutex;

use crate::cli::Failure;

/// The schema and its data, in order.
const ATLAS: [&str; 4] = [
    include_str!("../../../migrations/atlas/0001_schema.sql"),
    include_str!("../../../migrations/atlas/0002_accounts.sql"),
    include_str!("../../../migrations/atlas/0003_orders.sql"),
    include_str!("../../../migrations/atlas/0004_tickets.sql"),
];
const CRM: &str = include_str!("../../../examples/henderson/crm.sql");
/// One transaction, and the way back.
const AMEND: &str = include_str!("../../../examples/henderson/amend.sql");
const REVERT: &str = include_str!("../../../examples/henderson/revert.sql");

/// The tools and the questions, as they lie in `examples/henderson`.
pub(super) const CONFIG: &str = include_str!("../../../examples/henderson/coeval.yaml");
pub(super) const SET: &str = include_str!("../../../examples/henderson/set.json");
pub(super) const WITH_CRM: &str = include_str!("../../../examples/henderson/with-crm.json");

/// What is left for whoever keeps the folder, besides the databases.
const LEFT: [(&str, &str); 5] = [
    ("coeval.yaml", CONFIG),
    ("set.json", SET),
    ("with-crm.json", WITH_CRM),
    ("amend.sql", AMEND),
    ("revert.sql", REVERT),
];

/// A folder with both databases. Gone when it is dropped, unless it is kept.
#[derive(Debug)]
pub(super) struct Databases {
    folder: PathBuf,
    /// Who writes. It stays connected, as writers do: the last to leave a database must tidy it up, which takes its time.
    writer: Mutex<SqliteConnection>,
    /// Takes the folder away.
    _temporary: Option<TempDir>,
}

impl Databases {
    /// Makes them in a temporary folder, or in this one, which must be new or empty.
    pub(super) async fn create(keep: Option<&Path>) -> Result<Self, Failure> {
        let (folder, temporary) = match keep {
            None => {
                let temporary = tempfile::Builder::new()
                    .prefix("coeval-demo-")
                    .tempdir()
                    .map_err(|error| {
                        Failure::new("no temporary folder could be made")
                            .because(&error)
                            .help("say with TMPDIR where there is room, or name a folder with --keep DIR")
                    })?;
                (temporary.path().to_owned(), Some(temporary))
            }
            Some(folder) => {
                prepare(folder)?;
                (folder.to_owned(), None)
            }
        };
        let writer = fill(&folder).await.map_err(|error| {
            Failure::new(format!("the databases could not be made in {}", folder.display())).because(&error)
        })?;
        Ok(Self {
            folder,
            writer: Mutex::new(writer),
            _temporary: temporary,
        })
    }

    pub(super) fn atlas(&self) -> PathBuf {
        atlas(&self.folder)
    }

    pub(super) fn crm(&self) -> PathBuf {
        crm(&self.folder)
    }

    pub(super) fn folder(&self) -> &Path {
        &self.folder
    }

    /// The contract is amended, and the order and the invoice with it, in one transaction.
    pub(super) async fn amend(&self) -> Result<(), sqlx::Error> {
        self.write(AMEND).await
    }

    /// Takes the amendment back.
    pub(super) async fn revert(&self) -> Result<(), sqlx::Error> {
        self.write(REVERT).await
    }

    async fn write(&self, transaction: &'static str) -> Result<(), sqlx::Error> {
        let mut writer = self.writer.lock().await;
        sqlx::raw_sql(transaction).execute(&mut *writer).await?;
        Ok(())
    }

    /// Ends the writer, so that all that was written stands in the database's own file.
    pub(super) async fn close(self) {
        // What could not be tidied up is tidied up by whoever opens it next.
        let _ = self.writer.into_inner().close().await;
    }
}

fn atlas(folder: &Path) -> PathBuf {
    folder.join("atlas.db")
}

fn crm(folder: &Path) -> PathBuf {
    folder.join("crm.db")
}

/// Makes both databases, and returns a connection to the first.
async fn fill(folder: &Path) -> Result<SqliteConnection, sqlx::Error> {
    let mut made = create(&atlas(folder)).await?;
    sqlx::raw_sql("BEGIN").execute(&mut made).await?;
    for part in ATLAS {
        sqlx::raw_sql(part).execute(&mut made).await?;
    }
    sqlx::raw_sql("COMMIT").execute(&mut made).await?;
    let mut notes = create(&crm(folder)).await?;
    sqlx::raw_sql(CRM).execute(&mut notes).await?;
    notes.close().await?;
    Ok(made)
}

/// Makes the folder and puts in it what is left beside the databases.
fn prepare(folder: &Path) -> Result<(), Failure> {
    let unusable =
        |error: std::io::Error| Failure::new(format!("{} can't be used", folder.display())).because(&error);
    std::fs::create_dir_all(folder).map_err(unusable)?;
    if std::fs::read_dir(folder).map_err(unusable)?.next().is_some() {
        return Err(Failure::new(format!("{} is not empty", folder.display()))
            .help("name a new folder with --keep DIR"));
    }
    for (name, text) in LEFT {
        std::fs::write(folder.join(name), text).map_err(unusable)?;
    }
    Ok(())
}

async fn create(file: &Path) -> Result<SqliteConnection, sqlx::Error> {
    SqliteConnectOptions::new()
        .filename(file)
        .create_if_missing(true)
        .journal_mode(SqliteJournalMode::Wal)
        // With a log the usual setting: a commit doesn't wait for the disk.
        .synchronous(SqliteSynchronous::Normal)
        .connect()
        .await
}

/// Runs a tool's statement as any program would: on a connection of its own, in a transaction of its own.
pub(super) async fn read_plainly(
    file: &Path,
    tool: &ToolConfig,
    arguments: &Map<String, Value>,
) -> Result<Value, BoxError> {
    let mut connection = SqliteConnectOptions::new().filename(file).connect().await?;
    // The statement is this program's own.
    let mut query = sqlx::query(AssertSqlSafe(tool.statement.sql().to_owned()));
    for parameter in &tool.parameters {
        query = query.bind(
            arguments
                .get(&*parameter.name)
                .and_then(Value::as_str)
                .map(str::to_owned),
        );
    }
    let mut rows = Vec::new();
    for row in query.fetch_all(&mut connection).await? {
        let mut fields = Map::new();
        for column in row.columns() {
            let raw = row.try_get_raw(column.ordinal())?;
            let value = match raw.type_info().name() {
                _ if raw.is_null() => Value::Null,
                "INTEGER" => json!(row.try_get::<i64, _>(column.ordinal())?),
                _ => json!(row.try_get::<String, _>(column.ordinal())?),
            };
            fields.insert(column.name().to_owned(), value);
        }
        rows.push(Value::Object(fields));
    }
    connection.close().await?;
    Ok(json!({ "rows": rows }))
}
