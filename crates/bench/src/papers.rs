//! `bench papers`: the papers' figures and ours, in one table, in minutes.
//!
//! Each row is a case of another scenario, at a size that a small machine does in a minute. The
//! papers' hardware is theirs (`theirs` says how many processors, where it matters), so the two
//! columns are no comparison of programs; each scenario by itself compares within one run.
//! `docs/papers.md` says of each figure which parts are measured here and which are not.
//!
//! Scenarios with threads of their own come first: the others pin this thread to a processor, where
//! the threads that it starts would be, too.

use super::plot::Bar;
use super::report::{Case, Facts, Report, median};
use super::{Options, run};
use schemars::JsonSchema;
use serde::Serialize;
use std::fmt::Write as _;

/// The number that is taken of a case.
#[derive(Clone, Copy)]
enum Take {
    /// Its figure, by so much.
    Figure(f64),
    /// Percent of the case's reference.
    Share,
    /// Of all cases whose names begin so, but the one without a store: percent that the slowest is
    /// of the fastest.
    Spread,
}

/// A figure of a paper, and where ours is.
struct Row {
    paper: &'static str,
    figure: &'static str,
    what: &'static str,
    theirs: &'static str,
    case: &'static str,
    flows: u32,
    take: Take,
    unit: &'static str,
}

