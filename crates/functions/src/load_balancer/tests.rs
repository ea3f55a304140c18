//! Tests of the load balancer: translation against etherparse's checksums, counts against an
//! oracle, shares of each policy, Maglev's steadiness, the configuration's complaints.

mod checks;
mod oracle;
mod policies;
mod servers;
mod settings;
mod translation;
mod upheavals;

use super::config::{BackendConfig, PortsConfig, ProtocolConfig, ServiceConfig};
use super::*;
use arrayvec::ArrayVec;
use etherparse::{NetHeaders, PacketBuilder, PacketHeaders, TransportHeader};
use nf::Cx;
use nf::Table;
use nf::cx::{EventLog, RawCx, effect};
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::ptr::NonNull;
use std::vec;
use wire::memory::Region;
use wire::packet::Side;
use wire::tcp::flags::{ACK, FIN, RST, SYN};
use wire::{FlowKey, LinkType, PacketBox, Pool};

/// An instance with what the runtime would keep for it.
struct Bench {
    balancer: LoadBalancer,
    counters: Vec<u64>,
    log: EventLog,
    pool: Pool,
    /// Whether the last packet ended its flow.
    ended: bool,
}

/// A flow as the runtime has it: the opening packet's ends, and the state.
#[derive(Clone)]
struct Flow {
    client: Endpoint,
    service: Endpoint,
    protocol: u8,
    state: Balanced,
}

fn end(text: &str) -> Endpoint {
    text.parse().unwrap()
}

fn flow(client: &str, service: &str, protocol: u8) -> Flow {
    Flow {
        client: end(client),
        service: end(service),
        protocol,
        state: Balanced::default(),
    }
}

impl Bench {
    fn new(config: LoadBalancerConfig) -> Self {
        let worker = WorkerInfo {
            runtime: 0,
            runtimes: 1,
            flows_max: 1000,
            seed: 1,
        };
        Bench {
            balancer: LoadBalancer::new(&Arc::new(config), &worker).unwrap(),
            counters: vec![0; LoadBalancer::COUNTERS.len() + 1],
            log: EventLog::new(0, 0),
            pool: Pool::new(Region::heap(Pool::region_length(2, 2048)), 2, 2048, 0),
            ended: false,
        }
    }

    fn with_cx<T>(
        &mut self,
        flow: &Flow,
        direction: Direction,
        call: impl FnOnce(&LoadBalancer, &mut Cx<LoadBalancer>) -> T,
    ) -> T {
        let (mut key, opening) = FlowKey::new(flow.client, flow.service, flow.protocol, 0);
        let mut raw = RawCx {
            now: 0,
            wake_at: RawCx::NO_WAKE,
            waits_for: 0,
            token: 0,
            tokens: None,
            place: 0,
            timeout: 0,
            key: NonNull::from(&mut key),
            flow: 0,
            opening,
            side: Side::Outside,
            direction,
            effects: 0,
            lazy_kept: false,
            group: NonNull::dangling(),
            counters: NonNull::from(&mut self.counters[..]).cast(),
            log: NonNull::from(&mut self.log),
            spares: ArrayVec::new(),
            held: None,
            held_room: 0,
            copy: None,
            let_go: Default::default(),
            emitted: ArrayVec::new(),
            blocks: ArrayVec::new(),
            discard: nf::Reason::UNDECLARED,
            pinned: core::marker::PhantomPinned,
        };
        // SAFETY: the key is here, the group is zero-sized; counters (one more than declared) and
        // log outlive the view.
        let cx = unsafe { Cx::of(&mut raw) };
        let result = call(&self.balancer, cx);
        self.ended = raw.effects & effect::END != 0;
        result
    }

    fn packet(&mut self, frame: &[u8]) -> PacketBox {
        let mut packet = self.pool.take().unwrap();
        assert!(packet.set_frame(frame, LinkType::Raw));
        wire::parse(&mut packet).unwrap();
        packet
    }

    /// Runs a frame through; the frame as it leaves, or why it does not.
    fn run(&mut self, flow: &mut Flow, direction: Direction, frame: &[u8]) -> Result<Vec<u8>, &'static str> {
        let mut packet = self.packet(frame);
        let mut state = flow.state;
        let verdict = self.with_cx(flow, direction, |balancer, cx| {
            balancer.process_now(&mut packet, &mut state, cx).unwrap()
        });
        flow.state = state;
        let frame = packet.frame().to_vec();
        self.pool.give(packet);
        match verdict {
            Verdict::Forward => Ok(frame),
            Verdict::Drop(reason) => Err(LoadBalancer::REASONS[reason.index()]),
            other => panic!("{other:?}"),
        }
    }

    fn open(&mut self, flow: &mut Flow, flags: u8) -> Result<Vec<u8>, &'static str> {
        let frame = datagram(flow.client, flow.service, flow.protocol, flags);
        self.run(flow, Direction::Opening, &frame)
    }

    fn reply(&mut self, flow: &mut Flow, flags: u8) -> Result<Vec<u8>, &'static str> {
        let frame = datagram(self.server(flow), flow.client, flow.protocol, flags);
        self.run(flow, Direction::Reply, &frame)
    }

    fn server(&self, flow: &Flow) -> Endpoint {
        self.balancer.targets[usize::from(flow.state.backend)].endpoint(flow.service.port)
    }

    fn depart(&mut self, flow: &Flow, why: Departure) {
        let state = flow.state;
        self.with_cx(flow, Direction::Opening, |balancer, cx| {
            balancer.departed(&state, why, cx)
        });
    }

    fn arrive(&mut self, flow: &mut Flow, why: Arrival) {
        let mut state = flow.state;
        self.with_cx(flow, Direction::Opening, |balancer, cx| {
            balancer.arrived(&mut state, why, cx)
        });
        flow.state = state;
    }

    fn connections(&self) -> Vec<u32> {
        self.balancer.loads.iter().map(|l| l.connections.get()).collect()
    }

    fn command(&self, line: &str) -> Result<String, String> {
        let words: Vec<&str> = line.split(' ').collect();
        // A table is not the function's to print.
        match Table::asked(LoadBalancer::TABLES, &words)? {
            Some((table, _)) => Ok(table.text(&self.balancer.rows(table.name, usize::MAX))),
            None => self.balancer.command(&words),
        }
    }

    /// How many of `count` new connections each server gets; they stay open, or end at once.
    fn shares(&mut self, count: u32, stay: bool) -> Vec<u32> {
        let mut shares = vec![0; self.balancer.loads.len()];
        for n in 0..count {
            let client = Endpoint::new(
                Addr::v4((0x0a00_0000 + n / 50_000).to_be_bytes()),
                (n % 50_000 + 1) as u16,
            );
            let mut flow = Flow {
                client,
                ..flow("10.0.0.1:1", "203.0.113.10:80", protocol::TCP)
            };
            self.open(&mut flow, SYN).unwrap();
            shares[usize::from(flow.state.backend)] += 1;
            if !stay {
                self.depart(&flow, Departure::Expired);
            }
        }
        shares
    }
}

