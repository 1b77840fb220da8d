//! Values that a parameter allows or excludes.

use regex::Regex;
use serde_json::Value;

/// An entry of `allowedValues` or `excludedValues`.
#[derive(Clone, Debug)]
pub enum Matcher {
    /// This value.
    Equal(Value),
    /// Texts that match.
    Pattern {
        /// As it was written.
        written: String,
        /// Compiled.
        regex: Regex,
    },
}

/// Patterns of a configuration may not compile to more than this.
const PATTERN_BYTES: usize = 1 << 20;

impl Matcher {
    /// An entry of `allowedValues`: a pattern stands for whole texts. A text that is no pattern stands for itself.
    pub(in crate::config) fn allowed(value: Value) -> Self {
        Self::new(value, |text| format!("^(?:{text})$"))
    }

    /// An entry of `excludedValues`: a pattern may match anywhere.
    pub(in crate::config) fn excluded(value: Value) -> Self {
        Self::new(value, str::to_owned)
    }

    fn new(value: Value, pattern: impl Fn(&str) -> String) -> Self {
        if let Value::String(text) = &value {
            // `a)|(b` compiles only because of what is put around it.
            let alone = Regex::new(text).is_ok();
            let regex = regex::RegexBuilder::new(&pattern(text))
                .size_limit(PATTERN_BYTES)
                .build();
            if let (true, Ok(regex)) = (alone, regex) {
                return Self::Pattern {
                    written: text.clone(),
                    regex,
                };
            }
        }
        Self::Equal(value)
    }

    pub(super) fn matches(&self, value: &Value) -> bool {
        match self {
            Self::Equal(expected) => equal(expected, value),
            Self::Pattern { regex, .. } => value.as_str().is_some_and(|text| regex.is_match(text)),
        }
    }

    /// The only value that matches, if there is just one.
    pub(super) fn only(&self) -> Option<Value> {
        match self {
            Self::Equal(value) => Some(value.clone()),
            Self::Pattern { written, .. } if is_literal(written) => Some(Value::String(written.clone())),
            Self::Pattern { .. } => None,
        }
    }
}

/// Whether a pattern is text that stands for itself.
pub(in crate::config) fn is_literal(pattern: &str) -> bool {
    !pattern.contains([
        '\\', '.', '+', '*', '?', '(', ')', '|', '[', ']', '{', '}', '^', '$',
    ])
}

/// Equal, and numbers by their value: `1` is `1.0`.
fn equal(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Number(x), Value::Number(y)) => match (x.as_i64(), y.as_i64()) {
            (Some(x), Some(y)) => x == y,
            _ => x.as_f64() == y.as_f64(),
        },
        _ => a == b,
    }
}
