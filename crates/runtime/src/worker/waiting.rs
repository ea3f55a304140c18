//! Calls that wait, the packets behind them, and packets that functions hold (`Verdict::Consume`).
//!
//! A call may ask for effects before it waits. Claims and releases of blocks are applied when the call waits, since other flows
//! of its group use the blocks meanwhile. All other effects stay in the call's frame, and are applied once when the call is
//! over, for its own flow: the flow's functions can take no packet before. A call that is refused or cancelled leaves nothing
//! in its frame either: the packets that it emitted are counted drops.
//!
//! Invariant: a frame that is free, or in hand between two calls, holds no effect.

use super::watching::Look;
use super::{Job, Runtime};
use crate::chain::FUNCTIONS_MAX;
use crate::env::Port;
use crate::flows::actor::{Change, Phase, flag};
use crate::flows::group::room_for;
use crate::microthread::{Frame, Frames};
use crate::stage::Code;
use crate::stats::DropReason;
use crate::watch::trace::{Event, Meeting};
use alloc::vec::Vec;
use core::ptr::NonNull;
use nf::cx::{RawCx, effect};
use nf::{Direction, Reason};
use wire::packet::flag as packet_flag;
use wire::{FlowKey, PacketBox, PacketList, planted};

/// A call that waits: its job, where in the chain it is, and the packets of its flow that came later.
pub(super) struct Parked {
    job: Job,
    at: u8,
    /// [`RawCx::waits_for`].
    waits_for: u64,
    behind: PacketList,
    /// The packet as it was before the call, for who watches.
    look: Look,
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

/// Where in its chain a packet that queues behind a call goes on, as its buffer's hash has it meanwhile.
#[derive(Clone, Copy)]
struct Place(u64);

impl Place {
    /// Like any packet, at the start.
    const START: Place = Place(0);

    fn of(passed: u8, direction: Direction) -> Self {
        Place(1 | u64::from(direction == Direction::Opening) << 1 | u64::from(passed) << 8)
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
}

/// In the keys of held packets, behind the numbers of functions: those of a call that was given up for a move.
const GIVEN_UP: u8 = FUNCTIONS_MAX as u8;
/// Behind all places in [`Runtime::held`].
pub(super) const HELD_END: u8 = GIVEN_UP + 1;

impl Place {
    /// As a move's record of held packets says it.
    fn told(self) -> (u8, bool) {
        match self.middle() {
            None => (GIVEN_UP, false),
            Some((passed, direction)) => (HELD_END + passed, direction == Direction::Opening),
        }
    }

    /// The other way round: a place in [`Runtime::held`], and where in its chain the packet goes on, if it is of a call that was
    /// given up; `None` for what is no place.
    fn heard(at: u8, opening: bool) -> Option<(u8, bool, Option<Place>)> {
        if at < GIVEN_UP {
            return Some((at, opening, None));
        }
        let direction = if opening {
            Direction::Opening
        } else {
            Direction::Reply
        };
        let place = match at.checked_sub(HELD_END) {
            None => Place::START,
            Some(passed) if passed < GIVEN_UP => Place::of(passed, direction),
            Some(_) => return None,
        };
        Some((GIVEN_UP, false, Some(place)))
    }
}

/// Calls that are given up because their group moves, and begin again where it goes.
impl<P: Port> Runtime<P> {
    /// Gives up the calls of these flows, if all may begin again: their packets, and those behind them, are then held with
    /// their flows. `false` if nothing is changed.
    pub(super) fn give_up_calls(&mut self, actors: &[u32]) -> bool {
        let mut frames = Vec::new();
        for actor in actors {
            let header = self.flows.header(*actor);
            if header.phase != Phase::Waiting {
                continue;
            }
            let parked = self.frames.rest(header.frame);
            let begins_again = parked.is_some_and(|parked| {
                let function = self.function_at(*actor, usize::from(parked.at));
                self.stages.functions[function].begins_again()
            });
            if !begins_again || self.is_of_before(*actor) {
                return false;
            }
            frames.push(header.frame);
        }
        frames.sort_unstable();
        for (index, waiting) in self.frames.pull(&frames) {
            // SAFETY: a parked frame holds a live future.
            unsafe { Frames::<Parked>::cancel(waiting.frame) };
            waiting.rest.leave(&mut self.shares);
            let Parked { job, mut behind, .. } = waiting.rest;
            // It emits once more where it begins again.
            // SAFETY: the future is gone, so the frame is nobody's but ours.
            self.settle_accounts(unsafe { &mut (*waiting.frame.as_ptr()).cx }, job.actor);
            let Job {
                actor,
                mut packet,
                direction,
                passed,
            } = job;
            self.flows.header_mut(actor).change(Change::Resume);
            self.frames.give(index);
            packet.set_hash(Place::of(passed, direction).0);
            self.held_count += 1 + behind.len() as u32;
            self.queued_count -= behind.len() as u32;
            self.flows.header_mut(actor).flags |= flag::HOLDS;
            let held = self.held.entry((actor, GIVEN_UP, false)).or_default();
            held.push(packet);
            while let Some(packet) = behind.pop() {
                held.push(packet);
            }
        }
        true
    }

