//! Queues of runtimes and ports that are full, or short: where packets wait, and that nothing is
//! lost.

use super::flows::{Masquerade, Meter};
use super::spread::*;
use super::*;
use crate::switch::Policy;
use proptest::prelude::*;
use std::collections::HashMap;
use std::vec;
use wire::HashSeed;
use wire::packet::Kind;

#[test]
fn a_slow_runtime_makes_a_capture_wait_and_loses_nothing() {
    let plan = plan(vec![factory::<Meter>()]);
    let mut cluster = cluster(1, 2, Policy::LeastLoaded, &plan, 2048);
    cluster.switches[0]
        .port_mut(0)
        .input
        .extend((0..1000).map(|n| udp(1, 1000 + n, 1, 80, false, b"")));
    // Only runtime 0 works: the other's queue fills, and the port is left alone.
    for _ in 0..200 {
        cluster.switches[0].step(1);
        cluster.runtimes[0].step(1);
    }
    assert!(cluster.switches[0].stats().stalls > 0);
    assert!(cluster.switches[0].port_mut(0).input.len() > 500);
    cluster.run_until_quiet();
    assert_eq!(cluster.sent().len(), 1000);
    cluster.check();
}

#[test]
fn a_wire_is_read_while_some_runtime_has_room_and_left_alone_when_none_has() {
    let plan = plan(vec![factory::<Meter>()]);
    let packets = || (0..1000).map(|n| udp(1, 1000 + n, 1, 80, false, b""));
    for works in [true, false] {
        let mut cluster = cluster(1, 2, Policy::RoundRobin, &plan, 2048);
        let port = cluster.switches[0].port_mut(0);
        port.is_a_wire = true;
        port.input.extend(packets());
        for _ in 0..200 {
            cluster.switches[0].step(1);
            if works {
                cluster.runtimes[0].step(1);
            }
        }
        let left = cluster.switches[0].port_mut(0).input.len();
        let busy = |cluster: &Cluster| -> u64 {
            let all = cluster.switches[0].stats().dropped;
            let busy = all.iter().filter(|drop| drop.name == "runtime_busy");
            busy.map(|drop| drop.count).sum()
        };
        if works {
            assert_eq!(left, 0, "the one that works has its packets");
            assert!(busy(&cluster) > 100, "the other's are lost");
        } else {
            assert!(left > 500, "{left}");
            assert_eq!(busy(&cluster), 0);
            assert!(cluster.switches[0].stats().stalls > 0);
        }
        cluster.run_until_quiet();
        assert_eq!(busy(&cluster) == 0, cluster.sent().len() == 1000);
        cluster.check();
    }
}

#[test]
fn a_slow_runtime_makes_what_peers_hand_over_wait_and_loses_nothing() {
    let plan = plan(vec![factory::<Meter>()]);
    let mut cluster = cluster(2, 2, Policy::LeastLoaded, &plan, 2048);
    // All for groups whose home is the other switch: the queues of the switch that reads stay
    // empty.
    let mut spare = pool(1, 99);
    let packets = (0..2000).map(|n| udp(1, 1000 + n, 1, 80, false, b""));
    let elsewhere = packets.filter(|sent| {
        let key = parsed(&mut spare, sent, |p| wire::FlowKey::of(p).unwrap().0);
        crate::switch::home_of(key.hash(&HashSeed::FIXED), 2) == 1
    });
    let elsewhere: Vec<_> = elsewhere.collect();
    let count = elsewhere.len();
    cluster.switches[0].port_mut(0).input.extend(elsewhere);
    for _ in 0..200 {
        for switch in &mut cluster.switches {
            switch.step(1);
        }
        cluster.runtimes[0].step(1);
    }
    assert!(cluster.switches[1].stats().stalls > 0);
    assert!(!cluster.switches[0].port_mut(0).input.is_empty());
    cluster.run_until_quiet();
    assert_eq!(cluster.sent().len(), count);
    cluster.check();
}

