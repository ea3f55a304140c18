//! Groups that live on without flows: for as long as their functions say, wherever they move, and
//! when their runtime fails.

use super::groups::{Leaser, frame, inside, outside};
use super::sessions::{Members, SECOND, everywhere};
use super::spread::{Cluster, cluster, cluster_of_clocks};
use super::*;
use crate::mobility::{MoveOrder, Selector};
use crate::replica::policy::{Copying, Policy as Copied};
use crate::switch::Policy;
use nf::{Affinity, Cx, FlowState, Packet, Time, Verdict, WorkerInfo, network_function};
use proptest::prelude::*;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;
use std::vec;

/// Drops what an inside host sends until that was three packets, and writes into each of the others
/// how many that was.
pub(super) struct Shy;

#[derive(FlowState, Default, Clone, Copy, Debug)]
#[repr(C)]
pub(super) struct Sent {
    packets: u64,
    last: Time,
}

/// How long a host's group lives without a flow, and a flow (as long as [`Leaser`] has it), in
/// seconds.
pub(super) const REST: u64 = 20;
pub(super) const FLOW: u64 = 10;
const EARLY: u32 = 2;

#[network_function]
impl NetworkFunction for Shy {
    const NAME: &'static str = "shy";
    const AFFINITY: Affinity = Affinity::InsideAddress;
    const REASONS: &'static [&'static str] = &["early"];
    const COUNTERS: &'static [&'static str] = &["ended", "begun"];
    type Flow = ();
    type Group = Sent;
    fn new(_: &Arc<NoConfig>, _: &WorkerInfo) -> Result<Self, ConfigError> {
        Ok(Shy)
    }
    fn process(&self, packet: &mut Packet, _: &mut (), cx: &mut Cx<Self>) -> Verdict {
        let (now, sent) = (cx.now(), cx.group());
        // A time that was not re-based is far from here.
        assert!(sent.packets == 0 || now - sent.last < Duration::from_secs(2 * REST));
        (sent.packets, sent.last) = (sent.packets + 1, now);
        let packets = sent.packets as u32;
        if packets == 1 {
            cx.count("begun");
        }
        if packets <= EARLY {
            return cx.drop("early");
        }
        packet.frame_mut()[28..32].copy_from_slice(&packets.to_be_bytes());
        Verdict::Forward
    }
    fn group_ended(&self, group: &mut Sent, cx: &mut Cx<Self>) {
        assert!(group.packets > 0);
        cx.count("ended");
    }
    fn timeout(&self, _: &()) -> Option<Duration> {
        Some(Duration::from_secs(FLOW))
    }
    fn group_timeout(&self, group: &Sent) -> Duration {
        Duration::from_secs(if group.packets > 0 { REST } else { 0 })
    }
}

pub(super) fn of(host: u8, port: u16) -> (Side, Vec<u8>) {
    udp(host, port, 1, 80, false, &[0; 8])
}

/// By host, in order: how many packets it had sent with each that left.
pub(super) fn stamps(sent: &[super::Sent]) -> HashMap<u8, Vec<u32>> {
    let mut stamps: HashMap<u8, Vec<u32>> = HashMap::new();
    for (_, frame) in sent {
        let stamp = u32::from_be_bytes(frame[28..32].try_into().unwrap());
        stamps.entry(frame[15]).or_default().push(stamp);
    }
    stamps
}

fn shy() -> Plan {
    plan(vec![factory::<Leaser>(), factory::<Shy>()])
}

/// By runtime: groups, and those of them that rest.
pub(super) fn groups(cluster: &Cluster) -> Vec<(u64, u64)> {
    let stats = cluster.runtimes.iter().map(|runtime| runtime.stats());
    stats.map(|stats| (stats.groups, stats.groups_resting)).collect()
}

fn sum(cluster: &Cluster) -> (u64, u64) {
    let all = groups(cluster).into_iter();
    all.fold((0, 0), |sum, groups| (sum.0 + groups.0, sum.1 + groups.1))
}

pub(super) fn ended(cluster: &Cluster) -> u64 {
    counted(cluster, "ended")
}

fn counted(cluster: &Cluster, name: &str) -> u64 {
    let stats = cluster.runtimes.iter().map(|runtime| runtime.stats());
    let counters = stats.flat_map(|stats| stats.counters);
    let of_name = counters.filter(|named| named.name == name);
    of_name.map(|named| named.count).sum()
}

