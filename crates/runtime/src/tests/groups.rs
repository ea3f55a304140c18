//! Groups of several flows over several runtimes: each at one, and every route ends, whichever host
//! sends what to which.

use super::flows::{Hosts, Meter};
use super::spread::{Cluster, cluster, cluster_with_buffers};
use super::*;
use crate::switch::Policy;
use nf::{Affinity, Block, Cx, Endpoint, FlowState, Packet, Verdict, WorkerInfo, network_function};
use proptest::prelude::*;
use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;
use std::vec;
use wire::packet::flag;

const SECOND: u64 = 1_000_000_000;

pub(super) type V4 = [u8; 4];

pub(super) fn frame(from: (V4, u16), to: (V4, u16)) -> (Side, Vec<u8>) {
    let mut frame = Vec::new();
    etherparse::PacketBuilder::ipv4(from.0, to.0, 64)
        .udp(from.1, to.1)
        .write(&mut frame, b"")
        .unwrap();
    // The cluster's switches tell the side by the source.
    (Side::Inside, frame)
}

pub(super) fn inside(host: u8) -> V4 {
    [10, 0, 0, host]
}

pub(super) fn outside(host: u8) -> V4 {
    [192, 0, 2, host]
}

/// A packet of an inside host to an outside one.
pub(super) fn packet_of(host: u8) -> (Side, Vec<u8>) {
    frame((inside(host), 1000), (outside(1), 53))
}

/// All flows over: nothing may be left.
pub(super) fn assert_nothing_stays(cluster: &mut Cluster) {
    cluster.now += 400 * SECOND;
    cluster.run_until_quiet();
    cluster.check();
    let flows: u64 = cluster.runtimes.iter().map(|r| r.stats().flows).sum();
    let routes: Vec<_> = cluster.switches.iter().map(|s| s.route_keys()).collect();
    assert_eq!((flows, cluster.routes()), (0, 0), "{routes:?}");
    for switch in &cluster.switches {
        assert_eq!((switch.stats().reply_keys, switch.stats().blocks), (0, 0));
    }
}

#[test]
fn a_route_that_no_flow_uses_ends() {
    let plan = plan(vec![factory::<Hosts>()]);
    let mut cluster = cluster(1, 1, Policy::RoundRobin, &plan, 64);
    let (one, other) = ((outside(1), 1000), (outside(2), 2000));
    // Neither end is inside: the group is the destination's, so the answer has another, whose route
    // no flow needs.
    cluster.feed(0, [frame(one, other), frame(other, one)]);
    assert_eq!(cluster.runtimes[0].stats().flows, 1);
    assert_eq!(cluster.routes(), 1);
    cluster.feed(0, (0..100).map(|_| frame(other, one)));
    assert_eq!(cluster.sent().len(), 102);
    assert_eq!(cluster.routes(), 1);
    cluster.now += 400 * SECOND;
    cluster.run_until_quiet();
    assert_eq!(cluster.routes(), 0);
}

/// A link counts its packets: however many pass between a route's last and the end of its group,
/// the route ends.
#[test]
fn a_route_that_was_not_used_for_billions_of_packets_ends() {
    for others in [1 << 20, 1 << 31, (1 << 32) + 5, 1 << 40] {
        let plan = plan(vec![factory::<Hosts>()]);
        let mut cluster = cluster(1, 1, Policy::RoundRobin, &plan, 64);
        cluster.feed(0, [packet_of(1)]);
        cluster.switches[0].age_links(others);
        cluster.runtimes[0].age_links(others);
        cluster.now += 400 * SECOND;
        cluster.run_until_quiet();
        assert_eq!(
            (cluster.runtimes[0].stats().flows, cluster.routes()),
            (0, 0),
            "{others} packets"
        );
    }
}

/// A runtime's buffers for two switches are all that it has at rest, beside those that the frame in
/// hand keeps.
#[test]
fn a_question_is_answered_with_the_last_buffers() {
    let plan = plan(vec![factory::<Hosts>()]);
    let mut cluster = cluster_with_buffers(2, 1, &plan, 64, 36);
    let (one, other) = ((outside(1), 1000), (outside(2), 2000));
    for _ in 0..20 {
        cluster.feed(0, [frame(one, other), frame(other, one)]);
        cluster.feed(1, [frame(other, one), frame(one, other)]);
    }
    cluster.now += 400 * SECOND;
    cluster.run_until_quiet();
    assert_eq!(cluster.routes(), 0);
    assert!(cluster.runtimes[0].finished());
}

