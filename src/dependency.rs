//! Which call needs what another returns: declared, by placeholder, or by a value that looks guessed. Pure.
//!
//! # Placeholders
//!
//! A string argument, at any depth, may hold placeholders: `{{head.path}}`. (Names of arguments may not.)
//!
//! - The **head** is the id of a call, else the name of a tool that is called in the set. If several fit, the single one
//!   before the consumer is meant; if there is no such, the reference is ambiguous.
//! - The **path** is made of `.name`, `[0]` and `.0`; none at all means the whole value. `.name` also reaches into the
//!   *only row* of an answer with `rows`: `{{c1.threshold}}`. With no row, several, or a truncated answer there is no
//!   only row.
//! - A head or name with odd characters (white space, `.`, `[`, `]`, `{`, `}`, `"`) is written as a JSON string:
//!   `{{"crm.get"."total sum"}}` or `{{c1["total sum"]}}`.
//! - A string that is one placeholder and nothing else becomes the value with its JSON type. In a longer string values are
//!   put in as text: strings as they are, everything else as JSON.
//! - `{{{{` stands for a plain `{{`. Whatever doesn't follow this grammar is text (`$15` is, too), and so is a placeholder
//!   in a longer string whose head nobody has. Values that were put in are never looked at again.
//!
//! # Guessed values
//!
//! A string or integer whose argument is named like an output of another call was probably made up by the model, who
//! hasn't seen that output yet. Unless it is grounded, the plan runs the producers first, and [`check_guess`] looks for
//! the value in what they returned.

use std::borrow::Cow;
use std::sync::Arc;

use foldhash::{HashSet, HashSetExt};
use serde_json::Value;

use crate::reading::{CallError, ErrorCode};
use crate::tool::ArgumentMap;

pub(crate) mod grounds;
pub(crate) mod placeholder;

use placeholder::{Piece, Step};

/// How deep arguments are looked into. JSON that was parsed is never deeper.
const MAX_DEPTH: usize = 128;

/// How large a call's arguments may become by substitution, in bytes: one answer may be named many times.
const MAX_SUBSTITUTED: usize = 16 << 20;

/// A placeholder's head, found: what it means in one call.
#[derive(Clone, Debug, PartialEq)]
pub struct Reference {
    /// The call whose argument holds it.
    pub consumer: usize,
    /// The call it names.
    pub producer: usize,
    /// The head as it is written, quotes undone.
    pub head: Arc<str>,
}

/// An argument that looks guessed.
#[derive(Clone, Debug, PartialEq)]
pub struct Guess {
    /// The call that has it.
    pub consumer: usize,
    /// The consumer's tool.
    pub tool: Arc<str>,
    /// The argument's name.
    pub field: Arc<str>,
    /// Its value: a string or an integer.
    pub value: Value,
    /// The tools that return such a field, for people.
    pub returned_by: Arc<str>,
    /// All calls that return such a field, in the order of their stages; shared by all guesses of the field.
    pub(crate) all_producers: Arc<[usize]>,
    /// How many of them come before the consumer's stage has ended.
    pub(crate) reach: usize,
}

impl Guess {
    /// The calls whose output is searched.
    pub fn producers(&self) -> &[usize] {
        &self.all_producers[..self.reach]
    }

    /// Whether every call that returns such a field is among them. Else a value that isn't found proves nothing.
    pub fn is_exhaustive(&self) -> bool {
        self.reach == self.all_producers.len()
    }
}

