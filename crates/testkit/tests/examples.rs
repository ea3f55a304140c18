//! The functions in `examples/functions`: their behaviour, that their state goes along when flows
//! move and runtimes fail, and that they are short.

#[path = "../../../examples/functions/port_knocking.rs"]
mod port_knocking;
#[path = "../../../examples/functions/scan_counter.rs"]
mod scan_counter;
#[path = "../../../examples/functions/scan_limit.rs"]
mod scan_limit;
#[path = "../../../examples/functions/silent_hosts.rs"]
mod silent_hosts;
#[path = "../../../examples/functions/syn_limiter.rs"]
mod syn_limiter;
#[path = "../../../examples/functions/token_bucket.rs"]
mod token_bucket;

use flowkeep_testkit::{self as testkit, Fate::*, Step, tcp, udp, wait};
use nf::objects::{Objects, Shared, SharedObject};
use nf::variables::Variables;
use nf::{ConfigError, Cx, NetworkFunction, NoConfig, Packet, Plain, Verdict, WorkerInfo, network_function};
use port_knocking::PortKnocking;
use scan_counter::ScanCounter;
use scan_limit::ScanLimit;
use silent_hosts::SilentHosts;
use std::sync::Arc;
use std::time::Duration;
use syn_limiter::SynLimiter;
use token_bucket::FlowRate;

#[global_allocator]
static ALLOCATOR: testkit::CountingAllocator = testkit::CountingAllocator;

const HOST: &str = "10.0.0.1";
const STRANGER: &str = "198.51.100.7";

fn seconds(seconds: u64) -> Step {
    wait(Duration::from_secs(seconds))
}

/// From a host outside to a port of the one inside.
fn at(port: u16) -> Step {
    at_by(STRANGER, port)
}

fn at_by(stranger: &str, port: u16) -> Step {
    tcp(
        &format!("{stranger}:{}", 40_000 + port),
        &format!("{HOST}:{port}"),
    )
    .syn()
    .from_outside()
}

#[test]
fn a_port_opens_for_a_host_that_has_knocked_in_order() {
    let ssh = tcp(&format!("{STRANGER}:40022"), &format!("{HOST}:22")).from_outside();
    let script = [
        at(22),
        at(7000),
        at(7000),
        at(8000),
        at_by("198.51.100.8", 22),
        at(9000),
        ssh.syn(),
        ssh.reply().syn_ack(),
        seconds(20),
        // An open port stays open, and no other is.
        ssh.ack(),
        at(23),
    ];
    let out = testkit::run::<PortKnocking>(NoConfig {}, script.clone());
    let (knock, no) = (Dropped("knock"), Dropped("not_knocked"));
    let fates = [
        no, knock, knock, knock, no, knock, Forwarded, Forwarded, Forwarded, no,
    ];
    out.assert_fates(fates);
    testkit::survives_migration::<PortKnocking>(NoConfig {}, script.clone());
    testkit::survives_failure::<PortKnocking>(NoConfig {}, script.clone());
    testkit::survives_change::<PortKnocking>(NoConfig {}, script);
}

#[test]
fn knocks_in_another_order_or_too_late_open_nothing() {
    let (knock, no) = (Dropped("knock"), Dropped("not_knocked"));
    let out = testkit::run::<PortKnocking>(NoConfig {}, [at(7000), at(9000), at(8000), at(22)]);
    out.assert_fates([knock, no, no, no]);
    let script = [at(7000), at(8000), seconds(60), at(9000), at(22)];
    let out = testkit::run::<PortKnocking>(NoConfig {}, script);
    out.assert_fates([knock, knock, no, no]);
    // The knocks are not the last packets of a flow: no flow of this host is there but that of the
    // knock at hand.
    let script = [
        at(7000),
        seconds(9),
        at(8000),
        seconds(9),
        at(9000),
        seconds(9),
        at(22),
    ];
    let out = testkit::run::<PortKnocking>(NoConfig {}, script.clone());
    out.assert_fates([knock, knock, knock, Forwarded]);
    testkit::survives_migration::<PortKnocking>(NoConfig {}, script.clone());
    testkit::survives_failure::<PortKnocking>(NoConfig {}, script);
    // An inside host needs no knock, and is answered.
    let web = tcp("10.0.0.1:1000", "192.0.2.1:80");
    let out = testkit::run::<PortKnocking>(NoConfig {}, [web.syn(), web.reply().syn_ack()]);
    out.assert_fates([Forwarded; 2]);
}