pub(super) fn pass(cluster: &mut Cluster, seconds: u64) {
    // Tick by tick, as far as that matters: a look finds groups that were due long ago, too.
    for _ in 0..seconds {
        cluster.now += SECOND;
        cluster.run_until_quiet();
    }
}

impl Cluster {
    pub(super) fn assert_no_group_stays(&mut self) {
        pass(self, 2 * (REST + FLOW));
        self.check();
        for (number, runtime) in self.runtimes.iter().enumerate() {
            let stats = runtime.stats();
            assert_eq!(
                (stats.flows, stats.groups, stats.groups_resting),
                (0, 0, 0),
                "{number}"
            );
            assert!(runtime.blocks().is_empty());
        }
        assert_eq!(self.routes(), 0);
        assert!(self.switches.iter().all(|switch| switch.stats().blocks == 0));
    }

    pub(super) fn move_everything(&mut self, from: usize, to: u16) {
        let order = MoveOrder {
            selector: Selector::All,
            to: vec![to],
        };
        let number = self.runtimes[from].order(order).unwrap();
        self.run_until_quiet();
        assert!(self.runtimes[from].receipt(number).unwrap().is_over);
        assert!(self.runtimes[from].moves_left().is_empty());
    }
}

#[test]
fn a_group_lives_on_without_flows_as_long_as_its_function_says() {
    let mut cluster = cluster(2, 2, Policy::RoundRobin, &shy(), 64);
    cluster.feed(0, (1..5).map(|host| of(host, 1000)));
    assert_eq!((sum(&cluster), cluster.routes()), ((4, 4), 4));
    let blocks: Vec<_> = cluster.switches.iter().map(|s| s.stats().blocks).collect();
    assert_eq!(blocks, [4, 4], "what a group took it keeps");
    // Other flows of theirs, by the other switch.
    pass(&mut cluster, REST - 1);
    cluster.feed(1, (1..5).map(|host| of(host, 1001)));
    pass(&mut cluster, REST - 1);
    cluster.feed(0, (1..5).map(|host| of(host, 1002)));
    assert_eq!(sum(&cluster), (4, 0));
    // With a flow it does not rest, and behind that it does once more.
    pass(&mut cluster, FLOW + 1);
    assert_eq!(sum(&cluster), (4, 4));
    pass(&mut cluster, REST - 2);
    cluster.feed(0, (1..3).map(|host| of(host, 1003)));
    let all: HashSet<_> = stamps(&cluster.sent()).into_iter().collect();
    let expected = [(1, vec![3, 4]), (2, vec![3, 4]), (3, vec![3]), (4, vec![3])];
    assert_eq!(all, expected.into_iter().collect());
    // Of the others the time is over: they begin again.
    pass(&mut cluster, 2);
    assert_eq!((ended(&cluster), cluster.routes()), (2, 2));
    cluster.feed(0, (1..5).map(|host| of(host, 1004)));
    let last: HashMap<_, _> = stamps(&cluster.sent());
    assert_eq!((last[&1].last(), last[&3].last()), (Some(&5), Some(&3)));
    cluster.assert_no_group_stays();
    assert_eq!(ended(&cluster), 6);
}

#[test]
fn a_group_whose_functions_say_no_time_ends_with_its_last_flow() {
    let mut cluster = cluster(1, 1, Policy::RoundRobin, &plan(vec![factory::<Leaser>()]), 64);
    cluster.feed(0, [of(1, 1000)]);
    assert_eq!(groups(&cluster), [(1, 0)]);
    pass(&mut cluster, 11);
    assert_eq!((groups(&cluster), cluster.routes()), (vec![(0, 0)], 0));
}

/// A runtime alone, with room for so many groups.
fn with_groups(groups_max: u32) -> Runtime<QueuePort> {
    let settings = Settings {
        groups_max,
        ..Settings::alone(64)
    };
    alone(settings, vec![factory::<Shy>()])
}

fn feed(runtime: &mut Runtime<QueuePort>, now: &mut u64, packets: impl IntoIterator<Item = (Side, Vec<u8>)>) {
    runtime.links_mut()[0].input.extend(packets);
    for _ in 0..8 {
        *now += 1000;
        runtime.step(*now);
    }
}

