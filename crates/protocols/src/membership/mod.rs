//! Which workers are members, and which of them may act: numbered views, leases, and the
//! coordinator that gives both a number (NFVactor III-D, NFActor 3.2 "view service").
//!
//! # Theory of operation
//!
//! A [`View`] lists the members: worker, incarnation, standing. Views are numbered, and only the
//! [`Coordinator`] makes them. A worker adopts a view with a higher number than its own and no
//! other. A link that is down removes no member.
//!
//! A worker that is cut off must stop before its groups are given to another. So a worker acts on
//! *leases* alone:
//!
//! ```text
//!   holder ── ask: its own clock's reading t, in a frame ──► grantor: promises until its now + D + D/16
//!   holder ◄─────────── grant: t again, in a frame ───────── grantor
//!   holder: has the lease until t + D, by its own clock
//! ```
//!
//! The holder counts from before the grantor read the question, so the holder's lease is over when
//! the grantor's promise is, as long as their clocks' *rates* differ by less than a sixteenth.
//! Neither reads the other's clock: `t` is the holder's, and the grantor only says it back. A late
//! or lost grant shortens a lease and never lengthens it.
//!
//! | worker | acts while | grantors |
//! |---|---|---|
//! | runtime, on what a switch sent it | it has that switch's lease | the switch, while the switch may act itself |
//! | switch | members of more than half of the view's weight, itself among them, grant it | all members |
//!
//! Each member weighs one, the view's first switch two: so a cluster of one switch outlives any of
//! its runtimes without a coordinator, and of two halves that are cut off from each other at most
//! one acts. A cluster without a coordinator goes on for ever: leases come from members alone.
//!
//! # Removal
//!
//! ```text
//!   no heartbeat ─► suspect ─Log─► Suspects to all members ─► each stops granting, waits out its promise ─► Withdrawn
//!                      ▲  │ heard again: a list without it                                                     │
//!                      └──┘                                          fenced ─Log─► view n + 1, without it ◄────┘
//! ```
//!
//! A worker that is heard is suspected all the same where it and another have not heard each other
//! for long (`unheard`): a lease that a runtime has not granted a switch is how that switch knows.
//! It is suspected until the report of it is taken back. So is a member that is heard and does not
//! take the newest view for as long: no other view follows meanwhile.
//!
//! A coordinator that hears none of the members that it had heard takes itself for cut off: it
//! suspects none, and as one is heard again, none for twice as long as that lasted. If all have
//! failed, no member is left to withdraw a lease anyway, until a process asks to join. A process
//! that waits to join or to leave is heard. A suspect that is heard again is not fenced while the
//! record that restores it waits for the log.
//!
//! | suspect | is fenced when |
//! |---|---|
//! | any | its host's agent has seen its process end, or the process that follows it knows so |
//! | switch | members of half the weight, or more, have withdrawn: the others are no majority |
//! | runtime | each switch has withdrawn, or is fenced itself, for as long as a promise lasts |
//!
//! A member that left, or whose process has ended, grants nothing a promise later, and counts as
//! one that has withdrawn. A member that a view has removed as silent may live and grant on. So may
//! a member whose end the log does not have, for a coordinator that has begun since.
//!
//! A member may not have heard of the newest view. So a suspect counts as fenced only if it is by
//! each view that it may have; a suspect that a view still has is to be fenced by that view too,
//! since its new members may grant it leases. A word that leases are withdrawn is one
//! incarnation's. No view follows another before each member of that one has it or is suspected,
//! newcomers aside.
//!
//! A *newcomer* is joining and has not been heard: its process waits for a view that has it, and
//! speaks then. No view waits for it. It is suspected when it is not heard within a settling time.
//! It may have any view since the one that brought it in, so all of those count where a member is
//! to be fenced. A process brings all its workers in at once ([`Input::Join`]).
//!
//! Each decision is logged before it is acted on: [`Output::Log`] first, and its consequences on
//! [`Input::Logged`]. A coordinator that restarts replays its log, suspects no member for a
//! settling time, and for longer none that it has not heard ([`Coordinator::wait_for_return`]), and
//! says again what its log ends with. Entries are numbered, and those that [`Coordinator::needed`]
//! no longer names may go from the log.
//!
//! Invariants: a worker that a published view has removed does not act; two views of one number are
//! the same; views' numbers grow at each member. `tests::explore` checks the first two in every
//! state of one switch, one runtime and the coordinator within four ticks, within three with a
//! restart and a log without unneeded entries; and in 300,000 states at most, those that the fewest
//! steps lead to, of two switches and a runtime, of a switch and two runtimes, and of a switch that
//! joins beside a switch and a runtime, within two ticks. From states of the smallest cluster, one
//! in 32, all faults stop: then each member has the newest view in the end, and no member is
//! suspected. Larger clusters have stories step by step. A group that moves while a view removes
//! its source is explored in `ownership::tests::views`.
//!
//! Not here: a removed member's groups (recovery), which runtime is chosen for new ones, the
//! transport of these messages, the log itself; rates of clocks are assumed, not measured.

