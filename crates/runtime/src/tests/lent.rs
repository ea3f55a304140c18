//! Blocks that a runtime had lent with groups that moved, when it begins again: no other group gets
//! them before they have come home.

use super::groups::{OURS, packet_of};
use super::sessions::{Members, SECOND, WAIT, everywhere};
use super::*;
use crate::switch::Policy;
use nf::{Affinity, Block, BlockWas, Cx, FlowState, Packet, Verdict, WorkerInfo, network_function};
use std::cell::RefCell;
use std::sync::Arc;
use std::time::Duration;
use std::vec;

impl Members {
    /// Frames that one worker sent another, and that have not been read, are read behind
    /// `meanwhile`.
    fn delayed(&mut self, from: usize, to: usize, meanwhile: impl FnOnce(&mut Self)) {
        let sent = self.queues.get(&(from, to)).map(|queue| queue.take());
        meanwhile(self);
        let mut sent = sent.unwrap_or_default();
        let mut queue = self.queues.entry((from, to)).or_default().borrow_mut();
        sent.append(&mut queue);
        *queue = sent;
    }

    /// A runtime that has no flows ends as a removed one does: the handover that the next of its
    /// number goes on with.
    pub(super) fn take(&mut self, runtime: usize) -> crate::worker::handover::Handover {
        let stats = self.runtime(runtime).stats();
        self.emitted += stats.emitted;
        self.left += stats.dropped.iter().map(|d| d.count).sum::<u64>();
        self.incarnations[self.switches.len() + runtime].set(0);
        let ended = self.runtimes[runtime].take();
        ended.expect("it is there").dismantle().handover
    }
}

/// Blocks of each runtime's share.
const SHARE: u16 = 8;
const PORTS: u16 = 64;

/// Gives each inside host a block of this runtime's share: the first that is free.
pub(super) struct Lender {
    home: u16,
    is_taken: RefCell<[bool; SHARE as usize]>,
}

#[derive(FlowState, Default, Clone, Copy, Debug)]
#[repr(C)]
pub(super) struct Lent {
    /// One more than the number of its share, 0 for no block.
    home: u16,
    number: u16,
}

impl Lent {
    fn block(self) -> Block {
        Block {
            addr: nf::Addr::v4(OURS),
            first: (self.home * SHARE + self.number) * PORTS,
            ports: PORTS,
        }
    }

    fn of(block: Block) -> Self {
        let place = block.first / PORTS;
        Lent {
            home: place / SHARE,
            number: place % SHARE,
        }
    }
}

#[network_function]
impl NetworkFunction for Lender {
    const NAME: &'static str = "lender";
    const AFFINITY: Affinity = Affinity::InsideAddress;
    const REASONS: &'static [&'static str] = &["no_block"];
    type Config = NoConfig;
    type Flow = ();
    type Group = Lent;
    fn new(_: &Arc<NoConfig>, worker: &WorkerInfo) -> Result<Self, ConfigError> {
        Ok(Lender {
            home: worker.runtime + 1,
            is_taken: RefCell::default(),
        })
    }
    fn process(&self, _: &mut Packet, _: &mut (), cx: &mut Cx<Self>) -> Verdict {
        if cx.group().home == 0 {
            let mut is_taken = self.is_taken.borrow_mut();
            let Some(number) = is_taken.iter().position(|taken| !taken) else {
                return cx.drop("no_block");
            };
            is_taken[number] = true;
            let lent = Lent {
                home: self.home,
                number: number as u16,
            };
            *cx.group() = lent;
            assert!(cx.claim_block(lent.block()));
        }
        Verdict::Forward
    }
    fn group_ended(&self, group: &mut Lent, cx: &mut Cx<Self>) {
        if group.home == self.home {
            self.is_taken.borrow_mut()[usize::from(group.number)] = false;
            assert!(cx.release_block(group.block()));
        } else if group.home != 0 {
            assert!(cx.return_block(group.block(), group.home - 1));
        }
    }
    fn block_returned(&self, block: Block) {
        let lent = Lent::of(block);
        assert_eq!(lent.home, self.home);
        self.is_taken.borrow_mut()[usize::from(lent.number)] = false;
    }
    fn block_in_use(&self, block: Block) -> BlockWas {
        let lent = Lent::of(block);
        if lent.home != self.home {
            return BlockWas::Anothers;
        }
        let is_taken = &mut self.is_taken.borrow_mut()[usize::from(lent.number)];
        match core::mem::replace(is_taken, true) {
            true => BlockWas::Out,
            false => BlockWas::Free,
        }
    }
    fn timeout(&self, _: &()) -> Option<Duration> {
        Some(Duration::from_secs(10))
    }
}

pub(super) fn blocks(members: &mut Members, switches: usize) -> Vec<u64> {
    (0..switches)
        .map(|switch| members.switch(switch).stats().blocks)
        .collect()
}

pub(super) fn fill(members: &mut Members, switch: usize, hosts: core::ops::Range<u8>) {
    members.feed(switch, hosts.map(packet_of));
}

