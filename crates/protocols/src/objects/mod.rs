//! Objects that functions anywhere in the cluster share: which runtime has one, how it goes to
//! another, how it survives (S6 4.1 to 4.4, 8.2).
//!
//! Runtimes drive one each (`runtime::objects`); which stage they are told is a [`Conductor`]'s.
//!
//! # Theory of operation
//!
//! One [`Objects`] per runtime is a *key owner*, a *holder*, a *copy holder* and a *requester* at
//! once. It takes an input and the time, and has one queue of outputs. Contents are the driver's
//! type ([`Body`]): the machine keeps, ships and copies them, and has them apply calls. Every rule
//! relies on one channel for each ordered pair of runtimes that keeps order, and delivers each
//! message once in a session.
//!
//! *Key layer.* All members of a view put themselves in the same order for a key (rendezvous
//! hashing); the first is its owner. The owner has a *record* of each object: its incarnation
//! ([`Gen`]), the number of its latest *lease*, and `tail`, the runtime that has or will have that
//! lease.
//!
//! *Object layer.* The holder has the object. An owner that is asked for it tells the tail to give
//! it to the requester, which is the tail from then on. So each lease names the next one's holder:
//! that chain is the queue of waiters, of any length.
//!
//! ```text
//!   requester R                     key owner K                       holder H
//!   GetWrite ─────────────────────► lease 3, tail H
//!                                   lease 4, tail R ── Recall{3, R} ─► no reference is left, all is copied
//!   ◄──────────────────────────────────────────────── Object{4} ───── one transfer; a copy stays at H
//!   (a Recall{4, S} that is here first is parked)
//!
//!   Read, Call ───────────────────► Forward ─────────────────────────► applied, copied
//!   ◄──────────────────────────────────────────────── Result ─────────
//!
//!   Remove ───────────────────────► removing ──── Kill{lease} ───────► every copy: Drop, DropAck
//!   ◄──────────────── Removed ───── the record goes ◄──── Gone ─────── later requests, in order
//! ```
//!
//! *Awaiting*: an unanswered Create or GetWrite, or an adoption (below). A recall and an object
//! carry the number of what they end, so that the end of one is not taken for the end of the other.
//! A message for an object that is still to come is parked.
//!
//! *Calls* have numbers of their caller's. An object has the set of those that were applied
//! ([`Applied`]), and the set goes where the object goes. A call that does not wait stays here
//! until the flush is due, from the first one on; *merged* calls are added to one that is here. A
//! read's answer is good for its bound from when the read was sent, by the reader's clock alone.
//!
//! *End by time.* A holder whose object was not used for its kind's time serves it no more, and
//! asks the key owner for its end (`idle`). The owner ends it as for a removal, if that holder has
//! the latest lease still. Requests for the object wait meanwhile, and find none, or the next one.
//!
//! *Copies.* A holder sends each new version to the first runtimes of the key's order, one at a
//! time to each, and answers what depends on a version once they all have it. A copy that no
//! runtime needs is dropped once the wanted ones are there.
//!
//! # Views
//!
//! ```text
//!            all reached             all reached              all complete
//!   Normal(v) ──────────► Prepared(v) ──────────► Scaling(v) ──────────────► Normal(v+1)
//!      A serves             A serves, and B what      B serves, A grants its        B serves
//!                           A gave up                 records and its authority
//!        │                     │                        │
//!        └─────────────────────┴──────── Failed(f) ─────┴──► flushing ──all Flush──► claiming ──all ClaimsDone──► Normal(f)
//! ```
//!
//! A is a key's owner in the view that is left, B in the next one. Authority leaves A when A enters
//! `Scaling`, and A alone says so, in `relinquished`: behind the record, if there is one. K1 to K3
//! are `owner::place`; K4 (every record is granted, then `Swept`) and K5 (a leaver offers its
//! objects, and their owner adopts them) are `stages`.
//!
//! *Failure.* Records of all keys are forgotten and made again from the objects and copies that are
//! there. Until all members have said `Flush`, no object ships; objects under way arrive. Then each
//! object and copy is claimed at its key's owner: the highest [`Rank`] wins, and a copy that wins
//! is the object from then on. Requests without an answer are sent again, with their numbers.
//!
//! Invariants, each a checker of `tests::world`: one holder for each object; one record; no
//! acknowledged update is lost; each call is applied once; a read sees every update that was
//! acknowledged before it; a runtime that is out has nothing; a request is sent on five times at
//! most; from every state the end can be reached. `Bug` lists rules that were broken to see the
//! checkers fire.
//!
//! Choices that the design left open, and the parts that are not explored:
//! docs/decisions/0023-shared-objects.md.
//!
//! Not here: location hints (each request asks the key owner), placement by load, a runtime that
//! must stop (its lease: `membership`), and when a leaver's process may end: it sends on late
//! requests until its channels are drained.

