//! Decisions, stages, edges, placeholders and guesses, under the standard policy if nothing else is said.

use std::sync::Arc;

use coeval::call::OnGuess;
use coeval::plan::{Condition, Edge, EdgeReason, Plan, Policy, precondition_met, text};
use coeval::reading::ErrorCode;
use coeval::tool::Class;
use serde_json::{Value, json};

use crate::support::resolved::{Made, World, call, edge, read, refused, set, unknown, write};

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

// ---------------------------------------------------------------------------------------------------------------------
// The decision

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

// ---------------------------------------------------------------------------------------------------------------------
// Keys

fn key(before: &[usize], after: &[usize], key: &str) -> Edge {
    edge(before, after, EdgeReason::Key, key)
}

#[test]
fn readers_of_a_key_share_it_and_writers_wait_in_the_models_order() {
    let (r, w) = (|| read("r").reads("k"), || read("w").writes("k"));
    assert_eq!(plan([r(), r(), read("x").writes("other")]).edges, []);
    let edges = plan([r(), r(), w(), r(), w(), w(), r(), r()]).edges;
    assert_eq!(
        edges,
        [
            key(&[0, 1], &[2], "k"),
            key(&[2], &[3], "k"),
            key(&[3], &[4], "k"),
            key(&[4], &[5], "k"),
            key(&[5], &[6, 7], "k"),
        ]
    );
    // Keys are no condition: they cost order, not parallelism.
    assert_eq!(conditions([w(), w()]), []);
}

/// A call that reads and writes a key, or names it twice, doesn't wait for itself.
#[test]
fn a_call_never_waits_for_itself_by_key() {
    let both = || {
        read("b")
            .reads("k")
            .writes("k")
            .writes("k")
            .reads("k/x")
            .writes("k/x/y")
            .reads("j")
    };
    assert_eq!(plan([both()]).edges, []);
    let edges = plan([both(), both()]).edges;
    assert!(
        edges.iter().all(|edge| edge.before == [0] && edge.after == [1]),
        "{edges:?}"
    );
}

/// B43: a directory and what is in it are the same resource, two things in it are not.
#[test]
fn a_path_stands_for_everything_below_it() {
    let waits = |first: Made, second: Made| !plan([first, second]).edges.is_empty();
    let (r, w) = (|key| read("r").reads(key), |key| read("w").writes(key));
    assert!(
        waits(w("dir/x"), r("dir")),
        "a scan sees the file that was written before"
    );
    assert!(waits(r("dir"), w("dir/x")));
    assert!(waits(w("dir"), r("dir/x/y")));
    assert!(waits(w("dir/x/"), w("dir/x")));
    assert!(waits(w("/"), r("/dir/x")));
    assert!(!waits(w("dir/x"), w("dir/y")));
    assert!(!waits(w("dir/x"), r("dir/xy")));
    assert!(!waits(r("dir"), r("dir/x")));
    assert!(!waits(w("a:b"), w("a:b:c")), "only a slash makes a path");
    assert!(!waits(w("dir"), w("/dir")));
    assert_eq!(plan([w("dir/x"), r("dir")]).edges, [key(&[0], &[1], "dir")]);
    // Whatever is deeper than anybody's tree is one thing with its 64th ancestor.
    let deep = |end: &str| format!("{}{end}", "d/".repeat(70));
    assert!(waits(w(&deep("x")), w(&deep("y"))));
}

/// A write before a barrier has ended: no edge is needed across it (B42, B79).
#[test]
fn keys_count_within_a_stage_only() {
    let plan = plan([
        read("r").reads("k"),
        write("w").writes("k"),
        read("r").reads("k"),
        read("s").writes("k"),
    ]);
    assert_eq!(plan.stages, [vec![0], vec![1], vec![2, 3]]);
    assert_eq!(plan.edges, [key(&[2], &[3], "k")]);
}

