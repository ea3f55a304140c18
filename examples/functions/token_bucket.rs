//! A token bucket for each flow, each way: as many packets a second as the configuration says, and
//! so many at once.

use nf::{ConfigError, Cx, FlowState, NetworkFunction, Packet, Rate, TokenBucket};
use nf::{Verdict, WorkerInfo, network_function};
use std::sync::Arc;

pub struct FlowRate(Rate);

#[derive(FlowState, Default, Clone, Copy, Debug)]
#[repr(C)]
pub struct Buckets {
    ways: [TokenBucket; 2],
}

#[network_function]
impl NetworkFunction for FlowRate {
    const NAME: &'static str = "token_bucket";
    type Config = Rate;
    type Flow = Buckets;

    fn new(config: &Arc<Rate>, _worker: &WorkerInfo) -> Result<Self, ConfigError> {
        if config.burst == 0 {
            let problem = "no packet could ever pass";
            return Err(ConfigError::new("burst", problem, "write at least 1"));
        }
        Ok(FlowRate(**config))
    }

    fn process(&self, _packet: &mut Packet, flow: &mut Buckets, cx: &mut Cx<Self>) -> Verdict {
        let (way, now) = (cx.direction() as usize, cx.now());
        match flow.ways[way].take(self.0, now) {
            true => Verdict::Forward,
            false => cx.drop("over_rate"),
        }
    }
}
