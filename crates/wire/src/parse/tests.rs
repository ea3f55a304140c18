use super::*;
use crate::link::LABELS_MAX;
use crate::testing::*;
use crate::{FlowKey, LinkType, hostile};
use std::vec::Vec;

fn raw(ip: &[u8]) -> Held {
    parsed(LinkType::Raw, ip)
}

fn pppoe(ip: &[u8], length: usize) -> Vec<u8> {
    let mut session = std::vec![0x11, 0, 0, 7];
    session.extend((length as u16).to_be_bytes());
    session.extend(if ip[0] >> 4 == 4 { [0, 0x21] } else { [0, 0x57] });
    session.extend(ip);
    session
}

#[test]
fn every_link_layer_leads_to_the_same_flow() {
    for ip in [v4(17, &[], 0, &udp(b"hello")), v6(17, &udp(b"hello"))] {
        let kind: u16 = if ip[0] >> 4 == 4 { 0x0800 } else { 0x86dd };
        let be = kind.to_be_bytes();
        let tag = |tags: &[u8], rest: &[u8]| [tags, &be[..], rest].concat();
        let cooked = |end: &[u8]| [&[0u8; 14][..], end].concat();
        let mut cooked2 = [&be[..], &[0; 18]].concat();
        cooked2.extend(&ip);
        let frames = [
            (LinkType::Raw, ip.clone(), 0, 0),
            (LinkType::Loopback, [&[2, 0, 0, 0][..], &ip].concat(), 4, 0),
            (LinkType::Loopback, [&[0, 0, 0, 2][..], &ip].concat(), 4, 0),
            (LinkType::Ethernet, ethernet(kind, &ip), 14, 0),
            (LinkType::Ethernet, ethernet(0x8100, &tag(&[0x20, 5], &ip)), 18, 5),
            (
                LinkType::Ethernet,
                ethernet(0x88a8, &tag(&[0, 9, 0x81, 0, 0, 5], &ip)),
                22,
                5,
            ),
            (
                LinkType::Ethernet,
                ethernet(0x8864, &pppoe(&ip, ip.len() + 2)),
                22,
                0,
            ),
            (
                LinkType::Ethernet,
                ethernet(
                    0x8100,
                    &[&[0, 3, 0x88, 0x64], &pppoe(&ip, ip.len() + 2)[..]].concat(),
                ),
                26,
                3,
            ),
            (LinkType::LinuxSll, cooked(&tag(&[], &ip)), 16, 0),
            (
                LinkType::LinuxSll,
                cooked(&[&[0x81, 0, 0, 8][..], &tag(&[], &ip)].concat()),
                20,
                8,
            ),
            (LinkType::LinuxSll2, cooked2, 20, 0),
        ];
        let plain = raw(&ip);
        for (link, frame, network, vlan) in frames {
            let packet = parsed(link, &frame);
            assert_eq!(
                (packet.network_offset(), packet.vlan()),
                (network, vlan),
                "{link:?}"
            );
            assert_eq!(
                (packet.source(), packet.destination()),
                (plain.source(), plain.destination())
            );
            assert_eq!(packet.payload(), b"hello");
        }
    }
}

#[test]
fn a_pppoe_session_is_as_long_as_its_packet_says() {
    let ip = v4(17, &[], 0, &udp(b"hello"));
    // Padding is no part of the packet, and a session may say too little: the IP header decides.
    for length in [0, 2, ip.len() + 1, ip.len() + 2, ip.len() + 40, 0xffff] {
        let packet = parsed(LinkType::Ethernet, &ethernet(0x8864, &pppoe(&ip, length)));
        assert_eq!(
            (packet.payload(), packet.network()),
            (&b"hello"[..], &ip[..]),
            "{length}"
        );
    }
    let mut discovery = ethernet(0x8864, &pppoe(&ip, ip.len() + 2));
    discovery[15] = 0x09;
    assert_eq!(refused(LinkType::Ethernet, &discovery), ParseError::NotIp);
}

/// Label stack entries (RFC 3032 2.1), bottom last.
fn labels(stack: &[u32]) -> Vec<u8> {
    let last = stack.len() - 1;
    let entry = |(n, label): (usize, &u32)| (label << 12 | u32::from(n == last) << 8 | 64).to_be_bytes();
    stack.iter().enumerate().flat_map(entry).collect()
}

