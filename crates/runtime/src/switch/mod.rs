//! The switch: spreads groups of flows over runtimes, and keeps each where it is (NFVactor III-C,
//! NFActor 3.2).
//!
//! # Theory of operation
//!
//! ```text
//!            ports                                        outbox
//!   in ────► receive ─► parse ─► group key ─► home? ─► route ─────────────► runtime r
//!                                               │ no      │ none: choose by policy
//!                                               ▼         ▼
//!                                         other switch  new route
//!   out ◄─── transmit ◄──────────────────────────────── processed packets
//!   in  ◄─── (turned around) ◄──────────────────────────┘
//! ```
//!
//! A route says which runtime has a group. With several switches each group has one *home*, by
//! hash, which alone chooses and remembers; a packet that came in elsewhere is handed to it. A
//! packet from outside for a translated address finds its group by the block of ports, which the
//! runtime announced before anything left by it ([`crate::message`]).
//!
//! Of two inside hosts that talk with each other neither is known to have begun: the smaller
//! endpoint's group has the flow (`flag::INSIDE_TO_INSIDE`), so that both directions are one.
//!
//! A switch is made of parts. A part is handed the parts of the others that it needs, never the
//! switch; it puts its messages to runtimes into the outbox.
//!
//! ```text
//!   step, handle ─► routing ─┬─► ports ───────────┐
//!                            ├─► directory, presence ─► outbox ─► Local: time, buffers, counted drops, tap
//!                            └─► choice, fragments
//! ```
//!
//! | file | content |
//! |---|---|
//! | `routing` | a packet's way from a port to a runtime or another switch |
//! | `ports` | when ports are read, back-pressure, time |
//! | `directory` | how routes begin, move and end, so that a group is never at two runtimes and no route stays; blocks of ports |
//! | `presence` | runtimes and switches that come and go |
//! | `recovery` | runtimes that have failed and whose flows go on elsewhere |
//! | `outbox` | packets, messages and empty buffers to other workers |
//! | `choice` | how a runtime is chosen |
//! | `placing` | by the load of runtimes, how many groups each counts for besides those that it has |
//! | `leases` | the lease by which it acts, those it grants, which runtimes are members |
//! | `messages` | which messages of runtimes are handled, and their bounds |
//! | `driving` | for the thread that runs the switch: links, figures, taps |
//!
//! Invariants: a group has one route, at its home; every packet received is passed to a runtime or
//! switch, or is a counted drop; links are read before what ports bring is routed.
//!
//! Fragments go to the home of their datagram first, which gives them their ports
//! ([`crate::fragments`]), and then to that of their group.
//!
//! Not here: chains, flow state.

mod choice;
mod directory;
mod driving;
pub mod explaining;
mod leases;
mod members;
mod messages;
mod outbox;
mod placing;
mod ports;
mod presence;
mod recovery;
mod routing;

pub use choice::Policy;
pub use placing::{Load, Placing};

use crate::chain::Plan;
use crate::env::{BURST, Burst, Port};
use crate::fragments::Tracker;
use crate::members::Leases;
use crate::message::{Message, Taken};
use crate::stats::{DropReason, Drops};
use crate::watch::MaybeTap;
use crate::watch::trace::Event;
use alloc::boxed::Box;
use alloc::vec::Vec;
use arrayvec::ArrayVec;
use choice::Choice;
use directory::Directory;
use nf::{Affinity, Prefix, Side};
use outbox::Outbox;
use ports::Ports;
use presence::{Presence, Waits};
use protocols::membership::WorkerId;
use protocols::ownership::{RuntimeId, SwitchMessage};
use recovery::{Decision, Known, Recovery, Report, Standing};
use wire::memory::Region;
use wire::packet::{Kind, flag as packet_flag};
use wire::{HashSeed, Packet, PacketBox, PacketList, Pool};

