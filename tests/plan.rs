//! Decisions, stages, edges, placeholders and guesses, under the standard policy if nothing else is said.

use std::sync::Arc;

use coeval::plan::{Condition, EdgeReason, Plan, Policy, text};
use coeval::reading::ErrorCode;
use coeval::tool::Class;
use serde_json::{Value, json};

use crate::support::resolved::{Made, World, call, edge, read, refused, set, unknown, write};

mod declared;
mod guesses;
mod keys;
mod placeholders;
mod properties;

fn plan(calls: impl IntoIterator<Item = Made>) -> Plan {
    World::standard().of(calls).1
}

fn conditions(calls: impl IntoIterator<Item = Made>) -> Vec<Condition> {
    World::standard()
        .of(calls)
        .0
        .evidence
        .iter()
        .map(|evidence| evidence.condition)
        .collect()
}

/// `list_orders` returns the ids of orders; `get_order` takes one.
fn orders() -> Made {
    read("list_orders").returns(&["order_id", "status"])
}

fn order(id: impl Into<Value>) -> Made {
    read("get_order").with(json!({ "order_id": id.into() }))
}

#[test]
fn nothing_against_it_is_parallel_without_a_reason() {
    let (decision, plan) = World::standard().of([read("a"), read("b")]);
    assert!(decision.parallel);
    assert_eq!(
        (decision.reason, decision.dependency, decision.disjoint_writes),
        (None, None, None)
    );
    assert_eq!((plan.stages, plan.edges), (vec![vec![0, 1]], vec![]));
    assert_eq!(World::standard().of([]).1.stages, Vec::<Vec<usize>>::new());
}

/// AT-06: the first condition that fails is the reason, and all that fail are told.
#[test]
fn the_first_condition_is_the_reason_and_all_are_evidence() {
    let mut world = World::standard();
    world.allowances.0.push(("crm", 1));
    let all = || {
        let orders = orders().on("crm");
        [
            orders,
            order(7).on("crm"),
            read("open").needs("get_order"),
            write("w"),
        ]
    };
    let order = [
        Condition::ContainsWrite,
        Condition::Dependency,
        Condition::RateLimit,
        Condition::ConcurrentPrecondition,
    ];
    let (decision, _) = world.of(all());
    assert_eq!(decision.reason, Some(Condition::ContainsWrite));
    assert_eq!(
        decision.dependency, None,
        "the dependency is named only if it is the reason"
    );
    assert_eq!(
        decision
            .evidence
            .iter()
            .map(|evidence| evidence.condition)
            .collect::<Vec<_>>(),
        order
    );
    assert_eq!(
        decision
            .evidence
            .iter()
            .map(|evidence| &*evidence.calls)
            .collect::<Vec<_>>(),
        [&[3][..], &[0, 1], &[0, 1], &[1, 2]]
    );
    let (decision, _) = world.of(all().into_iter().take(1).chain([read("x").on("crm")]));
    assert_eq!(decision.reason, Some(Condition::RateLimit));
    assert_eq!(decision.dependency.as_deref(), Some("crm"));
    assert!(decision.evidence[0].detail.contains("2 calls") && decision.evidence[0].detail.contains("is 1"));
}

/// Exclusive and unknown calls count under `contains_write`, by name and with the reason.
#[test]
fn exclusive_and_unknown_calls_are_named_in_the_evidence() {
    let mut alone = call("vacuum", Class::Exclusive);
    Arc::make_mut(&mut alone.0.facts).because = Some("its classifier panicked".into());
    let (decision, plan) =
        World::standard().of([read("a"), alone.clone(), unknown("frobnicate"), alone, write("w")]);
    assert_eq!(plan.stages, [[0], [1], [2], [3], [4]]);
    let evidence: Vec<_> = decision
        .evidence
        .iter()
        .map(|it| (&*it.calls, &*it.detail))
        .collect();
    assert_eq!(
        evidence,
        [
            (&[4][..], "w may write"),
            (&[1, 3], "vacuum must run alone: its classifier panicked"),
            (&[2], "frobnicate must run alone: There is no tool frobnicate."),
        ]
    );
    assert!(
        decision
            .evidence
            .iter()
            .all(|it| it.condition == Condition::ContainsWrite)
    );
    assert_eq!(refused(&plan), [(2, ErrorCode::UnknownTool)]);
}

/// Arguments that don't fit make a call no barrier: it is answered, and its siblings run side by side. Nor does it ask
/// anything of its dependency.
#[test]
fn a_read_with_unusable_arguments_divides_nothing() {
    let mut world = World::standard();
    world.allowances.0.push(("crm", 1));
    let bad = read("b").on("crm").fault(ErrorCode::InvalidArguments);
    let (decision, plan) = world.of([read("a").on("crm"), bad.clone(), read("c")]);
    assert!(decision.parallel);
    assert_eq!(plan.stages, [[0, 1, 2]]);
    assert_eq!(refused(&plan), [(1, ErrorCode::InvalidArguments)]);
    // DS-01: one profile says otherwise.
    assert_eq!(
        World::under(Policy::harness())
            .of([read("a"), bad, read("c")])
            .1
            .stages,
        [[0], [1], [2]]
    );
}

