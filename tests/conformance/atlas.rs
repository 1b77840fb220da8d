//! The published rules: four conditions; any of them fails, and the calls run one at a time.

mod planned {
    use coeval::plan::{Condition, Policy};
    use serde_json::json;

    use crate::support::resolved::{Made, World, read, write};

    fn atlas() -> World {
        let mut world = World::under(Policy::atlas());
        world.allowances.0.push(("crm", 4));
        world
    }

    fn reason(calls: impl IntoIterator<Item = Made>) -> Option<Condition> {
        let (decision, plan) = atlas().of(calls);
        // AT-08: not parallel is one at a time, in the model's order.
        let alone = plan
            .stages
            .iter()
            .enumerate()
            .all(|(index, stage)| *stage == [index]);
        let together = plan.stages.len() <= 1;
        assert!(
            if decision.parallel { together } else { alone },
            "{:?}",
            plan.stages
        );
        decision.reason
    }

    fn order_status() -> Made {
        read("get_order_status").with(json!({"orderId": "o-1"}))
    }

    fn account_orders() -> Made {
        read("get_account_orders")
            .returns(&["orderId", "total"])
            .with(json!({"accountId": "a-1"}))
    }

    /// AT-01: any write, be it confined.
    #[test]
    fn a_write_is_never_parallel() {
        assert_eq!(reason([read("r"), write("w")]), Some(Condition::ContainsWrite));
        let disjoint = [write("w").confined("a"), write("w").confined("b")];
        assert_eq!(reason(disjoint), Some(Condition::ContainsWrite));
    }

    /// AT-02: braces anywhere in the arguments.
    #[test]
    fn braces_are_a_dependency() {
        assert_eq!(
            reason([read("r"), read("s").with(json!({"a": [{"b": "x {{y"}]}))]),
            Some(Condition::Dependency)
        );
    }

    /// AT-03.
    #[test]
    fn an_argument_named_like_anothers_output_is_a_dependency() {
        assert_eq!(
            reason([order_status(), account_orders()]),
            Some(Condition::Dependency)
        );
        assert_eq!(
            reason([account_orders(), order_status()]),
            Some(Condition::Dependency)
        );
    }

    /// AT-03: the published rule asks for the name alone, wherever the value comes from.
    #[test]
    fn where_the_value_comes_from_does_not_matter() {
        let mut world = atlas();
        world.question = Some("status of o-1?".to_owned());
        let (decision, plan) = world.of([account_orders(), order_status()]);
        assert_eq!(decision.reason, Some(Condition::Dependency));
        assert_eq!(plan.stages, [[0], [1]]);
        // AT-19: but a value that was seen is not told as guessed.
        assert_eq!((plan.unverified.len(), plan.edges.len()), (0, 0));
        assert!(!decision.evidence[0].detail.contains("guessed"), "{decision:?}");
    }

    /// AT-04: five on an allowance of four name the dependency; exactly four are fine.
    #[test]
    fn an_allowance_is_a_limit() {
        let reads = |count| (0..count).map(|_| read("r").on("crm")).collect::<Vec<_>>();
        let (decision, plan) = atlas().of(reads(5));
        assert_eq!(
            (decision.reason, decision.dependency.as_deref()),
            (Some(Condition::RateLimit), Some("crm"))
        );
        assert_eq!(plan.stages.len(), 5);
        assert_eq!(reason(reads(4)), None);
    }

    /// AT-05: whatever the order in the set.
    #[test]
    fn a_precondition_beside_its_caller_is_a_reason() {
        let (search, open) = (
            || read("search_tickets"),
            || read("open_ticket").needs("search_tickets"),
        );
        assert_eq!(
            reason([search(), open()]),
            Some(Condition::ConcurrentPrecondition)
        );
        assert_eq!(
            reason([open(), search()]),
            Some(Condition::ConcurrentPrecondition)
        );
    }

