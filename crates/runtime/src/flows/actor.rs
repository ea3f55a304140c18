//! Flow actors: one flow, one slot of a slab that never moves (NFVactor III-B, `architecture`).
//!
//! # Theory of operation
//!
//! ```text
//!  byte 0                        64                                              stride
//!  │ header: first key, deadline │ flow state of each function, one after another │ reply key │
//!  └ line 0 ─────────────────────┴ line 1 … ──────────────────────────────────────┘
//! ```
//!
//! The header has what every packet needs. The functions' states follow in chain order, so that
//! fetching is a matter of neighbouring lines and moving a flow is one copy. The reply key, which
//! translated flows have for their replies, comes last: packets that match the first key never
//! touch it.
//!
//! Launching an actor is taking an index off the free list (NFVactor III-B: pre-allocated actors).
//!
//! ```text
//!            launch              end, expiry
//!   free ─────────────► active ─────────────► free
//!                       │    ▲
//!            call waits ▼    │ call done
//!                       waiting (pinned: does not expire)
//!
//!            arrive              install                     leave               return
//!   free ─────────────► arriving ────────────► active ─────────────► leaving ─────────────► active
//! ```
//!
//! *Arriving* and *leaving* are a move's (`mobility`): an arriving flow is not in the table yet, a
//! leaving one is a copy that no function touches; both may end.
//!
//! Invariants: an index is on the free list or active; a free actor's header has phase `Free`,
//! which the timer wheel relies on; an actor's address does not change while the slab lives.

use alloc::vec::Vec;
use core::ptr::NonNull;
use nf::Direction;
use wire::memory::{Region, prefetch};
use wire::{FlowKey, Orientation};

/// An actor's state.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Phase {
    /// On the free list.
    Free = 0,
    /// Processes packets.
    Active = 1,
    /// A call of its chain waits; packets queue behind it and it does not expire.
    Waiting = 2,
    /// Its state is coming from another runtime.
    Arriving = 3,
    /// Its state is on its way to another runtime: pinned.
    Leaving = 4,
}

/// An actor's changes of state.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Change {
    /// The first packet of a flow.
    Launch,
    /// A call of its chain waits.
    Wait,
    /// The call is done.
    Resume,
    /// Expired, ended by a function, or its first packet was dropped; or it lives on elsewhere.
    End,
    /// A flow of another runtime begins to come.
    Arrive,
    /// It has come.
    Install,
    /// It begins to go.
    Leave,
    /// It stays after all.
    Return,
}

impl Phase {
    /// The transition table; `None` is a programmer's error.
    pub const fn after(self, change: Change) -> Option<Phase> {
        match (self, change) {
            (Phase::Free, Change::Launch) => Some(Phase::Active),
            (Phase::Active, Change::Wait) => Some(Phase::Waiting),
            (Phase::Waiting, Change::Resume) => Some(Phase::Active),
            (Phase::Active | Phase::Arriving | Phase::Leaving, Change::End) => Some(Phase::Free),
            (Phase::Free, Change::Arrive) => Some(Phase::Arriving),
            (Phase::Arriving, Change::Install) => Some(Phase::Active),
            (Phase::Active, Change::Leave) => Some(Phase::Leaving),
            (Phase::Leaving, Change::Return) => Some(Phase::Active),
            _ => None,
        }
    }
}

/// Bits of [`Header::flags`].
pub mod flag {
    /// The opening direction runs along the first key (else against it).
    pub const OPENING_ALONG: u8 = 1;
    /// The opening direction runs along the reply key.
    pub const SECOND_ALONG: u8 = 2;
    /// There is a reply key.
    pub const REPLY_KEY: u8 = 4;
    /// A packet has left the chain, so it is known whether replies have another key.
    pub const SETTLED: u8 = 8;
    /// The switch was told about the reply key.
    pub const ANNOUNCED: u8 = 16;
    /// Packets are held for a function.
    pub const HOLDS: u8 = 32;
    /// The opening packet came from outside.
    pub const FROM_OUTSIDE: u8 = 64;
    /// The packet that will settle the flow has passed its chain and waits for the end of its
    /// burst.
    pub const SETTLING: u8 = 128;
}

