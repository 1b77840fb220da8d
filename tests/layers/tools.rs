use std::any::Any;
use std::collections::HashMap;
use std::sync::atomic::AtomicBool;

use coeval::clock::Mono;
use coeval::limit::Quota;
use coeval::reading::{Answer, Basis, ErrorCode, Stamp, UnprovenReason, ViewId};
use coeval::registry::RegistryError;
use coeval::snapshot::Views;
use coeval::source::{Capability, Source, Unsound, View};
use coeval::tool::{In, IntoTool, Stamped, buffered};
use futures_util::future::{BoxFuture, join_all};
use serde::{Deserialize, Serialize};
use tokio_util::task::TaskTracker;

use super::*;

#[derive(Debug, Deserialize)]
struct Of {
    account_id: String,
    #[serde(default)]
    lines: Vec<Line>,
}

#[derive(Debug, Deserialize)]
struct Line {
    count: u32,
}

#[derive(Serialize)]
struct Contract {
    account: String,
    lines: u32,
}

async fn get_contract(of: Of) -> Result<Contract, std::io::Error> {
    match &*of.account_id {
        "nobody" => Err(std::io::Error::other("no such account")),
        _ => Ok(Contract {
            account: of.account_id,
            lines: of.lines.iter().map(|line| line.count).sum(),
        }),
    }
}

/// Asks a tool bare, below every layer.
async fn ask(tool: Tool, arguments: Value) -> Result<Answer, CallError> {
    let registry = registry_of([tool.clone()]);
    let set = CallSet::new([Call::new("c", Arc::clone(&tool.spec().name), arguments)]);
    let call = registry.resolve(&set).remove(0).call;
    tool.service()
        .clone()
        .oneshot(CallRequest::new(call, Arc::new(context(1)), None))
        .await
}

#[tokio::test(start_paused = true)]
async fn functions_closures_and_services_are_tools_alike() {
    let closure = |of: Of| async move { get_contract(of).await };
    for tool in [
        Tool::from_fn(ToolSpec::read("t"), get_contract),
        Tool::from_fn(ToolSpec::read("t"), closure),
        tower::service_fn(get_contract).into_tool(ToolSpec::read("t")),
        buffered(tower::service_fn(get_contract), 4).into_tool(ToolSpec::read("t")),
    ] {
        let answer = ask(
            tool.clone(),
            json!({"account_id": "a", "lines": [{"count": 2}, {"count": 3}]}),
        )
        .await;
        assert_eq!(answer.unwrap(), Answer::new(json!({"account": "a", "lines": 5})));
        let error = ask(tool, json!({"account_id": "nobody"})).await.unwrap_err();
        assert_eq!(
            (error.code(), error.message()),
            (ErrorCode::CallFailed, "Could not complete t: no such account")
        );
    }
}

/// What a schema let pass and a type doesn't take is told with its path.
#[tokio::test(start_paused = true)]
async fn arguments_that_do_not_fit_the_type_are_told_by_their_path() {
    let tool = || Tool::from_fn(ToolSpec::read("t"), get_contract);
    for (arguments, said) in [
        (
            json!({"account_id": "a", "lines": [{"count": 1}, {"count": -1}]}),
            "lines[1].count: invalid value: integer `-1`, expected u32.",
        ),
        (json!({}), "missing field `account_id`."),
    ] {
        let error = ask(tool(), arguments).await.unwrap_err();
        assert_eq!(error.code(), ErrorCode::InvalidArguments);
        assert_eq!(error.message(), format!("The arguments of t don't fit: {said}"));
    }
}

/// A tool may choose code, class and advice itself, and say that nothing more can work.
#[tokio::test(start_paused = true)]
async fn a_call_error_inside_any_error_is_kept() {
    let own = CallError::new(ErrorCode::SourceBusy, "locked").fatal();
    let boxed = own.clone();
    let tool = Tool::from_fn(ToolSpec::write("t"), move |_: Value| {
        let error = boxed.clone();
        async move { Err::<Value, coeval::BoxError>(error.into()) }
    });
    let error = ask(tool, json!({})).await.unwrap_err();
    assert!(error == own && error.is_fatal() && !error.happened_perhaps());
}

/// Nobody saw how a write ended that failed without saying more.
#[tokio::test(start_paused = true)]
async fn a_write_that_failed_somehow_may_have_happened() {
    let failing = |_: Value| async { Err::<Value, _>(std::io::Error::other("connection reset")) };
    assert!(
        ask(Tool::from_fn(ToolSpec::write("t"), failing), json!({}))
            .await
            .unwrap_err()
            .happened_perhaps()
    );
    assert!(
        !ask(Tool::from_fn(ToolSpec::read("t"), failing), json!({}))
            .await
            .unwrap_err()
            .happened_perhaps()
    );
}

