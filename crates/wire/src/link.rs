//! Link layers: where the network header starts in a frame, and which it is.

use crate::ParseError;

/// What a frame begins with (the values are pcap's link types, draft-ietf-opsawg-pcaplinktype).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[repr(u8)]
pub enum LinkType {
    /// Ethernet II, with any number of 802.1Q and 802.1ad tags.
    #[default]
    Ethernet = 1,
    /// No link header: the frame begins with the IP version.
    Raw = 101,
    /// BSD loopback: a 4-byte address family in either byte order. Its value for IPv6 differs between systems, so the
    /// IP version decides.
    Loopback = 0,
    /// Linux cooked capture, version 1.
    LinuxSll = 113,
    /// Linux cooked capture, version 2 (pcap's 276).
    LinuxSll2 = 200,
}

impl LinkType {
    /// From the number in a capture's header; `None` for a link type Flowkeep does not read.
    pub fn from_pcap(number: u32) -> Option<Self> {
        Some(match number {
            1 => LinkType::Ethernet,
            0 | 108 => LinkType::Loopback,
            12 | 14 | 101 | 228 | 229 => LinkType::Raw,
            113 => LinkType::LinuxSll,
            276 => LinkType::LinuxSll2,
            _ => return None,
        })
    }

    /// The number for a capture's header.
    pub fn to_pcap(self) -> u32 {
        match self {
            LinkType::LinuxSll2 => 276,
            other => other as u32,
        }
    }
}

/// What the link layer says: the network header's offset, its EtherType, the VLAN.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Link {
    /// Offset of the network header in bytes.
    pub network: usize,
    /// EtherType of the network header.
    pub ether_type: u16,
    /// Identifier of the innermost VLAN tag, 0 without one.
    pub vlan: u16,
}

const IPV4: u16 = 0x0800;
const IPV6: u16 = 0x86dd;
const PPPOE_SESSION: u16 = 0x8864;
/// More tags than this on one frame are refused: nobody's network stacks them.
const TAGS_MAX: usize = 4;

/// Reads a frame's link header.
#[inline]
pub fn parse_link(frame: &[u8], link: LinkType) -> Result<Link, ParseError> {
    match link {
        LinkType::Ethernet => {
            let ether_type = be16(frame, 12)?;
            // The fast path: no tag.
            if ether_type == IPV4 || ether_type == IPV6 {
                return Ok(Link {
                    network: 14,
                    ether_type,
                    vlan: 0,
                });
            }
            tagged(frame, 14, ether_type)
        }
        LinkType::Raw => by_version(frame, 0),
        LinkType::Loopback => {
            if frame.len() < 4 {
                return Err(ParseError::Truncated);
            }
            by_version(frame, 4)
        }
        LinkType::LinuxSll => tagged(frame, 16, be16(frame, 14)?),
        LinkType::LinuxSll2 => tagged(frame, 20, be16(frame, 0)?),
    }
}

fn by_version(frame: &[u8], network: usize) -> Result<Link, ParseError> {
    match frame.get(network).map(|b| b >> 4) {
        Some(4) => Ok(Link {
            network,
            ether_type: IPV4,
            vlan: 0,
        }),
        Some(6) => Ok(Link {
            network,
            ether_type: IPV6,
            vlan: 0,
        }),
        Some(_) => Err(ParseError::NotIp),
        None => Err(ParseError::Truncated),
    }
}

/// Follows VLAN tags (802.1Q, 802.1ad and the older 0x9100) and PPPoE sessions to the network header.
fn tagged(frame: &[u8], mut at: usize, mut ether_type: u16) -> Result<Link, ParseError> {
    let mut vlan = 0;
    for _ in 0..=TAGS_MAX {
        match ether_type {
            0x8100 | 0x88a8 | 0x9100 => {
                vlan = be16(frame, at)? & 0x0fff;
                ether_type = be16(frame, at + 2)?;
                at += 4;
            }
            // PPPoE session (RFC 2516): version/type, code, session, length, then the PPP protocol.
            PPPOE_SESSION => {
                if be16(frame, at)? != 0x1100 {
                    return Err(ParseError::NotIp);
                }
                let length = usize::from(be16(frame, at + 4)?);
                let total;
                (ether_type, total) = match be16(frame, at + 6)? {
                    0x0021 => (IPV4, usize::from(be16(frame, at + 10)?)),
                    0x0057 => (IPV6, 40 + usize::from(be16(frame, at + 12)?)),
                    _ => return Err(ParseError::NotIp),
                };
                at += 8;
                if length < 2 + total {
                    return Err(ParseError::Malformed);
                }
            }
            IPV4 | IPV6 => {
                return Ok(Link {
                    network: at,
                    ether_type,
                    vlan,
                });
            }
            _ => return Err(ParseError::NotIp),
        }
    }
    Err(ParseError::NotIp)
}

/// Where a frame whose network header is at `network` keeps the length of its PPPoE session, if it has one. The length
/// counts the PPP protocol's two bytes and the IP packet.
pub(crate) fn pppoe_length_at(frame: &[u8], link: LinkType, network: usize) -> Option<usize> {
    // The EtherType before the session's eight bytes; cooked version 2 keeps its first EtherType in front of all.
    let at = match (link, network) {
        (LinkType::Ethernet, 22..) | (LinkType::LinuxSll, 24..) | (LinkType::LinuxSll2, 32..) => network - 10,
        (LinkType::LinuxSll2, 28) => 0,
        _ => return None,
    };
    (be16(frame, at) == Ok(PPPOE_SESSION)).then_some(network - 4)
}

#[inline]
fn be16(bytes: &[u8], at: usize) -> Result<u16, ParseError> {
    match bytes.get(at..at + 2) {
        Some(pair) => Ok(u16::from_be_bytes([pair[0], pair[1]])),
        None => Err(ParseError::Truncated),
    }
}
