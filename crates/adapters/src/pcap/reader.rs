//! pcap and pcapng to records: a time, a link type, a length on the wire, and where the bytes are.
//!
//! Theory of operation: the window has some of the file at hand; `pcap-parser` reads one record or block of it; where
//! it says "incomplete", more is read. A record's bytes are not copied: they stay in the window until the next call.
//!
//! ```text
//!   pcap     header (24 B: byte order, µs or ns, link type), then  [seconds, fraction, held, on the wire][bytes] …
//!   pcapng   section header (byte order), then blocks: interface (link type, time resolution, offset) | packet | other
//! ```
//!
//! Read: pcap in both byte orders, with micro- and nanoseconds, and Kuznetzov's modified records (24-byte record
//! headers); pcapng with any number of sections and interfaces, each with its own link type, time resolution and
//! offset, as enhanced (EPB), simple (SPB) and obsolete (OPB) packet blocks. Other blocks are skipped unread, so that
//! damage in them does no harm.
//!
//! Invariants, whatever the file holds (property tests in `tests.rs`): no panic; memory is bounded by [`BLOCK_MAX`]
//! and [`INTERFACES_MAX`]; a file that is cut off or damaged gives all records before that place and then one error
//! that names it; after an error or the end nothing more comes.
//!
//! Source: draft-ietf-opsawg-pcap, draft-ietf-opsawg-pcapng.

use super::error::CaptureError;
use super::window::{BUFFER, Window};
use pcap_parser::nom::{Err as ParseFailure, IResult, Needed};
use pcap_parser::{
    LegacyPcapBlock, OptionCode, PcapError, parse_enhancedpacketblock_be, parse_enhancedpacketblock_le,
    parse_interfacedescriptionblock_be, parse_interfacedescriptionblock_le, parse_pcap_frame,
    parse_pcap_frame_be, parse_pcap_frame_modified, parse_pcap_header, parse_sectionheaderblock,
    parse_simplepacketblock_be, parse_simplepacketblock_le, traits::PcapNGPacketBlock,
};
use std::fs::File;
use std::io::{self, Read, Seek};
use std::ops::Range;
use std::path::{Path, PathBuf};
use wire::LinkType;

/// A block or record longer than this is damage: 16 MiB, 256 times the longest frame.
pub const BLOCK_MAX: usize = 16 << 20;
/// More interfaces than this in one section are damage.
pub const INTERFACES_MAX: usize = 1 << 16;

const SECTION: u32 = 0x0a0d_0d0a;
const INTERFACE: u32 = 1;
const OBSOLETE_PACKET: u32 = 2;
const SIMPLE_PACKET: u32 = 3;
const ENHANCED_PACKET: u32 = 6;

/// A packet as the capture has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// When it was captured, in nanoseconds since 1970. A simple packet block has no time: that of the one before it.
    pub nanoseconds: u64,
    /// Its link layer, `Err` with pcap's number for one that Flowkeep does not read.
    pub link: Result<LinkType, u32>,
    /// Its length on the wire, in bytes.
    pub wire_length: u32,
    /// Where its bytes are, for [`Reader::frame`].
    bytes: Range<usize>,
    /// How long record or block are, to go on.
    total: usize,
}

/// Reads one capture from its beginning to its end.
pub struct Reader<R> {
    path: PathBuf,
    window: Window<R>,
    format: Option<Format>,
    /// What the current record takes of the window; gone over by the next call.
    current: usize,
    packet: u64,
    last: u64,
    ended: bool,
}

type ParseRecord = fn(&[u8]) -> IResult<&[u8], LegacyPcapBlock<'_>, PcapError<&[u8]>>;

enum Format {
    Pcap {
        parse: ParseRecord,
        header: usize,
        /// Nanoseconds in one unit of the fraction.
        unit: u64,
        link: Result<LinkType, u32>,
    },
    PcapNg {
        big: bool,
        interfaces: Vec<Interface>,
    },
}

#[derive(Clone, Copy)]
struct Interface {
    link: Result<LinkType, u32>,
    snap_length: u32,
    ticks: Ticks,
    /// Seconds to be added to every time.
    offset: i64,
}

/// What one unit of an interface's clock is (option `if_tsresol`).
#[derive(Clone, Copy)]
enum Ticks {
    Many(u64),
    Fraction(u64),
    PowerOfTwo(u8),
}

impl Ticks {
    fn from_option(resolution: u8) -> Self {
        let exponent = resolution & 0x7f;
        if resolution & 0x80 != 0 {
            return Ticks::PowerOfTwo(exponent);
        }
        match u32::from(exponent) {
            n @ 0..=9 => Ticks::Many(10u64.pow(9 - n)),
            n => Ticks::Fraction(10u64.checked_pow(n - 9).unwrap_or(u64::MAX)),
        }
    }