mod applied;
mod conductor;
mod failure;
mod holder;
mod idle;
mod inputs;
mod members;
mod message;
mod owner;
mod requester;
mod sharing;
mod stages;
mod state;
#[cfg(test)]
mod tests;
pub mod wire;

pub use applied::{Applied, Novelty, WINDOW};
pub use conductor::{Conductor, Course, Directive};
pub use holder::UNANSWERED;
pub use inputs::{Ended, How, Input, ObjectSettings, Output, Phase, Stage, Stats};
pub use members::{KEY_MAX, Key, Members};
pub use message::{Body, Caller, Gen, Image, Message, Op, Rank, Record, Request};
pub use sharing::{Decision, Instance, Report, Sharing};
pub use state::{COPIES_MAX, Objects};

use crate::ownership::RuntimeId;
use state::Leave;

/// A request that was sent on so often goes back to its caller.
pub const FORWARDS_MAX: u8 = 8;

impl<B: Body> Objects<B> {
    /// Takes an input in; outputs are ready to be polled, in order.
    pub fn handle(&mut self, now: u64, input: Input<B>) {
        self.now = now;
        match input {
            Input::Receive(from, message) => self.receive(now, from, message),
            Input::Acquire(key, token, birth) => self.acquire(now, key, token, birth),
            Input::Release(key, changed) => self.on_release(key, changed),
            Input::Changed(key, token) => self.on_changed(key, token),
            Input::Call(key, call, token, how) => self.call(now, key, call, token, how),
            Input::Read(key, call, token, bound) => self.read(now, key, call, token, bound),
            Input::Remove(key, token) => self.remove(now, key, token),
            Input::Stage(stage, members) => self.on_stage(now, stage, members),
            Input::Failed(view, members, removed) => self.on_failed(view, members, removed),
            Input::Tick => {
                if self.tick_at.take_if(|due| *due <= now).is_some() {
                    self.sweep(now);
                    self.send_due(now);
                    self.look_for_idle(now);
                }
            }
        }
        while let Some(message) = self.local.pop_front() {
            let me = self.me.runtime;
            self.handle_message(now, me, message);
        }
    }

    fn receive(&mut self, now: u64, from: RuntimeId, message: Message<B>) {
        if from == self.me.runtime || Members::one(from).is_empty() {
            return self.refuse();
        }
        if self.removed.has(from) || (self.is_flushing() && !is_absorbed(&message)) {
            return self.discard();
        }
        self.handle_message(now, from, message);
    }

    fn handle_message(&mut self, now: u64, from: RuntimeId, message: Message<B>) {
        match message {
            Message::Request(request) => self.on_request(request),
            Message::Forward(request) => self.on_forward(request),
            Message::Recall(key, generation, lease, to, request) => {
                self.on_recall(key, generation, lease, Leave::To(to, request));
            }
            Message::Kill(key, generation, lease) => self.on_recall(key, generation, lease, Leave::End),
            Message::Created(key, id, generation) => self.on_created(key, id, generation),
            Message::Object(key, request, image, copies) => self.on_object(key, request, image, copies),
            Message::Yours(key, id) => self.on_yours(now, key, id),
            Message::Result(key, id, answer) => self.on_result(key, id, answer),
            Message::Absent(key, id) => self.on_absent(now, key, id),
            Message::Removed(key, id) => self.on_removed(key, id),
            Message::Retry(key, id) => self.on_retry(now, key, id),
            Message::Grant(view, key, record) => self.on_grant(view, key, record),
            Message::Swept(view) => self.on_swept(from, view),
            Message::Copy(key, image) => self.on_copy(from, key, image),
            Message::CopyAck(key, generation, lease, version) => {
                self.on_copy_ack(from, key, (generation, lease), version);
            }
            Message::Drop(key, generation, lease) => self.on_drop(from, key, generation, lease),
            Message::DropAck(key, generation, lease) => self.on_drop_ack(from, key, (generation, lease)),
            Message::Flush(view) => self.on_flush(from, view),
            Message::Claim(view, key, rank) => self.on_claim(from, view, key, rank),
            Message::ClaimsDone(view) => self.on_claims_done(now, from, view),
            Message::Promote(view, key, generation, lease, copies) => {
                self.on_promote(from, view, key, (generation, lease), copies);
            }
        }
    }
}

