//! Blocks of ports that runtimes lend each other: when a runtime asks, and which blocks another
//! lends.
//!
//! ```text
//!   a millisecond ─► function's pool: wants some? ─► Wanted, to each runtime that is there
//!                                                       │ it lends spare blocks: `BlockLent`, to all switches
//!            all switches have said it ◄────────────────┤
//!            function: borrow_block                     └─► Pool: how much is free there
//! ```
//!
//! *Pace.* At most [`ASKED_MAX`] blocks an ask. Without a block since the last ask, the next one
//! waits twice as long, up to [`PACE_MAX`]: where all are dry, few words pass.
//!
//! *A runtime that leaves* and has no group lends all free blocks of its part to the runtimes that
//! stay, [`ASKED_MAX`] to each at a look and [`LEFT_MAX`] in all. Blocks that it had borrowed go
//! home.
//!
//! *A group's block whose home is not there, or leaves*, is kept: it is free here behind one word
//! to each switch. Once the home gives blocks out again, it goes there as any borrowed block.
//!
//! *A runtime without a part* (there are more than the pool was divided among, or it was to leave,
//! and stays) asks for one, and takes no groups before it has some, or [`WITHOUT`] is over.
//!
//! *A dry runtime* has no free block, while another that stays has told of some, too few to lend.
//! Switches choose it for no new group then: these get ports at the other. Groups that move bring
//! their blocks, and may come.
//!
//! *How long a pool lasts*: its free blocks are noted once a second ([`Ebb`]).
//!
//! Invariants: lent blocks are announced to all switches that are there; a runtime that begins, and
//! does not know yet which are in use, lends nothing.
//!
//! Not here: which runtime has a block while it is lent, and through which failures
//! ([`protocols::lending`]); how many a pool wants and spares (the function).

use super::Core;
use crate::message::Message;
use crate::record::Record;
use crate::stats::PoolStats;
use alloc::collections::BTreeSet;
use alloc::vec::Vec;
use arrayvec::ArrayVec;
use nf::{Addr, Affinity, Block, Loan, PoolState};
use protocols::lending::Action;
use protocols::ownership::{RuntimeId, Switches};

/// Nanoseconds between two looks at the pools, and between two asks that came to nothing.
const PACE: u64 = 1_000_000;
const PACE_MAX: u64 = 128 * PACE;
/// Where no function has a pool, it is looked again whether one has: the settings may have changed.
const NO_POOL: u64 = 1_000_000_000;
/// Blocks that are asked for at once, and lent.
const ASKED_MAX: u16 = 64;
/// Blocks that are lent to a runtime at most.
const HELD_MAX: usize = 1 << 18;
/// Borrowed blocks of which it is looked at once whether they are to go home.
const LOOKED_AT: usize = 2 * ASKED_MAX as usize;
/// Blocks that a runtime which leaves lends each of the others at most.
const LEFT_MAX: usize = HELD_MAX / 8;
/// How long a runtime without a part waits for one, in nanoseconds.
const WITHOUT: u64 = 1_000_000_000;

/// Nanoseconds from one time that a runtime is dry to the next: switches make their tables again
/// with each.
const DRY: u64 = 100_000_000;

/// Nanoseconds between two notes of how many blocks are free.
const NOTED: u64 = 1_000_000_000;

/// Free blocks of a pool, at a time and a second or more before it.
#[derive(Clone, Copy, Default)]
struct Ebb {
    older: (u64, u32),
    newer: (u64, u32),
}

impl Ebb {
    fn note(&mut self, now: u64, free: u32) {
        if self.newer.0 == 0 {
            (self.older, self.newer) = ((now, free), (now, free));
        } else if now.saturating_sub(self.newer.0) >= NOTED {
            (self.older, self.newer) = (self.newer, (now, free));
        }
    }

