//! The limits' state: a [`Counted`] per flow, a [`Host`] per inside address.
//!
//! Both are plain data: they migrate and are replicated as bytes. A flow knows the address for
//! which it is counted, so its end needs nothing else. The group has the host's address, which a
//! packet from outside to a translated address does not tell. It has a copy of the host's buckets
//! and of its refusals, with when they were told last: a host that moves keeps what it has spent
//! and is not told of again.
//!
//! Not here: the counts themselves, which follow from the flows ([`super::hosts`]).

use super::config::Rate;
use super::hosts::Entry;
use nf::{Addr, FlowState, Plain, Side, Time};

/// Which side opened a flow, and whether it is counted.
#[derive(Plain, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
#[repr(u8)]
pub enum Opened {
    /// No packet of it was let through yet.
    #[default]
    Undecided = 0,
    /// Not counted: the host has no limits.
    Exempt = 1,
    /// Counted: the host opened it.
    FromInside = 2,
    /// Counted: an outside host opened it to the host.
    FromOutside = 3,
}

/// The two ways that are counted apart.
pub(super) const DIRECTIONS: usize = 2;

impl Opened {
    pub(super) fn by(side: Side) -> Self {
        match side {
            Side::Inside => Opened::FromInside,
            Side::Outside => Opened::FromOutside,
        }
    }

    /// Which of the counts it is in.
    pub(super) fn direction(self) -> Option<usize> {
        match self {
            Opened::Undecided | Opened::Exempt => None,
            Opened::FromInside => Some(0),
            Opened::FromOutside => Some(1),
        }
    }

    pub(super) fn name(self) -> &'static str {
        match self {
            Opened::FromOutside => "outside",
            _ => "inside",
        }
    }
}

/// The state of one flow, 17 bytes.
#[derive(FlowState, Clone, Copy, PartialEq, Eq, Debug, Default)]
#[flow_state(version = 1)]
#[repr(C)]
pub struct Counted {
    /// The inside address it is counted for.
    pub(super) host: Addr,
    /// Whether it is, and how.
    pub(super) opened: Opened,
}

/// A bucket of tokens, in nanoseconds of credit.
#[derive(Plain, Clone, Copy, PartialEq, Eq, Debug, Default)]
#[repr(C)]
pub struct Bucket {
    pub(super) credit: u64,
    /// When the credit was that.
    pub(super) since: Time,
}

impl Bucket {
    /// A bucket that nothing was ever taken from.
    pub(super) fn full(rate: Rate) -> Self {
        Bucket {
            credit: rate.most,
            since: Time::NEVER,
        }
    }

    /// Its credit now.
    fn now(self, rate: Rate, now: Time) -> u64 {
        let earned = now.nanoseconds_since(self.since);
        self.credit.saturating_add(earned).min(rate.most)
    }

    pub(super) fn is_full(self, rate: Rate, now: Time) -> bool {
        self.now(rate, now) == rate.most
    }

    /// Takes the price of a flow, if there is as much.
    pub(super) fn take(&mut self, rate: Rate, now: Time) -> bool {
        let credit = self.now(rate, now);
        let enough = credit >= rate.cost;
        *self = Bucket {
            credit: if enough { credit - rate.cost } else { credit },
            since: now,
        };
        enough
    }
}

/// The state of one inside address.
#[derive(FlowState, Clone, Copy, PartialEq, Eq, Debug, Default)]
#[flow_state(version = 2)]
#[repr(C)]
pub struct Host {
    /// The address, once the host itself has opened a flow; unspecified before.
    pub(super) inside: Addr,
    /// The address whose account the rest is a copy of: the host's; until that is known, the last
    /// destination of packets from outside.
    #[flow_state(lazy)]
    pub(super) account: Addr,
    /// Its buckets when a flow was last let through, for a runtime without an account of the host
    /// yet.
    #[flow_state(lazy)]
    pub(super) buckets: [Bucket; DIRECTIONS],
    /// Flows refused, and when that was last told, if it was: so that it is not told again wherever
    /// the host goes.
    #[flow_state(lazy)]
    pub(super) refused: [u64; DIRECTIONS],
    /// See above.
    #[flow_state(lazy)]
    pub(super) told: [Time; DIRECTIONS],
}

impl Host {
    /// Takes a copy of an account.
    pub(super) fn copy(&mut self, address: Addr, entry: &Entry) {
        self.account = address;
        self.buckets = entry.buckets;
        self.refused = entry.refused;
        self.told = entry.told;
    }
}