#[test]
fn a_packet_is_found_under_its_labels() {
    for ip in [v4(17, &[], 0, &udp(b"hello")), v6(17, &udp(b"hello"))] {
        for (ether_type, stack) in [
            (0x8847, &[100][..]),
            (0x8848, &[3]),
            (0x8847, &[16, 0xfffff, 0]),
            (0x8847, &[0x1_2345; LABELS_MAX]),
        ] {
            let labelled = [&labels(stack)[..], &ip].concat();
            let tagged = [
                &[0, 5, 0x81, 0, 0, 7],
                &u16::to_be_bytes(ether_type)[..],
                &labelled,
            ]
            .concat();
            let cooked = [&[0; 14], &u16::to_be_bytes(ether_type)[..], &labelled].concat();
            for (link, frame, before, vlan) in [
                (LinkType::Ethernet, ethernet(ether_type, &labelled), 14, 0),
                (LinkType::Ethernet, ethernet(0x88a8, &tagged), 22, 7),
                (LinkType::LinuxSll, cooked, 16, 0),
            ] {
                let packet = parsed(link, &frame);
                assert_eq!(packet.network_offset(), before + 4 * stack.len());
                assert_eq!((packet.network(), packet.vlan()), (&ip[..], vlan));
                assert!(packet.has(flag::LABELLED));
                assert_eq!(
                    FlowKey::of(&packet).map(|(key, way)| key.ends(way)),
                    Some((raw(&ip).source(), raw(&ip).destination()))
                );
                for cut in 0..frame.len() {
                    refused(link, &frame[..cut]);
                }
            }
        }
        assert!(!raw(&ip).has(flag::LABELLED));
    }
}

#[test]
fn labels_over_anything_else_are_not_ip() {
    // A control word or an associated channel (RFC 4385): the first four bits are 0 or 1.
    for first in [0x00, 0x10, 0x50] {
        let mut ip = v4(17, &[], 0, &udp(b"hello"));
        ip[0] = first;
        let frame = ethernet(0x8847, &[&labels(&[100])[..], &ip].concat());
        assert_eq!(refused(LinkType::Ethernet, &frame), ParseError::NotIp);
    }
    let ip = v4(17, &[], 0, &udp(b"hello"));
    let deep = ethernet(0x8847, &[&labels(&[9; LABELS_MAX + 1])[..], &ip].concat());
    assert_eq!(refused(LinkType::Ethernet, &deep), ParseError::NotIp);
}

#[test]
fn more_than_four_tags_are_refused() {
    let ip = v4(17, &[], 0, &udp(b""));
    let session = [&[0x88, 0x64], &pppoe(&ip, ip.len() + 2)[..]].concat();
    let labelled = [&[0x88, 0x47], &labels(&[1, 2])[..], &ip].concat();
    for behind in [[&[8, 0], &ip[..]].concat(), session, labelled] {
        for (tags, taken) in [(1, true), (2, true), (4, true), (5, false)] {
            let mut rest = Vec::new();
            for tag in 1..tags {
                rest.extend([0, tag, 0x81, 0]);
            }
            rest.extend([0, tags]);
            rest.extend(&behind);
            let mut packet = loaded(LinkType::Ethernet, &ethernet(0x88a8, &rest));
            assert_eq!(parse(&mut packet).is_ok(), taken, "{tags} {behind:02x?}");
            assert!(!taken || packet.vlan() == u16::from(tags) && packet.network() == ip);
        }
    }
}

/// An IPv4 packet as it is before a device cuts it into segments: without length, and without
/// checksum.
fn unlengthed(mut ip: Vec<u8>) -> Vec<u8> {
    ip[2..4].fill(0);
    ip[10..12].fill(0);
    ip
}

