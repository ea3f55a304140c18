//! The firewall against a Linux kernel: the class of every packet in some two hundred captures.
//!
//! The oracle is what `nf_conntrack` of Linux 6.18 said of each packet, with "allow new from
//! anywhere, drop invalid". There is no runtime here: a hash map holds the flows, and packets are
//! handed to the function one by one. No flow expires, as none did in the kernel's replay.
//!
//! Then the kernel's final table: each TCP and UDP flow in it must be here in the same state (what
//! the kernel's table had lost by then, to timeouts of seconds, is not looked for).
//!
//! The comparison: NEW, ESTABLISHED, RELATED and INVALID, packet by packet. Where the kernel says
//! FRAG or UNTRACKED nothing is compared; nor where it did not forward the packet (`-`). Most of
//! those it tracked all the same (broadcast, loopback, too long for the link: found out when it was
//! routed), so they go through the firewall here, too; but for those with a wrong IPv4 header
//! checksum, which it drops first of all.

use flowkeep_functions::firewall::state::mark;
use flowkeep_functions::firewall::{Config, Connection, Firewall, Phase};
use nf::cx::{EventLog, RawCx, effect};
use nf::{Cx, Direction, NetworkFunction, Side, Verdict, WorkerInfo};
use pcap_parser::{Block, PcapBlockOwned, PcapError, create_reader};
use std::collections::HashMap;
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::ptr::NonNull;
use std::sync::Arc;
use wire::memory::Region;
use wire::{Endpoint, FlowKey, LinkType, Orientation, Packet, PacketBox, Pool, protocol};

/// One captured frame.
struct Frame {
    link: u32,
    wire_length: u32,
    bytes: Vec<u8>,
}

/// Reads a capture, pcap or pcapng.
fn read_capture(path: &Path) -> Vec<Frame> {
    let file = std::fs::File::open(path).expect("the capture opens");
    let mut reader = create_reader(1 << 20, file).expect("a capture");
    let (mut frames, mut links) = (Vec::new(), Vec::new());
    loop {
        match reader.next() {
            Ok((consumed, block)) => {
                match block {
                    PcapBlockOwned::LegacyHeader(header) => links = vec![header.network.0 as u32],
                    PcapBlockOwned::Legacy(packet) => frames.push(Frame {
                        link: links[0],
                        wire_length: packet.origlen,
                        bytes: packet.data[..packet.caplen as usize].to_vec(),
                    }),
                    PcapBlockOwned::NG(Block::SectionHeader(_)) => links.clear(),
                    PcapBlockOwned::NG(Block::InterfaceDescription(face)) => {
                        links.push(face.linktype.0 as u32);
                    }
                    PcapBlockOwned::NG(Block::EnhancedPacket(packet)) => frames.push(Frame {
                        link: links[packet.if_id as usize],
                        wire_length: packet.origlen,
                        bytes: packet.data[..packet.caplen as usize].to_vec(),
                    }),
                    PcapBlockOwned::NG(Block::SimplePacket(packet)) => frames.push(Frame {
                        link: links[0],
                        wire_length: packet.origlen,
                        bytes: packet.data[..packet.data.len().min(packet.origlen as usize)].to_vec(),
                    }),
                    PcapBlockOwned::NG(_) => {}
                }
                reader.consume(consumed);
            }
            Err(PcapError::Eof | PcapError::UnexpectedEof) => return frames,
            Err(PcapError::Incomplete(_)) => reader.refill().expect("the capture reads on"),
            Err(error) => panic!("{}: {error:?}", path.display()),
        }
    }
}

/// The function, its flows, and what a runtime would hold for them.
struct Harness {
    firewall: Firewall,
    flows: HashMap<FlowKey, (Connection, Orientation)>,
    pool: Pool,
    counters: Vec<u64>,
    log: EventLog,
}

const ALLOW_ALL: &str = r#"
[[rules]]
name = "everything"
action = "allow"
"#;

