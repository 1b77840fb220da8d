//! G8: `comparable: true` is said only when it is true, and so is every group.
//!
//! Every value carries the versions it is a function of. A writer nobody knows of moves the sources on while sets read
//! them; some tools read through the set's view, some beside it, some say less than they know, some views are torn. The
//! oracle looks at the versions alone.

use std::any::Any;
use std::cell::Cell;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::SeqCst};

use coeval::call::Purpose;
use coeval::clock::{Mono, Timeline};
use coeval::coordinator::Coordinator;
use coeval::reading::{Answer, Basis, CallError, Stamp, UnprovenReason, ViewId};
use coeval::registry::Registry;
use coeval::report::SetReport;
use coeval::request::CallRequest;
use coeval::source::{Capability, Source, Unsound, View};
use coeval::tool::{Cover, In, Tool, ToolSpec};
use coeval::{BoxError, CallSet};
use futures_util::future::BoxFuture;
use proptest::prelude::*;
use proptest::test_runner::TestRunner;
use serde::Deserialize;
use serde_json::{Value, json};

use super::{ms, paused};
use crate::support::lab::call;

/// A database that is nothing but its version.
#[derive(Debug)]
struct Store {
    name: Arc<str>,
    version: AtomicU64,
    /// How long opening takes, before and after the view is fixed.
    opening: (u64, u64),
    /// Whether its views see what is written while they are open, which it finds out when they are closed.
    torn: bool,
    open: AtomicUsize,
}

impl Store {
    fn now(&self) -> Value {
        json!({"of": self.name, "version": self.version.load(SeqCst)})
    }
}

/// Shared, so that a torn view can look at the store.
#[derive(Clone, Debug)]
struct Handle(Arc<Store>);

#[derive(Debug)]
struct Snapshot {
    id: ViewId,
    fixed: Value,
    window: (Mono, Mono),
    stamp: Stamp,
    store: Arc<Store>,
}

impl Snapshot {
    fn look(&self) -> Value {
        match self.store.torn {
            true => self.store.now(),
            false => self.fixed.clone(),
        }
    }
}

impl View for Snapshot {
    fn id(&self) -> &ViewId {
        &self.id
    }

    fn window(&self) -> (Mono, Mono) {
        self.window
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

impl Source for Handle {
    fn name(&self) -> &Arc<str> {
        &self.0.name
    }

    fn capability(&self) -> Capability {
        let mut capability = Capability::none(4);
        (capability.snapshot, capability.shared) = (true, true);
        capability
    }

    fn open<'a>(
        &'a self,
        _: usize,
        timeline: &'a Timeline,
    ) -> BoxFuture<'a, Result<Arc<dyn View>, CallError>> {
        Box::pin(async move {
            let before = timeline.now();
            tokio::time::sleep(ms(self.0.opening.0)).await;
            let fixed = self.0.now();
            tokio::time::sleep(ms(self.0.opening.1)).await;
            let after = timeline.now();
            let mut stamp = Stamp::receipt(before, after);
            (stamp.basis, stamp.source) = (Basis::Snapshot, Some(Arc::clone(&self.0.name)));
            self.0.open.fetch_add(1, SeqCst);
            let window = (before.mono.unwrap(), after.mono.unwrap());
            let store = Arc::clone(&self.0);
            Ok(Arc::new(Snapshot {
                id: ViewId::fresh(),
                fixed,
                window,
                stamp,
                store,
            }) as Arc<dyn View>)
        })
    }

    fn close(&self, _: Arc<dyn View>) -> BoxFuture<'_, Result<(), Unsound>> {
        Box::pin(async move {
            tokio::time::sleep(ms(1)).await;
            self.0.open.fetch_sub(1, SeqCst);
            match self.0.torn {
                true => Err(Unsound {
                    reason: UnprovenReason::DefinitionsChanged,
                    message: "it was torn".into(),
                }),
                false => Ok(()),
            }
        })
    }
}

