//! Flows that cannot be served, flows that end while packets of theirs are let go, and in which
//! order what one call lets go leaves.

use super::spread::cluster;
use super::*;
use crate::switch::Policy;
use nf::{Cx, Direction, Endpoint, FlowState, Packet, Verdict, Way, WorkerInfo, network_function};
use std::sync::Arc;
use std::time::Duration;
use std::vec;

const SECOND: u64 = 1_000_000_000;

/// One server for all services: packets for port 80 go there, and its answers have the service's
/// name.
struct OneServer;

#[derive(FlowState, Default, Clone, Copy, Debug)]
#[repr(C)]
struct Asked {
    service: [u8; 4],
}

const SERVER: [u8; 4] = [192, 0, 2, 200];

#[network_function]
impl NetworkFunction for OneServer {
    const NAME: &'static str = "one_server";
    const COUNTERS: &'static [&'static str] = &["begun", "ended"];
    type Config = NoConfig;
    type Flow = Asked;
    type Group = ();
    fn new(_: &Arc<NoConfig>, _: &WorkerInfo) -> Result<Self, ConfigError> {
        Ok(OneServer)
    }
    fn process(&self, packet: &mut Packet, flow: &mut Asked, cx: &mut Cx<Self>) -> Verdict {
        if flow.service == [0; 4] {
            flow.service = *packet.destination_addr().octets().last_chunk().unwrap();
            cx.count("begun");
        }
        match cx.direction() {
            Direction::Opening => packet.set_destination(Endpoint::new(nf::Addr::v4(SERVER), 80)),
            Direction::Reply => packet.set_source(Endpoint::new(nf::Addr::v4(flow.service), 80)),
        };
        Verdict::Forward
    }
    fn departed(&self, _: &Asked, _: nf::Departure, cx: &mut Cx<Self>) {
        cx.count("ended");
    }
    fn timeout(&self, _: &Asked) -> Option<Duration> {
        Some(Duration::from_secs(10))
    }
}

fn dropped(stats: Vec<crate::stats::Named>, name: &str) -> u64 {
    stats.iter().filter(|d| d.name == name).map(|d| d.count).sum()
}

fn addresses(sent: &Sent) -> ([u8; 4], [u8; 4]) {
    let at = |at: usize| *sent.1[at..].first_chunk().unwrap();
    (at(12), at(16))
}

#[test]
fn a_flow_whose_replies_would_be_anothers_is_refused() {
    // In one burst, and one after the other.
    for at_once in [true, false] {
        let mut runtime = alone(Settings::alone(8), vec![factory::<OneServer>()]);
        let feed = |runtime: &mut Runtime<QueuePort>, packets: Vec<Sent>, now| {
            runtime.links_mut()[0].input.extend(packets);
            runtime.step(now);
            assert_conserved(runtime);
            core::mem::take(&mut runtime.links_mut()[0].output)
        };
        let (first, second) = (udp(1, 1000, 1, 80, false, b""), udp(1, 1000, 2, 80, false, b""));
        let sent = if at_once {
            feed(&mut runtime, vec![first, second.clone(), second.clone()], SECOND)
        } else {
            let mut sent = feed(&mut runtime, vec![first], SECOND);
            sent.extend(feed(&mut runtime, vec![second.clone()], SECOND));
            sent.extend(feed(&mut runtime, vec![second.clone()], SECOND));
            sent
        };
        assert_eq!(sent.len(), 1, "{at_once}");
        let stats = runtime.stats();
        assert_eq!((stats.flows, dropped(stats.dropped, "reply_key_taken")), (1, 2));
        assert_eq!(
            stats.counters[0].count,
            stats.counters[1].count + 1,
            "what began has ended, but one"
        );
        let answers = feed(&mut runtime, vec![udp(1, 1000, 200, 80, true, b"")], SECOND);
        assert_eq!(addresses(&answers[0]), ([192, 0, 2, 1], [10, 0, 0, 1]));
        // With the first over, the second may begin.
        let sent = feed(&mut runtime, vec![second], 20 * SECOND);
        assert_eq!(sent.len(), 1);
        let answers = feed(&mut runtime, vec![udp(1, 1000, 200, 80, true, b"")], 20 * SECOND);
        assert_eq!(addresses(&answers[0]), ([192, 0, 2, 2], [10, 0, 0, 1]));
    }
}

