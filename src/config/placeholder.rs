//! Which parameters a statement binds. SQLite: `?` in turn, `?2` and `$2` by number.

/// The placeholders of a statement.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Placeholders {
    /// So many `?`, each the next parameter.
    InTurn(usize),
    /// The numbers that occur, ascending.
    Numbered(Vec<usize>),
}

/// Finds the placeholders of a statement, outside texts, names and comments.
///
/// # Errors
/// What is wrong with them, in words.
pub(super) fn placeholders(statement: &str) -> Result<Placeholders, String> {
    let bytes = statement.as_bytes();
    let (mut in_turn, mut numbers) = (0, std::collections::BTreeSet::new());
    let mut at = 0;
    while let Some(&byte) = bytes.get(at) {
        at = match (byte, bytes.get(at + 1)) {
            (b'\'' | b'"' | b'`', _) => after(statement, at + 1, char::from(byte)),
            (b'[', _) => after(statement, at + 1, ']'),
            (b'-', Some(b'-')) => after(statement, at + 2, '\n'),
            (b'/', Some(b'*')) => statement[at + 2..]
                .find("*/")
                .map_or(bytes.len(), |end| at + 2 + end + 2),
            (b'?', Some(b'0'..=b'9')) | (b'$', Some(b'0'..=b'9')) => {
                let end = at + 1 + word(&bytes[at + 1..]);
                let text = &statement[at + 1..end];
                match text.parse() {
                    Ok(number @ 1..=32_766) => numbers.insert(number),
                    _ => return Err(format!("{}{text} is no placeholder", char::from(byte))),
                };
                end
            }
            (b'?', _) => {
                in_turn += 1;
                at + 1
            }
            (b':' | b'@' | b'$', Some(next)) if next.is_ascii_alphabetic() || *next == b'_' => {
                let end = at + 1 + word(&bytes[at + 1..]);
                return Err(format!(
                    "the placeholder {} is named; they are numbered",
                    &statement[at..end]
                ));
            }
            // A digit or letter before `$` or `?` makes it part of a word.
            (b, _) if b.is_ascii_alphanumeric() || b == b'_' => at + word(&bytes[at..]),
            _ => at + 1,
        };
    }
    match (in_turn, numbers.is_empty()) {
        (0, _) => Ok(Placeholders::Numbered(numbers.into_iter().collect())),
        (count, true) => Ok(Placeholders::InTurn(count)),
        (_, false) => Err("it mixes `?` with numbered placeholders".to_owned()),
    }
}

fn word(bytes: &[u8]) -> usize {
    bytes
        .iter()
        .take_while(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'$'))
        .count()
}

/// The index after the next `end`. A doubled quote opens the next text, which is the same in the end.
fn after(statement: &str, from: usize, end: char) -> usize {
    statement[from..]
        .find(end)
        .map_or(statement.len(), |at| from + at + end.len_utf8())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn placeholders_count_only_where_they_bind() {
        use Placeholders::{InTurn, Numbered};
        for (statement, expected) in [
            ("SELECT 1", Numbered(vec![])),
            ("SELECT * FROM t WHERE a = ? AND b = ?", InTurn(2)),
            (
                "UPDATE t SET a = $2, b = ?3 WHERE c = $1 OR c = $1",
                Numbered(vec![1, 2, 3]),
            ),
            ("SELECT '?', \"$1\", `?2`, [?] -- ?\n, /* ? */ ?", InTurn(1)),
            (
                "SELECT 'it''s ?', a$1, json_extract(x, '$.a') || 'ü?'",
                Numbered(vec![]),
            ),
            ("SELECT 'open ?", Numbered(vec![])),
        ] {
            assert_eq!(placeholders(statement), Ok(expected), "{statement}");
        }
        for statement in [
            "SELECT :a",
            "SELECT @a",
            "SELECT $a",
            "SELECT ?, $1",
            "SELECT $0",
            "SELECT ?99999",
        ] {
            assert!(placeholders(statement).is_err(), "{statement}");
        }
    }
}
