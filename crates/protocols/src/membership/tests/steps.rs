//! Leases, views and decisions, step by step.

use super::super::*;
use std::vec;
use std::vec::Vec;

pub(super) const TERM: Term = Term { lease: 160 };
pub(super) const TIMING: Timing = Timing {
    term: TERM,
    suspicion: 50,
    settling: 100,
    unheard: 1000,
};
pub(super) const S: WorkerId = WorkerId::switch(0);
pub(super) const R: WorkerId = WorkerId::runtime(0);
pub(super) const Q: WorkerId = WorkerId::runtime(1);
pub(super) const ONE: Incarnation = Incarnation(1);

pub(super) fn member(id: WorkerId, incarnation: u64) -> Member {
    Member {
        id,
        incarnation: Incarnation(incarnation),
        standing: Standing::Running,
    }
}

pub(super) fn view(number: u32, members: &[WorkerId]) -> View {
    View::new(number, members.iter().map(|id| member(*id, 1)).collect())
}

#[test]
fn a_holder_counts_from_when_it_asked_and_clocks_may_be_years_apart() {
    let (holder_ahead, mut lease, mut grant) =
        (40 * 365 * 86_400_000_000_000, Lease::default(), Grant::default());
    let asked = holder_ahead + 1000;
    // Read by the grantor 30 later, and back at the holder after 100.
    grant.grant(1030, TERM);
    lease.renew(holder_ahead + 1100, asked, TERM);
    assert_eq!(lease.until(), asked + 160);
    assert_eq!(grant.promised(), 1030 + 170);
    assert!(lease.is_valid(holder_ahead + 1159) && !lease.is_valid(holder_ahead + 1160));
    // A reading that is yet to come is no grant.
    lease.renew(holder_ahead + 1100, u64::MAX, TERM);
    assert_eq!(lease.until(), asked + 160);
}

#[test]
fn the_first_switch_decides_between_halves() {
    let small = view(1, &[S, R]);
    assert!(small.is_majority(small.weight(S)) && !small.is_majority(small.weight(R)));
    let large = view(1, &[S, WorkerId::switch(1), R, Q]);
    assert!(large.is_majority(large.weight(S) + large.weight(Q)));
    assert!(!large.is_majority(large.weight(WorkerId::switch(1)) + large.weight(Q)));
    assert_eq!(large.weight(WorkerId::runtime(9)), 0);
}

#[test]
fn a_runtime_acts_by_each_switchs_lease_and_a_switch_by_a_majority() {
    let other = WorkerId::switch(1);
    let all = view(1, &[S, other, R, Q]);
    let mut runtime = Membership::new(R, ONE, TERM, all.clone());
    let mut switch = Membership::new(other, ONE, TERM, all);
    assert!(!switch.may_act(10) && !runtime.may_act(10));
    // A switch that may not act grants nothing.
    assert_eq!(switch.grant(10, R, ONE, 7), None);
    for peer in [S, R] {
        switch.renew(10, peer, ONE, 5);
    }
    assert!(switch.may_act(164) && !switch.may_act(165));
    let asked = switch.grant(20, R, ONE, 7).expect("it may act");
    runtime.renew(20, other, ONE, asked);
    assert_eq!(runtime.may_act_for_until(other), 167);
    assert_eq!(runtime.may_act_for_until(S), 0);
    // Runtimes grant each other nothing, and no other incarnation of a member gets anything.
    assert_eq!(runtime.grant(20, Q, ONE, 7), None);
    assert_eq!(runtime.grant(20, other, Incarnation(2), 7), None);
}

#[test]
fn what_is_withdrawn_is_said_when_the_promise_is_over() {
    let mut runtime = Membership::new(R, ONE, TERM, view(1, &[S, R]));
    assert_eq!(runtime.grant(1000, S, ONE, 3), Some(3));
    runtime.suspect(4, &[(S, ONE)]);
    assert_eq!(runtime.grant(1001, S, ONE, 4), None);
    let poll = |runtime: &Membership, now| {
        let mut said = Vec::new();
        runtime.clone().poll(now, |notice| said.push(notice));
        said
    };
    assert_eq!(poll(&runtime, 1169), vec![]);
    assert_eq!(runtime.next_timeout(), Some(1170));
    assert_eq!(poll(&runtime, 1170), vec![Notice::Withdrawn(S, ONE, 4)]);
    // An older list says nothing; a newer one without it restores it.
    runtime.suspect(3, &[]);
    assert_eq!(runtime.grant(1171, S, ONE, 5), None);
    runtime.suspect(5, &[]);
    assert_eq!(runtime.grant(1172, S, ONE, 6), Some(6));
}

