//! IPv6 through all that is not NAT: names, datagrams, every hop, a virtual address, and
//! connections that are not let in.
//!
//! Files over IPv6 are in `ssh` and `ftp`, the path's MTU and fragments in `mtu`.

use crate::network::PATIENCE;
use crate::site::{FAR_V6, SERVER_V6, Site, VIRTUAL_V6, said, site};
use lab::process::Run;

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

const CONFIG: &str = r#"
[[function.load_balancer.services]]
name = "names6"
addresses = ["2001:db8:1::80"]
ports = 53
protocol = "udp"
backends = [{ name = "names", endpoint = "[2001:db8:2::1]:53" }]
"#;

fn everything(scheme: &'static str) {
    let Some(mut site) = site(scheme, PROGRAMS) else {
        return;
    };
    let network = &mut site.network;
    let content = network.serve_file("file", 500_000);
    network.serve_iperf3();
    network.serve_names(SERVER_V6);
    let client = network.client.clone();
    network.nginx(&client, "published", "[2001:db8:1::1]:8080");
    let iperf3 = site.far.start("iperf3 --server --forceflush").unwrap();
    site.network.servers.push(iperf3);
    site.start(CONFIG);

    for address in [SERVER_V6, FAR_V6, "2001:db8:1::fe"] {
        let out = said(
            &site.network.client,
            &format!("ping -6 -n -c 10 -l 10 -S 200000 -i 5 -W 5 {address}"),
        );
        site.log
            .expect(&format!("ping {address}"), out.contains("10 received"), out);
    }
    for address in [SERVER_V6, VIRTUAL_V6] {
        site.log.names(&site.network, address);
        download(&mut site, address, &content);
    }
    datagrams(&mut site);
    hops(&mut site);
    outside(&mut site);
    site.end();
}

fn download(site: &mut Site, address: &str, content: &[u8]) {
    let got = site.network.folder.path("got");
    let end = site.client(&format!(
        "curl --silent --show-error --fail --globoff --max-time 50 --output {got} http://[{address}]/file"
    ));
    let same = std::fs::read(&got).is_ok_and(|got| got == content);
    site.log.expect(
        &format!("download from {address}"),
        end.0 == Some(0) && same,
        format!("{end:?}"),
    );
}

fn datagrams(site: &mut Site) {
    for host in [SERVER_V6, FAR_V6] {
        for how in ["", "--reverse"] {
            // FAR's way has an MTU of 1400.
            let words = format!("{host} -6 --udp --length 1200 --bitrate 5M --time 2 {how}");
            site.datagrams(&words);
        }
    }
}

/// Every hop answers, by each kind of probe.
fn hops(site: &mut Site) {
    for how in ["", "-I", "-T -p 5201"] {
        let words = format!("traceroute -6 -n -q 1 -w 5 -m 6 {how} {FAR_V6}");
        let out = said(&site.network.client, &words);
        let hops: Vec<&str> = out
            .lines()
            .skip(1)
            .filter_map(|line| line.split_whitespace().nth(1))
            .collect();
        let good = hops == ["2001:db8:1::fe", SERVER_V6, FAR_V6];
        site.log.expect(&format!("traceroute -6 {how}"), good, out);
    }
}

/// The firewall's rules hold for IPv6, where the clients' addresses are no secret.
fn outside(site: &mut Site) {
    let server = &site.network.server;
    let out = said(server, "ping -6 -n -c 3 -i 0.2 -W 1 2001:db8:1::1");
    site.log
        .expect("unsolicited ping", out.contains(" 0 received"), out);
    let words = "nmap -6 -n -Pn -sS --max-retries 3 -p 22,80,81,8080 -oG - 2001:db8:1::1";
    let out = server
        .run(words, Run::within(PATIENCE))
        .unwrap_or_else(|error| error.to_string());
    for port in ["22/filtered", "80/filtered", "81/closed", "8080/open"] {
        site.log
            .expect(&format!("nmap sees {port}"), out.contains(port), &out);
    }
    let out = said(
        server,
        "curl --silent --show-error --fail --globoff --max-time 10 --output /dev/null --write-out %{http_code} \
         http://[2001:db8:1::1]:8080/file",
    );
    site.log.expect("a published port", out == "200", out);
}

#[test]
fn ipv6_over_packet_sockets() {
    everything("afpacket");
}

#[test]
fn ipv6_over_xdp() {
    everything("afxdp");
}
