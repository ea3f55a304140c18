//! Encryption: which bytes, with which keys; and frames that were sealed for another purpose.

use super::hostile::message;
use super::*;
use std::collections::BTreeSet;

/// Two ends between the workers 0 and 1, of these incarnations and salts.
fn ends(incarnations: [u64; 2], salts: [u8; 2]) -> [Channel; 2] {
    [0u16, 1].map(|worker| {
        let place = usize::from(worker);
        let settings = ChannelSettings {
            worker,
            peer: 1 - worker,
            incarnation: incarnations[place],
            salt: [salts[place]; SALT],
            ..settings()
        };
        Channel::new(settings, 0).unwrap()
    })
}

fn met(incarnations: [u64; 2], salts: [u8; 2]) -> [Channel; 2] {
    let [mut a, mut b] = ends(incarnations, salts);
    meet(&mut a, &mut b, 0);
    [a, b]
}

/// A frame of each kind from `a` to `b`, new to `b` whose session with `a` they are of; the hello
/// is of an incarnation of `a` to come.
fn of_each_kind(a: &mut Channel) -> Vec<Vec<u8>> {
    let mut all = std::vec![message(a, 10, b"a message")];
    assert_eq!(a.handle(10, Input::Packet(5)), Handled::Done);
    a.answer = true;
    all.extend(frames(a, &mut |_| {}));
    let mut next = Channel::new(
        ChannelSettings {
            incarnation: a.settings.incarnation + 1,
            ..a.settings.clone()
        },
        0,
    )
    .unwrap();
    all.extend(frames(&mut next, &mut |_| {}));
    let kinds: Vec<Kind> = all.iter().map(|frame| Head::read(frame).unwrap().kind).collect();
    assert_eq!(
        kinds,
        [Kind::Messages, Kind::Packet, Kind::Acknowledgement, Kind::Hello]
    );
    all
}

/// Delivers a frame that must be refused; answers why it was.
fn refused(end: &mut Channel, frame: Vec<u8>) -> DropReason {
    let before = end.counters().clone();
    let mut heard = Vec::new();
    deliver(end, 20, &[frame], &mut |message| heard.push(message));
    assert!(heard.is_empty() && end.is_met(), "{heard:?}");
    let after = end.counters();
    assert_eq!(after.frames_received, before.frames_received);
    let drops: Vec<DropReason> = DropReason::ALL
        .into_iter()
        .filter(|reason| after.dropped(*reason) != before.dropped(*reason))
        .collect();
    assert_eq!(
        after.drops.iter().sum::<u64>(),
        before.drops.iter().sum::<u64>() + 1
    );
    drops[0]
}

/// A frame with any bit changed, or of any other length, is refused and counted, and changes
/// nothing.
#[test]
fn any_changed_bit_is_refused() {
    let [mut a, mut b] = met([10, 11], [1, 2]);
    let all = of_each_kind(&mut a);
    let mut reasons = BTreeSet::new();
    for frame in &all {
        for bit in 0..8 * frame.len() {
            let mut bad = frame.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            reasons.insert(refused(&mut b, bad).name());
        }
        for length in 0..frame.len() {
            refused(&mut b, frame[..length].to_vec());
        }
        refused(&mut b, [&frame[..], &[0]].concat());
    }
    assert!(reasons.contains("tag"), "{reasons:?}");
    let mut heard = Vec::new();
    deliver(&mut b, 30, &all[..3], &mut |message| heard.push(message));
    assert_eq!(heard, ["a message", "packet 5"]);
    assert_eq!(b.counters().sessions, 1);
    deliver(&mut b, 30, &all[3..], &mut |_| {});
    assert!(!b.is_met(), "the hello is good, too");
}

/// A frame of one end to the other is not good the other way, however its head is written.
#[test]
fn a_frame_does_not_come_back() {
    let [mut a, _] = met([10, 11], [1, 2]);
    for frame in &of_each_kind(&mut a)[..3] {
        assert_eq!(refused(&mut a, frame.clone()), DropReason::OtherPair);
        let mut turned = frame.clone();
        turned[4..8].rotate_left(2);
        turned[8..24].rotate_left(8);
        assert_eq!(refused(&mut a, turned), DropReason::Tag);
    }
}

