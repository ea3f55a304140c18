//! The switch: spreads groups of flows over runtimes, and keeps each where it is (NFVactor III-C, NFActor 3.2).
//!
//! # Theory of operation
//!
//! ```text
//!            ports                                        links to runtimes
//!   in ────► receive ─► parse ─► group key ─► home? ─► route ─────────────► runtime r
//!                                               │ no      │ none: choose by policy
//!                                               ▼         ▼
//!                                          peer switch   new route
//!   out ◄─── transmit ◄──────────────────────────────── processed packets
//!   in  ◄─── (turned around) ◄──────────────────────────┘
//! ```
//!
//! A route says which runtime has a group. With several switches each group has one *home*, by hash, which alone chooses
//! and remembers; a packet that came in elsewhere is handed to it. A packet from outside for a translated address finds its
//! group by the block of ports, which the runtime announced before anything left by it ([`crate::message`]).
//!
//! A link's queue is bounded. A port that can wait (a capture) is not read while a runtime's queue is nearly full, and that
//! is counted as a stall; what a port that cannot wait brings for a full queue is a counted drop.
//!
//! A route is forgotten when the runtime says that the group is idle *and* nothing has been sent for it since
//! (`message::Message::Idle`), so a group is never at two runtimes.
//!
//! Invariants: a group has one route, at its home; every packet received is passed to a runtime or peer, or is a counted
//! drop; links are read before ports.
//!
//! Fragments go to the home of their datagram first, which gives them their ports ([`crate::fragments`]), and then to that of
//! their group.
//!
//! Not here: chains, flow state.

use crate::chain::Plan;
use crate::env::{BURST, Burst, Port, give_or_keep};
use crate::fragments::{self, Tracker};
use crate::group::{BlockOwners, GroupKey};
use crate::message::Message;
use crate::stats::{DropReason, Drops, Named, SwitchStats};
use crate::table::Table;
use crate::worker::owner_by_plan;
use alloc::string::String;
use alloc::vec::Vec;
use nf::{Affinity, Prefix, Side};
use wire::memory::{Region, prefetch};
use wire::packet::{Kind, flag as packet_flag};
use wire::{FlowKey, HashSeed, PacketBox, Pool};

/// How a runtime is chosen for a new group.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Policy {
    /// The one with the fewest groups (NFVactor III-C: the smallest workload).
    #[default]
    LeastLoaded,
    /// One after the other (NFActor 3.2).
    RoundRobin,
    /// By the group's hash over a Maglev table: all switches choose alike, and few groups change when runtimes do.
    Maglev,
}

/// Which side a port's packets come from.
#[derive(Clone, Debug)]
pub enum SideRule {
    /// Always this one.
    Fixed(Side),
    /// Inside if the source is in one of the prefixes, else outside: for captures of both directions.
    BySource(Vec<Prefix>),
}

impl SideRule {
    #[inline]
    fn side(&self, packet: &wire::Packet) -> Side {
        match self {
            SideRule::Fixed(side) => *side,
            SideRule::BySource(prefixes) => {
                let source = packet.source_addr();
                if prefixes.iter().any(|prefix| prefix.contains(source)) {
                    Side::Inside
                } else {
                    Side::Outside
                }
            }
        }
    }
}

/// What a switch is made with.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Its number, which is also its pool's. Of the cluster's ports, numbered in the order of the configuration, it has every
    /// `switches`-th: the port at `index` has the number `index * switches + switch`.
    pub switch: u8,
    /// How many switches there are.
    pub switches: u8,
    /// Seed of the tables; the same for all workers of a cluster.
    pub seed: HashSeed,
    /// The most routes.
    pub routes_max: u32,
    /// How to choose.
    pub policy: Policy,
    /// Datagrams whose fragments are followed at once.
    pub fragments_max: u32,
    /// Which of its ports packets for inside and for outside leave by, if it is its business.
    pub egress: [Option<u8>; 2],
    /// Take the packets' own timestamps for the time (a replay), as far as they are ahead of what `step` is told.
    pub packet_clock: bool,
    /// The time at the start, in nanoseconds.
    pub now: u64,
}

#[derive(Clone, Copy)]
#[repr(C, align(64))]
struct Route {
    key: GroupKey,
    /// Where what was last sent for the group stands in the link's count.
    last_sent: u32,
    runtime: u16,
}

