//! Records of runtimes to each other about groups that move, in frames of messages.
//!
//! A type byte, then fixed fields, numbers in network order, then bytes whose length was said. A
//! state's records are a stream: records of a group follow its *begin*, records of a flow follow
//! that. Longer states than a frame has room for come in pieces.
//!
//! | type | record |
//! |---|---|
//! | 1 | says: group 40, what 1, epoch 8, argument 8, flows 4, packets kept 4, dropped 4, whether some switch was not clear 1 |
//! | 2 | announced reply key, before *open*: group 40, key 40 |
//! | 3 | begin: group 40, the source's time 8 |
//! | 4 | block: address 16, first port 2, ports 2 |
//! | 5 | group state, a piece: length 2, bytes |
//! | 6 | flow: key 40, reply key 40, time left from *begin* on 8 (all ones: its functions have asked for none), chain 1, flags 1, answered 1, length of the first piece 2, bytes |
//! | 7 | flow, a further piece: length 2, bytes |
//! | 8 | held for this flow: place in the chain 1, whether opening (bit 0) and copies (bit 1) 1, packets 2; they follow on the link |
//! | 9 | handed over: group 40, home 1, packets 2; they follow on the link |
//! | 10 | whether this runtime takes no groups 1 |
//! | 11 | which incarnation this runtime is 8, since which view 4 |
//! | 12 | copies begin: number of the base 4, the sender's time 8, its incarnation 8, whether beside another base 1 |
//! | 13 | copy of a group: slot 4, group 40, bytes of its state in all 2, length of the first piece 2, bytes |
//! | 14 | copy of a flow: slot 4, slot of its group 4 (all ones: none), bytes of its state in all 2, generation 1, then as 6 |
//! | 15 | copy, a further piece: length 2, bytes |
//! | 16 | changed bytes of a copy: slot 4, whether of a group 1, length 2, runs: offset 2, length 1, bytes |
//! | 17 | end of a copy: slot 4, whether of a group 1 |
//! | 18 | block of a copied group: whether claimed 1, address 16, first port 2, ports 2, group 40 |
//! | 19 | base complete |
//! | 20 | copies acknowledged: number of the base 4, records of it so far 8 |
//! | 21 | the copied group has no flow: slot 4, nanoseconds that it lives on 8 |
//! | 22 | the group has no flow: nanoseconds that it lives on from *begin* on 8 |
//! | 23 | blocks of ports wanted: function 1, how many 2, address 16, for all zeros anywhere |
//! | 24 | how many blocks this runtime has: function 1, free 4, its own 4 |
//! | 25 | of shared objects, a piece of a message: whether the last 1, length 2, bytes |
//! | 26 | copies refused from here on: number of the base 4 |
//! | 27 | configuration that copied flows go by: generation 1, identity 8, length 2, for each chain: layout of its flows 8, name 8 |
//! | 28 | of copies, a change begins: it is kept whole, or not at all |
//! | 29 | the change is whole |
//! | 30 | a group that has come by a move, whose source may have it yet, has ended, or the source has none of it: group 40, which of the two 1 |
//!
//! Records 12 to 19, 21 and 27 to 30 go from a primary to the runtime that keeps its copies, 20 and
//! 26 back ([`crate::replica`]).
//!
//! A record that changes, or comes new, changes this table, `length`, `write` and `read`, and the
//! number `RECORDS` of `flowkeep::member::secrets`: builds of two numbers do not meet.
//!
//! The source's time is by its own clock, and so is every time in a state: `target` re-bases them.
//!
//! Frames may come from another process: lengths are checked here, everything else by the runtime
//! that takes a record in (`target`).

mod copies;

pub(crate) use copies::Copy;

use crate::flows::group::GroupKey;
use alloc::vec::Vec;
use nf::{Addr, Block};
use protocols::ownership::{Epoch, Refusal, RuntimeMessage, Switches};
use wire::{FlowKey, Packet};

/// The target's figures of a group, at its installation.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub(crate) struct InstallStats {
    pub buffered: u32,
    pub dropped: u32,
    /// Some switch had not said `Drained`: it was not there, or had begun again.
    pub is_unclear: bool,
}

