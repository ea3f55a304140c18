//! The structures that are handed to commands that drive workers.

use super::{Failure, MemberWords, PageSize, Run, Scenario};
use crate::apply::{Source, absolute};
use crate::config::{self, Chain, Config, Port, Side, Uri, problem::Problem};
use crate::control::path_of_environment;
pub use crate::lab::LabJob;
use crate::member::{Kind, Written};
use crate::member::{joining, newcomer};
use crate::registry::Registry;
use crate::signals::StopSignal;
pub use crate::sim::SimJob;
use adapters::uri::Role;
use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;

/// The functions behind `run`, `bench`, `new`, `port bridge`, `lab` and `sim`.
#[derive(Clone, Copy, Debug)]
pub struct Jobs {
    /// Runs a cluster to its end, and prints its report.
    pub run: fn(RunJob) -> ExitCode,
    /// Measures, and prints figures.
    pub bench: fn(BenchJob, &Registry) -> ExitCode,
    /// Makes a crate.
    pub new: fn(NewJob) -> ExitCode,
    /// Passes frames between two ports.
    pub bridge: fn(BridgeJob) -> ExitCode,
    /// Builds networks to try things in.
    pub lab: fn(LabJob) -> ExitCode,
    /// Simulates.
    pub sim: fn(SimJob, &Registry) -> ExitCode,
}

/// A cluster to run.
#[derive(Debug)]
pub struct RunJob {
    /// How, the command line's words put in. It has at least one chain and one port with an input.
    pub config: Config,
    /// End with one JSON object instead of a table.
    pub json: bool,
    /// When to end before the inputs do.
    pub stop: StopSignal,
    /// Where the configuration came from, so that it can change while it runs; none without a file.
    pub source: Option<Source>,
    /// Of a cluster of several processes: which one this is.
    pub member: Option<MemberJob>,
}

/// The member of a cluster that a process is to be.
#[derive(Debug)]
pub struct MemberJob {
    /// Its kind, as it was started.
    pub kind: Kind,
    /// Its name.
    pub name: String,
    /// Path of its control socket, if the command line says.
    pub socket: Option<PathBuf>,
    /// Where it writes events, if the command line says.
    pub events: Option<String>,
    /// Of a member that the configuration does not list.
    pub newcomer: Option<newcomer::Words>,
    /// With a coordinator: how it is joined.
    pub join: Option<joining::Words>,
    /// The configuration's file.
    pub path: PathBuf,
    /// Its text.
    pub text: String,
    /// The same, setting by setting.
    pub tree: toml::Table,
    /// The functions there are.
    pub registry: Registry,
}

impl MemberJob {
    /// The configuration as it was read.
    pub fn written(&self) -> Written<'_> {
        Written {
            path: &self.path,
            text: &self.text,
            tree: &self.tree,
            registry: &self.registry,
        }
    }
}

/// Reads the configuration of which this process is to be a member.
pub(super) fn member_job(
    words: MemberWords,
    newcomer: Option<newcomer::Words>,
    kind: Kind,
    registry: &Registry,
) -> Result<RunJob, Failure> {
    words.said.begin()?;
    let read = config::read_tree(&words.config, registry);
    let (config, tree, text) = read.map_err(|problems| Failure::usage(shown(&problems)))?;
    Ok(RunJob {
        config,
        json: words.json,
        stop: stop_signal(words.stop_after)?,
        source: None,
        member: Some(MemberJob {
            kind,
            name: words.member,
            socket: words.socket.or_else(path_of_environment),
            events: words.events,
            newcomer,
            join: (!words.join.is_empty()).then_some(joining::Words {
                coordinators: words.join,
                token: words.token,
                identity: words.identity,
            }),
            path: absolute(&words.config),
            text,
            tree,
            registry: registry.clone(),
        }),
    })
}

/// Something to measure.
#[derive(Debug, PartialEq, Eq)]
pub struct BenchJob {
    /// The scenario.
    pub scenario: Scenario,
    /// With so many flows each.
    pub flows: Vec<u32>,
    /// So often each.
    pub runs: u16,
    /// In such pages.
    pub pages: PageSize,
    /// Print one JSON object.
    pub json: bool,
    /// Where to draw them.
    pub plot: Option<PathBuf>,
    /// Of `live`: kind of ports.
    pub port: &'static str,
    /// Of `live`: frames per second; 0 is as fast as can be.
    pub loads: Vec<u32>,
    /// Of `live`: how long a load is kept up, in milliseconds.
    pub moment_ms: u32,
}

/// A crate to make.
#[derive(Debug, PartialEq, Eq)]
pub struct NewJob {
    /// The function's name as it was typed, which is its directory's, too.
    pub name: String,
    /// The kind of the new function.
    pub kind: crate::new::Kind,
    /// Where that directory goes.
    pub directory: PathBuf,
}

/// Two ports to pass frames between.
#[derive(Debug)]
pub struct BridgeJob {
    /// Their URIs.
    pub ports: [String; 2],
    /// End with one JSON object.
    pub json: bool,
    /// When to end.
    pub stop: StopSignal,
}

