//! Reading fields out of nodes, strictly, and telling every fault instead of the first.
//!
//! What can't be read is told and left out; the caller goes on, and the whole is refused at the end. A text is looked
//! at for `${VARIABLE}` only when it is read, so what nobody uses needs no variable.

use std::sync::Arc;

use serde_json::{Map, Number, Value};

use super::environment::{Environment, substitute};
use super::fault::{ConfigFault, Place};
use super::yaml::{At, Key, Kind, Node, Scalar, SourceFile, is_null};
use crate::spelling::nearest;

/// What is read, by place, and what was found wrong.
pub(super) struct Reader<'a> {
    pub(super) environment: &'a Environment<'a>,
    pub(super) files: Vec<SourceFile>,
    faults: Vec<(At, ConfigFault)>,
    warnings: Vec<(At, ConfigFault)>,
    /// What variables gave, and how the author wrote it: the one is never printed, but the other.
    filled: Vec<(Arc<str>, String)>,
}

/// Who has so many faults begins with some of them.
const MOST_FAULTS: usize = 1000;

/// A value and where it stands.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Spanned<T> {
    pub(super) value: T,
    pub(super) at: At,
}

/// A scalar after its variables are filled in.
struct Filled<'n> {
    text: Arc<str>,
    /// May be a number, a boolean or nothing.
    plain: bool,
    /// As the author wrote it: what messages quote, since a variable may hold a secret.
    written: &'n str,
    substituted: bool,
}

impl<'a> Reader<'a> {
    pub(super) fn new(environment: &'a Environment<'a>) -> Self {
        Self {
            environment,
            files: Vec::new(),
            faults: Vec::new(),
            warnings: Vec::new(),
            filled: Vec::new(),
        }
    }

    pub(super) fn place(&self, at: At) -> Place {
        self.files[at.file].place(at)
    }

    pub(super) fn fault(&mut self, at: At, message: impl Into<String>) {
        if self.faults.len() < MOST_FAULTS {
            let fault = ConfigFault::new(self.place(at), self.printable(message.into()));
            self.faults.push((at, fault));
        }
    }

    pub(super) fn fault_with(&mut self, at: At, message: impl Into<String>, help: impl Into<String>) {
        if self.faults.len() < MOST_FAULTS {
            let fault = self.told(at, message.into(), help.into());
            self.faults.push((at, fault));
        }
    }

    pub(super) fn warn(&mut self, at: At, message: impl Into<String>, help: impl Into<String>) {
        if self.warnings.len() < MOST_FAULTS {
            let warning = self.told(at, message.into(), help.into());
            self.warnings.push((at, warning));
        }
    }

    fn told(&self, at: At, message: String, help: String) -> ConfigFault {
        ConfigFault::new(self.place(at), self.printable(message)).help(self.printable(help))
    }

    /// A message without what variables gave: any of it may be a secret.
    fn printable(&self, message: String) -> String {
        self.filled.iter().fold(message, |message, (value, written)| {
            message.replace(&**value, written)
        })
    }

    /// Faults and warnings, each in the order of files and lines.
    pub(super) fn finish(self) -> (Vec<ConfigFault>, Vec<ConfigFault>) {
        let ordered = |mut told: Vec<(At, ConfigFault)>| {
            told.sort_by_key(|(at, _)| *at);
            told.into_iter().map(|(_, fault)| fault).collect()
        };
        (ordered(self.faults), ordered(self.warnings))
    }

    /// A fault about a word that isn't known, with the nearest one that is.
    pub(super) fn unknown(&mut self, at: At, message: String, word: &str, known: &[&str]) {
        match nearest(word, known.iter().copied()) {
            Some(near) => self.fault_with(at, message, format!("did you mean {near:?}?")),
            None if known.is_empty() => self.fault_with(at, message, "there are none"),
            None if known.len() <= 12 => self.fault_with(at, message, format!("known: {}", known.join(", "))),
            None => self.fault(at, message),
        }
    }

