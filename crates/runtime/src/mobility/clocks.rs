//! The two clocks of a move: how times of the source become times of the clock here.
//!
//! # Theory of operation
//! A worker's clock counts from some moment of its own: its machine's start, as a rule. So no
//! moment travels, but for one: with *begin* the source says what its clock shows, and the target
//! notes what its own does. The difference is what times in states are re-based by
//! ([`nf::plain::Plain::rebase`]); and flows have so much time left from that moment on.
//!
//! ```text
//!   source  36,000 s  begin 36,000 s, flow: 290 s left, state: since 35,990 s ──►  target  5 s
//!                     deadline 5 s + 290 s = 295 s;  difference 5 s - 36,000 s;  state: since -5 s
//! ```
//!
//! Where both ends of the link have one clock ([`crate::Port::has_other_clock`]), the moment is the
//! source's own and the difference 0: a move between two workers of a host changes no time.
//! Otherwise it is later by what *begin* needs for its way, and times get younger by as much.
//!
//! Invariants: whatever a source says of its clock, nothing panics, and no flow has more than
//! [`DEADLINE_MAX`] left; a state is re-based once, after its bytes were found to be one.
//!
//! Not here: which runtime may say *begin* (`target`), packets' times (`peer::head`).

use super::Moves;
use crate::parts::Core;
use crate::record::{DEADLINE_MAX, NO_DEADLINE};
use wire::planted;

/// The target's knowledge of the clocks.
#[derive(Clone, Copy, Default)]
pub(crate) struct Clocks {
    /// *Begin*, by the clock here.
    began: u64,
    /// By how much the clock here is ahead of the source's, in nanoseconds.
    by: i64,
}

impl Clocks {
    /// The clocks of a group that begins to come.
    fn new(source: u64, target: u64, is_other: bool) -> Clocks {
        if !is_other || planted::is("times_not_rebased") {
            return Clocks { began: source, by: 0 };
        }
        let difference = i128::from(target) - i128::from(source);
        Clocks {
            began: target,
            by: difference.clamp(i64::MIN.into(), i64::MAX.into()) as i64,
        }
    }

    /// The difference by which times of the source are re-based.
    pub fn by(self) -> i64 {
        self.by
    }

    /// Until when a flow lives that had so much time left; no deadline, or one that is never over,
    /// would keep it for ever.
    pub fn deadline(self, time_left: u64, now: u64, timeout: u64) -> u64 {
        if time_left == NO_DEADLINE {
            return now.saturating_add(timeout);
        }
        let deadline = self.began.saturating_add(time_left);
        deadline.min(now.saturating_add(DEADLINE_MAX)).max(1)
    }
}

impl Moves {
    /// The clocks, after a runtime has told the time of its own.
    pub(crate) fn clocks(&self, core: &Core, peer: usize, source: u64) -> Clocks {
        let is_other = match planted::is("first_clock_is_all") {
            true => self.peers.iter().copied().flatten().next(),
            false => self.peers.get(peer).copied().flatten(),
        };
        Clocks::new(source, core.now, is_other.unwrap_or(false))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const SECOND: u64 = 1_000_000_000;

    #[test]
    fn time_left_counts_from_the_beginning_by_the_clock_here() {
        let clocks = Clocks::new(36_000 * SECOND, 5 * SECOND, true);
        assert_eq!(clocks.by(), -35_995 * SECOND.cast_signed());
        assert_eq!(clocks.deadline(290 * SECOND, 6 * SECOND, SECOND), 295 * SECOND);
        assert_eq!(clocks.deadline(0, 6 * SECOND, SECOND), 5 * SECOND);
        assert_eq!(clocks.deadline(NO_DEADLINE, 6 * SECOND, SECOND), 7 * SECOND);
        // By one clock a flow ends when it would have ended, though this worker knows of a later
        // time, or of an earlier one.
        let clocks = Clocks::new(36_000 * SECOND, 5 * SECOND, false);
        assert_eq!((clocks.by(), clocks.deadline(SECOND, 5, 7)), (0, 36_001 * SECOND));
    }

    proptest! {
        #[test]
        fn whatever_a_source_says_of_its_clock_no_flow_lives_for_ever(
            source: u64, time_left: u64, now in 0..u64::MAX / 2, is_other: bool,
        ) {
            let deadline = Clocks::new(source, now, is_other).deadline(time_left, now, SECOND);
            prop_assert!(deadline > 0 && deadline <= now + DEADLINE_MAX);
        }
    }
}
