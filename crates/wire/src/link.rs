//! Link layers: where the network header starts in a frame, and which it is.
//!
//! ```text
//!   Ethernet │ 802.1Q, 802.1ad: at most four │ PPPoE session        │ IPv4, IPv6
//!   cooked   │                               │ MPLS: at most sixteen │
//! ```
//!
//! Invariant: at most one of a session and a label stack stands before the network header; each is
//! inside the frame.
//!
//! Not here: the length in a session's header. Padding makes it too small for the frame, senders
//! make it too small for the packet, and every reader of captures goes by the IP header.
//!
//! Sources: IEEE 802.1Q, RFC 2516 (PPPoE), RFC 3032 and 5332 (label stacks), RFC 4385 (why the
//! first four bits tell IP).

use crate::ParseError;

/// The header that a frame begins with (the values are pcap's link types,
/// draft-ietf-opsawg-pcaplinktype).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[repr(u8)]
pub enum LinkType {
    /// Ethernet II, with any number of 802.1Q and 802.1ad tags.
    #[default]
    Ethernet = 1,
    /// No link header: the frame begins with the IP version.
    Raw = 101,
    /// BSD loopback: a 4-byte address family in either byte order. Its value for IPv6 differs
    /// between systems, so the IP version decides.
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

/// The link layer's fields: the network header's offset, its EtherType, the VLAN.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Link {
    /// Offset of the network header in bytes.
    pub network: usize,
    /// EtherType of the network header.
    pub ether_type: u16,
    /// Identifier of the innermost VLAN tag, 0 without one.
    pub vlan: u16,
    /// Headers between the tags and the network header.
    pub between: Between,
}

/// Headers between a link header and the network header, tags apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Between {
    /// Nothing.
    Nothing,
    /// The eight bytes of a PPPoE session and of PPP.
    Session,
    /// An MPLS label stack.
    Labels,
}

const IPV4: u16 = 0x0800;
const IPV6: u16 = 0x86dd;
const PPPOE_SESSION: u16 = 0x8864;
const LABELS: u16 = 0x8847;
/// Labels that the sender chose (RFC 5332); once those of multicast.
const LABELS_UPSTREAM: u16 = 0x8848;
/// More tags than this on one frame are refused: no network stacks them.
const TAGS_MAX: usize = 4;
/// Deeper label stacks than this are refused.
pub const LABELS_MAX: usize = 16;

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
                    between: Between::Nothing,
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
    let ether_type = match frame.get(network).map(|b| b >> 4) {
        Some(4) => IPV4,
        Some(6) => IPV6,
        Some(_) => return Err(ParseError::NotIp),
        None => return Err(ParseError::Truncated),
    };
    Ok(Link {
        network,
        ether_type,
        vlan: 0,
        between: Between::Nothing,
    })
}

/// Follows VLAN tags (802.1Q, 802.1ad and the older 0x9100), then a PPPoE session or a label stack,
/// to the network header.
fn tagged(frame: &[u8], mut at: usize, mut ether_type: u16) -> Result<Link, ParseError> {
    let (mut vlan, mut tags) = (0, 0);
    while matches!(ether_type, 0x8100 | 0x88a8 | 0x9100) {
        tags += 1;
        if tags > TAGS_MAX {
            return Err(ParseError::NotIp);
        }
        vlan = be16(frame, at)? & 0x0fff;
        ether_type = be16(frame, at + 2)?;
        at += 4;
    }
    let link = match ether_type {
        IPV4 | IPV6 => Link {
            network: at,
            ether_type,
            vlan,
            between: Between::Nothing,
        },
        PPPOE_SESSION => session(frame, at)?,
        LABELS | LABELS_UPSTREAM => labelled(frame, at)?,
        _ => return Err(ParseError::NotIp),
    };
    Ok(Link { vlan, ..link })
}

/// A PPPoE session (RFC 2516 4): version and type, code, session, length, then the PPP protocol.
fn session(frame: &[u8], at: usize) -> Result<Link, ParseError> {
    if be16(frame, at)? != 0x1100 {
        return Err(ParseError::NotIp);
    }
    let ether_type = match be16(frame, at + 6)? {
        0x0021 => IPV4,
        0x0057 => IPV6,
        _ => return Err(ParseError::NotIp),
    };
    Ok(Link {
        network: at + 8,
        ether_type,
        vlan: 0,
        between: Between::Session,
    })
}

/// A label stack (RFC 3032 2.1). Its bottom does not say what follows: the IP version does, and
/// other payload (a pseudowire) begins with 0 or 1 (RFC 4385 3).
fn labelled(frame: &[u8], mut at: usize) -> Result<Link, ParseError> {
    for _ in 0..LABELS_MAX {
        let is_bottom = be16(frame, at + 2)? & 0x0100 != 0;
        at += 4;
        if is_bottom {
            let link = by_version(frame, at)?;
            return Ok(Link {
                between: Between::Labels,
                ..link
            });
        }
    }
    Err(ParseError::NotIp)
}

/// Where a frame keeps the length of its PPPoE session, if it has one. The length counts the PPP
/// protocol's two bytes and the IP packet.
pub(crate) fn pppoe_length_at(frame: &[u8], link: LinkType) -> Option<usize> {
    let found = parse_link(frame, link).ok()?;
    (found.between == Between::Session).then(|| found.network - 4)
}

#[inline]
fn be16(bytes: &[u8], at: usize) -> Result<u16, ParseError> {
    match bytes.get(at..at + 2) {
        Some(pair) => Ok(u16::from_be_bytes([pair[0], pair[1]])),
        None => Err(ParseError::Truncated),
    }
}
