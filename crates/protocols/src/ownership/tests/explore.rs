//! The invariants of every state of `model`, and the bounds of its exploration.

use super::super::*;
use super::model::{Action, Bounds, World};
use super::search::{self, Explored, Model};
use std::string::String;
use std::vec::Vec;
use std::{format, println};

impl Model for World {
    type Bounds = Bounds;
    type Action = Action;

    fn first(bounds: &Bounds) -> Self {
        World::new(bounds)
    }

    fn actions(&self, bounds: &Bounds) -> Vec<Action> {
        self.actions(bounds)
    }

    fn step(&mut self, action: Action, bounds: &Bounds) -> Result<(), String> {
        self.step(action, bounds)
    }

    fn is_end(&self, bounds: &Bounds) -> bool {
        // A route of a group that no runtime has is yet to be forgotten.
        self.is_end(bounds) && !self.actions(bounds).contains(&Action::Forget)
    }

    fn check_end(&self, bounds: &Bounds) -> Result<(), String> {
        self.check_end(bounds)
    }

    fn told(&self) -> String {
        let phases = self
            .runtimes
            .map(|machine| machine.map(|machine| machine.phase()));
        format!("{phases:?}")
    }
}

/// Runs with a rule broken.
fn with(bug: Bug, bounds: &Bounds) -> Result<Explored, String> {
    PLANTED.set(Some(bug));
    let found = search::explore::<World>(bounds);
    PLANTED.set(None);
    found
}

const CALM: Bounds = Bounds {
    homes: 1,
    packets: 2,
    moves: 1,
    losses: 0,
    hasty: 0,
    crash: false,
    switch_goes: false,
};

fn hold(name: &str, bounds: Bounds) {
    let found = search::explore::<World>(&bounds).unwrap_or_else(|story| panic!("{name}: {story}"));
    println!("{name}: {} states, {} ends", found.states, found.ends);
    assert!(found.ends > 0);
}

#[test]
fn there_and_back_with_everything_lost_once_and_said_twice() {
    hold(
        "one home, two moves, a loss",
        Bounds {
            moves: 2,
            losses: 1,
            hasty: 1,
            ..CALM
        },
    );
}

#[test]
fn two_homes_and_a_loss() {
    hold(
        "two homes, a loss",
        Bounds {
            homes: 2,
            packets: 1,
            losses: 1,
            ..CALM
        },
    );
}

#[test]
fn two_homes_and_two_packets() {
    hold("two homes, two packets", Bounds { homes: 2, ..CALM });
    hold(
        "two homes, two moves",
        Bounds {
            homes: 2,
            packets: 1,
            moves: 2,
            ..CALM
        },
    );
}

#[test]
fn a_crash_at_any_step() {
    hold(
        "one home, a crash, a loss",
        Bounds {
            losses: 1,
            crash: true,
            ..CALM
        },
    );
    hold(
        "two homes, a crash",
        Bounds {
            homes: 2,
            packets: 1,
            crash: true,
            ..CALM
        },
    );
    hold(
        "one home, a crash after a move",
        Bounds {
            packets: 1,
            moves: 2,
            losses: 1,
            crash: true,
            ..CALM
        },
    );
}

#[test]
fn a_switch_that_goes_at_any_step() {
    let going = Bounds {
        switch_goes: true,
        ..CALM
    };
    hold("one home that goes, two moves", Bounds { moves: 2, ..going });
    hold(
        "two homes, one goes",
        Bounds {
            homes: 2,
            packets: 1,
            ..going
        },
    );
    hold(
        "one home that goes, a crash",
        Bounds {
            packets: 1,
            crash: true,
            ..going
        },
    );
}

/// Each broken rule, and where it shows.
#[test]
fn every_rule_that_is_broken_is_noticed() {
    let two_homes = Bounds {
        homes: 2,
        packets: 1,
        ..CALM
    };
    let lossy = Bounds { losses: 1, ..CALM };
    let going = Bounds {
        switch_goes: true,
        ..CALM
    };
    let planted = [
        (Bug::OneAnswerIsEnough, two_homes, ""),
        (Bug::NoClear, CALM, "leaves behind"),
        (Bug::CancelsAfterReroute, CALM, ""),
        (Bug::ReturnsToSome, CALM, ""),
        (Bug::ResumesByItself, CALM, "two runtimes are active"),
        (Bug::NoWaitForEnd, CALM, "on a state that has seen"),
        (Bug::NoWaitForAnswer, CALM, "on a state that has seen"),
        (Bug::DropsCopyEarly, CALM, "the state is lost"),
        (Bug::SilentWhenEmpty, lossy, "end cannot be reached"),
        (Bug::AnswersOnce, lossy, "end cannot be reached"),
        (Bug::SaysDoneOnce, lossy, ""),
        (Bug::SilentOfGone, going, "end cannot be reached"),
        (Bug::WaitsForGone, going, "end cannot be reached"),
    ];
    for (bug, bounds, expected) in planted {
        let story = with(bug, &bounds).expect_err("a broken rule is noticed");
        let (why, way) = story.split_once('\n').expect("a story has lines");
        println!("{bug:?}: {why} ({} steps)", way.lines().count() - 1);
        assert!(why.contains(expected), "{bug:?}: {story}");
    }
}