    /// AT-06: write, dependency, rate, precondition.
    #[test]
    fn the_first_rule_that_hits_is_the_reason() {
        let rest = || {
            (0..5)
                .map(|_| read("r").on("crm"))
                .chain([read("open").needs("r")])
        };
        assert_eq!(
            reason(
                [write("w"), account_orders(), order_status()]
                    .into_iter()
                    .chain(rest())
            ),
            Some(Condition::ContainsWrite)
        );
        assert_eq!(
            reason([account_orders(), order_status()].into_iter().chain(rest())),
            Some(Condition::Dependency)
        );
        assert_eq!(reason(rest()), Some(Condition::RateLimit));
        assert_eq!(reason(rest().skip(1)), Some(Condition::ConcurrentPrecondition));
    }

    /// AT-07, AT-08.
    #[test]
    fn free_calls_share_one_stage() {
        let (decision, plan) = atlas().of([read("a"), account_orders(), read("b")]);
        assert!(decision.parallel && decision.reason.is_none());
        assert_eq!(plan.stages, [[0, 1, 2]]);
        let (_, plan) = atlas().of([read("a"), account_orders(), order_status(), read("b")]);
        assert_eq!(plan.stages, [[0], [1], [2], [3]]);
    }

    /// AT-09.
    #[test]
    fn the_cap_is_four() {
        assert_eq!(Policy::atlas().max_concurrency, 4);
    }

    /// AT-16: the writes' partition keys are told, and decide nothing.
    #[test]
    fn disjoint_writes_are_told_only() {
        let of = |calls: [Made; 2]| atlas().of(calls).0;
        let disjoint = of([write("w").confined("a"), write("w").confined("b")]);
        assert_eq!((disjoint.disjoint_writes, disjoint.parallel), (Some(true), false));
        assert_eq!(
            of([write("w").confined("a"), write("w").confined("a")]).disjoint_writes,
            Some(false)
        );
        assert_eq!(
            of([write("w").confined("a"), write("w")]).disjoint_writes,
            Some(false)
        );
    }

    /// AT-19: a call that returns what it is given doesn't depend on itself. (Beside another that returns it, it does.)
    #[test]
    fn a_call_does_not_depend_on_itself() {
        let account = || {
            read("get_account")
                .returns(&["accountId"])
                .with(json!({"accountId": "a-1"}))
        };
        assert_eq!(reason([account()]), None);
        assert_eq!(reason([account(), read("x")]), None);
        assert_eq!(reason([account(), account()]), Some(Condition::Dependency));
    }

    /// AT-20: nested names count; braces that mean nobody are text, and the calls run one at a time.
    #[test]
    fn nested_names_count_and_braces_stay_text() {
        let nested = read("get").with(json!({"filter": {"orderId": "o-1"}}));
        assert_eq!(reason([account_orders(), nested]), Some(Condition::Dependency));
        let (_, plan) = atlas().of([read("a"), read("search").with(json!({"text": "{{name}}"}))]);
        assert_eq!((plan.stages, plan.refused.len()), (vec![vec![0], vec![1]], 0));
    }

    /// AT-21: undeclared is the default, not unlimited.
    #[test]
    fn an_undeclared_allowance_is_the_default() {
        let reads = |count| (0..count).map(|_| read("r")).collect::<Vec<_>>();
        assert_eq!(
            (reason(reads(8)), reason(reads(9))),
            (None, Some(Condition::RateLimit))
        );
    }
}

mod run {
    use std::sync::{Arc, Mutex};
    use std::time::Duration;

    use coeval::call::Purpose;
    use coeval::clock::Moment;
    use coeval::hook::Hook;
    use coeval::plan::{Condition, PolicyName};
    use coeval::reading::{Answer, CallError, ErrorClass, ErrorCode, Outcome, Stamp};
    use coeval::report::{IssueKind, RouteTaken, SetReport, VerdictKind};
    use coeval::request::CallRequest;
    use coeval::source::sqlite::{CheckedSql, SqliteOptions, SqliteSource};
    use coeval::tool::{Cover, Tool, ToolSpec};
    use coeval::{Call, CallSet};
    use futures_util::future::BoxFuture;
    use serde_json::{Value, json};

    use crate::conformance::{run_under, under};
    use crate::support::lab::{Lab, call, codes, outcomes};

    const ATLAS: PolicyName = PolicyName::Atlas;

    fn reads(ms: &[u64]) -> Vec<Call> {
        ms.iter().map(|ms| call("", "read", json!({"ms": ms}))).collect()
    }

