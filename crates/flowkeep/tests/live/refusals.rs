//! A live port's refusals at start-up, and whether the command that each names mends it; and the
//! rights of a process once the port is open.

use crate::floods::link_address;
use crate::network::{Network, PATIENCE, network};
use lab::process::Run;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::time::{Duration, Instant};

/// Starts a bridge that ends at once, in a way `wrapped` says; answers whether it came up, and its
/// output.
fn bridge(network: &Network, wrapped: &str, one: &str, other: &str) -> (bool, String) {
    let binary = env!("CARGO_BIN_EXE_flowkeep");
    let words = format!("{wrapped} {binary} port bridge {one} {other} --for 50ms");
    let ended = network.gateway.finish(&words, Run::within(PATIENCE)).unwrap();
    (ended.status.success(), format!("{}{}", ended.out, ended.err))
}

/// The bridge is refused for this reason, and comes up once the command it names has been run in
/// the gateway.
#[track_caller]
fn refused_until(network: &Network, ports: [&str; 2], reason: &str, command: &str) {
    let (up, said) = bridge(network, "", ports[0], ports[1]);
    assert!(!up && said.contains(reason), "{said}");
    assert!(said.contains(command), "{said}");
    network.gateway.run(command, Run::within(PATIENCE)).unwrap();
    let (up, said) = bridge(network, "", ports[0], ports[1]);
    assert!(up, "{said}");
}

#[test]
fn what_is_missing_is_named_with_the_command_that_mends_it() {
    let Some(network) = network(&[("ethtool", "ethtool")]) else {
        return;
    };
    let xdp = ["afxdp:left", "afxdp:right"];
    let packet = ["afpacket:left", "afpacket:right"];
    let (up, said) = bridge(&network, "", "afpacket:lft", "afpacket:right");
    assert!(
        !up && said.contains("there is no network interface `lft`"),
        "{said}"
    );
    assert!(said.contains("left") && said.contains("right"), "{said}");
    for ports in [xdp, packet] {
        network.gateway.ip("link set left down").unwrap();
        refused_until(&network, ports, "`left` is down", "ip link set dev left up");
    }
    for (host, end) in [(&network.gateway, "left"), (&network.client, "eth0")] {
        host.ip(&format!("link set {end} mtu 9000")).unwrap();
    }
    let (up, said) = bridge(&network, "", packet[0], packet[1]);
    assert!(up, "packet sockets take any MTU: {said}");
    refused_until(
        &network,
        ["afxdp:left?mode=generic", "afxdp:right?mode=generic"],
        "`left` has an MTU of 9000 bytes",
        "ip link set dev left mtu 3822",
    );
    for (host, end) in [(&network.gateway, "left"), (&network.client, "eth0")] {
        host.ip(&format!("link set {end} mtu 1500")).unwrap();
    }
    network.gateway.offloads("left", "gro on").unwrap();
    refused_until(
        &network,
        ["afxdp:left?mode=generic", "afxdp:right?mode=generic"],
        "the kernel puts received segments together",
        "ethtool -K left gro off",
    );
    // Two programs cannot have one interface.
    let first = network.flowkeep("port bridge afxdp:left afxdp:right --for 1m", "bridging ");
    let (up, said) = bridge(&network, "", xdp[0], xdp[1]);
    assert!(!up && said.contains("another program is there"), "{said}");
    drop(first);
    let (up, said) = bridge(&network, "", xdp[0], xdp[1]);
    assert!(up, "{said}");
}

#[test]
fn missing_rights_are_named() {
    let Some(network) = network(&[("setpriv", "util-linux"), ("prlimit", "util-linux")]) else {
        return;
    };
    for (ports, missing) in [
        (
            ["afpacket:left", "afpacket:right"],
            "lacks CAP_NET_RAW, CAP_NET_ADMIN, CAP_BPF;",
        ),
        (
            ["afxdp:left", "afxdp:right"],
            "lacks CAP_NET_RAW, CAP_NET_ADMIN, CAP_BPF;",
        ),
    ] {
        let (up, said) = bridge(&network, "setpriv --bounding-set -all --", ports[0], ports[1]);
        assert!(!up && said.contains(missing), "{said}");
        assert!(
            said.contains("setcap cap_net_raw,cap_net_admin,cap_bpf,cap_ipc_lock+ep "),
            "{said}"
        );
    }
    // With just these, and no more, it works.
    let just = "setpriv --bounding-set -all,+net_raw,+net_admin,+bpf,+ipc_lock --";
    for ports in [["afpacket:left", "afpacket:right"], ["afxdp:left", "afxdp:right"]] {
        let (up, said) = bridge(&network, just, ports[0], ports[1]);
        assert!(up, "{said}");
    }
    // Without the right to lock as much as it likes, the limit counts.
    let limited = "prlimit --memlock=1048576 setpriv --bounding-set -all,+net_raw,+net_admin,+bpf --";
    let (up, said) = bridge(&network, limited, "afxdp:left", "afxdp:right");
    assert!(
        !up && said.contains("this process may keep 1024: raise the limit with `ulimit -l "),
        "{said}"
    );
}

