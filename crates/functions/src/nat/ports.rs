//! External ports: blocks of the pool, which runtime gives them to hosts, and which ports of them
//! are in use.
//!
//! Theory of operation. Each external address's port range is cut into blocks of `block_size`
//! ports. Blocks are numbered through the pool. Which runtime's part a block is of, its home,
//! follows from its address and ports alone, so nothing changes hands when the pool does. A host
//! gets an external address once (paired pooling) and blocks on it as it needs them; it gives a
//! block back when it is empty and another one is empty, too, and the last with its last flow. With
//! a pool of 203.0.113.0/31, ports 1024–65535 and 256 ports a block, there are 2 × 252 blocks:
//!
//! ```text
//!   block 0: 203.0.113.0 ports 1024–1279   runtime 0        block 252: 203.0.113.1 ports 1024–1279   runtime 1
//!   block 1: 203.0.113.0 ports 1280–1535   runtime 1        block 253: …                             runtime 0
//! ```
//!
//! *Another pool while hosts have blocks* ([`Ports::succeed`]). Blocks in use stay in use. Blocks
//! that the new settings do not have (their address or ports are gone, or a static mapping has one
//! of them now) are *gone*: they are numbered on, since their ports come back one by one as their
//! flows end, but no host gets a port from them, and the last port that comes back releases the
//! block. A host that has nothing else gets an external address like a new one. A block of a host
//! that arrives, from another runtime or out of a store, is gone here in the same way; mappings on
//! it are not taken in.
//!
//! Which ports of a block are in use, and which comes next, is its slot's business (`slots`).
//!
//! Invariants (checked in `tests` against an oracle): a block has one owner or is free; all that
//! was taken is given back once.
//!
//! Which block is free here at the start follows from its home; blocks of other runtimes' parts
//! that are lent are free here, too, and go home when a host gives them back (`lending`).
//!
//! Not here: which mapping uses a port (`mappings`); telling the switches (`Cx::claim_block`, in
//! `mod`).

use super::alloc::vec;
use super::alloc::vec::Vec;
use super::config::{ANY, Plan};
use super::slots::Slots;
use super::state::{Host, V4Endpoint};
use core::ops::Range;
use nf::{Addr, Block, BlockWas};
use wire::memory::prefetch;
use wire::protocol;

/// Which of the bitmaps a protocol has.
pub(super) fn space_of(protocol: u8) -> Option<usize> {
    match protocol {
        protocol::TCP => Some(0),
        protocol::UDP => Some(1),
        protocol::ICMP => Some(2),
        _ => None,
    }
}

/// Whether a protocol's packets to an address are told apart by ports that hosts are given; or, for
/// all protocols, some are.
pub(super) fn keeps_ports(protocol: u8) -> bool {
    protocol == ANY || space_of(protocol).is_some()
}

/// The most blocks that are kept back by [`Ports::is_low`].
const LOW_MAX: u32 = 64;

/// Why there is no port.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Refused {
    /// This runtime's share of the host's external address, or of the pool, is used up.
    Pool,
    /// The host has all the blocks it may have.
    Host,
}

/// A new mapping's wish for its port.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Wish {
    /// This very port.
    pub port: Option<u16>,
    /// An odd one or an even one.
    pub odd: Option<bool>,
}

/// Consecutive external addresses.
struct Stretch {
    first: u32,
    last: u32,
    /// Number of the first in the pool.
    base: u32,
}

/// Which addresses and blocks are numbered.
struct Layout {
    addresses: Vec<(u32, u32)>,
    first_port: u16,
    blocks_per_address: u16,
}

impl Layout {
    /// A plan's, and whatever else of `old` is in use.
    fn around(plan: &Plan, old: &Ports) -> Self {
        let size = u32::from(plan.block_size);
        let behind = |first: u16, blocks: u16| u32::from(first) + u32::from(blocks) * size;
        let mut addresses = plan.pool.clone();
        let mut first_port = plan.first_port;
        let mut ports_end = behind(first_port, plan.blocks_per_address);
        let is_used = |block: &u32| old.slot_of[*block as usize] != 0 || old.is_given(*block);
        for block in (0..old.slot_of.len() as u32).filter(is_used) {
            let (address, first) = old.place(block);
            first_port = first_port.min(first);
            ports_end = ports_end.max(behind(first, 1));
            let at = addresses.partition_point(|(_, last)| *last < address);
            match addresses.get(at) {
                Some((from, _)) if *from <= address => {}
                _ => addresses.insert(at, (address, address)),
            }
        }
        Layout {
            addresses,
            first_port,
            blocks_per_address: ((ports_end - u32::from(first_port)) / size) as u16,
        }
    }
}

