//! ICMP errors: words of routers and hosts about a packet that they got, of which they quote the
//! beginning or all (RFC 792, 4443).
//!
//! ```text
//!   IP │ type, code, checksum, 4 bytes │ the packet as it came: IP │ first 8 bytes of its transport │ perhaps the rest
//! ```
//!
//! A host that gets an error looks up by the quoted identifier which packet it was, and whether it
//! is told of it as it was sent.

use super::{End, Frame, Head, ICMP6, Transport, long, read_ip, transport_sum, word};
use wire::LinkType;

/// A quoted packet: the fields that say whose it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Quote {
    pub id: u16,
    pub source: End,
    pub destination: End,
    /// As IPv4 numbers them.
    pub protocol: u8,
    /// Of TCP: where in the stream.
    pub seq: u32,
    /// No checksum in it is wrong, as far as that can be seen.
    pub is_sound: bool,
}

/// Whether ICMP messages of this type are errors that quote a packet.
pub(super) fn is_error(is_v6: bool, kind: u8) -> bool {
    match is_v6 {
        true => (1..=4).contains(&kind),
        false => matches!(kind, 3 | 11 | 12),
    }
}

/// Reads a quote; `None` if it does not say whose packet it was.
pub(super) fn read(bytes: &[u8]) -> Option<Quote> {
    let is_sound = read_ip(bytes).is_some();
    // Of one whose header's checksum is wrong the rest is read as well.
    let mut mended = bytes.to_vec();
    if !is_sound && mended.first()? >> 4 == 4 && mended.len() >= 20 {
        super::seal(&mut mended);
    }
    let ip = read_ip(&mended)?;
    let (mut t, mut protocol) = (ip.rest, ip.protocol);
    let mut place = if ip.is_v6 { 0 } else { word(&mended, 6) & 0x3fff };
    if ip.is_v6 && protocol == 44 && t.len() > 8 {
        (protocol, place, t) = (t[0], word(t, 2), &t[8..]);
    }
    let icmp = if ip.is_v6 { ICMP6 } else { 1 };
    let is_later = place & if ip.is_v6 { !7 } else { 0x1fff } != 0;
    let ports = match protocol {
        // Only a packet's first fragment has ports.
        _ if is_later => [0; 2],
        _ if t.len() < 8 => return None,
        protocol if protocol == icmp => [word(t, 4); 2],
        _ => [word(t, 0), word(t, 2)],
    };
    let is_known = matches!(protocol, 6 | 17) || protocol == icmp;
    let is_whole = place == 0 && t.len() >= ip.length && is_known;
    let is_right = !is_whole || transport_sum(&mended, &t[..ip.length], protocol) == 0;
    Some(Quote {
        id: ip.id,
        source: End::new(ip.source, ports[0]),
        destination: End::new(ip.destination, ports[1]),
        protocol: if protocol == ICMP6 { 1 } else { protocol },
        seq: if protocol == 6 && !is_later { long(t, 4) } else { 0 },
        is_sound: is_sound && is_right,
    })
}

/// The head and payload of an error by `from` about a frame that arrived, quoting all of it or the
/// beginning. `which` chooses among types.
pub(crate) fn error(
    link: LinkType,
    frame: &Frame,
    heard: &Head,
    from: [u8; 4],
    is_whole: bool,
    which: u64,
) -> Option<(Head, Vec<u8>)> {
    let bytes = frame.bytes.get(super::link_length(link)..)?;
    let header = if heard.is_v6 { 40 } else { 20 };
    let quoted = if is_whole { bytes } else { bytes.get(..header + 8)? };
    // Port unreachable, time exceeded, host (address) unreachable.
    let (kind, code) = match (heard.is_v6, which % 3) {
        (false, 0) => (3, 3),
        (false, 1) => (11, 0),
        (false, _) => (3, 1),
        (true, 0) => (1, 4),
        (true, 1) => (3, 0),
        (true, _) => (1, 3),
    };
    let head = Head {
        id: 0,
        is_v6: heard.is_v6,
        source: End::new(from, 0),
        destination: End::new(heard.source.addr, 0),
        transport: Transport::Error {
            kind,
            code,
            quote: read(quoted)?,
        },
    };
    Some((head, quoted.to_vec()))
}
