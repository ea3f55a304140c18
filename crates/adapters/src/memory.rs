//! Frames from and to the same process.
//!
//! Two ports:
//!
//! - [`MemoryPort`] has a [`MemoryEnd`] that tests and embedding programs hold: frames pushed there
//!   are received, transmitted ones are taken there. Frames are copied and a lock is taken once per
//!   burst: for correctness, not for speed.
//! - [`RepeatPort`] gives the same frames over and over and swallows transmitted ones: for benches.
//!
//! ```
//! use flowkeep_adapters::memory::MemoryPort;
//! use runtime::env::{Burst, Port};
//! use wire::{LinkType, Pool, memory::Region};
//!
//! let mut pool = Pool::new(Region::heap(Pool::region_length(8, 2048)), 8, 2048, 0);
//! let (mut port, end) = MemoryPort::new("inside");
//! end.push(&[0x45; 40], LinkType::Raw);
//! let mut burst = Burst::new();
//! port.receive(7, &mut pool, &mut burst);
//! assert_eq!(burst[0].timestamp(), 7);
//! port.transmit(8, &mut pool, &mut burst);
//! assert_eq!(end.take().unwrap().bytes, vec![0x45; 40]);
//! ```
//!
//! Invariants: order is kept; received = pushed, refused apart.
//!
//! Not here: the link between workers ([`crate::ring`]), which copies nothing.

use runtime::env::{Burst, Port, PortCounters};
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use wire::packet::FRAME_MAX;
use wire::{LinkType, Packet, Pool};

/// A frame outside of any buffer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame {
    /// Its bytes.
    pub bytes: Vec<u8>,
    /// Its link layer.
    pub link: LinkType,
    /// Its length on the wire, in bytes.
    pub wire_length: u32,
    /// Nanoseconds; of a frame to be received, 0 means "when it is received".
    pub timestamp: u64,
}

impl Frame {
    /// A whole frame without a time.
    pub fn new(bytes: &[u8], link: LinkType) -> Self {
        Frame {
            bytes: bytes.to_vec(),
            link,
            wire_length: bytes.len() as u32,
            timestamp: 0,
        }
    }

    /// A copy of a packet.
    pub fn of(packet: &Packet) -> Self {
        Frame {
            bytes: packet.frame().to_vec(),
            link: packet.link(),
            wire_length: packet.wire_length(),
            timestamp: packet.timestamp(),
        }
    }
}

#[derive(Default)]
struct Queues {
    to_receive: VecDeque<Frame>,
    transmitted: VecDeque<Frame>,
    closed: bool,
}

#[derive(Clone, Default)]
struct Shared(Arc<Mutex<Queues>>);

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Queues> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The port's other end.
#[derive(Clone)]
pub struct MemoryEnd {
    name: Arc<str>,
    queues: Shared,
}

impl MemoryEnd {
    /// The port's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Has a frame received.
    pub fn push(&self, bytes: &[u8], link: LinkType) {
        self.push_frame(Frame::new(bytes, link));
    }

    /// Has a frame received, with its own time and length on the wire.
    pub fn push_frame(&self, frame: Frame) {
        self.queues.lock().to_receive.push_back(frame);
    }

    /// Takes the oldest frame transmitted.
    pub fn take(&self) -> Option<Frame> {
        self.queues.lock().transmitted.pop_front()
    }

    /// Takes all frames transmitted, oldest first.
    pub fn take_all(&self) -> Vec<Frame> {
        self.queues.lock().transmitted.drain(..).collect()
    }

    /// Says that nothing more will be pushed: the port is finished once it is empty.
    pub fn close(&self) {
        self.queues.lock().closed = true;
    }

    /// A port at this end: several may share one.
    pub fn port(&self) -> MemoryPort {
        MemoryPort {
            queues: self.queues.clone(),
            counters: PortCounters::default(),
        }
    }
}

/// A port over two queues in memory.
pub struct MemoryPort {
    queues: Shared,
    counters: PortCounters,
}

impl MemoryPort {
    /// A port and its other end.
    pub fn new(name: &str) -> (Self, MemoryEnd) {
        let end = MemoryEnd {
            name: name.into(),
            queues: Shared::default(),
        };
        (end.port(), end)
    }
}

impl Port for MemoryPort {
    fn receive(&mut self, now: u64, pool: &mut Pool, burst: &mut Burst) {
        let mut queues = self.queues.lock();
        while !burst.is_full() && !queues.to_receive.is_empty() {
            let Some(mut packet) = pool.take() else { return };
            let Some(frame) = queues.to_receive.pop_front() else {
                pool.give(packet);
                return;
            };
            if !packet.set_frame(&frame.bytes, frame.link) {
                self.counters.refused_packets += 1;
                pool.give(packet);
                continue;
            }
            packet.set_wire_length(frame.wire_length);
            packet.set_timestamp(if frame.timestamp == 0 {
                now
            } else {
                frame.timestamp
            });
            self.counters.received_packets += 1;
            self.counters.received_bytes += u64::from(frame.wire_length);
            burst.push(packet);
        }
    }

    fn transmit(&mut self, _now: u64, pool: &mut Pool, burst: &mut Burst) {
        let mut queues = self.queues.lock();
        let counters = &mut self.counters;
        crate::consume(pool, burst, |packet| {
            counters.sent_packets += 1;
            counters.sent_bytes += u64::from(packet.wire_length());
            queues.transmitted.push_back(Frame::of(packet));
        });
    }

