use super::*;
use crate::FlowKey;
use crate::testing::*;
use std::vec::Vec;

/// IPv4 and IPv6, each plain, tagged and in a PPPoE session, with link padding behind.
fn frames(protocol: u8, body: &[u8]) -> Vec<Held> {
    let mut packets = Vec::new();
    for (kind, ppp, ip) in [
        (0x0800u16, 0x21, v4(protocol, &[1, 1, 1, 0], 0, body)),
        (0x86dd, 0x57, v6(protocol, body)),
    ] {
        let tag = [&[0x20, 5][..], &kind.to_be_bytes(), &ip].concat();
        let mut session = std::vec![0x11, 0, 0, 7];
        session.extend((ip.len() as u16 + 2).to_be_bytes());
        session.extend([0, ppp]);
        session.extend(&ip);
        for mut frame in [
            ethernet(kind, &ip),
            ethernet(0x8100, &tag),
            ethernet(0x8864, &session),
        ] {
            frame.extend([0xee; 7]);
            packets.push(parsed(LinkType::Ethernet, &frame));
        }
    }
    packets
}

/// Properties of every answer: swapped addresses at both layers, right checksums, link header as it
/// was.
fn assert_turned(answer: &Packet, asked: &Packet) {
    assert!(answer.has(flag::PARSED) && answer.checksums_valid());
    assert_eq!(answer.end_offset(), answer.frame().len());
    assert_eq!(
        (answer.source_addr(), answer.destination_addr()),
        (asked.destination_addr(), asked.source_addr())
    );
    assert_eq!(answer.frame()[..6], asked.frame()[6..12]);
    assert_eq!(answer.frame()[6..12], asked.frame()[..6]);
    assert_eq!(
        (answer.vlan(), answer.network_offset()),
        (asked.vlan(), asked.network_offset())
    );
    assert_eq!((answer.ttl(), answer.timestamp()), (64, asked.timestamp()));
    etherparse_agrees(answer.network());
    // A fresh parse finds the same.
    let again = parsed(answer.link(), answer.frame());
    assert_eq!(FlowKey::of(&again), FlowKey::of(answer));
}

fn copy(packet: &Packet) -> Held {
    parsed(packet.link(), packet.frame())
}

#[test]
fn resets_answer_as_rfc_9293_says() {
    let cases = [
        // Flags, data, then the reset's sequence, acknowledgement, flags.
        (SYN, &b""[..], 0, 8, RST | ACK),
        (SYN, b"fast open", 0, 17, RST | ACK),
        (FIN, b"abc", 0, 11, RST | ACK),
        (0, b"abc", 0, 10, RST | ACK),
        (ACK, b"abc", 9, 0, RST),
        (SYN | ACK, b"", 9, 0, RST),
        (FIN | ACK, b"", 9, 0, RST),
    ];
    for (flags, data, sequence, acknowledgement, answer_flags) in cases {
        for mut packet in frames(6, &tcp(flags, &[2, 4, 5, 0xb4], data)) {
            let asked = copy(&packet);
            packet.set_timestamp(asked.timestamp());
            assert!(tcp_reset(&mut packet));
            assert_turned(&packet, &asked);
            let reset = packet.tcp().unwrap();
            assert_eq!(
                (
                    reset.sequence(),
                    reset.acknowledgement(),
                    reset.flags(),
                    reset.payload_length()
                ),
                (sequence, acknowledgement, answer_flags, 0)
            );
            assert!(reset.options().is_empty());
            assert_eq!(
                (packet.source(), packet.destination()),
                (asked.destination(), asked.source())
            );
            // It belongs to the flow that it answers.
            let ((key, way), (asked_key, asked_way)) =
                (FlowKey::of(&packet).unwrap(), FlowKey::of(&asked).unwrap());
            assert_eq!((key, way), (asked_key, asked_way.reversed()));
        }
    }
}

#[test]
fn the_resets_acknowledgement_counts_data_that_a_capture_lacks() {
    let ip = v4(6, &[], 0, &tcp(SYN, &[2, 4, 5, 0xb4, 1, 1, 1, 0], &[5; 100]));
    let mut packet = loaded(LinkType::Raw, &ip[..44]);
    packet.set_wire_length(ip.len() as u32);
    assert_eq!(parse(&mut packet), Ok(()));
    assert!(tcp_reset(&mut packet));
    assert_eq!(packet.tcp().unwrap().acknowledgement(), 7 + 1 + 100);
}