    /// Goes on with the packets of calls of these flows that were given up.
    pub(super) fn begin_again(&mut self, actors: &[u32]) {
        for actor in actors {
            if self.flows.header(*actor).flags & flag::HOLDS == 0 {
                continue;
            }
            let Some(packets) = self.held.remove(&(*actor, GIVEN_UP, false)) else {
                continue;
            };
            self.held_count -= packets.len() as u32;
            self.queued_count += packets.len() as u32;
            self.linger(*actor);
            self.take_up_behind(*actor, packets);
            self.stop_lingering();
        }
    }

    /// What a packet held at a place is announced as, where its flow moves.
    pub(super) fn told_place(at: u8, opening: bool, packet: &PacketBox) -> (u8, bool) {
        match at {
            GIVEN_UP => Place(packet.hash()).told(),
            _ => (at, opening),
        }
    }

    /// Takes in a packet that was held for a flow at another runtime, at a place as it was told.
    pub(super) fn hold_told(&mut self, actor: u32, (at, opening): (u8, bool), mut packet: PacketBox) {
        let Some((at, opening, place)) = Place::heard(at, opening) else {
            return self.drop_packet(packet, DropReason::HeldAtEnd);
        };
        if self.held_count >= self.settings.held_max {
            return self.drop_packet(packet, DropReason::HeldFull);
        }
        if let Some(place) = place {
            packet.set_hash(place.0);
        }
        self.put_held((actor, at, opening), packet);
    }
}

impl<P: Port> Runtime<P> {
    /// Puts a waiting call aside and takes another frame in hand.
    pub(super) fn park(&mut self, job: Job, at: usize) {
        let look = core::mem::replace(&mut self.parking, Look::NONE);
        // SAFETY: the future only uses its cx while it is polled, which it is not now.
        let cx = unsafe { &mut (*self.frame_ptr.as_ptr()).cx };
        let (wake_at, waits_for) = (cx.wake_at, cx.waits_for);
        let next = if wake_at == RawCx::NO_WAKE {
            Err(DropReason::WaitsForNothing)
        } else if self.shares.of(waits_for) >= self.settings.share_max {
            Err(DropReason::WaitingShareFull)
        } else {
            self.frames.take().ok_or(DropReason::WaitingFull)
        };
        let next = match next {
            Ok(next) => next,
            Err(reason) => {
                // SAFETY: the call just answered that it waits, so its future is live, and it is gone after this.
                unsafe { Frames::<Parked>::cancel(self.frame_ptr) };
                self.settle_accounts(cx, job.actor);
                return self.refuse(job, reason);
            }
        };
        self.apply_blocks(cx, job.actor);
        let spares = core::mem::take(&mut cx.spares);
        let Job { actor, .. } = job;
        let header = self.flows.header_mut(actor);
        header.change(Change::Wait);
        header.frame = self.frame;
        self.shares.add(waits_for, 1);
        self.frames.park(
            self.frame,
            wake_at,
            Parked {
                job,
                at: at as u8,
                waits_for,
                behind: PacketList::new(),
                look,
            },
        );
        self.frame = next;
        self.frame_ptr = self.frames.frame(self.frame);
        // SAFETY: the new frame in hand is nobody's but ours.
        unsafe { (*self.frame_ptr.as_ptr()).cx.spares = spares };
    }

