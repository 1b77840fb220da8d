//! The grammar of placeholders.
//!
//! ```text
//! placeholder = "{{" ws head step* ws "}}"
//! head        = bare | quoted
//! step        = "." ( bare | quoted ) | "[" ( digits | quoted ) "]"
//! bare        = one or more characters, none of them white space or . [ ] { } "
//! quoted      = a JSON string
//! ```
//!
//! Reading is linear: a bare word ends at the next brace, and a quoted one at the next quote, so no character is read
//! more than a few times, whatever the text.

use std::borrow::Cow;

/// A part of a string.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Piece<'a> {
    /// Text that stands for itself.
    Text(&'a str),
    /// `{{{{`, which stands for `{{`.
    Braces,
    /// A placeholder.
    Placeholder(Placeholder<'a>),
}

/// `{{head.path}}`.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Placeholder<'a> {
    /// As it is written, braces included.
    pub(crate) text: &'a str,
    /// Whose value.
    pub(crate) head: Cow<'a, str>,
    /// What of it.
    pub(crate) steps: Vec<Step<'a>>,
}

/// One step of a path.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Step<'a> {
    /// `.name`, `."name"`, `["name"]`; also `.0`.
    Name(Cow<'a, str>),
    /// `[0]`.
    Index(usize),
}

/// Whether there is a `{{` at all. Cheap, and nearly always no.
pub(crate) fn has_braces(text: &str) -> bool {
    let mut rest = text.as_bytes();
    while let Some(at) = rest.iter().position(|&byte| byte == b'{') {
        rest = &rest[at + 1..];
        if rest.first() == Some(&b'{') {
            return true;
        }
    }
    false
}

/// Takes a string apart.
pub(crate) fn pieces(text: &str) -> Pieces<'_> {
    Pieces {
        text,
        at: 0,
        next: None,
    }
}

#[derive(Clone, Debug)]
pub(crate) struct Pieces<'a> {
    text: &'a str,
    at: usize,
    /// A piece that was found behind text that had to be returned first.
    next: Option<Piece<'a>>,
}

impl<'a> Iterator for Pieces<'a> {
    type Item = Piece<'a>;

    fn next(&mut self) -> Option<Piece<'a>> {
        if let Some(piece) = self.next.take() {
            return Some(piece);
        }
        let start = self.at;
        let mut from = start;
        while let Some(found) = self.text[from..].find("{{") {
            let at = from + found;
            let piece = if self.text[at..].starts_with("{{{{") {
                Some((Piece::Braces, 4))
            } else {
                placeholder(&self.text[at..]).map(|placeholder| {
                    let length = placeholder.text.len();
                    (Piece::Placeholder(placeholder), length)
                })
            };
            if let Some((piece, length)) = piece {
                self.at = at + length;
                if at == start {
                    return Some(piece);
                }
                self.next = Some(piece);
                return Some(Piece::Text(&self.text[start..at]));
            }
            // One brace on: in `{{{a}}` the placeholder begins at the second.
            from = at + 1;
        }
        self.at = self.text.len();
        (start < self.text.len()).then(|| Piece::Text(&self.text[start..]))
    }
}

/// Reads a placeholder at the very beginning of `text`.
fn placeholder(text: &str) -> Option<Placeholder<'_>> {
    let mut cursor = Cursor(text.strip_prefix("{{")?);
    cursor.skip_space();
    let head = cursor.name()?;
    let mut steps = Vec::new();
    loop {
        if cursor.eat(".") {
            steps.push(Step::Name(cursor.name()?));
        } else if cursor.eat("[") {
            steps.push(if cursor.0.starts_with('"') {
                Step::Name(cursor.quoted()?)
            } else {
                let digits = cursor.take_while(|c| c.is_ascii_digit());
                Step::Index(digits.parse().ok()?)
            });
            if !cursor.eat("]") {
                return None;
            }
        } else {
            break;
        }
    }
    cursor.skip_space();
    let closed = cursor.eat("}}");
    closed.then(|| Placeholder {
        text: &text[..text.len() - cursor.0.len()],
        head,
        steps,
    })
}

struct Cursor<'a>(&'a str);

