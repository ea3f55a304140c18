//! The runtime worker: one thread's flow table, actors, timers and functions.
//!
//! # Theory of operation
//!
//! Run to completion, in bursts of 32 (NFVactor VI-A, without its module-graph machinery). One [`Runtime::step`]:
//!
//! ```text
//!   links ─receive─► data.rs    parse and hash all → prefetch buckets → candidates → prefetch actors → chains
//!                    waiting.rs calls whose time has come go on
//!                    expiry.rs  a few due flows are looked at
//!                    change.rs  a few flows are asked what another configuration makes of them
//!                    sessions.rs switches that begin anew are told what there is
//!                    unheard.rs first packets of which switches of other processes have heard leave
//!   links ◄transmit─ output.rs  messages first, then packets and empty buffers
//! ```
//!
//! A packet's way through its chain is a [`Job`]: which actor, which direction, how many functions it has passed. The
//! common job starts at none and runs to the end; emitted packets, answers, released packets and resumed calls start
//! elsewhere. Jobs that a job makes are queued (bounded) and run next.
//!
//! With a switch in front, buffers that are done with go home over the link they belong to; alone on a port
//! ([`Settings::switches`] 0) they go to the runtime's own pool, and turned packets are taken up here.
//!
//! Invariants: every packet received (or emitted) is passed on, held, or counted as dropped, once; the packets of one flow
//! are processed in the order received; a waiting actor is not touched but by its own call.
//!
//! Who watches ([`crate::watch`]) sees marked packets on their rare way: `watching.rs`.
//!
//! Not here: ports and rings (`adapters`), routes ([`crate::switch`]), time: the caller says what it is.

mod aside;
pub mod change;
mod data;
mod expiry;
mod links;
pub mod migrate;
mod output;
pub mod parking;
mod sessions;
mod settle;
mod unheard;
mod view;
mod waiting;
mod watching;

use crate::chain::{Plan, Stages};
use crate::env::{Burst, Port};
use crate::flows::group::{GroupKey, room_for};
use crate::flows::{FlowStore, Room};
use crate::fragments::Tracker;
use crate::microthread::{Frame, Frames};
use crate::stats::{DropReason, Drops, Named, RuntimeStats};
use crate::watch::MaybeEye;
use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;
use arrayvec::ArrayVec;
use core::ptr::NonNull;
use nf::cx::{EventLog, RawCx};
use nf::{Affinity, ConfigError, Direction, Generation, Prefix, Reason, Side, WorkerInfo};
use wire::memory::Region;
use wire::{HashSeed, Orientation, PacketBox, PacketList, Pool};

pub(crate) use data::owner_by_plan;
pub(crate) use output::turn_around;
pub use view::{FlowEnds, FlowView};

/// What a runtime is made with. All bounds are per runtime.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Its number and the cluster's size, for the functions.
    pub info: WorkerInfo,
    /// Seed of the tables; the same for all workers of a cluster.
    pub seed: HashSeed,
    /// The most groups.
    pub groups_max: u32,
    /// The most calls waiting at once.
    pub waiting_max: u32,
    /// The most packets queued behind waiting calls.
    pub queued_max: u32,
    /// The most packets that wait for the same thing ([`nf::Cx::changed`]), in calls and behind them.
    pub share_max: u32,
    /// The most packets held for functions.
    pub held_max: u32,
    /// How long a flow lives for which no function asks for anything, in nanoseconds.
    pub timeout_default: u64,
    /// Datagrams whose fragments are followed at once.
    pub fragments_max: u32,
    /// The most groups on their way from here at once; [`migrate::MOVES_MAX`] at most, by which others bound what they keep.
    pub moves_max: u32,
    /// Flows of groups on their way from here at once, after which no other group begins to move.
    pub moved_flows_max: u32,
    /// The most packets kept for groups that are on their way.
    pub kept_max: u32,
    /// How long a move may take before it is given up, in nanoseconds, as far as it may be.
    pub move_timeout: u64,
    /// Bytes of event log between two visits of its reader.
    pub events_max: usize,
    /// How many switches there are, which is also the number of links; 0 for a runtime alone on one port.
    pub switches: u8,
    /// The switch whose ports are inside, and the one whose are outside.
    pub egress: [u8; 2],
    /// The addresses that are inside, where switches tell the side by them; else none.
    pub inside: Vec<Prefix>,
    /// Take the packets' own timestamps for the time (a replay), as far as they are ahead of what `step` is told.
    pub packet_clock: bool,
    /// The time at the start, in nanoseconds.
    pub now: u64,
}

