//! Any bytes on any link: parse, then read whatever a function could ask.
#![no_main]

use flowkeep_fuzz::{split, with_packet};
use libfuzzer_sys::fuzz_target;
use wire::packet::flag;
use wire::{FlowKey, HashSeed, Packet};

fuzz_target!(|input: &[u8]| {
    let Some((link, cut, frame)) = split(input) else {
        return;
    };
    with_packet(link, cut, frame, |packet, parsed| {
        assert_eq!(parsed, packet.has(flag::PARSED));
        // Asked of a packet that did not parse, everything has an answer, too.
        look(packet);
        if parsed {
            check(packet);
        }
    });
});

fn look(packet: &Packet) {
    let _ = (
        packet.network(),
        packet.transport(),
        packet.payload(),
        packet.ttl(),
    );
    let _ = (packet.source(), packet.destination(), packet.transport_length());
    let _ = (
        FlowKey::of(packet),
        wire::parse::quoted(packet),
        packet.checksums_valid(),
    );
    if let Some(tcp) = packet.tcp() {
        let data: usize = tcp.each_option().map(|(_, data)| data.len() + 2).sum();
        assert!(data <= tcp.options().len());
        let _ = (tcp.sequence(), tcp.window(), tcp.flags(), tcp.payload_length());
    }
}

fn check(packet: &Packet) {
    let frame = packet.frame().len();
    assert!(packet.network_offset() + 20 <= packet.transport_offset());
    assert!(packet.transport_offset() <= packet.payload_offset());
    assert!(packet.payload_offset() <= packet.end_offset() && packet.end_offset() <= frame);
    // A flow, found again from its ends.
    let (key, way) = FlowKey::of(packet).expect("what parses has a key");
    let (from, to) = key.ends(way);
    assert_eq!(FlowKey::new(from, to, key.protocol(), key.vlan()).0, key);
    let hash = key.hash(&HashSeed::FIXED);
    let (back, _) = FlowKey::new(to, from, key.protocol(), key.vlan());
    assert_eq!(back.hash(&HashSeed::FIXED), hash);
    match wire::parse::quoted(packet) {
        Some(quoted) => {
            assert!(packet.has(flag::ICMP_ERROR));
            assert!(packet.payload_offset() <= quoted.network && quoted.network + 20 <= quoted.transport);
            assert!(quoted.transport <= quoted.end && quoted.end <= packet.end_offset());
            assert_eq!((to, from), (quoted.source, quoted.destination));
        }
        None => {
            assert!(!packet.has(flag::ICMP_ERROR));
            assert_eq!((from, to), (packet.source(), packet.destination()));
        }
    }
}
