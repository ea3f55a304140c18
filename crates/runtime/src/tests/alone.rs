//! Packets that wait for switches as their runtime loses its replica.

use super::replica::{Stamp, out};
use super::sessions::{Members, SECOND};
use super::*;
use crate::replica::policy::Copying;
use crate::switch::Policy;
use std::vec;

const FLOWS: u16 = 20;
const RUNTIME: usize = 2;
const REPLICA: usize = 3;

/// The first switch and the runtime take turns.
fn step_two(members: &mut Members) {
    for _ in 0..200 {
        members.now += 1000;
        members.step(0);
        members.step(RUNTIME);
    }
}

/// First packets wait for the second switch, which stands still as the replica does, and their
/// copies are not acknowledged. Then the replica fails.
fn as_the_replica_fails(drops_alone: bool) -> Members {
    let copying = Copying {
        drops_alone,
        ..Copying::default()
    };
    let plan = plan(vec![factory::<Stamp>()]);
    let mut members = Members::copying(copying, 2, 2, Policy::LeastLoaded, plan);
    members.runtime(1).set_leaving(true);
    members.run_until_quiet();
    let packets = (0..FLOWS).map(|n| out(3000 + n));
    members.switch(0).port_mut(0).input.extend(packets);
    step_two(&mut members);
    // The others wait at the second switch, which is their home.
    let held = members.runtime(0).stats().held;
    assert!(0 < held && held < u64::from(FLOWS), "{held}");
    assert_ne!(members.runtime(0).records_unacknowledged(), 0);
    members.stop(REPLICA);
    step_two(&mut members);
    let stats = members.runtime(0).stats();
    assert_eq!((stats.protected_by, stats.held), (None, held));
    members
}

/// The second switch hears of the flows: how many packets have left, how many of them count as
/// unprotected, and how many were dropped.
fn as_switches_hear(members: &mut Members) -> (usize, u64, u64) {
    members.run_until_quiet();
    let stats = members.runtime(0).stats();
    assert_eq!(stats.held, 0, "no replica will acknowledge anything");
    (
        members.sent().len(),
        stats.unprotected,
        members.dropped("no_replica"),
    )
}

#[test]
fn what_waits_for_switches_goes_as_packets_without_a_replica_do() {
    let all = u64::from(FLOWS);
    for (drops_alone, expected) in [(false, (usize::from(FLOWS), all, 0)), (true, (0, 0, all))] {
        let mut members = as_the_replica_fails(drops_alone);
        assert_eq!(as_switches_hear(&mut members), expected, "{drops_alone}");
        members.check();
    }
}

#[test]
fn what_waits_of_a_flow_that_is_over_waits_for_no_replica_that_is_gone() {
    let all = u64::from(FLOWS);
    for (drops_alone, expected) in [(false, (usize::from(FLOWS), all, 0)), (true, (0, 0, all))] {
        let mut members = as_the_replica_fails(drops_alone);
        let held = members.runtime(0).stats().held;
        members.now += 400 * SECOND;
        step_two(&mut members);
        let stats = members.runtime(0).stats();
        assert_eq!((stats.flows, stats.held), (0, held));
        assert_eq!(as_switches_hear(&mut members), expected, "{drops_alone}");
        members.check();
    }
}
