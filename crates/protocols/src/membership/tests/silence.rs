//! A coordinator that hears no member, or has just begun: which members it suspects, and the fate
//! of members that are heard again.

use super::super::*;
use super::steps::*;
use std::vec;
use std::vec::Vec;

const T: WorkerId = WorkerId::switch(1);

/// All of these have been heard until 200.
fn begun(members: &[WorkerId]) -> Rig {
    let mut rig = Rig::new(members);
    rig.beats(50..=200, members);
    rig
}

/// A coordinator that is cut off hears no member; members hear each other, and do not know it.
#[test]
fn a_coordinator_that_hears_no_member_suspects_none() {
    let all = [S, R, Q];
    for gap in [TIMING.suspicion, 190, 10_000] {
        let mut rig = begun(&all);
        for now in (210..200 + gap).step_by(5).chain([200 + gap]) {
            rig.handle(now, Input::Tick);
        }
        // The cut is over for one of them.
        let begins = 200 + gap;
        rig.beat(begins, &[S]);
        rig.withdrawn(begins + 5, S, R);
        assert_eq!(rig.log.len(), 1, "{gap}");
        // For the others it may last on, twice as long as it did, and a settling time at most.
        let patience = (2 * gap).min(TIMING.settling);
        for now in (begins..begins + patience).step_by(5) {
            rig.beat(now, &[S]);
        }
        assert_eq!(rig.log.len(), 1, "{gap}");
        let mut well = rig.coordinator.clone();
        let mut outputs = 0;
        for (id, now) in [
            (R, patience - 1),
            (Q, patience - 1),
            (S, patience),
            (S, patience + 1),
        ] {
            let beat = Input::Heartbeat(id, ONE, 1, u64::MAX);
            well.handle(begins + now, beat, |_| outputs += 1);
        }
        assert_eq!(outputs, 0, "{gap}: all are back in time");
        rig.beat(begins + patience, &[S, Q]);
        rig.beat(begins + patience, &[S, Q]);
        assert_eq!(rig.coordinator.suspects().1, vec![(R, ONE)], "{gap}");
    }
}

/// When the cut begins, some member was heard last.
#[test]
fn members_that_fall_silent_one_after_another_are_not_suspected_for_a_cut() {
    let mut rig = begun(&[S, R, Q]);
    rig.beat(212, &[Q]);
    rig.beat(224, &[S]);
    for now in 225..1000 {
        rig.handle(now, Input::Tick);
    }
    assert_eq!(rig.log.len(), 1);
}

#[test]
fn one_of_two_that_falls_silent_is_suspected_as_the_other_is_heard() {
    let mut rig = begun(&[S, R]);
    rig.beats(210..=240, &[S]);
    assert_eq!(rig.log.len(), 1);
    rig.beat(250, &[S]);
    assert_eq!(rig.log[1..], [Entry::Withdraw(R, ONE)]);
    // The other is silent, too: no member is left that could say that its leases are over.
    for now in (260..1000).step_by(10) {
        rig.handle(now, Input::Tick);
    }
    assert_eq!(rig.log.len(), 2);
}

/// Each pause is a cut, and excuses what fell silent in it.
#[test]
fn one_that_is_heard_with_pauses_excuses_another_once() {
    let mut rig = begun(&[S, R]);
    for now in (230..=290).step_by(30) {
        rig.beat(now, &[S]);
    }
    assert_eq!(rig.log.len(), 1);
    rig.beat(320, &[S]);
    assert_eq!(rig.log[1..], [Entry::Withdraw(R, ONE)]);
}

/// All have failed, and the first one begins again: a later view waits for it alone.
#[test]
fn a_process_that_asks_to_join_is_heard_as_a_member_is() {
    let mut rig = begun(&[S, R, Q]);
    rig.handle(201, Input::Stand(Q, ONE, Some(Standing::Leaving)));
    assert_eq!(rig.coordinator.view().number, 2);
    rig.handle(1000, Input::Tick);
    assert_eq!(
        rig.log.len(),
        2,
        "they have failed, or the coordinator is cut off"
    );
    rig.handle(1001, Input::Join(vec![(S, Incarnation(2))]));
    rig.handle(1001, Input::Stopped(S, ONE));
    assert_eq!(rig.log[2..], [Entry::Withdraw(S, ONE)]);
    for now in (1002..1101).step_by(3) {
        rig.handle(now, Input::Tick);
    }
    assert_eq!(rig.log.len(), 3);
    rig.handle(1101, Input::Tick);
    assert!(rig.coordinator.view().has(S, Incarnation(2)), "{:?}", rig.log);
}

/// All members leave at once: a view waits for none that says nothing else.
#[test]
fn a_process_that_asks_to_leave_is_heard_as_a_member_is() {
    let mut rig = begun(&[S, R]);
    rig.handle(201, Input::Stand(R, ONE, Some(Standing::Leaving)));
    assert_eq!(rig.coordinator.view().number, 2);
    rig.handle(202, Input::Stand(S, ONE, None));
    rig.handle(249, Input::Tick);
    assert!(rig.coordinator.view().has(S, ONE), "others may take the view");
    rig.handle(250, Input::Tick);
    assert!(!rig.coordinator.view().has(S, ONE), "{:?}", rig.log);
}

