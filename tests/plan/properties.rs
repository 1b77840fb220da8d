//! What holds of every plan: properties over random sets.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use coeval::call::OnGuess;
use coeval::plan::{EdgeReason, Plan, Policy, PolicyName};
use coeval::reading::ErrorCode;
use coeval::tool::{Class, ResolvedCall};
use proptest::prelude::*;
use serde_json::{Value, json};

use crate::support::resolved::{Made, World, call, read, set};

/// A random call: what it is, what it names, what it is given.
fn any_call() -> impl Strategy<Value = Made> {
    let class = prop_oneof![8 => Just(Class::Read), 1 => Just(Class::Write), 1 => Just(Class::Exclusive)];
    let key = prop::sample::select(vec!["k", "d", "d/x", "d/y", "d/x/z"]);
    let after = prop::collection::vec(0_usize..12, 0..2);
    let text = prop::sample::select(vec![
        "{{t0.x}}",
        "{{c3}}",
        "a {{t1}} {{c5.y}}",
        "{{nobody}}",
        "{{{{",
        "17",
    ]);
    (
        (
            0..4_usize,
            class,
            prop::option::weighted(0.1, Just(ErrorCode::InvalidArguments)),
        ),
        (prop::option::of(key.clone()), prop::option::of(key)),
        (
            prop::option::weighted(0.2, after),
            prop::option::weighted(0.2, text),
        ),
        (
            prop::option::weighted(0.3, 0..3_u32),
            prop::option::weighted(0.3, 0..3_u32),
            prop::option::weighted(0.2, 0..4_usize),
        ),
    )
        .prop_map(
            |((tool, class, fault), (reads, writes), (after, text), (given, returns, needs))| {
                let mut made = call(&format!("t{tool}"), class);
                made = reads.into_iter().fold(made, Made::reads);
                made = writes.into_iter().fold(made, Made::writes);
                made = after.into_iter().flatten().fold(made, Made::after);
                let mut arguments = json!({});
                text.into_iter().for_each(|text| arguments["text"] = json!(text));
                given
                    .into_iter()
                    .for_each(|field| arguments[format!("f{field}")] = json!(field));
                made = made.with(arguments);
                made = returns
                    .into_iter()
                    .fold(made, |made, field| made.returns(&[&format!("f{field}")]));
                made = needs
                    .into_iter()
                    .fold(made, |made, tool| made.needs(&format!("t{tool}")));
                fault.into_iter().fold(made, Made::fault)
            },
        )
}

fn any_set() -> impl Strategy<Value = Vec<Arc<ResolvedCall>>> {
    prop::collection::vec(any_call(), 0..14).prop_map(|calls| {
        set(calls
            .into_iter()
            .enumerate()
            .map(|(position, made)| made.id(&format!("c{position}"))))
    })
}

fn any_policy() -> impl Strategy<Value = Policy> {
    (prop::sample::select(PolicyName::ALL.to_vec()), any::<bool>()).prop_map(|(name, act)| {
        let mut policy = Policy::named(name);
        policy.act_on_disjoint_writes = act;
        policy
    })
}

/// Pairs of one reason, both directions of a group written out.
fn pairs(plan: &Plan, reason: EdgeReason) -> BTreeSet<(usize, usize)> {
    let edges = plan.edges.iter().filter(|edge| edge.reason == reason);
    edges
        .flat_map(|edge| {
            edge.before
                .iter()
                .flat_map(|&b| edge.after.iter().map(move |&a| (b, a)))
        })
        .collect()
}

/// Whether each call waits, at last, for each other: by stages and edges.
fn reachable(plan: &Plan, calls: usize, reasons: &[EdgeReason]) -> Vec<Vec<bool>> {
    let mut before = vec![vec![false; calls]; calls];
    for edge in plan.edges.iter().filter(|edge| reasons.contains(&edge.reason)) {
        for (&b, &a) in edge
            .before
            .iter()
            .flat_map(|b| edge.after.iter().map(move |a| (b, a)))
        {
            before[b][a] = true;
        }
    }
    for middle in 0..calls {
        for from in 0..calls {
            if before[from][middle] {
                let further = before[middle].clone();
                before[from]
                    .iter_mut()
                    .zip(further)
                    .for_each(|(known, further)| *known |= further);
            }
        }
    }
    before
}

/// The same resource by the rule as it is written: equal, or one a path that contains the other.
fn same_resource(a: &str, b: &str) -> bool {
    let inside = |outer: &str, inner: &str| {
        inner
            .strip_prefix(outer)
            .is_some_and(|rest| rest.starts_with('/'))
    };
    a == b || inside(a, b) || inside(b, a)
}

