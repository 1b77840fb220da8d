//! Which calls may start, as others settle. Pure: it runs nothing and knows no time.
//!
//! Every settling costs one step for each edge it is part of, and every edge fires once, so that a set costs what its
//! plan's size is: n producers and m consumers of one edge are n + m steps.

use std::collections::VecDeque;

use crate::plan::{EdgeReason, Plan};

/// What a settled call brings about.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Release {
    /// Nothing holds it back any more.
    Ready(usize),
    /// It can't run: this edge can't be met.
    Failed {
        /// The call.
        position: usize,
        /// The edge, an index into the plan's.
        edge: usize,
        /// The call that settled and made it so.
        culprit: usize,
    },
}

#[derive(Debug)]
struct EdgeState {
    /// How many of `before` have not settled.
    left: usize,
    fired: bool,
}

impl Release {
    pub(super) fn position(&self) -> usize {
        match self {
            Self::Ready(position) | Self::Failed { position, .. } => *position,
        }
    }
}

/// The state of a plan that is being run.
#[derive(Debug)]
pub(super) struct Schedule<'p> {
    plan: &'p Plan,
    stage_of: Vec<usize>,
    /// Unsettled calls of each stage.
    left: Vec<usize>,
    /// The stage that is open.
    stage: usize,
    edges: Vec<EdgeState>,
    /// The edges each call is waited for by: `leads[starts[p]..starts[p + 1]]`.
    leads: Vec<usize>,
    starts: Vec<usize>,
    /// How many edges each call waits for.
    waits: Vec<usize>,
    /// How many of them are for keys: a call that is answered early hands its keys on when it has got them.
    keys: Vec<usize>,
    settled: Vec<bool>,
}

impl<'p> Schedule<'p> {
    /// A plan over so many calls, nothing opened yet.
    pub(super) fn new(plan: &'p Plan, calls: usize) -> Self {
        let mut stage_of = vec![0; calls];
        for (index, stage) in plan.stages.iter().enumerate() {
            stage.iter().for_each(|&position| stage_of[position] = index);
        }
        let (mut waits, mut keys) = (vec![0; calls], vec![0; calls]);
        let mut starts = vec![0; calls + 1];
        for edge in &plan.edges {
            edge.after.iter().for_each(|&position| waits[position] += 1);
            if edge.reason == EdgeReason::Key {
                edge.after.iter().for_each(|&position| keys[position] += 1);
            }
            edge.before.iter().for_each(|&position| starts[position + 1] += 1);
        }
        for position in 0..calls {
            starts[position + 1] += starts[position];
        }
        let mut leads = vec![0; starts[calls]];
        let mut next = starts.clone();
        for (index, edge) in plan.edges.iter().enumerate() {
            for &position in &edge.before {
                leads[next[position]] = index;
                next[position] += 1;
            }
        }
        Self {
            stage_of,
            left: plan.stages.iter().map(Vec::len).collect(),
            stage: 0,
            edges: plan
                .edges
                .iter()
                .map(|edge| EdgeState {
                    left: edge.before.len(),
                    fired: false,
                })
                .collect(),
            leads,
            starts,
            waits,
            keys,
            settled: vec![false; calls],
            plan,
        }
    }

    /// The stage a call belongs to.
    pub(super) fn stage_of(&self, position: usize) -> usize {
        self.stage_of[position]
    }

    /// The stage that is open.
    pub(super) fn stage(&self) -> usize {
        self.stage
    }

    /// Opens the first stage.
    pub(super) fn open(&mut self, out: &mut VecDeque<Release>) {
        if let Some(first) = self.plan.stages.first() {
            out.extend(
                first
                    .iter()
                    .filter(|&&p| self.waits[p] == 0)
                    .map(|&p| Release::Ready(p)),
            );
        }
    }

    /// Whether every call of the open stage has settled and another stage waits.
    pub(super) fn can_advance(&self) -> bool {
        self.left.get(self.stage) == Some(&0) && self.stage + 1 < self.left.len()
    }

    /// Opens the next stage.
    pub(super) fn advance(&mut self, out: &mut VecDeque<Release>) {
        self.stage += 1;
        let stage = &self.plan.stages[self.stage];
        out.extend(
            stage
                .iter()
                .filter(|&&p| self.waits[p] == 0)
                .map(|&p| Release::Ready(p)),
        );
    }

    /// An edge that looked as if it couldn't be met is met for this call after all.
    pub(super) fn meet(&mut self, position: usize, out: &mut VecDeque<Release>) {
        self.waits[position] -= 1;
        if self.waits[position] == 0 && self.stage_of[position] <= self.stage {
            out.push_back(Release::Ready(position));
        }
    }

