//! The command line, from words to jobs and answers.

use super::*;
use crate::cluster::Cluster;
use crate::cluster::fake::Fake;
use crate::config::Threads;
use crate::control::server::Server;
use jobs::{BenchJob, NewJob, RunJob};
use nf::{ConfigError, Cx, NetworkFunction, NoConfig, Packet, Verdict, WorkerInfo};
use std::sync::{Arc, Mutex};

struct FlowMonitor;

#[nf::network_function]
impl NetworkFunction for FlowMonitor {
    const NAME: &'static str = "flow_monitor";
    type Config = NoConfig;
    type Flow = ();
    type Group = ();
    fn new(_: &Arc<NoConfig>, _: &WorkerInfo) -> Result<Self, ConfigError> {
        Ok(FlowMonitor)
    }
    fn process_now(&self, _: &mut Packet, (): &mut (), _: &mut Cx<Self>) -> Option<Verdict> {
        Some(Verdict::Forward)
    }
}

/// The calls of the jobs, in words.
static SEEN: Mutex<Vec<String>> = Mutex::new(Vec::new());

fn jobs() -> Jobs {
    fn see(what: String) -> ExitCode {
        SEEN.lock().unwrap().push(what);
        ExitCode::SUCCESS
    }
    Jobs {
        run: |job: RunJob| {
            assert_eq!(job.config.threads, Threads::Auto);
            let port = &job.config.port[0];
            see(format!(
                "run {} -> {} runtimes {} events {:?} chain {:?} json {}",
                port.input.as_ref().unwrap(),
                port.output.as_ref().map(ToString::to_string).unwrap_or_default(),
                job.config.runtimes,
                job.config.log.events,
                job.config.chain[0].functions,
                job.json
            ))
        },
        bench: |job: BenchJob, _| {
            see(format!(
                "bench {:?} {:?} {} {}",
                job.scenario, job.flows, job.runs, job.json
            ))
        },
        sim: |job: jobs::SimJob, _| see(format!("sim {job:?}")),
        new: |job: NewJob| {
            see(format!(
                "new {} {:?} in {}",
                job.name,
                job.kind,
                job.directory.display()
            ))
        },
        bridge: |job: jobs::BridgeJob| see(format!("bridge {} {}", job.ports.join(" "), job.json)),
        lab: |job: jobs::LabJob| {
            see(match job {
                jobs::LabJob::Up { scheme, .. } => format!("lab up {scheme}"),
                jobs::LabJob::Demo { scheme, json } => format!("lab demo {scheme} {json}"),
                jobs::LabJob::Down => "lab down".to_owned(),
            })
        },
    }
}

/// Runs a command: its output, or its failure.
fn run_words(words: &str) -> Result<String, Failure> {
    let cli = Cli::try_parse_from(std::iter::once("flowkeep").chain(words.split_whitespace()))
        .map_err(|error| Failure::usage(error.to_string()))?;
    let mut out = Vec::new();
    run(cli, &crate::registry![FlowMonitor], &jobs(), &mut out)?;
    Ok(String::from_utf8(out).unwrap())
}

fn seen(what: &str) -> bool {
    SEEN.lock().unwrap().iter().any(|seen| seen == what)
}

/// A directory that is gone afterwards.
struct Directory(PathBuf);

