//! Groups that move from one runtime to another while their packets flow (NFVactor V-B, NFActor 5).
//!
//! # Theory of operation
//!
//! Who may process, and when, is [`protocols::ownership`]'s to say: one machine per group that moves, here for its source and its
//! target, in the switches (`switch::moves`) for its routes. This module carries out what the machines say, with the group's flows,
//! its state and its packets. Runtimes share a link each way, which keeps order, as they do with switches.
//!
//! ```text
//!   order ─► queue of groups ─► at most `moves_max` on their way
//!                                │ source: frozen: no new flow of the group begins; its first packets are kept
//!                                │ Open with the number of flows and the announced second keys; slots are reserved at the target
//!                                │ Accept ─► Reroute per key and home, Rerouted; flows go on
//!                                │ no call of it waits, or all may begin again ─► Behind to every switch, then the bytes, in frames full of flows:
//!                                │   blocks, group state, per flow its facts and all states, packets held for it
//!                                │   then the first packets that were kept, then State
//!                                ▼ target: all Clear ─► into the tables, `arrived(Migrated)`; what was handed over, what was kept
//!                                  Done with its figures ─► source: `departed(Migrated)`, the copy goes
//! ```
//!
//! What is constant while a group moves makes this simple: its flows may end, but none begins and so no second key and no block
//! is added. A call that waits is given up, where its function says that it may begin again: its packet goes along with the flow. Any other delays the move, and after [`Settings::move_timeout`](super::Settings::move_timeout) it is called
//! back: the source then pins the group's flows, keeps all its packets, and processes them in the order of [`Class`] when all homes
//! have answered and the target has handed over what it kept.
//!
//! Nobody says *idle* of a group while it moves ([`Moves::defers`]), the target not before the source has dropped its copy: a route
//! that ends may begin anew there. Who has the group when the move is over looks whether there is a flow.
//!
//! Where packets carry the time, so many steps stand for the timeout's nanoseconds divided by [`STEP`]: a capture's clock leaps.
//!
//! Invariants: those of the machines; packets kept are bounded (beyond is a counted drop, `moving_full`) and counted as held;
//! an established flow that is not moving costs nothing; what was reserved for an accepted Open is there when it comes; no word to a runtime
//! is lost: without a buffer it waits (`words.rs`).
//!
//! What comes from another runtime may be anything, since it may be another process: lengths, counts, keys, chains and blocks are held against
//! what was announced and what there is here, and a flow's bytes against its functions' schemas, before anybody takes them for a state
//! ([`Plain::is_valid`](nf::plain::Plain::is_valid)). A flow that is none is over (`flows_refused`), a word that nobody may say is not heard
//! (`words_refused`).
//!
//! *Said again.* A link loses nothing while its session lasts, so one word only is repeated: that a group is called back ([`AGAIN`]). A switch that has not yet seen
//! that a target began anew says *moved* to the one before it, and nobody would tell the new one. A switch that has not answered has it still to read, and
//! who is slow is told twice as late each time. A target remembers which of these words it has answered: the second one may be late, and the group there by another way.
//!
//! Not here: replicas.

mod ahead;
mod answers;
mod bytes;
mod clocks;
mod gone;
mod hearing;
mod kept;
mod lost;
mod order;
mod source;
mod target;
mod telling;
mod words;

pub use order::{KEPT as ORDERS_MAX, Order, OrderError, Receipt, Selector};

use super::Runtime;
use crate::env::Port;
use crate::flows::group::GroupKey;
use crate::message::Message;
use crate::stats::DropReason;
use alloc::collections::{BTreeSet, VecDeque};
use alloc::vec::Vec;
use arrayvec::ArrayVec;
use bytes::{Figures, Record};
use hashbrown::HashMap;
use nf::Affinity;
use protocols::ownership::{
    Epoch, Input, Output, Ownership, Phase as Part, RuntimeId, Says, Switches, TellSwitch, Timer,
};
use telling::Telling;
use wire::{HashSeed, PacketBox};

/// No runtime has more groups on their way to others at once.
pub const MOVES_MAX: u32 = 256;
/// In a replay, what a step counts for against the timeout, in nanoseconds.
pub const STEP: u64 = 1000;
/// How long, in nanoseconds, a group that is called back waits for the target's word before its homes are told again.
const AGAIN: u64 = 1_000_000_000;
/// Buffers without which nothing is heard from other runtimes: what a burst of words is answered with, and some more.
const ANSWERS: usize = 48;
/// How many flows' lines are fetched ahead.
const AHEAD: usize = 16;

