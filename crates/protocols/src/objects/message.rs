//! Messages between runtimes about objects, and the names in them.

use super::applied::Applied;
use super::members::{Key, Members};
use crate::ownership::RuntimeId;
use core::fmt::Debug;
use core::hash::Hash;

/// The content of an object, which is the driver's: the machine stores, ships and copies it, and
/// has it apply calls.
pub trait Body: Clone + Eq + Hash + Debug {
    /// A method with its arguments.
    type Call: Clone + Eq + Hash + Debug;
    /// The answer of a method.
    type Answer: Clone + Eq + Hash + Debug;

    /// Applies a method that changes the object.
    fn apply(&mut self, call: &Self::Call) -> Self::Answer;

    /// Applies a method that changes nothing.
    fn read(&self, call: &Self::Call) -> Self::Answer;

    /// Adds a later call's change to an earlier one that was not sent; `false` if that cannot be.
    fn fold(into: &mut Self::Call, later: &Self::Call) -> bool;
}

/// Names one incarnation of an object: of two of one key the later one is greater.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Gen {
    /// The view in which it was made.
    pub view: u32,
    /// The incarnations that the key owner has made, with this one.
    pub count: u64,
    /// The key owner that made it.
    pub owner: RuntimeId,
}

/// One incarnation of a runtime that asks.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Caller {
    /// The runtime.
    pub runtime: RuntimeId,
    /// Which incarnation of it: a later one has a higher number.
    pub incarnation: u64,
}

/// An operation that is asked of a key owner.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Op<B: Body> {
    /// The object, which is made if it is absent.
    Create,
    /// The object.
    GetWrite,
    /// The answer of a method that changes nothing, from the holder.
    Read(B::Call),
    /// The answer of a method, applied once at the holder.
    Call(B::Call),
    /// The object's end.
    Remove,
    /// By a holder: the object of this incarnation is no more, nor is a copy of it.
    Gone(Gen),
    /// By a holder that leaves: the object of this incarnation needs another holder.
    Offer(Gen),
    /// By the holder of this lease: the object was not used for long, and is to end.
    Expire(Gen, u64),
}

/// A message to the key owner, wherever that is.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Request<B: Body> {
    /// The object's key.
    pub key: Key,
    /// The runtime that asks.
    pub caller: Caller,
    /// The caller's number for it; 0 where there is no answer.
    pub id: u64,
    /// Of calls: the lowest number of the caller's unanswered calls of this key.
    pub answered_below: u64,
    /// How often it was sent on.
    pub forwards: u8,
    /// The view for which the previous key owner gave up its authority over the key; 0 if it did
    /// not.
    pub relinquished: u32,
    /// The operation.
    pub op: Op<B>,
}

/// A key owner's record of an object.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Record {
    /// The incarnation.
    pub generation: Gen,
    /// How many holders it was given to.
    pub lease: u64,
    /// Which runtime has the latest lease, or is to get it.
    pub tail: RuntimeId,
    /// The caller and the number of the request to remove it.
    pub removing: Option<(RuntimeId, u64)>,
}

/// One state of an object, wherever it is.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Image<B: Body> {
    /// The incarnation.
    pub generation: Gen,
    /// The lease of the holder that made this state.
    pub lease: u64,
    /// Grows with each change.
    pub version: u64,
    /// The content.
    pub body: B,
    /// The calls that are in it.
    pub applied: Applied,
}

/// A claim's order: incarnation, lease, holder before copy, version.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Rank {
    /// The incarnation.
    pub generation: Gen,
    /// The lease.
    pub lease: u64,
    /// Whether it is the object, and no copy.
    pub is_holder: bool,
    /// The version.
    pub version: u64,
}

/// A message from one runtime to another.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Message<B: Body> {
    /// To the key owner.
    Request(Request<B>),
    /// To the holder: a read or a call.
    Forward(Request<B>),
    /// To the holder: give the object of this lease to that one, whose request (0: the key owner's
    /// adoption) this ends.
    Recall(Key, Gen, u64, RuntimeId, u64),
    /// To the holder: end the object of this lease.
    Kill(Key, Gen, u64),
    /// To the requester: the object is born there.
    Created(Key, u64, Gen),
    /// To the next holder: the object with its new lease, whose request it ends, and which runtimes
    /// may have copies.
    Object(Key, u64, Image<B>, Members),
    /// To the requester: it has the latest lease already.
    Yours(Key, u64),
    /// To the caller: the answer, or none if the call had been applied before.
    Result(Key, u64, Option<B::Answer>),
    /// To the requester: there is no object.
    Absent(Key, u64),
    /// To the requester: the object is removed.
    Removed(Key, u64),
    /// To the requester: ask again.
    Retry(Key, u64),
    /// To the next key owner: the record, in this view.
    Grant(u32, Key, Record),
    /// To all: no record of this view's key owners is left here.
    Swept(u32),
    /// To a copy holder: keep this state.
    Copy(Key, Image<B>),
    /// To the holder: this lease's version is kept here.
    CopyAck(Key, Gen, u64, u64),
    /// To a copy holder: drop copies up to this lease.
    Drop(Key, Gen, u64),
    /// To the holder: no copy up to this lease is here.
    DropAck(Key, Gen, u64),
    /// To all: nothing of an earlier view comes after this.
    Flush(u32),
    /// To the key owner of this view: this is here.
    Claim(u32, Key, Rank),
    /// To all: every claim was sent before this.
    ClaimsDone(u32),
    /// To a copy holder: its copy is the object, with this lease; these runtimes have copies.
    Promote(u32, Key, Gen, u64, Members),
}

impl<B: Body> Message<B> {
    /// The key that it is about; a view's own messages have none.
    pub fn key(&self) -> Option<&Key> {
        match self {
            Message::Request(request) | Message::Forward(request) => Some(&request.key),
            Message::Recall(key, ..)
            | Message::Kill(key, ..)
            | Message::Created(key, ..)
            | Message::Object(key, ..)
            | Message::Yours(key, ..)
            | Message::Result(key, ..)
            | Message::Absent(key, ..)
            | Message::Removed(key, ..)
            | Message::Retry(key, ..)
            | Message::Grant(_, key, ..)
            | Message::Copy(key, ..)
            | Message::CopyAck(key, ..)
            | Message::Drop(key, ..)
            | Message::DropAck(key, ..)
            | Message::Claim(_, key, ..)
            | Message::Promote(_, key, ..) => Some(key),
            Message::Swept(_) | Message::Flush(_) | Message::ClaimsDone(_) => None,
        }
    }
}
