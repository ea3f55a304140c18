//! Workers that act by leases and views, and keep copies of each other's flows.

use super::flows::Meter;
use super::leases::{LEASE, TERM, begin, hear, id, packets, view};
use super::sessions::{Members, SECOND};
use super::*;
use crate::members::gone_between;
use crate::switch::Policy;
use protocols::membership::{Incarnation, Member, Membership, Standing, View, WorkerId};
use std::vec;

/// Two switches and two runtimes, which keep copies; the second switch and the second runtime never
/// meet.
fn with_copies(first: &View) -> Members {
    let mut members = Members::none(2, 2, Policy::LeastLoaded, plan(vec![factory::<Meter>()]));
    members.is_replicated = true;
    members.apart = Some((1, 3));
    members.recovery_max = SECOND;
    for (worker, id) in FOUR.into_iter().enumerate() {
        members.start(worker);
        let machine = Membership::new(id, Incarnation(1), TERM, first.clone());
        match worker {
            0 | 1 => members.switch(worker).begin_membership(machine),
            _ => members.runtime(worker - 2).begin_membership(machine),
        }
    }
    pass(&mut members, 12);
    members
}

/// Packets had waited for their copies under a lease. When the replica has these it is over, and no
/// packet that waited leaves.
#[test]
fn what_waited_for_its_copy_does_not_leave_without_a_lease() {
    let passed = |members: &mut Members| -> u64 {
        let of = |runtime| members.runtime(runtime).stats().passed;
        [0, 1].map(of).into_iter().sum()
    };
    for (rule, leaves) in [("", false), ("what leaves needs a lease", true)] {
        let mut members = with_copies(&view(1, &FOUR.map(|id| (id, 1))));
        members.feed(0, packets(1..9));
        pass(&mut members, 2);
        let before = passed(&mut members);
        members.switch(0).port_mut(0).input.extend(packets(1..9));
        // The switch, the runtimes: packets that they have processed wait for the other's word.
        for worker in [0, 2, 3] {
            members.now += 1000;
            members.step(worker);
        }
        assert_eq!(passed(&mut members), before, "copies are acknowledged first");
        // They stand still for longer than their leases, and read the acknowledgements then.
        members.now += 2 * LEASE;
        crate::replica::BROKEN.set(rule);
        for worker in [3, 2, 3, 2] {
            members.now += 1000;
            members.step(worker);
        }
        crate::replica::BROKEN.set("");
        let after = passed(&mut members);
        let lacking = members.dropped("no_lease");
        assert_eq!((after > before, lacking > 0), (leaves, !leaves), "{rule}");
    }
}

const FOUR: [WorkerId; 4] = [
    WorkerId::switch(0),
    WorkerId::switch(1),
    WorkerId::runtime(0),
    WorkerId::runtime(1),
];

/// Time passes, in quarters of a lease.
fn pass(members: &mut Members, quarters: usize) {
    for _ in 0..quarters {
        members.now += LEASE / 4;
        members.run_until_quiet();
    }
}

/// These workers hear of a view.
fn all_hear(members: &mut Members, workers: &[usize], view: &View) {
    for &worker in workers {
        let machine = match worker {
            0 | 1 => members.switch(worker).membership_mut(),
            _ => members.runtime(worker - 2).membership_mut(),
        };
        let machine = machine.unwrap();
        let gone = gone_between(machine.view(), view);
        machine.adopt(view.clone(), |_| ());
        match worker {
            0 | 1 => members.switch(worker).members(view.number, &gone),
            _ => members.runtime(worker - 2).members(view.number, &gone),
        }
    }
}

