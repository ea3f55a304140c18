//! Moves whose other end is gone, and copies that are nobody's.
//!
//! # Theory of operation
//!
//! When the session of a link to another runtime ends (`Port::session`), whoever was there is another one now, or nobody: what it was told,
//! what it said in part, and what it had in hand is over. Each move with it is told so (`Input::Removed`), and goes on by itself:
//!
//! ```text
//!   source: asked or re-routed ─► the group is called back; what the target kept is lost
//!   source: the state is sent  ─► its copy is the only one that is known of: it grants itself the group (no recovery decides yet)
//!   target: the state is here, whole ─► installed; else the slot is closed, and the routes lead to nothing
//! ```
//!
//! The routes and blocks of a group that came back are said anew: a switch may have forgotten those that led to who is gone. So are the blocks of one that
//! was installed because its source is gone: a switch that had not read *Behind* has forgotten them with that one.
//!
//! A source may have called the group back before it went, or have lived all the while, and a switch's word of that (`Moved`) come when the slot is closed, its source seen to be
//! gone and the group begun anew here. That is no copy: it ends, and functions give back what it took.
//!
//! Should the other one have lived all the while, its installed copy is the older one by epoch: the homes tell it so (`Moved`), and it drops the
//! group as one that has moved away: with no word to its functions that would give back what the group took.
//!
//! Invariants: afterwards nothing here waits for the one that is gone; every packet for it that had not left is a counted drop
//! (`peer_gone`); each group is at one runtime when all words have been heard.
//!
//! Not here: noticing that a session is over (who reads the links does); switches that are gone; blocks of ports that the one that is
//! gone had from this runtime's pool, which nobody gives back.

use super::super::Runtime;
use super::Moves;
use super::bytes::Stream;
use super::telling::Word;
use crate::env::Port;
use crate::flows::actor::Phase;
use crate::flows::group::GroupKey;
use crate::stats::DropReason;
use alloc::vec::Vec;
use nf::Affinity;
#[cfg(test)]
use protocols::ownership::Timer;
use protocols::ownership::{Epoch, Finished, Input, Phase as Part, Refusal, RuntimeId, Says, SwitchSays};
use wire::packet::{Kind, flag as packet_flag};

/// How many slots are remembered: of more than that, no switch's word is so late.
const CLOSED: usize = 1024;

/// A slot that was closed because its source was gone, or had stopped: of which group, from whom, and with which change of hands that one would have
/// called it back.
pub(super) struct Closed {
    group: GroupKey,
    from: RuntimeId,
    back: Epoch,
}

impl<P> Moves<P> {
    /// A switch's word that a group goes back is answered: nothing that it sent before is kept any more.
    pub(super) fn note_ended(&mut self, ended: (GroupKey, RuntimeId, Epoch, u8)) {
        if self.ended.len() == CLOSED {
            self.ended.pop_front();
        }
        self.ended.push_back(ended);
    }

    fn note_closed(&mut self, closed: Closed) {
        if self.closed.len() == CLOSED {
            self.closed.pop_front();
        }
        self.closed.push_back(closed);
    }

    /// Whether a group's going back to a runtime is the end of a slot that is closed already, as that one was seen to be gone.
    pub(super) fn is_of_closed(&self, group: &GroupKey, to: RuntimeId, epoch: Epoch) -> bool {
        let mut closed = self.closed.iter();
        closed.any(|slot| (slot.group, slot.from, slot.back) == (*group, to, epoch))
    }
}

impl<P: Port> Runtime<P> {
    /// The session of the link to a runtime is over: whoever was there is gone. To be called whenever it changes, once what the link brought
    /// from before has been taken in.
    #[cold]
    pub fn peer_gone(&mut self, runtime: u16) {
        let peer = usize::from(runtime);
        if peer >= self.moves.peers.len() {
            return;
        }
        self.moves.sending.retain(|sending| sending.to != runtime);
        // Whoever begins there counts its changes of hands anew.
        self.moves.ended.retain(|(_, to, ..)| *to != RuntimeId(runtime));
        for id in 0..self.moves.all.len() as u32 {
            self.remove_peer(id, RuntimeId(runtime));
        }
        self.moves.incoming[peer] = Stream::default();
        self.forget_outgoing(runtime);
    }

