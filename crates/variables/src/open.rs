//! Opening variables: the handles of a function, and the partitions of a worker.
//!
//! # Theory of operation
//!
//! ```text
//!   control thread                                             worker
//!   Keeper ── Variables of a function ── its handles ────────► moved there with the functions
//!     │          └─ Partition: shelf, carrier ───────────────► WorkerVariables, stepped
//!     └─ books: which numbers a partition's variables have
//!
//!   a changed configuration
//!   Keeper ── Variables, following ── handles without copy ──► adopt: the partition stays at the worker,
//!                                                              new handles get the copies that are there
//! ```
//!
//! A partition belongs to its worker, not to one generation of its function: so a new instance
//! claims nothing, and fences nothing. Variables that it opens and that were not open before are
//! loaded where the instance is made, away from the worker.
//!
//! A handle has no copy while its instance is prepared ([`crate::Refusal::Early`]); it has one when
//! `take_over` is called.
//!
//! Invariants: a variable has one number for the partition's life
//! (`a_changed_function_goes_on_with_its_variables`); handles of both generations see the adopted
//! variables; reference counts are touched by one thread at a time, since handles and partition
//! move together.

use crate::cells::{Cells, Key, Stored};
use crate::locks::Locking;
use crate::merged::{Merger, Merging};
use crate::pending::{Bind, Pending};
use crate::shelf::{Consistency, Options, Said, Shelf, Ship};
use crate::stats::PartitionStats;
use crate::table::{Counter, CounterMap, List, Map, Set, Slot, Timers, Value};
use crate::through::{Kept, THROUGH_MAX, Through};
use crate::{Kind, decoded};
use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::rc::Rc;
use alloc::string::{String, ToString};
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::any::TypeId;
use core::mem;
use core::sync::atomic::{AtomicBool, Ordering};
use core::time::Duration;
use spin::Mutex;

/// A field and its value, as a store has them.
pub type Element = (Vec<u8>, Vec<u8>);

/// Why a variable cannot be opened.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OpenError {
    /// The store does not do it.
    #[error("{0}")]
    Store(String),
    /// The function has it already.
    #[error("{0} is opened twice; open it once, or give one of the two another name")]
    Twice(String),
    /// The variable has another type at the store, or had one at the instance before.
    #[error("{0} at the store is no {1}; give the variable another name, or remove it there")]
    Other(String, &'static str),
    /// The store has more.
    #[error("{0} has {1} elements at the store and a capacity of {2}; give it a larger one")]
    Capacity(String, usize, usize),
    /// A changed configuration wants more or less of a variable that is open.
    #[error("{0} has a capacity of {1} and cannot get one of {2} while it is open; restart")]
    Resized(String, usize, usize),
    /// A packet would wait for more than it has room to remember.
    #[error("{0} is written through, as {THROUGH_MAX} others are, and no more can be; write it behind")]
    Through(String),
    /// More variables than there are numbers.
    #[error("a function has too many variables; use a map")]
    Many,
}

/// Takes a partition's changes to its store: a worker has it.
pub trait Carrier: Send {
    /// The time by which changes are dated, where the worker's is `now`.
    fn time(&self, now: u64) -> u64;
    /// A step of the worker's loop, `now` in nanoseconds of any clock that does not go back.
    fn step(&mut self, shelf: &Shelf, now: u64);
    /// Steps until the store has every change, or `patience` is over; answers whether it has. For
    /// the end of a worker.
    fn finish(&mut self, shelf: &Shelf, patience: Duration) -> bool;
    /// The fate of the changes so far.
    fn figures(&self) -> PartitionStats;
    /// When a step has something to do, by the clock of the steps.
    fn next_at(&self, shelf: &Shelf) -> Option<u64>;
}

/// Reads a store's content of a partition: away from the worker.
pub trait Loader: Send + Sync {
    /// All elements of a variable, which has this number from now on. Of a variable that is not
    /// kept there is nothing to be read.
    fn load(&self, number: u32, kind: Kind, name: &str, is_kept: bool) -> Result<Vec<Element>, OpenError>;
    /// The consistency of a variable that leaves it to the configuration.
    fn consistency(&self) -> Consistency;
    /// The configuration's setting for the variables of this name, if it has one.
    fn said(&self, name: &str) -> Option<Said> {
        let _ = name;
        None
    }
    /// The partition as messages name it.
    fn name(&self) -> String;
    /// Has a merge of the whole function's variable made, on a cycle and when it is asked for.
    /// `None`: there are no merges here.
    fn merge(&self, merging: Box<dyn Merging>) -> Result<Option<Arc<dyn Merger>>, OpenError> {
        drop(merging);
        Ok(None)
    }
    /// Has a lock of the function's taken when it is wanted. `None`: there are no locks here.
    fn lock(&self, locking: Box<dyn Locking>) -> Result<Option<Arc<dyn Merger>>, OpenError> {
        drop(locking);
        Ok(None)
    }
}

