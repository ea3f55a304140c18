//! Moves whose other end is gone, and copies that no runtime owns.
//!
//! # Theory of operation
//!
//! When the session of a link to another runtime ends (`Port::session`), that runtime is gone, and
//! another or none is in its place: messages to it, its unfinished messages and its work in hand
//! are over. Each move with it is told so (`Input::Removed`), and goes on by itself:
//!
//! ```text
//!   source: asked or re-routed ─► the group is called back; the target's kept packets are lost
//!   source: the state is sent  ─► its copy may be the only one: it takes the group back, when each home has said so
//!   target: the state is here, whole ─► installed; else the slot is closed, and the routes lead to nothing
//! ```
//!
//! *A slot is barred* whose source is gone and kept copies. Its homes may see that end later than
//! this runtime, and send packets here meanwhile: these are declined, since the source's flows go
//! on elsewhere. A home that knows holds them back, and asks about the group once nothing of it
//! goes on ([`Message::RouteSuspect`](crate::message::Message::RouteSuspect)): then it may begin
//! here. So it may when a switch's session ends, and [`BARRED`] later.
//!
//! *Taken back.* The target may have installed the group, let packets out, and its last words be
//! lost. Then its heir goes on with the group. A home says nothing to the source while the target
//! is suspended there, or not yet seen to be gone, and the source asks again
//! ([`protocols::ownership::recovery::TakenBack`]). A source that has copies of that target with
//! the group is, or will hear of, the heir: it drops its own state, which is older. A home that is
//! gone, too, has not said that no heir has the group: the next one there does, once it knows. A
//! home that stays away is not waited for any longer than heirs wait for switches.
//!
//! The routes and blocks of a group that came back are said again: a switch may have forgotten
//! those that led to the runtime that is gone. So are the blocks of a group that was installed
//! because its source is gone: a switch that had not read *DrainMarker* has forgotten them with the
//! source.
//!
//! A source may have called the group back before it went, or have lived all the while. A switch's
//! word of that (`Moved`) may come when the slot is closed, its source seen to be gone and the
//! group begun again here. That is no copy: it ends, and functions give back what it took.
//!
//! Or that word is for an incarnation before, which had the group's slot, and the group has begun
//! here in this one. To an incarnation that no group was ever offered to from there it is as good
//! as closed.
//!
//! Should the other one have lived all the while, its installed copy is the older one by epoch: the
//! homes tell it so (`Moved`), and it drops the group as a group that has moved away: with no word
//! to its functions that would give back what the group took. Switches hear which blocks are here
//! no more: some may have been taken here since.
//!
//! Invariants: afterwards nothing here waits for the runtime that is gone; every packet for it that
//! had not left is a counted drop (`peer_gone`); each group is at one runtime when all words have
//! been heard.
//!
//! Not here: noticing that a session is over (the worker that reads the links does); switches that
//! are gone; blocks of ports that the gone runtime had from this one's pool, which no worker gives
//! back.

use super::Moves;
use crate::flows::group::GroupKey;
use crate::parts::Core;
use crate::record::Stream;
use crate::replica::keeper::Keeper;
use crate::stats::DropReason;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use hashbrown::HashMap;
#[cfg(test)]
use protocols::ownership::Timer;
use protocols::ownership::{Epoch, Input, Phase as Part, RuntimeId, SwitchMessage, recovery};
use wire::packet::{Kind, flag as packet_flag};

/// How many slots are remembered: of more than that, no switch's word is so late.
pub(super) const CLOSED: usize = 1024;

/// How long, in nanoseconds, a home may see later than this runtime that another is gone: longer
/// than a silence, by its default.
const BARRED: u64 = 250_000_000;

/// Groups that are not begun here, and until when.
#[derive(Default)]
pub(crate) struct Barred(HashMap<GroupKey, u64>);

impl Barred {
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn bar(&mut self, group: GroupKey, now: u64) {
        if self.0.len() >= CLOSED {
            self.0.retain(|_, until| *until > now);
        }
        if self.0.len() < CLOSED {
            self.0.insert(group, now.saturating_add(BARRED));
        }
    }

    /// A home asks about the group, or it is here: it may begin.
    pub fn admit(&mut self, group: &GroupKey) {
        self.0.remove(group);
    }

    /// The homes' knowledge is another matter now.
    pub fn admit_all(&mut self) {
        self.0.clear();
    }

    /// Whether a packet does not begin the group.
    #[cold]
    pub fn has(&mut self, group: &GroupKey, now: u64) -> bool {
        let is_barred = self.0.get(group).is_some_and(|until| *until > now);
        if !is_barred {
            self.0.remove(group);
        }
        is_barred
    }
}

/// A slot that was closed because its source was gone, or had stopped: its group, the source, and
/// the change of hands with which the source would have called it back.
pub(crate) struct Closed {
    pub(super) group: GroupKey,
    pub(super) from: RuntimeId,
    pub(super) back: Epoch,
}

