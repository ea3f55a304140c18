//! Port knocking: a host outside may open port 22 for ten seconds after it has knocked at 7000,
//! 8000 and 9000, in this order.

use nf::{Affinity, Cx, Direction, FlowState, NetworkFunction, Packet};
use nf::{Side, Time, Verdict, network_function};
use std::time::Duration;

const KNOCKS: [u16; 3] = [7000, 8000, 9000];
const OPENS: u16 = 22;
const WINDOW: Duration = Duration::from_secs(10);

#[derive(Default)]
pub struct PortKnocking;

/// The state of a host outside: how many knocks were right, and when the last one came.
#[derive(FlowState, Default, Clone, Copy, Debug)]
#[repr(C)]
pub struct Host {
    right: u64,
    last: Time,
}

#[derive(FlowState, Default, Clone, Copy, Debug)]
#[repr(C)]
pub struct Flow {
    is_admitted: bool,
}

#[network_function]
impl NetworkFunction for PortKnocking {
    const NAME: &'static str = "port_knocking";
    const AFFINITY: Affinity = Affinity::OutsideAddress;
    type Flow = Flow;
    type Group = Host;

    fn process(&self, _packet: &mut Packet, flow: &mut Flow, cx: &mut Cx<Self>) -> Verdict {
        let is_from_inside = (cx.side() == Side::Inside) == (cx.direction() == Direction::Opening);
        if is_from_inside || flow.is_admitted {
            return Verdict::Forward;
        }
        let (port, now, host) = (cx.opened_by().1.port, cx.now(), cx.group());
        if now - host.last >= WINDOW {
            *host = Host::default();
        }
        let next = KNOCKS.get(host.right as usize);
        let before = KNOCKS.iter().take(host.right as usize).next_back();
        if next == Some(&port) {
            (host.right, host.last) = (host.right + 1, now);
            return cx.drop("knock");
        }
        if before == Some(&port) {
            // A knock that is sent again is the same knock.
            return cx.drop("knock");
        }
        if next.is_none() && port == OPENS {
            flow.is_admitted = true;
            return Verdict::Forward;
        }
        *host = Host::default();
        cx.drop("not_knocked")
    }

    fn timeout(&self, _: &Flow) -> Option<Duration> {
        Some(Duration::from_secs(3600))
    }

    /// A knock's flow ends with the knock: the host is remembered without.
    fn group_timeout(&self, _: &Host) -> Duration {
        WINDOW
    }
}