    /// AT-01, AT-08: a write in the set, and all of it runs one at a time in the model's order.
    #[tokio::test(start_paused = true)]
    async fn with_a_write_calls_run_one_at_a_time() {
        let lab = Lab::new();
        let mut calls = reads(&[10, 10, 10]);
        calls.insert(1, call("", "write", json!({"ms": 10})));
        let report = run_under(ATLAS, &lab, calls).await;
        assert_eq!(report.decision.reason, Some(Condition::ContainsWrite));
        assert_eq!((lab.log.peak(), lab.log.began()), (1, vec![0, 1, 2, 3]));
    }

    /// AT-02, AT-08: one after another, a placeholder becomes a correct second call.
    #[tokio::test(start_paused = true)]
    async fn one_after_another_a_dependent_call_is_right() {
        let lab = Lab::new();
        let calls = [
            call("find", "read", json!({"ms": 10, "value": {"orderId": "o-9"}})),
            call("get", "read2", json!({"value": "{{find.orderId}}"})),
        ];
        let report = run_under(ATLAS, &lab, calls).await;
        assert_eq!(report.decision.reason, Some(Condition::Dependency));
        assert_eq!(report.results[1].value, Some(json!("o-9")));
    }

    /// AT-07, AT-09, AT-18: free calls run four at a time, in the time of the slowest, each answer in its place.
    #[tokio::test(start_paused = true)]
    async fn free_calls_cost_the_slowest_of_them() {
        let lab = Lab::new();
        let report = run_under(ATLAS, &lab, reads(&[40, 30, 20, 10])).await;
        assert!(report.decision.parallel);
        assert_eq!((lab.log.ms(), lab.log.peak(), report.elapsed_ms), (40, 4, 40.0));
        let lab = Lab::new();
        run_under(ATLAS, &lab, reads(&[10; 5])).await;
        assert_eq!((lab.log.ms(), lab.log.peak()), (20, 4));
    }

    /// AT-09: a rejection is the answer of its slot, with the tool named.
    #[tokio::test(start_paused = true)]
    async fn a_rejection_names_its_tool_and_leaves_the_others() {
        let lab = Lab::new();
        let fails = |_: CallRequest| async { Err::<Value, _>(std::io::Error::other("connection reset")) };
        lab.registry
            .register(Tool::raw_fn(ToolSpec::read("list_orders"), fails))
            .unwrap();
        let mut calls = reads(&[5, 5]);
        calls.insert(1, call("", "list_orders", json!({})));
        let report = run_under(ATLAS, &lab, calls).await;
        assert_eq!(outcomes(&report), [Outcome::Ok, Outcome::Failed, Outcome::Ok]);
        let error = report.results[1].error.as_ref().unwrap();
        assert_eq!(
            (error.class, error.code),
            (ErrorClass::Unavailable, ErrorCode::CallFailed)
        );
        assert_eq!(error.message, "Could not complete list_orders: connection reset");
    }

    fn tickets() -> Lab {
        let lab = Lab::new();
        lab.tool(ToolSpec::read("search_tickets").dependency("plenty"));
        lab.tool(
            ToolSpec::read("open_ticket")
                .preconditions(["search_tickets"])
                .dependency("plenty"),
        );
        lab
    }

    /// AT-05, AT-10: a sibling that runs meets no precondition, and what was called is told once, after the set.
    #[tokio::test(start_paused = true)]
    async fn what_was_called_is_told_after_the_set() {
        let lab = tickets();
        let open = || call("", "open_ticket", json!({}));
        let report = run_under(
            ATLAS,
            &lab,
            [open(), call("", "search_tickets", json!({"ms": 10}))],
        )
        .await;
        assert_eq!(report.decision.reason, Some(Condition::ConcurrentPrecondition));
        assert_eq!(codes(&report), [Some(ErrorCode::PreconditionUnmet), None]);
        assert_eq!(
            report.called.iter().map(|name| &**name).collect::<Vec<_>>(),
            ["search_tickets"]
        );
        let mut next = under(ATLAS, [open()]);
        next.called = report.called;
        assert_eq!(
            outcomes(&lab.coordinator().run(next).await.unwrap()),
            [Outcome::Ok]
        );
    }