/// Two switches and two runtimes, of which the second has all of six hosts with three blocks of
/// either's share.
fn after_a_move() -> Members {
    let mut members = Members::all(2, 2, Policy::LeastLoaded, plan(vec![factory::<Lender>()]));
    fill(&mut members, 0, 1..7);
    assert_eq!(members.flows(), [3, 3]);
    members.runtime(0).order(everywhere(0, 2)).unwrap();
    members.run_until_quiet();
    assert_eq!(members.flows(), [0, 6]);
    assert_eq!(blocks(&mut members, 2), [6, 6]);
    members
}

/// Everything comes home: as many hosts as there are blocks get one each.
fn assert_all_blocks_come_home(mut members: Members) {
    members.assert_nothing_stays();
    let refused = members.dropped("no_block");
    fill(&mut members, 1, 100..116);
    assert_eq!(
        (members.flows(), members.dropped("no_block")),
        (vec![8, 8], refused)
    );
    members.assert_nothing_stays();
}

#[test]
fn what_a_runtime_that_begins_anew_had_lent_is_given_to_nobody_else() {
    // The switches that begin again with it: none, either, or both.
    for switches in [&[][..], &[0], &[1], &[0, 1]] {
        let mut members = after_a_move();
        for switch in switches {
            members.start(*switch);
            members.switch(*switch).wait_for_resync(WAIT);
        }
        members.start(2);
        members.run_until_quiet();
        // It takes hosts again, with other blocks.
        fill(&mut members, 1, 10..14);
        assert_eq!(members.flows(), [4, 6], "{switches:?}");
        assert_eq!(blocks(&mut members, 2), [10, 10], "{switches:?}");
        assert_eq!(
            (members.dropped("too_early"), members.dropped("no_runtime")),
            (0, 0)
        );
        members.check();
        assert_all_blocks_come_home(members);
    }
}

#[test]
fn a_runtime_begins_no_group_before_it_is_told_which_blocks_are_in_use() {
    let mut members = after_a_move();
    // The second switch is not there, and may know of blocks that the first does not.
    members.stop(1);
    members.start(2);
    members.run_until_quiet();
    fill(&mut members, 0, 10..14);
    assert_eq!(members.dropped("too_early"), 0);
    assert_eq!(members.flows()[0], 0);
    let there = members.flows()[1];
    members.now += 2 * SECOND;
    members.run_until_quiet();
    fill(&mut members, 0, 20..24);
    assert!(members.flows()[0] > 0);
    let count = members.flows().iter().sum::<u64>();
    assert_eq!(
        (blocks(&mut members, 1), members.flows()[1]),
        (vec![count], there)
    );
    members.check();
}

#[test]
fn a_runtime_that_is_there_alone_takes_nothing_before_it_is_told() {
    let mut members = Members::all(2, 1, Policy::LeastLoaded, plan(vec![factory::<Lender>()]));
    members.stop(1);
    members.start(2);
    members.run_until_quiet();
    fill(&mut members, 0, 1..40);
    let early = members.dropped("too_early");
    assert!(early > 0);
    assert_eq!(members.flows(), [0]);
    members.start(1);
    members.run_until_quiet();
    fill(&mut members, 0, 1..6);
    assert_eq!(members.dropped("too_early"), early);
    assert!(members.flows()[0] > 0);
    members.check();
    members.assert_nothing_stays();
}

/// A runtime is removed, and the next of its number goes on with its functions. Its blocks have
/// come back at the first switch before that one is met, and come back at the second one later.
/// Whether anything of it is left to be waited for, and how many hosts get blocks then.
fn goes_on_with_functions_of_before() -> (bool, usize) {
    let mut members = after_a_move();
    let before = members.take(0);
    members.run_until_quiet();
    members.now += 11 * SECOND;
    for worker in [3, 0].into_iter().cycle().take(200) {
        members.now += 1000;
        members.step(worker);
    }
    assert_eq!(members.flows()[1], 0, "all have ended");
    members.delayed(3, 1, |members| {
        members.start(2);
        members.runtime(0).inherit(before);
        members.run_until_quiet();
    });
    members.run_until_quiet();
    let is_over = members.runtime(0).has_no_flows();
    let refused = members.dropped("no_block");
    fill(&mut members, 1, 100..116);
    assert_eq!(
        blocks(&mut members, 2),
        vec![members.flows().iter().sum::<u64>(); 2]
    );
    members.check();
    let got = members.flows().iter().sum::<u64>() as usize;
    assert_eq!(got + (members.dropped("no_block") - refused) as usize, 16);
    (is_over, got)
}

#[test]
fn blocks_that_a_predecessor_lent_come_home_whichever_switch_returns_them_first() {
    assert_eq!(goes_on_with_functions_of_before(), (true, 16));
    crate::replica::BROKEN.set("what a forerunner lent is noted");
    let (is_over, got) = goes_on_with_functions_of_before();
    crate::replica::BROKEN.set("");
    assert!(
        !is_over && got < 16,
        "a rule that is broken is noticed: {is_over}, {got}"
    );
}

#[test]
fn a_block_comes_home_by_the_switches_that_knew_it() {
    let mut members = after_a_move();
    members.start(2);
    members.run_until_quiet();
    // The second switch begins again, is told of the blocks, and says so.
    members.start(1);
    members.run_until_quiet();
    assert_eq!(blocks(&mut members, 2), [6, 6]);
    assert_all_blocks_come_home(members);
}
