//! Packets that wait until a store has their flows: whatever leaves is there after all workers
//! were killed, at any instant.

use super::groups::Leaser;
use super::lent::Lender;
use super::life::{Shy, of};
use super::replica::{Stamp, out, reply, stamps_of};
use super::sessions::SECOND;
use super::spread::Cluster;
use super::stored::{INTERVAL, Shop, WALL, begin, flows, host, opened, pass_interval, stored_as};
use super::*;
use crate::mobility::{MoveOrder, Selector};
use crate::replica::BROKEN;
use crate::replica::policy::Policy as Copied;
use std::collections::{BTreeMap, BTreeSet};
use std::vec;

/// A number that follows from the last.
pub(super) struct Draws(pub(super) u64);

impl Draws {
    pub(super) fn below(&mut self, most: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (self.0 >> 33) as usize % most
    }
}

/// A step of one worker.
pub(super) fn step_one(cluster: &mut Cluster, which: usize) {
    cluster.now += 1000;
    let switches = cluster.switches.len();
    match which.checked_sub(switches) {
        None => drop(cluster.switches[which].step(cluster.now)),
        Some(runtime) => {
            let now = cluster.now + cluster.ahead[runtime];
            cluster.runtimes[runtime].step(now);
        }
    }
}

pub(super) fn workers(cluster: &Cluster) -> usize {
    cluster.switches.len() + cluster.runtimes.len()
}

pub(super) fn inject(
    cluster: &mut Cluster,
    switch: usize,
    packets: impl IntoIterator<Item = (Side, Vec<u8>)>,
) {
    cluster.switches[switch].port_mut(0).input.extend(packets);
}

#[test]
fn a_packet_leaves_when_the_store_has_its_flow_and_not_before() {
    let shop = Shop::default();
    shop.with(|shelves| shelves.delay = [20, 20]);
    let plan = stored_as(Copied::StoreCommit, vec![factory::<Stamp>()], &shop);
    let mut cluster = begin(1, 1, &plan, 0, WALL);
    inject(&mut cluster, 0, (0..30).map(out));
    let mut left = 0;
    for _ in 0..400 {
        (0..2).for_each(|which| step_one(&mut cluster, which));
        let sent = cluster.sent().len();
        if sent > left {
            assert!(
                shop.entries() >= sent,
                "{sent} packets, {} entries",
                shop.entries()
            );
            left = sent;
        }
    }
    assert_eq!((left, shop.entries()), (30, 30));
    // A packet that changes nothing that is committed waits for nothing.
    assert_eq!(cluster.runtimes[0].stats().held, 0);
}

#[test]
fn packets_wait_for_a_store_that_is_down_and_no_more_than_there_is_room_for() {
    let shop = Shop::default();
    let plan = stored_as(Copied::StoreCommit, vec![factory::<Stamp>()], &shop);
    let mut cluster = begin(1, 1, &plan, 0, WALL);
    shop.with(|shelves| shelves.is_down = true);
    let mut fed = 0;
    for round in 0..10_u16 {
        cluster.feed(0, (0..30).map(|n| out(2000 + 30 * round + n)));
        fed += 30;
    }
    let stats = cluster.runtimes[0].stats();
    let full: u64 = stats
        .dropped
        .iter()
        .filter(|of| of.name == "store_full")
        .map(|of| of.count)
        .sum();
    assert!(full > 0 && stats.held > 0, "{stats:?}");
    assert_eq!((stats.held + full, cluster.sent().len()), (fed, 0));
    shop.with(|shelves| shelves.is_down = false);
    pass_interval(&mut cluster);
    assert_eq!(
        (cluster.sent().len() as u64, cluster.runtimes[0].stats().held),
        (fed - full, 0)
    );
    assert_eq!(shop.entries() as u64, fed);
    cluster.check();
}

