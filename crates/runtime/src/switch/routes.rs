//! Which runtime has a group: how routes begin, and how every one of them ends.
//!
//! # Theory of operation
//!
//! A route begins here (`choose`) or by a runtime's word (`Routed`). It ends by a runtime's word alone (`Idle`), and only if
//! nothing has been sent for it since. A runtime says so when its last flow of the group ends. Two cases are left in which no
//! flow of the group ends there, so that nobody would say it:
//!
//! - What made the route began no flow of the group: it met a flow that another group opened (both ends of an exchange that
//!   is not between inside and outside may send), or who owns its block of ports has changed on its way.
//! - *Idle* came while packets were on their way, and these do not begin the group anew either.
//!
//! In both the switch *doubts* the route, and asks, behind whatever it has sent for it: a runtime without the group says idle
//! again, which ends the route as ever; one with it is silent, and will say so in time.
//!
//! ```text
//!   choose, or Idle refused ──► doubtful ──asked in band──► the runtime has it: silence, the route stays
//!                                                     └───► it has not: Idle with the count, the route ends or is doubted again
//! ```
//!
//! Each question has a packet, or an *Idle*, before it, so there are no more of them than these. Where flows are by themselves nothing is
//! asked of a route that was chosen: such a packet begins or meets the flow whose key its route has, or is declined, which says idle. An *Idle* that is refused
//! is asked about there, too: no packet was sent for a route that a runtime's word has made, or turned.
//!
//! Invariants: a group has one route, at its home; a route for which nothing is on its way has a group at its runtime, or a
//! question or an *Idle* on the way (`one_home_per_group`, where nothing is left at the end).

use super::choice::MAGLEV_ENTRIES;
use super::{Lane, Policy, RuntimeLink, Switch};
use crate::env::Port;
use crate::group::GroupKey;
use crate::message::Message;
use crate::stats::DropReason;
use nf::{Affinity, Block};
use protocols::ownership::{Epoch, RuntimeId, SwitchSays};
use wire::memory::prefetch;
use wire::packet::flag;
use wire::{FlowKey, PacketBox, Pool, planted};

/// One cache line for each group.
#[derive(Clone, Copy)]
#[repr(C, align(64))]
pub(super) struct Route {
    pub key: GroupKey,
    /// [`Route::last_sent`], shifted by [`MARKS`], and the marks below it.
    sent_and_marks: u64,
    pub runtime: u16,
    /// The runtime that moved the group last, if any has, and of which change of hands it was (`moves`).
    pub source: u16,
    /// By which life of its runtime it was made, and which of the source's (`sessions`).
    pub life: u16,
    pub source_life: u16,
    pub epoch: Epoch,
}

const _: () = assert!(size_of::<Route>() == 64);

/// How many marks a route has.
const MARKS: u32 = 2;
/// In [`Route::sent_and_marks`]: the route is among those to ask about.
const DOUBTFUL: u64 = 1;
/// In [`Route::sent_and_marks`]: the runtime has yet to install the group. What that runtime has said of the group is older.
const AWAITED: u64 = 2;

impl Route {
    /// Where the last packet that was sent for the group stands in the link's count. The count has 62 bits: a link that sends a
    /// hundred million packets a second fills them in a thousand years.
    #[inline(always)]
    fn last_sent(&self) -> u64 {
        self.sent_and_marks >> MARKS
    }

    #[inline(always)]
    pub fn set_last_sent(&mut self, count: u64) {
        self.sent_and_marks = count << MARKS | self.sent_and_marks & (DOUBTFUL | AWAITED);
    }

    fn has(&self, mark: u64) -> bool {
        self.sent_and_marks & mark != 0
    }

    fn set(&mut self, mark: u64, value: bool) {
        self.sent_and_marks = self.sent_and_marks & !mark | if value { mark } else { 0 };
    }

    pub fn is_awaited(&self) -> bool {
        self.has(AWAITED)
    }

    pub fn set_awaited(&mut self, value: bool) {
        self.set(AWAITED, value);
    }
}

/// In [`Route::runtime`]: the place is free.
pub(super) const NO_RUNTIME: u16 = u16::MAX;
/// Questions to a runtime in a step: of so many messages in a burst, its answers fit into what it keeps for one step.
const QUESTIONS: usize = 8;
/// Bytes of a frame of questions beyond which no word of a refused key is added, for the same reason.
const SAID_MAX: usize = 2 * QUESTIONS * crate::message::RECORD_MAX;

