//! VLAN tags, labels, PPPoE sessions and fragments through NAT and back, each packet byte for byte,
//! with minutes between: supported packets come back whole, and others are counted drops.
//!
//! ```text
//!   made here ──► capture, 400 s between exchanges ──► lan ─► NAT ─► reflector ─► NAT ─► lan ──► compared with what was made
//! ```
//!
//! The reflector swaps the ends and NAT translates back, which leaves every checksum as it was
//! made.

use crate::cluster::{Shape, run_to_end};
use crate::frames;
use etherparse::{IpNumber, Ipv4Header, PacketBuilder};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

const HOST: [u8; 4] = [10, 1, 2, 3];
const REMOTE: [u8; 4] = [198, 51, 100, 7];
/// Between two exchanges: longer than NAT keeps a mapping.
const GAP_US: u64 = 400_000_000;
/// The most bytes of an IP packet's payload in a fragment.
const PIECE: usize = 1480;

/// A UDP packet's payload with its header, of so much data.
fn udp(port: u16, bytes: usize) -> (IpNumber, Vec<u8>) {
    let data: Vec<u8> = (0..bytes).map(|n| (n / 7) as u8).collect();
    let mut packet = Vec::new();
    let builder = PacketBuilder::ipv4(HOST, REMOTE, 64).udp(port, 53);
    builder.write(&mut packet, &data).expect("a vector grows");
    (IpNumber::UDP, packet.split_off(20))
}

fn echo(identifier: u16, bytes: usize) -> (IpNumber, Vec<u8>) {
    let data: Vec<u8> = (0..bytes).map(|n| (n / 3) as u8).collect();
    let mut packet = Vec::new();
    let builder = PacketBuilder::ipv4(HOST, REMOTE, 64).icmpv4_echo_request(identifier, 1);
    builder.write(&mut packet, &data).expect("a vector grows");
    (IpNumber::ICMP, packet.split_off(20))
}

/// The frames of a packet: tagged, and in as many fragments as it takes.
fn frames_of(tags: &[(u16, u16)], id: u16, (protocol, payload): (IpNumber, Vec<u8>)) -> Vec<Vec<u8>> {
    let count = payload.len().div_ceil(PIECE);
    let pieces = payload.chunks(PIECE).enumerate();
    let frame = |(number, piece): (usize, &[u8])| {
        let mut header =
            Ipv4Header::new(piece.len() as u16, 64, protocol, HOST, REMOTE).expect("it is short");
        header.identification = id;
        header.dont_fragment = false;
        header.more_fragments = number + 1 < count;
        header.fragment_offset = ((number * PIECE / 8) as u16).try_into().expect("13 bits");
        header.header_checksum = header.calc_header_checksum();
        let mut frame = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2];
        for (kind, vlan) in tags {
            frame.extend(kind.to_be_bytes());
            frame.extend(vlan.to_be_bytes());
        }
        frame.extend([8, 0]);
        frame.extend(header.to_bytes());
        frame.extend(piece);
        frame
    };
    pieces.map(frame).collect()
}

/// Frames without a tag, with something else between the Ethernet addresses and the IP header.
fn under(between: impl Fn(&[u8]) -> Vec<u8>, frames: Vec<Vec<u8>>) -> Vec<Vec<u8>> {
    let frames = frames.into_iter();
    frames
        .map(|frame| [&frame[..12], &between(&frame[14..]), &frame[14..]].concat())
        .collect()
}

/// EtherType and a stack of two MPLS labels.
fn labels(_: &[u8]) -> Vec<u8> {
    vec![0x88, 0x47, 0, 1, 0, 64, 0xff, 0xff, 0xf1, 3]
}

/// A PPPoE session under two tags, which says `less` than its packet has.
fn session(packet: &[u8], less: u16) -> Vec<u8> {
    let length = packet.len() as u16 + 2 - less;
    let mut head = vec![0x88, 0xa8, 0, 100, 0x81, 0, 0, 30, 0x88, 0x64, 0x11, 0, 0, 7];
    head.extend(length.to_be_bytes());
    head.extend([0, 0x21]);
    head
}

