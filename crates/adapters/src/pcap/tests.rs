//! Captures that the tests make themselves, byte by byte; hostile ones; and all shared ones where they are.

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

#[test]
fn pcap_in_every_byte_order_and_resolution() {
    for (magic, nanoseconds) in [(0xa1b2_c3d4u32, 5_000u64), (0xa1b2_3c4d, 5)] {
        for big in [false, true] {
            let bytes = Bytes::new(big)
                .pcap_header(magic, 1)
                .pcap_record(7, 5, &[1, 2, 3], 3)
                .pcap_record(8, 5, &[4; 60], 1500)
                .out;
            let (frames, error) = read_all(&bytes, 24);
            assert!(error.is_none(), "{error:?}");
            assert_eq!(
                frames,
                [
                    frame(&[1, 2, 3], LinkType::Ethernet, 3, 7_000_000_000 + nanoseconds),
                    frame(&[4; 60], LinkType::Ethernet, 1500, 8_000_000_000 + nanoseconds),
                ]
            );
        }
    }
}

#[test]
fn modified_pcap_has_longer_record_headers() {
    let bytes = Bytes::new(false)
        .pcap_header(0xa1b2_cd34, 1)
        .u32(1)
        .u32(2)
        .u32(3)
        .u32(3)
        .u64(0xdead_beef)
        .raw(&[9, 8, 7])
        .out;
    let (frames, error) = read_all(&bytes, BUFFER);
    assert!(error.is_none(), "{error:?}");
    assert_eq!(frames, [frame(&[9, 8, 7], LinkType::Ethernet, 3, 1_000_002_000)]);
}

#[test]
fn every_link_type_is_read_and_others_are_named() {
    let known = [
        (1, LinkType::Ethernet),
        (0, LinkType::Loopback),
        (108, LinkType::Loopback),
        (12, LinkType::Raw),
        (101, LinkType::Raw),
        (228, LinkType::Raw),
        (113, LinkType::LinuxSll),
        (276, LinkType::LinuxSll2),
        // With the bits that tell of a frame check sequence.
        (0x1400_0000 | 1, LinkType::Ethernet),
    ];
    for (number, link) in known {
        let bytes = Bytes::new(false)
            .pcap_header(0xa1b2_c3d4, number)
            .pcap_record(0, 0, &[0; 4], 4)
            .out;
        assert_eq!(read_all(&bytes, BUFFER).0[0].link, link);
    }
    let bytes = Bytes::new(false)
        .pcap_header(0xa1b2_c3d4, 127)
        .pcap_record(0, 0, &[0; 4], 4)
        .pcap_record(0, 0, &[0; 4], 4)
        .out;
    let reports = Reports::default();
    let mut port = input(bytes, InputSettings::default(), &reports);
    let mut pool = pool(4, 128);
    assert_eq!(receive(&mut port, 0, &mut pool), []);
    assert!(port.finished());
    assert_eq!(
        (port.counters().refused_packets, port.counters().received_packets),
        (2, 0)
    );
    let told = reports.take();
    assert_eq!(told.len(), 1);
    assert!(
        told[0].problem.contains("packet 1 has link type 127"),
        "{}",
        told[0]
    );
}

