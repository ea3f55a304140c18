//! Groups that move between runtimes while packets come.

use super::flows::{Hosts, Masquerade, Meter};
use super::groups::{Leaser, Service, assert_nothing_stays, has_an_inside_end, packets};
use super::spread::{Cluster, cluster, cluster_with_buffers};
use super::*;
use crate::mobility::{MoveOrder, Receipt, Selector};
use crate::switch::Policy;
use nf::{
    Affinity, ConfigError, Cx, FlowState, NetworkFunction, NoConfig, Packet, Verdict, WorkerInfo,
    network_function,
};
use proptest::prelude::*;
use std::collections::{HashMap, HashSet};
use std::vec;

const SECOND: u64 = 1_000_000_000;

/// To move everything there.
pub fn order_all(to: u16) -> MoveOrder {
    MoveOrder {
        selector: Selector::All,
        to: vec![to],
    }
}

impl Cluster {
    /// Has all flows of a runtime move, and sees it through.
    pub fn move_all(&mut self, from: usize, to: u16) -> Receipt {
        let number = self.runtimes[from].order(order_all(to)).unwrap();
        self.run_until_quiet();
        let receipt = self.runtimes[from].receipt(number).unwrap();
        assert!(receipt.is_over, "{receipt:?}");
        receipt
    }

    fn flows(&self) -> Vec<u64> {
        self.runtimes
            .iter()
            .map(|runtime| runtime.stats().flows)
            .collect()
    }
}

fn reply(port: u16, payload: &[u8]) -> (Side, Vec<u8>) {
    let mut frame = Vec::new();
    etherparse::PacketBuilder::ipv4([192, 0, 2, 1], [203, 0, 113, 1], 64)
        .udp(80, port + 1000)
        .write(&mut frame, payload)
        .unwrap();
    (Side::Outside, frame)
}

#[test]
fn flows_move_and_go_on_where_they_were() {
    let plan = plan(vec![factory::<Meter>(), factory::<Masquerade>()]);
    let mut cluster = cluster(2, 2, Policy::RoundRobin, &plan, 64);
    for _ in 0..2 {
        cluster.feed(0, (0..10).map(|n| udp(1, 1000 + n, 1, 80, false, b"x")));
        cluster.feed(1, (0..10).map(|n| reply(1000 + n, b"y")));
    }
    let here = cluster.flows()[0];
    assert!((1..10).contains(&here), "{here}");
    let receipt = cluster.move_all(0, 1);
    assert_eq!((receipt.asked, receipt.moved, receipt.failed), (here, here, 0));
    assert!(receipt.bytes > 0);
    assert_eq!(cluster.flows(), [0, 10]);
    // To where they are now, by both keys, through both switches; and back.
    for from in [1, 0, 1] {
        cluster.feed(0, (0..10).map(|n| udp(1, 1000 + n, 1, 80, false, b"x")));
        cluster.feed(1, (0..10).map(|n| reply(1000 + n, b"y")));
        let receipt = cluster.move_all(from, 1 - from as u16);
        assert_eq!(receipt.moved, 10);
    }
    assert_eq!(cluster.flows(), [10, 0]);
    for flow in cluster.runtimes[0].flows(0, 100).0 {
        let counts: Vec<_> = flow.state[0].1.iter().map(|(_, count)| count.as_str()).collect();
        assert_eq!(counts, ["5", "5"], "{flow:?}");
    }
    assert_eq!(cluster.sent().len(), 100);
    cluster.check();
    assert_nothing_stays(&mut cluster);
}

#[test]
fn held_packets_go_with_their_flow() {
    let plan = plan(vec![factory::<Meter>()]);
    let mut cluster = cluster(1, 2, Policy::RoundRobin, &plan, 64);
    // Port 5: kept until a packet says 1.
    cluster.feed(0, [2, 3, 4].map(|n| udp(1, 1000, 1, 5, false, &[n])));
    let from = cluster.flows().iter().position(|flows| *flows == 1).unwrap();
    assert_eq!(cluster.sent().len(), 0);
    cluster.move_all(from, 1 - from as u16);
    assert_eq!(cluster.runtimes[from].stats().held, 0);
    assert_eq!(cluster.runtimes[1 - from].stats().held, 3);
    cluster.feed(0, [udp(1, 1000, 1, 5, false, &[1])]);
    assert_eq!(
        cluster.sent().iter().map(number).collect::<Vec<_>>(),
        [2, 3, 4, 1]
    );
    cluster.check();
    assert_nothing_stays(&mut cluster);
}

