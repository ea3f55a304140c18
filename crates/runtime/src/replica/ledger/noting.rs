//! Which flows are to be written: what a packet changed of its flow and its group.
//!
//! # Theory of operation
//!
//! ```text
//!   before: marks, deadline, first line of the states ─► chain ─► others?
//!                       │ committed bytes, flags, or the group's           │ nothing but lazy bytes, and the deadline
//!                       ▼                                                  ▼
//!        queue: written `interval` later                   touched: written within `lazy` ([`super::lazy`])
//! ```
//!
//! Committed bytes that are in the first line of a flow's states are compared there, with masks made
//! for the chain: eight words, no loop over a list. Longer states are compared by their shape
//! ([`crate::replica::shadow`]). A packet that changes nothing writes nothing but two lines on the
//! stack.
//!
//! A group is looked at only if a call has taken its state, and noted before only where a packet of
//! the chain did so lately. One that was taken and not noted counts as changed. Blocks of ports are
//! noted where they change ([`crate::flows::owners`]).
//!
//! *A deadline* in the store is later than the flow's by [`super::lazy::Lazy::margin`], and
//! [`Header::stored_to`] says how far the flow's may move before it is beyond that: low bits of a
//! time in ticks. Beyond, the flow is in the queue. So a flow from the store never lives shorter
//! than it would have, but for what the last `interval` brought.
//!
//! Invariants: a flow whose header says [`stored::WRITTEN`] has an entry with its committed bytes,
//! or is in the queue; one that says [`stored::TOUCHED`] besides is in the queue, or marked in
//! `lazy`.
//!
//! Not here: the queue ([`super`]), and packets that wait for the store ([`super::through`]).

use super::through::{differs_from_observed, observe_flow, observe_group};
use crate::chain::Stages;
use crate::flows::actor::{Header, NO_GROUP, Phase, flag, stored};
use crate::parts::Core;
use crate::replica::is_broken;
use alloc::vec::Vec;

/// Words of a line.
const LINE: usize = 8;
/// So many packets in a row leave the group alone, until it is not noted before the next.
const TAKING: u8 = 8;
const BOTH: u8 = stored::WRITTEN | stored::TOUCHED;

/// Where what a flow commits is to be found.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
enum Place {
    /// Nothing of it is in a store.
    #[default]
    Nowhere,
    /// In the first line of its states.
    Line,
    /// Beyond that.
    Far,
}

/// What the ledger knows of a chain.
#[derive(Clone, Copy, Default)]
pub(super) struct Kept {
    masks: [u64; LINE],
    /// Behind these words of a line no mask has a bit.
    words: u8,
    place: Place,
    /// Above 0: packets of the chain have taken their group's state lately.
    taking: u8,
}

/// What a packet's flow was before its chain.
pub(crate) struct Before {
    line: [u64; LINE],
    deadline: u64,
    flags: u8,
    answered: bool,
    is_group_noted: bool,
}

impl Kept {
    /// Whether words of a line differ where they are committed. No more are read than have to be:
    /// a function has just written what is behind them, and a wide read would wait for that.
    #[inline(always)]
    fn differs(&self, line: &[u64; LINE], before: &[u64; LINE]) -> bool {
        match self.words {
            0 => false,
            1 => self.differs_in::<1>(line, before),
            2 => self.differs_in::<2>(line, before),
            3 => self.differs_in::<3>(line, before),
            4 => self.differs_in::<4>(line, before),
            _ => self.differs_in::<LINE>(line, before),
        }
    }

    #[inline(always)]
    fn differs_in<const WORDS: usize>(&self, line: &[u64; LINE], before: &[u64; LINE]) -> bool {
        let words = line.iter().zip(before).zip(&self.masks).take(WORDS);
        words.fold(0, |other, ((now, then), mask)| other | (now ^ then) & mask) != 0
    }
}

/// Of each chain; `offset`: where the states of groups begin, in flows that are groups.
fn kept(stages: &Stages, chains: u64, offset: Option<usize>) -> Vec<Kept> {
    let of = |chain: u8| {
        let mut kept = Kept::default();
        let Some(shape) = stages.committed(chain) else {
            return kept;
        };
        if chains >> (chain % 64) & 1 == 0 {
            return kept;
        }
        let shared = offset.map(|offset| (offset, stages.group_committed()));
        let is_near = shape.mask_line(0, &mut kept.masks)
            && shared.is_none_or(|(offset, shape)| shape.mask_line(offset, &mut kept.masks));
        let last = kept.masks.iter().rposition(|mask| *mask != 0);
        kept.words = last.map_or(0, |last| last as u8 + 1);
        kept.place = match is_near {
            true => Place::Line,
            false => Place::Far,
        };
        kept
    };
    (0..stages.chains().min(64) as u8).map(of).collect()
}

