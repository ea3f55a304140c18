//! Two workers on two processors with a link between them, and the counts at either.
//!
//! ```text
//!   processor 1: near                                          processor 2: far
//!   packets written ─► line ─► runtime 0 ─► line ─► buffers    runtime 1, or the prototype's replica
//!                                 └──── shared memory, as between processes ────┘
//! ```
//!
//! The line stands for the switch: it hands over packets that are parsed, and takes what leaves.
//! The far thread steps the worker whose turn it is, and sleeps while it is no worker's.
//!
//! Invariant: each packet that was offered has left, or is counted as left out, at the end of a
//! run.

use super::super::site::pool;
use super::super::traffic::{FRAME, Segment, Traffic};
use super::papers::Shipper;
use adapters::clock::{allowed_cpus, cycles, monotonic_ns, pin_to};
use adapters::shm::ShmLink;
use nf::WorkerInfo;
use runtime::chain::Plan;
use runtime::env::{Burst, Port, PortCounters};
use runtime::group::GroupKey;
use runtime::message::FRAME_MAX;
use runtime::replication::Copying;
use runtime::{BURST, Runtime, Settings};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;
use wire::memory::Region;
use wire::packet::Kind;
use wire::{HashSeed, LinkType, PacketBox, Pool};

/// Packets under way at most: less than may wait for copies.
pub const WINDOW: usize = 512;
/// Buffers of a runtime, as in production between processes.
const BUFFERS: usize = 8192;
/// It is no worker's turn.
const NONE: usize = usize::MAX;
/// A run that takes longer has gone wrong.
const PATIENCE_NS: u64 = 30_000_000_000;

/// Bytes and frames that one end has sent.
#[derive(Default)]
pub struct Sent {
    bytes: AtomicU64,
    frames: AtomicU64,
}

impl Sent {
    /// Counts a burst. One thread writes.
    pub fn note(&self, burst: &[PacketBox]) {
        let bytes: u64 = burst.iter().map(|frame| frame.frame().len() as u64).sum();
        let add = |to: &AtomicU64, more: u64| to.store(to.load(Ordering::Relaxed) + more, Ordering::Relaxed);
        add(&self.bytes, bytes);
        add(&self.frames, burst.len() as u64);
    }

    fn read(&self) -> [u64; 2] {
        [
            self.bytes.load(Ordering::Relaxed),
            self.frames.load(Ordering::Relaxed),
        ]
    }
}

/// The switch's place: packets in, packets out, by hand.
#[derive(Default)]
pub struct Line {
    ready: Burst,
    done: Vec<PacketBox>,
    /// Buffers of packets that were dropped.
    spare: Vec<PacketBox>,
}

/// An end of a link of a runtime.
#[expect(
    clippy::large_enum_variant,
    reason = "there are a handful, and a box would be one more load for each burst"
)]
pub enum End {
    Line(Line),
    Memory(Box<ShmLink>, Arc<Sent>),
}

impl Port for End {
    fn frame_max(&self) -> usize {
        match self {
            End::Line(_) => FRAME_MAX,
            End::Memory(link, _) => link.frame_max(),
        }
    }

    #[inline]
    fn receive(&mut self, now: u64, pool: &mut Pool, burst: &mut Burst) {
        match self {
            End::Line(line) => burst.extend(line.ready.drain(..)),
            End::Memory(link, _) => link.receive(now, pool, burst),
        }
    }

    #[inline]
    fn transmit(&mut self, now: u64, pool: &mut Pool, burst: &mut Burst) {
        match self {
            End::Line(line) => {
                for packet in burst.drain(..) {
                    match packet.kind() {
                        Kind::Data => line.done.push(packet),
                        Kind::Empty => line.spare.push(packet),
                        // The switch has read it.
                        Kind::Message => pool.give(packet),
                    }
                }
            }
            End::Memory(link, sent) => {
                sent.note(burst);
                link.transmit(now, pool, burst);
            }
        }
    }

    fn waits(&self) -> bool {
        true
    }

    fn room(&self) -> usize {
        match self {
            End::Line(_) => usize::MAX,
            End::Memory(link, _) => link.room(),
        }
    }

    fn session(&self) -> u64 {
        match self {
            End::Line(_) => 1,
            End::Memory(link, _) => link.session(),
        }
    }

    fn is_apart(&self) -> bool {
        matches!(self, End::Memory(..))
    }

