//! Firewall, NAT, load balancer and forwarding between real clients and real servers.
//!
//! ```text
//!   client ═════ left  gateway  right ═════════ server ════════ far
//!   10.0.1.1     .254  (flowkeep)  203.0.113.254    .1 | 198.51.100.1   198.51.100.9
//!   2001:db8:1::1                                   .11 nginx   MTU 1400 from server to far
//!                                                   .12 nginx
//!   NAT pool 203.0.113.64/29, in the servers' own network: who asks for it is answered by the port
//!   virtual address 192.0.2.80, behind it .11 and .12; 2001:db8:1::80, in the clients' own network, behind it the server
//! ```
//!
//! Each client says by itself what went wrong ([`Log`]): no attempt at all fails the test, and so does any failure.

use crate::network::{Network, PATIENCE, network_with};
use flowkeep::lab::Namespace;
use flowkeep::lab::process::{Process, Run};
use serde_json::Value;
use std::fs;

const PROGRAMS: &[(&str, &str)] = &[
    ("ping", "iputils-ping"),
    ("curl", "curl"),
    ("nginx", "nginx-light"),
    ("iperf3", "iperf3"),
    ("traceroute", "traceroute"),
    ("dnsmasq", "dnsmasq-base"),
    ("dnsperf", "dnsperf"),
    ("nmap", "nmap"),
];

const SERVER: &str = "203.0.113.1";
const SERVER_V6: &str = "2001:db8:2::1";
const FAR: &str = "198.51.100.9";
const VIRTUAL: &str = "192.0.2.80";
const VIRTUAL_V6: &str = "2001:db8:1::80";
/// In the pool: its port 8080 is the client's.
const PUBLISHED: &str = "203.0.113.70";
/// In the pool: nobody's.
const UNUSED: &str = "203.0.113.66";

fn config(scheme: &str) -> String {
    format!(
        r#"
runtimes = 2

[[port]]
name = "lan"
side = "inside"
input = "{scheme}:left"
output = "{scheme}:left"

[[port]]
name = "wan"
side = "outside"
input = "{scheme}:right"
output = "{scheme}:right"

[[chain]]
name = "six"
functions = ["firewall", "load_balancer", "forward"]
match = {{ source = ["::/0"] }}

[[chain]]
name = "four"
functions = ["firewall", "nat", "load_balancer", "forward"]

[[function.firewall.rules]]
name = "out"
from = "inside"
action = "allow"

[[function.firewall.rules]]
name = "published"
from = "outside"
protocol = "tcp"
destination_ports = [8080]
action = "allow"

[[function.firewall.rules]]
name = "refused politely"
from = "outside"
protocol = "tcp"
destination_ports = [81]
action = "reject"

[[function.load_balancer.services]]
name = "web6"
addresses = ["{VIRTUAL_V6}"]
ports = 80
protocol = "tcp"
backends = [{{ name = "six", endpoint = "[{SERVER_V6}]:80" }}]

[function.nat]
pool = ["203.0.113.64/29"]
static = [{{ inside = "10.0.1.1:8080", outside = "{PUBLISHED}:8080", protocol = "tcp" }}]

[[function.load_balancer.services]]
name = "web"
addresses = ["{VIRTUAL}"]
ports = 80
protocol = "tcp"
policy = "round_robin"
backends = [
    {{ name = "one", endpoint = "203.0.113.11:80" }},
    {{ name = "two", endpoint = "203.0.113.12:80" }},
]
"#
    )
}

/// What clients have tried, and what went wrong.
#[derive(Default)]
struct Log {
    attempts: u32,
    failures: Vec<String>,
}

impl Log {
    fn expect(&mut self, client: &str, good: bool, said: impl std::fmt::Display) {
        self.attempts += 1;
        println!("{} {client}", if good { "good" } else { "BAD " });
        if !good {
            self.failures.push(format!("{client}: {said}"));
        }
    }