#[tokio::test(start_paused = true)]
async fn a_tools_own_stamp_is_kept() {
    let source_time = "2025-12-31T00:00:00Z".parse().ok();
    let tool = Tool::raw_fn(ToolSpec::read("t"), move |call: CallRequest| async move {
        let now = call.set.timeline.now();
        let stamp = Stamp {
            source_time,
            basis: Basis::Source,
            ..Stamp::receipt(now, now)
        };
        tokio::time::sleep(ms(10)).await;
        Ok::<_, CallError>(Stamped {
            value: Contract {
                account: "a".into(),
                lines: 1,
            },
            stamp,
        })
    });
    let bench = Bench::new(tool, 1, Limits::default());
    let reading = bench.run(0).await.unwrap();
    assert_eq!(reading.value, json!({"account": "a", "lines": 1}));
    assert_eq!(
        (reading.stamp.source_time, reading.stamp.basis),
        (source_time, Basis::Source)
    );
    assert_eq!(reading.stamp.earliest, reading.stamp.latest);
}

#[tokio::test(start_paused = true)]
async fn a_raw_tool_sees_the_scope_which_no_model_sets() {
    let tool = Tool::raw_fn(ToolSpec::read("t"), |call: CallRequest| async move {
        Ok::<_, CallError>(json!([call.scope()["tenant"], call.arguments["tenant"]]))
    });
    let mut set = context(1);
    set.scope = Arc::new(json!({"tenant": "acme"}).as_object().unwrap().clone());
    let registry = registry_of([tool.clone()]);
    let calls = CallSet::new([Call::new("c", "t", json!({"tenant": "forged"}))]);
    let request = CallRequest::new(registry.resolve(&calls).remove(0).call, Arc::new(set), None);
    assert_eq!(
        tool.service().clone().oneshot(request).await.unwrap().value,
        json!(["acme", "forged"])
    );
}

/// A source with one view, which counts how often it was opened.
#[derive(Debug, Default)]
struct Ledger {
    name: Arc<str>,
    opened: AtomicUsize,
    fails: AtomicBool,
}

#[derive(Debug)]
struct Page {
    id: ViewId,
    at: Mono,
}

impl Page {
    fn balance(&self) -> Answer {
        Answer::new(15_000)
            .view(self.id.clone())
            .incomplete()
            .unsound(UnprovenReason::DefinitionsChanged)
    }
}

impl View for Page {
    fn id(&self) -> &ViewId {
        &self.id
    }

    fn window(&self) -> (Mono, Mono) {
        (self.at, self.at)
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

impl Source for Ledger {
    fn name(&self) -> &Arc<str> {
        &self.name
    }

    fn capability(&self) -> Capability {
        Capability::none(1)
    }

    fn open<'a>(
        &'a self,
        _: usize,
        timeline: &'a Timeline,
    ) -> BoxFuture<'a, Result<Arc<dyn View>, CallError>> {
        Box::pin(async {
            self.opened.fetch_add(1, Ordering::SeqCst);
            if self.fails.load(Ordering::SeqCst) {
                return Err(CallError::new(ErrorCode::ViewUnavailable, "no connection"));
            }
            Ok(Arc::new(Page {
                id: ViewId::fresh(),
                at: timeline.mono(),
            }) as Arc<dyn View>)
        })
    }

    fn close(&self, _: Arc<dyn View>) -> BoxFuture<'_, Result<(), Unsound>> {
        Box::pin(async { Ok(()) })
    }
}

fn set_with(source: &Arc<Ledger>, calls: usize) -> SetContext {
    let sources: HashMap<_, _> = [(Arc::from("ledger"), Arc::clone(source) as Arc<dyn Source>)].into();
    let mut set = context(calls);
    set.views = Views::new(Arc::new(sources), HashMap::new(), TaskTracker::new());
    set
}

