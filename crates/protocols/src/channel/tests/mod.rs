//! The channel over a simulated network, and each of its promises by itself.

mod hostile;
mod network;
mod sealed;

use super::*;
use network::{Faults, Random, World};
use proptest::prelude::*;
use std::string::String;
use std::vec::Vec;

fn keys(number: u8) -> Protection {
    Protection::Keyed(Keys::new(Key::new(number, [number; 32]).unwrap()))
}

/// Sends with one key, accepts another, too.
fn ring(sending: u8, other: Option<u8>) -> Protection {
    let key = |number: u8| Key::new(number, [number; 32]).unwrap();
    let mut keys = Keys::new(key(sending));
    assert!(other.is_none_or(|other| keys.accept(key(other))));
    Protection::Keyed(keys)
}

fn settings() -> ChannelSettings {
    ChannelSettings {
        frame_max: 600,
        send_frames: 64,
        receive_frames: 64,
        message_max: 9000,
        salt: [3; SALT],
        ..ChannelSettings::new(0, 1, 1, keys(1))
    }
}

/// Everything at once.
const ALL_FAULTS: Faults = Faults {
    lose: 12,
    repeat: 15,
    damage: 25,
    disorder_ns: 150_000,
    cut: [false; 2],
    restart: 150,
    renew: 150,
    replay: 20,
    rotate: 0,
};

fn seeds() -> u64 {
    let seeds = std::env::var("FLOWKEEP_CHANNEL_SEEDS").ok();
    seeds.and_then(|seeds| seeds.parse().ok()).unwrap_or(200)
}

fn random_faults(random: &mut Random) -> Faults {
    let mut maybe = |value| if random.once_in(2) { value } else { 0 };
    Faults {
        lose: maybe(8),
        repeat: maybe(10),
        damage: maybe(15),
        disorder_ns: maybe(200_000),
        cut: [false; 2],
        restart: maybe(100),
        renew: maybe(100),
        replay: maybe(15),
        rotate: maybe(40),
    }
}

fn random_settings(random: &mut Random) -> ChannelSettings {
    let pick = |random: &mut Random, of: &[u64]| of[random.below(of.len() as u64) as usize];
    let starts = [0, 1, (1 << 32) - 20, u64::MAX - 30, u64::MAX];
    ChannelSettings {
        frame_max: pick(random, &[300, 600, 1400, 9000]) as usize,
        send_frames: pick(random, &[64, 256]) as u16,
        receive_frames: pick(random, &[64, 128, 1024]) as u16,
        message_max: pick(random, &[32, 500, 4000]) as usize,
        acknowledge_every: pick(random, &[1, 2, 8, 40]) as u16,
        first_sequence: pick(random, &starts),
        first_number: pick(random, &starts),
        protection: if random.once_in(2) {
            keys(1)
        } else {
            Protection::DamageOnly
        },
        ..settings()
    }
}

#[test]
fn any_network_delivers_in_order_exactly_once() {
    let mut heard = 0;
    for seed in 0..seeds() {
        let mut random = Random(seed ^ 0xfa17);
        let faults = random_faults(&mut random);
        let settings = random_settings(&mut random);
        let mut world = World::new(seed, faults, &settings, None);
        if let Err(found) = world.run(1500) {
            panic!("seed {seed}, {faults:?}: {found}");
        }
        heard += world.ends[0].messages_heard + world.ends[1].messages_heard;
    }
    assert!(
        heard > 100 * seeds(),
        "the runs are about something: {heard} messages"
    );
}

#[test]
fn the_same_seed_makes_the_same_run() {
    let run = |seed| {
        let mut world = World::new(seed, ALL_FAULTS, &settings(), None);
        world.keep_frames = true;
        world.run(1000).unwrap();
        (world.timeline, world.now, world.frames)
    };
    assert_eq!(run(7), run(7));
    assert_ne!(run(7).0, run(8).0);
}

