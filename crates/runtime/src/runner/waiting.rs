//! Calls that wait, and the packets behind them.
//!
//! # Theory of operation
//!
//! ```text
//!   run ─► a call waits ─► parked ─its time comes, or what it waits for changes─► polled ─► parked again
//!                            ▲                                                       └─► Call ─► the caller asks whether its flow
//!          later packets ────┘ queue behind                                                      goes on ─► conclude ─► packets behind
//! ```
//!
//! A call may ask for effects before it waits. Claims and releases of blocks are applied when the
//! call waits, since other flows of its group use the blocks meanwhile. All other effects stay in
//! the call's frame, and are applied once when the call is over, for its own flow: the flow's
//! functions can take no packet before. A call that is refused or cancelled leaves nothing in its
//! frame either: the packets that it emitted are counted drops.
//!
//! A call that waits for a token goes on when that is given ([`nf::Cx::token`]), and no other call
//! does. The worker takes given tokens before it looks which calls are due, so an answer that comes
//! between two steps is found in the next.
//!
//! A call of a group that moves is given up where its function may begin it again: its packets are
//! then held with their flows, and begin their chain again at the target.
//!
//! Invariants: a frame that is free, or in hand between two calls, holds no effect; packets behind
//! a call keep their order.

use super::held::{GIVEN_UP, HELD_END};
use super::watching::Look;
use super::{Job, Runner};
use crate::flows::FlowStore;
use crate::flows::actor::{Change, Phase};
use crate::flows::group::room_for;
use crate::microthread::{Frame, Frames};
use crate::outbox::Outbox;
use crate::stage::Code;
use crate::stats::DropReason;
use crate::watch::trace::{Event, Meeting};
use alloc::vec::Vec;
use core::ptr::NonNull;
use nf::Direction;
use nf::cx::RawCx;
use nf::objects::PendingCalls;
use wire::packet::Kind;
use wire::{PacketBox, PacketList};

/// A call that waits: its job, where in the chain it is, and the packets of its flow that came
/// later.
pub(super) struct Parked {
    job: Job,
    at: u8,
    /// [`RawCx::waits_for`].
    waits_for: u64,
    /// [`RawCx::token`].
    token: u64,
    behind: PacketList,
    /// The packet as it was before the call, where it is watched.
    look: Look,
}

/// A call that waits no more, and is yet to be concluded.
pub(crate) struct Call {
    parked: Parked,
    index: u32,
    frame: NonNull<Frame>,
    /// [`Code::WAITING`]: it was cancelled, since it waits for nothing.
    code: Code,
}

impl Call {
    /// The actor whose call it was.
    pub fn actor(&self) -> u32 {
        self.parked.job.actor
    }

    /// Whether packets wait behind it.
    pub fn has_behind(&self) -> bool {
        !self.parked.behind.is_empty()
    }
}

/// The outcome of a call whose time had come.
pub(crate) enum Woken {
    /// It waits again.
    Parked,
    /// It is over.
    Done(Call),
}

/// How many packets wait for each thing that calls wait for.
pub(super) struct Shares(hashbrown::HashMap<u64, u32>);

impl Shares {
    /// For at most so many calls that wait.
    pub(super) fn new(waiting_max: usize) -> Self {
        Shares(hashbrown::HashMap::with_capacity(room_for(waiting_max)))
    }

    fn of(&self, waits_for: u64) -> u32 {
        self.0.get(&waits_for).copied().unwrap_or(0)
    }

    fn add(&mut self, waits_for: u64, packets: u32) {
        if waits_for != 0 {
            *self.0.entry(waits_for).or_insert(0) += packets;
        }
    }

    fn take(&mut self, waits_for: u64, packets: u32) {
        if let Some(count) = self.0.get_mut(&waits_for) {
            *count = count.saturating_sub(packets);
            if *count == 0 {
                self.0.remove(&waits_for);
            }
        }
    }
}

impl Parked {
    /// Its packet and those behind it no longer wait.
    fn leave(&self, shares: &mut Shares) {
        shares.take(self.waits_for, 1 + self.behind.len() as u32);
    }
}

/// Where in its chain a packet that queues behind a call goes on, as its buffer's hash has it
/// meanwhile.
#[derive(Clone, Copy)]
pub(super) struct QueuedPlace(pub(super) u64);

