//! The firewall in a whole cluster against a Linux kernel: every packet's class.
//!
//! The oracle is the word of `nf_conntrack` of Linux 6.18 for each packet, with "allow new from
//! anywhere, drop invalid". It is compared in two ways, whatever the number of workers:
//!
//! - *packet by packet*: each is handed in when the one before is out or dropped; the counter of
//!   the firewall's that has moved then is its class, and the packet that comes out must be the
//!   same. A capture is gone through as far as the kernel has a word for each packet: from then on
//!   its flows and ours may differ.
//! - *as fast as it goes*: as many packets of each class, with all of them under way at once. Only
//!   captures count of which the kernel forwarded every IP packet, tracked every one and found none
//!   invalid; for the others the kernel's class of the rest is not known.
//!
//! The kernel's replay took so little time that no flow expired; so time is the machine's here, not
//! the capture's.

use crate::cluster::{Shape, capture_port, data, every_capture, files, finish, name, run_to_end, start};
use crate::manifest;
use adapters::memory::Frame;
use adapters::open::Ports;
use adapters::pcap::Reader;
use flowkeep::cluster::{Cluster, Snapshot};
use runtime::stats::DropReason;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// How often the kernel said each word.
#[derive(Default)]
struct Verdicts {
    new: u64,
    related: u64,
    established: u64,
    invalid: u64,
    /// Not forwarded, not tracked, or a fragment.
    unsaid: u64,
}

fn verdicts(path: &Path) -> Verdicts {
    let text = std::fs::read_to_string(path).expect("the verdicts read");
    let mut all = Verdicts::default();
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        match line.split('\t').nth(1).expect("a verdict") {
            "NEW" => all.new += 1,
            "RELATED" => all.related += 1,
            "ESTABLISHED" => all.established += 1,
            "INVALID" => all.invalid += 1,
            _ => all.unsaid += 1,
        }
    }
    all
}

/// A firewall that lets all packets in but invalid ones, at a port.
fn guarded(shape: Shape, port: &str) -> String {
    format!(
        "clock = \"machine\"\n{}{port}[[chain]]\nname = \"guarded\"\nfunctions = [\"firewall\"]\n\
         [[function.firewall.rules]]\nname = \"everything\"\naction = \"allow\"\n",
        shape.toml(4096),
    )
}

fn compare(captures: &Path, folder: &Path, shapes: &[Shape], with_invalid: bool) -> usize {
    let mut compared = 0;
    let every = if with_invalid || every_capture() { 1 } else { 4 };
    for oracle in files(folder, "tsv").into_iter().step_by(every) {
        let kernel = verdicts(&oracle);
        let capture: PathBuf = captures.join(name(&oracle).trim_end_matches(".ct.tsv"));
        if kernel.unsaid > 0 || (kernel.invalid > 0 && !with_invalid) || !capture.is_file() {
            continue;
        }
        for shape in shapes {
            let toml = guarded(*shape, &capture_port(&capture));
            let what = format!("{} {shape:?}", name(&capture));
            let ran = run_to_end(&toml, &what);
            let counted = ["new_packets", "related_packets", "invalid_packets"].map(|c| ran.counter(c));
            assert_eq!(
                counted,
                [kernel.new, kernel.related, kernel.invalid],
                "{what}: {:?}",
                ran.packets
            );
            // A packet that passed and is in no class of its own belongs to an established flow.
            let established = ran.packets.sent - kernel.new - kernel.related;
            assert_eq!(established, kernel.established, "{what}: {:?}", ran.packets);
            assert_eq!(ran.counter("untracked_packets"), 0, "{what}");
        }
        compared += 1;
    }
    compared
}

const SHAPES: [Shape; 2] = [Shape::of(1), Shape::of(2)];

#[test]
fn the_kernels_classes_without_invalid() {
    let Some(data) = data() else { return };
    let flow = data.join("flow");
    let ndpi = compare(
        &flow.join("ndpi/pcap"),
        &flow.join("linux-conntrack/ndpi"),
        &SHAPES,
        false,
    );
    let zeek = compare(
        &flow.join("zeek-conn/traces"),
        &flow.join("linux-conntrack/zeek"),
        &SHAPES,
        false,
    );
    println!("{ndpi} captures of nDPI and {zeek} of Zeek: as many of each class as the kernel's");
    assert!(ndpi > 10 && zeek > 0, "{ndpi}, {zeek}");
}

#[test]
fn the_kernels_classes_of_tcp_corner_cases() {
    let Some(data) = data() else { return };
    let folder = data.join("nat/ct-scenarios");
    let shapes = [Shape::of(1), Shape::of(2), Shape::of(4).on_one_thread()];
    let scenarios = manifest::count(&data, "nat/ct-scenarios/expected", "tsv");
    assert_eq!(
        compare(&folder, &folder.join("expected"), &shapes, true),
        scenarios
    );
}

/// The kernel's word for each packet, by number from 1. It has none for packets that are not IP.
fn words(path: &Path) -> BTreeMap<usize, String> {
    let text = std::fs::read_to_string(path).expect("the verdicts read");
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    lines
        .map(|line| {
            let mut fields = line.split('\t');
            let number = fields.next().expect("a number").parse().expect("a number");
            (number, fields.next().expect("a verdict").to_owned())
        })
        .collect()
}

