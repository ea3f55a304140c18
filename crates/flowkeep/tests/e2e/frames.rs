//! Frames read and turned around without any of Flowkeep's parsing: the NAT's answers are compared
//! with them.

use adapters::pcap::Reader;
use std::path::Path;

/// All frames of a capture whose link layer is Ethernet or none, and whether all were.
pub fn read(path: &Path) -> Vec<Vec<u8>> {
    let mut reader = Reader::open(path).expect("a capture");
    let mut frames = Vec::new();
    while let Ok(Some(record)) = reader.next() {
        frames.push(reader.frame(&record).to_vec());
    }
    frames
}

/// Where the IPv4 header of an Ethernet frame is, behind any tags, and a PPPoE session or labels.
pub fn ipv4_at(frame: &[u8]) -> Option<usize> {
    let mut at = 12;
    while matches!(frame.get(at..at + 2)?, [0x81, 0] | [0x88, 0xa8] | [0x91, 0]) {
        at += 4;
    }
    let body = match *frame.get(at..at + 2)? {
        [8, 0] => at + 2,
        // PPPoE: its header, and PPP's word for IPv4.
        [0x88, 0x64] if frame.get(at + 8..at + 10)? == [0, 0x21] => at + 10,
        // MPLS: behind the entry that says it is the last.
        [0x88, 0x47] => {
            let mut entries = frame.get(at + 2..)?.chunks(4);
            at + 2 + 4 * (entries.position(|entry| entry.get(2).is_some_and(|byte| byte & 1 == 1))? + 1)
        }
        _ => return None,
    };
    (frame.get(body)? >> 4 == 4).then_some(body)
}

/// An IPv4 packet in a frame: where its parts are.
#[derive(Clone, Copy, Debug)]
pub struct V4 {
    pub network: usize,
    pub transport: usize,
    pub protocol: u8,
    /// Offset of a fragment, in units of eight bytes, and whether more follow.
    pub fragment: (u16, bool),
}

impl V4 {
    /// `None` for a frame without a whole IPv4 header in Ethernet.
    pub fn of(frame: &[u8]) -> Option<V4> {
        Self::at(frame, ipv4_at(frame)?)
    }

    fn at(frame: &[u8], network: usize) -> Option<V4> {
        let header = frame.get(network..network + 20)?;
        let word = u16::from_be_bytes([header[6], header[7]]);
        let transport = network + 4 * usize::from(header[0] & 15);
        (header[0] >> 4 == 4 && transport <= frame.len()).then_some(V4 {
            network,
            transport,
            protocol: header[9],
            fragment: (word & 0x1fff, word & 0x2000 != 0),
        })
    }

    pub fn source(&self, frame: &[u8]) -> [u8; 4] {
        let at = self.network + 12;
        [frame[at], frame[at + 1], frame[at + 2], frame[at + 3]]
    }

    pub fn destination(&self, frame: &[u8]) -> [u8; 4] {
        let at = self.network + 16;
        [frame[at], frame[at + 1], frame[at + 2], frame[at + 3]]
    }

    /// Source and destination port of TCP and UDP, twice the identifier of an ICMP query.
    pub fn ports(&self, frame: &[u8]) -> Option<(u16, u16)> {
        let word = |at: usize| Some(u16::from_be_bytes([*frame.get(at)?, *frame.get(at + 1)?]));
        match self.protocol {
            _ if self.fragment.0 > 0 => None,
            6 | 17 => Some((word(self.transport)?, word(self.transport + 2)?)),
            1 => word(self.transport + 4).map(|id| (id, id)),
            _ => None,
        }
    }

    /// The ICMP type.
    pub fn icmp_type(&self, frame: &[u8]) -> Option<u8> {
        (self.protocol == 1 && self.fragment.0 == 0).then(|| frame.get(self.transport).copied())?
    }

    /// The packet that an ICMP error quotes.
    fn quoted(&self, frame: &[u8]) -> Option<V4> {
        let error = matches!(self.icmp_type(frame)?, 3 | 4 | 5 | 11 | 12);
        error.then(|| Self::at(frame, self.transport + 8)).flatten()
    }
}

/// The frame as its receiver would send it back.
pub fn mirrored(frame: &[u8]) -> Option<Vec<u8>> {
    let packet = V4::of(frame)?;
    let mut frame = frame.to_vec();
    let (one, other) = frame[..12].split_at_mut(6);
    one.swap_with_slice(other);
    swap(&mut frame, packet);
    if let Some(quoted) = packet.quoted(&frame) {
        swap(&mut frame, quoted);
    }
    Some(frame)
}

fn swap(frame: &mut [u8], packet: V4) {
    let mut exchange = |at: usize, length: usize| {
        if let Some(pair) = frame.get_mut(at..at + 2 * length) {
            let (one, other) = pair.split_at_mut(length);
            one.swap_with_slice(other);
        }
    };
    exchange(packet.network + 12, 4);
    if packet.fragment.0 == 0 && matches!(packet.protocol, 6 | 17) {
        exchange(packet.transport, 2);
    }
}

/// The frame with zeros for times to live and checksums, its own and those of a packet it quotes.
pub fn plain(frame: &[u8]) -> Vec<u8> {
    let mut plain = frame.to_vec();
    if let Some(packet) = V4::of(frame) {
        blank(&mut plain, packet);
        if let Some(quoted) = packet.quoted(frame) {
            blank(&mut plain, quoted);
        }
    }
    plain
}

fn blank(frame: &mut [u8], packet: V4) {
    let mut clear = |at: usize, length: usize| {
        if let Some(bytes) = frame.get_mut(at..at + length) {
            bytes.fill(0);
        }
    };
    clear(packet.network + 8, 1);
    clear(packet.network + 10, 2);
    match packet.protocol {
        _ if packet.fragment.0 > 0 => {}
        6 => clear(packet.transport + 16, 2),
        17 => clear(packet.transport + 6, 2),
        1 => clear(packet.transport + 2, 2),
        _ => {}
    }
}
