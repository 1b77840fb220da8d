//! The report's JSON is a contract: here it is read back by types declared anew, which take nothing more and nothing
//! less, and held against its schema. The report as text is pinned beside it.

use std::sync::Arc;
use std::time::Duration;

use chrono::{DateTime, TimeDelta, Utc};
use coeval::call::{Purpose, Require};
use coeval::clock::{Moment, Mono};
use coeval::layer::judge::JudgeLayer;
use coeval::plan::{Condition, Decision, Edge, EdgeReason, Evidence, Plan, PolicyName};
use coeval::reading::{Basis, CallError, ErrorCode, Outcome, Stamp, ViewId};
use coeval::report::text::{self, Palette};
use coeval::report::{
    Asked, CallFacts, CallResult, Consistency, ErrorReport, Replaced, Route, RouteTaken, SetReport, Status,
};
use coeval::tool::Class;
use serde_json::{Value, json};
use tower::{Layer, ServiceExt, service_fn};

/// The contract, spelled a second time.
mod strict {
    use serde::{Deserialize, Deserializer, de::Error};
    use serde_json::Value;

    /// Present, and perhaps null: serde alone would let it be missing.
    fn present<'de, D: Deserializer<'de>, T: Deserialize<'de>>(
        deserializer: D,
    ) -> Result<Option<T>, D::Error> {
        Option::deserialize(deserializer)
    }

    fn some<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Value>, D::Error> {
        Value::deserialize(deserializer).map(Some)
    }

    /// RFC 3339, UTC, microseconds.
    #[derive(Debug)]
    pub(crate) struct Time;

    impl<'de> Deserialize<'de> for Time {
        fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
            let text = String::deserialize(deserializer)?;
            let shape: String = text
                .chars()
                .map(|c| if c.is_ascii_digit() { '0' } else { c })
                .collect();
            match shape == "0000-00-00T00:00:00.000000Z" {
                true => Ok(Self),
                false => Err(D::Error::custom(format!(
                    "{text:?} is no timestamp with microseconds in UTC"
                ))),
            }
        }
    }

    macro_rules! words {
        ($($name:ident { $($word:ident),+ $(,)? })+) => {$(
            #[allow(non_camel_case_types, reason = "spelled as in the JSON")]
            #[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
            pub(crate) enum $name { $($word),+ }
        )+};
    }

    words! {
        Status { complete, cancelled, fatal, aborted }
        Policy { standard, atlas, harness, go, loopctl }
        Purpose { compare, report }
        Taken { shared_view, snapshot_tool, certified, as_is, refused }
        Outcome {
            ok, failed, panicked, timed_out, cancelled, not_started, dependency_failed, refused, invalid_arguments,
            unknown_tool,
        }
        Class { unavailable, rate_limited, timeout, invalid, denied, conflict, internal }
        Verdict { same_view, coexisted, source_clock, unproven, fractured, unknown, single }
        Reason {
            no_witness, budget_spent, undeclared_source, origin_undeclared, replica_lag, definitions_changed,
            stale_argument, unknown_engine, incomplete,
        }
        IssueKind { unproven, fractured, incomplete, missing_reading, inconsistent_views }
        Basis { snapshot, source, field, receipt }
        Condition { contains_write, dependency, rate_limit, concurrent_precondition }
        EdgeReason { key, after, placeholder, precondition, guess }
    }

    macro_rules! objects {
        ($($name:ident { $($(#[$attribute:meta])* $field:ident: $type:ty),+ $(,)? })+) => {$(
            #[expect(dead_code, reason = "being read is what the fields are for")]
            #[derive(Debug, Deserialize)]
            #[serde(rename_all = "camelCase", deny_unknown_fields)]
            pub(crate) struct $name { $($(#[$attribute])* pub(crate) $field: $type),+ }
        )+};
    }

    objects! {
        Report {
            set_id: String,
            status: Status,
            issued_at: Time,
            elapsed_ms: f64,
            policy: Policy,
            time_zone: String,
            called: Vec<String>,
            #[serde(deserialize_with = "present")]
            pin: Option<String>,
            decision: Decision,
            plan: Plan,
            route: Route,
            results: Vec<Result_>,
            consistency: Consistency,
            note: String,
        }
        Decision {
            parallel: bool,
            #[serde(deserialize_with = "present")]
            reason: Option<Condition>,
            #[serde(deserialize_with = "present")]
            dependency: Option<String>,
            evidence: Vec<Evidence>,
            #[serde(deserialize_with = "present")]
            disjoint_writes: Option<bool>,
        }
        Evidence { condition: Condition, calls: Vec<usize>, detail: String }
        Plan { stages: Vec<Vec<usize>>, edges: Vec<Edge> }
        Edge { before: Vec<usize>, after: Vec<usize>, reason: EdgeReason, detail: String }
        Route {
            purpose: Purpose,
            because: String,
            taken: Taken,
            tries: u32,
            #[serde(deserialize_with = "present")]
            extra: Option<Value>,
        }
        Result_ {
            id: String,
            tool: String,
            outcome: Outcome,
            #[serde(default, deserialize_with = "some")]
            value: Option<Value>,
            #[serde(default)]
            error: Option<Error_>,
            complete: bool,
            #[serde(deserialize_with = "present")]
            view: Option<String>,
            #[serde(deserialize_with = "present")]
            as_of: Option<Time>,
            #[serde(deserialize_with = "present")]
            stamp: Option<Stamp>,
            #[serde(deserialize_with = "present")]
            replaced: Option<Replaced>,
            #[serde(deserialize_with = "present")]
            shared_with: Option<usize>,
            #[serde(deserialize_with = "present")]
            via: Option<String>,
            unverified: Vec<String>,
            withheld: bool,
            queued_ms: f64,
            elapsed_ms: f64,
            attempts: u32,
        }
        Error_ {
            class: Class,
            code: String,
            message: String,
            retryable: bool,
            #[serde(deserialize_with = "present")]
            retry_after_ms: Option<f64>,
            #[serde(default)]
            may_have_happened: bool,
        }
        Stamp {
            #[serde(deserialize_with = "present")]
            earliest: Option<Time>,
            #[serde(deserialize_with = "present")]
            latest: Option<Time>,
            basis: Basis,
            #[serde(deserialize_with = "present")]
            source: Option<String>,
            #[serde(deserialize_with = "present")]
            source_time: Option<Time>,
            #[serde(deserialize_with = "present")]
            witness: Option<String>,
        }
        Replaced { old: Value, new: Value }
        Consistency {
            verdict: Verdict,
            #[serde(deserialize_with = "present")]
            reason: Option<Reason>,
            #[serde(deserialize_with = "present")]
            comparable: Option<bool>,
            #[serde(deserialize_with = "present")]
            inconsistent: Option<bool>,
            #[serde(deserialize_with = "present")]
            spread_ms: Option<f64>,
            tolerance_ms: f64,
            #[serde(deserialize_with = "present")]
            spread_exceeded: Option<bool>,
            groups: Vec<Vec<usize>>,
            excluded: Vec<Excluded>,
            #[serde(deserialize_with = "present")]
            widest: Option<[usize; 2]>,
            because: String,
            #[serde(deserialize_with = "present")]
            changes_per_second: Option<f64>,
            #[serde(deserialize_with = "present")]
            would_help: Option<String>,
            #[serde(deserialize_with = "present")]
            issue: Option<Issue>,
        }
        Excluded { call: usize, why: String }
        Issue {
            kind: IssueKind,
            #[serde(deserialize_with = "present")]
            spread_ms: Option<f64>,
            message: String,
        }
    }
}

/// Reads a report strictly by its contract, and checks what the types alone can't say.
#[track_caller]
pub(crate) fn read_strictly(json: &str) -> strict::Report {
    let report: strict::Report = serde_json::from_str(json).unwrap_or_else(|error| panic!("{error}\n{json}"));
    for result in &report.results {
        let ok = result.outcome == strict::Outcome::ok;
        assert_eq!(
            result.value.is_some(),
            ok && !result.withheld,
            "a value if ok and not withheld: {result:?}"
        );
        assert_eq!(result.error.is_some(), !ok, "an error if not ok: {result:?}");
        assert!(
            result
                .error
                .as_ref()
                .is_none_or(|error| !error.message.is_empty()),
            "{result:?}"
        );
    }
    let strict::Consistency {
        groups,
        excluded,
        comparable,
        verdict,
        reason,
        inconsistent,
        ..
    } = &report.consistency;
    let mut named: Vec<usize> = groups.concat();
    named.extend(excluded.iter().map(|excluded| excluded.call));
    named.sort_unstable();
    assert!(
        named.into_iter().eq(0..report.results.len()),
        "groups and excluded name each call once"
    );
    assert_eq!(reason.is_some(), *verdict == strict::Verdict::unproven);
    if *comparable == Some(true) {
        assert!(matches!(
            verdict,
            strict::Verdict::same_view | strict::Verdict::coexisted
        ));
        assert_eq!(*inconsistent, Some(false));
    }
    report
}

/// The `ms`th millisecond of a set.
fn moment(ms: f64) -> Moment {
    let issued: DateTime<Utc> = "2026-01-02T14:22:01.320Z".parse().unwrap();
    let offset = Duration::from_secs_f64(ms / 1e3);
    let mono = Mono::from_nanos(u64::try_from(offset.as_nanos()).unwrap());
    Moment {
        wall: issued + TimeDelta::from_std(offset).unwrap(),
        mono: Some(mono),
    }
}

/// A read that returned this, from outside every view.
pub(crate) fn ok(id: &str, tool: &str, value: Value) -> CallResult {
    let stamp = Stamp::receipt(moment(0.2), moment(2.2));
    CallResult {
        id: id.into(),
        tool: tool.into(),
        outcome: Outcome::Ok,
        value: Some(value),
        error: None,
        complete: true,
        view: None,
        as_of: stamp.as_of().map(Moment::from_wall),
        stamp: Some(stamp),
        replaced: None,
        shared_with: None,
        via: None,
        unverified: Vec::new(),
        withheld: false,
        queued_ms: 0.1,
        elapsed_ms: 2.0,
        attempts: 1,
        unsound: None,
        facts: CallFacts::new(Class::Read),
    }
}

/// The same through a view of the database `atlas`.
pub(crate) fn in_view(name: &str, result: CallResult) -> CallResult {
    let stamp = Stamp {
        basis: Basis::Snapshot,
        source: Some("atlas".into()),
        ..Stamp::receipt(moment(0.5), moment(0.9))
    };
    let view: ViewId = serde_json::from_value(json!(name)).unwrap();
    CallResult {
        view: Some(view),
        as_of: stamp.as_of().map(Moment::from_wall),
        stamp: Some(stamp),
        ..result
    }
}

/// A read that has no value.
pub(crate) fn failed(id: &str, tool: &str, error: &CallError) -> CallResult {
    CallResult {
        outcome: error.outcome(),
        value: None,
        error: Some(ErrorReport::from(error)),
        complete: false,
        as_of: None,
        stamp: None,
        attempts: error.attempts_made(),
        ..ok(id, tool, Value::Null)
    }
}

/// A report of these results, not judged yet.
pub(crate) fn report(results: Vec<CallResult>) -> SetReport {
    SetReport {
        set_id: "set-1".into(),
        status: Status::Complete,
        issued_at: moment(0.0),
        elapsed_ms: 4.1,
        policy: PolicyName::Standard,
        time_zone: "UTC".into(),
        called: results
            .iter()
            .filter(|result| result.is_ok())
            .map(|result| Arc::clone(&result.tool))
            .collect(),
        pin: None,
        decision: Decision {
            parallel: true,
            reason: None,
            dependency: None,
            evidence: Vec::new(),
            disjoint_writes: None,
        },
        plan: Plan {
            stages: vec![(0..results.len()).collect()],
            ..Plan::default()
        },
        route: Route {
            purpose: Purpose::Compare,
            because: "\"applied\" asks whether something is as it should be.".into(),
            taken: RouteTaken::AsIs,
            tries: 1,
            extra: None,
        },
        consistency: Consistency::not_judged(results.len()),
        note: String::new(),
        asked: Asked::default(),
        results,
    }
}

/// The report as the judge layer lets it out.
pub(crate) async fn judged(report: SetReport) -> SetReport {
    let inner = service_fn(|report: SetReport| async { Ok::<_, std::convert::Infallible>(report) });
    JudgeLayer::default().layer(inner).oneshot(report).await.unwrap()
}

/// A report with something of everything.
fn eventful() -> SetReport {
    let rows = json!({
        "columns": [{"name": "order_id", "type": "TEXT"}, {"name": "total", "type": "INTEGER"}, {"name": "note", "type": "TEXT"}],
        "rows": (0..9).map(|n| json!({"order_id": format!("o-{n}"), "total": 1_500 * n, "note": null})).collect::<Vec<_>>(),
        "rowCount": 40, "truncated": true,
    });
    let orders = CallResult {
        complete: false,
        unverified: vec!["account_id".into()],
        ..in_view("view-1", ok("c2", "list_orders", rows))
    };
    let contract = in_view(
        "view-1",
        ok(
            "c1",
            "get_contract",
            json!({
                "columns": [{"name": "threshold", "type": "INTEGER"}, {"name": "terms", "type": "TEXT"}],
                "rows": [{"threshold": 15_000, "terms": "15 % above the threshold\u{1b}[2J"}], "rowCount": 1, "truncated": false,
            }),
        ),
    );
    let again = CallResult {
        id: "c3".into(),
        shared_with: Some(0),
        ..contract.clone()
    };
    let down = CallError::new(
        ErrorCode::CallFailed,
        "Could not complete get_ticket: connection refused",
    )
    .attempts(3);
    let paid = CallResult {
        facts: CallFacts::new(Class::Write),
        ..ok("c5", "pay_invoice", json!("paid"))
    };
    let lost =
        CallError::new(ErrorCode::DeadlineExceeded, "refund took longer than 5000 ms").may_have_happened();
    let lost = CallResult {
        facts: CallFacts::new(Class::Write),
        ..failed("", "refund", &lost.attempts(1))
    };
    let unknown = failed(
        "c7",
        "search",
        &CallError::new(ErrorCode::UnknownTool, "There is no tool called \"search\"."),
    );

    let mut report = report(vec![
        contract,
        orders,
        again,
        failed("c4", "get_ticket", &down.retry_after(Duration::from_millis(200))),
        CallResult {
            replaced: Some(Replaced {
                old: json!({"n": 1}),
                new: json!({"n": 2}),
            }),
            ..paid
        },
        lost,
        unknown,
    ]);
    report.status = Status::Cancelled;
    report.decision = Decision {
        parallel: false,
        reason: Some(Condition::ContainsWrite),
        dependency: None,
        evidence: vec![Evidence {
            condition: Condition::ContainsWrite,
            calls: vec![4, 5],
            detail: "pay_invoice writes".into(),
        }],
        disjoint_writes: Some(false),
    };
    let edge = Edge {
        before: vec![0, 1],
        after: vec![3],
        reason: EdgeReason::Placeholder,
        detail: "{{c1.threshold}}".into(),
    };
    report.plan = Plan {
        stages: vec![vec![0, 1, 2, 3], vec![4], vec![5]],
        edges: vec![edge],
        ..Plan::default()
    };
    report
}

fn json_of(report: &SetReport) -> String {
    serde_json::to_string_pretty(report).unwrap()
}

#[tokio::test]
async fn a_report_is_read_back_by_types_that_take_nothing_more_and_nothing_less() {
    let views = vec![
        in_view("v", ok("c1", "a", json!(null))),
        in_view("v", ok("c2", "b", json!([]))),
    ];
    for report in [
        report(vec![]),
        report(vec![ok("", "a", json!(1.5))]),
        report(views),
        eventful(),
    ] {
        // Also when nobody judged it.
        read_strictly(&json_of(&report));
        let json = json_of(&judged(report.clone()).await);
        let read = read_strictly(&json);
        assert_eq!(read.results.len(), report.results.len());
        // What is printed is all that another process gets: printed again, it is the same.
        let back: SetReport = serde_json::from_str(&json).unwrap();
        assert_eq!(json_of(&back), json);
    }
}

/// `null` is a value, absence is none.
#[tokio::test]
async fn a_null_value_survives_and_what_only_the_judge_needs_is_not_printed() {
    let judged = judged(report(vec![in_view("v", ok("c1", "a", Value::Null))])).await;
    let printed: Value = serde_json::from_str(&json_of(&judged)).unwrap();
    let result = &printed["results"][0];
    assert_eq!(result.get("value"), Some(&Value::Null));
    for field in ["error", "facts", "unsound"] {
        assert!(result.get(field).is_none(), "{field}");
    }
    assert!(printed.get("asked").is_none());
}

/// The schema in the repository is the one of the types. `UPDATE_SCHEMA=1 cargo test` writes it anew.
#[tokio::test]
async fn the_schema_in_the_repository_is_that_of_the_types_and_fits_what_is_printed() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/src/report/schema.json");
    let schema = schemars::schema_for!(SetReport);
    let text = serde_json::to_string_pretty(&schema).unwrap() + "\n";
    if std::env::var_os("UPDATE_SCHEMA").is_some() {
        std::fs::write(path, &text).unwrap();
    }
    let kept = std::fs::read_to_string(path).unwrap();
    assert!(
        kept == text,
        "src/report/schema.json is not that of SetReport; UPDATE_SCHEMA=1 cargo test writes it anew"
    );

    let mut schemas = boon::Schemas::new();
    let mut compiler = boon::Compiler::new();
    compiler
        .add_resource("report.json", serde_json::from_str(&kept).unwrap())
        .unwrap();
    let schema = compiler.compile("report.json", &mut schemas).unwrap();
    let mut printed: Value = serde_json::from_str(&json_of(&judged(eventful()).await)).unwrap();
    if let Err(error) = schemas.validate(&printed, schema) {
        panic!("{error:#}");
    }
    printed["results"][0]["surprise"] = json!(1);
    assert!(
        schemas.validate(&printed, schema).is_err(),
        "a field the contract doesn't know"
    );
}

#[tokio::test]
async fn the_text_of_a_comparable_set() {
    let contract = ok(
        "c1",
        "get_contract",
        json!({
            "columns": [{"name": "threshold", "type": "INTEGER"}, {"name": "discount", "type": "TEXT"}],
            "rows": [{"threshold": 15_000, "discount": "0.15"}], "rowCount": 1, "truncated": false,
        }),
    );
    let orders = ok(
        "c2",
        "list_orders",
        json!([{"id": "o-1", "total": 9_000.5}, {"id": "o-22", "total": 12}]),
    );
    let mut report = report(vec![in_view("v", contract), in_view("v", orders)]);
    report.route.taken = RouteTaken::SharedView;
    let report = judged(report).await;
    let expected = r#"set set-1, issued 2026-01-02 14:22:01.320 UTC, took 4.1 ms, policy standard

0  c1  get_contract  ok  as of 14:22:01.320  queued 0.1 ms  ran 2.0 ms
    threshold  discount
        15000  0.15

1  c2  list_orders   ok  as of 14:22:01.320  queued 0.1 ms  ran 2.0 ms
    id     total
    o-1   9000.5
    o-22      12

plan     0, 1 at once
route    shared_view, for purpose compare: "applied" asks whether something is as it should be.
verdict  comparable: same_view; spread 0.0 ms
         Both readings come from one snapshot of atlas, taken at 2026-01-02 14:22:01.320 UTC.

Both readings may be compared with each other: one snapshot of atlas, as of 2026-01-02 14:22:01.320 UTC.
"#;
    assert_eq!(text::render(&report, &Palette::PLAIN), expected);
}

#[tokio::test]
async fn the_text_of_an_eventful_set() {
    let report = judged(eventful()).await;
    let expected = r#"set set-1, issued 2026-01-02 14:22:01.320 UTC, took 4.1 ms, policy standard, cancelled

0  c1  get_contract  ok            as of 14:22:01.320  queued 0.1 ms  ran 2.0 ms
    threshold  terms
        15000  15 % above the threshold\u{1b}[…

1  c2  list_orders   ok            as of 14:22:01.320  queued 0.1 ms  ran 2.0 ms
    only a part of the answer
    looks guessed and could not be checked: account_id
    order_id  total  note
    o-0           0  null
    o-1        1500  null
    o-2        3000  null
    o-3        4500  null
    o-4        6000  null
    o-5        7500  null
    o-6        9000  null
    o-7       10500  null
    32 more rows

2  c3  get_contract  ok            as of 14:22:01.320  queued 0.1 ms  ran 2.0 ms
    the same call as 0, run once
    threshold  terms
        15000  15 % above the threshold\u{1b}[…

3  c4  get_ticket    failed                            queued 0.1 ms  ran 2.0 ms
    asked 3 times
    call_failed: Could not complete get_ticket: connection refused
    Worth asking again after 200 ms.

4  c5  pay_invoice   ok            as of 14:22:01.320  queued 0.1 ms  ran 2.0 ms
    paid
    It was {"n":1} when it was read first.

5      refund        timed_out                         queued 0.1 ms  ran 2.0 ms
    deadline_exceeded: refund took longer than 5000 ms
    It may have happened all the same: look before it is asked again.
    Worth asking again.

6  c7  search        unknown_tool
    unknown_tool: There is no tool called "search".

plan     0, 1, 2, 3 | 4 | 5 (contains_write)
         3 waits for 0, 1: placeholder, {{c1.threshold}}
route    as_is, for purpose compare: "applied" asks whether something is as it should be.
verdict  can't be told: unproven, incomplete
         list_orders returned only a part of the answer, and which part may differ from read to read: it can't be compared.
         Ask list_orders for less, by a filter, a total order or an aggregate, so that the answer is whole; or raise maxRows.
issue    missing_reading: The comparison can't be made: get_ticket and search have no value.

May be compared with each other: get_contract (#0) and get_contract (#2), as of 2026-01-02 14:22:01.320 UTC. Don't compare list_orders with anything; report each on its own. list_orders returned only a part of the answer, and which part may differ from read to read: it can't be compared.
"#;
    let found = text::render(&report, &Palette::PLAIN);
    assert_eq!(found, expected, "{found}");
}

#[tokio::test]
async fn colours_change_nothing_but_the_colours_and_no_answer_drives_the_terminal() {
    let report = judged(eventful()).await;
    let plain = text::render(&report, &Palette::PLAIN);
    assert!(!plain.contains('\x1b'));
    let mut bare = text::render(&report, &Palette::COLOURS);
    for code in [0, 1, 2, 31, 32, 33] {
        bare = bare.replace(&format!("\x1b[{code}m"), "");
    }
    assert_eq!(bare, plain);
}

/// What is asked for and can't be had is kept back, and the rest is not.
#[tokio::test]
async fn under_require_comparable_what_is_in_no_group_is_withheld() {
    let require = |mut report: SetReport| {
        report.asked.require = Some(Require::Comparable);
        report
    };
    let view = |id: &str| in_view("v", ok(id, "a", json!(id)));
    let write = || CallResult {
        facts: CallFacts::new(Class::Write),
        ..ok("w", "pay", json!("paid"))
    };
    let withheld = |report: &SetReport| {
        report
            .results
            .iter()
            .map(|result| result.withheld)
            .collect::<Vec<_>>()
    };

    let found = judged(require(report(vec![
        view("1"),
        ok("2", "b", json!(2)),
        view("3"),
        write(),
    ])))
    .await;
    assert_eq!(withheld(&found), [false, true, false, false]);
    assert_eq!(found.route.taken, RouteTaken::Refused);
    assert_eq!(
        (&found.results[1].value, found.results[1].outcome),
        (&None, Outcome::Ok)
    );
    assert_eq!(found.results[3].value, Some(json!("paid")));
    assert!(found.note.contains("withheld"), "{}", found.note);
    read_strictly(&json_of(&found));

    // What meets the requirement is let out; so is a lone reading, which nothing was to be compared with.
    for results in [
        vec![view("1"), view("2")],
        vec![ok("1", "a", json!(1))],
        vec![write(), ok("1", "a", json!(1))],
    ] {
        let found = judged(require(report(results))).await;
        assert!(
            !withheld(&found).contains(&true) && found.route.taken == RouteTaken::AsIs,
            "{found:?}"
        );
    }
    // A reading whose counterpart is missing may not stand in for the comparison.
    let down = failed("2", "b", &CallError::new(ErrorCode::CallFailed, "no"));
    let found = judged(require(report(vec![view("1"), down]))).await;
    assert_eq!(withheld(&found), [true, false]);
    // Without the requirement nothing is.
    let found = judged(report(vec![ok("1", "a", json!(1)), ok("2", "b", json!(2))])).await;
    assert_eq!(withheld(&found), [false, false]);
}

/// Results are compared by their views across reports too: an unsound one must not carry any.
#[tokio::test]
async fn an_unsound_reading_does_not_show_a_view() {
    let mut unsound = in_view("v", ok("2", "b", json!(2)));
    unsound.unsound = Some(coeval::reading::UnprovenReason::DefinitionsChanged);
    let found = judged(report(vec![in_view("v", ok("1", "a", json!(1))), unsound])).await;
    assert!(found.results[0].view.is_some());
    assert_eq!(found.results[1].view, None);
    assert_eq!(found.consistency.comparable, Some(false));
}

/// One or two sentences: what may be compared with what, as of when.
#[tokio::test]
async fn the_note_says_what_may_be_compared_with_what() {
    let note = async |results| judged(report(results)).await.note;
    let (contract, orders) = (
        ok("1", "get_contract", json!(1)),
        ok("2", "list_orders", json!(2)),
    );
    let ticket = || ok("3", "get_ticket", json!(3));
    let view = |result: &CallResult| in_view("v", result.clone());
    assert_eq!(
        note(vec![view(&contract), view(&orders), ticket()]).await,
        "May be compared with each other: get_contract and list_orders, as of 2026-01-02 14:22:01.320 UTC. Don't compare \
         get_ticket with anything; report each on its own. get_ticket was read outside every snapshot: a change in \
         between can't be ruled out, so a mismatch is not a finding."
    );
    assert_eq!(
        note(vec![contract.clone(), ticket()]).await,
        "Don't compare these readings; report each on its own, as of 2026-01-02 14:22:01.320 UTC. get_contract and \
         get_ticket were read outside every snapshot: a change in between can't be ruled out, so a mismatch is not a \
         finding."
    );
    assert_eq!(
        note(vec![view(&contract)]).await,
        "One reading, get_contract, as of 2026-01-02 14:22:01.320 UTC. There is only one reading, so there is nothing to \
         compare."
    );
    assert_eq!(note(vec![]).await, "No call returned a reading.");
}
