//! A statement that was looked at before it may run: one statement, its effect, its placeholders, and what its result
//! rests on beside the database.
//!
//! The rules for reads, all on SQLite's own tokens ([`token`](super::token)): one statement; it starts with `SELECT`,
//! `VALUES`, or a `WITH` that leads to one of them; it calls nothing but the listed functions and names no other table of
//! `PRAGMA`. By SQLite's grammar nothing else can change anything. A string or a comment that contains SQL is a string or
//! a comment.
//!
//! A read that asks for the current time is given its view's time instead, so that all reads of a view agree on it
//! (hole 6) and their answers stay functions of the view. What can't be made one is [`CheckedSql::restless`].
//! One thing isn't looked for: a column that holds the text `now` and is given to a function of the clock.

use std::collections::HashSet;
use std::fmt;
use std::sync::Arc;

use super::error::SqliteError;
use super::function::Function;
use super::limit::{self, Limit};
use super::token::{Kind, Token, tokens};
use crate::tool::Effect;

mod rewrite;

use rewrite::Rewrite;
pub(super) use rewrite::{is_restless_text, means_now};

/// Longer statements are refused: nobody writes them, and everything here is linear but not free.
const MAX_BYTES: usize = 256 * 1024;

/// One statement that a tool may run, with its parameters in binding order. Cheap to clone.
#[derive(Clone)]
pub struct CheckedSql(Arc<Checked>);

struct Checked {
    original: Box<str>,
    /// As the engine gets it: placeholders numbered, the current time a parameter.
    sql: Arc<str>,
    effect: Effect,
    parameters: Box<[Arc<str>]>,
    /// Whether the parameter after the last one is the view's time.
    clocked: bool,
    /// Whether an argument that says `now` would mean the current time.
    takes_time: bool,
    restless: Option<Arc<str>>,
    limit: Limit,
    /// Every name in it, in lower case: what it may mean in the schema is not decided here.
    names: HashSet<String>,
}

impl fmt::Debug for CheckedSql {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CheckedSql")
            .field("sql", &self.0.original)
            .field("effect", &self.0.effect)
            .finish()
    }
}

impl CheckedSql {
    /// Checks a statement against its parameters, named in binding order.
    ///
    /// `?` takes the next parameter, `?2` and `$2` the second, `:name`, `@name` and `$name` the one of that name.
    ///
    /// # Errors
    /// - [`SqliteError::Refused`]: it is several statements or none, or does what no tool may.
    /// - [`SqliteError::Parameters`]: a placeholder without a parameter, or the other way round.
    pub fn new<P: AsRef<str>>(sql: &str, parameters: &[P]) -> Result<Self, SqliteError> {
        if sql.len() > MAX_BYTES {
            let why = format!(
                "it has {} bytes, and {MAX_BYTES} is the most that is looked at",
                sql.len()
            );
            return Err(SqliteError::refused(why));
        }
        let all = tokens(sql).map_err(SqliteError::refused)?;
        let mut body = all.as_slice();
        while let Some((Token { kind: Kind::End, .. }, before)) = body.split_last() {
            body = before;
        }
        if body.iter().any(|token| token.kind == Kind::End) {
            return Err(SqliteError::refused("it is several statements; a tool runs one"));
        }
        let effect = effect(body)?;
        let mut rewrite = Rewrite::new(body, parameters.iter().map(|name| name.as_ref().into()).collect());
        rewrite.placeholders()?;
        for token in body
            .iter()
            .filter(|token| matches!(token.kind, Kind::Word | Kind::Name | Kind::Text))
        {
            let name = token.plain();
            if Function::is_unlisted_pragma(&name) && (token.kind != Kind::Text || is_table_name(&all, token))
            {
                return Err(SqliteError::refused(format!(
                    "{name} is not on the list of tables that only tell"
                )));
            }
        }
        match effect {
            Effect::Read => rewrite.functions()?,
            Effect::Write => rewrite.refuse_reaching()?,
        }
        let limit = match effect {
            Effect::Read => limit::of(sql, body),
            Effect::Write => Limit::None,
        };
        let names = body
            .iter()
            .filter(|token| matches!(token.kind, Kind::Word | Kind::Name | Kind::Text));
        Ok(Self(Arc::new(Checked {
            original: sql.into(),
            names: names.map(Token::plain).collect(),
            effect,
            limit,
            sql: rewrite.apply(sql),
            clocked: rewrite.clocked,
            takes_time: rewrite.takes_time,
            restless: rewrite.restless,
            parameters: rewrite.parameters,
        })))
    }

