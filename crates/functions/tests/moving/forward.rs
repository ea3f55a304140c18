//! The forwarding step: a flow's state of its way, and packets that wait for a neighbour, go along.

use crate::traffic::conversations;
use flowkeep_functions::forward::tables::{Interface, Kind, Neighbour, Route, Way};
use flowkeep_functions::forward::{Config, Forward};
use std::time::Duration;
use testkit::{Migration, Step, migration, tcp, udp, wait};
use wire::Addr;

fn addr(text: &str) -> Addr {
    text.parse().expect("an address")
}

/// A router with a port inside and one outside, and its neighbours.
pub fn router(neighbours: &[(u32, &str)]) -> Config {
    let config = Config::default();
    let interface = |index: u32, port: u8, address: &str| Interface {
        index,
        port,
        vlan: 0,
        link: [2, 0, 0, 0, 0, index as u8],
        mtu: 1500,
        addresses: vec![addr(address)],
    };
    let route = |to: &str, interface, gateway: Option<&str>| Route {
        to: to.parse().expect("a prefix"),
        kind: Kind::Forward,
        ways: vec![Way {
            interface,
            gateway: gateway.map(addr),
            weight: 1,
        }],
        metric: 0,
        mtu: 0,
    };
    let neighbours: Vec<Neighbour> = neighbours
        .iter()
        .map(|(interface, address)| Neighbour {
            interface: *interface,
            address: addr(address),
            link: [2, 0, 0, 1, *interface as u8, addr(address).octets()[3]],
        })
        .collect();
    config.feed.publish(
        vec![interface(2, 0, "10.0.0.254"), interface(3, 1, "203.0.113.1")],
        vec![
            route("10.0.0.0/24", 2, None),
            route("203.0.113.0/24", 3, None),
            route("0.0.0.0/0", 3, Some("203.0.113.254")),
        ],
        &neighbours,
    );
    config
}

pub fn forward(neighbours: &[(u32, &str)]) -> Migration {
    migration().function::<Forward>(router(neighbours))
}

#[test]
fn conversations_find_their_way() {
    let hosts = [
        (2, "10.0.0.1"),
        (2, "10.0.0.2"),
        (2, "10.0.0.3"),
        (2, "10.0.0.4"),
        (3, "203.0.113.254"),
    ];
    let survived = forward(&hosts).check(conversations());
    assert!(survived.moved() > 1000, "{}", survived.moved());
    assert!(survived.left() > 100, "{}", survived.left());
}

/// Packets that wait for a link address that is never told, and hops that are used up.
pub fn waits() -> Vec<Step> {
    let query = udp("10.0.0.1:5000", "192.0.2.1:53").payload("what?");
    let web = tcp("10.0.0.1:1000", "192.0.2.1:80");
    vec![
        web.syn(),
        query.clone(),
        query.ttl(1),
        // The inside host's link address is not known: its answers wait.
        query.reply(),
        web.ack(),
        wait(Duration::from_millis(900)),
        query.reply(),
        web.payload("x"),
        wait(Duration::from_secs(5)),
        query.clone(),
        web.payload("y"),
        query.reply(),
        wait(Duration::from_secs(5)),
        web.payload("z"),
    ]
}

/// They wait as long as they would, and their sender hears of it.
#[test]
fn packets_that_wait_for_a_neighbour_wait_on() {
    let survived = forward(&[(3, "203.0.113.254")]).check(waits());
    assert!(survived.moved() > 10, "{}", survived.moved());
    assert!(survived.left() > 5, "{}", survived.left());
}
