//! Records and packets for other runtimes, in order, pending where there is no buffer for them.
//!
//! ```text
//!   records, packets ─► pending, while buffers are wanting ─► frames ─► link
//! ```
//!
//! Whatever comes behind something pending is pending behind it, but empty buffers: they have no
//! order, and their owners wait for them. Records leave so many buffers alone ([`Lanes::spared`])
//! that records of other runtimes can be read, and answered to switches: the others come home by
//! themselves. So pending records are sent in the end, however many runtimes are short of buffers.
//!
//! Invariants: a record or packet that was taken here is sent, once, behind all those taken before
//! it.

use super::Outbox;
use crate::env::{Burst, Port};
use crate::message::Message;
use crate::record::{Copy, Record};
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use wire::packet::Kind;
use wire::{PacketBox, PacketList, Pool};

/// Records and packets for other runtimes.
#[derive(Default)]
pub(super) struct Lanes {
    all: Vec<Outgoing>,
    /// How much of it waits for buffers.
    pending: usize,
    /// Buffers that are left alone.
    spared: usize,
    /// Records of groups that may be pending for one runtime.
    records_max: usize,
}

/// Records and packets for one runtime.
#[derive(Default)]
pub struct Outgoing {
    /// To be transmitted.
    frames: VecDeque<PacketBox>,
    /// Behind that, when there are buffers.
    pending: VecDeque<Pending>,
    /// How many of those are records of a group.
    records: usize,
}

enum Pending {
    Record(Vec<u8>),
    Packet(PacketBox),
}

impl Outgoing {
    fn is_empty(&self) -> bool {
        self.frames.is_empty() && self.pending.is_empty()
    }

    /// The frame of records at hand, if there is one.
    fn frame(&mut self) -> Option<&mut PacketBox> {
        self.frames
            .back_mut()
            .filter(|frame| frame.kind() == Kind::Message)
    }

    /// All buffers that have not left.
    pub fn into_packets(self) -> impl Iterator<Item = PacketBox> {
        let waiting = self.pending.into_iter().filter_map(|pending| match pending {
            Pending::Record(_) => None,
            Pending::Packet(packet) => Some(packet),
        });
        self.frames.into_iter().chain(waiting)
    }
}

impl Lanes {
    /// Hands out all frames that have not left: the runtime fails.
    pub fn take_all(&mut self, lost: &mut PacketList) {
        for outgoing in core::mem::take(&mut self.all) {
            outgoing.into_packets().for_each(|packet| lost.push(packet));
        }
    }

    pub fn send(&mut self, to: u16, packet: PacketBox) {
        let Some(outgoing) = self.all.get_mut(usize::from(to)) else {
            // Buffers belong to pools that there are, and packets to groups whose target has a
            // link.
            debug_assert!(false, "there is no link to runtime {to}");
            return;
        };
        if outgoing.pending.is_empty() || packet.kind() == Kind::Empty {
            outgoing.frames.push_back(packet);
        } else {
            outgoing.pending.push_back(Pending::Packet(packet));
            self.pending += 1;
        }
    }

    /// `known`: the session that the worker goes by with each runtime. Frames for a runtime whose
    /// link has another by now wait: they are for the incarnation before.
    #[inline]
    pub fn transmit<P: Port>(&mut self, peers: &mut [Option<P>], known: &[u64], now: u64, pool: &mut Pool) {
        if self.pending > 0 {
            self.write_pending(pool);
        }
        for (runtime, (outgoing, peer)) in self.all.iter_mut().zip(peers).enumerate() {
            while !outgoing.frames.is_empty()
                && let Some(peer) = peer
                && !is_anothers(known.get(runtime), peer.session())
            {
                let mut burst = Burst::new();
                while !burst.is_full()
                    && let Some(packet) = outgoing.frames.pop_front()
                {
                    burst.push(packet);
                }
                peer.transmit(now, pool, &mut burst);
            }
        }
    }

    /// Writes pending records and packets, as far as there are buffers.
    #[cold]
    fn write_pending(&mut self, pool: &mut Pool) {
        for outgoing in &mut self.all {
            while let Some(next) = outgoing.pending.pop_front() {
                match next {
                    Pending::Packet(packet) => outgoing.frames.push_back(packet),
                    Pending::Record(bytes) => {
                        outgoing.records -= usize::from(Record::is_says(&bytes));
                        let fits = outgoing.frame().is_some_and(|frame| append(frame, &bytes));
                        if !fits {
                            let Some(mut frame) = take_frame(pool, self.spared) else {
                                outgoing.records += usize::from(Record::is_says(&bytes));
                                outgoing.pending.push_front(Pending::Record(bytes));
                                return;
                            };
                            let fits = append(&mut frame, &bytes);
                            debug_assert!(fits, "a record fits into an empty frame");
                            outgoing.frames.push_back(frame);
                        }
                    }
                }
                self.pending -= 1;
            }
        }
    }

    fn append(&mut self, to: u16, record: &Record<'_>, pool: &mut Pool) {
        let Some(outgoing) = self.all.get_mut(usize::from(to)) else {
            debug_assert!(false, "there is no link to runtime {to}");
            return;
        };
        if outgoing.pending.is_empty() {
            if outgoing.frame().is_some_and(|frame| record.append(frame)) {
                return;
            }
            if let Some(mut frame) = take_frame(pool, self.spared) {
                let fits = record.append(&mut frame);
                debug_assert!(fits, "a record fits into an empty frame");
                outgoing.frames.push_back(frame);
                return;
            }
        }
        let bytes = record.bytes();
        outgoing.records += usize::from(Record::is_says(&bytes));
        outgoing.pending.push_back(Pending::Record(bytes));
        self.pending += 1;
    }
}

