//! The translated flows of one instance by number: which of them hold blocks of ports without
//! having proven themselves, and which an operator has cleared.
//!
//! Theory of operation. A flow is *proven* when its opener has sent again behind an answer: only a
//! host that hears answers does. A block of ports is *idle* while none of its flows is proven. Idle
//! blocks stand in a queue, the one that became idle first in front, and each has a chain of its
//! flows:
//!
//! ```text
//!   queue ─► block 17 ─► block 4 ─► block 90          flows that were never proven: 17: a   4: b, c   90: d
//!   c proven:  queue ─► block 17 ─► block 90          (b stays in block 4's chain)
//! ```
//!
//! A pool that runs low wants blocks back ([`Sessions::want`]). The runtime then asks which flows
//! are to end ([`Sessions::recall`]): flows of the block in front. A sender of spoofed packets
//! thereby pushes its own blocks out, and a new host has as long to prove itself as the sender
//! takes to fill the pool. A block that has been idle for less than [`GRACE`] is left alone, so
//! that a crowd of honest hosts is served in turn.
//!
//! Invariants (checked in `tests`): a flow is noted from its beginning or arrival to its end or
//! departure; a block is in the queue exactly while it is this runtime's own, has a flow, and has
//! no proven one. Memory is bounded and taken at the start.
//!
//! Not here: ports and mappings, which come back as for any flow that ends (`open`).

use super::alloc::vec;
use super::alloc::vec::Vec;
use nf::Recall;

/// Nanoseconds for which a new idle block is left alone: a handshake's round trip, with room to
/// spare.
pub(super) const GRACE: u64 = 500_000_000;
/// Blocks wanted at once, at most.
const WANTED_MAX: u32 = 64;
/// Flows looked at for each question while some are cleared.
const LOOKS: usize = 256;

/// In [`Flow::next`]: the flow is proven, and in no chain.
const PROVEN: u32 = u32::MAX;

/// A flow, by number.
#[derive(Clone, Copy, Default)]
struct Flow {
    inside: [u8; 4],
    /// The clearing that it began behind, from 1; 0: there is no such flow.
    epoch: u32,
    /// The slot of its block, 0 for a static mapping's.
    slot: u32,
    /// Its chain: numbers and 1, or 0 at the end.
    next: u32,
    previous: u32,
}

/// A block in use, by slot.
#[derive(Clone, Copy, Default)]
struct Block {
    /// When it was put into the queue.
    since: u64,
    /// The first flow of its chain, its number and 1.
    first: u32,
    proven: u32,
    /// Its neighbours in the queue.
    next: u32,
    previous: u32,
    is_queued: bool,
    /// Whether it is of this runtime's share: another's does not help when it comes back.
    is_own: bool,
}

/// Flows that an operator clears.
struct Clearing {
    /// Inside addresses: mask, and the bits under it.
    inside: (u32, u32),
    /// The next number to look at.
    at: usize,
}

/// See the module's page.
pub(super) struct Sessions {
    flows: Vec<Flow>,
    blocks: Vec<Block>,
    /// The slots in front and at the end of the queue, 0 for none.
    front: u32,
    back: u32,
    wanted: u32,
    /// The clock when blocks were wanted last.
    now: u64,
    /// The flow asked for last, its number and 1: if it comes next again, it did not end.
    asked: u32,
    /// The same while the runtime has it in hand, and why.
    asking: Option<(u32, Why)>,
    epoch: u32,
    clearing: Option<Clearing>,
}

/// Why a flow is asked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Why {
    /// The flow's block is wanted.
    Wanted,
    /// An operator clears the flow.
    Cleared,
}

impl Sessions {
    /// Room for flows with numbers below `flows`, in blocks with slots up to `slots`.
    pub fn new(flows: usize, slots: usize) -> Self {
        Sessions {
            flows: vec![Flow::default(); flows],
            blocks: vec![Block::default(); slots + 1],
            front: 0,
            back: 0,
            wanted: 0,
            now: 0,
            asked: 0,
            asking: None,
            epoch: 1,
            clearing: None,
        }
    }

