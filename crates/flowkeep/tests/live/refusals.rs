//! What a live port refuses at start-up, and whether the command that it names mends it.

use crate::network::{Network, PATIENCE, network};
use lab::process::Run;

/// Starts a bridge that ends at once, in a way `wrapped` says; answers whether it came up, and what
/// it said.
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
