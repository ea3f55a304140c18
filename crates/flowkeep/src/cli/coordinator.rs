//! `coordinator`: the process that decides which workers are members, and the guard that starts it
//! again.
//!
//! Not here: the coordinator itself (`crates/coordinator`, docs/coordinator.md).

use super::{Failure, Said, USAGE};
use crate::control::{counted, rights, scribe};
use crate::log::{self, Later, Level};
use crate::signals::StopSignal;
use clap::Args;
use coordinator::guard::{self, BEAT, Beats, Patience};
use coordinator::log::{Embedded, Etcd, Log};
use coordinator::server::{CoordinatorSettings, Event, Server};
use nf::Period;
use protocols::membership::{Term, Timing};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::{Command, ExitCode};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// Run the coordinator of a cluster of several processes.
#[derive(Args, Debug)]
#[command(after_help = "\
The coordinator decides which processes are members, by numbered views. No packet needs it: without it a cluster goes on as it is. A second process, \
the guard, starts it again when it ends by accident, or hangs for 10 s.

`flowkeep node` and `flowkeep switch` join with --join and a token.

Exit codes: 0 told to end; 1 (without a guard) ended by a passing cause: etcd does not answer, \
another process has \
the port, the disk is full; 2 it cannot start as it is told to; 130 broken off by a second signal.

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
    /// The silence after which a worker is suspected
    #[arg(long, value_name = "TIME", default_value = "50ms")]
    suspicion: Period,
    /// How long to listen after a start before anything is decided
    #[arg(long, value_name = "TIME", default_value = "1s")]
    settling: Period,
    /// How long a switch and a runtime may not hear each other before one of them is removed: at
    /// least lease and suspicion together. Without it 2 s, or twice as long as these two
    #[arg(long, value_name = "TIME")]
    unheard: Option<Period>,
    /// Log in etcd at these addresses (http://HOST:PORT), and run while elected by its lease; by
    /// default the log is a file in the directory
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
/// Between two lines of refusals by one name.
const SELDOM: Duration = Duration::from_secs(1);

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
    let patience = Patience::default();
    let say = |line| log::say(Level::Warn, line);
    let code = guard::watch(command, patience, || stop.is_raised(), say).map_err(failed)?;
    Ok(ExitCode::from(code))
}

