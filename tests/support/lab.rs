//! Scripted tools on virtual time, and a log of when each call's body began and ended.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use coeval::clock::VirtualClock;
use coeval::coordinator::{Builder, Coordinator};
use coeval::limit::Limits;
use coeval::reading::{Answer, CallError, ErrorCode, Outcome};
use coeval::registry::Registry;
use coeval::report::SetReport;
use coeval::request::CallRequest;
use coeval::tool::{Tool, ToolSpec};
use coeval::{Call, CallSet};
use serde_json::{Value, json};
use tokio::time::Instant;

/// A call of a scripted tool.
pub(crate) fn call(id: &str, tool: &str, arguments: Value) -> Call {
    Call::new(id, tool, arguments)
}

/// What bodies did, and when.
#[derive(Clone, Debug)]
pub(crate) struct Log(Arc<LogState>);

#[derive(Debug)]
struct LogState {
    base: Instant,
    spans: Mutex<Vec<Span>>,
    running: AtomicUsize,
    peak: AtomicUsize,
}

/// One body: times are milliseconds since the log began.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Span {
    pub position: usize,
    pub tool: String,
    pub began: u64,
    /// `None` while it runs; a dropped body ends too.
    pub ended: Option<u64>,
    /// Whether it reached its end, instead of being dropped.
    pub finished: bool,
    /// Counts begins and ends: orders what happens at the same time.
    pub began_at: usize,
    pub ended_at: usize,
}

impl Log {
    pub(crate) fn new() -> Self {
        Self(Arc::new(LogState {
            base: Instant::now(),
            spans: Mutex::default(),
            running: AtomicUsize::new(0),
            peak: AtomicUsize::new(0),
        }))
    }

    pub(crate) fn ms(&self) -> u64 {
        u64::try_from(self.0.base.elapsed().as_millis()).unwrap()
    }

    /// Bodies in the order in which they began.
    pub(crate) fn spans(&self) -> Vec<Span> {
        self.0.spans.lock().unwrap().clone()
    }

    /// Positions in the order in which their bodies began.
    pub(crate) fn began(&self) -> Vec<usize> {
        self.spans().iter().map(|span| span.position).collect()
    }

    /// The body of a position; panics if there was none or several.
    pub(crate) fn span(&self, position: usize) -> Span {
        let spans: Vec<_> = self
            .spans()
            .into_iter()
            .filter(|span| span.position == position)
            .collect();
        assert_eq!(spans.len(), 1, "bodies of call {position}: {spans:?}");
        spans[0].clone()
    }

    pub(crate) fn running(&self) -> usize {
        self.0.running.load(Ordering::SeqCst)
    }

    pub(crate) fn peak(&self) -> usize {
        self.0.peak.load(Ordering::SeqCst)
    }

    fn begin(&self, request: &CallRequest) -> Body {
        let running = self.0.running.fetch_add(1, Ordering::SeqCst) + 1;
        self.0.peak.fetch_max(running, Ordering::SeqCst);
        let mut spans = self.0.spans.lock().unwrap();
        let tick = ticks(&spans);
        spans.push(Span {
            position: request.position(),
            tool: request.tool().to_string(),
            began: self.ms(),
            ended: None,
            finished: false,
            began_at: tick,
            ended_at: usize::MAX,
        });
        Body {
            log: self.clone(),
            index: spans.len() - 1,
            finished: false,
        }
    }
}

fn ticks(spans: &[Span]) -> usize {
    spans.len() + spans.iter().filter(|span| span.ended.is_some()).count()
}

struct Body {
    log: Log,
    index: usize,
    finished: bool,
}

impl Drop for Body {
    fn drop(&mut self) {
        self.log.0.running.fetch_sub(1, Ordering::SeqCst);
        let now = self.log.ms();
        let mut spans = self.log.0.spans.lock().unwrap();
        let tick = ticks(&spans);
        let span = &mut spans[self.index];
        (span.ended, span.finished, span.ended_at) = (Some(now), self.finished, tick);
    }
}

/// A registry of scripted tools and their log.
///
/// What a call does is in its arguments: `ms` (how long), then `then`: `ok` (default; returns `value`, else its own
/// position), `fail`, `panic`, `hang`, `fatal`, `not_found` (an answer that says no), `listen` (hangs until it is
/// cancelled, then needs another 10 ms to end).
#[derive(Clone, Debug)]
pub(crate) struct Lab {
    pub registry: Registry,
    pub log: Log,
}