/// When a kept packet is processed, by what it was kept as; within a class as they came.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Class {
    /// By the source, from before a home's answer.
    Before,
    /// Handed over.
    Handed,
    /// From behind a home's answer, or by the target.
    Behind,
}

struct Kept {
    packet: PacketBox,
    home: u8,
    class: Class,
}

/// A group that is on its way, at one end.
struct Moving {
    machine: Ownership,
    group: GroupKey,
    /// Its flows, while they last.
    actors: Vec<u32>,
    /// Second keys that were announced.
    aliases: Vec<GroupKey>,
    kept: Vec<Kept>,
    dropped: u32,
    /// By [`Runtime::moving_time`]: when it is given up; of one that is called back, when that is said again.
    deadline: u64,
    /// Source: how long that is from the last time that it was said.
    again: u64,
    /// Source: which order.
    order: u32,
    /// Source: which runtime is to take it, and to which it was offered, that one among them.
    to: u16,
    tried: order::Tried,
    /// Source: when the homes were told.
    rerouted_at: u64,
    /// Source: no call waits is still to be said.
    is_settling: bool,
    /// Source: its flows are pinned.
    is_pinned: bool,
    /// Source: a switch that began anew was told of it when the state was sent.
    is_told_late: bool,
    /// Source: blocks that it was told of then.
    blocks_told: Vec<nf::Block>,
    /// Target: the group is called back, and its home there is gone; to be acted on when nothing comes from it any more.
    backs: Vec<(u8, Says)>,
    /// Blocks that switches have asked about, and which have.
    asked: Vec<(usize, nf::Block)>,
    /// The same of its keys, by their words.
    keys_asked: BTreeSet<(usize, [u64; 5])>,
    /// Source: the target is gone, so that switches may have forgotten the routes that led there.
    is_to_be_routed: bool,
    /// Target: what came of the group as a whole is not as it must be.
    is_unsound: bool,
    /// Source: flows that it had when it began.
    weight: u32,
    /// Target: flows that were reserved and have not come.
    reserved: u32,
    /// Target: since when flows' times left count, and by how much the clock here is ahead of the source's.
    clocks: clocks::Clocks,
    /// Target: what it will tell of the installation.
    figures: Figures,
    /// Target: the group's state.
    state: Vec<u8>,
    blocks: Vec<nf::Block>,
}

/// All that a runtime has to do with moves.
pub struct Moves<P> {
    peers: Vec<Option<P>>,
    /// What is to be sent to each of them, in order.
    outgoing: Vec<words::Outgoing>,
    /// Of that, how much waits for buffers.
    unsaid: usize,
    /// Buffers that are left alone when words to runtimes are said.
    spared: usize,
    /// Where the stream of each stands.
    incoming: Vec<bytes::Stream>,
    /// Groups and their second keys, by hash: where they are in `all`.
    index: HashMap<u64, u32>,
    all: Vec<Option<Moving>>,
    free: Vec<u32>,
    orders: order::Orders,
    /// What switches are still to be told.
    telling: VecDeque<Telling>,
    /// What switches have asked and are still to be answered.
    answers: answers::Answers,
    /// States that are being sent.
    sending: VecDeque<source::Sending>,
    /// Told when they are settled.
    settling: Vec<u32>,
    /// Higher than any epoch that a group here ever had: kept for all groups at once.
    clock: Epoch,
    kept: usize,
    reserved: usize,
    /// Groups of which the target has yet to see whether they are idle: those whose packets are being processed.
    draining: Option<Vec<GroupKey>>,
    /// Groups that are called back.
    pinned: u32,
    /// Blocks that switches have returned, and which have.
    returned: HashMap<nf::Block, Switches>,
    /// Slots closed because their source was gone: what it may have had said of them (`lost`).
    closed: VecDeque<lost::Closed>,
    /// Words that groups are called back which have been answered, by which switch: of those that come once more nothing follows.
    ended: VecDeque<(GroupKey, RuntimeId, Epoch, u8)>,
    pub(super) is_leaving: bool,
    /// Steps, in a replay.
    steps: u64,
    /// In and out.
    pub(super) flows_moved: [u64; 2],
    /// In and out.
    pub(super) packets_moved: [u64; 2],
    pub(super) flows_refused: u64,
    pub(super) words_refused: u64,
}

