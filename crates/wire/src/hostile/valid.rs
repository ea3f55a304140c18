//! Valid frames of every shape that [`crate::parse::parse`] knows.

use super::{LINKS, Random};
use crate::checksum::{checksum, fold, sctp_crc, sum};
use crate::link::LABELS_MAX;
use crate::{LinkType, protocol};
use alloc::vec::Vec;

/// The addresses of a packet: a handful of hosts, so that flows repeat.
#[derive(Clone, Copy)]
struct Ends {
    six: bool,
    bytes: [u8; 32],
}

impl Ends {
    fn new(random: &mut Random) -> Self {
        let six = random.once_in(2);
        let mut bytes = [0; 32];
        let hosts = [1 + random.below(20) as u8, 1 + random.below(20) as u8];
        if six {
            for (half, host) in bytes.chunks_mut(16).zip(hosts) {
                half[..4].copy_from_slice(&[0x20, 0x01, 0x0d, 0xb8]);
                half[15] = host;
            }
        } else {
            bytes[..4].copy_from_slice(&[10, 0, 0, hosts[0]]);
            bytes[4..8].copy_from_slice(&[192, 0, 2, hosts[1]]);
        }
        if random.once_in(2) {
            bytes[..if six { 32 } else { 8 }].rotate_left(if six { 16 } else { 4 });
        }
        Ends { six, bytes }
    }

    /// Source and destination as they stand in the header.
    fn octets(&self) -> &[u8] {
        &self.bytes[..if self.six { 32 } else { 8 }]
    }

    /// As of a packet from this one's receiver.
    fn reversed(mut self) -> Self {
        self.bytes[..if self.six { 32 } else { 8 }].rotate_left(if self.six { 16 } else { 4 });
        self
    }
}

/// A valid frame on any link.
pub(super) fn frame(random: &mut Random) -> (LinkType, Vec<u8>) {
    let ends = Ends::new(random);
    let ip = packet(random, ends, true);
    let link = random.of(&LINKS);
    let mut frame = link_header(random, link, &ip);
    frame.extend(&ip);
    // Padding, which is no part of the packet.
    if random.once_in(4) && link == LinkType::Ethernet {
        let more = random.below(20);
        frame.extend(random.bytes(more));
    }
    (link, frame)
}

fn link_header(random: &mut Random, link: LinkType, ip: &[u8]) -> Vec<u8> {
    let six = ip[0] >> 4 == 6;
    let mut header = match link {
        LinkType::Raw => return Vec::new(),
        LinkType::Loopback => {
            let family: u32 = if six { random.of(&[10, 24, 28, 30]) } else { 2 };
            let swapped = random.once_in(2);
            return if swapped { family.swap_bytes() } else { family }
                .to_ne_bytes()
                .to_vec();
        }
        LinkType::Ethernet => [
            &[2, 0, 0][..],
            &random.array::<3>(),
            &[2, 0, 0],
            &random.array::<3>(),
        ]
        .concat(),
        LinkType::LinuxSll => [&[0, random.byte() % 5, 0, 1, 0, 6, 2][..], &random.array::<7>()].concat(),
        LinkType::LinuxSll2 => Vec::new(),
    };
    let network: u16 = if six { 0x86dd } else { 0x0800 };
    let tags = if random.once_in(2) { random.below(4) } else { 0 };
    let (session, labels) = (random.once_in(8), random.once_in(8));
    // The EtherTypes in order, each but the last with what stands behind it.
    let mut kinds = Vec::new();
    for _ in 0..tags {
        let id = (random.below(4096) as u16).to_be_bytes();
        kinds.push((random.of(&[0x8100u16, 0x88a8, 0x9100]), id.to_vec()));
    }
    if session {
        let mut rest = [&[0x11, 0][..], &random.array::<2>()].concat();
        // The length in this header is not believed.
        let length = match random.once_in(4) {
            true => random.below(ip.len() + 4),
            false => ip.len() + 2,
        };
        rest.extend((length as u16).to_be_bytes());
        rest.extend(if six { [0, 0x57] } else { [0, 0x21] });
        kinds.push((0x8864, rest));
    } else if labels {
        let depth = 1 + random.below(LABELS_MAX);
        let entries = (1..=depth).flat_map(|n| {
            let [a, b, c, ttl] = random.array::<4>();
            [a, b, c & 0xfe | u8::from(n == depth), ttl]
        });
        let stack = entries.collect();
        kinds.push((random.of(&[0x8847, 0x8848]), stack));
    } else {
        kinds.push((network, Vec::new()));
    }
    for (index, (kind, rest)) in kinds.iter().enumerate() {
        header.extend(kind.to_be_bytes());
        // Cooked version 2 has its first EtherType in front, the rest of its header behind that.
        if index == 0 && link == LinkType::LinuxSll2 {
            header.extend([0, 0, 0, 0, 0, 3, 0, 1, random.byte() % 5, 6]);
            header.extend(random.array::<8>());
        }
        header.extend(rest);
    }
    header
}

