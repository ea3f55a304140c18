//! A SYN limiter: so many connections a second may be opened to a host inside; what is beyond is dropped.

use nf::{Affinity, ConfigError, Cx, FlowState, NetworkFunction, NoConfig, Packet, Side, Time};
use nf::{Verdict, WorkerInfo, network_function};
use std::{sync::Arc, time::Duration};

const SYNS_MAX: u64 = 3;
const WINDOW: Duration = Duration::from_secs(1);
const SYN: u8 = 0x02;
const ACK: u8 = 0x10;

pub struct SynLimiter;

/// What is remembered of a host inside: how many SYNs came for it since when.
#[derive(FlowState, Default, Clone, Copy, Debug)]
#[repr(C)]
pub struct Host {
    since: Time,
    syns: u64,
}

#[network_function]
impl NetworkFunction for SynLimiter {
    const NAME: &'static str = "syn_limiter";
    const AFFINITY: Affinity = Affinity::InsideAddress;
    const COUNTERS: &'static [&'static str] = &["syns"];
    const REASONS: &'static [&'static str] = &["too_many_syns"];
    type Flow = ();
    type Group = Host;

    fn new(_config: &Arc<NoConfig>, _worker: &WorkerInfo) -> Result<Self, ConfigError> {
        Ok(SynLimiter)
    }

    fn process(&self, packet: &mut Packet, _flow: &mut (), cx: &mut Cx<Self>) -> Verdict {
        let is_syn = packet.tcp().is_some_and(|tcp| tcp.flags() & (SYN | ACK) == SYN);
        if !is_syn || cx.side() == Side::Inside {
            return Verdict::Forward;
        }
        cx.count("syns");
        let (now, host) = (cx.now(), cx.group());
        if now - host.since >= WINDOW {
            *host = Host { since: now, syns: 0 };
        }
        host.syns += 1;
        match host.syns <= SYNS_MAX {
            true => Verdict::Forward,
            false => cx.drop("too_many_syns"),
        }
    }

    /// SYNs count although their flows are over, or never were.
    fn group_timeout(&self, _: &Host) -> Duration {
        WINDOW
    }
}
