//! How long workers had something to do: the measure of scaling by load.
//!
//! Not here: how that is measured (`crate::run`).

use super::{Text, runtimes_of, switches_of};
use crate::cluster::Snapshot;

/// Of all workers.
pub(super) fn all(text: &mut Text, snapshot: &Snapshot) {
    let seconds = |nanoseconds: u64| nanoseconds as f64 / 1e9;
    let mut metric = text.counter(
        "runtime_busy_seconds",
        "Time of a runtime in steps that had something to do.",
    );
    for (number, runtime) in runtimes_of(snapshot) {
        metric.sample(&[("runtime", &number)], seconds(runtime.busy));
    }
    let mut metric = text.counter(
        "switch_busy_seconds",
        "Time of a switch in steps that had something to do.",
    );
    for (number, switch) in switches_of(snapshot) {
        metric.sample(&[("switch", &number)], seconds(switch.busy));
    }
}
