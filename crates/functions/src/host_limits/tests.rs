//! Tests of the limits: packets that pass and packets that do not on the runtime's worker, the
//! settings' complaints, and in `oracle` random lives of flows against plain counts.

extern crate std;

mod oracle;

use super::*;
use core::time::Duration;
use nf::by_hand::ByHand;
use std::vec::Vec;
use testkit::Fate::{self, *};
use testkit::{Outcome, Step, setup, tcp, udp, wait};

fn config(text: &str) -> Config {
    testkit::config::<HostLimits>(text)
}

fn run(text: &str, script: impl IntoIterator<Item = Step>) -> Outcome {
    setup::<HostLimits>(config(text)).run(script)
}

/// The n-th flow that a host opens.
fn opens(host: &str, n: u16) -> Step {
    udp(&std::format!("{host}:{}", 1000 + n), "192.0.2.1:53")
}

fn seconds(seconds: u64) -> Step {
    wait(Duration::from_secs(seconds))
}

const FLOWS: Fate = Dropped("too_many_flows");
const RATE: Fate = Dropped("too_many_new_flows");

#[test]
fn the_example_of_the_modules_page() {
    let host = |n| opens("10.0.0.1", n);
    let out = run(
        "flows_per_host = 3\nnew_flows_per_second = 1\nburst = 2",
        [
            host(1),
            host(2),
            host(3),
            seconds(2),
            host(3),
            host(4),
            host(1),
            host(3).reply(),
        ],
    );
    out.assert_fates([Forwarded, Forwarded, RATE, Forwarded, FLOWS, Forwarded, Forwarded]);
    assert_eq!((out.counter("flows_counted"), out.flows()), (3, 3));
}

#[test]
fn a_flow_that_ends_makes_room() {
    let host = |n| opens("10.0.0.1", n);
    let script = [
        host(1),
        host(2),
        host(3),
        seconds(3600),
        host(3),
        host(4),
        host(5),
    ];
    let out = run("flows_per_host = 2\nnew_flows_per_second = \"none\"", script);
    out.assert_fates([Forwarded, Forwarded, FLOWS, Forwarded, Forwarded, FLOWS]);
    assert_eq!((out.counter("flows_counted"), out.flows()), (4, 2));
    assert_eq!(out.counter("flows_given_back"), 2);
}

#[test]
fn one_host_leaves_the_others_theirs() {
    let mut script: Vec<Step> = (0..500).map(|n| opens("10.0.0.1", n)).collect();
    script.extend((0..100).map(|host| opens(&std::format!("10.0.1.{host}"), 1)));
    let out = run("flows_per_host = 50", script);
    assert_eq!(out.dropped("too_many_flows"), 450);
    assert!(out.fates()[500..].iter().all(|fate| *fate == Forwarded));
}

#[test]
fn what_is_opened_from_outside_is_counted_apart() {
    let inward = |n: u16| {
        tcp(&std::format!("192.0.2.9:{}", 1000 + n), "10.0.0.1:80")
            .syn()
            .from_outside()
    };
    let out = run(
        "flows_per_host = 2",
        [
            inward(1),
            inward(2),
            inward(3),
            opens("10.0.0.1", 1),
            opens("10.0.0.1", 2),
            opens("10.0.0.1", 3),
            inward(1),
        ],
    );
    out.assert_fates([
        Forwarded, Forwarded, FLOWS, Forwarded, Forwarded, FLOWS, Forwarded,
    ]);
}

#[test]
fn behind_a_burst_flows_pass_at_their_rate() {
    let mut script = Vec::new();
    for round in 0..3 {
        script.extend((0..4).map(|n| opens("10.0.0.1", 10 * round + n)));
        script.push(seconds(1));
    }
    let out = run(
        "flows_per_host = \"none\"\nnew_flows_per_second = 1\nburst = 4",
        script,
    );
    let passed: Vec<usize> = out
        .fates()
        .chunks(4)
        .map(|c| c.iter().filter(|f| **f == Forwarded).count())
        .collect();
    assert_eq!(passed, [4, 1, 1]);
}

#[test]
fn a_network_of_ipv6_addresses_is_one_host() {
    let from = |low: u16| {
        udp(
            &std::format!("[2001:db8:0:7::{low:x}]:1000"),
            "[2001:db8:ffff::1]:53",
        )
    };
    let other = udp("[2001:db8:0:8::1]:1000", "[2001:db8:ffff::1]:53");
    let out = run("flows_per_host = 2", [from(1), from(2), from(3), other.clone()]);
    out.assert_fates([Forwarded, Forwarded, FLOWS, Forwarded]);
    let out = run(
        "flows_per_host = 2\nprefix_v6 = 128",
        [from(1), from(2), from(3), other],
    );
    out.assert_fates([Forwarded; 4]);
}