/// Longer than any packet takes on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// Waits until so many packets are in, and each of them out or dropped; the figures then.
fn settled(cluster: &dyn Cluster, received: u64, what: &str) -> Snapshot {
    let began = Instant::now();
    loop {
        let packets = cluster.snapshot().packets();
        if packets.received == received && packets.add_up() && packets.held == 0 {
            // Workers were asked one after the other: by now all have counted it.
            return cluster.snapshot();
        }
        assert!(
            began.elapsed() < PATIENCE,
            "{what}: packet {received}: {packets:?}"
        );
        std::thread::yield_now();
    }
}

/// Why the runtime itself drops frames that begin like IP packets and are none.
const UNPARSED: [DropReason; 2] = [DropReason::FrameTruncated, DropReason::FrameMalformed];

/// The firewall's class of the packet that came between two sets of figures.
fn class(before: &Snapshot, after: &Snapshot) -> &'static str {
    let moved = |name: &str| {
        let count = |snapshot: &Snapshot| -> u64 {
            let all = snapshot.runtimes.iter().flat_map(|runtime| &runtime.counters);
            all.filter(|c| c.name == name).map(|c| c.count).sum()
        };
        count(after) > count(before)
    };
    let (was, is) = (before.packets(), after.packets());
    let reason = is
        .dropped
        .iter()
        .find(|(r, n)| was.dropped.get(r).copied() < Some(**n));
    match reason.map(|((function, reason), _)| (function.as_str(), *reason)) {
        Some(("", reason)) if reason == DropReason::NotIp.name() => "not a packet",
        // Malformed packets do not come as far as the firewall. The kernel's word for them is the
        // same.
        Some(("", reason)) if UNPARSED.iter().any(|unparsed| unparsed.name() == reason) => "INVALID",
        Some(_) if moved("invalid_packets") => "INVALID",
        Some(_) => "dropped",
        None if moved("new_packets") => "NEW",
        None if moved("related_packets") => "RELATED",
        None if moved("untracked_packets") => "UNTRACKED",
        None => "ESTABLISHED",
    }
}

/// Hands a capture to a cluster packet by packet; how many were compared.
fn each_packet(capture: &Path, oracle: &Path, shape: Shape, most: usize) -> usize {
    let what = format!("{} {shape:?}", name(capture));
    let words = words(oracle);
    let mut ports = Ports::new();
    let line = ports.memory("line");
    let port = "[[port]]\nname = \"line\"\nside = \"by-address\"\ninput = \"memory:line\"\noutput = \"memory:line\"\n";
    let (running, lines) = start(&guarded(shape, port), ports);
    let cluster = running.cluster();
    let mut reader = Reader::open(capture).expect("a capture");
    let mut before = cluster.snapshot();
    let (mut number, mut compared) = (0, 0);
    while let Ok(Some(record)) = reader.next() {
        number += 1;
        let kernel = words.get(&number).map_or("not a packet", String::as_str);
        if compared == most || matches!(kernel, "-" | "FRAG" | "UNTRACKED") {
            break;
        }
        let mut frame = Frame::new(reader.frame(&record), record.link.expect("a link that is read"));
        frame.wire_length = record.wire_length;
        line.push_frame(frame.clone());
        let after = settled(&*cluster, number as u64, &what);
        let here = class(&before, &after);
        assert_eq!(here, kernel, "{what}: packet {number}: {:?}", after.packets());
        let out: Vec<Vec<u8>> = line.take_all().into_iter().map(|frame| frame.bytes).collect();
        match here {
            "INVALID" | "not a packet" => assert!(out.is_empty(), "{what}: packet {number}"),
            _ => assert_eq!(out, [frame.bytes], "{what}: packet {number}"),
        }
        compared += usize::from(here != "not a packet");
        before = after;
    }
    line.close();
    finish(running.wait(|_| {}), &lines, &what);
    compared
}

#[test]
fn the_kernels_class_of_every_packet() {
    let Some(data) = data() else { return };
    let flow = data.join("flow");
    let scenarios = data.join("nat/ct-scenarios");
    let (every, most) = if every_capture() {
        (1, usize::MAX)
    } else {
        (6, 200)
    };
    // Packets one after the other take long through threads that nap when idle: mostly on one.
    let on_one = [
        Shape::of(2).on_one_thread(),
        Shape::of(4).on_one_thread().with_switches(2),
    ];
    let threaded = [Shape::of(2)];
    let ndpi = (flow.join("ndpi/pcap"), flow.join("linux-conntrack/ndpi"));
    let zeek = (flow.join("zeek-conn/traces"), flow.join("linux-conntrack/zeek"));
    let corner_cases = (scenarios.clone(), scenarios.join("expected"));
    let (mut captures, mut packets) = (0, 0);
    for ((folder, oracles), every, shapes) in [
        (ndpi, every, &on_one[..]),
        (zeek, every, &on_one),
        (corner_cases, 1, &threaded),
    ] {
        for oracle in files(&oracles, "tsv").into_iter().step_by(every) {
            let capture = folder.join(name(&oracle).trim_end_matches(".ct.tsv"));
            if !capture.is_file() {
                continue;
            }
            for &shape in shapes {
                packets += each_packet(&capture, &oracle, shape, most);
            }
            captures += 1;
        }
    }
    println!("{captures} captures, {packets} packets, each of the kernel's class");
    assert!(captures > 30 && packets > 2000, "{captures}, {packets}");
}