#[test]
fn where_no_place_is_free_the_one_that_has_rested_longest_ends() {
    let (mut runtime, mut now) = (with_groups(3), 0);
    for host in [1, 2, 3] {
        feed(&mut runtime, &mut now, [of(host, 1000)]);
    }
    // It is the latest by that.
    feed(&mut runtime, &mut now, [of(1, 1001)]);
    feed(&mut runtime, &mut now, [of(4, 1000)]);
    let stats = runtime.stats();
    assert_eq!(
        (stats.groups, stats.groups_resting, stats.groups_evicted),
        (3, 3, 1)
    );
    // The second host was forgotten, the others were not.
    feed(&mut runtime, &mut now, [of(3, 1001), of(1, 1002), of(3, 1002)]);
    assert_eq!(
        stamps(&runtime.links_mut()[0].output),
        HashMap::from([(1, vec![3]), (3, vec![3])])
    );
    // Groups with flows are left alone: one place rests, and is taken; then none is, and the packet
    // is a counted drop.
    feed(&mut runtime, &mut now, [of(4, 1001), of(4, 1002)]);
    feed(&mut runtime, &mut now, [of(5, 1000)]);
    let stats = runtime.stats();
    assert_eq!(
        (stats.groups, stats.groups_resting, stats.groups_evicted),
        (3, 0, 1)
    );
    assert_eq!(
        stats
            .dropped
            .iter()
            .find(|d| d.name == "groups_full")
            .unwrap()
            .count,
        1
    );
    assert_conserved(&runtime);
}

#[test]
fn all_end_when_the_runtime_stops() {
    let (mut runtime, mut now) = (with_groups(64), 0);
    feed(&mut runtime, &mut now, (1..11).map(|host| of(host, 1000)));
    assert_eq!(runtime.stats().groups_resting, 10);
    let rounds = (0..10).take_while(|_| !runtime.finish(3)).count();
    assert!((1..10).contains(&rounds), "{rounds}");
    let stats = runtime.stats();
    assert_eq!((stats.groups, stats.counters[0].count), (0, 10));
}

#[test]
fn it_moves_with_its_state_its_blocks_and_the_time_that_it_has_left() {
    for ahead in [[0, 0], [0, 36_000 * SECOND], [36_000 * SECOND, 0]] {
        let mut cluster = cluster_of_clocks(2, &shy(), 64, &ahead);
        cluster.feed(0, (1..9).map(|host| of(host, 1000)));
        pass(&mut cluster, 12);
        for (from, to) in [(0, 1), (1, 0), (0, 1)] {
            cluster.move_everything(from, to);
            let (here, there) = (groups(&cluster)[from], groups(&cluster)[usize::from(to)]);
            assert_eq!((here, there), ((0, 0), (8, 8)));
            assert_eq!((cluster.routes(), cluster.runtimes[from].blocks().len()), (8, 0));
        }
        // They have been asked for by their flows alone: moving has not made them live longer.
        cluster.feed(1, (1..5).map(|host| of(host, 1001)));
        pass(&mut cluster, REST - 12 + 1);
        assert_eq!(groups(&cluster), [(0, 0), (4, 4)], "{ahead:?}");
        cluster.feed(1, (1..5).map(|host| of(host, 1002)));
        let stamps = stamps(&cluster.sent());
        assert_eq!(stamps.len(), 4);
        assert!(stamps.values().all(|stamps| *stamps == [3]), "{stamps:?}");
        cluster.assert_no_group_stays();
        assert_eq!(ended(&cluster), 8);
    }
}

/// Its time is over behind any single step of its move: it ends once, at one of the two.
#[test]
fn a_group_whose_time_is_over_while_it_moves_ends_once() {
    for steps in 0..40 {
        let mut cluster = cluster(2, 2, Policy::RoundRobin, &shy(), 64);
        cluster.feed(0, (1..9).map(|host| of(host, 1000)));
        pass(&mut cluster, REST - 1);
        let order = MoveOrder {
            selector: Selector::All,
            to: vec![1],
        };
        cluster.runtimes[0].order(order).unwrap();
        for step in 0..steps {
            // A tick and more pass behind the last of these steps.
            cluster.now += if step + 30 > steps { SECOND / 10 } else { 1000 };
            match step % 4 {
                0 | 2 => {
                    cluster.runtimes[step % 4 / 2].step(cluster.now);
                }
                switch => {
                    cluster.switches[switch / 2].step(cluster.now);
                }
            }
        }
        cluster.run_until_quiet();
        pass(&mut cluster, 2);
        assert_eq!((sum(&cluster), cluster.routes()), ((0, 0), 0), "{steps}");
        assert_eq!(ended(&cluster), 8, "{steps}");
        assert!(cluster.runtimes.iter().all(|runtime| runtime.blocks().is_empty()));
        cluster.check();
    }
}

