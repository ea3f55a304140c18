//! Flow keys: both directions of a connection have the same one.
//!
//! A key is the *canonical* 5-tuple and VLAN: the numerically smaller endpoint comes first, and an
//! [`Orientation`] says whether the packet at hand runs from the first to the second or back. One
//! entry in a table then serves both directions of every flow that is not translated.
//!
//! IPv4 keys use two of five words, so that comparing, hashing and fetching them touches 16 bytes.

use crate::packet::{Packet, flag};
use crate::{Addr, Endpoint};
use core::fmt;

/// The canonical 5-tuple and VLAN of a flow.
///
/// Word 0 has the ports, VLAN, protocol and version; IPv4 keeps both addresses in word 1; IPv6 the
/// first in words 1 and 2, the second in words 3 and 4.
#[derive(Clone, Copy, Eq, Default, PartialOrd, Ord)]
#[repr(C)]
pub struct FlowKey {
    words: [u64; 5],
}

impl core::hash::Hash for FlowKey {
    fn hash<H: core::hash::Hasher>(&self, state: &mut H) {
        self.words.hash(state);
    }
}

/// By hand, since the derived comparison is a call to `memcmp`, and IPv4 keys need two words of it.
impl PartialEq for FlowKey {
    #[inline(always)]
    fn eq(&self, other: &Self) -> bool {
        let ([a, b, c, d, e], [v, w, x, y, z]) = (self.words, other.words);
        (a ^ v) | (b ^ w) == 0 && (self.version() == 4 || (c ^ x) | (d ^ y) | (e ^ z) == 0)
    }
}

/// Which way a packet runs, seen from its flow's key.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Orientation {
    /// From the key's first endpoint to its second.
    Along = 0,
    /// From the second to the first.
    Against = 1,
}

impl Orientation {
    /// The other way.
    #[inline]
    #[must_use]
    pub fn reversed(self) -> Self {
        match self {
            Orientation::Along => Orientation::Against,
            Orientation::Against => Orientation::Along,
        }
    }

    #[inline]
    fn from_swapped(swapped: bool) -> Self {
        if swapped {
            Orientation::Against
        } else {
            Orientation::Along
        }
    }
}

/// Random numbers drawn once per process, so that no sender can aim at one bucket of a table.
#[derive(Clone, Copy, Debug)]
pub struct HashSeed(pub [u64; 3]);

impl HashSeed {
    /// A fixed seed, for tests and repeatable runs.
    pub const FIXED: HashSeed = HashSeed([
        0x9e37_79b9_7f4a_7c15,
        0xd1b5_4a32_d192_ed03,
        0x8cb9_2ba7_2f3d_8dd7,
    ]);
}

#[inline(always)]
fn fold(a: u64, b: u64) -> u64 {
    let product = u128::from(a) * u128::from(b);
    (product as u64) ^ ((product >> 64) as u64)
}

impl FlowKey {
    /// The key of a flow between two endpoints, and which way a packet from `source` runs.
    pub fn new(source: Endpoint, destination: Endpoint, protocol: u8, vlan: u16) -> (Self, Orientation) {
        if source.addr.is_v4() && destination.addr.is_v4() {
            Self::canonical_v4(
                source.addr.low_u32(),
                destination.addr.low_u32(),
                source.port,
                destination.port,
                protocol,
                vlan,
            )
        } else {
            let (s, d) = (source.addr.octets(), destination.addr.octets());
            Self::canonical_v6(s, d, source.port, destination.port, protocol, vlan)
        }
    }

