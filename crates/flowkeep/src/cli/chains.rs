//! `chain check` and `chain schema`: what can be said of a configuration without running it. `chain diff`, `apply` and `rollback`: what
//! is asked of, or done to, the configuration of a running cluster.

use super::{Failure, Listing, USAGE, WOULD_CUT, asking, jobs, print};
use crate::apply::report::Outcome;
use crate::apply::{Ask, LISTED_MAX, absolute};
use crate::config::{self, Config, Problem, schema};
use crate::registry::Registry;
use crate::run::privileges::Account;
use crate::run::{self, Memory};
use crate::shape::{self, Shape};
use nf::Period;
use schemars::JsonSchema;
use serde::Serialize;
use std::fmt::Write as _;
use std::io::Write;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

/// What is right or wrong with a configuration.
#[derive(Serialize, JsonSchema)]
pub(super) struct Checked {
    /// Whether it can be run.
    good: bool,
    /// What is wrong.
    problems: Vec<Problem>,
    /// What is likely not meant.
    warnings: Vec<String>,
    /// Its chains; none if it is not good.
    chains: Vec<CheckedChain>,
    /// Runtimes to begin with.
    #[serde(skip_serializing_if = "Option::is_none")]
    runtimes: Option<u16>,
    /// As many as there may be.
    #[serde(skip_serializing_if = "Option::is_none")]
    runtimes_max: Option<u16>,
    /// The memory that it needs; nothing where this program cannot count that.
    #[serde(skip_serializing_if = "Option::is_none")]
    memory: Option<Memory>,
}

/// A chain of a configuration.
#[derive(Serialize, JsonSchema)]
pub(super) struct CheckedChain {
    /// Its name.
    name: String,
    /// Its functions, in order.
    functions: Vec<String>,
}

impl Shape for Checked {
    const NAME: &'static str = "chain-check";
}

/// Checks a configuration and shows its chains.
pub fn check(path: &Path, json: bool, registry: &Registry, out: &mut dyn Write) -> Result<(), Failure> {
    let read = config::read(path, registry).and_then(|config| {
        let warnings = on_this_machine(path, &config, registry)?;
        Ok((config, warnings))
    });
    match read {
        Ok((mut config, mut warnings)) if json => {
            let chains: Vec<_> = config
                .chain
                .iter()
                .map(|chain| CheckedChain {
                    name: chain.name.clone(),
                    functions: chain.functions.clone(),
                })
                .collect();
            let (runtimes, runtimes_max) = (config.runtimes, config.most_runtimes());
            let memory = run::memory(&mut config);
            warnings.extend(memory.as_ref().and_then(Memory::warning));
            let checked = Checked {
                good: true,
                problems: Vec::new(),
                warnings,
                chains,
                runtimes: Some(runtimes),
                runtimes_max: Some(runtimes_max),
                memory,
            };
            print(out, shape::object(&checked))
        }
        Ok((mut config, warnings)) => {
            let mut text = overview(path, &config, &warnings);
            if let Some(memory) = run::memory(&mut config) {
                if let Some(warning) = memory.warning() {
                    let _ = writeln!(text, "\nwarning: {warning}");
                }
                let _ = write!(text, "\n{}", memory.text());
            }
            print(out, text.trim_end())
        }
        Err(problems) if json => {
            let checked = Checked {
                good: false,
                problems,
                warnings: Vec::new(),
                chains: Vec::new(),
                runtimes: None,
                runtimes_max: None,
                memory: None,
            };
            print(out, shape::object(&checked))?;
            Err(Failure {
                code: USAGE,
                message: format!("{} has errors", path.display()),
            })
        }
        Err(problems) => Err(Failure::usage(jobs::shown(&problems))),
    }
}

/// What is likely not meant; an error where ports name what this machine does not have, as `run` would say.
fn on_this_machine(path: &Path, config: &Config, registry: &Registry) -> Result<Vec<String>, Vec<Problem>> {
    let (later, now): (Vec<_>, Vec<_>) = config::ports::absent(config)
        .into_iter()
        .partition(|absent| absent.is_warning);
    if !now.is_empty() {
        let text = std::fs::read_to_string(path).map_err(|error| vec![Problem::unreadable(path, &error)])?;
        let file = path.display().to_string();
        let point = |absent: &config::ports::Absent| {
            config::point(
                &file,
                &text,
                registry,
                &absent.at,
                &absent.problem,
                &absent.remedy,
            )
        };
        return Err(now.iter().map(point).collect());
    }
    let mut warnings = config::check::warnings(config);
    let words = |absent: config::ports::Absent| {
        let config::ports::Absent {
            at, problem, remedy, ..
        } = absent;
        format!("{at}: {problem}; {remedy}")
    };
    warnings.extend(later.into_iter().map(words));
    if config.member.is_empty() && config.port.iter().all(|port| port.input.is_none()) {
        warnings.push("no port has an input: `flowkeep run` needs `--input URI` with this file".to_owned());
    }
    if let Some(listen) = config.metrics.listen
        && let Err(error) = std::net::TcpListener::bind((listen.ip(), 0))
    {
        warnings.push(format!(
            "metrics.listen: {listen}: {error}; write an address of this machine, or 0.0.0.0 for all of them"
        ));
    }
    warnings.extend(
        Account::of(config)
            .err()
            .map(|problem| format!("user: {problem}")),
    );
    Ok(warnings)
}

