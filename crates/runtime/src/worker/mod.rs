//! The runtime worker: one thread's flow table, actors, timers and functions.
//!
//! # Theory of operation
//!
//! Run to completion, in bursts of 32 (NFVactor VI-A, without its module-graph machinery). One
//! [`Runtime::step`]:
//!
//! ```text
//!   links ─receive─► intake     packets, messages of switches, buffers that come home
//!                    data       parse and hash all → prefetch buckets → candidates → prefetch actors → chains
//!   peers ─receive─► moving     records of other runtimes; groups that move go on
//!                    calls      calls whose time has come go on; functions hear of their timers; a few flows are asked what another configuration makes of them
//!                    core       a few due flows are looked at; first packets leave whose routes are acknowledged
//!                    sessions   switches that restart are told all
//!   links ◄transmit─ outbox     messages first, then packets and empty buffers
//! ```
//!
//! The worker has the links and nothing else of its own: flows and what runs them are the
//! [`Core`]'s, groups on their way [`Moves`]'. Both are handed what they need and return effects,
//! which are applied in one place (`effects`), before the next packet or message.
//!
//! Invariants: every packet received (or emitted) is passed on, held, or counted as dropped, once;
//! the packets of one flow are processed in the order received; methods in these files call each
//! other in one direction.
//!
//! Not here: ports and rings (`adapters`), routes ([`crate::switch`]), time: the caller says what
//! it is.

pub mod asked;
mod calls;
mod data;
pub mod deleting;
mod effects;
pub mod failing;
pub mod handover;
mod intake;
mod leases;
mod links;
mod members;
mod moving;
mod objects;
mod sessions;
mod view;
mod watching;

use crate::chain::{COPIED_MAX, LEDGER, Plan, Stages};
use crate::env::{Burst, Port};
use crate::flows::{FlowStore, Room};
use crate::fragments::Tracker;
use crate::members::Leases;
use crate::mobility::Moves;
use crate::objects::SharedObjects;
use crate::outbox::{Outbox, Shape};
use crate::parts::Core;
use crate::parts::presence::Sessions;
use crate::replica::keeper::Keeper;
use crate::replica::policy::{Policy, STORED_AS, STORED_MAX};
pub use crate::runner::change;
use crate::runner::{Bounds, Runner};
use crate::stats::{DropReason, Named, RuntimeStats};
use alloc::boxed::Box;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use nf::{Affinity, ConfigError};
use protocols::ownership::Switches;
use wire::memory::Region;
use wire::packet::Kind;
use wire::{PacketList, Pool};

pub(crate) use crate::outbox::turn_around;
pub(crate) use crate::parts::owner_by_plan;
pub use crate::settings::{MOVES_MAX, Settings};
pub use view::{CopyView, FlowEnds, FlowView};

/// One runtime. `P` is the kind of its links, or of its one port.
pub struct Runtime<P: Port> {
    /// To switches, or the one port.
    links: Vec<P>,
    /// To other runtimes, by their numbers.
    peers: Vec<Option<P>>,
    /// By link: packets that were taken off while buffers for messages were wanting, to be
    /// processed first.
    backlog: Vec<PacketList>,
    fragments: Tracker,
    core: Core,
    moves: Moves,
    keeper: Keeper,
    /// Where some function shares objects, once their view is known.
    objects: Option<Box<SharedObjects>>,
    received: u64,
    stalls: u64,
    /// Of a runtime that acts by leases and views.
    leases: Option<Box<Leases>>,
    /// By link, until when its lease lasts, and when the next is to be asked for. Without leases:
    /// for ever, and never.
    lease_until: Vec<u64>,
    lease_due: u64,
}

/// Spare buffers in the frame at hand go home: a pool that misses buffers leaves its memory to
/// their holders, for ever ([`Pool`]), and tests and simulations make thousands of runtimes.
impl<P: Port> Drop for Runtime<P> {
    fn drop(&mut self) {
        let spares = self.core.runner.take_spares();
        for spare in spares {
            self.core.out.pool_mut().give(spare);
        }
    }
}

/// How much a step did.
#[derive(Clone, Copy, Default, Debug, PartialEq, Eq)]
pub struct Work {
    /// Packets received.
    pub packets: usize,
    /// Anything else: calls resumed, flows looked at.
    pub other: usize,
}

impl Work {
    /// Nothing was to be done.
    pub fn is_idle(&self) -> bool {
        self.packets == 0 && self.other == 0
    }
}

