//! The cost of functions: counted for some bursts, which are processed like all others.

use super::flows::{Masquerade, Meter, feed};
use super::*;
use core::sync::atomic::{AtomicU64, Ordering};
use std::vec;
use std::vec::Vec;

static NOW: AtomicU64 = AtomicU64::new(0);

fn clock() -> u64 {
    NOW.fetch_add(50, Ordering::Relaxed)
}

/// Flows that are refused, answered, held, released, copied and ended.
fn traffic(round: u16) -> Vec<(Side, Vec<u8>)> {
    let ports = [80, 9, 7, 3, 6, 5, 4];
    let all = ports.into_iter().flat_map(|port| {
        let source = 1000 + (round + port) % 40;
        [
            udp(1, source, 1, port, false, b""),
            udp(1, source, 1, port, false, &[1]),
            udp(1, source, 1, port, true, b""),
        ]
    });
    all.collect()
}

#[test]
fn a_sampled_burst_is_processed_like_any_other() {
    let runtime = || {
        alone(
            Settings::alone(64),
            vec![factory::<Meter>(), factory::<Masquerade>()],
        )
    };
    let (mut plain, mut sampled) = (runtime(), runtime());
    sampled.sample_costs(clock);
    for round in 0..1000 {
        for runtime in [&mut plain, &mut sampled] {
            feed(runtime, traffic(round), u64::from(round) * 100_000_000);
        }
        let (one, other) = (&plain.links_mut()[0].output, &sampled.links_mut()[0].output);
        assert_eq!(one.len(), other.len(), "round {round}");
    }
    assert!(plain.links_mut()[0].output == sampled.links_mut()[0].output);
    let (one, other) = (plain.stats(), sampled.stats());
    assert_eq!((&one.dropped, &one.counters), (&other.dropped, &other.counters));
    assert_eq!(
        (one.passed, one.held, one.flows_opened, one.flows_ended),
        (other.passed, other.held, other.flows_opened, other.flows_ended)
    );
    assert!(one.costs.is_empty(), "without a clock nothing is counted");
    let names: Vec<&str> = other.costs.iter().map(|cost| cost.function.as_str()).collect();
    assert_eq!(names, ["meter", "masquerade"]);
    for cost in &other.costs {
        let packets = one.received;
        assert!(cost.calls >= packets / 320 / 2, "{cost:?} of {packets}");
        assert!(cost.calls <= packets / 20, "{cost:?} of {packets}");
        // The clock shows 50 more at each reading, which is its own cost.
        assert_eq!((cost.cycles, cost.interrupted), (0, 0));
    }
}
