//! The frames that hosts send and read: IPv4 and IPv6 with TCP, UDP, ICMP echo or an ICMP error,
//! whole or in fragments, written and judged without the code under test.
//!
//! Each frame carries an identifier, unique in its run, as its IPv4 identification or IPv6 flow
//! label: by that it is known again where it leaves the cluster. A packet that the cluster makes
//! itself (a reset) has the identifier 0. A host's IPv6 address is its IPv4 address behind
//! [`PREFIX`], so each end of a talk is an [`End`] in both. The payload says whose it is and the
//! how-manieth, and the rest of it follows from that, so that any other byte shows:
//!
//! ```text
//!   "FKsm" 4 │ talk 2 │ number 2 │ request 0 or answer 1 │ filler by all of these …
//! ```
//!
//! | file | what |
//! |---|---|
//! | `quote` | ICMP errors and what they quote |
//! | `parts` | fragments |
//!
//! Not here: which of these to send when ([`crate::world`]).

mod parts;
mod quote;

pub(crate) use parts::{Assembly, PARTS_MAX, part_of, split};
pub(crate) use quote::{Quote, error};

use std::fmt;
use wire::LinkType;
use wire::parse::{IcmpClass, icmp_class};

/// The bytes in front of an IPv4 address that make the IPv6 address of the same host.
pub(crate) const PREFIX: [u8; 12] = [0x20, 0x01, 0x0d, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0];

/// An address and port, or an ICMP identifier.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Default)]
pub(crate) struct End {
    pub addr: [u8; 4],
    pub port: u16,
}

impl End {
    pub const fn new(addr: [u8; 4], port: u16) -> Self {
        End { addr, port }
    }
}

impl fmt::Display for End {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d] = self.addr;
        write!(f, "{a}.{b}.{c}.{d}:{}", self.port)
    }
}

/// Bytes on their way, with the identifier that they carry.
#[derive(Clone, Debug)]
pub(crate) struct Frame {
    pub id: u16,
    /// Which part of a packet it is, if that was taken apart.
    pub part: u8,
    pub bytes: Vec<u8>,
}

/// TCP flags.
pub(crate) mod flags {
    pub const FIN: u8 = 1;
    pub const SYN: u8 = 2;
    pub const RST: u8 = 4;
    pub const PUSH: u8 = 8;
    pub const ACK: u8 = 16;
}

/// The transport of a frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Transport {
    Tcp {
        flags: u8,
        seq: u32,
        ack: u32,
    },
    Udp,
    Echo {
        is_reply: bool,
        number: u16,
    },
    /// An ICMP error of this type and code.
    Error {
        kind: u8,
        code: u8,
        quote: Quote,
    },
    Other(u8),
}

impl Transport {
    /// As IPv4 numbers them.
    pub fn protocol(&self) -> u8 {
        match self {
            Transport::Tcp { .. } => 6,
            Transport::Udp => 17,
            Transport::Echo { .. } | Transport::Error { .. } => 1,
            Transport::Other(protocol) => *protocol,
        }
    }

    /// As the header says it.
    fn number(&self, is_v6: bool) -> u8 {
        match self.protocol() {
            1 if is_v6 => ICMP6,
            protocol => protocol,
        }
    }
}

/// A frame's headers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Head {
    pub id: u16,
    pub is_v6: bool,
    pub source: End,
    pub destination: End,
    pub transport: Transport,
}

const IP: usize = 20;
const IP6: usize = 40;
const ICMP6: u8 = 58;
const WINDOW: u16 = 65_535;

/// Bytes before the IP header.
pub(crate) fn link_length(link: LinkType) -> usize {
    if link == LinkType::Ethernet { 14 } else { 0 }
}

