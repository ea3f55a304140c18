//! How long packets take through a switch and a runtime: of which ones it is noted, and what of.
//!
//! Not here: the metric of it (`flowkeep::metrics`).

use super::flows::Meter;
use super::spread::cluster;
use super::*;
use crate::stats::Durations;
use crate::switch::Policy;
use std::vec;

/// Sends so many bursts of packets through, the last of which is inside for so many nanoseconds and
/// each other one for 7 µs; answers the noted delays.
fn noted(bursts: u64, last: u64) -> Durations {
    let plan = plan(vec![factory::<Meter>()]);
    let mut cluster = cluster(1, 1, Policy::LeastLoaded, &plan, 64);
    let mut now = 1_000_000_000;
    for burst in 1..=bursts {
        let packets = (0..32).map(|_| udp(1, 1000, 1, 80, false, b""));
        cluster.switches[0].port_mut(0).input.extend(packets);
        cluster.switches[0].step(now);
        cluster.runtimes[0].step(now);
        now += if burst == bursts { last } else { 7_000 };
        cluster.switches[0].step(now);
    }
    let stats = cluster.switches[0].stats();
    assert_eq!(
        stats.sent,
        32 * bursts,
        "all of a burst leave in the step that is theirs"
    );
    stats.delays
}

#[test]
fn of_one_packet_in_1024_it_is_noted_how_long_it_took() {
    let delays = noted(31, 7_000);
    assert_eq!((delays.count(), delays.sum()), (0, 0));
    let delays = noted(32, 7_000);
    assert_eq!((delays.count(), delays.sum()), (1, 7_000));
    let delays = noted(32 * 5 + 1, 7_000);
    assert_eq!((delays.count(), delays.sum()), (5, 35_000));
}

#[test]
fn a_time_that_is_of_no_clock_of_ours_is_not_noted() {
    // As long as a packet's time is believed, and longer.
    assert_eq!(noted(32, 60_000_000_000).count(), 1);
    assert_eq!(noted(32, 60_000_000_001).count(), 0);
}
