use std::sync::Mutex;
use std::task::{Context, Poll};

use coeval::layer::catch_panic::CatchPanicLayer;
use coeval::layer::read_only::ReadOnlyLayer;
use coeval::reading::{Answer, ErrorCode, Outcome};
use coeval::tool::{Effect, PerCall};
use futures_util::future::{Ready, join_all};
use tower::{Layer, Service};
use tracing::span;

use super::*;

/// LC-15: a panic is the answer of its call, and names what was said; the others carry on.
#[tokio::test(start_paused = true)]
async fn a_panic_is_the_answer_of_one_call() {
    let tool = Tool::raw_fn(ToolSpec::read("t"), |call: CallRequest| async move {
        tokio::time::sleep(ms(1)).await;
        assert!(call.position() != 1, "position {} is cursed", call.position());
        Ok::<_, CallError>(Value::Null)
    });
    let limits = Limits::builder().allowance("t", 1).build().unwrap();
    let bench = Bench::new(tool, 3, limits);
    let results = join_all((0..3).map(|position| bench.run(position))).await;
    let error = results[1].as_ref().unwrap_err();
    assert_eq!(
        (error.code(), error.outcome()),
        (ErrorCode::Panicked, Outcome::Panicked)
    );
    assert_eq!(error.message(), "t panicked: position 1 is cursed.");
    assert!(
        results[0].is_ok() && results[2].is_ok(),
        "its permit was given back"
    );
    assert!(!error.happened_perhaps() && !error.is_retryable());
}

/// Panics wherever it is told to.
#[derive(Clone)]
struct Explosive(&'static str);

impl Service<CallRequest> for Explosive {
    type Response = Answer;
    type Error = CallError;
    type Future = Ready<Result<Answer, CallError>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), CallError>> {
        assert!(self.0 != "poll_ready", "in poll_ready");
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: CallRequest) -> Self::Future {
        assert!(self.0 != "call", "in call");
        futures_util::future::ready(Ok(Answer::new(Value::Null)))
    }
}

