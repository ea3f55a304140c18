//! NAT's state: a [`Translation`] per flow, a [`Host`] per inside address.
//!
//! Both are plain data: they migrate and are replicated as bytes. A packet of an established flow
//! needs its `Translation` and nothing else. Example: 10.0.0.1:5000 talks to 198.51.100.7:53 as
//! 203.0.113.1:1733:
//!
//! ```text
//!   inside 10.0.0.1:5000 │ outside 203.0.113.1:1733 │ remote 198.51.100.7:53 │ mapping 9 │ phase Udp │ how 0
//!   from inside:  source must be `inside`, becomes `outside`
//!   from outside: destination must be `outside`, becomes `inside`
//! ```
//!
//! The phase is the timer's class. TCP follows RFC 6146 3.5.2.2, which RFC 7857 2 takes as the
//! model for NAT:
//!
//! ```text
//!   Opening ──SYN of the other end──► Established ──FIN──► OpenerFin / ReplierFin ──other FIN──► Closing
//!   PickedUp ──answer──► Established        │ RST (from any)
//!                             ▲             ▼
//!                             └─ no RST ─ Reset
//!   Closing ──new SYN──► Opening (of the opener) or Reset (of the other end)
//! ```
//!
//! Established, OpenerFin and ReplierFin have the established timeout, Opening and PickedUp the
//! opening one, Closing and Reset the closing one.
//!
//! Invariants (checked in `tests`): `mapping` is 0 exactly for a flow that is not translated;
//! `Host::blocks` are distinct and all on `Host::outside`; at most one of them has no mapping.
//!
//! Not here: which ports are free, and which flows use a mapping. Both follow from the flow states
//! and live in the instance (`ports`, `mappings`).

use crate::marks::marks;
use core::fmt;
use nf::{Addr, Direction, Endpoint, FlowState, Plain};
use wire::tcp::flags;

/// An IPv4 address in network order and a port: 6 bytes of flow state.
#[derive(Plain, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
#[repr(C)]
pub struct V4Endpoint {
    /// The address.
    pub addr: [u8; 4],
    /// Port or ICMP identifier, in host order.
    pub port: u16,
}

impl V4Endpoint {
    /// An endpoint from its parts.
    pub const fn new(addr: [u8; 4], port: u16) -> Self {
        V4Endpoint { addr, port }
    }

    /// The IPv4 endpoint that `wide` is, `None` for IPv6.
    #[inline]
    pub fn of(wide: Endpoint) -> Option<Self> {
        Some(V4Endpoint::new(wide.addr.as_v4()?, wide.port))
    }

    /// As the wide type.
    #[inline]
    pub fn wide(self) -> Endpoint {
        Endpoint::new(Addr::v4(self.addr), self.port)
    }

    /// The address as a number.
    #[inline]
    pub fn number(self) -> u32 {
        u32::from_be_bytes(self.addr)
    }

    /// As `wire::rewrite` takes it.
    #[inline(always)]
    pub(super) fn pair(self) -> ([u8; 4], u16) {
        (self.addr, self.port)
    }
}

impl fmt::Display for V4Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d] = self.addr;
        write!(f, "{a}.{b}.{c}.{d}:{}", self.port)
    }
}

impl fmt::Debug for V4Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Where a flow stands, which is also its timer's class.
#[derive(Plain, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
#[repr(u8)]
pub enum Phase {
    /// Nothing decided: no packet was let through yet.
    #[default]
    Fresh = 0,
    /// TCP: a SYN of the opener.
    Opening = 1,
    /// TCP: begun in the middle, by a packet without SYN.
    PickedUp = 2,
    /// TCP: both ends have sent a FIN.
    Closing = 3,
    /// TCP: the last packet but SYNs was a RST.
    Reset = 4,
    // From here on, a packet without SYN, FIN and RST changes nothing: `Translation::note` relies
    // on the order.
    /// TCP: data flows.
    Established = 5,
    /// TCP: the opener has sent its FIN.
    OpenerFin = 6,
    /// TCP: the other end has sent its FIN.
    ReplierFin = 7,
    /// UDP.
    Udp = 8,
    /// UDP with a remote port below 1024 (RFC 4787 REQ-5 a).
    UdpWellKnown = 9,
    /// An ICMP query and its answers.
    Query = 10,
    /// Passed untouched: not ours to translate.
    Untouched = 11,
}