/// AT-16: any key undefined or equal to another means that writes are not confined to different things. The default
/// policy never acts on it.
#[test]
fn disjoint_writes_are_told_and_not_acted_on() {
    let disjoint = |calls: Vec<Made>| World::standard().of(calls).0.disjoint_writes;
    let (a, b) = (|| write("w").confined("a"), || write("w").confined("b"));
    assert_eq!(disjoint(vec![read("r").confined("a")]), None);
    assert_eq!(disjoint(vec![a(), b(), read("r").confined("a")]), Some(true));
    assert_eq!(disjoint(vec![a(), b(), a()]), Some(false));
    assert_eq!(disjoint(vec![a(), write("w")]), Some(false));
    assert_eq!(disjoint(vec![a(), unknown("x")]), Some(false));
    assert_eq!(plan([a(), b()]).stages, [[0], [1]]);

    let mut world = World::standard();
    world.policy.act_on_disjoint_writes = true;
    let (decision, plan) = world.of([a(), b(), a(), write("w"), b(), read("r"), a()]);
    assert_eq!(
        plan.stages,
        [vec![0, 1], vec![2], vec![3], vec![4], vec![5], vec![6]]
    );
    assert_eq!(decision.reason, Some(Condition::ContainsWrite));
    // What names the same resource still waits.
    let plan = world.of([a().writes("k"), b().writes("k")]).1;
    assert_eq!(plan.edges, [edge(&[0], &[1], EdgeReason::Key, "k")]);
}

/// An undeclared allowance is the default, never unlimited (AT-21); only the reason is told, nothing is serialised.
#[test]
fn an_allowance_that_nobody_declared_is_the_default() {
    let reads = |count| (0..count).map(|_| read("r")).collect::<Vec<_>>();
    assert_eq!(conditions(reads(8)), []);
    let (decision, plan) = World::standard().of(reads(9));
    assert_eq!(decision.reason, Some(Condition::RateLimit));
    assert_eq!(decision.evidence[0].calls, (0..9).collect::<Vec<_>>());
    assert_eq!((plan.stages.len(), plan.edges.len()), (1, 0));
}

/// The contract: stages and edges, spelled like this.
#[test]
fn decision_and_plan_are_json_and_come_back() {
    let mut world = World::standard();
    world.allowances.0.push(("crm", 1));
    let (decision, plan) = world.of([read("a").id("c1").on("crm"), read("b").on("crm").after("c1")]);
    let json = json!({"decision": decision, "plan": plan});
    assert_eq!(
        json,
        json!({
            "decision": {
                "parallel": false, "reason": "dependency", "dependency": null, "disjointWrites": null,
                "evidence": [
                    {"condition": "dependency", "calls": [0, 1], "detail": "declared by `after`"},
                    {"condition": "rate_limit", "calls": [0, 1], "detail": "\"crm\" is asked for 2 calls, its allowance is 1"},
                ],
            },
            "plan": {
                "stages": [[0, 1]],
                "edges": [{"before": [0], "after": [1], "reason": "after", "detail": "c1"}],
            },
        })
    );
    assert_eq!(
        serde_json::from_value::<Plan>(json["plan"].clone())
            .unwrap()
            .edges,
        plan.edges
    );
    assert_eq!(
        serde_json::from_value::<coeval::plan::Decision>(json["decision"].clone()).unwrap(),
        decision
    );
}

#[test]
fn the_text_tells_every_reason_and_draws_the_order() {
    let calls = set([
        orders().id("c1"),
        order(7).id("c2"),
        write("cancel_order").id("c3"),
        unknown("frobnicate"),
        read("list\u{1b}[2J"),
    ]);
    let (decision, plan) = World::standard().plan(&calls);
    let expected = r#"not all at once: contains_write
  contains_write  c3     cancel_order may write
  contains_write  #3     frobnicate must run alone: There is no tool frobnicate.
  dependency      c1 c2  "order_id" of get_order looks guessed: list_orders returns it
  the writes may touch the same things

┌ 1 ──────────────────────────────────────────┐
│ c1 list_orders                              │
│ c2 get_order     after c1 (guess: order_id) │
└──────────────────────▼──────────────────────┘
┌ 2 ──────────────────────────────────────────┐
│ c3 cancel_order                             │
└──────────────────────▼──────────────────────┘
┌ 3 ──────────────────────────────────────────┐
│ #3 frobnicate    doesn't run (unknown_tool) │
└──────────────────────▼──────────────────────┘
┌ 4 ──────────────────────────────────────────┐
│ #4 list�[2J                                 │
└─────────────────────────────────────────────┘

answered without running:
  #3 unknown_tool: There is no tool frobnicate.

looked up before they run:
  c2 order_id, in what list_orders returns
"#;
    let text = text::render(&calls, &decision, &plan);
    assert!(text == expected, "{text}");
}