pub(super) fn replay(now: u64, log: &[Entry]) -> Coordinator {
    Coordinator::replay(now, TIMING, (0..).zip(log.iter().cloned())).expect("a log")
}

/// A coordinator with its log, and its words.
pub(super) struct Rig {
    pub(super) coordinator: Coordinator,
    pub(super) log: Vec<Entry>,
    said: Vec<(WorkerId, Word)>,
    reached: Vec<u32>,
}

impl Rig {
    pub(super) fn new(members: &[WorkerId]) -> Self {
        let first = Entry::View(view(1, members));
        Rig {
            coordinator: replay(0, core::slice::from_ref(&first)),
            log: vec![first],
            said: Vec::new(),
            reached: Vec::new(),
        }
    }

    pub(super) fn handle(&mut self, now: u64, input: Input) {
        let mut inputs = std::collections::VecDeque::from([input]);
        while let Some(input) = inputs.pop_front() {
            let (log, said, reached) = (&mut self.log, &mut self.said, &mut self.reached);
            self.coordinator.handle(now, input, |output| match output {
                Output::Log(number, entry) => {
                    assert_eq!(number, log.len() as u64);
                    log.push(entry);
                    inputs.push_back(Input::Logged(number));
                }
                Output::Say(to, word) => said.push((to, word)),
                Output::Reached(number) => reached.push(number),
            });
        }
    }

    /// All of these live, and have what there is.
    pub(super) fn beat(&mut self, now: u64, members: &[WorkerId]) {
        for id in members {
            let incarnation = self.coordinator.view().member(*id).expect("a member").incarnation;
            let number = self.coordinator.view().number;
            self.handle(now, Input::Heartbeat(*id, incarnation, number, u64::MAX));
        }
    }

    /// The same all the time.
    pub(super) fn beats(&mut self, times: core::ops::RangeInclusive<u64>, members: &[WorkerId]) {
        for now in times.step_by(10) {
            self.beat(now, members);
        }
    }

    pub(super) fn withdrawn(&mut self, now: u64, by: WorkerId, of: WorkerId) {
        let list = self.log.len() as u64;
        self.handle(
            now,
            Input::Withdrawn {
                by,
                incarnation: ONE,
                of: (of, ONE),
                list,
            },
        );
    }
}

#[test]
fn a_silent_runtime_goes_when_every_switch_has_withdrawn() {
    let mut rig = Rig::new(&[S, R, Q]);
    rig.beat(10, &[S, R, Q]);
    assert_eq!(rig.reached, vec![1]);
    rig.beats(20..=90, &[S, Q]);
    // No member is suspected before the coordinator has settled.
    rig.handle(99, Input::Tick);
    assert_eq!(rig.log.len(), 1);
    rig.beat(100, &[S, Q]);
    assert_eq!(rig.log.last(), Some(&Entry::Withdraw(R, ONE)));
    rig.withdrawn(120, Q, R);
    rig.beat(130, &[S, Q]);
    assert_eq!(rig.coordinator.view().number, 1);
    rig.withdrawn(140, S, R);
    assert_eq!(rig.coordinator.view(), &view(2, &[S, Q]));
    let (to, word) = rig.said.last().expect("it is said");
    assert!([S, Q].contains(to));
    assert_eq!(word, &Word::View(view(2, &[S, Q])));
    // Its process lives, and hears that it is none.
    rig.said.clear();
    rig.handle(150, Input::Heartbeat(R, ONE, 1, 0));
    assert_eq!(rig.said, vec![(R, Word::View(view(2, &[S, Q])))]);
}

