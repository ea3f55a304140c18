//! Which flows are to be written: a packet's changes of its flow and its group.
//!
//! # Theory of operation
//!
//! ```text
//!   before: marks, deadline ─► chain, its calls watched ─► others?
//!                       │ committed bytes, flags, or the group's           │ nothing but lazy bytes, and the deadline
//!                       ▼                                                  ▼
//!        queue: written `interval` later                   touched: written within `lazy` ([`super::lazy`])
//! ```
//!
//! A chain's changes of committed bytes are seen by watching its calls ([`crate::stage::Watched`]).
//! Where packets also wait, for copies or for the store, and where lazy bytes are committed, the
//! states are compared by their shape ([`crate::replica::shadow`]).
//!
//! A group is looked at only if a call has taken its state, and noted before only where a packet of
//! the chain did so lately. A group that was taken and not noted counts as changed. Blocks of ports
//! are noted where they change ([`crate::flows::owners`]).
//!
//! *A deadline* in the store is later than the flow's by [`super::lazy::Lazy::margin`], and
//! [`Header::stored_to`] says how far the flow's may move before it is beyond that: low bits of a
//! time in ticks. Beyond, the flow is in the queue. So a flow from the store never lives shorter
//! than it would have, but for what the last `interval` brought.
//!
//! Invariants: a flow whose header says [`stored::WRITTEN`] has an entry with its committed bytes,
//! or is in the queue; a flow whose header says [`stored::TOUCHED`] besides is in the queue, or
//! marked in `lazy`.
//!
//! Not here: the queue ([`super`]), and packets that wait for the store ([`super::through`]).

use super::through::{differs_from_observed, observe_flow, observe_group};
use crate::flows::actor::{Header, NO_GROUP, Phase, flag, stored};
use crate::parts::Core;
use crate::replica::is_broken;
use crate::runner::Changed;

/// So many packets in a row leave the group alone, until it is not noted before the next.
const TAKING: u8 = 8;
const BOTH: u8 = stored::WRITTEN | stored::TOUCHED;

/// The ledger's facts about a chain.
#[derive(Clone, Copy, Default)]
pub(super) struct Kept {
    /// Whether its flows are in a store.
    is_stored: bool,
    /// Above 0: packets of the chain have taken their group's state lately.
    taking: u8,
}

/// A packet's flow before its chain.
pub(crate) struct Before {
    deadline: u64,
    flags: u8,
    answered: bool,
    is_group_noted: bool,
}

impl Core {
    /// Chains, or their policies, are others now.
    pub fn keep_as_configured(&mut self) {
        let ledger = &self.ledger;
        let kept = (0..self.runner.stages().chains().min(64) as u8).map(|chain| Kept {
            is_stored: ledger.has_policy(chain),
            taking: 0,
        });
        self.ledger.kept = kept.collect();
        self.see_whether_simple();
    }

    /// Whether no group is to be noted before packets.
    fn see_whether_simple(&mut self) {
        self.ledger.is_simple = self.ledger.kept.iter().all(|kept| kept.taking == 0);
    }

    /// The flow before a packet's chain; without `WATCHED` its calls are not watched.
    #[inline(always)]
    pub fn before_noting<const WATCHED: bool>(&mut self, actor: u32) -> Before {
        self.runner.watch_groups();
        if !WATCHED {
            self.observe_kept(actor);
        }
        let is_simple = self.ledger.is_simple && !self.sender.is_on();
        let is_group_noted = !is_simple && self.observe_taken(actor);
        let header = self.flows.header(actor);
        Before {
            deadline: header.deadline,
            flags: header.flags,
            answered: header.answered,
            is_group_noted,
        }
    }

    /// Notes a flow, if it is in a store.
    fn observe_kept(&mut self, actor: u32) {
        let header = self.flows.header(actor);
        let kept = self.ledger.kept.get(usize::from(header.chain));
        if kept.is_some_and(|kept| kept.is_stored) {
            observe_flow(&mut self.ledger.through, actor, header, &self.runner, &self.flows);
        }
    }

    /// Notes a flow's group, if packets of its chain take it; answers whether.
    #[inline(never)]
    fn observe_taken(&mut self, actor: u32) -> bool {
        let header = self.flows.header(actor);
        let Some(kept) = self.ledger.kept.get(usize::from(header.chain)) else {
            return false;
        };
        let through = &mut self.ledger.through;
        // Copies watch for the same, and forget which states were taken. Where packets wait the
        // group is noted anyway.
        let is_watched = kept.taking > 0 || self.sender.is_on();
        if is_watched && header.group != NO_GROUP && !through.is_on() {
            observe_group(through, header.group, &self.runner, &self.flows);
            return true;
        }
        false
    }

