//! Membership and ownership together: a group while one of two runtimes stands still, is cut off,
//! or is not heard, and a view removes it, or not.
//!
//! # Theory of operation
//!
//! `explore` and `replicas` say by themselves which runtime is gone. Here no part of the model
//! does. A runtime is gone for another, and for the switch, when the view that *they* have has it
//! no more, and views come from the coordinator's machine alone. So [`World`] has the production
//! machines of both: a `Coordinator`, three `Membership`s, a `Home` and an `Ownership` at each
//! runtime.
//!
//! ```text
//!                  heartbeats, leases that are over
//!   two runtimes, a switch ──────────────────────► coordinator
//!      ▲   ◄───────── views, lists of suspects ───────┘
//!      │
//!      ├─ view without a worker ─► its words unread are dropped
//!      │        at a runtime ─► Ownership: Removed    at the switch ─► Course, TakenBack, Home
//!      └─ lease of the switch ─► looked at before a packet is processed, and before it leaves
//! ```
//!
//! *Time* is in steps. A word takes no longer than one between those that are never late: the
//! switch, the coordinator and one runtime. The other may be in trouble. It asks for its lease when
//! it likes, and reads the grant when it likes. Trouble begins at first, behind whatever was said
//! and done by then: the runtime takes no step; or nothing passes between it and all others; or the
//! coordinator and it do not hear each other. Trouble ends at any time, and the words that waited
//! in the links are read then; or never. Heartbeats alone may be lost.
//!
//! *Effects* are two: a packet is processed, and a packet is handed to the switch. They are two
//! actions, between which any time may pass.
//!
//! Invariants, in every state:
//!
//! - One runtime at most acts for the group (`World::check`).
//! - No runtime without its lease, and none that the newest view has removed, processes a packet or
//!   transmits one (`World::effect`).
//! - Views' numbers grow by one at the coordinator, and do not go back at members. No view follows
//!   a view that has not reached its members (`World::note_view`, `World::hear`), and a view that
//!   is said to have reached them has (`World::note_reached`).
//! - Each packet is processed once, in order; on the latest state as long as no runtime was removed
//!   (`World::process`).
//! - An end can be reached. All agree there which member has the group. It is the one that had it
//!   when the other was removed, and the one that acted for it last, if that was not removed. If
//!   the group went with its runtime, it begins at a member with the next packet
//!   (`World::check_end`).
//!
//! Explored to the end: a source or a target in trouble, for ever with two packets, or until it
//! ends; with a lost heartbeat and a move that is called back, too.
//!
//! Not here: copies and heirs (`replicas`), a log that is slow and a coordinator that begins again
//! (`membership::tests::explore`), several switches, a switch in trouble, a link between two
//! workers alone that is cut (`membership::unheard`), a runtime that comes again with another
//! incarnation, clocks of different rates.

mod world;

use super::search::{self, Explored, Model};
use crate::membership::{self, Bug};
use std::format;
use std::println;
use std::string::String;
use std::vec::Vec;
use world::{Action, Bounds, Broken, Check, Trouble, World};

impl Model for World {
    type Bounds = Bounds;
    type Action = Action;

    fn first(_: &Bounds) -> Self {
        World::new()
    }

    fn actions(&self, bounds: &Bounds) -> Vec<Action> {
        self.actions(bounds)
    }

    fn step(&mut self, action: Action, bounds: &Bounds) -> Check {
        self.step(action, bounds)
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

const ALL: &[Trouble] = &[Trouble::Stalls, Trouble::CutOff, Trouble::Unheard];

/// The source of the move.
const SOURCE: Bounds = Bounds {
    packets: 1,
    moves: 1,
    troubled: 0,
    troubles: ALL,
    ends: true,
    losses: 0,
    deadlines: false,
    ticks: 3,
    broken: None,
};

fn hold(name: &str, bounds: Bounds) {
    let found = search::explore::<World>(&bounds).unwrap_or_else(|story| panic!("{name}: {story}"));
    println!("{name}: {} states, {} ends", found.states, found.ends);
    assert!(found.ends > 0);
}

const TARGET: Bounds = Bounds {
    troubled: 1,
    ..SOURCE
};

/// Time passes here as a removal needs it.
#[test]
fn a_group_goes_on_where_a_runtime_is_in_trouble_for_ever() {
    for (which, end) in [("source", SOURCE), ("target", TARGET)] {
        let for_ever = Bounds {
            ends: false,
            ticks: 0,
            ..end
        };
        let two = Bounds {
            packets: 2,
            ..for_ever
        };
        hold(&format!("the {which}, for ever, two packets"), two);
        let late = Bounds {
            losses: 1,
            deadlines: true,
            ..for_ever
        };
        hold(&format!("the {which}, for ever, moves called back"), late);
    }
}

/// Heartbeats are lost, too, and moves called back.
#[test]
fn a_group_goes_on_where_trouble_ends() {
    for (which, end) in [("source", SOURCE), ("target", TARGET)] {
        hold(&format!("the {which}"), end);
        let late = Bounds {
            ticks: 1,
            losses: 1,
            deadlines: true,
            ..end
        };
        hold(&format!("the {which}, moves called back"), late);
    }
}

/// A rule of the model's drivers that is broken, and where it shows.
#[test]
fn a_lease_that_is_not_looked_at_and_a_removal_without_a_view_are_noticed() {
    let planted = [
        (
            Broken::ProcessesWithout,
            SOURCE,
            "processes a packet without its lease",
        ),
        (
            Broken::TransmitsWithout,
            SOURCE,
            "transmits a packet without its lease",
        ),
        (
            Broken::ReleasesWithout,
            TARGET,
            "processes a packet without its lease",
        ),
        (Broken::RemovedBySilence, SOURCE, "two runtimes act"),
        (Broken::ReadsRemoved, SOURCE, "a switch whose view has removed it"),
        (Broken::SaysDoneWithout, TARGET, "let go of the group"),
    ];
    for (broken, bounds, expected) in planted {
        let bounds = Bounds {
            broken: Some(broken),
            ..bounds
        };
        told(&broken, search::explore::<World>(&bounds), expected);
    }
}

/// A rule of membership that is broken, and where it shows: at what the group's runtimes do.
#[test]
fn a_runtime_that_is_removed_before_its_lease_is_out_is_noticed() {
    let planted = [
        (Bug::WithdrawsAtOnce, "has its lease, and view 2 has removed it"),
        (Bug::GrantsOn, "has its lease, and view 2 has removed it"),
        (Bug::CountsFromGrant, "has its lease, and view 2 has removed it"),
        (Bug::RemovedUnaware, "the end cannot be reached"),
    ];
    for (bug, expected) in planted {
        membership::PLANTED.set(Some(bug));
        let found = search::explore::<World>(&SOURCE);
        membership::PLANTED.set(None);
        told(&bug, found, expected);
    }
}

fn told(broken: &dyn core::fmt::Debug, found: Result<Explored, String>, expected: &str) {
    let story = found.expect_err("a broken rule is noticed");
    let (why, way) = story.split_once('\n').expect("a story has lines");
    println!("{broken:?}: {why} ({} steps)", way.lines().count() - 1);
    assert!(why.contains(expected), "{broken:?}: {story}");
}
