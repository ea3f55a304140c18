//! A benchmark's report: one object with the machine, the cases, their raw samples and the
//! reference of each.

use schemars::JsonSchema;
use serde::Serialize;
use std::collections::BTreeSet;
use std::fmt::Write;

/// A scenario's result.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct Report {
    /// The scenario.
    pub scenario: String,
    /// The command that makes it.
    pub command: String,
    /// Where it ran.
    pub machine: Facts,
    /// Seed of the traffic.
    pub seed: u64,
    /// The measurements.
    pub cases: Vec<Case>,
}

/// Facts about the machine and the moment.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct Facts {
    /// Processor.
    pub cpu_model: Option<String>,
    /// Processors there are.
    pub cpus: usize,
    /// The processor that the worker was pinned to.
    pub pinned_to: Option<usize>,
    /// Kernel.
    pub kernel: String,
    /// Whether this is a virtual machine.
    pub virtual_machine: bool,
    /// Time-stamp counter, hertz.
    pub cycles_per_second: f64,
    /// The pages of tables and actors: `huge`, `transparent`, `small`.
    pub pages: String,
    /// Bytes of tables and actors in 2 MiB pages.
    pub huge_bytes: u64,
    /// Bytes of tables and actors of the largest case.
    pub table_bytes: u64,
    /// Load average of the last minute when it began.
    pub load_average: f64,
    /// Share of processor time that the hypervisor took away meanwhile, 0 to 1.
    pub stolen: f64,
}

/// One measurement.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct Case {
    /// The measured path.
    pub name: String,
    /// Under which circumstances.
    pub parameters: Parameters,
    /// The quantity that the numbers count.
    pub metric: &'static str,
    /// Their unit.
    pub unit: &'static str,
    /// Median of the runs.
    pub median: f64,
    /// The smallest.
    pub min: f64,
    /// The largest.
    pub max: f64,
    /// How many runs.
    pub runs: usize,
    /// The case that it is compared with, measured in the same run.
    pub reference: Option<Reference>,
    /// The figure to reach, if there is one.
    pub goal: Option<f64>,
    /// Every run, in order.
    pub samples: Vec<f64>,
}

/// The circumstances of a case.
#[derive(Clone, Debug, Default, Serialize, JsonSchema)]
pub struct Parameters {
    /// Live flows (or groups).
    pub flows: u32,
    /// How flows are drawn: `uniform` or `zipf`.
    pub popularity: &'static str,
    /// Frame length in bytes, without the frame check sequence.
    pub frame_bytes: usize,
    /// Packets measured per run.
    pub packets_per_run: usize,
    /// The further circumstances of a live wire.
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    pub live: Option<Live>,
}

/// The circumstances of a case on a live wire.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Live {
    /// With a load balancer in the chain or without.
    pub load_balancer: bool,
    /// Kind of Flowkeep's ports.
    pub port: &'static str,
    /// The load; 0 is as fast as can be.
    pub offered_per_second: u32,
}

/// The case that another one is compared with.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct Reference {
    /// The other case's name.
    pub name: String,
    /// Its median, in the same unit.
    pub median: f64,
    /// Median of the ratios run by run, the case over its reference; null where all references are
    /// 0.
    #[schemars(with = "Option<f64>")]
    pub ratio: f64,
}

/// The median of some numbers; 0 of none.
pub fn median(samples: &[f64]) -> f64 {
    let mut sorted = samples.to_vec();
    sorted.sort_by(f64::total_cmp);
    match sorted.len() {
        0 => 0.0,
        n if n % 2 == 1 => sorted[n / 2],
        n => (sorted[n / 2 - 1] + sorted[n / 2]) / 2.0,
    }
}

impl Case {
    /// A case from its samples.
    pub fn new(
        name: &str,
        parameters: Parameters,
        metric: &'static str,
        unit: &'static str,
        samples: Vec<f64>,
    ) -> Self {
        Case {
            name: name.to_string(),
            parameters,
            metric,
            unit,
            median: median(&samples),
            min: samples.iter().copied().fold(f64::INFINITY, f64::min),
            max: samples.iter().copied().fold(0.0, f64::max),
            runs: samples.len(),
            reference: None,
            goal: None,
            samples,
        }
    }

    /// Compared with another case, whose runs alternated with this one's.
    #[must_use]
    pub fn against(mut self, other: &Case) -> Self {
        let ratios: Vec<f64> = self
            .samples
            .iter()
            .zip(&other.samples)
            .map(|(a, b)| a / b)
            .collect();
        self.reference = Some(Reference {
            name: other.name.clone(),
            median: other.median,
            ratio: median(&ratios),
        });
        self
    }

    /// With a figure to reach.
    #[must_use]
    pub fn goal(mut self, goal: Option<f64>) -> Self {
        self.goal = goal;
        self
    }
}

impl Report {
    /// As a table for people.
    pub fn table(&self) -> String {
        let mut out = String::new();
        let facts = &self.machine;
        let _ = writeln!(
            out,
            "{}, {} processors, pinned to {}, pages {} ({} of {} MiB in 2 MiB pages), load {:.2}, stolen {:.1} %",
            facts.cpu_model.as_deref().unwrap_or("unknown processor"),
            facts.cpus,
            facts.pinned_to.map_or("none".to_string(), |cpu| cpu.to_string()),
            facts.pages,
            facts.huge_bytes >> 20,
            facts.table_bytes >> 20,
            facts.load_average,
            facts.stolen * 100.0
        );
        let widest = self.cases.iter().map(|case| case.name.chars().count()).max();
        let width = widest.unwrap_or(0).max(28);
        // Where the cases count different things, each says what.
        let units = self.cases.iter().map(|case| case.unit);
        let is_mixed = units.clone().collect::<BTreeSet<_>>().len() > 1;
        let unit_width = if is_mixed {
            units.map(|unit| unit.chars().count()).max().unwrap_or(0) + 1
        } else {
            0
        };
        let unit = |unit: &str| {
            if is_mixed {
                format!(" {unit:<0$}", unit_width - 1)
            } else {
                String::new()
            }
        };
        let _ = writeln!(
            out,
            "{:<width$} {:>9} {:>8} {:>9} {:>9} {:>9}{} {:>9}  compared with",
            "case",
            "flows",
            "drawn",
            "median",
            "min",
            "max",
            unit(""),
            "goal"
        );
        for case in &self.cases {
            let goal = case.goal.map_or("-".to_string(), |goal| format!("{goal:.0}"));
            let compared = case.reference.as_ref().map_or(String::new(), |r| {
                format!("{} {:.1}: × {:.2}", r.name, r.median, r.ratio)
            });
            let _ = writeln!(
                out,
                "{:<width$} {:>9} {:>8} {:>9.1} {:>9.1} {:>9.1}{} {:>9}  {compared}",
                case.name,
                case.parameters.flows,
                case.parameters.popularity,
                case.median,
                case.min,
                case.max,
                unit(case.unit),
                goal
            );
        }
        if let Some(case) = self.cases.first().filter(|_| !is_mixed) {
            let _ = writeln!(out, "{}, in {}", case.metric, case.unit);
        }
        out
    }
}