impl QueuedPlace {
    /// Like any packet, at the start.
    const START: QueuedPlace = QueuedPlace(0);

    fn of(passed: u8, direction: Direction) -> Self {
        QueuedPlace(1 | u64::from(direction == Direction::Opening) << 1 | u64::from(passed) << 8)
    }

    /// Functions passed, and the direction.
    fn middle(self) -> Option<(u8, Direction)> {
        let direction = if self.0 & 2 != 0 {
            Direction::Opening
        } else {
            Direction::Reply
        };
        (self.0 != 0).then_some(((self.0 >> 8) as u8, direction))
    }

    /// As a move's record of held packets says it.
    fn told(self) -> (u8, bool) {
        match self.middle() {
            None => (GIVEN_UP, false),
            Some((passed, direction)) => (HELD_END + passed, direction == Direction::Opening),
        }
    }

    /// The other way round: a place of held packets, and where in its chain the packet goes on, if
    /// it is of a call that was given up; `None` if there is no such place.
    pub(super) fn read(at: u8, opening: bool) -> Option<(u8, bool, Option<QueuedPlace>)> {
        if at < GIVEN_UP {
            return Some((at, opening, None));
        }
        let direction = if opening {
            Direction::Opening
        } else {
            Direction::Reply
        };
        let place = match at.checked_sub(HELD_END) {
            None => QueuedPlace::START,
            Some(passed) if passed < GIVEN_UP => QueuedPlace::of(passed, direction),
            Some(_) => return None,
        };
        Some((GIVEN_UP, false, Some(place)))
    }
}

/// The place by which a held packet is announced, where its flow moves.
pub(crate) fn told_place(at: u8, opening: bool, packet: &PacketBox) -> (u8, bool) {
    match at {
        GIVEN_UP => QueuedPlace(packet.hash()).told(),
        _ => (at, opening),
    }
}

/// A packet that waited behind a call, and that was in the middle of its chain: functions passed,
/// and its direction.
pub(crate) fn middle(packet: &PacketBox) -> Option<(u8, Direction)> {
    QueuedPlace(packet.hash()).middle()
}

impl Runner {
    /// Gives up the calls of these flows, if all may begin again: their packets, and those behind
    /// them, are then held with their flows. `false` if nothing is changed.
    pub fn give_up_calls(&mut self, actors: &[u32], flows: &mut FlowStore, out: &mut Outbox) -> bool {
        let mut frames = Vec::new();
        for actor in actors {
            let header = flows.header(*actor);
            if header.phase != Phase::Waiting {
                continue;
            }
            let parked = self.frames.rest(header.frame);
            let begins_again = parked.is_some_and(|parked| {
                let function = self.function_at(*actor, usize::from(parked.at), flows);
                self.stages.functions[function].begins_again()
            });
            if !begins_again || self.is_of_before(*actor, flows) {
                return false;
            }
            frames.push(header.frame);
        }
        frames.sort_unstable();
        for (index, waiting) in self.frames.pull(&frames) {
            // It emits once more where it begins again.
            let (job, mut behind) = self.cancel(index, waiting.frame, waiting.rest, flows, out);
            let Job {
                actor,
                mut packet,
                direction,
                passed,
                ..
            } = job;
            packet.set_hash(QueuedPlace::of(passed, direction).0);
            self.put_given_up(actor, packet, flows);
            while let Some(packet) = behind.pop() {
                self.queued_count -= 1;
                self.put_given_up(actor, packet, flows);
            }
        }
        true
    }

    /// Ends the calls of these flows, which have gone on elsewhere: their packets, and those behind
    /// them, are dropped.
    pub fn drop_calls(&mut self, actors: &[u32], flows: &mut FlowStore, out: &mut Outbox) {
        let waiting = actors.iter().map(|actor| flows.header(*actor));
        let waiting = waiting.filter(|header| header.phase == Phase::Waiting);
        let mut frames: Vec<u32> = waiting.map(|header| header.frame).collect();
        frames.sort_unstable();
        for (index, waiting) in self.frames.pull(&frames) {
            let (job, mut behind) = self.cancel(index, waiting.frame, waiting.rest, flows, out);
            out.drop_packet(job.packet, DropReason::HeldAtEnd);
            while let Some(packet) = behind.pop() {
                self.queued_count -= 1;
                out.drop_packet(packet, DropReason::HeldAtEnd);
            }
        }
    }