    /// AT-24: by the published rule a failed call counts as called; the standard policy counts successes only.
    #[tokio::test(start_paused = true)]
    async fn a_failed_call_counts_as_called_by_the_published_rule_only() {
        for (policy, counts) in [(ATLAS, true), (PolicyName::Standard, false)] {
            let report = run_under(
                policy,
                &tickets(),
                [call("", "search_tickets", json!({"then": "fail"}))],
            )
            .await;
            assert_eq!(!report.called.is_empty(), counts, "{policy}");
        }
    }

    /// Answers a value as of so many microseconds after 09:00; `None` says nothing of its age.
    fn stamped(lab: &Lab, name: &'static str, micros: Option<i64>) {
        let nine: chrono::DateTime<chrono::Utc> = "2026-03-01T09:00:00Z".parse().unwrap();
        let body = move |_: CallRequest| async move {
            let moment = |micros| Moment::from_wall(nine + chrono::TimeDelta::microseconds(micros));
            let mut stamp = Stamp::receipt(moment(micros.unwrap_or(0)), moment(micros.unwrap_or(0)));
            if micros.is_none() {
                (stamp.earliest, stamp.latest) = (None, None);
            }
            Ok::<_, CallError>(Answer::new(json!(name)).stamp(stamp))
        };
        lab.registry
            .register(Tool::raw_fn(ToolSpec::read(name), body))
            .unwrap();
    }

    async fn spread_of(stamps: &[Option<i64>]) -> SetReport {
        let lab = Lab::new();
        let names = ["a", "b", "c", "d"];
        for (&name, &stamp) in names.iter().zip(stamps) {
            stamped(&lab, name, stamp);
        }
        let calls = names[..stamps.len()].iter().map(|name| call("", name, json!({})));
        let set = under(ATLAS, calls).purpose(Purpose::Report);
        lab.coordinator().run(set).await.unwrap()
    }

    /// AT-11, AT-13: the spread is from the earliest to the latest, and too much if it is over the tolerance.
    #[tokio::test(start_paused = true)]
    async fn over_the_tolerance_is_told_and_at_the_tolerance_is_not() {
        let report = spread_of(&[Some(0), Some(1_000_000), Some(2_001_000)]).await;
        let issue = report.consistency.issue.as_ref().expect("2.001 s is over 2 s");
        assert_eq!(
            (issue.kind, issue.spread_ms),
            (IssueKind::InconsistentViews, Some(2001.0))
        );
        assert_eq!(report.consistency.inconsistent, Some(true));
        assert_eq!(report.issued_at.to_string(), "2026-03-01T09:00:00.000000Z");
        let report = spread_of(&[Some(0), Some(2_000_000)]).await;
        assert_eq!(
            (report.consistency.spread_ms, report.consistency.issue),
            (Some(2000.0), None)
        );
    }

    /// AT-12.
    #[tokio::test(start_paused = true)]
    async fn fewer_than_two_stamps_are_no_inconsistency() {
        for stamps in [&[Some(0)][..], &[None, Some(9_000_000)]] {
            let report = spread_of(stamps).await;
            assert_eq!(
                (report.consistency.issue, report.consistency.spread_ms),
                (None, None)
            );
        }
    }

    /// AT-22: three of four stamps missing is unknown, never consistent.
    #[tokio::test(start_paused = true)]
    async fn missing_stamps_are_unknown() {
        let report = spread_of(&[Some(0), None, None, None]).await;
        assert_eq!(
            (report.consistency.spread_ms, report.consistency.inconsistent),
            (None, None)
        );
        assert_eq!(
            (report.consistency.verdict, report.consistency.comparable),
            (VerdictKind::Unknown, Some(false))
        );
    }

