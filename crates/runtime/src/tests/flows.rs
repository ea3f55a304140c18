//! Flows, chains, verdicts, expiry, bounds.

use super::*;
use nf::{Affinity, Cx, Departure, Endpoint, FlowState, Packet, Verdict, Way, WorkerInfo, network_function};
use std::sync::Arc;
use std::time::Duration;
use std::vec;

const SECOND: u64 = 1_000_000_000;

#[derive(FlowState, Default, Clone, Copy, Debug)]
#[repr(C)]
pub struct Seen {
    opening: u32,
    reply: u32,
}

/// Counts; refuses port 9; answers port 7, and at port 3 ends the flow with the answer; holds port
/// 5 until a packet whose payload is 1; ends at port 4.
pub struct Meter;

#[network_function]
impl NetworkFunction for Meter {
    const NAME: &'static str = "meter";
    const COUNTERS: &'static [&'static str] = &["packets", "ended"];
    const REASONS: &'static [&'static str] = &["port_nine"];
    type Config = NoConfig;
    type Flow = Seen;
    type Group = ();
    fn new(_: &Arc<NoConfig>, _: &WorkerInfo) -> Result<Self, ConfigError> {
        Ok(Meter)
    }
    fn process(&self, packet: &mut Packet, flow: &mut Seen, cx: &mut Cx<Self>) -> Verdict {
        cx.count("packets");
        match cx.direction() {
            nf::Direction::Opening => flow.opening += 1,
            nf::Direction::Reply => flow.reply += 1,
        }
        match packet.destination_port() {
            9 => cx.drop("port_nine"),
            7 | 3 => {
                if packet.destination_port() == 3 {
                    cx.end_flow();
                }
                let (source, destination) = (packet.source(), packet.destination());
                packet.set_source(destination);
                packet.set_destination(source);
                Verdict::Answer
            }
            6 => {
                let frame = packet.frame().to_vec();
                for way in [Way::Onward, Way::Back] {
                    assert!(cx.emit(way, |p| p.set_frame(&frame, LinkType::Raw)));
                }
                Verdict::Forward
            }
            5 if packet.payload() != [1] => Verdict::Consume,
            5 => {
                cx.release();
                Verdict::Forward
            }
            4 => {
                cx.end_flow();
                Verdict::Forward
            }
            _ => Verdict::Forward,
        }
    }
    fn departed(&self, _: &Seen, why: Departure, cx: &mut Cx<Self>) {
        if why == Departure::Expired {
            cx.count("ended");
        }
    }
    fn timeout(&self, _: &Seen) -> Option<Duration> {
        Some(Duration::from_secs(10))
    }
}

/// Rewrites the source to 203.0.113.1, port + 1000, and back.
pub struct Masquerade;

#[network_function]
impl NetworkFunction for Masquerade {
    const NAME: &'static str = "masquerade";
    type Config = NoConfig;
    type Flow = ();
    type Group = ();
    fn new(_: &Arc<NoConfig>, _: &WorkerInfo) -> Result<Self, ConfigError> {
        Ok(Masquerade)
    }
    fn process(&self, packet: &mut Packet, _: &mut (), cx: &mut Cx<Self>) -> Verdict {
        let (inside, _) = cx.opened_by();
        match cx.direction() {
            nf::Direction::Opening => {
                packet.set_source(Endpoint::new("203.0.113.1".parse().unwrap(), inside.port + 1000))
            }
            nf::Direction::Reply => packet.set_destination(inside),
        };
        Verdict::Forward
    }
}

fn meter() -> Runtime<QueuePort> {
    alone(Settings::alone(4), vec![factory::<Meter>()])
}

pub fn feed(runtime: &mut Runtime<QueuePort>, packets: impl IntoIterator<Item = (Side, Vec<u8>)>, now: u64) {
    runtime.links_mut()[0].input.extend(packets);
    while !runtime.finished() {
        runtime.step(now);
    }
    runtime.step(now);
    assert_conserved(runtime);
}

