//! Groups that move from one runtime to another while their packets flow (NFVactor V-B, NFActor 5).
//!
//! # Theory of operation
//!
//! [`protocols::ownership`] says which runtime may process, and when: one machine per group that
//! moves, here for its source and its target, in the switches (`switch::directory`) for its routes.
//! This module carries out what the machines say, with the group's flows, its state and its
//! packets. Runtimes share a link each way, which keeps order, as they do with switches.
//!
//! ```text
//!   order ─► queue of groups ─► at most `moves_max` on their way
//!                                │ source: frozen: no new flow of the group begins; its first packets are kept
//!                                │ Open with the number of flows and the announced reply keys; slots are reserved at the target
//!                                │ Accept ─► Reroute per key and home, Rerouted; flows go on
//!                                │ no call of it waits, or all may begin again ─► DrainMarker to every switch, then the bytes, in frames full of flows:
//!                                │   blocks, group state, per flow its facts and all states, packets held for it
//!                                │   then the first packets that were kept, then State
//!                                ▼ target: all Drained ─► into the tables, `arrived(Migrated)`; packets handed over, packets kept
//!                                  Done with its figures ─► source: `departed(Migrated)`, the copy goes
//! ```
//!
//! A group that moves gains nothing, which makes this simple: its flows may end, but none begins
//! and so no reply key and no block is added. A call that waits is given up, where its function
//! says that it may begin again: its packet goes along with the flow. Any other delays the move,
//! and after [`Settings::move_timeout`](super::Settings::move_timeout) it is called back: the
//! source then pins the group's flows, keeps all its packets, and processes them in the order of
//! [`Class`] when all homes have answered and the target has handed over its kept packets.
//!
//! It is not said that a group is *idle* while it moves ([`crate::parts::Silent`]), the target not
//! before the source has dropped its copy: a route that ends may begin again there. The runtime
//! that has the group when the move is over looks whether there is a flow.
//!
//! Where packets carry the time, so many steps stand for the timeout's nanoseconds divided by
//! [`STEP`]: a capture's clock leaps.
//!
//! Invariants: those of the machines; packets kept are bounded (beyond is a counted drop,
//! `moving_full`) and counted as held; an established flow that is not moving costs nothing; the
//! reserved room of an accepted Open is there when it comes; no word to a runtime is lost: without
//! a buffer it waits (`outbox/runtimes.rs`).
//!
//! Records from another runtime may be anything, since it may be another process: lengths, counts,
//! keys, chains and blocks are held against the announcement and the state here. A flow's bytes are
//! held against its functions' schemas before a function takes them for a state
//! ([`Plain::is_valid`](nf::plain::Plain::is_valid)). A flow that is malformed is over
//! (`flows_refused`), a word that its sender may not say is not heard (`words_refused`).
//!
//! *Said again.* A link loses nothing while its session lasts, so two words only are repeated: that
//! a group is taken back ([`TAKEN_AGAIN`]), or called back ([`AGAIN`]). A switch that has not yet
//! seen that a target began again says *moved* to the target before it, and no switch would tell
//! the new one. A switch that has not answered has the word still to read, and a slow one is told
//! twice as late each time. A target remembers which of these words it has answered: the second one
//! may be late, and the group there by another way. Other words that a slot still waits for are not
//! repeated: the source's incarnation before may have had the same said.
//!
//! Not here: replicas ([`crate::replica`]).

mod answers;
mod begin;
mod buffering;
mod clocks;
mod drive;
mod intake;
mod messages;
mod order;
mod peer_failure;
mod prefetch;
mod source;
mod stored;
mod switch_failure;
mod target;

pub use order::{KEPT as ORDERS_MAX, MoveOrder, OrderError, Receipt, Selector};

use crate::flows::group::GroupKey;
use crate::parts::Core;
use crate::record::{self, InstallStats, Record};
use crate::stats::Durations;
use alloc::collections::{BTreeSet, VecDeque};
use alloc::vec::Vec;
use hashbrown::HashMap;
pub(crate) use messages::KeyMessage;
use messages::KeyMessages;
use peer_failure::{CLOSED, Closed};
use protocols::ownership::{Epoch, Ownership, Phase as Part, RuntimeId, RuntimeMessage, Switches};
use wire::{HashSeed, PacketBox};

pub use crate::settings::MOVES_MAX;

