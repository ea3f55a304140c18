//! Columns of functions' tables that are metrics: hits of rules, connections of servers.
//!
//! The functions declare them ([`nf::table::Figure`]), with a bound of rows, so that settings with
//! many rules are no flood of samples. Labels name the subjects of rows; rows of the same names are
//! one sample, as no sample may be there twice.

use super::{Text, runtimes_of};
use crate::cluster::Snapshot;
use nf::Adds;
use nf::table::{Figure, Value};
use runtime::worker::asked::TableRows;
use std::collections::BTreeMap;

/// A metric's samples, by their labels.
struct Samples {
    figure: &'static Figure,
    adds: Adds,
    samples: BTreeMap<Vec<(&'static str, String)>, u64>,
}

/// Every column that is a metric, by runtime and function.
pub(super) fn all(text: &mut Text, snapshot: &Snapshot) {
    let mut metrics: BTreeMap<&str, Samples> = BTreeMap::new();
    for (number, runtime) in runtimes_of(snapshot) {
        for of in &runtime.tables {
            for figure in of.table.metrics {
                note(&mut metrics, figure, &number, of);
            }
        }
    }
    left_out(text, snapshot);
    for (name, of) in metrics {
        let (kind, suffix) = match of.adds {
            Adds::Counted => ("counter", "_total"),
            _ => ("gauge", ""),
        };
        let name = format!("function_{name}");
        let mut metric = text.metric(&name, kind, suffix, of.figure.help);
        for (labels, value) in &of.samples {
            let labels: Vec<(&str, &str)> = labels
                .iter()
                .map(|(name, value)| (*name, value.as_str()))
                .collect();
            metric.sample(&labels, value);
        }
    }
}

/// How many rows are in no sample, of each table that is in the metrics.
fn left_out(text: &mut Text, snapshot: &Snapshot) {
    let tables = || {
        runtimes_of(snapshot).flat_map(|(number, runtime)| {
            let tables = runtime.tables.iter();
            tables.map(move |of| (number.clone(), of))
        })
    };
    if tables().next().is_none() {
        return;
    }
    let help = "Rows of a function's table that are in no metric, since a runtime has more than 256 of them.";
    let mut metric = text.metric("function_rows_left_out", "gauge", "", help);
    for (number, of) in tables() {
        let labels = [
            ("runtime", number.as_str()),
            ("function", of.function.as_str()),
            ("table", of.table.name),
        ];
        metric.sample(&labels, of.left_out);
    }
}

/// Adds one runtime's rows.
fn note(
    metrics: &mut BTreeMap<&'static str, Samples>,
    figure: &'static Figure,
    number: &str,
    of: &TableRows,
) {
    let columns = of.table.columns;
    let Some(at) = columns.iter().position(|(name, _)| *name == figure.column) else {
        return;
    };
    let entry = metrics.entry(figure.name);
    let metric = entry.or_insert_with(|| Samples {
        figure,
        adds: columns[at].1,
        samples: BTreeMap::new(),
    });
    for row in &of.rows {
        let Some(figure) = row.get(at).and_then(Value::number) else {
            continue;
        };
        let names = columns
            .iter()
            .zip(row)
            .filter(|((_, adds), _)| *adds == Adds::Name);
        let names = names.map(|((name, _), cell)| (*name, cell.to_string()));
        let whose = [("runtime", number.to_owned()), ("function", of.function.clone())];
        let sample = metric.samples.entry(whose.into_iter().chain(names).collect());
        let sum = sample.or_default();
        *sum = sum.saturating_add(figure);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::fake;
    use nf::{Table, row};

    static RULES: Table = Table {
        name: "rules",
        columns: &[("hits", Adds::Counted), ("rule", Adds::Name), ("now", Adds::Sum)],
        top: 0,
        metrics: &[
            Figure {
                column: "hits",
                name: "rule_hits",
                help: "Hits.",
            },
            Figure {
                column: "now",
                name: "rule_flows",
                help: "Flows.",
            },
        ],
    };

    #[test]
    fn rows_are_samples_and_no_sample_is_there_twice() {
        let mut snapshot = fake::snapshot();
        let rows = vec![
            row![3u32, "web", 1u32],
            row![4u32, "dns \"1\"", 2u32],
            row![5u32, "web", 7u32],
        ];
        for runtime in &mut snapshot.runtimes {
            runtime.tables = vec![TableRows {
                function: "wall".into(),
                table: &RULES,
                rows: rows.clone(),
                top: 0,
                left_out: 7,
            }];
        }
        let mut text = Text::default();
        all(&mut text, &snapshot);
        let sample = |metric: &str, runtime: usize, rule: &str, value: u32| {
            let number = snapshot.runtime_number(runtime);
            format!(
                "flowkeep_function_{metric}{{runtime=\"{number}\",function=\"wall\",rule=\"{rule}\"}} {value}\n"
            )
        };
        for runtime in 0..2 {
            let number = snapshot.runtime_number(runtime);
            let left_out = format!(
                "flowkeep_function_rows_left_out{{runtime=\"{number}\",function=\"wall\",table=\"rules\"}} 7\n"
            );
            assert_eq!(text.0.matches(&left_out).count(), 1, "{}", text.0);
            for line in [
                sample("rule_hits_total", runtime, "web", 8),
                sample("rule_hits_total", runtime, "dns \\\"1\\\"", 4),
                sample("rule_flows", runtime, "web", 8),
            ] {
                assert_eq!(text.0.matches(&line).count(), 1, "{line}{}", text.0);
            }
        }
        assert_eq!(
            text.0
                .matches("# TYPE flowkeep_function_rule_hits counter\n")
                .count(),
            1
        );
        assert_eq!(
            text.0
                .matches("# TYPE flowkeep_function_rule_flows gauge\n")
                .count(),
            1
        );
    }
}