/// What a producer left to search.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum ProducerState<'a> {
    /// Its whole answer.
    Whole(&'a Value),
    /// An answer that was truncated or paged.
    Part(&'a Value),
    /// It has no answer.
    Nothing,
}

/// What looking for a guessed value in its producers' output gave.
#[derive(Clone, Debug, PartialEq)]
pub enum GuessCheck {
    /// It was found: run.
    Found,
    /// A producer failed, was truncated, or returned no such field: run, unverified.
    Unverified,
    /// It is not among the values they returned: refuse.
    NotFound(CallError),
}

/// Looks for a guessed value in fields of that name, at any depth, of what its producers returned.
///
/// Text and integers are compared by their digits, so that 7 equals `"7"`: large integers are returned as strings. Of an
/// answer with `columns` and `rows` only the rows are searched.
pub fn check_guess<'a>(guess: &Guess, value_of: impl Fn(usize) -> ProducerState<'a>) -> GuessCheck {
    let mut seen = HashSet::new();
    let mut has_field = false;
    let mut whole = guess.is_exhaustive();
    for &producer in guess.producers() {
        let value = match value_of(producer) {
            ProducerState::Whole(value) => value,
            ProducerState::Part(value) => {
                whole = false;
                value
            }
            ProducerState::Nothing => {
                whole = false;
                continue;
            }
        };
        has_field |= collect(value, &guess.field, &mut seen);
    }
    match token_text(&guess.value) {
        Some(text) if seen.contains(text.as_ref()) => GuessCheck::Found,
        Some(text) if whole && has_field => {
            let values = match seen.len() {
                0 => "none was returned".to_owned(),
                1 => "it is not the one value that was returned".to_owned(),
                n => format!("it is none of the {n} values that were returned"),
            };
            let Guess {
                tool,
                field,
                returned_by,
                ..
            } = guess;
            GuessCheck::NotFound(CallError::new(
                ErrorCode::GuessedArgument,
                format!(
                    "The value {} for {field:?} of {tool} looks guessed: {returned_by} of the same set returns {field:?}, \
                     and {values}. Call {tool} again with a value that was returned.",
                    Shown(&text)
                ),
            ))
        }
        _ => GuessCheck::Unverified,
    }
}

/// A value in quotes, cut to what a message can bear.
struct Shown<'a>(&'a str);

impl std::fmt::Display for Shown<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.0.char_indices().nth(64) {
            Some((end, _)) => write!(f, "{:?}…", &self.0[..end]),
            None => write!(f, "{:?}", self.0),
        }
    }
}

/// Collects all values of fields named `field`; says whether there is such a field.
fn collect<'a>(value: &'a Value, field: &str, seen: &mut HashSet<Cow<'a, str>>) -> bool {
    let mut found = false;
    let mut rest = vec![value];
    while let Some(value) = rest.pop() {
        match value {
            Value::Array(items) => rest.extend(items),
            Value::Object(map) => {
                if let (Some(Value::Array(columns)), Some(rows @ Value::Array(_))) =
                    (map.get("columns"), map.get("rows"))
                {
                    // The columns' own description isn't data: a column is *named* `name` by it.
                    found |= columns
                        .iter()
                        .any(|column| column.get("name").is_some_and(|name| name == field));
                    rest.push(rows);
                    continue;
                }
                for (name, value) in map {
                    if name == field {
                        found = true;
                        match value {
                            Value::Array(items) => seen.extend(items.iter().filter_map(token_text)),
                            value => seen.extend(token_text(value)),
                        }
                    }
                    if value.is_array() || value.is_object() {
                        rest.push(value);
                    }
                }
            }
            _ => {}
        }
    }
    found
}

/// The text by which a string or an integer is compared; `None` for everything else.
pub(crate) fn token_text(value: &Value) -> Option<Cow<'_, str>> {
    match value {
        Value::String(text) => Some(Cow::Borrowed(text)),
        Value::Number(number) if number.is_f64() => {
            // Some producers print every number with a point.
            let float = number
                .as_f64()
                .filter(|float| float.fract() == 0.0 && float.abs() < 9.0e15)?;
            Some(Cow::Owned(format!("{float:.0}")))
        }
        Value::Number(number) => Some(Cow::Owned(number.to_string())),
        _ => None,
    }
}

