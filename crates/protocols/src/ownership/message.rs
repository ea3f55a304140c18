//! Messages between runtimes and switches about a group. Which group is the driver's to add.

/// Grows each time a group changes hands: membership view, then count within it. Compared in this
/// order.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Epoch {
    /// Number of the membership view in which a grant was made; 0 before any.
    pub view: u32,
    /// Changes of hands within it.
    pub count: u32,
}

impl Epoch {
    /// The next one within the view.
    #[must_use]
    pub const fn next(self) -> Epoch {
        // Four thousand million moves within one view: a count that ends goes on in the next view.
        match self.count.checked_add(1) {
            Some(count) => Epoch {
                view: self.view,
                count,
            },
            None => Epoch {
                view: self.view.saturating_add(1),
                count: 0,
            },
        }
    }
}

/// A runtime's number in the cluster.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct RuntimeId(pub u16);

/// A set of switches, by number, 0 to 63.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Switches(pub u64);

impl Switches {
    /// The most switches there may be.
    pub const MAX: u8 = 64;

    /// The empty set.
    pub const NONE: Switches = Switches(0);

    /// The first `count`.
    pub const fn first(count: u8) -> Self {
        Switches(if count >= Self::MAX {
            u64::MAX
        } else {
            (1 << count) - 1
        })
    }

    /// The set of one switch.
    pub const fn one(switch: u8) -> Self {
        Switches(1 << (switch & 63))
    }

    /// Whether it is in the set.
    pub const fn has(self, switch: u8) -> bool {
        self.0 & Self::one(switch).0 != 0
    }

    /// With one more.
    #[must_use]
    pub const fn with(self, switch: u8) -> Self {
        Switches(self.0 | Self::one(switch).0)
    }

    /// With one less.
    #[must_use]
    pub const fn without(self, switch: u8) -> Self {
        Switches(self.0 & !Self::one(switch).0)
    }

    /// The switches of either.
    #[must_use]
    pub const fn or(self, other: Self) -> Self {
        Switches(self.0 | other.0)
    }

    /// Whether it has none.
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// The switches, lowest first.
    pub fn iter(self) -> impl Iterator<Item = u8> {
        (0..Self::MAX).filter(move |switch| self.has(*switch))
    }
}

/// Why a target takes no group.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u8)]
pub enum Refusal {
    /// No room for its flows.
    Full = 1,
    /// It is leaving, or being drained.
    Leaving = 2,
    /// It still has to do with an earlier move of the group, or has as many moves under way as it
    /// may.
    Busy = 3,
}

/// A runtime to another, over the link that they share.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum RuntimeMessage {
    /// Take the group, whose keys have these home switches.
    Open(Epoch, Switches),
    /// A slot is reserved; packets may come.
    Accept(Epoch),
    /// No.
    Refuse(Epoch, Refusal),
    /// Nothing will come.
    Cancel(Epoch),
    /// The slot is gone.
    Canceled(Epoch),
    /// The whole state has been sent before this.
    State(Epoch),
    /// It is installed.
    Done(Epoch),
    /// The copy is dropped.
    Gone(Epoch),
    /// The packets kept from this home have been handed over before this.
    End(Epoch, u8),
    /// The group is called back, and this home is gone, which would have said so.
    Back(Epoch, u8),
    /// There is a higher epoch: to a source that asks, or sends; and from a source that has stopped
    /// for that.
    Fenced(Epoch),
}

/// A runtime to a switch, behind the packets it has sent there.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum TellSwitch {
    /// To a home: the group's packets go elsewhere from now on.
    Reroute {
        /// The runtime that had them, or was to have them.
        from: RuntimeId,
        /// The runtime that gets them.
        to: RuntimeId,
        /// The change's epoch.
        epoch: Epoch,
        /// The group is taken back from a target that is gone, and that may have installed it:
        /// [`super::recovery::TakenBack`].
        is_taken_back: bool,
    },
    /// To an exit: tell this one that all that was sent before has been read.
    DrainMarker {
        /// The runtime to tell.
        to: RuntimeId,
        /// The move's epoch.
        epoch: Epoch,
    },
}

/// A switch to a runtime, behind the packets it has sent there.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum SwitchMessage {
    /// The group is re-routed; its packets to you are before this.
    Rerouted(Epoch),
    /// The target is no more.
    Refused(Epoch),
    /// The group was re-routed away from you, and the packets sent to you are before this: pass
    /// them on to that runtime.
    Moved(RuntimeId, Epoch),
    /// All that the source sent here has been read.
    Drained(Epoch),
    /// There is a higher epoch.
    Fenced(Epoch),
}
