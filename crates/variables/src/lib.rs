//! Variables of network functions: a function's handles, and a worker's part of them (FlexState).
//!
//! A function names its variables and works with them as with collections of the standard library.
//! A call answers at once, from a local copy; where that is kept beyond the process is the
//! configuration's to say, and a [`open::Carrier`]'s to do (the crate `stores`).
//!
//! ```text
//!   function ── handles ([`table`]) ──► local copy ([`cells`](crate), [`ticket`])
//!                                        │ [`shelf`]: what of it waits
//!   worker ── WorkerVariables::step ───► carrier ══► a store, or nothing
//! ```
//!
//! *Handles* ([`table`]) are cheap to clone, and belong to one worker. *Opening* ([`open`]) is done
//! where a function's instance is made.
//!
//! Invariants, and their checkers:
//!
//! | | checker |
//! |---|---|
//! | the local copy and what is sent are the model's | `random_calls_equal_a_map_here_and_at_the_store` |
//! | a ticket is over only when the store has its change | `a_ticket_is_over_with_the_acknowledgement_that_it_waits_for` |
//! | a token that is given has one call go on | `a_token_is_taken_once_and_a_dead_one_never` |
//! | a merged view's question is answered by a merge that began after it | `a_question_is_answered_by_a_merge_that_began_after_it` |
//! | of one runtime's calls one at a time has a lock | `one_call_at_a_time_has_a_lock_and_the_next_asks_again` |
//! | a changed function goes on with its variables | `a_changed_function_goes_on_with_its_variables` |
//!
//! Not here: threads, sockets, names of partitions, stores (`stores`); when a step is (`runtime`).
#![no_std]

extern crate alloc;
#[cfg(test)]
extern crate std;
pub mod buffer;
mod bytes;
mod cells;
mod counter;
mod counter_map;
mod list;
pub mod locks;
mod map;
pub mod merged;
pub mod open;
mod pending;
mod set;
pub mod shelf;
pub mod stats;
pub mod table;
#[cfg(test)]
mod tests;
pub mod through;
mod ticket;
mod timers;
mod value;
pub mod wake;

pub use bytes::Bytes;
pub use cells::{Key, Near, Refusal, Stored};
pub use locks::{Held, Lock, NotHeld};
pub use merged::{Asked, Merged, Unmerged};
pub use open::{Keeper, OpenError, Partition, Variables, WorkerVariables};
pub use shelf::{Consistency, Options};
pub use stats::PartitionStats;
pub use table::{Counter, CounterMap, List, Map, Set, Timers, Value};
pub use ticket::{BATCHES_MAX, Fenced, Ticket};
pub use wake::{Token, Tokens};

/// The kind of a variable.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// A single value.
    Value,
    /// A count.
    Counter,
    /// A list.
    List,
    /// A set.
    Set,
    /// A map.
    Map,
    /// A map of counts.
    CounterMap,
    /// Timers.
    Timers,
}

impl Kind {
    /// All of them.
    pub const ALL: [Kind; 7] = [
        Kind::Value,
        Kind::Counter,
        Kind::List,
        Kind::Set,
        Kind::Map,
        Kind::CounterMap,
        Kind::Timers,
    ];
}

impl core::fmt::Display for Kind {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        core::fmt::Debug::fmt(self, f)
    }
}

/// A value that is all of `bytes`.
pub fn decoded<T: Stored>(bytes: &[u8]) -> Option<T> {
    match postcard::take_from_bytes(bytes) {
        Ok((value, [])) => Some(value),
        _ => None,
    }
}
