//! What other runtimes and switches say of groups that move: who hears it.
//!
//! ```text
//!   link ─► frame ─► record ─► says: the group's machine, or the answer of somebody who has nothing to do with it
//!        │                └──► a piece of a state: `target`
//!        └─► packet, handed over: `target`
//! ```
//!
//! Whatever comes may be anything. Invariants: a word that nobody may say changes nothing and is counted; who asks is answered.
//!
//! Not here: what becomes of it (`drive`), and what is sent (`words`, `source`).

use super::super::Runtime;
use super::bytes::{Facts, Figures, Record};
use super::{ANSWERS, Moving};
use crate::env::{Burst, Port};
use crate::flows::group::GroupKey;
use nf::Affinity;
use protocols::ownership::{Input, Ownership, Refusal, RuntimeId, Says, SwitchSays, Switches};
use wire::PacketBox;
use wire::packet::Kind;

impl<P: Port> Runtime<P> {
    /// Reads what other runtimes say and hand over.
    #[inline]
    pub(in crate::worker) fn hear_runtimes(&mut self) -> usize {
        let mut count = 0;
        for peer in 0..self.moves.peers.len() {
            // States come in thousands of frames.
            for _ in 0..8 {
                let mut burst = Burst::new();
                let mut is_over = false;
                if self.pool.free() >= ANSWERS
                    && let Some(link) = &mut self.moves.peers[peer]
                {
                    link.receive(self.now, &mut self.pool, &mut burst);
                    is_over = self.sessions.is_runtime_over(peer, link.session());
                }
                if !burst.is_empty() {
                    count += self.take_from_runtime(peer, burst);
                } else if !is_over {
                    break;
                }
                if is_over {
                    self.runtime_session_over(peer);
                    break;
                }
            }
        }
        count
    }

    fn take_from_runtime(&mut self, peer: usize, burst: Burst) -> usize {
        let count = burst.len();
        self.prefetch_groups_named(&burst);
        for packet in burst {
            match packet.kind() {
                Kind::Empty => self.recycle(packet),
                Kind::Message => {
                    self.read_records(peer, &packet);
                    self.recycle(packet);
                }
                Kind::Data => self.take_handed(peer, packet),
            }
        }
        count
    }

    fn read_records(&mut self, peer: usize, frame: &PacketBox) {
        let mut bytes = frame.frame();
        loop {
            // Flows are most of what comes.
            if let Some((facts, piece, rest)) = Facts::read(bytes) {
                bytes = rest;
                self.take_flow(peer, &facts, piece);
                continue;
            }
            let Some((record, rest)) = Record::read(bytes) else {
                break;
            };
            bytes = rest;
            match record {
                Record::Says {
                    group,
                    says,
                    flows,
                    figures,
                } => {
                    // Behind what is said of the group whose state comes, nothing more of it does. What is said of others may stand in between: who waits for
                    // buffers does so in the middle of a state.
                    let coming = self.moves.incoming[peer].group;
                    let coming = coming.and_then(|id| self.moves.moving(id));
                    if coming.is_some_and(|moving| moving.group == group) {
                        let stream = &mut self.moves.incoming[peer];
                        (stream.group, stream.actor) = (None, None);
                    }
                    self.hear_says(peer as u16, group, says, flows, figures);
                }
                Record::Leaving(is_leaving) => self.sessions.note_leaving(peer, is_leaving),
                other => self.take_piece(peer, other),
            }
        }
        // The end, or no record.
        self.moves.words_refused += u64::from(!bytes.is_empty());
    }