    /// Whether it reads or writes. What is neither isn't let through at all.
    pub fn effect(&self) -> Effect {
        self.0.effect
    }

    /// The statement as it was written.
    pub fn sql(&self) -> &str {
        &self.0.original
    }

    /// Its parameters, in binding order.
    pub fn parameters(&self) -> &[Arc<str>] {
        &self.0.parameters
    }

    /// What in the text itself makes its result no function of the database and its arguments: chance, the
    /// connection's own past, a time that can't be fixed.
    pub fn restless(&self) -> Option<&str> {
        self.0.restless.as_deref()
    }

    pub(super) fn engine_sql(&self) -> &Arc<str> {
        &self.0.sql
    }

    pub(super) fn clocked(&self) -> bool {
        self.0.clocked
    }

    pub(super) fn takes_time(&self) -> bool {
        self.0.takes_time
    }

    pub(super) fn limit(&self) -> &Limit {
        &self.0.limit
    }

    pub(super) fn names(&self) -> &HashSet<String> {
        &self.0.names
    }
}

/// What a statement does, by its first keyword.
fn effect(body: &[Token<'_>]) -> Result<Effect, SqliteError> {
    let Some(first) = body.first() else {
        return Err(SqliteError::refused("it is empty"));
    };
    if first.is("EXPLAIN") {
        let rest = match body {
            [_, query, plan, rest @ ..] if query.is("QUERY") && plan.is("PLAN") => rest,
            [_, rest @ ..] => rest,
            [] => &[],
        };
        if rest.first().is_some_and(|token| token.is("EXPLAIN")) {
            return Err(SqliteError::refused("it explains an explanation"));
        }
        return match effect(rest)? {
            Effect::Read => Ok(Effect::Read),
            Effect::Write => Err(SqliteError::refused("it explains a statement that writes")),
        };
    }
    if first.is_any(&["SELECT", "VALUES"]) {
        return Ok(Effect::Read);
    }
    if first.is("WITH") {
        const VERBS: &[&str] = &["SELECT", "VALUES", "INSERT", "REPLACE", "UPDATE", "DELETE"];
        return match body.iter().find(|token| token.depth == 0 && token.is_any(VERBS)) {
            Some(verb) if verb.is_any(&["SELECT", "VALUES"]) => Ok(Effect::Read),
            Some(_) => Ok(Effect::Write),
            None => Err(SqliteError::refused("its WITH leads to no statement")),
        };
    }
    if first.is_any(&[
        "INSERT", "REPLACE", "UPDATE", "DELETE", "ALTER", "DROP", "ANALYZE", "REINDEX",
    ]) {
        return Ok(Effect::Write);
    }
    if first.is("CREATE") {
        return match body.get(1) {
            Some(second) if second.is_any(&["TEMP", "TEMPORARY"]) => Err(SqliteError::refused(
                "what it creates would live in one connection only",
            )),
            _ => Ok(Effect::Write),
        };
    }
    let word = first.text.to_ascii_uppercase();
    Err(SqliteError::refused(match word.as_str() {
        "ATTACH" | "DETACH" => {
            format!("{word} reaches another database; declare that one as a source of its own")
        }
        "PRAGMA" => {
            "PRAGMA changes the connection; use the table, as in SELECT * FROM pragma_table_info('t')".into()
        }
        "BEGIN" | "COMMIT" | "END" | "ROLLBACK" | "SAVEPOINT" | "RELEASE" => {
            format!("{word} would end or nest the transaction that Coeval keeps")
        }
        "VACUUM" => "VACUUM rewrites the file or writes another".into(),
        _ => format!(
            "{:?} starts no statement that is known to read or write",
            first.text
        ),
    }))
}

/// Whether a string stands where SQLite takes it for a table's name.
fn is_table_name(all: &[Token<'_>], text: &Token<'_>) -> bool {
    let before = all.iter().take_while(|token| token.start < text.start).last();
    before.is_some_and(|token| {
        token.is_any(&["FROM", "JOIN", "IN"]) || matches!(token.kind, Kind::Comma | Kind::Dot | Kind::Open)
    })
}
