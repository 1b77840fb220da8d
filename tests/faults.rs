//! Public faults of other runtimes, each with a small case and what must come of it.
//!
//! Here are those that no other module pins: `executor`, `layers`, `plan` and `conformance` name the rest in their doc
//! comments.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use coeval::call::{OnGuess, Purpose};
use coeval::limit::Limits;
use coeval::plan::PolicyName;
use coeval::reading::{Answer, CallError, ErrorCode, Outcome};
use coeval::report::{SetReport, Status};
use coeval::request::CallRequest;
use coeval::run::Event;
use coeval::tool::{ArgumentMap, Keys, PerCall, Tool, ToolSpec};
use coeval::{BoxError, Call, CallSet, Coordinator};
use serde_json::{Value, json};

use crate::support::lab::{Lab, assert_conserved, call, codes, outcomes};

fn reads(ms: &[u64]) -> Vec<Call> {
    ms.iter()
        .enumerate()
        .map(|(i, ms)| call(&format!("c{i}"), "read", json!({"ms": ms, "value": i})))
        .collect()
}

fn values(report: &SetReport) -> Vec<Value> {
    report
        .results
        .iter()
        .map(|result| result.value.clone().unwrap_or_default())
        .collect()
}

fn tool<F, Fut>(lab: &Lab, spec: ToolSpec, body: F)
where
    F: Fn(CallRequest) -> Fut + Clone + Send + Sync + 'static,
    Fut: Future<Output = Result<Value, BoxError>> + Send + 'static,
{
    lab.registry.register(Tool::raw_fn(spec, body)).unwrap();
}

// ===== every call gets its one answer =====

/// B01, B25, B27, B32: a failing call is an answer of its own, with its id, its tool and a message; the rest have theirs.
#[tokio::test(start_paused = true)]
async fn a_failing_call_is_answered_by_name_beside_its_siblings() {
    let lab = Lab::new();
    let mut calls = reads(&[5; 10]);
    calls[0] = call("c0", "read", json!({"then": "fail"}));
    let report = lab.run(calls).await;
    assert_eq!(report.results[0].outcome, Outcome::Failed);
    assert_eq!((&*report.results[0].id, &*report.results[0].tool), ("c0", "read"));
    assert!(
        report.results[0]
            .error
            .as_ref()
            .unwrap()
            .message
            .contains("scripted failure")
    );
    assert_eq!(report.results.iter().filter(|result| result.is_ok()).count(), 9);
}

/// B03, B04, B62, B63: eight distinct calls are eight bodies and eight results, all there when the report is.
#[tokio::test(start_paused = true)]
async fn every_distinct_call_runs_and_none_is_lost() {
    let lab = Lab::new();
    let report = lab.run(reads(&[300; 8])).await;
    assert_eq!(
        lab.log.began().into_iter().collect::<BTreeSet<_>>(),
        (0..8).collect()
    );
    let ids: BTreeSet<_> = report
        .results
        .iter()
        .map(|result| result.id.to_string())
        .collect();
    assert_eq!(ids, (0..8).map(|i| format!("c{i}")).collect());
    assert_eq!(values(&report), (0..8).map(|i| json!(i)).collect::<Vec<_>>());
}

/// B58: the same tool three times is three results: nothing is kept by the tool's name.
#[tokio::test(start_paused = true)]
async fn one_tool_called_three_times_has_three_results() {
    let lab = Lab::new();
    let report = lab
        .run((0..3).map(|i| call("", "read", json!({"value": i}))))
        .await;
    assert_eq!(values(&report), [json!(0), json!(1), json!(2)]);
}

/// B23: equal ids, as from providers that use the function's name as id: paired by position, both answered.
#[tokio::test(start_paused = true)]
async fn equal_ids_are_answered_each_in_its_place() {
    let lab = Lab::new();
    let calls = [
        call("read", "read", json!({"ms": 20, "value": "slow"})),
        call("read", "read", json!({"value": "fast"})),
    ];
    assert_eq!(values(&lab.run(calls).await), [json!("slow"), json!("fast")]);
}

