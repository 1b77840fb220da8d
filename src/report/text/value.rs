//! A value, shown small: rows as a table, anything else on one line.

use std::fmt::{self, Write};

use serde_json::{Map, Value};

use super::{LINE, Palette, Text, clean, shortened};

/// How many rows of a value are shown.
const ROWS: usize = 8;
/// How many of its columns.
const COLUMNS: usize = 8;
/// How wide a cell may be, in characters.
const CELL: usize = 32;

impl Text<'_> {
    /// A value: rows as a table, anything else on one line.
    pub(super) fn value(&mut self, value: &Value) -> fmt::Result {
        let (rows, declared, count) = match value {
            Value::Object(object) => match object.get("rows") {
                Some(Value::Array(rows)) => (rows, object.get("columns"), object.get("rowCount")),
                _ => return writeln!(self.out, "    {}", inline(value, LINE)),
            },
            Value::Array(rows) => (rows, None, None),
            _ => return writeln!(self.out, "    {}", inline(value, LINE)),
        };
        let Some(records) = rows
            .iter()
            .take(ROWS)
            .map(Value::as_object)
            .collect::<Option<Vec<_>>>()
        else {
            return writeln!(self.out, "    {}", inline(value, LINE));
        };
        let names = column_names(declared, &records);
        if names.is_empty() {
            let nothing = if rows.is_empty() {
                "no rows"
            } else {
                "rows without columns"
            };
            return writeln!(
                self.out,
                "    {}{nothing}{}",
                self.palette.faint, self.palette.end
            );
        }
        self.table(&names, &records)?;

        let total = count
            .and_then(Value::as_u64)
            .and_then(|count| usize::try_from(count).ok())
            .unwrap_or(rows.len());
        if let Some(more) = total.checked_sub(records.len()).filter(|more| *more > 0) {
            let rows = if more == 1 { "row" } else { "rows" };
            writeln!(
                self.out,
                "    {}{more} more {rows}{}",
                self.palette.faint, self.palette.end
            )?;
        }
        Ok(())
    }

    fn table(&mut self, names: &[&str], records: &[&Map<String, Value>]) -> fmt::Result {
        let shown = &names[..names.len().min(COLUMNS)];
        let columns: Vec<Column> = shown.iter().map(|name| Column::of(name, records)).collect();
        let Palette { faint, end, .. } = *self.palette;
        let more = match names.len() - shown.len() {
            0 => String::new(),
            more => format!("  (and {more} more)"),
        };
        for line in 0..=records.len() {
            let mut cells = String::new();
            for (number, column) in columns.iter().enumerate() {
                let cell = if line == 0 {
                    &column.head
                } else {
                    &column.cells[line - 1]
                };
                let pad = " ".repeat(column.width - cell.chars().count());
                let gap = if number == 0 { "" } else { "  " };
                match column.numeric {
                    true => write!(cells, "{gap}{pad}{cell}")?,
                    false => write!(cells, "{gap}{cell}{pad}")?,
                }
            }
            match line {
                0 => writeln!(self.out, "    {faint}{}{more}{end}", cells.trim_end())?,
                _ => writeln!(self.out, "    {}", cells.trim_end())?,
            }
        }
        Ok(())
    }
}

/// A column of a table, as it is shown.
struct Column {
    head: String,
    cells: Vec<String>,
    width: usize,
    numeric: bool,
}

impl Column {
    fn of(name: &str, records: &[&Map<String, Value>]) -> Self {
        let head = shortened(&clean(name), CELL);
        let cells: Vec<String> = records
            .iter()
            .map(|record| {
                record
                    .get(name)
                    .map_or_else(String::new, |value| inline(value, CELL))
            })
            .collect();
        let width = cells
            .iter()
            .chain([&head])
            .map(|cell| cell.chars().count())
            .max()
            .unwrap_or_default();
        let mut known = records
            .iter()
            .filter_map(|record| record.get(name))
            .filter(|value| !value.is_null());
        let numeric = known.clone().next().is_some() && known.all(Value::is_number);
        Self {
            head,
            cells,
            width,
            numeric,
        }
    }
}

/// The columns as declared, else as the rows have them.
fn column_names<'a>(declared: Option<&'a Value>, records: &[&'a Map<String, Value>]) -> Vec<&'a str> {
    if let Some(Value::Array(columns)) = declared {
        let names: Option<Vec<&str>> = columns
            .iter()
            .map(|column| column.get("name")?.as_str())
            .collect();
        if let Some(names) = names {
            return names;
        }
    }
    let mut names: Vec<&str> = Vec::new();
    for name in records.iter().flat_map(|record| record.keys()) {
        if !names.contains(&name.as_str()) {
            names.push(name);
        }
    }
    names
}

/// A value on one line: text as it is, the rest as JSON.
pub(super) fn inline(value: &Value, width: usize) -> String {
    match value {
        Value::Null => String::from("null"),
        Value::String(text) => shortened(&clean(text), width),
        other => shortened(&clean(&other.to_string()), width),
    }
}
