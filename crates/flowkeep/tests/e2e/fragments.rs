//! Datagrams in fragments, in whatever order: the fragments that leave, put together again, are
//! byte for byte the datagrams that came in.
//!
//! ```text
//!   capture ─ its order, reversed, first last, interleaved ─► firewall ─► monitor ─► out.pcap
//!                                                          └► NAT ─► out.pcap
//!   both put together by etherparse; the capture's own as PcapPlusPlus' tests say
//! ```

use crate::cluster::{Ran, Shape, data, run_to_end};
use etherparse::SlicedPacket;
use etherparse::defrag::IpDefragPool;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// A capture's frames as they stand in a classic pcap file.
struct Capture {
    header: [u8; 24],
    /// Record headers apart.
    frames: Vec<Vec<u8>>,
}

fn read(path: &Path) -> Capture {
    let bytes = std::fs::read(path).expect("part of the data");
    let word = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes")) as usize;
    assert!(matches!(word(0), 0xa1b2_c3d4 | 0xa1b2_3c4d), "little-endian");
    let mut frames = Vec::new();
    let mut at = 24;
    while at < bytes.len() {
        let length = word(at + 8);
        assert_eq!(length, word(at + 12), "whole frames");
        frames.push(bytes[at + 16..at + 16 + length].to_vec());
        at += 16 + length;
    }
    let header = bytes[..24].try_into().expect("24 bytes");
    Capture { header, frames }
}

/// Written with one microsecond between frames.
fn write(path: &Path, header: &[u8; 24], frames: &[Vec<u8>]) {
    let mut bytes = header.to_vec();
    for (n, frame) in frames.iter().enumerate() {
        for word in [1_600_000_000, n as u32, frame.len() as u32, frame.len() as u32] {
            bytes.extend_from_slice(&word.to_le_bytes());
        }
        bytes.extend_from_slice(frame);
    }
    std::fs::write(path, bytes).expect("a folder of our own");
}

/// A datagram's identification and protocol, and its data.
type Joined = BTreeMap<(u32, u8), Vec<Vec<u8>>>;

/// All datagrams that are whole, by identification and protocol.
fn join(frames: &[Vec<u8>]) -> Joined {
    let mut pool: IpDefragPool = IpDefragPool::new();
    let mut whole = Joined::new();
    for frame in frames {
        let sliced = SlicedPacket::from_ethernet(frame).expect("a packet");
        let id = match &sliced.net {
            Some(etherparse::NetSlice::Ipv4(v4)) => u32::from(v4.header().identification()),
            Some(etherparse::NetSlice::Ipv6(v6)) => v6
                .extensions()
                .clone()
                .into_iter()
                .find_map(|extension| match extension {
                    etherparse::Ipv6ExtensionSlice::Fragment(f) => Some(f.identification()),
                    _ => None,
                })
                .unwrap_or(0),
            _ => continue,
        };
        if let Ok(Some(done)) = pool.process_sliced_packet(&sliced, (), ()) {
            whole
                .entry((id, done.ip_number.0))
                .or_default()
                .push(done.payload);
        }
    }
    whole
}

/// Orders in which fragments may come.
fn orders(frames: &[Vec<u8>]) -> Vec<(&'static str, Vec<Vec<u8>>)> {
    let reversed: Vec<_> = frames.iter().rev().cloned().collect();
    let mut first_last = frames.to_vec();
    first_last.rotate_left(1);
    // Every other one first.
    let mut interleaved: Vec<_> = frames.iter().skip(1).step_by(2).cloned().collect();
    interleaved.extend(frames.iter().step_by(2).cloned());
    vec![
        ("in order", frames.to_vec()),
        ("reversed", reversed),
        ("first last", first_last),
        ("interleaved", interleaved),
    ]
}

struct Through {
    ran: Ran,
    out: Vec<Vec<u8>>,
}

/// Frames through a chain. With two switches, they come in at both in turn.
fn through(what: &str, header: &[u8; 24], frames: &[Vec<u8>], shape: Shape, chain: &str) -> Through {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let process = std::process::id();
    let inputs: Vec<PathBuf> = (0..usize::from(shape.switches))
        .map(|n| folder.join(format!("fragments-{what}-{process}-{n}.pcap")))
        .collect();
    let output = folder.join(format!("fragments-{what}-{process}-out.pcap"));
    let mut toml = shape.toml(4096);
    for (n, input) in inputs.iter().enumerate() {
        let mine: Vec<_> = frames.iter().skip(n).step_by(inputs.len()).cloned().collect();
        write(input, header, &mine);
        let sink = if n == 0 {
            format!("output = \"pcap:{}\"\n", output.display())
        } else {
            String::new()
        };
        toml += &format!(
            "[[port]]\nname = \"p{n}\"\ninput = \"pcap:{}\"\n{sink}",
            input.display()
        );
    }
    let ran = run_to_end(&(toml + chain), what);
    let out = read(&output).frames;
    for path in inputs.iter().chain([&output]) {
        std::fs::remove_file(path).expect("just written");
    }
    Through { ran, out }
}

const FILTER: &str = "[[chain]]\nname = \"c\"\nfunctions = [\"firewall\", \"flow_monitor\"]\n\
                      [function.firewall]\nverify_checksums = false\n[[function.firewall.rules]]\nname = \"all\"\naction = \"allow\"\n";
