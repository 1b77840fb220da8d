//! Where the four disagree, and how the standard policy settles it.

mod planned {
    use coeval::plan::{Condition, EdgeReason};

    use crate::support::resolved::{World, edge, read, write};

    /// Not LC-09: nothing overtakes a barrier (B42, B44, B79).
    #[test]
    fn nothing_overtakes_a_write() {
        let stages = |calls: Vec<_>| World::standard().of(calls).1.stages;
        let (r, w) = (|| read("r").reads("f"), || write("w").writes("f"));
        assert_eq!(stages(vec![w(), r()]), [[0], [1]]);
        assert_eq!(stages(vec![r(), w()]), [[0], [1]]);
        assert_eq!(stages(vec![w(), r(), r()]), [vec![0], vec![1, 2]]);
        assert_eq!(stages(vec![r(), w(), r()]), [[0], [1], [2]]);
    }

    /// B45, B47: writes of one thing run in turn, in the model's order.
    #[test]
    fn writes_run_in_turn() {
        let plan = World::standard().of((0..5).map(|_| write("edit").writes("f"))).1;
        assert_eq!(plan.stages, [[0], [1], [2], [3], [4]]);
    }

    /// Not AT-08: over an allowance only the excess waits; the reason is told all the same (AT-04).
    #[test]
    fn over_an_allowance_the_reason_is_told_and_nothing_serialised() {
        let mut world = World::standard();
        world.allowances.0.push(("crm", 4));
        let (decision, plan) = world.of((0..5).map(|_| read("r").on("crm")));
        assert_eq!(
            (decision.reason, decision.dependency.as_deref()),
            (Some(Condition::RateLimit), Some("crm"))
        );
        assert_eq!((plan.stages, plan.edges), (vec![vec![0, 1, 2, 3, 4]], vec![]));
    }

    /// B51: what ends a turn isn't batched with what it needs, if that is said.
    #[test]
    fn a_declared_dependency_is_an_edge_within_the_stage() {
        let plan = World::standard()
            .of([read("search").id("s"), read("finish").after("s")])
            .1;
        assert_eq!(plan.edges, [edge(&[0], &[1], EdgeReason::After, "s")]);
    }
}

mod run {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};

    use coeval::CallSet;
    use coeval::limit::Limits;
    use coeval::plan::{Condition, PolicyName};
    use coeval::reading::{ErrorCode, Outcome};
    use coeval::request::CallRequest;
    use coeval::tool::{Class, Effect, PerCall, Tool, ToolSpec};
    use serde_json::json;

    use crate::conformance::{events_of, run_under, under};
    use crate::support::lab::{Lab, call, codes, outcomes};

    const STANDARD: PolicyName = PolicyName::Standard;

    fn reads(ms: &[u64]) -> Vec<coeval::Call> {
        // Different values, so that none is shared.
        let call = |(value, ms): (usize, &u64)| call("", "read", json!({"ms": ms, "value": value}));
        ms.iter().enumerate().map(call).collect()
    }

    /// A hard error keeps its siblings, and calls that never started are answered (not LC-13; DS-15 to DS-18).
    #[tokio::test(start_paused = true)]
    async fn a_fatal_error_keeps_its_siblings_and_answers_the_rest() {
        let lab = Lab::new();
        let mut calls = reads(&[1, 20]);
        calls.insert(1, call("", "read", json!({"ms": 5, "then": "fatal"})));
        calls.push(call("", "write", json!({})));
        let report = run_under(STANDARD, &lab, calls).await;
        use Outcome::{Failed, NotStarted, Ok};
        assert_eq!(outcomes(&report), [Ok, Failed, Ok, NotStarted]);
        assert_eq!(codes(&report)[3], Some(ErrorCode::FatalBefore));
    }

    /// Results are visible as an ordered prefix: not after the stage (GO-05), not after the set (LC).
    #[tokio::test(start_paused = true)]
    async fn results_are_visible_as_an_ordered_prefix() {
        let of = async |policy| {
            let lab = Lab::new();
            let mut calls = reads(&[10, 20]);
            calls.push(call("", "write", json!({"ms": 5})));
            events_of(&lab.coordinator(), under(policy, calls)).await.1
        };
        let at = |seen: &[String], event: &str| seen.iter().position(|seen| seen == event).unwrap();
        let seen = of(STANDARD).await;
        assert!(at(&seen, "commit 0") < at(&seen, "end 1"), "{seen:?}");
        let seen = of(PolicyName::Go).await;
        assert!(
            at(&seen, "end 1") < at(&seen, "commit 0") && at(&seen, "commit 1") < at(&seen, "end 2"),
            "{seen:?}"
        );
        let seen = of(PolicyName::Loopctl).await;
        assert!(at(&seen, "end 2") < at(&seen, "commit 0"), "{seen:?}");
    }

    /// A later read overtakes no barrier, when it runs as when it is planned (not LC-09).
    #[tokio::test(start_paused = true)]
    async fn no_read_starts_before_an_earlier_write_has_ended() {
        let lab = Lab::new();
        run_under(
            STANDARD,
            &lab,
            [call("", "write", json!({"ms": 10})), call("", "read", json!({}))],
        )
        .await;
        assert_eq!(lab.log.span(1).began, 10);
    }

    /// Only the excess over an allowance waits, and the reason is told (AT-04; not AT-08).
    #[tokio::test(start_paused = true)]
    async fn only_the_excess_over_an_allowance_waits() {
        let of = async |policy| {
            let lab = Lab::new();
            let limits = Limits::builder().allowance("plenty", 4).build().unwrap();
            let set = under(policy, reads(&[10; 5]));
            let report = lab.builder().limits(limits).build().run(set).await.unwrap();
            assert_eq!(report.decision.reason, Some(Condition::RateLimit));
            assert_eq!(report.decision.dependency.as_deref(), Some("plenty"));
            (lab.log.peak(), lab.log.ms())
        };
        assert_eq!(of(STANDARD).await, (4, 20));
        assert_eq!(of(PolicyName::Atlas).await, (1, 50));
    }

    /// A call is classified again when it starts (not once): the call before it may have changed what it is.
    #[tokio::test(start_paused = true)]
    async fn a_call_is_classified_again_when_it_starts() {
        let of = async |policy| {
            let lab = Lab::new();
            let writes = Arc::new(AtomicBool::new(false));
            let (asked, set) = (Arc::clone(&writes), Arc::clone(&writes));
            let effect = PerCall::decide(move |_: &coeval::tool::ArgumentMap| {
                let writes = asked.load(Ordering::SeqCst);
                Ok::<_, coeval::BoxError>(if writes { Effect::Write } else { Effect::Read })
            });
            lab.tool(ToolSpec::new("x").effect(effect).dependency("plenty"));
            let lock = move |_: CallRequest| {
                set.store(true, Ordering::SeqCst);
                async { Ok::<_, coeval::BoxError>(json!("locked")) }
            };
            lab.registry
                .register(Tool::raw_fn(ToolSpec::write("lock"), lock))
                .unwrap();
            let x = |value: u64| call("", "x", json!({"ms": 10, "value": value}));
            let set: CallSet = under(policy, [call("", "lock", json!({})), x(1), x(2)]);
            let report = lab.coordinator().run(set).await.unwrap();
            (report.results[1].facts.class, lab.log.peak())
        };
        assert_eq!(of(STANDARD).await, (Class::Write, 1));
        assert_eq!(of(PolicyName::Harness).await, (Class::Write, 1));
    }
}
