//! Blocks that runtimes lend each other: how many are wanted and spared, and which.
//!
//! ```text
//!   free blocks   0 ─── low ─── twice low ─────────── four times ────────── eight times low ───►
//!                 │ idle ones    │ others are asked,    ▲ until so         │ borrowed ones that
//!                 │ come back    │ as many as it takes ─┘ many are free    │ are free go home
//!                 └ lends none ──┴ lends half of what is above twice low ──┴───────────────────►
//! ```
//!
//! A runtime that leaves, and has no host, lends all that are free.
//!
//! *Low* is a sixteenth of a part, as in `Ports::is_low`. So a runtime lends nothing that it would
//! ask for itself, and where all are low, none has more than that left. A host keeps its external
//! address, so a host without a port on it has blocks of that address wanted.
//!
//! Not here: how blocks change hands (`protocols::lending`).

use super::Nat;
use super::ports::{Ports, next_set};
use super::state::Host;
use nf::{Addr, Block, Loan, PoolState};

impl Ports {
    pub(super) fn is_home(&self, block: u32) -> bool {
        self.home_of(block) == self.home.0
    }

    /// Which runtime gives a block out: by its address and port, which stay when the pool changes.
    pub(super) fn home_of(&self, block: u32) -> u32 {
        let (address, first) = self.place(block);
        self.home_at(address, first)
    }

    /// The same of the block that holds a port of an address.
    pub(super) fn home_at(&self, address: u32, port: u16) -> u32 {
        let place = address.wrapping_add(u32::from(port >> self.size.trailing_zeros()));
        place % self.home.1
    }

    /// Has a host give up a block of an address that this pool has not: it has come from another
    /// runtime, or out of a store, and its flows there were refused.
    #[inline]
    pub fn shed_strange(&mut self, host: &mut Host) -> Option<Block> {
        let first = host.blocks().first().copied()?;
        if self.number_of(u32::from_be_bytes(host.outside)).is_some() {
            return None;
        }
        host.remove(first);
        Some(self.as_block(host.outside, first))
    }

    /// How the part stands, for [`nf::NetworkFunction::pool`].
    pub fn state(&self) -> PoolState {
        let (free, low) = (self.free_total, self.low());
        let mut wants = match free <= 2 * low {
            true => 4 * low - free,
            false => 0,
        };
        let mut wants_at = Addr::default();
        if self.starved != 0 {
            wants = wants.max(low);
            wants_at = Addr::v4(self.starved.to_be_bytes());
        }
        PoolState {
            free,
            share: self.share,
            wants: wants as u16,
            wants_at,
            excess: free.saturating_sub(8 * low).min(self.borrowed) as u16,
        }
    }

    /// Lends up to so many blocks; see the module's page.
    pub fn lend_some(&mut self, loan: &Loan, lend: &mut dyn FnMut(Block)) {
        let spare = match loan.leaves {
            true => self.free_total,
            false => self.free_total.saturating_sub(2 * self.low()).div_ceil(2),
        };
        let to = u32::from(loan.to);
        let mut left = spare.min(u32::from(loan.most));
        if let Some(number) = loan
            .at
            .as_v4()
            .and_then(|at| self.number_of(u32::from_be_bytes(at)))
        {
            left = self.lend_of(number, left, to, lend);
        }
        // From any address on, around the pool: of each some, since hosts are spread over all.
        let count = self.addresses as usize;
        let mut at = (self.draw() % u64::from(self.addresses.max(1))) as usize;
        let each = left.div_ceil(self.addresses.max(1));
        for _ in 0..count.min(usize::from(loan.most)) {
            let Some(number) = next_set(&self.open, at, count).filter(|_| left > 0) else {
                return;
            };
            let some = each.min(left);
            left -= some - self.lend_of(number as u32, some, to, lend);
            at = (number + 1) % count;
        }
    }

    /// Lends up to so many blocks of an address; answers how many are still wanted.
    fn lend_of(&mut self, number: u32, most: u32, to: u32, lend: &mut dyn FnMut(Block)) -> u32 {
        let mut left = most;
        for within in 0..self.blocks_per_address {
            if left == 0 || self.free_count[number as usize] == 0 {
                break;
            }
            let block = number * self.blocks_per_address + within;
            let (word, bit) = self.free_bit(block);
            // A borrowed block goes to its home, and to no third runtime.
            let may = self.is_home(block) || self.home_of(block) == to;
            if self.free[word] & bit != 0 && may {
                self.set_taken(block);
                lend(self.block(block));
                left -= 1;
            }
        }
        left
    }

    /// A block of another runtime's part is free here; whether it is one that may be given out.
    pub fn borrow(&mut self, block: Block, home: u16) -> bool {
        let Some(number) = self.number_of_block(block) else {
            return false;
        };
        let may = self.home_of(number) == u32::from(home)
            && !self.is_home(number)
            && self.slot_of[number as usize] == 0
            && self.may_give(number);
        if may {
            self.starved = 0;
            self.set_free(number);
        }
        may
    }

    /// A borrowed block that is free here goes home.
    pub fn forsake(&mut self, block: Block) {
        if let Some(number) = self
            .number_of_block(block)
            .filter(|number| !self.is_home(*number))
        {
            self.set_taken(number);
        }
    }

    /// Whether the pool has a block, and no static mapping has a port of it.
    pub(super) fn may_give(&self, block: u32) -> bool {
        let (address, first) = self.place(block);
        self.has(address)
            && self.block_ports.contains(&u32::from(first))
            && self.reserved.binary_search(&block).is_err()
    }

    /// A block is in use: it is not free here, and gone if no host may be given it. Whether one
    /// may.
    pub(super) fn hold(&mut self, block: u32) -> bool {
        self.set_taken(block);
        let may = self.may_give(block);
        if !may {
            self.gone.resize(self.slot_of.len().div_ceil(64), 0);
            if let Some(word) = self.gone.get_mut(block as usize / 64) {
                *word |= 1 << (block % 64);
            }
        }
        may
    }

    /// A block is used no more, here or elsewhere: free, if it is of this part and a host may have
    /// it.
    pub(super) fn end_use(&mut self, block: u32) {
        if let Some(word) = self.gone.get_mut(block as usize / 64) {
            *word &= !(1 << (block % 64));
        }
        if self.is_home(block) && self.may_give(block) {
            self.set_free(block);
        }
    }

    /// A flow's host leaves: its blocks without a mapping have no slot here any more. Its blocks
    /// stay taken, and a block that is used here again gets a slot again.
    pub fn leave_empty(&mut self, host: &Host) {
        let Some(number) = self.number_of(u32::from_be_bytes(host.outside)) else {
            return;
        };
        for first in host.blocks() {
            let Some(block) = self.block_of(number, *first) else {
                continue;
            };
            let slot = self.slot_of[block as usize] as usize;
            if slot != 0 && self.slots.is_empty(slot) {
                self.drop_slot(slot);
            }
        }
    }

    fn block(&self, block: u32) -> Block {
        let (address, first) = self.place(block);
        self.as_block(address.to_be_bytes(), first)
    }
}

impl Nat {
    /// Free blocks and all that there are: of this part, and of the others if that is known.
    pub(super) fn whole(&self, ports: &Ports) -> Option<(u32, u32)> {
        let (free, share) = self.others.get()?;
        let own = (ports.free_blocks(), ports.share());
        Some((own.0.saturating_add(free), own.1.saturating_add(share)))
    }
}
