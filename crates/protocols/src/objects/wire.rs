//! Messages about objects as bytes.
//!
//! A message is a type byte and its fields, numbers in network order:
//!
//! | type | message | fields behind the key, if there is one |
//! |---|---|---|
//! | 1, 2 | request, forward | caller, number 8, settled 8, forwards 1, relinquished 4, operation |
//! | 3 | recall | incarnation, lease 8, to 2, number 8 |
//! | 4 | kill | incarnation, lease 8 |
//! | 5 | created | number 8, incarnation |
//! | 6 | object | number 8, image, copies 8 |
//! | 7, 9, 10, 11 | yours, absent, removed, retry | number 8 |
//! | 8 | result | number 8, whether there is an answer 1, bytes |
//! | 12 | grant | view 4, record |
//! | 13 | swept (no key) | view 4 |
//! | 14 | copy | image |
//! | 15 | copied | incarnation, lease 8, version 8 |
//! | 16, 17 | drop, dropped | incarnation, lease 8 |
//! | 18, 20 | flush, claims done (no key) | view 4 |
//! | 19 | claim | view 4, incarnation, lease 8, whether it is the holder 1, version 8 |
//! | 21 | promote | view 4, incarnation, lease 8, copies 8 |
//!
//! ```text
//!   key          kind 2, length 1, so many bytes (at most 40)
//!   incarnation  view 4, count 8, owner 2
//!   caller       runtime 2, incarnation 8
//!   bytes        length 4, so many bytes: a content, a call or an answer, which the driver reads
//!   operation    1 create, 2 get, 3 read: bytes, 4 call: bytes, 5 remove, 6 gone: incarnation, 7 offer: incarnation,
//!                8 expire: incarnation, lease 8
//!   image        incarnation, lease 8, version 8, bytes, callers 1: each a caller, a watermark 8, numbers 1, 8 each
//!   record       incarnation, lease 8, tail 2, whether it is being removed 1, then runtime 2, number 8
//! ```
//!
//! There is one way to write a message: a message that is read and written again has the same
//! bytes. A runtime's number is below 64, a flag 0 or 1, nothing follows the last field.

use super::applied::{Applied, Calls, WINDOW};
use super::members::{Key, Members};
use super::message::{Body, Caller, Gen, Image, Message, Op, Rank, Record, Request};
use crate::ownership::RuntimeId;
use alloc::vec::Vec;
use arrayvec::ArrayVec;

/// A content, a call or an answer that can be sent.
pub trait Bytes: Sized {
    /// The kinds that a reader knows.
    type Kinds;

    /// Appends the bytes.
    fn write(&self, to: &mut Vec<u8>);

    /// Reads them all, of an object of this kind; `None` if they are not what `write` writes.
    fn read(kinds: &Self::Kinds, kind: u16, bytes: &[u8]) -> Option<Self>;
}