/// For each bug there is a checker that finds it, and it is the one that it is there for.
#[test]
fn each_checker_fires() {
    let bugs: [(Bug, &[&str]); 6] = [
        (
            Bug::TakesOldSessions,
            &["a message of incarnation", "restarted backwards", "where"],
        ),
        (
            Bug::TakesAnyTag,
            &[
                "not said like this",
                "not sent like this",
                "not everything",
                "where",
            ],
        ),
        (Bug::TakesAnyNumber, &["came twice"]),
        (Bug::ForgetsTimeouts, &["not everything has arrived"]),
        (Bug::DeliversRepeated, &["where", "not said like this"]),
        (Bug::IgnoresWindow, &["no place was offered"]),
    ];
    for (bug, says) in bugs {
        let found = (0..200u64).find_map(|seed| {
            let faults = match bug {
                // The window's checker asks for a network without old frames.
                Bug::IgnoresWindow => Faults {
                    lose: 12,
                    ..Faults::default()
                },
                Bug::ForgetsTimeouts => Faults {
                    lose: 3,
                    ..Faults::default()
                },
                _ => ALL_FAULTS,
            };
            let settings = ChannelSettings {
                send_frames: 256,
                protection: if bug == Bug::TakesAnyTag {
                    Protection::DamageOnly
                } else {
                    keys(1)
                },
                ..settings()
            };
            World::new(seed, faults, &settings, Some(bug)).run(1500).err()
        });
        let found = found.unwrap_or_else(|| panic!("{bug:?} was not found"));
        assert!(says.iter().any(|say| found.contains(say)), "{bug:?}: {found}");
    }
}

/// Without loss and disorder, the words of one end come out at the other in the very order, packets
/// among messages.
#[test]
fn packets_and_messages_keep_one_order() {
    let (mut a, mut b) = pair(&settings());
    meet(&mut a, &mut b, 0);
    let mut random = Random(5);
    let (mut said, mut heard) = (Vec::new(), Vec::new());
    let mut now = 1000;
    for number in 0..3000u64 {
        now += 1000;
        let text = std::format!("message {number}");
        if random.once_in(3) {
            if a.handle(now, Input::Packet(number)) == Handled::Done {
                said.push(std::format!("packet {number}"));
            }
        } else if a.handle(now, Input::Message(text.as_bytes())) == Handled::Done {
            said.push(text);
        }
        if random.once_in(5) {
            let _ = a.handle(now, Input::Flush);
        }
        exchange(&mut a, &mut b, now, &mut |line| heard.push(line));
    }
    let _ = a.handle(now, Input::Flush);
    exchange(&mut a, &mut b, now, &mut |line| heard.push(line));
    assert!(said.len() > 2900);
    assert_eq!(said, heard);
}

/// The two ends of a channel.
fn pair(settings: &ChannelSettings) -> (Channel, Channel) {
    let end = |worker: u16| {
        let settings = ChannelSettings {
            worker,
            peer: 1 - worker,
            incarnation: 10 + u64::from(worker),
            salt: [4 + worker as u8; SALT],
            ..settings.clone()
        };
        Channel::new(settings, 0).unwrap()
    };
    (end(0), end(1))
}

/// The frames that an end has for the link. Packets are their names in words.
fn frames(channel: &mut Channel, heard: &mut impl FnMut(String)) -> Vec<Vec<u8>> {
    let mut out = Vec::new();
    loop {
        match channel.poll() {
            None => return out,
            Some(Output::Frame(frame)) => out.push(frame.to_vec()),
            Some(Output::SendPacket(name)) => {
                let packet = std::format!("packet {name}");
                let mut frame = std::vec![0; Channel::FRONT + packet.len() + channel.back()];
                frame[Channel::FRONT..][..packet.len()].copy_from_slice(packet.as_bytes());
                assert!(channel.wrap(&mut frame));
                out.push(frame);
            }
            Some(Output::Message(message)) => heard(String::from_utf8_lossy(message).into()),
            Some(Output::Packet { .. }) => panic!("the frame's owner takes packets out at once"),
            Some(_) => {}
        }
    }
}

/// Gives frames to an end; answers what it has for the link.
fn deliver(
    channel: &mut Channel,
    now: u64,
    given: &[Vec<u8>],
    heard: &mut impl FnMut(String),
) -> Vec<Vec<u8>> {
    let mut out = Vec::new();
    for frame in given {
        let mut frame = frame.clone();
        if channel.handle(now, Input::Frame(&mut frame, 0)) == Handled::Kept {
            loop {
                match channel.poll() {
                    Some(Output::Packet { start, length, .. }) => {
                        heard(String::from_utf8_lossy(&frame[start..start + length]).into());
                        break;
                    }
                    Some(Output::Frame(frame)) => out.push(frame.to_vec()),
                    Some(Output::Message(message)) => heard(String::from_utf8_lossy(message).into()),
                    other => assert!(other.is_some(), "a kept packet comes out"),
                }
            }
        }
        out.extend(frames(channel, heard));
    }
    out
}

