//! The arrangement: from what was found and the stages, the edges, and the calls that can't run in any order.
//!
//! What is kept here: no edge leads from a later stage to an earlier one, no call waits for itself through others, and
//! no refused call waits for anything.

use std::sync::Arc;

use foldhash::{HashMap, HashMapExt, HashSet, HashSetExt};

use super::finding::{Findings, tools, waits_for_itself};
use super::graph::{self, Components};
use super::stage::stage_of;
use super::{Context, Edge, EdgeReason, Plan, keys, unmet};
use crate::call::OnGuess;
use crate::dependency::{Guess, Reference};
use crate::reading::{CallError, ErrorCode};
use crate::tool::ResolvedCall;

pub(super) fn arrange(findings: Findings<'_>, context: &Context<'_>, stages: Vec<Vec<usize>>) -> Plan {
    let rank_of_stage = stage_of(&stages, findings.calls.len());
    let mut arranging = Arranging {
        stage_of: rank_of_stage,
        stages,
        edges: Vec::new(),
        mandatory: 0,
        findings,
    };
    arranging.declared();
    arranging.placeholders();
    arranging.preconditions();
    arranging.without_refused();
    let keyless = arranging.edges.len();
    arranging.keys();
    arranging.refuse_cycles(keyless);
    let guessed = arranging.guesses(context.on_guess);
    arranging.finish(guessed, context.on_guess)
}

struct Arranging<'a> {
    findings: Findings<'a>,
    stages: Vec<Vec<usize>>,
    stage_of: Vec<usize>,
    edges: Vec<Edge>,
    /// How many edges, from the first, are no guesses.
    mandatory: usize,
}

/// The producers of a field in the order of their stages, and for each guess of the field how many of them come before
/// the consumer's stage has ended; none if the guess can't be waited for.
struct Guessed {
    producers: Arc<[usize]>,
    reach: Vec<usize>,
}

