//! The commands `lab up`, `lab demo` and `lab down`.
//!
//! `up` stays until it is asked to end, since the namespaces are its own and go with it. `demo` has
//! a site for itself, makes the trials that people would, and shows the results in a table. `down`
//! ends every site of this machine, and removes the remains of killed ones.

use crate::cli::{FAILURE, failed};
use crate::control::client::Client;
use crate::control::{Answer, FOREIGN, Request};
use crate::moving::Killed;
use crate::shape::{self, Shape};
use crate::signals::StopSignal;
use ::lab::LabError;
use ::lab::process::Run;
use ::lab::site::{self, FILE, SERVER, Site, VIRTUAL};
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;
use std::fs;
use std::io::{self, Write};
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// The jobs of `lab`.
#[derive(Debug)]
pub enum LabJob {
    /// Build a lab and keep it until the signal.
    Up {
        /// Ports by packet sockets or AF_XDP.
        scheme: &'static str,
        /// When to take it down.
        stop: StopSignal,
    },
    /// Build a lab, try it, take it down.
    Demo {
        /// Ports by packet sockets or AF_XDP.
        scheme: &'static str,
        /// Print JSON.
        json: bool,
    },
    /// Take all down.
    Down,
}

/// Does the job.
pub fn run(job: LabJob) -> ExitCode {
    let wants_objects = matches!(job, LabJob::Demo { json: true, .. });
    let done = match job {
        LabJob::Up { scheme, stop } => up(scheme, &stop),
        LabJob::Demo { scheme, json } => demo(scheme, json),
        LabJob::Down => down(),
    };
    match done {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(FAILURE),
        Err(error) => failed::ends(wants_objects, error, FAILURE),
    }
}

