//! From a burst of packets to their chains: the path that is counted in cycles.

use super::unheard::is_unheard;
use super::{Job, Runtime};
use crate::env::{BURST, Burst, Port};
use crate::flows::actor::{NO_GROUP, Phase, flag};
use crate::flows::group::GroupKey;
use crate::fragments;
use crate::stats::DropReason;
use crate::watch::trace::{Event, Meeting};
use arrayvec::ArrayVec;
use core::ptr::NonNull;
use nf::cx::RawCx;
use nf::{Affinity, Arrival, Direction, Side};
use wire::packet::{Kind, flag as packet_flag};
use wire::{FlowKey, Orientation, PacketBox, PacketList};

/// What is known of a packet of the burst before its chain runs.
#[derive(Clone, Copy)]
pub(super) struct Lane {
    pub(super) key: FlowKey,
    hash: u64,
    pub(super) candidate: u32,
    way: Orientation,
    /// Why the packet has no flow, if it has none. Its key is then the default one, which no flow has.
    refused: Option<DropReason>,
}

impl Lane {
    #[cold]
    fn refused(reason: DropReason) -> Lane {
        Lane {
            key: FlowKey::default(),
            hash: 0,
            candidate: NOBODY,
            way: Orientation::Along,
            refused: Some(reason),
        }
    }
}

/// In [`Lane::candidate`]: the table has nothing like it.
pub(super) const NOBODY: u32 = u32::MAX;

impl<P: Port> Runtime<P> {
    /// Processes what a link brought.
    #[inline]
    pub(super) fn data(&mut self, link: usize, burst: &mut Burst) {
        if burst.is_empty() {
            return;
        }
        if self.settings.switches > 0 {
            self.sort_out(link, burst);
        } else {
            // Straight from a port: what a buffer was before is over.
            burst.iter_mut().for_each(|packet| packet.clear_turns());
        }
        self.received += burst.len() as u64;
        self.take_up(link, burst);
    }

    #[cold]
    pub(super) fn drop_fragments(&mut self) -> usize {
        let mut count = 0;
        while let Some((packet, reason)) = self.fragments.refused() {
            self.drop_packet(packet, reason);
            count += 1;
        }
        count
    }

    /// A packet without a key: no packet, or a fragment. That and those that waited for it are taken up by themselves.
    #[cold]
    fn set_aside(&mut self, packet: PacketBox, reason: DropReason, link: usize) {
        if !packet.has(packet_flag::PARSED) || !fragments::is_astray(&packet) {
            return self.drop_packet(packet, reason);
        }
        let mut next = self.fragments.take(packet, self.now);
        let mut burst = Burst::new();
        while let Some(packet) = next {
            if burst.is_full() {
                self.take_up(link, &mut burst);
            }
            burst.push(packet);
            next = self.fragments.released();
        }
        self.drop_fragments();
        self.take_up(link, &mut burst);
    }

    /// Takes buffers that came home out of a burst, and acts on messages, each behind the packets before it.
    fn sort_out(&mut self, link: usize, burst: &mut Burst) {
        let mut packets = Burst::new();
        let mut all = burst.take().into_iter();
        while let Some(packet) = all.next() {
            match packet.kind() {
                Kind::Data => packets.push(packet),
                Kind::Empty => self.recycle(packet),
                Kind::Message => {
                    self.received += packets.len() as u64;
                    self.take_up(link, &mut packets);
                    self.hear(link, &packet);
                    self.recycle(packet);
                    if !self.has_room_for_messages() {
                        // By what they ask for, words take the buffers for what a step says by itself: the others come later.
                        self.put_aside(link, &mut all);
                    }
                }
            }
        }
        *burst = packets;
    }

    /// Puts the rest of a burst in front of what is put aside.
    #[cold]
    fn put_aside(&mut self, link: usize, rest: &mut dyn Iterator<Item = PacketBox>) {
        let mut list = PacketList::new();
        let aside = &mut self.backlog[link];
        for packet in rest.chain(core::iter::from_fn(|| aside.pop())) {
            list.push(packet);
        }
        *aside = list;
    }

