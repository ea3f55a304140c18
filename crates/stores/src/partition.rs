//! A partition's way to its store: the carrier that a worker steps, and the source that opens
//! variables.
//!
//! `Carrier::step` belongs into the worker's loop. The carrier takes acknowledgements, and cuts a
//! batch of waiting elements where a variable's interval is over and one of the [`BATCHES_MAX`]
//! buffers is here:
//!
//! ```text
//!   shelf ── changes ──► buffer ══ ring ══► agent ──► store
//!       ▲                      ▲                  │
//!       │ stored up to n       └──── buffer ◄═════╡
//!       └──────────────── stored / forgotten / fenced
//! ```
//!
//! No buffer is here while the store has not answered for both. Changes wait then, one for each
//! element, and the interval is longer than configured: [`PartitionStats::interval_ns`] says how
//! long, [`PartitionStats::late`] that it is too long.
//!
//! *Clocks.* Steps are told the time by the worker. A worker whose time is its packets' (a replay)
//! has a carrier with a clock of its own.
//!
//! Nothing here waits, locks or allocates, but opening and finishing. A worker's functions, their
//! variables and their partitions move to the worker's thread as a whole, since they share
//! reference counts.

use crate::agent::{Acknowledged, OpenError, Sent, Store};
use crate::driver::Outcome;
use crate::late::{Oldest, SAID_NS};
use crate::left;
use crate::locks::Locks;
use crate::merge::{EVERY, Merges};
use crate::name::PartitionName;
use crate::taking::{self, Estate};
use std::collections::BTreeMap;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use std::thread::Thread;
use std::time::{Duration, Instant};
use variables::buffer::Buffer;
use variables::locks::Locking;
use variables::merged::{Merger, Merging};
use variables::open::{Claimed, Element, Left, Loader, Source};
use variables::shelf::{Said, Shelf};
use variables::{BATCHES_MAX, Consistency, Kind, PartitionStats, Variables};

/// The worker's side of a claimed partition.
struct Carrier {
    batches: rtrb::Producer<Sent>,
    acknowledged: rtrb::Consumer<Acknowledged>,
    buffers: Vec<Buffer>,
    sequence: u64,
    /// Which variable comes first in the next batch, so that none is always the last.
    turn: usize,
    agent: Thread,
    figures: PartitionStats,
    oldest: Arc<Oldest>,
    /// When it was last said how old the oldest change is.
    said: u64,
    /// When it was made, where it has a clock of its own.
    clock: Option<Instant>,
}

impl Carrier {
    fn hear(&mut self, shelf: &Shelf, word: Acknowledged) {
        let Acknowledged {
            sequence,
            outcome,
            buffer,
        } = word;
        self.buffers.extend(buffer);
        match outcome {
            Outcome::Stored => shelf.acknowledge(sequence, |age| self.figures.ages.add(age)),
            Outcome::Forgotten => {
                self.figures.rewritten += 1;
                shelf.spoil();
            }
            Outcome::Fenced => {
                self.figures.fenced = true;
                shelf.fence();
            }
        }
    }

    fn say_oldest(&mut self, shelf: &Shelf, now: u64) {
        self.said = now;
        // A partition that another process has is told otherwise.
        self.oldest.say(shelf.oldest().filter(|_| !self.figures.fenced));
    }

    fn cut(&mut self, shelf: &Shelf, now: u64) {
        let Some(mut buffer) = self.buffers.pop() else {
            return;
        };
        buffer.empty();
        let sequence = self.sequence.saturating_add(1);
        if let Some(interval) = shelf.fill(self.turn, now, sequence, &mut buffer) {
            self.figures.interval_ns = interval;
        }
        self.turn = if self.turn + 1 < shelf.len() {
            self.turn + 1
        } else {
            0
        };
        if buffer.is_empty() {
            self.buffers.push(buffer);
            return;
        }
        self.figures.batches += 1;
        self.figures.changes += u64::from(buffer.changes());
        self.figures.bytes += buffer.bytes().len() as u64;
        self.sequence = sequence;
        // The ring has room for all buffers that there are.
        if self.batches.push(Sent { sequence, buffer }).is_ok() {
            self.agent.unpark();
        }
    }
}

impl variables::open::Carrier for Carrier {
    fn time(&self, now: u64) -> u64 {
        self.clock.map_or(now, |since| nanoseconds(since.elapsed()))
    }

    fn step(&mut self, shelf: &Shelf, now: u64) {
        let now = variables::open::Carrier::time(self, now);
        shelf.set_now(now);
        while let Ok(word) = self.acknowledged.pop() {
            self.hear(shelf, word);
        }
        if shelf.has_changed() && !self.figures.fenced && !self.buffers.is_empty() && shelf.is_due(now) {
            self.cut(shelf, now);
        }
        if now.abs_diff(self.said) >= SAID_NS {
            self.say_oldest(shelf, now);
        }
    }

