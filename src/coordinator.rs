//! The standard stack, assembled: sets in, reports out.

use std::fmt;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use futures_util::future::BoxFuture;
use tokio_util::task::TaskTracker;
use tower::util::BoxCloneSyncService;
use tower::{Layer, Service, ServiceBuilder, ServiceExt};

use crate::call::{CallSet, Purpose};
use crate::clock::{Clock, SystemClock};
use crate::executor::Executor;
use crate::hook::Hook;
use crate::layer::CallStack;
use crate::layer::judge::JudgeLayer;
use crate::layer::plan::{DEFAULT_MAX_CALLS, PlanLayer, Planned, SetRequest};
use crate::layer::record::{RecordLayer, Recorder};
use crate::layer::route::RouteLayer;
use crate::limit::Limits;
use crate::plan::{FailurePolicy, Policy};
use crate::recent::Recent;
use crate::registry::Registry;
use crate::report::SetReport;
use crate::run::{Control, Event, Run, SetError};
use crate::snapshot::Sources;
use crate::source::Source;
use crate::verdict;

/// Runs sets over a registry of tools. Cheap to clone; clones share everything.
///
/// It is a [`Service`] of [`CallSet`] too: [`call`](Service::call) is [`start`](Self::start), then the report.
#[derive(Clone)]
pub struct Coordinator(Arc<Inner>);

struct Inner {
    service: BoxCloneSyncService<SetRequest, SetReport, SetError>,
    planner: PlanLayer,
    registry: Registry,
    limits: Limits,
    recent: Recent,
    owner: TaskTracker,
    closed: AtomicBool,
}

impl fmt::Debug for Coordinator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Coordinator")
            .field("tools", &self.0.registry.names())
            .finish_non_exhaustive()
    }
}

impl Coordinator {
    /// A coordinator over this registry, with defaults for everything else.
    pub fn new(registry: Registry) -> Self {
        Self::builder(registry).build()
    }

    /// A coordinator over this registry, with settings of your own.
    pub fn builder(registry: Registry) -> Builder {
        Builder {
            registry,
            limits: None,
            policy: Policy::standard(),
            minimum_purpose: Purpose::Report,
            tolerance: verdict::TOLERANCE,
            max_concurrency: None,
            max_calls: DEFAULT_MAX_CALLS,
            on_failure: None,
            drain: None,
            grace: None,
            remember: DEFAULT_REMEMBERED,
            clock: None,
            sources: Sources::new(),
            hooks: Vec::new(),
            recorder: None,
        }
    }

    /// Prepares to run a set. Nothing runs until the [`Run`]'s report is awaited.
    pub fn start(&self, set: CallSet) -> Run {
        let control = Control::default();
        let request = SetRequest::new(set, control.clone());
        let inner = Arc::clone(&self.0);
        let ended = control.clone();
        let report = async move {
            // Whatever way this future ends, so do the events.
            let _events = EndsEvents(&ended);
            if inner.closed.load(Ordering::SeqCst) {
                return Err(SetError::Closed);
            }
            let set = Arc::clone(&request.set);
            let withheld = set.require.is_some();
            let run = inner.service.clone().oneshot(request);
            let report = match set.set_id {
                Some(_) => inner.recent.once(&set, run).await?,
                None => run.await?,
            };
            if withheld && ended.is_watched() {
                // Under `require` a reading is final only now that the set is judged.
                for (position, result) in report.results.iter().enumerate() {
                    ended.emit(|| Event::Committed {
                        position,
                        result: Arc::new(result.clone()),
                    });
                }
            }
            Ok(report)
        };
        Run::new(Box::pin(report), control)
    }

    /// Runs a set.
    ///
    /// # Errors
    /// Only what leaves no report at all; whatever befalls a call is in its slot.
    ///
    /// # Cancel safety
    /// Dropping the future ends the set; see [`Run`].
    pub async fn run(&self, set: CallSet) -> Result<SetReport, SetError> {
        self.start(set).report().await
    }

    /// Resolves and plans a set without running anything.
    ///
    /// # Errors
    /// `TooLarge` if the set has more calls than are taken.
    pub fn plan(&self, set: CallSet) -> Result<Planned, SetError> {
        self.0.planner.plan(set.into())
    }

    /// The tools. They may be changed while sets run.
    pub fn registry(&self) -> &Registry {
        &self.0.registry
    }

    /// The limits that all its sets share.
    pub fn limits(&self) -> &Limits {
        &self.0.limits
    }

    /// Ends when nothing of any set runs on its own any more: writes that were left to end, sessions that were cancelled.
    ///
    /// # Cancel safety
    /// Safe: it only waits.
    pub async fn idle(&self) {
        self.0.owner.wait().await;
    }

    /// Takes no more sets, and ends when nothing of the earlier ones runs on its own any more. Sets whose reports are
    /// being awaited go on until they are done.
    ///
    /// # Cancel safety
    /// Once polled, no more sets are taken, even if it is dropped.
    pub async fn shutdown(&self) {
        self.0.closed.store(true, Ordering::SeqCst);
        self.idle().await;
    }
}

struct EndsEvents<'a>(&'a Control);

impl Drop for EndsEvents<'_> {
    fn drop(&mut self) {
        self.0.finish();
    }
}

impl Service<CallSet> for Coordinator {
    type Response = SetReport;
    type Error = SetError;
    type Future = BoxFuture<'static, Result<SetReport, SetError>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), SetError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, set: CallSet) -> Self::Future {
        Box::pin(self.start(set).report())
    }
}

/// How many named sets are remembered: more than a host has in flight, and a few megabytes at most.
const DEFAULT_REMEMBERED: usize = 256;