/// A packet with 5 bytes of data.
fn datagram(from: Endpoint, to: Endpoint, protocol: u8, flags: u8) -> Vec<u8> {
    let builder = match (from.addr.as_v4(), to.addr.as_v4()) {
        (Some(from), Some(to)) => PacketBuilder::ipv4(from, to, 64),
        _ => PacketBuilder::ipv6(*from.addr.octets(), *to.addr.octets(), 64),
    };
    let mut frame = Vec::new();
    if protocol == protocol::UDP {
        builder
            .udp(from.port, to.port)
            .write(&mut frame, b"hello")
            .unwrap();
    } else {
        let mut builder = builder.tcp(from.port, to.port, 1000, 500);
        for (flag, set) in [(SYN, 0), (FIN, 1), (RST, 2), (ACK, 3)] {
            builder = match (flags & flag != 0, set) {
                (false, _) => builder,
                (_, 0) => builder.syn(),
                (_, 1) => builder.fin(),
                (_, 2) => builder.rst(),
                _ => builder.ack(1),
            };
        }
        builder.write(&mut frame, b"hello").unwrap();
    }
    frame
}

fn service(policy: PolicyConfig, backends: &[(&str, &str, u16)]) -> ServiceConfig {
    ServiceConfig {
        name: "web".to_string(),
        addresses: vec!["203.0.113.10".to_string()],
        ports: PortsConfig::Range("80-89".to_string()),
        protocol: ProtocolConfig::Tcp,
        policy,
        table_size: maglev::TABLE_SIZE_DEFAULT,
        when_down: WhenDownConfig::Keep,
        idle_timeout: None,
        check: None,
        interval: None,
        timeout: None,
        rise: None,
        fall: None,
        backends: backends
            .iter()
            .map(|&(name, endpoint, weight)| BackendConfig {
                name: name.to_string(),
                endpoint: endpoint.to_string(),
                weight,
                state: Health::Up,
            })
            .collect(),
    }
}

fn config(services: Vec<ServiceConfig>) -> LoadBalancerConfig {
    LoadBalancerConfig { services, seed: 7 }
}

fn three(policy: PolicyConfig) -> LoadBalancerConfig {
    config(vec![service(
        policy,
        &[
            ("a", "10.1.0.1:8080", 1),
            ("b", "10.1.0.2:8080", 1),
            ("c", "10.1.0.3", 1),
        ],
    )])
}

/// Endpoints of a frame whose checksums hold by etherparse's own computation.
fn ends_of_sound(frame: &[u8]) -> (Endpoint, Endpoint) {
    let headers = PacketHeaders::from_ip_slice(frame).unwrap();
    let payload = headers.payload.slice();
    let (from, to) = match headers.net.as_ref().unwrap() {
        NetHeaders::Ipv4(ip, _) => {
            assert_eq!(ip.header_checksum, ip.calc_header_checksum(), "IPv4 checksum");
            (Addr::v4(ip.source), Addr::v4(ip.destination))
        }
        NetHeaders::Ipv6(ip, _) => (Addr::v6(ip.source), Addr::v6(ip.destination)),
        _ => panic!("no IP"),
    };
    let (from_port, to_port, found, computed) = match (headers.transport.unwrap(), headers.net.unwrap()) {
        (TransportHeader::Tcp(t), NetHeaders::Ipv4(ip, _)) => (
            t.source_port,
            t.destination_port,
            t.checksum,
            t.calc_checksum_ipv4(&ip, payload).unwrap(),
        ),
        (TransportHeader::Tcp(t), NetHeaders::Ipv6(ip, _)) => (
            t.source_port,
            t.destination_port,
            t.checksum,
            t.calc_checksum_ipv6(&ip, payload).unwrap(),
        ),
        (TransportHeader::Udp(u), NetHeaders::Ipv4(ip, _)) => (
            u.source_port,
            u.destination_port,
            u.checksum,
            u.calc_checksum_ipv4(&ip, payload).unwrap(),
        ),
        (TransportHeader::Udp(u), NetHeaders::Ipv6(ip, _)) => (
            u.source_port,
            u.destination_port,
            u.checksum,
            u.calc_checksum_ipv6(&ip, payload).unwrap(),
        ),
        _ => panic!("no TCP or UDP"),
    };
    assert_eq!(found, computed, "transport checksum");
    (Endpoint::new(from, from_port), Endpoint::new(to, to_port))
}