/// Calls that never run hold no key, so that the order goes on around them.
#[test]
fn the_order_of_a_key_leads_around_refused_calls() {
    let w = |id: &str| read("w").id(id).writes("k");
    let faulty = w("b").fault(ErrorCode::InvalidArguments);
    assert_eq!(plan([w("a"), faulty, w("c")]).edges, [key(&[0], &[2], "k")]);
    // Refused for a reason that is found later: `b` and `c` need each other.
    let cyclic = plan([w("a"), w("b").after("c"), w("c"), w("d")]);
    assert_eq!(
        refused(&cyclic),
        [(1, ErrorCode::DependencyCycle), (2, ErrorCode::DependencyCycle)]
    );
    assert_eq!(cyclic.edges, [key(&[0], &[3], "k")]);
}

// ---------------------------------------------------------------------------------------------------------------------
// Declared dependencies

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

// ---------------------------------------------------------------------------------------------------------------------
// Placeholders

fn text(argument: &str) -> Value {
    json!({ "x": argument })
}

#[test]
fn a_head_is_an_id_else_a_tool_and_the_single_one_before_if_several_fit() {
    let plan = plan([
        read("find").id("c1"),
        read("list"),
        read("use").with(json!({"deep": [{"y": "{{c1.id}} and {{list.n}}"}]})),
        read("use").with(text("{{c1.id}}")),
        read("list"),
        read("late").with(text("{{list.n}}")),
        // An id comes before a tool.
        read("other").id("find"),
        read("use").with(text("{{find.z}}")),
    ]);
    assert_eq!(refused(&plan), [(5, ErrorCode::ReferenceAmbiguous)]);
    assert_eq!(
        plan.edges,
        [
            edge(&[0], &[2, 3], EdgeReason::Placeholder, "{{c1.id}}"),
            edge(&[1], &[2], EdgeReason::Placeholder, "{{list.n}}"),
            edge(&[6], &[7], EdgeReason::Placeholder, "{{find.z}}"),
        ]
    );
    let heads = |consumer| {
        let references = plan.references_of(consumer).iter();
        references
            .map(|reference| (&*reference.head, reference.producer))
            .collect::<Vec<_>>()
    };
    assert_eq!(heads(2), [("c1", 0), ("list", 1)]);
    assert_eq!(heads(7), [("find", 6)]);
    assert_eq!(heads(5), []);
}

/// The last of several calls of one tool means the one before it, not itself.
#[test]
fn a_tool_may_follow_itself() {
    let plan = plan([read("page"), read("page").with(text("{{page.next}}"))]);
    assert_eq!(
        plan.edges,
        [edge(&[0], &[1], EdgeReason::Placeholder, "{{page.next}}")]
    );
}

/// An unknown head is an error if it is the whole string, else it is text; `$15` and escapes are text (B55, AT-20).
#[test]
fn unknown_heads_alone_are_errors_and_in_text_are_text() {
    let (decision, plan) = World::standard().of([
        read("a").with(text("{{nobody.x}}")),
        read("b").with(text("Dear {{name}}, ")),
        read("c").with(text("$15 {{{{a}} {{ {{}} {{a b}}")),
        read("d").with(text(" {{nobody}}")),
    ]);
    assert_eq!(refused(&plan), [(0, ErrorCode::ReferenceUnresolved)]);
    assert!(
        plan.refused[0].1.message().contains("{{{{"),
        "it says how to mend it"
    );
    assert!(decision.parallel);
}

#[test]
fn a_placeholder_for_itself_is_a_cycle() {
    let plan = plan([
        read("a").with(text("{{a.x}}")),
        read("b").id("b").with(text("see {{b}}")),
    ]);
    assert_eq!(
        refused(&plan),
        [(0, ErrorCode::DependencyCycle), (1, ErrorCode::DependencyCycle)]
    );
}

// ---------------------------------------------------------------------------------------------------------------------
// Guesses

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

// ---------------------------------------------------------------------------------------------------------------------
// Preconditions

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

// ---------------------------------------------------------------------------------------------------------------------
// JSON and text

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
