//! The search through all states of `world`, backwards from the ends, and the invariants with their
//! bounds.

use super::super::*;
use super::world::{Action, Bounds, Do, World};
use std::collections::{HashMap, VecDeque};
use std::string::String;
use std::vec::Vec;
use std::{format, println, vec};

/// The result of an exploration.
#[derive(Debug)]
struct Explored {
    states: usize,
    ends: usize,
    forwards: u8,
}

/// All states within the bounds, or a violation and the shortest way to it.
fn explore(bounds: &Bounds) -> Result<Explored, String> {
    let first = World::new(bounds);
    let mut numbers = HashMap::from([(first.name(), 0_u32)]);
    let mut ways: Vec<Option<(u32, Action)>> = vec![None];
    let mut edges: Vec<(u32, u32)> = vec![];
    let mut ends: Vec<u32> = vec![];
    let mut forwards = 0;
    let mut frontier = VecDeque::from([(0_u32, first)]);
    while let Some((number, world)) = frontier.pop_front() {
        forwards = forwards.max(world.forwards);
        if world.is_end(bounds) {
            world
                .check_end(bounds)
                .map_err(|why| told(bounds, &ways, number, None, &why))?;
            ends.push(number);
        }
        for action in world.actions(bounds) {
            let mut next = world.clone();
            next.step(action, bounds)
                .map_err(|why| told(bounds, &ways, number, Some(action), &why))?;
            let new = numbers.len() as u32;
            let at = *numbers.entry(next.name()).or_insert(new);
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
            forwards,
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
        let head = match action {
            Action::Deliver(from, to) => format!("{:?}", world.channels[*from][*to].first()),
            _ => String::new(),
        };
        let _ = world.step(*action, bounds);
        story += &format!("{index:3} {action:?} {head}\n");
    }
    format!("{why}\n{story}{world:#?}")
}

/// Runs with a rule broken.
fn with(bug: Bug, bounds: &Bounds) -> Result<Explored, String> {
    PLANTED.set(Some(bug));
    let found = explore(bounds);
    PLANTED.set(None);
    found
}

fn hold(name: &str, bounds: Bounds) {
    let begun = std::time::Instant::now();
    let found = explore(&bounds).unwrap_or_else(|story| panic!("{name}: {story}"));
    println!(
        "{name}: {} states, {} ends, {} forwards, {:?}",
        found.states,
        found.ends,
        found.forwards,
        begun.elapsed()
    );
    assert!(found.ends > 0);
}

const ALL: u64 = 0b111;

/// One key of runtime 0's, no change of views, nothing copied.
const CALM: Bounds = Bounds {
    members: ALL,
    keys: &[(0, 0)],
    copies: 0,
    scripts: [&[], &[], &[]],
    plan: &[],
    after: &[],
    fails: None,
    fails_again: None,
    is_zombie: false,
    is_quick: false,
    is_lent: false,
    is_hasty: false,
    is_written: false,
};

#[test]
fn one_object_goes_from_writer_to_writer() {
    hold(
        "three writers, two writes each of two",
        Bounds {
            scripts: [
                &[Do::Write(0)],
                &[Do::Write(0), Do::Get(0)],
                &[Do::Write(0), Do::Get(0)],
            ],
            ..CALM
        },
    );
    hold(
        "two writers and a reader",
        Bounds {
            scripts: [
                &[Do::Read(0), Do::Get(0)],
                &[Do::Write(0), Do::Read(0)],
                &[Do::Write(0)],
            ],
            ..CALM
        },
    );
}

#[test]
fn an_object_is_removed_while_others_want_it() {
    hold(
        "a removal among writers",
        Bounds {
            scripts: [
                &[Do::Write(0)],
                &[Do::Write(0), Do::Remove(0)],
                &[Do::Get(0), Do::Write(0)],
            ],
            ..CALM
        },
    );
    hold(
        "two removals",
        Bounds {
            scripts: [&[Do::Remove(0)], &[Do::Write(0)], &[Do::Write(0), Do::Remove(0)]],
            ..CALM
        },
    );
}

#[test]
fn calls_are_applied_once_and_their_order_is_free() {
    hold(
        "calls and reads",
        Bounds {
            scripts: [
                &[Do::Write(0), Do::Call(0)],
                &[Do::Call(0), Do::Read(0)],
                &[Do::Call(0)],
            ],
            ..CALM
        },
    );
    hold(
        "calls that do not wait, and a move",
        Bounds {
            scripts: [
                &[Do::Write(0), Do::Merge(0), Do::Merge(0)],
                &[Do::Untethered(0)],
                &[Do::Get(0)],
            ],
            is_quick: true,
            ..CALM
        },
    );
}

/// A reference is kept for as long as no other runtime wants the object.
const LENT: Bounds = Bounds {
    scripts: [
        &[Do::Write(0)],
        &[Do::Write(0), Do::Get(0)],
        &[Do::Write(0), Do::Remove(0)],
    ],
    is_lent: true,
    ..CALM
};

#[test]
fn a_reference_that_is_kept_goes_when_another_wants_the_object() {
    hold("three writers and a removal, lent", LENT);
    hold(
        "two writers while one leaves, lent",
        Bounds {
            keys: &[(0, 0)],
            scripts: [&[], &[Do::Write(0)], &[Do::Write(0)]],
            is_quick: false,
            is_lent: true,
            ..LEAVE
        },
    );
}

/// A holder asks for the end of its object, while others call it or want it.
const IDLE: Bounds = Bounds {
    scripts: [
        &[Do::Call(0)],
        &[Do::Write(0), Do::Expire(0)],
        &[Do::Call(0), Do::Write(0)],
    ],
    is_quick: true,
    ..CALM
};

#[test]
fn an_object_ends_by_time_with_nothing_that_was_acknowledged_since() {
    hold("calls and a writer", IDLE);
    hold(
        "a copy, the holder again, a reader",
        Bounds {
            copies: 1,
            scripts: [
                &[Do::Read(0)],
                &[Do::Write(0), Do::Expire(0), Do::Get(0)],
                &[Do::Write(0)],
            ],
            ..IDLE
        },
    );
    hold(
        "while it is removed",
        Bounds {
            scripts: [&[Do::Remove(0)], &[Do::Write(0), Do::Expire(0)], &[Do::Call(0)]],
            ..IDLE
        },
    );
    hold(
        "while its holder leaves",
        Bounds {
            keys: &[(0, 0)],
            scripts: [&[], &[], &[Do::Write(0), Do::Expire(0)]],
            ..LEAVE
        },
    );
    hold(
        "while a caller fails",
        Bounds {
            scripts: [&[], &[Do::Call(0)], &[Do::Write(0), Do::Expire(0)]],
            ..FAILS
        },
    );
}

#[test]
fn every_rule_of_an_end_by_time_that_is_broken_is_noticed() {
    find(&[
        (Bug::IdleServes, IDLE, "updates are lost"),
        (Bug::IdleUnchecked, IDLE, "updates are lost"),
        (Bug::IdleForgets, IDLE, "end cannot be reached"),
        (Bug::RecallsUnsaid, LENT, "end cannot be reached"),
    ]);
}

#[test]
fn an_answer_that_may_be_stale_is_one_that_was_given() {
    hold(
        "a reader of stale answers",
        Bounds {
            scripts: [
                &[Do::Stale(0), Do::Stale(0), Do::Read(0), Do::Stale(0)],
                &[Do::Write(0), Do::Call(0)],
                &[],
            ],
            ..COPIED
        },
    );
}

const COPIED: Bounds = Bounds {
    copies: 1,
    is_quick: true,
    ..CALM
};

#[test]
fn an_object_is_copied_before_an_update_is_acknowledged() {
    hold(
        "two writers, a reader, one copy",
        Bounds {
            scripts: [&[Do::Read(0)], &[Do::Write(0), Do::Get(0)], &[Do::Write(0)]],
            ..COPIED
        },
    );
    hold(
        "a removal, one copy",
        Bounds {
            scripts: [&[Do::Get(0)], &[Do::Write(0)], &[Do::Write(0), Do::Remove(0)]],
            ..COPIED
        },
    );
}

/// A runtime comes; the object's key goes to it.
const JOIN: Bounds = Bounds {
    members: 0b011,
    keys: &[(0, 2)],
    plan: &[
        (Stage::prepared(1), ALL),
        (Stage::scaling(1), ALL),
        (Stage::normal(2), ALL),
    ],
    is_quick: true,
    ..CALM
};

/// A runtime goes, whose the key is.
const LEAVE: Bounds = Bounds {
    members: ALL,
    keys: &[(2, 0)],
    plan: &[
        (Stage::prepared(1), 0b011),
        (Stage::scaling(1), 0b011),
        (Stage::normal(2), 0b011),
    ],
    ..JOIN
};

/// One runtime goes and another comes, and the key goes from the one to the other.
const REPLACE: Bounds = Bounds {
    members: 0b011,
    keys: &[(0, 2)],
    plan: &[
        (Stage::prepared(1), 0b110),
        (Stage::scaling(1), 0b110),
        (Stage::normal(2), 0b110),
    ],
    ..JOIN
};

#[test]
fn a_runtime_joins_at_any_step() {
    hold(
        "two writers while one joins",
        Bounds {
            scripts: [&[Do::Write(0)], &[Do::Write(0)], &[]],
            ..JOIN
        },
    );
    hold(
        "a writer and one that joins",
        Bounds {
            scripts: [&[], &[Do::Write(0)], &[Do::Write(0)]],
            ..JOIN
        },
    );
}

#[test]
fn a_runtime_leaves_at_any_step() {
    hold(
        "the owner and holder leaves",
        Bounds {
            scripts: [&[], &[Do::Get(0)], &[Do::Write(0)]],
            ..LEAVE
        },
    );
    hold(
        "a holder leaves",
        Bounds {
            keys: &[(0, 0)],
            scripts: [&[], &[Do::Write(0)], &[Do::Write(0)]],
            ..LEAVE
        },
    );
    hold(
        "one leaves and another comes",
        Bounds {
            scripts: [&[Do::Write(0)], &[Do::Write(0)], &[]],
            ..REPLACE
        },
    );
}

/// One runtime of three may fail.
const FAILS: Bounds = Bounds {
    copies: 1,
    fails: Some(1),
    is_quick: true,
    ..CALM
};

#[test]
fn a_runtime_fails_at_any_step() {
    hold(
        "a holder fails",
        Bounds {
            scripts: [&[], &[Do::Write(0)], &[Do::Write(0)]],
            ..FAILS
        },
    );
    hold(
        "the key owner fails",
        Bounds {
            fails: Some(0),
            scripts: [&[], &[Do::Write(0)], &[Do::Call(0)]],
            ..FAILS
        },
    );
    hold(
        "a caller fails",
        Bounds {
            scripts: [&[], &[Do::Call(0)], &[Do::Write(0), Do::Call(0)]],
            ..FAILS
        },
    );
}

/// Two of three fail, the second one while the first failure is heard of, or later. Each update was
/// at all three.
#[test]
fn a_second_runtime_fails_at_any_step() {
    hold(
        "a holder and a key owner fail",
        Bounds {
            copies: 2,
            fails: Some(1),
            fails_again: Some(0),
            scripts: [&[], &[Do::Write(0)], &[Do::Get(0)]],
            ..FAILS
        },
    );
}

#[test]
fn a_runtime_is_suspected_wrongly() {
    hold(
        "a holder is suspected",
        Bounds {
            is_zombie: true,
            scripts: [&[], &[Do::Write(0)], &[Do::Get(0)]],
            ..FAILS
        },
    );
}

/// Bounds that take minutes and some gigabytes: as many of them as `OBJECTS_LARGER` says, the first
/// one always.
#[test]
fn larger_bounds_hold() {
    let count = std::env::var("OBJECTS_LARGER").map_or(1, |count| {
        count
            .parse()
            .expect("OBJECTS_LARGER is how many of the larger bounds are explored")
    });
    let all = [
        (
            "two copies",
            Bounds {
                copies: 2,
                scripts: [&[], &[Do::Write(0)], &[Do::Write(0), Do::Call(0)]],
                ..FAILS
            },
        ),
        (
            "an end by time while its holder leaves",
            Bounds {
                keys: &[(0, 0)],
                scripts: [&[], &[Do::Call(0)], &[Do::Write(0), Do::Expire(0)]],
                ..LEAVE
            },
        ),
        (
            "two failures, two writers",
            Bounds {
                copies: 2,
                fails_again: Some(2),
                scripts: [&[Do::Get(0)], &[Do::Write(0)], &[Do::Write(0)]],
                ..FAILS
            },
        ),
        (
            "two writers and one that joins",
            Bounds {
                scripts: [&[Do::Write(0)], &[Do::Write(0)], &[Do::Write(0)]],
                ..JOIN
            },
        ),
        (
            "a removal while one joins",
            Bounds {
                scripts: [&[Do::Write(0)], &[Do::Write(0), Do::Remove(0)], &[]],
                ..JOIN
            },
        ),
        (
            "the owner and holder leaves, three ask",
            Bounds {
                scripts: [&[Do::Get(0)], &[Do::Write(0)], &[Do::Write(0)]],
                ..LEAVE
            },
        ),
        (
            "a holder leaves, which is asked again",
            Bounds {
                keys: &[(0, 0)],
                scripts: [&[], &[Do::Write(0), Do::Get(0)], &[Do::Write(0)]],
                ..LEAVE
            },
        ),
        (
            "one leaves and another comes, three ask",
            Bounds {
                scripts: [&[Do::Write(0)], &[Do::Write(0)], &[Do::Get(0)]],
                ..REPLACE
            },
        ),
        (
            "one joins, a copy",
            Bounds {
                copies: 1,
                scripts: [&[Do::Write(0)], &[Do::Write(0)], &[]],
                ..JOIN
            },
        ),
        (
            "calls while one leaves, a copy",
            Bounds {
                copies: 1,
                scripts: [&[], &[Do::Call(0)], &[Do::Write(0)]],
                ..LEAVE
            },
        ),
        (
            "a failure while one joins",
            Bounds {
                copies: 1,
                fails: Some(1),
                scripts: [&[], &[Do::Write(0)], &[Do::Write(0)]],
                ..JOIN
            },
        ),
        (
            "three writers, two writes, a holder fails",
            Bounds {
                scripts: [
                    &[Do::Get(0)],
                    &[Do::Write(0), Do::Write(0)],
                    &[Do::Write(0), Do::Call(0)],
                ],
                ..FAILS
            },
        ),
        (
            "references while a holder fails",
            Bounds {
                is_quick: false,
                scripts: [&[Do::Write(0)], &[Do::Write(0)], &[Do::Write(0)]],
                ..FAILS
            },
        ),
        (
            "a removal while a holder fails",
            Bounds {
                scripts: [
                    &[],
                    &[Do::Write(0), Do::Remove(0)],
                    &[Do::Write(0), Do::Remove(0)],
                ],
                ..FAILS
            },
        ),
        (
            "a suspected holder, two writers",
            Bounds {
                is_zombie: true,
                scripts: [&[Do::Write(0)], &[Do::Write(0), Do::Write(0)], &[Do::Get(0)]],
                ..FAILS
            },
        ),
        (
            "calls that do not wait, and a move",
            Bounds {
                scripts: [
                    &[Do::Write(0), Do::Merge(0), Do::Merge(0)],
                    &[Do::Untethered(0), Do::Read(0)],
                    &[Do::Get(0)],
                ],
                ..CALM
            },
        ),
    ];
    all.into_iter()
        .take(count)
        .for_each(|(name, bounds)| hold(name, bounds));
}

/// Each broken rule, and where it shows.
#[test]
fn every_rule_of_a_single_writer_that_is_broken_is_noticed() {
    let writers = Bounds {
        scripts: [&[Do::Write(0)], &[Do::Write(0)], &[Do::Write(0), Do::Get(0)]],
        ..CALM
    };
    let removal = Bounds {
        scripts: [&[Do::Get(0)], &[Do::Write(0)], &[Do::Write(0), Do::Remove(0)]],
        ..CALM
    };
    find(&[
        (Bug::TwoHolders, writers, "two runtimes have the object"),
        (Bug::LeaseStands, writers, ""),
        (Bug::TailStands, writers, ""),
        (Bug::ForgetsParked, writers, "end cannot be reached"),
        (Bug::ServesRemoving, removal, ""),
    ]);
}

#[test]
fn every_rule_of_a_transition_that_is_broken_is_noticed() {
    let join = Bounds {
        scripts: [&[Do::Write(0)], &[Do::Write(0)], &[]],
        ..JOIN
    };
    let leave = Bounds {
        keys: &[(0, 0)],
        scripts: [&[], &[Do::Write(0)], &[Do::Write(0)]],
        ..LEAVE
    };
    find(&[
        (Bug::PreparedStops, join, ""),
        (
            Bug::PreparedServes,
            Bounds {
                scripts: [&[Do::Write(0)], &[], &[Do::Write(0)]],
                ..JOIN
            },
            "",
        ),
        (Bug::PreparedWaits, join, ""),
        (Bug::ScalingServes, join, ""),
        (Bug::RelinquishesFirst, join, ""),
        (Bug::AllRelinquish, join, ""),
        (Bug::ScalingTakes, join, ""),
        (Bug::IdleKeysStay, join, ""),
        (Bug::CompleteAlone, join, ""),
        (Bug::LeavesEarly, leave, "is out"),
        (Bug::AdoptsUnawaited, leave, ""),
    ]);
}

#[test]
fn every_rule_of_a_failure_that_is_broken_is_noticed() {
    let holder = Bounds {
        scripts: [&[Do::Get(0)], &[Do::Write(0)], &[Do::Write(0)]],
        ..FAILS
    };
    let owner = Bounds {
        fails: Some(0),
        scripts: [&[], &[Do::Write(0)], &[Do::Write(0), Do::Call(0)]],
        ..FAILS
    };
    // The key owner has the first copy, and hears of its drop before the end: another one shows it.
    let removal = Bounds {
        copies: 2,
        scripts: [&[], &[Do::Write(0)], &[Do::Remove(0), Do::Get(0)]],
        ..FAILS
    };
    find(&[
        (Bug::ShipsUncopied, holder, ""),
        (Bug::AppliesAgain, owner, "applied twice"),
        (Bug::AcksBeforeCopy, holder, ""),
        (Bug::NoWaitForFlush, holder, ""),
        (Bug::AbsorbsNothing, Bounds { copies: 0, ..owner }, "lost"),
        (Bug::CopiesUnclaimed, holder, ""),
        (Bug::AnyClaimWins, holder, ""),
        (Bug::ServesBeforeClaims, holder, ""),
        (Bug::NoResubmission, owner, "end cannot be reached"),
        (Bug::GoneBeforeDropped, removal, ""),
    ]);
}

fn find(planted: &[(Bug, Bounds, &str)]) {
    for (bug, bounds, expected) in planted {
        let story = with(*bug, bounds).expect_err(&format!("{bug:?} is noticed"));
        let (why, way) = story.split_once('\n').expect("a story has lines");
        let steps = way.lines().take_while(|line| !line.starts_with("World")).count();
        println!("{bug:?}: {why} ({steps} steps)");
        assert!(why.contains(expected), "{bug:?}: {story}");
    }
}