#[derive(Clone, Debug, Deserialize)]
struct Asked {
    ms: u64,
    #[serde(default)]
    given: Value,
}

type Fallible<T> = Result<T, BoxError>;

fn registry(store: &Arc<Store>) -> Registry {
    let registry = Registry::new();
    let add = |tool: Tool| registry.register(tool).unwrap();
    /// Waits, looks, waits.
    async fn look(view: &Snapshot, asked: &Asked) -> Value {
        tokio::time::sleep(ms(asked.ms / 2)).await;
        let seen = view.look();
        tokio::time::sleep(ms(asked.ms - asked.ms / 2)).await;
        json!({"seen": seen, "given": asked.given})
    }
    for (name, source) in [("look", "store"), ("look_too", "store"), ("elsewhere", "other")] {
        add(Tool::from_view_fn(
            ToolSpec::read(name).source(source),
            |view: In<Snapshot>, asked: Asked| async move {
                let value = look(&view, &asked).await;
                Fallible::Ok(
                    Answer::new(value)
                        .view(view.id().clone())
                        .stamp(view.stamp.clone()),
                )
            },
        ));
    }
    add(Tool::from_view_fn(
        ToolSpec::read("part").source("store"),
        |view: In<Snapshot>, asked: Asked| async move {
            let value = look(&view, &asked).await;
            Fallible::Ok(
                Answer::new(value)
                    .view(view.id().clone())
                    .stamp(view.stamp.clone())
                    .incomplete(),
            )
        },
    ));
    add(Tool::from_view_fn(
        ToolSpec::read("aside").source("store"),
        |view: In<Snapshot>, asked: Asked| async move {
            let value = json!([look(&view, &asked).await, view.store.now()]);
            let answer = Answer::new(value)
                .view(view.id().clone())
                .stamp(view.stamp.clone());
            Fallible::Ok(answer.unsound(UnprovenReason::NoWitness))
        },
    ));
    add(Tool::from_view_fn(
        ToolSpec::read("mute").source("store"),
        |view: In<Snapshot>, asked: Asked| async move {
            // Through the view and beside it, and says nothing.
            Fallible::Ok(json!([look(&view, &asked).await, view.store.now()]))
        },
    ));
    // Unknown effect, hence alone; and it may well change what it looks at.
    add(Tool::from_view_fn(
        ToolSpec::new("odd").source("store"),
        |view: In<Snapshot>, asked: Asked| async move {
            let value = look(&view, &asked).await;
            view.store.version.fetch_add(1, SeqCst);
            Fallible::Ok(
                Answer::new(value)
                    .view(view.id().clone())
                    .stamp(view.stamp.clone()),
            )
        },
    ));
    let beside = |spec: ToolSpec, does: fn(&Store) -> Value| {
        let (store, spec) = (Arc::clone(store), spec.dependency("beside"));
        add(Tool::raw_fn(spec, move |call: CallRequest| {
            let store = Arc::clone(&store);
            async move {
                let asked: Asked = serde_json::from_value(Value::Object((*call.arguments).clone()))?;
                tokio::time::sleep(ms(asked.ms / 2)).await;
                let seen = does(&store);
                tokio::time::sleep(ms(asked.ms - asked.ms / 2)).await;
                Fallible::Ok(json!({"seen": seen, "given": asked.given}))
            }
        }));
    };
    beside(ToolSpec::read("plain"), Store::now);
    beside(ToolSpec::read("plain_too"), Store::now);
    beside(ToolSpec::read("declared").one_state(), Store::now);
    beside(ToolSpec::write("write"), |store| {
        json!(store.version.fetch_add(1, SeqCst))
    });
    let cover = |tool: &str| {
        let own = format!("{tool}_ms");
        Cover {
            tool: tool.into(),
            part: None,
            arguments: vec![("ms".into(), own.into())],
        }
    };
    let store = Arc::clone(store);
    let spec = ToolSpec::read("together")
        .one_state()
        .covers(cover("plain"))
        .covers(cover("plain_too"));
    let parts = move |_: CallRequest| {
        let store = Arc::clone(&store);
        async move {
            tokio::time::sleep(ms(3)).await;
            Fallible::Ok(json!({"plain": {"seen": store.now()}, "plain_too": {"seen": store.now()}}))
        }
    };
    add(Tool::raw_fn(spec, parts));
    registry
}

