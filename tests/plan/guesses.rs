//! Guessed values: what is suspected, and what comes of it.

use coeval::call::OnGuess;
use coeval::plan::{Condition, EdgeReason};
use coeval::reading::ErrorCode;
use serde_json::{Value, json};

use super::{conditions, order, orders, plan};
use crate::support::resolved::{World, edge, read, refused, write};

/// B53, AT-03: a lookup whose key another call returns.
#[test]
fn a_value_named_like_a_siblings_output_is_a_guess_and_waits() {
    let (decision, plan) = World::standard().of([order(7), orders(), order("8"), read("x")]);
    assert_eq!(decision.reason, Some(Condition::Dependency));
    assert_eq!(decision.evidence[0].calls, [0, 1, 2]);
    assert_eq!(plan.stages, [[0, 1, 2, 3]]);
    assert_eq!(plan.edges, [edge(&[1], &[0, 2], EdgeReason::Guess, "order_id")]);
    let guess = &plan.guesses_of(0)[0];
    assert_eq!(
        (guess.consumer, &*guess.field, &guess.value),
        (0, "order_id", &json!(7))
    );
    assert_eq!((guess.producers(), guess.is_exhaustive()), (&[1][..], true));
    assert_eq!((&*guess.tool, &*guess.returned_by), ("get_order", "list_orders"));
    assert_eq!(plan.guesses_of(1), []);
    assert_eq!(plan.unverified, []);
}

/// AT-20: nested arguments count, and items of arrays stand under the array's name.
#[test]
fn nested_arguments_are_guesses_too() {
    for arguments in [
        json!({"filter": {"order_id": 7}}),
        json!({"filters": [{"a": 1}, {"order_id": 7}]}),
        json!({"order_id": [7]}),
    ] {
        assert_eq!(plan([orders(), read("get").with(arguments)]).guesses.len(), 1);
    }
    assert_eq!(
        plan([orders(), read("get").with(json!({"order_id": [7, 8]}))])
            .guesses
            .len(),
        2
    );
}

#[test]
fn only_strings_and_integers_are_guesses() {
    for value in [
        json!(null),
        json!(true),
        json!(1.5),
        json!({"x": 1}),
        json!([]),
        json!(""),
        json!("--"),
    ] {
        assert_eq!(plan([orders(), order(value.clone())]).edges, [], "{value}");
    }
}

/// A derived field counts only if it looks like an identifier's, a declared one always.
#[test]
fn derived_fields_count_if_they_look_like_identifiers() {
    let given = |name: &str| read("get").with(json!({ name: "open" }));
    let derived = |name: &str| plan([read("list").derives(&[name]), given(name)]).edges.len();
    assert_eq!(
        (derived("status"), derived("order_id"), derived("orderId")),
        (0, 1, 1)
    );
    assert_eq!(
        plan([read("list").returns(&["status"]), given("status")])
            .edges
            .len(),
        1
    );
    // One declares it, another derives it: only the first is a producer.
    let plan = plan([
        read("list").derives(&["status"]),
        read("show").returns(&["status"]),
        given("status"),
    ]);
    assert_eq!(plan.edges, [edge(&[1], &[2], EdgeReason::Guess, "status")]);
}

/// `status: "open"` beside a tool that returns `status` is a filter if the parameter has a closed list.
#[test]
fn a_parameter_with_a_closed_list_is_no_guess() {
    let filter = read("search").with(json!({"status": "open"})).filters("status");
    let (decision, plan) = World::standard().of([orders(), filter]);
    assert!(decision.parallel && plan.edges.is_empty());
}

/// An echo is no guess: two calls about the same account say its id again. Nor does a call that was given another id
/// return anything new under that name.
#[test]
fn a_producer_that_was_given_the_argument_says_it_again() {
    let about = |tool: &str, account: &str| {
        read(tool)
            .returns(&["account_id"])
            .with(json!({"account_id": account}))
    };
    assert_eq!(conditions([about("contract", "a"), about("orders", "a")]), []);
    assert_eq!(
        conditions([
            about("contract", "a"),
            about("contract", "b"),
            about("orders", "b")
        ]),
        []
    );
    // Without it, it is a producer; a null isn't given.
    assert_eq!(
        conditions([about("contract", "a"), read("find").returns(&["account_id"])]),
        [Condition::Dependency]
    );
    let null = read("find")
        .returns(&["account_id"])
        .with(json!({"account_id": null}));
    assert_eq!(
        conditions([about("contract", "a"), null]),
        [Condition::Dependency]
    );
}

/// AT-19: what a call returns itself is no source of its own argument.
#[test]
fn a_calls_own_outputs_are_left_out() {
    let own = read("get_account")
        .returns(&["account_id"])
        .with(json!({"account_id": "a"}));
    assert_eq!(conditions([own]), []);
}