    fn end(self) {
        assert!(self.attempts > 0, "nothing was tried");
        assert!(
            self.failures.is_empty(),
            "{} of {} failed:\n{}",
            self.failures.len(),
            self.attempts,
            self.failures.join("\n")
        );
    }
}

/// What a program said, whether it failed or not.
fn said(host: &Namespace, words: &str) -> String {
    match host.finish(words, Run::within(PATIENCE)) {
        Ok(ended) => format!("{}{}", ended.out, ended.err),
        Err(error) => error.to_string(),
    }
}

fn addresses(network: &Network, far: &Namespace) {
    let (client, gateway, server) = (&network.client, &network.gateway, &network.server);
    for (host, interface, address) in [
        (client, "eth0", "10.0.1.1/24"),
        (client, "eth0", "2001:db8:1::1/64"),
        (gateway, "left", "10.0.1.254/24"),
        (gateway, "left", "2001:db8:1::fe/64"),
        (gateway, "right", "203.0.113.254/24"),
        (gateway, "right", "2001:db8:2::fe/64"),
        (server, "eth0", "203.0.113.1/24"),
        (server, "eth0", "203.0.113.11/24"),
        (server, "eth0", "203.0.113.12/24"),
        (server, "eth0", "2001:db8:2::1/64"),
        (server, "far0", "198.51.100.1/24"),
        (far, "eth0", "198.51.100.9/24"),
    ] {
        host.address(interface, address).unwrap();
    }
    client.ip("route add default via 10.0.1.254").unwrap();
    client.ip("-6 route add default via 2001:db8:1::fe").unwrap();
    gateway.ip("route add default via 203.0.113.1").unwrap();
    server.ip("route add 10.0.1.0/24 via 203.0.113.254").unwrap();
    server
        .ip("-6 route add 2001:db8:1::/64 via 2001:db8:2::fe")
        .unwrap();
    far.ip("route add default via 198.51.100.1").unwrap();
    server.set("net.ipv4.ip_forward", "1").unwrap();
    server.ip("link set far0 mtu 1400").unwrap();
}

/// The cluster in the gateway, answering.
fn start(network: &Network, scheme: &str) -> (Process, String) {
    let file = network.folder.path("chain.toml");
    fs::write(&file, config(scheme)).unwrap();
    let flowkeep = env!("CARGO_BIN_EXE_flowkeep");
    let socket = network.folder.path("socket");
    let words = format!("{flowkeep} run {file} --json --for 5m --socket {socket}");
    let mut cluster = network.gateway.start(&words).unwrap();
    let status = format!("{flowkeep} status --json --socket {socket}");
    let began = std::time::Instant::now();
    while network.gateway.run(&status, Run::within(PATIENCE)).is_err() {
        assert!(
            began.elapsed() < PATIENCE && cluster.ended().unwrap().is_none(),
            "{:?}",
            cluster.printed()
        );
    }
    (cluster, status)
}

