//! State that derives nothing.

use nf::{ConfigError, Cx, NetworkFunction, NoConfig, Packet, Verdict, WorkerInfo, network_function};
use std::sync::Arc;

struct Counter;

#[derive(Default)]
struct Seen {
    packets: u64,
}

#[network_function]
impl NetworkFunction for Counter {
    const NAME: &'static str = "counter";
    type Config = NoConfig;
    type Flow = Seen;
    type Group = ();

    fn new(_: &Arc<NoConfig>, _: &WorkerInfo) -> Result<Self, ConfigError> {
        Ok(Counter)
    }

    fn process(&self, _packet: &mut Packet, _flow: &mut Seen, _cx: &mut Cx<Self>) -> Verdict {
        Verdict::Forward
    }
}

fn main() {}
