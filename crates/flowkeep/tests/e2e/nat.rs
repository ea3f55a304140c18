//! NAT with the reflector for an outside: packets of the capture's inside hosts come back to them.
//!
//! ```text
//!   capture ──► lan ─► NAT ─► world (reflector) ── sent.pcapng      packets at the world: mappings, checksums
//!   answers ◄── lan ◄─ NAT ◄──┘
//!   held against the capture's own frames, turned around by `frames`, which shares no code with the reflector or NAT
//! ```
//!
//! Time is the capture's: however far it jumps, answers are read before it goes on.
//!
//! Inside are the private addresses of the capture. A packet from elsewhere was an answer when it
//! was captured; here it comes in by the lan with a source that is not inside and to an address
//! that is not translated, and NAT drops it. Packets between inside hosts go back to the lan as
//! they came.

use crate::cluster::{Ran, Shape, data, name, run_to_end};
use crate::frames::{self, V4};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

/// Captures with TCP, UDP, ICMP queries and errors, VLAN tags and fragments, all of them Ethernet.
const CAPTURES: &[&str] = &[
    "ndpi/pcap/443-opvn.pcap",
    "ndpi/pcap/android.pcap",
    "ndpi/pcap/googledns_android10.pcap",
    "ndpi/pcap/instagram.pcap",
    "ndpi/pcap/iphone.pcap",
    "ndpi/pcap/ja3_lots_of_cipher_suites.pcap",
    "ndpi/pcap/rdp2.pcap",
    "ndpi/pcap/smb_frags.pcap",
    "ndpi/pcap/teams.pcap",
    "arkime/cassandra1.pcap",
    "arkime/dns-update.pcap",
    "arkime/no-syn-ack.pcap",
    "arkime/smb-smb1-ascii.pcap",
    "arkime/socks5-http-302-frag.pcap",
    "arkime/tds5.pcap",
    "arkime/vxlan.pcap",
];

/// The files of a run, gone afterwards.
struct Through {
    ran: Ran,
    inside: Inside,
    sent: PathBuf,
    back: PathBuf,
}

impl Drop for Through {
    fn drop(&mut self) {
        for path in [&self.sent, &self.back] {
            let _ = std::fs::remove_file(path);
        }
    }
}

fn through_nat(capture: &Path, shape: Shape) -> Through {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
    // Other tests have the same captures and shapes at the same time.
    static RUNS: AtomicU32 = AtomicU32::new(0);
    let (run, process) = (RUNS.fetch_add(1, Ordering::Relaxed), std::process::id());
    let file = |what: &str| folder.join(format!("nat-{what}-{}-{run}-{process}.pcapng", name(capture)));
    let (sent, back) = (file("sent"), file("back"));
    let inside = Inside::of(&frames::read(capture));
    let prefixes = inside.toml();
    let world = format!("reflect:?record={}", sent.display());
    let toml = format!(
        "clock = \"capture\"\ninside = {prefixes}\n{}[[port]]\nname = \"lan\"\nside = \"by-address\"\ninput = \"pcap:{}\"\noutput = \"pcap:{}\"\n\
         [[port]]\nname = \"world\"\nside = \"outside\"\ninput = \"{world}\"\noutput = \"{world}\"\n\
         [[chain]]\nname = \"gateway\"\nfunctions = [\"nat\"]\n\
         [function.nat]\npool = [\"203.0.113.0/28\"]\n\
         inside = {prefixes}\n",
        shape.toml(4096),
        capture.display(),
        back.display(),
    );
    let what = format!("{} {shape:?}", name(capture));
    let ran = run_to_end(&toml, &what);
    Through {
        ran,
        inside,
        sent,
        back,
    }
}

/// Which addresses of a capture are inside.
#[derive(Clone, Copy)]
enum Inside {
    /// The private ones.
    Private,
    /// One host: where all hosts are private, so that something leaves.
    Host([u8; 4]),
}

impl Inside {
    fn of(frames: &[Vec<u8>]) -> Self {
        let leaves = |f: &Vec<u8>| must_return(f, Inside::Private);
        let first = frames.iter().find_map(|f| Some(V4::of(f)?.source(f)));
        match first {
            Some(first) if !frames.iter().any(leaves) => Inside::Host(first),
            _ => Inside::Private,
        }
    }

    fn has(self, addr: [u8; 4]) -> bool {
        match self {
            Inside::Private => matches!(addr, [10, ..] | [172, 16..=31, ..] | [192, 168, ..]),
            Inside::Host(host) => addr == host,
        }
    }

    fn toml(self) -> String {
        match self {
            Inside::Private => r#"["10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16"]"#.to_owned(),
            Inside::Host([a, b, c, d]) => format!("[\"{a}.{b}.{c}.{d}/32\"]"),
        }
    }

    /// For tshark.
    fn filter(self) -> &'static str {
        match self {
            Inside::Private => {
                "(ip.src == 10.0.0.0/8 || ip.src == 172.16.0.0/12 || ip.src == 192.168.0.0/16)"
            }
            Inside::Host(_) => "ip",
        }
    }
}