/// Carries frames to and fro until both are silent; `heard` gets the messages that `b` hears.
fn exchange(a: &mut Channel, b: &mut Channel, now: u64, heard: &mut impl FnMut(String)) {
    let mut from_a = frames(a, &mut |_| {});
    let mut from_b = frames(b, heard);
    while !from_a.is_empty() || !from_b.is_empty() {
        let (to_b, to_a) = (core::mem::take(&mut from_a), core::mem::take(&mut from_b));
        from_b.extend(deliver(b, now, &to_b, heard));
        from_a.extend(deliver(a, now, &to_a, &mut |_| {}));
    }
}

/// The seals that seal frames of `here` to `there`, and open those of the other direction.
fn seals(here: &Channel, there: &Channel) -> Seals {
    let [here, there] = [here, there].map(|end| seal::End {
        worker: end.settings.worker,
        incarnation: end.settings.incarnation,
        salt: end.settings.salt,
    });
    let mut seals = Seals::new();
    seals.begin(here, there);
    seals
}

fn meet(a: &mut Channel, b: &mut Channel, now: u64) {
    exchange(a, b, now, &mut |_| {});
    assert!(a.is_met() && b.is_met());
}

/// An end that has something else than both must have alike is not met; both know in what they
/// differ, and when one of them has come to its senses they meet.
#[test]
fn who_disagrees_is_not_met() {
    let of = |worker, incarnation, agreed| {
        let settings = ChannelSettings {
            worker,
            peer: 1 - worker,
            incarnation,
            agreed,
            ..settings()
        };
        Channel::new(settings, 0).unwrap()
    };
    let words = |place: usize, word: u64| {
        let mut words: [u64; AGREED] = core::array::from_fn(|word| word as u64);
        words[place] = word;
        words
    };
    let bits = |place: usize, bits: u64| {
        let mut words = [0; AGREED];
        words[place] = bits;
        words
    };
    let (mut a, mut b) = (of(0, 10, words(1, 8)), of(1, 11, words(1, 9)));
    exchange(&mut a, &mut b, 0, &mut |_| {});
    for end in [&a, &b] {
        assert!(!end.is_met());
        assert_eq!(end.differs(), bits(1, 1));
        assert_eq!(end.counters().dropped(DropReason::Disagreement), 1);
        assert_eq!(end.not_met_for(), Some(DropReason::Disagreement));
    }
    let mut b = of(1, 12, words(1, 8));
    meet(&mut a, &mut b, settings().hello_ns);
    assert_eq!((a.differs(), b.differs()), ([0; AGREED], [0; AGREED]));
    assert_eq!((a.not_met_for(), b.not_met_for()), (None, None));
    // A peer that begins again with something else does not end what the other believes to be a
    // session, and is in none.
    let mut other = words(1, 8);
    other[AGREED - 1] ^= 6;
    let mut b = of(1, 13, other);
    exchange(&mut a, &mut b, 2 * settings().hello_ns, &mut |_| {});
    assert!(a.is_met() && !b.is_met());
    assert_eq!(a.differs(), bits(AGREED - 1, 6));
    a.renew(20);
    exchange(&mut a, &mut b, 3 * settings().hello_ns, &mut |_| {});
    assert!(!a.is_met() && !b.is_met());
}

/// A sender meets its bound, sees it and counts it, and hears when there is room; the other end has
/// no more than it offered.
#[test]
fn back_pressure_is_seen_and_counted() {
    let (mut a, mut b) = pair(&settings());
    meet(&mut a, &mut b, 0);
    let mut taken = 0u64;
    while a.handle(1, Input::Message(&[7; 100])) == Handled::Done {
        taken += 1;
    }
    assert_eq!(
        a.handle(1, Input::Message(&[7; 100])),
        Handled::Refused(Refusal::Full)
    );
    assert_eq!(a.counters().refused_full, 2);
    assert_eq!(a.room(), 0);
    // `b` has everything and its worker does not take it: the acknowledgement offers no place.
    let sent = frames(&mut a, &mut |_| {});
    assert_eq!(sent.len(), 64);
    for mut frame in sent {
        let _ = b.handle(2, Input::Frame(&mut frame, 0));
    }
    assert_eq!(b.in_use().1, 64);
    let mut heard = 0u64;
    let answers = frames(&mut b, &mut |_| heard += 1);
    assert_eq!(heard, taken);
    let mut room = false;
    for mut answer in answers {
        let _ = a.handle(3, Input::Frame(&mut answer, 0));
        while let Some(output) = a.poll() {
            room |= output == Output::Room;
        }
    }
    assert!(room && a.room() == 64);
    assert_eq!(
        a.handle(3, Input::Message(&[7; 9001])),
        Handled::Refused(Refusal::TooLong)
    );
    assert_eq!(a.counters().refused_too_long, 1);
}

