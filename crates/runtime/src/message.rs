//! Messages between workers, carried in packet buffers on the same links as the packets, in order with them.
//!
//! A frame of messages is a buffer of kind `Message` whose bytes are records, one after another: a type byte, then fixed
//! fields, numbers in network order. What a runtime says to a switch:
//!
//! | type | record | length |
//! |---|---|---|
//! | 1 | block claimed: address 16, first port 2, ports 2, group 40 | 61 |
//! | 2 | block released: address 16, first port 2, ports 2 | 21 |
//! | 3 | routed here: group 40 | 41 |
//! | 4 | idle: group 40, packets consumed from this link 4 | 45 |
//!
//! And a switch to a runtime:
//!
//! | type | record | length |
//! |---|---|---|
//! | 5 | doubted: group 40 | 41 |
//! | 6 | taken: second key 40 | 41 |
//!
//! *Told before the first packet leaves*: a runtime passes the frame on before the packet whose replies it is about, so a
//! switch that reads its links before its ports knows the route before a reply can come.
//!
//! A *second key* of a translated flow, where the switch could not route it otherwise, is announced as a group of its own
//! (type 3) and ends as one (type 4).
//!
//! *Idle*: the count says how much of what the switch sent had been seen when the group was found idle. The switch forgets
//! the route only if it has sent nothing for the group since; otherwise what it sent has begun the group anew, and the
//! runtime will say so again. So no flow can be at two runtimes.
//!
//! *Doubted*: the switch does not know that what it sent by a route began, or begins, the group there (`switch::routes`). A
//! runtime without it answers *idle*.
//!
//! *Taken*: a second key that the runtime announced is another runtime's, or there is no room for a route. The switch drops what the flow sends until it hears that
//! the key is idle there.

use crate::group::GroupKey;
use nf::{Addr, Block};
use wire::{LinkType, Packet, packet::Kind};

/// What workers tell each other.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Message {
    /// Packets from outside for this block are the group's.
    BlockClaimed(Block, GroupKey),
    /// The block is nobody's.
    BlockReleased(Block),
    /// Packets of this group, or with this second key, come here.
    Routed(GroupKey),
    /// The group, or second key, has no flow; so many packets had been consumed from this link.
    Idle(GroupKey, u32),
    /// By a switch: if the group, or second key, has no flow, say so.
    Doubted(GroupKey),
    /// By a switch: the second key gets no route to there; end its flow.
    Taken(GroupKey),
}

/// The longest record.
pub const RECORD_MAX: usize = 61;

impl Message {
    /// Appends the record to a frame of messages; `false` if it does not fit.
    pub fn append(&self, frame: &mut Packet) -> bool {
        let at = frame.frame().len();
        let mut record = [0; RECORD_MAX];
        let mut writer = Writer {
            bytes: &mut record,
            at: 0,
        };
        match self {
            Message::BlockClaimed(block, group) => {
                writer.put(&[1]);
                writer.block(block);
                writer.words(group.words());
            }
            Message::BlockReleased(block) => {
                writer.put(&[2]);
                writer.block(block);
            }
            Message::Routed(group) => {
                writer.put(&[3]);
                writer.words(group.words());
            }
            Message::Idle(group, consumed) => {
                writer.put(&[4]);
                writer.words(group.words());
                writer.put(&consumed.to_be_bytes());
            }
            Message::Doubted(group) => {
                writer.put(&[5]);
                writer.words(group.words());
            }
            Message::Taken(group) => {
                writer.put(&[6]);
                writer.words(group.words());
            }
        }
        let length = writer.at;
        if at + length > frame.room() || !frame.set_length(at + length) {
            return false;
        }
        frame.frame_mut()[at..].copy_from_slice(&record[..length]);
        true
    }

    /// Makes an empty frame of messages of a buffer.
    pub fn begin(frame: &mut Packet) {
        frame.reset(0, LinkType::Raw);
        frame.set_kind(Kind::Message);
    }