#[test]
fn a_total_length_of_zero_is_the_frames() {
    for body in [&[0x5a; 1000][..], b""] {
        for whole in [
            v4(6, &[], 0x4000, &tcp(0x18, &[], body)),
            v4(6, &[1, 1, 1, 0], 0, &tcp(0x18, &[1; 8], body)),
            v4(17, &[], 0, &udp(body)),
            v4(17, &[], 0x2000, &udp(body)),
        ] {
            let sent = unlengthed(whole.clone());
            let shim = [&labels(&[7])[..], &sent].concat();
            for (link, frame, before) in [
                (LinkType::Raw, sent.clone(), 0),
                (LinkType::Ethernet, ethernet(0x0800, &sent), 14),
                (LinkType::Ethernet, ethernet(0x8847, &shim), 18),
            ] {
                let packet = parsed(link, &frame);
                assert_eq!(packet.end_offset(), frame.len());
                // It goes on as it would be on a wire: with its length and a right checksum.
                assert_eq!(packet.frame()[before..], whole);
                assert_eq!(packet.frame()[..before], frame[..before]);
                let again = parsed(link, packet.frame());
                assert_eq!(
                    (again.flags(), again.payload()),
                    (packet.flags(), packet.payload())
                );
            }
        }
    }
}

#[test]
fn a_total_length_of_zero_in_a_capture_cut_short() {
    let whole = v4(6, &[], 0x4000, &tcp(0x18, &[], &[5; 3000]));
    let sent = unlengthed(whole.clone());
    let mut packet = loaded(LinkType::Raw, &sent[..60]);
    packet.set_wire_length(sent.len() as u32);
    assert_eq!(parse(&mut packet), Ok(()));
    assert!(packet.has(flag::CUT_SHORT));
    assert_eq!(packet.frame(), &whole[..60]);
    assert_eq!(packet.tcp().map(|t| t.payload_length()), Some(3000));
    // No header can say that much.
    let mut packet = loaded(LinkType::Raw, &sent[..60]);
    packet.set_wire_length(65_535);
    assert_eq!(parse(&mut packet), Ok(()));
    let mut packet = loaded(LinkType::Raw, &sent[..60]);
    packet.set_wire_length(65_536);
    assert_eq!(parse(&mut packet), Err(ParseError::Malformed));
    assert_eq!(packet.frame(), &sent[..60], "what is refused is left as it came");
    assert_eq!(refused(LinkType::Raw, &sent[..30]), ParseError::Truncated);
    assert_eq!(refused(LinkType::Raw, &sent[..19]), ParseError::Truncated);
}

#[test]
fn a_quotation_has_a_length() {
    let quote = unlengthed(v4(17, &[], 0, &udp(b"abc")));
    let packet = raw(&v4(1, &[], 0, &icmp(3, 1, [0; 4], &quote)));
    assert!(!packet.has(flag::ICMP_ERROR));
}

#[test]
fn link_padding_is_no_part_of_the_packet() {
    let mut frame = ethernet(0x0800, &v4(17, &[], 0, &udp(b"abc")));
    frame.resize(60, 0xee);
    let packet = parsed(LinkType::Ethernet, &frame);
    assert_eq!(packet.payload(), b"abc");
    assert_eq!(packet.network().len(), 31);
}

#[test]
fn ipv4_lengths_that_contradict_are_refused() {
    let good = v4(17, &[], 0, &udp(b"abc"));
    let broken = |at: usize, value: u8| {
        let mut ip = good.clone();
        ip[at] = value;
        refused(LinkType::Raw, &ip)
    };
    assert_eq!(broken(0, 0x44), ParseError::Malformed);
    assert_eq!(broken(0, 0x4f), ParseError::Malformed);
    assert_eq!(broken(0, 0x55), ParseError::NotIp);
    assert_eq!(broken(3, 19), ParseError::Malformed);
    assert_eq!(broken(3, 27), ParseError::Truncated);
    assert_eq!(broken(2, 1), ParseError::Truncated);
}

#[test]
fn a_capture_cut_short_is_taken_only_for_what_the_wire_could_have_held() {
    let ip = v4(6, &[], 0, &tcp(0x10, &[1; 8], &[5; 100]));
    for held in [28, 33, 40, 44, 60] {
        let mut packet = loaded(LinkType::Raw, &ip[..held]);
        packet.set_wire_length(ip.len() as u32);
        assert_eq!(parse(&mut packet), Ok(()), "{held}");
        assert!(packet.has(flag::CUT_SHORT));
        assert_eq!(packet.source_port(), 1000);
        // The data's length comes from the IP header, however little of the options is held.
        assert_eq!(
            packet.tcp().map(|t| t.payload_length()),
            (held >= 40).then_some(100)
        );
        // One byte fewer on the wire than the header claims: no frame ever held this.
        packet.set_wire_length(ip.len() as u32 - 1);
        assert_eq!(parse(&mut packet), Err(ParseError::Truncated));
    }
    // Only the padding is cut off: the packet is whole, so its header must be.
    let mut short = loaded(LinkType::Raw, &v4(6, &[], 0, &tcp(0x10, &[], &[])[..12]));
    short.set_wire_length(60);
    assert_eq!(parse(&mut short), Err(ParseError::Truncated));
}

