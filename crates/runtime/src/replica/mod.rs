//! Copies of flows at another runtime, and flows that go on there when their runtime fails
//! (NFVactor V-C and V-D, NFActor 4.1 to 4.3).
//!
//! # Theory of operation
//!
//! A runtime is the *primary* of its flows. Another runtime, its *replica*, keeps a copy of each:
//! bytes, no function's code runs. One replica has the copies of all flows of its primary, so all
//! records go over one link, in order.
//!
//! ```text
//!   primary                                                    replica
//!   chain ─► state compared with what it was before            ┌─────────────────────────┐
//!     │ committed bytes changed: record n ───── link ────────► │ copies by slot          │
//!     ▼                                                        └─────────────────────────┘
//!   gate (`hold::gate`): packet waits for n ◄── acknowledged n ──┘
//!     └─► out
//! ```
//!
//! | record | when |
//! |---|---|
//! | base | a replica is chosen: at the start, and when the one before is gone; or another one is to take its place ([`next`]) |
//! | group, flow: all bytes | with the first packet of a flow; when a function was told of something, or a call has waited; all flows, some each step, behind *base* |
//! | runs: changed committed bytes | with a packet that changed some |
//! | block, end | before any other record that follows it |
//! | plan | which configuration flows go by from here on: with the base, and with each change ([`generations`]) |
//! | whole | behind the last flow of the base: the runtime is protected |
//! | over | a group has come by a move, and ends before its source is known to have let go of it ([`arriving`]) |
//! | change, changed | around the records of one change, where it has several ([`changes`]) |
//!
//! A chain has a policy ([`policy::Policy`]). The table describes `commit`. Of `snapshot`, a flow's
//! bytes are sent whole with its first packet and from time to time, and no packet waits; of
//! `none`, nothing of a flow is sent. A group has a copy while it has had a flow that has one, and
//! while it rests ([`crate::flows::resting`]) behind a flow of another policy than `none`.
//!
//! Lazy bytes ([`nf::FlowState::COMMITTED`]) go with *all bytes* only. A deadline is copied as time
//! left, with *all bytes* only. A recovered flow lives as long as its functions say of the state
//! that it has (`NetworkFunction::timeout`), from its recovery on; the copied time counts where
//! none says anything.
//!
//! *Ends need no acknowledgement of their own.* A port that a flow gave back may be taken by
//! another flow of the same runtime at once: that flow's record is behind the end on the same link,
//! and no packet of that flow leaves before its record is acknowledged. Ends that let another
//! runtime have something wait for one: a block that leaves, and a route that ends
//! ([`crate::flows::parting`]).
//!
//! # Recovery
//!
//! ```text
//!   F fails ─► each switch: routes to F are suspended, their packets wait      each runtime: Keeps{F, base} to all switches, 0 for none
//!              all runtimes there have reported: the highest base is the heir ─► Heir{F}
//!   heir: Heir of every switch that is there ─► installs copies, some each step: arrived(Recovered), Routed, BlockClaimed
//!         ─► Recovered{F}, behind all that ─► switch: other routes of F end, packets that waited are routed
//! ```
//!
//! No switch gives a group of F to a runtime while F is suspended. An heir installs nothing before
//! every switch has let F go, so no flow is active twice as long as switches see the end of F's
//! sessions only when F is gone: that is the lease's business (`protocols::membership`).
//!
//! A runtime says to each worker which *incarnation* of it this is, and copies are of one
//! incarnation. So a switch that begins again while F begins again knows that copies of F are of an
//! incarnation that it has never met: there is nothing to let go, the heir is told so once all have
//! told what they have, and the new F which blocks are in use once that is recovered
//! (`switch::recovery`).
//!
//! The heir is the primary of what it recovered: its own replica gets the copies as those of any
//! new flow.
//!
//! Invariants: a packet leaves only when the record of its flow's state, and of its group's, is
//! acknowledged, unless no replica could be chosen, which is counted (`unprotected`); copies are
//! bounded by the number of flows of a runtime; bytes from another process are checked before they
//! are a state.
//!
//! *Moves.* The copies of a group are withdrawn before its target has all of the state: the target
//! decides what becomes of it, and copies it to its own replica. The two words go by different
//! links, so `State` waits until the replica has acknowledged the first: else the target and the
//! heir could both have the group when the source fails. Should the source fail before, the heir
//! has the group, and homes that were told of the move turn its routes to the heir. A target says
//! that it has the group when its replica has all of it, as one change ([`arriving`]).
//!
//! Not here: packets that functions hold or that wait for calls at the primary, which are lost with
//! it; more than one replica; a group whose state is on the link when its source fails, and whose
//! target has not got all of it, is lost.

mod arriving;
mod changes;
mod choosing;
pub(crate) mod compare;
mod generations;
mod going;
pub mod keeper;
pub(crate) mod ledger;
mod next;
mod passing;
pub mod policy;
mod records;
pub(crate) mod recovery;
pub mod sender;
pub(crate) mod shadow;

use crate::parts::{Core, Following};
use crate::record::Copy;
use wire::FlowKey;

impl Core {
    /// Copies are sent from now on, or a store is told; or no more.
    pub fn follow(&mut self) {
        self.is_followed = self.sender.is_on() || self.ledger.is_on();
        self.following = match (self.sender.is_on(), self.ledger.is_on()) {
            (true, false) => Following::Copies,
            (false, true) if !self.ledger.has_waiting() => Following::Store,
            _ => Following::All,
        };
        self.is_gated = self.sender.is_on() || self.ledger.has_waiting();
        let is_copied = self.sender.is_on();
        self.flows.parting.keep_copies(is_copied);
        self.lines.keep_copies(is_copied);
    }

    /// A number that no other incarnation of this runtime has, by which it is told from those. It
    /// says nothing of what functions draw.
    pub fn incarnation(&self) -> u64 {
        FlowKey::from_words([self.settings.info.seed, 0, 0, 0, 0]).hash(&self.settings.seed) | 1
    }

    /// For a runtime that is to keep no copies of this one's flows: it hears by this which
    /// incarnation this is.
    pub fn no_base(&self) -> Copy<'static> {
        Copy::Base {
            number: 0,
            now: 0,
            incarnation: self.incarnation(),
            is_second: false,
        }
    }
}

#[cfg(test)]
std::thread_local! {
    /// The rule that a test breaks, to see that it notices, by its name.
    pub(crate) static BROKEN: core::cell::Cell<&'static str> = const { core::cell::Cell::new("") };
}

#[cfg(test)]
std::thread_local! {
    /// How many flows a test has sent in a step of a base.
    pub(crate) static WALKED: core::cell::Cell<usize> = const { core::cell::Cell::new(sender::WALK) };
}

#[cfg(test)]
std::thread_local! {
    /// So many records a next replica may be behind in a test.
    pub(crate) static BEHIND: core::cell::Cell<u64> = const { core::cell::Cell::new(next::BEHIND_MAX) };
}

#[cfg(test)]
fn walk() -> usize {
    WALKED.get()
}

#[cfg(test)]
fn behind_max() -> u64 {
    BEHIND.get()
}

#[cfg(not(test))]
#[inline(always)]
const fn behind_max() -> u64 {
    next::BEHIND_MAX
}

#[cfg(not(test))]
#[inline(always)]
const fn walk() -> usize {
    sender::WALK
}

#[cfg(test)]
pub(crate) fn is_broken(rule: &str) -> bool {
    BROKEN.get() == rule
}

#[cfg(not(test))]
#[inline(always)]
pub(crate) const fn is_broken(_: &str) -> bool {
    false
}