#[test]
fn what_waits_at_the_end_leaves_when_the_store_has_it_or_is_dropped() {
    for is_down in [false, true] {
        let shop = Shop::default();
        shop.with(|shelves| shelves.delay = [30, 30]);
        let plan = stored_as(Copied::StoreCommit, vec![factory::<Stamp>()], &shop);
        let mut cluster = begin(1, 1, &plan, 0, WALL);
        inject(&mut cluster, 0, (0..10).map(out));
        for _ in 0..6 {
            (0..2).for_each(|which| step_one(&mut cluster, which));
        }
        assert_eq!(cluster.runtimes[0].stats().held, 10);
        shop.with(|shelves| shelves.is_down = is_down);
        while !cluster.runtimes[0].finish(64) {}
        cluster.run_until_quiet();
        let dropped: u64 = cluster.runtimes[0]
            .stats()
            .dropped
            .iter()
            .map(|of| of.count)
            .sum();
        let expected = if is_down { (0, 10) } else { (10, 0) };
        assert_eq!((cluster.sent().len(), dropped), expected, "down: {is_down}");
        assert_eq!(cluster.runtimes[0].stats().held, 0);
    }
}

#[test]
fn a_chain_that_gets_the_policy_writes_what_was_not_waited_for() {
    let shop = Shop::default();
    let plan = stored_as(Copied::Store, vec![factory::<Stamp>()], &shop);
    let mut cluster = begin(1, 1, &plan, 0, WALL);
    cluster.feed(0, (0..20).map(out));
    pass_interval(&mut cluster);
    cluster.feed(0, (0..20).map(out));
    cluster.runtimes[0]
        .set_replication("test", Some(Copied::StoreCommit))
        .unwrap();
    cluster.feed(0, (0..20).map(out));
    drop(cluster);
    let mut cluster = begin(1, 1, &plan, 0, WALL + SECOND);
    cluster.feed(0, (0..20).map(out));
    let stamps = stamps_of(cluster.sent());
    assert!(stamps.values().all(|stamps| stamps == &[4]), "{stamps:?}");
}

/// The facts of flows and blocks seen on the wire, over all incarnations.
#[derive(Default)]
struct Wire {
    stamps: BTreeMap<u16, BTreeSet<u32>>,
    /// Stamps that were given twice: their flows went back.
    twice: usize,
}

impl Wire {
    fn see(&mut self, cluster: &mut Cluster) {
        for (port, stamps) in stamps_of(cluster.sent()) {
            for stamp in stamps {
                self.twice += usize::from(!self.stamps.entry(port).or_default().insert(stamp));
            }
        }
    }
}

/// One incarnation: so many single steps in an order of its own, packets both ways between them,
/// and moves if there are to be some; then all workers are gone.
fn live(cluster: &mut Cluster, draws: &mut Draws, steps: usize, moves: bool, known: &BTreeSet<u16>) {
    let count = workers(cluster);
    let switches = cluster.switches.len();
    for at in 0..steps {
        if at % 23 == 0 {
            let first = draws.below(40) as u16;
            let switch = draws.below(switches);
            inject(cluster, switch, (first..first + 8).map(|n| out(2000 + n)));
            // A reply to a flow that is not there would open one.
            let answered = (2000 + first..2004 + first).filter(|port| known.contains(port));
            inject(cluster, switches - 1, answered.map(reply));
        }
        if moves && at % 61 == 60 {
            let from = draws.below(cluster.runtimes.len());
            let to = (from + 1) % cluster.runtimes.len();
            let order = MoveOrder {
                selector: Selector::All,
                to: vec![to as u16],
            };
            let _ = cluster.runtimes[from].order(order);
        }
        let which = draws.below(count);
        step_one(cluster, which);
    }
}