    /// Ends a parked call; answers its job and the packets behind it, which still count as queued.
    fn cancel(
        &mut self,
        index: u32,
        frame: NonNull<Frame>,
        parked: Parked,
        flows: &mut FlowStore,
        out: &mut Outbox,
    ) -> (Job, PacketList) {
        // SAFETY: a parked frame holds a live future.
        unsafe { Frames::<Parked>::cancel(frame) };
        parked.leave(&mut self.shares);
        // SAFETY: the future is gone, so nothing but this uses the frame.
        let cx = unsafe { &mut (*frame.as_ptr()).cx };
        self.apply_block_effects(cx, parked.job.actor, flows, out);
        flows.header_mut(parked.job.actor).change(Change::Resume);
        self.frames.give(index);
        (parked.job, parked.behind)
    }

    /// Hands out the packets of calls that wait, those behind them, and all that functions hold:
    /// the runtime fails. Calls end where they are, and their wishes are forgotten; buffers in
    /// which there is no packet are marked as empty.
    pub fn take_all(&mut self, lost: &mut PacketList) {
        let frames: Vec<u32> = (0..=self.bounds.waiting_max).collect();
        for (_, waiting) in self.frames.pull(&frames) {
            let Parked { job, mut behind, .. } = waiting.rest;
            lost.push(job.packet);
            lost.append(&mut behind);
            // SAFETY: a parked frame holds a live future; behind that nothing but this uses the
            // frame.
            let cx = unsafe {
                Frames::<Parked>::cancel(waiting.frame);
                &mut (*waiting.frame.as_ptr()).cx
            };
            lost.append(&mut cx.let_go);
            let emitted = core::mem::take(&mut cx.emitted).into_iter();
            let unused = emitted.map(|(packet, _)| packet).chain(cx.copy.take());
            unused.for_each(|packet| push_empty(packet, lost));
        }
        self.held.take_all(lost);
        self.take_spares().for_each(|spare| push_empty(spare, lost));
    }

    /// Takes out the packets of a flow's call that was given up: they begin again, and count as
    /// queued.
    pub fn begin_again(&mut self, actor: u32, flows: &FlowStore) -> Option<PacketList> {
        let packets = self.take_given_up(actor, flows)?;
        self.queued_count += packets.len() as u32;
        Some(packets)
    }

    /// Puts a waiting call aside and takes another frame in hand.
    pub(super) fn park(&mut self, job: Job, at: usize, flows: &mut FlowStore, out: &mut Outbox) {
        let look = core::mem::replace(&mut self.parking, Look::NONE);
        // SAFETY: the future only uses its cx while it is polled, which it is not now.
        let cx = unsafe { &mut (*self.frame_ptr.as_ptr()).cx };
        let (wake_at, waits_for, token) = (cx.wake_at, cx.waits_for, cx.token);
        let next = if wake_at == RawCx::NO_WAKE {
            Err(DropReason::WaitsForNothing)
        } else if self.shares.of(waits_for) >= self.bounds.share_max {
            Err(DropReason::WaitingShareFull)
        } else {
            self.frames.take().ok_or(DropReason::WaitingFull)
        };
        let next = match next {
            Ok(next) => next,
            Err(reason) => {
                // SAFETY: the call just answered that it waits, so its future is live, and it is
                // gone after this.
                unsafe { Frames::<Parked>::cancel(self.frame_ptr) };
                self.apply_block_effects(cx, job.actor, flows, out);
                return self.refuse(job, reason, flows, out);
            }
        };
        self.apply_blocks(cx, job.actor, flows, out);
        let spares = core::mem::take(&mut cx.spares);
        let header = flows.header_mut(job.actor);
        header.change(Change::Wait);
        header.frame = self.frame;
        self.shares.add(waits_for, 1);
        let parked = Parked {
            job,
            at: at as u8,
            waits_for,
            token,
            behind: PacketList::new(),
            look,
        };
        self.frames.park(self.frame, wake_at, parked);
        self.frame = next;
        self.frame_ptr = self.frames.frame(self.frame);
        // SAFETY: nothing else uses the new frame in hand.
        unsafe { (*self.frame_ptr.as_ptr()).cx.spares = spares };
    }

