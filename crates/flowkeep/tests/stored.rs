//! Flows in a data store: a running Flowkeep is killed with `kill -9`, another begins, and its
//! flows go on with the same external ports.
//!
//! | | what has to hold |
//! |---|---|
//! | NAT and firewall, `redb:` and a redis-server of the test's own, `kill -9` under load, three times | each flow that was there longer than the interval goes on: same endpoint, not opened again; the window of loss is printed |
//! | the functions keep something else | nothing goes on, and an event says so |
//! | the server is stopped under load | no packet is lost; it has all flows when it is back |
//! | a store is not named, members, a function of the reserved name | the configuration is refused at its line |
//!
//! Not here: what is lost when (`crates/runtime`, `tests::stored`), stores (`crates/stores/tests`).

#[path = "../../stores/tests/servers/redis.rs"]
mod server;

use serde_json::Value;
use server::Server;
use std::collections::{BTreeMap, BTreeSet};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const PATIENCE: Duration = Duration::from_secs(120);
const FLOWS: usize = 400;

fn flowkeep(words: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_flowkeep"));
    command.args(words).stdin(Stdio::null());
    command
}

fn output(words: &[&str]) -> (bool, String, String) {
    let output = flowkeep(words).output().expect("the command starts");
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("text");
    (output.status.success(), text(output.stdout), text(output.stderr))
}