    fn fill<'n>(&mut self, at: At, scalar: &'n Scalar, what: &str) -> Option<Filled<'n>> {
        let written = &*scalar.text;
        match substitute(written, self.environment) {
            Ok(None) => Some(Filled {
                text: Arc::clone(&scalar.text),
                plain: scalar.plain,
                written,
                substituted: false,
            }),
            Ok(Some(text)) => {
                let text: Arc<str> = text.into();
                // Shorter ones are no secrets, and would be found in any word.
                if text.len() > 3 {
                    self.filled.push((Arc::clone(&text), written.to_owned()));
                }
                Some(Filled {
                    text,
                    plain: scalar.plain,
                    written,
                    substituted: true,
                })
            }
            Err(unset) => {
                for unset in unset {
                    let message = format!(
                        "{what} needs the environment variable {}, which is not set",
                        unset.variable
                    );
                    let help = match unset.message {
                        Some(message) if !message.is_empty() => message,
                        _ => format!("set it, or write ${{{}:-a default}}", unset.variable),
                    };
                    self.fault_with(at, message, help);
                }
                None
            }
        }
    }

    fn scalar<'n>(&mut self, node: &'n Node, what: &str, wanted: &str) -> Option<Filled<'n>> {
        match &node.kind {
            Kind::Scalar(scalar) => {
                let filled = self.fill(node.at, scalar, what)?;
                // A variable's text is text even if it spells `null`; only an empty one is nothing.
                let nothing = filled.plain
                    && if filled.substituted {
                        filled.text.is_empty()
                    } else {
                        is_null(&filled.text)
                    };
                if nothing {
                    self.fault(node.at, format!("{what} is empty, but needs {wanted}"));
                    return None;
                }
                Some(filled)
            }
            Kind::List(items) if items.len() == 1 => {
                let help = "leave the brackets or the dash out";
                self.fault_with(node.at, format!("{what} needs {wanted}, not a list"), help);
                None
            }
            _ => {
                self.fault(
                    node.at,
                    format!("{what} needs {wanted}, not {}", node.description()),
                );
                None
            }
        }
    }

    /// Any text that isn't empty.
    pub(super) fn text(&mut self, node: &Node, what: &str) -> Option<Spanned<Arc<str>>> {
        let filled = self.scalar(node, what, "a text")?;
        if filled.text.trim().is_empty() {
            self.fault(node.at, format!("{what} is empty, but needs a text"));
            return None;
        }
        Some(Spanned {
            value: filled.text,
            at: node.at,
        })
    }

    /// A name that models and people can write: letters, digits, `_`, `-` and `.`.
    pub(super) fn name(&mut self, node: &Node, what: &str) -> Option<Spanned<Arc<str>>> {
        let name = self.text(node, what)?;
        let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.');
        if name.value.len() > 128 || !name.value.chars().all(allowed) {
            let message = format!("{what} is not usable as a name");
            self.fault_with(node.at, message, "use up to 128 letters, digits, _, - and .");
            return None;
        }
        Some(name)
    }

    pub(super) fn boolean(&mut self, node: &Node, what: &str) -> Option<Spanned<bool>> {
        let filled = self.scalar(node, what, "true or false")?;
        match (&*filled.text, filled.plain) {
            ("true" | "True" | "TRUE", true) => Some(Spanned {
                value: true,
                at: node.at,
            }),
            ("false" | "False" | "FALSE", true) => Some(Spanned {
                value: false,
                at: node.at,
            }),
            _ => {
                let message = format!("{what} needs true or false, not {:?}", filled.written);
                match filled.text.to_ascii_lowercase().as_str() {
                    "yes" | "on" => self.fault_with(node.at, message, "write true"),
                    "no" | "off" => self.fault_with(node.at, message, "write false"),
                    "true" | "false" => self.fault_with(node.at, message, "leave the quotes out"),
                    _ => self.fault(node.at, message),
                }
                None
            }
        }
    }

    /// A whole number within these limits.
    pub(super) fn count(&mut self, node: &Node, what: &str, least: u64, most: u64) -> Option<u64> {
        let filled = self.scalar(node, what, "a whole number")?;
        let number = if filled.plain { number(&filled.text) } else { None };
        let Some(number) = number.filter(|n| n.as_f64().is_some_and(|n| n.fract() == 0.0)) else {
            let message = format!("{what} needs a whole number, not {:?}", filled.written);
            let unit = filled.text.trim_end_matches(char::is_alphabetic);
            if !filled.substituted && unit.len() < filled.text.len() && number_text(unit) {
                self.fault_with(node.at, message, "write the number without a unit");
            } else if !filled.plain && number_text(&filled.text) {
                self.fault_with(node.at, message, "leave the quotes out");
            } else {
                self.fault(node.at, message);
            }
            return None;
        };
        match number.as_u64() {
            Some(value) if (least..=most).contains(&value) => Some(value),
            _ => {
                let negative = number.as_f64().is_some_and(|n| n < 1.0);
                let bound = if negative {
                    format!("must be at least {least}")
                } else {
                    format!("can be at most {most}")
                };
                self.fault(node.at, format!("{what} is {}, but {bound}", filled.written));
                None
            }
        }
    }

    /// One word of a closed list.
    pub(super) fn choice<T: Copy>(
        &mut self,
        node: &Node,
        what: &str,
        choices: &[(&str, T)],
    ) -> Option<Spanned<T>> {
        let words: Vec<&str> = choices.iter().map(|(word, _)| *word).collect();
        let filled = self.scalar(node, what, &format!("one of {}", words.join(", ")))?;
        match choices.iter().find(|(word, _)| *word == &*filled.text) {
            Some((_, value)) => Some(Spanned {
                value: *value,
                at: node.at,
            }),
            None => {
                let message = format!("{what} can't be {:?}", filled.written);
                // A variable's text must not come back as a hint about itself.
                let word = if filled.substituted { "" } else { &*filled.text };
                self.unknown(node.at, message, word, &words);
                None
            }
        }
    }

    /// The items of a list that may not be empty.
    pub(super) fn items<'n>(&mut self, node: &'n Node, what: &str) -> Option<&'n [Node]> {
        match &node.kind {
            Kind::List(items) if items.is_empty() => {
                self.fault_with(
                    node.at,
                    format!("{what} is an empty list"),
                    "fill it, or leave it out",
                );
                None
            }
            Kind::List(items) => Some(items),
            Kind::Scalar(scalar) if !node.is_null() => {
                let help = format!("write [{}]", scalar.text);
                self.fault_with(node.at, format!("{what} needs a list, not a single value"), help);
                None
            }
            _ => {
                self.fault(
                    node.at,
                    format!("{what} needs a list, not {}", node.description()),
                );
                None
            }
        }
    }

    /// The items of a list of texts, without repetitions.
    pub(super) fn texts(&mut self, node: &Node, what: &str) -> Vec<Spanned<Arc<str>>> {
        let mut texts: Vec<Spanned<Arc<str>>> = Vec::new();
        for item in self.items(node, what).unwrap_or_default() {
            let Some(text) = self.text(item, &format!("an item of {what}")) else {
                continue;
            };
            if texts.iter().any(|known| known.value == text.value) {
                self.fault(item.at, format!("{what} names it twice"));
            } else {
                texts.push(text);
            }
        }
        texts
    }

    /// Any value, as JSON.
    pub(super) fn json(&mut self, node: &Node, what: &str) -> Option<Value> {
        match &node.kind {
            Kind::Scalar(scalar) => {
                let filled = self.fill(node.at, scalar, what)?;
                if !filled.plain {
                    return Some(Value::String(filled.text.to_string()));
                }
                Some(match &*filled.text {
                    "true" | "True" | "TRUE" => Value::Bool(true),
                    "false" | "False" | "FALSE" => Value::Bool(false),
                    text if is_null(text) => Value::Null,
                    text => number(text).map_or_else(|| Value::String(text.to_owned()), Value::Number),
                })
            }
            Kind::List(items) => items
                .iter()
                .map(|item| self.json(item, what))
                .collect::<Option<Vec<_>>>()
                .map(Value::Array),
            Kind::Map(entries) => {
                let pairs = entries
                    .iter()
                    .map(|(key, value)| Some((key.name.to_string(), self.json(value, what)?)));
                pairs.collect::<Option<Map<_, _>>>().map(Value::Object)
            }
        }
    }
}

