//! Checked against `etherparse`, which knows nothing of ours.

use super::*;
use etherparse::{PacketBuilder, SlicedPacket, TransportSlice};
use proptest::prelude::*;
use wire::memory::Region;
use wire::{PacketBox, Pool};

fn packet(pool: &mut Pool) -> PacketBox {
    pool.take().unwrap()
}

fn pool(frame_max: usize) -> Pool {
    Pool::new(Region::heap(Pool::region_length(1, frame_max)), 1, frame_max, 0)
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Kind {
    Tcp4,
    Tcp6,
    Udp4,
    Udp6,
}

/// A frame as a stack hands it over: its transport checksum is the pseudo-header's sum.
fn super_frame(kind: Kind, tagged: bool, payload: &[u8]) -> (Vec<u8>, usize, usize) {
    let mut frame = Vec::new();
    let builder = PacketBuilder::ethernet2([2; 6], [4; 6]);
    let ip4 = ([10, 0, 0, 1], [10, 0, 0, 2]);
    let ip6 = ([0xfd; 16], [0xfe; 16]);
    macro_rules! transport {
        ($builder:expr) => {
            match kind {
                Kind::Tcp4 | Kind::Tcp6 => $builder
                    .tcp(4000, 80, 0xffff_fff0, 1000)
                    .ack(7)
                    .psh()
                    .fin()
                    .options_raw(&[1, 1, 8, 10, 0, 0, 0, 1, 0, 0, 0, 2])
                    .unwrap()
                    .write(&mut frame, payload)
                    .unwrap(),
                Kind::Udp4 | Kind::Udp6 => $builder.udp(4000, 53).write(&mut frame, payload).unwrap(),
            }
        };
    }
    match (kind, tagged) {
        (Kind::Tcp4 | Kind::Udp4, false) => transport!(builder.ipv4(ip4.0, ip4.1, 64)),
        (Kind::Tcp4 | Kind::Udp4, true) => {
            transport!(builder.single_vlan(7.try_into().unwrap()).ipv4(ip4.0, ip4.1, 64))
        }
        (_, false) => transport!(builder.ipv6(ip6.0, ip6.1, 64)),
        (_, true) => transport!(builder.single_vlan(7.try_into().unwrap()).ipv6(ip6.0, ip6.1, 64)),
    }
    let network = if tagged { 18 } else { 14 };
    let (v6, tcp) = (
        matches!(kind, Kind::Tcp6 | Kind::Udp6),
        matches!(kind, Kind::Tcp4 | Kind::Tcp6),
    );
    let transport = network + if v6 { 40 } else { 20 };
    let offset = if tcp { 16 } else { 6 };
    let addresses = if v6 {
        network + 8..network + 40
    } else {
        network + 12..network + 20
    };
    let length = (frame.len() - transport) as u32;
    let pseudo = fold(sum(&frame[addresses], length + if tcp { 6 } else { 17 }));
    put(&mut frame, transport + offset, pseudo);
    (frame, transport, offset)
}

fn header(kind: Kind, segment: u16, transport: usize, offset: usize) -> FrameHeader {
    FrameHeader {
        flags: NEEDS_CHECKSUM,
        kind: match kind {
            Kind::Tcp4 => TCP_V4 | ECN,
            Kind::Tcp6 => TCP_V6,
            Kind::Udp4 | Kind::Udp6 => UDP,
        },
        segment,
        checksum_start: transport as u16,
        checksum_offset: offset as u16,
    }
}

/// Payload and, of TCP, sequence number and whether FIN and PSH are set, of a frame whose checksums
/// are right.
fn seen(frame: &[u8]) -> (Vec<u8>, u32, bool) {
    let mut pool = pool(2000);
    let mut whole = packet(&mut pool);
    assert!(whole.set_frame(frame, LinkType::Ethernet));
    wire::parse(&mut whole).unwrap();
    assert!(whole.checksums_valid());
    pool.give(whole);
    let sliced = SlicedPacket::from_ethernet(frame).unwrap();
    let (source, destination) = match sliced.net.as_ref().unwrap() {
        etherparse::NetSlice::Ipv4(ip) => {
            let header = ip.header().to_header();
            assert_eq!(header.header_checksum, header.calc_header_checksum());
            (header.source.to_vec(), header.destination.to_vec())
        }
        etherparse::NetSlice::Ipv6(ip) => (ip.header().source().to_vec(), ip.header().destination().to_vec()),
        other => panic!("{other:?}"),
    };
    match sliced.transport.unwrap() {
        TransportSlice::Tcp(tcp) => {
            let expected = match source.len() {
                4 => tcp.calc_checksum_ipv4(
                    source[..].try_into().unwrap(),
                    destination[..].try_into().unwrap(),
                ),
                _ => tcp.calc_checksum_ipv6(
                    source[..].try_into().unwrap(),
                    destination[..].try_into().unwrap(),
                ),
            };
            // One's complement has two zeros.
            assert_eq!(tcp.checksum() % 0xffff, expected.unwrap() % 0xffff);
            assert_eq!(tcp.fin(), tcp.psh());
            (tcp.payload().to_vec(), tcp.sequence_number(), tcp.fin())
        }
        TransportSlice::Udp(udp) => (udp.payload().to_vec(), 0, false),
        other => panic!("{other:?}"),
    }
}

fn cut(frame: &[u8], header: &FrameHeader) -> Vec<Vec<u8>> {
    let Ok(Work::Cut(cut)) = header.work(frame) else {
        panic!("{:?}", header.work(frame));
    };
    let mut pool = pool(cut.length_max());
    (0..cut.count())
        .map(|index| {
            let mut packet = packet(&mut pool);
            assert!(cut.write(frame, index, &mut packet));
            let bytes = packet.frame().to_vec();
            pool.give(packet);
            bytes
        })
        .collect()
}

fn kinds() -> impl Strategy<Value = Kind> {
    prop_oneof![
        Just(Kind::Tcp4),
        Just(Kind::Tcp6),
        Just(Kind::Udp4),
        Just(Kind::Udp6)
    ]
}

proptest! {
    #[test]
    fn segments_are_the_payload_in_order_with_right_headers(
        kind in kinds(), tagged: bool, length in 1_usize..20_000, segment in 48_u16..1500, salt: u8,
    ) {
        let payload: Vec<u8> = (0..length).map(|n| (n as u8).wrapping_mul(31) ^ salt ^ (n >> 8) as u8).collect();
        let (frame, transport, offset) = super_frame(kind, tagged, &payload);
        let segments = cut(&frame, &header(kind, segment, transport, offset));
        prop_assert_eq!(segments.len(), length.div_ceil(usize::from(segment)));
        let mut whole = Vec::new();
        for (index, bytes) in segments.iter().enumerate() {
            let (piece, sequence, fin) = seen(bytes);
            let last = index + 1 == segments.len();
            prop_assert_eq!(piece.len(), if last { length - whole.len() } else { usize::from(segment) });
            if matches!(kind, Kind::Tcp4 | Kind::Tcp6) {
                prop_assert_eq!(sequence, 0xffff_fff0_u32.wrapping_add(whole.len() as u32));
                prop_assert_eq!(fin, last);
            }
            whole.extend(piece);
        }
        prop_assert_eq!(whole, payload);
    }

    #[test]
    fn a_partial_checksum_is_completed(kind in kinds(), tagged: bool, payload in proptest::collection::vec(any::<u8>(), 0..1400)) {
        let (mut frame, transport, offset) = super_frame(kind, tagged, &payload);
        let header = FrameHeader { kind: NONE, segment: 0, ..header(kind, 0, transport, offset) };
        let Ok(Work::Checksum { start, offset }) = header.work(&frame) else { panic!() };
        complete_checksum(&mut frame, start, offset);
        prop_assert_eq!(seen(&frame).0, payload);
    }

    #[test]
    fn a_checksum_that_looks_partial_and_is_wrong_is_completed_and_no_other(
        kind in kinds(), tagged: bool, payload in proptest::collection::vec(any::<u8>(), 0..1400), padding in 0_usize..20,
    ) {
        let (mut frame, transport, offset) = super_frame(kind, tagged, &payload);
        frame.extend(vec![0xee; padding]);
        complete_if_partial(&mut frame);
        frame.truncate(frame.len() - padding);
        prop_assert_eq!(&seen(&frame).0, &payload);
        // Right as it is now, it stays.
        let right = frame.clone();
        complete_if_partial(&mut frame);
        prop_assert_eq!(&frame, &right);
        // Damaged on a wire, it stays damaged.
        let field = u16::from_be_bytes([frame[transport + offset], frame[transport + offset + 1]]);
        put(&mut frame, transport + offset, field ^ 0x5555);
        let damaged = frame.clone();
        complete_if_partial(&mut frame);
        let pseudo = super_frame(kind, tagged, &payload).0[transport + offset..][..2].to_vec();
        prop_assert!(frame == damaged || damaged[transport + offset..][..2] == pseudo[..]);
    }

    #[test]
    fn any_bytes_may_be_looked_at_for_a_partial_checksum(mut frame in proptest::collection::vec(any::<u8>(), 0..120), ip: bool) {
        if ip && frame.len() > 14 {
            frame[12..15].copy_from_slice(&[8, 0, 0x45]);
        }
        let length = frame.len();
        complete_if_partial(&mut frame);
        prop_assert_eq!(frame.len(), length);
    }

    #[test]
    fn any_header_over_any_frame_is_work_or_a_refusal(
        bytes in proptest::array::uniform10(any::<u8>()),
        kind in prop_oneof![Just(NONE), Just(TCP_V4), Just(TCP_V6), Just(UDP), any::<u8>()],
        built in kinds(), tagged: bool, length in 0_usize..3000, damage in proptest::collection::vec((0_usize..90, any::<u8>()), 0..6),
        start in prop_oneof![Just(34_u16), Just(38), Just(54), Just(58), any::<u16>()],
    ) {
        let (mut frame, ..) = super_frame(built, tagged, &vec![0; length]);
        for (at, value) in damage {
            if let Some(byte) = frame.get_mut(at) {
                *byte = value;
            }
        }
        let mut header = FrameHeader::read(&bytes);
        header.kind = kind;
        header.checksum_start = start;
        match header.work(&frame) {
            Ok(Work::Cut(plan)) => {
                prop_assert!(plan.count() <= frame.len() / SEGMENT_MIN + 1);
                let mut pool = pool(FRAME_MAX);
                for index in 0..plan.count() {
                    let mut packet = packet(&mut pool);
                    prop_assert!(plan.write(&frame, index, &mut packet));
                    pool.give(packet);
                }
            }
            Ok(Work::Checksum { start, offset }) => complete_checksum(&mut frame, start, offset),
            Ok(Work::None) | Err(_) => {}
        }
    }
}

#[test]
fn what_cannot_be_is_refused_by_its_reason() {
    let (frame, transport, offset) = super_frame(Kind::Tcp4, false, &[0; 3000]);
    let good = header(Kind::Tcp4, 1000, transport, offset);
    assert!(matches!(good.work(&frame), Ok(Work::Cut(_))));
    let cases = [
        (FrameHeader { segment: 47, ..good }, Refusal::SegmentsTooSmall),
        (FrameHeader { segment: 0, ..good }, Refusal::SegmentsTooSmall),
        // UDP fragmentation, which no kernel makes any more.
        (FrameHeader { kind: 3, ..good }, Refusal::UnknownKind),
        (FrameHeader { kind: TCP_V6, ..good }, Refusal::Contradiction),
        (FrameHeader { kind: UDP, ..good }, Refusal::Contradiction),
        (
            FrameHeader {
                checksum_start: 30,
                ..good
            },
            Refusal::Contradiction,
        ),
        (
            FrameHeader {
                checksum_start: 3050,
                ..good
            },
            Refusal::Contradiction,
        ),
        (
            FrameHeader {
                segment: u16::MAX,
                ..good
            },
            Refusal::Contradiction,
        ),
    ];
    for (header, refusal) in cases {
        assert_eq!(header.work(&frame), Err(refusal), "{header:?}");
    }
    let beyond = FrameHeader {
        kind: NONE,
        checksum_start: (frame.len() - offset - 1) as u16,
        ..good
    };
    assert_eq!(beyond.work(&frame), Err(Refusal::Contradiction));
}

const DISTANT: [u8; 16] = [0xfc; 16];

/// A TCP super-frame over IPv6 with headers in between, the first of this kind; the sum is for
/// `last`.
fn behind_headers(first: u8, headers: &[u8], last: [u8; 16], payload: &[u8]) -> (Vec<u8>, FrameHeader) {
    let (plain, transport, offset) = super_frame(Kind::Tcp6, false, payload);
    let mut frame = plain[..transport].to_vec();
    frame[20] = first;
    put(&mut frame, 18, (headers.len() + plain.len() - transport) as u16);
    frame.extend(headers);
    frame.extend(&plain[transport..]);
    let transport = transport + headers.len();
    let length = (frame.len() - transport) as u32;
    let pseudo = fold(sum(&last, sum(&frame[22..38], length + 6)));
    put(&mut frame, transport + offset, pseudo);
    (frame, header(Kind::Tcp6, 1000, transport, offset))
}

/// A segment routing header of one segment, with so many left, in front of TCP.
fn segment_routing(left: u8) -> Vec<u8> {
    [&[6, 2, 4, left, 0, 0, 0, 0][..], &DISTANT].concat()
}

#[test]
fn segments_behind_extension_headers_have_the_sums_of_their_last_destination() {
    let payload: Vec<u8> = (0..2500).map(|n| n as u8).collect();
    let near = [0xfe; 16];
    let options = [43, 0, 1, 4, 0, 0, 0, 0];
    for (what, first, headers, last) in [
        ("a router on the way", 43, segment_routing(1), DISTANT),
        ("the last router", 43, segment_routing(0), near),
        ("options", 60, [&[6][..], &options[1..]].concat(), near),
        (
            "options, and a router on the way",
            0,
            [&options[..], &segment_routing(1)].concat(),
            DISTANT,
        ),
    ] {
        let (frame, header) = behind_headers(first, &headers, last, &payload);
        let mut whole: Vec<u8> = Vec::new();
        for bytes in cut(&frame, &header) {
            let length = usize::from(u16::from_be_bytes([bytes[18], bytes[19]]));
            assert_eq!(length + 54, bytes.len(), "{what}");
            let transport = 54 + headers.len();
            assert_eq!(bytes[20], first, "{what}");
            assert_eq!(bytes[54..transport], headers, "{what}");
            let tcp = etherparse::TcpSlice::from_slice(&bytes[transport..]).unwrap();
            let expected = tcp.calc_checksum_ipv6([0xfd; 16], last).unwrap();
            assert_eq!(tcp.checksum() % 0xffff, expected % 0xffff, "{what}");
            whole.extend(tcp.payload());
        }
        assert_eq!(whole, payload, "{what}");
    }
}

#[test]
fn super_frames_of_tunnels_over_ipv6_are_refused() {
    let (inner, ..) = super_frame(Kind::Tcp6, false, &[0; 3000]);
    let udp = [0x12, 0xb5, 0x12, 0xb5, 0, 0, 0, 0];
    let vxlan = [&udp[..], &[8, 0, 0, 0, 0, 0, 7, 0], &inner[..54]].concat();
    let gre = [&[0, 0, 0x86, 0xdd][..], &inner[14..54]].concat();
    let fragment = [6, 0, 0, 1, 0, 0, 0, 9];
    let authentication = [
        6, 4, 0, 0, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
    ];
    for (what, first, headers) in [
        ("VXLAN", 17, &vxlan[..]),
        ("GRE", 47, &gre[..]),
        ("IPv6 in IPv6", 41, &inner[14..54]),
        ("a fragment", 44, &fragment),
        ("authentication", 51, &authentication),
        (
            "options longer than said",
            60,
            &[6, 0, 1, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0],
        ),
        ("options in front of UDP", 60, &[17, 0, 1, 4, 0, 0, 0, 0]),
        ("options beyond the transport", 60, &[6, 1, 1, 4, 0, 0, 0, 0]),
        ("half a header", 60, &[6]),
    ] {
        let (frame, header) = behind_headers(first, headers, [0xfe; 16], &[0; 3000]);
        assert_eq!(header.work(&frame), Err(Refusal::Contradiction), "{what}");
    }
}

#[test]
fn a_segment_too_long_for_the_buffer_is_told() {
    let (frame, transport, offset) = super_frame(Kind::Tcp4, false, &[0; 3000]);
    let Ok(Work::Cut(cut)) = header(Kind::Tcp4, 1448, transport, offset).work(&frame) else {
        panic!()
    };
    let mut pool = pool(1000);
    let mut packet = packet(&mut pool);
    assert!(!cut.write(&frame, 0, &mut packet));
    // The last one is short.
    assert!(cut.write(&frame, 2, &mut packet));
    pool.give(packet);
}

#[test]
fn sctp_has_a_crc_in_place_of_a_sum() {
    let mut frame = Vec::new();
    PacketBuilder::ethernet2([2; 6], [4; 6])
        .ipv4([10, 0, 0, 1], [10, 0, 0, 2], 64)
        .write(
            &mut frame,
            etherparse::ip_number::SCTP,
            &[0, 1, 0, 2, 0, 0, 0, 3, 0, 0, 0, 0, 1, 0, 0, 4],
        )
        .unwrap();
    let expected = sctp_crc(&frame[34..]).to_le_bytes();
    let mut other = frame.clone();
    complete_if_partial(&mut frame);
    complete_checksum(&mut other, 34, 8);
    assert_eq!((&frame[42..46], &other), (&expected[..], &frame));
    // A packet that has a checksum keeps it.
    frame[42] ^= 1;
    let wrong = frame.clone();
    complete_if_partial(&mut frame);
    assert_eq!(frame, wrong);
}