/// Where partitions come from: a store.
pub trait Source: Send + Sync {
    /// Claims a function's partition at a runtime. `None`: this function's variables are in no
    /// store.
    fn open(&self, function: &str, runtime: u32) -> Result<Option<Claimed>, OpenError>;
    /// Timers of a function, in variables of these names, that runtimes of this member have left
    /// which are not among those that it begins with. From here on no earlier process changes them.
    fn left(&self, function: &str, names: &[String], begins: &[u32]) -> Result<Vec<Left>, OpenError> {
        let _ = (function, names, begins);
        Ok(Vec::new())
    }
    /// Removes timers from where they were left.
    fn remove_left(&self, function: &str, left: &Left) -> Result<(), OpenError> {
        let _ = (function, left);
        Ok(())
    }
}

/// Timers that a runtime has left, which is not there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Left {
    /// The runtime's number.
    pub runtime: u32,
    /// The variable's name.
    pub name: String,
    /// The timers, as a store has them.
    pub timers: Vec<Element>,
}

/// A partition that has been claimed: the worker's side, and the control side.
pub type Claimed = (Box<dyn Carrier>, Arc<dyn Loader>);

struct Entry {
    kind: Kind,
    name: String,
    types: TypeId,
    capacity: usize,
    /// Whether the worker has it.
    is_open: bool,
}

/// Which variables a partition has. Of the control side; the worker looks into it when it adopts.
pub(crate) struct Catalog {
    pub(crate) loader: Option<Arc<dyn Loader>>,
    /// Whether a worker has the partition.
    is_there: AtomicBool,
    entries: Mutex<Vec<Entry>>,
}

impl Catalog {
    fn mark_open(&self, number: u32) {
        if let Some(entry) = self.entries.lock().get_mut(number as usize) {
            entry.is_open = true;
        }
    }

    /// The next variable may have this number, if none has come since: the store may know nothing
    /// of the variable that had it, and takes numbers one after another.
    fn free(&self, number: u32) {
        let mut entries = self.entries.lock();
        if entries.len() == (number as usize).saturating_add(1) {
            entries.pop();
        }
    }
}

type Catalogs = BTreeMap<(String, u32), Arc<Catalog>>;

/// Where the variables of a cluster's functions are kept. A process has one for all its workers,
/// handed on from configuration to configuration.
#[derive(Clone, Default)]
pub struct Keeper(Arc<Inside>);

#[derive(Default)]
struct Inside {
    source: Option<Box<dyn Source>>,
    catalogs: Mutex<Catalogs>,
}

impl core::fmt::Debug for Keeper {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let kept = if self.0.source.is_some() {
            "a store"
        } else {
            "no store"
        };
        write!(f, "Keeper({kept})")
    }
}

impl Keeper {
    /// Variables are in a store, as far as it takes them.
    pub fn of(source: Box<dyn Source>) -> Self {
        Keeper(Arc::new(Inside {
            source: Some(source),
            catalogs: Mutex::default(),
        }))
    }

    /// For an instance of a function at a runtime, which begins.
    pub fn begin(&self, function: &str, runtime: u32) -> Variables {
        Variables {
            keeper: self.clone(),
            function: function.to_string(),
            runtime,
            begun: None,
            follows: None,
            is_following: false,
            opened: Vec::new(),
            through: Vec::new(),
        }
    }

    /// The variables of an instance that is to replace the runtime's instance.
    pub fn follow(&self, function: &str, runtime: u32) -> Variables {
        let catalogs = self.0.catalogs.lock();
        let catalog = catalogs.get(&(function.to_string(), runtime)).cloned();
        drop(catalogs);
        let catalog = catalog.filter(|catalog| catalog.is_there.load(Ordering::Acquire));
        Variables {
            follows: catalog.map(|catalog| (catalog, Vec::new())),
            is_following: true,
            ..self.begin(function, runtime)
        }
    }