#[test]
fn errors_quote_as_much_as_they_may() {
    for length in [0, 1, 7, 500, 540, 541, 1000, 1232, 1233, 1400] {
        for mut packet in frames(17, &udp(&std::vec![0x5a; length])) {
            let asked = copy(&packet);
            assert!(icmp_unreachable(
                &mut packet,
                Unreachable::Port.code(asked.version())
            ));
            assert_turned(&packet, &asked);
            let (longest, header, kind) = if asked.version() == 4 {
                (576, 28, [3, 3])
            } else {
                (1280, 48, [1, 4])
            };
            assert_eq!(packet.transport()[..2], kind);
            assert_eq!(
                packet.network().len(),
                (header + asked.network().len()).min(longest)
            );
            assert_eq!(
                packet.network()[header..],
                asked.network()[..packet.network().len() - header]
            );
            let (key, way) = FlowKey::of(&asked).unwrap();
            assert_eq!(FlowKey::of(&packet), Some((key, way.reversed())));
        }
    }
}

#[test]
fn the_other_errors() {
    for mut packet in frames(17, &udp(b"abc")) {
        let mut expired = copy(&packet);
        assert!(time_exceeded(&mut expired));
        assert_turned(&expired, &packet);
        let kind = if packet.version() == 4 { 11 } else { 3 };
        assert_eq!(expired.transport()[..2], [kind, 0]);
        let asked = copy(&packet);
        assert!(too_big(&mut packet, 1400));
        assert_turned(&packet, &asked);
        let start = if packet.version() == 4 { [3, 4] } else { [2, 0] };
        assert_eq!(packet.transport()[..2], start);
        assert_eq!(packet.transport()[4..8], [0, 0, 0x05, 0x78]);
    }
}

#[test]
fn codes_of_both_versions() {
    use Unreachable::*;
    let codes = |version| [NoRoute, Host, Port, Prohibited].map(|u| u.code(version));
    assert_eq!(codes(4), [0, 1, 3, 13]);
    assert_eq!(codes(6), [0, 3, 4, 1]);
}

fn unanswered(link: LinkType, frame: &[u8]) {
    let mut packet = parsed(link, frame);
    assert!(!icmp_unreachable(&mut packet, 0), "{frame:02x?}");
    assert!(!tcp_reset(&mut packet));
    assert_eq!(packet.frame(), frame);
    assert!(packet.has(flag::PARSED));
}

#[test]
fn what_must_not_be_answered_is_not() {
    let datagram = v4(17, &[], 0, &udp(b"abc"));
    let quoting = v4(1, &[], 0, &icmp(3, 1, [0; 4], &datagram));
    let quoting_nothing = v4(1, &[], 0, &icmp(11, 0, [0; 4], &[]));
    let quoting6 = v6(58, &icmp(1, 0, [0; 4], &v6(17, &udp(b"abc"))));
    let redirect6 = v6(58, &icmp(137, 0, [0; 4], &[0; 32]));
    let later = v4(6, &[], 5, &[0; 32]);
    let routed = v4(6, &[131, 7, 4, 1, 1, 1, 1, 0], 0, &tcp(SYN, &[], &[]));
    let routed6 = v6(43, &[&[6, 0, 4, 1, 0, 0, 0, 0], &tcp(SYN, &[], &[])[..]].concat());
    for ip in [
        quoting,
        quoting_nothing,
        quoting6,
        redirect6,
        later,
        routed.clone(),
        routed6.clone(),
    ] {
        unanswered(LinkType::Raw, &ip);
    }
    // But by a router over IPv6, whose error comes from no stop of the route.
    for (ip, router) in [(routed, Addr::v4([10, 9, 9, 9])), (routed6, Addr::v6([0xfd; 16]))] {
        let mut packet = parsed(LinkType::Raw, &ip);
        let may = packet.version() == 6;
        assert_eq!(may_have_error_from(&packet, router, 3), may);
        assert_eq!(icmp_error_from(&mut packet, router, (3, 0), 0), may);
        assert_eq!(packet.frame() == ip, !may);
        if may {
            etherparse_agrees(packet.network());
            assert_eq!(packet.network()[48..], ip);
        }
        let other = if may {
            Addr::v4([10, 9, 9, 9])
        } else {
            Addr::v6([0xfd; 16])
        };
        assert!(!may_have_error_from(&packet, other, 3), "of the other version");
    }
    for (at, address) in [
        (12, [0, 0, 0, 0]),
        (12, [224, 0, 0, 1]),
        (12, [255, 255, 255, 255]),
        (12, [240, 0, 0, 1]),
        (16, [239, 1, 1, 1]),
        (16, [255, 255, 255, 255]),
    ] {
        let mut ip = v4(6, &[], 0, &tcp(SYN, &[], &[]));
        ip[at..at + 4].copy_from_slice(&address);
        unanswered(LinkType::Raw, &ip);
    }
    for (at, first) in [(8, 0xff), (24, 0xff)] {
        let mut ip = v6(6, &tcp(SYN, &[], &[]));
        ip[at] = first;
        unanswered(LinkType::Raw, &ip);
    }
    let mut unspecified = v6(6, &tcp(SYN, &[], &[]));
    unspecified[8..24].fill(0);
    unanswered(LinkType::Raw, &unspecified);
    // To all hosts on the link.
    let mut broadcast = ethernet(0x0800, &v4(6, &[], 0, &tcp(SYN, &[], &[])));
    broadcast[..6].fill(0xff);
    unanswered(LinkType::Ethernet, &broadcast);
    let mut cooked = std::vec![0, 1, 0, 1, 0, 6, 2, 0, 0, 0, 0, 1, 0, 0, 8, 0];
    cooked.extend(v4(6, &[], 0, &tcp(SYN, &[], &[])));
    unanswered(LinkType::LinuxSll, &cooked);
    // A reset is not reset; a first fragment's length is unknown.
    for ip in [
        v4(6, &[], 0, &tcp(RST, &[], &[])),
        v4(6, &[], 0x2000, &tcp(SYN, &[], &[0; 8])),
    ] {
        assert!(!tcp_reset(&mut parsed(LinkType::Raw, &ip)));
    }
}

