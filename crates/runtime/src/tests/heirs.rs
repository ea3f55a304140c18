//! An heir fails behind any step of a recovery.

use super::groups::{frame, inside, outside};
use super::lent::Lender;
use super::sessions::Members;
use super::*;
use crate::switch::Policy;
use std::vec;

/// Flows of a runtime: those of one host, in one block of ports.
const FLOWS: u16 = 300;
/// Workers: two switches, a runtime, its heir, and the heir's replica.
const FAILED: usize = 2;
const HEIR: usize = 3;
const LAST: usize = 4;

fn packets() -> impl DoubleEndedIterator<Item = Sent> {
    (1..4).flat_map(|host| (0..FLOWS).map(move |n| frame((inside(host), 1000 + n), (outside(1), 53))))
}

/// A runtime fails, and so many single steps later its heir; both begin again, or stay away. How
/// many flows have gone on at the heir's replica.
fn fail_both(steps: usize, begin_again: bool) -> u64 {
    let what = std::format!("{steps} steps, again {begin_again}");
    let mut members = Members::copied(2, 3, Policy::LeastLoaded, plan(vec![factory::<Lender>()]));
    members.feed(0, packets());
    assert_eq!(members.flows(), [u64::from(FLOWS); 3], "{what}");
    members.stop(FAILED);
    for step in 0..steps {
        members.now += 1000;
        members.step([0, 1, HEIR, LAST][step % 4]);
    }
    members.stop(HEIR);
    members.run_until_quiet();
    let [recovered, lost] = members.runtime(2).stats().recovered;
    assert!(
        recovered >= u64::from(FLOWS) && lost == 0,
        "{recovered} {lost}: {what}"
    );
    members.assert_blocks_are_known(&what);
    if begin_again {
        members.start(FAILED);
        members.start(HEIR);
        members.run_until_quiet();
    }
    members.feed(1, packets().rev());
    members.assert_one_home();
    members.assert_blocks_are_known(&what);
    assert_eq!(
        members.flows().iter().sum::<u64>(),
        3 * u64::from(FLOWS),
        "{what}"
    );
    members.check();
    members.assert_nothing_stays();
    recovered
}

#[test]
fn flows_that_have_gone_on_at_an_heir_go_on_as_it_fails() {
    for begin_again in [false, true] {
        let recovered: vec::Vec<u64> = (0..100).map(|steps| fail_both(steps, begin_again)).collect();
        // At first none of the runtime that failed before, at last all of them.
        let all = [recovered[0], recovered[99]];
        assert_eq!(all, [1, 2].map(|runtimes| runtimes * u64::from(FLOWS)));
        assert!(
            recovered.iter().any(|count| !all.contains(count)),
            "{recovered:?}"
        );
    }
}