/// Which side a port's packets come from.
#[derive(Clone, Debug)]
pub enum SideRule {
    /// Always this one.
    Fixed(Side),
    /// Inside if the source is in one of the prefixes, else outside: for captures of both
    /// directions.
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

/// The settings that a switch is made with.
#[derive(Clone, Debug)]
pub struct SwitchSettings {
    /// Its number, which is also its pool's. Of the cluster's ports, numbered in the order of the
    /// configuration, it has every `switches`-th: the port at `index` has the number
    /// `index * switches + switch`.
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
    /// Take the packets' own timestamps for the time (a replay), as far as they are ahead of what
    /// `step` is told.
    pub packet_clock: bool,
    /// With `packet_clock`: how far, in nanoseconds, packets that are taken up may be ahead of a
    /// time at which all earlier ones, and their answers, were done with. `u64::MAX` where no port
    /// answers.
    pub lead_max: u64,
    /// Whether every port of the cluster waits for its reader: then packets from peers and turned
    /// ones wait for room in a runtime's queue, too, instead of being dropped.
    pub patient: bool,
    /// How long, in nanoseconds, packets for a runtime that has failed wait for its flows to go on
    /// elsewhere; 0 where runtimes keep no copies.
    pub recovery_max: u64,
    /// The time at the start, in nanoseconds.
    pub now: u64,
}

/// The state that all parts of a switch are handed.
struct Local {
    /// Which switch it is, of how many.
    number: u8,
    switches: u8,
    now: u64,
    pool: Pool,
    drops: Drops,
    /// Open while there is a watch.
    tap: MaybeTap,
}

impl Local {
    /// The number in the cluster of a port of this switch.
    fn port_number(&self, index: usize) -> u8 {
        index as u8 * self.switches + self.number
    }

    /// Notes a step of a packet, if it is traced.
    fn note(&mut self, packet: &Packet, event: Event) {
        if let Some(tap) = &mut self.tap
            && packet.has(packet_flag::WATCHED)
        {
            tap.note(packet, self.now, event);
        }
    }
}

/// One switch over ports `P` and links `L`.
pub struct Switch<P: Port, L: Port> {
    settings: SwitchSettings,
    plan: Plan,
    affinity: Affinity,
    local: Local,
    ports: Ports<P>,
    outbox: Outbox<L>,
    directory: Directory,
    presence: Presence,
    recovery: Recovery,
    choice: Choice,
    fragments: Tracker,
    turning: PacketList,
    turned: u64,
    handed_over: u64,
    /// Of a switch that acts by leases and views.
    leases: Option<Box<Leases>>,
    /// Until when it may act, and when leases are to be asked for. Without leases: for ever, and
    /// never.
    lease_until: u64,
    lease_due: u64,
    /// Whether it has taken a step since it began to act by leases.
    has_stepped: bool,
    /// The newest view.
    view: u32,
    /// Runtimes that the configuration lists; views have the others.
    listed: usize,
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

impl<P: Port, L: Port> Switch<P, L> {
    /// Makes a switch. `runtimes` are its links in the order of the runtimes' numbers, `peers`
    /// those to the other switches by theirs (`None` for itself).
    pub fn new(
        settings: SwitchSettings,
        plan: Plan,
        ports: Vec<(P, SideRule)>,
        runtimes: Vec<L>,
        peers: Vec<Option<L>>,
        pool: Pool,
        mut memory: impl FnMut(usize) -> Region,
    ) -> Self {
        let affinity = plan.affinity();
        let mut directory = Directory::new(&settings, affinity, runtimes.len(), &mut memory);
        let most = messages::messages_max(runtimes.len(), directory.blocks.most());
        let outbox = Outbox::new(runtimes, peers, most);
        for runtime in (0..outbox.runtimes()).filter(|runtime| outbox.is_there(*runtime)) {
            directory.came(runtime);
        }
        let mut switch = Switch {
            affinity,
            local: Local {
                number: settings.switch,
                switches: settings.switches,
                now: settings.now,
                pool,
                drops: Drops::default(),
                tap: None,
            },
            ports: Ports::new(ports, &settings),
            recovery: Recovery::new(outbox.runtimes(), settings.recovery_max),
            listed: outbox.runtimes(),
            presence: Presence::new(&outbox, settings.packet_clock.then_some(settings.now)),
            outbox,
            directory,
            choice: Choice::new(settings.policy),
            fragments: Tracker::new(settings.fragments_max as usize, settings.seed),
            turning: PacketList::new(),
            turned: 0,
            handed_over: 0,
            leases: None,
            lease_until: u64::MAX,
            lease_due: u64::MAX,
            has_stepped: true,
            view: 0,
            plan,
            settings,
        };
        switch.offer_runtimes();
        switch
    }

