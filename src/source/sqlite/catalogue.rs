//! What a statement means under one version of the schema: its columns, and whether its answer is a function of the
//! state.
//!
//! Everything here is read inside the snapshot that the statement runs in, and kept under the version of the schema, so
//! that a definition which changes is looked at again.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use sqlx::Row as _;

use super::connection::Connection;
use super::error::Fault;
use super::limit::Limit;
use super::statement::{CheckedSql, is_restless_text};
use super::token::{Kind, tokens};
use super::value::Column;

/// How many statements are remembered. More are looked at anew.
const MAX_SHAPES: usize = 512;

/// A statement under one schema.
#[derive(Debug)]
pub(super) struct Shape {
    pub(super) columns: Box<[Column]>,
    /// The columns' names alone.
    pub(super) names: Box<[Arc<str>]>,
    /// Whether its result is a function of the state, its arguments and its view's time.
    pub(super) steady: bool,
    /// Whether all rows it asks for are the rows there are, or the first in a total order.
    pub(super) whole: bool,
}

/// What is known under one version of the schema.
#[derive(Debug, Default)]
pub(super) struct Catalogue {
    schema: Option<i64>,
    views: Option<Arc<Tainted>>,
    shapes: HashMap<Arc<str>, Arc<Shape>>,
}

/// The views of the schema whose rows are no function of the state, in lower case.
#[derive(Debug, Default)]
pub(super) struct Tainted {
    restless: HashSet<String>,
    limited: HashSet<String>,
}

impl Catalogue {
    /// What is known of a statement under this schema.
    pub(super) fn shape(&self, schema: i64, statement: &CheckedSql) -> Option<Arc<Shape>> {
        if self.schema != Some(schema) {
            return None;
        }
        self.shapes.get(statement.engine_sql()).cloned()
    }

    pub(super) fn views(&self, schema: i64) -> Option<Arc<Tainted>> {
        self.views.clone().filter(|_| self.schema == Some(schema))
    }

    /// Remembers a statement's shape. An older schema than the one known makes room for the newer only.
    pub(super) fn learn(
        &mut self,
        schema: i64,
        views: Arc<Tainted>,
        statement: &CheckedSql,
        shape: Arc<Shape>,
    ) {
        if self.schema != Some(schema) || self.shapes.len() >= MAX_SHAPES {
            self.shapes.clear();
        }
        self.schema = Some(schema);
        self.views = Some(views);
        self.shapes.insert(Arc::clone(statement.engine_sql()), shape);
    }
}

impl Tainted {
    /// Reads the schema's views, and its virtual tables: what they show may lie in a view too (`content=` of FTS5).
    pub(super) async fn read(connection: &mut Connection) -> Result<Self, Fault> {
        let rows = connection
            .ask(
                "SELECT name, sql FROM sqlite_master \
                 WHERE type = 'view' OR type = 'table' AND sql LIKE 'CREATE VIRTUAL TABLE%'",
            )
            .await?;
        let mut views = Vec::with_capacity(rows.len());
        for row in rows {
            let name: String = row.try_get(0).map_err(Fault::from_sqlx)?;
            let sql: String = row.try_get(1).map_err(Fault::from_sqlx)?;
            views.push((name.to_ascii_lowercase(), sql));
        }
        let mut tainted = Self::default();
        let mut names = HashMap::new();
        for (name, sql) in &views {
            let parts = tokens(sql).unwrap_or_default();
            if is_restless_text(sql) {
                tainted.restless.insert(name.clone());
            }
            if parts.is_empty() || parts.iter().any(|token| token.is("LIMIT")) {
                tainted.limited.insert(name.clone());
            }
            let used = parts
                .iter()
                .filter(|token| matches!(token.kind, Kind::Word | Kind::Name | Kind::Text));
            names.insert(name, used.map(super::token::Token::plain).collect::<HashSet<_>>());
        }
        // A view over a tainted view is tainted.
        for set in [&mut tainted.restless, &mut tainted.limited] {
            loop {
                let more = names
                    .iter()
                    .filter(|(name, used)| !set.contains(**name) && !set.is_disjoint(used));
                let more: Vec<String> = more.map(|(name, _)| (*name).clone()).collect();
                if more.is_empty() {
                    break;
                }
                set.extend(more);
            }
        }
        Ok(tainted)
    }
}

impl Shape {
    /// Looks at a statement inside the connection's snapshot.
    pub(super) async fn read(
        connection: &mut Connection,
        statement: &CheckedSql,
        views: &Tainted,
    ) -> Result<Self, Fault> {
        let described = connection.columns(statement.engine_sql()).await?;
        let mut types: HashMap<String, HashMap<String, Arc<str>>> = HashMap::new();
        let mut columns = Vec::with_capacity(described.len());
        let mut taken = HashSet::new();
        for (name, origin) in described {
            let declared = match origin {
                None => None,
                Some((table, column)) => {
                    if !types.contains_key(&table) {
                        let found = declared_types(connection, &table).await?;
                        types.insert(table.clone(), found);
                    }
                    types.get(&table).and_then(|types| types.get(&column)).cloned()
                }
            };
            columns.push(Column {
                name: free_name(&name, &mut taken),
                declared,
            });
        }
        let whole = match statement.limit() {
            Limit::None => true,
            Limit::Open => false,
            Limit::Keyed { table, columns } => has_key_within(connection, table, columns).await?,
        };
        Ok(Self {
            names: columns.iter().map(|column| Arc::clone(&column.name)).collect(),
            columns: columns.into(),
            steady: statement.restless().is_none() && views.restless.is_disjoint(statement.names()),
            whole: whole && views.limited.is_disjoint(statement.names()),
        })
    }
}

