//! Invariant 7: every resource taken is returned exactly once: when all flows have ended, functions have given back what they took.

use super::Violation;
use runtime::stats::RuntimeStats;

/// Counters of a function, and those of what it returns.
const PAIRS: [(&str, &str); 2] = [
    ("mappings_created", "mappings_released"),
    ("blocks_claimed", "blocks_released"),
];

/// All flows have ended, and with them whatever they took. `backends` is what the load balancer of each runtime tells of its servers.
pub(crate) fn check(runtimes: &[RuntimeStats], connections: &[u64]) -> Result<(), Violation> {
    for (index, stats) in runtimes.iter().enumerate() {
        let of = |name: &str| {
            stats
                .counters
                .iter()
                .find(|named| named.name == name)
                .map(|named| named.count)
        };
        for (taken, returned) in PAIRS {
            if let (Some(taken_count), Some(returned_count)) = (of(taken), of(returned))
                && taken_count != returned_count
            {
                let what = format!(
                    "runtime {index}, all flows over: {taken} {taken_count}, {returned} {returned_count}"
                );
                return Err(Violation::new("returned", what));
            }
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