    /// Another configuration is in force at the runtimes: from now on, switches know it by this
    /// plan. Its affinity is the same.
    pub fn change(&mut self, plan: Plan) {
        debug_assert_eq!(plan.affinity(), self.affinity);
        self.plan = plan;
    }

    /// Does some of everything there is to do; answers how many packets it touched. `now` is in
    /// nanoseconds.
    pub fn step(&mut self, now: u64) -> usize {
        self.local.now = self.local.now.max(now);
        let mut work = 0;
        self.ports.reap_transmitted(&mut self.local.pool);
        if self.local.now >= self.lease_due {
            work += self.attend_leases();
        }
        if self.fragments.expire(self.local.now) {
            work += self.drop_fragments();
        }
        for index in 0..self.outbox.runtimes() {
            work += self.read_runtime(index);
        }
        work += self.directory.tidy();
        if self.presence.is_resyncing() {
            let is_recovering = self.recovery.is_active();
            work += self
                .presence
                .tell_some(is_recovering, &self.directory.blocks, &mut self.outbox);
            self.offer_runtimes();
        }
        if self.recovery.is_active() {
            work += self.go_on_recovering();
        }
        if self.directory.blocks.is_in_quarantine() {
            self.directory
                .blocks
                .end_quarantine(self.local.now, &mut self.outbox);
        }
        let is_too_early = self.presence.is_waiting() && self.is_too_early();
        if is_too_early && self.leases.is_none() {
            self.flush_all();
            return work;
        }
        // Of leases peers are heard all the same.
        for index in 0..self.outbox.switches() {
            work += self.read_switch(index);
        }
        self.flush_all();
        let may_act = self.is_leased() && !is_too_early;
        if may_act {
            work += self.take_turned();
        }
        if work > 0 {
            self.ports.moved();
        }
        if may_act {
            work += self.read_ports();
        }
        work += self.directory.probe(&mut self.outbox);
        self.flush_all();
        work
    }

    #[cold]
    fn is_too_early(&mut self) -> bool {
        let may_act = self.is_leased() && self.has_stepped;
        self.has_stepped = true;
        let is_recovering = self.recovery.is_active() || self.directory.has_unrouted();
        let now = self.local.now;
        let is_untold = self.is_member_untold() || self.awaits_word_of_removed();
        let available = self.choice.available();
        let waits = Waits {
            may_act,
            is_untold,
            is_recovering,
        };
        self.presence.wait_on(now, available, waits)
    }

    fn read_runtime(&mut self, runtime: usize) -> usize {
        if self.outbox.is_still(runtime) {
            return 0;
        }
        let mut count = 0;
        for _ in 0..LINK_BURSTS {
            let burst = self.outbox.receive(runtime, &mut self.local);
            let is_over = self.outbox.is_over(runtime);
            if burst.is_empty() && !is_over {
                break;
            }
            count += burst.len();
            self.take_from_runtime(runtime, burst);
            if is_over {
                self.session_over(runtime);
                return count + 1;
            }
        }
        count
    }

