//! Behaviours that are not ours, and what happens instead.
//!
//! Loop detection, breakers, caches over time, approvals and the conversation itself are the host's: a coordinator of one
//! set answers every call of it, and keeps nothing that could answer another.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use coeval::plan::PolicyName::{self, Loopctl, Standard};
use coeval::reading::Outcome;
use coeval::report::Status;
use coeval::request::CallRequest;
use coeval::tool::{RetryPolicy, Tool, ToolSpec};
use serde_json::json;

use super::{cancelled_after, run_under, under};
use crate::support::lab::{Lab, call, outcomes};

/// LC-13: a cancelled batch isn't thrown away. What had ended keeps its result, and the status says the rest.
#[tokio::test(start_paused = true)]
async fn a_cancelled_set_keeps_what_had_ended() {
    let lab = Lab::new();
    let mut policy = coeval::plan::Policy::loopctl();
    policy.max_concurrency = 1;
    let calls = [
        call("", "read", json!({})),
        call("", "read", json!({"ms": 10_000})),
    ];
    let coordinator = lab.builder().policy(policy).build();
    let report = cancelled_after(50, &coordinator, coeval::CallSet::new(calls)).await;
    assert_eq!(outcomes(&report), [Outcome::Ok, Outcome::Cancelled]);
    assert_eq!((report.status, lab.log.ms()), (Status::Cancelled, 50));
}

/// LC-17: nothing retries for ever, and a call that is given up fails by itself and not its set.
#[tokio::test(start_paused = true)]
async fn retries_are_counted_and_never_a_sets_error() {
    let lab = Lab::new();
    let retry = RetryPolicy {
        attempts: NonZeroU32::new(6).unwrap(),
        backoff: Duration::from_millis(1),
    };
    lab.tool(ToolSpec::read("flaky").retry(retry).dependency("plenty"));
    let calls = [
        call("", "flaky", json!({"then": "fail"})),
        call("", "read", json!({})),
    ];
    let report = run_under(Loopctl, &lab, calls).await;
    assert_eq!(outcomes(&report), [Outcome::Failed, Outcome::Ok]);
    assert_eq!((report.results[0].attempts, report.status), (6, Status::Complete));
}

/// LC-20: the conversation is the host's. A cancelled turn's calls are all answered, so it may be kept or dropped.
#[tokio::test(start_paused = true)]
async fn a_cancelled_turn_is_answered_and_leaves_the_turn_before_alone() {
    let lab = Lab::new();
    let coordinator = lab.coordinator();
    let first = coordinator
        .run(under(Loopctl, [call("t1", "read", json!({}))]))
        .await
        .unwrap();
    let kept = first.clone();
    let second = under(Loopctl, [call("t2", "read", json!({"ms": 1_000}))]);
    let report = cancelled_after(10, &coordinator, second).await;
    assert_eq!((first, outcomes(&report)), (kept, vec![Outcome::Cancelled]));
    assert_eq!(&*report.results[0].id, "t2");
}

/// LC-24: there is no breaker. Both of two parallel calls of a failing tool are asked, and each has its own answer.
#[tokio::test(start_paused = true)]
async fn a_failing_tool_is_asked_again() {
    let lab = Lab::new();
    let failing = || call("", "read", json!({"ms": 5, "then": "fail"}));
    for _ in 0..10 {
        run_under(Loopctl, &lab, [failing(), failing()]).await;
    }
    assert_eq!(lab.log.spans().len(), 20);
}

/// LC-25: nothing is kept from set to set: a later equal read executes again.
#[tokio::test(start_paused = true)]
async fn a_later_equal_read_executes_again() {
    for policy in PolicyName::ALL {
        let lab = Lab::new();
        let coordinator = lab.coordinator();
        for _ in 0..2 {
            coordinator
                .run(under(policy, [call("", "read", json!({"ms": 1}))]))
                .await
                .unwrap();
        }
        assert_eq!(lab.log.spans().len(), 2, "{policy}");
    }
}

/// LC-26: an answer has no id of its own to be wrong: whoever's execution answers a call, it is told as that call's.
#[tokio::test(start_paused = true)]
async fn a_shared_answer_carries_the_asking_calls_id() {
    let lab = Lab::new();
    let report = run_under(
        Standard,
        &lab,
        ["a", "b"].map(|id| call(id, "read", json!({"ms": 1}))),
    )
    .await;
    assert_eq!(lab.log.spans().len(), 1);
    let ids: Vec<_> = report.results.iter().map(|result| &*result.id).collect();
    assert_eq!(ids, ["a", "b"]);
}

/// LC-27, B80: a read that straddles somebody's write is kept nowhere: the next one sees what was written.
#[tokio::test(start_paused = true)]
async fn a_read_beside_a_write_of_another_set_answers_nobody_else() {
    let lab = Lab::new();
    let stored = Arc::new(AtomicUsize::new(1));
    let (read, written) = (Arc::clone(&stored), Arc::clone(&stored));
    let get = move |_: CallRequest| {
        let seen = read.load(Ordering::SeqCst);
        async move {
            tokio::time::sleep(Duration::from_millis(10)).await;
            Ok::<_, coeval::BoxError>(json!(seen))
        }
    };
    let put = move |_: CallRequest| {
        written.store(2, Ordering::SeqCst);
        async { Ok::<_, coeval::BoxError>(json!("put")) }
    };
    lab.registry
        .register(Tool::raw_fn(ToolSpec::read("get"), get))
        .unwrap();
    lab.registry
        .register(Tool::raw_fn(ToolSpec::write("put"), put))
        .unwrap();
    let coordinator = lab.coordinator();
    let one = |tool: &str| under(Loopctl, [call("", tool, json!({}))]);
    let (before, _) = tokio::join!(coordinator.run(one("get")), coordinator.run(one("put")));
    let after = coordinator.run(one("get")).await.unwrap();
    assert_eq!(before.unwrap().results[0].value, Some(json!(1)));
    assert_eq!(after.results[0].value, Some(json!(2)));
}

/// LC-30: nothing counts equal calls: eleven are eleven answers.
#[tokio::test(start_paused = true)]
async fn eleven_equal_calls_are_eleven_answers() {
    for policy in PolicyName::ALL {
        let lab = Lab::new();
        let report = run_under(policy, &lab, (0..11).map(|_| call("", "read", json!({"ms": 1})))).await;
        assert_eq!(outcomes(&report), [Outcome::Ok; 11], "{policy}");
    }
}
