//! A runtime that ends while its cluster goes on, and a runtime that begins in its place.
//!
//! ```text
//!   leaving ─► its groups move away ─► no switch chooses it ─► no flow, packet, nor word ─► no shared object
//!           ─► empty: no buffer away either ─► taken apart
//!                                     its links' ends, its functions and its figures ─► the next of its number
//! ```
//!
//! Functions outlive the runtime, since others may have things of theirs: a block of ports that
//! moved with its group is still out, and comes back to the pool it is of. Their figures and the
//! runtime's go on, so that figures never go back. Memory for flows, groups and packets goes with
//! the runtime.
//!
//! Not here: that it becomes empty, and that no worker sends to it any more (the process that it
//! runs in sees to both).

use super::Runtime;
use super::change::Prepared;
use crate::chain::Plan;
use crate::env::Port;
use crate::runner;
use crate::stats::Drops;
use alloc::boxed::Box;
use alloc::collections::BTreeSet;
use alloc::vec::Vec;
use nf::Generation;

/// The remains of a runtime.
pub struct Dismantled<P> {
    /// The ends of its links to switches, or its port.
    pub links: Vec<P>,
    /// The ends of its links to other runtimes.
    pub peers: Vec<Option<P>>,
    /// The functions and figures that the next of its number goes on with.
    pub handover: Handover,
}

/// Functions and figures of a runtime that has ended.
pub struct Handover {
    chains: runner::Handover,
    outbox: (Drops, u64),
    counts: [u64; 4],
    flows_moved: [u64; 2],
    packets_moved: [u64; 2],
    /// Blocks that were lent.
    out: BTreeSet<nf::Block>,
}

impl Handover {
    /// The configuration under which its functions were used last, and its number.
    pub fn plan(&self) -> (&Plan, Generation) {
        (&self.chains.plan, self.chains.generation)
    }
}

impl<P: Port> Runtime<P> {
    /// Whether no flow is here, and no packet or word about one. Buffers may be away: a runtime
    /// that has shared objects answers others until the view is without it.
    pub fn has_no_flows(&mut self) -> bool {
        let (is_settled, _) = self.core.runner.rest();
        let stats = self.stats();
        (stats.flows, stats.held, stats.waiting) == (0, 0, 0)
            && self.core.flows.parting.is_empty()
            && !self.core.has_blocks_to_lend()
            && !self.core.lines.are_waiting(self.core.runner.log().len())
            && self.moves.finished_moving_all(&self.core)
            && self.backlog.iter().all(wire::PacketList::is_empty)
            && !self.core.sessions.is_resyncing()
            && is_settled
    }

    /// Whether this runtime leaves, and has blocks that others are to have.
    pub fn has_blocks_to_lend(&self) -> bool {
        self.core.has_blocks_to_lend()
    }

    /// Whether another runtime that goes on has its copies here, and has yet to have all of them
    /// elsewhere. A runtime that leaves waits for that, within a time.
    pub fn keeps_for_others(&self) -> bool {
        self.keeper.is_needed(&self.core)
    }

    /// Whether nothing is here and nothing of this runtime's is anywhere else, as far as it knows.
    pub fn is_empty(&mut self) -> bool {
        let (_, spares) = self.core.runner.rest();
        let pool = self.core.out.pool();
        pool.free() + spares == pool.total() && self.has_no_flows()
    }

    /// Takes an empty runtime apart.
    pub fn dismantle(mut self) -> Dismantled<P> {
        debug_assert!(self.is_empty());
        Dismantled {
            links: core::mem::take(&mut self.links),
            peers: core::mem::take(&mut self.peers),
            handover: Handover {
                out: self.core.end_pools(),
                chains: self.core.runner.leave_handover(),
                outbox: self.core.out.counts(),
                counts: [
                    self.received,
                    self.core.flows_opened,
                    self.core.flows_ended,
                    self.stalls,
                ],
                flows_moved: self.moves.flows_moved,
                packets_moved: self.moves.packets_moved,
            },
        }
    }

    /// Goes on with the functions and figures of the runtime that was here before, under the
    /// configuration that it had: before the first step, and made of the same settings.
    pub fn inherit(&mut self, handover: Handover) {
        self.core.runner.inherit(handover.chains);
        self.core.copy_as_configured();
        if self.core.open_ledger() {
            self.restore();
        }
        self.core.out.inherit(handover.outbox);
        [
            self.received,
            self.core.flows_opened,
            self.core.flows_ended,
            self.stalls,
        ] = handover.counts;
        self.moves.flows_moved = handover.flows_moved;
        self.moves.packets_moved = handover.packets_moved;
        self.core.note_out(handover.out);
    }

    /// Of a runtime that has no flows yet: the configuration in force is this one. Hands back the
    /// configuration before, to be dropped, or `None` if it does not fit.
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
