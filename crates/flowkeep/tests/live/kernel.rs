//! A packet goes to Flowkeep or to the kernel, never to both and never to neither; to the kernel
//! alone when Flowkeep is gone.

use crate::network::{Network, PATIENCE, network};
use lab::process::{Process, Run};
use std::time::Instant;

const PROGRAMS: &[(&str, &str)] = &[("ping", "iputils-ping"), ("ip", "iproute2")];

/// Client and server in networks of their own, between which the gateway's kernel forwards.
fn routed(network: &Network) {
    let (client, gateway, server) = (&network.client, &network.gateway, &network.server);
    for (host, interface, address) in [
        (client, "eth0", "10.0.1.1/24"),
        (gateway, "left", "10.0.1.254/24"),
        (gateway, "right", "10.0.2.254/24"),
        (server, "eth0", "10.0.2.1/24"),
        (client, "eth0", "2001:db8:1::1/64"),
        (gateway, "left", "2001:db8:1::fe/64"),
        (gateway, "right", "2001:db8:2::fe/64"),
        (server, "eth0", "2001:db8:2::1/64"),
    ] {
        host.address(interface, address).unwrap();
    }
    for (host, side) in [(client, 1), (server, 2)] {
        host.ip(&format!("route add default via 10.0.{side}.254"))
            .unwrap();
        host.ip(&format!("-6 route add default via 2001:db8:{side}::fe"))
            .unwrap();
    }
    gateway.set("net.ipv4.ip_forward", "1").unwrap();
    gateway.set("net.ipv6.conf.all.forwarding", "1").unwrap();
}

/// The other network's addresses, and the gateway's own.
const BEYOND: [&str; 2] = ["10.0.2.1", "2001:db8:2::1"];
const OWN: [&str; 3] = ["10.0.1.254", "10.0.2.254", "2001:db8:1::fe"];

/// How many of three echo requests from the client are answered.
fn answered(network: &Network, address: &str) -> u32 {
    // ping fails where no request is answered.
    let words = format!("ping -n -c 3 -l 3 -S 200000 -i 5 -W 1 {address}");
    let ended = network.client.finish(&words, Run::within(PATIENCE)).unwrap();
    let received = ended
        .out
        .split(", ")
        .find_map(|part| part.strip_suffix(" received"));
    received.unwrap_or_else(|| panic!("{ended:?}")).parse().unwrap()
}

/// Flowkeep between two ports that take routed packets, and nothing done with them: these go
/// nowhere, since frames get no other addresses.
fn takes(network: &Network, scheme: &str, parameters: &str) -> Process {
    let words = format!("port bridge {scheme}:left{parameters} {scheme}:right{parameters} --for 3m");
    network.flowkeep(&words, "bridging ")
}

fn the_kernel_has_its_own_and_nothing_of_ours(network: &Network, scheme: &str, parameters: &str) {
    routed(network);
    // New interfaces have no link-local address for a second or two, and without one no neighbours.
    let began = Instant::now();
    while BEYOND.iter().any(|address| answered(network, address) == 0) {
        assert!(began.elapsed() < PATIENCE, "the kernel does not forward");
    }
    for address in BEYOND.iter().chain(&OWN) {
        assert_eq!(answered(network, address), 3, "{address}, the kernel alone");
    }
    let flowkeep = takes(network, scheme, parameters);
    for address in BEYOND {
        assert_eq!(
            answered(network, address),
            0,
            "{address} is not the kernel's to forward"
        );
    }
    for address in OWN {
        assert_eq!(answered(network, address), 3, "{address} is the kernel's own");
    }
    // An address that comes later is the kernel's from then on.
    network.gateway.address("left", "10.0.1.77/24").unwrap();
    let began = Instant::now();
    while answered(network, "10.0.1.77") == 0 {
        assert!(began.elapsed() < PATIENCE, "it is not the kernel's");
    }
    assert_eq!(answered(network, "10.0.1.77"), 3);
    let ended = flowkeep.stop().unwrap();
    assert!(ended.status.success(), "{ended:?}");
    for address in BEYOND {
        assert_eq!(answered(network, address), 3, "{address}, after a graceful end");
    }
    // Killed, it can clean nothing up: there must be nothing to clean up.
    let flowkeep = takes(network, scheme, parameters);
    assert_eq!(answered(network, BEYOND[0]), 0);
    drop(flowkeep);
    for address in BEYOND {
        assert_eq!(answered(network, address), 3, "{address}, after kill -9");
    }
}

#[test]
fn packet_sockets_leave_the_kernel_its_own_and_nothing_else() {
    let Some(network) = network(PROGRAMS) else { return };
    the_kernel_has_its_own_and_nothing_of_ours(&network, "afpacket", "");
}

#[test]
fn xdp_in_the_driver_leaves_the_kernel_its_own_and_nothing_else() {
    let Some(network) = network(PROGRAMS) else { return };
    the_kernel_has_its_own_and_nothing_of_ours(&network, "afxdp", "");
}

#[test]
fn xdp_before_the_stack_leaves_the_kernel_its_own_and_nothing_else() {
    let Some(network) = network(PROGRAMS) else { return };
    the_kernel_has_its_own_and_nothing_of_ours(&network, "afxdp", "?mode=generic");
}