    /// Between reading a port, or a switch, and routing its packets, where another switch of this
    /// process may have sent the packets that those answer: every message before those left is on
    /// the rings now, though it was not when this step read them. Other links' ends are asked
    /// whether they have read it (`outbox::barrier`).
    fn catch_up(&mut self) {
        for index in 0..self.outbox.runtimes() {
            // No more than a ring can hold.
            let mut bursts = self.local.pool.total() / BURST + CATCH_UP;
            while self.outbox.is_ring(index) && bursts > 0 && self.read_runtime(index) > 0 {
                bursts -= 1;
            }
        }
    }

    fn read_switch(&mut self, index: usize) -> usize {
        if !self.outbox.is_switch(index) || !self.ports.may_route(&self.outbox) {
            return 0;
        }
        let burst = self.outbox.receive_of_switch(index, &mut self.local);
        let count = burst.len();
        if count > 0 {
            self.catch_up();
            self.take_from_switch(index, burst);
        }
        count
    }

    /// Reads some of what ports have; answers how many packets.
    fn read_ports(&mut self) -> usize {
        let mut taken = 0;
        if self.settings.packet_clock {
            while taken < self.ports.len() * BURST
                && let Some((index, burst)) =
                    self.ports
                        .receive_next(self.fragments.held(), &self.outbox, &mut self.local)
            {
                taken += burst.len();
                self.take_in(index, burst);
            }
            return taken;
        }
        for index in 0..self.ports.len() {
            let burst = self.ports.receive(index, &self.outbox, &mut self.local);
            taken += burst.len();
            if !burst.is_empty() && self.settings.switches > 1 {
                self.catch_up();
            }
            self.take_in(index, burst);
        }
        taken
    }

    /// Processed packets leave, messages are handled, buffers come home.
    fn take_from_runtime(&mut self, runtime: usize, burst: Burst) {
        let is_leased = self.is_leased();
        let mut packets = burst.into_iter();
        for packet in packets.by_ref() {
            if !is_leased && packet.kind() == Kind::Data {
                self.outbox
                    .drop_packet(packet, DropReason::NoLease, &mut self.local);
                continue;
            }
            if self.directory.has_rejected()
                && packet.kind() == Kind::Data
                && let Some(reason) = self.directory.rejection(runtime, &packet)
            {
                self.outbox.drop_packet(packet, reason, &mut self.local);
                continue;
            }
            match packet.kind() {
                Kind::Data if packet.has(packet_flag::HAIRPIN) => self.turn(packet),
                Kind::Data => self.ports.send(packet, &mut self.outbox, &mut self.local),
                Kind::Message => {
                    self.handle(runtime, &packet);
                    self.outbox.give_home(packet, &mut self.local);
                    if self.outbox.is_fenced(runtime) {
                        break;
                    }
                }
                Kind::Empty => self.outbox.give_home(packet, &mut self.local),
            }
        }
        self.outbox.drop_unheard(packets, &mut self.local);
    }

