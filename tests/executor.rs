//! Running: order, settling, fatal, abort, cancel, drop, deadlines.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use coeval::hook::Hook;
use coeval::plan::{FailurePolicy, PolicyName};
use coeval::reading::{CallError, ErrorCode, Outcome};
use coeval::report::{CallResult, Status};
use coeval::request::CallRequest;
use coeval::run::Event;
use coeval::tool::{Effect, Keys, PerCall, ToolSpec};
use coeval::{Call, CallSet};
use futures_util::future::BoxFuture;
use serde_json::json;

use crate::support::lab::{Lab, assert_conserved, call, codes, outcomes};

fn reads(ms: &[u64]) -> Vec<Call> {
    ms.iter()
        .enumerate()
        .map(|(i, ms)| call(&format!("c{i}"), "read", json!({"ms": ms, "value": i})))
        .collect()
}

#[tokio::test(start_paused = true)]
async fn reads_overlap_and_are_answered_in_their_places() {
    let lab = Lab::new();
    let report = lab.run(reads(&[30, 10, 20])).await;
    assert_eq!(outcomes(&report), [Outcome::Ok; 3]);
    let values: Vec<_> = report
        .results
        .iter()
        .map(|result| result.value.clone().unwrap())
        .collect();
    assert_eq!(values, [json!(0), json!(1), json!(2)]);
    assert_eq!(lab.log.ms(), 30, "the slowest, not the sum");
    assert_eq!(lab.log.peak(), 3);
    assert_eq!(report.status, Status::Complete);
    assert_eq!(report.elapsed_ms, 30.0);
}

/// G2, G3, B42: a write is a barrier in the model's order.
#[tokio::test(start_paused = true)]
async fn a_write_waits_for_what_is_before_it_and_holds_back_what_is_after_it() {
    let lab = Lab::new();
    let report = lab
        .run([
            call("", "read", json!({"ms": 30})),
            call("", "write", json!({"ms": 5})),
            call("", "read", json!({"ms": 1})),
        ])
        .await;
    assert_eq!(outcomes(&report), [Outcome::Ok; 3]);
    assert_eq!(lab.log.span(1).began, 30);
    assert_eq!(lab.log.span(2).began, 35);
}

/// B22: waiting for a key, an edge, an allowance or a quota holds no place.
#[tokio::test(start_paused = true)]
async fn nothing_holds_a_place_while_it_waits_for_a_key() {
    let lab = Lab::new();
    let keys = |_: &_| {
        Ok::<_, coeval::BoxError>(Keys {
            reads: vec![],
            writes: vec!["k".into()],
        })
    };
    lab.tool(
        ToolSpec::read("keyed")
            .keys(PerCall::decide(keys))
            .dependency("plenty"),
    );
    let mut calls = vec![
        call("", "keyed", json!({"ms": 100})),
        call("", "keyed", json!({"ms": 100, "value": 1})),
    ];
    calls.extend((0..4).map(|i| call("", "read", json!({"ms": 1, "value": i}))));
    let coordinator = lab.builder().max_concurrency(2.try_into().unwrap()).build();
    coordinator.run(CallSet::new(calls)).await.unwrap();
    for position in 2..6 {
        assert!(
            lab.log.span(position).ended.unwrap() < 100,
            "{:?}",
            lab.log.spans()
        );
    }
    assert_eq!(lab.log.span(1).began, 100);
}

/// Keys a@100 b@1 a@1 b@100: the critical path is 101 ms, where waves need 202 and chains 103.
#[tokio::test(start_paused = true)]
async fn chains_of_keys_cost_their_critical_path() {
    let lab = Lab::new();
    let keys = |arguments: &coeval::tool::ArgumentMap| {
        let key = arguments["key"].as_str().ok_or("no key")?;
        Ok::<_, coeval::BoxError>(Keys {
            reads: vec![],
            writes: vec![key.into()],
        })
    };
    lab.tool(
        ToolSpec::read("keyed")
            .keys(PerCall::decide(keys))
            .dependency("plenty"),
    );
    let keyed = |key: &str, ms: u64| call("", "keyed", json!({"key": key, "ms": ms}));
    lab.run([keyed("a", 100), keyed("b", 1), keyed("a", 1), keyed("b", 100)])
        .await;
    assert!(lab.log.ms() <= 103, "{} ms", lab.log.ms());
}

