//! When the parts of a flow are written: committed bytes within the interval, the rest within a
//! longer one.

use super::sessions::{Members, SECOND};
use super::spread::Cluster;
use super::stored::{INTERVAL, Shop, WALL, begin, flows, pass_interval, stored_as};
use super::*;
use crate::replica::BROKEN;
use crate::replica::ledger::form::{self, What};
use crate::replica::policy::{Policy as Copied, Storing};
use crate::switch::Policy;
use nf::{Affinity, Cx, FlowState, Packet, Verdict, WorkerInfo, network_function};
use proptest::prelude::*;
use std::cell::Cell;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use std::vec;

/// A packet's changes of its flow and its group: bits.
mod change {
    pub const FLOW: u8 = 1;
    pub const FLOW_LAZY: u8 = 2;
    pub const GROUP: u8 = 4;
    pub const GROUP_LAZY: u8 = 8;
    /// Takes the group's state and leaves it as it is.
    pub const TAKE: u8 = 16;
    pub const COMMITTED: u8 = FLOW | GROUP;
}

std::thread_local! {
    static CHANGE: Cell<u8> = const { Cell::new(0) };
    /// How long flows live from their packet on, in seconds.
    static LIFE: Cell<u64> = const { Cell::new(100) };
}

#[derive(FlowState, Default, Clone, Copy, Debug, PartialEq)]
#[repr(C)]
struct Short {
    committed: u32,
    #[flow_state(lazy)]
    lazy: u32,
}

/// Its committed bytes are behind the first line of its states.
#[derive(FlowState, Default, Clone, Copy, Debug, PartialEq)]
#[repr(C)]
struct Long {
    between: [u32; 16],
    committed: u32,
    #[flow_state(lazy)]
    lazy: u32,
}

macro_rules! function {
    ($name:ident, $called:literal, $flow:ty, $affinity:ident) => {
        struct $name;

        #[network_function]
        impl NetworkFunction for $name {
            const NAME: &'static str = $called;
            const AFFINITY: Affinity = Affinity::$affinity;
            type Config = NoConfig;
            type Flow = $flow;
            type Group = Short;
            fn new(_: &Arc<NoConfig>, _: &WorkerInfo) -> Result<Self, ConfigError> {
                Ok($name)
            }
            fn process(&self, _: &mut Packet, flow: &mut $flow, cx: &mut Cx<Self>) -> Verdict {
                let change = CHANGE.get();
                let one = |bit: u8| u32::from(change & bit != 0);
                flow.committed += one(change::FLOW);
                flow.lazy += one(change::FLOW_LAZY);
                if change & (change::GROUP | change::GROUP_LAZY | change::TAKE) != 0 {
                    cx.group().committed += one(change::GROUP);
                    cx.group().lazy += one(change::GROUP_LAZY);
                }
                Verdict::Forward
            }
            fn timeout(&self, _: &$flow) -> Option<Duration> {
                Some(Duration::from_secs(LIFE.get()))
            }
        }
    };
}

function!(ShortAlone, "short_alone", Short, Flow);
function!(LongAlone, "long_alone", Long, Flow);
function!(ShortGrouped, "short_grouped", Short, InsideAddress);
function!(LongGrouped, "long_grouped", Long, InsideAddress);

const KINDS: usize = 4;

fn function_of(kind: usize) -> Box<dyn Factory> {
    match kind {
        0 => factory::<ShortAlone>(),
        1 => factory::<LongAlone>(),
        2 => factory::<ShortGrouped>(),
        _ => factory::<LongGrouped>(),
    }
}

/// Committed and lazy of a flow, and of its group.
type Kept = [u32; 4];

fn word(bytes: &[u8], at: usize) -> u32 {
    u32::from_ne_bytes(bytes[at..at + 4].try_into().unwrap())
}

