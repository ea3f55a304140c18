//! Single machines, message by message: steps that need a clock, a bound or a hostile peer.

use super::super::*;
use super::world::{Bits, id};
use std::vec::Vec;

type Machine = Objects<Bits>;

fn caller(number: usize) -> Caller {
    Caller {
        runtime: id(number),
        incarnation: 1,
    }
}

fn machine(number: usize, members: u64) -> Machine {
    let settings = ObjectSettings {
        queue_max: 4,
        ..ObjectSettings::default_with(7, 0)
    };
    Objects::new(caller(number), 1, Members(members), settings)
}

fn outputs(machine: &mut Machine) -> Vec<Output<Bits>> {
    core::iter::from_fn(|| machine.poll()).collect()
}

fn tell(machine: &mut Machine, now: u64, input: Input<Bits>) -> Vec<Output<Bits>> {
    machine.handle(now, input);
    outputs(machine)
}

/// A key that runtime 1 of these members owns.
fn key_of_one(members: u64) -> Key {
    (0..)
        .filter_map(|n: u16| Key::new(n, b"key"))
        .find(|key| Members(members).first(key, 7) == Some(id(1)))
        .expect("a key of runtime 1")
}

#[test]
fn a_stale_result_is_good_for_its_bound_from_when_it_was_asked() {
    let mut reader = machine(0, 0b11);
    let key = key_of_one(0b11);
    let asked = tell(&mut reader, 1000, Input::Read(key, 0, 1, 500));
    assert!(matches!(&asked[..], [Output::Send(_, Message::Request(_))]));
    // The answer takes long: that is no longer incarnation.
    let answered = tell(
        &mut reader,
        1400,
        Input::Receive(id(1), Message::Result(key, 1, Some(5))),
    );
    assert_eq!(answered, [Output::Answered(1, Some(5))]);
    assert_eq!(
        tell(&mut reader, 1499, Input::Read(key, 0, 2, 500)),
        [Output::Answered(2, Some(5))]
    );
    assert_eq!(tell(&mut reader, 1499, Input::Read(key, 0, 3, 499)).len(), 1);
    let late = tell(&mut reader, 1500, Input::Read(key, 0, 4, 500));
    assert!(matches!(&late[..], [Output::Send(_, Message::Request(_))]));
    // A refresh that fails extends nothing.
    tell(&mut reader, 1501, Input::Receive(id(1), Message::Absent(key, 3)));
    let later = tell(&mut reader, 1502, Input::Read(key, 0, 5, 500));
    assert!(matches!(&later[..], [Output::Send(_, Message::Request(_))]));
}

#[test]
fn calls_that_do_not_wait_go_when_the_first_is_due() {
    let mut caller = machine(0, 0b11);
    let key = key_of_one(0b11);
    assert!(tell(&mut caller, 10, Input::Call(key, 1, 1, How::Untethered)).is_empty());
    assert!(tell(&mut caller, 60_000, Input::Call(key, 2, 2, How::Merged)).is_empty());
    let due = caller.next_timeout().expect("a flush is due");
    assert_eq!(due, 10 + 100_000, "from the first call that was buffered");
    assert!(tell(&mut caller, due - 1, Input::Tick).is_empty());
    let sent = tell(&mut caller, due, Input::Tick);
    let [Output::Send(_, Message::Request(request))] = &sent[..] else {
        panic!("one request: {sent:?}");
    };
    assert_eq!(request.op, Op::Call(3), "the second is in the first");
}

#[test]
fn a_requester_whose_object_has_gone_again_asks_again() {
    let mut requester = machine(0, 0b11);
    let key = key_of_one(0b11);
    tell(&mut requester, 0, Input::Acquire(key, 1, None));
    let yours = |id_: u64| Input::Receive(id(1), Message::Yours(key, id_));
    assert!(tell(&mut requester, 0, yours(1)).is_empty());
    let due = requester.next_timeout().expect("it is asked for later");
    let again = tell(&mut requester, due, Input::Tick);
    let [Output::Send(_, Message::Request(request))] = &again[..] else {
        panic!("one request: {again:?}");
    };
    assert_eq!((request.id, &request.op), (2, &Op::GetWrite));
    PLANTED.set(Some(Bug::YoursIsTrusted));
    tell(&mut requester, due, yours(2));
    PLANTED.set(None);
    assert_eq!(requester.next_timeout(), None, "the rule is what asks again");
}

