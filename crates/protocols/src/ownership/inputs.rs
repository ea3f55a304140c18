//! Inputs and outputs of a machine, and its phases.

use super::message::{Epoch, Refusal, RuntimeId, RuntimeMessage, SwitchMessage, Switches, TellSwitch};

/// The phase of a group at a runtime, and what the runtime waits for.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Phase {
    /// Nothing.
    Absent,
    /// It processes the group's packets.
    Active,
    /// Source: asked `to` for a slot; goes on.
    Opening {
        /// The target.
        to: RuntimeId,
    },
    /// Source: gave up before any home was told; goes on.
    Canceling {
        /// The target.
        to: RuntimeId,
    },
    /// Source: homes are being told; goes on.
    Rerouting {
        /// The target.
        to: RuntimeId,
        /// The switches that have not answered.
        unanswered: Switches,
    },
    /// Source: no packet comes any more; packets here are finished.
    Quiescing {
        /// The target.
        to: RuntimeId,
    },
    /// Source: the state is sent, the copy kept.
    Forwarding {
        /// The target.
        to: RuntimeId,
        /// Whether it was removed: then recovery decides.
        is_removed: bool,
    },
    /// Source: calls the group back; goes on, home by home.
    Returning {
        /// The one that was to have it.
        peer: RuntimeId,
        /// The switches that have not answered.
        unanswered: Switches,
        /// Homes that are known to have sent the packets elsewhere: packets that come from there
        /// now are from after their return. (Of the two answers of a home, the one to the first
        /// re-route says so, too, should the other come late.)
        away: Switches,
        /// Of which homes the target has not yet handed over what it kept.
        unended: Switches,
    },
    /// Source: it is gone; late packets and words are passed on or answered.
    Tombstone {
        /// Where it went.
        to: RuntimeId,
    },
    /// Target: keeps the packets that come.
    Buffering {
        /// The source.
        from: RuntimeId,
        /// Whether the state is here.
        is_staged: bool,
        /// Exits that may still have packets of the source.
        unclear: Switches,
    },
    /// Target: processes; the source may not know.
    Announcing {
        /// The source.
        from: RuntimeId,
    },
    /// Target: the group was called back; hands over what it kept.
    Yielding {
        /// The source.
        to: RuntimeId,
        /// Homes whose word has not come.
        unmoved: Switches,
    },
}

impl Phase {
    /// Source: the runtime that has, or may have, a slot for the group.
    pub(super) const fn target(self) -> Option<RuntimeId> {
        match self {
            Phase::Opening { to }
            | Phase::Canceling { to }
            | Phase::Rerouting { to, .. }
            | Phase::Quiescing { to }
            | Phase::Forwarding {
                to,
                is_removed: false,
            }
            | Phase::Returning { peer: to, .. } => Some(to),
            _ => None,
        }
    }

    /// Target: whether this is a slot whose state is still to come from that runtime.
    pub(super) fn is_slot_of(self, source: RuntimeId) -> bool {
        matches!(self, Phase::Buffering { from, is_staged: false, .. } if from == source)
    }

    /// Target: whether it hands over to that runtime what it kept.
    pub(super) fn is_yielding_to(self, source: RuntimeId) -> bool {
        matches!(self, Phase::Yielding { to, .. } if to == source)
    }
}

/// The purpose of a timer. How long each takes is the driver's.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Timer {
    /// Say unanswered words again.
    Retry,
    /// Give the move up.
    Deadline,
    /// Forget where the group went.
    Forget,
}

/// An input of a machine: it concerns a group at a runtime.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Input {
    /// Move it there; only while [`super::Ownership::may_move`].
    Move(RuntimeId),
    /// A runtime speaks. For [`RuntimeMessage::Open`], whether there is room; for
    /// [`RuntimeMessage::State`] the bytes are here, whole.
    FromRuntime(RuntimeId, RuntimeMessage, Result<(), Refusal>),
    /// A switch speaks.
    FromSwitch(u8, SwitchMessage),
    /// A switch is gone, and nothing of it is on the way any more: its last words are known. To be
    /// said once it is so, and again as long as the machine [awaits](super::Ownership::awaits)
    /// something of it.
    SwitchGone(u8),
    /// After [`Output::Quiesce`]: no call waits, all that was received is processed and on its way
    /// out.
    Quiesced,
    /// Its last flow has ended here.
    Ended,
    /// A timer that is armed has run out.
    Fired(Timer),
    /// A runtime was removed from the view, and nothing of it is on the way any more.
    Removed(RuntimeId),
    /// Recovery's decision: it is yours.
    Grant(Epoch),
}

/// How a move ended, at its source.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Finished {
    /// The target has it (without a replica: there are none yet).
    Moved,
    /// The target did not want it.
    Refused(Refusal),
    /// It is here as before.
    Aborted,
}

/// An output of a machine; the driver carries them out in order.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Output {
    /// Say this to a runtime.
    Tell(RuntimeId, RuntimeMessage),
    /// Say this to each of these switches, behind all packets sent there.
    TellSwitches(Switches, TellSwitch),
    /// Say [`Input::Quiesced`] as soon as it holds.
    Quiesce,
    /// Send the state's bytes to the runtime, and then `State`.
    SendState(RuntimeId, Epoch),
    /// The staged state is in force: packets that were kept are processed, in order.
    Install,
    /// Run `departed(Migrated)` and drop the copy.
    Depart,
    /// Process the packets kept from this home, in order.
    Release(u8),
    /// Pass on the packets kept from this home, in order.
    HandOver(RuntimeId, u8),
    /// The slot is over; packets still kept, and the state if it is staged, are dropped: counted
    /// drops.
    CloseSlot,
    /// Fenced: drop the copy; packets that come go back to their home.
    Stop,
    /// The target is gone, and this copy may be the only one.
    Orphaned,
    /// A move from here is over.
    Finished(Finished),
}

/// How to take a packet of the group.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Take {
    /// Process it.
    Process,
    /// Keep it, by home.
    Keep,
    /// Pass it on to that runtime.
    PassOn(RuntimeId),
    /// Its group is not here: as any packet of such a group.
    Stray,
}
