//! A whole cluster over live ports: it comes up, counts what it is sent, and ends with everything accounted for.

use crate::network::{PATIENCE, network};
use flowkeep::lab::process::Run;
use serde_json::Value;
use std::fs;

/// A firewall between the two ports that lets everything pass. What it sends is addressed to the gateway still, so that nobody
/// takes it: what is looked at is what goes in and out.
fn config(one: &str, other: &str) -> String {
    format!(
        "runtimes = 2\nswitches = 2\n\
         [[port]]\nname = \"left\"\nside = \"inside\"\ninput = \"{one}\"\noutput = \"{one}\"\n\
         [[port]]\nname = \"right\"\nside = \"outside\"\ninput = \"{other}\"\noutput = \"{other}\"\n\
         [[chain]]\nname = \"all\"\nfunctions = [\"firewall\"]\n\
         [[function.firewall.rules]]\nname = \"all\"\naction = \"allow\"\n"
    )
}

/// Ticks of processor time that a process has had, and how many are a second.
fn ticks(process: u32) -> (u64, u64) {
    let stat = fs::read_to_string(format!("/proc/{process}/stat")).unwrap();
    let behind = &stat[stat.rfind(')').unwrap() + 1..];
    let fields: Vec<&str> = behind.split_whitespace().collect();
    // User and system time are the fields 14 and 15; the first here is the third.
    let time = |field: usize| fields[field - 3].parse::<u64>().unwrap();
    (time(14) + time(15), 100)
}

/// Without packets it sleeps, and wakes when there are some.
fn an_idle_cluster_sleeps(one: &str, other: &str) {
    let Some(network) = network(&[("ping", "iputils-ping")]) else {
        return;
    };
    for (host, interface, address) in [
        (&network.client, "eth0", "10.0.1.1/24"),
        (&network.gateway, "left", "10.0.1.254/24"),
        (&network.gateway, "right", "10.0.2.254/24"),
        (&network.server, "eth0", "10.0.2.1/24"),
    ] {
        host.address(interface, address).unwrap();
    }
    network.client.ip("route add default via 10.0.1.254").unwrap();
    network.server.ip("route add default via 10.0.2.254").unwrap();
    let mut used = Vec::new();
    for idle in ["block", "nap", "spin"] {
        let file = network.folder.path("idle.toml");
        let text = config(one, other).replace("[\"firewall\"]", "[\"firewall\", \"forward\"]");
        fs::write(&file, format!("idle = \"{idle}\"\n{text}")).unwrap();
        let socket = network.folder.path(idle);
        let flowkeep = env!("CARGO_BIN_EXE_flowkeep");
        let cluster = network
            .gateway
            .start(&format!("{flowkeep} run {file} --for 2m --socket {socket}"))
            .unwrap();
        let began = std::time::Instant::now();
        // The socket is there before the ports are open; it is answered when they are.
        let status = format!("{flowkeep} status --socket {socket}");
        while network.gateway.run(&status, Run::within(PATIENCE)).is_err() {
            assert!(began.elapsed() < PATIENCE);
        }
        network.ping("10.0.2.1", 5, 56);
        std::thread::sleep(std::time::Duration::from_millis(500));
        let (before, second) = ticks(cluster.id());
        std::thread::sleep(std::time::Duration::from_secs(2));
        let (after, _) = ticks(cluster.id());
        // It wakes again and again.
        let ping = network.at_client("ping -n -c 10 -i 0.5 -W 5 10.0.2.1");
        assert!(ping.contains("10 received"), "{ping}");
        println!("{}", ping.lines().last().unwrap_or_default());
        let share = (after - before) * 100 / (2 * second);
        println!("{idle}: {share} % of a processor without packets");
        used.push(share);
        assert!(cluster.stop().unwrap().status.success());
    }
    assert!(used[0] <= 5, "{used:?}");
    // Otherwise nothing was measured. Who never sleeps gets what others leave it.
    assert!(used[2] > 2 * used[0].max(2), "{used:?}");
}

fn everything_is_accounted_for(one: &str, other: &str) {
    let Some(network) = network(&[("ping", "iputils-ping")]) else {
        return;
    };
    for (host, interface, address) in [
        (&network.client, "eth0", "10.0.1.1/24"),
        (&network.gateway, "left", "10.0.1.254/24"),
    ] {
        host.address(interface, address).unwrap();
    }
    network.client.ip("route add default via 10.0.1.254").unwrap();
    let file = network.folder.path("cluster.toml");
    fs::write(&file, config(one, other)).unwrap();
    let socket = network.folder.path("socket");
    let flowkeep = env!("CARGO_BIN_EXE_flowkeep");
    let mut cluster = network
        .gateway
        .start(&format!(
            "{flowkeep} run {file} --json --for 2m --socket {socket}"
        ))
        .unwrap();
    let status = format!("{flowkeep} status --json --socket {socket}");
    let began = std::time::Instant::now();
    while network.gateway.run(&status, Run::within(PATIENCE)).is_err() {
        assert!(
            began.elapsed() < PATIENCE && cluster.ended().unwrap().is_none(),
            "{:?}",
            cluster.printed()
        );
    }
    let ping = network
        .client
        .finish("ping -n -c 50 -i 0.01 -W 1 10.0.9.9", Run::within(PATIENCE))
        .unwrap();
    assert!(
        ping.out.contains("50 packets transmitted, 0 received"),
        "{ping:?}"
    );
    let ended = cluster.stop().unwrap();
    assert!(ended.status.success(), "{ended:?}");
    let report: Value = serde_json::from_str(ended.out.lines().last().expect("a report")).unwrap();
    let packets = &report["packets"];
    println!("{packets}");
    let number = |name: &str| packets[name].as_u64().unwrap();
    let dropped: u64 = packets["dropped"]
        .as_object()
        .unwrap()
        .values()
        .map(|n| n.as_u64().unwrap())
        .sum();
    assert_eq!(number("in") + number("made"), number("out") + dropped, "{report}");
    assert_eq!(number("held"), 0, "{report}");
    assert!(number("out") >= 50, "{report}");
    assert!(
        report["ports"][1]["sent_packets"].as_u64().unwrap() >= 50,
        "{report}"
    );
}

#[test]
fn over_packet_sockets() {
    everything_is_accounted_for("afpacket:left", "afpacket:right");
}

#[test]
fn over_xdp() {
    everything_is_accounted_for("afxdp:left", "afxdp:right");
}

#[test]
fn idle_over_packet_sockets() {
    an_idle_cluster_sleeps("afpacket:left", "afpacket:right");
}

#[test]
fn idle_over_xdp() {
    an_idle_cluster_sleeps("afxdp:left", "afxdp:right");
}