/// A value that appears, as a whole token, in the question, in `known` or in an earlier result is no guess.
#[test]
fn grounded_values_are_no_guesses() {
    type Ground = fn(&mut World, Value);
    let grounds: [Ground; 3] = [
        |world, value| world.question = Some(format!("Where is {}?", value.as_str().unwrap_or("7"))),
        |world, value| world.known.push(value),
        |world, value| world.earlier.push(json!({"rows": [{"n": 1, "order_id": value}]})),
    ];
    for (index, ground) in grounds.into_iter().enumerate() {
        for value in [json!("ORD-123"), json!(7), json!("Henderson Ltd")] {
            let mut world = World::standard();
            ground(&mut world, value.clone());
            let (decision, plan) = world.of([orders(), order(value.clone())]);
            assert!(decision.parallel, "{index} {value}");
            // Hole 14: a reading leans on the earlier result that it got its argument from.
            assert_eq!(plan.leans_on_earlier, if index == 2 { vec![1] } else { vec![] });
            let (decision, _) = world.of([orders(), order("ORD-12")]);
            assert!(!decision.parallel, "a part of a token is none: {index}");
        }
    }
}

/// Said by the user counts before found earlier.
#[test]
fn a_value_that_the_question_names_leans_on_nothing() {
    let mut world = World::standard();
    world.earlier.push(json!({"order_id": 7}));
    world.question = Some("And order 7?".to_owned());
    assert!(world.of([orders(), order(7)]).1.leans_on_earlier.is_empty());
    // Nor does a value that no sibling returns.
    world.question = None;
    assert!(world.of([order(7)]).1.leans_on_earlier.is_empty());
}

/// B52: a guess is refused outright, or only serialised, if that is asked for.
#[test]
fn on_guess_says_what_happens() {
    let mut world = World::standard();
    world.on_guess = Some(OnGuess::Refuse);
    let (decision, plan) = world.of([orders(), order(7)]);
    assert_eq!(decision.reason, Some(Condition::Dependency));
    assert_eq!(refused(&plan), [(1, ErrorCode::GuessedArgument)]);
    assert_eq!((plan.edges, plan.guesses), (vec![], vec![]));

    world.on_guess = Some(OnGuess::Serialise);
    let (_, plan) = world.of([orders(), order(7)]);
    assert_eq!(plan.edges, [edge(&[0], &[1], EdgeReason::Guess, "order_id")]);
    assert_eq!(
        (plan.guesses, plan.unverified),
        (vec![], vec![(1, "order_id".to_owned())])
    );
}

/// A suspicion never closes a cycle: the one that agrees with the model's order is kept, the other is told.
#[test]
fn guesses_that_suspect_each_other_are_broken_in_the_models_order() {
    let list = || {
        read("list")
            .returns(&["order_id"])
            .with(json!({"account_id": "a"}))
    };
    let get = || read("get").returns(&["account_id"]).with(json!({"order_id": 7}));
    for (calls, field, dropped) in [
        ([list(), get()], "order_id", "account_id"),
        ([get(), list()], "account_id", "order_id"),
    ] {
        let plan = plan(calls);
        assert_eq!(refused(&plan), []);
        assert_eq!(plan.edges, [edge(&[0], &[1], EdgeReason::Guess, field)]);
        assert_eq!(plan.unverified, [(0, dropped.to_owned())]);
        assert_eq!((plan.guesses.len(), plan.guesses[0].consumer), (1, 1));
    }
}

/// The guess gives way to what is declared, whichever comes first.
#[test]
fn a_guess_against_a_declared_dependency_is_dropped() {
    let plan = plan([orders().after(1), order(7)]);
    assert_eq!(plan.edges, [edge(&[1], &[0], EdgeReason::After, "#1")]);
    assert_eq!(
        (plan.unverified, plan.guesses),
        (vec![(1, "order_id".to_owned())], vec![])
    );
}

/// A producer behind a barrier can't be waited for; with another one before it, only a find proves anything.
#[test]
fn producers_behind_a_barrier_leave_a_guess_unverified() {
    let late = plan([order(7), write("w"), orders()]);
    assert_eq!(
        (late.edges, late.unverified),
        (vec![], vec![(0, "order_id".to_owned())])
    );
    let both = plan([orders(), order(7), write("w"), orders(), order(8)]);
    assert_eq!(
        both.edges,
        [
            edge(&[0], &[1], EdgeReason::Guess, "order_id"),
            edge(&[3], &[4], EdgeReason::Guess, "order_id"),
        ]
    );
    assert_eq!(
        (both.guesses[0].producers(), both.guesses[0].is_exhaustive()),
        (&[0][..], false)
    );
    assert_eq!(
        (both.guesses[1].producers(), both.guesses[1].is_exhaustive()),
        (&[0, 3][..], true)
    );
}

/// A string with a placeholder is filled in, not guessed.
#[test]
fn a_placeholder_is_no_guess() {
    let plan = plan([orders(), order("{{list_orders.order_id}}")]);
    assert_eq!(
        plan.edges,
        [edge(
            &[0],
            &[1],
            EdgeReason::Placeholder,
            "{{list_orders.order_id}}"
        )]
    );
    assert_eq!(plan.guesses, []);
}
