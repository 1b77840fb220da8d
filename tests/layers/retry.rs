use std::sync::Mutex;

use coeval::layer::retry::RetryLayer;
use coeval::reading::{Answer, ErrorClass, ErrorCode, Stamp};
use coeval::tool::Effect;
use futures_util::future::join_all;
use tower::Layer;

use super::*;

/// A tool that fails as it is told, then answers, and notes when it was asked.
fn failing(spec: ToolSpec, errors: impl IntoIterator<Item = CallError>) -> (Tool, Arc<Mutex<Vec<Instant>>>) {
    let errors = Arc::new(Mutex::new(
        errors.into_iter().collect::<std::collections::VecDeque<_>>(),
    ));
    let asked = Arc::new(Mutex::new(Vec::new()));
    let noted = Arc::clone(&asked);
    let tool = Tool::raw_fn(spec, move |_| {
        noted.lock().unwrap().push(Instant::now());
        let error = errors.lock().unwrap().pop_front();
        async move { error.map_or(Ok(json!("at last")), Err) }
    });
    (tool, asked)
}

fn failed() -> CallError {
    CallError::new(ErrorCode::CallFailed, "not now")
}

fn pauses(asked: &Mutex<Vec<Instant>>) -> Vec<Duration> {
    asked
        .lock()
        .unwrap()
        .windows(2)
        .map(|pair| pair[1] - pair[0])
        .collect()
}

/// LC-16: a tool that fails is asked as often as the policy says, ever more slowly; what comes last is the answer.
#[tokio::test(start_paused = true)]
async fn a_failed_read_is_asked_again_with_doubled_pauses() {
    let (tool, asked) = failing(
        ToolSpec::read("t").retry(retries(4, ms(10))),
        [failed(), failed(), failed()],
    );
    let bench = Bench::new(tool, 1, Limits::default());
    let reading = bench.run(0).await.unwrap();
    assert_eq!((reading.value, reading.attempts), (json!("at last"), 4));
    assert_eq!(pauses(&asked), [ms(10), ms(20), ms(40)]);
    assert_eq!(bench.set.signals.attempts(0), 4);
}

/// LC-17: however retryable, there is a last attempt, and its error says how many there were.
#[tokio::test(start_paused = true)]
async fn there_is_a_last_attempt() {
    let (tool, asked) = failing(ToolSpec::read("t").retry(retries(6, ms(1))), vec![failed(); 100]);
    let error = Bench::new(tool, 1, Limits::default()).run(0).await.unwrap_err();
    assert_eq!((error.code(), error.attempts_made()), (ErrorCode::CallFailed, 6));
    assert_eq!(asked.lock().unwrap().len(), 6);
}

/// LC-18: a cancellation ends a back-off at once.
#[tokio::test(start_paused = true)]
async fn a_cancellation_ends_a_back_off() {
    let (tool, asked) = failing(
        ToolSpec::read("t").retry(retries(3, ms(10_000))),
        vec![failed(); 3],
    );
    let bench = Bench::new(tool, 1, Limits::default());
    let begin = Instant::now();
    let task = bench.spawn(0).await;
    tokio::time::sleep(ms(50)).await;
    bench.set.signals.cancel_all();
    let error = task.await.unwrap().unwrap_err();
    assert_eq!(
        (error.code(), error.attempts_made(), begin.elapsed()),
        (ErrorCode::Cancelled, 1, ms(50))
    );
    assert_eq!(asked.lock().unwrap().len(), 1);
}

/// B71: when everything fails, attempts stay within policy times calls, and the set ends.
#[tokio::test(start_paused = true)]
async fn retries_do_not_multiply() {
    let limited = failed().class(ErrorClass::RateLimited).retry_after(ms(5));
    let (tool, asked) = failing(
        ToolSpec::read("t").retry(retries(3, ms(1))),
        vec![limited; 10_000],
    );
    let bench = Bench::new(tool, 100, Limits::default());
    let results = join_all((0..100).map(|position| bench.run(position))).await;
    assert!(results.iter().all(Result::is_err));
    assert_eq!(asked.lock().unwrap().len(), 300);
}

