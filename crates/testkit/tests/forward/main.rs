//! The forwarding step on the real workers: which packets leave, by which port, with which
//! addresses, and the errors to senders.

mod frames;
mod reverse;
mod rig;
mod silent;

use frames::{error, ping, quoted, seen, udp, udp_tagged, with_options, with_routing};
use functions::forward::Config;
use functions::forward::tables::{Kind, Way};
use rig::{DMZ, LAN, Router, WAN, neighbour, own_link, route, special, their_link};
use std::net::IpAddr;
use std::time::Duration;

const SECOND: u64 = 1_000_000_000;

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

#[test]
fn a_packet_leaves_by_its_route_with_one_hop_less() {
    let mut router = Router::new(false);
    for (from, to, port, out, interface, host) in [
        (LAN, ("10.0.0.5", "192.0.2.9"), 0, WAN, 3, 254),
        (WAN, ("192.0.2.9", "10.0.0.5"), 0, LAN, 2, 5),
        // To the same side: the route decides, not the side.
        (LAN, ("10.0.0.5", "10.9.0.9"), 0, DMZ, 4, 9),
        (LAN, ("fd00:1::5", "2001:db8::9"), 0, WAN, 3, 254),
        (WAN, ("2001:db8::9", "fd00:1::5"), 0, LAN, 2, 5),
    ] {
        let _: i32 = port;
        let (by, frame) = router.one(from, udp(to.0, to.1, 64, b"hello"));
        let seen = seen(&frame);
        assert_eq!(by, out);
        assert_eq!(
            (seen.to, seen.from),
            (their_link(interface, host), own_link(interface))
        );
        assert_eq!(
            (seen.source, seen.destination, seen.hops),
            (ip(to.0), ip(to.1), 63)
        );
        assert_eq!(seen.payload, b"hello");
    }
    assert_eq!(router.counter("looked_up"), 5, "each way of each flow once");
    router.one(LAN, udp("10.0.0.5", "192.0.2.9", 64, b"again"));
    assert_eq!(router.counter("looked_up"), 5, "and then it is known");
}

#[test]
fn two_switches_share_the_ports() {
    let mut router = Router::with(2, false, Config::default());
    for (from, to, out) in [
        (LAN, "192.0.2.9", WAN),
        (LAN, "10.9.0.9", DMZ),
        (WAN, "10.9.0.9", DMZ),
    ] {
        let source = if from == LAN { "10.0.0.5" } else { "198.51.100.7" };
        assert_eq!(router.one(from, udp(source, to, 64, b"x")).0, out);
    }
}

#[test]
fn the_last_hop_is_told_to_the_sender() {
    let mut router = Router::new(false);
    for (from, source, to, own, kind) in [
        (LAN, "10.0.0.5", "192.0.2.9", "10.0.0.1", (11, 0)),
        (WAN, "192.0.2.9", "10.0.0.5", "203.0.113.1", (11, 0)),
        (LAN, "fd00:1::5", "2001:db8::9", "fd00:1::1", (3, 0)),
    ] {
        for hops in [1, 0] {
            let packet = udp(source, to, hops, b"x");
            let (by, frame) = router.one(from, packet.clone());
            let error = seen(&frame);
            assert_eq!(by, from);
            assert_eq!((error.source, error.destination), (ip(own), ip(source)));
            assert_eq!(error.about, kind);
            assert_eq!(error.payload, packet[14..], "as it came");
        }
    }
    assert_eq!(router.counter("time_exceeded"), 6);
    // Addressed on the link as any packet of that route.
    let (_, frame) = router.one(LAN, udp("10.0.0.5", "192.0.2.9", 1, b"x"));
    assert_eq!(
        (seen(&frame).to, seen(&frame).from),
        (their_link(2, 5), own_link(2))
    );
}

