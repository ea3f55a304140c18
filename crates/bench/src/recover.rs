//! `bench recover`: how long flows stand still when their runtime is killed (NFVactor table III,
//! NFActor figure 10), and what memory copies take.
//!
//! ```text
//!   this process, processor 2      processor 1
//!   line ─► switch ──┬── shared memory ── primary ──┐ killed (SIGKILL)
//!                    └── shared memory ── replica ──┘ shared memory
//! ```
//!
//! Primary and replica are this program again ([`serve`]), with the runtime and the links that
//! `flowkeep node` has. All flows are opened at the primary by a handshake and copied. Then it is
//! killed, and a packet of each flow is offered again and again until one has left.
//!
//! | figure | what it is |
//! |---|---|
//! | detection, ms | from the signal to the end of the session at the switch |
//! | after it, ms | from there to when the last of all flows has had a packet on the line |
//! | of it: until installing, ms | from the replica's notice of the failure to when all switches have let its flows go |
//! | of it: installing, ms | from there to the last copy; packets of flows that go on already are processed meanwhile |
//! | of it: packets behind that, ms | the rest: first packets of flows that had none before |
//! | in all, ms | both |
//! | packets left out | by the switch while it waited for the recovery, for want of room; they were offered again |
//! | lost flows | that could not be recovered; 0, or the bench ends |
//! | bytes, … | resident memory of the node's own that came with the flows, by flow, of nodes that use 4 KiB pages; over that of a primary with one flow.
//!   Not of rings and packet buffers, which workers share: the first packets bring them in, however
//!   many flows there are |
//!
//! The session ends when the kernel has taken the primary's memory back, which takes longer the
//! more there is.
//!
//! Not here: members, configurations, a coordinator; links between hosts, where silence decides.

use super::report::{Case, Parameters};
use super::site::Meeting;
use super::traffic::{FRAME, Segment, Traffic};
use super::{Memory, Options, gateway};
use adapters::clock::{allowed_cpus, monotonic_ns, pin_to};
use adapters::pages::Want;
use adapters::shm::ShmLink;
use nf::WorkerInfo;
use runtime::env::{Burst, Port, PortCounters, dispose};
use runtime::switch::{Policy, SideRule, Switch};
use runtime::{Runtime, Settings};
use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;
use wire::checksum::Delta;
use wire::memory::Region;
use wire::tcp::flags;
use wire::{HashSeed, LinkType, Pool};

/// The other process's settings: number, flows, processor, pages, place.
const NODE: &str = "FLOWKEEP_BENCH_RECOVER_NODE";
/// Buffers of the switch, and of each runtime, as in production between processes.
const BUFFERS: [usize; 2] = [16_384, 8192];
/// Packets for a failed runtime wait no longer.
const RECOVERY_MAX: u64 = 2_000_000_000;
/// A run that takes longer has gone wrong.
const PATIENCE: u64 = 60_000_000_000;
/// The interval of a node's status.
const STATUS_NS: u64 = 10_000_000;
/// Rounds without work, after which a node naps.
const SPINS: u32 = 64;
const NAP: Duration = Duration::from_micros(20);
/// Where a flow's number is in its packets: the first bytes of its data.
const DATA: usize = 54;

// The nodes.

/// Runs as a node, if that is what this process was started for.
pub fn serve() -> bool {
    let Ok(words) = std::env::var(NODE) else {
        return false;
    };
    let mut words = words.splitn(5, ' ');
    let mut next = || words.next().expect("five words");
    let mut number = || next().parse::<usize>().expect("a number");
    let (node, flows, cpu) = (number() as u16, number() as u32, number());
    let want = match next() {
        "small" => Want::Plain,
        _ => Want::Huge,
    };
    let _ = pin_to(cpu);
    if want == Want::Plain {
        let _ = adapters::pages::only_plain();
    }
    run_node(node, flows, want, Path::new(next()));
    true
}

