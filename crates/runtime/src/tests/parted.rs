//! A route ends when the replica knows of the end of what it was for.

use super::groups::packet_of;
use super::lent::{Lender, fill};
use super::sessions::{Members, SECOND};
use super::{factory, plan};
use crate::mobility::{MoveOrder, Selector};
use crate::replica::BROKEN;
use crate::switch::Policy;
use std::vec;

/// Hosts that have blocks of the second runtime's share, and how many a share has.
const HOSTS: core::ops::Range<u8> = 1..7;
const SHARE: u8 = 8;

/// Groups of the first runtime end while its replica, the second, stands still; their hosts send
/// again, and it fails then. The replica has copies of the groups, whose blocks are of its own
/// share. How many blocks are to be had behind all that.
fn ends_as_its_replica_stands_still() -> usize {
    let plan = plan(vec![factory::<Lender>()]);
    let mut members = Members::copied(1, 3, Policy::RoundRobin, plan);
    begin_at_the_second(&mut members);
    let moved = members.flows()[0];
    assert!(moved > 0, "some have blocks of the second runtime's share");
    members.now += 11 * SECOND;
    step_without_the_replica(&mut members, 100);
    assert_eq!(members.flows()[0], 0, "they have ended");
    // In this order those of them that get other routes get them to the third runtime.
    let hosts = [1, 3, 2, 4, 6, 5].map(packet_of);
    members.switch(0).port_mut(0).input.extend(hosts);
    step_without_the_replica(&mut members, 100);
    // Of the ends the replica has heard nothing.
    members.lose(1, 2);
    members.stop(1);
    members.run_until_quiet();
    members.assert_one_home();
    members.assert_blocks_are_known("behind the failure");
    members.now += 11 * SECOND;
    members.run_until_quiet();
    assert_eq!(members.flows(), [0, 0, 0]);
    let refused = members.dropped("no_block");
    fill(&mut members, 0, 100..100 + 2 * SHARE);
    let refused = members.dropped("no_block") - refused;
    let got = members.flows().iter().sum::<u64>();
    members.check();
    members.assert_nothing_stays();
    assert_eq!(refused == 0, got == u64::from(2 * SHARE));
    usize::from(2 * SHARE) - refused as usize
}

/// Groups begin at the second runtime, and move to the first one.
fn begin_at_the_second(members: &mut Members) {
    fill(members, 0, HOSTS);
    for runtime in [0, 2] {
        // Flows elsewhere end where they are.
        members.runtime(runtime).delete_flows(&Selector::All, 0);
    }
    members.run_until_quiet();
    let order = MoveOrder {
        selector: Selector::All,
        to: vec![0],
    };
    members.runtime(1).order(order).unwrap();
    members.run_until_quiet();
}

fn step_without_the_replica(members: &mut Members, rounds: usize) {
    for worker in [0, 1, 3].into_iter().cycle().take(3 * rounds) {
        members.now += 1000;
        members.step(worker);
    }
}

#[test]
fn a_route_ends_when_the_replica_knows_of_the_end() {
    assert_eq!(ends_as_its_replica_stands_still(), usize::from(2 * SHARE));
    BROKEN.set("routes wait for copies");
    let outcome = std::panic::catch_unwind(ends_as_its_replica_stands_still);
    BROKEN.set("");
    let blocks = outcome.ok().filter(|blocks| *blocks == usize::from(2 * SHARE));
    assert_eq!(blocks, None, "a rule that is broken is noticed");
}