/// The first packet of a flow is answered here, the next by another router, the third arrives: as
/// traceroute and mtr send them, with one identifier.
#[test]
fn traceroute_through_a_nat_sees_every_hop() {
    let mut router = Router::new(true);
    let request = |hops, seq| ping("10.0.0.5", "192.0.2.9", hops, 77, seq);
    let (by, frame) = router.one(LAN, request(1, 1));
    let here = seen(&frame);
    assert_eq!((by, here.source, here.about), (LAN, ip("10.0.0.1"), (11, 0)));
    assert_eq!(
        here.payload,
        request(1, 1)[14..],
        "the sender sees its own packet, not the translated one"
    );
    let (by, out) = router.one(LAN, request(2, 2));
    assert_eq!((by, seen(&out).source), (WAN, ip("203.0.113.8")));
    let (by, frame) = router.one(WAN, error("198.18.0.1", "203.0.113.8", (11, 0), [0; 4], &out));
    let there = seen(&frame);
    assert_eq!(
        (by, there.source, there.destination),
        (LAN, ip("198.18.0.1"), ip("10.0.0.5"))
    );
    let quote = quoted(&there);
    assert_eq!(
        (quote.source, quote.destination),
        (ip("10.0.0.5"), ip("192.0.2.9"))
    );
    let (_, out) = router.one(LAN, request(3, 3));
    let arrived = seen(&out);
    let reply = {
        let mut frame = frames::ethernet(0, false);
        let id = u16::from_be_bytes([arrived.rest[0], arrived.rest[1]]);
        etherparse::PacketBuilder::ipv4([192, 0, 2, 9], [203, 0, 113, 8], 60)
            .icmpv4_echo_reply(id, 3)
            .write(&mut frame, b"ping")
            .unwrap();
        frame
    };
    let (by, frame) = router.one(WAN, reply);
    let echo = seen(&frame);
    assert_eq!(
        (by, echo.source, echo.destination),
        (LAN, ip("192.0.2.9"), ip("10.0.0.5"))
    );
    assert_eq!((echo.hops, echo.rest), (59, [0, 77, 0, 3]));
}

#[test]
fn what_is_too_long_is_told_or_cut() {
    let mut router = Router::new(true);
    router.interfaces[1].mtu = 1400;
    router.publish();
    // Don't fragment.
    let mut packet = udp("10.0.0.5", "192.0.2.9", 64, &[7; 1400]);
    assert_eq!(packet[20] & 0x40, 0x40, "etherparse says so");
    let (by, frame) = router.one(LAN, packet.clone());
    let told = seen(&frame);
    assert_eq!((by, told.source, told.about), (LAN, ip("10.0.0.1"), (3, 4)));
    assert_eq!(told.rest, [0, 0, 5, 120], "1400 in the low half (RFC 1191)");
    assert_eq!(told.payload, packet[14..][..548], "576 bytes in all, as it came");
    // The packet may be cut.
    packet[20] &= !0x40;
    fix_header(&mut packet);
    let parts = router.feed_in(LAN, [packet.clone()]);
    assert_eq!(parts.len(), 2);
    let whole = join(&parts);
    assert_eq!(whole[8..], [7; 1400]);
    assert_eq!(router.counter("fragmented"), 1);
    // A route may say less than its interface.
    router.routes[4].mtu = 600;
    router.publish();
    let parts = router.feed_in(LAN, [packet.clone()]);
    assert_eq!(parts.len(), 3);
    assert_eq!(join(&parts)[8..], [7; 1400]);
    assert!(parts.iter().all(|(by, frame)| *by == WAN && frame.len() <= 614));
    // An MTU so small that the packet would make more parts than one may: its sender cuts it.
    router.routes[4].mtu = 150;
    router.publish();
    let (by, frame) = router.one(LAN, packet.clone());
    let told = seen(&frame);
    assert_eq!((by, told.about, told.rest), (LAN, (3, 4), [0, 0, 0, 150]));
    // A packet whose sender is not told is counted under the same name.
    packet[..6].copy_from_slice(&[0xff; 6]);
    assert_eq!(router.refused(LAN, packet), "too_many_parts");
}