const fn row(
    [paper, figure, what, theirs]: [&'static str; 4],
    (case, flows): (&'static str, u32),
    take: Take,
    unit: &'static str,
) -> Row {
    Row {
        paper,
        figure,
        what,
        theirs,
        case,
        flows,
        take,
        unit,
    }
}

const AS_IT_IS: Take = Take::Figure(1.0);
const TO_MS: Take = Take::Figure(1e-3);

/// A scenario, at which numbers of flows, and its rows.
type Part = (&'static str, &'static [u32], &'static [Row]);

const PARTS: [Part; 9] = [
    (
        "message",
        &[0],
        &[row(
            [
                "NFVactor",
                "6d",
                "messages of 1,400 bytes between two runtimes",
                "9.1 Gb/s of 10, between servers",
            ],
            ("the same, 1,400 bytes each", 0),
            Take::Figure(11.2),
            "Gb/s",
        )],
    ),
    (
        "replicate",
        &[10_000],
        &[
            row(
                [
                    "NFVactor",
                    "8a",
                    "rate with copies, where each packet changes state",
                    "36 % (14.49 to 5.22 Mpps)",
                ],
                ("commit, copied: % of plain", 10_000),
                AS_IT_IS,
                "%",
            ),
            row(
                [
                    "NFVactor",
                    "8a",
                    "the same, firewall, NAT and load balancer",
                    "36 %",
                ],
                ("gateway, copied: % of plain", 10_000),
                AS_IT_IS,
                "%",
            ),
            row(
                [
                    "NFActor",
                    "10a",
                    "rate with a snapshot behind every tenth packet of a flow",
                    "some 40 %",
                ],
                ("snapshot, copied: % of plain", 10_000),
                AS_IT_IS,
                "%",
            ),
            row(
                ["NFVactor", "8a", "bytes on the link for a packet of 64", "233"],
                ("commit, copied: bytes on link", 10_000),
                AS_IT_IS,
                "bytes",
            ),
            row(
                [
                    "NFVactor",
                    "8b",
                    "delay with copies (here at half load)",
                    "about 20 µs, at full load",
                ],
                ("commit, copied: delay median, µs", 10_000),
                AS_IT_IS,
                "µs",
            ),
        ],
    ),
    (
        "recover",
        &[100_000],
        &[
            row(
                [
                    "NFVactor",
                    "Table III",
                    "recovery of a runtime's flows, without detection",
                    "65 ms, 87,000 flows",
                ],
                ("after it, ms", 100_000),
                AS_IT_IS,
                "ms",
            ),
            row(
                ["NFActor", "10b", "the same, with detection", "3.3 s"],
                ("in all, ms", 100_000),
                AS_IT_IS,
                "ms",
            ),
        ],
    ),
    (
        "system",
        &[10_000],
        &[
            row(
                [
                    "NFVactor",
                    "6a",
                    "firewall, of the rate of a plain loop",
                    "close to it",
                ],
                ("firewall, one thread", 10_000),
                Take::Share,
                "%",
            ),
            row(
                [
                    "NFVactor",
                    "6a",
                    "NAT, of the rate of a plain loop",
                    "close to it",
                ],
                ("NAT, one thread", 10_000),
                Take::Share,
                "%",
            ),
            row(
                [
                    "NFVactor",
                    "6a",
                    "load balancer, of the rate of a plain loop",
                    "close to it",
                ],
                ("load balancer, one thread", 10_000),
                Take::Share,
                "%",
            ),
            row(
                [
                    "NFVactor",
                    "6a",
                    "IDS, of the rate of a plain loop",
                    "close to it",
                ],
                ("IDS, one thread", 10_000),
                Take::Share,
                "%",
            ),
            row(
                [
                    "NFVactor",
                    "7a",
                    "firewall, NAT, load balancer: one runtime",
                    "14.49 Mpps, 10 runtimes",
                ],
                ("firewall, NAT, load balancer, two threads", 10_000),
                AS_IT_IS,
                "Mpps",
            ),
            row(
                [
                    "NFVactor",
                    "7a",
                    "firewall, NAT, IDS: one runtime",
                    "14.39 Mpps, 14 runtimes",
                ],
                ("firewall, NAT, IDS, two threads", 10_000),
                AS_IT_IS,
                "Mpps",
            ),
            row(
                [
                    "NFVactor",
                    "7b",
                    "delay of firewall, NAT, load balancer, at half load",
                    "about 20 µs",
                ],
                ("firewall, NAT, load balancer, two threads, median", 10_000),
                AS_IT_IS,
                "µs",
            ),
            row(
                [
                    "NFActor",
                    "6",
                    "monitor, firewall, HTTP: one runtime",
                    "2.4 Mpps, 4 runtimes",
                ],
                ("monitor, firewall, HTTP, two threads", 10_000),
                AS_IT_IS,
                "Mpps",
            ),
        ],
    ),
    (
        "launch",
        &[10_000],
        &[row(
            [
                "NFVactor",
                "6c",
                "a packet that opens a flow, over one of a live flow",
                "–",
            ],
            ("launch - established", 10_000),
            AS_IT_IS,
            "cycles",
        )],
    ),
    (
        "migrate",
        &[500, 1000, 6000, 200_000],
        &[
            row(
                [
                    "NFVactor",
                    "9a",
                    "500 flows move, at 10 packets a second each",
                    "0.7 ms",
                ],
                ("10/s: move, µs", 500),
                TO_MS,
                "ms",
            ),
            row(
                ["NFVactor", "9a", "1,000 flows move", "1.5 ms"],
                ("10/s: move, µs", 1000),
                TO_MS,
                "ms",
            ),
            row(
                [
                    "NFVactor",
                    "9b",
                    "200,000 flows move (600,000 over three pairs)",
                    "about 700 ms",
                ],
                ("10/s: move, µs", 200_000),
                TO_MS,
                "ms",
            ),
            row(
                [
                    "NFActor",
                    "8",
                    "6,000 flows move, 64 under way at once: of each",
                    "1,000 under way are best",
                ],
                ("64 under way: ns per flow", 6000),
                AS_IT_IS,
                "ns",
            ),
            row(
                ["NFActor", "8", "the same, 1,024 under way", "1,000 are best"],
                ("1024 under way: ns per flow", 6000),
                AS_IT_IS,
                "ns",
            ),
        ],
    ),
    (
        "scale",
        &[8000],
        &[
            row(
                [
                    "S6",
                    "5b",
                    "longest delay while scaling out, 700 kpps",
                    "tens of ms",
                ],
                ("700 kpps, out: delay while scaling, longest", 8000),
                TO_MS,
                "ms",
            ),
            row(
                [
                    "S6",
                    "6",
                    "the same, at half of what passes",
                    "below 1 ms to tens of ms",
                ],
                ("half load, out: delay while scaling, longest", 8000),
                TO_MS,
                "ms",
            ),
        ],
    ),
    (
        "objects",
        &[10_000],
        &[
            row(
                [
                    "S6",
                    "7",
                    "rate with objects that two runtimes share, of that with tables of their own",
                    "82 to 92 %",
                ],
                ("shared, 2 runtimes: packets", 10_000),
                Take::Share,
                "%",
            ),
            row(
                [
                    "S6",
                    "7",
                    "the same with a call for each packet (remote-only)",
                    "20 to 50 %",
                ],
                ("called, 2 runtimes: packets", 10_000),
                Take::Share,
                "%",
            ),
            row(
                [
                    "S6",
                    "8",
                    "packets by work at four runtimes that share, of those at one",
                    "92 to 98 %",
                ],
                ("shared, 4 runtimes: packets", 10_000),
                Take::Share,
                "%",
            ),
        ],
    ),
    (
        "store",
        &[50_000],
        &[
            row(
                ["FlexState", "4", "forwarding", "14.88 Mpps (10 Gb/s)"],
                ("forward", 50_000),
                AS_IT_IS,
                "Mpps",
            ),
            row(
                [
                    "FlexState",
                    "5",
                    "NAT, its flows in memory",
                    "about 10 Mpps, 24 cores",
                ],
                ("nat, memory", 50_000),
                AS_IT_IS,
                "Mpps",
            ),
            row(
                [
                    "FlexState",
                    "5",
                    "NAT, its flows in Redis",
                    "about 10 Mpps, 24 cores",
                ],
                ("nat, redis", 50_000),
                AS_IT_IS,
                "Mpps",
            ),
            row(
                [
                    "FlexState",
                    "5",
                    "NAT, its flows in Cassandra",
                    "about 10 Mpps, 24 cores",
                ],
                ("nat, cassandra", 50_000),
                AS_IT_IS,
                "Mpps",
            ),
            row(
                [
                    "FlexState",
                    "6",
                    "load balancer, its flows in Redis",
                    "about 10 Mpps, 24 cores",
                ],
                ("balancer, redis", 50_000),
                AS_IT_IS,
                "Mpps",
            ),
            row(
                [
                    "FlexState",
                    "6",
                    "load balancer, its flows in Cassandra",
                    "about 10 Mpps, 24 cores",
                ],
                ("balancer, cassandra", 50_000),
                AS_IT_IS,
                "Mpps",
            ),
            row(
                [
                    "FlexState",
                    "7",
                    "counter, asynchronous, Redis",
                    "about 12 Mpps, 8 cores",
                ],
                ("protocol, redis", 50_000),
                AS_IT_IS,
                "Mpps",
            ),
            row(
                [
                    "FlexState",
                    "7",
                    "counter, asynchronous, Cassandra",
                    "about 12 Mpps, 8 cores",
                ],
                ("protocol, cassandra", 50_000),
                AS_IT_IS,
                "Mpps",
            ),
            row(
                ["FlexState", "7", "counter, synchronous, Redis", "at most 2 Mpps"],
                ("sync protocol, redis", 50_000),
                AS_IT_IS,
                "Mpps",
            ),
            row(
                [
                    "FlexState",
                    "7",
                    "counter, synchronous, Cassandra",
                    "at most 2 Mpps",
                ],
                ("sync protocol, cassandra", 50_000),
                AS_IT_IS,
                "Mpps",
            ),
            row(
                [
                    "FlexState",
                    "8",
                    "counter: the slowest store and place, of the fastest",
                    "no substantial difference",
                ],
                ("protocol, ", 50_000),
                Take::Spread,
                "%",
            ),
            row(
                [
                    "FlexState",
                    "8",
                    "NAT: the slowest store and place, of the fastest",
                    "no substantial difference",
                ],
                ("nat, ", 50_000),
                Take::Spread,
                "%",
            ),
            row(
                [
                    "FlexState",
                    "8",
                    "load balancer: the slowest store and place, of the fastest",
                    "no substantial difference",
                ],
                ("balancer, ", 50_000),
                Take::Spread,
                "%",
            ),
        ],
    ),
];

/// All figures.
#[derive(Serialize, JsonSchema)]
pub struct Figures {
    /// The machine, as the last scenario found it.
    machine: Facts,
    /// A row for each figure.
    figures: Vec<Figure>,
}

/// A figure of a paper beside ours.
#[derive(Serialize, JsonSchema)]
pub struct Figure {
    /// The paper.
    paper: &'static str,
    /// Its figure or table.
    figure: &'static str,
    /// The quantity that it shows.
    what: &'static str,
    /// The paper's figure, on its hardware.
    theirs: &'static str,
    /// Ours: the median; null where the scenario has no such case on this machine (no Redis, for
    /// instance).
    ours: Option<f64>,
    /// The smallest and the largest of its runs.
    between: Option<[f64; 2]>,
    /// The unit of ours.
    unit: &'static str,
    /// The command that makes it.
    command: String,
}

impl Row {
    fn of(&self, report: &Report) -> Figure {
        let mut cases = report.cases.iter();
        let case = cases.find(|case| case.name == self.case && case.parameters.flows == self.flows);
        let samples = match self.take {
            Take::Spread => self.spread(&report.cases),
            _ => case.map(|case| self.samples(case, report)).unwrap_or_default(),
        };
        let flows = match self.flows {
            0 => String::new(),
            flows => format!(" --flows {flows}"),
        };
        Figure {
            paper: self.paper,
            figure: self.figure,
            what: self.what,
            theirs: self.theirs,
            ours: (!samples.is_empty()).then(|| median(&samples)),
            between: samples
                .iter()
                .copied()
                .reduce(f64::min)
                .zip(samples.iter().copied().reduce(f64::max))
                .map(|(least, most)| [least, most]),
            unit: self.unit,
            command: format!("flowkeep bench {}{flows}", report.scenario),
        }
    }

    /// By run, the slowest of several cases beside the fastest; nothing where there is but one.
    fn spread(&self, all: &[Case]) -> Vec<f64> {
        let is_one = |case: &&Case| {
            let store = case.name.strip_prefix(self.case);
            store.is_some_and(|store| store != "none" && !store.contains(':'))
                && case.parameters.flows == self.flows
        };
        let cases: Vec<&Case> = all.iter().filter(is_one).collect();
        let runs = cases.iter().map(|case| case.samples.len()).min().unwrap_or(0);
        let of_run = |run: usize| {
            let samples = || cases.iter().filter_map(|case| case.samples.get(run)).copied();
            let (slowest, fastest) = (samples().reduce(f64::min)?, samples().reduce(f64::max)?);
            (cases.len() > 1).then_some(100.0 * slowest / fastest)
        };
        (0..runs).filter_map(of_run).collect()
    }

    fn samples(&self, case: &Case, report: &Report) -> Vec<f64> {
        match self.take {
            Take::Spread => Vec::new(),
            Take::Figure(by) => case.samples.iter().map(|sample| sample * by).collect(),
            Take::Share => {
                let Some(reference) = &case.reference else {
                    return Vec::new();
                };
                let is_other = |other: &&Case| {
                    other.name == reference.name && other.parameters.flows == case.parameters.flows
                };
                let other = report.cases.iter().find(is_other);
                let others = other.map(|other| other.samples.as_slice()).unwrap_or_default();
                let pairs = case.samples.iter().zip(others);
                pairs.map(|(this, other)| 100.0 * this / other).collect()
            }
        }
    }
}

/// Runs all scenarios. `tell` is told which begins.
pub fn measure(options: &Options, mut tell: impl FnMut(&str)) -> Result<Figures, String> {
    of_reports(|scenario, flows| {
        tell(scenario);
        let options = Options {
            flows: flows.to_vec(),
            ..options.clone()
        };
        run(scenario, &options)
    })
}

/// The figures that scenarios' reports have: each is asked for once, with its numbers of flows.
pub fn of_reports(mut report: impl FnMut(&str, &[u32]) -> Result<Report, String>) -> Result<Figures, String> {
    let mut figures = Vec::new();
    let mut machine = None;
    for (scenario, flows, rows) in PARTS {
        let report = report(scenario, flows)?;
        figures.extend(rows.iter().map(|row| row.of(&report)));
        machine = Some(report.machine);
    }
    let machine = machine.ok_or("there is no scenario")?;
    Ok(Figures { machine, figures })
}

impl Figures {
    /// The processor of the machine.
    pub(crate) fn processor(&self) -> Option<&str> {
        self.machine.cpu_model.as_deref()
    }

    /// As rows of a picture; figures that this machine lacks are left out.
    pub(crate) fn bars(&self) -> Vec<Bar> {
        let bar = |figure: &Figure| {
            Some(Bar {
                label: format!("{} {}: {}", figure.paper, figure.figure, figure.what),
                note: format!("the paper: {}", figure.theirs),
                unit: figure.unit,
                median: figure.ours?,
                between: figure.between?,
                reference: None,
                goal: None,
            })
        };
        self.figures.iter().filter_map(bar).collect()
    }

    /// As a table for people.
    pub fn table(&self) -> String {
        let ours = |figure: &Figure| match (figure.ours, figure.between) {
            (Some(ours), Some([least, most])) => {
                let digits = if ours < 10.0 { 2 } else { 0 };
                format!(
                    "{ours:.digits$} ({least:.digits$}–{most:.digits$}) {}",
                    figure.unit
                )
            }
            _ => "not here".to_owned(),
        };
        let rows: Vec<[String; 5]> = self
            .figures
            .iter()
            .map(|figure| {
                [
                    format!("{} {}", figure.paper, figure.figure),
                    figure.what.to_owned(),
                    figure.theirs.to_owned(),
                    ours(figure),
                    figure.command.clone(),
                ]
            })
            .collect();
        let heads = [
            "figure",
            "what it shows",
            "the paper",
            "here: median (all runs)",
            "command",
        ];
        let mut widths = heads.map(|head| head.chars().count());
        for row in &rows {
            for (width, cell) in widths.iter_mut().zip(row) {
                *width = (*width).max(cell.chars().count());
            }
        }
        let mut out = String::new();
        let facts = &self.machine;
        let _ = writeln!(
            out,
            "{}, {} processors, load {:.2}. The papers' hardware is another: see docs/papers.md.",
            facts.cpu_model.as_deref().unwrap_or("unknown processor"),
            facts.cpus,
            facts.load_average
        );
        let heads = heads.map(str::to_owned);
        for row in std::iter::once(&heads).chain(&rows) {
            let cells = row
                .iter()
                .zip(widths)
                .map(|(cell, width)| format!("{cell:<width$}"));
            let line = cells.collect::<Vec<_>>().join("  ");
            let _ = writeln!(out, "{}", line.trim_end());
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::SCENARIOS;
    use crate::report::Parameters;

    #[test]
    fn a_spread_is_of_all_stores_by_run_and_of_none_but_them() {
        let case = |name: &str, samples: [f64; 2]| Case {
            name: name.into(),
            parameters: Parameters {
                flows: 50_000,
                ..Parameters::default()
            },
            metric: "packets",
            unit: "Mpps",
            median: samples[0],
            min: samples[0],
            max: samples[0],
            runs: samples.len(),
            reference: None,
            goal: None,
            samples: samples.to_vec(),
        };
        let what = ["FlexState", "8", "", ""];
        let row = row(what, ("nat, ", 50_000), Take::Spread, "%");
        let memory = case("nat, memory", [10.0, 8.0]);
        let others = [
            case("nat, none", [90.0, 90.0]),
            case("nat, redis: bytes", [1.0, 1.0]),
            case("sync nat, redis", [1.0, 1.0]),
            case("nat, redis afar", [9.0, 10.0]),
        ];
        assert!(row.spread(std::slice::from_ref(&memory)).is_empty());
        let all: Vec<Case> = others.into_iter().chain([memory]).collect();
        assert_eq!(row.spread(&all), [90.0, 80.0]);
    }

    #[test]
    fn each_part_is_a_scenario_with_the_flows_of_its_rows() {
        for (scenario, flows, rows) in PARTS {
            assert!(SCENARIOS.iter().any(|(name, _)| *name == scenario), "{scenario}");
            assert!(rows.iter().all(|row| flows.contains(&row.flows)), "{scenario}");
        }
    }
}
