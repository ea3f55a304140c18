//! IPv4 packets, made and looked at by hand.

/// An address and a port, or an ICMP query's identifier.
pub type End = ([u8; 4], u16);

pub const UDP: u8 = 17;
pub const TCP: u8 = 6;
pub const ICMP: u8 = 1;

pub const FIN: u8 = 1;
pub const SYN: u8 = 2;
pub const RST: u8 = 4;
pub const ACK: u8 = 16;

/// An IPv4 packet.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Ip {
    pub source: [u8; 4],
    pub destination: [u8; 4],
    pub protocol: u8,
    pub ttl: u8,
    pub id: u16,
    pub df: bool,
    pub more: bool,
    /// In units of eight bytes.
    pub offset: u16,
    pub options: Vec<u8>,
    pub payload: Vec<u8>,
    /// Whether the header's checksum is right, of a packet that was read.
    pub header_holds: bool,
}

fn sum(bytes: &[u8]) -> u32 {
    let pairs = bytes.chunks(2);
    pairs
        .map(|pair| u32::from(pair[0]) << 8 | u32::from(pair.get(1).copied().unwrap_or(0)))
        .sum()
}

/// The Internet checksum (RFC 1071): 0 of bytes whose checksum is right.
fn checksum(mut sum: u32) -> u16 {
    while sum >> 16 != 0 {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(sum as u16)
}

impl Ip {
    pub fn new(source: [u8; 4], destination: [u8; 4], protocol: u8, payload: Vec<u8>) -> Self {
        Ip {
            source,
            destination,
            protocol,
            ttl: 64,
            id: 0x4b1d,
            df: false,
            more: false,
            offset: 0,
            options: Vec::new(),
            payload,
            header_holds: true,
        }
    }

    /// As it stands on the wire, with a right header checksum.
    pub fn bytes(&self) -> Vec<u8> {
        let header = 20 + self.options.len();
        let mut bytes = vec![0x40 | (header / 4) as u8, 0];
        bytes.extend(((header + self.payload.len()) as u16).to_be_bytes());
        bytes.extend(self.id.to_be_bytes());
        let flags = u16::from(self.df) << 14 | u16::from(self.more) << 13 | self.offset;
        bytes.extend(flags.to_be_bytes());
        bytes.extend([self.ttl, self.protocol, 0, 0]);
        bytes.extend(self.source);
        bytes.extend(self.destination);
        bytes.extend(&self.options);
        let check = checksum(sum(&bytes));
        bytes[10..12].copy_from_slice(&check.to_be_bytes());
        bytes.extend(&self.payload);
        bytes
    }

    /// From the wire, or from an ICMP error's quotation: then the payload may be a part.
    pub fn read(bytes: &[u8]) -> Option<Ip> {
        let header = usize::from(bytes.first()? & 15) * 4;
        if bytes[0] >> 4 != 4 || header < 20 || bytes.len() < header {
            return None;
        }
        let word = |at: usize| u16::from_be_bytes([bytes[at], bytes[at + 1]]);
        let total = usize::from(word(2)).clamp(header, bytes.len());
        let addr = |at: usize| [bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]];
        Some(Ip {
            source: addr(12),
            destination: addr(16),
            protocol: bytes[9],
            ttl: bytes[8],
            id: word(4),
            df: word(6) & 0x4000 != 0,
            more: word(6) & 0x2000 != 0,
            offset: word(6) & 0x1fff,
            options: bytes[20..header].to_vec(),
            payload: bytes[header..total].to_vec(),
            header_holds: checksum(sum(&bytes[..header])) == 0,
        })
    }

    fn word(&self, at: usize) -> u16 {
        let byte = |at: usize| self.payload.get(at).copied().unwrap_or(0);
        u16::from_be_bytes([byte(at), byte(at + 1)])
    }

    /// Source and destination; an ICMP query's identifier is both ports.
    pub fn ends(&self) -> (End, End) {
        let (a, b) = match self.protocol {
            ICMP => (self.word(4), self.word(4)),
            _ => (self.word(0), self.word(2)),
        };
        ((self.source, a), (self.destination, b))
    }

    pub fn flags(&self) -> u8 {
        self.payload.get(13).copied().unwrap_or(0) & 0x3f
    }

    /// Type and code.
    pub fn icmp(&self) -> (u8, u8) {
        let [kind, code] = self.word(0).to_be_bytes();
        (kind, code)
    }

    /// The second word of an ICMP error: with Fragmentation Needed, its lower half is the MTU.
    pub fn rest(&self) -> u16 {
        self.word(6)
    }

    /// The packet that an ICMP error quotes.
    pub fn quoted(&self) -> Ip {
        Ip::read(&self.payload[8..]).expect("a quotation")
    }

    /// The payload of a TCP segment or UDP datagram.
    pub fn text(&self) -> &[u8] {
        let header = match self.protocol {
            TCP => usize::from(self.payload[12] >> 4) * 4,
            _ => 8,
        };
        &self.payload[header..]
    }

    fn pseudo(&self) -> u32 {
        match self.protocol {
            ICMP => 0,
            protocol => {
                sum(&self.source) + sum(&self.destination) + u32::from(protocol) + self.payload.len() as u32
            }
        }
    }

    fn check_at(&self) -> usize {
        match self.protocol {
            TCP => 16,
            UDP => 6,
            _ => 2,
        }
    }

    /// The transport's checksum holds; of a whole packet.
    pub fn transport_holds(&self) -> bool {
        let has_ports = matches!(self.protocol, UDP | TCP | ICMP);
        let none = !has_ports || (self.protocol == UDP && self.word(6) == 0);
        none || checksum(self.pseudo() + sum(&self.payload)) == 0
    }

    /// Writes the transport's checksum again.
    pub fn mended(mut self) -> Self {
        let at = self.check_at();
        self.payload[at..at + 2].fill(0);
        let check = checksum(self.pseudo() + sum(&self.payload));
        self.payload[at..at + 2].copy_from_slice(&check.to_be_bytes());
        self
    }

    /// With a wrong transport checksum.
    pub fn damaged(mut self) -> Self {
        let at = self.check_at();
        self.payload[at] ^= 0x55;
        self
    }

    pub fn ttl(mut self, ttl: u8) -> Self {
        self.ttl = ttl;
        self
    }

    pub fn df(mut self) -> Self {
        self.df = true;
        self
    }

    pub fn id(mut self, id: u16) -> Self {
        self.id = id;
        self
    }

    /// In parts of so many bytes, a multiple of eight.
    pub fn parts(&self, size: usize) -> Vec<Ip> {
        let chunks: Vec<&[u8]> = self.payload.chunks(size).collect();
        let part = |(at, chunk): (usize, &&[u8])| Ip {
            more: at + 1 < chunks.len(),
            offset: (at * size / 8) as u16,
            payload: chunk.to_vec(),
            ..self.clone()
        };
        chunks.iter().enumerate().map(part).collect()
    }

    /// Parts, in whatever order, put together.
    pub fn whole(mut parts: Vec<Ip>) -> Ip {
        parts.sort_by_key(|part| part.offset);
        assert!(!parts.last().expect("parts").more);
        let mut whole = Ip {
            more: false,
            payload: Vec::new(),
            ..parts[0].clone()
        };
        for part in parts {
            assert_eq!(usize::from(part.offset) * 8, whole.payload.len(), "no gap");
            whole.payload.extend(part.payload);
        }
        whole
    }
}

