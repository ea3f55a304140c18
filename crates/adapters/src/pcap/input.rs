//! A capture as a port: when a record becomes a packet.
//!
//! Theory of operation. At full speed every record is ready at once, and the port waits for its
//! reader. With the original timing a record is due as long after the first `receive` as it was
//! captured after the first record:
//!
//! ```text
//!   captured at    100 s   100.5 s   103 s          first receive at now = 7 s, speed 2
//!   due at         7 s     7.25 s    8.5 s
//!   timestamp      100 s   100.5 s   103 s
//! ```
//!
//! A packet's timestamp is its time of capture, whatever the order of the records: a worker that
//! takes timestamps for its clock keeps the latest. A record captured out of order is due at once.
//! A looped capture goes on from the latest time, one mean gap later. Time 0 means that a packet
//! has none, so a record of that time gets the next nanosecond.
//!
//! ```text
//!   open ─► reading ─► (end) ─► reading the next round ─► … ─► finished
//!              └───── error: reported, counted ──────────────────▲
//! ```
//!
//! Invariants: records = received + refused, each round; nothing after an error. Checked in
//! `tests.rs`.
//!
//! Not here: packets transmitted to a capture have no receiver: they are counted as sent and
//! forgotten. A caller that wants to keep them joins the input with an output
//! ([`Duplex`](crate::tee::Duplex)). A pipe with nothing in it makes its reader wait, against the
//! contract of ports: pipes are for trying things out.

use super::error::CaptureError;
use super::reader::{Reader, Record};
use crate::report::Reports;
use runtime::env::{Burst, Port, PortCounters};
use std::fs::File;
use std::io::{Read, Seek};
use std::path::Path;
use wire::Pool;

/// When records become packets.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum Timing {
    /// As fast as they are taken.
    #[default]
    Fast,
    /// As they were captured, `speed` times as fast.
    Original {
        /// 1.0 is the original speed; above 0.
        speed: f64,
    },
}

/// How often a capture is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rounds {
    /// This often.
    Times(u64),
    /// Until the run is stopped.
    Forever,
}

/// How a capture is read.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct InputSettings {
    /// When records become packets; default: at full speed.
    pub timing: Timing,
    /// How often it is read; default: once.
    pub rounds: Rounds,
}

impl Default for InputSettings {
    fn default() -> Self {
        InputSettings {
            timing: Timing::Fast,
            rounds: Rounds::Times(1),
        }
    }
}

/// Records that one `receive` passes over at most when none of them becomes a packet.
const REFUSED_AT_ONCE: usize = 1024;

/// A capture that packets come from.
pub struct PcapInput<R = File> {
    reader: Reader<R>,
    settings: InputSettings,
    reports: Reports,
    counters: PortCounters,
    pending: Option<Record>,
    clock: Clock,
    round: u64,
    /// Packets of this round that were delivered.
    delivered: u64,
    link_reported: bool,
    finished: bool,
}

/// Turns times of capture into timestamps and due times.
#[derive(Default)]
struct Clock {
    /// The worker's time when the first record was asked for.
    started: Option<u64>,
    /// Timestamp of the very first record.
    first: Option<u64>,
    /// Time of capture of this round's first record.
    round_first: Option<u64>,
    /// The timestamp that stands for.
    base: u64,
    /// The latest timestamp given.
    latest: u64,
    /// Records stamped in this round.
    records: u64,
}

impl Clock {
    #[inline]
    fn stamp(&mut self, captured: u64) -> u64 {
        if self.round_first.is_none() {
            self.round_first = Some(captured);
            if self.first.is_none() {
                self.first = Some(captured);
                self.base = captured;
            }
        }
        let first = self.round_first.unwrap_or(captured);
        // The round's first record need not be its earliest.
        let stamp = match captured.checked_sub(first) {
            Some(since) => self.base.saturating_add(since),
            None => self.base.saturating_sub(first - captured),
        };
        let stamp = stamp.max(1);
        self.latest = self.latest.max(stamp);
        self.records += 1;
        stamp
    }

    fn next_round(&mut self) {
        let gap = self.latest.saturating_sub(self.base) / self.records.saturating_sub(1).max(1);
        self.base = self.latest.saturating_add(gap.max(1));
        self.round_first = None;
        self.records = 0;
    }

    /// When the record stamped last is due, by the worker's clock: with the latest one before it,
    /// if it is out of order.
    #[inline]
    fn due(&self, speed: f64) -> u64 {
        let since = self.latest.saturating_sub(self.first.unwrap_or(0));
        // A float holds nanoseconds of a hundred days exactly; beyond that a microsecond more or
        // less is no matter.
        let since = (since as f64 / speed) as u64;
        self.started.unwrap_or(0).saturating_add(since)
    }
}