impl<P: Port> Moves<P> {
    /// Of a runtime that has moved nothing.
    pub(super) fn new() -> Self {
        Moves {
            peers: Vec::new(),
            outgoing: Vec::new(),
            unsaid: 0,
            spared: 0,
            incoming: Vec::new(),
            index: HashMap::new(),
            all: Vec::new(),
            free: Vec::new(),
            orders: order::Orders::default(),
            telling: VecDeque::new(),
            answers: VecDeque::new(),
            sending: VecDeque::new(),
            settling: Vec::new(),
            clock: Epoch::default(),
            kept: 0,
            reserved: 0,
            draining: None,
            pinned: 0,
            returned: HashMap::new(),
            closed: VecDeque::new(),
            ended: VecDeque::new(),
            is_leaving: false,
            steps: 0,
            flows_moved: [0; 2],
            packets_moved: [0; 2],
            flows_refused: 0,
            words_refused: 0,
        }
    }

    /// The links to the other runtimes, by their numbers.
    pub(super) fn peers_mut(&mut self) -> &mut [Option<P>] {
        &mut self.peers
    }

    /// Whether no group is on its way, to or from here.
    #[inline]
    pub(super) fn is_idle(&self) -> bool {
        self.index.is_empty()
    }

    /// Actors that accepted moves will need.
    #[inline]
    pub(super) fn reserved_flows(&self) -> usize {
        self.reserved
    }

    /// Whether nothing waits for buffers to be said.
    pub(super) fn has_said_all(&self) -> bool {
        self.unsaid == 0 && self.telling.is_empty() && self.answers.is_empty()
    }

    /// How many groups are on their way, to and from here.
    fn under_way(&self) -> usize {
        self.all.len() - self.free.len()
    }

    /// Whether there is a link to a runtime.
    fn has_peer(&self, runtime: RuntimeId) -> bool {
        self.peers
            .get(usize::from(runtime.0))
            .is_some_and(Option::is_some)
    }

    /// Packets kept.
    pub(super) fn kept(&self) -> usize {
        self.kept
    }

    /// Whether a group, or second key, is on its way.
    pub(super) fn is_moving(&self, group: &GroupKey, seed: &HashSeed) -> bool {
        self.index.contains_key(&group.hash(seed))
    }

    /// Whether it is not yet to be said that this group, or second key, is idle: it moves.
    pub(super) fn defers(&mut self, group: GroupKey, seed: &HashSeed) -> bool {
        if let Some(draining) = &mut self.draining {
            draining.push(group);
            return true;
        }
        if self.index.is_empty() {
            return false;
        }
        let Some(id) = self.at(group.hash(seed)) else {
            return false;
        };
        let is_over = |part| matches!(part, Part::Absent | Part::Active | Part::Tombstone { .. });
        self.moving(id)
            .is_some_and(|moving| !is_over(moving.machine.phase()))
    }

    fn at(&self, hash: u64) -> Option<u32> {
        self.index.get(&hash).copied()
    }

    fn moving(&mut self, id: u32) -> Option<&mut Moving> {
        self.all.get_mut(id as usize)?.as_mut()
    }

    /// Notes a group by its hash, and those of its second keys that no other is known by: a flow of either end may begin with a reply.
    fn insert(&mut self, hash: u64, seed: &HashSeed, moving: Moving) -> u32 {
        let aliases: Vec<_> = moving.aliases.iter().map(|key| key.hash(seed)).collect();
        let id = match self.free.pop() {
            Some(id) => {
                self.all[id as usize] = Some(moving);
                id
            }
            None => {
                self.all.push(Some(moving));
                (self.all.len() - 1) as u32
            }
        };
        self.index.insert(hash, id);
        for alias in aliases {
            self.index.entry(alias).or_insert(id);
        }
        id
    }

    fn remove(&mut self, id: u32, seed: &HashSeed) -> Option<Moving> {
        let moving = self.all.get_mut(id as usize)?.take()?;
        for key in moving.aliases.iter().chain([&moving.group]) {
            let hash = key.hash(seed);
            // Where two flows have one key, another's group may be known by it.
            if self.index.get(&hash) == Some(&id) {
                self.index.remove(&hash);
            }
        }
        self.free.push(id);
        self.orders.note_end(moving.weight);
        Some(moving)
    }
}

