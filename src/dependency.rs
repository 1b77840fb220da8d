//! Which call needs what another returns: declared, by placeholder, or by a value that looks guessed. Pure.

use std::sync::Arc;

use serde_json::Value;

use crate::reading::CallError;
use crate::tool::ArgumentMap;

/// Placeholders of one call that name the same producer and path.
#[derive(Clone, Debug, PartialEq)]
pub struct Reference {
    /// The call whose argument holds it.
    pub consumer: usize,
    /// The call it names.
    pub producer: usize,
    /// The head as it is written.
    pub head: Arc<str>,
}

/// An argument that looks guessed.
#[derive(Clone, Debug, PartialEq)]
pub struct Guess {
    /// The call that has it.
    pub consumer: usize,
    /// The argument's name.
    pub field: Arc<str>,
    /// Its value.
    pub value: Value,
    /// The calls that return such a field.
    pub producers: Vec<usize>,
}

/// Fills placeholders in. `value_of` gives what a call returned.
///
/// # Errors
/// `reference_unresolved` if a path leads to nothing, or a shorthand to no row or several.
pub fn substitute<'a>(
    arguments: &ArgumentMap,
    references: &[Reference],
    value_of: impl Fn(usize) -> Option<&'a Value>,
) -> Result<ArgumentMap, CallError> {
    let _ = (arguments, references, value_of);
    unimplemented!()
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