/// Ends and protocol of packets that must come back in their order.
type Flow = ([u8; 4], [u8; 4], u8, Option<(u16, u16)>);

fn flow(frame: &[u8]) -> Option<Flow> {
    let packet = V4::of(frame)?;
    let ports = packet.ports(frame);
    Some((
        packet.source(frame),
        packet.destination(frame),
        packet.protocol,
        ports,
    ))
}

/// Whether NAT translates this packet by itself: whole or the first fragment of TCP, UDP or an ICMP
/// request.
fn must_return(frame: &[u8], inside: Inside) -> bool {
    let Some(packet) = V4::of(frame) else { return false };
    let opens = match packet.protocol {
        6 | 17 => packet.fragment.0 == 0,
        1 => matches!(packet.icmp_type(frame), Some(8 | 13 | 15 | 17)),
        _ => false,
    };
    let outward = inside.has(packet.source(frame)) && !inside.has(packet.destination(frame));
    opens && outward && packet.ports(frame).is_some()
}

/// Whether both ends are inside.
fn is_inside_to_inside(frame: &[u8], inside: Inside) -> bool {
    V4::of(frame).is_some_and(|p| inside.has(p.source(frame)) && inside.has(p.destination(frame)))
}

/// Whether a packet between inside hosts passes by itself: not so later fragments and ICMP errors,
/// whose flows may be unknown.
fn must_pass(frame: &[u8]) -> bool {
    let Some(packet) = V4::of(frame) else { return false };
    let own = match packet.protocol {
        6 | 17 => packet.fragment.0 == 0,
        1 => matches!(packet.icmp_type(frame), Some(0 | 8)),
        _ => false,
    };
    own && packet.ports(frame).is_some()
}

/// The frames by flow, in order, without times to live and checksums.
fn by_flow(frames: impl Iterator<Item = Vec<u8>>) -> BTreeMap<Flow, Vec<Vec<u8>>> {
    let mut flows: BTreeMap<Flow, Vec<Vec<u8>>> = BTreeMap::new();
    for frame in frames {
        if let Some(flow) = flow(&frame) {
            flows.entry(flow).or_default().push(frames::plain(&frame));
        }
    }
    flows
}

fn answers_return(capture: &Path, through: &Through, what: &str) -> usize {
    let (input, inside) = (frames::read(capture), through.inside);
    let (inside_to_inside, crossing): (Vec<_>, Vec<_>) =
        input.iter().partition(|f| is_inside_to_inside(f, inside));
    let (stays, inside_to_inside): (Vec<_>, Vec<_>) =
        inside_to_inside.into_iter().partition(|f| must_pass(f));
    let (must, may): (Vec<_>, Vec<_>) = crossing.into_iter().partition(|f| must_return(f, inside));
    let turned = must.into_iter().filter_map(|f| frames::mirrored(f));
    let expected = by_flow(turned.chain(stays.into_iter().cloned()));
    // Frames that may come back, too: fragments and ICMP errors of known flows; and packets neither
    // from inside nor for it, which pass NAT untouched.
    let passing = |f: &&Vec<u8>| V4::of(f).is_some_and(|p| !inside.has(p.source(f)));
    let untouched = may.iter().copied().filter(passing).cloned();
    let turned = may.iter().filter_map(|f| frames::mirrored(f));
    let other = by_flow(
        turned
            .chain(untouched)
            .chain(inside_to_inside.into_iter().cloned()),
    );
    let back = by_flow(frames::read(&through.back).into_iter());
    let mut returned = 0;
    for (flow, frames) in &expected {
        let came = back.get(flow);
        let count = came.map_or(0, Vec::len);
        assert!(
            came == Some(frames),
            "{what}: {flow:?}: {} sent, {count} back; {:?}",
            frames.len(),
            through.ran.packets
        );
        returned += frames.len();
    }
    for (flow, came) in back.iter().filter(|(flow, _)| !expected.contains_key(flow)) {
        let sent = other
            .get(flow)
            .unwrap_or_else(|| panic!("{what}: {flow:?} was never sent"));
        let mut rest = sent.iter();
        let in_order = came.iter().all(|frame| rest.any(|sent| sent == frame));
        assert!(in_order, "{what}: {flow:?}: what came back is not what was sent");
        returned += came.len();
    }
    returned
}

