//! The command `run`: a cluster from its configuration to its report.

use super::decided;
use super::events::{LogFile, Rotation, cannot_be_opened};
use super::export;
use super::laying;
use super::privileges::Privileges;
use super::ready::{Manager, Parts};
use super::refusals::Reach;
use super::{Events, Links, Outcome, RunError, Running, start_with_less};
use crate::apply::{Ask, Source};
use crate::cli::jobs::{MemberJob, RunJob};
use crate::cli::{FAILURE, USAGE, failed};
use crate::cluster::Cluster;
use crate::config::layout::Layout;
use crate::config::{self, Config, Problem};
use crate::control::{self, server, service};
use crate::log::{self, Level};
use crate::member::joining::{JoinError, Joining};
use crate::member::newcomer;
use crate::member::secrets::Secrets;
use crate::member::unmet::Unmet;
use crate::member::{self, Membership, Written};
use crate::metrics;
use crate::report::{LinkStatus, Status};
use crate::signals::Hangup;
use adapters::report::{Report, Reports};
use coordinator::agent::Serving;
use nf::ByteSize;
use std::io::{self, BufWriter, IsTerminal, Write};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Runs a cluster to its end and prints the figures: a table, or with `json` one object on the last
/// line.
pub fn run(job: RunJob) -> ExitCode {
    let wants_objects = job.json;
    match try_run(job) {
        Ok(code) => code,
        Err((code, message)) => failed::ends(wants_objects, message, code),
    }
}

type Failed = (u8, String);

/// How often a member looks whether others are there that it does not meet.
const LOOK: Duration = Duration::from_secs(1);

