//! Invariant 13: what enters leaves, is held, or is a counted drop, once; and what has a bound keeps to it.

use super::Violation;
use crate::script::Shape;
use crate::world::Packet;
use runtime::stats::{RuntimeStats, SwitchStats};

const NAME: &str = "conservation";

/// A packet has left: not oftener than it entered.
pub(crate) fn left(packet: &Packet) -> Result<(), Violation> {
    if packet.left > packet.entered {
        let what = format!(
            "{packet} entered {} times and left {} times",
            packet.entered, packet.left
        );
        return Err(Violation::new(NAME, what));
    }
    Ok(())
}

/// The figures of one cluster at rest: nothing is on its way.
#[derive(Default)]
pub(crate) struct Figures {
    pub switches: Vec<SwitchStats>,
    pub runtimes: Vec<RuntimeStats>,
    /// What was seen from outside: frames taken in and sent.
    pub entered: u64,
    pub left: u64,
    /// Of each switch: buffers in its pool, and how many it has.
    pub pools: Vec<(usize, usize)>,
}

/// Everything that came in is out, held or dropped.
pub(crate) fn at_rest(figures: &Figures) -> Result<(), Violation> {
    let received: u64 = figures.switches.iter().map(|stats| stats.received).sum();
    let sent: u64 = figures.switches.iter().map(|stats| stats.sent).sum();
    let emitted: u64 = figures.runtimes.iter().map(|stats| stats.emitted).sum();
    let held = figures.switches.iter().map(|stats| stats.held);
    let held: u64 = held.chain(figures.runtimes.iter().map(|stats| stats.held)).sum();
    let drops = figures.switches.iter().flat_map(|stats| &stats.dropped);
    let drops = drops.chain(figures.runtimes.iter().flat_map(|stats| &stats.dropped));
    let dropped: u64 = drops.map(|named| named.count).sum();
    if (received, sent) != (figures.entered, figures.left) {
        let what = format!(
            "{} packets entered and {} left, but {received} and {sent} are counted",
            figures.entered, figures.left
        );
        return Err(Violation::new(NAME, what));
    }
    if received + emitted != sent + held + dropped {
        let what =
            format!("{received} in and {emitted} made are not {sent} out, {held} held and {dropped} dropped");
        return Err(Violation::new(NAME, what));
    }
    for (index, stats) in figures.runtimes.iter().enumerate() {
        let dropped: u64 = stats.dropped.iter().map(|named| named.count).sum();
        let [came, went] = stats.packets_moved;
        if stats.received + stats.emitted + came != stats.passed + stats.held + dropped + went {
            let what = format!(
                "runtime {index}: {} received, {} made and {came} from other runtimes are not {} passed, {} held, \
                 {dropped} dropped and {went} handed on",
                stats.received, stats.emitted, stats.passed, stats.held
            );
            return Err(Violation::new(NAME, what));
        }
    }
    for (index, (free, total)) in figures.pools.iter().enumerate() {
        if held == 0 && free != total {
            let what = format!(
                "nothing is on its way, but {} of switch {index}'s {total} buffers are not home",
                total - free
            );
            return Err(Violation::new(NAME, what));
        }
    }
    Ok(())
}

/// What runtimes may hold at most, and what may be on a ring.
pub(crate) fn bounds(shape: &Shape, flows: &[usize], rings: &[(usize, usize)]) -> Result<(), Violation> {
    for (runtime, flows) in flows.iter().enumerate() {
        if *flows > shape.flows_max as usize {
            let what = format!(
                "runtime {runtime} has {flows} flows, and may have {}",
                shape.flows_max
            );
            return Err(Violation::new(NAME, what));
        }
    }
    for (most, bound) in rings {
        if most > bound {
            return Err(Violation::new(
                NAME,
                format!("{most} packets were on a ring that says it holds {bound}"),
            ));
        }
    }
    Ok(())
}