/// A datagram.
pub fn udp(from: End, to: End, text: &[u8]) -> Ip {
    let mut payload = Vec::new();
    for word in [from.1, to.1, 8 + text.len() as u16, 0] {
        payload.extend(word.to_be_bytes());
    }
    payload.extend(text);
    Ip::new(from.0, to.0, UDP, payload).mended()
}

/// A segment.
pub fn tcp(from: End, to: End, flags: u8, numbers: (u32, u32), text: &[u8]) -> Ip {
    let mut payload = Vec::new();
    payload.extend(from.1.to_be_bytes());
    payload.extend(to.1.to_be_bytes());
    payload.extend(numbers.0.to_be_bytes());
    payload.extend(numbers.1.to_be_bytes());
    payload.extend([0x50, flags, 0xff, 0xff, 0, 0, 0, 0]);
    payload.extend(text);
    Ip::new(from.0, to.0, TCP, payload).mended()
}

/// An ICMP query or answer of a type, with an identifier.
pub fn query(kind: u8, from: [u8; 4], to: [u8; 4], identifier: u16) -> Ip {
    let mut payload = vec![kind, 0, 0, 0];
    payload.extend(identifier.to_be_bytes());
    payload.extend([0, 1]);
    payload.extend([7; 12]);
    Ip::new(from, to, ICMP, payload).mended()
}

/// An ICMP error of a type and code that quotes a packet.
pub fn error(from: [u8; 4], to: [u8; 4], (kind, code): (u8, u8), rest: u16, about: &Ip) -> Ip {
    let mut payload = vec![kind, code, 0, 0, 0, 0];
    payload.extend(rest.to_be_bytes());
    payload.extend(about.bytes());
    Ip::new(from, to, ICMP, payload).mended()
}
