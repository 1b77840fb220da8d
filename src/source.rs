//! Where readings come from, and what each source can promise about them.
//!
//! A [`Source`] opens [`View`]s: consistent snapshots through which many reads may go at once. What differs between
//! sources is said by [`Capability`], never by asking which database it is.

use std::any::Any;
use std::fmt;
use std::sync::Arc;

use futures_util::future::BoxFuture;

use crate::clock::{Mono, Timeline};
use crate::reading::{CallError, UnprovenReason, ViewId};

#[cfg(feature = "sqlite")]
pub mod sqlite;

/// What a source can promise.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Capability {
    /// Several reads can see one state.
    pub snapshot: bool,
    /// One snapshot can be shared by several connections, so that its reads run at once.
    pub shared: bool,
    /// How many connections there are at most.
    pub connections: usize,
}

impl Capability {
    /// A source that promises nothing, over so many connections.
    pub fn none(connections: usize) -> Self {
        Self {
            snapshot: false,
            shared: false,
            connections,
        }
    }
}

/// A database or service that can open views.
///
/// Dyn-safe; user code never gets a connection on which it could COMMIT.
pub trait Source: Send + Sync + fmt::Debug {
    /// The name that tools, stamps and limits use. It is also the source's dependency.
    fn name(&self) -> &Arc<str>;

    /// What it can promise. Called for every set; must be cheap.
    fn capability(&self) -> Capability;

    /// Opens a view for up to `width` reads at once, with fewer connections if there are no more.
    ///
    /// *When*: at the first read of a stage that leans on this source. *May rely on*: a tokio runtime. *An error* is the
    /// answer of every read that wanted the view.
    ///
    /// # Cancel safety
    /// Dropping the future before it is done must leave nothing open that nobody owns.
    fn open<'a>(
        &'a self,
        width: usize,
        timeline: &'a Timeline,
    ) -> BoxFuture<'a, Result<Arc<dyn View>, CallError>>;

    /// Ends a view, giving its connections back. Called once, after the last read; whatever it returns, the view is gone.
    ///
    /// *An error* says that what was read through the view can't be trusted: its readings are answered with the error's
    /// reason instead of being compared.
    fn close(&self, view: Arc<dyn View>) -> BoxFuture<'_, Result<(), Unsound>>;
}

/// Why what was read through a view is no function of one state after all.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct Unsound {
    /// What the verdict is told.
    pub reason: UnprovenReason,
    /// What happened.
    pub message: String,
}

/// One consistent snapshot of one source.
pub trait View: Any + Send + Sync + fmt::Debug {
    /// Names it in readings.
    fn id(&self) -> &ViewId;

    /// When it was fixed, on our monotonic clock: after the first of these, before the second.
    fn window(&self) -> (Mono, Mono);

    /// What the source attests about the version it serves through this view.
    fn witness(&self) -> Option<Arc<str>> {
        None
    }

    /// For downcasts to the source's own type.
    fn as_any(&self) -> &dyn Any;
}
