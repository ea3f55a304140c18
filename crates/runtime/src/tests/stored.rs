//! Flows in a store: every worker is gone, and others begin with what the store has.

use super::lent::Lender;
use super::replica::{Stamp, Stamped, out, reply, stamps_of};
use super::sessions::{Members, SECOND};
use super::spread::{Cluster, stored_cluster};
use super::*;
use crate::chain::ChainRule;
use crate::replica::BROKEN;
use crate::replica::policy::{Policy as Copied, Storing};
use crate::switch::Policy;
use nf::variables::buffer::{Buffer, PUT, REMOVE};
use nf::variables::open::{Carrier, Claimed, Element, Loader, Source};
use nf::variables::shelf::Shelf;
use nf::variables::{BATCHES_MAX, Consistency, Keeper, Kind, OpenError, PartitionStats};
use nf::{Cx, FlowState, Keep, Packet, Time, Verdict, WorkerInfo, network_function};
use proptest::prelude::*;
use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use std::vec;

/// When the first incarnation began, by the wall clock.
pub(super) const WALL: u64 = 1_700_000_000 * SECOND;
pub(super) const INTERVAL: u64 = 1_000_000;

pub(super) type Partition = BTreeMap<Vec<u8>, Vec<u8>>;

/// A store that outlives the workers.
#[derive(Clone, Default)]
pub(super) struct Shop(Arc<Mutex<Shelves>>);

#[derive(Default)]
pub(super) struct Shelves {
    /// By runtime.
    pub partitions: BTreeMap<u32, Partition>,
    pub is_down: bool,
    /// Another process has claimed what it has.
    pub is_fenced: bool,
    /// Steps of the worker until a batch is there, and until it is told so.
    pub delay: [u32; 2],
    /// How many changes it takes before it dies; none: all.
    pub left: Option<usize>,
    pub changes: usize,
    /// How old changes were that were acknowledged.
    pub ages: Vec<u64>,
}

impl Shop {
    pub(super) fn with<R>(&self, look: impl FnOnce(&mut Shelves) -> R) -> R {
        look(&mut self.0.lock().unwrap())
    }

    pub(super) fn entries(&self) -> usize {
        self.with(|shelves| shelves.partitions.values().map(BTreeMap::len).sum())
    }

    fn acknowledge(&self, shelf: &Shelf, sequence: u64) {
        self.with(|shelves| shelf.acknowledge(sequence, |age| shelves.ages.push(age)));
    }

    pub(super) fn keeper(&self) -> Keeper {
        Keeper::of(Box::new(self.clone()))
    }
}

impl Source for Shop {
    fn open(&self, function: &str, runtime: u32) -> Result<Option<Claimed>, OpenError> {
        assert!(
            ["replication", "alarm", "pair", "book"].contains(&function),
            "{function}"
        );
        let carrier = Boy {
            shop: self.clone(),
            runtime,
            sequence: 0,
            buffer: Buffer::new(),
            under_way: VecDeque::new(),
        };
        let reader = Reader(self.clone(), runtime);
        Ok(Some((Box::new(carrier), Arc::new(reader))))
    }
}

struct Reader(Shop, u32);

impl Loader for Reader {
    fn load(&self, _: u32, _: Kind, _: &str, _: bool) -> Result<Vec<Element>, OpenError> {
        let load = |shelves: &mut Shelves| shelves.partitions.get(&self.1).cloned().unwrap_or_default();
        Ok(self.0.with(load).into_iter().collect())
    }
    fn consistency(&self) -> Consistency {
        Consistency::USUAL
    }
    fn name(&self) -> std::string::String {
        "shop".into()
    }
}

struct Boy {
    shop: Shop,
    runtime: u32,
    sequence: u64,
    buffer: Buffer,
    under_way: VecDeque<Batch>,
}

/// A batch on its way.
struct Batch {
    sequence: u64,
    bytes: Vec<u8>,
    /// Steps until it is there, and until the worker hears of that.
    left: [u32; 2],
}

impl Boy {
    /// Batches get there, and answers back, in order.
    fn go_on(&mut self, shelf: &Shelf) {
        for batch in &mut self.under_way {
            match &mut batch.left {
                [0, 0] => continue,
                [0, back] => *back -= 1,
                [there, _] => *there -= 1,
            }
            if batch.left[0] == 0 && !batch.bytes.is_empty() {
                let bytes = core::mem::take(&mut batch.bytes);
                self.shop.with(|shelves| shelves.take(self.runtime, &bytes));
            }
        }
        while let Some(batch) = self.under_way.pop_front_if(|batch| batch.left == [0, 0]) {
            self.shop.acknowledge(shelf, batch.sequence);
        }
    }
}