    /// AT-19: a value from the conversation is no guess, and a call doesn't depend on what it returns itself.
    #[tokio::test(start_paused = true)]
    async fn a_value_from_the_conversation_is_no_guess() {
        let lab = Lab::new();
        lab.tool(
            ToolSpec::read("get_account")
                .output_fields(["accountId"])
                .dependency("plenty"),
        );
        let get = || call("", "get_account", json!({"accountId": "a-1"}));
        assert!(run_under(ATLAS, &lab, [get()]).await.decision.parallel);
        let mut set = under(ATLAS, [get(), call("", "read", json!({"accountId": "a-1"}))]);
        set.known = vec![json!("a-1")];
        let report = lab.coordinator().run(set).await.unwrap();
        assert_eq!(outcomes(&report), [Outcome::Ok; 2]);
        assert!(
            report.results.iter().all(|result| result.unverified.is_empty()),
            "{report:?}"
        );
    }

    // ===== snapshots =====

    /// An account whose contract is amended 5 ms after the lab began: the invoices are raised with it.
    fn account(lab: &Lab) {
        let log = lab.log.clone();
        let world = move || if log.ms() < 5 { 100 } else { 120 };
        for (name, ms) in [("get_contract", 0), ("list_invoices", 10)] {
            let world = world.clone();
            let body = move |_: CallRequest| {
                let world = world.clone();
                async move {
                    tokio::time::sleep(Duration::from_millis(ms)).await;
                    Ok::<_, CallError>(json!(world()))
                }
            };
            lab.registry
                .register(Tool::raw_fn(ToolSpec::read(name), body))
                .unwrap();
        }
        let body = move |_: CallRequest| {
            let now = world();
            async move {
                tokio::time::sleep(Duration::from_millis(10)).await;
                Ok::<_, CallError>(json!({"get_contract": now, "list_invoices": now}))
            }
        };
        let cover = |tool: &str| Cover {
            tool: tool.into(),
            part: None,
            arguments: vec![("account".into(), "account".into())],
        };
        let spec = ToolSpec::read("account_snapshot").one_state();
        let spec = spec.covers(cover("get_contract")).covers(cover("list_invoices"));
        lab.registry.register(Tool::raw_fn(spec, body)).unwrap();
    }

    async fn asked(question: &str, list_for: &str) -> SetReport {
        let lab = Lab::new();
        account(&lab);
        let calls = [
            call("c1", "get_contract", json!({"account": "h"})),
            call("c2", "list_invoices", json!({"account": list_for})),
        ];
        lab.coordinator()
            .run(under(ATLAS, calls).question(question))
            .await
            .unwrap()
    }

    /// AT-14, AT-17, B77: for a comparison the snapshot tool runs once and gives one world, in the calls' own slots.
    #[tokio::test(start_paused = true)]
    async fn a_comparison_is_answered_by_the_snapshot_tool() {
        let report = asked("Is Henderson's discount being applied?", "h").await;
        assert_eq!(report.route.taken, RouteTaken::SnapshotTool);
        assert!(
            report
                .results
                .iter()
                .all(|result| result.via.as_deref() == Some("account_snapshot"))
        );
        assert_eq!(report.results[0].value, report.results[1].value);
        assert_eq!(
            (report.consistency.verdict, report.consistency.comparable),
            (VerdictKind::SameView, Some(true))
        );
        assert_eq!(report.consistency.groups, [[0, 1]]);
    }

    /// AT-15, AT-17, AT-23: for a report the same calls run themselves; the discrepancy of the amendment in between is
    /// there, 10 ms apart, and nothing calls it comparable.
    #[tokio::test(start_paused = true)]
    async fn a_report_is_answered_by_the_calls_themselves() {
        let report = asked("List all invoices and the contract", "h").await;
        assert_eq!(
            (report.route.purpose, report.route.taken),
            (Purpose::Report, RouteTaken::AsIs)
        );
        assert!(report.decision.parallel);
        assert_ne!(report.results[0].value, report.results[1].value);
        assert_eq!(
            (report.consistency.comparable, report.consistency.spread_exceeded),
            (Some(false), Some(false))
        );
        assert_eq!(report.consistency.issue, None);
    }

    /// AT-14: the snapshot tool stands in for calls about one thing only.
    #[tokio::test(start_paused = true)]
    async fn calls_about_two_things_are_no_snapshot() {
        let report = asked("Is Henderson's discount being applied?", "other").await;
        assert_eq!(
            (report.route.taken, report.consistency.comparable),
            (RouteTaken::AsIs, Some(false))
        );
        assert_eq!(
            report.consistency.issue.map(|issue| issue.kind),
            Some(IssueKind::Unproven)
        );
    }

