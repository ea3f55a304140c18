//! The settings of NAT beside its pool, with real programs on both sides: an address of a host's
//! own, pings of the pool's addresses, the segment size, and flows that an operator clears.
//!
//! ```text
//!   client ═════════════ left   gateway   right ═══ server
//!   10.0.1.1, .2         .254  (flowkeep)  203.0.113.254    203.0.113.1
//!                              pool 203.0.113.64/30: .66 is 10.0.1.2's
//! ```
//!
//! Not here: packets in detail, GRE among them (`nat_behaviour`, the units of `nat`).

use crate::log::Log;
use crate::network::{Network, PATIENCE, network};
use crate::site::said;
use lab::Namespace;
use lab::process::{Process, Run};
use serde_json::Value;
use std::fs;
use std::time::{Duration, Instant};

const PROGRAMS: &[(&str, &str)] = &[
    ("ping", "iputils-ping"),
    ("curl", "curl"),
    ("nginx", "nginx-light"),
    ("tshark", "tshark"),
];

const CONFIG: &str = r#"
runtimes = 2
inside = ["10.0.0.0/8"]

[[port]]
name = "lan"
side = "inside"
input = "afpacket:left"
output = "afpacket:left"

[[port]]
name = "wan"
side = "outside"
input = "afpacket:right"
output = "afpacket:right"

[[chain]]
name = "gateway"
functions = ["nat", "forward"]

[function.nat]
pool = ["203.0.113.64/30"]
answer_pings = true
mss_clamp = 1000
static = [{ inside = "10.0.1.2", outside = "203.0.113.66" }]
"#;

const SERVER: &str = "203.0.113.1";
/// In the pool: no host's own.
const POOL: &str = "203.0.113.64";
/// The own address of 10.0.1.2.
const OWN: &str = "203.0.113.66";
/// In the server's network, and not in the pool.
const UNUSED: &str = "203.0.113.90";

struct Gateway {
    // Dropped in this order: the program before the namespaces.
    cluster: Process,
    network: Network,
    socket: String,
}

impl Gateway {
    fn start() -> Option<Self> {
        let network = network(PROGRAMS)?;
        let (client, gateway, server) = (&network.client, &network.gateway, &network.server);
        for (host, interface, address) in [
            (client, "eth0", "10.0.1.1/24"),
            (client, "eth0", "10.0.1.2/24"),
            (gateway, "left", "10.0.1.254/24"),
            (gateway, "right", "203.0.113.254/24"),
            (server, "eth0", "203.0.113.1/24"),
        ] {
            host.address(interface, address).unwrap();
        }
        client.ip("route add default via 10.0.1.254").unwrap();
        let file = network.folder.path("nat.toml");
        fs::write(&file, CONFIG).unwrap();
        let (flowkeep, socket) = (env!("CARGO_BIN_EXE_flowkeep"), network.folder.path("socket"));
        let words = format!("{flowkeep} run {file} --json --for 5m --socket {socket}");
        let cluster = network.gateway.start(&words).unwrap();
        let mut this = Gateway {
            cluster,
            network,
            socket,
        };
        let began = Instant::now();
        while this.asked("status --json").is_err() {
            let is_over = this.cluster.ended().unwrap().is_some() || began.elapsed() > PATIENCE;
            assert!(!is_over, "{:?}", this.cluster.printed());
        }
        Some(this)
    }

    fn asked(&self, words: &str) -> Result<String, String> {
        let words = format!(
            "{} {words} --socket {}",
            env!("CARGO_BIN_EXE_flowkeep"),
            self.socket
        );
        let answer = self.network.gateway.run(&words, Run::within(PATIENCE));
        answer.map_err(|error| error.to_string())
    }

    fn status(&self) -> Value {
        serde_json::from_str(&self.asked("status --json").unwrap()).unwrap()
    }

    /// A counter of the function's, over all runtimes.
    fn counter(&self, name: &str) -> u64 {
        self.status()["counters"][format!("nat/{name}")]
            .as_u64()
            .unwrap_or(0)
    }
}

#[test]
fn settings_of_nat() {
    let Some(mut gateway) = Gateway::start() else {
        return;
    };
    let content = gateway.network.content("file", 200_000);
    let (client, server) = (gateway.network.client.clone(), gateway.network.server.clone());
    gateway.network.nginx(&server, "outside", &format!("{SERVER}:80"));
    gateway.network.nginx(&client, "inside", "10.0.1.2:80");
    let log = Log::default();
    pings(&gateway, &log);
    own_address(&gateway, &content, &log);
    cleared(&gateway, &log);
    let ended = gateway.cluster.stop().unwrap();
    assert!(ended.status.success(), "{ended:?}");
    log.end(10);
}

/// Ten at once; how many came back.
fn answers(host: &Namespace, words: &str) -> u32 {
    let out = said(host, &format!("ping -n -c 10 -l 10 -S 200000 -i 5 -W 2 {words}"));
    let received = out.split(", ").find_map(|part| part.strip_suffix(" received"));
    received.and_then(|count| count.parse().ok()).unwrap_or(0)
}