/// In a replay, the time that a step counts for against the timeout, in nanoseconds.
pub const STEP: u64 = 1000;
/// How long, in nanoseconds, a group that is called back waits for the target's word before its
/// homes are told again.
const AGAIN: u64 = 1_000_000_000;
/// The same of a group that is taken back, from the first word on. A switch answers that when it
/// has seen that the target is gone, and its heir has had its turn.
const TAKEN_AGAIN: u64 = 10_000_000;
/// From then on a switch that has not seen it is told that this was said for long: longer than it
/// takes each worker to see that a runtime is gone.
const LATE: u64 = 4_000_000_000;
/// Buffers without which no record is heard from other runtimes: for the answers to a burst of
/// words, and some more.
pub(crate) const ANSWERS: usize = 48;
/// How many flows' lines are fetched ahead.
const AHEAD: usize = 16;

/// When a kept packet is processed, by what it was kept as; within a class as they came.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Class {
    /// By the source, from before a home's answer.
    Before,
    /// Handed over.
    Handed,
    /// From behind a home's answer, or by the target.
    Behind,
}

pub(crate) struct Buffered {
    pub packet: PacketBox,
    pub home: u8,
    pub class: Class,
}

/// The worker's part of a move, since it has to do with packets of any flow: in order, before it
/// takes up the next packet or message.
pub(crate) enum Effect {
    /// Calls of these flows that were given up begin again.
    BeginAgain(Vec<u32>),
    /// The packets kept for a group are processed. Of its keys the group's own is the last.
    Process {
        buffered: Vec<Buffered>,
        keys: Vec<GroupKey>,
    },
}

/// A group that is on its way, at one end.
struct Moving {
    /// Whether its keys are silent ([`crate::parts::Silent`]).
    is_silent: bool,
    machine: Ownership,
    group: GroupKey,
    /// Its flows, while they last.
    actors: Vec<u32>,
    /// Reply keys that were announced.
    reply_keys: Vec<GroupKey>,
    buffered: Vec<Buffered>,
    dropped: u32,
    /// By [`Moves::moving_time`]: when it is given up; of a group that is called back, when that is
    /// said again.
    deadline: u64,
    /// Source: how long that is from the last time that it was said.
    again: u64,
    /// Source: since when it is taken back.
    taken_at: u64,
    /// Source: which order.
    order: u32,
    /// Source: which runtime is to take it, and to which it was offered, that one among them.
    to: u16,
    tried: order::Tried,
    /// Source: when the homes were told.
    rerouted_at: u64,
    /// Source: no call waits is still to be said.
    is_quiescing: bool,
    /// Source: its flows are pinned.
    is_pinned: bool,
    /// Source: a switch that began again was told of it when the state was sent.
    is_resynced_late: bool,
    /// Source: blocks that it was told of then.
    blocks_tentative: Vec<nf::Block>,
    /// Target: the group is called back, and its home there is gone; to be acted on when nothing
    /// comes from it any more.
    backs: Vec<(u8, RuntimeMessage)>,
    /// Blocks that switches have asked about, and which have.
    asked: Vec<(usize, nf::Block)>,
    /// The same of its keys, by their words.
    keys_asked: BTreeSet<(usize, [u64; 5])>,
    /// Source: the target is gone, so that switches may have forgotten the routes that led there.
    is_to_be_routed: bool,
    /// Target: the group's own records are not as they must be.
    is_unsound: bool,
    /// Source: flows that it had when it began.
    weight: u32,
    /// Target: flows that were reserved and have not come.
    reserved: u32,
    /// Target: since when flows' times left count, and by how much the clock here is ahead of the
    /// source's.
    clocks: clocks::Clocks,
    /// Target: its report of the installation.
    install_stats: InstallStats,
    /// Target: *Done* as it waits to be said (`stored`).
    done_waiting: Option<RuntimeMessage>,
    /// Target: the group's state.
    state: Vec<u8>,
    /// Target: how long it rests from *begin* on, if it does.
    rests: Option<u64>,
    blocks: Vec<nf::Block>,
}

