//! The counter: it keeps nothing of a flow, so whatever moves, the runtimes' counts add up to the same.

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

/// Packets and bytes by key, over all runtimes that answered.
fn sums<'a>(answers: impl IntoIterator<Item = &'a String>) -> BTreeMap<String, (u64, u64)> {
    let mut sums: BTreeMap<String, (u64, u64)> = BTreeMap::new();
    for answer in answers {
        for line in answer.split("\\n").flat_map(str::lines) {
            let words: Vec<&str> = line.split([' ', '"']).filter(|word| !word.is_empty()).collect();
            let [.., key, packets, bytes] = words.as_slice() else {
                continue;
            };
            let (Ok(packets), Ok(bytes)) = (packets.parse::<u64>(), bytes.parse::<u64>()) else {
                continue;
            };
            let sum = sums.entry((*key).to_owned()).or_default();
            *sum = (sum.0 + packets, sum.1 + bytes);
        }
    }
    sums
}

#[test]
fn moves_change_no_count() {
    for by in [By::Protocol, By::InsideHost] {
        let mut all = Vec::new();
        for way in Way::MOVES {
            let asked = counter(by, false).asking::<Counter>(&["counts"]);
            let survived = asked.ways([way]).replay(conversations());
            assert_eq!(survived.counter("uncounted"), 0);
            let sums = sums(survived.answers());
            let packets: u64 = sums.values().map(|(packets, _)| packets).sum();
            assert_eq!(packets, survived.counter("packets"), "{sums:?}");
            assert!(!sums.is_empty());
            all.push(sums);
        }
        all.windows(2).for_each(|two| assert_eq!(two[0], two[1]));
    }
}

#[test]
fn captures_are_counted_alike() {
    over_captures(4, |_| counter(By::InsideHost, false).flows_max(512));
    over_captures(4, |_| counter(By::Protocol, true).flows_max(512));
}