/// Writes a frame.
pub(crate) fn write(link: LinkType, head: &Head, payload: &[u8]) -> Vec<u8> {
    let transport = match head.transport {
        Transport::Tcp { .. } => 20,
        _ => 8,
    };
    let mut t = vec![0; transport + payload.len()];
    t[transport..].copy_from_slice(payload);
    let (source, destination) = (head.source.port, head.destination.port);
    let checksum_at = match head.transport {
        Transport::Tcp { flags, seq, ack } => {
            t[..2].copy_from_slice(&source.to_be_bytes());
            t[2..4].copy_from_slice(&destination.to_be_bytes());
            t[4..8].copy_from_slice(&seq.to_be_bytes());
            t[8..12].copy_from_slice(&ack.to_be_bytes());
            t[12..14].copy_from_slice(&[5 << 4, flags]);
            t[14..16].copy_from_slice(&WINDOW.to_be_bytes());
            16
        }
        Transport::Udp => {
            let length = t.len() as u16;
            t[..2].copy_from_slice(&source.to_be_bytes());
            t[2..4].copy_from_slice(&destination.to_be_bytes());
            t[4..6].copy_from_slice(&length.to_be_bytes());
            6
        }
        Transport::Echo { is_reply, number } => {
            t[0] = match (head.is_v6, is_reply) {
                (false, false) => 8,
                (false, true) => 0,
                (true, is_reply) => 128 + u8::from(is_reply),
            };
            // Of the two ends, the identifier is the asker's.
            let identifier = if is_reply { destination } else { source };
            t[4..6].copy_from_slice(&identifier.to_be_bytes());
            t[6..8].copy_from_slice(&number.to_be_bytes());
            2
        }
        Transport::Error { kind, code, .. } => {
            t[..2].copy_from_slice(&[kind, code]);
            2
        }
        Transport::Other(_) => unreachable!("hosts do not send others"),
    };
    let protocol = head.transport.number(head.is_v6);
    let mut frame = link_header(link, head.is_v6);
    let ip = frame.len();
    frame.extend(ip_header(head, protocol, t.len()));
    let sum = match transport_sum(&frame[ip..], &t, protocol) {
        // Zero would mean that there is none (RFC 768).
        0 if head.transport == Transport::Udp => 0xffff,
        sum => sum,
    };
    t[checksum_at..checksum_at + 2].copy_from_slice(&sum.to_be_bytes());
    frame.extend(t);
    frame
}

fn link_header(link: LinkType, is_v6: bool) -> Vec<u8> {
    match (link, is_v6) {
        (LinkType::Ethernet, false) => vec![2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 8, 0],
        (LinkType::Ethernet, true) => vec![2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 0x86, 0xdd],
        _ => Vec::new(),
    }
}

fn ip_header(head: &Head, protocol: u8, length: usize) -> Vec<u8> {
    if head.is_v6 {
        let mut bytes = vec![0x60, 0];
        bytes.extend(head.id.to_be_bytes());
        bytes.extend((length as u16).to_be_bytes());
        bytes.extend([protocol, 64]);
        for end in [head.source, head.destination] {
            bytes.extend(PREFIX);
            bytes.extend(end.addr);
        }
        return bytes;
    }
    let mut bytes = vec![0; IP];
    bytes[..2].copy_from_slice(&[0x45, 0]);
    bytes[2..4].copy_from_slice(&((IP + length) as u16).to_be_bytes());
    bytes[4..6].copy_from_slice(&head.id.to_be_bytes());
    bytes[6..10].copy_from_slice(&[0x40, 0, 64, protocol]);
    bytes[12..16].copy_from_slice(&head.source.addr);
    bytes[16..20].copy_from_slice(&head.destination.addr);
    seal(&mut bytes);
    bytes
}

/// Writes an IPv4 header's checksum.
fn seal(header: &mut [u8]) {
    header[10..12].fill(0);
    let sum = !fold(sum(&header[..IP]));
    header[10..12].copy_from_slice(&sum.to_be_bytes());
}

/// An IP header: whether it is IPv6's, its protocol, source and destination, and what is behind it
/// as far as it is there, with the length that it should have.
struct Ip<'b> {
    is_v6: bool,
    id: u16,
    protocol: u8,
    source: [u8; 4],
    destination: [u8; 4],
    rest: &'b [u8],
    length: usize,
}

