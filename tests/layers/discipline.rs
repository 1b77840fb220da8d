use std::marker::PhantomData;
use std::task::{Context, Poll};

use coeval::layer::admit::AdmitLayer;
use coeval::layer::catch_panic::CatchPanicLayer;
use coeval::layer::deadline::DeadlineLayer;
use coeval::layer::read_only::ReadOnlyLayer;
use coeval::layer::retry::RetryLayer;
use coeval::layer::stamp::StampLayer;
use coeval::layer::trace::TraceLayer;
use coeval::reading::{Answer, ErrorCode, Outcome, Stamp};
use coeval::tool::buffered;
use futures_util::future::{Ready, join_all, ready};
use tower::limit::ConcurrencyLimit;
use tower::{Layer, Service};

use super::*;

/// Not ready when it is first polled, like every fresh clone of it; and never to be called before it is.
#[derive(Debug)]
struct Exacting<R> {
    polls: usize,
    response: PhantomData<fn() -> R>,
}

impl<R> Exacting<R> {
    fn new() -> Self {
        Self {
            polls: 0,
            response: PhantomData,
        }
    }
}

impl<R> Clone for Exacting<R> {
    fn clone(&self) -> Self {
        Self::new()
    }
}

trait Response {
    fn of(call: &CallRequest) -> Self;
}

impl Response for Answer {
    fn of(_: &CallRequest) -> Self {
        Answer::new("answer")
    }
}

impl Response for Reading {
    fn of(call: &CallRequest) -> Self {
        let now = call.set.timeline.now();
        Reading::new(Answer::new("answer"), Stamp::receipt(now, now), Duration::ZERO)
    }
}

impl<R: Response> Service<CallRequest> for Exacting<R> {
    type Response = R;
    type Error = CallError;
    type Future = Ready<Result<R, CallError>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), CallError>> {
        self.polls += 1;
        if self.polls == 1 {
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: CallRequest) -> Self::Future {
        assert!(self.polls > 1, "called without being polled ready");
        self.polls = 0;
        ready(Ok(R::of(&request)))
    }
}

/// Polls a layer's service once (it has to be ready at once, whatever is below) and calls it.
async fn through<S>(mut service: S, request: CallRequest) -> Result<S::Response, CallError>
where
    S: Service<CallRequest, Error = CallError>,
{
    let mut task = tokio_test_context();
    assert!(
        service.poll_ready(&mut task).is_ready(),
        "a layer is always ready"
    );
    service.call(request).await
}

fn tokio_test_context() -> Context<'static> {
    Context::from_waker(std::task::Waker::noop())
}

/// B91: every layer calls the very clone that it polled ready, and waits for it inside its own future.
#[tokio::test(start_paused = true)]
async fn every_layer_calls_only_what_it_polled_ready() {
    let bench = Bench::new(
        Tool::raw(ToolSpec::read("t"), Exacting::<Answer>::new()),
        1,
        Limits::default(),
    );
    let tool = bench.calls[0].tool.as_ref().unwrap();
    let inner = Exacting::<Reading>::new;
    let request = || bench.request(0);
    through(TraceLayer::new().layer(inner()), request())
        .await
        .unwrap();
    through(CatchPanicLayer::new().layer(inner()), request())
        .await
        .unwrap();
    through(ReadOnlyLayer::new(Arc::clone(tool)).layer(inner()), request())
        .await
        .unwrap();
    through(DeadlineLayer::new().layer(inner()), request())
        .await
        .unwrap();
    through(RetryLayer::new(None).layer(inner()), request())
        .await
        .unwrap();
    through(RetryLayer::new(Some(retries(3, ms(1)))).layer(inner()), request())
        .await
        .unwrap();
    through(AdmitLayer::new(Limits::default()).layer(inner()), request())
        .await
        .unwrap();
    through(StampLayer::new().layer(Exacting::<Answer>::new()), request())
        .await
        .unwrap();
    through(bench.stack.clone(), request()).await.unwrap();
}

/// B91: services that hold something between `poll_ready` and `call` work below the stack, and lose none of it.
#[tokio::test(start_paused = true)]
async fn concurrency_limits_and_buffers_work_below_the_stack() {
    let gauge = Gauge::default();
    let counted = gauge.clone();
    let slow = tower::service_fn(move |_: Value| {
        let gauge = counted.clone();
        async move {
            let _running = gauge.enter();
            tokio::time::sleep(ms(10)).await;
            Ok::<_, CallError>("done")
        }
    });
    use coeval::tool::IntoTool;
    let limited = ConcurrencyLimit::new(slow.clone(), 2).into_tool(ToolSpec::read("limited"));
    let one_by_one = buffered(ConcurrencyLimit::new(slow, 1), 8).into_tool(ToolSpec::read("buffered"));
    for (tool, peak) in [(limited, 2), (one_by_one, 1)] {
        let gauge_before = gauge.ran();
        let bench = Bench::new(tool, 6, Limits::default());
        let results = join_all((0..6).map(|position| bench.run(position))).await;
        assert!(results.iter().all(Result::is_ok), "{results:?}");
        assert_eq!(gauge.ran() - gauge_before, 6);
        assert!(gauge.peak() <= 2 && gauge.peak() >= peak);
    }
}

/// A tool that is never ready.
#[derive(Clone)]
struct Busy;

impl Service<CallRequest> for Busy {
    type Response = Answer;
    type Error = CallError;
    type Future = Ready<Result<Answer, CallError>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), CallError>> {
        Poll::Pending
    }

    fn call(&mut self, _: CallRequest) -> Self::Future {
        unreachable!("it is never ready")
    }
}

#[tokio::test(start_paused = true)]
async fn a_deadline_covers_the_wait_for_a_tool_that_is_never_ready() {
    let bench = Bench::new(Tool::raw(ToolSpec::read("t"), Busy), 1, Limits::default()).within(ms(50));
    let begin = Instant::now();
    let error = bench.run(0).await.unwrap_err();
    assert_eq!(
        (error.code(), error.outcome()),
        (ErrorCode::DeadlineExceeded, Outcome::TimedOut)
    );
    assert_eq!(begin.elapsed(), ms(50));
}

/// Waiting for a tool to be ready, for a permit, or for a place never widens a stamp.
#[tokio::test(start_paused = true)]
async fn no_wait_widens_a_stamp() {
    #[derive(Clone)]
    struct ReadyIn(Duration, Option<Instant>);
    impl Service<CallRequest> for ReadyIn {
        type Response = Answer;
        type Error = CallError;
        type Future = Ready<Result<Answer, CallError>>;

        fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), CallError>> {
            let until = *self.1.get_or_insert_with(|| Instant::now() + self.0);
            if Instant::now() >= until {
                return Poll::Ready(Ok(()));
            }
            let waker = cx.waker().clone();
            tokio::spawn(async move {
                tokio::time::sleep_until(until).await;
                waker.wake();
            });
            Poll::Pending
        }

        fn call(&mut self, _: CallRequest) -> Self::Future {
            ready(Ok(Answer::new(1)))
        }
    }
    let limits = Limits::builder().allowance("t", 1).build().unwrap();
    let bench = Bench::new(Tool::raw(ToolSpec::read("t"), ReadyIn(ms(40), None)), 2, limits);
    for result in join_all([bench.run(0), bench.run(1)]).await {
        let stamp = result.unwrap().stamp;
        assert_eq!(stamp.earliest, stamp.latest, "the reading itself takes no time");
    }
    assert!(bench.set.signals.queued(1) >= ms(40));
}
