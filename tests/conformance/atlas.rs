//! The published rules: four conditions; any of them fails, and the calls run one at a time.

mod planned {
    use coeval::plan::{Condition, Policy};
    use serde_json::json;

    use crate::support::resolved::{Made, World, read, write};

    fn atlas() -> World {
        let mut world = World::under(Policy::atlas());
        world.allowances.0.push(("crm", 4));
        world
    }

    fn reason(calls: impl IntoIterator<Item = Made>) -> Option<Condition> {
        let (decision, plan) = atlas().of(calls);
        // AT-08: not parallel is one at a time, in the model's order.
        let alone = plan
            .stages
            .iter()
            .enumerate()
            .all(|(index, stage)| *stage == [index]);
        let together = plan.stages.len() <= 1;
        assert!(
            if decision.parallel { together } else { alone },
            "{:?}",
            plan.stages
        );
        decision.reason
    }

    fn order_status() -> Made {
        read("get_order_status").with(json!({"orderId": "o-1"}))
    }

    fn account_orders() -> Made {
        read("get_account_orders")
            .returns(&["orderId", "total"])
            .with(json!({"accountId": "a-1"}))
    }

    /// AT-01: any write, be it confined.
    #[test]
    fn a_write_is_never_parallel() {
        assert_eq!(reason([read("r"), write("w")]), Some(Condition::ContainsWrite));
        let disjoint = [write("w").confined("a"), write("w").confined("b")];
        assert_eq!(reason(disjoint), Some(Condition::ContainsWrite));
    }

    /// AT-02: braces anywhere in the arguments.
    #[test]
    fn braces_are_a_dependency() {
        assert_eq!(
            reason([read("r"), read("s").with(json!({"a": [{"b": "x {{y"}]}))]),
            Some(Condition::Dependency)
        );
    }

    /// AT-03.
    #[test]
    fn an_argument_named_like_anothers_output_is_a_dependency() {
        assert_eq!(
            reason([order_status(), account_orders()]),
            Some(Condition::Dependency)
        );
        assert_eq!(
            reason([account_orders(), order_status()]),
            Some(Condition::Dependency)
        );
    }

    /// AT-03: the published rule asks for the name alone, wherever the value comes from.
    #[test]
    fn where_the_value_comes_from_does_not_matter() {
        let mut world = atlas();
        world.question = Some("status of o-1?".to_owned());
        let (decision, plan) = world.of([account_orders(), order_status()]);
        assert_eq!(decision.reason, Some(Condition::Dependency));
        assert_eq!(plan.stages, [[0], [1]]);
        // AT-19: but a value that was seen is not told as guessed.
        assert_eq!((plan.unverified.len(), plan.edges.len()), (0, 0));
        assert!(!decision.evidence[0].detail.contains("guessed"), "{decision:?}");
    }

    /// AT-04: five on an allowance of four name the dependency; exactly four are fine.
    #[test]
    fn an_allowance_is_a_limit() {
        let reads = |count| (0..count).map(|_| read("r").on("crm")).collect::<Vec<_>>();
        let (decision, plan) = atlas().of(reads(5));
        assert_eq!(
            (decision.reason, decision.dependency.as_deref()),
            (Some(Condition::RateLimit), Some("crm"))
        );
        assert_eq!(plan.stages.len(), 5);
        assert_eq!(reason(reads(4)), None);
    }

    /// AT-05: whatever the order in the set.
    #[test]
    fn a_precondition_beside_its_caller_is_a_reason() {
        let (search, open) = (
            || read("search_tickets"),
            || read("open_ticket").needs("search_tickets"),
        );
        assert_eq!(
            reason([search(), open()]),
            Some(Condition::ConcurrentPrecondition)
        );
        assert_eq!(
            reason([open(), search()]),
            Some(Condition::ConcurrentPrecondition)
        );
    }

    /// AT-06: write, dependency, rate, precondition.
    #[test]
    fn the_first_rule_that_hits_is_the_reason() {
        let rest = || {
            (0..5)
                .map(|_| read("r").on("crm"))
                .chain([read("open").needs("r")])
        };
        assert_eq!(
            reason(
                [write("w"), account_orders(), order_status()]
                    .into_iter()
                    .chain(rest())
            ),
            Some(Condition::ContainsWrite)
        );
        assert_eq!(
            reason([account_orders(), order_status()].into_iter().chain(rest())),
            Some(Condition::Dependency)
        );
        assert_eq!(reason(rest()), Some(Condition::RateLimit));
        assert_eq!(reason(rest().skip(1)), Some(Condition::ConcurrentPrecondition));
    }

    /// AT-07, AT-08.
    #[test]
    fn free_calls_share_one_stage() {
        let (decision, plan) = atlas().of([read("a"), account_orders(), read("b")]);
        assert!(decision.parallel && decision.reason.is_none());
        assert_eq!(plan.stages, [[0, 1, 2]]);
        let (_, plan) = atlas().of([read("a"), account_orders(), order_status(), read("b")]);
        assert_eq!(plan.stages, [[0], [1], [2], [3]]);
    }

    /// AT-09.
    #[test]
    fn the_cap_is_four() {
        assert_eq!(Policy::atlas().max_concurrency, 4);
    }

    /// AT-16: the writes' partition keys are told, and decide nothing.
    #[test]
    fn disjoint_writes_are_told_only() {
        let of = |calls: [Made; 2]| atlas().of(calls).0;
        let disjoint = of([write("w").confined("a"), write("w").confined("b")]);
        assert_eq!((disjoint.disjoint_writes, disjoint.parallel), (Some(true), false));
        assert_eq!(
            of([write("w").confined("a"), write("w").confined("a")]).disjoint_writes,
            Some(false)
        );
        assert_eq!(
            of([write("w").confined("a"), write("w")]).disjoint_writes,
            Some(false)
        );
    }

    /// AT-19: a call that returns what it is given doesn't depend on itself. (Beside another that returns it, it does.)
    #[test]
    fn a_call_does_not_depend_on_itself() {
        let account = || {
            read("get_account")
                .returns(&["accountId"])
                .with(json!({"accountId": "a-1"}))
        };
        assert_eq!(reason([account()]), None);
        assert_eq!(reason([account(), read("x")]), None);
        assert_eq!(reason([account(), account()]), Some(Condition::Dependency));
    }

    /// AT-20: nested names count; braces that mean nobody are text, and the calls run one at a time.
    #[test]
    fn nested_names_count_and_braces_stay_text() {
        let nested = read("get").with(json!({"filter": {"orderId": "o-1"}}));
        assert_eq!(reason([account_orders(), nested]), Some(Condition::Dependency));
        let (_, plan) = atlas().of([read("a"), read("search").with(json!({"text": "{{name}}"}))]);
        assert_eq!((plan.stages, plan.refused.len()), (vec![vec![0], vec![1]], 0));
    }

    /// AT-21: undeclared is the default, not unlimited.
    #[test]
    fn an_undeclared_allowance_is_the_default() {
        let reads = |count| (0..count).map(|_| read("r")).collect::<Vec<_>>();
        assert_eq!(
            (reason(reads(8)), reason(reads(9))),
            (None, Some(Condition::RateLimit))
        );
    }
}
