//! Who is at the other ends of a runtime's links: switches that begin anew, and runtimes that go.
//!
//! # Theory of operation
//!
//! ```text
//!   a switch's session ends ─► counted from 0 again; what the old one owed is answered in its stead
//!   another begins          ─► some flows each step: routes, second keys; blocks; groups on their way; Leaving; "all told"
//!   a runtime's session ends ─► moves from and to it are settled (`migrate`)
//! ```
//!
//! A switch that begins anew knows no routes, and waits for *all told* before it reads its ports. What is told is what is true when it is
//! told: a flow that ends later says so as ever, one that begins later was routed by the switch itself, and a second key or block that is new is
//! told as ever. Groups do not begin to move meanwhile; those on their way are told of as their source knows them, route first and then where to.
//!
//! A switch that is gone cannot be waited for: what was on the way from it has come, and nothing of anybody is left in it. So to a group that
//! moves it has answered ([`Runtime::switch_gone`]).
//!
//! *Leaving* is said to the other runtimes, too: who gives an order at one process knows by that who takes flows at others. It is a hint: who is asked
//! answers for itself.
//!
//! *Taken*: where another runtime was chosen meanwhile for a group that is here, it is that one's, and ends here; flow by flow, some a step, those that
//! wait when their call is over.
//!
//! *A runtime that begins anew among others* does not know which blocks of its pool its forerunner had lent with groups that have moved. It waits until every switch has told it (those
//! that are not there: for a time), says meanwhile that it is leaving, takes no groups and begins none (`too_early`): what it would hand out may be in use. A block that it was
//! told of comes home by way of those switches that told of it.
//!
//! *Blocks that switches ask about*, or may have forgotten with somebody who is gone, are told as they are then: here (`BlockClaimed`) or not (`BlockDoubted`), or, while their
//! group is on its way, when that is over. No group begins to move before that is told.
//!
//! A ring's other end was there from the beginning, and of one that begins with this runtime there is nothing to tell: it costs nothing.
//!
//! Invariants: with *all told*, the switch has every route and block that leads here; words for a switch that is gone are not said to the next.
//!
//! Not here: the switch's side (`switch::sessions`).

use super::Runtime;
use crate::env::Port;
use crate::flows::actor::{Phase, flag};
use crate::flows::group::GroupKey;
use crate::message::Message;
use crate::switch::home_of;
use alloc::collections::{BTreeSet, VecDeque};
use alloc::vec::Vec;
use core::ops::Bound;
use hashbrown::HashMap;
use nf::{Addr, Affinity, Block};
use protocols::ownership::Switches;
use wire::FlowKey;

/// Places looked at in a step.
const LOOKS: u32 = 512;
/// How long, in nanoseconds, a runtime that begins waits for switches that are not there, and for those that are: longer than they may wait to be
/// told themselves ([`crate::switch::Switch::wait_to_be_told`]).
const ABSENT: u64 = 2_000_000_000;
const SILENT: u64 = 5_000_000_000;
/// Buffers that are left alone by what is told.
const SPARE: usize = 64;

/// What is known of the other ends.
#[derive(Default)]
pub(super) struct Sessions {
    /// By switch, and by runtime.
    switches: Vec<u64>,
    has_absent: bool,
    runtimes: Vec<u64>,
    /// By runtime, whether it has said that it takes no groups.
    leaving: Vec<bool>,
    telling: VecDeque<Telling>,
    /// Groups that are another's, by their words, and the one that was looked at last.
    taken: BTreeSet<[u64; 5]>,
    taken_cursor: [u64; 5],
    /// Second keys that are another's, of flows that could not end when that was said: they are on their way, or wait for a call.
    refused: BTreeSet<[u64; 5]>,
    /// Whether switches and runtimes have been told that this runtime is leaving.
    has_said_leaving: bool,
    /// Until all switches have told which blocks are in use.
    beginning: Option<Beginning>,
    /// Blocks of this runtime's pool that were in use when it began, and which switches know them.
    lent: HashMap<Block, Switches>,
}

/// Of a runtime that begins among others.
struct Beginning {
    told: Switches,
    /// Since when it waits, once it does.
    since: Option<u64>,
}

/// How far a switch is told.
struct Telling {
    link: usize,
    part: Part,
}

enum Part {
    Moves(u32),
    Groups(u32),
    Flows(u32),
    Blocks(Vec<(Addr, u16)>),
    Rest,
}

