//! A cluster of three processes between real clients and servers: a switch with the ports and two nodes, all flows moved back and forth.
//!
//! ```text
//!   client 203.0.113.2 ═══ left  gateway: switch  right ═══ server 203.0.113.1          a bridge with a firewall
//!                                  │ shared memory, all three on this host
//!                                  │ or Geneve, or Ethernet alone: link0 10.9.0.1 ═══ eth0 10.9.0.2 host of the nodes, with keys
//!     downloads with hashes, iperf3 up and down, a probe of 1000 numbered datagrams a second   ([`probe`])
//!     └ meanwhile ten times all flows to one node and back
//! ```
//!
//! What counts as lost is what nobody had to lose: sockets and queues of a machine that is busy overflow, and count that.

use crate::log::Log;
use crate::moving::probe;
use crate::network::{Network, PATIENCE, network_with};
use flowkeep::lab::Namespace;
use flowkeep::lab::process::{Process, Run};
use serde_json::Value;
use std::fs;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

const PROGRAMS: &[(&str, &str)] = &[("curl", "curl"), ("nginx", "nginx-light"), ("iperf3", "iperf3")];
const CLIENT: &str = "203.0.113.2";
const SERVER: &str = "203.0.113.1";
const ROUNDS: u32 = 10;
const DOWNLOADS: usize = 60;
const FILE: usize = 60_000;
const SECONDS: u32 = 12;

/// What the links between the processes are made of.
#[derive(Clone, Copy, PartialEq)]
enum Links {
    Memory,
    Geneve,
    Ethernet,
}

impl Links {
    /// What is said of the host of the member with ports, and of the nodes'.
    fn places(self) -> [&'static str; 2] {
        match self {
            Links::Memory => [
                "host = \"gateway\"\naddress = \"10.9.0.1\"",
                "host = \"gateway\"\naddress = \"10.9.0.1\"",
            ],
            Links::Geneve => [
                "host = \"gateway\"\naddress = \"10.9.0.1\"",
                "host = \"nodes\"\naddress = \"10.9.0.2\"",
            ],
            Links::Ethernet => [
                "host = \"gateway\"\ninterface = \"link0\"\nlink_address = \"02:00:00:00:09:01\"",
                "host = \"nodes\"\ninterface = \"eth0\"\nlink_address = \"02:00:00:00:09:02\"",
            ],
        }
    }
}

fn config(folder: &str, scheme: &str, links: Links) -> String {
    let [ports, nodes] = links.places();
    let mut text = format!(
        "[cluster]\nname = \"live-{}\"\nkeys = [\"{folder}/edge.key\"]\ndirectory = \"{folder}/state\"\n",
        std::process::id()
    );
    for (name, kind, at) in [
        ("front", "switches", ports),
        ("one", "runtimes", nodes),
        ("two", "runtimes", nodes),
    ] {
        text +=
            &format!("[[member]]\nname = \"{name}\"\n{kind} = 1\n{at}\nsocket = \"{folder}/{name}.sock\"\n");
    }
    for (name, interface, side) in [("lan", "left", "inside"), ("wan", "right", "outside")] {
        let uri = format!("{scheme}:{interface}?take=everything");
        text += &format!(
            "[[port]]\nname = \"{name}\"\nside = \"{side}\"\ninput = \"{uri}\"\noutput = \"{uri}\"\n"
        );
    }
    text + "[[chain]]\nname = \"all\"\nfunctions = [\"firewall\"]\n\
            [[function.firewall.rules]]\nname = \"out\"\nfrom = \"inside\"\naction = \"allow\"\n"
}

/// A cluster of three processes at work.
struct Members<'a> {
    network: &'a Network,
    /// By name, in the order of the configuration.
    all: Vec<(&'static str, Process)>,
    log: Log,
}