impl<P: Port> Runtime<P> {
    /// Joins this runtime with the others: `peers` are its links to them by their numbers, `None` for itself.
    pub fn join(&mut self, peers: Vec<Option<P>>) {
        self.moves.outgoing = peers.iter().map(|_| words::Outgoing::default()).collect();
        self.moves.spared = self.message_frames() + ANSWERS;
        self.moves.incoming = peers.iter().map(|_| bytes::Stream::default()).collect();
        self.note_runtimes(
            peers
                .iter()
                .map(|peer| peer.as_ref().map_or(0, Port::session))
                .collect(),
        );
        self.moves.peers = peers;
    }

    /// Counts what is nothing that anybody may say.
    #[cold]
    pub(super) fn refuse_word(&mut self) {
        self.moves.words_refused += 1;
    }

    fn me(&self) -> RuntimeId {
        RuntimeId(self.settings.info.runtime)
    }

    /// The time that moves are measured by.
    fn moving_time(&self) -> u64 {
        if self.settings.packet_clock {
            self.moves.steps * STEP
        } else {
            self.now
        }
    }

    /// What moves of the states of a flow of a chain; none if there is no such chain.
    fn travelling(&self, chain: u8) -> Option<bytes::Travelling> {
        let group = match self.flows.affinity() {
            Affinity::Flow => (self.flows.group_offset(), self.stages.group_size),
            _ => (0, 0),
        };
        let own = self.stages.fresh_of(chain)?.len();
        Some(bytes::Travelling { own, group })
    }

    fn all_switches(&self) -> Switches {
        Switches::first(self.settings.switches)
    }

    /// Gives a machine an input and carries out what it says.
    fn drive(&mut self, id: u32, input: Input) {
        let Some(moving) = self.moves.moving(id) else {
            return;
        };
        let mut outputs = ArrayVec::<Output, 8>::new();
        moving.machine.handle(input, |output| {
            // Of a recalled group all that was kept is processed together, at the end, in order.
            if !matches!(output, Output::Release(_)) {
                outputs.push(output);
            }
        });
        let (group, part) = (moving.group, moving.machine.phase());
        for output in outputs {
            self.carry_out(id, group, output);
        }
        match part {
            Part::Returning { .. } => self.pin(id),
            // The links lose nothing and keep order: nobody will speak of it again.
            Part::Absent | Part::Active | Part::Tombstone { .. } => self.end_moving(id),
            _ => {}
        }
        if self.sessions.has_absent() {
            self.answer_for_absent(id);
        }
    }

    fn carry_out(&mut self, id: u32, group: GroupKey, output: Output) {
        match output {
            Output::Tell(to, says) => match says {
                Says::Open(..) => self.open(id, to.0, says),
                Says::Done(_) => self.say_done(id, to.0, says),
                Says::End(epoch, home) => {
                    self.moves.note_ended((group, to, epoch, home));
                    self.tell_runtime(to.0, group, says);
                }
                _ => self.tell_runtime(to.0, group, says),
            },
            Output::TellSwitches(switches, TellSwitch::Reroute { from, to, epoch }) => {
                self.moves.clock = self.moves.clock.max(epoch);
                let now = self.moving_time();
                if let Some(moving) = self.moves.moving(id) {
                    moving.rerouted_at = now;
                }
                self.reroute(id, switches, from, to, epoch);
            }
            Output::TellSwitches(switches, TellSwitch::Behind { to, epoch }) => {
                for switch in switches.iter() {
                    self.append(usize::from(switch), &Message::Behind(group, to, epoch));
                }
            }
            Output::Settle => {
                if let Some(moving) = self.moves.moving(id) {
                    moving.is_settling = true;
                    self.moves.settling.push(id);
                }
            }
            Output::SendState(to, epoch) => self.send_state(id, to.0, epoch),
            Output::Install => self.install(id),
            Output::Depart => self.depart(id),
            Output::HandOver(to, home) => self.hand_over_kept(id, to.0, Some(home)),
            Output::CloseSlot => self.close_slot(id),
            Output::Finished(how) => self.finished_moving(id, how),
            Output::Stop => self.stop(id, group),
            Output::Orphaned => self.take_back(id),
            Output::Release(_) => {}
        }
    }

