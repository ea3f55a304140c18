//! Answers to switches that ask about keys and blocks, as far as there are buffers; the rest later.
//!
//! ```text
//!   question ─► told at once, as a rule
//!        └────► waits, while a step needs the buffers for its own messages ─► looked at again, and told if it is still so
//! ```
//!
//! Invariants: a question is answered once, or needs no answer any more; the messages that a step
//! begins itself have their buffers, however much is asked. How many answers wait follows from how
//! much there is to ask about ([`Moves::answers_max`]); beyond it a question is refused
//! (`words_refused`). Only a switch that asks again and again can bring that about; it asks again
//! with its next packet for the group.
//!
//! Not here: words that no switch has asked for (`output.rs`, `messages.rs`).

use super::Moves;
use super::Moving;
use super::target::BLOCKS_MAX;
use crate::flows::group::GroupKey;
use crate::message::Message;
use crate::parts::Core;
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use nf::Block;
use protocols::ownership::{Phase as Part, Switches};

/// The answer to a switch.
#[derive(Clone, Copy)]
pub(crate) enum SwitchAnswer {
    /// The key is idle, if it is.
    GroupEmpty(GroupKey),
    /// Whether the group has the block.
    Block(Block, GroupKey),
    /// The runtime that has the key is to be asked.
    RouteSuspect(GroupKey),
}

/// Answers that wait, each for a switch.
pub(crate) type Answers = VecDeque<(u8, SwitchAnswer)>;

impl Moves {
    /// The most answers that may wait: for each switch, the keys and blocks that may have routes to
    /// here, at most three for each flow.
    fn answers_max(&self, flows: usize, switches: u8) -> usize {
        3 * flows * usize::from(switches)
    }
}

impl Moves {
    /// Answers a switch, behind whatever is still to be answered. `false`: it asks more than there
    /// is.
    pub(crate) fn answer_switch(&mut self, core: &mut Core, link: usize, answer: SwitchAnswer) -> bool {
        let most = self.answers_max(core.flows.capacity(), core.settings.switches);
        if self.answers.len() >= most {
            return false;
        }
        self.answer_anyway(core, link, answer);
        true
    }

    /// The same of what this runtime says by itself of a group whose move is over.
    pub(crate) fn answer_anyway(&mut self, core: &mut Core, link: usize, answer: SwitchAnswer) {
        self.answers.push_back((link as u8, answer));
        self.go_on_answering(core);
    }

    /// Goes on with answers; says how many were given.
    pub(crate) fn go_on_answering(&mut self, core: &mut Core) -> usize {
        let mut count = 0;
        // A worker that is short by no more than a frame of these goes on: at rest a small pool may
        // have no more than that.
        while core.out.has_room()
            && let Some((link, answer)) = self.answers.pop_front()
        {
            count += 1;
            let link = usize::from(link);
            let message = match answer {
                // A switch that is gone is told everything when it comes.
                _ if !core.out.is_present(link) => continue,
                SwitchAnswer::GroupEmpty(key)
                    if core.has_group(&key) || core.silent.defers(key, &core.settings.seed) =>
                {
                    continue;
                }
                // It is said when the replica knows of the end.
                SwitchAnswer::GroupEmpty(key) if core.flows.parting.has_idle(&key) => continue,
                SwitchAnswer::GroupEmpty(key) => Message::GroupEmpty(key, 0),
                SwitchAnswer::Block(block, group) if self.is_block_deferred(core, link, block, group) => {
                    continue;
                }
                SwitchAnswer::Block(block, group)
                    if core.flows.owners.at(block.addr, block.first) == Some(group) =>
                {
                    Message::BlockClaimed(block, group)
                }
                SwitchAnswer::Block(block, group) => Message::BlockSuspect(block, group),
                SwitchAnswer::RouteSuspect(key) => Message::RouteSuspect(key),
            };
            core.out.send(link, &message);
            if let Message::BlockClaimed(..) = message {
                // A new flow may use the block before the switch has heard.
                core.out.barrier_mut().note(link);
            }
        }
        count
    }

    /// Whether it is yet to be seen if a group has a block: it is on its way. It is told when that
    /// is over.
    pub(crate) fn is_block_deferred(
        &mut self,
        core: &mut Core,
        link: usize,
        block: Block,
        group: GroupKey,
    ) -> bool {
        let most = BLOCKS_MAX * usize::from(core.settings.switches);
        let id = self.at(group.hash(&core.settings.seed));
        let moving = id.and_then(|id| self.moving(id));
        let is_under_way = |moving: &&mut Moving| {
            moving.group == group && !matches!(moving.machine.phase(), Part::Announcing { .. })
        };
        let Some(moving) = moving.filter(is_under_way) else {
            return false;
        };
        if !moving.asked.contains(&(link, block)) {
            // A group has no more blocks.
            let may = moving.asked.len() < most;
            if may {
                moving.asked.push((link, block));
            }
            if !may {
                core.out.reject();
            }
        }
        true
    }

