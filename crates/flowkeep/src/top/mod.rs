//! `flowkeep top`: the load of the cluster, second by second, on a terminal.
//!
//! # Theory of operation
//!
//! ```text
//!   every interval: figures ──(minus those before)──► Rates ──► a line of JSON, or a screen (screen.rs) on a terminal (terminal.rs)
//!   five times a second: some packets ──► which flows have most of them (busiest.rs)
//! ```
//!
//! The busiest flows are a sample: a capture with room for a hundred packets or so, fetched five
//! times a second. Packets that come while it is full are counted and let be, so it costs the
//! cluster the same at any rate.
//!
//! Not here: where the figures come from (`control`).

mod busiest;
pub mod job;
mod screen;
mod terminal;

#[cfg(test)]
mod tests;

pub use screen::render;

use crate::cluster::ThreadShare;
use crate::report::Status;
use crate::shape::Shape;
use schemars::JsonSchema;
use serde::Serialize;
use std::collections::BTreeMap;
use std::time::Duration;

/// Packets and bytes per second.
#[derive(Serialize, Clone, Copy, Debug, Default, PartialEq, JsonSchema)]
pub struct Rate {
    /// Packets per second.
    pub packets: f64,
    /// Bytes per second, link headers included.
    pub bytes: f64,
}

/// One runtime.
#[derive(Serialize, Clone, Debug, Default, PartialEq, JsonSchema)]
pub struct RuntimeRate {
    /// Its number.
    pub runtime: u16,
    /// Packets received per second.
    pub packets: f64,
    /// Packets dropped per second.
    pub dropped: f64,
    /// Flows begun per second.
    pub opened: f64,
    /// Flows now.
    pub flows: u64,
    /// Calls that wait now.
    pub waiting: u64,
}

/// One thread of workers.
#[derive(Serialize, Clone, Debug, Default, PartialEq, JsonSchema)]
pub struct ThreadRate {
    /// Its workers.
    pub workers: Vec<String>,
    /// Share of a processor, 1 being all of one.
    pub processor: f64,
}

/// One port.
#[derive(Serialize, Clone, Debug, Default, PartialEq, JsonSchema)]
pub struct PortRate {
    /// Its name.
    pub name: String,
    /// Received per second.
    pub r#in: Rate,
    /// Sent per second.
    pub out: Rate,
    /// Per second: frames that were no packets, that could not be sent, or that the kernel lost.
    pub failed: f64,
}

/// One of the busiest flows, estimated from a sample.
#[derive(Serialize, Clone, Debug, Default, PartialEq, JsonSchema)]
pub struct FlowRate {
    /// Its protocol.
    pub protocol: String,
    /// One end.
    pub source: String,
    /// The other.
    pub destination: String,
    /// Received per second, both directions together.
    pub r#in: Rate,
}

/// The load of the cluster in an interval.
#[derive(Serialize, Clone, Debug, Default, PartialEq, JsonSchema)]
pub struct Rates {
    /// How long it runs.
    pub uptime_seconds: f64,
    /// How long the interval was.
    pub interval_seconds: f64,
    /// In by all ports.
    pub r#in: Rate,
    /// Out by all ports.
    pub out: Rate,
    /// Dropped per second, by `function/reason`.
    pub dropped: BTreeMap<String, f64>,
    /// Flows now.
    pub flows: u64,
    /// The most flows there may be.
    pub flows_max: u64,
    /// Flows begun per second.
    pub flows_opened: f64,
    /// Flows over per second.
    pub flows_ended: f64,
    /// Packets held now.
    pub held: u64,
    /// Each runtime.
    pub runtimes: Vec<RuntimeRate>,
    /// Each thread.
    pub threads: Vec<ThreadRate>,
    /// Each port.
    pub ports: Vec<PortRate>,
    /// The functions' counters per second, by `function/counter`; counters that stand still are
    /// left out.
    pub counters: BTreeMap<String, f64>,
    /// The flows with the most packets, estimated.
    pub busiest: Vec<FlowRate>,
    /// Of how many packets the estimate is.
    pub busiest_of: u64,
}

impl Shape for Rates {
    const NAME: &'static str = "top";
}

/// Figures at one time.
#[derive(Clone, Debug, Default)]
pub struct TopSample {
    /// All but threads.
    pub status: Status,
    /// Threads.
    pub threads: Vec<ThreadShare>,
}

impl Rates {
    /// The load between two times, so far apart.
    pub fn between(before: &TopSample, after: &TopSample, apart: Duration) -> Self {
        let seconds = apart.as_secs_f64().max(1e-9);
        let per_second = |before: u64, after: u64| after.saturating_sub(before) as f64 / seconds;
        let (old, new) = (&before.status, &after.status);
        // A member that has not answered at one of the two times is in that one not at all.
        let ports = new.ports.iter().map(|port| {
            let is_same =
                |was: &&crate::report::PortStatus| was.name == port.name && was.member == port.member;
            let was = old.ports.iter().find(is_same).unwrap_or(port);
            let failed = |port: &crate::report::PortStatus| port.failed_packets + port.lost_packets;
            PortRate {
                name: port.name.clone(),
                r#in: Rate {
                    packets: per_second(was.received_packets, port.received_packets),
                    bytes: per_second(was.received_bytes, port.received_bytes),
                },
                out: Rate {
                    packets: per_second(was.sent_packets, port.sent_packets),
                    bytes: per_second(was.sent_bytes, port.sent_bytes),
                },
                failed: per_second(failed(was), failed(port)),
            }
        });
        let ports: Vec<PortRate> = ports.collect();
        let total = |of: fn(&PortRate) -> Rate| Rate {
            packets: ports.iter().map(|port| of(port).packets).sum(),
            bytes: ports.iter().map(|port| of(port).bytes).sum(),
        };
        let runtimes = new.runtimes.iter().map(|runtime| {
            let mut all = old.runtimes.iter();
            let was = all.find(|was| was.runtime == runtime.runtime).unwrap_or(runtime);
            RuntimeRate {
                runtime: runtime.runtime,
                packets: per_second(was.received, runtime.received),
                dropped: per_second(was.dropped, runtime.dropped),
                opened: per_second(was.opened, runtime.opened),
                flows: runtime.flows,
                waiting: runtime.waiting,
            }
        });
        let threads = after.threads.iter().map(|thread| {
            let mut all = before.threads.iter();
            let was = all.find(|was| was.workers == thread.workers).unwrap_or(thread);
            ThreadRate {
                workers: thread.workers.clone(),
                processor: per_second(was.cpu_ns, thread.cpu_ns) / 1e9,
            }
        });
        let moving = |old: &BTreeMap<String, u64>, new: &BTreeMap<String, u64>| {
            let rates = new.iter().map(|(name, count)| {
                let was = old.get(name).copied().unwrap_or(0);
                (name.clone(), per_second(was, *count))
            });
            rates.filter(|(_, rate)| *rate > 0.0).collect()
        };
        Rates {
            uptime_seconds: new.uptime_seconds,
            interval_seconds: seconds,
            r#in: total(|port| port.r#in),
            out: total(|port| port.out),
            dropped: moving(&old.packets.dropped, &new.packets.dropped),
            flows: new.flows.active,
            flows_max: new.flows.max,
            flows_opened: per_second(old.flows.opened, new.flows.opened),
            flows_ended: per_second(old.flows.ended, new.flows.ended),
            held: new.packets.held,
            runtimes: runtimes.collect(),
            threads: threads.collect(),
            counters: moving(&old.counters, &new.counters),
            ports,
            busiest: Vec::new(),
            busiest_of: 0,
        }
    }
}