    /// A runtime speaks of a group.
    fn hear_says(&mut self, peer: u16, group: GroupKey, says: Says, flows: u32, figures: Figures) {
        let hash = group.hash(&self.settings.seed);
        let mut room = Ok(());
        if let Says::Open(epoch, homes) = says {
            self.moves.clock = self.moves.clock.max(epoch);
            let keys = self.moves.incoming[usize::from(peer)].take_aliases(group);
            if self.moves.at(hash).is_none() {
                room = self.admit(group, flows);
                let mut coming = keys.iter();
                if coming.any(|key| self.moves.is_moving(key, &self.settings.seed)) {
                    room = Err(Refusal::Busy);
                }
                // A flow has one second key at most.
                if !self.may_open(&group, homes) || keys.len() > flows as usize {
                    self.moves.words_refused += 1;
                    room = Err(Refusal::Busy);
                }
                let machine = Ownership::absent(self.me(), self.all_switches());
                let reserved = room.map_or(0, |()| flows);
                self.begin_at_target(hash, group, machine, reserved, keys);
            } else {
                room = Err(Refusal::Busy);
            }
        }
        // A second key of another group that moves is none of this one's.
        let is_its = |moving: &&mut Moving| moving.group == group;
        let found = self.moves.at(hash);
        let Some(id) = found.filter(|id| self.moves.moving(*id).filter(is_its).is_some()) else {
            // A flow that has one of the keys as its own may be on its way here at the same moment.
            let may = matches!(says, Says::Open(..));
            self.moves.words_refused += u64::from(found.is_some() && !may);
            return self.answer_as_nobody(peer, group, says);
        };
        if let Says::Done(_) = says {
            self.note_done(id, figures);
        }
        if let Says::Back(_, home) = says
            && !self.is_past(home)
        {
            return self.hear_back_later(id, home, says);
        }
        if let Says::Fenced(_) = says {
            self.note_stopped(id, RuntimeId(peer));
        }
        self.drive(id, Input::Hear(RuntimeId(peer), says, room));
    }

    /// Whether this is a key of a group, and these are switches.
    fn may_open(&self, group: &GroupKey, homes: Switches) -> bool {
        let is_group = match self.flows.affinity() {
            Affinity::Flow => true,
            affinity => !group.is_second_key(affinity),
        };
        is_group && homes.or(self.all_switches()) == self.all_switches()
    }

    /// A switch speaks of a group.
    #[cold]
    pub(in crate::worker) fn hear_switch(&mut self, switch: usize, group: GroupKey, says: SwitchSays) {
        if let SwitchSays::Moved(to, _) = says
            && !self.moves.has_peer(to)
        {
            self.moves.words_refused += 1;
            return;
        }
        if let SwitchSays::Moved(to, epoch) = says
            && self.moves.ended.contains(&(group, to, epoch, switch as u8))
        {
            // Said again, and heard late: the group may be here by another way since.
            return self.tell_runtime(to.0, group, Says::End(epoch, switch as u8));
        }
        let hash = group.hash(&self.settings.seed);
        let found = self.moves.at(hash);
        let is_second = |id| self.moves.moving(id).is_some_and(|moving| moving.group != group);
        let is_anothers = found.is_some_and(is_second);
        match (found.filter(|_| !is_anothers), says) {
            (Some(id), SwitchSays::Fenced(epoch)) => self.hear_fenced(id, switch as u8, epoch),
            (Some(id), _) => self.drive(id, Input::HearSwitch(switch as u8, says)),
            // Nothing was kept. Who has it nevertheless had a source that thought it gone, and took it back.
            (None, SwitchSays::Moved(to, epoch)) => {
                if to != self.me() && !is_anothers && self.has_group(&group) {
                    match self.moves.is_of_closed(&group, to, epoch) {
                        true => self.end_what_began(group),
                        false => self.drop_copy(group),
                    }
                }
                self.moves.note_ended((group, to, epoch, switch as u8));
                self.tell_runtime(to.0, group, Says::End(epoch, switch as u8));
            }
            (None, _) => {}
        }
    }

    /// A switch knows a block of this runtime's pool no more; with the last of them it is free.
    #[cold]
    pub(in crate::worker) fn hear_returned(&mut self, block: nf::Block, switch: usize) {
        // Each block that is on its way home has had a flow at another runtime until now.
        let most = self.flows.owners.most() * usize::from(self.settings.info.runtimes.max(1));
        if self.moves.returned.len() >= most && !self.moves.returned.contains_key(&block) {
            self.moves.words_refused += 1;
            return;
        }
        let has = self.moves.returned.entry(block).or_insert(Switches::NONE);
        *has = has.with(switch as u8);
        let has = *has;
        // One that is not there knows no block.
        let sessions = &self.sessions;
        let is_missing =
            |s| !has.has(s) && sessions.has_switch(usize::from(s)) && sessions.may_know(&block, s);
        if (0..self.settings.switches).any(is_missing) {
            return;
        }
        self.moves.returned.remove(&block);
        self.sessions.note_home(&block);
        for function in &self.stages.functions {
            function.block_returned(block);
        }
    }
}
