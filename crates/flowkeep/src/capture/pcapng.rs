//! Captured packets as pcapng: ports are interfaces, drop reasons are comments.
//!
//! ```text
//!   section │ interface "lan" │ packet of it │ interface "wan" │ packet │ … │ statistics of "lan" │ statistics of "wan"
//! ```
//!
//! An interface is described where its first packet comes: one for each port and link type. At the
//! end each has a block that says how many packets were wanted there and for how many there was no
//! room. `adapters` writes captures as well, but of ports: without names, directions and comments.
//!
//! Source: draft-ietf-opsawg-pcapng 4.1 to 4.3, 4.6.

use super::{CapturePoint, Frame};
use std::collections::BTreeMap;
use std::io::{self, Write};

/// No frame is longer (pcap's customary bound); of all interfaces alike, as tcpdump demands.
const SNAP_LENGTH: u32 = 262_144;
/// A comment's length is 16 bits.
const TEXT_MAX: usize = 4096;

// Options.
const END: u16 = 0;
const COMMENT: u16 = 1;
const IF_NAME: u16 = 2;
const IF_TSRESOL: u16 = 9;
const EPB_FLAGS: u16 = 2;
const SHB_USERAPPL: u16 = 4;
const ISB_IFRECV: u16 = 4;
const ISB_IFDROP: u16 = 5;

struct Interface {
    port: u8,
    link: u32,
    received: u64,
}

/// Writes a capture.
pub struct Writer<W: Write> {
    out: W,
    ports: Vec<String>,
    interfaces: Vec<Interface>,
    lost: BTreeMap<u8, u64>,
    last_ns: u64,
}

impl<W: Write> Writer<W> {
    /// Begins a capture of ports with these names.
    pub fn new(mut out: W, ports: Vec<String>) -> io::Result<Self> {
        let mut body = Vec::new();
        for word in [0x1a2b_3c4d_u32, 1, u32::MAX, u32::MAX] {
            body.extend_from_slice(&word.to_le_bytes());
        }
        option(&mut body, SHB_USERAPPL, b"flowkeep");
        option(&mut body, END, &[]);
        block(&mut out, 0x0a0d_0d0a, &body)?;
        Ok(Writer {
            out,
            ports,
            interfaces: Vec::new(),
            lost: BTreeMap::new(),
            last_ns: 0,
        })
    }

    /// Adds a packet.
    pub fn write(&mut self, frame: &Frame) -> io::Result<()> {
        let interface = self.interface(frame.port, frame.link)?;
        self.interfaces[interface].received += 1;
        self.last_ns = self.last_ns.max(frame.time_ns);
        let bytes = &frame.bytes.0;
        let mut body = Vec::with_capacity(bytes.len() + 64);
        let words = [
            interface as u32,
            (frame.time_ns >> 32) as u32,
            frame.time_ns as u32,
            bytes.len() as u32,
            frame.length.max(bytes.len() as u32),
        ];
        words
            .iter()
            .for_each(|word| body.extend_from_slice(&word.to_le_bytes()));
        padded(&mut body, bytes);
        if let Some(reason) = &frame.reason {
            option(&mut body, COMMENT, reason.as_bytes());
        }
        if let Some(member) = &frame.member {
            option(&mut body, COMMENT, format!("seen by member {member}").as_bytes());
        }
        // Inbound or outbound; a dropped packet had come in.
        let direction = match frame.place {
            CapturePoint::In | CapturePoint::Drop => 1_u32,
            CapturePoint::Out => 2,
        };
        option(&mut body, EPB_FLAGS, &direction.to_le_bytes());
        option(&mut body, END, &[]);
        block(&mut self.out, 6, &body)
    }

    /// So many more wanted packets of a port had no room.
    pub fn lose(&mut self, port: u8, count: u64) {
        *self.lost.entry(port).or_default() += count;
    }

    /// Ends the capture, with each interface's figures.
    pub fn finish(mut self) -> io::Result<W> {
        let lost = std::mem::take(&mut self.lost);
        for port in lost.keys() {
            if !self.interfaces.iter().any(|interface| interface.port == *port) {
                // The file has only the number of its lost packets.
                self.interface(*port, 1)?;
            }
        }
        let mut told = std::collections::BTreeSet::new();
        for (number, interface) in self.interfaces.iter().enumerate() {
            // Which of a port's link types the lost ones had is not known: they stand with the
            // first.
            let lost = lost.get(&interface.port).filter(|_| told.insert(interface.port));
            let lost = lost.copied().unwrap_or(0);
            let mut body = Vec::new();
            for word in [number as u32, (self.last_ns >> 32) as u32, self.last_ns as u32] {
                body.extend_from_slice(&word.to_le_bytes());
            }
            option(&mut body, ISB_IFRECV, &(interface.received + lost).to_le_bytes());
            option(&mut body, ISB_IFDROP, &lost.to_le_bytes());
            option(&mut body, END, &[]);
            block(&mut self.out, 5, &body)?;
        }
        self.out.flush()?;
        Ok(self.out)
    }

    /// Writes out the buffered bytes.
    pub fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }

    /// The number of an interface, described where it is new.
    fn interface(&mut self, port: u8, link: u32) -> io::Result<usize> {
        let same = |interface: &Interface| interface.port == port && interface.link == link;
        if let Some(number) = self.interfaces.iter().position(same) {
            return Ok(number);
        }
        let name = self.ports.get(usize::from(port)).cloned();
        let name = name.unwrap_or_else(|| format!("port {port}"));
        let mut body = Vec::new();
        body.extend_from_slice(&(link as u16).to_le_bytes());
        body.extend_from_slice(&[0, 0]);
        body.extend_from_slice(&SNAP_LENGTH.to_le_bytes());
        option(&mut body, IF_NAME, name.as_bytes());
        option(&mut body, IF_TSRESOL, &[9]);
        option(&mut body, END, &[]);
        block(&mut self.out, 1, &body)?;
        self.interfaces.push(Interface {
            port,
            link,
            received: 0,
        });
        Ok(self.interfaces.len() - 1)
    }
}

fn padded(body: &mut Vec<u8>, bytes: &[u8]) {
    body.extend_from_slice(bytes);
    body.resize(body.len().next_multiple_of(4), 0);
}

fn option(body: &mut Vec<u8>, code: u16, value: &[u8]) {
    let value = &value[..value.len().min(TEXT_MAX)];
    body.extend_from_slice(&code.to_le_bytes());
    body.extend_from_slice(&(value.len() as u16).to_le_bytes());
    padded(body, value);
}

/// All bodies are multiples of four bytes.
fn block(out: &mut impl Write, kind: u32, body: &[u8]) -> io::Result<()> {
    let total = (12 + body.len() as u32).to_le_bytes();
    out.write_all(&kind.to_le_bytes())?;
    out.write_all(&total)?;
    out.write_all(body)?;
    out.write_all(&total)
}