impl Sessions {
    pub fn new<P: Port>(links: &[P], affinity: Affinity) -> Self {
        let has_absent = links.iter().any(|link| link.session() == 0);
        let there = links.iter().enumerate().filter(|(_, link)| link.session() != 0);
        // Those that are there begin with this runtime, and have nothing to tell. Flows that are by themselves have no blocks.
        let told = there.fold(Switches::NONE, |told, (index, _)| told.with(index as u8));
        let may_have_lent = has_absent && affinity != Affinity::Flow;
        Sessions {
            has_absent,
            beginning: may_have_lent.then_some(Beginning { told, since: None }),
            switches: links.iter().map(Port::session).collect(),
            ..Sessions::default()
        }
    }

    /// Whether there is anything to do.
    #[inline]
    fn is_idle(&self) -> bool {
        self.telling.is_empty() && self.taken.is_empty() && self.refused.is_empty()
    }

    /// Whether a switch is there.
    pub fn has_switch(&self, switch: usize) -> bool {
        self.switches[switch] != 0
    }

    /// Whether another is at a runtime's end than was.
    #[inline]
    pub fn is_runtime_over(&self, runtime: usize, session: u64) -> bool {
        self.runtimes.get(runtime).is_some_and(|known| *known != session)
    }

    /// Another runtime says whether it takes no groups.
    pub fn note_leaving(&mut self, runtime: usize, is_leaving: bool) {
        if let Some(known) = self.leaving.get_mut(runtime) {
            *known = is_leaving;
        }
    }

    /// Whether another runtime, as far as is known here, takes no groups.
    pub fn is_runtime_leaving(&self, runtime: u16) -> bool {
        self.leaving.get(usize::from(runtime)).is_some_and(|known| *known)
    }

    /// Whether it is too early to begin groups.
    #[inline]
    pub fn is_beginning(&self) -> bool {
        self.beginning.is_some()
    }

    /// Whether a switch's word is wanted before a block is home.
    pub fn may_know(&self, block: &Block, switch: u8) -> bool {
        self.lent.get(block).is_none_or(|known| known.has(switch))
    }

    /// A block is home.
    pub fn note_home(&mut self, block: &Block) {
        self.lent.remove(block);
    }

    /// Whether some switch is not there.
    #[inline]
    pub fn has_absent(&self) -> bool {
        self.has_absent
    }

    /// Whether a switch that begins anew has been told what there is.
    pub fn is_told(&self, switch: usize) -> bool {
        self.telling.iter().all(|telling| telling.link != switch)
    }

    /// Whether some switch is being told what there is.
    pub fn is_telling(&self) -> bool {
        !self.telling.is_empty()
    }
}

impl<P: Port> Runtime<P> {
    /// Whether another is at a switch's end than was when what is known was said.
    #[inline(always)]
    pub(super) fn is_session_over(&self, link: usize) -> bool {
        self.links[link].session() != self.sessions.switches[link]
    }

    /// Another switch, or none, is at the end of a link. All that the old one sent is processed.
    #[cold]
    pub(super) fn session_over(&mut self, link: usize) {
        let session = self.links[link].session();
        let before = core::mem::replace(&mut self.sessions.switches[link], session);
        self.sessions.has_absent = self.sessions.switches.contains(&0);
        self.sessions.telling.retain(|telling| telling.link != link);
        self.outputs[link].consumed = 0;
        if let Some(frame) = self.outputs[link].messages.take() {
            self.recycle(frame);
        }
        self.unsaid.retain(|(to, _)| usize::from(*to) != link);
        self.unheard.session_over(link, session != 0);
        if let Some(beginning) = &mut self.sessions.beginning {
            beginning.told = beginning.told.without(link as u8);
        }
        for known in self.sessions.lent.values_mut() {
            *known = known.without(link as u8);
        }
        if before != 0 {
            self.switch_gone(link as u8);
        }
        if session != 0 {
            let part = Part::Moves(0);
            self.sessions.telling.push_back(Telling { link, part });
        }
    }

    /// Notes who is at the ends of the links to other runtimes at the beginning.
    pub(super) fn note_runtimes(&mut self, sessions: Vec<u64>) {
        self.sessions.leaving = alloc::vec![false; sessions.len()];
        self.sessions.runtimes = sessions;
    }

    /// Another runtime, or none, is at the end of a link; all that the old one said is heard.
    #[cold]
    pub(super) fn runtime_session_over(&mut self, runtime: usize) {
        let session = self.runtime_session(runtime);
        let before = core::mem::replace(&mut self.sessions.runtimes[runtime], session);
        if before != 0 {
            self.peer_gone(runtime as u16);
        }
        self.sessions.note_leaving(runtime, false);
        if session != 0 && self.sessions.has_said_leaving {
            self.tell_leaving(runtime as u16, true);
        }
    }

