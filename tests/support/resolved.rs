//! Calls as a registry would resolve them.

use std::sync::Arc;

use coeval::call::{CallRef, OnGuess};
use coeval::plan::{self, Allowances, Context, Decision, Edge, EdgeReason, Grounds, Plan, Policy};
use coeval::reading::{CallError, ErrorCode};
use coeval::tool::{Class, Facts, FieldOrigin, Keys, OutputField, ResolvedCall};
use serde_json::Value;

/// A call in the making.
#[derive(Clone, Debug)]
pub(crate) struct Made(pub(crate) ResolvedCall);

pub(crate) fn call(tool: &str, class: Class) -> Made {
    let facts = Facts {
        class,
        because: None,
        dependency: tool.into(),
        source: None,
        outputs: [].into(),
        preconditions: [].into(),
        filters: [].into(),
        timeout: None,
        is_final: false,
    };
    Made(ResolvedCall {
        position: 0,
        id: "".into(),
        tool: tool.into(),
        arguments: Arc::default(),
        after: Vec::new(),
        facts: Arc::new(facts),
        keys: Keys::NONE,
        partition_key: None,
        unchecked: false,
        fault: None,
    })
}

pub(crate) fn read(tool: &str) -> Made {
    call(tool, Class::Read)
}

pub(crate) fn write(tool: &str) -> Made {
    call(tool, Class::Write)
}

pub(crate) fn unknown(tool: &str) -> Made {
    let mut made = call(tool, Class::Exclusive);
    made.0.fault = Some(CallError::new(
        ErrorCode::UnknownTool,
        format!("There is no tool {tool}."),
    ));
    made
}

impl Made {
    fn facts(mut self, change: impl FnOnce(&mut Facts)) -> Self {
        change(Arc::make_mut(&mut self.0.facts));
        self
    }

    pub(crate) fn id(mut self, id: &str) -> Self {
        self.0.id = id.into();
        self
    }

    pub(crate) fn with(mut self, arguments: Value) -> Self {
        let Value::Object(arguments) = arguments else {
            panic!("arguments are an object: {arguments}")
        };
        self.0.arguments = Arc::new(arguments);
        self
    }

    pub(crate) fn after(mut self, call: impl Into<CallRef>) -> Self {
        self.0.after.push(call.into());
        self
    }

    pub(crate) fn reads(mut self, key: &str) -> Self {
        self.0.keys.reads.push(key.into());
        self
    }

    pub(crate) fn writes(mut self, key: &str) -> Self {
        self.0.keys.writes.push(key.into());
        self
    }

    pub(crate) fn confined(mut self, partition: &str) -> Self {
        self.0.partition_key = Some(partition.into());
        self
    }

    pub(crate) fn fault(mut self, code: ErrorCode) -> Self {
        self.0.fault = Some(CallError::new(code, "It can't be answered."));
        self
    }

    pub(crate) fn on(self, dependency: &str) -> Self {
        self.facts(|facts| facts.dependency = dependency.into())
    }

    pub(crate) fn returns(self, fields: &[&str]) -> Self {
        self.outputs(fields, FieldOrigin::Declared)
    }

    pub(crate) fn derives(self, fields: &[&str]) -> Self {
        self.outputs(fields, FieldOrigin::Derived)
    }

    fn outputs(self, fields: &[&str], origin: FieldOrigin) -> Self {
        let new = fields.iter().map(|&name| OutputField {
            name: name.into(),
            origin,
        });
        self.facts(|facts| facts.outputs = facts.outputs.iter().cloned().chain(new).collect())
    }

    pub(crate) fn needs(self, tool: &str) -> Self {
        self.facts(|facts| {
            facts.preconditions = facts.preconditions.iter().cloned().chain([tool.into()]).collect();
        })
    }

    pub(crate) fn filters(self, name: &str) -> Self {
        self.facts(|facts| facts.filters = [name.into()].into())
    }
}

/// Calls in their places.
pub(crate) fn set(calls: impl IntoIterator<Item = Made>) -> Vec<Arc<ResolvedCall>> {
    let place = |(position, made): (usize, Made)| Arc::new(ResolvedCall { position, ..made.0 });
    calls.into_iter().enumerate().map(place).collect()
}

/// What the plan may know.
#[derive(Clone, Debug)]
pub(crate) struct World {
    pub(crate) policy: Policy,
    pub(crate) on_guess: Option<OnGuess>,
    pub(crate) called: Vec<Arc<str>>,
    pub(crate) question: Option<String>,
    pub(crate) known: Vec<Value>,
    pub(crate) earlier: Vec<Value>,
    pub(crate) allowances: Declared,
}

/// Declared allowances, and 8 for everything else.
#[derive(Clone, Debug, Default)]
pub(crate) struct Declared(pub(crate) Vec<(&'static str, usize)>);

impl Allowances for Declared {
    fn allowance(&self, dependency: &str) -> usize {
        self.0
            .iter()
            .find(|(name, _)| *name == dependency)
            .map_or(8, |(_, allowance)| *allowance)
    }
}

impl World {
    pub(crate) fn under(policy: Policy) -> Self {
        Self {
            policy,
            on_guess: None,
            called: Vec::new(),
            question: None,
            known: Vec::new(),
            earlier: Vec::new(),
            allowances: Declared::default(),
        }
    }

    pub(crate) fn standard() -> Self {
        Self::under(Policy::standard())
    }

    pub(crate) fn plan(&self, calls: &[Arc<ResolvedCall>]) -> (Decision, Plan) {
        let grounds = Grounds {
            question: self.question.as_deref(),
            known: &self.known,
            earlier: self.earlier.iter().collect(),
        };
        let mut context = Context::new(&self.policy, &self.allowances, &grounds);
        context.called = &self.called;
        context.on_guess = self.on_guess.unwrap_or(self.policy.on_guess);
        let planned = plan::plan(calls, &context);
        assert_eq!(
            planned.0,
            plan::decide(calls, &context),
            "both entries decide alike"
        );
        planned
    }

    pub(crate) fn of(&self, calls: impl IntoIterator<Item = Made>) -> (Decision, Plan) {
        self.plan(&set(calls))
    }
}

/// An edge as it should be.
pub(crate) fn edge(before: &[usize], after: &[usize], reason: EdgeReason, detail: &str) -> Edge {
    Edge {
        before: before.into(),
        after: after.into(),
        reason,
        detail: detail.into(),
    }
}

/// Codes of the calls that are answered without running.
pub(crate) fn refused(plan: &Plan) -> Vec<(usize, ErrorCode)> {
    plan.refused
        .iter()
        .map(|(call, error)| (*call, error.code()))
        .collect()
}