    /// Room for slots up to `slots`, if that is more than there was.
    pub fn widen(&mut self, slots: usize) {
        if self.blocks.len() <= slots {
            self.blocks.resize(slots + 1, Block::default());
        }
    }

    /// A flow begins, or arrives. `slot` is its block's, and whether that is this runtime's own;
    /// `None` with a static mapping.
    pub fn begin(
        &mut self,
        number: u32,
        inside: [u8; 4],
        slot: Option<(u32, bool)>,
        is_proven: bool,
        now: u64,
    ) {
        let epoch = self.epoch;
        let Some(flow) = self.flows.get_mut(number as usize) else {
            return;
        };
        let (at, is_own) = slot.unwrap_or_default();
        *flow = Flow {
            inside,
            epoch,
            slot: at,
            next: PROVEN,
            previous: 0,
        };
        let Some(block) = self.blocks.get_mut(at as usize).filter(|_| at != 0) else {
            return;
        };
        block.is_own = is_own;
        if is_proven {
            block.proven += 1;
        } else {
            let first = core::mem::replace(&mut block.first, number + 1);
            (flow.next, flow.previous) = (first, 0);
            if let Some(follower) = first.checked_sub(1).and_then(|n| self.flows.get_mut(n as usize)) {
                follower.previous = number + 1;
            }
        }
        self.place(at, now);
    }

    /// A flow's opener has been heard behind an answer.
    pub fn prove(&mut self, number: u32, now: u64) {
        let Some(flow) = self.flows.get(number as usize).copied() else {
            return;
        };
        if flow.epoch == 0 || flow.slot == 0 || flow.next == PROVEN {
            return;
        }
        self.unlink(flow);
        if let Some(flow) = self.flows.get_mut(number as usize) {
            (flow.next, flow.previous) = (PROVEN, 0);
        }
        if let Some(block) = self.blocks.get_mut(flow.slot as usize) {
            block.proven += 1;
        }
        self.place(flow.slot, now);
    }

    /// A flow ends, or departs; answers why, if it was asked for.
    pub fn end(&mut self, number: u32, now: u64) -> Option<Why> {
        let flow = core::mem::take(self.flows.get_mut(number as usize)?);
        let why = self
            .asking
            .take_if(|(asked, _)| *asked == number)
            .map(|(_, why)| why);
        if flow.epoch == 0 || flow.slot == 0 {
            return why;
        }
        if flow.next != PROVEN {
            self.unlink(flow);
        } else if let Some(block) = self.blocks.get_mut(flow.slot as usize) {
            block.proven = block.proven.saturating_sub(1);
        }
        self.place(flow.slot, now);
        why
    }

    fn unlink(&mut self, flow: Flow) {
        match flow
            .previous
            .checked_sub(1)
            .and_then(|n| self.flows.get_mut(n as usize))
        {
            Some(before) => before.next = flow.next,
            None => {
                if let Some(block) = self.blocks.get_mut(flow.slot as usize) {
                    block.first = flow.next;
                }
            }
        }
        if let Some(follower) = flow
            .next
            .checked_sub(1)
            .and_then(|n| self.flows.get_mut(n as usize))
        {
            follower.previous = flow.previous;
        }
    }

    /// Puts a block into the queue or takes it out, as its flows are.
    fn place(&mut self, slot: u32, now: u64) {
        let Some(block) = self.blocks.get(slot as usize).copied() else {
            return;
        };
        let is_idle = block.is_own && block.first != 0 && block.proven == 0;
        if is_idle != block.is_queued {
            if is_idle {
                self.push(slot, now)
            } else {
                self.remove(slot)
            }
        }
    }

    fn push(&mut self, slot: u32, now: u64) {
        let back = core::mem::replace(&mut self.back, slot);
        if let Some(block) = self.blocks.get_mut(slot as usize) {
            (block.next, block.previous) = (0, back);
            (block.is_queued, block.since) = (true, now);
        }
        match self.blocks.get_mut(back as usize).filter(|_| back != 0) {
            Some(before) => before.next = slot,
            None => self.front = slot,
        }
    }

