//! In which order a set may run, with a reason for every constraint. Pure: same input, same plan.

use std::sync::Arc;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::call::OnGuess;
use crate::dependency::{Guess, Reference};
use crate::reading::CallError;
use crate::tool::ResolvedCall;

pub mod policy;

pub use policy::{Policy, PolicyName};

/// What the plan may know besides the calls.
#[derive(Clone, Debug)]
pub struct Context<'a> {
    /// The policy.
    pub policy: &'a Policy,
    /// What to do with guesses; the policy's own answer if the set says nothing.
    pub on_guess: OnGuess,
    /// Tools that succeeded in earlier turns.
    pub called: &'a [Arc<str>],
    /// Names of all tools there are: a precondition on anything else can't be met.
    pub allowances: &'a dyn Allowances,
    /// What grounds a value.
    pub grounds: &'a Grounds<'a>,
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
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Plan {
    /// Positions; a stage starts when the one before it has ended.
    pub stages: Vec<Vec<usize>>,
    /// Constraints beyond the stages.
    pub edges: Vec<Edge>,
    /// Calls that are answered without running.
    #[serde(skip)]
    pub refused: Vec<(usize, CallError)>,
    /// Arguments that look guessed and can't be checked, by position.
    #[serde(skip)]
    pub unverified: Vec<(usize, String)>,
    /// Placeholders to fill in at start.
    #[serde(skip)]
    pub references: Vec<Reference>,
    /// Guessed values to look up at start.
    #[serde(skip)]
    pub guesses: Vec<Guess>,
    /// Calls with an argument that is grounded in an earlier result only: their readings lean on that result.
    #[serde(skip)]
    pub leans_on_earlier: Vec<usize>,
}

/// Calls that wait for calls.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Edge {
    /// What is waited for.
    pub before: Vec<usize>,
    /// What waits.
    pub after: Vec<usize>,
    /// Why.
    pub reason: EdgeReason,
    /// In words: the key, the field, the tool.
    pub detail: String,
}

/// Why a call waits for another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum EdgeReason {
    /// Same resource and one of them writes: order only.
    Key,
    /// Declared: all must be ok.
    After,
    /// A placeholder: all must be ok.
    Placeholder,
    /// A precondition: any must be ok.
    Precondition,
    /// A guess: all must have ended, and are searched.
    Guess,
}

/// Whether all of these calls may run at once.
pub fn decide(calls: &[ResolvedCall], context: &Context<'_>) -> Decision {
    plan(calls, context).0
}

/// In which order they may run. The decision comes with it, because both rest on the same findings.
pub fn plan(calls: &[ResolvedCall], context: &Context<'_>) -> (Decision, Plan) {
    let _ = (calls, context);
    unimplemented!()
}
