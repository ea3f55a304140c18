//! Groups on their way when a switch goes that they have to do with.
//!
//! ```text
//!   a switch goes:  what it had yet to answer it has answered, since nothing comes from it any more
//!                   (Rerouted at the source; Clear, or Moved, at the target)
//!   it begins anew: the source says again where the group's packets go, and that nothing of it is behind
//! ```
//!
//! Two links have no common order: such a switch may hear what the source says of the group, its routes and blocks, after all that the target has to say, and
//! would keep it for ever. So with the end of a move of which a switch was told late, or in which the target has answered in a switch's stead or met one that begins anew
//! (`Figures::is_unclear`), the source has all switches *doubt* its keys and blocks, and they ask whoever they think has them. By then that one has, or knows
//! that it has not; if it is moving the group in its turn, it answers when that is over.
//!
//! ```text
//!   source: on its way ─told late─► over ─► Doubted, BlockDoubted ─► switch asks the holder ─► has it: silence
//!                                                                                       └─► has not: Idle, BlockDoubted ─► forgotten
//! ```
//!
//! What is on its way is told first, and only so: what is told of everything else is what is here and stays here as far as is known.
//!
//! A group may be called back because its home is gone, or go when it is called back: then nobody tells the target, so the source does (`Back`), which the target
//! acts on when it has seen the end of that switch, too, and so has all its packets. If it has seen another begin there, that one is told by the source, and tells it.

use super::super::Runtime;
use super::answers::Answer;
use super::target::BLOCKS_MAX;
use super::{Moves, Moving, words};
use crate::env::Port;
use crate::flows::group::GroupKey;
use crate::message::Message;
use alloc::vec::Vec;
use nf::Block;
use protocols::ownership::{Input, Phase as Part, Says, Switches};

impl<P> Moves<P> {
    /// The links to other runtimes, of one that ends.
    pub(in crate::worker) fn take_peers(&mut self) -> Vec<Option<P>> {
        core::mem::take(&mut self.peers)
    }
}

impl<P: Port> Runtime<P> {
    /// A switch is gone, and all that it sent has been heard.
    #[cold]
    pub(in crate::worker) fn switch_gone(&mut self, switch: u8) {
        for id in 0..self.moves.all.len() as u32 {
            self.answer_for(id, switch);
        }
        // Blocks that it would have returned: it knows them no more.
        let returned: Vec<_> = self.moves.returned.keys().copied().collect();
        for block in returned {
            self.hear_returned(block, usize::from(switch));
        }
    }

    /// Who is at a runtime's end.
    pub(in crate::worker) fn runtime_session(&self, runtime: usize) -> u64 {
        self.moves.peers[runtime].as_ref().map_or(0, Port::session)
    }

    /// A switch that is not there has nothing to say of a group any more.
    fn answer_for(&mut self, id: u32, switch: u8) {
        let Some(moving) = self.moves.moving(id) else {
            return;
        };
        let peer = match moving.machine.phase() {
            Part::Buffering { from, .. } | Part::Yielding { to: from, .. } => Some(from),
            _ => None,
        };
        let backs = moving.backs.extract_if(.., |(home, _)| *home == switch);
        let back = backs.last().map(|(_, says)| says).zip(peer);
        if moving.machine.awaits(switch) {
            if let Part::Buffering { .. } = moving.machine.phase() {
                // Another may be there already, and read the source's words behind this one's.
                moving.figures.is_unclear = true;
            }
            self.drive(id, Input::SwitchGone(switch));
        }
        if let Some((says, peer)) = back {
            self.drive(id, Input::Hear(peer, says, Ok(())));
        }
    }

    /// Whether nothing comes from a switch any more, or never did.
    pub(super) fn is_past(&self, switch: u8) -> bool {
        switch >= self.settings.switches || !self.sessions.has_switch(usize::from(switch))
    }

    /// The source calls a group back, and has seen the end of a switch that is still there as far as is known here, or is again: in that case it says so itself.
    pub(super) fn hear_back_later(&mut self, id: u32, home: u8, says: Says) {
        if let Some(moving) = self.moves.moving(id)
            && moving.backs.len() < usize::from(Switches::MAX)
        {
            moving.backs.push((home, says));
        }
    }

    /// Answers for those switches that are not there.
    #[cold]
    pub(super) fn answer_for_absent(&mut self, id: u32) {
        for switch in 0..self.settings.switches {
            if !self.sessions.has_switch(usize::from(switch)) {
                self.answer_for(id, switch);
            }
        }
    }

    /// Whether no group is on its way, no order waits, and nothing is to be said.
    pub(in crate::worker) fn finished_moving_all(&self) -> bool {
        self.moves.is_idle()
            && self.moves.orders.is_idle()
            && self.moves.has_said_all()
            && self.moves.returned.is_empty()
            && self.moves.outgoing.iter().all(words::Outgoing::is_empty)
    }

    /// How many places moves have.
    pub(in crate::worker) fn moving_places(&self) -> u32 {
        self.moves.all.len() as u32
    }