/// A damaged header is no packet of the host that it names (RFC 1812 5.2.2): it is not forwarded,
/// cut, answered or waited for, and a sum made from scratch would hide the damage.
#[test]
fn a_damaged_header_goes_nowhere() {
    for nat in [false, true] {
        let mut router = Router::new(nat);
        router.interfaces[1].mtu = 1000;
        router.publish();
        let mut plain = udp("10.0.0.5", "192.0.2.9", 64, b"x");
        let mut last = udp("10.0.0.5", "192.0.2.9", 1, b"x");
        let mut long = udp("10.0.0.5", "192.0.2.9", 64, &[7; 1400]);
        let mut cut = long.clone();
        cut[20] &= !0x40;
        fix_header(&mut cut);
        let mut options = with_options(&plain, &[148, 4, 0, 0]);
        let mut elsewhere = udp("10.0.0.5", "203.0.113.77", 64, b"x");
        let frames = [
            &mut plain,
            &mut last,
            &mut long,
            &mut cut,
            &mut options,
            &mut elsewhere,
        ];
        // As first packets, and once the flow is known.
        for pass in 0..2 {
            for (n, right) in frames.iter().enumerate() {
                // The identification, which no function looks at; of options, their value.
                let mut damaged = right.to_vec();
                damaged[if n == 4 { 36 } else { 18 }] ^= 0x10;
                let reason = router.refused(LAN, damaged);
                assert_eq!(reason, "bad_header_checksum", "{n}, {pass}");
            }
            router.one(LAN, udp("10.0.0.5", "192.0.2.9", 64, b"x"));
        }
        let told = ["time_exceeded", "too_big", "unreachable", "fragmented", "waited"];
        assert!(told.iter().all(|name| router.counter(name) == 0));
        for right in [&*frames[0], &*frames[4]] {
            assert_eq!(router.one(LAN, right.clone()).0, WAN);
        }
    }
}

#[test]
fn a_jumbo_frame_is_cut_for_usual_links() {
    for (mtu, length, count) in [(1500, 9000, 7), (1280, 9216, 8)] {
        let mut router = Router::new(true);
        router.interfaces[1].mtu = mtu;
        router.publish();
        let data: Vec<u8> = (0..length - 28).map(|n| n as u8).collect();
        let mut packet = udp("10.0.0.5", "192.0.2.9", 64, &data);
        packet[20] &= !0x40;
        fix_header(&mut packet);
        let parts = router.feed_in(LAN, (0..40).map(|_| packet.clone()));
        assert_eq!(parts.len(), 40 * count, "{:?}", router.stats().dropped);
        for parts in parts.chunks(count) {
            assert_eq!(join(parts)[8..], data);
        }
    }
}

#[test]
fn a_fragment_is_cut_again() {
    let mut router = Router::new(false);
    let mut packet = udp("10.0.0.5", "192.0.2.9", 64, &[9; 2392]);
    packet[20] &= !0x40;
    fix_header(&mut packet);
    let parts = router.feed_in(LAN, [packet]);
    assert_eq!(parts.len(), 2, "at 1500");
    let frames: Vec<_> = parts.iter().map(|(_, frame)| frame.clone()).collect();
    let mut next = Router::new(false);
    next.interfaces[1].mtu = 576;
    next.publish();
    // In the wrong order, too.
    for order in [[0, 1], [1, 0]] {
        let parts = next.feed_in(LAN, order.map(|n| frames[n].clone()));
        assert_eq!(parts.len(), 5, "1480 in 552, 552, 376; 920 in 552, 368");
        assert_eq!(join(&parts)[8..], [9; 2392]);
    }
}

fn fix_header(packet: &mut [u8]) {
    packet[24..26].copy_from_slice(&[0, 0]);
    let sum = wire::checksum::checksum(&packet[14..34]);
    packet[24..26].copy_from_slice(&sum.to_be_bytes());
}

/// UDP header and payload of parts, put together by etherparse.
fn join(parts: &[(u8, Vec<u8>)]) -> Vec<u8> {
    let mut pool: etherparse::defrag::IpDefragPool = etherparse::defrag::IpDefragPool::new();
    let mut whole = None;
    for (_, frame) in parts {
        let sliced = etherparse::SlicedPacket::from_ethernet(frame).unwrap();
        let Some(etherparse::NetSlice::Ipv4(v4)) = &sliced.net else {
            panic!("IPv4")
        };
        let header = v4.header().to_header();
        assert_eq!(header.header_checksum, header.calc_header_checksum());
        if let Some(done) = pool.process_sliced_packet(&sliced, (), ()).unwrap() {
            let (udp, data) = etherparse::UdpHeader::from_slice(&done.payload).unwrap();
            let right = udp.calc_checksum_ipv4_raw(header.source, header.destination, data);
            assert_eq!(udp.checksum, right.unwrap());
            whole = Some(done.payload);
        }
    }
    whole.expect("all parts")
}