/// A valid IP packet. `outer`: it may be a fragment or an error, too.
fn packet(random: &mut Random, ends: Ends, outer: bool) -> Vec<u8> {
    let (protocol, body) = transport(random, ends, outer);
    let fragmented = outer && random.once_in(10);
    // The first of them has the whole transport header (TCP's may have 60 bytes).
    if fragmented && body.len() >= 64 {
        let cut = (64 + random.below(body.len() - 63)) & !7;
        let id = random.array::<4>();
        // Offset in units of eight bytes.
        return if random.once_in(2) {
            ip(random, ends, protocol, &body[..cut], Some((0, true, id)))
        } else {
            ip(
                random,
                ends,
                protocol,
                &body[cut..],
                Some((cut as u16 / 8, false, id)),
            )
        };
    }
    ip(random, ends, protocol, &body, None)
}

fn transport(random: &mut Random, ends: Ends, outer: bool) -> (u8, Vec<u8>) {
    let length = match random.below(8) {
        0 => 0,
        1 => 1000 + random.below(440),
        _ => random.below(120),
    };
    let payload = random.bytes(length);
    match random.below(if outer { 14 } else { 11 }) {
        0..=3 => tcp(random, ends, &payload),
        4 | 5 => udp(random, ends, &payload),
        6 => udp_lite(random, ends, &payload),
        7 => sctp(random, &payload),
        8 | 9 => query(random, ends, &payload),
        10 => match random.below(3) {
            0 => (protocol::GRE, [&[0, 0, 8, 0][..], &payload].concat()),
            1 => (protocol::ESP, payload),
            _ => (if ends.six { 59 } else { protocol::IGMP }, payload),
        },
        _ => error(random, ends),
    }
}

fn ports(random: &mut Random) -> [u8; 4] {
    let near = (1024 + random.below(1000) as u16).to_be_bytes();
    let far = random.of(&[53u16, 80, 443]).to_be_bytes();
    if random.once_in(2) {
        [near[0], near[1], far[0], far[1]]
    } else {
        [far[0], far[1], near[0], near[1]]
    }
}

fn tcp(random: &mut Random, ends: Ends, payload: &[u8]) -> (u8, Vec<u8>) {
    let mut options = Vec::new();
    for _ in 0..random.below(4) {
        let option: &[u8] = random.of(&[
            &[1][..],
            &[2, 4, 5, 0xb4],
            &[3, 3, 7],
            &[4, 2],
            &[8, 10, 0, 0, 0, 1, 0, 0, 0, 2],
            &[254, 3, 9],
        ]);
        options.extend(option);
    }
    options.resize(options.len().next_multiple_of(4), 0);
    let flags = random.of(&[2, 0x12, 0x10, 0x18, 0x11, 4, 0x14, 0xc2]);
    let mut body = ports(random).to_vec();
    body.extend(random.array::<8>());
    body.extend([((5 + options.len() / 4) << 4) as u8, flags]);
    body.extend(random.array::<2>());
    body.extend([0; 4]);
    body.extend(options);
    body.extend(payload);
    seal(&mut body, 16, protocol::TCP, Some(ends));
    (protocol::TCP, body)
}