/// How many phases there are.
pub(super) const PHASES: usize = 12;

impl Phase {
    /// The phase in which a TCP flow starts, by its first packet's flags.
    pub(super) fn of_first(tcp_flags: u8) -> Phase {
        if tcp_flags & flags::RST != 0 {
            Phase::Reset
        } else if tcp_flags & flags::SYN != 0 {
            Phase::Opening
        } else {
            Phase::PickedUp
        }
    }

    /// The phase after one more TCP packet.
    pub(super) fn after(self, tcp_flags: u8, direction: Direction) -> Phase {
        let has = |bit: u8| tcp_flags & bit != 0;
        let opener = direction == Direction::Opening;
        if self >= Phase::Udp || self == Phase::Fresh {
            return self;
        }
        if has(flags::RST) {
            return Phase::Reset;
        }
        let fresh_syn = has(flags::SYN) && !has(flags::ACK);
        match self {
            // A SYN of the other end, with ACK or without (simultaneous open, RFC 5382 REQ-2).
            Phase::Opening if !opener && has(flags::SYN) => Phase::Established,
            Phase::PickedUp if !opener => Phase::Established,
            Phase::Closing if fresh_syn && opener => Phase::Opening,
            Phase::Closing if fresh_syn => Phase::Reset,
            Phase::Reset if fresh_syn && opener => Phase::Opening,
            Phase::Reset if !has(flags::SYN) => Phase::Established,
            Phase::Established if has(flags::FIN) && opener => Phase::OpenerFin,
            Phase::Established if has(flags::FIN) => Phase::ReplierFin,
            Phase::OpenerFin if has(flags::FIN) && !opener => Phase::Closing,
            Phase::ReplierFin if has(flags::FIN) && opener => Phase::Closing,
            other => other,
        }
    }
}

/// Bits of [`Translation::how`].
pub(super) mod how {
    /// The first packet came from outside.
    pub const FROM_OUTSIDE: u8 = 1;
    /// The remote end is one of our own external addresses: packets from inside turn around (RFC
    /// 4787 REQ-9).
    pub const HAIRPIN: u8 = 2;
    /// Untouched because its source is not one of those that are translated.
    pub const NOT_INSIDE: u8 = 4;
    /// A packet has run against the opening direction.
    pub const ANSWERED: u8 = 8;
    /// Behind that the opener has sent again: it is a host that hears answers.
    pub const PROVEN: u8 = 16;
}

marks!(
    /// How a flow came to be: bits of [`how`].
    pub(super) How,
    [
        (how::FROM_OUTSIDE, "from_outside"),
        (how::HAIRPIN, "hairpin"),
        (how::NOT_INSIDE, "not_inside"),
        (how::ANSWERED, "answered"),
        (how::PROVEN, "proven"),
    ]
);

/// The state of one flow, 24 bytes.
#[derive(FlowState, Clone, Copy, PartialEq, Eq, Debug, Default)]
#[flow_state(version = 1)]
#[repr(C)]
pub struct Translation {
    /// Handle of the mapping in this instance; 0 for none, [`STATIC`] for a static one. It is made
    /// again on arrival.
    pub(super) mapping: u32,
    /// The endpoint in the private realm.
    pub(super) inside: V4Endpoint,
    /// The external endpoint that stands for it.
    pub(super) outside: V4Endpoint,
    /// The other end, as the NAT sees it.
    pub(super) remote: V4Endpoint,
    /// Where the connection stands.
    pub(super) phase: Phase,
    /// Bits of [`how`].
    pub(super) how: How,
}

