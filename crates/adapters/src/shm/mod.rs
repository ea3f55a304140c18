//! The link between two workers of two processes of one host: shared memory.
//!
//! Theory of operation. For its worker an end is like a ring ([`crate::ring`]): packets and
//! messages in order, none lost or twice while the session lasts. An end copies each into memory
//! that the other end has made, and the other end from there into a buffer of its own pool. So each
//! process has its buffers for itself, and a killed process has nothing that another waits for.
//!
//! ```text
//!   ring.rs      records in shared memory: one writes, one reads
//!   shared.rs    the memory: sealed, reserved, nameless
//!   meeting.rs   finding each other, noticing an end, bells
//!   mod.rs       the port
//!
//!   worker A ── transmit, copies ─► [ B's memory ] ── receive, copies ─► worker B
//!            ◄─ receive, copies ─── [ A's memory ] ◄─ transmit, copies ──
//!
//!   session 0 ──both said hello──► session n ──the other is gone, and the ring is empty──► session 0
//!                                     └──the other wrote what cannot be──► session 0, counted
//! ```
//!
//! **Why two copies.** Buffers that the other process could write would begin with notes that it
//! could write, by which this one finds where a buffer ends; frames would change between being
//! judged and being used; and pools would lose their large pages, which the kernel gives to shared
//! memory only where it was told to. The second copy brings the frame to the processor that needs
//! it. [Decision 13](../../../../docs/decisions/0013-links-between-processes.md).
//!
//! *A packet without room* waits here in its buffer, and goes first when there is some, as in a
//! ring that holds all buffers of all pools. [`Port::room`] ends at a limit far below. A buffer of
//! another pool of this process, once copied, comes back by [`Port::receive`] as an empty one, as
//! over a ring, so that the worker sends it home.
//!
//! *Some buffers are spared* ([`ShmSettings::spared`]) for the worker's own messages: while no more
//! are free, nothing is received. Two workers that have all others waiting here for each other
//! would wait for ever; so a worker that passes packets on stops at [`Port::room`].
//!
//! *Time.* The other end's being there is looked at every [`LOOK_NS`], and when a sleeper is woken.
//! The kernel closes the connection of a killed process behind its memory, so an end that takes
//! nothing for [`STALL_NS`] is asked for in `/proc` ([`dying`]). An end that has had nothing for
//! [`LIE_NS`] says so in its memory, if its thread sleeps at all ([`Port::wakes_by`] has been
//! called); then the other end rings when it puts something in.
//!
//! Invariants: order; nothing twice; within a session nothing lost but frames longer than the other
//! end takes (counted as unsent); records put in before the other died are received before the
//! session ends; buffers = the pool's free ones + those waiting here. `tests.rs` holds them, with
//! processes that are killed at any moment and with memory that is scribbled over.
//!
//! Not here: which worker the other end is and where they meet (the configuration), links to other
//! hosts ([`crate::udp`]).

mod dying;
mod meeting;
mod ring;
mod shared;

use crate::clock::monotonic_ns;
use crate::report::Reports;
use meeting::{Meeting, Way};
use protocols::channel::AGREED;
use ring::{Reader, Record, Violation};
use runtime::env::{AttachError, BURST, Burst, Port, PortCounters, give_or_keep};
use runtime::message;
use runtime::peer::{self, HEAD, Refused};
use std::cell::Cell;
use std::path::PathBuf;
use wire::packet::{FRAME_MAX, Kind};
use wire::{LinkType, PacketBox, PacketList, Pool};

/// Bytes of shared memory for each direction, unless said otherwise: one large page.
pub const BYTES: usize = 2 << 20;
/// Most bytes of shared memory for a direction.
const MEMORY_MAX: usize = 1 << 30;
/// Time between looks whether the other end is there.
const LOOK_NS: u64 = 2_000_000;
/// An end that has taken nothing for so long, though there is something, is looked at more closely.
const STALL_NS: u64 = 3_000_000;
/// An end that has taken all is looked at so often.
const IDLE_NS: u64 = 20_000_000;
/// Time without anything after which a bell is wanted. Below the time after which a thread sleeps,
/// so that a sleeper is woken; above the time of an answer, so that no bell is rung for an end that
/// is awake.
const LIE_NS: u64 = 3_000;
/// With so much room by the last look at the other end's progress, no new look is taken.
const PLENTY: usize = 4 * BURST;