/// A runtime's groups on their way, and its orders.
pub(crate) struct Moves {
    /// By runtime: whether there is a link to it, and whether its clock is another one.
    peers: Vec<Option<bool>>,
    /// By runtime: whether it has offered this incarnation a group.
    opened: Vec<bool>,
    effects: VecDeque<Effect>,
    /// Where the stream of each stands.
    incoming: Vec<record::Stream>,
    /// Groups and their reply keys, by hash: where they are in `all`.
    index: HashMap<u64, u32>,
    all: Vec<Option<Moving>>,
    free: Vec<u32>,
    orders: order::Orders,
    /// Messages that switches are still to be told.
    key_messages: VecDeque<KeyMessages>,
    /// Questions of switches that are still to be answered.
    answers: answers::Answers,
    /// States that are being sent.
    sending: VecDeque<source::Sending>,
    /// Told when they are settled.
    quiescing: Vec<u32>,
    /// Higher than any epoch that a group here ever had: kept for all groups at once.
    clock: Epoch,
    buffered: usize,
    /// Groups that are called back.
    pinned: u32,
    /// Blocks that switches have returned, and which have.
    returned: HashMap<nf::Block, Switches>,
    /// Slots closed because their source was gone: words that it may have had said of them
    /// (`peer_failure`).
    closed: VecDeque<peer_failure::Closed>,
    /// Groups of such slots that are not begun here.
    pub(crate) barred: peer_failure::Barred,
    /// Words that groups are called back which have been answered, by which switch: a repeated one
    /// has no effect.
    ended: VecDeque<(GroupKey, RuntimeId, Epoch, u8)>,
    /// Words that wait for the store, or for a replica.
    handing: VecDeque<stored::Handing>,
    /// Steps, in a replay.
    steps: u64,
    /// In and out.
    pub(crate) flows_moved: [u64; 2],
    /// In and out.
    pub(crate) packets_moved: [u64; 2],
    pub(crate) flows_refused: u64,
}

impl Moves {
    /// How long groups stood still that moved away.
    pub fn pauses(&self) -> Durations {
        self.orders.pauses
    }

    /// Of a runtime that has moved nothing.
    pub(crate) fn new() -> Self {
        Moves {
            peers: Vec::new(),
            opened: Vec::new(),
            effects: VecDeque::new(),
            incoming: Vec::new(),
            index: HashMap::new(),
            all: Vec::new(),
            free: Vec::new(),
            orders: order::Orders::default(),
            key_messages: VecDeque::new(),
            answers: VecDeque::new(),
            sending: VecDeque::new(),
            quiescing: Vec::new(),
            clock: Epoch::default(),
            buffered: 0,
            pinned: 0,
            returned: HashMap::new(),
            closed: VecDeque::new(),
            barred: peer_failure::Barred::default(),
            ended: VecDeque::new(),
            handing: VecDeque::new(),
            steps: 0,
            flows_moved: [0; 2],
            packets_moved: [0; 2],
            flows_refused: 0,
        }
    }

    /// Whether no group is on its way, to or from here.
    #[inline]
    pub(crate) fn is_idle(&self) -> bool {
        self.index.is_empty()
    }

    /// Whether nothing waits for buffers to be said.
    pub(crate) fn has_said_all(&self) -> bool {
        self.key_messages.is_empty() && self.answers.is_empty() && self.handing.is_empty()
    }

    /// How many groups are on their way, to and from here.
    fn under_way(&self) -> usize {
        self.all.len() - self.free.len()
    }

    /// Packets kept.
    pub(crate) fn buffered(&self) -> usize {
        self.buffered
    }

    /// Whether a group, or reply key, is on its way.
    pub(crate) fn is_moving(&self, group: &GroupKey, seed: &HashSeed) -> bool {
        self.index.contains_key(&group.hash(seed))
    }

    fn at(&self, hash: u64) -> Option<u32> {
        self.index.get(&hash).copied()
    }

    fn moving(&mut self, id: u32) -> Option<&mut Moving> {
        self.all.get_mut(id as usize)?.as_mut()
    }

    /// Notes a group by its hash, and those of its reply keys that no other is known by: a flow of
    /// either end may begin with a reply.
    fn insert(&mut self, hash: u64, seed: &HashSeed, moving: Moving) -> u32 {
        let reply_keys: Vec<_> = moving.reply_keys.iter().map(|key| key.hash(seed)).collect();
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
        for reply_key in reply_keys {
            self.index.entry(reply_key).or_insert(id);
        }
        id
    }

    fn remove(&mut self, id: u32, core: &mut Core) -> Option<Moving> {
        let moving = self.all.get_mut(id as usize)?.take()?;
        let seed = &core.settings.seed;
        for key in moving.reply_keys.iter().chain([&moving.group]) {
            let hash = key.hash(seed);
            // Where two flows have one key, another's group may be known by it.
            if self.index.get(&hash) == Some(&id) {
                self.index.remove(&hash);
                core.silent.set_moving(hash, false);
            }
        }
        self.free.push(id);
        self.orders.note_end(moving.weight);
        Some(moving)
    }
}