struct RuntimeLink<L> {
    link: L,
    burst: Burst,
    /// Packets sent, counted as the runtime counts what it consumes.
    sent: u32,
    sent_total: u64,
    groups: u64,
}

struct PortSlot<P> {
    port: P,
    rule: SideRule,
    burst: Burst,
}

/// One switch over ports `P` and links `L`.
pub struct Switch<P: Port, L: Port> {
    settings: Settings,
    plan: Plan,
    affinity: Affinity,
    now: u64,
    ports: Vec<PortSlot<P>>,
    runtimes: Vec<RuntimeLink<L>>,
    peers: Vec<Option<L>>,
    table: Table,
    routes: Vec<Route>,
    free: Vec<u32>,
    second_keys: usize,
    blocks: BlockOwners,
    fragments: Tracker,
    maglev: Vec<u16>,
    next: usize,
    pool: Pool,
    drops: Drops,
    reading: bool,
    received: u64,
    sent: u64,
    turned: u64,
    stalls: u64,
    handed_over: u64,
    turning: wire::PacketList,
}

/// The home switch of a group: by the upper half of its hash, since the lower chooses buckets.
#[inline]
pub fn home_of(hash: u64, switches: u8) -> u8 {
    if switches <= 1 {
        0
    } else {
        ((hash >> 32) as u32 % u32::from(switches)) as u8
    }
}

/// Entries of the Maglev table: a prime well above the number of runtimes (Maglev 3.4).
const MAGLEV_ENTRIES: usize = 4093;
/// How many bursts of a link are taken at a time, so that links keep up with ports.
const LINK_BURSTS: usize = 8;
const NOBODY: u32 = u32::MAX;

#[derive(Clone, Copy)]
struct Lane {
    group: GroupKey,
    second: Option<GroupKey>,
    hash: u64,
    candidate: u32,
}

impl<P: Port, L: Port> Switch<P, L> {
    /// Makes a switch. `runtimes` are its links in the order of the runtimes' numbers, `peers` those to the other switches
    /// by theirs (`None` for itself).
    pub fn new(
        settings: Settings,
        plan: Plan,
        ports: Vec<(P, SideRule)>,
        runtimes: Vec<L>,
        peers: Vec<Option<L>>,
        pool: Pool,
        mut memory: impl FnMut(usize) -> Region,
    ) -> Self {
        let routes = settings.routes_max as usize;
        let maglev = match settings.policy {
            Policy::Maglev => maglev_table(runtimes.len()),
            _ => Vec::new(),
        };
        Switch {
            affinity: plan.affinity(),
            now: settings.now,
            ports: ports
                .into_iter()
                .map(|(port, rule)| PortSlot {
                    port,
                    rule,
                    burst: Burst::new(),
                })
                .collect(),
            runtimes: runtimes
                .into_iter()
                .map(|link| RuntimeLink {
                    link,
                    burst: Burst::new(),
                    sent: 0,
                    sent_total: 0,
                    groups: 0,
                })
                .collect(),
            peers,
            table: Table::new(memory(Table::region_length(routes)), routes),
            routes: Vec::with_capacity(routes),
            free: Vec::with_capacity(routes),
            second_keys: 0,
            blocks: BlockOwners::new(if plan.affinity() == Affinity::Flow {
                0
            } else {
                routes
            }),
            fragments: Tracker::new(settings.fragments_max as usize, settings.seed),
            maglev,
            next: 0,
            pool,
            drops: Drops::default(),
            reading: true,
            received: 0,
            sent: 0,
            turned: 0,
            stalls: 0,
            handed_over: 0,
            turning: wire::PacketList::new(),
            plan,
            settings,
        }
    }

    /// Does some of everything there is to do; answers how many packets it touched. `now` is in nanoseconds.
    pub fn step(&mut self, now: u64) -> usize {
        self.now = self.now.max(now);
        let mut work = 0;
        if self.fragments.expire(self.now) {
            work += self.drop_fragments();
        }
        for index in 0..self.runtimes.len() {
            work += self.read_runtime(index);
        }
        for index in 0..self.peers.len() {
            work += self.read_peer(index);
        }
        self.transmit_all();
        work += self.take_turned();
        for port in 0..self.ports.len() {
            work += self.read_port(port);
        }
        self.transmit_all();
        work
    }