/// It counts silence from when it went on; after a long standstill it waits for as long, and for a
/// settling time at most.
#[test]
fn a_coordinator_that_stood_still_suspects_no_member_for_as_long_again() {
    let Timing {
        suspicion, settling, ..
    } = TIMING;
    assert!(suspicion < settling);
    for (gap, patience) in [
        (suspicion / 2, suspicion),
        (suspicion + 5, suspicion + 5),
        (10 * settling, settling),
    ] {
        let mut rig = Rig::new(&[S, R, Q]);
        rig.beats(0..=settling + suspicion, &[S, R, Q]);
        // Heartbeats that came in meanwhile are heard; R falls silent.
        let now = settling + suspicion + gap;
        rig.beats(settling + suspicion..=now, &[S, R, Q]);
        rig.coordinator.stood_still(now, gap);
        rig.beats(now..=now + patience - 1, &[S, Q]);
        assert_eq!(rig.log.len(), 1, "{gap}");
        rig.beat(now + patience, &[S, Q]);
        assert_eq!(rig.log.last(), Some(&Entry::Withdraw(R, ONE)), "{gap}");
    }
}

#[test]
fn a_runtime_that_is_heard_again_stays_and_old_words_of_it_say_nothing() {
    let mut rig = Rig::new(&[S, R, Q]);
    rig.beat(60, &[S, Q]);
    rig.beat(100, &[S, Q]);
    rig.handle(101, Input::Heartbeat(R, ONE, 1, 0));
    assert_eq!(rig.log.last(), Some(&Entry::Restore(R, ONE)));
    let old = Input::Withdrawn {
        by: S,
        incarnation: ONE,
        of: (R, ONE),
        list: 1,
    };
    // Suspected a second time: the switch's word on the first time does not count for this one.
    rig.beat(140, &[S, Q]);
    rig.beat(151, &[S, Q]);
    assert_eq!(rig.log.last(), Some(&Entry::Withdraw(R, ONE)));
    rig.handle(152, old);
    rig.beat(153, &[S, Q]);
    assert_eq!(rig.coordinator.view().number, 1);
    rig.withdrawn(154, S, R);
    assert_eq!(rig.coordinator.view().number, 2);
}

#[test]
fn a_runtime_behind_a_dead_switch_waits_for_that_ones_promises() {
    let other = WorkerId::switch(1);
    let mut rig = Rig::new(&[S, other, R, Q]);
    rig.beat(60, &[S, other, R, Q]);
    rig.beat(100, &[S, Q]);
    rig.beat(111, &[S, Q]);
    rig.withdrawn(111, S, R);
    // Its process was seen to end: it is fenced at once, and its promises last on.
    rig.handle(120, Input::Stopped(other, ONE));
    assert_eq!(rig.coordinator.view(), &view(2, &[S, R, Q]));
    for now in (130..290).step_by(20) {
        rig.beat(now, &[S, Q]);
    }
    rig.beat(289, &[S, Q]);
    assert_eq!(rig.coordinator.view().number, 2);
    rig.beat(290, &[S, Q]);
    assert_eq!(rig.coordinator.view(), &view(3, &[S, Q]));
}

#[test]
fn a_later_incarnation_joins_when_the_one_before_is_fenced() {
    let mut rig = Rig::new(&[S, R]);
    rig.beat(10, &[S, R]);
    rig.handle(20, Input::Join(vec![(R, Incarnation(2))]));
    rig.beat(30, &[S, R]);
    assert_eq!(rig.coordinator.view().number, 1);
    rig.handle(40, Input::Stopped(R, ONE));
    let view = rig.coordinator.view().clone();
    assert_eq!(view.number, 2);
    let known = view.member(R).expect("it has joined");
    assert_eq!(
        (known.incarnation, known.standing),
        (Incarnation(2), Standing::Joining)
    );
    rig.beat(41, &[S, R]);
    rig.handle(42, Input::Stand(R, Incarnation(2), Some(Standing::Running)));
    assert_eq!(rig.coordinator.view().number, 3);
}

#[test]
fn a_restart_replays_the_log_and_decides_nothing_twice() {
    let mut rig = Rig::new(&[S, R, Q]);
    rig.beat(60, &[S, Q]);
    rig.beat(100, &[S, Q]);
    assert_eq!(rig.log.len(), 2);
    // Logged and not acted on: the coordinator dies. The next one goes on where the log ends.
    let mut again = Rig {
        coordinator: replay(1000, &rig.log),
        log: rig.log,
        said: Vec::new(),
        reached: Vec::new(),
    };
    let mut said = Vec::new();
    again.coordinator.say_again(|output| said.push(output));
    let suspects = Output::Say(S, Word::Suspects(1, vec![(R, ONE)]));
    assert!(said.contains(&suspects), "{said:?}");
    again.beat(1010, &[S, Q]);
    again.withdrawn(1020, S, R);
    assert_eq!(again.coordinator.view(), &view(2, &[S, Q]));
    assert_eq!(again.log.len(), 3);
}

