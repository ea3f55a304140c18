//! Packets built by `etherparse`, answered, and checked with sums made from scratch.

use super::*;
use crate::memory::Frame;
use crate::pcap::{InputSettings, PcapInput};
use crate::report::Reports;
use etherparse::PacketBuilder;
use proptest::prelude::*;
use wire::checksum::{checksum, fold, sum};
use wire::memory::Region;
use wire::tcp::flags::{ACK, FIN, PSH, RST, SYN};
use wire::{FlowKey, LinkType, PacketBox, protocol};

const A: [u8; 4] = [203, 0, 113, 1];
const B: [u8; 4] = [192, 0, 2, 9];
const A6: [u8; 16] = [0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1];
const B6: [u8; 16] = [0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2];

fn pool(count: usize) -> Pool {
    Pool::new(Region::heap(Pool::region_length(count, 2048)), count, 2048, 0)
}

fn packet(pool: &mut Pool, frame: &[u8], link: LinkType) -> PacketBox {
    let mut packet = pool.take().unwrap();
    assert!(packet.set_frame(frame, link));
    packet
}

/// Sends one frame to the outside world; returns its answer.
fn answers(mode: Mode, frame: &[u8], link: LinkType) -> Option<Frame> {
    let mut pool = pool(1);
    let mut port = ReflectPort::new(ReflectSettings { mode, queue: 4 });
    let mut burst = Burst::new();
    burst.push(packet(&mut pool, frame, link));
    port.transmit(0, &mut pool, &mut burst);
    assert_eq!(port.counters().sent_packets, 1);
    port.receive(0, &mut pool, &mut burst);
    assert!(port.finished());
    let answer = burst.pop().map(|p| {
        let frame = Frame::of(&p);
        pool.give(p);
        frame
    });
    assert_eq!(pool.free(), 1);
    answer
}

/// Parses a frame and has all its checksums made again.
fn check(frame: &[u8], link: LinkType) -> PacketBox {
    let mut pool = pool(1);
    let mut packet = packet(&mut pool, frame, link);
    wire::parse(&mut packet).unwrap();
    let network = packet.network();
    let addresses = if packet.version() == 4 {
        assert_eq!(
            checksum(&network[..usize::from(network[0] & 15) * 4]),
            0,
            "IPv4 header checksum"
        );
        &network[12..20]
    } else {
        &network[8..40]
    };
    let segment = packet.transport();
    let pseudo = sum(addresses, u32::from(packet.protocol()) + segment.len() as u32);
    match packet.protocol() {
        protocol::ICMP => assert_eq!(checksum(segment), 0, "ICMP checksum"),
        protocol::SCTP => {}
        _ => assert_eq!(fold(sum(segment, pseudo)), 0xffff, "transport checksum"),
    }
    packet
}

fn written(builder: etherparse::PacketBuilderStep<impl Final>, payload: &[u8]) -> Vec<u8> {
    let mut frame = Vec::new();
    Final::write(builder, &mut frame, payload);
    frame
}

/// `PacketBuilder` has one `write` per last step.
trait Final: Sized {
    fn write(step: etherparse::PacketBuilderStep<Self>, out: &mut Vec<u8>, payload: &[u8]);
}

macro_rules! last_steps {
    ($($step:ty),*) => { $(impl Final for $step {
        fn write(step: etherparse::PacketBuilderStep<Self>, out: &mut Vec<u8>, payload: &[u8]) {
            step.write(out, payload).unwrap();
        }
    })* };
}
last_steps!(
    etherparse::TcpHeader,
    etherparse::UdpHeader,
    etherparse::Icmpv4Header,
    etherparse::Icmpv6Header
);