    fn read_runtime(&mut self, runtime: usize) -> usize {
        let mut count = 0;
        for _ in 0..LINK_BURSTS {
            let mut burst = Burst::new();
            self.runtimes[runtime]
                .link
                .receive(self.now, &mut self.pool, &mut burst);
            if burst.is_empty() {
                break;
            }
            count += burst.len();
            self.take_from_runtime(runtime, &mut burst);
        }
        count
    }

    fn read_peer(&mut self, index: usize) -> usize {
        let mut burst = Burst::new();
        if let Some(peer) = &mut self.peers[index] {
            peer.receive(self.now, &mut self.pool, &mut burst);
        }
        let count = burst.len();
        if count > 0 {
            self.take_from_peer(&mut burst);
        }
        count
    }

    /// Processed packets leave, messages change routes, buffers come home.
    fn take_from_runtime(&mut self, runtime: usize, burst: &mut Burst) {
        for packet in burst.drain(..) {
            match packet.kind() {
                Kind::Data if packet.has(packet_flag::TURN_AROUND) => self.turn(packet),
                Kind::Data => self.send(packet),
                Kind::Message => {
                    self.hear(runtime, &packet);
                    self.send_home(packet);
                }
                Kind::Empty => self.send_home(packet),
            }
        }
    }

    fn take_from_peer(&mut self, burst: &mut Burst) {
        let mut packets = Burst::new();
        for packet in burst.drain(..) {
            match packet.kind() {
                Kind::Data if fragments::is_astray(&packet) => {
                    self.route(&mut packets, true);
                    // It may be the first packet that tells this switch the time.
                    if self.settings.packet_clock {
                        self.now = self.now.max(packet.timestamp());
                    }
                    let mut followed = Burst::new();
                    self.follow(packet, &mut followed);
                    self.route(&mut followed, false);
                }
                Kind::Data => packets.push(packet),
                Kind::Empty | Kind::Message => self.send_home(packet),
            }
        }
        self.route(&mut packets, true);
    }

