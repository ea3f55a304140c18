//! Rates in flow and group state: [`TokenBucket`] and [`Window`].
//!
//! Both are plain data with a time, so they move and survive with the state that they are a field
//! of. All zero is how they begin: a full bucket, and no window.
//!
//! # Invariants
//! No arithmetic here wraps or panics, whatever the numbers are: a state may come from a hostile
//! peer.
//!
//! Not here: a rate over flows of several runtimes. A state is at one runtime at a time, so give
//! each group its share.

use crate::{Plain, Time};
use core::time::Duration;

/// A token, in shares that a nanosecond brings at a rate of one a second.
const TOKEN: u64 = 1_000_000_000;

/// So many a second, and so many at once.
#[derive(Clone, Copy, PartialEq, Eq, Debug, serde::Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Rate {
    /// Tokens that come in a second.
    pub per_second: u64,
    /// The most tokens that a bucket holds, at most 10¹⁰; with 0, nothing ever passes.
    pub burst: u64,
}

/// Tokens that come at a [`Rate`]. As a default it is full.
///
/// ```
/// use core::time::Duration;
/// use nf::{Rate, Time, TokenBucket};
///
/// let rate = Rate { per_second: 10, burst: 2 };
/// let (mut bucket, now) = (TokenBucket::default(), Time::from_nanoseconds(0));
/// assert!(bucket.take(rate, now) && bucket.take(rate, now) && !bucket.take(rate, now));
/// assert!(bucket.take(rate, now + Duration::from_millis(100)));
/// ```
#[derive(Plain, Default, Clone, Copy, PartialEq, Eq, Debug)]
#[repr(C)]
pub struct TokenBucket {
    filled: Time,
    shares: u64,
}

impl TokenBucket {
    /// Takes a token, if there is one.
    #[inline]
    pub fn take(&mut self, rate: Rate, now: Time) -> bool {
        self.take_some(1, rate, now)
    }

    /// Takes so many tokens, bytes of a packet for instance, or none if there are fewer.
    #[inline]
    pub fn take_some(&mut self, tokens: u64, rate: Rate, now: Time) -> bool {
        // Since never it is longer than any run: a bucket that was not used is full.
        let more = now.nanoseconds_since(self.filled).saturating_mul(rate.per_second);
        let full = rate.burst.saturating_mul(TOKEN);
        self.shares = match self.filled.is_never() {
            true => full,
            false => self.shares.saturating_add(more).min(full),
        };
        self.filled = now;
        match self.shares.checked_sub(tokens.saturating_mul(TOKEN)) {
            Some(left) => {
                self.shares = left;
                true
            }
            None => false,
        }
    }
}

/// Counts within a length of time, which begins with the first count behind the last window's end.
///
/// ```
/// use core::time::Duration;
/// use nf::{Time, Window};
///
/// let (mut window, second, now) = (Window::default(), Duration::from_secs(1), Time::from_nanoseconds(7));
/// assert_eq!((window.count(second, now), window.count(second, now)), (1, 2));
/// assert_eq!(window.count_by(100, second, now + second), 100);
/// ```
#[derive(Plain, Default, Clone, Copy, PartialEq, Eq, Debug)]
#[repr(C)]
pub struct Window {
    since: Time,
    count: u64,
}

impl Window {
    /// Counts one more; how many that makes in this window.
    #[inline]
    pub fn count(&mut self, length: Duration, now: Time) -> u64 {
        self.count_by(1, length, now)
    }

    /// Counts so many more, bytes of a packet for instance; how many that makes in this window.
    #[inline]
    pub fn count_by(&mut self, more: u64, length: Duration, now: Time) -> u64 {
        if self.since.is_never() || now - self.since >= length {
            *self = Window { since: now, count: 0 };
        }
        self.count = self.count.saturating_add(more);
        self.count
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;
    use proptest::prelude::*;

    proptest! {
        /// In no span of time more passes than the burst and the rate's share of that span.
        #[test]
        fn no_more_passes_than_the_rate_allows(
            per_second in 0_u64..1_000_000,
            burst in 0_u64..100,
            steps in prop::collection::vec((0_u64..100_000_000, 1_u64..4), 1..200),
        ) {
            let rate = Rate { per_second, burst };
            let (mut bucket, mut now, mut passed) = (TokenBucket::default(), 1_000, Vec::new());
            for (step, tokens) in steps {
                now += step;
                if bucket.take_some(tokens, rate, Time::from_nanoseconds(now)) {
                    passed.push((now, tokens));
                }
            }
            for (first, (from, _)) in passed.iter().enumerate() {
                let mut sum = 0;
                for (until, tokens) in &passed[first..] {
                    sum += tokens;
                    let brought = (until - from) as f64 * per_second as f64 / 1e9;
                    prop_assert!(sum as f64 <= burst as f64 + brought + 1e-6);
                }
            }
        }

        /// Whatever the bytes of a state and the settings are, nothing panics.
        #[test]
        fn any_numbers_do(
            bytes in any::<(u64, u64)>(),
            rate in any::<(u64, u64)>(),
            now in any::<u64>(),
            tokens in any::<u64>(),
        ) {
            let rate = Rate { per_second: rate.0, burst: rate.1 };
            let time = Time::from_nanoseconds(bytes.0);
            let mut bucket = TokenBucket { filled: time, shares: bytes.1 };
            bucket.take_some(tokens, rate, Time::from_nanoseconds(now));
            let mut window = Window { since: time, count: bytes.1 };
            window.count_by(tokens, Duration::from_nanos(tokens), Time::from_nanoseconds(now));
        }
    }

    #[test]
    fn a_bucket_without_room_lets_nothing_pass() {
        let rate = Rate {
            per_second: 1_000,
            burst: 0,
        };
        assert!(!TokenBucket::default().take(rate, Time::from_nanoseconds(5_000_000_000)));
    }

    #[test]
    fn windows_are_told_apart_by_their_ends() {
        let (mut window, length) = (Window::default(), Duration::from_secs(1));
        let at = |milliseconds: u64| Time::from_nanoseconds(milliseconds * 1_000_000);
        let counts: Vec<u64> = [0, 999, 1000, 1500, 1999, 2000]
            .map(|time| window.count(length, at(time)))
            .into();
        assert_eq!(counts, [1, 2, 1, 2, 3, 1]);
    }
}
