//! A function that shares objects of each kind with all runtimes, and says their content.

use nf::objects::{Objects, ObjectsHere, Shared, SharedObject, Single, SingleWriter};
use nf::{
    Adds, ConfigError, Cx, FlowState, NetworkFunction, NoConfig, Packet, Plain, Row, Table, Verdict,
    WorkerInfo, network_function, row, variables::Variables,
};
use std::cell::Cell;
use std::sync::Arc;
use std::time::Duration;

#[derive(Plain, Default, Clone, Copy, Debug)]
#[repr(C)]
pub struct Count {
    packets: u64,
}

impl SharedObject for Count {
    type Call = u64;
    type Answer = u64;
    fn apply(&mut self, by: &u64) -> u64 {
        self.packets += by;
        self.packets
    }
    fn read(&self, _: &u64) -> u64 {
        self.packets
    }
    fn merge(earlier: &mut u64, later: &u64) -> bool {
        *earlier += later;
        true
    }
}

impl SingleWriter for Count {
    type Call = u64;
    type Answer = u64;
    fn read(&self, _: &u64) -> u64 {
        self.packets
    }
}

/// Ends when it was not used for long.
#[derive(Plain, Default, Clone, Copy, Debug)]
#[repr(C)]
pub struct Brief {
    flows: u64,
}

impl SharedObject for Brief {
    const IDLE: Option<Duration> = Some(Duration::from_secs(2));
    type Call = u64;
    type Answer = u64;
    fn apply(&mut self, by: &u64) -> u64 {
        self.flows += by;
        self.flows
    }
    fn read(&self, _: &u64) -> u64 {
        self.flows
    }
}

/// Counts each packet in a count merged with others', and one of so many in place; reads both
/// counts now and then. A flow's first packet is counted at its host, which is forgotten soon.
pub struct Tally {
    merged: Shared<Count>,
    owned: Single<Count>,
    brief: Shared<Brief>,
    seen: [Cell<u64>; 2],
}

#[derive(FlowState, Default, Clone, Copy, Debug)]
#[repr(C)]
pub struct Flow {
    packets: u64,
}

/// An object that all runtimes want goes from one to the next for each: more would be more than it
/// can.
const ONE_IN: u64 = 100;

#[network_function]
impl NetworkFunction for Tally {
    const NAME: &'static str = "tally";
    const COUNTERS: &'static [&'static str] = &["merged", "owned"];
    const TABLES: &'static [Table] = &[Table {
        name: "objects",
        columns: &[("kind", Adds::Name), ("count", Adds::Sum)],
        top: 0,
        metrics: &[],
    }];
    type Config = NoConfig;
    type Flow = Flow;
    type Group = ();

    fn with_objects(
        _: &Arc<NoConfig>,
        _: &WorkerInfo,
        _: &mut Variables,
        objects: &mut Objects<'_>,
    ) -> Result<Self, ConfigError> {
        Ok(Tally {
            merged: objects.open("merged")?,
            owned: objects.open_single("owned")?,
            brief: objects.open("brief")?,
            seen: Default::default(),
        })
    }

    async fn process(&self, packet: &mut Packet, flow: &mut Flow, cx: &mut Cx<Self>) -> Verdict {
        flow.packets += 1;
        if flow.packets == 1 {
            let host = *packet.source().addr.octets();
            let _ = self.brief.send(&host, &1);
        }
        if self.merged.merge(b"all", &1).is_ok() {
            cx.count("merged");
        }
        if flow.packets % ONE_IN == 1 {
            if let Ok(mut held) = self.owned.get(cx, b"all").await {
                held.packets += 1;
                if held.release(cx).await.is_ok() {
                    cx.count("owned");
                }
            }
            if let Ok(count) = self.merged.read(cx, b"all", &0, Duration::ZERO).await {
                self.seen[0].set(count.max(self.seen[0].get()));
            }
            if let Ok(count) = self.owned.read(cx, b"all", &0, Duration::ZERO).await {
                self.seen[1].set(count.max(self.seen[1].get()));
            }
        }
        Verdict::Forward
    }

    fn object_rows(&self, _: &str, _: usize, here: ObjectsHere<'_>) -> Vec<Row> {
        let merged = here
            .iter(&self.merged)
            .map(|(_, count)| ("merged", count.packets));
        let owned = here.iter(&self.owned).map(|(_, count)| ("owned", count.packets));
        let brief = here.iter(&self.brief).map(|(_, host)| ("brief", host.flows));
        let all = merged.chain(owned).chain(brief);
        all.map(|(kind, count)| row![kind, count]).collect()
    }

    fn command(&self, _: &[&str]) -> Result<String, String> {
        Ok(format!("{} {}", self.seen[0].get(), self.seen[1].get()))
    }
}
