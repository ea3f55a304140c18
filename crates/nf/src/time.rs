//! Times that state remembers: [`Time`] in nanoseconds, [`Tick`] in milliseconds and half the size.
//!
//! # Theory of operation
//! Each worker has a clock of its own: nanoseconds since its machine started, say. A number of one
//! worker's clock means nothing at another worker. So a state keeps times as these types, and a
//! state that arrives from a worker with another clock is *re-based*: the derives add the
//! difference of the two clocks to each of them ([`Plain::rebase`](crate::plain::Plain::rebase)),
//! and how long ago a time was stays true.
//!
//! ```text
//!   source   now 36,000 s   flow.since 35,990 s      ten seconds ago
//!            difference: 5 s - 36,000 s = -35,995 s
//!   target   now      5 s   flow.since     -5 s      ten seconds ago, before this machine had started
//! ```
//!
//! # Invariants
//! No arithmetic here wraps or panics, whatever the numbers are: a state's times may come from a
//! hostile peer. [`Time::NEVER`] stays as it is. A record's way between two workers makes its times
//! younger by the time it takes, never older; a [`Tick`] is cut to whole milliseconds each time and
//! so gets one older at most.
//!
//! Not here: the difference itself (the runtime knows it), timeouts
//! ([`crate::NetworkFunction::timeout`]).

use core::fmt::{self, Debug, Display, Formatter};
use core::ops::{Add, Sub};
use core::time::Duration;

/// A moment by the worker's clock, in nanoseconds; before that clock's beginning it is negative.
/// [`Cx::now`](crate::Cx::now) gives it.
///
/// ```
/// use core::time::Duration;
/// use nf::Time;
///
/// let began = Time::from_nanoseconds(5_000_000_000);
/// let now = began + Duration::from_secs(2);
/// assert_eq!(now - began, Duration::from_secs(2));
/// assert_eq!(began - now, Duration::ZERO);
/// assert!(Time::NEVER < began);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Hash)]
#[repr(transparent)]
// Nanoseconds since the clock's beginning and 2⁶³ more, so that all zero bytes are `NEVER`, and a
// number is later than a lower one.
pub struct Time(u64);

/// The number of [`Time`] at the clock's beginning.
const BEGINNING: u64 = 1 << 63;

impl Time {
    /// No moment, before all others: the default, all zero.
    pub const NEVER: Time = Time(0);

    /// So many nanoseconds behind the clock's beginning; the latest moment there is (292 years) for
    /// more.
    #[inline(always)]
    pub const fn from_nanoseconds(nanoseconds: u64) -> Time {
        Time(BEGINNING.saturating_add(nanoseconds))
    }

    /// Nanoseconds since the clock's beginning; negative before it.
    #[inline(always)]
    pub const fn nanoseconds(self) -> i64 {
        self.0.wrapping_sub(BEGINNING).cast_signed()
    }

    /// Whether it is [`Time::NEVER`].
    #[inline(always)]
    pub const fn is_never(self) -> bool {
        self.0 == 0
    }

    /// Nanoseconds from `earlier` to this; 0 if `earlier` is later. Since [`Time::NEVER`] it is
    /// longer than any run.
    #[inline(always)]
    pub const fn nanoseconds_since(self, earlier: Time) -> u64 {
        self.0.saturating_sub(earlier.0)
    }

    /// The millisecond that it is in.
    #[inline(always)]
    pub const fn tick(self) -> Tick {
        Tick::some(self.nanoseconds().div_euclid(TICK) as u32)
    }

    /// The moment `by` nanoseconds later, or earlier; the latest, or earliest, there is if that is
    /// beyond them.
    pub(crate) const fn moved(self, by: i64) -> Time {
        if self.is_never() {
            return self;
        }
        let moved = self.0.saturating_add_signed(by);
        Time(if moved == 0 { 1 } else { moved })
    }
}

/// From the second to the first; zero if the second is later.
impl Sub for Time {
    type Output = Duration;
    #[inline]
    fn sub(self, earlier: Time) -> Duration {
        Duration::from_nanos(self.nanoseconds_since(earlier))
    }
}

/// As long later; the latest moment there is if that is beyond it. [`Time::NEVER`] stays as it is.
impl Add<Duration> for Time {
    type Output = Time;
    #[inline]
    fn add(self, time: Duration) -> Time {
        self.moved(i64::try_from(time.as_nanos()).unwrap_or(i64::MAX))
    }
}

/// As long earlier; the earliest moment there is if that is before it. [`Time::NEVER`] stays as it
/// is.
impl Sub<Duration> for Time {
    type Output = Time;
    #[inline]
    fn sub(self, time: Duration) -> Time {
        self.moved(i64::try_from(time.as_nanos()).map_or(i64::MIN, |nanoseconds| -nanoseconds))
    }
}

/// As seconds with nine places, a number in JSON; [`Time::NEVER`] as 0.
impl Display for Time {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let nanoseconds = if self.is_never() { 0 } else { self.nanoseconds() };
        let sign = if nanoseconds < 0 { "-" } else { "" };
        let all = nanoseconds.unsigned_abs();
        write!(f, "{sign}{}.{:09}", all / 1_000_000_000, all % 1_000_000_000)
    }
}

/// As its `Display`, or `never`.
impl Debug for Time {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        if self.is_never() {
            return f.write_str("never");
        }
        Display::fmt(self, f)
    }
}

