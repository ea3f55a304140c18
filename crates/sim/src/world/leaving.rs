//! Runtimes that leave by plan, as a process of `flowkeep node` does that is told to end.
//!
//! ```text
//!   drained: the coordinator is told ─► the runtime's view says so ─┐
//!   told to end ────────────────────────────────────────────────────┴► leaving ─ HEARD ─► orders to move all, ROUNDS at most
//!     ─► none left, or none that moves ─► nothing comes for QUIET ─► flows that are left end ─► QUIET ─► no more steps; `Leave` ─► ends
//! ```
//!
//! All runtimes of a process leave together.
//!
//! Times are shorter than those of `flowkeep::run::part`, as all times of the simulator are.
//!
//! Not here: doing it (`apart`), what a view without a member changes (`joined`).

use crate::Time;
use crate::script::MILLI;
use protocols::membership::Incarnation;

/// How often it is looked at how far a runtime is.
pub(super) const LOOK: u64 = MILLI;
/// For so long switches may go on with what they were told before they hear that a runtime leaves.
pub(super) const HEARD: u64 = 5 * MILLI;
/// Nothing has come for so long: all is home.
pub(super) const QUIET: u64 = 10 * MILLI;
/// How often groups that have come meanwhile are moved on.
pub(super) const ROUNDS: u8 = 5;
/// How long nothing may go on before the next is done all the same.
pub(super) const PATIENCE: u64 = 300 * MILLI;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Stage {
    /// The coordinator is told that it is drained.
    Drained,
    /// It has said that it takes no groups.
    Said,
    /// An order of this number.
    Moving(u32),
    /// Its groups are away.
    Draining,
    /// The flows that were left have ended.
    Finishing,
    /// It takes no more steps, and its agent says so.
    Gone,
}

/// A runtime that leaves.
pub(super) struct Leaving {
    pub incarnation: Incarnation,
    pub stage: Stage,
    pub since: Time,
    /// How much had come to it, and since when no more has.
    pub seen: u64,
    pub quiet: Time,
    /// Whether that is long enough.
    pub is_quiet: bool,
    pub rounds: u8,
    pub away: u64,
}
