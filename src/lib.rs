//! Coordinates the reads of a data agent, so that what the agent compares was true together.
//!
//! A model asks for several tool calls in one turn. They go one way through the crate:
//!
//! ```text
//! CallSet ─▶ resolve ─▶ decide, plan ─▶ route ─▶ admit ─▶ read ─▶ stamp ─▶ judge ─▶ SetReport
//!            registry   plan            views    limit    tool    reading  verdict  report
//! ```
//!
//! - [`call`], [`tool`], [`reading`], [`clock`], [`report`] are the words: what comes in, what is declared, what comes out.
//! - [`dependency`], [`plan`], [`question`], [`verdict`] judge, and are pure: same input, same answer, nothing runs.
//! - [`registry`], [`limit`], [`source`], [`snapshot`], [`layer`], [`executor`] do. The layers are [`tower`] layers, and can
//!   be taken singly.
//! - [`coordinator`] is the standard stack; `config` and the `coeval` command are what it is used through without Rust.
//!
//! Imports go up this list and never down.
//!
//! ```
//! use coeval::registry::Registry;
//! use coeval::tool::{Tool, ToolSpec};
//! use coeval::{Call, CallSet, Coordinator};
//! use serde_json::{Value, json};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), coeval::BoxError> {
//! let registry = Registry::new();
//! for (name, units) in [("get_stock", 120), ("get_reserved", 130)] {
//!     registry.register(Tool::from_fn(ToolSpec::read(name), move |_: Value| async move {
//!         Ok::<_, std::io::Error>(json!({"units": units}))
//!     }))?;
//! }
//! let set = CallSet::new([
//!     Call::new("c1", "get_stock", json!({})),
//!     Call::new("c2", "get_reserved", json!({})),
//!     Call::new("c3", "get_sold", json!({})),
//! ]);
//! let report = Coordinator::new(registry).run(set).await?;
//!
//! // Every call has its answer, in its place.
//! assert_eq!(report.results[1].value, Some(json!({"units": 130})));
//! assert!(!report.results[2].is_ok());
//! // Nothing shows that stock and reservations were true together, so nothing claims it.
//! assert!(!report.consistency.is_comparable());
//! # Ok(())
//! # }
//! ```
//!
//! Readings that may be compared come from a [`Source`](source::Source) that opens views, `source::sqlite` for one.
//!
//! | feature | what it brings | default |
//! |---|---|---|
//! | `cli` | the `coeval` command, with `config` | yes |
//! | `config` | `config`: tools and sources from YAML, with `sqlite` | with `cli` |
//! | `sqlite` | `source::sqlite`: SQLite databases, the engine compiled in | with `config` |

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

pub use call::{Call, CallSet, Purpose};
pub use coordinator::Coordinator;
pub use registry::Registry;
pub use report::SetReport;
pub use run::Run;
pub use tool::{IntoTool, Tool, ToolSpec};