const TAG: u16 = 0x8100;
const SERVICE_TAG: u16 = 0x88a8;

/// The frames sent at one time, and which of them must come back, in which order; the rest must be
/// dropped as fragments of an unknown packet.
struct Exchange {
    frames: Vec<Vec<u8>>,
    back: Vec<usize>,
}

fn exchanges() -> Vec<Exchange> {
    let whole = |frames: Vec<Vec<u8>>| Exchange {
        back: (0..frames.len()).collect(),
        frames,
    };
    let tagged = |vlan: u16| frames_of(&[(TAG, vlan)], 1, udp(1000, 100));
    let stacked = frames_of(&[(SERVICE_TAG, 100), (TAG, 30)], 2, udp(1000, 100));
    let large = |tags: &[(u16, u16)], id, port| frames_of(tags, id, udp(port, 4000));
    let mut swapped = large(&[], 9, 1003);
    swapped.swap(0, 1);
    let mut last_first = large(&[], 10, 1004);
    last_first.reverse();
    let interleaved = large(&[], 11, 1005)
        .into_iter()
        .zip(large(&[], 12, 1006))
        .flat_map(|(one, other)| [one, other]);
    vec![
        // The same endpoints in two VLANs, which are two flows; and under two tags.
        whole([tagged(10), tagged(20), tagged(10), tagged(20)].concat()),
        whole([stacked.clone(), stacked].concat()),
        // Under labels, and in PPPoE sessions of QinQ: they leave with them.
        whole(under(labels, frames_of(&[], 20, udp(1010, 100)))),
        whole(under(labels, frames_of(&[], 21, udp(1011, 4000)))),
        whole(under(
            |packet| session(packet, 0),
            frames_of(&[], 22, udp(1012, 100)),
        )),
        whole(under(
            |packet| session(packet, 2),
            frames_of(&[], 23, udp(1013, 4000)),
        )),
        // A priority tag names no VLAN.
        whole(frames_of(&[(TAG, 0x6000)], 3, udp(1000, 100))),
        // Fragments in order; in a VLAN; of an echo request; of two packets in turn.
        whole(large(&[], 5, 1001)),
        whole(large(&[(TAG, 10)], 6, 1002)),
        whole(large(&[(SERVICE_TAG, 100), (TAG, 30)], 7, 1002)),
        whole(frames_of(&[], 8, echo(77, 4000))),
        whole(interleaved.collect()),
        // Fragments before the first one wait for it, and come behind it as they came.
        Exchange {
            frames: swapped,
            back: vec![1, 0, 2],
        },
        Exchange {
            frames: last_first,
            back: vec![2, 0, 1],
        },
        // A first fragment that never comes.
        Exchange {
            frames: large(&[], 13, 1007).split_off(1),
            back: Vec::new(),
        },
        // The next packet of a flow is no worse for that.
        whole(large(&[], 14, 1004)),
    ]
}

/// Writes a capture with microseconds.
fn write_capture(path: &Path, exchanges: &[Exchange]) {
    let mut file = Vec::new();
    let words: [u32; 6] = [0xa1b2_c3d4, 0x0004_0002, 0, 0, 65_535, 1];
    words.iter().for_each(|word| file.extend(word.to_le_bytes()));
    for (number, exchange) in exchanges.iter().enumerate() {
        for (index, frame) in exchange.frames.iter().enumerate() {
            let time = 1_000_000_000_000_000 + number as u64 * GAP_US + index as u64;
            let length = frame.len() as u32;
            for word in [
                (time / 1_000_000) as u32,
                (time % 1_000_000) as u32,
                length,
                length,
            ] {
                file.extend(word.to_le_bytes());
            }
            file.extend(frame);
        }
    }
    std::fs::write(path, file).expect("a folder of the build's");
}

/// Files of a run, gone afterwards.
struct Files([PathBuf; 3]);

impl Files {
    fn new(shape: Shape) -> Self {
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
        let id = (
            shape.switches,
            shape.runtimes,
            shape.threads.len(),
            std::process::id(),
        );
        Files(
            ["in.pcap", "sent.pcapng", "back.pcap"]
                .map(|name| folder.join(format!("tagged-{}-{}-{}-{}-{name}", id.0, id.1, id.2, id.3))),
        )
    }
}

