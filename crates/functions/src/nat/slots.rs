//! The blocks in use: which of their ports are taken, and which comes next.
//!
//! A block in use has a *slot*: a bitmap for each of TCP, UDP and ICMP, a cursor into each, and an
//! order drawn at random when the block is taken, so that outsiders that see some ports cannot
//! guess the next (RFC 6056). The cursor goes round, so a freed port is the last to be used again.
//! The order is a permutation of the block's ports ([`Order`]):
//!
//! ```text
//!   index   …  │ p        port − first   …  │ p ^ flip
//!           └──┴────── mixed by a key, another for odd ones ──────┘
//! ```
//!
//! Neighbours in it differ in parity, so the ports of a wanted parity (RFC 4787 REQ-4) are every
//! second bit of the bitmap.
//!
//! Invariants: a port is taken once until it is given back (checked in `tests` against an oracle);
//! a slot's `used` is the number of bits set.
//!
//! Not here: whose a block is (`ports`).

use super::alloc::vec::Vec;
use core::ops::Range;

/// Protocols whose ports are counted apart.
pub(super) const SPACES: usize = 3;

/// A block in use.
#[derive(Clone, Copy, Default)]
struct Slot {
    block: u32,
    next_free: u32,
    used: [u16; SPACES],
    cursor: [u16; SPACES],
    order: Order,
    /// The inverse of the order, for even and odd indices: made once, since it takes longer than
    /// all else that is done with a port.
    undo: [[u16; 3]; 2],
}

/// A permutation of a block's ports, by a key: sums, products with odd numbers and shifts, each of
/// which can be undone. Not cryptography: it has steps that differ, where one step for all would
/// tell the third port from two.
#[derive(Clone, Copy, Default)]
struct Order(u64);

impl Order {
    /// Whether odd indices have even ports.
    fn flip(self) -> u16 {
        (self.0 >> 63) as u16
    }

    /// The key's parts for indices of a parity.
    fn parts(self, parity: u16) -> [u16; 4] {
        let key = self.0.rotate_left(u32::from(parity) * 24);
        [0, 16, 32, 48].map(|at| (key >> at) as u16)
    }

    /// The place in a block of `size` ports of an index.
    fn place(self, index: u16, size: u16) -> u16 {
        let (mask, shift) = half(size);
        let [first, second, third, fourth] = self.parts(index & 1);
        let x = (index >> 1).wrapping_add(first).wrapping_mul(second | 1) & mask;
        let x = (x ^ x >> shift).wrapping_mul(third | 1).wrapping_add(fourth) & mask;
        let x = (x ^ x >> shift).wrapping_mul(fourth | 1).wrapping_add(second) & mask;
        x << 1 | (index & 1) ^ self.flip()
    }

    /// The inverses of the factors, in the order in which they are undone, for even and odd
    /// indices.
    fn undo(self) -> [[u16; 3]; 2] {
        [0, 1].map(|parity| {
            let [_, second, third, fourth] = self.parts(parity);
            [fourth, third, second].map(|factor| inverse(factor | 1))
        })
    }

    /// The index of a place.
    fn index(self, undo: &[[u16; 3]; 2], place: u16, size: u16) -> u16 {
        let (mask, shift) = half(size);
        let parity = (place & 1) ^ self.flip();
        let [first, second, _, fourth] = self.parts(parity);
        let undo = &undo[usize::from(parity & 1)];
        let x = (place >> 1).wrapping_sub(second).wrapping_mul(undo[0]) & mask;
        // A shift of half the bits or more undoes itself.
        let x = (x ^ x >> shift).wrapping_sub(fourth).wrapping_mul(undo[1]) & mask;
        let x = (x ^ x >> shift).wrapping_mul(undo[2]).wrapping_sub(first) & mask;
        x << 1 | parity
    }
}

/// Words of a bitmap of a block's ports.
fn words_of_space(size: u16) -> usize {
    usize::from(size).div_ceil(64)
}

/// The bits that number half the ports of a block, and half of how many they are, rounded up.
fn half(size: u16) -> (u16, u32) {
    let mask = (size / 2).max(1) - 1;
    (mask, mask.count_ones().div_ceil(2))
}

/// The slots of one instance. Numbers count from 1; 0 is none.
pub(super) struct Slots {
    slots: Vec<Slot>,
    words: Vec<u64>,
    free: u32,
    max: usize,
    /// Ports per block.
    size: u16,
}

