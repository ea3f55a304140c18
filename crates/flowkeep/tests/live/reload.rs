//! Another configuration while a hundred downloads run: downloads that it leaves alone do not
//! notice, those that are announced as cut are cut.
//!
//! ```text
//!   client ═════ left  gateway  right ═════ server
//!   10.0.1.1     .254  (flowkeep)  203.0.113.254    .11, .12, .13 nginx
//!   virtual address 192.0.2.80, NAT pool 203.0.113.64/30 and larger
//! ```

use crate::network::{Network, PATIENCE, network};
use lab::process::{Process, Run};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::time::{Duration, Instant};

const VIRTUAL: &str = "192.0.2.80";
const FILE: usize = 1_000_000;
const COUNT: usize = 100;

fn config(scheme: &str, rules: &str, pool: &str, servers: &[&str]) -> String {
    let backends: Vec<String> = servers
        .iter()
        .map(|last| format!("{{ name = \"server-{last}\", endpoint = \"203.0.113.{last}:80\" }}"))
        .collect();
    format!(
        r#"runtimes = 2
flows_max = 10000
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
name = "all"
functions = ["firewall", "nat", "load_balancer", "forward"]
[[function.firewall.rules]]
name = "web"
from = "inside"
protocol = "tcp"
destination_ports = [80]
action = "allow"
{rules}
[function.nat]
pool = ["{pool}"]
[[function.load_balancer.services]]
name = "web"
addresses = ["{VIRTUAL}"]
ports = 80
protocol = "tcp"
policy = "round_robin"
backends = [{}]
"#,
        backends.join(", ")
    )
}

/// Waits for the end of a hundred downloads: by local port, whether all of it came.
fn results(mut curl: Process) -> BTreeMap<u16, bool> {
    let began = Instant::now();
    while curl.ended().unwrap().is_none() {
        assert!(began.elapsed() < PATIENCE, "{:?}", curl.printed());
        std::thread::sleep(Duration::from_millis(50));
    }
    let (out, _) = curl.printed().unwrap();
    let line = |line: &str| {
        let mut parts = line.split('/');
        let port: u16 = parts.next()?.parse().ok()?;
        let (exit, size) = (parts.next()?, parts.next()?);
        Some((port, exit == "0" && size == FILE.to_string()))
    };
    out.lines().filter_map(line).collect()
}

