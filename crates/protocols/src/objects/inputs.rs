//! Inputs and outputs of a machine, its stages and its bounds.

use super::members::{Key, Members};
use super::message::{Body, Message};
use crate::ownership::RuntimeId;

/// Where a runtime is in a change of views: one number that grows.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Stage {
    /// The view that is in force, or that is left.
    pub view: u32,
    /// How far it is left.
    pub phase: Phase,
}

/// How far a view is left.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Phase {
    /// It is in force.
    Normal,
    /// The next one is known; its key owners may get authority.
    Prepared,
    /// Every runtime knows the next one; authority goes over.
    Scaling,
}

impl Stage {
    /// A view in force.
    pub const fn normal(view: u32) -> Self {
        Stage {
            view,
            phase: Phase::Normal,
        }
    }

    /// The next view is known.
    pub const fn prepared(view: u32) -> Self {
        Stage {
            view,
            phase: Phase::Prepared,
        }
    }

    /// Authority goes over to the next view.
    pub const fn scaling(view: u32) -> Self {
        Stage {
            view,
            phase: Phase::Scaling,
        }
    }
}

/// Bounds and times.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct ObjectSettings {
    /// The cluster's, of the rendezvous order.
    pub seed: u64,
    /// How many runtimes are to have a copy of each object, at most [`super::COPIES_MAX`].
    pub copies: usize,
    /// Keys of which something is here.
    pub keys_max: usize,
    /// Operations of this runtime that are not answered.
    pub requests_max: usize,
    /// Waiters, parked messages and queued requests of one key, and answers that wait at one
    /// object.
    pub queue_max: usize,
    /// Results of stale reads.
    pub cache_max: usize,
    /// An untethered call is sent so long after the first that was buffered.
    pub flush_ns: u64,
    /// A local change is sent with so many later ones in it.
    pub folds_max: u32,
    /// A request that could not be served is sent again after so long.
    pub retry_ns: u64,
    /// A sweep makes a step in each of these.
    pub pace_ns: u64,
    /// Keys that a step of a sweep looks at.
    pub pace: usize,
}

impl ObjectSettings {
    /// For a worker with some thousands of objects.
    pub const fn default_with(seed: u64, copies: usize) -> Self {
        ObjectSettings {
            seed,
            copies,
            keys_max: 1 << 16,
            requests_max: 4096,
            queue_max: 256,
            cache_max: 1024,
            flush_ns: 100_000,
            folds_max: 1 << 16,
            retry_ns: 100_000,
            pace_ns: 50_000,
            pace: 64,
        }
    }
}

/// A machine's counters.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Stats {
    /// Messages that no runtime sends that keeps the rules.
    pub refused: u64,
    /// Frames from runtimes that a view has removed, or from before a view.
    pub discarded: u64,
    /// Requests that had to be sent again: too many forwards, or a full queue.
    pub retries: u64,
    /// Keys and operations for which there was no room.
    pub full: u64,
}

/// How a method is called.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum How {
    /// The caller waits for the answer.
    Waits,
    /// It does not: the call may stay here until the flush is due, and be applied in any order.
    Untethered,
    /// As untethered, and it is added to an earlier one that is still here: then that one's answer
    /// is its own, and its token is not said.
    Merged,
}

/// How an operation ended without an answer.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Ended {
    /// There is no object.
    Absent,
    /// The object is removed.
    Removed,
    /// This runtime leaves, and begins nothing.
    Leaving,
    /// A bound is reached.
    Full,
}

/// An input of a machine.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Input<B: Body> {
    /// A runtime's message, in the order in which it was sent.
    Receive(RuntimeId, Message<B>),
    /// A reference to the object is wanted; with a content, the object is made if it is absent.
    Acquire(Key, u64, Option<B>),
    /// A reference is given back; with a token if the content was changed: [`Output::Written`]
    /// follows.
    Release(Key, Option<u64>),
    /// The content was changed by a reference that stays; [`Output::Written`] follows for
    /// each token but [`super::UNANSWERED`].
    Changed(Key, u64),
    /// A method that changes the object.
    Call(Key, B::Call, u64, How),
    /// A method that changes nothing; an answer that was asked for so many nanoseconds ago, at
    /// most, will do.
    Read(Key, B::Call, u64, u64),
    /// The object's end.
    Remove(Key, u64),
    /// The coordinator's: a stage, and the members of the view that is in force in `Normal`, or
    /// comes.
    Stage(Stage, Members),
    /// The coordinator's: a view without runtimes that have failed, and those.
    Failed(u32, Members, Members),
    /// The time of [`super::Objects::next_timeout`] has come.
    Tick,
}

/// An output of a machine; the driver carries them out in order.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Output<B: Body> {
    /// Send this.
    Send(RuntimeId, Message<B>),
    /// The object is here, and stays until the reference is given back.
    Granted(Key, u64),
    /// The object is to go, and does so when the last reference is given back.
    Recalled(Key),
    /// The change survives a failure, as far as there are to be copies.
    Written(Key, u64),
    /// A call or a read is answered; a call without an answer was applied, and its answer is lost.
    Answered(u64, Option<B::Answer>),
    /// An operation is over.
    Ended(u64, Ended),
    /// To the coordinator: this stage, or failure view, is reached; `Scaling`: complete.
    Reached(Stage),
}