#[test]
fn a_flow_whose_replies_are_anothers_at_another_runtime_is_refused() {
    let plan = plan(vec![factory::<OneServer>()]);
    let mut cluster = cluster(1, 4, Policy::RoundRobin, &plan, 64);
    // Four services, each flow at a runtime of its own.
    for _ in 0..3 {
        for service in 1..=4 {
            cluster.feed(0, [udp(1, 1000, service, 80, false, b"")]);
        }
    }
    let flows: u64 = cluster.runtimes.iter().map(|r| r.stats().flows).sum();
    assert_eq!(flows, 1);
    let sent = cluster.sent();
    assert!(sent.len() == 3, "the first service's: {}", sent.len());
    let refused: u64 = cluster
        .runtimes
        .iter()
        .map(|r| dropped(r.stats().dropped, "reply_key_taken"))
        .sum();
    let elsewhere = dropped(cluster.switches[0].stats().dropped, "reply_key_taken");
    assert_eq!(refused + elsewhere, 9);
    assert!(elsewhere > 2);
    cluster.feed(0, [udp(1, 1000, 200, 80, true, b"")]);
    assert_eq!(addresses(&cluster.sent()[3]), ([192, 0, 2, 1], [10, 0, 0, 1]));
    cluster.check();
    cluster.now += 400 * SECOND;
    cluster.run_until_quiet();
    assert_eq!(cluster.routes(), 0);
    // Nothing is held against the others.
    cluster.feed(0, [udp(1, 1000, 2, 80, false, b"")]);
    assert_eq!(cluster.sent().len(), 5);
}

/// Holds packets; with one whose payload is 1 emits one each way, lets those held go, and ends the
/// flow if there is a second byte.
struct Holder;

#[network_function]
impl NetworkFunction for Holder {
    const NAME: &'static str = "holder";
    type Config = NoConfig;
    type Flow = ();
    type Group = ();
    fn new(_: &Arc<NoConfig>, _: &WorkerInfo) -> Result<Self, ConfigError> {
        Ok(Holder)
    }
    fn process(&self, packet: &mut Packet, _: &mut (), cx: &mut Cx<Self>) -> Verdict {
        let [what, _] = *packet.payload().first_chunk::<2>().unwrap();
        if what != 1 {
            return Verdict::Consume;
        }
        for (way, number) in [(Way::Onward, 101), (Way::Back, 102), (Way::Onward, 103)] {
            let (_, frame) = udp(1, 1000, 1, 80, way == Way::Back, &[1, number]);
            assert!(cx.emit(way, |p| p.set_frame(&frame, LinkType::Raw)));
        }
        cx.release();
        Verdict::Forward
    }
}

/// Ends the flow behind a packet whose payload ends with 7.
struct Ender;

#[network_function]
impl NetworkFunction for Ender {
    const NAME: &'static str = "ender";
    type Config = NoConfig;
    type Flow = ();
    type Group = ();
    fn new(_: &Arc<NoConfig>, _: &WorkerInfo) -> Result<Self, ConfigError> {
        Ok(Ender)
    }
    fn process(&self, packet: &mut Packet, _: &mut (), cx: &mut Cx<Self>) -> Verdict {
        if packet.payload().last() == Some(&7) {
            cx.end_flow();
        }
        Verdict::Forward
    }
}

fn numbers(runtime: &mut Runtime<QueuePort>) -> Vec<(Side, u8)> {
    let sent = core::mem::take(&mut runtime.links_mut()[0].output);
    sent.iter().map(|sent| (sent.0, number(sent))).collect()
}

