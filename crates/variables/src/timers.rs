//! Timers that outlast the process that armed them.
//!
//! A timer is a key, a time by the wall clock (milliseconds since 1970), and a value. It is stored
//! like an element of a map; the instance that opens the variable next has all that had not fired,
//! and they fire there, late ones at once.
//!
//! *Fired once.* [`Timers::fire`] removes the timer and hands it out. The removal and the
//! function's changes before its next step go to the store in one batch, if they fit into one. So
//! either the store has the effects and not the timer, or the timer and not the effects; a
//! successor then fires it again, on variables that have seen nothing of it. An effect outside of
//! the variables (a packet that was sent) can happen twice.
//!
//! *A runtime that goes* while its process stays hands its timers over ([`crate::open::Handed`]):
//! another runtime arms them, and has the store know that, before they are removed here. A timer
//! whose key the other has armed itself is dropped.
//!
//! *A member that is gone* leaves its timers in the store. A runtime of another takes them in, and
//! holds them: they are here and at the store, and are not due. When it is known that they are in
//! its partition alone they are let go, and fire; else they go again
//! ([`crate::open::WorkerVariables::hold_timers`]).
//!
//! *Without a packet.* [`Timers::next_at`] says when the first timer is due. A function answers it
//! to its worker (`NetworkFunction::next_timer`), which calls the function then (`timer_due`).
//! Where another process has claimed the variables, timers are its business: none is due here, and
//! none fires.

use crate::Kind;
use crate::cells::{Key, Refusal, Stored};
use crate::open::{OpenError, Variables};
use crate::shelf::Options;
use crate::table::Table;
use crate::ticket::Ticket;
use alloc::collections::BinaryHeap;
use core::cell::{Cell, RefCell};
use core::cmp::{Ordering, Reverse};

/// A timer's place in the order; its number tells whether the timer was armed again or cancelled
/// since.
struct Armed<K> {
    at_ms: u64,
    number: u64,
    key: K,
}

impl<K> Armed<K> {
    fn order(&self) -> (u64, u64) {
        (self.at_ms, self.number)
    }
}

impl<K> PartialEq for Armed<K> {
    fn eq(&self, other: &Self) -> bool {
        self.order() == other.order()
    }
}

impl<K> Eq for Armed<K> {}

impl<K> PartialOrd for Armed<K> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<K> Ord for Armed<K> {
    fn cmp(&self, other: &Self) -> Ordering {
        self.order().cmp(&other.order())
    }
}

/// Timers by key.
#[derive(Clone)]
pub struct Timers<K, V> {
    table: Table<K, (u64, u64, V)>,
    room: usize,
}

/// The order of the timers, which all handles of a variable share.
struct Order<K> {
    heap: RefCell<BinaryHeap<Reverse<Armed<K>>>>,
    number: Cell<u64>,
}

impl<K: Key, V: Stored> Timers<K, V> {
    pub(crate) fn open(variables: &mut Variables, name: &str, options: Options) -> Result<Self, OpenError> {
        let timers = Timers {
            table: Table::open(variables, Kind::Timers, name, options)?,
            room: options.capacity.saturating_mul(2).max(2),
        };
        // Put in order before the first packet.
        timers.order();
        Ok(timers)
    }

    fn order(&self) -> Option<&Order<K>> {
        let is_renewed = self.table.take_renewed();
        let order = self.table.extra(|| {
            let order = Order {
                heap: RefCell::new(BinaryHeap::with_capacity(self.room)),
                number: Cell::default(),
            };
            self.put_in_order(&order);
            order
        })?;
        if is_renewed {
            self.put_in_order(order);
        }
        Some(order)
    }

    /// All timers in order that are this partition's, and nothing else.
    fn put_in_order(&self, order: &Order<K>) {
        let mut heap = order.heap.borrow_mut();
        heap.clear();
        self.table.for_each(|key, value| {
            let (at_ms, number, _) = value;
            order.number.set(order.number.get().max(*number));
            if self.table.is_held(key, value) {
                return;
            }
            heap.push(Reverse(Armed {
                at_ms: *at_ms,
                number: *number,
                key: key.clone(),
            }));
        });
    }

    /// How many are armed.
    pub fn len(&self) -> usize {
        self.table.len()
    }

    /// Whether none is armed.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Arms a timer, or arms it for another time.
    pub fn arm(&self, key: &K, at_ms: u64, what: V) -> Result<(), Refusal> {
        let order = self.order().ok_or(Refusal::Early)?;
        let number = order.number.get().saturating_add(1);
        self.table.insert(key, (at_ms, number, what))?;
        order.number.set(number);
        if order.heap.borrow().len() >= self.room {
            self.put_in_order(order);
        } else {
            order.heap.borrow_mut().push(Reverse(Armed {
                at_ms,
                number,
                key: key.clone(),
            }));
        }
        Ok(())
    }

    /// Cancels a timer; answers its value.
    pub fn cancel(&self, key: &K) -> Result<Option<V>, Refusal> {
        Ok(self.table.remove(key)?.map(|(_, _, what)| what))
    }

    /// When the first timer is due, by the wall clock, or earlier: a timer that was cancelled or
    /// armed again is still in the order. Reads memory and no more.
    #[inline]
    pub fn next_at(&self) -> Option<u64> {
        if self.is_empty() || self.table.is_fenced() {
            return None;
        }
        let first = self.order()?.heap.borrow();
        first.peek().map(|Reverse(first)| first.at_ms)
    }

    /// Takes a timer whose time has come; the earliest first. Call it until there is none.
    pub fn fire(&self, now_ms: u64) -> Option<(K, V)> {
        if self.table.is_fenced() {
            return None;
        }
        let mut order = self.order()?.heap.borrow_mut();
        while order.peek().is_some_and(|Reverse(first)| first.at_ms <= now_ms) {
            let Reverse(first) = order.pop()?;
            let is_it = |(at_ms, number, _): &(u64, u64, V)| (*at_ms, *number) == first.order();
            if self.table.read(|cells| cells.get(&first.key).is_some_and(is_it)) == Some(true)
                && let Ok(Some((_, _, what))) = self.table.remove(&first.key)
            {
                return Some((first.key, what));
            }
        }
        None
    }

    /// Changes when tickets of this variable may be over: for `NetworkFunction::generation`, by
    /// which calls that wait go on.
    pub fn heard(&self) -> u32 {
        self.table.heard()
    }

    /// Waits until the store has every change so far.
    pub fn stored(&self) -> Ticket {
        self.table.stored()
    }
}