    fn finished(&self) -> bool {
        let queues = self.queues.lock();
        queues.closed && queues.to_receive.is_empty()
    }

    fn waits(&self) -> bool {
        true
    }

    fn counters(&self) -> PortCounters {
        self.counters
    }
}

/// Gives prepared frames over and over, in order, and swallows transmitted ones.
pub struct RepeatPort {
    bytes: Vec<u8>,
    /// Where each frame ends in `bytes`.
    ends: Vec<usize>,
    link: LinkType,
    next: usize,
    left: u64,
    counters: PortCounters,
}

impl RepeatPort {
    /// Gives `frames` in order until `packets` have been given. Frames too long for any buffer are
    /// left out.
    pub fn new<'a>(frames: impl IntoIterator<Item = &'a [u8]>, link: LinkType, packets: u64) -> Self {
        let mut bytes = Vec::new();
        let mut ends = Vec::new();
        for frame in frames.into_iter().filter(|frame| frame.len() <= FRAME_MAX) {
            bytes.extend_from_slice(frame);
            ends.push(bytes.len());
        }
        RepeatPort {
            left: if ends.is_empty() { 0 } else { packets },
            bytes,
            ends,
            link,
            next: 0,
            counters: PortCounters::default(),
        }
    }
}

impl Port for RepeatPort {
    #[inline]
    fn receive(&mut self, now: u64, pool: &mut Pool, burst: &mut Burst) {
        while !burst.is_full() && self.left > 0 {
            let Some(mut packet) = pool.take() else { return };
            let start = if self.next == 0 {
                0
            } else {
                self.ends[self.next - 1]
            };
            let frame = &self.bytes[start..self.ends[self.next]];
            self.next = if self.next + 1 == self.ends.len() {
                0
            } else {
                self.next + 1
            };
            self.left -= 1;
            if !packet.set_frame(frame, self.link) {
                self.counters.refused_packets += 1;
                pool.give(packet);
                continue;
            }
            packet.set_timestamp(now);
            self.counters.received_packets += 1;
            self.counters.received_bytes += frame.len() as u64;
            burst.push(packet);
        }
    }

    #[inline]
    fn transmit(&mut self, _now: u64, pool: &mut Pool, burst: &mut Burst) {
        let counters = &mut self.counters;
        crate::consume(pool, burst, |packet| {
            counters.sent_packets += 1;
            counters.sent_bytes += u64::from(packet.wire_length());
        });
    }

    fn finished(&self) -> bool {
        self.left == 0
    }

    fn waits(&self) -> bool {
        true
    }

    fn counters(&self) -> PortCounters {
        self.counters
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use wire::memory::Region;

    fn pool(count: usize, origin: u8) -> Pool {
        Pool::new(Region::heap(Pool::region_length(count, 128)), count, 128, origin)
    }

    #[test]
    fn order_is_kept_and_long_frames_are_refused() {
        let mut pool = pool(4, 0);
        let (mut port, end) = MemoryPort::new("a");
        for n in 0..3 {
            end.push(&[n; 60], LinkType::Ethernet);
        }
        end.push(&[9; 400], LinkType::Ethernet);
        assert!(!port.finished());
        end.close();
        let mut burst = Burst::new();
        port.receive(5, &mut pool, &mut burst);
        assert_eq!(burst.iter().map(|p| p.frame()[0]).collect::<Vec<_>>(), [0, 1, 2]);
        assert!(port.finished());
        port.transmit(6, &mut pool, &mut burst);
        assert_eq!(end.take_all().len(), 3);
        let counters = port.counters();
        assert_eq!(
            (
                counters.received_packets,
                counters.refused_packets,
                counters.sent_packets
            ),
            (3, 1, 3)
        );
        assert_eq!(pool.free(), 4);
    }

    #[test]
    fn foreign_buffers_stay_to_be_sent_home() {
        let (mut own, mut other) = (pool(1, 0), pool(1, 1));
        let (mut port, end) = MemoryPort::new("a");
        let mut burst = Burst::new();
        let mut packet = other.take().unwrap();
        assert!(packet.set_frame(&[1; 20], LinkType::Raw));
        burst.push(packet);
        port.transmit(0, &mut own, &mut burst);
        assert_eq!(end.take().unwrap().bytes, [1; 20]);
        assert_eq!(burst[0].kind(), wire::packet::Kind::Empty);
        // Handed in again it is not a packet, and is neither counted nor taken for one.
        port.transmit(0, &mut own, &mut burst);
        assert_eq!(end.take(), None);
        assert_eq!(port.counters().sent_packets, 1);
        other.give(burst.pop().unwrap());
    }

    #[test]
    fn repeats_until_the_count_is_reached() {
        let mut pool = pool(64, 0);
        let frames = [[1u8; 30], [2; 30], [3; 30]];
        let mut port = RepeatPort::new(frames.iter().map(|f| f.as_slice()), LinkType::Raw, 40);
        let mut seen = Vec::new();
        let mut burst = Burst::new();
        while !port.finished() {
            port.receive(0, &mut pool, &mut burst);
            seen.extend(burst.iter().map(|p| p.frame()[0]));
            port.transmit(0, &mut pool, &mut burst);
        }
        assert_eq!(seen.len(), 40);
        assert!(seen.iter().zip([1, 2, 3].iter().cycle()).all(|(a, b)| a == b));
        assert_eq!((port.counters().sent_packets, pool.free()), (40, 64));
    }
}