    /// Looks up all packets of a burst, then runs their chains in order.
    pub(super) fn take_up(&mut self, link: usize, burst: &mut Burst) {
        self.top_up_spares();
        let mut lanes = [const { core::mem::MaybeUninit::<Lane>::uninit() }; BURST];
        let lanes = &mut lanes[..burst.len()];
        for (packet, lane) in burst.iter_mut().zip(lanes.iter_mut()) {
            lane.write(match self.identify(packet) {
                Ok(lane) => {
                    self.flows.prefetch_key(lane.hash);
                    lane
                }
                Err(reason) => Lane::refused(reason),
            });
        }
        // SAFETY: all lanes were written just above; a `MaybeUninit` has its type's layout.
        let lanes = unsafe { &mut *(core::ptr::from_mut(lanes) as *mut [Lane]) };
        let mut unknown = 0;
        for lane in lanes.iter_mut() {
            match self.flows.candidate(lane.hash) {
                Some(value) => {
                    lane.candidate = value;
                    self.flows.prefetch(value >> 1);
                }
                None => unknown += 1,
            }
        }
        if unknown > 0 {
            self.anticipate(burst, lanes, unknown);
        }
        if self.eye.is_some() {
            self.look_out(burst, lanes);
        }
        for (packet, lane) in burst.drain(..).zip(lanes.iter()) {
            if self.settings.packet_clock {
                self.now = self.now.max(packet.timestamp());
            }
            // Counted one by one: a group that ends here must not be thought to have seen what is yet to be processed.
            self.outputs[link].consumed += 1;
            self.meet(packet, lane, link);
        }
        self.settle_all();
    }

    /// Fetches what the packets that will open flows are going to touch, for all of them at once: launched one after the
    /// other, each would wait for its own dozen cache misses.
    #[cold]
    #[inline(never)]
    fn anticipate(&mut self, packets: &[PacketBox], lanes: &[Lane], unknown: usize) {
        let openings = || {
            packets
                .iter()
                .zip(lanes)
                .filter(|(_, lane)| lane.candidate == NOBODY && lane.refused.is_none())
        };
        self.flows.prefetch_free(unknown);
        let mut groups = ArrayVec::<u64, BURST>::new();
        for (packet, lane) in openings() {
            if self.flows.affinity() != Affinity::Flow {
                let hash = self.flows.groups().hash(self.group_of(packet, lane.key));
                self.flows.groups().prefetch(hash);
                groups.push(hash);
            }
            for function in &self.stages.functions {
                function.prefetch(packet);
            }
        }
        for hash in groups {
            self.flows.groups().prefetch_candidate(hash);
        }
    }

    /// Parses a packet unless the switch did, and computes its key.
    #[inline(always)]
    fn identify(&mut self, packet: &mut PacketBox) -> Result<Lane, DropReason> {
        if !packet.has(packet_flag::PARSED) {
            wire::parse(packet)?;
            self.plan.judge_icmp_error(packet);
            if fragments::is_astray(packet) {
                return Err(DropReason::FragmentUnknown);
            }
        }
        let (mut key, way) = FlowKey::of(packet).ok_or(DropReason::FrameMalformed)?;
        if packet.turns() > 0 {
            key = key.turned(way);
        }
        let hash = key.hash(&self.settings.seed);
        Ok(Lane {
            key,
            hash,
            way,
            candidate: NOBODY,
            refused: None,
        })
    }

    /// Gives a packet to its flow's actor, launching one for a new flow.
    #[inline(always)]
    fn meet(&mut self, packet: PacketBox, lane: &Lane, link: usize) {
        if lane.candidate != NOBODY && self.flows.has_key(lane.candidate, &lane.key) {
            let header = self.flows.header(lane.candidate >> 1);
            let is_second = lane.candidate & 1 != 0;
            if header.is_active_under(self.young())
                && header.deadline > self.now
                && (!is_second || header.flags & flag::SECOND_KEY != 0)
            {
                let direction = header.direction(lane.candidate & 1, lane.way);
                return self.begin::<false>(lane.candidate >> 1, packet, direction);
            }
        }
        self.meet_rare(packet, lane, link);
    }

    /// [`Runtime::meet`] for all but a packet of a flow that is there, active and not over.
    #[cold]
    #[inline(never)]
    fn meet_rare(&mut self, packet: PacketBox, lane: &Lane, link: usize) {
        if let Some(reason) = lane.refused {
            return self.set_aside(packet, reason, link);
        }
        // The first packets of this burst may have launched the flow, or ended it.
        let Some(value) = self.find(lane.hash, &lane.key) else {
            self.make_room(link);
            return self.launch(packet, lane, link);
        };
        let actor = value >> 1;
        let header = self.flows.header(actor);
        if header.phase != Phase::Active {
            if let Some(packet) = self.divert_known(actor, packet, link) {
                self.queue_behind(actor, packet);
            }
            return;
        }
        if header.deadline <= self.now {
            self.see(&packet, Event::Met(Meeting::Expired));
            return self.renew(packet, actor, lane, link);
        }
        let direction = header.direction(value & 1, lane.way);
        if self.is_of_before(actor) {
            // As when it is renewed: if it ends here, it has not seen this packet.
            self.outputs[link].consumed -= 1;
            let goes_on = self.goes_on(actor);
            self.outputs[link].consumed += 1;
            if !goes_on {
                return self.launch(packet, lane, link);
            }
        }
        self.see(&packet, Event::Met(Meeting::Found));
        self.begin_seen(actor, packet, direction);
    }

