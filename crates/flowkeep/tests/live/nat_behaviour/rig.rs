//! A cluster with NAT, and a wire on each side of it.

use super::packets::{End, Ip, UDP, udp};
use crate::network::{Network, PATIENCE, network};
use adapters::buffers;
use adapters::open::{BoxPort, Ports};
use lab::Namespace;
use lab::process::{Process, Run};
use runtime::env::{Burst, Port};
use serde_json::Value;
use std::collections::{BTreeMap, VecDeque};
use std::fs;
use std::time::{Duration, Instant};
use wire::{LinkType, Pool};

/// Inside hosts.
pub const X: [u8; 4] = [10, 0, 1, 1];
pub const Y: [u8; 4] = [10, 0, 1, 2];
/// Outside hosts, none of them in the gateway's network.
pub const R: [u8; 4] = [198, 51, 100, 7];
pub const S: [u8; 4] = [192, 0, 2, 9];
pub const T: [u8; 4] = [198, 51, 100, 200];
/// The gateway's own addresses.
pub const GATEWAY_IN: [u8; 4] = [10, 0, 1, 254];
pub const GATEWAY_OUT: [u8; 4] = [203, 0, 113, 254];
/// The pool, where a test has one address.
pub const POOL: [u8; 4] = [203, 0, 113, 64];

/// A packet that must not come is waited for so long, and counted besides.
const NOTHING: Duration = Duration::from_millis(250);
/// A packet that must come has so long, on a busy machine.
const SOON: Duration = Duration::from_secs(60);

const MACS: [[u8; 6]; 4] = [
    [2, 0, 0, 0, 1, 1],
    [2, 0, 0, 0, 1, 254],
    [2, 0, 0, 0, 2, 1],
    [2, 0, 0, 0, 2, 254],
];

/// One end of a cable, in a namespace without addresses.
pub struct Wire {
    port: BoxPort,
    pool: Pool,
    _opener: Ports,
    own: [u8; 6],
    gateway: [u8; 6],
    seen: VecDeque<Ip>,
}

impl Wire {
    fn new(host: &Namespace, own: [u8; 6], gateway: [u8; 6]) -> Self {
        let opened = std::thread::scope(|scope| {
            let thread = scope.spawn(|| {
                host.enter().unwrap();
                let mut opener = Ports::new();
                let mut port = opener
                    .open("afpacket:eth0?take=everything", "afpacket:eth0?take=everything")
                    .unwrap();
                opener.complete().unwrap();
                let mut pool = buffers::pool(2048, port.frame_max(), 0).unwrap();
                port.attach(&mut pool).unwrap();
                (port, pool, opener)
            });
            thread.join().unwrap()
        });
        let (port, pool, opener) = opened;
        Wire {
            port,
            pool,
            _opener: opener,
            own,
            gateway,
            seen: VecDeque::new(),
        }
    }

    /// Puts a packet on the wire.
    pub fn send(&mut self, packet: &Ip) {
        self.send_bytes(&packet.bytes());
    }

    pub fn send_bytes(&mut self, packet: &[u8]) {
        let mut frame = Vec::new();
        frame.extend(self.gateway);
        frame.extend(self.own);
        frame.extend([8, 0]);
        frame.extend(packet);
        let mut buffer = self.pool.take().expect("buffers");
        assert!(buffer.set_frame(&frame, LinkType::Ethernet));
        let mut burst = Burst::new();
        burst.push(buffer);
        self.port.transmit(0, &mut self.pool, &mut burst);
        assert!(burst.is_empty());
        self.port.reap_transmitted(&mut self.pool);
    }

    fn look(&mut self) {
        let mut burst = Burst::new();
        self.port.receive(1, &mut self.pool, &mut burst);
        for packet in burst.drain(..) {
            let frame = packet.frame();
            let ip = (frame.len() > 14 && frame[12..14] == [8, 0]).then(|| Ip::read(&frame[14..]));
            self.seen.extend(ip.flatten());
            self.pool.give(packet);
        }
        self.port.reap_transmitted(&mut self.pool);
    }