#[test]
fn before_members_can_have_returned_none_is_suspected_that_was_not_heard_yet() {
    let first = Entry::View(view(1, &[S, R, Q]));
    let mut rig = Rig::new(&[S, R, Q]);
    rig.coordinator = replay(1000, core::slice::from_ref(&first));
    rig.coordinator.wait_for_return(400);
    rig.beats(1010..=1190, &[S, Q]);
    // Q was heard, and falls silent: it is suspected as ever.
    rig.beats(1200..=1230, &[S]);
    assert_eq!(rig.log.len(), 1);
    rig.beat(1240, &[S]);
    assert_eq!(rig.log[1..], [Entry::Withdraw(Q, ONE)]);
    rig.beats(1250..=1490, &[S]);
    assert_eq!(rig.log.len(), 2, "R may be on its way");
    rig.beat(1500, &[S]);
    assert_eq!(rig.log[2..], [Entry::Withdraw(R, ONE)]);
}

/// Several are suspected and heard again, and the log is slow: their records wait.
#[test]
fn a_member_that_is_heard_again_is_not_removed_while_its_record_waits() {
    let all = [S, R, Q];
    let mut rig = begun(&all);
    rig.beats(210..=250, &[S]);
    assert_eq!(rig.coordinator.suspects().1, vec![(R, ONE), (Q, ONE)]);
    let mut decided = Vec::new();
    let mut handle = |coordinator: &mut Coordinator, now, input| {
        coordinator.handle(now, input, |output| {
            if let Output::Log(number, entry) = output {
                decided.push((number, entry));
            }
        });
        decided.clone()
    };
    let coordinator = &mut rig.coordinator;
    let beat = |id| Input::Heartbeat(id, ONE, 1, u64::MAX);
    handle(coordinator, 255, beat(R));
    handle(coordinator, 255, beat(Q));
    // The log takes its time, and the switch has withdrawn both.
    for of in [R, Q] {
        let word = Input::Withdrawn {
            by: S,
            incarnation: ONE,
            of: (of, ONE),
            list: u64::MAX,
        };
        handle(coordinator, 260, word);
    }
    let first = handle(coordinator, 265, beat(S));
    assert_eq!(first[..], [(3, Entry::Restore(R, ONE))]);
    handle(coordinator, 270, beat(Q));
    handle(coordinator, 275, Input::Logged(3));
    let second = handle(coordinator, 280, beat(Q));
    assert_eq!(second[1..], [(4, Entry::Restore(Q, ONE))]);
    handle(coordinator, 285, Input::Logged(4));
    assert_eq!(coordinator.suspects().1, vec![]);
    // A member that falls silent once more before its record is there goes.
    let mut rig = begun(&all);
    rig.beats(210..=250, &[S, Q]);
    rig.withdrawn(255, S, R);
    assert!(!rig.coordinator.view().has(R, ONE));
}

/// A switch hangs with the view that it has, and members leave that grant it no majority then.
#[test]
fn what_members_had_granted_that_have_left_is_over_after_a_promise() {
    let runtime = WorkerId::runtime;
    let rest = [T, R];
    let leave = [runtime(1), runtime(2), runtime(3)];
    let all = [S, T, R, leave[0], leave[1], leave[2]];
    let mut rig = begun(&all);
    rig.beats(210..=250, &all[1..]);
    assert_eq!(rig.log[1..], [Entry::Withdraw(S, ONE)]);
    // Of the one it is known that its process has ended, others say that they leave.
    rig.handle(255, Input::Stopped(leave[0], ONE));
    rig.beat(256, &[T, R, leave[1], leave[2]]);
    rig.handle(256, Input::Stand(leave[1], ONE, None));
    rig.beat(257, &[T, R, leave[2]]);
    rig.handle(257, Input::Stand(leave[2], ONE, None));
    rig.beat(258, &rest);
    assert_eq!(rig.coordinator.view().members().len(), 3, "{:?}", rig.log);
    for by in rest {
        rig.withdrawn(260, by, S);
    }
    rig.beats(260..=420, &rest);
    let over = 257 + TERM.promise();
    rig.beat(over - 1, &rest);
    assert!(
        rig.coordinator.view().has(S, ONE),
        "they may have granted it leases"
    );
    rig.beat(over, &rest);
    assert!(!rig.coordinator.view().has(S, ONE));
}

/// A member that a view has removed as silent may live, and grant leases by the view that it has.
#[test]
fn what_members_grant_that_were_removed_counts_on() {
    let all = [S, T, R, Q, WorkerId::runtime(2), WorkerId::runtime(3)];
    let mut rig = begun(&all);
    let silent = |id: &WorkerId| *id == Q || id.number >= 2;
    let heard: Vec<_> = all.into_iter().filter(|id| !silent(id)).collect();
    rig.beats(210..=250, &heard);
    for by in [S, T] {
        for of in all.into_iter().filter(silent) {
            rig.withdrawn(255, by, of);
        }
    }
    // S has heard of no view without them when it falls silent.
    for now in (260..2000).step_by(10) {
        rig.beat(now, &[T, R]);
        for by in [T, R] {
            rig.withdrawn(now, by, S);
        }
    }
    assert_eq!(
        rig.coordinator.view(),
        &view(rig.coordinator.view().number, &[S, T, R])
    );
}
