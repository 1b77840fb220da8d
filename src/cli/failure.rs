//! Why a command could not run.

use std::error::Error;
use std::fmt;

use coeval::config::ConfigFaults;

/// What, where, why, and how to mend it.
#[derive(Debug)]
pub(super) struct Failure {
    what: String,
    causes: Vec<String>,
    help: Option<String>,
}

impl Failure {
    /// What could not be done, with its name.
    pub(super) fn new(what: impl Into<String>) -> Self {
        Self {
            what: what.into(),
            causes: Vec::new(),
            help: None,
        }
    }

    /// A configuration with these faults.
    pub(super) fn unusable(faults: &ConfigFaults) -> Self {
        Self::new("the configuration can't be used").because(faults)
    }

    /// Because of this error and all its causes.
    pub(super) fn because(mut self, error: &dyn Error) -> Self {
        let mut next = Some(error);
        while let Some(error) = next {
            let text = error.to_string();
            // Many errors repeat their cause in their own text.
            if self.causes.last().is_none_or(|last| !last.contains(&text)) {
                self.causes.push(text);
            }
            next = error.source();
        }
        self
    }

    /// How to mend it.
    pub(super) fn help(mut self, help: impl Into<String>) -> Self {
        self.help = Some(help.into());
        self
    }

    pub(super) fn mending(&self) -> Option<&str> {
        self.help.as_deref()
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.what)?;
        for cause in &self.causes {
            // Causes of several lines (the faults of a configuration) stand on their own.
            f.write_str(if cause.contains('\n') { ":\n" } else { ": " })?;
            f.write_str(cause)?;
        }
        Ok(())
    }
}
