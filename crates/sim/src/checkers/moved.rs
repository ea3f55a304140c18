//! Invariant 3: a planned move of groups loses no packet that the undisturbed system would have
//! forwarded, and doubles none; it ends, and its receipt adds up.
//!
//! That nothing is doubled or overtaken is for `conservation` and `order`, which look at whatever
//! leaves. Here: where nothing is full and no fault ends or alters a flow (calm scripts, and those
//! in which workers stall and the network does no more than lose: [`Script::loses_nothing`]), all
//! that came in of talks that must be answered has left; where nothing is ever full, nothing is
//! dropped for want of room to keep it (`moving_full`, the exception that a bound makes, is for
//! tight shapes); and once all is at rest, no move is under way, and all that went has come.

use super::Violation;
use super::conservation::ClusterStats;
use crate::script::{Fate, Script, Shape};
use crate::world::Packet;
use runtime::mobility::{OrderError, Receipt};
use runtime::stats::RuntimeStats;

const NAME: &str = "moved";

/// At rest: no packet was dropped because its group moved, if there is room for all that may be
/// kept.
pub(crate) fn no_drops(shape: &Shape, figures: &ClusterStats) -> Result<(), Violation> {
    if !shape.is_roomy {
        return Ok(());
    }
    let drops = figures.runtimes.iter().flat_map(|stats| &stats.dropped);
    match drops.into_iter().find(|named| named.name == "moving_full") {
        Some(named) => {
            let what = format!(
                "{} packets were dropped as `moving_full`, and nothing was full",
                named.count
            );
            Err(Violation::new(NAME, what))
        }
        None => Ok(()),
    }
}

/// At rest: flows and packets that left one runtime have come to another.
pub(crate) fn adds_up(figures: &ClusterStats) -> Result<(), Violation> {
    let sums = |of: fn(&RuntimeStats) -> [u64; 2]| {
        let each = figures.runtimes.iter().map(of);
        each.fold([0, 0], |[came, went], [c, w]| [came + c, went + w])
    };
    for (what, [came, went]) in [
        ("flows", sums(|stats| stats.flows_moved)),
        ("packets", sums(|stats| stats.packets_moved)),
    ] {
        if came != went {
            let what = format!("{went} {what} went from runtime to runtime, and {came} came");
            return Err(Violation::new(NAME, what));
        }
    }
    Ok(())
}

/// At rest, where no fault takes anything away from a flow: packets that came in of talks that must
/// be answered have left. Excused are packets for a home switch that had not been met
/// (`home_absent`): processes begin one after another. Fragments without their first one wait, and
/// go nowhere.
pub(crate) fn nothing_lost(
    script: &Script,
    packets: &[Packet],
    figures: &ClusterStats,
) -> Result<(), Violation> {
    let drops = figures.switches.iter().flat_map(|stats| &stats.dropped);
    let absent = drops.filter(|named| named.name == "home_absent");
    let excused: u64 = absent.map(|named| named.count).sum();
    let is_to_pass = |packet: &&Packet| {
        let talk = script.talks.get(usize::from(packet.talk));
        let has_come = packet.split == 0 || packet.passages[0].entered > 0 && excused == 0;
        talk.is_some_and(|talk| talk.fate == Fate::Answered) && !packet.is_wild && has_come
    };
    let missing = |packet: &Packet| -> u64 {
        let parts = packet.passages.iter();
        parts
            .map(|part| u64::from(part.entered.saturating_sub(part.left)))
            .sum()
    };
    let lost: Vec<&Packet> = packets
        .iter()
        .filter(is_to_pass)
        .filter(|packet| missing(packet) > 0)
        .collect();
    let count: u64 = lost.iter().map(|packet| missing(packet)).sum();
    match lost.first() {
        Some(packet) if count > excused => Err(Violation::new(
            NAME,
            format!(
                "{packet} came in and did not leave, though nothing was full and no fault is a reason ({})",
                drops_of(figures)
            ),
        )),
        _ => Ok(()),
    }
}

/// All drops of all workers, by reason.
fn drops_of(figures: &ClusterStats) -> String {
    let runtimes = figures.runtimes.iter().flat_map(|stats| &stats.dropped);
    let switches = figures.switches.iter().flat_map(|stats| &stats.dropped);
    let named = runtimes.chain(switches).filter(|named| named.count > 0);
    let each: Vec<String> = named
        .map(|named| format!("{} {}", named.count, named.name))
        .collect();
    match each.is_empty() {
        true => String::from("no drop was counted"),
        false => each.join(", "),
    }
}

/// At rest: every order is over, and the groups that it asked for have moved, were refused, failed,
/// or ended on the way. An order whose receipt is not kept any more says nothing. Its times are by
/// one clock, so no group paused for longer than all of it took.
pub(crate) fn receipts(receipts: impl Iterator<Item = (u16, Option<Receipt>)>) -> Result<(), Violation> {
    for (from, receipt) in receipts {
        let Some(receipt) = receipt else { continue };
        let told = receipt.moved + receipt.refused + receipt.failed;
        let is_late = receipt.pause_longest > receipt.duration;
        if !receipt.is_over || receipt.waiting + receipt.under_way > 0 || told > receipt.asked || is_late {
            let what = format!("runtime {from}, all at rest: the receipt of a move is {receipt:?}");
            return Err(Violation::new(NAME, what));
        }
    }
    Ok(())
}

/// An order that should have been taken was not.
pub(crate) fn not_taken(error: &OrderError) -> Violation {
    Violation::new(NAME, format!("an order to move groups was refused: {error}"))
}
