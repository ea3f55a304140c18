//! Packets of flows whose changes are followed: for copies, or for a store.
//!
//! ```text
//!   usual:  chain, each function's committed bytes noted before it and compared behind it ─► other? ─► sent, or noted
//!   else:   the state before, all of it: for the store (`noting`, `through`), for copies (`compare`) ─► chain ─► compared ─► sent, written, noted
//! ```
//!
//! The usual packet is of a flow whose copy is up to date, or is followed for a store that it does
//! not wait for. Changes by its functions are seen where the compiler knows how long their states
//! are ([`crate::stage::Watched`]). A function that stops the packet or asks for more ends that:
//! then the flow is compared as a whole, with the shadow that was noted.
//!
//! Not here: the use of it (`replica`).

use super::Core;
use nf::Direction;
use wire::PacketBox;

/// The purpose of following changes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Following {
    Copies,
    /// A store, for which no packet waits.
    Store,
    /// Both, or a store for which packets wait.
    All,
}

#[cfg(test)]
std::thread_local! {
    /// How many packets each instance of [`Core::begin`] has had, by `FOLLOWED` and `WATCHED`.
    pub(crate) static BEGUN: core::cell::RefCell<std::collections::BTreeMap<(bool, bool), u64>> =
        const { core::cell::RefCell::new(std::collections::BTreeMap::new()) };
}

/// Tells tests which instance has a packet.
#[cfg(test)]
pub(super) fn note_begun(is_followed: bool, is_watched: bool) {
    BEGUN.with_borrow_mut(|begun| *begun.entry((is_followed, is_watched)).or_default() += 1);
}

#[cfg(not(test))]
#[inline(always)]
pub(super) const fn note_begun(_: bool, _: bool) {}

impl Core {
    /// [`Core::begin`] of a packet that may be watched.
    #[inline(always)]
    pub fn begin_seen(&mut self, actor: u32, packet: PacketBox, direction: Direction) {
        if self.out.tap.is_some() || self.runner.sampling.is_on() {
            self.begin_watched(actor, packet, direction);
        } else {
            self.begin_unseen(actor, packet, direction);
        }
    }

    #[inline(never)]
    fn begin_unseen(&mut self, actor: u32, packet: PacketBox, direction: Direction) {
        if !self.is_followed {
            return self.begin_alone(actor, packet, direction);
        }
        match self.following {
            Following::Copies => self.begin_copied(actor, packet, direction),
            Following::Store => self.begin_noted(actor, packet, direction),
            Following::All => self.begin_followed::<false>(actor, packet, direction),
        }
    }

    /// [`Core::begin`] of a packet that is not watched, and of which nothing is followed.
    #[inline(always)]
    pub fn begin_alone(&mut self, actor: u32, packet: PacketBox, direction: Direction) {
        self.begin::<false, false, false>(actor, packet, direction);
    }

    /// The same, for copies alone.
    #[inline(always)]
    pub fn begin_copied(&mut self, actor: u32, packet: PacketBox, direction: Direction) {
        if !self.observe_plainly(actor) {
            return self.begin_followed::<false>(actor, packet, direction);
        }
        self.begin::<false, true, true>(actor, packet, direction);
        self.commit_after(actor);
    }

    /// For both, and the long way of each.
    #[inline(never)]
    pub fn begin_followed<const SEEN: bool>(&mut self, actor: u32, packet: PacketBox, direction: Direction) {
        if self.ledger.has_waiting() {
            self.observe_stored(actor);
        }
        let before = self.ledger.is_on().then(|| self.before_noting::<false>(actor));
        let is_copied = self.sender.is_on();
        if is_copied {
            self.observe(actor);
        }
        self.begin::<SEEN, true, false>(actor, packet, direction);
        if is_copied {
            self.commit_behind(actor);
        }
        if self.ledger.has_waiting() {
            self.commit_stored_rest(actor);
        }
        if let Some(before) = before {
            self.note_lack::<false>(actor, &before);
            self.ledger.forget_observed();
        }
    }

    /// For a store alone, for which no packet waits.
    #[inline(always)]
    pub fn begin_noted(&mut self, actor: u32, packet: PacketBox, direction: Direction) {
        if !self.runner.stages().is_watchable {
            return self.begin_followed::<false>(actor, packet, direction);
        }
        let before = self.before_noting::<true>(actor);
        self.begin::<false, false, true>(actor, packet, direction);
        if !self.is_as_noted(actor, &before) {
            self.note_lack::<true>(actor, &before);
        }
    }

    #[cold]
    #[inline(never)]
    fn begin_watched(&mut self, actor: u32, packet: PacketBox, direction: Direction) {
        match self.is_followed {
            true => self.begin_followed::<true>(actor, packet, direction),
            false => self.begin::<true, false, false>(actor, packet, direction),
        }
    }
}