/// The pool of one instance. See the module's page.
pub(super) struct Ports {
    /// First and last address of each stretch of the pool, sorted.
    pool: Vec<(u32, u32)>,
    /// Of the addresses that are numbered: the pool's, and such as have blocks that are gone.
    stretches: Vec<Stretch>,
    pub(super) addresses: u32,
    pub(super) blocks_per_address: u32,
    first_port: u16,
    /// The ports of the pool's blocks; numbered are such as have blocks that are gone, too.
    pub(super) block_ports: Range<u32>,
    pub(super) size: u16,
    host_blocks_max: usize,
    pub(super) home: (u32, u32),
    flows_max: u32,
    /// Blocks of ours that are free: `free_words` words per address.
    pub(super) free: Vec<u64>,
    free_words: usize,
    pub(super) free_count: Vec<u16>,
    /// Addresses with a free block of ours, a bit each.
    pub(super) open: Vec<u64>,
    /// Free blocks of ours, and blocks of ours that there are.
    pub(super) free_total: u32,
    pub(super) share: u32,
    /// Blocks of the whole pool, over the parts that it is divided into at the start.
    pub(super) fair: u32,
    /// Free blocks here that are borrowed.
    pub(super) borrowed: u32,
    /// The address of a host that has found no port on it since the last loan; 0: none.
    pub(super) starved: u32,
    /// Slot of each block of the pool, 0 for none.
    pub(super) slot_of: Vec<u32>,
    /// Blocks that static mappings keep from being given out, sorted.
    pub(super) reserved: Vec<u32>,
    /// Blocks that are in use and gone, a bit each; empty where there is none. None of these may be
    /// given to a host ([`Ports::may_give`]).
    pub(super) gone: Vec<u64>,
    pub(super) slots: Slots,
    random: u64,
    /// The block that [`Ports::prefetch`] was asked for last.
    fetched: ([u8; 4], u16),
}

impl Ports {
    /// The share of runtime `runtime` of `runtimes`.
    pub fn new(plan: &Plan, runtime: u16, runtimes: u16, flows_max: u32, seed: u64) -> Self {
        let layout = Layout {
            addresses: plan.pool.clone(),
            first_port: plan.first_port,
            blocks_per_address: plan.blocks_per_address,
        };
        let home = (u32::from(runtime), u32::from(runtimes.max(1)));
        Ports::laid_out(&layout, plan, home, flows_max, seed | 1)
    }

    fn laid_out(layout: &Layout, plan: &Plan, home: (u32, u32), flows_max: u32, random: u64) -> Self {
        let mut stretches = Vec::new();
        let mut addresses = 0;
        for (first, last) in &layout.addresses {
            stretches.push(Stretch {
                first: *first,
                last: *last,
                base: addresses,
            });
            addresses += last - first + 1;
        }
        let blocks_per_address = u32::from(layout.blocks_per_address);
        let free_words = usize::from(layout.blocks_per_address).div_ceil(64);
        let blocks = (addresses * blocks_per_address) as usize;
        let mut ports = Ports {
            pool: plan.pool.clone(),
            stretches,
            addresses,
            blocks_per_address,
            first_port: layout.first_port,
            block_ports: plan.block_ports(),
            size: plan.block_size,
            host_blocks_max: plan.blocks_per_host,
            home,
            flows_max,
            free: vec![0; addresses as usize * free_words],
            free_words,
            free_count: vec![0; addresses as usize],
            open: vec![0; (addresses as usize).div_ceil(64)],
            free_total: 0,
            share: 0,
            fair: (blocks as u32).div_ceil(home.1),
            borrowed: 0,
            starved: 0,
            slot_of: vec![0; blocks],
            reserved: Vec::new(),
            gone: Vec::with_capacity(blocks.div_ceil(64)),
            slots: Slots::new(blocks.min(flows_max as usize), plan.block_size),
            random,
            fetched: ([0; 4], 0),
        };
        for block in 0..blocks as u32 {
            let (address, first) = ports.place(block);
            if ports.is_home(block) && plan.has_block(address, first) {
                ports.set_free(block);
            }
        }
        // The block with a static mapping's port is never given out: packets to a block go to one
        // host.
        for (protocol, outside, _) in &plan.by_outside {
            let Some(number) = ports.number_of(outside.number()) else {
                continue;
            };
            let whole = number * blocks_per_address..(number + 1) * blocks_per_address;
            let blocks = match (outside.port, keeps_ports(*protocol)) {
                (0, true) => whole,
                (0, false) => continue,
                (port, _) => match ports.block_of(number, port) {
                    Some(block) => block..block + 1,
                    None => continue,
                },
            };
            for block in blocks {
                ports.set_taken(block);
                ports.reserved.push(block);
            }
        }
        ports.reserved.sort_unstable();
        ports.reserved.dedup();
        ports.share = ports.free_total;
        ports
    }

