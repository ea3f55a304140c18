//! Packets that wait to leave: for switches, for copies, for a data store.
//!
//! ```text
//!   passed its chain ─► switches have heard (`hold`) ─► the replica has it, or the store (`hold::gate`) ─► out
//! ```
//!
//! Not here: the copies and records that a packet waits for (`replica::compare`,
//! `replica::ledger::through`).

use super::Core;
use crate::flows::actor::flag;
use crate::hold::{is_held, mark_of};
use crate::stats::DropReason;
use wire::PacketBox;

impl Core {
    /// Holds a packet behind those of its flow that wait for switches.
    #[cold]
    pub(super) fn hold_behind(&mut self, actor: u32, packet: PacketBox) {
        let header = self.flows.header(actor);
        self.hold.hold_behind(actor, header, packet, &mut self.out);
    }

    /// Passes on packets that have waited for barriers that are acknowledged; answers how many.
    #[inline]
    pub fn release_held(&mut self) -> usize {
        self.hold.release(
            &mut self.flows,
            [&mut self.gate, &mut self.store_gate],
            &mut self.out,
            self.now,
            |chain| self.sender.leaves_alone(chain),
        )
    }

    /// A switch is gone: packets that wait to leave by its link are dropped.
    #[cold]
    pub fn lose_held_for(&mut self, link: usize) {
        if wire::planted::is("held_leaves_late") {
            return;
        }
        self.hold.switch_gone(link, &mut self.out);
        self.gate.switch_gone(link, &mut self.out);
        self.store_gate.switch_gone(link, &mut self.out);
    }

    /// Drops the packets of these flows that wait, with their calls: they have gone on elsewhere.
    #[cold]
    pub fn drop_waiting(&mut self, actors: &[u32]) {
        self.runner.drop_calls(actors, &mut self.flows, &mut self.out);
        for actor in actors {
            self.refuse_waiting(*actor, DropReason::PeerGone);
        }
    }

    /// Drops waiting packets of a flow, for switches, copies or a store: none of them may leave.
    #[cold]
    pub(super) fn refuse_waiting(&mut self, actor: u32, reason: DropReason) {
        let header = self.flows.header(actor);
        if is_held(header.flags) {
            self.hold.refuse(actor, reason, &mut self.out);
        }
        let mark = mark_of(header, actor);
        let keys = match header.flags & flag::REPLY_KEY {
            0 => [header.key; 2],
            _ => [header.key, *self.flows.reply_key(actor)],
        };
        for gate in [&mut self.gate, &mut self.store_gate] {
            if gate.may_hold(mark) {
                gate.refuse(actor, &keys, reason, &mut self.out);
            }
        }
    }

    /// Passes on all packets that wait, for whatever: no flow is left whose replies or copies could
    /// be missed.
    pub fn release_all_held(&mut self) {
        self.hold.release_all(
            &mut self.flows,
            [&mut self.gate, &mut self.store_gate],
            &mut self.out,
        );
        self.close_copies();
    }

    /// The changes of a packet that is about to wait for switches are copied, or stored; otherwise,
    /// why it must not leave at all.
    pub(super) fn commit_held(&mut self, actor: u32) -> Result<(), DropReason> {
        if self.lacks_replica(actor) {
            return Err(DropReason::NoReplica);
        }
        let is_written = !self.ledger.has_waiting() || self.commit_stored(actor);
        if self.sender.is_on() {
            self.commit(actor);
        }
        match is_written || !self.waits_for_store(actor) {
            true => Ok(()),
            false => Err(DropReason::StoreFull),
        }
    }
}