#[test]
fn what_two_inside_hosts_say_is_one_flow_and_stays_inside() {
    let plan = plan(vec![factory::<Meter>(), factory::<OfHosts>()]);
    for (switches, runtimes) in [(1, 1), (1, 4), (2, 3)] {
        let mut cluster = cluster(switches, runtimes, Policy::RoundRobin, &plan, 256);
        let pairs = (1..20_u8).flat_map(|a| (a + 1..21).map(move |b| (a, b)));
        let count = pairs.clone().count();
        for (a, b) in pairs {
            // The lower or the higher host begins, and they come in wherever they like.
            let (a, b) = if (a + b) % 3 == 0 { (b, a) } else { (a, b) };
            let ends = ((inside(a), 1000), (inside(b), 80));
            cluster.feed(0, [frame(ends.0, ends.1)]);
            cluster.feed(
                usize::from(switches) - 1,
                [frame(ends.1, ends.0), frame(ends.1, ends.0)],
            );
        }
        let stats: Vec<_> = cluster.runtimes.iter().map(|r| r.stats()).collect();
        assert_eq!(stats.iter().map(|s| s.flows).sum::<u64>(), count as u64);
        assert!(stats.iter().all(|s| s.flows > 0));
        let sent = cluster.sent();
        assert_eq!(sent.len(), 3 * count);
        assert!(sent.iter().all(|(exit, _)| *exit == Side::Inside));
        assert_nothing_stays(&mut cluster);
    }
}

/// State of inside hosts, of which it does nothing.
pub(super) struct OfHosts;

#[network_function]
impl NetworkFunction for OfHosts {
    const NAME: &'static str = "of_hosts";
    const AFFINITY: Affinity = Affinity::InsideAddress;
    type Config = NoConfig;
    type Flow = ();
    type Group = ();
    fn new(_: &Arc<NoConfig>, _: &WorkerInfo) -> Result<Self, ConfigError> {
        Ok(OfHosts)
    }
    fn process(&self, _: &mut Packet, _: &mut (), _: &mut Cx<Self>) -> Verdict {
        Verdict::Forward
    }
    fn timeout(&self, _: &()) -> Option<Duration> {
        Some(Duration::from_secs(10))
    }
}

/// Leases each inside host that sends out a block of ports, each runtime of its own; and refuses
/// packets for a port that its host has not leased.
pub(super) struct Leaser(u16);

#[derive(FlowState, Default, Clone, Copy, Debug)]
#[repr(C)]
pub(super) struct Lease {
    first: u16,
}

const LEASED: u16 = 64;
pub(super) const OURS: V4 = [203, 0, 113, 1];

fn lease(first: u16) -> Block {
    Block {
        addr: nf::Addr::v4(OURS),
        first,
        ports: LEASED,
    }
}

/// The first port of the block that a runtime has for a host.
pub(super) fn lease_of(host: u8, runtime: u16) -> u16 {
    (u16::from(host) * 8 + runtime + 1) * LEASED
}

#[network_function]
impl NetworkFunction for Leaser {
    const NAME: &'static str = "leaser";
    const AFFINITY: Affinity = Affinity::InsideAddress;
    const REASONS: &'static [&'static str] = &["no_lease"];
    type Config = NoConfig;
    type Flow = ();
    type Group = Lease;
    fn new(_: &Arc<NoConfig>, worker: &WorkerInfo) -> Result<Self, ConfigError> {
        Ok(Leaser(worker.runtime))
    }
    fn process(&self, packet: &mut Packet, _: &mut (), cx: &mut Cx<Self>) -> Verdict {
        let leased = cx.group().first;
        match cx.side() {
            Side::Inside if leased == 0 && !packet.has(flag::INSIDE_TO_INSIDE) => {
                let first = lease_of(packet.source_addr().octets()[15], self.0);
                cx.group().first = first;
                assert!(cx.claim_block(lease(first)));
            }
            Side::Outside if packet.destination_addr() == nf::Addr::v4(OURS) => {
                let port = packet.destination_port();
                if leased == 0 || port - port % LEASED != leased {
                    return cx.drop("no_lease");
                }
            }
            _ => {}
        }
        Verdict::Forward
    }
    fn group_ended(&self, group: &mut Lease, cx: &mut Cx<Self>) {
        if group.first != 0 {
            assert!(cx.release_block(lease(group.first)));
        }
    }
    fn timeout(&self, _: &()) -> Option<Duration> {
        Some(Duration::from_secs(10))
    }
}

/// Sends packets for the service to an inside server, and its answers back in the service's name.
pub(super) struct Service;

const SERVICE: (V4, u16) = ([192, 0, 2, 100], 80);
const SERVER: u8 = 2;

