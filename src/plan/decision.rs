//! The decision: which of the four conditions fail, from what was found.

use std::sync::Arc;

use foldhash::{HashMap, HashMapExt, HashSet, HashSetExt};

use super::finding::{Findings, class, tools};
use super::{Condition, Context, Decision, Evidence};
use crate::tool::Class;

pub(super) fn decision(findings: &Findings<'_>, context: &Context<'_>) -> Decision {
    let mut evidence = Vec::new();
    let disjoint_writes = writes(findings, context, &mut evidence);
    dependencies(findings, &mut evidence);
    let overloaded = rates(findings, context, &mut evidence);
    preconditions(findings, &mut evidence);
    let reason = evidence.first().map(|first| first.condition);
    Decision {
        parallel: reason.is_none(),
        reason,
        dependency: overloaded.filter(|_| reason == Some(Condition::RateLimit)),
        evidence,
        disjoint_writes,
    }
}

/// Calls that write, and calls that run alone for another reason. Returns whether the writes are confined to different
/// things (AT-16): not if one of them isn't confined at all.
fn writes(findings: &Findings<'_>, context: &Context<'_>, evidence: &mut Vec<Evidence>) -> Option<bool> {
    let mut writers = Vec::new();
    let mut alone: Vec<(String, Vec<usize>)> = Vec::new();
    let mut known: HashMap<(&str, Option<&str>), usize> = HashMap::new();
    let mut partitions: HashSet<&str> = HashSet::new();
    let mut disjoint = None;
    for (position, call) in findings.calls.iter().enumerate() {
        let class = class(call, context.policy);
        if class == Class::Read {
            continue;
        }
        let confined = call
            .partition_key
            .as_deref()
            .is_some_and(|key| partitions.insert(key));
        disjoint = Some(disjoint.unwrap_or(true) && confined);
        if class == Class::Write {
            writers.push(position);
            continue;
        }
        let because = match &call.fault {
            Some(fault) => Some(fault.message()),
            None => call.facts.because.as_deref(),
        };
        let index = *known.entry((&call.tool, because)).or_insert_with(|| {
            let why = because.map(|why| format!(": {why}")).unwrap_or_default();
            alone.push((format!("{} must run alone{why}", call.tool), Vec::new()));
            alone.len() - 1
        });
        alone[index].1.push(position);
    }
    if !writers.is_empty() {
        let detail = format!("{} may write", tools(findings.calls, &writers));
        evidence.push(Evidence {
            condition: Condition::ContainsWrite,
            calls: writers,
            detail,
        });
    }
    let alone = alone.into_iter();
    evidence.extend(alone.map(|(detail, calls)| Evidence {
        condition: Condition::ContainsWrite,
        calls,
        detail,
    }));
    disjoint
}

fn dependencies(findings: &Findings<'_>, evidence: &mut Vec<Evidence>) {
    let mut add = |mut calls: Vec<usize>, detail: String| {
        calls.sort_unstable();
        calls.dedup();
        evidence.push(Evidence {
            condition: Condition::Dependency,
            calls,
            detail,
        });
    };
    if !findings.after.is_empty() {
        let calls = findings
            .after
            .iter()
            .flat_map(|&(producer, consumer)| [producer, consumer]);
        add(calls.collect(), "declared by `after`".to_owned());
    }
    if let Some(first) = findings.mentions.first() {
        let calls = findings
            .mentions
            .iter()
            .flat_map(|mention| [mention.producer, mention.consumer]);
        let others = findings.mentions.iter().any(|mention| mention.text != first.text);
        let detail = format!(
            "arguments refer to {}{}",
            first.text,
            if others { " and others" } else { "" }
        );
        add(calls.collect(), detail);
    }
    for suspicion in &findings.suspicions {
        let consumers: Vec<usize> = suspicion.guesses.iter().map(|&(consumer, _)| consumer).collect();
        let detail = format!(
            "{:?} of {} looks guessed: {} returns it",
            suspicion.field,
            tools(findings.calls, &consumers),
            tools(findings.calls, &suspicion.producers)
        );
        add([consumers, suspicion.producers.clone()].concat(), detail);
    }
    let finer: HashSet<&str> = findings
        .suspicions
        .iter()
        .map(|suspicion| &**suspicion.field)
        .collect();
    for coarse in &findings.coarse {
        let consumers = tools(findings.calls, &coarse.consumers);
        let detail = match coarse.field {
            Some(field) if finer.contains(&**field) => continue,
            Some(field) => {
                format!(
                    "{consumers} is given {field:?}, which {} returns",
                    tools(findings.calls, &coarse.producers)
                )
            }
            None => format!("{consumers} is given text with {{{{ in it"),
        };
        add([coarse.consumers.as_slice(), &coarse.producers].concat(), detail);
    }
}

/// Returns the first dependency that is asked for too much.
fn rates(findings: &Findings<'_>, context: &Context<'_>, evidence: &mut Vec<Evidence>) -> Option<Arc<str>> {
    let mut first = None;
    // For each dependency that is asked for too much, its evidence.
    let mut over: Vec<Option<usize>> = Vec::with_capacity(findings.loads.len());
    for load in &findings.loads {
        let allowance = context.allowances.allowance(load.dependency);
        over.push((load.calls > allowance).then(|| {
            first.get_or_insert_with(|| Arc::clone(load.dependency));
            let detail = format!(
                "{:?} is asked for {} calls, its allowance is {allowance}",
                load.dependency, load.calls
            );
            let calls = Vec::with_capacity(load.calls);
            evidence.push(Evidence {
                condition: Condition::RateLimit,
                calls,
                detail,
            });
            evidence.len() - 1
        }));
    }
    if first.is_some() {
        for (position, &kind) in findings.kind_of.iter().enumerate() {
            if let Some(index) = over[findings.kinds[kind as usize].load]
                && !findings.is_faulty(position)
            {
                evidence[index].calls.push(position);
            }
        }
    }
    first
}

fn preconditions(findings: &Findings<'_>, evidence: &mut Vec<Evidence>) {
    for need in findings.needs.iter().filter(|need| !need.callers.is_empty()) {
        let mut calls = [need.requirers.as_slice(), &need.callers].concat();
        calls.sort_unstable();
        calls.dedup();
        let requirers = tools(findings.calls, &need.requirers);
        let detail = format!(
            "{requirers} needs {} to have succeeded, which is called in the same set",
            need.tool
        );
        evidence.push(Evidence {
            condition: Condition::ConcurrentPrecondition,
            calls,
            detail,
        });
    }
}