/// Waits until `look` finds something.
fn wait<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let began = Instant::now();
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(began.elapsed() < PATIENCE, "{what}: not within {PATIENCE:?}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

struct Folder(tempfile::TempDir);

impl Folder {
    fn new() -> Self {
        Folder(tempfile::tempdir().expect("a folder"))
    }

    fn path(&self, name: &str) -> String {
        self.0.path().join(name).display().to_string()
    }

    fn file(&self, name: &str, text: &str) -> String {
        std::fs::write(self.path(name), text).expect("a file");
        self.path(name)
    }

    /// A gateway that translates, and what leaves it in a capture. `more`: further tables.
    fn gateway(&self, seed: u32, functions: &str, more: &str) -> String {
        let profile = self.file(
            "traffic.toml",
            &format!(
                "seed = {seed}\nflows = {FLOWS}\nrate = {{ total = 4000.0 }}\npace = \"clock\"\nsources = [\"10.0.0.0/27\"]\n\
                 source_ports = [1024, 5000]\ndestinations = [\"192.0.2.1/32\"]\ndestination_ports = [53]\n\
                 [[classes]]\nshare = 1.0\ntcp = 0.0\n"
            ),
        );
        self.file(
            "gateway.toml",
            &format!(
                "runtimes = 2\nflows_max = 10000\n\
                 [[port]]\nname = \"lan\"\nside = \"inside\"\ninput = \"generate:{profile}\"\n\
                 [[port]]\nname = \"wan\"\nside = \"outside\"\noutput = \"pcap:/dev/null\"\n\
                 [[chain]]\nname = \"all\"\nfunctions = [{functions}]\nreplication = \"store\"\n\
                 [function.nat]\npool = [\"203.0.113.0/28\"]\n\
                 [[function.firewall.rules]]\nname = \"out\"\naction = \"allow\"\n\
                 [log]\nevents = \"{}\"\n[control]\nsocket = \"{}\"\n{more}",
                self.path("events.jsonl"),
                self.path("flowkeep.sock"),
            ),
        )
    }

    fn asked(&self, words: &[&str]) -> Option<Value> {
        let socket = self.path("flowkeep.sock");
        let words: Vec<&str> = words
            .iter()
            .copied()
            .chain(["--socket", &socket, "--json"])
            .collect();
        let (done, said, _) = output(&words);
        done.then(|| serde_json::from_str(&said).expect("JSON"))
    }

    fn status(&self) -> Option<Value> {
        self.asked(&["status"])
    }

    fn flows(&self) -> Option<u64> {
        number(&self.status()?, "/flows/active")
    }

    /// By inside endpoint, the external one.
    fn mappings(&self) -> BTreeMap<String, String> {
        let listed = wait("flows", || self.asked(&["flow", "list", "--limit", "100000"]));
        let flows = listed["flows"].as_array().unwrap_or_else(|| panic!("{listed}"));
        flows.iter().map(mapping).collect()
    }

    fn events(&self) -> String {
        std::fs::read_to_string(self.path("events.jsonl")).unwrap_or_default()
    }
}

fn number(of: &Value, pointer: &str) -> Option<u64> {
    of.pointer(pointer)?.as_u64()
}

/// Ended with the test.
struct Running(Child);

impl Running {
    fn start(config: &str) -> Self {
        let mut command = flowkeep(&["run", config]);
        command.stdout(Stdio::null()).stderr(Stdio::inherit());
        Running(command.spawn().expect("it starts"))
    }
}

/// `kill -9`.
impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn table(uri: &str, interval: &str) -> String {
    format!("[store]\nuri = \"{uri}\"\ninterval = \"{interval}\"\n")
}

/// A flow's inside endpoint, and the one that it leaves from.
fn mapping(flow: &Value) -> (String, String) {
    let inside = flow["source"].as_str().unwrap_or_default().to_owned();
    let outside = flow["translated"][0].as_str().unwrap_or_default().to_owned();
    assert!(!inside.is_empty() && !outside.is_empty(), "{flow}");
    (inside, outside)
}

const CHAIN: &str = "\"firewall\", \"nat\"";

/// All flows are there, and have been for longer than the interval.
fn all_flows(folder: &Folder) -> BTreeMap<String, String> {
    wait("all flows", || {
        folder.flows().filter(|flows| *flows >= FLOWS as u64)
    });
    std::thread::sleep(Duration::from_secs(1));
    let mappings = folder.mappings();
    let outside: BTreeSet<&String> = mappings.values().collect();
    assert_eq!(
        (mappings.len(), outside.len()),
        (FLOWS, FLOWS),
        "each has an endpoint of its own"
    );
    mappings
}

/// How old a change was, at most, when the store had it, in milliseconds: behind the interval.
fn oldest(status: &Value) -> f64 {
    let variables = status["variables"].as_array().expect("variables");
    let ages = variables.iter().filter_map(|of| of["age_max_seconds"].as_f64());
    ages.fold(0.0, f64::max) * 1e3
}

/// The flows that went on, as the events have it.
fn recovered(folder: &Folder) -> u64 {
    let events = folder.events();
    let lines = events
        .lines()
        .filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let told = lines.filter(|line| line["event"] == "recovered");
    told.filter_map(|line| number(&line, "/flows")).sum()
}

fn killed_and_gone_on(uri: &str) {
    let folder = Folder::new();
    let config = folder.gateway(1, CHAIN, &table(uri, "10ms"));
    let mut running = Running::start(&config);
    let before = all_flows(&folder);
    for round in 1..=3_u64 {
        let status = folder.status().expect("an answer");
        let age = oldest(&status);
        drop(running);
        let killed = Instant::now();
        running = Running::start(&config);
        // Packets of each of them have come.
        let enough =
            |status: &Value| number(status, "/packets/in").is_some_and(|count| count > 10 * FLOWS as u64);
        let status = wait("packets", || folder.status().filter(enough));
        println!(
            "{uri}, round {round}: {FLOWS} flows; a change was in the store at most 10 ms + {age:.1} ms after its packet; \
             {:.0} ms from kill -9 until 10 packets of each flow had passed",
            killed.elapsed().as_secs_f64() * 1e3
        );
        assert_eq!(number(&status, "/flows/opened"), Some(0), "{status}");
        assert_eq!(folder.mappings(), before, "round {round}");
        wait("events", || {
            (recovered(&folder) == round * FLOWS as u64).then_some(())
        });
    }
}

#[test]
fn flows_go_on_after_kill_9_out_of_a_file() {
    let folder = Folder::new();
    killed_and_gone_on(&format!("redb:{}", folder.path("flows.redb")));
}

#[test]
fn flows_go_on_after_kill_9_out_of_redis() {
    match Server::start(&[]) {
        Ok(server) => killed_and_gone_on(&server.uri()),
        Err(why) => println!("not run: {why}"),
    }
}

#[test]
fn flows_of_another_layout_do_not_go_on() {
    let folder = Folder::new();
    let store = table(&format!("redb:{}", folder.path("flows.redb")), "10ms");
    let running = Running::start(&folder.gateway(1, CHAIN, &store));
    all_flows(&folder);
    drop(running);
    // Another function is in the chain.
    let functions = "\"firewall\", \"nat\", \"flow_monitor\"";
    let _running = Running::start(&folder.gateway(1, functions, &store));
    wait("an event", || {
        folder.events().contains("stored_refused").then_some(())
    });
    assert_eq!(recovered(&folder), 0, "{}", folder.events());
    let opened = || {
        folder
            .status()
            .and_then(|status| number(&status, "/flows/opened"))
    };
    wait("new flows", || opened().filter(|opened| *opened == FLOWS as u64));
}

#[test]
fn a_server_that_is_gone_loses_no_packet_and_has_all_flows_in_the_end() {
    let mut server = match Server::start(&[]) {
        Ok(server) => server,
        Err(why) => return println!("not run: {why}"),
    };
    let folder = Folder::new();
    let config = folder.gateway(1, CHAIN, &table(&server.uri(), "10ms"));
    let running = Running::start(&config);
    let before = all_flows(&folder);
    let mut child = server.child.take().expect("it runs");
    child.kill().expect("it is killed");
    let _ = child.wait();
    let failing = |status: &Value| status["stores"][0]["failing"] == true;
    let status = wait("a failing store", || folder.status().filter(failing));
    let count = number(&status, "/packets/in").expect("a count");
    let more = |status: &Value| number(status, "/packets/in").is_some_and(|now| now > count + 8_000);
    let status = wait("packets without a store", || folder.status().filter(more));
    assert!(
        status["packets"]["dropped"]
            .as_object()
            .is_some_and(serde_json::Map::is_empty),
        "{status}"
    );
    // It begins with nothing, and is told all of it again.
    server.launch().expect("it begins again");
    let well = |status: &Value| status["stores"][0]["failing"] == false;
    wait("a store that is back", || folder.status().filter(well));
    std::thread::sleep(Duration::from_secs(2));
    drop(running);
    let _running = Running::start(&config);
    let enough =
        |status: &Value| number(status, "/packets/in").is_some_and(|count| count > 10 * FLOWS as u64);
    let status = wait("packets", || folder.status().filter(enough));
    assert_eq!(number(&status, "/flows/opened"), Some(0), "{status}");
    assert_eq!(folder.mappings(), before);
}

#[test]
fn a_configuration_that_cannot_be_is_refused_at_its_line() {
    let folder = Folder::new();
    let cases = [
        ("", "there is no store", "[store] with uri"),
        (
            "[store]\nuri = \"memory:\"\n[store.function.replication]\nuri = \"none\"\n",
            "there is no store",
            "redb:PATH",
        ),
        (
            "[store]\nuri = \"memory:\"\n[function.replication]\nkind = \"counter\"\n[[chain]]\nname = \"b\"\nfunctions = [\"replication\"]\n",
            "under the name `replication`",
            "another name",
        ),
    ];
    for (more, problem, remedy) in cases {
        let (done, said, error) = output(&["chain", "check", &folder.gateway(1, CHAIN, more)]);
        let all = format!("{said}{error}");
        assert!(!done && all.contains("gateway.toml:14:"), "{all}");
        assert!(
            all.contains("chain[0].replication") && all.contains(problem) && all.contains(remedy),
            "{all}"
        );
    }
    let store = "[store]\nuri = \"memory:\"\n[store.function.replication]\ninterval = \"100ms\"\n";
    let (done, said, error) = output(&["chain", "check", &folder.gateway(1, CHAIN, store)]);
    assert!(done, "{said}{error}");
}
