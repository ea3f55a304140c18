//! Orders to move flows: how many there may be, which are taken back, and which flows are offered
//! once more.

use super::flows::Meter;
use super::groups::assert_nothing_stays;
use super::spread::{Cluster, cluster, cluster_with_routes};
use super::*;
use crate::mobility::{MoveOrder, ORDERS_MAX, OrderError, Receipt, Selector};
use crate::switch::Policy;
use std::vec;

fn all(to: &[u16]) -> MoveOrder {
    MoveOrder {
        selector: Selector::All,
        to: to.to_vec(),
    }
}

/// So many flows at each of three runtimes that may have so many.
fn of_three(each: u16, most: u32) -> Cluster {
    let plan = plan(vec![factory::<Meter>()]);
    let mut cluster = cluster(1, 3, Policy::RoundRobin, &plan, most);
    cluster.feed(0, packets(3 * each));
    assert_eq!(flows(&cluster), [u64::from(each); 3]);
    cluster
}

fn packets(flows: u16) -> impl Iterator<Item = (Side, Vec<u8>)> {
    (0..flows).map(|n| udp(1, 1000 + n, 1, 80, false, b"x"))
}

fn flows(cluster: &Cluster) -> Vec<u64> {
    cluster.runtimes.iter().map(|of| of.stats().flows).collect()
}

fn seen_through(cluster: &mut Cluster, number: u32) -> Receipt {
    cluster.run_until_quiet();
    let receipt = cluster.runtimes[0].receipt(number).unwrap();
    assert!(receipt.is_over, "{receipt:?}");
    assert_eq!(
        receipt.asked,
        receipt.moved + receipt.refused + receipt.failed,
        "{receipt:?}"
    );
    receipt
}

/// Every flow goes on, wherever it is.
fn all_go_on(mut cluster: Cluster, flows: u16) {
    let before = cluster.sent().len();
    cluster.feed(0, packets(flows));
    assert_eq!(cluster.sent().len(), before + usize::from(flows));
    cluster.check();
    assert_nothing_stays(&mut cluster);
}

#[test]
fn orders_under_way_are_bounded() {
    let mut cluster = of_three(20, 64);
    for number in 0..ORDERS_MAX as u32 {
        assert_eq!(cluster.runtimes[0].order(all(&[1])), Ok(number));
    }
    // No order has begun.
    let refused = cluster.runtimes[0].order(all(&[1])).unwrap_err();
    assert_eq!(refused, OrderError::TooMany);
    let said = refused.to_string();
    assert!(
        said.starts_with(&std::format!("{ORDERS_MAX} orders to move flows are under way"))
            && said.contains("flowkeep order cancel ORDER"),
        "{said}"
    );
    let receipt = seen_through(&mut cluster, 0);
    assert_eq!(receipt.moved, 20);
    // They are over, the others by finding nothing: there is room, and the oldest receipt goes.
    assert_eq!(cluster.runtimes[0].order(all(&[1])), Ok(ORDERS_MAX as u32));
    assert_eq!(cluster.runtimes[0].receipt(0), None);
    all_go_on(cluster, 60);
}

#[test]
fn what_has_not_begun_of_an_order_that_is_taken_back_stays() {
    // As many as may be on their way at once, and as many again and more.
    let most = u64::from(crate::settings::MOVES_MAX);
    let mut cluster = of_three(600, 2048);
    let number = cluster.runtimes[0].order(all(&[1])).unwrap();
    cluster.runtimes[0].step(cluster.now);
    let before = cluster.runtimes[0].receipt(number).unwrap();
    assert!(
        (1..=most).contains(&before.under_way) && before.waiting > 0,
        "{before:?}"
    );
    cluster.runtimes[0].cancel(number);
    // Again: there is nothing left to be taken back.
    cluster.runtimes[0].cancel(number);
    cluster.runtimes[0].cancel(77);
    let receipt = seen_through(&mut cluster, number);
    assert_eq!(
        (receipt.moved, receipt.canceled, receipt.waiting),
        (before.under_way, before.waiting, 0),
        "{receipt:?}"
    );
    assert_eq!(
        flows(&cluster),
        [600 - before.under_way, 600 + before.under_way, 600]
    );
    // Another order moves the rest.
    let rest = cluster.runtimes[0].order(all(&[1])).unwrap();
    assert_eq!(seen_through(&mut cluster, rest).moved, before.waiting);
    all_go_on(cluster, 1800);
}

