//! Flows that must have no effect any more, while packets of theirs wait for copies.

use super::replica::{out, stamped};
use super::sessions::{Members, SECOND};
use super::udp;
use crate::group::GroupKey;
use crate::message::Message;
use crate::switch::Policy;
use std::vec::Vec;

const SWITCH: usize = 0;

/// The switch and one runtime take turns; the replica of that one acknowledges nothing.
fn step_without_replica(members: &mut Members, worker: usize) {
    for _ in 0..200 {
        members.now += 1000;
        members.step(SWITCH);
        members.step(worker);
    }
}

/// The flow ends, and the switch forgets with its end that it refused the key: packets that wait
/// for its copy would leave then, and its replies would be another's.
#[test]
fn nothing_leaves_of_a_refused_flow_that_waits_for_its_copy() {
    let mut members = stamped(1, 2, Policy::RoundRobin);
    members.feed(SWITCH, [out(3000)]);
    let flows = members.flows();
    let other = flows.iter().position(|flows| *flows == 0).unwrap();
    // Another host's at the other runtime, with the same reply key.
    let packet = udp(2, 3000, 1, 80, false, &[0; 8]);
    members.switch(SWITCH).port_mut(0).input.push_back(packet);
    step_without_replica(&mut members, 1 + other);
    let stats = members.runtime(other).stats();
    assert_eq!((stats.received, stats.flows, stats.held), (1, 0, 0));
    assert_eq!(members.dropped("reply_key_taken"), 1);
    members.run_until_quiet();
    assert_eq!((members.flows(), members.sent().len()), (flows, 1));
}

/// Only that flow's packets are dropped: packets that wait of a flow that is over leave in their
/// turn, though the other has its place.
#[test]
fn nothing_leaves_of_a_flow_that_is_anothers_and_all_else_does() {
    let mut members = stamped(1, 2, Policy::LeastLoaded);
    let feed = |members: &mut Members, first: u16| {
        let packets = (0..20).map(|n| out(first + n));
        members.switch(SWITCH).port_mut(0).input.extend(packets);
        step_without_replica(members, 1);
        let mut flows = Vec::new();
        members.runtime(0).each_flow(|flow| flows.push(flow.key));
        (flows, members.runtime(0).stats().held)
    };
    let (flows, held) = feed(&mut members, 3000);
    assert_eq!((flows.len(), held), (10, 10));
    members.now += 400 * SECOND;
    step_without_replica(&mut members, 1);
    assert_eq!(members.flows()[0], 0);
    let (flows, held) = feed(&mut members, 4000);
    // The routes of ended flows have not ended, since the replica does not know.
    assert_eq!((flows.len(), held, members.sent().len()), (5, 15, 0));
    // They have gone on elsewhere, as the switch says.
    for flow in &flows[..3] {
        members.say(SWITCH, 1, |frame| {
            Message::begin(frame);
            assert!(Message::RouteConflict(GroupKey::of_flow(*flow)).append(frame));
        });
    }
    step_without_replica(&mut members, 1);
    let stats = members.runtime(0).stats();
    assert_eq!((stats.flows, stats.held), (2, 12));
    assert_eq!(members.dropped("peer_gone"), 3);
    members.run_until_quiet();
    assert_eq!(members.sent().len(), 37);
}