/// The store's flows, by host and port. Flows that are alone have their group beside.
fn in_store(shop: &Shop, kind: usize) -> BTreeMap<(u8, u16), Kept> {
    let entries: Vec<Vec<u8>> = shop.with(|shelves| {
        let partitions = shelves.partitions.values();
        partitions.flat_map(|entries| entries.values().cloned()).collect()
    });
    // Behind the states of a flow, as far as they are aligned, are its group's.
    let (own_at, shared_at) = [(0, 8), (64, 72)][kind % 2];
    let (mut flows, mut groups) = (BTreeMap::new(), BTreeMap::new());
    for bytes in &entries {
        let head = 1 + usize::from(bytes[0] & 0x80 != 0);
        let entry = form::read(&bytes[head..]).unwrap();
        match entry.what {
            What::Flow(flow_header, state) => {
                let ends = [flow_header.key.first(), flow_header.key.second()];
                let inside = ends.into_iter().find(|end| end.addr.octets()[12] == 10);
                let inside = inside.unwrap();
                let own = [word(state, own_at), word(state, own_at + 4)];
                let shared = match kind < 2 {
                    true => [word(state, shared_at), word(state, shared_at + 4)],
                    false => [0, 0],
                };
                let at = (inside.addr.octets()[15], inside.port);
                flows.insert(at, [own[0], own[1], shared[0], shared[1]]);
            }
            What::Group(group) => {
                groups.insert(*entry.group.words(), [word(group.state, 0), word(group.state, 4)]);
            }
        }
    }
    for ((host, _), kept) in flows.iter_mut().filter(|_| kind >= 2) {
        let key = crate::flows::group::GroupKey::of_address(nf::Addr::v4([10, 0, 0, *host]));
        [kept[2], kept[3]] = groups[key.words()];
    }
    flows
}

fn packet(host: u8, port: u16) -> (Side, Vec<u8>) {
    udp(host, port, 1, 80, false, &[0; 8])
}

fn feed(cluster: &mut Cluster, host: u8, port: u16, what: u8) {
    CHANGE.set(what);
    cluster.feed(0, [packet(host, port)]);
}

/// Lazy bytes are in the store, too.
fn pass_lazy(cluster: &mut Cluster) {
    cluster.now += Storing::LAZY + 2 * INTERVAL;
    cluster.run_until_quiet();
}

fn changes(shop: &Shop) -> usize {
    shop.with(|shelves| shelves.changes)
}

/// How many flows of a store go on so long behind the first incarnation's beginning, and a second.
fn alive(plan: &Plan, behind: u64) -> u64 {
    let mut cluster = begin(1, 1, plan, SECOND, WALL + behind);
    cluster.now += SECOND;
    cluster.run_until_quiet();
    flows(&cluster)
}

/// A packet, or a time: none, the interval, the longer one.
#[derive(Clone, Copy, Debug)]
enum Deed {
    Packet(u8, u16, u8),
    Interval,
    Lazy,
}