#[test]
fn both_directions_are_one_flow() {
    let mut runtime = meter();
    feed(
        &mut runtime,
        [
            udp(1, 1000, 1, 80, false, b""),
            udp(1, 1000, 1, 80, true, b""),
            udp(1, 1000, 1, 80, false, b""),
        ],
        1,
    );
    let (flows, rest) = runtime.flows(0, 10);
    assert_eq!((flows.len(), rest), (1, None));
    assert_eq!(flows[0].source.port, 1000);
    assert_eq!(
        flows[0].state[0].1,
        [("opening", "2".to_string()), ("reply", "1".to_string())]
    );
    let exits: Vec<Side> = runtime.links_mut()[0].output.iter().map(|s| s.0).collect();
    assert_eq!(exits, [Side::Outside, Side::Inside, Side::Outside]);
}

#[test]
fn a_refused_first_packet_leaves_no_flow() {
    let mut runtime = meter();
    feed(&mut runtime, [udp(1, 1000, 1, 9, false, b"")], 1);
    let stats = runtime.stats();
    assert_eq!(
        (stats.flows, stats.flows_opened, stats.flows_ended, stats.passed),
        (0, 1, 1, 0)
    );
    assert_eq!(
        stats.dropped,
        [crate::stats::Named {
            function: "meter".into(),
            name: "port_nine",
            count: 1
        }]
    );
}

#[test]
fn a_full_table_refuses_new_flows_and_serves_old_ones() {
    let mut runtime = meter();
    feed(
        &mut runtime,
        (0..100).map(|n| udp(1, 1000 + n, 1, 80, false, b"")),
        1,
    );
    assert_eq!(runtime.stats().flows, 4);
    assert_eq!(runtime.stats().dropped[0].name, "flows_full");
    assert_eq!(runtime.stats().dropped[0].count, 96);
    feed(
        &mut runtime,
        (0..4).map(|n| udp(1, 1000 + n, 1, 80, true, b"")),
        2,
    );
    assert_eq!(runtime.links_mut()[0].output.len(), 8);
}

/// Though the step looks for them behind its packets only.
#[test]
fn flows_whose_time_is_over_make_room_for_new_ones() {
    let mut runtime = meter();
    let burst = |first: u16| (0..4).map(move |n| udp(1, first + n, 1, 80, false, b""));
    feed(&mut runtime, burst(1000), SECOND);
    feed(&mut runtime, burst(2000), 12 * SECOND);
    let stats = runtime.stats();
    assert_eq!(stats.dropped, []);
    assert_eq!((stats.flows, stats.flows_opened, stats.flows_ended), (4, 8, 4));
    // And not those whose time is not.
    feed(&mut runtime, burst(3000), 13 * SECOND);
    assert_eq!(runtime.stats().dropped[0].count, 4);
}

/// A packet to port 8 wants all flows before it ended, number 3, and a flow that there cannot be.
pub struct Recaller(std::cell::RefCell<(Vec<u32>, Vec<u32>)>);

#[network_function]
impl NetworkFunction for Recaller {
    const NAME: &'static str = "recaller";
    const COUNTERS: &'static [&'static str] = &["departed"];
    type Config = NoConfig;
    type Flow = Seen;
    type Group = ();
    fn new(_: &Arc<NoConfig>, _: &WorkerInfo) -> Result<Self, ConfigError> {
        Ok(Recaller(std::cell::RefCell::default()))
    }
    fn process(&self, packet: &mut Packet, _: &mut Seen, cx: &mut Cx<Self>) -> Verdict {
        let (flows, wanted) = &mut *self.0.borrow_mut();
        if packet.destination_port() == 8 {
            *wanted = flows.split_off(0);
            wanted.extend([u32::MAX, 3]);
            cx.recall();
        } else {
            flows.push(cx.flow_number());
        }
        Verdict::Forward
    }
    fn departed(&self, _: &Seen, _: Departure, cx: &mut Cx<Self>) {
        cx.count("departed");
    }
    fn recall(&self) -> nf::Recall {
        self.0
            .borrow_mut()
            .1
            .pop()
            .map_or(nf::Recall::Nothing, nf::Recall::Flow)
    }
}

