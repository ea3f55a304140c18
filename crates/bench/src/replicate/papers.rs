//! The papers' way as a prototype, to be compared with: a packet travels with its flow's state to
//! the replica, which sends it out (NFVactor V-A1).
//!
//! ```text
//!   near: runtime without copies ─► packet and state appended to a frame ── link ──► far: state into its slot, packet out
//! ```
//!
//! | record | bytes |
//! |---|---|
//! | slot of the flow | 4 |
//! | length of the state, state of all functions of the chain | 2 + |
//! | length of the packet, packet | 2 + |
//!
//! In its favour are: a slot instead of the flow's addresses (the papers send those), states that
//! are copied from an array beside the runtime, no order of the packets that change nothing, no
//! ends of flows, no second chance for a frame that is lost.
//!
//! When a packet was due is written over its link addresses, so that the far thread can say how
//! late it was.

use super::super::site::{Meeting, pool};
use super::site::{Far, Sent};
use adapters::clock::{cycles, monotonic_ns};
use adapters::shm::ShmLink;
use runtime::env::{Burst, Port};
use runtime::message::FRAME_MAX;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use wire::packet::Kind;
use wire::{LinkType, PacketBox, Pool};

/// Buffers of either end.
const BUFFERS: usize = 4096;

/// The part that both ends share.
#[derive(Default)]
struct Shared {
    released: AtomicU64,
    is_measuring: AtomicBool,
    delays: Mutex<Vec<u32>>,
}

/// The primary's side.
pub struct Shipper {
    link: ShmLink,
    pool: Pool,
    frames: Burst,
    /// Flows of packets that the runtime has, in order.
    flows: VecDeque<u32>,
    states: Vec<u8>,
    length: usize,
    sent: Arc<Sent>,
    shared: Arc<Shared>,
}

/// The replica's side.
struct Keeper {
    link: ShmLink,
    pool: Pool,
    burst: Burst,
    states: Vec<u8>,
    length: usize,
    out: Vec<PacketBox>,
    shared: Arc<Shared>,
}

/// Both sides, for flows with states of this length.
pub fn pair(meeting: &Meeting, flows: u32, length: usize) -> (Shipper, Box<dyn Far>) {
    let shared = Arc::new(Shared::default());
    let states = || vec![1; flows as usize * length];
    let shipper = Shipper {
        link: meeting.link(10, 11),
        pool: pool(BUFFERS, 10),
        frames: Burst::new(),
        flows: VecDeque::with_capacity(1024),
        states: states(),
        length,
        sent: Arc::default(),
        shared: shared.clone(),
    };
    let keeper = Keeper {
        link: meeting.link(11, 10),
        pool: pool(BUFFERS, 11),
        burst: Burst::new(),
        states: states(),
        length,
        out: Vec::with_capacity(64),
        shared,
    };
    (shipper, Box::new(keeper))
}

impl Shipper {
    /// Whether the replica is there.
    pub fn meet(&mut self) -> bool {
        self.receive();
        self.link.session() != 0
    }

    /// The counts of bytes and frames that it has sent.
    pub fn sent(&self) -> Arc<Sent> {
        self.sent.clone()
    }

    fn receive(&mut self) {
        let mut burst = Burst::new();
        self.link.receive(monotonic_ns(), &mut self.pool, &mut burst);
        burst.into_iter().for_each(|packet| self.pool.give(packet));
    }

    pub fn note_offered(&mut self, flow: u32) {
        self.flows.push_back(flow);
    }

    /// Packets that the replica has sent out.
    pub fn released(&self) -> u64 {
        self.shared.released.load(Ordering::Acquire)
    }

    pub fn measure(&self, is_measuring: bool) {
        self.shared.is_measuring.store(is_measuring, Ordering::Relaxed);
    }

    pub fn take_delays(&self) -> Vec<u32> {
        std::mem::take(&mut *self.shared.delays.lock().expect("no thread has panicked"))
    }

