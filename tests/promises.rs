//! The promises as properties over random sets: G1 to G4, G6 and G7 here, the rest in the modules.
//!
//! Every case runs on a paused runtime of its own. What happened is read from the bodies' own log, never from the report.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use coeval::BoxError;
use coeval::hook::Hook;
use coeval::limit::Limits;
use coeval::plan::{EdgeReason, FailurePolicy, PolicyName};
use coeval::reading::{CallError, ErrorCode, Outcome};
use coeval::report::{CallResult, SetReport};
use coeval::request::CallRequest;
use coeval::tool::{ArgumentMap, Effect, Keys, PerCall, ToolSpec};
use coeval::{Call, CallSet};
use futures_util::future::BoxFuture;
use proptest::prelude::*;
use serde_json::{Value, json};

use crate::support::lab::{Lab, Log, Span, assert_conserved, call};

mod guesses; // a guessed value: found, not found, not to be known
mod limits; // G5: allowances and quotas, over all sets of the process
mod order; // the same set, whatever is fast or slow: the same bytes
mod soundness; // G8: `comparable: true` is said only when it is true

/// Runs one case on virtual time of its own.
fn paused<F: Future>(case: F) -> F::Output {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build();
    runtime.expect("a runtime needs nothing").block_on(case)
}

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

/// A call and what it does.
#[derive(Clone, Debug)]
struct Script {
    tool: &'static str,
    arguments: Value,
    after: Option<usize>,
}

impl Script {
    /// Whether it must run alone. Reads the script, not what anybody made of it.
    fn is_alone(&self) -> bool {
        match self.tool {
            "write" | "alone" => true,
            "mode" => self.arguments["mode"] != "get",
            _ => false,
        }
    }

    /// Whether both name one resource and one of them writes it.
    fn clashes(&self, other: &Script) -> bool {
        let named = |script: &Script, role: &str| match script.tool {
            "keyed" => script.arguments[role].as_str().map(str::to_owned),
            _ => None,
        };
        let same = |a: &str, b: &str| {
            let inside = |outer: &str, inner: &str| inner.starts_with(&format!("{outer}/"));
            a == b || inside(a, b) || inside(b, a)
        };
        let meets = |writer: &Script, other: &Script| {
            named(writer, "w").is_some_and(|write| {
                ["r", "w"]
                    .iter()
                    .any(|role| named(other, role).is_some_and(|key| same(&write, &key)))
            })
        };
        meets(self, other) || meets(other, self)
    }

    /// The call it names in a placeholder. In a longer string, and always under atlas, a name that nobody has is text.
    fn placeholder(&self, case: &Case) -> Option<usize> {
        let named = match self.arguments["note"].as_str()? {
            "{{c0}}" => Some(0),
            "{{c2.order_id}}" => Some(2),
            "see {{c4}}" => return (case.calls.len() > 4).then_some(4),
            _ => None,
        };
        named.filter(|&named| case.policy != PolicyName::Atlas || named < case.calls.len())
    }
}

fn any_script() -> impl Strategy<Value = Script> {
    let tool = prop::sample::select(vec![
        "read", "read", "read", "read2", "keyed", "keyed", "keyed", "write", "alone", "mode", "short",
        "needs", "gives", "takes", "finish", "strict", "nope",
    ]);
    let then = prop_oneof![
        30 => Just("ok"),
        4 => Just("fail"),
        2 => Just("panic"),
        2 => Just("hang"),
        2 => Just("listen"),
        2 => Just("not_found"),
        1 => Just("fatal"),
    ];
    let key = || prop::option::of(prop::sample::select(vec!["k", "d", "d/x", "d/y"]));
    let note = prop::sample::select(vec![
        "{{c0}}",
        "{{c2.order_id}}",
        "see {{c4}}",
        "{{nobody}}",
        "{{read2}}",
    ]);
    let mode = prop::sample::select(vec!["get", "get", "set", "err", "boom"]);
    (
        (tool, then, 0..40_u64, prop::option::of(0..3_u8)),
        (key(), key(), mode),
        (
            prop::option::weighted(0.15, 0..10_usize),
            prop::option::weighted(0.15, note),
        ),
        (0..3_u8, any::<bool>(), prop::bool::weighted(0.04)),
    )
        .prop_map(
            |((tool, then, ms, n), (r, w, mode), (after, note), (id, fits, broken))| {
                let mut arguments = json!({"ms": ms, "then": then});
                let mut set = |name: &str, value: Value| arguments[name] = value;
                n.into_iter().for_each(|n| set("n", json!(n)));
                note.into_iter().for_each(|note| set("note", json!(note)));
                match tool {
                    "keyed" => {
                        r.into_iter().for_each(|key| set("r", json!(key)));
                        w.into_iter().for_each(|key| set("w", json!(key)));
                    }
                    "mode" => set("mode", json!(mode)),
                    "gives" => set("value", json!({"order_id": id})),
                    "takes" => set("order_id", json!(id)),
                    "strict" => set("x", if fits { json!(1) } else { json!("one") }),
                    _ => {}
                }
                if broken {
                    arguments = json!("not json");
                }
                Script {
                    tool,
                    arguments,
                    after,
                }
            },
        )
}

