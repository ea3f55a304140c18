//! Packets to the bytes of a capture.
//!
//! Two formats, chosen by the file's name, because a name should not lie about its content:
//!
//! - `pcap` (any name but `*.pcapng`): with nanoseconds; every reader there is reads it, but one
//!   file has one link type, that of its first packet.
//! - `pcapng`: one interface for each link type that occurs. tshark reads it all; tcpdump reads it
//!   as long as the link types are one.
//!
//! Written here and not by `pcap-file`: a record is 16 bytes and a copy, the output must know which
//! packets are still in its buffer when a write fails, and that library hands each field to the
//! file by itself and allocates per block.
//!
//! Source: draft-ietf-opsawg-pcap 4 and 5, draft-ietf-opsawg-pcapng 4.1 to 4.3.

use std::path::Path;
use wire::{LinkType, Packet};

/// The format of a capture that is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// pcap with nanoseconds.
    Pcap,
    /// pcapng with nanoseconds.
    PcapNg,
}

impl Format {
    /// By the file's name: `*.pcapng` is pcapng, anything else is pcap.
    pub fn of_name(path: &Path) -> Self {
        match path.extension() {
            Some(extension) if extension.eq_ignore_ascii_case("pcapng") => Format::PcapNg,
            _ => Format::Pcap,
        }
    }
}

/// No frame is longer (pcap's customary bound).
const SNAP_LENGTH: u32 = 262_144;

/// Turns packets into bytes; knows what the file already has.
pub(super) struct Encoder {
    format: Format,
    /// Interfaces described so far; of pcap, the one link type.
    links: Vec<LinkType>,
    begun: bool,
}

impl Encoder {
    pub(super) fn new(format: Format) -> Self {
        Encoder {
            format,
            links: Vec::new(),
            begun: false,
        }
    }

    /// Appends a packet to `out`; `false`, and nothing appended, if the file cannot hold its link
    /// type.
    #[inline]
    pub(super) fn append(&mut self, out: &mut Vec<u8>, packet: &Packet, nanoseconds: u64) -> bool {
        let Some(interface) = self.interface(out, packet.link()) else {
            return false;
        };
        let frame = packet.frame();
        let held = frame.len() as u32;
        let on_the_wire = packet.wire_length().max(held);
        match self.format {
            Format::Pcap => {
                let seconds = (nanoseconds / 1_000_000_000) as u32;
                put(
                    out,
                    &[seconds, (nanoseconds % 1_000_000_000) as u32, held, on_the_wire],
                );
                out.extend_from_slice(frame);
            }
            Format::PcapNg => {
                let padding = frame.len().next_multiple_of(4) - frame.len();
                let total = 32 + held + padding as u32;
                let (high, low) = ((nanoseconds >> 32) as u32, nanoseconds as u32);
                put(out, &[6, total, interface, high, low, held, on_the_wire]);
                out.extend_from_slice(frame);
                out.extend_from_slice(&[0; 3][..padding]);
                put(out, &[total]);
            }
        }
        true
    }

    /// Appends what even a capture without packets has, if it is not there yet.
    pub(super) fn begin(&mut self, out: &mut Vec<u8>) {
        match self.format {
            _ if self.begun => {}
            Format::Pcap => {
                self.interface(out, LinkType::Ethernet);
            }
            // Section header: byte order, version 1.0, length unknown.
            Format::PcapNg => put(out, &[0x0a0d_0d0a, 28, 0x1a2b_3c4d, 1, u32::MAX, u32::MAX, 28]),
        }
        self.begun = true;
    }

    /// The number of the interface with this link type, described where it is new.
    #[inline]
    fn interface(&mut self, out: &mut Vec<u8>, link: LinkType) -> Option<u32> {
        if let Some(index) = self.links.iter().position(|&known| known == link) {
            return Some(index as u32);
        }
        self.new_interface(out, link)
    }

    #[cold]
    fn new_interface(&mut self, out: &mut Vec<u8>, link: LinkType) -> Option<u32> {
        match self.format {
            Format::Pcap if self.begun => return None,
            Format::Pcap => {
                self.begun = true;
                // Magic of nanoseconds, version 2.4, two unused fields.
                put(
                    out,
                    &[0xa1b2_3c4d, 4 << 16 | 2, 0, 0, SNAP_LENGTH, link.to_pcap()],
                );
            }
            Format::PcapNg => {
                self.begin(out);
                // Options: if_tsresol (9), 1 byte, 10^-9; end of options.
                put(out, &[1, 32, link.to_pcap(), SNAP_LENGTH, 1 << 16 | 9, 9, 0, 32]);
            }
        }
        self.links.push(link);
        Some(self.links.len() as u32 - 1)
    }
}

/// Both formats say which byte order they have; ours is little-endian everywhere.
#[inline]
fn put(out: &mut Vec<u8>, words: &[u32]) {
    for word in words {
        out.extend_from_slice(&word.to_le_bytes());
    }
}
