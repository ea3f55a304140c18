//! A function's variables on one worker, whatever their types: a carrier's source of changes.
//!
//! Nothing here waits, locks or allocates.

use crate::buffer::Buffer;
use crate::cells::{Cells, Key, Stored};
use crate::decoded;
use crate::open::Element;
use crate::stats::PartitionStats;
use crate::ticket::Progress;
use alloc::collections::BTreeMap;
use alloc::rc::Rc;
use alloc::vec::Vec;
use core::any::Any;
use core::cell::{Cell, OnceCell, RefCell};

/// How a variable is kept: which changes may be lost, and when.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Consistency {
    /// As the configuration says (`[store]`): without an interval there, every millisecond
    /// (FlexState III-C), at most a second late.
    #[default]
    Configured,
    /// The variable is in no store, and is gone with the process.
    Local,
    /// The store is told at this interval, in nanoseconds. A change that it does not have after
    /// `bound_ns` is an alarm ([`PartitionStats::late`]).
    Behind {
        /// How long changes are collected.
        interval_ns: u64,
        /// How old a change may become.
        bound_ns: u64,
    },
    /// The store is told at once, and a packet whose call has changed the variable waits until the
    /// store has that ([`crate::through`]).
    Through {
        /// How old a change may become.
        bound_ns: u64,
    },
}

/// The configuration's setting for one variable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Said {
    /// It is in no store.
    Local,
    /// It is in the store.
    Kept {
        /// How long changes are collected, in nanoseconds; 0: the store is told at once. `None`: as
        /// its function says.
        interval_ns: Option<u64>,
        /// How old a change may become, in nanoseconds. `None`: as its function says.
        bound_ns: Option<u64>,
    },
    /// It is in the store before the packet that changed it goes on.
    Through {
        /// As with `Kept`.
        bound_ns: Option<u64>,
    },
}

/// How old a change may become where nothing else is said, in nanoseconds.
pub const BOUND_NS: u64 = 1_000_000_000;
/// How long changes are collected where nothing else is said, in nanoseconds.
pub const INTERVAL_NS: u64 = 1_000_000;

impl Consistency {
    /// Every so many nanoseconds, with the usual bound.
    pub const USUAL: Consistency = Consistency::Behind {
        interval_ns: INTERVAL_NS,
        bound_ns: BOUND_NS,
    };

    /// Before the packet goes on, with the usual bound.
    pub const THROUGH: Consistency = Consistency::Through { bound_ns: BOUND_NS };

    /// The same, or `configured` where it leaves that to the configuration.
    pub fn or(self, configured: Consistency) -> Consistency {
        match self {
            Consistency::Configured => configured,
            said => said,
        }
    }

    /// The same, or the configuration's setting for this variable, which is stronger than its
    /// function's; `configured` is its setting for the whole function.
    pub fn told(self, said: Option<Said>, configured: Consistency) -> Consistency {
        let usual = match (self, said) {
            // It is in no store by its function's choice, which the configuration takes back.
            (Consistency::Local, Some(_)) => configured,
            (own, _) => own.or(configured),
        };
        let bound = |said: Option<u64>| said.unwrap_or(usual.bound_ns());
        match (said, usual) {
            (None, _) => usual,
            (Some(Said::Local), _) => Consistency::Local,
            (Some(Said::Through { bound_ns }), _)
            | (
                Some(Said::Kept {
                    interval_ns: None,
                    bound_ns,
                }),
                Consistency::Through { .. },
            ) => Consistency::Through {
                bound_ns: bound(bound_ns),
            },
            (
                Some(Said::Kept {
                    interval_ns,
                    bound_ns,
                }),
                _,
            ) => Consistency::Behind {
                interval_ns: interval_ns.unwrap_or(usual.interval_ns()),
                bound_ns: bound(bound_ns),
            },
        }
    }

    /// How long changes are collected.
    pub fn interval_ns(self) -> u64 {
        match self {
            Consistency::Local => u64::MAX,
            Consistency::Behind { interval_ns, .. } => interval_ns,
            Consistency::Configured => INTERVAL_NS,
            Consistency::Through { .. } => 0,
        }
    }