fn try_run(job: RunJob) -> Result<ExitCode, Failed> {
    let RunJob {
        mut config,
        json,
        stop,
        source,
        member,
    } = job;
    let mut source = source;
    let membership = match &member {
        None => None,
        Some(job) => {
            let (membership, of_member) = join(job, &mut config)?;
            source = of_member;
            Some(membership)
        }
    };
    let own = source.as_ref().map(|source| source.path.as_path());
    let own = own.or(member.as_ref().map(|job| job.path.as_path()));
    let mut twice = config::files::twice(&config, own).into_iter();
    if let Some(file) = twice.find(|file| file.reach == Reach::All) {
        return Err((USAGE, format!("{}: {}; {}", file.at, file.problem, file.remedy)));
    }
    let to_stdout = config.log.events.as_deref() == Some("-");
    let of_events = Reports::default();
    let events = open_events(&config, &of_events)?;
    let socket = config.control.socket.clone();
    let listen = config.metrics.listen;
    let hangup = (source.is_some() || member.is_some())
        .then(Hangup::of_process)
        .transpose();
    let hangup = hangup.map_err(|error| (FAILURE, format!("signals cannot be handled: {error}")))?;
    let manager = Manager::of_process();
    let layout = match &membership {
        Some(membership) => membership.layout.clone(),
        None => Layout::whole(&config),
    };
    let mut parts = Parts::new(&config, &layout, member.as_ref().map(|job| job.name.as_str()));
    let keyring = membership.as_ref().map(|membership| membership.secrets.clone());
    let privileges = Privileges::of(&config).map_err(|problem| (FAILURE, problem))?;
    // Files and sockets that are opened by name are open before rights are given up.
    let bound = bind(socket, listen)?;
    let joining = membership.as_ref().and_then(|member| member.joining.clone());
    let running = start_with_less(config, membership, events, source, &privileges);
    let running = running.map_err(|error| match stop.is_raised() {
        // The process was asked to end while it waited: the configuration may be good.
        true => (FAILURE, error.to_string()),
        false => (code_of(&error), error.to_string()),
    })?;
    let links = running.links();
    let mut servers = serve(&running, bound)?;
    let deciding = joining.clone().map(|joining| decided::follow(&running, joining));
    let deciding = deciding.transpose().map_err(|error| {
        let what = "no thread for the coordinator's decisions";
        (FAILURE, format!("{what}: {error}"))
    })?;
    let laying = joining.as_ref().map(|joining| laying::follow(&running, joining));
    let laying = laying.transpose().map_err(|error| {
        let what = "no thread for links to members that are not listed";
        (FAILURE, format!("{what}: {error}"))
    })?;
    let serving = joining
        .map(|joining| serve_members(&running, joining))
        .transpose()?;
    let control = servers.0.as_ref().map(server::Server::path);
    let metrics = servers.1.as_ref().map(metrics::Server::address);
    parts.say(&manager, control, metrics);
    let running_cluster: Arc<dyn Cluster> = running.cluster();
    let reports = running.reports();
    let mut told = tell(reports.take());
    let (mut unmet, mut look_at) = (Unmet::default(), Instant::now());
    let mut applying: Option<JoinHandle<()>> = None;
    let (fence, is_ending) = (running.fence(), running.is_ending());
    let outcome = running.wait(|cluster: &dyn Cluster| {
        told |= tell(reports.take()) | tell(of_events.take());
        let removed_by = fence.load(Ordering::Acquire);
        if removed_by > 0 {
            // A signal came to this process alone: another incarnation would not know of it.
            if stop.is_raised() || is_ending() {
                servers.0.take();
                end_removed(removed_by, json);
            }
            begin_again(removed_by);
        }
        if member.is_some() && Instant::now() >= look_at {
            look_at = Instant::now() + LOOK;
            let links = links.stats();
            parts.look(&manager, &links);
            let links: Vec<LinkStatus> = links.iter().map(LinkStatus::from).collect();
            for line in unmet.look(&links) {
                log::say(Level::Warn, line);
            }
        }
        // A signal that comes while the file is being applied is looked at afterwards.
        if applying.as_ref().is_none_or(JoinHandle::is_finished)
            && hangup.as_ref().is_some_and(Hangup::was_raised)
        {
            match (&member, &keyring) {
                (Some(member), Some(keyring)) => {
                    let path = member.path.display();
                    match take_keys(member, keyring, &links) {
                        Ok(more) => log::say(
                            Level::Info,
                            format_args!("SIGHUP: links have the keys of {path}{more}"),
                        ),
                        Err(problem) => log::say(Level::Error, format_args!("SIGHUP: {problem}")),
                    }
                }
                _ => applying = apply_again(running_cluster.clone()),
            }
        }
        if stop.is_raised() {
            manager.tell("STOPPING=1\nSTATUS=ends: packets inside are finished");
            cluster.stop();
            // Once: a second call means at once.
            stop.lower();
        }
    });
    drop((servers, serving, deciding, laying));
    report(&outcome, json, to_stdout);
    told |= tell(outcome.reports) | tell(of_events.take());
    let failed = told || outcome.events.is_err() || outcome.broken_off;
    Ok(ExitCode::from(if failed { FAILURE } else { 0 }))
}

/// A view has removed this member: none of its workers has any effect, and others have its flows or
/// will. The process begins again with the same words, as another incarnation. Only its files are
/// kept.
fn begin_again(view: u32) -> ! {
    log::say(
        Level::Warn,
        format_args!("view {view} is without this member: it begins again, as another incarnation"),
    );
    let error = std::process::Command::new("/proc/self/exe")
        .args(std::env::args_os().skip(1))
        .exec();
    let _ = writeln!(io::stderr(), "it cannot begin again: {error}; start it again");
    std::process::exit(FAILURE.into())
}

/// A view has removed this member as it ended, told to or at the end of its inputs. There is
/// nothing that it could hand over: the process ends as it is, and touches neither stores nor
/// flows.
fn end_removed(view: u32, wants_objects: bool) -> ! {
    let said = format!(
        "view {view} has removed this member as it stopped: it ends at once, and hands nothing over \
         any more. Flows that it still had go on from copies, or begin elsewhere"
    );
    let _ = failed::ends(wants_objects, said, FAILURE);
    std::process::exit(FAILURE.into())
}