/// Three writers of one key; the second is answered early, because its input failed, while the first still runs. The
/// third waits for the first all the same.
#[tokio::test(start_paused = true)]
async fn a_key_is_not_taken_over_the_head_of_its_holder() {
    let lab = Lab::new();
    let keys = |_: &_| {
        Ok::<_, coeval::BoxError>(Keys {
            reads: vec![],
            writes: vec!["k".into()],
        })
    };
    lab.tool(
        ToolSpec::read("keyed")
            .keys(PerCall::decide(keys))
            .dependency("plenty"),
    );
    let report = lab
        .run([
            call("f", "read", json!({"then": "fail"})),
            call("", "keyed", json!({"ms": 100})),
            call("", "keyed", json!({"value": "{{f}}"})),
            call("", "keyed", json!({"ms": 1})),
        ])
        .await;
    assert_eq!(
        outcomes(&report),
        [
            Outcome::Failed,
            Outcome::Ok,
            Outcome::DependencyFailed,
            Outcome::Ok
        ]
    );
    assert_eq!(lab.log.span(3).began, 100);
}

#[tokio::test(start_paused = true)]
async fn one_failure_keeps_its_siblings() {
    let lab = Lab::new();
    let set = CallSet::new([
        call("c1", "read", json!({"ms": 5})),
        call("c2", "read", json!({"ms": 1, "then": "fail"})),
        call("c3", "read", json!({"ms": 3, "then": "panic"})),
        call("c4", "nope", json!({})),
        call("c5", "read", json!("not json")),
        call("c6", "read", json!({"ms": 9})),
    ]);
    let report = lab.coordinator().run(set.clone()).await.unwrap();
    assert_conserved(&set, &report);
    use Outcome::*;
    assert_eq!(
        outcomes(&report),
        [Ok, Failed, Panicked, UnknownTool, InvalidArguments, Ok]
    );
    assert_eq!(report.status, Status::Complete);
}

#[tokio::test(start_paused = true)]
async fn a_call_whose_producer_failed_is_answered_as_such_however_long_the_chain() {
    let lab = Lab::new();
    let mut calls = vec![call("c0", "read", json!({"then": "fail"}))];
    calls.extend((1..5_000).map(|i| call(&format!("c{i}"), "read", json!({"value": i})).after([i - 1])));
    let report = lab.run(calls).await;
    assert_eq!(report.results[0].outcome, Outcome::Failed);
    assert!(
        report.results[1..]
            .iter()
            .all(|result| result.outcome == Outcome::DependencyFailed)
    );
    let longest = report
        .results
        .iter()
        .filter_map(|result| result.error.as_ref())
        .map(|e| e.message.len())
        .max();
    assert!(longest.unwrap() < 300, "messages don't grow along the chain");
    assert_eq!(lab.log.began(), [0]);
}

#[tokio::test(start_paused = true)]
async fn a_placeholder_is_filled_in_with_its_json_type() {
    let lab = Lab::new();
    let report = lab
        .run([
            call(
                "c1",
                "read",
                json!({"ms": 5, "value": {"rows": [{"threshold": 15000}]}}),
            ),
            call("c2", "read2", json!({"value": "{{c1.threshold}}"})),
            call("c3", "read2", json!({"value": "over {{c1.rows[0].threshold}}?"})),
            call("c4", "read2", json!({"value": "Dear {{{{name}}"})),
        ])
        .await;
    assert_eq!(report.results[3].value, Some(json!("Dear {{name}}")));
    assert_eq!(report.results[1].value, Some(json!(15000)));
    assert_eq!(report.results[2].value, Some(json!("over 15000?")));
    assert_eq!(report.results[1].facts.leans_on, [0]);
    assert!(lab.log.span(1).began >= 5);
}

/// GO-09, B29, B33: a fatal error starts nothing more, drains what runs and answers everything.
#[tokio::test(start_paused = true)]
async fn after_a_fatal_error_what_runs_is_drained_and_the_rest_is_not_started() {
    let lab = Lab::new();
    let report = lab
        .run([
            call("", "read", json!({"ms": 5, "then": "fatal"})),
            call("", "read", json!({"ms": 20})),
            call("", "write", json!({})),
            call("", "read", json!({})),
        ])
        .await;
    use Outcome::*;
    assert_eq!(outcomes(&report), [Failed, Ok, NotStarted, NotStarted]);
    assert_eq!(codes(&report)[2], Some(ErrorCode::FatalBefore));
    assert_eq!(report.status, Status::Fatal);
    assert_eq!(lab.log.began(), [0, 1]);
    assert_eq!(lab.log.running(), 0);
}