fn the_chain(scheme: &str) {
    let Some((mut network, far)) = network_with(PROGRAMS, |lab, network| {
        let far = lab.namespace("far")?;
        lab.cable((&network.server, "far0"), (&far, "eth0"))?;
        Ok(far)
    }) else {
        return;
    };
    addresses(&network, &far);
    let content = network.content("file", 200_000);
    for (name, listen) in [
        ("one", "203.0.113.11:80"),
        ("two", "203.0.113.12:80"),
        ("six", &format!("[{SERVER_V6}]:80")),
    ] {
        let server = network.server.clone();
        network.nginx(&server, name, listen);
    }
    let client = network.client.clone();
    network.nginx(&client, "published", "10.0.1.1:8080");
    network.serve_iperf3();
    let iperf3 = far.start("iperf3 --server --forceflush").unwrap();
    network.servers.push(iperf3);
    let dnsmasq = network.server.start(&format!(
        "dnsmasq --no-daemon --no-resolv --no-hosts --conf-file=/dev/null --user=root --bind-interfaces \
         --listen-address={SERVER} --address=/example.test/192.0.2.7"
    ));
    network.servers.push(dnsmasq.unwrap());
    let (cluster, status) = start(&network, scheme);

    let mut log = Log::default();
    pings(&network, &mut log);
    downloads(&network, &content, &mut log);
    paths(&network, &mut log);
    streams(&network, &mut log);
    names(&network, &mut log);
    outside(&network, &mut log);

    let figures = said(&network.gateway, &status);
    let ended = cluster.stop().unwrap();
    println!("{}", ended.err);
    let report: Value = serde_json::from_str(ended.out.lines().last().expect("a report")).unwrap();
    let packets = &report["packets"];
    println!("{packets}");
    let number = |value: &Value| value.as_u64().unwrap();
    let dropped: u64 = packets["dropped"].as_object().unwrap().values().map(number).sum();
    let (came, went) = (
        number(&packets["in"]) + number(&packets["made"]),
        number(&packets["out"]) + dropped + number(&packets["held"]),
    );
    log.expect("accounts", came == went, &report);
    log.expect("graceful end", ended.status.success(), format!("{ended:?}"));
    for (port, whose) in [
        (0, "the virtual address in the clients' network"),
        (1, "the pool's addresses"),
    ] {
        let answered = number(&report["ports"][port]["answered_packets"]);
        log.expect(&format!("requests for {whose} answered"), answered > 0, &figures);
    }
    log.end();
}

fn pings(network: &Network, log: &mut Log) {
    for address in [SERVER, SERVER_V6, FAR, "10.0.1.254", "2001:db8:1::fe"] {
        let out = said(&network.client, &format!("ping -n -c 10 -i 0.05 -W 5 {address}"));
        log.expect(&format!("ping {address}"), out.contains("10 received"), out);
    }
}

/// So many downloads at a time, each compared with what it should be; both servers must have had some.
fn downloads(network: &Network, content: &[u8], log: &mut Log) {
    for (count, host, servers) in [
        (20, VIRTUAL, 2),
        (200, VIRTUAL, 2),
        (20, "[2001:db8:2::1]", 1),
        (20, "[2001:db8:1::80]", 1),
    ] {
        let file = |number: u32| network.folder.path(&format!("got-{number}"));
        let out = said(
            &network.client,
            &format!(
                "curl --silent --show-error --fail --parallel --parallel-immediate --parallel-max 200 --max-time 50 \
                 --write-out %{{http_code}}/%{{header_json}}\\n --output {} http://{}/file?[1-{count}]",
                network.folder.path("got-#1"),
                host.replace('[', "\\[").replace(']', "\\]"),
            ),
        );
        let mut served = std::collections::BTreeSet::new();
        for name in ["one", "two", "six"] {
            if out.contains(&format!("\"{name}\"")) {
                served.insert(name);
            }
        }
        for number in 1..=count {
            let got = fs::read(file(number)).unwrap_or_default();
            let good = got == content;
            let _ = fs::remove_file(file(number));
            if !good || number == count {
                let problem = format!("{} of {} bytes, or others", got.len(), content.len());
                log.expect(
                    &format!("download {number} of {count} from {host}"),
                    good,
                    problem,
                );
            }
        }
        log.expect(
            &format!("servers of {count} downloads"),
            served.len() == servers,
            out,
        );
    }
}

/// Every hop answers, and the path's MTU is found.
fn paths(network: &Network, log: &mut Log) {
    for how in ["", "-I", "-T -p 5201"] {
        let out = said(
            &network.client,
            &format!("traceroute -n -q 1 -w 5 -m 6 {how} {FAR}"),
        );
        let hops: Vec<&str> = out
            .lines()
            .skip(1)
            .filter_map(|line| line.split_whitespace().nth(1))
            .collect();
        log.expect(
            &format!("traceroute {how}"),
            hops == ["10.0.1.254", SERVER, FAR],
            out,
        );
    }
    let out = said(
        &network.client,
        &format!("traceroute -6 -n -q 1 -w 5 -m 6 {SERVER_V6}"),
    );
    log.expect(
        "traceroute -6",
        out.contains("2001:db8:1::fe") && out.contains(&format!("2  {SERVER_V6}")),
        out,
    );
    let out = said(
        &network.client,
        &format!("ping -n -c 2 -i 0.2 -W 5 -M do -s 1472 {FAR}"),
    );
    log.expect(
        "the path's MTU is said",
        out.contains("mtu = 1400") || out.contains("mtu=1400"),
        out,
    );
    let out = said(
        &network.client,
        &format!("ping -n -c 2 -i 0.2 -W 5 -M do -s 1372 {FAR}"),
    );
    log.expect("what fits passes", out.contains("2 received"), out);
}

