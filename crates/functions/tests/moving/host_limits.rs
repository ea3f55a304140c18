//! Limits per inside host: the accounts go along, and each flow is given back once.

use crate::captures::over_captures;
use crate::traffic::conversations;
use flowkeep_functions::host_limits::HostLimits;
use std::time::Duration;
use testkit::{Migration, Step, Way, migration, udp, wait};

pub fn limits(config: &str) -> Migration {
    migration().function::<HostLimits>(testkit::config::<HostLimits>(config))
}

#[test]
fn conversations_are_counted_on() {
    let survived = limits("flows_per_host = 2\nnew_flows_per_second = 2\nburst = 3").check(conversations());
    assert!(survived.moved() > 100, "{}", survived.moved());
    assert!(survived.dropped("too_many_flows") > 0);
    assert_eq!(
        survived.counter("flows_counted"),
        survived.counter("flows_given_back")
    );
}

pub const RATE: &str = "flows_per_host = \"none\"\nnew_flows_per_second = 1\nburst = 5";

/// More than five new flows at once; then, with every second, three; then, when refusals are told
/// of again, more than five once more.
pub fn spending(opens: fn(u16) -> Step) -> Vec<Step> {
    let mut script: Vec<Step> = (0..8).map(opens).collect();
    for second in 0..6 {
        script.push(wait(Duration::from_millis(1100)));
        script.extend((0..3).map(|n| opens(100 + 10 * second + n)));
    }
    script.push(wait(Duration::from_secs(11)));
    script.extend((200..208).map(opens));
    script
}

pub fn from_inside(n: u16) -> Step {
    udp(&format!("10.0.0.1:{}", 1000 + n), "192.0.2.1:53")
}

pub fn from_outside(n: u16) -> Step {
    udp(&format!("198.51.100.9:{}", 1000 + n), "10.0.0.1:53").from_outside()
}

/// A host's spending goes along wherever the host goes, and no credit is given to it there; also if
/// it has opened nothing itself, so that only the destination of packets to it is known.
#[test]
fn buckets_go_along() {
    for opens in [from_inside, from_outside] {
        let survived = limits(RATE).check(spending(opens));
        assert_eq!(survived.counter("flows_counted"), 5 + 6 + 5);
        assert_eq!(survived.dropped("too_many_new_flows"), 3 + 12 + 3);
        assert_eq!(survived.events().matches("host_limited").count(), 2);
    }
}

/// No runtime has a flow in a host's account when all are over.
#[test]
fn each_flow_is_given_back_where_it_is() {
    for way in Way::MOVES {
        let migration = limits("flows_per_host = 3").asking::<HostLimits>(&["hosts"]);
        let survived = migration.ways([way]).replay(conversations());
        assert_eq!(
            survived.counter("flows_counted"),
            survived.counter("flows_given_back")
        );
        // A row for each host that has any, over both runtimes.
        let [answer] = survived.answers() else {
            panic!("one table")
        };
        assert_eq!(answer.lines().count(), 1, "{answer}");
    }
}

#[test]
fn captures_are_limited_alike() {
    over_captures(4, |_| {
        limits("flows_per_host = 5\nnew_flows_per_second = 1\nburst = 4").flows_max(512)
    });
}