#[test]
fn ipv6_packets_are_not_cut() {
    let mut router = Router::new(false);
    router.interfaces[1].mtu = 1280;
    router.publish();
    let packet = udp("fd00:1::5", "2001:db8::9", 64, &[7; 1300]);
    let (by, frame) = router.one(LAN, packet.clone());
    let told = seen(&frame);
    assert_eq!((by, told.source, told.about), (LAN, ip("fd00:1::1"), (2, 0)));
    assert_eq!(told.rest, 1280_u32.to_be_bytes());
    assert_eq!(told.payload, packet[14..][..1280 - 48]);
    assert_eq!(
        router.one(LAN, udp("fd00:1::5", "2001:db8::9", 64, &[7; 1232])).0,
        WAN,
        "what fits passes"
    );
}

/// Path-MTU discovery through a NAT, by a host outside: the quoted packet must be the one it sent.
#[test]
fn what_is_too_long_for_inside_is_told_outside_as_outside_sent_it() {
    let mut router = Router::new(true);
    let (_, out) = router.one(LAN, udp("10.0.0.5", "192.0.2.9", 64, b"x"));
    let mapped = seen(&out);
    router.interfaces[0].mtu = 1000;
    router.publish();
    let big = udp_tagged(
        "192.0.2.9",
        "203.0.113.8",
        (53, mapped.about.0),
        64,
        0,
        &[1; 1200],
    );
    let (by, frame) = router.one(WAN, big.clone());
    let told = seen(&frame);
    assert_eq!(
        (by, told.source, told.destination),
        (WAN, ip("203.0.113.8"), ip("192.0.2.9"))
    );
    assert_eq!((told.about, told.rest), ((3, 4), [0, 0, 3, 232]));
    // It is the NAT's own address that the sender knows the host by (RFC 5508 REQ-5), as with
    // Linux. All but the hop count and what follows from it.
    assert_eq!(told.payload[..8], big[14..22]);
    assert_eq!(
        told.payload[12..28],
        big[26..42],
        "addresses, ports, length, checksum"
    );
}

#[test]
fn what_has_no_way_is_told() {
    let mut router = Router::new(false);
    router.routes.retain(|route| route.to.length() != 0);
    router.routes.push(special("198.18.0.0/15", Kind::Prohibited));
    router.routes.push(special("198.51.100.0/24", Kind::Blackhole));
    router.routes.push(special("192.0.2.128/25", Kind::Unreachable));
    router.publish();
    for (to, kind) in [
        ("192.0.2.9", (3, 0)),
        ("192.0.2.200", (3, 0)),
        ("198.18.0.1", (3, 13)),
    ] {
        let (by, frame) = router.one(LAN, udp("10.0.0.5", to, 64, b"x"));
        assert_eq!((by, seen(&frame).about), (LAN, kind), "{to}");
    }
    let (by, frame) = router.one(LAN, udp("fd00:1::5", "2001:db8::9", 64, b"x"));
    assert_eq!((by, seen(&frame).about), (LAN, (1, 0)));
    assert_eq!(
        router.refused(LAN, udp("10.0.0.5", "198.51.100.7", 64, b"x")),
        "blackhole"
    );
    assert_eq!(
        router.refused(LAN, udp("10.0.0.5", "10.0.0.1", 64, b"x")),
        "for_this_host"
    );
    assert_eq!(
        router.refused(LAN, udp("10.0.0.5", "10.0.0.255", 64, b"x")),
        "broadcast"
    );
}

