//! Runs a network function over a list of packets, in a test, on the runtime's real worker.
//!
//! ```
//! # use nf::{ConfigError, Cx, FlowState, NetworkFunction, NoConfig, Packet, Verdict, WorkerInfo, network_function};
//! # struct OneWay;
//! # #[derive(FlowState, Default, Clone, Copy, Debug)]
//! # #[repr(C)]
//! # struct Seen { packets: u64 }
//! # #[network_function]
//! # impl NetworkFunction for OneWay {
//! #     const NAME: &'static str = "one_way";
//! #     const COUNTERS: &'static [&'static str] = &["packets"];
//! #     const REASONS: &'static [&'static str] = &["from_outside"];
//! #     type Config = NoConfig;
//! #     type Flow = Seen;
//! #     type Group = ();
//! #     fn new(_: &std::sync::Arc<NoConfig>, _: &WorkerInfo) -> Result<Self, ConfigError> { Ok(OneWay) }
//! #     fn process(&self, _: &mut Packet, flow: &mut Seen, cx: &mut Cx<Self>) -> Verdict {
//! #         if cx.side() == nf::Side::Outside && cx.direction() == nf::Direction::Opening {
//! #             return cx.drop("from_outside");
//! #         }
//! #         flow.packets += 1;
//! #         cx.count("packets");
//! #         Verdict::Forward
//! #     }
//! # }
//! use flowkeep_testkit::{self as testkit, Fate::*, tcp, udp, wait};
//! use std::time::Duration;
//!
//! let web = tcp("10.0.0.1:1000", "192.0.2.1:80");
//! let out = testkit::run::<OneWay>(NoConfig {}, [
//!     web.syn(),
//!     web.reply().syn_ack(),
//!     wait(Duration::from_secs(1)),
//!     web.payload("GET / HTTP/1.0\r\n\r\n"),
//!     udp("198.51.100.7:53", "10.0.0.1:53").from_outside(),
//! ]);
//! out.assert_fates([Forwarded, Forwarded, Forwarded, Dropped("from_outside")]);
//! assert_eq!(out.counter("packets"), 3);
//! assert_eq!(out.flow(&web).field("packets"), "3");
//! assert_eq!(out.sent(0)[0].destination(), "192.0.2.1:80".parse().unwrap());
//! ```
//!
//! # Theory of operation
//! [`run`] makes a runtime of its own, with one chain of the one function, and plays the script's
//! steps to it: a packet is received and processed before the next one is made (`step.rs`), and a
//! [`wait`] moves the clock, so that timers run and calls that sleep go on. Nothing runs in the
//! background and nothing depends on the machine's clock: the same script gives the same
//! [`Outcome`].
//!
//! The function is wrapped in a watcher that writes down each verdict. After each step and at the
//! end the kit holds the runtime's books and the port's against those notes, whether or not the
//! test asks.
//!
//! # Invariants, checked in every run
//! - Packets in, and those the function emitted, are out, held or dropped; at the end none is held
//!   and every buffer is back.
//! - Verdicts are obeyed: a forwarded packet left on the other side, an answer left where its
//!   packet came in, a dropped packet did not leave and is counted under its reason.
//! - Every flow that arrived departed once.
//! - A `process_now` that declines has not touched the flow's state.
//! - No group is forgotten while it lives, as its function's `group_timeout` says, and its packets
//!   come.
//!
//! [`survives_migration`] plays a script to two runtimes between which the flows move, and
//! compares; [`survives_failure`] to two that fail, [`survives_change`] to two whose settings
//! change, and [`survives_expiry`] to a runtime that fails when all flows are over.
//!
//! Not here: threads, ports to the world (the tool runs those).

mod allocations;
mod build;
mod life;
mod link;
mod moving;
mod outcome;
mod play;
mod port;
mod sent;
mod step;
mod watch;

#[cfg(test)]
mod tests;

pub use allocations::{CountingAllocator, allocations};
pub use link::{Link, link};
pub use moving::{
    Migration, Survived, Way, failure, migration, survives_change, survives_expiry, survives_failure,
    survives_migration,
};
pub use outcome::{Fate, FlowFields, Outcome};
pub use play::{Setup, run, setup};
pub use runtime::replication::Policy;
pub use sent::Sent;
pub use step::{Step, answer, frame, frames, ping, tcp, udp, wait};

/// A function's configuration from TOML, as it would stand in the function's table.
///
/// # Panics
/// With the reader's words if the text is no configuration of the function.
#[track_caller]
pub fn config<F: nf::NetworkFunction>(text: &str) -> F::Config {
    match toml::from_str(text) {
        Ok(config) => config,
        Err(error) => panic!("this is no configuration of `{}`:\n{error}", F::NAME),
    }
}
