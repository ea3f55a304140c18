//! The chain between real clients and real servers: curl, iperf3, ping, traceroute, dnsperf; and
//! connections that are not let in.
//!
//! The hosts and their addresses are in [`crate::site`].

use crate::log::Log;
use crate::network::Network;
use crate::site::{FAR, PUBLISHED, SERVER, SERVER_V6, VIRTUAL, said, site};
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

/// In the pool; no flow has it.
const UNUSED: &str = "203.0.113.66";

fn the_chain(scheme: &'static str) {
    let Some(mut site) = site(scheme, PROGRAMS) else {
        return;
    };
    let network = &mut site.network;
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
    let iperf3 = site.far.start("iperf3 --server --forceflush").unwrap();
    network.servers.push(iperf3);
    network.serve_names(SERVER);
    site.start("");

    let (network, log) = (&site.network, &site.log);
    pings(network, log);
    downloads(network, &content, log);
    paths(network, log);
    streams(network, log);
    log.names(network, SERVER);
    outside(network, log);
    for how in ["", "--reverse"] {
        site.datagrams(&format!("{SERVER} --udp --bitrate 5M --time 2 {how}"));
    }

    let [inside, outside] = site.answered();
    for (answered, whose) in [
        (inside, "the virtual address in the clients' network"),
        (outside, "the pool's addresses"),
    ] {
        let what = format!("requests for {whose} answered");
        site.log.expect(&what, answered > 0, answered);
    }
    site.end();
}

fn pings(network: &Network, log: &Log) {
    for address in [SERVER, SERVER_V6, FAR, "10.0.1.254", "2001:db8:1::fe"] {
        let out = said(
            &network.client,
            &format!("ping -n -c 10 -l 10 -S 200000 -i 5 -W 5 {address}"),
        );
        log.expect(&format!("ping {address}"), out.contains("10 received"), out);
    }
}

/// So many downloads at a time, each compared with the served file; both servers must have had
/// some.
fn downloads(network: &Network, content: &[u8], log: &Log) {
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
fn paths(network: &Network, log: &Log) {
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
        &format!("ping -n -c 2 -l 2 -S 200000 -i 5 -W 5 -M do -s 1372 {FAR}"),
    );
    log.expect("what fits passes", out.contains("2 received"), out);
}

fn streams(network: &Network, log: &Log) {
    for (host, how) in [(SERVER, ""), (SERVER, "--reverse"), (FAR, ""), (SERVER_V6, "")] {
        // The server is idle for a moment after each measurement, and busy before.
        let end = network.iperf3(&format!("{host} --time 2 {how}"));
        let bytes = end["sum_received"]["bytes"].as_u64().unwrap_or(0);
        println!("TCP {host} {how}: {} Mbit/s", bytes * 4 / 1_000_000);
        log.expect(&format!("iperf3 {host} {how}"), bytes > 1_000_000, end);
    }
}

/// Allowed packets come in; others do not.
fn outside(network: &Network, log: &Log) {
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