impl Harness {
    fn new(config: &str) -> Self {
        let config: Config = toml::from_str(config).expect("the configuration reads");
        let worker = WorkerInfo {
            runtime: 0,
            runtimes: 1,
            flows_max: 1000,
            seed: 1,
        };
        Harness {
            firewall: Firewall::new(&Arc::new(config), &worker).expect("the configuration holds"),
            flows: HashMap::new(),
            pool: Pool::new(Region::heap(Pool::region_length(1, 65_535)), 1, 65_535, 0),
            counters: vec![0; Firewall::COUNTERS.len() + 1],
            log: EventLog::new(100, 0),
        }
    }

    /// The class of one frame; `None` where it is no packet.
    fn run(&mut self, frame: &Frame, forwarded: bool) -> Option<&'static str> {
        let mut packet = self.pool.take().expect("a buffer");
        let class = self.classify(frame, forwarded, &mut packet);
        self.pool.give(packet);
        class
    }

    fn classify(&mut self, frame: &Frame, forwarded: bool, packet: &mut PacketBox) -> Option<&'static str> {
        let link = LinkType::from_pcap(frame.link)?;
        if !packet.set_frame(&frame.bytes, link) {
            return None;
        }
        packet.set_wire_length(frame.wire_length);
        match wire::parse(packet) {
            Ok(()) => {}
            Err(wire::ParseError::NotIp) => return None,
            Err(_) => return Some("INVALID"),
        }
        if !forwarded && has_wrong_header_checksum(packet) {
            return None;
        }
        let (key, way) = FlowKey::of(packet)?;
        let (mut flow, opening) = self
            .flows
            .get(&key)
            .copied()
            .unwrap_or((Connection::default(), way));
        let before = self.counters.clone();
        let (verdict, ended) = self.process(packet, &mut flow, key, way, opening);
        let counted = |name: &str| {
            let at = Firewall::COUNTERS
                .iter()
                .position(|n| *n == name)
                .expect("declared");
            self.counters[at] > before[at]
        };
        let class = match () {
            () if counted("invalid_packets") => "INVALID",
            () if counted("new_packets") => "NEW",
            () if counted("related_packets") => "RELATED",
            () if counted("untracked_packets") => "UNTRACKED",
            () => "ESTABLISHED",
        };
        let fresh = !self.flows.contains_key(&key);
        if ended || (fresh && matches!(verdict, Verdict::Drop(_))) {
            self.flows.remove(&key);
        } else {
            self.flows.insert(key, (flow, opening));
        }
        Some(class)
    }

    fn process(
        &mut self,
        packet: &mut Packet,
        flow: &mut Connection,
        mut key: FlowKey,
        way: Orientation,
        opening: Orientation,
    ) -> (Verdict, bool) {
        let same = way == opening;
        let mut raw = RawCx {
            // No class depends on time.
            now: 0,
            wake_at: RawCx::NO_WAKE,
            waits_for: 0,
            token: 0,
            tokens: None,
            place: 0,
            timeout: 0,
            key: NonNull::from(&mut key),
            flow: 0,
            opening,
            side: if same { Side::Inside } else { Side::Outside },
            direction: if same {
                Direction::Opening
            } else {
                Direction::Reply
            },
            effects: 0,
            lazy_kept: false,
            group: NonNull::dangling(),
            counters: NonNull::from(&mut self.counters[0]),
            log: NonNull::from(&mut self.log),
            spares: Default::default(),
            held: None,
            held_room: 0,
            copy: None,
            let_go: Default::default(),
            emitted: Default::default(),
            blocks: Default::default(),
            discard: nf::Reason::UNDECLARED,
            pinned: core::marker::PhantomPinned,
        };
        // SAFETY: the group is of size zero; the counters have one number more than there are
        // names; the log is a log. All outlive the view, and nothing else touches them meanwhile.
        let cx = unsafe { Cx::<Firewall>::of(&mut raw) };
        let verdict = self
            .firewall
            .process_now(packet, flow, cx)
            .expect("it never waits");
        (verdict, raw.effects & effect::END != 0)
    }
}

/// The kernel drops such an IPv4 packet before it tracks anything.
fn has_wrong_header_checksum(packet: &Packet) -> bool {
    let header = &packet.network()[..packet.transport_offset() - packet.network_offset()];
    packet.version() == 4 && wire::checksum::fold(wire::checksum::sum(header, 0)) != 0xffff
}

