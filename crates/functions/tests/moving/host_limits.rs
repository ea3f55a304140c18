//! Limits per inside host: the accounts go along, and each flow is given back once.

use crate::captures::over_captures;
use crate::traffic::conversations;
use flowkeep_functions::host_limits::HostLimits;
use std::time::Duration;
use testkit::{Migration, Step, Way, migration, udp, wait};

fn limits(config: &str) -> Migration {
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

/// What a host has spent it has spent wherever it goes, and nothing is given to it there.
#[test]
fn buckets_go_along() {
    let opens = |n: u16| udp(&format!("10.0.0.1:{}", 1000 + n), "192.0.2.1:53");
    let mut script: Vec<Step> = (0..8).map(opens).collect();
    for second in 0..6 {
        script.push(wait(Duration::from_millis(1100)));
        script.extend((0..3).map(|n| opens(100 + 10 * second + n)));
    }
    let survived = limits("flows_per_host = \"none\"\nnew_flows_per_second = 1\nburst = 5").check(script);
    assert_eq!(survived.counter("flows_counted"), 5 + 6);
    assert_eq!(survived.dropped("too_many_new_flows"), 3 + 12);
}

/// The same for a host that has opened nothing itself: all that is known of it is whom packets are sent to.
#[test]
fn accounts_of_what_is_opened_to_a_host_go_along() {
    let opens = |n: u16| udp(&format!("198.51.100.9:{}", 1000 + n), "10.0.0.1:53").from_outside();
    let mut script: Vec<Step> = (0..8).map(opens).collect();
    script.push(wait(Duration::from_millis(2100)));
    script.extend((10..15).map(opens));
    script.push(udp("10.0.0.1:5000", "192.0.2.1:53"));
    script.extend((20..25).map(opens));
    let survived = limits("flows_per_host = \"none\"\nnew_flows_per_second = 1\nburst = 5").check(script);
    assert_eq!(survived.counter("flows_counted"), 5 + 2 + 1);
}

/// No runtime has a flow of anybody in its account when all are over.
#[test]
fn each_flow_is_given_back_where_it_is() {
    for way in Way::ALL {
        let migration = limits("flows_per_host = 3").asking::<HostLimits>(&["hosts"]);
        let survived = migration.ways([way]).replay(conversations());
        assert_eq!(
            survived.counter("flows_counted"),
            survived.counter("flows_given_back")
        );
        // A line for each host that has any.
        for answer in survived.answers() {
            assert_eq!(answer.matches("\\n").count(), 1, "{answer}");
        }
        assert_eq!(survived.answers().len(), 2);
    }
}

#[test]
fn captures_are_limited_alike() {
    over_captures(4, |_| {
        limits("flows_per_host = 5\nnew_flows_per_second = 1\nburst = 4").flows_max(512)
    });
}
