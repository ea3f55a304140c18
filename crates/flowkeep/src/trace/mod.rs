//! A flow's packets, step by step: the records, and how they are printed.
//!
//! Each step is a line of JSON, or of text under its packet's heading:
//!
//! ```text
//! #1  12:00:01.250000  tcp 10.0.0.1:40000 > 192.0.2.1:80 [S], 60 bytes
//!     switch 0   in by lan (inside)
//!                to runtime 1: no route yet, the least loaded
//!     runtime 1  launched a flow
//!                chain web, opening
//!                  firewall  forward
//!                  nat       forward  10.0.0.1:40000 > … becomes 198.51.100.1:1024 > …
//!                reply key: 198.51.100.1:1024 > 192.0.2.1:80
//!                leaves to outside
//!     switch 0   out by world
//! ```
//!
//! Packets that are inside at the same time are told apart: a packet is printed when it has left,
//! or has been dropped, or when nothing more is heard of it.
//!
//! Not here: where the steps come from (`runtime::watch`).

pub mod job;
mod text;

#[cfg(test)]
mod tests;

pub use text::Printer;
pub(crate) use text::time_of_day;

pub use crate::report::Ends;
use crate::shape::Shape;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The changes of a function.
#[derive(Serialize, Deserialize, Clone, Debug, PartialEq, Eq, JsonSchema)]
pub struct Change {
    /// Before it had the packet.
    pub before: Ends,
    /// Behind it.
    pub after: Ends,
}

/// One step of one packet.
#[derive(Serialize, Deserialize, Clone, Debug, PartialEq, Eq, JsonSchema)]
pub struct Step {
    /// The packet's number among the traced ones, from 1 on. Asked over the cluster: a packet has a
    /// number at each member.
    pub packet: u64,
    /// When, in nanoseconds since 1970.
    pub time_ns: u64,
    /// Where: `switch N` or `runtime N`.
    pub worker: String,
    /// Asked over the cluster: the member that has that worker.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub member: Option<String>,
    /// The event.
    #[serde(flatten)]
    pub event: Event,
}

impl Shape for Step {
    const NAME: &'static str = "flow-trace";
}

/// An event of a packet.
#[derive(Serialize, Deserialize, Clone, Debug, PartialEq, Eq, JsonSchema)]
#[serde(tag = "step", rename_all = "snake_case")]
pub enum Event {
    /// The packet came in.
    In {
        /// By this port.
        port: String,
        /// `inside` or `outside`.
        side: String,
        /// Its protocol.
        protocol: String,
        /// Its addresses.
        #[serde(flatten)]
        ends: Ends,
        /// TCP's flags, as letters.
        #[serde(skip_serializing_if = "Option::is_none", default)]
        tcp_flags: Option<String>,
        /// Bytes on the wire.
        length: u32,
        /// Whether it is an ICMP error that quotes the flow.
        is_error: bool,
    },
    /// To its group's home switch.
    HandedOver {
        /// That switch.
        to: u16,
    },
    /// To a runtime.
    Routed {
        /// Which.
        runtime: u16,
        /// `route`, `reply_key`, or the policy that chose.
        by: String,
    },
    /// The packet comes in once more, as if from outside (hairpin).
    Turned,
    /// Its flow.
    Flow {
        /// `found`, `launched`, `queued` (behind a call that waits) or `expired` (and opened
        /// again).
        is: String,
    },
    /// The packet enters a chain.
    Chain {
        /// Which.
        chain: String,
        /// `opening` or `reply`.
        direction: String,
        /// How many functions it has passed already.
        passed: u8,
    },
    /// A function has had it.
    Function {
        /// Which.
        function: String,
        /// `forward`, `drop`, `answer`, `consume` or `wait`.
        verdict: String,
        /// Of a drop.
        #[serde(skip_serializing_if = "Option::is_none", default)]
        reason: Option<String>,
        /// Whether the call had waited.
        resumed: bool,
        /// Its addresses, if they are others now.
        #[serde(skip_serializing_if = "Option::is_none", default)]
        changed: Option<Change>,
    },
    /// A function made it, beside the packet it had.
    Made {
        /// Which.
        function: String,
        /// `onward` or `back`.
        way: String,
    },
    /// The function that had consumed it lets it go.
    Released {
        /// Which.
        function: String,
    },
    /// The flow's replies have another key.
    ReplyKey {
        /// How its first packet left.
        #[serde(flatten)]
        ends: Ends,
    },
    /// The packet has left the chain.
    Leaves {
        /// To this side.
        side: String,
    },
    /// The packet left.
    Out {
        /// By this port.
        port: String,
        /// Its addresses.
        #[serde(flatten)]
        ends: Ends,
    },
    /// The packet was dropped.
    Dropped {
        /// By this function, or by the worker itself.
        function: Option<String>,
        /// Why.
        reason: String,
    },
}

impl Event {
    /// Whether nothing follows.
    pub fn is_last(&self) -> bool {
        matches!(self, Event::Out { .. } | Event::Dropped { .. })
    }
}