impl Carrier for Boy {
    fn time(&self, now: u64) -> u64 {
        now
    }
    fn step(&mut self, shelf: &Shelf, now: u64) {
        shelf.set_now(now);
        let (is_down, delay) = self.shop.with(|shelves| (shelves.is_down, shelves.delay));
        if self.shop.with(|shelves| shelves.is_fenced) {
            return shelf.fence();
        }
        if is_down {
            return;
        }
        self.go_on(shelf);
        if self.under_way.len() == BATCHES_MAX || !shelf.has_changed() || !shelf.is_due(now) {
            return;
        }
        self.buffer.empty();
        self.sequence += 1;
        shelf.fill(0, now, self.sequence, &mut self.buffer);
        if delay != [0, 0] {
            let batch = Batch {
                sequence: self.sequence,
                bytes: self.buffer.bytes().to_vec(),
                left: [delay[0] + 1, delay[1]],
            };
            return self.under_way.push_back(batch);
        }
        let (bytes, runtime) = (self.buffer.bytes(), self.runtime);
        self.shop.with(|shelves| shelves.take(runtime, bytes));
        self.shop.acknowledge(shelf, self.sequence);
    }
    fn finish(&mut self, shelf: &Shelf, _: Duration) -> bool {
        (0..100).for_each(|_| self.step(shelf, shelf.now()));
        shelf.is_stored()
    }
    fn figures(&self) -> PartitionStats {
        PartitionStats::default()
    }
    fn next_at(&self, _: &Shelf) -> Option<u64> {
        None
    }
}

impl Shelves {
    fn take(&mut self, runtime: u32, mut bytes: &[u8]) {
        let partition = self.partitions.entry(runtime).or_default();
        while let Some((form, rest)) = bytes.split_first() {
            let word = |at: usize| u32::from_le_bytes(rest[at..at + 4].try_into().unwrap()) as usize;
            let (field, value, head) = match *form {
                PUT => (word(4), word(8), 12),
                REMOVE => (word(4), 0, 8),
                other => panic!("{other}"),
            };
            let (key, behind) = rest[head..].split_at(field);
            let (value, behind) = behind.split_at(value);
            bytes = behind;
            self.changes += 1;
            match &mut self.left {
                Some(0) => continue,
                Some(left) => *left -= 1,
                None => {}
            }
            match *form {
                PUT => drop(partition.insert(key.into(), value.into())),
                _ => drop(partition.remove(key)),
            }
        }
    }
}

pub(super) fn stored(factories: Vec<Box<dyn Factory>>, shop: &Shop) -> Plan {
    stored_as(Copied::Store, factories, shop)
}

pub(super) fn stored_as(policy: Copied, factories: Vec<Box<dyn Factory>>, shop: &Shop) -> Plan {
    let functions = factories.iter().map(|f| f.name().to_string()).collect();
    let rule = ChainRule {
        name: "test".to_string(),
        matching: Match::default(),
        functions,
        replication: Some(policy),
    };
    Plan::new(vec![rule], factories).unwrap().keeping(shop.keeper())
}

/// Workers whose clock is ahead by `ahead`, at `wall` by the wall clock.
pub(super) fn begin(switches: u8, runtimes: u16, plan: &Plan, ahead: u64, wall: u64) -> Cluster {
    let storing = Storing {
        interval: INTERVAL,
        lazy: Storing::LAZY,
        bound: SECOND,
    };
    let ahead_of = vec![ahead; usize::from(runtimes)];
    let mut cluster = stored_cluster(switches, plan, 512, &ahead_of, (storing, wall - ahead));
    cluster.run_until_quiet();
    cluster
}

/// All changes are in the store.
pub(super) fn pass_interval(cluster: &mut Cluster) {
    cluster.now += 2 * INTERVAL;
    cluster.run_until_quiet();
}

pub(super) fn flows(cluster: &Cluster) -> u64 {
    cluster.runtimes.iter().map(|runtime| runtime.stats().flows).sum()
}

