//! Files as trees of nodes with their places.
//!
//! YAML is read into [`Node`]s before anything is made of it, so that one wrong field doesn't hide the next: the parser
//! goes on at the next document after a syntax error, and the reader goes on at the next field after a wrong one.
//! What a file may cost is bounded, whatever is in it: its size, its depth, its nodes, and what its aliases grow to.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use granit_parser::{Event, Marker, Parser, ScalarStyle, Tag};

use super::fault::{ConfigFault, Place};

/// The largest file that is read, in bytes. The largest real one known has 70 kB.
pub(super) const MAX_BYTES: usize = 4 << 20;
/// How deeply collections may lie in each other.
const MAX_DEPTH: usize = 48;
/// How many nodes a file may have, its aliases counted as what they stand for.
const MAX_NODES: usize = 200_000;

/// A file.
pub(super) struct SourceFile {
    name: Arc<str>,
    text: String,
    /// Where each line starts.
    lines: Vec<usize>,
}

/// Where a node starts: the file's index, line and column from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct At {
    pub(super) file: usize,
    pub(super) line: usize,
    pub(super) column: usize,
}

/// A value with its place.
#[derive(Clone)]
pub(super) struct Node {
    pub(super) at: At,
    pub(super) kind: Kind,
}

#[derive(Clone)]
pub(super) enum Kind {
    Scalar(Scalar),
    List(Vec<Node>),
    Map(Vec<(Key, Node)>),
}

/// Text, and whether it may stand for something else than text.
#[derive(Clone)]
pub(super) struct Scalar {
    pub(super) text: Arc<str>,
    pub(super) plain: bool,
}

/// A key with its place.
#[derive(Clone)]
pub(super) struct Key {
    pub(super) name: Arc<str>,
    pub(super) at: At,
}

impl Node {
    /// What it is, with its article, for messages.
    pub(super) fn description(&self) -> &'static str {
        match &self.kind {
            Kind::Scalar(scalar) if scalar.plain && is_null(&scalar.text) => "nothing",
            Kind::Scalar(_) => "a single value",
            Kind::List(_) => "a list",
            Kind::Map(_) => "a mapping",
        }
    }

    pub(super) fn is_null(&self) -> bool {
        matches!(&self.kind, Kind::Scalar(scalar) if scalar.plain && is_null(&scalar.text))
    }

    /// How many nodes it is, and how many bytes of text.
    fn size(&self) -> (usize, usize) {
        let children: Box<dyn Iterator<Item = &Node>> = match &self.kind {
            Kind::Scalar(scalar) => return (1, scalar.text.len()),
            Kind::List(items) => Box::new(items.iter()),
            Kind::Map(entries) => Box::new(entries.iter().map(|(_, value)| value)),
        };
        children.fold((1, 0), |(nodes, bytes), child| {
            let (more, text) = child.size();
            (nodes + more, bytes + text)
        })
    }
}

/// Whether a plain scalar says that there is no value.
pub(super) fn is_null(text: &str) -> bool {
    matches!(text, "" | "~" | "null" | "Null" | "NULL")
}

impl SourceFile {
    /// A file's bytes as text, or why they aren't.
    pub(super) fn new(name: &str, bytes: &[u8]) -> Result<Self, ConfigFault> {
        let file = |line, column| Place {
            file: name.into(),
            line,
            column,
            snippet: "".into(),
        };
        if bytes.len() > MAX_BYTES {
            let message = format!("the file has {} bytes; at most {MAX_BYTES} are read", bytes.len());
            return Err(ConfigFault::new(file(0, 0), message).help("split it"));
        }
        if matches!(bytes, [0xff, 0xfe, ..] | [0xfe, 0xff, ..]) {
            return Err(ConfigFault::new(file(0, 0), "the file is UTF-16").help("save it as UTF-8"));
        }
        let text = match std::str::from_utf8(bytes) {
            Ok(text) => text,
            Err(error) => {
                let (line, column) = position(&String::from_utf8_lossy(&bytes[..error.valid_up_to()]));
                let message = "the file is not UTF-8 from here on";
                return Err(ConfigFault::new(file(line, column), message).help("save it as UTF-8"));
            }
        };
        if let Some(at) = text.find('\0') {
            let (line, column) = position(&text[..at]);
            return Err(ConfigFault::new(
                file(line, column),
                "the file holds a NUL character",
            ));
        }
        let text = text.strip_prefix('\u{feff}').unwrap_or(text).to_owned();
        let lines = std::iter::once(0)
            .chain(text.match_indices('\n').map(|(at, _)| at + 1))
            .collect();
        Ok(Self {
            name: name.into(),
            text,
            lines,
        })
    }