impl<'a> Cursor<'a> {
    fn eat(&mut self, what: &str) -> bool {
        let rest = self.0.strip_prefix(what);
        self.0 = rest.unwrap_or(self.0);
        rest.is_some()
    }

    fn skip_space(&mut self) {
        self.0 = self.0.trim_start();
    }

    fn take_while(&mut self, holds: impl Fn(char) -> bool) -> &'a str {
        let end = self.0.find(|c| !holds(c)).unwrap_or(self.0.len());
        let (taken, rest) = self.0.split_at(end);
        self.0 = rest;
        taken
    }

    fn name(&mut self) -> Option<Cow<'a, str>> {
        if self.0.starts_with('"') {
            return self.quoted();
        }
        let bare = self.take_while(|c| !c.is_whitespace() && !".[]{}\"".contains(c));
        (!bare.is_empty()).then_some(Cow::Borrowed(bare))
    }

    fn quoted(&mut self) -> Option<Cow<'a, str>> {
        let bytes = self.0.as_bytes();
        let mut end = 1;
        while *bytes.get(end)? != b'"' {
            end += if bytes[end] == b'\\' { 2 } else { 1 };
        }
        // A quote is one byte, so the cut lies between characters.
        let (literal, rest) = self.0.split_at(end + 1);
        let name = serde_json::from_str::<String>(literal).ok()?;
        self.0 = rest;
        Some(Cow::Owned(name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Vec<String> {
        let shown = |piece| match piece {
            Piece::Text(text) => format!("t:{text}"),
            Piece::Braces => "{{".to_owned(),
            Piece::Placeholder(Placeholder { head, steps, .. }) => {
                let steps: Vec<_> = steps
                    .iter()
                    .map(|step| match step {
                        Step::Name(name) => format!(".{name}"),
                        Step::Index(index) => format!("[{index}]"),
                    })
                    .collect();
                format!("p:{head}{}", steps.concat())
            }
        };
        pieces(text).map(shown).collect()
    }

    #[test]
    fn placeholders_and_escapes_are_told_from_text() {
        assert_eq!(read("{{c1}}"), ["p:c1"]);
        assert_eq!(read("{{ c1.rows[0].id }}"), ["p:c1.rows[0].id"]);
        assert_eq!(read("a {{c1.x}}{{c2.0}} b"), ["t:a ", "p:c1.x", "p:c2.0", "t: b"]);
        assert_eq!(
            read(r#"{{"crm.get"."total sum"["a\"]}}"]}}"#),
            [r#"p:crm.get.total sum.a"]}}"#]
        );
        assert_eq!(read("{{{{c1}}"), ["{{", "t:c1}}"]);
        assert_eq!(read("{{{{{{c1}}"), ["{{", "p:c1"]);
        assert_eq!(read("{\"a\":{{c1}}}"), ["t:{\"a\":", "p:c1", "t:}"]);
        assert_eq!(read("{{{c1}}"), ["t:{", "p:c1"]);
        assert_eq!(read("größe {{größe.ä}}"), ["t:größe ", "p:größe.ä"]);
    }

    /// B55: `$15` and everything malformed is text.
    #[test]
    fn malformed_placeholders_are_text() {
        for text in [
            "$15",
            "{{}}",
            "{{ }}",
            "{{a b}}",
            "{{a|upper}} {{ x y }}",
            "{{a.}}",
            "{{a[}}",
            "{{a[]}}",
            "{{a[-1]}}",
            "{{a[99999999999999999999999]}}",
            "{{a",
            "{{\"a}}",
            "{{\"\\",
            "{{\"\\ä",
            "{{a}",
            "}}{{",
            "{ {a}}",
            "{{a]}}",
        ] {
            let read = read(text);
            let placeholders = read.iter().filter(|piece| piece.starts_with("p:")).count();
            // `a|upper` is a bare word: the one of these that is a placeholder, of a head that nobody has.
            assert_eq!(placeholders, usize::from(text.contains('|')), "{text}: {read:?}");
        }
    }

    #[test]
    fn has_braces_agrees_with_the_pieces() {
        for text in ["", "{", "}}", "a{b{c", "{ {"] {
            assert!(!has_braces(text), "{text}");
        }
        for text in ["{{", "a{{", "{a{{b", "ä{{{"] {
            assert!(has_braces(text), "{text}");
        }
    }
}
