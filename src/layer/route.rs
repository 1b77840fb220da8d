//! Which way a set takes, because of what its readings are for.
//!
//! Reads of one database share a view whatever the question is: that is the executor's and the view's doing, and nearly
//! free. What is decided here is whether a declared snapshot tool stands in for calls that will be compared, and what the
//! report says about the way that was taken.

use std::collections::HashMap;
use std::sync::Arc;
use std::task::{Context, Poll};

use futures_util::future::BoxFuture;
use tower::{Layer, Service, ServiceExt};

use crate::call::Purpose;
use crate::layer::plan::{Planned, StandIn};
use crate::registry::Registered;
use crate::report::{RouteTaken, SetReport};
use crate::run::SetError;
use crate::tool::{ArgumentMap, Class, Cover};

/// Adds routing in front of an executor.
#[derive(Clone, Copy, Debug, Default)]
pub struct RouteLayer;

impl<S> Layer<S> for RouteLayer {
    type Service = RouteSets<S>;

    fn layer(&self, inner: S) -> RouteSets<S> {
        RouteSets { inner }
    }
}

/// Chooses each set's way and says in the report which it was.
#[derive(Clone, Debug)]
pub struct RouteSets<S> {
    inner: S,
}

impl<S> Service<Planned> for RouteSets<S>
where
    S: Service<Planned, Response = SetReport, Error = SetError> + Clone + Send + 'static,
    S::Future: Send,
{
    type Response = SetReport;
    type Error = SetError;
    type Future = BoxFuture<'static, Result<SetReport, SetError>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), SetError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, mut planned: Planned) -> Self::Future {
        if planned.route.purpose == Purpose::Compare && !one_source(&planned) {
            planned.stand_in = stand_in(&planned);
        }
        let inner = self.inner.clone();
        Box::pin(async move {
            let mut report = inner.oneshot(planned).await?;
            report.route.taken = taken(&report);
            Ok(report)
        })
    }
}

/// Whether every read that can run leans on one source's views: then they share one anyway.
fn one_source(planned: &Planned) -> bool {
    let runnable = planned
        .calls
        .iter()
        .map(|resolved| &resolved.call)
        .filter(|call| call.fault.is_none());
    let mut sources = runnable.map(|call| match call.facts.class {
        Class::Read => call.facts.source.as_ref(),
        Class::Write | Class::Exclusive => None,
    });
    match sources.next() {
        Some(Some(first)) => sources.all(|source| source == Some(first)),
        _ => false,
    }
}

/// The way that was taken, from what came back.
fn taken(report: &SetReport) -> RouteTaken {
    if report.results.iter().any(|result| result.via.is_some()) {
        return RouteTaken::SnapshotTool;
    }
    let mut views = report
        .results
        .iter()
        .filter(|result| result.is_ok())
        .map(|result| &result.view);
    match views.next() {
        Some(Some(first)) if views.all(|view| view.as_ref() == Some(first)) => RouteTaken::SharedView,
        _ => RouteTaken::AsIs,
    }
}

/// The registered snapshot tool that can answer for most of the set's calls, if there is one.
///
/// It may stand in for calls that are reads of one stage, wait for nothing, are of different tools, and whose arguments
/// each equal one of its own (hole 17).
fn stand_in(planned: &Planned) -> Option<StandIn> {
    let candidates = planned.registry.snapshot_tools();
    if candidates.is_empty() {
        return None;
    }
    let mut waits = vec![false; planned.calls.len()];
    let edges = planned.plan.edges.iter().flat_map(|edge| &edge.after);
    let refused = planned.plan.refused.iter().map(|(position, _)| position);
    edges.chain(refused).for_each(|&position| waits[position] = true);
    let mut best: Option<StandIn> = None;
    for tool in candidates.iter() {
        for stage in &planned.plan.stages {
            let Some(found) = bind(planned, tool, stage, &waits) else {
                continue;
            };
            if best
                .as_ref()
                .is_none_or(|best| best.members.len() < found.members.len())
            {
                best = Some(found);
            }
        }
    }
    best
}

fn bind(planned: &Planned, tool: &Arc<Registered>, stage: &[usize], waits: &[bool]) -> Option<StandIn> {
    let spec = tool.spec();
    let covers: HashMap<&str, &Cover> = spec.covers.iter().map(|cover| (&*cover.tool, cover)).collect();
    let mut arguments = ArgumentMap::new();
    let mut members: Vec<(usize, String)> = Vec::new();
    let mut used: Vec<&str> = Vec::new();
    for &position in stage {
        let call = &planned.calls[position].call;
        let Some(cover) = covers.get(&*call.tool) else {
            continue;
        };
        let twice = used.contains(&&*cover.tool);
        if waits[position] || call.fault.is_some() || call.facts.class != Class::Read || twice {
            // A covered call that can't be covered this time: its reading would stay outside, so nothing is gained.
            return None;
        }
        for (name, value) in call.arguments.iter() {
            let (_, own) = cover.arguments.iter().find(|(theirs, _)| **theirs == **name)?;
            match arguments.get(&**own) {
                Some(bound) if bound != value => return None,
                Some(_) => {}
                None => {
                    arguments.insert(own.to_string(), value.clone());
                }
            }
        }
        used.push(&cover.tool);
        members.push((position, part(cover)));
    }
    // What one call gave, the tool gives to every covered one it maps to: a call that left it out asked something else.
    let left_out = members.iter().any(|(position, _)| {
        let call = &planned.calls[*position].call;
        covers.get(&*call.tool).is_some_and(|cover| {
            let mut pairs = cover.arguments.iter();
            pairs.any(|(theirs, own)| {
                arguments.contains_key(&**own) && !call.arguments.contains_key(&**theirs)
            })
        })
    });
    if left_out || members.len() < 2 || tool.validate(&arguments).is_err() {
        return None;
    }
    let rest = spec.covers.iter().filter(|cover| !used.contains(&&*cover.tool));
    let extra = rest.map(|cover| (Arc::clone(&cover.tool), part(cover))).collect();
    Some(StandIn {
        tool: Arc::clone(tool),
        arguments: Arc::new(arguments),
        members,
        extra,
    })
}

fn part(cover: &Cover) -> String {
    cover
        .part
        .clone()
        .unwrap_or_else(|| format!("/{}", cover.tool.replace('~', "~0").replace('/', "~1")))
}
