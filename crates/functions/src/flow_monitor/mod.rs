//! The flow monitor: counts each flow's packets and bytes, follows its connection, and writes a
//! record when it is over.
//!
//! It forwards every packet as it is. A record is one line of JSON in the event log, written when
//! the flow departs because it expired or the run ends; a flow that moves to another worker takes
//! its counts along and is written there.
//!
//! ```text
//!   t = 0.000  10.0.0.1:1024 > 192.0.2.1:80   SYN         74 bytes on the wire
//!   t = 0.010  192.0.2.1:80 > 10.0.0.1:1024   RST, ACK    60 bytes
//!   t = 5.010  nothing for `closed_timeout`: the flow departs
//!
//!   {"time":"1970-01-01T00:00:05.010000000Z","runtime":0,"function":"flow_monitor","event":"flow","protocol":"tcp","protocol_number":6,
//!    "orig":"10.0.0.1","orig_port":1024,"resp":"192.0.2.1","resp_port":80,"vlan":0,"start":0.000000000,
//!    "end":0.010000000,"orig_packets":1,"orig_bytes":74,"orig_ip_bytes":60,"orig_flags":"S","resp_packets":1,
//!    "resp_bytes":60,"resp_ip_bytes":40,"resp_flags":"RA","history":"Sr","state":"REJ","icmp_errors":0}
//! ```
//!
//! (one line; broken here to be read). The fields, in this order:
//!
//! | field | what it is |
//! |---|---|
//! | `time`, `runtime`, `function`, `event` | of the event log: when and where the line was written; `event` is `flow` |
//! | `protocol` | transport protocol by name (`tcp`, `udp`, `icmp`, `icmpv6`, `sctp`, …), or its number where it has none here |
//! | `protocol_number` | the number (IANA); of IPv6 the last Next Header |
//! | `orig`, `orig_port` | the end that sent the first packet, or that the first SYN,ACK was sent to: address, and port or ICMP identifier; 0 where there is none |
//! | `resp`, `resp_port` | the other end |
//! | `vlan` | identifier of the innermost 802.1Q tag; 0 without one |
//! | `start`, `end` | times of the earliest and the latest packet, as their port or capture stamped them, in seconds, nine places |
//! | `orig_packets`, `resp_packets` | packets that each end sent; every fragment is one |
//! | `orig_bytes`, `resp_bytes` | bytes of their frames as on the wire, link header included, whatever a capture cut off |
//! | `orig_ip_bytes`, `resp_ip_bytes` | bytes of their IP packets by the length in the header |
//! | `orig_flags`, `resp_flags` | TCP flags that were seen: letters of `FSRPAUEC` |
//! | `history` | things in the order in which they came, as Zeek's letters, upper case from `orig` (`history`, `connection`); empty for neither TCP nor UDP |
//! | `state` | how the connection went: `SF`, `S0`, `S1`, `S2`, `S3`, `REJ`, `RSTO`, `RSTR`, `RSTOS0`, `RSTRH`, `SH`, `SHR`, `OTH` (`connection::State`) |
//! | `icmp_errors` | ICMP errors that came with this flow because they quote it, up to 65535; they are in none of the counts above |
//!
//! The flow that a frame counts for. The IP header behind Ethernet, VLAN tags and PPPoE makes the
//! flow; the content of a tunnel (GRE, IP in IP, GTP, VXLAN) is its payload. Later fragments count
//! for the flow of their first one (the runtime tells their ports). An ICMP error is a packet
//! between its own addresses, with a record like any other, unless another function of the chains
//! wants it with the flow that it quotes ([`NetworkFunction::ICMP_ERRORS`]): then that flow's
//! record counts it in `icmp_errors`. A frame that the parser refuses is no flow's.
//!
//! Invariants: no packet is dropped or changed; the records' packets of one direction add up to
//! those that came in; one record per flow.
//!
//! Not here: sampling, export as IPFIX, and the payload (`http_parser`).
//!
//! Source: NFVactor (its flow monitor), Zeek's `conn.log`, RFC 7011 for what a flow is.

pub mod config;
pub mod connection;
pub mod history;
pub mod record;
pub mod state;
#[cfg(test)]
mod tests;

pub use config::{Config, Timeout};
pub use state::Flow;

use alloc::sync::Arc;
use core::time::Duration;
use nf::{ConfigError, Cx, Departure, Event, NetworkFunction, Packet, Verdict, WorkerInfo, network_function};
use record::Record;
use wire::packet::flag;

/// The timeout that `"none"` asks of the runtime: longer than any run, and still a number of
/// nanoseconds with room to spare.
const NEVER: Duration = Duration::from_secs(100 * 365 * 86_400);

/// The flow monitor of one runtime.
#[derive(Debug)]
pub struct FlowMonitor {
    idle: Duration,
    closed: Duration,
}

#[network_function]
impl NetworkFunction for FlowMonitor {
    const NAME: &'static str = "flow_monitor";
    const COUNTERS: &'static [&'static str] = &[
        /// Records that were written, one per flow.
        "records",
        /// ICMP errors about flows.
        "icmp_errors",
    ];
    const ICMP_ERRORS: bool = false;
    const EVENTS: &'static [Event] = &[Event::new(
        "flow",
        "A flow of which packets were seen is over.",
        record::FIELDS,
    )];
    type Config = Config;
    type Flow = Flow;
    type Group = ();

    fn new(config: &Arc<Config>, _: &WorkerInfo) -> Result<Self, ConfigError> {
        let idle = config.idle_timeout.duration().unwrap_or(NEVER);
        Ok(FlowMonitor {
            idle,
            closed: config.closed_timeout.duration().unwrap_or(idle).min(idle),
        })
    }

    fn process(&self, packet: &mut Packet, flow: &mut Flow, cx: &mut Cx<Self>) -> Verdict {
        if packet.has(flag::ICMP_ERROR) {
            flow.on_icmp_error();
            cx.count("icmp_errors");
        } else {
            flow.on_packet(packet, cx.direction());
        }
        Verdict::Forward
    }

    fn departed(&self, flow: &Flow, why: Departure, cx: &mut Cx<Self>) {
        // Of a flow whose packets a function before this one dropped, nothing is known: an error
        // about it is counted, and no record.
        let is_unseen = flow.packets == [0; 2];
        if why == Departure::Migrated || is_unseen {
            return;
        }
        let (key, ends) = (*cx.key(), cx.opened_by());
        cx.event(
            "flow",
            format_args!(
                "{}",
                Record {
                    key: &key,
                    ends,
                    flow
                }
            ),
        );
        cx.count("records");
    }

    fn timeout(&self, flow: &Flow) -> Option<Duration> {
        Some(if flow.connection.is_over() {
            self.closed
        } else {
            self.idle
        })
    }
}