/// Of each thread of a process, its user and its capabilities.
fn rights(process: u32) -> Vec<(u32, u64)> {
    let tasks = fs::read_dir(format!("/proc/{process}/task")).unwrap();
    let of_thread = |status: String| {
        let of = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name))?;
            line.split_whitespace().next()
        };
        let user = of("Uid:")?.parse().ok()?;
        Some((user, u64::from_str_radix(of("CapEff:")?, 16).ok()?))
    };
    let statuses = tasks
        .flatten()
        .filter_map(|task| fs::read_to_string(task.path().join("status")).ok());
    statuses.filter_map(of_thread).collect()
}

/// Packets go through a live port by threads that have the rights it needs and no more. Files that
/// only root may make are made before: a capture in a directory of root's.
#[test]
fn a_process_with_a_live_port_gives_up_what_it_does_not_need() {
    let Some(network) = network(&[("ping", "iputils-ping")]) else {
        return;
    };
    network.one_network();
    // Behind the gateway, whose port takes frames to its own station alone.
    let station = link_address(&network.gateway, "left");
    let permanent = format!("neigh replace 10.0.0.9 lladdr {station} dev eth0 nud permanent");
    network.client.ip(&permanent).unwrap();
    fs::set_permissions(network.folder.path(""), fs::Permissions::from_mode(0o700)).unwrap();
    let (config, capture) = (network.folder.path("c.toml"), network.folder.path("out.pcap"));
    let text = format!(
        "user = \"daemon\"\n\
         [[port]]\nname = \"lan\"\nside = \"inside\"\ninput = \"afpacket:left\"\noutput = \"afpacket:left\"\n\
         [[port]]\nname = \"wan\"\nside = \"outside\"\noutput = \"pcap:{capture}\"\n\
         [[chain]]\nname = \"all\"\nfunctions = [\"flow_monitor\"]\n"
    );
    fs::write(&config, text).unwrap();
    let (binary, socket) = (env!("CARGO_BIN_EXE_flowkeep"), network.folder.path("socket"));
    let words = format!("{binary} run {config} --json --for 2m --socket {socket}");
    let mut process = network.gateway.start(&words).unwrap();
    let status = format!("{binary} status --json --socket {socket}");
    let began = Instant::now();
    loop {
        let goes_on = process.ended().unwrap().is_none() && began.elapsed() < PATIENCE;
        assert!(goes_on, "{:?}", process.printed());
        // No host answers; the test does not need that.
        let ping = "ping -n -c 1 -W 1 10.0.0.9";
        network.client.finish(ping, Run::within(PATIENCE)).unwrap();
        let said = network.gateway.run(&status, Run::within(PATIENCE));
        let said: serde_json::Value = serde_json::from_str(&said.unwrap_or_default()).unwrap_or_default();
        if said["packets"]["out"].as_u64() > Some(0) {
            break;
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    // CAP_NET_ADMIN, CAP_NET_RAW, CAP_IPC_LOCK, CAP_SYS_NICE and CAP_BPF.
    const KEPT: u64 = 1 << 12 | 1 << 13 | 1 << 14 | 1 << 23 | 1 << 39;
    let rights = rights(process.id());
    assert!(rights.len() > 3, "{rights:?}");
    for (user, capabilities) in rights {
        assert_eq!((user, capabilities & !KEPT), (1, 0), "{capabilities:x}");
    }
    // The rights that are left are enough to follow the host's addresses: the kernel answers for a
    // new one.
    network.gateway.ip("addr add 10.0.0.7/24 dev left").unwrap();
    let (ping, began) = ("ping -n -c 1 -W 1 10.0.0.7", Instant::now());
    while network.client.run(ping, Run::within(PATIENCE)).is_err() {
        assert!(began.elapsed() < PATIENCE, "{:?}", process.printed());
    }
    let ended = process.stop().unwrap();
    assert!(ended.status.success(), "{ended:?}");
    // Behind the file's own head.
    assert!(fs::metadata(&capture).unwrap().len() > 24);
}
