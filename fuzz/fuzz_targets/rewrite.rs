//! Parse, then write whatever a function could write: a fresh parse must agree with the notes,
//! right checksums stay right and wrong ones wrong, taking it back restores the bytes, and a
//! refused packet is left alone.
#![no_main]

use flowkeep_fuzz::{split, with_packet};
use libfuzzer_sys::fuzz_target;
use wire::packet::flag;
use wire::rewrite::End;
use wire::{Endpoint, FlowKey, LinkType, Packet, answer};

fuzz_target!(|input: &[u8]| {
    let Some((link, cut, frame)) = split(input) else {
        return;
    };
    // As it is once parsed: an IPv4 packet that came without a length has got one.
    let parsed = with_packet(link, cut, frame, |packet, parsed| parsed.then(|| packet.frame().to_vec()));
    if let Some(frame) = parsed {
        ends(link, cut, &frame);
        quotations(link, cut, &frame);
        others(link, cut, &frame);
    }
});

/// Somewhere else, chosen by the frame's own last bytes.
fn elsewhere(packet: &Packet, frame: &[u8]) -> Endpoint {
    let low = frame.last().copied().unwrap_or(0);
    let addr = if packet.version() == 4 {
        wire::Addr::v4([198, 51, 100, low])
    } else {
        let mut bytes = [low; 16];
        bytes[0] = 0x20;
        wire::Addr::v6(bytes)
    };
    Endpoint::new(addr, u16::from_be_bytes([frame[frame.len() / 2], low]))
}

fn agrees(packet: &Packet) {
    let cut = packet.wire_length() - packet.frame().len() as u32;
    with_packet(packet.link(), cut, packet.frame(), |again, parsed| {
        assert!(parsed, "what was written no longer parses");
        if packet.has(flag::LATER_FRAGMENT) {
            again.set_ports(packet.source_port(), packet.destination_port());
        }
        assert_eq!(
            (packet.source(), packet.destination()),
            (again.source(), again.destination())
        );
        assert_eq!(
            (packet.flags(), packet.protocol()),
            (again.flags(), again.protocol())
        );
        assert_eq!(FlowKey::of(packet), FlowKey::of(again));
    });
}

fn ends(link: LinkType, cut: u32, frame: &[u8]) {
    for end in [End::Source, End::Destination] {
        with_packet(link, cut, frame, |packet, _| {
            let (right, to) = (packet.checksums_valid(), elsewhere(packet, frame));
            let from = if end == End::Source {
                packet.source()
            } else {
                packet.destination()
            };
            if !packet.rewrite(end, to) {
                assert_eq!(packet.frame(), frame);
                return;
            }
            agrees(packet);
            assert_eq!(packet.checksums_valid(), right);
            lean_way_agrees(packet, frame, end, (from, to));
            assert!(packet.rewrite(end, from));
            if right {
                same_but_for_zeros(packet.frame(), frame);
            }
        });
    }
}

/// A translator's fast path writes the same as the long one.
fn lean_way_agrees(long: &Packet, frame: &[u8], end: End, (from, to): (Endpoint, Endpoint)) {
    let (Some(old), Some(new)) = (from.addr.as_v4(), to.addr.as_v4()) else {
        return;
    };
    let cut = long.wire_length() - frame.len() as u32;
    with_packet(long.link(), cut, frame, |lean, _| {
        if lean.swap_v4(end, (old, from.port), (new, to.port)).is_some() {
            assert_eq!(lean.frame(), long.frame());
            assert_eq!(
                (lean.source(), lean.destination()),
                (long.source(), long.destination())
            );
        } else {
            assert_eq!(lean.frame(), frame);
        }
    });
}

fn quotations(link: LinkType, cut: u32, frame: &[u8]) {
    for end in [End::Source, End::Destination] {
        with_packet(link, cut, frame, |packet, _| {
            let (right, to) = (packet.checksums_valid(), elsewhere(packet, frame));
            if !packet.rewrite_quoted(end, to, Some(to)) {
                assert_eq!(packet.frame(), frame);
                return;
            }
            agrees(packet);
            assert_eq!(packet.checksums_valid(), right);
            let quoted = wire::parse::quoted(packet).expect("an error stays one");
            let inner = if end == End::Source {
                quoted.source
            } else {
                quoted.destination
            };
            assert_eq!(inner.addr, to.addr);
        });
    }
}

fn others(link: LinkType, cut: u32, frame: &[u8]) {
    with_packet(link, cut, frame, |packet, _| {
        let (right, ttl) = (packet.checksums_valid(), packet.ttl());
        if packet.decrement_ttl() {
            assert_eq!((packet.ttl(), packet.checksums_valid()), (ttl - 1, right));
        }
        agrees(packet);
        if packet.fill_checksums() {
            assert!(packet.checksums_valid());
        }
        agrees(packet);
    });
    let answers = [
        answer::tcp_reset,
        answer::time_exceeded,
        |packet: &mut Packet| answer::icmp_unreachable(packet, 3),
        |packet: &mut Packet| answer::too_big(packet, 1280),
    ];
    for make in answers {
        with_packet(link, cut, frame, |packet, _| {
            let asked = FlowKey::of(packet);
            if make(packet) {
                assert!(packet.checksums_valid());
                agrees(packet);
                // It belongs to the flow that it answers. A first fragment's quotation does, too;
                // nothing else is quoted that has no flow of its own.
                let (answered, asked) = (FlowKey::of(packet).map(|(k, _)| k), asked.map(|(k, _)| k));
                if packet.has(flag::ICMP_ERROR) || packet.tcp().is_some() {
                    assert_eq!(answered, asked);
                }
            } else {
                assert_eq!(packet.frame(), frame);
            }
        });
    }
}

/// Equal, but for checksums that were all ones: one's complement has two zeros, and an update
/// writes the usual one.
fn same_but_for_zeros(now: &[u8], before: &[u8]) {
    assert_eq!(now.len(), before.len());
    let differing = now.iter().zip(before).filter(|(now, before)| now != before);
    for (now, before) in differing {
        assert!(
            (*now, *before) == (0, 0xff) || (*now, *before) == (0xff, 0),
            "{now:02x} {before:02x}"
        );
    }
}