/// Appends a message to a buffer, which the driver keeps, so that it need not grow again.
pub fn write<B>(message: &Message<B>, to: &mut Vec<u8>)
where
    B: Body + Bytes,
    B::Call: Bytes,
    B::Answer: Bytes,
{
    let mut writer = Writer(to);
    match message {
        Message::Request(request) => writer.request(1, request),
        Message::Forward(request) => writer.request(2, request),
        Message::Recall(key, generation, lease, next, id) => {
            writer.head(3, key);
            writer.generation(*generation);
            writer.long(*lease);
            writer.runtime(*next);
            writer.long(*id);
        }
        Message::Kill(key, generation, lease) => writer.lease(4, key, *generation, *lease),
        Message::Created(key, id, generation) => {
            writer.answer(5, key, *id);
            writer.generation(*generation);
        }
        Message::Object(key, id, image, copies) => {
            writer.answer(6, key, *id);
            writer.image(image);
            writer.long(copies.0);
        }
        Message::Yours(key, id) => writer.answer(7, key, *id),
        Message::Result(key, id, answer) => {
            writer.answer(8, key, *id);
            writer.byte(u8::from(answer.is_some()));
            if let Some(answer) = answer {
                writer.bytes(answer);
            }
        }
        Message::Absent(key, id) => writer.answer(9, key, *id),
        Message::Removed(key, id) => writer.answer(10, key, *id),
        Message::Retry(key, id) => writer.answer(11, key, *id),
        Message::Grant(view, key, record) => {
            writer.head(12, key);
            writer.word(*view);
            writer.record(record);
        }
        Message::Swept(view) => writer.view(13, *view),
        Message::Copy(key, image) => {
            writer.head(14, key);
            writer.image(image);
        }
        Message::CopyAck(key, generation, lease, version) => {
            writer.lease(15, key, *generation, *lease);
            writer.long(*version);
        }
        Message::Drop(key, generation, lease) => writer.lease(16, key, *generation, *lease),
        Message::DropAck(key, generation, lease) => writer.lease(17, key, *generation, *lease),
        Message::Flush(view) => writer.view(18, *view),
        Message::Claim(view, key, rank) => {
            writer.head(19, key);
            writer.word(*view);
            writer.generation(rank.generation);
            writer.long(rank.lease);
            writer.byte(u8::from(rank.is_holder));
            writer.long(rank.version);
        }
        Message::ClaimsDone(view) => writer.view(20, *view),
        Message::Promote(view, key, generation, lease, copies) => {
            writer.head(21, key);
            writer.word(*view);
            writer.generation(*generation);
            writer.long(*lease);
            writer.long(copies.0);
        }
    }
}

/// Reads a message that is all of the bytes.
pub fn read<B>(bytes: &[u8], kinds: &B::Kinds) -> Option<Message<B>>
where
    B: Body + Bytes,
    B::Call: Bytes<Kinds = B::Kinds>,
    B::Answer: Bytes<Kinds = B::Kinds>,
{
    let mut reader = Reader(bytes);
    let kind = reader.byte()?;
    if let 13 | 18 | 20 = kind {
        let view = reader.word()?;
        return reader.end(match kind {
            13 => Message::Swept(view),
            18 => Message::Flush(view),
            _ => Message::ClaimsDone(view),
        });
    }
    let key = reader.key()?;
    let of = (kinds, key.kind());
    let message = match kind {
        1 => Message::Request(reader.request(key, of)?),
        2 => Message::Forward(reader.request(key, of)?),
        3 => {
            let (generation, lease) = (reader.generation()?, reader.long()?);
            Message::Recall(key, generation, lease, reader.runtime()?, reader.long()?)
        }
        4 => Message::Kill(key, reader.generation()?, reader.long()?),
        5 => Message::Created(key, reader.long()?, reader.generation()?),
        6 => Message::Object(key, reader.long()?, reader.image(of)?, Members(reader.long()?)),
        7 => Message::Yours(key, reader.long()?),
        8 => {
            let (id, has_answer) = (reader.long()?, reader.flag()?);
            let answer = if has_answer { Some(reader.bytes(of)?) } else { None };
            Message::Result(key, id, answer)
        }
        9 => Message::Absent(key, reader.long()?),
        10 => Message::Removed(key, reader.long()?),
        11 => Message::Retry(key, reader.long()?),
        12 => Message::Grant(reader.word()?, key, reader.record()?),
        14 => Message::Copy(key, reader.image(of)?),
        15 => Message::CopyAck(key, reader.generation()?, reader.long()?, reader.long()?),
        16 => Message::Drop(key, reader.generation()?, reader.long()?),
        17 => Message::DropAck(key, reader.generation()?, reader.long()?),
        19 => Message::Claim(reader.word()?, key, reader.rank()?),
        21 => {
            let (view, generation, lease) = (reader.word()?, reader.generation()?, reader.long()?);
            Message::Promote(view, key, generation, lease, Members(reader.long()?))
        }
        _ => return None,
    };
    reader.end(message)
}

