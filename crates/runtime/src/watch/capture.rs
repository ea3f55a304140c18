//! Frames copied out of the cluster: at ports, and where they are dropped.
//!
//! A capture has two pieces of memory, for frames and for the facts about them. A frame that does
//! not fit is counted for its port and let be.

use super::bpf::Program;
use alloc::vec::Vec;
use wire::{LinkType, Packet};

/// The most ports of a cluster.
pub const PORTS_MAX: usize = 256;

/// Which packets, and how much of them.
#[derive(Clone, Debug, Default)]
pub struct Choice {
    /// Packets that ports bring.
    pub incoming: bool,
    /// Packets that ports take.
    pub outgoing: bool,
    /// Packets that are dropped.
    pub dropped: bool,
    /// By link type, the filter that a frame must pass; without any, all are wanted. A link type
    /// that is not there wants nothing.
    pub filter: Option<Vec<(LinkType, Program)>>,
    /// Bytes of a frame that are kept.
    pub snap_length: u32,
}

impl Choice {
    fn wants(&self, packet: &Packet) -> bool {
        let Some(filter) = &self.filter else {
            return true;
        };
        let program = filter.iter().find(|(link, _)| *link == packet.link());
        program.is_some_and(|(_, program)| program.run(packet.frame(), packet.wire_length()) > 0)
    }
}

/// Where a packet was captured.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Where {
    /// A port brought it.
    In,
    /// A port took it.
    Out,
    /// It was dropped.
    Dropped {
        /// By which function, by its number; `None`: by the worker itself.
        function: Option<u8>,
        /// Why.
        reason: &'static str,
    },
}

/// The facts about a captured frame.
#[derive(Clone, Copy, Debug)]
pub struct Captured {
    /// When, by the worker's clock, in nanoseconds.
    pub at: u64,
    /// Where.
    pub place: Where,
    /// By which port it came or goes; of a packet that a function made and that was dropped, the
    /// port of the one it came with.
    pub port: u8,
    /// Its link type.
    pub link: LinkType,
    /// Bytes on the wire.
    pub wire_length: u32,
    /// Bytes kept, behind those of the frame before.
    pub length: u32,
}

/// Captured frames and the memory they are in.
#[derive(Debug, Default)]
pub struct Frames {
    /// The facts about each.
    pub captured: Vec<Captured>,
    /// Their bytes, one behind another.
    pub bytes: Vec<u8>,
    /// By port: frames that were wanted and had no room.
    pub lost: Vec<u64>,
}

impl Frames {
    /// Memory for so many frames and bytes.
    pub fn with_room(frames: usize, bytes: usize) -> Self {
        Frames {
            captured: Vec::with_capacity(frames),
            bytes: Vec::with_capacity(bytes),
            lost: alloc::vec![0; PORTS_MAX],
        }
    }

    fn push(&mut self, packet: &Packet, port: u8, at: u64, place: Where, snap_length: u32) {
        let frame = packet.frame();
        let kept = &frame[..frame.len().min(snap_length as usize)];
        if self.captured.len() == self.captured.capacity()
            || self.bytes.capacity() - self.bytes.len() < kept.len()
        {
            if let Some(lost) = self.lost.get_mut(usize::from(port)) {
                *lost += 1;
            }
            return;
        }
        self.bytes.extend_from_slice(kept);
        self.captured.push(Captured {
            at,
            place,
            port,
            link: packet.link(),
            wire_length: packet.wire_length().max(frame.len() as u32),
            length: kept.len() as u32,
        });
    }

    /// Forgets its content, and keeps the memory.
    pub fn clear(&mut self) {
        self.captured.clear();
        self.bytes.clear();
        self.lost.fill(0);
    }
}

/// A worker's part of a capture.
#[derive(Debug)]
pub struct Capture {
    choice: Choice,
    frames: Frames,
}

impl Capture {
    /// Captures the chosen packets into this memory.
    pub fn new(choice: Choice, frames: Frames) -> Self {
        Capture { choice, frames }
    }

    pub(super) fn come(&mut self, packet: &Packet, port: u8) {
        if self.choice.incoming && self.choice.wants(packet) {
            let snap = self.choice.snap_length;
            self.frames
                .push(packet, port, packet.timestamp(), Where::In, snap);
        }
    }

    pub(super) fn go(&mut self, packet: &Packet, port: u8, now: u64) {
        if self.choice.outgoing && self.choice.wants(packet) {
            let snap = self.choice.snap_length;
            self.frames.push(packet, port, now, Where::Out, snap);
        }
    }

    pub(super) fn drop(&mut self, packet: &Packet, now: u64, function: Option<u8>, reason: &'static str) {
        if self.choice.dropped && self.choice.wants(packet) {
            let place = Where::Dropped { function, reason };
            let snap = self.choice.snap_length;
            self.frames.push(packet, packet.port(), now, place, snap);
        }
    }

    /// Exchanges the captured frames for empty memory.
    pub(super) fn swap(&mut self, frames: &mut Frames) {
        core::mem::swap(&mut self.frames, frames);
        self.frames.clear();
    }
}