    fn remove(&mut self, slot: u32) {
        let Some(block) = self.blocks.get_mut(slot as usize) else {
            return;
        };
        block.is_queued = false;
        let (next, previous) = (block.next, block.previous);
        match self.blocks.get_mut(previous as usize).filter(|_| previous != 0) {
            Some(before) => before.next = next,
            None => self.front = next,
        }
        match self.blocks.get_mut(next as usize).filter(|_| next != 0) {
            Some(behind) => behind.previous = previous,
            None => self.back = previous,
        }
    }

    /// A block more is wanted back; whether there is one that may be taken.
    pub fn want(&mut self, now: u64) -> bool {
        self.now = self.now.max(now);
        let is_there = self.oldest().is_some();
        if is_there {
            self.wanted = (self.wanted + 1).min(WANTED_MAX);
        }
        is_there
    }

    /// The idle block in front, if its grace is over.
    fn oldest(&self) -> Option<Block> {
        let block = self.blocks.get(self.front as usize).filter(|_| self.front != 0)?;
        (block.since.saturating_add(GRACE) <= self.now).then_some(*block)
    }

    /// Clears the flows there are of inside addresses, by mask and the bits under it; `false` while
    /// others are being cleared.
    pub fn clear(&mut self, inside: (u32, u32)) -> bool {
        if self.clearing.is_some() {
            return false;
        }
        self.epoch = self.epoch.checked_add(1).unwrap_or(1);
        self.clearing = Some(Clearing { inside, at: 0 });
        true
    }

    /// The next flow that is to end.
    pub fn recall(&mut self) -> Recall {
        let (answer, why) = match self.next_cleared() {
            Some(answer) => (answer, Why::Cleared),
            None => (self.next_wanted(), Why::Wanted),
        };
        self.asking = match answer {
            Recall::Flow(number) => Some((number, why)),
            _ => None,
        };
        answer
    }

    fn next_wanted(&mut self) -> Recall {
        while self.wanted > 0 {
            let Some(block) = self.oldest() else {
                self.wanted = 0;
                break;
            };
            if block.first == self.asked {
                // A call of it waits, or it moves: the next block, then.
                let slot = self.front;
                self.remove(slot);
                self.push(slot, self.now);
                self.wanted -= 1;
                self.asked = 0;
                continue;
            }
            self.asked = block.first;
            let number = block.first - 1;
            if self.flows.get(number as usize).is_none_or(|flow| flow.next == 0) {
                self.wanted -= 1;
            }
            return Recall::Flow(number);
        }
        self.asked = 0;
        Recall::Nothing
    }

    fn next_cleared(&mut self) -> Option<Recall> {
        let Clearing {
            inside: (mask, rest),
            at,
        } = self.clearing.as_mut()?;
        let end = self.flows.len().min(*at + LOOKS);
        while *at < end {
            let flow = &self.flows[*at];
            let is_meant = u32::from_be_bytes(flow.inside) & *mask == *rest;
            if flow.epoch != 0 && flow.epoch != self.epoch && is_meant {
                let number = *at as u32;
                if self.asked == number + 1 {
                    // The flow did not end: a call of it waits, or it moves. It is asked for until
                    // it does.
                    self.asked = 0;
                    return Some(Recall::Later);
                }
                self.asked = number + 1;
                return Some(Recall::Flow(number));
            }
            *at += 1;
        }
        if *at < self.flows.len() {
            return Some(Recall::Later);
        }
        self.clearing = None;
        self.asked = 0;
        None
    }

    /// How many flows are noted.
    #[cfg(test)]
    pub fn count(&self) -> usize {
        self.flows.iter().filter(|flow| flow.epoch != 0).count()
    }

    /// Idle blocks in the queue.
    #[cfg(test)]
    pub fn idle(&self) -> Vec<u32> {
        let mut all = Vec::new();
        let mut at = self.front;
        while at != 0 {
            all.push(at);
            at = self.blocks[at as usize].next;
        }
        all
    }
}
