//! The state of a flow: plain data that moves with it, partial matches included.
//!
//! ```text
//!   rules │ flow bits │ marks │ way 0: automata's states, hits │ way 1 │ streams: numbers
//!     8   │    16     │   8   │           8 + 8 + 192          │  208  │        56
//! ```
//!
//! A **hit** is a content's number and where in the stream it ended. [`HITS_MAX`] hits of each
//! direction stand for the bytes that have gone by: a rule of several contents is decided from
//! them, however far apart the contents are and however the stream is divided into packets. A flow
//! keeps the hits that may still matter (`memory`): of most contents the first in its place, of the
//! others the newest [`SAME_MAX`], so that a frequent content does not drive out the rest. A hit
//! that might matter and finds no room is counted (`hits_forgotten`).
//!
//! Automaton states, contents and flow bits are numbers that mean something in one rule set only.
//! `rules` is that rule set's hash; a flow that comes to a worker with other rules begins again
//! with them ([`Inspection::take_up`]), but for the streams' sequence numbers, and stays dropped if
//! it was. Segments that came early are held with the flow, not in its state ([`crate::stream`]).
//!
//! Invariants: whatever the bytes are, nothing panics (`any_state_is_served`); a state copied byte
//! by byte goes on as the original (`a_copied_state_goes_on`).
//!
//! Not here: how hits become matches (`search`), which of them matter (`memory`).

use crate::marks::marks;
use crate::stream::Streams;
use nf::{FlowState, Plain};

/// Hits kept of each direction.
pub const HITS_MAX: usize = 24;
/// Hits kept of one content of which more than the first matter.
pub const SAME_MAX: usize = 3;
/// How far back a hit may be, in bytes: positions are kept modulo 2³².
pub const BACK_MAX: u64 = 1 << 31;
/// Flow bits of a rule set.
pub const BITS_MAX: usize = 128;

/// Where a content ended.
#[derive(Plain, Clone, Copy, PartialEq, Eq, Debug, Default)]
#[repr(C)]
pub struct Hit {
    /// Number of the content.
    pub pattern: u32,
    /// The position behind it, modulo 2³².
    pub end: u32,
}

/// One direction.
#[derive(Plain, Clone, Copy, PartialEq, Eq, Debug, Default)]
#[repr(C)]
pub struct Way {
    /// States of the two automata.
    pub states: [u32; 2],
    /// How many hits there are.
    pub hits_used: u8,
    reserved: [u8; 7],
    /// The newest first.
    hits: [Hit; HITS_MAX],
}

impl Way {
    /// The hits that are kept, the newest first.
    pub fn hits(&self) -> &[Hit] {
        &self.hits[..usize::from(self.hits_used).min(HITS_MAX)]
    }

    /// Takes hits in the place of those before, given the newest first.
    pub fn set_hits(&mut self, hits: impl Iterator<Item = Hit>) {
        let mut kept = [Hit::default(); HITS_MAX];
        self.hits_used = 0;
        for (slot, hit) in kept.iter_mut().zip(hits) {
            *slot = hit;
            self.hits_used += 1;
        }
        self.hits = kept;
    }
}

/// Bits of [`Inspection::marks`].
pub mod mark {
    /// A `pass` rule holds for the flow.
    pub const PASSED: u8 = 1;
    /// A `drop` or `reject` rule holds for the flow.
    pub const DROPPED: u8 = 2;
    /// Direction 0 was asked about by the rules that ask once.
    pub const ASKED: u8 = 4;
    /// A packet of direction 0 was seen.
    pub const SEEN: u8 = 16;

    /// The bit of one direction.
    pub const fn of(bit: u8, half: usize) -> u8 {
        bit << half
    }
}

marks!(
    /// The marks of a flow, by rules and by what was seen of it: bits of [`mark`].
    pub Marks,
    [
        (mark::PASSED, "passed"),
        (mark::DROPPED, "dropped"),
        (mark::ASKED, "asked_0"),
        (mark::of(mark::ASKED, 1), "asked_1"),
        (mark::SEEN, "seen_0"),
        (mark::of(mark::SEEN, 1), "seen_1"),
    ]
);

/// The state of a flow. Index 0 is the direction that opened the flow.
#[derive(FlowState, Clone, Copy, PartialEq, Eq, Debug, Default)]
#[flow_state(version = 3)]
#[repr(C)]
pub struct Inspection {
    /// Hash of the rule set by which it is to be read; 0 before the first packet.
    pub rules: u64,
    /// Flow bits.
    pub bits: [u64; 2],
    /// Bits of [`mark`].
    pub marks: Marks,
    reserved: [u8; 7],
    /// Each direction's matches so far.
    pub ways: [Way; 2],
    /// TCP.
    pub streams: Streams,
}

impl Inspection {
    /// Begins again with another rule set. A flow that was dropped stays dropped: its bytes so far
    /// are not read again, so no rule would find what they held. A flow that was passed is asked
    /// again: the rule may be there no more.
    pub fn take_up(&mut self, rules: u64) {
        let dropped = self.marks & mark::DROPPED;
        self.begin(rules);
        self.marks |= dropped;
    }

    /// Begins again with a rule set, or with a new connection.
    pub fn begin(&mut self, rules: u64) {
        *self = Inspection {
            rules,
            streams: self.streams,
            ..Inspection::default()
        };
    }

    /// Whether all bits are set.
    pub fn is(&self, marks: u8) -> bool {
        self.marks & marks == marks
    }

    /// Whether a flow bit is set.
    pub fn bit(&self, bit: u8) -> bool {
        let word = self.bits[usize::from(bit) / 64 % 2];
        word >> (bit % 64) & 1 == 1
    }

    /// Sets, clears or turns a flow bit.
    pub fn change_bit(&mut self, bit: u8, change: impl FnOnce(bool) -> bool) {
        let value = change(self.bit(bit));
        let word = &mut self.bits[usize::from(bit) / 64 % 2];
        *word = *word & !(1 << (bit % 64)) | u64::from(value) << (bit % 64);
    }
}

const _: () = assert!(size_of::<Inspection>() <= 504);
