//! How flows get to another runtime at a step: they move, or their runtime fails, also while the
//! configuration changes.
//!
//! ```text
//!                before step n                         step n is processed
//!   ThereAndBack 0 ─► 1 ─► 0                           at 0: arriving and departing is tried
//!   Over         0 ─► 1, or 1 ─► 0                     where the flows are now
//!   Amid                                               the move begins with it
//!   Fail         0 ✗, comes back; next time 1 ✗        from a copy
//!   FailBack     0 ✗, comes back; 1 ✗, comes back      from a copy of a copy
//!   FailTwice    0 ✗, ✗ again while it gets copies     from a copy; the next base is another
//!   FailAmid                                           0 ✗ with it, what it says to 1 is lost
//!   Change       0 and 1: another generation           by instances that are new
//!   ChangeFail   the same, 0 ✗ before it asks a flow   from a copy by the generation before, or behind
//!   Pass         all flows are over
//!   Expire       the same, 0 ✗                         what is over is in no copy
//! ```
//!
//! Not here: how it is done (`rig`), at which steps (`mod`).

use std::fmt::{self, Display};

/// How flows get to another runtime at a step.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Way {
    /// Before the step, to the other runtime and back.
    ThereAndBack,
    /// Before the step, to the other runtime, where they stay until the next time.
    Over,
    /// To the other runtime, while the step's packet is on its way.
    Amid,
    /// Before the step their runtime fails, and they go on at the other one from copies. The failed
    /// one comes back, and the next time the other fails.
    Fail,
    /// Before the step the first runtime fails, comes back and gets copies; then the second one
    /// does.
    FailBack,
    /// Before the step their runtime fails, comes back, and fails once more while it gets copies.
    FailTwice,
    /// Their runtime fails when it has processed the step's packet, before anything of that is with
    /// the other one. A packet that has not left comes again.
    FailAmid,
    /// Before the step both runtimes take the same settings again, as another configuration.
    Change,
    /// The same, and a runtime fails before it has asked a flow: now both have the new
    /// configuration, now the other one alone, now the failing one alone. The next time the other
    /// fails.
    ChangeFail,
    /// Before the step hours pass, so that all flows are over.
    Pass,
    /// The same, and then a runtime fails. The next time the other fails.
    Expire,
}

impl Way {
    /// Ways by which flows move.
    pub const MOVES: [Way; 3] = [Way::ThereAndBack, Way::Over, Way::Amid];
    /// Ways by which runtimes fail.
    pub const FAILURES: [Way; 4] = [Way::Fail, Way::FailBack, Way::FailTwice, Way::FailAmid];

    /// Ways by which the configuration changes.
    pub const CHANGES: [Way; 2] = [Way::Change, Way::ChangeFail];

    /// Whether a runtime fails.
    pub fn is_failure(self) -> bool {
        Way::FAILURES.contains(&self) || matches!(self, Way::ChangeFail | Way::Expire)
    }

    /// Whether the configuration changes.
    pub(super) fn is_change(self) -> bool {
        Way::CHANGES.contains(&self)
    }

    /// The event that flows do not come through.
    pub(super) fn what(self) -> &'static str {
        match (self.is_change(), self.is_failure()) {
            (true, false) => "a change of configuration",
            (true, true) => "a runtime's failure with a change of configuration",
            (false, true) => "a runtime's failure",
            (false, false) => "a migration",
        }
    }

    /// When something else happens than while flows stay.
    pub(super) fn meanwhile(self) -> &'static str {
        match (self.is_change(), self.is_failure()) {
            (true, false) => "settings change",
            (_, true) => "runtimes fail",
            (false, false) => "they move",
        }
    }
}

impl Display for Way {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Way::ThereAndBack => "flows move to the other runtime and back before",
            Way::Over => "flows move over to the other runtime before",
            Way::Amid => "flows move over to the other runtime with the packet of",
            Way::Fail => "a runtime fails before",
            Way::FailBack => "a runtime fails, comes back, and the other fails before",
            Way::FailTwice => "a runtime fails, comes back and fails again before",
            Way::FailAmid => "a runtime fails with the packet of",
            Way::Change => "both runtimes take their settings again before",
            Way::ChangeFail => "both runtimes take their settings again, and one fails, before",
            Way::Pass => "hours pass before",
            Way::Expire => "hours pass, and a runtime fails, before",
        })
    }
}