fn udp(random: &mut Random, ends: Ends, payload: &[u8]) -> (u8, Vec<u8>) {
    let mut body = ports(random).to_vec();
    body.extend((8 + payload.len() as u16).to_be_bytes());
    body.extend([0, 0]);
    body.extend(payload);
    // Over IPv4 it may have none.
    if ends.six || !random.once_in(4) {
        seal(&mut body, 6, protocol::UDP, Some(ends));
    }
    (protocol::UDP, body)
}

fn udp_lite(random: &mut Random, ends: Ends, payload: &[u8]) -> (u8, Vec<u8>) {
    let mut body = ports(random).to_vec();
    body.extend([0, 0, 0, 0]);
    body.extend(payload);
    let covered = if random.once_in(2) {
        8 + random.below(payload.len() + 1)
    } else {
        0
    };
    body[4..6].copy_from_slice(&(covered as u16).to_be_bytes());
    // The pseudo-header has the whole length, whatever is covered.
    let end = if covered == 0 { body.len() } else { covered };
    let start = pseudo_header(ends, protocol::UDPLITE, body.len());
    let value = !fold(sum(&body[..end], start));
    body[6..8].copy_from_slice(&if value == 0 { 0xffff } else { value }.to_be_bytes());
    (protocol::UDPLITE, body)
}

fn sctp(random: &mut Random, payload: &[u8]) -> (u8, Vec<u8>) {
    let mut body = ports(random).to_vec();
    body.extend(random.array::<4>());
    body.extend([0; 4]);
    body.extend(payload);
    let crc = sctp_crc(&body);
    body[8..12].copy_from_slice(&crc.to_le_bytes());
    (protocol::SCTP, body)
}

fn query(random: &mut Random, ends: Ends, payload: &[u8]) -> (u8, Vec<u8>) {
    // A few are of types that have no identifier.
    let kind = random.of(if ends.six {
        &[128, 129, 135, 143][..]
    } else {
        &[0, 8, 13, 14, 9, 40][..]
    });
    let rest = random.array::<4>();
    icmp(ends, kind, 0, rest, payload)
}

/// An error from where the quoted packet was going, or from a router on its way.
fn error(random: &mut Random, ends: Ends) -> (u8, Vec<u8>) {
    let quoted = packet(random, ends.reversed(), false);
    let header = if ends.six { 40 } else { 20 };
    let kept = match random.below(3) {
        // The least that is quoted: header and eight bytes. Options and extensions make it more.
        0 => header + 80,
        1 => header + 80 + random.below(200),
        _ => 500,
    };
    let kind = random.of(if ends.six {
        &[1, 2, 3, 4][..]
    } else {
        &[3, 4, 5, 11, 12][..]
    });
    let code = random.byte() % 4;
    let rest = random.array::<4>();
    icmp(ends, kind, code, rest, &quoted[..kept.min(quoted.len())])
}

fn icmp(ends: Ends, kind: u8, code: u8, rest: [u8; 4], payload: &[u8]) -> (u8, Vec<u8>) {
    let mut body = [&[kind, code, 0, 0][..], &rest, payload].concat();
    if ends.six {
        seal(&mut body, 2, protocol::ICMPV6, Some(ends));
        (protocol::ICMPV6, body)
    } else {
        seal(&mut body, 2, protocol::ICMP, None);
        (protocol::ICMP, body)
    }
}

fn pseudo_header(ends: Ends, protocol: u8, length: usize) -> u32 {
    sum(ends.octets(), u32::from(protocol) + length as u32)
}