/// Whether a name looks like an identifier's: `id`, `uuid`, `…_id`, `…Id`, `…_key`, `…_no`, `…_number`, `…_code`.
pub(crate) fn is_identifier(name: &str) -> bool {
    let ends = |suffix: &str| {
        name.len() > suffix.len()
            && name
                .get(name.len() - suffix.len()..)
                .is_some_and(|end| end.eq_ignore_ascii_case(suffix))
    };
    name.eq_ignore_ascii_case("id")
        || name.eq_ignore_ascii_case("uuid")
        || (name.len() > 2 && name.ends_with("Id"))
        || ["_id", "_key", "_no", "_number", "_code"].into_iter().any(ends)
}

/// Calls `see` with every scalar of the arguments and the name it stands under: the nearest one, for items of arrays.
pub(crate) fn visit<'a>(arguments: &'a ArgumentMap, see: &mut impl FnMut(&'a str, &'a Value)) {
    fn inner<'a>(name: &'a str, value: &'a Value, depth: usize, see: &mut impl FnMut(&'a str, &'a Value)) {
        match value {
            Value::Array(_) | Value::Object(_) if depth == MAX_DEPTH => {}
            Value::Array(items) => items.iter().for_each(|item| inner(name, item, depth + 1, see)),
            Value::Object(map) => map
                .iter()
                .for_each(|(name, value)| inner(name, value, depth + 1, see)),
            scalar => see(name, scalar),
        }
    }
    for (name, value) in arguments {
        inner(name, value, 1, see);
    }
}

/// Whether substitution could change these arguments: some string has a `{{`.
pub fn has_placeholders(arguments: &ArgumentMap) -> bool {
    let mut found = false;
    visit(arguments, &mut |_, value| {
        found |= value.as_str().is_some_and(placeholder::has_braces)
    });
    found
}

/// Fills placeholders in. `references` are those of the one call; `value_of` gives what a producer returned. Arguments
/// without a `{{` come back as they are.
///
/// # Errors
/// - `reference_unresolved`: a path leads to nothing, or `{{head.name}}` to no row or several.
/// - `dependency_failed`: a producer has no value.
/// - `invalid_arguments`: the arguments would grow beyond 16 MiB.
pub fn substitute<'a>(
    arguments: &Arc<ArgumentMap>,
    references: &[Reference],
    value_of: impl Fn(usize) -> Option<&'a Value>,
) -> Result<Arc<ArgumentMap>, CallError> {
    if !has_placeholders(arguments) {
        return Ok(Arc::clone(arguments));
    }
    debug_assert!(
        references.is_sorted_by(|a, b| a.head <= b.head),
        "heads are looked up by halving"
    );
    let mut filled = ArgumentMap::clone(arguments);
    let mut filler = Filler {
        references,
        value_of,
        left: MAX_SUBSTITUTED,
    };
    for (name, value) in &mut filled {
        filler.fill(name, value, 1)?;
    }
    Ok(Arc::new(filled))
}

struct Filler<'r, F> {
    references: &'r [Reference],
    value_of: F,
    left: usize,
}