fn deed() -> impl Strategy<Value = Deed> {
    prop_oneof![
        6 => (1..4u8, 1..4u16, 0..32u8).prop_map(|(host, port, what)| Deed::Packet(host, port, what)),
        2 => Just(Deed::Interval),
        1 => Just(Deed::Lazy),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn what_is_committed_is_there_within_the_interval_and_all_within_the_longer_one(
        kind in 0..KINDS,
        commits in any::<bool>(),
        deeds in prop::collection::vec(deed(), 1..60),
    ) {
        let shop = Shop::default();
        let policy = if commits { Copied::StoreCommit } else { Copied::Store };
        let mut cluster = begin(1, 1, &stored_as(policy, vec![function_of(kind)], &shop), 0, WALL);
        // By flow, and what flows that are no groups have of it.
        let mut flows = BTreeMap::<(u8, u16), Kept>::new();
        let mut groups = BTreeMap::<u8, [u32; 2]>::new();
        for deed in deeds.into_iter().chain([Deed::Interval, Deed::Lazy]) {
            match deed {
                Deed::Packet(host, port, what) => {
                    feed(&mut cluster, host, port, what);
                    let one = |bit: u8| u32::from(what & bit != 0);
                    let kept = flows.entry((host, port)).or_default();
                    kept[0] += one(change::FLOW);
                    kept[1] += one(change::FLOW_LAZY);
                    kept[2] += one(change::GROUP);
                    kept[3] += one(change::GROUP_LAZY);
                    let shared = groups.entry(host).or_default();
                    shared[0] += one(change::GROUP);
                    shared[1] += one(change::GROUP_LAZY);
                }
                Deed::Interval => pass_interval(&mut cluster),
                Deed::Lazy => pass_lazy(&mut cluster),
            }
            if matches!(deed, Deed::Packet(..)) {
                continue;
            }
            let there = in_store(&shop, kind);
            prop_assert_eq!(there.len(), flows.len());
            for ((host, port), mut expected) in flows.clone() {
                if kind >= 2 {
                    [expected[2], expected[3]] = groups[&host];
                }
                let there = there[&(host, port)];
                prop_assert_eq!((there[0], there[2]), (expected[0], expected[2]), "committed");
                if matches!(deed, Deed::Lazy) {
                    prop_assert_eq!(there, expected, "lazy");
                }
            }
        }
    }
}

#[test]
fn what_is_lazy_alone_is_not_written_at_the_interval() {
    for kind in 0..KINDS {
        for policy in [Copied::Store, Copied::StoreCommit] {
            let shop = Shop::default();
            let plan = stored_as(policy, vec![function_of(kind)], &shop);
            let mut cluster = begin(1, 1, &plan, 0, WALL);
            (0..20).for_each(|port| feed(&mut cluster, 1, port, change::COMMITTED));
            pass_interval(&mut cluster);
            pass_lazy(&mut cluster);
            let before = changes(&shop);
            let lazy = change::FLOW_LAZY | change::GROUP_LAZY;
            let what = [lazy, change::TAKE, 0];
            // A chain's first packet that takes the group's state again may have written it.
            feed(&mut cluster, 1, 0, change::TAKE);
            pass_interval(&mut cluster);
            let taken = changes(&shop) - before;
            assert!(taken <= 2, "{kind} {policy:?}: {taken}");
            for what in what {
                for _ in 0..5 {
                    (0..20).for_each(|port| feed(&mut cluster, 1, port, what));
                    pass_interval(&mut cluster);
                }
            }
            assert!(
                changes(&shop) - before - taken <= 4,
                "{kind} {policy:?}: a few of the walk's"
            );
            pass_lazy(&mut cluster);
            let groups = usize::from(kind >= 2);
            let all = changes(&shop) - before - taken;
            assert!(
                (20..=25 + groups).contains(&all),
                "{kind} {policy:?}: each flow once: {all}"
            );
            let there = in_store(&shop, kind);
            assert!(there.values().all(|kept| kept[1] == 5), "{there:?}");
        }
    }
}

#[test]
fn writes_of_what_is_lazy_are_spread_over_the_time() {
    let shop = Shop::default();
    let plan = stored_as(Copied::Store, vec![function_of(0)], &shop);
    let mut cluster = begin(1, 1, &plan, 0, WALL);
    let mut most = 0;
    let mut before = 0;
    for round in 0..300 {
        CHANGE.set(change::FLOW_LAZY);
        cluster.feed(0, (0..400).map(|port| packet(1, port)));
        cluster.now += 10 * INTERVAL;
        cluster.run_until_quiet();
        if round > 1 {
            most = most.max(changes(&shop) - before);
        }
        before = changes(&shop);
    }
    // 400 in a second are 4 in a hundredth; packets take time of their own.
    assert!(most <= 8, "{most} in one round");
    assert!(
        (1200..2400).contains(&before),
        "{before} writes in some three seconds"
    );
}

#[test]
fn a_flow_out_of_the_store_never_lives_shorter() {
    // Packets so far apart: less than the margin, about it, and far more.
    for (gap, packets) in [
        (SECOND / 10, 60),
        (SECOND, 10),
        (3 * SECOND, 10),
        (50 * SECOND, 4),
        (99 * SECOND, 3),
    ] {
        for kind in 0..KINDS {
            let shop = Shop::default();
            let plan = stored_as(Copied::Store, vec![function_of(kind)], &shop);
            let mut cluster = begin(1, 1, &plan, 7 * SECOND, WALL);
            let began = cluster.now;
            for _ in 0..packets {
                feed(&mut cluster, 1, 1, 0);
                pass_interval(&mut cluster);
                cluster.now += gap;
                cluster.run_until_quiet();
            }
            feed(&mut cluster, 1, 1, 0);
            pass_interval(&mut cluster);
            // It has 100 s from here, and gets no more than twice the longer interval besides.
            let passed = cluster.now - began;
            drop(cluster);
            assert_eq!(
                alive(&plan, passed + 98 * SECOND),
                1,
                "{kind}, a packet each {gap} ns"
            );
            assert_eq!(
                alive(&plan, passed + 104 * SECOND),
                0,
                "{kind}, a packet each {gap} ns"
            );
        }
    }
}

/// Whether what a later packet of a flow commits is in the store an interval later, and the flow
/// has the time that the packet gave it.
fn is_kept(kind: usize) -> bool {
    let shop = Shop::default();
    let plan = stored_as(Copied::Store, vec![function_of(kind)], &shop);
    let mut cluster = begin(1, 1, &plan, 0, WALL);
    feed(&mut cluster, 1, 1, change::COMMITTED);
    pass_interval(&mut cluster);
    feed(&mut cluster, 1, 1, change::FLOW);
    pass_interval(&mut cluster);
    let there = in_store(&shop, kind)[&(1, 1)];
    feed(&mut cluster, 1, 1, change::GROUP);
    pass_interval(&mut cluster);
    let is_there = there[0] == 2 && in_store(&shop, kind)[&(1, 1)][2] == 2;
    cluster.now += 50 * SECOND;
    cluster.run_until_quiet();
    feed(&mut cluster, 1, 1, 0);
    pass_interval(&mut cluster);
    drop(cluster);
    is_there && alive(&plan, 140 * SECOND) == 1
}

#[test]
fn a_broken_rule_of_noting_is_noticed() {
    for kind in 0..KINDS {
        assert!(is_kept(kind));
        for rule in [
            "committed bytes are compared",
            "groups are compared",
            "a deadline beyond the store's is written",
        ] {
            BROKEN.set(rule);
            let is_noticed = !is_kept(kind);
            BROKEN.set("");
            // Flows that are groups have those compared with the rest.
            assert!(
                is_noticed || kind < 2 && rule.starts_with("groups"),
                "{kind}: {rule}"
            );
        }
    }
}

#[test]
fn an_incarnation_that_grows_is_written_at_the_interval() {
    let shop = Shop::default();
    let plan = stored_as(Copied::Store, vec![function_of(0)], &shop);
    let mut cluster = begin(1, 1, &plan, 0, WALL);
    feed(&mut cluster, 1, 1, 0);
    pass_interval(&mut cluster);
    LIFE.set(100_000);
    feed(&mut cluster, 1, 1, 0);
    pass_interval(&mut cluster);
    LIFE.set(100);
    drop(cluster);
    assert_eq!(alive(&plan, 90_000 * SECOND), 1);
}

#[test]
fn at_a_stop_all_is_written() {
    for kind in 0..KINDS {
        let shop = Shop::default();
        let plan = stored_as(Copied::Store, vec![function_of(kind)], &shop);
        let mut cluster = begin(1, 1, &plan, 0, WALL);
        (0..20).for_each(|port| feed(&mut cluster, 1, port, change::COMMITTED));
        pass_interval(&mut cluster);
        (0..20).for_each(|port| feed(&mut cluster, 1, port, change::FLOW_LAZY));
        while !cluster.runtimes[0].finish(64) {}
        cluster.run_until_quiet();
        let there = in_store(&shop, kind);
        assert!(
            there.len() == 20 && there.values().all(|kept| kept[1] == 1),
            "{there:?}"
        );
    }
}

#[test]
fn a_chain_beside_copies_has_its_changes_in_the_store() {
    for kind in 0..KINDS {
        let shop = Shop::default();
        let plan = stored_as(Copied::Store, vec![function_of(kind)], &shop);
        let mut members = Members::none(1, 2, Policy::RoundRobin, plan);
        members.is_replicated = true;
        members.storing = Some(Storing {
            interval: INTERVAL,
            lazy: Storing::LAZY,
            bound: SECOND,
        });
        members.wall = WALL;
        (0..3).for_each(|worker| members.start(worker));
        members.run_until_quiet();
        for round in 1..5 {
            for (what, is_lazy) in [
                (change::COMMITTED, false),
                (change::FLOW_LAZY | change::GROUP_LAZY, true),
            ] {
                CHANGE.set(what);
                members.feed(0, (1..9).map(|host| packet(host, 1000)));
                members.now += if is_lazy { Storing::LAZY } else { 0 } + 2 * INTERVAL;
                members.run_until_quiet();
                let there = in_store(&shop, kind);
                let lazy = if is_lazy { round } else { round - 1 };
                let expected = [round, lazy, round, lazy];
                assert!(there.len() == 8, "{kind}: {there:?}");
                let is_it =
                    |kept: &Kept| (kept[0], kept[2]) == (round, round) && (!is_lazy || *kept == expected);
                assert!(there.values().all(is_it), "{kind}, round {round}: {there:?}");
            }
        }
    }
}