/// A function of a view reads through the set's one view, and what the view says of its answer comes through.
#[tokio::test(start_paused = true)]
async fn a_function_of_a_view_reads_through_the_sets_view() {
    let source = Arc::new(Ledger::default());
    let read = |view: In<Page>, of: Of| async move {
        let mut answer = view.balance();
        answer.value = json!({"account": of.account_id, "balance": answer.value});
        Ok::<_, CallError>(answer)
    };
    let tool = Tool::from_view_fn(ToolSpec::read("t").source("ledger"), read);
    let set = CallSet::new([
        Call::new("a", "t", json!({"account_id": "x"})),
        Call::new("b", "t", json!({"account_id": "y"})),
    ]);
    let resolved = registry_of([tool]).resolve(&set);
    let shared = Arc::new(set_with(&source, 2));
    let stack = CallStack::new(Limits::default()).compose(resolved[0].tool.as_ref().unwrap());
    let read = |index: usize| {
        let request = CallRequest::new(Arc::clone(&resolved[index].call), Arc::clone(&shared), None);
        stack.clone().oneshot(request)
    };
    let (a, b) = (read(0).await.unwrap(), read(1).await.unwrap());
    assert_eq!(
        (&a.value, &b.value),
        (
            &json!({"account": "x", "balance": 15_000}),
            &json!({"account": "y", "balance": 15_000})
        )
    );
    assert!(a.view.is_some() && a.view == b.view);
    assert_eq!(
        (a.complete, a.unsound),
        (false, Some(UnprovenReason::DefinitionsChanged))
    );
    assert_eq!(source.opened.load(Ordering::SeqCst), 1);
}

/// A value of which nobody knows how it came about attests nothing, though its tool was given a view.
#[tokio::test(start_paused = true)]
async fn a_plain_value_of_a_view_function_attests_no_view() {
    let source = Arc::new(Ledger::default());
    let tool = Tool::from_view_fn(
        ToolSpec::read("t").source("ledger"),
        |view: In<Page>, _: Value| async move { Ok::<_, CallError>(view.balance().value) },
    );
    let bench = Bench::with(tool, 1, CallStack::new(Limits::default()), set_with(&source, 1));
    assert_eq!(bench.run(0).await.unwrap().view, None);
}

#[tokio::test(start_paused = true)]
async fn a_view_that_cannot_be_had_is_the_calls_answer() {
    #[derive(Debug)]
    struct Other(ViewId);
    impl View for Other {
        fn id(&self) -> &ViewId {
            &self.0
        }
        fn window(&self) -> (Mono, Mono) {
            (Mono::from_nanos(0), Mono::from_nanos(0))
        }
        fn as_any(&self) -> &dyn Any {
            self
        }
    }
    let source = Arc::new(Ledger::default());
    let spec = || ToolSpec::read("t").source("ledger");
    let other = Tool::from_view_fn(spec(), |view: In<Other>, _: Value| async move {
        Ok::<_, CallError>(view.id().as_str().to_owned())
    });
    let bench = Bench::with(other, 1, CallStack::new(Limits::default()), set_with(&source, 1));
    let error = bench.run(0).await.unwrap_err();
    assert_eq!(error.code(), ErrorCode::ViewUnavailable);
    assert!(error.message().contains("which t was made for"), "{error}");

    source.fails.store(true, Ordering::SeqCst);
    let page = Tool::from_view_fn(spec(), |view: In<Page>, _: Value| async move {
        Ok::<_, CallError>(view.balance())
    });
    let bench = Bench::with(page, 1, CallStack::new(Limits::default()), set_with(&source, 1));
    assert_eq!(bench.run(0).await.unwrap_err().message(), "no connection");
}

#[test]
fn a_function_of_a_view_has_to_name_its_source() {
    let tool = Tool::from_view_fn(ToolSpec::read("t"), |view: In<Page>, _: Value| async move {
        Ok::<_, CallError>(view.balance())
    });
    assert_eq!(
        Registry::new().register(tool).unwrap_err(),
        RegistryError::NeedsSource("t".into())
    );
}

/// Reads through a view take connections, which are the allowance, and no tokens of a quota; other calls of the same
/// dependency do.
#[tokio::test(start_paused = true)]
async fn reads_through_a_view_take_no_tokens() {
    let source = Arc::new(Ledger::default());
    let limits = || {
        let quota = Quota::new(1, Duration::from_secs(60));
        Limits::builder()
            .allowance("ledger", 2)
            .quota("ledger", quota)
            .build()
            .unwrap()
    };
    let gauge = Gauge::default();
    let read = sleeper(ToolSpec::read("t").source("ledger"), ms(10), &gauge);
    let bench = Bench::with(read.clone(), 6, CallStack::new(limits()), set_with(&source, 6));
    let begin = Instant::now();
    assert!(
        join_all((0..6).map(|position| bench.run(position)))
            .await
            .iter()
            .all(Result::is_ok)
    );
    assert_eq!((gauge.peak(), begin.elapsed()), (2, ms(30)));

    // The same tool where no such source is known, and a write: both pay.
    let write = sleeper(ToolSpec::write("t").source("ledger"), ms(10), &gauge);
    for (tool, set) in [(read, context(2)), (write, set_with(&source, 2))] {
        let bench = Bench::with(tool, 2, CallStack::new(limits()), set).within(ms(1_000));
        value(bench.run(0).await);
        assert_eq!(bench.run(1).await.unwrap_err().code(), ErrorCode::RateLimited);
    }
}