#[test]
fn held_copies_go_with_their_flow() {
    let plan = plan(vec![factory::<super::ends::Keeper>()]);
    let mut cluster = cluster(1, 2, Policy::RoundRobin, &plan, 64);
    cluster.feed(
        0,
        [[0, 9], [2, 1], [2, 8]].map(|n| udp(1, 1000, 1, 80, false, &n)),
    );
    let from = cluster.flows().iter().position(|flows| *flows == 1).unwrap();
    cluster.move_all(from, 1 - from as u16);
    let held = |cluster: &Cluster| [from, 1 - from].map(|runtime| cluster.runtimes[runtime].stats().held);
    assert_eq!(held(&cluster), [0, 1]);
    cluster.feed(0, [udp(1, 1000, 1, 80, false, &[3, 3])]);
    // It sees the packet and both copies.
    assert_eq!(cluster.runtimes[1 - from].stats().counters[0].count, 3);
    cluster.move_all(1 - from, from as u16);
    cluster.feed(0, [udp(1, 1000, 1, 80, false, &[3, 10])]);
    assert_eq!(cluster.runtimes[from].stats().counters[0].count, 2);
    assert_eq!(held(&cluster), [0, 0]);
    assert_eq!(
        cluster.sent().iter().map(number).collect::<Vec<_>>(),
        [1, 8, 3, 10, 9]
    );
    cluster.check();
    assert_nothing_stays(&mut cluster);
}

#[test]
fn a_full_or_leaving_runtime_refuses_and_all_goes_on() {
    let plan = plan(vec![factory::<Meter>()]);
    let mut cluster = cluster(1, 2, Policy::RoundRobin, &plan, 8);
    cluster.feed(0, (0..12).map(|n| udp(1, 1000 + n, 1, 80, false, b"x")));
    assert_eq!(cluster.flows(), [6, 6]);
    cluster.runtimes[1].set_leaving(true);
    let receipt = cluster.move_all(0, 1);
    assert_eq!((receipt.moved, receipt.refused), (0, 6));
    cluster.runtimes[1].set_leaving(false);
    let receipt = cluster.move_all(0, 1);
    assert_eq!((receipt.moved, receipt.refused), (2, 4));
    assert_eq!(cluster.flows(), [4, 8]);
    cluster.feed(0, (0..12).map(|n| udp(1, 1000 + n, 1, 80, false, b"x")));
    assert_eq!(cluster.sent().len(), 24);
    cluster.check();
    assert_nothing_stays(&mut cluster);
}

/// The target's refusal and the source's word that it is too late cross each other.
#[test]
fn what_is_refused_and_called_off_at_once_is_over() {
    let plan = plan(vec![factory::<Meter>()]);
    let mut cluster = cluster(1, 2, Policy::RoundRobin, &plan, 8);
    cluster.feed(0, (0..4).map(|n| udp(1, 1000 + n, 1, 80, false, b"x")));
    cluster.runtimes[1].set_leaving(true);
    cluster.runtimes[0].set_move_timeout(1000);
    let order = MoveOrder {
        selector: Selector::All,
        to: vec![1],
    };
    let number = cluster.runtimes[0].order(order).unwrap();
    for _ in 0..200 {
        cluster.now += 1000;
        cluster.runtimes[0].step(cluster.now);
    }
    cluster.run_until_quiet();
    let receipt = cluster.runtimes[0].receipt(number).unwrap();
    assert!(receipt.is_over && receipt.under_way == 0, "{receipt:?}");
    assert_eq!((receipt.moved, receipt.failed), (0, 2));
    cluster.feed(0, (0..4).map(|n| udp(1, 1000 + n, 1, 80, false, b"x")));
    assert_eq!(cluster.sent().len(), 8);
    cluster.check();
    assert_nothing_stays(&mut cluster);
}

