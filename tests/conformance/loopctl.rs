//! A wave planner: first-fit waves by safety and keys; a later safe call may overtake an unsafe one.

mod planned {
    use coeval::plan::Policy;
    use coeval::reading::ErrorCode;

    use crate::support::resolved::{Made, World, read, refused, unknown, write};

    fn waves(calls: impl IntoIterator<Item = Made>) -> Vec<Vec<usize>> {
        World::under(Policy::loopctl()).of(calls).1.stages
    }

    fn keyed(key: &str) -> Made {
        read("read").reads(key)
    }

    fn edit(key: &str) -> Made {
        write("edit").writes(key)
    }

    /// LC-01: safe calls without keys share one wave, in their order.
    #[test]
    fn safe_calls_without_keys_share_a_wave() {
        assert_eq!(waves([read("a"), read("b")]), [[0, 1]]);
        assert_eq!(
            waves([read("a"), read("b"), read("c"), read("d")]),
            [[0, 1, 2, 3]]
        );
    }

    /// LC-02: an unsafe call has a wave to itself.
    #[test]
    fn an_unsafe_call_is_alone() {
        assert_eq!(waves([write("a"), read("b")]), [[0], [1]]);
    }

    /// LC-03, LC-04: one holder of a key in a wave, readers included.
    #[test]
    fn a_key_is_in_a_wave_once() {
        assert_eq!(
            waves([keyed("/a"), keyed("/a"), keyed("/b")]),
            [vec![0, 2], vec![1]]
        );
        assert_eq!(waves([keyed("x"), keyed("x"), keyed("y")]), [vec![0, 2], vec![1]]);
        // Keys are compared as they are: no key is a part of another here.
        assert_eq!(waves([keyed("/a"), keyed("/a/b")]), [[0, 1]]);
    }

    /// LC-05: an unknown tool is alone in its wave, and answered.
    #[test]
    fn an_unknown_tool_is_alone() {
        let (_, plan) = World::under(Policy::loopctl()).of([read("a"), unknown("b")]);
        assert_eq!(plan.stages, [[0], [1]]);
        assert_eq!(refused(&plan), [(1, ErrorCode::UnknownTool)]);
    }

    /// LC-06.
    #[test]
    fn no_calls_make_no_waves() {
        assert_eq!(waves([]), Vec::<Vec<usize>>::new());
    }

    /// LC-07.
    #[test]
    fn first_fit_overtakes() {
        let calls = [
            keyed("a"),
            keyed("b"),
            edit("c"),
            read("grep"),
            keyed("a"),
            read("stat"),
        ];
        assert_eq!(waves(calls), [vec![0, 1, 3, 5], vec![2], vec![4]]);
    }

    /// LC-08: only calls that are safe are asked for their key.
    #[test]
    fn the_key_of_an_unsafe_call_is_not_asked() {
        assert_eq!(waves([edit("a"), edit("a"), keyed("a")]), [[0], [1], [2]]);
        assert_eq!(waves([keyed("a"), edit("a"), keyed("b")]), [vec![0, 2], vec![1]]);
    }

    /// LC-09: the read of b runs before the edit of b that the model placed first. Reproduced here, and nowhere else.
    #[test]
    fn a_read_overtakes_the_edit_before_it() {
        let calls = || [keyed("a"), edit("b"), keyed("b")];
        assert_eq!(waves(calls()), [vec![0, 2], vec![1]]);
        assert_eq!(waves([edit("a"), keyed("a")]), [[0], [1]]);
        for policy in [
            Policy::standard(),
            Policy::harness(),
            Policy::go(),
            Policy::atlas(),
        ] {
            assert_eq!(World::under(policy).of(calls()).1.stages, [[0], [1], [2]]);
        }
    }

    /// Waves know no dependencies, so a call that has one goes last instead of first.
    #[test]
    fn a_dependent_call_overtakes_nothing() {
        assert_eq!(
            waves([read("a"), write("w"), read("b").after(1), read("c")]),
            [vec![0, 3], vec![1], vec![2]]
        );
        let (_, plan) = World::under(Policy::loopctl()).of([write("w"), read("b").after(0)]);
        assert_eq!((plan.stages, plan.refused.len()), (vec![vec![0], vec![1]], 0));
    }
}

mod run {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::time::Duration;

    use coeval::plan::{Policy, PolicyName};
    use coeval::reading::{ErrorCode, Outcome};
    use coeval::report::Status;
    use coeval::tool::{Effect, PerCall, RetryPolicy, ToolSpec};
    use coeval::{Call, CallSet};
    use proptest::prelude::*;
    use serde_json::json;

