use super::*;
use crate::packet::flag;
use crate::rewrite::End;
use crate::testing::{loaded, parsed, refused};
use crate::{Endpoint, FlowKey, HashSeed, Packet, answer, parse};

/// Reads everything that there is to read.
fn read(packet: &Packet) {
    if let Some((key, way)) = FlowKey::of(packet) {
        assert_eq!(
            FlowKey::new(key.ends(way).0, key.ends(way).1, key.protocol(), key.vlan()).0,
            key
        );
        key.hash(&HashSeed::FIXED);
    }
    let quoted = parse::quoted(packet);
    assert_eq!(quoted.is_some(), packet.has(flag::ICMP_ERROR));
    if let Some(tcp) = packet.tcp() {
        assert!(tcp.each_option().map(|(_, data)| data.len() + 2).sum::<usize>() <= tcp.options().len());
    }
    assert!(packet.network_offset() <= packet.transport_offset());
    assert!(packet.transport_offset() <= packet.payload_offset());
    assert!(packet.payload_offset() <= packet.end_offset());
    assert!(packet.end_offset() <= packet.frame().len());
    packet.checksums_valid();
}

/// Does everything that can be done, each on a packet of its own; `frame` parses.
///
/// A packet whose checksums were right keeps them, and one whose were wrong is not made to look
/// sound.
fn write(link: LinkType, frame: &[u8], wire: u32) {
    let load = || {
        let mut packet = loaded(link, frame);
        packet.set_wire_length(wire);
        parse(&mut packet).expect("it parsed before");
        packet
    };
    let version = load().version();
    // With its length, if it came without.
    let frame = &load().frame().to_vec()[..];
    let to: Endpoint = if version == 4 {
        "198.51.100.7:4321"
    } else {
        "[2001:db8:7::7]:4321"
    }
    .parse()
    .unwrap();
    for end in [End::Source, End::Destination] {
        let mut packet = load();
        let right = packet.checksums_valid();
        if packet.rewrite(end, to) {
            agrees(&packet);
            assert_eq!(packet.checksums_valid(), right);
        }
        let (mut lean, mut long) = (load(), load());
        let from = if end == End::Source {
            lean.source()
        } else {
            lean.destination()
        };
        if let (Some(old), Some(new)) = (from.addr.as_v4(), to.addr.as_v4())
            && lean.swap_v4(end, (old, from.port), (new, to.port)).is_some()
        {
            assert!(long.rewrite(end, to));
            assert_eq!((lean.frame(), lean.source()), (long.frame(), long.source()));
        }
        assert_eq!(
            (lean.destination(), lean.flags()),
            (long.destination(), long.flags())
        );
        let mut packet = load();
        if packet.rewrite_quoted(end, to, Some(to)) {
            agrees(&packet);
            assert_eq!(packet.checksums_valid(), right);
        }
    }
    load().decrement_ttl();
    let mut packet = load();
    if packet.fill_checksums() {
        assert!(packet.checksums_valid());
    }
    for make in [answer::tcp_reset, answer::time_exceeded, |p: &mut Packet| {
        answer::too_big(p, 1280)
    }] {
        let mut packet = load();
        if make(&mut packet) {
            agrees(&packet);
            assert!(packet.checksums_valid());
        } else {
            assert_eq!(packet.frame(), frame);
        }
    }
}

/// The notes say what a fresh parse finds.
fn agrees(packet: &Packet) {
    read(packet);
    let mut again = loaded(packet.link(), packet.frame());
    again.set_wire_length(packet.wire_length());
    assert_eq!(parse(&mut again), Ok(()));
    // A later fragment's ports are not in it: the notes alone have them.
    if packet.has(flag::LATER_FRAGMENT) {
        again.set_ports(packet.source_port(), packet.destination_port());
    }
    assert_eq!(
        (packet.source(), packet.destination()),
        (again.source(), again.destination())
    );
    assert_eq!(
        (packet.flags(), FlowKey::of(packet)),
        (again.flags(), FlowKey::of(&again))
    );
}