#[test]
fn one_word_is_enough_for_all_that_was_kept() {
    let plan = plan(vec![factory::<Hosts>(), factory::<Meter>()]);
    let mut cluster = cluster(1, 2, Policy::RoundRobin, &plan, 512);
    cluster.feed(0, [udp(1, 1000, 1, 80, false, b"x")]);
    let from = cluster.flows().iter().position(|flows| *flows == 1).unwrap();
    let to = 1 - from;
    let order = MoveOrder {
        selector: Selector::All,
        to: vec![to as u16],
    };
    let number = cluster.runtimes[from].order(order).unwrap();
    cluster.runtimes[from].step(cluster.now);
    // Flows that begin while their group is on its way: kept, and handed over. The source has fewer
    // buffers than a word for each needs.
    let kept: u16 = 300;
    assert!(cluster.runtimes[from].pool().total() < usize::from(kept));
    let input = &mut cluster.switches[0].port_mut(0).input;
    input.extend((0..kept).map(|n| udp(1, 2000 + n, 1, 80, false, b"x")));
    for _ in 0..20 {
        cluster.switches[0].step(cluster.now);
        cluster.runtimes[from].step(cluster.now);
    }
    assert_eq!(cluster.runtimes[from].stats().held, u64::from(kept));
    let mut waited = 0;
    for _ in 0..20 {
        cluster.now += 1000;
        cluster.runtimes[to].step(cluster.now);
        cluster.switches[0].step(cluster.now);
        cluster.runtimes[from].step(cluster.now);
        waited = waited.max(cluster.runtimes[from].words_unsaid());
    }
    assert_eq!(waited, 0, "words waited for buffers");
    cluster.run_until_quiet();
    assert_eq!(cluster.runtimes[from].words_unsaid(), 0);
    let receipt = cluster.runtimes[from].receipt(number).unwrap();
    assert!(receipt.is_over, "{receipt:?}");
    assert_eq!((receipt.moved, receipt.handed_on), (1, u64::from(kept)));
    assert_eq!(cluster.flows()[to], u64::from(kept) + 1);
    // All left, in the order in which they came.
    let mut spare = pool(1, 99);
    let ports: Vec<u16> = cluster
        .sent()
        .iter()
        .map(|sent| parsed(&mut spare, sent, |packet| packet.source_port()))
        .collect();
    let expected: Vec<u16> = [1000].into_iter().chain(2000..2000 + kept).collect();
    assert_eq!(ports, expected);
    cluster.check();
    // Home but for the few that functions have in hand to emit.
    for runtime in &cluster.runtimes {
        let out = runtime.pool().total() - runtime.pool().free();
        assert!(out <= nf::cx::EMITTED_MAX, "{out} buffers are not home");
    }
    cluster.now += 400 * SECOND;
    cluster.run_until_quiet();
    assert_eq!((cluster.flows(), cluster.routes()), (vec![0, 0], 0));
}

/// A group with so many reply keys that neither the words to the other runtime nor those to
/// switches fit into the buffers there are.
#[test]
#[cfg_attr(miri, ignore = "so many flows take it an hour")]
fn words_wait_for_buffers_and_none_is_lost() {
    let plan = plan(vec![
        factory::<Hosts>(),
        factory::<Meter>(),
        factory::<Masquerade>(),
    ]);
    let mut cluster = cluster_with_buffers(2, 2, &plan, 4096, 150);
    let count: u16 = 2100;
    let there =
        |cluster: &mut Cluster| cluster.feed(0, (0..count).map(|n| udp(1, 1000 + n, 1, 80, false, b"x")));
    let back = |cluster: &mut Cluster| cluster.feed(1, (0..count).map(|n| reply(1000 + n, b"y")));
    there(&mut cluster);
    back(&mut cluster);
    let from = cluster.flows().iter().position(|flows| *flows > 0).unwrap();
    let to = 1 - from;
    assert_eq!(cluster.flows()[from], u64::from(count));
    assert_eq!(cluster.routes(), 1 + 2 * u64::from(count));
    for (from, to) in [(from, to), (to, from)] {
        assert!(cluster.runtimes[from].pool().total() < 200);
        let order = MoveOrder {
            selector: Selector::All,
            to: vec![to as u16],
        };
        let number = cluster.runtimes[from].order(order).unwrap();
        let (mut unsaid, mut untold) = (0, 0);
        for _ in 0..400 {
            cluster.now += 1000;
            for runtime in &mut cluster.runtimes {
                runtime.step(cluster.now);
                unsaid = unsaid.max(runtime.words_unsaid());
                untold = untold.max(runtime.key_messages_unsent());
            }
            for switch in &mut cluster.switches {
                switch.step(cluster.now);
            }
        }
        assert!(
            unsaid > 50 && untold > 0,
            "buffers were never short: {unsaid}, {untold}"
        );
        cluster.run_until_quiet();
        let receipt = cluster.runtimes[from].receipt(number).unwrap();
        assert_eq!(
            (receipt.is_over, receipt.moved),
            (true, u64::from(count)),
            "{receipt:?}"
        );
        // By both keys, through both switches.
        let before = cluster.sent().len();
        there(&mut cluster);
        back(&mut cluster);
        assert_eq!(cluster.sent().len(), before + 2 * usize::from(count));
        assert_eq!(cluster.flows()[to], u64::from(count));
    }
    cluster.check();
    // Its function keeps the block for ever.
    cluster.now += 400 * SECOND;
    cluster.run_until_quiet();
    assert_eq!((cluster.flows(), cluster.routes()), (vec![0, 0], 0));
}