impl Drop for Files {
    fn drop(&mut self) {
        for path in &self.0 {
            let _ = std::fs::remove_file(path);
        }
    }
}

fn check(shape: Shape) {
    let exchanges = exchanges();
    let files = Files::new(shape);
    let [input, sent, back] = &files.0;
    write_capture(input, &exchanges);
    let world = format!("reflect:?record={}", sent.display());
    let toml = format!(
        "clock = \"capture\"\n{}[[port]]\nname = \"lan\"\nside = \"inside\"\ninput = \"pcap:{}\"\noutput = \"pcap:{}\"\n\
         [[port]]\nname = \"world\"\nside = \"outside\"\ninput = \"{world}\"\noutput = \"{world}\"\n\
         [[chain]]\nname = \"gateway\"\nfunctions = [\"nat\"]\n[function.nat]\npool = [\"203.0.113.0/28\"]\n",
        shape.toml(4096),
        input.display(),
        back.display(),
    );
    let what = format!("{shape:?}");
    let ran = run_to_end(&toml, &what);
    let (mut expected, mut lost) = (Vec::new(), 0);
    for exchange in &exchanges {
        lost += (exchange.frames.len() - exchange.back.len()) as u64;
        let kept = exchange.back.iter().map(|index| &exchange.frames[*index]);
        expected.extend(kept.map(|frame| frames::mirrored(frame).expect("IPv4")));
    }
    assert_eq!(ran.dropped(), [(("", "fragment_unknown"), lost)].into(), "{what}");
    let mut came = frames::read(back);
    if shape.switches > 1 {
        // Two datagrams are followed at two switches: which goes on first is not fixed. `fragments`
        // looks at each by itself.
        came.sort();
        expected.sort();
    }
    for (number, (came, expected)) in came.iter().zip(&expected).enumerate() {
        assert_eq!(came, expected, "{what}: packet {number}");
    }
    assert_eq!(came.len(), expected.len(), "{what}: {:?}", ran.packets);
    // In the world each is as long, under the same tags, from an address of the pool, and its
    // header's checksum is right.
    let mut left = frames::read(sent);
    if shape.switches > 1 {
        let tags = |frame: &Vec<u8>| {
            (
                frame.len(),
                frame[12..frames::ipv4_at(frame).expect("IPv4")].to_vec(),
            )
        };
        left.sort_by_key(tags);
        expected.sort_by_key(tags);
    }
    assert_eq!(left.len(), expected.len(), "{what}");
    for (left, expected) in left.iter().zip(&expected) {
        let at = frames::ipv4_at(left).expect("IPv4");
        assert_eq!(
            (left.len(), &left[12..at]),
            (expected.len(), &expected[12..at]),
            "{what}"
        );
        assert_eq!(left[at + 12..at + 15], [203, 0, 113], "{what}");
        let words = left[at..at + 20].chunks(2);
        let sum: u32 = words
            .map(|word| u32::from(word[0]) << 8 | u32::from(word[1]))
            .sum();
        assert_eq!((sum & 0xffff) + (sum >> 16), 0xffff, "{what}");
    }
    // A mapping for each exchange of each flow, since all were over before the next.
    let vlans: BTreeSet<&str> = ran
        .lines
        .lines()
        .filter(|line| line.contains("mapping_created") && line.contains(":1000\""))
        .filter_map(|line| line.split("\"vlan\":").nth(1)?.split([',', '}']).next())
        .collect();
    assert_eq!(vlans.len(), 3, "{what}: {vlans:?}\n{}", ran.lines);
    let made = ran.counter("mappings_created");
    assert_eq!((made, ran.counter("mappings_released")), (17, made), "{what}");
}

#[test]
fn tags_and_fragments_come_back_byte_for_byte() {
    for shape in [
        Shape::of(1),
        Shape::of(1).on_one_thread(),
        Shape::of(4),
        Shape::of(3).with_switches(2),
    ] {
        check(shape);
    }
}
