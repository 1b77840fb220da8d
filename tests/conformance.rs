//! What the systems we build on pin down; each test names the id of the behaviour that it holds.
//!
//! `planned` modules hold what the plan alone decides, `run` modules what happens when it runs, on virtual time.

mod atlas;
mod go;
mod harness;
mod loopctl;
mod refused_by_design;
mod standard;

use std::sync::{Arc, Mutex};
use std::time::Duration;

use coeval::coordinator::Coordinator;
use coeval::hook::Hook;
use coeval::plan::PolicyName;
use coeval::reading::{CallError, ErrorCode};
use coeval::report::{CallResult, SetReport};
use coeval::request::CallRequest;
use coeval::run::Event;
use coeval::{Call, CallSet};
use futures_util::future::BoxFuture;

use crate::support::lab::{Lab, assert_conserved};

/// A set under a profile.
fn under(policy: PolicyName, calls: impl IntoIterator<Item = Call>) -> CallSet {
    let mut set = CallSet::new(calls);
    set.policy = Some(policy);
    set
}

/// Runs calls under a profile; every call has its result, whatever happens.
async fn run_under(policy: PolicyName, lab: &Lab, calls: impl IntoIterator<Item = Call>) -> SetReport {
    let set = under(policy, calls);
    let report = lab.coordinator().run(set.clone()).await.unwrap();
    assert_eq!(report.policy, policy);
    assert_conserved(&set, &report);
    report
}

/// Runs a set that is cancelled after so many milliseconds; 0 is before it begins.
async fn cancelled_after(ms: u64, coordinator: &Coordinator, set: CallSet) -> SetReport {
    let run = coordinator.start(set.clone());
    let control = run.control();
    if ms == 0 {
        control.cancel();
    }
    let (report, ()) = tokio::join!(run.report(), async {
        tokio::time::sleep(Duration::from_millis(ms)).await;
        control.cancel();
    });
    let report = report.unwrap();
    assert_conserved(&set, &report);
    report
}

/// Runs a set and tells its events: `start 0`, `end 0`, `commit 0`.
async fn events_of(coordinator: &Coordinator, set: CallSet) -> (SetReport, Vec<String>) {
    let mut run = coordinator.start(set);
    let mut events = run.events();
    let (report, seen) = tokio::join!(run.report(), async {
        let mut seen = Vec::new();
        while let Some(event) = events.next().await {
            seen.push(match event {
                Event::Started { position } => format!("start {position}"),
                Event::Finished { position, .. } => format!("end {position}"),
                Event::Committed { position, .. } => format!("commit {position}"),
                _ => unreachable!("there is no other event"),
            });
        }
        seen
    });
    (report.unwrap(), seen)
}

/// A hook that writes down what it was asked, and may deny, break or take its time.
#[derive(Default)]
struct Watcher {
    log: Mutex<Vec<String>>,
    deny: Option<usize>,
    throw: Option<usize>,
    /// How long it thinks before each call.
    before_ms: u64,
    /// How long it works after each call.
    after_ms: u64,
}

impl Watcher {
    fn log(&self) -> Vec<String> {
        self.log.lock().unwrap().clone()
    }

    fn note(&self, line: String) {
        self.log.lock().unwrap().push(line);
    }
}

impl Hook for Watcher {
    fn before<'a>(&'a self, request: &'a CallRequest) -> BoxFuture<'a, Result<(), CallError>> {
        Box::pin(async move {
            let position = request.position();
            self.note(format!("pre {position}"));
            if self.before_ms > 0 {
                tokio::time::sleep(Duration::from_millis(self.before_ms)).await;
            }
            if self.deny == Some(position) {
                return Err(CallError::new(ErrorCode::Denied, "not today"));
            }
            assert!(self.throw != Some(position), "a hook's own bug");
            Ok(())
        })
    }

    fn after<'a>(&'a self, position: usize, _: &'a CallResult) -> BoxFuture<'a, ()> {
        Box::pin(async move {
            if self.after_ms > 0 {
                tokio::time::sleep(Duration::from_millis(self.after_ms)).await;
            }
            self.note(format!("post {position}"));
        })
    }
}

fn watched(lab: &Lab, watcher: &Arc<Watcher>) -> Coordinator {
    lab.builder().hook(Arc::clone(watcher) as _).build()
}

/// A tool's keys: what the argument `key` names, as a reader.
fn key_of(arguments: &coeval::tool::ArgumentMap) -> Result<coeval::tool::Keys, coeval::BoxError> {
    let key = arguments.get("key").and_then(serde_json::Value::as_str);
    Ok(coeval::tool::Keys {
        reads: key.map(Into::into).into_iter().collect(),
        writes: Vec::new(),
    })
}
