use std::collections::VecDeque;
use std::sync::Mutex;

use coeval::layer::admit::AdmitLayer;
use coeval::limit::Quota;
use coeval::plan::Allowances;
use coeval::reading::{ErrorClass, ErrorCode, Outcome};
use coeval::request::{Start, StartGate};
use futures_util::FutureExt;
use futures_util::future::join_all;
use proptest::prelude::*;
use tokio::sync::Semaphore;
use tower::Layer;

use super::*;

/// B70, B72, G5: hundreds of calls over several sets never exceed the allowance, and all of them run.
#[tokio::test(start_paused = true)]
async fn no_more_than_the_allowance_is_in_flight_over_all_sets() {
    let gauge = Gauge::default();
    let limits = Limits::builder().allowance("crm", 3).build().unwrap();
    let sets: Vec<_> = (0..5)
        .map(|_| {
            let tool = sleeper(ToolSpec::read("get").dependency("crm"), ms(7), &gauge);
            Bench::new(tool, 100, limits.clone())
        })
        .collect();
    let results = join_all(
        sets.iter()
            .flat_map(|set| (0..100).map(|position| set.run(position))),
    )
    .await;
    assert!(results.iter().all(Result::is_ok));
    assert_eq!((gauge.ran(), gauge.peak(), gauge.running()), (500, 3, 0));
}

/// AT-21: what is not declared has the default allowance, never none.
#[tokio::test(start_paused = true)]
async fn an_undeclared_dependency_has_the_default_allowance() {
    let gauge = Gauge::default();
    let bench = Bench::new(sleeper(ToolSpec::read("t"), ms(1), &gauge), 50, Limits::default());
    assert!(
        join_all((0..50).map(|position| bench.run(position)))
            .await
            .iter()
            .all(Result::is_ok)
    );
    assert_eq!(gauge.peak(), 8);
    assert_eq!(Limits::default().allowance("t"), 8);
}

/// Calls of one dependency start in the order in which they asked.
#[tokio::test(start_paused = true)]
async fn a_dependency_serves_in_the_order_of_asking() {
    let order = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&order);
    let tool = Tool::raw_fn(ToolSpec::read("t"), move |call: CallRequest| {
        seen.lock().unwrap().push(call.position());
        async move {
            tokio::time::sleep(ms(5)).await;
            Ok::<_, CallError>(Value::Null)
        }
    });
    let bench = Bench::new(tool, 20, Limits::builder().allowance("t", 2).build().unwrap());
    join_all((0..20).map(|position| bench.run(position))).await;
    assert_eq!(*order.lock().unwrap(), (0..20).collect::<Vec<_>>());
}

/// B76: an allowance of one makes calls of that dependency serial, and no others.
#[tokio::test(start_paused = true)]
async fn an_allowance_of_one_serialises_one_dependency_only() {
    let (stdio, other) = (Gauge::default(), Gauge::default());
    let limits = Limits::builder().allowance("stdio", 1).build().unwrap();
    let a = Bench::new(
        sleeper(ToolSpec::read("a").dependency("stdio"), ms(10), &stdio),
        4,
        limits.clone(),
    );
    let b = Bench::new(sleeper(ToolSpec::read("b"), ms(10), &other), 4, limits);
    let begin = Instant::now();
    tokio::join!(
        join_all((0..4).map(|position| a.run(position))),
        join_all((0..4).map(|position| b.run(position))).map(|_| assert_eq!(begin.elapsed(), ms(10))),
    );
    assert_eq!((stdio.peak(), other.peak(), begin.elapsed()), (1, 4, ms(40)));
}

