//! The figures of `bench live` as a table for people.

use super::super::report::{Case, Report};
use std::fmt::Write;

/// A row per load and system; packets per core second in thousands, times in nanoseconds per
/// packet.
pub fn table(report: &Report) -> String {
    let mut out = String::new();
    let facts = &report.machine;
    let _ = writeln!(
        out,
        "{}, {} processors, Linux {}, load {:.2}, stolen {:.1} %\n",
        facts.cpu_model.as_deref().unwrap_or("unknown processor"),
        facts.cpus,
        facts.kernel,
        facts.load_average,
        facts.stolen * 100.0
    );
    let mut before = None;
    for nets in report.cases.iter().filter(|case| case.metric == "net") {
        let Some(live) = &nets.parameters.live else {
            continue;
        };
        let about = (nets.parameters.flows, live.load_balancer);
        if before.replace(about) != Some(about) {
            let _ = writeln!(
                out,
                "{} flows, {} load balancer\n{:<24} {:>9} {:>9} {:>8} {:>9} {:>9} {:>9} {:>6} {:>6} {:>6}  net ÷ kernel's",
                about.0,
                if about.1 { "with" } else { "without" },
                "thousands a second",
                "offered",
                "forwarded",
                "lost %",
                "net",
                "threads",
                "machine",
                "sender",
                "others",
                "alone"
            );
        }
        let same = |case: &&Case| {
            case.name == nets.name
                && case.parameters.flows == about.0
                && case.parameters.live == nets.parameters.live
        };
        let of = |metric: &str| {
            let mut all = report.cases.iter().filter(same);
            all.find(|case| case.metric == metric)
                .map_or(0.0, |case| case.median)
        };
        let ratio = nets.reference.as_ref();
        let _ = writeln!(
            out,
            "{:<24} {:>9.0} {:>9.0} {:>8.2} {:>9.0} {:>9.0} {:>9.0} {:>6.0} {:>6.0} {:>6.0}  {}",
            nets.name,
            of("offered") / 1e3,
            of("forwarded") / 1e3,
            of("lost") * 100.0,
            nets.median / 1e3,
            of("threads") / 1e3,
            of("machine") / 1e3,
            of("time of who sends"),
            of("time of others"),
            of("sending alone"),
            ratio.map_or(String::new(), |reference| format!("× {:.2}", reference.ratio)),
        );
    }
    out
}