    /// The actor, and which of its keys, that has this key.
    pub(super) fn find(&mut self, hash: u64, key: &FlowKey) -> Option<u32> {
        if self.settling.has(hash) {
            self.settle_all();
        }
        self.flows.find_hashed(hash, key)
    }

    /// A flow whose time was over before this packet came, though nobody had looked: the packet opens it anew.
    #[cold]
    fn renew(&mut self, packet: PacketBox, actor: u32, lane: &Lane, link: usize) {
        // What ends here has not seen this packet.
        self.outputs[link].consumed -= 1;
        self.end_actor(actor);
        self.outputs[link].consumed += 1;
        self.launch(packet, lane, link);
    }

    /// [`Runtime::meet`] for a packet that waited behind a call, or was kept while its group moved.
    pub(super) fn meet_again(
        &mut self,
        packet: PacketBox,
        key: FlowKey,
        hash: u64,
        way: Orientation,
        link: usize,
    ) {
        // Consumed long ago, by whichever link: a group that ends now has seen it.
        match self.find(hash, &key) {
            Some(value) if self.flows.header(value >> 1).phase != Phase::Active => {
                if let Some(packet) = self.divert_known(value >> 1, packet, link) {
                    self.queue_behind(value >> 1, packet);
                }
            }
            Some(value) if !self.is_of_before(value >> 1) || self.goes_on(value >> 1) => {
                let direction = self.flows.header(value >> 1).direction(value & 1, way);
                self.begin_seen(value >> 1, packet, direction);
            }
            _ => self.launch(
                packet,
                &Lane {
                    key,
                    hash,
                    way,
                    candidate: NOBODY,
                    refused: None,
                },
                link,
            ),
        }
    }

    /// Runs a job at once, ahead of any queued: unless its flow waits since, behind which it queues, or is over.
    #[cold]
    pub(super) fn run_now(&mut self, job: Job) {
        match self.flows.header(job.actor).phase {
            Phase::Active => {
                self.run::<true>(job.actor, job.packet, job.direction, usize::from(job.passed));
            }
            Phase::Waiting => self.queue_job_behind(job),
            Phase::Free | Phase::Arriving | Phase::Leaving => {
                self.drop_packet(job.packet, DropReason::HeldAtEnd);
            }
        }
    }

    /// Runs a packet's chain from the start, and whatever jobs that makes.
    #[inline(always)]
    pub(super) fn begin<const SEEN: bool>(
        &mut self,
        actor: u32,
        mut packet: PacketBox,
        direction: Direction,
    ) {
        let exit = if packet.has(packet_flag::LATERAL) {
            Side::Inside
        } else {
            packet.side().opposite()
        };
        packet.set_exit(exit);
        self.run::<SEEN>(actor, packet, direction, 0);
        if !self.jobs.is_empty() {
            self.run_jobs();
        }
    }

    #[cold]
    pub(super) fn run_jobs(&mut self) {
        while let Some(job) = self.jobs.pop_at(0) {
            self.run_now(job);
        }
    }

    /// Fills in what a function may ask about the packet at hand.
    #[inline(always)]
    pub(super) fn prepare<'a>(&self, actor: u32, side: Side, direction: Direction) -> &'a mut RawCx {
        // SAFETY: the frame in hand is valid and nobody else uses it: its last call is over.
        let cx = unsafe { &mut (*self.frame_ptr.as_ptr()).cx };
        cx.now = self.now;
        cx.wake_at = RawCx::NO_WAKE;
        cx.timeout = 0;
        cx.key = self.flows.key(actor);
        cx.flow = actor;
        cx.opening = self.flows.header(actor).opening(0);
        cx.side = side;
        cx.direction = direction;
        cx.effects = 0;
        cx.held = None;
        cx.held_room = self.held_room;
        cx
    }