/// Incarnations of several runtimes that are killed at any instant, each with the store's flows;
/// answers how many flows went back behind packets that had left.
fn incarnations(policy: Copied, seeds: u64, moves: bool) -> usize {
    let mut twice = 0;
    for seed in 0..seeds {
        let mut draws = Draws(seed);
        let shop = Shop::default();
        let plan = stored_as(policy, vec![factory::<Stamp>()], &shop);
        let (switches, runtimes) = [(1, 1), (1, 3), (2, 3)][seed as usize % 3];
        let mut wire = Wire::default();
        let mut wall = WALL;
        for _ in 0..4 {
            shop.with(|shelves| shelves.delay = [draws.below(12) as u32, draws.below(12) as u32]);
            wall += SECOND;
            let mut cluster = begin(switches, runtimes, &plan, draws.below(9) as u64 * SECOND, wall);
            let steps = 40 + draws.below(400);
            let has_replies = policy == Copied::StoreCommit && BROKEN.get().is_empty();
            let known = wire.stamps.keys().copied().filter(|_| has_replies).collect();
            live(&mut cluster, &mut draws, steps, moves && runtimes > 1, &known);
            wire.see(&mut cluster);
        }
        // The last incarnation settles: each flow is at one runtime.
        shop.with(|shelves| shelves.delay = [0, 0]);
        let mut cluster = begin(switches, runtimes, &plan, 0, wall + SECOND);
        let known = flows(&cluster);
        cluster.feed(0, (0..48).map(|n| out(2000 + n)));
        pass_interval(&mut cluster);
        wire.see(&mut cluster);
        assert_eq!(flows(&cluster), 48, "seed {seed}: each flow once");
        assert_eq!(known + opened(&cluster), 48, "seed {seed}");
        cluster.check();
        cluster.now += 300 * SECOND;
        cluster.run_until_quiet();
        pass_interval(&mut cluster);
        assert_eq!((flows(&cluster), cluster.routes()), (0, 0), "seed {seed}");
        assert_eq!(shop.entries(), 0, "seed {seed}: nothing is left");
        twice += wire.twice;
    }
    twice
}

#[test]
fn what_has_left_is_there_after_any_instant_of_death() {
    assert_eq!(incarnations(Copied::StoreCommit, 60, false), 0);
    assert_ne!(
        incarnations(Copied::Store, 12, false),
        0,
        "without it flows go back"
    );
    BROKEN.set("the store is waited for");
    assert_ne!(
        incarnations(Copied::StoreCommit, 12, false),
        0,
        "the test tells the difference"
    );
    BROKEN.set("");
}

#[test]
fn a_flow_that_moves_is_at_one_runtime_after_any_instant_of_death() {
    assert_eq!(incarnations(Copied::StoreCommit, 120, true), 0);
    incarnations(Copied::Store, 30, true);
    for rule in [
        "the target's records are waited for",
        "the source's records are waited for",
    ] {
        BROKEN.set(rule);
        assert_ne!(incarnations(Copied::StoreCommit, 120, true), 0, "{rule}");
        BROKEN.set("");
    }
}

/// By group, its block; of those whose packets have left.
fn blocks_given(switches: u8, runtimes: u16, seed: u64, moves: bool) {
    let mut draws = Draws(seed);
    let shop = Shop::default();
    let plan = stored_as(Copied::StoreCommit, vec![factory::<Lender>()], &shop);
    let mut given: BTreeMap<_, (_, u64)> = BTreeMap::new();
    let mut wall = WALL;
    for incarnation in 0..5 {
        shop.with(|shelves| shelves.delay = [draws.below(12) as u32, draws.below(12) as u32]);
        wall += SECOND;
        let mut cluster = begin(switches, runtimes, &plan, 0, wall);
        let hosts = 6 * runtimes as usize;
        for at in 0..30 + draws.below(250) {
            if at % 29 == 0 {
                let first = draws.below(hosts) as u8;
                inject(
                    &mut cluster,
                    draws.below(switches.into()),
                    (first..first + 3).map(host),
                );
            }
            if moves && at % 61 == 60 {
                let from = draws.below(runtimes.into());
                let to = (from as u16 + 1) % runtimes;
                let order = MoveOrder {
                    selector: Selector::All,
                    to: vec![to],
                };
                let _ = cluster.runtimes[from].order(order);
            }
            let which = draws.below(workers(&cluster));
            step_one(&mut cluster, which);
        }
        let has_left: BTreeSet<u8> = cluster.sent().iter().map(|(_, frame)| frame[15]).collect();
        let mut blocks = BTreeMap::new();
        for runtime in &mut cluster.runtimes {
            for (block, group) in runtime.blocks_here() {
                if let Some(other) = blocks.insert(block, group) {
                    assert!(
                        other == group,
                        "seed {seed}, incarnation {incarnation}: a block is two groups'"
                    );
                }
            }
        }
        for host in 0..hosts as u8 {
            let group = crate::group::GroupKey::of_address(nf::Addr::v4([10, 0, 0, host]));
            let Some((block, _)) = blocks.iter().find(|(_, owner)| **owner == group) else {
                continue;
            };
            let block = *block;
            if !has_left.contains(&host) && !given.contains_key(&host) {
                continue;
            }
            let before = given.insert(host, (block, incarnation));
            assert!(
                before.is_none_or(|(before, _)| before == block),
                "seed {seed}, incarnation {incarnation}: host {host} has another block"
            );
        }
    }
}

