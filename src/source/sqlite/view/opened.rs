//! Opening transactions until they are shown to see one version.

use std::sync::Arc;

use futures_util::future::join_all;
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::Instant;

use crate::clock::{Mono, Timeline};
use crate::source::sqlite::Shared;
use crate::source::sqlite::connection::{Begun, Connection};
use crate::source::sqlite::error::Fault;
use crate::source::sqlite::file::Written;
use crate::source::sqlite::generation::Generation;

/// How often several transactions are opened before one has to do.
const TRIES: usize = 20;

/// Transactions that see one version.
pub(super) struct Opened {
    pub(super) generation: Arc<Generation>,
    pub(super) connections: Vec<Connection>,
    pub(super) begun: Begun,
    pub(super) window: (Mono, Mono),
    pub(super) count: i64,
    pub(super) written: Option<Written>,
    pub(super) gave_up: bool,
}

impl Opened {
    pub(super) async fn settle(
        source: &Arc<Shared>,
        width: usize,
        timeline: &Timeline,
        places: &mut Vec<OwnedSemaphorePermit>,
    ) -> Result<Self, Fault> {
        for attempt in 0.. {
            let generation = source.generation().await?;
            let reads = if attempt < TRIES { width } else { 1 };
            let most = if generation.shared {
                source.options.most_at_once()
            } else {
                1
            };
            let wanted = source.fan.width(reads, most);
            while places.len() < wanted
                && let Ok(place) = Arc::clone(&source.places).try_acquire_owned()
            {
                places.push(place);
            }
            places.truncate(wanted);
            let mut connections = Vec::with_capacity(places.len());
            for _ in 0..places.len() {
                connections.push(generation.take().await?);
            }
            match Self::attempt(source, generation, connections, timeline).await? {
                Some(opened) => {
                    return Ok(Self {
                        gave_up: attempt >= TRIES,
                        ..opened
                    });
                }
                None if attempt > 2 * TRIES => break,
                None => {}
            }
        }
        Err(Fault::Lost(
            "its file keeps being replaced or written past the engine".into(),
        ))
    }

    /// Opens a transaction on each connection. Nothing if they may see different versions; they are given back.
    async fn attempt(
        source: &Arc<Shared>,
        generation: Arc<Generation>,
        mut connections: Vec<Connection>,
        timeline: &Timeline,
    ) -> Result<Option<Self>, Fault> {
        let several = connections.len() > 1;
        let asked = Instant::now();
        let count = if several {
            generation.data_version().await?
        } else {
            generation.seen()
        };
        let earliest = timeline.mono();
        let patience = source.options.busy_timeout;
        let begins = connections
            .iter_mut()
            .map(|connection| connection.begin(generation.asks_log, patience));
        let begun: Result<Vec<Begun>, Fault> = join_all(begins).await.into_iter().collect();
        let latest = timeline.mono();
        let aligned = match &begun {
            Ok(_) if several => generation.data_version().await? == count,
            _ => true,
        };
        let look = generation.look();
        let sound = match (&begun, look) {
            (Ok(begun), Ok(look)) => {
                let written = look.map(|look| look.written);
                let states = connections.iter().zip(begun);
                let stale = states
                    .filter(|(connection, begun)| is_stale(connection.last, written, **begun))
                    .count();
                if stale > 0 {
                    // What the engine keeps in memory may not be what the file says.
                    generation.end();
                }
                (aligned && stale == 0).then_some((begun[0], written))
            }
            _ => None,
        };
        let Some((begun, written)) = sound else {
            if matches!(begun, Err(Fault::Lost(_))) {
                generation.end();
            }
            join_all(connections.iter_mut().map(Connection::rollback)).await;
            for connection in connections {
                generation.give_back(connection);
            }
            return begun.map(|_| None);
        };
        for connection in &mut connections {
            connection.last = written.map(|written| (written, begun));
        }
        source.fan.open_took(connections.len(), asked.elapsed());
        let window = (earliest, latest);
        Ok(Some(Self {
            generation,
            connections,
            begun,
            window,
            count,
            written,
            gave_up: false,
        }))
    }
}

/// Whether the file was written since the connection last looked, though by the engine's own books nothing happened.
pub(super) fn is_stale(last: Option<(Written, Begun)>, written: Option<Written>, begun: Begun) -> bool {
    last.zip(written).is_some_and(|((before, known), written)| {
        before != written && known.data == begun.data && known.copied == begun.copied
    })
}