/// Others want its place at any step of its move: it is not evicted on its way, and ends once.
#[test]
fn a_group_on_its_way_is_not_evicted() {
    let mut evicted = 0;
    for steps in 0..40 {
        let mut cluster = cluster(1, 2, Policy::RoundRobin, &shy(), 8);
        cluster.feed(0, (1..9).map(|host| of(host, 1000)));
        cluster.move_everything(1, 0);
        assert_eq!(groups(&cluster), [(8, 8), (0, 0)]);
        let order = MoveOrder {
            selector: Selector::All,
            to: vec![1],
        };
        cluster.runtimes[0].order(order).unwrap();
        for step in 0..steps {
            cluster.now += 1000;
            let others = (20..24).map(|host| of(host, 1000));
            if step % 5 == 0 {
                cluster.switches[0].port_mut(0).input.extend(others);
            }
            match step % 3 {
                2 => {
                    cluster.switches[0].step(cluster.now);
                }
                runtime => {
                    cluster.runtimes[runtime].step(cluster.now);
                }
            }
        }
        cluster.run_until_quiet();
        evicted += cluster.runtimes[0].stats().groups_evicted;
        cluster.check();
        cluster.assert_no_group_stays();
        assert_eq!(counted(&cluster, "begun"), ended(&cluster), "{steps}");
    }
    assert_eq!(evicted, 0, "all that rest there are on their way");
}

#[test]
fn one_that_rests_takes_no_others_place_and_one_with_flows_does() {
    let mut cluster = cluster(1, 2, Policy::RoundRobin, &shy(), 3);
    // Three groups at each runtime, by turns.
    for host in 1..7 {
        cluster.feed(0, [of(host, 1000)]);
    }
    assert_eq!(groups(&cluster), [(3, 3), (3, 3)]);
    cluster.move_everything(0, 1);
    assert_eq!(groups(&cluster), [(3, 3), (3, 3)]);
    // A host that has a flow, of the three at the first.
    let first: Vec<u8> = (1..7)
        .filter(|host| {
            let before = cluster.runtimes[0].stats().flows_opened;
            cluster.feed(0, [of(*host, 1001)]);
            cluster.runtimes[0].stats().flows_opened > before
        })
        .collect();
    cluster.feed(0, [of(first[0], 1002)]);
    cluster.move_everything(0, 1);
    assert_eq!(groups(&cluster), [(2, 2), (3, 2)]);
    assert_eq!(cluster.runtimes[1].stats().groups_evicted, 1);
    // Nor is a resting group meant by an order for so many flows.
    let number = cluster.runtimes[1].order_some(everywhere(1, 2), &[], 1).unwrap();
    cluster.run_until_quiet();
    assert_eq!(cluster.runtimes[1].receipt(number).unwrap().moved, 1);
    assert_eq!(groups(&cluster), [(3, 2), (2, 2)]);
    cluster.check();
    cluster.assert_no_group_stays();
}

#[test]
fn an_order_by_address_names_groups_without_flows_too() {
    let mut cluster = cluster(1, 2, Policy::RoundRobin, &shy(), 64);
    cluster.feed(0, (1..9).map(|host| of(host, 1000)));
    let order = MoveOrder {
        selector: Selector::Ends("10.0.0.0/30".parse().unwrap()),
        to: vec![1],
    };
    cluster.runtimes[0].order(order).unwrap();
    cluster.run_until_quiet();
    // By turns, four each: of 1 to 3 one or two were at the first.
    let [(here, _), (there, _)] = groups(&cluster)[..] else {
        panic!()
    };
    assert!(
        here == 2 && there == 6 || here == 3 && there == 5,
        "{here} {there}"
    );
    cluster.assert_no_group_stays();
}

#[test]
fn a_switch_that_begins_again_is_told_of_it() {
    let mut members = Members::all(2, 2, Policy::RoundRobin, shy());
    for _ in 0..2 {
        members.feed(0, (1..20).map(|host| of(host, 1000)));
    }
    for switch in [0, 1, 0] {
        members.start(switch);
        members.run_until_quiet();
    }
    members.feed(1, (1..20).map(|host| of(host, 1001)));
    let stamps = stamps(&members.sent());
    assert_eq!(stamps.len(), 19);
    assert!(stamps.values().all(|stamps| *stamps == [3]), "{stamps:?}");
    members.assert_one_home();
    members.check();
    members.assert_nothing_stays();
}