    /// How old a change may become.
    pub fn bound_ns(self) -> u64 {
        match self {
            Consistency::Local => u64::MAX,
            Consistency::Behind { bound_ns, .. } | Consistency::Through { bound_ns } => bound_ns,
            Consistency::Configured => BOUND_NS,
        }
    }
}

/// Different intervals of one partition's variables whose changes are kept together.
const INTERVALS: usize = 8;

/// How a variable is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// The most elements of a collection. Memory for them, and for as many removed ones, is taken
    /// when it is opened.
    pub capacity: usize,
    /// How it is kept.
    pub consistency: Consistency,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            capacity: 1024,
            consistency: Consistency::Configured,
        }
    }
}

/// The parts that variables of a partition share.
#[derive(Default)]
pub(crate) struct Core {
    now: Rc<Cell<u64>>,
    changed: Cell<bool>,
    /// No interval is waited for.
    hurries: Cell<bool>,
}

/// A variable as its handles and its partition share it.
pub(crate) struct Inner<K, V> {
    pub cells: RefCell<Cells<K, V>>,
    pub progress: Rc<Progress>,
    /// A type's own part of a variable: a list's front, the order of timers.
    pub extra: OnceCell<Rc<dyn Any>>,
    /// Elements came by another way than this type's calls: the type's own part is to be made
    /// again.
    pub renewed: Cell<bool>,
    /// Elements that are here and not this partition's yet, as they came: timers that another
    /// partition may still turn out to have.
    held: RefCell<BTreeMap<Vec<u8>, Vec<u8>>>,
    core: Rc<Core>,
    cut: Cell<u64>,
    number: u32,
    consistency: Cell<Consistency>,
}

impl<K: Key, V: Stored> Inner<K, V> {
    /// With the store's elements. `consistency` is a resolved one.
    pub fn new(shelf: &Shelf, number: u32, cells: Cells<K, V>, consistency: Consistency) -> Rc<Self> {
        Rc::new(Inner {
            cells: RefCell::new(cells),
            progress: Progress::new(Rc::clone(&shelf.core.now)),
            extra: OnceCell::new(),
            renewed: Cell::new(false),
            held: RefCell::default(),
            core: Rc::clone(&shelf.core),
            cut: Cell::new(0),
            number,
            consistency: Cell::new(consistency),
        })
    }

    /// Something has changed: the store is to be told.
    pub fn note(&self) {
        if self.consistency.get() != Consistency::Local {
            self.core.changed.set(true);
        }
    }

    pub fn is_local(&self) -> bool {
        self.consistency.get() == Consistency::Local
    }

    /// Sets it from now on. A variable that is at the store stays there, and a variable that is not
    /// stays away: its handles do not change places.
    pub fn set_consistency(&self, consistency: Consistency) {
        self.consistency.set(consistency);
    }

    /// Whether an element is here and not this partition's yet: it is as it came.
    pub fn is_held(&self, key: &K, value: &V) -> bool {
        let Ok(held) = self.held.try_borrow() else {
            return false;
        };
        if held.is_empty() {
            return false;
        }
        let came = postcard::to_allocvec(key).ok().and_then(|field| held.get(&field));
        came.is_some_and(|came| postcard::to_allocvec(value).is_ok_and(|value| value == *came))
    }

    fn first_waiting(&self) -> Option<u64> {
        self.cells.try_borrow().ok()?.waits_since()
    }
}

