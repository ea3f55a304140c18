//! A group whose runtime goes: which runtime goes on with it, and when; where its route leads until
//! then; and what a source waits for, so that two never do.
//!
//! ```text
//!   F is gone ─► each runtime: Report ─► each switch: [`heir`] ─► the heir: [`may_begin`] ─► it announces its groups: [`Standing::is_taken_over`]
//!                a route to F, or to a target whose source was F: [`Course::of`]
//!   a source that sent State to F takes the group back ─► not before that is known: [`TakenBack`]
//!   a source that sends State ─► copies are withdrawn first: [`Withdrawn`]
//!   a packet that leaves ─► its state is copied first: [`may_leave`]
//! ```
//!
//! Invariants (`tests::replicas`, which explores them with the machines): a runtime that has a copy
//! goes on with the group only if no other may; a route to a runtime that is gone stays until it is
//! known which runtime goes on; a copy counts until its source knows that it does not.
//!
//! Not here: copies, and which runtime keeps them; how long anything waits.

use super::message::{Epoch, RuntimeId, Switches};
use super::{Bug, has};

/// Copies that a runtime has of another: the number of their base, 0 for none, and of which
/// incarnation.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Report {
    /// Later bases have higher ones.
    pub number: u32,
    /// Incarnations of a runtime are told apart by it; 0 if it never said so.
    pub incarnation: u64,
}

impl Report {
    /// The incarnation of a report which says that there is nothing of a runtime, whichever
    /// incarnation has failed.
    pub const OF_NONE: u64 = u64::MAX;
    /// The number in a report that this incarnation is at a runtime's link: its copies are reported
    /// once it is gone.
    pub const LATER: u32 = u32::MAX;

    /// Whether it is about this incarnation, as far as is known.
    pub const fn is_of(self, incarnation: u64) -> bool {
        self.incarnation == incarnation || self.incarnation == 0 || incarnation == 0
    }
}

/// A runtime that is there, as a switch has heard of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Heard {
    /// Its number.
    pub runtime: u16,
    /// Its report of the incarnation that is gone, if that has come.
    pub report: Option<Report>,
    /// Whether it is to report.
    pub must_report: bool,
}

/// Which runtime goes on with the groups of one that is gone.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Heir {
    /// Some are to report.
    Unknown,
    /// No runtime has copies.
    None,
    /// This one, from copies of this incarnation.
    Is(u16, u64),
}

/// The decision of a switch, from all runtimes that are there. Of two that have copies the one with
/// the later base goes on. Which runtime it is decides nothing, but must at all switches.
pub fn heir(all: impl Iterator<Item = Heard>) -> Heir {
    let mut best = None;
    for heard in all {
        match heard.report {
            None if heard.must_report && !has(Bug::HeirBeforeReports) => return Heir::Unknown,
            // The runtime has told all it has.
            None | Some(Report { number: 0, .. }) => {}
            Some(Report { number, incarnation }) => {
                best = best.max(Some((number, heard.runtime, incarnation)))
            }
        }
    }
    best.map_or(Heir::None, |(_, runtime, incarnation)| {
        Heir::Is(runtime, incarnation)
    })
}

/// Whether an heir goes on with groups, these switches having let the other runtime go: all that
/// are awaited, and one at least, since a runtime that has lost all switches has heard of none.
pub fn may_begin(let_go: Switches, awaited: Switches) -> bool {
    (!let_go.is_empty() && awaited.0 & !let_go.0 == 0) || has(Bug::HeirWithoutWord)
}

/// Records of a base by which copies were withdrawn; none if the count is 0.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Withdrawn {
    /// The base's number.
    pub number: u32,
    /// Records of it, up to the last one that withdraws.
    pub count: u64,
}

impl Withdrawn {
    /// Whether the replica, which has acknowledged so many records of the base of this number, has
    /// yet to acknowledge that copies are withdrawn. Of another base it is enough that it is there:
    /// its copies count for more.
    pub fn is_awaited(&mut self, number: u32, acknowledged: u64) -> bool {
        if self.count == 0 {
            return false;
        }
        if self.number != number {
            (self.number, self.count) = (number, 1);
        }
        acknowledged < self.count && !has(Bug::StateBeforeWithdrawn)
    }
}

/// Whether a packet leaves that waits for so many records of a base, of which the replica has
/// acknowledged so many.
#[inline]
pub fn may_leave(needed: u64, acknowledged: u64) -> bool {
    needed <= acknowledged || has(Bug::LeavesBeforeKept)
}