impl Slots {
    /// Room for `max` blocks of `size` ports.
    pub fn new(max: usize, size: u16) -> Self {
        let words_per_slot = words_of_space(size) * SPACES;
        let mut slots = Vec::with_capacity(max + 1);
        slots.push(Slot::default());
        let mut words = Vec::with_capacity((max + 1) * words_per_slot);
        words.resize(words_per_slot, 0);
        Slots {
            slots,
            words,
            free: 0,
            max,
            size,
        }
    }

    /// A slot for a block, all its ports free, in an order by `random`; `None` if there is no room.
    pub fn open(&mut self, block: u32, random: u64) -> Option<usize> {
        let at = if self.free != 0 {
            let at = self.free as usize;
            self.free = self.slots[at].next_free;
            let words = self.words_of(at);
            self.words[words].fill(0);
            at
        } else if self.slots.len() <= self.max {
            let at = self.slots.len();
            self.slots.push(Slot::default());
            let end = self.words_of(at).end;
            self.words.resize(end, 0);
            at
        } else {
            return None;
        };
        let start = (random >> 7) as u16 & (self.size - 1);
        // A single port has no place to change with.
        let random = if self.size == 1 {
            random & u64::MAX >> 1
        } else {
            random
        };
        self.slots[at] = Slot {
            block,
            order: Order(random),
            undo: Order(random).undo(),
            cursor: [start; SPACES],
            ..Slot::default()
        };
        Some(at)
    }

    /// Room for `max` blocks, if that is more than there was.
    pub fn widen(&mut self, max: usize) {
        // Blocks in use keep their slots, though fewer may be allowed from now on.
        self.max = self.max.max(max);
        self.slots
            .reserve_exact((self.max + 1).saturating_sub(self.slots.len()));
        let words = (self.max + 1) * (words_of_space(self.size) * SPACES);
        self.words.reserve_exact(words.saturating_sub(self.words.len()));
    }

    /// The block of a slot in use has this number from now on.
    pub fn renumber(&mut self, at: usize, block: u32) {
        self.slots[at].block = block;
    }

    /// The slot is free again. Answers its block.
    pub fn close(&mut self, at: usize) -> u32 {
        self.slots[at].next_free = self.free;
        self.free = at as u32;
        self.slots[at].block
    }

    /// Whether none of the ports is taken.
    pub fn is_empty(&self, at: usize) -> bool {
        let [tcp, udp, icmp] = self.slots[at].used;
        [tcp, udp] == [0; 2] && (icmp == 0 || wire::planted::is("icmp_block_counts_as_empty"))
    }

    fn words_of(&self, slot: usize) -> Range<usize> {
        let count = words_of_space(self.size) * SPACES;
        slot * count..(slot + 1) * count
    }

    fn space_words(&self, slot: usize, space: usize) -> Range<usize> {
        let count = words_of_space(self.size);
        let start = slot * count * SPACES + space * count;
        start..start + count
    }

    /// Word and bit of a port.
    fn bit(&self, slot: usize, port: u16, space: usize) -> (usize, u64) {
        let has = &self.slots[slot];
        let index = has.order.index(&has.undo, port & (self.size - 1), self.size);
        self.bit_at(slot, index, space)
    }

    /// Word and bit of a port's index.
    fn bit_at(&self, slot: usize, index: u16, space: usize) -> (usize, u64) {
        let word = self.space_words(slot, space).start + usize::from(index / 64);
        (word, 1 << (index % 64))
    }

    /// Takes a port; `false` if it is taken.
    pub fn take(&mut self, slot: usize, port: u16, space: usize) -> bool {
        let (word, bit) = self.bit(slot, port, space);
        if self.words[word] & bit != 0 {
            return false;
        }
        self.words[word] |= bit;
        self.slots[slot].used[space] += 1;
        true
    }

    /// Gives a port back; `false` if it was free, as that of a mapping may be that came from
    /// another process.
    pub fn give(&mut self, slot: usize, port: u16, space: usize) -> bool {
        let (word, bit) = self.bit(slot, port, space);
        if self.words[word] & bit == 0 {
            return false;
        }
        self.words[word] &= !bit;
        self.slots[slot].used[space] -= 1;
        true
    }