    /// Handles the messages of a frame.
    #[cold]
    fn handle(&mut self, runtime: usize, frame: &PacketBox) {
        let mut bytes = frame.frame();
        // Which incarnation says the rest: it may be over.
        while let Some((lease @ (Message::LeaseAsked(..) | Message::LeaseGranted(..)), rest)) =
            Message::read(bytes)
        {
            bytes = rest;
            self.handle_lease(WorkerId::runtime(runtime as u16), lease);
        }
        if self.outbox.is_fenced(runtime) {
            return;
        }
        self.directory.prefetch_rerouted(bytes);
        let (directory, outbox) = (&mut self.directory, &mut self.outbox);
        let (mut is_choice_changed, mut has_report) = (false, false);
        // A runtime asks and grants once in a frame, as a rule.
        let mut lease_messages = ArrayVec::<Message, 4>::new();
        while let Some((message, rest)) = Message::read(bytes) {
            bytes = rest;
            if !messages::is_valid(&message, runtime, outbox.runtimes(), &directory.blocks) {
                outbox.reject();
                continue;
            }
            match message {
                Message::BlockClaimed(block, group) => {
                    // A runtime's word out of a store may be older than flows that another has
                    // begun.
                    let is_told = self.recovery.has_returns()
                        && !self.presence.has_resynced(runtime)
                        && !crate::replica::is_broken("blocks of others are refused");
                    match is_told && directory.blocks.is_anothers(runtime, &block, &group) {
                        true => outbox.push_message(runtime, Message::RouteConflict(group)),
                        false => directory.blocks.claimed(runtime, block, group),
                    }
                }
                Message::BlockTentative(block, group) => {
                    directory.blocks.claimed_tentatively(runtime, block, group)
                }
                Message::BlockSuspect(block, group) => {
                    directory.blocks.suspected(runtime, block, group, outbox)
                }
                Message::BlockReleased(block) => {
                    directory.blocks.lend_no_more(block);
                    directory.blocks.release(block);
                }
                Message::BlockLent(block, home, to) => directory.blocks.lend(block, home, to, outbox),
                Message::BlockKept(block, home) => {
                    directory
                        .blocks
                        .keep(block, home, RuntimeId(runtime as u16), outbox);
                }
                Message::BlockReturned(block, home) => {
                    directory.blocks.lend_no_more(block);
                    directory.blocks.release(block);
                    directory.blocks.give_back(home, block, outbox);
                }
                Message::Routed(key) => {
                    let recovery = &self.recovery;
                    let is_heir_of = |failed| recovery.is_heir(failed, runtime);
                    let goes_on = || recovery.is_back(runtime) || recovery.returns(runtime);
                    directory.routed(runtime, key, is_heir_of, goes_on, outbox);
                }
                Message::GroupEmpty(key, consumed) => directory.group_empty(runtime, key, consumed),
                Message::RouteSuspect(key) => directory.moved_before(runtime, &key),
                Message::Reroute(reroute) => {
                    let failed = usize::from(reroute.from.0);
                    let may_be_unmet = reroute.taken != Taken::Not && self.presence.may_have_unmet(failed);
                    let is_there = |runtime| outbox.is_there(runtime);
                    let now = self.local.now;
                    let is_undecided = !self.presence.is_resynced()
                        || self.recovery.is_suspended(failed)
                        || may_be_unmet && self.recovery.awaits_word_of(failed, is_there, now);
                    directory.reroute(runtime, &reroute, is_undecided, outbox);
                }
                Message::Installed(key, epoch) => {
                    let is_back = || self.recovery.is_back(runtime);
                    directory.installed(runtime, (key, epoch), is_back, outbox);
                }
                Message::DrainMarker(group, to, epoch) => {
                    // A runtime that is not there yet tells what it has when it is; if it never is,
                    // the source has the group again.
                    if outbox.is_there(usize::from(to.0)) {
                        directory.blocks.note_move(&group, runtime, to.0);
                    }
                    let drained = Message::Switch(group, SwitchMessage::Drained(epoch));
                    outbox.push_message(usize::from(to.0), drained);
                }
                Message::Leaving(is_leaving) => {
                    self.presence.set_leaving(runtime as u16, is_leaving);
                    is_choice_changed = true;
                }
                Message::Resynced => self.presence.note_resynced(runtime),
                Message::BarrierAsked(barrier) => outbox.acknowledge(runtime, barrier),
                Message::Incarnation(incarnation) => {
                    outbox.note_said(runtime, incarnation);
                    // Where a store alone has flows, it decides which incarnation is back.
                    if self.recovery.has_copies() {
                        self.recovery.note_incarnation(runtime, incarnation);
                        has_report = true;
                    }
                }
                Message::Keeps(itself, number, incarnation) if usize::from(itself.0) == runtime => {
                    self.recovery.note_least(runtime, Report { number, incarnation });
                }
                Message::Keeps(failed, number, incarnation) => {
                    self.recovery
                        .note_report(failed.0, runtime, Report { number, incarnation });
                    has_report = true;
                }
                Message::Meets(other, incarnation) => {
                    self.recovery.note_meeting(other.0, runtime, incarnation);
                    has_report = true;
                }
                Message::Recovered(failed) => self.recovery.note_recovered(failed.0, runtime),
                lease @ (Message::LeaseAsked(..) | Message::LeaseGranted(..)) => {
                    let _ = lease_messages.try_push(lease);
                }
                // No runtime may say so.
                Message::RouteConflict(_)
                | Message::Switch(..)
                | Message::BarrierAcknowledged(_)
                | Message::Heir(..)
                | Message::LendsOver(_) => {}
            }
        }
        if !bytes.is_empty() {
            // No record.
            outbox.reject();
        }
        for lease in lease_messages {
            self.handle_lease(WorkerId::runtime(runtime as u16), lease);
        }
        if is_choice_changed {
            self.offer_runtimes();
        }
        if has_report {
            self.look_for_unmet_incarnations();
        }
    }