#[test]
fn what_a_runtime_drained_meanwhile_refuses_is_offered_to_another() {
    let mut cluster = of_three(20, 64);
    // It is drained when the order is given already, and has not been heard of.
    cluster.runtimes[1].set_leaving(true);
    let number = cluster.runtimes[0].order(all(&[1, 2])).unwrap();
    let receipt = seen_through(&mut cluster, number);
    assert_eq!(
        (receipt.moved, receipt.refused, receipt.offered_again),
        (20, 0, 10),
        "{receipt:?}"
    );
    assert_eq!(flows(&cluster), [0, 20, 40]);
    // The order names one target: its groups are offered to no other.
    let number = cluster.runtimes[2].order(all(&[1])).unwrap();
    cluster.run_until_quiet();
    let receipt = cluster.runtimes[2].receipt(number).unwrap();
    assert_eq!((receipt.refused, receipt.offered_again), (40, 0), "{receipt:?}");
    all_go_on(cluster, 60);
}

#[test]
fn what_a_full_runtime_refuses_is_offered_once_to_one_that_takes_flows() {
    let mut cluster = of_three(6, 8);
    // 1 has room for two more; 2, which the order does not name, for as many.
    let number = cluster.runtimes[0].order_with(all(&[1]), &[2]).unwrap();
    let receipt = seen_through(&mut cluster, number);
    assert_eq!(
        (receipt.moved, receipt.refused, receipt.offered_again),
        (4, 2, 4),
        "{receipt:?}"
    );
    assert_eq!(flows(&cluster), [2, 8, 8]);
    // All are full: each is asked once more, and no more than that.
    let number = cluster.runtimes[0].order(all(&[1, 2])).unwrap();
    let receipt = seen_through(&mut cluster, number);
    assert_eq!(
        (receipt.moved, receipt.refused, receipt.offered_again),
        (0, 2, 2),
        "{receipt:?}"
    );
    all_go_on(cluster, 18);
}

#[test]
fn what_does_not_move_for_any_reason_is_offered_to_all_others() {
    // Called back, each the first time: as if its target were too slow.
    let mut cluster = of_three(20, 64);
    let number = cluster.runtimes[0].order(all(&[1, 2])).unwrap();
    cluster.runtimes[0].step(cluster.now);
    cluster.runtimes[0].call_back_all();
    let receipt = seen_through(&mut cluster, number);
    assert_eq!(
        (receipt.moved, receipt.failed, receipt.offered_again),
        (20, 0, 20),
        "{receipt:?}"
    );
    assert_eq!(flows(&cluster), [0, 30, 30]);
    all_go_on(cluster, 60);
    // Two refuse, the third takes them.
    let plan = plan(vec![factory::<Meter>()]);
    let mut cluster = super::spread::cluster(1, 4, Policy::RoundRobin, &plan, 64);
    cluster.feed(0, packets(40));
    for refuser in [1, 2] {
        cluster.runtimes[refuser].set_leaving(true);
    }
    let number = cluster.runtimes[0].order_with(all(&[1]), &[1, 2, 3]).unwrap();
    let receipt = seen_through(&mut cluster, number);
    assert_eq!((receipt.moved, receipt.refused), (10, 0), "{receipt:?}");
    assert_eq!(flows(&cluster), [0, 10, 10, 20]);
    all_go_on(cluster, 40);
}

#[test]
fn an_order_may_be_of_so_many_flows() {
    let mut cluster = of_three(20, 64);
    let number = cluster.runtimes[0].order_some(all(&[1]), &[], 7).unwrap();
    assert_eq!(seen_through(&mut cluster, number).moved, 7);
    assert_eq!(flows(&cluster), [13, 27, 20]);
    // Of fewer than that, all.
    let number = cluster.runtimes[0].order_some(all(&[2]), &[], 700).unwrap();
    assert_eq!(seen_through(&mut cluster, number).moved, 13);
    all_go_on(cluster, 60);
}