/// B06: a host that takes one call a turn: one runs, and the two others are answered as not run.
#[tokio::test(start_paused = true)]
async fn what_a_one_call_host_does_not_run_is_answered_all_the_same() {
    let lab = Lab::new();
    lab.tool(ToolSpec::read("only").ends_turn().dependency("plenty"));
    let coordinator = lab.builder().max_concurrency(1.try_into().unwrap()).build();
    let set = CallSet::new((0..3).map(|i| call(&format!("c{i}"), "only", json!({"ms": 1, "value": i}))));
    let report = coordinator.run(set).await.unwrap();
    assert_eq!(
        outcomes(&report),
        [Outcome::Ok, Outcome::NotStarted, Outcome::NotStarted]
    );
    assert_eq!(lab.log.began(), [0]);
}

/// B08, B09: a panic, also one in a task that the body spawned, is that call's answer, and the coordinator goes on.
#[tokio::test(start_paused = true)]
async fn a_panic_is_an_answer_and_leaves_the_coordinator_usable() {
    let lab = Lab::new();
    tool(&lab, ToolSpec::read("spawns"), |_| async {
        tokio::spawn(async { panic!("in a task") }).await?;
        Ok(Value::Null)
    });
    let coordinator = lab.coordinator();
    let set = [
        call("c0", "read", json!({})),
        call("c1", "read", json!({"then": "panic"})),
        call("c2", "spawns", json!({})),
    ];
    let report = coordinator.run(CallSet::new(set)).await.unwrap();
    assert_eq!(
        outcomes(&report),
        [Outcome::Ok, Outcome::Panicked, Outcome::Panicked]
    );
    let again = coordinator.run(CallSet::new(reads(&[1, 2]))).await.unwrap();
    assert_eq!(outcomes(&again), [Outcome::Ok; 2]);
}

/// B10: an unknown tool is answered with the names there are; what is known runs.
#[tokio::test(start_paused = true)]
async fn an_unknown_tool_is_answered_and_the_known_one_runs() {
    let lab = Lab::new();
    let report = lab
        .run([call("c1", "raed", json!({})), call("c2", "read", json!({}))])
        .await;
    assert_eq!(outcomes(&report), [Outcome::UnknownTool, Outcome::Ok]);
    assert!(
        report.results[0].error.as_ref().unwrap().message.contains("read"),
        "{:?}",
        report.results[0]
    );
}

/// B69: an invented wrapper around calls is one unknown tool: one answer, and nothing inside it runs.
#[tokio::test(start_paused = true)]
async fn an_invented_wrapper_is_one_error_and_never_taken_apart() {
    let lab = Lab::new();
    let inside = json!({"tool_uses": [{"recipient_name": "functions.read", "parameters": {}}, {"recipient_name": "functions.write"}]});
    let report = lab.run([call("c1", "multi_tool_use.parallel", inside)]).await;
    assert_eq!(outcomes(&report), [Outcome::UnknownTool]);
    assert!(lab.log.began().is_empty());
}

/// B68: text that is no JSON is answered `invalid_arguments`, and the tool never runs.
#[tokio::test(start_paused = true)]
async fn broken_arguments_never_become_empty_ones() {
    let lab = Lab::new();
    let report = lab
        .run([
            call("c1", "write", json!("{\"path\": \"/\"")),
            call("c2", "write", json!("[]")),
        ])
        .await;
    assert_eq!(outcomes(&report), [Outcome::InvalidArguments; 2]);
    assert!(lab.log.began().is_empty());
}

/// B11, B12: an answer of several parts is one slot of one ordered list.
#[tokio::test(start_paused = true)]
async fn an_answer_of_many_parts_is_one_slot() {
    let lab = Lab::new();
    let parts = json!([{"type": "text", "text": "a"}, {"type": "image", "data": "AA=="}]);
    let report = lab
        .run([
            call("c0", "read", json!({"value": parts})),
            call("c1", "read", json!({"value": 1})),
        ])
        .await;
    assert_eq!(values(&report), [parts, json!(1)]);
}

/// B28: an answer that says no is an answer, not a failure: under all-or-nothing too the siblings run.
#[tokio::test(start_paused = true)]
async fn an_answer_that_says_no_is_no_failure() {
    let lab = Lab::new();
    let coordinator = lab
        .builder()
        .on_failure(coeval::plan::FailurePolicy::Abort)
        .build();
    let calls = [
        call("", "read", json!({"then": "not_found"})),
        call("", "read", json!({"ms": 5})),
    ];
    let report = coordinator.run(CallSet::new(calls)).await.unwrap();
    assert_eq!(outcomes(&report), [Outcome::Ok; 2]);
    assert_eq!(report.status, Status::Complete);
}

