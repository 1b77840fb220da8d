//! A statement's tokens, by the rules of SQLite's own tokenizer.
//!
//! Whether a statement may run as a read is decided on these, not on another parser's idea of the language: where two
//! readings of one text differ, the difference is the way in. Whatever SQLite would call an illegal token is refused.

/// What a token is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// A keyword or a bare name.
    Word,
    /// A name in `"…"`, `` `…` `` or `[…]`.
    Name,
    /// A string in `'…'`.
    Text,
    /// A number or a blob literal.
    Literal,
    /// `?`, `?1`, `:a`, `@a`, `$a`.
    Placeholder,
    /// `(`
    Open,
    /// `)`
    Close,
    /// `,`
    Comma,
    /// `;`
    End,
    /// `.`
    Dot,
    /// Any other operator.
    Operator,
}

/// One token.
#[derive(Clone, Copy, Debug)]
pub(super) struct Token<'a> {
    pub(super) kind: Kind,
    /// As it is written.
    pub(super) text: &'a str,
    /// Where it starts in the statement.
    pub(super) start: usize,
    /// How many parentheses are open around it; both parentheses of a pair count as outside.
    pub(super) depth: usize,
}

impl Token<'_> {
    /// Whether it is this keyword, written in capitals here.
    pub(super) fn is(&self, word: &str) -> bool {
        self.kind == Kind::Word && self.text.eq_ignore_ascii_case(word)
    }

    /// Whether it is one of these keywords.
    pub(super) fn is_any(&self, words: &[&str]) -> bool {
        words.iter().any(|word| self.is(word))
    }

    /// Where it ends in the statement.
    pub(super) fn end(&self) -> usize {
        self.start + self.text.len()
    }

    /// What it names or says, without quotes, in ASCII lower case.
    pub(super) fn plain(&self) -> String {
        let inner = |quote: &str| {
            let body = self.text.get(1..self.text.len() - 1).unwrap_or_default();
            body.replace(&quote.repeat(2), quote)
        };
        let text = match (self.kind, self.text.as_bytes().first()) {
            (Kind::Text, _) => inner("'"),
            (Kind::Name, Some(b'[')) => self.text.trim_matches(['[', ']']).to_owned(),
            (Kind::Name, Some(b'`')) => inner("`"),
            (Kind::Name, _) => inner("\""),
            _ => self.text.to_owned(),
        };
        text.to_ascii_lowercase()
    }
}

/// Takes a statement apart.
///
/// # Errors
/// What can't be a token, in words.
pub(super) fn tokens(sql: &str) -> Result<Vec<Token<'_>>, String> {
    let bytes = sql.as_bytes();
    let mut found = Vec::new();
    let mut at = 0;
    let mut depth = 0_usize;
    while at < bytes.len() {
        let (kind, length) = token(bytes, at)?;
        if let Some(kind) = kind {
            if kind == Kind::Close {
                depth = depth.checked_sub(1).ok_or("there is a ')' without its '('")?;
            }
            found.push(Token {
                kind,
                text: &sql[at..at + length],
                start: at,
                depth,
            });
            if kind == Kind::Open {
                depth += 1;
            }
        }
        at += length;
    }
    if depth > 0 {
        return Err("there is a '(' without its ')'".into());
    }
    Ok(found)
}

/// The token at `at` and its length in bytes; no kind for white space and comments.
fn token(bytes: &[u8], at: usize) -> Result<(Option<Kind>, usize), String> {
    let rest = &bytes[at..];
    let next = rest.get(1).copied();
    Ok(match rest[0] {
        b' ' | b'\t' | b'\n' | 0x0c | b'\r' => (None, 1),
        b'-' if next == Some(b'-') => (None, rest.iter().position(|b| *b == b'\n').unwrap_or(rest.len())),
        // A `/*` that ends the text is two operators; a comment that is never closed ends with the text.
        b'/' if next == Some(b'*') && rest.len() > 2 => {
            let close = rest[2..].windows(2).position(|pair| pair == b"*/");
            (None, close.map_or(rest.len(), |close| close + 4))
        }
        quote @ (b'\'' | b'"' | b'`') => {
            let length = quoted(rest, quote).ok_or("there is a quote that is never closed")?;
            (Some(if quote == b'\'' { Kind::Text } else { Kind::Name }), length)
        }
        b'[' => {
            let close = rest
                .iter()
                .position(|b| *b == b']')
                .ok_or("there is a '[' that is never closed")?;
            (Some(Kind::Name), close + 1)
        }
        b'(' => (Some(Kind::Open), 1),
        b')' => (Some(Kind::Close), 1),
        b',' => (Some(Kind::Comma), 1),
        b';' => (Some(Kind::End), 1),
        b'.' if !next.is_some_and(|b| b.is_ascii_digit()) => (Some(Kind::Dot), 1),
        b'.' | b'0'..=b'9' => (Some(Kind::Literal), number(rest)?),
        b'?' => (Some(Kind::Placeholder), 1 + run(&rest[1..], u8::is_ascii_digit)),
        b':' | b'@' | b'$' => match run(&rest[1..], is_name) {
            0 => return Err(format!("there is a lone {:?}", char::from(rest[0]))),
            length => (Some(Kind::Placeholder), 1 + length),
        },
        b'x' | b'X' if next == Some(b'\'') => {
            let length = quoted(&rest[1..], b'\'').ok_or("there is a blob literal that is never closed")?;
            (Some(Kind::Literal), 1 + length)
        }
        0xef if rest.starts_with(&[0xef, 0xbb, 0xbf]) => (None, 3),
        b if is_name(&b) => (Some(Kind::Word), run(rest, is_name)),
        b'|' | b'<' | b'>' | b'=' | b'!' | b'-' | b'+' | b'*' | b'/' | b'%' | b'&' | b'~' => {
            let length = match (rest[0], next, rest.get(2)) {
                (b'-', Some(b'>'), Some(b'>')) => 3,
                (b'-', Some(b'>'), _)
                | (b'|', Some(b'|'), _)
                | (b'<', Some(b'=' | b'>' | b'<'), _)
                | (b'>', Some(b'=' | b'>'), _)
                | (b'=' | b'!', Some(b'='), _) => 2,
                _ => 1,
            };
            (Some(Kind::Operator), length)
        }
        other => {
            return Err(format!(
                "there is a character SQLite doesn't know: {:?}",
                char::from(other)
            ));
        }
    })
}

