//! `chain check` and `chain schema` work without running a configuration. `chain diff`, `apply` and
//! `rollback` ask after, or change, the configuration of a running cluster.

use super::{FAILURE, Failure, Listing, USAGE, WOULD_CUT, asking, jobs, print};
use crate::apply::report::{Change, Outcome};
use crate::apply::{Ask, LISTED_MAX, absolute};
use crate::config::{self, Config, Problem, schema};
use crate::registry::Registry;
use crate::run::refusals::{self, Reach, Refusal};
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

/// The result of checking a configuration.
#[derive(Serialize, JsonSchema)]
pub(super) struct Checked {
    /// Whether it can be run.
    good: bool,
    /// Its errors.
    problems: Vec<Problem>,
    /// Settings that are likely not meant.
    warnings: Vec<String>,
    /// Its chains; none if it is not good.
    chains: Vec<CheckedChain>,
    /// Runtimes to begin with.
    #[serde(skip_serializing_if = "Option::is_none")]
    runtimes: Option<u16>,
    /// As many as there may be.
    #[serde(skip_serializing_if = "Option::is_none")]
    runtimes_max: Option<u16>,
    /// The memory that it needs; absent where this program cannot count that.
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

/// Checks a configuration and shows its chains. `strict`: a configuration that `run` refuses here
/// is an error, too.
pub fn check(
    path: &Path,
    strict: bool,
    json: bool,
    registry: &Registry,
    out: &mut dyn Write,
) -> Result<(), Failure> {
    let read = config::read(path, registry).map_err(|problems| (USAGE, problems));
    let (config, memory, warnings) = match read.and_then(|config| here(path, strict, config, registry)) {
        Ok(good) => good,
        Err((code, problems)) if json => {
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
            let message = format!("{} has errors", path.display());
            return Err(Failure { code, message });
        }
        Err((code, problems)) => {
            let message = jobs::shown(&problems);
            return Err(Failure { code, message });
        }
    };
    if !json {
        let mut text = overview(path, &config, &warnings);
        if let Some(memory) = memory {
            let _ = write!(text, "\n{}", memory.text());
        }
        return print(out, text.trim_end());
    }
    let chains = config.chain.iter().map(|chain| CheckedChain {
        name: chain.name.clone(),
        functions: chain.functions.clone(),
    });
    let checked = Checked {
        good: true,
        problems: Vec::new(),
        warnings,
        chains: chains.collect(),
        runtimes: Some(config.runtimes),
        runtimes_max: Some(config.most_runtimes()),
        memory,
    };
    print(out, shape::object(&checked))
}

/// A good configuration without its functions, the memory that it needs, and warnings.
type Good = (Config, Option<Memory>, Vec<String>);

/// A fault on any machine is an error. A reason for which `run` refuses on this one is a warning,
/// and with `strict` an error of the code with which `run` would end.
fn here(
    path: &Path,
    strict: bool,
    mut config: Config,
    registry: &Registry,
) -> Result<Good, (u8, Vec<Problem>)> {
    let mut warnings = config::check::warnings(&config);
    let mut refused = refusals::all(&config, path);
    let is_alone = config.member.is_empty();
    let (memory, mut too_little) = match run::memory(&mut config) {
        Ok(memory) => {
            let refused = memory.as_ref().and_then(Memory::refused);
            (memory, refused)
        }
        Err(error) => {
            let reach = match error.is_of_configuration() {
                true => Reach::All,
                false => Reach::Machine,
            };
            (
                None,
                Some(Refusal::saying(String::new(), &error.to_string(), reach)),
            )
        }
    };
    if !is_alone {
        // The need is that of all its processes together.
        too_little.iter_mut().for_each(Refusal::of_a_member);
    }
    refused.extend(too_little);
    let is_error = |refusal: &Refusal| match refusal.reach {
        Reach::All => true,
        Reach::Words | Reach::Machine => strict,
        Reach::Member => false,
    };
    let (errors, others): (Vec<_>, Vec<_>) = refused.into_iter().partition(is_error);
    if errors.is_empty() {
        warnings.extend(others.iter().map(Refusal::warning));
        return Ok((config, memory, warnings));
    }
    let text = std::fs::read_to_string(path);
    let text = text.map_err(|error| (USAGE, vec![Problem::unreadable(path, &error)]))?;
    let file = path.display().to_string();
    let point = |refusal: &Refusal| {
        let Refusal {
            at, problem, remedy, ..
        } = refusal;
        config::point(&file, &text, registry, at, problem, remedy)
    };
    let is_of_machine = errors.iter().all(|error| error.reach == Reach::Machine);
    let code = if is_of_machine { FAILURE } else { USAGE };
    Err((code, errors.iter().map(point).collect()))
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
        text.push_str("\na packet that matches no chain is dropped (no_chain)\n");
    }
    for warning in warnings {
        let _ = writeln!(text, "\nwarning: {warning}");
    }
    text
}

/// How another configuration is to be treated.
#[derive(Clone, Copy)]
pub enum Way {
    /// Words only.
    Diff,
    /// The configuration shall be in force.
    Apply {
        /// Whatever flows that cuts.
        cut: bool,
        /// The configuration goes back after this time, unless it is confirmed.
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
    let was_rollback = ask.rollback;
    let change = Change {
        was_rollback,
        ..asking::change(ask, &listing.asking)?
    };
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
