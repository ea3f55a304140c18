//! Blocks of a pool that one runtime lends another, as long as no group has them (FlexState VI-A).
//!
//! # Theory of operation
//!
//! A pool is divided among runtimes at the start: each block has a *home*, which follows from the
//! block alone. A runtime whose part runs low asks the others, and one with spare blocks lends
//! some. A runtime that leaves lends all. The borrower gives them out like its own. A block that a
//! group gives back goes home, as a block does whose group has moved, unless the home is not there:
//! then the runtime where the group was keeps it. So lending changes which runtime may give a
//! *free* block out, and nothing else.
//!
//! ```text
//!   home:      free ──lend──► out ◄───────────── not free before every switch says "returned" ────┐
//!                 lent to B │ to each switch                                                      │
//!   switch:                 ├─► registered ──to B──► (its word)               returned: forgotten
//!                           │        └─ B is let go ──quarantine──► returned to the home ─────────┤
//!   borrower:               └─► said by some ──by all──► free here ──claimed by a group──► spent  │
//!                           free here ◄─"kept" to each switch─ the home is not there ──┤ given back│
//!                                    │ one cannot say it     │ a switch comes or goes  │          │
//!                                    └─ by all the rest ─────┴─────────────────────────┴► returned┘
//! ```
//!
//! Example: runtime 0 lends a block to runtime 1, over two switches. Both register it and pass the
//! word on. Runtime 1 gives it out behind both words. Runtime 0 dies; the next runtime 0 is told by
//! both switches that the block is in use, and leaves it alone.
//!
//! *Why by way of the switches.* They outlive both ends, and their words on one runtime's death
//! come behind all that it had said. A session between the two runtimes may end at any time: no
//! word of a loan goes that way, only questions and how much is free.
//!
//! *Why the borrower waits for all.* A switch that has not heard of the loan would not tell the
//! next incarnation of the home. A switch ends the wait: whenever the session of a runtime ends or
//! begins there, it says *no more lends of that one's are coming*
//! ([`Borrower::handle_lends_over`]). A loan that not all switches know is returned, and not before
//! the last has spoken.
//!
//! *Why a borrower returns all when a switch comes or goes.* A switch that has let the borrower go
//! returns in its name; a switch that has begun again knows of no loan. Both happen seldom.
//!
//! *Why one word is enough to keep a block* ([`Borrower::keep`]). Each switch knows that a group
//! here has it, and hears behind that, from this runtime, that it is free here: it registers it as
//! if the home had lent it. Between the two it tells an incarnation of the home that begins the
//! same: in use.
//!
//! *Quarantine.* The blocks that a lost runtime had borrowed go home [`QUARANTINE`] after its flows
//! were let go or went on elsewhere, and so do those that its groups had, unless the groups go on
//! elsewhere: their claims are heard before. A borrower that stood still sees by then that its
//! session has ended, before it processes another packet.
//!
//! Invariants (explored in `tests`, whole at small size): a
//! block is free at one runtime at most, and at none while a group has it; when all is quiet, each
//! block that no group has is free at one runtime, unless it was on its way to a borrower, or home,
//! when that one or a switch died: then it may be out until its home begins again.
//!
//! Not here: how many are asked for and lent (the function's pool, and `runtime::parts::pools`);
//! how returned blocks are counted at home (`runtime::mobility::answers`).

#[cfg(test)]
mod tests;

use crate::ownership::{RuntimeId, Switches};
use alloc::collections::{BTreeMap, VecDeque};
use core::ops::Bound;

/// How long, in nanoseconds, a switch keeps what a runtime that has gone had borrowed.
pub const QUARANTINE: u64 = 1_000_000_000;

/// Of a block that is lent, at a switch.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
struct Lent {
    home: RuntimeId,
    to: RuntimeId,
    /// A group has it, or had it.
    is_claimed: bool,
    /// When it goes home, once its borrower has gone.
    until: Option<u64>,
}

/// A switch's register of lent blocks. See the module's page.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Register<B: Ord> {
    lent: BTreeMap<B, Lent>,
    /// How many wait for the end of their quarantine.
    waiting: usize,
    /// When each of these goes home, in order, and some that do not wait any more.
    due: VecDeque<(u64, B)>,
}