    /// The next packet, within a time.
    fn within(&mut self, time: Duration) -> Option<Ip> {
        let began = Instant::now();
        loop {
            if let Some(packet) = self.seen.pop_front() {
                assert!(packet.header_holds, "{packet:?}");
                let part = packet.more || packet.offset > 0;
                assert!(part || packet.transport_holds(), "{packet:?}");
                return Some(packet);
            }
            let is_over = began.elapsed() > time;
            self.look();
            if !self.seen.is_empty() {
                continue;
            }
            if is_over {
                return None;
            }
            std::thread::sleep(Duration::from_micros(100));
        }
    }

    /// The next packet, which must come. Its checksums are right, or the test ends here.
    #[track_caller]
    pub fn next(&mut self) -> Ip {
        self.within(SOON).expect("a packet")
    }

    /// The next packets.
    #[track_caller]
    pub fn take(&mut self, count: usize) -> Vec<Ip> {
        (0..count).map(|_| self.next()).collect()
    }

    /// Nothing comes.
    #[track_caller]
    pub fn silent(&mut self) {
        self.silent_for(NOTHING);
    }

    #[track_caller]
    pub fn silent_for(&mut self, time: Duration) {
        assert_eq!(self.within(time), None);
    }
}

/// A test of timeouts, with its times as they are written; where the machine was too slow for them
/// (`None`), with longer ones.
pub fn timed(test: impl Fn(u32) -> Option<()>) {
    if [1, 3, 9].into_iter().all(|scale| test(scale).is_none()) {
        panic!("this machine is too slow for it");
    }
}

/// Whether so little of a timeout has gone since it began that it cannot be over yet.
pub fn in_time(since: Instant, timeout: Duration) -> Option<()> {
    (since.elapsed() < timeout * 7 / 10).then_some(())
}

/// The cluster and both wires.
pub struct Rig {
    // Dropped in this order: programs before the namespaces that they run in.
    cluster: Process,
    pub inside: Wire,
    pub outside: Wire,
    pub network: Network,
}

/// A cluster whose NAT has these settings beside a pool of one address, or a line that says what it
/// lacks.
pub fn rig(settings: &str) -> Option<Rig> {
    rig_of("[\"203.0.113.64\"]", settings)
}

/// The same with another pool.
pub fn rig_of(pool: &str, settings: &str) -> Option<Rig> {
    let network = network(&[("ip", "iproute2")])?;
    let (client, gateway, server) = (&network.client, &network.gateway, &network.server);
    let mac = |mac: [u8; 6]| mac.map(|byte| format!("{byte:02x}")).join(":");
    for (host, interface, own) in [
        (client, "eth0", MACS[0]),
        (gateway, "left", MACS[1]),
        (server, "eth0", MACS[2]),
        (gateway, "right", MACS[3]),
    ] {
        host.set(&format!("net.ipv6.conf.{interface}.disable_ipv6"), "1")
            .unwrap();
        host.ip(&format!("link set {interface} address {}", mac(own)))
            .unwrap();
    }
    gateway.address("left", "10.0.1.254/24").unwrap();
    gateway.address("right", "203.0.113.254/24").unwrap();
    gateway.ip("route add default via 203.0.113.1").unwrap();
    let neighbour = |address: &str, interface: &str, whose: [u8; 6]| {
        let words = format!(
            "neighbour replace {address} lladdr {} dev {interface} nud permanent",
            mac(whose)
        );
        gateway.ip(&words).unwrap();
    };
    for number in 1..=9 {
        neighbour(&format!("10.0.1.{number}"), "left", MACS[0]);
    }
    neighbour("203.0.113.1", "right", MACS[2]);
    let file = network.folder.path("nat.toml");
    let config = format!(
        "runtimes = 2\ninside = [\"10.0.0.0/8\"]\n\
         [[port]]\nname = \"lan\"\nside = \"inside\"\ninput = \"afpacket:left\"\noutput = \"afpacket:left\"\n\
         [[port]]\nname = \"wan\"\nside = \"outside\"\ninput = \"afpacket:right\"\noutput = \"afpacket:right\"\n\
         [[chain]]\nname = \"gateway\"\nfunctions = [\"nat\", \"forward\"]\n\
         [function.nat]\npool = {pool}\n{settings}\n"
    );
    fs::write(&file, config).unwrap();
    let flowkeep = env!("CARGO_BIN_EXE_flowkeep");
    let socket = network.folder.path("socket");
    let words = format!("{flowkeep} run {file} --json --for 5m --socket {socket}");
    let mut cluster = gateway.start(&words).unwrap();
    let status = format!("{flowkeep} status --json --socket {socket}");
    let began = Instant::now();
    while gateway.run(&status, Run::within(PATIENCE)).is_err() {
        let ended = cluster.ended().unwrap();
        assert!(
            began.elapsed() < PATIENCE && ended.is_none(),
            "{:?}",
            cluster.printed()
        );
    }
    let inside = Wire::new(client, MACS[0], MACS[1]);
    let outside = Wire::new(server, MACS[2], MACS[3]);
    Some(Rig {
        cluster,
        inside,
        outside,
        network,
    })
}

