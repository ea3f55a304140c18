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
//! Of two inside hosts that talk with each other neither is known to have begun: the smaller endpoint's group has the flow
//! (`flag::LATERAL`), so that both directions are one.
//!
//! | file | what |
//! |---|---|
//! | `ports` | when ports are read, back-pressure, time |
//! | `hearing` | which words of runtimes are heard, and what is bounded |
//! | `routes` | how routes begin and end, so that a group is never at two runtimes and no route stays |
//! | `moves` | groups that move from one runtime to another |
//! | `choice` | how a runtime is chosen |
//! | `sessions` | runtimes and switches that come and go |
//! | `watching` | what whoever watches sees here ([`crate::watch`]) |
//!
//! Invariants: a group has one route, at its home; every packet received is passed to a runtime or peer, or is a counted
//! drop; links are read before what ports bring is routed.
//!
//! Fragments go to the home of their datagram first, which gives them their ports ([`crate::fragments`]), and then to that of
//! their group.
//!
//! Not here: chains, flow state.

mod choice;
mod hearing;
mod links;
mod moves;
mod ports;
mod routes;
mod sessions;
mod watching;

pub use choice::Policy;

use crate::chain::Plan;
use crate::env::{BURST, Burst, Port, give_or_keep};
use crate::fragments::{self, Tracker};
use crate::group::GroupKey;
use crate::owners::BlockOwners;
use crate::stats::{DropReason, Drops, Named, SwitchStats};
use crate::table::Table;
use crate::watch::MaybeEye;
use crate::watch::trace::Event;
use crate::worker::owner_by_plan;
use alloc::collections::VecDeque;
use alloc::string::String;
use alloc::vec::Vec;
use arrayvec::ArrayVec;
use nf::{Affinity, Endpoint, Prefix, Side};
use ports::{PortSlot, Progress};
use routes::Route;
use wire::memory::{Region, prefetch};
use wire::packet::{Kind, flag as packet_flag};
use wire::{FlowKey, HashSeed, PacketBox, Pool};

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
    /// With `packet_clock`: how far, in nanoseconds, packets that are taken up may be ahead of a time at which all earlier ones,
    /// and their answers, were done with. `u64::MAX` where no port answers.
    pub lead_max: u64,
    /// Whether every port of the cluster waits for its reader: then packets from peers and turned ones wait for room in a
    /// runtime's queue, too, instead of being dropped.
    pub patient: bool,
    /// The time at the start, in nanoseconds.
    pub now: u64,
}