#[tokio::test(start_paused = true)]
async fn no_attempt_comes_sooner_than_the_error_says() {
    let (tool, asked) = failing(
        ToolSpec::read("t").retry(retries(3, ms(1))),
        [failed().retry_after(ms(700)), failed()],
    );
    value(Bench::new(tool, 1, Limits::default()).run(0).await);
    assert_eq!(pauses(&asked), [ms(700), ms(2)]);
}

/// A back-off that can't fit the deadline isn't begun: the error is told while there is time to do something else.
#[tokio::test(start_paused = true)]
async fn a_retry_that_cannot_fit_the_deadline_is_not_waited_for() {
    let (tool, _) = failing(
        ToolSpec::read("t").retry(retries(3, ms(1))),
        [failed().retry_after(ms(500))],
    );
    let begin = Instant::now();
    let error = Bench::new(tool, 1, Limits::default())
        .within(ms(400))
        .run(0)
        .await
        .unwrap_err();
    assert_eq!(
        (error.code(), begin.elapsed()),
        (ErrorCode::CallFailed, Duration::ZERO)
    );
}

/// Hole 15: a lost view is not a single read's to open again; writes, fatal errors and hopeless ones are final too.
#[tokio::test(start_paused = true)]
async fn what_may_not_be_asked_again_is_not() {
    let policy = retries(3, ms(1));
    let read = || ToolSpec::read("t").retry(policy);
    for (spec, error) in [
        (read(), CallError::new(ErrorCode::ViewLost, "gone")),
        (read(), CallError::new(ErrorCode::ViewUnavailable, "none")),
        (read(), failed().retryable(false)),
        (read(), failed().fatal()),
        (read(), CallError::new(ErrorCode::Denied, "no")),
        (ToolSpec::write("t").retry(policy), failed()),
        (ToolSpec::new("t").retry(policy), failed()),
        (
            ToolSpec::read("t")
                .exclusive(true)
                .effect(Effect::Read)
                .retry(policy),
            failed(),
        ),
        (ToolSpec::read("t"), failed()),
    ] {
        let (tool, asked) = failing(spec.clone(), [error.clone()]);
        let told = Bench::new(tool, 1, Limits::default()).run(0).await.unwrap_err();
        assert_eq!((told, asked.lock().unwrap().len()), (error, 1), "{spec:?}");
    }
}

/// Nothing is held between attempts: another call of the same dependency runs meanwhile.
#[tokio::test(start_paused = true)]
async fn a_back_off_holds_neither_permit_nor_place() {
    let spec = ToolSpec::read("t").retry(retries(2, ms(100)));
    let (tool, asked) = failing(spec, [failed()]);
    let bench = Bench::new(tool, 2, Limits::builder().allowance("t", 1).build().unwrap());
    let (first, second) = tokio::join!(bench.run(0), bench.run(1));
    assert_eq!((first.unwrap().attempts, second.unwrap().attempts), (2, 1));
    assert_eq!(pauses(&asked), [Duration::ZERO, ms(100)]);
}

#[tokio::test(start_paused = true)]
async fn the_layer_alone_counts_attempts_over_any_service() {
    let bench = Bench::new(
        sleeper(ToolSpec::read("t"), ms(1), &Gauge::default()),
        1,
        Limits::default(),
    );
    let asked = Arc::new(AtomicUsize::new(0));
    let flaky = tower::service_fn(move |call: CallRequest| {
        let attempt = asked.fetch_add(1, Ordering::SeqCst);
        async move {
            let now = call.set.timeline.now();
            if attempt < 2 {
                Err(failed())
            } else {
                Ok(Reading::new(Answer::new(1), Stamp::receipt(now, now), ms(0)))
            }
        }
    });
    let alone = RetryLayer::new(Some(retries(3, ms(1)))).layer(flaky);
    assert_eq!(alone.oneshot(bench.request(0)).await.unwrap().attempts, 3);
}
