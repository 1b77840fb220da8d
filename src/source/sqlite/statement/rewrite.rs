//! What a read calls, and the statement as the engine gets it: placeholders numbered, the current time a parameter.

use std::collections::HashSet;
use std::sync::Arc;

use crate::source::sqlite::error::SqliteError;
use crate::source::sqlite::function::Function;
use crate::source::sqlite::token::{Kind, Token, tokens};

/// What the body of a view in the schema rests on; the same rules as for a statement, without its refusals.
pub(in crate::source::sqlite) fn is_restless_text(sql: &str) -> bool {
    let Ok(tokens) = tokens(sql) else { return true };
    tokens.iter().enumerate().any(|(at, token)| {
        let called = matches!(token.kind, Kind::Word | Kind::Name)
            && tokens.get(at + 1).is_some_and(|next| next.kind == Kind::Open);
        match Function::named(&token.plain()) {
            Some(Function::Restless) if called => true,
            Some(Function::Clock(place)) if called => {
                let call = Call::at(&tokens, at);
                let mut places = time_values(&token.plain(), place);
                !places.all(|place| {
                    call.argument(place)
                        .is_some_and(|argument| is_steady_time(&tokens[argument]))
                }) || tokens.iter().any(may_say_now)
            }
            _ => is_current_time(token),
        }
    })
}

/// Texts that mean the current time where a time value is expected.
const NOW: &[&str] = &["now", "subsec", "subsecond"];

/// Whether a text would mean the current time as a time value.
pub(in crate::source::sqlite) fn means_now(text: &str) -> bool {
    NOW.iter().any(|now| now.eq_ignore_ascii_case(text))
}

fn says_now(token: &Token<'_>) -> bool {
    token.kind == Kind::Text && token.plain() == "now"
}

/// Whether it may end up as a time value `now`: a string anywhere, a name (which SQLite takes for a string if there is no
/// such column), a blob.
fn may_say_now(token: &Token<'_>) -> bool {
    match token.kind {
        Kind::Text | Kind::Name => token.plain() == "now",
        Kind::Literal => token.text.starts_with(['x', 'X']),
        _ => false,
    }
}

/// Where a function takes its time values. Only timediff() has two, and neither may be left out.
fn time_values(name: &str, place: usize) -> std::ops::Range<usize> {
    match name {
        "timediff" => 0..2,
        _ => place..place + 1,
    }
}