#[test]
fn growing_in_front_grows_the_wire_length() {
    let ip = v4(17, &[], 0, &udp(&[1; 40]));
    let mut packet = loaded(LinkType::Raw, &ip[..ip.len() - 10]);
    packet.set_wire_length(ip.len() as u32);
    assert!(packet.grow_front(20));
    let wrap = v4(4, &[], 0, &ip);
    packet.frame_mut()[..20].copy_from_slice(&wrap[..20]);
    assert_eq!(parse(&mut packet), Ok(()));
    assert!(packet.has(flag::CUT_SHORT));
}

#[test]
fn a_refused_frame_is_not_parsed_any_more() {
    let mut packet = raw(&v4(17, &[], 0, &udp(b"abc")));
    packet.frame_mut()[0] = 0x41;
    assert_eq!(parse(&mut packet), Err(ParseError::Malformed));
    assert!(!packet.has(flag::PARSED));
}

#[test]
fn ipv4_options_are_stepped_over() {
    let packet = raw(&v4(17, &[148, 4, 0, 0], 0, &udp(b"x")));
    assert!(packet.has(flag::HAS_OPTIONS) && !packet.has(flag::SOURCE_ROUTED));
    assert_eq!(packet.destination_port(), 80);
    for (options, routed) in [
        (&[131, 7, 4, 1, 1, 1, 1, 0][..], true),
        (&[1, 137, 7, 4, 1, 1, 1, 1], true),
        (&[131, 7, 8, 1, 1, 1, 1, 0], false),
        (&[0, 131, 7, 4, 1, 1, 1, 1], false),
        (&[131, 0, 4, 1], false),
        (&[131, 40, 4, 1], false),
    ] {
        let packet = raw(&v4(17, options, 0, &udp(b"x")));
        assert_eq!(packet.has(flag::SOURCE_ROUTED), routed, "{options:?}");
        assert_eq!(packet.destination_port(), 80);
    }
}

#[test]
fn fragments_have_ports_only_where_the_header_is() {
    let first = raw(&v4(17, &[], 0x2000, &udp(&[0; 8])));
    assert!(first.has(flag::FIRST_FRAGMENT) && !first.has(flag::LATER_FRAGMENT));
    assert_eq!(first.destination_port(), 80);
    for field in [0x0002, 0x2002, 0x1ff0] {
        let later = raw(&v4(17, &[], field, &udp(&[0; 8])));
        assert!(later.has(flag::LATER_FRAGMENT) && !later.has(flag::FIRST_FRAGMENT));
        assert_eq!((later.source_port(), later.destination_port()), (0, 0));
    }
    assert!(!raw(&v4(17, &[], 0x4000, &udp(b""))).has(flag::FIRST_FRAGMENT | flag::LATER_FRAGMENT));
}

#[test]
fn fragments_that_attack_reassembly_are_refused() {
    // RFC 1858 3: a first fragment too short for the TCP header, and a fragment that overlaps the
    // TCP flags.
    let tiny = v4(6, &[], 0x2000, &tcp(2, &[], &[])[..16]);
    assert_eq!(refused(LinkType::Raw, &tiny), ParseError::Truncated);
    let overlapping = v4(6, &[], 0x0001, &[0; 16]);
    assert_eq!(refused(LinkType::Raw, &overlapping), ParseError::Malformed);
    // Ending behind 65,535 (the "ping of death").
    let beyond = v4(17, &[], 0x1fff, &[0; 8]);
    assert_eq!(refused(LinkType::Raw, &beyond), ParseError::Malformed);
    let beyond = v6(44, &[&[17, 0, 0xff, 0xf8, 0, 0, 0, 1][..], &[0; 8]].concat());
    assert_eq!(refused(LinkType::Raw, &beyond), ParseError::Malformed);
}