fn run_node(node: u16, flows: u32, want: Want, place: &Path) {
    let memory = Memory::new(want);
    let settings = Settings {
        info: WorkerInfo {
            runtime: node,
            runtimes: 2,
            flows_max: flows,
            seed: 1,
        },
        switches: 1,
        inside: inside(),
        replicated: true,
        now: monotonic_ns(),
        ..Settings::alone(flows)
    };
    let pool = super::site::pool(BUFFERS[1], 1 + node as u8);
    let meeting = Meeting::at(place);
    let links = vec![meeting.link(1 + node, 0)];
    let make = || {
        Runtime::new(settings, gateway::plan(), links, pool, |length| match want {
            // Pages that no flow has touched are not in memory.
            Want::Plain => Region::heap(length),
            _ => memory.region(length),
        })
    };
    let made = match want {
        Want::Plain => make(),
        // As `flowkeep node` does.
        _ => adapters::large::at_once(make),
    };
    let mut runtime = made.unwrap_or_else(|(function, error)| panic!("{function}: {error}"));
    let peer = Some(meeting.link(1 + node, 2 - node));
    runtime.join(match node {
        0 => vec![None, peer],
        _ => vec![peer, None],
    });
    let parent = std::os::unix::process::parent_id();
    let (mut idle, mut due) = (0, 0);
    loop {
        let now = monotonic_ns();
        idle = match runtime.step(now).is_idle() {
            true => idle + 1,
            false => 0,
        };
        if now >= due {
            due = now + STATUS_NS;
            if std::os::unix::process::parent_id() != parent {
                return;
            }
            say_status(&runtime, place, node);
        }
        if idle > SPINS {
            std::thread::sleep(NAP);
        }
    }
}

fn status_file(place: &Path, node: u16) -> PathBuf {
    place.join(format!("status-{node}"))
}

fn say_status(runtime: &Runtime<ShmLink>, place: &Path, node: u16) {
    let stats = runtime.stats();
    let is_protected = u8::from(stats.protected_by.is_some());
    let [recovered, lost] = stats.recovered;
    let receipt = stats.recoveries.last();
    let [waited, installed] = receipt.map_or([0; 2], |receipt| [receipt.waited, receipt.installed]);
    let text = format!(
        "{} {} {is_protected} {recovered} {lost} {waited} {installed}",
        stats.flows, stats.copies
    );
    let (file, new) = (status_file(place, node), place.join(format!("new-{node}")));
    if std::fs::write(&new, text).is_ok() {
        let _ = std::fs::rename(new, file);
    }
}

/// How a node is.
#[derive(Clone, Copy, Default, Debug)]
struct Status {
    flows: u64,
    copies: u64,
    is_protected: bool,
    recovered: u64,
    lost: u64,
    /// Of its recovery: until all switches had let the flows go, and from there to the last flow,
    /// in nanoseconds.
    waited: u64,
    installed: u64,
}

fn status(place: &Path, node: u16) -> Status {
    let text = std::fs::read_to_string(status_file(place, node)).unwrap_or_default();
    let mut numbers = text.split(' ').map(|word| word.parse().unwrap_or(0));
    let mut next = || numbers.next().unwrap_or(0);
    Status {
        flows: next(),
        copies: next(),
        is_protected: next() != 0,
        recovered: next(),
        lost: next(),
        waited: next(),
        installed: next(),
    }
}

/// A process that is killed when dropped.
struct Node(Child);

impl Node {
    fn start(node: u16, flows: u32, cpu: usize, want: Want, place: &Path) -> Self {
        let program = std::env::current_exe().expect("this program's file");
        let pages = if want == Want::Plain { "small" } else { "large" };
        let child = Command::new(program)
            .args(["bench", "recover"])
            .env(NODE, format!("{node} {flows} {cpu} {pages} {}", place.display()))
            .stdout(Stdio::null())
            .spawn();
        Node(child.expect("this program runs again"))
    }