/// The settings of an end of a link.
#[derive(Clone, Debug)]
pub struct ShmSettings {
    /// Where the two meet: a directory for this user alone, which is made if it is not there. On no
    /// disk: `/dev/shm/…`, `/run/…`.
    pub directory: PathBuf,
    /// This worker's number, and the other's, among all workers of the cluster.
    pub near: u16,
    /// The other worker's number.
    pub far: u16,
    /// Bytes of shared memory that this end reads from.
    pub bytes: usize,
    /// Packets that may wait to be received at the other end before [`Port::room`] is 0.
    pub limit: usize,
    /// Longest frame that this end takes: the size of the buffers of its worker's pool. At least
    /// [`message::FRAME_MAX`].
    pub frame_max: usize,
    /// So many of the pool's buffers are not received into: they are for what the worker has to
    /// say, at least what it wants for a step.
    pub spared: usize,
    /// How many ports the cluster has: a packet with a higher number is refused.
    pub ports: u8,
    /// Words on what both ends must have alike, each on a part of it. A peer with others is not
    /// met.
    pub agreed: [u64; AGREED],
}

impl ShmSettings {
    /// Usual settings for a pair of workers, with buffers of an MTU.
    pub fn new(directory: PathBuf, near: u16, far: u16) -> ShmSettings {
        ShmSettings {
            directory,
            near,
            far,
            bytes: BYTES,
            limit: 1024,
            frame_max: message::FRAME_MAX,
            spared: 64,
            ports: u8::MAX,
            agreed: [0; AGREED],
        }
    }
}

/// The least memory for frames of so many bytes.
const fn bytes_min(frame_max: usize) -> usize {
    ring::memory_min(HEAD + frame_max)
}

/// Sorts of records: a packet behind its head, or a message between workers.
const PACKET: u32 = 1;
const WORDS: u32 = 2;

/// Why a link cannot be opened, and what to do about it.
#[derive(Debug, thiserror::Error)]
pub enum ShmError {
    /// No directory.
    #[error("the directory {} cannot be used: {source}; name one that this user can make", path.display())]
    Directory {
        /// The directory.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// Not this user's alone.
    #[error(
        "the directory {0} is not this user's alone; remove it, or make it so with: chmod 700 {0}",
        path.display()
    )]
    NotOurs {
        /// The directory.
        path: PathBuf,
    },
    /// No socket.
    #[error("no socket can be made at {}: {source}; its name may be too long (107 bytes)", path.display())]
    Socket {
        /// Where.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// Another process is this worker.
    #[error(
        "worker {worker} is there already: a process listens at {}; end that one first",
        path.display()
    )]
    Twice {
        /// The worker.
        worker: u16,
        /// Where.
        path: PathBuf,
    },
    /// Settings that cannot be.
    #[error(
        "{bytes} bytes of shared memory are too few for frames of {frame_max} bytes, or more than 1 GiB; {needed} will do"
    )]
    Length {
        /// As set.
        bytes: usize,
        /// As set.
        frame_max: usize,
        /// The least that will do.
        needed: usize,
    },
}

/// One end of a link through shared memory.
pub struct ShmLink {
    settings: ShmSettings,
    meeting: Meeting,
    way: Option<Way>,
    /// The number of the last session, and whether it lasts.
    sessions: u64,
    /// The other end is gone: its last records are still to be received.
    is_gone: bool,
    /// The other end wrote a record that cannot be.
    is_broken: bool,
    /// Packets without room: the first, and those behind it.
    next: Option<PacketBox>,
    waiting: PacketList,
    /// Empty buffers of other pools.
    homeward: PacketList,
    /// When it was last looked whether the other end is there, and when something last came.
    looked_at: u64,
    came_at: u64,
    /// The other end's count, while it has records to take, and since when.
    stalled: Option<(u64, u64)>,
    /// When the other end's process was last asked for, though it has taken all.
    asked_at: u64,
    /// This end has said that it lies.
    lies: bool,
    /// A thread sleeps by this port's descriptor.
    sleeps: Cell<bool>,
    counters: PortCounters,
    broken_sessions: u64,
    reports: Reports,
    told: String,
}