fn copied(copying: Copying) -> Members {
    let mut members = Members::none(2, 3, Policy::RoundRobin, shy());
    (members.copying, members.is_replicated) = (copying, true);
    (0..5).for_each(|worker| members.start(worker));
    members.run_until_quiet();
    members
}

/// Whether all hosts are known to have sent so many packets.
fn assert_goes_on(members: &mut Members, expected: u32, what: &str) {
    let before = members.sent().len();
    members.feed(1, (1..20).map(|host| of(host, 5000 + expected as u16)));
    let sent = members.sent();
    let stamps = stamps(&sent[..]);
    let last = |host| stamps.get(&host).and_then(|stamps| stamps.iter().max().copied());
    assert!(
        sent.len() >= before + 19,
        "{} of {before} and 19 have left: {what}",
        sent.len()
    );
    assert!(
        (1..20).all(|host| last(host) == Some(expected)),
        "{what}: {stamps:?}"
    );
}

#[test]
fn a_group_without_flows_is_recovered() {
    for policy in [Copied::Commit, Copied::Snapshot] {
        let copying = Copying {
            policy,
            ..Copying::default()
        };
        let mut members = copied(copying);
        for port in [1000, 1001] {
            members.feed(0, (1..20).map(|host| of(host, port)));
        }
        let what = std::format!("{policy:?}");
        assert_eq!(members.flows(), [0, 0, 0]);
        members.stop(2);
        members.run_until_quiet();
        let rests: Vec<_> = (1..3)
            .map(|runtime| members.runtime(runtime).stats().groups_resting)
            .collect();
        assert_eq!(rests.iter().sum::<u64>(), 19, "{what}");
        members.assert_one_home();
        members.assert_blocks_are_known(&what);
        assert_goes_on(&mut members, 3, &what);
        // Copies of recovered flows are at the next; and when these flows are over, too.
        members.now += (FLOW + 1) * SECOND;
        members.run_until_quiet();
        members.start(2);
        members.run_until_quiet();
        members.stop(3);
        members.run_until_quiet();
        assert_goes_on(&mut members, 4, &what);
        members.assert_blocks_are_known(&what);
        members.check();
        members.assert_nothing_stays();
        for runtime in [0, 2] {
            let stats = members.runtime(runtime).stats();
            assert_eq!((stats.groups, stats.copies), (0, 0));
        }
    }
}

#[test]
fn another_replica_gets_copies_of_groups_without_flows() {
    let mut members = copied(Copying::default());
    for port in [1000, 1001] {
        members.feed(0, (1..20).map(|host| of(host, port)));
    }
    // Each replica in turn is gone and another takes its place, before a primary fails.
    for replica in [3, 4, 2] {
        members.stop(replica);
        members.run_until_quiet();
        members.start(replica);
        members.run_until_quiet();
    }
    assert_goes_on(&mut members, 3, "all have failed");
    members.now += (REST / 2) * SECOND;
    members.run_until_quiet();
    members.assert_nothing_stays();
}

#[test]
fn a_recovered_group_rests_no_longer_than_it_would_have() {
    let mut members = copied(Copying::default());
    members.feed(0, (1..20).map(|host| of(host, 1000)));
    members.now += (REST - 2) * SECOND;
    members.run_until_quiet();
    members.stop(2);
    members.run_until_quiet();
    let rests = |members: &mut Members| -> u64 {
        (1..3)
            .map(|runtime| members.runtime(runtime).stats().groups_resting)
            .sum()
    };
    assert_eq!(rests(&mut members), 19);
    members.now += 3 * SECOND;
    members.run_until_quiet();
    assert_eq!(rests(&mut members), 0);
    members.assert_nothing_stays();
}

#[test]
fn groups_of_chains_without_copies_are_not_recovered() {
    let copying = Copying {
        policy: Copied::None,
        ..Copying::default()
    };
    let mut members = copied(copying);
    members.feed(0, (1..20).map(|host| of(host, 1000)));
    let kept = members.runtime(0).stats().groups_resting;
    assert!((1..19).contains(&kept));
    members.stop(2);
    members.run_until_quiet();
    let rests: Vec<_> = (1..3)
        .map(|runtime| members.runtime(runtime).stats().groups_resting)
        .collect();
    assert_eq!(rests.iter().sum::<u64>(), 19 - kept);
    members.check();
    members.assert_nothing_stays();
}

