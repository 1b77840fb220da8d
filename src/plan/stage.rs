//! Stages: which calls may run side by side at all.

use foldhash::{HashMap, HashMapExt, HashSet, HashSetExt};

use super::Policy;
use super::finding::{Findings, class};
use super::policy::Order;
use crate::tool::{Class, ResolvedCall};

/// Puts every position into exactly one stage.
pub(super) fn stages(findings: &Findings<'_>, policy: &Policy, parallel: bool) -> Vec<Vec<usize>> {
    let calls = findings.calls;
    match policy.order {
        Order::Barriers => barriers(calls, policy),
        Order::OneAtATimeUnlessFree if parallel && !calls.is_empty() => vec![(0..calls.len()).collect()],
        Order::OneAtATimeUnlessFree => (0..calls.len()).map(|position| vec![position]).collect(),
        Order::FirstFitWaves => waves(findings, policy),
    }
}

/// The stage of each position.
pub(super) fn stage_of(stages: &[Vec<usize>], calls: usize) -> Vec<usize> {
    let mut stage_of = vec![0; calls];
    for (stage, positions) in stages.iter().enumerate() {
        positions.iter().for_each(|&position| stage_of[position] = stage);
    }
    stage_of
}

/// Consecutive reads share a stage; everything else is alone, in the model's order.
fn barriers(calls: &[&ResolvedCall], policy: &Policy) -> Vec<Vec<usize>> {
    let mut stages: Vec<Vec<usize>> = Vec::new();
    let mut last = None;
    // What the writes of the last stage are confined to.
    let mut partitions: HashSet<&str> = HashSet::new();
    for (position, call) in calls.iter().enumerate() {
        let class = class(call, policy);
        let partition = call
            .partition_key
            .as_deref()
            .filter(|_| policy.act_on_disjoint_writes && class == Class::Write);
        let joins = match class {
            Class::Read => last == Some(Class::Read),
            _ => !partitions.is_empty() && partition.is_some_and(|key| partitions.insert(key)),
        };
        match stages.last_mut() {
            Some(stage) if joins => stage.push(position),
            _ => {
                stages.push(vec![position]);
                partitions.clear();
                partitions.extend(partition);
            }
        }
        last = Some(class);
    }
    stages
}

/// First-fit waves: a safe call joins the first wave of safe calls that has none of its keys, so it may overtake.
///
/// A key is never shared, whether it is read or written, and only safe calls are asked for theirs (LC-08). With several
/// keys the call goes behind the last wave of any of them. A call that depends on others of the set overtakes nothing:
/// waves know no dependencies, and it must not come before its producers.
fn waves(findings: &Findings<'_>, policy: &Policy) -> Vec<Vec<usize>> {
    let calls = findings.calls;
    let mut dependent = vec![false; calls.len()];
    let afters = findings.after.iter().map(|&(_, consumer)| consumer);
    let mentions = findings.mentions.iter().map(|mention| mention.consumer);
    let needs = findings.needs.iter().flat_map(|need| &need.requirers).copied();
    let guesses = findings
        .suspicions
        .iter()
        .flat_map(|suspicion| &suspicion.guesses)
        .map(|&(consumer, _)| consumer);
    afters
        .chain(mentions)
        .chain(needs)
        .chain(guesses)
        .for_each(|consumer| dependent[consumer] = true);

    let mut stages: Vec<Vec<usize>> = Vec::new();
    // The stages that are waves of safe calls, and for each key the first of these behind all that have it.
    let mut safe: Vec<usize> = Vec::new();
    let mut free: HashMap<&str, usize> = HashMap::new();
    for (position, call) in calls.iter().enumerate() {
        if class(call, policy) != Class::Read {
            stages.push(vec![position]);
            continue;
        }
        let keys = || call.keys.reads.iter().chain(&call.keys.writes).map(|key| &**key);
        let mut wave = keys().filter_map(|key| free.get(key)).copied().max().unwrap_or(0);
        if dependent[position] {
            let last_is_safe = safe.last().is_some_and(|&stage| stage + 1 == stages.len());
            wave = wave.max(if last_is_safe { safe.len() - 1 } else { safe.len() });
        }
        if wave == safe.len() {
            safe.push(stages.len());
            stages.push(Vec::new());
        }
        stages[safe[wave]].push(position);
        keys().for_each(|key| {
            free.insert(key, wave + 1);
        });
    }
    stages
}