    /// Runs the functions ahead of a packet that has passed so many, until one stops it or it leaves the chain. `SEEN`: somebody may
    /// be watching.
    #[inline(always)]
    fn run<const SEEN: bool>(
        &mut self,
        actor: u32,
        mut packet: PacketBox,
        direction: Direction,
        passed: usize,
    ) {
        let header = self.flows.header(actor);
        let state = self.flows.state(actor);
        let group = self.flows.group_state(header.group, state);
        let mut holds = header.flags & flag::HOLDS != 0;
        let steps = core::ptr::from_ref(self.stages.way(header.chain, direction));
        let cx = self.prepare(actor, packet.side(), direction);
        let mut timeout = 0;
        // SAFETY: stages change between two steps of the worker only (`change`): these stay where they are.
        let steps = unsafe { &*steps };
        let mut look = self.look::<SEEN>(actor, &packet, direction, passed);
        for (index, step) in steps.iter().enumerate().skip(passed) {
            // SAFETY: the group's state is as long as all functions' parts.
            cx.group = unsafe { group.add(step.group as usize) };
            cx.counters = step.counters;
            if holds {
                cx.held = self.held_for(actor, step.at, direction);
            }
            // SAFETY: the state is this actor's, laid out for this chain; if the call waits, the actor is pinned, and the
            // packet and frame are put aside until its future is done.
            let answer = unsafe { step.run(&mut packet, state.add(step.flow as usize), self.frame_ptr) };
            timeout = timeout.max(answer.timeout);
            if SEEN {
                self.seen(&mut look, &mut packet, step.function, answer.code, false);
            }
            if answer.code.number() | u32::from(cx.effects) != 0 {
                let at = usize::from(step.at);
                let job = Job {
                    actor,
                    packet,
                    direction,
                    passed: index as u8,
                };
                cx.timeout = timeout;
                match self.turn_aside(job, at, answer.code) {
                    Some(job) => packet = job.packet,
                    None => return,
                }
                // Whatever was let go has run through the same cx.
                cx.held = None;
                holds = self.flows.header(actor).flags & flag::HOLDS != 0;
            }
        }
        // Begun in the middle (resumed, released, emitted): the functions before have had their say about the timeout.
        if SEEN {
            self.see(&packet, Event::Leaves { exit: packet.exit() });
        }
        let whole = passed == 0;
        if !whole {
            self.keep_at_least(actor, timeout);
        }
        self.leave_chain(actor, packet, direction, timeout, whole);
    }

    /// A packet has passed its chain: its flow's deadline moves, and it goes out.
    #[inline(always)]
    fn leave_chain(
        &mut self,
        actor: u32,
        packet: PacketBox,
        direction: Direction,
        timeout: u64,
        whole: bool,
    ) {
        // An error keeps no flow alive, but one that opened a flow must give it some end.
        if !packet.has(packet_flag::ICMP_ERROR) || self.flows.header(actor).deadline == 0 {
            if whole {
                self.extend(actor, timeout);
            }
            if self.flows.header(actor).flags & flag::SETTLED == 0 {
                return self.settle(actor, packet, direction);
            }
        } else {
            self.settle_all();
            if is_unheard(self.flows.header(actor).flags) {
                return self.wait_behind(actor, packet);
            }
        }
        self.pass(packet);
    }

    /// Moves a flow's deadline to `timeout` from now, if that is later: only some of its functions have spoken.
    #[cold]
    pub(super) fn keep_at_least(&mut self, actor: u32, timeout: u64) {
        let deadline = self.flows.header(actor).deadline;
        if deadline == 0 || self.now.saturating_add(timeout) > deadline {
            self.extend(actor, timeout);
        }
    }

    /// Moves a flow's deadline to `timeout` from now.
    #[inline(always)]
    pub(super) fn extend(&mut self, actor: u32, timeout: u64) {
        let timeout = if timeout == 0 {
            self.settings.timeout_default
        } else {
            timeout
        };
        self.flows.set_deadline(actor, self.now.saturating_add(timeout));
    }