#[test]
fn a_function_has_other_flows_ended() {
    let mut runtime = alone(Settings::alone(8), vec![factory::<Recaller>()]);
    feed(
        &mut runtime,
        (0..3).map(|n| udp(1, 1000 + n, 1, 80, false, b"")),
        1,
    );
    assert_eq!(runtime.stats().flows, 3);
    feed(
        &mut runtime,
        [udp(1, 1000, 1, 80, true, b""), udp(2, 1, 1, 8, false, b"")],
        2,
    );
    let stats = runtime.stats();
    // The fourth flow, number 3, has named itself as well; there is no flow with the other number.
    assert_eq!((stats.flows, stats.flows_ended, stats.passed), (0, 4, 5));
    assert_eq!(stats.counters[0].count, 4);
}

#[test]
fn flows_expire_when_their_function_says() {
    let mut runtime = meter();
    feed(&mut runtime, [udp(1, 1, 1, 80, false, b"")], SECOND);
    feed(&mut runtime, [udp(1, 1, 1, 80, true, b"")], 9 * SECOND);
    feed(&mut runtime, [], 18 * SECOND);
    assert_eq!(runtime.stats().flows, 1);
    feed(&mut runtime, [], 20 * SECOND);
    assert_eq!(runtime.stats().flows, 0);
    assert_eq!(runtime.stats().counters[1].count, 1);
    // The slot is used again, with fresh state.
    feed(&mut runtime, [udp(1, 1, 1, 80, false, b"")], 21 * SECOND);
    assert_eq!(runtime.flows(0, 1).0[0].state[0].1[0].1, "1");
}

#[test]
fn translated_flows_are_found_by_their_replies() {
    let mut runtime = alone(
        Settings::alone(4),
        vec![factory::<Meter>(), factory::<Masquerade>()],
    );
    feed(&mut runtime, [udp(1, 1000, 1, 80, false, b"x")], 1);
    let mut spare = pool(1, 9);
    let sent = runtime.links_mut()[0].output[0].clone();
    let source = parsed(&mut spare, &sent, |p| p.source());
    assert_eq!(source, "203.0.113.1:2000".parse().unwrap());
    let mut reply = Vec::new();
    etherparse::PacketBuilder::ipv4([192, 0, 2, 1], [203, 0, 113, 1], 64)
        .udp(80, 2000)
        .write(&mut reply, b"y")
        .unwrap();
    feed(&mut runtime, [(Side::Outside, reply)], 2);
    let sent = runtime.links_mut()[0].output[1].clone();
    assert_eq!(
        parsed(&mut spare, &sent, |p| p.destination()),
        "10.0.0.1:1000".parse().unwrap()
    );
    assert_eq!(sent.0, Side::Inside);
    let (flows, _) = runtime.flows(0, 9);
    assert_eq!(flows.len(), 1);
    assert_eq!(
        flows[0].translated.unwrap().0,
        "203.0.113.1:2000".parse().unwrap()
    );
}

#[test]
fn answers_go_back_and_emitted_packets_both_ways() {
    let mut runtime = meter();
    feed(&mut runtime, [udp(1, 1000, 1, 7, false, b"q")], 1);
    let sent = runtime.links_mut()[0].output[0].clone();
    assert_eq!(sent.0, Side::Inside);
    assert_eq!(
        parsed(&mut pool(1, 9), &sent, |p| p.destination()),
        "10.0.0.1:1000".parse().unwrap()
    );
    feed(&mut runtime, [udp(1, 1001, 1, 6, false, b"e")], 1);
    let mut exits: Vec<Side> = runtime.links_mut()[0].output[1..].iter().map(|s| s.0).collect();
    exits.sort();
    assert_eq!(exits, [Side::Inside, Side::Outside, Side::Outside]);
    assert_eq!(runtime.stats().emitted, 2);
}

#[test]
fn every_packet_of_a_burst_can_emit() {
    let mut runtime = meter();
    feed(&mut runtime, (0..32).map(|_| udp(1, 1000, 1, 6, false, b"e")), 1);
    assert_eq!(runtime.stats().emitted, 2 * 32);
    assert_eq!(runtime.links_mut()[0].output.len(), 3 * 32);
}