    /// Drops a packet whose call cannot wait; a flow that has nothing else to its name goes with
    /// it.
    fn refuse(&mut self, job: Job, reason: DropReason, flows: &FlowStore, out: &mut Outbox) {
        out.drop_packet(job.packet, reason);
        if flows.header(job.actor).has_nothing_to_its_name() {
            self.end_behind(job.actor);
        }
    }

    /// Queues a packet that is in the middle of its chain behind its flow's waiting call.
    #[cold]
    pub(super) fn queue_job_behind(&mut self, job: Job, flows: &FlowStore, out: &mut Outbox) {
        let Job { actor, packet, .. } = job;
        self.queue(
            actor,
            packet,
            QueuedPlace::of(job.passed, job.direction),
            flows,
            out,
        );
    }

    /// Queues a packet behind its flow's waiting call.
    #[cold]
    pub fn queue_behind(&mut self, actor: u32, packet: PacketBox, flows: &FlowStore, out: &mut Outbox) {
        self.queue(actor, packet, QueuedPlace::START, flows, out);
    }

    fn queue(
        &mut self,
        actor: u32,
        mut packet: PacketBox,
        place: QueuedPlace,
        flows: &FlowStore,
        out: &mut Outbox,
    ) {
        if self.queued_count >= self.bounds.queued_max {
            return out.drop_packet(packet, DropReason::WaitingQueueFull);
        }
        let frame = flows.header(actor).frame;
        out.observe(&packet, Event::Met(Meeting::Queued));
        match self.frames.rest_mut(frame) {
            Some(parked) if self.shares.of(parked.waits_for) >= self.bounds.share_max => {
                out.drop_packet(packet, DropReason::WaitingShareFull);
            }
            Some(parked) => {
                self.shares.add(parked.waits_for, 1);
                packet.set_hash(place.0);
                parked.behind.push(packet);
                self.queued_count += 1;
            }
            None => out.drop_packet(packet, DropReason::WaitsForNothing),
        }
    }

    /// A packet that was queued is taken up, or dropped.
    pub fn note_taken_up(&mut self) {
        self.queued_count -= 1;
    }

    /// Has calls go on that wait for a change ([`nf::Cx::changed`]), if there is one.
    #[inline]
    pub fn look_for_changes(&mut self) {
        if self.frames.waiting() == 0 {
            return self.frames.none_waits();
        }
        let generations = self
            .stages
            .functions
            .iter()
            .map(|stage| u64::from(stage.generation()));
        let generations = generations.fold(0, u64::wrapping_add);
        self.frames.hasten(generations, self.now, |parked| {
            parked.waits_for != 0 && parked.token == 0
        });
    }

    /// Has calls go on whose answers of shared objects are on the table of pending calls.
    #[cold]
    pub fn hasten_answered(&mut self, pending_calls: &PendingCalls) {
        self.frames
            .hasten_those(self.now, |parked| pending_calls.is_answered(parked.waits_for));
    }

    /// Goes on with the oldest call whose time has come.
    #[inline]
    pub fn wake(&mut self, flows: &mut FlowStore, out: &mut Outbox) -> Option<Woken> {
        if self.tokens.is_given() {
            self.hasten_given();
        }
        let (index, waiting) = self.frames.wake(self.now)?;
        Some(self.resume(index, waiting.frame, waiting.rest, flows, out))
    }

    /// Has those calls go on whose tokens were given: each for its own, and for no earlier one of
    /// its frame.
    #[cold]
    fn hasten_given(&mut self) {
        let (frames, now) = (&mut self.frames, self.now);
        self.tokens.take_given(|index, number| {
            let is_its = |parked: &Parked| parked.token != 0 && parked.token <= number;
            if frames.rest(index).is_some_and(is_its) {
                frames.hasten_one(index, now);
            }
        });
    }

