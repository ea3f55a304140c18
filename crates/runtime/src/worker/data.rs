//! From a burst of packets to their chains: the path that is counted in cycles.

use super::Runtime;
use crate::env::{BURST, Burst, Port};
use crate::flows::actor::{NO_GROUP, Phase, flag};
use crate::flows::group::GroupKey;
use crate::fragments;
use crate::parts::{Core, Following};
use crate::stats::DropReason;
use crate::watch::trace::{Event, Meeting};
use arrayvec::ArrayVec;
use nf::{Affinity, Direction, Side};
use wire::packet::flag as packet_flag;
use wire::{FlowKey, Orientation, PacketBox};

/// The facts about a packet of the burst before its chain runs.
#[derive(Clone, Copy)]
pub(super) struct Lane {
    pub(super) key: FlowKey,
    hash: u64,
    pub(super) candidate: u32,
    way: Orientation,
    /// Why the packet has no flow, if it has none. Its key is then the default one, which no flow
    /// has.
    refused: Option<DropReason>,
}

impl Lane {
    #[cold]
    fn refused(reason: DropReason) -> Lane {
        Lane {
            key: FlowKey::default(),
            hash: 0,
            candidate: NOT_FOUND,
            way: Orientation::Along,
            refused: Some(reason),
        }
    }
}

/// In [`Lane::candidate`]: the table has nothing like it.
pub(super) const NOT_FOUND: u32 = u32::MAX;

impl<P: Port> Runtime<P> {
    #[cold]
    pub(super) fn drop_fragments(&mut self) -> usize {
        let mut count = 0;
        while let Some((packet, reason)) = self.fragments.refused() {
            self.core.out.drop_packet(packet, reason);
            count += 1;
        }
        count
    }

