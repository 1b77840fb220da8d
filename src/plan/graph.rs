//! Edges as a graph: which calls wait for themselves in the end, and an order that breaks no edge.
//!
//! A node for each call and one for each edge: `before → edge → after`. So the graph is as large as the edges are, and
//! everything here is linear in that.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::Edge;

/// For each call, in which edges it is waited for.
struct Waited {
    starts: Vec<usize>,
    edges: Vec<usize>,
}

impl Waited {
    fn new(calls: usize, edges: &[Edge]) -> Self {
        let mut starts = vec![0; calls + 1];
        for &call in edges.iter().flat_map(|edge| &edge.before) {
            starts[call + 1] += 1;
        }
        for call in 0..calls {
            starts[call + 1] += starts[call];
        }
        let mut next = starts.clone();
        let mut flat = vec![0; starts[calls]];
        for (index, edge) in edges.iter().enumerate() {
            for &call in &edge.before {
                flat[next[call]] = index;
                next[call] += 1;
            }
        }
        Self { starts, edges: flat }
    }

    fn of(&self, call: usize) -> &[usize] {
        &self.edges[self.starts[call]..self.starts[call + 1]]
    }
}

/// Strongly connected components: whatever lies on a common cycle has the same number.
pub(super) struct Components {
    number: Vec<usize>,
    size: Vec<usize>,
    calls: usize,
}

impl Components {
    /// Tarjan's algorithm with a stack of its own, since chains may be long.
    pub(super) fn new(calls: usize, edges: &[Edge]) -> Self {
        const NEW: usize = usize::MAX;
        let waited = Waited::new(calls, edges);
        let nodes = calls + edges.len();
        let successor = |node: usize, at: usize| {
            if node < calls {
                waited.of(node).get(at).map(|edge| calls + edge)
            } else {
                edges[node - calls].after.get(at).copied()
            }
        };
        let (mut index, mut low, mut number) = (vec![NEW; nodes], vec![0; nodes], vec![NEW; nodes]);
        let (mut size, mut open, mut work) = (Vec::new(), Vec::new(), Vec::new());
        let mut counter = 0;
        for root in 0..nodes {
            if index[root] != NEW {
                continue;
            }
            work.push((root, 0));
            while let Some((node, at)) = work.pop() {
                if at == 0 {
                    (index[node], low[node]) = (counter, counter);
                    counter += 1;
                    open.push(node);
                }
                if let Some(next) = successor(node, at) {
                    work.push((node, at + 1));
                    if index[next] == NEW {
                        work.push((next, 0));
                    } else if number[next] == NEW {
                        low[node] = low[node].min(index[next]);
                    }
                    continue;
                }
                if low[node] == index[node] {
                    let mut members = 0;
                    loop {
                        let member = open.pop().expect("a component's root is still open");
                        number[member] = size.len();
                        members += 1;
                        if member == node {
                            break;
                        }
                    }
                    size.push(members);
                }
                if let Some(&(parent, _)) = work.last() {
                    low[parent] = low[parent].min(low[node]);
                }
            }
        }
        Self { number, size, calls }
    }

    /// The component of a call.
    pub(super) fn of_call(&self, call: usize) -> usize {
        self.number[call]
    }

    /// The component of an edge.
    pub(super) fn of_edge(&self, edge: usize) -> usize {
        self.number[self.calls + edge]
    }

    /// Whether a call lies on a cycle: it can't be alone then, since a cycle goes through an edge.
    pub(super) fn is_cyclic(&self, call: usize) -> bool {
        self.size[self.number[call]] > 1
    }
}

/// The place of each call in an order that breaks none of the edges, which must be without cycles. Among calls that are
/// free to go, the one with the smallest `rank` goes first.
pub(super) fn order(calls: usize, edges: &[Edge], rank: &[usize]) -> Vec<usize> {
    let waited = Waited::new(calls, edges);
    let mut needs: Vec<usize> = edges.iter().map(|edge| edge.before.len()).collect();
    let mut waits = vec![0_usize; calls];
    for &call in edges.iter().flat_map(|edge| &edge.after) {
        waits[call] += 1;
    }
    let mut place = vec![0; calls];
    let mut free: BinaryHeap<_> = (0..calls)
        .filter(|&call| waits[call] == 0)
        .map(|call| Reverse((rank[call], call)))
        .collect();
    let mut next = 0;
    while let Some(Reverse((_, call))) = free.pop() {
        place[call] = next;
        next += 1;
        for &edge in waited.of(call) {
            needs[edge] -= 1;
            if needs[edge] == 0 {
                for &after in &edges[edge].after {
                    waits[after] -= 1;
                    if waits[after] == 0 {
                        free.push(Reverse((rank[after], after)));
                    }
                }
            }
        }
    }
    debug_assert_eq!(next, calls, "the edges have a cycle");
    place
}
