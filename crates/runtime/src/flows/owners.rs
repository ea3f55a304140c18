//! Which group has which block of external ports.
//!
//! # Theory of operation
//!
//! A packet from outside to a translated address says nothing of the inside host. So the switch
//! that routes it, and the runtime that groups it, look here. Each block has a record of one cache
//! line. It is found by where the block begins, and, where groups move, by its group: of that the
//! latest block is found, and each names the block that it followed. Most groups have one.
//!
//! ```text
//!   address, first port ─► places ─► record: owner, block, the group's block before it ─► record ─► …
//!   group ───────────────► latest ─┘
//! ```
//!
//! Both tables are such as the flows have. So a runtime that sees a group or a block coming fetches
//! the lines that will be looked at: tables of tens of thousands of blocks are in no cache, and a
//! group that moves looks at six of these lines.
//!
//! Invariants: a block has at most one owner; a record is in use and in `places`, or free; a
//! group's list has its blocks, each once.
//!
//! Not here: which ports of a block are in use, and which groups may have blocks at all
//! (functions).

use crate::flows::group::GroupKey;
use crate::flows::table::Table;
use alloc::vec::Vec;
use nf::{Addr, Block, Endpoint};
use wire::memory::{Region, prefetch};
use wire::{FlowKey, HashSeed};

/// Blocks that there is room for from the start, at most: sixteen million ports in blocks of 256.
const BLOCKS: usize = 1 << 16;
/// Block sizes that there is room for from the start: one for each function that hands out blocks,
/// of which a chain has one.
const SIZES: usize = 8;
/// In [`Record::before`]: nothing.
const NONE: u32 = FREE - 1;
/// In [`Record::before`]: the record is free, and the rest is the next free one.
const FREE: u32 = 1 << 31;
/// In the version byte of what places are hashed by, where keys of flows and groups have others.
const PLACE: u64 = 0x12;

/// A block and whose it is.
#[derive(Clone, Copy)]
#[repr(C, align(64))]
struct Record {
    owner: GroupKey,
    addr: Addr,
    first: u16,
    ports: u16,
    /// The block that its owner got before it.
    before: u32,
}

const _: () = assert!(size_of::<Record>() == 64);

impl Record {
    fn block(&self) -> Block {
        Block {
            addr: self.addr,
            first: self.first,
            ports: self.ports,
        }
    }

    fn is_used(&self) -> bool {
        self.before & FREE == 0
    }
}

/// How many blocks of so many there is room for from the start.
pub(crate) fn blocks_at_start(blocks: usize) -> usize {
    blocks.min(BLOCKS)
}

/// Which group has which block of external ports.
pub struct BlockOwners {
    places: Table,
    /// Where groups move.
    latest: Option<Table>,
    records: Vec<Record>,
    /// The first free record.
    free: u32,
    /// Blocks that the tables have room for.
    room: usize,
    /// Block sizes in use: as a rule one.
    sizes: Vec<u16>,
    /// The most blocks that are noted at others' word.
    most: usize,
    seed: HashSeed,
    /// Claims and releases since they were taken, where copies are kept of them.
    noted: Option<Vec<BlockChange>>,
    /// Groups that claimed or released since they were taken, where they are in a store.
    noted_groups: Option<Vec<GroupKey>>,
}

/// A block was claimed, or released, by a group.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BlockChange {
    /// Claimed, or released.
    pub is_claimed: bool,
    /// The block.
    pub block: Block,
    /// The group.
    pub group: GroupKey,
}

fn table(room: usize) -> Table {
    Table::new(Region::heap(Table::region_length(room)), room)
}

impl BlockOwners {
    /// Room for the owners of `blocks` blocks, but for [`BLOCKS`] at most; more than that are
    /// noted, too, at the cost of an allocation whenever their number has doubled. At others' word
    /// ([`BlockOwners::may_note`]), so many are noted at most, or [`BLOCKS`] if that is more.
    pub fn new(blocks: usize, seed: HashSeed) -> Self {
        let room = blocks_at_start(blocks).max(1);
        BlockOwners {
            places: table(room),
            latest: None,
            records: Vec::with_capacity(room),
            free: NONE,
            room,
            sizes: Vec::with_capacity(SIZES),
            most: blocks.max(BLOCKS),
            seed,
            noted: None,
            noted_groups: None,
        }
    }

    /// At others' word, so many blocks are noted at most, if that is more than before.
    pub fn note_more(&mut self, blocks: usize) {
        self.most = self.most.max(blocks);
    }

