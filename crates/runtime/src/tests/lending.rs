//! Blocks that runtimes lend each other: a dry runtime has others' blocks, and whichever worker
//! dies meanwhile, no block is two runtimes'.

use super::groups::OURS;
use super::lent::{blocks, fill};
use super::sessions::{Members, SECOND};
use super::*;
use crate::switch::Policy;
use nf::{
    Addr, Affinity, Block, BlockWas, Cx, FlowState, Loan, Packet, PoolState, Verdict, WorkerInfo,
    network_function,
};
use std::cell::RefCell;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;
use std::{format, string::String, vec};

/// Blocks of each runtime's part, and how few are few.
const SHARE: u16 = 8;
const LOW: usize = 2;
const PORTS: u16 = 64;

/// Gives each inside host a block: the first that is free here, borrowed or own.
struct Sharer {
    home: u16,
    free: RefCell<BTreeSet<u16>>,
    /// Blocks of groups that are here.
    used: RefCell<BTreeSet<u16>>,
}

#[derive(FlowState, Default, Clone, Copy, Debug)]
#[repr(C)]
struct Taken {
    /// One more than the block's number, 0 for none.
    number: u16,
}

fn block(number: u16) -> Block {
    Block {
        addr: Addr::v4(OURS),
        first: (number + SHARE) * PORTS,
        ports: PORTS,
    }
}

fn number(block: Block) -> u16 {
    block.first / PORTS - SHARE
}

#[network_function]
impl NetworkFunction for Sharer {
    const NAME: &'static str = "sharer";
    const AFFINITY: Affinity = Affinity::InsideAddress;
    const REASONS: &'static [&'static str] = &["no_block"];
    type Config = NoConfig;
    type Flow = ();
    type Group = Taken;
    fn new(_: &Arc<NoConfig>, worker: &WorkerInfo) -> Result<Self, ConfigError> {
        let own = worker.runtime * SHARE..(worker.runtime + 1) * SHARE;
        Ok(Sharer {
            home: worker.runtime,
            free: RefCell::new(own.collect()),
            used: RefCell::default(),
        })
    }
    fn process(&self, _: &mut Packet, _: &mut (), cx: &mut Cx<Self>) -> Verdict {
        if cx.group().number == 0 {
            let Some(number) = self.free.borrow_mut().pop_first() else {
                return cx.drop("no_block");
            };
            self.used.borrow_mut().insert(number);
            cx.group().number = number + 1;
            assert!(cx.claim_block(block(number)));
        }
        Verdict::Forward
    }
    fn group_ended(&self, group: &mut Taken, cx: &mut Cx<Self>) {
        let Some(number) = group.number.checked_sub(1) else {
            return;
        };
        self.used.borrow_mut().remove(&number);
        if number / SHARE == self.home {
            self.free.borrow_mut().insert(number);
            assert!(cx.release_block(block(number)));
        } else {
            assert!(cx.return_block(block(number), number / SHARE));
        }
    }
    fn block_returned(&self, block: Block) {
        assert_eq!(number(block) / SHARE, self.home);
        if !self.used.borrow().contains(&number(block)) {
            self.free.borrow_mut().insert(number(block));
        }
    }
    fn block_in_use(&self, block: Block) -> BlockWas {
        if number(block) / SHARE != self.home {
            return BlockWas::Anothers;
        }
        match self.free.borrow_mut().remove(&number(block)) {
            true => BlockWas::Free,
            false => BlockWas::Out,
        }
    }
    fn pool(&self) -> Option<PoolState> {
        let free = self.free.borrow().len();
        Some(PoolState {
            free: free as u32,
            share: u32::from(SHARE),
            wants: if free < LOW { LOW as u16 } else { 0 },
            ..PoolState::default()
        })
    }
    fn lend_blocks(&self, loan: &Loan, lend: &mut dyn FnMut(Block)) {
        let mut free = self.free.borrow_mut();
        let stay = if loan.leaves { 0 } else { LOW };
        for _ in 0..loan.most {
            let may = |number: &&u16| [self.home, loan.to].contains(&(*number / SHARE));
            let Some(number) = free.iter().find(may).copied().filter(|_| free.len() > stay) else {
                return;
            };
            free.remove(&number);
            lend(block(number));
        }
    }
    fn borrow_block(&self, block: Block, home: u16) -> bool {
        assert_eq!(number(block) / SHARE, home);
        self.free.borrow_mut().insert(number(block))
    }
    fn forsake_block(&self, block: Block) {
        self.free.borrow_mut().remove(&number(block));
    }
    fn command(&self, _: &[&str]) -> Result<String, String> {
        let (free, used) = (self.free.borrow(), self.used.borrow());
        Ok(free
            .iter()
            .chain(used.iter())
            .map(|number| format!("{number} "))
            .collect())
    }
    fn timeout(&self, _: &()) -> Option<Duration> {
        Some(Duration::from_secs(10))
    }
}

