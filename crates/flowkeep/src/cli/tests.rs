//! The command line, from words to runs and answers.

use super::*;
use crate::cluster::Cluster;
use crate::cluster::fake::Fake;
use crate::control::server::Server;
use job::RunJob;
use nf::{ConfigError, Cx, NetworkFunction, NoConfig, Packet, Verdict, WorkerInfo};
use std::sync::Arc;

struct FlowMonitor;

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

fn parsed(words: &str) -> Result<Cli, Failure> {
    Cli::try_parse_from(std::iter::once("flowkeep").chain(words.split_whitespace()))
        .map_err(|error| Failure::usage(error.to_string()))
}

/// Runs a command: what it printed, or its failure.
fn run_words(words: &str) -> Result<String, Failure> {
    let mut out = Vec::new();
    run(parsed(words)?, &crate::registry![FlowMonitor], &mut out)?;
    Ok(String::from_utf8(out).unwrap())
}

/// What a `run` is to run.
fn job_of(words: &str) -> Result<RunJob, Failure> {
    match parsed(words)?.verb {
        Verb::Run(run) => job::read(run, &crate::registry![FlowMonitor]),
        other => panic!("{other:?}"),
    }
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
    let job = job_of("run --input pcap:a.pcap").unwrap();
    assert_eq!(job.config.port[0].input.as_ref().unwrap().as_str(), "pcap:a.pcap");
    assert_eq!(job.config.chain[0].functions, ["flow_monitor"]);
    assert_eq!(job.config.log.events.as_deref(), Some("-"));
    let failure = job_of("run").unwrap_err();
    assert_eq!(failure.code, USAGE);
    assert!(failure.message.contains("nothing to run"));
    let failure = job_of("run --input a.pcap").unwrap_err();
    assert!(
        failure
            .message
            .starts_with("--input: `a.pcap` does not say what it is"),
        "{}",
        failure.message
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
    let port = |job: &RunJob| {
        let port = &job.config.port[0];
        [&port.input, &port.output].map(|uri| uri.as_ref().map(ToString::to_string).unwrap_or_default())
    };
    let job = job_of(&format!("run {config} --json")).unwrap();
    assert_eq!(port(&job), ["pcap:file.pcap", ""]);
    assert_eq!(
        (job.config.runtimes, job.json, job.socket_wanted),
        (2, true, false)
    );
    assert_eq!(job.config.log.events, None);
    let words = "--input pcap:x --output pcap:y --runtimes 4 --events e.jsonl --for 5s --socket s.sock";
    let job = job_of(&format!("run {config} {words}")).unwrap();
    assert_eq!(port(&job), ["pcap:x", "pcap:y"]);
    assert_eq!(
        (job.config.runtimes, job.json, job.socket_wanted),
        (4, false, true)
    );
    assert_eq!(job.config.log.events.as_deref(), Some("e.jsonl"));
    assert!(job_of(&format!("run {config} --runtimes 0")).is_err());
    let failure = job_of(&format!("run {config} --for 5")).unwrap_err();
    assert!(
        failure.message.contains("`5` has no unit; write \"5s\""),
        "{}",
        failure.message
    );
    let no_input = directory.file(
        "n.toml",
        "[[chain]]\nname = \"c\"\nfunctions = [\"flow_monitor\"]\n",
    );
    let failure = job_of(&format!("run {no_input}")).unwrap_err();
    assert!(failure.message.contains("no port has an input"));
}

/// A capture of `packets` UDP packets of as many flows.
fn capture(packets: u16) -> Vec<u8> {
    // pcap, version 2.4, microseconds, Ethernet.
    let mut file = vec![
        0xd4, 0xc3, 0xb2, 0xa1, 2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 0, 0, 1, 0, 0, 0,
    ];
    for number in 0..packets {
        let builder = etherparse::PacketBuilder::ethernet2([2; 6], [4; 6])
            .ipv4([10, 0, 0, 1], [192, 0, 2, 1], 64)
            .udp(1000 + number, 53);
        let mut frame = Vec::new();
        builder.write(&mut frame, &[0; 18]).unwrap();
        let length = u32::try_from(frame.len()).unwrap().to_le_bytes();
        let seconds = u32::from(number).to_le_bytes();
        file.extend([seconds, [0; 4], length, length].concat());
        file.extend(frame);
    }
    file
}

#[test]
fn a_run_ends_with_figures_that_add_up() {
    let directory = Directory::new("run");
    std::fs::write(directory.0.join("in.pcap"), capture(10)).unwrap();
    let (path, socket) = (directory.0.display(), directory.0.join("s.sock"));
    let config = directory.file(
        "c.toml",
        "runtimes = 2\n[metrics]\nlisten = \"127.0.0.1:0\"\n[[chain]]\nname = \"c\"\nfunctions = [\"flow_monitor\"]\n",
    );
    let words = format!(
        "--input pcap:{path}/in.pcap --output pcap:{path}/out.pcap --socket {}",
        socket.display()
    );
    let printed = run_words(&format!("run {config} {words} --json")).unwrap();
    let report: serde_json::Value = serde_json::from_str(&printed).unwrap();
    assert_eq!(report["packets"]["in"], 10, "{report:#}");
    assert_eq!(report["packets"]["out"], 10, "{report:#}");
    assert_eq!(report["packets"]["held"], 0);
    assert_eq!(report["flows"]["opened"], 10);
    assert_eq!(
        (&report["adds_up"], &report["broken_off"]),
        (&true.into(), &false.into())
    );
    assert_eq!(report["ports"][0]["received_packets"], 10);
    assert!(!socket.exists(), "the socket goes when the cluster goes");
    let table = run_words(&format!("run {config} {words}")).unwrap();
    assert!(table.contains("\nin          10  100.0%\n"), "{table}");
}

#[test]
fn what_cannot_be_run_says_why() {
    let directory = Directory::new("refused");
    std::fs::write(directory.0.join("in.pcap"), capture(1)).unwrap();
    let input = format!("--input pcap:{}/in.pcap", directory.0.display());
    let failure = run_words("run --input pcap:/no/such.pcap").unwrap_err();
    assert_eq!(failure.code, FAILURE);
    assert!(failure.message.contains("/no/such.pcap"), "{}", failure.message);
    let failure = run_words(&format!("run {input} --events /no/such/directory/e")).unwrap_err();
    assert!(
        failure.message.contains("events cannot be written here"),
        "{}",
        failure.message
    );
    let failure = run_words(&format!(
        "run {input} --events /dev/null --socket /no/such/directory/s"
    ))
    .unwrap_err();
    assert!(
        failure.message.contains("the control socket cannot be made"),
        "{}",
        failure.message
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
    assert!(shown.contains("what matches none of them is dropped"), "{shown}");
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
    assert!(shown.contains("phase = Established"), "{shown}");
    let failure = ask("flow show tcp 10.0.0.1:1 192.0.2.1:443").unwrap_err();
    assert_eq!(
        (failure.code, failure.message.as_str()),
        (FAILURE, "there is no flow tcp 10.0.0.1:1 192.0.2.1:443")
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
fn a_bench_that_is_not_there_is_told_which_are() {
    let failure = run_words("bench everything").unwrap_err();
    assert_eq!(failure.code, USAGE);
    for (name, _) in crate::bench::SCENARIOS {
        assert!(failure.message.contains(name), "{}", failure.message);
    }
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
