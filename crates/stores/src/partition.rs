//! The worker's side: a function's variables on one runtime, and what goes to the agent.
//!
//! [`Partition::step`] belongs into the worker's loop. It takes acknowledgements, and cuts a batch of what waits where a variable's
//! interval is over and one of the [`BATCHES_MAX`] buffers is here:
//!
//! ```text
//!   variables ── changes ──► buffer ══ ring ══► agent ──► store
//!       ▲                      ▲                  │
//!       │ stored up to n       └──── buffer ◄═════╡
//!       └──────────────── stored / forgotten / fenced
//! ```
//!
//! No buffer is here while the store has not answered for both. Changes wait then, one for each element, and the interval is longer
//! than configured: [`Figures::interval_ns`] says how long, [`Figures::late`] that it is too long.
//!
//! Nothing here waits, locks or allocates, but opening and [`Partition::finish`]. A worker's functions, their variables and their partitions
//! move to the worker's thread as a whole, since they share [`Rc`]s.

use crate::agent::{Acknowledged, OpenError, Sent, Store};
use crate::batch::Buffer;
use crate::cells::{Cells, Key, Stored};
use crate::driver::Outcome;
use crate::figures::Figures;
use crate::name::{Kind, PartitionName, VariableName};
use crate::ticket::{BATCHES_MAX, Progress};
use crate::variable::{Counter, CounterMap, List, Map, Set, Timers, Value};
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::thread::Thread;
use std::time::{Duration, Instant};

/// What may be lost, and when.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Consistency {
    /// The variable is in no store, and is gone with the process.
    Local,
    /// The store is told at this interval, in nanoseconds. A change that it does not have after `bound_ns` is an alarm
    /// ([`Figures::late`]).
    Behind {
        /// How long changes are collected.
        interval_ns: u64,
        /// How old a change may become.
        bound_ns: u64,
    },
    /// The store is told at once. A call that needs the store to have its change waits for the variable's ticket.
    Through,
}

impl Consistency {
    fn interval_ns(self) -> u64 {
        match self {
            Consistency::Local => u64::MAX,
            Consistency::Behind { interval_ns, .. } => interval_ns,
            Consistency::Through => 0,
        }
    }

    fn bound_ns(self) -> u64 {
        match self {
            Consistency::Local => u64::MAX,
            Consistency::Behind { bound_ns, .. } => bound_ns,
            Consistency::Through => BOUND_NS,
        }
    }
}

const BOUND_NS: u64 = 1_000_000_000;

/// The default: every millisecond (FlexState III-C), at most a second late.
impl Default for Consistency {
    fn default() -> Self {
        Consistency::Behind {
            interval_ns: 1_000_000,
            bound_ns: BOUND_NS,
        }
    }
}

/// How a variable is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// The most elements of a collection. Memory for them, and for as many removed ones, is taken when it is opened.
    pub capacity: usize,
    /// What may be lost, and when.
    pub consistency: Consistency,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            capacity: 1024,
            consistency: Consistency::default(),
        }
    }
}

/// What variables of a partition share.
pub(crate) struct Core {
    now: Rc<Cell<u64>>,
    changed: Cell<bool>,
}

/// A variable as its handle and its partition share it.
pub(crate) struct Inner<K, V> {
    pub cells: RefCell<Cells<K, V>>,
    pub progress: Rc<Progress>,
    core: Rc<Core>,
    cut: Cell<u64>,
    number: u32,
    pub consistency: Consistency,
}

impl<K: Key, V: Stored> Inner<K, V> {
    /// Something has changed: the store is to be told.
    pub fn note(&self) {
        if self.consistency != Consistency::Local {
            self.core.changed.set(true);
        }
    }

    fn waits_since(&self) -> Option<u64> {
        self.cells.try_borrow().ok()?.waits_since()
    }
}

/// A variable, whatever its type.
trait Ship {
    fn is_due(&self, now: u64) -> bool;
    fn waits(&self) -> bool;
    /// Writes what waits into a batch; answers how long it has been since the last one.
    fn ship(&self, now: u64, sequence: u64, into: &mut Buffer) -> Option<u64>;
    fn acknowledge(&self, sequence: u64) -> Option<u64>;
    fn spoil(&self);
    fn fence(&self);
    fn is_late(&self, now: u64) -> bool;
    fn unwritable(&self) -> u64;
    fn is_stored(&self) -> bool;
}

impl<K: Key, V: Stored> Ship for Inner<K, V> {
    fn is_due(&self, now: u64) -> bool {
        if !self.waits() {
            // What was changed since the last batch was taken back.
            self.progress.nothing_to_send();
            return false;
        }
        now.saturating_sub(self.cut.get()) >= self.consistency.interval_ns()
    }