    /// Suspends incarnations of runtimes of which there are copies, and which nothing here leads
    /// to.
    #[cold]
    fn look_for_unmet_incarnations(&mut self) {
        for runtime in 0..self.outbox.runtimes() {
            // Blocks that a runtime gives out once it was told all may be in use by an heir that
            // comes late.
            if self.presence.may_have_predecessor(runtime) {
                let is_there = self.outbox.is_there(runtime);
                self.recovery.suspend_unmet(runtime, is_there, self.local.now);
            }
        }
    }

    /// The runtime at a link's end is another one, or gone.
    #[cold]
    fn session_over(&mut self, runtime: usize) {
        let was_there = self.outbox.is_there(runtime);
        let unsaid = self.outbox.end_session(runtime, &mut self.local);
        let is_there = self.outbox.is_there(runtime);
        self.presence.session_over(runtime, was_there, is_there);
        if was_there {
            // The runtime that restarts in its place in this process goes on with its pool.
            for message in unsaid {
                if let Message::BlockReturned(block, home) = message {
                    self.directory.blocks.give_back(home, block, &mut self.outbox);
                }
            }
            match self.recovery.has_said_nothing(runtime) {
                // Nothing has been heard in this session: packets that wait for the incarnation
                // before go on to wait.
                true => self.directory.part(runtime),
                false => self.incarnation_over(runtime),
            }
        }
        if self.affinity != Affinity::Flow {
            self.say_lends_over(runtime);
        }
        if is_there {
            self.directory.came(runtime);
            self.directory.blocks.came(runtime, &mut self.outbox);
            self.greet(runtime);
            self.outbox.begin_session(runtime);
        }
        self.offer_runtimes();
    }

    /// All blocks that a runtime had lent until now were said.
    fn say_lends_over(&mut self, runtime: usize) {
        let over = Message::LendsOver(RuntimeId(runtime as u16));
        for other in 0..self.outbox.runtimes() {
            if other != runtime && self.outbox.is_there(other) {
                self.outbox.push_message(other, over);
            }
        }
    }

    /// A runtime that was there and was heard has failed.
    fn incarnation_over(&mut self, runtime: usize) {
        self.recovery.forget_reports_of(runtime);
        if self.recovery.is_suspended(runtime) {
            // It has failed again.
            self.end_suspension(runtime, false);
        }
        self.directory.leave(runtime);
        if self.recovery.is_wanted() {
            self.recovery.suspend(runtime, self.local.now);
            self.directory.suspend(runtime, true);
        } else {
            self.end_suspension(runtime, false);
        }
    }

