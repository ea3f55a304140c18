//! A chain's policy says how its flows are copied, and when: with each packet, now and then, or
//! never.

use super::replica::{Stamp, out, stamps, stamps_of, with_a_stuck_replica};
use super::sessions::Members;
use super::*;
use crate::replica::policy::{Copying, Policy as Copied};
use crate::switch::Policy;
use std::vec;

/// One runtime has all flows and another their copies, as its chain's policy says.
fn with_policy(copying: Copying) -> Members {
    let plan = plan(vec![factory::<Stamp>()]);
    let mut members = Members::copying(copying, 1, 2, Policy::LeastLoaded, plan);
    members.runtime(1).set_leaving(true);
    members.run_until_quiet();
    members
}

fn snapshots(packets: u16, interval: u64) -> Copying {
    Copying {
        policy: Copied::Snapshot,
        packets,
        interval,
        has_lazy: false,
        drops_alone: false,
    }
}

#[test]
fn packets_of_a_snapshot_chain_do_not_wait() {
    let mut members = with_policy(snapshots(16, 10_000_000));
    let input = &mut members.switch(0).port_mut(0).input;
    input.extend((0..20).map(|n| out(3000 + n)));
    for _ in 0..200 {
        members.now += 1000;
        members.step(0);
        members.step(1);
        members.step(0);
    }
    // The replica has taken no step.
    assert_eq!(members.sent().len(), 20);
    members.run_until_quiet();
    assert_eq!(members.runtime(1).stats().copies, 20);
    assert_eq!(members.runtime(0).stats().protected_flows, 20);
}

/// After so many packets of a flow, and so much time, its runtime fails: the next stamp.
fn stamp_after(copying: Copying, packets: usize, time: u64) -> u32 {
    let mut members = with_policy(copying);
    (0..packets).for_each(|_| members.feed(0, [out(3000)]));
    members.now += time;
    members.run_until_quiet();
    members.stop(1);
    members.run_until_quiet();
    members.sent();
    members.feed(0, [out(3000)]);
    let stamps = stamps(&mut members);
    members.assert_nothing_stays();
    *stamps[&3000].last().unwrap()
}

#[test]
fn a_flow_of_a_snapshot_chain_goes_on_from_its_snapshot() {
    let seldom = 1_000_000_000_000;
    // With its first packet, and with each fourth from then on.
    assert_eq!(stamp_after(snapshots(4, seldom), 1, 0), 2);
    assert_eq!(
        stamp_after(snapshots(4, seldom), 4, 0),
        2,
        "packets 2 to 4 are lost with it"
    );
    assert_eq!(stamp_after(snapshots(4, seldom), 5, 0), 6);
    assert_eq!(stamp_after(snapshots(4, seldom), 8, 0), 6);
    assert_eq!(stamp_after(snapshots(1, seldom), 7, 0), 8, "each packet");
    // By time.
    assert_eq!(stamp_after(snapshots(100, 1_000_000_000), 7, 0), 2);
    assert_eq!(stamp_after(snapshots(100, 1_000_000_000), 7, 2_000_000_000), 8);
}

#[test]
fn flows_of_a_chain_without_copies_begin_again() {
    let none = Copying {
        policy: Copied::None,
        ..Copying::default()
    };
    assert_eq!(stamp_after(none, 5, 0), 1);
}

/// One runtime has flows of two chains, of which the second, to port 81, has no copies.
fn beside_a_chain_with_copies() -> Members {
    let chain = |name: &str, port: u16, replication| ChainRule {
        name: name.to_string(),
        matching: Match {
            destination_port: std::iter::once(port..=port).collect(),
            ..Match::default()
        },
        functions: vec!["stamp".to_string()],
        replication,
    };
    let chains = vec![chain("kept", 80, None), chain("bare", 81, Some(Copied::None))];
    let plan = Plan::new(chains, vec![factory::<Stamp>()]).unwrap();
    let mut members = Members::copied(1, 2, Policy::LeastLoaded, plan);
    members.runtime(1).set_leaving(true);
    members.run_until_quiet();
    members
}