#[test]
fn so_many_connections_a_second_are_opened() {
    let script = [at(1), at(2), at(3), at(4), at(5), seconds(1), at(6)];
    let out = testkit::run::<SynLimiter>(NoConfig {}, script.clone());
    let no = Dropped("too_many_syns");
    out.assert_fates([Forwarded, Forwarded, Forwarded, no, no, Forwarded]);
    assert_eq!(out.counter("syns"), 6);
    let survived = testkit::survives_migration::<SynLimiter>(NoConfig {}, script.clone());
    assert_eq!(survived.dropped("too_many_syns"), 2);
    testkit::survives_failure::<SynLimiter>(NoConfig {}, script);
}

#[test]
fn a_host_that_tries_closed_ports_is_let_through_to_none() {
    let (closed, scanner) = (Dropped("closed"), Dropped("scanner"));
    let web = tcp(&format!("{STRANGER}:50080"), &format!("{HOST}:80")).from_outside();
    let script = [
        web.syn(),
        at(21),
        seconds(50),
        at(22),
        seconds(50),
        at(23),
        // Flows that it had opened go on, and another host is no scanner.
        web.reply().syn_ack(),
        web.ack(),
        at(443),
        at_by("198.51.100.8", 443),
        seconds(59),
        at(80),
        seconds(61),
        at(443),
    ];
    let out = testkit::run::<ScanCounter>(NoConfig {}, script.clone());
    out.assert_fates([
        Forwarded, closed, closed, closed, Forwarded, Forwarded, scanner, Forwarded, scanner, Forwarded,
    ]);
    assert_eq!(out.counter("scanners"), 1);
    testkit::survives_migration::<ScanCounter>(NoConfig {}, script.clone());
    testkit::survives_failure::<ScanCounter>(NoConfig {}, script.clone());
    testkit::survives_expiry::<ScanCounter>(NoConfig {}, script);
    // None of its packets has left, so that it never has a flow between two of them.
    let script = [at(1), at(2), at(3), at(80), seconds(61), at(80)];
    let out = testkit::run::<ScanCounter>(NoConfig {}, script.clone());
    out.assert_fates([closed, closed, closed, scanner, Forwarded]);
    let survived = testkit::survives_migration::<ScanCounter>(NoConfig {}, script.clone());
    assert!(survived.moved() > 0, "groups move without flows");
    testkit::survives_failure::<ScanCounter>(NoConfig {}, script);
}

#[test]
fn a_bucket_fills_as_time_passes() {
    let stream = udp("10.0.0.1:5000", "192.0.2.1:5000");
    let script = [
        stream.clone().times(3),
        stream.reply(),
        seconds(1),
        stream.clone().times(3),
        seconds(60),
        stream.times(3),
    ];
    let settings = || testkit::config::<FlowRate>("per_second = 1\nburst = 2");
    let out = testkit::run::<FlowRate>(settings(), script.clone());
    let no = Dropped("over_rate");
    let (first, second) = ([Forwarded, Forwarded, no, Forwarded], [Forwarded, no, no]);
    out.assert_fates([&first[..], &second, &[Forwarded, Forwarded, no]].concat());
    let survived = testkit::survives_migration::<FlowRate>(settings(), script.clone());
    assert_eq!(survived.dropped("over_rate"), 4);
    testkit::survives_failure::<FlowRate>(settings(), script);
}

#[test]
fn a_host_that_falls_silent_is_told_without_a_packet() {
    let host = |n: u8| udp(&format!("10.0.0.{n}:5000"), "192.0.2.1:53");
    // How many were told when each step was over.
    let told = |script: &[Step]| {
        let out = testkit::run::<SilentHosts>(NoConfig {}, script.to_vec());
        let hosts = out
            .events()
            .lines()
            .filter(|line| line.contains("\"event\":\"silent\""));
        let ends = hosts.filter_map(|line| line.split("\"host\":\"10.0.0.").nth(1));
        let ends: Vec<u8> = ends.map(|end| end.as_bytes()[0] - b'0').collect();
        assert_eq!(out.counter("silent"), ends.len() as u64);
        ends
    };
    let script = [
        host(1),
        seconds(30),
        host(2),
        // An answer is no word of the host.
        host(1).reply(),
        seconds(31),
        host(2),
        // The timer of the second finds that it has sent since.
        seconds(40),
        seconds(21),
        host(1),
        seconds(61),
    ];
    assert!(told(&script[..4]).is_empty());
    assert_eq!(told(&script[..5]), [1]);
    assert_eq!(told(&script[..7]), [1]);
    assert_eq!(told(&script[..8]), [1, 2]);
    assert_eq!(told(&script), [1, 2, 1]);
    let out = testkit::run::<SilentHosts>(NoConfig {}, vec![host(1).times(50)]);
    assert_eq!(out.allocations(2..), 0);
}

