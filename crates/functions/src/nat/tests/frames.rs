//! Frames made and checked with `etherparse`, which knows nothing of our checksums.

extern crate std;

use etherparse::{Icmpv4Slice, PacketBuilder, SlicedPacket, TransportSlice};
use std::vec::Vec;

pub type V4 = ([u8; 4], u16);

/// TCP flags by letters.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Tcp {
    Syn,
    SynAck,
    Ack,
    Fin,
    Rst,
}

fn ip(from: [u8; 4], to: [u8; 4]) -> etherparse::PacketBuilderStep<etherparse::IpHeaders> {
    PacketBuilder::ethernet2([2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2]).ipv4(from, to, 64)
}

pub fn udp(from: V4, to: V4) -> Vec<u8> {
    udp_with(from, to, b"question")
}

pub fn udp_with(from: V4, to: V4, payload: &[u8]) -> Vec<u8> {
    let mut frame = Vec::new();
    let builder = ip(from.0, to.0).udp(from.1, to.1);
    builder.write(&mut frame, payload).unwrap();
    frame
}

pub fn tcp(from: V4, to: V4, kind: Tcp) -> Vec<u8> {
    let builder = ip(from.0, to.0).tcp(from.1, to.1, 1000, 4096);
    let builder = match kind {
        Tcp::Syn => builder.syn(),
        Tcp::SynAck => builder.syn().ack(7),
        Tcp::Ack => builder.ack(7),
        Tcp::Fin => builder.fin().ack(7),
        Tcp::Rst => builder.rst(),
    };
    let mut frame = Vec::new();
    builder.write(&mut frame, b"").unwrap();
    frame
}

pub fn echo(from: [u8; 4], to: [u8; 4], id: u16, request: bool) -> Vec<u8> {
    let builder = ip(from, to);
    let builder = if request {
        builder.icmpv4_echo_request(id, 1)
    } else {
        builder.icmpv4_echo_reply(id, 1)
    };
    let mut frame = Vec::new();
    builder.write(&mut frame, b"ping").unwrap();
    frame
}

/// Destination unreachable, port unreachable, quoting the IP packet of `about`.
pub fn unreachable(from: [u8; 4], to: [u8; 4], about: &[u8], quoted: usize) -> Vec<u8> {
    let quote = &about[14..about.len().min(14 + quoted)];
    let mut frame = Vec::new();
    ip(from, to)
        .icmpv4_raw(3, 3, [0; 4])
        .write(&mut frame, quote)
        .unwrap();
    frame
}

pub fn other(from: [u8; 4], to: [u8; 4], protocol: u8) -> Vec<u8> {
    let mut frame = udp((from, 1), (to, 2));
    frame[14 + 9] = protocol;
    mend_ip(&mut frame);
    frame
}

/// Recomputes the IP header's checksum after a change.
pub fn mend_ip(frame: &mut [u8]) {
    frame[24..26].fill(0);
    let header = etherparse::Ipv4HeaderSlice::from_slice(&frame[14..])
        .unwrap()
        .to_header();
    let sum = header.calc_header_checksum();
    frame[24..26].copy_from_slice(&sum.to_be_bytes());
}

/// Source and destination as they stand in the frame; for ICMP the identifier is both ports.
pub fn ends(frame: &[u8]) -> (V4, V4) {
    let sliced = SlicedPacket::from_ethernet(frame).unwrap();
    let Some(etherparse::NetSlice::Ipv4(net)) = &sliced.net else {
        panic!("not IPv4")
    };
    let (from, to) = (net.header().source(), net.header().destination());
    let (a, b) = match &sliced.transport {
        Some(TransportSlice::Udp(u)) => (u.source_port(), u.destination_port()),
        Some(TransportSlice::Tcp(t)) => (t.source_port(), t.destination_port()),
        Some(TransportSlice::Icmpv4(i)) => {
            let id = u16::from_be_bytes([i.slice()[4], i.slice()[5]]);
            (id, id)
        }
        _ => (0, 0),
    };
    ((from, a), (to, b))
}

/// Recomputes every checksum in the frame and compares.
pub fn assert_checksums(frame: &[u8]) {
    let sliced = SlicedPacket::from_ethernet(frame).unwrap();
    let Some(etherparse::NetSlice::Ipv4(net)) = &sliced.net else {
        panic!("not IPv4")
    };
    let header = net.header().to_header();
    assert_eq!(header.calc_header_checksum(), header.header_checksum, "IP header");
    if net.payload().fragmented {
        return;
    }
    match &sliced.transport {
        Some(TransportSlice::Udp(u)) => {
            let expected = u
                .to_header()
                .calc_checksum_ipv4_raw(header.source, header.destination, u.payload())
                .unwrap();
            if u.checksum() != 0 {
                assert_eq!(u.checksum(), expected, "UDP");
            }
        }
        Some(TransportSlice::Tcp(t)) => {
            let expected = t
                .to_header()
                .calc_checksum_ipv4_raw(header.source, header.destination, t.payload())
                .unwrap();
            assert_eq!(t.checksum(), expected, "TCP");
        }
        Some(TransportSlice::Icmpv4(i)) => assert_icmp(i),
        _ => {}
    }
}

fn assert_icmp(icmp: &Icmpv4Slice<'_>) {
    let bytes = icmp.slice();
    let mut sum = 0u32;
    for pair in bytes.chunks(2) {
        sum += u32::from(pair[0]) << 8 | u32::from(pair.get(1).copied().unwrap_or(0));
    }
    while sum >> 16 != 0 {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    assert_eq!(sum, 0xffff, "ICMP");
}

/// The packet that an ICMP error quotes, as a frame of its own, its transport checksum to be judged
/// if all of it is there.
pub fn quoted(frame: &[u8]) -> Vec<u8> {
    let mut inner = frame[..14].to_vec();
    inner.extend_from_slice(&frame[14 + 20 + 8..]);
    inner
}

/// The frame with what NAT may change blanked: addresses, ports or identifier, checksums.
pub fn unchanged_part(frame: &[u8]) -> Vec<u8> {
    let mut rest = frame.to_vec();
    rest[24..34].fill(0);
    match frame[23] {
        6 => {
            rest[34..38].fill(0);
            rest[50..52].fill(0);
        }
        17 => {
            rest[34..38].fill(0);
            rest[40..42].fill(0);
        }
        1 => rest[36..40].fill(0),
        _ => {}
    }
    rest
}
