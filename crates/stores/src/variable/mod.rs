//! The variables that a function works with, one file each.
//!
//! A handle is cheap to clone and belongs to one worker. Its calls answer at once, from the local copy. `stored()` is the
//! call that waits: it answers a [`Ticket`] that is over when the store has every change so far.
//!
//! ```
//! use flowkeep_stores::{Options, Partition, PartitionName, Store, driver_of};
//! # use std::time::Duration;
//! let patience = Duration::from_secs(3);
//! let (store, _agency) = Store::start(driver_of("memory:")?, patience, |report| eprintln!("{report:?}"))?;
//! let mut partition = Partition::open(&store, PartitionName::new("nat", "edge1", 0)?)?;
//! let packets = partition.counter("packets", Options::default())?;   // once
//! packets.add(1);                                                    // per packet, no wait
//! let ticket = packets.stored();                                     // to be awaited, where the packet must
//! # assert_eq!(ticket.state(), None);
//! partition.step(1_000_000);                                         // in the worker's loop, in nanoseconds
//! # assert!(partition.finish(patience));
//! assert_eq!(store.sum("nat", "packets")?, 1);                       // the whole function's
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! What the four words of the paper (FlexState III-A: create, read, update, delete) are here:
//!
//! | | create, update | read | delete |
//! |---|---|---|---|
//! | [`Value`] | `set`, `update` | `get` | `delete` |
//! | [`Counter`] | `set`, `add` | `get` | `delete` |
//! | [`List`] | `push_back`, `push_front`, `set`, `insert` | `get`, `front`, `back`, `for_each` | `pop_front`, `pop_back`, `remove`, `truncate`, `clear` |
//! | [`Set`] | `insert` | `contains`, `for_each` | `remove`, `retain`, `clear` |
//! | [`Map`] | `insert`, `update` | `get`, `for_each` | `remove`, `retain`, `clear` |
//! | [`CounterMap`] | `set`, `add` | `get`, `for_each` | `remove`, `retain`, `clear` |
//! | [`Timers`] | `arm` | `len` | `cancel`, `fire` |
//!
//! A call that would exceed a bound changes nothing and says so ([`Refusal`]).

mod counter;
mod counter_map;
mod list;
mod map;
mod set;
#[cfg(test)]
mod tests;
mod timers;
mod value;

pub use counter::Counter;
pub use counter_map::CounterMap;
pub use list::List;
pub use map::Map;
pub use set::Set;
pub use timers::Timers;
pub use value::Value;

use crate::agent::OpenError;
use crate::cells::{Cells, Key, Refusal, Stored};
use crate::name::Kind;
use crate::partition::{Consistency, Inner, Options, Partition};
use crate::ticket::Ticket;
use std::rc::Rc;

/// What all of them are made of: a table from key to value.
pub(crate) struct Table<K, V>(Rc<Inner<K, V>>);

impl<K, V> Clone for Table<K, V> {
    fn clone(&self) -> Self {
        Table(Rc::clone(&self.0))
    }
}

impl<K: Key, V: Stored> Table<K, V> {
    pub fn open(
        partition: &mut Partition,
        kind: Kind,
        name: &str,
        options: Options,
    ) -> Result<Self, OpenError> {
        partition.variable(kind, name, options).map(Table)
    }

    pub fn len(&self) -> usize {
        self.read(Cells::len)
    }

    /// Reads: that is always possible, since no caller's code runs while a change is made.
    pub fn read<R>(&self, read: impl FnOnce(&Cells<K, V>) -> R) -> R {
        read(&self.0.cells.borrow())
    }

    /// Changes, unless this is called from within a `for_each`.
    fn change_cells<R>(
        &self,
        change: impl FnOnce(&mut Cells<K, V>, &Inner<K, V>) -> Result<R, Refusal>,
    ) -> Result<R, Refusal> {
        let mut cells = self.0.cells.try_borrow_mut().map_err(|_| Refusal::Busy)?;
        let done = change(&mut cells, &self.0)?;
        self.0.note();
        Ok(done)
    }

    pub fn get(&self, key: &K) -> Option<V> {
        self.read(|cells| cells.get(key).cloned())
    }

    pub fn insert(&self, key: &K, value: V) -> Result<Option<V>, Refusal> {
        self.change_cells(|cells, inner| cells.insert(key, value, &inner.progress))
    }

    pub fn change<R>(&self, key: &K, default: V, change: impl FnOnce(&mut V) -> R) -> Result<R, Refusal> {
        self.change_cells(|cells, inner| cells.change(key, default, change, &inner.progress))
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

    /// Removes what `keep` refuses, one element a pass: for the control side and small tables, not per packet.
    pub fn retain(&self, mut keep: impl FnMut(&K, &V) -> bool) -> Result<(), Refusal> {
        let gone: Vec<K> = self.read(|cells| {
            let refused = cells.iter().filter(|(key, value)| !keep(key, value));
            refused.map(|(key, _)| key.clone()).collect()
        });
        gone.iter().try_for_each(|key| self.remove(key).map(drop))
    }

    pub fn stored(&self) -> Ticket {
        if self.0.consistency == Consistency::Local {
            return Ticket::over();
        }
        Ticket::of(&self.0.progress)
    }
}
