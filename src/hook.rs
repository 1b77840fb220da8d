//! What a host does around each call: policies, records, approvals of its own.

use futures_util::future::BoxFuture;

use crate::reading::CallError;
use crate::report::CallResult;
use crate::request::CallRequest;

/// Runs around every call of every set.
///
/// A hook that panics is treated as one that threw: its call does not run.
pub trait Hook: Send + Sync {
    /// Before a call starts.
    ///
    /// *When*: once the call is admitted, one call at a time, in the order in which calls start: the model's order among
    /// calls that may start together. *May rely on*: the arguments are final. *An error* is the call's answer, and the
    /// tool never runs: one with code `denied` is a decision, and [`after`](Hook::after) is told of it; any other counts as
    /// thrown, and `after` is not asked.
    fn before<'a>(&'a self, request: &'a CallRequest) -> BoxFuture<'a, Result<(), CallError>> {
        let _ = request;
        Box::pin(async { Ok(()) })
    }

    /// After a call was answered.
    ///
    /// *When*: at commit, one call at a time, in the model's order, whatever ended first. Calls that never started because
    /// their set ended have no `after`. *May rely on*: the result is final but for the verdict over the whole set.
    fn after<'a>(&'a self, position: usize, result: &'a CallResult) -> BoxFuture<'a, ()> {
        let _ = (position, result);
        Box::pin(async {})
    }
}