const SHAPES: [Shape; 3] = [
    Shape::of(2),
    Shape::of(2).with_switches(2),
    Shape::of(3).with_switches(3).on_one_thread(),
];

/// Captures with whole datagrams in fragments, and how many.
const CAPTURES: [(&str, usize); 4] = [
    ("ip4_fragments", 6),
    ("ip6_fragments", 4),
    ("frag_with_padding", 1),
    ("frag_http_req", 1),
];

#[test]
fn fragments_leave_as_they_came_in_any_order() {
    let Some(data) = data() else { return };
    for (name, count) in CAPTURES {
        let capture = read(&data.join(format!("reassembly/pcapplusplus/unit/{name}.pcap")));
        let mut expected = join(&capture.frames);
        let found: usize = expected.values().map(Vec::len).sum();
        assert!(found >= count, "{name} has {found} datagrams");
        // A datagram that comes several times counts once.
        expected.values_mut().for_each(|all| all.truncate(1));
        for (order, frames) in orders(&capture.frames) {
            for shape in SHAPES {
                let what = format!("{name}-{order}-{}-{}", shape.switches, shape.runtimes);
                let what = what.replace(' ', "-");
                let through = through(&what, &capture.header, &frames, shape, FILTER);
                let mut got = join(&through.out);
                got.values_mut().for_each(|all| all.truncate(1));
                assert_eq!(got.len(), expected.len(), "{what}: {:?}", through.ran.dropped());
                assert!(got == expected, "{what}: not byte for byte");
            }
        }
    }
}

/// The bytes that a file of PcapPlusPlus' tests has in hexadecimal.
fn hexadecimal(path: &Path) -> Vec<u8> {
    let text = std::fs::read_to_string(path).expect("part of the data");
    let digits: Vec<u8> = text.bytes().filter(u8::is_ascii_hexdigit).collect();
    digits
        .chunks_exact(2)
        .map(|pair| {
            let digit = |d: u8| (d as char).to_digit(16).expect("a digit") as u8;
            digit(pair[0]) << 4 | digit(pair[1])
        })
        .collect()
}

#[test]
fn what_leaves_reversed_is_what_pcapplusplus_puts_together() {
    let Some(data) = data() else { return };
    let folder = data.join("reassembly/pcapplusplus/unit");
    for (name, id, file) in [
        ("ip4_fragments", 0x1ea0, "ip4_fragments_packet1.txt"),
        ("ip4_fragments", 0x1ea3, "ip4_fragments_packet4.txt"),
        ("ip6_fragments", 0x002c_5323, "ip6_fragments_packet1.txt"),
        ("ip6_fragments", 0x98d6_87d1, "ip6_fragments_packet2.txt"),
        ("frag_http_req", 0x425f, "frag_http_req_reassembled.txt"),
    ] {
        let capture = read(&folder.join(format!("{name}.pcap")));
        let mut frames = capture.frames;
        frames.reverse();
        let through = through(
            &format!("pcpp-{id:x}"),
            &capture.header,
            &frames,
            SHAPES[1],
            FILTER,
        );
        let got = join(&through.out);
        let (_, datagram) = got
            .iter()
            .find(|((i, _), _)| *i == id)
            .unwrap_or_else(|| panic!("{name} {id:x}"));
        let theirs = hexadecimal(&folder.join(file));
        assert!(theirs.ends_with(&datagram[0]), "{name} {id:x}");
    }
}

#[test]
fn translated_fragments_have_the_checksum_of_the_whole() {
    let Some(data) = data() else { return };
    let capture = read(&data.join("reassembly/pcapplusplus/unit/frag_http_req.pcap"));
    let nat = "[[chain]]\nname = \"c\"\nfunctions = [\"nat\"]\n\
               [function.nat]\npool = [\"203.0.113.0/28\"]\ninside = [\"172.16.0.0/12\"]\n";
    let before = join(&capture.frames);
    let (_, before) = before.first_key_value().expect("one datagram");
    for (order, frames) in orders(&capture.frames) {
        for shape in SHAPES {
            let what = format!("nat-{order}-{}-{}", shape.switches, shape.runtimes).replace(' ', "-");
            let through = through(&what, &capture.header, &frames, shape, nat);
            assert_eq!(
                through.out.len(),
                frames.len(),
                "{what}: {:?}",
                through.ran.dropped()
            );
            let after = join(&through.out);
            let (_, after) = after.first_key_value().expect("one datagram");
            let (tcp, data) = etherparse::TcpHeader::from_slice(&after[0]).expect("a segment");
            let (_, sent) = etherparse::TcpHeader::from_slice(&before[0]).expect("a segment");
            assert_eq!(data, sent, "{what}");
            let header = SlicedPacket::from_ethernet(&through.out[0]).expect("a packet");
            let Some(etherparse::NetSlice::Ipv4(ip)) = header.net else {
                panic!("IPv4")
            };
            let (source, destination) = (ip.header().source(), ip.header().destination());
            assert_eq!(source[..3], [203, 0, 113], "{what}");
            let right = tcp
                .calc_checksum_ipv4_raw(source, destination, data)
                .expect("short enough");
            assert_eq!(tcp.checksum, right, "{what}");
        }
    }
}