impl Members<'_> {
    fn asked(&self, member: &str, words: &str) -> Value {
        let socket = self.network.folder.path(&format!("{member}.sock"));
        let words = format!(
            "{} {words} --json --socket {socket}",
            env!("CARGO_BIN_EXE_flowkeep")
        );
        let ended = self
            .network
            .gateway
            .finish(&words, Run::within(PATIENCE))
            .unwrap();
        serde_json::from_str(&ended.out).unwrap_or_else(|_| Value::String(format!("{ended:?}")))
    }

    /// Waits until everybody has met everybody.
    fn wait(&mut self) {
        let began = Instant::now();
        for place in 0..self.all.len() {
            let name = self.all[place].0;
            loop {
                let status = self.asked(name, "status");
                let links = status["links"].as_array();
                if links.is_some_and(|links| {
                    links.len() == 2 && links.iter().all(|link| link["is_there"] == true)
                }) {
                    break;
                }
                let printed = self.all[place].1.printed();
                assert!(began.elapsed() < PATIENCE, "{name}: {status} {printed:?}");
                std::thread::sleep(Duration::from_millis(50));
            }
        }
    }

    fn back_and_forth(&self) {
        let (mut moved, mut pause) = (0, 0);
        for _ in 0..ROUNDS {
            for (from, to) in [("one", 1), ("two", 0)] {
                let receipt = self.asked(from, &format!("flow migrate --all --to {to}"));
                let of = |name: &str| receipt[name].as_u64().unwrap_or(u64::MAX);
                let good = (of("flows_refused"), of("flows_failed"), of("packets_dropped")) == (0, 0, 0);
                self.log.note("receipts", good, || receipt.to_string());
                moved += receipt["flows_moved"].as_u64().unwrap_or(0);
                pause = pause.max(receipt["pause_longest_ns"].as_u64().unwrap_or(0));
                std::thread::sleep(Duration::from_millis(300));
            }
        }
        println!(
            "{moved} flows moved; longest pause {:?}",
            Duration::from_nanos(pause)
        );
        self.log
            .expect("flows have moved", moved >= u64::from(ROUNDS), moved);
    }
}

fn downloads(members: &Members<'_>, content: &[u8]) {
    let folder = &members.network.folder;
    let words = format!(
        "curl --silent --show-error --fail --parallel --parallel-immediate --parallel-max {DOWNLOADS} --max-time 50 --limit-rate 5k \
         --output {} http://{SERVER}/file?[1-{DOWNLOADS}]",
        folder.path("got-#1")
    );
    let ended = members
        .network
        .client
        .finish(&words, Run::within(PATIENCE))
        .unwrap();
    for number in 1..=DOWNLOADS {
        let file = folder.path(&format!("got-{number}"));
        let equal = fs::read(&file).is_ok_and(|got| got == content);
        members
            .log
            .note("downloads", equal, || format!("{number}: {ended:?}"));
    }
}

fn stream(members: &Members<'_>, port: u16, how: &str) {
    let words = format!("iperf3 --json --client {SERVER} --port {port} --time {SECONDS} --bitrate 5M {how}");
    let out = members.network.at_client(&words);
    let report: Value = serde_json::from_str(&out).unwrap_or_default();
    let bytes = report["end"]["sum_received"]["bytes"].as_u64().unwrap_or(0);
    println!("iperf3 {how}: {bytes} bytes");
    members
        .log
        .expect(&format!("iperf3 {how}"), bytes > 1_000_000, out);
}

/// Overflows that were counted where they happened.
fn overload(members: &Members<'_>) -> u64 {
    let status = members.asked("front", "status");
    let of = |value: &Value| value.as_u64().unwrap_or(0);
    let ports = status["ports"].as_array().into_iter().flatten();
    let lost: u64 = ports
        .map(|port| of(&port["lost_packets"]) + of(&port["failed_packets"]))
        .sum();
    lost + of(&status["packets"]["dropped"]["runtime_busy"]) + members.network.udp_overflows()
}

