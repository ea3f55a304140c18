//! pcap and pcapng to records: a time, a link type, a length on the wire, and where the bytes are.
//!
//! Theory of operation: the window has some of the file at hand; `pcap-parser` reads one record or
//! block of it; where it says "incomplete", more is read. A record's bytes are not copied: they
//! stay in the window until the next call.
//!
//! ```text
//!   pcap     header (24 B: byte order, µs or ns, link type), then  [seconds, fraction, held, on the wire][bytes] …
//!   pcapng   section header (byte order), then blocks: interface (link type, time resolution, offset) | packet | other
//! ```
//!
//! Read: pcap in both byte orders, with micro- and nanoseconds, and Kuznetzov's modified records
//! (24-byte record headers); pcapng with any number of sections and interfaces, each with its own
//! link type, time resolution and offset, as enhanced (EPB), simple (SPB) and obsolete (OPB) packet
//! blocks. Other blocks are skipped unread, so that damage in them does no harm.
//!
//! Invariants, whatever the file holds (property tests in `tests.rs`): no panic; memory is bounded
//! by [`BLOCK_MAX`] and [`INTERFACES_MAX`]; a file that is cut off or damaged gives all records
//! before that place and then one error that names it; after an error or the end nothing more
//! comes.
//!
//! Source: draft-ietf-opsawg-pcap, draft-ietf-opsawg-pcapng.

use super::blocks::{Interface, SECTION};
use super::error::CaptureError;
use super::window::{BUFFER, Window};
use crate::pipe;
use pcap_parser::nom::{Err as ParseFailure, IResult, Needed};
use pcap_parser::{
    LegacyPcapBlock, PcapError, parse_pcap_frame, parse_pcap_frame_be, parse_pcap_frame_modified,
    parse_pcap_header,
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

/// A packet as the capture has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// When it was captured, in nanoseconds since 1970. A simple packet block has no time: that of
    /// the one before it.
    pub nanoseconds: u64,
    /// Its link layer, `Err` with pcap's number of a link layer that Flowkeep does not read.
    pub link: Result<LinkType, u32>,
    /// Its length on the wire, in bytes.
    pub wire_length: u32,
    /// Where its bytes are, for [`Reader::frame`].
    pub(super) bytes: Range<usize>,
    /// How long record or block are, to go on.
    pub(super) total: usize,
}

/// Reads one capture from its beginning to its end.
pub struct Reader<R> {
    path: PathBuf,
    pub(super) window: Window<R>,
    pub(super) format: Option<Format>,
    /// Bytes of the window that the current record takes; the next call skips them.
    current: usize,
    packet: u64,
    pub(super) last: u64,
    ended: bool,
}

type ParseRecord = fn(&[u8]) -> IResult<&[u8], LegacyPcapBlock<'_>, PcapError<&[u8]>>;

pub(super) enum Format {
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

impl Reader<File> {
    /// Opens a capture.
    pub fn open(path: &Path) -> Result<Self, CaptureError> {
        let failed = |source| CaptureError::Open {
            path: path.to_owned(),
            source,
        };
        let file = pipe::open(path).map_err(failed)?;
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

    /// The same through a window of `buffer` bytes, which grows if a record is longer.
    pub fn with_buffer(source: R, path: PathBuf, buffer: usize) -> Result<Self, CaptureError> {
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
            return self.first_section();
        }
        let header = match parse_pcap_header(bytes) {
            Ok((_, header)) => header,
            Err(ParseFailure::Incomplete(_)) if !whole && bytes.len() >= 4 => {
                return Err(self.header("it ends inside the file header"));
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
        // The upper six bits say whether frames end with a check sequence (FCS), not which link
        // they are from.
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

    #[inline]
    pub(super) fn fill(&mut self, needed: usize) -> Result<bool, CaptureError> {
        self.window.fill(needed).map_err(|source| CaptureError::Read {
            path: self.path.clone(),
            offset: self.window.offset() + self.window.bytes().len() as u64,
            source,
        })
    }

    /// The file ends here: well, if nothing has begun.
    #[cold]
    pub(super) fn end(&self) -> Result<Option<Record>, CaptureError> {
        if self.window.bytes().is_empty() {
            return Ok(None);
        }
        Err(CaptureError::Truncated {
            path: self.path.clone(),
            packet: self.packet + 1,
            offset: self.window.offset(),
        })
    }

    /// No packet of the file can be read.
    #[cold]
    pub(super) fn header(&self, problem: impl std::fmt::Display) -> CaptureError {
        CaptureError::Header {
            path: self.path.clone(),
            problem: problem.to_string(),
        }
    }

    #[cold]
    pub(super) fn damaged(&self, problem: impl std::fmt::Display) -> CaptureError {
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
        self.last = 0;
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
