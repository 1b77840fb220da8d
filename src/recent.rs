//! Named sets that were run lately, so that one that comes again is answered and not run again (B59).

use std::collections::{HashMap, VecDeque};
use std::future::Future;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::OnceCell;

use crate::call::CallSet;
use crate::report::SetReport;
use crate::run::SetError;

/// A bounded memory of named sets.
#[derive(Debug)]
pub(crate) struct Recent {
    capacity: usize,
    memory: Mutex<Memory>,
}

#[derive(Debug, Default)]
struct Memory {
    entries: HashMap<Key, Arc<Entry>>,
    /// Oldest first.
    order: VecDeque<Key>,
}

/// A set's name, and who gave it: another tenant's equal name is another set.
type Key = (String, Option<String>, String);

#[derive(Debug)]
struct Entry {
    set: Arc<CallSet>,
    report: OnceCell<SetReport>,
}

impl Recent {
    pub(crate) fn new(capacity: usize) -> Self {
        Self {
            capacity,
            memory: Mutex::default(),
        }
    }

    /// Runs a set, or waits for the same set that is running, or answers with the report it had.
    ///
    /// Only a set that is equal in everything is the same: a name that is used again for other calls runs, and isn't
    /// remembered.
    ///
    /// # Cancel safety
    /// If the caller that runs it is dropped, the next one that waits runs it.
    pub(crate) async fn once<F>(&self, set: &Arc<CallSet>, run: F) -> Result<SetReport, SetError>
    where
        F: Future<Output = Result<SetReport, SetError>>,
    {
        match self.entry(set) {
            Some(entry) if entry.set == *set => entry.report.get_or_try_init(|| run).await.cloned(),
            _ => run.await,
        }
    }

    fn entry(&self, set: &Arc<CallSet>) -> Option<Arc<Entry>> {
        let name = set
            .set_id
            .as_ref()
            .filter(|name| !name.is_empty() && self.capacity > 0)?;
        let scope = serde_json::to_string(&set.scope).expect("a JSON object has a text");
        let key = (name.clone(), set.session.clone(), scope);
        // Nothing panics while it holds this lock.
        let mut memory = self.memory.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(entry) = memory.entries.get(&key) {
            return Some(Arc::clone(entry));
        }
        while memory.order.len() >= self.capacity {
            if let Some(oldest) = memory.order.pop_front() {
                memory.entries.remove(&oldest);
            }
        }
        let entry = Arc::new(Entry {
            set: Arc::clone(set),
            report: OnceCell::new(),
        });
        memory.entries.insert(key.clone(), Arc::clone(&entry));
        memory.order.push_back(key);
        Some(entry)
    }
}