    /// A packet without a key: no packet, or a fragment. That and the packets that waited for it
    /// are taken up by themselves.
    #[cold]
    fn set_aside(&mut self, packet: PacketBox, reason: DropReason, link: usize) {
        if !packet.has(packet_flag::PARSED) || !fragments::is_astray(&packet) {
            return self.core.out.drop_packet(packet, reason);
        }
        let mut next = self.fragments.take(packet, self.core.now);
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

    /// Looks up all packets of a burst, then runs their chains in order.
    pub(super) fn take_up(&mut self, link: usize, burst: &mut Burst) {
        if self.core.is_replica_full() {
            return self.refuse_all(link, burst, DropReason::ReplicaFull);
        }
        self.core.runner.top_up_spares(&mut self.core.out);
        let mut lanes = [const { core::mem::MaybeUninit::<Lane>::uninit() }; BURST];
        let lanes = &mut lanes[..burst.len()];
        for (packet, lane) in burst.iter_mut().zip(lanes.iter_mut()) {
            lane.write(match self.identify(packet) {
                Ok(lane) => {
                    self.core.flows.prefetch_key(lane.hash);
                    lane
                }
                Err(reason) => Lane::refused(reason),
            });
        }
        // SAFETY: all lanes were written just above; a `MaybeUninit` has its type's layout.
        let lanes = unsafe { &mut *(core::ptr::from_mut(lanes) as *mut [Lane]) };
        let mut unknown = 0;
        for lane in lanes.iter_mut() {
            match self.core.flows.candidate(lane.hash) {
                Some(value) => {
                    lane.candidate = value;
                    self.core.flows.prefetch(value >> 1);
                }
                None => unknown += 1,
            }
        }
        if unknown > 0 {
            self.anticipate(burst, lanes, unknown);
        }
        if self.core.out.tap.is_some() {
            self.look_out(burst, lanes);
        }
        if self.core.runner.sampling.is_due() {
            return self.take_up_sampled(link, burst, lanes);
        }
        if self.core.is_followed {
            return self.take_up_followed(link, burst, lanes);
        }
        self.meet_all(link, burst, lanes, |core, actor, packet, direction| {
            core.begin_alone(actor, packet, direction);
        });
    }

    /// The same where changes by packets are followed: for questions that are asked once a burst.
    #[inline(never)]
    fn take_up_followed(&mut self, link: usize, burst: &mut Burst, lanes: &[Lane]) {
        match self.core.following {
            Following::Copies => self.meet_all(link, burst, lanes, |core, actor, packet, direction| {
                core.begin_copied(actor, packet, direction);
            }),
            Following::Store => self.meet_all(link, burst, lanes, |core, actor, packet, direction| {
                core.begin_noted(actor, packet, direction);
            }),
            Following::All => self.meet_all(link, burst, lanes, |core, actor, packet, direction| {
                core.begin_followed::<false>(actor, packet, direction);
            }),
        }
    }

    /// Runs the chains of a burst in order; `begin` is of a packet of a flow that is there, active
    /// and not over.
    #[inline(always)]
    fn meet_all(
        &mut self,
        link: usize,
        burst: &mut Burst,
        lanes: &[Lane],
        begin: impl Fn(&mut Core, u32, PacketBox, Direction),
    ) {
        for (packet, lane) in burst.drain(..).zip(lanes) {
            if self.core.settings.packet_clock {
                self.core.go_on_to(packet.timestamp());
            }
            // Packets are counted one by one: a group that ends here must not be thought to have
            // seen unprocessed ones.
            self.core.out.count_consumed(link);
            self.meet(packet, lane, link, &begin);
        }
        self.core.learn_reply_keys();
    }

    /// Runs the chains of a burst in order, and counts what each call costs.
    #[cold]
    #[inline(never)]
    fn take_up_sampled(&mut self, link: usize, burst: &mut Burst, lanes: &[Lane]) {
        self.core.runner.sampling.start();
        for (packet, lane) in burst.drain(..).zip(lanes) {
            if self.core.settings.packet_clock {
                self.core.go_on_to(packet.timestamp());
            }
            self.core.out.count_consumed(link);
            self.meet_rare(packet, lane, link);
        }
        self.core.runner.sampling.end();
        self.core.learn_reply_keys();
    }

    /// Fetches what the packets that will open flows are going to touch, for all of them at once:
    /// launched one after the other, each would wait for its own dozen cache misses.
    #[cold]
    #[inline(never)]
    fn anticipate(&mut self, packets: &[PacketBox], lanes: &[Lane], unknown: usize) {
        let openings = || {
            packets
                .iter()
                .zip(lanes)
                .filter(|(_, lane)| lane.candidate == NOT_FOUND && lane.refused.is_none())
        };
        self.core.flows.prefetch_free(unknown);
        let mut groups = ArrayVec::<u64, BURST>::new();
        for (packet, lane) in openings() {
            if self.core.flows.affinity() != Affinity::Flow {
                let hash = self
                    .core
                    .flows
                    .groups()
                    .hash(self.core.group_of(packet, lane.key));
                self.core.flows.groups().prefetch(hash);
                groups.push(hash);
            }
            for function in &self.core.runner.stages().functions {
                function.prefetch(packet);
            }
        }
        for hash in groups {
            self.core.flows.groups().prefetch_candidate(hash);
        }
    }

    /// Parses a packet unless the switch did, and computes its key.
    #[inline(always)]
    fn identify(&mut self, packet: &mut PacketBox) -> Result<Lane, DropReason> {
        if !packet.has(packet_flag::PARSED) {
            wire::parse(packet)?;
            self.core.runner.plan().judge_icmp_error(packet);
            if fragments::is_astray(packet) {
                return Err(DropReason::FragmentUnknown);
            }
        }
        let (mut key, way) = FlowKey::of(packet).ok_or(DropReason::FrameMalformed)?;
        if packet.hairpins() > 0 {
            key = key.turned(way);
        }
        let hash = key.hash(&self.core.settings.seed);
        Ok(Lane {
            key,
            hash,
            way,
            candidate: NOT_FOUND,
            refused: None,
        })
    }

    /// Gives a packet to its flow's actor, launching one for a new flow.
    #[inline(always)]
    fn meet(
        &mut self,
        packet: PacketBox,
        lane: &Lane,
        link: usize,
        begin: &impl Fn(&mut Core, u32, PacketBox, Direction),
    ) {
        if lane.candidate != NOT_FOUND && self.core.flows.has_key(lane.candidate, &lane.key) {
            let header = self.core.flows.header(lane.candidate >> 1);
            let is_second = lane.candidate & 1 != 0;
            if header.is_active_under(self.core.runner.current_generation())
                && header.deadline > self.core.now
                && (!is_second || header.flags & flag::REPLY_KEY != 0)
            {
                let direction = header.direction(lane.candidate & 1, lane.way);
                return begin(&mut self.core, lane.candidate >> 1, packet, direction);
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
        let Some(value) = self.core.find(lane.hash, &lane.key) else {
            self.core.make_room(link);
            return self.launch(packet, lane, link);
        };
        let actor = value >> 1;
        let header = self.core.flows.header(actor);
        if header.phase != Phase::Active {
            if let Some(packet) = self.moves.divert_known(&mut self.core, actor, packet, link) {
                self.core
                    .runner
                    .queue_behind(actor, packet, &self.core.flows, &mut self.core.out);
            }
            return;
        }
        if header.deadline <= self.core.now {
            self.core.out.observe(&packet, Event::Met(Meeting::Expired));
            return self.renew(packet, actor, lane, link);
        }
        let direction = header.direction(value & 1, lane.way);
        if self.core.runner.is_of_before(actor, &self.core.flows) {
            // As when it is renewed: if it ends here, it has not seen this packet.
            self.core.out.uncount_consumed(link);
            let goes_on = self.core.goes_on(actor);
            self.core.out.count_consumed(link);
            if !goes_on {
                return self.launch(packet, lane, link);
            }
        }
        self.core.out.observe(&packet, Event::Met(Meeting::Found));
        self.core.begin_seen(actor, packet, direction);
    }

    /// A flow whose time was over before this packet came, though the runtime had not looked: the
    /// packet opens it again.
    #[cold]
    fn renew(&mut self, packet: PacketBox, actor: u32, lane: &Lane, link: usize) {
        // A flow that ends here has not seen this packet.
        self.core.out.uncount_consumed(link);
        self.core.end_actor(actor);
        self.core.out.count_consumed(link);
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
        // Consumed long ago, by whichever link: a group that ends now has seen it. The lease of
        // that time may be over.
        if self.core.is_unleased() {
            return self.core.out.drop_packet(packet, DropReason::NoLease);
        }
        match self.core.find(hash, &key) {
            Some(value) if self.core.flows.header(value >> 1).phase != Phase::Active => {
                if let Some(packet) = self.moves.divert_known(&mut self.core, value >> 1, packet, link) {
                    self.core
                        .runner
                        .queue_behind(value >> 1, packet, &self.core.flows, &mut self.core.out);
                }
            }
            Some(value)
                if !self.core.runner.is_of_before(value >> 1, &self.core.flows)
                    || self.core.goes_on(value >> 1) =>
            {
                let direction = self.core.flows.header(value >> 1).direction(value & 1, way);
                self.core.begin_seen(value >> 1, packet, direction);
            }
            _ => self.launch(
                packet,
                &Lane {
                    key,
                    hash,
                    way,
                    candidate: NOT_FOUND,
                    refused: None,
                },
                link,
            ),
        }
    }

    /// Makes an actor for a new flow and runs its first packet.
    #[cold]
    #[inline(never)]
    fn launch(&mut self, packet: PacketBox, lane: &Lane, link: usize) {
        let packet = match self.moves.is_idle() {
            true => packet,
            false => match self.moves.divert(&mut self.core, packet, &lane.key, link) {
                Some(packet) => packet,
                None => return,
            },
        };
        if !self.moves.barred.is_empty() && self.is_barred(&packet, lane.key) {
            // A route that was chosen since ends by that; a route that the move has turned does
            // not.
            return self.decline(packet, lane, DropReason::PeerGone);
        }
        let Some(chain) = self.core.runner.plan().classify(&packet) else {
            return self.decline(packet, lane, DropReason::NoChain);
        };
        // The room that a move has reserved is not for others.
        let Some(actor) = self.core.flows.launch(lane.hash, self.core.reserved) else {
            if wire::planted::is("full_table_lets_pass") {
                let mut packet = packet;
                let exit = packet.side().opposite();
                packet.set_exit(exit);
                return self.core.out.pass(packet);
            }
            return self.decline(packet, lane, DropReason::FlowsFull);
        };
        let group = match self.enter_group(&packet, lane.key) {
            Ok(group) => group,
            Err(reason) => {
                self.core.flows.unlaunch(lane.hash, actor);
                return self.decline(packet, lane, reason);
            }
        };
        self.core.flows.join_group(actor, group);
        let generation = self.core.runner.current_generation();
        let header = self.core.flows.header_mut(actor);
        header.key = lane.key;
        header.generation = generation;
        header.chain = chain;
        if lane.way == Orientation::Along {
            header.flags |= flag::OPENING_ALONG;
        }
        if packet.side() == Side::Outside {
            header.flags |= flag::FROM_OUTSIDE;
        }
        self.core.flows_opened += 1;
        self.core.observe_beginning(actor);
        self.core
            .runner
            .create(actor, &mut self.core.flows, &mut self.core.out);
        self.core.out.observe(&packet, Event::Met(Meeting::Launched));
        self.core.begin_seen(actor, packet, Direction::Opening);
    }

    /// Whether a packet does not begin its group here: the group's source is gone, and it may go on
    /// elsewhere.
    #[cold]
    fn is_barred(&mut self, packet: &PacketBox, key: FlowKey) -> bool {
        let group = self.core.group_of(packet, key);
        if self.core.has_group(&group) {
            self.moves.barred.admit(&group);
        }
        self.moves.barred.has(&group, self.core.now)
    }

    /// Drops the packets of a burst, each counted as consumed; a packet that would have begun a
    /// group says that it has not.
    #[cold]
    pub(super) fn refuse_all(&mut self, link: usize, burst: &mut Burst, reason: DropReason) {
        for mut packet in burst.drain(..) {
            let lane = self.identify(&mut packet);
            self.core.out.count_consumed(link);
            match lane {
                Ok(lane) if !self.is_known(&packet, &lane) => self.decline(packet, &lane, reason),
                _ => self.core.out.drop_packet(packet, reason),
            }
        }
    }

    /// Whether a flow is there, or its group is on its way: the end of either ends the route.
    fn is_known(&mut self, packet: &PacketBox, lane: &Lane) -> bool {
        let group = self.core.group_of(packet, lane.key);
        self.moves.is_moving(&group, &self.core.settings.seed)
            || self.core.find(lane.hash, &lane.key).is_some()
    }

    /// Refuses a packet that would open a flow. The switch made a route for it, which no other word
    /// would end.
    #[cold]
    fn decline(&mut self, packet: PacketBox, lane: &Lane, reason: DropReason) {
        let group = self.core.group_of(&packet, lane.key);
        if self.core.flows.affinity() == Affinity::Flow || !self.core.flows.groups().has(group) {
            self.core.tell_idle(group);
        }
        self.core.out.drop_packet(packet, reason);
    }

    /// Whether a group may begin with a packet.
    fn may_begin(&self, packet: &PacketBox, group: &GroupKey) -> bool {
        self.core.is_routed_here(packet, group) && !self.core.sessions.is_beginning()
    }

    /// The group of a new flow, made if it is the first and may be; or why not.
    fn enter_group(&mut self, packet: &PacketBox, key: FlowKey) -> Result<u32, DropReason> {
        let is_recovering = self.keeper.has_work();
        if self.core.flows.affinity() == Affinity::Flow {
            if is_recovering {
                self.core.disclaim(GroupKey::of_flow(key));
            }
            return Ok(NO_GROUP);
        }
        let group = self.core.group_of(packet, key);
        let entered = match self.core.flows.enter_group(group) {
            None if self.may_begin(packet, &group) && self.core.evict_group() => {
                self.core.flows.enter_group(group)
            }
            entered => entered,
        };
        let (index, new) = entered.ok_or(DropReason::GroupsFull)?;
        if new {
            if !self.core.is_routed_here(packet, &group) {
                self.core.flows.abandon_group(index);
                return Err(DropReason::RouteOver);
            }
            if self.core.sessions.is_beginning() {
                self.core.flows.abandon_group(index);
                return Err(DropReason::TooEarly);
            }
            if is_recovering {
                self.core.disclaim(group);
            }
            let state = self.core.flows.groups().state(index);
            self.core.runner.create_group(state);
        }
        Ok(index)
    }
}