    use crate::conformance::{Watcher, cancelled_after, key_of, run_under, under, watched};
    use crate::support::lab::{Lab, assert_conserved, call, codes, outcomes};

    const LOOPCTL: PolicyName = PolicyName::Loopctl;

    fn keyed(lab: &Lab) {
        lab.tool(
            ToolSpec::read("get")
                .keys(PerCall::decide(key_of))
                .dependency("plenty"),
        );
    }

    fn get(key: &str) -> Call {
        call("", "get", json!({"key": key, "ms": 10}))
    }

    /// LC-05, LC-22: unknown tools are answered in their places with the names that there are.
    #[tokio::test(start_paused = true)]
    async fn unknown_tools_are_answered_in_their_places() {
        let lab = Lab::new();
        let calls = [
            call("a", "nope", json!({})),
            call("b", "read", json!({})),
            call("c", "nada", json!({})),
        ];
        let report = run_under(LOOPCTL, &lab, calls).await;
        assert_eq!(
            outcomes(&report),
            [Outcome::UnknownTool, Outcome::Ok, Outcome::UnknownTool]
        );
        let message = &report.results[0].error.as_ref().unwrap().message;
        assert!(
            ["alone", "read", "read2", "write"]
                .iter()
                .all(|name| message.contains(name)),
            "{message}"
        );
    }

    /// LC-06.
    #[tokio::test(start_paused = true)]
    async fn no_calls_run_nothing() {
        let lab = Lab::new();
        assert!(run_under(LOOPCTL, &lab, []).await.results.is_empty());
    }

    /// LC-03, LC-04: calls of one key never run beside each other, and others run beside them.
    #[tokio::test(start_paused = true)]
    async fn calls_of_one_key_take_turns() {
        let lab = Lab::new();
        keyed(&lab);
        run_under(LOOPCTL, &lab, [get("x"), get("x"), get("y")]).await;
        assert_eq!((lab.log.span(0).began, lab.log.span(2).began), (0, 0));
        assert_eq!(lab.log.span(1).began, 10);
    }

    /// LC-07, LC-09: as planned, the read of b runs before the edit of b that the model placed first.
    #[tokio::test(start_paused = true)]
    async fn a_read_overtakes_the_edit_before_it() {
        let lab = Lab::new();
        keyed(&lab);
        let edit = call("", "write", json!({"ms": 10}));
        run_under(LOOPCTL, &lab, [get("a"), edit.clone(), get("b")]).await;
        assert_eq!(lab.log.began(), [0, 2, 1]);
        for other in [
            PolicyName::Standard,
            PolicyName::Harness,
            PolicyName::Go,
            PolicyName::Atlas,
        ] {
            let lab = Lab::new();
            keyed(&lab);
            run_under(other, &lab, [get("a"), edit.clone(), get("b")]).await;
            assert_eq!(lab.log.began(), [0, 1, 2], "{other}");
        }
    }