/// The first cache line of an actor.
#[derive(Clone, Copy)]
#[repr(C, align(64))]
pub struct Header {
    /// The key of the packet that opened the flow.
    pub key: FlowKey,
    /// When the flow expires, in nanoseconds.
    pub deadline: u64,
    /// Index of its group; [`NO_GROUP`] where flows are by themselves.
    pub group: u32,
    /// Its state.
    pub phase: Phase,
    /// The configuration under which it was judged last: the low bits of its number. Beside the
    /// phase, so that both are one comparison ([`Header::is_active_under`]).
    pub generation: u8,
    /// Which chain of that configuration it runs.
    pub chain: u8,
    /// Bits of [`flag`].
    pub flags: u8,
    /// A function has answered in its name, or asked to keep it: it is kept, though nothing may
    /// have left yet.
    pub answered: bool,
    /// Under which base another runtime keeps a copy of it; 0 for none, and with [`STALE`] if the
    /// copy is not up to date.
    pub copied: u8,
    /// Bits of [`stored`]: its entry in a store.
    pub stored: u8,
    /// How far its deadline may move before the store is to know (`replica::ledger`).
    pub stored_to: u8,
    /// The frame of its waiting call, in phase `Waiting`.
    pub frame: u32,
}

const _: () = assert!(size_of::<Header>() == 64);

/// Bits of [`Header::stored`].
pub mod stored {
    /// The store's entry has all committed bytes, or it is about to be written.
    pub const WRITTEN: u8 = 1;
    /// It is written again before long: a packet has passed since.
    pub const TOUCHED: u8 = 2;
}

/// In [`Header::copied`]: see there.
pub const STALE: u8 = 0x80;

/// In [`Header::group`]: the flow is its own group.
pub const NO_GROUP: u32 = u32::MAX;

impl Header {
    /// A header of the free list.
    pub const FREE: Header = Header {
        key: FlowKey::from_words([0; 5]),
        deadline: 0,
        group: NO_GROUP,
        phase: Phase::Free,
        generation: 0,
        chain: 0,
        flags: 0,
        answered: false,
        copied: 0,
        stored: 0,
        stored_to: 0,
        frame: 0,
    };

    /// Whether it processes packets and was judged under this configuration.
    #[inline(always)]
    pub fn is_active_under(&self, generation: u8) -> bool {
        [self.phase as u8, self.generation] == [Phase::Active as u8, generation]
    }

    /// Whether nothing of it has left, was answered or is held: it is no flow yet, and without the
    /// packet at hand it is over.
    #[inline]
    pub fn has_nothing_to_its_name(&self) -> bool {
        !self.answered && self.flags & (flag::SETTLED | flag::SETTLING | flag::HOLDS) == 0
    }

    /// The copy of the flow, if another runtime keeps one, is not up to date: all of it is sent
    /// with its next packet.
    #[inline]
    pub fn outdate_copy(&mut self) {
        self.copied |= if self.copied == 0 { 0 } else { STALE };
    }

    /// The orientation of the opening direction in the first (0) or second (1) key.
    #[inline(always)]
    pub fn opening(&self, which: u32) -> Orientation {
        if self.flags >> which & 1 == 1 {
            Orientation::Along
        } else {
            Orientation::Against
        }
    }

    /// Which way a packet of this orientation, in the first (0) or second (1) key, runs.
    #[inline(always)]
    pub fn direction(&self, which: u32, way: Orientation) -> Direction {
        if way == self.opening(which) {
            Direction::Opening
        } else {
            Direction::Reply
        }
    }

    /// Makes a change that the transition table allows, or none. `false` is a programmer's error,
    /// which a worker survives: an actor that cannot end stays as it is.
    #[inline]
    pub fn change(&mut self, change: Change) -> bool {
        let after = self.phase.after(change);
        debug_assert!(
            after.is_some(),
            "an actor in phase {:?} cannot {change:?}",
            self.phase
        );
        self.phase = after.unwrap_or(self.phase);
        after.is_some()
    }
}

/// All actors of a worker, with whatever state behind their headers.
pub struct Slab {
    free: Vec<u32>,
    capacity: usize,
    stride: usize,
    reply_key: usize,
    /// Actors from here on have never been used.
    used: u32,
    region: Region,
}

impl Slab {
    /// Bytes per actor for `state` bytes of flow state.
    pub fn stride(state: usize) -> usize {
        (size_of::<Header>() + state.next_multiple_of(8) + size_of::<FlowKey>()).next_multiple_of(64)
    }