fn extensions(kinds: &[u8], last: u8, body: &[u8]) -> Vec<u8> {
    let mut chain = Vec::new();
    for next in kinds.iter().skip(1).copied().chain([last]) {
        chain.extend([next, 0, 1, 4, 0, 0, 0, 0]);
    }
    chain.extend(body);
    v6(kinds.first().copied().unwrap_or(last), &chain)
}

#[test]
fn ipv6_extensions_are_followed_up_to_the_bound() {
    for count in 1..=EXTENSIONS_MAX + 1 {
        let kinds: Vec<u8> = [0, 60, 43, 60, 135, 139, 140, 60, 60][..count].to_vec();
        let ip = extensions(&kinds, 17, &udp(b"abc"));
        if count <= EXTENSIONS_MAX {
            let packet = raw(&ip);
            assert!(packet.has(flag::HAS_OPTIONS));
            assert_eq!((packet.protocol(), packet.destination_port()), (17, 80));
            assert_eq!(packet.payload(), b"abc");
            for cut in 0..ip.len() {
                refused(LinkType::Raw, &ip[..cut]);
            }
        } else {
            assert_eq!(refused(LinkType::Raw, &ip), ParseError::Malformed);
        }
    }
}

#[test]
fn an_extension_header_longer_than_the_packet_is_refused() {
    let mut ip = extensions(&[60], 17, &udp(b"abc"));
    ip[41] = 255;
    assert_eq!(refused(LinkType::Raw, &ip), ParseError::Truncated);
    let mut ip = extensions(&[60], 17, &udp(b"abc"));
    ip[41] = 1;
    // 16 bytes of extension leave 3 for UDP.
    assert_eq!(refused(LinkType::Raw, &ip), ParseError::Truncated);
}

#[test]
fn a_routing_header_still_in_use_is_told() {
    for (left, routed) in [(1, true), (0, false)] {
        let mut ip = extensions(&[43], 17, &udp(b"abc"));
        ip[43] = left;
        assert_eq!(raw(&ip).has(flag::SOURCE_ROUTED), routed);
    }
}

#[test]
fn a_route_of_type_0_is_told_from_others() {
    for (types, found) in [
        (&[(0, 1)][..], true),
        (&[(0, 0)], false),
        (&[(2, 1)], false),
        (&[(4, 3)], false),
        (&[(4, 1), (0, 1)], true),
        (&[(4, 1), (0, 0)], false),
    ] {
        let kinds: Vec<u8> = types.iter().flat_map(|_| [60, 43]).collect();
        let mut ip = extensions(&kinds, 17, &udp(b"abc"));
        for (n, (kind, left)) in types.iter().enumerate() {
            ip[40 + 16 * n + 10..][..2].copy_from_slice(&[*kind, *left]);
        }
        assert_eq!(raw(&ip).has_type_0_route(), found, "{types:?}");
    }
    // Behind a later fragment's header there are data, which look like one here.
    let route = [17, 0, 0, 1, 0, 0, 0, 0];
    for (offset, found) in [(1, true), (8, false)] {
        let fragment = [43, 0, 0, offset, 0, 0, 0, 1];
        let stop = [44, 0, 4, 1, 0, 0, 0, 0];
        let ip = v6(43, &[&stop[..], &fragment, &route, &udp(b"abc")].concat());
        assert_eq!(raw(&ip).has_type_0_route(), found);
    }
    let v4 = raw(&v4(17, &[131, 7, 4, 1, 1, 1, 1, 0], 0, &udp(b"x")));
    assert!(v4.has(flag::SOURCE_ROUTED) && !v4.has_type_0_route());
}