#[test]
fn each_has_sixty_lines_of_code_at_most() {
    for (name, text) in [
        (
            "port_knocking",
            include_str!("../../../examples/functions/port_knocking.rs"),
        ),
        (
            "scan_counter",
            include_str!("../../../examples/functions/scan_counter.rs"),
        ),
        (
            "silent_hosts",
            include_str!("../../../examples/functions/silent_hosts.rs"),
        ),
        (
            "syn_limiter",
            include_str!("../../../examples/functions/syn_limiter.rs"),
        ),
        (
            "token_bucket",
            include_str!("../../../examples/functions/token_bucket.rs"),
        ),
    ] {
        let is_code = |line: &&str| !line.trim().is_empty() && !line.trim().starts_with("//");
        let lines = text.lines().filter(is_code).count();
        assert!(lines <= 60, "{name}: {lines} lines");
    }
}

#[test]
fn a_host_reaches_twenty_ports_and_keeps_them() {
    let to = |source: u16, port: u16| udp(&format!("{HOST}:{source}"), &format!("192.0.2.1:{port}"));
    let mut script: Vec<Step> = (1..=25).map(|port| to(1000 + port, port)).collect();
    // Reached ports stay open, to other flows too; another host has its own.
    script.extend([to(2000, 7), to(1003, 3).reply(), to(2001, 26)]);
    script.push(udp("10.0.0.2:1000", "192.0.2.1:26"));
    let mut fates = vec![Forwarded; 20];
    fates.extend([Dropped("scanner"); 5]);
    fates.extend([Forwarded, Forwarded, Dropped("scanner"), Forwarded]);
    testkit::run::<ScanLimit>(NoConfig {}, script.clone()).assert_fates(fates);
    // The count is the same wherever the flows are.
    testkit::survives_migration::<ScanLimit>(NoConfig {}, script);
}

/// The guide to shared objects shows the code that is compiled here.
#[test]
fn the_guide_to_shared_objects_shows_the_example() {
    let page = include_str!("../../../docs/guide/shared-objects.md");
    let example = include_str!("../../../examples/functions/scan_limit.rs");
    let known: Vec<&str> = example.lines().map(str::trim).collect();
    let blocks = page.split("```rust\n").skip(1);
    let blocks: Vec<&str> = blocks.filter_map(|rest| rest.split("```").next()).collect();
    assert!(blocks.len() >= 3);
    for line in blocks.iter().flat_map(|block| block.lines()) {
        assert!(
            line.is_empty() || known.contains(&line.trim()),
            "the example has no line `{line}`"
        );
    }
}

/// Lets so many packets through of each host, wherever their flows are: a call for each packet.
struct FirstSix(Shared<Packets>);

#[derive(Plain, Default, Clone, Copy, Debug)]
#[repr(C)]
struct Packets {
    count: u64,
}

impl SharedObject for Packets {
    type Call = u64;
    type Answer = u64;
    fn apply(&mut self, by: &u64) -> u64 {
        self.count += by;
        self.count
    }
    fn read(&self, _: &u64) -> u64 {
        self.count
    }
}

#[network_function]
impl NetworkFunction for FirstSix {
    const NAME: &'static str = "first_six";
    type Config = NoConfig;
    fn with_objects(
        _: &Arc<NoConfig>,
        _: &WorkerInfo,
        _: &mut Variables,
        objects: &mut Objects<'_>,
    ) -> Result<Self, ConfigError> {
        Ok(FirstSix(objects.open("hosts")?))
    }
    async fn process(&self, _: &mut Packet, _: &mut (), cx: &mut Cx<Self>) -> Verdict {
        match self.0.update(cx, b"all", &1).await {
            Ok(..=6) => Verdict::Forward,
            _ => cx.drop("over"),
        }
    }
}

/// Calls from both runtimes reach one object: a flow that has moved goes on with the count.
#[test]
fn flows_that_have_moved_call_the_same_object() {
    let [one, two] = [1000, 1001].map(|port| udp(&format!("{HOST}:{port}"), "192.0.2.1:53"));
    let script: Vec<Step> = (0..5).flat_map(|_| [one.clone(), two.clone()]).collect();
    let mut fates = vec![Forwarded; 6];
    fates.extend([Dropped("over"); 4]);
    testkit::run::<FirstSix>(NoConfig {}, script.clone()).assert_fates(fates);
    testkit::survives_migration::<FirstSix>(NoConfig {}, script);
}
