//! The flow table: from a hash to the actors whose key may have it.
//!
//! # Theory of operation
//!
//! A bucket is one cache line with eight entries: a 16-bit tag each, compared all at once, and a
//! 32-bit value (the actor's index and which of its keys). The key itself is in the actor, whose
//! line is needed anyway. So a look-up costs one line of table, which the worker prefetches for a
//! whole burst, and hardly ever fetches an actor in vain (a false tag match has odds of 8 in
//! 32,768).
//!
//! An entry lives in its *home* bucket; if that is full, *displaced* in the one other bucket that
//! its tag names. A home bucket counts its displaced entries: while the count is zero, which is
//! nearly always, a look-up goes no further. When both buckets are full, entries in them are moved
//! to *their* other bucket until there is room; only if that fails as well is the table full, which
//! at the table's design load (five of eight) is a matter of billions of inserts.
//!
//! ```text
//! hash ──┬─ low bits ──► home bucket ──(full: count it)──► home ^ spread(tag)
//!        └─ top 15 bits ► tag
//! ```
//!
//! Invariants: an entry is in exactly one bucket; a home's `displaced` equals the number of its
//! entries elsewhere; the number of entries never exceeds what [`Table::new`] was made for.
//!
//! Not here: keys, and what an entry's value means.

use wire::memory::{Region, prefetch};

const ENTRIES: usize = 8;

#[repr(C, align(64))]
struct Bucket {
    /// 15 bits of hash and, lowest, whether the entry is displaced; 0 for an empty entry.
    tags: [u16; ENTRIES],
    values: [u32; ENTRIES],
    /// Entries whose home this is and that had to go elsewhere.
    displaced: u32,
    reserved: [u32; 3],
}

const _: () = assert!(size_of::<Bucket>() == 64);

/// The table is full: no room in either bucket of a key, nor can any be made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Full;

/// A hash table of 32-bit values. See the module's page.
pub struct Table {
    region: Region,
    mask: u64,
    entries: usize,
    capacity: usize,
}

impl Table {
    fn buckets_for(capacity: usize) -> usize {
        capacity.div_ceil(5).next_power_of_two().max(16)
    }

    /// Bytes of zeroed region for a table of up to `capacity` entries.
    pub fn region_length(capacity: usize) -> usize {
        Self::buckets_for(capacity) * size_of::<Bucket>()
    }

    /// A table for up to `capacity` entries in a zeroed region.
    ///
    /// # Panics
    /// If the region is smaller than [`Table::region_length`].
    pub fn new(region: Region, capacity: usize) -> Self {
        assert!(
            region.length() >= Self::region_length(capacity),
            "the region is too small for the table"
        );
        Table {
            region,
            mask: Self::buckets_for(capacity) as u64 - 1,
            entries: 0,
            capacity,
        }
    }

    #[inline(always)]
    fn bucket_ptr(&self, index: u64) -> *mut Bucket {
        // In bounds: every index was masked, and the region holds mask + 1 buckets.
        self.region
            .start()
            .as_ptr()
            .cast::<Bucket>()
            .wrapping_add(index as usize)
    }

    #[inline(always)]
    fn bucket(&self, index: u64) -> &Bucket {
        // SAFETY: in bounds (see `bucket_ptr`); zeroed memory is a bucket; `&self` keeps writers
        // away.
        unsafe { &*self.bucket_ptr(index & self.mask) }
    }

    #[inline(always)]
    fn bucket_mut(&mut self, index: u64) -> &mut Bucket {
        // SAFETY: as above, and `&mut self` makes it the only reference.
        unsafe { &mut *self.bucket_ptr(index & self.mask) }
    }

    #[inline(always)]
    fn home(&self, hash: u64) -> u64 {
        hash & self.mask
    }

    /// The tag of an entry at home: never zero, lowest bit clear.
    #[inline(always)]
    fn tag(hash: u64) -> u16 {
        let tag = (hash >> 48) as u16 & !1;
        if tag == 0 { 2 } else { tag }
    }

    /// The other bucket of an entry: the same step leads back.
    #[inline(always)]
    fn other(&self, bucket: u64, tag: u16) -> u64 {
        let step = (u64::from(tag >> 1).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 20) & self.mask;
        bucket ^ if step == 0 { 1 } else { step }
    }