#[test]
fn pcapng_sections_interfaces_and_block_kinds() {
    for (first, second) in [(false, true), (true, false)] {
        let a = Bytes::new(first)
            .section()
            .interface(1, None, None)
            .interface(101, Some(9), Some(10))
            .block(5, |b| b.raw(&[0xff; 13]))
            .enhanced(0, 3_000_001, &[1; 61], 61)
            .enhanced(1, 3_000_000_001, &[2; 5], 50)
            .block(3, |b| b.u32(7).padded(&[3; 7]))
            .out;
        let b = Bytes::new(second)
            .section()
            .interface(276, Some(0x80 | 10), None)
            .interface(113, Some(12), None)
            .enhanced(0, 3 << 10 | 512, &[4; 4], 4)
            .enhanced(1, 5_000_000_000_123, &[5; 4], 4)
            .block(2, |b| {
                let b = b.u16(0).u16(3).u32(0).u32(4 << 10).u32(3).u32(9);
                b.padded(&[6; 3])
            })
            .out;
        for buffer in [16, 100, BUFFER] {
            let (frames, error) = read_all(&[a.clone(), b.clone()].concat(), buffer);
            assert!(error.is_none(), "{error:?}");
            assert_eq!(
                frames,
                [
                    frame(&[1; 61], LinkType::Ethernet, 61, 3_000_001_000),
                    frame(&[2; 5], LinkType::Raw, 50, 13_000_000_001),
                    frame(&[3; 7], LinkType::Ethernet, 7, 13_000_000_001),
                    frame(&[4; 4], LinkType::LinuxSll2, 4, 3_500_000_000),
                    frame(&[5; 4], LinkType::LinuxSll, 4, 5_000_000_000),
                    frame(&[6; 3], LinkType::LinuxSll2, 9, 4_000_000_000),
                ]
            );
        }
    }
}

#[test]
fn a_simple_packet_is_cut_to_the_snap_length() {
    let bytes = Bytes::new(false)
        .section()
        .block(1, |b| b.u16(1).u16(0).u32(5))
        .block(3, |b| b.u32(90).padded(&[7; 5]))
        .out;
    let (frames, error) = read_all(&bytes, BUFFER);
    assert!(error.is_none());
    assert_eq!(frames, [frame(&[7; 5], LinkType::Ethernet, 90, 0)]);
}

#[test]
fn what_is_no_capture_is_told_apart() {
    for (bytes, word) in [
        (&b""[..], "empty"),
        (&[0x1f, 0x8b, 8, 0, 0, 0, 0, 0][..], "gzip"),
        (&b"GET / HTTP/1.1\r\n\r\n plus more text"[..], "47 45 54 20"),
    ] {
        let error = read_all(bytes, BUFFER).1.unwrap();
        assert!(matches!(error, CaptureError::NotACapture { .. }));
        assert!(error.to_string().contains(word), "{error}");
    }
    let header = Bytes::new(false).pcap_header(0xa1b2_c3d4, 1).out;
    let error = read_all(&header[..20], BUFFER).1.unwrap().to_string();
    assert!(error.contains("ends inside the file header"), "{error}");
    let error = Reader::open(Path::new("/nowhere/at/all.pcap"))
        .err()
        .unwrap()
        .to_string();
    assert!(
        error.starts_with("/nowhere/at/all.pcap: cannot be opened"),
        "{error}"
    );
    assert!(Reader::open(&std::env::temp_dir()).is_err());
}

/// A small capture of each format, and where its packets end.
fn small_captures() -> Vec<(Vec<u8>, Vec<usize>)> {
    let mut captures = Vec::new();
    for big in [false, true] {
        let mut pcap = Bytes::new(big).pcap_header(0xa1b2_c3d4, 1);
        let mut ng = Bytes::new(big).section().interface(1, Some(9), None);
        let (mut pcap_ends, mut ng_ends) = (Vec::new(), Vec::new());
        for n in 1..4u32 {
            let content = vec![n as u8; n as usize * 5];
            pcap = pcap.pcap_record(n, 0, &content, 99);
            pcap_ends.push(pcap.out.len());
            ng = ng.enhanced(0, u64::from(n), &content, 99);
            ng_ends.push(ng.out.len());
        }
        captures.push((pcap.out, pcap_ends));
        captures.push((ng.out, ng_ends));
    }
    captures
}