struct RuntimeLink<L> {
    link: L,
    /// What is on it when a port is read was put there before the packets that come of it: see [`Switch::catch_up`].
    is_ring: bool,
    burst: Burst,
    /// With less room than this its queue counts as full: two bursts, or all of a queue that does not hold as many, so that its ports are read at all.
    enough: usize,
    /// What is to be asked, behind the packets sent so far.
    questions: Option<PacketBox>,
    /// Up to which round it is to be told that all has been heard.
    heard: Option<u64>,
    /// Packets sent in this session, counted as the runtime counts what it consumes.
    sent: u64,
    sent_total: u64,
    groups: u64,
    /// Who is there ([`Port::session`]), and how many were before: that of a route says whose it is.
    session: u64,
    life: u16,
    /// Gets no new groups.
    is_leaving: bool,
    /// Has said what it has.
    has_told: bool,
    /// Has not been told yet which blocks are in use, and gets no new groups before.
    is_new: bool,
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
    /// Second keys that runtimes announced and that got no route, with the runtimes and why.
    refused: ArrayVec<(GroupKey, usize, DropReason), REFUSED>,
    /// Routes to ask about.
    doubtful: VecDeque<u32>,
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
    words_refused: u64,
    turning: wire::PacketList,
    progress: Progress,
    /// Open while somebody watches.
    eye: MaybeEye,
    moves: moves::Moves,
    sessions: sessions::Sessions,
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

/// How many bursts of a link are taken at a time, so that links keep up with ports.
const LINK_BURSTS: usize = 8;
/// How often, at least, a ring is read on until it is empty.
const CATCH_UP: usize = 256;
const NOBODY: u32 = u32::MAX;
/// Second keys that were refused and of whose flows' end nothing was heard yet, at most.
const REFUSED: usize = 64;

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
        let mut switch = Switch {
            affinity: plan.affinity(),
            now: settings.now,
            ports: ports
                .into_iter()
                .map(|(port, rule)| PortSlot::new(port, rule))
                .collect(),
            runtimes: runtimes
                .into_iter()
                .map(|link| RuntimeLink {
                    enough: link.room().min(2 * crate::env::BURST),
                    is_ring: !link.is_apart(),
                    session: link.session(),
                    life: 0,
                    is_leaving: false,
                    // It begins with this switch.
                    has_told: link.session() != 0,
                    is_new: false,
                    link,
                    burst: Burst::new(),
                    questions: None,
                    heard: None,
                    sent: 0,
                    sent_total: 0,
                    groups: 0,
                })
                .collect(),
            peers,
            table: Table::new(memory(Table::region_length(routes)), routes),
            routes: Vec::with_capacity(routes),
            free: Vec::with_capacity(routes),
            refused: ArrayVec::new(),
            doubtful: VecDeque::with_capacity(routes),
            second_keys: 0,
            blocks: BlockOwners::new(
                match plan.affinity() {
                    Affinity::Flow => 0,
                    _ => routes,
                },
                settings.seed,
            ),
            fragments: Tracker::new(settings.fragments_max as usize, settings.seed),
            maglev: Vec::new(),
            next: 0,
            pool,
            drops: Drops::default(),
            reading: true,
            received: 0,
            sent: 0,
            turned: 0,
            stalls: 0,
            handed_over: 0,
            words_refused: 0,
            turning: wire::PacketList::new(),
            progress: Progress::new(),
            eye: None,
            moves: moves::Moves::default(),
            sessions: sessions::Sessions::new(if plan.affinity() == Affinity::Flow {
                0
            } else {
                routes
            }),
            plan,
            settings,
        };
        let most = hearing::words_max(switch.runtimes.len(), switch.blocks.most());
        switch.moves = moves::Moves::new(switch.runtimes.len(), most);
        switch.see_who_is_there();
        switch
    }

    /// Another configuration is in force at the runtimes: from now on, what switches know of it is this plan's. Its affinity is the
    /// same.
    pub fn change(&mut self, plan: Plan) {
        debug_assert_eq!(plan.affinity(), self.affinity);
        self.plan = plan;
    }

    /// Has each port answer for these addresses, by the ports' order, and for no others ([`Port::claim`]).
    pub fn claim(&mut self, addresses: &[Vec<Prefix>]) -> Result<(), crate::AttachError> {
        let mut ports = self.ports.iter_mut().zip(addresses);
        ports.try_for_each(|(slot, addresses)| slot.port.claim(addresses))
    }

    /// Does some of everything there is to do; answers how many packets it touched. `now` is in nanoseconds.
    pub fn step(&mut self, now: u64) -> usize {
        self.now = self.now.max(now);
        let mut work = 0;
        for slot in &mut self.ports {
            slot.port.settle(&mut self.pool);
        }
        if self.fragments.expire(self.now) {
            work += self.drop_fragments();
        }
        for index in 0..self.runtimes.len() {
            work += self.read_runtime(index);
            self.answer_moves();
        }
        work += self.forget_routes() + self.tell_blocks();
        if self.is_too_early() {
            self.transmit_all();
            return work;
        }
        for index in 0..self.peers.len() {
            work += self.read_peer(index);
        }
        self.transmit_all();
        work += self.take_turned();
        if work > 0 {
            self.progress.quiet = 0;
        }
        work += self.read_ports();
        work += self.ask();
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
            let is_over = self.runtimes[runtime].link.session() != self.runtimes[runtime].session;
            if burst.is_empty() && !is_over {
                break;
            }
            count += burst.len();
            self.take_from_runtime(runtime, &mut burst);
            if is_over {
                self.session_over(runtime);
                return count + 1;
            }
        }
        count
    }

    /// Between reading a port, or a peer, and routing what it brought, where another switch of this process may have sent what that answers: whatever was said before that
    /// left is on the rings now, though it was not when this step read them. Other links' ends are asked whether they have heard (`worker::unheard`).
    fn catch_up(&mut self) {
        for index in 0..self.runtimes.len() {
            // No more than a ring can hold.
            let mut bursts = self.pool.total() / BURST + CATCH_UP;
            while self.runtimes[index].is_ring && bursts > 0 && self.read_runtime(index) > 0 {
                bursts -= 1;
                self.answer_moves();
            }
        }
    }

    fn read_peer(&mut self, index: usize) -> usize {
        if self.peers[index].is_none() || !self.may_route() {
            return 0;
        }
        let mut burst = Burst::new();
        if let Some(peer) = &mut self.peers[index] {
            peer.receive(self.now, &mut self.pool, &mut burst);
        }
        let count = burst.len();
        if count > 0 {
            self.catch_up();
            self.take_from_peer(&mut burst);
        }
        count
    }

    /// Processed packets leave, messages change routes, buffers come home.
    fn take_from_runtime(&mut self, runtime: usize, burst: &mut Burst) {
        for packet in burst.drain(..) {
            if !self.refused.is_empty()
                && packet.kind() == Kind::Data
                && let Some(reason) = self.refusal(runtime, &packet)
            {
                self.drop_packet(packet, reason);
                continue;
            }
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
                Kind::Empty => self.send_home(packet),
                Kind::Message => {
                    // Switches tell each other nothing.
                    self.refuse_word();
                    self.send_home(packet);
                }
            }
        }
        self.route(&mut packets, true);
    }

    /// A fragment goes to where its datagram is followed; from there it and those that waited for it go on. Appends to
    /// `packets`, and routes them when there are more than a burst.
    #[cold]
    fn follow(&mut self, packet: PacketBox, packets: &mut Burst) {
        let mut home = self.fragments.home(&packet, self.settings.switches);
        if wire::planted::is("fragments_not_taken_home") {
            home = self.settings.switch;
        }
        if home != self.settings.switch {
            return self.hand_over(packet, home, false);
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
        self.see(&packet, Event::Turned);
        self.turning.push(packet);
    }

    fn take_turned(&mut self) -> usize {
        let mut count = 0;
        while !self.turning.is_empty() && self.may_route() {
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

    fn transmit_all(&mut self) {
        self.transmit_ports();
        for (index, runtime) in self.runtimes.iter_mut().enumerate() {
            if !runtime.burst.is_empty() {
                runtime
                    .link
                    .transmit(self.now, &mut self.pool, &mut runtime.burst);
            }
            if runtime.heard.is_some() && !self.moves.has_unsaid(index) {
                runtime.say_heard(&mut self.pool);
            }
            if let Some(frame) = runtime.questions.take() {
                let mut burst = Burst::new();
                burst.push(frame);
                runtime.link.transmit(self.now, &mut self.pool, &mut burst);
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
        if let Some(eye) = &mut self.eye {
            eye.dropped(&packet, self.now, None, reason.name());
        }
        self.send_home(packet);
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
        if self.sessions.is_forgetting() {
            self.weed(lanes);
        }
        for lane in lanes.iter_mut() {
            if let Some(index) = self.table.candidate(lane.hash) {
                lane.candidate = index;
                prefetch(self.routes.as_ptr().wrapping_add(index as usize));
            }
        }
        if self.eye.is_some() {
            return self.forward_watched(&mut packets, lanes, at_home);
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
            self.owner(end, protocol)
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

    /// The group that has an outside endpoint: by a block that it claimed, or by configuration.
    #[inline(always)]
    fn owner(&self, end: Endpoint, protocol: u8) -> Option<GroupKey> {
        self.blocks
            .owner(end)
            .or_else(|| owner_by_plan(&self.plan, self.affinity, end, protocol))
    }

    #[inline(always)]
    fn forward(&mut self, mut packet: PacketBox, lane: &Lane, at_home: bool) {
        if let Some(second) = lane.second
            && let Some(route) = self.find(&second)
        {
            packet.set_hash(second.hash(&self.settings.seed));
            return self.send_to(packet, route);
        }
        // By which group it was routed: a runtime that would put it into another must know.
        packet.set_hash(lane.hash);
        let home = home_of(lane.hash, self.settings.switches);
        if home != self.settings.switch {
            return self.hand_over(packet, home, at_home);
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

    #[inline(always)]
    fn send_to(&mut self, packet: PacketBox, route: u32) {
        let route = &mut self.routes[route as usize];
        let runtime = &mut self.runtimes[usize::from(route.runtime)];
        if runtime.burst.is_full() {
            runtime
                .link
                .transmit(self.now, &mut self.pool, &mut runtime.burst);
        }
        if runtime.burst.len() >= runtime.link.room() && !wire::planted::is("ring_room_ignored") {
            return self.drop_packet(packet, DropReason::RuntimeBusy);
        }
        runtime.sent += 1;
        runtime.sent_total += 1;
        route.set_last_sent(runtime.sent);
        runtime.burst.push(packet);
    }

    /// Hands a packet to its group's home; `at_home` if a peer took that to be here.
    #[cold]
    fn hand_over(&mut self, packet: PacketBox, home: u8, at_home: bool) {
        if at_home {
            // Its block of ports changes hands: the peer has heard of it and this switch has not, or the other way round. A route
            // made here would be one too many, and nobody would end it.
            return self.drop_packet(packet, DropReason::RouteOver);
        }
        let mut burst = Burst::new();
        match self.peers.get_mut(usize::from(home)) {
            Some(Some(peer)) if peer.session() == 0 => self.drop_packet(packet, DropReason::HomeAbsent),
            // What waits in a link to another process keeps its buffer: two switches without any would wait for each other.
            Some(Some(peer)) if peer.room() == 0 && !self.settings.patient => {
                self.drop_packet(packet, DropReason::HomeBusy);
            }
            Some(Some(peer)) => {
                self.handed_over += 1;
                burst.push(packet);
                peer.transmit(self.now, &mut self.pool, &mut burst);
            }
            _ => self.drop_packet(packet, DropReason::NoRuntime),
        }
    }

    /// Reads no more from its ports, but those that answer: the beginning of a graceful stop.
    pub fn stop_reading(&mut self) {
        self.reading = false;
    }

    /// Whether every port has brought all it ever will and nothing waits to be turned or asked.
    pub fn finished(&self) -> bool {
        self.ports
            .iter()
            .all(|slot| slot.is_empty() && (slot.port.finished() || (!self.reading && !slot.port.answers())))
            && self.turning.is_empty()
            && self.doubtful.is_empty()
            && self.moves.is_empty()
    }

    /// When a port has its next packet, if one knows.
    pub fn next_at(&self) -> Option<u64> {
        self.ports.iter().filter_map(|slot| slot.port.next_at()).min()
    }

    /// By which descriptors its ports say that there is something to receive; `None` if one of them does not.
    pub fn wakes_by(&self) -> Option<Vec<i32>> {
        let mut all = Vec::new();
        for slot in &self.ports {
            all.extend(slot.port.wakes_by()?);
        }
        Some(all)
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

    /// How many of the pool's buffers its ports keep ready for reception.
    pub fn reserved(&self) -> usize {
        self.ports.iter().map(|slot| slot.port.reserved()).sum()
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
            words_refused: self.words_refused + self.moves.refused(),
        }
    }
}
