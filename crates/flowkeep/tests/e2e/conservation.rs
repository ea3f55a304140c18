//! Every packet is accounted for, whatever comes in and however the cluster is set up: in + made =
//! out + held + dropped, every drop has a name, and a stop leaves nothing behind (all of which
//! [`finish`] checks in every run).

use crate::cluster::{Shape, finish, start};
use adapters::memory::Frame;
use adapters::open::Ports;
use proptest::prelude::*;
use std::time::Duration;
use wire::hostile;

/// Chains that do different things with packets: answer, translate, hand on.
const CHAINS: [&str; 6] = [
    "\"flow_monitor\"",
    "\"firewall\"",
    "\"nat\"",
    "\"firewall\", \"nat\"",
    "\"flow_monitor\", \"firewall\", \"nat\"",
    "\"firewall\", \"nat\", \"load_balancer\"",
];

const FUNCTIONS: &str = r#"
[[function.firewall.rules]]
name = "no names"
destination_ports = 53
action = "reject"

[[function.firewall.rules]]
name = "the rest"
action = "allow"

[function.nat]
pool = ["203.0.113.0/29"]

[[function.load_balancer.services]]
name = "web"
addresses = ["192.0.2.1", "192.0.2.2"]
ports = 80
protocol = "tcp"
backends = [{ name = "one", endpoint = "198.51.100.1:80" }]
"#;

/// A random set-up and the packets that are sent through it.
#[derive(Clone, Debug)]
struct Case {
    shape: Shape,
    chain: &'static str,
    policy: &'static str,
    flows_max: u32,
    seed: u64,
    packets: usize,
    /// Stopped in the middle rather than at the end of its input.
    stopped: bool,
}

fn cases() -> impl Strategy<Value = Case> {
    let shape = (1..=3_u16, 1..=4_u16, any::<bool>()).prop_map(|(switches, runtimes, one)| {
        let shape = Shape::of(runtimes).with_switches(switches);
        if one { shape.on_one_thread() } else { shape }
    });
    let chain = prop::sample::select(CHAINS.to_vec());
    let policy = prop::sample::select(vec!["least_loaded", "round_robin", "maglev"]);
    let flows_max = prop::sample::select(vec![4_u32, 100, 4096]);
    (
        shape,
        chain,
        policy,
        flows_max,
        any::<u64>(),
        0..3000_usize,
        any::<bool>(),
    )
        .prop_map(|(shape, chain, policy, flows_max, seed, packets, stopped)| Case {
            shape,
            chain,
            policy,
            flows_max,
            seed,
            packets,
            stopped,
        })
}

fn toml(case: &Case) -> String {
    let port = |name: &str, side: &str, input: &str, output: &str| {
        format!(
            "[[port]]\nname = \"{name}\"\nside = \"{side}\"\ninput = \"memory:{input}\"\noutput = \"memory:{output}\"\n"
        )
    };
    format!(
        "policy = \"{}\"\nclock = \"capture\"\n{}{}{}[[chain]]\nname = \"all\"\nfunctions = [{}]\n{FUNCTIONS}",
        case.policy,
        case.shape.toml(case.flows_max),
        port("lan", "by-address", "lan", "lan"),
        port("world", "outside", "world", "world"),
        case.chain
    )
}

fn check(case: &Case) {
    let mut ports = Ports::new();
    let ends = [ports.memory("lan"), ports.memory("world")];
    let (mut time, mut random) = (1_000_000_000_u64, hostile::Random::new(case.seed));
    // Valid packets and broken ones; time goes on, now and then far enough for flows to end.
    let frames =
        hostile::valid(case.seed, case.packets / 2).chain(hostile::packets(!case.seed, case.packets / 2));
    for (link, bytes) in frames {
        time += if random.once_in(500) {
            400_000_000_000
        } else {
            random.below(1_000_000) as u64
        };
        let frame = Frame {
            timestamp: time,
            ..Frame::new(&bytes, link)
        };
        ends[random.below(2)].push_frame(frame);
    }
    if !case.stopped {
        ends.iter().for_each(adapters::memory::MemoryEnd::close);
    }
    let (running, lines) = start(&toml(case), ports);
    let mut looks = 0;
    let outcome = running.wait(|cluster| {
        looks += 1;
        if case.stopped && looks == 2 {
            cluster.stop();
        }
    });
    let what = format!("{case:?}");
    let ran = finish(outcome, &lines, &what);
    for (function, reason) in ran.packets.dropped.keys() {
        assert!(
            !reason.is_empty() && *reason != "undeclared" && *reason != "stopped",
            "{what}: {function}/{reason}"
        );
    }
    if case.chain.contains("nat") {
        assert_eq!(
            ran.counter("blocks_claimed"),
            ran.counter("blocks_released"),
            "{what}"
        );
        assert_eq!(
            ran.counter("mappings_created"),
            ran.counter("mappings_released"),
            "{what}"
        );
    }
    let left: usize = ends.iter().map(|end| end.take_all().len()).sum();
    assert_eq!(left as u64, ran.packets.sent, "{what}");
}

#[test]
fn every_packet_is_accounted_for() {
    let config = ProptestConfig {
        cases: ProptestConfig::default().cases.div_ceil(6),
        failure_persistence: None,
        max_shrink_iters: 60,
        max_shrink_time: Duration::from_secs(20).as_millis() as u32,
        ..ProptestConfig::default()
    };
    proptest!(config, |(case in cases())| check(&case));
}