/// B26: one failure among ten long calls cancels none of them.
#[tokio::test(start_paused = true)]
async fn one_failure_cancels_no_long_call() {
    let lab = Lab::new();
    let mut calls = reads(&[60_000; 8]);
    calls[3] = call("c3", "read", json!({"then": "fail"}));
    let report = lab.run(calls).await;
    assert_eq!(report.results.iter().filter(|result| result.is_ok()).count(), 7);
    assert!(lab.log.spans().iter().all(|span| span.finished));
}

// ===== order =====

/// B16, B17, B20: whatever finishes first, results stand in the model's order, and so they do when the list is made anew
/// from the events.
#[tokio::test(start_paused = true)]
async fn results_keep_the_models_order_in_the_report_and_in_the_events() {
    let lab = Lab::new();
    let mut run = lab.coordinator().start(CallSet::new(reads(&[30, 10, 20])));
    let mut events = run.events();
    let (report, rebuilt) = tokio::join!(run.report(), async {
        let mut rebuilt = Vec::new();
        while let Some(event) = events.next().await {
            if let Event::Committed { position, result } = event {
                assert_eq!(position, rebuilt.len());
                rebuilt.push(result.value.clone().unwrap());
            }
        }
        rebuilt
    });
    assert_eq!(rebuilt, [json!(0), json!(1), json!(2)]);
    assert_eq!(values(&report.unwrap()), rebuilt);
}

fn keyed(lab: &Lab, effect: ToolSpec) {
    let keys = |arguments: &ArgumentMap| {
        let named = |role: &str| {
            arguments
                .get(role)
                .and_then(Value::as_str)
                .map(Arc::from)
                .into_iter()
                .collect()
        };
        Ok::<_, BoxError>(Keys {
            reads: named("r"),
            writes: named("w"),
        })
    };
    lab.tool(effect.keys(PerCall::decide(keys)).dependency("plenty"));
}

/// B43: a scan of a directory does not overtake what is written into it, even among calls that may share everything else.
#[tokio::test(start_paused = true)]
async fn a_directory_is_not_scanned_while_it_is_written_to() {
    let lab = Lab::new();
    keyed(&lab, ToolSpec::read("io"));
    lab.run([
        call("", "io", json!({"ms": 20, "w": "dir/x"})),
        call("", "io", json!({"ms": 5, "r": "dir"})),
        call("", "io", json!({"ms": 5, "r": "elsewhere"})),
    ])
    .await;
    assert_eq!((lab.log.span(1).began, lab.log.span(2).began), (20, 0));
}

/// B42, B44, B45, B47, B79: writes of one thing run in turn and all are kept; every read sees exactly what is before it.
#[tokio::test(start_paused = true)]
async fn reads_see_the_writes_before_them_and_no_write_is_lost() {
    let lab = Lab::new();
    let file = Arc::new(Mutex::new(Vec::<usize>::new()));
    let (written, seen) = (Arc::clone(&file), Arc::clone(&file));
    tool(&lab, ToolSpec::write("edit"), move |request| {
        let file = Arc::clone(&written);
        async move {
            // Reads, takes its time, writes back: what two edits at once would lose.
            let mut text = file.lock().unwrap().clone();
            tokio::time::sleep(Duration::from_millis(10)).await;
            text.push(request.position());
            *file.lock().unwrap() = text;
            Ok(Value::Null)
        }
    });
    tool(&lab, ToolSpec::read("see"), move |_| {
        let seen = json!(*seen.lock().unwrap());
        async move { Ok(seen) }
    });
    let edit = || call("", "edit", json!({}));
    let see = || call("", "see", json!({}));
    let report = lab
        .run([see(), edit(), see(), see(), edit(), edit(), edit(), edit(), see()])
        .await;
    let none: [usize; 0] = [];
    assert_eq!(values(&report)[0], json!(none));
    assert_eq!(values(&report)[2], json!([1]));
    assert_eq!(values(&report)[3], json!([1]));
    assert_eq!(values(&report)[8], json!([1, 4, 5, 6, 7]));
}

/// B51: a finishing call that is declared to need the search waits for it, and is refused if it failed.
#[tokio::test(start_paused = true)]
async fn a_finishing_call_waits_for_the_search_it_needs() {
    for (then, expected) in [("ok", Outcome::Ok), ("fail", Outcome::DependencyFailed)] {
        let lab = Lab::new();
        lab.tool(ToolSpec::read("finish").ends_turn().dependency("plenty"));
        let search = call("s", "read", json!({"ms": 10, "then": then}));
        let report = lab
            .run([search, call("f", "finish", json!({})).after(["s"])])
            .await;
        assert_eq!(report.results[1].outcome, expected);
        assert!(
            lab.log
                .spans()
                .iter()
                .all(|span| span.position == 0 || span.began == 10)
        );
    }
}

