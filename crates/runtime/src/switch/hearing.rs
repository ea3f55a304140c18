//! Which words of runtimes a switch hears, and how much of what follows from them is kept.
//!
//! # Theory of operation
//!
//! A runtime may be another process, so what it says may be anything. Each word is held against what can be before anybody acts on it; one
//! that cannot be said is refused and counted (`words_refused`), and those behind it are heard.
//!
//! ```text
//!   frame ─► record ─► may be said? ─► acted on ─► answer ─► waits for a buffer and room ─► link
//!               │ none     │ no                      │ too many wait
//!               └──────────┴─────────► refused ◄─────┘
//! ```
//!
//! That a word is possible does not make it true: who has the cluster's key may say that it has what it has not, and then has its packets.
//!
//! # Bounds
//!
//! | what is kept | at most | beyond |
//! |---|---|---|
//! | routes, and those in doubt | `routes_max`, each once | a packet is dropped (`routes_full`); a runtime's word is answered with *taken* |
//! | blocks of ports, and whose they are | [`BlockOwners::most`](crate::owners::BlockOwners::most) of 8 sizes | refused |
//! | second keys that were refused | 64 | the oldest is forgotten: its flow goes without replies |
//! | words to a runtime that is there, and those for one that is not | [`words_max`] each | refused |
//! | blocks that go back to runtimes that are not there | as many as there may be, for each runtime | refused |
//! | questions | a frame for each runtime in a step, as its link has room | they come later; *taken* waits as a word |
//! | packets that wait for ports, turns, fragments | the buffers | nothing is read |
//!
//! Where no runtime says what it may not, nothing is refused: [`words_max`] and the number of blocks follow from what runtimes have. So a
//! word that must not be lost is lost only to those who have said too many.
//!
//! Invariants: no bytes of a runtime's end the process or grow a table beyond its bound (`whatever_runtimes_say_does_a_switch_no_harm`, the
//! fuzz target `words`).
//!
//! Not here: what the words mean (`routes`, `moves`, `sessions`); packets of other processes (`peer::head`).

use super::Switch;
use crate::env::Port;
use crate::message::Message;
use crate::worker::migrate::MOVES_MAX;
use protocols::ownership::RuntimeId;

/// Words that one group on its way may have a switch owe to runtimes at once. Its source re-routes it at most three times before it has been answered (there,
/// back because its target is gone, and again to a switch that begins anew), each of which is told to three runtimes at most; and it asks twice at most
/// that its target be told *clear* (once more of a switch that begins anew). That is 11. That it is called back is said again, to two runtimes, each time after twice as
/// long: twelve times in the first hour in which somebody reads nothing. What is refused after that is said once more.
const WORDS_OF_A_MOVE: usize = 11 + 2 * 12;
/// Words that a block may have a switch owe: told, doubted, returned.
const WORDS_OF_A_BLOCK: usize = 3;

/// How many words may wait for one runtime: what all groups on their way from all runtimes and all blocks want said at once, if all of it is to this one;
/// and *all told*.
pub(super) fn words_max(runtimes: usize, blocks: usize) -> usize {
    runtimes * MOVES_MAX as usize * WORDS_OF_A_MOVE + blocks * WORDS_OF_A_BLOCK + 1
}

impl<P: Port, L: Port> Switch<P, L> {
    /// Whether a runtime may say that: what it names is there, and its number is not more than can be.
    pub(super) fn may_say(&self, runtime: usize, message: &Message) -> bool {
        let is_there = |id: RuntimeId| usize::from(id.0) < self.runtimes.len();
        let is_its = |id: RuntimeId| usize::from(id.0) == runtime;
        match message {
            Message::BlockClaimed(block, _) | Message::BlockTold(block, _) => self.blocks.may_note(block),
            Message::Reroute(reroute) => {
                let (from, to) = (reroute.from, reroute.to);
                is_there(from) && is_there(to) && from != to && (is_its(from) || is_its(to))
            }
            Message::Behind(_, to, _) => is_there(*to) && !is_its(*to),
            Message::BlockReturned(_, home) => is_there(*home),
            // Only switches say so.
            Message::Taken(_) | Message::Switch(..) | Message::Heard(_) => false,
            Message::BlockReleased(_)
            | Message::BlockDoubted(..)
            | Message::Routed(_)
            | Message::Idle(..)
            | Message::Doubted(_)
            | Message::Installed(..)
            | Message::Leaving(_)
            | Message::Hear(_)
            | Message::AllTold => true,
        }
    }

    /// Counts what is nothing that anybody may say.
    #[cold]
    pub(super) fn refuse_word(&mut self) {
        self.words_refused += 1;
    }
}