    /// Seconds until no block is free, at the present rate; `None` while no fewer become free.
    fn lasts(&self, now: u64, free: u32) -> Option<f64> {
        let gone = self.older.1.saturating_sub(free);
        let seconds = now.saturating_sub(self.older.0) as f64 / 1e9;
        match (free, gone) {
            (0, _) => Some(0.0),
            (_, 0) => None,
            (free, gone) => Some(f64::from(free) * seconds / f64::from(gone)),
        }
    }
}

/// The state of pools here and at other runtimes.
#[derive(Default)]
pub(crate) struct Pools {
    /// When they are looked at next, and asked about.
    due: u64,
    ask_at: u64,
    /// How long it is until the ask behind the next.
    pace: u64,
    /// By function and runtime: free blocks, and how many are its own.
    heard: Vec<Vec<Option<(u32, u32)>>>,
    /// By function: how fast free blocks go.
    ebbs: Vec<Ebb>,
    /// Until when this runtime waits for its first blocks.
    without: Option<u64>,
    /// Whether another runtime has blocks, and this one has none; and when that may be so again.
    is_dry: bool,
    dry_at: u64,
    /// Borrowed blocks up to this one were looked at, whether they are to go home.
    looked_at: Option<Block>,
    /// Blocks that were lent from here, by a runtime before that left these functions, too.
    out: BTreeSet<Block>,
    /// As it leaves: how many blocks it has lent, and how many were free when none could be.
    left: usize,
    left_free: Option<u32>,
    /// The configuration by which borrowed blocks were borrowed.
    generation: u64,
    pub lent: u64,
    pub borrowed: u64,
}

impl Pools {
    /// Whether this runtime waits for its first blocks.
    #[inline]
    pub fn is_without(&self) -> bool {
        self.without.is_some()
    }

    /// Whether another runtime has blocks, and this one has none.
    #[inline]
    pub fn is_dry(&self) -> bool {
        self.is_dry
    }
}

impl Core {
    /// Looks whether some function has no part of its pool here.
    pub fn begin_pools(&mut self) {
        self.pools.generation = self.runner.generation().0;
        self.pools.ebbs.resize(self.runner.functions(), Ebb::default());
        self.wait_for_blocks(|pool| pool.share == 0 && pool.free == 0);
    }

    /// This runtime was to leave, and stays: it wants the blocks that it has lent again.
    #[cold]
    pub fn stay(&mut self) {
        (self.pools.left, self.pools.left_free) = (0, None);
        (self.pools.due, self.pools.ask_at) = (0, 0);
        if self.flows.affinity() != Affinity::Flow {
            self.wait_for_blocks(|pool| pool.free == 0);
        }
    }

    /// Takes no groups for a while if a function's pool is as said.
    fn wait_for_blocks(&mut self, is_empty: impl Fn(&PoolState) -> bool) {
        let mut pools = (0..self.runner.functions()).filter_map(|function| self.runner.pool(function));
        if pools.any(|pool| is_empty(&pool)) && self.settings.switches > 0 {
            self.pools.without = Some(self.now.saturating_add(WITHOUT));
        }
    }

    /// How the functions' pools stand.
    pub fn pool_stats(&self) -> Vec<PoolStats> {
        let names = self.runner.stages().names.iter();
        let ebbs = self.pools.ebbs.iter();
        let pools = names.zip(ebbs).enumerate().filter_map(|(index, (name, ebb))| {
            let pool = self.runner.pool(index)?;
            Some(PoolStats {
                function: name.clone(),
                free: pool.free,
                blocks: pool.share,
                lasts_seconds: ebb.lasts(self.now, pool.free),
            })
        });
        pools.collect()
    }

    /// Asks for blocks where they are short, if it is time; answers how much was done.
    #[inline]
    pub fn see_to_pools(&mut self) -> usize {
        match self.now < self.pools.due {
            true => 0,
            false => self.look_at_pools(),
        }
    }