fn data() -> Option<PathBuf> {
    let root = std::env::var_os("FLOWKEEP_DATA").map_or_else(
        || Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/data"),
        PathBuf::from,
    );
    root.is_dir().then_some(root)
}

/// The kernel's verdicts, by packet number from 1.
fn read_oracle(path: &Path) -> Vec<String> {
    let text = std::fs::read_to_string(path).expect("the verdicts read");
    let mut verdicts = Vec::new();
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        let mut fields = line.split('\t');
        let number: usize = fields.next().expect("a number").parse().expect("a number");
        if verdicts.len() < number {
            verdicts.resize(number, String::from("-"));
        }
        verdicts[number - 1] = fields.next().expect("a verdict").into();
    }
    verdicts
}

/// The result of comparing one capture.
struct Outcome {
    name: String,
    compared: usize,
    flows: usize,
    invalid: usize,
    differing: Vec<String>,
}

fn compare(capture: &Path, oracle: &Path) -> Outcome {
    let verdicts = read_oracle(oracle);
    let frames = read_capture(capture);
    let mut harness = Harness::new(ALLOW_ALL);
    let mut outcome = Outcome {
        name: capture.file_name().unwrap_or_default().to_string_lossy().into(),
        compared: 0,
        flows: 0,
        invalid: verdicts.iter().filter(|v| *v == "INVALID").count(),
        differing: Vec::new(),
    };
    if frames.len() < verdicts.len() {
        outcome
            .differing
            .push(format!("{} frames, {} verdicts", frames.len(), verdicts.len()));
    }
    for (number, (frame, expected)) in frames.iter().zip(&verdicts).enumerate() {
        let class = harness.run(frame, expected != "-").unwrap_or("not a packet");
        if expected == "-" || expected == "FRAG" || expected == "UNTRACKED" {
            continue;
        }
        outcome.compared += 1;
        if class != expected {
            outcome
                .differing
                .push(format!("packet {}: kernel {expected}, here {class}", number + 1));
        }
    }
    let table = oracle.to_string_lossy().replace(".ct.tsv", ".conntrack.txt");
    outcome.flows = compare_tables(&harness, Path::new(&table), &mut outcome.differing);
    outcome
}

/// A line of the kernel's table, like `tcp 6 TIME_WAIT src=… dst=… sport=… dport=… … [ASSURED]`:
/// protocol, state, the two ends as they opened the flow, whether nothing was ever answered, and
/// whether the connection is assured.
struct Entry {
    protocol: u8,
    state: String,
    key: FlowKey,
    unreplied: bool,
    assured: bool,
    line: String,
}

fn read_table(path: &Path) -> Vec<Entry> {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    let entry = |line: &str| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let field = |name: &str| words.iter().find_map(|word| word.strip_prefix(name));
        let protocol: u8 = words.get(1)?.parse().ok()?;
        let end = |addr: &str, port: &str| Some(Endpoint::new(addr.parse().ok()?, port.parse().ok()?));
        let source = end(field("src=")?, field("sport=")?)?;
        let destination = end(field("dst=")?, field("dport=")?)?;
        Some(Entry {
            protocol,
            state: words.get(2)?.to_string(),
            key: FlowKey::new(source, destination, protocol, 0).0,
            unreplied: words.contains(&"[UNREPLIED]"),
            assured: words.contains(&"[ASSURED]"),
            line: line.into(),
        })
    };
    text.lines().filter_map(entry).collect()
}