    /// Becomes the share of `plan`, with whatever `old`, an earlier one's of the same runtime and
    /// block size, has in use. Nothing is left there.
    pub fn succeed(&mut self, old: &mut Ports, plan: &Plan) {
        let layout = Layout::around(plan, old);
        let slots = core::mem::replace(&mut old.slots, Slots::new(0, old.size));
        *self = Ports::laid_out(&layout, plan, old.home, old.flows_max, old.random);
        let slots_max = self.slots_max();
        self.slots = slots;
        self.slots.widen(slots_max);
        for block in 0..old.slot_of.len() as u32 {
            let slot = old.slot_of[block as usize];
            if slot == 0 && !old.is_given(block) {
                continue;
            }
            let (address, first) = old.place(block);
            let number = self.number_of(address);
            let Some(new) = number.and_then(|number| self.block_of(number, first)) else {
                debug_assert!(slot == 0, "the layout has every block in use");
                continue;
            };
            if slot != 0 {
                self.slot_of[new as usize] = slot;
                self.slots.renumber(slot as usize, new);
            }
            self.hold(new);
        }
    }

    /// Whether a host has a block of ours without a slot here.
    fn is_given(&self, block: u32) -> bool {
        let (word, bit) = self.free_bit(block);
        let is_free = self.free[word] & bit != 0;
        self.is_home(block) && !is_free && (self.is_gone(block) || self.may_give(block))
    }

    /// Whether a block is in use and not the pool's any more.
    pub(super) fn is_gone(&self, block: u32) -> bool {
        let word = self.gone.get(block as usize / 64);
        word.is_some_and(|word| word >> (block % 64) & 1 != 0)
    }

    /// Has a host forget its blocks that are gone: their ports come back by themselves. A block
    /// that has none in use is to be released at once, and is the answer; the next such is left for
    /// the next time.
    #[cold]
    fn shed(&mut self, host: &mut Host) -> Option<Block> {
        let number = self.number_of(u32::from_be_bytes(host.outside))?;
        let mut released = None;
        let mut at = 0;
        while let Some(first) = host.blocks().get(at).copied() {
            match self.block_of(number, first) {
                Some(block) if !self.is_gone(block) => at += 1,
                Some(block) if self.is_empty(block) => {
                    if released.is_some() {
                        at += 1;
                        continue;
                    }
                    released = Some(self.release(host, block, first));
                }
                _ => host.remove(first),
            }
        }
        released
    }

    /// Free blocks of this runtime's share.
    pub fn free_blocks(&self) -> u32 {
        self.free_total
    }

    /// Blocks of this runtime's share, free and in use.
    pub fn share(&self) -> u32 {
        self.share
    }

    /// Whether so few blocks are free that idle ones are wanted back: a burst of new hosts may take
    /// so many before that has an effect.
    pub fn is_low(&self) -> bool {
        self.free_total <= self.low()
    }