#[test]
fn a_capture_cut_off_anywhere_gives_all_packets_before_and_says_where() {
    for (bytes, ends) in small_captures() {
        for cut in 4..bytes.len() {
            for buffer in [24, BUFFER] {
                let (frames, error) = read_all(&bytes[..cut], buffer);
                let whole = ends.iter().filter(|&&end| end <= cut).count();
                assert_eq!(frames.len(), whole);
                let Some(error) = error else {
                    // Nothing is missing where a packet ends or, before the first, a header or block does.
                    let at_end = ends.contains(&cut) || whole == 0;
                    assert!(at_end, "cut at {cut} went unnoticed");
                    continue;
                };
                if whole == 0 {
                    continue;
                }
                let CaptureError::Truncated { packet, offset, .. } = error else {
                    panic!("{error}");
                };
                assert_eq!((packet, offset), (whole as u64 + 1, ends[whole - 1] as u64));
            }
        }
    }
}

#[test]
fn a_cut_off_capture_delivers_reports_and_counts() {
    let (bytes, ends) = small_captures().swap_remove(0);
    let reports = Reports::default();
    let mut port = input(
        bytes[..ends[2] - 1].to_vec(),
        InputSettings {
            rounds: Rounds::Times(3),
            ..InputSettings::default()
        },
        &reports,
    );
    let mut pool = pool(4, 128);
    assert_eq!(receive(&mut port, 0, &mut pool).len(), 2);
    assert!(port.finished());
    assert_eq!(port.counters().refused_packets, 1);
    assert_eq!(port.counters().received_bytes, 198);
    let told = reports.take();
    assert_eq!(told.len(), 1);
    let text = told[0].to_string();
    assert!(
        text.contains("test.pcap") && text.contains("inside packet 3"),
        "{text}"
    );
    assert!(text.contains(&format!("byte {}", ends[1])), "{text}");
}

#[test]
fn lengths_that_cannot_be_are_damage() {
    let pcap = Bytes::new(false)
        .pcap_header(0xa1b2_c3d4, 1)
        .pcap_record(0, 0, &[1], 1);
    let bytes = pcap.clone().u32(0).u32(0).u32(u32::MAX).u32(0).out;
    let (frames, error) = read_all(&bytes, BUFFER);
    let error = error.unwrap().to_string();
    assert_eq!(frames.len(), 1);
    assert!(error.contains("byte 41, before or in packet 2"), "{error}");

    let ng = Bytes::new(false).section().interface(1, None, None);
    let damaged = [
        ng.clone().u32(6).u32(8).u32(0).out,
        ng.clone().u32(6).u32(u32::MAX).u32(0).out,
        ng.clone().enhanced(1, 0, &[0; 4], 4).out,
        ng.clone()
            .block(6, |b| b.u32(0).u64(0).u32(400).u32(400).raw(&[0; 8]))
            .out,
        ng.clone()
            .block(6, |b| b.u32(0).u64(0).u32(u32::MAX).u32(1).raw(&[0; 8]))
            .out,
        ng.clone()
            .block(2, |b| b.u32(0).u64(0).u32(400).u32(400).raw(&[0; 8]))
            .out,
        ng.clone().block(2, |b| b.u32(0)).out,
        ng.clone().block(0x0a0d_0d0a, |b| b.u32(1).u64(0).u64(0)).out,
        Bytes::new(false).section().block(3, |b| b.u32(4).u32(0)).out,
    ];
    for (n, bytes) in damaged.iter().enumerate() {
        let (frames, error) = read_all(bytes, BUFFER);
        assert!(frames.is_empty(), "case {n}");
        assert!(
            matches!(error, Some(CaptureError::Damaged { packet: 1, .. })),
            "case {n}: {error:?}"
        );
    }
}

#[test]
fn frames_longer_than_the_buffers_are_refused() {
    let bytes = Bytes::new(false)
        .pcap_header(0xa1b2_c3d4, 1)
        .pcap_record(0, 0, &[0; 2000], 2000)
        .pcap_record(0, 0, &vec![0; FRAME_MAX + 1], 70_000)
        .pcap_record(0, 0, &[1; 60], 60)
        .out;
    let mut port = input(bytes, InputSettings::default(), &Reports::default());
    let mut pool = pool(4, 256);
    assert_eq!(receive(&mut port, 0, &mut pool).len(), 1);
    assert_eq!(
        (port.counters().received_packets, port.counters().refused_packets),
        (1, 2)
    );
    assert_eq!(pool.free(), 4);
}

