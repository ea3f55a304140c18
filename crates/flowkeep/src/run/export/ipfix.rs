//! NAT's log as IPFIX records over UDP (RFC 7011), with the events and elements of RFC 8158.
//!
//! | event | natEvent | elements |
//! |---|---|---|
//! | `mapping_created`, `mapping_released` | 8, 9 (NAT44 BIB create, delete) | time, event, protocol, VLAN, inside address and port, outside address and port |
//! | `block_claimed`, `block_released` | 16, 17 (port block allocation, de-allocation) | time, event, inside address, outside address, first and last port |
//!
//! ```text
//!   message ─┬─ head: version 10, length, time, records so far, domain 0
//!            ├─ templates 256 and 257: in the first message, and in one every minute (RFC 7011 8.4)
//!            └─ a set of records of one template, one behind the other
//! ```
//!
//! Each set has one template's records, so a message has one set besides the templates, and another
//! kind of record begins another message.

use super::{Collector, Sender, field};
use crate::run::stamps::milliseconds;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

const VERSION: u16 = 10;
/// The set of templates.
const TEMPLATES: u16 = 2;
const MAPPING: u16 = 256;
const BLOCK: u16 = 257;
/// Collectors forget templates that do not come again.
const TEMPLATES_EVERY: Duration = Duration::from_secs(60);
/// The longest message: it fits a frame of Ethernet behind any heads.
const MESSAGE_MAX: usize = 1400;
/// Bytes of a message's head, and of a set's.
const HEAD: usize = 16;
const SET_HEAD: usize = 4;

/// Elements of IANA's registry: number and bytes.
const TIME: [u16; 2] = [323, 8];
const EVENT: [u16; 2] = [230, 1];
const PROTOCOL: [u16; 2] = [4, 1];
const VLAN: [u16; 2] = [58, 2];
const INSIDE_ADDRESS: [u16; 2] = [8, 4];
const INSIDE_PORT: [u16; 2] = [7, 2];
const OUTSIDE_ADDRESS: [u16; 2] = [225, 4];
const OUTSIDE_PORT: [u16; 2] = [227, 2];
const FIRST_PORT: [u16; 2] = [361, 2];
const LAST_PORT: [u16; 2] = [362, 2];

const OF_MAPPING: [[u16; 2]; 8] = [
    TIME,
    EVENT,
    PROTOCOL,
    VLAN,
    INSIDE_ADDRESS,
    INSIDE_PORT,
    OUTSIDE_ADDRESS,
    OUTSIDE_PORT,
];
const OF_BLOCK: [[u16; 2]; 6] = [
    TIME,
    EVENT,
    INSIDE_ADDRESS,
    OUTSIDE_ADDRESS,
    FIRST_PORT,
    LAST_PORT,
];

/// Bytes of the set of templates: each has a head, and four bytes for an element.
const TEMPLATES_LENGTH: usize = SET_HEAD + 2 * 4 + 4 * (OF_MAPPING.len() + OF_BLOCK.len());

pub(super) struct Ipfix {
    sender: Sender,
    /// Records of the set at hand, and how many; of which template.
    records: Vec<u8>,
    count: u32,
    template: u16,
    /// Records sent before, modulo 2³².
    sequence: u32,
    /// When templates were sent last.
    told: Option<Instant>,
}

impl Ipfix {
    pub fn new(sender: Sender) -> Self {
        Ipfix {
            sender,
            records: Vec::new(),
            count: 0,
            template: MAPPING,
            sequence: 0,
            told: None,
        }
    }

    fn add(&mut self, template: u16, record: &[u8]) {
        let has_room = HEAD + TEMPLATES_LENGTH + SET_HEAD + self.records.len() + record.len() <= MESSAGE_MAX;
        if template != self.template || !has_room {
            self.flush();
        }
        self.template = template;
        self.records.extend_from_slice(record);
        self.count += 1;
    }
}

impl Collector for Ipfix {
    fn line(&mut self, line: &str) {
        match field(line, "event") {
            Some("mapping_created") => mapping(line, 8)
                .into_iter()
                .for_each(|record| self.add(MAPPING, &record)),
            Some("mapping_released") => mapping(line, 9)
                .into_iter()
                .for_each(|record| self.add(MAPPING, &record)),
            Some("block_claimed") => block(line, 16)
                .into_iter()
                .for_each(|record| self.add(BLOCK, &record)),
            Some("block_released") => block(line, 17)
                .into_iter()
                .for_each(|record| self.add(BLOCK, &record)),
            _ => {}
        }
    }

    fn flush(&mut self) {
        if self.count == 0 {
            return;
        }
        let now = Instant::now();
        let is_due = self.told.is_none_or(|told| now - told >= TEMPLATES_EVERY);
        let templates = match is_due {
            true => templates(),
            false => Vec::new(),
        };
        self.told = if is_due { Some(now) } else { self.told };
        let today = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let length = HEAD + templates.len() + SET_HEAD + self.records.len();
        let mut message = Vec::with_capacity(length);
        message.extend(VERSION.to_be_bytes());
        message.extend((length as u16).to_be_bytes());
        message.extend((today.as_secs() as u32).to_be_bytes());
        message.extend(self.sequence.to_be_bytes());
        message.extend(0_u32.to_be_bytes());
        message.extend(templates);
        set(self.template, &self.records, &mut message);
        self.sender.send(&message);
        self.sequence = self.sequence.wrapping_add(self.count);
        self.records.clear();
        self.count = 0;
    }
}

fn set(id: u16, bytes: &[u8], out: &mut Vec<u8>) {
    out.extend(id.to_be_bytes());
    out.extend(((SET_HEAD + bytes.len()) as u16).to_be_bytes());
    out.extend_from_slice(bytes);
}

