//! A checked view of a TCP header (RFC 9293 3.1).

use crate::checksum::Delta;
use crate::packet::Packet;
use crate::protocol;

/// TCP flag bits, as in the header's fourteenth byte.
pub mod flags {
    #![allow(missing_docs, reason = "the names are the header's")]
    pub const FIN: u8 = 1;
    pub const SYN: u8 = 2;
    pub const RST: u8 = 4;
    pub const PSH: u8 = 8;
    pub const ACK: u8 = 16;
    pub const URG: u8 = 32;
    pub const ECE: u8 = 64;
    pub const CWR: u8 = 128;
}

/// A TCP header of at least 20 bytes. The options that the capture holds, and the length of the
/// data behind them, are worked out for the caller that asks.
#[derive(Clone, Copy)]
pub struct Tcp<'a> {
    fixed: &'a [u8; 20],
    packet: &'a Packet,
}

impl Packet {
    /// The TCP header, if this is a TCP packet that holds its 20 fixed bytes (not a later
    /// fragment).
    #[inline]
    pub fn tcp(&self) -> Option<Tcp<'_>> {
        if self.protocol() != protocol::TCP || self.has(crate::packet::flag::LATER_FRAGMENT) {
            return None;
        }
        let fixed = self.transport().first_chunk()?;
        Some(Tcp { fixed, packet: self })
    }

    /// Bytes from the transport header to the packet's end by the IP header, whatever a capture cut
    /// off.
    #[inline]
    pub fn transport_length(&self) -> u32 {
        let header = self.network();
        let before = (self.transport_offset() - self.network_offset()) as u32;
        let total = match (self.version(), header) {
            (4, [_, _, high, low, ..]) => u32::from(u16::from_be_bytes([*high, *low])),
            (6, [_, _, _, _, high, low, ..]) => 40 + u32::from(u16::from_be_bytes([*high, *low])),
            _ => 0,
        };
        total.saturating_sub(before)
    }
}

impl Packet {
    /// Lowers the largest segment that a SYN offers to `most` bytes (RFC 9293 3.7.1), with the
    /// checksum. Whether it was more. A segment without the option offers 536 and stays as it is.
    pub fn clamp_mss(&mut self, most: u16) -> bool {
        let Some((true, options)) = self
            .tcp()
            .map(|tcp| (tcp.flags() & flags::SYN != 0, tcp.options().len()))
        else {
            return false;
        };
        let Some((fixed, rest)) = self.transport_mut().split_at_mut_checked(20) else {
            return false;
        };
        let Some(options) = rest.get_mut(..options) else {
            return false;
        };
        let (mut at, mut lowered) = (0, false);
        while let Some(kind) = options.get(at).copied().filter(|kind| *kind != 0) {
            let length = match kind {
                1 => 1,
                _ => usize::from(options.get(at + 1).copied().unwrap_or(0)),
            };
            let Some(option) = options
                .get_mut(at..at + length)
                .filter(|_| length > usize::from(kind != 1))
            else {
                break;
            };
            if let [2, 4, high, low] = option {
                let offer = u16::from_be_bytes([*high, *low]);
                if offer > most {
                    [*high, *low] = most.to_be_bytes();
                    // At an odd place the field lies across two words: its bytes count swapped (RFC
                    // 1071 2 B).
                    let (old, new) = match at % 2 {
                        0 => (offer, most),
                        _ => (offer.swap_bytes(), most.swap_bytes()),
                    };
                    if let [.., high, low, _, _] = fixed {
                        let sum = Delta::NONE
                            .word(old, new)
                            .apply(u16::from_be_bytes([*high, *low]));
                        [*high, *low] = sum.to_be_bytes();
                    }
                    lowered = true;
                }
            }
            at += length;
        }
        lowered
    }
}

impl<'a> Tcp<'a> {
    #[inline]
    fn u32_at(&self, at: usize) -> u32 {
        u32::from_be_bytes([
            self.fixed[at],
            self.fixed[at + 1],
            self.fixed[at + 2],
            self.fixed[at + 3],
        ])
    }

    /// Sequence number.
    #[inline]
    pub fn sequence(&self) -> u32 {
        self.u32_at(4)
    }

    /// Acknowledgement number; meaningful with the ACK flag.
    #[inline]
    pub fn acknowledgement(&self) -> u32 {
        self.u32_at(8)
    }

    /// Bits of [`flags`].
    #[inline]
    pub fn flags(&self) -> u8 {
        self.fixed[13]
    }

