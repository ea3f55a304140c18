//! Groups that have come from another runtime: a replica has all of one or nothing of it, and its
//! source keeps its own until then.
//!
//! ```text
//!   source                  target                                        its replica
//!   State ────────────────► installed ── one change: group, its flows ──► all of it, or nothing
//!   keeps its copy          Done waits ◄───────── acknowledged ───────────┘
//!   its copy goes ◄── Done ──┘
//! ```
//!
//! Should the target fail before, the heir has nothing of the group, and the source takes all of it
//! back. With some of its flows the heir would go on with these, and the source be fenced with the
//! others ([`protocols::ownership::recovery::TakenBack`]). Should it fail behind that, the heir has
//! all of them. So with copies no moment of a move costs a group with its target.
//!
//! *Another base* has these groups before all others, each as one change: while it is sent, the
//! replica has some flows of other groups, which no other runtime has.
//!
//! *How much that is.* A change has room for the copies of all flows that there may be
//! ([`super::changes`]), so no group is too large for one. It is sent in the step that installs it,
//! which is as long as the group has flows. A source begins no more moves before *Done* than it may
//! have under way, so no more is pending at a time than these
//! ([`moved_flows_max`](crate::Settings::moved_flows_max)), or one larger group.
//!
//! A flow that is a group by itself is one record, or one change: its *Done* waits for nothing.
//!
//! Invariants: while a source has a group, its target's replica has all of it, or nothing; packets
//! that pass cost nothing here.
//!
//! Not here: the word (`mobility::stored`), and the same with a data store
//! ([`super::ledger::handed`]).

use crate::flows::group::GroupKey;
use crate::parts::Core;
use nf::Affinity;
use protocols::ownership::recovery::Withdrawn;

impl Core {
    /// A group has come from another runtime, with these flows, or without any: it is copied, if it
    /// is to be.
    #[cold]
    pub fn copy_arrived(&mut self, group: GroupKey, actors: &[u32]) {
        let is_one = self.flows.affinity() != Affinity::Flow && self.sender.is_wanted();
        if is_one && !super::is_broken("groups arrive whole") {
            self.sender.arriving.push(group);
            if self.sender.is_on() {
                return self.copy_whole(group, actors);
            }
        }
        if let Some(index) = self.flows.resting_at(&group) {
            self.copy_resting(index);
        }
    }

    /// By which records the replica has all of a group that has come. What was sent last for it was
    /// sent a moment ago.
    pub fn copies_of_arrived(&self, group: &GroupKey) -> Withdrawn {
        match self.sender.is_on() && self.sender.arriving.contains(group) {
            true => Withdrawn {
                number: self.sender.number,
                count: self.sender.sent,
            },
            false => Withdrawn::default(),
        }
    }

    /// Whether the replica has yet to acknowledge these; of another base, those of all groups that
    /// have come.
    pub fn awaits_arrived(&self, copies: &mut Withdrawn) -> bool {
        if copies.count == 0 || !self.sender.is_on() {
            return false;
        }
        if copies.number != self.sender.number {
            (copies.number, copies.count) = (self.sender.number, self.sender.arriving_sent.max(1));
        }
        self.gate.acknowledged() < copies.count && !super::is_broken("copies are there before done")
    }

    /// The source of a group has none of it any more, or the group is not here.
    pub fn end_arriving(&mut self, group: &GroupKey) {
        if !self.sender.arriving.is_empty() {
            self.sender.arriving.retain(|known| known != group);
        }
    }
}
