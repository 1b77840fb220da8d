use coeval::layer::deadline::DeadlineLayer;
use coeval::plan::policy::OnCancel;
use coeval::reading::{ErrorCode, Outcome};
use futures_util::future::join_all;
use tower::Layer;

use super::*;

/// A tool that never ends, and tells when it is dropped.
fn hanging(spec: ToolSpec, gauge: &Gauge) -> Tool {
    let gauge = gauge.clone();
    Tool::raw_fn(spec, move |_| {
        let gauge = gauge.clone();
        async move {
            let _running = gauge.enter();
            std::future::pending::<()>().await;
            Ok::<_, CallError>(Value::Null)
        }
    })
}

/// A tool that listens for its cancellation, and then takes a time to end.
fn listening(spec: ToolSpec, takes: Duration, end: Result<Value, CallError>, gauge: &Gauge) -> Tool {
    let gauge = gauge.clone();
    Tool::raw_fn(spec, move |call: CallRequest| {
        let (gauge, end) = (gauge.clone(), end.clone());
        async move {
            let running = gauge.enter();
            call.cancelled().await;
            tokio::time::sleep(takes).await;
            drop(running);
            end
        }
    })
}

/// B36: a call that never resolves ends with its own timeout; its sibling is not touched.
#[tokio::test(start_paused = true)]
async fn a_call_that_hangs_is_timed_out() {
    let gauge = Gauge::default();
    let bench = Bench::new(
        hanging(ToolSpec::read("t").timeout(ms(20)), &gauge),
        1,
        Limits::default(),
    );
    let begin = Instant::now();
    let error = bench.run(0).await.unwrap_err();
    assert_eq!(
        (error.code(), error.outcome()),
        (ErrorCode::DeadlineExceeded, Outcome::TimedOut)
    );
    assert_eq!(error.message(), "t did not end within its timeout of 20ms.");
    assert_eq!(
        (begin.elapsed(), gauge.running(), error.attempts_made()),
        (ms(20), 0, 1)
    );
    assert!(!error.happened_perhaps());
}

