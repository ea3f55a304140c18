use super::*;
use crate::testing::*;
use crate::{Addr, FlowKey, LinkType, parse::parse};
use proptest::prelude::*;
use std::vec::Vec;

/// A valid packet, its checksums filled in, behind Ethernet with or without a tag.
fn packet(version: u8, protocol: u8, body: &[u8], vlan: bool) -> Held {
    let (kind, ip) = if version == 4 {
        (0x0800u16, v4(protocol, &[], 0x4000, body))
    } else {
        (0x86dd, v6(protocol, body))
    };
    let mut packet = if vlan {
        parsed(
            LinkType::Ethernet,
            &ethernet(0x8100, &[&[0, 7][..], &kind.to_be_bytes(), &ip].concat()),
        )
    } else {
        parsed(LinkType::Ethernet, &ethernet(kind, &ip))
    };
    assert!(packet.fill_checksums());
    packet
}

/// All notes must be those of a fresh parse of the frame.
fn notes_agree(packet: &Packet) {
    let again = parsed(packet.link(), packet.frame());
    assert_eq!(
        (packet.source(), packet.destination()),
        (again.source(), again.destination())
    );
    assert_eq!(
        (packet.flags(), packet.protocol()),
        (again.flags(), again.protocol())
    );
    assert_eq!(FlowKey::of(packet), FlowKey::of(&again));
}

fn endpoint(version: u8) -> impl Strategy<Value = Endpoint> {
    (any::<[u8; 16]>(), any::<u16>()).prop_map(move |(mut bytes, port)| {
        bytes[0] = bytes[0] & 0x7f | 0x20;
        let addr = if version == 4 {
            Addr::v4([bytes[0], bytes[1], bytes[2], bytes[3]])
        } else {
            Addr::v6(bytes)
        };
        Endpoint::new(addr, port)
    })
}

fn transport(version: u8) -> impl Strategy<Value = (u8, Vec<u8>)> {
    let payload = proptest::collection::vec(any::<u8>(), 0..70);
    (0..5u8, any::<[u8; 4]>(), payload).prop_map(move |(kind, rest, payload)| match (kind, version) {
        (0, _) => (protocol::TCP, tcp(rest[0], &rest, &payload)),
        (1, _) => (protocol::UDP, udp(&payload)),
        (2, 4) => (protocol::ICMP, icmp(8, 0, rest, &payload)),
        (2, _) => (protocol::ICMPV6, icmp(129, 0, rest, &payload)),
        // Neither a query nor an error.
        (3, 4) => (protocol::ICMP, icmp(40, 0, rest, &payload)),
        (3, _) => (protocol::ICMPV6, icmp(143, 0, rest, &payload)),
        (_, _) => (protocol::UDP, udp(&[0xff, 0xff].repeat(payload.len() / 2))),
    })
}

fn case() -> impl Strategy<Value = (Held, End, Endpoint)> {
    prop_oneof![Just(4u8), Just(6)].prop_flat_map(|version| {
        let end = prop_oneof![Just(End::Source), Just(End::Destination)];
        (transport(version), any::<bool>(), end, endpoint(version)).prop_map(
            move |((protocol, body), vlan, end, to)| (packet(version, protocol, &body, vlan), end, to),
        )
    })
}

fn at(packet: &Packet, end: End) -> Endpoint {
    match end {
        End::Source => packet.source(),
        End::Destination => packet.destination(),
    }
}