/// Reads an IP header; `None` if a length, address or checksum is wrong.
fn read_ip(bytes: &[u8]) -> Option<Ip<'_>> {
    let addr = |at: usize| [bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]];
    if bytes.first()? >> 4 == 6 && bytes.len() >= IP6 {
        if bytes[8..20] != PREFIX || bytes[24..36] != PREFIX {
            return None;
        }
        return Some(Ip {
            is_v6: true,
            id: word(bytes, 2),
            protocol: bytes[6],
            source: addr(20),
            destination: addr(36),
            rest: &bytes[IP6..],
            length: usize::from(word(bytes, 4)),
        });
    }
    if bytes.len() < IP || bytes[0] != 0x45 || fold(sum(&bytes[..IP])) != 0xffff {
        return None;
    }
    Some(Ip {
        is_v6: false,
        id: word(bytes, 4),
        protocol: bytes[9],
        source: addr(12),
        destination: addr(16),
        rest: &bytes[IP..],
        length: usize::from(word(bytes, 2)).checked_sub(IP)?,
    })
}

/// Reads a frame: its headers and payload; `None` if a length or checksum is wrong.
pub(crate) fn read(link: LinkType, frame: &[u8]) -> Option<(Head, &[u8])> {
    let bytes = frame.get(link_length(link)..)?;
    let ip = read_ip(bytes)?;
    let t = ip.rest.get(..ip.length)?;
    let protocol = ip.protocol;
    let icmp = if ip.is_v6 { ICMP6 } else { 1 };
    let is_icmp = protocol == icmp;
    let (least, payload_at) = match protocol {
        6 => (20, usize::from(t.get(12)? >> 4) * 4),
        17 => (8, 8),
        _ if is_icmp => (8, 8),
        _ => (0, 0),
    };
    if t.len() < least.max(payload_at) || payload_at < least {
        return None;
    }
    if (matches!(protocol, 6 | 17) || is_icmp) && transport_sum(bytes, t, protocol) != 0 {
        return None;
    }
    if protocol == 17 && word(t, 6) == 0 {
        // Allowed, but hosts here always have one.
        return None;
    }
    let echo = if ip.is_v6 { [128, 129] } else { [8, 0] };
    let mut payload = &t[payload_at..];
    let (transport, ports) = match protocol {
        6 => {
            let (flags, seq, ack) = (t[13], long(t, 4), long(t, 8));
            (Transport::Tcp { flags, seq, ack }, [word(t, 0), word(t, 2)])
        }
        17 => (Transport::Udp, [word(t, 0), word(t, 2)]),
        _ if is_icmp && echo.contains(&t[0]) => {
            let (is_reply, number) = (t[0] == echo[1], word(t, 6));
            (Transport::Echo { is_reply, number }, [word(t, 4); 2])
        }
        _ if is_icmp && quote::is_error(ip.is_v6, t[0]) => {
            let quote = quote::read(payload)?;
            payload = &[];
            let (kind, code) = (t[0], t[1]);
            (Transport::Error { kind, code, quote }, [0; 2])
        }
        other => {
            let other = if is_icmp { 1 } else { other };
            (Transport::Other(other), [0; 2])
        }
    };
    let head = Head {
        id: ip.id,
        is_v6: ip.is_v6,
        source: End::new(ip.source, ports[0]),
        destination: End::new(ip.destination, ports[1]),
        transport,
    };
    Some((head, payload))
}

/// The link addresses of an Ethernet frame: whither and whence.
pub(crate) fn links_of(frame: &[u8]) -> Option<([u8; 6], [u8; 6])> {
    let (to, rest) = frame.split_first_chunk::<6>()?;
    Some((*to, *rest.first_chunk::<6>()?))
}