/// A number as YAML spells it; neither infinity nor NaN, which JSON has not.
fn number(text: &str) -> Option<Number> {
    let digits = text.strip_prefix('+').unwrap_or(text);
    if let Some(hex) = digits.strip_prefix("0x") {
        return i64::from_str_radix(hex, 16).ok().map(Number::from);
    }
    if let Some(octal) = digits.strip_prefix("0o") {
        return i64::from_str_radix(octal, 8).ok().map(Number::from);
    }
    if !number_text(digits) {
        return None;
    }
    let signed = digits.parse::<i64>().map(Number::from);
    signed
        .or_else(|_| digits.parse::<u64>().map(Number::from))
        .ok()
        .or_else(|| Number::from_f64(digits.parse().ok()?))
}

/// Digits with at most a sign, a point and an exponent.
fn number_text(text: &str) -> bool {
    text.bytes()
        .next()
        .is_some_and(|first| first.is_ascii_digit() || matches!(first, b'-' | b'.'))
        && text.bytes().any(|b| b.is_ascii_digit())
        && text.parse::<f64>().is_ok_and(f64::is_finite)
}

/// The fields of a mapping, each asked for once; what nobody asked for is unknown.
pub(super) struct Fields<'n> {
    /// What has these fields, for messages.
    pub(super) owner: String,
    pub(super) at: At,
    entries: Vec<(&'n Key, &'n Node)>,
    asked: Vec<&'static str>,
}

