//! NAT: mappings go along, ports and blocks are returned once.

use crate::captures::over_captures;
use crate::traffic::conversations;
use flowkeep_functions::firewall::Firewall;
use flowkeep_functions::flow_monitor::{self, FlowMonitor};
use flowkeep_functions::host_limits::HostLimits;
use flowkeep_functions::nat::Nat;
use std::time::Duration;
use testkit::{Migration, Step, answer, migration, udp, wait};

pub fn nat(config: &str) -> Migration {
    migration()
        .function::<Nat>(testkit::config::<Nat>(config))
        // Ports are chosen at random; a mapping's number is its place in the instance's table.
        .choosing(&["203.0.113.0/29"])
        .local::<Nat>("mapping")
}

pub const POOL: &str = "pool = [\"203.0.113.0/29\"]\nfiltering = \"endpoint-independent\"\n";

#[test]
fn conversations_go_on() {
    let survived = nat(POOL).check(conversations());
    assert!(survived.moved() > 1000, "{}", survived.moved());
    let made = survived.counter("mappings_created");
    assert!(made >= 12, "{made}");
    assert_eq!(survived.counter("mappings_released"), made);
    assert_eq!(
        survived.counter("blocks_claimed"),
        survived.counter("blocks_released")
    );
    assert_eq!(survived.events().matches("mapping_created").count() as u64, made);
    assert_eq!(survived.events().matches("mapping_released").count() as u64, made);
}

/// Through two switches: replies come in at the other one, and half of the groups have the other
/// one's route.
#[test]
fn conversations_go_on_through_two_switches() {
    let survived = nat(POOL).switches(2).check(conversations());
    assert_eq!(
        survived.counter("mappings_created"),
        survived.counter("mappings_released")
    );
    let moved = survived.events().matches("mapping_created").count();
    assert!(moved >= 12, "{moved}");
}

/// With each filtering, and with each mapping behaviour.
#[test]
fn other_behaviours_go_on() {
    for mapping in ["endpoint-independent", "address-and-port-dependent"] {
        for filtering in ["address-dependent", "address-and-port-dependent"] {
            let config = format!(
                "pool = [\"203.0.113.0/29\"]\nmapping = \"{mapping}\"\nfiltering = \"{filtering}\"\n"
            );
            let survived = nat(&config).check(conversations());
            assert_eq!(
                survived.counter("mappings_created"),
                survived.counter("mappings_released")
            );
        }
    }
}

/// A chain moves as a whole: every function's state, with the group's.
#[test]
fn a_chain_goes_on() {
    let limits = testkit::config::<HostLimits>("flows_per_host = 100\nnew_flows_per_second = \"none\"");
    let survived = migration()
        .function::<HostLimits>(limits)
        .function::<Firewall>(testkit::config::<Firewall>(crate::firewall::RULES))
        .function::<Nat>(testkit::config::<Nat>(POOL))
        .function::<FlowMonitor>(flow_monitor::Config::default())
        .choosing(&["203.0.113.0/29"])
        .local::<Nat>("mapping")
        .check(conversations());
    assert!(survived.moved() > 1000, "{}", survived.moved());
    assert_eq!(
        survived.counter("flows_counted"),
        survived.counter("flows_given_back")
    );
}

/// A pool that is just large enough, used up again and again: a port or block that was not returned
/// would be missing, one that was returned twice would be two hosts'.
#[test]
fn ports_and_blocks_are_returned_once() {
    let config = "pool = [\"203.0.113.1/32\"]\nblock_size = 64\nblocks_per_host = 1\nports = \"1024-1535\"\n\
                  preserve_ports = false\npreserve_parity = false\n";
    let mut script: Vec<Step> = Vec::new();
    for round in 0..3u16 {
        // Of the eight blocks some are runtime 0's: all are used up, and a port more is wanted of
        // the first.
        for host in 1..=9 {
            for port in 0..if host == 1 { 65 } else { 2 } {
                let query = udp(
                    &format!("10.0.0.{host}:{}", 5000 + 100 * round + port),
                    "192.0.2.53:53",
                );
                script.push(query);
                script.push(answer());
            }
        }
        script.push(wait(Duration::from_secs(700)));
    }
    let survived = nat(config).check(script);
    let (claimed, made) = (
        survived.counter("blocks_claimed"),
        survived.counter("mappings_created"),
    );
    assert_eq!(survived.counter("blocks_released"), claimed);
    assert_eq!(survived.counter("mappings_released"), made);
    // Eight blocks, three times; blocks of the other runtime are borrowed while datagrams come.
    assert!((6..=24).contains(&claimed), "{claimed}");
    assert_eq!(survived.dropped("host_ports_exhausted"), 3);
    let refused = survived.dropped("ports_exhausted");
    assert_eq!(made + refused, 3 * (64 + 8 * 2));
    // Of nine hosts at least one has no block in each round.
    assert!(refused >= 3 * 2, "{refused}");
}

#[test]
fn captures_are_translated_alike() {
    // A mapping that ends and is made again may keep its port where its host's runtime has the
    // block, and only there; without that, in large blocks, it hardly gets the same again.
    let config = format!("{POOL}block_size = 4096\npreserve_ports = false\n");
    over_captures(1, |_| nat(&config).flows_max(512));
    over_captures(7, |_| nat(&config).flows_max(512).switches(2));
}