fn under_downloads(scheme: &str) {
    let Some(mut network) = network(&[("curl", "curl"), ("nginx", "nginx-light")]) else {
        return;
    };
    let network: &mut Network = &mut network;
    for (host, interface, address) in [
        (&network.client, "eth0", "10.0.1.1/24"),
        (&network.gateway, "left", "10.0.1.254/24"),
        (&network.gateway, "right", "203.0.113.254/24"),
        (&network.server, "eth0", "203.0.113.11/24"),
        (&network.server, "eth0", "203.0.113.12/24"),
        (&network.server, "eth0", "203.0.113.13/24"),
    ] {
        host.address(interface, address).unwrap();
    }
    network.client.ip("route add default via 10.0.1.254").unwrap();
    network.content("file", FILE);
    let server = network.server.clone();
    for last in [11, 12, 13] {
        network.nginx(
            &server,
            &format!("server-{last}"),
            &format!("203.0.113.{last}:80"),
        );
    }
    let file = |name: &str, text: &str| {
        let path = network.folder.path(name);
        fs::write(&path, text).unwrap();
        path
    };
    // A client that has the rest of its file in its kernel already would not notice that its flow
    // is cut.
    let small = file("small", "echo 4096 16384 32768 >/proc/sys/net/ipv4/tcp_rmem");
    network.at_client(&format!("sh {small}"));
    let ssh = "[[function.firewall.rules]]\nname = \"ssh\"\nfrom = \"inside\"\ndestination_ports = [22]\naction = \"allow\"\n";
    let first = file(
        "first.toml",
        &config(scheme, "", "203.0.113.64/30", &["11", "12"]),
    );
    let more = file(
        "more.toml",
        &config(scheme, ssh, "203.0.113.64/29", &["11", "12", "13"]),
    );
    let fewer = file(
        "fewer.toml",
        &config(scheme, ssh, "203.0.113.64/29", &["11", "13"]),
    );
    let wrong = file(
        "wrong.toml",
        &config(scheme, ssh, "203.0.113.64/29", &["11", "13"]).replace("round_robin", "round_robbin"),
    );
    let socket = network.folder.path("socket");
    let flowkeep = env!("CARGO_BIN_EXE_flowkeep");
    let cluster = network
        .gateway
        .start(&format!(
            "{flowkeep} run {first} --json --for 5m --socket {socket}"
        ))
        .unwrap();
    let began = Instant::now();
    while network
        .gateway
        .run(
            &format!("{flowkeep} status --socket {socket}"),
            Run::within(PATIENCE),
        )
        .is_err()
    {
        assert!(began.elapsed() < PATIENCE);
    }
    let tool = |words: &str| -> (i32, Value, String) {
        let words = format!("{flowkeep} chain {words} --json --socket {socket}");
        let ended = network.gateway.finish(&words, Run::within(PATIENCE)).unwrap();
        let said = serde_json::from_str(&ended.out).unwrap_or(Value::Null);
        (
            ended.status.code().unwrap_or(-1),
            said,
            format!("{}{}", ended.out, ended.err),
        )
    };
    // Local ports of connections that are open, in the client's own words: state 01, to port 80.
    let open = || -> Vec<String> {
        let sockets = network
            .client
            .run("cat /proc/net/tcp", Run::within(PATIENCE))
            .unwrap();
        let port = |line: &str| {
            let fields: Vec<&str> = line.split_whitespace().collect();
            let is_open = fields.get(2)?.ends_with(":0050") && *fields.get(3)? == "01";
            is_open.then(|| fields[1].to_owned())
        };
        sockets.lines().filter_map(port).collect()
    };
    // Begins them, and waits until all are open: a connection that is cut before would open again,
    // and not notice.
    let downloads = |name: &str| {
        let (mut seen, began) = (BTreeSet::new(), Instant::now());
        let words = format!(
            "curl --silent --fail --parallel --parallel-immediate --parallel-max {COUNT} --max-time 50 --limit-rate 100k \
             --write-out %{{local_port}}/%{{exitcode}}/%{{size_download}}/\\n --output {} http://{VIRTUAL}/file?[1-{COUNT}]",
            network.folder.path(&format!("{name}-#1"))
        );
        let curl = network.client.start(&words).unwrap();
        while seen.len() < COUNT {
            assert!(began.elapsed() < PATIENCE, "{seen:?}");
            seen.extend(open());
        }
        curl
    };

    // Changes that cut no flow: a rule, a server and addresses more, and all of it taken back, ten
    // times over.
    let curl = downloads("more");
    for round in 0..10 {
        let (code, said, text) = tool(&format!("apply {more}"));
        assert_eq!(
            (code, &said["receipt"]["flows_cut"]),
            (0, &Value::from(0)),
            "{round}: {text}"
        );
        assert!(
            said["receipt"]["flows_kept"].as_u64().unwrap() >= COUNT as u64,
            "{text}"
        );
        // The way back takes away things that no flow has yet, so it cuts none either.
        let (code, said, text) = tool("rollback");
        assert_eq!(
            (code, &said["receipt"]["flows_cut"]),
            (0, &Value::from(0)),
            "{round}: {text}"
        );
    }
    let (code, _, text) = tool(&format!("apply {wrong}"));
    assert!(code == 2 && text.contains("write"), "{code}: {text}");
    let all = results(curl);
    let failed: Vec<_> = all.iter().filter(|(_, good)| !**good).collect();
    assert_eq!((all.len(), failed.len()), (COUNT, 0), "{failed:?}");

    // Changes that cut flows: exactly the announced ones.
    let curl = downloads("fewer");
    let (code, _, text) = tool(&format!("apply {more}"));
    assert_eq!(code, 0, "{text}");
    let (code, said, text) = tool(&format!("diff {fewer}"));
    assert_eq!(code, 3, "{text}");
    let port_of = |flow: &Value| -> u16 {
        let source = flow["source"].as_str().unwrap();
        assert!(source.starts_with("10.0.1.1:"), "{source}");
        source.rsplit(':').next().unwrap().parse().unwrap()
    };
    let announced: Vec<u16> = said["listed"].as_array().unwrap().iter().map(port_of).collect();
    assert_eq!(said["cut_by"][0]["reason"], "backend_gone", "{text}");
    let (code, _, text) = tool(&format!("apply {fewer}"));
    assert!(code == 3 && text.contains("refused_to_cut"), "{code}: {text}");
    let (code, said, text) = tool(&format!("apply {fewer} --cut"));
    assert_eq!(code, 0, "{text}");
    let cut = said["receipt"]["flows_cut"].as_u64().unwrap();
    let all = results(curl);
    let failed: Vec<u16> = all
        .iter()
        .filter(|(_, good)| !**good)
        .map(|(port, _)| *port)
        .collect();
    println!(
        "{} downloads, {cut} flows cut, {} failed",
        all.len(),
        failed.len()
    );
    assert_eq!(all.len(), COUNT);
    assert!(failed.len() >= COUNT / 4, "{failed:?}");
    assert!(
        failed.iter().all(|port| announced.contains(port)),
        "{failed:?} but {announced:?}"
    );
    // An announced one may have ended by itself meanwhile, or be of the first hundred, closing.
    let live: Vec<u16> = announced
        .iter()
        .copied()
        .filter(|port| all.contains_key(port))
        .collect();
    assert_eq!(live.len(), failed.len(), "{failed:?} but {announced:?}");

    let status = format!("{flowkeep} status --json --socket {socket}");
    let status = network.gateway.run(&status, Run::within(PATIENCE)).unwrap();
    let status: Value = serde_json::from_str(&status).unwrap();
    assert_eq!(status["generation"], 23, "{status}");
    let ended = cluster.stop().unwrap();
    assert!(ended.status.success(), "{ended:?}");
    let report: Value = serde_json::from_str(ended.out.lines().last().expect("a report")).unwrap();
    let packets = &report["packets"];
    println!("{packets}");
    let number = |value: &Value| value.as_u64().unwrap();
    let dropped: u64 = packets["dropped"].as_object().unwrap().values().map(number).sum();
    assert_eq!(
        number(&packets["in"]) + number(&packets["made"]),
        number(&packets["out"]) + dropped + number(&packets["held"])
    );
}

#[test]
fn reload_under_downloads_over_packet_sockets() {
    under_downloads("afpacket");
}

#[test]
fn reload_under_downloads_over_xdp() {
    under_downloads("afxdp");
}
