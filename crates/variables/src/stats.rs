//! Counts of a partition, and how old changes are when a store has them.

/// Ages are told apart to a quarter of a power of two.
const STEPS: usize = 4;
const BUCKETS: usize = 48 * STEPS;

/// How many changes reached the store at which age, in nanoseconds. Of a fixed size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ages {
    counts: [u64; BUCKETS],
    max: u64,
}

impl Default for Ages {
    fn default() -> Self {
        Ages {
            counts: [0; BUCKETS],
            max: 0,
        }
    }
}

impl Ages {
    /// Counts an age.
    pub fn add(&mut self, age_ns: u64) {
        if let Some(count) = self.counts.get_mut(bucket(age_ns)) {
            *count = count.saturating_add(1);
        }
        self.max = self.max.max(age_ns);
    }

    /// The longest.
    pub fn max_ns(&self) -> u64 {
        self.max
    }

    /// The age that `percent` of all are not above, to a fifth too high; 0 for none at all.
    pub fn percentile_ns(&self, percent: u64) -> u64 {
        let all: u64 = self.counts.iter().sum();
        let mut rest = all.saturating_mul(percent.min(100)).div_ceil(100);
        for (at, count) in self.counts.iter().enumerate() {
            rest = rest.saturating_sub(*count);
            if rest == 0 && all > 0 {
                return end(at).min(self.max);
            }
        }
        self.max
    }
}

/// Quarters: the power of two, then the two bits below the highest.
fn bucket(age: u64) -> usize {
    let age = age.max(4);
    let power = age.ilog2();
    let quarter = (age >> (power - 2)) & 3;
    (power as usize * STEPS + quarter as usize).min(BUCKETS - 1)
}

/// The largest age of a bucket.
fn end(bucket: usize) -> u64 {
    let (power, quarter) = (bucket / STEPS, (bucket % STEPS) as u64);
    if power < 2 {
        return 4;
    }
    ((5 + quarter) << (power - 2)) - 1
}

/// The fate of a partition's changes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PartitionStats {
    /// Batches that were handed to the agent.
    pub batches: u64,
    /// Changes in them.
    pub changes: u64,
    /// Bytes in them.
    pub bytes: u64,
    /// Times that the store had lost acknowledged changes, and everything was written again.
    pub rewritten: u64,
    /// Elements that encoded into more bytes than when they were set, and are not at the store.
    pub unwritable: u64,
    /// The age of the oldest change of each variable in each batch, when the store had it.
    pub ages: Ages,
    /// How long changes were collected before the last batch, in nanoseconds, or are being
    /// collected now where that is longer: the interval, or more where the store cannot keep up.
    pub interval_ns: u64,
    /// The shortest interval that a variable in the store has.
    pub interval_set_ns: u64,
    /// How old the oldest change is that the store does not have; 0 where it has all.
    pub oldest_ns: u64,
    /// The shortest bound that a variable in the store has.
    pub bound_ns: u64,
    /// Whether some change is older than its variable's bound, and not stored.
    pub late: bool,
    /// Whether another instance has claimed the partition.
    pub fenced: bool,
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn an_age_is_in_a_bucket_that_ends_little_above_it(age in 4u64..1 << 47) {
            let end = end(bucket(age));
            prop_assert!(end >= age && end <= age + age / 4, "{} {}", age, end);
            prop_assert!(bucket(age) == 8 || super::end(bucket(age) - 1) < age);
        }
    }

    #[test]
    fn percentiles_are_of_what_was_counted() {
        let mut ages = Ages::default();
        assert_eq!((ages.percentile_ns(50), ages.max_ns()), (0, 0));
        for age in 1..=1000 {
            ages.add(age * 1000);
        }
        let half = ages.percentile_ns(50);
        assert!((500_000..=625_000).contains(&half), "{half}");
        assert_eq!((ages.percentile_ns(100), ages.max_ns()), (1_000_000, 1_000_000));
        ages.add(u64::MAX);
        assert_eq!(ages.max_ns(), u64::MAX);
    }
}
