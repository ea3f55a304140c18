//! Counts matches, so that not every one of them alerts.
//!
//! ```text
//!   type limit, count 2, seconds 60        matches at 0 s, 1 s, 2 s, 61 s      alerts at 0 s, 1 s, 61 s
//!   type threshold, count 2, seconds 60    matches at 0 s, 1 s, 2 s, 3 s       alerts at 1 s, 3 s
//!   type both, count 2, seconds 60         matches at 0 s, 1 s, 2 s, 61 s      alerts at 1 s
//!   detection_filter, count 2, seconds 60  matches at 0 s, 1 s, 2 s, 61 s      alerts at 2 s
//! ```
//!
//! A period includes its end: with 60 s, the match at 60 s is still in the period that began at 0
//! s. A match below the count does nothing. Past the count of `limit` and `both` the rule's action
//! is taken without an alert.
//!
//! The counts are of all flows of one worker: they are no flow's state, and with several workers
//! each counts for itself, so that there are at most as many alerts as workers times what the rule
//! says. The table has [`SETS`] × [`WAYS`] entries and never grows: the entry whose period began
//! longest ago makes room, which at worst makes alerts too many.
//!
//! Invariant: nothing is allocated after the start.
//!
//! Not here: which rule has matched.
//!
//! Source: Suricata's `threshold` and `detection_filter` keywords (`ThresholdHandlePacket`).

use super::rule::{Threshold, ThresholdKind};
use alloc::vec;
use alloc::vec::Vec;
use nf::Time;
use wire::Addr;

/// A power of two.
const SETS: usize = 1024;
const WAYS: usize = 8;
const SECOND: u64 = 1_000_000_000;

/// The matches that are counted together.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Counted {
    /// Index of the rule.
    pub rule: u32,
    /// The addresses it is counted by; unspecified where it is not.
    pub addresses: [Addr; 2],
}

#[derive(Clone, Copy, Debug, Default)]
struct Entry {
    counted: Counted,
    began: Time,
    count: u32,
    is_used: bool,
}

/// The effect of a match that was counted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Passes {
    /// Alert and action.
    Alert,
    /// The action alone.
    Silently,
    /// Nothing.
    Not,
}

/// The counts of one worker.
#[derive(Debug)]
pub(super) struct Thresholds {
    entries: Vec<Entry>,
    seed: u64,
}

impl Thresholds {
    /// A table, with no memory if no rule needs it.
    pub fn new(needed: bool, seed: u64) -> Self {
        let size = if needed { SETS * WAYS } else { 0 };
        Thresholds {
            entries: vec![Entry::default(); size],
            seed,
        }
    }

    /// Counts a match.
    pub fn count(&mut self, counted: Counted, rule: &Threshold, now: Time) -> Passes {
        let period = u64::from(rule.seconds) * SECOND;
        let Some(entry) = self.entry(counted) else {
            return Passes::Alert;
        };
        if !entry.is_used || entry.counted != counted || now.nanoseconds_since(entry.began) > period {
            *entry = Entry {
                counted,
                began: now,
                count: 0,
                is_used: true,
            };
        }
        entry.count = entry.count.saturating_add(1);
        match rule.kind {
            ThresholdKind::Limit if entry.count > rule.count => Passes::Silently,
            ThresholdKind::Limit => Passes::Alert,
            ThresholdKind::Threshold if entry.count >= rule.count => {
                // The period goes on.
                entry.count = 0;
                Passes::Alert
            }
            ThresholdKind::Both if entry.count == rule.count => Passes::Alert,
            ThresholdKind::Both if entry.count > rule.count => Passes::Silently,
            ThresholdKind::Filter if entry.count > rule.count => Passes::Alert,
            ThresholdKind::Threshold | ThresholdKind::Both | ThresholdKind::Filter => Passes::Not,
        }
    }

    /// The entry of these, or the one that makes room for it.
    fn entry(&mut self, counted: Counted) -> Option<&mut Entry> {
        let mut hash = self.seed ^ u64::from(counted.rule);
        for addr in counted.addresses {
            for word in addr.octets().chunks(8) {
                let mut bytes = [0; 8];
                bytes.copy_from_slice(word);
                hash = (hash ^ u64::from_le_bytes(bytes)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
                hash ^= hash >> 29;
            }
        }
        let set = hash as usize % SETS;
        let ways = self.entries.get_mut(set * WAYS..(set + 1) * WAYS)?;
        let same = ways
            .iter()
            .position(|entry| entry.is_used && entry.counted == counted);
        let oldest = || (0..WAYS).min_by_key(|way| (ways[*way].is_used, ways[*way].began));
        ways.get_mut(same.or_else(oldest)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::rule::Track;

    fn alerts(kind: ThresholdKind, count: u32, times: &[u64]) -> Vec<u64> {
        let rule = Threshold {
            kind,
            track: Track::Source,
            count,
            seconds: 60,
        };
        let mut table = Thresholds::new(true, 7);
        let counted = Counted::default();
        let passes = |time: &&u64| {
            table.count(counted, &rule, Time::from_nanoseconds(**time * SECOND)) == Passes::Alert
        };
        times.iter().filter(passes).copied().collect()
    }

    #[test]
    fn the_four_kinds() {
        assert_eq!(alerts(ThresholdKind::Limit, 2, &[0, 1, 2, 60, 61]), [0, 1, 61]);
        assert_eq!(alerts(ThresholdKind::Threshold, 2, &[0, 1, 2, 3, 4, 99]), [1, 3]);
        assert_eq!(alerts(ThresholdKind::Threshold, 2, &[0, 1, 59, 61, 62]), [1, 62]);
        assert_eq!(alerts(ThresholdKind::Both, 2, &[0, 1, 2, 3, 61, 62]), [1, 62]);
        assert_eq!(
            alerts(ThresholdKind::Filter, 2, &[0, 1, 2, 60, 61, 62, 63]),
            [2, 60, 63]
        );
    }

    #[test]
    fn a_flood_of_addresses_takes_no_memory() {
        let rule = Threshold {
            kind: ThresholdKind::Limit,
            track: Track::Source,
            count: 1,
            seconds: 60,
        };
        let mut table = Thresholds::new(true, 7);
        for host in 0..100_000u32 {
            let addresses = [Addr::v4(host.to_be_bytes()), Addr::default()];
            let passes = table.count(Counted { rule: 1, addresses }, &rule, Time::from_nanoseconds(1));
            assert_eq!(passes, Passes::Alert);
        }
        assert_eq!(table.entries.len(), SETS * WAYS);
    }
}