    fn waits(&self) -> bool {
        self.consistency != Consistency::Local && self.waits_since().is_some()
    }

    fn ship(&self, now: u64, sequence: u64, into: &mut Buffer) -> Option<u64> {
        // It is being iterated over: not from within a step.
        let mut cells = self.cells.try_borrow_mut().ok()?;
        let used = into.changes();
        let since = cells.waits_since().unwrap_or(now);
        let number = cells.ship(self.number, into, &self.progress);
        if into.changes() == used {
            // What was changed was taken back before the store heard of it, or there was no room.
            if !cells.waits() {
                self.progress.nothing_to_send();
            }
            return None;
        }
        self.progress.send(sequence, number, since);
        let before = self.cut.replace(now);
        Some(now.saturating_sub(before))
    }

    fn acknowledge(&self, sequence: u64) -> Option<u64> {
        let since = self.progress.acknowledge(sequence);
        if self.waits_since().is_none() {
            self.progress.nothing_to_send();
        }
        since
    }

    fn spoil(&self) {
        if let Ok(mut cells) = self.cells.try_borrow_mut() {
            cells.spoil(&self.progress);
            self.progress.forget_sent();
            self.note();
        }
    }

    fn fence(&self) {
        self.progress.fence();
    }

    fn is_late(&self, now: u64) -> bool {
        let oldest = self.progress.sent_since().or(self.waits_since());
        oldest.is_some_and(|since| now.saturating_sub(since) > self.consistency.bound_ns())
    }

    fn unwritable(&self) -> u64 {
        self.cells.try_borrow().map_or(0, |cells| cells.unwritable())
    }

    fn is_stored(&self) -> bool {
        self.consistency == Consistency::Local || self.progress.is_stored()
    }
}

/// A function's variables on one runtime.
pub struct Partition {
    name: PartitionName,
    store: Store,
    /// As the agent numbers it.
    number: u64,
    core: Rc<Core>,
    names: Vec<VariableName>,
    variables: Vec<Rc<dyn Ship>>,
    /// Which variable comes first in the next batch, so that none is always the last.
    turn: usize,
    batches: rtrb::Producer<Sent>,
    acknowledged: rtrb::Consumer<Acknowledged>,
    buffers: Vec<Buffer>,
    sequence: u64,
    agent: Thread,
    figures: Figures,
}

impl Partition {
    /// Claims the partition's identity at the store: from now on no other instance that has it writes. Waits for the store.
    pub fn open(store: &Store, name: PartitionName) -> Result<Self, OpenError> {
        let opened = store.open(&name)?;
        Ok(Partition {
            name,
            store: store.clone(),
            number: opened.number,
            core: Rc::new(Core {
                now: Rc::default(),
                changed: Cell::new(false),
            }),
            names: Vec::new(),
            variables: Vec::new(),
            turn: 0,
            batches: opened.batches,
            acknowledged: opened.acknowledged,
            buffers: (0..BATCHES_MAX).map(|_| Buffer::new()).collect(),
            sequence: 0,
            agent: opened.agent,
            figures: Figures::default(),
        })
    }

    /// Whose variables these are.
    pub fn name(&self) -> &PartitionName {
        &self.name
    }

    /// Opens a variable: what the store has of it is here when this answers. Waits for the store.
    pub(crate) fn variable<K: Key, V: Stored>(
        &mut self,
        kind: Kind,
        name: &str,
        options: Options,
    ) -> Result<Rc<Inner<K, V>>, OpenError> {
        let variable = self.name.variable(kind, name)?;
        if self.names.contains(&variable) {
            return Err(OpenError::Twice(variable));
        }
        let number = u32::try_from(self.names.len()).map_err(|_| OpenError::Many)?;
        let mut cells = Cells::new(options.capacity);
        let is_kept = options.consistency != Consistency::Local;
        let elements = self.store.load(self.number, number, &variable, is_kept)?;
        for (field, value) in &elements {
            let wrong = || OpenError::Other(variable.clone(), std::any::type_name::<(K, V)>());
            let key = decoded::<K>(field).ok_or_else(wrong)?;
            let value = decoded::<V>(value).ok_or_else(wrong)?;
            if cells.load(key, value).is_err() {
                return Err(OpenError::Capacity(variable, elements.len(), options.capacity));
            }
        }
        let inner = Rc::new(Inner {
            cells: RefCell::new(cells),
            progress: Progress::new(Rc::clone(&self.core.now)),
            core: Rc::clone(&self.core),
            cut: Cell::new(0),
            number,
            consistency: options.consistency,
        });
        self.names.push(variable);
        self.variables.push(Rc::clone(&inner) as Rc<dyn Ship>);
        Ok(inner)
    }