impl<'n> Fields<'n> {
    /// The fields of a node that must be a mapping.
    pub(super) fn of(reader: &mut Reader<'_>, node: &'n Node, owner: impl Into<String>) -> Option<Self> {
        let owner = owner.into();
        match &node.kind {
            Kind::Map(entries) => {
                let entries = entries.iter().map(|(key, value)| (key, value)).collect();
                Some(Self {
                    owner,
                    at: node.at,
                    entries,
                    asked: Vec::new(),
                })
            }
            _ => {
                reader.fault(
                    node.at,
                    format!("{owner} must be a mapping, not {}", node.description()),
                );
                None
            }
        }
    }

    /// Whether a field is given.
    pub(super) fn has(&self, name: &str) -> bool {
        self.entries.iter().any(|(key, _)| &*key.name == name)
    }

    /// A field, if it is given and not empty.
    pub(super) fn take(&mut self, name: &'static str) -> Option<&'n Node> {
        self.asked.push(name);
        let index = self.entries.iter().position(|(key, _)| &*key.name == name)?;
        let (_, node) = self.entries.swap_remove(index);
        (!node.is_null()).then_some(node)
    }

    /// A field that must be given.
    pub(super) fn require(&mut self, reader: &mut Reader<'_>, name: &'static str) -> Option<&'n Node> {
        let at = self
            .entries
            .iter()
            .find(|(key, _)| &*key.name == name)
            .map(|(key, _)| key.at);
        let node = self.take(name);
        if node.is_none() {
            match at {
                Some(at) => reader.fault(at, format!("{name:?} of {} is empty", self.owner)),
                // A misspelt field is told once, as what it is, and not as unknown again.
                None => match self
                    .entries
                    .iter()
                    .position(|(key, _)| self.means(&key.name, name))
                {
                    Some(index) => {
                        let (key, _) = self.entries.swap_remove(index);
                        let message = format!("{} has no field {:?}", self.owner, &*key.name);
                        reader.fault_with(key.at, message, format!("did you mean {name:?}?"));
                    }
                    None => reader.fault(self.at, format!("{} has no {name:?}", self.owner)),
                },
            }
        }
        node
    }