    /// What is left to be done for groups on their way, to or from here.
    #[cfg(test)]
    pub(crate) fn moves_left(&self) -> Vec<alloc::string::String> {
        let all = self.moves.all.iter().flatten();
        let mut left: Vec<_> = all.map(|moving| alloc::format!("{:?}", moving.machine)).collect();
        let counts = [
            self.moves.sending.len(),
            usize::from(!self.moves.has_said_all()),
            self.moves.reserved,
        ];
        if counts != [0; 3] {
            left.push(alloc::format!("{counts:?}"));
        }
        left
    }

    /// Has a switch say of every group on its way from here that somebody else has it.
    #[cfg(test)]
    pub(crate) fn fence_all(&mut self, switch: u8) {
        for id in 0..self.moves.all.len() as u32 {
            if let Some(moving) = self.moves.moving(id) {
                let epoch = moving.machine.latest().next();
                self.drive(id, Input::HearSwitch(switch, SwitchSays::Fenced(epoch)));
            }
        }
    }

    /// Has every group on its way from here take too long.
    #[cfg(test)]
    pub(crate) fn call_back_all(&mut self) {
        for id in 0..self.moves.all.len() as u32 {
            if (self.moves.moving(id)).is_some_and(|moving| moving.machine.is_armed(Timer::Deadline)) {
                self.drive(id, Input::Fired(Timer::Deadline));
            }
        }
    }

    fn remove_peer(&mut self, id: u32, gone: RuntimeId) {
        let Some(moving) = self.moves.moving(id) else {
            return;
        };
        let part = moving.machine.phase();
        match part {
            Part::Rerouting { to, .. } | Part::Settling { to } | Part::Forwarding { to, .. }
                if to == gone =>
            {
                moving.is_to_be_routed = true;
            }
            Part::Returning { peer, .. } if peer == gone => moving.is_to_be_routed = true,
            _ => {}
        }
        let is_slot = matches!(part, Part::Buffering { from, is_staged: false, .. } if from == gone);
        let is_staged = matches!(part, Part::Buffering { from, is_staged: true, .. } if from == gone);
        let (group, epoch) = (moving.group, moving.machine.latest());
        let aliases = if is_slot {
            moving.aliases.clone()
        } else {
            Vec::new()
        };
        self.drive(id, Input::Removed(gone));
        if is_staged {
            self.claim_again(group);
        }
        if is_slot {
            let (from, back) = (gone, epoch.next());
            self.moves.note_closed(Closed { group, from, back });
            // What comes by the routes that lead here begins anew.
            self.say_installed(group, aliases.clone(), epoch);
            self.say_idle(group, aliases);
        }
    }

    /// Answers as somebody who has nothing to do with the group: whoever waits for an answer gets one.
    pub(super) fn answer_as_nobody(&mut self, peer: u16, group: GroupKey, says: Says) {
        let answer = match says {
            Says::Open(epoch, _) => Says::Refuse(epoch, Refusal::Busy),
            Says::Cancel(epoch) => Says::Canceled(epoch),
            // What was reserved for it has gone to somebody else.
            Says::State(epoch) => Says::Fenced(epoch.next()),
            Says::Done(epoch) => Says::Gone(epoch),
            Says::Back(epoch, home) => Says::End(epoch, home),
            _ => return,
        };
        self.tell_runtime(peer, group, answer);
    }

    /// Drops what was for a runtime and has not left, but for empty buffers, which are the link's to see to.
    fn forget_outgoing(&mut self, runtime: u16) {
        let outgoing = core::mem::take(&mut self.moves.outgoing[usize::from(runtime)]);
        self.moves.unsaid -= outgoing.unsaid();
        for packet in outgoing.into_packets() {
            match packet.kind() {
                Kind::Empty => self.moves.send(runtime, packet),
                Kind::Message => self.recycle(packet),
                Kind::Data if packet.has(packet_flag::COPY) => self.recycle(packet),
                Kind::Data => {
                    self.moves.packets_moved[1] -= 1;
                    self.drop_packet(packet, DropReason::PeerGone);
                }
            }
        }
    }