    fn counters(&self) -> PortCounters {
        PortCounters::default()
    }
}

/// The worker that a far thread steps.
pub trait Far: Send {
    /// Whether there was something to do.
    fn step(&mut self) -> bool;
}

impl Far for Runtime<End> {
    fn step(&mut self) -> bool {
        !Runtime::step(self, monotonic_ns()).is_idle()
    }
}

/// The part that both threads share.
pub struct Turns {
    turn: AtomicUsize,
    /// By worker: cycles of steps that did something.
    busy: Vec<AtomicU64>,
    is_over: AtomicBool,
}

impl Turns {
    pub fn new(count: usize) -> Self {
        Turns {
            turn: AtomicUsize::new(NONE),
            busy: (0..count).map(|_| AtomicU64::new(0)).collect(),
            is_over: AtomicBool::new(false),
        }
    }

    /// It is this worker's turn, or no worker's.
    pub fn give(&self, turn: Option<usize>) {
        self.turn.store(turn.unwrap_or(NONE), Ordering::Relaxed);
    }

    pub fn end(&self) {
        self.is_over.store(true, Ordering::Relaxed);
    }

    /// Steps whichever worker's turn it is until the end.
    pub fn serve(&self, cpu: usize, workers: &mut [Box<dyn Far>]) {
        let _ = pin_to(cpu);
        while !self.is_over.load(Ordering::Relaxed) {
            let turn = self.turn.load(Ordering::Relaxed);
            let Some(worker) = workers.get_mut(turn) else {
                std::thread::sleep(Duration::from_micros(200));
                continue;
            };
            let before = cycles();
            if worker.step() {
                let busy = &self.busy[turn];
                let more = busy.load(Ordering::Relaxed) + (cycles() - before);
                busy.store(more, Ordering::Relaxed);
            }
        }
    }
}

/// The processors: near's and far's.
pub fn processors() -> (usize, usize) {
    let cpus = allowed_cpus();
    let near = cpus.last().copied().unwrap_or_default();
    (near, cpus.first().copied().unwrap_or_default())
}

/// The measurements of a run.
#[derive(Clone, Copy, Default)]
pub struct Run {
    pub packets: u64,
    /// Cycles of the near worker, its waiting for the far one included, without the writing of
    /// packets.
    pub near: u64,
    /// The same with it.
    pub clock: u64,
    /// Cycles of the far worker in which it did something.
    pub far: u64,
    /// Bytes and frames on the link, both ways.
    pub bytes: u64,
    pub frames: u64,
    pub left_out: u64,
}

/// The near side: a runtime and its packets.
pub struct Near {
    name: &'static str,
    runtime: Runtime<End>,
    turn: usize,
    traffic: Traffic,
    idle: Vec<PacketBox>,
    _buffers: Pool,
    offered: u64,
    gone: u64,
    left_out: u64,
    sent: [Arc<Sent>; 2],
    shipper: Option<Shipper>,
}

/// A runtime on a line, with one peer; `copying`: the parts of its flows that are copied there.
pub fn runtime(
    number: u16,
    flows: u32,
    plan: &Plan,
    copying: Option<Copying>,
    link: (ShmLink, Arc<Sent>),
    memory: impl FnMut(usize) -> Region,
) -> Runtime<End> {
    let settings = Settings {
        info: WorkerInfo {
            runtime: number,
            runtimes: 2,
            flows_max: flows,
            seed: 1,
        },
        switches: 1,
        inside: vec!["10.0.0.0/8".parse().expect("a prefix")],
        replicated: copying.is_some(),
        copying: copying.unwrap_or_default(),
        now: monotonic_ns(),
        ..Settings::alone(flows)
    };
    let pool = pool(BUFFERS, 1 + number as u8);
    let line = vec![End::Line(Line::default())];
    let mut runtime = Runtime::new(settings, plan.clone(), line, pool, memory)
        .unwrap_or_else(|(function, error)| panic!("{function}: {error}"));
    let peer = Some(End::Memory(Box::new(link.0), link.1));
    runtime.join(match number {
        0 => vec![None, peer],
        _ => vec![peer, None],
    });
    runtime
}