fn pings(gateway: &Gateway, log: &Log) {
    let Network { client, server, .. } = &gateway.network;
    for (host, words, expected) in [
        (server, format!("-s 56 {POOL}"), 10),
        (server, format!("-s 1001 {POOL}"), 10),
        (client, format!("-I 10.0.1.1 {POOL}"), 10),
        (client, format!("-I 10.0.1.2 {POOL}"), 10),
        (client, format!("-I 10.0.1.1 {SERVER}"), 10),
        (server, UNUSED.to_owned(), 0),
        // A ping in fragments is not put together, so not answered.
        (server, format!("-s 3000 {POOL}"), 0),
    ] {
        let received = answers(host, &words);
        log.expect(&format!("ping {words}"), received == expected, received);
    }
    let answered = gateway.counter("pings_answered");
    log.expect("pings answered", answered == 40, answered);
    // A host with an address of its own answers for it.
    let received = answers(server, OWN);
    log.expect("ping of a host's own address", received == 10, received);
    let same = gateway.counter("pings_answered");
    log.expect("by the host", same == answered, same);
}

/// The SYNs that the server sees and sends: source, source port, destination, destination port,
/// segment size.
fn own_address(gateway: &Gateway, content: &[u8], log: &Log) {
    let Network {
        client,
        server,
        folder,
        ..
    } = &gateway.network;
    let fields = [
        "ip.src",
        "tcp.srcport",
        "ip.dst",
        "tcp.dstport",
        "tcp.options.mss_val",
    ];
    let fields = fields.map(|field| format!("-e {field}")).join(" ");
    let words = format!("tshark -l -n -i eth0 -Y tcp.flags.syn==1 -T fields -E separator=, {fields}");
    let mut capture = server.start(&words).unwrap();
    capture.wait_for("Capturing on", PATIENCE).unwrap();
    // tshark says so before its capture has begun.
    std::thread::sleep(Duration::from_secs(1));
    let file = folder.path("got");
    let fetch = "curl --silent --show-error --fail --max-time 20 --output";
    for (host, how, url) in [
        (server, "--local-port 5555", format!("http://{OWN}/file")),
        (
            client,
            "--interface 10.0.1.2 --local-port 4444",
            format!("http://{SERVER}/file"),
        ),
        (
            client,
            "--interface 10.0.1.1 --local-port 4445",
            format!("http://{SERVER}/file"),
        ),
        // From inside, by its own and by another host.
        (
            client,
            "--interface 10.0.1.1 --local-port 4446",
            format!("http://{OWN}/file"),
        ),
    ] {
        let out = said(host, &format!("{fetch} {file} {how} {url}"));
        let good = fs::read(&file).is_ok_and(|got| got == content);
        let _ = fs::remove_file(&file);
        log.expect(&format!("{how} {url}"), good, out);
    }
    let began = Instant::now();
    let seen = loop {
        let (out, err) = capture.printed().unwrap();
        if out.lines().count() >= 6 {
            break out;
        }
        assert!(began.elapsed() < PATIENCE, "{out}{err}");
        std::thread::sleep(Duration::from_millis(50));
    };
    for line in [
        // The server's own segments stay unchanged; those that it receives are clamped, SYN or
        // answer.
        format!("{SERVER},5555,{OWN},80,1460"),
        format!("{OWN},80,{SERVER},5555,1000"),
        format!("{OWN},4444,{SERVER},80,1000"),
        format!("{SERVER},80,{OWN},4444,1460"),
    ] {
        log.expect(
            &format!("SYN {line}"),
            seen.lines().any(|seen| seen == line),
            &seen,
        );
    }
    let others = seen.lines().filter(|line| line.ends_with(",1000"));
    let from_pool = others.filter(|line| line.starts_with("203.0.113.") && !line.starts_with(OWN));
    log.expect("a host of the pool", from_pool.count() == 1, &seen);
}

fn cleared(gateway: &Gateway, log: &Log) {
    let Network { client, .. } = &gateway.network;
    let flows = || gateway.status()["flows"]["active"].as_u64().unwrap_or(u64::MAX);
    for (whose, left) in [("10.0.1.2", true), ("10.0.1.2/31", true), ("all", false)] {
        for host in ["10.0.1.1", "10.0.1.2"] {
            answers(client, &format!("-I {host} {SERVER}"));
        }
        let before = (flows(), gateway.counter("flows_cleared"));
        let said = gateway.asked(&format!("function nat clear {whose}"));
        log.expect(
            &format!("clear {whose} is taken"),
            said.is_ok(),
            format!("{said:?}"),
        );
        let began = Instant::now();
        let is_done = || gateway.counter("flows_cleared") > before.1 && (left || flows() == 0);
        while !is_done() && began.elapsed() < PATIENCE {
            std::thread::sleep(Duration::from_millis(20));
        }
        // Flows to clear have ended; of others some stay.
        std::thread::sleep(Duration::from_millis(200));
        let after = (flows(), gateway.counter("flows_cleared"));
        let good = after.1 > before.1 && (after.0 > 0) == left;
        log.expect(
            &format!("clear {whose}"),
            good,
            format!("{before:?} to {after:?}"),
        );
    }
    // Cleared flows begin again.
    let received = answers(client, &format!("-I 10.0.1.1 {SERVER}"));
    log.expect("after all were cleared", received == 10, received);
}
