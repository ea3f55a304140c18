//! Invariant 7: every resource taken is returned exactly once: when all flows have ended, functions
//! have given back what they took.

use super::Violation;
use runtime::stats::RuntimeStats;

/// Counters of a function, and those of what it returns.
const PAIRS: [(&str, &str); 2] = [
    ("mappings_created", "mappings_released"),
    ("blocks_claimed", "blocks_released"),
];

/// All flows have ended, and with them whatever they took. `backends` is what the load balancer of
/// each runtime tells of its servers. `past` has the counts of crashed runtimes: all that they had
/// taken is not returned, and nothing is twice, but for `ended_again`: so many flows had ended in
/// the last steps of one, of which its replica had not heard, and ended at their heir.
/// `ends_twice`: a flow of a runtime that is given up and lives may end there by its time, and at
/// its heir, which has not taken what it returns.
pub(crate) fn check(
    runtimes: &[RuntimeStats],
    past: &[RuntimeStats],
    connections: &[u64],
    (is_all, ends_twice): (bool, bool),
    ended_again: u64,
) -> Result<(), Violation> {
    // Taken at one runtime, returned at another, if its group has moved.
    let of = |name: &str| -> u64 {
        let counters = runtimes.iter().chain(past).flat_map(|stats| &stats.counters);
        counters
            .filter(|named| named.name == name)
            .map(|named| named.count)
            .sum()
    };
    for (taken, returned) in PAIRS {
        let (taken_count, returned_count) = (of(taken), of(returned));
        let is_twice = taken_count + ended_again < returned_count && !ends_twice;
        if is_twice || is_all && taken_count != returned_count {
            let what = format!("all flows over: {taken} {taken_count}, {returned} {returned_count}");
            return Err(Violation::new("returned", what));
        }
    }
    match connections.iter().position(|count| *count > 0) {
        Some(runtime) => {
            let what = format!(
                "runtime {runtime}, all flows over: servers still have {} connections",
                connections[runtime]
            );
            Err(Violation::new("returned", what))
        }
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use runtime::stats::Named;

    fn counted(taken: u64, returned: u64) -> RuntimeStats {
        let counters = [("mappings_created", taken), ("mappings_released", returned)];
        let named = |(name, count)| Named {
            function: "nat".to_owned(),
            name,
            count,
        };
        RuntimeStats {
            counters: counters.map(named).to_vec(),
            ..RuntimeStats::default()
        }
    }

    /// The first of three had ended at the runtime that crashed, whose replica had not heard of
    /// that.
    #[test]
    fn each_flow_that_ends_again_at_its_heir_may_return_once_more() {
        let (heir, crashed) = ([counted(2, 3)], [counted(1, 1)]);
        let finds = |is_all, again| check(&heir, &crashed, &[], (is_all, false), again).is_err();
        assert_eq!([0, 1, 2].map(|again| finds(false, again)), [true, false, false]);
        assert!(finds(true, 1));
    }
}