#[tokio::test(start_paused = true)]
async fn all_or_nothing_ends_at_the_first_failure_and_still_answers_every_call() {
    let lab = Lab::new();
    let coordinator = lab.builder().on_failure(FailurePolicy::Abort).build();
    let set = CallSet::new([
        call("", "read", json!({"ms": 1})),
        call("", "read", json!({"ms": 5, "then": "fail"})),
        call("", "read", json!({"ms": 500})),
        call("", "write", json!({})),
    ]);
    let report = coordinator.run(set.clone()).await.unwrap();
    assert_conserved(&set, &report);
    use Outcome::*;
    assert_eq!(outcomes(&report), [Ok, Failed, Cancelled, NotStarted]);
    assert_eq!(report.status, Status::Aborted);
    assert_eq!(lab.log.ms(), 5);
}

/// B02, B05, B14, B39: cancelling answers every call, runs nothing more, and leaves nothing running.
#[tokio::test(start_paused = true)]
async fn a_cancelled_set_answers_every_call_and_runs_nothing_more() {
    let lab = Lab::new();
    let set = CallSet::new([
        call("", "read", json!({"ms": 1})),
        call("", "read", json!({"then": "hang"})),
        call("", "write", json!({})),
        call("", "read", json!({})),
    ]);
    let run = lab.coordinator().start(set.clone());
    let control = run.control();
    let (report, ()) = tokio::join!(run.report(), async {
        tokio::time::sleep(Duration::from_millis(50)).await;
        control.cancel();
    });
    let report = report.unwrap();
    assert_conserved(&set, &report);
    use Outcome::*;
    assert_eq!(outcomes(&report), [Ok, Cancelled, NotStarted, NotStarted]);
    assert_eq!(report.status, Status::Cancelled);
    assert_eq!(lab.log.running(), 0);
    assert_eq!(lab.log.ms(), 50);
}

/// B40, LC-21, DS-15: a set that was cancelled before it began runs no body at all.
#[tokio::test(start_paused = true)]
async fn a_set_cancelled_beforehand_runs_nothing() {
    let lab = Lab::new();
    let run = lab.coordinator().start(CallSet::new(reads(&[1, 1])));
    run.cancel();
    let report = run.report().await.unwrap();
    assert_eq!(outcomes(&report), [Outcome::NotStarted; 2]);
    assert!(lab.log.began().is_empty());
}

#[tokio::test(start_paused = true)]
async fn cancelling_one_call_leaves_its_siblings() {
    let lab = Lab::new();
    let run = lab.coordinator().start(CallSet::new([
        call("", "read", json!({"then": "hang"})),
        call("", "read", json!({"ms": 30})),
        call("", "read", json!({"ms": 1})).after([0]),
    ]));
    let control = run.control();
    let (report, ()) = tokio::join!(run.report(), async {
        tokio::time::sleep(Duration::from_millis(10)).await;
        control.cancel_call(0);
        control.cancel_call(99);
    });
    let report = report.unwrap();
    use Outcome::*;
    assert_eq!(outcomes(&report), [Cancelled, Ok, DependencyFailed]);
    assert_eq!(report.status, Status::Complete);
}

/// B37: a body that listens is given time to end well; nothing of it runs when the report is there.
#[tokio::test(start_paused = true)]
async fn a_listening_body_is_given_a_grace_period() {
    let lab = Lab::new();
    let mut set = CallSet::new([
        call("", "read", json!({"then": "listen"})),
        call("", "read", json!({"then": "hang"})),
    ]);
    set.deadline_ms = Some(20);
    let report = lab.coordinator().run(set).await.unwrap();
    assert_eq!(outcomes(&report), [Outcome::TimedOut; 2]);
    assert!(lab.log.span(0).finished, "it ended by itself");
    assert_eq!(
        lab.log.span(1).ended,
        Some(20),
        "nobody waits for one that doesn't listen"
    );
    assert_eq!(lab.log.running(), 0);
}