    /// Bytes of region for `capacity` actors.
    pub fn region_length(capacity: usize, state: usize) -> usize {
        capacity * Self::stride(state)
    }

    /// A slab of `capacity` actors with `state` bytes of flow state each.
    ///
    /// # Panics
    /// If the region is smaller than [`Slab::region_length`].
    pub fn new(region: Region, capacity: usize, state: usize) -> Self {
        let stride = Self::stride(state);
        assert!(
            region.length() >= capacity * stride,
            "the region is too small for {capacity} actors"
        );
        let reply_key = size_of::<Header>() + state.next_multiple_of(8);
        // Lowest first, so that a lightly loaded worker stays in few pages. Zeroed memory reads as
        // phase `Free`.
        let free = (0..capacity as u32).rev().collect();
        Slab {
            free,
            capacity,
            stride,
            reply_key,
            used: 0,
            region,
        }
    }

    /// Takes a free actor; its header is all default but for the phase.
    #[inline]
    pub fn launch(&mut self) -> Option<u32> {
        self.take(Change::Launch)
    }

    /// [`Slab::launch`] for a flow that comes from another runtime.
    pub fn arrive(&mut self) -> Option<u32> {
        self.take(Change::Arrive)
    }

    #[inline]
    fn take(&mut self, how: Change) -> Option<u32> {
        let index = self.free.pop()?;
        self.used = self.used.max(index + 1);
        let header = self.header_mut(index);
        *header = Header::FREE;
        header.change(how);
        Some(index)
    }

    /// Actors that were ever used have numbers below this one.
    pub fn used(&self) -> u32 {
        self.used
    }

    /// Actors on the free list.
    pub fn free(&self) -> usize {
        self.free.len()
    }

    /// Bytes of all states of an actor.
    #[inline(always)]
    pub fn state_length(&self) -> usize {
        self.reply_key - size_of::<Header>()
    }

    /// All states of an actor, and of its group if it is by itself, as bytes: they are plain data.
    #[inline(always)]
    pub fn state_bytes(&self, index: u32) -> &[u8] {
        let length = self.state_length();
        // SAFETY: inside the stride; the region began zeroed and states are plain data without
        // padding, so all bytes are there; a call with a pointer to a state has given it up when
        // the state is moved.
        unsafe { core::slice::from_raw_parts(self.state(index).as_ptr(), length) }
    }

    /// The same, to be written.
    pub fn state_bytes_mut(&mut self, index: u32) -> &mut [u8] {
        let length = self.reply_key - size_of::<Header>();
        // SAFETY: as above, and `&mut self` makes it the only reference.
        unsafe { core::slice::from_raw_parts_mut(self.state(index).as_ptr(), length) }
    }

    /// Gives an actor back.
    #[inline]
    pub fn end(&mut self, index: u32) {
        if self.header_mut(index).change(Change::End) {
            self.free.push(index);
        }
    }

    #[inline(always)]
    fn address(&self, index: u32) -> NonNull<u8> {
        assert!((index as usize) < self.capacity);
        // SAFETY: the index is below the capacity, so the offset is inside the region.
        unsafe { self.region.start().add(index as usize * self.stride) }
    }

    /// Asks the processor for an actor's header and the lines of state behind it.
    #[inline(always)]
    pub fn prefetch(&self, index: u32) {
        let start = self
            .region
            .start()
            .as_ptr()
            .wrapping_add(index as usize * self.stride);
        let mut line = 0;
        while line < self.stride {
            prefetch(start.wrapping_add(line));
            line += 64;
        }
    }

    /// Asks the processor for an actor's header alone.
    #[inline(always)]
    pub fn prefetch_header(&self, index: u32) {
        let start = self.region.start().as_ptr();
        prefetch(start.wrapping_add(index as usize * self.stride));
    }

    /// The actors that the next `count` launches will take, as far as there are that many.
    #[inline]
    pub fn next_free(&self, count: usize) -> impl Iterator<Item = u32> {
        self.free.iter().rev().take(count).copied()
    }

    /// The actor that the launch behind the next `count` ones will take, if there are that many.
    #[inline]
    pub fn free_ahead(&self, count: usize) -> Option<u32> {
        let at = self.free.len().checked_sub(count + 1)?;
        self.free.get(at).copied()
    }

