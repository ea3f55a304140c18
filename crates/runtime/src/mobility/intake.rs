//! Messages of other runtimes and switches about groups that move, and which machine hears each.
//!
//! ```text
//!   link ─► frame ─► record ─► says: the group's machine, or the answer for a group that does not move here
//!        │                └──► a piece of a state: `target`
//!        └─► packet, handed over: `target`
//! ```
//!
//! The messages may be anything. Invariants: a word that its sender may not say changes nothing and
//! is counted; each worker that asks is answered.
//!
//! Not here: their effects (`drive`), and messages to others (`messages`, `source`).

use super::Moves;
use super::Moving;
use super::peer_failure::Closed;
use crate::flows::group::GroupKey;
use crate::parts::Core;
use crate::record::{FlowHeader, InstallStats, Record};
use nf::Affinity;
use protocols::ownership::{Epoch, Phase as Part};
use protocols::ownership::{Input, Ownership, Refusal, RuntimeId, RuntimeMessage, SwitchMessage, Switches};

impl Moves {
    /// Takes in the first record of what a runtime has sent; answers the rest, if there was one.
    #[inline]
    pub(crate) fn read_record<'a>(
        &mut self,
        core: &mut Core,
        peer: usize,
        bytes: &'a [u8],
    ) -> Option<&'a [u8]> {
        // Flows are most of the records.
        if let Some((flow_header, piece, rest)) = FlowHeader::read(bytes) {
            self.take_flow(core, peer, &flow_header, piece);
            return Some(rest);
        }
        let Some((record, rest)) = Record::read(bytes) else {
            // The end, or no record.
            if !bytes.is_empty() {
                core.out.reject();
            }
            return None;
        };
        match record {
            Record::Ownership {
                group,
                message,
                flows,
                install_stats,
            } => {
                // Behind the message about the group whose state comes, no more of that state
                // comes. Messages about other groups may stand in between: a sender that waits for
                // buffers does so in the middle of a state.
                let coming = self.incoming[peer].group;
                let coming = coming.and_then(|id| self.moving(id));
                if coming.is_some_and(|moving| moving.group == group) {
                    let stream = &mut self.incoming[peer];
                    (stream.group, stream.actor) = (None, None);
                }
                self.handle_runtime_message(core, peer as u16, group, message, flows, install_stats);
            }
            Record::Leaving(is_leaving) => {
                core.sessions.note_leaving(peer, is_leaving);
                core.choose_replica();
            }
            Record::Wanted(function, count, at) => core.handle_wanted(peer, function, count, at),
            Record::Pool(function, free, share) => core.handle_pool(peer, function, (free, share)),
            other => self.take_piece(core, peer, other),
        }
        Some(rest)
    }

    /// A runtime speaks of a group.
    fn handle_runtime_message(
        &mut self,
        core: &mut Core,
        peer: u16,
        group: GroupKey,
        message: RuntimeMessage,
        flows: u32,
        install_stats: InstallStats,
    ) {
        let hash = group.hash(&core.settings.seed);
        let mut room = Ok(());
        if let RuntimeMessage::Open(epoch, homes) = message {
            self.clock = self.clock.max(epoch);
            if let Some(has_opened) = self.opened.get_mut(usize::from(peer)) {
                *has_opened = true;
            }
            let keys = self.incoming[usize::from(peer)].take_reply_keys(group);
            if self.at(hash).is_none() {
                room = self.admit(core, group, flows);
                let mut coming = keys.iter();
                if coming.any(|key| self.is_moving(key, &core.settings.seed)) {
                    room = Err(Refusal::Busy);
                }
                // A flow has one reply key at most.
                if !self.may_open(core, &group, homes) || keys.len() > flows as usize {
                    core.out.reject();
                    room = Err(Refusal::Busy);
                }
                let machine = Ownership::absent(self.me(core), self.all_switches(core));
                let reserved = room.map_or(0, |()| flows);
                if room.is_ok() && wire::planted::is("announced_before_state") {
                    self.say_installed(core, group, keys.clone(), epoch);
                }
                self.begin_at_target(core, hash, group, machine, reserved, keys);
            } else {
                room = Err(Refusal::Busy);
            }
        }
        // A reply key of another group that moves is none of this one's.
        let is_its = |moving: &&mut Moving| moving.group == group;
        let found = self.at(hash);
        let Some(id) = found.filter(|id| self.moving(*id).filter(is_its).is_some()) else {
            // A flow that has one of the keys as its own may be on its way here at the same moment,
            // and its source may give up before it hears that it is refused.
            let may = matches!(message, RuntimeMessage::Open(..) | RuntimeMessage::Cancel(_));
            if found.is_some() && !may {
                core.out.reject();
            }
            return self.answer_without_move(core, peer, group, message);
        };
        if let RuntimeMessage::Done(_) = message {
            self.note_done(core, id, install_stats);
        }
        if let RuntimeMessage::Back(_, home) = message
            && !self.is_past(core, home)
        {
            return self.handle_back_later(id, home, message);
        }
        if let RuntimeMessage::Fenced(_) = message {
            self.note_stopped(id, RuntimeId(peer));
        }
        self.drive(core, id, Input::FromRuntime(RuntimeId(peer), message, room));
    }

    /// Whether a group that is here, and that a runtime calls back, is no copy of that one's: none
    /// was ever offered to this incarnation. The word is for the incarnation before.
    fn began_here(&self, core: &Core, from: RuntimeId) -> bool {
        let was_offered = self.opened.get(usize::from(from.0)).copied().unwrap_or(true);
        // A store has copies of the incarnation before.
        !was_offered
            && !core.ledger.is_on()
            && !crate::replica::is_broken("incarnations that were offered none")
    }

    /// Whether this is a key of a group, and these are switches.
    fn may_open(&self, core: &Core, group: &GroupKey, homes: Switches) -> bool {
        let is_group = match core.flows.affinity() {
            Affinity::Flow => true,
            affinity => !group.is_reply_key(affinity),
        };
        is_group && homes.or(self.all_switches(core)) == self.all_switches(core)
    }

    /// A switch speaks of a group.
    #[cold]
    pub(crate) fn handle_switch_message(
        &mut self,
        core: &mut Core,
        switch: usize,
        group: GroupKey,
        message: SwitchMessage,
    ) {
        if let SwitchMessage::Moved(to, _) = message
            && !self.has_peer(to)
        {
            core.out.reject();
            return;
        }
        if let SwitchMessage::Moved(to, epoch) = message
            && self.ended.contains(&(group, to, epoch, switch as u8))
            && !self.slot_awaits(core, &group, switch as u8, to, epoch)
        {
            // Said again, and heard late: the group may be here by another way since.
            return self.tell_runtime(core, to.0, group, RuntimeMessage::End(epoch, switch as u8));
        }
        let hash = group.hash(&core.settings.seed);
        let found = self.at(hash);
        let is_second = |id| self.moving(id).is_some_and(|moving| moving.group != group);
        let is_anothers = found.is_some_and(is_second);
        match (found.filter(|_| !is_anothers), message) {
            (Some(id), SwitchMessage::Fenced(epoch)) => self.handle_fenced(core, id, switch as u8, epoch),
            (Some(id), _) => self.drive(core, id, Input::FromSwitch(switch as u8, message)),
            // Nothing was kept. A runtime that has the group nevertheless had a source that thought
            // it gone, and took the group back.
            (None, SwitchMessage::Moved(to, epoch)) => {
                if to != self.me(core) && !is_anothers && core.has_group(&group) {
                    match self.is_of_closed(&group, to, epoch) || self.began_here(core, to) {
                        true => self.end_what_began(core, group),
                        false if crate::replica::is_broken("blocks of a copy are doubted") => {
                            self.drop_copy(core, group)
                        }
                        false => self.give_up_copy(core, group),
                    }
                }
                self.note_ended((group, to, epoch, switch as u8));
                self.tell_runtime(core, to.0, group, RuntimeMessage::End(epoch, switch as u8));
            }
            (None, _) => {}
        }
    }

    /// Whether a slot here is yet to hear this word. A word that was answered before in the same
    /// words was of the incarnation before of that runtime, heard when its end had been seen: each
    /// counts its changes of hands from the start.
    fn slot_awaits(
        &mut self,
        core: &Core,
        group: &GroupKey,
        switch: u8,
        to: RuntimeId,
        epoch: Epoch,
    ) -> bool {
        let id = self.at(group.hash(&core.settings.seed));
        let slot = id.and_then(|id| self.moving(id));
        slot.is_some_and(|slot| slot.group == *group && slot.machine.awaits_moved(switch, to, epoch))
            && !crate::replica::is_broken("words that slots await are heard")
    }

    /// Whether nothing comes from a switch any more, or never did.
    pub(crate) fn is_past(&self, core: &Core, switch: u8) -> bool {
        switch >= core.settings.switches || !core.out.is_present(usize::from(switch))
    }

    /// The source calls a group back, and has seen the end of a switch that is still there as far
    /// as is known here, or is again: in that case it says so itself.
    pub(crate) fn handle_back_later(&mut self, id: u32, home: u8, message: RuntimeMessage) {
        if let Some(moving) = self.moving(id)
            && moving.backs.len() < usize::from(Switches::MAX)
        {
            moving.backs.push((home, message));
        }
    }

    /// Answers for a group that does not move here: a runtime that waits for an answer gets one.
    pub(crate) fn answer_without_move(
        &mut self,
        core: &mut Core,
        peer: u16,
        group: GroupKey,
        message: RuntimeMessage,
    ) {
        let answer = match message {
            RuntimeMessage::Open(epoch, _) => RuntimeMessage::Refuse(epoch, Refusal::Busy),
            RuntimeMessage::Cancel(epoch) => RuntimeMessage::Canceled(epoch),
            // No slot waits for it any more.
            RuntimeMessage::State(epoch) => RuntimeMessage::Fenced(epoch.next()),
            RuntimeMessage::Done(epoch) => {
                return self.say_gone_when_stored(core, peer, group, RuntimeMessage::Gone(epoch));
            }
            RuntimeMessage::Back(epoch, home) => RuntimeMessage::End(epoch, home),
            _ => return,
        };
        self.tell_runtime(core, peer, group, answer);
    }

    /// A home that is told of a group that came back has given its route to another runtime: the
    /// target that was thought gone had let go of the group, and its next packet began it again.
    pub(crate) fn handle_fenced(&mut self, core: &mut Core, id: u32, switch: u8, epoch: Epoch) {
        let Some(moving) = self.moving(id) else {
            return;
        };
        let epoch = match moving.is_to_be_routed {
            true => epoch.max(moving.machine.latest().next()),
            false => epoch,
        };
        self.drive(core, id, Input::FromSwitch(switch, SwitchMessage::Fenced(epoch)));
    }

    /// The source of a slot has stopped, so that it is about to be closed: some of its homes may
    /// still send here, and say later that it is called back.
    pub(crate) fn note_stopped(&mut self, id: u32, from: RuntimeId) {
        let Some(moving) = self.moving(id) else {
            return;
        };
        let (group, latest) = (moving.group, moving.machine.latest());
        let back = match moving.machine.phase() {
            Part::Buffering {
                from: source,
                is_staged: false,
                ..
            } if source == from => latest.next(),
            Part::Yielding { to, .. } if to == from => latest,
            _ => return,
        };
        self.note_closed(Closed { group, from, back });
    }
}
