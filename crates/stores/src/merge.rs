//! Merges: one view of a variable that each partition has a part of (FlexState VI-B).
//!
//! A merge reads the variable of each partition of the function that ever was, from the store, and folds what it read. So it counts
//! what partitions that have ended left behind, needs no number of cores or instances, and is as old as the changes that the store does not have yet.
//! It is no snapshot: the partitions are read one after another.
//!
//! All of this waits for the store: it is for the control side, not for packets.

use crate::agent::{OpenError, Store, elements};
use crate::name::{Kind, PartitionName};
use std::collections::{HashMap, HashSet};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;
use variables::{Key, Stored, decoded};

impl Store {
    /// Folds every element of a variable over all partitions of a function, in no order.
    pub fn fold<K: Key, V: Stored, R>(
        &self,
        function: &str,
        kind: Kind,
        name: &str,
        start: R,
        mut fold: impl FnMut(R, &PartitionName, K, V) -> R,
    ) -> Result<R, OpenError> {
        let of = function.to_owned();
        let partitions = self.with(move |driver| driver.partitions(&of))?;
        let mut folded = start;
        for partition in partitions {
            let variable = partition.variable(kind, name)?;
            let at = variable.clone();
            // One partition at a time, so that the agent's own work goes on in between.
            for (key, value) in self.with(move |driver| elements(driver, &at))? {
                let wrong = || OpenError::Other(variable.to_string(), std::any::type_name::<(K, V)>());
                let key = decoded::<K>(&key).ok_or_else(wrong)?;
                let value = decoded::<V>(&value).ok_or_else(wrong)?;
                folded = fold(folded, &partition, key, value);
            }
        }
        Ok(folded)
    }

    /// A counter of the whole function.
    pub fn sum(&self, function: &str, name: &str) -> Result<i64, OpenError> {
        let add = |sum: i64, _: &PartitionName, (), count: i64| sum.saturating_add(count);
        self.fold(function, Kind::Counter, name, 0, add)
    }

    /// The counters of a map, of the whole function.
    pub fn sums<K: Key>(&self, function: &str, name: &str) -> Result<HashMap<K, i64>, OpenError> {
        let add = |mut sums: HashMap<K, i64>, _: &PartitionName, key: K, count: i64| {
            let sum = sums.entry(key).or_default();
            *sum = sum.saturating_add(count);
            sums
        };
        self.fold(function, Kind::CounterMap, name, HashMap::new(), add)
    }

    /// What is in the set of any partition.
    pub fn union<T: Key>(&self, function: &str, name: &str) -> Result<HashSet<T>, OpenError> {
        let add = |mut all: HashSet<T>, _: &PartitionName, element: T, ()| {
            all.insert(element);
            all
        };
        self.fold(function, Kind::Set, name, HashSet::new(), add)
    }
}

type Last<R> = Arc<Mutex<Option<Result<R, String>>>>;

/// A merge that is made again and again, on a thread of its own; it ends with this.
pub struct Cycle<R> {
    last: Last<R>,
    end: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl<R: Clone + Send + 'static> Cycle<R> {
    /// Makes the merge now, and then at this interval.
    pub fn start(
        store: &Store,
        every: Duration,
        mut merge: impl FnMut(&Store) -> Result<R, OpenError> + Send + 'static,
    ) -> std::io::Result<Self> {
        let (end, ending) = channel();
        let last = Last::default();
        let (store, made) = (store.clone(), Arc::clone(&last));
        let thread = std::thread::Builder::new().name("merge".into()).spawn(move || {
            loop {
                let result = merge(&store).map_err(|error| error.to_string());
                if let Ok(mut last) = made.lock() {
                    *last = Some(result);
                }
                if ending.recv_timeout(every) != Err(RecvTimeoutError::Timeout) {
                    return;
                }
            }
        })?;
        Ok(Cycle {
            last,
            end: Some(end),
            thread: Some(thread),
        })
    }

    /// What the last merge gave; `None` before the first is made.
    pub fn last(&self) -> Option<Result<R, String>> {
        self.last.lock().map_or(None, |last| last.clone())
    }
}

impl<R> Drop for Cycle<R> {
    fn drop(&mut self) {
        self.end = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