    #[inline]
    fn nanoseconds(self, ticks: u64, offset: i64) -> u64 {
        let since = match self {
            Ticks::Many(each) => i128::from(ticks) * i128::from(each),
            Ticks::Fraction(of) => i128::from(ticks / of),
            Ticks::PowerOfTwo(n) => (i128::from(ticks) * 1_000_000_000) >> n,
        };
        let since = since + i128::from(offset) * 1_000_000_000;
        since.clamp(0, i128::from(u64::MAX)) as u64
    }
}

impl Reader<File> {
    /// Opens a capture.
    pub fn open(path: &Path) -> Result<Self, CaptureError> {
        let failed = |source| CaptureError::Open {
            path: path.to_owned(),
            source,
        };
        let file = File::open(path).map_err(failed)?;
        if file.metadata().map_err(failed)?.is_dir() {
            return Err(failed(io::ErrorKind::IsADirectory.into()));
        }
        Reader::new(file, path.to_owned())
    }
}

impl<R: Read> Reader<R> {
    /// Reads a capture from `source`; `path` is its name in errors.
    pub fn new(source: R, path: PathBuf) -> Result<Self, CaptureError> {
        Self::with_buffer(source, path, BUFFER)
    }

    pub(super) fn with_buffer(source: R, path: PathBuf, buffer: usize) -> Result<Self, CaptureError> {
        let mut reader = Reader {
            path,
            window: Window::new(source, buffer),
            format: None,
            current: 0,
            packet: 0,
            last: 0,
            ended: false,
        };
        reader.begin()?;
        Ok(reader)
    }

    /// The capture's name.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Number of the last record read, from 1.
    pub fn packet(&self) -> u64 {
        self.packet
    }