impl Settings {
    /// A runtime alone on one port, for up to `flows_max` flows.
    pub fn alone(flows_max: u32) -> Self {
        Settings {
            info: WorkerInfo {
                runtime: 0,
                runtimes: 1,
                flows_max,
                seed: 1,
            },
            seed: HashSeed::FIXED,
            groups_max: flows_max,
            waiting_max: 1024,
            queued_max: 4096,
            // About what Linux keeps for a neighbour that it resolves (`unres_qlen`).
            share_max: 128,
            held_max: 1024,
            // RFC 4787 REQ-5 recommends five minutes for a mapping; a flow nobody speaks for is no better.
            timeout_default: 300_000_000_000,
            fragments_max: 1024,
            moves_max: migrate::MOVES_MAX,
            moved_flows_max: 1024,
            kept_max: 4096,
            move_timeout: 1_000_000_000,
            events_max: 1 << 20,
            switches: 0,
            egress: [0, 0],
            inside: Vec::new(),
            packet_clock: false,
            now: 0,
        }
    }
}

/// Jobs a packet may cause at once; more are counted drops.
const JOBS_MAX: usize = 16;

/// A packet on its way through a chain.
struct Job {
    actor: u32,
    packet: PacketBox,
    direction: Direction,
    /// Functions passed, counted in the packet's direction.
    passed: u8,
}

/// One runtime. `P` is the kind of its links, or of its one port.
pub struct Runtime<P: Port> {
    settings: Settings,
    plan: Plan,
    now: u64,
    flows: FlowStore,
    stages: Stages,
    fragments: Tracker,
    frames: Frames<waiting::Parked>,
    shares: waiting::Shares,
    /// The frame in hand.
    frame: u32,
    frame_ptr: NonNull<Frame>,
    jobs: ArrayVec<Job, JOBS_MAX>,
    /// First packets whose flows' second keys are not yet in the table.
    settling: settle::Queue,
    /// Why a settling flow was refused last.
    refused_for: DropReason,
    /// What nothing is said of while packets are taken up that waited behind a call: a group and a second key.
    lingering: ArrayVec<GroupKey, 2>,
    /// By actor, place in its chain, and whether in the opening direction.
    held: hashbrown::HashMap<(u32, u8, bool), PacketList>,
    held_count: u32,
    /// Those of them that are copies.
    copies: u32,
    /// What calls are told that may still be held.
    held_room: u32,
    queued_count: u32,
    turned: PacketList,
    links: Vec<P>,
    /// By link: what was taken off while buffers for messages were wanting, to be processed first.
    backlog: Vec<PacketList>,
    outputs: Vec<output::Output>,
    unsaid: output::Unsaid,
    pool: Pool,
    log: Box<EventLog>,
    drops: Drops,
    function_drops: Vec<Vec<u64>>,
    received: u64,
    passed: u64,
    emitted: u64,
    flows_opened: u64,
    flows_ended: u64,
    stalls: u64,
    /// Where [`Runtime::finish`] goes on.
    finish_cursor: u32,
    /// Whether functions are to be asked which flows they want ended.
    recalls: bool,
    /// Actors that packets without room may still have looked at in this step.
    early_looks: usize,
    moves: migrate::Moves<P>,
    sessions: sessions::Sessions,
    unheard: unheard::Unheard,
    /// Open while somebody watches.
    eye: MaybeEye,
    /// What a call that waits from now on was seen with.
    parking: watching::Look,
    /// Of the configuration in force; see [`change`].
    generation: Generation,
    prepared: Option<Box<change::Prepared>>,
    before: Option<Box<change::Before>>,
}

// SAFETY: the frame pointer points into `frames`, which moves with the runtime; stages are made for one worker and move
// with it; everything else is `Send` by itself. A runtime is used by one thread at a time.
unsafe impl<P: Port + Send> Send for Runtime<P> {}

