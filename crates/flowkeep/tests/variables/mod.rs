//! Timers, locks and merged views in functions of a running Flowkeep: real workers, threads and
//! processes, a redis-server of the test's own, `kill -9`.
//!
//! | | requirement |
//! |---|---|
//! | timers, `redb:` and Redis, `kill -9` while they fire, twice; then no packet comes | each fires once, by the store |
//! | timers, Redis, two nodes and a coordinator: one is killed and stays away; it begins again meanwhile; the other is killed while it takes over | each fires once at the other, by the store |
//! | a lock, `memory:` and two runtimes; Redis and two nodes | no update of its value is lost |
//! | the node that has the lock is killed, or stands still beyond its lease and writes then | the other gets the lock; the late write changes nothing |
//! | the node that has the lock is killed and removed by a coordinator's view, with an hour of its lease left | the other writes |
//! | a merged view that is asked for, `memory:` and two runtimes; Redis and two nodes, one of them killed | it has the counts stored before, of all of them |
//!
//! The functions are in no tool that is built for tests, so this program is the tool ([`tool`]).
//!
//! Not here: counts and faults of servers (`stores.rs`), drivers (`crates/stores/tests`).

mod inherited;
mod locks;
mod merged;
mod timers;

use crate::rig::{Folder, Member};
use crate::storing::output;
use std::collections::BTreeMap;
use std::process::{Command, ExitCode};

/// The words of a tool, in the environment of this program, a line each.
const WORDS: &str = "FLOWKEEP_VARIABLES_TOOL";

/// Is the tool, where words are given; no test otherwise.
#[test]
fn tool() {
    let Ok(words) = std::env::var(WORDS) else {
        return;
    };
    let words = ["flowkeep"].into_iter().chain(words.lines()).map(Into::into);
    let known = flowkeep::registry![timers::Alarms, locks::Tally, merged::Census];
    let ended = flowkeep::main_with(known, words);
    std::process::exit(i32::from(ended != ExitCode::SUCCESS));
}

/// Ports by which so many packets come in a second, of eight flows.
fn traffic(folder: &Folder, rate: f64) -> String {
    traffic_of(folder, rate, "")
}

/// The same, of flows that live as is said: others follow them.
fn traffic_of(folder: &Folder, rate: f64, life: &str) -> String {
    folder.generated(&format!(
        "seed = 1\nflows = 8\nrate = {{ total = {rate:.3} }}\npace = \"clock\"\nsources = [\"10.0.0.0/27\"]\n\
         source_ports = [1024, 5000]\ndestinations = [\"192.0.2.1/32\"]\ndestination_ports = [53]\n\
         [[classes]]\nshare = 1.0\ntcp = 0.0\n{life}\n"
    ))
}

/// A chain of one function with its table, and the store.
fn chain(function: &str, table: &str, uri: &str) -> String {
    format!(
        "[[chain]]\nname = \"all\"\nfunctions = [\"{function}\"]\n[function.{function}]\n{table}\n[store]\nuri = \"{uri}\"\n"
    )
}

/// Starts a process of this tool.
fn start(folder: &Folder, name: &str, words: &[&str]) -> Member {
    let tool = Command::new(std::env::current_exe().expect("this program"));
    Member::start_by(folder, tool, name, |tool| {
        tool.args(["--exact", "variables::tool", "--nocapture", "--test-threads=2"]);
        tool.env(WORDS, words.join("\n"));
    })
}

/// A gateway of one process with two runtimes.
fn gateway(folder: &Folder, rate: f64, chain: &str) -> Member {
    gateway_of(2, folder, rate, chain)
}

/// A gateway of one process with so many runtimes.
fn gateway_of(runtimes: u16, folder: &Folder, rate: f64, chain: &str) -> Member {
    let text = traffic(folder, rate)
        + chain
        + &format!(
            "[control]\nsocket = \"{}\"\n[log]\nevents = \"{}\"\n",
            folder.0.join("gateway.sock").display(),
            folder.0.join("gateway.jsonl").display()
        );
    let text = format!("runtimes = {runtimes}\n{text}");
    let config = folder.write("gateway.toml", &text).display().to_string();
    start(folder, "gateway", &["run", &config, "--json"])
}

/// A switch and two nodes; each is started by its name.
struct Site {
    folder: Folder,
    config: String,
    /// The coordinator's address, if they join one.
    coordinator: Option<String>,
}

impl Site {
    fn new(name: &str, rate: f64, chain: &str) -> Self {
        Site::of(name, rate, "", chain)
    }

    /// With flows that live as is said.
    fn of(name: &str, rate: f64, life: &str, chain: &str) -> Self {
        let folder = Folder::new(name);
        let text = folder.members(&[
            ("front", "switches", "here"),
            ("left", "runtimes", "here"),
            ("right", "runtimes", "here"),
        ]) + &traffic_of(&folder, rate, life)
            + chain;
        let config = folder.write("cluster.toml", &text).display().to_string();
        Site {
            folder,
            config,
            coordinator: None,
        }
    }

    /// Has processes that are started from now on join a coordinator, which it starts.
    fn joins(&mut self) -> Member {
        let data = self.data();
        let (done, said, error) = output(&["cluster", "init", &data]);
        assert!(done, "{said}{error}");
        let free = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = free.local_addr().expect("an address").to_string();
        drop(free);
        let times = "--unguarded --lease 1s --suspicion 1500ms --settling 2s";
        let mut words = vec!["coordinator", "--data", &data, "--listen", &address];
        words.extend(times.split(' '));
        let coordinator = start(&self.folder, "coordinator", &words);
        self.coordinator = Some(address);
        coordinator
    }

    fn data(&self) -> String {
        self.folder.0.join("cluster").display().to_string()
    }

    fn start(&self, name: &str) -> Member {
        let command = if name == "front" { "switch" } else { "node" };
        let mut words = vec![command, &self.config, "--member", name, "--json"];
        let token = self.coordinator.as_ref().map(|_| {
            let (done, token, error) = output(&["cluster", "token", &self.data(), "--member", name]);
            assert!(done, "{error}");
            token.trim().to_owned()
        });
        if let (Some(address), Some(token)) = (&self.coordinator, &token) {
            words.extend(["--join", address, "--token", token]);
        }
        start(&self.folder, name, &words)
    }
}

/// A function's words at a process's runtimes: `NAME=NUMBER` by name, one number for each runtime.
/// Each runtime says its number, since the command prints equal answers once. `None`: it does not
/// answer (yet).
type Said = BTreeMap<String, Vec<u64>>;

fn said(member: &Member, function: &str, word: &str) -> Option<Said> {
    let socket = member.socket.display().to_string();
    let (done, said, _) = output(&["function", function, word, "--socket", &socket]);
    let mut all = Said::new();
    for (name, number) in said.split_whitespace().filter_map(|word| word.split_once('=')) {
        all.entry(name.into()).or_default().push(number.parse().ok()?);
    }
    done.then_some(all).filter(|all| !all.is_empty())
}

fn sum(said: &Said, name: &str) -> u64 {
    said.get(name).map_or(0, |numbers| numbers.iter().sum())
}

fn most(said: &Said, name: &str) -> u64 {
    said.get(name)
        .and_then(|numbers| numbers.iter().max().copied())
        .unwrap_or(0)
}
