//! Bugs that are planted in production code ([`wire::planted`]), and the checks that notice each:
//! such as the simulator's checkers do not look for.

use super::flows::{Hosts, Meter};
use super::lent::{Lender, fill};
use super::moves::order_all;
use super::replica::waiting_as_a_session_ends;
use super::sessions::Members;
use super::spread::cluster;
use super::*;
use crate::switch::Policy;
use nf::{Affinity, Block, Cx, FlowState, Packet, Verdict, WorkerInfo, network_function};
use std::collections::HashMap;
use std::sync::Arc;
use std::vec;
use wire::planted;

/// The result without the bug, and with it.
fn without_and_with<T>(bug: &'static str, look: impl Fn() -> T) -> [T; 2] {
    let without = look();
    planted::choose(bug);
    let with = look();
    planted::choose("");
    [without, with]
}

/// Whether each group that goes on at an heir has the block that it had. Else the block's next
/// group has endpoints of another's.
fn blocks_go_on() -> bool {
    let mut members = Members::copied(2, 3, Policy::LeastLoaded, plan(vec![factory::<Lender>()]));
    fill(&mut members, 0, 1..10);
    let before = members.runtime(0).blocks();
    members.stop(2);
    members.run_until_quiet();
    assert!(before.len() > 1 && members.runtime(1).stats().recovered[0] > 0);
    let after: HashMap<_, _> = members.runtime(1).blocks().into_iter().collect();
    before
        .iter()
        .all(|(place, group)| after.get(place) == Some(group))
}

#[test]
fn an_heir_that_claims_a_block_that_is_anothers_is_noticed() {
    assert_eq!(
        without_and_with("heir_claims_anothers", blocks_go_on),
        [true, false]
    );
}

#[test]
fn an_heir_that_claims_no_block_is_noticed() {
    assert_eq!(
        without_and_with("heir_claims_nothing", blocks_go_on),
        [true, false]
    );
}

#[test]
fn what_waits_for_a_session_that_is_over_is_noticed() {
    let [without, with] = without_and_with("held_leaves_late", waiting_as_a_session_ends);
    assert_eq!(without, (0, 20));
    assert_ne!(with, (0, 20));
}

/// Gives each inside host two blocks.
struct Twofold;

#[derive(FlowState, Default, Clone, Copy, Debug)]
#[repr(C)]
struct Two {
    first: u16,
}

impl Two {
    fn blocks(self) -> [Block; 2] {
        [self.first, self.first + 64].map(|first| Block {
            addr: nf::Addr::v4(super::groups::OURS),
            first,
            ports: 64,
        })
    }
}

#[network_function]
impl NetworkFunction for Twofold {
    const NAME: &'static str = "twofold";
    const AFFINITY: Affinity = Affinity::InsideAddress;
    type Config = NoConfig;
    type Flow = ();
    type Group = Two;
    fn new(_: &Arc<NoConfig>, _: &WorkerInfo) -> Result<Self, ConfigError> {
        Ok(Twofold)
    }
    fn process(&self, packet: &mut Packet, _: &mut (), cx: &mut Cx<Self>) -> Verdict {
        if cx.group().first == 0 {
            let host = packet.source_addr().octets()[15];
            cx.group().first = 1024 + u16::from(host) * 128;
            let claimed = cx.group().blocks().map(|block| cx.claim_block(block));
            assert_eq!(claimed, [true; 2]);
        }
        Verdict::Forward
    }
    fn group_ended(&self, group: &mut Two, cx: &mut Cx<Self>) {
        for block in group.blocks() {
            assert!(cx.release_block(block));
        }
    }
}

/// How many blocks a group that has two has where it goes.
fn blocks_that_move() -> usize {
    let plan = plan(vec![factory::<Twofold>()]);
    let mut cluster = cluster(1, 2, Policy::RoundRobin, &plan, 64);
    cluster.feed(0, [udp(1, 1000, 1, 80, false, b"x")]);
    let from = cluster
        .runtimes
        .iter()
        .position(|runtime| runtime.stats().flows == 1);
    let from = from.unwrap();
    assert_eq!(cluster.runtimes[from].blocks().len(), 2);
    let receipt = cluster.move_all(from, 1 - from as u16);
    assert_eq!(receipt.moved, 1);
    cluster.runtimes[1 - from].blocks().len()
}

#[test]
fn blocks_behind_the_first_that_are_not_sent_are_noticed() {
    assert_eq!(
        without_and_with("later_blocks_not_sent", blocks_that_move),
        [2, 1]
    );
}

/// By their source ports, the packets of a host that moves, as they leave: first packets that its
/// source kept come to the target behind others, which the switch sends there.
fn leaves_in_order() -> Vec<u16> {
    let plan = plan(vec![factory::<Hosts>(), factory::<Meter>()]);
    let mut cluster = cluster(1, 2, Policy::RoundRobin, &plan, 64);
    let packet = |port| udp(1, port, 1, 80, false, b"x");
    cluster.feed(0, [packet(1000)]);
    let from = cluster
        .runtimes
        .iter()
        .position(|runtime| runtime.stats().flows == 1);
    let from = from.unwrap();
    let (to, now) = (1 - from, cluster.now);
    cluster.runtimes[from].order(order_all(to as u16)).unwrap();
    cluster.runtimes[from].step(now);
    for kept in [Some(2000), None, Some(3000)] {
        let input = &mut cluster.switches[0].port_mut(0).input;
        input.extend(kept.map(packet));
        cluster.switches[0].step(now);
        match kept {
            Some(2000) => cluster.runtimes[from].step(now),
            _ => cluster.runtimes[to].step(now),
        };
        if kept.is_none() {
            // Accept, and Reroute.
            cluster.runtimes[from].step(now);
            cluster.switches[0].step(now);
        }
    }
    assert!(cluster.runtimes.iter().all(|runtime| runtime.stats().held == 1));
    cluster.run_until_quiet();
    let mut spare = pool(1, 99);
    let sent = cluster.sent();
    let ports = sent
        .iter()
        .map(|sent| parsed(&mut spare, sent, |packet| packet.source_port()));
    ports.collect()
}

#[test]
fn packets_that_were_handed_over_and_do_not_go_first_are_noticed() {
    let [without, with] = without_and_with("handed_not_first", leaves_in_order);
    assert_eq!((without, with), (vec![1000, 2000, 3000], vec![1000, 3000, 2000]));
}
