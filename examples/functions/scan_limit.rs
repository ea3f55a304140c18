//! A scan limit over all runtimes: an inside host may open flows to twenty ports outside, wherever
//! its flows are processed; ports that it has reached stay open to it.

use nf::objects::{Ended, Objects, ObjectsHere, Shared, SharedObject};
use nf::{Addr, Adds, Row, Side, Table, network_function, row, variables::Variables};
use nf::{ConfigError, Cx, FlowState, NetworkFunction, NoConfig, Packet, Plain, Verdict, WorkerInfo};
use std::{cell::Cell, sync::Arc};

const TARGETS_MAX: usize = 20;

/// The object that flows of one host share: the ports outside that it has reached.
#[derive(Plain, Default, Clone, Copy, Debug)]
#[repr(C)]
pub struct Host {
    used: u64,
    targets: [u64; TARGETS_MAX],
}

impl SharedObject for Host {
    /// A target, as a number.
    type Call = u64;
    /// Whether it may be reached. To ask again changes nothing, so a lost answer can be asked for
    /// again.
    type Answer = bool;

    fn apply(&mut self, target: &u64) -> bool {
        let used = self.used as usize;
        let is_known = self.read(target);
        if !is_known && let Some(place) = self.targets.get_mut(used) {
            (*place, self.used) = (*target, self.used + 1);
        }
        is_known || used < TARGETS_MAX
    }

    fn read(&self, target: &u64) -> bool {
        self.targets
            .iter()
            .take(self.used as usize)
            .any(|known| known == target)
    }
}

pub struct ScanLimit {
    hosts: Shared<Host>,
    refused: Cell<u64>,
}

#[derive(FlowState, Default, Clone, Copy, Debug)]
#[repr(C)]
pub struct Flow {
    is_admitted: bool,
}

#[network_function]
impl NetworkFunction for ScanLimit {
    const NAME: &'static str = "scan_limit";
    const TABLES: &'static [Table] = &[Table {
        name: "hosts",
        columns: &[("host", Adds::Name), ("ports", Adds::Sum)],
        top: 20,
        metrics: &[],
    }];
    type Config = NoConfig;
    type Flow = Flow;

    fn with_objects(
        _: &Arc<NoConfig>,
        _: &WorkerInfo,
        _: &mut Variables,
        objects: &mut Objects<'_>,
    ) -> Result<Self, ConfigError> {
        let (hosts, refused) = (objects.open("hosts")?, Cell::new(0));
        Ok(ScanLimit { hosts, refused })
    }

    /// Packets of flows that are admitted wait for nothing.
    fn process_now(&self, _: &mut Packet, flow: &mut Flow, cx: &mut Cx<Self>) -> Option<Verdict> {
        (flow.is_admitted || cx.side() == Side::Outside).then_some(Verdict::Forward)
    }

    async fn process(&self, packet: &mut Packet, flow: &mut Flow, cx: &mut Cx<Self>) -> Verdict {
        let (key, target) = (*packet.source().addr.octets(), number(packet));
        let mut may = self.hosts.update(cx, &key, &target).await;
        if may == Err(Ended::Unknown) {
            may = self.hosts.update(cx, &key, &target).await;
        }
        match may {
            Ok(true) => {
                flow.is_admitted = true;
                Verdict::Forward
            }
            Ok(false) => {
                self.refused.set(self.refused.get() + 1);
                cx.drop("scanner")
            }
            Err(_) => cx.drop("unanswered"),
        }
    }

    /// `flowkeep function scan_limit hosts`: the hosts with the most ports. Each host's object is
    /// at one runtime.
    fn object_rows(&self, _: &str, _: usize, here: ObjectsHere<'_>) -> Vec<Row> {
        let hosts = here.iter(&self.hosts);
        let rows = hosts.filter_map(|(key, host)| Some(row![&*address(key)?, host.used]));
        rows.collect()
    }

    /// `flowkeep function scan_limit`: this runtime's refusals.
    fn command(&self, _: &[&str]) -> Result<String, String> {
        Ok(format!("refused {}", self.refused.get()))
    }
}

/// A host's address, of its object's key.
fn address(key: &[u8]) -> Option<String> {
    Some(Addr::v6(key.try_into().ok()?).to_string())
}

/// A port outside as a number (FNV-1a of 64 bits).
fn number(packet: &Packet) -> u64 {
    let end = packet.destination();
    let bytes = end.addr.octets().iter().copied().chain(end.port.to_be_bytes());
    bytes.fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}
