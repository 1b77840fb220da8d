//! What can be wrong with a source, a statement or its parameters before anything runs.

use crate::reading::{CallError, ErrorCode};

/// Why a SQLite source or one of its tools can't be made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SqliteError {
    /// The path can't name a database that Coeval would vouch for.
    #[error("database {path:?} can't be used: {why}")]
    Path {
        /// As it was given.
        path: String,
        /// What to do about it.
        why: &'static str,
    },
    /// The statement is none that a tool may run.
    #[error("statement refused: {why}")]
    Refused {
        /// What is refused, and what to write instead.
        why: String,
    },
    /// Placeholders and parameters don't fit together.
    #[error("parameters don't fit the statement: {why}")]
    Parameters {
        /// Which, and how to mend it.
        why: String,
    },
    /// The engine said no when the statement was described.
    #[error("the database refused the statement: {message}")]
    Statement {
        /// The engine's own words.
        message: String,
    },
    /// The database can't be opened or read now.
    #[error("{0}")]
    Unavailable(
        /// Why, as a call would be told.
        CallError,
    ),
}

impl SqliteError {
    pub(super) fn refused(why: impl Into<String>) -> Self {
        Self::Refused { why: why.into() }
    }

    pub(super) fn parameters(why: impl Into<String>) -> Self {
        Self::Parameters { why: why.into() }
    }
}

impl From<SqliteError> for CallError {
    fn from(error: SqliteError) -> Self {
        let code = match error {
            SqliteError::Unavailable(error) => return error,
            SqliteError::Refused { .. } => ErrorCode::NotReadOnly,
            SqliteError::Parameters { .. } => ErrorCode::InvalidArguments,
            SqliteError::Path { .. } => ErrorCode::ViewUnavailable,
            SqliteError::Statement { .. } => ErrorCode::StatementFailed,
        };
        Self::new(code, error.to_string())
    }
}

/// What went wrong on a connection, by what must be done about it.
#[derive(Debug)]
pub(super) enum Fault {
    /// Somebody else holds the lock.
    Busy(String),
    /// The progress handler stopped the statement.
    Stopped,
    /// The engine refused the statement; the connection is fine.
    Statement(String),
    /// The database can't be read, or the connection has died.
    Lost(String),
}

impl Fault {
    /// The engine's result code, without its extension, and its message.
    pub(super) fn from_sqlx(error: sqlx::Error) -> Self {
        let sqlx::Error::Database(error) = error else {
            return match error {
                sqlx::Error::WorkerCrashed => Self::Lost("the connection's thread has ended".into()),
                other => Self::Lost(other.to_string()),
            };
        };
        let message = error.message().to_owned();
        let code: i32 = error.code().and_then(|code| code.parse().ok()).unwrap_or(1);
        match code & 0xff {
            // BUSY, LOCKED, PROTOCOL: a lock that may be free later.
            5 | 6 | 15 => Self::Busy(message),
            9 => Self::Stopped,
            // NOMEM, IOERR, CORRUPT, FULL, CANTOPEN, NOTADB: the engine may have ended the transaction.
            7 | 10 | 11 | 13 | 14 | 26 => Self::Lost(message),
            _ => Self::Statement(message),
        }
    }

    /// As the call of a tool is told.
    pub(super) fn into_call(self, tool: &str) -> CallError {
        match self {
            Self::Busy(message) => {
                let text = format!("Could not complete {tool}: the database is busy ({message}). Ask again.");
                CallError::new(ErrorCode::SourceBusy, text)
            }
            Self::Stopped => {
                CallError::new(ErrorCode::Cancelled, format!("{tool} was stopped while it ran."))
            }
            Self::Statement(message) => CallError::new(
                ErrorCode::StatementFailed,
                format!("Could not complete {tool}: {message}."),
            ),
            Self::Lost(message) => {
                let text =
                    format!("Could not complete {tool}: the view of the database was lost ({message}).");
                CallError::new(ErrorCode::ViewLost, text)
            }
        }
    }
}