/// Whether a link's session is with another incarnation than the worker goes by.
fn is_anothers(known: Option<&u64>, session: u64) -> bool {
    known.is_some_and(|known| session != 0 && session != *known)
}

/// An empty frame of records, as long as so many buffers are left.
fn take_frame(pool: &mut Pool, spared: usize) -> Option<PacketBox> {
    if pool.free() <= spared {
        return None;
    }
    let mut frame = pool.take()?;
    Message::begin(&mut frame);
    Some(frame)
}

/// Appends a record that is written already; `false` if it does not fit.
fn append(frame: &mut PacketBox, bytes: &[u8]) -> bool {
    let at = frame.frame().len();
    if at + bytes.len() > crate::message::room(frame) || !frame.set_length(at + bytes.len()) {
        return false;
    }
    frame.frame_mut()[at..].copy_from_slice(bytes);
    true
}

impl Outbox {
    /// There are so many runtimes. Records leave `spared` buffers alone besides the messages'
    /// reserve; `records_max` records of groups may be pending for each of them.
    pub fn join(&mut self, runtimes: usize, spared: usize, records_max: usize) {
        self.runtimes = Lanes {
            all: (0..runtimes).map(|_| Outgoing::default()).collect(),
            pending: 0,
            spared: self.reserve() + spared,
            records_max,
        };
    }

    /// Sends a record to a runtime, behind all earlier ones.
    pub fn send_record(&mut self, to: u16, record: &Record<'_>) {
        self.runtimes.append(to, record, &mut self.pool);
    }

    /// Sends changed bytes of a copy, as [`Outbox::send_record`] does.
    #[inline]
    pub fn send_runs(&mut self, to: u16, slot: u32, is_group: bool, runs: &[u8]) {
        let outgoing = self.runtimes.all.get_mut(usize::from(to));
        let outgoing = outgoing.filter(|outgoing| outgoing.pending.is_empty());
        let frame = outgoing.and_then(Outgoing::frame);
        if !frame.is_some_and(|frame| Copy::append_runs(slot, is_group, runs, frame)) {
            self.send_record(to, &Record::Copy(Copy::Runs { slot, is_group, runs }));
        }
    }

    /// Sends a buffer to a runtime, behind all earlier ones.
    #[cold]
    pub fn send_packet(&mut self, to: u16, packet: PacketBox) {
        self.runtimes.send(to, packet);
    }

    /// Whether no more records of groups may be pending for a runtime.
    pub fn is_full(&self, to: u16) -> bool {
        let outgoing = self.runtimes.all.get(usize::from(to));
        outgoing.is_some_and(|outgoing| outgoing.records >= self.runtimes.records_max)
    }

    /// Whether there are buffers for so many bytes more to a runtime, with `spare` left, and
    /// nothing is pending before them.
    pub fn has_room_for(&self, to: u16, bytes: usize, spare: usize) -> bool {
        let outgoing = self.runtimes.all.get(usize::from(to));
        outgoing.is_none_or(|outgoing| outgoing.pending.is_empty())
            && self.pool.free() > self.reserve() + spare + 2 * bytes.div_ceil(1024)
    }

    /// The frame of records at hand for a runtime.
    pub fn frame_for(&mut self, to: u16) -> Option<&mut PacketBox> {
        self.runtimes.all.get_mut(usize::from(to))?.frame()
    }

    /// Begins another frame of records for a runtime; `false` if there is no buffer.
    pub fn begin_frame(&mut self, to: u16) -> bool {
        let Some(outgoing) = self.runtimes.all.get_mut(usize::from(to)) else {
            return false;
        };
        let Some(frame) = take_frame(&mut self.pool, 0) else {
            debug_assert!(false, "`has_room_for` made sure of buffers");
            return false;
        };
        outgoing.frames.push_back(frame);
        true
    }

    /// How many records and packets for runtimes wait for buffers.
    pub fn records_pending(&self) -> usize {
        self.runtimes.pending
    }

    /// Whether so many records and packets for a runtime wait for buffers.
    #[inline]
    pub fn has_pending(&self, to: u16, count: usize) -> bool {
        // One runtime has no more than all have.
        let is_pending = |outgoing: &Outgoing| outgoing.pending.len() >= count;
        self.runtimes.pending >= count && self.runtimes.all.get(usize::from(to)).is_some_and(is_pending)
    }

    /// Whether nothing is for any runtime.
    pub fn is_empty_for_runtimes(&self) -> bool {
        self.runtimes.all.iter().all(Outgoing::is_empty)
    }

    /// Takes back the records and packets for a runtime that have not left.
    pub fn take_outgoing(&mut self, runtime: u16) -> Outgoing {
        let Some(outgoing) = self.runtimes.all.get_mut(usize::from(runtime)) else {
            return Outgoing::default();
        };
        let outgoing = core::mem::take(outgoing);
        self.runtimes.pending -= outgoing.pending.len();
        outgoing
    }
}