#[test]
fn an_empty_pool_delays_and_loses_nothing() {
    let mut port = input(timed(&[0, 1, 2]), InputSettings::default(), &Reports::default());
    let mut pool = pool(2, 64);
    let mut burst = Burst::new();
    port.receive(0, &mut pool, &mut burst);
    assert_eq!(burst.len(), 2);
    assert!(!port.finished() && port.waits());
    burst.drain(..).for_each(|p| pool.give(p));
    assert_eq!(receive(&mut port, 0, &mut pool)[0].bytes, [2]);
    assert!(port.finished());
    assert_eq!(port.counters().refused_packets, 0);
}

#[test]
fn original_timing_follows_the_capture() {
    let settings = InputSettings {
        timing: Timing::Original { speed: 2.0 },
        rounds: Rounds::Times(1),
    };
    let mut port = input(
        timed(&[1_000_000, 1_500_000, 1_500_000, 4_000_000]),
        settings,
        &Reports::default(),
    );
    assert!(!port.waits());
    let mut pool = pool(8, 64);
    let start = 77_000_000_000;
    let bytes = |frames: &[Frame]| frames.iter().map(|f| f.bytes[0]).collect::<Vec<_>>();
    assert_eq!(bytes(&receive(&mut port, start, &mut pool)), [0]);
    assert_eq!(port.next_at(), Some(start + 250_000_000));
    assert_eq!(
        bytes(&receive(&mut port, start + 249_999_999, &mut pool)),
        Vec::<u8>::new()
    );
    let frames = receive(&mut port, start + 250_000_000, &mut pool);
    assert_eq!(bytes(&frames), [1, 2]);
    assert_eq!(
        frames[0].timestamp, 1_500_000_000,
        "a timestamp is the time of capture"
    );
    assert_eq!(port.next_at(), Some(start + 1_500_000_000));
    assert!(!port.finished());
    assert_eq!(bytes(&receive(&mut port, start + 9_000_000_000, &mut pool)), [3]);
    assert!(port.finished());
    assert_eq!(port.next_at(), None);
}

#[test]
fn rounds_go_on_in_time_and_never_back() {
    let settings = InputSettings {
        rounds: Rounds::Times(3),
        ..InputSettings::default()
    };
    // The third record was captured out of order.
    let mut port = input(
        timed(&[1_000, 1_010, 1_005, 1_030]),
        settings,
        &Reports::default(),
    );
    let mut pool = pool(32, 64);
    let frames = receive(&mut port, 0, &mut pool);
    assert_eq!(frames.len(), 12);
    let stamps: Vec<u64> = frames.iter().map(|f| f.timestamp / 1000).collect();
    assert_eq!(
        stamps,
        [
            1000, 1010, 1010, 1030, 1040, 1050, 1050, 1070, 1080, 1090, 1090, 1110
        ]
    );
    assert!(port.finished());
    assert_eq!(port.counters().received_packets, 12);
}

#[test]
fn rounds_of_one_packet_and_of_none() {
    let forever = InputSettings {
        rounds: Rounds::Forever,
        ..InputSettings::default()
    };
    let mut pool = pool(40, 64);
    let mut port = input(timed(&[5]), forever, &Reports::default());
    let frames = receive(&mut port, 0, &mut pool);
    assert_eq!(frames.len(), 32);
    assert!(
        frames
            .windows(2)
            .all(|pair| pair[0].timestamp < pair[1].timestamp)
    );
    assert!(!port.finished());
    let mut port = input(timed(&[]), forever, &Reports::default());
    assert_eq!(receive(&mut port, 0, &mut pool), []);
    assert!(port.finished(), "an empty capture is not read for ever");
}