proptest! {
    #[test]
    fn a_rewrite_leaves_right_checksums_and_can_be_taken_back((mut packet, end, to) in case()) {
        let (before, from, other) = (packet.frame().to_vec(), at(&packet, end), at(&packet, end.opposite()));
        etherparse_agrees(packet.network());
        prop_assert!(packet.rewrite(end, to));
        etherparse_agrees(packet.network());
        prop_assert!(packet.checksums_valid());
        notes_agree(&packet);
        prop_assert_eq!(at(&packet, end).addr, to.addr);
        prop_assert_eq!(at(&packet, end.opposite()).addr, other.addr);
        if packet.protocol() == protocol::TCP || packet.protocol() == protocol::UDP || packet.has(flag::ICMP_QUERY) {
            prop_assert_eq!(at(&packet, end).port, to.port);
        }
        prop_assert!(packet.rewrite(end, from));
        prop_assert_eq!(packet.frame(), &before[..]);
    }

    #[test]
    fn a_damaged_packet_stays_damaged((mut packet, end, to) in case(), byte: u8, bit in 0..8u8) {
        let start = packet.payload_offset();
        let length = packet.end_offset() - start;
        prop_assume!(length > 0);
        packet.frame_mut()[start + usize::from(byte) % length] ^= 1 << bit;
        prop_assert!(!packet.checksums_valid());
        prop_assert!(packet.rewrite(end, to));
        prop_assert!(!packet.checksums_valid());
    }

    /// Of a capture cut short and of a first fragment the checksum is updated blindly; put together
    /// again it is right.
    #[test]
    fn what_is_cut_is_mended_blindly((mut whole, end, to) in case(), keep in 0usize..40) {
        prop_assume!(whole.protocol() != protocol::ICMP || whole.has(flag::ICMP_QUERY));
        let frame = whole.frame().to_vec();
        let held = (whole.transport_offset() + 20 + keep).min(frame.len());
        let mut cut = loaded(whole.link(), &frame[..held]);
        cut.set_wire_length(frame.len() as u32);
        prop_assume!(parse(&mut cut).is_ok());
        prop_assert!(cut.rewrite(end, to) && whole.rewrite(end, to));
        prop_assert_eq!(cut.frame(), &whole.frame()[..held]);
    }

    /// The quoted packet translated, all three checksums hold: quoted header, quoted transport,
    /// error.
    #[test]
    fn a_rewritten_quotation_is_right_in_every_checksum(
        (quoted_packet, end, inner) in case(),
        outer in prop_oneof![Just(None), any::<[u8; 16]>().prop_map(Some)],
        tail in proptest::collection::vec(any::<u8>(), 0..9),
        keep in 8usize..120,
    ) {
        // A quotation that ends amid TCP's checksum has half of it, which cannot be mended or
        // checked.
        prop_assume!(keep != 17);
        let version = quoted_packet.version();
        let quote = quoted_packet.network();
        let kept = (quoted_packet.transport_offset() - quoted_packet.network_offset() + keep).min(quote.len());
        let whole = kept == quote.len();
        let body = [&quote[..kept], if whole { &tail[..] } else { &[] }].concat();
        let mut error = if version == 4 {
            packet(4, protocol::ICMP, &icmp(11, 0, [0; 4], &body), quoted_packet.vlan() != 0)
        } else {
            packet(6, protocol::ICMPV6, &icmp(1, 3, [0; 4], &body), quoted_packet.vlan() != 0)
        };
        prop_assert!(error.has(flag::ICMP_ERROR));
        let outer = outer.map(|mut bytes| {
            bytes[0] = 0x20;
            Endpoint::new(if version == 4 { Addr::v4([32, bytes[1], 2, 3]) } else { Addr::v6(bytes) }, 99)
        });
        let (before, far) = (error.frame().to_vec(), at(&error, end.opposite()));
        let found = quoted(&error).unwrap();
        prop_assert_eq!((found.source, found.destination), (quoted_packet.source(), quoted_packet.destination()));

        prop_assert!(error.rewrite_quoted(end, inner, outer));
        etherparse_agrees(error.network());
        prop_assert!(error.checksums_valid());
        notes_agree(&error);
        let mut translated = parsed(quoted_packet.link(), quoted_packet.frame());
        prop_assert!(translated.rewrite(end, inner));
        // The quotation is the translated packet, as far as it goes; the bytes behind are as they
        // were.
        let start = found.network;
        prop_assert_eq!(&error.frame()[start..start + kept], &translated.network()[..kept]);
        prop_assert_eq!(&error.frame()[start + kept..], &before[start + kept..]);
        if let Some(outer) = outer {
            prop_assert_eq!(at(&error, end.opposite()).addr, outer.addr);
        }
        let (key, way) = FlowKey::of(&translated).unwrap();
        prop_assert_eq!(FlowKey::of(&error), Some((key, way.reversed())));

        prop_assert!(error.rewrite_quoted(end, at(&quoted_packet, end), outer.map(|_| far)));
        prop_assert_eq!(error.frame(), &before[..]);
    }

    #[test]
    fn replies_have_their_packets_key((packet, end, _to) in case()) {
        // The reply: both ends changed for each other.
        let mut reply = parsed(packet.link(), packet.frame());
        let (near, far) = (at(&packet, end), at(&packet, end.opposite()));
        prop_assert!(reply.rewrite(end, far) && reply.rewrite(end.opposite(), near));
        let ((key, way), (back, other)) = (FlowKey::of(&packet).unwrap(), FlowKey::of(&reply).unwrap());
        prop_assert_eq!(key, back);
        prop_assert_eq!(way, other.reversed());
    }
}

#[test]
fn udp_without_a_checksum_stays_without() {
    let mut packet = parsed(LinkType::Raw, &v4(17, &[], 0, &udp(b"abc")));
    assert!(packet.set_source("198.51.100.1:4000".parse().unwrap()));
    assert_eq!(packet.transport()[6..8], [0, 0]);
    assert!(packet.checksums_valid());
}