    /// Bytes of its own that are in memory: without rings and packet buffers, which it shares with
    /// other workers.
    fn resident(&self) -> f64 {
        let path = format!("/proc/{}/status", self.0.id());
        let text = std::fs::read_to_string(path).unwrap_or_default();
        let line = text.lines().find_map(|line| line.strip_prefix("RssAnon:"));
        let words = line.and_then(|line| line.split_whitespace().next());
        1024.0 * words.and_then(|word| word.parse().ok()).unwrap_or(0.0)
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

// The switch.

fn inside() -> Vec<nf::Prefix> {
    vec!["10.0.0.0/8".parse().expect("a prefix")]
}

enum Next {
    Of(u32, Segment),
    Frame([u8; FRAME]),
}

/// The switch's port.
#[derive(Default)]
struct Line {
    traffic: Traffic,
    next: VecDeque<Next>,
    /// By flow: whether a packet has left since this was cleared.
    seen: Vec<bool>,
    count: usize,
    /// By flow: the flow itself if it was not seen, else a later one, up to the next that was not
    /// seen. It has one place more than there are flows.
    next_unseen: Vec<u32>,
    /// The flow that is offered next, while flows are offered until each was seen.
    cursor: Option<usize>,
}

impl Line {
    fn pick(&mut self) -> Option<Next> {
        if let Some(next) = self.next.pop_front() {
            return Some(next);
        }
        let cursor = self.cursor?;
        let end = self.seen.len();
        let flow = match self.unseen_from(cursor) {
            flow if flow == end => self.unseen_from(0),
            flow => flow,
        };
        if flow == end {
            return None;
        }
        self.cursor = Some(flow + 1);
        Some(Next::Of(flow as u32, Segment::Data))
    }

    /// The first flow that was not seen, from this one on. Places on the way there lead further the
    /// next time, so that a look does not take as long as there are flows.
    fn unseen_from(&mut self, from: usize) -> usize {
        let mut at = from;
        while at < self.seen.len() && self.seen[at] {
            let next = self.next_unseen[at] as usize;
            self.next_unseen[at] = self.next_unseen[next];
            at = next;
        }
        at
    }

    fn clear(&mut self) {
        self.seen.fill(false);
        self.count = 0;
        self.next_unseen.clear();
        self.next_unseen.extend(0..=self.seen.len() as u32);
    }
}

impl Port for Line {
    fn receive(&mut self, now: u64, pool: &mut Pool, burst: &mut Burst) {
        while !burst.is_full() {
            let Some(mut packet) = pool.take() else { return };
            match self.pick() {
                Some(Next::Of(flow, segment)) => {
                    self.traffic.write(&mut packet, flow, segment);
                    if segment == Segment::Data {
                        number(packet.frame_mut(), flow);
                    }
                }
                Some(Next::Frame(frame)) => {
                    packet.reset(FRAME, LinkType::Ethernet);
                    packet.frame_mut().copy_from_slice(&frame);
                }
                None => return pool.give(packet),
            }
            packet.set_timestamp(now);
            burst.push(packet);
        }
    }

    fn transmit(&mut self, _: u64, pool: &mut Pool, burst: &mut Burst) {
        for packet in burst.iter_mut() {
            let frame = packet.frame();
            let bits = frame[47];
            let flow = u32::from_be_bytes([frame[DATA], frame[DATA + 1], frame[DATA + 2], frame[DATA + 3]]);
            if bits == flags::SYN {
                Traffic::accept(packet);
                let frame = packet.frame().try_into().expect("all frames are of one length");
                self.next.push_back(Next::Frame(frame));
            } else if bits & flags::SYN == 0
                && let Some(seen) = self.seen.get_mut(flow as usize)
                && !std::mem::replace(seen, true)
            {
                self.next_unseen[flow as usize] = flow + 1;
                self.count += 1;
            }
        }
        dispose(pool, burst);
    }

    fn waits(&self) -> bool {
        true
    }

    fn counters(&self) -> PortCounters {
        PortCounters::default()
    }
}

/// Writes a flow's number into a packet's data.
fn number(frame: &mut [u8], flow: u32) {
    frame[DATA..DATA + 4].copy_from_slice(&flow.to_be_bytes());
    let sum = u16::from_be_bytes([frame[50], frame[51]]);
    let sum = Delta::NONE.long(0, flow).apply(sum);
    frame[50..52].copy_from_slice(&sum.to_be_bytes());
}

/// A switch, a primary and a replica.
struct Cluster {
    switch: Switch<Line, ShmLink>,
    nodes: Vec<Node>,
    meeting: Meeting,
    flows: u32,
    /// The processor of the nodes, and their pages.
    node: (usize, Want),
}

/// The result of a run.
struct Recovered {
    detection: f64,
    after: f64,
    waited: f64,
    installed: f64,
    left_out: f64,
}

impl Cluster {
    fn new(flows: u32, want: Want, cpu: usize) -> Self {
        let meeting = Meeting::new("recover");
        let links = (1..=2).map(|far| meeting.link(0, far)).collect();
        let primary = Node::start(0, flows, cpu, want, meeting.path());
        let settings = runtime::switch::SwitchSettings {
            switch: 0,
            switches: 1,
            seed: HashSeed::FIXED,
            routes_max: 2 * flows.max(2048),
            policy: Policy::LeastLoaded,
            fragments_max: 64,
            packet_clock: false,
            lead_max: u64::MAX,
            recovery_max: RECOVERY_MAX,
            patient: true,
            egress: [Some(0), Some(0)],
            now: monotonic_ns(),
        };
        let mut line = Line {
            seen: vec![false; flows as usize],
            ..Line::default()
        };
        line.clear();
        let switch = Switch::new(
            settings,
            gateway::plan(),
            vec![(line, SideRule::BySource(inside()))],
            links,
            vec![None],
            super::site::pool(BUFFERS[0], 0),
            Region::heap,
        );
        Cluster {
            switch,
            nodes: vec![primary],
            meeting,
            flows,
            node: (cpu, want),
        }
    }

    /// Steps until `is_done`, which is asked every so many steps.
    fn step_until(&mut self, what: &str, every: u32, mut is_done: impl FnMut(&mut Self) -> bool) {
        let deadline = monotonic_ns() + PATIENCE;
        let mut steps = 0;
        loop {
            let now = monotonic_ns();
            self.switch.step(now);
            steps += 1;
            if steps % every == 0 && is_done(self) {
                return;
            }
            if now >= deadline {
                let status = [0, 1].map(|node| status(self.meeting.path(), node));
                panic!("{what}: {status:?}, {:?}", self.switch.stats());
            }
        }
    }

    /// Waits until the primary is met, and a flow begins.
    fn meet(&mut self) {
        self.step_until("the primary is not met", 64, |cluster| {
            // The primary begins on this thread's processor.
            std::thread::sleep(NAP);
            cluster.switch.link_mut(0).session() != 0
        });
        let mut due = 0;
        self.step_until("no flow begins", 64, |cluster| {
            let line = cluster.switch.port_mut(0);
            if monotonic_ns() > due {
                due = monotonic_ns() + 20_000_000;
                line.next.push_back(Next::Of(0, Segment::Syn));
                line.next.push_back(Next::Of(0, Segment::Data));
            }
            line.count > 0
        });
    }

    /// Opens all flows at the primary, starts the replica, and waits for the copies.
    fn open(&mut self) {
        let first = 1;
        for flows in (first..self.flows).collect::<Vec<_>>().chunks(1024) {
            for segment in [Segment::Syn, Segment::Data] {
                let next = flows.iter().map(|flow| Next::Of(*flow, segment));
                self.switch.port_mut(0).next.extend(next);
                self.step_until("packets are stuck", 1, |cluster| {
                    cluster.switch.port_mut(0).next.is_empty()
                });
            }
        }
        // Packets that were lost on the way, if any, are sent again.
        self.offer("flows do not open");
        let (cpu, want) = self.node;
        let replica = Node::start(1, self.flows, cpu, want, self.meeting.path());
        self.nodes.push(replica);
        let all = u64::from(self.flows);
        self.step_until("flows are not copied", 4096, |cluster| {
            // The replica begins on this thread's processor.
            std::thread::sleep(NAP);
            let place = cluster.meeting.path();
            let (primary, replica) = (status(place, 0), status(place, 1));
            primary.is_protected && primary.flows == all && replica.copies == all
        });
    }

    /// Offers packets until one of each flow has left; answers when.
    fn offer(&mut self, what: &str) -> u64 {
        let all = self.flows as usize;
        self.switch.port_mut(0).cursor = Some(0);
        self.step_until(what, 1, |cluster| cluster.switch.port_mut(0).count == all);
        self.switch.port_mut(0).cursor = None;
        monotonic_ns()
    }

    fn left_out(&self) -> f64 {
        let dropped = self.switch.stats().dropped;
        let of = dropped.iter().filter(|named| named.name == "recovery_full");
        of.map(|named| named.count as f64).sum()
    }

    /// Kills the primary under traffic, and waits until each flow has had a packet on the line.
    fn kill(&mut self) -> Recovered {
        let until = monotonic_ns() + 20_000_000;
        self.switch.port_mut(0).clear();
        self.switch.port_mut(0).cursor = Some(0);
        self.step_until("traffic", 1, |_| monotonic_ns() >= until);
        let line = self.switch.port_mut(0);
        line.clear();
        let before = monotonic_ns();
        self.nodes[0].0.kill().expect("it is this process's child");
        // The primary's earlier packets are from before the failure.
        self.step_until("the failure is not noticed", 1, |cluster| {
            cluster.switch.link_mut(0).session() == 0
        });
        let detected = monotonic_ns();
        self.switch.port_mut(0).clear();
        let last = self.offer("flows do not go on");
        let _ = self.nodes[0].0.wait();
        let all = u64::from(self.flows);
        let mut heir = Status::default();
        self.step_until("the recovery has no end", 4096, |cluster| {
            heir = status(cluster.meeting.path(), 1);
            assert_eq!(heir.lost, 0, "flows were lost: {heir:?}");
            heir.recovered == all && heir.installed > 0
        });
        Recovered {
            detection: (detected - before) as f64 / 1e6,
            after: (last - detected) as f64 / 1e6,
            waited: heir.waited as f64 / 1e6,
            installed: heir.installed as f64 / 1e6,
            left_out: self.left_out(),
        }
    }
}

/// The longest time to reach, in milliseconds: in all, and after the failure was noticed.
fn goals(flows: u32) -> (Option<f64>, Option<f64>) {
    match flows {
        ..=100_000 => (Some(100.0), Some(30.0)),
        1_000_000 => (None, Some(300.0)),
        _ => (None, None),
    }
}

/// Bytes that flows take at the primary and at the replica, by flow.
fn memory_of(flows: u32, cpu: usize) -> [f64; 2] {
    let mut cluster = Cluster::new(flows, Want::Plain, cpu);
    cluster.meet();
    // The replica began as the primary did.
    let before = cluster.nodes[0].resident();
    cluster.open();
    [0, 1].map(|node| (cluster.nodes[node].resident() - before) / f64::from(flows))
}

/// Measures at all numbers of flows.
pub(super) fn measure(options: &Options, memory: &Memory) -> Vec<Case> {
    let cpus = allowed_cpus();
    let cpu = cpus.first().copied().unwrap_or_default();
    let mut cases = Vec::new();
    for &flows in &options.flows {
        memory.begin_case();
        let measured = std::thread::scope(|scope| {
            let thread = scope.spawn(|| {
                let _ = cpus.last().map(|cpu| pin_to(*cpu));
                let runs: Vec<Recovered> = (0..options.runs)
                    .map(|_| {
                        let mut cluster = Cluster::new(flows, options.pages, cpu);
                        cluster.meet();
                        cluster.open();
                        cluster.kill()
                    })
                    .collect();
                (runs, memory_of(flows, cpu))
            });
            thread.join().expect("the switch's thread ends well")
        });
        let (runs, bytes) = measured;
        let case = |figure: &str, samples: Vec<f64>| {
            let parameters = Parameters {
                flows,
                popularity: "-",
                frame_bytes: FRAME,
                ..Parameters::default()
            };
            Case::new(figure, parameters, "figures", "units as named", samples)
        };
        let of = |figure: &dyn Fn(&Recovered) -> f64| runs.iter().map(figure).collect::<Vec<f64>>();
        let (all, after) = goals(flows);
        cases.extend([
            case("detection, ms", of(&|run| run.detection)),
            case("after it, ms", of(&|run| run.after)).goal(after),
            case("of it: until installing, ms", of(&|run| run.waited)),
            case("of it: installing, ms", of(&|run| run.installed)),
            case(
                "of it: packets behind that, ms",
                of(&|run| run.after - run.waited - run.installed),
            ),
            case("in all, ms", of(&|run| run.detection + run.after)).goal(all),
            case("packets left out", of(&|run| run.left_out)),
            case("bytes, primary", vec![bytes[0]]),
            case("bytes, replica", vec![bytes[1]]),
            case("bytes, both", vec![bytes[0] + bytes[1]]).goal(Some(512.0)),
        ]);
    }
    cases
}