    /// Drops a packet whose call cannot wait; a flow that has nothing else to its name goes with it.
    fn refuse(&mut self, job: Job, reason: DropReason) {
        let Job { actor, packet, .. } = job;
        self.drop_packet(packet, reason);
        if self.flows.header(actor).has_nothing_to_its_name() {
            self.end_actor(actor);
        }
    }

    /// Queues a packet that is in the middle of its chain behind its flow's waiting call.
    #[cold]
    pub(super) fn queue_job_behind(&mut self, job: Job) {
        let Job { actor, packet, .. } = job;
        self.queue(actor, packet, Place::of(job.passed, job.direction));
    }

    /// Queues a packet behind its flow's waiting call.
    #[cold]
    pub(super) fn queue_behind(&mut self, actor: u32, packet: PacketBox) {
        self.queue(actor, packet, Place::START);
    }

    fn queue(&mut self, actor: u32, mut packet: PacketBox, place: Place) {
        if self.queued_count >= self.settings.queued_max {
            return self.drop_packet(packet, DropReason::WaitingQueueFull);
        }
        let frame = self.flows.header(actor).frame;
        self.see(&packet, Event::Met(Meeting::Queued));
        match self.frames.rest_mut(frame) {
            Some(parked) if self.shares.of(parked.waits_for) >= self.settings.share_max => {
                self.drop_packet(packet, DropReason::WaitingShareFull);
            }
            Some(parked) => {
                self.shares.add(parked.waits_for, 1);
                packet.set_hash(place.0);
                parked.behind.push(packet);
                self.queued_count += 1;
            }
            None => self.drop_packet(packet, DropReason::WaitsForNothing),
        }
    }

    /// Has calls go on that wait for a change ([`nf::Cx::changed`]), if there is one.
    #[inline]
    pub(super) fn look_for_changes(&mut self) {
        if self.frames.waiting() == 0 {
            return self.frames.none_waits();
        }
        let generations = self
            .stages
            .functions
            .iter()
            .map(|stage| u64::from(stage.generation()));
        let generations = generations.fold(0, u64::wrapping_add);
        self.frames
            .hasten(generations, self.now, |parked| parked.waits_for != 0);
    }

    /// Goes on with up to `budget` calls whose time has come, the oldest first.
    pub(super) fn wake(&mut self, budget: usize) -> usize {
        let mut woken = 0;
        while woken < budget && self.unsaid.is_empty() {
            let Some((index, waiting)) = self.frames.wake(self.now) else {
                break;
            };
            self.resume(index, waiting.frame, waiting.rest);
            woken += 1;
        }
        woken
    }

