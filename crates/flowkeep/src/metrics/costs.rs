//! The cost of functions' calls: cycles over calls, of the packets that were sampled.

use super::{Text, runtimes_of};
use crate::cluster::Snapshot;
use runtime::stats::FunctionCost;

/// A figure of each function: its name, its help, and where it is.
type Figure = (&'static str, &'static str, fn(&FunctionCost) -> u64);

/// Costs by runtime and function.
pub(super) fn all(text: &mut Text, snapshot: &Snapshot) {
    let each: [Figure; 2] = [
        (
            "function_sampled_calls",
            "Calls of functions whose cycles were counted, for the packets of one burst in some 256.",
            |cost| cost.calls,
        ),
        (
            "function_sampled_cycles",
            "Cycles of these calls, by the processor's time-stamp counter; nanoseconds where it has none.",
            |cost| cost.cycles,
        ),
    ];
    for (name, help, of) in each {
        let mut metric = text.counter(name, help);
        for (number, runtime) in runtimes_of(snapshot) {
            for cost in &runtime.costs {
                metric.sample(&[("runtime", &number), ("function", &cost.function)], of(cost));
            }
        }
    }
}