    /// The key of a parsed packet. An ICMP error has the key of the packet it quotes, running the
    /// other way.
    #[inline]
    pub fn of(packet: &Packet) -> Option<(Self, Orientation)> {
        if packet.has(flag::ICMP_ERROR) {
            return Self::of_quoted(packet);
        }
        let (source, destination) = (packet.source_port(), packet.destination_port());
        let header = packet.frame().get(packet.network_offset()..)?;
        if packet.version() == 4 {
            let addrs: &[u8; 8] = header.get(12..)?.first_chunk()?;
            let s = u32::from_be_bytes([addrs[0], addrs[1], addrs[2], addrs[3]]);
            let d = u32::from_be_bytes([addrs[4], addrs[5], addrs[6], addrs[7]]);
            Some(Self::canonical_v4(
                s,
                d,
                source,
                destination,
                packet.protocol(),
                packet.vlan(),
            ))
        } else {
            let s = header.get(8..24)?.first_chunk()?;
            let d = header.get(24..40)?.first_chunk()?;
            Some(Self::canonical_v6(
                s,
                d,
                source,
                destination,
                packet.protocol(),
                packet.vlan(),
            ))
        }
    }

    #[cold]
    fn of_quoted(packet: &Packet) -> Option<(Self, Orientation)> {
        let quoted = crate::parse::quoted(packet)?;
        let (key, way) = FlowKey::new(quoted.source, quoted.destination, quoted.protocol, packet.vlan());
        Some((key, way.reversed()))
    }

    #[inline(always)]
    fn canonical_v4(s: u32, d: u32, sp: u16, dp: u16, protocol: u8, vlan: u16) -> (Self, Orientation) {
        let source = (u64::from(s) << 16) | u64::from(sp);
        let destination = (u64::from(d) << 16) | u64::from(dp);
        // Addresses are as good as random to the branch predictor: selects, no branches.
        let swapped = source > destination;
        let first = if swapped { destination } else { source };
        let second = if swapped { source } else { destination };
        let word0 = Self::word0(first as u16, second as u16, protocol, vlan, 4);
        let word1 = ((first >> 16) << 32) | (second >> 16);
        (
            FlowKey {
                words: [word0, word1, 0, 0, 0],
            },
            Orientation::from_swapped(swapped),
        )
    }

    fn canonical_v6(
        s: &[u8; 16],
        d: &[u8; 16],
        sp: u16,
        dp: u16,
        protocol: u8,
        vlan: u16,
    ) -> (Self, Orientation) {
        let (s, d) = (u128::from_be_bytes(*s), u128::from_be_bytes(*d));
        let swapped = (s, sp) > (d, dp);
        let ((a, ap), (b, bp)) = if swapped {
            ((d, dp), (s, sp))
        } else {
            ((s, sp), (d, dp))
        };
        let words = [
            Self::word0(ap, bp, protocol, vlan, 6),
            (a >> 64) as u64,
            a as u64,
            (b >> 64) as u64,
            b as u64,
        ];
        (FlowKey { words }, Orientation::from_swapped(swapped))
    }

    #[inline(always)]
    const fn word0(first: u16, second: u16, protocol: u8, vlan: u16, version: u8) -> u64 {
        (first as u64) << 48
            | (second as u64) << 32
            | (vlan as u64) << 16
            | (protocol as u64) << 8
            | version as u64
    }

    /// The five words; an IPv4 key's last three are zero.
    #[inline]
    pub const fn words(&self) -> &[u64; 5] {
        &self.words
    }

    /// A key from its words.
    #[inline]
    pub const fn from_words(words: [u64; 5]) -> Self {
        FlowKey { words }
    }

    /// IP version.
    #[inline]
    pub const fn version(&self) -> u8 {
        self.words[0] as u8
    }

    /// Transport protocol.
    #[inline]
    pub const fn protocol(&self) -> u8 {
        (self.words[0] >> 8) as u8
    }

    /// VLAN identifier, 0 without one.
    #[inline]
    pub const fn vlan(&self) -> u16 {
        (self.words[0] >> 16) as u16 & 0x0fff
    }

    /// The key of packets that were hairpinned and run this way. Both hosts of a
    /// hairpinned connection then send packets between the same two outside endpoints, so unlike
    /// any other key these tell the directions apart.
    #[must_use]
    pub const fn turned(&self, way: Orientation) -> FlowKey {
        let mut words = self.words;
        words[0] |= 1 << 28 | (way as u64) << 29;
        FlowKey { words }
    }