/// The length of a quoted token, its quotes doubled inside.
fn quoted(rest: &[u8], quote: u8) -> Option<usize> {
    let mut at = 1;
    while at < rest.len() {
        if rest[at] == quote {
            if rest.get(at + 1) != Some(&quote) {
                return Some(at + 1);
            }
            at += 1;
        }
        at += 1;
    }
    None
}

/// The length of a number. Looser than SQLite in its digits, as strict about where it ends.
fn number(rest: &[u8]) -> Result<usize, String> {
    let mut at = 0;
    while let Some(b) = rest.get(at) {
        let exponent_sign = matches!(b, b'+' | b'-')
            && matches!(rest[at - 1], b'e' | b'E')
            && !matches!(rest.get(1), Some(b'x' | b'X'));
        if !(is_name(b) || *b == b'.' || (at > 0 && exponent_sign)) {
            break;
        }
        at += 1;
    }
    let hex = matches!(rest.get(1), Some(b'x' | b'X'));
    let fits = |b: &u8| {
        b.is_ascii_digit() || b"_.eE+-".contains(b) || (hex && (b.is_ascii_hexdigit() || b"xX".contains(b)))
    };
    if !rest[..at].iter().all(fits) {
        return Err("there is a name that starts with a digit".into());
    }
    Ok(at)
}

fn run(rest: &[u8], wanted: impl Fn(&u8) -> bool) -> usize {
    rest.iter().take_while(|b| wanted(b)).count()
}

fn is_name(b: &u8) -> bool {
    b.is_ascii_alphanumeric() || *b == b'_' || *b == b'$' || *b >= 0x80
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(sql: &str) -> Vec<&str> {
        tokens(sql).unwrap().iter().map(|token| token.text).collect()
    }

    #[test]
    fn comments_end_where_sqlite_ends_them() {
        // A carriage return ends no comment, and an open one runs to the end.
        assert_eq!(texts("a -- b\rc\nd"), ["a", "d"]);
        assert_eq!(texts("a /* ; /* */ b /* c"), ["a", "b"]);
        assert_eq!(texts("a /*"), ["a", "/", "*"]);
        assert_eq!(texts("a /*/ b */ c"), ["a", "c"]);
    }

    #[test]
    fn quotes_hide_what_is_in_them() {
        assert_eq!(
            texts("'a''; b' \"c\"\"d\" `e` [f;g]"),
            ["'a''; b'", "\"c\"\"d\"", "`e`", "[f;g]"]
        );
        assert_eq!(texts(r"'\' ; x'0a'"), [r"'\'", ";", "x'0a'"]);
        assert_eq!(tokens("\"Load\"\"x\"").unwrap()[0].plain(), "load\"x");
        for open in [
            "'a",
            "\"a",
            "`a",
            "[a",
            "x'0",
            "(",
            ")",
            "a \u{b} b",
            "a \0 b",
            "#1",
            "1abc",
            ": a",
        ] {
            assert!(tokens(open).is_err(), "{open:?}");
        }
    }

    #[test]
    fn numbers_placeholders_and_operators_are_kept_whole() {
        assert_eq!(
            texts("1.5e-3 0x1F 1_000 .5 a.b"),
            ["1.5e-3", "0x1F", "1_000", ".5", "a", ".", "b"]
        );
        assert_eq!(
            texts("1e5+2 ?12 ? :a1 @b $3"),
            ["1e5", "+", "2", "?12", "?", ":a1", "@b", "$3"]
        );
        assert_eq!(
            texts("a->>'$.b'||c<>d"),
            ["a", "->>", "'$.b'", "||", "c", "<>", "d"]
        );
    }
}
