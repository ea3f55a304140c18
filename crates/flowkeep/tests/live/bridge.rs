//! The least that can stand between two ports, `flowkeep port bridge`, between a real client and a
//! real server.

use crate::network::{Network, network};
use serde_json::Value;

const PROGRAMS: &[(&str, &str)] = &[
    ("ping", "iputils-ping"),
    ("curl", "curl"),
    ("nginx", "nginx-light"),
    ("iperf3", "iperf3"),
    ("ethtool", "ethtool"),
];

/// Bytes of the file that is downloaded.
const FILE: usize = 20_000_000;

/// A port's counter, by the tool's report.
fn count(report: &Value, port: usize, name: &str) -> u64 {
    report["ports"][port][name]
        .as_u64()
        .unwrap_or_else(|| panic!("{name} in {report}"))
}

/// Ping, downloads and iperf3 over a bridge of these two ports.
fn passes(network: &mut Network, one: &str, other: &str) {
    network.one_network();
    let words = format!("port bridge {one} {other} --json --for 3m");
    let bridge = network.flowkeep(&words, "bridging ");
    for address in ["10.0.0.2", "2001:db8::2"] {
        network.ping(address, 20, 56);
        network.ping(address, 5, 1400);
    }
    // In fragments.
    network.ping("10.0.0.2", 5, 4000);
    let content = network.serve_file("file", FILE);
    network.download("http://10.0.0.2/file", &content);
    network.download("http://[2001:db8::2]/file", &content);
    network.serve_iperf3();
    for direction in ["", "--reverse"] {
        for address in ["10.0.0.2", "2001:db8::2"] {
            let end = network.iperf3(&format!("{address} --time 1 {direction}"));
            let bytes = end["sum_received"]["bytes"].as_u64().unwrap();
            println!("TCP {address} {direction}: {} Mbit/s", bytes * 8 / 1_000_000);
            assert!(bytes > 1_000_000, "{end}");
        }
        let overflowed = network.udp_overflows();
        let end = network.iperf3(&format!("10.0.0.2 --udp --bitrate 10M --time 1 {direction}"));
        let number = |name: &str| end["sum"][name].as_u64().unwrap();
        let (lost, packets) = (number("lost_packets"), number("packets"));
        // A receiver that had no processor for a while has lost datagrams by itself.
        let by_receiver = network.udp_overflows() - overflowed;
        println!("UDP {direction}: {lost} of {packets} lost, {by_receiver} of them by the receiver");
        assert!(packets > 500, "{end}");
        assert!(lost.saturating_sub(by_receiver) * 100 < packets, "{end}");
    }
    let ended = bridge.stop().unwrap();
    println!("{}{}", ended.out, ended.err);
    assert!(ended.status.success(), "{ended:?}");
    let report: Value = serde_json::from_str(ended.out.lines().last().expect("a report")).unwrap();
    for (from, to) in [(0, 1), (1, 0)] {
        let received = count(&report, from, "received_packets");
        assert!(received > 1000, "{report}");
        let went = count(&report, to, "sent_packets") + count(&report, to, "unsent_packets");
        assert_eq!(received, went, "{report}");
        assert_eq!(count(&report, from, "refused_packets"), 0, "{report}");
    }
}

#[test]
fn packet_sockets_with_all_offloads_of_client_and_server() {
    let Some(mut network) = network(PROGRAMS) else {
        return;
    };
    passes(
        &mut network,
        "afpacket:left?take=everything",
        "afpacket:right?take=everything",
    );
}

/// AF_XDP, whose buffers hold no super-frames. A native program has veth's other end cut them by
/// itself.
#[test]
fn xdp_in_the_driver_between_client_and_server() {
    let Some(mut network) = network(PROGRAMS) else {
        return;
    };
    passes(
        &mut network,
        "afxdp:left?take=everything&mode=native",
        "afxdp:right?take=everything&mode=native",
    );
}

/// A generic program sees packets as the other end's stack hands them over: that end is told to cut
/// them.
#[test]
fn xdp_before_the_stack_between_client_and_server() {
    let Some(mut network) = network(PROGRAMS) else {
        return;
    };
    for host in [&network.client, &network.server] {
        host.offloads("eth0", "tso off gso off").unwrap();
    }
    passes(
        &mut network,
        "afxdp:left?take=everything&mode=generic",
        "afxdp:right?take=everything&mode=generic",
    );
}

/// From the one kind of port to the other: a packet of one pool, two ways of receiving and sending.
#[test]
fn xdp_on_one_side_and_packet_sockets_on_the_other() {
    let Some(mut network) = network(PROGRAMS) else {
        return;
    };
    passes(
        &mut network,
        "afxdp:left?take=everything",
        "afpacket:right?take=everything",
    );
}
