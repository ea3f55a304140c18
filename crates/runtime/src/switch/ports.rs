//! The switch's own ports: which packets are read when, and what leaves by them.
//!
//! # Theory of operation
//!
//! *Back-pressure.* A port that can wait is not read while a runtime's queue is nearly full, nor while packets wait to leave by
//! a port of this switch; each time is a *stall*. What a waiting port has no room for stays here, in order, until it has.
//! No more can wait than there are buffers, and a switch without buffers reads nothing: so what a reflector cannot take in the
//! end holds a generator at another switch, and nothing is lost. A port that cannot wait is given everything, and counts what it
//! loses; it is read as long as *some* runtime has room. So one runtime's full queue holds nobody else's packets up (what is for
//! it is a counted drop), and when all are full, what would be dropped behind parsing and routing stays in the device's queue, is
//! taken up when there is room, and if that does not come in time is lost there for less. Where every port of the cluster can wait, what a peer hands over, and what is turned, waits for the runtime's queue, too.
//!
//! ```text
//!   generator ─► switch 0 ─► runtimes ─► switch 1 ─► [ waiting ] ─► reflector ─► switch 1 ─► runtimes ─► …
//!        ▲ no buffer left: not read          │ no room: its buffers stay here
//! ```
//!
//! The port that answers is read on meanwhile, for its room comes of that.
//!
//! *Reading by time.* Where packets carry the time, ports are read a burst ahead, and packets are taken up in the order of their
//! times, whatever port they come from. A packet that is late by its time is answered by whoever answers with the time of the
//! packet; so nothing is taken up that is more than [`Settings::lead_max`](super::Settings::lead_max) later than a time at which
//! everything earlier was done with, answers included. That everything is done with shows in the pool: all buffers are home. A
//! function may hold packets, or wait for a time that only later packets bring: after [`PATIENCE`] steps in which
//! nothing moves, what is out counts as held, and time goes on.
//!
//! Invariants: packets of a port are taken up, and leave, in order; a port that answers is never held up by time or by what waits
//! to leave.
//!
//! Not here: routes.

use super::{SideRule, Switch};
use crate::env::{BURST, Burst, Port};
use crate::fragments;
use crate::stats::DropReason;
use nf::Side;
use wire::packet::flag as packet_flag;
use wire::{PacketBox, PacketList};

pub(super) struct PortSlot<P> {
    pub port: P,
    rule: SideRule,
    pub burst: Burst,
    /// What the port had no room for, oldest first.
    waiting: PacketList,
    /// What was read and is not yet taken up, oldest last.
    ahead: Burst,
}

/// How far reading by time has got.
pub(super) struct Progress {
    /// A time at which everything earlier was done with.
    done: u64,
    /// Buffers out at that time: packets held.
    held: usize,
    /// Steps since in which nothing moved.
    pub quiet: u32,
}

/// Steps without a movement after which packets that are out count as held.
pub const PATIENCE: u32 = 1000;

impl Progress {
    pub fn new() -> Self {
        Progress {
            done: 0,
            held: 0,
            quiet: 0,
        }
    }
}

impl<P> PortSlot<P> {
    pub fn new(port: P, rule: SideRule) -> Self {
        PortSlot {
            port,
            rule,
            burst: Burst::new(),
            waiting: PacketList::new(),
            ahead: Burst::new(),
        }
    }

    /// Whether nothing waits to leave or to be taken up.
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty() && self.ahead.is_empty()
    }
}

impl<P: Port, L: Port> Switch<P, L> {
    /// Sends a processed packet by the port of its side.
    #[inline]
    pub(super) fn send(&mut self, packet: PacketBox) {
        let port = match packet.egress() {
            None => self.settings.egress[packet.exit() as usize],
            Some(port) => Some(port / self.settings.switches),
        };
        let Some((port, slot)) = port.and_then(|port| Some((port, self.ports.get_mut(usize::from(port))?)))
        else {
            return self.drop_packet(packet, DropReason::NoEgress);
        };
        slot.burst.push(packet);
        if slot.burst.is_full() {
            self.transmit(usize::from(port));
        }
    }

    /// Sends what a port has room for.
    pub(super) fn transmit(&mut self, port: usize) {
        let slot = &mut self.ports[port];
        if !slot.waiting.is_empty() || (slot.port.room() < slot.burst.len() && slot.port.waits()) {
            return self.transmit_as_room_is(port);
        }
        self.sent += slot.burst.len() as u64;
        if let Some(eye) = &mut self.eye {
            let number = port as u8 * self.settings.switches + self.settings.switch;
            eye.goes(&slot.burst, number, self.now);
        }
        slot.port.transmit(self.now, &mut self.pool, &mut slot.burst);
        // What is left is done with, and somebody else's.
        for packet in core::mem::take(&mut self.ports[port].burst) {
            self.send_home(packet);
        }
    }