    /// Tells all switches again which blocks a group has here: they may have forgotten them with a
    /// worker that is gone.
    #[cold]
    pub(crate) fn claim_again(&mut self, core: &mut Core, group: GroupKey) {
        let blocks: Vec<_> = core.flows.owners.of(&group).collect();
        for block in blocks {
            for link in 0..usize::from(core.settings.switches) {
                self.answer_anyway(core, link, SwitchAnswer::Block(block, group));
            }
        }
    }

    /// A move is over of which some switch was told late.
    #[cold]
    pub(super) fn tell_over(&mut self, core: &mut Core, moving: &Moving) {
        for key in moving.reply_keys.iter().chain([&moving.group]) {
            for switch in 0..core.settings.switches {
                if self.is_home(core, key, switch) {
                    self.answer_anyway(core, usize::from(switch), SwitchAnswer::RouteSuspect(*key));
                }
            }
        }
        for block in &moving.blocks_tentative {
            for link in 0..usize::from(core.settings.switches) {
                self.answer_anyway(core, link, SwitchAnswer::Block(*block, moving.group));
            }
        }
    }

    /// Answers the questions that switches asked while a group was on its way.
    #[cold]
    pub(super) fn answer_asked(&mut self, core: &mut Core, moving: &Moving) {
        for (link, block) in &moving.asked {
            self.answer_anyway(core, *link, SwitchAnswer::Block(*block, moving.group));
        }
        if let Part::Active = moving.machine.phase() {
            // Once the kept packets are processed, it is said anyway.
            return;
        }
        for (link, key) in &moving.keys_asked {
            self.answer_anyway(core, *link, SwitchAnswer::GroupEmpty(GroupKey::from_words(*key)));
        }
    }

    /// A switch asks whether a group has a block here.
    #[cold]
    pub(crate) fn handle_block_suspect(
        &mut self,
        core: &mut Core,
        link: usize,
        block: Block,
        group: GroupKey,
    ) {
        let may = self.answer_switch(core, link, SwitchAnswer::Block(block, group));
        if !may {
            core.out.reject();
        }
    }

    /// A switch asks whether a key is one of a flow, or group, here.
    #[cold]
    pub(crate) fn handle_route_suspect(&mut self, core: &mut Core, link: usize, key: GroupKey) {
        self.barred.admit(&key);
        let id = self.at(key.hash(&core.settings.seed));
        if let Some(moving) = id.and_then(|id| self.moving(id)) {
            // It is known by its own key and its reply keys. Each of them once for each switch.
            moving.keys_asked.insert((link, *key.words()));
        }
        if core.has_group(&key) {
            return;
        }
        // The step's own messages go before.
        if self.answers.is_empty() && core.out.has_room() {
            core.tell_idle(key);
        } else if !self.answer_switch(core, link, SwitchAnswer::GroupEmpty(key)) {
            core.out.reject();
        }
    }

    /// A switch knows a block of this runtime's pool no more; with the last of them it is free.
    #[cold]
    pub(crate) fn handle_block_returned(&mut self, core: &mut Core, block: nf::Block, switch: usize) {
        // Each block that is on its way home has had a flow at another runtime until now.
        let most = core.flows.owners.most() * core.sessions.runtimes.len().max(1);
        if self.returned.len() >= most && !self.returned.contains_key(&block) {
            core.out.reject();
            return;
        }
        let has = self.returned.entry(block).or_insert(Switches::NONE);
        *has = has.with(switch as u8);
        self.free_if_unknown(core, block);
    }

    /// A switch has come, or gone: it knows no more of the blocks on their way home that it knew.
    #[cold]
    pub(crate) fn returned_without(&mut self, core: &mut Core, switch: u8) {
        let mut blocks: Vec<nf::Block> = Vec::new();
        for (block, has) in &mut self.returned {
            *has = has.with(switch);
            blocks.push(*block);
        }
        blocks.sort_unstable();
        for block in blocks {
            self.free_if_unknown(core, block);
        }
    }

    /// The runtime has been told which blocks are in use: blocks that were on their way home
    /// meanwhile are free already, but for those.
    #[cold]
    pub(crate) fn forget_returned(&mut self, core: &Core) {
        self.returned
            .retain(|block, _| core.sessions.lent.contains_key(block));
    }

    fn free_if_unknown(&mut self, core: &mut Core, block: nf::Block) {
        let Some(has) = self.returned.get(&block).copied() else {
            return;
        };
        // A switch that is not there knows no block.
        let (sessions, out) = (&core.sessions, &core.out);
        let is_missing = |s| !has.has(s) && out.is_present(usize::from(s)) && sessions.may_know(&block, s);
        if (0..core.settings.switches).any(is_missing) {
            return;
        }
        self.returned.remove(&block);
        core.note_home(&block);
        core.runner.block_returned(block);
    }
}