/// An offer of places that is lost is asked for.
#[test]
fn a_lost_offer_is_asked_for() {
    let settings = ChannelSettings {
        send_frames: 256,
        ..settings()
    };
    let (mut a, mut b) = pair(&settings);
    meet(&mut a, &mut b, 0);
    while a.handle(1, Input::Message(&[7; 400])) == Handled::Done {}
    let sent = frames(&mut a, &mut |_| {});
    assert_eq!(sent.len(), 64, "what has a place");
    for mut frame in sent {
        let _ = b.handle(2, Input::Frame(&mut frame, 0));
    }
    // The first answer says that all came and there is no place; later frames are lost.
    b.answer = true;
    b.queue.rotate_left(0);
    let silent = core::mem::take(&mut b.queue);
    let Some(Output::Frame(full)) = b.poll() else {
        panic!()
    };
    let mut full = full.to_vec();
    b.queue = silent;
    let _ = a.handle(3, Input::Frame(&mut full, 0));
    assert!(frames(&mut a, &mut |_| {}).is_empty());
    let mut heard = 0;
    let lost = frames(&mut b, &mut |_| heard += 1);
    assert!(!lost.is_empty() && heard == 64);
    let at = a.next_timeout().expect("the sender watches");
    let _ = a.handle(at, Input::Timeout);
    let asked = frames(&mut a, &mut |_| {});
    assert_eq!(asked.len(), 1);
    let offered = deliver(&mut b, at, &asked, &mut |_| {});
    assert_eq!(deliver(&mut a, at, &offered, &mut |_| {}).len(), 64);
}

/// A lone message goes out at the flush and is acknowledged within its bound.
#[test]
fn an_acknowledgement_waits_no_longer_than_it_may() {
    let (mut a, mut b) = pair(&settings());
    meet(&mut a, &mut b, 0);
    assert_eq!(a.handle(1000, Input::Message(b"one")), Handled::Done);
    assert!(a.poll().is_none(), "it waits for others");
    assert_eq!(a.next_timeout(), Some(1000 + a.settings.flush_ns_max));
    let _ = a.handle(1000, Input::Flush);
    let sent = frames(&mut a, &mut |_| {});
    assert_eq!(sent.len(), 1);
    assert!(deliver(&mut b, 2000, &sent, &mut |_| {}).is_empty());
    let at = b.next_timeout().unwrap();
    assert_eq!(at, 2000 + b.settings.acknowledge_ns_max);
    let _ = b.handle(at, Input::Timeout);
    let answer = frames(&mut b, &mut |_| {});
    assert_eq!(answer.len(), 1);
    assert!(deliver(&mut a, at + 500, &answer, &mut |_| {}).is_empty());
    assert_eq!(a.next_timeout(), None, "nothing is left to wait for");
    assert_eq!(a.round_trip(), Some(at + 500 - 1000));
}

/// A lost frame is sent again as soon as three later ones have come, no timeout needed.
#[test]
fn a_gap_is_filled_at_once() {
    let (mut a, mut b) = pair(&settings());
    meet(&mut a, &mut b, 0);
    let mut sent = Vec::new();
    for number in 0..6u8 {
        assert_eq!(a.handle(10, Input::Message(&[number])), Handled::Done);
        let _ = a.handle(10, Input::Flush);
        sent.extend(frames(&mut a, &mut |_| {}));
    }
    sent.remove(1);
    let mut heard = Vec::new();
    let answers = deliver(&mut b, 20, &sent, &mut |message| heard.push(message));
    let again = deliver(&mut a, 30, &answers, &mut |_| {});
    assert_eq!(again.len(), 1);
    deliver(&mut b, 40, &again, &mut |message| heard.push(message));
    let expected: Vec<String> = (0..6u8).map(|number| String::from(char::from(number))).collect();
    assert_eq!(heard, expected);
    assert_eq!((a.counters().retransmissions, a.counters().timeouts), (1, 0));
}