#[test]
fn a_network_of_ipv4_addresses_can_be_one_host() {
    let script = [opens("10.0.0.1", 1), opens("10.0.0.2", 1), opens("10.0.1.1", 1)];
    run("flows_per_host = 1\nprefix_v4 = 24", script).assert_fates([Forwarded, FLOWS, Forwarded]);
}

#[test]
fn who_is_exempt_has_no_limits() {
    let script = (0..5)
        .map(|n| opens("10.0.0.53", n))
        .chain([opens("10.0.0.5", 1), opens("10.0.0.5", 2)]);
    let out = run(
        "flows_per_host = 1\nexempt = [\"10.0.0.53\", \"2001:db8::/32\"]",
        script,
    );
    let fates = out.fates();
    assert!(fates[..5].iter().all(|fate| *fate == Forwarded));
    assert_eq!(fates[5..], [Forwarded, FLOWS]);
    assert_eq!(out.counter("flows_exempt"), 5);
}

#[test]
fn an_event_tells_of_a_host_at_its_limit_and_not_of_each_packet() {
    let mut script: Vec<Step> = (0..300).map(|n| opens("10.0.0.1", n)).collect();
    script.push(seconds(11));
    script.extend((300..400).map(|n| opens("10.0.0.1", n)));
    let out = run("flows_per_host = 1", script);
    let lines: Vec<&str> = out
        .events()
        .lines()
        .filter(|line| line.contains("host_limited"))
        .collect();
    assert_eq!(lines.len(), 2, "{lines:?}");
    let read: Vec<serde_json::Value> = lines
        .iter()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert_eq!(
        (&read[0]["host"], &read[0]["reason"]),
        (&"10.0.0.1".into(), &"too_many_flows".into())
    );
    assert_eq!(
        (&read[0]["opened_from"], &read[0]["flows"]),
        (&"inside".into(), &1.into())
    );
    assert_eq!(
        (&read[0]["refused"], &read[1]["refused"]),
        (&1.into(), &300.into())
    );
    // Many hosts at once share a budget.
    let hosts = |n: u32| opens(&std::format!("10.0.{}.{}", n / 200, n % 200), 1);
    let again = |n: u32| opens(&std::format!("10.0.{}.{}", n / 200, n % 200), 2);
    let out = run(
        "flows_per_host = 1",
        (0..400).map(hosts).chain((0..400).map(again)),
    );
    let told = out
        .events()
        .lines()
        .filter(|line| line.contains("host_limited"))
        .count() as u64;
    assert_eq!((told, out.counter("events_limited")), (100, 300));
}

#[test]
fn packets_of_counted_flows_allocate_nothing_and_neither_do_refused_ones() {
    let script = [
        opens("10.0.0.1", 1),
        opens("10.0.0.1", 1).times(1000),
        opens("10.0.0.1", 2).times(1000),
    ];
    let out = run("flows_per_host = 1", script);
    assert_eq!(out.allocations(1..3), 0);
    assert_eq!(out.dropped("too_many_flows"), 1000);
}

#[test]
fn when_every_account_is_in_use_a_new_host_is_refused() {
    let script = [
        opens("10.0.0.1", 1),
        opens("10.0.0.2", 1),
        opens("10.0.0.3", 1),
        seconds(3600),
        opens("10.0.0.3", 1),
    ];
    let out = run("hosts_max = 2", script);
    out.assert_fates([Forwarded, Forwarded, Dropped("too_many_hosts"), Forwarded]);
}

fn by_hand(text: &str) -> ByHand<HostLimits> {
    let info = WorkerInfo {
        runtime: 0,
        runtimes: 1,
        flows_max: 1000,
        seed: 3,
    };
    ByHand::new(HostLimits::new(&Arc::new(config(text)), &info).unwrap())
}