    /// From now on notes which groups claim or release.
    pub fn note_groups(&mut self) {
        self.noted_groups.get_or_insert_default();
    }

    /// A group that has claimed or released since it was taken last.
    #[inline]
    pub fn take_group(&mut self) -> Option<GroupKey> {
        self.noted_groups.as_mut()?.pop()
    }

    /// From now on notes claims and releases.
    pub fn note_changes(&mut self) {
        self.noted.get_or_insert_default();
    }

    /// Whether changes are noted.
    pub fn is_noting(&self) -> bool {
        self.noted.is_some()
    }

    /// Claims and releases that were noted since this was called last, in order.
    pub fn take_changes(&mut self) -> Vec<BlockChange> {
        self.noted.as_mut().map(core::mem::take).unwrap_or_default()
    }

    /// Whether claims or releases have been noted.
    #[inline]
    pub fn has_changes(&self) -> bool {
        self.noted.as_ref().is_some_and(|noted| !noted.is_empty())
    }

    fn note(&mut self, is_claimed: bool, block: Block, group: GroupKey) {
        if let Some(noted) = &mut self.noted {
            noted.push(BlockChange {
                is_claimed,
                block,
                group,
            });
        }
        if let Some(noted) = &mut self.noted_groups
            && noted.last() != Some(&group)
        {
            noted.push(group);
        }
    }

    /// The same, where [`BlockOwners::of`] will be asked.
    pub fn listed(blocks: usize, seed: HashSeed) -> Self {
        let owners = Self::new(blocks, seed);
        BlockOwners {
            latest: Some(table(owners.room)),
            ..owners
        }
    }

    #[inline]
    fn hash(&self, addr: Addr, first: u16) -> u64 {
        let whole = u128::from_be_bytes(*addr.octets());
        let words = [
            PLACE | u64::from(first) << 32,
            (whole >> 64) as u64,
            whole as u64,
            0,
            0,
        ];
        FlowKey::from_words(words).hash(&self.seed)
    }

    #[inline]
    fn find(&self, addr: Addr, first: u16) -> Option<u32> {
        let is_it = |at: u32| {
            let record = &self.records[at as usize];
            record.first == first && record.addr == addr
        };
        self.places.find(self.hash(addr, first), is_it)
    }

    fn latest_of(&self, group: &GroupKey) -> Option<u32> {
        let is_its = |at: u32| self.records[at as usize].owner == *group;
        self.latest.as_ref()?.find(group.hash(&self.seed), is_its)
    }

    /// Asks the processor for the line by which a group's blocks are found.
    pub fn prefetch(&self, group: &GroupKey) {
        if let Some(latest) = &self.latest {
            latest.prefetch(group.hash(&self.seed));
        }
    }

    /// Asks the processor for the block that a group got last, by all likelihood. The line by which
    /// it is found should have come.
    pub fn prefetch_latest(&self, group: &GroupKey) {
        let latest = self.latest.as_ref();
        let at = latest.and_then(|latest| latest.candidate(group.hash(&self.seed)));
        if let Some(record) = at.and_then(|at| self.records.get(at as usize)) {
            prefetch(core::ptr::from_ref(record));
        }
    }

    /// Asks the processor for the line by which a block is found, or will be.
    pub fn prefetch_place(&self, block: &Block) {
        self.places.prefetch(self.hash(block.addr, block.first));
    }

    /// Notes an owner; `false` (and nothing changes) if another group has the block.
    pub fn claim(&mut self, block: Block, owner: GroupKey) -> bool {
        let size = block.ports.max(1);
        if !self.sizes.contains(&size) {
            self.sizes.push(size);
        }
        if let Some(at) = self.find(block.addr, block.first) {
            return self.records[at as usize].owner == owner;
        }
        let before = self.latest_of(&owner);
        let record = Record {
            owner,
            addr: block.addr,
            first: block.first,
            ports: block.ports,
            before: before.unwrap_or(NONE),
        };
        let at = match self.free {
            NONE => {
                self.records.push(record);
                (self.records.len() - 1) as u32
            }
            at => {
                let place = &mut self.records[at as usize];
                self.free = place.before & !FREE;
                *place = record;
                if let Some(next) = self.records.get(self.free as usize) {
                    prefetch(core::ptr::from_ref(next));
                }
                at
            }
        };
        let hash = self.hash(block.addr, block.first);
        let mut fits = self.places.insert(hash, at).is_ok();
        if let Some(latest) = &mut self.latest {
            let hash = owner.hash(&self.seed);
            if let Some(before) = before {
                latest.remove(hash, before);
            }
            fits &= latest.insert(hash, at).is_ok();
        }
        if !fits {
            self.widen();
        }
        self.note(true, block, owner);
        true
    }

