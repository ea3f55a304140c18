//! The traffic of the benchmarks: 64-byte TCP packets of many flows, handed to a worker by pointer.
//!
//! Packets are written between the measured steps, into buffers that stay in the second-level
//! cache, as a network card's would. The worker's `step` is measured and nothing else.

use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};
use runtime::env::{BURST, Burst, Port, PortCounters};
use wire::checksum::Delta;
use wire::memory::Region;
use wire::packet::Side;
use wire::tcp::flags;
use wire::{LinkType, PacketBox, Pool};

/// Length of every frame: 64 bytes on the wire with the frame check sequence.
pub const FRAME: usize = 60;
/// Flows of one inside host.
const FLOWS_PER_HOST: u32 = 32;
/// Where all flows go: the load balancer's service.
pub const SERVICE: ([u8; 4], u16) = ([198, 51, 100, 10], 80);

/// How flows are drawn.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Popularity {
    /// Each as likely as any other.
    Uniform,
    /// The n-th in proportion to 1/n.
    Zipf,
}

impl Popularity {
    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Popularity::Uniform => "uniform",
            Popularity::Zipf => "zipf",
        }
    }

    /// An order of flows to replay, by which `count` packets are sent.
    pub fn order(self, flows: u32, count: usize, seed: u64) -> Vec<u32> {
        let mut rng = SmallRng::seed_from_u64(seed);
        match self {
            Popularity::Uniform => (0..count).map(|_| rng.random_range(0..flows)).collect(),
            Popularity::Zipf => {
                let zipf = rand_distr::Zipf::new(f64::from(flows), 1.0).expect("the exponent is positive");
                // The popular flows are scattered over the address space, not neighbours.
                (0..count)
                    .map(|_| scatter(rng.sample(zipf) as u32 - 1, flows))
                    .collect()
            }
        }
    }
}

fn scatter(rank: u32, flows: u32) -> u32 {
    ((u64::from(rank) * 2_654_435_761) % u64::from(flows)) as u32
}

/// A port that hands over the packets put into it, and keeps the packets that come out.
pub struct BenchPort {
    /// To be received next.
    pub ready: Burst,
    /// Transmitted packets.
    pub spent: Vec<PacketBox>,
    /// Buffers of packets that the worker has dropped: they went to its pool, and the port takes
    /// them from there.
    pub home: Vec<PacketBox>,
    /// So many buffers stay in that pool.
    kept: usize,
}

impl Default for BenchPort {
    fn default() -> Self {
        BenchPort {
            ready: Burst::new(),
            spent: Vec::new(),
            home: Vec::new(),
            kept: KEPT,
        }
    }
}

impl BenchPort {
    /// For a worker of [`shared_with_room`].
    pub fn with_room() -> Self {
        BenchPort {
            kept: ROOM,
            ..BenchPort::default()
        }
    }
}

impl Port for BenchPort {
    #[inline]
    fn receive(&mut self, _: u64, pool: &mut Pool, burst: &mut Burst) {
        while pool.free() > self.kept {
            self.home.extend(pool.take());
        }
        burst.extend(self.ready.drain(..));
    }
    #[inline]
    fn transmit(&mut self, _: u64, _: &mut Pool, burst: &mut Burst) {
        self.spent.extend(burst.drain(..));
    }
    fn counters(&self) -> PortCounters {
        PortCounters::default()
    }
}

/// Writes packets.
pub struct Traffic {
    template: [u8; FRAME],
    /// Buffers not in use.
    pub idle: Vec<PacketBox>,
    /// Where buffers are of that have no worker's pool to go home to.
    _pool: Option<Pool>,
}

/// Buffers in circulation, as many as a busy receive ring has.
const BUFFERS: usize = 256;
/// Buffers of a worker's pool that are for its own packets.
const KEPT: usize = 64;
/// The same of a worker that holds packets back.
const ROOM: usize = 3 * BUFFERS;

/// A worker's pool, and traffic in buffers of that pool: packets that the worker drops go back
/// where they are from.
pub fn shared() -> (Pool, Traffic) {
    shared_of(KEPT)
}

/// The same for a worker that holds packets back: it does so while half of its buffers are free.
pub fn shared_with_room() -> (Pool, Traffic) {
    shared_of(ROOM)
}

fn shared_of(kept: usize) -> (Pool, Traffic) {
    let count = BUFFERS + kept;
    let mut pool = Pool::new(Region::heap(Pool::region_length(count, 128)), count, 128, 0);
    let idle = (0..BUFFERS).filter_map(|_| pool.take()).collect();
    let traffic = Traffic {
        template: template(),
        idle,
        _pool: None,
    };
    (pool, traffic)
}

