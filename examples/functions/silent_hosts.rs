//! Silent hosts: an inside host from which nothing has come for a minute is told, once, until it
//! sends again. A timer tells it, no packet. Each runtime watches the hosts whose packets it sees:
//! a host that moves to another one is told at the first.

use nf::variables::{Map, Options, Timers, Variables};
use nf::{Affinity, Side, network_function};
use nf::{ConfigError, Cx, NetworkFunction, NoConfig, Packet, TimerCx, Verdict, WorkerInfo};
use std::net::IpAddr;
use std::sync::Arc;

const SILENT_MS: u64 = 60_000;

/// Of each host when it sent last, and when that is looked at. With a store both outlast the
/// process.
pub struct SilentHosts {
    last: Map<IpAddr, u64>,
    looks: Timers<IpAddr, ()>,
}

#[network_function]
impl NetworkFunction for SilentHosts {
    const NAME: &'static str = "silent_hosts";
    const AFFINITY: Affinity = Affinity::InsideAddress;

    fn with_variables(
        _: &Arc<NoConfig>,
        _: &WorkerInfo,
        variables: &mut Variables,
    ) -> Result<Self, ConfigError> {
        let options = Options::default();
        let (last, looks) = (
            variables.map("last", options)?,
            variables.timers("looks", options)?,
        );
        Ok(SilentHosts { last, looks })
    }

    fn process(&self, packet: &mut Packet, _: &mut (), cx: &mut Cx<Self>) -> Verdict {
        if cx.side() == Side::Inside {
            let (host, now) = (packet.source().addr.to_ip(), cx.wall_ms());
            // Its timer is armed once. A packet writes down that it came.
            let armed = match self.last.insert(&host, now) {
                Ok(None) => self.looks.arm(&host, now + SILENT_MS, ()),
                other => other.map(drop),
            };
            if armed.is_err() {
                cx.count("unwatched");
            }
        }
        Verdict::Forward
    }

    fn next_timer(&self) -> Option<u64> {
        self.looks.next_at()
    }

    fn timer_due(&self, cx: &mut TimerCx<Self>) {
        let Some((host, ())) = self.looks.fire(cx.wall_ms()) else {
            return;
        };
        let until = self.last.get(&host).unwrap_or(0) + SILENT_MS;
        if until > cx.wall_ms() {
            // There is room: it has just been taken out.
            let _ = self.looks.arm(&host, until, ());
            return;
        }
        let _ = self.last.remove(&host);
        cx.count("silent");
        cx.event("silent", format_args!("\"host\":\"{host}\""));
    }
}
