//! A TCP segment's numbers, out of its packet, and what kind of segment they make.
//!
//! Example: flags SYN and ACK with sequence number 500 and no data are a [`Kind::SynAck`] that ends
//! at 501, since SYN takes a sequence number of its own.
//!
//! Not here: reading headers (`wire`), judging segments (`tcp`).
//!
//! Source: RFC 9293 3.1, 3.4.

use wire::tcp::{Tcp, TcpOptions, flags};

/// A segment's kind to the state machine.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Kind {
    /// SYN without ACK.
    Syn = 0,
    /// SYN and ACK.
    SynAck,
    /// FIN (with ACK, or the flags are not valid).
    Fin,
    /// ACK alone.
    Ack,
    /// RST.
    Rst,
    /// No kind: no valid segment of a connection.
    None,
}

/// A TCP segment's numbers, out of its packet.
#[derive(Clone, Copy, Debug)]
pub struct Segment<'a> {
    /// Sequence number.
    pub seq: u32,
    /// Acknowledgement number.
    pub ack: u32,
    /// Bits of [`flags`].
    pub flags: u8,
    /// Window field, not scaled.
    pub window: u16,
    /// Bytes of data.
    pub length: u32,
    /// Options as they stand.
    pub options: &'a [u8],
}

impl<'a> From<Tcp<'a>> for Segment<'a> {
    fn from(tcp: Tcp<'a>) -> Self {
        Segment {
            seq: tcp.sequence(),
            ack: tcp.acknowledgement(),
            flags: tcp.flags(),
            window: tcp.window(),
            length: tcp.payload_length(),
            options: tcp.options(),
        }
    }
}

impl<'a> Segment<'a> {
    /// Its kind to the state machine.
    pub fn kind(&self) -> Kind {
        match self.flags {
            f if f & flags::RST != 0 => Kind::Rst,
            f if f & flags::SYN != 0 && f & flags::ACK != 0 => Kind::SynAck,
            f if f & flags::SYN != 0 => Kind::Syn,
            f if f & flags::FIN != 0 => Kind::Fin,
            f if f & flags::ACK != 0 => Kind::Ack,
            _ => Kind::None,
        }
    }

    /// Whether the flags make sense together. PSH, ECE and CWR go with anything; SYN excludes FIN
    /// and RST, RST excludes FIN, and a segment that is neither SYN nor RST acknowledges (RFC 9293
    /// 3.5.2, 3.10.7).
    pub fn has_valid_flags(&self) -> bool {
        let bits = self.flags & (flags::FIN | flags::SYN | flags::RST | flags::ACK);
        if bits & (flags::SYN | flags::RST) != 0 {
            return self.flags & flags::URG == 0 && matches!(bits & !flags::ACK, flags::SYN | flags::RST)
                || bits == flags::SYN;
        }
        bits & flags::ACK != 0
    }

    /// Behind the last sequence number it takes: SYN and FIN count as one each.
    #[inline]
    pub fn end(&self) -> u32 {
        self.seq
            .wrapping_add(self.length)
            .wrapping_add(u32::from(self.has(flags::SYN)))
            .wrapping_add(u32::from(self.has(flags::FIN)))
    }

    /// Whether any of the flags is set.
    #[inline]
    pub fn has(&self, flags: u8) -> bool {
        self.flags & flags != 0
    }

    /// The well-formed options.
    pub fn each_option(&self) -> TcpOptions<'a> {
        TcpOptions::new(self.options)
    }
}