impl Directory {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("flowkeep-cli-{}-{name}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Directory(path)
    }
    fn file(&self, name: &str, text: &str) -> String {
        let path = self.0.join(name);
        std::fs::write(&path, text).unwrap();
        path.display().to_string()
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[test]
fn the_command_line_is_consistent() {
    use clap::CommandFactory;
    Cli::command().debug_assert();
}

#[test]
fn run_without_configuration_monitors_flows() {
    run_words("run --input pcap:a.pcap").unwrap();
    assert!(seen(
        "run pcap:a.pcap ->  runtimes 1 events Some(\"-\") chain [\"flow_monitor\"] json false"
    ));
    let failure = run_words("run").unwrap_err();
    assert_eq!(failure.code, USAGE);
    assert!(failure.message.contains("nothing to run"));
    let failure = run_words("run --input a.pcap").unwrap_err();
    assert!(
        failure
            .message
            .starts_with("--input: `a.pcap` does not say what it is; write for example `pcap:a.pcap`")
    );
}

#[test]
fn the_command_line_counts_more_than_the_file() {
    let directory = Directory::new("override");
    let config = directory.file(
        "c.toml",
        "runtimes = 2\n[[port]]\nname = \"a\"\ninput = \"pcap:file.pcap\"\n[[chain]]\nname = \"c\"\nfunctions = \
         [\"flow_monitor\"]\n",
    );
    run_words(&format!("run {config} --json")).unwrap();
    assert!(seen(
        "run pcap:file.pcap ->  runtimes 2 events None chain [\"flow_monitor\"] json true"
    ));
    run_words(&format!(
        "run {config} --input pcap:x --output pcap:y --runtimes 4 --events e.jsonl --for 5s"
    ))
    .unwrap();
    assert!(seen(
        "run pcap:x -> pcap:y runtimes 4 events Some(\"e.jsonl\") chain [\"flow_monitor\"] json false"
    ));
    assert!(run_words(&format!("run {config} --runtimes 0")).is_err());
    assert!(
        run_words(&format!("run {config} --for 5"))
            .unwrap_err()
            .message
            .contains("`5` has no unit; write \"5s\"")
    );
    let no_input = directory.file(
        "n.toml",
        "[[chain]]\nname = \"c\"\nfunctions = [\"flow_monitor\"]\n",
    );
    assert!(
        run_words(&format!("run {no_input}"))
            .unwrap_err()
            .message
            .contains("no port has an input")
    );
}

#[test]
fn a_wrong_configuration_is_shown_and_is_usage() {
    let directory = Directory::new("check");
    let wrong = directory.file(
        "w.toml",
        "runtims = 1\n[[chain]]\nname = \"c\"\nfunctions = [\"flow_monitr\"]\n",
    );
    let failure = run_words(&format!("chain check {wrong}")).unwrap_err();
    assert_eq!(failure.code, USAGE);
    assert!(
        failure
            .message
            .contains("w.toml:1:1: runtims: there is no such setting"),
        "{}",
        failure.message
    );
    assert_eq!(run_words(&format!("run {wrong}")).unwrap_err(), failure);
    let good = directory.file(
        "g.toml",
        "[[chain]]\nname = \"web\"\nfunctions = [\"flow_monitor\"]\nmatch = { protocol = \"tcp\", destination_port = [80, \
         \"8000-8100\"] }\n",
    );
    let shown = run_words(&format!("chain check {good}")).unwrap();
    assert!(
        shown.contains("chain web: flow_monitor\n  for tcp; destination port 80, 8000-8100\n"),
        "{shown}"
    );
    assert!(
        shown.contains("a packet that matches no chain is dropped"),
        "{shown}"
    );
    let json: serde_json::Value =
        serde_json::from_str(&run_words(&format!("chain check {good} --json")).unwrap()).unwrap();
    assert_eq!(json["chains"][0]["functions"][0], "flow_monitor");
}

#[test]
fn the_schema_is_json() {
    let schema: serde_json::Value = serde_json::from_str(&run_words("chain schema").unwrap()).unwrap();
    assert!(schema["properties"]["function"]["properties"]["flow_monitor"].is_object());
}

#[test]
fn a_running_cluster_is_asked() {
    let directory = Directory::new("asked");
    let socket = directory.0.join("s.sock");
    let cluster = Arc::new(Fake::default());
    let _server = Server::start(&socket, Arc::clone(&cluster) as Arc<dyn Cluster>).unwrap();
    let ask = |words: &str| run_words(&format!("{words} --socket {}", socket.display()));
    assert!(ask("status").unwrap().starts_with("up 1m1s\n"));
    let json: serde_json::Value = serde_json::from_str(&ask("status --json").unwrap()).unwrap();
    assert_eq!(json["packets"]["out"], 89);
    assert_eq!(ask("flow list").unwrap().lines().count(), 4);
    assert_eq!(ask("flow list --limit 1").unwrap().lines().count(), 2);
    assert_eq!(
        ask("flow list --address 198.51.100.0/24")
            .unwrap()
            .lines()
            .count(),
        2,
        "the translated end counts"
    );
    assert_eq!(
        ask("flow list --address 2001:db8::/32 --protocol tcp")
            .unwrap()
            .lines()
            .count(),
        2
    );
    assert_eq!(ask("flow list --protocol udp").unwrap().lines().count(), 1);
    assert!(
        ask("flow list --protocol upd")
            .unwrap_err()
            .message
            .contains("write `udp`")
    );
    let shown = ask("flow show tcp 10.0.0.1:40000 192.0.2.1:443").unwrap();
    assert!(shown.contains("phase = established"), "{shown}");
    let failure = ask("flow show tcp 10.0.0.1:1 [2001:db8::1]:443").unwrap_err();
    assert_eq!(failure.code, USAGE);
    assert!(failure.message.contains("one end is IPv4 and the other IPv6"));
    let failure = ask("flow show tcp 10.0.0.1:1 192.0.2.1:443").unwrap_err();
    assert_eq!(
        (failure.code, failure.message.as_str()),
        (
            FAILURE,
            "there is no flow tcp 10.0.0.1:1 192.0.2.1:443; `flowkeep flow list` shows which there are"
        )
    );
    assert_eq!(
        ask("function load_balancer backend web1 up").unwrap(),
        "web1 up\n",
        "equal answers once"
    );
    assert_eq!(
        ask("function nat x").unwrap_err().message,
        "there is no function `nat`"
    );
    assert_eq!(ask("stop").unwrap(), "stopping\n");
    assert!(cluster.asked.lock().unwrap().contains(&"stop".to_owned()));
    let failure = run_words("status --socket /nowhere/at/all.sock").unwrap_err();
    assert_eq!(failure.code, FAILURE);
    assert!(
        failure.message.contains("start one with `flowkeep run`"),
        "{}",
        failure.message
    );
}

#[test]
fn bench_and_new_get_their_jobs() {
    run_words("bench chain").unwrap();
    assert!(seen("bench Chain [10000, 100000, 1000000] 5 false"));
    run_words("bench launch --flows 100 --runs 3 --json").unwrap();
    assert!(seen("bench Launch [100] 3 true"));
    run_words("new my-counter").unwrap();
    assert!(seen("new my-counter Counter in ."));
    run_words("new my-gate --kind gate").unwrap();
    assert!(seen("new my-gate Gate in ."));
    assert!(run_words("bench everything").is_err());
}

#[test]
fn completions_and_manual_pages() {
    for shell in ["bash", "zsh", "fish"] {
        assert!(
            run_words(&format!("completions {shell}"))
                .unwrap()
                .contains("flowkeep")
        );
    }
    let directory = Directory::new("man");
    run_words(&format!("man {}", directory.0.display())).unwrap();
    for page in ["flowkeep.1", "flowkeep-run.1", "flowkeep-flow-list.1"] {
        assert!(directory.0.join(page).exists(), "{page}");
    }
}

#[test]
fn help_is_no_error_and_a_wrong_word_is() {
    let code = |words: &[&str]| {
        let words = std::iter::once("flowkeep").chain(words.iter().copied());
        code_of(&Cli::try_parse_from(words).unwrap_err())
    };
    assert_eq!(code(&["--help"]), ExitCode::SUCCESS);
    assert_eq!(code(&["run", "--help"]), ExitCode::SUCCESS);
    assert_eq!(code(&["--version"]), ExitCode::SUCCESS);
    assert_eq!(code(&["flwo"]), ExitCode::from(USAGE));
    assert_eq!(code(&["flow", "list", "--limit", "many"]), ExitCode::from(USAGE));
    assert_eq!(code(&[]), ExitCode::from(USAGE));
}