impl Lab {
    /// With the tools `read`, `read2`, `write` and `alone` (of unknown effect).
    pub(crate) fn new() -> Self {
        let lab = Self {
            registry: Registry::new(),
            log: Log::new(),
        };
        for spec in [
            ToolSpec::read("read"),
            ToolSpec::read("read2"),
            ToolSpec::write("write"),
            ToolSpec::new("alone"),
        ] {
            lab.tool(spec.dependency("plenty"));
        }
        lab
    }

    /// Registers a scripted tool of this spec.
    pub(crate) fn tool(&self, spec: ToolSpec) -> &Self {
        self.registry.register(self.scripted(spec)).unwrap();
        self
    }

    pub(crate) fn scripted(&self, spec: ToolSpec) -> Tool {
        let log = self.log.clone();
        Tool::raw_fn(spec, move |request: CallRequest| {
            let log = log.clone();
            async move {
                let mut body = log.begin(&request);
                let arguments = &request.arguments;
                let ms = arguments.get("ms").and_then(Value::as_u64).unwrap_or(0);
                if ms > 0 {
                    tokio::time::sleep(Duration::from_millis(ms)).await;
                }
                let then = arguments.get("then").and_then(Value::as_str).unwrap_or("ok");
                match then {
                    "panic" => {
                        body.finished = true;
                        panic!("scripted panic of call {}", request.position())
                    }
                    "hang" => std::future::pending::<()>().await,
                    "listen" => {
                        request.cancelled().await;
                        tokio::time::sleep(Duration::from_millis(10)).await;
                    }
                    _ => {}
                }
                body.finished = true;
                match then {
                    "fail" => Err(CallError::new(ErrorCode::CallFailed, "scripted failure")),
                    "fatal" => {
                        Err(CallError::new(ErrorCode::CallFailed, "scripted end of everything").fatal())
                    }
                    "not_found" => Ok(Answer::new(json!({"found": false}))),
                    _ => Ok(Answer::new(
                        arguments
                            .get("value")
                            .cloned()
                            .unwrap_or_else(|| json!(request.position())),
                    )),
                }
            }
        })
    }

    /// A builder on virtual time, with an allowance for `plenty` that never binds.
    pub(crate) fn builder(&self) -> Builder {
        let limits = Limits::builder().allowance("plenty", 100_000).build().unwrap();
        let clock = VirtualClock::starting_at("2026-03-01T09:00:00Z".parse().unwrap());
        Coordinator::builder(self.registry.clone())
            .limits(limits)
            .clock(Arc::new(clock))
    }

    pub(crate) fn coordinator(&self) -> Coordinator {
        self.builder().build()
    }

    pub(crate) async fn run(&self, calls: impl IntoIterator<Item = Call>) -> SetReport {
        self.coordinator().run(CallSet::new(calls)).await.unwrap()
    }
}

/// The outcomes in order.
pub(crate) fn outcomes(report: &SetReport) -> Vec<Outcome> {
    report.results.iter().map(|result| result.outcome).collect()
}

/// The error codes in order; `None` where there is a value.
pub(crate) fn codes(report: &SetReport) -> Vec<Option<ErrorCode>> {
    report
        .results
        .iter()
        .map(|result| result.error.as_ref().map(|error| error.code))
        .collect()
}

/// G1: one result for each call, each with its call's id and tool, with a value or an error and never both.
#[track_caller]
pub(crate) fn assert_conserved(set: &CallSet, report: &SetReport) {
    assert_eq!(report.results.len(), set.calls.len());
    for (position, (call, result)) in set.calls.iter().zip(&report.results).enumerate() {
        assert_eq!(
            (&result.id, &result.tool),
            (&call.id, &call.tool),
            "slot {position}"
        );
        assert_eq!(
            result.value.is_some(),
            result.is_ok() && !result.withheld,
            "slot {position}: {result:?}"
        );
        assert_eq!(
            result.error.is_some(),
            !result.is_ok(),
            "slot {position}: {result:?}"
        );
        if let Some(error) = &result.error {
            assert!(!error.message.is_empty(), "slot {position}");
        }
    }
}