/// Nanoseconds of a tick.
const TICK: i64 = 1_000_000;

/// A moment by the worker's clock in whole milliseconds, modulo 2³²: in four bytes, for moments
/// that are asked about within 49 days. The default is no moment ([`Tick::is_never`]).
///
/// ```
/// use core::time::Duration;
/// use nf::Time;
///
/// let began = Time::from_nanoseconds(5_000_999_999);
/// let now = began + Duration::from_secs(2);
/// assert_eq!(now.tick().milliseconds_since(began.tick()), 2000);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Default, Hash, Debug)]
#[repr(transparent)]
pub struct Tick(u32);

impl Tick {
    /// No moment: the default, all zero.
    pub const NEVER: Tick = Tick(0);

    /// Of the millisecond that would be [`Tick::NEVER`] it is the one before.
    const fn some(milliseconds: u32) -> Tick {
        Tick(if milliseconds == 0 { u32::MAX } else { milliseconds })
    }

    /// Whether it is [`Tick::NEVER`].
    #[inline(always)]
    pub const fn is_never(self) -> bool {
        self.0 == 0
    }

    /// Milliseconds from `earlier` to this, modulo 2³² (49.7 days). An `earlier` that is later is
    /// taken for one of 49 days ago, and [`Tick::NEVER`] for any moment.
    #[inline(always)]
    pub const fn milliseconds_since(self, earlier: Tick) -> u32 {
        self.0.wrapping_sub(earlier.0)
    }

    /// The moment `by` nanoseconds later, or earlier; rounded down, so that no tick is later than
    /// the moment it was made of.
    pub(crate) const fn moved(self, by: i64) -> Tick {
        if self.is_never() {
            return self;
        }
        Tick::some(self.0.wrapping_add(by.div_euclid(TICK) as u32))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plain::Plain;
    use proptest::prelude::*;
    use std::format;

    fn at(nanoseconds: i64) -> Time {
        Time(BEGINNING.wrapping_add_signed(nanoseconds))
    }

    #[test]
    fn times_are_seconds_with_nine_places() {
        let told = |nanoseconds| format!("{}", at(nanoseconds));
        assert_eq!(told(12_000_000_004), "12.000000004");
        assert_eq!(told(-1), "-0.000000001");
        assert_eq!(told(-36_000_000_000_000), "-36000.000000000");
        assert_eq!(format!("{:?} {}", Time::NEVER, Time::NEVER), "never 0.000000000");
        assert_eq!(format!("{:?}", at(5)), "0.000000005");
    }

    #[test]
    fn never_is_before_all_and_stays() {
        assert_eq!(Time::default(), Time::NEVER);
        assert!(Time::NEVER < Time(1) && Time::NEVER < at(-1) && at(-1) < Time::from_nanoseconds(0));
        assert_eq!(Time::from_nanoseconds(u64::MAX).nanoseconds(), i64::MAX);
        let mut never = Time::NEVER;
        never.rebase(i64::MAX);
        assert!(never.is_never());
        assert_eq!(never + Duration::from_secs(1), Time::NEVER);
        assert!(at(0) - never > Duration::from_secs(292 * 365 * 86_400));
    }

    #[test]
    fn a_tick_is_a_millisecond_on_both_sides_of_the_beginning() {
        assert_eq!(at(1_999_999).tick(), Tick(1));
        assert_eq!(at(-1).tick(), Tick(u32::MAX));
        assert_eq!(at(2_000_000).tick().milliseconds_since(at(-1).tick()), 3);
        // That one is never.
        assert_eq!(at(999_999).tick(), Tick(u32::MAX));
        let mut tick = Tick::default();
        tick.rebase(5 * TICK);
        assert!(tick.is_never());
        tick = Tick(5);
        tick.rebase(-5 * TICK);
        assert!(!tick.is_never());
    }

    proptest! {
        #[test]
        fn no_number_does_harm(a: u64, b: u64, by: i64, tick: u32, time: u64) {
            let (mut a, b, time) = (Time(a), Time(b), Duration::from_nanos(time));
            let _ = ((a - b, a + time, a - time), (a.tick().milliseconds_since(b.tick()), Tick(tick)));
            let was_never = a.is_never();
            a.rebase(by);
            prop_assert_eq!(a.is_never(), was_never);
            Tick(tick).rebase(by);
        }

        #[test]
        fn how_long_ago_it_was_stays_true(
            source in 0..1i64 << 61, target in 0..1i64 << 61, ago in 0i64..4_000_000_000_000_000,
        ) {
            let by = target - source;
            let (mut since, mut tick) = (at(source - ago), at(source - ago).tick());
            since.rebase(by);
            tick.rebase(by);
            prop_assert_eq!(at(target).nanoseconds_since(since), ago as u64);
            let before = u64::from(at(source).tick().milliseconds_since(at(source - ago).tick()));
            let behind = u64::from(at(target).tick().milliseconds_since(tick));
            // Cut to whole milliseconds at both clocks, and one older by the re-basing; of the one
            // that would be never, one more.
            prop_assert!(behind.abs_diff(ago as u64 / 1_000_000) <= 3 && behind.abs_diff(before) <= 3);
            prop_assert!(behind + 1 >= ago as u64 / 1_000_000);
        }
    }
}