    /// Asks the processor for the line that a look-up of `hash` begins with.
    #[inline(always)]
    pub fn prefetch(&self, hash: u64) {
        prefetch(self.bucket_ptr(self.home(hash)));
    }

    /// The first value whose tag agrees, to prefetch what it names. It may be another key's, and
    /// the right one may be elsewhere: [`Table::find`] decides.
    #[inline(always)]
    pub fn candidate(&self, hash: u64) -> Option<u32> {
        let bucket = self.bucket(self.home(hash));
        let matches = matching(&bucket.tags, Self::tag(hash));
        if matches != 0 {
            Some(bucket.values[matches.trailing_zeros() as usize])
        } else {
            None
        }
    }

    /// The value for which `is_it` holds.
    #[inline]
    pub fn find(&self, hash: u64, mut is_it: impl FnMut(u32) -> bool) -> Option<u32> {
        let (home, tag) = (self.home(hash), Self::tag(hash));
        let bucket = self.bucket(home);
        if let Some(slot) = find_in(bucket, tag, &mut is_it) {
            return Some(bucket.values[slot]);
        }
        if bucket.displaced == 0 {
            return None;
        }
        let bucket = self.bucket(self.other(home, tag));
        find_in(bucket, tag | 1, &mut is_it).map(|slot| bucket.values[slot])
    }

    /// Adds an entry. The caller knows that it is not there yet.
    pub fn insert(&mut self, hash: u64, value: u32) -> Result<(), Full> {
        if self.entries == self.capacity {
            return Err(Full);
        }
        let (home, tag) = (self.home(hash), Self::tag(hash));
        let other = self.other(home, tag);
        if self.put(home, tag, value) {
            self.entries += 1;
            return Ok(());
        }
        if !self.put(other, tag | 1, value) {
            if self.make_room(home) {
                let put = self.put(home, tag, value);
                debug_assert!(put);
                self.entries += 1;
                return Ok(());
            }
            if !self.make_room(other) {
                return Err(Full);
            }
            let put = self.put(other, tag | 1, value);
            debug_assert!(put);
        }
        self.bucket_mut(home).displaced += 1;
        self.entries += 1;
        Ok(())
    }

    fn put(&mut self, bucket: u64, tag: u16, value: u32) -> bool {
        let bucket = self.bucket_mut(bucket);
        let empty = matching(&bucket.tags, 0);
        if empty == 0 {
            return false;
        }
        let slot = empty.trailing_zeros() as usize;
        bucket.tags[slot] = tag;
        bucket.values[slot] = value;
        true
    }

    /// Moves one entry of a full bucket to its other bucket.
    #[cold]
    fn make_room(&mut self, full: u64) -> bool {
        for slot in 0..ENTRIES {
            let (tag, value) = (self.bucket(full).tags[slot], self.bucket(full).values[slot]);
            let other = self.other(full, tag & !1);
            if !self.put(other, tag ^ 1, value) {
                continue;
            }
            self.bucket_mut(full).tags[slot] = 0;
            // An entry that was at home here is displaced now; an entry that was displaced here is
            // home again.
            if tag & 1 == 0 {
                self.bucket_mut(full).displaced += 1;
            } else {
                self.bucket_mut(other).displaced -= 1;
            }
            return true;
        }
        false
    }

    /// Takes the entry with this value out; `false` if it is not there.
    pub fn remove(&mut self, hash: u64, value: u32) -> bool {
        let (home, tag) = (self.home(hash), Self::tag(hash));
        if let Some(slot) = find_in(self.bucket(home), tag, &mut |v| v == value) {
            self.bucket_mut(home).tags[slot] = 0;
            self.entries -= 1;
            return true;
        }
        let other = self.other(home, tag);
        let Some(slot) = find_in(self.bucket(other), tag | 1, &mut |v| v == value) else {
            return false;
        };
        self.bucket_mut(other).tags[slot] = 0;
        self.bucket_mut(home).displaced -= 1;
        self.entries -= 1;
        true
    }

