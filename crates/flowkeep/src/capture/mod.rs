//! Packets of the running cluster as a capture.
//!
//! # Theory of operation
//!
//! ```text
//!   EXPR ─expression.rs: tcpdump -ddd─► programs ──request──► workers judge and copy (runtime::watch)
//!                                                                      │ every few milliseconds
//!   file ◄─pcapng.rs── frames ◄──────────────answers───────────────────┘
//!   terminal ◄─lines.rs─┘
//! ```
//!
//! A packet is captured where a port brings it (*in*), where a port takes it (*out*), and where it
//! is dropped (*drop*, with the reason). A dropped packet is as it was when it was dropped, perhaps
//! translated already; it belongs to the port it came in by. Packets that the cluster had no room
//! for are counted; the number is told at the end, and stands in the file.
//!
//! Not here: packets that a port itself loses, which no worker sees (`flowkeep status` has the
//! figures).

mod expression;
pub mod job;
mod lines;
mod pcapng;

#[cfg(test)]
mod tests;

pub use expression::compile;
pub use lines::Lines;
pub use pcapng::Writer;

use serde::{Deserialize, Serialize};

/// An instruction of a filter, as `tcpdump -ddd` prints it.
#[derive(Serialize, Deserialize, Clone, Copy, Debug, PartialEq, Eq)]
pub struct Instruction(pub u16, pub u8, pub u8, pub u32);

impl From<Instruction> for runtime::watch::bpf::Instruction {
    fn from(Instruction(code, if_true, if_false, k): Instruction) -> Self {
        runtime::watch::bpf::Instruction {
            code,
            if_true,
            if_false,
            k,
        }
    }
}

/// Which packets are wanted.
#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq)]
#[serde(deny_unknown_fields)]
pub struct Wanted {
    /// Packets that ports bring.
    pub incoming: bool,
    /// Packets that ports take.
    pub outgoing: bool,
    /// Packets that are dropped.
    pub dropped: bool,
    /// By link type (pcap's number), the program that a frame must pass; link types that are not
    /// there want nothing.
    pub filter: Option<Vec<(u32, Vec<Instruction>)>>,
    /// Bytes of a frame that are kept.
    pub snap_length: u32,
    /// Memory in all, in bytes.
    pub buffer_bytes: Option<u64>,
}

/// Where a packet was captured.
#[derive(Serialize, Deserialize, Clone, Copy, Debug, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
pub enum CapturePoint {
    /// A port brought it.
    In,
    /// A port took it.
    Out,
    /// The packet was dropped.
    Drop,
}

/// A captured packet.
#[derive(Serialize, Deserialize, Clone, Debug, PartialEq, Eq)]
pub struct Frame {
    /// When, in nanoseconds since 1970.
    pub time_ns: u64,
    /// By which port, by its number.
    pub port: u8,
    /// Its link type, pcap's number.
    pub link: u32,
    /// Where.
    pub place: CapturePoint,
    /// Of a drop: `function: reason`, or the reason alone where Flowkeep itself dropped.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub reason: Option<String>,
    /// Bytes on the wire.
    pub length: u32,
    /// The frame.
    pub bytes: Hex,
    /// Asked over the cluster: the member that has seen it.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub member: Option<String>,
}

/// Bytes that are text on their way.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Hex(pub Vec<u8>);

impl Serialize for Hex {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        const DIGITS: &[u8; 16] = b"0123456789abcdef";
        let digits = self.0.iter().flat_map(|byte| [byte >> 4, byte & 15]);
        let text: String = digits
            .map(|digit| char::from(DIGITS[usize::from(digit)]))
            .collect();
        serializer.serialize_str(&text)
    }
}

impl<'de> Deserialize<'de> for Hex {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = std::borrow::Cow::<str>::deserialize(deserializer)?;
        let digit = |digit: u8| char::from(digit).to_digit(16).map(|digit| digit as u8);
        let pairs = text.as_bytes().chunks(2).map(|pair| match pair {
            [high, low] => Some(digit(*high)? << 4 | digit(*low)?),
            _ => None,
        });
        let bytes = pairs.collect::<Option<Vec<u8>>>();
        bytes
            .map(Hex)
            .ok_or_else(|| serde::de::Error::custom("these are no pairs of hexadecimal digits"))
    }
}