impl<L> RuntimeLink<L> {
    /// Says up to which round all has been heard: once a step, behind the questions; without a buffer, later.
    #[cold]
    pub(super) fn say_heard(&mut self, pool: &mut Pool) {
        if self.questions.is_none()
            && let Some(mut frame) = pool.take()
        {
            Message::begin(&mut frame);
            self.questions = Some(frame);
        }
        if let (Some(frame), Some(round)) = (&mut self.questions, self.heard)
            && Message::Heard(round).append(frame)
        {
            self.heard = None;
        }
    }
}

impl<P: Port, L: Port> Switch<P, L> {
    pub(super) fn find(&self, group: &GroupKey) -> Option<u32> {
        self.table.find(group.hash(&self.settings.seed), |index| {
            self.routes[index as usize].key == *group
        })
    }

    /// Chooses a runtime for a new group and remembers it.
    #[cold]
    #[inline(never)]
    pub(super) fn choose(&mut self, packet: PacketBox, lane: &Lane) {
        let available = &self.sessions.available;
        let runtime = match self.settings.policy {
            Policy::LeastLoaded => {
                let available = available.iter().map(|index| usize::from(*index));
                available.min_by_key(|index| self.runtimes[*index].groups)
            }
            Policy::RoundRobin => {
                if planted::is("choice_by_history") {
                    self.next = planted::turns() as usize % 7;
                }
                self.next = if self.next + 1 >= available.len() {
                    0
                } else {
                    self.next + 1
                };
                available.get(self.next).map(|index| usize::from(*index))
            }
            Policy::Maglev => self
                .maglev
                .get(lane.hash as usize % MAGLEV_ENTRIES)
                .map(|index| usize::from(*index)),
        };
        let Some(runtime) = runtime else {
            return self.drop_packet(packet, DropReason::NoRuntime);
        };
        // A route for a packet that never arrives would never end.
        if self.runtimes[runtime].burst.len() >= self.runtimes[runtime].link.room() {
            return self.drop_packet(packet, DropReason::RuntimeBusy);
        }
        match self.add_route(lane.group, runtime) {
            Some(route) => {
                self.doubt(route);
                self.send_to(packet, route);
            }
            None => self.drop_packet(packet, DropReason::RoutesFull),
        }
    }

    fn add_route(&mut self, key: GroupKey, runtime: usize) -> Option<u32> {
        if self.free.is_empty() && self.routes.len() == self.settings.routes_max as usize {
            return None;
        }
        let index = self.free.last().copied().unwrap_or(self.routes.len() as u32);
        self.table.insert(key.hash(&self.settings.seed), index).ok()?;
        let mut route = Route {
            key,
            sent_and_marks: 0,
            runtime: runtime as u16,
            source: NO_RUNTIME,
            life: self.runtimes[runtime].life,
            source_life: 0,
            epoch: Epoch::default(),
        };
        route.set_last_sent(self.runtimes[runtime].sent);
        match self.free.pop() {
            Some(index) => {
                let place = &mut self.routes[index as usize];
                route.set(DOUBTFUL, place.has(DOUBTFUL));
                *place = route;
            }
            None => self.routes.push(route),
        }
        self.runtimes[runtime].groups += 1;
        if key.is_second_key(self.affinity) {
            self.second_keys += 1;
        }
        Some(index)
    }

    /// Fetches the routes of groups that move, which do so many at a time.
    fn prefetch_routes(&self, bytes: &[u8]) {
        let seed = &self.settings.seed;
        for key in Message::keys_rerouted(bytes) {
            self.table.prefetch(key.hash(seed));
        }
        for key in Message::keys_rerouted(bytes) {
            let route = self.table.candidate(key.hash(seed));
            if let Some(route) = route.and_then(|index| self.routes.get(index as usize)) {
                prefetch(core::ptr::from_ref(route));
            }
        }
    }