    fn finish(&mut self, shelf: &Shelf, patience: Duration) -> bool {
        let (began, now) = (Instant::now(), shelf.now());
        shelf.set_hurries(true);
        loop {
            let passed = began.elapsed();
            self.step(shelf, now.saturating_add(nanoseconds(passed)));
            let is_stored = shelf.is_stored();
            if is_stored || passed >= patience || self.figures.fenced {
                self.say_oldest(shelf, shelf.now());
                shelf.set_hurries(false);
                return is_stored;
            }
            std::thread::sleep(Duration::from_micros(200));
        }
    }

    fn figures(&self) -> PartitionStats {
        self.figures
    }

    fn next_at(&self, shelf: &Shelf) -> Option<u64> {
        if self.clock.is_some() || self.figures.fenced {
            return None;
        }
        let after = |wait: u64| shelf.now().saturating_add(wait);
        match shelf.due_at() {
            // Where the store has not answered, a look now and then will do.
            Some(_) if self.buffers.is_empty() => Some(after(LOOK_NS)),
            Some(due) => Some(due),
            // A store that is late is told, though nothing changes any more.
            None => (!shelf.is_stored()).then(|| after(SAID_NS)),
        }
    }
}

const LOOK_NS: u64 = 1_000_000;

fn nanoseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

/// The control side of a claimed partition.
struct Reader {
    store: Store,
    name: PartitionName,
    /// As the agent numbers it.
    number: u64,
    consistency: Consistency,
    said: BTreeMap<String, Said>,
    merges: Merges,
    merge_every: Option<Duration>,
    locks: Locks,
}

impl Loader for Reader {
    fn load(
        &self,
        number: u32,
        kind: Kind,
        name: &str,
        is_kept: bool,
    ) -> Result<Vec<Element>, variables::OpenError> {
        let variable = self.name.variable(kind, name).map_err(OpenError::from);
        let loaded = variable.and_then(|variable| self.store.load(self.number, number, &variable, is_kept));
        loaded.map_err(told)
    }

    fn consistency(&self) -> Consistency {
        self.consistency
    }

    fn said(&self, name: &str) -> Option<Said> {
        self.said.get(name).copied()
    }

    fn name(&self) -> String {
        self.name.to_string()
    }

    fn merge(&self, merging: Box<dyn Merging>) -> Result<Option<Arc<dyn Merger>>, variables::OpenError> {
        let taken = self.merges.take(self.name.function(), self.merge_every, merging);
        let no_thread =
            |error| variables::OpenError::Store(format!("no thread can be started for merges: {error}"));
        taken.map(Some).map_err(no_thread)
    }

    fn lock(&self, locking: Box<dyn Locking>) -> Result<Option<Arc<dyn Merger>>, variables::OpenError> {
        let taken = self.locks.take(&self.name, locking);
        let no_thread =
            |error| variables::OpenError::Store(format!("no thread can be started for locks: {error}"));
        taken.map(Some).map_err(no_thread)
    }
}

/// As a function's opening says it.
fn told(error: OpenError) -> variables::OpenError {
    match error {
        OpenError::Other(variable, what) => variables::OpenError::Other(variable, what),
        other => variables::OpenError::Store(other.to_string()),
    }
}

fn claim(defaults: &Defaults, name: PartitionName, has_clock: bool) -> Result<Claimed, OpenError> {
    let store = &defaults.store;
    let opened = store.open(&name)?;
    let carrier = Carrier {
        batches: opened.batches,
        acknowledged: opened.acknowledged,
        buffers: (0..BATCHES_MAX).map(|_| Buffer::new()).collect(),
        sequence: 0,
        turn: 0,
        agent: opened.agent,
        figures: PartitionStats::default(),
        oldest: store.watch(&name),
        said: 0,
        clock: has_clock.then(Instant::now),
    };
    let reader = Reader {
        store: store.clone(),
        name,
        number: opened.number,
        consistency: defaults.consistency,
        said: defaults.said.clone(),
        merges: defaults.merges.clone(),
        merge_every: defaults.merge_every,
        locks: defaults.locks.clone(),
    };
    Ok((Box::new(carrier), Arc::new(reader)))
}

/// The stores of a process' functions, and what the configuration says of them: where its workers'
/// variables come from.
pub struct Stores {
    /// The member that has the runtimes; empty in a cluster of one process.
    pub member: String,
    /// Whether workers' time is their packets'.
    pub has_clock: bool,
    /// Of functions that are not named below.
    pub usual: Option<Defaults>,
    /// By function; `None`: in no store.
    pub functions: BTreeMap<String, Option<Defaults>>,
}

