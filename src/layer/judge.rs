//! Says what may be compared, and keeps back what may not if the caller insists.
//!
//! The layer judges whatever report comes up to it, so the verdict is that of the values returned: not of an attempt that
//! was replaced below it.

use std::future::poll_fn;
use std::task::{Context, Poll};
use std::time::Duration;

use futures_util::future::BoxFuture;
use tower::{Layer, Service};

use crate::call::Require;
use crate::report::{IssueKind, RouteTaken, SetReport};
use crate::tool::Class;
use crate::verdict::{self, Member, Settings};

/// Makes [`Judge`]s.
#[derive(Clone, Copy, Debug)]
pub struct JudgeLayer {
    tolerance: Duration,
}

impl JudgeLayer {
    /// How far apart the readings' times may lie before that is reported.
    pub fn new(tolerance: Duration) -> Self {
        Self { tolerance }
    }
}

/// The published tolerance.
impl Default for JudgeLayer {
    fn default() -> Self {
        Self::new(verdict::TOLERANCE)
    }
}

impl<S> Layer<S> for JudgeLayer {
    type Service = Judge<S>;

    fn layer(&self, inner: S) -> Judge<S> {
        Judge {
            inner,
            tolerance: self.tolerance,
        }
    }
}

/// Judges the reports of its inner service: fills in `consistency` and `note`.
///
/// If the set requires comparable readings and they are not, every reading that is in no comparable group is withheld:
/// its value is gone, and `withheld` says so. What a write returned is never withheld, because it happened.
#[derive(Clone, Debug)]
pub struct Judge<S> {
    inner: S,
    tolerance: Duration,
}

impl<S, R> Service<R> for Judge<S>
where
    S: Service<R, Response = SetReport> + Clone + Send + 'static,
    S::Future: Send,
    R: Send + 'static,
{
    type Response = SetReport;
    type Error = S::Error;
    type Future = BoxFuture<'static, Result<SetReport, S::Error>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: R) -> Self::Future {
        let Self { mut inner, tolerance } = self.clone();
        Box::pin(async move {
            poll_fn(|context| inner.poll_ready(context)).await?;
            let mut report = inner.call(request).await?;
            pronounce(&mut report, tolerance);
            Ok(report)
        })
    }
}

fn pronounce(report: &mut SetReport, tolerance: Duration) {
    let members: Vec<Member<'_>> = report.results.iter().map(Member::of).collect();
    let settings = Settings {
        purpose: report.route.purpose,
        tolerance,
    };
    report.consistency = verdict::judge(&members, &report.asked, &settings);

    // Who compares by the view's id alone must not be misled by a reading that is no function of its view: unsound,
    // only a part, or made with an argument from another moment.
    for excluded in report
        .consistency
        .excluded
        .iter()
        .filter(|excluded| !excluded.alone)
    {
        report.results[excluded.call].view = None;
    }
    if report.asked.require == Some(Require::Comparable) {
        withhold(report);
    }
    report.note = verdict::note(report);
}

fn withhold(report: &mut SetReport) {
    let consistency = &report.consistency;
    let missing = consistency
        .issue
        .as_ref()
        .is_some_and(|issue| issue.kind == IssueKind::MissingReading);
    // A lone reading that nothing was to be compared with meets the requirement.
    if consistency.comparable != Some(false) && !missing {
        return;
    }
    for excluded in &consistency.excluded {
        let result = &mut report.results[excluded.call];
        if result.is_ok() && result.facts.class != Class::Write {
            result.value = None;
            result.withheld = true;
            report.route.taken = RouteTaken::Refused;
        }
    }
    // An error of a call that waited for a withheld reading may quote it, or quote an error that does.
    let mut tainted: Vec<bool> = report.results.iter().map(|result| result.withheld).collect();
    let mut spread = true;
    while std::mem::take(&mut spread) {
        for edge in &report.plan.edges {
            if edge.before.iter().any(|&before| tainted[before]) {
                for &after in &edge.after {
                    spread |= !std::mem::replace(&mut tainted[after], true);
                }
            }
        }
    }
    for (result, tainted) in report.results.iter_mut().zip(tainted) {
        if let (true, Some(error)) = (tainted, &mut result.error) {
            error.message = format!(
                "{} failed with a value that is withheld, and so is what it said.",
                result.tool
            );
        }
    }
}
