//! The five profiles: one engine, five settings.
//!
//! | | standard | atlas | harness | go | loopctl |
//! |---|---|---|---|---|---|
//! | order | barriers | one at a time unless nothing stands against it | barriers | barriers | first-fit waves |
//! | places a set | 8 | 4 | 10 | 8 | 8 |
//! | guesses | checked | producers first | checked | checked | checked |
//! | equal reads | shared | each runs | each runs | each runs | each runs |
//! | looked at again at start | yes | no | yes | no | no |
//! | on cancel | signal | signal | drain | signal | signal |
//! | committed | ordered prefix | whole set | ordered prefix | each stage | whole set |
//!
//! `standard` is what we think is right. The others are for people who come from a runner of that kind and need its
//! behaviour kept; each lets go of some parallelism or some safety that `standard` has.

use std::fmt;
use std::str::FromStr;

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

impl PolicyName {
    /// All of them.
    pub const ALL: [PolicyName; 5] = [
        Self::Standard,
        Self::Atlas,
        Self::Harness,
        Self::Go,
        Self::Loopctl,
    ];

    /// The name as it is written in files and JSON.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Standard => "standard",
            Self::Atlas => "atlas",
            Self::Harness => "harness",
            Self::Go => "go",
            Self::Loopctl => "loopctl",
        }
    }
}

impl fmt::Display for PolicyName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl FromStr for PolicyName {
    type Err = UnknownPolicy;

    fn from_str(name: &str) -> Result<Self, UnknownPolicy> {
        Self::ALL
            .into_iter()
            .find(|known| known.as_str() == name)
            .ok_or_else(|| UnknownPolicy {
                name: name.to_owned(),
            })
    }
}

/// A policy that isn't one of [`PolicyName::ALL`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("there is no policy {name:?}: the policies are standard, atlas, harness, go and loopctl")]
pub struct UnknownPolicy {
    /// The name that was asked for.
    pub name: String,
}

/// One profile's settings.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Policy {
    /// Which.
    pub name: PolicyName,
    /// How stages are formed.
    pub order: Order,
    /// Whether the decision calls any argument a dependency that is named like another call's output, or that has `{{`
    /// in it, wherever its value comes from: the published coarse rule. What happens to a guess is `on_guess` all the
    /// same, and needs the finer finding.
    pub coarse_dependencies: bool,
    /// Whether a call that is answered without running is planned as exclusive for whatever reason it is; else only if
    /// its tool is unknown.
    pub faults_are_exclusive: bool,
    /// Whether a call that ends the turn is a stage of its own, so that no later call starts before it is known whether
    /// it was accepted (GO-02, GO-10).
    pub final_is_alone: bool,
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

impl Policy {
    /// The profile of that name.
    pub fn named(name: PolicyName) -> Self {
        match name {
            PolicyName::Standard => Self::standard(),
            PolicyName::Atlas => Self::atlas(),
            PolicyName::Harness => Self::harness(),
            PolicyName::Go => Self::go(),
            PolicyName::Loopctl => Self::loopctl(),
        }
    }

    /// Every bit of parallelism that is safe.
    pub fn standard() -> Self {
        Self {
            name: PolicyName::Standard,
            order: Order::Barriers,
            coarse_dependencies: false,
            faults_are_exclusive: false,
            final_is_alone: true,
            on_guess: OnGuess::Check,
            act_on_disjoint_writes: false,
            max_concurrency: 8,
            share_equal_calls: true,
            recheck_at_start: true,
            on_cancel: OnCancel::Signal,
            on_failure: FailurePolicy::Settle,
            commit: Commit::Prefix,
            failures_count_as_called: false,
            spread_on_points: false,
        }
    }

    /// The published rules to the letter: all at once if no condition fails, else one at a time (AT-01 to AT-24).
    pub fn atlas() -> Self {
        Self {
            name: PolicyName::Atlas,
            order: Order::OneAtATimeUnlessFree,
            coarse_dependencies: true,
            final_is_alone: false,
            on_guess: OnGuess::Serialise,
            max_concurrency: 4,
            share_equal_calls: false,
            recheck_at_start: false,
            commit: Commit::Batch,
            failures_count_as_called: true,
            spread_on_points: true,
            ..Self::standard()
        }
    }

    /// An agent loop that asks each call whether it is safe, again before each start (DS-01 to DS-26).
    pub fn harness() -> Self {
        Self {
            name: PolicyName::Harness,
            faults_are_exclusive: true,
            final_is_alone: false,
            max_concurrency: 10,
            share_equal_calls: false,
            on_cancel: OnCancel::Drain,
            ..Self::standard()
        }
    }

    /// A staged runner (GO-01 to GO-12).
    pub fn go() -> Self {
        Self {
            name: PolicyName::Go,
            share_equal_calls: false,
            recheck_at_start: false,
            commit: Commit::Stage,
            ..Self::standard()
        }
    }

    /// A wave planner (LC-01 to LC-31). A later read may overtake an earlier write (LC-09).
    pub fn loopctl() -> Self {
        Self {
            name: PolicyName::Loopctl,
            order: Order::FirstFitWaves,
            final_is_alone: false,
            share_equal_calls: false,
            recheck_at_start: false,
            commit: Commit::Batch,
            ..Self::standard()
        }
    }
}

impl Default for Policy {
    fn default() -> Self {
        Self::standard()
    }
}

/// How stages are formed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Order {
    /// Reads share a stage; each write or exclusive call is a barrier.
    Barriers,
    /// Everything in one stage if no condition fails, else one at a time.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_as_they_are_printed_and_the_error_lists_them() {
        for name in PolicyName::ALL {
            assert_eq!(name.to_string().parse(), Ok(name));
            assert_eq!(serde_json::to_value(name).unwrap(), name.as_str());
            assert_eq!(Policy::named(name).name, name);
        }
        let error = "atlass".parse::<PolicyName>().unwrap_err().to_string();
        assert!(
            PolicyName::ALL.iter().all(|name| error.contains(name.as_str())),
            "{error}"
        );
    }
}
