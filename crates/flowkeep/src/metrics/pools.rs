//! How full functions' pools of blocks are, and how long they last.

use super::{Text, runtimes_of};
use crate::cluster::Snapshot;
use runtime::stats::PoolStats;

/// A figure of each pool: its name, its help, and where it is.
type Figure = (&'static str, &'static str, fn(&PoolStats) -> Option<f64>);

/// Pools of blocks of ports, by runtime and function.
pub(super) fn all(text: &mut Text, snapshot: &Snapshot) {
    let each: [Figure; 3] = [
        (
            "pool_blocks",
            "Blocks of external ports that are the runtime's own, free and in use.",
            |pool| Some(f64::from(pool.blocks)),
        ),
        (
            "pool_free_blocks",
            "Blocks of external ports that are free at the runtime, borrowed ones included.",
            |pool| Some(f64::from(pool.free)),
        ),
        (
            "pool_lasts_seconds",
            "Until no block is free, at the rate of the last two seconds; absent while no fewer become free.",
            |pool| pool.lasts_seconds,
        ),
    ];
    for (name, help, of) in each {
        let mut metric = text.gauge(name, help);
        for (number, runtime) in runtimes_of(snapshot) {
            for pool in &runtime.pools {
                if let Some(value) = of(pool) {
                    metric.sample(&[("runtime", &number), ("function", &pool.function)], value);
                }
            }
        }
    }
}