#[test]
fn no_block_is_given_twice_whenever_all_die() {
    for seed in 0..60 {
        let (switches, runtimes) = [(1, 1), (1, 2), (2, 3)][seed as usize % 3];
        blocks_given(switches, runtimes, seed, false);
        if runtimes > 1 {
            blocks_given(switches, runtimes, seed, true);
        }
    }
}

#[test]
fn a_flow_that_nothing_waits_for_is_written_within_the_interval() {
    let shop = Shop::default();
    let plan = stored_as(Copied::StoreCommit, vec![factory::<Stamp>()], &shop);
    let mut cluster = begin(1, 2, &plan, 0, WALL);
    cluster.feed(0, (0..20).map(out));
    let changes = shop.with(|shelves| shelves.changes);
    cluster.now += 2 * INTERVAL;
    cluster.run_until_quiet();
    // Deadlines and lazy bytes.
    assert_eq!(shop.with(|shelves| shelves.changes), changes + 20);
}

/// All die behind any change of a group's move: answers how many of its flows were lost.
fn lost_by_moving(policy: Copied) -> u64 {
    let mut lost = 0;
    for left in 0..120 {
        let shop = Shop::default();
        let plan = stored_as(policy, vec![factory::<Leaser>(), factory::<Shy>()], &shop);
        let mut cluster = begin(1, 2, &plan, 0, WALL);
        cluster.feed(0, (1000..1014).map(|port| of(1, port)));
        pass_interval(&mut cluster);
        assert_eq!((flows(&cluster), shop.entries()), (12, 13));
        let from = usize::from(cluster.runtimes[0].stats().flows == 0);
        let (from, to) = match left % 2 {
            0 => (from, 1 - from),
            _ => (1 - from, from),
        };
        if left % 2 == 1 {
            cluster.move_everything(to, from as u16);
            pass_interval(&mut cluster);
        }
        shop.with(|shelves| shelves.left = Some(left / 2));
        cluster.move_everything(from, to as u16);
        pass_interval(&mut cluster);
        drop(cluster);
        shop.with(|shelves| shelves.left = None);
        let mut cluster = begin(1, 2, &plan, 0, WALL + SECOND);
        lost += 12 - flows(&cluster);
        cluster.check();
        pass_interval(&mut cluster);
        if BROKEN.get().is_empty() {
            assert_eq!(shop.entries(), 13, "behind {} changes", left / 2);
        }
    }
    lost
}

#[test]
fn a_group_is_whole_whenever_all_die_while_it_moves() {
    for policy in [Copied::Store, Copied::StoreCommit] {
        assert_eq!(lost_by_moving(policy), 0);
        for rule in [
            "what is coming is not read",
            "a group's record goes first",
            "the target's records are waited for",
        ] {
            BROKEN.set(rule);
            assert_ne!(lost_by_moving(policy), 0, "{rule}");
            BROKEN.set("");
        }
    }
}