/// B22: a call that waits for its dependency holds no place, so that others of its set run meanwhile.
#[tokio::test(start_paused = true)]
async fn waiting_for_an_allowance_holds_no_place() {
    let (slow, quick) = (Gauge::default(), Gauge::default());
    let mut set = context(4);
    set.places = Arc::new(Semaphore::new(2));
    let limits = Limits::builder().allowance("k", 1).build().unwrap();
    let waiting = Bench::with(
        sleeper(ToolSpec::read("slow").dependency("k"), ms(100), &slow),
        2,
        CallStack::new(limits.clone()),
        set,
    );
    let mut others = Bench::new(sleeper(ToolSpec::read("quick"), ms(1), &quick), 4, limits);
    others.set = Arc::clone(&waiting.set);
    let begin = Instant::now();
    tokio::join!(
        join_all((0..2).map(|position| waiting.run(position))),
        join_all((0..4).map(|position| others.run(position))).map(|_| assert_eq!(begin.elapsed(), ms(4))),
    );
    assert_eq!(
        (slow.peak(), quick.peak()),
        (1, 1),
        "one place is held by what runs, one is free"
    );
}

/// A call that waits for its quota holds no place either, but keeps its turn.
#[tokio::test(start_paused = true)]
async fn waiting_for_a_quota_holds_no_place_and_keeps_the_turn() {
    let gauge = Gauge::default();
    let mut set = context(4);
    set.places = Arc::new(Semaphore::new(1));
    let limits = Limits::builder()
        .quota("api", Quota::new(10, Duration::from_secs(1)))
        .build()
        .unwrap();
    let metered = Bench::with(
        sleeper(ToolSpec::read("m").dependency("api"), ms(1), &gauge),
        3,
        CallStack::new(limits.clone()),
        set,
    );
    let mut free = Bench::new(
        sleeper(ToolSpec::read("free"), ms(1), &Gauge::default()),
        1,
        limits,
    );
    free.set = Arc::clone(&metered.set);
    let begin = Instant::now();
    let [first, second, third] = [
        metered.spawn(0).await,
        metered.spawn(1).await,
        metered.spawn(2).await,
    ];
    tokio::time::sleep(ms(10)).await;
    assert_eq!(
        metered.set.places.available_permits(),
        1,
        "two wait for the quota and hold no place"
    );
    free.run(0).await.unwrap();
    assert!(begin.elapsed() < ms(20));
    value(first.await.unwrap());
    for (task, starts) in [(second, 100), (third, 200)] {
        value(task.await.unwrap());
        assert!(
            begin.elapsed() >= ms(starts) && begin.elapsed() <= ms(starts + 5),
            "{:?}",
            begin.elapsed()
        );
    }
}

/// B73: with a budget of six, six of eight calls run and two are refused before they start, at once.
#[tokio::test(start_paused = true)]
async fn a_quota_that_cannot_fit_the_deadline_refuses_at_once() {
    let gauge = Gauge::default();
    let quota = Quota::new(6, Duration::from_secs(60)).burst(6);
    let limits = Limits::builder().quota("api", quota).build().unwrap();
    let tool = sleeper(ToolSpec::read("t").dependency("api"), ms(1), &gauge);
    let bench = Bench::new(tool, 8, limits).within(ms(500));
    let begin = Instant::now();
    let results = join_all((0..8).map(|position| bench.run(position))).await;
    assert!(
        begin.elapsed() <= ms(2),
        "nobody waited for what can't come in time: {:?}",
        begin.elapsed()
    );
    assert_eq!(gauge.ran(), 6);
    for error in results.into_iter().skip(6).map(Result::unwrap_err) {
        assert_eq!(
            (error.code(), error.outcome()),
            (ErrorCode::RateLimited, Outcome::Refused)
        );
        assert_eq!(error.error_class(), ErrorClass::RateLimited);
        assert!(
            error
                .retry_wait()
                .is_some_and(|wait| wait > ms(9_000) && wait <= ms(10_000)),
            "{error:?}"
        );
        assert!(!bench.set.signals.has_started(7));
    }
}

/// A gate with its answers written down, and what it was asked.
#[derive(Default)]
struct Script {
    answers: Mutex<VecDeque<Start<'static>>>,
    asked: AtomicUsize,
}

