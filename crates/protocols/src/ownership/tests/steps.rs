//! Single rules.

use super::super::*;
use std::vec;
use std::vec::Vec;

const S: RuntimeId = RuntimeId(0);
const T: RuntimeId = RuntimeId(1);
const OK: Result<(), Refusal> = Ok(());

fn epoch(count: u32) -> Epoch {
    Epoch { view: 0, count }
}

fn outputs(machine: &mut Ownership, input: Input) -> Vec<Output> {
    let mut all = vec![];
    machine.handle(input, |output| all.push(output));
    all
}

fn said(home: &mut Home, input: HomeInput) -> Vec<HomeOutput> {
    let mut all = vec![];
    home.handle(input, |output| all.push(output));
    all
}

#[test]
fn epochs_are_compared_by_view_first_and_do_not_wrap() {
    let (old, new) = (Epoch { view: 1, count: 9 }, Epoch { view: 2, count: 0 });
    assert!(old < new && epoch(3).next() == epoch(4));
    assert!(
        Epoch {
            view: 1,
            count: u32::MAX
        }
        .next()
            == new
    );
}

#[test]
fn a_refusal_leaves_everything_as_it_was() {
    let homes = Switches::first(2);
    let mut s = Ownership::active(S, epoch(4), homes, homes);
    assert_eq!(
        outputs(&mut s, Input::Move(T)),
        [Output::Tell(T, RuntimeMessage::Open(epoch(5), homes))]
    );
    let mut t = Ownership::absent(T, homes);
    let open = Input::FromRuntime(S, RuntimeMessage::Open(epoch(5), homes), Err(Refusal::Leaving));
    let refuse = RuntimeMessage::Refuse(epoch(5), Refusal::Leaving);
    assert_eq!(outputs(&mut t, open), [Output::Tell(S, refuse)]);
    assert_eq!(t.phase(), Phase::Absent);
    assert_eq!(
        outputs(&mut s, Input::FromRuntime(T, refuse, OK)),
        [Output::Finished(Finished::Refused(Refusal::Leaving))]
    );
    assert!(s.may_move() && s.latest() == epoch(5));
}

#[test]
fn a_lower_epoch_is_fenced_and_a_fenced_runtime_stops() {
    let mut home = Home::chosen(S);
    let reroute = |by, to, count| HomeInput::Reroute {
        by,
        from: S,
        to,
        epoch: epoch(count),
        is_removed: false,
    };
    assert_eq!(
        said(&mut home, reroute(S, T, 7)),
        [(S, SwitchMessage::Rerouted(epoch(7)))]
    );
    // Again the same: answered again. Lower, or by a stranger: not.
    assert_eq!(
        said(&mut home, reroute(S, T, 7)),
        [(S, SwitchMessage::Rerouted(epoch(7)))]
    );
    let stranger = RuntimeId(9);
    for (by, count) in [(S, 6), (stranger, 8)] {
        assert_eq!(
            said(&mut home, reroute(by, stranger, count)),
            [(by, SwitchMessage::Fenced(epoch(7)))]
        );
    }
    assert_eq!(home.route, Some(T));
    let homes = Switches::one(0);
    let mut zombie = Ownership::active(stranger, epoch(3), homes, homes);
    let fenced = Input::FromSwitch(0, SwitchMessage::Fenced(epoch(7)));
    assert_eq!(outputs(&mut zombie, fenced), [Output::Stop]);
    assert_eq!(zombie.take(0), Take::Stray);
    assert_eq!(outputs(&mut zombie, fenced), []);
}