    /// Decides for runtimes that have failed where their flows go on; answers how much was done.
    #[cold]
    fn go_on_recovering(&mut self) -> usize {
        let mut count = 0;
        for failed in 0..self.outbox.runtimes() {
            let (outbox, leases) = (&self.outbox, self.leases.as_deref());
            let is_there = |runtime| outbox.is_there(runtime);
            let runs = |runtime| leases.is_some_and(|leases| leases.runs(WorkerId::runtime(runtime as u16)));
            let known = Known {
                standing: |runtime| match (is_there(runtime), runs(runtime)) {
                    (true, _) => Standing::Met,
                    (false, true) => Standing::Unmet,
                    (false, false) => Standing::Absent,
                },
                by_views: leases.is_some(),
                is_resynced: self.presence.is_resynced(),
                has_returned: is_there(failed) && self.presence.has_resynced(failed),
            };
            match self.recovery.decide(failed, self.local.now, &known) {
                Decision::None => continue,
                Decision::Heir(heir, incarnation) => {
                    let message = Message::Heir(RuntimeId(failed as u16), incarnation);
                    self.outbox.push_message(usize::from(heir), message);
                }
                Decision::Late(heir, incarnation) => {
                    let message = Message::Keeps(RuntimeId(failed as u16), 0, incarnation);
                    self.outbox.push_message(usize::from(heir), message);
                }
                Decision::Over => {
                    let is_same =
                        self.recovery.is_back(failed) && !wire::planted::is("same_incarnation_forgotten");
                    // A next incarnation has had its flows from the store since before it was met.
                    let is_back = self.outbox.is_there(failed) && (is_same || self.recovery.returns(failed));
                    self.end_suspension(failed, is_back);
                }
            }
            count += 1;
        }
        count
    }

    /// The remaining routes of a runtime end, or lead to the same incarnation again, and packets
    /// that waited for it are routed.
    #[cold]
    fn end_suspension(&mut self, runtime: usize, is_back: bool) {
        // Of an incarnation that was not met nothing is known but the heir's announcements; and the
        // next one may be at work.
        if self.recovery.was_met(runtime) || !self.recovery.is_wanted() {
            self.directory.suspend(runtime, false);
            match is_back {
                true => self.directory.back(runtime, &mut self.outbox),
                false => self.directory.gone(runtime, &mut self.outbox),
            }
        }
        self.directory.blocks.let_lent_go(runtime, self.local.now);
        let mut packets = self.recovery.end(runtime);
        while !packets.is_empty() {
            let mut burst = Burst::new();
            while !burst.is_full()
                && let Some(packet) = packets.pop()
            {
                self.recovery.note_routed();
                burst.push(packet);
            }
            self.route(&mut burst, false);
        }
    }

    fn flush_all(&mut self) {
        if self.is_leased() {
            self.ports.flush(&mut self.outbox, &mut self.local);
        }
        self.outbox.flush(&mut self.local);
    }

    /// Reads no ports before all runtimes have told which groups they have, or for so long, in
    /// nanoseconds: for a switch that begins where runtimes of other processes may be at work.
    /// Runtimes whose links were there from the beginning have begun with it and have none.
    pub fn wait_for_resync(&mut self, at_most: u64) {
        self.presence
            .wait_for_resync(self.local.now, at_most, &self.outbox);
    }

    /// The same, for a switch that begins with runtimes of its process that have flows out of a
    /// store.
    pub fn wait_for_stored(&mut self, at_most: u64) {
        self.wait_for_resync(at_most);
        self.presence.expect_stored(&self.outbox);
    }

    /// Runtimes that fail come back with flows out of a store: their routes wait for them as long
    /// as `recovery_max`. `has_copies`: other runtimes keep copies, too.
    pub fn expect_returns(&mut self, has_copies: bool) {
        self.recovery.expect_returns(has_copies);
    }

    /// Has a runtime get no new groups, or get some again.
    pub fn set_leaving(&mut self, runtime: u16, is_leaving: bool) {
        self.presence.set_leaving(runtime, is_leaving);
        self.offer_runtimes();
    }

    /// Gives up packets held for fragments that will not come: nothing more comes in anywhere.
    pub fn finish(&mut self) {
        self.fragments.finish();
        self.drop_fragments();
        self.flush_all();
    }
}
