//! Whose packet is next, and when.
//!
//! With a rate per flow each flow has its own times and a [`Wheel`] merges them: the caller that
//! takes a flow puts it back with its next time. With a total rate the times are given, and the
//! popularity draws a flow for each.
//!
//! Invariant: times never go back.
//!
//! Not here: replies, which follow their packets ([`super::flows`]).

use super::distribution::Alias;
use super::profile::{Popularity, Profile, Rate, Spacing};
use super::random::Random;
use super::wheel::Wheel;

/// The order of the flows' packets.
pub struct Order {
    times: Times,
    spacing: Spacing,
}

/// How many flows are drawn ahead: their places arrive from memory meanwhile.
const AHEAD: usize = 16;

enum Times {
    PerFlow(Wheel),
    Total {
        next_at: f64,
        gap: f64,
        pick: Pick,
        /// Flows drawn ahead of their time, so that they can be fetched into the cache; `turn` is
        /// the next.
        drawn: [u32; AHEAD],
        turn: usize,
    },
}

enum Pick {
    Uniform(u32),
    Zipf(Alias),
    /// The next and how many there are.
    Turns(u32, u32),
}

impl Pick {
    #[inline]
    fn draw(&mut self, random: &mut Random) -> u32 {
        match self {
            Pick::Uniform(flows) => random.below(u64::from(*flows)) as u32,
            Pick::Zipf(alias) => alias.draw(random),
            Pick::Turns(next, flows) => {
                let turn = *next;
                *next = if turn + 1 == *flows { 0 } else { turn + 1 };
                turn
            }
        }
    }
}

impl Order {
    /// The order of a profile's flows, of which each has a gap in nanoseconds between its packets.
    pub fn new(profile: &Profile, gaps: impl Iterator<Item = f64> + Clone, random: &mut Random) -> Self {
        let times = match profile.rate {
            Rate::Total(rate) => {
                let mut pick = match profile.popularity {
                    Popularity::Uniform => Pick::Uniform(profile.flows),
                    Popularity::Zipf(s) => Pick::Zipf(Alias::zipf(profile.flows, s)),
                    Popularity::Turns => Pick::Turns(0, profile.flows),
                };
                Times::Total {
                    next_at: 0.0,
                    gap: 1e9 / rate,
                    drawn: std::array::from_fn(|_| pick.draw(random)),
                    turn: 0,
                    pick,
                }
            }
            Rate::PerFlow(_) => {
                let rate: f64 = gaps.clone().map(|gap| 1.0 / gap).sum();
                let longest = gaps.clone().fold(0.0, f64::max);
                let mut wheel = Wheel::new(1.0 / rate, longest);
                // All begin within their first gap.
                for (flow, gap) in (0..).zip(gaps) {
                    wheel.insert(flow, (gap * random.unit()) as u64);
                }
                Times::PerFlow(wheel)
            }
        };
        Order {
            times,
            spacing: profile.spacing,
        }
    }

    /// Whether flows have times of their own.
    pub fn is_per_flow(&self) -> bool {
        matches!(self.times, Times::PerFlow(_))
    }

    /// When the next packet is due, in nanoseconds.
    #[inline]
    pub fn peek(&mut self) -> u64 {
        match &mut self.times {
            // The wheel is never empty: each flow is put back when it has been taken.
            Times::PerFlow(wheel) => wheel.peek().map_or(u64::MAX, |(due, _)| due),
            Times::Total { next_at, .. } => *next_at as u64,
        }
    }

    /// Takes the flow whose packet that is. The second number is a flow that will be taken soon.
    #[inline]
    pub fn take(&mut self, random: &mut Random) -> (u32, Option<u32>) {
        match &mut self.times {
            Times::PerFlow(wheel) => {
                let next = wheel.peek();
                wheel.take();
                (next.map_or(0, |(_, flow)| flow), wheel.hint())
            }
            Times::Total {
                next_at,
                gap,
                pick,
                drawn,
                turn,
            } => {
                *next_at += match self.spacing {
                    Spacing::Even => *gap,
                    Spacing::Poisson => *gap * random.exponential(),
                };
                let later = pick.draw(random);
                let flow = std::mem::replace(&mut drawn[*turn], later);
                *turn = (*turn + 1) % AHEAD;
                (flow, Some(later))
            }
        }
    }

    /// With a rate per flow: puts a flow back that was taken at `due`, for its gap later or
    /// `at_least`.
    #[inline]
    pub fn put_back(&mut self, flow: u32, due: u64, gap: f64, at_least: u64, random: &mut Random) {
        if let Times::PerFlow(wheel) = &mut self.times {
            let wait = match self.spacing {
                Spacing::Even => gap as u64,
                Spacing::Poisson => (gap * random.exponential()) as u64,
            };
            wheel.insert(flow, due + wait.max(at_least).max(1));
        }
    }
}