pub(super) fn opened(cluster: &Cluster) -> u64 {
    cluster
        .runtimes
        .iter()
        .map(|runtime| runtime.stats().flows_opened)
        .sum()
}

fn events(cluster: &mut Cluster) -> std::string::String {
    let mut lines = std::string::String::new();
    cluster
        .runtimes
        .iter_mut()
        .for_each(|runtime| runtime.take_events(&mut lines));
    lines
}

/// By inside port, the last stamp that left.
fn last_stamps(cluster: &mut Cluster) -> BTreeMap<u16, u32> {
    let stamps = stamps_of(cluster.sent()).into_iter();
    stamps
        .map(|(port, stamps)| (port, stamps.into_iter().max().unwrap()))
        .collect()
}

#[test]
fn flows_go_on_when_all_workers_were_killed() {
    for (switches, runtimes) in [(1, 1), (1, 3), (2, 3)] {
        let shop = Shop::default();
        let plan = stored(vec![factory::<Stamp>()], &shop);
        let mut cluster = begin(switches, runtimes, &plan, 7 * SECOND, WALL);
        for _ in 0..2 {
            cluster.feed(0, (0..60).map(|n| out(2000 + n)));
        }
        pass_interval(&mut cluster);
        assert_eq!((flows(&cluster), shop.entries()), (60, 60));
        drop(cluster);
        let mut cluster = begin(switches, runtimes, &plan, 0, WALL + SECOND);
        assert_eq!(flows(&cluster), 60);
        // Replies first: they find their flows by keys that only the killed had announced.
        cluster.feed(usize::from(switches) - 1, (0..60).map(|n| reply(2000 + n)));
        cluster.feed(0, (0..60).map(|n| out(2000 + n)));
        assert_eq!(
            (flows(&cluster), opened(&cluster)),
            (60, 0),
            "{switches} {runtimes}"
        );
        let stamps = last_stamps(&mut cluster);
        assert!(
            stamps.len() == 60 && stamps.values().all(|stamp| *stamp == 4),
            "{stamps:?}"
        );
        cluster.check();
        // And once more, with what changed since.
        pass_interval(&mut cluster);
        drop(cluster);
        let mut cluster = begin(switches, runtimes, &plan, 99 * SECOND, WALL + 2 * SECOND);
        cluster.feed(0, (0..60).map(|n| out(2000 + n)));
        let stamps = last_stamps(&mut cluster);
        assert!(stamps.values().all(|stamp| *stamp == 5), "{stamps:?}");
        assert_eq!(opened(&cluster), 0);
    }
}

#[test]
fn what_is_lost_is_what_the_store_was_not_told_of() {
    let shop = Shop::default();
    let plan = stored(vec![factory::<Stamp>()], &shop);
    let mut cluster = begin(1, 1, &plan, 0, WALL);
    cluster.feed(0, [out(1)]);
    pass_interval(&mut cluster);
    cluster.feed(0, [out(1), out(2)]);
    drop(cluster);
    let mut cluster = begin(1, 1, &plan, 0, WALL + SECOND);
    assert_eq!(flows(&cluster), 1);
    cluster.feed(0, [out(1), out(2)]);
    assert_eq!(last_stamps(&mut cluster), BTreeMap::from([(1, 2), (2, 1)]));
}

/// A window of loss begins with the packet: the interval is in the age, and in what alarms look at.
#[test]
fn ages_of_flows_in_a_store_count_from_their_packets() {
    let shop = Shop::default();
    let plan = stored(vec![factory::<Stamp>()], &shop);
    let mut cluster = begin(1, 1, &plan, 0, WALL);
    let ages = |shop: &Shop| shop.with(|shelves| core::mem::take(&mut shelves.ages));
    cluster.feed(0, [out(1)]);
    let began = cluster.now;
    cluster.now = began + INTERVAL / 2;
    cluster.feed(0, [out(1), out(2)]);
    assert!(ages(&shop).is_empty());
    cluster.now = began + 7 * INTERVAL;
    cluster.run_until_quiet();
    let seen = ages(&shop);
    let longest = seen.iter().max().unwrap();
    assert!((7 * INTERVAL..8 * INTERVAL).contains(longest), "{seen:?}");
    // And while the store is down: beyond any bound that is shorter.
    shop.with(|shelves| shelves.is_down = true);
    cluster.feed(0, [out(1)]);
    let began = cluster.now;
    cluster.now += 3 * INTERVAL;
    cluster.run_until_quiet();
    shop.with(|shelves| shelves.is_down = false);
    cluster.run_until_quiet();
    let seen = ages(&shop);
    let longest = *seen.iter().max().unwrap();
    assert!(
        longest >= 3 * INTERVAL && longest <= cluster.now - began + INTERVAL,
        "{seen:?}"
    );
}

