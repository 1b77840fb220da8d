//! Consistency-aware read coordination for data agents.

/// Any error a tool may return.
pub type BoxError = Box<dyn std::error::Error + Send + Sync>;

pub mod call;
pub mod clock;
#[cfg(feature = "config")]
pub mod config;
pub mod coordinator;
pub mod dependency;
pub mod executor;
pub mod hook;
pub mod layer;
pub mod limit;
pub mod plan;
pub mod question;
pub mod reading;
mod recent;
pub mod registry;
pub mod report;
pub mod request;
pub mod run;
pub mod snapshot;
pub mod source;
mod spelling;
pub mod tool;
pub mod verdict;

pub use call::{Call, CallSet};
pub use coordinator::Coordinator;