#[test]
fn what_was_held_leaves_first_then_the_packet_at_hand_then_what_was_emitted() {
    let mut runtime = alone(Settings::alone(8), vec![factory::<Holder>(), factory::<Ender>()]);
    // The first time the flow is not settled yet.
    for packets in [&[[0, 1], [0, 2], [0, 3], [1, 4]][..], &[[0, 5], [1, 6]]] {
        let packets = packets.iter().map(|payload| udp(1, 1000, 1, 80, false, payload));
        runtime.links_mut()[0].input.extend(packets);
        runtime.step(SECOND);
        assert_conserved(&runtime);
    }
    let emitted = [(Side::Outside, 101), (Side::Inside, 102), (Side::Outside, 103)];
    let out = |numbers: &[u8]| numbers.iter().map(|n| (Side::Outside, *n)).collect::<Vec<_>>();
    let expected = [
        out(&[1, 2, 3, 4]),
        emitted.to_vec(),
        out(&[5, 6]),
        emitted.to_vec(),
    ]
    .concat();
    assert_eq!(numbers(&mut runtime), expected);
}

#[test]
fn a_flow_that_a_released_packet_ends_takes_the_packet_at_hand_with_it() {
    let mut runtime = alone(Settings::alone(8), vec![factory::<Holder>(), factory::<Ender>()]);
    let packets = [[0, 1], [0, 7], [0, 3], [1, 4]];
    runtime.links_mut()[0]
        .input
        .extend(packets.iter().map(|payload| udp(1, 1000, 1, 80, false, payload)));
    runtime.step(SECOND);
    assert_conserved(&runtime);
    let left: Vec<u8> = numbers(&mut runtime)
        .into_iter()
        .map(|(_, number)| number)
        .collect();
    assert_eq!(left, [1, 7, 101, 102, 103]);
    let stats = runtime.stats();
    assert_eq!((stats.flows, stats.held), (0, 0));
    // The third that was held, and the one at hand.
    assert_eq!(dropped(stats.dropped, "held_at_end"), 2);
    // The place is in order for the next flow.
    runtime.links_mut()[0]
        .input
        .push_back(udp(2, 1, 1, 80, false, &[1, 9]));
    runtime.step(2 * SECOND);
    assert_eq!((runtime.stats().flows, numbers(&mut runtime).len()), (1, 4));
}

#[test]
fn the_bound_on_held_packets_holds() {
    let settings = Settings {
        held_max: 3,
        ..Settings::alone(8)
    };
    let mut runtime = alone(settings, vec![factory::<Holder>(), factory::<Ender>()]);
    let held = (0..5).map(|n| udp(1, 1000, 1, 80, false, &[0, 10 + n]));
    runtime.links_mut()[0].input.extend(held);
    runtime.step(SECOND);
    assert_conserved(&runtime);
    let stats = runtime.stats();
    assert_eq!((stats.held, dropped(stats.dropped, "held_full")), (3, 2));
    // A flow that ends makes room.
    runtime.links_mut()[0].input.extend([
        udp(1, 1000, 1, 80, false, &[1, 4]),
        udp(1, 1000, 1, 80, false, &[0, 20]),
    ]);
    runtime.step(2 * SECOND);
    assert_conserved(&runtime);
    assert_eq!(runtime.stats().held, 1);
}

/// Holds what begins with 0; of what begins with 2 a copy; 3 lets those go whose number is below
/// its own, and says how many it sees; 4 discards.
pub struct Keeper;

