//! Random numbers of which everything in a run is made.
//!
//! Each part that draws has a stream of its own, made from the seed and from what it is
//! ([`Random::of`]): a conversation that is taken out of a script does not change what the others,
//! the workers and the network draw. That is what makes failures shrink.
//!
//! SplitMix64 (Steele, Lea, Flood 2014): every seed is a good one, and a stream is one word.

/// A stream of random numbers.
#[derive(Clone, Debug)]
pub(crate) struct Random(u64);

/// The part that draws, for [`Random::of`].
#[derive(Clone, Copy, Debug)]
#[repr(u64)]
pub(crate) enum Stream {
    /// The script of a run.
    Script = 1,
    /// When a worker takes its turns.
    Worker = 2,
    /// The noise of a path.
    Path = 3,
    /// Which groups move when.
    Moves = 4,
    /// Processes that are apart, and the network between them.
    Apart = 5,
    /// Further parts of talks: versions, fragments, errors.
    Kinds = 6,
    /// The times of processes' clocks at the beginning.
    Clock = 7,
    /// Whether runtimes keep copies of each other's flows.
    Copies = 8,
    /// Whether workers join a coordinator, and the faults of these.
    Leases = 9,
    /// Which members come and go by plan.
    Goings = 10,
    /// Several coordinators, their store, and the faults of these.
    Offices = 11,
    /// Processes of several workers.
    Processes = 12,
    /// The fate of neighbours, and what kernels know of them.
    Neighbours = 13,
    /// Which configurations there are, when they change, and copies from time to time.
    Changes = 14,
}

impl Random {
    /// The stream of one drawer: the `index`-th of its kind.
    pub fn of(seed: u64, stream: Stream, index: u64) -> Self {
        let mut random = Random(seed ^ (stream as u64).rotate_left(32) ^ index.rotate_left(48));
        random.next();
        random
    }

    /// The next number.
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `bound`; 0 if that is 0.
    pub fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.next()) * u128::from(bound)) >> 64) as u64
    }

    /// A number from `least` to `most`, both among them.
    pub fn between(&mut self, least: u64, most: u64) -> u64 {
        least + self.below(most - least + 1)
    }

    /// True so many times in a thousand.
    pub fn per_mille(&mut self, times: u16) -> bool {
        times > 0 && self.below(1000) < u64::from(times)
    }

    /// True once in `n` times.
    pub fn once_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }

    /// One of `choices`, which is not empty.
    pub fn of_these<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.below(choices.len() as u64) as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streams_differ_and_repeat() {
        let draw = |stream, index| {
            let mut random = Random::of(7, stream, index);
            [random.next(), random.next()]
        };
        assert_eq!(draw(Stream::Path, 1), draw(Stream::Path, 1));
        assert_ne!(draw(Stream::Path, 1), draw(Stream::Path, 2));
        assert_ne!(draw(Stream::Path, 1), draw(Stream::Worker, 1));
    }
}
