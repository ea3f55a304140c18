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
/// each runtime tells of its servers. `past` is what crashed runtimes had counted: what they had
/// taken is not returned, and nothing is twice. `ends_twice`: a flow of a runtime that is given up
/// and lives may end there by its time, and at its heir, which has not taken what it returns.
pub(crate) fn check(
    runtimes: &[RuntimeStats],
    past: &[RuntimeStats],
    connections: &[u64],
    (is_all, ends_twice): (bool, bool),
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
        if taken_count < returned_count && !ends_twice || is_all && taken_count != returned_count {
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
