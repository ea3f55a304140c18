//! The program, run by the kernel, against a second opinion in Rust.

use super::super::bpf::{Map, MapKind, Program, ProgramKind};
use super::super::claims::Claims;
use super::super::rights::{Capability, Rights};
use super::*;
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use std::net::{Ipv4Addr, Ipv6Addr};

/// Whether the kernel can be asked here.
fn may_load() -> bool {
    let rights = Rights::of_this_thread();
    let may = rights.has(Capability::Bpf) && rights.has(Capability::NetAdmin);
    if !may {
        println!("not run: needs CAP_BPF and CAP_NET_ADMIN (root), to load programs into the kernel");
    }
    may
}

/// Claimed, this host's own addresses among them.
const CLAIMED_V4: &str = "192.0.2.0/29";
const CLAIMED_V6: &str = "2001:db8::/124";

fn is_claimed(address: impl Into<std::net::IpAddr>) -> bool {
    let address = wire::Addr::from(address.into());
    [CLAIMED_V4, CLAIMED_V6]
        .iter()
        .any(|text| text.parse::<wire::Prefix>().unwrap().contains(address))
}

const OWN_V4: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);
/// The station of the interface, of one on top of it, and of another interface.
const LINK: [u8; 6] = [2, 0, 0, 0, 0, 1];
const UPPER_LINK: [u8; 6] = [0, 0, 0x5e, 0, 1, 7];
const OTHER_LINK: [u8; 6] = [2, 0, 0, 0, 0, 3];

const OWN_V6: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1);

/// The programs in the kernel, with the maps that they look at.
struct Loaded {
    _addresses: Map<16, 1>,
    _claims: Claims,
    _stations: Map<12, 1>,
    _sockets: Map<4, 4>,
    xdp: Program,
    ingress: Program,
    _socket: Program,
}

fn loaded(everything: bool) -> Loaded {
    let addresses = Map::new(MapKind::Hash, 16, "fk_test").unwrap();
    addresses.insert(&OWN_V4.to_ipv6_mapped().octets(), &[1]).unwrap();
    addresses.insert(&OWN_V6.octets(), &[1]).unwrap();
    let claims = Claims::new().unwrap();
    for prefix in [CLAIMED_V4, CLAIMED_V6] {
        claims.insert(&prefix.parse().unwrap()).unwrap();
    }
    let stations = Map::new(MapKind::Hash, 16, "fk_test").unwrap();
    for (interface, address) in [(7, LINK), (7, UPPER_LINK), (8, OTHER_LINK)] {
        stations.insert(&station(interface, address), &[1]).unwrap();
    }
    let sockets = Map::new(MapKind::Sockets, 4, "fk_test").unwrap();
    let take = match everything {
        true => Take::Everything,
        false => Take::Routed {
            addresses: addresses.descriptor(),
            claims: claims.descriptor(),
            stations: stations.descriptor(),
            interface: 7,
        },
    };
    let load = |kind, place| Program::load(kind, &program(place, take), "fk_test").unwrap();
    Loaded {
        xdp: load(
            ProgramKind::Xdp,
            Place::Xdp {
                sockets: sockets.descriptor(),
            },
        ),
        ingress: load(ProgramKind::Traffic, Place::Ingress),
        _socket: load(ProgramKind::SocketFilter, Place::Socket),
        _addresses: addresses,
        _claims: claims,
        _stations: stations,
        _sockets: sockets,
    }
}

#[derive(Debug, PartialEq, Eq)]
enum Whose {
    Kernel,
    Ours,
}

impl Loaded {
    /// The answer of both programs; `None` where the kernel refuses to try (frames shorter than a
    /// header).
    fn judge(&self, frame: &[u8]) -> Option<Whose> {
        // No socket is in the map: Flowkeep's frames are dropped, and not passed on.
        let xdp = match self.xdp.test(frame).ok()? as i32 {
            XDP_PASS => Whose::Kernel,
            XDP_DROP => Whose::Ours,
            other => panic!("XDP answered {other}"),
        };
        // The kernel tries no IP packet that ends inside its header as a socket buffer.
        if let Ok(answer) = self.ingress.test(frame) {
            let ingress = match answer as i32 {
                TRAFFIC_NEXT => Whose::Kernel,
                TRAFFIC_DROP => Whose::Ours,
                other => panic!("tc answered {other}"),
            };
            assert_eq!(xdp, ingress, "{frame:02x?}");
        }
        Some(xdp)
    }
}

