//! A replica that an operator orders.

use super::replica::{out, stamped, stamps};
use crate::switch::Policy;

/// An ordered replica has all copies, of flows that there were, too; they go on there, and no
/// packet of theirs is lost meanwhile.
#[test]
fn copies_go_to_the_replica_that_is_ordered() {
    let mut members = stamped(1, 3, Policy::RoundRobin);
    members.feed(0, (0..60).map(|n| out(2000 + n)));
    let before = members.flows();
    assert_eq!(members.runtime(0).stats().protected_by, Some(1));
    let refused = members.runtime(0).set_replica(Some(0)).unwrap_err();
    assert!(refused.contains("another process"), "{refused}");
    let refused = members.runtime(0).set_replica(Some(7)).unwrap_err();
    assert!(refused.contains("runtime 7 is not there"), "{refused}");
    // Packets are under way, and wait for copies, when it is ordered.
    let more = (0..60).map(|n| out(2000 + n));
    members.switch(0).port_mut(0).input.extend(more);
    for _ in 0..3 {
        members.now += 1000;
        for worker in 0..3 {
            members.step(worker);
        }
    }
    members.runtime(0).set_replica(Some(2)).unwrap();
    members.run_until_quiet();
    assert_eq!(members.runtime(0).stats().protected_by, Some(2));
    assert_eq!(members.runtime(1).stats().copies, 0, "the one before keeps none");
    assert_eq!(members.runtime(2).stats().copies, before[0] + before[1]);
    members.stop(1);
    members.run_until_quiet();
    assert_eq!(members.runtime(2).stats().recovered, [before[0], 0]);
    members.feed(0, (0..60).map(|n| out(2000 + n)));
    for (port, stamps) in stamps(&mut members) {
        assert_eq!(stamps, [1, 2, 3], "{port}");
    }
    members.assert_one_home();
    assert_eq!(members.runtime(2).stats().unprotected, 0);
}

/// The layout's own is chosen again.
#[test]
fn an_order_for_a_replica_is_taken_back() {
    let mut members = stamped(1, 3, Policy::RoundRobin);
    members.feed(0, (0..30).map(|n| out(2000 + n)));
    for (order, replica) in [(Some(2), 2), (None, 1)] {
        members.runtime(0).set_replica(order).unwrap();
        members.run_until_quiet();
        assert_eq!(members.runtime(0).stats().protected_by, Some(replica));
    }
}