    /// LC-08: a call that writes isn't asked for its key, and the answer is that of its own arguments.
    #[tokio::test(start_paused = true)]
    async fn only_a_safe_call_is_asked_for_its_key() {
        let lab = Lab::new();
        let asked = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&asked);
        let keys = PerCall::decide(move |arguments: &_| {
            count.fetch_add(1, Ordering::SeqCst);
            key_of(arguments)
        });
        let effect = PerCall::decide(|arguments: &coeval::tool::ArgumentMap| {
            let writes = arguments["mode"] == "set";
            Ok::<_, coeval::BoxError>(if writes { Effect::Write } else { Effect::Read })
        });
        lab.tool(
            ToolSpec::new("file")
                .effect(effect)
                .keys(keys)
                .dependency("plenty"),
        );
        let file = |mode: &str| call("", "file", json!({"mode": mode, "key": "a"}));
        let report = run_under(LOOPCTL, &lab, [file("set"), file("set")]).await;
        assert_eq!(
            (outcomes(&report), asked.load(Ordering::SeqCst)),
            (vec![Outcome::Ok; 2], 0)
        );
        run_under(LOOPCTL, &lab, [file("get")]).await;
        assert!(asked.load(Ordering::SeqCst) > 0);
    }

    /// LC-10: the last to begin begins before the first ends.
    #[tokio::test(start_paused = true)]
    async fn independent_calls_overlap() {
        let lab = Lab::new();
        run_under(
            LOOPCTL,
            &lab,
            (0..3).map(|_| call("", "read", json!({"ms": 100}))),
        )
        .await;
        let spans = lab.log.spans();
        let latest = spans.iter().map(|span| span.began_at).max().unwrap();
        let earliest = spans.iter().map(|span| span.ended_at).min().unwrap();
        assert!(latest < earliest, "{spans:?}");
    }

    /// LC-11.
    #[tokio::test(start_paused = true)]
    async fn answers_stand_in_the_order_of_the_calls() {
        let lab = Lab::new();
        let of = |id: &str, ms: u64| call(id, "read", json!({"ms": ms}));
        let report = run_under(LOOPCTL, &lab, [of("1", 30), of("2", 1), of("3", 10)]).await;
        let ids: Vec<_> = report.results.iter().map(|result| &*result.id).collect();
        assert_eq!(ids, ["1", "2", "3"]);
        assert_eq!(report.results[1].value, Some(json!(1)));
    }

    /// LC-12, LC-15: a failing and a panicking call are answers, and nobody else's.
    #[tokio::test(start_paused = true)]
    async fn a_fault_is_the_answer_of_its_call_alone() {
        let lab = Lab::new();
        let of = |then: &str| call("", "read", json!({"ms": 5, "then": then}));
        let report = run_under(LOOPCTL, &lab, [of("ok"), of("fail"), of("panic"), of("ok")]).await;
        assert_eq!(
            outcomes(&report),
            [Outcome::Ok, Outcome::Failed, Outcome::Panicked, Outcome::Ok]
        );
        let panic = report.results[2].error.as_ref().unwrap();
        assert!(
            panic.message.contains("scripted panic of call 2"),
            "{}",
            panic.message
        );
        assert_eq!(report.status, Status::Complete);
    }

    /// LC-14: one at a time, a single call and many places give the same answers; no places means one.
    #[tokio::test(start_paused = true)]
    async fn how_many_places_there_are_changes_no_answer() {
        let calls = || (0..4).map(|i| call("", "read", json!({"ms": 5, "value": i})));
        let mut values = Vec::new();
        for (places, took) in [(0, 20), (1, 20), (2, 10), (100, 5)] {
            let lab = Lab::new();
            let mut policy = Policy::loopctl();
            policy.max_concurrency = places;
            let report = lab
                .builder()
                .policy(policy)
                .build()
                .run(CallSet::new(calls()))
                .await
                .unwrap();
            assert_eq!(lab.log.ms(), took, "{places} places");
            values.push(
                report
                    .results
                    .into_iter()
                    .map(|result| result.value)
                    .collect::<Vec<_>>(),
            );
        }
        assert!(values.iter().all(|others| *others == values[0]));
    }

    fn retried(lab: &Lab, attempts: u32, backoff: Duration) {
        let retry = RetryPolicy {
            attempts: attempts.try_into().unwrap(),
            backoff,
        };
        lab.tool(ToolSpec::read("flaky").retry(retry).dependency("plenty"));
    }

    /// LC-16: two retries are three attempts and a soft error; hooks are asked in pairs, of the call and not of each try.
    #[tokio::test(start_paused = true)]
    async fn retries_end_in_the_calls_own_error() {
        let lab = Lab::new();
        retried(&lab, 3, Duration::from_millis(1));
        let watcher = Arc::new(Watcher::default());
        let set = under(LOOPCTL, [call("", "flaky", json!({"then": "fail"}))]);
        let report = watched(&lab, &watcher).run(set).await.unwrap();
        assert_eq!(
            (outcomes(&report), report.results[0].attempts),
            (vec![Outcome::Failed], 3)
        );
        assert_eq!(
            (lab.log.spans().len(), watcher.log()),
            (3, vec!["pre 0".to_owned(), "post 0".to_owned()])
        );
    }

    /// LC-18: a back-off is left at once.
    #[tokio::test(start_paused = true)]
    async fn a_back_off_does_not_outlive_its_cancellation() {
        let lab = Lab::new();
        retried(&lab, 3, Duration::from_secs(10));
        let set = under(LOOPCTL, [call("", "flaky", json!({"then": "fail"}))]);
        let report = cancelled_after(50, &lab.coordinator(), set).await;
        assert_eq!((outcomes(&report), lab.log.ms()), (vec![Outcome::Cancelled], 50));
    }

    /// LC-19: the call's future is dropped and never reaches its end.
    #[tokio::test(start_paused = true)]
    async fn a_cancelled_call_is_dropped() {
        let lab = Lab::new();
        let set = under(LOOPCTL, [call("", "read", json!({"ms": 10_000}))]);
        let report = cancelled_after(50, &lab.coordinator(), set).await;
        assert_eq!(
            (outcomes(&report), report.status),
            (vec![Outcome::Cancelled], Status::Cancelled)
        );
        assert_eq!((lab.log.ms(), lab.log.span(0).finished), (50, false));
    }

    /// LC-21.
    #[tokio::test(start_paused = true)]
    async fn a_set_cancelled_beforehand_polls_no_body() {
        let lab = Lab::new();
        let set = under(
            LOOPCTL,
            [call("", "read", json!({})), call("", "write", json!({}))],
        );
        let report = cancelled_after(0, &lab.coordinator(), set).await;
        assert_eq!(
            (outcomes(&report), lab.log.began()),
            (vec![Outcome::NotStarted; 2], vec![])
        );
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

        /// LC-23: whatever fails, is denied or is tried again, each call is answered exactly once.
        #[test]
        fn every_call_is_answered_exactly_once(
            kinds in prop::collection::vec((0_usize..5, 0_u64..20, 0_usize..5), 0..10),
            attempts in 1_u32..4,
            deny in prop::option::of(0_usize..10),
        ) {
            let mut runtime = tokio::runtime::Builder::new_current_thread();
            runtime.enable_time().start_paused(true).build().unwrap().block_on(async {
                let lab = Lab::new();
                retried(&lab, attempts, Duration::from_millis(1));
                let tools = ["read", "write", "flaky", "alone", "nope"];
                let thens = ["ok", "fail", "panic", "not_found", "ok"];
                let calls = kinds.iter().enumerate().map(|(i, &(tool, ms, then))| {
                    call(&format!("c{i}"), tools[tool], json!({"ms": ms, "then": thens[then]}))
                });
                let watcher = Arc::new(Watcher { deny, ..Watcher::default() });
                let set = under(LOOPCTL, calls);
                let report = watched(&lab, &watcher).run(set.clone()).await.unwrap();
                assert_conserved(&set, &report);
                assert_eq!(lab.log.running(), 0);
            });
        }
    }

    /// LC-25: equal concurrent reads all execute. (What the memo would do later is refused by design.)
    #[tokio::test(start_paused = true)]
    async fn equal_concurrent_reads_all_execute() {
        let lab = Lab::new();
        let report = run_under(LOOPCTL, &lab, (0..8).map(|_| call("", "read", json!({"ms": 5})))).await;
        assert_eq!(lab.log.spans().len(), 8);
        assert!(report.results.iter().all(|result| result.shared_with.is_none()));
    }

    /// LC-28: a tool removed while its call runs lets that call complete, and is unknown later.
    #[tokio::test(start_paused = true)]
    async fn a_removed_tool_completes_what_it_began() {
        let lab = Lab::new();
        let set = under(LOOPCTL, [call("", "read", json!({"ms": 10}))]);
        let coordinator = lab.coordinator();
        let (report, ()) = tokio::join!(coordinator.run(set.clone()), async {
            tokio::time::sleep(Duration::from_millis(5)).await;
            lab.registry.remove("read");
        });
        assert_eq!(outcomes(&report.unwrap()), [Outcome::Ok]);
        assert_eq!(
            outcomes(&coordinator.run(set).await.unwrap()),
            [Outcome::UnknownTool]
        );
    }

    /// LC-29: hooks before are asked in the calls' order, a refused call has its hook after, and a call cancelled in its
    /// hook before has none.
    #[tokio::test(start_paused = true)]
    async fn a_refused_call_has_its_hook_after_and_a_cancelled_one_has_none() {
        let lab = Lab::new();
        let watcher = Arc::new(Watcher::default());
        let calls = [
            call("", "read", json!({"ms": 9})),
            call("", "read", json!("bad")),
            call("", "read", json!({})),
        ];
        watched(&lab, &watcher).run(under(LOOPCTL, calls)).await.unwrap();
        assert_eq!(watcher.log(), ["pre 0", "pre 2", "post 0", "post 1", "post 2"]);

        let watcher = Arc::new(Watcher {
            before_ms: 100,
            ..Watcher::default()
        });
        let set = under(LOOPCTL, [call("", "read", json!({}))]);
        let report = cancelled_after(50, &watched(&lab, &watcher), set).await;
        assert_eq!(
            (outcomes(&report), watcher.log()),
            (vec![Outcome::NotStarted], vec!["pre 0".to_owned()])
        );
    }

    /// LC-31: calls that can never be filled in are answered all the same.
    #[tokio::test(start_paused = true)]
    async fn a_slot_that_nothing_can_fill_is_an_error_and_no_hole() {
        let lab = Lab::new();
        let calls = [
            call("", "read", json!({})).after([1]),
            call("", "read", json!({})).after([0]),
        ];
        let report = run_under(LOOPCTL, &lab, calls).await;
        assert_eq!(codes(&report), [Some(ErrorCode::DependencyCycle); 2]);
    }
}
