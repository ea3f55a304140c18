//! A runtime that ends while its cluster goes on, and one that begins in its place.
//!
//! ```text
//!   leaving ─► its groups move away ─► nobody chooses it ─► empty: no flow, packet, word, nor buffer away ─► taken apart
//!                                     its links' ends, its functions and what it has counted ─► the next of its number
//! ```
//!
//! Functions outlive the runtime, since others may have things of theirs: a block of ports that moved with its group is still out, and comes
//! back to the pool it is of. What they and the runtime have counted goes on, so that figures never go back. Memory for flows, groups and
//! packets goes with the runtime.
//!
//! Not here: who sees to that it becomes empty, and that nobody sends to it any more (the process that it runs in).

use super::Runtime;
use super::change::Prepared;
use crate::chain::{Plan, Stages};
use crate::env::Port;
use crate::stats::Drops;
use alloc::boxed::Box;
use alloc::vec::Vec;
use nf::Generation;

/// What is left of a runtime.
pub struct Remains<P> {
    /// The ends of its links to switches, or its port.
    pub links: Vec<P>,
    /// The ends of its links to other runtimes.
    pub peers: Vec<Option<P>>,
    /// What the next of its number goes on with.
    pub legacy: Legacy,
}

/// Functions and figures of a runtime that has ended.
pub struct Legacy {
    plan: Plan,
    stages: Stages,
    generation: Generation,
    drops: Drops,
    function_drops: Vec<Vec<u64>>,
    counts: [u64; 6],
    flows_moved: [u64; 2],
    packets_moved: [u64; 2],
}

// SAFETY: instances are made for one worker and move as a whole; the rest is `Send` by itself.
unsafe impl Send for Legacy {}

impl Legacy {
    /// The configuration under which its functions were used last, and its number.
    pub fn plan(&self) -> (&Plan, Generation) {
        (&self.plan, self.generation)
    }
}

impl<P: Port> Runtime<P> {
    /// Whether nothing is here and nothing of this runtime's is anywhere else, as far as it knows.
    pub fn is_empty(&self) -> bool {
        // SAFETY: the frame lies in `frames`, and no call is under way.
        let spares = unsafe { (*self.frame_ptr.as_ptr()).cx.spares.len() };
        let stats = self.stats();
        (stats.flows, stats.held, stats.waiting) == (0, 0, 0)
            && self.finished_moving_all()
            && self.backlog.iter().all(wire::PacketList::is_empty)
            && !self.sessions.is_telling()
            && self.prepared.is_none()
            && self.before.is_none()
            && self.pool.free() + spares == self.pool.total()
    }

    /// Takes an empty runtime apart.
    pub fn dismantle(mut self) -> Remains<P> {
        debug_assert!(self.is_empty());
        Remains {
            links: core::mem::take(&mut self.links),
            peers: self.moves.take_peers(),
            legacy: Legacy {
                plan: self.plan.clone(),
                stages: core::mem::replace(&mut self.stages, Stages::none()),
                generation: self.generation,
                drops: core::mem::take(&mut self.drops),
                function_drops: core::mem::take(&mut self.function_drops),
                counts: [
                    self.received,
                    self.passed,
                    self.emitted,
                    self.flows_opened,
                    self.flows_ended,
                    self.stalls,
                ],
                flows_moved: self.moves.flows_moved,
                packets_moved: self.moves.packets_moved,
            },
        }
    }

    /// Goes on with the functions and figures of the one that was here before, under the configuration that it had: before the first step, and made of the same
    /// settings.
    pub fn inherit(&mut self, legacy: Legacy) {
        self.plan = legacy.plan;
        self.stages = legacy.stages;
        self.generation = legacy.generation;
        self.drops = legacy.drops;
        self.function_drops = legacy.function_drops;
        [
            self.received,
            self.passed,
            self.emitted,
            self.flows_opened,
            self.flows_ended,
            self.stalls,
        ] = legacy.counts;
        self.moves.flows_moved = legacy.flows_moved;
        self.moves.packets_moved = legacy.packets_moved;
    }

    /// Of a runtime that has no flows yet: the configuration in force is this one. Hands back what is to be dropped, or `None` if it does not
    /// fit.
    pub fn catch_up(&mut self, prepared: Box<Prepared>) -> Option<Box<super::change::Before>> {
        self.prepare_change(prepared).ok()?;
        self.commit_change();
        loop {
            if let Some(before) = self.take_before() {
                return Some(before);
            }
            self.walk();
        }
    }
}