/// Switches, two runtimes, and all hosts go to the first.
fn members(switches: usize) -> Members {
    of_runtimes(switches, 2)
}

fn of_runtimes(switches: usize, runtimes: usize) -> Members {
    let plan = plan(vec![factory::<Sharer>()]);
    let mut members = Members::all(switches, runtimes, Policy::LeastLoaded, plan);
    for switch in 0..switches {
        members.switch(switch).set_handicaps(vec![0, 1000, 1000]);
    }
    members.run_until_quiet();
    members
}

fn go_on(members: &mut Members, milliseconds: u64) {
    for _ in 0..milliseconds {
        members.now += 1_000_000;
        members.run_until_quiet();
    }
}

/// Which blocks a runtime has, free and in use.
fn has(members: &mut Members, runtime: usize) -> Vec<u16> {
    let all = members.runtime(runtime).command("sharer", &[]).unwrap();
    all.split_whitespace()
        .map(|number| number.parse().unwrap())
        .collect()
}

/// No block is two runtimes', or twice one's; answers how many are some runtime's.
fn assert_apart(members: &mut Members, what: &str) -> usize {
    assert_apart_of(members, 2, what)
}

/// The same of so many runtimes.
fn assert_apart_of(members: &mut Members, runtimes: usize, what: &str) -> usize {
    let first = has(members, 0);
    let second = if runtimes > 1 { has(members, 1) } else { vec![] };
    let all: BTreeSet<u16> = first.iter().chain(&second).copied().collect();
    assert_eq!(
        all.len(),
        first.len() + second.len(),
        "{what}: {first:?}, {second:?}"
    );
    all.len()
}

#[test]
fn a_runtime_that_runs_dry_has_blocks_of_others() {
    let mut members = members(2);
    for host in 1..=14 {
        fill(&mut members, host as usize % 2, host..host + 1);
        go_on(&mut members, 2);
    }
    assert_eq!((members.flows(), members.dropped("no_block")), (vec![14, 0], 0));
    assert_eq!(blocks(&mut members, 2), [14, 14]);
    // Blocks that the other will not do without are its own alone.
    // New hosts go there, then.
    go_on(&mut members, 2);
    fill(&mut members, 0, 15..17);
    assert_eq!((members.flows(), members.dropped("no_block")), (vec![14, 2], 0));
    assert_eq!(assert_apart(&mut members, "all used"), 16);
    go_on(&mut members, 400);
    fill(&mut members, 0, 17..18);
    assert_eq!(members.dropped("no_block"), 1);
    // Everything goes home, but for blocks that stay borrowed and free.
    members.now += 20 * SECOND;
    members.run_until_quiet();
    go_on(&mut members, 10);
    assert_eq!(assert_apart(&mut members, "over"), 16);
    assert!(has(&mut members, 1).iter().all(|number| number / SHARE == 1));
    members.check();
    members.assert_nothing_stays();
}

/// Some worker dies, and begins again, behind any number of single steps of a loan.
#[test]
fn a_worker_dies_during_a_loan_and_no_block_is_two_runtimes() {
    for switches in [1, 2] {
        for worker in 0..switches + 2 {
            for steps in 0..24 {
                let what = format!("{switches} switches, worker {worker} dies after {steps} steps");
                let mut members = members(switches);
                fill(&mut members, 0, 1..8);
                members.now += 1_000_000;
                for step in 0..steps {
                    members.now += 1000;
                    members.step(step % (switches + 2));
                }
                members.start(worker);
                if worker < switches {
                    members.switch(worker).wait_for_resync(SECOND);
                }
                for step in 0..3 * (switches + 2) {
                    members.now += 1000;
                    members.step(step % (switches + 2));
                    // A runtime that begins gives nothing out before it is told which blocks are in
                    // use.
                    if worker < switches {
                        assert_apart(&mut members, &what);
                    }
                }
                members.run_until_quiet();
                assert_apart(&mut members, &what);
                // The new runtime takes hosts, too.
                fill(&mut members, 0, 20..26);
                assert_apart(&mut members, &what);
                go_on(&mut members, 5);
                assert_apart(&mut members, &what);
                members.now += 3 * SECOND;
                go_on(&mut members, 5);
                members.now += 20 * SECOND;
                go_on(&mut members, 10);
                let left = assert_apart(&mut members, &what);
                // A loan that was under way when its borrower or a switch died may be lost until
                // its home begins again.
                let lost = if worker <= switches { LOW } else { 0 };
                assert!(left + lost >= 16, "{what}: {left} blocks are left");
                assert_eq!(blocks(&mut members, switches), vec![0; switches], "{what}");
            }
        }
    }
}

