//! The flow monitor: a record for each flow, whole, wherever it was.

use crate::captures::over_captures;
use crate::tables::records;
use crate::traffic::conversations;
use flowkeep_functions::flow_monitor::{Config, FlowMonitor, Timeout};
use testkit::{Migration, migration};

pub fn monitor(seconds: u32) -> Migration {
    migration().function::<FlowMonitor>(Config {
        idle_timeout: Timeout::seconds(seconds),
        closed_timeout: Timeout::seconds(seconds),
    })
}

/// Records are neither lost nor doubled, and know of the packets before the move.
#[test]
fn records_are_whole() {
    for seconds in [1, 60] {
        let survived = monitor(seconds).check(conversations());
        let found = records::read(survived.events());
        let counted: u64 = found
            .iter()
            .map(|record| record.packets[0] + record.packets[1])
            .sum();
        assert_eq!(counted as usize, survived.left());
        assert_eq!(survived.counter("records") as usize, found.len());
        assert!(found.iter().any(|record| record.packets[0] > 1));
        for record in &found {
            assert!(
                record.start <= record.end && record.icmp_errors == 0,
                "{record:?}"
            );
        }
    }
}

#[test]
fn captures_have_the_same_records() {
    over_captures(6, |_| monitor(60).flows_max(512));
}
