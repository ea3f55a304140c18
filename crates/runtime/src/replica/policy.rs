//! How a chain's flows are copied, and which packets wait for it; when snapshots are due (NFActor
//! 4.1).
//!
//! ```text
//!   packet of a snapshot chain ─► counted ── every `packets`-th ───────────────► all bytes sent
//!                                    └─ the first since a snapshot ─► queue ── `interval` later ─► all bytes sent
//! ```
//!
//! Packets of a snapshot chain never wait, so a recovered flow may lack what its last packets did.
//!
//! Invariants: a flow is in the queue at most once; a flow that a packet passed has a snapshot of
//! that packet, or a later one, within `interval` or `packets` packets, as far as the replica takes
//! records.

use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::ops::Range;

/// How a chain's flows are copied.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Policy {
    /// Nothing: they end with their runtime.
    None,
    /// All bytes, from time to time; packets do not wait.
    Snapshot,
    /// Nothing at another runtime: all bytes to a data store, within its interval; packets do not
    /// wait ([`super::ledger`]).
    Store,
    /// The same, and a packet that changed committed bytes waits until the store has them
    /// ([`super::ledger`]).
    StoreCommit,
    /// Each change of committed bytes; packets wait until the replica has it.
    #[default]
    Commit,
}

impl Policy {
    /// Whether flows are in a data store.
    pub fn is_stored(self) -> bool {
        matches!(self, Policy::Store | Policy::StoreCommit)
    }
}

/// How copies are kept, where they are ([`crate::Settings::replicated`]).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Copying {
    /// Of chains that have no policy of their own ([`crate::chain::ChainRule::replication`]).
    pub policy: Policy,
    /// A snapshot is taken after so many packets of a flow; at least 1, at most [`PACKETS_MAX`].
    pub packets: u16,
    /// A snapshot is taken so many nanoseconds after a packet, at the latest.
    pub interval: u64,
    /// Whether lazy bytes are copied as committed ones are.
    pub has_lazy: bool,
    /// Whether packets that are to wait for copies are dropped while no runtime can keep any.
    pub drops_alone: bool,
}

/// How flows are kept in a data store, where a chain's policy says so.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Storing {
    /// The store is told so many nanoseconds after a change.
    pub interval: u64,
    /// The same of what no packet commits: lazy bytes, and when a flow is over. 0: with the rest.
    pub lazy: u64,
    /// How old a change may become before it is told as late, in nanoseconds.
    pub bound: u64,
}

impl Storing {
    /// `lazy` where nothing else is said, in nanoseconds.
    pub const LAZY: u64 = 1_000_000_000;
}

/// By which name the store knows flows: the function of their partition.
pub const STORED_AS: &str = "replication";
/// The most bytes of a flow's states, or a group's, that a store takes; the rest of its entry is
/// facts and blocks.
pub const STORED_MAX: usize = 60_000;

/// The most packets between two snapshots of a flow.
pub const PACKETS_MAX: u16 = QUEUED - 1;

impl Default for Copying {
    fn default() -> Self {
        Copying {
            policy: Policy::Commit,
            packets: 16,
            interval: 10_000_000,
            has_lazy: false,
            drops_alone: false,
        }
    }
}

/// In a flow's count: it is in the queue.
const QUEUED: u16 = 1 << 15;

/// Which flows have changed since their snapshots.
#[derive(Default)]
pub(super) struct Snapshots {
    /// By actor: packets since its snapshot, and [`QUEUED`].
    since: Vec<u16>,
    /// Actors and when their snapshots are due, in that order.
    queue: VecDeque<(u32, u64)>,
}

impl Snapshots {
    /// Makes room for so many flows.
    pub fn reserve(&mut self, flows: usize) {
        self.since.resize(flows, 0);
        self.queue.reserve(flows.saturating_sub(self.queue.len()));
    }

    /// A packet of a flow has passed: whether a snapshot is to be taken now.
    #[inline]
    pub fn note(&mut self, actor: u32, now: u64, copying: &Copying) -> bool {
        let Some(since) = self.since.get_mut(actor as usize) else {
            return true;
        };
        let count = (*since & !QUEUED) + 1;
        if count >= copying.packets {
            return true;
        }
        if *since & QUEUED == 0 {
            self.queue
                .push_back((actor, now.saturating_add(copying.interval)));
        }
        *since = count | QUEUED;
        false
    }

    /// A flow's snapshot was taken.
    pub fn taken(&mut self, actor: u32) {
        if let Some(since) = self.since.get_mut(actor as usize) {
            *since &= QUEUED;
        }
    }

    /// Whether a snapshot is due.
    #[inline]
    pub fn is_due(&self, now: u64) -> bool {
        self.queue.front().is_some_and(|(_, at)| *at <= now)
    }

    /// Flows at these places of the queue.
    #[inline]
    pub fn at(&self, places: Range<usize>) -> impl Iterator<Item = u32> {
        let places = places.start.min(self.queue.len())..places.end.min(self.queue.len());
        self.queue.range(places).map(|(actor, _)| *actor)
    }

    /// The next flow of which a snapshot is due.
    pub fn next(&mut self, now: u64) -> Option<u32> {
        while self.is_due(now) {
            let (actor, _) = self.queue.pop_front()?;
            if let Some(since) = self.since.get_mut(actor as usize) {
                let count = *since & !QUEUED;
                *since = 0;
                if count > 0 {
                    return Some(actor);
                }
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const COPYING: Copying = Copying {
        policy: Policy::Snapshot,
        packets: 3,
        interval: 100,
        has_lazy: false,
        drops_alone: false,
    };

    #[test]
    fn a_snapshot_is_due_after_so_many_packets_or_so_much_time() {
        let mut snapshots = Snapshots::default();
        snapshots.reserve(4);
        assert!(!snapshots.note(1, 0, &COPYING));
        assert!(!snapshots.note(1, 10, &COPYING));
        assert!(snapshots.note(1, 20, &COPYING), "the third packet");
        snapshots.taken(1);
        assert!(!snapshots.note(2, 30, &COPYING));
        assert_eq!(snapshots.next(99), None);
        // Nothing of flow 1 has passed since its snapshot.
        assert_eq!(snapshots.next(130), Some(2));
        assert_eq!(snapshots.next(1000), None);
    }

    #[test]
    fn a_flow_is_in_the_queue_once() {
        let mut snapshots = Snapshots::default();
        snapshots.reserve(1);
        for now in 0..50 {
            if snapshots.note(0, now, &COPYING) {
                snapshots.taken(0);
            }
        }
        assert_eq!(snapshots.queue.len(), 1);
        assert_eq!(
            snapshots.next(100),
            Some(0),
            "the two packets behind the last snapshot"
        );
        assert!(snapshots.queue.is_empty());
    }
}