#[test]
fn a_log_without_what_is_not_needed_is_short_and_leads_to_the_same() {
    let mut rig = Rig::new(&[S, R, Q]);
    rig.beat(99, &[S, R, Q]);
    // A member that comes and goes is suspected and restored a hundred times.
    for now in (100..10_100).step_by(100) {
        rig.beats(now..=now + 50, &[S, Q]);
        rig.beats(now + 51..=now + 99, &[S, R, Q]);
    }
    assert!(rig.log.len() > 200, "{}", rig.log.len());
    rig.beats(10_100..=10_150, &[S, Q]);
    let needed = rig.coordinator.needed();
    assert!(needed.len() <= 4, "{needed:?}");
    let log = || (0..).zip(rig.log.iter().cloned());
    let short = log().filter(|(number, _)| needed.contains(number));
    let short = Coordinator::replay(0, TIMING, short).expect("a log");
    let whole = Coordinator::replay(0, TIMING, log()).expect("a log");
    assert_eq!(short, whole);
    assert_eq!(short.needed(), needed);
    assert_eq!(short.suspects().1, vec![(R, ONE)]);
}

#[test]
fn what_is_no_log_is_refused() {
    let first = Entry::View(view(1, &[S]));
    let third = Entry::View(view(3, &[S]));
    let replay = |log: Vec<(u64, Entry)>| Coordinator::replay(0, TIMING, log).map(|_| ()).unwrap_err();
    assert_eq!(replay(vec![]), Unreadable::NoView);
    assert_eq!(replay(vec![(0, Entry::Withdraw(S, ONE))]), Unreadable::NoView);
    let twice = vec![(4, first.clone()), (4, Entry::Withdraw(S, ONE))];
    assert_eq!(replay(twice), Unreadable::Order(4));
    assert_eq!(replay(vec![(0, first), (1, third)]), Unreadable::View(1));
}

#[test]
fn the_word_of_a_switchs_later_incarnation_says_nothing_of_what_the_earlier_one_granted() {
    let mut rig = Rig::new(&[S, WorkerId::switch(1), R, Q]);
    let later = WorkerId::switch(1);
    rig.beat(60, &[S, later, R, Q]);
    rig.beat(100, &[S, later, Q]);
    rig.beat(111, &[S, later, Q]);
    rig.withdrawn(111, S, R);
    rig.handle(120, Input::Join(vec![(later, Incarnation(2))]));
    rig.handle(120, Input::Stopped(later, ONE));
    assert_eq!(rig.coordinator.view().number, 2);
    let word = Input::Withdrawn {
        by: later,
        incarnation: Incarnation(2),
        of: (R, ONE),
        list: rig.log.len() as u64,
    };
    for now in (130..290).step_by(20) {
        rig.handle(now, word.clone());
        rig.beat(now, &[S, later, Q]);
        assert_eq!(rig.coordinator.view().number, 2);
    }
    rig.beat(290, &[S, later, Q]);
    assert_eq!(rig.coordinator.view().number, 3);
}

const T: WorkerId = WorkerId::switch(1);

/// All live for a while, and switches say which runtimes they do not hear.
fn live(rig: &mut Rig, times: core::ops::Range<u64>, members: &[WorkerId], misses: &[(WorkerId, WorkerId)]) {
    for now in times.step_by(40) {
        rig.beat(now, members);
        for by in members.iter().filter(|id| id.role == Role::Switch) {
            let its = misses.iter().filter(|(switch, _)| switch == by);
            let incarnations = its.map(|(_, of)| (*of, ONE)).collect();
            rig.handle(now, Input::Unheard(*by, ONE, incarnations));
        }
    }
}

fn standing(rig: &mut Rig, id: WorkerId, standing: Standing) {
    let (number, members) = (rig.coordinator.view().number, rig.coordinator.view().members());
    let change = |member: &Member| match member.id == id {
        true => Member { standing, ..*member },
        false => *member,
    };
    let first = Entry::View(View::new(number, members.iter().map(change).collect()));
    rig.coordinator = replay(0, core::slice::from_ref(&first));
    rig.log = vec![first];
}

