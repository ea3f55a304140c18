//! A packet's checksums as a whole: computing them for packets made here, checking them for packets
//! that came.
//!
//! Rewriting needs neither: it updates ([`crate::rewrite`]). Functions that make answers and
//! generators fill; a function that must not answer a damaged packet checks.
//!
//! Of a fragment, of a capture cut short and of a source-routed packet (whose pseudo-header has an
//! address that is elsewhere) only the IPv4 header's checksum is looked at: the others cannot be
//! judged.
//!
//! Sources: RFC 791, 792, 4443 2.3, 8200 8.1 (pseudo-header; UDP must have a checksum), 768, 3828
//! (partial coverage), 9293, 9260 6.8.

use crate::checksum::{checksum, fold, fold_long, sctp_crc, sum};
use crate::packet::{Packet, flag};
use crate::protocol;

/// The transport's checksum: where it stands from the transport header on, and what belongs there.
enum Due {
    /// The protocol has none, or it cannot be computed from the bytes here.
    Nothing {
        known: bool,
    },
    /// A length field contradicts the packet.
    Contradiction,
    Sum {
        at: usize,
        value: u16,
    },
    Crc(u32),
}

impl Packet {
    /// Computes and writes every checksum of a parsed packet; `false` if the transport's could not
    /// be (see the module's page), or a UDP length contradicts the packet. The IPv4 header's is
    /// written in any case.
    pub fn fill_checksums(&mut self) -> bool {
        if self.version() == 4 {
            self.fill_header_checksum();
        }
        let due = self.due();
        let body = self.transport_mut();
        match due {
            Due::Nothing { known } => return known,
            Due::Contradiction => return false,
            Due::Sum { at, value } => body[at..at + 2].copy_from_slice(&value.to_be_bytes()),
            Due::Crc(value) => body[8..12].copy_from_slice(&value.to_le_bytes()),
        }
        true
    }

    /// Writes the length into an IPv4 header that has none, and so a new checksum.
    #[cold]
    pub(crate) fn write_total(&mut self, total: u16) {
        if let Some(field) = self.network_mut().get_mut(2..4) {
            field.copy_from_slice(&total.to_be_bytes());
        }
        self.fill_header_checksum();
    }

    fn fill_header_checksum(&mut self) {
        let length = self.transport_offset() - self.network_offset();
        if let Some(header) = self.network_mut().get_mut(..length)
            && header.len() >= 20
        {
            header[10..12].fill(0);
            let value = checksum(header);
            header[10..12].copy_from_slice(&value.to_be_bytes());
        }
    }

    /// Whether the checksum of an IPv4 header is right; IPv6 has none. Unlike a transport's it is
    /// never left to a network card, so a wrong one is damage.
    #[inline]
    pub fn header_checksum_valid(&self) -> bool {
        if self.version() != 4 {
            return true;
        }
        if self.has(flag::HAS_OPTIONS) {
            return self.long_header_checksum_valid();
        }
        let Some(header) = self.network().first_chunk::<20>() else {
            return false;
        };
        // All ones in either order of bytes (RFC 1071 2 B).
        let words = header.as_chunks::<4>().0.iter();
        fold_long(words.map(|word| u64::from(u32::from_ne_bytes(*word))).sum()) == 0xffff
    }

    #[cold]
    fn long_header_checksum_valid(&self) -> bool {
        let length = self.transport_offset() - self.network_offset();
        fold(sum(self.network().get(..length).unwrap_or_default(), 0)) == 0xffff
    }

    /// Whether no checksum of a parsed packet is known to be wrong. UDP without one is right over
    /// IPv4 and wrong over IPv6.
    pub fn checksums_valid(&self) -> bool {
        if !self.header_checksum_valid() {
            return false;
        }
        let body = self.transport();
        match self.due() {
            Due::Nothing { .. } => true,
            Due::Contradiction => false,
            Due::Crc(value) => body[8..12] == value.to_le_bytes(),
            Due::Sum { at, value } => {
                let stored = u16::from_be_bytes([body[at], body[at + 1]]);
                if stored == 0 && self.protocol() == protocol::UDP {
                    return self.version() == 4;
                }
                // One's complement has two zeros.
                stored == value || (matches!(stored, 0 | 0xffff) && matches!(value, 0 | 0xffff))
            }
        }
    }