/// How a set ends, if not by itself.
#[derive(Clone, Debug)]
enum End {
    Itself,
    Cancel(u64),
    CancelCall(usize, u64),
    Drop(u64),
}

fn any_end() -> impl Strategy<Value = End> {
    prop_oneof![
        4 => Just(End::Itself),
        1 => (0..80_u64).prop_map(End::Cancel),
        2 => (0..10_usize, 0..60_u64).prop_map(|(position, at)| End::CancelCall(position, at)),
        1 => (0..80_u64).prop_map(End::Drop),
    ]
}

#[derive(Clone, Debug)]
struct Case {
    calls: Vec<Script>,
    policy: PolicyName,
    places: usize,
    allowance: usize,
    deadline: u64,
    abort: bool,
    hook: Option<Picky>,
    end: End,
}

fn any_case() -> impl Strategy<Value = Case> {
    let hook =
        (0..10_usize, 0..10_usize, 0..4_u64).prop_map(|(deny, throw, slow)| Picky { deny, throw, slow });
    (
        prop::collection::vec(any_script(), 0..10),
        prop::sample::select(PolicyName::ALL.to_vec()),
        (1..6_usize, 1..6_usize),
        (20..200_u64, prop::bool::weighted(0.1)),
        prop::option::weighted(0.3, hook),
        any_end(),
    )
        .prop_map(
            |(calls, policy, (places, allowance), (deadline, abort), hook, end)| Case {
                calls,
                policy,
                places,
                allowance,
                deadline,
                abort,
                hook,
                end,
            },
        )
}

/// Denies one call, breaks on another, and takes its time.
#[derive(Clone, Debug)]
struct Picky {
    deny: usize,
    throw: usize,
    slow: u64,
}

impl Hook for Picky {
    fn before<'a>(&'a self, request: &'a CallRequest) -> BoxFuture<'a, Result<(), CallError>> {
        Box::pin(async move {
            tokio::time::sleep(ms(self.slow)).await;
            assert!(request.position() != self.throw, "a hook's own bug");
            match request.position() == self.deny {
                true => Err(CallError::new(ErrorCode::Denied, "not today")),
                false => Ok(()),
            }
        })
    }

    fn after<'a>(&'a self, _: usize, _: &'a CallResult) -> BoxFuture<'a, ()> {
        Box::pin(tokio::time::sleep(ms(self.slow)))
    }
}

fn world() -> Lab {
    let lab = Lab::new();
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
    let effect = |arguments: &ArgumentMap| match arguments["mode"].as_str() {
        Some("get") => Ok(Effect::Read),
        Some("set") => Ok(Effect::Write),
        Some("boom") => panic!("a classifier's own bug"),
        _ => Err(BoxError::from("cannot tell")),
    };
    let schema = json!({"type": "object", "properties": {"x": {"type": "integer"}}, "required": ["x"]});
    for spec in [
        ToolSpec::read("keyed").keys(PerCall::decide(keys)),
        ToolSpec::new("mode").effect(PerCall::decide(effect)),
        ToolSpec::read("short").timeout(ms(20)),
        ToolSpec::read("needs").preconditions(["read2"]),
        ToolSpec::read("gives").output_fields(["order_id"]),
        ToolSpec::read("takes"),
        ToolSpec::read("finish").ends_turn(),
        ToolSpec::read("strict").input_schema(schema),
    ] {
        lab.tool(spec.dependency("plenty"));
    }
    lab
}