const _: () = assert!(size_of::<Translation>() == 24);

/// In [`Translation::mapping`]: a mapping from the configuration, which is never released.
pub(super) const STATIC: u32 = u32::MAX;

impl Translation {
    /// Whether packets of the flow are rewritten.
    #[inline(always)]
    pub(super) fn is_translated(&self) -> bool {
        self.mapping != 0
    }

    /// Whether the flow's packets from inside turn around.
    #[inline(always)]
    pub(super) fn is_hairpin(&self) -> bool {
        self.how & how::HAIRPIN != 0
    }

    /// Notes the flags of a TCP packet; 0 for any other.
    #[inline(always)]
    pub(super) fn note(&mut self, tcp_flags: u8, direction: Direction) {
        const TURNING: u8 = flags::SYN | flags::FIN | flags::RST;
        if tcp_flags & TURNING != 0 || self.phase < Phase::Established {
            self.phase = self.phase.after(tcp_flags, direction);
        }
    }

    /// Whether the opener has been heard behind an answer.
    #[inline(always)]
    pub(super) fn is_proven(&self) -> bool {
        self.how & how::PROVEN != 0
    }

    /// Notes which way a packet of a flow ran that is not proven. Whether the flow is proven with
    /// it. A reset proves nothing: a host sends one that hears an answer to what another has sent
    /// in its name.
    pub(super) fn prove(&mut self, tcp_flags: u8, direction: Direction) -> bool {
        if direction == Direction::Reply {
            self.how |= how::ANSWERED;
        } else if self.how & how::ANSWERED != 0 && tcp_flags & flags::RST == 0 {
            self.how |= how::PROVEN;
        }
        self.is_proven()
    }

    /// The external endpoint, once the flow is translated.
    pub fn outside(&self) -> Option<Endpoint> {
        self.is_translated().then(|| self.outside.wide())
    }
}

/// The most blocks a host can have, whatever the configuration says.
pub const BLOCKS_MAX: usize = 24;

/// The state of one inside address, 64 bytes: its external address (paired pooling, RFC 4787 REQ-2)
/// and its blocks.
#[derive(FlowState, Clone, Copy, PartialEq, Eq, Debug, Default)]
#[flow_state(version = 1)]
#[repr(C)]
pub struct Host {
    /// The external address; meaningful while there are blocks.
    pub(super) outside: [u8; 4],
    /// The inside address, once it has had a mapping.
    pub(super) inside: [u8; 4],
    /// Dynamic mappings in use.
    pub(super) mappings: u32,
    /// First ports of the blocks; `count` of them.
    pub(super) firsts: [u16; BLOCKS_MAX],
    /// How many blocks.
    pub(super) count: u8,
    /// The block that gave the last port.
    pub(super) current: u8,
    pub(super) reserved: [u8; 2],
}

const _: () = assert!(size_of::<Host>() == 64);

impl Host {
    /// First ports of the blocks the host has.
    pub(super) fn blocks(&self) -> &[u16] {
        // A peer's bytes may claim more than there is.
        &self.firsts[..usize::from(self.count).min(BLOCKS_MAX)]
    }

    /// Notes a new block; the caller has seen that there is room.
    pub(super) fn push(&mut self, first: u16) {
        debug_assert!(usize::from(self.count) < BLOCKS_MAX);
        if let Some(free) = self.firsts.get_mut(usize::from(self.count)) {
            *free = first;
            self.current = self.count;
            self.count += 1;
        }
    }

    /// Forgets a block.
    pub(super) fn remove(&mut self, first: u16) {
        let count = self.blocks().len();
        if let Some(at) = self.blocks().iter().position(|f| *f == first) {
            self.firsts.swap(at, count - 1);
            self.firsts[count - 1] = 0;
            self.count = (count - 1) as u8;
            self.current = 0;
        }
    }
}