#[test]
fn what_no_router_forwards_is_dropped_by_name() {
    let mut router = Router::new(false);
    for (from, to, reason) in [
        ("127.0.0.1", "192.0.2.9", "martian"),
        ("0.0.0.0", "192.0.2.9", "martian"),
        ("240.0.0.1", "192.0.2.9", "martian"),
        ("255.255.255.255", "192.0.2.9", "martian"),
        ("224.0.0.1", "192.0.2.9", "martian"),
        ("10.0.0.5", "127.0.0.1", "martian"),
        ("10.0.0.5", "0.1.2.3", "martian"),
        ("10.0.0.5", "224.0.0.251", "multicast"),
        ("10.0.0.5", "255.255.255.255", "broadcast"),
        ("169.254.1.1", "192.0.2.9", "link_local"),
        ("10.0.0.5", "169.254.1.1", "link_local"),
        ("::1", "2001:db8::9", "martian"),
        ("::", "2001:db8::9", "martian"),
        ("fd00:1::5", "::1", "martian"),
        ("fe80::5", "2001:db8::9", "link_local"),
        ("fd00:1::5", "ff02::fb", "multicast"),
    ] {
        assert_eq!(
            router.refused(LAN, udp(from, to, 64, b"x")),
            reason,
            "{from} > {to}"
        );
    }
    let (v4, v6) = (
        udp("10.0.0.5", "192.0.2.9", 64, b"x"),
        udp("fd00:1::5", "2001:db8::9", 64, b"x"),
    );
    let routed = [
        with_options(&v4, &[131, 7, 4, 1, 1, 1, 1, 0]),
        with_options(&v4, &[1, 137, 7, 4, 1, 1, 1, 1]),
        with_routing(&v6, 0, 1),
    ];
    for frame in &routed {
        assert_eq!(router.refused(LAN, frame.clone()), "source_routed");
    }
    // Also once the flows are known, both ways.
    for frame in [&v4, &v6] {
        router.one(LAN, frame.clone());
    }
    for (from, to) in [("192.0.2.9", "10.0.0.5"), ("2001:db8::9", "fd00:1::5")] {
        router.one(WAN, udp_tagged(from, to, (53, 4000), 64, 0, b"y"));
    }
    for frame in routed {
        assert_eq!(router.refused(LAN, frame), "source_routed");
    }
    for (from, to, about, reason) in [
        ("127.0.0.1", "10.0.0.5", &v4, "martian"),
        ("169.254.1.1", "10.0.0.5", &v4, "link_local"),
        ("fe80::77", "fd00:1::5", &v6, "link_local"),
        ("::1", "fd00:1::5", &v6, "martian"),
    ] {
        let kind = if from.contains(':') { (1, 3) } else { (3, 1) };
        let told = error(from, to, kind, [0; 4], about);
        assert_eq!(router.refused(WAN, told), reason, "{from} > {to}");
    }
    assert_eq!(router.stats().flows, 2);
}

/// Segment routing (type 4), Mobile IPv6 (type 2), and a source route that is used up: this router
/// is none of their stops.
#[test]
fn other_routes_in_packets_pass() {
    let mut router = Router::new(false);
    let (v4, v6) = (
        udp("10.0.0.5", "192.0.2.9", 64, b"x"),
        udp("fd00:1::5", "2001:db8::9", 64, b"x"),
    );
    for _ in 0..2 {
        for (kind, left) in [(2, 1), (3, 1), (4, 1), (0, 0), (253, 9)] {
            let frame = with_routing(&v6, kind, left);
            let (by, out) = router.one(LAN, frame.clone());
            assert_eq!((by, out[21]), (WAN, 63), "type {kind}, {left} left");
            assert_eq!((&out[14..21], &out[22..]), (&frame[14..21], &frame[22..]));
        }
        let frame = with_options(&v4, &[131, 7, 8, 1, 1, 1, 1, 0]);
        assert_eq!(router.one(LAN, frame).0, WAN);
    }
    assert_eq!(router.counter("looked_up"), 2, "and their ways are kept");
    // Their senders learn of a narrow link like others.
    router.interfaces[1].mtu = 1280;
    router.publish();
    let long = with_routing(&udp("fd00:1::5", "2001:db8::9", 64, &[7; 1300]), 4, 1);
    let (by, told) = router.one(LAN, long);
    assert_eq!((by, seen(&told).about), (LAN, (2, 0)));
    let last = with_routing(&udp("fd00:1::5", "2001:db8::9", 1, b"x"), 4, 1);
    assert_eq!(seen(&router.one(LAN, last).1).about, (3, 0));
}

