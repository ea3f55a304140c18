//! Drives the machines of ownership, and carries out what they say.
//!
//! ```text
//!   message, record, timer ─► drive ─► machine ─► outputs ─► carried out: source, target, kept packets, orders
//! ```
//!
//! Not here: messages of other workers (`intake`), which groups begin to move (`begin`).

use super::{Moves, TAKEN_AGAIN};
use crate::flows::group::GroupKey;
use crate::message::Message;
use crate::parts::Core;
use crate::replica::recovery;
use crate::stats::DropReason;
use arrayvec::ArrayVec;
use protocols::ownership::{Input, Output, Phase as Part, RuntimeMessage, TellSwitch};

impl Moves {
    /// Gives a machine an input and carries out what it says.
    pub(super) fn drive(&mut self, core: &mut Core, id: u32, input: Input) {
        let Some(moving) = self.moving(id) else {
            return;
        };
        let mut outputs = ArrayVec::<Output, 8>::new();
        moving.machine.handle(input, |output| {
            // Of a recalled group all kept packets are processed together, at the end, in order.
            if !matches!(output, Output::Release(_)) {
                outputs.push(output);
            }
        });
        let (group, part) = (moving.group, moving.machine.phase());
        self.silence(core, id);
        for output in outputs {
            self.carry_out(core, id, group, output);
        }
        match part {
            Part::Returning { .. } => self.pin(core, id),
            // The links lose nothing and keep order: no worker will speak of it again.
            Part::Absent | Part::Active | Part::Tombstone { .. } => self.end_moving(core, id),
            _ => {}
        }
        if core.sessions.has_absent() {
            self.answer_for_absent(core, id);
        }
    }

    pub(super) fn carry_out(&mut self, core: &mut Core, id: u32, group: GroupKey, output: Output) {
        match output {
            Output::Tell(to, message) => match message {
                RuntimeMessage::Open(..) => self.open(core, id, to.0, message),
                RuntimeMessage::Done(_) => self.say_done_when_kept(core, id, to.0, group, message),
                RuntimeMessage::Gone(_) => self.say_gone_when_stored(core, to.0, group, message),
                RuntimeMessage::End(epoch, home) => {
                    self.note_ended((group, to, epoch, home));
                    self.tell_runtime(core, to.0, group, message);
                }
                _ => self.tell_runtime(core, to.0, group, message),
            },
            Output::TellSwitches(switches, TellSwitch::Reroute { from, to, epoch, .. }) => {
                self.clock = self.clock.max(epoch);
                let now = self.moving_time(core);
                if let Some(moving) = self.moving(id) {
                    moving.rerouted_at = now;
                }
                self.reroute(core, id, switches, from, to, epoch);
            }
            Output::TellSwitches(switches, TellSwitch::DrainMarker { to, epoch }) => {
                for switch in switches.iter() {
                    core.out
                        .send(usize::from(switch), &Message::DrainMarker(group, to, epoch));
                }
            }
            Output::Quiesce => {
                if let Some(moving) = self.moving(id) {
                    moving.is_quiescing = true;
                    self.quiescing.push(id);
                }
            }
            Output::SendState(to, epoch) => self.send_state(core, id, to.0, epoch),
            Output::Install => self.install(core, id),
            Output::Depart => self.depart(core, id),
            Output::HandOver(to, home) => self.hand_over_kept(core, id, to.0, Some(home)),
            Output::CloseSlot => self.close_slot(core, id),
            Output::Finished(how) => self.finished_moving(core, id, how),
            Output::Stop => self.stop(core, id, group),
            Output::Orphaned => self.take_back(core, id),
            Output::Release(_) => {}
        }
    }

    /// Nothing more is to be done for a group that moved, or did not.
    pub(super) fn end_moving(&mut self, core: &mut Core, id: u32) {
        let Some(moving) = self.remove(id, core) else {
            return;
        };
        if moving.is_resynced_late {
            self.tell_over(core, &moving);
        }
        if !moving.asked.is_empty() || !moving.keys_asked.is_empty() {
            self.answer_asked(core, &moving);
        }
        if !self.sending.is_empty() {
            self.sending.retain(|sending| sending.id != id);
        }
        for stream in &mut self.incoming {
            if stream.group == Some(id) {
                (stream.group, stream.actor) = (None, None);
            }
        }
        core.reserved -= moving.reserved as usize;
        self.pinned -= u32::from(moving.is_pinned);
        core.end_coming(&moving.group);
        core.end_arriving(&moving.group);
        self.unpin(core, &moving.actors, moving.group);
        match moving.machine.phase() {
            // Here, at whichever end: the kept packets go on, and whether the group is idle is to
            // be seen now.
            Part::Active => {
                if moving.is_to_be_routed {
                    self.claim_again(core, moving.group);
                    self.say_routed(core, moving.group, moving.reply_keys.clone());
                }
                self.begin_again(moving.actors);
                self.process(moving.buffered, moving.group, moving.reply_keys);
            }
            // There: nothing is kept. Or a slot that is closed: by its source, before anything
            // came, or since that is gone.
            _ => {
                self.buffered -= moving.buffered.len();
                for buffered in moving.buffered {
                    core.out.drop_packet(buffered.packet, DropReason::PeerGone);
                }
            }
        }
    }

    /// The target is gone, and the copy here may be the only one: it is in force again, when each
    /// home has said so.
    pub(crate) fn take_back(&mut self, core: &mut Core, id: u32) {
        let now = self.moving_time(core);
        if let Some(moving) = self.moving(id) {
            (moving.again, moving.taken_at) = (TAKEN_AGAIN, now);
            let epoch = moving.machine.latest().next();
            self.clock = self.clock.max(epoch);
            self.drive(core, id, Input::Grant(epoch));
        }
    }

    /// A switch that is not there has nothing to say of a group any more; but it does not say that
    /// no heir has a group that is taken back. The next switch there does, if it comes in time.
    pub(super) fn answer_for(&mut self, core: &mut Core, id: u32, switch: u8) {
        let now = self.moving_time(core);
        let Some(moving) = self.moving(id) else {
            return;
        };
        let is_early = now.saturating_sub(moving.taken_at) < recovery::PATIENCE;
        if moving.machine.is_taken_back()
            && is_early
            && !crate::replica::is_broken("what is taken back waits for its home")
        {
            return;
        }
        let peer = match moving.machine.phase() {
            Part::Buffering { from, .. } | Part::Yielding { to: from, .. } => Some(from),
            _ => None,
        };
        let backs = moving.backs.extract_if(.., |(home, _)| *home == switch);
        let back = backs.last().map(|(_, message)| message).zip(peer);
        if moving.machine.awaits(switch) {
            if let Part::Buffering { .. } = moving.machine.phase() {
                // Another may be there already, and read the source's words behind this one's.
                moving.install_stats.is_unclear = true;
            }
            self.drive(core, id, Input::SwitchGone(switch));
        }
        if let Some((message, peer)) = back {
            self.drive(core, id, Input::FromRuntime(peer, message, Ok(())));
        }
    }

    /// Answers for those switches that are not there.
    #[cold]
    pub(crate) fn answer_for_absent(&mut self, core: &mut Core, id: u32) {
        for switch in 0..core.settings.switches {
            if !core.out.is_present(usize::from(switch)) {
                self.answer_for(core, id, switch);
            }
        }
    }
}
