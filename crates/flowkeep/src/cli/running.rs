//! `run`: a cluster from its start to its report.
//!
//! ```text
//! events file ─▶ start ─▶ control socket, metrics ─▶ wait for inputs, signal or word ─▶ report
//! ```
//!
//! Standard output has what a script wants: event lines if they go there, and the JSON object at the end. The table goes
//! there too, unless event lines do.

use super::job::RunJob;
use super::{Failure, print};
use crate::control;
use crate::metrics;
use crate::report::Status;
use crate::run::{self, Events, Outcome, RunError};
use serde::Serialize;
use std::fs::File;
use std::io::{self, BufWriter, Write};

/// What `run --json` ends with: a status, and how it ended.
#[derive(Serialize)]
struct Report {
    #[serde(flatten)]
    status: Status,
    /// Whether packets in and made equal packets out, held and dropped.
    adds_up: bool,
    /// Whether it was broken off with packets inside.
    broken_off: bool,
}

/// Runs a cluster to its end.
pub fn run(job: RunJob, out: &mut dyn Write) -> Result<(), Failure> {
    let RunJob {
        config,
        socket_wanted,
        json,
        stop,
    } = job;
    let events_printed = config.log.events.as_deref() == Some("-");
    let events = config.log.events.as_deref().map(open_events).transpose()?;
    let socket = config
        .control
        .socket
        .clone()
        .unwrap_or_else(control::default_path);
    let listen = config.metrics.listen;
    let running = run::start(config, events).map_err(|error| match error {
        RunError::Plan(_) | RunError::Function { .. } => Failure::usage(error.to_string()),
        error => Failure::failed(error.to_string()),
    })?;
    let mut refused = None;
    let control = match control::server::Server::start(&socket, running.cluster()) {
        Ok(server) => Some(server),
        Err(error) if socket_wanted => {
            refused = Some(error.to_string());
            None
        }
        Err(error) => {
            note(format_args!("no control socket: {error}"));
            None
        }
    };
    let metrics = match listen
        .map(|address| metrics::Server::start(address, running.cluster()))
        .transpose()
    {
        Ok(server) => server,
        Err(problem) => {
            refused = Some(problem);
            None
        }
    };
    let mut asked = false;
    if refused.is_some() {
        asked = true;
        running.cluster().stop();
    }
    let outcome = running.wait(|cluster| {
        if !asked && stop.is_raised() {
            asked = true;
            cluster.stop();
        }
    });
    drop((control, metrics));
    if let Some(problem) = refused {
        return Err(Failure::failed(problem));
    }
    tell(&outcome, json, events_printed, out)
}

/// Says how it went.
fn tell(outcome: &Outcome, json: bool, events_printed: bool, out: &mut dyn Write) -> Result<(), Failure> {
    for report in &outcome.reports {
        note(report);
    }
    let report = Report {
        status: Status::from(&outcome.snapshot),
        adds_up: outcome.snapshot.packets().add_up(),
        broken_off: outcome.broken_off,
    };
    if json {
        print(out, serde_json::json!(report))?;
    } else if events_printed {
        note(&report.status);
    } else {
        print(out, report.status.to_string().trim_end())?;
    }
    if let Err(problem) = &outcome.events {
        return Err(Failure::failed(problem.clone()));
    }
    if outcome.broken_off {
        return Err(Failure::failed("it was broken off with packets inside"));
    }
    if !report.adds_up {
        return Err(Failure::failed(
            "packets in and made are not packets out, held and dropped: this is an error in Flowkeep; please report it",
        ));
    }
    Ok(())
}

/// Where event lines go: a file, or standard output for `-`.
fn open_events(name: &str) -> Result<Events, Failure> {
    if name == "-" {
        return Ok(Box::new(BufWriter::new(io::stdout())));
    }
    match File::create(name) {
        Ok(file) => Ok(Box::new(BufWriter::new(file))),
        Err(error) => Err(Failure::failed(format!(
            "{name}: events cannot be written here: {error}; name another file with [log] events = \"…\" or --events"
        ))),
    }
}

/// A line for a person who looks on. Nobody may be there.
fn note(line: impl std::fmt::Display) {
    let _ = writeln!(io::stderr(), "{line}");
}
