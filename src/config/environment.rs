//! `${VARIABLE}` in a configuration.
//!
//! | written | variable unset | set but empty |
//! |---|---|---|
//! | `${V}` | a fault | empty |
//! | `${V:default}` | `default` | empty |
//! | `${V:-default}` | `default` | `default` |
//! | `${V:?message}` | a fault with the message | the same |
//! | `$${V}` | the text `${V}` | the same |
//!
//! Substitution happens on scalars after the file was parsed, never on its text: a value can't become structure,
//! whatever is in it, and placeholders in comments are nothing.

/// Where variables come from.
pub type Environment<'a> = dyn Fn(&str) -> Option<String> + 'a;

/// Why a variable has no value.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Unset {
    pub(super) variable: String,
    /// What the author says about it.
    pub(super) message: Option<String>,
}

/// The text with its variables filled in; `None` if there are none in it.
pub(super) fn substitute(text: &str, environment: &Environment<'_>) -> Result<Option<String>, Vec<Unset>> {
    if !text.contains("${") {
        return Ok(None);
    }
    let mut filled = String::with_capacity(text.len());
    let mut unset = Vec::new();
    let mut rest = text;
    while let Some(at) = rest.find("${") {
        if rest[..at].ends_with('$') {
            filled.push_str(&rest[..at]);
            filled.push('{');
            rest = &rest[at + 2..];
            continue;
        }
        filled.push_str(&rest[..at]);
        rest = &rest[at..];
        let Some(placeholder) = Placeholder::at_start_of(rest) else {
            filled.push_str("${");
            rest = &rest[2..];
            continue;
        };
        match placeholder.value(environment) {
            Ok(value) => filled.push_str(&value),
            Err(message) => unset.push(Unset {
                variable: placeholder.name.to_owned(),
                message,
            }),
        }
        rest = &rest[placeholder.length..];
    }
    filled.push_str(rest);
    if unset.is_empty() {
        Ok(Some(filled))
    } else {
        Err(unset)
    }
}

struct Placeholder<'a> {
    name: &'a str,
    rule: Option<&'a str>,
    length: usize,
}

impl<'a> Placeholder<'a> {
    /// `text` starts with `${`. `None` if what follows is no variable: such text is left alone.
    fn at_start_of(text: &'a str) -> Option<Self> {
        let inside = &text[2..text.find('}')?];
        let length = inside.len() + 3;
        let (name, rule) = match inside.split_once(':') {
            Some((name, rule)) => (name, Some(rule)),
            None => (inside, None),
        };
        let is_name = !name.is_empty() && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_');
        is_name.then_some(Self { name, rule, length })
    }

    fn value(&self, environment: &Environment<'_>) -> Result<String, Option<String>> {
        let value = environment(self.name);
        match self.rule {
            None => value.ok_or(None),
            Some(rule) => match (rule.strip_prefix('-'), rule.strip_prefix('?')) {
                (Some(default), _) => Ok(value
                    .filter(|v| !v.is_empty())
                    .unwrap_or_else(|| default.to_owned())),
                (_, Some(message)) => value
                    .filter(|v| !v.is_empty())
                    .ok_or_else(|| Some(message.to_owned())),
                _ => Ok(value.unwrap_or_else(|| rule.to_owned())),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filled(text: &str) -> Result<Option<String>, Vec<Unset>> {
        substitute(text, &|name| match name {
            "SET" => Some("value".to_owned()),
            "EMPTY" => Some(String::new()),
            "NESTED" => Some("${SET}".to_owned()),
            _ => None,
        })
    }

    #[test]
    fn every_form_has_its_value() {
        for (text, expected) in [
            ("a ${SET} b ${SET}", "a value b value"),
            ("${EMPTY}|", "|"),
            ("${NONE:default}", "default"),
            ("${NONE:}|", "|"),
            ("${EMPTY:default}|", "|"),
            ("${NONE:-default}", "default"),
            ("${EMPTY:-default}", "default"),
            ("${SET:-default}", "value"),
            ("${SET:?must be set}", "value"),
            ("$${SET} ${SET}", "${SET} value"),
            ("${not a name} ${SET}", "${not a name} value"),
            ("${SET", "${SET"),
            ("${}", "${}"),
            // What is filled in is not looked at again.
            ("${NESTED}", "${SET}"),
        ] {
            assert_eq!(filled(text).unwrap().unwrap(), expected, "{text}");
        }
        assert_eq!(filled("$1 and {x}").unwrap(), None);
    }

    #[test]
    fn unset_variables_are_told_all_at_once() {
        let unset = filled("${A} ${SET} ${B:?say which} ${EMPTY:?no}").unwrap_err();
        let told: Vec<_> = unset
            .iter()
            .map(|u| (u.variable.as_str(), u.message.as_deref()))
            .collect();
        assert_eq!(
            told,
            [("A", None), ("B", Some("say which")), ("EMPTY", Some("no"))]
        );
    }
}
