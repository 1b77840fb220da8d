//! Views, leased by many, opened once, closed when the last lease is back.
//!
//! A set has at most one view of a source at a time. The first read that wants it opens it; if that read is dropped while
//! opening, the next one opens instead. A write that starts ends the epoch: every view is closed first, so that reads
//! after it open new ones and see what was written.

use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::{Notify, OnceCell};
use tokio_util::task::TaskTracker;

use crate::clock::Timeline;
use crate::reading::{CallError, ErrorCode, ViewId};
use crate::source::{Source, Unsound, View};

/// The sources a coordinator knows, by name.
pub type Sources = HashMap<Arc<str>, Arc<dyn Source>>;

/// The views of one set. Clones share them.
#[derive(Clone)]
pub struct Views(Arc<Shared>);

struct Shared {
    sources: Arc<Sources>,
    /// How many reads of the set lean on each source.
    widths: HashMap<Arc<str>, usize>,
    /// The current epoch's views.
    slots: Mutex<HashMap<Arc<str>, Arc<Slot>>>,
    /// Views that turned out to be no single state when they were closed.
    unsound: Mutex<Vec<(ViewId, Unsound)>>,
    /// Owns what must be closed after the set was dropped.
    owner: TaskTracker,
}

struct Slot {
    source: Arc<dyn Source>,
    view: OnceCell<Result<Arc<dyn View>, CallError>>,
    leases: AtomicUsize,
    returned: Notify,
}

impl fmt::Debug for Views {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Views")
            .field("sources", &self.0.sources.keys())
            .finish_non_exhaustive()
    }
}

impl Views {
    /// No views, for calls outside a coordinator.
    pub fn none() -> Self {
        Self::new(Arc::default(), HashMap::new(), TaskTracker::new())
    }

    /// Views of these sources, each as wide as so many reads of the set need.
    pub fn new(sources: Arc<Sources>, widths: HashMap<Arc<str>, usize>, owner: TaskTracker) -> Self {
        Self(Arc::new(Shared {
            sources,
            widths,
            slots: Mutex::default(),
            unsound: Mutex::default(),
            owner,
        }))
    }

    /// Whether there is a source of this name, so that reads which lean on it go through its view.
    pub fn knows(&self, source: &str) -> bool {
        self.0.sources.contains_key(source)
    }

    /// The set's view of a source, opened if nobody has yet.
    ///
    /// # Errors
    /// What the source answered when it was asked to open one. All reads that want this view get the same answer.
    ///
    /// # Cancel safety
    /// Safe: if the opener is dropped, another waiting read opens instead.
    pub async fn lease(&self, source: &str, timeline: &Timeline) -> Result<Lease, CallError> {
        let lease = {
            let mut slots = lock(&self.0.slots);
            let slot = match slots.get(source) {
                Some(slot) => Arc::clone(slot),
                None => {
                    let Some((name, found)) = self.0.sources.get_key_value(source) else {
                        let message = format!("no source is called {source:?}");
                        return Err(CallError::new(ErrorCode::ViewUnavailable, message).retryable(false));
                    };
                    let slot = Arc::new(Slot {
                        source: Arc::clone(found),
                        view: OnceCell::new(),
                        leases: AtomicUsize::new(0),
                        returned: Notify::new(),
                    });
                    slots.insert(Arc::clone(name), Arc::clone(&slot));
                    slot
                }
            };
            slot.leases.fetch_add(1, Ordering::SeqCst);
            // From here on dropping gives the lease back.
            Held(slot)
        };
        let width = self.0.widths.get(source).copied().unwrap_or(1).max(1);
        let view = lease
            .0
            .view
            .get_or_init(|| lease.0.source.open(width, timeline))
            .await
            .clone()?;
        Ok(Lease { view, _held: lease })
    }

    /// Ends the epoch: waits until every lease is back, then closes every view.
    pub async fn close(&self) {
        let slots = std::mem::take(&mut *lock(&self.0.slots));
        for slot in slots.into_values() {
            self.close_slot(slot).await;
        }
    }

    async fn close_slot(&self, slot: Arc<Slot>) {
        loop {
            let returned = slot.returned.notified();
            tokio::pin!(returned);
            returned.as_mut().enable();
            if slot.leases.load(Ordering::SeqCst) == 0 {
                break;
            }
            returned.await;
        }
        if let Some(Ok(view)) = slot.view.get()
            && let Err(unsound) = slot.source.close(Arc::clone(view)).await
        {
            lock(&self.0.unsound).push((view.id().clone(), unsound));
        }
    }

    /// Views that turned out, when they were closed, to be no single state.
    pub fn unsound(&self) -> Vec<(ViewId, Unsound)> {
        lock(&self.0.unsound).clone()
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        let slots = std::mem::take(&mut *lock(&self.slots));
        let open = slots.into_values().filter_map(|slot| match slot.view.get() {
            Some(Ok(view)) => Some((Arc::clone(&slot.source), Arc::clone(view))),
            _ => None,
        });
        for (source, view) in open {
            // The set was dropped: nobody waits for its verdict, but its connections must go back.
            if tokio::runtime::Handle::try_current().is_ok() {
                self.owner.spawn(async move {
                    let _ = source.close(view).await;
                });
            }
        }
    }
}

/// A view, held open by this read.
pub struct Lease {
    view: Arc<dyn View>,
    _held: Held,
}

impl fmt::Debug for Lease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lease")
            .field("view", &self.view)
            .finish_non_exhaustive()
    }
}

impl Lease {
    /// The view, as the source's own type.
    pub fn get<V: View>(&self) -> Option<&V> {
        self.view.as_any().downcast_ref()
    }

    /// The view.
    pub fn view(&self) -> &Arc<dyn View> {
        &self.view
    }
}

struct Held(Arc<Slot>);

impl Drop for Held {
    fn drop(&mut self) {
        if self.0.leases.fetch_sub(1, Ordering::SeqCst) == 1 {
            self.0.returned.notify_waiters();
        }
    }
}

/// Nothing here panics while it holds a lock, so a poisoned one is still whole.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