    /// Acts on what a runtime says.
    #[cold]
    pub(super) fn hear(&mut self, runtime: usize, frame: &PacketBox) {
        let mut bytes = frame.frame();
        self.prefetch_routes(bytes);
        while let Some((message, rest)) = Message::read(bytes) {
            bytes = rest;
            if !self.may_say(runtime, &message) {
                self.refuse_word();
                continue;
            }
            match message {
                Message::BlockClaimed(block, group) => self.block_claimed(runtime, block, group),
                Message::BlockTold(block, group) => self.block_told(runtime, block, group),
                Message::BlockDoubted(block, group) => self.doubt_block(runtime, block, group),
                Message::BlockReleased(block) => self.release(block),
                Message::Routed(group) => self.routed(runtime, group),
                Message::Leaving(is_leaving) => self.set_leaving(runtime as u16, is_leaving),
                Message::AllTold => self.runtimes[runtime].has_told = true,
                // Behind what is said of refused keys.
                Message::Hear(round) => self.runtimes[runtime].heard = Some(round),
                Message::Idle(group, consumed) => {
                    self.refused
                        .retain(|(key, to, _)| (*key, *to) != (group, runtime));
                    self.forget(runtime, group, consumed);
                }
                Message::Reroute(reroute) => self.reroute(runtime, &reroute),
                Message::Installed(key, epoch) => self.installed(runtime, &key, epoch),
                Message::Behind(group, to, epoch) => {
                    // Who is not there yet tells what it has when it is; if it never is, the source has the group again.
                    if self.runtimes[usize::from(to.0)].session != 0 {
                        self.sessions.note_move(&group, runtime, to.0);
                    }
                    self.say(to, group, SwitchSays::Clear(epoch));
                }
                Message::BlockReturned(block, home) => {
                    self.release(block);
                    self.give_back(home, block);
                }
                Message::Doubted(key) => self.doubt_after(runtime, &key),
                // Which nobody may say here.
                Message::Taken(_) | Message::Switch(..) | Message::Heard(_) => {}
            }
        }
        if !bytes.is_empty() {
            // No record.
            self.refuse_word();
        }
    }

    /// Tells the runtime whose pool a block is of that it is over here; one that is not there is told when it is.
    fn give_back(&mut self, home: RuntimeId, block: Block) {
        if self
            .runtimes
            .get(usize::from(home.0))
            .is_some_and(|link| link.session == 0)
        {
            return self.keep_block(home.0, block);
        }
        self.moves
            .say(usize::from(home.0), Message::BlockReturned(block, home));
    }

    fn block_claimed(&mut self, runtime: usize, block: Block, group: GroupKey) {
        let before = self.blocks.at(block.addr, block.first);
        if before.is_some_and(|before| before != group) {
            // Whose group was on its way when this switch was told of it, and has let go of it since.
            self.release(block);
        }
        self.blocks.claim(block, group);
        self.sessions.note_claim(group, runtime, before != Some(group));
        self.sessions.note_answer(runtime, block, group);
    }

    /// A block of a group on its way: whoever is known to have the block, or the group, is the one to ask.
    fn block_told(&mut self, runtime: usize, block: Block, group: GroupKey) {
        if self.blocks.at(block.addr, block.first).is_none() {
            let holder = self.sessions.holder(&group).unwrap_or(runtime);
            self.blocks.claim(block, group);
            self.sessions.note_claim(group, holder, true);
        }
    }

    /// A runtime has not got a group's block: nobody has, if that one had the group.
    fn doubt_block(&mut self, runtime: usize, block: Block, group: GroupKey) {
        self.sessions.note_answer(runtime, block, group);
        if self.blocks.at(block.addr, block.first) != Some(group) {
            return;
        }
        match self.sessions.holder(&group) {
            Some(holder) if holder != runtime => {
                self.moves.say(holder, Message::BlockDoubted(block, group));
            }
            _ => self.release(block),
        }
    }

    fn release(&mut self, block: Block) {
        if let Some(group) = self.blocks.release(block) {
            self.sessions.note_release(&group);
        }
    }

    /// A runtime says that it has a group, or a flow with a second key.
    pub(super) fn routed(&mut self, runtime: usize, group: GroupKey) {
        let found = self.find_live(&group);
        if let Some(index) = found {
            self.meet(index, runtime as u16);
        }
        let refused = match found.map(|index| self.routes[index as usize].runtime) {
            // Whoever has it already keeps it: its flow is older.
            Some(has) => (usize::from(has) != runtime).then_some(DropReason::ReplyKeyTaken),
            None => self
                .add_route(group, runtime)
                .is_none()
                .then_some(DropReason::RoutesFull),
        };
        if let Some(reason) = refused {
            self.refuse(runtime, group, reason);
        }
    }

    /// A runtime has what a route is for: if that was on its way there before this switch had met it, it leads there.
    fn meet(&mut self, index: u32, runtime: u16) {
        let Route {
            key, runtime: has, ..
        } = self.routes[index as usize];
        if has == runtime {
            // It has come back, or says of it behind this where it goes.
            return self.sessions.forget_unmet(&key);
        }
        let Some(epoch) = self.sessions.unmet(&key, has, runtime) else {
            return;
        };
        self.turn_route(index, runtime);
        let source_life = self.runtimes[usize::from(has)].life;
        let route = &mut self.routes[index as usize];
        (route.source, route.source_life, route.epoch) = (has, source_life, epoch);
        route.set_awaited(false);
    }