/// G7: when the report's future is dropped, reads are dropped with it, nothing starts any more, and `idle` tells when
/// what was spawned has ended.
#[tokio::test(start_paused = true)]
async fn a_dropped_set_starts_nothing_and_idle_waits_for_its_write() {
    let lab = Lab::new();
    let coordinator = lab.coordinator();
    let set = CallSet::new([call("", "write", json!({"ms": 100})), call("", "read", json!({}))]);
    let dropped = tokio::time::timeout(Duration::from_millis(10), coordinator.run(set)).await;
    assert!(dropped.is_err());
    assert_eq!(lab.log.running(), 1, "a write that began isn't torn");
    coordinator.idle().await;
    assert_eq!(lab.log.running(), 0);
    assert!(lab.log.span(0).finished);
    assert_eq!(lab.log.began(), [0]);
}

#[tokio::test(start_paused = true)]
async fn dropping_a_set_drops_its_reads_at_once() {
    let lab = Lab::new();
    let coordinator = lab.coordinator();
    let dropped = tokio::time::timeout(
        Duration::from_millis(10),
        coordinator.run(CallSet::new(reads(&[500, 500]))),
    )
    .await;
    assert!(dropped.is_err());
    assert_eq!(lab.log.running(), 0);
    coordinator.idle().await;
    assert_eq!(lab.log.ms(), 10);
}

/// B36: one hanging call is timed out by its own limit, and its sibling is answered.
#[tokio::test(start_paused = true)]
async fn a_hanging_call_is_timed_out_by_its_own_limit() {
    let lab = Lab::new();
    lab.tool(
        ToolSpec::read("short")
            .timeout(Duration::from_millis(20))
            .dependency("plenty"),
    );
    let report = lab
        .run([
            call("", "short", json!({"then": "hang"})),
            call("", "read", json!({"ms": 1})),
        ])
        .await;
    assert_eq!(outcomes(&report), [Outcome::TimedOut, Outcome::Ok]);
    assert_eq!(lab.log.ms(), 20);
}

/// A write past its deadline is drained for a bounded time, then answered as one that may have happened.
#[tokio::test(start_paused = true)]
async fn a_write_past_its_deadline_may_have_happened() {
    let lab = Lab::new();
    let mut set = CallSet::new([
        call("", "write", json!({"then": "hang"})),
        call("", "read", json!({})),
    ]);
    set.deadline_ms = Some(50);
    let coordinator = lab.builder().drain(Duration::from_millis(200)).build();
    let report = coordinator.run(set).await.unwrap();
    assert_eq!(outcomes(&report), [Outcome::TimedOut, Outcome::NotStarted]);
    assert!(report.results[0].error.as_ref().unwrap().may_have_happened);
    assert_eq!(codes(&report)[1], Some(ErrorCode::DeadlineBeforeStart));
    assert_eq!(lab.log.ms(), 250);
}

/// B56: equal reads of one stage are executed once, and every slot is filled.
#[tokio::test(start_paused = true)]
async fn equal_reads_are_executed_once() {
    let lab = Lab::new();
    let report = lab
        .run([
            call("a", "read", json!({"ms": 5, "value": 7})),
            call("b", "read", json!({"value": 7, "ms": 5})),
            call("c", "read", json!({"ms": 5, "value": 8})),
            call("d", "read", json!({"ms": 5, "value": 7})),
        ])
        .await;
    assert_eq!(lab.log.began(), [0, 2]);
    let shared: Vec<_> = report.results.iter().map(|result| result.shared_with).collect();
    assert_eq!(shared, [None, Some(0), None, Some(0)]);
    assert!(report.results.iter().all(|result| result.value.is_some()));
}

#[tokio::test(start_paused = true)]
async fn cancelling_one_of_two_equal_reads_leaves_the_other() {
    let lab = Lab::new();
    let run = lab.coordinator().start(CallSet::new([
        call("a", "read", json!({"ms": 50})),
        call("b", "read", json!({"ms": 50})),
    ]));
    let control = run.control();
    let (report, ()) = tokio::join!(run.report(), async {
        tokio::time::sleep(Duration::from_millis(10)).await;
        control.cancel_call(0);
    });
    let report = report.unwrap();
    assert_eq!(outcomes(&report), [Outcome::Cancelled, Outcome::Ok]);
    assert_eq!(report.results[1].shared_with, None);
    assert_eq!(lab.log.ms(), 50);
}

