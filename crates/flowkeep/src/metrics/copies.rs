//! Copies of flows at other runtimes: how many, whether all flows have one, and how many flows went
//! on.

use super::{Text, runtimes_of};
use crate::cluster::Snapshot;
use std::time::Duration;

/// Writes them.
pub fn write(text: &mut Text, snapshot: &Snapshot) {
    let mut metric = text.gauge(
        "runtime_protected",
        "Whether another runtime has a copy of each of a runtime's flows.",
    );
    for (number, runtime) in runtimes_of(snapshot) {
        metric.sample(&[("runtime", &number)], u64::from(runtime.protected_by.is_some()));
    }
    let mut metric = text.gauge("protected_flows", "Flows of which another runtime keeps copies.");
    for (number, runtime) in runtimes_of(snapshot) {
        metric.sample(&[("runtime", &number)], runtime.protected_flows);
    }
    let mut metric = text.gauge("copies", "Copies of other runtimes' flows that a runtime keeps.");
    for (number, runtime) in runtimes_of(snapshot) {
        metric.sample(&[("runtime", &number)], runtime.copies);
    }
    let mut metric = text.gauge(
        "copies_without_room",
        "Copies that would find no room at their runtime if their primaries failed.",
    );
    for (number, runtime) in runtimes_of(snapshot) {
        metric.sample(&[("runtime", &number)], runtime.copies_without_room());
    }
    let mut metric = text.gauge(
        "protection_seconds",
        "How long it took until all flows of a runtime had copies, since its replica was chosen or a policy changed; absent while a flow lacks a copy.",
    );
    for (number, runtime) in runtimes_of(snapshot) {
        if runtime.protection_took > 0 {
            let took = Duration::from_nanos(runtime.protection_took);
            metric.sample(&[("runtime", &number)], took.as_secs_f64());
        }
    }
    text.histogram(
        "move_pause_seconds",
        "How long groups that moved away from a runtime stood still.",
        "runtime",
        runtimes_of(snapshot).map(|(number, runtime)| (number, &runtime.move_pauses)),
    );
    text.histogram(
        "recovery_seconds",
        "How long recoveries at a runtime took, from the notice of the failure on.",
        "runtime",
        runtimes_of(snapshot).map(|(number, runtime)| (number, &runtime.recovery_times)),
    );
    let mut metric = text.counter(
        "recovered_flows",
        "Flows of failed runtimes that went on at a runtime, and flows whose copies were no flows or had no room.",
    );
    for (number, runtime) in runtimes_of(snapshot) {
        metric.sample(
            &[("runtime", &number), ("how", "recovered")],
            runtime.recovered[0],
        );
        metric.sample(&[("runtime", &number), ("how", "lost")], runtime.recovered[1]);
    }
    let mut metric = text.counter(
        "unprotected_packets",
        "Packets that left without a copy of their flow's state, since no runtime could keep one.",
    );
    for (number, runtime) in runtimes_of(snapshot) {
        metric.sample(&[("runtime", &number)], runtime.unprotected);
    }
}
