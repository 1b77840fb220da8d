//! What is wrong with a configuration, all of it, each fault with its place.

use std::fmt;
use std::sync::Arc;

/// Where something stands in a file.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Place {
    /// The file's name as it was given.
    pub(crate) file: Arc<str>,
    /// From 1; 0 is the file as a whole.
    pub(crate) line: usize,
    /// From 1.
    pub(crate) column: usize,
    /// The line itself, without what may be secret.
    pub(crate) snippet: Arc<str>,
}

impl fmt::Debug for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}:{}", self.file, self.line, self.column)
    }
}

/// One fault or warning.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigFault {
    place: Place,
    message: String,
    help: Option<String>,
}

impl ConfigFault {
    pub(crate) fn new(place: Place, message: impl Into<String>) -> Self {
        Self {
            place,
            message: message.into(),
            help: None,
        }
    }

    #[must_use]
    pub(crate) fn help(mut self, help: impl Into<String>) -> Self {
        self.help = Some(help.into());
        self
    }

    /// The file, as it was named.
    pub fn file(&self) -> &str {
        &self.place.file
    }

    /// The line, counted from 1; `None` if it concerns the file as a whole.
    pub fn line(&self) -> Option<usize> {
        (self.place.line > 0).then_some(self.place.line)
    }

    /// The column, counted from 1 in characters; `None` if it concerns the file as a whole.
    pub fn column(&self) -> Option<usize> {
        (self.place.line > 0).then_some(self.place.column)
    }

    /// What is wrong.
    pub fn message(&self) -> &str {
        &self.message
    }

    /// How to mend it, if that is known.
    pub fn suggestion(&self) -> Option<&str> {
        self.help.as_deref()
    }
}

impl fmt::Display for ConfigFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Place {
            file,
            line,
            column,
            snippet,
        } = &self.place;
        if *line == 0 {
            write!(f, "{file}: {}", self.message)?;
        } else {
            write!(f, "{file}:{line}:{column}: {}", self.message)?;
        }
        if let Some(help) = &self.help {
            write!(f, "; {help}")?;
        }
        if !snippet.is_empty() {
            write!(f, "\n{line:>6} | {snippet}")?;
        }
        Ok(())
    }
}

/// Every fault that was found in one configuration: never empty, in the order of files and lines.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigFaults(pub(super) Vec<ConfigFault>);

/// How many faults are printed: more help nobody.
const PRINTED: usize = 50;

impl ConfigFaults {
    /// The faults.
    pub fn iter(&self) -> std::slice::Iter<'_, ConfigFault> {
        self.0.iter()
    }
}

impl<'a> IntoIterator for &'a ConfigFaults {
    type Item = &'a ConfigFault;
    type IntoIter = std::slice::Iter<'a, ConfigFault>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

impl fmt::Display for ConfigFaults {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, fault) in self.0.iter().take(PRINTED).enumerate() {
            if index > 0 {
                f.write_str("\n")?;
            }
            fault.fmt(f)?;
        }
        if self.0.len() > PRINTED {
            write!(f, "\nand {} more", self.0.len() - PRINTED)?;
        }
        Ok(())
    }
}

impl std::error::Error for ConfigFaults {}
