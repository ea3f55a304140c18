//! The cost of functions' calls, as `status` has it.

use super::{RuntimeStatus, Table, grouped};
use runtime::stats::FunctionCost;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The cost of a function's calls at one runtime, of the packets of one burst in some 256.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, Default, PartialEq)]
pub struct CostStatus {
    /// The function, as chains name it.
    pub function: String,
    /// Cycles of the processor's time-stamp counter for a call, the mean; nanoseconds where the
    /// processor has none.
    pub cycles: f64,
    /// Calls that were sampled.
    pub sampled_calls: u64,
    /// Calls that are not in the mean, since their thread was put aside meanwhile.
    #[serde(default)]
    pub interrupted_calls: u64,
}

impl From<&FunctionCost> for CostStatus {
    fn from(cost: &FunctionCost) -> Self {
        CostStatus {
            function: cost.function.clone(),
            cycles: mean(cost.cycles as f64, cost.calls),
            sampled_calls: cost.calls,
            interrupted_calls: cost.interrupted,
        }
    }
}

fn mean(sum: f64, count: u64) -> f64 {
    match count {
        0 => 0.0,
        _ => (sum / count as f64 * 10.0).round() / 10.0,
    }
}

/// The functions' costs over all runtimes; `None` where nothing was sampled.
pub(super) fn table(runtimes: &[RuntimeStatus]) -> Option<Table> {
    let mut sums: BTreeMap<&str, (f64, u64)> = BTreeMap::new();
    for cost in runtimes.iter().flat_map(|runtime| &runtime.costs) {
        let (cycles, calls) = sums.entry(&cost.function).or_default();
        *cycles += cost.cycles * cost.sampled_calls as f64;
        *calls += cost.sampled_calls;
    }
    sums.retain(|_, (_, calls)| *calls > 0);
    if sums.is_empty() {
        return None;
    }
    let mut table = Table::new(&["Function", ">Cycles a packet", ">Sampled"]);
    for (function, (cycles, calls)) in sums {
        let cycles = format!("{:.0}", mean(cycles, calls));
        table.row([function.to_owned(), cycles, grouped(calls)]);
    }
    Some(table)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn costs_are_means_over_all_runtimes() {
        let of = |cycles: u64, calls: u64| RuntimeStatus {
            costs: vec![CostStatus::from(&FunctionCost {
                function: "nat".into(),
                calls,
                cycles,
                interrupted: 1,
            })],
            ..RuntimeStatus::default()
        };
        let (one, other) = (of(1_000, 10), of(9_000, 30));
        assert_eq!((one.costs[0].cycles, other.costs[0].cycles), (100.0, 300.0));
        let text = table(&[one, other, of(0, 0)]).unwrap().to_string();
        let words: Vec<&str> = text.lines().nth(1).unwrap().split_whitespace().collect();
        assert_eq!(words, ["nat", "250", "40"], "{text}");
        assert!(table(&[of(0, 0)]).is_none());
    }
}