/// B52, B53: a value that only a sibling could know is looked up before its call runs; refused outright if asked for.
#[tokio::test(start_paused = true)]
async fn an_invented_value_does_not_run() {
    for on_guess in [OnGuess::Check, OnGuess::Refuse] {
        let lab = Lab::new();
        tool(
            &lab,
            ToolSpec::read("list_orders").output_fields(["orderId"]),
            |_| async { Ok(json!([{"orderId": 17}])) },
        );
        let cancelled = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&cancelled);
        tool(&lab, ToolSpec::write("cancel_order"), move |_| {
            count.fetch_add(1, SeqCst);
            async { Ok(Value::Null) }
        });
        let mut set = CallSet::new([
            call("", "list_orders", json!({})),
            call("", "cancel_order", json!({"orderId": 99})),
        ]);
        set.on_guess = Some(on_guess);
        let report = lab.coordinator().run(set).await.unwrap();
        assert_eq!(codes(&report), [None, Some(ErrorCode::GuessedArgument)]);
        assert_eq!(cancelled.load(SeqCst), 0);
    }
}

/// B55: what depends on a failing call is answered at once, its dependents too; and `$15` stays `$15`.
#[tokio::test(start_paused = true)]
async fn dependents_of_a_failure_are_answered_at_once_and_dollars_are_text() {
    let lab = Lab::new();
    let report = lab
        .run([
            call("c0", "read", json!({"ms": 7, "then": "fail"})),
            call("c1", "read", json!({"value": "{{c0}}"})),
            call("c2", "read", json!({"value": "{{c1.x}}"})),
            call("c3", "read", json!({"value": "costs $15, or $1"})),
        ])
        .await;
    use Outcome::*;
    assert_eq!(
        outcomes(&report),
        [Failed, DependencyFailed, DependencyFailed, Ok]
    );
    assert_eq!(values(&report)[3], json!("costs $15, or $1"));
    assert_eq!(lab.log.ms(), 7);
}

/// B78: a call that upsets the whole process is declared exclusive, and runs alone although it only reads.
#[tokio::test(start_paused = true)]
async fn an_exclusive_read_runs_alone() {
    let lab = Lab::new();
    lab.tool(ToolSpec::read("redirects").exclusive(true).dependency("plenty"));
    let alone = call("", "redirects", json!({"ms": 10}));
    lab.run([
        call("", "read", json!({"ms": 5})),
        alone,
        call("", "read", json!({"ms": 5, "value": 1})),
    ])
    .await;
    assert_eq!((lab.log.peak(), lab.log.span(2).began), (1, 15));
}

// ===== ending =====

/// B29, B33: after a fatal error in one pool nothing runs, in that pool or another, when the report is there.
#[tokio::test(start_paused = true)]
async fn a_fatal_error_leaves_nothing_running_in_any_pool() {
    let lab = Lab::new();
    lab.tool(ToolSpec::read("crm").dependency("crm"));
    let report = lab
        .run([
            call("", "crm", json!({"ms": 5, "then": "fatal"})),
            call("", "crm", json!({"ms": 50})),
            call("", "read", json!({"ms": 80})),
            call("", "read", json!({})).after([0]),
        ])
        .await;
    assert_eq!(lab.log.running(), 0);
    assert_eq!(report.status, Status::Fatal);
    let body = lab.log.began().len();
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!((lab.log.began().len(), lab.log.running()), (body, 0));
}

/// B35: what never started is told apart from what was tried and took too long.
#[tokio::test(start_paused = true)]
async fn not_started_is_not_timed_out() {
    let lab = Lab::new();
    let mut set = CallSet::new([
        call("", "read", json!({"then": "hang"})),
        call("", "write", json!({})),
    ]);
    set.deadline_ms = Some(20);
    let report = lab.coordinator().run(set).await.unwrap();
    assert_eq!(outcomes(&report), [Outcome::TimedOut, Outcome::NotStarted]);
    assert_eq!(
        report
            .results
            .iter()
            .map(|result| result.attempts)
            .collect::<Vec<_>>(),
        [1, 0]
    );
}