impl<P: Port> Runtime<P> {
    /// Makes a runtime. `memory` provides zeroed regions of the lengths asked for: heap, or large
    /// pages.
    pub fn new(
        settings: Settings,
        plan: Plan,
        links: Vec<P>,
        pool: Pool,
        memory: impl FnMut(usize) -> Region,
    ) -> Result<Self, (String, ConfigError)> {
        check_copies(&settings, &plan)?;
        let mut stages = Stages::new(&plan, &settings.info)?;
        if let Some(storing) = &settings.storing {
            stages.open_ledger(
                &plan,
                settings.info.runtime,
                storing,
                settings.entries(plan.affinity()),
            )?;
        }
        Ok(Self::with_stages(settings, plan, stages, links, pool, memory))
    }

    /// As [`Runtime::new`], of functions that are there already: nothing can fail any more, so no
    /// link is lost.
    pub fn with_stages(
        settings: Settings,
        plan: Plan,
        stages: Stages,
        links: Vec<P>,
        pool: Pool,
        mut memory: impl FnMut(usize) -> Region,
    ) -> Self {
        assert_eq!(
            links.len(),
            usize::from(settings.switches.max(1)),
            "a link per switch, or one port"
        );
        assert!(
            settings.moves_max <= MOVES_MAX,
            "what others keep for groups on their way is bounded by that"
        );
        let affinity = plan.affinity();
        let room = Room {
            flows: settings.info.flows_max as usize,
            groups: match affinity {
                Affinity::Flow => 0,
                _ => settings.groups_max as usize,
            },
            flow_state: stages.flow_size,
            group_state: stages.group_size,
            rests: stages.outlives,
        };
        let bounds = Bounds {
            waiting_max: settings.waiting_max,
            queued_max: settings.queued_max,
            share_max: settings.share_max,
            held_max: settings.held_max,
            timeout_default: settings.timeout_default,
            packet_clock: settings.packet_clock,
            events_max: settings.events_max,
            runtime: settings.info.runtime,
        };
        let shape = Shape {
            switches: settings.switches,
            egress: settings.egress,
            seed: settings.seed,
            affinity,
            now: settings.now,
        };
        let flows = FlowStore::new(&room, affinity, settings.seed, settings.now, &mut memory);
        let mut runner = Runner::new(bounds, plan, stages, settings.now, &mut memory);
        runner.set_wall(settings.wall);
        let out = Outbox::new(shape, &links, pool);
        let sessions = Sessions::new(&links);
        let mut runtime = Runtime {
            fragments: Tracker::new(settings.fragments_max as usize, settings.seed),
            backlog: links.iter().map(|_| PacketList::new()).collect(),
            core: Core::new(settings, flows, runner, out, sessions),
            moves: Moves::new(),
            keeper: Keeper::default(),
            objects: None,
            peers: Vec::new(),
            leases: None,
            lease_until: links.iter().map(|_| u64::MAX).collect(),
            lease_due: u64::MAX,
            links,
            received: 0,
            stalls: 0,
        };
        if runtime.core.open_ledger() {
            runtime.restore();
        }
        if runtime.core.settings.switches == 0 {
            runtime.share_alone();
        }
        runtime
    }

    /// Does some of everything there is to do. `now` is in nanoseconds and never goes back.
    pub fn step(&mut self, now: u64) -> Work {
        self.core.go_on_to(now);
        self.core.runner.measure_held_room(&self.core.out);
        let mut work = Work::default();
        self.core.runner.variables_mut().begin(self.core.now);
        self.core.out.write_pending();
        self.core.early_looks = BURST_LOOKS;
        if self.core.now >= self.lease_due {
            work.other += self.attend_leases();
        }
        if self.core.out.has_room() || self.fetch_home() {
            for link in 0..self.links.len() {
                if !self.core.out.is_clear() {
                    break;
                }
                let mut burst = Burst::new();
                while !burst.is_full()
                    && let Some(packet) = self.backlog[link].pop()
                {
                    burst.push(packet);
                }
                // Packets that were put aside came before.
                if self.may_read(link) {
                    self.links[link].receive(self.core.now, self.core.out.pool_mut(), &mut burst);
                } else if self.is_fenced(link) {
                    self.drop_fenced(link);
                }
                work.packets += burst.len();
                self.data(link, &mut burst);
                if self.is_session_over(link) && self.backlog[link].is_empty() {
                    self.session_over(link);
                }
            }
            work.other += self.handle_runtimes();
            while let Some(packet) = self.core.out.next_hairpin() {
                let mut burst = Burst::new();
                burst.push(packet);
                self.take_up(0, &mut burst);
            }
            self.core.runner.look_for_changes();
            if self.objects.is_some() {
                work.other += self.share();
            }
            work.other += self.wake(BURST_WAKES);
            // Another runtime may have its flows and variables by now.
            let may_end = !self.core.is_unleased();
            if may_end {
                work.other += self.core.runner.run_timers();
            }
            if self.fragments.expire(self.core.now) {
                work.other += self.drop_fragments();
            }
            self.core.learn_reply_keys();
            work.other += self.core.recall();
            if may_end {
                work.other += self.core.expire(self.core.early_looks);
            }
            work.other += self.walk();
            work.other += self.go_on_moving();
            work.other += self.go_on_resyncing();
            work.other += self.core.see_to_pools();
            work.other += self.core.release_held();
            if self.keeper.has_work() {
                work.other += self.keeper.go_on(&mut self.core);
            }
            work.other += self.core.go_on_copying();
            work.other += self.core.go_on_storing();
        } else {
            // Buffers come home from other runtimes, too.
            work.other += self.handle_runtimes();
            self.stalls += 1;
        }
        if self.objects.is_some() {
            work.other += self.share();
        }
        self.keeper.acknowledge(&mut self.core);
        self.core.runner.variables_mut().step(self.core.now);
        work.other += self.core.acknowledge_stored();
        self.transmit();
        work
    }