/// A variable, whatever its type.
pub(crate) trait Ship: Any {
    fn any(self: Rc<Self>) -> Rc<dyn Any>;
    fn is_due(&self, now: u64) -> bool;
    fn waits(&self) -> bool;
    /// Writes waiting changes into a batch; answers how long they were collected.
    fn ship(&self, now: u64, sequence: u64, into: &mut Buffer) -> Option<u64>;
    fn acknowledge(&self, sequence: u64) -> Option<u64>;
    fn spoil(&self);
    fn fence(&self);
    /// Since when the store lacks a change.
    fn oldest(&self) -> Option<u64>;
    fn consistency(&self) -> Consistency;
    fn waits_since(&self) -> Option<u64>;
    fn unwritable(&self) -> u64;
    fn is_stored(&self) -> bool;
    fn due_at(&self) -> Option<u64>;
    /// All elements, as a store has them. Allocates.
    fn elements(&self) -> Vec<Element>;
    /// Takes elements whose keys are not there; answers the elements that it did not take.
    /// Allocates.
    fn take_in(&self, elements: Vec<Element>) -> Vec<Element>;
    /// The same, and the new elements are held: a held timer does not fire until
    /// [`Ship::release_held`], or until its flow arms it otherwise. Allocates.
    fn hold(&self, elements: Vec<Element>) -> Vec<Element>;
    /// Held elements are this partition's from now on, or go, if they are still as they came.
    /// Allocates.
    fn release_held(&self, is_ours: bool);
    /// The number of the last change.
    fn changed(&self) -> u64;
    /// Whether the store has all changes up to this one; `None`: it will not.
    fn is_stored_up_to(&self, number: u64) -> Option<bool>;
    /// Removes all elements.
    fn empty(&self);
}

impl<K: Key, V: Stored> Ship for Inner<K, V> {
    fn any(self: Rc<Self>) -> Rc<dyn Any> {
        self
    }

    fn is_due(&self, now: u64) -> bool {
        if !self.waits() {
            // Changes since the last batch were taken back.
            self.progress.nothing_to_send();
            return false;
        }
        self.core.hurries.get() || now.saturating_sub(self.cut.get()) >= self.consistency.get().interval_ns()
    }

    fn waits(&self) -> bool {
        self.waits_since().is_some()
    }

    fn ship(&self, now: u64, sequence: u64, into: &mut Buffer) -> Option<u64> {
        // Its elements are being iterated over: not from within a step.
        let mut cells = self.cells.try_borrow_mut().ok()?;
        let used = into.changes();
        let (number, since) = cells.ship(self.number, into, &self.progress);
        let since = since.unwrap_or(now);
        if into.changes() == used {
            // Changes were taken back before the store heard of them, or there was no room.
            if !cells.waits() {
                self.progress.nothing_to_send();
            }
            return None;
        }
        self.progress.send(sequence, number, since);
        self.cut.set(now);
        Some(now.saturating_sub(since))
    }