#[test]
fn ipv6_fragments() {
    let chain = |field: u16, next: u8, body: &[u8]| {
        let [high, low] = field.to_be_bytes();
        v6(44, &[&[next, 0, high, low, 0, 0, 0, 1][..], body].concat())
    };
    let atomic = raw(&chain(0, 17, &udp(b"abc")));
    assert!(!atomic.has(flag::FIRST_FRAGMENT | flag::LATER_FRAGMENT));
    assert_eq!(atomic.destination_port(), 80);
    let first = raw(&chain(1, 17, &udp(&[0; 8])));
    assert!(first.has(flag::FIRST_FRAGMENT) && first.destination_port() == 80);
    let later = raw(&chain(8 << 3, 17, &udp(&[0; 8])));
    assert!(later.has(flag::LATER_FRAGMENT) && later.destination_port() == 0);
    assert_eq!(later.transport().len(), 16);
    // RFC 7112: the first fragment holds the whole header chain.
    assert_eq!(
        refused(LinkType::Raw, &chain(1, 60, &[17, 1, 0, 0, 0, 0, 0, 0])),
        ParseError::Truncated
    );
    // One datagram is fragmented once.
    let nested = chain(
        1,
        44,
        &[&[17, 0, 0, 0x40, 0, 0, 0, 1][..], &udp(&[0; 8])].concat(),
    );
    assert_eq!(refused(LinkType::Raw, &nested), ParseError::Malformed);
}

#[test]
fn an_authentication_header_is_the_flow_in_both_versions() {
    let ah = [
        6, 4, 0, 0, 0, 0, 0, 1, 0, 0, 0, 2, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9,
    ];
    for packet in [raw(&v4(51, &[], 0, &ah)), raw(&v6(51, &ah))] {
        assert_eq!((packet.protocol(), packet.source_port()), (51, 0));
        assert_eq!(packet.transport(), ah);
    }
}

#[test]
fn an_ipv4_mapped_address_on_the_wire_is_refused() {
    for at in [8, 24] {
        let mut ip = v6(17, &udp(b""));
        ip[at..at + 12].copy_from_slice(&[0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff]);
        assert_eq!(refused(LinkType::Raw, &ip), ParseError::Malformed);
    }
}

#[test]
fn icmp_of_the_other_version_is_just_a_protocol() {
    for ip in [
        v4(58, &[], 0, &icmp(128, 0, [1, 2, 3, 4], &[])),
        v6(1, &icmp(8, 0, [1, 2, 3, 4], &[])),
    ] {
        let packet = raw(&ip);
        assert!(!packet.has(flag::ICMP_QUERY));
        assert_eq!((packet.source_port(), packet.destination_port()), (0, 0));
    }
    let v6_error_in_v4 = v4(58, &[], 0, &icmp(1, 4, [0; 4], &v4(17, &[], 0, &udp(b"x"))));
    assert!(!raw(&v6_error_in_v4).has(flag::ICMP_ERROR));
}

#[test]
fn queries_answers_and_the_rest_of_icmp() {
    for (kind, query) in [
        (0, true),
        (8, true),
        (13, true),
        (18, true),
        (9, false),
        (10, false),
        (40, false),
    ] {
        let packet = raw(&v4(1, &[], 0, &icmp(kind, 0, [1, 2, 3, 4], &[])));
        assert_eq!(packet.has(flag::ICMP_QUERY), query);
        assert_eq!(packet.source_port(), if query { 0x0102 } else { 0 });
    }
    for (kind, query) in [
        (128, true),
        (129, true),
        (133, false),
        (135, false),
        (137, false),
        (143, false),
    ] {
        let packet = raw(&v6(58, &icmp(kind, 0, [1, 2, 3, 4], &[])));
        assert_eq!(packet.has(flag::ICMP_QUERY), query);
    }
    let short = raw(&v4(1, &[], 0, &[8, 0, 0]));
    assert!(!short.has(flag::ICMP_QUERY) && short.payload().is_empty());
}