fn moved_between_processes(scheme: &str, links: Links) {
    let is_memory = links == Links::Memory;
    let built = network_with(PROGRAMS, |lab, network| {
        let nodes = lab.namespace("nodes")?;
        lab.cable((&network.gateway, "link0"), (&nodes, "eth0"))?;
        network.gateway.ip("link set link0 address 02:00:00:00:09:01")?;
        nodes.ip("link set eth0 address 02:00:00:00:09:02")?;
        network.gateway.address("link0", "10.9.0.1/24")?;
        nodes.address("eth0", "10.9.0.2/24")?;
        Ok(nodes)
    });
    let Some((mut network, nodes)) = built else { return };
    network.client.address("eth0", &format!("{CLIENT}/24")).unwrap();
    network.server.address("eth0", &format!("{SERVER}/24")).unwrap();
    // ARP passes no chain: who is where is said beforehand.
    for (host, own, other, address) in [
        (&network.client, "02:00:00:00:00:02", "02:00:00:00:00:01", SERVER),
        (&network.server, "02:00:00:00:00:01", "02:00:00:00:00:02", CLIENT),
    ] {
        host.ip(&format!("link set eth0 address {own}")).unwrap();
        host.ip(&format!(
            "neigh replace {address} lladdr {other} dev eth0 nud permanent"
        ))
        .unwrap();
    }
    network.keep_order();
    let content = network.serve_file("file", FILE);
    for port in [5201, 5202] {
        let mut iperf3 = network
            .server
            .start(&format!("iperf3 --server --forceflush --port {port}"))
            .unwrap();
        iperf3.wait_for("Server listening", PATIENCE).unwrap();
        network.servers.push(iperf3);
    }
    let folder = network.folder.path("");
    let folder = folder.trim_end_matches('/').to_owned();
    fs::write(format!("{folder}/edge.key"), format!("1 {}", "5a".repeat(32))).unwrap();
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o600);
    fs::set_permissions(format!("{folder}/edge.key"), mode).unwrap();
    let file = format!("{folder}/cluster.toml");
    fs::write(&file, config(&folder, scheme, links)).unwrap();
    let start = |host: &Namespace, command: &str, name: &str| {
        let words = format!(
            "{} {command} {file} --member {name} --json --for 3m",
            env!("CARGO_BIN_EXE_flowkeep")
        );
        host.start(&words).unwrap()
    };
    let host = if is_memory { &network.gateway } else { &nodes };
    let all = vec![
        ("front", start(&network.gateway, "switch", "front")),
        ("one", start(host, "node", "one")),
        ("two", start(host, "node", "two")),
    ];
    let mut members = Members {
        network: &network,
        all,
        log: Log::default(),
    };
    members.wait();
    let before = overload(&members);
    let on = AtomicBool::new(true);
    let (of, still, content) = (&members, &on, &content);
    let seen = std::thread::scope(|scope| {
        let probing =
            scope.spawn(move || probe::probe(&of.network.client, &of.network.server, CLIENT, 7000, still));
        scope.spawn(move || downloads(of, content));
        scope.spawn(move || stream(of, 5201, ""));
        scope.spawn(move || stream(of, 5202, "--reverse"));
        std::thread::sleep(Duration::from_secs(1));
        of.back_and_forth();
        still.store(false, Ordering::Release);
        probing.join().unwrap()
    });
    let lost = overload(&members) - before;
    println!("{}", seen_of(seen, &members.log, lost));
    let kind = &members.asked("front", "status")["links"][0]["kind"];
    let expected = if is_memory { "memory" } else { "channel" };
    members.log.expect("kind of link", kind == expected, kind);
    let (log, all) = (members.log, members.all);
    // The nodes first: the one moves what it has to the other.
    for (name, process) in all.into_iter().rev() {
        let ended = process.stop().unwrap();
        log.expect(
            &format!("{name} ends well"),
            ended.status.success(),
            format!("{ended:?}"),
        );
    }
    log.end(7);
}

fn seen_of(mut seen: probe::Seen, log: &Log, lost: u64) -> String {
    let told = seen.told();
    log.expect(
        "probe in order, once",
        seen.sent > 1000 && seen.crooked() == 0 && seen.longest_gap() <= probe::GAP_MAX,
        &told,
    );
    let missing = seen.missing();
    log.expect(
        "nothing of the probe is missing",
        missing <= lost,
        format!("{missing} missing, {lost} counted as overflows; {told}"),
    );
    told
}

#[test]
fn members_share_memory_over_packet_sockets() {
    moved_between_processes("afpacket", Links::Memory);
}

#[test]
fn members_share_memory_over_xdp() {
    moved_between_processes("afxdp", Links::Memory);
}

#[test]
fn members_of_two_hosts_over_packet_sockets() {
    moved_between_processes("afpacket", Links::Geneve);
}

#[test]
fn members_of_one_segment_over_packet_sockets() {
    moved_between_processes("afpacket", Links::Ethernet);
}