    /// How few are few.
    pub(super) fn low(&self) -> u32 {
        let part = if self.share == 0 { self.fair } else { self.share };
        (part / 16).clamp(1, LOW_MAX)
    }

    /// The most blocks that are ever in use at once.
    pub fn slots_max(&self) -> usize {
        self.slot_of.len().min(self.flows_max as usize)
    }

    /// The slot of the block that a mapping's port is of, and whether the block is this runtime's
    /// own.
    pub fn slot_at(&self, outside: V4Endpoint) -> Option<(u32, bool)> {
        let block = self.block_of(self.number_of(outside.number())?, outside.port)?;
        let slot = *self.slot_of.get(block as usize)?;
        let is_home = self.home_at(outside.number(), outside.port) == self.home.0;
        (slot != 0).then(|| (slot, is_home && !self.is_gone(block)))
    }

    /// Whether the pool has this address.
    pub fn has(&self, addr: u32) -> bool {
        let at = self.pool.partition_point(|(_, last)| *last < addr);
        self.pool.get(at).is_some_and(|(first, _)| *first <= addr)
    }

    pub(super) fn number_of(&self, addr: u32) -> Option<u32> {
        let at = self.stretches.partition_point(|s| s.last < addr);
        let stretch = self.stretches.get(at)?;
        (stretch.first <= addr).then(|| stretch.base + (addr - stretch.first))
    }

    /// Address and first port of a block.
    pub(super) fn place(&self, block: u32) -> (u32, u16) {
        let (number, within) = (block / self.blocks_per_address, block % self.blocks_per_address);
        let at = self.stretches.partition_point(|s| s.base <= number) - 1;
        let stretch = &self.stretches[at];
        let first = u32::from(self.first_port) + within * u32::from(self.size);
        (stretch.first + (number - stretch.base), first as u16)
    }

    /// The block that holds a port of an address of the pool.
    pub(super) fn block_of(&self, number: u32, port: u16) -> Option<u32> {
        // The size is a power of two, and a division takes as long as the rest.
        let within = u32::from(port.checked_sub(self.first_port)? >> self.size.trailing_zeros());
        (within < self.blocks_per_address).then(|| number * self.blocks_per_address + within)
    }

    fn first_of(&self, port: u16) -> u16 {
        port & !(self.size - 1)
    }

    pub(super) fn as_block(&self, addr: [u8; 4], first: u16) -> Block {
        Block {
            addr: Addr::v4(addr),
            first,
            ports: self.size,
        }
    }

