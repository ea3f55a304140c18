//! Random numbers that stay the same: splitmix64, written out here.
//!
//! A seed must give the same packets in every version, and the small generators of the usual
//! library promise no such thing. Sixty-four bits of state are plenty for traffic; nothing secret
//! hangs on it.
//!
//! Source: Steele, Lea and Flood, "Fast splittable pseudorandom number generators", OOPSLA 2014.

/// A stream of random numbers.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// The stream of a seed.
    pub fn new(seed: u64) -> Self {
        Random(seed)
    }

    /// 64 random bits.
    #[inline]
    pub fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mix(self.0)
    }

    /// A number below `n`, 0 for an `n` of 0.
    #[inline]
    pub fn below(&mut self, n: u64) -> u64 {
        ((u128::from(self.bits()) * u128::from(n)) >> 64) as u64
    }

    /// A number from 0 up to, not including, 1.
    #[inline]
    pub fn unit(&mut self) -> f64 {
        (self.bits() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// A number above 0, up to 1: safe to take the logarithm of.
    #[inline]
    pub fn unit_above_zero(&mut self) -> f64 {
        1.0 - self.unit()
    }

    /// Exponentially distributed with mean 1.
    #[inline]
    pub fn exponential(&mut self) -> f64 {
        -self.unit_above_zero().ln()
    }

    /// Normally distributed with mean 0 and deviation 1 (Box and Muller; the second value is thrown
    /// away).
    pub fn normal(&mut self) -> f64 {
        let radius = (2.0 * self.exponential()).sqrt();
        radius * (core::f64::consts::TAU * self.unit()).cos()
    }
}

/// The finishing step: spreads a number over 64 bits.
#[inline]
pub fn mix(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}
