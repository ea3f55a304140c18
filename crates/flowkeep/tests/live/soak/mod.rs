//! The chain on live ports for as long as is wanted: nothing grows, each packet is accounted for,
//! and clients that behave are not harmed by senders that do not.
//!
//! ```text
//!   client ═════ left  gateway  right ═════ server: nginx, dnsmasq
//!     │ one download for all of the time, others again and again, names, new flows without end ([`traffic`])
//!     └ floods from both sides: SYNs of sources that no host has, fragments, garbage
//! ```
//!
//! `FLOWKEEP_SOAK_SECONDS` says how long: 20 s where it is not said, an hour every night
//! (`./x nightly`). Meanwhile the process is looked at once a second ([`vitals`]). At the end
//! ([`books`]): each packet accounted for by Flowkeep, its ports' counters compared with the
//! kernel's of the interfaces, and memory, descriptors and threads compared with those at a time
//! when all kinds of traffic had been there.
//!
//! A reload, `flowkeep chain apply` of the same configuration with another rule, is done again and
//! again.
//!
//! Needs root, `curl`, `nginx`, `dnsmasq` and `dnsperf`; says so where they are missing.

mod books;
mod traffic;
mod vitals;

use crate::log::Log;
use crate::network::{Network, PATIENCE, network};
use lab::process::{Process, Run};
use std::fs;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use vitals::Vitals;

const PROGRAMS: &[(&str, &str)] = &[
    ("curl", "curl"),
    ("nginx", "nginx-light"),
    ("dnsmasq", "dnsmasq-base"),
    ("dnsperf", "dnsperf"),
];

/// Where the servers are.
const SERVER: &str = "203.0.113.1";
/// Behind the load balancer.
const VIRTUAL: &str = "192.0.2.80";

/// How long it is by default, in seconds.
const SHORT: u64 = 20;
/// Reloads.
const RELOAD: Duration = Duration::from_secs(7);

fn duration() -> Duration {
    let said = std::env::var("FLOWKEEP_SOAK_SECONDS").ok();
    let seconds = said.map(|text| {
        text.parse()
            .expect("FLOWKEEP_SOAK_SECONDS is a number of seconds")
    });
    Duration::from_secs(seconds.unwrap_or(SHORT).max(10))
}

/// Timeouts are short, so that the flows of floods end within the time of a short run, too; those
/// of NAT and the load balancer as well, since a flow lasts as long as any function of its chain
/// wants: with the minutes that are usual the client's 2048 ports are used up after as many
/// downloads.
fn config(rule: &str) -> String {
    format!(
        r#"
runtimes = 2
flows_max = 131072

[[port]]
name = "lan"
side = "inside"
input = "afxdp:left"
output = "afxdp:left"

[[port]]
name = "wan"
side = "outside"
input = "afxdp:right"
output = "afxdp:right"

[[chain]]
name = "all"
functions = ["firewall", "nat", "load_balancer", "forward"]

[[function.firewall.rules]]
name = "{rule}"
from = "inside"
action = "allow"

[function.firewall.timeouts]
tcp_opening = "4s"
tcp_closing = "4s"
tcp_time_wait = "4s"
tcp_reset = "2s"
udp_unreplied = "4s"
udp_replied = "4s"
udp_stream = "4s"
icmp = "4s"
other = "4s"

[function.nat]
pool = ["203.0.113.64/29"]
block_size = 128
blocks_per_host = 16
log = "none"
timeouts = {{ tcp_opening = "4s", tcp_closing = "4s", udp = "4s", udp_well_known = "4s", icmp_query = "4s", below_rfc = true }}

[[function.load_balancer.services]]
name = "web"
addresses = ["{VIRTUAL}"]
ports = 80
protocol = "tcp"
policy = "round_robin"
idle_timeout = 8
backends = [
    {{ name = "one", endpoint = "203.0.113.11:80" }},
    {{ name = "two", endpoint = "203.0.113.12:80" }},
]
"#
    )
}