    /// A place in this file, with its line.
    pub(super) fn place(&self, at: At) -> Place {
        let start = self
            .lines
            .get(at.line.saturating_sub(1))
            .copied()
            .unwrap_or(self.text.len());
        let line = self.text[start..].lines().next().unwrap_or("");
        Place {
            file: Arc::clone(&self.name),
            line: at.line,
            column: at.column,
            snippet: shown(line).into(),
        }
    }
}

/// Line and column, from 1, of what follows this text.
fn position(before: &str) -> (usize, usize) {
    let line = before.matches('\n').count() + 1;
    (line, before.rsplit('\n').next().unwrap_or("").chars().count() + 1)
}

/// A line as it may be printed: without the values of fields that are named like secrets, and not too long.
fn shown(line: &str) -> String {
    const SECRET: [&str; 8] = [
        "passw",
        "secret",
        "token",
        "credential",
        "apikey",
        "api_key",
        "dsn",
        "://",
    ];
    const LONGEST: usize = 120;
    let lower = line.to_ascii_lowercase();
    let named = SECRET.iter().filter_map(|word| lower.find(word)).min();
    let line = match named.map(|at| (at, line[at..].find(':').map(|colon| at + colon))) {
        Some((_, Some(colon))) => format!("{} …", &line[..=colon]),
        Some((at, None)) => format!("{}…", &line[..at]),
        None => line.to_owned(),
    };
    match line.char_indices().nth(LONGEST) {
        Some((end, _)) => format!("{}…", &line[..end]),
        None => line.trim_end().to_owned(),
    }
}

/// The documents of a file. Empty ones are left out; broken ones are left out and told.
pub(super) fn documents(
    file: usize,
    source: &SourceFile,
    faults: &mut Vec<(At, String, Option<String>)>,
) -> Vec<Node> {
    let mut options = granit_parser::Options::default();
    options.flow_nesting_limit = MAX_DEPTH;
    options.block_nesting_limit = MAX_DEPTH;
    options.set_emit_comments(false);
    let mut parser = Parser::new_from_str_with_options(&source.text, options);
    let mut composer = Composer::new(file, source.text.len(), faults);
    let mut documents = Vec::new();
    while let Some(next) = parser.next_event() {
        match next {
            Ok((Event::DocumentStart(..), _)) => composer.start(),
            Ok((Event::DocumentEnd, _)) => documents.extend(composer.end()),
            Ok((event, span)) => {
                if composer.event(event, span.start).is_err() {
                    return documents;
                }
            }
            Err(error) => {
                composer.syntax(*error.marker(), &error.info());
                composer.start();
                if !parser.proceed_next_document().unwrap_or(false) {
                    break;
                }
            }
        }
    }
    documents.retain(|document| !document.is_null());
    documents
}

/// Builds one document after the other from events.
struct Composer<'f> {
    file: usize,
    faults: &'f mut Vec<(At, String, Option<String>)>,
    open: Vec<Open>,
    root: Option<Node>,
    anchors: HashMap<usize, Node>,
    nodes: usize,
    /// Bytes of text that aliases may still repeat.
    repeatable: usize,
}

/// A collection whose end hasn't come yet.
struct Open {
    anchor: usize,
    node: Node,
    /// The key that waits for its value.
    key: Option<Key>,
    /// The keys so far, and where they stand.
    keys: HashMap<Arc<str>, At>,
}

impl Open {
    fn new(anchor: usize, at: At, kind: Kind) -> Self {
        Self {
            anchor,
            node: Node { at, kind },
            key: None,
            keys: HashMap::new(),
        }
    }
}

/// The file costs too much to be read on.
struct TooMuch;

impl<'f> Composer<'f> {
    fn new(file: usize, bytes: usize, faults: &'f mut Vec<(At, String, Option<String>)>) -> Self {
        let (open, anchors) = (Vec::new(), HashMap::new());
        Self {
            file,
            faults,
            open,
            root: None,
            anchors,
            nodes: 0,
            repeatable: bytes.max(1 << 16),
        }
    }

    fn start(&mut self) {
        self.open.clear();
        self.root = None;
        self.anchors.clear();
    }

    fn end(&mut self) -> Option<Node> {
        self.root.take()
    }