mod coordinator;
mod lease;
mod member;
#[cfg(test)]
mod tests;
mod unheard;
mod view;

pub use coordinator::{Coordinator, Entry, Input, Output, Timing, Unreadable, Word};
pub use lease::{Grant, Lease, Term};
pub use member::{Membership, Notice};
pub use view::{Incarnation, Member, Role, Standing, View, WorkerId};

/// Rules of this module, each of which a test breaks to see a checker fire: a test of this module,
/// one of `ownership` that explores both, or one of the simulator, which chooses it by name
/// (`wire::planted`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Bug {
    /// A holder counts its lease from the grant's arrival.
    CountsFromGrant,
    /// A grantor says that it has withdrawn while its promise lasts.
    WithdrawsAtOnce,
    /// A grantor that has withdrawn goes on granting.
    GrantsOn,
    /// A runtime counts as fenced when some switch has withdrawn.
    OneSwitchIsEnough,
    /// A switch counts as fenced when less than half of the weight has withdrawn.
    FewAreEnough,
    /// A switch that may not act grants leases.
    GrantsWithoutRight,
    /// A fenced switch's own promises are not waited for.
    PromisesForgotten,
    /// The newest view alone is looked at.
    OldViewForgotten,
    /// A decision is acted on before it is logged.
    ActsBeforeLog,
    /// A member's word from an earlier suspicion counts.
    OldWordCounts,
    /// The word of one incarnation of a member counts for another's grants.
    LaterIncarnationCounts,
    /// A suspect that was fenced by one view counts as fenced in the next.
    FencedForGood,
    /// A worker that a view has removed goes on as if it had not.
    RemovedUnaware,
    /// A suspect that is heard is restored, though another does not hear it.
    RestoredUnheard,
    /// Of the workers of a process that joins, the first alone is a member.
    FirstWorkerJoins,
}

#[cfg(test)]
std::thread_local! {
    pub(crate) static PLANTED: core::cell::Cell<Option<Bug>> = const { core::cell::Cell::new(None) };
}

#[cfg(test)]
fn has(bug: Bug) -> bool {
    PLANTED.get() == Some(bug)
}

#[cfg(not(test))]
#[inline(always)]
fn has(bug: Bug) -> bool {
    let name = match bug {
        Bug::CountsFromGrant => "lease_counts_from_grant",
        Bug::WithdrawsAtOnce => "lease_withdrawn_at_once",
        Bug::GrantsOn => "suspect_is_granted",
        Bug::OneSwitchIsEnough => "one_switch_is_enough",
        Bug::FewAreEnough => "few_are_enough",
        Bug::GrantsWithoutRight => "grants_without_right",
        Bug::PromisesForgotten => "promises_forgotten",
        Bug::OldViewForgotten => "old_view_forgotten",
        Bug::ActsBeforeLog => "acts_before_log",
        Bug::OldWordCounts => "old_word_counts",
        Bug::LaterIncarnationCounts => "later_incarnation_counts",
        Bug::FencedForGood => "fenced_for_good",
        Bug::RemovedUnaware => "removed_unaware",
        Bug::RestoredUnheard => "restored_unheard",
        Bug::FirstWorkerJoins => "first_worker_joins",
    };
    wire::planted::is(name)
}
