//! Limits per inside host in the threaded cluster, before NAT and behind it: flows that hosts send
//! out, to each other by their external endpoints and directly, and flows that come in are counted
//! for the right host, up to its limit, and given back at the end.

use crate::cluster::{Ran, Shape, finish, start};
use adapters::memory::{Frame, MemoryEnd};
use adapters::open::Ports;
use flowkeep::tables::Said;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};
use wire::LinkType;

type End = ([u8; 4], u16);

const PATIENCE: Duration = Duration::from_secs(60);
const WORLD: [u8; 4] = [198, 51, 100, 7];
const HOSTS: u8 = 8;
const LIMIT: u32 = 20;

fn host(number: u8) -> [u8; 4] {
    [10, 0, 0, 1 + number]
}

fn udp(from: End, to: End) -> Vec<u8> {
    let mut frame = Vec::new();
    let packet = etherparse::PacketBuilder::ipv4(from.0, to.0, 64).udp(from.1, to.1);
    packet.write(&mut frame, b"hello").expect("a vector grows");
    frame
}

fn ends(packet: &[u8]) -> (End, End) {
    let port = |at: usize| u16::from_be_bytes([packet[at], packet[at + 1]]);
    let addr = |at: usize| [packet[at], packet[at + 1], packet[at + 2], packet[at + 3]];
    ((addr(12), port(20)), (addr(16), port(22)))
}

fn take(from: &MemoryEnd) -> Option<(End, End)> {
    let began = Instant::now();
    while began.elapsed() < PATIENCE {
        if let Some(Frame { bytes, .. }) = from.take() {
            return Some(ends(&bytes));
        }
        std::thread::sleep(Duration::from_micros(200));
    }
    None
}

/// Flows of each host, as the command says: from inside, refused, from outside, refused; over all
/// runtimes.
fn listed(cluster: &dyn flowkeep::cluster::Cluster) -> BTreeMap<String, [u64; 4]> {
    let mut hosts = BTreeMap::<String, [u64; 4]>::new();
    for told in cluster.command("host_limits", &["hosts"]).expect("an answer") {
        let Said::Rows(table) = told.said else {
            panic!("a table")
        };
        for row in table.rows {
            let sum = hosts.entry(row[0].to_string()).or_default();
            for (sum, figure) in sum.iter_mut().zip(&row[1..]) {
                *sum += figure.number().expect("a number");
            }
        }
    }
    hosts
}

fn flows_are_counted_for_their_hosts(shape: Shape, functions: &str) -> Ran {
    let what = format!("{functions} {shape:?}");
    let port = |name: &str, side: &str| {
        let uri = format!("memory:{name}");
        format!("[[port]]\nname = \"{name}\"\nside = \"{side}\"\ninput = \"{uri}\"\noutput = \"{uri}\"\n")
    };
    let toml = format!(
        "clock = \"machine\"\ninside = [\"10.0.0.0/8\"]\n{}{}{}[[chain]]\nname = \"gateway\"\nfunctions = [{functions}]\n\
         [function.nat]\npool = [\"203.0.113.0/30\"]\ninside = [\"10.0.0.0/8\"]\nfiltering = \"endpoint-independent\"\n\
         [function.host_limits]\nflows_per_host = {LIMIT}\nnew_flows_per_second = \"none\"\n",
        shape.toml(4096),
        port("lan", "by-address"),
        port("world", "outside"),
    );
    let mut ports = Ports::new();
    let (lan, world) = (ports.memory("lan"), ports.memory("world"));
    let (running, lines) = start(&toml, ports);
    let mut outside = Vec::new();
    // Each host, one socket: ten flows to the world.
    for number in 0..HOSTS {
        let mut seen = None;
        for remote in 0..10 {
            lan.push(&udp((host(number), 5000), (WORLD, 1000 + remote)), LinkType::Raw);
            seen = Some(take(&world).expect(&what).0);
        }
        outside.push(seen.expect("ten"));
    }
    for number in 0..HOSTS {
        let next = (number + 1) % HOSTS;
        for n in 0..3 {
            // To the next host by its external endpoint: one flow of each. From a socket of its own
            // each time.
            lan.push(
                &udp((host(number), 6000 + n), outside[usize::from(next)]),
                LinkType::Raw,
            );
            assert_eq!(take(&lan).expect(&what).1, (host(next), 5000), "{what}");
            // And directly: the sender's.
            lan.push(&udp((host(number), 7000 + n), (host(next), 53)), LinkType::Raw);
            assert_eq!(take(&lan).expect(&what).1, (host(next), 53), "{what}");
        }
        for n in 0..4 {
            world.push(
                &udp((WORLD, 2000 + n), outside[usize::from(number)]),
                LinkType::Raw,
            );
            assert_eq!(take(&lan).expect(&what).1, (host(number), 5000), "{what}");
        }
    }
    let cluster = running.cluster();
    let expected: BTreeMap<String, [u64; 4]> = (0..HOSTS)
        .map(|n| (format!("10.0.0.{}", 1 + n), [16, 0, 7, 0]))
        .collect();
    assert_eq!(listed(cluster.as_ref()), expected, "{what}");
    // One host wants everything, and has what its limit leaves it; the others have theirs. Its
    // address is the smallest, so its flows directly to others are counted where its other flows
    // are.
    for n in 0..100 {
        lan.push(&udp((host(0), 8000 + n), (WORLD, 80)), LinkType::Raw);
    }
    lan.push(&udp((host(1), 8000), (WORLD, 80)), LinkType::Raw);
    let began = Instant::now();
    let refused = |hosts: &BTreeMap<String, [u64; 4]>| hosts["10.0.0.1"][1];
    let mut hosts = listed(cluster.as_ref());
    while began.elapsed() < PATIENCE
        && (hosts["10.0.0.1"][0] + refused(&hosts) < 116 || hosts["10.0.0.2"][0] < 17)
    {
        std::thread::sleep(Duration::from_millis(5));
        hosts = listed(cluster.as_ref());
    }
    let passed = 100 - refused(&hosts);
    assert_eq!(passed, 4, "{what}");
    assert_eq!(hosts["10.0.0.2"], [17, 0, 7, 0], "{what}");
    lan.close();
    world.close();
    let ran = finish(running.wait(|_| {}), &lines, &what);
    let counted = ran.counter("flows_counted");
    assert_eq!(counted, u64::from(HOSTS) * 23 + passed + 1, "{what}");
    assert_eq!(counted, ran.counter("flows_given_back"), "{what}");
    assert_eq!(
        ran.counter("mappings_created"),
        ran.counter("mappings_released"),
        "{what}"
    );
    assert_eq!(
        ran.dropped(),
        [(("host_limits", "too_many_flows"), 100 - passed)].into(),
        "{what}"
    );
    assert!(
        ran.lines
            .contains("\"event\":\"host_limited\",\"host\":\"10.0.0.1\""),
        "{what}"
    );
    ran
}

#[test]
fn limits_of_hosts_hold_before_nat_and_behind_it_on_any_number_of_workers() {
    for functions in ["\"host_limits\", \"nat\"", "\"nat\", \"host_limits\""] {
        for shape in [Shape::of(1), Shape::of(4), Shape::of(3).with_switches(2)] {
            flows_are_counted_for_their_hosts(shape, functions);
        }
    }
}