    #[cold]
    #[inline(never)]
    fn look_at_pools(&mut self) -> usize {
        self.pools.due = self.now.saturating_add(NO_POOL);
        if self.settings.switches == 0 || self.flows.affinity() == Affinity::Flow {
            return 0;
        }
        let has_none = |function| self.runner.pool(function).is_some_and(|pool| pool.free == 0);
        if let Some(until) = self.pools.without
            && (self.now >= until || !(0..self.runner.functions()).any(has_none))
        {
            self.pools.without = None;
        }
        if self.pools.generation != self.runner.generation().0 {
            self.pools.generation = self.runner.generation().0;
            self.borrow_again();
        }
        let others = self.others();
        if self.is_leaving && self.has_no_group() {
            self.pools.due = self.now.saturating_add(PACE);
            return self.lend_all(&others);
        }
        let (mut is_asking, mut is_dry) = (false, false);
        for function in 0..self.runner.functions() {
            let Some(pool) = self.runner.pool(function) else {
                continue;
            };
            self.pools.due = self.now.saturating_add(PACE);
            if let Some(ebb) = self.pools.ebbs.get_mut(function) {
                ebb.note(self.now, pool.free);
            }
            let is_asked = pool.wants > 0 && !others.is_empty();
            if !is_asked {
                // Old answers are of no use when some are wanted.
                self.forget_heard(function);
            } else if self.now >= self.pools.ask_at {
                self.ask(function, &pool, &others);
            }
            is_asking |= is_asked;
            is_dry |= pool.free == 0 && self.has_heard_of_some(function, &others);
            self.runner
                .pools_heard(function, self.heard_of_all(function, &others));
            self.give_back_some(pool.excess);
        }
        if !is_asking {
            (self.pools.pace, self.pools.ask_at) = (PACE, 0);
        } else if self.now >= self.pools.ask_at {
            self.pools.ask_at = self.now.saturating_add(self.pools.pace);
            self.pools.pace = (2 * self.pools.pace).clamp(PACE, PACE_MAX);
        }
        self.note_dry(is_dry);
        self.carry_out_lending();
        usize::from(is_asking)
    }

    fn note_dry(&mut self, is_dry: bool) {
        if is_dry == self.pools.is_dry || is_dry && self.now < self.pools.dry_at {
            return;
        }
        self.pools.is_dry = is_dry;
        self.pools.dry_at = self.now.saturating_add(DRY);
    }

    /// Whether another runtime that stays has told of free blocks.
    fn has_heard_of_some(&self, function: usize, others: &[u16]) -> bool {
        let Some(heard) = self.pools.heard.get(function) else {
            return false;
        };
        let has_some = |runtime: &u16| {
            let known = heard.get(usize::from(*runtime)).copied().flatten();
            known.is_some_and(|(free, _)| free > 0) && !self.sessions.is_runtime_leaving(*runtime)
        };
        others.iter().any(has_some) && !crate::replica::is_broken("a dry runtime gets no new groups")
    }

    /// The other runtimes that are there.
    fn others(&self) -> Vec<u16> {
        let runtimes = 0..self.sessions.runtimes.len() as u16;
        let me = self.settings.info.runtime;
        runtimes
            .filter(|runtime| *runtime != me && self.sessions.has_runtime(*runtime))
            .collect()
    }

    fn has_no_group(&self) -> bool {
        self.flows.active() == 0 && self.flows.groups().resting().is_empty()
    }

    /// The runtimes that have what this one lends as it leaves.
    fn staying(&self, others: &[u16]) -> Vec<u16> {
        let stays = |runtime: &u16| !self.sessions.is_runtime_leaving(*runtime);
        others.iter().copied().filter(stays).collect()
    }

    /// Free blocks of all functions' pools.
    fn free_blocks(&self) -> u32 {
        let pools = (0..self.runner.functions()).filter_map(|function| self.runner.pool(function));
        pools.fold(0, |sum, pool| sum.saturating_add(pool.free))
    }

