//! Whether a limited result is a function of the state: hole 16.
//!
//! `LIMIT` without a total order returns some rows, not the rows. What is shown here is only what can be shown cheaply:
//! one table, ordered by (or held fixed in) all columns of one of its keys, or an aggregate of one row. The rest counts as
//! incomplete, which only says less.

use std::collections::HashSet;

use sqlparser::ast::{
    BinaryOperator, Expr, FunctionArguments, GroupByExpr, Ident, ObjectNamePart, OrderByKind, Query, Select,
    SelectItem, SetExpr, Statement, TableFactor, Value,
};
use sqlparser::dialect::SQLiteDialect;
use sqlparser::parser::Parser;

use super::token::{Kind, Token};

/// The parser's trees are dropped recursively, so what would make a deep one isn't given to it.
const MAX_TOKENS: usize = 4_000;

/// What a statement's limits leave open.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Limit {
    /// Nothing: it has none, or they can't matter.
    None,
    /// Nothing if a key of this table lies within these columns, all in lower case.
    Keyed {
        /// The only table.
        table: String,
        /// Ordered by, or equal to one value.
        columns: HashSet<String>,
    },
    /// Which rows it returns.
    Open,
}

/// What the limits of a read leave open.
pub(super) fn of(sql: &str, body: &[Token<'_>]) -> Limit {
    let limits = body.iter().enumerate().filter(|(_, token)| token.is("LIMIT"));
    let mut outer = false;
    for (at, token) in limits {
        if token.depth == 0 {
            outer = true;
        } else if !in_exists(body, at) {
            return Limit::Open;
        }
    }
    if !outer {
        return Limit::None;
    }
    if body.len() > MAX_TOKENS {
        return Limit::Open;
    }
    match Parser::parse_sql(&SQLiteDialect {}, sql).as_deref() {
        Ok([Statement::Query(query)]) => of_query(query).unwrap_or(Limit::Open),
        _ => Limit::Open,
    }
}

/// Whether the token lies right within `EXISTS (…)`, which only asks whether there is a row.
fn in_exists(body: &[Token<'_>], at: usize) -> bool {
    let depth = body[at].depth;
    let open = body[..at]
        .iter()
        .rposition(|token| token.kind == Kind::Open && token.depth + 1 == depth);
    open.and_then(|open| open.checked_sub(1))
        .is_some_and(|before| body[before].is("EXISTS"))
}

fn of_query(query: &Query) -> Option<Limit> {
    let SetExpr::Select(select) = &*query.body else {
        return None;
    };
    let ungrouped = matches!(&select.group_by, GroupByExpr::Expressions(by, _) if by.is_empty());
    if select.distinct.is_some() || select.having.is_some() || !ungrouped {
        return None;
    }
    if !select.projection.is_empty() && select.projection.iter().all(is_aggregate) {
        return Some(Limit::None);
    }
    let [from] = select.from.as_slice() else {
        return None;
    };
    let TableFactor::Table {
        name,
        alias,
        args: None,
        ..
    } = &from.relation
    else {
        return None;
    };
    if !from.joins.is_empty() {
        return None;
    }
    let table = match name.0.as_slice() {
        [ObjectNamePart::Identifier(table)] => lower(table),
        [
            ObjectNamePart::Identifier(schema),
            ObjectNamePart::Identifier(table),
        ] if lower(schema) == "main" => lower(table),
        _ => return None,
    };
    let ctes = query.with.iter().flat_map(|with| &with.cte_tables);
    if ctes.into_iter().any(|cte| lower(&cte.alias.name) == table) {
        return None;
    }
    let prefix = alias
        .as_ref()
        .map_or_else(|| table.clone(), |alias| lower(&alias.name));
    let mut columns = HashSet::new();
    if let Some(order) = &query.order_by
        && let OrderByKind::Expressions(terms) = &order.kind
    {
        let by = terms.iter().filter_map(|term| column(&term.expr, &prefix));
        columns.extend(by.filter(|name| !is_other_output(select, name, &prefix)));
    }
    if let Some(condition) = &select.selection {
        fixed_columns(condition, &prefix, &mut columns);
    }
    Some(Limit::Keyed { table, columns })
}

/// Whether a name in ORDER BY means an output that isn't the column of that name.
fn is_other_output(select: &Select, name: &str, prefix: &str) -> bool {
    select.projection.iter().any(|item| match item {
        SelectItem::ExprWithAlias { expr, alias } => {
            lower(alias) == name && column(expr, prefix).as_deref() != Some(name)
        }
        SelectItem::ExprWithAliases { .. } => true,
        _ => false,
    })
}

/// Columns that the condition holds equal to one value each.
fn fixed_columns(condition: &Expr, prefix: &str, found: &mut HashSet<String>) {
    match condition {
        Expr::Nested(inner) => fixed_columns(inner, prefix, found),
        Expr::BinaryOp {
            left,
            op: BinaryOperator::And,
            right,
        } => {
            fixed_columns(left, prefix, found);
            fixed_columns(right, prefix, found);
        }
        Expr::BinaryOp {
            left,
            op: BinaryOperator::Eq,
            right,
        } => {
            for (side, other) in [(left, right), (right, left)] {
                if let (Some(name), Expr::Value(value)) = (column(side, prefix), &**other)
                    && !matches!(value.value, Value::DoubleQuotedString(_))
                {
                    found.insert(name);
                }
            }
        }
        _ => {}
    }
}

fn column(expr: &Expr, prefix: &str) -> Option<String> {
    match expr {
        Expr::Identifier(name) => Some(lower(name)),
        Expr::CompoundIdentifier(parts) => match parts.as_slice() {
            [table, name] if lower(table) == prefix => Some(lower(name)),
            _ => None,
        },
        _ => None,
    }
}

/// Whether an output is an aggregate over all rows.
fn is_aggregate(item: &SelectItem) -> bool {
    let (SelectItem::UnnamedExpr(expr) | SelectItem::ExprWithAlias { expr, .. }) = item else {
        return false;
    };
    let Expr::Function(call) = expr else { return false };
    let [ObjectNamePart::Identifier(name)] = call.name.0.as_slice() else {
        return false;
    };
    let FunctionArguments::List(list) = &call.args else {
        return false;
    };
    call.over.is_none()
        && match lower(name).as_str() {
            "count" | "sum" | "total" | "avg" | "group_concat" | "string_agg" | "json_group_array"
            | "json_group_object" => true,
            // With several arguments these compare them, row by row.
            "min" | "max" => list.args.len() == 1,
            _ => false,
        }
}

fn lower(name: &Ident) -> String {
    name.value.to_ascii_lowercase()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::sqlite::token::tokens;

    fn limit(sql: &str) -> Limit {
        of(sql, &tokens(sql).unwrap())
    }

    fn keyed(columns: &[&str]) -> Limit {
        Limit::Keyed {
            table: "t".into(),
            columns: columns.iter().map(|name| (*name).to_owned()).collect(),
        }
    }

    #[test]
    fn only_a_total_order_makes_a_limited_answer_whole() {
        for (sql, expected) in [
            ("SELECT 'LIMIT 5' FROM t", Limit::None),
            ("SELECT * FROM t LIMIT 5", keyed(&[])),
            ("SELECT * FROM T ORDER BY Id DESC LIMIT 5", keyed(&["id"])),
            (
                "SELECT * FROM main.t AS x ORDER BY x.a, b LIMIT 5 OFFSET 2",
                keyed(&["a", "b"]),
            ),
            (
                "SELECT * FROM t WHERE a = ?1 AND (b = 'x' OR c = 1) ORDER BY d LIMIT 1",
                keyed(&["a", "d"]),
            ),
            ("SELECT name AS id FROM t ORDER BY id LIMIT 5", keyed(&[])),
            ("SELECT id AS id FROM t ORDER BY id LIMIT 5", keyed(&["id"])),
            ("SELECT * FROM t ORDER BY id COLLATE NOCASE LIMIT 5", keyed(&[])),
            ("SELECT count(*), max(a) FROM t LIMIT 1", Limit::None),
            ("SELECT max(a, b) FROM t LIMIT 1", keyed(&[])),
            ("SELECT a FROM t GROUP BY a ORDER BY a LIMIT 1", Limit::Open),
            ("SELECT DISTINCT a FROM t ORDER BY a LIMIT 1", Limit::Open),
            ("SELECT * FROM t, u ORDER BY t.id LIMIT 1", Limit::Open),
            ("SELECT * FROM t JOIN u ON 1 ORDER BY id LIMIT 1", Limit::Open),
            (
                "WITH t AS (SELECT 1 AS id) SELECT * FROM t ORDER BY id LIMIT 1",
                Limit::Open,
            ),
            (
                "SELECT id FROM t UNION SELECT id FROM u ORDER BY id LIMIT 1",
                Limit::Open,
            ),
            ("SELECT * FROM (SELECT * FROM t LIMIT 3)", Limit::Open),
            ("SELECT (SELECT a FROM u ORDER BY b LIMIT 1) FROM t", Limit::Open),
            (
                "SELECT * FROM t WHERE EXISTS (SELECT 1 FROM u LIMIT 1)",
                Limit::None,
            ),
            (
                "SELECT * FROM t WHERE EXISTS (SELECT (SELECT a FROM u LIMIT 1))",
                Limit::Open,
            ),
        ] {
            assert_eq!(limit(sql), expected, "{sql}");
        }
    }
}