/// A word about a group stands between the pieces of another's state, where that waits for buffers.
#[test]
fn a_word_about_another_group_does_not_end_a_state() {
    let plan = plan(vec![factory::<Hosts>(), factory::<Meter>()]);
    let mut cluster = cluster_with_buffers(1, 2, &plan, 1024, 100);
    let count: u16 = 400;
    let feed = |cluster: &mut Cluster| {
        cluster.feed(0, (0..count).map(|n| udp(1, 1000 + n, 1, 80, false, b"x")));
        cluster.feed(0, [2, 3].map(|host| udp(host, 1000, 1, 80, false, b"x")));
    };
    feed(&mut cluster);
    let from = (0..2).find(|index| cluster.flows()[*index] > u64::from(count));
    let from = from.expect("of three hosts one is where the first is");
    let order = |selector| MoveOrder {
        selector,
        to: vec![1 - from as u16],
    };
    let first = Selector::Ends("10.0.0.1/32".parse().unwrap());
    // Until a part of the first one's state has been sent, as far as there are buffers; then until
    // the other has begun.
    let is_enough: [fn(&Receipt) -> bool; 2] = [|first| first.bytes > 0, |other| other.under_way > 0];
    let numbers = [(first, is_enough[0]), (Selector::All, is_enough[1])].map(|(selector, is_enough)| {
        let number = cluster.runtimes[from].order(order(selector)).unwrap();
        for _ in 0..100 {
            if is_enough(&cluster.runtimes[from].receipt(number).unwrap()) {
                break;
            }
            cluster.now += 1000;
            cluster.switches[0].step(cluster.now);
            cluster.runtimes[1 - from].step(cluster.now);
            cluster.runtimes[from].step(cluster.now);
        }
        number
    });
    let receipts = numbers.map(|number| cluster.runtimes[from].receipt(number).unwrap());
    assert!(
        receipts.iter().all(|receipt| receipt.under_way == 1),
        "{receipts:?}"
    );
    cluster.run_until_quiet();
    let receipts = numbers.map(|number| cluster.runtimes[from].receipt(number).unwrap());
    let moved = receipts
        .each_ref()
        .map(|receipt| (receipt.is_over, receipt.moved));
    assert_eq!(moved, [(true, u64::from(count)), (true, 1)], "{receipts:?}");
    assert_eq!(cluster.runtimes[1 - from].stats().flows_refused, 0);
    assert_eq!(cluster.flows()[1 - from], u64::from(count) + 2);
    feed(&mut cluster);
    cluster.check();
    assert_nothing_stays(&mut cluster);
}

/// The end that dies while its groups are on their way; or both live, and have lost sight of each
/// other.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Dead {
    Source,
    Target,
    Neither,
}

