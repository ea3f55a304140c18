//! The cost of a group of many flows: a move takes time in proportion to its flows, with a reply
//! key each, and so does its end. A scan of all of them for each one would take sixteen times as
//! long.

use super::flows::Masquerade;
use super::groups::{OfHosts, assert_nothing_stays};
use super::spread::cluster_with;
use super::*;
use crate::switch::Policy;
use std::time::{Duration, Instant};
use std::vec;

const FEW: u16 = 1_000;
const MANY: u16 = 16_000;
/// Of the time for one flow, in the larger group and in the smaller one: caches, and chance.
const RATIO_MAX: f64 = 5.0;

/// How long one move takes, and the end of all flows, for each flow of one inside host.
fn moved_and_ended(flows: u16) -> [Duration; 2] {
    let plan = plan(vec![factory::<Masquerade>(), factory::<OfHosts>()]);
    let mut cluster = cluster_with(1, 2, Policy::RoundRobin, &plan, 20_000, 40_000, 512);
    for burst in (0..flows).step_by(32) {
        cluster.feed(
            0,
            (burst..flows.min(burst + 32)).map(|n| udp(1, 1000 + n, 1, 80, false, b"x")),
        );
    }
    let from = usize::from(cluster.runtimes[0].stats().flows == 0);
    let began = Instant::now();
    let receipt = cluster.move_all(from, 1 - from as u16);
    let moved = began.elapsed();
    assert_eq!((receipt.moved, receipt.failed), (u64::from(flows), 0));
    let began = Instant::now();
    assert_nothing_stays(&mut cluster);
    [moved, began.elapsed()].map(|took| took / u32::from(flows))
}

#[test]
fn a_large_group_takes_time_in_proportion_to_its_flows() {
    // The least of three: other work of the machine only adds.
    let least = |flows| {
        let runs = [(); 3].map(|()| moved_and_ended(flows));
        [0, 1].map(|at| runs.iter().map(|run| run[at]).min().unwrap())
    };
    let (few, many) = (least(FEW), least(MANY));
    std::println!("for a flow: of {FEW} {few:?}, of {MANY} {many:?} (moved, ended)");
    for at in [0, 1] {
        let ratio = many[at].as_secs_f64() / few[at].as_secs_f64();
        assert!(ratio < RATIO_MAX, "{ratio}: {few:?}, {many:?}");
    }
}
