//! The words that a conductor has runtimes told, in order.

use super::super::*;
use crate::ownership::RuntimeId;

fn set(runtimes: &[u16]) -> Members {
    runtimes
        .iter()
        .fold(Members::NONE, |all, runtime| all.with(RuntimeId(*runtime)))
}

fn reach(conductor: &mut Conductor, runtimes: &[u16], stage: Stage) {
    for runtime in runtimes {
        conductor.note_reached(RuntimeId(*runtime), stage);
    }
}

#[test]
fn a_change_goes_through_its_stages_and_those_that_join_are_told_last() {
    let mut conductor = Conductor::new(1, set(&[0, 1]));
    assert!(conductor.has_reached_all());
    assert!(conductor.change(set(&[1, 2])));
    assert!(!conductor.change(set(&[0])), "one is under way");
    let prepared = Directive::Stage(Stage::prepared(1), set(&[1, 2]));
    assert_eq!(conductor.directive(), (set(&[0, 1]), prepared));
    // A stage that was reached before says nothing of this one.
    reach(&mut conductor, &[0, 1], Stage::normal(1));
    reach(&mut conductor, &[0], Stage::prepared(1));
    assert_eq!(conductor.directive(), (set(&[1]), prepared));
    reach(&mut conductor, &[1], Stage::prepared(1));
    assert_eq!(conductor.directive(), (set(&[2]), prepared));
    reach(&mut conductor, &[2], Stage::prepared(1));
    let scaling = Directive::Stage(Stage::scaling(1), set(&[1, 2]));
    assert_eq!(conductor.directive(), (set(&[0, 1, 2]), scaling));
    reach(&mut conductor, &[2, 1, 0], Stage::scaling(1));
    assert_eq!(conductor.view(), (2, set(&[0, 1])));
    let normal = Directive::Stage(Stage::normal(2), set(&[1, 2]));
    assert_eq!(conductor.directive(), (set(&[0, 1, 2]), normal));
    reach(&mut conductor, &[0, 1, 2], Stage::normal(2));
    assert!(conductor.has_reached_all());
    assert_eq!(conductor.view(), (2, set(&[1, 2])));
}

#[test]
fn a_failure_ends_what_is_under_way() {
    let mut conductor = Conductor::new(1, set(&[0, 1, 2]));
    assert!(conductor.change(set(&[0, 1])));
    reach(&mut conductor, &[0, 1, 2], Stage::prepared(1));
    conductor.fail(set(&[0]));
    // View 2 was in preparation.
    let failed = Directive::Failed(3, set(&[1, 2]), set(&[0]));
    assert_eq!(conductor.directive(), (set(&[1, 2]), failed));
    reach(&mut conductor, &[1, 2], Stage::scaling(1));
    assert!(!conductor.has_reached_all());
    reach(&mut conductor, &[1, 2], Stage::normal(3));
    assert!(conductor.has_reached_all());
    assert_eq!(conductor.view(), (3, set(&[1, 2])));
    conductor.fail(set(&[0]));
    assert!(conductor.has_reached_all(), "it is no member");
    // When all have failed, others begin with nothing.
    conductor.fail(set(&[1, 2]));
    assert!(conductor.has_reached_all());
    assert!(conductor.change(set(&[0])));
    assert!(conductor.has_reached_all());
    assert_eq!(conductor.view(), (5, set(&[0])));
}