/// Whether a time value is the same whenever it is asked for: a literal that doesn't mean the current time. Whatever is
/// computed may come out as `now`.
fn is_steady_time(argument: &[Token<'_>]) -> bool {
    match argument {
        [token] if token.kind == Kind::Text => !means_now(&token.plain()),
        [token] if token.kind == Kind::Literal => !token.text.starts_with(['x', 'X']),
        _ => false,
    }
}

/// Whether it names a column and nothing else.
fn is_column(argument: &[Token<'_>]) -> bool {
    argument.len() % 2 == 1
        && argument.iter().enumerate().all(|(place, token)| match place % 2 {
            0 => matches!(token.kind, Kind::Word | Kind::Name) && !is_current_time(token),
            _ => token.kind == Kind::Dot,
        })
}

fn is_current_time(token: &Token<'_>) -> bool {
    token.is_any(&["CURRENT_TIMESTAMP", "CURRENT_DATE", "CURRENT_TIME"])
}

/// Keywords that may stand before a parenthesis without being called.
const NO_CALLS: &[&str] = &[
    "ALL",
    "AND",
    "AS",
    "BETWEEN",
    "BY",
    "CASE",
    "COLLATE",
    "DISTINCT",
    "ELSE",
    "ESCAPE",
    "EXCEPT",
    "EXISTS",
    "FILTER",
    "FROM",
    "HAVING",
    "IN",
    "INTERSECT",
    "IS",
    "ISNULL",
    "JOIN",
    "LIMIT",
    "MATCH",
    "MATERIALIZED",
    "NOT",
    "NOTNULL",
    "NULL",
    "OFFSET",
    "ON",
    "OR",
    "OVER",
    "PARTITION",
    "SELECT",
    "THEN",
    "UNION",
    "USING",
    "VALUES",
    "WHEN",
    "WHERE",
    "CAST",
];

/// A call's parentheses and what is between them.
struct Call {
    open: usize,
    close: usize,
    /// Where each argument's tokens lie.
    arguments: Vec<std::ops::Range<usize>>,
}

impl Call {
    /// The call of the name at `at`, which a parenthesis follows.
    fn at(tokens: &[Token<'_>], at: usize) -> Self {
        let open = at + 1;
        let depth = tokens[open].depth;
        let inside = tokens[open + 1..].iter();
        let length = inside
            .take_while(|token| !(token.kind == Kind::Close && token.depth == depth))
            .count();
        let close = open + 1 + length;
        let mut arguments = Vec::new();
        let mut start = open + 1;
        for (place, token) in tokens.iter().enumerate().take(close).skip(open + 1) {
            if token.kind == Kind::Comma && token.depth == depth + 1 {
                arguments.push(start..place);
                start = place + 1;
            }
        }
        if start < close || !arguments.is_empty() {
            arguments.push(start..close);
        }
        Self {
            open,
            close,
            arguments,
        }
    }

    fn argument(&self, place: usize) -> Option<std::ops::Range<usize>> {
        self.arguments.get(place).cloned()
    }
}

/// The changes between a statement as written and as the engine gets it.
pub(super) struct Rewrite<'a> {
    tokens: &'a [Token<'a>],
    pub(super) parameters: Box<[Arc<str>]>,
    /// What replaces which bytes, in any order, never overlapping.
    edits: Vec<(std::ops::Range<usize>, String)>,
    pub(super) clocked: bool,
    pub(super) takes_time: bool,
    pub(super) restless: Option<Arc<str>>,
}

impl<'a> Rewrite<'a> {
    pub(super) fn new(tokens: &'a [Token<'a>], parameters: Box<[Arc<str>]>) -> Self {
        Self {
            tokens,
            parameters,
            edits: Vec::new(),
            clocked: false,
            takes_time: false,
            restless: None,
        }
    }

    /// Numbers every placeholder after the parameter it takes.
    pub(super) fn placeholders(&mut self) -> Result<(), SqliteError> {
        let declared = self.parameters.len();
        let mut used = vec![false; declared];
        // SQLite gives a bare `?` the number after the largest that was used so far.
        let mut largest = 0;
        let mut bare_and_named = (false, false);
        for token in self.tokens.iter().filter(|token| token.kind == Kind::Placeholder) {
            let name = &token.text[1..];
            let number = match name.parse::<usize>() {
                Ok(number) if !token.text.starts_with([':', '@']) => number,
                _ if name.is_empty() => {
                    bare_and_named.0 = true;
                    largest + 1
                }
                _ => {
                    bare_and_named.1 = true;
                    let place = self.parameters.iter().position(|parameter| **parameter == *name);
                    let Some(place) = place else {
                        let why = format!(
                            "the statement uses {} and no parameter is called {name:?}",
                            token.text
                        );
                        return Err(SqliteError::parameters(why));
                    };
                    place + 1
                }
            };
            if number == 0 || number > declared {
                let shown = if name.is_empty() {
                    format!("a placeholder number {number}")
                } else {
                    token.text.into()
                };
                let why = format!("the statement uses {shown}, and {declared} parameters are declared");
                return Err(SqliteError::parameters(why));
            }
            used[number - 1] = true;
            largest = largest.max(number);
            self.edits.push((token.start..token.end(), format!("?{number}")));
        }
        if bare_and_named == (true, true) {
            return Err(SqliteError::parameters(
                "the statement mixes ? with named placeholders; use one kind",
            ));
        }
        if let Some(unused) = used.iter().position(|used| !used) {
            let (name, number) = (&self.parameters[unused], unused + 1);
            let why = format!("parameter {number}, {name:?}, is declared and the statement never uses it");
            return Err(SqliteError::parameters(why));
        }
        Ok(())
    }

    /// Sees that a read calls nothing but listed functions, and fixes the current time.
    pub(super) fn functions(&mut self) -> Result<(), SqliteError> {
        let tokens = self.tokens;
        let mut fixed = HashSet::new();
        for (at, token) in tokens.iter().enumerate() {
            if is_current_time(token) {
                self.current_time(at);
            }
            let called = tokens.get(at + 1).is_some_and(|next| next.kind == Kind::Open);
            if !called || !matches!(token.kind, Kind::Word | Kind::Name) || token.is_any(NO_CALLS) {
                continue;
            }
            let call = Call::at(tokens, at);
            let name = token.plain();
            match Function::named(&name) {
                Some(Function::Steady) => {}
                Some(Function::Restless) => self.restless = Some(format!("{name}()").into()),
                Some(Function::Clock(place)) => {
                    self.takes_time = true;
                    self.fix_clock(&name, &call, place, &mut fixed);
                }
                None if is_cte_head(tokens, at, &call) || is_cast_type(tokens, at, &call) => {}
                None => {
                    let why = format!("{name}() is not on the list of functions that only read");
                    return Err(SqliteError::refused(why));
                }
            }
        }
        let stray = tokens
            .iter()
            .enumerate()
            .any(|(at, token)| may_say_now(token) && !fixed.contains(&at));
        if self.takes_time && stray {
            self.restless = Some("'now'".into());
        }
        Ok(())
    }

    /// Replaces a function's `'now'`, written or implied, by the view's time.
    fn fix_clock(&mut self, name: &str, call: &Call, place: usize, fixed: &mut HashSet<usize>) {
        let time = self.time();
        for place in time_values(name, place) {
            match call.argument(place) {
                Some(argument) if argument.len() == 1 && says_now(&self.tokens[argument.start]) => {
                    let token = &self.tokens[argument.start];
                    self.edits.push((token.start..token.end(), time.clone()));
                    self.clocked = true;
                    fixed.insert(argument.start);
                }
                Some(argument) => {
                    let tokens = &self.tokens[argument];
                    match tokens {
                        // Looked at when it is bound.
                        [token] if token.kind == Kind::Placeholder => {}
                        // Becomes the view's own time.
                        [token] if is_current_time(token) => {}
                        tokens if is_steady_time(tokens) => {}
                        // A row may hold the text `now`, which then means the view's time like any other.
                        _ if is_column(tokens) => {
                            let (first, last) = (&tokens[0], &tokens[tokens.len() - 1]);
                            let column: String = tokens.iter().map(|token| token.text).collect();
                            let guarded = format!(
                                "iif(lower({column}) IN ('now', 'subsec', 'subsecond'), {time}, {column})"
                            );
                            self.edits.push((first.start..last.end(), guarded));
                            self.clocked = true;
                        }
                        _ => self.restless = Some(format!("{name}()").into()),
                    }
                }
                None if name != "timediff" && call.arguments.len() == place => {
                    let close = self.tokens[call.close].start;
                    let comma = if call.close > call.open + 1 { ", " } else { "" };
                    self.edits.push((close..close, format!("{comma}{time}")));
                    self.clocked = true;
                }
                None => self.restless = Some(format!("{name}()").into()),
            }
        }
    }

    /// Replaces `CURRENT_TIMESTAMP` and its like, unless it may be a name.
    fn current_time(&mut self, at: usize) {
        let token = &self.tokens[at];
        let operand_before = at.checked_sub(1).map(|at| &self.tokens[at]).is_none_or(|before| {
            matches!(
                before.kind,
                Kind::Dot | Kind::Close | Kind::Name | Kind::Text | Kind::Literal | Kind::Placeholder
            ) || (before.kind == Kind::Word && !before.is_any(BEFORE_OPERANDS))
        });
        let part_of_name = self
            .tokens
            .get(at + 1)
            .is_some_and(|next| matches!(next.kind, Kind::Dot | Kind::Open));
        if operand_before || part_of_name {
            self.restless = Some(token.text.to_ascii_uppercase().into());
            return;
        }
        let function = match token.text.to_ascii_uppercase().as_str() {
            "CURRENT_DATE" => "date",
            "CURRENT_TIME" => "time",
            _ => "datetime",
        };
        self.edits
            .push((token.start..token.end(), format!("{function}({})", self.time())));
        self.clocked = true;
    }

    fn time(&self) -> String {
        format!("?{}", self.parameters.len() + 1)
    }

    pub(super) fn refuse_reaching(&self) -> Result<(), SqliteError> {
        let names = self
            .tokens
            .iter()
            .filter(|token| matches!(token.kind, Kind::Word | Kind::Name));
        match names.map(Token::plain).find(|name| Function::reaches_out(name)) {
            Some(name) => Err(SqliteError::refused(format!(
                "{name}() reaches beyond the database"
            ))),
            None => Ok(()),
        }
    }

    pub(super) fn apply(&mut self, sql: &str) -> Arc<str> {
        self.edits.sort_by_key(|(range, _)| range.start);
        let mut out = String::with_capacity(sql.len() + 16);
        let mut at = 0;
        for (range, text) in &self.edits {
            out.push_str(&sql[at..range.start]);
            out.push_str(text);
            at = range.end;
        }
        let end = self.tokens.last().map_or(sql.len(), Token::end);
        out.push_str(&sql[at..end]);
        out.into()
    }
}

