//! The effect of hosts on the outside link on established flows: neighbours that do not answer, and
//! floods of frames that make the kernel learn neighbours and routes.
//!
//! ```text
//!   client ── probe, 1000 datagrams a second ──► gateway ──► server
//!     └ datagrams to addresses that no host has     ▲
//!                                                   └ a stranger on the server's link: ARP, neighbour discovery, router
//!                                                     advertisements, as they should be and with bytes changed
//! ```
//!
//! The gateway's own entries for server and client are permanent, as where an operator does not
//! trust a link. Without that a stranger takes an address over by ARP alone, from any router.

use crate::frames::Host;
use crate::moving::probe;
use crate::network::PATIENCE;
use crate::site::{SERVER, Site, site};
use lab::Namespace;
use lab::process::Run;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use std::net::{Ipv4Addr, Ipv6Addr, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use wire::checksum::checksum;

const PROGRAMS: &[(&str, &str)] = &[("ip", "iproute2")];
const SECONDS: u64 = 12;
/// Frames of a flood at a time, and how long until the next.
const TOGETHER: usize = 200;
const STEP: Duration = Duration::from_millis(50);
/// Packets that are held for a silent neighbour are held for longer: three seconds.
const KNOWN: Duration = Duration::from_secs(2);
/// A stop takes no longer: the time until waiting packets are given up, and some seconds in which
/// the kernel of a busy machine lets go of interfaces.
const STOPPED: Duration = Duration::from_secs(20);
/// In the server's network; no host has it.
const SILENT: [u8; 3] = [203, 0, 113];

pub fn link_address(host: &Namespace, interface: &str) -> String {
    let words = format!("cat /sys/class/net/{interface}/address");
    host.run(&words, Run::within(PATIENCE)).unwrap().trim().to_owned()
}

/// The gateway believes in the link addresses of client and server, whatever comes.
fn permanent(site: &Site) {
    let (client, server) = (&site.network.client, &site.network.server);
    for (host, interface, address) in [(client, "left", "10.0.1.1"), (server, "right", SERVER)] {
        let link = link_address(host, "eth0");
        let words = format!("neigh replace {address} lladdr {link} dev {interface} nud permanent");
        site.network.gateway.ip(&words).unwrap();
    }
    site.introduce_pool();
}

/// Datagrams from the client to an address that no host has: so many, each from the next of so many
/// ports.
fn to_silence(site: &Site, last: u8, datagrams: usize, ports: usize) {
    std::thread::scope(|scope| {
        let client = &site.network.client;
        let sent = scope.spawn(move || {
            client.enter().unwrap();
            let sockets: Vec<UdpSocket> = (0..ports)
                .map(|_| UdpSocket::bind(("10.0.1.1", 0)).unwrap())
                .collect();
            let [a, b, c] = SILENT;
            for (number, socket) in sockets.iter().cycle().take(datagrams).enumerate() {
                let to = (Ipv4Addr::new(a, b, c, last), 9);
                socket.send_to(b"hello", to).unwrap();
                if number % 100 == 99 {
                    // As fast as a port on a busy machine takes them.
                    std::thread::sleep(Duration::from_millis(5));
                }
            }
        });
        sent.join().unwrap();
    });
}

/// How many of so many datagrams from the client to an address of the server's come back.
fn echoed(site: &Site, address: &str, count: u8) -> usize {
    const PORT: u16 = 7011;
    let (begun, begins) = std::sync::mpsc::channel();
    let within = |host: &Namespace, address: (&str, u16)| {
        host.enter().unwrap();
        let socket = UdpSocket::bind(address).unwrap();
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        socket
    };
    std::thread::scope(|scope| {
        scope.spawn(move || {
            let socket = within(&site.network.server, (address, PORT));
            begun.send(()).unwrap();
            let mut byte = [0];
            for _ in 0..count {
                if let Ok((_, from)) = socket.recv_from(&mut byte) {
                    socket.send_to(&byte, from).unwrap();
                }
            }
        });
        let client = scope.spawn(move || {
            begins.recv().unwrap();
            let socket = within(&site.network.client, ("10.0.1.1", 0));
            socket.connect((address, PORT)).unwrap();
            for number in 0..count {
                socket.send(&[number]).unwrap();
            }
            (0..count).filter(|_| socket.recv(&mut [0]).is_ok()).count()
        });
        client.join().unwrap()
    })
}

fn waits_for(site: &Site, what: &str, limit: Duration, holds: impl Fn(&serde_json::Value) -> bool) {
    let began = Instant::now();
    while !holds(&site.status()) && began.elapsed() < limit {
        std::thread::sleep(Duration::from_millis(50));
    }
    println!("{what} after {:?}", began.elapsed());
    let status = site.status();
    site.log
        .expect(what, holds(&status), status["packets"].to_string());
}

/// Ends it however the thread ends.
struct On<'a>(&'a AtomicBool);

impl Drop for On<'_> {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Release);
    }
}

