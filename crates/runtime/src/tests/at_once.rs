//! Source, target and the source's replica fail at once, at any step of a move.
//!
//! ```text
//!   0 ══ moves all its flows ══► 2        copies: 0 at 1, 1 at 2, 2 at 3, 3 at 4, 4 at 0
//!   0, 1 and 2 fail: flows of 2 go on at 3; those of 3 and 4 are where they were;
//!     those of 1 had their copies at 2, and begin again; those of 0 do unless they have moved and 3 has copies of them
//! ```

use super::replica::{out, stamped, stamps};
use super::sessions::Members;
use crate::mobility::{MoveOrder, Selector};
use crate::switch::Policy;
use std::collections::HashMap;
use std::format;
use std::vec;

const RUNTIMES: usize = 5;
const FAILED: [usize; 3] = [0, 1, 2];
const PORTS: std::ops::Range<u16> = 3000..3050;

/// From which ports a runtime's flows were opened.
fn homes(members: &mut Members) -> HashMap<u16, usize> {
    let mut homes = HashMap::new();
    for runtime in 0..RUNTIMES {
        let flows = members.runtime(runtime).flows(0, 1000).0;
        homes.extend(flows.into_iter().map(|flow| (flow.source.port, runtime)));
    }
    homes
}

/// They fail behind so many single steps of the move, and their last words are lost or not. How
/// many of the source's flows went on.
fn fail_at_once(switches: usize, steps: usize, is_lost: bool) -> usize {
    let what = format!("{switches} switches, {steps} steps, lost {is_lost}");
    let mut members = stamped(switches, RUNTIMES, Policy::LeastLoaded);
    for _ in 0..2 {
        members.feed(0, PORTS.map(out));
    }
    let homes = homes(&mut members);
    assert_eq!(homes.len(), PORTS.len(), "{what}");
    let order = MoveOrder {
        selector: Selector::All,
        to: vec![2],
    };
    members.runtime(0).order(order).unwrap();
    let workers = switches + RUNTIMES;
    for step in 0..steps {
        members.now += 1000;
        members.step(step % workers);
    }
    for failed in FAILED.map(|runtime| switches + runtime) {
        if is_lost {
            (0..workers).for_each(|other| members.lose(failed, other));
        }
        members.stop(failed);
    }
    members.run_until_quiet();
    members.assert_one_home();
    // Each flow that begins again does so once.
    for _ in 0..2 {
        members.feed(0, PORTS.map(out));
        members.assert_one_home();
        assert_eq!(members.flows().iter().sum::<u64>(), PORTS.len() as u64, "{what}");
    }
    let mut went_on = 0;
    for (port, stamps) in stamps(&mut members) {
        let goes_on = match stamps.as_slice() {
            [1, 2, 3, 4] => true,
            [1, 2, 1, 2] => false,
            _ => panic!("{port}: {stamps:?}, {what}"),
        };
        match homes[&port] {
            0 => went_on += usize::from(goes_on),
            1 => assert!(!goes_on, "{port}, {what}"),
            _ => assert!(goes_on, "{port}, {what}"),
        }
    }
    members.assert_nothing_stays();
    went_on
}

#[test]
fn source_target_and_replica_fail_at_once_at_any_step_of_a_move() {
    for (switches, is_lost) in [(1, false), (1, true), (2, false), (2, true)] {
        let went_on: vec::Vec<usize> = (0..160)
            .map(|steps| fail_at_once(switches, steps, is_lost))
            .collect();
        // Before the move none does, and behind it all do.
        assert_eq!((went_on.first(), went_on.last()), (Some(&0), Some(&10)));
    }
}
