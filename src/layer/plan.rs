//! Turns a set into a plan: resolves its calls, decides, plans, and prepares its views.

use std::collections::HashMap;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use futures_util::future::BoxFuture;
use tokio::time::Instant;
use tokio_util::task::TaskTracker;
use tower::{Layer, Service, ServiceExt};

use crate::call::{CallSet, Purpose};
use crate::clock::{Clock, Timeline};
use crate::limit::Limits;
use crate::plan::{self, Decision, Grounds, Plan, Policy};
use crate::question;
use crate::registry::{Registered, Registry, Resolved};
use crate::report::{Route, RouteTaken, SetReport};
use crate::run::{Control, SetError};
use crate::snapshot::{Sources, Views};
use crate::tool::{ArgumentMap, Class};

/// A set on its way in, with the handle that cancels it.
#[derive(Clone, Debug)]
pub struct SetRequest {
    /// The set.
    pub set: Arc<CallSet>,
    /// Its id, its own or a fresh one.
    pub set_id: Arc<str>,
    /// Cancels it, and takes its events.
    pub control: Control,
}

impl From<CallSet> for SetRequest {
    fn from(set: CallSet) -> Self {
        Self::new(set, Control::default())
    }
}

impl SetRequest {
    /// A set that this handle cancels.
    pub fn new(set: CallSet, control: Control) -> Self {
        let set_id = match set.set_id.as_deref() {
            Some(id) if !id.is_empty() => id.into(),
            _ => uuid::Uuid::new_v4().to_string().into(),
        };
        Self {
            set: Arc::new(set),
            set_id,
            control,
        }
    }
}

/// A set with its plan: what [`RouteLayer`](crate::layer::route::RouteLayer) and the executor take.
#[derive(Clone, Debug)]
pub struct Planned {
    /// The set as it came.
    pub request: SetRequest,
    /// Its time.
    pub timeline: Timeline,
    /// When all of it must have ended.
    pub deadline: Option<Instant>,
    /// The policy it runs under.
    pub policy: Arc<Policy>,
    /// The registry it was resolved against, asked again when calls start.
    pub registry: Registry,
    /// The registry's generation when it was resolved.
    pub generation: u64,
    /// Its calls, resolved.
    pub calls: Vec<Resolved>,
    /// Whether they could all run at once.
    pub decision: Decision,
    /// In which order they run.
    pub plan: Plan,
    /// What is done because of the question and the set.
    pub route: Route,
    /// The tool that stands in for several calls.
    pub stand_in: Option<StandIn>,
    /// The set's views.
    pub views: Views,
}

/// A snapshot tool that answers for several calls at once.
#[derive(Clone, Debug)]
pub struct StandIn {
    /// The tool.
    pub tool: Arc<Registered>,
    /// Its arguments.
    pub arguments: Arc<ArgumentMap>,
    /// The calls it answers for, each with the JSON pointer to its part, in the model's order.
    pub members: Vec<(usize, String)>,
    /// Parts that no call asked for: the tool they belong to, and where they lie.
    pub extra: Vec<(Arc<str>, String)>,
}

/// Plans sets before they run.
#[derive(Clone, Debug)]
pub struct PlanLayer {
    registry: Registry,
    limits: Limits,
    policy: Arc<Policy>,
    minimum_purpose: Purpose,
    sources: Arc<Sources>,
    clock: Arc<dyn Clock>,
    owner: TaskTracker,
    max_calls: usize,
}

/// Far more than any model asks for in one turn, and few enough to plan in milliseconds.
pub(crate) const DEFAULT_MAX_CALLS: usize = 16_384;

impl PlanLayer {
    /// Plans sets over this registry and within these limits, by the standard policy.
    pub fn new(registry: Registry, limits: Limits, clock: Arc<dyn Clock>) -> Self {
        let owner = TaskTracker::new();
        owner.close();
        Self {
            registry,
            limits,
            policy: Arc::new(Policy::standard()),
            minimum_purpose: Purpose::Report,
            sources: Arc::default(),
            clock,
            owner,
            max_calls: DEFAULT_MAX_CALLS,
        }
    }

