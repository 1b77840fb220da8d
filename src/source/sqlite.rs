//! SQLite databases as sources.
