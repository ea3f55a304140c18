//! Packets for this crate's own tests: plain byte builders, independent of the code under test.

use crate::packet::Pool;
use crate::parse::{ParseError, parse};
use crate::{LinkType, Packet, PacketBox};
use core::ops::{Deref, DerefMut};
use std::vec::Vec;

/// A packet in a pool of its own, which takes it back at the end.
pub(crate) struct Held {
    pool: Pool,
    packet: Option<PacketBox>,
}

impl Deref for Held {
    type Target = Packet;
    fn deref(&self) -> &Packet {
        self.packet.as_ref().expect("held until dropped")
    }
}

impl DerefMut for Held {
    fn deref_mut(&mut self) -> &mut Packet {
        self.packet.as_mut().expect("held until dropped")
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.pool.give(self.packet.take().expect("held until dropped"));
    }
}

impl core::fmt::Debug for Held {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        (**self).fmt(f)
    }
}

/// A packet with `frame` in it, not parsed.
pub(crate) fn loaded(link: LinkType, frame: &[u8]) -> Held {
    let room = frame.len().max(2048);
    let region = crate::memory::Region::heap(Pool::region_length(1, room));
    let mut pool = Pool::new(region, 1, room, 0);
    let mut packet = pool.take().unwrap();
    assert!(packet.set_frame(frame, link));
    Held {
        pool,
        packet: Some(packet),
    }
}

pub(crate) fn parsed(link: LinkType, frame: &[u8]) -> Held {
    let mut packet = loaded(link, frame);
    assert_eq!(parse(&mut packet), Ok(()), "{frame:02x?}");
    packet
}

pub(crate) fn refused(link: LinkType, frame: &[u8]) -> ParseError {
    parse(&mut loaded(link, frame)).expect_err("a frame that must be refused")
}

pub(crate) fn ethernet(ether_type: u16, rest: &[u8]) -> Vec<u8> {
    let mut frame = std::vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2];
    frame.extend(ether_type.to_be_bytes());
    frame.extend(rest);
    frame
}

/// 10.0.0.1 > 192.0.2.9; `fragment` is the header's flags and offset. The header checksum is right.
pub(crate) fn v4(protocol: u8, options: &[u8], fragment: u16, body: &[u8]) -> Vec<u8> {
    assert!(options.len().is_multiple_of(4));
    let total = (20 + options.len() + body.len()) as u16;
    let mut ip = std::vec![0x40 | (5 + options.len() / 4) as u8, 0];
    ip.extend(total.to_be_bytes());
    ip.extend([0x12, 0x34]);
    ip.extend(fragment.to_be_bytes());
    ip.extend([64, protocol, 0, 0, 10, 0, 0, 1, 192, 0, 2, 9]);
    ip.extend(options);
    let sum = crate::checksum::checksum(&ip);
    ip[10..12].copy_from_slice(&sum.to_be_bytes());
    ip.extend(body);
    ip
}

/// 2001:db8::1 > 2001:db8::9.
pub(crate) fn v6(next: u8, body: &[u8]) -> Vec<u8> {
    let mut ip = std::vec![0x60, 0, 0, 0];
    ip.extend((body.len() as u16).to_be_bytes());
    ip.extend([next, 64]);
    for last in [1, 9] {
        ip.extend([0x20, 0x01, 0x0d, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, last]);
    }
    ip.extend(body);
    ip
}

/// Ports 1000 and 80, checksum 0.
pub(crate) fn udp(payload: &[u8]) -> Vec<u8> {
    let mut udp = std::vec![0x03, 0xe8, 0, 80];
    udp.extend((8 + payload.len() as u16).to_be_bytes());
    udp.extend([0, 0]);
    udp.extend(payload);
    udp
}

/// Ports 1000 and 80, sequence 7, acknowledgement 9, checksum 0.
pub(crate) fn tcp(flags: u8, options: &[u8], payload: &[u8]) -> Vec<u8> {
    assert!(options.len().is_multiple_of(4));
    let offset = ((5 + options.len() / 4) << 4) as u8;
    let mut tcp = std::vec![
        0x03, 0xe8, 0, 80, 0, 0, 0, 7, 0, 0, 0, 9, offset, flags, 0x20, 0, 0, 0, 0, 0
    ];
    tcp.extend(options);
    tcp.extend(payload);
    tcp
}

/// Checksum 0; `rest` is the header's second word.
pub(crate) fn icmp(kind: u8, code: u8, rest: [u8; 4], body: &[u8]) -> Vec<u8> {
    let mut icmp = std::vec![kind, code, 0, 0];
    icmp.extend(rest);
    icmp.extend(body);
    icmp
}

/// Asks etherparse whether the checksums of an IP packet (TCP, UDP, ICMP of its version) are right.
pub(crate) fn etherparse_agrees(ip: &[u8]) {
    use etherparse::{NetHeaders, PacketHeaders};
    let found = PacketHeaders::from_ip_slice(ip).unwrap_or_else(|e| panic!("{e}: {ip:02x?}"));
    let payload = found.payload.slice();
    let transport = found.transport.expect("etherparse knows this transport");
    let mut right = transport.clone();
    match found.net.unwrap() {
        NetHeaders::Ipv4(header, _) => {
            assert_eq!(
                header.header_checksum,
                header.calc_header_checksum(),
                "IPv4 header"
            );
            right.update_checksum_ipv4(&header, payload).unwrap();
        }
        NetHeaders::Ipv6(header, _) => right.update_checksum_ipv6(&header, payload).unwrap(),
        other => panic!("{other:?}"),
    }
    assert_eq!(right, transport, "transport checksum: {ip:02x?}");
}