    /// Whether the one word was probably written for the other.
    fn means(&self, written: &str, name: &str) -> bool {
        nearest(written, [name]).is_some()
            || MISTAKES
                .iter()
                .any(|(of, wrong, right)| self.owner.starts_with(of) && *wrong == written && *right == name)
    }

    /// Tells fields that belong to a later version. Their neighbours are read as ever.
    pub(super) fn unsupported(&mut self, reader: &mut Reader<'_>, fields: &[(&'static str, &str)]) {
        for (name, help) in fields {
            self.asked.push(name);
            if let Some(index) = self.entries.iter().position(|(key, _)| &*key.name == *name) {
                let (key, _) = self.entries.swap_remove(index);
                reader.fault_with(
                    key.at,
                    format!("not supported yet by this version: {name:?}"),
                    *help,
                );
            }
        }
    }

    /// Tells every field that nobody asked for.
    pub(super) fn finish(self, reader: &mut Reader<'_>) {
        let Self {
            owner,
            entries,
            asked,
            ..
        } = self;
        for (key, _) in entries {
            let name = &*key.name;
            let message = format!("{owner} has no field {name:?}");
            match MISTAKES
                .iter()
                .find(|(of, wrong, _)| owner.starts_with(of) && *wrong == name)
            {
                // A field's name, or advice.
                Some((_, _, right)) if asked.contains(right) => {
                    reader.fault_with(key.at, message, format!("did you mean {right:?}?"));
                }
                Some((_, _, advice)) => reader.fault_with(key.at, message, *advice),
                None => reader.unknown(key.at, message, name, &asked),
            }
        }
    }
}

/// What people write instead: of what, the wrong field, and the right one or what to do.
const MISTAKES: &[(&str, &str, &str)] = &[
    ("source", "path", "database"),
    ("source", "file", "database"),
    ("source", "filename", "database"),
    ("source", "db", "database"),
    ("source", "kind", "type"),
    (
        "source",
        "pool_size",
        "its connections are the `allowance` of a `kind: dependency` with its name",
    ),
    (
        "source",
        "poolSize",
        "its connections are the `allowance` of a `kind: dependency` with its name",
    ),
    (
        "source",
        "allowance",
        "say it in a `kind: dependency` document with its name",
    ),
    (
        "source",
        "quota",
        "say it in a `kind: dependency` document with its name",
    ),
    (
        "source",
        "readOnly",
        "SQLite files are opened read-only unless a tool writes",
    ),
    ("tool", "sql", "statement"),
    ("tool", "query", "statement"),
    ("tool", "params", "parameters"),
    ("tool", "args", "parameters"),
    ("tool", "inputs", "parameters"),
    ("tool", "database", "source"),
    (
        "tool",
        "effect",
        "say it in a `kind: coordination` document, so that Toolbox still reads this one",
    ),
    (
        "tool",
        "dependency",
        "say it in a `kind: coordination` document, so that Toolbox still reads this one",
    ),
    (
        "tool",
        "preconditions",
        "say it in a `kind: coordination` document, so that Toolbox still reads this one",
    ),
    (
        "tool",
        "key",
        "say it in a `kind: coordination` document, so that Toolbox still reads this one",
    ),
    (
        "tool",
        "timeoutMs",
        "say it in a `kind: coordination` document, so that Toolbox still reads this one",
    ),
    ("parameter", "enum", "allowedValues"),
    ("parameter", "min", "minValue"),
    ("parameter", "max", "maxValue"),
    ("parameter", "minimum", "minValue"),
    ("parameter", "maximum", "maxValue"),
    ("parameter", "optional", "write `required: false`"),
    ("coordination", "name", "tool"),
    ("coordination", "keys", "key"),
    ("coordination", "timeout", "timeoutMs"),
    ("coordination", "outputs", "outputFields"),
    ("quota", "rate", "limit"),
    ("quota", "period", "per"),
    ("snapshot", "tools", "covers"),
    ("policy", "name", "policy"),
];
