//! The search through all states of `model`, backwards from the ends, and what must hold at which bounds.

use super::super::*;
use super::model::{Action, Bounds, World};
use std::collections::{HashMap, VecDeque};
use std::hash::{BuildHasher, RandomState};
use std::string::String;
use std::vec::Vec;
use std::{format, println, vec};

/// What was found.
#[derive(Debug)]
struct Explored {
    states: usize,
    ends: usize,
}

/// All states within the bounds, or a violation and the shortest way to it.
fn explore(bounds: &Bounds) -> Result<Explored, String> {
    let hashers = [RandomState::new(), RandomState::new()];
    let name = |world: &World| {
        let [a, b] = hashers.each_ref().map(|hasher| hasher.hash_one(world));
        u128::from(a) << 64 | u128::from(b)
    };
    let first = World::new(bounds);
    let mut numbers = HashMap::from([(name(&first), 0_u32)]);
    let mut ways: Vec<Option<(u32, Action)>> = vec![None];
    let mut edges: Vec<(u32, u32)> = vec![];
    let mut ends: Vec<u32> = vec![];
    let mut frontier = VecDeque::from([(0_u32, first)]);
    while let Some((number, world)) = frontier.pop_front() {
        if world.is_end(bounds) {
            // A route of a group that no runtime has is yet to be forgotten.
            if !world.actions(bounds).contains(&Action::Forget) {
                world
                    .check_end(bounds)
                    .map_err(|why| told(bounds, &ways, number, None, &why))?;
                ends.push(number);
            }
        }
        for action in world.actions(bounds) {
            let mut next = world.clone();
            next.step(action, bounds)
                .map_err(|why| told(bounds, &ways, number, Some(action), &why))?;
            let new = numbers.len() as u32;
            let at = *numbers.entry(name(&next)).or_insert(new);
            if at == new {
                ways.push(Some((number, action)));
                frontier.push_back((at, next));
            }
            edges.push((at, number));
        }
    }
    let reached = reachable(ways.len(), &mut edges, &ends);
    match reached.iter().position(|reached| !reached) {
        Some(stuck) => Err(told(
            bounds,
            &ways,
            stuck as u32,
            None,
            "the end cannot be reached",
        )),
        None => Ok(Explored {
            states: ways.len(),
            ends: ends.len(),
        }),
    }
}

/// From where an end can be reached: `edges` lead backwards.
fn reachable(count: usize, edges: &mut Vec<(u32, u32)>, ends: &[u32]) -> Vec<bool> {
    edges.sort_unstable();
    edges.dedup();
    let mut reached = vec![false; count];
    let mut open = ends.to_vec();
    ends.iter().for_each(|end| reached[*end as usize] = true);
    while let Some(state) = open.pop() {
        let from = edges.partition_point(|(at, _)| *at < state);
        for (_, before) in edges[from..].iter().take_while(|(at, _)| *at == state) {
            if !core::mem::replace(&mut reached[*before as usize], true) {
                open.push(*before);
            }
        }
    }
    reached
}

/// A violation, told from the start.
fn told(
    bounds: &Bounds,
    ways: &[Option<(u32, Action)>],
    state: u32,
    last: Option<Action>,
    why: &str,
) -> String {
    let mut actions = Vec::from_iter(last);
    let mut at = state;
    while let Some((before, action)) = ways[at as usize] {
        actions.push(action);
        at = before;
    }
    actions.reverse();
    let mut world = World::new(bounds);
    let mut story = String::new();
    for (index, action) in actions.iter().enumerate() {
        let _ = world.step(*action, bounds);
        let phases = world
            .runtimes
            .map(|machine| machine.map(|machine| machine.phase()));
        story += &format!("{index:3} {action:?}: {phases:?}\n");
    }
    format!("{why}\n{story}{world:?}")
}

/// Runs with a rule broken.
fn with(bug: Bug, bounds: &Bounds) -> Result<Explored, String> {
    PLANTED.set(Some(bug));
    let found = explore(bounds);
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
    let found = explore(&bounds).unwrap_or_else(|story| panic!("{name}: {story}"));
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