/// The rules of the module's page, said once more.
fn expected(frame: &[u8]) -> Whose {
    ours(frame).map_or(
        Whose::Kernel,
        |ours| if ours { Whose::Ours } else { Whose::Kernel },
    )
}

fn ours(frame: &[u8]) -> Option<bool> {
    let to = frame.get(..6)?;
    let is_to_group = to[0] & 1 != 0;
    if !is_to_group && to != LINK && to != UPPER_LINK {
        return Some(false);
    }
    let mut at = 14;
    let mut ether_type = frame.get(12..14)?;
    for _ in 0..2 {
        if ether_type == [0x81, 0x00] || ether_type == [0x88, 0xa8] {
            ether_type = frame.get(at + 2..at + 4)?;
            at += 4;
        }
    }
    let packet = &frame[at..];
    if ether_type == [0x08, 0x06] {
        let request = packet.get(..28)?;
        let address: [u8; 4] = request[24..].try_into().unwrap();
        let address = Ipv4Addr::from(address);
        return Some(request[..8] == [0, 1, 8, 0, 6, 4, 0, 1] && is_claimed(address) && address != OWN_V4);
    }
    if ether_type == [0x08, 0x00] {
        let address: [u8; 4] = packet.get(..20)?[16..].try_into().unwrap();
        let address = Ipv4Addr::from(address);
        let link = address.octets()[..3] == [224, 0, 0];
        return Some(!is_to_group && !link && address != Ipv4Addr::BROADCAST && address != OWN_V4);
    }
    if ether_type == [0x86, 0xdd] {
        let header = packet.get(..40)?;
        let address: [u8; 16] = header[24..].try_into().unwrap();
        if header[6] == 58 && *packet.get(40)? == 135 {
            let address: [u8; 16] = packet.get(48..64)?.try_into().unwrap();
            let address = Ipv6Addr::from(address);
            return Some(is_claimed(address) && address != OWN_V6);
        }
        let narrow = address[0] == 0xff && address[1] & 15 <= 2;
        let link = Ipv6Addr::from(address).is_unicast_link_local();
        if narrow || link || is_to_group {
            return Some(false);
        }
        let discovery = header[6] == 58 && (133..=137).contains(packet.get(40)?);
        return Some(!discovery && Ipv6Addr::from(address) != OWN_V6);
    }
    None
}

fn frame(tags: &[u16], ether_type: u16, packet: &[u8]) -> Vec<u8> {
    let mut frame = [LINK, [2, 0, 0, 0, 0, 2]].concat();
    for tag in tags {
        frame.extend(tag.to_be_bytes());
        frame.extend([0, 7]);
    }
    frame.extend(ether_type.to_be_bytes());
    frame.extend(packet);
    frame
}

fn arp(target: Ipv4Addr) -> Vec<u8> {
    let mut packet = vec![
        0, 1, 8, 0, 6, 4, 0, 1, 2, 0, 0, 0, 0, 9, 192, 0, 2, 99, 0, 0, 0, 0, 0, 0,
    ];
    packet.extend(target.octets());
    packet
}

fn solicitation(to: &str, target: &str) -> Vec<u8> {
    let mut packet = v6(to.parse().unwrap(), 58, 135);
    packet.extend(target.parse::<Ipv6Addr>().unwrap().octets());
    packet
}

fn v4(to: Ipv4Addr) -> Vec<u8> {
    let mut packet = vec![0x45, 0, 0, 28, 0, 0, 0, 0, 64, 17, 0, 0, 198, 51, 100, 1];
    packet.extend(to.octets());
    packet.extend([0, 9, 0, 9, 0, 8, 0, 0]);
    packet
}

fn v6(to: Ipv6Addr, next: u8, first: u8) -> Vec<u8> {
    let mut packet = vec![0x60, 0, 0, 0, 0, 8, next, 64];
    packet.extend(Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 9).octets());
    packet.extend(to.octets());
    packet.extend([first, 0, 0, 0, 0, 0, 0, 0]);
    packet
}