    /// Opens a value.
    pub fn value<T: Stored>(&mut self, name: &str, options: Options) -> Result<Value<T>, OpenError> {
        Value::open(self, name, options)
    }

    /// Opens a counter.
    pub fn counter(&mut self, name: &str, options: Options) -> Result<Counter, OpenError> {
        Counter::open(self, name, options)
    }

    /// Opens a list.
    pub fn list<T: Stored>(&mut self, name: &str, options: Options) -> Result<List<T>, OpenError> {
        List::open(self, name, options)
    }

    /// Opens a set.
    pub fn set<T: Key>(&mut self, name: &str, options: Options) -> Result<Set<T>, OpenError> {
        Set::open(self, name, options)
    }

    /// Opens a map.
    pub fn map<K: Key, V: Stored>(&mut self, name: &str, options: Options) -> Result<Map<K, V>, OpenError> {
        Map::open(self, name, options)
    }

    /// Opens a map of counters.
    pub fn counter_map<K: Key>(&mut self, name: &str, options: Options) -> Result<CounterMap<K>, OpenError> {
        CounterMap::open(self, name, options)
    }

    /// Opens timers.
    pub fn timers<K: Key, V: Stored>(
        &mut self,
        name: &str,
        options: Options,
    ) -> Result<Timers<K, V>, OpenError> {
        Timers::open(self, name, options)
    }

    /// A step of the worker's loop, `now` in nanoseconds of any clock that does not go back.
    pub fn step(&mut self, now: u64) {
        self.core.now.set(now);
        while let Ok(word) = self.acknowledged.pop() {
            self.hear(word, now);
        }
        if !self.core.changed.get() || self.figures.fenced || self.buffers.is_empty() {
            return;
        }
        let (mut is_due, mut waits) = (false, false);
        for variable in &self.variables {
            is_due |= variable.is_due(now);
            waits |= variable.waits();
        }
        if is_due {
            self.cut(now);
        } else {
            self.core.changed.set(waits);
        }
    }

    fn hear(&mut self, word: Acknowledged, now: u64) {
        let Acknowledged {
            sequence,
            outcome,
            buffer,
        } = word;
        self.buffers.extend(buffer);
        match outcome {
            Outcome::Stored => {
                for variable in &self.variables {
                    if let Some(since) = variable.acknowledge(sequence) {
                        self.figures.ages.add(now.saturating_sub(since));
                    }
                }
            }
            Outcome::Forgotten => {
                self.figures.rewritten += 1;
                for variable in &self.variables {
                    variable.spoil();
                }
            }
            Outcome::Fenced => {
                self.figures.fenced = true;
                for variable in &self.variables {
                    variable.fence();
                }
            }
        }
    }

    fn cut(&mut self, now: u64) {
        let Some(mut buffer) = self.buffers.pop() else {
            return;
        };
        buffer.empty();
        let sequence = self.sequence.saturating_add(1);
        let count = self.variables.len();
        for at in (self.turn..count).chain(0..self.turn.min(count)) {
            let due = self.variables.get(at).filter(|variable| variable.is_due(now));
            if let Some(interval) = due.and_then(|variable| variable.ship(now, sequence, &mut buffer)) {
                self.figures.interval_ns = interval;
            }
        }
        self.turn = if self.turn + 1 < count { self.turn + 1 } else { 0 };
        let more = self.variables.iter().any(|variable| variable.waits());
        self.core.changed.set(more);
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

    /// What became of the changes so far, as of the last step.
    pub fn figures(&self) -> Figures {
        let now = self.core.now.get();
        Figures {
            late: self.variables.iter().any(|variable| variable.is_late(now)),
            unwritable: self.variables.iter().map(|variable| variable.unwritable()).sum(),
            ..self.figures
        }
    }

    /// Whether the store has every change.
    pub fn is_stored(&self) -> bool {
        self.variables.iter().all(|variable| variable.is_stored())
    }

    /// Steps until the store has every change, or `patience` is over; answers whether it has. For the end of a worker.
    pub fn finish(&mut self, patience: Duration) -> bool {
        let (began, now) = (Instant::now(), self.core.now.get());
        loop {
            let passed = began.elapsed();
            let passed_ns = u64::try_from(passed.as_nanos()).unwrap_or(u64::MAX);
            self.step(now.saturating_add(passed_ns));
            if self.is_stored() {
                return true;
            }
            if passed >= patience || self.figures.fenced {
                return false;
            }
            std::thread::sleep(Duration::from_micros(200));
        }
    }
}

/// A value that is all of `bytes`.
pub(crate) fn decoded<T: Stored>(bytes: &[u8]) -> Option<T> {
    match postcard::take_from_bytes(bytes) {
        Ok((value, [])) => Some(value),
        _ => None,
    }
}
