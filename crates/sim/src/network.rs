//! The network that is not Flowkeep's: the fate of a frame between a host and the cluster, or
//! between two hosts.
//!
//! # Theory of operation
//!
//! A `Path` is one direction between two places. Each frame put on it at a time comes out no, one
//! or several times, later, and perhaps damaged:
//!
//! ```text
//!   put(now, 120 bytes) ──cut?──lost?──► wait for the bytes before it (bandwidth)
//!                                         ──► + delay + jitter ──► arrives
//!                                         └── reordered: + much more      └── doubled: once more, later
//!                                         └── corrupted: one bit is another
//! ```
//!
//! The two directions are two paths, so a partition may be one of one direction only. A path acts
//! by its own stream of random numbers and the frames put on it, and by nothing else.
//!
//! Invariants: an arrival is never before its frame was put; without noise a path keeps order and
//! loses nothing.
//!
//! Not here: links between workers of one process, which lose nothing and keep order
//! (`crate::link`).

use crate::Time;
use crate::random::Random;

/// The noise of a path. Chances are per thousand.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Noise {
    /// Frames lost.
    pub lost: u16,
    /// Frames that arrive twice.
    pub doubled: u16,
    /// Frames that take up to [`Noise::DETOUR`] more.
    pub reordered: u16,
    /// Frames of which one bit is another.
    pub corrupted: u16,
    /// Longest jitter in nanoseconds. It alone may reorder, too.
    pub jitter: u64,
    /// Bytes per second; 0: no bound.
    pub bandwidth: u64,
}

impl Noise {
    /// How much longer a reordered or doubled frame may take, in nanoseconds.
    pub const DETOUR: u64 = 3_000_000;
}

/// One arrival of a frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Arrival {
    pub at: Time,
    /// Which bit of the frame is another, if one is; to be taken modulo its length in bits.
    pub flipped: Option<u64>,
}

/// The fate of a frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Passage {
    /// It arrives, once or twice.
    Arrives(Arrival, Option<Arrival>),
    /// Lost by noise.
    Lost,
    /// Lost since the path is cut.
    Cut,
}

/// One direction between two places.
#[derive(Debug)]
pub(crate) struct Path {
    /// Its noise.
    pub noise: Noise,
    /// Whether nothing passes.
    pub is_cut: bool,
    delay: u64,
    /// When the frames that were put before have passed the narrowest place.
    free_at: Time,
    random: Random,
}

impl Path {
    pub fn new(delay: u64, noise: Noise, random: Random) -> Self {
        Path {
            noise,
            is_cut: false,
            delay,
            free_at: 0,
            random,
        }
    }

    /// Puts a frame of `length` bytes on it.
    pub fn put(&mut self, now: Time, length: usize) -> Passage {
        if self.is_cut {
            return Passage::Cut;
        }
        if self.random.per_mille(self.noise.lost) {
            return Passage::Lost;
        }
        let noise = self.noise;
        let begin = match (length as u64 * 1_000_000_000).checked_div(noise.bandwidth) {
            Some(takes) => {
                self.free_at = self.free_at.max(now) + takes;
                self.free_at
            }
            None => now,
        };
        let mut arrival = |detour: bool| {
            let mut at = begin + self.delay;
            if noise.jitter > 0 {
                at += self.random.below(noise.jitter);
            }
            if detour {
                at += self.random.below(Noise::DETOUR);
            }
            let flipped = self.random.per_mille(noise.corrupted).then(|| self.random.next());
            Arrival { at, flipped }
        };
        let first = arrival(false);
        let second = (noise.doubled > 0).then(|| arrival(true));
        let is_doubled = self.random.per_mille(noise.doubled);
        let mut first = first;
        if self.random.per_mille(noise.reordered) {
            first.at += self.random.below(Noise::DETOUR);
        }
        Passage::Arrives(first, second.filter(|_| is_doubled))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Stream;

    fn path(noise: Noise) -> Path {
        Path::new(1000, noise, Random::of(1, Stream::Path, 0))
    }

    fn arrivals(noise: Noise, count: u64) -> Vec<(u64, Passage)> {
        let mut path = path(noise);
        (0..count)
            .map(|n| (n * 10_000, path.put(n * 10_000, 100)))
            .collect()
    }

    #[test]
    fn without_noise_all_arrive_in_order_after_the_delay() {
        for (at, passage) in arrivals(Noise::default(), 100) {
            let arrival = Arrival {
                at: at + 1000,
                flipped: None,
            };
            assert_eq!(passage, Passage::Arrives(arrival, None));
        }
    }

    #[test]
    fn each_kind_of_noise_is_about_as_frequent_as_said() {
        let noise = Noise {
            lost: 100,
            doubled: 200,
            reordered: 300,
            corrupted: 100,
            jitter: 0,
            bandwidth: 0,
        };
        let (mut lost, mut doubled, mut late, mut flipped) = (0, 0, 0, 0);
        for (at, passage) in arrivals(noise, 10_000) {
            match passage {
                Passage::Arrives(first, second) => {
                    assert!(first.at >= at + 1000);
                    doubled += u32::from(second.is_some());
                    late += u32::from(first.at > at + 1000);
                    flipped += u32::from(first.flipped.is_some());
                }
                Passage::Lost => lost += 1,
                Passage::Cut => panic!("no fault cut it"),
            }
        }
        for (seen, expected) in [(lost, 1000), (doubled, 1800), (late, 2700), (flipped, 900)] {
            assert!(
                (expected * 8 / 10..expected * 12 / 10).contains(&seen),
                "{seen} for {expected}"
            );
        }
    }

    #[test]
    fn a_narrow_path_makes_frames_wait_for_each_other() {
        let noise = Noise {
            bandwidth: 1_000_000,
            ..Noise::default()
        };
        let mut path = path(noise);
        let at: Vec<Passage> = (0..3).map(|_| path.put(0, 100)).collect();
        let expected = [1, 2, 3].map(|n| {
            let arrival = Arrival {
                at: n * 100_000 + 1000,
                flipped: None,
            };
            Passage::Arrives(arrival, None)
        });
        assert_eq!(at, expected);
    }

    #[test]
    fn nothing_passes_a_cut() {
        let mut path = path(Noise::default());
        path.is_cut = true;
        assert_eq!(path.put(0, 100), Passage::Cut);
        path.is_cut = false;
        assert!(matches!(path.put(0, 100), Passage::Arrives(_, None)));
    }
}
