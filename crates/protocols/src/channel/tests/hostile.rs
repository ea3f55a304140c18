//! Frames that no worker should send: each is counted, and nothing comes of it.

use super::*;
use crate::channel::wire::{self, TAG};

/// Changes a good frame of `a`'s to `b`. With the key, it is decrypted before and sealed again.
fn forge(a: &Channel, b: &Channel, good: &[u8], has_key: bool, change: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let mut frame = good.to_vec();
    if has_key {
        let head = Head::read(&frame).unwrap();
        keys(1).open(&mut seals(b, a), &head, &mut frame).unwrap();
    }
    change(&mut frame);
    if has_key && let Ok(head) = Head::read(&frame) {
        assert!(keys(1).seal(&mut seals(a, b), &head, &mut frame));
    }
    frame
}

/// A frame of messages from `a` to `b`, not yet delivered.
pub(super) fn message(a: &mut Channel, now: u64, bytes: &[u8]) -> Vec<u8> {
    assert_eq!(a.handle(now, Input::Message(bytes)), Handled::Done);
    let _ = a.handle(now, Input::Flush);
    let mut out = frames(a, &mut |_| {});
    assert_eq!(out.len(), 1);
    out.remove(0)
}

#[test]
fn hostile_frames_are_counted() {
    type Change = fn(&mut Vec<u8>);
    let cases: [(DropReason, bool, Change); 18] = [
        (DropReason::Short, false, |frame| frame.truncate(63)),
        (DropReason::Version, true, |frame| frame[0] = 1),
        (DropReason::Field, true, |frame| frame[1] = 9),
        (DropReason::Field, true, |frame| frame[2] |= 0x80),
        (DropReason::Field, true, |frame| frame[8..16].fill(0)),
        (DropReason::Field, true, |frame| frame[60] = 17),
        (DropReason::Field, true, |frame| frame[63] = 1),
        (DropReason::Length, true, |frame| frame[59] += 1),
        (DropReason::OtherPair, true, |frame| frame[5] = 7),
        (DropReason::Protection, false, |frame| {
            frame[2] = 0;
            frame[3] = 0;
            frame.truncate(frame.len() - TAG);
        }),
        (DropReason::UnknownKey, true, |frame| frame[3] = 9),
        (DropReason::Tag, false, |frame| frame[70] ^= 1),
        (DropReason::OldSession, true, |frame| frame[15] = 1),
        (DropReason::OldSession, true, |frame| frame[23] = 1),
        (DropReason::UnknownSession, true, |frame| frame[16] = 1),
        (DropReason::Acknowledgement, true, |frame| frame[47] = 200),
        (DropReason::BeyondWindow, true, |frame| frame[38] = 1),
        (DropReason::Records, true, |frame| frame[64] = 0xff),
    ];
    for (reason, has_key, change) in cases {
        let (mut a, mut b) = pair(&settings());
        meet(&mut a, &mut b, 0);
        let good = message(&mut a, 10, b"hello there");
        let bad = forge(&a, &b, &good, has_key, change);
        let mut heard = Vec::new();
        deliver(&mut b, 11, &[bad], &mut |message| heard.push(message));
        assert!(heard.is_empty(), "{reason:?}");
        let drops = b.counters().drops;
        assert_eq!(
            (drops.iter().sum::<u64>(), drops[reason as usize]),
            (1, 1),
            "{reason:?}"
        );
        // The frame that it was made from is as good as ever, unless its number is used up by a
        // sender that has the key.
        if !matches!(reason, DropReason::BeyondWindow | DropReason::Records) {
            deliver(&mut b, 12, &[good], &mut |message| heard.push(message));
            assert_eq!(heard, ["hello there"], "{reason:?}");
        }
    }
}

#[test]
fn a_frame_is_good_once_and_in_its_session() {
    let (mut a, mut b) = pair(&settings());
    let hello = frames(&mut a, &mut |_| {}).remove(0);
    let answers = deliver(&mut b, 0, std::slice::from_ref(&hello), &mut |_| {});
    let known = deliver(&mut a, 0, &answers, &mut |_| {});
    let both = deliver(&mut b, 0, &known, &mut |_| {});
    deliver(&mut a, 0, &both, &mut |_| {});
    assert!(a.is_met() && b.is_met());
    let mut recorded = std::vec![hello.clone(), message(&mut a, 10, b"once")];
    assert_eq!(a.handle(10, Input::Packet(5)), Handled::Done);
    recorded.extend(frames(&mut a, &mut |_| {}));
    let mut heard = Vec::new();
    deliver(&mut b, 11, &recorded[1..], &mut |message| heard.push(message));
    assert_eq!(heard, ["once", "packet 5"]);
    // Again, in the same session.
    deliver(&mut b, 12, &recorded, &mut |message| heard.push(message));
    assert_eq!(heard.len(), 2);
    assert_eq!(b.counters().dropped(DropReason::Replayed), 3);
    // To the next incarnation of the one they were for: the hello makes it look for a peer, no more
    // than that.
    let mut next = Channel::new(
        ChannelSettings {
            incarnation: 50,
            salt: [50; SALT],
            ..b.settings.clone()
        },
        20,
    )
    .unwrap();
    deliver(&mut next, 20, &recorded, &mut |message| heard.push(message));
    assert!(!next.is_met() && heard.len() == 2);
    assert_eq!(next.counters().dropped(DropReason::OldSession), 2);
    // After their sender has restarted.
    let mut other = Channel::new(
        ChannelSettings {
            incarnation: 60,
            salt: [60; SALT],
            ..a.settings.clone()
        },
        30,
    )
    .unwrap();
    meet(&mut other, &mut next, 30);
    deliver(&mut next, 31, &recorded, &mut |message| heard.push(message));
    assert!(next.is_met() && heard.len() == 2);
    assert_eq!(next.counters().dropped(DropReason::OldSession), 5);
}