fn segment(flags: u8, sequence: u32, acknowledgement: u32, options: &[u8], payload: &[u8]) -> Vec<u8> {
    let mut step = PacketBuilder::ethernet2([1; 6], [2; 6])
        .ipv4(A, B, 60)
        .tcp(50_000, 80, sequence, 1000);
    if flags & SYN != 0 {
        step = step.syn();
    }
    if flags & ACK != 0 {
        step = step.ack(acknowledgement);
    }
    if flags & FIN != 0 {
        step = step.fin();
    }
    if flags & RST != 0 {
        step = step.rst();
    }
    if flags & PSH != 0 {
        step = step.psh();
    }
    written(step.options_raw(options).unwrap(), payload)
}

#[test]
fn the_mirror_swaps_the_ends_and_nothing_else() {
    let frame = segment(PSH | ACK, 7, 8, &[1, 1, 8, 10, 0, 0, 0, 1, 0, 0, 0, 2], b"hello");
    let answer = answers(Mode::Mirror, &frame, LinkType::Ethernet).unwrap();
    let back = check(&answer.bytes, LinkType::Ethernet);
    assert_eq!(&answer.bytes[..12], [1, 1, 1, 1, 1, 1, 2, 2, 2, 2, 2, 2]);
    assert_eq!(back.source().to_string(), "192.0.2.9:80");
    assert_eq!(back.destination().to_string(), "203.0.113.1:50000");
    assert_eq!((back.payload(), back.ttl()), (&b"hello"[..], 60));
    let differ = frame
        .iter()
        .zip(&answer.bytes)
        .enumerate()
        .filter(|(_, (a, b))| a != b);
    assert!(
        differ
            .map(|(at, _)| at)
            .all(|at| at < 12 || (26..38).contains(&at))
    );

    let frame = written(
        PacketBuilder::ethernet2([1; 6], [2; 6])
            .single_vlan(etherparse::VlanId::try_new(7).unwrap())
            .ipv6(A6, B6, 60)
            .udp(5000, 53),
        b"question",
    );
    let answer = answers(Mode::Mirror, &frame, LinkType::Ethernet).unwrap();
    let back = check(&answer.bytes, LinkType::Ethernet);
    assert_eq!(back.source().to_string(), "[2001:db8::2]:53");
    assert_eq!((back.vlan(), back.payload()), (7, &b"question"[..]));
}

#[test]
fn every_link_layer_is_mirrored() {
    let ip = written(PacketBuilder::ipv4(A, B, 60).udp(1000, 53), b"x");
    for (link, header) in [
        (LinkType::Raw, vec![]),
        (LinkType::Loopback, vec![2, 0, 0, 0]),
        (LinkType::LinuxSll, [&[0; 14][..], &[8, 0]].concat()),
        (LinkType::LinuxSll2, [&[8, 0][..], &[0; 18]].concat()),
    ] {
        let answer = answers(Mode::Mirror, &[header.clone(), ip.clone()].concat(), link).unwrap();
        assert_eq!((answer.link, &answer.bytes[..header.len()]), (link, &header[..]));
        assert_eq!(check(&answer.bytes, link).source().to_string(), "192.0.2.9:53");
    }
}

#[test]
fn the_buffer_itself_comes_back() {
    let mut pool = pool(2);
    let mut port = ReflectPort::new(ReflectSettings::default());
    let mut burst = Burst::new();
    let frame = segment(SYN, 1, 0, &[], b"");
    let mut sent = packet(&mut pool, &frame, LinkType::Ethernet);
    sent.set_timestamp(77);
    sent.set_flags(flag::HAIRPIN);
    let buffer = sent.frame().as_ptr();
    burst.push(sent);
    port.transmit(0, &mut pool, &mut burst);
    port.receive(0, &mut pool, &mut burst);
    assert_eq!(
        (burst[0].frame().as_ptr(), burst[0].timestamp(), burst[0].flags()),
        (buffer, 77, 0)
    );
    pool.give(burst.pop().unwrap());
}

