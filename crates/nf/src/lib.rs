//! The contract between Flowkeep and the author of a network function.
//!
//! An author declares what a flow's state *is* and what happens to a packet. Where the state lives,
//! which worker has the flow and what happens when that worker dies is nothing the author writes.
//!
//! ```
//! use nf::{network_function, Cx, FlowState, NetworkFunction, NoConfig, Packet, Verdict, WorkerInfo, ConfigError};
//!
//! /// Counts the packets of each flow.
//! struct Counter;
//!
//! #[derive(FlowState, Default, Clone, Copy, Debug)]
//! #[repr(C)]
//! struct Seen {
//!     packets: u64,
//! }
//!
//! #[network_function]
//! impl NetworkFunction for Counter {
//!     const NAME: &'static str = "counter";
//!     const COUNTERS: &'static [&'static str] = &["packets"];
//!     type Config = NoConfig;
//!     type Flow = Seen;
//!     type Group = ();
//!
//!     fn new(_: &std::sync::Arc<NoConfig>, _: &WorkerInfo) -> Result<Self, ConfigError> {
//!         Ok(Counter)
//!     }
//!
//!     fn process(&self, _packet: &mut Packet, flow: &mut Seen, cx: &mut Cx<Self>) -> Verdict {
//!         flow.packets += 1;
//!         cx.count("packets");
//!         Verdict::Forward
//!     }
//! }
//! ```
//!
//! Variables ([`variables`]) are kept beyond a flow, an instance and, with a store, a process:
//! [`NetworkFunction::with_variables`].
//!
//! Objects ([`objects`]) are shared by flows at all runtimes: [`NetworkFunction::with_objects`].
//!
//! Not here: how any of this is run (`flowkeep-runtime`).
#![no_std]

extern crate alloc;
#[cfg(test)]
extern crate std;
// The derives name this crate `nf`, in here as anywhere.
extern crate self as nf;

pub mod by_hand;
pub mod check;
pub mod cx;
mod event;
pub mod file;
pub mod function;
pub mod name;
pub mod objects;
pub mod plain;
pub mod rate;
pub mod table;
pub mod time;
pub mod timer;
pub mod units;
mod waits;

pub use check::{Check, Probe};
pub use cx::{Block, Cx, Direction, Way};
pub use event::{Event, Field};
pub use file::TextFile;
pub use function::{
    Affinity, Arrival, BlockWas, Claim, ConfigError, Departure, FilePlace, Generation, Keep, Loan,
    NetworkFunction, NoConfig, PoolState, Reason, Recall, Verdict, WorkerInfo,
};
pub use name::{Listed, Name};
pub use nf_macros::{FlowState, Plain, network_function};
pub use plain::FlowState;
pub use rate::{Rate, TokenBucket, Window};
pub use table::{Adds, Row, Table};
pub use time::{Tick, Time};
pub use timer::TimerCx;
pub use units::{ByteSize, Period};
#[doc(no_inline)]
pub use variables;
pub use wire::packet::{Side, flag};
pub use wire::tcp::flags as tcp;
pub use wire::{Addr, Endpoint, FlowKey, Packet, Prefix, protocol};