#[test]
fn an_answer_that_ends_its_flow_still_passes_the_functions_before() {
    let mut runtime = alone(
        Settings::alone(4),
        vec![factory::<Masquerade>(), factory::<Meter>()],
    );
    feed(&mut runtime, [udp(1, 1000, 1, 3, false, b"q")], 1);
    assert_eq!(runtime.stats().flows, 0);
    let sent = runtime.links_mut()[0].output[0].clone();
    assert_eq!(sent.0, Side::Inside);
    assert_eq!(
        parsed(&mut pool(1, 9), &sent, |p| p.destination()),
        "10.0.0.1:1000".parse().unwrap()
    );
}

#[test]
fn held_packets_go_on_in_order_before_the_one_that_lets_them() {
    let mut runtime = meter();
    feed(&mut runtime, (2..6).map(|n| udp(1, 1000, 1, 5, false, &[n])), 1);
    assert_eq!(runtime.stats().held, 4);
    feed(&mut runtime, [udp(1, 1000, 1, 5, false, &[1])], 1);
    let order: Vec<u8> = runtime.links_mut()[0].output.iter().map(number).collect();
    assert_eq!(order, [2, 3, 4, 5, 1]);
    feed(&mut runtime, [udp(1, 1000, 1, 5, false, &[8])], 2);
    feed(&mut runtime, [], 400 * SECOND);
    assert_eq!(runtime.stats().dropped[0].name, "held_at_end");
}

#[test]
fn a_function_may_end_its_flow() {
    let mut runtime = meter();
    feed(&mut runtime, [udp(1, 1000, 1, 4, false, b"")], 1);
    let stats = runtime.stats();
    assert_eq!((stats.flows, stats.passed), (0, 1));
}

#[test]
fn finishing_ends_every_flow_once() {
    let mut runtime = meter();
    feed(
        &mut runtime,
        (0..4).map(|n| udp(1, 1000 + n, 1, 80, false, b"")),
        1,
    );
    while !runtime.finish(3) {}
    assert_eq!((runtime.stats().flows, runtime.stats().counters[1].count), (0, 4));
    assert_eq!(
        runtime.pool().free() + nf::cx::EMITTED_MAX,
        runtime.pool().total(),
        "spares are with the frame in hand"
    );
}

/// A router's answer to 10.0.0.1:1000 > 192.0.2.1:80.
fn port_unreachable() -> (Side, Vec<u8>) {
    let (_, original) = udp(1, 1000, 1, 80, false, b"");
    let mut error = Vec::new();
    etherparse::PacketBuilder::ipv4([192, 0, 2, 254], [10, 0, 0, 1], 64)
        .icmpv4(etherparse::Icmpv4Type::DestinationUnreachable(
            etherparse::icmpv4::DestUnreachableHeader::Port,
        ))
        .write(&mut error, &original)
        .unwrap();
    (Side::Outside, error)
}

#[test]
fn icmp_errors_reach_the_flow_they_quote_without_keeping_it_alive() {
    let mut runtime = meter();
    feed(&mut runtime, [udp(1, 1000, 1, 80, false, b"")], SECOND);
    feed(&mut runtime, [port_unreachable()], 9 * SECOND);
    let (flows, _) = runtime.flows(0, 9);
    assert_eq!((flows.len(), flows[0].state[0].1[1].1.as_str()), (1, "1"));
    feed(&mut runtime, [], 12 * SECOND);
    assert_eq!(runtime.stats().flows, 0);
}

/// Looks on: wants no ICMP errors.
struct Onlooker;

#[network_function]
impl NetworkFunction for Onlooker {
    const NAME: &'static str = "onlooker";
    const ICMP_ERRORS: bool = false;
    type Config = NoConfig;
    type Flow = ();
    type Group = ();
    fn new(_: &Arc<NoConfig>, _: &WorkerInfo) -> Result<Self, ConfigError> {
        Ok(Onlooker)
    }
    fn process(&self, _: &mut Packet, _: &mut (), _: &mut Cx<Self>) -> Verdict {
        Verdict::Forward
    }
}

