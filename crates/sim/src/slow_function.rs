//! A function that waits, for the scenario `slow`: functions that ship wait for neighbours only,
//! which no simulated host has.
//!
//! Some packets wait, once or twice, for up to three milliseconds, as their bytes say; the others
//! of their flow queue behind them. All are forwarded as they are.
//!
//! Not here: waiting itself (`runtime::worker::waiting`).

use nf::{ConfigError, Cx, NetworkFunction, NoConfig, Packet, Verdict, WorkerInfo, network_function};
use std::sync::Arc;
use std::time::Duration;

/// Waits with some packets.
pub struct SlowFunction;

#[network_function]
impl NetworkFunction for SlowFunction {
    const NAME: &'static str = "dawdler";
    const COUNTERS: &'static [&'static str] = &["waits_begun", "waits_over"];
    type Config = NoConfig;
    type Flow = ();
    type Group = ();

    fn new(_: &Arc<NoConfig>, _: &WorkerInfo) -> Result<Self, ConfigError> {
        Ok(SlowFunction)
    }

    async fn process(&self, packet: &mut Packet, _: &mut (), cx: &mut Cx<Self>) -> Verdict {
        // Behind the label (`frame::payload`) stands filler, which says how long.
        let Some(filler) = packet.payload().get(9..12) else {
            return Verdict::Forward;
        };
        let (whether, times, long) = (filler[0], filler[1] & 1, filler[2]);
        if whether < 64 {
            cx.count("waits_begun");
            for _ in 0..=times {
                cx.sleep(Duration::from_micros(100 + 12 * u64::from(long))).await;
            }
            cx.count("waits_over");
        }
        Verdict::Forward
    }
}
