//! Invariant 13: a packet that enters leaves, is held, or is a counted drop, once; and all that has
//! a bound keeps to it.

use super::Violation;
use crate::script::Shape;
use crate::world::Packet;
use runtime::stats::{RuntimeStats, SwitchStats};

const NAME: &str = "conservation";

/// A packet, or a part of it, has left: not oftener than it entered.
pub(crate) fn left(packet: &Packet, part: u8) -> Result<(), Violation> {
    let passages = &packet.passages[usize::from(part)];
    if passages.left > passages.entered {
        let of_part = match packet.split {
            0 => String::new(),
            _ => format!(" (fragment {part})"),
        };
        let what = format!(
            "{packet}{of_part} entered {} times and left {} times",
            passages.entered, passages.left
        );
        return Err(Violation::new(NAME, what));
    }
    Ok(())
}

/// The figures of one cluster at rest: nothing is on its way.
#[derive(Default)]
pub(crate) struct ClusterStats {
    pub switches: Vec<SwitchStats>,
    pub runtimes: Vec<RuntimeStats>,
    /// Of those that crashed, as they were.
    pub past_switches: Vec<SwitchStats>,
    pub past_runtimes: Vec<RuntimeStats>,
    /// Packets that may be lost with them, and with sessions that ended.
    pub losses: u64,
    /// Packets that links lost, and counted: they were for no worker.
    pub unsent: u64,
    /// The frames that were seen from outside: taken in and sent.
    pub entered: u64,
    pub left: u64,
    /// Of those sent, frames that the cluster made.
    pub own: u64,
    /// Of those sent, damaged frames that are ICMP errors by their own words. Such an error may be
    /// about a flow that has no packet, and is then in no record.
    pub damaged_errors: u64,
    /// Of each switch: buffers in its pool, and how many it has.
    pub pools: Vec<(usize, usize)>,
}

impl ClusterStats {
    /// Packets received, sent, made, held and dropped.
    fn sums(&self) -> [u64; 5] {
        let switches = || self.switches.iter().chain(&self.past_switches);
        let runtimes = || self.runtimes.iter().chain(&self.past_runtimes);
        let held = self.switches.iter().map(|stats| stats.held);
        let held: u64 = held.chain(self.runtimes.iter().map(|stats| stats.held)).sum();
        let drops = switches().flat_map(|stats| &stats.dropped);
        let drops = drops.chain(runtimes().flat_map(|stats| &stats.dropped));
        [
            switches().map(|stats| stats.received).sum(),
            switches().map(|stats| stats.sent).sum(),
            runtimes().map(|stats| stats.emitted).sum(),
            held,
            drops.map(|named| named.count).sum::<u64>() + self.unsent,
        ]
    }

    /// How many packets that came in or were made are not out, held or dropped: on their way, or
    /// lost.
    pub fn missing(&self) -> i64 {
        let [received, sent, emitted, held, dropped] = self.sums();
        (received + emitted) as i64 - (sent + held + dropped) as i64
    }
}

/// Everything that came in is out, held or dropped.
pub(crate) fn at_rest(figures: &ClusterStats) -> Result<(), Violation> {
    let [received, sent, emitted, held, dropped] = figures.sums();
    if [received, sent] != [figures.entered, figures.left] {
        let what = format!(
            "{} packets entered and {} left, but {received} and {sent} are counted",
            figures.entered, figures.left
        );
        return Err(Violation::new(NAME, what));
    }
    let of_switches = figures.switches.iter().chain(&figures.past_switches);
    let of_runtimes = figures.runtimes.iter().chain(&figures.past_runtimes);
    let refused = of_switches.map(|stats| stats.words_refused);
    let refused: u64 = refused.chain(of_runtimes.map(|stats| stats.words_refused)).sum();
    if refused > 0 {
        let what = format!("{refused} words of workers were refused, none of which says what it may not");
        return Err(Violation::new(NAME, what));
    }
    let missing = figures.missing();
    if missing < 0 || missing as u64 > figures.losses {
        let losses = match figures.losses {
            0 => String::new(),
            most => format!(", and at most {most} were lost with workers or sessions"),
        };
        let what = format!(
            "{received} in and {emitted} made are not {sent} out, {held} held and {dropped} dropped{losses}"
        );
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
    let [_, _, _, held, _] = figures.sums();
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

/// Runtimes and rings keep to their bounds.
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