/// Changes by packets before a runtime failed are known after that, as far as a packet has left
/// that depends on them.
#[test]
fn whenever_a_runtime_fails_no_group_goes_back_behind_what_has_left() {
    for steps in 0..60 {
        let mut members = copied(Copying::default());
        members.feed(0, (1..20).map(|host| of(host, 1000)));
        let packets = (1..20).flat_map(|host| [of(host, 1001), of(host, 1002)]);
        members.switch(0).port_mut(0).input.extend(packets);
        for step in 0..steps {
            members.now += 1000;
            members.step(step % 5);
        }
        let left = stamps(&members.sent());
        members.stop(2);
        members.run_until_quiet();
        members.feed(1, (1..20).map(|host| of(host, 1003)));
        let after = stamps(&members.sent());
        for host in 1..20 {
            let before = left.get(&host).and_then(|stamps| stamps.iter().max()).copied();
            let all = after.get(&host).cloned().unwrap_or_default();
            let unique: HashSet<_> = all.iter().collect();
            assert_eq!(unique.len(), all.len(), "{host} after {steps}: {all:?}");
            assert!(
                before <= all.iter().max().copied(),
                "{host} after {steps}: {all:?}"
            );
            // The first packet of each was copied long before.
            assert!(members.runtime(1).stats().groups > 0 && all.iter().all(|stamp| *stamp >= 3));
        }
        members.assert_one_home();
        members.assert_blocks_are_known(&std::format!("{steps}"));
        members.now += 2 * (REST + FLOW) * SECOND;
        members.run_until_quiet();
        let left = (1..3).map(|runtime| members.runtime(runtime).stats().groups);
        assert_eq!(left.sum::<u64>(), 0, "after {steps}");
    }
}

/// A group that rests where another runtime was chosen for its host meanwhile ends.
#[test]
fn what_another_was_chosen_for_meanwhile_ends_although_it_rests() {
    let mut members = Members::all(1, 2, Policy::LeastLoaded, shy());
    members.feed(0, (1..21).map(|host| of(host, 1000)));
    members.start(0);
    members.switch(0).wait_for_resync(5000);
    members
        .switch(0)
        .port_mut(0)
        .input
        .extend((1..21).map(|host| of(host, 1001)));
    // The second runtime is cut off: the first is there alone.
    members.cut_off(2, |members| {
        for _ in 0..20 {
            members.now += 1000;
            members.step(0);
            members.step(1);
        }
    });
    members.run_until_quiet();
    let rests: Vec<_> = (0..2)
        .map(|runtime| members.runtime(runtime).stats().groups)
        .collect();
    assert_eq!(rests, [20, 0]);
    members.assert_one_home();
    members.check();
    members.assert_nothing_stays();
}

proptest! {
    /// Hosts send, time passes, groups move, workers step in any order: a group is at one runtime,
    /// and none forgets what it was sent.
    #[test]
    fn no_group_forgets_while_it_moves(
        events in proptest::collection::vec((0u8..7, 0u8..2, 1u8..4, any::<u16>()), 1..150),
    ) {
        let mut cluster = cluster(2, 3, Policy::RoundRobin, &shy(), 64);
        let (mut fed, mut passed) = (HashMap::<u8, u32>::new(), 0);
        for (what, switch, host, port) in events {
            let switch = usize::from(switch);
            match what {
                0 => {
                    cluster.switches[switch].step(cluster.now);
                }
                1..4 => {
                    cluster.runtimes[usize::from(what) - 1].step(cluster.now);
                }
                4 => {
                    let from = usize::from(port % 3);
                    cluster.runtimes[from].order(everywhere(from, 3)).ok();
                }
                // All in all less than a group rests.
                5 if passed < REST => {
                    cluster.now += SECOND;
                    passed += 2;
                }
                _ => {
                    *fed.entry(host).or_default() += 1;
                    let packet = frame((inside(host), port), (outside(1), 53));
                    let packet = (packet.0, [packet.1, vec![0; 8]].concat());
                    cluster.switches[switch].port_mut(0).input.push_back(packet);
                }
            }
            cluster.now += 1000;
            let mut seen = HashSet::new();
            for runtime in &cluster.runtimes {
                for group in runtime.group_keys() {
                    prop_assert!(seen.insert(group), "{group:?} is at two runtimes");
                }
            }
        }
        cluster.run_until_quiet();
        let stamps = stamps(&cluster.sent());
        for (host, count) in fed {
            let mut all = stamps.get(&host).cloned().unwrap_or_default();
            // By which switch they left is not told.
            all.sort_unstable();
            let expected: Vec<u32> = (EARLY + 1..=count).collect();
            prop_assert_eq!(all, expected, "host {}", host);
        }
        cluster.assert_no_group_stays();
    }
}