fn be(words: &Words, stop: &StopSignal) -> Result<ExitCode, Failure> {
    guard::end_with_guard().map_err(failed)?;
    let beats = Beats::of_process();
    // Threads that hear members say events: no thread waits for a reader of standard error.
    let (lines, seldom) = (Later::begin(), Seldom::default());
    let events = Arc::new(move |event: Event| {
        if let Some(more) = seldom.count(&event, Instant::now()) {
            lines.say(level_of(&event), format_args!("{event}{more}"));
        }
    });
    let mut settings =
        CoordinatorSettings::read(&words.data, words.listen, events).map_err(|why| Failure {
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
        let log = Embedded::open(&words.data.join("log")).map_err(|why| ended(why.may_pass(), &why))?;
        let mut pulse = Pulse::new(start(settings, Box::new(log))?, beats);
        while !stop.is_raised() {
            pulse.look();
            thread::sleep(LOOK);
        }
        return Ok(ExitCode::SUCCESS);
    }
    log::say(Level::Info, "waiting to be elected");
    let name = words.listen.to_string();
    let log = Etcd::elected(&words.etcd, &words.etcd_prefix, &name, || {
        beats.alive();
        stop.is_raised()
    });
    let Some(log) = log.map_err(|why| ended(why.may_pass(), &why))? else {
        return Ok(ExitCode::SUCCESS);
    };
    let held = log.held();
    beats.long();
    let mut pulse = Pulse::new(start(settings, Box::new(log))?, beats);
    while !stop.is_raised() {
        pulse.look();
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

/// Says to the guard that the coordinator's threads take turns.
struct Pulse {
    server: Server,
    beats: Beats,
    counted: [u64; 2],
    beaten: Instant,
}

impl Pulse {
    fn new(server: Server, beats: Beats) -> Self {
        beats.alive();
        Pulse {
            counted: server.turns(),
            beaten: Instant::now(),
            server,
            beats,
        }
    }

    /// A beat, if it is time for one and each thread has taken a turn since the last.
    fn look(&mut self) {
        if self.beaten.elapsed() < BEAT {
            return;
        }
        let turns = self.server.turns();
        if turns.iter().zip(self.counted).all(|(now, then)| *now > then) {
            self.beats.alive();
            (self.counted, self.beaten) = (turns, Instant::now());
        }
    }
}

fn start(settings: CoordinatorSettings, log: Box<dyn Log>) -> Result<Server, Failure> {
    Server::start(settings, log).map_err(|why| ended(why.may_pass(), &why))
}

/// By another code where the same start may succeed later: then the guard starts it again.
fn ended(may_pass: bool, why: &dyn std::fmt::Display) -> Failure {
    match may_pass {
        true => Failure::failed(format!("error: {why}")),
        false => failed(why),
    }
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

/// A worker that stands still for less than a suspicion is not removed. Its switch may have no
/// lease of it for as long, and a lease's length behind that.
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

/// Of refusals by one name a line each second: as many connections as may come are refused.
#[derive(Default)]
struct Seldom(Mutex<BTreeMap<&'static str, (Instant, u64)>>);

impl Seldom {
    /// The words on unsaid refusals, for behind the event; `None` if the event is not said.
    fn count(&self, event: &Event, now: Instant) -> Option<String> {
        let Event::Refused { name, .. } = event else {
            return Some(String::new());
        };
        let mut said = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let unsaid = match said.get_mut(name) {
            Some((last, unsaid)) if now.saturating_duration_since(*last) < SELDOM => {
                *unsaid += 1;
                return None;
            }
            Some((_, unsaid)) => *unsaid,
            None => 0,
        };
        said.insert(name, (now, 0));
        Some(match unsaid {
            0 => String::new(),
            unsaid => format!(" ({unsaid} more since the last line)"),
        })
    }
}

/// How much an event of the coordinator matters.
fn level_of(event: &Event) -> Level {
    match event {
        Event::Trouble(_) => Level::Error,
        Event::Refused { .. } | Event::GoesBack { .. } | Event::OtherTerm { .. } => Level::Warn,
        Event::Listens(_) | Event::Published { .. } | Event::Reached(_) | Event::LogTakes => Level::Info,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;
    use coordinator::identity::{Authority, Caller};
    use std::process::Stdio;
    use std::sync::atomic::{AtomicU32, Ordering};

    const PLACE: &str = "FLOWKEEP_TEST_COORDINATOR_DATA";

    /// Not a test: the code of a process that the next test starts.
    #[test]
    fn be_a_coordinator() {
        #[derive(Parser)]
        struct Line {
            #[command(flatten)]
            words: Words,
        }
        let Ok(data) = std::env::var(PLACE) else {
            return;
        };
        let line = [
            "coordinator",
            "--unguarded",
            "--listen",
            "127.0.0.1:0",
            "--data",
            &data,
        ];
        let ended = coordinator(&Line::parse_from(line).words);
        std::process::exit(ended.map_or_else(|failure| failure.code.into(), |_| 0));
    }

    /// A full disk is no wrong start: the coordinator goes on when there is room.
    #[test]
    fn a_guard_starts_a_coordinator_again_whose_log_did_not_open() {
        let data = std::env::temp_dir().join(format!("flowkeep-guard-{}", std::process::id()));
        std::fs::create_dir_all(&data).unwrap();
        let day = Duration::from_secs(86_400);
        let authority = Authority::create(day).unwrap();
        authority.write(&data).unwrap();
        let identity = authority.issue(&Caller::Coordinator, day).unwrap();
        identity.write(&data, "coordinator").unwrap();
        let log = data.join("log");
        std::os::unix::fs::symlink("/dev/full", &log).unwrap();
        let starts = AtomicU32::new(0);
        let command = || {
            if starts.fetch_add(1, Ordering::Relaxed) == 1 {
                std::fs::remove_file(&log).unwrap();
            }
            let mut command = Command::new(std::env::current_exe().unwrap());
            command
                .args([
                    "--exact",
                    "cli::coordinator::tests::be_a_coordinator",
                    "--nocapture",
                ])
                .env(PLACE, &data)
                .stdout(Stdio::null());
            command
        };
        let has_log = || std::fs::metadata(&log).is_ok_and(|of| of.is_file() && of.len() > 0);
        let mut said = Vec::new();
        let code = guard::watch(command, Patience::default(), has_log, |line| said.push(line));
        assert_eq!(
            (code.unwrap(), starts.load(Ordering::Relaxed)),
            (0, 2),
            "{said:?}"
        );
        assert!(said[0].contains("exit code 1") && said.len() == 1, "{said:?}");
        std::fs::remove_dir_all(&data).unwrap();
    }

    #[test]
    fn of_refusals_a_line_is_said_each_second() {
        let (seldom, begun) = (Seldom::default(), Instant::now());
        let refused = |name| Event::Refused {
            name,
            from: "192.0.2.1:1".parse().unwrap(),
        };
        let at = |ms, event: Event| seldom.count(&event, begun + Duration::from_millis(ms));
        assert_eq!(at(0, refused("not-tls")).as_deref(), Some(""));
        for ms in 1..1000 {
            assert_eq!(at(ms, refused("not-tls")), None);
        }
        assert_eq!(at(500, refused("busy")).as_deref(), Some(""));
        assert_eq!(at(600, Event::Reached(1)).as_deref(), Some(""));
        let more = at(1000, refused("not-tls"));
        assert_eq!(more.as_deref(), Some(" (999 more since the last line)"));
        assert_eq!(at(2000, refused("not-tls")).as_deref(), Some(""));
    }
}