/// The first group of the second order's first batch is on its way already, by the first one.
#[test]
fn an_order_is_not_over_while_its_groups_are_on_their_way() {
    let plan = plan(vec![factory::<Meter>()]);
    let mut cluster = cluster(1, 3, Policy::RoundRobin, &plan, 256);
    // Each runtime has one flow.
    let host = |n: u16| if n < 3 { 2 } else { 1 };
    cluster.feed(0, (0..60).map(|n| udp(host(n), 1000 + n, 1, 80, false, b"x")));
    let first = MoveOrder {
        selector: Selector::Ends("10.0.0.2/32".parse().unwrap()),
        to: vec![2],
    };
    cluster.runtimes[0].order(first).unwrap();
    let number = cluster.runtimes[0].order(all(&[1])).unwrap();
    cluster.runtimes[0].step(cluster.now);
    let receipt = cluster.runtimes[0].receipt(number).unwrap();
    assert!(!receipt.is_over && receipt.under_way == 19, "{receipt:?}");
    let receipt = seen_through(&mut cluster, number);
    assert_eq!((receipt.moved, receipt.under_way), (19, 0), "{receipt:?}");
    assert_eq!(flows(&cluster), [0, 39, 21]);
}

#[test]
fn what_is_taken_back_is_not_offered_again() {
    let mut cluster = of_three(20, 64);
    cluster.runtimes[1].set_leaving(true);
    let number = cluster.runtimes[0].order(all(&[1, 2])).unwrap();
    cluster.runtimes[0].step(cluster.now);
    cluster.runtimes[0].cancel(number);
    let receipt = seen_through(&mut cluster, number);
    assert_eq!(
        (receipt.moved, receipt.refused, receipt.offered_again),
        (10, 10, 0),
        "{receipt:?}"
    );
    all_go_on(cluster, 60);
}

/// Each runtime hears of the others, also a runtime that comes later, and forgets with each runtime
/// that goes.
#[test]
fn runtimes_hear_who_takes_no_groups() {
    let mut cluster = of_three(2, 64);
    let heard = |cluster: &Cluster, of: u16| {
        let others = (0..3).filter(|at| *at != usize::from(of));
        let heard: Vec<bool> = others.map(|at| cluster.runtimes[at].knows_leaving(of)).collect();
        assert_eq!(heard[0], heard[1]);
        heard[0]
    };
    assert!((0..3).all(|of| !heard(&cluster, of)));
    cluster.runtimes[1].set_leaving(true);
    cluster.run_until_quiet();
    assert_eq!([0, 1, 2].map(|of| heard(&cluster, of)), [false, true, false]);
    cluster.runtimes[1].set_leaving(false);
    cluster.run_until_quiet();
    assert!((0..3).all(|of| !heard(&cluster, of)));
    all_go_on(cluster, 6);
}

/// An order for few of many flows looks at some places at once and in each step, and packets go on
/// meanwhile.
#[test]
fn an_order_looks_at_some_flows_in_a_step() {
    // As `mobility::order` has it: the flows are looked at in three parts.
    const LOOKS: usize = 4096;
    const EACH: u16 = 10_000;
    let plan = plan(vec![factory::<Meter>()]);
    let mut cluster = cluster_with_routes(1, 2, Policy::RoundRobin, &plan, 16_384, 32_768);
    let all = 2 * EACH;
    // The last ones are another host's.
    let packet = |n: u16| udp(if n < all - 40 { 1 } else { 2 }, 1000 + n, 1, 80, false, b"x");
    cluster.feed(0, (0..all).map(packet));
    assert_eq!(flows(&cluster), [u64::from(EACH); 2]);
    let order = MoveOrder {
        selector: Selector::Ends("10.0.0.2/32".parse().unwrap()),
        to: vec![1],
    };
    let number = cluster.runtimes[0].order(order).unwrap();
    let found = |cluster: &mut Cluster| {
        let receipt = cluster.runtimes[0].receipt(number).unwrap();
        receipt.asked + receipt.waiting
    };
    for (step, expected) in [0, 0, 20].into_iter().enumerate() {
        assert_eq!(found(&mut cluster), expected, "before step {step}");
        if step == 2 {
            break;
        }
        // Sixteen packets for each runtime, in the same step.
        let before = cluster.sent().len();
        cluster.switches[0].port_mut(0).input.extend((0..32).map(packet));
        cluster.now += 1000;
        cluster.switches[0].step(cluster.now);
        let work = cluster.runtimes[0].step(cluster.now);
        assert_eq!(work.packets, 16);
        assert!(work.other < 2 * LOOKS, "{work:?}");
        cluster.switches[0].step(cluster.now);
        assert_eq!(cluster.sent().len(), before + 16);
    }
    assert_eq!(seen_through(&mut cluster, number).moved, 20);
    assert_eq!(flows(&cluster), [u64::from(EACH) - 20, u64::from(EACH) + 20]);
    cluster.check();
}