    /// The target is gone, and the copy here may be the only one: it is in force again.
    pub(super) fn take_back(&mut self, id: u32) {
        if let Some(moving) = self.moves.moving(id) {
            let epoch = moving.machine.latest().next();
            self.moves.clock = self.moves.clock.max(epoch);
            self.drive(id, Input::Grant(epoch));
        }
    }

    /// Says to the homes of a group that came back from nowhere where it is.
    pub(super) fn say_routed(&mut self, group: GroupKey, mut keys: Vec<GroupKey>) {
        keys.push(group);
        self.tell_keys(Word::Routed, keys, self.all_switches());
    }

    /// Says to the homes of a group that it is here, or will not be.
    pub(super) fn say_installed(&mut self, group: GroupKey, mut keys: Vec<GroupKey>, epoch: Epoch) {
        keys.push(group);
        self.tell_keys(Word::Installed(epoch), keys, self.all_switches());
    }

    /// A home that is told of a group that came back has given its route to somebody else: who was thought gone had let go of it, and its
    /// next packet began it anew.
    pub(super) fn hear_fenced(&mut self, id: u32, switch: u8, epoch: Epoch) {
        let Some(moving) = self.moves.moving(id) else {
            return;
        };
        let epoch = match moving.is_to_be_routed {
            true => epoch.max(moving.machine.latest().next()),
            false => epoch,
        };
        self.drive(id, Input::HearSwitch(switch, SwitchSays::Fenced(epoch)));
    }

    /// The source of a slot has stopped, so that it is about to be closed: some of its homes may still send here, and say later that it is called back.
    pub(super) fn note_stopped(&mut self, id: u32, from: RuntimeId) {
        let Some(moving) = self.moves.moving(id) else {
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
        self.moves.note_closed(Closed { group, from, back });
    }

    /// A machine was fenced: somebody else has the group. Homes that were told of the move ask whoever they think has its keys and blocks.
    pub(super) fn stop(&mut self, id: u32, group: GroupKey) {
        let blocks: Vec<_> = self.flows.owners.of(&group).collect();
        let Some(moving) = self.moves.moving(id) else {
            return;
        };
        moving.is_told_late = true;
        moving.blocks_told.extend(blocks);
        let (order, flows) = (moving.order, moving.actors.len() as u64);
        self.drop_copy(group);
        self.note_finished(order, flows, Finished::Aborted);
    }

    /// Another runtime was given the group: what is here of it is a copy, and leaves as one that has moved. Flows whose calls wait
    /// stay until these are over and their time is.
    #[cold]
    pub(super) fn drop_copy(&mut self, group: GroupKey) {
        let flows = self.flows_of(group);
        let aliases = self.flows.announced_keys(&flows);
        for actor in flows {
            if matches!(self.flows.header(actor).phase, Phase::Active | Phase::Leaving) {
                self.drop_held(actor);
                self.depart_flow(actor);
                self.moves.flows_moved[1] += 1;
            }
        }
        if self.flows.affinity() == Affinity::Flow || !self.flows.groups().has(group) {
            let blocks: Vec<_> = self.flows.owners.of(&group).collect();
            for block in blocks {
                self.flows.owners.release(block);
            }
        }
        // Routes that were called back before.
        self.say_idle(group, aliases);
    }

    /// Another runtime has the group, or had it and is gone, and what is here began anew when its slot was closed: it ends, at once as far as there is room to say so.
    #[cold]
    pub(super) fn end_what_began(&mut self, group: GroupKey) {
        let flows = self.flows_of(group);
        for actor in flows {
            let may = self.has_room_for_messages() && self.log.room() >= super::super::expiry::EVENT_ROOM;
            if may && self.flows.header(actor).phase == Phase::Active {
                self.end_actor(actor);
            }
        }
        if self.has_group(&group) {
            self.hear_taken(group);
        }
    }

    fn say_idle(&mut self, group: GroupKey, mut keys: Vec<GroupKey>) {
        keys.push(group);
        self.tell_keys(Word::Idle, keys, self.all_switches());
    }
}