    /// How many entries there are.
    pub fn len(&self) -> usize {
        self.entries
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.entries == 0
    }
}

/// A bit for each tag that equals `tag`.
#[inline(always)]
fn matching(tags: &[u16; ENTRIES], tag: u16) -> u32 {
    #[cfg(target_arch = "x86_64")]
    {
        use core::arch::x86_64::{
            _mm_cmpeq_epi16, _mm_movemask_epi8, _mm_packs_epi16, _mm_set1_epi16, _mm_setzero_si128,
        };
        // SAFETY: any 16 bytes are a vector.
        let tags: core::arch::x86_64::__m128i = unsafe { core::mem::transmute(*tags) };
        // SAFETY: SSE2 belongs to every x86-64 processor.
        unsafe {
            let equal = _mm_cmpeq_epi16(tags, _mm_set1_epi16(tag as i16));
            _mm_movemask_epi8(_mm_packs_epi16(equal, _mm_setzero_si128())) as u32
        }
    }
    #[cfg(not(target_arch = "x86_64"))]
    {
        let mut bits = 0;
        for (slot, have) in tags.iter().enumerate() {
            bits |= u32::from(*have == tag) << slot;
        }
        bits
    }
}

#[inline(always)]
fn find_in(bucket: &Bucket, tag: u16, is_it: &mut impl FnMut(u32) -> bool) -> Option<usize> {
    let mut matches = matching(&bucket.tags, tag);
    while matches != 0 {
        let slot = matches.trailing_zeros() as usize;
        if is_it(bucket.values[slot]) {
            return Some(slot);
        }
        matches &= matches - 1;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::HashMap;
    use std::vec::Vec;

    fn table(capacity: usize) -> Table {
        Table::new(Region::heap(Table::region_length(capacity)), capacity)
    }

    fn mix(n: u64) -> u64 {
        let mut x = n.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        x ^= x >> 32;
        x = x.wrapping_mul(0xd1b5_4a32_d192_ed03);
        x ^ (x >> 29)
    }

    #[test]
    fn a_table_takes_its_whole_capacity() {
        // Miri takes an hour over the larger ones.
        let capacities: &[usize] = if cfg!(miri) {
            &[1, 80]
        } else {
            &[1, 80, 5_000, 163_840]
        };
        for &capacity in capacities {
            let mut table = table(capacity);
            for n in 0..capacity {
                assert_eq!(
                    table.insert(mix(n as u64), n as u32),
                    Ok(()),
                    "entry {n} of {capacity}"
                );
            }
            assert_eq!(table.insert(mix(capacity as u64), 0), Err(Full));
            for n in 0..capacity {
                assert_eq!(table.find(mix(n as u64), |v| v == n as u32), Some(n as u32));
            }
            for n in 0..capacity {
                assert!(table.remove(mix(n as u64), n as u32));
            }
            assert!(table.is_empty());
            for index in 0..=table.mask {
                let bucket = table.bucket(index);
                assert_eq!((bucket.tags, bucket.displaced), ([0; 8], 0));
            }
        }
    }

    proptest! {
        #[test]
        fn agrees_with_a_map(operations in proptest::collection::vec((any::<bool>(), 0u64..200, 0u64..4), 0..600)) {
            // Few buckets and clustered hashes, so that displacement and moves happen all the time.
            let mut table = table(100);
            let mut map: HashMap<u64, u32> = HashMap::new();
            let hash = |key: u64, cluster: u64| (mix(key) & 0xffff_0000_0000_0000) | cluster;
            for (insert, key, cluster) in operations {
                let key = key * 4 + cluster;
                let h = hash(key, cluster);
                let value = key as u32;
                if insert && !map.contains_key(&key) {
                    if table.insert(h, value).is_ok() {
                        map.insert(key, value);
                    }
                } else if !insert {
                    prop_assert_eq!(table.remove(h, value), map.remove(&key).is_some());
                }
                prop_assert_eq!(table.len(), map.len());
            }
            let keys: Vec<u64> = map.keys().copied().collect();
            for key in keys {
                let value = key as u32;
                prop_assert_eq!(table.find(hash(key, key % 4), |v| v == value), Some(value));
            }
        }
    }
}
