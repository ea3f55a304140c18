//! Names of states.

use std::hash::{Hash, Hasher};

/// One pass over a state gives a name of 128 bits.
struct Namer(u64, u64);

impl Hasher for Namer {
    fn finish(&self) -> u64 {
        self.0
    }
    fn write(&mut self, bytes: &[u8]) {
        let (words, rest) = bytes.as_chunks::<8>();
        words
            .iter()
            .for_each(|word| self.write_u64(u64::from_le_bytes(*word)));
        let mut last = [0; 8];
        last[..rest.len()].copy_from_slice(rest);
        if !rest.is_empty() {
            self.write_u64(u64::from_le_bytes(last));
        }
    }
    fn write_u8(&mut self, word: u8) {
        self.write_u64(u64::from(word));
    }
    fn write_u32(&mut self, word: u32) {
        self.write_u64(u64::from(word));
    }
    fn write_usize(&mut self, word: usize) {
        self.write_u64(word as u64);
    }
    fn write_u64(&mut self, word: u64) {
        let fold = |state: u64, by: u64| {
            let product = u128::from(state ^ word).wrapping_mul(u128::from(by));
            (product as u64) ^ (product >> 64) as u64
        };
        self.0 = fold(self.0, 0x9e37_79b9_7f4a_7c15).wrapping_add(0x1234_5678_9abc_def1);
        self.1 = fold(self.1, 0xd6e8_feb8_6659_fd93).wrapping_add(0x0fed_cba9_8765_4321);
    }
}

pub(super) fn name_of(what: &impl Hash) -> u128 {
    let mut namer = Namer(0x243f_6a88_85a3_08d3, 0x1319_8a2e_0370_7344);
    what.hash(&mut namer);
    u128::from(namer.0) << 64 | u128::from(namer.1)
}