/// B02, B05, B14: cancelled at any moment, every call is answered and the set says that it was cancelled.
#[tokio::test(start_paused = true)]
async fn a_set_cancelled_at_any_moment_is_closed_and_answered() {
    for at in 0..40 {
        let lab = Lab::new();
        let mut calls = reads(&[5, 15, 25]);
        calls.insert(2, call("w", "write", json!({"ms": 10})));
        let set = CallSet::new(calls);
        let run = lab.coordinator().start(set.clone());
        let control = run.control();
        let (report, ()) = tokio::join!(run.report(), async {
            tokio::time::sleep(Duration::from_millis(at)).await;
            control.cancel();
        });
        let report = report.unwrap();
        assert_conserved(&set, &report);
        assert_eq!(report.status, Status::Cancelled, "at {at} ms");
        assert_eq!(lab.log.running(), 0);
    }
}

// ===== once =====

/// B59: the same set again, by its id, while it runs and after it: executed once.
#[tokio::test(start_paused = true)]
async fn a_set_sent_twice_writes_once() {
    let lab = Lab::new();
    let coordinator = lab.coordinator();
    let mut set = CallSet::new([call("", "write", json!({"ms": 10}))]);
    set.set_id = Some("turn-1".into());
    let (first, second) = tokio::join!(coordinator.run(set.clone()), coordinator.run(set.clone()));
    assert_eq!(first, second);
    assert_eq!(coordinator.run(set).await, first);
    assert_eq!(lab.log.began(), [0]);
}

/// B56, B60: three equal reads are one execution and three results; equal writes are as many as were asked for.
#[tokio::test(start_paused = true)]
async fn equal_reads_run_once_and_equal_writes_each() {
    let lab = Lab::new();
    let report = lab
        .run((0..3).map(|_| call("", "read", json!({"ms": 5, "value": 1}))))
        .await;
    assert_eq!((lab.log.began().len(), values(&report)), (1, vec![json!(1); 3]));
    lab.run((0..3).map(|_| call("", "write", json!({"ms": 5, "value": 1}))))
        .await;
    assert_eq!(lab.log.began().len(), 1 + 3);
}

/// B80: nothing read is kept for another set: a read that was in flight while something was written answers its own set
/// alone.
#[tokio::test(start_paused = true)]
async fn a_reading_is_never_kept_for_another_set() {
    let lab = Lab::new();
    let coordinator = lab.coordinator();
    let read = || CallSet::new([call("", "read", json!({"ms": 20, "value": 1}))]);
    let write = async {
        tokio::time::sleep(Duration::from_millis(10)).await;
        coordinator
            .run(CallSet::new([call("", "write", json!({}))]))
            .await
    };
    let (first, _) = tokio::join!(coordinator.run(read()), write);
    let second = coordinator.run(read()).await.unwrap();
    assert_eq!(
        lab.log.spans().iter().filter(|span| span.tool == "read").count(),
        2
    );
    assert_eq!(values(&first.unwrap()), values(&second));
}

/// B87: what calls change together is applied once, after the set, in the calls' order, whatever finished first.
#[tokio::test(start_paused = true)]
async fn context_is_applied_once_and_in_order() {
    let lab = Lab::new();
    let report = lab
        .run([
            call("", "read2", json!({"ms": 30})),
            call("", "read", json!({"ms": 1})),
        ])
        .await;
    assert_eq!(
        report.called.iter().map(|name| &**name).collect::<Vec<_>>(),
        ["read2", "read"]
    );
}

// ===== limits =====

/// B70, B76: six calls on a dependency that takes two: two at a time, all six answered, and nobody else waits.
#[tokio::test(start_paused = true)]
async fn a_small_allowance_delays_its_own_calls_only() {
    let lab = Lab::new();
    lab.tool(ToolSpec::read("crm").dependency("crm"));
    let limits = Limits::builder().allowance("crm", 2).build().unwrap();
    let mut calls: Vec<_> = (0..6)
        .map(|i| call("", "crm", json!({"ms": 10, "value": i})))
        .collect();
    calls.push(call("", "read", json!({"ms": 1})));
    let report = lab
        .builder()
        .limits(limits)
        .build()
        .run(CallSet::new(calls))
        .await
        .unwrap();
    assert_eq!(outcomes(&report), [Outcome::Ok; 7]);
    assert_eq!((lab.log.ms(), lab.log.span(6).began), (30, 0));
    assert!(lab.log.peak() <= 3);
}

