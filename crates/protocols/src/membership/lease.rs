//! One lease between two workers: the holder's end and the grantor's.

use super::{Bug, has};

/// How long leases last. The same at all workers of a cluster.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Term {
    /// Of a lease, at its holder, in nanoseconds.
    pub lease: u64,
}

impl Term {
    /// The part of a term by which clocks may differ meanwhile.
    const DRIFT: u64 = 16;

    /// How long a promise lasts at its grantor, in nanoseconds: longer than the lease by what their
    /// clocks' rates may differ.
    pub const fn promise(self) -> u64 {
        self.lease.saturating_add(self.lease.div_ceil(Self::DRIFT))
    }
}

/// The holder's end.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Lease {
    /// Until when it lasts, by the holder's clock, in nanoseconds.
    until: u64,
}

impl Lease {
    /// A grant has come: `asked` is the holder's own reading from when it asked, as the grantor
    /// said it back.
    pub fn renew(&mut self, now: u64, asked: u64, term: Term) {
        // A reading that is yet to come is none of the holder's.
        if asked <= now {
            let from = if has(Bug::CountsFromGrant) { now } else { asked };
            self.until = self.until.max(from.saturating_add(term.lease));
        }
    }

    /// Whether it lasts.
    #[inline(always)]
    pub const fn is_valid(&self, now: u64) -> bool {
        now < self.until
    }

    /// Until when it lasts, in nanoseconds of the holder's clock.
    pub const fn until(&self) -> u64 {
        self.until
    }
}

/// The grantor's end.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Grant {
    /// Until when the holder may have the lease, by the grantor's clock, in nanoseconds.
    promised: u64,
}

impl Grant {
    /// Grants the lease once more.
    pub fn grant(&mut self, now: u64, term: Term) {
        self.promised = self.promised.max(now.saturating_add(term.promise()));
    }

    /// Whether the holder cannot have the lease any more.
    pub fn is_over(&self, now: u64) -> bool {
        now >= self.promised || has(Bug::WithdrawsAtOnce)
    }

    /// Until when the promise lasts, in nanoseconds of the grantor's clock.
    pub const fn promised(&self) -> u64 {
        self.promised
    }
}