#[test]
fn what_lies_under_labels_is_dropped() {
    let mut router = Router::new(false);
    let labelled = |hops| {
        let mut frame = udp("10.0.0.5", "192.0.2.9", hops, b"hello");
        frame.splice(12..14, [0x88, 0x47, 0, 1, 1, 64]);
        frame
    };
    assert_eq!(router.refused(LAN, labelled(64)), "labelled");
    // Neither is anything told to the sender.
    assert_eq!(router.refused(LAN, labelled(1)), "ttl_exceeded");
    // Nor once the flow's way is known.
    router.one(LAN, udp("10.0.0.5", "192.0.2.9", 64, b"hello"));
    assert_eq!(router.refused(LAN, labelled(64)), "labelled");
}

#[test]
fn no_sender_is_told_about_errors_fragments_or_groups() {
    let mut router = Router::new(false);
    let about = udp("192.0.2.9", "10.0.0.5", 64, b"x");
    let mut last = error("10.0.0.5", "192.0.2.9", (3, 3), [0; 4], &about);
    last[22] = 1;
    fix_header(&mut last);
    assert_eq!(router.refused(LAN, last), "ttl_exceeded");
    // A later fragment, of which the first passed.
    let mut packet = udp("10.0.0.5", "192.0.2.9", 64, &[9; 2392]);
    packet[20] &= !0x40;
    fix_header(&mut packet);
    let mut parts = Router::new(false).feed_in(LAN, [packet]);
    let mut later = parts.pop().unwrap().1;
    later[22] = 1;
    fix_header(&mut later);
    router.one(LAN, parts.pop().unwrap().1);
    assert_eq!(router.refused(LAN, later), "ttl_exceeded");
    // A packet to all stations of the link.
    let mut to_all = udp("10.0.0.5", "192.0.2.9", 1, b"x");
    to_all[..6].copy_from_slice(&[0xff; 6]);
    assert_eq!(router.refused(LAN, to_all), "ttl_exceeded");
    assert_eq!(router.counter("time_exceeded"), 0);
}

#[test]
fn errors_are_limited() {
    let config = Config {
        errors_per_second: 10,
        ..Config::default()
    };
    let mut router = Router::with(1, false, config);
    let packets = |n: u16| (0..n).map(|p| udp_tagged("10.0.0.5", "192.0.2.9", (p + 1, 9), 1, 0, b"x"));
    assert_eq!(router.feed_in(LAN, packets(30)).len(), 10);
    assert_eq!(
        (router.counter("errors_limited"), router.dropped("ttl_exceeded")),
        (20, 20)
    );
    router.now += SECOND / 2;
    assert_eq!(router.feed_in(LAN, packets(30)).len(), 5);
}

fn with_ten_errors() -> Router {
    let config = Config {
        errors_per_second: 10,
        ..Config::default()
    };
    Router::with(1, false, config)
}

/// Else a flood of packets without hops would hide the MTU from all senders.
#[test]
fn what_is_too_long_is_told_whatever_else_is_told() {
    let mut router = with_ten_errors();
    let last = |n: u16| udp_tagged("10.0.0.5", "192.0.2.9", (n, 9), 1, 0, b"x");
    assert_eq!(router.feed_in(LAN, (1..=30).map(last)).len(), 10);
    // Don't fragment.
    let long = |n: u16| udp_tagged("10.0.0.5", "192.0.2.9", (n, 9), 64, 0, &[7; 1600]);
    let told = router.feed_in(LAN, (1..=30).map(long));
    assert_eq!(told.len(), 10, "as many, and no more");
    assert!(
        told.iter()
            .all(|(by, told)| (*by, seen(told).about) == (LAN, (3, 4)))
    );
    let limited = (router.dropped("ttl_exceeded"), router.dropped("too_big"));
    assert_eq!((limited, router.counter("errors_limited")), ((20, 20), 40));
}

