//! Keys: who waits for whom because both name the same resource and one of them writes it.
//!
//! A key that contains `/` is a path, and a path stands for everything below it: `dir` and `dir/x` are the same resource
//! to calls that name them, `dir/x` and `dir/y` are not (B43). So keys form a tree. At each node calls come by in the
//! model's order: they read or write the node itself, or something below it. Two kinds that don't
//! mind each other (readers of the node; writers of different things below it) gather in batches, and each batch waits
//! for the one before. That makes one edge for two batches, never one for two calls, and all that came earlier is
//! waited for through the chain.

use std::sync::Arc;

use foldhash::{HashMap, HashMapExt};

use super::{Edge, EdgeReason};
use crate::tool::ResolvedCall;

/// Parts of a path that are told apart; whatever is deeper is one resource with its 64th ancestor.
const DEEPEST: usize = 64;

const ROOT: u32 = u32::MAX;

/// What a call does at a node. Ordered by strength.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Mode {
    ReadBelow,
    WriteBelow,
    Read,
    /// Reads the node and writes below it: shuts out its readers and the writers below, and no reader below.
    ReadAndWriteBelow,
    Write,
}

impl Mode {
    /// What a call does that does both.
    fn and(self, other: Mode) -> Mode {
        match (self.max(other), self.min(other)) {
            (Mode::Read, Mode::WriteBelow) => Mode::ReadAndWriteBelow,
            (stronger, _) => stronger,
        }
    }
}

/// A resource, in the stage that was seen last.
#[derive(Debug)]
struct Node<'a> {
    key: Option<&'a Arc<str>>,
    stage: usize,
    mode: Mode,
    /// The calls that came last and don't mind each other: all readers, all writers below, or one
    /// call of another kind.
    batch: Vec<usize>,
    /// The edge by which the batch waits for the one before.
    entry: Option<usize>,
    /// The latest writer of the node itself.
    writer: Option<usize>,
    /// Readers below since then: they mind nobody but a writer of the node itself.
    below: Vec<usize>,
    /// The edge by which they wait for the writer.
    below_entry: Option<usize>,
}

/// Edges between the calls of each stage. `skip` tells which calls never run.
pub(super) fn edges(
    calls: &[&ResolvedCall],
    stages: &[Vec<usize>],
    skip: impl Fn(usize) -> bool,
) -> Vec<Edge> {
    let named: usize = calls
        .iter()
        .map(|call| call.keys.reads.len() + call.keys.writes.len())
        .sum();
    if named == 0 {
        return Vec::new();
    }
    let mut tree = Tree {
        ids: HashMap::with_capacity(named),
        nodes: Vec::with_capacity(named),
        edges: Vec::new(),
    };
    let mut touched = Vec::new();
    for (stage, positions) in stages
        .iter()
        .enumerate()
        .filter(|(_, positions)| positions.len() > 1)
    {
        for &position in positions.iter().filter(|&&position| !skip(position)) {
            tree.touch(calls[position], &mut touched);
            for (node, mode) in touched.drain(..) {
                tree.arrive(node, position, mode, stage);
            }
        }
    }
    tree.edges
}

struct Tree<'a> {
    ids: HashMap<(u32, &'a str), u32>,
    nodes: Vec<Node<'a>>,
    edges: Vec<Edge>,
}

impl<'a> Tree<'a> {
    /// The nodes a call comes by, each once, with what it does there.
    fn touch(&mut self, call: &'a ResolvedCall, touched: &mut Vec<(u32, Mode)>) {
        let reads = call
            .keys
            .reads
            .iter()
            .map(|key| (key, Mode::ReadBelow, Mode::Read));
        let writes = call
            .keys
            .writes
            .iter()
            .map(|key| (key, Mode::WriteBelow, Mode::Write));
        let mut count = 0;
        for (key, below, here) in reads.chain(writes) {
            count += 1;
            let mut parent = ROOT;
            // A slash at the end says nothing; the root itself is the part before the first slash.
            let trimmed = key.trim_end_matches('/');
            let mut parts = trimmed.splitn(DEEPEST + 1, '/').take(DEEPEST).peekable();
            while let Some(part) = parts.next() {
                let node = self.node(parent, part);
                if parts.peek().is_some() {
                    touched.push((node, below));
                } else {
                    self.nodes[node as usize].key.get_or_insert(key);
                    touched.push((node, here));
                }
                parent = node;
            }
        }
        if count > 1 {
            touched.sort_unstable();
            touched.dedup_by(|(node, mode), (kept, kept_mode)| {
                let same = node == kept;
                if same {
                    *kept_mode = kept_mode.and(*mode);
                }
                same
            });
        }
    }

    fn node(&mut self, parent: u32, part: &'a str) -> u32 {
        let next = u32::try_from(self.nodes.len()).expect("fewer than 2^32 keys fit into memory");
        *self.ids.entry((parent, part)).or_insert_with(|| {
            self.nodes.push(Node {
                key: None,
                stage: 0,
                mode: Mode::Read,
                batch: Vec::new(),
                entry: None,
                writer: None,
                below: Vec::new(),
                below_entry: None,
            });
            next
        })
    }

    fn arrive(&mut self, node: u32, position: usize, mode: Mode, stage: usize) {
        let node = &mut self.nodes[node as usize];
        if node.stage != stage {
            // Everything before the barrier has ended.
            node.stage = stage;
            node.batch.clear();
            node.below.clear();
            (node.entry, node.below_entry, node.writer) = (None, None, None);
        }
        let edges = &mut self.edges;
        let mut edge = |key: Option<&Arc<str>>, before| {
            let detail =
                Arc::clone(key.expect("only a call that names the node itself is ever waited for here"));
            edges.push(Edge {
                before,
                after: vec![position],
                reason: EdgeReason::Key,
                detail,
            });
            edges.len() - 1
        };
        match mode {
            Mode::ReadBelow => {
                match (node.below_entry, node.writer) {
                    (Some(entry), _) => edges[entry].after.push(position),
                    (None, Some(writer)) => node.below_entry = Some(edge(node.key, vec![writer])),
                    (None, None) => {}
                }
                node.below.push(position);
            }
            Mode::Read | Mode::WriteBelow if node.mode == mode && !node.batch.is_empty() => {
                if let Some(entry) = node.entry {
                    edges[entry].after.push(position);
                }
                node.batch.push(position);
            }
            Mode::Read | Mode::WriteBelow | Mode::ReadAndWriteBelow => {
                let before = std::mem::replace(&mut node.batch, vec![position]);
                node.entry = (!before.is_empty()).then(|| edge(node.key, before));
                node.mode = mode;
            }
            Mode::Write => {
                let mut before = std::mem::replace(&mut node.batch, vec![position]);
                if !node.below.is_empty() {
                    before.append(&mut node.below);
                    before.sort_unstable();
                }
                if !before.is_empty() {
                    edge(node.key, before);
                }
                (node.entry, node.below_entry, node.writer) = (None, None, Some(position));
                node.mode = mode;
            }
        }
    }
}
