//! Captures that the tests make themselves, byte by byte; hostile ones; and all shared ones where
//! they are.

mod damage;
mod formats;
mod shared_captures;
mod timing;
mod writing;

use super::window::BUFFER;
use super::*;
use crate::memory::Frame;
use crate::report::Reports;
use pcap_parser::{PcapBlockOwned, PcapError};
use proptest::prelude::*;
use runtime::env::{Burst, Port};
use std::io::Cursor;
use std::path::{Path, PathBuf};
use wire::memory::Region;
use wire::packet::{FRAME_MAX, Kind};
use wire::{LinkType, Pool};

fn pool(count: usize, frame_max: usize) -> Pool {
    Pool::new(
        Region::heap(Pool::region_length(count, frame_max)),
        count,
        frame_max,
        0,
    )
}

/// Writes numbers in one byte order.
#[derive(Clone)]
struct Bytes {
    big: bool,
    out: Vec<u8>,
}

impl Bytes {
    fn new(big: bool) -> Self {
        Bytes { big, out: Vec::new() }
    }
    fn u16(mut self, n: u16) -> Self {
        self.out.extend(if self.big {
            n.to_be_bytes()
        } else {
            n.to_le_bytes()
        });
        self
    }
    fn u32(mut self, n: u32) -> Self {
        self.out.extend(if self.big {
            n.to_be_bytes()
        } else {
            n.to_le_bytes()
        });
        self
    }
    fn u64(mut self, n: u64) -> Self {
        self.out.extend(if self.big {
            n.to_be_bytes()
        } else {
            n.to_le_bytes()
        });
        self
    }
    fn raw(mut self, bytes: &[u8]) -> Self {
        self.out.extend(bytes);
        self
    }
    fn padded(self, bytes: &[u8]) -> Self {
        let padding = bytes.len().next_multiple_of(4) - bytes.len();
        self.raw(bytes).raw(&[0; 3][..padding])
    }
    fn pcap_header(self, magic: u32, link: u32) -> Self {
        self.u32(magic).u16(2).u16(4).u32(0).u32(0).u32(65_535).u32(link)
    }
    fn pcap_record(self, seconds: u32, fraction: u32, frame: &[u8], wire: u32) -> Self {
        self.u32(seconds)
            .u32(fraction)
            .u32(frame.len() as u32)
            .u32(wire)
            .raw(frame)
    }
    /// A pcapng block around a body.
    fn block(self, kind: u32, body: impl FnOnce(Bytes) -> Bytes) -> Self {
        let body = body(Bytes::new(self.big)).out;
        let total = body.len().next_multiple_of(4) as u32 + 12;
        self.u32(kind).u32(total).padded(&body).u32(total)
    }
    fn section(self) -> Self {
        self.block(0x0a0d_0d0a, |b| b.u32(0x1a2b_3c4d).u16(1).u16(0).u64(u64::MAX))
    }
    fn interface(self, link: u16, resolution: Option<u8>, offset: Option<i64>) -> Self {
        self.block(1, |mut b| {
            b = b.u16(link).u16(0).u32(0);
            if let Some(resolution) = resolution {
                b = b.u16(9).u16(1).padded(&[resolution]);
            }
            if let Some(offset) = offset {
                b = b.u16(14).u16(8).u64(offset as u64);
            }
            b.u16(0).u16(0)
        })
    }
    fn enhanced(self, interface: u32, ticks: u64, frame: &[u8], wire: u32) -> Self {
        self.block(6, |b| {
            let b = b.u32(interface).u32((ticks >> 32) as u32).u32(ticks as u32);
            b.u32(frame.len() as u32).u32(wire).padded(frame)
        })
    }
}

/// All frames of a capture through a window of this size, and the error at the end if there is one.
fn read_all(bytes: &[u8], buffer: usize) -> (Vec<Frame>, Option<CaptureError>) {
    let mut frames = Vec::new();
    let mut reader = match Reader::with_buffer(Cursor::new(bytes), PathBuf::from("test.pcap"), buffer) {
        Ok(reader) => reader,
        Err(error) => return (frames, Some(error)),
    };
    loop {
        match reader.next() {
            Ok(Some(record)) => frames.push(Frame {
                bytes: reader.frame(&record).to_vec(),
                link: record.link.unwrap_or_default(),
                wire_length: record.wire_length,
                timestamp: record.nanoseconds,
            }),
            Ok(None) => {
                assert_eq!(reader.next().unwrap(), None, "the end is the end");
                return (frames, None);
            }
            Err(error) => {
                assert_eq!(reader.next().unwrap(), None, "nothing comes after an error");
                return (frames, Some(error));
            }
        }
    }
}

fn frame(bytes: &[u8], link: LinkType, wire_length: u32, timestamp: u64) -> Frame {
    Frame {
        bytes: bytes.to_vec(),
        link,
        wire_length,
        timestamp,
    }
}

fn input(bytes: Vec<u8>, settings: InputSettings, reports: &Reports) -> PcapInput<Cursor<Vec<u8>>> {
    let reader = Reader::new(Cursor::new(bytes), PathBuf::from("test.pcap")).unwrap();
    PcapInput::new(reader, settings, reports.clone())
}

/// A capture of one-byte frames at these times (µs).
fn timed(times: &[u32]) -> Vec<u8> {
    let mut b = Bytes::new(false).pcap_header(0xa1b2_c3d4, 101);
    for (n, &time) in times.iter().enumerate() {
        b = b.pcap_record(time / 1_000_000, time % 1_000_000, &[n as u8], 1);
    }
    b.out
}

fn receive(port: &mut impl Port, now: u64, pool: &mut Pool) -> Vec<Frame> {
    let mut burst = Burst::new();
    port.receive(now, pool, &mut burst);
    let frames = burst.iter().map(|p| Frame::of(p)).collect();
    burst.drain(..).for_each(|p| pool.give(p));
    frames
}

fn transmit(port: &mut impl Port, pool: &mut Pool, frames: &[Frame]) {
    let mut burst = Burst::new();
    for frame in frames {
        let mut packet = pool.take().unwrap();
        assert!(packet.set_frame(&frame.bytes, frame.link));
        packet.set_wire_length(frame.wire_length);
        packet.set_timestamp(frame.timestamp);
        burst.push(packet);
        if burst.is_full() {
            port.transmit(1, pool, &mut burst);
        }
    }
    port.transmit(1, pool, &mut burst);
    assert!(burst.is_empty());
}

/// The shared captures, where they are.
pub(crate) fn shared(folder: &str) -> Vec<PathBuf> {
    let root = std::env::var_os("FLOWKEEP_DATA").map_or_else(
        || Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/data"),
        PathBuf::from,
    );
    let mut folders = vec![root.join(folder)];
    let mut files = Vec::new();
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
            let path = entry.path();
            match path.extension().and_then(|e| e.to_str()) {
                _ if path.is_dir() => folders.push(path),
                Some("pcap" | "pcapng" | "cap") => files.push(path),
                _ => {}
            }
        }
    }
    files.sort();
    files
}