/// What the frame in hand has for packets to come goes home: the memory of a pool that misses buffers is left to whoever has them, for ever ([`Pool`]), and tests
/// and simulations make thousands of runtimes.
impl<P: Port> Drop for Runtime<P> {
    fn drop(&mut self) {
        // SAFETY: the frame lies in `frames`, which is still there, and no call is under way.
        let spares = core::mem::take(unsafe { &mut (*self.frame_ptr.as_ptr()).cx.spares });
        for spare in spares {
            self.pool.give(spare);
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
    /// Makes a runtime. `memory` provides zeroed regions of the lengths asked for: heap, or large pages.
    pub fn new(
        settings: Settings,
        plan: Plan,
        links: Vec<P>,
        pool: Pool,
        memory: impl FnMut(usize) -> Region,
    ) -> Result<Self, (String, ConfigError)> {
        let stages = Stages::new(&plan, &settings.info)?;
        Ok(Self::with_stages(settings, plan, stages, links, pool, memory))
    }

    /// As [`Runtime::new`], of functions that are there already: nothing can fail any more, so no link is lost.
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
            settings.moves_max <= migrate::MOVES_MAX,
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
        };
        let mut log = Box::new(EventLog::new(settings.events_max, settings.info.runtime));
        let log_ptr = NonNull::from(&mut *log);
        let make_cx = || RawCx {
            now: 0,
            wake_at: RawCx::NO_WAKE,
            waits_for: 0,
            timeout: 0,
            key: NonNull::dangling(),
            flow: 0,
            opening: Orientation::Along,
            side: Side::Inside,
            direction: Direction::Opening,
            effects: 0,
            group: NonNull::dangling(),
            counters: NonNull::dangling(),
            log: log_ptr,
            spares: ArrayVec::new(),
            held: None,
            held_room: 0,
            copy: None,
            let_go: Default::default(),
            emitted: ArrayVec::new(),
            blocks: ArrayVec::new(),
            discard: Reason::UNDECLARED,
            pinned: core::marker::PhantomPinned,
        };
        let waiting = settings.waiting_max as usize;
        let frames_region = memory(Frames::<waiting::Parked>::region_length(
            waiting,
            stages.future_size,
        ));
        let mut frames = Frames::new(frames_region, waiting, stages.future_size, make_cx);
        let frame = frames.take().expect("there is one frame more than may wait");
        let function_drops = stages
            .functions
            .iter()
            .map(|stage| alloc::vec![0; stage.reasons().len() + 1])
            .collect();
        Runtime {
            now: settings.now,
            flows: FlowStore::new(&room, affinity, settings.seed, settings.now, &mut memory),
            fragments: Tracker::new(settings.fragments_max as usize, settings.seed),
            frame_ptr: frames.frame(frame),
            frame,
            frames,
            shares: waiting::Shares::new(waiting),
            jobs: ArrayVec::new(),
            settling: settle::Queue::default(),
            refused_for: DropReason::ReplyKeyTaken,
            lingering: ArrayVec::new(),
            held: hashbrown::HashMap::with_capacity(room_for(settings.held_max as usize)),
            held_count: 0,
            copies: 0,
            held_room: 0,
            queued_count: 0,
            turned: PacketList::new(),
            outputs: links.iter().map(|_| output::Output::default()).collect(),
            unsaid: output::Unsaid::with_capacity(output::UNSAID),
            backlog: links.iter().map(|_| PacketList::new()).collect(),
            sessions: sessions::Sessions::new(&links, affinity),
            unheard: unheard::Unheard::new(&links, settings.switches, settings.now),
            links,
            pool,
            log,
            drops: Drops::default(),
            function_drops,
            received: 0,
            passed: 0,
            emitted: 0,
            flows_opened: 0,
            flows_ended: 0,
            stalls: 0,
            finish_cursor: 0,
            recalls: false,
            early_looks: 0,
            moves: migrate::Moves::new(),
            eye: None,
            parking: watching::Look::NONE,
            generation: Generation(1),
            prepared: None,
            before: None,
            stages,
            plan,
            settings,
        }
    }

    /// Does some of everything there is to do. `now` is in nanoseconds and never goes back.
    pub fn step(&mut self, now: u64) -> Work {
        self.now = self.now.max(now);
        self.measure_held_room();
        let mut work = Work::default();
        self.write_unsaid();
        self.early_looks = BURST_LOOKS;
        if self.has_room_for_messages() || self.fetch_home() {
            for link in 0..self.links.len() {
                if !self.unsaid.is_empty() {
                    break;
                }
                let mut burst = Burst::new();
                while !burst.is_full()
                    && let Some(packet) = self.backlog[link].pop()
                {
                    burst.push(packet);
                }
                // What was put aside came before it.
                if !self.is_session_over(link) {
                    self.links[link].receive(self.now, &mut self.pool, &mut burst);
                }
                work.packets += burst.len();
                self.data(link, &mut burst);
                if self.is_session_over(link) && self.backlog[link].is_empty() {
                    self.session_over(link);
                }
            }
            work.other += self.hear_runtimes();
            while let Some(packet) = self.turned.pop() {
                let mut burst = Burst::new();
                burst.push(packet);
                self.take_up(0, &mut burst);
            }
            self.look_for_changes();
            work.other += self.wake(BURST_WAKES);
            if self.fragments.expire(self.now) {
                work.other += self.drop_fragments();
            }
            self.settle_all();
            work.other += self.recall();
            work.other += self.expire(self.early_looks);
            work.other += self.walk();
            work.other += self.go_on_moving();
            work.other += self.go_on_telling();
            work.other += self.let_heard_go();
        } else {
            // Buffers come home from other runtimes, too.
            work.other += self.hear_runtimes();
            self.stalls += 1;
        }
        self.transmit_all();
        work
    }

