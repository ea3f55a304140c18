//! The variables that a function works with, one file each.
//!
//! A handle is cheap to clone and belongs to one worker. Its calls answer at once, from the local
//! copy. `stored()` is the call that waits: it answers a [`Ticket`] that is over when the store has
//! every change so far.
//!
//! ```
//! use flowkeep_variables::{OpenError, Options, Variables};
//! let mut variables = Variables::local();                              // a function is handed one
//! let packets = variables.counter("packets", Options::default())?;     // once
//! assert_eq!(packets.add(1), 1);                                       // per packet, no wait
//! let ticket = packets.stored();                                       // to be awaited, where the packet must
//! assert_eq!(ticket.state(), Some(Ok(())));                            // nothing to wait for without a store
//! # Ok::<(), OpenError>(())
//! ```
//!
//! The four words of the paper (FlexState III-A: create, read, update, delete) here:
//!
//! | | create, update | read | delete |
//! |---|---|---|---|
//! | [`Value`] | `set`, `update` | `get` | `delete` |
//! | [`Counter`] | `set`, `add` | `get` | `delete` |
//! | [`List`] | `push_back`, `push_front`, `extend`, `set`, `update`, `swap`, `insert` | `get`, `front`, `back`, `contains`, `position`, `any`, `find_map`, `for_each` | `pop_front`, `pop_back`, `remove`, `retain`, `truncate`, `clear` |
//! | [`Set`] | `insert` | `contains`, `is_subset`, `any`, `find_map`, `for_each` | `remove`, `retain`, `clear` |
//! | [`Map`] | `insert`, `update` | `get`, `any`, `find_map`, `for_each` | `remove`, `retain`, `clear` |
//! | [`CounterMap`] | `set`, `add` | `get`, `any`, `find_map`, `for_each` | `remove`, `retain`, `clear` |
//! | [`Timers`] | `arm` | `len`, `next_at` | `cancel`, `fire` |
//!
//! A call that would exceed a bound changes nothing and says so ([`Refusal`]).

pub use crate::counter::Counter;
pub use crate::counter_map::CounterMap;
pub use crate::list::List;
pub use crate::map::Map;
pub use crate::set::Set;
pub use crate::timers::Timers;
pub use crate::value::Value;

use crate::Kind;
use crate::cells::{Cells, Key, Near, Refusal, Stored};
use crate::open::{OpenError, Variables};
use crate::shelf::{Inner, Options};
use crate::ticket::Ticket;
use alloc::rc::Rc;
use alloc::vec::Vec;
use core::any::Any;
use core::cell::OnceCell;

/// Where a handle finds its variable, once it is there.
pub(crate) struct Slot<K, V>(OnceCell<Rc<Inner<K, V>>>);

impl<K, V> Default for Slot<K, V> {
    fn default() -> Self {
        Slot(OnceCell::new())
    }
}

impl<K, V> Slot<K, V> {
    pub fn bind(&self, inner: Rc<Inner<K, V>>) {
        // A slot is bound once, by what pends for it.
        let _ = self.0.set(inner);
    }

    #[inline]
    pub fn inner(&self) -> Option<&Inner<K, V>> {
        self.0.get().map(|inner| &**inner)
    }
}

/// The base of all variables: a table from key to value.
pub(crate) struct Table<K, V>(Rc<Slot<K, V>>);

impl<K, V> Clone for Table<K, V> {
    fn clone(&self) -> Self {
        Table(Rc::clone(&self.0))
    }
}

impl<K: Key, V: Stored> Table<K, V> {
    pub fn open(
        variables: &mut Variables,
        kind: Kind,
        name: &str,
        options: Options,
    ) -> Result<Self, OpenError> {
        variables.open(kind, name, options).map(Table)
    }

    #[inline]
    fn inner(&self) -> Option<&Inner<K, V>> {
        self.0.inner()
    }

    /// The type's own part of the variable, made when it is first asked for; `None` where the
    /// variable is not there yet.
    pub fn extra<T: Any>(&self, make: impl FnOnce() -> T) -> Option<&T> {
        let extra = self.inner()?.extra.get_or_init(|| Rc::new(make()));
        extra.downcast_ref()
    }

    /// Whether elements came or went by another way than this type's calls, since this was asked
    /// last.
    pub fn take_renewed(&self) -> bool {
        self.inner().is_some_and(|inner| inner.renewed.take())
    }

