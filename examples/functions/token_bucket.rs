//! A token bucket for each flow, each way: as many packets a second as the configuration says, and so many at once.

use nf::{ConfigError, Cx, FlowState, NetworkFunction, Packet, Time, Verdict, WorkerInfo, network_function};
use serde::Deserialize;
use std::sync::Arc;

/// A token, in shares that a nanosecond brings at a rate of one a second.
const TOKEN: u64 = 1_000_000_000;

/// The table `[function.token_bucket]` of the configuration.
#[derive(Deserialize, Clone, Copy, Debug)]
#[serde(deny_unknown_fields)]
pub struct TokenBucket {
    pub per_second: u64,
    pub burst: u64,
}

#[derive(FlowState, Default, Clone, Copy, Debug)]
#[repr(C)]
pub struct Buckets {
    filled: [Time; 2],
    tokens: [u64; 2],
}

#[network_function]
impl NetworkFunction for TokenBucket {
    const NAME: &'static str = "token_bucket";
    const REASONS: &'static [&'static str] = &["over_rate"];
    type Config = TokenBucket;
    type Flow = Buckets;

    fn new(config: &Arc<TokenBucket>, _worker: &WorkerInfo) -> Result<Self, ConfigError> {
        if config.burst == 0 {
            let problem = "no packet could ever pass";
            return Err(ConfigError::new("burst", problem, "write at least 1"));
        }
        Ok(**config)
    }

    fn process(&self, _packet: &mut Packet, flow: &mut Buckets, cx: &mut Cx<Self>) -> Verdict {
        let (way, now) = (cx.direction() as usize, cx.now());
        // A flow's first packet finds a full bucket: that it never was filled is long ago.
        let more = now
            .nanoseconds_since(flow.filled[way])
            .saturating_mul(self.per_second);
        let full = self.burst.saturating_mul(TOKEN);
        flow.tokens[way] = flow.tokens[way].saturating_add(more).min(full);
        flow.filled[way] = now;
        match flow.tokens[way].checked_sub(TOKEN) {
            None => cx.drop("over_rate"),
            Some(left) => {
                flow.tokens[way] = left;
                Verdict::Forward
            }
        }
    }
}