/// A peer that restarted is recognised by the first frame that it sends.
#[test]
fn a_restarted_peer_is_recognised_at_once() {
    let (mut a, mut b) = pair(&settings());
    meet(&mut a, &mut b, 0);
    assert_eq!(a.handle(5, Input::Message(b"for the one before")), Handled::Done);
    let _ = a.handle(5, Input::Flush);
    let late = frames(&mut a, &mut |_| {});
    let mut again = Channel::new(
        ChannelSettings {
            incarnation: 99,
            ..b.settings.clone()
        },
        6,
    )
    .unwrap();
    let mut hello = frames(&mut again, &mut |_| {});
    assert_eq!(hello.len(), 1);
    let _ = a.handle(7, Input::Frame(&mut hello[0], 0));
    assert_eq!(
        a.poll(),
        Some(Output::Restarted {
            incarnation: 99,
            given_up_frames: 1
        })
    );
    let mut heard = Vec::new();
    deliver(&mut again, 8, &late, &mut |message| heard.push(message));
    assert_eq!(again.counters().dropped(DropReason::OldSession), 1);
    meet(&mut a, &mut again, 9);
    assert_eq!(a.handle(10, Input::Message(b"for the new one")), Handled::Done);
    let _ = a.handle(10, Input::Flush);
    exchange(&mut a, &mut again, 10, &mut |message| heard.push(message));
    assert_eq!(heard, ["for the new one"]);
}

/// Keys change step by step, by one end after the other, and no frame is refused at any.
#[test]
fn keys_are_rotated_without_a_gap() {
    let (mut a, mut b) = pair(&settings());
    meet(&mut a, &mut b, 0);
    let mut heard = Vec::new();
    let steps = [ring(1, Some(2)), ring(2, Some(1)), ring(2, None)];
    for (number, step) in steps.into_iter().enumerate() {
        for end in 0..2 {
            let changed = if end == 0 { &mut a } else { &mut b };
            changed.protect(step.clone());
            let now = 10 + number as u64;
            assert_eq!(a.handle(now, Input::Message(b"still here")), Handled::Done);
            let _ = a.handle(now, Input::Flush);
            exchange(&mut a, &mut b, now, &mut |message| heard.push(message));
        }
    }
    assert_eq!(heard.len(), 6);
    assert_eq!(b.counters().drops.iter().sum::<u64>(), 0);
    // And a key that is accepted no longer is refused.
    b.protect(keys(3));
    assert_eq!(a.handle(20, Input::Message(b"with key 2")), Handled::Done);
    let _ = a.handle(20, Input::Flush);
    exchange(&mut a, &mut b, 20, &mut |message| heard.push(message));
    assert_eq!(b.counters().dropped(DropReason::UnknownKey), 1);
    assert_eq!(heard.len(), 6);
}

#[test]
fn bad_settings_say_what_may_be() {
    let bad = |change: fn(&mut ChannelSettings)| {
        let mut settings = settings();
        change(&mut settings);
        let bad = Channel::new(settings, 0).err().expect("refused");
        std::format!("{bad}")
    };
    assert_eq!(
        bad(|settings| settings.send_frames = 100),
        "`send_frames` of a channel is 100; it is a power of two, 64 to 1024"
    );
    assert!(
        bad(|settings| settings.frame_max = 100).contains("`frame_max` of a channel is 100; it is from 272")
    );
    assert!(bad(|settings| settings.message_max = 1 << 20).contains("fits into 63 frames"));
    assert!(bad(|settings| settings.incarnation = 0).contains("incarnation"));
}

proptest! {
    /// Messages of any lengths, over frames of any length, come out as they went in.
    #[test]
    fn messages_of_any_length_pass(
        lengths in proptest::collection::vec(0usize..9000, 1..12),
        frame_max in 300usize..3000,
    ) {
        let settings = ChannelSettings { frame_max, send_frames: 1024, receive_frames: 1024, ..settings() };
        let (mut a, mut b) = pair(&settings);
        meet(&mut a, &mut b, 0);
        let said: Vec<String> = lengths
            .iter()
            .enumerate()
            .map(|(number, &length)| std::format!("{number:0length$}"))
            .collect();
        let mut heard = Vec::new();
        for message in &said {
            prop_assert_eq!(a.handle(1, Input::Message(message.as_bytes())), Handled::Done);
        }
        let _ = a.handle(1, Input::Flush);
        exchange(&mut a, &mut b, 1, &mut |message| heard.push(message));
        prop_assert_eq!(said, heard);
    }
}