#[test]
fn a_store_that_is_down_keeps_no_packet_and_has_all_when_it_is_back() {
    let shop = Shop::default();
    let plan = stored(vec![factory::<Stamp>()], &shop);
    let mut cluster = begin(1, 2, &plan, 0, WALL);
    shop.with(|shelves| shelves.is_down = true);
    for _ in 0..5 {
        cluster.feed(0, (0..60).map(|n| out(2000 + n)));
        pass_interval(&mut cluster);
    }
    assert_eq!((last_stamps(&mut cluster).len(), shop.entries()), (60, 0));
    assert_eq!(cluster.sent().len(), 300);
    shop.with(|shelves| shelves.is_down = false);
    pass_interval(&mut cluster);
    assert_eq!(shop.entries(), 60);
    // Many changes of one flow were one: waiting changes are bounded.
    assert_eq!(shop.with(|shelves| shelves.changes), 60);
}

#[test]
fn a_chain_that_gets_another_policy_has_no_flow_in_the_store() {
    let shop = Shop::default();
    let plan = stored(vec![factory::<Stamp>()], &shop);
    let mut cluster = begin(1, 1, &plan, 0, WALL);
    cluster.feed(0, (0..60).map(|n| out(2000 + n)));
    pass_interval(&mut cluster);
    for (policy, entries) in [(Copied::None, 0), (Copied::Store, 60)] {
        cluster.runtimes[0].set_replication("test", Some(policy)).unwrap();
        pass_interval(&mut cluster);
        pass_interval(&mut cluster);
        assert_eq!((flows(&cluster), shop.entries()), (60, entries));
    }
    let refused = cluster.runtimes[0].set_replication("test", Some(Copied::Commit));
    assert!(refused.is_err_and(|error| error.contains("policy = \"commit\"")));
}

#[test]
fn a_flow_that_is_over_is_in_no_store() {
    let shop = Shop::default();
    let plan = stored(vec![factory::<Stamp>()], &shop);
    let mut cluster = begin(1, 1, &plan, 0, WALL);
    cluster.feed(0, (0..60).map(|n| out(2000 + n)));
    pass_interval(&mut cluster);
    cluster.now += 200 * SECOND;
    cluster.run_until_quiet();
    // Places are taken by others at once.
    cluster.feed(0, (0..30).map(|n| out(4000 + n)));
    pass_interval(&mut cluster);
    assert_eq!((flows(&cluster), shop.entries()), (30, 30));
    drop(cluster);
    assert_eq!(flows(&begin(1, 1, &plan, 0, WALL + 201 * SECOND)), 30);
}

#[test]
fn the_time_without_a_process_counts() {
    for (dead, expected) in [(60, 20), (120, 0)] {
        let shop = Shop::default();
        let plan = stored(vec![factory::<Stamp>()], &shop);
        let mut cluster = begin(1, 1, &plan, 50 * SECOND, WALL);
        cluster.feed(0, (0..20).map(out));
        pass_interval(&mut cluster);
        drop(cluster);
        // Flows live 100 s.
        let mut cluster = begin(1, 1, &plan, SECOND, WALL + dead * SECOND);
        cluster.now += 2 * SECOND;
        cluster.run_until_quiet();
        assert_eq!(flows(&cluster), expected);
        // A flow's deadline in a store is later than it is by twice the longer interval.
        cluster.now += 40 * SECOND + 2 * Storing::LAZY;
        cluster.run_until_quiet();
        assert_eq!((flows(&cluster), cluster.routes()), (0, 0), "after {dead} s");
        pass_interval(&mut cluster);
        assert_eq!(shop.entries(), 0);
    }
}

#[derive(FlowState, Default, Clone, Copy, Debug)]
#[repr(C)]
struct Since {
    since: Time,
}

/// Writes into each packet how many milliseconds ago its flow began.
struct Clock;

