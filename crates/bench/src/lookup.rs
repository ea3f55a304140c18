//! Finding the values of a burst's packets: the part that baselines and floors share with the
//! worker.
//!
//! The same table, key, hash and prefetching: parse and hash all, prefetch buckets, take the
//! candidates, prefetch what they name, compare keys. Written as lean as can be, since others are
//! compared with it.

use super::Memory;
use arrayvec::ArrayVec;
use runtime::BURST;
use runtime::table::Table;
use wire::memory::{Array, prefetch};
use wire::{FlowKey, HashSeed, PacketBox};

/// A value that has a key.
pub(super) trait Keyed: Copy {
    /// The key.
    fn key(&self) -> &FlowKey;
}

/// Things that are found by their keys.
pub(super) struct Lookup<T: Keyed> {
    table: Table,
    slots: Array<T>,
}

/// A packet of the burst before its slot is known.
#[derive(Clone, Copy)]
struct Lane {
    key: FlowKey,
    hash: u64,
    candidate: u32,
}

impl<T: Keyed> Lookup<T> {
    /// Room for so many things, in a table of the size that the runtime makes for as many flows.
    pub fn new(count: u32, empty: T, memory: &Memory) -> Self {
        let entries = 2 * count as usize;
        Lookup {
            table: Table::new(memory.region(Table::region_length(entries)), entries),
            slots: memory.array(count as usize, empty),
        }
    }

    /// Puts a thing at an index.
    pub fn put(&mut self, index: u32, thing: T) {
        self.table
            .insert(thing.key().hash(&HashSeed::FIXED), index)
            .expect("there is room");
        self.slots[index as usize] = thing;
    }

    /// The value at an index.
    pub fn at(&mut self, index: u32) -> &mut T {
        &mut self.slots[index as usize]
    }

    /// Calls `each` with every packet of a burst and what its key finds.
    #[inline(always)]
    pub fn each(&mut self, packets: &mut [PacketBox], mut each: impl FnMut(&mut PacketBox, &mut T)) {
        let mut lanes = ArrayVec::<Lane, BURST>::new();
        for packet in packets.iter_mut() {
            let _ = wire::parse(packet);
            let (key, _) = FlowKey::of(packet).expect("the benchmark's packets are good");
            let hash = key.hash(&HashSeed::FIXED);
            self.table.prefetch(hash);
            lanes.push(Lane {
                key,
                hash,
                candidate: 0,
            });
        }
        for lane in lanes.iter_mut() {
            lane.candidate = self.table.candidate(lane.hash).unwrap_or(0);
            let start = std::ptr::from_ref(&self.slots[lane.candidate as usize]).cast::<u8>();
            for line in 0..size_of::<T>().div_ceil(64) {
                prefetch(start.wrapping_add(64 * line));
            }
        }
        for (packet, lane) in packets.iter_mut().zip(lanes.iter()) {
            let mut found = lane.candidate as usize;
            if *self.slots[found].key() != lane.key {
                let slots = &self.slots;
                let right = self
                    .table
                    .find(lane.hash, |index| *slots[index as usize].key() == lane.key);
                found = right.expect("every flow of the benchmark is there") as usize;
            }
            each(packet, &mut self.slots[found]);
        }
    }
}