fn set_of(case: &Case) -> CallSet {
    let calls = case.calls.iter().enumerate().map(|(position, script)| {
        let call: Call = call(&format!("c{position}"), script.tool, script.arguments.clone());
        call.after(script.after)
    });
    let mut set = CallSet::new(calls);
    set.policy = Some(case.policy);
    set.deadline_ms = Some(case.deadline);
    set
}

/// Longer than any case can take, and no time at all.
const FOR_EVER: Duration = Duration::from_secs(600);

/// Runs a case to its end, checking G1 and G7. `None` if it was dropped before it had a report.
async fn run(case: &Case) -> (Option<SetReport>, Log) {
    let lab = world();
    let limits = Limits::builder()
        .allowance("plenty", case.allowance)
        .build()
        .unwrap();
    let mut builder = lab.builder().limits(limits).drain(ms(50)).grace(ms(20));
    builder = builder.max_concurrency(case.places.try_into().unwrap());
    if case.abort {
        builder = builder.on_failure(FailurePolicy::Abort);
    }
    if let Some(hook) = &case.hook {
        builder = builder.hook(Arc::new(hook.clone()));
    }
    let coordinator = builder.build();
    let set = set_of(case);
    let run = coordinator.start(set.clone());
    let control = run.control();
    let report = async {
        match case.end {
            End::Drop(at) => tokio::time::timeout(ms(at), run.report()).await.ok(),
            _ => Some(
                tokio::time::timeout(FOR_EVER, run.report())
                    .await
                    .expect("every set ends"),
            ),
        }
    };
    let order = async {
        match case.end {
            End::Cancel(at) => {
                tokio::time::sleep(ms(at)).await;
                control.cancel();
            }
            End::CancelCall(position, at) => {
                tokio::time::sleep(ms(at)).await;
                control.cancel_call(position);
            }
            End::Itself | End::Drop(_) => {}
        }
    };
    let report = {
        let mut order = std::pin::pin!(order);
        let mut report = std::pin::pin!(report);
        let mut ordered = false;
        // The report counts from the moment it is there, not from when a late order was given.
        loop {
            tokio::select! {
                biased;
                report = &mut report => break report,
                () = &mut order, if !ordered => ordered = true,
            }
        }
    };
    let report = report.map(|report| report.expect("a set of ten calls has a report"));
    let begun = lab.log.spans().len();
    match &report {
        Some(report) => {
            assert_conserved(&set, report);
            assert_eq!(
                lab.log.running(),
                0,
                "G7: nothing runs once the report is there: {:?}",
                lab.log.spans()
            );
        }
        None => {
            tokio::time::timeout(FOR_EVER, coordinator.idle())
                .await
                .expect("what was dropped ends");
            assert_eq!(
                lab.log.running(),
                0,
                "G7: nothing runs once it is idle: {:?}",
                lab.log.spans()
            );
        }
    }
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert_eq!(
        lab.log.spans().len(),
        begun,
        "G7: nothing starts after the end: {:?}",
        lab.log.spans()
    );
    (report, lab.log)
}

/// Whether `first` had ended when `second` began.
fn precedes(first: &Span, second: &Span) -> bool {
    first.ended_at < second.began_at
}

fn find(spans: &[Span], position: usize) -> Option<&Span> {
    spans.iter().find(|span| span.position == position)
}

/// The body that answered a call, its own or an equal one's.
fn answering<'s>(spans: &'s [Span], report: &SetReport, position: usize) -> Option<&'s Span> {
    let leader = report.results[position].shared_with;
    find(spans, position).or_else(|| find(spans, leader?))
}

/// G2, G3, and keys: from the bodies alone.
fn assert_ordered(case: &Case, spans: &[Span]) {
    let overtakes = case.policy == PolicyName::Loopctl;
    for (first, second) in spans.iter().flat_map(|a| spans.iter().map(move |b| (a, b))) {
        if first.position >= second.position {
            continue;
        }
        let (earlier, later) = (&case.calls[first.position], &case.calls[second.position]);
        let apart = precedes(first, second) || (overtakes && precedes(second, first));
        if earlier.is_alone() || later.is_alone() {
            assert!(apart, "G2, G3: {first:?} and {second:?}");
        }
        if earlier.clashes(later) {
            assert!(apart, "keys: {first:?} and {second:?}");
        }
    }
}

