//! In which order a set may run, with a reason for every constraint. Pure: same input, same plan.
//!
//! [`decide`] answers whether all calls may run at once: the four conditions ([`Condition`]), all that fail, the first of
//! them as the reason. [`plan`] then keeps every bit of parallelism that is safe, instead of giving all of it up: stages
//! with barriers between them, and edges between calls.
//!
//! ```text
//!   calls ──► findings ──► decision
//!                │             │ (only atlas asks it)
//!                ▼             ▼
//!             what needs    stages ──► edges: after, placeholder, precondition, key; then guesses, which never
//!             what                            close a cycle
//! ```
//!
//! Positions are places in the slice of calls. Everything is linear in the calls, their arguments and their keys: edges
//! join groups of calls, so that n readers of one key cost n, not n².
//!
//! ```
//! use coeval::plan::{self, Allowances, Context, Grounds, Policy};
//! # use std::sync::Arc;
//! # use coeval::tool::{Class, Facts, Keys, ResolvedCall};
//! #[derive(Debug)]
//! struct Ten;
//! impl Allowances for Ten {
//!     fn allowance(&self, _: &str) -> usize {
//!         10
//!     }
//! }
//! # fn call(position: usize, tool: &str, class: Class) -> ResolvedCall {
//! #     let facts = Facts {
//! #         class, because: None, dependency: "crm".into(), source: None, outputs: [].into(),
//! #         preconditions: [].into(), filters: [].into(), timeout: None, is_final: false,
//! #     };
//! #     ResolvedCall {
//! #         position, id: "".into(), tool: tool.into(), arguments: Default::default(), after: vec![],
//! #         facts: Arc::new(facts), keys: Keys::NONE, partition_key: None, unchecked: false,
//! #         fault: None,
//! #     }
//! # }
//! // As a registry resolves them: two reads, a write, a read.
//! let calls = [
//!     call(0, "get_contract", Class::Read),
//!     call(1, "list_orders", Class::Read),
//!     call(2, "cancel_order", Class::Write),
//!     call(3, "list_orders", Class::Read),
//! ];
//! let policy = Policy::standard();
//! let grounds = Grounds::default();
//! let context = Context::new(&policy, &Ten, &grounds);
//! let (decision, plan) = plan::plan(&calls, &context);
//! assert!(!decision.parallel);
//! assert_eq!(decision.evidence[0].detail, "cancel_order may write");
//! assert_eq!(plan.stages, [vec![0, 1], vec![2], vec![3]]);
//! ```

use std::borrow::Borrow;
use std::sync::Arc;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::call::OnGuess;
use crate::dependency::{Guess, Reference};
use crate::reading::{CallError, ErrorCode};
use crate::tool::{Facts, ResolvedCall};

mod arrange;
mod decision;
mod finding;
mod graph;
mod keys;
pub mod policy;
mod stage;
pub mod text;

pub use policy::{Commit, FailurePolicy, OnCancel, Order, Policy, PolicyName};

/// What the plan may know besides the calls.
#[derive(Clone, Debug)]
pub struct Context<'a> {
    /// The policy.
    pub policy: &'a Policy,
    /// What to do with guesses; the policy's own answer if the set says nothing.
    pub on_guess: OnGuess,
    /// Tools that succeeded in earlier turns.
    pub called: &'a [Arc<str>],
    /// How many calls each dependency takes.
    pub allowances: &'a dyn Allowances,
    /// What grounds a value.
    pub grounds: &'a Grounds<'a>,
}

impl<'a> Context<'a> {
    /// A first turn under this policy: nothing was called before, and guesses are treated as the policy says.
    pub fn new(policy: &'a Policy, allowances: &'a dyn Allowances, grounds: &'a Grounds<'a>) -> Self {
        Self {
            policy,
            on_guess: policy.on_guess,
            called: &[],
            allowances,
            grounds,
        }
    }
}

/// How many calls each dependency takes at once.
pub trait Allowances: std::fmt::Debug {
    /// The allowance of a dependency; the configured default if none is declared, never unlimited.
    fn allowance(&self, dependency: &str) -> usize;
}

/// Whatever a value may rightly come from.
#[derive(Clone, Debug, Default)]
pub struct Grounds<'a> {
    /// The user's question.
    pub question: Option<&'a str>,
    /// Values the caller vouches for.
    pub known: &'a [serde_json::Value],
    /// Values of earlier results.
    pub earlier: Vec<&'a serde_json::Value>,
}

/// Whether all calls may run at once (the four conditions), and every reason why not.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Decision {
    /// Whether nothing stands against it.
    pub parallel: bool,
    /// The first condition that fails.
    pub reason: Option<Condition>,
    /// The dependency that is asked for too much, if that is the reason.
    pub dependency: Option<Arc<str>>,
    /// All conditions that fail.
    pub evidence: Vec<Evidence>,
    /// Whether the set's writes are confined to different things; `null` without writes.
    pub disjoint_writes: Option<bool>,
}

/// The four conditions, in the order they are tried.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Condition {
    /// A call writes, or is exclusive, or nothing is known about it.
    ContainsWrite,
    /// A call depends on another's output.
    Dependency,
    /// A dependency is asked for more than its allowance.
    RateLimit,
    /// A call's precondition is to be met by a call of the same set.
    ConcurrentPrecondition,
}

impl Condition {
    /// As it is written in JSON.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::ContainsWrite => "contains_write",
            Self::Dependency => "dependency",
            Self::RateLimit => "rate_limit",
            Self::ConcurrentPrecondition => "concurrent_precondition",
        }
    }
}