    /// Timers of a function that runtimes of this member have left ([`Source::left`]).
    pub fn left(&self, function: &str, names: &[String], begins: &[u32]) -> Result<Vec<Left>, OpenError> {
        match &self.0.source {
            Some(source) if !names.is_empty() => source.left(function, names, begins),
            _ => Ok(Vec::new()),
        }
    }

    /// Removes timers from where they were left.
    pub fn remove_left(&self, function: &str, left: &Left) -> Result<(), OpenError> {
        let source = self.0.source.as_deref();
        source.map_or(Ok(()), |source| source.remove_left(function, left))
    }

    fn claim(&self, function: &str, runtime: u32) -> Result<Partition, OpenError> {
        let source = self.0.source.as_deref();
        let claimed = source.map(|source| source.open(function, runtime)).transpose()?;
        Ok(Partition::of(claimed.flatten()))
    }
}

/// A function's variables on one runtime, as the worker has them.
pub struct Partition {
    shelf: Shelf,
    carrier: Option<Box<dyn Carrier>>,
    catalog: Arc<Catalog>,
}

impl Partition {
    fn of(claimed: Option<Claimed>) -> Self {
        let (carrier, loader) = claimed.unzip();
        Partition {
            shelf: Shelf::default(),
            carrier,
            catalog: Arc::new(Catalog {
                loader,
                is_there: AtomicBool::new(true),
                entries: Mutex::default(),
            }),
        }
    }

    /// Changes from here on are dated now.
    pub fn begin(&mut self, now: u64) {
        let time = self.carrier.as_ref().map_or(now, |carrier| carrier.time(now));
        self.shelf.set_now(time);
    }

    /// A step of the worker's loop, `now` in nanoseconds of any clock that does not go back.
    pub fn step(&mut self, now: u64) {
        match &mut self.carrier {
            Some(carrier) => carrier.step(&self.shelf, now),
            None => self.shelf.set_now(now),
        }
    }

    /// The fate of the changes so far, as of the last step.
    pub fn figures(&self) -> PartitionStats {
        let figures = self.carrier.as_ref().map(|carrier| carrier.figures());
        self.shelf.complete(figures.unwrap_or_default())
    }

    /// Whether the store has every change.
    pub fn is_stored(&self) -> bool {
        self.shelf.is_stored()
    }

    /// The timers' variables: numbers and names.
    fn timers(&self) -> Vec<(u32, String)> {
        let entries = self.catalog.entries.lock();
        let timers = (0..)
            .zip(entries.iter())
            .filter(|(_, entry)| entry.kind == Kind::Timers);
        timers
            .map(|(number, entry)| (number, entry.name.clone()))
            .collect()
    }

    fn variable(&self, timers: &str) -> Option<&Rc<dyn Ship>> {
        let (number, _) = self.timers().into_iter().find(|(_, name)| name == timers)?;
        self.shelf.get(number)
    }

    /// Steps until the store has every change, or `patience` is over; answers whether it has. For
    /// the end of a worker.
    pub fn finish(&mut self, patience: Duration) -> bool {
        match &mut self.carrier {
            Some(carrier) => carrier.finish(&self.shelf, patience),
            None => true,
        }
    }
}

/// The partition's variables, and the handles bound to them.
type Bindings = (Arc<Catalog>, Vec<Box<dyn Bind>>);

/// Opens the variables of a function's instance: handed to `NetworkFunction::with_variables`.
pub struct Variables {
    keeper: Keeper,
    function: String,
    runtime: u32,
    begun: Option<Partition>,
    follows: Option<Bindings>,
    /// Whether it is for an instance that replaces another.
    is_following: bool,
    /// Numbers of the variables that this instance has opened.
    opened: Vec<u32>,
    /// The variables that are written through.
    through: Vec<Rc<dyn Kept>>,
}

impl Variables {
    /// Variables that are in no store: for tests, and where settings are only checked.
    pub fn local() -> Self {
        Keeper::default().begin("", 0)
    }

    /// Of a partition that has been claimed.
    pub fn claimed(carrier: Box<dyn Carrier>, loader: Arc<dyn Loader>) -> Self {
        Variables {
            begun: Some(Partition::of(Some((carrier, loader)))),
            ..Variables::local()
        }
    }

    /// The partition, where one has begun.
    pub fn partition(&mut self) -> Option<&mut Partition> {
        self.begun.as_mut()
    }