fn conflict(a: &ResolvedCall, b: &ResolvedCall) -> bool {
    let all = |call: &ResolvedCall| [call.keys.reads.clone(), call.keys.writes.clone()].concat();
    let meets = |writes: &[Arc<str>], others: Vec<Arc<str>>| {
        writes
            .iter()
            .any(|write| others.iter().any(|other| same_resource(write, other)))
    };
    meets(&a.keys.writes, all(b)) || meets(&b.keys.writes, all(a))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    /// Same input, same plan; stages partition the positions; edges lead forward in the stages, name real calls, close no
    /// cycle, and don't make refused calls wait.
    #[test]
    fn plans_are_well_formed(calls in any_set(), policy in any_policy(), refuse in any::<bool>()) {
        let mut world = World::under(policy);
        world.on_guess = refuse.then_some(OnGuess::Refuse);
        let (decision, plan) = world.plan(&calls);
        prop_assert_eq!(&(decision.clone(), plan.clone()), &world.plan(&calls));
        prop_assert_eq!(decision.parallel, decision.evidence.is_empty());

        let mut staged: Vec<usize> = plan.stages.concat();
        staged.sort_unstable();
        prop_assert_eq!(staged, (0..calls.len()).collect::<Vec<_>>());
        prop_assert!(plan.stages.iter().all(|stage| !stage.is_empty() && stage.is_sorted()));

        let mut stage_of = vec![0; calls.len()];
        plan.stages.iter().enumerate().for_each(|(stage, calls)| calls.iter().for_each(|&call| stage_of[call] = stage));
        let refused: BTreeSet<usize> = plan.refused.iter().map(|(call, _)| *call).collect();
        prop_assert_eq!(refused.len(), plan.refused.len());
        for edge in &plan.edges {
            prop_assert!(!edge.before.is_empty() && !edge.after.is_empty());
            prop_assert!(edge.before.is_sorted_by(|a, b| a < b) && edge.after.is_sorted_by(|a, b| a < b), "{:?}", edge);
            for (&before, &after) in edge.before.iter().flat_map(|b| edge.after.iter().map(move |a| (b, a))) {
                prop_assert!(stage_of[before] <= stage_of[after], "{:?}", edge);
                prop_assert!(!refused.contains(&after), "{:?}", edge);
            }
        }
        let all = [EdgeReason::Key, EdgeReason::After, EdgeReason::Placeholder, EdgeReason::Precondition, EdgeReason::Guess];
        let reachable = reachable(&plan, calls.len(), &all);
        prop_assert!((0..calls.len()).all(|call| !reachable[call][call]), "a cycle: {:?}", plan.edges);
    }

    /// Every edge is justified by the calls, and every conflict over a key is ordered by the edges.
    #[test]
    fn edges_are_justified_and_conflicts_are_ordered(calls in any_set()) {
        let world = World::standard();
        let (_, plan) = world.plan(&calls);
        let refused: BTreeSet<usize> = plan.refused.iter().map(|(call, _)| *call).collect();
        for (before, after) in pairs(&plan, EdgeReason::Key) {
            prop_assert!(before < after && conflict(&calls[before], &calls[after]), "{} {}", before, after);
        }
        let ordered = reachable(&plan, calls.len(), &[EdgeReason::Key]);
        for stage in &plan.stages {
            for (&a, &b) in stage.iter().flat_map(|a| stage.iter().map(move |b| (a, b))).filter(|(a, b)| a < b) {
                if conflict(&calls[a], &calls[b]) && !refused.contains(&a) && !refused.contains(&b) {
                    prop_assert!(ordered[a][b], "{} before {}: {:?}", a, b, plan.edges);
                }
            }
        }
        for (before, after) in pairs(&plan, EdgeReason::After) {
            prop_assert!(calls[after].after.contains(&before.into()));
        }
        for (before, after) in pairs(&plan, EdgeReason::Placeholder) {
            prop_assert!(plan.references_of(after).iter().any(|reference| reference.producer == before));
            prop_assert!(calls[after].arguments["text"].as_str().unwrap().contains("{{"));
        }
        for (before, after) in pairs(&plan, EdgeReason::Precondition) {
            prop_assert!(calls[after].facts.preconditions.contains(&calls[before].tool));
        }
        for edge in plan.edges.iter().filter(|edge| edge.reason == EdgeReason::Guess) {
            for &before in &edge.before {
                prop_assert!(calls[before].facts.outputs.iter().any(|output| output.name == edge.detail));
                prop_assert!(!calls[before].arguments.contains_key(&*edge.detail));
            }
            prop_assert!(edge.after.iter().all(|&after| calls[after].arguments.contains_key(&*edge.detail)));
        }
    }

    /// G3: under every policy but loopctl no call overtakes a barrier, and only reads share a stage.
    #[test]
    fn no_call_overtakes_a_barrier(calls in any_set(), policy in any_policy()) {
        prop_assume!(policy.name != PolicyName::Loopctl && !policy.act_on_disjoint_writes);
        let (_, plan) = World::under(policy).plan(&calls);
        prop_assert!(plan.stages.concat().is_sorted());
        for stage in plan.stages.iter().filter(|stage| stage.len() > 1) {
            prop_assert!(stage.iter().all(|&call| calls[call].facts.class == Class::Read));
        }
    }

    /// G4, G6: who depends on another comes after it, or doesn't run.
    #[test]
    fn dependents_come_after_their_producers(calls in any_set(), policy in any_policy()) {
        let (_, plan) = World::under(policy).plan(&calls);
        let refused: BTreeSet<usize> = plan.refused.iter().map(|(call, _)| *call).collect();
        let after = pairs(&plan, EdgeReason::After);
        let tools: BTreeMap<usize, &str> = calls.iter().enumerate().map(|(position, call)| (position, &*call.tool)).collect();
        for (consumer, call) in calls.iter().enumerate().filter(|(consumer, _)| !refused.contains(consumer)) {
            for producer in (0..calls.len()).filter(|&producer| call.after.contains(&producer.into())) {
                prop_assert!(after.contains(&(producer, consumer)));
            }
            for need in call.facts.preconditions.iter() {
                let edges = plan.edges.iter().filter(|edge| edge.reason == EdgeReason::Precondition && edge.detail == *need);
                let before: Vec<usize> = edges.filter(|edge| edge.after.contains(&consumer)).flat_map(|edge| edge.before.clone()).collect();
                prop_assert!(!before.is_empty() && before.iter().all(|call| tools[call] == &**need));
            }
        }
    }

    /// Every suspected value is checked, told as unverified, or its call is refused; and grounding takes suspicion away.
    #[test]
    fn every_suspicion_is_answered_for(calls in any_set()) {
        let mut world = World::standard();
        let (_, plan) = world.plan(&calls);
        let runs = |call: usize| plan.refused.iter().all(|(refused, _)| *refused != call);
        for (consumer, call) in calls.iter().enumerate().filter(|(consumer, call)| runs(*consumer) && call.fault.is_none()) {
            for (field, _) in call.arguments.iter().filter(|(field, _)| field.starts_with('f')) {
                let suspect = calls.iter().enumerate().any(|(producer, call)| {
                    producer != consumer
                        && call.fault.is_none()
                        && call.facts.outputs.iter().any(|output| *output.name == **field)
                        && !call.arguments.contains_key(field)
                });
                let checked = plan.guesses_of(consumer).iter().any(|guess| *guess.field == **field);
                let told = plan.unverified.contains(&(consumer, field.clone()));
                prop_assert_eq!(suspect, checked || told);
                prop_assert!(!(checked && told));
            }
        }
        world.known = vec![json!([0, 1, 2])];
        let (_, plan) = world.plan(&calls);
        prop_assert!(plan.guesses.is_empty() && plan.unverified.is_empty());
    }

    /// The edges stay linear in the calls, whatever the calls are.
    #[test]
    fn plans_are_small(calls in any_set(), times in 1_usize..20) {
        let many: Vec<_> = calls.iter().cycle().take(calls.len() * times).cloned().collect();
        let (_, plan) = World::standard().plan(&many);
        let size: usize = plan.edges.iter().map(|edge| edge.before.len() + edge.after.len()).sum();
        // At most: two keys of three parts, two declared, three placeholders, a precondition and a guess, at both ends.
        prop_assert!(size <= 40 * many.len(), "{} for {}", size, many.len());
    }

    /// A value goes in as it is, wherever the placeholder stands.
    #[test]
    fn placeholders_round_trip(text in "[{}a-z\" .\\[\\]$0-9]{0,24}", name in "\\PC{1,8}", before in "[a-z ]{0,5}") {
        use coeval::dependency::{Reference, substitute};
        let placeholder = format!("{{{{c[{}]}}}}", json!(name));
        let value = json!({ name.clone(): text });
        let references = [Reference { consumer: 1, producer: 0, head: "c".into() }];
        let Value::Object(arguments) = json!({"alone": placeholder, "inside": format!("{before}{placeholder}!")}) else {
            unreachable!()
        };
        let filled = substitute(&Arc::new(arguments), &references, |_| Some(&value)).unwrap();
        prop_assert_eq!(&filled["alone"], &json!(text));
        prop_assert_eq!(&filled["inside"], &json!(format!("{before}{text}!")));
    }

    /// Nothing that comes in makes it panic, and without a reference a string changes by its escapes only.
    #[test]
    fn any_text_is_survived(text in "(\\{\\{|\\}\\}|\\.|\\[|\\]|\"|\\\\|c|0|ä| ){0,30}") {
        use coeval::dependency::substitute;
        let calls = set([read("a").id("c"), read("b").with(json!({"x": text}))]);
        let (_, plan) = World::standard().plan(&calls);
        let value = json!({"c": {"0": ["ä"]}});
        let _ = substitute(&calls[1].arguments, plan.references_of(1), |_| Some(&value));
        let untouched = substitute(&calls[1].arguments, &[], |_| None).unwrap();
        prop_assert_eq!(&untouched["x"], &json!(text.replace("{{{{", "{{")));
    }
}
