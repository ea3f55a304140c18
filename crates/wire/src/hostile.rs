//! Packets that lie, for tests: valid ones of every shape, and ways to break them.
//!
//! Everything follows from a seed, so a failure is repeated by its seed and number.
//!
//! ```text
//!   valid: link layer ∘ (IPv4 options | IPv6 chain) ∘ fragment? ∘ transport ∘ payload, checksums right
//!   broken: valid → cut, lengthened, bits flipped, a length or protocol field replaced, IPv4 without a length, a piece
//!           inserted, taken out or repeated, two packets spliced; or endless chains, stacked tags, noise
//! ```
//!
//! [`packets`] gives both, about one valid in six: a function under such a flood must still serve
//! them. [`valid`] gives the valid ones alone; [`parse`](crate::parse::parse) takes each, and
//! [`checksums_valid`](crate::Packet::checksums_valid) agrees (`tests::the_valid_ones_are_valid`).
//!
//! Not here: floods of one kind (the generator port), captures.

use crate::LinkType;
use crate::link::parse_link;
use alloc::vec::Vec;

mod valid;

/// A seeded xorshift64* generator (Vigna 2016): small, and good enough to choose bytes.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// A generator; equal seeds give equal numbers.
    pub fn new(seed: u64) -> Self {
        // Neighbouring seeds would begin alike, and zero would stay zero.
        Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ 0xd1b5_4a32_d192_ed03 | 1)
    }

    /// The next number.
    pub fn next_u64(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    /// A number below `bound`; 0 if that is 0.
    pub fn below(&mut self, bound: usize) -> usize {
        ((u128::from(self.next_u64()) * bound as u128) >> 64) as usize
    }

    /// True once in `n` times.
    pub fn once_in(&mut self, n: usize) -> bool {
        self.below(n) == 0
    }

    /// A byte.
    pub fn byte(&mut self) -> u8 {
        (self.next_u64() >> 56) as u8
    }

    /// `N` bytes.
    pub fn array<const N: usize>(&mut self) -> [u8; N] {
        core::array::from_fn(|_| self.byte())
    }

    /// `count` bytes.
    pub fn bytes(&mut self, count: usize) -> Vec<u8> {
        (0..count).map(|_| self.byte()).collect()
    }

    /// One of `choices`.
    ///
    /// # Panics
    /// If there is none.
    pub fn of<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.below(choices.len())]
    }
}

const LINKS: [LinkType; 8] = [
    LinkType::Ethernet,
    LinkType::Ethernet,
    LinkType::Ethernet,
    LinkType::Ethernet,
    LinkType::Raw,
    LinkType::Loopback,
    LinkType::LinuxSll,
    LinkType::LinuxSll2,
];

/// `count` frames, valid and broken.
pub fn packets(seed: u64, count: usize) -> impl Iterator<Item = (LinkType, Vec<u8>)> {
    let mut random = Random::new(seed);
    (0..count).map(move |_| packet(&mut random))
}

/// `count` valid frames: every one parses, and its checksums are right.
pub fn valid(seed: u64, count: usize) -> impl Iterator<Item = (LinkType, Vec<u8>)> {
    let mut random = Random::new(seed);
    (0..count).map(move |_| valid::frame(&mut random))
}

/// One frame, valid or broken.
pub fn packet(random: &mut Random) -> (LinkType, Vec<u8>) {
    match random.below(18) {
        0 => {
            let length = random.below(200);
            (random.of(&LINKS), random.bytes(length))
        }
        1 => endless_chain(random),
        2 => stacked_tags(random),
        3..=5 => valid::frame(random),
        _ => {
            let (link, mut frame) = valid::frame(random);
            for _ in 0..=random.below(3) {
                break_frame(random, link, &mut frame);
            }
            (link, frame)
        }
    }
}