    /// Whether this runtime leaves, has no group, and has blocks that others are to have.
    pub fn has_blocks_to_lend(&self) -> bool {
        let may = self.is_leaving
            && self.has_no_group()
            && !self.sessions.is_beginning()
            && self.settings.switches > 0
            && self.flows.affinity() != Affinity::Flow;
        if !may {
            return false;
        }
        let (staying, free) = (self.staying(&self.others()).len(), self.free_blocks());
        free > 0 && self.pools.left_free != Some(free) && self.pools.left < LEFT_MAX * staying
    }

    /// Lends free blocks, as this runtime leaves, and returns those that it had borrowed.
    #[cold]
    fn lend_all(&mut self, others: &[u16]) -> usize {
        let staying = self.staying(others);
        if !self.has_blocks_to_lend() || !self.out.has_room() {
            return 0;
        }
        let before = self.pools.left;
        self.give_back_some(ASKED_MAX);
        for function in 0..self.runner.functions() {
            for to in &staying {
                let room = (LEFT_MAX * staying.len()).saturating_sub(self.pools.left);
                let loan = Loan {
                    most: room.min(usize::from(ASKED_MAX)) as u16,
                    at: Addr::default(),
                    to: *to,
                    leaves: true,
                };
                self.pools.left += self.lend(function, &loan);
            }
        }
        self.carry_out_lending();
        let count = self.pools.left - before;
        let is_all = count == 0 && self.flows.borrowed.free().next().is_none();
        self.pools.left_free = is_all.then(|| self.free_blocks());
        count
    }

    /// The runtime ends: blocks that it had borrowed are no more its functions', which another goes
    /// on with. Answers the lent blocks.
    pub fn end_pools(&mut self) -> BTreeSet<Block> {
        let borrowed: Vec<Block> = self.flows.borrowed.free().collect();
        borrowed
            .iter()
            .for_each(|block| self.runner.forsake_block(*block));
        core::mem::take(&mut self.pools.out)
    }

    /// A runtime goes on with functions of one before, which had lent that. It waits to be told
    /// which of them are in use: a switch's knowledge may have gone with it.
    pub fn note_out(&mut self, out: BTreeSet<Block>) {
        if !out.is_empty() {
            self.sessions.wait_for_resync();
        }
        self.pools.out = out;
    }

    /// All switches have told which blocks are in use: of the blocks that a runtime before had lent
    /// the others are free.
    #[cold]
    pub fn take_out_back(&mut self) {
        let lent = &self.sessions.lent;
        for block in self.pools.out.extract_if(.., |block| !lent.contains_key(block)) {
            self.runner.block_returned(block);
        }
    }

    /// A block that was lent is home.
    pub fn note_home(&mut self, block: &Block) {
        self.sessions.note_home(block);
        self.pools.out.remove(block);
    }

    fn ask(&mut self, function: usize, pool: &PoolState, others: &[u16]) {
        // Records that wait for room are enough.
        if self.out.records_pending() > 0 {
            return;
        }
        let coming = self.flows.borrowed.coming();
        let wanted = usize::from(pool.wants).saturating_sub(coming);
        let count = wanted.div_ceil(others.len()).min(usize::from(ASKED_MAX)) as u16;
        for runtime in others {
            let record = Record::Wanted(function as u8, count, pool.wants_at);
            self.out.send_record(*runtime, &record);
        }
    }

    /// The free blocks at all others, once each has said.
    fn heard_of_all(&self, function: usize, others: &[u16]) -> Option<(u32, u32)> {
        let mut sum = (0_u32, 0_u32);
        for runtime in others {
            let heard = self.pools.heard.get(function)?.get(usize::from(*runtime));
            let (free, share) = heard.copied().flatten()?;
            sum = (sum.0.saturating_add(free), sum.1.saturating_add(share));
        }
        Some(sum)
    }