    /// [`Switch::transmit`] where packets wait, or must.
    #[cold]
    fn transmit_as_room_is(&mut self, port: usize) {
        let slot = &mut self.ports[port];
        for packet in slot.burst.drain(..) {
            slot.waiting.push(packet);
        }
        loop {
            let slot = &mut self.ports[port];
            let mut room = slot.port.room().min(BURST);
            while room > 0
                && let Some(packet) = slot.waiting.pop()
            {
                slot.burst.push(packet);
                room -= 1;
            }
            if slot.burst.is_empty() {
                return;
            }
            self.sent += slot.burst.len() as u64;
            if let Some(eye) = &mut self.eye {
                let number = port as u8 * self.settings.switches + self.settings.switch;
                eye.goes(&slot.burst, number, self.now);
            }
            slot.port.transmit(self.now, &mut self.pool, &mut slot.burst);
            for packet in core::mem::take(&mut self.ports[port].burst) {
                self.send_home(packet);
            }
        }
    }

    pub(super) fn transmit_ports(&mut self) {
        for port in 0..self.ports.len() {
            let slot = &self.ports[port];
            if !slot.burst.is_empty() || !slot.waiting.is_empty() {
                self.transmit(port);
            }
        }
    }

    /// Reads some of what ports have; answers how many packets.
    pub(super) fn read_ports(&mut self) -> usize {
        if self.settings.packet_clock {
            return self.read_by_time();
        }
        (0..self.ports.len()).map(|port| self.read_port(port)).sum()
    }

    fn read_port(&mut self, index: usize) -> usize {
        if !self.may_read(index) {
            return 0;
        }
        let mut burst = Burst::new();
        let aside = self.set_aside();
        let slot = &mut self.ports[index];
        slot.port.receive(self.now, &mut self.pool, &mut burst);
        self.take_back(aside);
        let count = burst.len();
        if count > 0 {
            if self.settings.switches > 1 {
                self.catch_up();
            }
            self.take_in(index, &mut burst);
        }
        count
    }

    /// Takes a buffer for each runtime out of the pool while a port fills a burst, where there are so few that the port might take the last: runtimes keep packets
    /// until they hear from this switch, which needs a buffer to say it.
    #[inline]
    fn set_aside(&mut self) -> PacketList {
        let mut aside = PacketList::new();
        if self.pool.free() < BURST + self.runtimes.len() {
            while aside.len() < self.runtimes.len()
                && let Some(buffer) = self.pool.take()
            {
                aside.push(buffer);
            }
        }
        aside
    }

    #[inline]
    fn take_back(&mut self, mut aside: PacketList) {
        while let Some(buffer) = aside.pop() {
            self.pool.give(buffer);
        }
    }

    /// Whether a port is to be read now.
    fn may_read(&mut self, index: usize) -> bool {
        let port = &self.ports[index].port;
        if !self.reading && !port.answers() {
            return false;
        }
        if port.waits() && (!self.runtimes_have_room() || (!port.answers() && self.is_held_up())) {
            self.stalls += 1;
            return false;
        }
        if !port.waits() && !port.answers() && self.runtimes_are_full() {
            self.stalls += 1;
            return false;
        }
        true
    }

    /// Whether what others brought is to be routed now.
    pub(super) fn may_route(&mut self) -> bool {
        let may = !self.settings.patient || self.runtimes_have_room();
        self.stalls += u64::from(!may);
        may
    }

    fn runtimes_have_room(&self) -> bool {
        self.runtimes
            .iter()
            .all(|runtime| runtime.session == 0 || runtime.link.room() >= runtime.enough)
    }

    /// Whether no packet could be handed to anybody.
    fn runtimes_are_full(&self) -> bool {
        // Where nobody is, what comes is a counted drop: nobody will have room.
        let mut there = self.runtimes.iter().filter(|runtime| runtime.session != 0);
        !self.sessions.available.is_empty() && there.all(|runtime| runtime.link.room() < runtime.enough)
    }

    /// Whether packets wait for room at a port.
    fn is_held_up(&self) -> bool {
        self.ports.iter().any(|slot| !slot.waiting.is_empty())
    }