#[test]
fn a_hairpinned_packet_that_waits_for_room_is_seen() {
    let plan = plan(vec![factory::<Meter>()]);
    let mut cluster = cluster_with(1, 1, Policy::RoundRobin, &plan, 64, 256, 64);
    let switch = &mut cluster.switches[0];
    let frames = (0..2).map(|n| udp(1, 1000 + n, 1, 80, false, b""));
    switch.port_mut(0).input.extend(frames);
    switch.step(1);
    let link = switch.link_mut(0);
    let (incoming, outgoing) = (link.incoming.clone(), link.outgoing.clone());
    // One packet comes back to be turned, and the other is yet to be read.
    let mut packet = outgoing.borrow_mut().pop_front().unwrap();
    packet.set_flags(wire::packet::flag::HAIRPIN);
    incoming.borrow_mut().push_back(packet);
    switch.step(2);
    assert_eq!((switch.stats().turned, outgoing.borrow().len()), (1, 1));
    assert!(switch.has_hairpins() && !switch.finished());
    let mut other = outgoing.borrow_mut().pop_front().unwrap();
    other.set_kind(Kind::Empty);
    incoming.borrow_mut().push_back(other);
    switch.step(3);
    assert_eq!((outgoing.borrow().len(), outgoing.borrow()[0].hairpins()), (1, 1));
    assert!(!switch.has_hairpins() && switch.finished());
}

#[test]
fn a_port_without_room_makes_a_capture_at_another_switch_wait_and_loses_nothing() {
    let plan = plan(vec![factory::<Meter>()]);
    let mut cluster = cluster(2, 2, Policy::LeastLoaded, &plan, 4096);
    let count = 3000;
    cluster.switches[0]
        .port_mut(0)
        .input
        .extend((0..count).map(|n| udp(1, 1000 + n, 1, 80, false, b"")));
    // Outgoing packets leave by the other switch's port, which takes ten at a time.
    let mut left = 0;
    cluster.switches[1].port_mut(0).output_max = Some(10);
    for _ in 0..20 {
        cluster.run_until_quiet();
    }
    let waiting = cluster.switches[0].port_mut(0).input.len();
    assert!(
        waiting > usize::from(count) - 600,
        "no more is read than there are buffers"
    );
    while left < usize::from(count) {
        let port = cluster.switches[1].port_mut(0);
        let taken = core::mem::take(&mut port.output);
        assert!(!taken.is_empty() && taken.len() <= 10, "after {left}");
        left += taken.len();
        cluster.run_until_quiet();
    }
    assert_eq!(cluster.switches[1].port_mut(0).counters.unsent_packets, 0);
    assert_eq!(cluster.switches[1].stats().sent, u64::from(count));
    cluster.check();
}
/// The most events of a case; under miri few, since after each all flows are looked at.
const EVENTS: usize = if cfg!(miri) { 16 } else { 200 };

proptest! {
    #![proptest_config(ProptestConfig::with_cases(ProptestConfig::default().cases.div_ceil(6)))]
    /// Random traffic, random time, random order of steps: a flow is never at two runtimes, packets
    /// of a flow leave in order, and everything adds up.
    #[test]
    fn one_home_per_flow(
        events in proptest::collection::vec((0u8..3, 0u8..5, 0u8..3, 0u8..2, 0u64..8), 1..EVENTS),
    ) {
        let plan = plan(vec![factory::<Meter>(), factory::<Masquerade>()]);
        let mut cluster = cluster(2, 3, Policy::RoundRobin, &plan, 64);
        let mut sequence: HashMap<(u8, u8), u8> = HashMap::new();
        let mut now = 0;
        for (port, what, input, switch, pass) in events {
            let ports = (u16::from(port) + 1000, 80);
            // So much that a runtime's queue is not emptied in one step: flows then expire with
            // packets on their way.
            if input == 1 {
                cluster.switches[usize::from(switch)].port_mut(0).input.extend((0..40).map(|_| udp(1, 999, 1, 80, false, &[0])));
            }
            if input > 0 {
                let n = sequence.entry((port, 0)).or_default();
                *n += 1;
                cluster.switches[usize::from(switch)].port_mut(0).input.push_back(udp(1, ports.0, 1, ports.1, false, &[*n]));
            }
            // Time enough for some flows to expire while others go on.
            now += pass * 1_000_000_000;
            match what {
                0 => { cluster.switches[0].step(now); }
                1 => { cluster.switches[1].step(now); }
                other => { cluster.runtimes[usize::from(other) - 2].step(now); }
            }
            let mut keys: HashMap<wire::FlowKey, u16> = HashMap::new();
            for runtime in &cluster.runtimes {
                for flow in runtime.flows(0, 100).0 {
                    prop_assert!(keys.insert(flow.key, flow.runtime).is_none(), "{} is at two runtimes", flow.key);
                }
            }
        }
        cluster.now = now;
        cluster.run_until_quiet();
        cluster.check();
        // Routes end with their flows, none is left behind.
        cluster.now += 400_000_000_000;
        cluster.run_until_quiet();
        prop_assert_eq!(cluster.switches.iter().map(|s| s.stats().routes).sum::<u64>(), 0);
    }
}
