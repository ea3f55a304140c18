//! Groups without flows in a store: every worker is gone, and others begin with what the store has.

use super::groups::Leaser;
use super::life::{FLOW, REST, Shy, ended, groups, of, pass, stamps};
use super::sessions::SECOND;
use super::spread::Cluster;
use super::store_commit::{Draws, inject, step_one, workers};
use super::stored::{Shop, WALL, begin, flows, pass_interval, stored_as};
use super::*;
use crate::replica::policy::Policy as Copied;
use std::collections::HashMap;
use std::vec;

const POLICIES: [Copied; 2] = [Copied::Store, Copied::StoreCommit];

fn plan_of(policy: Copied, shop: &Shop) -> Plan {
    stored_as(policy, vec![factory::<Leaser>(), factory::<Shy>()], shop)
}

/// Workers of another incarnation, so many seconds behind the first one's beginning.
fn incarnation(switches: u8, runtimes: u16, plan: &Plan, seconds: u64) -> Cluster {
    begin(
        switches,
        runtimes,
        plan,
        seconds % 7 * SECOND,
        WALL + seconds * SECOND,
    )
}

fn resting(cluster: &Cluster) -> u64 {
    groups(cluster).iter().map(|(_, resting)| resting).sum()
}

/// Feeds one packet of each host from a port; answers what left by host.
fn feed(cluster: &mut Cluster, hosts: core::ops::Range<u8>, port: u16) -> HashMap<u8, Vec<u32>> {
    cluster.feed(0, hosts.map(|host| of(host, port)));
    stamps(&cluster.sent())
}

#[test]
fn groups_without_flows_go_on_when_all_workers_were_killed() {
    for policy in POLICIES {
        for (switches, runtimes) in [(1, 1), (2, 3)] {
            let shop = Shop::default();
            let plan = plan_of(policy, &shop);
            let mut cluster = incarnation(switches, runtimes, &plan, 0);
            // Their flows have no entry: they end with their first packet, which is dropped.
            feed(&mut cluster, 1..9, 1000);
            feed(&mut cluster, 1..9, 1001);
            pass_interval(&mut cluster);
            assert_eq!((flows(&cluster), resting(&cluster), shop.entries()), (0, 8, 8));
            let blocks = cluster.switches[0].stats().blocks;
            drop(cluster);
            let mut cluster = incarnation(switches, runtimes, &plan, REST - 2);
            assert_eq!(resting(&cluster), 8, "{policy:?} {switches} {runtimes}");
            assert_eq!(cluster.switches[0].stats().blocks, blocks);
            // Four go on; of the others the time is over, as if no worker had died.
            let left = feed(&mut cluster, 1..5, 1002);
            assert_eq!(left.len(), 4, "{left:?}");
            assert!(left.values().all(|stamps| *stamps == [3]), "{left:?}");
            pass(&mut cluster, 3);
            assert_eq!((ended(&cluster), resting(&cluster)), (4, 0));
            pass_interval(&mut cluster);
            assert_eq!(shop.entries(), 8, "four groups and their flows");
            // The flows end; behind a rest that was written the groups do, too.
            pass(&mut cluster, FLOW);
            pass_interval(&mut cluster);
            assert_eq!((resting(&cluster), shop.entries()), (4, 4));
            drop(cluster);
            let mut cluster = incarnation(switches, runtimes, &plan, 2 * REST + FLOW);
            cluster.assert_no_group_stays();
            assert_eq!(
                (ended(&cluster), shop.entries()),
                (4, 0),
                "what they took is given back"
            );
        }
    }
}

#[test]
fn what_the_end_of_the_last_flow_changed_is_in_the_store() {
    for policy in POLICIES {
        let shop = Shop::default();
        let plan = plan_of(policy, &shop);
        let mut cluster = incarnation(1, 1, &plan, 0);
        for port in 1000..1003 {
            feed(&mut cluster, 1..5, port);
        }
        pass_interval(&mut cluster);
        assert_eq!((flows(&cluster), shop.entries()), (4, 8));
        pass(&mut cluster, FLOW + 1);
        pass_interval(&mut cluster);
        assert_eq!((resting(&cluster), shop.entries()), (4, 4));
        drop(cluster);
        // The time runs from the flow's end, and not from the start of the next incarnation.
        let mut cluster = incarnation(1, 1, &plan, FLOW + REST - 3);
        assert_eq!(resting(&cluster), 4);
        pass(&mut cluster, 5);
        assert_eq!((resting(&cluster), ended(&cluster)), (0, 4));
    }
}