impl StartGate for Script {
    fn start<'a>(&'a self, _: &'a CallRequest) -> Start<'a> {
        self.asked.fetch_add(1, Ordering::SeqCst);
        self.answers.lock().unwrap().pop_front().unwrap_or(Start::Go)
    }
}

impl Script {
    fn new(answers: impl IntoIterator<Item = Start<'static>>) -> Arc<Self> {
        Arc::new(Self {
            answers: Mutex::new(answers.into_iter().collect()),
            ..Self::default()
        })
    }
}

fn gated(tool: Tool, calls: usize, limits: Limits, gate: &Arc<Script>) -> Bench {
    let mut set = context(calls);
    set.gate = Some(Arc::clone(gate) as Arc<dyn StartGate>);
    Bench::with(tool, calls, CallStack::new(limits), set)
}

#[tokio::test(start_paused = true)]
async fn a_refused_start_runs_nothing_and_takes_no_token() {
    let gauge = Gauge::default();
    let no = || CallError::new(ErrorCode::Denied, "no");
    let gate = Script::new([Start::No(no()), Start::Ask(Box::pin(async move { Err(no()) }))]);
    let limits = Limits::builder()
        .quota("t", Quota::new(1, Duration::from_secs(60)))
        .build()
        .unwrap();
    let bench = gated(sleeper(ToolSpec::read("t"), ms(1), &gauge), 3, limits, &gate).within(ms(100));
    assert_eq!(bench.run(0).await.unwrap_err(), no());
    assert_eq!(bench.run(1).await.unwrap_err(), no());
    assert_eq!(gauge.ran(), 0);
    assert!(!bench.set.signals.has_started(0) && !bench.set.signals.has_started(1));
    value(bench.run(2).await);
    assert_eq!(bench.set.places.available_permits(), 3);
}

#[tokio::test(start_paused = true)]
async fn a_call_that_is_held_gives_everything_back_and_is_asked_again() {
    let gauge = Gauge::default();
    let (release, released) = tokio::sync::oneshot::channel::<()>();
    let gate = Script::new([Start::Hold(Box::pin(released.map(drop)))]);
    let limits = Limits::builder().allowance("t", 1).build().unwrap();
    let bench = gated(
        sleeper(ToolSpec::read("t"), ms(1), &gauge),
        2,
        limits.clone(),
        &gate,
    );
    let held = bench.spawn(0).await;
    assert_eq!(bench.set.places.available_permits(), 2);
    value(bench.run(1).await);
    assert_eq!(gauge.ran(), 1, "the held call let the other one pass");
    release.send(()).unwrap();
    value(held.await.unwrap());
    assert_eq!(gate.asked.load(Ordering::SeqCst), 3);
}

/// A quota that is known to be spent is waited for before the gate is asked, so that its records and hooks are not ahead
/// of what happens.
#[tokio::test(start_paused = true)]
async fn the_gate_is_asked_only_when_a_token_is_there() {
    let gate = Script::new([]);
    let limits = Limits::builder()
        .quota("t", Quota::new(1, ms(100)))
        .build()
        .unwrap();
    let bench = gated(
        sleeper(ToolSpec::read("t"), ms(1), &Gauge::default()),
        2,
        limits,
        &gate,
    );
    let tasks = [bench.spawn(0).await, bench.spawn(1).await];
    assert_eq!(gate.asked.load(Ordering::SeqCst), 1);
    for task in tasks {
        value(task.await.unwrap());
    }
    assert_eq!(gate.asked.load(Ordering::SeqCst), 2);
}

/// The gate is asked once per call, not once per attempt.
#[tokio::test(start_paused = true)]
async fn another_attempt_passes_no_gate() {
    let gate = Script::new([]);
    let tool = Tool::raw_fn(ToolSpec::read("t").retry(retries(3, ms(1))), |_| async {
        Err::<Value, _>(CallError::new(ErrorCode::CallFailed, "again"))
    });
    let bench = gated(tool, 1, Limits::default(), &gate);
    assert_eq!(bench.run(0).await.unwrap_err().attempts_made(), 3);
    assert_eq!(
        (gate.asked.load(Ordering::SeqCst), bench.set.signals.attempts(0)),
        (1, 3)
    );
}

