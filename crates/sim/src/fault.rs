//! The faults that a run may have.
//!
//! Not here: which of them a run draws (`script`, `failures`, `cuts`), and doing them
//! (`crate::world`).

use crate::Time;
use crate::network::Noise;

/// Something that goes wrong.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Fault {
    /// Kernels forget a host, which answers when it is asked for.
    Forgotten { host: u8 },
    /// Kernels forget a host, which does not answer for a while.
    Mute { host: u8, time: u64 },
    /// Another machine has the address of a host.
    Replaced { host: u8 },
    /// A worker does nothing for so long.
    Stall { worker: u8, time: u64 },
    /// The process of a worker is stopped for so long, with all its workers.
    Stop { worker: u8, time: u64 },
    /// A worker's clock is suddenly so much later; all are, where groups move: a deadline that
    /// moves is one of a clock that both ends go by.
    Jump { worker: Option<u8>, by: u64 },
    /// All paths are as noisy for so long.
    Storm { noise: Noise, time: u64 },
    /// A host's path to, from, or to and from the cluster is cut for so long.
    Cut {
        host: u8,
        to: bool,
        from: bool,
        time: u64,
    },
    /// Nothing passes from one process to another, or between them, for so long.
    Partition { from: u8, to: u8, back: bool, time: u64 },
    /// Workers die, with everything in them, and begin again.
    Crash { who: Who },
    /// A worker is cut off from others for so long: frames from it, frames to it, or both.
    Isolated {
        worker: u8,
        whom: Whence,
        to: bool,
        from: bool,
        time: u64,
    },
    /// A coordinator crashes, and begins again after so long.
    OfficeCrash { office: u8, time: u64 },
    /// It does nothing for so long.
    OfficeStall { office: u8, time: u64 },
    /// It is cut off from all members, or from the store: frames from it, frames to it, or both.
    OfficeCut {
        office: u8,
        whom: Beyond,
        to: bool,
        from: bool,
        time: u64,
    },
    /// The coordinators' store carries nothing out for so long.
    StoreStall { time: u64 },
    /// A worker says nothing for longer than silence, so others give it up, and goes on with all
    /// that it has.
    Silence { worker: u8, why: Why, time: u64 },
}

/// The workers that a worker is cut off from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Whence {
    /// All other workers.
    Workers,
    /// The coordinator.
    Coordinator,
    /// Everything.
    All,
}

/// From what a coordinator is cut off.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Beyond {
    /// All members' agents.
    Members,
    /// The store.
    Store,
    /// Both.
    Both,
}

/// Why a worker says nothing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Why {
    /// It takes no step. `true`: it stops once all flows have copies that are acknowledged.
    Stands(bool),
    /// Its links are cut, both ways.
    IsCut(bool),
}

impl Why {
    /// Whether that begins once all flows have copies that are acknowledged.
    pub fn is_copied(self) -> bool {
        let (Why::Stands(is_copied) | Why::IsCut(is_copied)) = self;
        is_copied
    }
}

/// Which workers crash.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Who {
    /// The process with all workers.
    All,
    /// The process of one worker, which begins again after so long. Without copies its flows are
    /// lost.
    Worker(u8, u64),
    /// The same, once all flows have copies that are acknowledged.
    Copied(u8, u64),
}

/// A fault and its time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Timed {
    pub at: Time,
    pub fault: Fault,
}
