//! Packets that wait until every switch has heard what their replies are routed by.
//!
//! # Theory of operation
//!
//! A runtime says what switches must know before the packet leaves whose replies it is about (`output.rs`). A ring shows what was put on it before
//! anything that another ring was given later: so a reply cannot overtake the word at another switch. Links to other processes have no such order among
//! each other ([`Port::is_apart`]): the frame with the word may be lost, and come again when the reply has been and gone. So there each switch is asked to say when it has heard, and
//! the packet waits for that, as for a replica's acknowledgement (output commit).
//!
//! ```text
//!   words ─► the round at hand ─with them, behind the last of a step─► Hear n ──► every such switch that was told ── Heard n ─►
//!   the first packet of a flow ─► a word is unheard? ── no ─► out
//!                                     └─ yes ─► waits for its round, the flow's later packets behind it ─all have heard─► out
//! ```
//!
//! Rounds are numbered, and *heard n* says it of all before: one word and one answer a step and switch, however many flows begin. A switch keeps nothing for
//! it: when it has read the word, it has put all before into its tables.
//!
//! | word | waits | since |
//! |---|---|---|
//! | block claimed | yes | replies by the block find their group by it, at whatever switch |
//! | routed, of a second key | yes | replies find their runtime by it, at its home, or at whatever switch where flows are grouped |
//! | released, returned, idle | no | who hears late routes to somebody who has nothing of the flow, and says so; the next claim waits |
//! | re-route | no | each home answers it, and the source sends its state when all have |
//! | behind | no | each switch says *clear* to the target, which does nothing before all have |
//! | installed | no | the route leads there since the re-route |
//! | what a switch that begins anew is told | all of it | it is told before *all told*, and is asked behind that |
//!
//! Only a flow's first packet is looked at, and only if its chain translates it: replies to others have the key of the packet that made the route. It waits for
//! all that was said so far, its own words or not: of a block claimed a moment ago another flow may be the next user. While it waits, its flow is *settling*
//! with a second key, so that later packets, in both directions, take the rare way through `settle`; a packet of any other flow sees nothing of it.
//!
//! *Who is not there* is not waited for: a switch whose session is over has no ports that are read, and one that begins anew is told everything, in which what it
//! missed is. That one is waited for until it has heard *all told*. One that this runtime has never met is waited for a while: it may be at work.
//!
//! *The flow ends* while packets wait: they leave in their turn all the same, as they would have before the end was said. If a switch *refuses* its second key
//! they are dropped (`reply_key_taken`), and nothing of it has left. *Its group moves*: not before nothing of it waits, as with a call. *The configuration changes*: they have
//! passed their chain. *The runtime ends*: they leave with it, unheard, since no flow is left that could be anywhere twice.
//!
//! Invariants: packets of a flow leave in order; no more wait than a quarter of the pool's buffers, and none while half of them are out: the answers need some to come
//! in. Beyond is a counted drop (`unheard_full`). With one switch, and where all links are rings, nothing waits and nothing is asked.
//!
//! Not here: a group whose target is gone, and whose source says *routed* again: a switch that has forgotten the route with the target may hear it late.

use super::Runtime;
use crate::env::Port;
use crate::flows::actor::flag;
use crate::message::Message;
use crate::stats::DropReason;
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use hashbrown::HashMap;
use wire::{PacketBox, PacketList, Pool};

/// How long, in nanoseconds, a switch that was never met is waited for: as long as [`super::sessions`] waits for one that is not there.
const STRANGE: u64 = 2_000_000_000;
/// In [`Waiting::actor`]: its flow is over.
const OVER: u32 = u32::MAX;