impl Near {
    pub fn new(name: &'static str, turn: usize, runtime: Runtime<End>, sent: [Arc<Sent>; 2]) -> Self {
        let mut buffers = Pool::new(Region::heap(Pool::region_length(WINDOW, 128)), WINDOW, 128, 0);
        Near {
            name,
            runtime,
            turn,
            traffic: Traffic::default(),
            idle: std::iter::from_fn(|| buffers.take()).collect(),
            _buffers: buffers,
            offered: 0,
            gone: 0,
            left_out: 0,
            sent,
            shipper: None,
        }
    }

    /// From now on what leaves the runtime is shipped to the prototype's replica.
    pub fn ship_with(&mut self, turns: &Turns, mut shipper: Shipper) {
        turns.give(Some(self.turn));
        self.step_until("the prototype's ends do not meet", |_| {
            std::thread::sleep(Duration::from_micros(50));
            shipper.meet()
        });
        turns.give(None);
        self.sent = [shipper.sent(), Arc::default()];
        (self.offered, self.gone) = (0, 0);
        self.shipper = Some(shipper);
    }

    fn line(&mut self) -> &mut Line {
        match &mut self.runtime.links_mut()[0] {
            End::Line(line) => line,
            End::Memory(..) => unreachable!("its only link is a line"),
        }
    }

    /// Whether so many packets may be offered.
    fn has_room(&self, count: usize) -> bool {
        self.idle.len() >= count && self.offered - self.gone + count as u64 <= WINDOW as u64
    }

    /// Offers a packet, parsed as a switch parses it.
    #[inline]
    fn offer(&mut self, flow: u32, segment: Segment, stamp: u64) {
        let mut packet = self.idle.pop().expect("there is room");
        self.traffic.write(&mut packet, flow, segment);
        packet.set_timestamp(stamp);
        let _ = wire::parse(&mut packet);
        packet.set_kind(Kind::Data);
        if segment == Segment::Syn {
            // Only what begins a group is asked for it.
            let (host, _) = Traffic::source(flow);
            let group = GroupKey::of_address(nf::Addr::v4(host.to_be_bytes()));
            packet.set_hash(group.hash(&HashSeed::FIXED));
        }
        self.offered += 1;
        if let Some(shipper) = &mut self.shipper {
            shipper.note_offered(flow);
        }
        self.line().ready.push(packet);
    }

    /// A step; answers its cycles.
    #[inline]
    fn step(&mut self) -> u64 {
        let before = cycles();
        self.runtime.step(monotonic_ns());
        if let Some(shipper) = &mut self.shipper {
            let End::Line(line) = &mut self.runtime.links_mut()[0] else {
                unreachable!("its only link is a line");
            };
            shipper.ship(&mut line.done, &mut self.idle);
        }
        cycles() - before
    }

    /// Takes back packets that have left; each packet is shown.
    #[inline]
    fn collect(&mut self, mut show: impl FnMut(&PacketBox)) {
        let line = self.line();
        let (mut done, mut spare) = (std::mem::take(&mut line.done), std::mem::take(&mut line.spare));
        self.gone += (done.len() + spare.len()) as u64;
        self.left_out += spare.len() as u64;
        done.iter().for_each(&mut show);
        self.idle.append(&mut done);
        self.idle.append(&mut spare);
        if let Some(shipper) = &self.shipper {
            self.gone = shipper.released() + self.left_out;
        }
        let line = self.line();
        (line.done, line.spare) = (done, spare);
    }

    /// Steps until `is_done`.
    fn step_until(&mut self, what: &str, mut is_done: impl FnMut(&mut Self) -> bool) {
        let deadline = monotonic_ns() + PATIENCE_NS;
        while !is_done(self) {
            self.step();
            assert!(monotonic_ns() < deadline, "{}: {what}", self.name);
        }
    }

    /// Waits until the link is there, and the copies, if there are any.
    pub fn meet(&mut self, turns: &Turns, is_copied: bool) {
        turns.give(Some(self.turn));
        let mut steps = 0;
        self.step_until("the workers do not meet", |near| {
            // A look at a link's other end is taken every two milliseconds.
            std::thread::sleep(Duration::from_micros(50));
            steps += 1;
            steps > 400 && (!is_copied || near.runtime.stats().protected_by == Some(1))
        });
        turns.give(None);
    }

