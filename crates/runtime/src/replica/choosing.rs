//! Which runtime is the replica.
//!
//! ```text
//!   a runtime comes, goes, leaves; an order ─► best ─┬─ the one in use is gone, or there is nothing to copy ─► a base
//!                                                    └─ it is there ─► a base beside it (`next`)
//! ```
//!
//! Invariant: all flows are sent again for an order, for a replica that is gone or leaves, and for
//! nothing else.
//!
//! Not here: what is sent (`sender`).

use super::sender::{REFUSALS_MAX, Unfit};
use crate::parts::Core;

impl Core {
    /// Chooses a replica if none is in use: of the runtimes that are there one that takes flows, of
    /// these the one that was ordered, or the farthest, of
    /// these the next.
    #[cold]
    pub fn choose_replica(&mut self) {
        if !self.sender.is_wanted {
            return;
        }
        let there = self.sender.to.filter(|to| self.sessions.has_runtime(*to));
        if let Some(to) = there
            && self.has_any()
        {
            // All flows are sent again for another choice: for no better place, but where it leaves.
            let is_leaving = |runtime: u16| self.sessions.is_runtime_leaving(runtime);
            let is_coming = self.sender.next.as_ref().is_some_and(|next| !is_leaving(next.to));
            if !is_leaving(to) || is_coming || self.best().is_none_or(is_leaving) {
                return;
            }
        }
        self.choose_now(there.is_some());
    }

    /// Whether there is anything to copy.
    fn has_any(&self) -> bool {
        self.flows.active() + self.flows.groups().resting().len() > 0
    }

    /// This runtime is to keep the copies; `None`: the one that the layout says. The one in use has
    /// them until it has all of them.
    #[cold]
    pub fn order_replica(&mut self, replica: Option<u16>) -> Result<(), Unfit> {
        if !self.sender.is_wanted {
            return Err(Unfit::NoCopies);
        }
        if let Some(replica) = replica {
            let ranks = &self.settings.replica_ranks;
            let is_known = usize::from(replica) < self.sessions.runtimes.len();
            let is_apart = match ranks.is_empty() {
                true => replica != self.settings.info.runtime,
                false => ranks.get(usize::from(replica)).is_some_and(Option::is_some),
            };
            if !is_known || !self.sessions.may_keep_copies(replica) && is_apart {
                return Err(Unfit::NotThere);
            }
            if !is_apart || replica == self.settings.info.runtime {
                return Err(Unfit::SameProcess);
            }
        }
        self.sender.ordered = replica;
        let has_one = self.sender.to.is_some_and(|to| self.sessions.has_runtime(to));
        self.choose_now(has_one);
        Ok(())
    }

    /// The best replica of those that are there.
    fn best(&self) -> Option<u16> {
        let (me, count) = (self.settings.info.runtime, self.sessions.runtimes.len() as u16);
        let others = (1..count).map(|step| (me + step) % count);
        let ranks = &self.settings.replica_ranks;
        let rank = |other: u16| match ranks.is_empty() || wire::planted::is("copies_in_own_process") {
            true => Some(0),
            false => ranks.get(usize::from(other)).copied().flatten(),
        };
        let (refused, times) = self.sender.refused;
        let unfit = (times >= REFUSALS_MAX).then_some(refused);
        let there = others.filter(|other| self.sessions.may_keep_copies(*other) && unfit != Some(*other));
        let is_other = |other| self.sender.ordered.is_some_and(|ordered| ordered != other);
        let ranked = there.filter_map(|other| {
            let is_leaving = self.sessions.is_runtime_leaving(other);
            Some(((is_leaving, is_other(other), rank(other)?), other))
        });
        // The first of equals.
        let chosen = ranked.min_by_key(|(rank, _)| *rank);
        chosen.map(|(_, other)| other)
    }

    /// `has_one`: the replica in use is there.
    pub(super) fn choose_now(&mut self, has_one: bool) {
        let chosen = self.best();
        if has_one && chosen == self.sender.to {
            self.sender.is_asked = false;
            return self.drop_next();
        }
        if let Some(to) = chosen
            && has_one
            && self.has_any()
        {
            return self.begin_next(to);
        }
        if has_one {
            self.send_copy(self.no_base());
        }
        self.use_replica(chosen);
    }
}
