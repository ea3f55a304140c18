//! How workers stand, by views: which word counts.

use super::super::*;
use super::steps::{ONE, Q, R, Rig, S, TERM, member, unlogged, view};
use std::vec;

/// A worker that a later view has leaving still may have been told otherwise meanwhile, on its own
/// host.
#[test]
fn of_views_that_say_that_a_worker_leaves_the_first_counts() {
    let standing = |number, standing| {
        let own = Member {
            standing,
            ..member(R, 1)
        };
        View::new(number, vec![member(S, 1), own])
    };
    let leaving = |number| standing(number, Standing::Leaving);
    let running = |number| standing(number, Standing::Running);
    let mut runtime = Membership::new(R, ONE, TERM, standing(1, Standing::Joining));
    assert_eq!(runtime.take_leaving(), None);
    let mut heard = |view| {
        runtime.adopt(view, |_| ());
        runtime.take_leaving()
    };
    assert_eq!(heard(running(2)), None);
    assert_eq!(heard(leaving(3)), Some(true));
    assert_eq!([heard(leaving(4)), heard(leaving(5))], [None, None]);
    assert_eq!(heard(running(6)), Some(false));
    assert_eq!(heard(leaving(7)), Some(true));
    // The newest of views that were not looked at counts, and an older one is none.
    runtime.adopt(running(8), |_| ());
    runtime.adopt(leaving(9), |_| ());
    runtime.adopt(running(8), |_| ());
    assert_eq!(runtime.take_leaving(), Some(true));
    // The view that a worker begins with may say it.
    let mut late = Membership::new(R, ONE, TERM, leaving(9));
    assert_eq!([late.take_leaving(), late.take_leaving()], [Some(true), None]);
}

#[test]
fn a_worker_that_is_to_be_in_no_view_is_not_drained_instead() {
    let mut rig = Rig::new(&[S, R, Q]);
    rig.beat(10, &[S, R, Q]);
    // A view is on its way, so both words wait for the next.
    let leaves = Input::Stand(Q, ONE, Some(Standing::Leaving));
    let second = unlogged(&mut rig.coordinator, 20, leaves);
    unlogged(&mut rig.coordinator, 21, Input::Stand(R, ONE, None));
    let drained = Input::Stand(R, ONE, Some(Standing::Leaving));
    unlogged(&mut rig.coordinator, 22, drained);
    rig.log.push(Entry::View(view(0, &[])));
    rig.handle(23, Input::Logged(second[0]));
    rig.beat(24, &[S, R, Q]);
    assert!(!rig.coordinator.view().has(R, ONE));
}