#[test]
fn too_big_goes_even_to_a_sender_to_a_group() {
    let mut ip = v6(17, &udp(b"abc"));
    ip[24] = 0xff;
    let mut packet = parsed(LinkType::Raw, &ip);
    assert!(!time_exceeded(&mut packet) && too_big(&mut packet, 1280));
}

#[test]
fn cooked_answers_are_marked_as_sent() {
    let ip = v4(6, &[], 0, &tcp(SYN, &[], &[]));
    let sll = [&[0, 0, 0, 1, 0, 6, 2, 0, 0, 0, 0, 1, 0, 0, 8, 0][..], &ip].concat();
    let sll2 = [
        &[8, 0, 0, 0, 0, 0, 0, 1, 0, 1, 0, 6, 2, 0, 0, 0, 0, 1, 0, 0][..],
        &ip,
    ]
    .concat();
    for (link, frame, at) in [(LinkType::LinuxSll, sll, 1), (LinkType::LinuxSll2, sll2, 10)] {
        let mut packet = parsed(link, &frame);
        assert!(tcp_reset(&mut packet));
        assert_eq!(packet.frame()[at], 4);
        etherparse_agrees(packet.network());
    }
}

#[test]
fn a_buffer_without_room_for_the_answer_is_left_alone() {
    use crate::packet::Pool;
    let frame = v6(17, &udp(&[7; 100]));
    let region = crate::memory::Region::heap(Pool::region_length(1, frame.len()));
    let mut packet = Pool::new(region, 1, frame.len(), 0).take().unwrap();
    assert!(packet.set_frame(&frame, LinkType::Raw));
    assert_eq!(parse(&mut packet), Ok(()));
    let room = packet.room();
    if room < frame.len() + 48 {
        assert!(!icmp_unreachable(&mut packet, 0));
        assert_eq!(packet.frame(), frame);
    } else {
        panic!("the test's buffer has {room} bytes, too many");
    }
}

#[test]
fn an_echo_request_becomes_its_reply_and_nothing_else_does() {
    let mut request = std::vec![8, 0, 0, 0, 0x12, 0x34, 0, 1];
    request.extend(b"as it was, with an odd length");
    let sum = crate::checksum::checksum(&request);
    request[2..4].copy_from_slice(&sum.to_be_bytes());
    for options in [&[][..], &[1, 1, 1, 0]] {
        let mut ip = v4(protocol::ICMP, options, 0, &request);
        ip[1] = 0xb8;
        let asked = parsed(LinkType::Ethernet, &ethernet(0x0800, &ip));
        let mut answer = parsed(LinkType::Ethernet, &ethernet(0x0800, &ip));
        assert!(answer.fill_checksums() && echo_reply(&mut answer));
        assert_turned(&answer, &asked);
        assert_eq!((answer.transport()[0], answer.network()[1]), (0, 0xb8));
        assert_eq!(answer.transport()[4..], request[4..]);
        assert_eq!(answer.network().len(), 20 + request.len());
        assert!(!echo_reply(&mut answer), "a reply is not answered");
    }
    let mut damaged = request.clone();
    damaged[12] ^= 1;
    let mut mask = request.clone();
    (mask[0], mask[2]) = (17, mask[2].wrapping_sub(9));
    for (fragment, body) in [(0x2000, &request), (0, &damaged), (0, &mask)] {
        let frame = ethernet(0x0800, &v4(protocol::ICMP, &[], fragment, body));
        let mut packet = parsed(LinkType::Ethernet, &frame);
        assert!(!echo_reply(&mut packet), "{fragment} {body:?}");
        assert_eq!(packet.frame(), frame);
    }
}