#[network_function]
impl NetworkFunction for Keeper {
    const NAME: &'static str = "keeper";
    const COUNTERS: &'static [&'static str] = &["seen", "full"];
    const REASONS: &'static [&'static str] = &["unwanted"];
    type Config = NoConfig;
    type Flow = ();
    type Group = ();
    fn new(_: &Arc<NoConfig>, _: &WorkerInfo) -> Result<Self, ConfigError> {
        Ok(Keeper)
    }
    fn process(&self, packet: &mut Packet, _: &mut (), cx: &mut Cx<Self>) -> Verdict {
        let [what, number] = *packet.payload().first_chunk::<2>().unwrap();
        assert_eq!(cx.held().count(), cx.held_count());
        match what {
            0 => return Verdict::Consume,
            2 if !cx.hold_copy(packet) => cx.count("full"),
            3 => {
                cx.count_by("seen", cx.held_count() as u64);
                cx.release_some(|held| held.payload()[1] < number);
            }
            4 => cx.discard("unwanted"),
            _ => {}
        }
        Verdict::Forward
    }
}

fn keep(runtime: &mut Runtime<QueuePort>, packets: &[(bool, [u8; 2])]) -> Vec<u8> {
    let packets = packets.iter().map(|(reply, payload)| match reply {
        true => udp(1, 1000, 1, 80, true, payload),
        false => udp(1, 1000, 1, 80, false, payload),
    });
    runtime.links_mut()[0].input.extend(packets);
    runtime.step(SECOND);
    assert_conserved(runtime);
    numbers(runtime).into_iter().map(|(_, number)| number).collect()
}

#[test]
fn some_of_what_is_held_leaves_behind_the_packet_at_hand_and_copies_never() {
    let mut runtime = alone(Settings::alone(8), vec![factory::<Keeper>(), factory::<Ender>()]);
    let there = |payloads: &[[u8; 2]]| {
        payloads
            .iter()
            .map(|payload| (false, *payload))
            .collect::<Vec<_>>()
    };
    // The first time the flow is not settled yet.
    assert_eq!(
        keep(&mut runtime, &there(&[[0, 30], [0, 10], [2, 11], [0, 12]])),
        [11]
    );
    assert_eq!(runtime.stats().held, 3, "a copy is no packet");
    assert_eq!(keep(&mut runtime, &there(&[[3, 20]])), [20, 10, 12]);
    assert_eq!(keep(&mut runtime, &there(&[[2, 21], [3, 22]])), [21, 22]);
    let seen = |runtime: &Runtime<QueuePort>| runtime.stats().counters[0].count;
    assert_eq!(seen(&runtime), 4 + 2);
    assert_eq!(keep(&mut runtime, &there(&[[3, 40], [3, 50]])), [40, 30, 50]);
    assert_eq!((seen(&runtime), runtime.stats().held), (7, 0));
    // Each direction has its own; to discard is for both, and for copies nothing is counted.
    assert_eq!(
        keep(&mut runtime, &[(false, [0, 1]), (true, [0, 2]), (true, [2, 3])]),
        [3]
    );
    assert_eq!(keep(&mut runtime, &[(true, [3, 2]), (false, [4, 9])]), [2, 9]);
    assert_eq!((seen(&runtime), runtime.stats().held), (9, 0));
    assert_eq!(dropped(runtime.stats().dropped, "unwanted"), 2);
    // A packet that is let go ends the flow: the others, and copies, go with it.
    assert_eq!(
        keep(&mut runtime, &there(&[[0, 7], [0, 8], [2, 5], [3, 9]])),
        [5, 9, 7]
    );
    let stats = runtime.stats();
    assert_eq!(
        (stats.flows, stats.held, dropped(stats.dropped, "held_at_end")),
        (0, 0, 1)
    );
    runtime.step(SECOND);
    let pool = runtime.pool();
    assert!(
        pool.total() - pool.free() <= nf::cx::EMITTED_MAX,
        "copies are home"
    );
}