#[test]
fn an_error_has_the_key_of_what_it_quotes_reversed() {
    let quotes = [
        v4(6, &[], 0, &tcp(2, &[], &[])[..8]),
        v4(17, &[148, 4, 0, 0], 0, &udp(b"abc")),
        v4(1, &[], 0, &icmp(8, 0, [9, 9, 0, 1], &[])),
        v4(132, &[], 0, &[0x03, 0xe8, 0, 80, 0, 0, 0, 1, 0, 0, 0, 0]),
        v4(47, &[], 0, &[0, 0, 8, 0]),
        v4(1, &[], 0, &icmp(9, 0, [9, 9, 0, 1], &[])),
        v6(6, &tcp(2, &[], &[])),
        v6(17, &udp(b"abc")),
        v6(58, &icmp(128, 0, [9, 9, 0, 1], &[])),
        extensions(&[0, 60], 17, &udp(b"abc")),
        v6(59, &[]),
    ];
    for quote in quotes {
        let (error, original) = if quote[0] >> 4 == 4 {
            (v4(1, &[], 0, &icmp(3, 3, [0; 4], &quote)), &quote)
        } else {
            (v6(58, &icmp(1, 4, [0; 4], &quote)), &quote)
        };
        let error = raw(&error);
        assert!(error.has(flag::ICMP_ERROR), "{quote:02x?}");
        let mut whole = loaded(LinkType::Raw, original);
        // The eight bytes of TCP are a whole flow only as a capture cut short.
        if quote.len() == 28 && quote[9] == 6 {
            whole.frame_mut()[3] = 40;
            whole.set_wire_length(40);
        }
        assert_eq!(parse(&mut whole), Ok(()));
        let (key, way) = FlowKey::of(&whole).unwrap();
        assert_eq!(FlowKey::of(&error), Some((key, way.reversed())));
    }
}

#[test]
fn errors_that_quote_nothing_usable_are_no_errors() {
    let later = v4(17, &[], 3, &udp(b"abc"));
    let error = v4(1, &[], 0, &icmp(11, 1, [0; 4], &v4(17, &[], 0, &udp(b"abc"))));
    let other = v6(17, &udp(b"abc"));
    let short = &v4(17, &[], 0, &udp(b"abc"))[..27];
    for quote in [&later[..], &error, &other, short, &[], &[0x45]] {
        let packet = raw(&v4(1, &[], 0, &icmp(3, 1, [0; 4], quote)));
        assert!(!packet.has(flag::ICMP_ERROR), "{quote:02x?}");
        assert!(quoted(&packet).is_none() && FlowKey::of(&packet).is_some());
    }
}

#[test]
fn tcp_views() {
    let options = [2, 4, 5, 0xb4, 1, 3, 3, 7, 8, 1, 0, 0];
    let packet = raw(&v4(6, &[], 0, &tcp(0x12, &options, b"data")));
    let tcp_view = packet.tcp().unwrap();
    assert_eq!((tcp_view.sequence(), tcp_view.acknowledgement()), (7, 9));
    assert_eq!(
        (tcp_view.flags(), tcp_view.window(), tcp_view.payload_length()),
        (0x12, 0x2000, 4)
    );
    let found: Vec<(u8, &[u8])> = tcp_view.each_option().collect();
    // The third option claims one byte, less than its own kind and length: the list ends there.
    assert_eq!(found, [(2, &[5, 0xb4][..]), (3, &[7])]);
    for (offset, error) in [(0x40, ParseError::Malformed), (0xf0, ParseError::Malformed)] {
        let mut segment = tcp(2, &[], b"data");
        segment[12] = offset;
        assert_eq!(refused(LinkType::Raw, &v4(6, &[], 0, &segment)), error);
    }
    assert_eq!(
        refused(LinkType::Raw, &v4(6, &[], 0, &tcp(2, &[], &[])[..19])),
        ParseError::Truncated
    );
}

#[test]
fn a_usual_packet_is_nothing_special() {
    let mut count = 0;
    let (any, valid) = if cfg!(miri) { (100, 50) } else { (30_000, 5_000) };
    for (number, (link, frame)) in hostile::packets(4, any)
        .chain(hostile::valid(4, valid))
        .enumerate()
    {
        let mut packet = loaded(link, &frame);
        packet.set_wire_length(frame.len() as u32 + if number % 3 == 0 { 5 } else { 0 });
        if let Some(found) = usual(&packet) {
            assert_eq!(Ok(found), layers(&packet), "{frame:02x?}");
            count += 1;
        }
    }
    assert!(cfg!(miri) || count > 500, "{count}");
    for body in [tcp(2, &[2, 4, 5, 0xb4], b"abc"), udp(b"")] {
        let kind = if body.len() == 8 { 17 } else { 6 };
        assert!(
            usual(&loaded(
                LinkType::Ethernet,
                &ethernet(0x0800, &v4(kind, &[], 0x4000, &body))
            ))
            .is_some()
        );
    }
}