    /// An actor's header.
    #[inline(always)]
    pub fn header(&self, index: u32) -> &Header {
        // SAFETY: in bounds (asserted), aligned to 64; the bytes are a header, zeroed or written by
        // `launch`.
        unsafe { self.address(index).cast::<Header>().as_ref() }
    }

    /// Where an actor's first key is. It stays valid as long as the slab.
    #[inline(always)]
    pub fn key(&self, index: u32) -> NonNull<FlowKey> {
        // The header begins with it.
        self.address(index).cast()
    }

    /// An actor's header, to be changed.
    #[inline(always)]
    pub fn header_mut(&mut self, index: u32) -> &mut Header {
        // SAFETY: as above; `&mut self` makes it the only reference to a header. State pointers are
        // disjoint from it.
        unsafe { self.address(index).cast::<Header>().as_mut() }
    }

    /// Where an actor's flow states begin. It stays valid as long as the slab.
    #[inline(always)]
    pub fn state(&self, index: u32) -> NonNull<u8> {
        // SAFETY: a stride is larger than the header.
        unsafe { self.address(index).add(size_of::<Header>()) }
    }

    /// The address `offset` bytes behind where an actor's states begin, within the states that the
    /// slab was made for.
    #[inline(always)]
    pub fn behind(&self, state: NonNull<u8>, offset: usize) -> NonNull<u8> {
        debug_assert!(size_of::<Header>() + offset <= self.reply_key);
        // SAFETY: `state` is an actor's, and the stride has room for all states behind it.
        unsafe { state.add(offset) }
    }

    /// An actor's first (0) or second (1) key. A key that an actor has not, or not any more, may
    /// still be there.
    #[inline(always)]
    pub fn nth_key(&self, index: u32, which: u32) -> &FlowKey {
        // SAFETY: both are inside the stride, aligned to 8; any bytes are a key.
        unsafe {
            self.address(index)
                .add(self.reply_key * which as usize)
                .cast::<FlowKey>()
                .as_ref()
        }
    }

    /// An actor's reply key; meaningful with [`flag::REPLY_KEY`].
    #[inline]
    pub fn reply_key(&self, index: u32) -> &FlowKey {
        // SAFETY: inside the stride, aligned to 8; any bytes are a key.
        unsafe { self.address(index).add(self.reply_key).cast::<FlowKey>().as_ref() }
    }

    /// Writes an actor's reply key.
    pub fn set_reply_key(&mut self, index: u32, key: FlowKey) {
        // SAFETY: as above.
        unsafe {
            self.address(index)
                .add(self.reply_key)
                .cast::<FlowKey>()
                .write(key)
        }
    }

    /// Actors in use.
    pub fn active(&self) -> usize {
        self.capacity - self.free.len()
    }

    /// Actors there are.
    pub fn capacity(&self) -> usize {
        self.capacity
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_transition_table() {
        use Change::*;
        use Phase::*;
        // By rows: from free, active, waiting, arriving, leaving; by columns: the changes below.
        let no = None;
        let table = [
            (Free, [Some(Active), no, no, no, Some(Arriving), no, no, no]),
            (
                Active,
                [no, Some(Waiting), no, Some(Free), no, no, Some(Leaving), no],
            ),
            (Waiting, [no, no, Some(Active), no, no, no, no, no]),
            (Arriving, [no, no, no, Some(Free), no, Some(Active), no, no]),
            (Leaving, [no, no, no, Some(Free), no, no, no, Some(Active)]),
        ];
        let changes = [Launch, Wait, Resume, End, Arrive, Install, Leave, Return];
        for (phase, row) in table {
            for (change, after) in changes.into_iter().zip(row) {
                assert_eq!(phase.after(change), after, "{phase:?} {change:?}");
            }
        }
    }

    #[test]
    fn actors_are_taken_and_given_back() {
        let mut slab = Slab::new(Region::heap(Slab::region_length(2, 24)), 2, 24);
        let a = slab.launch().unwrap();
        let b = slab.launch().unwrap();
        assert!(slab.launch().is_none());
        slab.set_reply_key(a, FlowKey::from_words([1, 2, 3, 4, 5]));
        assert_eq!(slab.reply_key(a).words(), &[1, 2, 3, 4, 5]);
        slab.end(a);
        assert_eq!(slab.header(a).phase, Phase::Free);
        assert_eq!(slab.launch(), Some(a));
        assert_eq!(slab.active(), 2);
        slab.end(b);
    }
}