/// The address that a frame is for, whatever else is wrong with it.
pub(crate) fn destination_of(link: LinkType, frame: &[u8]) -> Option<[u8; 4]> {
    let bytes = frame.get(link_length(link)..)?;
    let rest = match bytes.first()? >> 4 {
        6 if *bytes.get(24..36)? == PREFIX => bytes.get(36..)?,
        6 => return None,
        _ => bytes.get(16..)?,
    };
    rest.first_chunk::<4>().copied()
}

/// Whether a frame's addresses are such as hosts have, if it is IPv6's, as those of what it quotes
/// are, if it does.
pub(crate) fn is_between_hosts(link: LinkType, frame: &[u8]) -> bool {
    let ip = link_length(link);
    let is_ours = |at: usize| frame.get(at..at + 12).is_none_or(|prefix| prefix == PREFIX);
    let is_v6 = frame.get(ip).is_some_and(|byte| byte >> 4 == 6);
    let quoted = ip + IP6 + 8;
    let is_error = is_v6 && frame.get(ip + 6) == Some(&ICMP6);
    !is_v6
        || is_ours(ip + 8) && is_ours(ip + 24) && (!is_error || is_ours(quoted + 8) && is_ours(quoted + 24))
}

/// Whether a frame is an ICMP error by its own words.
pub(crate) fn is_error(link: LinkType, frame: &[u8]) -> bool {
    let Some(ip) = frame.get(link_length(link)..) else {
        return false;
    };
    let first = ip.first().copied().unwrap_or(0);
    let (protocol, transport) = match first >> 4 {
        6 => (ip.get(6), IP6),
        _ => (ip.get(9), 4 * usize::from(first & 15)),
    };
    let class = protocol
        .zip(ip.get(transport))
        .map(|(protocol, kind)| icmp_class(*protocol, *kind));
    class == Some(IcmpClass::Error)
}

fn id_at(link: LinkType, frame: &[u8]) -> usize {
    let ip = link_length(link);
    let is_v6 = frame.get(ip).is_some_and(|byte| byte >> 4 == 6);
    ip + if is_v6 { 2 } else { 4 }
}

/// The identifier that a frame carries, whatever else is wrong with it.
pub(crate) fn id_of(link: LinkType, frame: &[u8]) -> Option<u16> {
    let at = id_at(link, frame);
    (frame.len() >= at + 2).then(|| word(frame, at))
}

/// Flips a bit of the IP packet and gives the frame another identifier, by which it is known as
/// damaged. Its checksum stays wrong, where there is one.
pub(crate) fn damage(link: LinkType, frame: &mut [u8], bit: u64, id: u16) {
    let ip = link_length(link);
    let at = id_at(link, frame);
    let length = frame.len() - ip;
    let bit = (bit % (length as u64 * 8)) as usize;
    frame[ip + bit / 8] ^= 1 << (bit % 8);
    if at == ip + 4 {
        // The new identifier would be a second change to the header's checksum, which might undo
        // the first: so the checksum follows it.
        let before = word(frame, at);
        let sum = !word(frame, ip + 10);
        let sum = fold(u32::from(sum) + u32::from(!before) + u32::from(id));
        frame[ip + 10..ip + 12].copy_from_slice(&(!sum).to_be_bytes());
    }
    frame[at..at + 2].copy_from_slice(&id.to_be_bytes());
    // A host that takes it for one of the other version finds the identifier there.
    let now = id_at(link, frame);
    frame[now..now + 2].copy_from_slice(&id.to_be_bytes());
}

/// The label in a payload.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Label {
    pub talk: u16,
    pub number: u16,
    pub is_answer: bool,
}

/// The shortest payload.
pub(crate) const PAYLOAD_MIN: usize = 12;

