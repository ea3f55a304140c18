//! Captures as ports: [`PcapInput`] reads one, [`PcapOutput`] writes one.
//!
//! ```text
//!   file ─► window ─► reader ─► PcapInput ─► worker ─► PcapOutput ─► writer ─► file
//!           bytes     records   timing,                buffering,    pcap or
//!                               rounds                 errors        pcapng
//! ```
//!
//! - `window`: a file through one large buffer.
//! - `reader`: pcap to records; `blocks`: pcapng to records.
//! - `input`: when a record becomes a packet.
//! - `writer`: packets to bytes.
//! - `output`: buffering, and what to do when the disk is full.
//!
//! Formats: draft-ietf-opsawg-pcap, draft-ietf-opsawg-pcapng, draft-ietf-opsawg-pcaplinktype.
//!
//! Not here: filters, and compressed captures.

mod blocks;
mod error;
mod input;
mod output;
mod reader;
mod window;
mod writer;

#[cfg(test)]
pub(crate) mod tests;

pub use error::CaptureError;
pub use input::{InputSettings, PcapInput, Rounds, Timing};
pub use output::PcapOutput;
pub use reader::{Reader, Record};
pub use writer::Format;