/// Which instance of the packet path runs is chosen for a runtime and not for a chain: packets of
/// the chain without copies are looked at as the others are, and nothing more is done for them.
#[test]
fn of_a_chain_without_copies_nothing_is_told_beside_one_with_copies() {
    let mut members = beside_a_chain_with_copies();
    let bare = |port: u16| udp(1, port, 1, 81, false, &[0; 8]);
    // The replica takes no step.
    let go_on = |members: &mut Members, packets: Vec<super::Sent>| {
        members.switch(0).port_mut(0).input.extend(packets);
        for _ in 0..200 {
            members.now += 1000;
            members.step(0);
            members.step(1);
        }
    };
    for _ in 0..3 {
        go_on(&mut members, (0..20).map(|n| bare(4000 + n)).collect());
        assert_eq!(members.runtime(0).records_unacknowledged(), 0);
    }
    assert_eq!(members.sent().len(), 60);
    // Nor do they wait for what others wait for.
    let both = (0..20).flat_map(|n| [out(3000 + n), bare(4000 + n)]);
    go_on(&mut members, both.collect());
    let left = stamps_of(members.sent());
    assert!((4000..4020).all(|port| left[&port] == [1, 2, 3, 4]), "{left:?}");
    assert_eq!((left.len(), members.runtime(0).stats().held), (20, 20));
    members.run_until_quiet();
    assert_eq!(members.sent().len(), 100);
    let primary = members.runtime(0).stats();
    assert_eq!(
        (primary.flows, primary.protected_flows, primary.unprotected),
        (40, 20, 0)
    );
    assert_eq!(members.runtime(1).stats().copies, 20);
}

/// The flows of the runtime that stops are at the first then.
#[test]
fn without_a_replica_packets_are_dropped_where_that_is_configured() {
    let mut members = with_policy(Copying {
        drops_alone: true,
        ..Copying::default()
    });
    let all = || (0..20).map(|n| out(3000 + n));
    members.feed(0, all());
    assert_eq!((members.sent().len(), members.dropped("no_replica")), (20, 0));
    members.stop(2);
    members.run_until_quiet();
    members.feed(0, all());
    let lost = members.dropped("no_replica");
    assert_eq!((members.sent().len(), lost), (20, 20));
    assert_eq!(members.runtime(0).stats().unprotected, 0);
    members.start(2);
    members.run_until_quiet();
    members.feed(0, all());
    let lost = members.dropped("no_replica");
    assert_eq!((members.sent().len(), lost), (40, 20));
}

#[test]
fn a_policy_that_changes_holds_for_flows_that_are_there() {
    let mut members = with_policy(Copying {
        policy: Copied::None,
        ..Copying::default()
    });
    let stats = |members: &mut Members| {
        members.run_until_quiet();
        let copies = members.runtime(1).stats().copies;
        (members.runtime(0).stats().protected_flows, copies)
    };
    members.feed(0, (0..20).map(|n| out(3000 + n)));
    assert_eq!(stats(&mut members), (0, 0));
    for (policy, copies) in [
        (Copied::Commit, 20),
        (Copied::Snapshot, 20),
        (Copied::None, 0),
        (Copied::Snapshot, 20),
        (Copied::None, 0),
        (Copied::Commit, 20),
    ] {
        members.runtime(0).set_replication("test", Some(policy)).unwrap();
        assert_eq!(stats(&mut members), (copies, copies), "{policy:?}");
        assert_eq!(members.runtime(0).stats().protected_by, Some(1), "{policy:?}");
        members.feed(0, (0..20).map(|n| out(3000 + n)));
    }
    assert!(members.runtime(0).set_replication("tset", None).is_err());
    members.stop(1);
    members.run_until_quiet();
    members.sent();
    members.feed(0, (0..20).map(|n| out(3000 + n)));
    assert!(
        stamps(&mut members)
            .values()
            .all(|stamps| stamps.last() == Some(&8))
    );
    let receipt = members.runtime(1).stats().recoveries;
    assert_eq!(
        receipt
            .iter()
            .map(|r| (r.failed, r.flows, r.lost))
            .collect::<Vec<_>>(),
        [(0, 20, 0)]
    );
}

/// Changes since a snapshot are copied, too, when packets begin to wait.
#[test]
fn a_flow_that_is_committed_from_now_on_is_committed_whole() {
    let mut members = with_policy(snapshots(100, 1_000_000_000_000));
    (0..4).for_each(|_| members.feed(0, [out(3000)]));
    members
        .runtime(0)
        .set_replication("test", Some(Copied::Commit))
        .unwrap();
    members.run_until_quiet();
    members.feed(0, [out(3000)]);
    members.stop(1);
    members.run_until_quiet();
    members.feed(0, [out(3000)]);
    let stamps = stamps(&mut members);
    assert_eq!(stamps[&3000], [1, 2, 3, 4, 5, 6]);
}

/// A flow's packets leave in order though its policy changes while some wait.
#[test]
fn a_policy_that_changes_reorders_nothing() {
    let mut members = with_a_stuck_replica();
    for policy in [Copied::None, Copied::Snapshot, Copied::Commit, Copied::None] {
        members.runtime(0).set_replication("test", Some(policy)).unwrap();
        members
            .switch(0)
            .port_mut(0)
            .input
            .extend((0..20).map(|n| out(3000 + n)));
        for _ in 0..100 {
            members.now += 1000;
            members.step(0);
            members.step(1);
        }
    }
    members.run_until_quiet();
    for (port, stamps) in stamps(&mut members) {
        assert_eq!(stamps, [1, 2, 3, 4, 5], "{port}");
    }
}