/// A probe while something else is done; at most a hundredth of it is lost, and no second.
fn probed(site: &Site, what: &str, work: impl FnOnce()) {
    let (on, before) = (AtomicBool::new(true), site.overload());
    let mut seen = std::thread::scope(|scope| {
        let probing = scope.spawn(|| {
            let (client, server) = (&site.network.client, &site.network.server);
            probe::probe(client, server, "10.0.1.1", 7007, &on)
        });
        std::thread::sleep(Duration::from_secs(1));
        let end = On(&on);
        work();
        drop(end);
        probing.join().unwrap()
    });
    // Packets without room on a machine with other work are counted, and not this test's concern.
    let overload = site.overload() - before;
    let told = format!("{}; {overload} without room", seen.told());
    println!("{what}: {told}");
    let missing = seen.missing().saturating_sub(overload);
    let good = seen.sent > 1000 && missing * 100 <= seen.sent && !seen.stood_still(1000);
    site.log.expect(what, good, told);
}

#[test]
fn a_neighbour_that_does_not_answer_holds_nothing() {
    let Some(mut site) = site("afpacket", PROGRAMS) else {
        return;
    };
    permanent(&site);
    site.start("");
    let held = |status: &serde_json::Value| status["packets"]["held"].as_u64() == Some(0);
    probed(&site, "probe beside a silent neighbour", || {
        // From one client, in one flow: all are answered when the first is.
        to_silence(&site, 200, 50, 1);
        waits_for(&site, "nothing waits", PATIENCE, held);
        // The neighbour is known to be silent.
        to_silence(&site, 200, 50, 50);
        waits_for(&site, "nothing waits for what is known", KNOWN, held);
        // The host's flows move while some of them wait.
        for (last, order) in [(201, "--to 1"), (202, "--to 0"), (203, "--to 1"), (204, "--to 0")] {
            to_silence(&site, last, 50, 5);
            let words = format!("flow migrate --all {order} --json");
            let receipt = site.asked(&words).unwrap_or_else(|error| error);
            let good = receipt.contains("\"flows_failed\":0");
            site.log.expect("flows move while others wait", good, receipt);
        }
        // Nor do waiting packets keep a runtime from being emptied: the one that has the host.
        to_silence(&site, 206, 50, 5);
        let said = site.asked("runtime drain 0 --json").unwrap_or_else(|error| error);
        let drained: serde_json::Value = serde_json::from_str(&said).unwrap_or_default();
        let of = |figure: &str| drained[figure].as_u64();
        let good = of("flows_left") == Some(0) && of("flows_failed") == Some(0);
        let good = good && of("flows_moved") > Some(0);
        site.log
            .expect("a runtime is drained while others wait", good, said);
        let resumed = site.asked("runtime resume 0");
        site.log
            .expect("it takes flows again", resumed.is_ok(), format!("{resumed:?}"));
        // As many packets as would fill the room of all that wait, and a host that does answer.
        to_silence(&site, 205, 12_000, 100);
        let answered = echoed(&site, "203.0.113.11", 3);
        site.log
            .expect("another neighbour is found", answered == 3, answered);
    });
    // The end does not wait for waiting packets, one behind the other: it comes, and with accounts
    // that hold.
    to_silence(&site, 210, 50, 1);
    to_silence(&site, 211, 50, 50);
    site.end_within(STOPPED);
}

/// Makes frames that have a kernel learn of neighbours and routes.
struct Stranger {
    random: StdRng,
    gateway: [u8; 6],
}

impl Stranger {
    fn new(site: &Site) -> Self {
        let text = link_address(&site.network.gateway, "right");
        let mut octets = text
            .split(':')
            .map(|octet| u8::from_str_radix(octet, 16).unwrap());
        Stranger {
            random: StdRng::seed_from_u64(11),
            gateway: std::array::from_fn(|_| octets.next().unwrap()),
        }
    }

    fn link(&mut self) -> [u8; 6] {
        let mut link: [u8; 6] = self.random.random();
        link[0] = 2;
        link
    }

    /// The host that a frame claims to be from: any of the network, the server among them.
    fn claimed(&mut self) -> Ipv4Addr {
        let [a, b, c] = SILENT;
        let last = match self.random.random_range(0..4) {
            0 => 1,
            _ => self.random.random_range(2..64),
        };
        Ipv4Addr::new(a, b, c, last)
    }

    fn ethernet(&mut self, to: [u8; 6], kind: u16) -> Vec<u8> {
        let from = self.link();
        [&to[..], &from, &kind.to_be_bytes()].concat()
    }

    /// A request, or a reply, for the gateway's address.
    fn arp(&mut self) -> Vec<u8> {
        let to = if self.random.random() {
            [0xff; 6]
        } else {
            self.gateway
        };
        let mut frame = self.ethernet(to, 0x0806);
        let (operation, claimed, link) = (self.random.random_range(1..3_u8), self.claimed(), self.link());
        frame.extend([0, 1, 8, 0, 6, 4, 0, operation]);
        frame.extend(link);
        frame.extend(claimed.octets());
        frame.extend(self.gateway);
        frame.extend([203, 0, 113, 254]);
        frame.resize(60, 0);
        frame
    }

