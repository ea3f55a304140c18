//! `coordinator`: the process that says which workers are members, and the guard that starts it
//! again.
//!
//! Not here: what it does (`crates/coordinator`, docs/coordinator.md).

use super::{Failure, Said, USAGE};
use crate::control::{counted, rights, scribe};
use crate::log::{self, Level};
use crate::signals::StopSignal;
use clap::Args;
use coordinator::guard;
use coordinator::log::{Embedded, Etcd};
use coordinator::server::{Event, Server, Settings};
use nf::Period;
use protocols::membership::{Term, Timing};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::{Command, ExitCode};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

/// Run the coordinator of a cluster of several processes.
#[derive(Args, Debug)]
#[command(after_help = "\
The coordinator says who is a member, by numbered views. No packet needs it: without it a cluster goes on as it is. A second process, \
the guard, starts it again when it ends by accident.

`flowkeep node` and `flowkeep switch` join with --join and a token.

Exit codes: 0 told to end; 2 it cannot start as it is told to; 130 broken off by a second signal.

Example:
  flowkeep cluster init cluster/
  flowkeep coordinator --data cluster/ --listen 192.0.2.1:4400")]
pub struct Words {
    /// The directory that cluster init has made; the log is in it too
    #[arg(long, value_name = "DIRECTORY")]
    data: PathBuf,
    /// Where to listen
    #[arg(long, value_name = "ADDRESS:PORT")]
    listen: SocketAddr,
    /// How long leases last
    #[arg(long, value_name = "TIME", default_value = "40ms")]
    lease: Period,
    /// After which silence a worker is suspected
    #[arg(long, value_name = "TIME", default_value = "50ms")]
    suspicion: Period,
    /// How long to listen after a start before anything is decided
    #[arg(long, value_name = "TIME", default_value = "1s")]
    settling: Period,
    /// After which time one of a switch and a runtime that do not hear each other is removed: at least lease and suspicion together. Without it 2 s, or twice as long as these two
    #[arg(long, value_name = "TIME")]
    unheard: Option<Period>,
    /// Log in etcd at these addresses (http://HOST:PORT), and run while elected by its lease; by default the log is a file in the directory
    #[arg(long, value_name = "URL,…", value_delimiter = ',')]
    etcd: Vec<String>,
    /// Before the keys of this cluster in etcd
    #[arg(long, value_name = "PREFIX", default_value = "flowkeep")]
    etcd_prefix: String,
    #[command(flatten)]
    said: Said,
    /// Without a guard
    #[arg(long)]
    unguarded: bool,
}

/// How often it looks whether it is to end.
const LOOK: Duration = Duration::from_millis(50);

/// `--unheard`, if it is not said and the other times are short.
const UNHEARD: Duration = Duration::from_secs(2);

fn failed(what: impl std::fmt::Display) -> Failure {
    Failure::usage(format!("error: {what}"))
}

/// `coordinator`
pub fn coordinator(words: &Words) -> Result<ExitCode, Failure> {
    words.said.begin()?;
    let stop = StopSignal::of_process(None).map_err(failed)?;
    match words.unguarded {
        true => be(words, &stop),
        false => watch(&stop),
    }
}

/// Starts this program once more, with the same words, and watches it.
fn watch(stop: &StopSignal) -> Result<ExitCode, Failure> {
    let program = std::env::current_exe().map_err(failed)?;
    let command = || {
        let mut command = Command::new(&program);
        command.args(std::env::args_os().skip(1)).arg("--unguarded");
        command
    };
    let code =
        guard::watch(command, || stop.is_raised(), |line| log::say(Level::Warn, line)).map_err(failed)?;
    Ok(ExitCode::from(code))
}

fn be(words: &Words, stop: &StopSignal) -> Result<ExitCode, Failure> {
    guard::end_with_guard().map_err(failed)?;
    let events = Arc::new(|event: Event| log::say(level_of(&event), event));
    let mut settings = Settings::read(&words.data, words.listen, events).map_err(|why| Failure {
        code: USAGE,
        message: format!(
            "error: {why}\n  begin a cluster with: flowkeep cluster init {}",
            words.data.display()
        ),
    })?;
    settings.timing = timing(words)?;
    settings.judge = rights::judge;
    settings.scribe = scribe::say;
    settings.keeper = Some(counted::KEEPER);
    if words.etcd.is_empty() {
        let log = Embedded::open(&words.data.join("log")).map_err(failed)?;
        let _server = Server::start(settings, Box::new(log)).map_err(failed)?;
        while !stop.is_raised() {
            thread::sleep(LOOK);
        }
        return Ok(ExitCode::SUCCESS);
    }
    log::say(Level::Info, "waiting to be elected");
    let name = words.listen.to_string();
    let log = Etcd::elected(&words.etcd, &words.etcd_prefix, &name, || stop.is_raised());
    let Some(log) = log.map_err(failed)? else {
        return Ok(ExitCode::SUCCESS);
    };
    let held = log.held();
    let _server = Server::start(settings, Box::new(log)).map_err(failed)?;
    while !stop.is_raised() {
        if held.is_over() {
            // Not the code of a wrong start: the guard starts it again, and it stands for election.
            return Err(Failure::failed(
                "another coordinator is elected, or etcd does not answer",
            ));
        }
        thread::sleep(LOOK);
    }
    Ok(ExitCode::SUCCESS)
}

fn timing(words: &Words) -> Result<Timing, Failure> {
    let nanoseconds = |period: Period| u64::try_from(period.duration().as_nanos()).unwrap_or(u64::MAX);
    let (lease, suspicion) = (nanoseconds(words.lease), nanoseconds(words.suspicion));
    if lease == 0 || lease >= suspicion {
        return Err(failed(
            "--lease is more than 0 and less than --suspicion: a member that is suspected has no lease left, as a rule",
        ));
    }
    Ok(Timing {
        term: Term { lease },
        suspicion,
        settling: nanoseconds(words.settling),
        unheard: unheard(words)?,
    })
}

/// A worker that stands still for less than a suspicion is not removed. Its switch may have no lease
/// of it for as long, and a lease's length behind that.
fn unheard(words: &Words) -> Result<u64, Failure> {
    let least = words.lease.duration().saturating_add(words.suspicion.duration());
    let unheard = match words.unheard.map(|unheard| unheard.duration()) {
        Some(unheard) if unheard < least => {
            return Err(failed(format!(
                "--unheard {unheard:?} is less than --lease and --suspicion together: say {least:?} or more, or leave it out"
            )));
        }
        Some(unheard) => unheard,
        None => least.saturating_mul(2).max(UNHEARD),
    };
    Ok(u64::try_from(unheard.as_nanos()).unwrap_or(u64::MAX))
}

/// How much an event of the coordinator matters.
fn level_of(event: &Event) -> Level {
    match event {
        Event::Trouble(_) => Level::Error,
        Event::Refused { .. } | Event::GoesBack { .. } => Level::Warn,
        Event::Listens(_) | Event::Published { .. } | Event::Reached(_) | Event::LogTakes => Level::Info,
    }
}