/// A frame is good between these two, of these incarnations, on this channel; each by itself makes
/// other keys.
#[test]
fn a_frame_of_another_session_is_refused() {
    let [mut a, _] = met([10, 11], [1, 2]);
    let all = of_each_kind(&mut a);
    // The same incarnations on another channel; this incarnation again, after it was forgotten;
    // later incarnations.
    let others = [
        ([10, 11], [3, 2]),
        ([10, 11], [1, 3]),
        ([20, 11], [1, 2]),
        ([10, 21], [1, 2]),
    ];
    for (incarnations, salts) in others {
        let [_, mut b] = met(incarnations, salts);
        for frame in &all[..3] {
            let mut renamed = frame.clone();
            renamed[8..16].copy_from_slice(&incarnations[0].to_be_bytes());
            renamed[16..24].copy_from_slice(&incarnations[1].to_be_bytes());
            assert_eq!(
                refused(&mut b, renamed),
                DropReason::Tag,
                "{incarnations:?} {salts:?}"
            );
        }
    }
    // And between other workers.
    let mut other = ends([10, 11], [1, 2]).map(|end| {
        let settings = ChannelSettings {
            worker: 2 * end.settings.worker,
            peer: 2 * end.settings.peer,
            ..end.settings
        };
        Channel::new(settings, 0).unwrap()
    });
    let [c, d] = &mut other;
    meet(c, d, 0);
    for frame in &all[..3] {
        assert_eq!(refused(d, frame.clone()), DropReason::OtherPair);
        let mut renamed = frame.clone();
        renamed[7] = 2;
        assert_eq!(refused(d, renamed), DropReason::Tag);
    }
}

/// A frame of a key that is over is refused, also where it names the key of now.
#[test]
fn a_frame_of_an_old_key_is_refused() {
    let [mut a, mut b] = met([10, 11], [1, 2]);
    let all = of_each_kind(&mut a);
    b.protect(keys(2));
    for frame in &all {
        assert_eq!(refused(&mut b, frame.clone()), DropReason::UnknownKey);
        let mut renamed = frame.clone();
        renamed[3] = 2;
        assert_eq!(refused(&mut b, renamed), DropReason::Tag);
    }
    // The same number for another secret.
    let other = Key::new(1, [77; 32]).unwrap();
    b.protect(Protection::Keyed(Keys::new(other)));
    for frame in &all {
        assert_eq!(refused(&mut b, frame.clone()), DropReason::Tag);
    }
}

/// A worker comes up with the incarnation that it had: a clock went back, and the file was lost.
/// Nothing of the session before is good, and once the other end has given that one up, they meet.
#[test]
fn an_incarnation_that_comes_twice_has_other_keys() {
    let [a, mut b] = met([10, 11], [1, 2]);
    let recorded = of_each_kind(&mut b);
    let before: BTreeSet<[u8; 32]> = a.seals.used.iter().map(|(key, _)| *key).collect();
    assert!(!before.is_empty());
    let [mut again, _] = ends([10, 11], [9, 2]);
    exchange(&mut again, &mut b, 20, &mut |_| {});
    assert!(b.is_met() && !again.is_met(), "the session goes on as it was");
    assert_eq!(b.counters().dropped(DropReason::UnknownSession), 1);
    deliver(&mut again, 21, &recorded[..3], &mut |_| {
        panic!("of another session")
    });
    b.renew(30);
    meet(&mut again, &mut b, settings().hello_ns);
    let mut heard = Vec::new();
    let frame = message(&mut again, settings().hello_ns, b"here");
    deliver(&mut b, settings().hello_ns, &[frame], &mut |message| {
        heard.push(message)
    });
    assert_eq!(heard, ["here"]);
    assert!(again.seals.used.iter().all(|(key, _)| !before.contains(key)));
}

/// A hello to an incarnation of the same incarnation that had another salt: it may be a recorded
/// one.
#[test]
fn a_hello_to_another_salt_makes_no_session() {
    let [mut a, mut b] = ends([10, 11], [1, 2]);
    let first = frames(&mut a, &mut |_| {});
    let answers = deliver(&mut b, 0, &first, &mut |_| {});
    let [mut again, _] = ends([10, 11], [9, 2]);
    deliver(&mut again, 0, &answers, &mut |_| {});
    assert!(!again.is_met());
    assert_eq!(again.counters().dropped(DropReason::UnknownSession), 1);
    deliver(&mut a, 0, &answers, &mut |_| {});
    assert!(a.is_met(), "the end that it was for");
}

/// Over restarts, given-up sessions, rotation, loss and disorder, in both directions.
#[test]
fn no_key_meets_a_nonce_twice() {
    let faults = Faults {
        rotate: 30,
        ..ALL_FAULTS
    };
    let settings = ChannelSettings {
        // Two spans.
        first_number: (1 << 24) - 100,
        ..settings()
    };
    let (mut sealed, mut keys, mut again) = (0, 0, 0);
    for seed in 0..40 {
        let mut world = World::new(seed, faults, &settings, None);
        world
            .run(1500)
            .unwrap_or_else(|found| panic!("seed {seed}: {found}"));
        let mut used = core::mem::take(&mut world.used);
        for end in &mut world.ends {
            again += end.channel.counters().retransmissions;
            used.append(&mut end.channel.seals.used);
        }
        let pairs: BTreeSet<&([u8; 32], u64)> = used.iter().collect();
        assert_eq!(pairs.len(), used.len(), "seed {seed}");
        sealed += used.len();
        keys += used.iter().map(|(key, _)| *key).collect::<BTreeSet<_>>().len();
    }
    assert!(
        sealed > 10_000 && keys > 400 && again > 1000,
        "the runs are about something: {sealed} frames, {keys} keys, {again} frames again"
    );
}