    fn resume(&mut self, index: u32, frame: NonNull<Frame>, mut parked: Parked) {
        parked.leave(&mut self.shares);
        self.fill_spares(frame);
        // SAFETY: the waiting future is not being polled, so its frame's cx is ours to fill in.
        let code = unsafe {
            let cx = core::ptr::addr_of_mut!((*frame.as_ptr()).cx);
            (*cx).now = self.now;
            (*cx).wake_at = RawCx::NO_WAKE;
            (*cx).held = self.held_for(parked.job.actor, parked.at, parked.job.direction);
            (*cx).held_room = self.held_room;
            Frames::<Parked>::poll(frame)
        };
        // SAFETY: as above: the poll is over.
        let cx = unsafe { &mut (*frame.as_ptr()).cx };
        let spares = core::mem::take(&mut cx.spares);
        for spare in spares {
            self.recycle(spare);
        }
        self.apply_blocks(cx, parked.job.actor);
        if code == Code::WAITING {
            if cx.wake_at != RawCx::NO_WAKE {
                parked.waits_for = cx.waits_for;
                self.shares.add(parked.waits_for, 1 + parked.behind.len() as u32);
                return self.frames.park(index, cx.wake_at, parked);
            }
            // SAFETY: it waits, so its future is live.
            unsafe { Frames::<Parked>::cancel(frame) };
        }
        let Parked {
            job,
            at,
            behind,
            look,
            ..
        } = parked;
        let actor = job.actor;
        if !behind.is_empty() {
            self.linger(actor);
        }
        self.flows.header_mut(actor).change(Change::Resume);
        self.frames.give(index);
        if code == Code::WAITING {
            self.settle_accounts(cx, actor);
            self.refuse_resumed(job, behind);
            if self.flows.header(actor).phase == Phase::Active && self.is_of_before(actor) {
                // The sweep has passed it by while it waited.
                self.goes_on(actor);
            }
            return self.stop_lingering();
        }
        if self.is_of_before(actor) && !self.goes_on(actor) {
            // The configuration changed while it waited, and ends its flow.
            self.drop_changed(job.packet, cx, actor);
            self.take_up_behind(actor, behind);
            return self.stop_lingering();
        }
        let mut job = job;
        self.see_resumed(look, &mut job, usize::from(at), code);
        let timeout = cx.timeout;
        if let Some(mut job) = self.after_call(job, usize::from(at), code, cx) {
            job.passed += 1;
            self.extend(actor, timeout);
            // Ahead of what the call has emitted, as where no call waits.
            self.run_now(job);
        }
        self.run_jobs();
        self.take_up_behind(actor, behind);
        self.stop_lingering();
    }

    fn refuse_resumed(&mut self, job: Job, mut behind: PacketList) {
        while let Some(packet) = behind.pop() {
            self.queued_count -= 1;
            self.drop_packet(packet, DropReason::WaitsForNothing);
        }
        self.refuse(job, DropReason::WaitsForNothing);
    }

    /// Processes the packets that came while a call waited, in their order; they may wait in turn.
    fn take_up_behind(&mut self, actor: u32, mut behind: PacketList) {
        while let Some(packet) = behind.pop() {
            self.queued_count -= 1;
            if let Some((passed, direction)) = Place(packet.hash()).middle() {
                self.run_now(Job {
                    actor,
                    packet,
                    direction,
                    passed,
                });
                self.run_jobs();
                continue;
            }
            let Some((mut key, way)) = FlowKey::of(&packet) else {
                self.drop_packet(packet, DropReason::FrameMalformed);
                continue;
            };
            if packet.turns() > 0 {
                key = key.turned(way);
            }
            // The flow may be over, or another in its place: look it up as any packet.
            let hash = key.hash(&self.settings.seed);
            // Behind the next call, if there is one: it came before whatever was kept since for a group that is called back.
            let waiting = self.find(hash, &key).map(|value| value >> 1);
            let waiting = waiting.filter(|actor| self.flows.header(*actor).phase == Phase::Waiting);
            match waiting.filter(|_| !planted::is("queued_packet_kept_late")) {
                Some(actor) => self.queue_behind(actor, packet),
                None => self.meet_again(packet, key, hash, way, 0),
            }
        }
    }

    /// Packets held for a function go on, or are dropped, as it asked.
    pub(super) fn let_go(&mut self, job: &Job, at: usize, effects: u8, discard: Reason) {
        let discards = effects & effect::DISCARD != 0;
        let opening = job.direction == Direction::Opening;
        self.let_go_of(job, at, opening, discards.then_some(discard));
        if discards {
            self.let_go_of(job, at, !opening, Some(discard));
        }
        self.note_held(job.actor);
    }