#[test]
fn a_runtime_that_one_switch_does_not_hear_goes() {
    let all = [S, T, R, Q];
    let mut rig = Rig::new(&all);
    live(&mut rig, 0..1000, &all, &[(T, R)]);
    assert_eq!(rig.log.len(), 1, "not before its time");
    live(&mut rig, 1000..1200, &all, &[(T, R)]);
    assert_eq!(
        rig.log[1..],
        [Entry::Withdraw(R, ONE)],
        "and not restored, though it is heard"
    );
    // The cut is over in time.
    live(&mut rig, 1200..1300, &all, &[]);
    assert_eq!(rig.log[2..], [Entry::Restore(R, ONE)]);
    live(&mut rig, 1300..2300, &all, &[(T, R)]);
    assert_eq!(rig.log.len(), 3, "its time begins again");
    live(&mut rig, 2300..2400, &all, &[(T, R)]);
    assert_eq!(rig.log[3..], [Entry::Withdraw(R, ONE)]);
    rig.withdrawn(2400, S, R);
    assert!(rig.coordinator.view().has(R, ONE));
    rig.withdrawn(2401, T, R);
    assert_eq!(rig.coordinator.view(), &view(2, &[S, T, Q]));
}

#[test]
fn a_switch_that_hears_few_is_the_one_that_goes() {
    let (all, misses) = ([S, T, R, Q], [(T, R), (T, Q)]);
    let mut rig = Rig::new(&all);
    live(&mut rig, 0..1200, &all, &misses);
    assert_eq!(rig.log[1..], [Entry::Withdraw(T, ONE)]);
    // A switch that joins waits; it reads no port.
    let mut rig = Rig::new(&all);
    standing(&mut rig, T, Standing::Joining);
    live(&mut rig, 0..1200, &all, &misses);
    assert_eq!(rig.log.len(), 1);
    // Where one runtime is joining, the other is all there are, and the same where no other switch
    // hears more.
    let mut rig = Rig::new(&all);
    standing(&mut rig, Q, Standing::Joining);
    live(&mut rig, 0..1200, &all, &[(T, R), (T, Q), (S, R)]);
    assert_eq!(rig.log.len(), 1);
    // A switch that joins and hears half has the other half removed.
    let mut rig = Rig::new(&all);
    standing(&mut rig, T, Standing::Joining);
    live(&mut rig, 0..1200, &all, &[(T, Q)]);
    assert_eq!(rig.log[1..], [Entry::Withdraw(Q, ONE)]);
}

#[test]
fn what_no_switch_of_the_view_says_counts_for_nothing() {
    let all = [S, T, R, Q];
    let mut rig = Rig::new(&all);
    for now in (0..1200).step_by(40) {
        live(&mut rig, now..now + 1, &all, &[]);
        let incarnations = vec![
            (Q, ONE),
            (R, Incarnation(2)),
            (S, ONE),
            (WorkerId::runtime(7), ONE),
        ];
        rig.handle(now, Input::Unheard(T, Incarnation(2), incarnations.clone()));
        rig.handle(now, Input::Unheard(R, ONE, incarnations.clone()));
        rig.handle(now, Input::Unheard(T, ONE, incarnations[1..].to_vec()));
    }
    assert_eq!(rig.log.len(), 1);
}

#[test]
fn a_switch_says_from_which_runtimes_it_has_no_lease() {
    let unheard = |machine: &Membership, now| {
        let mut incarnations = Vec::new();
        machine.unheard(now, |id, _| incarnations.push(id));
        incarnations
    };
    let all = view(1, &[S, T, R, Q]);
    let mut switch = Membership::new(T, ONE, TERM, all.clone());
    switch.renew(10, R, ONE, 5);
    assert_eq!(
        (unheard(&switch, 164), unheard(&switch, 165)),
        (vec![Q], vec![R, Q])
    );
    let mut runtime = Membership::new(R, ONE, TERM, all.clone());
    assert_eq!(unheard(&runtime, 10), vec![]);
    runtime.renew(10, S, ONE, 5);
    assert!(!runtime.has_all_leases(10));
    runtime.renew(10, T, ONE, 6);
    assert!(runtime.has_all_leases(164) && !runtime.has_all_leases(165));
    // A switch that joins tells of those alone that were there before it.
    let stands = |number, standings: [Standing; 3]| {
        let members = [T, R, Q].into_iter().zip(standings);
        let members = members.map(|(id, standing)| Member {
            standing,
            ..member(id, 1)
        });
        View::new(number, members.collect())
    };
    let (joining, running) = (Standing::Joining, Standing::Running);
    let mut switch = Membership::new(T, ONE, TERM, stands(1, [joining, running, joining]));
    assert_eq!(switch.earlier().collect::<Vec<_>>(), vec![(R, ONE)]);
    switch.adopt(stands(2, [joining, running, running]), |_| ());
    assert_eq!(unheard(&switch, 10), vec![R]);
    switch.adopt(stands(3, [running, running, running]), |_| ());
    assert_eq!(unheard(&switch, 10), vec![R, Q]);
    switch.adopt(view(4, &[T, Q]), |_| ());
    assert_eq!((switch.earlier().count(), unheard(&switch, 10)), (0, vec![Q]));
}