    fn forget_heard(&mut self, function: usize) {
        if let Some(heard) = self.pools.heard.get_mut(function) {
            heard.clear();
        }
    }

    /// Another runtime wants blocks: spare ones are lent, and how many are free is said.
    #[cold]
    pub fn handle_wanted(&mut self, peer: usize, function: u8, count: u16, at: Addr) {
        let (function, to) = (usize::from(function), peer as u16);
        if self.runner.pool(function).is_none() {
            self.out.reject();
            return;
        }
        // A runtime that has just come may ask before this one has met it; it asks again.
        if !self.sessions.has_runtime(to) {
            return;
        }
        if !self.sessions.is_beginning() {
            let loan = Loan {
                most: count.min(ASKED_MAX),
                at,
                to,
                leaves: false,
            };
            self.lend(function, &loan);
        }
        self.carry_out_lending();
        if let Some(pool) = self.runner.pool(function) {
            let record = Record::Pool(function as u8, pool.free, pool.share);
            self.out.send_record(to, &record);
        }
    }

    /// Lends blocks, of which all switches are told; answers how many.
    fn lend(&mut self, function: usize, loan: &Loan) -> usize {
        let mut lent = ArrayVec::<Block, { ASKED_MAX as usize }>::new();
        self.runner.lend_blocks(function, loan, &mut |block| {
            let _ = lent.try_push(block);
        });
        let me = RuntimeId(self.settings.info.runtime);
        let count = lent.len();
        for block in lent {
            // A borrowed block goes home: that is where it is wanted.
            if !self.flows.borrowed.give_back(block) {
                self.pools.lent += 1;
                self.pools.out.insert(block);
                let lent = Message::BlockLent(block, me, RuntimeId(loan.to));
                self.flows.parting.part(lent, &mut self.out);
            }
        }
        count
    }

    /// Whether a runtime is there that gives blocks out.
    fn is_wanted_at(&self, home: RuntimeId) -> bool {
        self.sessions.has_runtime(home.0) && !self.sessions.is_runtime_leaving(home.0)
    }

    /// A group is over that had a block of another runtime's part.
    #[cold]
    pub fn keep_or_return(&mut self, block: Block, home: RuntimeId) {
        let is_others = home.0 != self.settings.info.runtime;
        let is_kept =
            is_others && !self.is_wanted_at(home) && !self.is_leaving && self.flows.borrowed.len() < HELD_MAX;
        if !is_kept {
            return self.out.announce(Message::BlockReturned(block, home));
        }
        self.out.announce(Message::BlockKept(block, home));
        self.flows.borrowed.keep(block, home);
        self.carry_out_lending();
    }

    /// Another runtime says how much of a pool is free there.
    #[cold]
    pub fn handle_pool(&mut self, peer: usize, function: u8, heard: (u32, u32)) {
        let function = usize::from(function);
        if self.runner.pool(function).is_none() || peer >= self.sessions.runtimes.len() {
            self.out.reject();
            return;
        }
        if self.pools.heard.len() <= function {
            self.pools.heard.resize(function + 1, Vec::new());
        }
        let Some(by_runtime) = self.pools.heard.get_mut(function) else {
            return;
        };
        if by_runtime.len() <= peer {
            by_runtime.resize(peer + 1, None);
        }
        if let Some(known) = by_runtime.get_mut(peer) {
            *known = Some(heard);
        }
    }

    fn there(&self) -> Switches {
        let switches = 0..self.settings.switches;
        let there = switches.filter(|switch| self.out.is_present(usize::from(*switch)));
        there.fold(Switches::NONE, Switches::with)
    }

    /// A switch says that a block is lent to this runtime.
    #[cold]
    pub fn handle_lent(&mut self, link: usize, block: Block, home: RuntimeId) {
        if home.0 == self.settings.info.runtime || self.flows.borrowed.len() >= HELD_MAX {
            self.out.reject();
            return;
        }
        let there = self.there();
        self.flows.borrowed.handle_lent(block, home, link as u8, there);
        self.carry_out_lending();
    }

