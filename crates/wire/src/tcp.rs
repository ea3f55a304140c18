//! A checked view of a TCP header (RFC 9293 3.1).

use crate::packet::Packet;
use crate::protocol;

/// TCP flag bits, as in the header's fourteenth byte.
pub mod flags {
    #![allow(missing_docs, reason = "the names are the header's")]
    pub const FIN: u8 = 1;
    pub const SYN: u8 = 2;
    pub const RST: u8 = 4;
    pub const PSH: u8 = 8;
    pub const ACK: u8 = 16;
    pub const URG: u8 = 32;
    pub const ECE: u8 = 64;
    pub const CWR: u8 = 128;
}

/// A TCP header of at least 20 bytes, with the options that the capture holds and the length of the data behind it.
#[derive(Clone, Copy)]
pub struct Tcp<'a> {
    fixed: &'a [u8; 20],
    options: &'a [u8],
    payload_length: u32,
}

impl Packet {
    /// The TCP header, if this is a TCP packet that holds its 20 fixed bytes (not a later fragment).
    #[inline]
    pub fn tcp(&self) -> Option<Tcp<'_>> {
        if self.protocol() != protocol::TCP || self.has(crate::packet::flag::LATER_FRAGMENT) {
            return None;
        }
        let segment = self.transport();
        let fixed: &[u8; 20] = segment.first_chunk()?;
        let length = usize::from(fixed[12] >> 4) * 4;
        // A capture cut short inside the options has only some of them; its data's length the IP header knows.
        let options = &segment[20..length.clamp(20, segment.len())];
        let payload_length = self.transport_length().saturating_sub(length as u32);
        Some(Tcp {
            fixed,
            options,
            payload_length,
        })
    }

    /// Bytes from the transport header to the packet's end by the IP header, whatever a capture cut off.
    #[inline]
    pub fn transport_length(&self) -> u32 {
        let header = self.network();
        let before = (self.transport_offset() - self.network_offset()) as u32;
        let total = match (self.version(), header) {
            (4, [_, _, high, low, ..]) => u32::from(u16::from_be_bytes([*high, *low])),
            (6, [_, _, _, _, high, low, ..]) => 40 + u32::from(u16::from_be_bytes([*high, *low])),
            _ => 0,
        };
        total.saturating_sub(before)
    }
}

impl<'a> Tcp<'a> {
    #[inline]
    fn u32_at(&self, at: usize) -> u32 {
        u32::from_be_bytes([
            self.fixed[at],
            self.fixed[at + 1],
            self.fixed[at + 2],
            self.fixed[at + 3],
        ])
    }

    /// Sequence number.
    #[inline]
    pub fn sequence(&self) -> u32 {
        self.u32_at(4)
    }

    /// Acknowledgement number; meaningful with the ACK flag.
    #[inline]
    pub fn acknowledgement(&self) -> u32 {
        self.u32_at(8)
    }

    /// Bits of [`flags`].
    #[inline]
    pub fn flags(&self) -> u8 {
        self.fixed[13]
    }

    /// The window field, not scaled.
    #[inline]
    pub fn window(&self) -> u16 {
        u16::from_be_bytes([self.fixed[14], self.fixed[15]])
    }

    /// Bytes of data behind the header, by the IP header's length.
    #[inline]
    pub fn payload_length(&self) -> u32 {
        self.payload_length
    }

    /// The options as they stand, padding included.
    #[inline]
    pub fn options(&self) -> &'a [u8] {
        self.options
    }

    /// The well-formed options in order, as kind and data; ends at the first that does not fit.
    pub fn each_option(&self) -> TcpOptions<'a> {
        TcpOptions { rest: self.options }
    }
}

/// Iterator over TCP options.
pub struct TcpOptions<'a> {
    rest: &'a [u8],
}

impl<'a> TcpOptions<'a> {
    /// The options in a header's option bytes.
    pub fn new(options: &'a [u8]) -> Self {
        TcpOptions { rest: options }
    }
}

impl<'a> Iterator for TcpOptions<'a> {
    type Item = (u8, &'a [u8]);
    fn next(&mut self) -> Option<Self::Item> {
        loop {
            match *self.rest {
                [] | [0, ..] => return None,
                [1, ref rest @ ..] => self.rest = rest,
                [kind, length, ..] => {
                    let length = usize::from(length);
                    let data = self.rest.get(2..length)?;
                    self.rest = &self.rest[length..];
                    return Some((kind, data));
                }
                [_] => return None,
            }
        }
    }
}