/// A name that no earlier column has: `id`, then `id_2`, `id_3`.
fn free_name(name: &str, taken: &mut HashSet<String>) -> Arc<str> {
    let numbered = (2..).map(|number| format!("{name}_{number}"));
    let mut names = std::iter::once(name.to_owned()).chain(numbered);
    let free = names.find(|name| !taken.contains(name)).unwrap_or_default();
    taken.insert(free.clone());
    free.into()
}

async fn declared_types(
    connection: &mut Connection,
    table: &str,
) -> Result<HashMap<String, Arc<str>>, Fault> {
    let rows = connection
        .ask_about("SELECT name, type FROM pragma_table_xinfo(?1)", table)
        .await?;
    let mut types = HashMap::with_capacity(rows.len());
    for row in rows {
        let (name, declared): (String, String) = (
            row.try_get(0).map_err(Fault::from_sqlx)?,
            row.try_get(1).map_err(Fault::from_sqlx)?,
        );
        if !declared.is_empty() {
            types.insert(name, declared.into());
        }
    }
    Ok(types)
}

/// Whether no two rows of the table can be equal in these columns.
///
/// Keys are the rowid, a primary key or UNIQUE constraint over columns that can't be NULL. A separate unique index
/// doesn't count: it may compare by another collation than ORDER BY does.
async fn has_key_within(
    connection: &mut Connection,
    table: &str,
    within: &HashSet<String>,
) -> Result<bool, Fault> {
    const KIND: &str = "SELECT wr, (SELECT s.sql LIKE '%collate%' FROM sqlite_master AS s \
                        WHERE s.type = 'table' AND s.name = t.name) FROM pragma_table_list AS t \
                        WHERE t.schema = 'main' AND t.type = 'table' AND lower(t.name) = ?1";
    const COLUMNS: &str =
        "SELECT lower(name), lower(type) = 'integer', pk, \"notnull\" FROM pragma_table_xinfo(?1)";
    const KEYS: &str = "SELECT il.name, il.origin, lower(ii.name) \
                        FROM pragma_index_list(?1) AS il, pragma_index_info(il.name) AS ii \
                        WHERE il.\"unique\" AND NOT il.partial AND il.origin IN ('pk', 'u')";
    let kind = connection.ask_about(KIND, table).await?;
    let Some(kind) = kind.first() else {
        return Ok(false);
    };
    let without_rowid: bool = kind.try_get::<i64, _>(0).map_err(Fault::from_sqlx)? != 0;
    let collates: bool = kind.try_get::<i64, _>(1).map_err(Fault::from_sqlx)? != 0;
    let mut all = HashSet::new();
    let (mut never_null, mut primary) = (HashSet::new(), Vec::new());
    for row in connection.ask_about(COLUMNS, table).await? {
        let get = |place| row.try_get::<i64, _>(place).map_err(Fault::from_sqlx);
        let name: String = row.try_get(0).map_err(Fault::from_sqlx)?;
        if get(2)? > 0 {
            primary.push((name.clone(), get(1)? != 0));
        }
        if get(3)? != 0 || (without_rowid && get(2)? > 0) {
            never_null.insert(name.clone());
        }
        all.insert(name);
    }
    if !without_rowid {
        let rowid = ["rowid", "oid", "_rowid_"]
            .iter()
            .any(|name| within.contains(*name) && !all.contains(*name));
        // A single INTEGER column as primary key is the rowid, unless it was declared DESC: then it has an index.
        let aliased = matches!(primary.as_slice(), [(name, true)] if within.contains(name));
        if rowid {
            return Ok(true);
        }
        if aliased {
            let indexed = connection.ask_about(KEYS, table).await?;
            let mut origins = indexed
                .iter()
                .map(|row| row.try_get::<String, _>(1).unwrap_or_default());
            if !origins.any(|origin| origin == "pk") {
                return Ok(true);
            }
        }
    }
    if collates {
        // A constraint may tell values apart that ORDER BY takes for equal.
        return Ok(false);
    }
    let mut keys: HashMap<String, Vec<Option<String>>> = HashMap::new();
    for row in connection.ask_about(KEYS, table).await? {
        let key: String = row.try_get(0).map_err(Fault::from_sqlx)?;
        keys.entry(key)
            .or_default()
            .push(row.try_get(2).map_err(Fault::from_sqlx)?);
    }
    let holds = |column: &Option<String>| {
        column
            .as_ref()
            .is_some_and(|name| within.contains(name) && never_null.contains(name))
    };
    Ok(keys.values().any(|columns| columns.iter().all(holds)))
}