/// A sender that has the key and says anything at all takes no more memory than there is.
#[test]
fn memory_stays_bounded() {
    let settings = ChannelSettings {
        message_max: 2000,
        ..settings()
    };
    let (mut a, mut b) = pair(&settings);
    meet(&mut a, &mut b, 0);
    let mut random = Random(3);
    let capacities = |b: &Channel| (b.queue.capacity(), b.counters.messages_received);
    let before = capacities(&b).0;
    let good = message(&mut a, 1, &[0; 100]);
    let mut number = Head::read(&good).unwrap().number;
    let (mut heard, mut sealing) = (0usize, seals(&a, &b));
    for round in 0..30_000u64 {
        let mut head = Head::read(&good).unwrap();
        number += 1 + random.below(2);
        head.number = number;
        head.sequence = b
            .receiving
            .expected()
            .wrapping_add(random.below(130))
            .wrapping_sub(30);
        head.words = random.below(3) as u8;
        let payload: Vec<u8> = (0..random.below(400))
            .flat_map(|_| wire::record_head(random.once_in(2), random.once_in(3), 0))
            .chain([0x00, 0x05, 1, 2, 3, 4, 5])
            .collect();
        // Pieces that never end, nothing in nothing, whole messages.
        let payload = match random.below(12) {
            0 => payload,
            1 => [0xc0, 0].repeat(200),
            _ => {
                let length = 300 + random.below(100) as usize;
                let head = wire::record_head(random.once_in(9), random.once_in(9), length);
                [&head[..], &std::vec![9; length]].concat()
            }
        };
        head.length = payload.len() as u16;
        let mut frame = std::vec![0; head.payload_at() + payload.len() + TAG];
        let words: Vec<u64> = (0..head.words)
            .map(|_| if random.once_in(4) { random.next() } else { 0 })
            .collect();
        head.write(&mut frame, &words);
        let at = head.payload_at();
        frame[at..at + payload.len()].copy_from_slice(&payload);
        assert!(keys(1).seal(&mut sealing, &head, &mut frame));
        let _ = b.handle(round, Input::Frame(&mut frame, 0));
        if random.once_in(4) {
            while let Some(output) = b.poll() {
                if let Output::Message(message) = output {
                    assert!(message.len() <= 2000);
                    heard += 1;
                }
            }
        }
        assert!(b.in_use().1 <= 64);
        assert!(b.queue.len() <= b.queue_max);
    }
    assert!(heard > 1000);
    assert_eq!(capacities(&b).0, before);
    assert_eq!(b.receiving.assembly_capacity(), 2000);
    for reason in [
        DropReason::BrokenMessage,
        DropReason::LongMessage,
        DropReason::Duplicate,
        DropReason::BeyondWindow,
    ] {
        assert!(b.counters().dropped(reason) > 0, "{reason:?}");
    }
}

proptest! {
    /// Any bytes, with a good head before them or not: no panic, no message from a sender without
    /// the key.
    #[test]
    fn any_bytes_end_somewhere(
        bytes in proptest::collection::vec(any::<u8>(), 0..300),
        flips in proptest::collection::vec((0usize..120, any::<u8>()), 0..6),
    ) {
        let (mut a, mut b) = pair(&settings());
        meet(&mut a, &mut b, 0);
        let mut frame = message(&mut a, 1, b"good");
        for (at, flip) in &flips {
            if let Some(byte) = frame.get_mut(*at) {
                *byte ^= flip;
            }
        }
        let changed = flips.iter().any(|(_, flip)| *flip != 0);
        let mut heard = Vec::new();
        deliver(&mut b, 2, &[bytes, frame], &mut |message| heard.push(message));
        prop_assert!(heard.is_empty() || !changed || heard == ["good"]);
    }
}
