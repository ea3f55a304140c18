//! Output hold: packets that may not leave before switches have acknowledged what their replies are
//! routed by.
//!
//! # Theory of operation
//!
//! ```text
//!   the first packet of a flow ─► a barrier is awaited? ── no ─► out
//!                                     └─ yes ─► waits for it, the flow's later packets behind it ─acknowledged─► out
//! ```
//!
//! | message | waits | since |
//! |---|---|---|
//! | block claimed | yes | replies by the block find their group by it, at whatever switch |
//! | routed, of a reply key | yes | replies find their runtime by it, at its home, or at whatever switch where flows are grouped |
//! | released, returned, idle | no | a switch that reads it late routes to a runtime that says it has no flow; the next claim waits |
//! | re-route | no | each home answers it, and the source sends its state when all have |
//! | behind | no | each switch says *clear* to the target, which does nothing before all have |
//! | installed | no | the route leads there since the re-route |
//! | messages to a switch that restarts | all of it | it is sent before *all told*, and is asked behind that |
//!
//! Only a flow's first packet is looked at, and only if its chain translates it: replies to others
//! have the key of the packet that made the route. It waits for all messages that were sent so far:
//! of a block claimed a moment ago another flow may be the next user. While it waits, its flow is
//! *settling* with a reply key, so that later packets, in both directions, take the rare way
//! through `learn_reply_key`; a packet of any other flow sees nothing of it.
//!
//! *The flow ends* while packets wait: they leave in their turn all the same, as they would have
//! before the end. If a switch *refuses* its reply key they are dropped (`reply_key_taken`), here
//! and at the gates behind, and nothing of it has left. *Its group moves*: not before nothing of it
//! waits, as with a call. *The configuration changes*: they have passed their chain. *The runtime
//! ends*: they leave with it, since no flow is left that could be anywhere twice.
//!
//! Invariants: packets of a flow leave in order; no more wait than a quarter of the pool's buffers,
//! and none while half of them are out: the acknowledgements need some to come in. Beyond is a
//! counted drop (`unheard_full`). Where no barrier is needed, nothing waits.
//!
//! Not here: which barriers are acknowledged ([`crate::outbox::barrier`]); a group whose target is
//! gone, and whose source says *routed* again: a switch that has forgotten the route with the
//! target may read it late.

pub(crate) mod gate;
pub(crate) mod lines;

use crate::flows::FlowStore;
use crate::flows::actor::{Header, NO_GROUP, flag};
use crate::outbox::Outbox;
use crate::stats::DropReason;
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use gate::Gate;
use hashbrown::HashMap;
use wire::packet::flag as packet_flag;
use wire::{FlowKey, PacketBox, PacketList, Pool};

/// In [`Held::actor`]: its flow is over.
const OVER: u32 = u32::MAX;

/// Packets that may not leave yet.
#[derive(Default)]
pub(crate) struct OutputHold {
    /// In the order of their barriers.
    queue: VecDeque<Held>,
    /// How many have left the queue, and by actor, which is its flow.
    gone: u64,
    places: HashMap<u32, u64>,
    packets: usize,
    /// Flows in the queue that are over.
    over: usize,
}

/// Packets of one flow.
struct Held {
    actor: u32,
    /// Its generation and chain, which are known behind the flow's end, too.
    chain: (u8, u8),
    barrier: u64,
    packets: PacketList,
}

/// Whether a flow's packets wait: its reply key is in the table, and it is not settled.
#[inline]
pub(crate) fn is_held(flags: u8) -> bool {
    flags & (flag::SETTLING | flag::REPLY_KEY) == flag::SETTLING | flag::REPLY_KEY
}

/// The index of a packet's mark at the gate: of its flow's group, or of the flow itself.
#[inline]
pub(crate) fn mark_of(header: &Header, actor: u32) -> u32 {
    match header.group {
        NO_GROUP => actor,
        group => group,
    }
}

/// By which of its flow's keys a packet leaves: that of the replies to it, or the key that a reply
/// came back to.
fn key_of(packet: &PacketBox) -> Option<FlowKey> {
    let (key, way) = FlowKey::of(packet)?;
    Some(match packet.has(packet_flag::HAIRPIN) {
        true => key.turned(way.reversed()),
        false => key,
    })
}

fn has_room(packets: usize, pool: &Pool) -> bool {
    packets < pool.total() / 4 && pool.free() > pool.total() / 2
}

impl OutputHold {
    /// Packets that wait.
    pub fn packets(&self) -> usize {
        self.packets
    }

    /// The flows whose packets wait, without flows that are over.
    pub fn actors(&self) -> Vec<u32> {
        let actors = self.queue.iter().map(|held| held.actor);
        actors.filter(|actor| *actor != OVER).collect()
    }

    /// Whether nothing waits.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// Whether packets wait whose flows are over, of whatever group.
    pub fn has_over(&self) -> bool {
        self.over > 0
    }

    /// Holds a flow's first packet; hands it back if there is no room.
    #[cold]
    pub fn hold(
        &mut self,
        actor: u32,
        packet: PacketBox,
        flows: &mut FlowStore,
        out: &Outbox,
    ) -> Option<PacketBox> {
        if !has_room(self.packets, out.pool()) {
            return Some(packet);
        }
        let header = flows.header_mut(actor);
        header.flags = header.flags & !flag::SETTLED | flag::SETTLING;
        let chain = (header.generation, header.chain);
        self.add(actor, chain, packet, out.barrier().number());
        None
    }