/// B79: a read after a write is another reading, however equal.
#[tokio::test(start_paused = true)]
async fn equal_reads_around_a_write_are_executed_twice() {
    let lab = Lab::new();
    lab.run([
        call("", "read", json!({})),
        call("", "write", json!({})),
        call("", "read", json!({})),
    ])
    .await;
    assert_eq!(lab.log.began(), [0, 1, 2]);
}

/// DS-06: a call may replace a tool; what was planned as a read of it then meets the new one, and runs alone.
#[tokio::test(start_paused = true)]
async fn a_tool_replaced_meanwhile_is_looked_at_again_at_the_start() {
    let lab = Lab::new();
    lab.tool(ToolSpec::read("x").dependency("plenty"));
    let (registry, scripted) = (
        lab.registry.clone(),
        lab.scripted(ToolSpec::new("x").dependency("plenty")),
    );
    let replace = move |_: CallRequest| {
        registry.replace(scripted.clone()).unwrap();
        async { Ok::<_, coeval::BoxError>(json!("replaced")) }
    };
    lab.registry
        .register(coeval::tool::Tool::raw_fn(ToolSpec::write("replace"), replace))
        .unwrap();
    let report = lab
        .run([
            call("", "replace", json!({})),
            call("", "x", json!({"ms": 10, "value": 1})),
            call("", "x", json!({"ms": 10, "value": 2})),
        ])
        .await;
    assert_eq!(outcomes(&report), [Outcome::Ok; 3]);
    assert_eq!(lab.log.peak(), 1, "{:?}", lab.log.spans());
    assert_eq!(report.results[1].facts.class, coeval::tool::Class::Exclusive);
}

/// LC-28: a tool removed before a call starts is unknown to that call, and no trouble to one that runs.
#[tokio::test(start_paused = true)]
async fn a_tool_removed_while_it_runs_completes_and_is_unknown_later() {
    let lab = Lab::new();
    lab.tool(ToolSpec::read("x").dependency("plenty"));
    let coordinator = lab.builder().max_concurrency(1.try_into().unwrap()).build();
    let run = coordinator.start(CallSet::new([
        call("", "x", json!({"ms": 10, "value": 1})),
        call("", "x", json!({"ms": 10, "value": 2})),
    ]));
    let (report, ()) = tokio::join!(run.report(), async {
        tokio::time::sleep(Duration::from_millis(5)).await;
        lab.registry.remove("x");
    });
    assert_eq!(outcomes(&report.unwrap()), [Outcome::Ok, Outcome::UnknownTool]);
}

/// B48, B50: what a tool needs is asked again when the call starts, not when it was queued.
#[tokio::test(start_paused = true)]
async fn preconditions_are_asked_again_at_the_start() {
    let lab = Lab::new();
    let version = Arc::new(Mutex::new(1));
    let seen = Arc::clone(&version);
    let fresh = PerCall::decide(move |_: &_| {
        let needs: Arc<[Arc<str>]> = match *seen.lock().unwrap() {
            1 => Arc::from([]),
            _ => Arc::from([Arc::from("reload")]),
        };
        Ok::<_, coeval::BoxError>(needs)
    });
    lab.tool(ToolSpec::read("reload"));
    let body = {
        let version = Arc::clone(&version);
        move |_: CallRequest| {
            *version.lock().unwrap() += 1;
            async { Ok::<_, coeval::BoxError>(json!("saved")) }
        }
    };
    let spec = ToolSpec::write("save").preconditions_per_call(fresh);
    lab.registry
        .register(coeval::tool::Tool::raw_fn(spec, body))
        .unwrap();
    let report = lab
        .run([
            call("", "save", json!({"text": "a"})),
            call("", "save", json!({"text": "b"})),
        ])
        .await;
    assert_eq!(outcomes(&report), [Outcome::Ok, Outcome::Refused]);
    assert_eq!(codes(&report)[1], Some(ErrorCode::PreconditionUnmet));
    assert_eq!(*version.lock().unwrap(), 2);
}

