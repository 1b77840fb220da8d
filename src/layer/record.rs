//! Hands every report to whoever keeps them, before the caller sees it.

use std::fmt;
use std::sync::Arc;
use std::task::{Context, Poll};

use futures_util::future::BoxFuture;
use tower::{Layer, Service, ServiceExt};

use crate::report::SetReport;
use crate::run::SetError;

/// Keeps reports.
pub trait Recorder: Send + Sync {
    /// Keeps one.
    ///
    /// *When*: after a set was judged, before its caller gets the report. *An error* is what the caller gets instead: a
    /// report that could not be recorded is not handed out as if it had been.
    fn record<'a>(&'a self, report: &'a SetReport) -> BoxFuture<'a, Result<(), SetError>>;
}

/// Adds a recorder around anything that answers with a report.
#[derive(Clone)]
pub struct RecordLayer(Arc<dyn Recorder>);

impl fmt::Debug for RecordLayer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("RecordLayer")
    }
}

impl RecordLayer {
    /// Records with this.
    pub fn new(recorder: Arc<dyn Recorder>) -> Self {
        Self(recorder)
    }
}

impl<S> Layer<S> for RecordLayer {
    type Service = Record<S>;

    fn layer(&self, inner: S) -> Record<S> {
        Record {
            inner,
            recorder: self.clone(),
        }
    }
}

/// Records what its inner service reports.
#[derive(Clone, Debug)]
pub struct Record<S> {
    inner: S,
    recorder: RecordLayer,
}

impl<S, R> Service<R> for Record<S>
where
    R: Send + 'static,
    S: Service<R, Response = SetReport, Error = SetError> + Clone + Send + 'static,
    S::Future: Send,
{
    type Response = SetReport;
    type Error = SetError;
    type Future = BoxFuture<'static, Result<SetReport, SetError>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), SetError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: R) -> Self::Future {
        let (inner, recorder) = (self.inner.clone(), self.recorder.clone());
        Box::pin(async move {
            let report = inner.oneshot(request).await?;
            recorder.0.record(&report).await?;
            Ok(report)
        })
    }
}