    /// Parses what a port brought, says from which side it is, and routes it.
    fn take_in(&mut self, index: usize, burst: &mut Burst) {
        self.received += burst.len() as u64;
        if let Some(eye) = &mut self.eye {
            eye.came(burst, index as u8 * self.settings.switches + self.settings.switch);
        }
        let by_address = matches!(self.ports[index].rule, SideRule::BySource(_));
        let mut packets = Burst::new();
        for mut packet in burst.drain(..) {
            packet.set_port(index as u8 * self.settings.switches + self.settings.switch);
            packet.clear_turns();
            if self.settings.packet_clock {
                self.now = self.now.max(packet.timestamp());
            }
            if let Err(error) = wire::parse(&mut packet) {
                self.drop_packet(packet, error.into());
                continue;
            }
            let side = self.ports[index].rule.side(&packet);
            packet.set_side(side);
            self.plan.judge_icmp_error(&mut packet);
            if by_address && (side == Side::Inside || packet.has(packet_flag::ICMP_ERROR)) {
                self.judge_lateral(index, &mut packet);
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
    fn judge_lateral(&self, index: usize, packet: &mut PacketBox) {
        let SideRule::BySource(prefixes) = &self.ports[index].rule else {
            return;
        };
        let (source, destination, protocol) = match wire::parse::quoted(packet) {
            Some(quoted) => (quoted.source, quoted.destination, quoted.protocol),
            None => (packet.source(), packet.destination(), packet.protocol()),
        };
        let is_inside = |end: nf::Endpoint| {
            // An endpoint that a group has for the outside is outside, wherever its address is.
            prefixes.iter().any(|prefix| prefix.contains(end.addr)) && self.owner(end, protocol).is_none()
        };
        if is_inside(destination) && is_inside(source) {
            packet.set_flags(packet_flag::LATERAL);
        }
    }

    fn read_by_time(&mut self) -> usize {
        let mut taken = 0;
        let most = self.ports.len() * BURST;
        while taken < most {
            for port in 0..self.ports.len() {
                self.read_ahead(port);
            }
            let Some((index, time)) = self.earliest() else {
                break;
            };
            if !self.ports[index].port.answers() && !self.may_go_on_to(time) {
                break;
            }
            if !self.runtimes_have_room() {
                self.stalls += 1;
                break;
            }
            let others = self.ports.iter().enumerate().filter(|(other, _)| *other != index);
            let until = others
                .filter_map(|(_, slot)| slot.ahead.last().map(|packet| packet.timestamp()))
                .fold(
                    self.progress.done.saturating_add(self.settings.lead_max),
                    u64::min,
                )
                .max(time);
            let mut burst = Burst::new();
            let ahead = &mut self.ports[index].ahead;
            while ahead.last().is_some_and(|packet| packet.timestamp() <= until)
                && let Some(packet) = ahead.pop()
            {
                burst.push(packet);
            }
            taken += burst.len();
            self.take_in(index, &mut burst);
        }
        if taken > 0 {
            self.progress.quiet = 0;
        }
        taken
    }

    fn read_ahead(&mut self, index: usize) {
        if self.ports[index].ahead.is_empty() && self.may_read(index) {
            let aside = self.set_aside();
            let slot = &mut self.ports[index];
            slot.port.receive(self.now, &mut self.pool, &mut slot.ahead);
            slot.ahead.reverse();
            self.take_back(aside);
        }
    }

    /// Which port has the packet of the earliest time, and that time; of equals the first.
    fn earliest(&self) -> Option<(usize, u64)> {
        let heads = self.ports.iter().enumerate();
        heads
            .filter_map(|(index, slot)| Some((index, slot.ahead.last()?.timestamp())))
            .min_by_key(|(_, time)| *time)
    }

    /// Whether a packet of this time may be taken up: all that is much earlier is done with.
    fn may_go_on_to(&mut self, time: u64) -> bool {
        if time <= self.progress.done.saturating_add(self.settings.lead_max) {
            return true;
        }
        let here = self.ports.iter().flat_map(|slot| &slot.ahead);
        let here = here
            .filter(|packet| packet.origin() == self.pool.origin())
            .count();
        // Fragments that wait for their first one wait for later packets.
        let out = (self.pool.total() - self.pool.free() - here).saturating_sub(self.fragments.held());
        if out <= self.progress.held || self.progress.quiet >= PATIENCE {
            self.progress = Progress {
                done: time,
                held: out,
                quiet: 0,
            };
            return true;
        }
        self.progress.quiet += 1;
        false
    }
}