    /// The first record of `bytes` and what follows it; `None` at the end, or where the bytes are no record.
    pub fn read(bytes: &[u8]) -> Option<(Message, &[u8])> {
        let mut reader = Reader(bytes);
        let message = match reader.take::<1>()?[0] {
            1 => Message::BlockClaimed(reader.block()?, GroupKey::from_words(reader.words()?)),
            2 => Message::BlockReleased(reader.block()?),
            3 => Message::Routed(GroupKey::from_words(reader.words()?)),
            4 => Message::Idle(
                GroupKey::from_words(reader.words()?),
                u32::from_be_bytes(*reader.take::<4>()?),
            ),
            5 => Message::Doubted(GroupKey::from_words(reader.words()?)),
            6 => Message::Taken(GroupKey::from_words(reader.words()?)),
            _ => return None,
        };
        Some((message, reader.0))
    }
}

struct Writer<'a> {
    bytes: &'a mut [u8; RECORD_MAX],
    at: usize,
}

impl Writer<'_> {
    fn put(&mut self, bytes: &[u8]) {
        self.bytes[self.at..self.at + bytes.len()].copy_from_slice(bytes);
        self.at += bytes.len();
    }
    fn words(&mut self, words: &[u64; 5]) {
        for word in words {
            self.put(&word.to_be_bytes());
        }
    }
    fn block(&mut self, block: &Block) {
        self.put(block.addr.octets());
        self.put(&block.first.to_be_bytes());
        self.put(&block.ports.to_be_bytes());
    }
}

struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn take<const N: usize>(&mut self) -> Option<&'a [u8; N]> {
        let (head, rest) = self.0.split_first_chunk::<N>()?;
        self.0 = rest;
        Some(head)
    }
    fn words(&mut self) -> Option<[u64; 5]> {
        let mut words = [0; 5];
        for word in &mut words {
            *word = u64::from_be_bytes(*self.take::<8>()?);
        }
        Some(words)
    }
    fn block(&mut self) -> Option<Block> {
        Some(Block {
            addr: Addr::v6(*self.take::<16>()?),
            first: u16::from_be_bytes(*self.take::<2>()?),
            ports: u16::from_be_bytes(*self.take::<2>()?),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::vec::Vec;
    use wire::Pool;
    use wire::memory::Region;

    fn message() -> impl Strategy<Value = Message> {
        let block = (any::<[u8; 16]>(), any::<u16>(), any::<u16>()).prop_map(|(addr, first, ports)| Block {
            addr: Addr::v6(addr),
            first,
            ports,
        });
        let group = any::<[u64; 5]>().prop_map(GroupKey::from_words);
        prop_oneof![
            (block.clone(), group.clone()).prop_map(|(b, g)| Message::BlockClaimed(b, g)),
            block.prop_map(Message::BlockReleased),
            group.clone().prop_map(Message::Routed),
            (group.clone(), any::<u32>()).prop_map(|(g, n)| Message::Idle(g, n)),
            group.clone().prop_map(Message::Doubted),
            group.prop_map(Message::Taken),
        ]
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(messages in proptest::collection::vec(message(), 0..40)) {
            let mut pool = Pool::new(Region::heap(Pool::region_length(1, 2048)), 1, 2048, 0);
            let mut frame = pool.take().unwrap();
            Message::begin(&mut frame);
            let fitted: Vec<Message> = messages.into_iter().take_while(|m| m.append(&mut frame)).collect();
            let mut bytes = frame.frame();
            let mut read = Vec::new();
            while let Some((message, rest)) = Message::read(bytes) {
                read.push(message);
                bytes = rest;
            }
            prop_assert!(bytes.is_empty());
            prop_assert_eq!(read, fitted);
            pool.give(frame);
        }

        #[test]
        fn hostile_bytes_are_no_harm(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let mut rest = &bytes[..];
            while let Some((_, next)) = Message::read(rest) {
                rest = next;
            }
        }
    }
}