impl Arranging<'_> {
    /// Whether `consumer` may wait for `producer`; refuses it if the producer stands behind a barrier.
    fn may_wait(&mut self, producer: usize, consumer: usize) -> bool {
        if self.stage_of[producer] > self.stage_of[consumer] {
            let calls = self.findings.calls;
            self.findings
                .refusals
                .add(consumer, || behind_a_barrier(calls[producer], calls[consumer]));
        }
        !self.findings.refusals.has(consumer)
    }

    /// An edge for each call that others are declared to come after.
    fn declared(&mut self) {
        let mut edge_of: HashMap<usize, usize> = HashMap::new();
        for (producer, consumer) in std::mem::take(&mut self.findings.after) {
            if !self.may_wait(producer, consumer) {
                continue;
            }
            let edge = *edge_of.entry(producer).or_insert_with(|| {
                let detail = name(self.findings.calls[producer], producer);
                let (before, after, reason) = (vec![producer], Vec::new(), EdgeReason::After);
                self.edges.push(Edge {
                    before,
                    after,
                    reason,
                    detail,
                });
                self.edges.len() - 1
            });
            push_once(&mut self.edges[edge].after, consumer);
        }
    }

    /// An edge for each producer and placeholder.
    fn placeholders(&mut self) {
        let mentions = std::mem::take(&mut self.findings.mentions);
        let mut edge_of: HashMap<(usize, &str), usize> = HashMap::new();
        for mention in &mentions {
            if !self.may_wait(mention.producer, mention.consumer) {
                continue;
            }
            let edge = *edge_of
                .entry((mention.producer, mention.text))
                .or_insert_with(|| {
                    let (before, after, reason) =
                        (vec![mention.producer], Vec::new(), EdgeReason::Placeholder);
                    self.edges.push(Edge {
                        before,
                        after,
                        reason,
                        detail: mention.text.into(),
                    });
                    self.edges.len() - 1
                });
            push_once(&mut self.edges[edge].after, mention.consumer);
        }
        self.findings.mentions = mentions;
    }

    /// Edges from the callers of a required tool; refuses calls whose precondition nobody can meet in time.
    fn preconditions(&mut self) {
        for need in std::mem::take(&mut self.findings.needs) {
            let mut callers = need.callers;
            let requirers: Vec<usize> = need
                .requirers
                .into_iter()
                .filter(|&call| !self.findings.refusals.has(call))
                .collect();
            let reach = self.edges_by_reach(&mut callers, &requirers, EdgeReason::Precondition, need.tool);
            for (&requirer, _) in requirers.iter().zip(reach).filter(|&(_, reach)| reach == 0) {
                let later = callers.iter().any(|&caller| caller != requirer);
                let tool = &self.findings.calls[requirer].tool;
                self.findings
                    .refusals
                    .add(requirer, || unmet(tool, need.tool, later));
            }
        }
    }

    /// Edges from `producers`, which are put in the order of their stages, to `consumers`; returns for each consumer how
    /// many of the producers it may wait for.
    ///
    /// Consumers with the same producers share an edge. Its `before` lists the producers that no earlier of these edges
    /// lists: those have ended, since a barrier stands between. So each producer is listed once.
    fn edges_by_reach(
        &mut self,
        producers: &mut [usize],
        consumers: &[usize],
        reason: EdgeReason,
        detail: &Arc<str>,
    ) -> Vec<usize> {
        let stage_of = &self.stage_of;
        producers.sort_by_key(|&producer| stage_of[producer]);
        let reach: Vec<usize> = consumers
            .iter()
            .map(|&consumer| producers.partition_point(|&producer| stage_of[producer] <= stage_of[consumer]))
            .collect();
        let mut by_reach: Vec<(usize, usize)> =
            reach.iter().copied().zip(consumers.iter().copied()).collect();
        by_reach.sort_unstable();
        let mut listed = 0;
        for group in by_reach
            .chunk_by(|a, b| a.0 == b.0)
            .filter(|group| group[0].0 > 0)
        {
            let mut before = producers[listed..group[0].0].to_vec();
            before.sort_unstable();
            let mut after: Vec<usize> = group.iter().map(|&(_, consumer)| consumer).collect();
            after.dedup();
            self.edges.push(Edge {
                before,
                after,
                reason,
                detail: Arc::clone(detail),
            });
            listed = group[0].0;
        }
        reach
    }

    fn keys(&mut self) {
        let refusals = &self.findings.refusals;
        self.edges
            .extend(keys::edges(self.findings.calls, &self.stages, |call| {
                refusals.has(call)
            }));
    }

    /// Takes refused calls out of what waits.
    fn without_refused(&mut self) {
        let refusals = &self.findings.refusals;
        if !refusals.errors.is_empty() {
            self.edges
                .iter_mut()
                .for_each(|edge| edge.after.retain(|&call| !refusals.has(call)));
            self.edges.retain(|edge| !edge.after.is_empty());
        }
    }

    /// Whether every edge leads forward, so that there can't be a cycle.
    fn all_forward(&self) -> bool {
        let place = |call: usize| (self.stage_of[call], call);
        self.edges.iter().all(|edge| {
            let last = edge.before.iter().map(|&call| place(call)).max();
            let first = edge.after.iter().map(|&call| place(call)).min();
            last < first
        })
    }

    /// Refuses what needs itself. `keyless` is how many edges there are before those for keys.
    fn refuse_cycles(&mut self, keyless: usize) {
        if !self.all_forward() {
            let mut keyless = keyless;
            let mut components = Components::new(self.findings.calls.len(), &self.edges);
            if self.prefer_other_callers(&components, &mut keyless) {
                components = Components::new(self.findings.calls.len(), &self.edges);
            }
            let calls = self.findings.calls;
            let mut refused = false;
            for position in (0..calls.len()).filter(|&call| components.is_cyclic(call)) {
                refused = true;
                self.findings
                    .refusals
                    .add(position, || waits_for_itself(calls[position]));
            }
            if refused {
                // Those that hold a key behind a refused call must wait for the one before it instead.
                self.edges.truncate(keyless);
                self.without_refused();
                self.keys();
            }
        }
        self.mandatory = self.edges.len();
    }

    /// A precondition that one of several callers may meet needs none of those who wait for the requirer themselves.
    /// Takes them out where another is left; says whether it did.
    fn prefer_other_callers(&mut self, components: &Components, keyless: &mut usize) -> bool {
        let mut split = Vec::new();
        for (index, edge) in self.edges.iter_mut().enumerate().take(*keyless) {
            let component = components.of_edge(index);
            let inside = |&call: &usize| components.of_call(call) == component;
            if edge.reason != EdgeReason::Precondition || !edge.before.iter().any(inside) {
                continue;
            }
            let others: Vec<usize> = edge.before.iter().copied().filter(|call| !inside(call)).collect();
            if !others.is_empty() {
                let (caught, free) = edge.after.iter().partition(|call| inside(call));
                edge.after = free;
                split.push(Edge {
                    before: others,
                    after: caught,
                    ..edge.clone()
                });
            }
        }
        let any = !split.is_empty();
        let keys = self.edges.split_off(*keyless);
        self.edges.append(&mut split);
        self.edges.retain(|edge| !edge.after.is_empty());
        *keyless = self.edges.len();
        self.edges.extend(keys);
        any
    }

    /// Edges for guesses; those that would close a cycle are taken out again.
    fn guesses(&mut self, on_guess: OnGuess) -> Vec<Guessed> {
        let mut suspicions = std::mem::take(&mut self.findings.suspicions);
        if on_guess == OnGuess::Refuse {
            suspicions.clear();
        }
        let mut guessed = Vec::with_capacity(suspicions.len());
        // The suspicion that each edge is for.
        let mut field_of = Vec::new();
        for (field, suspicion) in suspicions.iter_mut().enumerate() {
            suspicion
                .guesses
                .retain(|&(consumer, _)| !self.findings.refusals.has(consumer));
            let consumers: Vec<usize> = suspicion.guesses.iter().map(|&(consumer, _)| consumer).collect();
            let reach = self.edges_by_reach(
                &mut suspicion.producers,
                &consumers,
                EdgeReason::Guess,
                suspicion.field,
            );
            field_of.resize(self.edges.len() - self.mandatory, field);
            guessed.push(Guessed {
                producers: suspicion.producers.as_slice().into(),
                reach,
            });
        }
        if self.edges.len() > self.mandatory && !self.all_forward() {
            let dropped = self.drop_closing_guesses(&field_of);
            for (field, (suspicion, guessed)) in suspicions.iter().zip(&mut guessed).enumerate() {
                for (&(consumer, _), reach) in suspicion.guesses.iter().zip(&mut guessed.reach) {
                    if dropped.contains(&(field, consumer)) {
                        *reach = 0;
                    }
                }
            }
        }
        self.findings.suspicions = suspicions;
        guessed
    }

    /// Of the guesses on a cycle, only those are kept that lead forward in an order that the mandatory edges allow, the
    /// model's own where they do. Returns what was dropped: field and consumer.
    fn drop_closing_guesses(&mut self, field_of: &[usize]) -> HashSet<(usize, usize)> {
        let calls = self.findings.calls.len();
        let components = Components::new(calls, &self.edges);
        let mut rank = vec![0; calls];
        self.stages
            .iter()
            .flatten()
            .enumerate()
            .for_each(|(place, &call)| rank[call] = place);
        let place = graph::order(calls, &self.edges[..self.mandatory], &rank);
        let mut dropped = HashSet::new();
        for (index, edge) in self.edges.iter_mut().enumerate().skip(self.mandatory) {
            let component = components.of_edge(index);
            let inside = |call: usize| components.of_call(call) == component;
            let last = edge
                .before
                .iter()
                .filter(|&&call| inside(call))
                .map(|&call| place[call])
                .max();
            edge.after.retain(|&consumer| {
                let closes = inside(consumer) && last.is_some_and(|last| last >= place[consumer]);
                if closes {
                    dropped.insert((field_of[index - self.mandatory], consumer));
                }
                !closes
            });
        }
        self.edges.retain(|edge| !edge.after.is_empty());
        dropped
    }

    fn finish(self, guessed: Vec<Guessed>, on_guess: OnGuess) -> Plan {
        let Findings {
            calls,
            mut refusals,
            mentions,
            suspicions,
            leans_on_earlier,
            ..
        } = self.findings;
        let mut unverified = Vec::new();
        let mut guesses = Vec::new();
        for (suspicion, guessed) in suspicions.iter().zip(guessed) {
            let returned_by: Arc<str> = tools(calls, &suspicion.producers).into();
            for (&(consumer, value), reach) in suspicion.guesses.iter().zip(guessed.reach) {
                if reach > 0 && on_guess == OnGuess::Check {
                    guesses.push(Guess {
                        consumer,
                        tool: Arc::clone(&calls[consumer].tool),
                        field: Arc::clone(suspicion.field),
                        value: value.clone(),
                        returned_by: Arc::clone(&returned_by),
                        all_producers: Arc::clone(&guessed.producers),
                        reach,
                    });
                } else {
                    unverified.push((consumer, suspicion.field.to_string()));
                }
            }
        }
        guesses.sort_by_key(|guess| guess.consumer);
        unverified.sort();
        unverified.dedup();
        refusals.errors.sort_by_key(|&(position, _)| position);
        let mut references: Vec<Reference> = mentions
            .into_iter()
            .filter(|mention| !refusals.has(mention.consumer))
            .map(|mention| Reference {
                consumer: mention.consumer,
                producer: mention.producer,
                head: mention.head.into(),
            })
            .collect();
        references.dedup();
        Plan {
            stages: self.stages,
            edges: self.edges,
            refused: refusals.errors,
            unverified,
            references,
            guesses,
            leans_on_earlier,
        }
    }
}

/// How a call is named in an edge: by its id, else by its position.
fn name(call: &ResolvedCall, position: usize) -> Arc<str> {
    if call.id.is_empty() {
        format!("#{position}").into()
    } else {
        Arc::clone(&call.id)
    }
}

fn push_once(calls: &mut Vec<usize>, call: usize) {
    // Consumers come in order.
    if calls.last() != Some(&call) {
        calls.push(call);
    }
}

fn behind_a_barrier(producer: &ResolvedCall, consumer: &ResolvedCall) -> CallError {
    CallError::new(
        ErrorCode::DependencyCycle,
        format!(
            "{} needs the answer of {}, which can't run before it: a write or a call that runs alone stands between. \
             Call {} after it.",
            consumer.tool, producer.tool, consumer.tool
        ),
    )
}