/// A signal that ends a job, by the process's signals or after a time.
pub(super) fn stop_signal(after: Option<nf::Period>) -> Result<StopSignal, Failure> {
    StopSignal::of_process(after.map(nf::Period::duration))
        .map_err(|error| Failure::failed(format!("signals cannot be handled: {error}")))
}

/// The function that `run` without a configuration runs.
const MONITOR: &str = "flow_monitor";

/// Options of the command line, which come before the configuration.
struct Words {
    input: Option<String>,
    output: Option<String>,
    runtimes: Option<u16>,
    events: Option<String>,
    socket: Option<PathBuf>,
}

impl Words {
    fn put_into(&self, config: &mut Config) -> Result<(), Failure> {
        override_ports(config, self.input.as_deref(), self.output.as_deref())?;
        if let Some(runtimes) = self.runtimes {
            if !config.member.is_empty() {
                let what = "--runtimes: the members of this configuration say how many runtimes there are; change `runtimes` of one of them";
                return Err(Failure::usage(what));
            }
            config.runtimes = runtimes;
        }
        if self.events.is_some() {
            config.log.events.clone_from(&self.events);
        }
        if self.socket.is_some() {
            config.control.socket.clone_from(&self.socket);
        }
        Ok(())
    }
}

/// Reads the configuration and puts the command line's words in.
pub(super) fn run_job(run: Run, registry: &Registry) -> Result<RunJob, Failure> {
    run.said.begin()?;
    let (mut config, tree) = match &run.config {
        Some(path) => {
            let read = config::read_tree(path, registry);
            let (config, tree, _) = read.map_err(|problems| Failure::usage(shown(&problems)))?;
            (config, tree)
        }
        None if run.input.is_some() => (monitor(registry)?, toml::Table::new()),
        None => {
            let what = "nothing to run: name a configuration (flowkeep run gateway.toml), or an input (flowkeep run --input \
                        pcap:in.pcap)";
            return Err(Failure::usage(what));
        }
    };
    let words = Words {
        input: run.input,
        output: run.output,
        runtimes: run.runtimes,
        events: run.events,
        socket: run.socket.or_else(path_of_environment),
    };
    words.put_into(&mut config)?;
    if !config.port.iter().any(|port| port.input.is_some()) {
        return Err(Failure::usage(
            "no port has an input: add one to the configuration, or say --input URI",
        ));
    }
    if let Some(warning) = config::check::only_reflects(&config) {
        let _ = writeln!(std::io::stderr(), "warning: {warning}");
    }
    let source = run.config.map(|path| Source {
        registry: registry.clone(),
        path: absolute(&path),
        tree,
        overrides: Box::new(move |config| words.put_into(config).map_err(|failure| failure.message)),
        own: None,
    });
    let stop = stop_signal(run.stop_after)?;
    Ok(RunJob {
        config,
        json: run.json,
        stop,
        source,
        member: None,
    })
}

/// All problems, as they are shown, and how many.
pub(super) fn shown(problems: &[Problem]) -> String {
    let mut text: Vec<String> = problems.iter().map(ToString::to_string).collect();
    text.push(match problems.len() {
        1 => "1 problem".to_owned(),
        count => format!("{count} problems"),
    });
    text.join("\n\n")
}

/// The flow monitor over whatever input there is, records to standard output.
fn monitor(registry: &Registry) -> Result<Config, Failure> {
    let entry = registry.entry(MONITOR).ok_or_else(|| {
        let have = registry.names().join(", ");
        Failure::usage(format!(
            "this binary has no function `{MONITOR}`: name a configuration (its functions are {have})"
        ))
    })?;
    let factory = entry
        .defaults()
        .map_err(|error| Failure::failed(format!("{MONITOR}: {}", error.message())))?;
    let mut config = Config {
        chain: vec![Chain {
            name: "monitor".to_owned(),
            functions: vec![MONITOR.to_owned()],
            matches: None,
            replication: None,
        }],
        ..Config::default()
    };
    config.log.events = Some("-".to_owned());
    let function = config::Function {
        kind: entry.name,
        factory,
    };
    config.functions.insert(MONITOR.to_owned(), function);
    Ok(config)
}

/// Puts `--input` and `--output` into the first port. If there is none, one is made, and is named
/// for its source or destination.
fn override_ports(config: &mut Config, input: Option<&str>, output: Option<&str>) -> Result<(), Failure> {
    let uri = |option: &str, text: Option<&str>, role: Role| -> Result<Option<Uri>, Failure> {
        text.map(|text| {
            Uri::new(text, role).map_err(|problem| Failure::usage(format!("{option}: {problem}")))
        })
        .transpose()
    };
    let input = uri("--input", input, Role::Input)?;
    let output = uri("--output", output, Role::Output)?;
    if input.is_none() && output.is_none() {
        return Ok(());
    }
    if config.port.is_empty() {
        let named = input.as_ref().or(output.as_ref()).map_or("", Uri::as_str);
        config.port.push(Port {
            name: named.split('?').next().unwrap_or_default().to_owned(),
            input: None,
            output: None,
            side: Side::ByAddress,
            member: None,
        });
    }
    let port = &mut config.port[0];
    if input.is_some() {
        port.input = input;
    }
    if output.is_some() {
        port.output = output;
    }
    Ok(())
}