impl Default for Traffic {
    fn default() -> Self {
        let mut pool = Pool::new(Region::heap(Pool::region_length(BUFFERS, 128)), BUFFERS, 128, 0);
        let idle = std::iter::from_fn(|| pool.take()).collect();
        Traffic {
            template: template(),
            idle,
            _pool: Some(pool),
        }
    }
}

fn template() -> [u8; FRAME] {
    let mut frame = [0; FRAME];
    frame[..12].copy_from_slice(&[2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1]);
    frame[12..14].copy_from_slice(&0x0800_u16.to_be_bytes());
    frame[14..34].copy_from_slice(&[
        0x45, 0, 0, 46, 0, 0, 0x40, 0, 64, 6, 0, 0, 10, 0, 0, 0, 0, 0, 0, 0,
    ]);
    frame[30..34].copy_from_slice(&SERVICE.0);
    frame[36..38].copy_from_slice(&SERVICE.1.to_be_bytes());
    // Sequence 1000, acknowledgement 5001, header of 20 bytes, window of 64 KiB - 1; six bytes of
    // data.
    frame[38..42].copy_from_slice(&1000_u32.to_be_bytes());
    frame[42..46].copy_from_slice(&5001_u32.to_be_bytes());
    frame[46] = 5 << 4;
    frame[48..50].copy_from_slice(&u16::MAX.to_be_bytes());
    let sum = wire::checksum::checksum(&frame[14..34]);
    frame[24..26].copy_from_slice(&sum.to_be_bytes());
    let pseudo = wire::checksum::sum(&frame[26..34], 6 + 26);
    let sum = !wire::checksum::fold(wire::checksum::sum(&frame[34..], pseudo));
    frame[50..52].copy_from_slice(&sum.to_be_bytes());
    frame
}

/// The kind of a packet of a flow.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Segment {
    /// The first.
    Syn,
    /// Six bytes of data, acknowledging the other side's SYN.
    Data,
}

impl Traffic {
    /// Source address and port of a flow.
    pub fn source(flow: u32) -> (u32, u16) {
        let host = flow / FLOWS_PER_HOST;
        (0x0a00_0001 + host, 10_000 + (flow % FLOWS_PER_HOST) as u16)
    }

    /// Writes a packet of `flow` into a buffer.
    #[inline]
    pub fn write(&self, packet: &mut PacketBox, flow: u32, segment: Segment) {
        packet.reset(FRAME, LinkType::Ethernet);
        packet.set_side(Side::Inside);
        let (addr, port) = Self::source(flow);
        let frame = packet.frame_mut();
        frame.copy_from_slice(&self.template);
        frame[26..30].copy_from_slice(&addr.to_be_bytes());
        frame[34..36].copy_from_slice(&port.to_be_bytes());
        let delta = Delta::NONE.long(0x0a00_0000, addr);
        let word = |frame: &[u8], at: usize| u16::from_be_bytes([frame[at], frame[at + 1]]);
        let (sequence, bits, length) = match segment {
            Segment::Syn => (999_u32, flags::SYN, 40_u16),
            Segment::Data => (1000, flags::ACK | flags::PSH, 46),
        };
        frame[38..42].copy_from_slice(&sequence.to_be_bytes());
        frame[47] = bits;
        frame[16..18].copy_from_slice(&length.to_be_bytes());
        let sum = delta.word(46, length).apply(word(frame, 24));
        frame[24..26].copy_from_slice(&sum.to_be_bytes());
        let delta = delta
            .word(0, port)
            .long(1000, sequence)
            .word(0x5000, 0x5000 | u16::from(bits))
            .word(26, length - 20);
        let sum = delta.apply(word(frame, 50));
        frame[50..52].copy_from_slice(&sum.to_be_bytes());
    }

    /// Makes a SYN that has left the chain its own answer.
    pub fn accept(packet: &mut PacketBox) {
        let frame = packet.frame_mut();
        for at in 0..4 {
            frame.swap(26 + at, 30 + at);
        }
        frame.swap(34, 36);
        frame.swap(35, 37);
        frame[38..42].copy_from_slice(&5000_u32.to_be_bytes());
        frame[42..46].copy_from_slice(&1000_u32.to_be_bytes());
        frame[47] = flags::SYN | flags::ACK;
        let side = packet.exit();
        let bytes: [u8; FRAME] = packet.frame().try_into().expect("all frames are of one length");
        packet.reset(FRAME, LinkType::Ethernet);
        packet.frame_mut().copy_from_slice(&bytes);
        packet.set_side(side);
    }

    /// Puts the next burst of an order into a port.
    #[inline]
    pub fn fill(&mut self, port: &mut BenchPort, flows: &[u32], segment: Segment) {
        self.idle.append(&mut port.spent);
        self.idle.append(&mut port.home);
        for flow in flows.iter().take(BURST) {
            let mut packet = self.idle.pop().expect("more buffers than a burst");
            self.write(&mut packet, *flow, segment);
            port.ready.push(packet);
        }
    }
}