/// B39, B40, LC-21: nothing starts after a cancellation, whether it came before the call or while it waited.
#[tokio::test(start_paused = true)]
async fn nothing_starts_after_a_cancellation() {
    let gauge = Gauge::default();
    let limits = Limits::builder().allowance("t", 1).build().unwrap();
    let bench = Bench::new(sleeper(ToolSpec::read("t"), ms(100), &gauge), 3, limits);
    let runs = bench.spawn(0).await;
    let waits = bench.spawn(1).await;
    bench.set.signals.cancel_all();
    let late = bench.run(2).await.unwrap_err();
    for error in [waits.await.unwrap().unwrap_err(), late] {
        assert_eq!(
            (error.code(), error.outcome()),
            (ErrorCode::SetCancelled, Outcome::NotStarted)
        );
    }
    assert_eq!(runs.await.unwrap().unwrap_err().code(), ErrorCode::Cancelled);
    assert_eq!((gauge.ran(), gauge.running()), (1, 0));
}

/// The layer keeps its promises without a deadline layer above it.
#[tokio::test(start_paused = true)]
async fn the_layer_alone_ends_waiting_on_a_deadline_or_a_cancellation() {
    let gauge = Gauge::default();
    let bench = Bench::new(
        sleeper(ToolSpec::read("t"), ms(500), &gauge),
        3,
        Limits::default(),
    )
    .within(ms(50));
    let alone = AdmitLayer::new(Limits::builder().allowance("t", 1).build().unwrap())
        .layer(bench.calls[0].tool.as_ref().unwrap().service().clone());
    let runs = tokio::spawn(alone.clone().oneshot(bench.request(0)));
    settle().await;
    let cancelled = tokio::spawn(alone.clone().oneshot(bench.request(1)));
    settle().await;
    bench.set.signals.cancel(1);
    assert_eq!(
        cancelled.await.unwrap().unwrap_err().code(),
        ErrorCode::SetCancelled
    );
    let begin = Instant::now();
    assert_eq!(
        alone.oneshot(bench.request(2)).await.unwrap_err().code(),
        ErrorCode::DeadlineBeforeStart
    );
    assert_eq!((begin.elapsed(), gauge.ran()), (ms(50), 1));
    runs.abort();
}

/// Dropping a call gives back all it held or waited for, wherever it was.
#[tokio::test(start_paused = true)]
async fn dropping_a_call_gives_everything_back() {
    let gauge = Gauge::default();
    let limits = Limits::builder()
        .allowance("t", 1)
        .quota("t", Quota::new(1, ms(10)))
        .build()
        .unwrap();
    let mut set = context(4);
    set.places = Arc::new(Semaphore::new(1));
    let bench = Bench::with(
        sleeper(ToolSpec::read("t"), ms(1_000), &gauge),
        4,
        CallStack::new(limits.clone()),
        set,
    );
    let place = Arc::clone(&bench.set.places).try_acquire_owned().unwrap();
    let waits_for_a_place = bench.spawn(0).await;
    let waits_for_the_allowance = bench.spawn(1).await;
    waits_for_the_allowance.abort();
    waits_for_a_place.abort();
    settle().await;
    drop(place);
    let runs = bench.spawn(2).await;
    assert_eq!(gauge.running(), 1);
    runs.abort();
    settle().await;
    let waits_for_the_quota = bench.spawn(3).await;
    assert_eq!((gauge.running(), bench.set.places.available_permits()), (0, 1));
    waits_for_the_quota.abort();
    settle().await;
    assert!(limits.of(&"t".into()).try_permit().is_some());
    assert_eq!(bench.set.places.available_permits(), 1);
}

