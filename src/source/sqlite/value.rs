//! Values between SQLite and JSON: by storage class, never rounded, never re-parsed.

use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Number, Value};
use sqlx::sqlite::{SqliteArguments, SqliteRow, SqliteValueRef};
use sqlx::{Arguments as _, Decode, Row as _, Sqlite, TypeInfo as _, ValueRef as _};

use super::error::SqliteError;

/// The largest integer a reader of JSON is sure to keep exact.
const EXACT: u64 = 1 << 53;

/// A value to be bound.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Bound {
    Null,
    Integer(i64),
    Real(f64),
    Text(String),
}

impl Bound {
    /// A JSON value as SQLite stores it: booleans as 0 and 1, arrays and objects as their JSON text.
    ///
    /// # Errors
    /// An integer that SQLite couldn't keep exact.
    pub(super) fn from_json(name: &str, value: &Value) -> Result<Self, SqliteError> {
        Ok(match value {
            Value::Null => Self::Null,
            Value::Bool(on) => Self::Integer((*on).into()),
            Value::Number(number) => match (number.as_i64(), number.is_u64(), number.as_f64()) {
                (Some(integer), ..) => Self::Integer(integer),
                (None, false, Some(real)) => Self::Real(real),
                _ => {
                    let why =
                        format!("{name:?} is {number}, beyond SQLite's 64-bit integers; send it as a string");
                    return Err(SqliteError::parameters(why));
                }
            },
            Value::String(text) => Self::Text(text.clone()),
            Value::Array(_) | Value::Object(_) => Self::Text(value.to_string()),
        })
    }

    /// All of them, in order, as the driver wants them.
    pub(super) fn arguments(values: Vec<Self>) -> Result<SqliteArguments, SqliteError> {
        let mut arguments = SqliteArguments::default();
        for value in values {
            let added = match value {
                Self::Null => arguments.add(None::<i64>),
                Self::Integer(integer) => arguments.add(integer),
                Self::Real(real) => arguments.add(real),
                Self::Text(text) => arguments.add(text),
            };
            added.map_err(|error| SqliteError::parameters(error.to_string()))?;
        }
        Ok(arguments)
    }
}

/// What a statement returned.
#[derive(Debug, Default)]
pub(super) struct Rows {
    /// The storage class of each column's values, if they all have the same.
    classes: Vec<Class>,
    rows: Vec<Value>,
    bytes: usize,
    pub(super) truncated: bool,
    pub(super) changed: u64,
}

/// What is known about the storage class of a column's values.
#[derive(Clone, Copy, Debug, Default)]
struct Class {
    name: Option<&'static str>,
    mixed: bool,
    /// A text that is none: shown as base64, and the column says so.
    not_utf8: bool,
}

impl Rows {
    pub(super) fn len(&self) -> usize {
        self.rows.len()
    }

    /// Takes a row in, under these names, unless it would exceed the bound in bytes.
    pub(super) fn push(
        &mut self,
        names: &[Arc<str>],
        row: &SqliteRow,
        max_bytes: usize,
    ) -> Result<(), sqlx::Error> {
        self.classes.resize(names.len(), Class::default());
        let mut object = Map::with_capacity(names.len());
        for (place, name) in names.iter().enumerate() {
            let raw = row.try_get_raw(place)?;
            let value = self.classes[place].take(raw);
            self.bytes += name.len() + 8 + value.as_str().map_or(16, str::len);
            object.insert(name.to_string(), value);
        }
        if self.bytes > max_bytes {
            self.truncated = true;
        } else {
            self.rows.push(Value::Object(object));
        }
        Ok(())
    }

    /// As the report shows it.
    pub(super) fn into_json(self, columns: &[Column]) -> Value {
        let shown = columns.iter().enumerate().map(|(place, column)| {
            let class = self.classes.get(place).copied().unwrap_or_default();
            let mut declared = match (&column.declared, class) {
                (Some(declared), _) => declared.to_string(),
                (
                    None,
                    Class {
                        name: Some(name),
                        mixed: false,
                        ..
                    },
                ) => name.to_owned(),
                (None, _) => String::new(),
            };
            if class.not_utf8 {
                declared.push_str(" (base64 where not UTF-8)");
            }
            Value::Object(Map::from_iter([
                ("name".to_owned(), Value::from(&*column.name)),
                ("type".to_owned(), Value::from(declared)),
            ]))
        });
        let columns = Value::Array(shown.collect());
        let count = self.rows.len();
        Value::Object(Map::from_iter([
            ("columns".to_owned(), columns),
            ("rows".to_owned(), Value::Array(self.rows)),
            ("rowCount".to_owned(), Value::from(count)),
            ("truncated".to_owned(), Value::Bool(self.truncated)),
        ]))
    }
}

/// What a statement returns.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Description {
    /// The columns of its rows.
    pub columns: Vec<Column>,
    /// Whether its result is a function of the database, its arguments and its view's time. If it isn't, its answers join
    /// no comparison.
    pub steady: bool,
    /// Whether it asks for all rows there are, or the first in a total order. If it doesn't, its answers are incomplete.
    pub whole: bool,
}

/// A column of a statement's result.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Column {
    /// Its name in the rows; equal names are kept apart by a suffix.
    pub name: Arc<str>,
    /// Its declared type, if it is a column of a table that has one.
    pub declared: Option<Arc<str>>,
}

impl Class {
    fn take(&mut self, raw: SqliteValueRef<'_>) -> Value {
        // NULL carries the column's type, so it has to be asked first.
        if raw.is_null() {
            return Value::Null;
        }
        let class = match raw.type_info().name() {
            "INTEGER" => "INTEGER",
            "REAL" => "REAL",
            "TEXT" => "TEXT",
            _ => "BLOB",
        };
        self.mixed |= self.name.is_some_and(|name| name != class);
        self.name = Some(class);
        match class {
            "INTEGER" => return integer(<i64 as Decode<Sqlite>>::decode(raw).unwrap_or_default()),
            "REAL" => return real(<f64 as Decode<Sqlite>>::decode(raw).unwrap_or_default()),
            _ => {}
        }
        let bytes = <&[u8] as Decode<Sqlite>>::decode(raw).unwrap_or_default();
        match class {
            "TEXT" => match std::str::from_utf8(bytes) {
                Ok(text) => Value::from(text),
                // Two texts that differ must not become equal, so nothing is replaced in it.
                Err(_) => {
                    self.not_utf8 = true;
                    Value::from(STANDARD.encode(bytes))
                }
            },
            _ => Value::from(STANDARD.encode(bytes)),
        }
    }
}

fn integer(integer: i64) -> Value {
    if integer.unsigned_abs() > EXACT {
        Value::from(integer.to_string())
    } else {
        Value::from(integer)
    }
}

fn real(real: f64) -> Value {
    match Number::from_f64(real) {
        Some(number) => Value::Number(number),
        None if real.is_nan() => Value::from("NaN"),
        None if real > 0.0 => Value::from("Infinity"),
        None => Value::from("-Infinity"),
    }
}
