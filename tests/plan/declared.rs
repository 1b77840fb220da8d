//! Declared dependencies and preconditions.

use coeval::plan::{Condition, EdgeReason, Plan, precondition_met};
use coeval::reading::ErrorCode;
use serde_json::json;

use super::plan;
use crate::support::resolved::{World, edge, read, refused, set, write};

#[test]
fn after_takes_ids_and_positions() {
    let (decision, plan) = World::standard().of([
        read("a").id("a"),
        read("b"),
        read("c").after("a").after(1).after("a"),
        read("d").after(0),
    ]);
    assert_eq!(decision.reason, Some(Condition::Dependency));
    assert_eq!(decision.evidence[0].calls, [0, 1, 2, 3]);
    assert_eq!(plan.stages, [[0, 1, 2, 3]]);
    assert_eq!(
        plan.edges,
        [
            edge(&[0], &[2, 3], EdgeReason::After, "a"),
            edge(&[1], &[2], EdgeReason::After, "#1"),
        ]
    );
}

/// Ids may be missing, empty or repeated (B23): then they name nobody, or several.
#[test]
fn after_must_name_exactly_one_call() {
    let twice = || read("a").id("same");
    let plan = plan([
        twice(),
        twice(),
        read("b").after("same"),
        read("c").after("nobody"),
        read("d").after(70),
        read("e").after(""),
        read("f").id("f").after("f"),
        read("g").after(70).with(json!({"x": "{{same}}"})),
    ]);
    use ErrorCode::{DependencyCycle, ReferenceAmbiguous, ReferenceUnresolved};
    assert_eq!(
        refused(&plan),
        [
            (2, ReferenceAmbiguous),
            (3, ReferenceUnresolved),
            (4, ReferenceUnresolved),
            (5, ReferenceUnresolved),
            (6, DependencyCycle),
            (7, ReferenceUnresolved),
        ]
    );
    assert_eq!(plan.edges, []);
    assert!(
        plan.refused
            .iter()
            .all(|(_, error)| error.message().ends_with('.')),
        "messages are sentences"
    );
}

#[test]
fn a_call_may_wait_for_a_later_one_of_its_stage_but_not_for_one_behind_a_barrier() {
    let forward = plan([read("a").after(1), read("b")]);
    assert_eq!(forward.edges, [edge(&[1], &[0], EdgeReason::After, "#1")]);
    let blocked = plan([
        read("a").after(2),
        read("b").with(json!({"x": "{{c.y}}"})),
        write("c"),
        read("d").after(2),
    ]);
    assert_eq!(
        refused(&blocked),
        [(0, ErrorCode::DependencyCycle), (1, ErrorCode::DependencyCycle)]
    );
    assert_eq!(
        blocked.edges,
        [edge(&[2], &[3], EdgeReason::After, "#2")],
        "across a barrier is fine"
    );
}

#[test]
fn those_that_need_each_other_are_refused_and_nobody_else() {
    let plan = plan([
        read("a").after(1),
        read("b").after(2),
        read("c").after(0),
        read("behind").after(0),
        read("before"),
        read("d").after(4),
    ]);
    let cycle = ErrorCode::DependencyCycle;
    assert_eq!(refused(&plan), [(0, cycle), (1, cycle), (2, cycle)]);
    // The call behind still waits for the refused one: that it failed is told there.
    assert_eq!(
        plan.edges,
        [
            edge(&[0], &[3], EdgeReason::After, "#0"),
            edge(&[4], &[5], EdgeReason::After, "#4"),
        ]
    );
}

/// A key is held in the model's order, so a writer that needs a later holder's output needs itself.
#[test]
fn keys_are_mandatory_too() {
    let plan = plan([read("a").writes("k").after(1), read("b").writes("k")]);
    assert_eq!(refused(&plan).len(), 2);
}

#[test]
fn a_precondition_is_free_an_edge_or_a_refusal() {
    let open = || read("open").needs("search");
    let mut world = World::standard();
    world.called = vec!["search".into()];
    assert!(
        world.of([open(), read("search")]).0.parallel,
        "met in an earlier turn"
    );

    let (decision, plan) = World::standard().of([read("search"), open(), read("search"), open()]);
    assert_eq!(decision.reason, Some(Condition::ConcurrentPrecondition));
    assert_eq!(decision.evidence[0].calls, [0, 1, 2, 3]);
    assert_eq!(
        plan.edges,
        [edge(&[0, 2], &[1, 3], EdgeReason::Precondition, "search")]
    );

    let (decision, plan) = World::standard().of([open(), read("x")]);
    assert!(decision.parallel);
    assert_eq!(refused(&plan), [(0, ErrorCode::PreconditionUnmet)]);

    // A call that never runs meets nothing.
    let never = read("search").fault(ErrorCode::InvalidArguments);
    assert_eq!(
        refused(&World::standard().of([never, open()]).1)[1],
        (1, ErrorCode::PreconditionUnmet)
    );
}

#[test]
fn a_precondition_that_only_a_later_stage_meets_is_unmet() {
    let open = || read("open").needs("search");
    let plan = plan([
        open(),
        write("w"),
        read("search"),
        open(),
        write("w"),
        open(),
        read("search"),
        open(),
    ]);
    assert_eq!(refused(&plan), [(0, ErrorCode::PreconditionUnmet)]);
    assert!(plan.refused[0].1.message().contains("later"));
    // Behind the second barrier only the new caller is listed: the first has ended.
    assert_eq!(
        plan.edges,
        [
            edge(&[2], &[3], EdgeReason::Precondition, "search"),
            edge(&[6], &[5, 7], EdgeReason::Precondition, "search"),
        ]
    );
}

/// Any of several callers will do, so one that waits for the requirer itself isn't waited for.
#[test]
fn a_caller_that_waits_for_the_requirer_is_not_waited_for() {
    let open = || read("open").id("open").needs("search");
    let plan1 = plan([
        read("search"),
        open(),
        read("search").after("open"),
        read("also").needs("search"),
    ]);
    assert_eq!(refused(&plan1), []);
    let precondition = |plan: &Plan| {
        let edges = plan
            .edges
            .iter()
            .filter(|edge| edge.reason == EdgeReason::Precondition);
        edges.cloned().collect::<Vec<_>>()
    };
    assert_eq!(
        precondition(&plan1),
        [
            edge(&[0, 2], &[3], EdgeReason::Precondition, "search"),
            edge(&[0], &[1], EdgeReason::Precondition, "search"),
        ]
    );
    // With no other, they need each other.
    let cycle = plan([open(), read("search").after("open")]);
    assert_eq!(
        refused(&cycle),
        [(0, ErrorCode::DependencyCycle), (1, ErrorCode::DependencyCycle)]
    );
}

/// B48, B50: preconditions are looked at again when a call starts.
#[test]
fn at_its_start_a_call_needs_all_its_preconditions() {
    let call = &set([read("edit").needs("open").needs("lock")])[0];
    assert_eq!(precondition_met(&call.tool, &call.facts, |_| true), Ok(()));
    let error = precondition_met(&call.tool, &call.facts, |tool| tool == "open").unwrap_err();
    assert_eq!(error.code(), ErrorCode::PreconditionUnmet);
    assert!(error.message().contains("lock"), "{error}");
}