/// Compares the kernel's final table with the flows here; the number of flows compared.
fn compare_tables(harness: &Harness, table: &Path, differing: &mut Vec<String>) -> usize {
    // The kernel's table knows no VLAN.
    let here: HashMap<FlowKey, Connection> = harness
        .flows
        .iter()
        .map(|(key, (flow, opening))| {
            let (source, destination) = key.ends(*opening);
            (FlowKey::new(source, destination, key.protocol(), 0).0, *flow)
        })
        .collect();
    let mut compared = 0;
    for entry in read_table(table)
        .iter()
        .filter(|e| e.protocol == protocol::TCP || e.protocol == protocol::UDP)
    {
        compared += 1;
        let Some(flow) = here.get(&entry.key) else {
            differing.push(format!("not here: {}", entry.line));
            continue;
        };
        let state = match flow.phase {
            Phase::TcpSynSent => "SYN_SENT",
            Phase::TcpBothSynSent => "SYN_SENT2",
            Phase::TcpSynReceived => "SYN_RECV",
            Phase::TcpEstablished => "ESTABLISHED",
            Phase::TcpFinWait => "FIN_WAIT",
            Phase::TcpCloseWait => "CLOSE_WAIT",
            Phase::TcpLastAck => "LAST_ACK",
            Phase::TcpTimeWait => "TIME_WAIT",
            Phase::TcpClosed => "CLOSE",
            _ => entry.state.as_str(),
        };
        let unreplied = flow.marks & mark::REPLIED == 0;
        let assured = match entry.protocol {
            protocol::TCP => flow.marks & mark::ASSURED != 0,
            // Being a stream depends on time, and the kernel's replay had another.
            _ => entry.assured,
        };
        if (state, unreplied, assured) != (&entry.state, entry.unreplied, entry.assured) {
            differing.push(format!("{:?} {:?} here: {}", flow.phase, flow.marks, entry.line));
        }
    }
    compared
}

/// Pairs of capture and verdicts in a folder.
fn pairs(captures: &Path, verdicts: &Path) -> Vec<(PathBuf, PathBuf)> {
    let mut found: Vec<_> = std::fs::read_dir(verdicts)
        .expect("the verdicts are there")
        .filter_map(|entry| {
            let oracle = entry.expect("an entry").path();
            let name = oracle.file_name()?.to_str()?.strip_suffix(".ct.tsv")?;
            let capture = captures.join(name);
            capture.is_file().then_some((capture, oracle))
        })
        .collect();
    found.sort();
    found
}

fn table(title: &str, outcomes: &[&Outcome]) -> String {
    let mut text = format!("\n{title}\n");
    let packets: usize = outcomes.iter().map(|o| o.compared).sum();
    let flows: usize = outcomes.iter().map(|o| o.flows).sum();
    let same = outcomes.iter().filter(|o| o.differing.is_empty()).count();
    let _ = writeln!(
        text,
        "  {same} of {} captures equal; {packets} packets and {flows} final states compared",
        outcomes.len()
    );
    for outcome in outcomes.iter().filter(|o| !o.differing.is_empty()) {
        let _ = writeln!(
            text,
            "  {}: {} differ ({} packets compared, {} INVALID by the kernel)",
            outcome.name,
            outcome.differing.len(),
            outcome.compared,
            outcome.invalid
        );
        for line in outcome.differing.iter().take(8) {
            let _ = writeln!(text, "      {line}");
        }
    }
    text
}

#[test]
fn classes_equal_the_kernels() {
    let Some(data) = data() else {
        println!("not run: needs the shared captures (FLOWKEEP_DATA)");
        return;
    };
    let conntrack = data.join("flow/linux-conntrack");
    let mut found = pairs(&data.join("flow/ndpi/pcap"), &conntrack.join("ndpi"));
    found.extend(pairs(
        &data.join("flow/zeek-conn/traces"),
        &conntrack.join("zeek"),
    ));
    assert!(!found.is_empty(), "the captures are there");
    let outcomes: Vec<Outcome> = found.iter().map(|(c, o)| compare(c, o)).collect();
    let (strict, plain): (Vec<&Outcome>, Vec<&Outcome>) = outcomes.iter().partition(|o| o.invalid > 0);
    let scenarios = data.join("nat/ct-scenarios");
    let scenarios: Vec<Outcome> = pairs(&scenarios, &scenarios.join("expected"))
        .iter()
        .map(|(c, o)| compare(c, o))
        .collect();
    let scenarios: Vec<&Outcome> = scenarios.iter().collect();
    println!("{}", table("captures without INVALID", &plain));
    println!("{}", table("TCP corner cases (nat/ct-scenarios)", &scenarios));
    println!("{}", table("captures with INVALID", &strict));
    let equal = |outcomes: &[&Outcome]| outcomes.iter().all(|o| o.differing.is_empty());
    assert!(equal(&plain), "captures without INVALID differ");
    assert!(equal(&scenarios), "TCP corner cases differ");
    assert!(equal(&strict), "captures with INVALID differ");
}