/// The set of both templates.
fn templates() -> Vec<u8> {
    let mut both = Vec::new();
    for (id, elements) in [(MAPPING, &OF_MAPPING[..]), (BLOCK, &OF_BLOCK[..])] {
        both.extend(id.to_be_bytes());
        both.extend((elements.len() as u16).to_be_bytes());
        both.extend(elements.iter().flatten().flat_map(|number| number.to_be_bytes()));
    }
    let mut out = Vec::new();
    set(TEMPLATES, &both, &mut out);
    out
}

/// A mapping's record; `None` for a line that is no mapping's.
fn mapping(line: &str, event: u8) -> Option<Vec<u8>> {
    let endpoint = |name: &str| field(line, name)?.parse::<SocketAddrV4>().ok();
    let (inside, outside) = (endpoint("inside")?, endpoint("outside")?);
    let protocol: u8 = match field(line, "protocol")? {
        "tcp" => 6,
        "udp" => 17,
        "icmp" => 1,
        _ => return None,
    };
    let vlan = line.split_once("\"vlan\":").map_or("", |(_, behind)| behind);
    let digits = vlan.bytes().take_while(u8::is_ascii_digit).count();
    let vlan: u16 = vlan.get(..digits).and_then(|vlan| vlan.parse().ok()).unwrap_or(0);
    let mut record = begin(line, event)?;
    record.push(protocol);
    record.extend(vlan.to_be_bytes());
    for end in [inside, outside] {
        record.extend(end.ip().octets());
        record.extend(end.port().to_be_bytes());
    }
    Some(record)
}

fn block(line: &str, event: u8) -> Option<Vec<u8>> {
    let address = |name: &str| field(line, name)?.parse::<Ipv4Addr>().ok();
    let (inside, outside) = (address("host")?, address("outside")?);
    let (first, last) = field(line, "ports")?.split_once('-')?;
    let mut record = begin(line, event)?;
    record.extend(inside.octets());
    record.extend(outside.octets());
    for port in [first, last] {
        record.extend(port.parse::<u16>().ok()?.to_be_bytes());
    }
    Some(record)
}

fn begin(line: &str, event: u8) -> Option<Vec<u8>> {
    let mut record = milliseconds(field(line, "time")?)?.to_be_bytes().to_vec();
    record.push(event);
    Some(record)
}

#[cfg(test)]
mod tests {
    use super::*;
    use adapters::report::Reports;
    use std::net::UdpSocket;

    const CREATED: &str = r#"{"time":"2026-11-20T18:46:04.500000000Z","runtime":0,"function":"nat","event":"mapping_created","inside":"10.0.0.1:5000","outside":"203.0.113.1:1733","protocol":"udp","vlan":3}"#;
    const CLAIMED: &str = r#"{"time":"2026-11-20T18:46:04.000000000Z","runtime":0,"function":"nat","event":"block_claimed","host":"10.0.0.2","outside":"203.0.113.1","ports":"1024-1535"}"#;

    #[test]
    fn records_have_what_the_lines_have() {
        let time = 1_795_200_364_500_u64.to_be_bytes();
        let expected = [
            &time[..],
            &[8, 17, 0, 3, 10, 0, 0, 1, 0x13, 0x88, 203, 0, 113, 1, 0x06, 0xc5],
        ];
        assert_eq!(mapping(CREATED, 8).unwrap(), expected.concat());
        let time = 1_795_200_364_000_u64.to_be_bytes();
        let expected = [&time[..], &[16, 10, 0, 0, 2, 203, 0, 113, 1, 4, 0, 5, 0xff]];
        assert_eq!(block(CLAIMED, 16).unwrap(), expected.concat());
        assert_eq!(mapping(CLAIMED, 8), None);
        assert_eq!(block(CREATED, 8), None);
        assert_eq!(templates().len(), TEMPLATES_LENGTH);
        let lengths = |elements: &[[u16; 2]]| {
            elements
                .iter()
                .map(|[_, bytes]| usize::from(*bytes))
                .sum::<usize>()
        };
        assert_eq!(mapping(CREATED, 8).unwrap().len(), lengths(&OF_MAPPING));
        assert_eq!(block(CLAIMED, 16).unwrap().len(), lengths(&OF_BLOCK));
    }

    /// Reads many messages as a collector that knows nothing of this file.
    #[test]
    fn messages_are_whole_and_count_records() {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        let sender = Sender::to("IPFIX", socket.local_addr().unwrap(), Reports::default()).unwrap();
        let mut ipfix = Ipfix::new(sender);
        for _ in 0..100 {
            ipfix.line(CREATED);
        }
        ipfix.line(CLAIMED);
        ipfix.flush();
        ipfix.flush();
        let (mut seen, mut templates) = (0_u32, 0);
        while seen < 101 {
            let mut datagram = [0; 2000];
            let length = socket.recv(&mut datagram).unwrap();
            let word = |at: usize| usize::from(u16::from_be_bytes([datagram[at], datagram[at + 1]]));
            assert!(length <= MESSAGE_MAX);
            assert_eq!((word(0), word(2)), (10, length));
            assert_eq!(datagram[8..12], seen.to_be_bytes());
            let mut at = HEAD;
            while at < length {
                let (id, set) = (word(at), word(at + 2));
                match id {
                    2 => templates += 1,
                    256 => seen += ((set - SET_HEAD) / 24) as u32,
                    257 => seen += ((set - SET_HEAD) / 21) as u32,
                    other => panic!("set {other}"),
                }
                at += set;
            }
            assert_eq!(at, length);
        }
        assert_eq!((seen, templates), (101, 1));
    }
}
