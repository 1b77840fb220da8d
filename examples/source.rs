//! A source of one's own: a store in memory whose states can be held on to, so that a set reads one of them.
//!
//! ```sh
//! cargo run --example source
//! ```

use std::any::Any;
use std::collections::BTreeMap;
use std::sync::{Arc, RwLock};

use coeval::clock::{Mono, Timeline};
use coeval::reading::{Answer, Basis, CallError, Stamp, ViewId};
use coeval::registry::Registry;
use coeval::source::{Capability, Source, Unsound, View};
use coeval::tool::{In, Tool, ToolSpec};
use coeval::{BoxError, Call, CallSet, Coordinator};
use futures_util::future::BoxFuture;
use serde_json::{Value, json};

/// One state of the store. A write makes a new one; whoever holds an old one keeps it.
#[derive(Debug)]
struct State {
    version: u64,
    cents: BTreeMap<&'static str, i64>,
}

#[derive(Debug)]
struct Store {
    name: Arc<str>,
    current: RwLock<Arc<State>>,
}

impl Store {
    fn current(&self) -> Arc<State> {
        Arc::clone(&self.current.read().expect("no writer panics"))
    }

    /// Moves money from one account to the other; their sum is always 100.
    fn transfer(&self, cents: i64) {
        let mut current = self.current.write().expect("no writer panics");
        let (a, b) = (current.cents["a"], current.cents["b"]);
        let cents = BTreeMap::from([("a", a - cents), ("b", b + cents)]);
        *current = Arc::new(State {
            version: current.version + 1,
            cents,
        });
    }
}

/// A state that is held, and when it was the current one.
#[derive(Debug)]
struct Held {
    id: ViewId,
    source: Arc<str>,
    state: Arc<State>,
    window: (Mono, Mono),
    timeline: Timeline,
}

impl Held {
    /// What all readings through this view attest: its id is what makes them comparable.
    fn answer(&self, value: Value) -> Answer {
        let (earliest, latest) = self.window;
        Answer::new(value).view(self.id.clone()).stamp(Stamp {
            earliest: Some(self.timeline.at(earliest)),
            latest: Some(self.timeline.at(latest)),
            basis: Basis::Snapshot,
            source: Some(Arc::clone(&self.source)),
            source_time: None,
            witness: self.witness(),
        })
    }
}

impl View for Held {
    fn id(&self) -> &ViewId {
        &self.id
    }

    fn window(&self) -> (Mono, Mono) {
        self.window
    }

    fn witness(&self) -> Option<Arc<str>> {
        Some(format!("version {}", self.state.version).into())
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

impl Source for Store {
    fn name(&self) -> &Arc<str> {
        &self.name
    }

    fn capability(&self) -> Capability {
        let mut capability = Capability::none(64);
        (capability.snapshot, capability.shared) = (true, true);
        capability
    }

    fn open<'a>(
        &'a self,
        _: usize,
        timeline: &'a Timeline,
    ) -> BoxFuture<'a, Result<Arc<dyn View>, CallError>> {
        Box::pin(async move {
            // The clock is read on both sides of what fixes the state: it was current at some instant between the two.
            let before = timeline.mono();
            let state = self.current();
            let window = (before, timeline.mono());
            let (id, source, timeline) = (ViewId::fresh(), Arc::clone(&self.name), timeline.clone());
            Ok(Arc::new(Held {
                id,
                source,
                state,
                window,
                timeline,
            }) as Arc<dyn View>)
        })
    }

    fn close(&self, _: Arc<dyn View>) -> BoxFuture<'_, Result<(), Unsound>> {
        // A state that is held can't change, so there is nothing to find out.
        Box::pin(async { Ok(()) })
    }
}

#[derive(serde::Deserialize, schemars::JsonSchema)]
struct Account {
    name: String,
}

#[tokio::main]
async fn main() -> Result<(), BoxError> {
    let state = State {
        version: 1,
        cents: BTreeMap::from([("a", 70), ("b", 30)]),
    };
    let store = Arc::new(Store {
        name: "store".into(),
        current: RwLock::new(Arc::new(state)),
    });

    let writer = Arc::clone(&store);
    let registry = Registry::new();
    let spec = ToolSpec::read("get_balance").source("store").input::<Account>();
    registry.register(Tool::from_view_fn(
        spec,
        move |view: In<Held>, account: Account| {
            let writer = Arc::clone(&writer);
            async move {
                let cents = view.state.cents.get(&*account.name).copied();
                // Somebody writes after every read.
                writer.transfer(1);
                Ok::<_, BoxError>(view.answer(json!({"cents": cents})))
            }
        },
    ))?;

    let coordinator = Coordinator::builder(registry)
        .source(Arc::clone(&store) as Arc<dyn Source>)
        .build();
    for _ in 0..100 {
        let set = CallSet::new([
            Call::new("c1", "get_balance", json!({"name": "a"})),
            Call::new("c2", "get_balance", json!({"name": "b"})),
        ]);
        let report = coordinator.run(set).await?;
        let cents = report
            .results
            .iter()
            .filter_map(|result| result.value.as_ref()?["cents"].as_i64());
        assert_eq!(report.consistency.comparable, Some(true));
        assert_eq!(cents.sum::<i64>(), 100);
    }
    println!(
        "100 sets of two reads, {} writes between them: the sum was always right",
        store.current().version - 1
    );
    Ok(())
}