impl<B: Ord> Default for Register<B> {
    fn default() -> Self {
        Register {
            lent: BTreeMap::new(),
            waiting: 0,
            due: VecDeque::new(),
        }
    }
}

impl<B: Copy + Ord> Register<B> {
    /// How many blocks are registered.
    pub fn len(&self) -> usize {
        self.lent.len()
    }

    /// Whether none is.
    pub fn is_empty(&self) -> bool {
        self.lent.is_empty()
    }

    /// The home lends a block.
    pub fn lend(&mut self, block: B, home: RuntimeId, to: RuntimeId) {
        self.forget(block);
        let lent = Lent {
            home,
            to,
            is_claimed: false,
            until: None,
        };
        self.lent.insert(block, lent);
    }

    /// A group at that runtime has the block. A block that the home has given out is lent no more.
    pub fn claim(&mut self, block: B, runtime: RuntimeId) {
        let Some(lent) = self.lent.get_mut(&block) else {
            return;
        };
        if lent.home == runtime {
            self.forget(block);
            return;
        }
        lent.is_claimed = true;
        self.waiting -= usize::from(lent.until.take().is_some());
        self.tidy();
    }

    /// The block goes home.
    pub fn forget(&mut self, block: B) {
        let known = self.lent.remove(&block);
        self.waiting -= usize::from(known.is_some_and(|lent| lent.until.is_some()));
        self.tidy();
    }

    fn tidy(&mut self) {
        if self.waiting == 0 {
            self.due.clear();
        }
    }

    /// A runtime has gone, and its flows have ended or gone on elsewhere: the unclaimed blocks that
    /// it had borrowed, and claimed ones that no group has any more, are to go home.
    pub fn let_go(&mut self, gone: RuntimeId, now: u64, has_owner: impl Fn(B) -> bool) {
        let until = now.saturating_add(QUARANTINE);
        for (block, lent) in &mut self.lent {
            let is_left = match lent.is_claimed {
                true => !has_owner(*block),
                false => lent.to == gone,
            };
            if is_left && lent.until.is_none() {
                lent.until = Some(until);
                self.waiting += 1;
                self.due.push_back((until, *block));
            }
        }
    }

    /// Whether some block waits for the end of its quarantine.
    #[inline]
    pub fn is_waiting(&self) -> bool {
        self.waiting > 0
    }

    /// A block that goes home now, and where that is; it is registered no more.
    pub fn take_due(&mut self, now: u64) -> Option<(B, RuntimeId)> {
        while let Some((until, block)) = self.due.pop_front_if(|(until, _)| *until <= now) {
            let lent = self.lent.get(&block).filter(|lent| lent.until == Some(until));
            if let Some(home) = lent.map(|lent| lent.home) {
                self.forget(block);
                return Some((block, home));
            }
        }
        None
    }

    /// The blocks of a home that are lent.
    pub fn of_home(&self, home: RuntimeId) -> impl Iterator<Item = B> {
        let its = self.lent.iter().filter(move |(_, lent)| lent.home == home);
        its.map(|(block, _)| *block)
    }
}

/// Of a block that is lent to this runtime.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
struct Borrowed {
    home: RuntimeId,
    /// The switches that have said so.
    said: Switches,
    /// It goes back when all have.
    is_refused: bool,
    /// It is free here.
    is_free: bool,
}

/// A borrower's action on a block.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Action<B> {
    /// Give it out from now on.
    Take(B, RuntimeId),
    /// Give it out no more, and tell all switches that it goes home.
    Return(B, RuntimeId),
}

/// The blocks that are lent to a runtime, as far as it knows. See the module's page.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Borrower<B: Ord> {
    held: BTreeMap<B, Borrowed>,
    /// How many of these are free here.
    free: usize,
    actions: VecDeque<Action<B>>,
}

impl<B: Ord> Default for Borrower<B> {
    fn default() -> Self {
        Borrower {
            held: BTreeMap::new(),
            free: 0,
            actions: VecDeque::new(),
        }
    }
}

impl<B: Copy + Ord> Borrower<B> {
    /// How many blocks are lent to this runtime, those included of which not all switches have said
    /// so.
    pub fn len(&self) -> usize {
        self.held.len()
    }