/// A move that loses its other end behind so many single steps.
fn lose_after(steps: usize, dead: Dead, plan: &Plan) {
    let mut cluster = cluster(2, 2, Policy::RoundRobin, plan, 64);
    let to_first: Vec<u16> = (0..40)
        .map(|n| 1000 + n)
        .filter(|port| {
            let before = cluster.flows()[0];
            cluster.feed(0, [udp((port % 10) as u8, *port, 1, 80, false, b"x")]);
            cluster.flows()[0] > before
        })
        .collect();
    let [source, target] = [0, 1];
    let count = cluster.flows()[source];
    assert_eq!(count, to_first.len() as u64);
    assert!(count > 3);
    // Only those of the source are of interest.
    let packets = |cluster: &mut Cluster| {
        let ports = to_first.iter();
        let packets = ports.map(|port| udp((port % 10) as u8, *port, 1, 80, false, b"x"));
        cluster.switches[0].port_mut(0).input.extend(packets);
    };
    let order = MoveOrder {
        selector: Selector::All,
        to: vec![target as u16],
    };
    let number = cluster.runtimes[source].order(order).unwrap();
    for step in 0..steps {
        cluster.now += 1000;
        match step % 5 {
            0 => {
                cluster.runtimes[source].step(cluster.now);
            }
            1 => packets(&mut cluster),
            2 => {
                cluster.switches[0].step(cluster.now);
            }
            3 => {
                cluster.runtimes[target].step(cluster.now);
            }
            _ => {
                cluster.switches[1].step(cluster.now);
            }
        }
    }
    cluster.lose_sessions(if dead == Dead::Neither { 2 } else { 0 });
    let flows_at = |cluster: &Cluster, runtime: usize| cluster.runtimes[runtime].flows(0, 100).0;
    if dead == Dead::Neither {
        cluster.runtimes[source].peer_gone(target as u16);
        cluster.runtimes[target].peer_gone(source as u16);
        cluster.run_until_quiet();
    } else {
        let living = if dead == Dead::Target { source } else { target };
        let other = 1 - living;
        cluster.runtimes[living].peer_gone(other as u16);
        for step in 0..200 {
            // A source says for seconds what switches do not answer that have the target.
            cluster.now += if step < 100 { 1000 } else { SECOND / 20 };
            cluster.switches.iter_mut().for_each(|switch| {
                switch.step(cluster.now);
            });
            cluster.runtimes[living].step(cluster.now);
        }
        assert!(
            cluster.runtimes[living].moves_left().is_empty(),
            "{dead:?} after {steps}"
        );
        if dead == Dead::Target {
            // Flows that had not left are here, and go on here.
            let receipt = cluster.runtimes[source].receipt(number).unwrap();
            assert!(receipt.is_over, "{receipt:?}");
            assert_eq!(receipt.moved + receipt.failed, count, "{receipt:?} after {steps}");
            // Flows that the target had announced stay there: the switches know them still.
            let here = cluster.flows()[source];
            assert!(here <= receipt.failed, "{here}, {receipt:?} after {steps}");
            assert!(here + cluster.flows()[target] >= count, "{here} after {steps}");
            let before = cluster.runtimes[source].stats().passed;
            packets(&mut cluster);
            for _ in 0..20 {
                cluster.now += 1000;
                cluster.switches.iter_mut().for_each(|switch| {
                    switch.step(cluster.now);
                });
                cluster.runtimes[living].step(cluster.now);
            }
            if here == count {
                assert_eq!(
                    cluster.runtimes[source].stats().passed,
                    before + count,
                    "after {steps}"
                );
            }
        }
        // It was not dead after all.
        cluster.lose_sessions(3);
        cluster.runtimes[living].peer_gone(other as u16);
        cluster.runtimes[other].peer_gone(living as u16);
        cluster.run_until_quiet();
    }
    // A source waits for so long that a switch sees whether the target is there.
    for _ in 0..12 {
        cluster.now += SECOND / 2;
        cluster.run_until_quiet();
    }
    for runtime in &cluster.runtimes {
        assert!(runtime.moves_left().is_empty(), "{dead:?} after {steps}");
        assert_conserved(runtime);
        assert_eq!(runtime.stats().held, 0);
    }
    let mut keys = HashSet::new();
    for runtime in 0..2 {
        for flow in flows_at(&cluster, runtime) {
            assert!(
                keys.insert(flow.key),
                "{} is at two runtimes: {dead:?} after {steps}",
                flow.key
            );
        }
    }
    // A runtime that comes back from the dead has flows that others have begun again meanwhile;
    // when those are over, nothing of that is left.
    for is_over in [false, true] {
        let before = cluster.sent().len();
        packets(&mut cluster);
        cluster.run_until_quiet();
        if is_over || dead != Dead::Source {
            assert_eq!(
                cluster.sent().len(),
                before + to_first.len(),
                "{dead:?} after {steps}"
            );
        }
        cluster.now += 400 * SECOND;
        cluster.run_until_quiet();
        assert_eq!(
            (cluster.flows(), cluster.routes()),
            (vec![0, 0], 0),
            "{dead:?} after {steps}"
        );
    }
}