#[network_function]
impl NetworkFunction for Clock {
    const NAME: &'static str = "clock";
    type Config = NoConfig;
    type Flow = Since;
    type Group = ();
    fn new(_: &Arc<NoConfig>, _: &WorkerInfo) -> Result<Self, ConfigError> {
        Ok(Clock)
    }
    fn process(&self, packet: &mut Packet, flow: &mut Since, cx: &mut Cx<Self>) -> Verdict {
        if flow.since == Time::default() {
            flow.since = cx.now();
        }
        let age = (cx.now().nanoseconds_since(flow.since) / 1_000_000) as u32;
        packet.frame_mut()[28..32].copy_from_slice(&age.to_be_bytes());
        Verdict::Forward
    }
}

#[test]
fn times_in_states_are_re_based() {
    let shop = Shop::default();
    let plan = stored(vec![factory::<Clock>()], &shop);
    let mut cluster = begin(1, 1, &plan, 3600 * SECOND, WALL);
    cluster.feed(0, [out(1)]);
    pass_interval(&mut cluster);
    drop(cluster);
    let mut cluster = begin(1, 1, &plan, 20 * SECOND, WALL + 10 * SECOND);
    cluster.feed(0, [out(1)]);
    let sent = cluster.sent();
    let age = u32::from_be_bytes(sent[0].1[28..32].try_into().unwrap());
    assert!((9_990..10_010).contains(&age), "{age}");
}

/// A cluster whose groups lease blocks, on such a store.
fn leased(switches: u8, runtimes: u16, shop: &Shop, ahead: u64, wall: u64) -> Cluster {
    let plan = stored(vec![factory::<Lender>()], shop);
    begin(switches, runtimes, &plan, ahead, wall)
}

pub(super) fn host(n: u8) -> (Side, Vec<u8>) {
    udp(n, 1000, 1, 80, false, &[0; 8])
}

#[test]
fn groups_go_on_with_their_blocks_and_no_other_gets_them() {
    for runtimes in [1, 2] {
        let shop = Shop::default();
        let mut cluster = leased(2, runtimes, &shop, 0, WALL);
        // Of a share of 8 each, 6 and more are taken.
        let hosts = 6 * runtimes as u8;
        cluster.feed(0, (0..hosts).map(host));
        pass_interval(&mut cluster);
        assert_eq!(cluster.sent().len(), usize::from(hosts));
        assert_eq!(shop.entries(), 2 * usize::from(hosts));
        drop(cluster);
        let mut cluster = leased(2, runtimes, &shop, 0, WALL + SECOND);
        // Each switch knows them all.
        let blocks = |cluster: &Cluster| cluster.switches[1].stats().blocks as usize;
        assert_eq!((flows(&cluster), blocks(&cluster)), (hosts.into(), hosts.into()));
        // Blocks that are left are given once, and blocks in use not at all.
        cluster.feed(0, (100..100 + 4 * runtimes as u8).map(host));
        let refused: u64 = cluster
            .runtimes
            .iter()
            .flat_map(|runtime| runtime.stats().dropped)
            .map(|dropped| dropped.count)
            .sum();
        assert_eq!(blocks(&cluster), 8 * usize::from(runtimes));
        assert_eq!(refused, 2 * u64::from(runtimes));
        cluster.check();
        // When all is over, all blocks are home.
        cluster.now += 60 * SECOND;
        cluster.run_until_quiet();
        pass_interval(&mut cluster);
        assert_eq!((flows(&cluster), blocks(&cluster), shop.entries()), (0, 0, 0));
        cluster.feed(0, (0..8 * runtimes as u8).map(host));
        assert_eq!(blocks(&cluster), 8 * usize::from(runtimes));
    }
}

/// The store dies between any two changes: no flow is there without its group. Answers how many
/// would be.
fn alone_in_store() -> usize {
    let mut alone = 0;
    for left in 0..120 {
        let shop = Shop::default();
        shop.with(|shelves| shelves.left = Some(left));
        let mut cluster = leased(1, 1, &shop, 0, WALL);
        for round in 0..3_u8 {
            cluster.feed(0, (0..6).map(|n| host(10 * round + n)));
            pass_interval(&mut cluster);
            cluster.now += 12 * SECOND;
            cluster.run_until_quiet();
        }
        drop(cluster);
        shop.with(|shelves| shelves.left = None);
        let mut cluster = leased(1, 1, &shop, 0, WALL + 20 * SECOND);
        alone += usize::from(events(&mut cluster).contains("stored_refused"));
        cluster.now += 60 * SECOND;
        cluster.run_until_quiet();
        pass_interval(&mut cluster);
        assert_eq!((flows(&cluster), shop.entries()), (0, 0), "after {left} changes");
    }
    alone
}

