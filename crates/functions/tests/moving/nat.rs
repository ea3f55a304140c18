//! NAT: mappings go along, ports and blocks are returned once.

use crate::captures::over_captures;
use crate::traffic::conversations;
use flowkeep_functions::nat::Nat;
use std::time::Duration;
use testkit::{Migration, Step, answer, migration, udp, wait};

fn nat(config: &str) -> Migration {
    migration().function::<Nat>(testkit::config::<Nat>(config))
}

const POOL: &str = "pool = [\"203.0.113.0/29\"]\nfiltering = \"endpoint-independent\"\n";

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

/// A pool that is just large enough, used up again and again: a port or block that was not returned would be missing, one that
/// was returned twice would be two hosts'.
#[test]
fn ports_and_blocks_are_returned_once() {
    let config = "pool = [\"203.0.113.1/32\"]\nblock_size = 8\nblocks_per_host = 1\nports = \"1024-1055\"\n\
                  preserve_ports = false\npreserve_parity = false\n";
    let mut script: Vec<Step> = Vec::new();
    for round in 0..3u16 {
        // Two blocks are runtime 0's: two hosts of eight ports each, and one host and one port too many.
        for host in 1..=2 {
            for port in 0..9 {
                let query = udp(&format!("10.0.0.{host}:{}", 5000 + 100 * round + port), "192.0.2.53:53");
                script.push(query);
                script.push(answer());
            }
        }
        script.push(udp("10.0.0.3:5000", "192.0.2.53:53"));
        script.push(wait(Duration::from_secs(700)));
    }
    let survived = nat(config).check(script);
    assert_eq!(survived.counter("mappings_created"), 3 * 16);
    assert_eq!(survived.counter("mappings_released"), 3 * 16);
    assert_eq!(survived.counter("blocks_claimed"), 6);
    assert_eq!(survived.counter("blocks_released"), 6);
    assert_eq!(survived.dropped("host_ports_exhausted"), 6);
    assert_eq!(survived.dropped("ports_exhausted"), 3);
}

#[test]
fn captures_are_translated_alike() {
    over_captures(1, |_| nat(POOL).flows_max(512));
}