impl<'a, F: Fn(usize) -> Option<&'a Value>> Filler<'_, F> {
    fn fill(&mut self, name: &str, value: &mut Value, depth: usize) -> Result<(), CallError> {
        match value {
            Value::Array(_) | Value::Object(_) if depth == MAX_DEPTH => Ok(()),
            Value::Array(items) => items
                .iter_mut()
                .try_for_each(|item| self.fill(name, item, depth + 1)),
            Value::Object(map) => map
                .iter_mut()
                .try_for_each(|(name, value)| self.fill(name, value, depth + 1)),
            Value::String(text) if placeholder::has_braces(text) => {
                *value = self.expand(name, text)?;
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn expand(&mut self, name: &str, text: &str) -> Result<Value, CallError> {
        let mut filled = String::with_capacity(text.len());
        for piece in placeholder::pieces(text) {
            match piece {
                Piece::Text(text) => filled.push_str(text),
                Piece::Braces => filled.push_str("{{"),
                Piece::Placeholder(found) => {
                    let Ok(at) = self
                        .references
                        .binary_search_by(|known| (*known.head).cmp(&found.head))
                    else {
                        // Nobody has this head: the plan left it as text.
                        filled.push_str(found.text);
                        continue;
                    };
                    let producer = self.references[at].producer;
                    let Some(value) = (self.value_of)(producer) else {
                        return Err(CallError::new(
                            ErrorCode::DependencyFailed,
                            format!(
                                "Argument {name:?} needs {}, but that call returned no value.",
                                Shown(found.text)
                            ),
                        ));
                    };
                    let value = follow(value, &found.steps).map_err(|why| {
                        CallError::new(
                            ErrorCode::ReferenceUnresolved,
                            format!(
                                "Argument {name:?} refers to {}, which leads to nothing: {why}.",
                                Shown(found.text)
                            ),
                        )
                    })?;
                    self.spend(name, value)?;
                    if found.text.len() == text.len() {
                        return Ok(value.clone());
                    }
                    match value {
                        Value::String(text) => filled.push_str(text),
                        other => filled.push_str(&other.to_string()),
                    }
                }
            }
        }
        Ok(Value::String(filled))
    }

    fn spend(&mut self, name: &str, value: &Value) -> Result<(), CallError> {
        self.left = self.left.checked_sub(size_within(value, self.left)).ok_or_else(|| {
            CallError::new(
                ErrorCode::InvalidArguments,
                format!("Filling in argument {name:?} would make the arguments larger than 16 MiB. Refer to less."),
            )
        })?;
        Ok(())
    }
}

/// The size of a value in bytes, roughly; counting ends beyond `limit`.
fn size_within(value: &Value, limit: usize) -> usize {
    let mut size = 0;
    let mut rest = vec![value];
    while let Some(value) = rest.pop() {
        size += size_of::<Value>();
        match value {
            Value::String(text) => size += text.len(),
            Value::Array(items) => rest.extend(items),
            Value::Object(map) => {
                size += map.keys().map(String::len).sum::<usize>();
                rest.extend(map.values());
            }
            _ => {}
        }
        if size > limit {
            break;
        }
    }
    size
}

/// Follows a path.
fn follow<'a>(root: &'a Value, steps: &[Step<'_>]) -> Result<&'a Value, String> {
    let mut value = root;
    for (at, step) in steps.iter().enumerate() {
        value = match (step, value) {
            (Step::Index(index), Value::Array(items)) => items
                .get(*index)
                .ok_or_else(|| format!("there are {} items, none at [{index}]", items.len()))?,
            (Step::Index(index), _) => return Err(format!("[{index}] needs an array")),
            (Step::Name(name), Value::Array(items)) => name
                .parse::<usize>()
                .ok()
                .and_then(|index| items.get(index))
                .ok_or_else(|| format!("there are {} items, none at .{name}", items.len()))?,
            (Step::Name(name), Value::Object(map)) => match map.get(name.as_ref()) {
                Some(value) => value,
                None if at == 0 => only_row(map)?
                    .get(name.as_ref())
                    .ok_or_else(|| format!("neither the answer nor its only row has {name:?}"))?,
                None => return Err(format!("there is no {name:?}")),
            },
            (Step::Name(name), _) => return Err(format!(".{name} needs an object or an array")),
        };
    }
    Ok(value)
}

/// The only row of an answer's `rows`.
fn only_row(map: &ArgumentMap) -> Result<&Value, String> {
    match map.get("rows") {
        Some(Value::Array(_)) if map.get("truncated") == Some(&Value::Bool(true)) => {
            Err("the answer is truncated, so it may have more than one row".to_owned())
        }
        Some(Value::Array(rows)) => match rows.as_slice() {
            [row] => Ok(row),
            [] => Err("the answer has no rows".to_owned()),
            rows => Err(format!(
                "the answer has {} rows; say which, as in .rows[0]",
                rows.len()
            )),
        },
        _ => Err("there is no such name".to_owned()),
    }
}

#[cfg(test)]
mod tests;