#[test]
fn flows_go_on_elsewhere_when_all_members_have_let_their_runtime_go() {
    for is_broken in [false, true] {
        let first = view(1, &FOUR.map(|id| (id, 1)));
        let mut members = with_copies(&first);
        members.feed(0, packets(1..9));
        members.feed(1, packets(9..17));
        pass(&mut members, 2);
        let flows = members.runtime(0).stats().flows;
        assert_eq!(members.runtime(0).stats().protected_by, Some(1));
        assert!(flows > 0 && members.switch(1).stats().routes > 0);
        if is_broken {
            crate::replica::BROKEN.set("members that were not met are waited for");
        }
        members.stop(2);
        let without = view(2, &[(FOUR[0], 1), (FOUR[1], 1), (FOUR[3], 1)]);
        all_hear(&mut members, &[0, 1, 3], &without);
        // Longer than packets wait where no view says which members there are.
        members.now += 20 * SECOND;
        pass(&mut members, 4);
        crate::replica::BROKEN.set("");
        let recovered = members.runtime(1).stats().recovered[0];
        let routes = members.switch(1).stats().routes;
        // Flows that the second switch has forgotten go on at the runtime that it does not hear.
        assert_eq!((recovered > 0, routes == 0), (is_broken, is_broken));
        if !is_broken {
            let last = view(3, &[(FOUR[0], 1), (FOUR[3], 1)]);
            all_hear(&mut members, &[0, 3], &last);
            pass(&mut members, 4);
            assert_eq!(members.runtime(1).stats().recovered, [flows, 0]);
        }
    }
}

/// A switch begins again when a runtime has failed, and learns of the view that removes that one
/// before the other runtimes do.
fn a_switch_learns_first() -> (usize, [u64; 2]) {
    let incarnations = |of: &[(usize, u64)]| -> Vec<_> {
        of.iter()
            .map(|(worker, incarnation)| (id(*worker), *incarnation))
            .collect()
    };
    let mut members = Members::none(1, 3, Policy::RoundRobin, plan(vec![factory::<Meter>()]));
    (members.is_replicated, members.recovery_max) = (true, SECOND);
    let first = view(1, &incarnations(&[(0, 1), (1, 1), (2, 1), (3, 1)]));
    for worker in 0..4 {
        members.start(worker);
        begin(&mut members, worker, 1, first.clone());
    }
    pass(&mut members, 12);
    members.feed(0, packets(1..31));
    pass(&mut members, 2);
    let before = members.runtime(0).stats().flows;
    assert!(before > 0 && members.flows().iter().sum::<u64>() == 30);
    members.stop(0);
    members.stop(1);
    let second = view(2, &incarnations(&[(0, 2), (1, 1), (2, 1), (3, 1)]));
    [2, 3]
        .iter()
        .for_each(|worker| hear(&mut members, *worker, &second));
    members.start(0);
    begin(&mut members, 0, 2, second);
    members.switch(0).wait_for_resync(4 * LEASE);
    pass(&mut members, 24);
    let third = view(3, &incarnations(&[(0, 2), (2, 1), (3, 1)]));
    members.switch(0).port_mut(0).input.extend(packets(1..31));
    hear(&mut members, 0, &third);
    let mut most = 0;
    let mut look = |members: &mut Members| {
        let flows: u64 = members.flows().iter().sum();
        most = most.max(flows as usize);
    };
    for step in 0..120 {
        if step == 30 {
            [2, 3]
                .iter()
                .for_each(|worker| hear(&mut members, *worker, &third));
        }
        members.now += 1000;
        members.step([0, 2, 3][step % 3]);
        look(&mut members);
    }
    pass(&mut members, 40);
    let recovered = [1, 2].map(|runtime| members.runtime(runtime).stats().recovered[0]);
    (most, [recovered.into_iter().sum(), before])
}

#[test]
fn a_switch_that_learns_first_of_a_removal_waits_for_what_others_have() {
    let (most, [recovered, before]) = a_switch_learns_first();
    assert_eq!((most, recovered), (30, before));
    crate::replica::BROKEN.set("words of removed incarnations are awaited");
    let (most, _) = a_switch_learns_first();
    crate::replica::BROKEN.set("");
    assert!(most > 30, "the broken rule is noticed");
}

#[test]
fn a_runtime_that_is_joining_keeps_no_copies() {
    let stands = |number, standing| {
        let member = |id| Member {
            id,
            incarnation: Incarnation(1),
            standing: if id == FOUR[3] {
                standing
            } else {
                Standing::Running
            },
        };
        View::new(number, FOUR.map(member).to_vec())
    };
    let mut members = with_copies(&stands(1, Standing::Joining));
    assert_eq!(members.runtime(0).stats().protected_by, None);
    all_hear(&mut members, &[0, 1, 2, 3], &stands(2, Standing::Running));
    pass(&mut members, 2);
    assert_eq!(members.runtime(0).stats().protected_by, Some(1));
}
