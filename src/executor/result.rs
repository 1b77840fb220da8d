//! What is told of each call, and of the set.

use std::collections::HashMap;
use std::sync::Arc;

use super::engine::Engine;
use super::gate::{Ended, Names};
use serde_json::Value;

use crate::clock::Moment;
use crate::layer::plan::Planned;
use crate::reading::{Outcome, Reading, UnprovenReason, ViewId};
use crate::report::{Asked, CallFacts, CallResult, Consistency, Route, SetReport, Status, millis};

impl Engine<'_> {
    pub(super) fn ok_result(&self, position: usize, leader: usize, reading: Reading) -> CallResult {
        let mut result = self.blank(position, Outcome::Ok);
        result.value = Some(reading.value);
        result.complete = reading.complete;
        result.view = reading.view;
        result.as_of = reading.stamp.as_of().map(Moment::from_wall);
        result.stamp = Some(reading.stamp);
        result.unsound = reading.unsound;
        result.attempts = reading.attempts;
        result.elapsed_ms = millis(reading.elapsed);
        self.times(&mut result, position, leader);
        result
    }

    /// When it waited, and what it was when it started.
    pub(super) fn times(&self, result: &mut CallResult, position: usize, leader: usize) {
        let started = self.gate.started(leader);
        if let Some(ready) = self.slots[position].ready {
            let until = started.map_or_else(|| self.set.timeline.mono(), |started| started.at);
            result.queued_ms = millis(until.since(ready));
        }
        if let Some(started) = started {
            result.facts.class = started.class;
            result.facts.epoch = started.epoch;
        }
    }

    pub(super) fn blank(&self, position: usize, outcome: Outcome) -> CallResult {
        let call = self.call(position);
        let slot = &self.slots[position];
        let mut facts = CallFacts::new(call.facts.class);
        facts.one_state = self.planned.calls[position]
            .tool
            .as_ref()
            .is_some_and(|tool| tool.spec().one_state);
        facts.leans_on = slot.leans_on.clone();
        facts.leans_on_earlier = slot.leans_on_earlier;
        CallResult {
            id: Arc::clone(&call.id),
            tool: Arc::clone(&call.tool),
            outcome,
            value: None,
            error: None,
            complete: false,
            view: None,
            as_of: None,
            stamp: None,
            replaced: None,
            shared_with: None,
            via: None,
            unverified: slot.unverified.clone(),
            withheld: false,
            queued_ms: 0.0,
            elapsed_ms: 0.0,
            attempts: 0,
            unsound: None,
            facts,
        }
    }

    /// The set as far as it can be told without its plan, which the engine only borrows.
    pub(super) fn told(mut self) -> Told {
        let planned = self.planned;
        let set = &planned.request.set;
        let unsound: HashMap<ViewId, UnprovenReason> = planned
            .views
            .unsound()
            .into_iter()
            .map(|(view, unsound)| (view, unsound.reason))
            .collect();
        let mut results: Vec<CallResult> = Vec::with_capacity(self.slots.len());
        for slot in &mut self.slots {
            let mut result = slot
                .result
                .take()
                .expect("every slot is filled before the set reports");
            if let Some(reason) = result.view.as_ref().and_then(|view| unsound.get(view)) {
                result.unsound.get_or_insert(*reason);
            }
            results.push(result);
        }
        let mut called = set.called.clone();
        let mut known: Names = called.iter().cloned().collect();
        for result in &results {
            let counts = result.is_ok() || (planned.policy.failures_count_as_called && result.attempts > 0);
            for name in result.via.iter().chain([&result.tool]) {
                if counts && !known.contains(name) {
                    known.insert(Arc::clone(name));
                    called.push(Arc::clone(name));
                }
            }
        }
        Told {
            status: match self.gate.ended() {
                Some(Ended::Cancelled) => Status::Cancelled,
                _ if self.fatal => Status::Fatal,
                _ if self.aborted => Status::Aborted,
                _ => Status::Complete,
            },
            called,
            extra: self.extra,
            results,
        }
    }
}

/// What became of a set's calls.
pub(super) struct Told {
    status: Status,
    called: Vec<Arc<str>>,
    extra: Option<Value>,
    results: Vec<CallResult>,
}

impl Told {
    /// The report, not judged yet.
    pub(super) fn report(self, planned: Planned) -> SetReport {
        let mut asked = Asked::of(&planned.request.set);
        asked.spread_on_points = planned.policy.spread_on_points;
        SetReport {
            set_id: planned.request.set_id.to_string(),
            status: self.status,
            issued_at: planned.timeline.issued(),
            elapsed_ms: millis(planned.timeline.elapsed()),
            policy: planned.policy.name,
            time_zone: "UTC".to_owned(),
            called: self.called,
            pin: None,
            decision: planned.decision,
            plan: planned.plan,
            route: Route {
                extra: self.extra,
                ..planned.route
            },
            consistency: Consistency::not_judged(self.results.len()),
            results: self.results,
            note: String::new(),
            asked,
        }
    }
}