/// A store, and how variables are kept in it where a function does not say.
#[derive(Clone)]
pub struct Defaults {
    /// The store.
    pub store: Store,
    /// The consistency of variables that leave it to the configuration.
    pub consistency: Consistency,
    /// The configuration's settings for single variables, by their names.
    pub said: BTreeMap<String, Said>,
    /// Makes merges for the functions of a process that have this store: one for all of them.
    pub merges: Merges,
    /// How often; `None`: only when a function asks.
    pub merge_every: Option<Duration>,
    /// Takes locks for the functions of a process that have this store.
    pub locks: Locks,
    /// Where members of a cluster with a coordinator have this store in common: one for all
    /// functions of a process.
    pub estate: Option<Arc<Estate>>,
}

impl Defaults {
    /// A store whose merges are made as usual.
    pub fn new(store: Store, consistency: Consistency) -> Self {
        Defaults {
            merges: Merges::of(&store),
            locks: Locks::of(&store, None),
            store,
            consistency,
            said: BTreeMap::new(),
            merge_every: Some(EVERY),
            estate: None,
        }
    }
}

impl Stores {
    fn of(&self, function: &str) -> Option<&Defaults> {
        match self.functions.get(function) {
            Some(own) => own.as_ref(),
            None => self.usual.as_ref(),
        }
    }
}

impl Source for Stores {
    fn left(
        &self,
        function: &str,
        names: &[String],
        begins: &[u32],
    ) -> Result<Vec<Left>, variables::OpenError> {
        let Some(defaults) = self.of(function) else {
            return Ok(Vec::new());
        };
        // Timers of a variable that is in no store any more stay where they were.
        let is_kept = |name: &&String| defaults.said.get(*name) != Some(&Said::Local);
        let names: Vec<String> = names.iter().filter(is_kept).cloned().collect();
        let settled = defaults
            .estate
            .as_ref()
            .map_or(Ok(()), |of| of.finish_own_takings(function));
        settled.map_err(told)?;
        left::find(&defaults.store, function, &self.member, &names, begins).map_err(told)
    }

    fn remove_left(&self, function: &str, left: &Left) -> Result<(), variables::OpenError> {
        let removed = self.of(function).map_or(Ok(()), |defaults| {
            left::remove(&defaults.store, function, &self.member, left)
        });
        removed.map_err(told)
    }

    fn open(&self, function: &str, runtime: u32) -> Result<Option<Claimed>, variables::OpenError> {
        let defaults = self.of(function);
        let claim = |defaults: &Defaults| {
            let name = PartitionName::new(function, self.member.clone(), runtime)?;
            if let Some(estate) = &defaults.estate {
                estate.begin()?;
                taking::finish_taking(&defaults.store, &name)?;
            }
            claim(defaults, name, self.has_clock)
        };
        defaults.map(claim).transpose().map_err(told)
    }
}

/// A function's variables on one runtime, with the worker's side beside: for programs without a
/// worker.
pub struct Partition {
    name: PartitionName,
    variables: Variables,
}

impl Partition {
    /// Claims the partition's identity at the store: from now on no other instance that has it
    /// writes. Waits for the store.
    pub fn open(store: &Store, name: PartitionName) -> Result<Self, OpenError> {
        let defaults = Defaults::new(store.clone(), Consistency::USUAL);
        let (carrier, reader) = claim(&defaults, name.clone(), false)?;
        Ok(Partition {
            name,
            variables: Variables::claimed(carrier, reader),
        })
    }

    /// The name of the partition.
    pub fn name(&self) -> &PartitionName {
        &self.name
    }

    /// A step of a worker's loop, `now` in nanoseconds of any clock that does not go back.
    pub fn step(&mut self, now: u64) {
        if let Some(partition) = self.variables.partition() {
            partition.step(now);
        }
    }

    /// The fate of the changes so far, as of the last step.
    pub fn figures(&mut self) -> PartitionStats {
        self.variables
            .partition()
            .map_or(PartitionStats::default(), |partition| partition.figures())
    }

    /// Whether the store has every change.
    pub fn is_stored(&mut self) -> bool {
        self.variables
            .partition()
            .is_none_or(|partition| partition.is_stored())
    }

    /// Steps until the store has every change, or `patience` is over; answers whether it has. For
    /// the end of a worker.
    pub fn finish(&mut self, patience: Duration) -> bool {
        self.variables
            .partition()
            .is_none_or(|partition| partition.finish(patience))
    }
}

impl Deref for Partition {
    type Target = Variables;
    fn deref(&self) -> &Variables {
        &self.variables
    }
}

impl DerefMut for Partition {
    fn deref_mut(&mut self) -> &mut Variables {
        &mut self.variables
    }
}