/// One condition that fails.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Evidence {
    /// Which.
    pub condition: Condition,
    /// The calls it concerns.
    pub calls: Vec<usize>,
    /// In words.
    pub detail: String,
}

/// Stages with barriers between them, and edges.
///
/// Every position is in exactly one stage, also that of a call which is answered without running; no edge leads from a
/// later stage to an earlier one, and no call waits for itself through others. Calls that are answered without running
/// wait for nothing, but may be waited for.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Plan {
    /// Positions; a stage starts when the one before it has ended.
    pub stages: Vec<Vec<usize>>,
    /// Constraints beyond the stages.
    pub edges: Vec<Edge>,
    /// Calls that are answered without running, by position.
    #[serde(skip)]
    pub refused: Vec<(usize, CallError)>,
    /// Arguments that look guessed and won't be checked, by position.
    #[serde(skip)]
    pub unverified: Vec<(usize, String)>,
    /// Placeholders to fill in at start, by consumer and head.
    #[serde(skip)]
    pub references: Vec<Reference>,
    /// Guessed values to look up at start, by consumer.
    #[serde(skip)]
    pub guesses: Vec<Guess>,
    /// Calls with an argument that is grounded in an earlier result only: their readings lean on that result.
    #[serde(skip)]
    pub leans_on_earlier: Vec<usize>,
}

impl Plan {
    /// The placeholders of one call.
    pub fn references_of(&self, consumer: usize) -> &[Reference] {
        of(&self.references, |reference| reference.consumer, consumer)
    }

    /// The guessed values of one call.
    pub fn guesses_of(&self, consumer: usize) -> &[Guess] {
        of(&self.guesses, |guess| guess.consumer, consumer)
    }
}

fn of<T>(sorted: &[T], consumer_of: impl Fn(&T) -> usize, consumer: usize) -> &[T] {
    let start = sorted.partition_point(|item| consumer_of(item) < consumer);
    let length = sorted[start..].partition_point(|item| consumer_of(item) == consumer);
    &sorted[start..start + length]
}

/// Calls that wait for calls: each of `after` for `before`, in the way the reason says.
///
/// Where calls behind different barriers need the same thing, each has an edge of its own, and lists only what the
/// edges before it don't: the rest has ended by the barrier.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Edge {
    /// What is waited for, in the model's order.
    pub before: Vec<usize>,
    /// What waits, in the model's order.
    pub after: Vec<usize>,
    /// Why.
    pub reason: EdgeReason,
    /// What exactly: the key, the id or `#position` after which it is declared, the placeholder, the required tool, the
    /// guessed field.
    pub detail: Arc<str>,
}

/// Why a call waits for another, and until when.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum EdgeReason {
    /// Same resource and one of them writes: order only. Order is handed on: a call that is answered without having run
    /// counts as ended only when what *it* waited for by key has ended, else the next one would overtake that.
    Key,
    /// Declared: all must be ok.
    After,
    /// A placeholder: all must be ok.
    Placeholder,
    /// A precondition: any must be ok. Once one is, or all have ended, [`precondition_met`] decides: a success before a
    /// barrier counts too, and isn't always listed.
    Precondition,
    /// A guess: all must have ended, and are searched.
    Guess,
}

impl EdgeReason {
    /// As it is written in JSON.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Key => "key",
            Self::After => "after",
            Self::Placeholder => "placeholder",
            Self::Precondition => "precondition",
            Self::Guess => "guess",
        }
    }
}

/// Whether all of these calls may run at once.
pub fn decide<C: Borrow<ResolvedCall>>(calls: &[C], context: &Context<'_>) -> Decision {
    let calls: Vec<&ResolvedCall> = calls.iter().map(Borrow::borrow).collect();
    decision::decision(&finding::find(&calls, context), context)
}

/// In which order they may run. The decision comes with it, because both rest on the same findings.
pub fn plan<C: Borrow<ResolvedCall>>(calls: &[C], context: &Context<'_>) -> (Decision, Plan) {
    let calls: Vec<&ResolvedCall> = calls.iter().map(Borrow::borrow).collect();
    let findings = finding::find(&calls, context);
    let decision = decision::decision(&findings, context);
    let stages = stage::stages(&findings, context.policy, decision.parallel);
    let plan = arrange::arrange(findings, context, stages);
    (decision, plan)
}

/// Whether a call's preconditions are met now. `has_succeeded` says of a tool whether a call of it has, in an earlier turn
/// or in this set; asked when a call is about to start, because only then is it known which of its siblings did (B48).
///
/// # Errors
/// `precondition_unmet`, naming the first tool that has not succeeded.
pub fn precondition_met(
    tool: &str,
    facts: &Facts,
    has_succeeded: impl Fn(&str) -> bool,
) -> Result<(), CallError> {
    match facts.preconditions.iter().find(|needed| !has_succeeded(needed)) {
        Some(missing) => Err(unmet(tool, missing, false)),
        None => Ok(()),
    }
}

/// `later`: a call of the set would meet it, but too late.
fn unmet(tool: &str, missing: &str, later: bool) -> CallError {
    let why = if later {
        ", and in this set it can only run later"
    } else {
        ""
    };
    CallError::new(
        ErrorCode::PreconditionUnmet,
        format!(
            "{tool} needs {missing} to have succeeded before, which it hasn't{why}. Call {missing} first."
        ),
    )
}