    /// Makes an actor for a new flow and runs its first packet.
    #[cold]
    #[inline(never)]
    fn launch(&mut self, packet: PacketBox, lane: &Lane, link: usize) {
        let packet = match self.moves.is_idle() {
            true => packet,
            false => match self.divert(packet, &lane.key, link) {
                Some(packet) => packet,
                None => return,
            },
        };
        let Some(chain) = self.plan.classify(&packet) else {
            return self.decline(packet, lane, DropReason::NoChain);
        };
        // What a move has reserved is not for others.
        let Some(actor) = self.flows.launch(lane.hash, self.moves.reserved_flows()) else {
            if wire::planted::is("full_table_lets_pass") {
                let mut packet = packet;
                let exit = packet.side().opposite();
                packet.set_exit(exit);
                return self.pass(packet);
            }
            return self.decline(packet, lane, DropReason::FlowsFull);
        };
        let group = match self.enter_group(&packet, lane.key) {
            Ok(group) => group,
            Err(reason) => {
                self.flows.unlaunch(lane.hash, actor);
                return self.decline(packet, lane, reason);
            }
        };
        self.flows.join_group(actor, group);
        let generation = self.young();
        let header = self.flows.header_mut(actor);
        header.key = lane.key;
        header.generation = generation;
        header.chain = chain;
        if lane.way == Orientation::Along {
            header.flags |= flag::OPENING_ALONG;
        }
        if packet.side() == Side::Outside {
            header.flags |= flag::FROM_OUTSIDE;
        }
        self.flows_opened += 1;
        self.create_states(actor, group, chain, packet.side());
        self.see(&packet, Event::Met(Meeting::Launched));
        self.begin_seen(actor, packet, Direction::Opening);
    }

    /// Refuses a packet that would open a flow. The switch made a route for it, which nobody else would end.
    #[cold]
    fn decline(&mut self, packet: PacketBox, lane: &Lane, reason: DropReason) {
        let group = self.group_of(&packet, lane.key);
        if self.flows.affinity() == Affinity::Flow || !self.flows.groups().has(group) {
            self.tell_idle(group);
        }
        self.drop_packet(packet, reason);
    }

    pub(super) fn group_of(&self, packet: &PacketBox, key: FlowKey) -> GroupKey {
        GroupKey::of(self.flows.affinity(), packet, key, |end, protocol| {
            self.flows
                .owners
                .owner(end)
                .or_else(|| owner_by_plan(&self.plan, self.flows.affinity(), end, protocol))
        })
    }

    /// The group of a new flow, made if it is the first and may be; or why not.
    fn enter_group(&mut self, packet: &PacketBox, key: FlowKey) -> Result<u32, DropReason> {
        if self.flows.affinity() == Affinity::Flow {
            return Ok(NO_GROUP);
        }
        let group = self.group_of(packet, key);
        let (index, new) = self.flows.enter_group(group).ok_or(DropReason::GroupsFull)?;
        if new {
            if !self.is_routed_here(packet, &group) {
                self.flows.abandon_group(index);
                return Err(DropReason::RouteOver);
            }
            if self.sessions.is_beginning() {
                self.flows.abandon_group(index);
                return Err(DropReason::TooEarly);
            }
            let state = self.flows.groups().state(index);
            self.create_group_states(state);
        }
        Ok(index)
    }

    fn create_group_states(&self, state: NonNull<u8>) {
        let mut offset = 0;
        for stage in &self.stages.functions {
            let (size, align) = stage.layout().group;
            offset = usize::next_multiple_of(offset, align.max(1));
            // SAFETY: group state was sized for all functions in this order.
            unsafe { stage.create_group(state.add(offset)) };
            offset += size;
        }
    }

    /// Default state for each function of the chain, and word that the flow has arrived.
    fn create_states(&mut self, actor: u32, group: u32, chain: u8, side: Side) {
        let state = self.flows.state(actor);
        let is_alone = group == NO_GROUP;
        let group = self.flows.group_state(group, state);
        if is_alone && self.stages.group_size > 0 {
            self.create_group_states(group);
        }
        let cx = self.prepare(actor, side, Direction::Opening);
        let fresh = self.stages.fresh(chain);
        // SAFETY: the state is this actor's, with room for every chain's, and nobody else uses it.
        unsafe { core::ptr::copy_nonoverlapping(fresh.as_ptr(), state.as_ptr(), fresh.len()) };
        for at in 0..self.stages.way(chain, Direction::Opening).len() {
            let step = self.stages.way(chain, Direction::Opening)[at];
            let stage = &self.stages.functions[usize::from(step.function)];
            cx.counters = step.counters;
            // SAFETY: as above; the state was laid out for this chain.
            unsafe {
                cx.group = group.add(step.group as usize);
                stage.arrived(state.add(step.flow as usize), Arrival::New, cx);
            }
            self.settle_accounts(cx, actor);
        }
    }
}

/// The group that owns an outside endpoint by configuration.
pub(crate) fn owner_by_plan(
    plan: &crate::chain::Plan,
    affinity: Affinity,
    outside: nf::Endpoint,
    protocol: u8,
) -> Option<GroupKey> {
    let inside = plan.owner_of(outside, protocol)?;
    Some(match affinity {
        Affinity::InsideEndpoint => GroupKey::of_endpoint(inside, protocol),
        _ => GroupKey::of_address(inside.addr),
    })
}