    /// Makes tables with more room, of all records in use.
    #[cold]
    fn widen(&mut self) {
        let mut is_followed = alloc::vec![false; self.records.len()];
        let used = |record: &&Record| record.is_used();
        for record in self.records.iter().filter(used) {
            if let Some(before) = is_followed.get_mut(record.before as usize) {
                *before = true;
            }
        }
        loop {
            self.room *= 2;
            let (mut places, mut latest) = (table(self.room), self.latest.as_ref().map(|_| table(self.room)));
            let mut records = self.records.iter().enumerate();
            let fit = records.all(|(at, record)| {
                let hash = self.hash(record.addr, record.first);
                !record.is_used()
                    || places.insert(hash, at as u32).is_ok()
                        && latest.as_mut().is_none_or(|latest| {
                            is_followed[at] || latest.insert(record.owner.hash(&self.seed), at as u32).is_ok()
                        })
            });
            if fit {
                (self.places, self.latest) = (places, latest);
                return;
            }
        }
    }

    /// Forgets a block's owner, and says which group it was.
    pub fn release(&mut self, block: Block) -> Option<GroupKey> {
        let at = self.find(block.addr, block.first)?;
        let removed = self.places.remove(self.hash(block.addr, block.first), at);
        debug_assert!(removed, "what was found is there");
        let Record { owner, before, .. } = self.records[at as usize];
        if let Some(latest) = self.latest_of(&owner) {
            self.unlist(at, latest, before, &owner);
        }
        self.records[at as usize].before = FREE | self.free;
        self.free = at;
        self.note(false, block, owner);
        Some(owner)
    }

    /// Takes a record out of its group's list, which begins with `latest`.
    fn unlist(&mut self, at: u32, latest: u32, before: u32, owner: &GroupKey) {
        if latest == at {
            let hash = owner.hash(&self.seed);
            if let Some(table) = &mut self.latest {
                table.remove(hash, at);
                let fits = before == NONE || table.insert(hash, before).is_ok();
                debug_assert!(fits, "one has just gone from there");
            }
            return;
        }
        let mut follower = latest;
        while let Some(record) = self.records.get_mut(follower as usize) {
            if record.before == at {
                record.before = before;
                return;
            }
            follower = record.before;
        }
    }

    /// Forgets all owners but those; for a switch, which asks for no group's blocks.
    pub fn retain(&mut self, mut stays: impl FnMut(&GroupKey) -> bool) {
        debug_assert!(self.latest.is_none(), "lists are not kept by this");
        for at in 0..self.records.len() {
            let record = self.records[at];
            if record.is_used() && !stays(&record.owner) {
                self.release(record.block());
            }
        }
    }

    /// Where all blocks begin, in an order that is the same each time.
    pub fn places(&self) -> Vec<(Addr, u16)> {
        let used = self.records.iter().filter(|record| record.is_used());
        let mut places: Vec<_> = used.map(|record| (record.addr, record.first)).collect();
        places.sort_unstable_by_key(|(addr, first)| (*addr.octets(), *first));
        places
    }

    /// How many ports a block that begins there has.
    pub fn size_at(&self, first: u16) -> u16 {
        let sizes = self.sizes.iter().copied();
        sizes
            .into_iter()
            .find(|size| first.is_multiple_of(*size))
            .unwrap_or(1)
    }

    /// The group that has the block that begins there.
    #[inline]
    pub fn at(&self, addr: Addr, first: u16) -> Option<GroupKey> {
        let at = self.find(addr, first)?;
        Some(self.records[at as usize].owner)
    }

    /// The group that has the block in which an endpoint lies.
    #[inline]
    pub fn owner(&self, end: Endpoint) -> Option<GroupKey> {
        self.sizes
            .iter()
            .find_map(|size| self.at(end.addr, end.port - end.port % size))
    }

    /// The blocks of a group, the latest first; none if they are not listed.
    pub fn of(&self, group: &GroupKey) -> impl Iterator<Item = Block> {
        let at = |at: u32| self.records.get(at as usize);
        let latest = self.latest_of(group).and_then(at);
        core::iter::successors(latest, move |record| at(record.before)).map(Record::block)
    }

