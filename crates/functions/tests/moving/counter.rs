//! The counter: it keeps nothing of a flow, so whatever moves, the runtimes' counts add up to the
//! same.

use crate::captures::over_captures;
use crate::traffic::conversations;
use flowkeep_functions::counter::{By, Config, Counter};
use std::collections::BTreeMap;
use testkit::{Migration, Way, migration};

pub fn counter(by: By, wait: bool) -> Migration {
    migration().function::<Counter>(Config {
        by,
        wait,
        ..Config::default()
    })
}

/// Packets and bytes by key.
fn counts(table: &str) -> BTreeMap<&str, (u64, u64)> {
    let row = |line| {
        let mut words = str::split_whitespace(line);
        let key = words.next()?;
        let mut figure = || words.next()?.parse().ok();
        Some((key, (figure()?, figure()?)))
    };
    table.lines().skip(1).filter_map(row).collect()
}

#[test]
fn moves_change_no_count() {
    for by in [By::Protocol, By::InsideHost] {
        let mut all = Vec::new();
        for way in Way::MOVES {
            let asked = counter(by, false).asking::<Counter>(&["counts"]);
            let survived = asked.ways([way]).replay(conversations());
            assert_eq!(survived.counter("uncounted"), 0);
            let [table] = survived.answers() else {
                panic!("one table")
            };
            let packets: u64 = counts(table).values().map(|(packets, _)| packets).sum();
            assert_eq!(packets, survived.counter("packets"), "{table}");
            all.push(table.clone());
        }
        all.windows(2).for_each(|two| assert_eq!(two[0], two[1]));
    }
}

#[test]
fn captures_are_counted_alike() {
    over_captures(4, |_| counter(By::InsideHost, false).flows_max(512));
    over_captures(4, |_| counter(By::Protocol, true).flows_max(512));
}