/// Rules whose breaking shows in one of the stories above.
#[test]
fn every_other_rule_that_is_broken_is_noticed() {
    let planted: [(Bug, fn()); 5] = [
        (Bug::RestoredUnheard, a_runtime_that_one_switch_does_not_hear_goes),
        (
            Bug::GrantsWithoutRight,
            a_runtime_acts_by_each_switchs_lease_and_a_switch_by_a_majority,
        ),
        (
            Bug::PromisesForgotten,
            a_runtime_behind_a_dead_switch_waits_for_that_ones_promises,
        ),
        (
            Bug::OldViewForgotten,
            a_runtime_behind_a_dead_switch_waits_for_that_ones_promises,
        ),
        (
            Bug::LaterIncarnationCounts,
            the_word_of_a_switchs_later_incarnation_says_nothing_of_what_the_earlier_one_granted,
        ),
    ];
    for (bug, story) in planted {
        PLANTED.set(Some(bug));
        let told = std::panic::catch_unwind(story);
        PLANTED.set(None);
        assert!(told.is_err(), "{bug:?} was not noticed");
    }
}

/// The numbers of entries that the coordinator logs next, and that are not in the log yet.
pub(super) fn unlogged(coordinator: &mut Coordinator, now: u64, input: Input) -> Vec<u64> {
    let mut numbers = Vec::new();
    coordinator.handle(now, input, |output| {
        if let Output::Log(number, _) = output {
            numbers.push(number);
        }
    });
    numbers
}

#[test]
fn a_suspect_that_one_view_fences_is_not_fenced_in_the_next() {
    let mut rig = Rig::new(&[S, R, Q]);
    rig.beat(10, &[S, R, Q]);
    rig.beats(20..=100, &[S, Q]);
    // R is suspected. S ends, and its promises last.
    rig.handle(101, Input::Stopped(S, ONE));
    assert_eq!(rig.coordinator.view(), &view(2, &[R, Q]));
    rig.handle(102, Input::Join(vec![(S, Incarnation(2))]));
    let beat = Input::Heartbeat(Q, ONE, 2, u64::MAX);
    let third = unlogged(&mut rig.coordinator, 103, beat);
    assert_eq!(
        third.len(),
        1,
        "a view with the next incarnation of S is on its way to the log"
    );
    // R has the view without any switch: it is fenced by that.
    unlogged(&mut rig.coordinator, 104, Input::Heartbeat(R, ONE, 2, u64::MAX));
    rig.log.push(Entry::View(view(0, &[])));
    rig.handle(105, Input::Logged(third[0]));
    assert_eq!(rig.coordinator.view().number, 3);
    // S has begun and may have granted R a lease.
    rig.beat(106, &[S, Q]);
    rig.beat(107, &[R]);
    assert!(rig.coordinator.view().has(R, ONE), "R may act");
}