#[test]
fn a_route_that_is_called_back_tells_the_target() {
    let mut home = Home::chosen(S);
    for (from, to, count) in [(S, T, 1), (T, S, 2)] {
        let by_source = HomeInput::Reroute {
            by: S,
            from,
            to,
            epoch: epoch(count),
            is_removed: false,
        };
        let said = said(&mut home, by_source);
        let moved = (T, SwitchMessage::Moved(S, epoch(2)));
        assert_eq!(said[0], (S, SwitchMessage::Rerouted(epoch(count))));
        assert_eq!(said[1..], if count == 2 { vec![moved] } else { vec![] });
    }
    // Where the first re-route never came, the one that was to have it hears of it nevertheless: it
    // must say `End`.
    let mut home = Home::chosen(S);
    let back = HomeInput::Reroute {
        by: S,
        from: T,
        to: S,
        epoch: epoch(2),
        is_removed: false,
    };
    assert_eq!(said(&mut home, back).len(), 2);
}

#[test]
fn a_group_that_ends_while_a_slot_is_asked_for_gives_it_back() {
    let homes = Switches::one(0);
    let mut s = Ownership::active(S, epoch(0), homes, homes);
    outputs(&mut s, Input::Move(T));
    assert_eq!(
        outputs(&mut s, Input::Ended),
        [Output::Tell(T, RuntimeMessage::Cancel(epoch(1)))]
    );
    let mut t = Ownership::absent(T, homes);
    outputs(
        &mut t,
        Input::FromRuntime(S, RuntimeMessage::Open(epoch(1), homes), OK),
    );
    assert_eq!(t.take(0), Take::Keep);
    assert_eq!(
        outputs(
            &mut t,
            Input::FromRuntime(S, RuntimeMessage::Cancel(epoch(1)), OK)
        ),
        [
            Output::CloseSlot,
            Output::Tell(S, RuntimeMessage::Canceled(epoch(1)))
        ]
    );
    outputs(
        &mut s,
        Input::FromRuntime(T, RuntimeMessage::Canceled(epoch(1)), OK),
    );
    assert!(s.may_move());
}

/// Both ends hear in turn: the source's inputs, and how the target answers them.
#[test]
fn a_source_that_is_fenced_tells_its_target_in_every_phase() {
    let homes = Switches::first(2);
    let from_home = |home, message| Input::FromSwitch(home, message);
    let (open, first, second) = (
        Input::FromRuntime(T, RuntimeMessage::Accept(epoch(1)), OK),
        from_home(0, SwitchMessage::Rerouted(epoch(1))),
        from_home(1, SwitchMessage::Rerouted(epoch(1))),
    );
    let late = Input::Fired(Timer::Deadline);
    let back = from_home(0, SwitchMessage::Rerouted(epoch(2)));
    let moved = from_home(0, SwitchMessage::Moved(S, epoch(2)));
    // The inputs of the source before it is fenced, and of the target with it.
    let ways: [(&[Input], &[Input]); 7] = [
        (&[], &[]),
        (&[late], &[]),
        (&[open], &[]),
        (&[open, first, second], &[]),
        (&[open, first, second, Input::Quiesced], &[]),
        (&[open, first, late], &[]),
        (&[open, first, late, back], &[moved]),
    ];
    let fenced = RuntimeMessage::Fenced(epoch(9));
    for (by_source, by_target) in ways {
        let mut s = Ownership::active(S, epoch(0), homes, homes);
        let mut t = Ownership::absent(T, homes);
        outputs(&mut s, Input::Move(T));
        outputs(
            &mut t,
            Input::FromRuntime(S, RuntimeMessage::Open(epoch(1), homes), OK),
        );
        by_source.iter().for_each(|input| drop(outputs(&mut s, *input)));
        by_target.iter().for_each(|input| drop(outputs(&mut t, *input)));
        let phases = (s.phase(), t.phase());
        let said = outputs(&mut s, from_home(1, SwitchMessage::Fenced(epoch(9))));
        assert_eq!(said, [Output::Tell(T, fenced), Output::Stop], "{phases:?}");
        // Of a stranger it is not heard.
        assert_eq!(
            outputs(&mut t, Input::FromRuntime(RuntimeId(9), fenced, OK)),
            [],
            "{phases:?}"
        );
        let closed = outputs(&mut t, Input::FromRuntime(S, fenced, OK));
        assert_eq!(
            (closed.as_slice(), t.phase()),
            (&[Output::CloseSlot][..], Phase::Absent),
            "{phases:?}"
        );
    }
    // With the state there, that decides.
    let mut t = Ownership::absent(T, homes);
    outputs(
        &mut t,
        Input::FromRuntime(S, RuntimeMessage::Open(epoch(1), homes), OK),
    );
    outputs(&mut t, Input::FromRuntime(S, RuntimeMessage::State(epoch(1)), OK));
    assert_eq!(outputs(&mut t, Input::FromRuntime(S, fenced, OK)), []);
    outputs(&mut t, from_home(0, SwitchMessage::Drained(epoch(1))));
    assert_eq!(
        outputs(&mut t, from_home(1, SwitchMessage::Drained(epoch(1)))),
        [Output::Install, Output::Tell(S, RuntimeMessage::Done(epoch(1)))]
    );
    assert_eq!(outputs(&mut t, Input::FromRuntime(S, fenced, OK)), []);
    assert!(t.is_active());
}

