//! Invariant 12, as far as there is something to recover from: once faults are over, whatever is
//! sent is answered, and all flows, groups, routes and blocks end, in bounded time.

use super::Violation;
use super::conservation::ClusterStats;
use crate::script::Talk;

const NAME: &str = "converged";

/// A talk that must have been answered was not.
pub(crate) fn unanswered(index: usize, talk: &Talk, figures: &ClusterStats) -> Violation {
    let switches = figures.switches.iter().flat_map(|stats| &stats.dropped);
    let runtimes = figures.runtimes.iter().flat_map(|stats| &stats.dropped);
    let drops = switches.chain(runtimes).filter(|named| named.count > 0);
    let drops: Vec<String> = drops
        .map(|named| format!("{} {}", named.count, named.name))
        .collect();
    let drops = drops.join(", ");
    Violation::new(
        NAME,
        format!("talk {index} was not answered, with no fault left: {talk}; drops: {drops}"),
    )
}

/// Packets are still on their way, or hosts still wait, after all the time they were given.
pub(crate) fn restless(waiting: &str) -> Violation {
    Violation::new(NAME, format!("no rest, with no fault left: {waiting}"))
}

/// All flows should have ended: nothing is left.
pub(crate) fn empty(figures: &ClusterStats) -> Result<(), Violation> {
    let mut left = Vec::new();
    for (index, stats) in figures.runtimes.iter().enumerate() {
        for (count, what) in [
            (stats.flows, "flows"),
            (stats.groups, "groups"),
            (stats.held, "held packets"),
        ] {
            if count > 0 {
                left.push(format!("{count} {what} at runtime {index}"));
            }
        }
    }
    for (index, stats) in figures.switches.iter().enumerate() {
        for (count, what) in [
            (stats.routes, "routes"),
            (stats.blocks, "blocks"),
            (stats.held, "held packets"),
        ] {
            if count > 0 {
                left.push(format!("{count} {what} at switch {index}"));
            }
        }
    }
    if left.is_empty() {
        return Ok(());
    }
    Err(Violation::new(
        NAME,
        format!("all flows' time is over, and there are {}", left.join(", ")),
    ))
}

/// A runtime that leaves takes no more steps, and is a member still.
pub(crate) fn not_left(runtime: &str) -> Violation {
    Violation::new(
        NAME,
        format!("{runtime} has said that it leaves, and no view is without it"),
    )
}
