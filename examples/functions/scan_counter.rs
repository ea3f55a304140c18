//! A scan counter: a host outside that has tried three closed ports is let through to no open one,
//! until it has been quiet for a minute.

use nf::{Affinity, Cx, Direction, FlowState, NetworkFunction, Packet};
use nf::{Side, Time, Verdict, network_function};
use std::time::Duration;

const OPEN: [u16; 2] = [80, 443];
const TRIES_MAX: u64 = 3;
const QUIET: Duration = Duration::from_secs(60);

#[derive(Default)]
pub struct ScanCounter;

/// The state of a host outside: how many closed ports it has tried, and when it tried something
/// last.
#[derive(FlowState, Default, Clone, Copy, Debug)]
#[repr(C)]
pub struct Host {
    tries: u64,
    last: Time,
}

#[derive(FlowState, Default, Clone, Copy, Debug)]
#[repr(C)]
pub struct Flow {
    is_admitted: bool,
}

#[network_function]
impl NetworkFunction for ScanCounter {
    const NAME: &'static str = "scan_counter";
    const AFFINITY: Affinity = Affinity::OutsideAddress;
    type Flow = Flow;
    type Group = Host;

    fn process(&self, _packet: &mut Packet, flow: &mut Flow, cx: &mut Cx<Self>) -> Verdict {
        let is_from_inside = (cx.side() == Side::Inside) == (cx.direction() == Direction::Opening);
        if is_from_inside || flow.is_admitted {
            return Verdict::Forward;
        }
        let (port, now, host) = (cx.opened_by().1.port, cx.now(), cx.group());
        if now - host.last >= QUIET {
            *host = Host::default();
        }
        if host.tries < TRIES_MAX && OPEN.contains(&port) {
            flow.is_admitted = true;
            return Verdict::Forward;
        }
        (host.tries, host.last) = (host.tries + 1, now);
        match host.tries {
            ..=TRIES_MAX => {
                if host.tries == TRIES_MAX {
                    cx.count("scanners");
                }
                cx.drop("closed")
            }
            _ => cx.drop("scanner"),
        }
    }

    /// A try's flow ends with its first packet: the host is remembered without.
    fn group_timeout(&self, _: &Host) -> Duration {
        QUIET
    }
}
