//! The firewall in a whole cluster against a Linux kernel: as many packets of each class.
//!
//! The oracle is what `nf_conntrack` of Linux 6.18 said of each packet, with "allow new from anywhere, drop invalid". Which
//! packet is of which class is compared packet by packet in the function's own test; here it is the number of each class that
//! must be the same whatever the number of workers.
//!
//! The kernel's replay took so little time that no flow expired; so time is the machine's here, not the capture's.
//!
//! Only packets that the kernel spoke about can be counted: captures in which it forwarded every IP packet, tracked every one
//! and found none invalid. Of the others it is not known in what class it would have counted the rest.

use crate::cluster::{Shape, capture_port, data, every_capture, files, name, run_to_end};
use std::path::{Path, PathBuf};

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
            let toml = format!(
                "clock = \"machine\"\n{}{}[[chain]]\nname = \"guarded\"\nfunctions = [\"firewall\"]\n\
                 [[function.firewall.rules]]\nname = \"everything\"\naction = \"allow\"\n",
                shape.toml(4096),
                capture_port(&capture)
            );
            let what = format!("{} {shape:?}", name(&capture));
            let ran = run_to_end(&toml, &what);
            let counted = ["new_packets", "related_packets", "invalid_packets"].map(|c| ran.counter(c));
            assert_eq!(
                counted,
                [kernel.new, kernel.related, kernel.invalid],
                "{what}: {:?}",
                ran.packets
            );
            // What is in no class of its own and passed belongs to an established flow.
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
    assert_eq!(compare(&folder, &folder.join("expected"), &shapes, true), 4);
}