    fn due(&self) -> Due {
        const PARTIAL: u16 =
            flag::LATER_FRAGMENT | flag::FIRST_FRAGMENT | flag::CUT_SHORT | flag::SOURCE_ROUTED;
        if !self.has(flag::PARSED) || self.has(PARTIAL) {
            return Due::Nothing { known: false };
        }
        let body = self.transport();
        // Where it stands, how much of the packet it covers, and the length in the pseudo-header.
        let (at, covered, pseudo) = match (self.version(), self.protocol()) {
            (_, protocol::TCP) => (16, body.len(), Some(body.len())),
            (_, protocol::UDP) => match field(body, 4) {
                length @ 8.. => (6, length, Some(length)),
                _ => return Due::Contradiction,
            },
            (_, protocol::UDPLITE) => match field(body, 4) {
                0 => (6, body.len(), Some(body.len())),
                coverage @ 8.. => (6, coverage, Some(body.len())),
                _ => return Due::Contradiction,
            },
            (4, protocol::ICMP) => (2, body.len(), None),
            (6, protocol::ICMPV6) => (2, body.len(), Some(body.len())),
            // A protocol that a caller has set need not be the parsed one.
            (_, protocol::SCTP) if body.len() < 12 => return Due::Contradiction,
            (_, protocol::SCTP) => return Due::Crc(sctp_crc(body)),
            _ => return Due::Nothing { known: true },
        };
        let (Some(before), Some(behind)) = (body.get(..at), body.get(at + 2..covered)) else {
            return Due::Contradiction;
        };
        let start = pseudo.map_or(0, |length| self.pseudo_header(length));
        let value = !fold(sum(behind, sum(before, start)));
        let never_zero = matches!(self.protocol(), protocol::UDP | protocol::UDPLITE);
        Due::Sum {
            at,
            value: if never_zero && value == 0 { 0xffff } else { value },
        }
    }

    fn pseudo_header(&self, length: usize) -> u32 {
        let addresses = if self.version() == 4 { 12..20 } else { 8..40 };
        let start = u32::from(self.protocol()) + length as u32;
        sum(self.network().get(addresses).unwrap_or_default(), start)
    }
}

fn field(body: &[u8], at: usize) -> usize {
    match body.get(at..at + 2) {
        Some(pair) => usize::from(u16::from_be_bytes([pair[0], pair[1]])),
        None => 0,
    }
}

#[cfg(test)]
mod tests {
    use crate::LinkType;
    use crate::testing::*;

    /// Every single bit that a checksum covers changes the answer.
    fn covered(ip: &[u8], header: usize) -> usize {
        let mut covered = 0;
        for at in header..ip.len() {
            let mut changed = parsed(LinkType::Raw, ip);
            changed.network_mut()[at] ^= 0x10;
            covered += usize::from(crate::parse(&mut changed).is_err() || !changed.checksums_valid());
        }
        covered
    }

    #[test]
    fn what_is_filled_is_valid_and_guards_every_byte() {
        let sctp = [3, 0xe8, 0, 80, 0, 0, 0, 1, 0, 0, 0, 0, 3, 0, 0, 5, 1];
        let cases = [
            v4(6, &[], 0, &tcp(2, &[1, 1, 1, 0], b"odd")),
            v4(17, &[148, 4, 0, 0], 0, &udp(b"hello")),
            v4(136, &[], 0, &udp(b"hello")),
            v4(1, &[], 0, &icmp(8, 0, [1, 2, 3, 4], b"ping!")),
            v4(132, &[], 0, &sctp),
            v6(6, &tcp(2, &[], b"odd")),
            v6(17, &udp(b"hello")),
            v6(58, &icmp(128, 0, [1, 2, 3, 4], b"ping!")),
            v6(132, &sctp),
        ];
        for ip in cases {
            let mut packet = parsed(LinkType::Raw, &ip);
            assert!(packet.fill_checksums() && packet.checksums_valid(), "{packet:?}");
            let (filled, header) = (packet.frame().to_vec(), packet.transport_offset());
            assert_eq!(covered(&filled, header), filled.len() - header, "{packet:?}");
        }
    }