/// Becomes a member of a cluster of several processes. With a coordinator, the cluster's
/// configuration counts, and may change while it runs.
fn join(job: &MemberJob, config: &mut Config) -> Result<(Membership, Option<Source>), Failed> {
    let newcomer = job.newcomer.as_ref();
    let membership = Membership::new(job.kind, &job.name, newcomer, config, &job.written());
    let mut membership = membership.map_err(|problem| (code_of_member(&problem), problem.to_string()))?;
    let mut source = None;
    if let Some(words) = &job.join {
        let joining = Joining::prepare(words, &member::directory(config), &job.name);
        let failed = |why: JoinError| (FAILURE, why.to_string());
        let mut joining = joining.map_err(failed)?;
        let place = membership.place;
        if newcomer.is_some() {
            // Where others find it.
            let socket = job.socket.as_ref().or(config.control.socket.as_ref());
            config.member[place].socket = socket.cloned();
        }
        let there = newcomer.map(|_| newcomer::enlist(&joining, &mut membership, config));
        let there = there.transpose().map_err(failed)?;
        let taken = decided::take_on(job, &joining, config, &mut membership);
        let taken = taken.map_err(failed)?;
        match there {
            Some(there) => {
                let is_decided = taken.own.as_ref().is_some_and(|own| own.number > 1);
                newcomer::compare(&there, &membership, is_decided).map_err(failed)?;
            }
            None => joining.plan = Some(newcomer::plan(config, &membership.secrets.agreed)),
        }
        source = Some(taken);
        membership.joining = Some(joining);
    }
    if job.socket.is_some() {
        config.control.socket.clone_from(&job.socket);
    }
    if job.events.is_some() {
        config.log.events.clone_from(&job.events);
    }
    Ok((membership, source))
}

/// On SIGHUP to a member: its links take the keys that the file names now. Other changes in the
/// file count from the next start on, which is said.
fn take_keys(job: &MemberJob, secrets: &Secrets, links: &Links) -> Result<String, String> {
    let read = config::read_tree(&job.path, &job.registry);
    let shown = |problems: Vec<Problem>| {
        problems
            .iter()
            .map(ToString::to_string)
            .collect::<Vec<_>>()
            .join("\n\n")
    };
    let (config, tree, text) = read.map_err(shown)?;
    let written = Written {
        path: &job.path,
        text: &text,
        tree: &tree,
        registry: &job.registry,
    };
    let protection = secrets
        .next(&config, &written)
        .map_err(|problem| problem.to_string())?;
    links.protect(&protection)?;
    // An operator that changed more than keys would think that it is in force.
    let there = Secrets::read(&config, &written).map_err(|problem| problem.to_string())?;
    let here = links.words().unwrap_or(secrets.agreed);
    let differs = std::array::from_fn(|part| there.agreed[part] ^ here[part]);
    Ok(
        match crate::member::secrets::difference(&differs, &there.functions) {
            None => String::new(),
            Some(parts) => format!(
                ". Nothing else of it is in force, and it differs from the running one: {parts}. With a coordinator, chains and functions change by `flowkeep chain apply \
             --cluster`; the rest needs all members to be stopped and started again"
            ),
        },
    )
}

/// On SIGHUP: puts the file in force again, unless that cut flows. On a thread of its own, since
/// the thread that waits here sees to the end.
fn apply_again(cluster: Arc<dyn Cluster>) -> Option<JoinHandle<()>> {
    let applying = std::thread::Builder::new().name("hangup".into()).spawn(move || {
        let ask = Ask {
            waits: true,
            ..Ask::default()
        };
        match cluster.change(&ask) {
            Ok(change) => log::say(Level::Info, format_args!("SIGHUP: {change}")),
            Err(problem) => log::say(Level::Error, format_args!("SIGHUP: {problem}")),
        }
    });
    let told = |error| log::say(Level::Error, format_args!("SIGHUP: no thread for it: {error}"));
    applying.map_err(told).ok()
}

/// A configuration that cannot be is wrong usage; a machine that refuses it is a failure.
fn code_of(error: &RunError) -> u8 {
    if error.is_of_configuration() {
        USAGE
    } else {
        FAILURE
    }
}

/// A member that there is none of is wrong usage; files and users that are not here are a failure.
fn code_of_member(problem: &Problem) -> u8 {
    let top = problem.setting.split(['.', '[']).next();
    match top {
        Some("cluster" | "user") => FAILURE,
        _ => USAGE,
    }
}