#[derive(Clone, Debug)]
struct Case {
    calls: Vec<(&'static str, u64, Option<usize>)>,
    opening: (u64, u64),
    torn: bool,
    /// The pauses between commits.
    commits: Vec<u64>,
}

fn any_case() -> impl Strategy<Value = Case> {
    let tool = prop::sample::select(vec![
        "look",
        "look",
        "look",
        "look",
        "look",
        "look_too",
        "look_too",
        "plain",
        "plain_too",
        "elsewhere",
        "part",
        "aside",
        "mute",
        "odd",
        "write",
        "declared",
    ]);
    let call = (tool, 0..12_u64, prop::option::weighted(0.1, 0..6_usize));
    (
        prop::collection::vec(call, 2..6),
        (0..3_u64, 0..3_u64),
        prop::bool::weighted(0.1),
        prop::collection::vec(1..9_u64, 1..8),
    )
        .prop_map(|(calls, opening, torn, commits)| Case {
            calls,
            opening,
            torn,
            commits,
        })
}

/// Every version a value is a function of.
fn versions(value: &Value, into: &mut BTreeSet<(String, u64)>) {
    match value {
        Value::Object(members) => match (members.get("of"), members.get("version")) {
            (Some(of), Some(version)) => {
                into.insert((of.to_string(), version.as_u64().unwrap()));
            }
            _ => members.values().for_each(|member| versions(member, into)),
        },
        Value::Array(items) => items.iter().for_each(|item| versions(item, into)),
        _ => {}
    }
}

fn versions_of<'a>(
    report: &SetReport,
    calls: impl IntoIterator<Item = &'a usize>,
) -> BTreeSet<(String, u64)> {
    let mut found = BTreeSet::new();
    for &call in calls {
        versions(
            report.results[call].value.as_ref().unwrap_or(&Value::Null),
            &mut found,
        );
    }
    found
}

/// Runs the set among commits. Whether any landed while it ran.
async fn run(case: &Case) -> (SetReport, bool) {
    let store = |name: &str| {
        Arc::new(Store {
            name: name.into(),
            version: AtomicU64::new(1),
            opening: case.opening,
            torn: case.torn,
            open: AtomicUsize::new(0),
        })
    };
    let (store, other) = (store("store"), store("other"));
    let clock = coeval::clock::VirtualClock::starting_at("2026-03-01T09:00:00Z".parse().unwrap());
    let coordinator = Coordinator::builder(registry(&store))
        .clock(Arc::new(clock))
        .source(Arc::new(Handle(Arc::clone(&store))))
        .source(Arc::new(Handle(Arc::clone(&other))))
        .build();
    let calls = case
        .calls
        .iter()
        .enumerate()
        .map(|(position, (tool, ms, given))| {
            let mut arguments = json!({"ms": ms});
            if let Some(given) = given.filter(|&given| given < position) {
                arguments["given"] = json!(format!("{{{{c{given}}}}}"));
            }
            call(&format!("c{position}"), tool, arguments)
        });
    let set = CallSet::new(calls).purpose(Purpose::Compare);
    let commits = AtomicUsize::new(0);
    let writer = async {
        for pause in case.commits.iter().cycle() {
            tokio::time::sleep(ms(*pause)).await;
            store.version.fetch_add(1, SeqCst);
            other.version.fetch_add(1, SeqCst);
            commits.fetch_add(1, SeqCst);
        }
    };
    let report = tokio::select! {
        report = coordinator.run(set) => report.unwrap(),
        () = writer => unreachable!("there are always more commits"),
    };
    assert_eq!(
        (store.open.load(SeqCst), other.open.load(SeqCst)),
        (0, 0),
        "every view was closed"
    );
    (report, commits.load(SeqCst) > 0)
}