    /// The next record, `None` at the capture's end.
    #[inline]
    #[expect(
        clippy::should_implement_trait,
        reason = "a record lives until the next call, not an iterator's item"
    )]
    pub fn next(&mut self) -> Result<Option<Record>, CaptureError> {
        if self.ended {
            return Ok(None);
        }
        self.window.advance(std::mem::take(&mut self.current));
        let found = match self.format {
            Some(Format::Pcap { .. }) => self.next_record(),
            _ => self.next_packet_block(),
        };
        match &found {
            Ok(Some(record)) => {
                self.current = record.total;
                self.packet += 1;
                self.last = record.nanoseconds;
            }
            _ => self.ended = true,
        }
        found
    }

    /// The bytes of the record that [`Reader::next`] gave last.
    #[inline]
    pub fn frame(&self, record: &Record) -> &[u8] {
        self.window.bytes().get(record.bytes.clone()).unwrap_or_default()
    }

    /// Finds out the format and, of pcap, reads the header.
    fn begin(&mut self) -> Result<(), CaptureError> {
        let whole = self.fill(24)?;
        let bytes = self.window.bytes();
        if bytes.starts_with(&SECTION.to_le_bytes()) {
            self.format = Some(Format::PcapNg {
                big: false,
                interfaces: Vec::new(),
            });
            return Ok(());
        }
        let header = match parse_pcap_header(bytes) {
            Ok((_, header)) => header,
            Err(ParseFailure::Incomplete(_)) if !whole && bytes.len() >= 4 => {
                return Err(self.damaged("it ends inside the file header"));
            }
            Err(_) => {
                return Err(CaptureError::NotACapture {
                    path: self.path.clone(),
                    start: first_bytes(bytes),
                });
            }
        };
        let (parse, record_header): (ParseRecord, usize) = if header.is_modified_format() {
            (parse_pcap_frame_modified, 24)
        } else if header.is_bigendian() {
            (parse_pcap_frame_be, 16)
        } else {
            (parse_pcap_frame, 16)
        };
        // The upper six bits say whether frames end with a check sequence (FCS), not which link they are from.
        let number = header.network.0 as u32 & 0x03ff_ffff;
        self.format = Some(Format::Pcap {
            parse,
            header: record_header,
            unit: if header.is_nanosecond_precision() { 1 } else { 1000 },
            link: LinkType::from_pcap(number).ok_or(number),
        });
        self.current = 24;
        Ok(())
    }

    #[inline]
    fn next_record(&mut self) -> Result<Option<Record>, CaptureError> {
        let Some(Format::Pcap {
            parse,
            header,
            unit,
            link,
        }) = self.format
        else {
            return Ok(None);
        };
        loop {
            let held = self.window.bytes().len();
            match parse(self.window.bytes()) {
                Ok((_, record)) => {
                    let bytes = header..header + record.data.len();
                    return Ok(Some(Record {
                        nanoseconds: u64::from(record.ts_sec) * 1_000_000_000
                            + u64::from(record.ts_usec) * unit,
                        link,
                        wire_length: record.origlen.max(record.caplen),
                        total: bytes.end,
                        bytes,
                    }));
                }
                Err(ParseFailure::Incomplete(Needed::Size(more))) if held + more.get() <= BLOCK_MAX => {
                    if !self.fill(held + more.get())? {
                        return self.end();
                    }
                }
                Err(ParseFailure::Incomplete(_)) => {
                    return Err(self.damaged("its length says more than 16 MiB"));
                }
                Err(_) => return Err(self.damaged("no packet record")),
            }
        }
    }

    fn next_packet_block(&mut self) -> Result<Option<Record>, CaptureError> {
        while let Some((kind, length)) = self.block()? {
            let found = match kind {
                SECTION => self.on_section(length).map(|()| None),
                INTERFACE => self.on_interface(length).map(|()| None),
                ENHANCED_PACKET => self.enhanced_packet(length).map(Some),
                SIMPLE_PACKET => self.simple_packet(length).map(Some),
                OBSOLETE_PACKET => self.obsolete_packet(length).map(Some),
                _ => Ok(None),
            };
            match found {
                Ok(Some(record)) => return Ok(Some(record)),
                Ok(None) => self.window.advance(length),
                Err(problem) => return Err(self.damaged(problem)),
            }
        }
        Ok(None)
    }

    /// Has the next block at hand; answers its type and its length.
    #[inline]
    fn block(&mut self) -> Result<Option<(u32, usize)>, CaptureError> {
        if !self.fill(12)? {
            return self.end().map(|_| None);
        }
        let Some(&[a, b, c, d, e, f, g, h, i, j, k, l]) = self.window.bytes().first_chunk::<12>() else {
            return Ok(None);
        };
        if [a, b, c, d] == SECTION.to_le_bytes() {
            let big = match [i, j, k, l] {
                [0x1a, 0x2b, 0x3c, 0x4d] => true,
                [0x4d, 0x3c, 0x2b, 0x1a] => false,
                _ => return Err(self.damaged("a section header without byte-order magic")),
            };
            self.format = Some(Format::PcapNg {
                big,
                interfaces: Vec::new(),
            });
        }
        let kind = self.u32_of([a, b, c, d]);
        let length = self.u32_of([e, f, g, h]) as usize;
        if !(12..=BLOCK_MAX).contains(&length) {
            return Err(self.damaged(format_args!("a block that says it has {length} bytes")));
        }
        if !self.fill(length)? {
            return self.end().map(|_| None);
        }
        Ok(Some((kind, length)))
    }

    #[inline]
    fn u32_of(&self, bytes: [u8; 4]) -> u32 {
        if self.is_big() {
            u32::from_be_bytes(bytes)
        } else {
            u32::from_le_bytes(bytes)
        }
    }

    #[inline]
    fn is_big(&self) -> bool {
        matches!(self.format, Some(Format::PcapNg { big: true, .. }))
    }

    #[inline]
    fn interface(&self, number: u32) -> Result<Interface, &'static str> {
        match &self.format {
            Some(Format::PcapNg { interfaces, .. }) => interfaces.get(number as usize).copied(),
            _ => None,
        }
        .ok_or("a packet of an interface that was not described")
    }

    fn on_section(&mut self, length: usize) -> Result<(), &'static str> {
        let (_, section) = parse_sectionheaderblock(&self.window.bytes()[..length])
            .map_err(|_| "a section header that does not hold")?;
        match section.major_version {
            1 => Ok(()),
            _ => Err("a pcapng version other than 1"),
        }
    }

    fn on_interface(&mut self, length: usize) -> Result<(), &'static str> {
        let big = self.is_big();
        let parse = if big {
            parse_interfacedescriptionblock_be
        } else {
            parse_interfacedescriptionblock_le
        };
        let (_, block) = parse(&self.window.bytes()[..length])
            .map_err(|_| "an interface description that does not hold")?;
        // The parser reads 8-byte options as little-endian only, so the options are looked at here.
        let option = |code: OptionCode| block.options.iter().find(|o| o.code == code).map(|o| o.value());
        let resolution = option(OptionCode::IfTsresol)
            .and_then(|v| v.first().copied())
            .unwrap_or(6);
        let offset = option(OptionCode::IfTsoffset).and_then(|v| v.first_chunk::<8>());
        let offset = offset.map_or(0, |b| {
            if big {
                i64::from_be_bytes(*b)
            } else {
                i64::from_le_bytes(*b)
            }
        });
        let number = block.linktype.0 as u32;
        let interface = Interface {
            link: LinkType::from_pcap(number).ok_or(number),
            snap_length: block.snaplen,
            ticks: Ticks::from_option(resolution),
            offset,
        };
        match &mut self.format {
            Some(Format::PcapNg { interfaces, .. }) if interfaces.len() < INTERFACES_MAX => {
                interfaces.push(interface);
                Ok(())
            }
            _ => Err("more interfaces than 65536"),
        }
    }

    #[inline]
    fn enhanced_packet(&self, length: usize) -> Result<Record, &'static str> {
        let parse = if self.is_big() {
            parse_enhancedpacketblock_be
        } else {
            parse_enhancedpacketblock_le
        };
        let (_, block) = parse(&self.window.bytes()[..length])
            .map_err(|_| "a packet block whose lengths contradict each other")?;
        let interface = self.interface(block.if_id)?;
        let ticks = u64::from(block.ts_high) << 32 | u64::from(block.ts_low);
        Ok(Record {
            nanoseconds: interface.ticks.nanoseconds(ticks, interface.offset),
            link: interface.link,
            wire_length: block.origlen.max(block.caplen),
            bytes: 28..28 + block.packet_data().len(),
            total: length,
        })
    }

    fn simple_packet(&self, length: usize) -> Result<Record, &'static str> {
        let parse = if self.is_big() {
            parse_simplepacketblock_be
        } else {
            parse_simplepacketblock_le
        };
        let (_, block) =
            parse(&self.window.bytes()[..length]).map_err(|_| "a simple packet block that does not hold")?;
        let interface = self.interface(0)?;
        // The block does not say how much it holds: the packet up to the interface's snap length, then padding.
        let held = match interface.snap_length {
            0 => block.packet_data().len(),
            limit => block.packet_data().len().min(limit as usize),
        };
        Ok(Record {
            nanoseconds: self.last,
            link: interface.link,
            wire_length: block.origlen,
            bytes: 12..12 + held,
            total: length,
        })
    }

    /// `[interface u16][drops u16][time u32, u32][held u32][on the wire u32][bytes, padding, options]`
    fn obsolete_packet(&self, length: usize) -> Result<Record, &'static str> {
        const DAMAGED: &str = "an obsolete packet block whose lengths contradict each other";
        let body = self
            .window
            .bytes()
            .get(8..length.saturating_sub(4))
            .ok_or(DAMAGED)?;
        let fixed = body.first_chunk::<20>().ok_or(DAMAGED)?;
        let word = |at: usize| self.u32_of([fixed[at], fixed[at + 1], fixed[at + 2], fixed[at + 3]]);
        let number = if self.is_big() {
            u16::from_be_bytes([fixed[0], fixed[1]])
        } else {
            u16::from_le_bytes([fixed[0], fixed[1]])
        };
        let interface = self.interface(u32::from(number))?;
        let held = word(12) as usize;
        if held > body.len() - 20 {
            return Err(DAMAGED);
        }
        let ticks = u64::from(word(4)) << 32 | u64::from(word(8));
        Ok(Record {
            nanoseconds: interface.ticks.nanoseconds(ticks, interface.offset),
            link: interface.link,
            wire_length: word(16).max(word(12)),
            bytes: 28..28 + held,
            total: length,
        })
    }

    #[inline]
    fn fill(&mut self, needed: usize) -> Result<bool, CaptureError> {
        self.window.fill(needed).map_err(|source| CaptureError::Read {
            path: self.path.clone(),
            offset: self.window.offset() + self.window.bytes().len() as u64,
            source,
        })
    }

    /// The file ends here: well, if nothing has begun.
    #[cold]
    fn end(&self) -> Result<Option<Record>, CaptureError> {
        if self.window.bytes().is_empty() {
            return Ok(None);
        }
        Err(CaptureError::Truncated {
            path: self.path.clone(),
            packet: self.packet + 1,
            offset: self.window.offset(),
        })
    }

    #[cold]
    fn damaged(&self, problem: impl std::fmt::Display) -> CaptureError {
        CaptureError::Damaged {
            path: self.path.clone(),
            packet: self.packet + 1,
            offset: self.window.offset(),
            problem: problem.to_string(),
        }
    }
}

impl<R: Read + Seek> Reader<R> {
    /// Back to the first record.
    pub fn rewind(&mut self) -> Result<(), CaptureError> {
        self.window.rewind().map_err(|source| CaptureError::Read {
            path: self.path.clone(),
            offset: 0,
            source,
        })?;
        self.current = 0;
        self.packet = 0;
        self.ended = false;
        self.begin()
    }
}

fn first_bytes(bytes: &[u8]) -> String {
    match bytes {
        [] => "nothing (it is empty)".into(),
        [0x1f, 0x8b, ..] => "1f 8b (gzip)".into(),
        [0x28, 0xb5, 0x2f, 0xfd, ..] => "28 b5 2f fd (zstd)".into(),
        _ => bytes
            .iter()
            .take(4)
            .map(|b| format!("{b:02x}"))
            .collect::<Vec<_>>()
            .join(" "),
    }
}