fn open_events(config: &Config, reports: &Reports) -> Result<Option<Events>, Failed> {
    // Without a log too: the signal must not end the process.
    let again = crate::signals::event_log_again()
        .map_err(|error| (FAILURE, format!("signals cannot be handled: {error}")))?;
    let rotation = Rotation {
        max_size: config.log.max_size.map(ByteSize::bytes),
        max_age: config.log.max_age.map(nf::Period::duration),
        keep: config.log.keep,
        again,
    };
    let (name, file): (&str, Box<dyn Write + Send>) = match config.log.events.as_deref() {
        None if config.log.syslog.is_none() && config.log.ipfix.is_none() => return Ok(None),
        None => ("(none)", Box::new(io::sink())),
        Some("-") => ("standard output", Box::new(BufWriter::new(io::stdout()))),
        Some(path) => {
            let file = LogFile::open(Path::new(path), rotation, reports.clone())
                .map_err(|error| (FAILURE, cannot_be_opened(Path::new(path), &error)))?;
            (path, Box::new(file))
        }
    };
    let out = export::of(&config.log, file, reports);
    let out = out.map_err(|unreached| (FAILURE, unreached.to_string()))?;
    Ok(Some(Events::to(name, Box::new(out))))
}

/// The control socket and, if asked for, the figures for Prometheus, for as long as this lives.
type Servers = (Option<server::Server>, Option<metrics::Server>);

/// Where they are going to be answered.
type Addresses = (Option<server::Bound>, Option<metrics::Bound>);

fn bind(
    socket: Option<std::path::PathBuf>,
    listen: Option<std::net::SocketAddr>,
) -> Result<Addresses, Failed> {
    let named = socket.is_some();
    let path = socket.unwrap_or_else(control::default_path);
    let control = match server::Bound::at(&path) {
        Ok(bound) => Some(bound),
        // A socket that the operator did not name is no reason not to run: a second replay beside
        // the first is fine.
        Err(error) if !named => {
            log::say(Level::Warn, format_args!("no control socket: {error}"));
            None
        }
        Err(error) => return Err((FAILURE, error.to_string())),
    };
    let metrics = match listen {
        Some(address) => Some(metrics::Bound::at(address).map_err(|error| (FAILURE, error))?),
        None => None,
    };
    Ok((control, metrics))
}

fn serve(running: &Running, (control, metrics): Addresses) -> Result<Servers, Failed> {
    let cluster: Arc<dyn Cluster> = running.cluster();
    let control = control.map(|bound| server::Server::serve(bound, cluster.clone()));
    let metrics = metrics.map(|bound| metrics::Server::serve(bound, cluster));
    Ok((
        control
            .transpose()
            .map_err(|error| (FAILURE, error.to_string()))?,
        metrics.transpose().map_err(|error| (FAILURE, error))?,
    ))
}

/// Answers operators' requests by the coordinator, with the service that the control socket has.
fn serve_members(running: &Running, joining: Joining) -> Result<Serving, Failed> {
    let cluster: Arc<dyn Cluster> = running.cluster();
    let watches = Arc::default();
    let answerer = move |request: &[u8]| service::relayed(request, cluster.as_ref(), &watches);
    let serving = joining.serve(Arc::new(answerer));
    serving.map_err(|error| (FAILURE, format!("no thread for operators' requests: {error}")))
}

/// Says failures as they come; whether there was one.
fn tell(reports: Vec<Report>) -> bool {
    for report in &reports {
        let level = match report.is_failure {
            true => Level::Error,
            false => Level::Warn,
        };
        log::say(level, report);
    }
    reports.iter().any(|report| report.is_failure)
}

fn report(outcome: &Outcome, json: bool, events_on_stdout: bool) {
    let status = Status::from(&outcome.snapshot);
    let (mut out, mut err) = (io::stdout(), io::stderr());
    let _ = if json {
        writeln!(out, "{}", crate::shape::object(&status))
    } else if events_on_stdout && !out.is_terminal() {
        // The records go to a file or another program; the table is for the operator.
        writeln!(err, "{status}")
    } else {
        writeln!(out, "{status}")
    };
    if let Err(problem) = &outcome.events {
        let _ = writeln!(err, "{problem}");
    }
    if outcome.broken_off {
        let _ = writeln!(
            err,
            "broken off with packets inside: they are in the figures as held"
        );
    }
}