#[tokio::test(start_paused = true)]
async fn a_tools_own_timeout_begins_when_it_starts() {
    let spec = ToolSpec::read("t").timeout(ms(50));
    let limits = Limits::builder().allowance("t", 1).build().unwrap();
    let bench = Bench::new(sleeper(spec, ms(40), &Gauge::default()), 4, limits);
    let results = join_all((0..4).map(|position| bench.run(position))).await;
    assert!(
        results.iter().all(Result::is_ok),
        "the last one waited for 120 ms: {results:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_sets_deadline_covers_waiting_too() {
    let gauge = Gauge::default();
    let limits = Limits::builder().allowance("t", 1).build().unwrap();
    let bench = Bench::new(sleeper(ToolSpec::read("t"), ms(40), &gauge), 3, limits).within(ms(60));
    let results = join_all((0..3).map(|position| bench.run(position))).await;
    let codes: Vec<_> = results
        .iter()
        .map(|result| result.as_ref().err().map(CallError::code))
        .collect();
    assert_eq!(
        codes,
        [
            None,
            Some(ErrorCode::DeadlineExceeded),
            Some(ErrorCode::DeadlineBeforeStart)
        ]
    );
    assert_eq!(gauge.ran(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_deadline_that_has_passed_starts_nothing() {
    let gauge = Gauge::default();
    let bench =
        Bench::new(sleeper(ToolSpec::read("t"), ms(1), &gauge), 1, Limits::default()).within(Duration::ZERO);
    assert_eq!(
        bench.run(0).await.unwrap_err().code(),
        ErrorCode::DeadlineBeforeStart
    );
    assert_eq!(gauge.ran(), 0);
}

/// What ends at the very instant of its deadline has ended in time.
#[tokio::test(start_paused = true)]
async fn a_result_wins_over_a_deadline_at_the_same_instant() {
    let spec = ToolSpec::read("t").timeout(ms(20));
    let bench = Bench::new(sleeper(spec, ms(20), &Gauge::default()), 1, Limits::default()).within(ms(20));
    value(bench.run(0).await);
}

#[tokio::test(start_paused = true)]
async fn a_read_that_does_not_listen_is_dropped_at_once() {
    let gauge = Gauge::default();
    let bench = Bench::new(hanging(ToolSpec::read("t"), &gauge), 2, Limits::default());
    let (first, second) = (bench.spawn(0).await, bench.spawn(1).await);
    let begin = Instant::now();
    bench.set.signals.cancel(0);
    let error = first.await.unwrap().unwrap_err();
    assert_eq!(
        (error.code(), error.outcome()),
        (ErrorCode::Cancelled, Outcome::Cancelled)
    );
    assert_eq!(
        (begin.elapsed(), gauge.running()),
        (Duration::ZERO, 1),
        "its sibling runs on"
    );
    second.abort();
}

/// B37: a tool that listens is signalled and given a grace period to end well, also on its deadline; then it is dropped.
/// Its answer is that it was late, whatever it still says.
#[tokio::test(start_paused = true)]
async fn a_read_that_listens_is_given_grace() {
    for (takes, waited) in [(ms(300), ms(300)), (ms(5_000), ms(1_000))] {
        let gauge = Gauge::default();
        let tool = listening(
            ToolSpec::read("t").timeout(ms(20)),
            takes,
            Ok(json!("late")),
            &gauge,
        );
        let bench = Bench::new(tool, 1, Limits::default());
        let begin = Instant::now();
        let error = bench.run(0).await.unwrap_err();
        assert_eq!(error.code(), ErrorCode::DeadlineExceeded);
        assert_eq!((begin.elapsed(), gauge.running()), (ms(20) + waited, 0));
    }
}

/// What a write did matters more than when: its real answer is given if it comes in time.
#[tokio::test(start_paused = true)]
async fn a_write_past_its_deadline_is_waited_for_and_answers_for_itself() {
    let spec = || ToolSpec::write("t").timeout(ms(20));
    let bench = Bench::new(
        sleeper(spec(), ms(9_000), &Gauge::default()),
        1,
        Limits::default(),
    );
    assert_eq!(value(bench.run(0).await), json!(0));

    let failed = CallError::new(ErrorCode::StatementFailed, "constraint violated");
    let tool = listening(spec(), ms(50), Err(failed.clone()), &Gauge::default());
    assert_eq!(
        Bench::new(tool, 1, Limits::default()).run(0).await.unwrap_err(),
        failed
    );
}

#[tokio::test(start_paused = true)]
async fn a_write_that_does_not_end_may_have_happened() {
    for (cancelled, code) in [(false, ErrorCode::DeadlineExceeded), (true, ErrorCode::Cancelled)] {
        let gauge = Gauge::default();
        let stack = CallStack::new(Limits::default()).drain(ms(200));
        let spec = ToolSpec::write("t");
        let spec = if cancelled { spec } else { spec.timeout(ms(20)) };
        let bench = Bench::with(hanging(spec, &gauge), 1, stack, context(1));
        let begin = Instant::now();
        let task = bench.spawn(0).await;
        if cancelled {
            bench.set.signals.cancel_all();
        }
        let error = task.await.unwrap().unwrap_err();
        assert_eq!(
            (error.code(), error.happened_perhaps(), error.is_retryable()),
            (code, true, false)
        );
        assert_eq!(begin.elapsed(), if cancelled { ms(200) } else { ms(220) });
        assert_eq!(gauge.running(), 0);
    }
}

/// A write that never started didn't happen.
#[tokio::test(start_paused = true)]
async fn a_write_that_was_still_waiting_is_ended_at_once() {
    let gauge = Gauge::default();
    let limits = Limits::builder().allowance("t", 1).build().unwrap();
    let bench = Bench::new(sleeper(ToolSpec::write("t"), ms(100), &gauge), 2, limits).within(ms(50));
    let (first, second) = tokio::join!(bench.run(0), async {
        let begin = Instant::now();
        (bench.run(1).await.unwrap_err(), begin.elapsed())
    });
    value(first);
    assert_eq!(
        (second.0.code(), second.1),
        (ErrorCode::DeadlineBeforeStart, ms(50))
    );
    assert!(!second.0.happened_perhaps());
}

/// DS-17: a set that drains keeps the real results of what runs, starts nothing more, and still has its deadlines.
#[tokio::test(start_paused = true)]
async fn a_draining_set_keeps_what_runs() {
    let gauge = Gauge::default();
    let mut set = context(3);
    set.on_cancel = OnCancel::Drain;
    let limits = Limits::builder().allowance("t", 2).build().unwrap();
    let bench = Bench::with(
        sleeper(ToolSpec::read("t"), ms(100), &gauge),
        3,
        CallStack::new(limits),
        set,
    );
    let tasks = [bench.spawn(0).await, bench.spawn(1).await, bench.spawn(2).await];
    bench.set.signals.cancel_all();
    let mut results = Vec::new();
    for task in tasks {
        results.push(
            task.await
                .unwrap()
                .map(|reading| reading.value)
                .map_err(|error| error.code()),
        );
    }
    assert_eq!(
        results,
        [Ok(json!(0)), Ok(json!(1)), Err(ErrorCode::SetCancelled)]
    );

    let mut set = context(1);
    set.on_cancel = OnCancel::Drain;
    let spec = ToolSpec::read("t").timeout(ms(50));
    let bench = Bench::with(hanging(spec, &gauge), 1, CallStack::new(Limits::default()), set);
    let task = bench.spawn(0).await;
    bench.set.signals.cancel_all();
    assert_eq!(
        task.await.unwrap().unwrap_err().code(),
        ErrorCode::DeadlineExceeded
    );
}

/// Without an admission below, the layer itself says when a call starts.
#[tokio::test(start_paused = true)]
async fn the_layer_alone_counts_calls_as_started_when_told_so() {
    let gauge = Gauge::default();
    let bench = Bench::new(
        hanging(ToolSpec::read("t").timeout(ms(20)), &gauge),
        1,
        Limits::default(),
    );
    let tool = bench.calls[0].tool.as_ref().unwrap().service().clone();
    let alone = DeadlineLayer::new().starts_at_once().layer(tool);
    assert_eq!(
        alone.oneshot(bench.request(0)).await.unwrap_err().code(),
        ErrorCode::DeadlineExceeded
    );
    assert_eq!((gauge.ran(), gauge.running()), (1, 0));
}