/// Whether a message is taken in while frames from before a failure view may come: objects, copies,
/// answers, and that view's own messages.
fn is_absorbed<B: Body>(message: &Message<B>) -> bool {
    match message {
        Message::Object(..) | Message::Created(..) => !has(Bug::AbsorbsNothing),
        Message::Copy(..)
        | Message::Drop(..)
        | Message::Result(..)
        | Message::Absent(..)
        | Message::Removed(..)
        | Message::Flush(..)
        | Message::Claim(..)
        | Message::ClaimsDone(..) => true,
        _ => false,
    }
}

/// Rules of this module, each of which a test breaks to see a checker fire.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Bug {
    /// A holder that gives an object up goes on as if it had not.
    TwoHolders,
    /// The next holder gets the lease of the one before.
    LeaseStands,
    /// A key owner tells the former holder, and not the latest, to give the object up.
    TailStands,
    /// Messages that were parked for an object are forgotten when it comes.
    ForgetsParked,
    /// A requester that hears that it has the object waits for it, though it is gone again.
    YoursIsTrusted,
    /// A key owner serves an object that is being removed.
    ServesRemoving,
    /// A holder gives an object up before it is copied.
    ShipsUncopied,
    /// A call that was applied is applied again.
    AppliesAgain,
    /// An owner of the old view stops serving in `Prepared` (K1).
    PreparedStops,
    /// A next owner serves in `Prepared` what it has no authority over (K1).
    PreparedServes,
    /// A next owner in `Prepared` sends back what it has authority over (K1).
    PreparedWaits,
    /// An old owner serves in `Scaling` (K2).
    ScalingServes,
    /// An old owner gives its authority up before it sends the record (K2).
    RelinquishesFirst,
    /// Any runtime in `Scaling` says that authority was given up (K2).
    AllRelinquish,
    /// A next owner in `Scaling` serves at once (K3).
    ScalingTakes,
    /// A sweep leaves records where they are (K4).
    IdleKeysStay,
    /// An object that a next owner makes in `Scaling` counts as made in the old view, so that it
    /// may come before an earlier object.
    OldViewsObjects,
    /// A runtime is complete without the sweeps of others (K4).
    CompleteAlone,
    /// A leaver is complete with objects and unanswered requests (K5).
    LeavesEarly,
    /// A leaver is complete with copies that no holder has told it to drop.
    LeavesCopies,
    /// An owner recalls a leaver's object without awaiting it (K5).
    AdoptsUnawaited,
    /// An update is acknowledged before its copies are.
    AcksBeforeCopy,
    /// Claims are sent before every `Flush` has come.
    NoWaitForFlush,
    /// Objects under way are discarded after a failure view.
    AbsorbsNothing,
    /// Copies are not claimed.
    CopiesUnclaimed,
    /// The lowest claim wins.
    AnyClaimWins,
    /// A key owner serves before all claims have come.
    ServesBeforeClaims,
    /// Requests from before a failure are not sent again.
    NoResubmission,
    /// An object is gone while copies of it are left.
    GoneBeforeDropped,
    /// A holder serves an object on, though it has asked for its end.
    IdleServes,
    /// A key owner ends an object for a holder that has it no more.
    IdleUnchecked,
    /// Messages for an object that ends by time are forgotten with it.
    IdleForgets,
    /// A holder does not say that an object in use is to go.
    RecallsUnsaid,
}

#[cfg(test)]
std::thread_local! {
    static PLANTED: core::cell::Cell<Option<Bug>> = const { core::cell::Cell::new(None) };
}

#[cfg(test)]
fn has(bug: Bug) -> bool {
    PLANTED.get() == Some(bug)
}

#[cfg(not(test))]
#[inline(always)]
const fn has(_: Bug) -> bool {
    false
}