fn up(scheme: &str, stop: &StopSignal) -> Result<bool, LabError> {
    let mut site = Site::build(scheme)?;
    let (client, socket) = (site.client.name(), site.socket());
    let _ = writeln!(
        io::stdout(),
        "The lab is up, until Ctrl-C or `flowkeep lab down`. From another terminal, as root:\n\n  \
         ip netns exec {client} curl -s -o /dev/null -D - http://{VIRTUAL}/{FILE}\n  \
         ip netns exec {client} ping {SERVER}\n  \
         ip netns exec {client} iperf3 -c {SERVER}\n  \
         flowkeep status --socket {socket}\n  \
         flowkeep flow list --socket {socket}\n\n\
         namespaces: {client}, {}, {}\nconfiguration: {}/gateway.toml",
        site.gateway.name(),
        site.server.name(),
        site.folder().display(),
        socket = socket.display(),
    );
    while !stop.is_raised() {
        if let Some(printed) = site.has_ended()? {
            let _ = writeln!(io::stderr(), "the cluster has ended by itself:\n{printed}");
            return Ok(false);
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    let report = site.stop()?;
    let _ = writeln!(io::stdout(), "{report}");
    Ok(true)
}

fn down() -> Result<bool, LabError> {
    let (ended, swept) = site::down()?;
    let _ = writeln!(
        io::stdout(),
        "labs ended: {ended}; left by killed ones and removed: {swept}"
    );
    Ok(true)
}

/// The table of the demonstration, as `--json` has it.
#[derive(Serialize, JsonSchema)]
pub(crate) struct Demo {
    /// The trials, in order.
    rows: [Row; 6],
}

impl Shape for Demo {
    const NAME: &'static str = "lab-demo";
}

/// A trial, and its result.
#[derive(Serialize, JsonSchema)]
struct Row {
    /// The trial.
    what: &'static str,
    /// The result, in words.
    result: String,
    /// Whether that is as it should be.
    #[serde(rename = "good")]
    is_good: bool,
}

fn demo(scheme: &str, json: bool) -> Result<bool, LabError> {
    let site = Site::build(scheme)?;
    let rows = [
        ping(&site)?,
        downloads(&site)?,
        stream(&site, "iperf3, TCP out", "")?,
        stream(&site, "iperf3, TCP in", "--reverse")?,
        refused(&site)?,
        killed(&site)?,
    ];
    let report = site.stop()?;
    let is_good = rows.iter().all(|row| row.is_good);
    let mut out = io::stdout();
    let _ = if json {
        writeln!(out, "{}", shape::object(&Demo { rows }))
    } else {
        let mut lines = format!("client ══ firewall, NAT, load balancer, forward ({scheme}) ══ servers\n\n");
        for row in &rows {
            let sign = if row.is_good { "ok" } else { "FAILED" };
            lines.push_str(&format!("{:<7} {:<36} {}\n", sign, row.what, row.result));
        }
        writeln!(out, "{lines}\n{report}")
    };
    Ok(is_good)
}

fn ping(site: &Site) -> Result<Row, LabError> {
    // Behind the last one ping waits for no longer than its interval or twice the longest round
    // trip so far, whatever `-W` says.
    let out = site.at_client(&format!("ping -n -c 20 -i 0.2 -W 2 {SERVER}"))?;
    let counted = out.lines().find(|line| line.contains("packets transmitted"));
    let times = out.lines().find_map(|line| line.split_once("= "));
    Ok(Row {
        what: "ping",
        is_good: out.contains("20 packets transmitted, 20 received"),
        result: match (counted, times) {
            (Some(counted), Some((_, times))) => {
                let answered = counted.split(", ").nth(1).unwrap_or(counted);
                format!("20 sent, {answered}, min/avg/max/mdev {times}")
            }
            _ => out,
        },
    })
}

/// Downloads at a time, each compared with the served file.
const DOWNLOADS: usize = 20;

/// How many of the files of a name equal the served one.
fn equal(site: &Site, name: &str) -> usize {
    let content = Site::content();
    let is_equal = |n: &usize| {
        let got = fs::read(site.folder().join(format!("{name}-{n}")));
        got.is_ok_and(|got| got == content)
    };
    (1..=DOWNLOADS).filter(is_equal).count()
}

fn downloads(site: &Site) -> Result<Row, LabError> {
    let folder = site.folder().display();
    let out = site.at_client(&format!(
        "curl --silent --show-error --fail --parallel --parallel-immediate --parallel-max {DOWNLOADS} --max-time 50 \
         --write-out %{{header_json}} --output {folder}/got-#1 http://{VIRTUAL}/{FILE}?[1-{DOWNLOADS}]"
    ))?;
    let equal = equal(site, "got");
    let by = |name: &str| out.matches(&format!("[\"{name}\"]")).count();
    let (one, two) = (by("one"), by("two"));
    Ok(Row {
        what: "curl, 20 downloads at a time",
        result: format!("{equal} whole and equal; {one} by one server, {two} by the other"),
        is_good: equal == DOWNLOADS && one > 0 && two > 0,
    })
}

fn stream(site: &Site, what: &'static str, how: &str) -> Result<Row, LabError> {
    let mut problem = String::new();
    // Its server is busy for a moment after each measurement.
    for _ in 0..50 {
        let out = site.at_client(&format!("iperf3 --json --client {SERVER} --time 2 {how}"))?;
        let report: Value = serde_json::from_str(&out).unwrap_or_default();
        if let Some(bits) = report["end"]["sum_received"]["bits_per_second"].as_f64() {
            return Ok(Row {
                what,
                result: format!("{:.0} Mbit/s", bits / 1e6),
                is_good: bits > 0.0,
            });
        }
        problem = report["error"].as_str().unwrap_or(&out).to_owned();
        if !problem.contains("busy") {
            break;
        }
        std::thread::sleep(Duration::from_millis(100));
    }
    Ok(Row {
        what,
        result: problem,
        is_good: false,
    })
}

/// No host outside reaches an address of the pool of which no flow is.
fn refused(site: &Site) -> Result<Row, LabError> {
    let words = "curl --silent --show-error --max-time 2 http://203.0.113.65:80/";
    let ended = site.server.finish(words, Run::within(Duration::from_secs(20)))?;
    Ok(Row {
        what: "unsolicited connection from outside",
        result: ended.err.trim().to_owned(),
        is_good: ended.err.contains("timed out"),
    })
}

/// How long downloads may take behind the end of their runtime.
const PATIENCE: Duration = Duration::from_secs(60);

/// The runtime of all downloads is killed in the middle of them: no download ends with it.
fn killed(site: &Site) -> Result<Row, LabError> {
    let folder = site.folder().display();
    // Each takes three seconds at this rate.
    let words = format!(
        "curl --silent --show-error --fail --parallel --parallel-immediate --parallel-max {DOWNLOADS} --max-time 50 \
         --limit-rate 300k --output {folder}/kept-#1 http://{VIRTUAL}/{FILE}?[1-{DOWNLOADS}]"
    );
    let mut curl = site.client.start(&words)?;
    std::thread::sleep(Duration::from_secs(1));
    let failed = |problem| LabError::Failed {
        command: "flowkeep runtime kill".to_owned(),
        problem,
    };
    let (runtime, had) = kill_busiest(site).map_err(failed)?;
    let began = Instant::now();
    while curl.ended()?.is_none() && began.elapsed() < PATIENCE {
        std::thread::sleep(Duration::from_millis(20));
    }
    let (_, printed) = curl.printed()?;
    // Of several files at a time curl shows how far it is, however silent it is to be.
    let said = printed.lines().find(|line| line.starts_with("curl: "));
    let equal = equal(site, "kept");
    let flows = DOWNLOADS as u64;
    Ok(Row {
        what: "curl, while its runtime is killed",
        result: format!(
            "{equal} whole and equal; runtime {runtime} had {} flows, {} with copies{}{}",
            had.flows,
            had.protected_flows,
            if said.is_none() { "" } else { ": " },
            said.unwrap_or_default().trim()
        ),
        is_good: equal == DOWNLOADS && had.protected_flows >= flows && said.is_none(),
    })
}

/// Has the runtime with the most flows fail; its figures.
fn kill_busiest(site: &Site) -> Result<(u16, Killed), String> {
    let mut client = Client::connect(&site.socket())?;
    let Answer::Status(status) = client.ask(&Request::Status)? else {
        return Err(FOREIGN.into());
    };
    let busiest = status.runtimes.iter().max_by_key(|runtime| runtime.flows);
    let runtime = busiest.ok_or("there is no runtime")?.runtime;
    match client.ask(&Request::Kill { runtime })? {
        Answer::Killed(had) => Ok((runtime, had)),
        _ => Err(FOREIGN.into()),
    }
}