#[test]
fn sctp_gets_a_new_crc_where_it_had_a_right_one() {
    // Ports 1000 and 2000, tag 1, CRC below, an INIT chunk's first bytes.
    let mut sctp = vec![3, 0xe8, 7, 0xd0, 0, 0, 0, 1, 0, 0, 0, 0, 1, 0, 0, 8, 1, 2, 3, 4];
    // CRC32c of the above from an independent implementation (table-driven).
    let crc = crc32c_by_table(&sctp);
    sctp[8..12].copy_from_slice(&crc);
    let mut ip = vec![0x45, 0, 0, 40, 0, 0, 0, 0, 64, protocol::SCTP, 0, 0];
    ip.extend(A);
    ip.extend(B);
    let header_sum = checksum(&ip);
    ip[10..12].copy_from_slice(&header_sum.to_be_bytes());
    let frame = [ip, sctp].concat();
    let answer = answers(Mode::Mirror, &frame, LinkType::Raw).unwrap().bytes;
    let mut back = answer[20..].to_vec();
    assert_eq!(back[..4], [7, 0xd0, 3, 0xe8]);
    let crc: Vec<u8> = back[8..12].to_vec();
    back[8..12].fill(0);
    assert_eq!(crc, crc32c_by_table(&back));
    let mut wrong = frame.clone();
    wrong[30] ^= 0xff;
    assert_eq!(
        answers(Mode::Mirror, &wrong, LinkType::Raw).unwrap().bytes[28..32],
        wrong[28..32]
    );
}

fn crc32c_by_table(bytes: &[u8]) -> [u8; 4] {
    let table: Vec<u32> = (0..256u32)
        .map(|n| (0..8).fold(n, |c, _| if c & 1 == 1 { c >> 1 ^ 0x82f6_3b78 } else { c >> 1 }))
        .collect();
    let crc = bytes
        .iter()
        .fold(!0u32, |c, b| table[((c ^ u32::from(*b)) & 255) as usize] ^ c >> 8);
    (!crc).to_le_bytes()
}

/// "Port unreachable" from `A` about a UDP packet that `B` sent to `A`.
fn icmp_error() -> Vec<u8> {
    let quoted = written(PacketBuilder::ipv4(B, A, 60).udp(53, 5000), b"lost");
    let kind =
        etherparse::Icmpv4Type::DestinationUnreachable(etherparse::icmpv4::DestUnreachableHeader::Port);
    written(PacketBuilder::ipv4(A, B, 60).icmpv4(kind), &quoted)
}

#[test]
fn the_mirror_turns_an_icmp_error_with_its_quotation() {
    let frame = icmp_error();
    let answer = answers(Mode::Mirror, &frame, LinkType::Raw).unwrap();
    let back = check(&answer.bytes, LinkType::Raw);
    let quoted = wire::parse::quoted(&back).unwrap();
    assert_eq!(quoted.source.to_string(), "203.0.113.1:5000");
    assert_eq!(quoted.destination.to_string(), "192.0.2.9:53");
    assert_eq!(back.source_addr().to_string(), "192.0.2.9");
    assert_eq!(check(&answer.bytes[28..], LinkType::Raw).destination_port(), 53);
}

#[test]
fn what_is_not_answered() {
    assert_eq!(answers(Mode::Answer, &icmp_error(), LinkType::Raw), None);
    for frame in [
        segment(RST, 1, 0, &[], b""),
        segment(RST | ACK, 1, 1, &[], b""),
        segment(ACK, 1, 1, &[], b""),
        segment(SYN | FIN, 1, 1, &[], b""),
        written(
            PacketBuilder::ethernet2([1; 6], [2; 6])
                .ipv4(A, [224, 0, 0, 251], 1)
                .udp(5353, 5353),
            b"who",
        ),
        written(
            PacketBuilder::ethernet2([1; 6], [2; 6])
                .ipv4(A, B, 60)
                .icmpv4_echo_reply(1, 2),
            b"pong",
        ),
        // ARP: not even parsed.
        [&[0xff; 12][..], &[8, 6], &[0; 46]].concat(),
    ] {
        assert_eq!(answers(Mode::Answer, &frame, LinkType::Ethernet), None);
    }
}

