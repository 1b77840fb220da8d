//! How calls end: by their execution, by an edge that can't be met, by the end of their set.

use std::sync::Arc;

use serde_json::{Map, Value};

use super::engine::{Answers, Engine};
use super::gate::Ended;
use crate::plan::{self, EdgeReason, FailurePolicy};
use crate::reading::{CallError, ErrorClass, ErrorCode, Outcome, Reading, ViewId};
use crate::report::{CallResult, ErrorReport, millis};
use crate::run::Event;

impl Engine<'_> {
    /// An execution has ended: every call it answers is settled.
    pub(super) fn finish(&mut self, position: usize, result: Result<Reading, CallError>) {
        let stand_in = self
            .planned
            .stand_in
            .as_ref()
            .filter(|s| s.members.iter().any(|(m, _)| *m == position));
        let name = match stand_in {
            Some(stand_in) => &stand_in.tool.spec().name,
            None => &self.call(position).tool,
        };
        let replaced = self.gate.finished(position, name, result.is_ok());
        let answers = std::mem::take(&mut self.slots[position].answers);
        if replaced && self.gate.closed_to(position).is_none() {
            return self.dispatch_anew(position, answers);
        }
        match &result {
            Err(error) if error.is_fatal() => {
                self.fatal = true;
                self.end(Ended::Fatal);
            }
            Err(error) if error.outcome() != Outcome::NotStarted => {
                let on_failure = self.settings.on_failure.unwrap_or(self.planned.policy.on_failure);
                if on_failure == FailurePolicy::Abort && self.gate.ended().is_none() {
                    self.aborted = true;
                    self.end(Ended::Aborted);
                    self.set.signals.cancel_all();
                }
            }
            Ok(_) if self.call(position).facts.is_final => self.end_turn(position),
            _ => {}
        }
        match (result, stand_in) {
            (Ok(reading), Some(_)) => self.fan_out(position, &answers, reading),
            (Ok(reading), None) => {
                let leader = answers.first().copied();
                for &answered in answers.iter().skip(1) {
                    let mut result = self.ok_result(answered, position, reading.clone());
                    result.shared_with = leader;
                    self.settle(answered, result);
                }
                if let Some(leader) = leader {
                    let result = self.ok_result(leader, position, reading);
                    self.settle(leader, result);
                }
            }
            (Err(error), _) => {
                let leader = answers.first().copied();
                for answered in answers {
                    let shared = leader.filter(|leader| *leader != answered && stand_in.is_none());
                    self.settle_error(answered, error.clone(), shared);
                    if let (Some(stand_in), Some(result)) = (stand_in, &mut self.slots[answered].result) {
                        result.via = Some(Arc::clone(&stand_in.tool.spec().name));
                    }
                }
            }
        }
    }

    /// The tool was replaced between plan and start: the call is resolved again, and meets the new one.
    pub(super) fn dispatch_anew(&mut self, position: usize, answers: Answers) {
        let call = Arc::clone(self.call(position));
        let Some(tool) = self.planned.registry.get(&call.tool) else {
            let message = format!("The tool {:?} was removed before this call started.", call.tool);
            let error = CallError::new(ErrorCode::UnknownTool, message);
            return answers
                .into_iter()
                .for_each(|answered| self.settle_error(answered, error.clone(), None));
        };
        let arguments = self.slots[position]
            .arguments
            .clone()
            .unwrap_or_else(|| Arc::clone(&call.arguments));
        if let Err(error) = tool.validate(&arguments) {
            return answers
                .into_iter()
                .for_each(|answered| self.settle_error(answered, error.clone(), None));
        }
        self.execute(position, call, tool, arguments);
        self.slots[position].answers = answers;
    }

    /// The snapshot tool has answered: each call it stood in for gets its part.
    pub(super) fn fan_out(&mut self, position: usize, answers: &[usize], mut reading: Reading) {
        let Some(stand_in) = &self.planned.stand_in else {
            return;
        };
        let spec = stand_in.tool.spec();
        if reading.view.is_none() && spec.one_state && reading.complete && reading.unsound.is_none() {
            // Declared: one answer is one state of one system. Its parts are functions of that state.
            reading.view = Some(ViewId::fresh());
        }
        let extra: Map<String, Value> = stand_in
            .extra
            .iter()
            .filter_map(|(tool, pointer)| Some((tool.to_string(), reading.value.pointer(pointer)?.clone())))
            .collect();
        self.extra = (!extra.is_empty()).then_some(Value::Object(extra));
        for (member, pointer) in &stand_in.members {
            if !answers.contains(member) {
                continue;
            }
            match reading.value.pointer(pointer).cloned() {
                Some(value) => {
                    let mut result = self.ok_result(
                        *member,
                        position,
                        Reading {
                            value,
                            ..reading.clone()
                        },
                    );
                    result.via = Some(Arc::clone(&spec.name));
                    self.settle(*member, result);
                }
                None => {
                    let message = format!(
                        "{} answered without the part {pointer} that stands for this call.",
                        spec.name
                    );
                    let error = CallError::new(ErrorCode::CallFailed, message).class(ErrorClass::Internal);
                    self.settle_error(*member, error, None);
                }
            }
        }
    }

    /// Settles a call without a value.
    pub(super) fn settle_error(&mut self, position: usize, error: CallError, shared_with: Option<usize>) {
        let mut result = self.blank(position, error.outcome());
        result.attempts = error.attempts_made();
        let mut told = ErrorReport::from(&error);
        hide(&self.set.scope, &mut told.message);
        result.error = Some(told);
        result.shared_with = shared_with;
        let leader = self.slots[position].execution.unwrap_or(position);
        if let Some(started) = self.gate.started(leader) {
            result.elapsed_ms = millis(self.set.timeline.mono().since(started.at));
            result.attempts = result.attempts.max(1);
        }
        self.times(&mut result, position, leader);
        self.settle(position, result);
    }

    /// A call has its result. A second one is ignored: a slot is filled once.
    pub(super) fn settle(&mut self, position: usize, result: CallResult) {
        let slot = &mut self.slots[position];
        if slot.result.is_some() {
            return;
        }
        let ok = result.is_ok();
        let outcome = result.outcome;
        slot.result = Some(result);
        self.unsettled -= 1;
        self.planned
            .request
            .control
            .emit(|| Event::Finished { position, outcome });
        self.schedule.settle(position, ok, &mut self.released);
    }

    /// An edge that can't be met any more.
    pub(super) fn fail_edge(&mut self, position: usize, edge: usize, culprit: usize) {
        let edge = &self.planned.plan.edges[edge];
        let call = self.call(position);
        // Only the first in a chain tells the cause, or the last of ten thousand would tell it ten thousand times.
        let because = self.slots[culprit]
            .result
            .as_ref()
            .and_then(|result| result.error.as_ref());
        let because = match because {
            Some(error) if error.code != ErrorCode::DependencyFailed => format!(": {}", error.message),
            _ => ".".to_owned(),
        };
        let error = match edge.reason {
            EdgeReason::Precondition => {
                // An edge lists who may meet it, but not always all who may: a success before a barrier counts too.
                match plan::precondition_met(&call.tool, &call.facts, |tool| self.gate.has_succeeded(tool)) {
                    Ok(()) => return self.schedule.meet(position, &mut self.released),
                    Err(error) => error,
                }
            }
            _ => {
                let message = format!(
                    "{} needs what call #{culprit} ({}) returns, and that did not succeed{because}",
                    call.tool,
                    self.call(culprit).tool,
                );
                CallError::new(ErrorCode::DependencyFailed, message)
            }
        };
        self.settle_error(position, error, None);
    }

    /// Nothing runs and nothing can start: the plan's edges contradict each other. Every call is answered all the same.
    pub(super) fn settle_stuck(&mut self) {
        for position in 0..self.slots.len() {
            if self.slots[position].result.is_none() {
                let message = "This call waits for calls that wait for it.";
                self.settle_error(
                    position,
                    CallError::new(ErrorCode::DependencyCycle, message),
                    None,
                );
            }
        }
    }

    /// Does what the control was told.
    pub(super) fn obey(&mut self) {
        let control = &self.planned.request.control;
        let calls = control.take_calls();
        if control.is_cancelled() && self.gate.ended().is_none() {
            self.set.signals.cancel_all();
            self.end(Ended::Cancelled);
        }
        for position in calls {
            if position < self.slots.len() && self.slots[position].result.is_none() {
                self.cancel_call(position);
            }
        }
    }

    /// Ends one call. An execution that answers others too goes on for them.
    pub(super) fn cancel_call(&mut self, position: usize) {
        let Some(leader) = self.slots[position].execution else {
            let message = "The call was cancelled before it started.";
            return self.settle_error(position, CallError::new(ErrorCode::SetCancelled, message), None);
        };
        if self.slots[leader].answers[..] == [position] {
            return self.set.signals.cancel(leader);
        }
        self.slots[leader]
            .answers
            .retain(|answered| *answered != position);
        let error = match self.gate.started(leader) {
            Some(_) => CallError::new(ErrorCode::Cancelled, "The call was cancelled."),
            None => CallError::new(
                ErrorCode::SetCancelled,
                "The call was cancelled before it started.",
            ),
        };
        self.settle_error(position, error, None);
    }

    /// Nothing more starts: what was not dispatched is answered now, the rest by its own stack.
    pub(super) fn end(&mut self, why: Ended) {
        self.gate.end(why);
        for position in 0..self.slots.len() {
            let slot = &self.slots[position];
            if slot.result.is_none() && slot.execution.is_none() {
                self.settle_error(position, why.error(), None);
            }
        }
    }

    /// The turn is over for every later call.
    pub(super) fn end_turn(&mut self, by: usize) {
        self.gate.end_turn(by);
        for position in by + 1..self.slots.len() {
            let slot = &self.slots[position];
            if slot.result.is_none()
                && slot.execution.is_none()
                && let Some(error) = self.gate.closed_to(position)
            {
                self.settle_error(position, error, None);
            }
        }
    }
}

/// Takes what the host said about its user out of a message: a database's own error may quote what was bound.
fn hide(scope: &Map<String, Value>, message: &mut String) {
    for value in scope.values() {
        let text = match value {
            Value::String(text) => text.clone(),
            Value::Number(number) => number.to_string(),
            Value::Object(members) => {
                hide(members, message);
                continue;
            }
            Value::Null | Value::Bool(_) | Value::Array(_) => continue,
        };
        // One letter or digit gives nobody away, and would tear every sentence.
        if text.len() > 1 && message.contains(&text) {
            *message = message.replace(&text, "(hidden)");
        }
    }
}
