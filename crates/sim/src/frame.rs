//! What hosts send and read: IPv4 with TCP, UDP or ICMP echo, written and judged without the code under test.
//!
//! Each frame carries an identifier, unique in its run, as its IPv4 identification: by that it is known again where it leaves the cluster. What the
//! cluster makes itself (a reset) has the identifier 0. The payload says whose it is and the how-manieth, and the rest of it follows from that, so
//! that any other byte shows:
//!
//! ```text
//!   "FKsm" 4 │ talk 2 │ number 2 │ request 0 or answer 1 │ filler by all of these …
//! ```
//!
//! Not here: which of these to send when ([`crate::world`]).

use std::fmt;
use wire::LinkType;

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
    Tcp { flags: u8, seq: u32, ack: u32 },
    Udp,
    Echo { is_reply: bool, number: u16 },
    Other(u8),
}

impl Transport {
    pub fn protocol(&self) -> u8 {
        match self {
            Transport::Tcp { .. } => 6,
            Transport::Udp => 17,
            Transport::Echo { .. } => 1,
            Transport::Other(protocol) => *protocol,
        }
    }
}

/// A frame's headers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Head {
    pub id: u16,
    pub source: End,
    pub destination: End,
    pub transport: Transport,
}

const IP: usize = 20;
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
    let ip = link_length(link);
    let mut frame = vec![0; ip + IP + transport + payload.len()];
    if link == LinkType::Ethernet {
        frame[..14].copy_from_slice(&[2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 8, 0]);
    }
    let total = (frame.len() - ip) as u16;
    let bytes = &mut frame[ip..];
    bytes[..2].copy_from_slice(&[0x45, 0]);
    bytes[2..4].copy_from_slice(&total.to_be_bytes());
    bytes[4..6].copy_from_slice(&head.id.to_be_bytes());
    bytes[6..10].copy_from_slice(&[0x40, 0, 64, head.transport.protocol()]);
    bytes[12..16].copy_from_slice(&head.source.addr);
    bytes[16..20].copy_from_slice(&head.destination.addr);
    let sum = !fold(sum(&bytes[..IP]));
    bytes[10..12].copy_from_slice(&sum.to_be_bytes());
    bytes[IP + transport..].copy_from_slice(payload);
    let (source, destination) = (head.source.port, head.destination.port);
    let t = &mut bytes[IP..];
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
            t[0] = if is_reply { 0 } else { 8 };
            // Of the two ends, the identifier is the asker's.
            let identifier = if is_reply { destination } else { source };
            t[4..6].copy_from_slice(&identifier.to_be_bytes());
            t[6..8].copy_from_slice(&number.to_be_bytes());
            2
        }
        Transport::Other(_) => unreachable!("hosts do not send others"),
    };
    let sum = match transport_sum(bytes, head.transport.protocol()) {
        // Zero would mean that there is none (RFC 768).
        0 if head.transport == Transport::Udp => 0xffff,
        sum => sum,
    };
    bytes[IP + checksum_at..IP + checksum_at + 2].copy_from_slice(&sum.to_be_bytes());
    frame
}

/// Reads a frame: its headers and payload; `None` if a length or checksum is wrong.
pub(crate) fn read(link: LinkType, frame: &[u8]) -> Option<(Head, &[u8])> {
    let bytes = frame.get(link_length(link)..)?;
    if bytes.len() < IP || bytes[0] != 0x45 || fold(sum(&bytes[..IP])) != 0xffff {
        return None;
    }
    let total = usize::from(word(bytes, 2));
    let bytes = bytes.get(..total).filter(|_| total >= IP)?;
    let (protocol, t) = (bytes[9], &bytes[IP..]);
    let (least, payload_at) = match protocol {
        6 => (20, usize::from(t.get(12)? >> 4) * 4),
        1 | 17 => (8, 8),
        _ => (0, 0),
    };
    if t.len() < least.max(payload_at) || payload_at < least {
        return None;
    }
    if matches!(protocol, 1 | 6 | 17) && transport_sum(bytes, protocol) != 0 {
        return None;
    }
    if protocol == 17 && word(t, 6) == 0 {
        // Allowed, but hosts here always have one.
        return None;
    }
    let long = |at: usize| u32::from(word(t, at)) << 16 | u32::from(word(t, at + 2));
    let (transport, ports) = match protocol {
        6 => {
            let (flags, seq, ack) = (t[13], long(4), long(8));
            (Transport::Tcp { flags, seq, ack }, [word(t, 0), word(t, 2)])
        }
        17 => (Transport::Udp, [word(t, 0), word(t, 2)]),
        1 if matches!(t[0], 0 | 8) => {
            let (is_reply, number) = (t[0] == 0, word(t, 6));
            (Transport::Echo { is_reply, number }, [word(t, 4); 2])
        }
        other => (Transport::Other(other), [0; 2]),
    };
    let addr = |at: usize| [bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]];
    let head = Head {
        id: word(bytes, 4),
        source: End::new(addr(12), ports[0]),
        destination: End::new(addr(16), ports[1]),
        transport,
    };
    Some((head, &t[payload_at..]))
}

