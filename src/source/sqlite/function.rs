//! What a read may call: a closed list, because a function of the same engine can load code or write files.
//!
//! Neither `SQLITE_OPEN_READONLY` nor `query_only` stops a function. A name that isn't here is refused, so that a
//! function a later engine brings is refused until somebody has looked at it.

/// Functions whose result rests on their arguments and the database alone.
const STEADY: &[&str] = &[
    "->",
    "->>",
    "abs",
    "acos",
    "acosh",
    "asin",
    "asinh",
    "atan",
    "atan2",
    "atanh",
    "avg",
    "bm25",
    "ceil",
    "ceiling",
    "char",
    "coalesce",
    "concat",
    "concat_ws",
    "cos",
    "cosh",
    "count",
    "cume_dist",
    "degrees",
    "dense_rank",
    "exp",
    "first_value",
    "floor",
    "format",
    "geopoly_area",
    "geopoly_bbox",
    "geopoly_blob",
    "geopoly_ccw",
    "geopoly_contains_point",
    "geopoly_json",
    "geopoly_overlap",
    "geopoly_regular",
    "geopoly_svg",
    "geopoly_within",
    "geopoly_xform",
    "glob",
    "group_concat",
    "hex",
    "highlight",
    "if",
    "ifnull",
    "iif",
    "instr",
    "json",
    "json_array",
    "json_array_insert",
    "json_array_length",
    "json_error_position",
    "json_extract",
    "json_group_array",
    "json_group_object",
    "json_insert",
    "json_object",
    "json_patch",
    "json_pretty",
    "json_quote",
    "json_remove",
    "json_replace",
    "json_set",
    "json_type",
    "json_valid",
    "jsonb",
    "jsonb_array",
    "jsonb_array_insert",
    "jsonb_extract",
    "jsonb_group_array",
    "jsonb_group_object",
    "jsonb_insert",
    "jsonb_object",
    "jsonb_patch",
    "jsonb_remove",
    "jsonb_replace",
    "jsonb_set",
    "lag",
    "last_value",
    "lead",
    "length",
    "like",
    "likelihood",
    "likely",
    "ln",
    "log",
    "log10",
    "log2",
    "lower",
    "ltrim",
    "matchinfo",
    "max",
    "median",
    "min",
    "mod",
    "nth_value",
    "ntile",
    "nullif",
    "octet_length",
    "offsets",
    "percent_rank",
    "percentile",
    "percentile_cont",
    "percentile_disc",
    "pi",
    "pow",
    "power",
    "printf",
    "quote",
    "radians",
    "rank",
    "replace",
    "round",
    "row_number",
    "rtrim",
    "sign",
    "sin",
    "sinh",
    "snippet",
    "soundex",
    "sqlite_compileoption_get",
    "sqlite_compileoption_used",
    "sqlite_source_id",
    "sqlite_version",
    "sqrt",
    "string_agg",
    "subtype",
    "substr",
    "substring",
    "sum",
    "tan",
    "tanh",
    "total",
    "trim",
    "trunc",
    "typeof",
    "unhex",
    "unicode",
    "unistr",
    "unistr_quote",
    "unlikely",
    "upper",
    "zeroblob",
];

/// Functions of the clock, each with the place of its first time value. Without one they take the current time.
const CLOCKS: &[(&str, usize)] = &[
    ("date", 0),
    ("datetime", 0),
    ("julianday", 0),
    ("strftime", 1),
    ("time", 0),
    ("timediff", 0),
    ("unixepoch", 0),
];

/// Functions that only read, but whose result is no function of the database's state.
const RESTLESS: &[&str] = &[
    "changes",
    "last_insert_rowid",
    "random",
    "randomblob",
    "total_changes",
];

/// Table-valued functions that are no functions of `PRAGMA`.
const TABLES: &[&str] = &["json_each", "json_tree", "jsonb_each", "jsonb_tree"];

/// Functions of `PRAGMA` that say something about the schema.
const PRAGMAS: &[&str] = &[
    "pragma_collation_list",
    "pragma_compile_options",
    "pragma_database_list",
    "pragma_encoding",
    "pragma_foreign_key_list",
    "pragma_function_list",
    "pragma_index_info",
    "pragma_index_list",
    "pragma_index_xinfo",
    "pragma_module_list",
    "pragma_page_count",
    "pragma_page_size",
    "pragma_pragma_list",
    "pragma_schema_version",
    "pragma_table_info",
    "pragma_table_list",
    "pragma_table_xinfo",
    "pragma_user_version",
];

/// Functions no statement may call, a write neither: they reach beyond the database.
const REACHING: &[&str] = &[
    "edit",
    "fts3_tokenizer",
    "load_extension",
    "readfile",
    "writefile",
];

/// What a function's result rests on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Function {
    /// Its arguments and the database.
    Steady,
    /// The clock, if its time value, counted from 0, is `'now'` or missing.
    Clock(usize),
    /// Chance, or the connection's own past.
    Restless,
}

impl Function {
    /// The function of this name in lower case, if a read may call it.
    pub(super) fn named(name: &str) -> Option<Self> {
        if STEADY.contains(&name) || TABLES.contains(&name) || PRAGMAS.contains(&name) {
            return Some(Self::Steady);
        }
        if RESTLESS.contains(&name) {
            return Some(Self::Restless);
        }
        CLOCKS
            .iter()
            .find(|(clock, _)| *clock == name)
            .map(|(_, place)| Self::Clock(*place))
    }

    /// Whether nothing may call it.
    pub(super) fn reaches_out(name: &str) -> bool {
        REACHING.contains(&name)
    }

    /// Whether it is a table of `PRAGMA` that isn't on the list. Such a table is called by its bare name, too.
    pub(super) fn is_unlisted_pragma(name: &str) -> bool {
        name.starts_with("pragma_") && !PRAGMAS.contains(&name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sqlx::{Connection as _, Row as _};

    /// What the engine has and no read may call: it loads code, or is a command of a full-text or spatial index.
    const REFUSED: &[&str] = &[
        "current_date",
        "current_time",
        "current_timestamp",
        "fts3_tokenizer",
        "fts5",
        "fts5_get_locale",
        "fts5_insttoken",
        "fts5_locale",
        "fts5_source_id",
        "load_extension",
        "match",
        "optimize",
        "rtreecheck",
        "rtreedepth",
        "rtreenode",
        "sqlite_log",
    ];

    #[tokio::test]
    async fn every_function_of_the_engine_was_looked_at() {
        let mut engine = sqlx::SqliteConnection::connect("sqlite::memory:").await.unwrap();
        let rows = sqlx::query("SELECT DISTINCT name FROM pragma_function_list")
            .fetch_all(&mut engine)
            .await
            .unwrap();
        let names: Vec<String> = rows.iter().map(|row| row.get(0)).collect();
        assert!(names.len() > 100, "{}", names.len());
        let unknown: Vec<&String> = names
            .iter()
            .filter(|name| Function::named(name).is_none() && !REFUSED.contains(&name.as_str()))
            .collect();
        assert_eq!(unknown, Vec::<&String>::new());
        assert!(!REFUSED.iter().any(|name| Function::named(name).is_some()));
    }
}