    /// Ends up to `budget` flows as if they had expired; `true` when none is left. For a graceful stop.
    pub fn finish(&mut self, budget: usize) -> bool {
        self.stop_moving();
        self.let_unheard_go();
        self.fragments.finish();
        self.drop_fragments();
        let done = self.end_all(budget);
        self.transmit_all();
        done && self.unsaid.is_empty()
    }

    /// Whether any call waits.
    pub fn has_waiting(&self) -> bool {
        self.frames.waiting() > 0
    }

    /// When the next waiting call or packet is due, if anything is known to be.
    pub fn next_at(&self) -> Option<u64> {
        self.frames
            .next_wake()
            .into_iter()
            .chain(self.links.iter().filter_map(Port::next_at))
            .min()
    }

    /// Whether no link will ever bring anything again.
    pub fn finished(&self) -> bool {
        self.links.iter().all(Port::finished)
            && self.turned.is_empty()
            && self.backlog.iter().all(PacketList::is_empty)
            && self.moves.is_idle()
            && self.moves.has_said_all()
            && self.unsaid.is_empty()
            && self.unheard.is_empty()
    }

    /// The links, for tests and drivers.
    pub fn links_mut(&mut self) -> &mut [P] {
        &mut self.links
    }

    /// The pool, for tests and drivers.
    pub fn pool(&self) -> &Pool {
        &self.pool
    }

    /// Hands out the event log's lines.
    pub fn take_events(&mut self, out: &mut String) {
        self.log.take(out);
    }

    /// Gives an operator's words to a function, by the name the configuration calls it.
    pub fn command(&mut self, function: &str, words: &[&str]) -> Result<String, String> {
        match self.stages.names.iter().position(|name| name == function) {
            Some(index) => {
                // The command may be one that ends flows.
                self.recalls = true;
                self.stages.functions[index].command(words)
            }
            None => Err(alloc::format!(
                "there is no function `{function}`; there are: {}",
                self.stages.names.join(", ")
            )),
        }
    }

    /// The numbers so far.
    pub fn stats(&self) -> RuntimeStats {
        let mut dropped = Vec::new();
        for reason in DropReason::ALL {
            let count = self.drops.of(reason);
            if count > 0 {
                dropped.push(Named {
                    function: String::new(),
                    name: reason.name(),
                    count,
                });
            }
        }
        let mut counters = Vec::new();
        for (index, stage) in self.stages.functions.iter().enumerate() {
            let function = &self.stages.names[index];
            let names = stage.reasons().iter().chain(core::iter::once(&"undeclared"));
            for (name, count) in names
                .zip(&self.function_drops[index])
                .filter(|(_, count)| **count > 0)
            {
                dropped.push(Named {
                    function: function.clone(),
                    name,
                    count: *count,
                });
            }
            for (name, count) in stage.counters().iter().zip(self.stages.counters(index)) {
                counters.push(Named {
                    function: function.clone(),
                    name,
                    count: *count,
                });
            }
        }
        RuntimeStats {
            received: self.received,
            passed: self.passed,
            emitted: self.emitted,
            held: u64::from(self.held_count - self.copies + self.queued_count)
                + self.frames.waiting() as u64
                + self.moves.kept() as u64
                + self.unheard.held() as u64
                + self.turned.len() as u64
                + self.fragments.held() as u64,
            dropped,
            counters,
            flows: self.flows.active() as u64,
            flows_max: self.flows.capacity() as u64,
            flows_opened: self.flows_opened,
            flows_ended: self.flows_ended,
            flows_moved: self.moves.flows_moved,
            packets_moved: self.moves.packets_moved,
            leaving: self.moves.is_leaving,
            flows_refused: self.moves.flows_refused,
            words_refused: self.moves.words_refused,
            groups: self.flows.groups().len() as u64,
            waiting: self.frames.waiting() as u64,
            events_lost: self.log.lost(),
            stalls: self.stalls,
            generation: self.generation.0,
        }
    }
}

/// Calls resumed in a step at most.
const BURST_WAKES: usize = 32;
/// Actors whose deadline is looked at in a step at most.
const BURST_LOOKS: usize = 64;
