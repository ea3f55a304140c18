//! A mistake in the body is shown where it is.

use nf::{ConfigError, Cx, NetworkFunction, NoConfig, Packet, Verdict, WorkerInfo, network_function};
use std::sync::Arc;

struct Counter;

#[network_function]
impl NetworkFunction for Counter {
    const NAME: &'static str = "counter";
    type Config = NoConfig;
    type Flow = ();
    type Group = ();

    fn new(_: &Arc<NoConfig>, _: &WorkerInfo) -> Result<Self, ConfigError> {
        Ok(Counter)
    }

    fn process(&self, packet: &mut Packet, _flow: &mut (), _cx: &mut Cx<Self>) -> Verdict {
        if packet.ttl() == 0 {
            return;
        }
        Verdict::Forwards
    }
}

fn main() {}