impl ShmLink {
    /// An end without a peer so far.
    pub fn open(mut settings: ShmSettings, reports: Reports) -> Result<ShmLink, ShmError> {
        // Messages between workers come through, whatever packets there are.
        settings.frame_max = settings.frame_max.max(message::FRAME_MAX);
        let frame_max = settings.frame_max;
        let needed = bytes_min(frame_max);
        if frame_max > FRAME_MAX || !(needed..=MEMORY_MAX).contains(&settings.bytes) {
            return Err(ShmError::Length {
                bytes: settings.bytes,
                frame_max,
                needed: bytes_min(frame_max.min(FRAME_MAX)),
            });
        }
        Ok(ShmLink {
            meeting: Meeting::new(&settings)?,
            settings,
            way: None,
            sessions: 0,
            is_gone: false,
            is_broken: false,
            next: None,
            waiting: PacketList::new(),
            homeward: PacketList::new(),
            looked_at: 0,
            came_at: 0,
            stalled: None,
            asked_at: 0,
            lies: false,
            sleeps: Cell::new(false),
            counters: PortCounters::default(),
            broken_sessions: 0,
            reports,
            told: String::new(),
        })
    }

    /// Buffers that are here: packets without room, and other pools' empty ones.
    pub fn waiting(&self) -> usize {
        self.unsaid() + self.homeward.len()
    }

    /// In which bits of what both ends must have alike the other end, which is not met for that,
    /// differs.
    pub fn differs(&self) -> [u64; AGREED] {
        self.meeting.differs()
    }

    /// Other words on what both ends must have alike, for peers met from now on.
    pub fn agree(&mut self, agreed: [u64; AGREED]) {
        self.settings.agreed = agreed;
        self.meeting.agree(agreed);
    }

    /// Sessions that this end ended because the other one wrote what cannot be.
    pub fn broken_sessions(&self) -> u64 {
        self.broken_sessions
    }

    /// Packets and messages without room.
    #[inline]
    fn unsaid(&self) -> usize {
        self.waiting.len() + usize::from(self.next.is_some())
    }

    /// A buffer that is done with.
    #[inline]
    fn done(&mut self, pool: &mut Pool, packet: PacketBox) {
        if let Some(mut packet) = give_or_keep(pool, packet) {
            packet.set_kind(Kind::Empty);
            self.homeward.push(packet);
        }
    }

    /// A packet that is not sent.
    #[cold]
    fn lose(&mut self, pool: &mut Pool, packet: PacketBox) {
        self.counters.unsent_packets += u64::from(packet.kind() == Kind::Data);
        self.done(pool, packet);
    }

    /// Copies a packet to the other end; hands it back if there is no room.
    #[inline]
    fn put(&mut self, pool: &mut Pool, packet: PacketBox) -> Option<PacketBox> {
        let frame = packet.frame();
        let put = match &mut self.way {
            Some(way) if frame.len() <= way.frame_max && !self.is_broken => match packet.kind() {
                Kind::Message => way.writer.push(WORDS, &[], frame),
                _ => way.writer.push(PACKET, &peer::write(&packet), frame),
            },
            _ => {
                self.lose(pool, packet);
                return None;
            }
        };
        match put {
            Ok(true) => {
                if packet.kind() == Kind::Data {
                    self.counters.sent_packets += 1;
                    self.counters.sent_bytes += u64::from(packet.wire_length());
                }
                self.done(pool, packet);
                None
            }
            Ok(false) => Some(packet),
            Err(Violation) => {
                self.is_broken = true;
                self.lose(pool, packet);
                None
            }
        }
    }

    /// Has the other end see the records that were put in, awake or not.
    #[inline]
    fn publish(&self) {
        if let Some(way) = &self.way {
            way.writer.publish();
            if way.writer.must_wake() {
                way.ring();
            }
        }
    }

    /// Puts in waiting packets, as far as there is room now.
    #[cold]
    fn go_on(&mut self, pool: &mut Pool) {
        while let Some(packet) = self.next.take().or_else(|| self.waiting.pop()) {
            self.next = self.put(pool, packet);
            if self.next.is_some() {
                break;
            }
        }
        self.publish();
    }