/// A cancelled query may run on at its server for a while: whoever keeps the request keeps the permit and the place.
#[tokio::test(start_paused = true)]
async fn work_that_outlives_its_future_still_counts_while_it_keeps_the_request() {
    let gauge = Gauge::default();
    let counted = gauge.clone();
    let tool = Tool::raw_fn(ToolSpec::read("t"), move |call: CallRequest| {
        let gauge = counted.clone();
        async move {
            let session = tokio::spawn(async move {
                let (_call, _running) = (call, gauge.enter());
                tokio::time::sleep(ms(100)).await;
            });
            session.await.map(|()| Value::Null)
        }
    });
    let bench = Bench::new(tool, 2, Limits::builder().allowance("t", 1).build().unwrap());
    let first = bench.spawn(0).await;
    bench.set.signals.cancel(0);
    assert_eq!(first.await.unwrap().unwrap_err().code(), ErrorCode::Cancelled);
    let begin = Instant::now();
    value(bench.run(1).await);
    assert_eq!((gauge.peak(), begin.elapsed()), (1, ms(200)));
}

/// How long a call waited is known, whether it then ran or not.
#[tokio::test(start_paused = true)]
async fn the_time_spent_waiting_is_told_apart_from_the_time_in_the_tool() {
    let bench = Bench::new(
        sleeper(ToolSpec::read("t"), ms(30), &Gauge::default()),
        2,
        Limits::builder().allowance("t", 1).build().unwrap(),
    );
    let (first, second) = tokio::join!(bench.run(0), bench.run(1));
    assert_eq!(
        (first.unwrap().elapsed, bench.set.signals.queued(0)),
        (ms(30), Duration::ZERO)
    );
    assert_eq!(
        (second.unwrap().elapsed, bench.set.signals.queued(1)),
        (ms(30), ms(30))
    );
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// G5: whatever the quota, the allowance and the times at which calls come, no half-open window of `per` sees more
    /// than `limit + burst − 1` starts, no more than the allowance are in flight, and every call runs.
    #[test]
    fn limits_hold_over_sets_that_come_at_any_time(
        limit in 1u32..8, burst in 1u32..4, per in 1u64..400, allowance in 1usize..5, time in 0u64..20,
        arrivals in proptest::collection::vec(0u64..300, 1..40),
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
        let (starts, peak, ok) = runtime.block_on(async {
            let quota = Quota::new(limit, ms(per)).burst(burst);
            let limits = Limits::builder().allowance("d", allowance).quota("d", quota).build().unwrap();
            let (gauge, starts) = (Gauge::default(), Arc::new(Mutex::new(Vec::new())));
            let (counted, noted) = (gauge.clone(), Arc::clone(&starts));
            let tool = Tool::raw_fn(ToolSpec::read("t").dependency("d"), move |_| {
                let running = counted.enter();
                noted.lock().unwrap().push(Instant::now());
                async move {
                    let _running = running;
                    tokio::time::sleep(ms(time)).await;
                    Ok::<_, CallError>(Value::Null)
                }
            });
            let sets: Vec<_> = (0..3).map(|_| Bench::new(tool.clone(), arrivals.len(), limits.clone())).collect();
            let results = join_all(arrivals.iter().enumerate().map(|(position, arrival)| {
                let set = &sets[position % 3];
                async move {
                    tokio::time::sleep(ms(*arrival)).await;
                    set.run(position).await
                }
            })).await;
            let starts = starts.lock().unwrap().clone();
            (starts, gauge.peak(), results.iter().all(Result::is_ok))
        });
        prop_assert!(ok && starts.len() == arrivals.len() && peak <= allowance);
        for (index, start) in starts.iter().enumerate() {
            let seen = starts[index..].iter().take_while(|other| **other < *start + ms(per)).count();
            prop_assert!(seen < (limit + burst) as usize, "{seen} starts within {per} ms");
        }
    }
}
