//! Which runtime has a group: how it moves from one runtime to another without a packet lost,
//! twice, or out of order (NFVactor V-B, NFActor 5).
//!
//! # Theory of operation
//!
//! One [`Ownership`] per group and runtime says what that runtime is to the group; one [`Home`] per
//! group and home switch has the route. Both only decide: they answer each input with outputs, in
//! order, which the driver carries out. Bytes of state and packets are the driver's; so are
//! buffers, which it keeps as the machine says.
//!
//! ```text
//!    source S                    switches (homes: the routes; exits: where S's packets leave)            target T
//!    Active ──────── Open{e+1} ───────────────────────────────────────────────────────────────────► room? Buffering
//!    Opening ◄────── Accept ─────────────────────────────────────────────────────────────────────────┤
//!    Rerouting ───── Reroute{S→T, e+1} ──► each home: packets go to T from now on ─── packets ──────►│ kept
//!      goes on ◄──── Rerouted, behind the last packet to S ──┘                                       │
//!    Quiescing       no call waits, everything received is processed; copies are withdrawn           │
//!    Forwarding ──── DrainMarker{T} ──► each exit, behind the last packet from S ──── Drained ──────►│
//!      keeps copy ── State ─────────────────────────────────────────────────────────────────────────►│ installs when it has
//!                                                                                                    │ State and every Drained
//!    Tombstone ◄──── Done ───────────────────────────────────────────────────────────────────────── Announcing: processes
//!      drops copy ── Gone ──────────────────────────────────────────────────────────────────────────► Active, may move on
//! ```
//!
//! *DrainMarker* and *Drained*: a switch reads its links in turn, so what T sends could leave
//! before what S sent earlier. T therefore says nothing until each switch by which packets leave
//! has read all that S had sent. (With one link that both packets and messages share, that is one
//! record each way.)
//!
//! *Abort*, until State is sent (a deadline, a removed target, a switch that refuses). Nothing sent
//! to a home: `Cancel`, until `Canceled`. Otherwise every home is told `Reroute{T→S, e+2}`: it
//! answers S in-band and tells T `Moved`, in-band behind what it sent there. T passes on what it
//! kept from that home and says `End`. S, which has been active all the time, processes by home:
//! packets from before the home's answer (to either re-route, so that one of the two may be late);
//! packets that T handed over; after `End`, packets behind the answer.
//!
//! ```text
//!   Active ─Move─► Opening ─Accept─► Rerouting ─all answered─► Quiescing ─Quiesced─► Forwarding ─Done─► Tombstone ─Forget─► Absent
//!     ▲              │ Refuse, Removed    │ deadline, Removed, Refused   │               │ Grant (recovery decided; T removed)
//!     ├──────────────┤                    └───────────► Returning ◄──────┴───────────────┘
//!     │◄─ Canceling ◄┘ deadline                            │ all answered and ended
//!     ◄────────────────────────────────────────────────────┘
//!
//!   Absent ─Open─► Buffering ─State and all Drained─► Announcing ─Gone, Removed─► Active
//!     ▲               │ Cancel │ Moved
//!     ├───────────────┤        └─► Yielding ─all moved─┐
//!     ◄────────────────────────────────────────────────┘
//! ```
//!
//! *Epochs* grow with each change of hands, abort included; a home follows only its route's
//! runtime, or the source of the move that made the route, and only to a higher epoch. Anything
//! lower is answered `Fenced`, and a runtime that is fenced stops. An epoch announced is not yet
//! one held: a copy keeps the epoch of its installation until the move is over.
//!
//! *Lost and late messages.* Links keep order. A lost message is said again on [`Timer::Retry`], by
//! the source throughout and by the target for `Done`; every message may come twice. Between
//! `State` and `Done` the source waits however long it takes: it never resumes by itself. If T is
//! removed then, the copy is *orphaned*: S takes the group back ([`Input::Grant`]), and each home
//! answers when it knows that no heir of T has it ([`recovery::TakenBack`]). Where one has, the
//! home tells S so as soon as the heir announces the group, which may end there before S asks
//! ([`recovery::Standing::fences_source`]).
//!
//! *A switch that is gone* has nothing under way to any runtime: so it has answered, whatever it
//! was asked ([`Input::SwitchGone`]). The one thing that another runtime would have heard of it is
//! that the group was called back. S says that itself (`Back`), and T, once it knows, too, that
//! nothing comes from that home any more, does as with `Moved`.
//!
//! *Copies* at another runtime are the driver's, and the consequences when a runtime goes that had
//! some are [`recovery`]'s to say. A source withdraws its copies between [`Output::SendState`] and
//! `State`. A target's driver says `Done` when the replica has all of the group, as one change: so
//! either the source or the heir has it should the target fail. Of a flow that is a group by itself
//! it does not wait: a target that fails in that moment takes the flow with it.
//!
//! Invariants, each a checker of `tests::model`, which explores this code to the last state at
//! small bounds: at most one runtime is active; each packet is processed once, in order, on the
//! latest state, or is a counted drop; packets leave in order; while a runtime lives that has the
//! state, some live one has it; from every state the end can be reached. `tests::replicas` has a
//! third runtime, copies, and two runtimes that crash: no packet leaves whose state is not at the
//! replica, and no runtime acts on an older state than has left. One end is left out there: that of
//! a group at its target before its source has let go. `tests::views` has the machines of
//! [`membership`](crate::membership) beside these: a source that a view removes has no
//! effect without its lease. `Bug` lists rules that were broken to see the checkers fire.
//!
//! Not here: a switch that begins again (the driver tells it where groups go); packets' bytes.

