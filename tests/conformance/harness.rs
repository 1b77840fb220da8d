//! An agent loop that asks each call whether it is safe beside others.

mod planned {
    use coeval::plan::Policy;
    use coeval::reading::ErrorCode;
    use coeval::tool::Class;

    use crate::support::resolved::{World, call, read, write};

    /// DS-05: adjacent safe calls form a group, an exclusive one is a group alone.
    #[test]
    fn reads_beside_a_write_form_three_groups() {
        let world = World::under(Policy::harness());
        assert_eq!(
            world.of([read("r"), write("w"), read("r")]).1.stages,
            [[0], [1], [2]]
        );
        let plan = world.of([read("a"), read("b"), write("a"), read("c")]).1;
        assert_eq!(plan.stages, [vec![0, 1], vec![2], vec![3]]);
    }

    /// DS-01: invalid arguments make a call exclusive.
    #[test]
    fn a_call_that_cannot_be_asked_is_exclusive() {
        let world = World::under(Policy::harness());
        let invalid = read("r").fault(ErrorCode::InvalidArguments);
        assert_eq!(
            world.of([read("r"), invalid, read("r")]).1.stages,
            [[0], [1], [2]]
        );
        let silent = call("r", Class::Exclusive);
        assert_eq!(world.of([read("r"), silent, read("r")]).1.stages, [[0], [1], [2]]);
    }

    /// DS-11: ten at once unless it is said.
    #[test]
    fn the_cap_is_ten() {
        assert_eq!(Policy::harness().max_concurrency, 10);
    }
}

mod run {
    use std::sync::Arc;

    use coeval::CallSet;
    use coeval::hook::Hook;
    use coeval::limit::Limits;
    use coeval::plan::{Policy, PolicyName};
    use coeval::reading::{ErrorCode, Outcome};
    use coeval::report::{CallResult, SetReport, Status};
    use coeval::request::CallRequest;
    use coeval::tool::{ArgumentMap, Class, Effect, PerCall, Tool, ToolSpec};
    use futures_util::future::BoxFuture;
    use serde_json::{Value, json};

    use crate::conformance::{Watcher, cancelled_after, events_of, run_under, under, watched};
    use crate::support::lab::{Lab, call, codes, outcomes};

    const HARNESS: PolicyName = PolicyName::Harness;

    fn reads(ms: &[u64]) -> Vec<coeval::Call> {
        ms.iter().map(|ms| call("", "read", json!({"ms": ms}))).collect()
    }

    /// A builder of `places` places under the profile.
    fn places(lab: &Lab, places: usize) -> coeval::coordinator::Builder {
        let mut policy = Policy::harness();
        policy.max_concurrency = places;
        lab.builder().policy(policy)
    }

    /// DS-01: only a classifier that says so makes a call parallel; asking never throws.
    #[tokio::test(start_paused = true)]
    async fn whatever_does_not_say_that_it_is_safe_runs_alone() {
        let lab = Lab::new();
        let throws = |_: &ArgumentMap| -> Result<bool, coeval::BoxError> { Err("can't say".into()) };
        let panics = |_: &ArgumentMap| -> Result<bool, coeval::BoxError> { panic!("can't say") };
        lab.tool(
            ToolSpec::read("throws")
                .exclusive(PerCall::decide(throws))
                .dependency("plenty"),
        );
        lab.tool(
            ToolSpec::read("panics")
                .exclusive(PerCall::decide(panics))
                .dependency("plenty"),
        );
        lab.tool(ToolSpec::read("says").exclusive(true).dependency("plenty"));
        for suspect in ["throws", "panics", "says", "alone"] {
            let calls = [
                call("", "read", json!({"ms": 5})),
                call("", suspect, json!({})),
                call("", "read", json!({})),
            ];
            let report = run_under(HARNESS, &lab, calls).await;
            assert_eq!(outcomes(&report), [Outcome::Ok; 3], "{suspect}");
            assert_eq!(report.plan.stages, [[0], [1], [2]], "{suspect}");
            assert_eq!(report.results[1].facts.class, Class::Exclusive, "{suspect}");
        }
    }