    /// Another policy.
    #[must_use]
    pub fn policy(mut self, policy: Policy) -> Self {
        self.policy = Arc::new(policy);
        self
    }

    /// What a set is read for at least, whatever its question says.
    #[must_use]
    pub fn minimum_purpose(mut self, purpose: Purpose) -> Self {
        self.minimum_purpose = purpose;
        self
    }

    /// The sources whose views sets may read through.
    #[must_use]
    pub fn sources(mut self, sources: Sources) -> Self {
        self.sources = Arc::new(sources);
        self
    }

    /// Who closes views that a dropped set leaves open. It must be closed to let anybody wait for it.
    #[must_use]
    pub fn owner(mut self, owner: TaskTracker) -> Self {
        self.owner = owner;
        self
    }

    /// How many calls a set may have.
    #[must_use]
    pub fn max_calls(mut self, calls: usize) -> Self {
        self.max_calls = calls;
        self
    }

    /// Resolves and plans a set. Runs nothing.
    ///
    /// # Errors
    /// `TooLarge` if the set has more calls than are taken.
    pub fn plan(&self, request: SetRequest) -> Result<Planned, SetError> {
        let set = &request.set;
        if set.calls.len() > self.max_calls {
            return Err(SetError::TooLarge {
                calls: set.calls.len(),
                limit: self.max_calls,
            });
        }
        let timeline = Timeline::start(Arc::clone(&self.clock));
        let deadline = set
            .deadline_ms
            .and_then(|ms| Instant::now().checked_add(Duration::from_millis(ms)));
        let policy = match set.policy {
            Some(name) if name != self.policy.name => Arc::new(Policy::named(name)),
            _ => Arc::clone(&self.policy),
        };
        let generation = self.registry.generation();
        let calls = self.registry.resolve(set);
        let resolved: Vec<_> = calls.iter().map(|resolved| Arc::clone(&resolved.call)).collect();
        let earlier = set.earlier.iter().flat_map(|report| &report.results);
        let grounds = Grounds {
            question: set.question.as_deref(),
            known: &set.known,
            earlier: earlier.filter_map(|result| result.value.as_ref()).collect(),
        };
        let context = plan::Context {
            policy: &policy,
            on_guess: set.on_guess.unwrap_or(policy.on_guess),
            called: &set.called,
            allowances: &self.limits,
            grounds: &grounds,
        };
        let (decision, plan) = plan::plan(&resolved, &context);
        let (purpose, because) =
            question::purpose(set.purpose, set.question.as_deref(), self.minimum_purpose);
        let mut widths = HashMap::new();
        if !self.sources.is_empty() {
            for call in &resolved {
                if let (Class::Read, Some(source)) = (call.facts.class, &call.facts.source) {
                    *widths.entry(Arc::clone(source)).or_insert(0) += 1;
                }
            }
        }
        let views = Views::new(Arc::clone(&self.sources), widths, self.owner.clone());
        let route = Route {
            purpose,
            because,
            taken: RouteTaken::AsIs,
            tries: 1,
            extra: None,
        };
        Ok(Planned {
            timeline,
            deadline,
            policy,
            registry: self.registry.clone(),
            generation,
            calls,
            decision,
            plan,
            route,
            stand_in: None,
            views,
            request,
        })
    }
}

impl<S> Layer<S> for PlanLayer {
    type Service = PlanSets<S>;

    fn layer(&self, inner: S) -> Self::Service {
        PlanSets {
            settings: Arc::new(self.clone()),
            inner,
        }
    }
}

/// Plans each set and hands it on.
#[derive(Clone, Debug)]
pub struct PlanSets<S> {
    settings: Arc<PlanLayer>,
    inner: S,
}

impl<S, R> Service<R> for PlanSets<S>
where
    R: Into<SetRequest>,
    S: Service<Planned, Response = SetReport, Error = SetError> + Clone + Send + 'static,
    S::Future: Send,
{
    type Response = SetReport;
    type Error = SetError;
    type Future = BoxFuture<'static, Result<SetReport, SetError>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), SetError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: R) -> Self::Future {
        let planned = self.settings.plan(request.into());
        let inner = self.inner.clone();
        Box::pin(async move { inner.oneshot(planned?).await })
    }
}