#[test]
fn the_kernel_keeps_what_is_its_own() {
    if !may_load() {
        return;
    }
    let loaded = loaded(false);
    let (stranger4, stranger6) = (Ipv4Addr::new(203, 0, 113, 9), "2001:db8::9".parse().unwrap());
    let kernels = [
        ("ARP", frame(&[], 0x0806, &[0; 28])),
        (
            "ARP, not claimed",
            frame(&[], 0x0806, &arp(Ipv4Addr::new(192, 0, 2, 8))),
        ),
        ("ARP, own", frame(&[], 0x0806, &arp(OWN_V4))),
        (
            "ARP, cut off",
            frame(&[], 0x0806, &arp(Ipv4Addr::new(192, 0, 2, 7))[..27]),
        ),
        (
            "solicitation, own",
            frame(&[], 0x86dd, &solicitation("ff02::1:ff00:1", "2001:db8::1")),
        ),
        (
            "solicitation, not claimed",
            frame(&[], 0x86dd, &solicitation("ff02::1:ff00:10", "2001:db8::10")),
        ),
        ("LLDP", frame(&[], 0x88cc, &[0; 60])),
        ("tagged ARP", frame(&[0x8100], 0x0806, &[0; 28])),
        ("own", frame(&[], 0x0800, &v4(OWN_V4))),
        ("own, tagged", frame(&[0x8100], 0x0800, &v4(OWN_V4))),
        ("own, tagged twice", frame(&[0x88a8, 0x8100], 0x0800, &v4(OWN_V4))),
        ("OSPF", frame(&[], 0x0800, &v4(Ipv4Addr::new(224, 0, 0, 5)))),
        ("DHCP", frame(&[], 0x0800, &v4(Ipv4Addr::BROADCAST))),
        ("own IPv6", frame(&[], 0x86dd, &v6(OWN_V6, 17, 0))),
        (
            "solicitation",
            frame(&[], 0x86dd, &v6("ff02::1:ff00:9".parse().unwrap(), 58, 135)),
        ),
        (
            "unicast solicitation",
            frame(&[], 0x86dd, &v6(stranger6, 58, 135)),
        ),
        ("advertisement", frame(&[], 0x86dd, &v6(stranger6, 58, 136))),
        (
            "link-local",
            frame(&[], 0x86dd, &v6("fe80::1".parse().unwrap(), 17, 0)),
        ),
        ("cut off", frame(&[], 0x0800, &v4(stranger4)[..19])),
        (
            "three tags",
            frame(&[0x8100, 0x8100, 0x8100], 0x0800, &v4(stranger4)),
        ),
    ];
    // A frame to all, or to a group, is no packet to be routed (RFC 1812 5.3.4), nor is one for
    // another station of the link.
    let addressed = |to: [u8; 6], mut frame: Vec<u8>| {
        frame[..6].copy_from_slice(&to);
        frame
    };
    let misaddressed = [
        ("broadcast", [0xff; 6]),
        ("a group", [0x33, 0x33, 0, 0, 0, 9]),
        ("another station", [2, 0, 0, 0, 0, 9]),
        ("nearly this station", [2, 0, 0, 0, 1, 1]),
        ("this station of another interface", OTHER_LINK),
    ];
    let misaddressed = misaddressed.into_iter().flat_map(|(name, to)| {
        [
            (name, addressed(to, frame(&[], 0x0800, &v4(stranger4)))),
            (name, addressed(to, frame(&[0x8100], 0x0800, &v4(stranger4)))),
            (name, addressed(to, frame(&[], 0x86dd, &v6(stranger6, 17, 0)))),
        ]
    });
    let asks_another = arp(Ipv4Addr::new(192, 0, 2, 7));
    let asked = [(
        "ARP to another station",
        addressed([2, 0, 0, 0, 0, 9], frame(&[], 0x0806, &asks_another)),
    )];
    for (name, frame) in kernels.into_iter().chain(misaddressed).chain(asked) {
        assert_eq!(loaded.judge(&frame), Some(Whose::Kernel), "{name}");
        assert_eq!(expected(&frame), Whose::Kernel, "{name}, the second opinion");
    }
    let claimed = Ipv4Addr::new(192, 0, 2, 7);
    let ours = [
        ("ARP, claimed", frame(&[], 0x0806, &arp(claimed))),
        (
            "ARP, claimed, to all",
            addressed([0xff; 6], frame(&[], 0x0806, &arp(claimed))),
        ),
        (
            "solicitation, claimed, to a group",
            addressed(
                [0x33, 0x33, 0xff, 0, 0, 2],
                frame(&[], 0x86dd, &solicitation("ff02::1:ff00:2", "2001:db8::2")),
            ),
        ),
        (
            "to an upper link",
            addressed(UPPER_LINK, frame(&[], 0x0800, &v4(stranger4))),
        ),
        ("ARP, claimed, tagged", frame(&[0x8100], 0x0806, &arp(claimed))),
        (
            "solicitation, claimed",
            frame(&[], 0x86dd, &solicitation("ff02::1:ff00:2", "2001:db8::2")),
        ),
        (
            "unicast solicitation, claimed",
            frame(&[0x8100], 0x86dd, &solicitation("2001:db8::2", "2001:db8::2")),
        ),
        ("IPv4", frame(&[], 0x0800, &v4(stranger4))),
        ("tagged", frame(&[0x8100], 0x0800, &v4(stranger4))),
        ("multicast", frame(&[], 0x0800, &v4(Ipv4Addr::new(239, 1, 2, 3)))),
        (
            "nearly broadcast",
            frame(&[], 0x0800, &v4(Ipv4Addr::new(255, 255, 255, 254))),
        ),
        ("224.0.1.1", frame(&[], 0x0800, &v4(Ipv4Addr::new(224, 0, 1, 1)))),
        ("IPv6", frame(&[], 0x86dd, &v6(stranger6, 17, 0))),
        ("ping", frame(&[], 0x86dd, &v6(stranger6, 58, 128))),
        (
            "wide multicast",
            frame(&[], 0x86dd, &v6("ff0e::1".parse().unwrap(), 17, 0)),
        ),
    ];
    for (name, frame) in ours {
        assert_eq!(loaded.judge(&frame), Some(Whose::Ours), "{name}");
        assert_eq!(expected(&frame), Whose::Ours, "{name}, the second opinion");
    }
}

