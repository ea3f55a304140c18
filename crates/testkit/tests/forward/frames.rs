//! Frames built and read by etherparse, which shares no code with the tested crates.

use etherparse::{Icmpv4Type, Icmpv6Type, NetSlice, PacketBuilder, SlicedPacket, TransportSlice};
use std::net::IpAddr;

/// The first 14 or 18 bytes.
pub fn ethernet(vlan: u16, v6: bool) -> Vec<u8> {
    let mut head = vec![2, 0, 0, 0, 0, 99, 2, 0, 0, 9, 9, 9];
    if vlan != 0 {
        head.extend_from_slice(&[0x81, 0]);
        head.extend_from_slice(&vlan.to_be_bytes());
    }
    head.extend_from_slice(if v6 { &[0x86, 0xdd] } else { &[0x08, 0] });
    head
}

/// A UDP packet in a frame; `tag` 0 for none.
pub fn udp_tagged(from: &str, to: &str, ports: (u16, u16), hops: u8, tag: u16, payload: &[u8]) -> Vec<u8> {
    let (from, to): (IpAddr, IpAddr) = (from.parse().unwrap(), to.parse().unwrap());
    let mut frame = ethernet(tag, from.is_ipv6());
    match (from, to) {
        (IpAddr::V4(a), IpAddr::V4(b)) => PacketBuilder::ipv4(a.octets(), b.octets(), hops)
            .udp(ports.0, ports.1)
            .write(&mut frame, payload)
            .unwrap(),
        (IpAddr::V6(a), IpAddr::V6(b)) => PacketBuilder::ipv6(a.octets(), b.octets(), hops)
            .udp(ports.0, ports.1)
            .write(&mut frame, payload)
            .unwrap(),
        _ => unreachable!("one version"),
    }
    frame
}

pub fn udp(from: &str, to: &str, hops: u8, payload: &[u8]) -> Vec<u8> {
    udp_tagged(from, to, (4000, 53), hops, 0, payload)
}

pub fn ping(from: &str, to: &str, hops: u8, id: u16, seq: u16) -> Vec<u8> {
    let (from, to): (IpAddr, IpAddr) = (from.parse().unwrap(), to.parse().unwrap());
    let mut frame = ethernet(0, from.is_ipv6());
    match (from, to) {
        (IpAddr::V4(a), IpAddr::V4(b)) => PacketBuilder::ipv4(a.octets(), b.octets(), hops)
            .icmpv4_echo_request(id, seq)
            .write(&mut frame, b"ping")
            .unwrap(),
        (IpAddr::V6(a), IpAddr::V6(b)) => PacketBuilder::ipv6(a.octets(), b.octets(), hops)
            .icmpv6_echo_request(id, seq)
            .write(&mut frame, b"ping")
            .unwrap(),
        _ => unreachable!("one version"),
    }
    frame
}

/// The same IPv4 frame with options, as many bytes as four divides.
pub fn with_options(frame: &[u8], options: &[u8]) -> Vec<u8> {
    let mut frame = frame.to_vec();
    frame.splice(34..34, options.iter().copied());
    frame[14] += (options.len() / 4) as u8;
    let total = (frame.len() - 14) as u16;
    frame[16..18].copy_from_slice(&total.to_be_bytes());
    let header = etherparse::Ipv4Header::from_slice(&frame[14..]).unwrap().0;
    let sum = header.calc_header_checksum();
    frame[24..26].copy_from_slice(&sum.to_be_bytes());
    frame
}

/// The same IPv6 frame with a routing header of one address, and so many segments left.
pub fn with_routing(frame: &[u8], kind: u8, left: u8) -> Vec<u8> {
    let mut frame = frame.to_vec();
    let mut header = vec![frame[20], 2, kind, left, 0, 0, 0, 0];
    header.extend("2001:db8::77".parse::<std::net::Ipv6Addr>().unwrap().octets());
    frame[20] = 43;
    frame.splice(54..54, header);
    let length = (frame.len() - 54) as u16;
    frame[18..20].copy_from_slice(&length.to_be_bytes());
    frame
}