#[test]
fn a_move_whose_other_end_is_gone_ends() {
    let plans = [
        plan(vec![factory::<Meter>(), factory::<Masquerade>()]),
        plan(vec![factory::<Hosts>(), factory::<Meter>()]),
    ];
    for plan in &plans {
        for dead in [Dead::Source, Dead::Target, Dead::Neither] {
            let each = if cfg!(miri) { 7 } else { 1 };
            for steps in (0..60).step_by(each) {
                lose_after(steps, dead, plan);
            }
        }
    }
}

proptest! {
    /// Random traffic in both directions, random orders, random time, random order of steps: every
    /// packet leaves, once, in its order, on a state that has seen all before it; a flow is never
    /// at two runtimes, and no route stays.
    #[test]
    fn flows_that_move_lose_nothing(
        events in proptest::collection::vec((0u8..5, 0u8..4, 0u8..2, 0u8..9, 0u64..2), 1..200),
        late in any::<bool>(),
    ) {
        let plan = plan(vec![factory::<Meter>(), factory::<Masquerade>()]);
        let mut cluster = cluster(2, 3, Policy::RoundRobin, &plan, 64);
        // So short that moves are called back again and again.
        if late {
            cluster.runtimes.iter_mut().for_each(|runtime| runtime.set_move_timeout(0));
        }
        let (mut out, mut back): (HashMap<u16, u8>, HashMap<u16, u8>) = Default::default();
        let mut now = 0;
        for (what, flow, input, order, pass) in events {
            let port = 1000 + u16::from(flow);
            if input > 0 {
                let n = out.entry(port).or_default();
                *n += 1;
                cluster.switches[0].port_mut(0).input.push_back(udp(1, port, 1, 80, false, &[*n]));
                // Replies come to flows of which something has left.
                let has_left = |sent: &Sent| parsed(&mut pool(1, 98), sent, |packet| packet.source_port()) == port + 1000;
                if cluster.switches[1].port_mut(0).output.iter().any(has_left) {
                    let n = back.entry(port).or_default();
                    *n += 1;
                    cluster.switches[1].port_mut(0).input.push_back(reply(port, &[*n]));
                }
            }
            if order < 3 {
                let to = vec![(u16::from(order) + 1) % 3];
                cluster.runtimes[usize::from(order)].order(MoveOrder { selector: Selector::All, to }).unwrap();
            }
            now += pass * SECOND / 100;
            match what {
                0 => { cluster.switches[0].step(now); }
                1 => { cluster.switches[1].step(now); }
                other => { cluster.runtimes[usize::from(other) - 2].step(now); }
            }
            let mut keys = HashSet::new();
            for runtime in &cluster.runtimes {
                for flow in runtime.flows(0, 100).0 {
                    prop_assert!(keys.insert(flow.key), "{} is at two runtimes", flow.key);
                }
            }
        }
        cluster.now = now;
        cluster.run_until_quiet();
        cluster.check();
        let mut spare = pool(1, 99);
        let mut seen: HashMap<(Side, u16), u8> = HashMap::new();
        for sent in cluster.sent() {
            let port = parsed(&mut spare, &sent, |packet| match sent.0 {
                Side::Outside => packet.source_port() - 1000,
                Side::Inside => packet.destination_port(),
            });
            let last = seen.entry((sent.0, port)).or_default();
            // A reply may come before its flow's first packet has made it known, and is then
            // another flow's, which goes out unchanged.
            if (1000..1004).contains(&port) {
                prop_assert!(number(&sent) > *last, "{sent:?} leaves behind {last}");
                *last = number(&sent);
            }
        }
        for (port, count) in &out {
            prop_assert_eq!(seen.get(&(Side::Outside, *port)), Some(count), "of {}", port);
        }
        let dropped: u64 = cluster.runtimes.iter().flat_map(|r| r.stats().dropped).map(|d| d.count).sum();
        prop_assert_eq!(dropped, 0);
        for runtime in &cluster.runtimes {
            prop_assert_eq!(runtime.stats().held, 0);
        }
        assert_nothing_stays(&mut cluster);
    }

    /// The same with groups of every kind of traffic, and blocks of ports.
    #[test]
    fn groups_that_move_stay_at_one_runtime(
        events in proptest::collection::vec((0u8..5, 0u8..2, 0u64..8, 0u8..12, proptest::collection::vec(packets(), 0..3)), 1..150),
        late in any::<bool>(),
    ) {
        let plan = plan(vec![factory::<Leaser>(), factory::<Service>()]);
        let mut cluster = cluster(2, 3, Policy::RoundRobin, &plan, 64);
        if late {
            cluster.runtimes.iter_mut().for_each(|runtime| runtime.set_move_timeout(0));
        }
        let mut now = 0;
        for (what, switch, pass, order, packets) in events {
            cluster.switches[usize::from(switch)].port_mut(0).input.extend(packets);
            if order < 3 {
                let to = vec![(u16::from(order) + 1) % 3];
                cluster.runtimes[usize::from(order)].order(MoveOrder { selector: Selector::All, to }).unwrap();
            }
            now += pass * SECOND / 4;
            match what {
                0 => { cluster.switches[0].step(now); }
                1 => { cluster.switches[1].step(now); }
                other => { cluster.runtimes[usize::from(other) - 2].step(now); }
            }
            let (mut groups, mut keys) = (HashSet::new(), HashSet::new());
            for runtime in &cluster.runtimes {
                for group in runtime.group_keys() {
                    prop_assert!(groups.insert(group), "{group:?} is at two runtimes");
                }
                for flow in runtime.flows(0, 100).0 {
                    let once = keys.insert(flow.key) || !has_an_inside_end(&flow.key);
                    prop_assert!(once, "{} is at two runtimes", flow.key);
                }
            }
        }
        cluster.now = now;
        cluster.run_until_quiet();
        assert_nothing_stays(&mut cluster);
    }
}