#[test]
fn the_valid_ones_are_valid() {
    let (mut errors, mut fragments, mut sessions, mut labelled) = (0, 0, 0, 0);
    for (link, frame) in valid(1, of_many(5000)) {
        let packet = parsed(link, &frame);
        read(&packet);
        assert!(packet.checksums_valid(), "{link:?} {frame:02x?}");
        errors += usize::from(packet.has(flag::ICMP_ERROR));
        fragments += usize::from(packet.has(flag::FIRST_FRAGMENT | flag::LATER_FRAGMENT));
        sessions += usize::from(crate::link::pppoe_length_at(&frame, link).is_some());
        labelled += usize::from(packet.has(flag::LABELLED));
        write(link, &frame, frame.len() as u32);
    }
    assert!(
        cfg!(miri) || errors > 300 && fragments > 100 && sessions > 100 && labelled > 100,
        "{errors} {fragments} {sessions} {labelled}"
    );
}

/// So many cases; under miri, which takes a thousand times as long, a hundredth of them.
fn of_many(count: usize) -> usize {
    if cfg!(miri) { count / 100 + 2 } else { count }
}

#[test]
fn every_strict_prefix_is_refused_or_read() {
    for (link, frame) in valid(2, of_many(120)) {
        let end = parsed(link, &frame).end_offset();
        for length in 0..frame.len() {
            if length < end {
                refused(link, &frame[..length]);
            }
            // The same as a capture that was cut short.
            let mut packet = loaded(link, &frame[..length]);
            packet.set_wire_length(frame.len() as u32);
            if parse(&mut packet).is_ok() {
                read(&packet);
                write(link, &frame[..length], frame.len() as u32);
            }
        }
    }
}

#[test]
fn no_packet_does_harm() {
    let (mut taken, mut refused, mut mended) = (0, 0, 0);
    for (number, (link, frame)) in packets(3, of_many(30_000)).enumerate() {
        let mut packet = loaded(link, &frame);
        let wire = frame.len() as u32 + if number % 5 == 0 { 7 } else { 0 };
        packet.set_wire_length(wire);
        match parse(&mut packet) {
            Ok(()) => {
                taken += 1;
                read(&packet);
                mended += usize::from(has_got_its_length(&packet, &frame));
                write(link, &frame, wire);
            }
            Err(_) => refused += 1,
        }
    }
    assert!(
        cfg!(miri) || taken > 10_000 && refused > 5_000 && mended > 100,
        "{taken} {refused} {mended}"
    );
}

/// Parsing writes nothing but the length of an IPv4 packet that has none, and then its header is
/// right.
fn has_got_its_length(packet: &Packet, came: &[u8]) -> bool {
    let network = packet.network_offset();
    let came_without = packet.version() == 4 && came[network + 2..network + 4] == [0, 0];
    let mut expected = came.to_vec();
    if came_without {
        let total = (packet.wire_length() as usize).max(came.len()) - network;
        expected[network + 2..network + 4].copy_from_slice(&(total as u16).to_be_bytes());
        expected[network + 10..network + 12].fill(0);
        let sum = crate::checksum::checksum(&expected[network..packet.transport_offset()]);
        expected[network + 10..network + 12].copy_from_slice(&sum.to_be_bytes());
    }
    assert_eq!(packet.frame(), expected);
    came_without
}

#[test]
fn equal_seeds_give_equal_packets() {
    assert!(packets(7, 100).eq(packets(7, 100)));
    assert!(!packets(7, 100).eq(packets(8, 100)));
}

proptest::proptest! {
    #[test]
    fn random_bytes_never_panic(link in 0..LINKS.len(), frame in proptest::collection::vec(proptest::num::u8::ANY, 0..200)) {
        let mut packet = loaded(LINKS[link], &frame);
        if parse(&mut packet).is_ok() {
            read(&packet);
            write(LINKS[link], &frame, frame.len() as u32);
        }
    }
}