#[test]
fn original_timing_holds_over_rounds() {
    let settings = InputSettings {
        timing: Timing::Original { speed: 1.0 },
        rounds: Rounds::Times(2),
    };
    let mut port = input(timed(&[100, 200]), settings, &Reports::default());
    let mut pool = pool(8, 64);
    let mut seen = Vec::new();
    for now in (0..400_000).step_by(50_000) {
        seen.extend(
            receive(&mut port, now, &mut pool)
                .iter()
                .map(|f| (now, f.timestamp)),
        );
    }
    assert_eq!(
        seen,
        [
            (0, 100_000),
            (100_000, 200_000),
            (200_000, 300_000),
            (300_000, 400_000)
        ]
    );
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

#[test]
fn pcap_holds_one_link_type_and_says_so() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("out.pcap");
    let reports = Reports::default();
    let mut port = PcapOutput::create(&path, reports.clone()).unwrap();
    let mut pool = pool(4, 128);
    let frames = [
        frame(&[1; 20], LinkType::Raw, 20, 5),
        frame(&[2; 20], LinkType::Ethernet, 20, 6),
        frame(&[3; 20], LinkType::Ethernet, 20, 7),
    ];
    transmit(&mut port, &mut pool, &frames);
    port.flush();
    assert_eq!(
        (port.counters().sent_packets, port.counters().unsent_packets),
        (1, 2)
    );
    let told = reports.take();
    assert_eq!(told.len(), 1);
    assert!(told[0].remedy.contains("*.pcapng"), "{}", told[0]);
    assert_eq!(read_all(&std::fs::read(&path).unwrap(), BUFFER).0, frames[..1]);
    assert_eq!(pool.free(), 4);
}

#[test]
fn a_packet_without_a_time_gets_the_clocks_and_an_empty_buffer_is_none() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("out.pcapng");
    let mut port = PcapOutput::create(&path, Reports::default()).unwrap();
    let mut pool = pool(4, 128);
    let mut burst = Burst::new();
    let mut packet = pool.take().unwrap();
    packet.set_kind(Kind::Empty);
    burst.push(packet);
    port.transmit(0, &mut pool, &mut burst);
    transmit(&mut port, &mut pool, &[frame(&[1; 5], LinkType::Raw, 5, 0)]);
    drop(port);
    assert_eq!(
        read_all(&std::fs::read(&path).unwrap(), BUFFER).0,
        [frame(&[1; 5], LinkType::Raw, 5, 1)]
    );
}

#[test]
fn a_capture_without_packets_is_still_a_capture() {
    let folder = tempfile::tempdir().unwrap();
    for name in ["out.pcap", "out.pcapng"] {
        let path = folder.path().join(name);
        drop(PcapOutput::create(&path, Reports::default()).unwrap());
        let (frames, error) = read_all(&std::fs::read(&path).unwrap(), BUFFER);
        assert!(frames.is_empty() && error.is_none(), "{name}: {error:?}");
    }
}

/// A file on a disk with room for so many bytes.
struct SmallDisk(usize);

impl std::io::Write for SmallDisk {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        let count = bytes.len().min(self.0);
        self.0 -= count;
        if count == 0 {
            Err(std::io::ErrorKind::StorageFull.into())
        } else {
            Ok(count)
        }
    }
    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[test]
fn a_full_disk_is_told_once_and_every_packet_is_counted() {
    let reports = Reports::default();
    let disk = SmallDisk(300_000);
    let mut port = PcapOutput::new(disk, "full.pcap".into(), Format::Pcap, reports.clone());
    let mut pool = pool(32, 2048);
    let frames = vec![frame(&[1; 1000], LinkType::Raw, 1000, 5); 1000];
    transmit(&mut port, &mut pool, &frames);
    port.flush();
    let counters = port.counters();
    assert_eq!(counters.sent_packets + counters.unsent_packets, 1000);
    // What the first write took is there: 258 packets of 1016 bytes and a header fill the buffer.
    assert_eq!((counters.sent_packets, counters.sent_bytes), (258, 258_000));
    let told = reports.take();
    assert_eq!(told.len(), 1, "{told:?}");
    assert_eq!(told[0].port, "full.pcap");
    assert!(told[0].remedy.contains("free some space"));
    drop(port);
    assert!(reports.take().is_empty());
}