#[tokio::test(start_paused = true)]
async fn a_panic_outside_the_tools_future_is_caught_too() {
    for place in ["poll_ready", "call"] {
        let bench = Bench::new(
            Tool::raw(ToolSpec::read("t"), Explosive(place)),
            1,
            Limits::default(),
        );
        assert_eq!(
            bench.run(0).await.unwrap_err().message(),
            format!("t panicked: in {place}.")
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_write_that_panicked_may_have_happened() {
    let bench = Bench::new(
        Tool::raw(ToolSpec::write("t"), Explosive("call")),
        1,
        Limits::default(),
    );
    assert!(bench.run(0).await.unwrap_err().happened_perhaps());
}

/// B41: a panic in a blocking body is a panic, not a cancellation.
#[tokio::test]
async fn a_panic_in_a_blocking_body_is_a_panic() {
    let tool = Tool::raw_fn(ToolSpec::read("t"), |_| async {
        tokio::task::spawn_blocking(|| -> Value { panic!("in the pool") }).await
    });
    let error = Bench::new(tool, 1, Limits::default()).run(0).await.unwrap_err();
    assert_eq!(
        (error.code(), error.message()),
        (ErrorCode::Panicked, "t panicked: in the pool.")
    );
}

#[tokio::test(start_paused = true)]
async fn the_layer_alone_catches_panics_of_any_service() {
    let bench = Bench::new(
        Tool::raw(ToolSpec::read("t"), Explosive("call")),
        1,
        Limits::default(),
    );
    let alone = CatchPanicLayer::new().layer(Explosive("call"));
    assert_eq!(
        alone.oneshot(bench.request(0)).await.unwrap_err().code(),
        ErrorCode::Panicked
    );
}

/// Reads with `mode: get`, writes with `mode: set`.
fn two_faced(name: &str) -> ToolSpec {
    ToolSpec::new(name).effect(PerCall::decide(|arguments| {
        match arguments.get("mode").and_then(Value::as_str) {
            Some("get") => Ok(Effect::Read),
            Some("set") => Ok(Effect::Write),
            mode => Err(format!("no such mode: {mode:?}")),
        }
    }))
}

/// DS-02, G10: what was planned as a read is refused if its arguments, as they are now, make it anything else.
#[tokio::test(start_paused = true)]
async fn a_planned_read_that_would_write_is_refused() {
    let gauge = Gauge::default();
    let tool = registered(sleeper(two_faced("t"), ms(1), &gauge));
    let registry = registry_of([sleeper(two_faced("t"), ms(1), &gauge)]);
    let planned = |mode: &str| {
        let set = CallSet::new([Call::new("c", "t", json!({"mode": mode}))]);
        CallRequest::new(
            Arc::clone(&registry.resolve(&set)[0].call),
            Arc::new(context(1)),
            None,
        )
    };
    let stack = CallStack::new(Limits::default()).compose(&tool);
    for (mode, filled, said) in [
        ("get", "get", None),
        (
            "get",
            "set",
            Some("t was planned as a read, but with these arguments it writes."),
        ),
        (
            "get",
            "both",
            Some(
                "t was planned as a read, but with these arguments it has to run alone, because its effect could not \
                 be decided: no such mode: Some(\"both\").",
            ),
        ),
        ("set", "set", None),
        ("set", "get", None),
    ] {
        let mut request = planned(mode);
        request.arguments = Arc::new(json!({"mode": filled}).as_object().unwrap().clone());
        let error = stack.clone().oneshot(request).await.err();
        assert_eq!(
            error.as_ref().map(CallError::message),
            said,
            "{mode} became {filled}"
        );
        assert!(error.is_none_or(|error| error.code() == ErrorCode::NotReadOnly));
    }
    assert_eq!(gauge.ran(), 3);
}

#[tokio::test(start_paused = true)]
async fn a_host_may_allow_reads_only() {
    for (spec, runs) in [
        (ToolSpec::read("t"), true),
        (ToolSpec::write("t"), false),
        (ToolSpec::new("t"), false),
    ] {
        let gauge = Gauge::default();
        let stack = CallStack::new(Limits::default()).reads_only();
        let bench = Bench::with(sleeper(spec, ms(1), &gauge), 1, stack, context(1));
        assert_eq!(
            bench.run(0).await.err().map(|error| error.code()),
            (!runs).then_some(ErrorCode::NotReadOnly)
        );
        assert_eq!(gauge.ran(), usize::from(runs));
    }
}

#[tokio::test(start_paused = true)]
async fn the_layer_alone_asks_the_tool_again() {
    let bench = Bench::new(
        Tool::raw(ToolSpec::read("t"), Explosive("")),
        1,
        Limits::default(),
    );
    let writes = registered(Tool::raw(ToolSpec::write("t"), Explosive("")));
    let alone = ReadOnlyLayer::new(writes).layer(Explosive("call"));
    assert_eq!(
        alone.oneshot(bench.request(0)).await.unwrap_err().code(),
        ErrorCode::NotReadOnly
    );
}

/// What a subscriber saw: the spans by name and parent, and the codes recorded in them.
#[derive(Clone, Default)]
struct Spans(Arc<Mutex<Vec<Seen>>>);

/// A span's name, its parent and its fields.
type Seen = (&'static str, Option<u64>, Vec<String>);

struct Fields<'a>(&'a mut Vec<String>);

impl tracing::field::Visit for Fields<'_> {
    fn record_debug(&mut self, field: &tracing::field::Field, value: &dyn std::fmt::Debug) {
        self.0.push(format!("{field}={value:?}"));
    }
}

impl tracing::Subscriber for Spans {
    fn enabled(&self, metadata: &tracing::Metadata<'_>) -> bool {
        metadata.is_span()
    }

    fn new_span(&self, attributes: &span::Attributes<'_>) -> span::Id {
        let mut spans = self.0.lock().unwrap();
        let mut fields = Vec::new();
        attributes.record(&mut Fields(&mut fields));
        spans.push((
            attributes.metadata().name(),
            attributes.parent().map(span::Id::into_u64),
            fields,
        ));
        span::Id::from_u64(spans.len() as u64)
    }

    fn record(&self, id: &span::Id, values: &span::Record<'_>) {
        values.record(&mut Fields(
            &mut self.0.lock().unwrap()[usize::try_from(id.into_u64()).unwrap() - 1].2,
        ));
    }

    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}
    fn event(&self, _: &tracing::Event<'_>) {}
    fn enter(&self, _: &span::Id) {}
    fn exit(&self, _: &span::Id) {}
}

/// B88: every call's span is a child of its set's, whatever ran when.
#[tokio::test(start_paused = true)]
async fn the_parent_of_every_call_span_is_the_set_span() {
    let spans = Spans::default();
    let _guard = tracing::subscriber::set_default(spans.clone());
    let mut set = context(3);
    set.span = tracing::info_span!("set");
    let tool = Tool::raw_fn(ToolSpec::read("t"), |call: CallRequest| async move {
        tokio::time::sleep(ms(5)).await;
        if call.position() == 2 {
            Err(CallError::new(ErrorCode::SourceBusy, "busy"))
        } else {
            Ok(Value::Null)
        }
    });
    let bench = Bench::with(tool, 3, CallStack::new(Limits::default()), set);
    join_all((0..3).map(|position| bench.run(position))).await;
    let spans = spans.0.lock().unwrap();
    assert_eq!(spans[0], ("set", None, vec![]));
    let fields = |position: usize| {
        vec![
            format!("tool=\"t\""),
            format!("id=\"c{position}\""),
            format!("position={position}"),
        ]
    };
    let mut failed = fields(2);
    failed.push("code=SourceBusy".into());
    assert_eq!(
        spans[1..],
        [
            ("call", Some(1), fields(0)),
            ("call", Some(1), fields(1)),
            ("call", Some(1), failed)
        ]
    );
}