#[test]
fn what_has_no_answer_costs_none() {
    let mut router = with_ten_errors();
    let last = |n: u16| udp_tagged("10.0.0.5", "192.0.2.9", (n, 9), 1, 0, b"x");
    let to_all = (1..=30).map(|n| {
        let mut frame = last(n);
        frame[..6].copy_from_slice(&[0xff; 6]);
        frame
    });
    assert_eq!(router.feed_in(LAN, to_all).len(), 0);
    let about = udp("192.0.2.9", "10.0.0.5", 64, b"x");
    let errors = (1..=30).map(|_| {
        let mut frame = error("10.0.0.5", "192.0.2.9", (3, 3), [0; 4], &about);
        frame[22] = 1;
        fix_header(&mut frame);
        frame
    });
    assert_eq!(router.feed_in(LAN, errors).len(), 0);
    let none = (router.counter("time_exceeded"), router.counter("errors_limited"));
    assert_eq!(none, (0, 0), "nor is it one too many");
    assert_eq!(router.feed_in(LAN, (1..=30).map(last)).len(), 10);
    assert_eq!(router.counter("errors_limited"), 20);
}

#[test]
fn packets_wait_for_a_link_address_in_their_order() {
    let mut router = Router::new(false);
    router
        .neighbours
        .retain(|n| n.address != rig::addr("203.0.113.254"));
    router.publish();
    let packet = |n: u8| udp("10.0.0.5", "192.0.2.9", 64, &[n]);
    assert_eq!(router.feed_in(LAN, (1..=3).map(packet)).len(), 0);
    assert_eq!(router.stats().held, 3);
    let mut wanted = Vec::new();
    router.feed.take_wanted(&mut wanted);
    assert_eq!(wanted, [(3, rig::addr("203.0.113.254"))]);
    // Other flows go on.
    assert_eq!(router.one(LAN, udp("10.0.0.5", "10.9.0.9", 64, b"x")).0, DMZ);
    router.neighbours.push(neighbour(3, "203.0.113.254", 254));
    router.publish();
    router.now += 3_000_000;
    router.run_until_quiet();
    let left = router.left();
    let order: Vec<u8> = left.iter().map(|(_, frame)| *frame.last().unwrap()).collect();
    assert_eq!(order, [1, 2, 3]);
    assert_eq!(seen(&left[0].1).hops, 63, "a hop once");
    assert_eq!((router.stats().held, router.counter("waited")), (0, 1));
}

#[test]
fn a_neighbour_that_never_answers_is_an_unreachable_host() {
    let config = Config {
        resolve_timeout: Duration::from_millis(100),
        ..Config::default()
    };
    let mut router = Router::with(1, false, config);
    let packet = |n: u16| udp_tagged("203.0.113.7", "10.0.0.9", (n, 9), 64, 0, b"x");
    // As many flows as may wait, and some more.
    assert_eq!(router.feed_in(WAN, (1..=12).map(packet)).len(), 0);
    assert_eq!((router.stats().waiting, router.dropped("waiting_full")), (8, 4));
    router.neighbours.push(neighbour(3, "203.0.113.7", 7));
    router.publish();
    let mut told = Vec::new();
    for _ in 0..60 {
        router.now += 2_000_000;
        router.run_until_quiet();
        told.extend(router.left());
    }
    assert_eq!(told.len(), 8);
    for (by, frame) in &told {
        assert_eq!(
            (*by, seen(frame).about, seen(frame).source),
            (WAN, (3, 1), ip("203.0.113.1"))
        );
    }
    assert_eq!(router.stats().held, 0);
}

#[test]
fn a_change_of_the_tables_moves_flows_at_their_next_packet() {
    let mut router = Router::new(false);
    let packet = || udp("10.0.0.5", "192.0.2.9", 64, b"x");
    assert_eq!(router.one(LAN, packet()).0, WAN);
    router.routes.push(route("192.0.2.0/24", 4, Some("10.9.0.9")));
    router.publish();
    let (by, frame) = router.one(LAN, packet());
    assert_eq!((by, seen(&frame).to), (DMZ, their_link(4, 9)));
    router.neighbours.retain(|n| n.interface != 4);
    router.neighbours.push(neighbour(4, "10.9.0.9", 77));
    router.publish();
    assert_eq!(seen(&router.one(LAN, packet()).1).to, their_link(4, 77));
    router.interfaces.retain(|i| i.index != 4);
    router.publish();
    let told = seen(&router.one(LAN, packet()).1);
    assert_eq!(
        told.about,
        (3, 0),
        "a route by an interface that is gone leads nowhere, not elsewhere"
    );
    assert_eq!(router.stats().flows, 1);
}