/// Runtime 1 leaves, and ends when it has lent all.
fn leave(members: &mut Members, switches: usize) {
    members.runtime(1).set_leaving(true);
    go_on(members, 5);
    assert!(members.runtime(1).has_no_flows());
    members.stop(switches + 1);
    members.run_until_quiet();
}

#[test]
fn a_runtime_that_leaves_lends_all_and_what_has_no_home_is_kept() {
    let mut members = members(2);
    fill(&mut members, 0, 1..5);
    leave(&mut members, 2);
    assert_eq!(has(&mut members, 0).len(), 16);
    for hosts in [5..17, 21..37] {
        fill(&mut members, 1, hosts);
        assert_eq!((members.flows()[0], members.dropped("no_block")), (16, 0));
        assert_eq!(blocks(&mut members, 2), [16, 16]);
        members.now += 20 * SECOND;
        go_on(&mut members, 5);
        assert_eq!((members.flows()[0], has(&mut members, 0).len()), (0, 16));
    }
    // The next of its number begins with none of them, and has some again.
    fill(&mut members, 0, 1..10);
    members.start(3);
    members.run_until_quiet();
    assert_eq!(assert_apart(&mut members, "home again"), 16);
    go_on(&mut members, 5);
    assert_eq!(assert_apart(&mut members, "later"), 16);
    assert!(!has(&mut members, 1).is_empty(), "it has asked for some");
    members.check();
}

/// Blocks that come back to a runtime that is to leave, others have, too.
#[test]
fn two_runtimes_leave_one_after_the_other() {
    let mut members = of_runtimes(2, 3);
    for runtime in [1, 2] {
        members.runtime(runtime).set_leaving(true);
        go_on(&mut members, 10);
        assert!(members.runtime(runtime).has_no_flows());
    }
    let all = [0, 1, 2].map(|runtime| has(&mut members, runtime).len());
    assert_eq!(all, [24, 0, 0]);
}

/// A switch in a process of its own begins again while a runtime is away whose functions stay.
#[test]
fn what_a_runtime_had_lent_as_it_left_is_its_next_ones_though_no_switch_knows() {
    for (switches, steps) in [(1, 0), (1, 3), (2, 0), (2, 3)] {
        let mut members = members(switches);
        for hosts in [1..8, 8..10, 10..12] {
            fill(&mut members, 0, hosts);
            go_on(&mut members, 5);
        }
        assert_eq!(members.flows(), [11, 0]);
        members.runtime(1).set_leaving(true);
        go_on(&mut members, 5);
        let before = members.take(1);
        members.run_until_quiet();
        members.stop(0);
        go_on(&mut members, 5);
        members.start(0);
        members.switch(0).wait_for_resync(SECOND);
        for step in 0..steps {
            members.now += 1000;
            members.step(step % (switches + 1));
        }
        members.start(switches + 1);
        members.runtime(1).inherit(before);
        members.run_until_quiet();
        assert_eq!(assert_apart(&mut members, "home again"), 16, "{switches} {steps}");
        assert_eq!(has(&mut members, 1).len(), 16 - 11, "{switches} {steps}");
        go_on(&mut members, 5);
        assert_eq!(assert_apart(&mut members, "later"), 16, "{switches} {steps}");
    }
}

#[test]
fn a_runtime_that_was_to_leave_takes_groups_when_it_has_blocks_again() {
    let mut members = members(1);
    members.runtime(1).set_leaving(true);
    go_on(&mut members, 5);
    assert_eq!((has(&mut members, 0).len(), has(&mut members, 1).len()), (16, 0));
    members.runtime(1).set_leaving(false);
    assert!(!members.runtime(1).takes_groups());
    go_on(&mut members, 5);
    assert!(members.runtime(1).takes_groups() && !has(&mut members, 1).is_empty());
    assert_eq!(assert_apart(&mut members, "stays"), 16);
}