#[test]
fn no_flow_is_in_the_store_before_its_group() {
    assert_eq!(alone_in_store(), 0);
    BROKEN.set("group is stored before its flow");
    assert_ne!(alone_in_store(), 0);
    BROKEN.set("");
}

/// A runtime is killed and begins again while the others are at work: flows that began elsewhere
/// meanwhile stay there, the rest go on.
fn one_begins_again(plan: Plan, packets: &dyn Fn(u16) -> (Side, Vec<u8>)) {
    let mut members = Members::none(2, 2, Policy::RoundRobin, plan);
    members.storing = Some(Storing {
        interval: INTERVAL,
        lazy: Storing::LAZY,
        bound: SECOND,
    });
    members.wall = WALL;
    (0..4).for_each(|worker| members.start(worker));
    members.run_until_quiet();
    members.feed(0, (0..60).map(packets));
    members.now += 2 * INTERVAL;
    members.run_until_quiet();
    let before = members.flows();
    assert!(before.iter().sum::<u64>() == 60 && before[1] > 20, "{before:?}");
    members.stop(3);
    members.run_until_quiet();
    members.feed(0, (0..30).map(packets));
    members.start(3);
    members.run_until_quiet();
    members.now += 5 * SECOND;
    members.run_until_quiet();
    members.feed(0, (0..60).map(packets));
    assert_eq!(members.flows().iter().sum::<u64>(), 60, "{:?}", members.flows());
    assert!(members.flows()[1] > 0, "some went on: {:?}", members.flows());
    // All of it ends, and nothing is left over.
    members.now += 300 * SECOND;
    members.run_until_quiet();
    assert_eq!(members.flows(), [0, 0]);
    for switch in 0..2 {
        let stats = members.switch(switch).stats();
        assert_eq!((stats.routes, stats.blocks), (0, 0), "{stats:?}");
    }
}

#[test]
fn what_began_elsewhere_meanwhile_stays_there() {
    let shop = Shop::default();
    one_begins_again(stored(vec![factory::<Stamp>()], &shop), &|n| out(2000 + n));
    assert_eq!(shop.entries(), 0);
}

#[derive(FlowState, Default, Clone, Copy, Debug)]
#[repr(C)]
struct Wider {
    counts: [u64; 1],
}

/// The next version of [`Stamp`]: as long, and laid out otherwise.
struct Stamp2;

#[network_function]
impl NetworkFunction for Stamp2 {
    const NAME: &'static str = "stamp";
    type Config = NoConfig;
    type Flow = Wider;
    type Group = ();
    fn new(_: &Arc<NoConfig>, _: &WorkerInfo) -> Result<Self, ConfigError> {
        Ok(Stamp2)
    }
    fn process(&self, _: &mut Packet, flow: &mut Wider, _: &mut Cx<Self>) -> Verdict {
        flow.counts[0] += 1;
        Verdict::Forward
    }
}

fn restored_with_another_layout() -> (u64, usize, bool) {
    let shop = Shop::default();
    let plan = stored(vec![factory::<Stamp>()], &shop);
    let mut cluster = begin(1, 1, &plan, 0, WALL);
    cluster.feed(0, (0..20).map(out));
    pass_interval(&mut cluster);
    drop(cluster);
    let plan = stored(vec![factory::<Stamp2>()], &shop);
    let mut cluster = begin(1, 1, &plan, 0, WALL + SECOND);
    pass_interval(&mut cluster);
    let is_said = events(&mut cluster).contains("\"event\":\"stored_refused\",\"other_layout\":20");
    (flows(&cluster), shop.entries(), is_said)
}

#[test]
fn states_of_another_layout_are_refused() {
    assert_eq!(restored_with_another_layout(), (0, 0, true));
    BROKEN.set("layouts agree");
    assert_eq!(
        restored_with_another_layout().0,
        20,
        "the test tells the difference"
    );
    BROKEN.set("");
}

/// [`Stamp`] with other settings, which let no flow in.
struct Strict;

