//! `chain check` and `chain schema`: what can be said of a configuration without running it. `chain diff`, `apply` and `rollback`: what
//! is asked of, or done to, the configuration of a running cluster.

use super::{Failure, Listing, USAGE, WOULD_CUT, asking, jobs, print};
use crate::apply::report::Outcome;
use crate::apply::{Ask, LISTED_MAX, absolute};
use crate::config::{self, Config, schema};
use crate::registry::Registry;
use nf::Period;
use serde_json::json;
use std::fmt::Write as _;
use std::io::Write;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

/// Checks a configuration and shows its chains.
pub fn check(path: &Path, json: bool, registry: &Registry, out: &mut dyn Write) -> Result<(), Failure> {
    match config::read(path, registry) {
        Ok(config) if json => {
            let chains: Vec<_> = config
                .chain
                .iter()
                .map(|chain| json!({ "name": chain.name, "functions": chain.functions }))
                .collect();
            let warnings = config::check::warnings(&config);
            print(
                out,
                json!({ "good": true, "problems": [], "warnings": warnings, "chains": chains }),
            )
        }
        Ok(config) => print(out, overview(path, &config).trim_end()),
        Err(problems) if json => {
            print(out, json!({ "good": false, "problems": problems }))?;
            Err(Failure {
                code: USAGE,
                message: format!("{} has errors", path.display()),
            })
        }
        Err(problems) => Err(Failure::usage(jobs::shown(&problems))),
    }
}

/// The chains of a good configuration, and who gets into them.
fn overview(path: &Path, config: &Config) -> String {
    let mut text = format!("{} is good\n", path.display());
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
    for warning in config::check::warnings(config) {
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
        print(out, json!(change))?;
    } else {
        print(out, change.to_string().trim_end())?;
    }
    Ok(ExitCode::from(match change.outcome {
        Outcome::Same | Outcome::Possible | Outcome::Applied => 0,
        Outcome::Refused => USAGE,
        Outcome::WouldCut | Outcome::RefusedToCut => WOULD_CUT,
    }))
}

/// Prints the JSON schema.
pub fn schema(registry: &Registry, out: &mut dyn Write) -> Result<(), Failure> {
    print(out, format!("{:#}", schema::of(registry)))
}