mod home;
mod inputs;
mod message;
pub mod recovery;
mod state;
#[cfg(test)]
mod tests;

pub use home::{Home, HomeInput, HomeOutput};
pub use inputs::{Finished, Input, Output, Phase, Take, Timer};
pub use message::{Epoch, Refusal, RuntimeId, RuntimeMessage, SwitchMessage, Switches, TellSwitch};
pub use state::Ownership;

/// Rules of this module, each of which a test breaks to see a checker fire.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Bug {
    /// State goes out with the first home's answer.
    OneAnswerIsEnough,
    /// The target does not wait for the exits.
    NoClear,
    /// After a re-route, an abort only cancels.
    CancelsAfterReroute,
    /// An abort calls back only the homes that have answered.
    ReturnsToSome,
    /// The source resumes by itself when `Done` is late.
    ResumesByItself,
    /// A returning source does not wait for `End`.
    NoWaitForEnd,
    /// A returning source does not wait for the home's answer.
    NoWaitForAnswer,
    /// The source drops its copy with State.
    DropsCopyEarly,
    /// The target answers `Moved` only when it has something.
    SilentWhenEmpty,
    /// A home that is asked again does not answer again.
    AnswersOnce,
    /// The target forgets that `Done` may be lost.
    SaysDoneOnce,
    /// The target is not told that a group is called back whose home is gone.
    SilentOfGone,
    /// The target waits for an exit that is gone.
    WaitsForGone,
    /// An heir is chosen before all runtimes have reported.
    HeirBeforeReports,
    /// An heir begins before the switches have let the other runtime go.
    HeirWithoutWord,
    /// State is sent before the replica has acknowledged that its copies count no more.
    StateBeforeWithdrawn,
    /// A packet leaves before the replica has its state.
    LeavesBeforeKept,
    /// A route to a target whose source is gone waits for no heir.
    TargetIsAsked,
    /// A route to a target that is gone waits for no heir.
    SourceIsAsked,
    /// A group that is taken back is its source's at once.
    TakenBackAtOnce,
    /// A source takes a group back though it has the target's copies of it.
    TakenBackFromCopies,
    /// A source hears nothing of an heir that has the group before it asks.
    SourceIsLeftToAsk,
    /// A target says *Done* before its replica has the group.
    #[cfg(test)]
    DoneBeforeCopied,
    /// A target says nothing to its replica of a group that has just come, and ends.
    #[cfg(test)]
    EndIsNotSaid,
}

#[cfg(test)]
std::thread_local! {
    static PLANTED: core::cell::Cell<Option<Bug>> = const { core::cell::Cell::new(None) };
}

#[cfg(test)]
fn has(bug: Bug) -> bool {
    PLANTED.get() == Some(bug)
}

#[cfg(not(test))]
#[inline(always)]
const fn has(_: Bug) -> bool {
    false
}