    fn acknowledge(&self, sequence: u64) -> Option<u64> {
        let since = self.progress.acknowledge(sequence);
        if self.first_waiting().is_none() {
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

    fn oldest(&self) -> Option<u64> {
        self.progress.sent_since().or(self.waits_since())
    }

    fn consistency(&self) -> Consistency {
        self.consistency.get()
    }

    fn waits_since(&self) -> Option<u64> {
        self.first_waiting().filter(|_| !self.is_local())
    }

    fn unwritable(&self) -> u64 {
        self.cells.try_borrow().map_or(0, |cells| cells.unwritable())
    }

    fn is_stored(&self) -> bool {
        self.is_local() || self.progress.is_stored()
    }

    fn elements(&self) -> Vec<Element> {
        let Ok(cells) = self.cells.try_borrow() else {
            return Vec::new();
        };
        let encoded = cells.iter().filter_map(|(key, value)| {
            Some((
                postcard::to_allocvec(key).ok()?,
                postcard::to_allocvec(value).ok()?,
            ))
        });
        encoded.collect()
    }

    fn take_in(&self, elements: Vec<Element>) -> Vec<Element> {
        let Ok(mut cells) = self.cells.try_borrow_mut() else {
            return elements;
        };
        let take = |(field, value): &Element| {
            let (Some(key), Some(value)) = (decoded::<K>(field), decoded::<V>(value)) else {
                return false;
            };
            // This one's own stays.
            cells.get(&key).is_some() || cells.insert(&key, value, &self.progress).is_ok()
        };
        let (_, left): (Vec<Element>, Vec<Element>) = elements.into_iter().partition(take);
        self.renewed.set(true);
        self.note();
        left
    }

    fn hold(&self, elements: Vec<Element>) -> Vec<Element> {
        let Ok(mut cells) = self.cells.try_borrow_mut() else {
            return elements;
        };
        let mut held = self.held.borrow_mut();
        let mut hold = |(field, value): &Element| {
            let (Some(key), Some(known)) = (decoded::<K>(field), decoded::<V>(value)) else {
                return false;
            };
            if cells.get(&key).is_some() {
                return true;
            }
            let is_in = cells.insert(&key, known, &self.progress).is_ok();
            if is_in {
                held.insert(field.clone(), value.clone());
            }
            is_in
        };
        let (_, left): (Vec<Element>, Vec<Element>) = elements.into_iter().partition(|of| hold(of));
        // No held timer is in order: the order is to be made again.
        self.renewed.set(true);
        self.note();
        left
    }

    fn release_held(&self, is_ours: bool) {
        let held = core::mem::take(&mut *self.held.borrow_mut());
        let Ok(mut cells) = self.cells.try_borrow_mut() else {
            *self.held.borrow_mut() = held;
            return;
        };
        for (field, value) in held.iter().filter(|_| !is_ours) {
            let Some(key) = decoded::<K>(field) else { continue };
            let is_it = |has: &V| postcard::to_allocvec(has).is_ok_and(|has| has == *value);
            if cells.get(&key).is_some_and(is_it) {
                cells.remove(&key, &self.progress);
            }
        }
        self.renewed.set(true);
        self.note();
    }

    fn changed(&self) -> u64 {
        self.progress.changed()
    }

    fn is_stored_up_to(&self, number: u64) -> Option<bool> {
        let is_kept = !self.is_local() && !self.progress.is_fenced();
        is_kept.then(|| self.progress.stored() >= number)
    }

    fn empty(&self) {
        if let Ok(mut cells) = self.cells.try_borrow_mut() {
            cells.clear(&self.progress);
            self.renewed.set(true);
            self.note();
        }
    }

    fn due_at(&self) -> Option<u64> {
        let interval = self.consistency.get().interval_ns();
        self.waits().then(|| self.cut.get().saturating_add(interval))
    }
}

/// The variables of a partition, by their numbers.
#[derive(Default)]
pub struct Shelf {
    core: Rc<Core>,
    /// `None`: a number of a variable that was not opened in the end.
    variables: Vec<Option<Rc<dyn Ship>>>,
}

impl Shelf {
    pub(crate) fn put(&mut self, number: u32, variable: Rc<dyn Ship>) {
        let at = number as usize;
        if self.variables.len() <= at {
            self.variables.resize_with(at.saturating_add(1), || None);
        }
        if let Some(place) = self.variables.get_mut(at) {
            *place = Some(variable);
        }
    }

    pub(crate) fn get(&self, number: u32) -> Option<&Rc<dyn Ship>> {
        self.variables.get(number as usize)?.as_ref()
    }

    fn all(&self) -> impl Iterator<Item = &Rc<dyn Ship>> {
        self.variables.iter().flatten()
    }

    /// The time of the last step.
    pub fn now(&self) -> u64 {
        self.core.now.get()
    }

    /// Sets the time of now.
    pub fn set_now(&self, now: u64) {
        self.core.now.set(now);
    }

    /// Whether everything is due, whatever its interval.
    pub fn set_hurries(&self, hurries: bool) {
        self.core.hurries.set(hurries);
    }

    /// Whether something has changed that no batch has.
    pub fn has_changed(&self) -> bool {
        self.core.changed.get()
    }

    /// Whether a variable's interval is over.
    pub fn is_due(&self, now: u64) -> bool {
        let (mut is_due, mut waits) = (false, false);
        for variable in self.all() {
            is_due |= variable.is_due(now);
            waits |= variable.waits();
        }
        if !is_due {
            self.core.changed.set(waits);
        }
        is_due
    }

    /// When the first variable's interval is over.
    pub fn due_at(&self) -> Option<u64> {
        let due = self.all().filter_map(|variable| variable.due_at());
        self.has_changed().then(|| due.min()).flatten()
    }

    /// Writes due changes into a batch, beginning with the variable whose `turn` it is. Answers how
    /// long the last one's changes were collected.
    ///
    /// Variables that have one interval are written together, when it is over for one of them: a
    /// function's changes of them between two steps are in one batch, if they fit. A process that
    /// is killed between two batches would have a timer's effect without its removal.
    pub fn fill(&self, turn: usize, now: u64, sequence: u64, buffer: &mut Buffer) -> Option<u64> {
        let count = self.variables.len();
        let mut interval = None;
        let over = self.over(now);
        for at in (turn..count).chain(0..turn.min(count)) {
            let variable = self.variables.get(at).and_then(Option::as_ref);
            let due = variable.filter(|variable| {
                let interval = variable.consistency().interval_ns();
                variable.waits() && (over.contains(&interval) || variable.is_due(now))
            });
            interval = due
                .and_then(|variable| variable.ship(now, sequence, buffer))
                .or(interval);
        }
        let more = self.all().any(|variable| variable.waits());
        self.core.changed.set(more);
        interval
    }

    /// Intervals that are over for some variable, as far as there is room for them; a variable of
    /// any other goes by itself.
    fn over(&self, now: u64) -> [u64; INTERVALS] {
        // An interval that is never over.
        let mut over = [Consistency::Local.interval_ns(); INTERVALS];
        let mut free = 0..INTERVALS;
        for variable in self.all().filter(|variable| variable.is_due(now)) {
            let interval = variable.consistency().interval_ns();
            if !over.contains(&interval)
                && let Some(place) = free.next().and_then(|at| over.get_mut(at))
            {
                *place = interval;
            }
        }
        over
    }

    /// How many numbers there are.
    pub fn len(&self) -> usize {
        self.variables.len()
    }

    /// Whether there is no variable.
    pub fn is_empty(&self) -> bool {
        self.variables.is_empty()
    }

    /// The store has the batch; shows how old each variable's oldest change was.
    pub fn acknowledge(&self, sequence: u64, mut age: impl FnMut(u64)) {
        for variable in self.all() {
            if let Some(since) = variable.acknowledge(sequence) {
                age(self.now().saturating_sub(since));
            }
        }
    }

    /// The store has lost its content: everything is to be written again.
    pub fn spoil(&self) {
        self.all().for_each(|variable| variable.spoil());
    }

    /// Another instance has claimed the partition.
    pub fn fence(&self) {
        self.all().for_each(|variable| variable.fence());
    }

    /// Whether the store has every change.
    pub fn is_stored(&self) -> bool {
        self.all().all(|variable| variable.is_stored())
    }

    /// How old the oldest change of a variable is that the store does not have, and that variable's
    /// bound: of the variable that is furthest beyond its bound, or nearest to it.
    pub fn oldest(&self) -> Option<(u64, u64)> {
        let now = self.now();
        let ages = self.all().filter_map(|variable| {
            let age = now.saturating_sub(variable.oldest()?);
            Some((age, variable.consistency().bound_ns()))
        });
        ages.max_by_key(|(age, bound)| i128::from(*age) - i128::from(*bound))
    }

    fn kept(&self) -> impl Iterator<Item = Consistency> {
        let all = self.all().map(|variable| variable.consistency());
        all.filter(|consistency| *consistency != Consistency::Local)
    }

    /// Adds figures that only the variables know.
    pub fn complete(&self, figures: PartitionStats) -> PartitionStats {
        let now = self.now();
        let since = |times: &mut dyn Iterator<Item = u64>| times.min().map_or(0, |at| now.saturating_sub(at));
        let collected = since(&mut self.all().filter_map(|variable| variable.waits_since()));
        PartitionStats {
            late: self.oldest().is_some_and(|(age, bound)| age > bound),
            interval_ns: figures.interval_ns.max(collected),
            interval_set_ns: self.kept().map(Consistency::interval_ns).min().unwrap_or(0),
            oldest_ns: since(&mut self.all().filter_map(|variable| variable.oldest())),
            bound_ns: self.kept().map(Consistency::bound_ns).min().unwrap_or(0),
            unwritable: self.all().map(|variable| variable.unwritable()).sum(),
            ..figures
        }
    }
}
