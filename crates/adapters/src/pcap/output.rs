//! A capture as a port that packets go to.
//!
//! Theory of operation. Packets are encoded into a buffer of 256 KiB, which is written when it is
//! full, on `flush` and when the port is dropped. When a write fails (the disk is full), the
//! packets in the buffer have not arrived: they move from *sent* to *unsent*, the failure is
//! reported once, and everything that comes after it is unsent, too; the run goes on.
//!
//! ```text
//!   writing ──(write fails: report)──► failed: every packet is counted as unsent
//! ```
//!
//! Invariant: sent + unsent = packets handed in, and after `flush` sent = packets in the file.
//!
//! Not here: rotating files, compression.

use super::error::CaptureError;
use super::writer::{Encoder, Format};
use crate::pipe;
use crate::report::Reports;
use runtime::env::{Burst, Port, PortCounters};
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use wire::{Packet, Pool};

/// Bytes that come together before they are written.
const BUFFER: usize = 256 << 10;

/// A capture that packets go to.
pub struct PcapOutput<W: Write = File> {
    path: PathBuf,
    file: W,
    encoder: Encoder,
    buffer: Vec<u8>,
    /// Packets that are in the buffer and nowhere else.
    buffered_packets: u64,
    buffered_bytes: u64,
    counters: PortCounters,
    reports: Reports,
    failed: bool,
    link_reported: bool,
}

impl PcapOutput<File> {
    /// Creates a capture, or empties an existing one. The format goes by the name
    /// ([`Format::of_name`]).
    pub fn create(path: &Path, reports: Reports) -> Result<Self, CaptureError> {
        let file = pipe::create(path).map_err(|source| CaptureError::Create {
            path: path.to_owned(),
            source,
        })?;
        Ok(Self::new(file, path.to_owned(), Format::of_name(path), reports))
    }
}

impl<W: Write> PcapOutput<W> {
    /// A capture of this format into `file`; `path` is its name in reports.
    pub fn new(file: W, path: PathBuf, format: Format, reports: Reports) -> Self {
        PcapOutput {
            path,
            file,
            encoder: Encoder::new(format),
            buffer: Vec::with_capacity(BUFFER + (BUFFER >> 1)),
            buffered_packets: 0,
            buffered_bytes: 0,
            counters: PortCounters::default(),
            reports,
            failed: false,
            link_reported: false,
        }
    }

    /// Writes a packet that stays where it is. A packet without a time gets `now`.
    #[inline]
    pub fn record(&mut self, now: u64, packet: &Packet) {
        if self.failed {
            self.counters.unsent_packets += 1;
            return;
        }
        let nanoseconds = if packet.timestamp() == 0 {
            now
        } else {
            packet.timestamp()
        };
        if !self.encoder.append(&mut self.buffer, packet, nanoseconds) {
            self.on_second_link(packet);
            return;
        }
        let bytes = u64::from(packet.wire_length());
        self.counters.sent_packets += 1;
        self.counters.sent_bytes += bytes;
        self.buffered_packets += 1;
        self.buffered_bytes += bytes;
        if self.buffer.len() >= BUFFER {
            self.write_out();
        }
    }

    #[cold]
    fn on_second_link(&mut self, packet: &Packet) {
        self.counters.unsent_packets += 1;
        if !self.link_reported {
            self.link_reported = true;
            self.reports.tell(
                self.path.display(),
                format_args!(
                    "a pcap file has one link type; packets of another ({:?}) are counted as unsent",
                    packet.link()
                ),
                "name the output *.pcapng, which holds several",
            );
        }
    }

    fn write_out(&mut self) {
        if self.failed {
            return;
        }
        let done = self.file.write_all(&self.buffer).and_then(|()| self.file.flush());
        self.buffer.clear();
        if let Err(error) = done {
            self.failed = true;
            self.counters.sent_packets -= self.buffered_packets;
            self.counters.sent_bytes -= self.buffered_bytes;
            self.counters.unsent_packets += self.buffered_packets;
            self.reports.tell(
                self.path.display(),
                format_args!("writing failed: {error}; from here on packets are counted as unsent"),
                "free some space or choose another path, then run again",
            );
        }
        self.buffered_packets = 0;
        self.buffered_bytes = 0;
    }
}

impl<W: Write> Port for PcapOutput<W> {
    fn receive(&mut self, _now: u64, _pool: &mut Pool, _burst: &mut Burst) {}

    fn transmit(&mut self, now: u64, pool: &mut Pool, burst: &mut Burst) {
        crate::consume(pool, burst, |packet| self.record(now, packet));
    }

    fn finished(&self) -> bool {
        true
    }

    fn waits(&self) -> bool {
        true
    }

    fn flush(&mut self) {
        self.encoder.begin(&mut self.buffer);
        self.write_out();
    }

    fn counters(&self) -> PortCounters {
        self.counters
    }
}

impl<W: Write> Drop for PcapOutput<W> {
    fn drop(&mut self) {
        self.flush();
    }
}