#[test]
fn a_bridge_takes_every_frame() {
    if !may_load() {
        return;
    }
    let loaded = loaded(true);
    for bytes in [frame(&[], 0x0806, &[0; 28]), frame(&[], 0x0800, &v4(OWN_V4))] {
        assert_eq!(loaded.judge(&bytes), Some(Whose::Ours));
    }
}

#[test]
fn any_frame_is_judged_as_the_rules_say() {
    if !may_load() {
        return;
    }
    let loaded = loaded(false);
    let ether_type = prop_oneof![
        Just(0x0800_u16),
        Just(0x0806),
        Just(0x86dd),
        Just(0x8100),
        Just(0x88a8),
        any::<u16>()
    ];
    let octets = prop_oneof![
        4 => any::<u8>(),
        1 => Just(0xff_u8),
        1 => Just(0xfe),
        1 => Just(224),
        1 => Just(58),
        1 => 133..=137_u8,
        2 => Just(0)
    ];
    let stations = prop_oneof![
        6 => Just(LINK),
        1 => Just(UPPER_LINK),
        1 => Just(OTHER_LINK),
        1 => Just([0xff; 6]),
        1 => any::<[u8; 6]>()
    ];
    let tags = proptest::collection::vec(prop_oneof![Just(0x8100_u16), Just(0x88a8)], 0..4);
    let body = proptest::collection::vec(octets, 0..60);
    let tried = std::cell::Cell::new(0);
    let mut runner = TestRunner::new(Config::with_cases(Config::default().cases.max(250) * 8));
    runner
        .run(
            &(stations, tags, ether_type, body),
            |(to, tags, ether_type, body)| {
                let mut bytes = frame(&tags, ether_type, &body);
                bytes[..6].copy_from_slice(&to);
                if let Some(whose) = loaded.judge(&bytes) {
                    tried.set(tried.get() + 1);
                    prop_assert_eq!(whose, expected(&bytes), "{:02x?}", bytes);
                }
                Ok(())
            },
        )
        .unwrap();
    assert!(
        tried.get() > 1000,
        "the kernel judged only {} frames",
        tried.get()
    );
}