/// Another runtime has ports, and too few to lend some: new hosts go there, however long that is
/// so, and groups that move may come. Neither holds where the rule is broken.
#[test]
fn a_dry_runtime_gets_no_new_host_while_another_has_ports() {
    for is_broken in [false, true] {
        let rule = ["", "a dry runtime gets no new groups"][usize::from(is_broken)];
        crate::replica::BROKEN.set(rule);
        let mut members = members(1);
        members.runtime(1).set_leaving(true);
        go_on(&mut members, 5);
        fill(&mut members, 0, 1..15);
        members.runtime(1).set_leaving(false);
        members.switch(0).set_handicaps(vec![1000, 0, 0]);
        go_on(&mut members, 5);
        assert!(!members.runtime(1).takes_groups());
        members.now += 3 * SECOND;
        go_on(&mut members, 200);
        assert!(has(&mut members, 1).is_empty());
        assert_eq!(members.runtime(1).is_dry(), !is_broken);
        assert_eq!(members.runtime(1).stats().dry, !is_broken);
        assert!(members.runtime(1).takes_groups());
        fill(&mut members, 0, 15..17);
        let refused = members.dropped("no_block");
        crate::replica::BROKEN.set("");
        if is_broken {
            assert_eq!(refused, 2);
            continue;
        }
        assert_eq!((refused, members.flows()), (0, vec![16, 0]));
        // No block is free at either now: both are as they were.
        go_on(&mut members, 400);
        assert!(!members.runtime(1).is_dry());
        // Hosts end, and blocks are lent again.
        members.now += 20 * SECOND;
        members.run_until_quiet();
        go_on(&mut members, 400);
        assert!(!has(&mut members, 1).is_empty() && !members.runtime(1).is_dry());
        fill(&mut members, 0, 20..21);
        assert_eq!((members.dropped("no_block"), members.flows()), (0, vec![0, 1]));
    }
}

/// A runtime that has used its borrowed blocks is dry again.
#[test]
fn a_runtime_is_dry_again_when_its_borrowed_blocks_are_used() {
    let mut members = members(1);
    members.runtime(1).set_leaving(true);
    go_on(&mut members, 5);
    fill(&mut members, 0, 1..14);
    members.runtime(1).set_leaving(false);
    members.switch(0).set_handicaps(vec![1000, 0, 0]);
    // One of three is lent.
    go_on(&mut members, 200);
    assert_eq!(has(&mut members, 1).len(), 1);
    fill(&mut members, 0, 14..15);
    assert_eq!(members.flows(), vec![13, 1]);
    go_on(&mut members, 400);
    assert!(members.runtime(1).is_dry());
    fill(&mut members, 0, 15..17);
    assert_eq!((members.dropped("no_block"), members.flows()), (0, vec![15, 1]));
}

/// Some worker dies, and begins again, behind any number of single steps: of a runtime that leaves,
/// or of groups that end when their blocks' home is not there.
#[test]
fn a_worker_dies_while_blocks_are_left_or_kept_and_none_is_two_runtimes() {
    for (switches, is_left) in [(1, false), (1, true), (2, false), (2, true)] {
        for worker in 0..switches + 2 {
            for steps in 0..24 {
                let what = format!("{switches} switches, left {is_left}, {worker} dies after {steps} steps");
                let mut members = members(switches);
                fill(&mut members, 0, 1..5);
                if is_left {
                    leave(&mut members, switches);
                    fill(&mut members, 0, 5..14);
                    members.now += 12 * SECOND;
                } else {
                    members.runtime(1).set_leaving(true);
                    members.now += 1_000_000;
                }
                let others = switches + usize::from(!is_left) + 1;
                for step in 0..steps {
                    members.now += 1000;
                    members.step(step % others);
                }
                members.start(worker);
                if worker < switches {
                    members.switch(worker).wait_for_resync(SECOND);
                }
                let others = others.max(worker + 1);
                for step in 0..3 * others {
                    members.now += 1000;
                    members.step(step % others);
                    // A runtime that begins gives nothing out before it is told which blocks are in
                    // use.
                    if worker < switches {
                        assert_apart_of(&mut members, others - switches, &what);
                    }
                }
                members.run_until_quiet();
                assert_apart_of(&mut members, others - switches, &what);
                // The new runtime takes hosts, too.
                fill(&mut members, 0, 20..26);
                assert_apart_of(&mut members, others - switches, &what);
                go_on(&mut members, 5);
                assert_apart_of(&mut members, others - switches, &what);
                members.now += 3 * SECOND;
                go_on(&mut members, 5);
                members.now += 20 * SECOND;
                go_on(&mut members, 10);
                let left = assert_apart_of(&mut members, others - switches, &what);
                // Borrowed blocks are out once their borrower or a switch has died, until their
                // home begins again.
                let lost = if worker <= switches { usize::from(SHARE) } else { 0 };
                assert!(left + lost >= 16, "{what}: {left} blocks are left");
                assert_eq!(blocks(&mut members, switches), vec![0; switches], "{what}");
            }
        }
    }
}