/// B75: a body that is alone and asks its own coordinator for a read: no lock is held over it, so it completes.
#[tokio::test(start_paused = true)]
async fn a_call_may_ask_its_own_coordinator() {
    let lab = Lab::new();
    let coordinator: Arc<Mutex<Option<Coordinator>>> = Arc::default();
    let own = Arc::clone(&coordinator);
    tool(&lab, ToolSpec::new("nests"), move |_| {
        let own = own.lock().unwrap().clone().unwrap();
        async move {
            let report = own
                .run(CallSet::new([call(
                    "",
                    "read",
                    json!({"ms": 5, "value": "inner"}),
                )]))
                .await?;
            Ok(report.results[0].value.clone().unwrap())
        }
    });
    *coordinator.lock().unwrap() = Some(lab.coordinator());
    let outer = coordinator.lock().unwrap().clone().unwrap();
    let set = CallSet::new([call("", "nests", json!({})), call("", "read", json!({}))]);
    let report = tokio::time::timeout(Duration::from_secs(5), outer.run(set))
        .await
        .unwrap()
        .unwrap();
    assert_eq!(values(&report), [json!("inner"), json!(1)]);
}

// ===== time =====

/// B81: two readings minutes apart are told so, with both stamps, and not called comparable.
#[tokio::test(start_paused = true)]
async fn readings_minutes_apart_are_flagged_with_their_times() {
    let lab = Lab::new();
    let one = |ms: u64| call("", "read", json!({"ms": ms, "value": ms}));
    let coordinator = lab.builder().max_concurrency(1.try_into().unwrap()).build();
    let report = coordinator
        .run(CallSet::new([one(180_000), one(1)]).purpose(Purpose::Compare))
        .await
        .unwrap();
    let consistency = &report.consistency;
    assert_eq!(
        (consistency.comparable, consistency.inconsistent),
        (Some(false), Some(true))
    );
    assert!(
        consistency.issue.is_some() && consistency.widest.is_some(),
        "{consistency:?}"
    );
    assert!(
        report
            .results
            .iter()
            .all(|result| result.stamp.as_ref().is_some_and(|stamp| stamp.latest.is_some()))
    );
}

/// B83: one instant may be asked for by an argument of every call, and arguments go through untouched.
#[tokio::test(start_paused = true)]
async fn a_tool_may_be_asked_as_of_an_instant() {
    let lab = Lab::new();
    tool(&lab, ToolSpec::read("balance"), |request| async move {
        Ok(request.arguments["as_of"].clone())
    });
    let at = json!("2026-02-28T23:59:59Z");
    let report = lab
        .run([
            call("", "balance", json!({"of": 1, "as_of": at})),
            call("", "balance", json!({"of": 2, "as_of": at})),
        ])
        .await;
    assert_eq!(values(&report), [at.clone(), at]);
}

/// B16, B62, under every policy: order kept, every body run.
#[tokio::test(start_paused = true)]
async fn every_policy_answers_every_call_in_its_place() {
    for policy in PolicyName::ALL {
        let lab = Lab::new();
        let mut set = CallSet::new(reads(&[30, 10, 20]));
        set.policy = Some(policy);
        let report = lab.coordinator().run(set).await.unwrap();
        assert_eq!(values(&report), [json!(0), json!(1), json!(2)], "{policy}");
        assert_eq!(lab.log.spans().len(), 3, "{policy}");
    }
}

/// B71: every call is throttled and may be tried again once: never more than two bodies a call, and the set ends.
#[tokio::test(start_paused = true)]
async fn retries_are_counted_per_call() {
    let lab = Lab::new();
    let bodies = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&bodies);
    let retry = coeval::tool::RetryPolicy {
        attempts: 2.try_into().unwrap(),
        backoff: Duration::from_millis(10),
    };
    let throttled = move |_: CallRequest| {
        count.fetch_add(1, SeqCst);
        async { Err::<Answer, _>(CallError::new(ErrorCode::CallFailed, "429").retryable(true)) }
    };
    lab.registry
        .register(Tool::raw_fn(ToolSpec::read("api").retry(retry), throttled))
        .unwrap();
    let report = lab.run((0..20).map(|i| call("", "api", json!({"n": i})))).await;
    assert_eq!(outcomes(&report), [Outcome::Failed; 20]);
    assert_eq!(bodies.load(SeqCst), 40);
}