    /// A second key gets no route: the flow that wants it is over, and what it sent is dropped.
    #[cold]
    fn refuse(&mut self, runtime: usize, key: GroupKey, reason: DropReason) {
        if self.refused.is_full() {
            // As far as is remembered; the oldest is over by now, or its flow goes without replies.
            self.refused.remove(0);
        }
        self.refused.push((key, runtime, reason));
        if let Some(frame) = self.question(runtime)
            && frame.frame().len() < SAID_MAX
        {
            Message::Taken(key).append(frame);
        } else {
            // Before *heard*, which lets go what waits of its flow.
            self.moves.say(runtime, Message::Taken(key));
        }
    }

    /// Why a packet from a runtime is dropped, if it belongs to a flow whose second key was refused.
    #[cold]
    pub(super) fn refusal(&self, runtime: usize, packet: &PacketBox) -> Option<DropReason> {
        let (key, way) = FlowKey::of(packet)?;
        let key = if packet.has(flag::TURN_AROUND) {
            key.turned(way.reversed())
        } else {
            key
        };
        let wanted = (GroupKey::of_flow(key), runtime);
        let mut refused = self.refused.iter();
        refused.find_map(|(key, to, reason)| ((*key, *to) == wanted).then_some(*reason))
    }

    fn forget(&mut self, runtime: usize, group: GroupKey, consumed: u64) {
        let Some(index) = self.find_live(&group) else {
            return;
        };
        let route = self.routes[index as usize];
        if usize::from(route.runtime) != runtime || route.is_awaited() {
            return;
        }
        // Sent since: the runtime has begun the group anew, or will, as a rule; but not if a word has made the route, or turned it: then all that was
        // sent is others'.
        if consumed < route.last_sent() && !planted::is("route_over_too_early") {
            return self.doubt_anyway(index);
        }
        self.remove_route(index);
    }

    pub(super) fn remove_route(&mut self, index: u32) {
        let Route { key, runtime, .. } = self.routes[index as usize];
        self.sessions.forget_unmet(&key);
        self.table.remove(key.hash(&self.settings.seed), index);
        self.routes[index as usize].runtime = NO_RUNTIME;
        self.free.push(index);
        self.runtimes[usize::from(runtime)].groups -= 1;
        if key.is_second_key(self.affinity) {
            self.second_keys -= 1;
        }
    }

    /// Notes that somebody must ask whether a route is of use.
    pub(super) fn doubt(&mut self, index: u32) {
        if self.affinity != Affinity::Flow {
            self.doubt_anyway(index);
        }
    }

    /// The same where flows are by themselves, too: somebody was told what has become of the group, and is not there any more.
    pub(super) fn doubt_anyway(&mut self, index: u32) {
        let route = &mut self.routes[index as usize];
        if !route.has(DOUBTFUL) {
            route.set(DOUBTFUL, true);
            // Each place is in it once at most, so there is room.
            self.doubtful.push_back(index);
        }
    }

    /// Asks about routes in doubt, behind whatever was sent for them; those for which there is no buffer or no room now come
    /// later.
    /// Answers how many.
    pub(super) fn ask(&mut self) -> usize {
        let mut asked = 0;
        for _ in 0..QUESTIONS {
            let Some(&index) = self.doubtful.front() else {
                break;
            };
            let is_live = !self.sessions.is_forgetting() || self.see_route(index);
            let Route { key, runtime, .. } = self.routes[index as usize];
            if is_live && runtime != NO_RUNTIME {
                let Some(frame) = self.question(usize::from(runtime)) else {
                    // Others' runtimes may have room.
                    self.doubtful.rotate_left(1);
                    continue;
                };
                let fits = Message::Doubted(key).append(frame);
                debug_assert!(fits, "so few fit into any frame");
                asked += 1;
            }
            self.routes[index as usize].set(DOUBTFUL, false);
            self.doubtful.pop_front();
        }
        asked
    }

    /// The frame of questions to a runtime that goes out with this step.
    fn question(&mut self, runtime: usize) -> Option<&mut PacketBox> {
        let link = &mut self.runtimes[runtime];
        if link.questions.is_none() {
            if link.link.room() <= link.burst.len() {
                // Who does not read shall not have all buffers.
                return None;
            }
            let mut frame = self.pool.take()?;
            Message::begin(&mut frame);
            link.questions = Some(frame);
        }
        link.questions.as_mut()
    }
}