    /// A fragment goes to where its datagram is followed; from there it and those that waited for it go on. Appends to
    /// `packets`, and routes them when there are more than a burst.
    #[cold]
    fn follow(&mut self, packet: PacketBox, packets: &mut Burst) {
        let home = self.fragments.home(&packet, self.settings.switches);
        if home != self.settings.switch {
            return self.hand_over(packet, home);
        }
        let mut next = self.fragments.take(packet, self.now);
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
    fn drop_fragments(&mut self) -> usize {
        let mut count = 0;
        while let Some((packet, reason)) = self.fragments.refused() {
            self.drop_packet(packet, reason);
            count += 1;
        }
        count
    }

    /// Gives up what is held for fragments that will not come: nothing more comes in anywhere.
    pub fn finish(&mut self) {
        self.fragments.finish();
        self.drop_fragments();
        self.transmit_all();
    }

    fn turn(&mut self, mut packet: PacketBox) {
        if packet.turns() > 0 {
            return self.drop_packet(packet, DropReason::HairpinLoop);
        }
        crate::worker::turn_around(&mut packet);
        self.turned += 1;
        self.turning.push(packet);
    }

    fn take_turned(&mut self) -> usize {
        let mut count = 0;
        while !self.turning.is_empty() {
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

    /// Sends a processed packet by the port of its side.
    #[inline]
    fn send(&mut self, packet: PacketBox) {
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

    fn transmit(&mut self, port: usize) {
        let slot = &mut self.ports[port];
        self.sent += slot.burst.len() as u64;
        slot.port.transmit(self.now, &mut self.pool, &mut slot.burst);
        // What is left is done with, and somebody else's.
        for packet in core::mem::take(&mut self.ports[port].burst) {
            self.send_home(packet);
        }
    }

    fn transmit_all(&mut self) {
        for port in 0..self.ports.len() {
            if !self.ports[port].burst.is_empty() {
                self.transmit(port);
            }
        }
        for runtime in &mut self.runtimes {
            if !runtime.burst.is_empty() {
                runtime
                    .link
                    .transmit(self.now, &mut self.pool, &mut runtime.burst);
            }
        }
    }

    /// Gives a buffer back to the pool it came from: the own one, a peer's or a runtime's.
    fn send_home(&mut self, packet: PacketBox) {
        let Some(mut packet) = give_or_keep(&mut self.pool, packet) else {
            return;
        };
        packet.set_kind(Kind::Empty);
        let origin = usize::from(packet.origin());
        let mut burst = Burst::new();
        match origin.checked_sub(usize::from(self.settings.switches)) {
            Some(runtime) => {
                let link = &mut self.runtimes[runtime];
                if link.burst.is_full() {
                    link.link.transmit(self.now, &mut self.pool, &mut link.burst);
                }
                link.burst.push(packet);
            }
            None => {
                burst.push(packet);
                if let Some(peer) = &mut self.peers[origin] {
                    peer.transmit(self.now, &mut self.pool, &mut burst);
                }
            }
        }
    }

    #[cold]
    fn drop_packet(&mut self, packet: PacketBox, reason: DropReason) {
        self.drops.count(reason);
        self.send_home(packet);
    }

    fn read_port(&mut self, index: usize) -> usize {
        let slot = &mut self.ports[index];
        if !self.reading && !slot.port.answers() {
            return 0;
        }
        if slot.port.waits()
            && self
                .runtimes
                .iter()
                .any(|runtime| runtime.link.room() < 2 * BURST)
        {
            self.stalls += 1;
            return 0;
        }
        let mut burst = Burst::new();
        slot.port.receive(self.now, &mut self.pool, &mut burst);
        let count = burst.len();
        if count == 0 {
            return 0;
        }
        self.received += count as u64;
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
        count
    }

    /// Sends packets to the runtimes that have their groups; `at_home` if a peer has found that this is their home.
    fn route(&mut self, burst: &mut Burst, at_home: bool) {
        let mut lanes = [const { core::mem::MaybeUninit::<Lane>::uninit() }; BURST];
        let mut packets = Burst::new();
        for packet in burst.drain(..) {
            match self.identify(&packet) {
                Some(lane) => {
                    self.table.prefetch(lane.hash);
                    lanes[packets.len()].write(lane);
                    packets.push(packet);
                }
                None => self.drop_packet(packet, DropReason::FrameMalformed),
            }
        }
        // SAFETY: the first `packets.len()` lanes were written just above.
        let lanes: &mut [Lane] =
            unsafe { core::slice::from_raw_parts_mut(lanes.as_mut_ptr().cast::<Lane>(), packets.len()) };
        for lane in lanes.iter_mut() {
            if let Some(index) = self.table.candidate(lane.hash) {
                lane.candidate = index;
                prefetch(self.routes.as_ptr().wrapping_add(index as usize));
            }
        }
        for (packet, lane) in packets.drain(..).zip(lanes.iter()) {
            self.forward(packet, lane, at_home);
        }
    }

    #[inline(always)]
    fn identify(&self, packet: &PacketBox) -> Option<Lane> {
        let (mut key, way) = FlowKey::of(packet)?;
        if packet.turns() > 0 {
            key = key.turned(way);
        }
        let group = GroupKey::of(self.affinity, packet, key, |end, protocol| {
            self.blocks
                .owner(end)
                .or_else(|| owner_by_plan(&self.plan, self.affinity, end, protocol))
        });
        // Where groups are coarser than flows, a second key that was announced goes before.
        let second = (self.second_keys > 0).then(|| GroupKey::of_flow(key));
        let hash = group.hash(&self.settings.seed);
        Some(Lane {
            group,
            second,
            hash,
            candidate: NOBODY,
        })
    }

    #[inline(always)]
    fn forward(&mut self, packet: PacketBox, lane: &Lane, at_home: bool) {
        if let Some(second) = lane.second
            && let Some(route) = self.find(&second)
        {
            return self.send_to(packet, route);
        }
        let home = home_of(lane.hash, self.settings.switches);
        if home != self.settings.switch && !at_home {
            return self.hand_over(packet, home);
        }
        if lane.candidate != NOBODY && self.routes[lane.candidate as usize].key == lane.group {
            return self.send_to(packet, lane.candidate);
        }
        let routes = &self.routes;
        match self
            .table
            .find(lane.hash, |index| routes[index as usize].key == lane.group)
        {
            Some(route) => self.send_to(packet, route),
            None => self.choose(packet, lane),
        }
    }

    fn find(&self, group: &GroupKey) -> Option<u32> {
        self.table.find(group.hash(&self.settings.seed), |index| {
            self.routes[index as usize].key == *group
        })
    }

    #[inline(always)]
    fn send_to(&mut self, packet: PacketBox, route: u32) {
        let route = &mut self.routes[route as usize];
        let runtime = &mut self.runtimes[usize::from(route.runtime)];
        if runtime.burst.is_full() {
            runtime
                .link
                .transmit(self.now, &mut self.pool, &mut runtime.burst);
        }
        if runtime.burst.len() >= runtime.link.room() {
            return self.drop_packet(packet, DropReason::RuntimeBusy);
        }
        runtime.sent = runtime.sent.wrapping_add(1);
        runtime.sent_total += 1;
        route.last_sent = runtime.sent;
        runtime.burst.push(packet);
    }

    #[cold]
    fn hand_over(&mut self, packet: PacketBox, home: u8) {
        let mut burst = Burst::new();
        match self.peers.get_mut(usize::from(home)) {
            Some(Some(peer)) => {
                self.handed_over += 1;
                burst.push(packet);
                peer.transmit(self.now, &mut self.pool, &mut burst);
            }
            _ => self.drop_packet(packet, DropReason::NoRuntime),
        }
    }

    /// Chooses a runtime for a new group and remembers it.
    #[cold]
    #[inline(never)]
    fn choose(&mut self, packet: PacketBox, lane: &Lane) {
        let runtime = match self.settings.policy {
            Policy::LeastLoaded => (0..self.runtimes.len()).min_by_key(|index| self.runtimes[*index].groups),
            Policy::RoundRobin => {
                self.next = if self.next + 1 >= self.runtimes.len() {
                    0
                } else {
                    self.next + 1
                };
                (!self.runtimes.is_empty()).then_some(self.next)
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
            Some(route) => self.send_to(packet, route),
            None => self.drop_packet(packet, DropReason::RoutesFull),
        }
    }

    fn add_route(&mut self, key: GroupKey, runtime: usize) -> Option<u32> {
        let route = Route {
            key,
            last_sent: self.runtimes[runtime].sent,
            runtime: runtime as u16,
        };
        if self.free.is_empty() && self.routes.len() == self.settings.routes_max as usize {
            return None;
        }
        let index = self.free.last().copied().unwrap_or(self.routes.len() as u32);
        self.table.insert(key.hash(&self.settings.seed), index).ok()?;
        match self.free.pop() {
            Some(index) => self.routes[index as usize] = route,
            None => self.routes.push(route),
        }
        self.runtimes[runtime].groups += 1;
        if key.is_second_key(self.affinity) {
            self.second_keys += 1;
        }
        Some(index)
    }

    /// Acts on what a runtime says.
    #[cold]
    fn hear(&mut self, runtime: usize, frame: &PacketBox) {
        let mut bytes = frame.frame();
        while let Some((message, rest)) = Message::read(bytes) {
            bytes = rest;
            match message {
                Message::BlockClaimed(block, group) => {
                    self.blocks.claim(block, group);
                }
                Message::BlockReleased(block) => self.blocks.release(block),
                Message::Routed(group) => {
                    // Whoever has it already keeps it: its flow is older.
                    if self.find(&group).is_none() && self.add_route(group, runtime).is_none() {
                        self.drops.count(DropReason::RoutesFull);
                    }
                }
                Message::Idle(group, consumed) => self.forget(runtime, group, consumed),
            }
        }
    }

    fn forget(&mut self, runtime: usize, group: GroupKey, consumed: u32) {
        let Some(index) = self.find(&group) else { return };
        let route = self.routes[index as usize];
        // Sent since: the runtime has begun the group anew, or will.
        if usize::from(route.runtime) != runtime || (consumed.wrapping_sub(route.last_sent) as i32) < 0 {
            return;
        }
        self.table.remove(group.hash(&self.settings.seed), index);
        self.free.push(index);
        self.runtimes[runtime].groups -= 1;
        if group.is_second_key(self.affinity) {
            self.second_keys -= 1;
        }
    }

    /// Reads no more from its ports, but those that answer: the beginning of a graceful stop.
    pub fn stop_reading(&mut self) {
        self.reading = false;
    }

    /// Whether every port has brought all it ever will and nothing waits to be turned.
    pub fn finished(&self) -> bool {
        self.ports
            .iter()
            .all(|slot| slot.port.finished() || (!self.reading && !slot.port.answers()))
            && self.turning.is_empty()
    }

    /// When a port has its next packet, if one knows.
    pub fn next_at(&self) -> Option<u64> {
        self.ports.iter().filter_map(|slot| slot.port.next_at()).min()
    }

    /// Writes out what ports buffer.
    pub fn flush(&mut self) {
        for slot in &mut self.ports {
            slot.port.flush();
        }
    }

    /// The ports, for tests and drivers.
    pub fn port_mut(&mut self, index: usize) -> &mut P {
        &mut self.ports[index].port
    }

    /// The ports' own counters.
    pub fn port_counters(&self) -> Vec<crate::PortCounters> {
        self.ports.iter().map(|slot| slot.port.counters()).collect()
    }

    /// The links to runtimes, for tests and drivers.
    pub fn link_mut(&mut self, runtime: usize) -> &mut L {
        &mut self.runtimes[runtime].link
    }

    /// The pool.
    pub fn pool(&self) -> &Pool {
        &self.pool
    }

    /// The numbers so far.
    pub fn stats(&self) -> SwitchStats {
        let mut dropped: Vec<Named> = DropReason::ALL
            .iter()
            .filter(|reason| self.drops.of(**reason) > 0)
            .map(|reason| Named {
                function: String::new(),
                name: reason.name(),
                count: self.drops.of(*reason),
            })
            .collect();
        let unsent: u64 = self
            .ports
            .iter()
            .map(|slot| slot.port.counters().unsent_packets)
            .sum();
        if unsent > 0 {
            dropped.push(Named {
                function: String::new(),
                name: DropReason::PortUnsent.name(),
                count: unsent,
            });
        }
        SwitchStats {
            received: self.received,
            sent: self.sent - unsent,
            turned: self.turned,
            held: self.fragments.held() as u64,
            dropped,
            routes: self.table.len() as u64,
            second_keys: self.second_keys as u64,
            blocks: self.blocks.len() as u64,
            groups: self.runtimes.iter().map(|runtime| runtime.groups).collect(),
            sent_to: self.runtimes.iter().map(|runtime| runtime.sent_total).collect(),
            stalls: self.stalls,
            handed_over: self.handed_over,
        }
    }
}

/// The look-up table of Maglev (NSDI 2016, 3.4) over `backends`: each has a permutation of the entries, and they take turns.
fn maglev_table(backends: usize) -> Vec<u16> {
    if backends == 0 {
        return Vec::new();
    }
    let mix = |n: u64, salt: u64| {
        let product = u128::from(n ^ salt) * 0x9e37_79b9_7f4a_7c15;
        (product >> 64) as u64 ^ product as u64
    };
    let size = MAGLEV_ENTRIES as u64;
    let steps: Vec<(u64, u64)> = (1..=backends as u64)
        .map(|n| {
            (
                mix(n, 0x51_7cc1_b727_2202) % size,
                1 + mix(n, 0x2545_f491_4f6c_dd1d) % (size - 1),
            )
        })
        .collect();
    let mut tried = alloc::vec![0_u64; backends];
    let mut table = alloc::vec![u16::MAX; MAGLEV_ENTRIES];
    let mut filled = 0;
    loop {
        for (backend, (offset, skip)) in steps.iter().enumerate() {
            loop {
                let entry = ((offset + tried[backend] * skip) % size) as usize;
                tried[backend] += 1;
                if table[entry] == u16::MAX {
                    table[entry] = backend as u16;
                    filled += 1;
                    break;
                }
            }
            if filled == MAGLEV_ENTRIES {
                return table;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn maglev_shares_are_even_and_changes_are_small() {
        let (four, five) = (maglev_table(4), maglev_table(5));
        for backend in 0..4_u16 {
            let share = four.iter().filter(|b| **b == backend).count();
            assert!(share.abs_diff(MAGLEV_ENTRIES / 4) <= 1, "{share}");
        }
        let moved = four.iter().zip(&five).filter(|(a, b)| a != b).count();
        assert!(
            moved < MAGLEV_ENTRIES * 2 / 5,
            "{moved} of {MAGLEV_ENTRIES} moved for a fifth runtime"
        );
    }
}