#[test]
fn what_is_said_of_a_standing_while_a_view_is_on_its_way_is_in_the_next() {
    let mut rig = Rig::new(&[S, R, Q]);
    rig.beat(10, &[S, R, Q]);
    let leaves = Input::Stand(R, ONE, Some(Standing::Leaving));
    let second = unlogged(&mut rig.coordinator, 20, leaves);
    assert_eq!(second.len(), 1);
    // R has no flow left before the view is in the log that says that it leaves; Q is said to
    // leave.
    unlogged(&mut rig.coordinator, 21, Input::Stand(R, ONE, None));
    unlogged(
        &mut rig.coordinator,
        21,
        Input::Stand(Q, ONE, Some(Standing::Leaving)),
    );
    rig.log.push(Entry::View(view(0, &[])));
    rig.handle(22, Input::Logged(second[0]));
    rig.beat(23, &[S, R, Q]);
    let third = rig.coordinator.view();
    assert_eq!((third.number, third.member(R)), (3, None));
    assert_eq!(
        third.member(Q).map(|member| member.standing),
        Some(Standing::Leaving)
    );
    // A word about one incarnation is not about the next.
    rig.beat(24, &[S, Q]);
    rig.handle(25, Input::Join(vec![(R, Incarnation(2))]));
    rig.handle(26, Input::Stand(R, ONE, None));
    rig.beat(27, &[S, R, Q]);
    rig.beat(28, &[S, R, Q]);
    assert!(rig.coordinator.view().has(R, Incarnation(2)));
}

#[test]
fn what_one_incarnation_of_a_switch_has_withdrawn_another_may_grant() {
    let other = WorkerId::switch(1);
    let mut rig = Rig::new(&[S, other, R, Q]);
    rig.beat(60, &[S, other, Q]);
    rig.beat(100, &[S, other, Q]);
    assert_eq!(rig.log.last(), Some(&Entry::Withdraw(R, ONE)));
    rig.withdrawn(110, S, R);
    // The next incarnation of S knows of no suspect when it begins.
    rig.handle(111, Input::Stopped(S, ONE));
    rig.handle(112, Input::Join(vec![(S, Incarnation(2))]));
    rig.beat(113, &[other, Q]);
    assert!(rig.coordinator.view().has(S, Incarnation(2)) && rig.coordinator.view().has(R, ONE));
    rig.beat(114, &[S, other, Q]);
    rig.withdrawn(115, other, R);
    assert!(rig.coordinator.view().has(R, ONE), "S may have granted R a lease");
    let list = rig.log.len() as u64;
    let (by, incarnation, of) = (S, Incarnation(2), (R, ONE));
    rig.handle(
        116,
        Input::Withdrawn {
            by,
            incarnation,
            of,
            list,
        },
    );
    assert!(!rig.coordinator.view().has(R, ONE));
}

fn joins(workers: &[WorkerId]) -> Input {
    Input::Join(workers.iter().map(|id| (*id, ONE)).collect())
}

/// Of a process with three workers nothing is heard before all of them are in a view.
#[test]
fn all_workers_of_a_process_come_in_one_view_and_are_not_suspected_before_they_can_be_heard() {
    let others = [Q, WorkerId::runtime(2)];
    let mut rig = Rig::new(&[]);
    rig.handle(200, joins(&[R, others[0], others[1]]));
    assert_eq!(rig.coordinator.view().number, 2);
    assert_eq!(rig.coordinator.view().members().len(), 3);
    rig.handle(200 + 99, Input::Tick);
    assert_eq!(rig.coordinator.suspects().1, vec![]);
    // Each member is suspected as any other from when it was heard.
    rig.beat(299, &[R]);
    rig.handle(300, Input::Tick);
    rig.beat(301, &[R]);
    assert_eq!(
        rig.coordinator.view().members().len(),
        1,
        "no switch has granted the others a lease"
    );
    rig.handle(350, Input::Tick);
    rig.handle(351, Input::Join(vec![(R, Incarnation(2))]));
    rig.handle(450, Input::Tick);
    assert!(rig.coordinator.view().has(R, ONE));
    rig.handle(451, Input::Tick);
    assert!(rig.coordinator.view().has(R, Incarnation(2)));
}

#[test]
fn a_newcomer_that_is_not_heard_yet_delays_no_view() {
    let mut rig = Rig::new(&[S, R]);
    rig.beat(200, &[S, R]);
    rig.handle(201, joins(&[Q]));
    rig.beat(202, &[S, R]);
    assert_eq!(rig.coordinator.view().number, 2);
    rig.handle(203, joins(&[WorkerId::runtime(2)]));
    assert_eq!(rig.coordinator.view().number, 3, "a second one joins");
    assert!(rig.reached.contains(&2));
    rig.beat(204, &[S, R]);
    rig.handle(205, Input::Stopped(R, ONE));
    assert!(!rig.coordinator.view().has(R, ONE), "one that failed goes");
    // A switch that joins may grant a lease as soon as it has a view, so its word is waited for.
    let other = WorkerId::switch(1);
    let mut rig = Rig::new(&[S, R]);
    rig.beat(200, &[S, R]);
    rig.handle(201, joins(&[other]));
    for now in (210..=290).step_by(20) {
        rig.beat(now, &[S]);
    }
    assert_eq!(rig.log.last(), Some(&Entry::Withdraw(R, ONE)));
    rig.withdrawn(295, S, R);
    assert!(rig.coordinator.view().has(R, ONE));
    rig.beat(296, &[S, other]);
    rig.withdrawn(297, other, R);
    assert!(!rig.coordinator.view().has(R, ONE));
}