/// The payload with this label, of so many bytes.
pub(crate) fn payload(label: &Label, length: usize) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(length);
    bytes.extend_from_slice(b"FKsm");
    bytes.extend_from_slice(&label.talk.to_be_bytes());
    bytes.extend_from_slice(&label.number.to_be_bytes());
    bytes.push(u8::from(label.is_answer));
    let mut state = u32::from(label.talk) << 16 | u32::from(label.number) << 1 | u32::from(label.is_answer);
    while bytes.len() < length {
        state = state.wrapping_mul(0x9e37_79b1).wrapping_add(0x7f4a_7c15);
        bytes.push((state >> 24) as u8);
    }
    bytes
}

/// The label of a payload; `None` if it is none, or is not as it was written.
pub(crate) fn label(bytes: &[u8]) -> Option<Label> {
    if bytes.len() < PAYLOAD_MIN || &bytes[..4] != b"FKsm" {
        return None;
    }
    let label = Label {
        talk: word(bytes, 4),
        number: word(bytes, 6),
        is_answer: bytes[8] == 1,
    };
    (payload(&label, bytes.len()) == bytes).then_some(label)
}

fn word(bytes: &[u8], at: usize) -> u16 {
    u16::from_be_bytes([bytes[at], bytes[at + 1]])
}

fn long(bytes: &[u8], at: usize) -> u32 {
    u32::from(word(bytes, at)) << 16 | u32::from(word(bytes, at + 2))
}

fn sum(bytes: &[u8]) -> u32 {
    let pairs = bytes.chunks(2);
    pairs
        .map(|pair| u32::from(pair[0]) << 8 | u32::from(pair.get(1).copied().unwrap_or(0)))
        .sum()
}

fn fold(mut sum: u32) -> u16 {
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum as u16
}