/// A call that its own classifier calls a write once it starts runs alone, and later calls wait for it.
#[tokio::test(start_paused = true)]
async fn a_call_found_exclusive_at_its_start_waits_for_all_and_holds_back_the_later_ones() {
    let lab = Lab::new();
    // A placeholder decides: it is only known at the start whether this call writes.
    let effect = |arguments: &coeval::tool::ArgumentMap| {
        Ok::<_, coeval::BoxError>(if arguments["mode"] == "set" {
            Effect::Write
        } else {
            Effect::Read
        })
    };
    lab.tool(
        ToolSpec::new("mode")
            .effect(PerCall::decide(effect))
            .dependency("plenty"),
    );
    let report = lab
        .run([
            call("c0", "read", json!({"ms": 30})),
            call("c1", "read2", json!({"ms": 5, "value": {"mode": "set"}})),
            call("c2", "mode", json!({"ms": 10, "mode": "{{c1.mode}}"})),
            call("c3", "read", json!({"ms": 1, "value": "later"})).after(["c1"]),
        ])
        .await;
    assert_eq!(outcomes(&report), [Outcome::Ok; 4]);
    assert_eq!(lab.log.span(2).began, 30, "{:?}", lab.log.spans());
    assert_eq!(lab.log.span(3).began, 40);
    assert_eq!(report.results[2].facts.class, coeval::tool::Class::Write);
}

#[derive(Default)]
struct Recorder {
    log: Mutex<Vec<String>>,
    deny: Option<usize>,
    throw: Option<usize>,
    slow: Duration,
}

impl Hook for Recorder {
    fn before<'a>(&'a self, request: &'a CallRequest) -> BoxFuture<'a, Result<(), CallError>> {
        Box::pin(async move {
            let position = request.position();
            self.log.lock().unwrap().push(format!("pre {position}"));
            if !self.slow.is_zero() {
                tokio::time::sleep(self.slow).await;
                self.log.lock().unwrap().push(format!("pre {position} done"));
            }
            if self.deny == Some(position) {
                return Err(CallError::new(ErrorCode::Denied, "not today"));
            }
            assert!(self.throw != Some(position), "a hook's own bug");
            Ok(())
        })
    }

    fn after<'a>(&'a self, position: usize, result: &'a CallResult) -> BoxFuture<'a, ()> {
        self.log
            .lock()
            .unwrap()
            .push(format!("post {position} {:?}", result.outcome));
        Box::pin(async {})
    }
}

/// DS-12, LC-29: bodies finish 2, 1, 0; hooks before saw 0, 1, 2 and hooks after saw 0, 1, 2.
#[tokio::test(start_paused = true)]
async fn hooks_run_in_the_models_order_whatever_finishes_first() {
    let lab = Lab::new();
    let hook = Arc::new(Recorder::default());
    lab.builder()
        .hook(Arc::clone(&hook) as _)
        .build()
        .run(CallSet::new(reads(&[30, 20, 10])))
        .await
        .unwrap();
    let log = hook.log.lock().unwrap().clone();
    assert_eq!(
        log,
        ["pre 0", "pre 1", "pre 2", "post 0 Ok", "post 1 Ok", "post 2 Ok"]
    );
}

/// DS-25: before-hooks never overlap: a slow one delays the next call's start.
#[tokio::test(start_paused = true)]
async fn before_hooks_never_overlap() {
    let lab = Lab::new();
    let hook = Arc::new(Recorder {
        slow: Duration::from_millis(10),
        ..Recorder::default()
    });
    lab.builder()
        .hook(Arc::clone(&hook) as _)
        .build()
        .run(CallSet::new(reads(&[5, 5])))
        .await
        .unwrap();
    let log = hook.log.lock().unwrap().clone();
    let before: Vec<_> = log.iter().filter(|line| line.starts_with("pre")).collect();
    assert_eq!(before, ["pre 0", "pre 0 done", "pre 1", "pre 1 done"]);
    assert_eq!(lab.log.span(1).began, 20);
}

/// DS-14: one call is denied and one hook breaks: only the first body runs, and `after` isn't asked for the broken one.
#[tokio::test(start_paused = true)]
async fn a_denied_call_and_a_broken_hook_are_answers_of_their_calls() {
    let lab = Lab::new();
    let hook = Arc::new(Recorder {
        deny: Some(1),
        throw: Some(2),
        ..Recorder::default()
    });
    let report = lab
        .builder()
        .hook(Arc::clone(&hook) as _)
        .build()
        .run(CallSet::new(reads(&[5, 5, 5])))
        .await
        .unwrap();
    use Outcome::*;
    assert_eq!(outcomes(&report), [Ok, Refused, Failed]);
    assert_eq!(lab.log.began(), [0]);
    let log = hook.log.lock().unwrap().clone();
    assert_eq!(log[3..], ["post 0 Ok", "post 1 Refused"]);
}

