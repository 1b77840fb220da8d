//! Where a value may rightly come from: whether it appears, as whole tokens, in a text.
//!
//! A token is a run of letters, digits and `_`, where `-`, `.`, `,` and `@` belong to it between two of them: `ORD-123`,
//! `1.5` and `ann@example.com` are one token each, so that 123 does not appear in `ORD-123`, nor 5 in `1.5`. Upper and
//! lower case are the same. A value of several tokens appears where they stand in a row.
//!
//! All values are looked for in one reading of the texts, which may be long: the cost is theirs plus the values', not
//! the product.

use foldhash::fast::RandomState;
use foldhash::{HashSet, HashSetExt};
use serde_json::Value;
use std::hash::BuildHasher;

/// Tokens of a value that are compared; what begins with so many equal ones is the same.
const LONGEST: usize = 16;

/// What is looked for: the hash of a value's tokens, and how many they are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Needle {
    hash: u64,
    tokens: usize,
}

/// Values that are looked for, and which of them were found.
#[derive(Debug)]
pub(crate) struct Search {
    hasher: RandomState,
    wanted: HashSet<Needle>,
    found: HashSet<Needle>,
    /// Whether there is a needle of so many tokens, one more than the place.
    lengths: [bool; LONGEST],
    /// A token in lower case; kept for its room.
    lower: String,
    /// A number's text; kept for its room.
    digits: String,
}

impl Search {
    pub(crate) fn new() -> Self {
        Self {
            hasher: RandomState::default(),
            wanted: HashSet::new(),
            found: HashSet::new(),
            lengths: [false; LONGEST],
            lower: String::new(),
            digits: String::new(),
        }
    }

    /// Adds a value. `None` if it has no token, so that there is nothing to look for.
    pub(crate) fn add(&mut self, value: &str) -> Option<Needle> {
        let mut hash = 0;
        let mut count = 0;
        for token in tokens(value).take(LONGEST) {
            hash = combine(hash, self.hash(token));
            count += 1;
        }
        if count == 0 {
            return None;
        }
        let needle = Needle { hash, tokens: count };
        self.lengths[count - 1] = true;
        self.wanted.insert(needle);
        Some(needle)
    }

    pub(crate) fn is_found(&self, needle: Needle) -> bool {
        self.found.contains(&needle)
    }

    /// Whether everything was found.
    pub(crate) fn is_done(&self) -> bool {
        self.found.len() == self.wanted.len()
    }

    /// Looks through a text.
    pub(crate) fn read(&mut self, text: &str) {
        // The last tokens, the newest at `seen % LONGEST`.
        let mut last = [0_u64; LONGEST];
        for (seen, token) in tokens(text).enumerate() {
            last[seen % LONGEST] = self.hash(token);
            for length in 1..=LONGEST.min(seen + 1) {
                if self.lengths[length - 1] {
                    let hash =
                        (seen + 1 - length..=seen).fold(0, |hash, at| combine(hash, last[at % LONGEST]));
                    let needle = Needle { hash, tokens: length };
                    if self.wanted.contains(&needle) {
                        self.found.insert(needle);
                    }
                }
            }
        }
    }

    /// Looks through a value's texts and numbers, at any depth. Names are not values.
    pub(crate) fn read_value(&mut self, value: &Value) {
        let mut rest = vec![value];
        while let Some(value) = rest.pop() {
            match value {
                Value::String(text) => self.read(text),
                Value::Number(_) => {
                    let mut digits = std::mem::take(&mut self.digits);
                    digits.clear();
                    digits.extend(super::token_text(value).as_deref());
                    self.read(&digits);
                    self.digits = digits;
                }
                Value::Array(items) => rest.extend(items),
                Value::Object(map) => rest.extend(map.values()),
                Value::Null | Value::Bool(_) => {}
            }
        }
    }

    fn hash(&mut self, token: &str) -> u64 {
        self.lower.clear();
        if token.is_ascii() {
            self.lower.push_str(token);
            self.lower.make_ascii_lowercase();
        } else {
            self.lower.extend(token.chars().flat_map(char::to_lowercase));
        }
        self.hasher.hash_one(self.lower.as_str())
    }
}

/// Takes up one more token.
fn combine(hash: u64, token: u64) -> u64 {
    (hash.rotate_left(23) ^ token).wrapping_mul(0x9E37_79B9_7F4A_7C15)
}

fn tokens(text: &str) -> impl Iterator<Item = &str> {
    let mut rest = text;
    std::iter::from_fn(move || {
        rest = rest.trim_start_matches(|c| !is_word(c));
        let mut end = 0;
        let mut chars = rest.char_indices().peekable();
        while let Some((at, c)) = chars.next() {
            let joins = "-.,@".contains(c) && chars.peek().is_some_and(|&(_, next)| is_word(next));
            if !is_word(c) && !joins {
                break;
            }
            end = at + c.len_utf8();
        }
        let (token, after) = rest.split_at(end);
        rest = after;
        (!token.is_empty()).then_some(token)
    })
}

fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn appears(value: &str, text: &str) -> bool {
        let mut search = Search::new();
        let needle = search.add(value).expect("the value has a token");
        search.read(text);
        search.is_found(needle)
    }

    #[test]
    fn values_appear_as_whole_tokens_only() {
        for (value, text) in [
            ("henderson", "Is Henderson's discount being applied?"),
            ("17", "status of order 17."),
            ("ORD-123", "where is ord-123, please"),
            ("Henderson Ltd.", "orders of Henderson Ltd"),
            ("ann@example.com", "mail <ann@example.com>"),
            ("42", "https://x.example/orders/42"),
            ("ÄRGER", "viel ärger"),
        ] {
            assert!(appears(value, text), "{value} in {text}");
        }
        for (value, text) in [
            ("123", "where is ORD-123"),
            ("17", "order 170"),
            ("5", "a factor of 1.5"),
            ("1", "1,234 orders"),
            ("hender", "henderson"),
            ("Henderson Ltd", "Henderson and Ltd"),
            ("a b", "b a"),
        ] {
            assert!(!appears(value, text), "{value} in {text}");
        }
    }

    #[test]
    fn long_values_and_long_texts_are_compared_by_their_first_tokens() {
        let long = "word ".repeat(40);
        assert!(appears(&long, &format!("some {long}")));
        assert!(!appears(&long, &"word ".repeat(15)));
        assert_eq!(Search::new().add("--- !"), None);
    }

    #[test]
    fn earlier_values_are_searched_at_any_depth_without_their_names() {
        let mut search = Search::new();
        let (seven, big, name) = (
            search.add("7").unwrap(),
            search.add("9007199254740993").unwrap(),
            search.add("id").unwrap(),
        );
        search.read_value(&json!({"rows": [{"id": 7.0}, {"id": "9007199254740993"}]}));
        assert!(search.is_found(seven) && search.is_found(big) && !search.is_found(name));
        assert!(!search.is_done());
    }
}