    /// Behind a chain whose calls were watched: whether there is nothing to be noted. Marks of the
    /// flow are others only behind a call that has effects.
    #[inline(always)]
    pub fn is_as_noted(&self, actor: u32, before: &Before) -> bool {
        let header = self.flows.header(actor);
        let changed = self.runner.changed();
        (changed == Changed::Nothing || is_broken("committed bytes are compared"))
            && header.stored == BOTH
            && header.phase == Phase::Active
            && header.flags == before.flags
            && self.ledger.lazy.reaches(header, before.deadline)
            && !(self.ledger.has_groups && self.runner.is_group_taken())
    }

    /// Behind the chain, where the flow may have changed: notes it for writing, and when.
    /// `WATCHED`: its calls were watched.
    #[inline(never)]
    pub fn note_lack<const WATCHED: bool>(&mut self, actor: u32, before: &Before) {
        let header = *self.flows.header(actor);
        let is_taken = self.note_taken(&header);
        let Some(kept) = self.ledger.kept.get(usize::from(header.chain)) else {
            return;
        };
        if !kept.is_stored && !is_taken && header.stored == 0 {
            return;
        }
        // Packets that wait have had this written.
        let waits = self.ledger.has_waiting();
        let is_group_other =
            is_taken && !waits && !(before.is_group_noted && self.is_group_as_observed(&header));
        let is_flow_other = match waits && self.ledger.is_whole(actor, header.chain) {
            true => false,
            false => self.is_flow_other::<WATCHED>(actor, &header, before),
        };
        let is_beyond = !self.ledger.lazy.reaches(&header, before.deadline);
        if is_flow_other || is_group_other || is_beyond || header.stored & stored::WRITTEN == 0 {
            return self.note(actor);
        }
        if is_taken && let Some(group) = self.ledger.groups.get_mut(header.group as usize) {
            group.is_changed = true;
        }
        if header.stored & stored::TOUCHED == 0 {
            self.flows.header_mut(actor).stored |= stored::TOUCHED;
            self.ledger.lazy.touch(actor, self.now);
        }
    }

    /// Whether a packet may have written its group's state, of which its chain has a memory.
    fn note_taken(&mut self, header: &Header) -> bool {
        // A flow that is new takes it to begin.
        let is_known = header.stored & stored::WRITTEN != 0;
        let has_group = header.group != NO_GROUP && !is_broken("groups are compared");
        let is_taken = has_group && (self.sender.is_on() || self.runner.is_group_taken());
        if let Some(kept) = self.ledger.kept.get_mut(usize::from(header.chain)) {
            let before = kept.taking;
            kept.taking = match is_taken && is_known {
                true => TAKING,
                false => before.saturating_sub(1),
            };
            if (kept.taking == 0) != (before == 0) {
                self.see_whether_simple();
            }
        }
        is_taken
    }

    fn is_group_as_observed(&self, header: &Header) -> bool {
        let state = self.flows.groups().state_bytes(header.group);
        let shape = self.runner.stages().group_committed();
        !shape.differs(state, self.ledger.through.observed_group())
    }

    fn is_flow_other<const WATCHED: bool>(&self, actor: u32, header: &Header, before: &Before) -> bool {
        // Held packets are lost with their runtime.
        let is_marked =
            (header.flags ^ before.flags) & !flag::HOLDS != 0 || header.answered != before.answered;
        if is_marked || header.phase != Phase::Active {
            return true;
        }
        let Some(kept) = self.ledger.kept.get(usize::from(header.chain)) else {
            return true;
        };
        if is_broken("committed bytes are compared") {
            return false;
        }
        if !kept.is_stored {
            return false;
        }
        match self.runner.changed() {
            Changed::Nothing if WATCHED => false,
            Changed::Something if WATCHED => true,
            Changed::Unknown if WATCHED => {
                let (stages, state) = (self.runner.stages(), self.flows.state_bytes(actor));
                let shape = stages.committed(header.chain);
                shape.is_none_or(|shape| shape.differs_from(state, stages.shadow()))
            }
            _ => differs_from_observed(&self.ledger.through, actor, header, &self.runner, &self.flows),
        }
    }

    /// A flow may have changed, and its group: they are in the queue.
    pub(super) fn note(&mut self, actor: u32) {
        let header = *self.flows.header(actor);
        self.ledger.note(actor, &header, self.now);
        if self.ledger.has_policy(header.chain) {
            let (bits, to) = self.ledger.lazy.marks(header.deadline, true);
            let header = self.flows.header_mut(actor);
            (header.stored, header.stored_to) = (bits, to);
        }
    }

    /// Groups whose blocks are others now: a packet that took one is behind its chain.
    #[inline]
    pub(super) fn note_blocks(&mut self) {
        while let Some(group) = self.flows.owners.take_group() {
            if let Some(index) = self.flows.groups().at(group) {
                self.ledger.note_group(index, false, self.now);
            }
        }
    }
}