    /// Holds a later packet behind those of its flow.
    #[cold]
    pub fn hold_behind(&mut self, actor: u32, header: &Header, packet: PacketBox, out: &mut Outbox) {
        if has_room(self.packets, out.pool()) {
            let chain = (header.generation, header.chain);
            self.add(actor, chain, packet, out.barrier().number());
        } else {
            out.drop_packet(packet, DropReason::UnheardFull);
        }
    }

    fn add(&mut self, actor: u32, chain: (u8, u8), packet: PacketBox, barrier: u64) {
        self.packets += 1;
        let place = self.places.get(&actor).map(|place| (place - self.gone) as usize);
        if let Some(held) = place.and_then(|place| self.queue.get_mut(place)) {
            return held.packets.push(packet);
        }
        let mut packets = PacketList::new();
        packets.push(packet);
        self.places.insert(actor, self.gone + self.queue.len() as u64);
        self.queue.push_back(Held {
            actor,
            chain,
            barrier,
            packets,
        });
    }

    /// A flow ends, and may have packets that wait: they leave in their turn.
    #[cold]
    pub fn forget(&mut self, actor: u32) {
        self.forget_place(actor);
    }

    fn forget_place(&mut self, actor: u32) -> Option<&mut Held> {
        let place = self.places.remove(&actor)? - self.gone;
        let held = self.queue.get_mut(place as usize)?;
        held.actor = OVER;
        self.over += 1;
        Some(held)
    }

    /// Drops waiting packets of a flow whose reply key is another's, or which is another's itself.
    #[cold]
    pub fn refuse(&mut self, actor: u32, reason: DropReason, out: &mut Outbox) {
        let Some(held) = self.forget_place(actor) else {
            return;
        };
        let mut packets = core::mem::take(&mut held.packets);
        while let Some(packet) = packets.pop() {
            self.packets -= 1;
            out.drop_packet(packet, reason);
        }
    }

    /// A switch is gone, or has let this runtime go: packets that would leave by its link are
    /// dropped ([`gate`]).
    #[cold]
    pub fn switch_gone(&mut self, link: usize, out: &mut Outbox) {
        for held in &mut self.queue {
            let mut packets = core::mem::take(&mut held.packets);
            while let Some(packet) = packets.pop() {
                match out.link_of(&packet) == link {
                    true => {
                        self.packets -= 1;
                        out.drop_packet(packet, DropReason::PeerGone);
                    }
                    false => held.packets.push(packet),
                }
            }
        }
    }

    /// Passes on the packets whose barriers are acknowledged, by the gate for copies or for a
    /// store; answers how many. While there are no copies, `alone` says of a packet of a chain
    /// whether it leaves.
    #[inline]
    pub fn release(
        &mut self,
        flows: &mut FlowStore,
        gates: [&mut Gate; 2],
        out: &mut Outbox,
        now: u64,
        alone: impl FnMut((u8, u8)) -> bool,
    ) -> usize {
        match self.is_empty() {
            true => 0,
            false => self.release_while(
                |out, barrier| !out.barrier().is_awaited(barrier, now),
                flows,
                gates,
                out,
                alone,
            ),
        }
    }

    /// Hands out all packets that wait: the runtime fails.
    pub fn take_all(&mut self, lost: &mut PacketList) {
        for mut held in core::mem::take(&mut self.queue) {
            lost.append(&mut held.packets);
        }
    }

    /// Passes on all packets that wait: no flow is left whose replies could be lost.
    pub fn release_all(&mut self, flows: &mut FlowStore, gates: [&mut Gate; 2], out: &mut Outbox) {
        self.release_while(|_, _| true, flows, gates, out, |_| true);
    }

    #[cold]
    fn release_while(
        &mut self,
        may: impl Fn(&Outbox, u64) -> bool,
        flows: &mut FlowStore,
        [copies, store]: [&mut Gate; 2],
        out: &mut Outbox,
        mut alone: impl FnMut((u8, u8)) -> bool,
    ) -> usize {
        let mut count = 0;
        while let Some(Held {
            actor,
            chain: (generation, chain),
            mut packets,
            ..
        }) = self.queue.pop_front_if(|held| may(out, held.barrier))
        {
            self.gone += 1;
            let header = match actor {
                OVER => None,
                actor => Some(*flows.header(actor)),
            };
            match actor {
                OVER => self.over -= 1,
                actor => {
                    self.places.remove(&actor);
                    let header = flows.header_mut(actor);
                    header.flags = header.flags & !flag::SETTLING | flag::SETTLED;
                    // No packet's chain has changed that: its next packet has it written.
                    header.stored = 0;
                }
            }
            let is_stored = store.is_for(generation, chain);
            let is_alone = !is_stored && !copies.is_closed();
            let gate = match is_stored {
                true => &mut *store,
                false => &mut *copies,
            };
            while let Some(packet) = packets.pop() {
                self.packets -= 1;
                count += 1;
                match header {
                    _ if is_alone && !alone((generation, chain)) => {
                        out.drop_packet(packet, DropReason::NoReplica);
                    }
                    Some(header) => gate.pass(actor, &header, packet, out),
                    // Its flow's state and end are at the replica behind all records so far.
                    None => gate.pass_behind_all(packet, out),
                }
            }
        }
        count
    }
}