/// Much per flow.
#[derive(FlowState, Default, Clone, Copy, Debug)]
#[repr(C)]
struct Hoard {
    words: [u64; 32],
}

/// Keeps much of each flow, and says whether it is all there.
struct Hoarder;

#[network_function]
impl NetworkFunction for Hoarder {
    const NAME: &'static str = "hoarder";
    const AFFINITY: Affinity = Affinity::Flow;
    const REASONS: &'static [&'static str] = &["lost"];
    type Config = NoConfig;
    type Flow = Hoard;
    type Group = Hoard;

    fn new(_: &std::sync::Arc<NoConfig>, _: &WorkerInfo) -> Result<Self, ConfigError> {
        Ok(Hoarder)
    }

    fn process(&self, _: &mut Packet, flow: &mut Hoard, cx: &mut Cx<Self>) -> Verdict {
        let count = flow.words[0] + 1;
        let group = cx.group();
        if flow.words[1..] != [count - 1; 31] || group.words != [count - 1; 32] {
            return cx.drop("lost");
        }
        group.words = [count; 32];
        flow.words = [count; 32];
        Verdict::Forward
    }
}

#[test]
fn a_flow_that_moves_carries_the_state_of_its_own_chain() {
    let chain = |name: &str, port: Option<u16>, functions: &[&str]| ChainRule {
        name: name.to_string(),
        matching: Match {
            destination_port: port.map(|port| port..=port).into_iter().collect(),
            ..Match::default()
        },
        functions: functions.iter().map(|name| name.to_string()).collect(),
        replication: None,
    };
    let (meter, hoarder) = (factory::<Meter>(), factory::<Hoarder>());
    let small = chain("small", Some(80), &[meter.name()]);
    let large = chain("large", None, &[meter.name(), hoarder.name()]);
    let plan = Plan::new(vec![small, large], vec![meter, hoarder]).unwrap();
    let mut bytes = Vec::new();
    for port in [80, 90] {
        let mut cluster = cluster(1, 2, Policy::RoundRobin, &plan, 64);
        let packets = || (0..20).map(|n| udp(1, 1000 + n, 1, port, false, b"x"));
        cluster.feed(0, packets());
        let receipt = cluster.move_all(0, 1);
        assert_eq!(receipt.moved, 10, "{receipt:?}");
        bytes.push(receipt.bytes / 10);
        cluster.feed(0, packets());
        let back = cluster.move_all(1, 0);
        assert_eq!(back.moved, 20, "{back:?}");
        cluster.feed(0, packets());
        assert_eq!(cluster.sent().len(), 60);
        cluster.check();
    }
    // All have the group's state, of flows that are by themselves.
    let [small, large] = bytes[..] else {
        panic!("{bytes:?}")
    };
    assert_eq!(large - small, size_of::<Hoard>() as u64, "{bytes:?}");
}
