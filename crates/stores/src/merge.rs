//! Merges: one view of a variable that each partition has a part of (FlexState VI-B).
//!
//! A merge reads the variable of each partition of the function that ever was, from the store, and
//! folds its elements. So it counts what partitions that have ended left behind, needs no number of
//! cores or instances, and is as old as the changes that the store does not have yet. It is no
//! snapshot: the partitions are read one after another.
//!
//! *For functions* ([`Merges`]). A thread of the store's makes the merges of all merged views that
//! functions have open (`variables::merged`), each on a cycle and when its function asks. It starts
//! with the first view, and ends with the store.
//!
//! ```text
//!   Variables::merged_counter ──► job ──► thread: due, or asked? ──► Store::read ──► view ──► worker
//!                                           └─ a view that no function has any more: the job goes
//! ```
//!
//! All else here waits for the store: it is for the control side, not for packets.

use crate::agent::{OpenError, Store, elements};
use crate::name::{Kind, PartitionName};
use std::collections::{HashMap, HashSet};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, TryRecvError, channel};
use std::sync::{Arc, Mutex};
use std::thread::{JoinHandle, Thread};
use std::time::{Duration, Instant};
use variables::merged::{Merger, Merging};
use variables::{Key, Stored, decoded};

/// How often merges are made where nothing else is said.
pub const EVERY: Duration = Duration::from_secs(1);

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
        let mut folded = Some(start);
        self.read(function, kind, name, |partition, key, value| {
            let (Some(key), Some(value)) = (decoded::<K>(key), decoded::<V>(value)) else {
                return Err(std::any::type_name::<(K, V)>());
            };
            folded = folded.take().map(|before| fold(before, partition, key, value));
            Ok(())
        })?;
        folded.ok_or(OpenError::Closed)
    }

    /// Shows every element of a variable over all partitions of a function, as the store has them.
    /// A refused element is none of that type.
    fn read(
        &self,
        function: &str,
        kind: Kind,
        name: &str,
        mut element: impl FnMut(&PartitionName, &[u8], &[u8]) -> Result<(), &'static str>,
    ) -> Result<(), OpenError> {
        let of = function.to_owned();
        for partition in self.with(move |driver| driver.partitions(&of))? {
            let variable = partition.variable(kind, name)?;
            let at = variable.clone();
            // The thread reads one partition at a time, so that the agent's own work goes on in
            // between.
            for (key, value) in self.with(move |driver| elements(driver, &at))? {
                let refused = element(&partition, &key, &value);
                refused.map_err(|what| OpenError::Other(variable.to_string(), what))?;
            }
        }
        Ok(())
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

    /// Elements that are in the set of any partition.
    pub fn union<T: Key>(&self, function: &str, name: &str) -> Result<HashSet<T>, OpenError> {
        let add = |mut all: HashSet<T>, _: &PartitionName, element: T, ()| {
            all.insert(element);
            all
        };
        self.fold(function, Kind::Set, name, HashSet::new(), add)
    }
}

/// Makes the merges of functions' merged views, on a thread of its own.
#[derive(Clone)]
pub struct Merges(Arc<Inside>);

struct Inside {
    store: Store,
    thread: Mutex<Option<(Sender<Job>, Arc<Bell>)>>,
}

struct Job {
    function: String,
    /// `None`: only when it is asked for.
    every: Option<Duration>,
    merging: Box<dyn Merging>,
    due: Option<Instant>,
    answered: u32,
}

/// Wakes a thread that does something for functions, and has its clock.
pub(crate) struct Bell {
    pub thread: Thread,
    pub since: Instant,
}

impl Merger for Bell {
    fn ring(&self) {
        self.thread.unpark();
    }

    fn now_ns(&self) -> u64 {
        u64::try_from(self.since.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }
}

impl Merges {
    /// Of a store. There is no thread before the first view.
    pub fn of(store: &Store) -> Self {
        Merges(Arc::new(Inside {
            store: store.clone(),
            thread: Mutex::new(None),
        }))
    }

    /// Has a view's merges made from now on.
    pub(crate) fn take(
        &self,
        function: &str,
        every: Option<Duration>,
        merging: Box<dyn Merging>,
    ) -> std::io::Result<Arc<dyn Merger>> {
        let mut thread = self.0.thread.lock().unwrap_or_else(|held| held.into_inner());
        let (jobs, bell) = match thread.take() {
            Some(there) => there,
            None => started(self.0.store.clone())?,
        };
        let job = Job {
            function: function.to_owned(),
            every,
            merging,
            due: every.map(|_| Instant::now()),
            answered: 0,
        };
        // A store that is closed makes no merges any more.
        let _ = jobs.send(job);
        bell.ring();
        let merger = Arc::clone(&bell);
        *thread = Some((jobs, bell));
        Ok(merger)
    }
}

fn started(store: Store) -> std::io::Result<(Sender<Job>, Arc<Bell>)> {
    let (jobs, incoming) = channel();
    let since = Instant::now();
    let thread = std::thread::Builder::new().name("merges".into());
    let thread = thread.spawn(move || make(&store, &incoming, since))?;
    let bell = Bell {
        thread: thread.thread().clone(),
        since,
    };
    Ok((jobs, Arc::new(bell)))
}

/// How long the thread sleeps at most, until it finds out that it has nothing more to do.
const LOOK: Duration = Duration::from_secs(1);

fn make(store: &Store, incoming: &Receiver<Job>, since: Instant) {
    let mut jobs: Vec<Job> = Vec::new();
    loop {
        loop {
            match incoming.try_recv() {
                Ok(job) => jobs.push(job),
                Err(TryRecvError::Empty) => break,
                Err(TryRecvError::Disconnected) => return,
            }
        }
        jobs.retain(|job| job.merging.is_wanted());
        for job in &mut jobs {
            let asked = job.merging.asked();
            let now = Instant::now();
            if asked == job.answered && job.due.is_none_or(|due| now < due) {
                continue;
            }
            let began = u64::try_from((now - since).as_nanos()).unwrap_or(u64::MAX);
            job.merging.begin();
            let (kind, name) = (job.merging.kind(), job.merging.name().to_owned());
            let read = store.read(&job.function, kind, &name, |_, key, value| {
                match job.merging.element(key, value) {
                    true => Ok(()),
                    false => Err("element of the merge's type"),
                }
            });
            match read {
                Ok(()) => job.merging.publish(asked, began),
                Err(OpenError::Closed) => return job.merging.fail(asked),
                Err(_) => job.merging.fail(asked),
            }
            job.answered = asked;
            job.due = job.every.map(|every| now + every);
        }
        let next = jobs.iter().filter_map(|job| job.due).min();
        let wait = next.map_or(LOOK, |due| {
            due.saturating_duration_since(Instant::now()).min(LOOK)
        });
        std::thread::park_timeout(wait);
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

    /// The last merge's result; `None` before the first is made.
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