    /// Says something of a group to another runtime.
    fn tell_runtime(&mut self, to: u16, group: GroupKey, says: Says) {
        if self.has_said_too_much(to) {
            return self.refuse_word();
        }
        self.append_record(
            to,
            &Record::Says {
                group,
                says,
                flows: 0,
                figures: Figures::default(),
            },
        );
    }

    /// Nothing more is to be done for a group that moved, or did not.
    fn end_moving(&mut self, id: u32) {
        let Some(moving) = self.moves.remove(id, &self.settings.seed) else {
            return;
        };
        if moving.is_told_late {
            self.tell_over(&moving);
        }
        if !moving.asked.is_empty() || !moving.keys_asked.is_empty() {
            self.answer_asked(&moving);
        }
        if !self.moves.sending.is_empty() {
            self.moves.sending.retain(|sending| sending.id != id);
        }
        for stream in &mut self.moves.incoming {
            if stream.group == Some(id) {
                (stream.group, stream.actor) = (None, None);
            }
        }
        self.moves.reserved -= moving.reserved as usize;
        self.moves.pinned -= u32::from(moving.is_pinned);
        self.unpin(&moving.actors, moving.group);
        match moving.machine.phase() {
            // Here, at whichever end: what was kept goes on, and whether the group is idle is to be seen now.
            Part::Active => {
                if moving.is_to_be_routed {
                    self.claim_again(moving.group);
                    self.say_routed(moving.group, moving.aliases.clone());
                }
                self.begin_again(&moving.actors);
                self.process_kept(moving.kept, moving.group, moving.aliases);
            }
            // There: nothing is kept. Or a slot that is closed: by its source, before anything came, or since that is gone.
            _ => {
                self.moves.kept -= moving.kept.len();
                for kept in moving.kept {
                    self.drop_packet(kept.packet, DropReason::PeerGone);
                }
            }
        }
    }

    /// Goes on with all moves; answers how much was done.
    #[inline]
    pub(super) fn go_on_moving(&mut self) -> usize {
        if self.moves.index.is_empty()
            && self.moves.orders.is_idle()
            && self.moves.telling.is_empty()
            && self.moves.answers.is_empty()
        {
            return 0;
        }
        self.move_on()
    }

    #[cold]
    fn move_on(&mut self) -> usize {
        self.moves.steps += 1;
        let mut work = self.go_on_telling_keys() + self.go_on_answering() + self.go_on_selecting();
        work += self.begin_moves();
        work += self.settle_moves();
        work += self.send_states();
        self.watch_moves();
        work
    }

    /// Gives up what takes too long, and pins again what has woken up.
    fn watch_moves(&mut self) {
        let now = self.moving_time();
        if self.moves.pinned == 0 && !self.moves.steps.is_multiple_of(64) {
            // Nothing there is urgent, and there may be many.
            return;
        }
        for id in 0..self.moves.all.len() as u32 {
            let Some(moving) = self.moves.moving(id) else {
                continue;
            };
            let is_late = moving.deadline <= now;
            if is_late && moving.machine.is_armed(Timer::Deadline) {
                self.drive(id, Input::Fired(Timer::Deadline));
            } else if moving.is_pinned {
                self.pin(id);
                if is_late {
                    self.call_back_again(id, now);
                }
            }
        }
    }

    /// Tells the homes of a group that is called back so once more, if all have answered, and the target has not.
    #[cold]
    fn call_back_again(&mut self, id: u32, now: u64) {
        let Some(moving) = self.moves.moving(id) else {
            return;
        };
        moving.deadline = now.saturating_add(moving.again);
        if let Part::Returning { unanswered, .. } = moving.machine.phase()
            && unanswered.is_empty()
        {
            moving.again = moving.again.saturating_mul(2);
            self.drive(id, Input::Fired(Timer::Retry));
        }
    }

    /// Begins no more moves: the end is near.
    pub(super) fn stop_moving(&mut self) {
        self.moves.orders.stop();
    }

    /// How long moves that begin from now on may take, in nanoseconds, before they are given up.
    pub fn set_move_timeout(&mut self, timeout: u64) {
        self.settings.move_timeout = timeout;
    }

    /// Takes no more groups from other runtimes, or does again.
    pub fn set_leaving(&mut self, is_leaving: bool) {
        self.moves.is_leaving = is_leaving;
    }
}