    pub(super) fn draw(&mut self) -> u64 {
        // SplitMix64: every seed is a good one.
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.random ^ (self.random >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub(super) fn free_bit(&self, block: u32) -> (usize, u64) {
        let (number, within) = (block / self.blocks_per_address, block % self.blocks_per_address);
        let word = number as usize * self.free_words + (within / 64) as usize;
        (word, 1 << (within % 64))
    }

    pub(super) fn set_free(&mut self, block: u32) {
        let (word, bit) = self.free_bit(block);
        let number = (block / self.blocks_per_address) as usize;
        if self.free[word] & bit == 0 {
            self.free[word] |= bit;
            self.borrowed += u32::from(!self.is_home(block));
            self.free_count[number] += 1;
            self.free_total += 1;
            self.open[number / 64] |= 1 << (number % 64);
        }
    }

    pub(super) fn set_taken(&mut self, block: u32) {
        let (word, bit) = self.free_bit(block);
        let number = (block / self.blocks_per_address) as usize;
        if self.free[word] & bit != 0 {
            self.free[word] &= !bit;
            self.borrowed -= u32::from(!self.is_home(block));
            self.free_count[number] -= 1;
            self.free_total -= 1;
            if self.free_count[number] == 0 {
                self.open[number / 64] &= !(1 << (number % 64));
            }
        }
    }

    /// Whether [`Ports::take`] may find blocks of a host that are gone: then [`Ports::shed_of`]
    /// goes first.
    pub fn has_gone(&self) -> bool {
        !self.gone.is_empty()
    }

    /// Has a host give up blocks that are gone, before it takes a port. Answers a block that is
    /// free with it.
    #[cold]
    pub fn shed_of(&mut self, host: &mut Host) -> Option<Block> {
        self.shed(host)
    }

    /// A port for a mapping of this host; with it the block, if one was taken for it.
    pub fn take(
        &mut self,
        host: &mut Host,
        inside: V4Endpoint,
        space: usize,
        wish: Wish,
    ) -> Result<(V4Endpoint, Option<Block>), Refused> {
        let mut claimed = None;
        if host.blocks().is_empty() {
            let start = self.draw_address(inside);
            let number = next_set(&self.open, start, self.addresses as usize).ok_or(Refused::Pool)? as u32;
            let (first, block) = self.claim(number, wish).ok_or(Refused::Pool)?;
            host.outside = self.place(block).0.to_be_bytes();
            host.push(first);
            claimed = Some(self.as_block(host.outside, first));
        }
        let number = self
            .number_of(u32::from_be_bytes(host.outside))
            .ok_or(Refused::Pool)?;
        if let Some(port) = self.take_owned(host, number, space, wish) {
            return Ok((V4Endpoint::new(host.outside, port), claimed));
        }
        // A block that was just claimed has a port for sure, if not of the parity that is wished
        // for.
        let allowed = claimed.is_none() && host.blocks().len() < self.host_blocks_max;
        if allowed && let Some((first, _)) = self.claim(number, wish) {
            host.push(first);
            claimed = Some(self.as_block(host.outside, first));
        }
        // With the new block if there is one; else a port of the other parity is better than none.
        let wished = claimed.and_then(|_| self.take_owned(host, number, space, wish));
        match wished.or_else(|| self.take_owned(host, number, space, Wish::default())) {
            Some(port) => Ok((V4Endpoint::new(host.outside, port), claimed)),
            None if allowed => {
                self.starved = u32::from_be_bytes(host.outside);
                Err(Refused::Pool)
            }
            None => Err(Refused::Host),
        }
    }

    /// Where the search for a host's external address starts: spread by address, the same for the
    /// same host.
    fn draw_address(&self, inside: V4Endpoint) -> usize {
        let mixed = u64::from(inside.number()).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
        ((mixed * u64::from(self.addresses)) >> 32) as usize
    }

    /// Takes a free block of ours on an address: the one with the wanted port, or any; of one port,
    /// one of the wanted parity if there is such.
    fn claim(&mut self, number: u32, wish: Wish) -> Option<(u16, u32)> {
        if self.free_count[number as usize] == 0 {
            return None;
        }
        let wanted = wish.port.and_then(|p| self.block_of(number, p)).filter(|block| {
            let (word, bit) = self.free_bit(*block);
            self.free[word] & bit != 0
        });
        let block = match wanted {
            Some(block) => block,
            None => {
                let from = number as usize * self.free_words;
                let start = (self.draw() % u64::from(self.blocks_per_address)) as usize;
                let words = &self.free[from..from + self.free_words];
                let among = match wish.odd.filter(|_| self.size == 1) {
                    None => u64::MAX,
                    Some(odd) if odd ^ (self.first_port % 2 == 1) => 0xaaaa_aaaa_aaaa_aaaa,
                    Some(_) => 0x5555_5555_5555_5555,
                };
                let count = self.blocks_per_address as usize;
                let within =
                    next_set_among(words, start, count, among).or_else(|| next_set(words, start, count))?;
                number * self.blocks_per_address + within as u32
            }
        };
        self.make_slot(block)?;
        self.set_taken(block);
        Some((self.place(block).1, block))
    }

    /// A port of a block the host already has.
    fn take_owned(&mut self, host: &mut Host, number: u32, space: usize, wish: Wish) -> Option<u16> {
        if let Some(port) = wish.port
            && host.blocks().contains(&self.first_of(port))
            && let Some(slot) = self.slot(number, self.first_of(port))
            && self.slots.take(slot, port, space)
        {
            return Some(port);
        }
        let count = host.blocks().len();
        for turn in 0..count {
            let at = (usize::from(host.current) + turn) % count;
            let Some(slot) = self.slot(number, host.firsts[at]) else {
                continue;
            };
            let odd = match wish.odd {
                Some(odd) if self.size == 1 && odd != (host.firsts[at] % 2 == 1) => continue,
                _ if self.size == 1 => None,
                odd => odd,
            };
            if let Some(place) = self.slots.take_next(slot, space, odd) {
                host.current = at as u8;
                return Some(host.firsts[at] | place);
            }
        }
        None
    }

    /// The slot of a block that is in use, made if it has none here yet (its host has just
    /// arrived); none is made of a block that is gone.
    fn slot(&mut self, number: u32, first: u16) -> Option<usize> {
        let block = self.block_of(number, first)?;
        match self.slot_of[block as usize] {
            0 => match self.hold(block) {
                true => self.make_slot(block),
                false => None,
            },
            slot => Some(slot as usize),
        }
    }

    fn make_slot(&mut self, block: u32) -> Option<usize> {
        let random = self.draw();
        let slot = self.slots.open(block, random)?;
        self.slot_of[block as usize] = slot as u32;
        Some(slot)
    }

    pub(super) fn drop_slot(&mut self, slot: usize) {
        let block = self.slots.close(slot);
        self.slot_of[block as usize] = 0;
    }

    /// Whether no port of a block is in use here.
    fn is_empty(&self, block: u32) -> bool {
        let slot = self.slot_of[block as usize] as usize;
        slot == 0 || self.slots.is_empty(slot)
    }

    /// Gives a port back. Answers the block that is free with it, if so.
    pub fn give(&mut self, host: &mut Host, outside: V4Endpoint, space: usize) -> Option<Block> {
        let number = self.number_of(outside.number())?;
        let block = self.block_of(number, outside.port)?;
        let slot = self.slot_of[block as usize] as usize;
        if slot == 0 || !self.slots.give(slot, outside.port, space) || !self.slots.is_empty(slot) {
            return None;
        }
        let first = self.first_of(outside.port);
        if self.is_gone(block) {
            if host.outside == outside.addr {
                host.remove(first);
            }
            self.drop_slot(slot);
            self.end_use(block);
            return Some(self.as_block(outside.addr, first));
        }
        // A host that opens one flow at a time would claim and release a block each time: one empty
        // block stays, as long as there are more.
        let is_empty = |other: &u16| self.block_of(number, *other).is_some_and(|b| self.is_empty(b));
        let spare = host
            .blocks()
            .iter()
            .any(|other| *other != first && is_empty(other));
        (spare || self.is_low()).then(|| self.release(host, block, first))
    }

    /// Gives back one of the blocks of a host that has no mappings any more.
    pub fn end(&mut self, host: &mut Host) -> Option<Block> {
        while let Some(first) = host.blocks().first().copied() {
            let number = self.number_of(u32::from_be_bytes(host.outside));
            match number.and_then(|n| self.block_of(n, first)) {
                Some(block) => return Some(self.release(host, block, first)),
                None => host.remove(first),
            }
        }
        None
    }

    fn release(&mut self, host: &mut Host, block: u32, first: u16) -> Block {
        host.remove(first);
        let slot = self.slot_of[block as usize] as usize;
        if slot != 0 {
            self.drop_slot(slot);
        }
        self.end_use(block);
        self.as_block(host.outside, first)
    }

    /// The runtime that a block belongs to, if that is another one.
    pub fn elsewhere(&self, block: Block) -> Option<u16> {
        let block = self.number_of_block(block)?;
        let home = self.home_of(block);
        (home != self.home.0).then_some(home as u16)
    }

    /// A block is in use elsewhere; how it stood here.
    pub fn lend(&mut self, block: Block) -> BlockWas {
        let Some(block) = self.number_of_block(block) else {
            return BlockWas::Anothers;
        };
        let (word, bit) = self.free_bit(block);
        let is_free = self.free[word] & bit != 0;
        let is_home = self.is_home(block);
        // Another runtime's block that comes here with its host is looked at then.
        if is_home {
            self.hold(block);
        } else {
            self.set_taken(block);
        }
        match (is_free, is_home) {
            (true, _) => BlockWas::Free,
            (false, true) => BlockWas::Out,
            (false, false) => BlockWas::Anothers,
        }
    }

    /// A block of ours that was in use elsewhere is free again.
    pub fn take_back(&mut self, block: Block) {
        if let Some(block) = self.number_of_block(block)
            && self.is_home(block)
            && (self.slot_of[block as usize] == 0 || wire::planted::is("slotted_block_taken_back"))
        {
            self.end_use(block);
        }
    }

    pub(super) fn number_of_block(&self, block: Block) -> Option<u32> {
        let number = self.number_of(u32::from_be_bytes(block.addr.as_v4()?))?;
        (block.ports == self.size)
            .then(|| self.block_of(number, block.first))
            .flatten()
    }

    /// Fetches what [`Ports::adopt`] and [`Ports::forget`] look at first; a host's flows, which
    /// come one behind the other, share it.
    pub fn prefetch(&mut self, outside: V4Endpoint) {
        let place = (outside.addr, self.first_of(outside.port));
        if core::mem::replace(&mut self.fetched, place) == place {
            return;
        }
        let number = self.number_of(outside.number());
        if let Some(block) = number.and_then(|number| self.block_of(number, outside.port)) {
            prefetch(&raw const self.slot_of[block as usize]);
        }
    }

    /// Marks the port of a mapping that has arrived with its host, and the host's blocks as taken;
    /// `false` if no host may have the port here.
    pub fn adopt(&mut self, host: &Host, outside: V4Endpoint, space: usize) -> bool {
        let Some(number) = self.number_of(outside.number()) else {
            return false;
        };
        if host.outside != outside.addr || !host.blocks().contains(&self.first_of(outside.port)) {
            return false;
        }
        let Some(block) = self.block_of(number, outside.port) else {
            return false;
        };
        if self.slot_of[block as usize] == 0 {
            // The first mapping of a block: of a host that has just arrived.
            for first in host.blocks() {
                if let Some(block) = self.block_of(number, *first) {
                    self.hold(block);
                }
            }
        }
        if self.is_gone(block) {
            return false;
        }
        match self.slot(number, self.first_of(outside.port)) {
            Some(slot) => self.slots.take(slot, outside.port, space),
            None => false,
        }
    }

    /// Forgets the port of a mapping that has left with its host: the host keeps it. Its blocks
    /// stay taken.
    pub fn forget(&mut self, host: &Host, outside: V4Endpoint, space: usize) {
        let Some(number) = self.number_of(outside.number()) else {
            return;
        };
        let block = self.block_of(number, outside.port);
        if let Some(slot) = block.map(|b| self.slot_of[b as usize] as usize)
            && slot != 0
        {
            self.slots.give(slot, outside.port, space);
            if !self.slots.is_empty(slot) {
                return;
            }
            self.drop_slot(slot);
        }
        // With a block's last mapping; so the last block of all sees to those that had none.
        self.leave_empty(host);
    }

    /// Capacities of what could grow.
    #[cfg(test)]
    pub fn capacities(&self) -> Vec<usize> {
        self.slots.capacities().to_vec()
    }

    /// Slots in use.
    #[cfg(test)]
    pub fn slots_used(&self) -> usize {
        self.slot_of.iter().filter(|s| **s != 0).count()
    }
}

/// The first set bit at or behind `start`, going round, among the first `count`.
pub(super) fn next_set(words: &[u64], start: usize, count: usize) -> Option<usize> {
    next_set_among(words, start, count, u64::MAX)
}

/// [`next_set`] among those bits of each word only.
fn next_set_among(words: &[u64], start: usize, count: usize, among: u64) -> Option<usize> {
    let all = count.div_ceil(64);
    for turn in 0..=all {
        let at = (start / 64 + turn) % all;
        let mut word = words[at] & among;
        if turn == 0 {
            word &= u64::MAX << (start % 64);
        }
        if word != 0 {
            return Some(at * 64 + word.trailing_zeros() as usize);
        }
    }
    None
}

#[cfg(test)]
mod unit {
    #[test]
    fn the_next_set_bit_goes_round() {
        let words = [0b1000, 1];
        assert_eq!(super::next_set(&words, 0, 70), Some(3));
        assert_eq!(super::next_set(&words, 4, 70), Some(64));
        assert_eq!(super::next_set(&words, 65, 70), Some(3));
        assert_eq!(super::next_set(&[0, 0], 65, 70), None);
    }
}