/// What waits, and who has heard what.
pub(super) struct Unheard {
    /// By switch; empty where nobody is to be waited for.
    links: Vec<Hearing>,
    /// The number of the round at hand.
    round: u64,
    /// Whether something was said in it.
    is_open: bool,
    /// Flows whose packets wait, in the order of their rounds.
    queue: VecDeque<Waiting>,
    /// How many have left the queue, and by actor, which is its flow.
    gone: u64,
    places: HashMap<u32, u64>,
    packets: usize,
    /// Flows in the queue that are over.
    over: usize,
    /// Until when switches that were never met are waited for.
    strange_until: u64,
}

/// What a switch was told, and has heard.
struct Hearing {
    is_apart: bool,
    is_met: bool,
    /// Something was said to it in the round at hand.
    is_open: bool,
    /// The last round in which something was said, and the last that was heard.
    said: u64,
    heard: u64,
}

struct Waiting {
    actor: u32,
    round: u64,
    packets: PacketList,
}

/// Whether a flow's packets wait: its second key is in the table, and it is not settled.
#[inline]
pub(super) fn is_unheard(flags: u8) -> bool {
    flags & (flag::SETTLING | flag::SECOND_KEY) == flag::SETTLING | flag::SECOND_KEY
}

impl Unheard {
    pub fn new<P: Port>(links: &[P], switches: u8, now: u64) -> Self {
        let is_needed = switches > 1 && links.iter().any(Port::is_apart);
        let hearing = |link: &P| Hearing {
            is_apart: link.is_apart(),
            is_met: link.session() != 0,
            is_open: false,
            said: 0,
            heard: 0,
        };
        Unheard {
            links: match is_needed {
                true => links.iter().map(hearing).collect(),
                false => Vec::new(),
            },
            round: 1,
            is_open: false,
            queue: VecDeque::new(),
            gone: 0,
            places: HashMap::new(),
            packets: 0,
            over: 0,
            strange_until: now.saturating_add(STRANGE),
        }
    }

    /// Packets that wait.
    pub fn held(&self) -> usize {
        self.packets
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

    /// Something that replies are routed by is said to a switch.
    #[inline]
    pub fn note(&mut self, link: usize) {
        if let Some(hearing) = self.links.get_mut(link)
            && hearing.is_apart
        {
            hearing.is_open = true;
            hearing.said = self.round;
            self.is_open = true;
        }
    }

    /// Another, or nobody, is at a switch's end.
    pub fn session_over(&mut self, link: usize, is_there: bool) {
        if let Some(hearing) = self.links.get_mut(link) {
            hearing.is_met |= is_there;
            (hearing.is_open, hearing.said, hearing.heard) = (false, 0, 0);
        }
    }

    /// A switch has heard all of a round, and of those before.
    pub fn hear(&mut self, link: usize, round: u64) {
        if let Some(hearing) = self.links.get_mut(link) {
            hearing.heard = hearing.heard.max(round.min(hearing.said));
        }
    }

    fn has_room(&self, pool: &Pool) -> bool {
        self.packets < pool.total() / 4 && pool.free() > pool.total() / 2
    }

    fn add(&mut self, actor: u32, packet: PacketBox) {
        self.packets += 1;
        let place = self.places.get(&actor).map(|place| (place - self.gone) as usize);
        if let Some(waiting) = place.and_then(|place| self.queue.get_mut(place)) {
            return waiting.packets.push(packet);
        }
        let mut packets = PacketList::new();
        packets.push(packet);
        self.places.insert(actor, self.gone + self.queue.len() as u64);
        self.queue.push_back(Waiting {
            actor,
            round: self.round,
            packets,
        });
    }

    /// The place of a flow in the queue, from where it is known no more.
    fn forget(&mut self, actor: u32) -> Option<&mut Waiting> {
        let place = self.places.remove(&actor)? - self.gone;
        let waiting = self.queue.get_mut(place as usize)?;
        waiting.actor = OVER;
        self.over += 1;
        Some(waiting)
    }
}

impl<P: Port> Runtime<P> {
    /// Whether some switch has yet to hear something that was said up to a round.
    fn is_unheard_of(&self, round: u64) -> bool {
        let mut links = self.unheard.links.iter().enumerate();
        links.any(|(link, hearing)| {
            hearing.is_apart
                && match self.sessions.has_switch(link) {
                    true => !self.sessions.is_told(link) || hearing.heard < round.min(hearing.said),
                    false => !hearing.is_met && self.now < self.unheard.strange_until,
                }
        })
    }