/// The transport's checksum behind this IP header: the value to write where it is zero, or zero
/// where it is right.
fn transport_sum(ip: &[u8], t: &[u8], protocol: u8) -> u16 {
    let addresses = match (ip[0] >> 4, protocol) {
        (6, _) => &ip[8..40],
        (_, 1) => &[],
        _ => &ip[12..20],
    };
    let pseudo = match addresses {
        [] => 0,
        addresses => sum(addresses) + u32::from(protocol) + t.len() as u32,
    };
    !fold(sum(t) + pseudo)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn heads() -> Vec<Head> {
        let transports = [
            Transport::Tcp {
                flags: flags::SYN | flags::ACK,
                seq: 7,
                ack: u32::MAX,
            },
            Transport::Udp,
            Transport::Echo {
                is_reply: false,
                number: 3,
            },
        ];
        let both = transports.into_iter().flat_map(|transport| {
            [false, true].map(|is_v6| Head {
                id: 513,
                is_v6,
                source: End::new([10, 0, 0, 3], 40_000),
                destination: End::new(
                    [198, 51, 100, 5],
                    if transport.protocol() == 1 { 40_000 } else { 53 },
                ),
                transport,
            })
        });
        both.collect()
    }

    /// A frame, as production code parses it.
    fn parsed<R>(link: LinkType, bytes: &[u8], look: impl FnOnce(&wire::Packet) -> R) -> R {
        let region = wire::memory::Region::heap(wire::Pool::region_length(1, 1024));
        let mut pool = wire::Pool::new(region, 1, 1024, 0);
        let mut packet = pool.take().unwrap();
        assert!(packet.set_frame(bytes, link) && wire::parse(&mut packet).is_ok());
        assert!(packet.checksums_valid());
        let seen = look(&packet);
        pool.give(packet);
        seen
    }

    const LABEL: Label = Label {
        talk: 5,
        number: 9,
        is_answer: true,
    };

    #[test]
    fn what_is_written_is_read_and_is_a_packet_to_the_product() {
        for (head, link) in heads()
            .into_iter()
            .zip([LinkType::Ethernet, LinkType::Raw].into_iter().cycle())
        {
            let bytes = write(link, &head, &payload(&LABEL, 40));
            let (read_head, rest) = read(link, &bytes).unwrap();
            assert_eq!((read_head, label(rest)), (head, Some(LABEL)));
            assert_eq!(id_of(link, &bytes), Some(513));
            assert_eq!(destination_of(link, &bytes), Some([198, 51, 100, 5]));
            parsed(link, &bytes, |_| ());
        }
    }

    /// The first bytes of a payload are such as an IPv4 header begins with, that of no later
    /// fragment where the number is 0.
    #[test]
    fn a_query_that_is_damaged_is_an_error_where_the_product_takes_it_for_one() {
        let mut errors = 0;
        for head in heads() {
            let label = Label { number: 0, ..LABEL };
            let bytes = write(LinkType::Raw, &head, &payload(&label, 60));
            for bit in 0..bytes.len() as u64 * 8 {
                let mut damaged = bytes.clone();
                damage(LinkType::Raw, &mut damaged, bit, 7777);
                let region = wire::memory::Region::heap(wire::Pool::region_length(1, 1024));
                let mut pool = wire::Pool::new(region, 1, 1024, 0);
                let mut packet = pool.take().unwrap();
                assert!(packet.set_frame(&damaged, LinkType::Raw));
                if wire::parse(&mut packet).is_ok() && packet.has(wire::packet::flag::ICMP_ERROR) {
                    assert!(is_error(LinkType::Raw, &damaged), "bit {bit} of {head:?}");
                    errors += 1;
                }
                pool.give(packet);
            }
        }
        assert!(errors > 0);
    }

    #[test]
    fn every_damaged_frame_is_refused() {
        for head in heads() {
            let bytes = write(LinkType::Raw, &head, &payload(&LABEL, 20));
            // Nothing covers class, protocol and hop limit of IPv6.
            let covered = if head.is_v6 { 64 } else { 0 };
            for bit in covered..bytes.len() as u64 * 8 {
                let mut damaged = bytes.clone();
                damage(LinkType::Raw, &mut damaged, bit, 7777);
                assert!(read(LinkType::Raw, &damaged).is_none(), "bit {bit} of {head:?}");
            }
        }
    }

    #[test]
    fn what_is_taken_apart_is_put_together_in_any_order() {
        for head in heads() {
            let bytes = write(LinkType::Ethernet, &head, &payload(&LABEL, 75));
            let (parts, length) = split(LinkType::Ethernet, &bytes, 3);
            assert_eq!(parts.len(), 3);
            let mut assembly = Assembly::default();
            for (index, at) in [2, 0, 1].into_iter().enumerate() {
                assert_eq!(part_of(LinkType::Ethernet, &parts[at], length), Some(at as u8));
                assert_eq!(id_of(LinkType::Ethernet, &parts[at]), Some(513));
                let whole = assembly.take(LinkType::Ethernet, at as u8, &parts[at]).unwrap();
                assert_eq!(whole.as_deref(), (index == 2).then_some(&bytes[..]));
            }
            let mut strange = parts[1].clone();
            strange[26] ^= 1;
            assert!(assembly.take(LinkType::Ethernet, 1, &strange).is_err());
        }
    }

    #[test]
    fn an_error_quotes_what_arrived_and_the_product_finds_it() {
        for head in heads() {
            for is_whole in [false, true] {
                let bytes = write(LinkType::Raw, &head, &payload(&LABEL, 75));
                let frame = Frame {
                    id: 513,
                    part: 0,
                    bytes,
                };
                let from = [192, 0, 2, 204];
                let (told, quoted) = error(LinkType::Raw, &frame, &head, from, is_whole, 1).unwrap();
                let bytes = write(LinkType::Raw, &told, &quoted);
                let (read, _) = read(LinkType::Raw, &bytes).unwrap();
                assert_eq!(read, told);
                let Transport::Error { quote, .. } = read.transport else {
                    panic!("{read:?}");
                };
                assert_eq!((quote.source, quote.destination), (head.source, head.destination));
                assert!(quote.is_sound && quote.id == 513);
                let found = parsed(LinkType::Raw, &bytes, |packet| {
                    wire::parse::quoted(packet).map(|quoted| quoted.source.port)
                });
                assert_eq!(found, Some(head.source.port));
            }
        }
    }
}