#[network_function]
impl NetworkFunction for Service {
    const NAME: &'static str = "service";
    type Config = NoConfig;
    type Flow = ();
    type Group = ();
    fn new(_: &Arc<NoConfig>, _: &WorkerInfo) -> Result<Self, ConfigError> {
        Ok(Service)
    }
    fn process(&self, packet: &mut Packet, _: &mut (), cx: &mut Cx<Self>) -> Verdict {
        let service = Endpoint::new(nf::Addr::v4(SERVICE.0), SERVICE.1);
        let (_, asked) = cx.opened_by();
        if asked == service {
            match cx.direction() {
                nf::Direction::Opening => {
                    packet.set_destination(Endpoint::new(nf::Addr::v4(inside(SERVER)), 8080))
                }
                nf::Direction::Reply => packet.set_source(service),
            };
        }
        Verdict::Forward
    }
    fn timeout(&self, _: &()) -> Option<Duration> {
        Some(Duration::from_secs(10))
    }
}

/// One of eight hosts, half of them inside.
fn any_host(number: u8) -> V4 {
    let host = number / 2;
    if number.is_multiple_of(2) {
        inside(host)
    } else {
        outside(host)
    }
}

#[test]
fn an_inside_servers_answers_find_their_flow_whichever_host_asked() {
    let plan = plan(vec![factory::<Leaser>(), factory::<Service>()]);
    for client in (0..8).filter(|client| any_host(*client) != inside(SERVER)) {
        let mut cluster = cluster(2, 3, Policy::RoundRobin, &plan, 64);
        let client = (any_host(client), 1000);
        cluster.feed(0, [frame(client, SERVICE)]);
        cluster.feed(1, [frame((inside(SERVER), 8080), client)]);
        let flows: u64 = cluster.runtimes.iter().map(|r| r.stats().flows).sum();
        assert_eq!(flows, 1, "{client:?}");
        let service = Endpoint::new(nf::Addr::v4(SERVICE.0), SERVICE.1);
        let mut spare = pool(1, 9);
        let sent = cluster.sent();
        let mut sources = sent
            .iter()
            .map(|sent| parsed(&mut spare, sent, |packet| packet.source()));
        assert!(sources.any(|source| source == service), "{client:?}");
        assert_nothing_stays(&mut cluster);
    }
}

/// One host sends something to another.
pub(super) fn packets() -> impl Strategy<Value = (Side, Vec<u8>)> {
    let port = || prop_oneof![Just(1000_u16), Just(1001)];
    prop_oneof![
        // Out; to a leased block, from any host; between inside hosts; neither from inside nor for
        // it.
        (1..4_u8, port(), 1..3_u8).prop_map(|(a, p, b)| frame((inside(a), p), (outside(b), 53))),
        (1..4_u8, 0..3_u16, 1..3_u8)
            .prop_map(|(a, r, b)| frame((outside(b), 53), (OURS, lease_of(a, r) + 5))),
        (1..4_u8, 1..4_u8, port()).prop_map(|(a, b, p)| frame((inside(a), p), (inside(b), p))),
        (1..4_u8, 1..4_u8, port()).prop_map(|(a, b, p)| frame((outside(a), p), (outside(b), p))),
        // For the service, and what the server says; a host that pretends to have our address.
        (0..8_u8, port()).prop_map(|(a, p)| frame((any_host(a), p), SERVICE)),
        (0..8_u8, port()).prop_map(|(a, p)| frame((inside(SERVER), 8080), (any_host(a), p))),
        (1..4_u8, 0..3_u16, 1..3_u8)
            .prop_map(|(a, r, b)| frame((OURS, lease_of(a, r) + 5), (outside(b), 53))),
    ]
}

/// A flow that begins in one group whichever end sends, as long as no host leases or gives back a
/// block: not so packets that neither come from inside nor are for it.
pub(super) fn has_an_inside_end(key: &wire::FlowKey) -> bool {
    [key.first(), key.second()]
        .iter()
        .any(|end| end.addr.octets()[12] == 10)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(ProptestConfig::default().cases * 2))]
    /// Random traffic of every kind, random time, random order of steps: a group is never at two
    /// runtimes, nor a flow of an inside host, everything adds up, and no route stays.
    #[test]
    fn one_home_per_group(
        events in proptest::collection::vec((0u8..5, 0u8..2, 0u64..8, proptest::collection::vec(packets(), 0..3)), 1..200),
    ) {
        let plan = plan(vec![factory::<Leaser>(), factory::<Service>()]);
        let mut cluster = cluster(2, 3, Policy::RoundRobin, &plan, 64);
        let mut now = 0;
        for (what, switch, pass, packets) in events {
            cluster.switches[usize::from(switch)].port_mut(0).input.extend(packets);
            now += pass * SECOND;
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