    /// Tells a switch that begins anew of a group that is on its way from here, or has just come. That its flows are over nobody has been told: so
    /// its routes are told whether it has flows or not.
    #[cold]
    pub(in crate::worker) fn tell_move(&mut self, switch: u8, id: u32) {
        let me = self.me();
        let Some(moving) = self.moves.moving(id) else {
            return;
        };
        let (group, epoch, part) = (moving.group, moving.machine.latest(), moving.machine.phase());
        let reroute = match part {
            Part::Opening { .. } | Part::Canceling { .. } | Part::Announcing { .. } => None,
            Part::Rerouting { to, .. } | Part::Settling { to } | Part::Forwarding { to, .. } => {
                Some((me, to))
            }
            Part::Returning { peer, .. } => Some((peer, me)),
            Part::Buffering { .. } => {
                // Its source may be kept from this switch until the move is over, and then has nothing to tell it.
                moving.figures.is_unclear = true;
                return;
            }
            _ => return,
        };
        let aliases = moving.aliases.clone();
        let blocks: Vec<_> = self.flows.owners.of(&group).collect();
        for key in aliases.into_iter().chain([group]) {
            if self.is_home(&key, switch) {
                self.append(usize::from(switch), &Message::Routed(key));
                if let Part::Announcing { .. } = part {
                    self.append(usize::from(switch), &Message::Installed(key, epoch));
                }
            }
        }
        for block in &blocks {
            let message = match reroute {
                None => Message::BlockClaimed(*block, group),
                Some(_) => Message::BlockTold(*block, group),
            };
            self.append(usize::from(switch), &message);
        }
        if let Some((from, to)) = reroute {
            // It may be there, and over, before the switch hears of this.
            if let Some(moving) = self.moves.moving(id) {
                moving.is_told_late = true;
                moving.blocks_told.extend(blocks);
            }
            self.reroute(id, Switches::NONE.with(switch), from, to, epoch);
        }
        if let Part::Forwarding { to, .. } = part {
            self.append(usize::from(switch), &Message::Behind(group, to, epoch));
        }
    }

    /// A move is over of which some switch was told late.
    #[cold]
    pub(super) fn tell_over(&mut self, moving: &Moving) {
        for key in moving.aliases.iter().chain([&moving.group]) {
            for switch in 0..self.settings.switches {
                if self.is_home(key, switch) {
                    self.answer_anyway(usize::from(switch), Answer::Doubted(*key));
                }
            }
        }
        for block in &moving.blocks_told {
            for link in 0..self.links.len() {
                self.answer_anyway(link, Answer::Block(*block, moving.group));
            }
        }
    }

    /// A switch asks whether a group has a block here.
    #[cold]
    pub(in crate::worker) fn hear_block_doubted(&mut self, link: usize, block: Block, group: GroupKey) {
        let may = self.answer_switch(link, Answer::Block(block, group));
        self.moves.words_refused += u64::from(!may);
    }

    /// Whether it is yet to be seen if a group has a block: it is on its way. It is told when that is over.
    pub(super) fn is_block_deferred(&mut self, link: usize, block: Block, group: GroupKey) -> bool {
        let most = BLOCKS_MAX * usize::from(self.settings.switches);
        let id = self.moves.at(group.hash(&self.settings.seed));
        let moving = id.and_then(|id| self.moves.moving(id));
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
            self.moves.words_refused += u64::from(!may);
        }
        true
    }

    /// Tells all switches again which blocks a group has here: they may have forgotten them with somebody who is gone.
    #[cold]
    pub(super) fn claim_again(&mut self, group: GroupKey) {
        let blocks: Vec<_> = self.flows.owners.of(&group).collect();
        for block in blocks {
            for link in 0..self.links.len() {
                self.answer_anyway(link, Answer::Block(block, group));
            }
        }
    }

    /// What switches have asked while a group was on its way.
    #[cold]
    pub(super) fn answer_asked(&mut self, moving: &Moving) {
        for (link, block) in &moving.asked {
            self.answer_anyway(*link, Answer::Block(*block, moving.group));
        }
        if let Part::Active = moving.machine.phase() {
            // Once what was kept is processed, it is said anyway.
            return;
        }
        for (link, key) in &moving.keys_asked {
            self.answer_anyway(*link, Answer::Idle(GroupKey::from_words(*key)));
        }
    }

    /// A switch asks whether a key is one of a flow, or group, here.
    #[cold]
    pub(in crate::worker) fn hear_doubted(&mut self, link: usize, key: GroupKey) {
        let id = self.moves.at(key.hash(&self.settings.seed));
        if let Some(moving) = id.and_then(|id| self.moves.moving(id)) {
            // It is known by its own key and its second keys. Each of them once for each switch.
            moving.keys_asked.insert((link, *key.words()));
        }
        if self.has_group(&key) {
            return;
        }
        // What the step itself has to say goes before.
        if self.moves.answers.is_empty() && self.has_room_for_messages() {
            self.tell_idle(key);
        } else if !self.answer_switch(link, Answer::Idle(key)) {
            self.moves.words_refused += 1;
        }
    }

    /// Whether a switch that begins anew is told of this key with the group that is on its way from here.
    pub(in crate::worker) fn is_told_with_move(&mut self, key: &GroupKey) -> bool {
        let id = self.moves.at(key.hash(&self.settings.seed));
        let moving = id.and_then(|id| self.moves.moving(id));
        moving.is_some_and(|moving| {
            matches!(
                moving.machine.phase(),
                Part::Opening { .. }
                    | Part::Canceling { .. }
                    | Part::Rerouting { .. }
                    | Part::Settling { .. }
                    | Part::Forwarding { .. }
                    | Part::Returning { .. }
            )
        })
    }

    /// What is on its way, for tests.
    #[cfg(test)]
    pub fn moves_under_way(&self) -> Vec<(crate::group::GroupKey, Part)> {
        let all = self.moves.all.iter().flatten();
        all.map(|moving| (moving.group, moving.machine.phase())).collect()
    }

    /// Which groups have which blocks here, for tests.
    #[cfg(test)]
    pub fn blocks(&self) -> Vec<((nf::Addr, u16), crate::group::GroupKey)> {
        let places = self.flows.owners.places().into_iter();
        places
            .filter_map(|(addr, first)| Some(((addr, first), self.flows.owners.at(addr, first)?)))
            .collect()
    }
}