impl PcapInput<File> {
    /// Opens a capture.
    pub fn open(path: &Path, settings: InputSettings, reports: Reports) -> Result<Self, CaptureError> {
        Ok(Self::new(Reader::open(path)?, settings, reports))
    }
}

impl<R: Read + Seek> PcapInput<R> {
    /// A port over a reader.
    ///
    /// # Panics
    /// If the speed is not above zero.
    pub fn new(reader: Reader<R>, settings: InputSettings, reports: Reports) -> Self {
        if let Timing::Original { speed } = settings.timing {
            assert!(speed > 0.0, "a capture is replayed at a speed above zero");
        }
        PcapInput {
            reader,
            reports,
            counters: PortCounters::default(),
            pending: None,
            clock: Clock::default(),
            round: 1,
            delivered: 0,
            link_reported: false,
            finished: settings.rounds == Rounds::Times(0),
            settings,
        }
    }

    /// Has the next record at hand, its time already the timestamp; `false` if there is none.
    #[inline]
    fn peek(&mut self) -> bool {
        while self.pending.is_none() && !self.finished {
            match self.reader.next() {
                Ok(Some(mut record)) => {
                    record.nanoseconds = self.clock.stamp(record.nanoseconds);
                    self.pending = Some(record);
                }
                Ok(None) => self.on_end(),
                Err(error) => self.on_error(&error),
            }
        }
        self.pending.is_some()
    }

    #[cold]
    fn on_end(&mut self) {
        let more = match self.settings.rounds {
            Rounds::Times(times) => self.round < times,
            Rounds::Forever => true,
        };
        // A round without a packet would be repeated for ever to no end.
        if !more || self.delivered == 0 {
            self.finished = true;
            return;
        }
        self.round += 1;
        self.delivered = 0;
        self.clock.next_round();
        if let Err(error) = self.reader.rewind() {
            self.finished = true;
            self.reports.tell(
                self.reader.path().display(),
                error,
                "only a file can be read more than once: leave `loop` out for a pipe",
            );
        }
    }

    #[cold]
    fn on_error(&mut self, error: &CaptureError) {
        self.finished = true;
        if matches!(error, CaptureError::Truncated { .. }) {
            self.counters.refused_packets += 1;
        }
        self.reports.tell("pcap input", error, "");
    }

    #[cold]
    fn on_unread_link(&mut self, number: u32) {
        self.counters.refused_packets += 1;
        if !self.link_reported {
            self.link_reported = true;
            self.reports.tell(
                self.reader.path().display(),
                format_args!(
                    "packet {} has link type {number}, which is not read: such packets are counted as refused",
                    self.reader.packet()
                ),
                "Ethernet (1), raw IP (12, 14, 101, 228, 229), loopback (0, 108) and Linux cooked (113, 276) are read",
            );
        }
    }
}

impl<R: Read + Seek> Port for PcapInput<R> {
    fn receive(&mut self, now: u64, pool: &mut Pool, burst: &mut Burst) {
        self.clock.started.get_or_insert(now);
        let mut refusals_left = REFUSED_AT_ONCE;
        while !burst.is_full() && refusals_left > 0 && self.peek() {
            let Some(record) = &self.pending else { return };
            if let Timing::Original { speed } = self.settings.timing
                && self.clock.due(speed) > now
            {
                return;
            }
            let link = match record.link {
                Ok(link) => link,
                Err(number) => {
                    self.pending = None;
                    refusals_left -= 1;
                    self.on_unread_link(number);
                    continue;
                }
            };
            let Some(mut packet) = pool.take() else { return };
            if packet.set_frame(self.reader.frame(record), link) {
                packet.set_wire_length(record.wire_length);
                packet.set_timestamp(record.nanoseconds);
                self.counters.received_packets += 1;
                self.counters.received_bytes += u64::from(record.wire_length);
                self.delivered += 1;
                burst.push(packet);
            } else {
                self.counters.refused_packets += 1;
                refusals_left -= 1;
                pool.give(packet);
            }
            self.pending = None;
        }
    }

    fn transmit(&mut self, _now: u64, pool: &mut Pool, burst: &mut Burst) {
        let counters = &mut self.counters;
        crate::consume(pool, burst, |packet| {
            counters.sent_packets += 1;
            counters.sent_bytes += u64::from(packet.wire_length());
        });
    }

    fn finished(&self) -> bool {
        self.finished && self.pending.is_none()
    }

    fn waits(&self) -> bool {
        self.settings.timing == Timing::Fast
    }

    fn next_at(&self) -> Option<u64> {
        self.pending.as_ref()?;
        match self.settings.timing {
            Timing::Fast => None,
            Timing::Original { speed } => Some(self.clock.due(speed)),
        }
    }

    fn counters(&self) -> PortCounters {
        self.counters
    }
}