    fn at(&self, mark: Marker) -> At {
        At {
            file: self.file,
            line: mark.line().max(1),
            column: mark.col() + 1,
        }
    }

    fn syntax(&mut self, mark: Marker, what: &str) {
        let at = self.at(mark);
        self.faults.push((at, format!("this is not YAML: {what}"), None));
    }

    fn event(&mut self, event: Event<'_>, mark: Marker) -> Result<(), TooMuch> {
        let at = self.at(mark);
        match event {
            Event::Scalar(text, style, anchor, tag) => {
                let mut plain = style == ScalarStyle::Plain;
                match tag.as_deref() {
                    Some(tag) if tag.is_yaml_core_schema_tag("str") => plain = false,
                    tag => self.no_tag(at, tag),
                }
                self.count(1, at)?;
                let scalar = Scalar {
                    text: text.into(),
                    plain,
                };
                self.complete(
                    anchor,
                    Node {
                        at,
                        kind: Kind::Scalar(scalar),
                    },
                );
            }
            Event::SequenceStart(_, anchor, tag) => {
                self.no_tag(at, tag.as_deref());
                self.count(1, at)?;
                self.open.push(Open::new(anchor, at, Kind::List(Vec::new())));
            }
            Event::MappingStart(_, anchor, tag) => {
                self.no_tag(at, tag.as_deref());
                self.count(1, at)?;
                self.open.push(Open::new(anchor, at, Kind::Map(Vec::new())));
            }
            Event::SequenceEnd | Event::MappingEnd => {
                if let Some(open) = self.open.pop() {
                    self.complete(open.anchor, open.node);
                }
            }
            Event::Alias(anchor) => {
                let node = match self.anchors.get(&anchor) {
                    Some(node) => {
                        let (nodes, bytes) = node.size();
                        let node = node.clone();
                        self.count(nodes, at)?;
                        self.repeat(bytes, at)?;
                        node
                    }
                    None => {
                        self.faults
                            .push((at, "an alias can't stand for what it stands in".to_owned(), None));
                        Node {
                            at,
                            kind: Kind::Map(Vec::new()),
                        }
                    }
                };
                self.complete(0, Node { at, ..node });
            }
            _ => {}
        }
        Ok(())
    }

    fn no_tag(&mut self, at: At, tag: Option<&Tag>) {
        if let Some(tag) = tag {
            let message = format!("the tag {} means nothing here", tag.original());
            self.faults.push((at, message, Some("leave it out".to_owned())));
        }
    }

    fn count(&mut self, nodes: usize, at: At) -> Result<(), TooMuch> {
        self.nodes += nodes;
        if self.nodes > MAX_NODES {
            let message =
                format!("the file has more than {MAX_NODES} values, aliases counted as what they stand for");
            self.faults.push((at, message, Some("split it".to_owned())));
            return Err(TooMuch);
        }
        Ok(())
    }

    fn repeat(&mut self, bytes: usize, at: At) -> Result<(), TooMuch> {
        match self.repeatable.checked_sub(bytes) {
            Some(left) => self.repeatable = left,
            None => {
                self.faults.push((
                    at,
                    "the aliases repeat more text than the file has".to_owned(),
                    None,
                ));
                return Err(TooMuch);
            }
        }
        Ok(())
    }

    fn complete(&mut self, anchor: usize, mut node: Node) {
        if let Kind::Map(entries) = &mut node.kind {
            self.merge(entries);
        }
        if anchor != 0 {
            self.anchors.insert(anchor, node.clone());
        }
        let Some(Open {
            node: parent,
            key: waiting,
            keys,
            ..
        }) = self.open.last_mut()
        else {
            self.root = Some(node);
            return;
        };
        match &mut parent.kind {
            Kind::List(items) => items.push(node),
            Kind::Map(entries) => match waiting.take() {
                Some(key) => match keys.insert(Arc::clone(&key.name), key.at) {
                    Some(first) => {
                        let message = format!("{:?} is already given on line {}", &*key.name, first.line);
                        self.faults
                            .push((key.at, message, Some("keep one of them".to_owned())));
                    }
                    None => entries.push((key, node)),
                },
                None => {
                    let name = match &node.kind {
                        Kind::Scalar(scalar) => Arc::clone(&scalar.text),
                        _ => {
                            let message = format!("a key must be a single word, not {}", node.description());
                            self.faults.push((node.at, message, None));
                            "".into()
                        }
                    };
                    *waiting = Some(Key { name, at: node.at });
                }
            },
            Kind::Scalar(_) => {}
        }
    }