    #[test]
    fn an_ipv4_header_is_guarded_by_itself() {
        for options in [&[][..], &[148, 4, 0, 0]] {
            let mut packet = parsed(LinkType::Raw, &v4(17, options, 0, &udp(b"hello")));
            assert!(packet.header_checksum_valid());
            for at in 0..packet.transport_offset() {
                for bit in 0..8 {
                    packet.network_mut()[at] ^= 1 << bit;
                    assert!(!packet.header_checksum_valid(), "byte {at}, bit {bit}");
                    packet.network_mut()[at] ^= 1 << bit;
                }
            }
            // The bytes behind it have sums of their own.
            packet.transport_mut().fill(0xa5);
            assert!(packet.header_checksum_valid());
        }
        assert!(parsed(LinkType::Raw, &v6(17, &udp(b"hello"))).header_checksum_valid());
    }

    #[test]
    fn udp_lite_covers_what_it_says() {
        let mut datagram = udp(b"hello");
        datagram[5] = 10;
        let mut packet = parsed(LinkType::Raw, &v4(136, &[], 0, &datagram));
        assert!(packet.fill_checksums());
        let filled = packet.frame().to_vec();
        assert_eq!(covered(&filled, 20), 10);
        for coverage in [7, 14] {
            datagram[5] = coverage;
            let mut packet = parsed(LinkType::Raw, &v4(136, &[], 0, &datagram));
            assert!(!packet.fill_checksums() && !packet.checksums_valid());
        }
    }

    #[test]
    fn udp_length_and_the_absent_checksum() {
        for (version, valid) in [(4, true), (6, false)] {
            let ip = if version == 4 {
                v4(17, &[], 0, &udp(b"abc"))
            } else {
                v6(17, &udp(b"abc"))
            };
            assert_eq!(parsed(LinkType::Raw, &ip).checksums_valid(), valid);
            for length in [7, 12] {
                let mut ip = ip.clone();
                let at = ip.len() - 6;
                ip[at] = length;
                assert!(!parsed(LinkType::Raw, &ip).checksums_valid());
            }
        }
    }

    #[test]
    fn what_cannot_be_judged_is_not() {
        let mut first = parsed(LinkType::Raw, &v4(17, &[], 0x2000, &udp(&[1; 16])));
        assert!(first.checksums_valid() && !first.fill_checksums());
        let routed = parsed(
            LinkType::Raw,
            &v4(17, &[131, 7, 4, 1, 1, 1, 1, 0], 0, &udp(&[1; 16])),
        );
        assert!(routed.checksums_valid());
        first.network_mut()[10] ^= 1;
        assert!(!first.checksums_valid(), "the IPv4 header is");
        assert!(!first.fill_checksums() && first.checksums_valid());
        assert!(parsed(LinkType::Raw, &v4(47, &[], 0, &[])).fill_checksums());
    }

    #[test]
    fn a_protocol_that_a_caller_sets_has_no_sum_where_there_is_no_room() {
        for protocol in [1, 6, 17, 132, 136] {
            let mut packet = parsed(LinkType::Raw, &v4(47, &[], 0, &[7]));
            packet.set_protocol(protocol);
            assert!(
                !packet.checksums_valid() && !packet.fill_checksums(),
                "{protocol}"
            );
            assert_eq!(packet.transport(), [7]);
        }
    }

    #[test]
    fn a_sum_of_zero_is_never_written_for_udp() {
        let mut datagram = udp(&[0, 0]);
        let mut packet = parsed(LinkType::Raw, &v4(17, &[], 0, &datagram));
        assert!(packet.fill_checksums());
        // Data equal to the checksum makes the sum zero.
        datagram[8..10].copy_from_slice(&packet.transport()[6..8]);
        let mut packet = parsed(LinkType::Raw, &v4(17, &[], 0, &datagram));
        assert!(packet.fill_checksums() && packet.checksums_valid());
        assert_eq!(packet.transport()[6..8], [0xff, 0xff]);
    }
}