#[test]
fn icmp_errors_are_flows_of_their_own_where_no_function_wants_them() {
    for (functions, flows) in [
        (vec![factory::<Onlooker>()], 2),
        (vec![factory::<Onlooker>(), factory::<Meter>()], 1),
    ] {
        let mut runtime = alone(Settings::alone(16), functions);
        let packets = [udp(1, 1000, 1, 80, false, b""), port_unreachable()];
        feed(&mut runtime, packets, SECOND);
        assert_eq!(runtime.stats().flows, flows);
    }
}

/// Counts flows per inside host, and claims a block for each host.
pub struct Hosts;

#[derive(FlowState, Default, Clone, Copy, Debug)]
#[repr(C)]
pub struct Host {
    flows: u64,
    first: u64,
}

#[network_function]
impl NetworkFunction for Hosts {
    const NAME: &'static str = "hosts";
    const AFFINITY: Affinity = Affinity::InsideAddress;
    const COUNTERS: &'static [&'static str] = &["groups_ended", "second_flow_seen"];
    type Config = NoConfig;
    type Flow = ();
    type Group = Host;
    fn new(_: &Arc<NoConfig>, _: &WorkerInfo) -> Result<Self, ConfigError> {
        Ok(Hosts)
    }
    fn process(&self, packet: &mut Packet, _: &mut (), cx: &mut Cx<Self>) -> Verdict {
        if cx.group().flows == 0 {
            let first = u16::from(packet.source_addr().octets()[15]) * 256;
            cx.group().first = u64::from(first);
            assert!(cx.claim_block(Self::block(first)));
        }
        cx.group().flows += 1;
        if cx.group().flows == 2 {
            cx.count("second_flow_seen");
        }
        Verdict::Forward
    }
    fn group_ended(&self, group: &mut Host, cx: &mut Cx<Self>) {
        assert!(group.flows > 0);
        assert!(cx.release_block(Self::block(group.first as u16)));
        cx.count("groups_ended");
    }
}

impl Hosts {
    fn block(first: u16) -> nf::Block {
        nf::Block {
            addr: "203.0.113.1".parse().unwrap(),
            first,
            ports: 256,
        }
    }
}

#[test]
fn flows_of_one_host_share_a_group() {
    let mut runtime = alone(Settings::alone(16), vec![factory::<Hosts>(), factory::<Meter>()]);
    feed(
        &mut runtime,
        [
            udp(1, 1000, 1, 80, false, b""),
            udp(1, 1001, 1, 80, false, b""),
            udp(2, 1000, 1, 80, false, b""),
        ],
        SECOND,
    );
    assert_eq!(runtime.stats().groups, 2);
    assert_eq!(runtime.stats().counters[1].count, 1);
    feed(&mut runtime, [], 20 * SECOND);
    assert_eq!(
        (runtime.stats().groups, runtime.stats().counters[0].count),
        (0, 2)
    );
}

#[test]
fn a_flow_that_ends_within_a_burst_meets_no_packet_of_it() {
    // The answers are for port 4, so each ends its flow; all were looked up while the first one's
    // was there.
    let answers = || (0..3).map(|_| udp(1, 4, 2, 80, true, &[]));
    let mut runtime = meter();
    feed(&mut runtime, [udp(1, 4, 2, 80, false, &[])], 1);
    assert_eq!(runtime.stats().flows, 1);
    feed(&mut runtime, answers(), 2);
    let stats = runtime.stats();
    assert_eq!((stats.flows, stats.flows_opened, stats.flows_ended), (0, 3, 3));
    assert_conserved(&runtime);
    // The same where time ended it.
    feed(&mut runtime, [udp(1, 4, 2, 80, false, &[])], 3);
    feed(&mut runtime, answers(), 60 * SECOND);
    let stats = runtime.stats();
    assert_eq!((stats.flows, stats.flows_opened, stats.flows_ended), (0, 7, 7));
    assert_conserved(&runtime);
}

/// Claims a block with each packet, and gives all back at the end of the group.
struct Hoarder;