    /// Opens flows by a handshake.
    pub fn open(&mut self, turns: &Turns, flows: u32) {
        turns.give(Some(self.turn));
        let all: Vec<u32> = (0..flows).collect();
        for burst in all.chunks(BURST) {
            let mut answers = Vec::new();
            for segment in [Segment::Syn, Segment::Data] {
                burst.iter().for_each(|flow| self.offer(*flow, segment, 0));
                self.step_until("packets do not leave", |near| {
                    near.collect(|packet| {
                        if segment == Segment::Syn {
                            let frame: [u8; FRAME] = packet.frame().try_into().expect("one length");
                            answers.push((frame, packet.exit()));
                        }
                    });
                    near.gone == near.offered
                });
                for (frame, exit) in answers.drain(..) {
                    let mut packet = self.idle.pop().expect("there is room");
                    packet.reset(FRAME, LinkType::Ethernet);
                    packet.frame_mut().copy_from_slice(&frame);
                    packet.set_exit(exit);
                    Traffic::accept(&mut packet);
                    let _ = wire::parse(&mut packet);
                    packet.set_kind(Kind::Data);
                    self.offered += 1;
                    self.line().ready.push(packet);
                }
                self.step_until("answers do not leave", |near| {
                    near.collect(|_| {});
                    near.gone == near.offered
                });
            }
        }
        turns.give(None);
        let stats = self.runtime.stats();
        assert_eq!(
            stats.flows,
            u64::from(flows),
            "{}: flows are missing: {stats:?}",
            self.name
        );
        assert_eq!(self.left_out, 0, "{}: packets are missing: {stats:?}", self.name);
    }

    fn figures(&self, turns: &Turns) -> Run {
        let [[bytes, frames], [back_bytes, back_frames]] = [self.sent[0].read(), self.sent[1].read()];
        Run {
            far: turns.busy[self.turn].load(Ordering::Relaxed),
            bytes: bytes + back_bytes,
            frames: frames + back_frames,
            left_out: self.left_out,
            ..Run::default()
        }
    }

    /// Sends packets of these flows as fast as can be.
    pub fn run(&mut self, turns: &Turns, warm: usize, order: &[u32]) -> Run {
        turns.give(Some(self.turn));
        let (before, order) = order.split_at(warm.min(order.len() / 2));
        self.send(before);
        let before = self.figures(turns);
        let mut run = self.send(order);
        let after = self.figures(turns);
        turns.give(None);
        run.far = after.far - before.far;
        run.bytes = after.bytes - before.bytes;
        run.frames = after.frames - before.frames;
        run.left_out = after.left_out - before.left_out;
        run
    }

    fn send(&mut self, order: &[u32]) -> Run {
        let (began, end) = (cycles(), self.offered + order.len() as u64);
        let mut bursts = order.chunks(BURST).peekable();
        let mut near = 0;
        while self.gone < end {
            if let Some(burst) = bursts.peek()
                && self.has_room(burst.len())
            {
                burst.iter().for_each(|flow| self.offer(*flow, Segment::Data, 0));
                bursts.next();
            }
            near += self.step();
            self.collect(|_| {});
        }
        Run {
            packets: order.len() as u64,
            near,
            clock: cycles() - began,
            ..Run::default()
        }
    }

    /// Sends packets of these flows at a rate, in cycles from one to the next, whatever becomes of
    /// them; answers by packet the cycles from when it was due to when it had left, and how many
    /// were left out.
    pub fn pace(&mut self, turns: &Turns, order: &[u32], gap: f64) -> (Vec<u32>, u64) {
        turns.give(Some(self.turn));
        let left_out = self.left_out;
        let mut delays = Vec::with_capacity(order.len());
        if let Some(shipper) = &self.shipper {
            shipper.measure(true);
        }
        let (began, end) = (cycles(), self.offered + order.len() as u64);
        let mut sent = 0;
        while self.gone < end {
            let due = (((cycles() - began) as f64 / gap) as usize + 1).min(order.len());
            let mut burst = 0;
            while sent < due && burst < BURST && self.has_room(1) {
                let stamp = began + (sent as f64 * gap) as u64;
                self.offer(order[sent], Segment::Data, stamp);
                (sent, burst) = (sent + 1, burst + 1);
            }
            self.step();
            let now = cycles();
            self.collect(|packet| delays.push((now - packet.timestamp()).min(u64::from(u32::MAX)) as u32));
        }
        if let Some(shipper) = &self.shipper {
            shipper.measure(false);
            delays = shipper.take_delays();
        }
        turns.give(None);
        (delays, self.left_out - left_out)
    }
}
