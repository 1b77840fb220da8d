//! A staged runner with barriers.

mod planned {
    use coeval::plan::Policy;
    use coeval::tool::Class;

    use crate::support::resolved::{World, call, read, unknown, write};

    /// GO-01: adjacent reads share a stage; every other call is a stage alone.
    #[test]
    fn adjacent_reads_share_a_stage() {
        let calls = [read("r"), read("r"), write("w"), read("r"), read("r")];
        assert_eq!(
            World::under(Policy::go()).of(calls).1.stages,
            [vec![0, 1], vec![2], vec![3, 4]]
        );
    }

    /// GO-02: an unknown tool, and one that isn't read-only, have stages of their own.
    #[test]
    fn whatever_is_not_a_read_has_its_own_stage() {
        let calls = [
            read("r"),
            unknown("x"),
            call("run_tests", Class::Exclusive),
            read("r"),
        ];
        assert_eq!(
            World::under(Policy::go()).of(calls).1.stages,
            [[0], [1], [2], [3]]
        );
    }

    /// GO-07.
    #[test]
    fn the_cap_is_eight() {
        assert_eq!(Policy::go().max_concurrency, 8);
    }
}

mod run {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::time::Duration;

    use coeval::CallSet;
    use coeval::plan::{Policy, PolicyName};
    use coeval::reading::{ErrorCode, Outcome};
    use coeval::report::Status;
    use coeval::request::CallRequest;
    use coeval::tool::{Tool, ToolSpec};
    use serde_json::{Value, json};

    use crate::conformance::{cancelled_after, events_of, run_under, under};
    use crate::support::lab::{Lab, call, codes, outcomes};

    const GO: PolicyName = PolicyName::Go;

    fn reads(ms: &[u64]) -> Vec<coeval::Call> {
        ms.iter().map(|ms| call("", "read", json!({"ms": ms}))).collect()
    }

    /// GO-02: what ends the turn has a stage of its own, unless it is declared to be a read.
    #[tokio::test(start_paused = true)]
    async fn a_final_tool_of_unknown_effect_is_alone() {
        let lab = Lab::new();
        lab.tool(ToolSpec::new("finish").ends_turn().dependency("plenty"));
        let mut calls = reads(&[5]);
        calls.push(call("", "finish", json!({})));
        let report = run_under(GO, &lab, calls).await;
        assert_eq!(report.plan.stages, [[0], [1]]);
        assert_eq!(lab.log.span(1).began, 5);
    }

    /// GO-03: a test run after a slow edit sees the new code; all at once, it would see the old.
    #[tokio::test(start_paused = true)]
    async fn a_test_run_sees_the_edit_before_it() {
        let lab = Lab::new();
        let code = Arc::new(AtomicUsize::new(1));
        let (edited, tested) = (Arc::clone(&code), Arc::clone(&code));
        let edit = move |_: CallRequest| {
            let code = Arc::clone(&edited);
            async move {
                tokio::time::sleep(Duration::from_millis(50)).await;
                code.store(2, Ordering::SeqCst);
                Ok::<_, coeval::BoxError>(json!("edited"))
            }
        };
        let test = move |_: CallRequest| {
            let seen = tested.load(Ordering::SeqCst);
            async move { Ok::<_, coeval::BoxError>(json!(seen)) }
        };
        lab.registry
            .register(Tool::raw_fn(ToolSpec::write("edit"), edit))
            .unwrap();
        lab.registry
            .register(Tool::raw_fn(ToolSpec::new("run_tests"), test))
            .unwrap();
        let calls = || [call("", "edit", json!({})), call("", "run_tests", json!({}))];
        let staged = run_under(GO, &lab, calls()).await;
        assert_eq!(staged.results[1].value, Some(json!(2)));

        code.store(1, Ordering::SeqCst);
        let coordinator = lab.coordinator();
        let [edit, test] = calls().map(|call| coordinator.run(CallSet::new([call])));
        let (_, test) = tokio::join!(edit, test);
        assert_eq!(test.unwrap().results[0].value, Some(json!(1)));
    }

    /// GO-04, GO-12: each answer at its call's position, whatever ends first, one for each.
    #[tokio::test(start_paused = true)]
    async fn answers_stand_at_their_calls_positions() {
        let lab = Lab::new();
        let report = run_under(GO, &lab, reads(&[30, 10, 20])).await;
        let values: Vec<_> = report
            .results
            .iter()
            .map(|result| result.value.clone().unwrap())
            .collect();
        assert_eq!(values, [0, 1, 2]);
    }