    fn let_go_of(&mut self, job: &Job, at: usize, opening: bool, discard: Option<Reason>) {
        let Some(mut list) = self.held.remove(&(job.actor, at as u8, opening)) else {
            return;
        };
        let function =
            usize::from(self.stages.chains[usize::from(self.flows.header(job.actor).chain)][at].function);
        while let Some(packet) = list.pop() {
            let Some(packet) = self.unhold(packet) else {
                continue;
            };
            if let Some(discard) = discard {
                let reasons = &mut self.function_drops[function];
                let index = discard.index().min(reasons.len() - 1);
                reasons[index] += 1;
                self.see_drop(&packet, function, index);
                self.recycle(packet);
            } else {
                // They go before the packet at hand, which has yet to leave this call.
                self.go_on_from(job.actor, packet, job.direction, function, job.passed + 1);
            }
        }
    }

    fn go_on_from(
        &mut self,
        actor: u32,
        packet: PacketBox,
        direction: Direction,
        function: usize,
        passed: u8,
    ) {
        self.see(
            &packet,
            Event::Released {
                function: function as u8,
            },
        );
        self.run_now(Job {
            actor,
            packet,
            direction,
            passed,
        });
    }

    /// Holds the copy that a call has made, and hands out what it has let go behind its packet; copies among that are gone.
    pub(super) fn settle_held(&mut self, job: &Job, at: usize, cx: &mut RawCx) -> PacketList {
        let mut behind = PacketList::new();
        let mut let_go = core::mem::take(&mut cx.let_go);
        let some = !let_go.is_empty();
        while let Some(packet) = let_go.pop() {
            if let Some(packet) = self.unhold(packet) {
                behind.push(packet);
            }
        }
        let key = (job.actor, at as u8, job.direction == Direction::Opening);
        if let Some(copy) = cx.copy.take() {
            self.hold_copy(key, copy);
        }
        if some && self.held.get(&key).is_some_and(PacketList::is_empty) {
            self.held.remove(&key);
            self.note_held(job.actor);
        }
        behind
    }

    /// The same for a call that is over without a verdict: what it let go is dropped.
    pub(super) fn forget_held(&mut self, cx: &mut RawCx) {
        let mut let_go = core::mem::take(&mut cx.let_go);
        while let Some(packet) = let_go.pop() {
            if let Some(packet) = self.unhold(packet) {
                self.drop_packet(packet, DropReason::HeldAtEnd);
            }
        }
        if let Some(copy) = cx.copy.take() {
            self.recycle(copy);
        }
    }

    /// Runs what was let go through the rest of its chain, behind the packet at hand.
    pub(super) fn go_on_behind(
        &mut self,
        actor: u32,
        at: usize,
        direction: Direction,
        passed: u8,
        mut list: PacketList,
    ) {
        let function =
            usize::from(self.stages.chains[usize::from(self.flows.header(actor).chain)][at].function);
        while let Some(packet) = list.pop() {
            self.go_on_from(actor, packet, direction, function, passed);
        }
    }

    /// The packets that a function holds of a flow and direction, for a call of it.
    #[cold]
    pub(super) fn held_for(
        &mut self,
        actor: u32,
        at: u8,
        direction: Direction,
    ) -> Option<NonNull<PacketList>> {
        let key = (actor, at, direction == Direction::Opening);
        self.held.get_mut(&key).map(NonNull::from)
    }

    /// How many packets more may be held: half of the own buffers stay free of copies.
    pub(super) fn measure_held_room(&mut self) {
        let is_scarce = self.pool.free() * 2 < self.pool.total();
        let room = self.settings.held_max.saturating_sub(self.held_count);
        self.held_room = if is_scarce { 0 } else { room };
    }

    /// Holds a packet for a function.
    pub(super) fn hold(&mut self, job: Job, at: usize) {
        if self.held_count >= self.settings.held_max {
            return self.drop_packet(job.packet, DropReason::HeldFull);
        }
        let opening = job.direction == Direction::Opening;
        self.put_held((job.actor, at as u8, opening), job.packet);
    }