/// Breaks a frame in one way.
pub fn break_frame(random: &mut Random, link: LinkType, frame: &mut Vec<u8>) {
    match random.below(10) {
        0 => {
            let length = random.below(frame.len() + 1);
            frame.truncate(length);
        }
        1 => {
            for _ in 0..=random.below(8) {
                let at = random.below(frame.len());
                if let Some(byte) = frame.get_mut(at) {
                    *byte ^= 1 << random.below(8);
                }
            }
        }
        2 | 3 => lie(random, link, frame),
        4 => {
            let junk = random.below(64);
            frame.extend(random.bytes(junk));
        }
        5 => {
            // A piece again: overlapping and repeated headers.
            let from = random.below(frame.len());
            let to = (from + random.below(64)).min(frame.len());
            let piece = frame[from..to].to_vec();
            let at = random.below(frame.len() + 1);
            frame.splice(at..at, piece);
        }
        6 => {
            let from = random.below(frame.len());
            let to = (from + random.below(16)).min(frame.len());
            frame.drain(from..to);
        }
        7 => {
            let (_, other) = valid::frame(random);
            let at = random.below(frame.len().min(other.len()) + 1);
            frame.truncate(at);
            frame.extend(&other[at..]);
        }
        8 => {
            // IPv4 without a length, as before a device that cuts segments.
            if let Ok(found) = parse_link(frame, link)
                && found.ether_type == 0x0800
                && let Some(total) = frame.get_mut(found.network + 2..found.network + 4)
            {
                total.fill(0);
            }
        }
        _ => {
            let (at, length) = (random.below(frame.len()), random.below(9));
            let noise = random.bytes(length);
            for (byte, noise) in frame.iter_mut().skip(at).zip(noise) {
                *byte = noise;
            }
        }
    }
}

/// Replaces a field that others are found by: a length, an offset, a protocol.
fn lie(random: &mut Random, link: LinkType, frame: &mut [u8]) {
    let network = match link {
        LinkType::Raw => 0,
        LinkType::Loopback => 4,
        LinkType::LinuxSll => 16,
        LinkType::LinuxSll2 => 20,
        LinkType::Ethernet => 14 + 4 * random.below(3),
    };
    // Version and header length, total length, fragment, protocol; the same of IPv6; lengths in the
    // first extension, in UDP, TCP's data offset, behind either version.
    let at = network
        + random.of(&[
            0, 2, 3, 4, 5, 6, 7, 9, 20, 21, 24, 25, 32, 33, 40, 41, 42, 43, 44, 45, 48, 49, 52, 53, 61, 73,
        ]);
    if let Some(byte) = frame.get_mut(at) {
        *byte = match random.below(4) {
            0 => random.byte(),
            1 => random.of(&[0, 1, 4, 6, 17, 43, 44, 50, 51, 58, 59, 60, 132, 135, 255]),
            2 => byte.wrapping_add(1),
            _ => byte.wrapping_sub(1),
        };
    }
}

/// IPv6 with more extension headers than a parser follows, of any kind and length, that may point
/// behind the end.
fn endless_chain(random: &mut Random) -> (LinkType, Vec<u8>) {
    let count = random.below(200);
    let mut frame = Vec::from([0x60, 0, 0, 0, 0, 0]);
    let kinds = [0u8, 43, 44, 51, 60, 135, 139, 140];
    frame.extend([random.of(&kinds), 64]);
    frame.extend(random.bytes(32));
    for _ in 0..count {
        let units = if random.once_in(8) { random.below(4) } else { 0 };
        frame.extend([random.of(&kinds), units as u8]);
        let rest = random.bytes(6 + 8 * units);
        // Mostly zeros: fragments at offset zero, routing headers used up.
        frame.extend(rest.iter().map(|byte| if random.once_in(16) { *byte } else { 0 }));
    }
    let length = (frame.len() - 40) as u16;
    frame[4..6].copy_from_slice(&length.to_be_bytes());
    (LinkType::Raw, frame)
}

/// Ethernet with more tags than a network stacks, over what may be a packet.
fn stacked_tags(random: &mut Random) -> (LinkType, Vec<u8>) {
    let mut frame = random.bytes(12);
    for _ in 0..random.below(40) {
        frame.extend(random.of(&[0x8100u16, 0x88a8, 0x9100, 0x8864]).to_be_bytes());
        frame.extend(random.array::<2>());
    }
    frame.extend(random.of(&[0x0800u16, 0x86dd, 0x0806, 0x8847]).to_be_bytes());
    let (_, rest) = valid::frame(random);
    frame.extend(rest);
    (LinkType::Ethernet, frame)
}

#[cfg(test)]
mod tests;
