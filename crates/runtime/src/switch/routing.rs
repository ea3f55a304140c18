//! A packet's way from a port to a runtime, or to another switch.
//!
//! ```text
//!   take_in: parse, side ─► follow: fragments ─► route: identify a burst, prefetch ─► forward ─► send_by │ hand_over │ choose
//! ```
//!
//! A burst's group keys are found first, then its table lines and routes are prefetched, then each
//! packet goes. A traced packet goes the same way, with a look before and behind.
//!
//! Not here: links and ports (`outbox`, `ports`), routes (`directory`).

use super::{Local, Switch, home_of};
use crate::env::{BURST, Burst, Port};
use crate::fragments;
use crate::group::GroupKey;
use crate::stats::DropReason;
use crate::watch;
use crate::watch::trace::{Event, How};
use crate::worker::owner_by_plan;
use arrayvec::ArrayVec;
use nf::{Endpoint, Side};
use wire::packet::Kind;
use wire::packet::flag as packet_flag;
use wire::{FlowKey, PacketBox};

const NO_ROUTE: u32 = u32::MAX;

#[derive(Clone, Copy)]
pub(super) struct Lane {
    pub group: GroupKey,
    pub reply: Option<GroupKey>,
    pub hash: u64,
    candidate: u32,
}

impl<P: Port, L: Port> Switch<P, L> {
    fn drop_packet(&mut self, packet: PacketBox, reason: DropReason) {
        self.outbox.drop_packet(packet, reason, &mut self.local);
    }

    /// Parses what a port brought, says from which side it is, and routes it.
    pub(super) fn take_in(&mut self, index: usize, burst: Burst) {
        let number = self.local.port_number(index);
        if let Some(tap) = &mut self.local.tap {
            tap.came(&burst, number);
        }
        let by_address = self.ports.inside(index).is_some();
        let mut packets = Burst::new();
        for mut packet in burst {
            packet.set_port(number);
            packet.clear_hairpins();
            if self.settings.packet_clock {
                self.local.now = self.local.now.max(packet.timestamp());
            }
            if let Err(error) = wire::parse(&mut packet) {
                self.drop_packet(packet, error.into());
                continue;
            }
            let side = self.ports.side(index, &packet);
            packet.set_side(side);
            self.plan.judge_icmp_error(&mut packet);
            if by_address && (side == Side::Inside || packet.has(packet_flag::ICMP_ERROR)) {
                self.judge_inside_to_inside(index, &mut packet);
            }
            if fragments::is_astray(&packet) {
                self.follow(packet, &mut packets);
                continue;
            }
            if packets.is_full() {
                self.route(&mut packets, false);
            }
            packets.push(packet);
        }
        self.route(&mut packets, false);
    }

    /// Marks a packet between two inside hosts, or an error about one.
    #[inline]
    pub(super) fn judge_inside_to_inside(&self, index: usize, packet: &mut PacketBox) {
        let Some(prefixes) = self.ports.inside(index) else {
            return;
        };
        let (source, destination, protocol) = match wire::parse::quoted(packet) {
            Some(quoted) => (quoted.source, quoted.destination, quoted.protocol),
            None => (packet.source(), packet.destination(), packet.protocol()),
        };
        let is_inside = |end: Endpoint| {
            // An endpoint that a group has for the outside is outside, wherever its address is.
            prefixes.iter().any(|prefix| prefix.contains(end.addr)) && self.owner(end, protocol).is_none()
        };
        if is_inside(destination) && is_inside(source) {
            packet.set_flags(packet_flag::INSIDE_TO_INSIDE);
        }
    }

    /// Routes what another switch has handed over.
    pub(super) fn take_from_switch(&mut self, switch: usize, burst: Burst) {
        let mut packets = Burst::new();
        let is_leased = self.is_leased() && !self.presence.is_waiting();
        for packet in burst {
            match packet.kind() {
                Kind::Data if !is_leased => self.drop_packet(packet, DropReason::NoLease),
                Kind::Data if fragments::is_astray(&packet) => {
                    self.route(&mut packets, true);
                    // It may be the first packet that tells this switch the time.
                    if self.settings.packet_clock {
                        self.local.now = self.local.now.max(packet.timestamp());
                    }
                    let mut followed = Burst::new();
                    self.follow(packet, &mut followed);
                    self.route(&mut followed, false);
                }
                Kind::Data => packets.push(packet),
                Kind::Empty => self.outbox.give_home(packet, &mut self.local),
                // Of leases, and nothing else.
                Kind::Message => self.handle_of_switch(switch, packet),
            }
        }
        self.route(&mut packets, true);
    }