/// The chains of a good configuration, and which flows get into them.
fn overview(path: &Path, config: &Config, warnings: &[String]) -> String {
    let mut text = format!("{} is good\n", path.display());
    let (listed, most) = (config.runtimes, config.most_runtimes());
    if !config.member.is_empty() {
        let _ = writeln!(
            text,
            "\nruntimes: {listed} of members, and room for {} more (runtimes_max = {most})",
            most - listed
        );
    }
    for chain in &config.chain {
        let _ = writeln!(text, "\nchain {}: {}", chain.name, chain.functions.join(" -> "));
        let mut rules = Vec::new();
        if let Some(matches) = &chain.matches {
            let list = |prefixes: &[wire::Prefix]| {
                prefixes
                    .iter()
                    .map(ToString::to_string)
                    .collect::<Vec<_>>()
                    .join(", ")
            };
            if let Some(protocol) = matches.protocol {
                rules.push(wire::key::protocol_name(protocol).to_string());
            }
            if let Some(side) = matches.side {
                rules.push(format!("from {}", format!("{side:?}").to_lowercase()));
            }
            if !matches.source.is_empty() {
                rules.push(format!("source {}", list(&matches.source)));
            }
            if !matches.destination.is_empty() {
                rules.push(format!("destination {}", list(&matches.destination)));
            }
            let ports = |ports: &[config::PortRange]| {
                let ports: Vec<String> = ports.iter().map(ToString::to_string).collect();
                ports.join(", ")
            };
            if !matches.source_port.is_empty() {
                rules.push(format!("source port {}", ports(&matches.source_port)));
            }
            if !matches.destination_port.is_empty() {
                rules.push(format!("destination port {}", ports(&matches.destination_port)));
            }
        }
        let whom = if rules.is_empty() {
            if config.chain.len() == 1 {
                "everything"
            } else {
                "everything else"
            }
            .to_owned()
        } else {
            rules.join("; ")
        };
        let _ = writeln!(text, "  for {whom}");
    }
    if config.chain.iter().all(|chain| chain.matches.is_some()) {
        text.push_str("\nwhat matches none of them is dropped (no_chain)\n");
    }
    for warning in warnings {
        let _ = writeln!(text, "\nwarning: {warning}");
    }
    text
}

/// What is to come of another configuration.
#[derive(Clone, Copy)]
pub enum Way {
    /// Words only.
    Diff,
    /// It shall be in force.
    Apply {
        /// Whatever flows that cuts.
        cut: bool,
        /// It goes back after this time, unless it is confirmed.
        confirm: Option<Period>,
    },
    /// The one before shall.
    Rollback {
        /// Whatever flows that cuts.
        cut: bool,
    },
}

/// `chain diff`, `chain apply`, `chain rollback`.
pub fn change(
    config: Option<&Path>,
    way: Way,
    listing: &Listing,
    out: &mut dyn Write,
) -> Result<ExitCode, Failure> {
    let confirm_ms = match way {
        Way::Apply { confirm, .. } => confirm.map(|time| Duration::from(time).as_millis() as u64),
        _ => None,
    };
    let ask = Ask {
        // The running cluster may be in another directory.
        path: config.map(absolute),
        dry: matches!(way, Way::Diff),
        cut: matches!(way, Way::Apply { cut: true, .. } | Way::Rollback { cut: true }),
        rollback: matches!(way, Way::Rollback { .. }),
        listed: if listing.asking.json {
            LISTED_MAX
        } else {
            listing.limit
        },
        waits: false,
        confirm_ms,
    };
    let change = asking::change(ask, &listing.asking)?;
    if listing.asking.json {
        print(out, shape::object(&change))?;
    } else {
        print(out, change.to_string().trim_end())?;
    }
    Ok(ExitCode::from(match change.outcome {
        Outcome::Same | Outcome::Possible | Outcome::Applied => 0,
        Outcome::Refused => USAGE,
        Outcome::WouldCut | Outcome::RefusedToCut => WOULD_CUT,
    }))
}

/// Prints the JSON schema, or the page that it makes.
pub fn schema(page: bool, registry: &Registry, out: &mut dyn Write) -> Result<(), Failure> {
    let schema = schema::of(registry);
    match page {
        true => print(out, config::page::of(schema).trim_end()),
        false => print(out, format!("{schema:#}")),
    }
}
