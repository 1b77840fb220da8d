//! The five profiles: one engine, five settings.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::call::OnGuess;

/// Names a profile.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum PolicyName {
    /// Every bit of parallelism that is safe.
    #[default]
    Standard,
    /// Any condition fails: one at a time.
    Atlas,
    /// Adjacent safe calls together; drained on cancel; committed as an ordered prefix.
    Harness,
    /// Staged with barriers; committed after each stage.
    Go,
    /// First-fit waves, overtaking included; nothing is shared.
    Loopctl,
}

/// One profile's settings.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Policy {
    /// Which.
    pub name: PolicyName,
    /// How stages are formed.
    pub order: Order,
    /// Whether a placeholder or guess is judged by the published coarse rule.
    pub coarse_dependencies: bool,
    /// What to do with guesses.
    pub on_guess: OnGuess,
    /// Whether writes that are confined to different things may share a stage.
    pub act_on_disjoint_writes: bool,
    /// Calls in flight per set.
    pub max_concurrency: usize,
    /// Whether equal reads of one stage are executed once.
    pub share_equal_calls: bool,
    /// Whether a call is looked at again when it starts.
    pub recheck_at_start: bool,
    /// What a cancelled set does with what runs.
    pub on_cancel: OnCancel,
    /// What a failing call does to its siblings.
    pub on_failure: FailurePolicy,
    /// When finished results are committed.
    pub commit: Commit,
    /// Whether failed calls count as called too.
    pub failures_count_as_called: bool,
    /// Whether spread is measured on `asOf` points instead of intervals.
    pub spread_on_points: bool,
}

/// How stages are formed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Order {
    /// Reads share a stage; each write or exclusive call is a barrier.
    Barriers,
    /// As `Barriers` if no condition fails, else one at a time.
    OneAtATimeUnlessFree,
    /// First-fit waves by safety and keys, overtaking included.
    FirstFitWaves,
}

/// What a cancelled set does with what runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum OnCancel {
    /// Signals, gives listeners a grace period, then drops.
    Signal,
    /// Waits for everything that started and keeps its results.
    Drain,
}

/// What a failing call does to its siblings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum FailurePolicy {
    /// Nothing.
    Settle,
    /// Nothing more is started; the set is `aborted`.
    Abort,
}

/// When finished results are committed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Commit {
    /// As soon as all earlier ones are.
    Prefix,
    /// After each stage.
    Stage,
    /// After the set.
    Batch,
}