    fn hold_copy(&mut self, key: (u32, u8, bool), copy: PacketBox) {
        match self.held_count < self.settings.held_max {
            true => self.put_held(key, copy),
            false => self.recycle(copy),
        }
    }

    /// Adds a packet, or a copy, to those that are held; there is room.
    pub(super) fn put_held(&mut self, key: (u32, u8, bool), packet: PacketBox) {
        self.held_count += 1;
        self.copies += u32::from(packet.has(packet_flag::COPY));
        self.flows.header_mut(key.0).flags |= flag::HOLDS;
        self.held.entry(key).or_default().push(packet);
        self.measure_held_room();
    }

    /// A packet is held no more; `None` for a copy, which is gone.
    pub(super) fn unhold(&mut self, mut packet: PacketBox) -> Option<PacketBox> {
        self.held_count -= 1;
        let is_copy = packet.has(packet_flag::COPY);
        packet.clear_flags(packet_flag::COPY);
        if !is_copy {
            self.measure_held_room();
            return Some(packet);
        }
        self.copies -= 1;
        self.recycle(packet);
        self.measure_held_room();
        None
    }

    /// Some of what was held of a flow is not any more: its packets are looked after no longer if that was all.
    fn note_held(&mut self, actor: u32) {
        let functions = self.steps_of(actor).len() as u8;
        let holds = (0..functions).chain([GIVEN_UP]).any(|at| {
            [false, true]
                .iter()
                .any(|opening| self.held.contains_key(&(actor, at, *opening)))
        });
        if !holds {
            self.flows.header_mut(actor).flags &= !flag::HOLDS;
        }
    }

    /// What is held when a flow ends is dropped, and counted.
    pub(super) fn drop_held(&mut self, actor: u32) {
        let header = self.flows.header_mut(actor);
        if header.flags & flag::HOLDS == 0 {
            return;
        }
        header.flags &= !flag::HOLDS;
        for at in 0..HELD_END {
            for opening in [false, true] {
                let Some(mut list) = self.held.remove(&(actor, at, opening)) else {
                    continue;
                };
                while let Some(packet) = list.pop() {
                    if let Some(packet) = self.unhold(packet) {
                        self.drop_packet(packet, DropReason::HeldAtEnd);
                    }
                }
            }
        }
    }

    /// Cancels waiting calls, for the end of a run: their packets are counted drops.
    pub(super) fn cancel_waiting(&mut self, budget: usize) {
        for _ in 0..budget {
            let Some((index, waiting)) = self.frames.wake(u64::MAX) else {
                return;
            };
            // SAFETY: a parked frame holds a live future.
            unsafe { Frames::<Parked>::cancel(waiting.frame) };
            waiting.rest.leave(&mut self.shares);
            let Parked { job, mut behind, .. } = waiting.rest;
            // SAFETY: the future is gone, so the frame is nobody's but ours.
            self.settle_accounts(unsafe { &mut (*waiting.frame.as_ptr()).cx }, job.actor);
            self.flows.header_mut(job.actor).change(Change::Resume);
            self.frames.give(index);
            self.drop_packet(job.packet, DropReason::Stopped);
            while let Some(packet) = behind.pop() {
                self.queued_count -= 1;
                self.drop_packet(packet, DropReason::Stopped);
            }
        }
    }

    /// Sees to it that the call at hand has buffers to make packets of.
    pub(super) fn top_up_spares(&mut self) {
        self.fill_spares(self.frame_ptr);
    }

    /// The same for a frame between two calls or polls. Messages of the step keep their buffers: what a call emits may wait for
    /// a message.
    fn fill_spares(&mut self, frame: NonNull<Frame>) {
        // SAFETY: no call or poll is under way, so the frame's cx is ours.
        let cx = unsafe { &mut (*frame.as_ptr()).cx };
        while !cx.spares.is_full() && self.pool.free() > self.message_frames() {
            match self.pool.take() {
                Some(packet) => cx.spares.push(packet),
                None => break,
            }
        }
    }
}