    /// Has the store told of every change of the functions' variables; answers whether it has them,
    /// or `patience` is over. For the worker's end.
    pub fn finish_variables(&mut self, patience: core::time::Duration) -> bool {
        self.core.runner.variables_mut().finish(patience)
    }

    /// Timers of the functions' variables, to be handed to another runtime: of a runtime that takes
    /// no more step.
    pub fn timers(&self) -> Vec<nf::variables::open::Handed> {
        self.core.runner.variables().timers()
    }

    /// The functions that have variables, with their numbers in the plan and the names of those of
    /// their variables that have timers.
    pub fn timer_names(&self) -> Vec<(usize, String, Vec<String>)> {
        let names = &self.core.runner.stages().names;
        let all = self.core.runner.variables().timer_names();
        let named = |(function, timers): (usize, _)| Some((function, names.get(function)?.clone(), timers));
        all.into_iter().filter_map(named).collect()
    }

    /// Arms timers of a runtime that has gone; answers timers that found no place.
    pub fn take_in_timers(
        &mut self,
        handed: Vec<nf::variables::open::Handed>,
    ) -> Vec<nf::variables::open::Handed> {
        self.core.runner.variables().take_in(handed)
    }

    /// A function's number in the plan, by its name.
    fn function_of(&self, name: &str) -> Option<usize> {
        let names = &self.core.runner.stages().names;
        names.iter().position(|known| known == name)
    }

    /// Takes timers of a function in that were another partition's, and holds them until
    /// [`Runtime::release_timers`]. Answers timers that found no room, and the number of the change
    /// that the store is to have. `None`: there is no such function or variable.
    pub fn hold_timers(
        &mut self,
        (function, name): (&str, &str),
        timers: Vec<nf::variables::open::Element>,
    ) -> Option<(Vec<nf::variables::open::Element>, u64)> {
        let number = self.function_of(function)?;
        self.core.runner.variables().hold_timers(number, name, timers)
    }

    /// Lets timers go that were held: they fire here from now on, or are removed again. Answers the
    /// number of the change.
    pub fn release_timers(&mut self, (function, name): (&str, &str), are_ours: bool) -> Option<u64> {
        let number = self.function_of(function)?;
        self.core
            .runner
            .variables()
            .release_timers(number, name, are_ours)
    }

    /// Whether the store has all changes of these timers up to this one.
    pub fn are_timers_stored(&self, (function, name): (&str, &str), change: u64) -> Option<bool> {
        let number = self.function_of(function)?;
        self.core
            .runner
            .variables()
            .are_timers_stored(number, name, change)
    }

    /// Removes the timers that another runtime has; `left` stay.
    pub fn keep_timers(&mut self, left: Vec<nf::variables::open::Handed>) {
        self.core.runner.variables().keep_timers(left);
    }

    /// Whether stores have every change of the functions' variables.
    pub fn are_variables_stored(&self) -> bool {
        self.core.runner.variables().is_stored()
    }

    /// Figures of the changes of variables that are in a store, by function.
    pub fn variables(&self) -> Vec<(String, nf::variables::PartitionStats)> {
        let figures = self.core.runner.variables().figures();
        let names = &self.core.runner.stages().names;
        let named = |(function, figures): (usize, _)| match function {
            LEDGER => Some((STORED_AS.to_string(), figures)),
            _ => Some((names.get(function)?.clone(), figures)),
        };
        figures.into_iter().filter_map(named).collect()
    }