/// G4, G6, the plan as it is told, and what each outcome says about its body.
fn assert_answers(case: &Case, report: &SetReport, spans: &[Span]) {
    for (position, script) in case.calls.iter().enumerate() {
        let Some(body) = find(spans, position) else {
            continue;
        };
        for producer in script.after.into_iter().chain(script.placeholder(case)) {
            assert!(
                producer < case.calls.len(),
                "{position} ran although what it names isn't there"
            );
            assert!(
                report.results[producer].is_ok(),
                "G4: {position} ran although {producer} failed"
            );
            // A cancelled leader's body answers its equals: then nobody is named.
            if let Some(made) = answering(spans, report, producer) {
                assert!(precedes(made, body), "G4: {made:?} and {body:?}");
            }
        }
        if script.tool == "needs" {
            let mut met = spans
                .iter()
                .filter(|span| span.tool == "read2" && span.finished && precedes(span, body));
            assert!(
                met.any(|span| case.calls[span.position].arguments["then"] != "fail"),
                "G6: {body:?}"
            );
        }
    }
    let mut stage_of = vec![0; case.calls.len()];
    for (stage, calls) in report.plan.stages.iter().enumerate() {
        calls.iter().for_each(|&call| stage_of[call] = stage);
    }
    for (first, second) in spans.iter().flat_map(|a| spans.iter().map(move |b| (a, b))) {
        if stage_of[first.position] < stage_of[second.position] {
            assert!(precedes(first, second), "stages: {first:?} and {second:?}");
        }
    }
    for edge in report
        .plan
        .edges
        .iter()
        .filter(|edge| edge.reason != EdgeReason::Precondition)
    {
        for (&before, &after) in edge
            .before
            .iter()
            .flat_map(|b| edge.after.iter().map(move |a| (b, a)))
        {
            if let (Some(first), Some(second)) = (find(spans, before), find(spans, after)) {
                assert!(precedes(first, second), "{edge:?}: {first:?} and {second:?}");
            }
        }
    }
    // Cancelling one of two equal calls leaves a body under the cancelled one's position.
    if matches!(case.end, End::CancelCall(..)) {
        return;
    }
    for (position, result) in report.results.iter().enumerate() {
        let body = answering(spans, report, position);
        match result.outcome {
            Outcome::Ok => assert!(body.is_some_and(|body| body.finished), "{position}: {result:?}"),
            Outcome::Cancelled | Outcome::TimedOut | Outcome::Panicked => {
                assert!(body.is_some(), "{position}: {result:?}")
            }
            Outcome::Failed => {}
            Outcome::NotStarted
            | Outcome::DependencyFailed
            | Outcome::Refused
            | Outcome::InvalidArguments
            | Outcome::UnknownTool => assert!(find(spans, position).is_none(), "{position}: {result:?}"),
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 800, failure_persistence: None, ..ProptestConfig::default() })]

    /// G1, G2, G3, G4, G6, G7, and G5 within a set: whatever fails, panics, hangs, is refused, denied, unknown, invalid,
    /// fatal, cancelled or dropped, under every policy.
    #[test]
    fn a_set_keeps_its_promises_whatever_happens(case in any_case()) {
        paused(async {
            let (report, log) = run(&case).await;
            let spans = log.spans();
            let mut positions: Vec<usize> = log.began();
            positions.sort_unstable();
            positions.dedup();
            assert_eq!(positions.len(), spans.len(), "no body runs twice: {spans:?}");
            assert!(log.peak() <= case.places.min(case.allowance), "G5: {} at once", log.peak());
            assert_ordered(&case, &spans);
            if let Some(report) = report {
                assert_answers(&case, &report, &spans);
            }
        });
    }
}

/// A call that is answered without having run keeps the order of its keys: the next one doesn't overtake what it waited
/// for.
#[tokio::test(start_paused = true)]
async fn a_call_that_did_not_run_lets_nobody_overtake_by_its_key() {
    let lab = world();
    let keyed = |n: u64| call("", "keyed", json!({"ms": 50, "w": "k", "n": n}));
    let failing = call("", "read", json!({"then": "fail"}));
    let report = lab.run([keyed(0), failing, keyed(1).after([1]), keyed(2)]).await;
    assert_eq!(report.results[2].outcome, Outcome::DependencyFailed);
    assert_eq!(lab.log.span(3).began, 50, "{:?}", lab.log.spans());
}
