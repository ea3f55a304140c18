//! A function in a chain: its part of a packet's call.

use crate::microthread::Frame;
use crate::stage::{CallAnswer, Entry, Watched};
use core::ptr::NonNull;
use wire::Packet;

/// A function's place in a chain, on one worker.
#[derive(Clone, Copy)]
pub struct Step {
    pub(super) entry: Entry,
    pub(super) watched: Watched,
    pub(super) instance: *const (),
    /// Where its committed bytes are noted in calls that are watched.
    pub shadow: NonNull<u8>,
    /// How many there are.
    pub committed: u32,
    /// Offset of its flow state in an actor's state.
    pub flow: u32,
    /// Offset of its group state in a group's state.
    pub group: u32,
    /// Its counters; one more than it has names, for undeclared ones.
    pub counters: NonNull<u64>,
    /// Its index in [`super::Stages`].
    pub function: u8,
    /// Where it stands in its chain.
    pub at: u8,
}

impl Step {
    /// The entry's first argument.
    #[inline(always)]
    pub(crate) fn instance(&self) -> *const () {
        self.instance
    }

    /// Runs the function.
    ///
    /// # Safety
    /// As for [`crate::stage::Stage::entry`].
    #[inline(always)]
    pub unsafe fn run(&self, packet: &mut Packet, flow: NonNull<u8>, frame: NonNull<Frame>) -> CallAnswer {
        // SAFETY: `instance` is the entry's own, alive as long as the stages; the rest is the
        // caller's promise.
        unsafe { (self.entry)(self.instance, packet, flow, frame) }
    }

    /// The same, watched.
    ///
    /// # Safety
    /// As for [`Step::run`].
    #[inline(always)]
    pub unsafe fn run_watched(
        &self,
        packet: &mut Packet,
        flow: NonNull<u8>,
        frame: NonNull<Frame>,
    ) -> CallAnswer {
        // SAFETY: as above; the shadow is the stages', which nothing else uses during the call.
        unsafe { (self.watched)(self.instance, packet, flow, frame, self.shadow) }
    }
}
