//! Flows in a data store: a running Flowkeep is killed with `kill -9`, another begins, and its
//! flows go on with the same external ports.
//!
//! | | requirement |
//! |---|---|
//! | NAT and firewall, `redb:` and a redis-server of the test's own, `kill -9` under load, three times; the file is migrated into Redis under load, and the next begins there | each flow that was there longer than the interval goes on: same endpoint, not opened again; the window of loss is printed |
//! | one program with counter, firewall and NAT against memory, a file, Redis, Valkey and Cassandra: `kill -9` under load (`storing/drivers.rs`) | counts and flows go on out of each store that outlives the process |
//! | the functions keep something else | nothing goes on, and an event says so |
//! | the server is stopped under load | no packet is lost; it has all flows when it is back |
//! | `store_commit`: the server stands still under load; `kill -9` under load | no packet of a new flow leaves meanwhile; each flow of which a packet left goes on |
//! | `store`, `kill -9` while flows begin, three times | lost flows began within the interval, or the age that 99 of 100 changes had, and 100 ms: with 10 ms and with 500 ms |
//! | a switch and two nodes, `kill -9` of all, of one, of all but one that stays away (`storing/members.rs`) | the same endpoints, no flow opened again, each flow at one node |
//! | timers, locks and merged views of functions (`variables/`) | see there |
//! | a store is not named, a file for two members, a function of the reserved name | the configuration is refused at its line |
//!
//! Not here: when which flows are lost (`crates/runtime`, `tests::stored`), stores
//! (`crates/stores/tests`).

#[path = "storing/drivers.rs"]
mod drivers;
#[path = "storing/members.rs"]
mod members;
#[path = "members/rig.rs"]
mod rig;
mod storing;
mod variables;

use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};
use storing::{Folder, flowkeep, output, server, wait};

const FLOWS: usize = 400;

impl Folder {
    /// A gateway that translates; its output is in a capture. `more`: further tables.
    fn gateway(&self, seed: u32, functions: &str, more: &str) -> String {
        self.gateway_of(seed, functions, "store", [FLOWS, 4000], more)
    }