/// Settings of a coordinator. By-value setters; every default has its reason at the setter.
#[must_use = "a builder does nothing until `build`"]
pub struct Builder {
    registry: Registry,
    limits: Option<Limits>,
    policy: Policy,
    minimum_purpose: Purpose,
    tolerance: Duration,
    max_concurrency: Option<NonZeroUsize>,
    max_calls: usize,
    on_failure: Option<FailurePolicy>,
    drain: Option<Duration>,
    grace: Option<Duration>,
    remember: usize,
    clock: Option<Arc<dyn Clock>>,
    sources: Sources,
    hooks: Vec<Arc<dyn Hook>>,
    recorder: Option<Arc<dyn Recorder>>,
}

impl fmt::Debug for Builder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Builder")
            .field("policy", &self.policy.name)
            .finish_non_exhaustive()
    }
}

impl Builder {
    /// Allowances and quotas. By default a source's dependency has as large an allowance as it has connections, any other
    /// one of 8, and none a quota.
    pub fn limits(mut self, limits: Limits) -> Self {
        self.limits = Some(limits);
        self
    }

    /// How sets are ordered and settled. By default the standard policy: every bit of parallelism that is safe.
    pub fn policy(mut self, policy: Policy) -> Self {
        self.policy = policy;
        self
    }

    /// What sets are read for at least, whatever their question says. By default `report`: the question decides.
    pub fn minimum_purpose(mut self, purpose: Purpose) -> Self {
        self.minimum_purpose = purpose;
        self
    }

    /// The published check's tolerance: 2 s.
    pub fn tolerance(mut self, tolerance: Duration) -> Self {
        self.tolerance = tolerance;
        self
    }

    /// How many calls of one set run at once. By default what the policy says: 8 in the standard one.
    pub fn max_concurrency(mut self, places: NonZeroUsize) -> Self {
        self.max_concurrency = Some(places);
        self
    }

    /// How many calls a set may have: 16,384, far more than any model asks for in one turn.
    pub fn max_calls(mut self, calls: usize) -> Self {
        self.max_calls = calls;
        self
    }

    /// What a failing call does to its siblings. By default nothing: every call gets its own answer.
    pub fn on_failure(mut self, policy: FailurePolicy) -> Self {
        self.on_failure = Some(policy);
        self
    }

    /// How long a write is waited for past its deadline, before it is answered as one that may have happened: 10 s.
    pub fn drain(mut self, drain: Duration) -> Self {
        self.drain = Some(drain);
        self
    }

    /// How long a cancelled read that listens for its cancellation is given to end well.
    pub fn grace(mut self, grace: Duration) -> Self {
        self.grace = Some(grace);
        self
    }

    /// How many named sets are remembered, so that one that comes again is answered and not run again: 256. 0 is none.
    pub fn remember(mut self, sets: usize) -> Self {
        self.remember = sets;
        self
    }

    /// Where time comes from. By default the machine.
    pub fn clock(mut self, clock: Arc<dyn Clock>) -> Self {
        self.clock = Some(clock);
        self
    }

    /// A source whose views sets read through.
    pub fn source(mut self, source: Arc<dyn Source>) -> Self {
        self.sources.insert(Arc::clone(source.name()), source);
        self
    }

    /// Asked around each call; hooks are asked in the order they were added.
    pub fn hook(mut self, hook: Arc<dyn Hook>) -> Self {
        self.hooks.push(hook);
        self
    }

    /// Given every report before its caller sees it.
    pub fn recorder(mut self, recorder: Arc<dyn Recorder>) -> Self {
        self.recorder = Some(recorder);
        self
    }

    /// The coordinator.
    pub fn build(self) -> Coordinator {
        let owner = TaskTracker::new();
        // Closed for those who wait: it still takes tasks.
        owner.close();
        let limits = self.limits.unwrap_or_else(|| {
            let connections = |source: &Arc<dyn Source>| source.capability().connections.max(1);
            let sources = self.sources.iter();
            let limits = sources.fold(Limits::builder(), |limits, (name, source)| {
                limits.allowance(Arc::clone(name), connections(source))
            });
            limits
                .build()
                .expect("no allowance is zero, and there are no quotas")
        });
        let mut stack = CallStack::new(limits.clone());
        if let Some(drain) = self.drain {
            stack = stack.drain(drain);
        }
        if let Some(grace) = self.grace {
            stack = stack.grace(grace);
        }
        let mut executor = Executor::new(stack, owner.clone()).hooks(self.hooks);
        if let Some(policy) = self.on_failure {
            executor = executor.on_failure(policy);
        }
        if let Some(places) = self.max_concurrency {
            executor = executor.max_concurrency(places.get());
        }
        let clock = self.clock.unwrap_or_else(|| Arc::new(SystemClock::new()));
        let planner = PlanLayer::new(self.registry.clone(), limits.clone(), clock)
            .policy(self.policy)
            .minimum_purpose(self.minimum_purpose)
            .sources(self.sources)
            .owner(owner.clone())
            .max_calls(self.max_calls);
        let judged = ServiceBuilder::new()
            .layer(JudgeLayer::new(self.tolerance))
            .layer(planner.clone())
            .layer(RouteLayer)
            .service(executor);
        let service = match self.recorder {
            Some(recorder) => BoxCloneSyncService::new(RecordLayer::new(recorder).layer(judged)),
            None => BoxCloneSyncService::new(judged),
        };
        Coordinator(Arc::new(Inner {
            service,
            planner,
            registry: self.registry,
            limits,
            recent: Recent::new(self.remember),
            owner,
            closed: AtomicBool::new(false),
        }))
    }
}