#[test]
fn a_udp_checksum_that_becomes_zero_is_written_as_ones() {
    let v4 = |end: Endpoint| (end.addr.as_v4().unwrap(), end.port);
    let ways: [fn(&mut Packet, Endpoint, Endpoint) -> bool; 3] = [
        |packet, _, to| packet.set_source(to),
        |packet, from, to| {
            let v4 = |end: Endpoint| (end.addr.as_v4().unwrap(), end.port);
            packet.swap_v4(End::Source, v4(from), v4(to)) == Some(0)
        },
        |packet, _, to| packet.put_v4(End::Source, (to.addr.as_v4().unwrap(), to.port)) == Some(0),
    ];
    for set in ways {
        let mut packet = packet(4, 17, &udp(b"abc"), false);
        // Adding the checksum to the port makes the sum all ones.
        let sum = u16::from_be_bytes([packet.transport()[6], packet.transport()[7]]);
        let port = crate::checksum::fold(1000 + u32::from(sum));
        let before = packet.frame().to_vec();
        let from = packet.source();
        let to = Endpoint::new(from.addr, port);
        assert!(set(&mut packet, from, to));
        assert_eq!(packet.transport()[6..8], [0xff, 0xff]);
        assert!(packet.checksums_valid());
        assert!(set(&mut packet, to, from));
        assert_eq!(packet.frame(), before);
    }
    // An endpoint that is not there is not exchanged.
    let mut packet = packet(4, 17, &udp(b"abc"), false);
    let (from, before) = (packet.source(), packet.frame().to_vec());
    let other = Endpoint::new(from.addr, from.port + 1);
    assert_eq!(packet.swap_v4(End::Source, v4(other), v4(from)), None);
    assert_eq!(packet.frame(), before);
}

#[test]
fn udp_lite_and_sctp() {
    let message = [&[0x03, 0xe8, 0, 80, 9, 9, 9, 9, 0, 0, 0, 0][..], b"chunk"].concat();
    let mut lite = udp(b"hello");
    lite[5] = 8;
    for version in [4, 6] {
        for (protocol, body) in [(protocol::UDPLITE, &lite), (protocol::SCTP, &message)] {
            for end in [End::Source, End::Destination] {
                let mut packet = packet(version, protocol, body, false);
                let (before, from) = (packet.frame().to_vec(), at(&packet, end));
                let to = Endpoint::new(
                    if version == 4 {
                        "198.51.100.1"
                    } else {
                        "2001:db8:1::1"
                    }
                    .parse()
                    .unwrap(),
                    4000,
                );
                assert!(packet.checksums_valid() && packet.rewrite(end, to) && packet.checksums_valid());
                assert_eq!(at(&packet, end), to);
                notes_agree(&packet);
                assert!(packet.rewrite(end, from));
                assert_eq!(packet.frame(), before);
            }
        }
    }
}

#[test]
fn protocols_without_ports_keep_port_zero() {
    let mut packet = parsed(LinkType::Raw, &v4(47, &[], 0, &[0, 0, 8, 0]));
    assert!(packet.set_source("198.51.100.1:4000".parse().unwrap()));
    assert_eq!(packet.source(), "198.51.100.1:0".parse().unwrap());
    notes_agree(&packet);
}

#[test]
fn what_could_not_be_mended_is_not_begun() {
    let routed = v4(17, &[131, 7, 4, 1, 1, 1, 1, 0], 0, &udp(b"abc"));
    let mut packet = parsed(LinkType::Raw, &routed);
    let to: Endpoint = "198.51.100.1:4000".parse().unwrap();
    assert!(!packet.set_destination(to));
    assert_eq!(packet.frame(), routed);
    assert!(packet.set_source(to));
    let first = v4(
        132,
        &[],
        0x2000,
        &[0x03, 0xe8, 0, 80, 9, 9, 9, 9, 1, 2, 3, 4, 0, 0, 0, 0],
    );
    let mut packet = parsed(LinkType::Raw, &first);
    assert!(!packet.set_source(to));
    assert_eq!(packet.frame(), first);
    assert!(packet.set_source(Endpoint::new(to.addr, 1000)));
    assert!(
        !packet.set_source("[2001:db8::1]:1000".parse().unwrap()),
        "the other version"
    );
}

#[test]
fn later_fragments_change_addresses_only() {
    let ip = v4(17, &[], 7, &[1, 2, 3, 4, 5, 6, 7, 8]);
    let mut packet = parsed(LinkType::Raw, &ip);
    packet.set_ports(1000, 80);
    assert!(packet.set_source("198.51.100.1:4000".parse().unwrap()));
    assert_eq!(packet.transport(), &ip[20..]);
    assert_eq!((packet.source_port(), packet.destination_port()), (4000, 80));
    assert!(packet.checksums_valid());
}

#[test]
fn the_quoted_packets_padding_is_left_alone() {
    // Eight bytes of TCP, then RFC 4884 padding where a whole header would have its checksum.
    let mut quote = v4(6, &[], 0, &tcp(SYN, &[], &[]))[..28].to_vec();
    quote[3] = 28;
    quote.extend([0; 100]);
    let mut error = packet(4, 1, &icmp(11, 0, [0, 32, 0, 0], &quote), false);
    assert!(error.rewrite_quoted(End::Source, "198.51.100.1:4000".parse().unwrap(), None));
    assert_eq!(error.transport()[36..], [0; 100]);
    assert!(error.checksums_valid());
}
const SYN: u8 = crate::tcp::flags::SYN;

#[test]
fn time_to_live_goes_down_to_one() {
    for version in [4, 6] {
        let mut packet = packet(version, 17, &udp(b"abc"), false);
        for ttl in (1..64).rev() {
            assert!(packet.decrement_ttl());
            assert_eq!(packet.ttl(), ttl);
            assert!(packet.checksums_valid());
        }
        assert!(!packet.decrement_ttl());
        assert_eq!(packet.ttl(), 1);
    }
}