/// The identifier that a frame carries, whatever else is wrong with it.
pub(crate) fn id_of(link: LinkType, frame: &[u8]) -> Option<u16> {
    let at = link_length(link) + 4;
    (frame.len() >= at + 2).then(|| word(frame, at))
}

/// Flips a bit of the IP packet and gives the frame another identifier, by which it is known as damaged. Its checksum stays wrong.
pub(crate) fn damage(link: LinkType, frame: &mut [u8], bit: u64, id: u16) {
    let ip = link_length(link);
    let length = frame.len() - ip;
    let bit = (bit % (length as u64 * 8)) as usize;
    frame[ip + bit / 8] ^= 1 << (bit % 8);
    // The new identifier would be a second change to the header's checksum, which might undo the first: so the checksum follows it.
    let before = word(frame, ip + 4);
    let sum = !word(frame, ip + 10);
    let sum = fold(u32::from(sum) + u32::from(!before) + u32::from(id));
    frame[ip + 4..ip + 6].copy_from_slice(&id.to_be_bytes());
    frame[ip + 10..ip + 12].copy_from_slice(&(!sum).to_be_bytes());
}

/// What a payload says.
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

/// The transport's checksum: what to write where it is zero, or zero where it is right.
fn transport_sum(ip: &[u8], protocol: u8) -> u16 {
    let t = &ip[IP..];
    let pseudo = if protocol == 1 {
        0
    } else {
        sum(&ip[12..20]) + u32::from(protocol) + t.len() as u32
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
        transports
            .map(|transport| Head {
                id: 513,
                source: End::new([10, 0, 0, 3], 40_000),
                destination: End::new(
                    [198, 51, 100, 5],
                    if transport.protocol() == 1 { 40_000 } else { 53 },
                ),
                transport,
            })
            .to_vec()
    }

    #[test]
    fn what_is_written_is_read_and_is_a_packet_to_the_product() {
        let label_of = Label {
            talk: 5,
            number: 9,
            is_answer: true,
        };
        for (head, link) in heads()
            .into_iter()
            .zip([LinkType::Ethernet, LinkType::Raw, LinkType::Ethernet])
        {
            let bytes = write(link, &head, &payload(&label_of, 40));
            let (read_head, rest) = read(link, &bytes).unwrap();
            assert_eq!((read_head, label(rest)), (head, Some(label_of)));
            assert_eq!(id_of(link, &bytes), Some(513));
            let mut pool = wire::Pool::new(
                wire::memory::Region::heap(wire::Pool::region_length(1, 512)),
                1,
                512,
                0,
            );
            let mut packet = pool.take().unwrap();
            assert!(packet.set_frame(&bytes, link) && wire::parse(&mut packet).is_ok());
            assert!(packet.checksums_valid());
            pool.give(packet);
        }
    }

    #[test]
    fn every_damaged_frame_is_refused() {
        for head in heads() {
            let bytes = write(
                LinkType::Raw,
                &head,
                &payload(
                    &Label {
                        talk: 1,
                        number: 2,
                        is_answer: false,
                    },
                    20,
                ),
            );
            for bit in 0..bytes.len() as u64 * 8 {
                let mut damaged = bytes.clone();
                damage(LinkType::Raw, &mut damaged, bit, 7777);
                assert!(read(LinkType::Raw, &damaged).is_none(), "bit {bit} of {head:?}");
            }
        }
    }
}