    /// Whether a runtime, as far as has been heard here, takes no groups: it is drained, or begins among others.
    pub fn has_heard_leaving(&self, runtime: u16) -> bool {
        self.sessions.is_runtime_leaving(runtime)
    }

    /// Goes on with telling switches what there is, and with giving up what is another's; answers how much was done.
    #[inline]
    pub(super) fn go_on_telling(&mut self) -> usize {
        if self.sessions.is_beginning() {
            self.go_on_beginning();
        }
        if self.sessions.has_said_leaving != self.takes_no_groups() {
            self.say_leaving();
        }
        if self.sessions.is_idle() {
            return 0;
        }
        self.tell_on() + self.give_up() + self.end_refused()
    }

    #[cold]
    fn say_leaving(&mut self) {
        self.sessions.has_said_leaving = self.takes_no_groups();
        self.tell(Message::Leaving(self.takes_no_groups()));
        for runtime in 0..self.sessions.runtimes.len() {
            if self.sessions.runtimes[runtime] != 0 {
                self.tell_leaving(runtime as u16, self.sessions.has_said_leaving);
            }
        }
    }

    /// Whether new groups are for others.
    #[inline]
    pub(super) fn takes_no_groups(&self) -> bool {
        self.moves.is_leaving || self.sessions.is_beginning()
    }

    /// Looks whether all switches have told, or the time for it is over.
    #[cold]
    fn go_on_beginning(&mut self) {
        let Some(beginning) = &mut self.sessions.beginning else {
            return;
        };
        let waited = self.now - *beginning.since.get_or_insert(self.now);
        let told = beginning.told;
        let mut switches = 0..self.settings.switches;
        let is_over = switches.all(|switch| match self.sessions.has_switch(usize::from(switch)) {
            true => told.has(switch) || waited >= SILENT,
            false => waited >= ABSENT,
        });
        if is_over {
            self.sessions.beginning = None;
        }
    }

    /// A switch says that another runtime's group has a block.
    #[cold]
    pub(super) fn hear_in_use(&mut self, link: usize, block: Block) {
        // All are to hear of it: each knows its own.
        let functions = self.stages.functions.iter();
        if functions.filter(|function| function.block_in_use(block)).count() > 0 {
            self.sessions.lent.entry(block).or_insert(Switches::NONE);
        }
        if let Some(known) = self.sessions.lent.get_mut(&block) {
            *known = known.with(link as u8);
        }
    }

    /// A switch has told which blocks are in use.
    #[cold]
    pub(super) fn hear_all_told(&mut self, link: usize) {
        if let Some(beginning) = &mut self.sessions.beginning {
            beginning.told = beginning.told.with(link as u8);
        }
    }

    #[cold]
    fn tell_on(&mut self) -> usize {
        let Some(mut telling) = self.sessions.telling.pop_front() else {
            return 0;
        };
        let link = telling.link;
        let mut is_over = false;
        for _ in 0..LOOKS {
            if self.pool.free() < self.message_frames() + SPARE
                || !self.unsaid.is_empty()
                || self.links[link].room() == 0
            {
                break;
            }
            telling.part = match telling.part {
                Part::Moves(id) if id < self.moving_places() => {
                    self.tell_move(link as u8, id);
                    Part::Moves(id + 1)
                }
                Part::Moves(_) => match self.flows.affinity() {
                    Affinity::Flow => Part::Flows(0),
                    _ => Part::Groups(0),
                },
                Part::Groups(place) if place < self.flows.groups().places() => {
                    if let Some(group) = self.flows.groups().at_place(place) {
                        self.tell_route(link, group);
                    }
                    Part::Groups(place + 1)
                }
                Part::Groups(_) => Part::Flows(0),
                Part::Flows(actor) if actor < self.flows.used() => {
                    self.tell_flow(link, actor);
                    Part::Flows(actor + 1)
                }
                Part::Flows(_) => Part::Blocks(self.flows.owners.places()),
                Part::Blocks(mut blocks) => match blocks.pop() {
                    Some((addr, first)) => {
                        self.tell_block(link, addr, first);
                        Part::Blocks(blocks)
                    }
                    None => Part::Rest,
                },
                Part::Rest => {
                    is_over = true;
                    break;
                }
            };
        }
        if !is_over {
            self.sessions.telling.push_front(telling);
            return 1;
        }
        if self.takes_no_groups() {
            self.append(link, &Message::Leaving(true));
        }
        self.append(link, &Message::AllTold);
        self.unheard.note(link);
        1
    }

