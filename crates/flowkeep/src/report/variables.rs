//! The table of variables in `flowkeep status`.

use super::{Table, VariablesStatus, grouped, human_time};
use std::time::Duration;

/// A line for each function and runtime; `None` where there are none.
pub(super) fn table(variables: &[VariablesStatus]) -> Option<Table> {
    let heads = [
        "Variables",
        ">Changes",
        ">Batches",
        ">Age p50",
        ">p99",
        ">max",
        ">Waiting",
        ">Bound",
        ">Interval",
        "",
    ];
    let mut table = Table::new(&heads);
    let age = |seconds: f64| human_time(Duration::from_secs_f64(seconds.max(0.0)));
    for of in variables {
        table.row([
            format!("{} on runtime {}", of.function, of.runtime),
            grouped(of.changes),
            grouped(of.batches),
            age(of.age_p50_seconds),
            age(of.age_p99_seconds),
            age(of.age_max_seconds),
            age(of.waiting_seconds),
            age(of.bound_seconds),
            age(of.interval_seconds),
            match (of.fenced, of.late) {
                (true, _) => "another process has them",
                (_, true) => "late",
                _ => "",
            }
            .to_owned(),
        ]);
    }
    (!variables.is_empty()).then_some(table)
}