    /// Whether an element is here and not this partition's yet: it is as it came.
    pub fn is_held(&self, key: &K, value: &V) -> bool {
        self.inner().is_some_and(|inner| inner.is_held(key, value))
    }

    pub fn len(&self) -> usize {
        self.read(Cells::len).unwrap_or(0)
    }

    /// Reads: that is always possible, since no caller's code runs while a change is made.
    /// `None` where the variable is not there yet.
    pub fn read<R>(&self, read: impl FnOnce(&Cells<K, V>) -> R) -> Option<R> {
        Some(read(&*self.inner()?.cells.try_borrow().ok()?))
    }

    /// Changes, unless this is called from within a `for_each`.
    fn change_cells<R>(
        &self,
        change: impl FnOnce(&mut Cells<K, V>, &Inner<K, V>) -> Result<R, Refusal>,
    ) -> Result<R, Refusal> {
        let inner = self.inner().ok_or(Refusal::Early)?;
        let mut cells = inner.cells.try_borrow_mut().map_err(|_| Refusal::Busy)?;
        let done = change(&mut cells, inner)?;
        inner.note();
        Ok(done)
    }

    pub fn get(&self, key: &K) -> Option<V> {
        self.read(|cells| cells.get(key).cloned()).flatten()
    }

    pub fn insert(&self, key: &K, value: V) -> Result<Option<V>, Refusal> {
        self.change_cells(|cells, inner| cells.insert(key, value, &inner.progress))
    }

    pub fn change<R>(&self, key: &K, default: V, change: impl FnOnce(&mut V) -> R) -> Result<R, Refusal> {
        self.change_near(key, (&mut Near::default(), 0), default, change)
    }

    pub fn change_near<R>(
        &self,
        key: &K,
        (near, age): (&mut Near, u64),
        default: V,
        change: impl FnOnce(&mut V) -> R,
    ) -> Result<R, Refusal> {
        self.change_cells(|cells, inner| {
            inner.progress.set_age(age);
            let changed = cells.change(key, near, default, change, &inner.progress);
            inner.progress.set_age(0);
            changed
        })
    }

    pub fn remove(&self, key: &K) -> Result<Option<V>, Refusal> {
        self.change_cells(|cells, inner| Ok(cells.remove(key, &inner.progress)))
    }

    pub fn clear(&self) -> Result<(), Refusal> {
        self.change_cells(|cells, inner| {
            cells.clear(&inner.progress);
            Ok(())
        })
    }

    pub fn for_each(&self, mut each: impl FnMut(&K, &V)) {
        self.read(|cells| cells.iter().for_each(|(key, value)| each(key, value)));
    }

    /// The result of `find` for the first element for which it has one: it sees no other behind
    /// that.
    pub fn find_map<R>(&self, mut find: impl FnMut(&K, &V) -> Option<R>) -> Option<R> {
        self.read(|cells| cells.iter().find_map(|(key, value)| find(key, value)))
            .flatten()
    }

    /// Removes elements that `keep` refuses, one element a pass: for the control side and small
    /// tables, not per packet.
    pub fn retain(&self, mut keep: impl FnMut(&K, &V) -> bool) -> Result<(), Refusal> {
        let gone: Option<Vec<K>> = self.read(|cells| {
            let refused = cells.iter().filter(|(key, value)| !keep(key, value));
            refused.map(|(key, _)| key.clone()).collect()
        });
        gone.unwrap_or_default()
            .iter()
            .try_for_each(|key| self.remove(key).map(drop))
    }

    pub fn heard(&self) -> u32 {
        self.inner().map_or(0, |inner| inner.progress.heard())
    }

    /// Whether another instance has claimed the partition.
    pub fn is_fenced(&self) -> bool {
        self.inner().is_some_and(|inner| inner.progress.is_fenced())
    }

    pub fn changes(&self) -> u64 {
        self.inner().map_or(0, |inner| inner.progress.changed())
    }

    pub fn stored_up_to(&self) -> u64 {
        self.inner().map_or(0, |inner| match inner.is_local() {
            true => inner.progress.changed(),
            false => inner.progress.stored(),
        })
    }

    pub fn stored(&self) -> Ticket {
        match self.inner() {
            Some(inner) if !inner.is_local() => Ticket::of(&inner.progress),
            _ => Ticket::over(),
        }
    }
}