fn addresses(network: &Network) {
    let (client, gateway, server) = (&network.client, &network.gateway, &network.server);
    for (host, interface, address) in [
        (client, "eth0", "10.0.1.1/24"),
        (gateway, "left", "10.0.1.254/24"),
        (gateway, "right", "203.0.113.254/24"),
        (server, "eth0", "203.0.113.1/24"),
        (server, "eth0", "203.0.113.11/24"),
        (server, "eth0", "203.0.113.12/24"),
    ] {
        host.address(interface, address).unwrap();
    }
    client.ip("route add default via 10.0.1.254").unwrap();
    gateway.ip("route add default via 203.0.113.1").unwrap();
    // The floods' packets have a neighbour that takes them, and a host that answers them has none.
    gateway.ip("route add 10.0.0.0/16 via 10.0.1.1").unwrap();
    server.ip("route add 10.0.1.0/24 via 203.0.113.254").unwrap();
}

fn start(network: &Network) -> (Process, String) {
    let file = network.folder.path("soak.toml");
    fs::write(&file, config("out")).unwrap();
    let flowkeep = env!("CARGO_BIN_EXE_flowkeep");
    let socket = network.folder.path("socket");
    let words = format!("{flowkeep} run {file} --json --socket {socket}");
    let mut cluster = network.gateway.start(&words).unwrap();
    let status = format!("{flowkeep} status --json --socket {socket}");
    let began = Instant::now();
    while network.gateway.run(&status, Run::within(PATIENCE)).is_err() {
        assert!(
            began.elapsed() < PATIENCE && cluster.ended().unwrap().is_none(),
            "{:?}",
            cluster.printed()
        );
    }
    (cluster, socket)
}

/// Applies a configuration again and again, now with the one rule's name, now with the other;
/// answers how often.
fn reload(network: &Network, socket: &str, on: &AtomicBool, log: &Log) -> u32 {
    let flowkeep = env!("CARGO_BIN_EXE_flowkeep");
    let file = network.folder.path("reload.toml");
    let mut count = 0;
    while on.load(Ordering::Relaxed) {
        std::thread::sleep(RELOAD);
        count += 1;
        fs::write(&file, config(if count % 2 == 1 { "let out" } else { "out" })).unwrap();
        let words = format!("{flowkeep} chain apply {file} --socket {socket}");
        let ended = network.gateway.finish(&words, Run::within(PATIENCE)).unwrap();
        log.note("reload", ended.status.success(), || {
            format!("{}{}", ended.out, ended.err)
        });
    }
    count
}

#[test]
fn nothing_grows_and_every_packet_is_accounted_for() {
    let Some(mut network) = network(PROGRAMS) else {
        return;
    };
    let duration = duration();
    addresses(&network);
    let content = network.content("file", 200_000);
    let long = network.content("long", traffic::long_download(duration));
    for (name, listen) in [("one", "203.0.113.11:80"), ("two", "203.0.113.12:80")] {
        let server = network.server.clone();
        network.nginx(&server, name, listen);
    }
    let dnsmasq = network.server.start(&format!(
        "dnsmasq --no-daemon --no-resolv --no-hosts --conf-file=/dev/null --user=root --bind-interfaces \
         --listen-address={SERVER} --address=/example.test/192.0.2.7"
    ));
    network.servers.push(dnsmasq.unwrap());
    let (cluster, socket) = start(&network);

    let (on, log, mut vitals) = (AtomicBool::new(true), Log::default(), Vitals::of(cluster.id()));
    let began = Instant::now();
    let (network, log_of, on_of) = (&network, &log, &on);
    let reloads = std::thread::scope(|scope| {
        scope.spawn(move || traffic::long(network, &long, duration, log_of));
        scope.spawn(move || traffic::downloads(network, &content, on_of, log_of));
        scope.spawn(move || traffic::names(network, duration, log_of));
        scope.spawn(move || traffic::frames(network, on_of, log_of));
        let reloads = scope.spawn(|| reload(network, &socket, on_of, log_of));
        while began.elapsed() < duration {
            std::thread::sleep(Duration::from_secs(1));
            vitals.look(began.elapsed());
        }
        on.store(false, Ordering::Relaxed);
        reloads.join().unwrap()
    });
    println!("reloads: {reloads}");
    // Packets on their way come to an end, and kernels' own retransmissions too.
    std::thread::sleep(Duration::from_secs(2));
    let interfaces = books::interfaces(&network.gateway);
    let ended = cluster.stop().unwrap();
    assert!(ended.status.success(), "{ended:?}");
    let report = serde_json::from_str(ended.out.lines().last().expect("a report")).unwrap();
    vitals.tell();
    books::balance(&report);
    books::agree(&report, &interfaces);
    log.end(4);
    vitals.judge();
}
