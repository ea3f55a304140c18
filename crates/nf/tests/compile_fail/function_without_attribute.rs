//! A `process` that does not wait, without the attribute that says so.

use nf::{ConfigError, Cx, NetworkFunction, NoConfig, Packet, Verdict, WorkerInfo};
use std::sync::Arc;

struct Counter;

impl NetworkFunction for Counter {
    const NAME: &'static str = "counter";
    type Config = NoConfig;
    type Flow = ();
    type Group = ();

    fn new(_: &Arc<NoConfig>, _: &WorkerInfo) -> Result<Self, ConfigError> {
        Ok(Counter)
    }

    fn process(&self, _packet: &mut Packet, _flow: &mut (), _cx: &mut Cx<Self>) -> Verdict {
        Verdict::Forward
    }
}

fn main() {}