#[test]
fn copies_are_bounded_and_leave_half_of_the_buffers() {
    let settings = Settings {
        held_max: 3,
        ..Settings::alone(8)
    };
    let mut runtime = alone(settings, vec![factory::<Keeper>()]);
    let full = |runtime: &Runtime<QueuePort>| runtime.stats().counters[1].count;
    let packets: Vec<_> = (0..5).map(|n| (false, [2, n])).collect();
    assert_eq!(keep(&mut runtime, &packets), [0, 1, 2, 3, 4]);
    assert_eq!(full(&runtime), 2);
    // A flow that ends makes room.
    assert_eq!(keep(&mut runtime, &[(false, [3, 1]), (false, [2, 6])]), [1, 6]);
    assert_eq!(full(&runtime), 2);
    let mut runtime = alone(Settings::alone(8), vec![factory::<Keeper>()]);
    let total = runtime.pool().total();
    for n in 0..total {
        keep(&mut runtime, &[(false, [2, n as u8])]);
    }
    assert!(full(&runtime) > 0, "of {total} buffers");
    assert!(runtime.pool().free() * 2 + 2 * nf::cx::EMITTED_MAX >= total);
}

/// Writes a long record when a flow ends.
struct Recorder;

#[network_function]
impl NetworkFunction for Recorder {
    const NAME: &'static str = "recorder";
    type Config = NoConfig;
    type Flow = ();
    type Group = ();
    fn new(_: &Arc<NoConfig>, _: &WorkerInfo) -> Result<Self, ConfigError> {
        Ok(Recorder)
    }
    fn process(&self, _: &mut Packet, _: &mut (), _: &mut Cx<Self>) -> Verdict {
        Verdict::Forward
    }
    fn departed(&self, _: &(), _: nf::Departure, cx: &mut Cx<Self>) {
        cx.event("ended", format_args!("\"text\":\"{:700}\"", ""));
    }
    fn timeout(&self, _: &()) -> Option<Duration> {
        Some(Duration::from_secs(10))
    }
}

#[test]
fn flows_wait_with_their_end_till_their_records_have_room() {
    // Room for some twenty records, of flows that all end at once: by their time, and at a stop.
    for stops in [false, true] {
        let settings = Settings {
            events_max: 16 << 10,
            ..Settings::alone(64)
        };
        let mut runtime = alone(settings, vec![factory::<Recorder>()]);
        let packets = (0..60).map(|n| udp(1, 1000 + n, 1, 80, false, b"x"));
        runtime.links_mut()[0].input.extend(packets);
        runtime.step(SECOND);
        runtime.step(SECOND);
        assert_eq!(runtime.stats().flows, 60);
        let mut records = 0;
        for turn in 0..40 {
            if stops {
                runtime.finish(64);
            } else {
                runtime.step((20 + turn) * SECOND);
            }
            let mut lines = std::string::String::new();
            runtime.take_events(&mut lines);
            assert!(
                turn > 0 || lines.lines().count() < 60,
                "all at once: nothing is shown"
            );
            records += lines.lines().count();
        }
        let stats = runtime.stats();
        assert_eq!(
            (records, stats.events_lost, stats.flows),
            (60, 0, 0),
            "stops: {stops}"
        );
    }
}

#[test]
fn a_runtime_that_has_lost_groups_is_the_least_loaded() {
    let plan = plan(vec![factory::<Recorder>()]);
    let mut cluster = cluster(1, 2, Policy::LeastLoaded, &plan, 512);
    let flow = |n: u16| udp(1, 1000 + n, 1, 443, false, b"x");
    let loads = |cluster: &super::spread::Cluster| -> Vec<u64> {
        cluster.runtimes.iter().map(|r| r.stats().flows).collect()
    };
    cluster.now = SECOND;
    cluster.feed(0, (0..20).map(flow));
    assert_eq!(loads(&cluster), [10, 10]);
    // Every second one goes on, which are those of one runtime; the others end.
    for _ in 0..4 {
        cluster.now += 5 * SECOND;
        cluster.feed(0, (0..10).map(|n| flow(2 * n)));
    }
    let mut left = loads(&cluster);
    left.sort_unstable();
    assert_eq!(left, [0, 10]);
    cluster.feed(0, (100..110).map(flow));
    assert_eq!(
        loads(&cluster),
        [10, 10],
        "new groups are for the runtime that has none"
    );
}