#[network_function]
impl NetworkFunction for Strict {
    const NAME: &'static str = "stamp";
    const REASONS: &'static [&'static str] = &["not_allowed"];
    type Config = NoConfig;
    type Flow = Stamped;
    type Group = ();
    fn new(_: &Arc<NoConfig>, _: &WorkerInfo) -> Result<Self, ConfigError> {
        Ok(Strict)
    }
    fn process(&self, _: &mut Packet, _: &mut Stamped, cx: &mut Cx<Self>) -> Verdict {
        cx.drop("not_allowed")
    }
    fn configured(&self, _: &mut Stamped, cx: &mut Cx<Self>) -> Keep {
        cx.cut("not_allowed")
    }
}

/// Settings may have changed between the stop and the next start: flows end that they do not let
/// in.
#[test]
fn restored_flows_are_asked_by_the_settings_in_force() {
    let restored = || {
        let shop = Shop::default();
        let plan = stored(vec![factory::<Stamp>()], &shop);
        let mut cluster = begin(1, 1, &plan, 0, WALL);
        cluster.feed(0, (0..20).map(out));
        pass_interval(&mut cluster);
        drop(cluster);
        let plan = stored(vec![factory::<Strict>()], &shop);
        let mut cluster = begin(1, 1, &plan, 0, WALL + SECOND);
        pass_interval(&mut cluster);
        (flows(&cluster), shop.entries())
    };
    assert_eq!(restored(), (0, 0));
    BROKEN.set("restored flows are asked");
    assert_eq!(restored(), (20, 20), "the test tells the difference");
    BROKEN.set("");
}

#[derive(FlowState, Default, Clone, Copy, Debug)]
#[repr(C)]
struct Crowd {
    packets: u32,
}

/// Counts the packets of a host.
struct Crowded;

#[network_function]
impl NetworkFunction for Crowded {
    const NAME: &'static str = "crowded";
    const AFFINITY: nf::Affinity = nf::Affinity::InsideAddress;
    type Config = NoConfig;
    type Flow = Since;
    type Group = Crowd;
    fn new(_: &Arc<NoConfig>, _: &WorkerInfo) -> Result<Self, ConfigError> {
        Ok(Crowded)
    }
    fn process(&self, _: &mut Packet, flow: &mut Since, cx: &mut Cx<Self>) -> Verdict {
        flow.since = cx.now();
        cx.group().packets = cx.group().packets.wrapping_add(1);
        Verdict::Forward
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn a_store_may_say_anything(
        harm in prop::collection::vec((any::<prop::sample::Index>(), any::<prop::sample::Index>(), any::<u8>()), 1..100),
        blocks in prop::collection::vec(any::<[u8; 20]>(), 0..4),
        cut in prop::collection::vec(any::<prop::sample::Index>(), 0..4),
    ) {
        let shop = Shop::default();
        let plan = stored(vec![factory::<Crowded>()], &shop);
        let mut cluster = begin(1, 1, &plan, 0, WALL);
        cluster.feed(0, (0..6).map(host));
        pass_interval(&mut cluster);
        drop(cluster);
        shop.with(|shelves| {
            let mut values: Vec<&mut Vec<u8>> = shelves.partitions.values_mut().flat_map(BTreeMap::values_mut).collect();
            assert_eq!(values.len(), 12);
            for value in &mut values {
                // The variable's own form: a length, here of two bytes or one.
                let head = 1 + usize::from(value[0] & 0x80 != 0);
                value.drain(..head);
            }
            for (value, block) in values.iter_mut().filter(|value| value[1] == 2).zip(&blocks) {
                value.extend_from_slice(block);
            }
            for (which, at, byte) in &harm {
                let value = &mut *values[which.index(12)];
                let at = at.index(value.len());
                value[at] = *byte;
            }
            for which in &cut {
                let value = &mut *values[which.index(12)];
                value.truncate(value.len() / 2);
            }
            for value in &mut values {
                let length = value.len();
                value.splice(..0, [length as u8 | 0x80, (length >> 7) as u8]);
            }
        });
        let mut cluster = begin(1, 1, &plan, 0, WALL + SECOND);
        cluster.feed(0, (0..8).map(host));
        cluster.now += 40 * 24 * 3600 * SECOND;
        cluster.run_until_quiet();
        pass_interval(&mut cluster);
        prop_assert_eq!((flows(&cluster), shop.entries()), (0, 0));
    }
}
