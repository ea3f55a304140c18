//! The path's MTU where it is Flowkeep that finds a packet too long, and fragments, both ways, over
//! IPv4 and IPv6.
//!
//! ```text
//!   client ═══ 1500 ═══ left gateway right ═══ 1300 ═══ server ═══ 1500 ═══ far
//! ```
//!
//! Client and far believe in 1500 to begin with. The gateway refuses packets of the client's that
//! are too long ("fragmentation needed", "packet too big"), or divides them if IPv4 lets it; the
//! server refuses those of far. A TCP connection between them passes only if both learn.

use crate::network::PATIENCE;
use crate::site::{FAR, FAR_V6, Site, said, site};

const PROGRAMS: &[(&str, &str)] = &[("ping", "iputils-ping"), ("iperf3", "iperf3")];

const CONFIG: &str = r#"
[[function.firewall.rules]]
name = "ping from outside, over IPv6"
from = "outside"
protocol = "icmpv6"
icmp_type = ["echo-request"]
action = "allow"
"#;

fn packets_of_all_lengths(scheme: &'static str) {
    let Some(mut site) = site(scheme, PROGRAMS) else {
        return;
    };
    for (host, words) in [
        (&site.network.gateway, "link set right mtu 1300"),
        (&site.network.server, "link set eth0 mtu 1300"),
        (&site.network.server, "link set far0 mtu 1500"),
    ] {
        host.ip(words).unwrap();
    }
    let mut iperf3 = site.far.start("iperf3 --server --forceflush").unwrap();
    iperf3.wait_for("Server listening", PATIENCE).unwrap();
    site.network.servers.push(iperf3);
    site.start(CONFIG);

    streams(&mut site);
    forget(&site);
    answers(&mut site);
    fragments(&mut site);
    datagrams(&mut site);
    site.end();
}

/// Client and far forget the paths that they have learnt.
fn forget(site: &Site) {
    for host in [&site.network.client, &site.far] {
        host.ip("route flush cache").unwrap();
        host.ip("-6 route flush cache").unwrap();
    }
}

/// Whether the client knows the path's MTU.
fn learnt(site: &Site, address: &str) -> bool {
    let words = format!("ip route get {address}");
    said(&site.network.client, &words).contains("mtu 1300")
}

/// Segments as long as both ends may make them: nothing passes before the path's MTU is found.
fn streams(site: &mut Site) {
    for host in [FAR, FAR_V6] {
        for how in ["", "--reverse"] {
            forget(site);
            let end = site.network.iperf3(&format!("{host} --time 2 {how}"));
            let bytes = end["sum_received"]["bytes"].as_u64().unwrap_or(0);
            println!("TCP {host} {how}: {} Mbit/s", bytes * 4 / 1_000_000);
            site.log
                .expect(&format!("iperf3 {host} {how}"), bytes > 100_000, end);
            if how.is_empty() {
                let known = learnt(site, host);
                site.log
                    .expect(&format!("the path's MTU to {host}"), known, known);
            }
        }
    }
}

/// The gateway's answer to a packet that must not be divided.
fn answers(site: &mut Site) {
    for (host, too_long, fits, by, says) in [
        (FAR, 1472, 1272, "10.0.1.254", "mtu = 1300"),
        (FAR_V6, 1452, 1252, "2001:db8:1::fe", "mtu=1300"),
    ] {
        let ping = |size: u32| {
            let words = format!("ping -n -c 2 -i 0.5 -W 5 -M do -s {size} {host}");
            said(&site.network.client, &words)
        };
        let out = ping(too_long);
        // IPv6: "From … icmp_seq=1 Packet too big: mtu=1300". IPv4: "From … icmp_seq=1 Frag needed
        // and DF set (mtu = 1300)".
        let good = out.contains(&format!("From {by}")) && out.to_lowercase().contains(says);
        let fitting = ping(fits);
        site.log
            .expect(&format!("the gateway says the MTU to {host}"), good, out);
        let good = fitting.contains("2 received");
        site.log
            .expect(&format!("what fits reaches {host}"), good, fitting);
    }
    forget(site);
    // IPv4 that may be divided on the way is, here, and arrives.
    let words = format!("ping -n -c 5 -i 0.5 -W 5 -M dont -s 1472 {FAR}");
    let out = said(&site.network.client, &words);
    site.log
        .expect("the gateway divides", out.contains("5 received"), out);
}

/// Echo requests in fragments, and their answers; from outside too, where a rule lets them in.
fn fragments(site: &mut Site) {
    for (from, host, size) in [
        (&site.network.client, FAR, 4000),
        (&site.network.client, FAR, 20_000),
        (&site.network.client, FAR_V6, 4000),
        (&site.network.client, FAR_V6, 20_000),
        (&site.far, "2001:db8:1::1", 4000),
    ] {
        // Over IPv6 the first request, and then its first answer, are lost: so their senders hear
        // of the MTU.
        said(from, &format!("ping -n -c 3 -i 0.2 -W 5 -s {size} {host}"));
        // All at once (-l): ping gives its socket room for as many as it may send ahead, and loses
        // none for want of a processor.
        let count = if size > 4000 { 10 } else { 20 };
        let words = format!("ping -n -c {count} -l {count} -W 5 -s {size} {host}");
        let out = said(from, &words);
        let good = out.contains(&format!("{count} received"));
        let why = if good { String::new() } else { site.circumstances() };
        site.log
            .expect(&format!("ping -s {size} to {host}"), good, format!("{out}{why}"));
    }
}

/// Datagrams of 8 kB, each way.
fn datagrams(site: &mut Site) {
    for host in [FAR, FAR_V6] {
        for how in ["", "--reverse"] {
            let words = format!("{host} --udp --length 8000 --bitrate 20M --time 2 {how}");
            site.datagrams(&words);
        }
    }
}

#[test]
fn mtu_over_packet_sockets() {
    packets_of_all_lengths("afpacket");
}

#[test]
fn mtu_over_xdp() {
    packets_of_all_lengths("afxdp");
}