/// Writes the checksum; `pseudo` says whether it covers addresses.
fn seal(body: &mut [u8], at: usize, protocol: u8, pseudo: Option<Ends>) {
    let start = pseudo.map_or(0, |ends| pseudo_header(ends, protocol, body.len()));
    let value = !fold(sum(body, start));
    let value = if value == 0 && protocol == protocol::UDP {
        0xffff
    } else {
        value
    };
    body[at..at + 2].copy_from_slice(&value.to_be_bytes());
}

/// Offset in units of eight bytes, more to come, identification.
type Fragment = Option<(u16, bool, [u8; 4])>;

fn ip(random: &mut Random, ends: Ends, protocol: u8, body: &[u8], fragment: Fragment) -> Vec<u8> {
    if ends.six {
        ipv6(random, ends, protocol, body, fragment)
    } else {
        ipv4(random, ends, protocol, body, fragment)
    }
}

fn ipv4(random: &mut Random, ends: Ends, protocol: u8, body: &[u8], fragment: Fragment) -> Vec<u8> {
    let mut options = Vec::new();
    if random.once_in(4) {
        for _ in 0..=random.below(4) {
            let option: &[u8] = random.of(&[
                &[1][..],
                &[148, 4, 0, 0],
                &[7, 7, 4, 0, 0, 0, 0],
                &[68, 8, 5, 0, 0, 0, 0, 0],
            ]);
            options.extend(option);
        }
        options.resize(options.len().next_multiple_of(4), 0);
    }
    let (offset, more, id) = fragment.unwrap_or((0, false, random.array()));
    let mut ip = Vec::from([0x40 | (5 + options.len() / 4) as u8, random.byte()]);
    ip.extend(((20 + options.len() + body.len()) as u16).to_be_bytes());
    ip.extend(&id[..2]);
    let field = if fragment.is_some() {
        offset | u16::from(more) << 13
    } else {
        random.of(&[0, 0x4000])
    };
    ip.extend(field.to_be_bytes());
    ip.extend([1 + random.below(255) as u8, protocol, 0, 0]);
    ip.extend(ends.octets());
    ip.extend(options);
    let value = checksum(&ip);
    ip[10..12].copy_from_slice(&value.to_be_bytes());
    ip.extend(body);
    ip
}

fn ipv6(random: &mut Random, ends: Ends, protocol: u8, body: &[u8], fragment: Fragment) -> Vec<u8> {
    let mut kinds = Vec::new();
    if random.once_in(3) {
        for _ in 0..=random.below(3) {
            kinds.push(random.of(&[0u8, 60, 43, 60]));
        }
    }
    // Some whole packets have a fragment header, too (RFC 6946).
    let fragment = fragment.or_else(|| random.once_in(16).then(|| (0, false, random.array())));
    if fragment.is_some() {
        kinds.push(44);
    }
    let mut chain = Vec::new();
    for (index, kind) in kinds.iter().enumerate() {
        let next = kinds.get(index + 1).copied().unwrap_or(protocol);
        match (kind, fragment) {
            (44, Some((offset, more, id))) => {
                chain.extend([next, 0]);
                chain.extend((offset << 3 | u16::from(more)).to_be_bytes());
                chain.extend(id);
            }
            // A routing header that is used up.
            (43, _) => chain.extend([next, 0, 253, 0, 0, 0, 0, 0]),
            _ => {
                // One padding option.
                let units = random.below(3);
                chain.extend([next, units as u8, 1, (4 + 8 * units) as u8]);
                chain.extend(core::iter::repeat_n(0, 4 + 8 * units));
            }
        }
    }
    let mut ip = Vec::from([0x60, 0]);
    ip.extend(random.array::<2>());
    ip.extend(((chain.len() + body.len()) as u16).to_be_bytes());
    ip.extend([
        kinds.first().copied().unwrap_or(protocol),
        1 + random.below(255) as u8,
    ]);
    ip.extend(ends.octets());
    ip.extend(chain);
    ip.extend(body);
    ip
}