    /// Ships packets that have left the chain, with their flows' states.
    #[inline]
    pub fn ship(&mut self, done: &mut Vec<PacketBox>, idle: &mut Vec<PacketBox>) {
        if done.is_empty() {
            return self.receive();
        }
        for mut packet in done.drain(..) {
            let flow = self.flows.pop_front().unwrap_or_default();
            let due = packet.timestamp();
            packet.frame_mut()[..8].copy_from_slice(&due.to_be_bytes());
            self.append(flow, packet.frame());
            idle.push(packet);
        }
        self.sent.note(&self.frames);
        self.link
            .transmit(monotonic_ns(), &mut self.pool, &mut self.frames);
        self.receive();
    }

    #[inline]
    fn append(&mut self, flow: u32, packet: &[u8]) {
        let need = 8 + self.length + packet.len();
        let has_room = |frame: &PacketBox| frame.frame().len() + need <= frame.room().min(FRAME_MAX);
        if !self.frames.last().is_some_and(has_room) {
            let mut frame = self.pool.take().expect("more buffers than packets under way");
            frame.reset(0, LinkType::Raw);
            frame.set_kind(Kind::Message);
            self.frames.push(frame);
        }
        let Some(frame) = self.frames.last_mut() else {
            return;
        };
        let at = frame.frame().len();
        assert!(frame.set_length(at + need), "there is room");
        let place = &mut frame.frame_mut()[at..];
        let state = &self.states[flow as usize * self.length..][..self.length];
        place[..4].copy_from_slice(&flow.to_be_bytes());
        place[4..6].copy_from_slice(&(self.length as u16).to_be_bytes());
        place[6..6 + self.length].copy_from_slice(state);
        let place = &mut place[6 + self.length..];
        place[..2].copy_from_slice(&(packet.len() as u16).to_be_bytes());
        place[2..].copy_from_slice(packet);
    }
}

impl Keeper {
    /// Takes in the records of a frame; `None` if they cannot be.
    #[inline]
    fn take(&mut self, frame: &[u8]) -> Option<()> {
        let mut rest = frame;
        while let Some((head, behind)) = rest.split_first_chunk::<6>() {
            let slot = u32::from_be_bytes([head[0], head[1], head[2], head[3]]) as usize;
            let length = usize::from(u16::from_be_bytes([head[4], head[5]]));
            let (state, behind) = behind.split_at_checked(length)?;
            let at = slot * self.length;
            self.states.get_mut(at..at + length)?.copy_from_slice(state);
            let (head, behind) = behind.split_first_chunk::<2>()?;
            let (bytes, behind) = behind.split_at_checked(usize::from(u16::from_be_bytes(*head)))?;
            let mut packet = self.pool.take()?;
            if !packet.set_frame(bytes, LinkType::Ethernet) {
                return None;
            }
            self.out.push(packet);
            rest = behind;
        }
        Some(())
    }
}

impl Far for Keeper {
    fn step(&mut self) -> bool {
        self.link.receive(monotonic_ns(), &mut self.pool, &mut self.burst);
        if self.burst.is_empty() {
            return false;
        }
        for frame in std::mem::take(&mut self.burst) {
            self.take(frame.frame()).expect("good records");
            self.pool.give(frame);
        }
        let now = cycles();
        if self.shared.is_measuring.load(Ordering::Relaxed) {
            let mut delays = self.shared.delays.lock().expect("no thread has panicked");
            for packet in &self.out {
                let due = u64::from_be_bytes(*packet.frame().first_chunk().expect("a packet"));
                delays.push(now.saturating_sub(due).min(u64::from(u32::MAX)) as u32);
            }
        }
        let released = self.shared.released.load(Ordering::Relaxed) + self.out.len() as u64;
        self.out.drain(..).for_each(|packet| self.pool.give(packet));
        self.shared.released.store(released, Ordering::Release);
        true
    }
}