#[derive(FlowState, Default, Clone, Copy, Debug)]
#[repr(C)]
struct Hoard {
    blocks: u16,
}

#[network_function]
impl NetworkFunction for Hoarder {
    const NAME: &'static str = "hoarder";
    const AFFINITY: Affinity = Affinity::InsideAddress;
    const COUNTERS: &'static [&'static str] = &["given_back"];
    type Config = NoConfig;
    type Flow = ();
    type Group = Hoard;
    fn new(_: &Arc<NoConfig>, _: &WorkerInfo) -> Result<Self, ConfigError> {
        Ok(Hoarder)
    }
    fn process(&self, _: &mut Packet, _: &mut (), cx: &mut Cx<Self>) -> Verdict {
        let number = cx.group().blocks;
        assert!(cx.claim_block(Hosts::block(256 * number)));
        cx.group().blocks += 1;
        Verdict::Forward
    }
    fn group_ended(&self, group: &mut Hoard, cx: &mut Cx<Self>) {
        while group.blocks > 0 && cx.release_block(Hosts::block(256 * (group.blocks - 1))) {
            group.blocks -= 1;
            cx.count("given_back");
        }
    }
}

#[test]
fn a_group_gives_back_however_many_blocks_it_has() {
    for packets in [1, 4, 5, 8, 100] {
        let plan = plan(vec![factory::<Hoarder>()]);
        let mut cluster = super::spread::cluster(2, 1, crate::switch::Policy::RoundRobin, &plan, 64);
        cluster.feed(0, (0..packets).map(|_| udp(1, 1000, 1, 80, false, b"")));
        assert!(
            cluster
                .switches
                .iter()
                .all(|switch| switch.stats().blocks == packets)
        );
        super::groups::assert_nothing_stays(&mut cluster);
        assert_eq!(cluster.runtimes[0].stats().counters[0].count, packets);
    }
}

/// Each function of a chain has room of its own, also where none has a packet: at the beginning and
/// the end of a flow.
#[test]
fn a_flows_end_has_room_for_each_function_of_its_chain() {
    let plan = plan(vec![
        factory::<Eager<0>>(),
        factory::<Eager<1>>(),
        factory::<Eager<2>>(),
    ]);
    let mut cluster = super::spread::cluster(1, 1, crate::switch::Policy::RoundRobin, &plan, 64);
    cluster.feed(0, [udp(1, 1000, 1, 80, false, b"")]);
    assert_eq!(cluster.switches[0].stats().blocks, 12);
    // A packet that is emitted without a packet at hand is a counted drop.
    let dropped = cluster.runtimes[0].stats().dropped;
    assert_eq!(
        (dropped[0].name, dropped[0].count, cluster.sent().len()),
        ("emit_overflow", 7, 1)
    );
    super::groups::assert_nothing_stays(&mut cluster);
}

/// Claims as many blocks as it may, and emits packets, when a flow arrives.
struct Eager<const N: u16>;

#[network_function]
impl<const N: u16> NetworkFunction for Eager<N> {
    const NAME: &'static str = ["a", "b", "c"][N as usize];
    type Config = NoConfig;
    type Flow = ();
    type Group = ();
    fn new(_: &Arc<NoConfig>, _: &WorkerInfo) -> Result<Self, ConfigError> {
        Ok(Eager)
    }
    fn arrived(&self, _: &mut (), _: nf::Arrival, cx: &mut Cx<Self>) {
        for n in 0..4 {
            assert!(cx.claim_block(Hosts::block(256 * (4 * N + n))));
            let _ = cx.emit(Way::Onward, |packet| packet.set_frame(&[0x45; 20], LinkType::Raw));
        }
        assert!(!cx.claim_block(Hosts::block(9999)));
    }
    fn process(&self, _: &mut Packet, _: &mut (), _: &mut Cx<Self>) -> Verdict {
        Verdict::Forward
    }
    fn departed(&self, _: &(), _: Departure, cx: &mut Cx<Self>) {
        (0..4).for_each(|n| assert!(cx.release_block(Hosts::block(256 * (4 * N + n)))));
    }
}