#[derive(Debug, Default)]
struct Seen {
    at_risk: Cell<u32>,
    comparable: Cell<u32>,
    grouped: Cell<u32>,
    fractured: Cell<u32>,
    snapshot_tool: Cell<u32>,
}

fn count(cell: &Cell<u32>, counts: bool) {
    cell.set(cell.get() + u32::from(counts));
}

/// G8, and so that this can fail: the same workload does fracture what is read beside the views.
#[test]
fn comparable_is_said_only_of_one_version() {
    let seen = Seen::default();
    let mut runner = TestRunner::new(ProptestConfig {
        cases: 3_000,
        failure_persistence: None,
        ..ProptestConfig::default()
    });
    let outcome = runner.run(&any_case(), |case| {
        let (report, at_risk) = paused(run(&case));
        let readings: Vec<usize> = (0..report.results.len())
            .filter(|&call| report.results[call].is_ok() && &*report.results[call].tool != "write")
            .collect();
        let consistency = &report.consistency;
        if consistency.comparable == Some(true) {
            let versions = versions_of(&report, &readings);
            prop_assert_eq!(
                versions.len(),
                1,
                "called comparable: {:?}\n{:#?}",
                versions,
                report
            );
            prop_assert_eq!(
                readings.len(),
                case.calls.iter().filter(|(tool, ..)| *tool != "write").count()
            );
        }
        for group in &consistency.groups {
            let versions = versions_of(&report, group);
            prop_assert_eq!(versions.len(), 1, "one group: {:?}\n{:#?}", versions, report);
        }
        // The printed id alone must not mislead either; a value that was given another's is a function of both.
        for &call in readings
            .iter()
            .filter(|&&call| report.results[call].facts.leans_on.is_empty())
        {
            let result = &report.results[call];
            let same = readings.iter().filter(|&&twin| {
                let twin = &report.results[twin];
                twin.view == result.view && twin.complete && twin.facts.leans_on.is_empty()
            });
            if result.view.is_some() && result.complete {
                let versions = versions_of(&report, same);
                prop_assert_eq!(versions.len(), 1, "one view: {:?}\n{:#?}", versions, report);
            }
        }
        let plain = readings
            .iter()
            .filter(|&&call| report.results[call].tool.starts_with("plain"));
        count(&seen.at_risk, at_risk && readings.len() > 1);
        count(&seen.comparable, at_risk && consistency.comparable == Some(true));
        count(&seen.grouped, at_risk && !consistency.groups.is_empty());
        count(&seen.fractured, versions_of(&report, plain).len() > 1);
        count(
            &seen.snapshot_tool,
            report.results.iter().any(|result| result.via.is_some()),
        );
        Ok(())
    });
    outcome.unwrap_or_else(|failure| panic!("{failure}"));
    assert!(seen.at_risk.get() >= 2_000, "{seen:?}");
    assert!(
        seen.comparable.get() >= 100 && seen.grouped.get() >= 1_000,
        "it must be claimed to be tested: {seen:?}"
    );
    assert!(
        seen.fractured.get() >= 50 && seen.snapshot_tool.get() >= 10,
        "{seen:?}"
    );
}

/// A call that may write, and looks through a view itself, leaves that view to nobody: what is read after it sees what it
/// wrote (B42).
#[tokio::test(start_paused = true)]
async fn a_view_opened_by_a_call_that_may_write_ends_with_it() {
    let case = Case {
        calls: vec![("odd", 0, None), ("look", 0, None), ("look_too", 0, None)],
        opening: (0, 0),
        torn: false,
        commits: vec![1_000],
    };
    let (report, _) = run(&case).await;
    let version = |call: usize| {
        report.results[call].value.as_ref().unwrap()["seen"]["version"]
            .as_u64()
            .unwrap()
    };
    assert_eq!([version(0), version(1), version(2)], [1, 2, 2]);
}