    /// The window field, not scaled.
    #[inline]
    pub fn window(&self) -> u16 {
        u16::from_be_bytes([self.fixed[14], self.fixed[15]])
    }

    /// The header's length in bytes, as it says.
    #[inline]
    fn length(&self) -> usize {
        usize::from(self.fixed[12] >> 4) * 4
    }

    /// Bytes of data behind the header, by the IP header's length.
    #[inline]
    pub fn payload_length(&self) -> u32 {
        self.packet
            .transport_length()
            .saturating_sub(self.length() as u32)
    }

    /// The options as they stand, padding included. Of a capture that is cut short inside them, the
    /// options that it holds.
    #[inline]
    pub fn options(&self) -> &'a [u8] {
        let segment = self.packet.transport();
        let end = self.length().clamp(20, segment.len());
        segment.get(20..end).unwrap_or_default()
    }

    /// The well-formed options in order, as kind and data; ends at the first that does not fit.
    pub fn each_option(&self) -> TcpOptions<'a> {
        TcpOptions { rest: self.options() }
    }
}

/// Iterator over TCP options.
pub struct TcpOptions<'a> {
    rest: &'a [u8],
}

impl<'a> TcpOptions<'a> {
    /// The options in a header's option bytes.
    pub fn new(options: &'a [u8]) -> Self {
        TcpOptions { rest: options }
    }
}

impl<'a> Iterator for TcpOptions<'a> {
    type Item = (u8, &'a [u8]);
    fn next(&mut self) -> Option<Self::Item> {
        loop {
            match *self.rest {
                [] | [0, ..] => return None,
                [1, ref rest @ ..] => self.rest = rest,
                [kind, length, ..] => {
                    let length = usize::from(length);
                    let data = self.rest.get(2..length)?;
                    self.rest = &self.rest[length..];
                    return Some((kind, data));
                }
                [_] => return None,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::LinkType;
    use crate::testing::{parsed, v4};
    use std::vec::Vec;

    /// A SYN with these options, its checksums right.
    fn syn(flags: u8, options: &[u8]) -> crate::testing::Held {
        let mut body: Vec<u8> = [1000u16.to_be_bytes(), 80u16.to_be_bytes()].concat();
        body.extend([
            0,
            0,
            0,
            1,
            0,
            0,
            0,
            0,
            0x50 + (options.len() as u8 / 4) * 16,
            flags,
            16,
            0,
            0,
            0,
            0,
            0,
        ]);
        body.extend(options);
        let mut packet = parsed(LinkType::Raw, &v4(6, &[], 0, &body));
        assert!(packet.fill_checksums() && packet.checksums_valid());
        packet
    }

    #[test]
    fn an_offer_that_is_too_large_is_lowered_wherever_it_stands() {
        let at_each_place: [&[u8]; 4] = [
            &[2, 4, 5, 0xb4, 4, 2, 1, 1],
            &[1, 2, 4, 5, 0xb4, 1, 1, 0],
            &[1, 1, 2, 4, 5, 0xb4, 0, 0],
            &[8, 10, 0, 0, 0, 1, 0, 0, 0, 2, 1, 2, 4, 0xff, 0xff, 0],
        ];
        for (options, flags) in at_each_place.iter().zip([2, 18, 2, 2]) {
            let mut packet = syn(flags, options);
            assert!(packet.clamp_mss(1360) && packet.checksums_valid(), "{options:?}");
            let tcp = packet.tcp().unwrap();
            let offer = tcp.each_option().find(|(kind, _)| *kind == 2).unwrap().1.to_vec();
            assert_eq!(offer, 1360u16.to_be_bytes());
            assert!(!packet.clamp_mss(1360), "it is low enough now");
        }
    }

    #[test]
    fn all_else_stays_as_it_is() {
        let options: [(u8, &[u8]); 7] = [
            (16, &[2, 4, 5, 0xb4]),
            (2, &[2, 4, 2, 0x18]),
            (2, &[]),
            (2, &[0, 0, 2, 4, 5, 0xb4, 0, 0]),
            (2, &[2, 3, 5, 0xb4]),
            (2, &[1, 1, 1, 2]),
            (2, &[3, 0, 2, 4, 5, 0xb4, 0, 0]),
        ];
        for (flags, options) in options {
            let mut packet = syn(flags, options);
            let before = packet.frame().to_vec();
            assert!(!packet.clamp_mss(1360), "{options:?}");
            assert_eq!(packet.frame(), before);
        }
    }
}