/// Keywords after which an operand follows, so that `CURRENT_DATE` can't be an alias.
const BEFORE_OPERANDS: &[&str] = &[
    "SELECT", "DISTINCT", "ALL", "AND", "OR", "NOT", "BETWEEN", "CASE", "WHEN", "THEN", "ELSE", "LIKE", "IS",
    "WHERE", "HAVING", "BY", "ON", "GLOB",
];

/// Whether the name at `at` is a common table with its columns: `name(a, b) AS (`.
fn is_cte_head(tokens: &[Token<'_>], at: usize, call: &Call) -> bool {
    let before = at.checked_sub(1).map(|at| &tokens[at]);
    let starts =
        before.is_some_and(|token| token.kind == Kind::Comma || token.is_any(&["WITH", "RECURSIVE"]));
    let mut after = tokens[call.close + 1..].iter();
    let mut next = after.next();
    if !next.is_some_and(|token| token.is("AS")) {
        return false;
    }
    next = after.next();
    while next.is_some_and(|token| token.is_any(&["NOT", "MATERIALIZED"])) {
        next = after.next();
    }
    // In a list of results `f(x) AS (` is no SQL, so what has this shape is no call.
    starts && next.is_some_and(|token| token.kind == Kind::Open)
}

/// Whether the name at `at` ends a type in a cast: `AS DECIMAL(10, 2)`. Right after `AS` nothing can be called.
fn is_cast_type(tokens: &[Token<'_>], at: usize, call: &Call) -> bool {
    const FIRST_WORDS: &[&str] = &["VARYING", "NATIVE", "NATIONAL", "DOUBLE"];
    let inside = &tokens[call.open + 1..call.close];
    let numbers = inside.iter().all(|token| {
        matches!(token.kind, Kind::Comma | Kind::Operator)
            || (token.kind == Kind::Literal && token.text.bytes().all(|b| b.is_ascii_digit()))
    });
    let mut before = tokens[..at]
        .iter()
        .rev()
        .skip_while(|token| token.is_any(FIRST_WORDS));
    numbers && before.next().is_some_and(|token| token.is("AS"))
}