    /// The numerically smaller endpoint.
    pub fn first(&self) -> Endpoint {
        let addr = if self.version() == 4 {
            Addr::v4(((self.words[1] >> 32) as u32).to_be_bytes())
        } else {
            Addr::v6((u128::from(self.words[1]) << 64 | u128::from(self.words[2])).to_be_bytes())
        };
        Endpoint::new(addr, (self.words[0] >> 48) as u16)
    }

    /// The numerically larger endpoint.
    pub fn second(&self) -> Endpoint {
        let addr = if self.version() == 4 {
            Addr::v4((self.words[1] as u32).to_be_bytes())
        } else {
            Addr::v6((u128::from(self.words[3]) << 64 | u128::from(self.words[4])).to_be_bytes())
        };
        Endpoint::new(addr, (self.words[0] >> 32) as u16)
    }

    /// Source and destination of a packet that runs this way.
    pub fn ends(&self, way: Orientation) -> (Endpoint, Endpoint) {
        match way {
            Orientation::Along => (self.first(), self.second()),
            Orientation::Against => (self.second(), self.first()),
        }
    }

    /// A hash that cannot be predicted without the seed.
    #[inline(always)]
    pub fn hash(&self, seed: &HashSeed) -> u64 {
        let h = fold(self.words[0] ^ seed.0[0], self.words[1] ^ seed.0[1]);
        if self.version() == 4 {
            return fold(h ^ seed.0[2], seed.0[0] | 1);
        }
        let h = fold(h ^ self.words[2], self.words[3] ^ seed.0[2]);
        fold(h ^ self.words[4], seed.0[0] | 1)
    }
}

impl fmt::Display for FlowKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} {} {}",
            protocol_name(self.protocol()),
            self.first(),
            self.second()
        )?;
        if self.vlan() != 0 {
            write!(f, " vlan {}", self.vlan())?;
        }
        Ok(())
    }
}

impl fmt::Debug for FlowKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// `tcp`, `udp`, … or the number.
pub fn protocol_name(protocol: u8) -> ProtocolName {
    ProtocolName(protocol)
}

/// Prints a protocol by name where it has one.
#[derive(Clone, Copy)]
pub struct ProtocolName(u8);

impl fmt::Display for ProtocolName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        use crate::protocol::*;
        f.pad(match self.0 {
            ICMP => "icmp",
            IGMP => "igmp",
            TCP => "tcp",
            UDP => "udp",
            GRE => "gre",
            ESP => "esp",
            AH => "ah",
            ICMPV6 => "icmpv6",
            SCTP => "sctp",
            UDPLITE => "udplite",
            other => return write!(f, "{other}"),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn endpoint() -> impl Strategy<Value = Endpoint> {
        (any::<bool>(), any::<[u8; 16]>(), any::<u16>()).prop_map(|(v4, bytes, port)| {
            let addr = if v4 {
                Addr::v4([bytes[0], bytes[1], bytes[2], bytes[3]])
            } else {
                Addr::v6(bytes)
            };
            Endpoint::new(addr, port)
        })
    }

    proptest! {
        #[test]
        fn both_directions_have_one_key(a in endpoint(), b in endpoint(), protocol: u8, vlan in 0u16..4096) {
            prop_assume!(a.addr.is_v4() == b.addr.is_v4());
            let (there, way) = FlowKey::new(a, b, protocol, vlan);
            let (back, reply) = FlowKey::new(b, a, protocol, vlan);
            prop_assert_eq!(there, back);
            if a != b {
                prop_assert_eq!(way, reply.reversed());
            }
            prop_assert_eq!(there.ends(way), (a, b));
            prop_assert_eq!((there.protocol(), there.vlan()), (protocol, vlan));
        }
    }
}