/// An entry that only its number keeps in the log suspects an incarnation that the view has no
/// more.
#[test]
fn behind_a_restart_the_next_incarnation_of_one_that_was_removed_is_suspected_as_any_other() {
    let newest = View::new(5, vec![member(S, 1), member(R, 2)]);
    // The views between are forgotten; the list has the number of the entry that changed it last.
    let log = vec![(2, Entry::Withdraw(R, ONE)), (7, Entry::View(newest))];
    let mut coordinator = Coordinator::replay(0, TIMING, log).expect("a log");
    assert_eq!(coordinator.suspects(), (2, vec![]));
    // The process of that incarnation has ended: its next one has asked to join, and says so.
    let mut decided = Vec::new();
    coordinator.handle(200, Input::Stopped(R, Incarnation(2)), |output| {
        if let Output::Log(_, entry) = output {
            decided.push(entry);
        }
    });
    assert!(
        decided.contains(&Entry::Withdraw(R, Incarnation(2))),
        "{decided:?}"
    );
    // A member of the view that was suspected before it stays a suspect.
    let newest = View::new(5, vec![member(S, 1), member(R, 1)]);
    let log = vec![(2, Entry::Withdraw(R, ONE)), (7, Entry::View(newest))];
    let coordinator = Coordinator::replay(0, TIMING, log).expect("a log");
    assert_eq!(coordinator.suspects(), (2, vec![(R, ONE)]));
}

/// A member that is heard and does not take the newest view holds up no other view for long.
#[test]
fn a_member_that_stays_at_an_old_view_is_suspected_as_one_that_is_silent() {
    let mut rig = Rig::new(&[S, R, Q]);
    let stuck = |rig: &mut Rig, now, view| {
        let list = rig.coordinator.suspects().0;
        rig.handle(now, Input::Heartbeat(Q, ONE, view, list));
    };
    rig.beat(200, &[S, R, Q]);
    rig.handle(201, Input::Stand(R, ONE, Some(Standing::Leaving)));
    assert_eq!(rig.coordinator.view().number, 2);
    // Another change waits for it as long as it may be slow.
    rig.handle(202, Input::Stand(R, ONE, None));
    for now in (210..1200).step_by(20) {
        rig.beat(now, &[S, R]);
        stuck(&mut rig, now, 1);
    }
    assert_eq!(
        (rig.coordinator.view().number, rig.coordinator.suspects().1),
        (2, vec![])
    );
    stuck(&mut rig, 1201, 1);
    assert_eq!(rig.coordinator.suspects().1, vec![(Q, ONE)]);
    assert_eq!(rig.coordinator.view().number, 3, "the change is made");
    assert!(!rig.coordinator.view().has(R, ONE));
    // The suspect beats on, is suspected on, and is removed when its leases are over.
    rig.beat(1202, &[S]);
    stuck(&mut rig, 1203, 1);
    assert_eq!(rig.coordinator.suspects().1, vec![(Q, ONE)]);
    rig.withdrawn(1204, S, Q);
    assert!(!rig.coordinator.view().has(Q, ONE));

    // A member that was slow is a member as before when it has the newest view.
    let mut rig = Rig::new(&[S, R, Q]);
    rig.beat(200, &[S, R, Q]);
    rig.handle(201, Input::Stand(R, ONE, Some(Standing::Leaving)));
    for now in (210..=1210).step_by(20) {
        rig.beat(now, &[S, R]);
        stuck(&mut rig, now, 1);
    }
    assert_eq!(rig.coordinator.suspects().1, vec![(Q, ONE)]);
    stuck(&mut rig, 1211, 2);
    assert_eq!(rig.coordinator.suspects().1, vec![]);
}
