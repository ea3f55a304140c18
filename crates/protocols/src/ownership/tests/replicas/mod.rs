//! The invariants of every state of `world`: with copies, and runtimes that crash.
//!
//! A runtime has the group, the next one keeps its copies, the third is there. The bounds: one
//! group, one switch that is home and exit; one packet and two crashes, or two packets and one; one
//! move, from whichever runtime has the group to either other; any delay of any word. The deadline
//! of a move, an operator's refusal and the end of the flow come at any moment.
//!
//! The demands: [`World::check`](world) and the checkers that it names, in every state; in the
//! states in which nothing is left to do, that one runtime has the group, and the switch leads
//! there, unless the group may be lost (`World::crash` says when); and from every state such a one
//! can be reached.

mod world;

use super::super::{Bug, PLANTED};
use super::search::{self, Explored, Model};
use std::println;
use std::string::String;
use std::vec::Vec;
use world::{Action, Bounds, Check, World};

impl Model for World {
    type Bounds = Bounds;
    type Action = Action;

    fn first(_: &Bounds) -> Self {
        World::new()
    }

    fn actions(&self, bounds: &Bounds) -> Vec<Action> {
        self.actions(bounds)
    }

    fn step(&mut self, action: Action, _: &Bounds) -> Check {
        self.step(action)
    }

    fn is_end(&self, bounds: &Bounds) -> bool {
        self.is_end(bounds)
    }

    fn check_end(&self, bounds: &Bounds) -> Check {
        self.check_end(bounds)
    }

    fn told(&self) -> String {
        self.told()
    }
}

fn hold(name: &str, bounds: Bounds) {
    let found = search::explore::<World>(&bounds).unwrap_or_else(|story| panic!("{name}: {story}"));
    println!("{name}: {} states, {} ends", found.states, found.ends);
    assert!(found.ends > 0);
}

/// Runs with a rule broken.
fn with(bug: Bug, bounds: &Bounds) -> Result<Explored, String> {
    PLANTED.set(Some(bug));
    let found = search::explore::<World>(bounds);
    PLANTED.set(None);
    found
}

const CALM: Bounds = Bounds {
    packets: 1,
    moves: 1,
    crashes: 0,
    ends: false,
    loses_done: false,
};

#[test]
fn copies_follow_a_group_that_moves_and_ends() {
    hold(
        "copies, a move",
        Bounds {
            packets: 2,
            ends: true,
            ..CALM
        },
    );
}

#[test]
fn a_group_goes_on_at_its_replica() {
    let still = Bounds {
        packets: 2,
        moves: 0,
        ends: true,
        ..CALM
    };
    hold("copies, a crash", Bounds { crashes: 1, ..still });
    hold("copies, two crashes", Bounds { crashes: 2, ..still });
}

#[test]
fn a_runtime_crashes_at_any_step_of_a_move() {
    hold(
        "copies, a move, a crash",
        Bounds {
            crashes: 1,
            ends: true,
            ..CALM
        },
    );
    hold(
        "copies, a move, a crash, two packets",
        Bounds {
            packets: 2,
            crashes: 1,
            ..CALM
        },
    );
}

#[test]
fn two_runtimes_crash_at_any_step_of_a_move() {
    hold("copies, a move, two crashes", Bounds { crashes: 2, ..CALM });
}

/// Each broken rule, and where it shows.
#[test]
fn every_rule_about_copies_that_is_broken_is_noticed() {
    let still = Bounds {
        moves: 0,
        crashes: 1,
        ..CALM
    };
    let moving = Bounds { crashes: 1, ..CALM };
    let planted = [
        (Bug::HeirBeforeReports, still, "no runtime acts"),
        (Bug::HeirWithoutWord, still, "the state is lost"),
        (Bug::StateBeforeWithdrawn, moving, "two runtimes act"),
        (Bug::LeavesBeforeKept, still, "its state is not at the replica"),
        (Bug::TargetIsAsked, moving, "the state is lost"),
        (Bug::SourceIsAsked, moving, "two runtimes act"),
    ];
    for (bug, bounds, expected) in planted {
        let story = with(bug, &bounds).expect_err("a broken rule is noticed");
        let (why, way) = story.split_once('\n').expect("a story has lines");
        println!("{bug:?}: {why} ({} steps)", way.lines().count() - 1);
        assert!(why.contains(expected), "{bug:?}: {story}");
    }
}

/// A target has installed the group, its copies are at the heir, and its last word to the source is
/// lost: the source hears of the heir, which goes on with the group, or says that it has ended.
#[test]
fn a_source_takes_no_group_back_that_an_heir_has() {
    let lossy = Bounds {
        crashes: 1,
        loses_done: true,
        ..CALM
    };
    hold("copies, a move, a crash, a lost word", lossy);
    let ending = Bounds { ends: true, ..lossy };
    hold("the same, and the group ends", ending);
    let packets = 2;
    hold("a lost word, two packets", Bounds { packets, ..lossy });
    for (bug, bounds) in [
        (Bug::TakenBackAtOnce, lossy),
        (Bug::TakenBackFromCopies, lossy),
        (Bug::SourceIsLeftToAsk, ending),
        (Bug::EndIsNotSaid, ending),
    ] {
        let story = with(bug, &bounds).expect_err("a broken rule is noticed");
        println!("{bug:?}: {}", story.lines().next().unwrap_or_default());
    }
}

/// A target waits for its replica before *Done*, and takes no group with it, whatever is lost.
#[test]
fn a_target_takes_no_group_with_it() {
    let crash = Bounds { crashes: 1, ..CALM };
    let story = with(Bug::DoneBeforeCopied, &crash).expect_err("a broken rule is noticed");
    let (why, _) = story.split_once('\n').expect("a story has lines");
    println!("{:?}: {why}", Bug::DoneBeforeCopied);
    assert!(why.contains("its group was at no other"), "{story}");
}