    /// `<<: *defaults` gives what isn't given otherwise.
    fn merge(&mut self, entries: &mut Vec<(Key, Node)>) {
        if !entries.iter().any(|(key, _)| &*key.name == "<<") {
            return;
        }
        let (merges, mut kept): (Vec<_>, Vec<_>) = std::mem::take(entries)
            .into_iter()
            .partition(|(key, _)| &*key.name == "<<");
        let mut given: HashSet<_> = kept.iter().map(|(key, _)| Arc::clone(&key.name)).collect();
        for (key, value) in merges {
            let sources = match value.kind {
                Kind::List(items) => items,
                _ => vec![value],
            };
            for source in sources {
                let Kind::Map(more) = source.kind else {
                    let message = "only mappings can be merged with <<".to_owned();
                    self.faults.push((key.at, message, None));
                    continue;
                };
                for (key, value) in more {
                    if given.insert(Arc::clone(&key.name)) {
                        kept.push((key, value));
                    }
                }
            }
        }
        *entries = kept;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> (Vec<Node>, Vec<String>) {
        let source = SourceFile::new("t", text.as_bytes()).unwrap_or_else(|fault| panic!("{fault}"));
        let mut faults = Vec::new();
        let documents = documents(0, &source, &mut faults);
        (
            documents,
            faults
                .into_iter()
                .map(|(at, message, _)| format!("{}:{} {message}", at.line, at.column))
                .collect(),
        )
    }

    fn written(node: &Node) -> String {
        match &node.kind {
            Kind::Scalar(scalar) if scalar.plain => scalar.text.to_string(),
            Kind::Scalar(scalar) => format!("{:?}", scalar.text),
            Kind::List(items) => format!("[{}]", items.iter().map(written).collect::<Vec<_>>().join(" ")),
            Kind::Map(entries) => {
                let entries: Vec<_> = entries
                    .iter()
                    .map(|(k, v)| format!("{}={}", k.name, written(v)))
                    .collect();
                format!("{{{}}}", entries.join(" "))
            }
        }
    }

    #[test]
    fn a_broken_document_hides_no_other() {
        let (documents, faults) = read("a: [1\n---\nb: 2\n---\nc: {x: 1, x: 2}\n---\n---\nd: }\n");
        assert_eq!(
            documents.iter().map(written).collect::<Vec<_>>(),
            ["{b=2}", "{c={x=1}}"]
        );
        assert_eq!(faults.len(), 3, "{faults:?}");
        assert!(
            faults[1].contains("5:11 \"x\" is already given on line 5"),
            "{faults:?}"
        );
    }

    #[test]
    fn aliases_and_merges_stand_for_what_they_name() {
        let (documents, faults) = read("a: &a {x: 1, y: '2'}\nb: *a\nc:\n  <<: *a\n  x: 3\n");
        assert_eq!(
            documents.iter().map(written).collect::<Vec<_>>(),
            ["{a={x=1 y=\"2\"} b={x=1 y=\"2\"} c={x=3 y=\"2\"}}"]
        );
        assert_eq!(faults, Vec::<String>::new());
    }

    #[test]
    fn aliases_cannot_grow_without_bound() {
        let mut text = "a0: &a0 [[], [], [], [], [], [], [], [], [], []]\n".to_owned();
        for i in 1..20 {
            let last = format!("*a{}, ", i - 1).repeat(10);
            text += &format!("a{i}: &a{i} [{last}]\n");
        }
        let (_, faults) = read(&text);
        assert!(faults[0].contains("more than 200000 values"), "{faults:?}");
        let long = format!("a: &a {}\nb: [{}]\n", "x".repeat(100_000), "*a, ".repeat(1_000));
        let (_, faults) = read(&long);
        assert!(faults[0].contains("repeat more text"), "{faults:?}");
        let (_, faults) = read("a: &a [*a]\n");
        assert!(faults[0].contains("stands in"), "{faults:?}");
    }

    #[test]
    fn secrets_on_a_line_are_not_shown() {
        assert_eq!(shown("  password: hunter2 # the old one"), "  password: …");
        assert_eq!(shown("url: postgres://me:pw@host/db"), "url: postgres: …");
        assert_eq!(shown("name: shop"), "name: shop");
        assert_eq!(shown(&"x".repeat(200)).chars().count(), 121);
    }
}