    /// Takes the next free port in the block's order, odd or even if that matters, and answers its
    /// place in the block.
    pub fn take_next(&mut self, slot: usize, space: usize, odd: Option<bool>) -> Option<u16> {
        let s = self.slots[slot];
        if s.used[space] >= self.size {
            return None;
        }
        // The first port of a block is even.
        let allowed = match odd.map(|odd| odd ^ (s.order.flip() == 1)) {
            None => u64::MAX,
            Some(false) => 0x5555_5555_5555_5555,
            Some(true) => 0xaaaa_aaaa_aaaa_aaaa,
        };
        // A block smaller than a word has the word's first bits.
        let allowed = allowed & u64::MAX >> 64u16.saturating_sub(self.size);
        let words = &self.words[self.space_words(slot, space)];
        let (start, within) = (usize::from(s.cursor[space] / 64), s.cursor[space] % 64);
        let mut found = None;
        // The first word twice: its bits behind the cursor first, those before it last.
        for turn in 0..=words.len() {
            let at = (start + turn) % words.len();
            let behind = if turn == 0 { u64::MAX << within } else { u64::MAX };
            let free = !words[at] & allowed & behind;
            if free != 0 {
                found = Some((at * 64) as u16 + free.trailing_zeros() as u16);
                break;
            }
        }
        let index = found?;
        let place = s.order.place(index, self.size);
        if wire::planted::is("port_given_twice") {
            return Some(place);
        }
        self.slots[slot].cursor[space] = (index + 1) & (self.size - 1);
        let (word, bit) = self.bit_at(slot, index, space);
        self.words[word] |= bit;
        self.slots[slot].used[space] += 1;
        Some(place)
    }

    /// Capacities of what could grow.
    #[cfg(test)]
    pub fn capacities(&self) -> [usize; 2] {
        [self.slots.capacity(), self.words.capacity()]
    }
}

/// The inverse of an odd number modulo 2¹⁶, by Newton's iteration: each step doubles the bits that
/// are right, of which there are five at first.
fn inverse(odd: u16) -> u16 {
    let mut x = odd.wrapping_mul(3) ^ 2;
    for _ in 0..2 {
        x = x.wrapping_mul(2u16.wrapping_sub(odd.wrapping_mul(x)));
    }
    x
}

#[cfg(test)]
mod unit {
    use super::super::alloc::vec::Vec;
    use super::{Order, Slots};

    /// A key was drawn once whose order was the ports' own.
    #[test]
    fn no_order_has_a_step_that_tells_the_next_port() {
        let mut random = 1u64;
        for _ in 0..20_000 {
            random = random
                .wrapping_mul(0x5851_f42d_4c95_7f2d)
                .wrapping_add(0x1405_7b7e_f767_814f);
            let order = Order(random ^ random >> 29);
            let places: Vec<u16> = (0..64).map(|index| order.place(index, 256)).collect();
            let steps: Vec<u16> = places
                .windows(2)
                .map(|pair| pair[1].wrapping_sub(pair[0]) & 255)
                .collect();
            let most = steps
                .iter()
                .map(|step| steps.iter().filter(|other| *other == step).count())
                .max();
            assert!(most.unwrap() <= 32, "{random:#x}: {places:?}");
        }
    }

    #[test]
    fn an_odd_number_has_an_inverse() {
        for odd in (1..=u16::MAX).step_by(2) {
            assert_eq!(odd.wrapping_mul(super::inverse(odd)), 1);
        }
    }

    #[test]
    fn a_block_of_one_port_has_one() {
        for random in [0, u64::MAX, 0x1234_5678_9abc_def0] {
            let mut slots = Slots::new(1, 1);
            let at = slots.open(7, random).unwrap();
            assert_eq!(slots.take_next(at, 1, None), Some(0));
            assert_eq!(slots.take_next(at, 1, None), None);
            assert!(slots.take(at, 77, 0) && !slots.take(at, 77, 0));
            assert!(slots.give(at, 77, 1));
            assert_eq!(slots.take_next(at, 1, None), Some(0));
        }
    }

    #[test]
    fn every_port_comes_once_then_none_then_the_one_given_back() {
        for (size, random) in [
            (2, u64::MAX),
            (4, 7),
            (32, 1 << 63),
            (64, 0),
            (256, 0x1234_5678_9abc_def0),
            (32768, u64::MAX),
        ] {
            let mut slots = Slots::new(1, size);
            let at = slots.open(7, random).unwrap();
            assert!(slots.open(8, random).is_none());
            let mut all: Vec<u16> = (0..size).map(|_| slots.take_next(at, 1, None).unwrap()).collect();
            assert_eq!(slots.take_next(at, 1, None), None);
            let some = all[all.len() - 1];
            assert!(slots.give(at, some, 1));
            assert_eq!(slots.take_next(at, 1, Some(some.is_multiple_of(2))), None);
            assert_eq!(slots.take_next(at, 1, Some(!some.is_multiple_of(2))), Some(some));
            all.sort_unstable();
            assert!(all.iter().copied().eq(0..size));
            assert_eq!(slots.close(at), 7);
            assert!(slots.open(8, random).is_some_and(|at| slots.is_empty(at)));
        }
    }
}