    /// The same with a policy, and so many flows and packets in a second.
    fn gateway_of(
        &self,
        seed: u32,
        functions: &str,
        policy: &str,
        [flows, rate]: [usize; 2],
        more: &str,
    ) -> String {
        let profile = self.file(
            "traffic.toml",
            &format!(
                "seed = {seed}\nflows = {flows}\nrate = {{ total = {rate}.0 }}\npace = \"clock\"\nsources = [\"10.0.0.0/27\"]\n\
                 source_ports = [1024, 5000]\ndestinations = [\"192.0.2.1/32\"]\ndestination_ports = [53]\n\
                 [[classes]]\nshare = 1.0\ntcp = 0.0\n"
            ),
        );
        self.file(
            "gateway.toml",
            &format!(
                "runtimes = 2\nflows_max = 10000\n\
                 [[port]]\nname = \"lan\"\nside = \"inside\"\ninput = \"generate:{profile}\"\n\
                 [[port]]\nname = \"wan\"\nside = \"outside\"\noutput = \"pcap:{}\"\n\
                 [[chain]]\nname = \"all\"\nfunctions = [{functions}]\nreplication = \"{policy}\"\n\
                 [function.nat]\npool = [\"203.0.113.0/28\"]\n\
                 [[function.firewall.rules]]\nname = \"out\"\naction = \"allow\"\n\
                 [log]\nevents = \"{}\"\n[control]\nsocket = \"{}\"\n{more}",
                self.path("out.pcap"),
                self.path("events.jsonl"),
                self.path("flowkeep.sock"),
            ),
        )
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

/// A flow's inside endpoint, and its external one.
fn mapping(flow: &Value) -> (String, String) {
    let inside = flow["source"].as_str().unwrap_or_default().to_owned();
    let outside = flow["translated"]["source"]
        .as_str()
        .unwrap_or_default()
        .to_owned();
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

/// How old a change was, at most, when the store had it, in milliseconds; its interval is in that.
fn oldest(status: &Value) -> f64 {
    age(status, "age_max_seconds")
}

/// An age at which changes reached the store, of the partition where it is the longest, in
/// milliseconds.
fn age(status: &Value, which: &str) -> f64 {
    let variables = status["variables"].as_array().expect("variables");
    let ages = variables.iter().filter_map(|of| of[which].as_f64());
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

/// The cluster that runs in the end, and its mappings.
fn killed_and_gone_on(uri: &str) -> (Folder, Running, BTreeMap<String, String>) {
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
    (folder, running, before)
}

/// At last out of a server, to which the file was migrated while it was written.
#[test]
fn flows_go_on_after_kill_9_out_of_a_file() {
    let place = Folder::new();
    let file = format!("redb:{}", place.path("flows.redb"));
    let (folder, running, before) = killed_and_gone_on(&file);
    let Some(server) = server(&[]) else { return };
    let (to, socket) = (server.uri(), folder.path("flowkeep.sock"));
    let words = ["store", "migrate", "--follow", &file, &to, "--socket", &socket];
    let follow = flowkeep(&words).stdout(Stdio::null()).spawn();
    let follow = Running(follow.expect("it starts"));
    // Changes are copied each second.
    std::thread::sleep(Duration::from_secs(3));
    drop(running);
    std::thread::sleep(Duration::from_secs(4));
    drop(follow);
    let _running = Running::start(&folder.gateway(1, CHAIN, &table(&to, "10ms")));
    let enough =
        |status: &Value| number(status, "/packets/in").is_some_and(|count| count > 10 * FLOWS as u64);
    let status = wait("packets", || folder.status().filter(enough));
    assert_eq!(number(&status, "/flows/opened"), Some(0), "{status}");
    assert_eq!(folder.mappings(), before);
}

#[test]
fn flows_go_on_after_kill_9_out_of_redis() {
    if let Some(server) = server(&[]) {
        killed_and_gone_on(&server.uri());
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
    let Some(mut server) = server(&[]) else { return };
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
    // The server begins with nothing, and is told all flows again.
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

/// The external endpoints of which a packet is in the capture of the output; after a kill, as far
/// as it was written.
fn endpoints_that_left(folder: &Folder) -> BTreeSet<String> {
    // For an answer, buffered packets are written.
    let _ = folder.status();
    let bytes = std::fs::read(folder.path("out.pcap")).unwrap_or_default();
    let word = |at: usize| {
        bytes
            .get(at..at + 4)
            .map(|word| u32::from_le_bytes(word.try_into().expect("4")))
    };
    // Frames with an Ethernet header, or packets without one.
    let head = if word(20) == Some(1) { 14 } else { 0 };
    let (mut at, mut found) = (24, BTreeSet::new());
    while let Some(length) = word(at + 8) {
        let frame = bytes.get(at + 16 + head..at + 16 + length as usize);
        let Some([first, ..]) = frame.map(|frame| frame.split_at(1).0) else {
            break;
        };
        let frame = frame.unwrap_or_default();
        assert_eq!(*first, 0x45, "IPv4 without options");
        let port = u16::from_be_bytes([frame[20], frame[21]]);
        found.insert(format!(
            "{}.{}.{}.{}:{port}",
            frame[12], frame[13], frame[14], frame[15]
        ));
        at += 16 + length as usize;
    }
    found
}

fn signal(child: &Child, name: &str) {
    let id = child.id().to_string();
    let done = std::process::Command::new("kill").args([name, &id]).status();
    assert!(done.expect("kill").success());
}

#[test]
fn a_packet_waits_until_the_store_has_its_flow() {
    let Some(server) = server(&[]) else { return };
    let folder = Folder::new();
    // New flows begin all the time.
    let store = table(&server.uri(), "10ms");
    let config = folder.gateway_of(1, CHAIN, "store_commit", [9000, 1000], &store);
    let running = Running::start(&config);
    let active = |least: u64| wait("flows", || folder.flows().filter(|flows| *flows > least));
    active(1500);
    let child = server.child.as_ref().expect("it runs");
    signal(child, "-STOP");
    // Time for changes on their way to it, or acknowledged, and for late writes.
    std::thread::sleep(Duration::from_millis(1500));
    let before = endpoints_that_left(&folder);
    let flows = folder.flows().expect("an answer");
    active(flows + 300);
    let status = folder.status().expect("an answer");
    let during = endpoints_that_left(&folder);
    signal(child, "-CONT");
    assert!(before.len() > 500, "{}", before.len());
    assert_eq!(
        during.len(),
        before.len(),
        "no packet leaves before its flow is in the store"
    );
    assert!(
        number(&status, "/packets/held").is_some_and(|held| held > 0),
        "{status}"
    );
    wait("packets that waited", || {
        (endpoints_that_left(&folder).len() > during.len() + 200).then_some(())
    });
    let well = |status: &Value| status["stores"][0]["failing"] == false;
    wait("a store that is back", || folder.status().filter(well));
    // Killed under load: flows of which a packet has left go on.
    let count = folder.flows().expect("an answer");
    active(count + 500);
    drop(running);
    let left = endpoints_that_left(&folder);
    let other = folder.gateway_of(2, CHAIN, "store_commit", [1, 1], &store);
    let _running = Running::start(&other);
    wait("flows", || (recovered(&folder) > 0).then_some(()));
    let there: BTreeSet<String> = folder.mappings().into_values().collect();
    let lost: Vec<&String> = left.difference(&there).collect();
    println!(
        "{} flows of which packets had left, {} in the store, {} waited while it stood still",
        left.len(),
        there.len(),
        status["packets"]["held"]
    );
    assert!(left.len() > 1500 && lost.is_empty(), "{lost:?}");
}

/// The loss by `kill -9` under policy `store`, as a time: the flows of which a packet had left and
/// that are not there again, by those that begin in a second; and its bound.
///
/// A change is with the store within the interval, and the age of most has that in it. A greater
/// loss is the machine's: a worker, the agent or the server may not have had a processor for as
/// long, at the end, when it is in no age.
fn window_of_loss(interval_ms: f64, as_configured: &str) -> Option<(Duration, Duration)> {
    const SLACK_MS: f64 = 100.0;
    let server = server(&[])?;
    let folder = Folder::new();
    let store = table(&server.uri(), as_configured);
    let config = folder.gateway_of(1, CHAIN, "store", [9000, 1000], &store);
    let running = Running::start(&config);
    let flows = || folder.flows().unwrap_or(0);
    let (first, began) = (
        wait("flows", || Some(flows()).filter(|f| *f > 500)),
        Instant::now(),
    );
    let last = wait("more flows", || Some(flows()).filter(|f| *f > first + 1500));
    let rate = (last - first) as f64 / began.elapsed().as_secs_f64();
    // With the answer the capture is whole; packets that leave until the process is gone may miss
    // in it.
    let status = folder.status().expect("an answer");
    let answered = Instant::now();
    drop(running);
    let unseen = answered.elapsed();
    let left = endpoints_that_left(&folder);
    let _running = Running::start(&folder.gateway_of(2, CHAIN, "store", [1, 1], &store));
    wait("flows", || (recovered(&folder) > 0).then_some(()));
    let there: BTreeSet<String> = folder.mappings().into_values().collect();
    let lost = left.difference(&there).count();
    let window_ms = lost as f64 / rate * 1e3;
    let (age, usual) = (age(&status, "age_p99_seconds"), age(&status, "age_p50_seconds"));
    let allowed_ms = interval_ms.max(age) + SLACK_MS;
    println!(
        "{lost} of {} flows lost at {rate:.0} new ones a second: {window_ms:.1} ms (and {:.1} ms that the \
         capture may lack) of {allowed_ms:.1} ms, which are {interval_ms} ms, or an age of {age:.1} ms, and \
         {SLACK_MS} ms",
        left.len(),
        unseen.as_secs_f64() * 1e3,
    );
    assert!(left.len() > 1500, "{}", left.len());
    // An age has its interval in it, so the oldest alone would allow any.
    assert!(
        usual <= interval_ms + SLACK_MS,
        "half of the changes are {usual:.1} ms old"
    );
    let time = |ms: f64| Duration::from_secs_f64(ms / 1e3);
    Some((time(window_ms), time(allowed_ms)))
}

#[test]
fn what_a_kill_loses_began_within_the_interval() {
    for (ms, interval) in [(10.0, "10ms"), (10.0, "10ms"), (500.0, "500ms")] {
        let Some((window, allowed)) = window_of_loss(ms, interval) else {
            return;
        };
        assert!(window <= allowed, "{window:?} of flows are lost, of {allowed:?}");
    }
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