/// A flow's facts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct FlowHeader {
    pub key: FlowKey,
    pub second: FlowKey,
    /// How long it lives from *begin* on if nothing comes, in nanoseconds; [`NO_DEADLINE`].
    pub time_left: u64,
    pub chain: u8,
    pub flags: u8,
    pub answered: bool,
}

impl FlowHeader {
    /// The fixed fields of a flow's record, up to the piece's length.
    #[inline]
    fn head(&self, length: usize) -> [u8; FLOW_HEAD] {
        let mut head = [0; FLOW_HEAD];
        head[0] = FLOW;
        let words = self
            .key
            .words()
            .iter()
            .chain(self.second.words())
            .chain([&self.time_left]);
        for (place, word) in head[1..].chunks_exact_mut(8).zip(words) {
            place.copy_from_slice(&word.to_be_bytes());
        }
        head[89..92].copy_from_slice(&[self.chain, self.flags, u8::from(self.answered)]);
        head[92..].copy_from_slice(&(length as u16).to_be_bytes());
        head
    }

    /// Appends a flow's record with a piece of its state to a frame, as [`Record::append`] does,
    /// without a copy on the way.
    #[inline]
    pub fn append(&self, piece: &[u8], frame: &mut Packet) -> bool {
        let at = frame.frame().len();
        let length = at + FLOW_HEAD + piece.len();
        if length > crate::message::room(frame) || !frame.set_length(length) {
            return false;
        }
        let (head, rest) = frame.frame_mut()[at..].split_at_mut(FLOW_HEAD);
        head.copy_from_slice(&self.head(piece.len()));
        rest.copy_from_slice(piece);
        true
    }

    /// Writes a flow's record with its states, which are in two pieces.
    pub fn write(&self, state: [&[u8]; 2], into: &mut Vec<u8>) {
        into.extend_from_slice(&self.head(state[0].len() + state[1].len()));
        state.iter().for_each(|piece| into.extend_from_slice(piece));
    }

    /// A flow's record, if `bytes` begin with one: its facts, its piece and what follows it.
    #[inline]
    pub fn read(bytes: &[u8]) -> Option<(FlowHeader, &[u8], &[u8])> {
        let (head, rest) = bytes.split_first_chunk::<FLOW_HEAD>()?;
        if head[0] != FLOW {
            return None;
        }
        let mut words = [0; 11];
        for (word, place) in words.iter_mut().zip(head[1..].as_chunks::<8>().0) {
            *word = u64::from_be_bytes(*place);
        }
        let [a, b, c, d, e, v, w, x, y, z, time_left] = words;
        let flow_header = FlowHeader {
            key: FlowKey::from_words([a, b, c, d, e]),
            second: FlowKey::from_words([v, w, x, y, z]),
            time_left,
            chain: head[89],
            flags: head[90],
            answered: head[91] != 0,
        };
        let (piece, rest) = rest.split_at_checked(usize::from(u16::from_be_bytes([head[92], head[93]])))?;
        Some((flow_header, piece, rest))
    }
}

/// The bytes of a flow's states that move: those of its own chain's functions, then, of a flow that
/// is by itself, its group's.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Travelling {
    /// Bytes of the chain, at the beginning of the actor's state.
    pub own: usize,
    /// Where in it the group's state is, and how long.
    pub group: (usize, usize),
}

impl Travelling {
    /// Bytes in all.
    pub fn length(&self) -> usize {
        self.own + self.group.1
    }