    fn icmpv6(&mut self, source: Ipv6Addr, destination: Ipv6Addr, message: &[u8]) -> Vec<u8> {
        let to = self.gateway;
        let mut frame = self.ethernet(to, 0x86dd);
        frame.extend([0x60, 0, 0, 0]);
        frame.extend((message.len() as u16).to_be_bytes());
        frame.extend([58, 255]);
        frame.extend(source.octets());
        frame.extend(destination.octets());
        let at = frame.len();
        frame.extend(message);
        let pseudo = [
            &source.octets()[..],
            &destination.octets(),
            &(message.len() as u32).to_be_bytes(),
            &58_u32.to_be_bytes(),
            message,
        ];
        let sum = checksum(&pseudo.concat());
        frame[at + 2..at + 4].copy_from_slice(&sum.to_be_bytes());
        frame
    }

    /// A solicitation, an advertisement or a redirect about an IPv4 address as IPv6 maps it; or
    /// about any other.
    fn neighbour_discovery(&mut self) -> Vec<u8> {
        let own: Ipv6Addr = "2001:db8:2::fe".parse().unwrap();
        let all: Ipv6Addr = "ff02::1".parse().unwrap();
        let claimed = match self.random.random_range(0..4) {
            0 => Ipv6Addr::new(0x2001, 0xdb8, 2, 0, 0, 0, 0, self.random.random_range(2..500)),
            _ => self.claimed().to_ipv6_mapped(),
        };
        let local = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, self.random.random());
        let link = self.link();
        let option = |kind: u8| [&[kind, 1][..], &link].concat();
        let octets = claimed.octets();
        match self.random.random_range(0..5) {
            0 => {
                let message = [&[135, 0, 0, 0, 0, 0, 0, 0][..], &own.octets(), &option(1)].concat();
                self.icmpv6(claimed, own, &message)
            }
            1 => {
                let message = [&[136, 0, 0, 0, 0x20, 0, 0, 0][..], &octets, &option(2)].concat();
                let source = if self.random.random() { claimed } else { local };
                self.icmpv6(source, all, &message)
            }
            2 => {
                let message = [&[137, 0, 0, 0, 0, 0, 0, 0][..], &octets, &octets, &option(2)].concat();
                self.icmpv6(local, own, &message)
            }
            // A router, with a network that is on the link, and a way to another (RFC 4861 4.6.2,
            // RFC 4191 2.3).
            kind => {
                let network = [&octets[..12], &[203, 0, 113, 0]].concat();
                let head = [134, 0, 0, 0, 64, 0, 7, 8, 0, 0, 0, 0, 0, 0, 0, 0];
                let on_link = [
                    &[3, 4, 120, 0xc0, 0, 0, 14, 16, 0, 0, 14, 16, 0, 0, 0, 0][..],
                    &network,
                ];
                let way = [&[24, 3, 120, 8, 0, 0, 14, 16][..], &network];
                let rest = if kind == 3 { on_link } else { way };
                let message = [&head[..], &option(1), &rest.concat()].concat();
                self.icmpv6(local, all, &message)
            }
        }
    }

    fn frames(&mut self, count: usize) -> Vec<Vec<u8>> {
        let mut frame = |_| {
            let mut frame = match self.random.random() {
                true => self.arp(),
                false => self.neighbour_discovery(),
            };
            if self.random.random_range(0..3) == 0 {
                for _ in 0..self.random.random_range(1..4) {
                    let at = self.random.random_range(12..frame.len());
                    frame[at] = self.random.random();
                }
            }
            frame
        };
        (0..count).map(&mut frame).collect()
    }
}

#[test]
fn floods_from_outside_harm_no_established_flow() {
    let Some(mut site) = site("afpacket", PROGRAMS) else {
        return;
    };
    permanent(&site);
    site.start("");
    let mut stranger = Stranger::new(&site);
    let mut port = Host::new(&site.network.server, "afpacket:eth0");
    probed(&site, "probe under a flood", || {
        let began = Instant::now();
        let mut last = 100;
        while began.elapsed() < Duration::from_secs(SECONDS) {
            port.send(&stranger.frames(TOGETHER));
            if last < 180 {
                last += 1;
                to_silence(&site, last, 20, 4);
            }
            std::thread::sleep(STEP);
        }
    });
    drop(port);
    let gateway = &site.network.gateway;
    let learned = gateway
        .run("ip neigh show dev right", Run::within(PATIENCE))
        .unwrap();
    println!(
        "the gateway's kernel has learned {} neighbours",
        learned.lines().count()
    );
    // The kernel has an entry of IPv6 by the address of an IPv4 neighbour, and loses it again.
    probed(&site, "probe beside a mapped neighbour", || {
        for change in ["replace", "del"] {
            let link = if change == "replace" {
                "lladdr 02:00:00:00:66:66 nud permanent"
            } else {
                ""
            };
            gateway
                .ip(&format!("-6 neigh {change} ::ffff:{SERVER} dev right {link}"))
                .unwrap();
            std::thread::sleep(Duration::from_secs(2));
        }
    });
    site.end();
}
