//! Which messages of runtimes a switch handles, and how much of what follows from them is kept.
//!
//! # Theory of operation
//!
//! A runtime may be another process, so its messages may be anything. Each message is held against
//! its bounds before it is handled; a message beyond them is rejected and counted
//! (`words_refused`), and those behind it are handled.
//!
//! ```text
//!   frame ─► record ─► valid? ─► handled ─► answer ─► waits for a buffer and room ─► link
//!               │ none   │ no                 │ too many wait
//!               └────────┴─────► rejected ◄───┘
//! ```
//!
//! That a message is possible does not make it true: a process that has the cluster's key may say
//! that it has what it has not, and then has its packets.
//!
//! # Bounds
//!
//! | kept | at most | beyond |
//! |---|---|---|
//! | routes, and the suspect ones | `routes_max`, each once | a packet is dropped (`routes_full`); a runtime's message is answered with *taken* |
//! | blocks of ports, and whose they are | [`BlockOwners::most`](crate::owners::BlockOwners::most) of 8 sizes | rejected |
//! | reply keys that were rejected | 64 | the oldest is forgotten: its flow goes without replies |
//! | messages to a present runtime, and those for an absent one | [`messages_max`] each | rejected |
//! | blocks that go back to runtimes that are not there | as many as there may be, for each runtime | rejected |
//! | probes | 8 in a step, and before a runtime's as many messages | they come later |
//! | packets that wait for ports, turns, fragments | the buffers | nothing is read |
//!
//! Where no runtime says what it may not, nothing is rejected: [`messages_max`] and the number of
//! blocks follow from what runtimes have. So a message that must not be lost is lost only to a
//! runtime that has said too many.
//!
//! Invariants: no bytes of a runtime's end the process or grow a table beyond its bound
//! (`whatever_runtimes_say_does_a_switch_no_harm`, the fuzz target `words`).
//!
//! Not here: the effects of messages (`Switch::handle`); packets of other processes (`peer::head`).

use super::directory::Blocks;
use crate::message::Message;
use crate::settings::MOVES_MAX;
use protocols::ownership::RuntimeId;

/// Messages that one group on its way may have a switch owe to runtimes at once. Its source
/// re-routes it at most three times before it has been answered (there, back because its target is
/// gone, and again to a switch that restarts), each of which is told to three runtimes at most; and
/// it asks twice at most that its target be told *clear* (once more of a switch that restarts).
/// That is 11. That it is called back is said again, to two runtimes, each time after twice as
/// long: twelve times in the first hour in which a runtime reads nothing. A message that is
/// rejected after that is said once more.
const MESSAGES_OF_A_MOVE: usize = 11 + 2 * 12;
/// Messages that a block may have a switch owe: told, doubted, returned, lent.
const MESSAGES_OF_A_BLOCK: usize = 4;

/// How many messages may wait for one runtime: those of all groups on their way from all runtimes
/// and of all blocks at once, if all of it is to this one; *all told*; and, for each runtime, that
/// no more that it has lent is coming.
pub(super) fn messages_max(runtimes: usize, blocks: usize) -> usize {
    runtimes * MOVES_MAX as usize * MESSAGES_OF_A_MOVE + blocks * MESSAGES_OF_A_BLOCK + 1 + runtimes
}

/// Whether one of so many runtimes may say that: each worker and block that it names is there, and
/// its number is within bounds.
pub(super) fn is_valid(message: &Message, runtime: usize, runtimes: usize, blocks: &Blocks) -> bool {
    let is_there = |id: RuntimeId| usize::from(id.0) < runtimes;
    let is_its = |id: RuntimeId| usize::from(id.0) == runtime;
    match message {
        Message::BlockClaimed(block, _) | Message::BlockTentative(block, _) => blocks.may_note(block),
        Message::Reroute(reroute) => {
            let (from, to) = (reroute.from, reroute.to);
            is_there(from) && is_there(to) && from != to && (is_its(from) || is_its(to))
        }
        Message::DrainMarker(_, to, _) => is_there(*to) && !is_its(*to),
        Message::BlockReturned(_, home) => is_there(*home),
        Message::BlockKept(block, home) => is_there(*home) && !is_its(*home) && blocks.may_note(block),
        Message::BlockLent(block, home, to) => {
            is_its(*home) && is_there(*to) && home != to && blocks.may_note(block)
        }
        Message::Keeps(failed, ..) => is_there(*failed),
        Message::Meets(failed, _) | Message::Recovered(failed) => is_there(*failed) && !is_its(*failed),
        // Only switches say so.
        Message::RouteConflict(_)
        | Message::Switch(..)
        | Message::BarrierAcknowledged(_)
        | Message::Heir(..)
        | Message::LendsOver(_) => false,
        Message::BlockReleased(_)
        | Message::BlockSuspect(..)
        | Message::Routed(_)
        | Message::GroupEmpty(..)
        | Message::RouteSuspect(_)
        | Message::Installed(..)
        | Message::Leaving(_)
        | Message::Incarnation(_)
        | Message::BarrierAsked(_)
        | Message::LeaseAsked(..)
        | Message::LeaseGranted(..)
        | Message::Resynced => true,
    }
}