    /// AT-16: whatever the writes are confined to, they run in turn.
    #[tokio::test(start_paused = true)]
    async fn disjoint_writes_run_in_turn() {
        let lab = Lab::new();
        let key = |arguments: &coeval::tool::ArgumentMap| {
            Ok::<_, coeval::BoxError>(arguments["value"].as_str().map(Into::into))
        };
        let spec = ToolSpec::write("save").partition_key(coeval::tool::PerCall::decide(key));
        lab.tool(spec.dependency("plenty"));
        let save = |value: &str| call("", "save", json!({"ms": 10, "value": value}));
        let report = run_under(ATLAS, &lab, [save("a"), save("b")]).await;
        assert_eq!((report.decision.disjoint_writes, lab.log.ms()), (Some(true), 20));
    }

    /// Amends the contract before the second call starts.
    struct Amends(SqliteSource, Mutex<usize>);

    impl Hook for Amends {
        fn before<'a>(&'a self, request: &'a CallRequest) -> BoxFuture<'a, Result<(), CallError>> {
            Box::pin(async move {
                if request.position() == 1 {
                    let amend =
                        CheckedSql::new("UPDATE world SET contract = 120, invoices = 120", &[""; 0]).unwrap();
                    self.0.write(&amend, &[]).await.unwrap();
                    *self.1.lock().unwrap() += 1;
                }
                Ok(())
            })
        }
    }

    /// AT-17, B85: a contract that is amended between two reads of one database is amended in neither of them; read by two
    /// sets it would be in one.
    #[tokio::test]
    async fn reads_of_one_database_are_one_world() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("atlas.db");
        std::fs::File::create(&path).unwrap();
        let source = SqliteSource::open(SqliteOptions::new("atlas", &path)).unwrap();
        for sql in [
            "CREATE TABLE world (contract INTEGER, invoices INTEGER)",
            "INSERT INTO world VALUES (100, 100)",
        ] {
            source
                .write(&CheckedSql::new(sql, &[""; 0]).unwrap(), &[])
                .await
                .unwrap();
        }
        // Writers of a rollback journal wait for readers; with a log nobody waits.
        let mut setup = sqlx::ConnectOptions::connect(
            &sqlx::sqlite::SqliteConnectOptions::new()
                .filename(&path)
                .journal_mode(sqlx::sqlite::SqliteJournalMode::Wal),
        )
        .await
        .unwrap();
        sqlx::Connection::ping(&mut setup).await.unwrap();
        let registry = coeval::registry::Registry::new();
        for (name, column) in [("get_contract", "contract"), ("list_invoices", "invoices")] {
            let sql = format!("SELECT {column} AS amount FROM world");
            let (spec, tool) = source.tool(name, &sql, [""; 0]).await.unwrap();
            registry.register(Tool::raw(spec, tool)).unwrap();
        }
        let amends = Arc::new(Amends(source.clone(), Mutex::new(0)));
        let coordinator = coeval::coordinator::Coordinator::builder(registry)
            .source(Arc::new(source))
            .hook(Arc::clone(&amends) as _)
            .max_concurrency(1.try_into().unwrap())
            .build();
        let calls = || ["get_contract", "list_invoices"].map(|tool| call("", tool, json!({})));
        let amount = |report: &SetReport, at: usize| {
            report.results[at].value.as_ref().unwrap()["rows"][0]["amount"].clone()
        };

        let report = coordinator.run(under(ATLAS, calls())).await.unwrap();
        assert_eq!(*amends.1.lock().unwrap(), 1, "it was amended while the set ran");
        assert_eq!((amount(&report, 0), amount(&report, 1)), (json!(100), json!(100)));
        assert_eq!(
            (report.route.taken, report.consistency.comparable),
            (RouteTaken::SharedView, Some(true))
        );

        let later = coordinator
            .run(CallSet::new(calls().into_iter().skip(1)))
            .await
            .unwrap();
        assert_eq!(amount(&later, 0), json!(120));
        assert_ne!(later.results[0].view, report.results[0].view);
    }
}
