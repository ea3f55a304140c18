//! A whole cluster over live ports: it comes up, counts the packets that it is sent, and ends with
//! everything accounted for.

use crate::machine;
use crate::network::{PATIENCE, network};
use lab::process::Run;
use serde_json::Value;
use std::fs;
use std::time::{Duration, Instant};

/// A firewall between the two ports that lets everything pass. Its packets are addressed to the
/// gateway still, so that no host takes them: the tests look at the packets in and out.
fn config(one: &str, other: &str) -> String {
    format!(
        "runtimes = 2\nswitches = 2\n\
         [[port]]\nname = \"left\"\nside = \"inside\"\ninput = \"{one}\"\noutput = \"{one}\"\n\
         [[port]]\nname = \"right\"\nside = \"outside\"\ninput = \"{other}\"\noutput = \"{other}\"\n\
         [[chain]]\nname = \"all\"\nfunctions = [\"firewall\"]\n\
         [[function.firewall.rules]]\nname = \"all\"\naction = \"allow\"\n"
    )
}

/// Seconds of processor time that a process has had.
fn processor_time(process: u32) -> f64 {
    let stat = fs::read_to_string(format!("/proc/{process}/stat")).unwrap();
    let behind = &stat[stat.rfind(')').unwrap() + 1..];
    let fields: Vec<&str> = behind.split_whitespace().collect();
    // User and system time are the fields 14 and 15; the first here is the third. Each is in ticks,
    // a hundred of them a second.
    let time = |field: usize| fields[field - 3].parse::<f64>().unwrap();
    (time(14) + time(15)) / 100.0
}

/// At most this share of a processor is for a cluster without packets, in percent, on a machine on
/// which a wake costs what it should.
const IDLE_MAX: f64 = 5.0;
/// No machine is so slow that a process that sleeps uses more; a process that spins does.
const ANY_MACHINE: f64 = 40.0;
const WINDOW: Duration = Duration::from_secs(2);

/// The smallest share of a processor that a process had in so many windows, in percent, and the
/// limit of that window: noise of the machine makes a share larger, never smaller.
fn idle_share(process: u32, windows: u32) -> (f64, f64) {
    let mut least = (f64::MAX, 0.0);
    for _ in 0..windows {
        let before = processor_time(process);
        let dear = machine::wake_cost(WINDOW);
        let share = (processor_time(process) - before) * 100.0 / WINDOW.as_secs_f64();
        println!("{share:.0} % of a processor; a wake costs {dear:.1} times what it should");
        if share < least.0 {
            least = (share, (IDLE_MAX * dear).min(ANY_MACHINE));
        }
        if least.0 <= least.1 {
            break;
        }
    }
    least
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
    for (idle, windows) in [("block", 10), ("nap", 1), ("spin", 2)] {
        let file = network.folder.path("idle.toml");
        let text = config(one, other).replace("[\"firewall\"]", "[\"firewall\", \"forward\"]");
        fs::write(&file, format!("idle = \"{idle}\"\n{text}")).unwrap();
        let socket = network.folder.path(idle);
        let flowkeep = env!("CARGO_BIN_EXE_flowkeep");
        let cluster = network
            .gateway
            .start(&format!("{flowkeep} run {file} --for 5m --socket {socket}"))
            .unwrap();
        let began = Instant::now();
        // The socket is there before the ports are open; it is answered when they are.
        let status = format!("{flowkeep} status --socket {socket}");
        while network.gateway.run(&status, Run::within(PATIENCE)).is_err() {
            assert!(began.elapsed() < PATIENCE);
        }
        network.ping("10.0.2.1", 5, 56);
        std::thread::sleep(Duration::from_millis(500));
        let (share, limit) = idle_share(cluster.id(), windows);
        println!("{idle}: {share:.0} % of a processor without packets, the limit is {limit:.0} %");
        // The cluster wakes again and again. One ping at a time: behind its last request ping waits
        // hardly longer than earlier answers took, but for its only request as long as it is told.
        for _ in 0..5 {
            std::thread::sleep(Duration::from_millis(300));
            network.ping("10.0.2.1", 1, 56);
        }
        match idle {
            "block" => assert!(
                share <= limit,
                "{share:.0} % of a processor, and {limit:.0} % at most"
            ),
            // Otherwise nothing was measured: by this measure a cluster that never sleeps does not.
            "spin" => assert!(share > limit, "{share:.0} % of a processor is taken for sleep"),
            _ => {}
        }
        assert!(cluster.stop().unwrap().status.success());
    }
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
    let began = Instant::now();
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
