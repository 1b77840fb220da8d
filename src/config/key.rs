//! Key templates: `account:{account_id}` names, for each call, the resource the call reads or writes.
//!
//! A template is filled with the call's arguments as the tool will see them, so `5` and `"5"` of a number parameter name
//! the same resource, and a missing argument its default. A call whose key can't be rendered has no known key, hence
//! runs alone. `{{` and `}}` stand for single braces.

use std::fmt::{self, Write as _};
use std::sync::Arc;

use serde_json::Value;

use super::parameter::Parameter;
use crate::BoxError;
use crate::tool::{ArgumentMap, Keys, PerCall};

/// A template of a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyTemplate(Vec<Part>);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Part {
    Text(String),
    Parameter(Arc<str>),
}

impl KeyTemplate {
    /// Reads a template.
    ///
    /// # Errors
    /// What is wrong with it, in words.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let mut parts = Vec::new();
        let mut plain = String::new();
        let mut rest = text;
        while let Some(at) = rest.find(['{', '}']) {
            plain.push_str(&rest[..at]);
            let brace = &rest[at..=at];
            rest = &rest[at + 1..];
            if let Some(after) = rest.strip_prefix(brace) {
                plain.push_str(brace);
                rest = after;
                continue;
            }
            let Some((name, after)) = rest.split_once('}').filter(|_| brace == "{") else {
                return Err(format!("a single {brace:?} in {text:?}"));
            };
            if name.is_empty() || name.contains('{') {
                return Err(format!("{{{name}}} in {text:?} names no parameter"));
            }
            if !plain.is_empty() {
                parts.push(Part::Text(std::mem::take(&mut plain)));
            }
            parts.push(Part::Parameter(name.into()));
            rest = after;
        }
        plain.push_str(rest);
        if !plain.is_empty() {
            parts.push(Part::Text(plain));
        }
        Ok(Self(parts))
    }

    /// The parameters it needs.
    pub(super) fn parameters(&self) -> impl Iterator<Item = &Arc<str>> {
        self.0.iter().filter_map(|part| match part {
            Part::Parameter(name) => Some(name),
            Part::Text(_) => None,
        })
    }

    /// The key of a call.
    ///
    /// # Errors
    /// If an argument it needs is missing, doesn't fit, or is no single value.
    pub(super) fn render(
        &self,
        parameters: &[Parameter],
        arguments: &ArgumentMap,
    ) -> Result<Arc<str>, BoxError> {
        let mut key = String::new();
        for part in &self.0 {
            let name = match part {
                Part::Text(text) => {
                    key.push_str(text);
                    continue;
                }
                Part::Parameter(name) => name,
            };
            let parameter = parameters
                .iter()
                .find(|p| p.name == *name)
                .ok_or("its key names no parameter")?;
            match parameter.value(arguments.get(&**name)) {
                Ok(Some(Value::String(text))) => key.push_str(&text),
                Ok(Some(Value::Number(number))) => write!(key, "{number}")?,
                Ok(Some(Value::Bool(value))) => write!(key, "{value}")?,
                _ => return Err(format!("its key can't be rendered: {name:?} is no single value").into()),
            }
        }
        Ok(key.into())
    }
}

/// As it is written.
impl fmt::Display for KeyTemplate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|part| match part {
            Part::Text(text) => f.write_str(&text.replace('{', "{{").replace('}', "}}")),
            Part::Parameter(name) => write!(f, "{{{name}}}"),
        })
    }
}

/// What a tool's calls read and write, as templates.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct KeyTemplates {
    /// Shared with other readers.
    pub reads: Vec<KeyTemplate>,
    /// Shared with nobody.
    pub writes: Vec<KeyTemplate>,
}

impl KeyTemplates {
    /// The keys of each call.
    pub(super) fn per_call(&self, parameters: &[Parameter]) -> PerCall<Keys> {
        if self.reads.is_empty() && self.writes.is_empty() {
            return Keys::NONE.into();
        }
        let (templates, parameters) = (self.clone(), parameters.to_vec());
        PerCall::decide(move |arguments: &ArgumentMap| {
            let render = |list: &[KeyTemplate]| {
                list.iter()
                    .map(|template| template.render(&parameters, arguments))
                    .collect::<Result<Vec<_>, _>>()
            };
            Ok::<_, BoxError>(Keys {
                reads: render(&templates.reads)?,
                writes: render(&templates.writes)?,
            })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::parameter::ParameterKind;
    use serde_json::json;

    #[test]
    fn a_key_is_what_the_tool_will_see() {
        let mut status = Parameter::new("status", ParameterKind::String { escape: None });
        status.default = Some(json!("open"));
        let parameters = [
            Parameter::new("id", ParameterKind::Integer { min: None, max: None }),
            status,
        ];
        let template = KeyTemplate::parse("{{order}}:{id}/{status}").unwrap();
        assert_eq!(template.to_string(), "{{order}}:{id}/{status}");
        let render = |arguments: Value| template.render(&parameters, arguments.as_object().unwrap());
        assert_eq!(&*render(json!({"id": 5})).unwrap(), "{order}:5/open");
        assert_eq!(
            render(json!({"id": "5"})).unwrap(),
            render(json!({"id": 5.0})).unwrap()
        );
        assert!(
            render(json!({"id": "{{c1.id}}"})).is_err(),
            "a placeholder names no resource yet"
        );
        assert!(render(json!({})).is_err());
    }

    #[test]
    fn wrong_templates_are_told() {
        for bad in ["{", "}", "a{b", "a}b", "{}", "{a{b}"] {
            assert!(KeyTemplate::parse(bad).is_err(), "{bad}");
        }
        assert_eq!(KeyTemplate::parse("plain").unwrap().parameters().count(), 0);
    }
}