    /// GO-05: answers are given out once their stage is complete.
    #[tokio::test(start_paused = true)]
    async fn answers_are_given_out_stage_by_stage() {
        let lab = Lab::new();
        let mut calls = reads(&[10, 20]);
        calls.push(call("", "write", json!({"ms": 5})));
        let (_, seen) = events_of(&lab.coordinator(), under(GO, calls)).await;
        let rest = [
            "end 0", "end 1", "commit 0", "commit 1", "start 2", "end 2", "commit 2",
        ];
        assert_eq!(seen[2..], rest, "{seen:?}");
    }

    /// GO-06: a panic is its call's answer, and cancels nobody.
    #[tokio::test(start_paused = true)]
    async fn a_panic_cancels_no_neighbour() {
        let lab = Lab::new();
        let mut calls = reads(&[20, 20]);
        calls.insert(1, call("", "read", json!({"ms": 5, "then": "panic"})));
        let report = run_under(GO, &lab, calls).await;
        assert_eq!(outcomes(&report), [Outcome::Ok, Outcome::Panicked, Outcome::Ok]);
    }

    /// GO-07: at most eight run.
    #[tokio::test(start_paused = true)]
    async fn more_than_eight_wait() {
        let lab = Lab::new();
        run_under(GO, &lab, reads(&[10; 20])).await;
        assert_eq!((lab.log.peak(), lab.log.ms()), (8, 30));
    }

    /// GO-08: cancelled while it waits for a place, a call never starts.
    #[tokio::test(start_paused = true)]
    async fn cancelled_while_it_waits_a_call_never_starts() {
        let lab = Lab::new();
        let report = cancelled_after(5, &lab.coordinator(), under(GO, reads(&[10; 9]))).await;
        assert_eq!(outcomes(&report)[7..], [Outcome::Cancelled, Outcome::NotStarted]);
        assert_eq!(codes(&report)[8], Some(ErrorCode::SetCancelled));
        assert_eq!(lab.log.spans().len(), 8);
    }

    /// GO-09: after a fatal answer the stage ends, what didn't run is answered so, and the set's status says why.
    #[tokio::test(start_paused = true)]
    async fn a_fatal_answer_stops_after_its_stage() {
        let lab = Lab::new();
        let mut calls = reads(&[20]);
        calls.insert(0, call("", "read", json!({"ms": 5, "then": "fatal"})));
        calls.push(call("", "write", json!({})));
        calls.extend(reads(&[1]));
        let report = run_under(GO, &lab, calls).await;
        assert_eq!(
            outcomes(&report),
            [
                Outcome::Failed,
                Outcome::Ok,
                Outcome::NotStarted,
                Outcome::NotStarted
            ]
        );
        assert_eq!(report.status, Status::Fatal);
        assert_eq!(codes(&report)[3], Some(ErrorCode::FatalBefore));
    }

    /// GO-10: once a final call is accepted, later calls are answered as not run.
    #[tokio::test(start_paused = true)]
    async fn after_an_accepted_final_call_nothing_runs() {
        let lab = Lab::new();
        lab.tool(ToolSpec::new("finish").ends_turn().dependency("plenty"));
        let of = |then: &str| {
            [
                call("", "finish", json!({"then": then})),
                call("", "read", json!({})),
            ]
        };
        let report = run_under(GO, &lab, of("ok")).await;
        assert_eq!(codes(&report), [None, Some(ErrorCode::TurnEnded)]);
        let report = run_under(GO, &lab, of("fail")).await;
        assert_eq!(
            codes(&report),
            [Some(ErrorCode::CallFailed), None],
            "only an accepted one"
        );
    }

    /// GO-11: what the model is told is to the byte what one call after another would have told it.
    #[tokio::test(start_paused = true)]
    async fn answers_are_those_of_running_one_after_another() {
        let mut told = Vec::new();
        for places in [8, 1] {
            let lab = Lab::new();
            let mut policy = Policy::go();
            policy.max_concurrency = places;
            let mut calls = reads(&[30, 10, 20]);
            calls.push(call("", "read", json!({"then": "fail"})));
            calls.push(call("", "nope", json!({})));
            let report = lab
                .builder()
                .policy(policy)
                .build()
                .run(CallSet::new(calls))
                .await
                .unwrap();
            let answer = |value: &Value| -> Vec<Value> {
                ["id", "tool", "outcome", "value", "error"]
                    .iter()
                    .map(|field| value[*field].clone())
                    .collect()
            };
            let results = serde_json::to_value(&report.results).unwrap();
            let answers: Vec<_> = results.as_array().unwrap().iter().map(answer).collect();
            told.push(serde_json::to_string(&answers).unwrap());
        }
        assert_eq!(told[0], told[1]);
    }
}
