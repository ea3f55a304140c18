//! A runtime is cut off from its replica alone, goes on without, and fails: its copies there are
//! void.

use super::replica::{out, stamped_apart, stamps};
use crate::replica::BROKEN;
use std::vec::Vec;

const PORTS: core::ops::Range<u16> = 2000..2020;

/// How many flows of the one that fails have gone on from copies of before, and whether any flow
/// has gone back. `again`: both have met again before.
fn fail_apart(again: bool) -> (u64, bool) {
    let mut members = stamped_apart();
    members.feed(0, PORTS.map(out));
    let before = members.flows()[0];
    assert!(before > 4);
    assert_eq!(members.runtime(0).stats().protected_by, Some(1));
    members.part();
    members.run_until_quiet();
    // Their packets leave without copies.
    members.feed(0, PORTS.map(out));
    assert!(members.runtime(0).stats().unprotected >= before);
    if again {
        members.meet();
        members.run_until_quiet();
        assert_eq!(members.runtime(0).stats().protected_by, Some(1));
        members.feed(0, PORTS.map(out));
    }
    members.stop(1);
    if again {
        members.meet();
    }
    members.run_until_quiet();
    let [recovered, _] = members.runtime(1).stats().recovered;
    members.feed(0, PORTS.map(out));
    // A flow that begins again begins with one.
    let has_gone_back = stamps(&mut members)
        .into_iter()
        .any(|(_, stamps): (u16, Vec<u32>)| {
            let mut pairs = stamps.windows(2);
            pairs.any(|pair| pair[1] <= pair[0] && pair[1] != 1)
        });
    members.assert_one_home();
    (recovered, has_gone_back)
}

#[test]
fn copies_that_packets_have_left_without_are_void() {
    assert_eq!(fail_apart(false), (0, false));
    let (recovered, has_gone_back) = fail_apart(true);
    assert!(recovered > 4 && !has_gone_back);
    BROKEN.set("copies of before are void");
    let (recovered, has_gone_back) = fail_apart(false);
    BROKEN.set("");
    assert!(recovered > 4 && has_gone_back, "a rule that is broken is noticed");
}
