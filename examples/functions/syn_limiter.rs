//! A SYN limiter: so many connections a second may be opened to a host inside; further SYNs are
//! dropped.

use nf::tcp::{ACK, SYN};
use nf::{Affinity, Cx, FlowState, NetworkFunction, Packet, Side, Verdict, Window, network_function};
use std::time::Duration;

const SYNS_MAX: u64 = 3;
const WINDOW: Duration = Duration::from_secs(1);

#[derive(Default)]
pub struct SynLimiter;

/// The state of a host inside: how many SYNs came for it in this second.
#[derive(FlowState, Default, Clone, Copy, Debug)]
#[repr(C)]
pub struct Host {
    syns: Window,
}

#[network_function]
impl NetworkFunction for SynLimiter {
    const NAME: &'static str = "syn_limiter";
    const AFFINITY: Affinity = Affinity::InsideAddress;
    type Group = Host;

    fn process(&self, packet: &mut Packet, _flow: &mut (), cx: &mut Cx<Self>) -> Verdict {
        let is_syn = packet.tcp().is_some_and(|tcp| tcp.flags() & (SYN | ACK) == SYN);
        if !is_syn || cx.side() == Side::Inside {
            return Verdict::Forward;
        }
        cx.count("syns");
        let now = cx.now();
        match cx.group().syns.count(WINDOW, now) <= SYNS_MAX {
            true => Verdict::Forward,
            false => cx.drop("too_many_syns"),
        }
    }

    /// SYNs count although their flows are over, or never were.
    fn group_timeout(&self, _: &Host) -> Duration {
        WINDOW
    }
}
