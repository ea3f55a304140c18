//! How long leases last: by the log, not by the words of one start.
//!
//! A member has the term with which it joined. Holders count theirs and grantors theirs, so a
//! cluster has one term as long as a view has members. A start with another `--lease` goes on with
//! that of the log; where the view has no member, its own is logged.
//!
//! The newest record alone is needed.

use crate::log::{Log, LogError};
use crate::proto;
use prost::Message;
use protocols::membership::{Entry, Term, Timing};

/// The term by the log, and the record that says it.
#[derive(Default)]
pub(super) struct Logged(Option<(u64, u64)>);

impl Logged {
    /// Reads a record of the log; the one before it is needed no more. `None`: no coordinator has
    /// written it.
    pub fn replay(&mut self, record: u64, leases: &proto::Leases) -> Option<Option<u64>> {
        let last = (leases.nanoseconds > 0).then_some(leases.nanoseconds)?;
        Some(self.0.replace((record, last)).map(|(before, _)| before))
    }

    /// The times that are in force behind these decisions, and the record that is needed no more.
    pub fn decide(
        self,
        log: &mut dyn Log,
        timing: Timing,
        decisions: &[(u64, Entry)],
        next_record: &mut u64,
    ) -> Result<(Timing, Option<u64>), LogError> {
        let views = decisions.iter().rev().find_map(|(_, entry)| match entry {
            Entry::View(view) => Some(view),
            _ => None,
        });
        let has_members = views.is_some_and(|view| !view.members().is_empty());
        let last = match self.0 {
            Some((_, last)) if has_members || last == timing.term.lease => last,
            _ => {
                let nanoseconds = timing.term.lease;
                let what = proto::record::What::Leases(proto::Leases { nanoseconds });
                log.append(*next_record, &proto::Record { what: Some(what) }.encode_to_vec())?;
                *next_record += 1;
                let before = self.0.map(|(record, _)| record);
                return Ok((timing, before));
            }
        };
        let timing = Timing {
            term: Term { lease: last },
            // A worker that stands still for less than a suspicion is not to go.
            unheard: timing.unheard.max(last.saturating_add(timing.suspicion)),
            ..timing
        };
        Ok((timing, None))
    }
}