struct Writer<'a>(&'a mut Vec<u8>);

impl Writer<'_> {
    fn put(&mut self, bytes: &[u8]) {
        self.0.extend_from_slice(bytes);
    }

    fn byte(&mut self, byte: u8) {
        self.put(&[byte]);
    }

    fn word(&mut self, word: u32) {
        self.put(&word.to_be_bytes());
    }

    fn long(&mut self, long: u64) {
        self.put(&long.to_be_bytes());
    }

    fn runtime(&mut self, runtime: RuntimeId) {
        self.put(&runtime.0.to_be_bytes());
    }

    fn head(&mut self, kind: u8, key: &Key) {
        self.byte(kind);
        self.put(&key.kind().to_be_bytes());
        self.byte(key.bytes().len() as u8);
        self.put(key.bytes());
    }

    fn view(&mut self, kind: u8, view: u32) {
        self.byte(kind);
        self.word(view);
    }

    fn answer(&mut self, kind: u8, key: &Key, id: u64) {
        self.head(kind, key);
        self.long(id);
    }

    fn lease(&mut self, kind: u8, key: &Key, generation: Gen, lease: u64) {
        self.head(kind, key);
        self.generation(generation);
        self.long(lease);
    }

    fn generation(&mut self, generation: Gen) {
        self.word(generation.view);
        self.long(generation.count);
        self.runtime(generation.owner);
    }

    fn caller(&mut self, caller: Caller) {
        self.runtime(caller.runtime);
        self.long(caller.incarnation);
    }

    /// Bytes behind their length, which is known once they are written.
    fn bytes(&mut self, content: &impl Bytes) {
        let at = self.0.len();
        self.word(0);
        let start = self.0.len();
        content.write(self.0);
        let length = (self.0.len() - start) as u32;
        if let Some(place) = self.0.get_mut(at..start) {
            place.copy_from_slice(&length.to_be_bytes());
        }
    }

    fn image<B: Body + Bytes>(&mut self, image: &Image<B>) {
        self.generation(image.generation);
        self.long(image.lease);
        self.long(image.version);
        self.bytes(&image.body);
        self.byte(image.applied.callers.len() as u8);
        for calls in &image.applied.callers {
            self.caller(calls.caller);
            self.long(calls.watermark);
            self.byte(calls.above.len() as u8);
            calls.above.iter().for_each(|id| self.long(*id));
        }
    }

    fn record(&mut self, record: &Record) {
        self.generation(record.generation);
        self.long(record.lease);
        self.runtime(record.tail);
        self.byte(u8::from(record.removing.is_some()));
        if let Some((runtime, id)) = record.removing {
            self.runtime(runtime);
            self.long(id);
        }
    }

    fn request<B>(&mut self, kind: u8, request: &Request<B>)
    where
        B: Body,
        B::Call: Bytes,
    {
        self.head(kind, &request.key);
        self.caller(request.caller);
        self.long(request.id);
        self.long(request.answered_below);
        self.byte(request.forwards);
        self.word(request.relinquished);
        match &request.op {
            Op::Create => self.byte(1),
            Op::GetWrite => self.byte(2),
            Op::Read(call) => {
                self.byte(3);
                self.bytes(call);
            }
            Op::Call(call) => {
                self.byte(4);
                self.bytes(call);
            }
            Op::Remove => self.byte(5),
            Op::Gone(generation) => {
                self.byte(6);
                self.generation(*generation);
            }
            Op::Offer(generation) => {
                self.byte(7);
                self.generation(*generation);
            }
            Op::Expire(generation, lease) => {
                self.byte(8);
                self.generation(*generation);
                self.long(*lease);
            }
        }
    }
}

struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(taken)
    }

    fn chunk<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (chunk, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*chunk)
    }

    /// The message, if nothing is left.
    fn end<T>(&self, message: T) -> Option<T> {
        self.0.is_empty().then_some(message)
    }

    fn byte(&mut self) -> Option<u8> {
        self.chunk().map(u8::from_be_bytes)
    }

    fn flag(&mut self) -> Option<bool> {
        match self.byte()? {
            0 => Some(false),
            1 => Some(true),
            _ => None,
        }
    }

    fn word(&mut self) -> Option<u32> {
        self.chunk().map(u32::from_be_bytes)
    }

    fn long(&mut self) -> Option<u64> {
        self.chunk().map(u64::from_be_bytes)
    }

    fn runtime(&mut self) -> Option<RuntimeId> {
        let number = self.chunk().map(u16::from_be_bytes)?;
        (number < Members::MAX).then_some(RuntimeId(number))
    }

    fn key(&mut self) -> Option<Key> {
        let kind = self.chunk().map(u16::from_be_bytes)?;
        let length = self.byte()?;
        Key::new(kind, self.take(usize::from(length))?)
    }

    fn generation(&mut self) -> Option<Gen> {
        Some(Gen {
            view: self.word()?,
            count: self.long()?,
            owner: self.runtime()?,
        })
    }

    fn caller(&mut self) -> Option<Caller> {
        Some(Caller {
            runtime: self.runtime()?,
            incarnation: self.long()?,
        })
    }

    fn bytes<T: Bytes>(&mut self, (kinds, kind): (&T::Kinds, u16)) -> Option<T> {
        let length = self.word()?;
        T::read(kinds, kind, self.take(length as usize)?)
    }

    fn rank(&mut self) -> Option<Rank> {
        Some(Rank {
            generation: self.generation()?,
            lease: self.long()?,
            is_holder: self.flag()?,
            version: self.long()?,
        })
    }

    fn image<B: Body + Bytes>(&mut self, of: (&B::Kinds, u16)) -> Option<Image<B>> {
        let (generation, lease, version) = (self.generation()?, self.long()?, self.long()?);
        let body = self.bytes(of)?;
        let count = self.byte()?;
        if u16::from(count) > Members::MAX {
            return None;
        }
        let mut applied = Applied::default();
        for _ in 0..count {
            let calls = self.calls()?;
            let is_there = |other: &Calls| other.caller.runtime == calls.caller.runtime;
            if applied.callers.iter().any(is_there) {
                return None;
            }
            applied.callers.push(calls);
        }
        Some(Image {
            generation,
            lease,
            version,
            body,
            applied,
        })
    }

    fn calls(&mut self) -> Option<Calls> {
        let (caller, watermark) = (self.caller()?, self.long()?);
        let count = self.byte()?;
        let mut above = ArrayVec::<u64, WINDOW>::new();
        for _ in 0..count {
            above.try_push(self.long()?).ok()?;
        }
        Some(Calls {
            caller,
            watermark,
            above,
        })
    }

    fn record(&mut self) -> Option<Record> {
        let (generation, lease, tail) = (self.generation()?, self.long()?, self.runtime()?);
        let is_removing = self.flag()?;
        let removing = match is_removing {
            true => Some((self.runtime()?, self.long()?)),
            false => None,
        };
        Some(Record {
            generation,
            lease,
            tail,
            removing,
        })
    }

    fn request<B>(&mut self, key: Key, of: (&B::Kinds, u16)) -> Option<Request<B>>
    where
        B: Body + Bytes,
        B::Call: Bytes<Kinds = B::Kinds>,
    {
        Some(Request {
            key,
            caller: self.caller()?,
            id: self.long()?,
            answered_below: self.long()?,
            forwards: self.byte()?,
            relinquished: self.word()?,
            op: match self.byte()? {
                1 => Op::Create,
                2 => Op::GetWrite,
                3 => Op::Read(self.bytes(of)?),
                4 => Op::Call(self.bytes(of)?),
                5 => Op::Remove,
                6 => Op::Gone(self.generation()?),
                7 => Op::Offer(self.generation()?),
                8 => Op::Expire(self.generation()?, self.long()?),
                _ => return None,
            },
        })
    }
}