    fn resume(
        &mut self,
        index: u32,
        frame: NonNull<Frame>,
        mut parked: Parked,
        flows: &mut FlowStore,
        out: &mut Outbox,
    ) -> Woken {
        parked.leave(&mut self.shares);
        self.fill_spares(frame, out);
        let (actor, opening) = (parked.job.actor, parked.job.direction == Direction::Opening);
        // SAFETY: the waiting future is not being polled, so nothing uses its frame's cx.
        let code = unsafe {
            let cx = core::ptr::addr_of_mut!((*frame.as_ptr()).cx);
            (*cx).now = self.now;
            (*cx).wake_at = RawCx::NO_WAKE;
            (*cx).held = self.held.list((actor, parked.at, opening));
            (*cx).held_room = self.held.room();
            Frames::<Parked>::poll(frame)
        };
        // SAFETY: as above: the poll is over.
        let cx = unsafe { &mut (*frame.as_ptr()).cx };
        for spare in core::mem::take(&mut cx.spares) {
            out.recycle(spare);
        }
        self.apply_blocks(cx, actor, flows, out);
        if code == Code::WAITING {
            if cx.wake_at != RawCx::NO_WAKE {
                (parked.waits_for, parked.token) = (cx.waits_for, cx.token);
                self.shares.add(parked.waits_for, 1 + parked.behind.len() as u32);
                self.frames.park(index, cx.wake_at, parked);
                return Woken::Parked;
            }
            // SAFETY: it waits, so its future is live.
            unsafe { Frames::<Parked>::cancel(frame) };
        }
        flows.header_mut(actor).change(Change::Resume);
        Woken::Done(Call {
            parked,
            index,
            frame,
            code,
        })
    }

    /// The steps behind a call that waited. `goes_on`: its flow has not ended meanwhile, as the
    /// configuration changed. Answers the packets behind it, which are to be taken up when
    /// [`Runner::next`] has nothing more.
    pub fn conclude(
        &mut self,
        call: Call,
        goes_on: bool,
        flows: &mut FlowStore,
        out: &mut Outbox,
    ) -> PacketList {
        let Call {
            parked,
            index,
            frame,
            code,
        } = call;
        let Parked {
            mut job,
            at,
            mut behind,
            look,
            ..
        } = parked;
        let (at, actor) = (usize::from(at), job.actor);
        // SAFETY: the call is over, and its frame is not given back yet.
        let cx = unsafe { &mut (*frame.as_ptr()).cx };
        if code == Code::WAITING {
            self.apply_block_effects(cx, actor, flows, out);
            while let Some(packet) = behind.pop() {
                self.queued_count -= 1;
                out.drop_packet(packet, DropReason::WaitsForNothing);
            }
            match goes_on {
                true => self.refuse(job, DropReason::WaitsForNothing, flows, out),
                false => out.drop_packet(job.packet, DropReason::WaitsForNothing),
            }
        } else if !goes_on {
            self.apply_block_effects(cx, actor, flows, out);
            out.drop_packet(job.packet, DropReason::ConfigurationChanged);
        } else {
            self.see_resumed(look, &mut job, at, code, flows, out);
            let timeout = cx.timeout;
            if let Some(job) = self.after_call(job, at, code, cx, flows, out) {
                self.put_ahead(Job {
                    passed: job.passed + 1,
                    timeout,
                    whole: true,
                    ..job
                });
            }
        }
        self.frames.give(index);
        behind
    }

    /// Cancels waiting calls, for the end of a run: their packets are counted drops.
    pub fn cancel_waiting(&mut self, budget: usize, flows: &mut FlowStore, out: &mut Outbox) {
        for _ in 0..budget {
            let Some((index, waiting)) = self.frames.wake(u64::MAX) else {
                return;
            };
            let (job, mut behind) = self.cancel(index, waiting.frame, waiting.rest, flows, out);
            out.drop_packet(job.packet, DropReason::Stopped);
            while let Some(packet) = behind.pop() {
                self.queued_count -= 1;
                out.drop_packet(packet, DropReason::Stopped);
            }
        }
    }

    /// Sees to it that the call at hand has buffers to make packets of.
    pub fn top_up_spares(&mut self, out: &mut Outbox) {
        self.fill_spares(self.frame_ptr, out);
    }

    /// The same for a frame between two calls or polls. Messages of the step keep their buffers:
    /// packets that a call emits may wait for a message.
    fn fill_spares(&mut self, frame: NonNull<Frame>, out: &mut Outbox) {
        // SAFETY: no call or poll is under way, so nothing uses the frame's cx.
        let cx = unsafe { &mut (*frame.as_ptr()).cx };
        while !cx.spares.is_full() && out.pool().free() > out.reserve() {
            match out.pool_mut().take() {
                Some(packet) => cx.spares.push(packet),
                None => break,
            }
        }
    }
}

fn push_empty(mut packet: PacketBox, list: &mut PacketList) {
    packet.set_kind(Kind::Empty);
    list.push(packet);
}