    /// Tells a switch of a group, if that is its home or may be.
    fn tell_route(&mut self, link: usize, key: GroupKey) {
        let is_home = key.is_second_key(self.flows.affinity())
            || usize::from(home_of(key.hash(&self.settings.seed), self.settings.switches)) == link;
        if is_home && !self.is_told_with_move(&key) {
            self.append(link, &Message::Routed(key));
        }
    }

    fn tell_flow(&mut self, link: usize, actor: u32) {
        let header = self.flows.header(actor);
        if !matches!(header.phase, Phase::Active | Phase::Waiting | Phase::Leaving) {
            return;
        }
        let is_announced = header.flags & flag::ANNOUNCED != 0;
        if self.flows.affinity() == Affinity::Flow {
            self.tell_route(link, GroupKey::of_flow(header.key));
        }
        if is_announced {
            self.tell_route(link, GroupKey::of_flow(*self.flows.second_key(actor)));
        }
    }

    fn tell_block(&mut self, link: usize, addr: Addr, first: u16) {
        // It may have been released since.
        let Some(group) = self.flows.owners.at(addr, first) else {
            return;
        };
        if self.is_told_with_move(&group) {
            return;
        }
        let ports = self.flows.owners.size_at(first);
        self.append(link, &Message::BlockClaimed(Block { addr, first, ports }, group));
    }

    /// A switch says that a group, or second key, is another runtime's.
    #[cold]
    pub(super) fn hear_taken(&mut self, key: GroupKey) {
        let is_second = match self.flows.affinity() {
            Affinity::Flow => {
                let flow = key.flow();
                let found = self.find(flow.hash(&self.settings.seed), &flow);
                found.is_none_or(|value| value & 1 == 1)
            }
            _ => key.is_second_key(self.flows.affinity()),
        };
        if is_second {
            self.second_key_refused(key.flow());
        } else if self.has_group(&key) {
            // Of what is here, each once.
            self.sessions.taken.insert(*key.words());
        }
    }

    /// A group that was another's has come from another runtime, and is this one's.
    pub(super) fn note_installed(&mut self, group: &GroupKey) {
        self.sessions.taken.remove(group.words());
    }

    /// Ends flows of groups that are another's: of some groups a step, in the order of their keys.
    #[cold]
    fn give_up(&mut self) -> usize {
        let mut looked = 0;
        while looked < LOOKS {
            let behind = (Bound::Excluded(self.sessions.taken_cursor), Bound::Unbounded);
            let Some(words) = self.sessions.taken.range(behind).next().copied() else {
                self.sessions.taken_cursor = [0; 5];
                break;
            };
            self.sessions.taken_cursor = words;
            let group = GroupKey::from_words(words);
            let flows = self.flows_of(group);
            looked += 1 + flows.len() as u32;
            if flows.is_empty() {
                self.sessions.taken.remove(&words);
            } else if !self.moves.is_moving(&group, &self.settings.seed) {
                for actor in flows {
                    if self.may_end_now() && self.flows.header(actor).phase == Phase::Active {
                        self.end_actor(actor);
                    }
                }
            }
        }
        usize::from(looked > 0)
    }

    /// Whether there is room for what the end of a flow has to say.
    fn may_end_now(&self) -> bool {
        self.has_room_for_messages() && self.log.room() >= super::expiry::EVENT_ROOM
    }

    /// A second key was refused whose flow cannot end now.
    pub(super) fn note_refused(&mut self, key: FlowKey) {
        // Of what is here, each once.
        self.sessions.refused.insert(*key.words());
    }

    /// Ends flows whose second keys were refused, once they are back or go on; those that have moved away are refused where they are now.
    fn end_refused(&mut self) -> usize {
        let mut count = 0;
        for words in core::mem::take(&mut self.sessions.refused) {
            let key = FlowKey::from_words(words);
            let found = self.find(key.hash(&self.settings.seed), &key);
            let Some(value) = found.filter(|value| value & 1 == 1) else {
                continue;
            };
            match self.flows.header(value >> 1).phase {
                Phase::Active if self.may_end_now() => {
                    self.end_actor(value >> 1);
                    count += 1;
                }
                _ => {
                    self.sessions.refused.insert(words);
                }
            }
        }
        count
    }
}