    /// Whether another worker's word about a block, by which it is noted or gets another owner, may
    /// be heard: it is a block, within an address and where blocks of its size begin; of no more
    /// sizes than chains have, since each is looked for with each packet; and there are not too
    /// many.
    pub fn may_note(&self, block: &Block) -> bool {
        let ports = block.ports.max(1);
        let is_whole =
            block.first.is_multiple_of(ports) && u32::from(block.first) + u32::from(ports) <= 1 << 16;
        let is_known = self.sizes.contains(&ports) || self.sizes.len() < SIZES;
        is_whole && is_known && (self.len() < self.most || self.at(block.addr, block.first).is_some())
    }

    /// How many blocks are noted at most at others' word.
    pub fn most(&self) -> usize {
        self.most
    }

    /// How many blocks have owners.
    pub fn len(&self) -> usize {
        self.places.len()
    }

    /// Whether none has.
    pub fn is_empty(&self) -> bool {
        self.places.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn group(n: u8) -> GroupKey {
        GroupKey::of_address(Addr::v4([10, 0, 0, n]))
    }

    fn block(first: u16, ports: u16) -> Block {
        Block {
            addr: "192.0.2.1".parse().unwrap(),
            first,
            ports,
        }
    }

    #[test]
    fn a_block_has_one_owner() {
        let mut owners = BlockOwners::new(1, HashSeed::FIXED);
        let (block, a, b) = (block(1024, 256), group(1), group(2));
        assert!(owners.claim(block, a));
        assert!(!owners.claim(block, b));
        assert_eq!(owners.owner(Endpoint::new(block.addr, 1279)), Some(a));
        assert_eq!(owners.owner(Endpoint::new(block.addr, 1280)), None);
        owners.release(block);
        assert!(owners.is_empty());
    }

    #[test]
    fn a_group_has_the_blocks_it_claimed_and_not_released() {
        let mut owners = BlockOwners::listed(16, HashSeed::FIXED);
        let mut expected: Vec<(u16, u8)> = Vec::new();
        // Claims and releases in some order, the same block again and again.
        for turn in 0..400_u16 {
            let (n, owner) = (turn * 7 % 16, (turn / 3 % 3) as u8);
            let block = block(64 * n, 64);
            match expected.iter().position(|(has, _)| *has == n) {
                Some(at) if turn % 5 > 1 => {
                    expected.remove(at);
                    owners.release(block);
                }
                Some(at) => assert_eq!(owners.claim(block, group(owner)), expected[at].1 == owner),
                None => {
                    assert!(owners.claim(block, group(owner)));
                    expected.push((n, owner));
                }
            }
            for owner in 0..3 {
                let mut has: Vec<u16> = owners.of(&group(owner)).map(|block| block.first / 64).collect();
                has.reverse();
                let of_it = expected.iter().filter(|(_, of)| *of == owner);
                assert_eq!(has, of_it.map(|(n, _)| *n).collect::<Vec<_>>(), "after {turn}");
            }
        }
    }

    #[test]
    fn more_blocks_than_there_was_room_for_are_noted() {
        let mut owners = BlockOwners::listed(3, HashSeed::FIXED);
        let all: Vec<(Block, GroupKey)> = (0..500)
            .map(|n| (block(64 * n, 64), group((n % 7) as u8)))
            .collect();
        for (at, (block, group)) in all.iter().enumerate() {
            assert!(owners.claim(*block, *group));
            if at % 5 == 4 {
                assert_eq!(owners.release(all[at - 2].0), Some(all[at - 2].1));
            }
        }
        let is_there = |at: usize| at % 5 != 2;
        for (at, (block, group)) in all.iter().enumerate() {
            let owner = owners.at(block.addr, block.first);
            assert_eq!(owner, is_there(at).then_some(*group), "{at}");
        }
        for owner in 0..7 {
            let mut has: Vec<Block> = owners.of(&group(owner)).collect();
            has.reverse();
            let of_it = all
                .iter()
                .enumerate()
                .filter(|(at, (_, of))| is_there(*at) && *of == group(owner));
            assert_eq!(has, of_it.map(|(_, (block, _))| *block).collect::<Vec<_>>());
        }
        assert_eq!(owners.len(), 400);
    }

    #[test]
    fn what_does_not_stay_is_forgotten() {
        let mut owners = BlockOwners::new(16, HashSeed::FIXED);
        for n in 0..16 {
            owners.claim(block(64 * n, 64), group((n % 3) as u8));
        }
        owners.retain(|owner| *owner != group(1));
        let stays: Vec<u16> = (0..16).filter(|n| n % 3 != 1).map(|n| 64 * n).collect();
        assert_eq!(
            owners
                .places()
                .iter()
                .map(|(_, first)| *first)
                .collect::<Vec<_>>(),
            stays
        );
    }
}