fn streams(network: &Network, log: &mut Log) {
    for (host, how) in [(SERVER, ""), (SERVER, "--reverse"), (FAR, ""), (SERVER_V6, "")] {
        // It is idle for a moment after each measurement, and busy before.
        let end = network.iperf3(&format!("{host} --time 2 {how}"));
        let bytes = end["sum_received"]["bytes"].as_u64().unwrap_or(0);
        println!("TCP {host} {how}: {} Mbit/s", bytes * 4 / 1_000_000);
        log.expect(&format!("iperf3 {host} {how}"), bytes > 1_000_000, end);
    }
    for how in ["", "--reverse"] {
        let before = network.udp_overflows();
        let end = network.iperf3(&format!("{SERVER} --udp --bitrate 5M --time 2 {how}"));
        let number = |name: &str| end["sum"][name].as_u64().unwrap_or(0);
        let (lost, packets) = (number("lost_packets"), number("packets"));
        // A receiver that had no processor for a while has lost datagrams by itself.
        let lost = lost.saturating_sub(network.udp_overflows() - before);
        println!("UDP {how}: {lost} of {packets} lost");
        log.expect(
            &format!("iperf3 --udp {how}"),
            packets > 500 && lost * 100 < packets,
            end,
        );
    }
}

fn names(network: &Network, log: &mut Log) {
    let queries = network.folder.path("queries");
    fs::write(&queries, "a.example.test A\nb.example.test A\n").unwrap();
    let words = format!("dnsperf -s {SERVER} -d {queries} -l 3 -Q 300 -c 8 -t 5");
    let out = said(&network.client, &words);
    let number = |name: &str| -> Option<u64> {
        let line = out.lines().find(|line| line.trim_start().starts_with(name))?;
        line.split(':').nth(1)?.split_whitespace().next()?.parse().ok()
    };
    let (sent, lost) = (number("Queries sent").unwrap_or(0), number("Queries lost"));
    println!("DNS: {sent} queries");
    log.expect(
        "dnsperf",
        sent > 300 && lost == Some(0) && out.contains("NOERROR"),
        &out,
    );
}

/// What is let in is let in; what is not, is not.
fn outside(network: &Network, log: &mut Log) {
    let out = said(
        &network.server,
        &format!(
            "curl --silent --show-error --fail --max-time 10 --output /dev/null --write-out %{{http_code}} http://{PUBLISHED}:8080/file"
        ),
    );
    log.expect("a published port", out == "200", out);
    for address in ["10.0.1.1", UNUSED] {
        let out = said(&network.server, &format!("ping -n -c 3 -i 0.2 -W 1 {address}"));
        log.expect(
            &format!("unsolicited ping {address}"),
            out.contains(" 0 received"),
            out,
        );
    }
    let out = said(
        &network.server,
        "curl --silent --show-error --max-time 3 http://10.0.1.1:9090/",
    );
    log.expect("unsolicited connection", out.contains("timed out"), out);
    let out = said(
        &network.server,
        &format!("nmap -n -Pn -sS --max-retries 3 -p 22,80,81,8080 -oG - {PUBLISHED}"),
    );
    for port in ["22/filtered", "80/filtered", "81/closed", "8080/open"] {
        log.expect(&format!("nmap sees {port}"), out.contains(port), &out);
    }
}

#[test]
fn over_packet_sockets() {
    the_chain("afpacket");
}

#[test]
fn over_xdp() {
    the_chain("afxdp");
}
