//! How long to wait for an acknowledgement: RFC 6298 in nanoseconds.
//!
//! ```text
//!   first round trip r:  smoothed = r, variation = r / 2
//!   then:                variation += (|smoothed - r| - variation) / 4;  smoothed += (r - smoothed) / 8
//!   timeout = smoothed + 4 * variation, within its bounds, twice as long after each that ran out
//! ```
//!
//! Each transmission has a number of its own, and an acknowledgement says which it saw, so no round
//! trip is measured from the wrong one of two (Karn's problem). Where RFC 6298 asks for a second at
//! least, the floor here is a setting in microseconds: it is for paths whose delayed
//! acknowledgements are bounded in microseconds too.

/// The estimate and the timeout that follows.
#[derive(Clone, Debug)]
pub(super) struct Timeout {
    smoothed: Option<u64>,
    variation: u64,
    backoff: u32,
    initial: u64,
    min: u64,
    max: u64,
}

impl Timeout {
    pub(super) fn new(initial: u64, min: u64, max: u64) -> Timeout {
        Timeout {
            smoothed: None,
            variation: 0,
            backoff: 0,
            initial,
            min,
            max,
        }
    }

    /// A round trip was measured.
    pub(super) fn measure(&mut self, round_trip: u64) {
        // No estimate grows past the longest wait: sums stay far from overflow, whatever is
        // measured.
        let round_trip = round_trip.min(self.max);
        match self.smoothed {
            None => {
                self.smoothed = Some(round_trip);
                self.variation = round_trip / 2;
            }
            Some(smoothed) => {
                let apart = smoothed.abs_diff(round_trip);
                self.variation = (3 * self.variation + apart) / 4;
                self.smoothed = Some((7 * smoothed + round_trip) / 8);
            }
        }
    }

    /// The smoothed round trip, if one was measured.
    pub(super) fn round_trip(&self) -> Option<u64> {
        self.smoothed
    }

    /// Something new was acknowledged.
    #[inline]
    pub(super) fn on_progress(&mut self) {
        self.backoff = 0;
    }

    /// The timeout ran out.
    pub(super) fn on_expiry(&mut self) {
        self.backoff = (self.backoff + 1).min(32);
    }

    /// How long to wait now.
    #[inline]
    pub(super) fn nanoseconds(&self) -> u64 {
        let base = self
            .smoothed
            .map_or(self.initial, |smoothed| smoothed + 4 * self.variation);
        let base = base.clamp(self.min, self.max);
        base.saturating_mul(1 << self.backoff).min(self.max)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn follows_rfc_6298() {
        let mut timeout = Timeout::new(5_000, 10, 1_000_000);
        assert_eq!(timeout.nanoseconds(), 5_000);
        timeout.measure(800);
        assert_eq!(timeout.nanoseconds(), 800 + 4 * 400);
        timeout.measure(1600);
        // variation 3/4 * 400 + 1/4 * 800; smoothed 7/8 * 800 + 1/8 * 1600
        assert_eq!(timeout.nanoseconds(), 900 + 4 * 500);
        timeout.on_expiry();
        timeout.on_expiry();
        assert_eq!(timeout.nanoseconds(), 4 * 2_900);
        timeout.on_progress();
        assert_eq!(timeout.nanoseconds(), 2_900);
    }

    #[test]
    fn stays_within_its_bounds() {
        let mut timeout = Timeout::new(5_000, 1_000, 50_000);
        timeout.measure(1);
        assert_eq!(timeout.nanoseconds(), 1_000);
        timeout.measure(u64::MAX);
        for _ in 0..100 {
            timeout.on_expiry();
        }
        assert_eq!(timeout.nanoseconds(), 50_000);
    }
}