#[test]
fn tags_are_pushed_popped_and_changed() {
    let mut router = Router::new(false);
    let (by, frame) = router.one(LAN, udp("10.0.0.5", "10.8.0.8", 64, b"x"));
    let pushed = seen(&frame);
    assert_eq!(
        (by, pushed.vlan, pushed.to, pushed.from),
        (DMZ, 20, their_link(5, 8), own_link(5))
    );
    // The reply, tagged, belongs to the flow.
    let (by, frame) = router.one(DMZ, udp_tagged("10.8.0.8", "10.0.0.5", (53, 4000), 64, 20, b"y"));
    assert_eq!((by, seen(&frame).vlan), (LAN, 0));
    assert_eq!(router.stats().flows, 1);
    // From one tag to another on the same port, and an error from the address of the tagged
    // interface.
    router.interfaces.push(functions::forward::tables::Interface {
        index: 6,
        vlan: 30,
        link: own_link(6),
        addresses: vec![rig::addr("10.7.0.1")],
        ..router.interfaces[3].clone()
    });
    router.routes.push(route("10.7.0.0/24", 6, None));
    router.neighbours.push(neighbour(6, "10.7.0.7", 7));
    router.publish();
    let (by, frame) = router.one(DMZ, udp_tagged("10.8.0.8", "10.7.0.7", (1, 2), 64, 20, b"x"));
    assert_eq!(
        (by, seen(&frame).vlan, seen(&frame).to),
        (DMZ, 30, their_link(6, 7))
    );
    let (by, frame) = router.one(DMZ, udp_tagged("10.8.0.8", "10.7.0.7", (1, 2), 1, 20, b"x"));
    assert_eq!(
        (by, seen(&frame).vlan, seen(&frame).source),
        (DMZ, 20, ip("10.8.0.1"))
    );
}

#[test]
fn flows_are_spread_over_a_routes_ways_and_each_keeps_its_own() {
    let mut router = Router::new(false);
    router.routes[4].ways = vec![
        Way {
            interface: 3,
            gateway: Some(rig::addr("203.0.113.254")),
            weight: 3,
        },
        Way {
            interface: 4,
            gateway: Some(rig::addr("10.9.0.9")),
            weight: 1,
        },
    ];
    router.publish();
    let packet = |n: u16| udp_tagged("10.0.0.5", "192.0.2.9", (n, 53), 64, 0, b"x");
    let first: Vec<u8> = (1..=200).map(|n| router.one(LAN, packet(n)).0).collect();
    let share = first.iter().filter(|by| **by == WAN).count();
    assert!((120..180).contains(&share), "{share} of 200");
    // A change that concerns none of them.
    router.neighbours.push(neighbour(2, "10.0.0.77", 77));
    router.publish();
    let again: Vec<u8> = (1..=200).map(|n| router.one(LAN, packet(n)).0).collect();
    assert_eq!(first, again);
}

#[test]
fn the_step_stands_at_the_end_of_its_chain() {
    use functions::forward::Forward;
    use functions::nat::Nat;
    use runtime::chain::{ChainRule, Match, Plan, PlanError};
    use runtime::stage::Configured;
    let rule = ChainRule {
        name: "c".to_string(),
        matching: Match::default(),
        functions: vec!["forward".to_string(), "nat".to_string()],
        replication: None,
    };
    let nat = flowkeep_testkit::config::<Nat>("pool = [\"203.0.113.8/32\"]");
    let refused = Plan::new(
        vec![rule],
        vec![
            Box::new(Configured::<Forward>::new("forward", Config::default())),
            Box::new(Configured::<Nat>::new("nat", nat)),
        ],
    );
    let why = match refused {
        Err(why @ PlanError::NotLast { .. }) => why.to_string(),
        _ => panic!("a step in the middle"),
    };
    assert!(why.contains("put it at the end"), "{why}");
}