#[test]
fn a_folder_that_is_not_there_is_named() {
    let error = PcapOutput::create(Path::new("/nowhere/out.pcap"), Reports::default())
        .err()
        .unwrap();
    assert!(
        error
            .to_string()
            .starts_with("/nowhere/out.pcap: cannot be created"),
        "{error}"
    );
}

/// What a program prints, `None` where it is not installed.
fn run(program: &str, arguments: &[&str], path: &Path) -> Option<String> {
    let output = std::process::Command::new(program)
        .args(arguments)
        .arg(path)
        .output()
        .ok()?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(
        output.status.success(),
        "{program}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    Some(text)
}

#[test]
fn other_programs_read_what_is_written() {
    let folder = tempfile::tempdir().unwrap();
    let (one, several) = (
        folder.path().join("one.pcap"),
        folder.path().join("several.pcapng"),
    );
    let udp = [
        &[
            0x45, 0, 0, 28, 0, 0, 0, 0, 64, 17, 0, 0, 192, 0, 2, 1, 192, 0, 2, 2, 0, 53, 0, 53, 0, 8,
        ][..],
        &[0; 2],
    ]
    .concat();
    let ethernet = [&[0; 12][..], &[8, 0], &udp].concat();
    let frames = [
        frame(&udp, LinkType::Raw, 28, 1_000_000_007),
        frame(&ethernet, LinkType::Ethernet, 99, 2_000_000_000),
    ];
    let mut pool = pool(4, 128);
    transmit(
        &mut PcapOutput::create(&one, Reports::default()).unwrap(),
        &mut pool,
        &frames[..1],
    );
    transmit(
        &mut PcapOutput::create(&several, Reports::default()).unwrap(),
        &mut pool,
        &frames,
    );
    let fields = [
        "-T",
        "fields",
        "-e",
        "frame.time_epoch",
        "-e",
        "ip.dst",
        "-e",
        "udp.port",
        "-e",
        "frame.len",
        "-r",
    ];
    match run("tshark", &fields, &several) {
        Some(text) => assert_eq!(
            text,
            "1.000000007\t192.0.2.2\t53,53\t28\n2.000000000\t192.0.2.2\t53,53\t99\n"
        ),
        None => println!("not run: needs tshark"),
    }
    match run("tcpdump", &["-ttn", "--nano", "-r"], &one) {
        Some(text) => assert!(
            text.starts_with("1.000000007 IP 192.0.2.1.53 > 192.0.2.2.53"),
            "{text}"
        ),
        None => println!("not run: needs tcpdump"),
    }
}

fn any_link() -> impl Strategy<Value = LinkType> {
    prop_oneof![
        Just(LinkType::Ethernet),
        Just(LinkType::Raw),
        Just(LinkType::Loopback),
        Just(LinkType::LinuxSll),
        Just(LinkType::LinuxSll2)
    ]
}

fn any_frame() -> impl Strategy<Value = Frame> {
    (
        proptest::collection::vec(any::<u8>(), 0..200),
        any_link(),
        0u32..3000,
        1u64..u64::from(u32::MAX) * 1_000_000_000,
    )
        .prop_map(|(bytes, link, more, time)| frame(&bytes, link, bytes.len() as u32 + more, time))
}

proptest! {
    #[test]
    fn what_is_written_is_read(frames in proptest::collection::vec(any_frame(), 0..40), one_link: bool) {
        let mut frames = frames;
        if one_link {
            frames.iter_mut().for_each(|f| f.link = LinkType::Raw);
        }
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(if one_link { "a.pcap" } else { "a.pcapng" });
        let mut pool = pool(32, 256);
        let mut output = PcapOutput::create(&path, Reports::default()).unwrap();
        transmit(&mut output, &mut pool, &frames);
        output.flush();
        prop_assert_eq!(output.counters().sent_packets, frames.len() as u64);
        let bytes = std::fs::read(&path).unwrap();
        let (read, error) = read_all(&bytes, 64);
        prop_assert!(error.is_none());
        prop_assert_eq!(&read, &frames);
    }

    #[test]
    fn random_bytes_do_no_harm(bytes in proptest::collection::vec(any::<u8>(), 0..600), format in 0usize..5) {
        let begin = match format {
            0 => Vec::new(),
            1 => Bytes::new(false).pcap_header(0xa1b2_c3d4, 1).out,
            2 => Bytes::new(true).pcap_header(0xa1b2_3c4d, 1).out,
            3 => Bytes::new(false).section().interface(1, None, None).out,
            _ => Bytes::new(true).section().interface(1, None, None).out,
        };
        read_all(&[begin, bytes].concat(), 32);
    }

    #[test]
    fn changed_bytes_do_no_harm(
        which in 0usize..4,
        changes in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
        rounds in 1u64..4,
    ) {
        let (mut bytes, ends) = small_captures().swap_remove(which);
        for (at, value) in changes {
            let at = at.index(bytes.len());
            bytes[at] = value;
        }
        read_all(&bytes, 32);
        let settings = InputSettings { rounds: Rounds::Times(rounds), ..InputSettings::default() };
        let Ok(reader) = Reader::new(Cursor::new(bytes), "test".into()) else { return Ok(()) };
        let mut port = PcapInput::new(reader, settings, Reports::default());
        let mut pool = pool(8, 32);
        let mut last = 0;
        for _ in 0..ends.len() * 40 {
            for frame in receive(&mut port, 0, &mut pool) {
                prop_assert!(frame.timestamp >= last);
                last = frame.timestamp;
            }
        }
        prop_assert!(port.finished());
        prop_assert_eq!(pool.free(), 8);
    }
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

/// Packets by `pcap-parser`'s own reader, which shares no code with ours but the parsing of a block.
fn count_independently(path: &Path) -> u64 {
    let file = std::fs::File::open(path).unwrap();
    let mut reader = pcap_parser::create_reader(1 << 20, file).unwrap();
    let mut count = 0;
    loop {
        match reader.next() {
            Ok((length, block)) => {
                count += match block {
                    PcapBlockOwned::Legacy(_) => 1,
                    PcapBlockOwned::NG(block) => u64::from(block.is_data_block()),
                    PcapBlockOwned::LegacyHeader(_) => 0,
                };
                reader.consume(length);
            }
            Err(PcapError::Eof) => return count,
            Err(PcapError::Incomplete(_)) => reader.refill().unwrap(),
            Err(error) => panic!("{}: {error:?}", path.display()),
        }
    }
}

#[test]
fn all_shared_captures_are_read() {
    let files = shared("flow");
    if files.is_empty() {
        println!("not run: needs the shared captures (FLOWKEEP_DATA)");
        return;
    }
    let mut pool = pool(64, FRAME_MAX);
    let (mut packets, mut refused) = (0, 0);
    for path in &files {
        let reports = Reports::default();
        let mut port = PcapInput::open(path, InputSettings::default(), reports.clone()).unwrap();
        while !port.finished() {
            receive(&mut port, 0, &mut pool);
        }
        let counters = port.counters();
        for report in reports.take() {
            println!("{report}");
        }
        assert_eq!(
            counters.received_packets + counters.refused_packets,
            count_independently(path),
            "{}",
            path.display()
        );
        packets += counters.received_packets;
        refused += counters.refused_packets;
    }
    println!("{} captures: {packets} packets, {refused} refused", files.len());
}