impl Moves {
    /// The session of the link to a runtime is over: that runtime is gone. To be called whenever
    /// the session changes, once what the link brought from before has been taken in.
    #[cold]
    pub fn peer_gone(&mut self, core: &mut Core, runtime: u16) {
        let peer = usize::from(runtime);
        if peer >= self.incoming.len() {
            return;
        }
        self.sending.retain(|sending| sending.to != runtime);
        self.handing.retain(|handing| handing.to != runtime);
        // The next runtime there counts its changes of hands from the start.
        self.ended.retain(|(_, to, ..)| *to != RuntimeId(runtime));
        for id in 0..self.all.len() as u32 {
            self.remove_peer(core, id, RuntimeId(runtime));
        }
        self.incoming[peer] = Stream::default();
        self.forget_outgoing(core, runtime);
    }

    /// The work left for groups on their way, to or from here.
    #[cfg(test)]
    pub(crate) fn moves_left(&self, core: &Core) -> Vec<alloc::string::String> {
        let all = self.all.iter().flatten();
        let mut left: Vec<_> = all.map(|moving| alloc::format!("{:?}", moving.machine)).collect();
        let counts = [
            self.sending.len(),
            usize::from(!self.has_said_all()),
            core.reserved,
        ];
        if counts != [0; 3] {
            left.push(alloc::format!("{counts:?}"));
        }
        left
    }

    /// Has a switch say of every group on its way from here that another runtime has it.
    #[cfg(test)]
    pub(crate) fn fence_all(&mut self, core: &mut Core, switch: u8) {
        for id in 0..self.all.len() as u32 {
            if let Some(moving) = self.moving(id) {
                let epoch = moving.machine.latest().next();
                self.drive(core, id, Input::FromSwitch(switch, SwitchMessage::Fenced(epoch)));
            }
        }
    }

    /// Has every group on its way from here take too long.
    #[cfg(test)]
    pub(crate) fn call_back_all(&mut self, core: &mut Core) {
        for id in 0..self.all.len() as u32 {
            if (self.moving(id)).is_some_and(|moving| moving.machine.is_armed(Timer::Deadline)) {
                self.drive(core, id, Input::Fired(Timer::Deadline));
            }
        }
    }

    /// A runtime is gone whose copies here may have groups that are taken back from it: these go on
    /// from there, and the state of them here is older.
    #[cold]
    pub fn leave_to_copies(&mut self, core: &mut Core, gone: u16, keeper: &Keeper) {
        let ids = 0..self.all.len() as u32;
        let is_from = |part| matches!(part, Part::Returning { peer, .. } if peer.0 == gone);
        let taken: BTreeMap<_, _> = ids
            .filter_map(|id| {
                let moving = self.moving(id)?;
                let is_it = moving.machine.is_taken_back() && is_from(moving.machine.phase());
                is_it.then_some((*moving.group.words(), id))
            })
            .collect();
        if taken.is_empty() {
            return;
        }
        for id in keeper
            .groups_of(gone)
            .filter_map(|group| taken.get(group.words()))
        {
            if let Some(moving) = self.moving(*id)
                && recovery::goes_on_from_copies(moving.machine.is_taken_back())
            {
                let epoch = moving.machine.latest().next();
                self.drive(core, *id, Input::FromSwitch(0, SwitchMessage::Fenced(epoch)));
            }
        }
    }

    fn remove_peer(&mut self, core: &mut Core, id: u32, gone: RuntimeId) {
        let Some(moving) = self.moving(id) else {
            return;
        };
        let part = moving.machine.phase();
        match part {
            Part::Rerouting { to, .. } | Part::Quiescing { to } | Part::Forwarding { to, .. }
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
        let reply_keys = if is_slot {
            moving.reply_keys.clone()
        } else {
            Vec::new()
        };
        self.drive(core, id, Input::Removed(gone));
        if is_staged {
            self.claim_again(core, group);
        }
        if is_slot {
            let (from, back) = (gone, epoch.next());
            self.note_closed(Closed { group, from, back });
            // A packet that comes by the routes that lead here begins the group again. Where the
            // source's flows go on from copies, it must not: switches have its packets wait, and
            // ask when that is over.
            if !core.sender.is_wanted() || crate::replica::is_broken("slots of failed sources are silent") {
                self.say_installed(core, group, reply_keys.clone(), epoch);
            } else if !crate::replica::is_broken("slots of failed sources are barred") {
                self.barred.bar(group, core.now);
            }
            self.say_group_empty(core, group, reply_keys);
        }
    }

    /// Drops packets and messages for a runtime that have not left, but for empty buffers, which
    /// the link sees to.
    pub(crate) fn forget_outgoing(&mut self, core: &mut Core, runtime: u16) {
        for packet in core.out.take_outgoing(runtime).into_packets() {
            match packet.kind() {
                Kind::Empty => core.out.send_packet(runtime, packet),
                Kind::Message => core.out.recycle(packet),
                Kind::Data if packet.has(packet_flag::COPY) => core.out.recycle(packet),
                Kind::Data => {
                    self.packets_moved[1] -= 1;
                    core.out.drop_packet(packet, DropReason::PeerGone);
                }
            }
        }
    }
}
