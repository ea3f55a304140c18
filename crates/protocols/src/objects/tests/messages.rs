//! Messages as bytes: each is read as it was written, a part of one is none, and random runs send
//! nothing else.

use super::super::*;
use super::world::{Bits, id};
use std::vec::Vec;

impl wire::Bytes for Bits {
    type Kinds = ();

    fn write(&self, to: &mut Vec<u8>) {
        to.extend(self.seen.to_be_bytes());
        to.extend(self.twice.to_be_bytes());
    }

    fn read((): &(), _: u16, bytes: &[u8]) -> Option<Self> {
        let (seen, twice) = bytes.split_first_chunk()?;
        Some(Bits {
            seen: u64::from_be_bytes(*seen),
            twice: u64::from_be_bytes(twice.try_into().ok()?),
        })
    }
}

impl wire::Bytes for u64 {
    type Kinds = ();

    fn write(&self, to: &mut Vec<u8>) {
        to.extend(self.to_be_bytes());
    }

    fn read((): &(), _: u16, bytes: &[u8]) -> Option<Self> {
        bytes.try_into().ok().map(u64::from_be_bytes)
    }
}

/// The message as it arrives at the other end.
pub(super) fn sent(message: &Message<Bits>) -> Message<Bits> {
    let mut bytes = Vec::new();
    wire::write(message, &mut bytes);
    wire::read(&bytes, &()).expect("what was written is read")
}

fn one_of_each() -> Vec<Message<Bits>> {
    let key = Key::new(3, b"a key").expect("a short key");
    let caller = Caller {
        runtime: id(2),
        incarnation: 9,
    };
    let generation = Gen {
        view: 4,
        count: 1 << 40,
        owner: id(1),
    };
    let mut applied = Applied::default();
    applied.add(caller, 8, 5);
    applied.add(
        Caller {
            runtime: id(0),
            ..caller
        },
        6,
        6,
    );
    let image = Image {
        generation,
        lease: 7,
        version: 8,
        body: Bits { seen: 5, twice: 0 },
        applied,
    };
    let rank = Rank {
        generation,
        lease: 7,
        is_holder: true,
        version: 8,
    };
    let record = |removing| Record {
        generation,
        lease: 7,
        tail: id(2),
        removing,
    };
    let ops = [
        Op::Create,
        Op::GetWrite,
        Op::Read(1),
        Op::Call(2),
        Op::Remove,
        Op::Gone(generation),
        Op::Offer(generation),
        Op::Expire(generation, 7),
    ];
    let requests = ops.into_iter().map(|op| Request {
        key,
        caller,
        id: 11,
        answered_below: 10,
        forwards: 2,
        relinquished: 5,
        op,
    });
    let mut all: Vec<_> = requests
        .flat_map(|request| [Message::Request(request.clone()), Message::Forward(request)])
        .collect();
    all.extend([
        Message::Recall(key, generation, 7, id(0), 11),
        Message::Kill(key, generation, 7),
        Message::Created(key, 11, generation),
        Message::Object(key, 11, image.clone(), Members(6)),
        Message::Yours(key, 11),
        Message::Result(key, 11, Some(12)),
        Message::Result(key, 11, None),
        Message::Absent(key, 11),
        Message::Removed(key, 11),
        Message::Retry(key, 11),
        Message::Grant(5, key, record(None)),
        Message::Grant(5, key, record(Some((id(1), 4)))),
        Message::Swept(5),
        Message::Copy(key, image),
        Message::CopyAck(key, generation, 7, 8),
        Message::Drop(key, generation, 7),
        Message::DropAck(key, generation, 7),
        Message::Flush(5),
        Message::Claim(5, key, rank),
        Message::ClaimsDone(5),
        Message::Promote(5, key, generation, 7, Members(3)),
    ]);
    all
}

#[test]
fn each_message_is_read_as_it_was_written() {
    let mut kinds = Vec::new();
    for message in one_of_each() {
        let mut bytes = Vec::new();
        wire::write(&message, &mut bytes);
        assert_eq!(wire::read::<Bits>(&bytes, &()).as_ref(), Some(&message));
        for length in 0..bytes.len() {
            let part = wire::read::<Bits>(&bytes[..length], &());
            assert_eq!(part, None, "{length} bytes of {message:?}");
        }
        bytes.push(0);
        assert_eq!(wire::read::<Bits>(&bytes, &()), None, "{message:?} and a byte");
        kinds.push(bytes[0]);
    }
    kinds.sort_unstable();
    kinds.dedup();
    assert_eq!(kinds, (1..=21).collect::<Vec<u8>>(), "one of each");
}

/// Any byte of any message changed: it is no message, or a message that is written so.
#[test]
fn there_is_one_way_to_write_a_message() {
    for message in one_of_each() {
        let mut bytes = Vec::new();
        wire::write(&message, &mut bytes);
        for at in 0..bytes.len() {
            for change in [1, 0x80, 0xff] {
                let mut other = bytes.clone();
                other[at] ^= change;
                if let Some(read) = wire::read::<Bits>(&other, &()) {
                    let mut again = Vec::new();
                    wire::write(&read, &mut again);
                    assert_eq!(again, other, "{read:?}");
                }
            }
        }
    }
}