#[test]
fn a_connection_from_syn_to_fin() {
    let first = first_sequence(100);
    let steps = [
        (segment(SYN, 100, 0, &[], b""), Some((SYN | ACK, first, 101))),
        (segment(ACK, 101, first + 1, &[], b""), None),
        (
            segment(ACK | PSH, 101, first + 1, &[], &[7; 20]),
            Some((ACK, first + 1, 121)),
        ),
        (
            segment(ACK | FIN, 121, first + 1, &[], b""),
            Some((FIN | ACK, first + 1, 122)),
        ),
        (segment(ACK, 122, first + 2, &[], b""), None),
    ];
    for (frame, expected) in steps {
        let answer = answers(Mode::Answer, &frame, LinkType::Ethernet);
        let answer = answer.map(|frame| {
            let back = check(&frame.bytes, LinkType::Ethernet);
            assert_eq!(back.source().to_string(), "192.0.2.9:80");
            assert_eq!((back.ttl(), frame.wire_length as usize), (64, frame.bytes.len()));
            let tcp = back.tcp().unwrap();
            assert_eq!((tcp.payload_length(), tcp.window()), (0, 65_535));
            (tcp.flags(), tcp.sequence(), tcp.acknowledgement())
        });
        assert_eq!(answer, expected);
    }
}

#[test]
fn odd_segments_get_what_rfc_9293_says() {
    let answered = |frame: Vec<u8>| {
        let back = check(
            &answers(Mode::Answer, &frame, LinkType::Ethernet).unwrap().bytes,
            LinkType::Ethernet,
        );
        let tcp = back.tcp().unwrap();
        (tcp.flags(), tcp.sequence(), tcp.acknowledgement())
    };
    assert_eq!(answered(segment(SYN | ACK, 5, 9, &[], b"")), (ACK, 9, 6));
    assert_eq!(answered(segment(FIN, 5, 0, &[], b"ab")), (RST | ACK, 0, 8));
    assert_eq!(answered(segment(0, 5, 0, &[], b"")), (RST | ACK, 0, 5));
    assert_eq!(
        answered(segment(ACK | FIN, u32::MAX, 9, &[], b"abc")),
        (FIN | ACK, 9, 3)
    );
}

#[test]
fn options_of_a_syn_are_agreed_to_and_timestamps_echoed() {
    let options = [2, 4, 5, 0xb4, 1, 3, 3, 7, 4, 2, 8, 10, 0, 0, 0, 42, 0, 0, 0, 0];
    let answer = answers(
        Mode::Answer,
        &segment(SYN, 1, 0, &options, b""),
        LinkType::Ethernet,
    )
    .unwrap();
    let back = check(&answer.bytes, LinkType::Ethernet);
    let mut expected = options;
    expected[19] = 42;
    assert_eq!(back.tcp().unwrap().options(), expected);

    let options = [
        1, 1, 5, 10, 0, 0, 0, 1, 0, 0, 0, 2, 1, 1, 8, 10, 0, 0, 0, 43, 0, 0, 0, 42,
    ];
    let answer = answers(
        Mode::Answer,
        &segment(ACK, 1, 1, &options, b"x"),
        LinkType::Ethernet,
    )
    .unwrap();
    let back = check(&answer.bytes, LinkType::Ethernet);
    assert_eq!(
        back.tcp().unwrap().options(),
        [1, 1, 8, 10, 0, 0, 0, 43, 0, 0, 0, 43]
    );
}

#[test]
fn echo_requests_get_replies_and_udp_comes_back() {
    let ping = written(PacketBuilder::ipv4(A, B, 60).icmpv4_echo_request(7, 9), b"ping");
    let answer = answers(Mode::Answer, &ping, LinkType::Raw).unwrap();
    let back = check(&answer.bytes, LinkType::Raw);
    assert_eq!((back.transport()[0], back.source_port()), (0, 7));
    assert_eq!(back.source_addr().to_string(), "192.0.2.9");

    let ping = written(PacketBuilder::ipv6(A6, B6, 60).icmpv6_echo_request(7, 9), b"ping");
    let answer = answers(Mode::Answer, &ping, LinkType::Raw).unwrap();
    assert_eq!(check(&answer.bytes, LinkType::Raw).transport()[0], 129);

    let mut query = written(PacketBuilder::ipv4(A, B, 60).udp(5000, 53), b"q");
    query[26..28].fill(0);
    let answer = answers(Mode::Answer, &query, LinkType::Raw).unwrap();
    assert_eq!(answer.bytes[26..28], [0, 0], "no checksum stays none");
    assert_eq!(answer.bytes[20..24], [0, 53, 0x13, 0x88]);
}