    /// Whether a flow's first packet has to wait.
    #[inline]
    pub(super) fn has_unheard(&self) -> bool {
        !self.unheard.links.is_empty()
            && !wire::planted::is("left_unheard")
            && self.is_unheard_of(self.unheard.round)
    }

    /// Has a flow's first packet wait; hands it back if there is no room.
    #[cold]
    pub(super) fn wait_unheard(&mut self, actor: u32, packet: PacketBox) -> Option<PacketBox> {
        if !self.unheard.has_room(&self.pool) {
            return Some(packet);
        }
        let header = self.flows.header_mut(actor);
        header.flags = header.flags & !flag::SETTLED | flag::SETTLING;
        self.unheard.add(actor, packet);
        None
    }

    /// Has a later packet wait behind those of its flow.
    #[cold]
    pub(super) fn wait_behind(&mut self, actor: u32, packet: PacketBox) {
        if self.unheard.has_room(&self.pool) {
            self.unheard.add(actor, packet);
        } else {
            self.drop_packet(packet, DropReason::UnheardFull);
        }
    }

    /// A flow ends, and may have packets that wait.
    #[cold]
    pub(super) fn end_unheard(&mut self, actor: u32) {
        self.unheard.forget(actor);
    }

    /// Drops what waits of a flow whose second key is another's.
    #[cold]
    pub(super) fn refuse_unheard(&mut self, actor: u32) {
        let Some(waiting) = self.unheard.forget(actor) else {
            return;
        };
        let mut packets = core::mem::take(&mut waiting.packets);
        while let Some(packet) = packets.pop() {
            self.unheard.packets -= 1;
            self.drop_packet(packet, DropReason::ReplyKeyTaken);
        }
    }

    /// Asks the switches that were told something since to say when they have heard.
    #[inline]
    pub(super) fn close_round(&mut self) {
        if self.unheard.is_open {
            self.ask_for_hearing();
        }
    }

    #[cold]
    fn ask_for_hearing(&mut self) {
        let round = self.unheard.round;
        for link in 0..self.unheard.links.len() {
            if core::mem::take(&mut self.unheard.links[link].is_open) {
                self.append(link, &Message::Hear(round));
            }
        }
        self.unheard.is_open = false;
        self.unheard.round += 1;
    }

    /// Lets go what has been heard; answers how many packets.
    #[inline]
    pub(super) fn let_heard_go(&mut self) -> usize {
        match self.unheard.is_empty() {
            true => 0,
            false => self.let_go_up_to(false),
        }
    }

    /// Lets go all that waits: nobody who is to hear has a flow of this runtime's to lose.
    pub(super) fn let_unheard_go(&mut self) {
        self.let_go_up_to(true);
    }

    #[cold]
    fn let_go_up_to(&mut self, all: bool) -> usize {
        let mut count = 0;
        while let Some(round) = self.unheard.queue.front().map(|waiting| waiting.round) {
            if !all && self.is_unheard_of(round) {
                break;
            }
            let Some(Waiting {
                actor, mut packets, ..
            }) = self.unheard.queue.pop_front()
            else {
                break;
            };
            self.unheard.gone += 1;
            match actor {
                OVER => self.unheard.over -= 1,
                actor => {
                    self.unheard.places.remove(&actor);
                    let header = self.flows.header_mut(actor);
                    header.flags = header.flags & !flag::SETTLING | flag::SETTLED;
                }
            }
            while let Some(packet) = packets.pop() {
                self.unheard.packets -= 1;
                count += 1;
                self.pass(packet);
            }
        }
        count
    }
}