#[test]
fn a_group_that_rests_is_in_the_store_of_the_runtime_that_it_moved_to() {
    for policy in POLICIES {
        let shop = Shop::default();
        let plan = plan_of(policy, &shop);
        let mut cluster = incarnation(1, 2, &plan, 0);
        feed(&mut cluster, 1..9, 1000);
        pass_interval(&mut cluster);
        cluster.move_everything(0, 1);
        pass_interval(&mut cluster);
        let entries = |runtime| shop.with(|shelves| shelves.partitions[&runtime].len());
        assert_eq!((entries(0), entries(1)), (0, 8));
        drop(cluster);
        let mut cluster = incarnation(1, 2, &plan, 2);
        assert_eq!(groups(&cluster), [(0, 0), (8, 8)]);
        cluster.assert_no_group_stays();
        assert_eq!((ended(&cluster), shop.entries()), (8, 0));
    }
}

#[test]
fn with_store_commit_a_group_that_rests_is_in_the_store_at_once() {
    let shop = Shop::default();
    let plan = plan_of(Copied::StoreCommit, &shop);
    let mut cluster = incarnation(1, 1, &plan, 0);
    for port in 1000..1002 {
        feed(&mut cluster, 1..5, port);
        assert_eq!((resting(&cluster), shop.entries()), (4, 4));
    }
    drop(cluster);
    let mut cluster = incarnation(1, 1, &plan, 1);
    let left = feed(&mut cluster, 1..5, 1002);
    assert!(
        left.len() == 4 && left.values().all(|stamps| *stamps == [3]),
        "{left:?}"
    );
}

/// Workers die at any instant, again and again, while groups rest and wake: answers how many
/// packets left with a count that had left before.
fn counts_that_go_back(policy: Copied, seeds: u64) -> usize {
    let mut back = 0;
    for seed in 0..seeds {
        let mut draws = Draws(seed);
        let shop = Shop::default();
        let plan = plan_of(policy, &shop);
        let (switches, runtimes) = [(1, 1), (1, 3), (2, 3)][seed as usize % 3];
        let mut last: HashMap<u8, u32> = HashMap::new();
        for incarnation_of in 0..4 {
            shop.with(|shelves| shelves.delay = [draws.below(12) as u32, draws.below(12) as u32]);
            let mut cluster = incarnation(switches, runtimes, &plan, incarnation_of);
            for at in 0..100 + draws.below(500) as u16 {
                if at % 29 == 0 {
                    let first = draws.below(6) as u8;
                    let switch = draws.below(usize::from(switches));
                    inject(
                        &mut cluster,
                        switch,
                        (first..first + 3).map(|host| of(host, 1000 + at)),
                    );
                }
                let which = draws.below(workers(&cluster));
                step_one(&mut cluster, which);
            }
            for (host, counts) in stamps(&cluster.sent()) {
                let before = last.get(&host).copied().unwrap_or(0);
                back += counts.iter().filter(|count| **count <= before).count();
                last.insert(host, counts.into_iter().max().unwrap_or(0).max(before));
            }
        }
        shop.with(|shelves| shelves.delay = [0, 0]);
        let mut cluster = incarnation(switches, runtimes, &plan, 5);
        cluster.assert_no_group_stays();
        pass_interval(&mut cluster);
        assert_eq!(shop.entries(), 0, "seed {seed}: nothing is left");
    }
    back
}

#[test]
fn no_group_goes_back_whenever_all_die() {
    assert_eq!(counts_that_go_back(Copied::StoreCommit, 60), 0);
    assert_ne!(
        counts_that_go_back(Copied::Store, 12),
        0,
        "without it they go back"
    );
}