/// An ICMP error about the IP packet of a frame.
pub fn error(from: &str, to: &str, kind: (u8, u8), rest: [u8; 4], about: &[u8]) -> Vec<u8> {
    let (from, to): (IpAddr, IpAddr) = (from.parse().unwrap(), to.parse().unwrap());
    let mut frame = ethernet(0, from.is_ipv6());
    let about = &about[14..];
    match (from, to) {
        (IpAddr::V4(a), IpAddr::V4(b)) => PacketBuilder::ipv4(a.octets(), b.octets(), 64)
            .icmpv4_raw(kind.0, kind.1, rest)
            .write(&mut frame, about)
            .unwrap(),
        (IpAddr::V6(a), IpAddr::V6(b)) => PacketBuilder::ipv6(a.octets(), b.octets(), 64)
            .icmpv6_raw(kind.0, kind.1, rest)
            .write(&mut frame, about)
            .unwrap(),
        _ => unreachable!("one version"),
    }
    frame
}

/// A frame as etherparse reads it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seen {
    pub to: [u8; 6],
    pub from: [u8; 6],
    pub vlan: u16,
    pub source: IpAddr,
    pub destination: IpAddr,
    pub hops: u8,
    /// Ports of UDP, type and code of ICMP.
    pub about: (u16, u16),
    /// Behind the transport header.
    pub payload: Vec<u8>,
    /// The second word of ICMP.
    pub rest: [u8; 4],
}

/// Reads a frame and checks all its checksums.
#[track_caller]
pub fn seen(frame: &[u8]) -> Seen {
    let sliced = SlicedPacket::from_ethernet(frame).unwrap();
    let vlan = sliced.vlan_ids().last().map_or(0, |id| id.value());
    let (source, destination, hops): (IpAddr, IpAddr, u8) = match sliced.net.as_ref().unwrap() {
        NetSlice::Ipv4(v4) => {
            let header = v4.header();
            assert_eq!(
                header.header_checksum(),
                header.to_header().calc_header_checksum()
            );
            (
                header.source_addr().into(),
                header.destination_addr().into(),
                header.ttl(),
            )
        }
        NetSlice::Ipv6(v6) => {
            let header = v6.header();
            (
                header.source_addr().into(),
                header.destination_addr().into(),
                header.hop_limit(),
            )
        }
        _ => panic!("no IP"),
    };
    let octets = |addr: IpAddr| match addr {
        IpAddr::V4(v4) => v4.octets().to_vec(),
        IpAddr::V6(v6) => v6.octets().to_vec(),
    };
    let v6 = |addr: IpAddr| <[u8; 16]>::try_from(octets(addr)).unwrap();
    let v4 = |addr: IpAddr| <[u8; 4]>::try_from(octets(addr)).unwrap();
    let (about, payload, rest) = match sliced.transport.as_ref().unwrap() {
        TransportSlice::Udp(udp) => {
            let header = udp.to_header();
            let right = match source {
                IpAddr::V4(_) => header.calc_checksum_ipv4_raw(v4(source), v4(destination), udp.payload()),
                IpAddr::V6(_) => header.calc_checksum_ipv6_raw(v6(source), v6(destination), udp.payload()),
            };
            assert_eq!(header.checksum, right.unwrap());
            (
                (header.source_port, header.destination_port),
                udp.payload().to_vec(),
                [0; 4],
            )
        }
        TransportSlice::Icmpv4(icmp) => {
            let kind: Icmpv4Type = icmp.icmp_type();
            assert_eq!(icmp.checksum(), kind.calc_checksum(icmp.payload()));
            let about = (u16::from(icmp.type_u8()), u16::from(icmp.code_u8()));
            (about, icmp.payload().to_vec(), icmp.bytes5to8())
        }
        TransportSlice::Icmpv6(icmp) => {
            let kind: Icmpv6Type = icmp.icmp_type();
            let right = kind.calc_checksum(v6(source), v6(destination), icmp.payload());
            assert_eq!(icmp.checksum(), right.unwrap());
            let about = (u16::from(icmp.type_u8()), u16::from(icmp.code_u8()));
            (about, icmp.payload().to_vec(), icmp.bytes5to8())
        }
        other => panic!("{other:?}"),
    };
    Seen {
        to: frame[..6].try_into().unwrap(),
        from: frame[6..12].try_into().unwrap(),
        vlan,
        source,
        destination,
        hops,
        about,
        payload,
        rest,
    }
}

/// The IP packet quoted by an error.
pub fn quoted(seen: &Seen) -> Seen {
    let v6 = seen.source.is_ipv6();
    let mut frame = ethernet(0, v6);
    frame.extend_from_slice(&seen.payload);
    self::seen(&frame)
}