/// A record that leads to its own owner, which has no object: only a peer that breaks the rules
/// sends it.
#[test]
fn a_wrong_record_makes_no_circle() {
    let mut owner = machine(1, 0b11);
    let key = (0..)
        .filter_map(|n: u16| Key::new(n, b"key"))
        .find(|key| Members(0b11).first(key, 7) == Some(id(0)) && Members(0b10).first(key, 7) == Some(id(1)))
        .expect("a key that goes from 0 to 1");
    tell(&mut owner, 0, Input::Stage(Stage::prepared(1), Members(0b10)));
    let generation = Gen {
        view: 1,
        count: 1,
        owner: id(0),
    };
    let record = Record {
        generation,
        lease: 1,
        tail: id(1),
        removing: None,
    };
    tell(
        &mut owner,
        0,
        Input::Receive(id(0), Message::Grant(2, key, record)),
    );
    assert!(tell(&mut owner, 0, Input::Call(key, 1, 2, How::Waits)).is_empty());
    assert_eq!(owner.stats().retries, 1);
    tell(&mut owner, 0, Input::Acquire(key, 1, None));
    assert!(owner.next_timeout().is_some(), "it is asked for later");
}

#[test]
fn a_request_that_was_sent_on_too_often_goes_back_and_comes_again() {
    let mut owner = machine(0, 0b11);
    let key = key_of_one(0b11);
    let request = Request {
        key,
        caller: caller(1),
        id: 4,
        answered_below: 4,
        forwards: FORWARDS_MAX,
        relinquished: 0,
        op: Op::GetWrite,
    };
    let back = tell(&mut owner, 0, Input::Receive(id(1), Message::Request(request)));
    assert_eq!(back, [Output::Send(id(1), Message::Retry(key, 4))]);
    let mut requester = machine(0, 0b11);
    tell(&mut requester, 0, Input::Acquire(key, 1, None));
    assert!(tell(&mut requester, 5, Input::Receive(id(1), Message::Retry(key, 1))).is_empty());
    let due = requester.next_timeout().expect("a repetition is due");
    let again = tell(&mut requester, due, Input::Tick);
    assert!(matches!(&again[..], [Output::Send(_, Message::Request(request))] if request.id == 1));
    assert_eq!(requester.stats().retries, 1);
}

#[test]
fn a_set_of_calls_is_no_highest_number() {
    let mut applied = Applied::default();
    assert_eq!(applied.add(caller(1), 5, 3), Novelty::New);
    assert_eq!(
        applied.add(caller(1), 3, 3),
        Novelty::New,
        "an earlier one that came later"
    );
    assert_eq!(applied.add(caller(1), 3, 3), Novelty::Repeated);
    assert_eq!(
        applied.add(caller(1), 2, 3),
        Novelty::Repeated,
        "below the watermark"
    );
    assert_eq!(applied.add(caller(1), 6, 6), Novelty::New);
    assert_eq!(applied.add(caller(1), 5, 5), Novelty::Repeated);
    let later = Caller {
        incarnation: 2,
        ..caller(1)
    };
    assert_eq!(
        applied.add(later, 1, 1),
        Novelty::New,
        "another incarnation has numbers of its own"
    );
    assert_eq!(applied.add(caller(1), 9, 9), Novelty::Refused);
    for id in 2..=WINDOW as u64 {
        assert_eq!(applied.add(later, id, 1), Novelty::New);
    }
    assert_eq!(
        applied.add(later, 99, 1),
        Novelty::Refused,
        "more than may be unanswered"
    );
}

#[test]
fn bounds_are_kept() {
    let mut requester = machine(0, 0b11);
    let key = key_of_one(0b11);
    for token in 0..4 {
        tell(&mut requester, 0, Input::Acquire(key, token, None));
    }
    assert_eq!(
        tell(&mut requester, 0, Input::Acquire(key, 9, None)),
        [Output::Ended(9, Ended::Full)]
    );
    let mut callers = machine(0, 0b11);
    let sent = (0..20).map(|token| tell(&mut callers, 0, Input::Call(key, 1, token, How::Waits)));
    let refused = sent
        .filter(|outputs| matches!(outputs[..], [Output::Ended(_, Ended::Full)]))
        .count();
    assert_eq!(refused, 20 - WINDOW);
    let mut full = Objects::<Bits>::new(
        caller(1),
        1,
        Members(0b11),
        ObjectSettings {
            keys_max: 2,
            ..ObjectSettings::default_with(7, 0)
        },
    );
    for n in 0..9 {
        let key = Key::new(n, b"").expect("a key");
        full.handle(0, Input::Acquire(key, u64::from(n), Some(Bits::default())));
    }
    assert!(full.entries.len() <= 2 && full.stats().full > 0);
}