/// Mappings one to one at any time, by the event log; and every packet that left had one of them
/// for its source.
fn mappings_are_one_to_one(through: &Through, what: &str) -> usize {
    let mut by_inside: BTreeMap<(String, u64, String), String> = BTreeMap::new();
    let mut by_outside: BTreeMap<(String, u64, String), String> = BTreeMap::new();
    let mut ever = BTreeSet::new();
    for line in through.ran.lines.lines() {
        let event: Value = serde_json::from_str(line).expect("JSON");
        let text = |name: &str| event[name].as_str().expect("text").to_owned();
        let key = |end: &str| (text(end), event["vlan"].as_u64().unwrap_or(0), text("protocol"));
        // An external endpoint belongs to one mapping, whatever the VLAN.
        let outside = (text("outside"), 0, text("protocol"));
        match event["event"].as_str() {
            Some("mapping_created") => {
                let before = by_inside.insert(key("inside"), text("outside"));
                assert_eq!(before, None, "{what}: two external endpoints: {line}");
                let before = by_outside.insert(outside.clone(), text("inside"));
                assert_eq!(before, None, "{what}: two inside endpoints: {line}");
                ever.insert((outside.0, outside.2));
            }
            Some("mapping_released") => {
                assert_eq!(
                    by_inside.remove(&key("inside")),
                    Some(text("outside")),
                    "{what}: {line}"
                );
                assert_eq!(
                    by_outside.remove(&outside),
                    Some(text("inside")),
                    "{what}: {line}"
                );
            }
            _ => panic!("{what}: {line}"),
        }
    }
    assert!(
        by_inside.is_empty() && by_outside.is_empty(),
        "{what}: mappings that stay"
    );
    let sent = frames::read(&through.sent);
    assert!(!sent.is_empty(), "{what}: nothing left");
    for frame in sent {
        let Some(packet) = V4::of(&frame) else { continue };
        assert!(
            !through.inside.has(packet.source(&frame)),
            "{what}: an inside address left"
        );
        let error = packet
            .icmp_type(&frame)
            .is_some_and(|t| !matches!(t, 8 | 13 | 15 | 17));
        if let Some((port, _)) = packet.ports(&frame).filter(|_| !error) {
            let protocol = match packet.protocol {
                6 => "tcp",
                17 => "udp",
                _ => "icmp",
            };
            let [a, b, c, d] = packet.source(&frame);
            let source = (format!("{a}.{b}.{c}.{d}:{port}"), protocol.to_owned());
            assert!(ever.contains(&source), "{what}: {source:?} is no mapping");
        }
    }
    let counted = ["mappings_created", "mappings_released"].map(|c| through.ran.counter(c));
    assert_eq!(counted[0], counted[1], "{what}");
    let blocks = ["blocks_claimed", "blocks_released"].map(|c| through.ran.counter(c));
    assert_eq!(blocks[0], blocks[1], "{what}");
    ever.len()
}

fn check(shape: Shape) {
    let Some(data) = data() else { return };
    let (mut returned, mut mappings) = (0, 0);
    for capture in CAPTURES {
        let capture = data.join("flow").join(capture);
        let what = format!("{} {shape:?}", name(&capture));
        let through = through_nat(&capture, shape);
        let answers = answers_return(&capture, &through, &what);
        assert!(answers > 0, "{what}: nothing came back");
        returned += answers;
        mappings += mappings_are_one_to_one(&through, &what);
    }
    println!(
        "{shape:?}: {} captures, {returned} answers, {mappings} mappings",
        CAPTURES.len()
    );
}

#[test]
fn every_answer_comes_back_through_one_runtime() {
    check(Shape::of(1));
}

#[test]
fn every_answer_comes_back_through_two_runtimes() {
    check(Shape::of(2));
}

#[test]
fn every_answer_comes_back_through_four_runtimes() {
    check(Shape::of(4));
}

#[test]
fn every_answer_comes_back_through_two_switches() {
    check(Shape::of(3).with_switches(2));
}

/// How many packets of a capture tshark finds a wrong checksum or a malformed protocol in, of those
/// that match.
fn errors(capture: &Path, filter: &str) -> Option<usize> {
    let mut command = Command::new("tshark");
    command.args([
        "-n",
        "-o",
        "ip.check_checksum:TRUE",
        "-o",
        "tcp.check_checksum:TRUE",
    ]);
    command.args([
        "-o",
        "udp.check_checksum:TRUE",
        "-T",
        "fields",
        "-e",
        "frame.number",
        "-Y",
    ]);
    let wrong = "(_ws.malformed || ip.checksum.status == \"Bad\" || tcp.checksum.status == \"Bad\" || \
                 udp.checksum.status == \"Bad\" || icmp.checksum.status == \"Bad\")";
    command.arg(format!("{wrong}{filter}")).arg("-r").arg(capture);
    let output = command.output().ok()?;
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    Some(String::from_utf8_lossy(&output.stdout).lines().count())
}

#[test]
fn tshark_sees_no_error_that_was_not_there() {
    let Some(data) = data() else { return };
    if Command::new("tshark").arg("-v").output().is_err() {
        println!("not run: needs tshark");
        return;
    }
    for capture in CAPTURES {
        let capture = data.join("flow").join(capture);
        let through = through_nat(&capture, Shape::of(2).on_one_thread());
        let inside = format!(" && {}", through.inside.filter());
        let before = errors(&capture, &inside).expect("tshark runs");
        let sent = errors(&through.sent, "").expect("tshark runs");
        let back = errors(&through.back, "").expect("tshark runs");
        println!(
            "{}: {before} errors in the input, {sent} sent, {back} back",
            name(&capture)
        );
        assert!(
            sent <= before && back <= before,
            "{}: {before}, {sent}, {back}",
            name(&capture)
        );
    }
}
