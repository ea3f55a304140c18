//! The alarm of a pool that is being used up: how many blocks are left, and how long they last at
//! the present rate.
//!
//! ```text
//!   free blocks  1000 ──► 125 ──► 60 ──► 0          an eighth is left: said, and again every ten seconds while it lasts
//!                                  └─► 251          a quarter is free again: the next eighth is said at once
//! ```
//!
//! The rate is the blocks that have gone, less those that have come back, since a second or two
//! ago.
//!
//! Not here: making room (`sessions`).

/// Nanoseconds between two samples.
const SAMPLE: u64 = 1_000_000_000;
/// Nanoseconds between two alarms of a pool that stays low.
const AGAIN: u64 = 10_000_000_000;

/// Free blocks at a time.
#[derive(Clone, Copy, Default)]
struct Sample {
    at: u64,
    free: u32,
}

/// The alarm's figures.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Report {
    pub free: u32,
    pub blocks: u32,
    /// Seconds until no block is free, at the present rate; `None` while no fewer become free.
    pub lasts: Option<u64>,
}

/// See the module's page.
#[derive(Default)]
pub(super) struct Alarm {
    older: Sample,
    newer: Sample,
    has_sample: bool,
    said: Option<u64>,
}

impl Alarm {
    /// Notes how many of `blocks` are free now. Answers the alarm, if it is due.
    pub fn note(&mut self, now: u64, free: u32, blocks: u32) -> Option<Report> {
        let sample = Sample { at: now, free };
        if !self.has_sample {
            (self.older, self.newer, self.has_sample) = (
                Sample {
                    free: blocks,
                    ..sample
                },
                sample,
                true,
            );
        } else if now.saturating_sub(self.newer.at) >= SAMPLE {
            (self.older, self.newer) = (self.newer, sample);
        }
        if free > blocks / 4 {
            self.said = None;
        }
        let is_due = self.said.is_none_or(|said| now.saturating_sub(said) >= AGAIN);
        if free > blocks / 8 || !is_due {
            return None;
        }
        self.said = Some(now);
        Some(self.report(now, free, blocks))
    }

    /// How things stand.
    pub fn report(&self, now: u64, free: u32, blocks: u32) -> Report {
        let gone = u64::from(self.older.free.saturating_sub(free));
        let time = now.saturating_sub(self.older.at);
        let lasts = match (free, gone) {
            (0, _) => Some(0),
            (_, 0) => None,
            // All blocks went within one tick: they do not last.
            (free, gone) => Some((u64::from(free) * (time / 1_000_000) / gone) / 1000),
        };
        Report { free, blocks, lasts }
    }
}

#[cfg(test)]
mod unit {
    use super::{Alarm, Report, SAMPLE};

    #[test]
    fn it_says_how_long_the_rest_lasts_once_and_then_now_and_then() {
        let mut alarm = Alarm::default();
        // Ten blocks a second go.
        let said: Vec<(u64, Report)> = (0..=100)
            .filter_map(|tick| {
                let free = 100 - tick as u32;
                Some((tick, alarm.note(tick * SAMPLE / 10, free, 100)?))
            })
            .collect();
        assert_eq!(said.len(), 1, "{said:?}");
        let (tick, report) = said[0];
        assert_eq!((tick, report.free, report.blocks), (88, 12, 100));
        assert_eq!(report.lasts, Some(1), "12 blocks at ten a second");
        let later = alarm.note(20 * SAMPLE, 0, 100);
        assert_eq!(later.and_then(|report| report.lasts), Some(0));
        assert_eq!(alarm.note(21 * SAMPLE, 0, 100), None);
        // When a quarter is free again it is armed again; while more come back than go, nothing is
        // known.
        assert_eq!(alarm.note(22 * SAMPLE, 40, 100), None);
        assert_eq!(
            alarm.note(23 * SAMPLE, 12, 100).map(|r| r.lasts.is_some()),
            Some(true)
        );
        assert_eq!(alarm.note(40 * SAMPLE, 12, 100).map(|r| r.lasts), Some(None));
    }

    use super::super::alloc::vec::Vec;
}