    /// A fragment goes to where its datagram is followed; from there it and the fragments that
    /// waited for it go on. Appends to `packets`, and routes them when there are more than a burst.
    #[cold]
    fn follow(&mut self, packet: PacketBox, packets: &mut Burst) {
        let mut home = self.fragments.home(&packet, self.settings.switches);
        if wire::planted::is("fragments_not_taken_home") {
            home = self.settings.switch;
        }
        if home != self.settings.switch {
            return self.hand_over(packet, home, false);
        }
        let mut next = self.fragments.take(packet, self.local.now);
        while let Some(packet) = next {
            if packets.is_full() {
                self.route(packets, false);
            }
            packets.push(packet);
            next = self.fragments.released();
        }
        self.drop_fragments();
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

    /// A packet goes back in from outside, once.
    pub(super) fn turn(&mut self, mut packet: PacketBox) {
        if packet.hairpins() > 0 {
            return self.drop_packet(packet, DropReason::HairpinLoop);
        }
        crate::worker::turn_around(&mut packet);
        self.turned += 1;
        self.local.note(&packet, Event::Turned);
        self.turning.push(packet);
    }

    /// Routes turned packets.
    pub(super) fn take_turned(&mut self) -> usize {
        let mut count = 0;
        while !self.turning.is_empty() && self.ports.may_route(&self.outbox) {
            let mut burst = Burst::new();
            while !burst.is_full() {
                match self.turning.pop() {
                    Some(packet) => burst.push(packet),
                    None => break,
                }
            }
            count += burst.len();
            self.route(&mut burst, false);
        }
        count
    }

    /// Sends packets to the runtimes that have their groups; `at_home` if another switch has found
    /// that this is their home.
    pub(super) fn route(&mut self, burst: &mut Burst, at_home: bool) {
        let mut lanes = ArrayVec::<Lane, BURST>::new();
        let mut packets = Burst::new();
        for packet in burst.drain(..) {
            match self.identify(&packet) {
                Some(lane) => {
                    self.directory.prefetch(lane.hash);
                    lanes.push(lane);
                    packets.push(packet);
                }
                None => self.drop_packet(packet, DropReason::FrameMalformed),
            }
        }
        if self.directory.is_forgetting() {
            self.weed(&lanes);
        }
        for lane in &mut lanes {
            if let Some(index) = self.directory.candidate(lane.hash) {
                lane.candidate = index;
            }
        }
        if self.local.tap.is_some() {
            return self.forward_watched(&mut packets, &lanes, at_home);
        }
        for (packet, lane) in packets.drain(..).zip(&lanes) {
            self.forward(packet, lane, at_home);
        }
    }

    #[inline(always)]
    pub(super) fn identify(&self, packet: &PacketBox) -> Option<Lane> {
        let (mut key, way) = FlowKey::of(packet)?;
        if packet.hairpins() > 0 {
            key = key.turned(way);
        }
        let group = GroupKey::of(self.affinity, packet, key, |end, protocol| {
            self.owner(end, protocol)
        });
        // Where groups are coarser than flows, a reply key that was announced goes before.
        let reply = self.directory.has_reply_keys().then(|| GroupKey::of_flow(key));
        let hash = self.directory.hash(&group);
        Some(Lane {
            group,
            reply,
            hash,
            candidate: NO_ROUTE,
        })
    }

    /// The group that has an outside endpoint: by a block that it claimed, or by configuration.
    #[inline(always)]
    fn owner(&self, end: Endpoint, protocol: u8) -> Option<GroupKey> {
        let claimed = self.directory.blocks.owner(end);
        claimed.or_else(|| owner_by_plan(&self.plan, self.affinity, end, protocol))
    }

    /// Before a burst is routed: routes that it would find end if they lead to no runtime.
    #[cold]
    fn weed(&mut self, lanes: &[Lane]) {
        for lane in lanes {
            for key in lane.reply.into_iter().chain([lane.group]) {
                self.directory.find_live(&key);
            }
        }
    }

    #[inline(always)]
    fn forward(&mut self, mut packet: PacketBox, lane: &Lane, at_home: bool) {
        if let Some(reply) = &lane.reply
            && let Some(route) = self.directory.find(reply)
        {
            packet.set_hash(self.directory.hash(reply));
            return self.send_by(packet, route);
        }
        // By which group it was routed: a runtime that would put it into another must know.
        packet.set_hash(lane.hash);
        let home = home_of(lane.hash, self.settings.switches);
        if home != self.settings.switch {
            return self.hand_over(packet, home, at_home);
        }
        if lane.candidate != NO_ROUTE && self.directory.has_key(lane.candidate, &lane.group) {
            return self.send_by(packet, lane.candidate);
        }
        match self.directory.find_hashed(lane.hash, &lane.group) {
            Some(route) => self.send_by(packet, route),
            None => self.choose(packet, lane),
        }
    }

    #[inline(always)]
    fn send_by(&mut self, packet: PacketBox, route: u32) {
        let runtime = self.directory.runtime(route);
        if self.recovery.is_active() {
            // Packets before it may wait for another runtime, from which its group was on its way.
            let awaited = self.recovery.awaits(&packet);
            if let Some(failed) = awaited.or_else(|| self.directory.suspended(route)) {
                return self.keep_for_recovery(packet, failed);
            }
        }
        match self.outbox.push_packet(runtime, packet, &mut self.local) {
            Ok(()) => self.directory.count_sent(route),
            Err(packet) => self.drop_packet(packet, DropReason::RuntimeBusy),
        }
    }

    /// A packet for a runtime that has failed waits.
    #[cold]
    fn keep_for_recovery(&mut self, packet: PacketBox, failed: usize) {
        if let Err((packet, reason)) = self.recovery.keep(failed, packet, &self.local.pool) {
            self.drop_packet(packet, reason);
        }
    }

    /// Chooses a runtime for a new group and remembers it.
    #[cold]
    #[inline(never)]
    fn choose(&mut self, packet: PacketBox, lane: &Lane) {
        let directory = &mut self.directory;
        let chosen = self.choice.choose(lane.hash, |runtime| directory.groups(runtime));
        let Some(runtime) = chosen else {
            return self.drop_packet(packet, DropReason::NoRuntime);
        };
        // A route for a packet that never arrives would never end.
        if !self.outbox.has_room(runtime) {
            return self.drop_packet(packet, DropReason::RuntimeBusy);
        }
        match directory.choose(lane.group, runtime) {
            Some(route) => self.send_by(packet, route),
            None => self.drop_packet(packet, DropReason::RoutesFull),
        }
    }

    /// Hands a packet to its group's home; `at_home` if another switch took that to be here.
    #[cold]
    fn hand_over(&mut self, packet: PacketBox, home: u8, at_home: bool) {
        if at_home {
            // Its block of ports changes hands: the other switch has read of it and this one has
            // not, or the other way round. A route made here would be one too many, and would never
            // end.
            return self.drop_packet(packet, DropReason::RouteOver);
        }
        let is_patient = self.settings.patient;
        match self.outbox.hand_over(home, packet, is_patient, &mut self.local) {
            Ok(()) => self.handed_over += 1,
            Err((packet, reason)) => self.drop_packet(packet, reason),
        }
    }

    /// [`Switch::forward`], with a look at each packet.
    #[cold]
    #[inline(never)]
    fn forward_watched(&mut self, packets: &mut Burst, lanes: &[Lane], at_home: bool) {
        for (mut packet, lane) in packets.drain(..).zip(lanes) {
            let Local { tap, now, .. } = &mut self.local;
            if packet.hairpins() == 0
                && let Some((key, _)) = FlowKey::of(&packet)
                && let Some(tap) = tap
            {
                let new = tap.recognise(&mut packet, &key);
                if new != 0 {
                    let event = Event::came(&packet);
                    tap.note_for(new, &packet, *now, event);
                }
            }
            if packet.has(packet_flag::WATCHED) {
                self.forward_marked(packet, lane, at_home);
            } else {
                self.forward(packet, lane, at_home);
            }
        }
    }

    fn forward_marked(&mut self, packet: PacketBox, lane: &Lane, at_home: bool) {
        let by_reply = lane.reply.and_then(|reply| self.directory.find(&reply));
        let home = home_of(lane.hash, self.settings.switches);
        if by_reply.is_none() && home != self.settings.switch {
            if !at_home {
                self.local.note(&packet, Event::HandedOver { home });
            }
            return self.forward(packet, lane, at_home);
        }
        let before = by_reply.or_else(|| self.directory.find(&lane.group));
        // Its name and its owner: it is gone behind the next line, and cannot be at work elsewhere
        // before this switch has transmitted.
        let marks = packet.flags() & packet_flag::WATCHED;
        let name = watch::name_of(&packet);
        let dropped = self.local.drops.total();
        self.forward(packet, lane, at_home);
        if self.local.drops.total() != dropped {
            return;
        }
        let Some(route) = before.or_else(|| self.directory.find(&lane.group)) else {
            return;
        };
        let runtime = self.directory.runtime(route) as u16;
        let how = match (by_reply, before) {
            (Some(_), _) => How::ReplyKey,
            (None, Some(_)) => How::Route,
            (None, None) => How::Chosen(self.settings.policy),
        };
        if let Some(tap) = &mut self.local.tap {
            tap.note_named(marks, name, self.local.now, Event::Routed { runtime, how });
        }
    }
}
