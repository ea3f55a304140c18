//! After the start, workers allocate nothing: not for packets, not for new flows, not when flows
//! end.

use crate::frames::{self, SERVICE};
use crate::rig::{Alone, Cluster, Established, Rig, WEB_ONLY, establish};
use nf::Side;
use runtime::watch::capture::{Capture, Choice, Frames};
use runtime::watch::trace::{Budget, Trace};
use runtime::watch::{Watch, What};
use std::sync::Arc;
use wire::{Addr, Endpoint, FlowKey};

const FLOWS_MAX: u32 = 10_000;
/// Flows that come and go. On two runtimes there is room to spare.
const FLOWS: u32 = 9_600;

fn established_flows<R: Rig>() {
    let mut rig = R::new(WEB_ONLY, FLOWS_MAX);
    let flows: Vec<Established> = (0..1000).map(|n| establish(&mut rig, n)).collect();
    let before = rig.world().served;
    let count = testkit::allocations(|| {
        for _ in 0..50 {
            for flow in &flows {
                rig.offer(Side::Inside, &flow.forward);
                rig.offer(Side::Outside, &flow.back);
            }
        }
        rig.run_until_quiet();
    });
    assert_eq!(rig.world().served - before, 100_000);
    assert_eq!(count, 0, "allocations by 100,000 packets of established flows");
    rig.books().check();
}

/// As many flows as there may be, `per_host` for each inside host, open and expire, over and over.
fn flows_that_come_and_go<R: Rig>(per_host: u32) {
    let mut rig = R::new(WEB_ONLY, FLOWS_MAX);
    let served: Vec<Established> = (0..10).map(|n| establish(&mut rig, n)).collect();
    // Again, with other flows each time, so that remains of ended flows have to be cleared away.
    for round in 0..4 {
        let opening = testkit::allocations(|| {
            for n in 0..FLOWS {
                let n = n + round * 100_000;
                let inside = (0x0a00_0000 + n / per_host, 30_000 + (n % per_host) as u16);
                rig.offer(Side::Inside, &frames::tcp(inside, SERVICE, frames::SYN, false));
            }
            rig.run_until_quiet();
        });
        assert_eq!(rig.books().flows, u64::from(FLOWS) + 10);
        let ending = testkit::allocations(|| {
            rig.pass(250);
            rig.pass(10);
        });
        assert_eq!(rig.books().flows, 10);
        assert_eq!(
            (opening, ending),
            (0, 0),
            "allocations by opening and by expiring {FLOWS} flows, {per_host} for each host, round {round}"
        );
    }
    let before = rig.world().served;
    for flow in &served {
        rig.offer(Side::Inside, &flow.forward);
        rig.offer(Side::Outside, &flow.back);
    }
    rig.run_until_quiet();
    assert_eq!(rig.world().served - before, 20);
    rig.books().check();
}

#[test]
fn established_flows_allocate_nothing_on_a_runtime_alone() {
    let _turn = crate::turn();
    established_flows::<Alone>();
}

#[test]
fn established_flows_allocate_nothing_behind_a_switch() {
    let _turn = crate::turn();
    established_flows::<Cluster>();
}

#[test]
fn flows_that_come_and_go_allocate_nothing_on_a_runtime_alone() {
    let _turn = crate::turn();
    flows_that_come_and_go::<Alone>(32);
    flows_that_come_and_go::<Alone>(1);
}

#[test]
fn flows_that_come_and_go_allocate_nothing_behind_a_switch() {
    let _turn = crate::turn();
    flows_that_come_and_go::<Cluster>(32);
    flows_that_come_and_go::<Cluster>(1);
}

/// While a trace and a capture go on: the watch brought its memory, which gets full if it is not
/// fetched.
fn watched_flows<R: Rig>() {
    let mut rig = R::new(WEB_ONLY, FLOWS_MAX);
    let flows: Vec<Established> = (0..10).map(|n| establish(&mut rig, n)).collect();
    let end = |(addr, port): (u32, u16)| Endpoint::new(Addr::v4(addr.to_be_bytes()), port);
    let (key, _) = FlowKey::new(end((0x0afa_0000, 20_000)), end(SERVICE), wire::protocol::TCP, 0);
    let budget = Arc::new(Budget::default());
    budget.open(u32::MAX);
    let everything = Choice {
        incoming: true,
        outgoing: true,
        dropped: true,
        filter: None,
        snap_length: 2048,
    };
    rig.watch(&|| Watch {
        id: 1,
        what: What::Flow(Box::new(Trace::new(0, &[key], Arc::clone(&budget), 100))),
    });
    rig.watch(&|| Watch {
        id: 2,
        what: What::Packets(Box::new(Capture::new(
            everything.clone(),
            Frames::with_room(100, 10_000),
        ))),
    });
    let refused = frames::tcp((0x0a00_0001, 9), (SERVICE.0, 22), frames::SYN, false);
    let count = testkit::allocations(|| {
        for _ in 0..100 {
            for flow in &flows {
                rig.offer(Side::Inside, &flow.forward);
                rig.offer(Side::Outside, &flow.back);
            }
            rig.offer(Side::Inside, &refused);
        }
        rig.run_until_quiet();
    });
    assert!(
        u32::MAX - budget.left() >= 200,
        "both directions of one flow are traced"
    );
    assert_eq!(count, 0, "allocations by packets that are watched");
    rig.books().check();
}

#[test]
fn watched_flows_allocate_nothing() {
    let _turn = crate::turn();
    watched_flows::<Alone>();
    watched_flows::<Cluster>();
}
