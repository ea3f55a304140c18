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
//! *A flow that is a group by itself* is one record, or one change, and is sent at once, too. Of
//! such there may be as many as a source may have under way. So they are in no list here: their
//! *Done* waits for the last record that was sent as they came, and of another base for all of it.
//!
//! *How much that is.* A change has room for the copies of all flows that there may be
//! ([`super::changes`]), so no group is too large for one. It is sent in the step that installs it,
//! which is as long as the group has flows. A source begins no more moves before *Done* than it may
//! have under way, so no more is pending at a time than these
//! ([`moved_flows_max`](crate::Settings::moved_flows_max)), or one larger group.
//!
//! *A group that ends* before its source has read *Done* leaves a word at the replica
//! ([`Copy::Over`]), in the change that has its end. Should the target fail then, its source would
//! take the older state back, though a packet has left that ended it. So the heir announces the
//! group, by which a switch tells the source that another runtime has it, and says that it is idle.
//!
//! Invariants: while a source has a group, its target's replica has all of it, or nothing; packets
//! that pass cost nothing here.
//!
//! Not here: the word (`mobility::stored`), and the same with a data store
//! ([`super::ledger::handed`]).

use super::compare::is_unsettled;
use super::policy::Policy;
use crate::flows::actor::Phase;
use crate::flows::group::GroupKey;
use crate::parts::Core;
use crate::record::Copy;
use nf::Affinity;
use protocols::ownership::recovery::Withdrawn;

impl Core {
    /// A base has begun: groups whose sources may have them are first, with their blocks.
    pub(super) fn copy_arriving(&mut self) {
        self.send_over_again();
        let arriving = core::mem::take(&mut self.sender.arriving);
        for group in &arriving {
            let begins = self.begin_change();
            self.send_blocks_of(*group, true);
            let actors = self.flows.flows_of(*group);
            self.copy_whole(*group, &actors);
            self.end_change(begins);
        }
        self.sender.arriving = arriving;
        self.sender.arriving_sent = self.sender.sent;
    }

    /// Copies a group with its flows, and its new blocks, as one change.
    pub(super) fn copy_whole(&mut self, group: GroupKey, actors: &[u32]) {
        // Not behind any packet's chain: states observed before a chain are of no use.
        self.sender.before.forget();
        let begins = self.begin_change();
        self.send_ends();
        if let Some(index) = self.flows.resting_at(&group) {
            self.copy_resting(index);
        }
        actors.iter().for_each(|actor| self.copy_if_needed(*actor));
        self.end_change(begins);
        self.sender.before.forget();
    }

    pub(super) fn copy_if_needed(&mut self, actor: u32) {
        if self.is_to_be_judged(actor) {
            // Its chain is one of the configuration before; it comes again when it has been asked.
            return;
        }
        let header = self.flows.header(actor);
        // A flow on its way from here is the target's soon; a flow that settles is sent when it
        // has.
        let is_here = matches!(header.phase, Phase::Active | Phase::Waiting) && !is_unsettled(header);
        let has_policy = self.sender.policy_of(header) != Policy::None;
        if is_here && (header.copied != self.sender.base() || !has_policy) {
            self.commit(actor);
        }
    }

    /// A group has come from another runtime, with these flows, or without any: it is copied, if it
    /// is to be.
    #[cold]
    pub fn copy_arrived(&mut self, group: GroupKey, actors: &[u32]) {
        let is_wanted = self.sender.is_wanted() && !super::is_broken("groups arrive whole");
        let is_one = self.flows.affinity() != Affinity::Flow;
        if is_wanted {
            self.sender.come.insert(*group.words(), false);
        }
        if is_wanted && is_one {
            self.sender.arriving.push(group);
        }
        if is_wanted && self.sender.is_on() {
            return match is_one {
                true => self.copy_whole(group, actors),
                false => self.copy_alone(actors),
            };
        }
        if let Some(index) = self.flows.resting_at(&group) {
            self.copy_resting(index);
        }
    }

    /// Copies flows that are groups by themselves.
    fn copy_alone(&mut self, actors: &[u32]) {
        // Not behind any packet's chain, as in `copy_whole`.
        self.sender.before.forget();
        actors.iter().for_each(|actor| self.copy_if_needed(*actor));
        self.sender.before.forget();
    }

    /// By which records the replica has all of a group that has come. Its last record was sent a
    /// moment ago.
    pub fn copies_of_arrived(&self, group: &GroupKey) -> Withdrawn {
        let is_alone = self.flows.affinity() == Affinity::Flow;
        match self.sender.is_on() && (is_alone || self.sender.arriving.contains(group)) {
            true => Withdrawn {
                number: self.sender.number,
                count: self.sender.sent,
            },
            false => Withdrawn::default(),
        }
    }

    /// Whether the replica has yet to acknowledge these; of another base, those of all groups that
    /// have come, and where flows are by themselves, of all flows.
    pub fn awaits_arrived(&self, copies: &mut Withdrawn) -> bool {
        if copies.count == 0 || !self.sender.is_on() {
            return false;
        }
        let is_another = copies.number != self.sender.number;
        if is_another && self.flows.affinity() == Affinity::Flow {
            return !self.sender.is_whole(self.gate.acknowledged())
                && !super::is_broken("copies are there before done");
        }
        if is_another {
            (copies.number, copies.count) = (self.sender.number, self.sender.arriving_sent.max(1));
        }
        self.gate.acknowledged() < copies.count && !super::is_broken("copies are there before done")
    }

    /// The source of a group has none of it any more, or the group is not here.
    pub fn end_arriving(&mut self, group: &GroupKey) {
        if self.sender.come.is_empty() {
            return;
        }
        let is_over = self.sender.come.remove(group.words()) == Some(true);
        if !self.sender.arriving.is_empty() {
            self.sender.arriving.retain(|known| known != group);
        }
        if is_over {
            let said = self.sender.over.len();
            self.sender.over.retain(|known| known != group);
            if said == self.sender.over.len() {
                self.send_copy(Copy::Over {
                    group: *group,
                    is_over: false,
                });
            }
        }
    }

    /// A group ends here. If its source may have it yet, that is said to the replica with the end.
    #[inline]
    pub fn note_over(&mut self, group: &GroupKey) {
        if !self.sender.come.is_empty() {
            self.note_over_of_come(group);
        }
    }

    #[cold]
    fn note_over_of_come(&mut self, group: &GroupKey) {
        let known = self.sender.come.get_mut(group.words());
        let is_new = known.is_some_and(|is_over| !core::mem::replace(is_over, true));
        if is_new && self.sender.is_on() && !super::is_broken("the heir hears of ends") {
            self.sender.over.push(*group);
        }
    }

    /// The same in another base, of all.
    pub(super) fn send_over_again(&mut self) {
        if super::is_broken("the heir hears of ends") {
            return;
        }
        let over = self.sender.come.iter().filter(|(_, is_over)| **is_over);
        self.sender.over = over.map(|(words, _)| GroupKey::from_words(*words)).collect();
        self.send_over();
    }
}
