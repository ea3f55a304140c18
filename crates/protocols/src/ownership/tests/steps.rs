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
        [Output::Tell(T, Says::Open(epoch(5), homes))]
    );
    let mut t = Ownership::absent(T, homes);
    let open = Input::Hear(S, Says::Open(epoch(5), homes), Err(Refusal::Leaving));
    let refuse = Says::Refuse(epoch(5), Refusal::Leaving);
    assert_eq!(outputs(&mut t, open), [Output::Tell(S, refuse)]);
    assert_eq!(t.phase(), Phase::Absent);
    assert_eq!(
        outputs(&mut s, Input::Hear(T, refuse, OK)),
        [Output::Finished(Finished::Refused(Refusal::Leaving))]
    );
    assert!(s.may_move() && s.latest() == epoch(5));
}

#[test]
fn a_lower_epoch_is_fenced_and_who_is_fenced_stops() {
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
        [(S, SwitchSays::Rerouted(epoch(7)))]
    );
    // Again the same: answered again. Lower, or by a stranger: not.
    assert_eq!(
        said(&mut home, reroute(S, T, 7)),
        [(S, SwitchSays::Rerouted(epoch(7)))]
    );
    let stranger = RuntimeId(9);
    for (by, count) in [(S, 6), (stranger, 8)] {
        assert_eq!(
            said(&mut home, reroute(by, stranger, count)),
            [(by, SwitchSays::Fenced(epoch(7)))]
        );
    }
    assert_eq!(home.route, Some(T));
    let homes = Switches::one(0);
    let mut zombie = Ownership::active(stranger, epoch(3), homes, homes);
    let fenced = Input::HearSwitch(0, SwitchSays::Fenced(epoch(7)));
    assert_eq!(outputs(&mut zombie, fenced), [Output::Stop]);
    assert_eq!(zombie.take(0), Take::Stray);
    assert_eq!(outputs(&mut zombie, fenced), []);
}

#[test]
fn a_route_that_is_called_back_tells_who_was_to_have_it() {
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
        let moved = (T, SwitchSays::Moved(S, epoch(2)));
        assert_eq!(said[0], (S, SwitchSays::Rerouted(epoch(count))));
        assert_eq!(said[1..], if count == 2 { vec![moved] } else { vec![] });
    }
    // Where the first re-route never came, the one that was to have it hears of it nevertheless: it must say `End`.
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
        [Output::Tell(T, Says::Cancel(epoch(1)))]
    );
    let mut t = Ownership::absent(T, homes);
    outputs(&mut t, Input::Hear(S, Says::Open(epoch(1), homes), OK));
    assert_eq!(t.take(0), Take::Keep);
    assert_eq!(
        outputs(&mut t, Input::Hear(S, Says::Cancel(epoch(1)), OK)),
        [Output::CloseSlot, Output::Tell(S, Says::Canceled(epoch(1)))]
    );
    outputs(&mut s, Input::Hear(T, Says::Canceled(epoch(1)), OK));
    assert!(s.may_move());
}