#[test]
fn a_full_queue_is_counted() {
    let mut pool = pool(5);
    let mut port = ReflectPort::new(ReflectSettings {
        mode: Mode::Mirror,
        queue: 3,
    });
    let mut burst = Burst::new();
    let frame = segment(SYN, 1, 0, &[], b"");
    while let Some(mut packet) = pool.take() {
        assert!(packet.set_frame(&frame, LinkType::Ethernet));
        burst.push(packet);
    }
    port.transmit(0, &mut pool, &mut burst);
    assert_eq!(
        (
            port.counters().sent_packets,
            port.counters().unsent_packets,
            pool.free()
        ),
        (3, 2, 2)
    );
    port.receive(0, &mut pool, &mut burst);
    assert_eq!((burst.len(), port.counters().received_packets), (3, 3));
    burst.drain(..).for_each(|p| pool.give(p));
}

/// The sums that the packet's checksums are about: of the IPv4 header, and of the transport with
/// its pseudo-header.
fn sums(packet: &Packet) -> (u16, u16) {
    let network = packet.network();
    let header = packet.transport_offset() - packet.network_offset();
    let (addresses, of_header) = match packet.version() {
        4 => (&network[12..20], fold(sum(&network[..header], 0))),
        _ => (&network[8..40], 0),
    };
    (
        of_header,
        fold(sum(packet.transport(), fold(sum(addresses, 0)).into())),
    )
}

#[test]
fn real_traffic_is_answered_well_formed() {
    let files = crate::pcap::tests::shared("flow");
    if files.is_empty() {
        println!("not run: needs the shared captures (FLOWKEEP_DATA)");
        return;
    }
    let mut pool = Pool::new(Region::heap(Pool::region_length(64, 65_535)), 64, 65_535, 0);
    let (mut mirrored, mut answered, mut silent) = (0, 0, 0);
    for path in &files {
        for mode in [Mode::Mirror, Mode::Answer] {
            let mut input = PcapInput::open(path, InputSettings::default(), Reports::default()).unwrap();
            let mut burst = Burst::new();
            while !input.finished() {
                input.receive(0, &mut pool, &mut burst);
                for mut packet in burst.drain(..) {
                    if wire::parse(&mut packet).is_err() {
                        pool.give(packet);
                        continue;
                    }
                    let (key, before, length) = (
                        FlowKey::of(&packet).unwrap().0,
                        sums(&packet),
                        packet.frame().len(),
                    );
                    let port = ReflectPort::new(ReflectSettings { mode, queue: 1 });
                    if !port.answer(&mut packet) {
                        silent += 1;
                        pool.give(packet);
                        continue;
                    }
                    wire::parse(&mut packet).unwrap();
                    assert_eq!(FlowKey::of(&packet).unwrap().0, key, "{}", path.display());
                    if mode == Mode::Mirror {
                        mirrored += 1;
                        assert_eq!(packet.frame().len(), length);
                        // A right checksum is right after, a wrong one is as wrong as before. SCTP
                        // has a CRC instead.
                        if packet.protocol() != protocol::SCTP {
                            assert_eq!(sums(&packet), before, "{}", path.display());
                        }
                    } else {
                        answered += 1;
                        if let Some(tcp) = packet.tcp() {
                            assert_eq!(tcp.payload_length(), 0);
                            let frame = Frame::of(&packet);
                            assert_eq!(check(&frame.bytes, frame.link).version(), packet.version());
                        }
                    }
                    pool.give(packet);
                }
            }
        }
    }
    assert_eq!(pool.free(), 64);
    println!(
        "{} captures: {mirrored} mirrored, {answered} answered, {silent} without an answer",
        files.len()
    );
}

