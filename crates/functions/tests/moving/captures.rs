//! The shared captures as scripts.

use crate::capture;
use std::path::{Path, PathBuf};
use std::time::Duration;
use testkit::{Migration, Step, frame};
use wire::memory::Region;
use wire::{Addr, LinkType, Packet, Pool};

/// A capture as a script: every frame a step.
pub struct Script {
    pub name: String,
    pub begins_at: u64,
    pub steps: Vec<Step>,
    /// Of each step: its frame's number in the capture, from 1, and whether that has an IPv4
    /// header with a wrong checksum.
    pub frames: Vec<(usize, bool)>,
    /// The destination of the first TCP or UDP packet from inside.
    pub first_server: Option<Addr>,
}

/// A folder of the shared captures, or `None` (and a word about it) where they are not.
pub fn data(folder: &str) -> Option<PathBuf> {
    let root = std::env::var_os("FLOWKEEP_DATA").map_or_else(
        || Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/data"),
        PathBuf::from,
    );
    let found = root.join(folder);
    if found.is_dir() {
        Some(found)
    } else {
        println!("not run: needs the shared captures (FLOWKEEP_DATA)");
        None
    }
}

/// Whether all captures are to be tried, not a sample.
pub fn every_capture() -> bool {
    std::env::var_os("FLOWKEEP_EVERY_CAPTURE").is_some()
}

/// The files of a folder with an extension, by name.
pub fn files(folder: &Path, extension: &str) -> Vec<PathBuf> {
    let mut found: Vec<_> = std::fs::read_dir(folder)
        .expect("the folder is part of the data")
        .map(|entry| entry.expect("readable").path())
        .filter(|path| path.extension().is_some_and(|found| found == extension))
        .collect();
    found.sort();
    found
}

/// Reads a capture, as [`at_once`] does, with the pauses between its frames.
pub fn script(path: &Path) -> Script {
    read(path, true)
}

/// Reads a capture; all frames come at once, so that no flow expires. Of two ends a private address
/// is inside, and if both are or neither is, the smaller one: so a flow's replies come from the
/// other side. Frames of unknown links are left out, as a port refuses them.
pub fn at_once(path: &Path) -> Script {
    read(path, false)
}

fn read(path: &Path, has_pauses: bool) -> Script {
    let frames = capture::frames(path).expect("a capture");
    let longest = frames.iter().map(|frame| frame.bytes.len()).max().unwrap_or(0);
    let mut pool = Pool::new(Region::heap(Pool::region_length(1, longest)), 1, longest, 0);
    let mut packet = pool.take().expect("a buffer");
    let mut last = frames.first().map_or(0, |frame| frame.time);
    let begins_at = last;
    let (mut steps, mut first_server) = (Vec::new(), None);
    let mut numbers = Vec::new();
    for (number, captured) in (1..).zip(frames) {
        let Some(link) = LinkType::from_pcap(captured.link) else {
            continue;
        };
        let is_packet = packet.set_frame(&captured.bytes, link) && wire::parse(&mut packet).is_ok();
        let is_inside = is_packet && is_inside(packet.source_addr(), packet.destination_addr());
        numbers.push((number, is_packet && has_wrong_checksum(&packet)));
        if is_inside && first_server.is_none() && packet.destination_port() != 0 && packet.version() == 4 {
            first_server = Some(packet.destination_addr());
        }
        let mut step = frame(captured.bytes).link(link).wire_length(captured.wire_length);
        if has_pauses {
            step = step.after(Duration::from_nanos(captured.time.saturating_sub(last)));
        }
        last = last.max(captured.time);
        steps.push(if is_inside { step } else { step.from_outside() });
    }
    pool.give(packet);
    let name = path.file_name().expect("a name").to_string_lossy().into_owned();
    Script {
        name,
        begins_at,
        steps,
        frames: numbers,
        first_server,
    }
}

/// Whether a packet's IPv4 header has a wrong checksum.
fn has_wrong_checksum(packet: &Packet) -> bool {
    let header = &packet.network()[..packet.transport_offset() - packet.network_offset()];
    packet.version() == 4 && wire::checksum::fold(wire::checksum::sum(header, 0)) != 0xffff
}

fn is_inside(source: Addr, destination: Addr) -> bool {
    match (is_private(source), is_private(destination)) {
        (true, false) => true,
        (false, true) => false,
        _ => source < destination,
    }
}

fn is_private(addr: Addr) -> bool {
    match addr.as_v4() {
        Some([10, ..] | [192, 168, ..] | [169, 254, ..]) => true,
        Some([172, second, ..]) => (16..32).contains(&second),
        Some(_) => false,
        None => matches!(addr.octets()[0], 0xfc..=0xfe),
    }
}

/// Frames of a capture that are played when flows move at each of them.
const FRAMES: usize = 400;
/// Of so many captures one, as a rule.
const OF: usize = 12;

/// Sees a function through a sample of nDPI's and Zeek's captures, flows moving at every packet of
/// their beginnings.
pub fn over_captures(first: usize, migration: impl Fn(&Script) -> Migration) {
    let Some(folder) = data("flow") else { return };
    let mut paths = files(&folder.join("ndpi/pcap"), "pcap");
    paths.extend(files(&folder.join("ndpi/pcap"), "pcapng"));
    paths.extend(files(&folder.join("zeek-conn/traces"), "pcap"));
    let every = if every_capture() { 1 } else { OF };
    let (mut moved, mut captures, mut packets) = (0, 0, 0);
    for path in paths.iter().skip(first % every).step_by(every) {
        let mut script = script(path);
        script.steps.truncate(FRAMES);
        if script.steps.len() < 3 {
            continue;
        }
        println!("{}", script.name);
        let migration = migration(&script).begins_at(script.begins_at).may_stay();
        packets += script.steps.len();
        moved += migration.check(script.steps).moved();
        captures += 1;
    }
    println!("{captures} captures, {packets} packets, flows moved {moved} times");
    assert!(moved > 0);
}