/// Two ends say a known text over a network that loses some, in messages and packets: whether any
/// frame has a part of it.
fn can_be_read(protection: Protection) -> bool {
    let settings = ChannelSettings {
        protection,
        ..settings()
    };
    let (mut a, mut b) = pair(&settings);
    let text = "what is said between two hosts";
    let (mut wire, mut heard, mut now) = (Vec::new(), 0, 0);
    for round in 0..400 {
        now += 1_000_000;
        for end in [&mut a, &mut b] {
            let long = text.repeat(1 + round % 40);
            let _ = end.handle(now, Input::Message(long.as_bytes()));
            let _ = end.handle(now, Input::Flush);
            let _ = end.handle(now, Input::Timeout);
        }
        let out = frames(&mut a, &mut |_| {});
        wire.extend(out.clone());
        let answers = match round % 7 {
            3 => Vec::new(),
            _ => deliver(&mut b, now, &out, &mut |message| {
                heard += usize::from(message.starts_with(text));
            }),
        };
        wire.extend(answers.clone());
        wire.extend(deliver(&mut a, now, &answers, &mut |_| {}));
        if a.is_met() {
            let mut packet = [&[0; Channel::FRONT], text.as_bytes(), &std::vec![0; a.back()]].concat();
            assert!(a.wrap(&mut packet));
            wire.push(packet);
        }
    }
    assert!(
        heard > 200 && a.counters().retransmissions > 20,
        "{heard} messages"
    );
    // Any eight bytes of it in a row.
    let parts: BTreeSet<&[u8]> = text.as_bytes().windows(8).collect();
    wire.iter()
        .any(|frame| frame.windows(8).any(|window| parts.contains(window)))
}

#[test]
fn nothing_that_is_said_can_be_read_on_the_wire() {
    assert!(!can_be_read(keys(1)));
    assert!(can_be_read(Protection::DamageOnly), "the same without keys");
}

/// Frames of two spans, and of two keys, pass each other.
#[test]
fn frames_of_two_spans_pass_each_other() {
    let settings = ChannelSettings {
        first_number: (1 << 24) - 4,
        ..settings()
    };
    let (mut a, mut b) = pair(&settings);
    b.protect(ring(1, Some(2)));
    meet(&mut a, &mut b, 0);
    let mut sent = Vec::new();
    for number in 0..8u8 {
        if number == 4 {
            a.protect(ring(2, Some(1)));
        }
        sent.push(message(&mut a, 10, &[b'a' + number]));
    }
    let numbers: Vec<u64> = sent
        .iter()
        .map(|frame| Head::read(frame).unwrap().number >> 24)
        .collect();
    assert!(numbers.contains(&0) && numbers.contains(&1), "{numbers:?}");
    sent.reverse();
    let mut heard = Vec::new();
    deliver(&mut b, 20, &sent, &mut |message| heard.push(message));
    assert_eq!(heard.concat(), "abcdefgh");
    assert_eq!(b.counters().drops.iter().sum::<u64>(), 0);
}

proptest! {
    /// Any change of any frames of a session, at any places: all that is heard was said.
    #[test]
    fn what_is_heard_was_said(
        texts in proptest::collection::vec("[a-z]{0,200}", 1..6),
        changes in proptest::collection::vec((any::<prop::sample::Index>(), any::<prop::sample::Index>(), 1u8..), 0..12),
        cut in any::<Option<(prop::sample::Index, prop::sample::Index)>>(),
    ) {
        let [mut a, mut b] = met([10, 11], [1, 2]);
        let good: Vec<Vec<u8>> = texts.iter().map(|text| message(&mut a, 10, text.as_bytes())).collect();
        let mut bad = good.clone();
        for (frame, at, flip) in &changes {
            let frame = frame.get_mut(&mut bad[..]);
            let at = at.index(frame.len());
            frame[at] ^= flip;
        }
        if let Some((frame, at)) = cut {
            let frame = frame.get_mut(&mut bad[..]);
            frame.truncate(at.index(frame.len()));
        }
        let mut heard = Vec::new();
        deliver(&mut b, 20, &bad, &mut |message| heard.push(message));
        let changed = good.iter().zip(&bad).filter(|(good, bad)| good != bad).count() as u64;
        prop_assert_eq!(b.counters().drops.iter().sum::<u64>(), changed);
        // In order, as far as none is missing.
        prop_assert!(texts.starts_with(&heard));
        // The good ones are as good as ever.
        deliver(&mut b, 30, &good, &mut |message| heard.push(message));
        prop_assert_eq!(heard, texts);
    }
}