#[test]
fn the_command_lists_who_has_the_most() {
    let limits = by_hand("prefix_v6 = 56").function;
    for (host, flows) in [
        ("10.0.0.1", [3, 0]),
        ("2001:db8:0:1ff::5", [0, 7]),
        ("10.0.0.2", [1, 1]),
    ] {
        let host = limits.plan.host(host.parse().unwrap());
        let mut hosts = limits.hosts.borrow_mut();
        let at = hosts.enter(host).unwrap().at;
        for (direction, count) in flows.into_iter().enumerate() {
            (0..count).for_each(|_| hosts.add(at, direction));
        }
        hosts.at(at).refused = [9, 0];
    }
    let of = |host: &str, flows: [u32; 2]| row![host, flows[0], 9u32, flows[1], 0u32];
    let rows = [
        of("2001:db8:0:100::/56", [0, 7]),
        of("10.0.0.1", [3, 0]),
        of("10.0.0.2", [1, 1]),
    ];
    assert_eq!(limits.rows("hosts", 1000), rows);
    assert_eq!(limits.rows("hosts", 1), rows[..1]);
    for wrong in [&["host"][..], &[]] {
        assert!(limits.command(wrong).is_err(), "{wrong:?}");
    }
}

#[test]
fn settings_that_cannot_be_are_named_with_a_remedy() {
    let refused = |text: &str| {
        let info = WorkerInfo {
            runtime: 0,
            runtimes: 1,
            flows_max: 10,
            seed: 0,
        };
        match HostLimits::new(&Arc::new(config(text)), &info) {
            Ok(_) => panic!("{text}"),
            Err(error) => std::format!("{error}"),
        }
    };
    for (text, said) in [
        ("burst = 0", "burst: 0 is not from 1 to 1000000; write 1"),
        (
            "new_flows_per_second = 2000000",
            "new_flows_per_second: 2000000 is not from 1 to 1000000",
        ),
        ("prefix_v4 = 0", "prefix_v4: 0 is not from 1 to 32; write 1"),
        (
            "prefix_v6 = 129",
            "prefix_v6: 129 is not from 1 to 128; write 128",
        ),
        ("hosts_max = 0", "hosts_max: 0"),
        (
            "exempt = [\"10.0.0.1\", \"server\"]",
            "exempt[1]: `server` is neither",
        ),
        (
            "flows_per_host = \"none\"\nnew_flows_per_second = \"none\"",
            "take the function out",
        ),
    ] {
        let problem = refused(text);
        assert!(problem.contains(said), "{problem}");
    }
    for (text, said) in [
        ("flows_per_host = 0", "0 would let nothing pass"),
        ("flows_per_host = -1", "below 0"),
        ("flows_per_host = \"many\"", "`many` is no limit"),
        ("flows_per_host = 5000000000", "write \"none\""),
        ("flows = 3", "unknown field"),
    ] {
        let problem = toml::from_str::<Config>(text).unwrap_err().to_string();
        assert!(problem.contains(said), "{problem}");
    }
}

/// A flow of a host as it is counted; the account's flows after a change to other settings that
/// this flow has been asked about.
fn counted_after(before: &str, after: &str) -> (Counted, Option<u16>, u32) {
    let host: nf::Addr = "10.0.0.1".parse().unwrap();
    let (old, new) = (by_hand(before).function, by_hand(after).function);
    let mut flow = Counted {
        opened: Opened::FromInside,
        host,
    };
    let count = |limits: &HostLimits| {
        let mut hosts = limits.hosts.borrow_mut();
        let at = hosts.find(limits.plan.host(host));
        at.map_or(0, |at| hosts.at(at).flows[0])
    };
    {
        let mut hosts = old.hosts.borrow_mut();
        let at = hosts.enter(old.plan.host(host)).unwrap().at;
        (0..3).for_each(|_| hosts.add(at, 0));
    }
    // Asked beforehand about a copy, which is to leave no trace.
    let mut copy = flow;
    new.recount(&mut copy);
    new.take_over(&old);
    let at_once = count(&new);
    new.recount(&mut flow);
    (flow, u16::try_from(at_once).ok(), count(&new))
}

#[test]
fn accounts_go_on_through_a_change_of_limits() {
    let (flow, at_once, then) = counted_after("flows_per_host = 5", "flows_per_host = 7");
    assert_eq!((flow.opened, at_once, then), (Opened::FromInside, Some(3), 3));
}

#[test]
fn flows_are_counted_again_where_accounts_are_other_ones() {
    let (flow, at_once, then) = counted_after("prefix_v4 = 32", "prefix_v4 = 24");
    assert_eq!((flow.opened, at_once, then), (Opened::FromInside, Some(0), 1));
}

#[test]
fn who_is_exempt_after_a_change_is_counted_no_more() {
    for before in ["flows_per_host = 5", "prefix_v4 = 24"] {
        let (flow, _, then) = counted_after(before, "exempt = [\"10.0.0.1/32\"]");
        let left = if before.starts_with("flows") { 2 } else { 0 };
        assert_eq!((flow.opened, then), (Opened::Exempt, left), "{before}");
    }
}