/// DS-24: a barrier is held through its after-hook.
#[tokio::test(start_paused = true)]
async fn a_barrier_is_held_through_its_after_hook() {
    struct Slow(Mutex<Vec<usize>>);
    impl Hook for Slow {
        fn after<'a>(&'a self, position: usize, _: &'a CallResult) -> BoxFuture<'a, ()> {
            Box::pin(async move {
                tokio::time::sleep(Duration::from_millis(10)).await;
                self.0.lock().unwrap().push(position);
            })
        }
    }
    let lab = Lab::new();
    let hook = Arc::new(Slow(Mutex::default()));
    let calls = [call("", "write", json!({"ms": 5})), call("", "read", json!({}))];
    lab.builder()
        .hook(Arc::clone(&hook) as _)
        .build()
        .run(CallSet::new(calls))
        .await
        .unwrap();
    assert_eq!(lab.log.span(1).began, 15);
    assert_eq!(*hook.0.lock().unwrap(), [0, 1]);
}

/// DS-08: nothing is committed before everything earlier is.
#[tokio::test(start_paused = true)]
async fn results_are_committed_in_the_models_order() {
    let lab = Lab::new();
    let mut run = lab.coordinator().start(CallSet::new(reads(&[30, 10, 20])));
    let mut events = run.events();
    let (_, seen) = tokio::join!(run.report(), async {
        let mut seen = Vec::new();
        while let Some(event) = events.next().await {
            seen.push(match event {
                Event::Started { position } => format!("start {position}"),
                Event::Finished { position, .. } => format!("end {position}"),
                Event::Committed { position, .. } => format!("commit {position}"),
                _ => unreachable!(),
            });
        }
        seen
    });
    assert_eq!(
        seen,
        [
            "start 0", "start 1", "start 2", "end 1", "end 2", "end 0", "commit 0", "commit 1", "commit 2"
        ]
    );
}

/// GO-10: an accepted call of a final tool ends the turn for every later call.
#[tokio::test(start_paused = true)]
async fn a_final_tool_ends_the_turn_for_later_calls() {
    let lab = Lab::new();
    lab.tool(ToolSpec::read("finish").ends_turn());
    let calls = [
        call("", "read", json!({"ms": 20})),
        call("", "finish", json!({"ms": 5})),
        call("", "read", json!({"ms": 1})),
    ];
    let report = lab.run(calls).await;
    use Outcome::*;
    assert_eq!(outcomes(&report), [Ok, Ok, NotStarted]);
    assert_eq!(codes(&report)[2], Some(ErrorCode::TurnEnded));
    assert_eq!(
        lab.log.began(),
        [0, 1],
        "the last did not begin while it was open whether the turn ends"
    );
    assert_eq!(
        lab.log.span(1).began,
        20,
        "and the end of the turn waits for what comes before it"
    );
    let report = lab
        .run([
            call("", "finish", json!({"then": "fail"})),
            call("", "read", json!({"ms": 2})),
        ])
        .await;
    assert_eq!(outcomes(&report), [Failed, Ok], "only an accepted one ends it");
}

/// B59: the same set again, by its id, is answered with the report it had.
#[tokio::test(start_paused = true)]
async fn a_repeated_set_is_answered_and_not_run_again() {
    let lab = Lab::new();
    let coordinator = lab.coordinator();
    let mut set = CallSet::new(reads(&[10, 5]));
    set.set_id = Some("turn-7".into());
    let (first, second) = tokio::join!(coordinator.run(set.clone()), coordinator.run(set.clone()));
    let third = coordinator.run(set.clone()).await;
    assert_eq!(lab.log.spans().len(), 2);
    assert_eq!(first, second);
    assert_eq!(first, third);
    set.calls[0].arguments = json!({"value": "other"}).into();
    coordinator.run(set.clone()).await.unwrap();
    assert_eq!(lab.log.spans().len(), 4, "another set by the same name runs");
    let mut tenant = CallSet::new(reads(&[10, 5]));
    tenant.set_id = Some("turn-7".into());
    tenant.scope.insert("tenant".into(), json!("b"));
    coordinator.run(tenant).await.unwrap();
    assert_eq!(lab.log.spans().len(), 6, "another tenant's set is another set");
}