    /// Whether there is none, and nothing to do.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.held.is_empty() && self.actions.is_empty()
    }

    /// Blocks that are free here.
    pub fn free(&self) -> impl Iterator<Item = B> {
        self.held
            .iter()
            .filter(|(_, held)| held.is_free)
            .map(|(block, _)| *block)
    }

    /// How many are on their way: not all switches have said so.
    pub fn coming(&self) -> usize {
        self.held.len() - self.free
    }

    /// Blocks that are free here, and their homes, in order; only those behind `block` if it is
    /// given.
    pub fn free_behind(&self, block: Option<B>) -> impl Iterator<Item = (B, RuntimeId)> {
        let from = block.map_or(Bound::Unbounded, Bound::Excluded);
        let held = self.held.range((from, Bound::Unbounded));
        held.filter(|(_, held)| held.is_free)
            .map(|(block, held)| (*block, held.home))
    }

    /// Whose a block is that is lent to this runtime.
    pub fn home(&self, block: B) -> Option<RuntimeId> {
        Some(self.held.get(&block)?.home)
    }

    /// A switch says that a block is lent to this runtime. `there`: the switches that are.
    pub fn handle_lent(&mut self, block: B, home: RuntimeId, switch: u8, there: Switches) {
        let held = self.held.entry(block).or_insert(Borrowed {
            home,
            said: Switches::NONE,
            is_refused: false,
            is_free: false,
        });
        held.said = held.said.with(switch);
        self.decide(block, there);
    }

    /// A switch says that no more of a home's lends are coming.
    pub fn handle_lends_over(&mut self, home: RuntimeId, switch: u8, there: Switches) {
        self.refuse(switch, there, |held| held.home == home);
    }

    /// A switch has come, or gone.
    pub fn switch_over(&mut self, switch: u8, there: Switches) {
        self.refuse(switch, there, |_| true);
        let free: alloc::vec::Vec<B> = self.free().collect();
        for block in free {
            self.give_back(block);
        }
    }

    /// A switch will not say of these that they are lent, if it has not.
    fn refuse(&mut self, switch: u8, there: Switches, which: impl Fn(&Borrowed) -> bool) {
        let mut changed = alloc::vec::Vec::new();
        for (block, held) in &mut self.held {
            if which(held) && !held.is_free {
                if !held.said.has(switch) {
                    held.said = held.said.with(switch);
                    held.is_refused = true;
                }
                changed.push(*block);
            }
        }
        for block in changed {
            self.decide(block, there);
        }
    }

    fn decide(&mut self, block: B, there: Switches) {
        let Some(held) = self.held.get_mut(&block) else {
            return;
        };
        if held.is_free || there.0 & !held.said.0 != 0 {
            return;
        }
        let home = held.home;
        if held.is_refused {
            self.held.remove(&block);
            self.actions.push_back(Action::Return(block, home));
        } else {
            held.is_free = true;
            self.free += 1;
            self.actions.push_back(Action::Take(block, home));
        }
    }

    /// A group that had the block is over, and all switches are told that this runtime keeps it: it
    /// is free here.
    pub fn keep(&mut self, block: B, home: RuntimeId) {
        let kept = Borrowed {
            home,
            said: Switches::NONE,
            is_refused: false,
            is_free: true,
        };
        let before = self.held.insert(block, kept);
        self.free += usize::from(before.is_none_or(|before| !before.is_free));
        self.actions.push_back(Action::Take(block, home));
    }

    /// A block that is free here goes back; whether it was.
    pub fn give_back(&mut self, block: B) -> bool {
        let Some(held) = self.held.get(&block).filter(|held| held.is_free) else {
            return false;
        };
        self.actions.push_back(Action::Return(block, held.home));
        self.held.remove(&block);
        self.free -= 1;
        true
    }

    /// A group has the block now: it goes home when the group gives it back.
    #[inline]
    pub fn spend(&mut self, block: B) {
        if !self.held.is_empty() {
            let spent = self.held.remove(&block);
            self.free -= usize::from(spent.is_some_and(|spent| spent.is_free));
        }
    }

    /// The next action that is to be done.
    pub fn poll_action(&mut self) -> Option<Action<B>> {
        self.actions.pop_front()
    }
}