    /// A switch says that no more that a runtime has lent is coming.
    #[cold]
    pub fn handle_lends_over(&mut self, link: usize, home: RuntimeId) {
        let there = self.there();
        self.flows.borrowed.handle_lends_over(home, link as u8, there);
        self.carry_out_lending();
    }

    /// A switch has come, or gone.
    #[cold]
    pub fn switch_over(&mut self, switch: u8) {
        // A switch that has begun since may not have been told of a block that waits to be kept.
        self.flows.parting.keep_none();
        let there = self.there();
        self.flows.borrowed.switch_over(switch, there);
        self.carry_out_lending();
    }

    /// Functions have other settings: they borrow their borrowed blocks again, or these go home.
    fn borrow_again(&mut self) {
        let free: Vec<Block> = self.flows.borrowed.free().collect();
        for block in free {
            let home = self.flows.borrowed.home(block).map_or(0, |home| home.0);
            if !self.runner.borrow_block(block, home) {
                self.flows.borrowed.give_back(block);
            }
        }
    }

    /// Borrowed blocks that are not wanted any more go home.
    fn give_back_some(&mut self, count: u16) {
        if count > 0 && !self.flows.borrowed.is_empty() {
            let count = usize::from(count.min(ASKED_MAX));
            // Blocks that no runtime waits for stay. There may be many of those: some are looked
            // at.
            let from = self.pools.looked_at.take();
            let free = self.flows.borrowed.free_behind(from).take(LOOKED_AT);
            let looked_at: ArrayVec<(Block, RuntimeId), LOOKED_AT> = free.collect();
            if looked_at.is_full() {
                self.pools.looked_at = looked_at.last().map(|(block, _)| *block);
            }
            let is_wanted = |home: RuntimeId| self.is_leaving || self.is_wanted_at(home);
            let wanted = looked_at.iter().filter(|(_, home)| is_wanted(*home));
            let some: Vec<Block> = wanted.map(|(block, _)| *block).take(count).collect();
            for block in some {
                self.flows.borrowed.give_back(block);
            }
        }
    }

    fn carry_out_lending(&mut self) {
        while let Some(action) = self.flows.borrowed.poll_action() {
            match action {
                Action::Take(block, home) => {
                    if self.runner.borrow_block(block, home.0) {
                        self.pools.borrowed += 1;
                        (self.pools.without, self.pools.is_dry) = (None, false);
                        (self.pools.pace, self.pools.ask_at) = (PACE, 0);
                    } else {
                        self.flows.borrowed.give_back(block);
                    }
                }
                Action::Return(block, home) => {
                    self.runner.forsake_block(block);
                    let returned = Message::BlockReturned(block, home);
                    self.flows.parting.part(returned, &mut self.out);
                }
            }
        }
    }
}

#[cfg(test)]
mod unit {
    use super::Ebb;

    #[test]
    fn a_pool_lasts_as_long_as_its_rate_says() {
        const SECOND: u64 = 1_000_000_000;
        let mut ebb = Ebb::default();
        // Ten blocks a second go, in the second second.
        for (tenth, free) in [(10, 100), (15, 100), (20, 100), (25, 95), (30, 90)] {
            ebb.note(tenth * SECOND / 10, free);
        }
        assert_eq!(ebb.lasts(3 * SECOND, 90), Some(9.0));
        assert_eq!(ebb.lasts(3 * SECOND, 0), Some(0.0));
        assert_eq!(ebb.lasts(3 * SECOND, 120), None, "more have come back than gone");
        // At rest the rate falls, and is none from the second note on.
        ebb.note(4 * SECOND, 90);
        assert_eq!(ebb.lasts(4 * SECOND, 90), None);
    }
}