    /// Takes off the links all that has come, since the buffers that are wanting may be on their
    /// way home behind packets; packets and messages are put aside, in order. Whether there are
    /// enough now.
    #[cold]
    fn fetch_home(&mut self) -> bool {
        if wire::planted::is("buffers_not_fetched_home") {
            return false;
        }
        for link in 0..self.links.len() {
            while self.may_read(link) {
                let mut burst = Burst::new();
                self.links[link].receive(self.core.now, self.core.out.pool_mut(), &mut burst);
                if burst.is_empty() {
                    break;
                }
                for packet in burst {
                    if packet.kind() == Kind::Empty {
                        // Another worker's, too (a link to another process has done with it): its
                        // owner may be waiting as this one is.
                        self.core.out.recycle(packet);
                    } else {
                        self.backlog[link].push(packet);
                    }
                }
                self.core.out.write_pending();
                if self.core.out.has_room() {
                    return true;
                }
            }
        }
        false
    }

    /// How many records and packets for other runtimes wait for buffers.
    pub fn words_unsaid(&self) -> usize {
        self.core.out.records_pending()
    }

    /// As if so many packets of other groups had come by each link.
    #[cfg(test)]
    pub fn age_links(&mut self, packets: u64) {
        self.core.out.age_links(packets);
    }

    /// Ends up to `budget` flows as if they had expired; `true` when none is left. For a graceful
    /// stop.
    pub fn finish(&mut self, budget: usize) -> bool {
        self.moves.stop_moving();
        self.core.release_all_held();
        self.core.lines.let_go();
        self.core.close_ledger();
        self.leave_behind_store();
        self.fragments.finish();
        self.drop_fragments();
        let done = self.core.end_all(budget);
        self.core.go_on_parting();
        self.transmit();
        done && self.core.flows.parting.is_empty() && self.core.out.is_clear()
    }

    /// The runtime ends: packets that wait for the store leave when it has their flows, within a
    /// time.
    #[cold]
    fn leave_behind_store(&mut self) {
        if self.core.store_gate.packets() > 0 {
            self.finish_variables(LAST_PACKETS);
            self.core.end_waiting_for_store();
        }
    }

    /// Whether any call waits.
    pub fn has_waiting(&self) -> bool {
        self.core.runner.waiting() > 0
    }

    /// When the next waiting call or packet is due, if anything is known to be.
    pub fn next_at(&self) -> Option<u64> {
        self.core
            .runner
            .next_wake()
            .into_iter()
            .chain(self.links.iter().filter_map(Port::next_at))
            .chain(self.core.runner.variables().next_at())
            .chain(self.core.runner.next_timer())
            .chain(self.core.ledger.next_at())
            .chain(self.core.look_at_store_at(self.moves.waits_for_store()))
            .chain(self.objects_next_at())
            .min()
    }

    /// Whether no link will ever bring anything again.
    pub fn finished(&self) -> bool {
        self.links.iter().all(Port::finished) && self.is_at_rest()
    }

    /// Whether no group is on its way, no packet waits to leave, and all messages are on the links.
    pub fn is_at_rest(&self) -> bool {
        self.core.out.hairpins() == 0
            && self.backlog.iter().all(PacketList::is_empty)
            && self.moves.is_idle()
            && self.moves.has_said_all()
            && self.core.out.records_pending() == 0
            && self.core.out.is_clear()
            && self.core.hold.is_empty()
            && self.core.gate.packets() + self.core.store_gate.packets() == 0
    }

    /// Whether nothing is to be told to switches, they have said which groups of that are
    /// another's, and these have ended here.
    pub fn has_resynced(&self) -> bool {
        self.core.sessions.is_idle() && self.core.out.unreconciled() == Switches::NONE
    }

    /// The links, for tests and drivers.
    pub fn links_mut(&mut self) -> &mut [P] {
        &mut self.links
    }

    /// The pool, for tests and drivers.
    pub fn pool(&self) -> &Pool {
        self.core.out.pool()
    }

    /// The wall clock shows so many nanoseconds where the clock of the steps shows 0, for timers
    /// and functions that ask: it has been set.
    pub fn set_wall(&mut self, wall: u64) {
        self.core.runner.set_wall(wall);
    }

    /// Hands out the event log's lines, without those that wait for copies.
    pub fn take_events(&mut self, out: &mut String) {
        self.core.lines.take(self.core.runner.log(), out);
    }

