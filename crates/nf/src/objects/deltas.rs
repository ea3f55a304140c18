//! Calls that are merged at their runtime before they go to their objects, as one (S6 4.2).
//!
//! ```text
//!   merge ─► no delta of the key ─► one begins, due after `within`
//!        ├─► the delta takes the call
//!        └─► it does not: it goes to its object, and another one begins
//!   due, or the runtime leaves, or the key is read here ─► the delta goes to its object
//! ```
//!
//! Invariants: each call is in one delta, or on its way; there are at most [`DELTAS_MAX`], and
//! beyond that a call goes by itself; nothing allocates after [`Deltas::make_room`].

use super::Words;
use super::pending_calls::Key;
use hashbrown::HashMap;

/// The most keys with a delta at a worker.
const DELTAS_MAX: usize = 1024;

/// The calls of one key that have not gone.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Delta {
    call: Words,
    /// How many calls are in it.
    calls: u32,
    due: u64,
}

/// The fate of a call.
pub(super) enum Merged {
    /// The call is in a delta.
    Taken,
    /// These go to the object: an earlier delta, or the call itself.
    Goes(Words, u32),
}

/// See the module's page.
#[derive(Default, Debug)]
pub(super) struct Deltas {
    of: HashMap<(u16, Key), Delta>,
    /// No delta is due before.
    next_due: Option<u64>,
}

impl Deltas {
    pub fn make_room(&mut self) {
        self.of.reserve(DELTAS_MAX);
    }

    /// Takes a call; `fold` adds it to an earlier one, if the two can be one.
    pub fn add(
        &mut self,
        at: (u16, &Key),
        call: Words,
        due: u64,
        fold: impl FnOnce(&mut Words) -> bool,
    ) -> Merged {
        let key = (at.0, at.1.clone());
        let fresh = Delta { call, calls: 1, due };
        let is_full = self.of.len() >= DELTAS_MAX;
        if let Some(delta) = self.of.get_mut(&key) {
            if fold(&mut delta.call) {
                delta.calls = delta.calls.saturating_add(1);
                return Merged::Taken;
            }
            let earlier = core::mem::replace(delta, fresh);
            return Merged::Goes(earlier.call, earlier.calls);
        }
        if is_full {
            return Merged::Goes(fresh.call, 1);
        }
        self.of.insert(key, fresh);
        self.next_due = Some(self.next_due.map_or(due, |next| next.min(due)));
        Merged::Taken
    }

    /// The delta of a key, which ends.
    pub fn take(&mut self, at: (u16, &Key)) -> Option<(Words, u32)> {
        if self.of.is_empty() {
            return None;
        }
        let delta = self.of.remove(&(at.0, at.1.clone()))?;
        Some((delta.call, delta.calls))
    }

    /// When the next one is due.
    pub fn next_due(&self) -> Option<u64> {
        self.next_due
    }

    /// Hands out due deltas, or all. A delta that `send` does not take stays until `later`.
    pub fn close(
        &mut self,
        now: u64,
        is_all: bool,
        later: u64,
        mut send: impl FnMut(u16, &Key, &Words, u32) -> bool,
    ) {
        if !is_all && self.next_due.is_none_or(|due| now < due) {
            return;
        }
        let mut next: Option<u64> = None;
        self.of.retain(|(kind, key), delta| {
            if (is_all || delta.due <= now) && send(*kind, key, &delta.call, delta.calls) {
                return false;
            }
            if delta.due <= now {
                delta.due = later;
            }
            next = Some(next.map_or(delta.due, |next| next.min(delta.due)));
            true
        });
        self.next_due = next;
    }
}