#[tokio::test(start_paused = true)]
async fn a_shut_down_coordinator_takes_no_more_sets() {
    let lab = Lab::new();
    let coordinator = lab.coordinator();
    coordinator.shutdown().await;
    let refused = coordinator.run(CallSet::new(reads(&[1]))).await;
    assert_eq!(refused, Err(coeval::run::SetError::Closed));
}

/// AT-10, AT-24: what was called is applied once, after the set, in call order, successes only.
#[tokio::test(start_paused = true)]
async fn called_holds_successes_in_call_order_after_the_set() {
    let lab = Lab::new();
    let mut set = CallSet::new([
        call("", "read2", json!({"ms": 20})),
        call("", "read", json!({"ms": 1})),
        call("", "alone", json!({"then": "fail"})),
    ]);
    set.called = vec!["find_account".into()];
    let report = lab.coordinator().run(set).await.unwrap();
    let called: Vec<_> = report.called.iter().map(|name| &**name).collect();
    assert_eq!(called, ["find_account", "read2", "read"]);
}

#[tokio::test(start_paused = true)]
async fn empty_sets_and_big_sets_are_answered() {
    let lab = Lab::new();
    let report = lab.run([]).await;
    assert_eq!(report.results, []);
    let report = lab
        .run((0..10_000).map(|i| call("", "read", json!({"ms": 1, "value": i}))))
        .await;
    assert!(report.results.iter().all(CallResult::is_ok));
    assert_eq!(lab.log.peak(), 8);
    let too_many = lab
        .builder()
        .max_calls(3)
        .build()
        .run(CallSet::new(reads(&[1; 4])))
        .await;
    assert!(matches!(
        too_many,
        Err(coeval::run::SetError::TooLarge { calls: 4, limit: 3 })
    ));
}

/// B72: 500 calls, 8 places: never more than 8 at once, and 8 whenever there is work.
#[tokio::test(start_paused = true)]
async fn places_bound_what_runs_at_once() {
    let lab = Lab::new();
    let mut set = CallSet::new((0..500).map(|i| call("", "read", json!({"ms": 10, "value": i}))));
    set.policy = Some(PolicyName::Go);
    lab.coordinator().run(set).await.unwrap();
    assert_eq!(lab.log.peak(), 8);
    assert_eq!(lab.log.ms(), 630, "500 calls of 10 ms in 8 places");
}

/// What the host said about its user is never printed, even if a tool's own error quotes it.
#[tokio::test(start_paused = true)]
async fn an_error_that_quotes_the_scope_is_told_without_it() {
    let lab = Lab::new();
    let tool = |request: CallRequest| async move {
        let tenant = request.scope()["tenant"].as_str().unwrap_or_default().to_owned();
        Err::<serde_json::Value, coeval::BoxError>(format!("no partition for {tenant}, try later").into())
    };
    lab.registry
        .register(coeval::tool::Tool::raw_fn(ToolSpec::read("own"), tool))
        .unwrap();
    let mut set = CallSet::new([call("", "own", json!({}))]);
    set.scope.insert("tenant".into(), json!("acme-7731"));
    let report = lab.coordinator().run(set).await.unwrap();
    let error = report.results[0].error.as_ref().unwrap();
    assert_eq!(
        error.message,
        "Could not complete own: no partition for (hidden), try later"
    );
}

/// A withheld value is in no error either, nor in an error that quotes one that would.
#[tokio::test(start_paused = true)]
async fn errors_do_not_quote_a_withheld_reading() {
    let lab = Lab::new();
    let picky = |request: CallRequest| async move {
        Err::<serde_json::Value, coeval::BoxError>(format!("bad path {}", request.arguments["path"]).into())
    };
    lab.registry
        .register(coeval::tool::Tool::raw_fn(ToolSpec::read("picky"), picky))
        .unwrap();
    let set = CallSet::new([
        call("c1", "read", json!({"value": {"secret": "SECRET-1"}})),
        call("c2", "read2", json!({"value": 2})),
        call("c3", "picky", json!({"path": "{{c1.secret}}"})),
        call("c4", "read2", json!({"value": "{{c3.a}}"})),
    ])
    .require_comparable();
    let report = lab.coordinator().run(set).await.unwrap();
    assert!(report.results[0].withheld);
    let printed = serde_json::to_string(&report).unwrap();
    assert!(!printed.contains("SECRET-1"), "{printed}");
}