/// Something like a packet: a valid one with some bytes changed, possibly cut.
fn damaged_frame() -> impl Strategy<Value = (Vec<u8>, LinkType, u32)> {
    let valid = prop_oneof![
        Just(segment(
            SYN,
            1,
            0,
            &[2, 4, 5, 0xb4, 8, 10, 0, 0, 0, 42, 0, 0, 0, 0, 0, 0],
            b""
        )),
        Just(segment(
            ACK | PSH,
            1,
            2,
            &[1, 1, 8, 10, 0, 0, 0, 1, 0, 0, 0, 2],
            b"data"
        )),
        Just(written(
            PacketBuilder::ethernet2([1; 6], [2; 6])
                .ipv6(A6, B6, 9)
                .tcp(1, 2, 3, 4)
                .syn(),
            b""
        )),
        Just([&[9; 12][..], &[8, 0], &icmp_error()].concat()),
        Just(written(
            PacketBuilder::ethernet2([1; 6], [2; 6])
                .ipv4(A, B, 60)
                .icmpv4_echo_request(1, 2),
            b"p"
        )),
        proptest::collection::vec(any::<u8>(), 0..100),
    ];
    let changes = proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..5);
    (
        valid,
        changes,
        any::<prop::sample::Index>(),
        any::<bool>(),
        any::<bool>(),
    )
        .prop_map(|(mut frame, changes, cut, cuts, raw)| {
            for (at, value) in changes {
                if !frame.is_empty() {
                    let at = at.index(frame.len());
                    frame[at] = value;
                }
            }
            let whole = frame.len() as u32;
            if cuts {
                frame.truncate(cut.index(frame.len() + 1));
            }
            if raw && frame.len() > 14 {
                frame.drain(..14);
                return (frame, LinkType::Raw, whole - 14);
            }
            (frame, LinkType::Ethernet, whole)
        })
}

proptest! {
    #[test]
    fn hostile_packets_do_no_harm((frame, link, wire) in damaged_frame(), mode in prop_oneof![Just(Mode::Mirror), Just(Mode::Answer)]) {
        let mut pool = pool(1);
        let mut port = ReflectPort::new(ReflectSettings { mode, queue: 1 });
        let mut burst = Burst::new();
        let mut sent = packet(&mut pool, &frame, link);
        sent.set_wire_length(wire);
        let key = wire::parse(&mut sent).ok().and_then(|()| FlowKey::of(&sent));
        burst.push(sent);
        port.transmit(0, &mut pool, &mut burst);
        prop_assert!(burst.is_empty());
        port.receive(0, &mut pool, &mut burst);
        if let Some(mut back) = burst.pop() {
            let parsed = wire::parse(&mut back);
            prop_assert!(parsed.is_ok(), "{parsed:?}");
            // An answer belongs to the flow of its packet, the other way.
            let (there, way) = key.unwrap();
            let (here, way_back) = FlowKey::of(&back).unwrap();
            prop_assert_eq!(here, there);
            if there.first() != there.second() && back.protocol() != protocol::ICMP {
                prop_assert_eq!(way_back, way.reversed());
            }
            pool.give(back);
        }
        prop_assert_eq!(pool.free(), 1);
    }

    #[test]
    fn mirrored_twice_is_as_before((frame, link, wire) in damaged_frame()) {
        let mut pool = pool(1);
        let mut packet = packet(&mut pool, &frame, link);
        packet.set_wire_length(wire);
        if wire::parse(&mut packet).is_ok() {
            swap::swap_ends(&mut packet);
            wire::parse(&mut packet).unwrap();
            swap::swap_ends(&mut packet);
            prop_assert_eq!(packet.frame(), &frame[..]);
        }
        pool.give(packet);
    }
}