    /// Takes records, as far as there are buffers for them. Returns whether the ring was seen to be
    /// empty.
    #[inline]
    fn take(&mut self, pool: &mut Pool, burst: &mut Burst) -> bool {
        let Some(way) = &mut self.way else { return false };
        let mut is_empty = false;
        let mut taken = false;
        // Refused ones count, too: a mad end has this one look at no more than a burst.
        for _ in 0..BURST {
            if burst.is_full() || pool.free() <= self.settings.spared {
                break;
            }
            let record = match way.reader.next() {
                Ok(Some(record)) => record,
                Ok(None) => {
                    is_empty = true;
                    break;
                }
                Err(Violation) => {
                    self.is_broken = true;
                    break;
                }
            };
            let Some(mut buffer) = pool.take() else { break };
            let read = read(&way.reader, &record, &mut buffer, self.settings.ports);
            way.reader.take(record);
            taken = true;
            if read.is_err() {
                self.counters.refused_packets += 1;
                pool.give(buffer);
                continue;
            }
            if buffer.kind() == Kind::Data {
                self.counters.received_packets += 1;
                self.counters.received_bytes += u64::from(buffer.wire_length());
            }
            burst.push(buffer);
        }
        if taken {
            way.reader.publish();
        }
        is_empty
    }

    /// Looks whether the other end is there, or is there again.
    #[cold]
    fn look(&mut self, now: u64) {
        self.looked_at = now;
        match &self.way {
            Some(way) => {
                // A process that connects while the other end is there is not the other end. But
                // the other end may be gone, and that process its successor.
                self.is_gone = !way.hear();
                self.stalled = match (way.writer.unread(), self.stalled) {
                    (Some(at), Some((before, since))) if at == before => {
                        self.is_gone |= now.saturating_sub(since) > STALL_NS && way.is_dying();
                        Some((at, since))
                    }
                    (unread, _) => unread.map(|at| (at, now)),
                };
                if self.stalled.is_none() && now.saturating_sub(self.asked_at) > IDLE_NS {
                    self.asked_at = now;
                    self.is_gone |= way.is_dying();
                }
                if !self.is_gone {
                    self.meeting.refuse();
                }
            }
            None => match self.meeting.look() {
                Ok(None) => {}
                Ok(Some(way)) => {
                    self.way = Some(way);
                    self.sessions += 1;
                    self.told.clear();
                }
                Err(what) if what.is_empty() || what == self.told => {}
                Err(what) => {
                    let port = format!(
                        "the link of worker {} to {}",
                        self.settings.near, self.settings.far
                    );
                    self.reports.tell(
                        port,
                        &what,
                        "see that both members run the same version with the same configuration",
                    );
                    self.told = what;
                }
            },
        }
    }

    /// The session is over.
    #[cold]
    fn end(&mut self, pool: &mut Pool) {
        self.broken_sessions += u64::from(self.is_broken);
        (self.is_gone, self.is_broken, self.lies) = (false, false, false);
        self.stalled = None;
        self.way = None;
        self.lose_what_waits(pool);
    }

    /// Empties an end that is taken down: waiting packets are lost and counted, and others' buffers
    /// are in `burst`, as many as it takes. Returns whether nothing is left.
    pub fn clear(&mut self, pool: &mut Pool, burst: &mut Burst) -> bool {
        self.lose_what_waits(pool);
        while !burst.is_full()
            && let Some(buffer) = self.homeward.pop()
        {
            burst.push(buffer);
        }
        self.homeward.is_empty()
    }

    fn lose_what_waits(&mut self, pool: &mut Pool) {
        while let Some(packet) = self.next.take().or_else(|| self.waiting.pop()) {
            self.lose(pool, packet);
        }
    }

    /// Nothing was taken; `is_empty` if nothing was there.
    fn nothing(&mut self, now: u64, is_empty: bool, pool: &mut Pool, burst: &mut Burst) {
        if self.is_gone {
            if is_empty {
                return self.end(pool);
            }
            // No peer takes the packets that wait here, and records still to be received need
            // buffers.
            self.lose_what_waits(pool);
        }
        // A replay's clock stands still.
        let now = if now == 0 { monotonic_ns() } else { now };
        if now.saturating_sub(self.looked_at) > LOOK_NS {
            let before = self.session();
            self.look(now);
            if self.session() != before {
                return;
            }
        }
        if is_empty && self.sleeps.get() && !self.lies && now.saturating_sub(self.came_at) > LIE_NS {
            if let Some(way) = &self.way {
                way.reader.lie_down();
                self.lies = true;
            }
            // A peer that put something in just before has not seen that this end lies.
            self.take(pool, burst);
        }
    }