impl Rig {
    /// A packet from inside that must leave: as it is seen outside.
    #[track_caller]
    pub fn sent(&mut self, packet: &Ip) -> Ip {
        self.inside.send(packet);
        self.outside.next()
    }

    /// A packet from outside that must arrive: as it is seen inside.
    #[track_caller]
    pub fn arrived(&mut self, packet: &Ip) -> Ip {
        self.outside.send(packet);
        self.inside.next()
    }

    /// A datagram from inside: the external endpoint that it leaves with.
    #[track_caller]
    pub fn out(&mut self, from: End, to: End) -> End {
        let seen = self.sent(&udp(from, to, b"out"));
        assert_eq!(
            (seen.protocol, seen.ends().1, seen.text()),
            (UDP, to, &b"out"[..])
        );
        seen.ends().0
    }

    /// A datagram from outside that must arrive: the host that it reaches.
    #[track_caller]
    pub fn back(&mut self, from: End, to: End) -> End {
        let seen = self.arrived(&udp(from, to, b"back"));
        assert_eq!(
            (seen.protocol, seen.ends().0, seen.text()),
            (UDP, from, &b"back"[..])
        );
        seen.ends().1
    }

    /// A packet from outside that must not arrive, nor be answered.
    #[track_caller]
    pub fn refused(&mut self, packet: &Ip) {
        self.outside.send(packet);
        self.inside.silent();
        self.outside.silent_for(Duration::ZERO);
    }

    /// Ends the cluster. All packets are accounted for, and these, by reason, are all that were
    /// dropped.
    #[track_caller]
    pub fn end(self, drops: &[(&str, u64)]) {
        let expected = drops.iter().map(|(reason, count)| ((*reason).to_owned(), *count));
        assert_eq!(self.dropped(), expected.collect());
    }

    /// Ends the cluster. All packets are accounted for; answers the dropped ones, by reason.
    #[track_caller]
    pub fn dropped(self) -> BTreeMap<String, u64> {
        let ended = self.cluster.stop().unwrap();
        assert!(ended.status.success(), "{ended:?}");
        let report: Value = serde_json::from_str(ended.out.lines().last().expect("a report")).unwrap();
        let packets = &report["packets"];
        let number = |value: &Value| value.as_u64().unwrap();
        let dropped: BTreeMap<String, u64> = packets["dropped"]
            .as_object()
            .unwrap()
            .iter()
            .map(|(reason, count)| (reason.clone(), number(count)))
            .filter(|(_, count)| *count > 0)
            .collect();
        let out = number(&packets["out"]) + dropped.values().sum::<u64>() + number(&packets["held"]);
        assert_eq!(
            number(&packets["in"]) + number(&packets["made"]),
            out,
            "{packets}"
        );
        dropped
    }
}