    /// Packets received so far.
    pub fn received(&self) -> u64 {
        self.received
    }

    /// Counts by this clock what functions cost, of one burst in some 256.
    pub fn sample_costs(&mut self, clock: fn() -> u64) {
        let functions = self.core.runner.stages().functions.len();
        self.core.runner.sampling.begin(clock, functions);
    }

    /// The numbers so far.
    pub fn stats(&self) -> RuntimeStats {
        let mut dropped = Vec::new();
        for &reason in DropReason::ALL {
            let count = self.core.out.drops().of(reason);
            if count > 0 {
                dropped.push(Named {
                    function: String::new(),
                    name: reason.name(),
                    count,
                });
            }
        }
        let mut counters = Vec::new();
        for (index, stage) in self.core.runner.stages().functions.iter().enumerate() {
            let function = &self.core.runner.stages().names[index];
            let names = stage.reasons().iter().chain(core::iter::once(&"undeclared"));
            for (name, count) in names
                .zip(&self.core.runner.function_drops()[index])
                .filter(|(_, count)| **count > 0)
            {
                dropped.push(Named {
                    function: function.clone(),
                    name,
                    count: *count,
                });
            }
            for (name, count) in stage
                .counters()
                .iter()
                .zip(self.core.runner.stages().counters(index))
            {
                counters.push(Named {
                    function: function.clone(),
                    name,
                    count: *count,
                });
            }
        }
        RuntimeStats {
            busy: 0,
            received: self.received,
            passed: self.core.out.passed(),
            emitted: self.core.runner.emitted(),
            held: self.core.runner.packets()
                + self.moves.buffered() as u64
                + self.core.hold.packets() as u64
                + (self.core.gate.packets() + self.core.store_gate.packets()) as u64
                + self.core.out.hairpins() as u64
                + self.fragments.held() as u64,
            dropped,
            counters,
            pools: self.core.pool_stats(),
            costs: self.core.runner.sampling.costs(&self.core.runner.stages().names),
            tables: self.figures(),
            protected_by: self.core.protected_by(),
            protected_flows: self.core.sender.flows(),
            protection_took: self.core.sender.took(),
            recoveries: self.keeper.receipts().to_vec(),
            move_pauses: self.moves.pauses(),
            recovery_times: self.keeper.recovery_times(),
            unprotected: self.core.sender.unprotected(),
            copies: self.keeper.copies(),
            recovered: self.keeper.recovered(),
            groups_recovered: self.keeper.groups_recovered(),
            flows: self.core.flows.active() as u64,
            flows_max: self.core.flows.capacity() as u64,
            flows_opened: self.core.flows_opened,
            flows_ended: self.core.flows_ended,
            flows_moved: self.moves.flows_moved,
            packets_moved: self.moves.packets_moved,
            leaving: self.core.is_leaving,
            dry: self.core.pools.is_dry() && !self.core.is_leaving,
            flows_refused: self.moves.flows_refused,
            words_refused: self.core.out.refused(),
            groups: self.core.flows.groups().len() as u64,
            groups_resting: self.core.flows.groups().resting().len() as u64,
            groups_evicted: self.core.groups_evicted,
            waiting: self.core.runner.waiting() as u64,
            objects: self.object_stats(),
            object_messages_refused: self.objects().map_or(0, |figures| figures.refused),
            events_lost: self.core.runner.events_lost(),
            stalls: self.stalls,
            untold: self.core.runner.untold(),
            generation: self.core.runner.generation().0,
        }
    }
}

/// How long, at its end, a runtime waits for a store on behalf of packets.
const LAST_PACKETS: core::time::Duration = core::time::Duration::from_secs(1);
/// Calls resumed in a step at most.
const BURST_WAKES: usize = 32;
/// Actors whose deadline is looked at in a step at most.
const BURST_LOOKS: usize = 64;

/// No chain that is copied keeps more for a flow, or a group, than a record has room for.
fn check_copies(settings: &Settings, plan: &Plan) -> Result<(), (String, ConfigError)> {
    for (index, chain) in plan.chains().iter().enumerate() {
        let policy = chain.replication.unwrap_or(settings.copying.policy);
        let most = match policy {
            Policy::None => continue,
            Policy::Store | Policy::StoreCommit => STORED_MAX,
            _ if settings.replicated => COPIED_MAX,
            _ => continue,
        };
        if let Err(error) = plan.check_copied(index, most) {
            let remedy = "give its chain replication = \"none\", or have the function keep less";
            let at = error.function.clone();
            return Err((at, ConfigError::new("", error.to_string(), remedy)));
        }
    }
    Ok(())
}