    /// The names of all variables of the partition, in the order in which they were first opened.
    pub fn names(&self) -> Vec<String> {
        let Some(partition) = &self.begun else {
            return Vec::new();
        };
        let entries = partition.catalog.entries.lock();
        entries.iter().map(|entry| entry.name.clone()).collect()
    }

    /// The changes that this instance's packets wait for; `None`: for nothing.
    pub fn through(&self) -> Option<Through> {
        (!self.through.is_empty()).then(|| Through(self.through.clone()))
    }

    /// The variables that an instance has opened: for the worker.
    fn into_part(self) -> Option<Part> {
        match (self.begun, self.follows) {
            (Some(partition), _) => Some(Part::Begun(partition)),
            (None, Some((_, pending))) if !pending.is_empty() => Some(Part::Follows(pending)),
            _ => None,
        }
    }

    /// The partition's, which is claimed where none has been.
    pub(crate) fn catalog(&mut self) -> Result<Arc<Catalog>, OpenError> {
        if self.follows.is_none() && self.begun.is_none() {
            self.begun = Some(self.keeper.claim(&self.function, self.runtime)?);
        }
        match (&self.begun, &self.follows) {
            (Some(partition), _) => Ok(Arc::clone(&partition.catalog)),
            (None, Some((catalog, _))) => Ok(Arc::clone(catalog)),
            (None, None) => Err(OpenError::Many),
        }
    }

    pub(crate) fn open<K: Key, V: Stored>(
        &mut self,
        kind: Kind,
        name: &str,
        options: Options,
    ) -> Result<Rc<Slot<K, V>>, OpenError> {
        let catalog = self.catalog()?;
        let shown = || match &catalog.loader {
            Some(loader) => alloc::format!("{}@{kind}@{name}", loader.name()),
            None => alloc::format!("{kind} `{name}`"),
        };
        let types = TypeId::of::<(K, V)>();
        let (number, is_open, is_new) = {
            let mut entries = catalog.entries.lock();
            let known = entries
                .iter_mut()
                .enumerate()
                .find(|(_, entry)| (entry.kind, &*entry.name) == (kind, name));
            match known {
                Some((at, entry)) => {
                    let number = u32::try_from(at).map_err(|_| OpenError::Many)?;
                    if self.opened.contains(&number) {
                        return Err(OpenError::Twice(shown()));
                    }
                    if entry.is_open && entry.types != types {
                        return Err(OpenError::Other(shown(), core::any::type_name::<(K, V)>()));
                    }
                    if entry.is_open && entry.capacity != options.capacity {
                        return Err(OpenError::Resized(shown(), entry.capacity, options.capacity));
                    }
                    (entry.types, entry.capacity) = (types, options.capacity);
                    (number, entry.is_open, false)
                }
                None => {
                    let number = u32::try_from(entries.len()).map_err(|_| OpenError::Many)?;
                    entries.push(Entry {
                        kind,
                        name: name.to_string(),
                        types,
                        capacity: options.capacity,
                        is_open: false,
                    });
                    (number, false, true)
                }
            }
        };
        let consistency = match &catalog.loader {
            Some(loader) => options.consistency.told(loader.said(name), loader.consistency()),
            None => Consistency::Local,
        };
        let cells = if is_open {
            None
        } else {
            let mut cells = Cells::new(options.capacity);
            if let Some(loader) = &catalog.loader {
                let loaded = loader.load(number, kind, name, consistency != Consistency::Local);
                if loaded.is_err() && is_new {
                    catalog.free(number);
                }
                let elements = loaded?;
                for (field, value) in &elements {
                    let wrong = || OpenError::Other(shown(), core::any::type_name::<(K, V)>());
                    let key = decoded::<K>(field).ok_or_else(wrong)?;
                    let value = decoded::<V>(value).ok_or_else(wrong)?;
                    if cells.load(key, value).is_err() {
                        return Err(OpenError::Capacity(shown(), elements.len(), options.capacity));
                    }
                }
            }
            Some(cells)
        };
        let slot = Rc::new(Slot::default());
        if matches!(consistency, Consistency::Through { .. }) {
            if self.through.len() == THROUGH_MAX {
                return Err(OpenError::Through(shown()));
            }
            self.through.push(Rc::clone(&slot) as Rc<dyn Kept>);
        }
        let pending = Box::new(Pending {
            slot: Rc::clone(&slot),
            number,
            consistency,
            cells,
        });
        match (&mut self.begun, &mut self.follows) {
            (Some(partition), _) => {
                pending.bind(&mut partition.shelf);
                catalog.mark_open(number);
            }
            (None, Some((_, all))) => all.push(pending),
            (None, None) => {}
        }
        self.opened.push(number);
        Ok(slot)
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
}

/// Timers of a function on a runtime that goes, on their way to another runtime.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Handed {
    /// The function's number in the plan.
    pub function: usize,
    /// The variable's name.
    pub name: String,
    /// The timers, as a store has them.
    pub timers: Vec<Element>,
}