    /// A call has settled. Must be said once of each.
    pub(super) fn settle(&mut self, position: usize, ok: bool, out: &mut VecDeque<Release>) {
        self.left[self.stage_of[position]] -= 1;
        self.settled[position] = true;
        for lead in self.starts[position]..self.starts[position + 1] {
            let index = self.leads[lead];
            let (edge, state) = (&self.plan.edges[index], &mut self.edges[index]);
            if edge.reason == EdgeReason::Key {
                continue;
            }
            state.left -= 1;
            if state.fired {
                continue;
            }
            let met = match edge.reason {
                EdgeReason::After | EdgeReason::Placeholder if !ok => Some(false),
                EdgeReason::Precondition if ok => Some(true),
                EdgeReason::Precondition => (state.left == 0).then_some(false),
                _ => (state.left == 0).then_some(true),
            };
            match met {
                None => {}
                Some(true) => {
                    state.fired = true;
                    edge.after.iter().for_each(|&after| self.meet(after, out));
                }
                Some(false) => {
                    state.fired = true;
                    let failed = edge.after.iter();
                    out.extend(failed.map(|&after| Release::Failed {
                        position: after,
                        edge: index,
                        culprit: position,
                    }));
                }
            }
        }
        if self.keys[position] == 0 {
            self.hand_keys_on(position, out);
        }
    }

    /// A settled call that has got its keys passes them to whoever is next.
    ///
    /// A call may be answered before they are its: its input failed, or it was cancelled, while the holder before it
    /// still runs. Who comes after it must wait for that one, and the plan says so by this chain only.
    fn hand_keys_on(&mut self, position: usize, out: &mut VecDeque<Release>) {
        let mut others = Vec::new();
        let mut next = Some(position);
        while let Some(position) = next.take().or_else(|| others.pop()) {
            for lead in self.starts[position]..self.starts[position + 1] {
                let index = self.leads[lead];
                let edge = &self.plan.edges[index];
                if edge.reason != EdgeReason::Key {
                    continue;
                }
                self.edges[index].left -= 1;
                if self.edges[index].left > 0 {
                    continue;
                }
                for &after in &edge.after {
                    self.keys[after] -= 1;
                    self.meet(after, out);
                    if self.keys[after] == 0 && self.settled[after] {
                        others.push(after);
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::Edge;

    fn edge(reason: EdgeReason, before: &[usize], after: &[usize]) -> Edge {
        Edge {
            before: before.to_vec(),
            after: after.to_vec(),
            reason,
            detail: "".into(),
        }
    }

    fn plan(stages: &[&[usize]], edges: Vec<Edge>) -> Plan {
        Plan {
            stages: stages.iter().map(|stage| stage.to_vec()).collect(),
            edges,
            ..Plan::default()
        }
    }

    #[test]
    fn a_precondition_is_met_by_the_first_success_and_unmet_by_the_last_failure() {
        let plan = plan(&[&[0, 1, 2]], vec![edge(EdgeReason::Precondition, &[0, 1], &[2])]);
        let mut out = VecDeque::new();
        let mut schedule = Schedule::new(&plan, 3);
        schedule.open(&mut out);
        assert_eq!(out, [Release::Ready(0), Release::Ready(1)]);
        out.clear();
        schedule.settle(1, false, &mut out);
        assert_eq!(out, []);
        schedule.settle(0, true, &mut out);
        assert_eq!(out, [Release::Ready(2)]);

        let mut out = VecDeque::new();
        let mut schedule = Schedule::new(&plan, 3);
        schedule.settle(1, false, &mut out);
        schedule.settle(0, false, &mut out);
        assert_eq!(
            out,
            [Release::Failed {
                position: 2,
                edge: 0,
                culprit: 0
            }]
        );
    }

    #[test]
    fn a_call_of_a_later_stage_is_not_released_before_its_stage_opens() {
        let plan = plan(&[&[0], &[1]], vec![edge(EdgeReason::After, &[0], &[1])]);
        let mut out = VecDeque::new();
        let mut schedule = Schedule::new(&plan, 2);
        schedule.settle(0, true, &mut out);
        assert_eq!(out, []);
        assert!(schedule.can_advance());
        schedule.advance(&mut out);
        assert_eq!(out, [Release::Ready(1)]);
    }

    /// The second holder of a key is answered early; the third must not overtake the first.
    #[test]
    fn a_key_is_handed_on_by_those_that_have_got_it() {
        let key = |before, after| edge(EdgeReason::Key, &[before], &[after]);
        let plan = plan(&[&[0, 1, 2, 3]], vec![key(0, 1), key(1, 2), key(2, 3)]);
        let mut out = VecDeque::new();
        let mut schedule = Schedule::new(&plan, 4);
        schedule.settle(1, false, &mut out);
        schedule.settle(2, false, &mut out);
        assert_eq!(out, []);
        schedule.settle(0, true, &mut out);
        assert_eq!(out, [Release::Ready(1), Release::Ready(2), Release::Ready(3)]);
    }
}