impl Core {
    /// Chains, or their policies, are others now.
    pub fn keep_as_configured(&mut self) {
        let offset = (!self.ledger.has_groups).then(|| self.flows.group_offset());
        self.ledger.kept = kept(self.runner.stages(), self.ledger.chains, offset);
        self.see_whether_simple();
    }

    /// Whether there is more to note before packets than the first line of their flows' states.
    fn see_whether_simple(&mut self) {
        let is_simple = |kept: &Kept| kept.place != Place::Far && kept.taking == 0;
        self.ledger.is_simple = self.ledger.kept.iter().all(is_simple);
    }

    /// What a flow is before a packet's chain.
    #[inline(always)]
    pub fn before_noting(&mut self, actor: u32) -> Before {
        self.runner.watch_groups();
        let header = self.flows.header(actor);
        let (deadline, flags, answered) = (header.deadline, header.flags, header.answered);
        let is_simple = self.ledger.is_simple && !self.sender.is_on();
        let is_group_noted = !is_simple && self.before_noting_more(actor);
        Before {
            line: *self.flows.state_line(actor),
            deadline,
            flags,
            answered,
            is_group_noted,
        }
    }

    /// Answers whether the group is noted.
    #[inline(never)]
    fn before_noting_more(&mut self, actor: u32) -> bool {
        let header = self.flows.header(actor);
        let Some(kept) = self.ledger.kept.get(usize::from(header.chain)) else {
            return false;
        };
        let through = &mut self.ledger.through;
        if kept.place == Place::Far {
            observe_flow(through, actor, header, &self.runner, &self.flows);
        }
        // Copies watch for the same, and forget what was taken. Where packets wait it is noted anyway.
        let is_watched = kept.taking > 0 || self.sender.is_on();
        if is_watched && header.group != NO_GROUP && !through.is_on() {
            observe_group(through, header.group, &self.runner, &self.flows);
            return true;
        }
        false
    }

    /// Behind the chain: whether there is nothing to be noted, as far as that is seen at a glance.
    #[inline(always)]
    pub fn is_as_noted(&self, actor: u32, before: &Before) -> bool {
        let header = self.flows.header(actor);
        let Some(kept) = self.ledger.kept.get(usize::from(header.chain)) else {
            return false;
        };
        let is_other = kept.differs(self.flows.state_line(actor), &before.line);
        (!is_other || is_broken("committed bytes are compared"))
            && header.stored == BOTH
            && header.phase == Phase::Active
            && header.flags == before.flags
            && header.answered == before.answered
            && kept.place == Place::Line
            && self.ledger.lazy.reaches(header, before.deadline)
            && !(self.ledger.has_groups && self.runner.is_group_taken())
    }

    /// Behind the chain, where something may be other: what is to be written, and when.
    #[inline(never)]
    pub fn note_lack(&mut self, actor: u32, before: &Before) {
        let header = *self.flows.header(actor);
        let is_taken = self.note_taken(&header);
        let Some(kept) = self.ledger.kept.get(usize::from(header.chain)) else {
            return;
        };
        if kept.place == Place::Nowhere && !is_taken && header.stored == 0 {
            return;
        }
        // Packets that wait have had this written.
        let waits = self.ledger.has_waiting();
        let is_group_other =
            is_taken && !waits && !(before.is_group_noted && self.is_group_as_observed(&header));
        let is_flow_other = match waits && self.ledger.is_whole(actor, header.chain) {
            true => false,
            false => self.is_flow_other(actor, &header, before),
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

    fn is_flow_other(&self, actor: u32, header: &Header, before: &Before) -> bool {
        // What is held is lost with its runtime.
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
        match kept.place {
            Place::Nowhere => false,
            Place::Line => kept.differs(self.flows.state_line(actor), &before.line),
            Place::Far => {
                differs_from_observed(&self.ledger.through, actor, header, &self.runner, &self.flows)
            }
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