enum Part {
    Begun(Partition),
    Follows(Vec<Box<dyn Bind>>),
}

/// The variables of all functions of a worker, by the functions' numbers in the plan.
#[derive(Default)]
pub struct WorkerVariables {
    parts: Vec<(usize, Part)>,
    /// Whether some are in a store.
    is_carried: bool,
    /// Functions whose variables another has taken over.
    adopted: Vec<usize>,
}

impl WorkerVariables {
    /// Takes the variables that a function's instance has opened.
    pub fn take(&mut self, function: usize, variables: Variables) {
        let (keeper, key) = (
            variables.keeper.clone(),
            (variables.function.clone(), variables.runtime),
        );
        let is_there = !variables.is_following;
        let Some(part) = variables.into_part() else {
            return;
        };
        if let Part::Begun(partition) = &part {
            self.is_carried |= partition.carrier.is_some();
            partition.catalog.is_there.store(is_there, Ordering::Release);
            keeper
                .0
                .catalogs
                .lock()
                .insert(key, Arc::clone(&partition.catalog));
        }
        self.parts.push((function, part));
    }

    /// Takes over the partitions of the instances before, and binds the new instances' handles to
    /// their variables.
    pub fn adopt(&mut self, before: &mut WorkerVariables) {
        let mut parts = mem::take(&mut before.parts);
        before.adopted = parts.iter().map(|(function, _)| *function).collect();
        self.is_carried |= mem::take(&mut before.is_carried);
        for (function, new) in mem::take(&mut self.parts) {
            match new {
                Part::Begun(partition) => {
                    partition.catalog.is_there.store(true, Ordering::Release);
                    // An earlier partition was detached.
                    parts.retain(|(number, _)| *number != function);
                    parts.push((function, Part::Begun(partition)));
                }
                Part::Follows(pending) => {
                    let there = parts.iter_mut().find_map(|(number, part)| match part {
                        Part::Begun(partition) if *number == function => Some(partition),
                        _ => None,
                    });
                    if let Some(partition) = there {
                        for handle in pending {
                            partition.catalog.mark_open(handle.number());
                            handle.bind(&mut partition.shelf);
                        }
                    }
                }
            }
        }
        self.parts = parts;
    }

    fn partitions(&self) -> impl Iterator<Item = (usize, &Partition)> {
        self.parts.iter().filter_map(|(function, part)| match part {
            Part::Begun(partition) => Some((*function, partition)),
            Part::Follows(_) => None,
        })
    }

    fn partitions_mut(&mut self) -> impl Iterator<Item = &mut Partition> {
        self.parts.iter_mut().filter_map(|(_, part)| match part {
            Part::Begun(partition) => Some(partition),
            Part::Follows(_) => None,
        })
    }

    /// Whether another has taken this function's variables over: its handles are to be dropped at
    /// the worker.
    pub fn was_adopted(&self, function: usize) -> bool {
        self.adopted.contains(&function)
    }

    /// Whether no function has variables.
    pub fn is_empty(&self) -> bool {
        self.parts.is_empty()
    }

    /// A step of the worker's loop begins: changes from here on are dated now, however long ago the
    /// last step was.
    #[inline]
    pub fn begin(&mut self, now: u64) {
        if self.is_carried {
            self.partitions_mut().for_each(|partition| partition.begin(now));
        }
    }

    /// A step of the worker's loop: its end.
    #[inline]
    pub fn step(&mut self, now: u64) {
        if self.is_carried {
            self.partitions_mut().for_each(|partition| partition.step(now));
        }
    }

    /// When a step has something to do, by the clock of the steps.
    pub fn next_at(&self) -> Option<u64> {
        let due = self.partitions().filter_map(|(_, partition)| {
            let carrier = partition.carrier.as_ref()?;
            carrier.next_at(&partition.shelf)
        });
        due.min()
    }

