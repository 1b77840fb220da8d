//! From "nothing holds it back" to an execution in the pool.

use std::hash::BuildHasher;
use std::sync::Arc;

use serde_json::{Map, Value};
use tower::ServiceExt;

use super::engine::{Engine, Execution};
use crate::dependency::{self, GuessCheck, ProducerState};
use crate::reading::{CallError, ErrorCode};
use crate::registry::Registered;
use crate::request::CallRequest;
use crate::tool::{Class, ResolvedCall};

impl Engine<'_> {
    /// Nothing holds the call back any more.
    pub(super) fn dispatch(&mut self, position: usize) {
        if self.slots[position].result.is_some() || self.slots[position].execution.is_some() {
            return;
        }
        self.slots[position].ready = Some(self.set.timeline.mono());
        if let Some(error) = self.gate.closed_to(position) {
            return self.settle_error(position, error, None);
        }
        let Some(tool) = self.planned.calls[position].tool.clone() else {
            let message = format!("There is no tool called {:?}.", self.call(position).tool);
            return self.settle_error(position, CallError::new(ErrorCode::UnknownTool, message), None);
        };
        let call = Arc::clone(self.call(position));
        if let Some(pin) = &self.planned.request.set.pin
            && call.facts.source.is_some()
        {
            let message = format!("No view is pinned as {pin:?}; pin one again, or read without `pin`.");
            return self.settle_error(position, CallError::new(ErrorCode::PinExpired, message), None);
        }
        let arguments = match self.arguments(&call, &tool) {
            Ok(arguments) => arguments,
            Err(error) => return self.settle_error(position, error, None),
        };
        self.slots[position].arguments = Some(Arc::clone(&arguments));
        if self.join_stand_in(position) || self.join_equal(position, &call, &arguments) {
            return;
        }
        self.execute(position, call, tool, arguments);
    }

    /// The call's arguments, placeholders filled in and guesses looked up, checked against the tool's schema.
    pub(super) fn arguments(
        &mut self,
        call: &Arc<ResolvedCall>,
        tool: &Arc<Registered>,
    ) -> Result<Arc<Map<String, Value>>, CallError> {
        let position = call.position;
        let plan = &self.planned.plan;
        let references = plan.references_of(position);
        let slots = &self.slots;
        let value_of = |producer: usize| {
            slots[producer]
                .result
                .as_ref()
                .and_then(|result| result.value.as_ref())
        };
        // Without references, too: escaped braces must lose their escape. It costs nothing where there are no braces.
        let arguments = dependency::substitute(&call.arguments, references, value_of)?;
        self.slots[position]
            .leans_on
            .extend(references.iter().map(|reference| reference.producer));
        for guess in plan.guesses_of(position) {
            let slots = &self.slots;
            let checked = dependency::check_guess(guess, |producer| {
                let result = slots[producer].result.as_ref();
                match result.and_then(|result| result.value.as_ref().map(|value| (value, result.complete))) {
                    Some((value, true)) => ProducerState::Whole(value),
                    Some((value, false)) => ProducerState::Part(value),
                    None => ProducerState::Nothing,
                }
            });
            match checked {
                GuessCheck::Found => self.slots[position].leans_on.extend(guess.producers()),
                GuessCheck::Unverified => self.slots[position].unverified.push(guess.field.to_string()),
                GuessCheck::NotFound(error) => return Err(error),
            }
        }
        if call.unchecked {
            tool.validate(&arguments)?;
        }
        Ok(arguments)
    }

    /// Joins the execution of the snapshot tool that answers for this call, starting it if it is the first.
    pub(super) fn join_stand_in(&mut self, position: usize) -> bool {
        let Some(stand_in) = &self.planned.stand_in else {
            return false;
        };
        if !stand_in.members.iter().any(|(member, _)| *member == position) {
            return false;
        }
        let running = stand_in
            .members
            .iter()
            .find_map(|(member, _)| self.slots[*member].execution);
        match running {
            Some(leader) => self.join(position, leader),
            None => {
                let spec = stand_in.tool.spec();
                let call = ResolvedCall {
                    tool: Arc::clone(&spec.name),
                    arguments: Arc::clone(&stand_in.arguments),
                    ..ResolvedCall::clone(self.call(position))
                };
                let (tool, arguments) = (Arc::clone(&stand_in.tool), Arc::clone(&stand_in.arguments));
                self.execute(position, Arc::new(call), tool, arguments);
            }
        }
        true
    }

    /// Joins an equal read of the same stage that is still unanswered, if there is one.
    pub(super) fn join_equal(
        &mut self,
        position: usize,
        call: &ResolvedCall,
        arguments: &Arc<Map<String, Value>>,
    ) -> bool {
        if call.facts.class != Class::Read {
            return false;
        }
        let Some(equal) = &mut self.equal else {
            return false;
        };
        let place = self
            .hasher
            .hash_one((&*call.tool, self.schedule.stage_of(position)));
        let key = place ^ canonical_hash(&self.hasher, arguments);
        let same = equal.entry(key).or_default();
        let leader = same.iter().copied().find(|&other| {
            let slot = &self.slots[other];
            let twin = &self.planned.calls[other].call;
            slot.execution == Some(other)
                && !slot.answers.is_empty()
                && twin.tool == call.tool
                && self.schedule.stage_of(other) == self.schedule.stage_of(position)
                && slot.arguments.as_deref() == Some(&**arguments)
        });
        match leader {
            Some(leader) => {
                self.join(position, leader);
                true
            }
            None => {
                same.push(position);
                false
            }
        }
    }

    pub(super) fn join(&mut self, position: usize, leader: usize) {
        self.slots[position].execution = Some(leader);
        self.slots[leader].answers.push(position);
    }

    pub(super) fn execute(
        &mut self,
        position: usize,
        call: Arc<ResolvedCall>,
        tool: Arc<Registered>,
        arguments: Arc<Map<String, Value>>,
    ) {
        let planned = self.planned.calls[position].tool.as_ref();
        let call = match planned.is_some_and(|planned| Arc::ptr_eq(planned, &tool)) && tool.is_fixed() {
            true => call,
            // The tool is another than was planned, or its classifiers have only seen placeholders so far.
            false => {
                let classified = tool.classify(&arguments);
                let facts = match (call.facts.class, classified.facts.class) {
                    // It has a stage of its own and keeps it.
                    (Class::Write | Class::Exclusive, Class::Read) => Arc::clone(&call.facts),
                    _ => classified.facts,
                };
                Arc::new(ResolvedCall {
                    facts,
                    keys: classified.keys,
                    ..ResolvedCall::clone(&call)
                })
            }
        };
        let alone = call.facts.class != Class::Read;
        if alone && self.call(position).facts.class == Class::Read {
            self.gate.hold_for(position);
        }
        let mut request = CallRequest::new(call, Arc::clone(&self.set), self.planned.deadline);
        request.arguments = arguments;
        let service = self.settings.service(&tool);
        let name = Arc::clone(&tool.spec().name);
        self.gate.bind(position, tool);
        self.slots[position].execution = Some(position);
        self.slots[position].answers.push(position);
        let call = service.oneshot(request);
        self.pool.push(match alone {
            false => Execution::Here { position, call },
            true => {
                // A view that it opened itself may be older than what it wrote: nobody reads on through it (B42).
                let views = self.planned.views.clone();
                let alone = async move {
                    let result = call.await;
                    views.close().await;
                    result
                };
                Execution::Spawned {
                    position,
                    tool: name,
                    task: self.settings.owner.spawn(alone),
                }
            }
        });
    }
}

/// A hash that is the same for equal arguments in any order of their names.
fn canonical_hash(hasher: &foldhash::fast::RandomState, arguments: &Map<String, Value>) -> u64 {
    fn value_hash(hasher: &foldhash::fast::RandomState, value: &Value) -> u64 {
        match value {
            Value::Null => 1,
            Value::Bool(value) => hasher.hash_one(value),
            // Numbers are told apart by equality later; a shared hash only costs a comparison.
            Value::Number(number) => number
                .as_f64()
                .map_or(2, |number| hasher.hash_one(number.to_bits())),
            Value::String(text) => hasher.hash_one(text),
            Value::Array(items) => items
                .iter()
                .fold(3, |sum: u64, item| sum.rotate_left(5) ^ value_hash(hasher, item)),
            Value::Object(members) => canonical_hash(hasher, members),
        }
    }
    arguments.iter().fold(4, |sum: u64, (name, value)| {
        sum.wrapping_add(hasher.hash_one((name, value_hash(hasher, value))))
    })
}