/// How a group's route stands at its home.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Standing {
    /// The runtime that it leads to is there.
    pub is_there: bool,
    /// That runtime is the target of a move, and has not said that the group is installed.
    pub is_awaited: bool,
    /// The source of the move that made the route is there.
    pub has_source: bool,
    /// The runtime that it leads to is gone, and it is not known which one goes on with its groups.
    pub is_suspended: bool,
    /// The same of the source of the move.
    pub is_source_suspended: bool,
}

impl Standing {
    /// Whether the route's packets wait for the source of the move: a source with a copy at its
    /// heir had not sent the group's state, so no target will install it.
    pub fn waits_for_source(self) -> bool {
        self.is_awaited && self.is_source_suspended && !has(Bug::TargetIsAsked)
    }

    /// With which epoch the source of the move is told that an heir has the group, should it be
    /// there: it may yet take the group back, and the group be over by then.
    pub fn fences_source(self, epoch: Epoch) -> Option<Epoch> {
        (self.has_source && !has(Bug::SourceIsLeftToAsk)).then(|| epoch.next())
    }

    /// Whether the route is the runtime's that announces the group, being the heir of the runtime
    /// that the route leads to, or of the source of the move.
    pub fn is_taken_over(self, by_heir: bool, by_heir_of_source: bool) -> bool {
        (self.is_suspended && by_heir) || (self.waits_for_source() && by_heir_of_source)
    }
}

/// Whether a source that takes a group back, and has copies of the target with that group, drops
/// its own state: the target had installed the group, so the copies are newer.
pub fn goes_on_from_copies(is_taken_back: bool) -> bool {
    is_taken_back && !has(Bug::TakenBackFromCopies)
}

/// How a home takes the word of a source that takes a group back from a target that is gone. The
/// target may have installed the group, its last words be lost, and its heir go on with it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TakenBack {
    /// It follows the word as any other.
    Follows,
    /// It says nothing: the source says it again.
    Waits,
    /// The source is fenced: another runtime has the group.
    Fenced,
}

impl TakenBack {
    /// How a home takes the word, by the group's route. `is_late`: the source has had no answer for
    /// long; a switch sees within that time that a runtime is gone.
    pub fn of(
        route: Option<(RuntimeId, Standing)>,
        (by, from): (RuntimeId, RuntimeId),
        is_late: bool,
    ) -> TakenBack {
        match route {
            None => TakenBack::Follows,
            _ if has(Bug::TakenBackAtOnce) => TakenBack::Follows,
            Some((runtime, _)) if runtime == by => TakenBack::Follows,
            Some((runtime, _)) if runtime != from => TakenBack::Fenced,
            Some((
                _,
                Standing {
                    is_suspended: true, ..
                },
            )) => TakenBack::Waits,
            Some((_, Standing { is_there: false, .. })) => TakenBack::Follows,
            // The link between the two is cut, and the target goes on: with the group, or without.
            Some((_, Standing { is_awaited, .. })) => match (is_late, is_awaited) {
                (false, _) => TakenBack::Waits,
                (true, false) => TakenBack::Fenced,
                (true, true) => TakenBack::Follows,
            },
        }
    }
}

/// Where a route leads on, and whether that runtime is asked if it has the group.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Course {
    /// Where the route leads.
    Stays,
    /// The same, if that runtime has the group: it is asked.
    IsAsked,
    /// To the source, if that has the group: it is asked.
    Returns,
    /// Nowhere.
    Ends,
}

impl Course {
    /// The course of a route.
    pub fn of(route: Standing) -> Course {
        match route {
            Standing { is_there: true, .. } if route.is_awaited && !route.has_source => {
                match route.waits_for_source() {
                    true => Course::Stays,
                    false => Course::IsAsked,
                }
            }
            Standing { is_there: true, .. } => Course::Stays,
            // Its last word may be lost: that it has the group, which its heir may go on with.
            Standing {
                is_suspended: true, ..
            } if !(route.is_awaited && route.has_source && has(Bug::SourceIsAsked)) => Course::Stays,
            // Its source has not let go of it, or has when the other one's last message was lost
            // with it.
            Standing {
                is_awaited: true,
                has_source: true,
                ..
            } => Course::Returns,
            _ => Course::Ends,
        }
    }
}