    /// The names of the variables that have timers, by the functions' numbers.
    pub fn timer_names(&self) -> Vec<(usize, Vec<String>)> {
        // A variable that is in no store, or in a store that another process has claimed, takes no
        // timers over.
        let is_kept = |variable: &Rc<dyn Ship>| variable.is_stored_up_to(0).is_some();
        let names = |of: &Partition| {
            let mut all = of.timers();
            all.retain(|(number, _)| of.shelf.get(*number).is_none_or(is_kept));
            all.into_iter().map(|(_, name)| name).collect()
        };
        self.partitions()
            .map(|(function, partition)| (function, names(partition)))
            .collect()
    }

    /// All timers, to be handed over: for a worker that has ended.
    pub fn timers(&self) -> Vec<Handed> {
        let of = |(function, partition): (usize, &Partition)| -> Vec<Handed> {
            let all = partition.timers().into_iter();
            let handed = |(number, name)| Handed {
                function,
                name,
                timers: partition
                    .shelf
                    .get(number)
                    .map_or_else(Vec::new, |variable| variable.elements()),
            };
            all.map(handed)
                .filter(|handed| !handed.timers.is_empty())
                .collect()
        };
        self.partitions().flat_map(of).collect()
    }

    /// Arms timers of another runtime; answers those for which there was no room, or no such
    /// variable.
    pub fn take_in(&self, handed: Vec<Handed>) -> Vec<Handed> {
        let take = |mut handed: Handed| {
            let mut partitions = self.partitions();
            let partition = partitions.find(|(function, _)| *function == handed.function);
            if let Some(variable) = partition.and_then(|(_, partition)| partition.variable(&handed.name)) {
                handed.timers = variable.take_in(handed.timers);
            }
            handed
        };
        let left = handed.into_iter().map(take);
        left.filter(|handed| !handed.timers.is_empty()).collect()
    }

    /// Removes all timers but these: the others are armed elsewhere.
    pub fn keep_timers(&self, left: Vec<Handed>) {
        for (_, partition) in self.partitions() {
            let numbers = partition.timers().into_iter();
            numbers
                .filter_map(|(number, _)| partition.shelf.get(number))
                .for_each(|variable| variable.empty());
        }
        self.take_in(left);
    }

    fn timers_of(&self, function: usize, name: &str) -> Option<&Rc<dyn Ship>> {
        let mut partitions = self.partitions();
        let (_, partition) = partitions.find(|(number, _)| *number == function)?;
        partition.variable(name)
    }

    /// Takes timers of another partition in, and holds them: none of them is due before
    /// [`WorkerVariables::release_timers`]. Answers the timers for which there was no room, and the
    /// number of the change with which the store has the others
    /// ([`WorkerVariables::are_timers_stored`]). `None`: there is no such variable.
    pub fn hold_timers(
        &self,
        function: usize,
        name: &str,
        timers: Vec<Element>,
    ) -> Option<(Vec<Element>, u64)> {
        let variable = self.timers_of(function, name)?;
        let left = variable.hold(timers);
        Some((left, variable.changed()))
    }

    /// Lets timers go that were held: they are this partition's from now on and fire, or are
    /// removed again, as far as the function has not armed them otherwise. Answers the number of
    /// the change. `None`: there is no such variable.
    pub fn release_timers(&self, function: usize, name: &str, are_ours: bool) -> Option<u64> {
        let variable = self.timers_of(function, name)?;
        variable.release_held(are_ours);
        Some(variable.changed())
    }

    /// Whether the store has all changes of these timers up to this one. `None`: there is no such
    /// variable, or the store will not have them.
    pub fn are_timers_stored(&self, function: usize, name: &str, number: u64) -> Option<bool> {
        let variable = self.timers_of(function, name)?;
        variable.is_stored_up_to(number)
    }

    /// Whether the store has every change.
    pub fn is_stored(&self) -> bool {
        self.partitions().all(|(_, partition)| partition.is_stored())
    }

    /// Steps until the store has every change, or `patience` is over; answers whether it has. For
    /// the end of a worker.
    pub fn finish(&mut self, patience: Duration) -> bool {
        let mut done = true;
        self.partitions_mut()
            .for_each(|partition| done &= partition.finish(patience));
        done
    }

    /// The fate of the changes so far, by the functions' numbers, of partitions in a store.
    pub fn figures(&self) -> Vec<(usize, PartitionStats)> {
        let carried = self
            .partitions()
            .filter(|(_, partition)| partition.carrier.is_some());
        carried
            .map(|(function, partition)| (function, partition.figures()))
            .collect()
    }
}
