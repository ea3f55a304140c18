//! How many answers a function may still make: a bucket of tokens (RFC 1812 4.3.2.8, RFC 4443 2.4
//! f).

use core::cell::Cell;
use nf::Time;

/// How many answers may still be made: a second's worth at most at once.
pub(crate) struct Budget {
    per_second: u64,
    /// Nanoseconds of credit; an answer costs `1e9 / per_second`.
    credit: Cell<u64>,
    since: Cell<Time>,
}

const SECOND: u64 = 1_000_000_000;

impl Budget {
    pub fn new(per_second: u32) -> Self {
        Budget {
            per_second: u64::from(per_second),
            credit: Cell::new(SECOND),
            since: Cell::new(Time::NEVER),
        }
    }

    /// Takes one answer, if there is one left.
    pub fn take(&self, now: Time) -> bool {
        let Some(cost) = SECOND.checked_div(self.per_second) else {
            return false;
        };
        let earned = now.nanoseconds_since(self.since.replace(now));
        let credit = self.credit.get().saturating_add(earned).min(SECOND);
        let enough = credit >= cost;
        self.credit.set(if enough { credit - cost } else { credit });
        enough
    }
}