    /// Something was there.
    #[inline]
    fn something(&mut self, now: u64) {
        if self.lies {
            self.get_up();
        }
        self.came_at = now;
        if now.saturating_sub(self.looked_at) > LOOK_NS {
            self.look(now);
        }
    }

    #[cold]
    fn get_up(&mut self) {
        self.lies = false;
        if let Some(way) = &self.way {
            way.reader.get_up();
            self.is_gone |= !way.hear();
        }
    }
}

/// Makes what a record says a packet or message in `buffer`.
#[inline]
fn read(reader: &Reader, record: &Record, buffer: &mut PacketBox, ports: u8) -> Result<(), Refused> {
    if record.sort == PACKET && record.length >= HEAD {
        let mut head = [0; HEAD];
        reader.copy(record, 0, &mut head);
        let length = record.length - HEAD;
        let fill = |frame: &mut [u8]| reader.copy(record, HEAD, frame);
        // One clock: the packet keeps its time.
        return peer::read_packet(&head, length, fill, buffer, ports, None);
    }
    if record.sort != WORDS {
        return Err(Refused::Form);
    }
    if record.length > buffer.room() {
        return Err(Refused::TooLong);
    }
    buffer.reset(record.length, LinkType::Raw);
    reader.copy(record, 0, buffer.frame_mut());
    buffer.set_kind(Kind::Message);
    Ok(())
}

impl Port for ShmLink {
    fn frame_max(&self) -> usize {
        self.settings.frame_max
    }

    fn attach(&mut self, pool: &mut Pool) -> Result<(), AttachError> {
        let room = Pool::frame_max_of(pool.memory().stride);
        let ShmSettings {
            frame_max, spared, ..
        } = self.settings;
        if room < frame_max {
            return Err(AttachError(format!(
                "buffers with room for {room} bytes do not hold what comes from other processes, which has up to {frame_max}: \
                 make them as long as the port says"
            )));
        }
        if pool.total() <= spared {
            return Err(AttachError(format!(
                "of {} buffers, {spared} are kept for what the worker has to say, and none is left to receive into",
                pool.total()
            )));
        }
        Ok(())
    }

    fn receive(&mut self, now: u64, pool: &mut Pool, burst: &mut Burst) {
        while !burst.is_full()
            && let Some(packet) = self.homeward.pop()
        {
            burst.push(packet);
        }
        if self.next.is_some() {
            self.go_on(pool);
        }
        let before = burst.len();
        if self.is_broken {
            return self.end(pool);
        }
        let is_empty = self.take(pool, burst);
        if burst.len() == before {
            self.nothing(now, is_empty, pool, burst);
        }
        if burst.len() > before {
            self.something(now);
        }
    }

    fn transmit(&mut self, _now: u64, pool: &mut Pool, burst: &mut Burst) {
        if burst.is_empty() {
            return;
        }
        if self.next.is_some() {
            self.go_on(pool);
        }
        for packet in burst.drain(..) {
            if packet.kind() == Kind::Empty {
                self.done(pool, packet);
            } else if self.next.is_some() {
                self.waiting.push(packet);
            } else {
                self.next = self.put(pool, packet);
            }
        }
        self.publish();
    }

    fn waits(&self) -> bool {
        true
    }

    fn room(&self) -> usize {
        let few = self.settings.limit.saturating_sub(PLENTY);
        let there = self.way.as_ref().map_or(0, |way| way.writer.waiting(few));
        self.settings.limit.saturating_sub(there + self.unsaid())
    }

    /// While something waits here for room there is work at once: a reader that makes room does not
    /// ring.
    fn next_at(&self) -> Option<u64> {
        self.next.is_some().then_some(0)
    }

    fn wakes_by(&self) -> Option<Vec<i32>> {
        self.sleeps.set(true);
        Some(vec![self.meeting.descriptor()])
    }

    /// A packet that waits for room here may be there later than one that another link took
    /// afterwards.
    fn is_apart(&self) -> bool {
        true
    }

    fn session(&self) -> u64 {
        if self.way.is_some() { self.sessions } else { 0 }
    }

    fn counters(&self) -> PortCounters {
        self.counters
    }
}

#[cfg(test)]
mod tests;
