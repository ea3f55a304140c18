//! The last step of a packet whose flow may have a copy: it leaves, or waits for a replica or a
//! store.
//!
//! ```text
//!   chain ─► pass ─► no gate ───────────────────────────────────────► out
//!             └────► gates ────┬─► store_commit (`ledger::through`) ─► store's gate ─► out
//!                              ├─► copies (`compare`) ──────────────► gate ─► out
//!                              └─► neither ─────────────────────────► out, counted if it lacks a copy;
//!                                                                     or dropped, as configured
//! ```
//!
//! Invariant: this file calls both ways of waiting, and neither calls this file.

use crate::parts::Core;
use crate::runner::Changed;
use crate::stats::DropReason;
use wire::PacketBox;

impl Core {
    /// Passes a packet of a flow on, once the copy that it depends on is acknowledged.
    #[inline]
    pub fn pass(&mut self, actor: u32, packet: PacketBox) {
        match self.is_gated {
            true => self.pass_gated(actor, packet),
            false => self.pass_alone(actor, packet),
        }
    }

    /// The same behind a chain; without `FOLLOWED` no packet waits for what it changes.
    #[inline(always)]
    pub fn pass_if<const FOLLOWED: bool, const WATCHED: bool>(&mut self, actor: u32, packet: PacketBox) {
        if !FOLLOWED {
            self.pass_alone(actor, packet);
        } else if WATCHED && self.is_plain(actor) {
            if self.runner.changed() == Changed::Something {
                self.send_plainly(actor);
            }
            self.sender.before.passed = actor;
            self.gate
                .pass(actor, self.flows.header(actor), packet, &mut self.out);
        } else {
            self.pass(actor, packet);
        }
    }

    #[inline(always)]
    fn pass_alone(&mut self, actor: u32, packet: PacketBox) {
        if self.sender.is_wanted {
            return self.pass_unprotected(actor, packet);
        }
        self.out.pass(packet);
    }

    #[inline(never)]
    fn pass_gated(&mut self, actor: u32, packet: PacketBox) {
        if self.ledger.has_waiting() {
            let is_written = self.commit_stored(actor);
            if self.waits_for_store(actor) {
                return self.pass_stored(actor, packet, is_written);
            }
        }
        if self.sender.is_on() {
            return self.pass_committed(actor, packet);
        }
        self.pass_alone(actor, packet);
    }

    #[cold]
    fn pass_unprotected(&mut self, actor: u32, packet: PacketBox) {
        let header = self.flows.header(actor);
        match self.sender.leaves_alone((header.generation, header.chain)) {
            true => self.out.pass(packet),
            false => self.out.drop_packet(packet, DropReason::NoReplica),
        }
    }

    /// Whether a flow's packets are to be dropped, since no runtime keeps copies.
    pub fn lacks_replica(&self, actor: u32) -> bool {
        let header = self.flows.header(actor);
        !self.sender.is_on() && self.sender.drops((header.generation, header.chain))
    }

    #[inline(never)]
    fn pass_committed(&mut self, actor: u32, packet: PacketBox) {
        self.commit(actor);
        self.sender.before.passed = actor;
        let header = self.flows.header(actor);
        self.gate.pass(actor, header, packet, &mut self.out);
    }

    /// Notes the committed bytes of a group before functions are told of a flow that begins in it.
    #[inline]
    pub fn observe_beginning(&mut self, actor: u32) {
        if self.ledger.has_waiting() {
            self.observe_stored_beginning(actor);
        }
        if self.sender.is_on() {
            self.observe_group_of(actor);
        }
    }
}
