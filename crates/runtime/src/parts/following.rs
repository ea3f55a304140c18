//! Packets of flows whose changes are followed: for copies, or for a store.
//!
//! ```text
//!   what it was: for the store (`noting`, `through`), for copies (`compare`) ─► chain ─► what is other ─► sent, written, noted
//! ```
//!
//! Not here: what is done with it (`replica`).

use super::Core;
use nf::Direction;
use wire::PacketBox;

impl Core {
    /// [`Core::begin`] of a packet that may be watched.
    #[inline(always)]
    pub fn begin_seen(&mut self, actor: u32, packet: PacketBox, direction: Direction) {
        if self.out.tap.is_some() || self.runner.sampling.is_on() {
            self.begin_watched(actor, packet, direction);
        } else {
            self.begin_fast(actor, packet, direction);
        }
    }

    /// [`Core::begin`] of a packet that is not watched.
    #[inline(always)]
    pub fn begin_fast(&mut self, actor: u32, packet: PacketBox, direction: Direction) {
        if !self.is_followed {
            self.begin::<false, false>(actor, packet, direction);
        } else if self.is_gated {
            self.begin_followed::<false>(actor, packet, direction);
        } else {
            self.begin_noted(actor, packet, direction);
        }
    }

    #[inline(never)]
    fn begin_followed<const SEEN: bool>(&mut self, actor: u32, packet: PacketBox, direction: Direction) {
        if self.ledger.has_waiting() {
            self.observe_stored(actor);
        }
        let is_stored = self.ledger.is_on();
        let before = is_stored.then(|| self.before_noting(actor));
        let is_copied = self.sender.is_on();
        if is_copied {
            self.observe(actor);
        }
        self.begin::<SEEN, true>(actor, packet, direction);
        if is_copied {
            self.commit_after(actor);
        }
        if self.ledger.has_waiting() {
            self.commit_stored_rest(actor);
        }
        if let Some(before) = before {
            if is_copied || !self.is_as_noted(actor, &before) {
                self.note_lack(actor, &before);
            }
            self.ledger.forget_observed();
        }
    }

    /// The same where no packet waits for what it changes.
    #[inline(never)]
    fn begin_noted(&mut self, actor: u32, packet: PacketBox, direction: Direction) {
        let before = self.before_noting(actor);
        self.begin::<false, false>(actor, packet, direction);
        if !self.is_as_noted(actor, &before) {
            self.note_lack(actor, &before);
        }
    }

    #[cold]
    #[inline(never)]
    fn begin_watched(&mut self, actor: u32, packet: PacketBox, direction: Direction) {
        if self.is_followed {
            self.begin_followed::<true>(actor, packet, direction);
        } else {
            self.begin::<true, false>(actor, packet, direction);
        }
    }
}
