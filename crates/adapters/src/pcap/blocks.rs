//! pcapng: sections, interfaces and packet blocks to records.
//!
//! Theory of operation. A block says its type and length; a whole one is had at hand, and one of
//! the kinds that matter is parsed. A section header sets the byte order and forgets all
//! interfaces; an interface description adds one, with its link type and its clock; a packet block
//! refers to an interface by its number.
//!
//! ```text
//!   section │ interface 0: Ethernet, µs │ interface 1: raw, 2^-10 s │ packet of 1 │ packet of 0 │ …
//!           if_tsresol = 0x8a: 3584 ticks are 3.5 s
//! ```
//!
//! Not here: the window, errors and counting of packets (`reader`).
//!
//! Source: draft-ietf-opsawg-pcapng 3.1, 4.1 to 4.4, appendix A (obsolete packet block).

use super::error::CaptureError;
use super::reader::{BLOCK_MAX, Format, INTERFACES_MAX, Reader, Record};
use pcap_parser::traits::PcapNGPacketBlock;
use pcap_parser::{
    OptionCode, parse_enhancedpacketblock_be, parse_enhancedpacketblock_le,
    parse_interfacedescriptionblock_be, parse_interfacedescriptionblock_le, parse_sectionheaderblock,
    parse_simplepacketblock_be, parse_simplepacketblock_le,
};
use std::io::Read;
use wire::LinkType;

pub(super) const SECTION: u32 = 0x0a0d_0d0a;
const INTERFACE: u32 = 1;
const OBSOLETE_PACKET: u32 = 2;
const SIMPLE_PACKET: u32 = 3;
const ENHANCED_PACKET: u32 = 6;

#[derive(Clone, Copy)]
pub(super) struct Interface {
    link: Result<LinkType, u32>,
    snap_length: u32,
    ticks: Ticks,
    /// Seconds to be added to every time.
    offset: i64,
}

/// The unit of an interface's clock (option `if_tsresol`).
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

impl<R: Read> Reader<R> {
    pub(super) fn next_packet_block(&mut self) -> Result<Option<Record>, CaptureError> {
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

    /// Sees that the section holds with which the file begins. It is read again as the first block.
    #[cold]
    pub(super) fn first_section(&mut self) -> Result<(), CaptureError> {
        let problem = match self.block() {
            Ok(Some((_, length))) => match self.on_section(length) {
                Ok(()) => return Ok(()),
                Err(problem) => problem.to_owned(),
            },
            Ok(None) | Err(CaptureError::Truncated { .. }) => "it ends inside the file header".to_owned(),
            Err(CaptureError::Damaged { problem, .. }) => problem,
            Err(other) => return Err(other),
        };
        Err(self.header(problem))
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
        // The block does not say how much it holds: the packet up to the interface's snap length,
        // then padding.
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
}
