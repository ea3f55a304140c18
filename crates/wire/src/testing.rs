//! Packets for this crate's own tests: plain byte builders, independent of the code under test.

use crate::packet::Pool;
use crate::parse::{ParseError, parse};
use crate::{LinkType, PacketBox};
use std::vec::Vec;

/// A buffer with `frame` in it, not parsed. Its pool is leaked: tests are short.
pub(crate) fn loaded(link: LinkType, frame: &[u8]) -> PacketBox {
    let room = frame.len().max(2048);
    let region = crate::memory::Region::heap(Pool::region_length(1, room));
    let mut packet = Pool::new(region, 1, room, 0).take().unwrap();
    assert!(packet.set_frame(frame, link));
    packet
}

pub(crate) fn parsed(link: LinkType, frame: &[u8]) -> PacketBox {
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
