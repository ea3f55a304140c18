//! Flows as they open, end, move and go on behind a failure: an event each, for followers
//! (`flowkeep flow events`).
//!
//! # Theory of operation
//!
//! ```text
//!   settled ──► opened        its first packet has passed the chain, so that its replies' key is known
//!   over    ──► ended         of a flow that was settled
//!   moved   ──► moved out at the source, moved in at the target
//!   failure ──► recovered     at the runtime that had the copy
//! ```
//!
//! A flow whose first packet was dropped never was: it has no event. The memory for events comes
//! with the follower; the control thread fetches them by handing over empty memory for full. An
//! event without room is lost and counted.
//!
//! Invariants: nothing is looked at per packet; without a follower a flow's beginning and its end
//! cost one comparison each; memory does not grow.
//!
//! Not here: which places of a flow's life tell
//! ([`Core::witness`](crate::parts::Core::witness)).

use alloc::boxed::Box;
use alloc::vec::Vec;
use arrayvec::{ArrayString, ArrayVec};
use nf::{Endpoint, Prefix};

/// The most followers at once.
pub const FOLLOWERS_MAX: usize = 2;
/// The most bytes of a chain's name in an event; a longer one is cut.
pub const NAME_MAX: usize = 48;

/// A change in the life of a flow.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Change {
    /// Its first packet has passed its chain.
    Opened,
    /// It is over.
    Ended,
    /// It has come from another runtime.
    MovedIn,
    /// It has gone to another runtime.
    MovedOut,
    /// Its runtime failed, and it goes on here.
    Recovered,
}

/// A flow, and what became of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FlowEvent {
    /// The worker's time, in nanoseconds.
    pub at: u64,
    /// The change.
    pub change: Change,
    /// Its IP protocol.
    pub protocol: u8,
    /// Its VLAN; 0 for none.
    pub vlan: u16,
    /// The source of the first packet, and its destination.
    pub ends: (Endpoint, Endpoint),
    /// The same as the first packet left, if the chain translated it.
    pub translated: Option<(Endpoint, Endpoint)>,
    /// Its chain.
    pub chain: ArrayString<NAME_MAX>,
}

/// Which flows are followed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Choice {
    /// Flows with an end here, before or behind the translation.
    pub address: Option<Prefix>,
    /// Flows of this protocol.
    pub protocol: Option<u8>,
}

impl Choice {
    fn has(&self, event: &FlowEvent) -> bool {
        let both = [Some(event.ends), event.translated];
        let mut ends = both.into_iter().flatten().flat_map(|(one, other)| [one, other]);
        let is_near = |prefix: Prefix| ends.any(|end| prefix.contains(end.addr));
        self.protocol.is_none_or(|protocol| protocol == event.protocol) && self.address.is_none_or(is_near)
    }
}

/// A reader of events, at one runtime.
#[derive(Debug)]
pub struct Follower {
    id: u32,
    choice: Choice,
    events: Vec<FlowEvent>,
    lost: u64,
}

impl Follower {
    /// With room for so many events between two visits.
    pub fn new(id: u32, choice: Choice, room: usize) -> Self {
        Follower {
            id,
            choice,
            events: Vec::with_capacity(room),
            lost: 0,
        }
    }

    fn note(&mut self, event: FlowEvent) {
        if !self.choice.has(&event) {
            return;
        }
        if self.events.len() == self.events.capacity() {
            self.lost += 1;
            return;
        }
        self.events.push(event);
    }
}

/// The followers of a runtime's flows.
#[derive(Debug, Default)]
pub(crate) struct Followers(Option<Box<ArrayVec<Follower, FOLLOWERS_MAX>>>);

impl Followers {
    /// Whether there is one.
    #[inline(always)]
    pub fn are_there(&self) -> bool {
        self.0.is_some()
    }

    /// Adds a follower; handed back if there are as many as may be.
    pub fn add(&mut self, follower: Follower) -> Result<(), Follower> {
        let added = self.0.get_or_insert_default().try_push(follower);
        added.map_err(|full| full.element())
    }

    /// Ends a follower.
    pub fn end(&mut self, id: u32) {
        if let Some(all) = &mut self.0 {
            all.retain(|follower| follower.id != id);
            if all.is_empty() {
                self.0 = None;
            }
        }
    }

    /// Exchanges what one has for empty memory; how many events were lost since, or nothing if
    /// there is no such one.
    pub fn swap(&mut self, id: u32, events: &mut Vec<FlowEvent>) -> Option<u64> {
        let follower = self.0.as_mut()?.iter_mut().find(|follower| follower.id == id)?;
        core::mem::swap(&mut follower.events, events);
        follower.events.clear();
        Some(core::mem::take(&mut follower.lost))
    }

    /// Tells all of them.
    pub fn tell(&mut self, event: FlowEvent) {
        for follower in self.0.iter_mut().flat_map(|all| all.iter_mut()) {
            follower.note(event);
        }
    }
}