    /// DS-02: the same tool reads or writes by its arguments, parsed.
    #[tokio::test(start_paused = true)]
    async fn a_call_is_what_its_arguments_say() {
        let lab = Lab::new();
        let effect = PerCall::decide(|arguments: &ArgumentMap| {
            let reads = arguments["mode"] == "read";
            Ok::<_, coeval::BoxError>(if reads { Effect::Read } else { Effect::Write })
        });
        lab.tool(ToolSpec::new("file").effect(effect).dependency("plenty"));
        let file = |mode: &str| call("", "file", json!(format!(r#"{{"ms": 10, "mode": "{mode}"}}"#)));
        run_under(HARNESS, &lab, [file("read"), file("read"), file("write")]).await;
        assert_eq!(
            (
                lab.log.span(0).began,
                lab.log.span(1).began,
                lab.log.span(2).began
            ),
            (0, 0, 10)
        );
    }

    /// DS-03: how a tool is scheduled is no part of what the model is shown.
    #[test]
    fn what_the_model_is_shown_says_nothing_of_scheduling() {
        let schema = json!({"type": "object", "properties": {"id": {"type": "string"}}});
        let spec = ToolSpec::read("t")
            .description("Reads.")
            .input_schema(schema.clone());
        let spec = spec
            .exclusive(true)
            .dependency("crm")
            .preconditions(["find"])
            .ends_turn()
            .one_state();
        assert_eq!((&*spec.description, spec.input_schema), ("Reads.", Some(schema)));
    }

    /// DS-04: all have started, in the model's order, before any has ended.
    #[tokio::test(start_paused = true)]
    async fn parallel_calls_start_in_the_models_order() {
        let lab = Lab::new();
        let (_, seen) = events_of(&lab.coordinator(), under(HARNESS, reads(&[1, 1, 1]))).await;
        assert_eq!(seen[..3], ["start 0", "start 1", "start 2"]);
    }

    /// DS-05.
    #[tokio::test(start_paused = true)]
    async fn a_write_is_a_group_of_its_own() {
        let lab = Lab::new();
        let calls = ["read", "write", "read"].map(|tool| call("", tool, json!({"ms": 5})));
        run_under(HARNESS, &lab, calls).await;
        let began: Vec<_> = lab
            .log
            .spans()
            .iter()
            .map(|span| (span.position, span.began))
            .collect();
        assert_eq!(began, [(0, 0), (1, 5), (2, 10)]);
    }

    /// Replaces the tool `x` by one that is exclusive, when asked to.
    fn replacer(lab: &Lab) -> impl Fn() + Clone + Send + Sync + 'static {
        let (registry, exclusive) = (
            lab.registry.clone(),
            lab.scripted(ToolSpec::new("x").dependency("plenty")),
        );
        move || {
            registry.replace(exclusive.clone()).unwrap();
        }
    }

    /// DS-06: a call replaces a tool by an exclusive one; later calls meet the new one, one at a time.
    #[tokio::test(start_paused = true)]
    async fn a_call_may_replace_the_tool_of_later_calls() {
        let lab = Lab::new();
        lab.tool(ToolSpec::read("x").dependency("plenty"));
        let replace = replacer(&lab);
        let body = move |_: CallRequest| {
            replace();
            async { Ok::<_, coeval::BoxError>(json!("replaced")) }
        };
        lab.registry
            .register(Tool::raw_fn(ToolSpec::write("replace"), body))
            .unwrap();
        let x = || call("", "x", json!({"ms": 10}));
        let report = run_under(HARNESS, &lab, [call("", "replace", json!({})), x(), x()]).await;
        assert_eq!(outcomes(&report), [Outcome::Ok; 3]);
        assert_eq!(
            (lab.log.span(1).began, lab.log.span(2).began, lab.log.peak()),
            (0, 10, 1)
        );
        assert_eq!(report.results[2].facts.class, Class::Exclusive);
    }

    /// DS-07: committing a result makes a tool exclusive; what waits for a place then waits for what runs, too.
    #[tokio::test(start_paused = true)]
    async fn a_commit_may_replace_the_tool_of_a_waiting_call() {
        struct AtCommit<F>(F);
        impl<F: Fn() + Send + Sync> Hook for AtCommit<F> {
            fn after<'a>(&'a self, position: usize, _: &'a CallResult) -> BoxFuture<'a, ()> {
                Box::pin(async move {
                    if position == 0 {
                        (self.0)();
                    }
                })
            }
        }
        let lab = Lab::new();
        lab.tool(ToolSpec::read("x").dependency("plenty"));
        let coordinator = places(&lab, 2).hook(Arc::new(AtCommit(replacer(&lab)))).build();
        let calls = [10, 50, 5].map(|ms| call("", "x", json!({"ms": ms})));
        let report = coordinator.run(CallSet::new(calls)).await.unwrap();
        assert_eq!(outcomes(&report), [Outcome::Ok; 3]);
        assert_eq!(lab.log.span(2).began, 50, "{:?}", lab.log.spans());
        assert_eq!(report.results[2].facts.class, Class::Exclusive);
    }

    /// DS-08: the second settles first, and nothing is committed before the first.
    #[tokio::test(start_paused = true)]
    async fn nothing_is_committed_before_what_is_before_it() {
        let lab = Lab::new();
        let (_, seen) = events_of(&lab.coordinator(), under(HARNESS, reads(&[10, 1]))).await;
        assert_eq!(
            seen,
            ["start 0", "start 1", "end 1", "end 0", "commit 0", "commit 1"]
        );
    }

    /// DS-09, B20: written down and read back, the results stand in the model's order, whatever ended first.
    #[tokio::test(start_paused = true)]
    async fn a_report_read_back_has_the_models_order() {
        let lab = Lab::new();
        let calls = [30, 10, 20].map(|ms| call(&format!("c{ms}"), "read", json!({"ms": ms})));
        let report = run_under(HARNESS, &lab, calls).await;
        let back: SetReport = serde_json::from_value(serde_json::to_value(&report).unwrap()).unwrap();
        let read = |report: &SetReport| -> Vec<(String, Option<Value>)> {
            report
                .results
                .iter()
                .map(|result| (result.id.to_string(), result.value.clone()))
                .collect()
        };
        let expected =
            [("c30", 0), ("c10", 1), ("c20", 2)].map(|(id, value)| (id.to_owned(), Some(json!(value))));
        assert_eq!(
            (read(&report), read(&back)),
            (expected.to_vec(), expected.to_vec())
        );
    }

    /// DS-10: a result is committed before the next call takes its place.
    #[tokio::test(start_paused = true)]
    async fn a_result_is_committed_before_its_place_is_taken() {
        let lab = Lab::new();
        let set = CallSet::new(reads(&[10, 20, 20, 20]));
        let (report, seen) = events_of(&places(&lab, 2).build(), set).await;
        assert_eq!(seen[..5], ["start 0", "start 1", "end 0", "commit 0", "start 2"]);
        assert_eq!(outcomes(&report), [Outcome::Ok; 4]);
    }

    /// DS-11: with one place nothing overlaps; each set has its places, and a limit for all of them is an allowance.
    #[tokio::test(start_paused = true)]
    async fn the_cap_binds_and_an_allowance_binds_all_sets() {
        let lab = Lab::new();
        places(&lab, 1)
            .build()
            .run(CallSet::new(reads(&[5, 5])))
            .await
            .unwrap();
        assert_eq!((lab.log.peak(), lab.log.ms()), (1, 10));
        let lab = Lab::new();
        run_under(HARNESS, &lab, reads(&[5; 30])).await;
        assert_eq!(lab.log.peak(), 10);
        let lab = Lab::new();
        let limits = Limits::builder().allowance("plenty", 3).build().unwrap();
        let coordinator = lab.builder().limits(limits).build();
        let set = || under(HARNESS, reads(&[5; 6]));
        let (one, two) = tokio::join!(coordinator.run(set()), coordinator.run(set()));
        assert_eq!(
            (
                one.unwrap().results.len(),
                two.unwrap().results.len(),
                lab.log.peak()
            ),
            (6, 6, 3)
        );
    }

    /// DS-12, DS-13: bodies end 3, 2, 1; hooks before and after are asked 1, 2, 3, so what hooks after add stands in order.
    #[tokio::test(start_paused = true)]
    async fn hooks_are_asked_in_the_models_order() {
        let lab = Lab::new();
        let watcher = Arc::new(Watcher {
            after_ms: 1,
            ..Watcher::default()
        });
        watched(&lab, &watcher)
            .run(under(HARNESS, reads(&[30, 20, 10])))
            .await
            .unwrap();
        assert_eq!(
            watcher.log(),
            ["pre 0", "pre 1", "pre 2", "post 0", "post 1", "post 2"]
        );
    }

    /// DS-14: one is denied, for another the hook breaks: only the first body runs, and the broken one has no hook after.
    #[tokio::test(start_paused = true)]
    async fn a_denied_call_and_a_broken_hook_are_answers_in_their_places() {
        let lab = Lab::new();
        let watcher = Arc::new(Watcher {
            deny: Some(1),
            throw: Some(2),
            ..Watcher::default()
        });
        let report = watched(&lab, &watcher)
            .run(under(HARNESS, reads(&[5, 5, 5])))
            .await
            .unwrap();
        assert_eq!(
            outcomes(&report),
            [Outcome::Ok, Outcome::Refused, Outcome::Failed]
        );
        assert_eq!(codes(&report)[1], Some(ErrorCode::Denied));
        assert!(
            report.results[1]
                .error
                .as_ref()
                .unwrap()
                .message
                .contains("not today")
        );
        assert_eq!(lab.log.began(), [0]);
        assert_eq!(watcher.log()[3..], ["post 0", "post 1"]);
    }

    /// DS-15, DS-21: cancelled beforehand: no hook, no body, and one answer each.
    #[tokio::test(start_paused = true)]
    async fn cancelled_beforehand_nothing_is_asked_and_each_call_answered_once() {
        let lab = Lab::new();
        let watcher = Arc::new(Watcher::default());
        let coordinator = watched(&lab, &watcher);
        let report = cancelled_after(0, &coordinator, under(HARNESS, reads(&[1, 1]))).await;
        assert_eq!(codes(&report), [Some(ErrorCode::SetCancelled); 2]);
        assert!(watcher.log().is_empty() && lab.log.began().is_empty());

        let mut run = coordinator.start(under(HARNESS, reads(&[1])));
        run.cancel();
        let mut events = run.events();
        run.report().await.unwrap();
        let mut seen = Vec::new();
        while let Some(event) = events.next().await {
            seen.push(event);
        }
        assert_eq!(seen.len(), 2, "it ended once and was committed once: {seen:?}");
    }

    /// DS-16: cancelled while the first is in its hook, neither body runs.
    #[tokio::test(start_paused = true)]
    async fn cancelled_in_the_first_hook_no_body_runs() {
        let lab = Lab::new();
        let watcher = Arc::new(Watcher {
            before_ms: 100,
            ..Watcher::default()
        });
        let report = cancelled_after(50, &watched(&lab, &watcher), under(HARNESS, reads(&[1, 1]))).await;
        assert_eq!(codes(&report), [Some(ErrorCode::SetCancelled); 2]);
        assert!(lab.log.began().is_empty());
    }

    /// DS-17: what runs is drained with its real results and hooks; what didn't start is answered.
    #[tokio::test(start_paused = true)]
    async fn what_runs_is_drained_and_keeps_its_results() {
        let lab = Lab::new();
        let watcher = Arc::new(Watcher::default());
        let coordinator = places(&lab, 2).hook(Arc::clone(&watcher) as _).build();
        let report = cancelled_after(50, &coordinator, CallSet::new(reads(&[100, 80, 10, 10]))).await;
        use Outcome::{NotStarted, Ok};
        assert_eq!(outcomes(&report), [Ok, Ok, NotStarted, NotStarted]);
        assert_eq!((report.status, lab.log.ms()), (Status::Cancelled, 100));
        assert_eq!(watcher.log(), ["pre 0", "pre 1", "post 0", "post 1"]);
    }

    /// DS-18.
    #[tokio::test(start_paused = true)]
    async fn cancelled_in_the_first_group_the_exclusive_body_never_runs() {
        let lab = Lab::new();
        let mut calls = reads(&[100, 100]);
        calls.push(call("", "alone", json!({})));
        let report = cancelled_after(50, &lab.coordinator(), under(HARNESS, calls)).await;
        assert_eq!(outcomes(&report), [Outcome::Ok, Outcome::Ok, Outcome::NotStarted]);
        assert_eq!(lab.log.began(), [0, 1]);
    }

    /// DS-19: one says that nothing can work while another runs and a third is in its hook: the third never starts, the
    /// second ends first, and the fault is told.
    #[tokio::test(start_paused = true)]
    async fn after_a_fatal_fault_what_is_in_its_hook_never_starts() {
        let lab = Lab::new();
        let watcher = Arc::new(Watcher {
            before_ms: 20,
            ..Watcher::default()
        });
        let calls = [
            call("", "read", json!({"ms": 30, "then": "fatal"})),
            call("", "read", json!({"ms": 100})),
            call("", "read", json!({})),
        ];
        let report = watched(&lab, &watcher).run(under(HARNESS, calls)).await.unwrap();
        assert_eq!(
            outcomes(&report),
            [Outcome::Failed, Outcome::Ok, Outcome::NotStarted]
        );
        assert_eq!((report.status, lab.log.began()), (Status::Fatal, vec![0, 1]));
        assert_eq!(watcher.log()[..3], ["pre 0", "pre 1", "pre 2"]);
        assert_eq!(
            (lab.log.span(1).ended, lab.log.span(1).finished),
            (Some(140), true)
        );
        assert_eq!(codes(&report)[2], Some(ErrorCode::FatalBefore));
    }

    /// DS-20: a cancelled set waits even for a body that doesn't listen, and a failure keeps its own code. (A success is
    /// kept as well, as in DS-17.)
    #[tokio::test(start_paused = true)]
    async fn what_began_is_waited_for_and_keeps_its_own_answer() {
        let lab = Lab::new();
        let calls = [
            call("", "read", json!({"ms": 5_000})),
            call("", "read", json!({"ms": 5_000, "then": "fail"})),
        ];
        let report = cancelled_after(50, &lab.coordinator(), under(HARNESS, calls)).await;
        assert_eq!(codes(&report), [None, Some(ErrorCode::CallFailed)]);
        assert_eq!(lab.log.ms(), 5_000);
    }

    /// DS-22: malformed text is an error about the arguments, and empty text means none.
    #[tokio::test(start_paused = true)]
    async fn malformed_arguments_are_an_error_and_empty_ones_are_none() {
        let lab = Lab::new();
        let calls = [call("", "read", json!("{\"ms\": ")), call("", "read", json!(""))];
        let report = run_under(HARNESS, &lab, calls).await;
        assert_eq!(outcomes(&report), [Outcome::InvalidArguments, Outcome::Ok]);
        assert_eq!(lab.log.began(), [1]);
    }

    /// DS-23: of a message that was cut off no call is dispatched: there is no set.
    #[test]
    fn a_message_that_was_cut_off_is_no_set() {
        let message = |stop: &str| {
            let content = json!([{"type": "tool_use", "id": "c1", "name": "read", "input": {}}]);
            CallSet::from_json(
                json!({"role": "assistant", "stop_reason": stop, "content": content}).to_string(),
            )
        };
        assert_eq!(message("tool_use").unwrap().calls.len(), 1);
        assert!(message("max_tokens").is_err());
    }

    /// DS-24: a barrier is held through its hook after and its commit.
    #[tokio::test(start_paused = true)]
    async fn a_barrier_is_held_through_its_commit() {
        let lab = Lab::new();
        let watcher = Arc::new(Watcher {
            after_ms: 10,
            ..Watcher::default()
        });
        let calls = [call("", "alone", json!({"ms": 5})), call("", "read", json!({}))];
        watched(&lab, &watcher).run(under(HARNESS, calls)).await.unwrap();
        assert_eq!(lab.log.span(1).began, 15);
    }

    /// DS-25: a slow hook before the first call delays the second.
    #[tokio::test(start_paused = true)]
    async fn hooks_before_never_overlap() {
        let lab = Lab::new();
        let watcher = Arc::new(Watcher {
            before_ms: 10,
            ..Watcher::default()
        });
        watched(&lab, &watcher)
            .run(under(HARNESS, reads(&[5, 5])))
            .await
            .unwrap();
        assert_eq!((lab.log.span(0).began, lab.log.span(1).began), (10, 20));
    }

    /// DS-26: a tool ends the turn; siblings that had started end and are committed.
    #[tokio::test(start_paused = true)]
    async fn a_tool_that_ends_the_turn_leaves_what_runs() {
        let lab = Lab::new();
        lab.tool(ToolSpec::read("finish").ends_turn().dependency("plenty"));
        let mut calls = reads(&[30, 30]);
        calls.insert(1, call("", "finish", json!({"ms": 5})));
        calls.push(call("", "write", json!({})));
        let (report, seen) = events_of(&lab.coordinator(), under(HARNESS, calls)).await;
        use Outcome::{NotStarted, Ok};
        assert_eq!(outcomes(&report), [Ok, Ok, Ok, NotStarted]);
        assert_eq!(codes(&report)[3], Some(ErrorCode::TurnEnded));
        assert!(seen.contains(&"commit 2".to_owned()), "{seen:?}");
    }
}