#[test]
fn a_source_is_fenced_by_its_target_and_by_homes_alone() {
    let homes = Switches::one(0);
    let mut s = Ownership::active(S, epoch(0), homes, homes);
    let fenced = |by| Input::FromRuntime(by, RuntimeMessage::Fenced(epoch(9)), OK);
    assert_eq!(outputs(&mut s, fenced(T)), []);
    outputs(&mut s, Input::Move(T));
    assert_eq!(outputs(&mut s, fenced(RuntimeId(9))), []);
    assert!(s.is_active());
    assert!(outputs(&mut s, fenced(T)).contains(&Output::Stop));
}

#[test]
fn a_target_that_was_told_of_another_fences_the_source() {
    let homes = Switches::one(0);
    let (mut s, mut t) = (
        Ownership::active(S, epoch(0), homes, homes),
        Ownership::absent(T, homes),
    );
    outputs(&mut s, Input::Move(T));
    outputs(
        &mut t,
        Input::FromRuntime(S, RuntimeMessage::Open(epoch(1), homes), OK),
    );
    outputs(
        &mut s,
        Input::FromRuntime(T, RuntimeMessage::Accept(epoch(1)), OK),
    );
    outputs(&mut s, Input::FromSwitch(0, SwitchMessage::Rerouted(epoch(1))));
    outputs(&mut s, Input::Quiesced);
    // One of two homes says that the group went to another runtime; the other is silent as yet.
    let moved = SwitchMessage::Moved(RuntimeId(9), epoch(5));
    outputs(&mut t, Input::FromSwitch(1, moved));
    assert!(matches!(t.phase(), Phase::Yielding { .. }));
    let fenced = RuntimeMessage::Fenced(epoch(5));
    assert_eq!(
        outputs(&mut t, Input::FromRuntime(S, RuntimeMessage::State(epoch(1)), OK)),
        [Output::Tell(S, fenced)]
    );
    assert!(outputs(&mut s, Input::FromRuntime(T, fenced, OK)).contains(&Output::Stop));
}

#[test]
fn a_move_that_is_over_does_not_turn_a_route_further() {
    let other = RuntimeId(2);
    let reroute = |from, to, count| HomeInput::Reroute {
        by: S,
        from,
        to,
        epoch: epoch(count),
        is_removed: false,
    };
    let mut home = Home::chosen(S);
    said(&mut home, reroute(S, T, 1));
    // Another group's key may be the same one; the runtime that had it has it no more.
    assert_eq!(
        said(&mut home, reroute(S, other, 3)),
        [(S, SwitchMessage::Fenced(epoch(1)))]
    );
    assert_eq!(home.route, Some(T));
    // The group may be called back.
    said(&mut home, reroute(T, S, 2));
    assert_eq!(home.route, Some(S));
}