impl Moves {
    /// There are these runtimes: by number, whether there is a link to it, and whether its clock is
    /// another one.
    pub(crate) fn join(&mut self, peers: Vec<Option<bool>>, core: &mut Core) {
        // Of each group on its way between two runtimes (each has [`MOVES_MAX`] at most, and begins
        // no other before it is answered) at most eight records are pending, and two more for each
        // switch that says where it has gone: records beyond that answer records that had no
        // reason.
        let records_max = 2 * MOVES_MAX as usize * (8 + 2 * usize::from(core.settings.switches));
        core.out.join(peers.len(), ANSWERS, records_max);
        self.incoming = peers.iter().map(|_| record::Stream::default()).collect();
        self.opened = alloc::vec![false; peers.len()];
        self.peers = peers;
    }

    /// Whether the clock of a runtime to which another link was laid is another one.
    pub(crate) fn set_clock(&mut self, runtime: usize, is_other: bool) {
        if let Some(known) = self.peers.get_mut(runtime) {
            *known = Some(is_other);
        }
    }

    /// Whether there is a link to a runtime.
    fn has_peer(&self, runtime: RuntimeId) -> bool {
        self.peers
            .get(usize::from(runtime.0))
            .is_some_and(Option::is_some)
    }

    /// The next effect for the worker.
    #[inline]
    pub(crate) fn next_effect(&mut self) -> Option<Effect> {
        self.effects.pop_front()
    }

    /// Calls that were given up begin again.
    fn begin_again(&mut self, actors: Vec<u32>) {
        self.effects.push_back(Effect::BeginAgain(actors));
    }

    /// The packets kept for a group go on.
    fn process(&mut self, buffered: Vec<Buffered>, group: GroupKey, mut keys: Vec<GroupKey>) {
        keys.push(group);
        self.effects.push_back(Effect::Process { buffered, keys });
    }

    /// So many packets are kept no more.
    pub(crate) fn note_processed(&mut self, packets: usize) {
        self.buffered -= packets;
    }

    /// Whether anything is on its way, ordered, or to be told.
    #[inline]
    pub(crate) fn has_work(&self) -> bool {
        !(self.index.is_empty()
            && self.orders.is_idle()
            && self.key_messages.is_empty()
            && self.answers.is_empty()
            && self.handing.is_empty())
    }

    /// Has a group's keys be silent while it is on its way.
    fn silence(&mut self, core: &mut Core, id: u32) {
        let is_over = |part| matches!(part, Part::Absent | Part::Active | Part::Tombstone { .. });
        let Some(moving) = self.all.get_mut(id as usize).and_then(Option::as_mut) else {
            return;
        };
        let is_silent = !is_over(moving.machine.phase());
        if core::mem::replace(&mut moving.is_silent, is_silent) != is_silent {
            for key in moving.reply_keys.iter().chain([&moving.group]) {
                let hash = key.hash(&core.settings.seed);
                if self.index.get(&hash) == Some(&id) {
                    core.silent.set_moving(hash, is_silent);
                }
            }
        }
    }

    fn me(&self, core: &Core) -> RuntimeId {
        RuntimeId(core.settings.info.runtime)
    }

    /// The time that moves are measured by.
    fn moving_time(&self, core: &Core) -> u64 {
        if core.settings.packet_clock {
            self.steps * STEP
        } else {
            core.now
        }
    }

    fn all_switches(&self, core: &Core) -> Switches {
        Switches::first(core.settings.switches)
    }

    /// Says something of a group to another runtime.
    fn tell_runtime(&mut self, core: &mut Core, to: u16, group: GroupKey, message: RuntimeMessage) {
        if core.out.is_full(to) {
            return core.out.reject();
        }
        core.out.send_record(
            to,
            &Record::Ownership {
                group,
                message,
                flows: 0,
                install_stats: InstallStats::default(),
            },
        );
    }

    /// Begins no more moves: the end is near.
    pub(crate) fn stop_moving(&mut self) {
        self.orders.stop();
    }

    pub(super) fn note_closed(&mut self, closed: Closed) {
        if self.closed.len() == CLOSED {
            self.closed.pop_front();
        }
        self.closed.push_back(closed);
    }

    /// Whether a group's going back to a runtime is the end of a slot that is closed already, as
    /// that one was seen to be gone.
    pub(crate) fn is_of_closed(&self, group: &GroupKey, to: RuntimeId, epoch: Epoch) -> bool {
        let mut closed = self.closed.iter();
        closed.any(|slot| (slot.group, slot.from, slot.back) == (*group, to, epoch))
    }

    /// A switch's word that a group goes back is answered: nothing that it sent before is kept any
    /// more.
    pub(crate) fn note_ended(&mut self, ended: (GroupKey, RuntimeId, Epoch, u8)) {
        if self.ended.len() == CLOSED {
            self.ended.pop_front();
        }
        self.ended.push_back(ended);
    }
}