    /// Where in the actor's state the bytes from `at` on are, as far as they are one behind the
    /// other.
    pub fn place(&self, at: usize) -> core::ops::Range<usize> {
        let (start, length) = self.group;
        match at.checked_sub(self.own) {
            None => at..self.own,
            Some(at) => start + at.min(length)..start + length,
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Record<'a> {
    Ownership {
        group: GroupKey,
        message: RuntimeMessage,
        flows: u32,
        install_stats: InstallStats,
    },
    ReplyKey {
        group: GroupKey,
        key: GroupKey,
    },
    Begin {
        group: GroupKey,
        /// The source's time.
        now: u64,
    },
    Block(Block),
    Group(&'a [u8]),
    /// The group rests, for so long from *begin* on.
    Rests {
        left: u64,
    },
    Flow(FlowHeader, &'a [u8]),
    More(&'a [u8]),
    Held {
        at: u8,
        opening: bool,
        /// Copies, which are no packets of their own.
        copies: bool,
        count: u16,
    },
    Handed {
        group: GroupKey,
        home: u8,
        count: u16,
    },
    Leaving(bool),
    /// Which incarnation the sender is, by views, and the number of a view that has it: the first
    /// of a session. Without copies, and without views or before them: which it is, and
    /// [`NO_VIEW`].
    Incarnation(u64, u32),
    /// A function's pool wants so many blocks, at this address above all.
    Wanted(u8, u16, Addr),
    /// So many blocks of a function's pool are free at the sender, and its own.
    Pool(u8, u32, u32),
    Copy(Copy<'a>),
    /// A piece of a message about shared objects, and whether it is the last ([`crate::objects`]).
    Object(bool, &'a [u8]),
}

/// Of an incarnation that no view has named yet.
pub(crate) const NO_VIEW: u32 = u32::MAX;

/// In [`FlowHeader::time_left`]: no function has said how long it lives.
pub(crate) const NO_DEADLINE: u64 = u64::MAX;
/// How far ahead of now the deadline of a flow that comes may be: thirty days, in nanoseconds.
pub(crate) const DEADLINE_MAX: u64 = 30 * 24 * 3600 * 1_000_000_000;
/// Bytes of a flow's record before its piece.
pub(crate) const FLOW_HEAD: usize = 94;
/// The type byte of a flow's record.
const FLOW: u8 = 6;
/// The type byte of which incarnation the sender is.
const INCARNATION: u8 = 11;
/// The type byte of a piece of a message about shared objects.
const OBJECT: u8 = 25;
/// The type byte of a machine's word about a group, and its length.
const OWNERSHIP: (u8, usize) = (1, 71);

/// Where the stream from a runtime stands.
#[derive(Default)]
pub(crate) struct Stream {
    /// The group whose state comes.
    pub group: Option<u32>,
    /// The group that will be opened next, and its reply keys.
    pub opening: Option<GroupKey>,
    pub reply_keys: Vec<GroupKey>,
    /// The flow whose state comes, and how much of it has.
    pub actor: Option<(u32, usize)>,
    /// The kind of the next packets.
    pub packets: Packets,
}

impl Stream {
    /// The reply keys of a group that is opened.
    pub fn take_reply_keys(&mut self, group: GroupKey) -> Vec<GroupKey> {
        let reply_keys = core::mem::take(&mut self.reply_keys);
        match self.opening.take() == Some(group) {
            true => reply_keys,
            false => Vec::new(),
        }
    }

    /// Notes a reply key of a group. A source says all of a group's in front of its *open*: those
    /// of another group, which was not opened, are forgotten. How many were.
    pub fn note_reply_key(&mut self, group: GroupKey, key: GroupKey) -> usize {
        let mut forgotten = 0;
        if self.opening != Some(group) {
            forgotten = self.reply_keys.len();
            self.reply_keys.clear();
            self.opening = Some(group);
        }
        self.reply_keys.push(key);
        forgotten
    }
}

/// The kinds of packets from a runtime.
#[derive(Clone, Copy, Default)]
pub(crate) enum Packets {
    #[default]
    Nothing,
    Held {
        at: u8,
        opening: bool,
        copies: bool,
        left: u16,
    },
    Handed {
        group: GroupKey,
        home: u8,
        left: u16,
    },
}

struct Writer<'a> {
    frame: &'a mut [u8],
    at: usize,
}

impl Writer<'_> {
    fn put(&mut self, bytes: &[u8]) {
        self.frame[self.at..self.at + bytes.len()].copy_from_slice(bytes);
        self.at += bytes.len();
    }
    fn words(&mut self, words: &[u64; 5]) {
        for word in words {
            self.put(&word.to_be_bytes());
        }
    }
    fn piece(&mut self, bytes: &[u8]) {
        self.put(&(bytes.len() as u16).to_be_bytes());
        self.put(bytes);
    }
}

impl Record<'_> {
    fn length(&self) -> usize {
        match self {
            Record::Ownership { .. } => OWNERSHIP.1,
            Record::ReplyKey { .. } => 81,
            Record::Begin { .. } => 49,
            Record::Block(_) => 21,
            Record::Rests { .. } => 9,
            Record::Group(bytes) | Record::More(bytes) => 3 + bytes.len(),
            Record::Flow(_, bytes) => FLOW_HEAD + bytes.len(),
            Record::Held { .. } => 5,
            Record::Handed { .. } => 44,
            Record::Leaving(_) => 2,
            Record::Copy(copy) => copy.length(),
            Record::Incarnation(..) => 13,
            Record::Wanted(..) => 20,
            Record::Pool(..) => 10,
            Record::Object(_, piece) => 4 + piece.len(),
        }
    }

    /// Takes in the record by which the sender says which incarnation it is, and which view has it.
    #[inline]
    pub fn read_incarnation(bytes: &[u8]) -> Option<(u64, u32, &[u8])> {
        if bytes.first() != Some(&INCARNATION) {
            return None;
        }
        match Record::read(bytes)? {
            (Record::Incarnation(incarnation, view), rest) => Some((incarnation, view, rest)),
            _ => None,
        }
    }

    /// The first record of `bytes` and what follows it, if it is about copies.
    #[inline]
    pub fn read_copy(bytes: &[u8]) -> Option<(Copy<'_>, &[u8])> {
        let (what, rest) = bytes.split_first()?;
        if !matches!(what, 12..=21 | 26..=30) {
            return None;
        }
        let mut reader = Reader(rest);
        Some((Copy::read(*what, &mut reader)?, reader.0))
    }

    /// The first record of `bytes` and what follows it, if it is about shared objects: whether it
    /// is a message's last piece, and the piece.
    #[inline]
    pub fn read_object(bytes: &[u8]) -> Option<(bool, &[u8], &[u8])> {
        let (what, rest) = bytes.split_first()?;
        if *what != OBJECT {
            return None;
        }
        let mut reader = Reader(rest);
        Some((reader.flag()?, reader.piece()?, reader.0))
    }

    /// Whether the written record is a word about a group.
    pub fn is_says(bytes: &[u8]) -> bool {
        bytes.first() == Some(&OWNERSHIP.0)
    }

    /// The groups that are named at the beginning of a frame: by that alone, to fetch the parts
    /// that will be looked at.
    pub fn groups_named(bytes: &[u8]) -> impl Iterator<Item = GroupKey> {
        let records = bytes
            .chunks_exact(OWNERSHIP.1)
            .take_while(|record| Record::is_says(record));
        records.filter_map(|record| Reader(&record[1..]).group())
    }

    /// Appends the record to a frame; `false` if it does not fit.
    pub fn append(&self, frame: &mut Packet) -> bool {
        let at = frame.frame().len();
        let length = at + self.length();
        if length > crate::message::room(frame) || !frame.set_length(length) {
            return false;
        }
        let mut writer = Writer {
            frame: frame.frame_mut(),
            at,
        };
        self.write(&mut writer);
        debug_assert_eq!(writer.at, length, "a record is as long as it says");
        true
    }

    /// The record by itself.
    pub fn bytes(&self) -> Vec<u8> {
        let mut bytes = alloc::vec![0; self.length()];
        let mut writer = Writer {
            frame: &mut bytes,
            at: 0,
        };
        self.write(&mut writer);
        bytes
    }

    fn write(&self, writer: &mut Writer<'_>) {
        match self {
            Record::Ownership {
                group,
                message,
                flows,
                install_stats,
            } => {
                writer.put(&[OWNERSHIP.0]);
                writer.words(group.words());
                let (what, epoch, argument) = numbers(*message);
                writer.put(&[what]);
                writer.put(&epoch.view.to_be_bytes());
                writer.put(&epoch.count.to_be_bytes());
                writer.put(&argument.to_be_bytes());
                writer.put(&flows.to_be_bytes());
                writer.put(&install_stats.buffered.to_be_bytes());
                writer.put(&install_stats.dropped.to_be_bytes());
                writer.put(&[u8::from(install_stats.is_unclear)]);
            }
            Record::ReplyKey { group, key } => {
                writer.put(&[2]);
                writer.words(group.words());
                writer.words(key.words());
            }
            Record::Begin { group, now } => {
                writer.put(&[3]);
                writer.words(group.words());
                writer.put(&now.to_be_bytes());
            }
            Record::Block(block) => {
                writer.put(&[4]);
                writer.put(block.addr.octets());
                writer.put(&block.first.to_be_bytes());
                writer.put(&block.ports.to_be_bytes());
            }
            Record::Group(bytes) => {
                writer.put(&[5]);
                writer.piece(bytes);
            }
            Record::Flow(flow_header, bytes) => {
                writer.put(&flow_header.head(bytes.len()));
                writer.put(bytes);
            }
            Record::More(bytes) => {
                writer.put(&[7]);
                writer.piece(bytes);
            }
            Record::Held {
                at,
                opening,
                copies,
                count,
            } => {
                writer.put(&[8, *at, u8::from(*opening) | u8::from(*copies) << 1]);
                writer.put(&count.to_be_bytes());
            }
            Record::Handed { group, home, count } => {
                writer.put(&[9]);
                writer.words(group.words());
                writer.put(&[*home]);
                writer.put(&count.to_be_bytes());
            }
            Record::Rests { left } => {
                writer.put(&[22]);
                writer.put(&left.to_be_bytes());
            }
            Record::Leaving(is_leaving) => writer.put(&[10, u8::from(*is_leaving)]),
            Record::Copy(copy) => copy.write(writer),
            Record::Wanted(function, count, at) => {
                writer.put(&[23, *function]);
                writer.put(&count.to_be_bytes());
                writer.put(at.octets());
            }
            Record::Pool(function, free, share) => {
                writer.put(&[24, *function]);
                writer.put(&free.to_be_bytes());
                writer.put(&share.to_be_bytes());
            }
            Record::Object(is_last, piece) => {
                writer.put(&[OBJECT, u8::from(*is_last)]);
                writer.piece(piece);
            }
            Record::Incarnation(incarnation, view) => {
                writer.put(&[INCARNATION]);
                writer.put(&incarnation.to_be_bytes());
                writer.put(&view.to_be_bytes());
            }
        }
    }
}

impl<'a> Record<'a> {
    /// The first record of `bytes` and what follows it; `None` at the end, or where the bytes are
    /// no record.
    pub fn read(bytes: &'a [u8]) -> Option<(Record<'a>, &'a [u8])> {
        if bytes.first() == Some(&FLOW) {
            let (flow_header, piece, rest) = FlowHeader::read(bytes)?;
            return Some((Record::Flow(flow_header, piece), rest));
        }
        let mut reader = Reader(bytes);
        let record = match reader.take::<1>()?[0] {
            1 => {
                let group = reader.group()?;
                let what = reader.take::<1>()?[0];
                let epoch = Epoch {
                    view: reader.u32()?,
                    count: reader.u32()?,
                };
                let argument = reader.u64()?;
                Record::Ownership {
                    group,
                    message: message(what, epoch, argument)?,
                    flows: reader.u32()?,
                    install_stats: InstallStats {
                        buffered: reader.u32()?,
                        dropped: reader.u32()?,
                        is_unclear: reader.take::<1>()?[0] != 0,
                    },
                }
            }
            2 => Record::ReplyKey {
                group: reader.group()?,
                key: reader.group()?,
            },
            3 => Record::Begin {
                group: reader.group()?,
                now: reader.u64()?,
            },
            4 => Record::Block(Block {
                addr: Addr::v6(*reader.take::<16>()?),
                first: reader.u16()?,
                ports: reader.u16()?,
            }),
            5 => Record::Group(reader.piece()?),
            7 => Record::More(reader.piece()?),
            8 => {
                let [at, marks] = *reader.take::<2>()?;
                Record::Held {
                    at,
                    opening: marks & 1 != 0,
                    copies: marks & 2 != 0,
                    count: reader.u16()?,
                }
            }
            9 => Record::Handed {
                group: reader.group()?,
                home: reader.take::<1>()?[0],
                count: reader.u16()?,
            },
            10 => Record::Leaving(reader.take::<1>()?[0] != 0),
            INCARNATION => Record::Incarnation(reader.u64()?, u32::from_be_bytes(*reader.take::<4>()?)),
            22 => Record::Rests { left: reader.u64()? },
            23 => {
                let (function, count) = (reader.take::<1>()?[0], reader.u16()?);
                Record::Wanted(function, count, Addr::v6(*reader.take::<16>()?))
            }
            24 => Record::Pool(reader.take::<1>()?[0], reader.u32()?, reader.u32()?),
            OBJECT => Record::Object(reader.flag()?, reader.piece()?),
            what => Record::Copy(Copy::read(what, &mut reader)?),
        };
        Some((record, reader.0))
    }
}

fn numbers(message: RuntimeMessage) -> (u8, Epoch, u64) {
    match message {
        RuntimeMessage::Open(epoch, homes) => (0, epoch, homes.0),
        RuntimeMessage::Accept(epoch) => (1, epoch, 0),
        RuntimeMessage::Refuse(epoch, why) => (2, epoch, why as u64),
        RuntimeMessage::Cancel(epoch) => (3, epoch, 0),
        RuntimeMessage::Canceled(epoch) => (4, epoch, 0),
        RuntimeMessage::State(epoch) => (5, epoch, 0),
        RuntimeMessage::Done(epoch) => (6, epoch, 0),
        RuntimeMessage::Gone(epoch) => (7, epoch, 0),
        RuntimeMessage::End(epoch, home) => (8, epoch, u64::from(home)),
        RuntimeMessage::Fenced(epoch) => (9, epoch, 0),
        RuntimeMessage::Back(epoch, home) => (10, epoch, u64::from(home)),
    }
}

fn message(what: u8, epoch: Epoch, argument: u64) -> Option<RuntimeMessage> {
    Some(match what {
        0 => RuntimeMessage::Open(epoch, Switches(argument)),
        1 => RuntimeMessage::Accept(epoch),
        2 => {
            let why = [Refusal::Full, Refusal::Leaving, Refusal::Busy];
            RuntimeMessage::Refuse(epoch, why.into_iter().find(|why| *why as u64 == argument)?)
        }
        3 => RuntimeMessage::Cancel(epoch),
        4 => RuntimeMessage::Canceled(epoch),
        5 => RuntimeMessage::State(epoch),
        6 => RuntimeMessage::Done(epoch),
        7 => RuntimeMessage::Gone(epoch),
        8 => RuntimeMessage::End(epoch, u8::try_from(argument).ok()?),
        9 => RuntimeMessage::Fenced(epoch),
        10 => RuntimeMessage::Back(epoch, u8::try_from(argument).ok()?),
        _ => return None,
    })
}

struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn take<const N: usize>(&mut self) -> Option<&'a [u8; N]> {
        let (head, rest) = self.0.split_first_chunk::<N>()?;
        self.0 = rest;
        Some(head)
    }
    fn flag(&mut self) -> Option<bool> {
        self.take::<1>().map(|[byte]| *byte != 0)
    }
    fn u16(&mut self) -> Option<u16> {
        self.take().map(|bytes| u16::from_be_bytes(*bytes))
    }
    fn u32(&mut self) -> Option<u32> {
        self.take().map(|bytes| u32::from_be_bytes(*bytes))
    }
    fn u64(&mut self) -> Option<u64> {
        self.take().map(|bytes| u64::from_be_bytes(*bytes))
    }
    fn words(&mut self) -> Option<[u64; 5]> {
        let mut words = [0; 5];
        for word in &mut words {
            *word = self.u64()?;
        }
        Some(words)
    }
    fn group(&mut self) -> Option<GroupKey> {
        self.words().map(GroupKey::from_words)
    }
    fn piece(&mut self) -> Option<&'a [u8]> {
        let length = usize::from(self.u16()?);
        let (piece, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(piece)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::vec::Vec;
    use wire::Pool;
    use wire::memory::Region;

    #[test]
    fn what_is_written_is_read() {
        let group = GroupKey::from_words([1, 2, 3, 4, 5]);
        let epoch = Epoch { view: 7, count: 8 };
        let all = [
            RuntimeMessage::Open(epoch, Switches(5)),
            RuntimeMessage::Accept(epoch),
            RuntimeMessage::Refuse(epoch, Refusal::Leaving),
            RuntimeMessage::Cancel(epoch),
            RuntimeMessage::Canceled(epoch),
            RuntimeMessage::State(epoch),
            RuntimeMessage::Done(epoch),
            RuntimeMessage::Gone(epoch),
            RuntimeMessage::End(epoch, 3),
            RuntimeMessage::Fenced(epoch),
            RuntimeMessage::Back(epoch, 2),
        ];
        let mut records: Vec<Record<'_>> = all
            .into_iter()
            .map(|message| Record::Ownership {
                group,
                message,
                flows: 9,
                install_stats: InstallStats {
                    buffered: 1,
                    dropped: 2,
                    is_unclear: true,
                },
            })
            .collect();
        let flow_header = FlowHeader {
            key: FlowKey::from_words([9; 5]),
            second: FlowKey::from_words([8; 5]),
            time_left: 77,
            chain: 3,
            flags: 255,
            answered: true,
        };
        records.extend([
            Record::ReplyKey { group, key: group },
            Record::Begin { group, now: 11 },
            Record::Block(Block {
                addr: "192.0.2.1".parse().unwrap(),
                first: 1024,
                ports: 256,
            }),
            Record::Group(b"group"),
            Record::Flow(flow_header, b"flow"),
            Record::More(b""),
            Record::Held {
                at: 1,
                opening: true,
                copies: false,
                count: 2,
            },
            Record::Held {
                at: 3,
                opening: false,
                copies: true,
                count: 1,
            },
            Record::Handed {
                group,
                home: 1,
                count: 513,
            },
            Record::Leaving(true),
            Record::Leaving(false),
            Record::Incarnation(1 << 60, 7),
            Record::Rests { left: 1 << 40 },
            Record::Wanted(3, 517, "192.0.2.1".parse().unwrap()),
            Record::Pool(2, 1 << 20, 1 << 21),
            Record::Object(true, b"object"),
            Record::Object(false, b""),
        ]);
        let block = Block {
            addr: "192.0.2.1".parse().unwrap(),
            first: 1024,
            ports: 256,
        };
        let copies = [
            Copy::Base {
                number: 3,
                now: 11,
                incarnation: 12,
                is_second: true,
            },
            Copy::Group {
                slot: 4,
                group,
                length: 300,
                piece: b"group",
            },
            Copy::Flow {
                slot: 5,
                group: u32::MAX,
                length: 4,
                generation: 255,
                flow_header,
                piece: b"flow",
            },
            Copy::More(b"more"),
            Copy::Runs {
                slot: 6,
                is_group: true,
                runs: b"runs",
            },
            Copy::End {
                slot: 7,
                is_group: false,
            },
            Copy::Block {
                is_claimed: true,
                block,
                group,
            },
            Copy::Whole,
            Copy::Rests {
                slot: 8,
                left: 1 << 50,
            },
            Copy::Acknowledged { number: 3, count: 99 },
            Copy::Refused { number: 4 },
            Copy::Plan {
                generation: 9,
                identity: 1 << 60,
                chains: b"chains",
            },
            Copy::Change,
            Copy::Changed,
            Copy::Over { group, is_over: true },
        ];
        records.extend(copies.map(Record::Copy));
        let mut pool = Pool::new(Region::heap(Pool::region_length(1, 2048)), 1, 2048, 0);
        let mut frame = pool.take().unwrap();
        crate::message::Message::begin(&mut frame);
        for record in &records {
            assert!(record.append(&mut frame), "{record:?}");
        }
        let mut bytes = frame.frame();
        let mut read = Vec::new();
        while let Some((record, rest)) = Record::read(bytes) {
            if let Record::Copy(copy) = record {
                assert_eq!(Record::read_copy(bytes), Some((copy, rest)));
            }
            read.push(record);
            bytes = rest;
        }
        assert_eq!(read, records);
        assert_eq!(Record::groups_named(frame.frame()).count(), all.len());
        // The short way writes and reads the same.
        let long = Record::Flow(flow_header, b"flow").bytes();
        crate::message::Message::begin(&mut frame);
        assert!(flow_header.append(b"flow", &mut frame));
        assert_eq!(frame.frame(), long);
        assert_eq!(
            FlowHeader::read(&long),
            Some((flow_header, &b"flow"[..], &b""[..]))
        );
        assert_eq!(FlowHeader::read(&long[..long.len() - 1]), None);
        pool.give(frame);
    }

    proptest! {
        #[test]
        fn hostile_bytes_are_no_harm(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let mut rest = &bytes[..];
            while let Some((_, next)) = Record::read(rest) {
                rest = next;
            }
        }
    }
}
