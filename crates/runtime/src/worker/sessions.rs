//! The workers at the other ends of a runtime's links: switches that begin again, and runtimes that
//! go.
//!
//! # Theory of operation
//!
//! ```text
//!   a switch's session ends ─► counted from 0 again; the debts of the old one are answered in its stead
//!   another begins          ─► some flows each step: routes, reply keys; blocks; groups on their way; Leaving; "all told"
//!   a runtime's session ends ─► moves from and to it are settled (`migrate`)
//! ```
//!
//! A switch that begins again knows no routes, and waits for *all told* before it reads its ports.
//! A message is true when it is told: a flow that ends later says so as ever, a flow that begins
//! later was routed by the switch itself, and a reply key or block that is new is told as ever.
//! Groups do not begin to move meanwhile; those on their way are told of as their source knows
//! them, route first and then where to.
//!
//! A switch that is gone cannot be waited for: its last messages and packets have come, and it
//! holds nothing more of any group. So to a group that moves it has answered
//! (`Moves::switch_gone`).
//!
//! *Leaving* is said to the other runtimes, too: a process that gives an order knows by that which
//! runtimes of other processes take flows. It is a hint: a runtime that is asked answers for
//! itself.
//!
//! *RouteConflict*: where another runtime was chosen meanwhile for a group that is here, it is that
//! one's, and ends here; flow by flow, some a step, flows that wait when their call is over.
//!
//! *A switch that is met again* may have let this runtime go, and flows that are here may have gone
//! on elsewhere. So no packet leaves by it, and packets that waited for it are dropped, until it,
//! and all others that are met again, have said which groups are another's (their *all told* is
//! behind that), and those have ended here. A runtime that stood still may see one session's end
//! before another's, and the switch that knows whose a group is may be at that one. So all others
//! are asked behind *all told*: a switch that has let this runtime go does not answer, and its
//! session ends.
//!
//! *A runtime that begins among others* does not know which blocks of its pool its predecessor had
//! lent with groups that have moved, and its messages and packets to a switch that it has not met
//! are lost at the link. It waits until every switch has told it (those that are not there: for a
//! time), says meanwhile that it is leaving, and takes no groups. Where flows are grouped it begins
//! none either (`too_early`): the blocks that it would hand out may be in use. A block that it was
//! told of comes home by way of those switches that told of it.
//!
//! *Blocks that switches ask about*, or may have forgotten with a worker that is gone, are told as
//! they are then: here (`BlockClaimed`) or not (`BlockSuspect`), or, while their group is on its
//! way, when that is over. No group begins to move before that is told.
//!
//! A ring's other end was there from the beginning, and a switch that begins with this runtime is
//! told nothing: it costs nothing.
//!
//! *Where workers go by views* ([`crate::members`]) a session is over when a view has removed its
//! worker, and not before.
//!
//! Invariants: with *all told*, the switch has every route and block that leads here; words for a
//! switch that is gone are not said to the next.
//!
//! Not here: the switch's side (`switch::presence`).

use super::Runtime;
use crate::env::Port;
use crate::flows::actor::{Phase, flag};
use crate::flows::group::GroupKey;
use crate::message::Message;
use crate::parts::presence::{Resync, ResyncPart};
use crate::record::Record;
use crate::switch::home_of;
use core::ops::Bound;
use nf::{Addr, Affinity, Block};
use protocols::ownership::Switches;

/// Places looked at in a step.
const LOOKS: u32 = 512;
/// Buffers that messages to switches leave alone.
const SPARE: usize = 64;

impl<P: Port> Runtime<P> {
    /// Whether another switch is at an end than in the known session.
    #[inline(always)]
    pub(super) fn is_session_over(&self, link: usize) -> bool {
        let session = self.links[link].session();
        self.core.sessions.is_switch_over(link, session)
    }

    /// Whether a link brings frames of the known switch: it is neither over nor suspended.
    #[inline(always)]
    pub(super) fn may_read(&self, link: usize) -> bool {
        self.links[link].session() == self.core.sessions.switches[link]
    }

    /// Whether frames of a link are dropped.
    #[inline]
    pub(super) fn is_fenced(&self, link: usize) -> bool {
        self.core.sessions.switch_ends[link].is_fenced(self.links[link].session())
    }

    /// Whether the session that is known is one of an incarnation that a view has removed.
    #[inline]
    pub(super) fn is_known_fenced(&self, link: usize) -> bool {
        let sessions = &self.core.sessions;
        sessions.switch_ends[link].is_fenced(sessions.switches[link])
    }

    /// Another switch, or none, is at the end of a link. All packets and messages of the old one
    /// are processed.
    #[cold]
    pub(super) fn session_over(&mut self, link: usize) {
        let session = self.core.sessions.switch_ends[link].session(self.links[link].session());
        let before = core::mem::replace(&mut self.core.sessions.switches[link], session);
        self.core.sessions.switch_ends[link].begin();
        self.core.sessions.has_absent = self.core.sessions.switches.contains(&0);
        self.core.sessions.resyncs.retain(|resync| resync.link != link);
        self.core.sessions.reconciled = self.core.sessions.reconciled.without(link as u8);
        self.core.out.session_over(link, session != 0);
        if session != 0 {
            // The incarnation of the sender is said before all else.
            self.greet_switch(link);
        }
        self.core.switch_over(link as u8);
        self.moves.returned_without(&mut self.core, link as u8);
        if let Some(beginning) = &mut self.core.sessions.beginning {
            beginning.resynced = beginning.resynced.without(link as u8);
        }
        for known in self.core.sessions.lent.values_mut() {
            *known = known.without(link as u8);
        }
        if before != 0 {
            self.core.lose_held_for(link);
            self.moves.switch_gone(&mut self.core, link as u8);
            self.apply_moves();
        }
        if session != 0 {
            self.core.say_least(link);
            self.keeper.switch_came(&mut self.core, link);
            let part = ResyncPart::Moves(0);
            self.core.sessions.resyncs.push_back(Resync { link, part });
        }
    }

    /// Flows that a store has of this runtime go on here, before the first step, and switches are
    /// told as if they restarted.
    #[cold]
    pub(super) fn restore(&mut self) {
        // Entries removed there are dated now.
        self.core.runner.variables_mut().begin(self.core.now);
        self.keeper.restore(&mut self.core);
        self.core.begin_storing();
        let links = 0..usize::from(self.core.settings.switches);
        for link in links.filter(|link| self.core.out.is_present(*link)) {
            let part = ResyncPart::Moves(0);
            self.core.sessions.resyncs.push_back(Resync { link, part });
        }
        if self.core.flows.affinity() != Affinity::Flow {
            // Other runtimes may have blocks of this one's pool.
            self.core.sessions.wait_for_resync();
        }
    }

    /// Another runtime, or none, is at the end of a link; all that the old one said is heard.
    #[cold]
    pub(super) fn runtime_session_over(&mut self, runtime: usize) {
        let session = self.peers[runtime].as_ref().map_or(0, Port::session);
        let session = self.core.sessions.runtime_ends[runtime].session(session);
        self.core.sessions.runtime_ends[runtime].begin();
        self.core.sessions.note_said(runtime, 0);
        let before = core::mem::replace(&mut self.core.sessions.runtimes[runtime], session);
        if before != 0 {
            self.peer_gone(runtime as u16);
            if let Some(objects) = &mut self.objects {
                objects.peer_gone(runtime);
            }
        }
        // Unsent messages were for the incarnation before.
        self.moves.forget_outgoing(&mut self.core, runtime as u16);
        self.core.sessions.note_leaving(runtime, false);
        if session != 0 {
            self.greet_runtime(runtime);
        }
        if before != 0 {
            self.keeper.forget_second(runtime);
            self.moves
                .leave_to_copies(&mut self.core, runtime as u16, &self.keeper);
            self.keeper.cut_off(&mut self.core, runtime as u16);
            self.keeper.peer_gone(&mut self.core, runtime as u16);
        }
        self.core.choose_replica();
        if session != 0 && self.core.sessions.said_leaving.1 {
            self.core.out.send_record(runtime as u16, &Record::Leaving(true));
        }
    }

    /// Whether a runtime, as far as has been heard here, takes no groups: it is drained, or begins
    /// among others.
    pub fn knows_leaving(&self, runtime: u16) -> bool {
        self.core.sessions.is_runtime_leaving(runtime)
    }

    /// Whether switches choose this runtime for no new group, since another has free blocks of
    /// ports and this one has none.
    pub fn is_dry(&self) -> bool {
        self.core.pools.is_dry()
    }

    /// Whether groups of others may come here, and this has been said.
    pub fn takes_groups(&self) -> bool {
        !self.core.takes_no_moves() && !self.core.sessions.said_leaving.1
    }

    /// Goes on with telling switches about groups and blocks, and with giving up groups that are
    /// another's; answers how much was done.
    #[inline]
    pub(super) fn go_on_resyncing(&mut self) -> usize {
        if self.core.sessions.is_beginning() {
            self.core.go_on_beginning();
            if !self.core.sessions.is_beginning() {
                self.moves.forget_returned(&self.core);
                self.core.take_out_back();
            }
        }
        let leaving = (self.core.takes_no_groups(), self.core.takes_no_moves());
        if self.core.sessions.said_leaving != leaving {
            self.say_leaving(leaving);
        }
        let mut count = 0;
        if !self.core.sessions.is_idle() {
            count = self.tell_on() + self.give_up() + self.core.end_refused();
        }
        if self.core.out.unreconciled() != Switches::NONE {
            self.reconcile_switches();
        }
        count
    }

    /// Has packets leave by switches that have said which groups are others', once those have ended
    /// here.
    #[cold]
    fn reconcile_switches(&mut self) {
        let sessions = &self.core.sessions;
        // Groups that are on their way end with their moves.
        let has_ended = sessions.taken_cursor == [0; 5] && self.core.may_end_now();
        if !sessions.taken.is_empty() && !has_ended {
            return;
        }
        // A packet may leave by another switch than that which knows whose its group is.
        let unreconciled = self.core.out.unreconciled();
        let mut links = 0..self.links.len();
        if links.any(|link| unreconciled.has(link as u8) && !sessions.reconciled.has(link as u8)) {
            return;
        }
        // A switch that has let this runtime go unseen does not answer.
        if !self.core.out.barrier().is_acknowledged(sessions.reconciled_at)
            && !crate::replica::is_broken("others are asked before packets leave")
        {
            return;
        }
        for link in (0..self.links.len()).filter(|link| unreconciled.has(*link as u8)) {
            // It was processed before that was known.
            self.core.lose_held_for(link);
            self.core.out.reconcile(link);
        }
    }

    /// Tells switches whether new groups are for others, and runtimes whether groups that move are.
    #[cold]
    fn say_leaving(&mut self, (no_groups, no_moves): (bool, bool)) {
        let before = core::mem::replace(&mut self.core.sessions.said_leaving, (no_groups, no_moves));
        if before.0 != no_groups {
            self.core.out.announce(Message::Leaving(no_groups));
        }
        if before.1 != no_moves {
            for runtime in 0..self.core.sessions.runtimes.len() {
                if self.core.sessions.runtimes[runtime] != 0 {
                    self.core
                        .out
                        .send_record(runtime as u16, &Record::Leaving(no_moves));
                }
            }
        }
    }

    #[cold]
    fn tell_on(&mut self) -> usize {
        let Some(mut resync) = self.core.sessions.resyncs.pop_front() else {
            return 0;
        };
        let link = resync.link;
        let mut is_over = false;
        for _ in 0..LOOKS {
            if self.core.out.pool().free() < self.core.out.reserve() + SPARE
                || !self.core.out.is_clear()
                || self.links[link].room() == 0
            {
                break;
            }
            resync.part = match resync.part {
                ResyncPart::Moves(id) if id < self.moves.moving_places() => {
                    self.moves.tell_move(&mut self.core, link as u8, id);
                    ResyncPart::Moves(id + 1)
                }
                ResyncPart::Moves(_) => match self.core.flows.affinity() {
                    Affinity::Flow => ResyncPart::Flows(0),
                    _ => ResyncPart::Groups(0),
                },
                ResyncPart::Groups(place) if place < self.core.flows.groups().places() => {
                    if let Some(group) = self.core.flows.groups().at_place(place) {
                        self.tell_route(link, group);
                    }
                    ResyncPart::Groups(place + 1)
                }
                ResyncPart::Groups(_) => ResyncPart::Flows(0),
                ResyncPart::Flows(actor) if actor < self.core.flows.used() => {
                    self.tell_flow(link, actor);
                    ResyncPart::Flows(actor + 1)
                }
                ResyncPart::Flows(_) => ResyncPart::Blocks(self.core.flows.owners.places()),
                ResyncPart::Blocks(mut blocks) => match blocks.pop() {
                    Some((addr, first)) => {
                        self.tell_block(link, addr, first);
                        ResyncPart::Blocks(blocks)
                    }
                    None => ResyncPart::Rest,
                },
                ResyncPart::Rest => {
                    is_over = true;
                    break;
                }
            };
        }
        if !is_over {
            self.core.sessions.resyncs.push_front(resync);
            return 1;
        }
        if self.core.takes_no_groups() {
            self.core.out.send(link, &Message::Leaving(true));
        }
        self.core.out.send(link, &Message::Resynced);
        self.core.out.barrier_mut().note_resynced(link);
        1
    }

    /// Tells a switch of a group, if that is its home or may be.
    fn tell_route(&mut self, link: usize, key: GroupKey) {
        let is_home = key.is_reply_key(self.core.flows.affinity())
            || usize::from(home_of(
                key.hash(&self.core.settings.seed),
                self.core.settings.switches,
            )) == link;
        if is_home && !self.moves.is_resynced_with_move(&mut self.core, &key) {
            self.core.out.send(link, &Message::Routed(key));
        }
    }

    fn tell_flow(&mut self, link: usize, actor: u32) {
        let header = self.core.flows.header(actor);
        if !matches!(header.phase, Phase::Active | Phase::Waiting | Phase::Leaving) {
            return;
        }
        let is_announced = header.flags & flag::ANNOUNCED != 0;
        if self.core.flows.affinity() == Affinity::Flow {
            self.tell_route(link, GroupKey::of_flow(header.key));
        }
        if is_announced {
            self.tell_route(link, GroupKey::of_flow(*self.core.flows.reply_key(actor)));
        }
    }

    fn tell_block(&mut self, link: usize, addr: Addr, first: u16) {
        // It may have been released since.
        let Some(group) = self.core.flows.owners.at(addr, first) else {
            return;
        };
        if self.moves.is_resynced_with_move(&mut self.core, &group) {
            return;
        }
        let ports = self.core.flows.owners.size_at(first);
        self.core
            .out
            .send(link, &Message::BlockClaimed(Block { addr, first, ports }, group));
    }

    /// Ends flows of groups that are another's: of some groups a step, in the order of their keys.
    #[cold]
    fn give_up(&mut self) -> usize {
        let mut looked = 0;
        while looked < LOOKS {
            let behind = (Bound::Excluded(self.core.sessions.taken_cursor), Bound::Unbounded);
            let Some(words) = self.core.sessions.taken.range(behind).next().copied() else {
                self.core.sessions.taken_cursor = [0; 5];
                break;
            };
            self.core.sessions.taken_cursor = words;
            let group = GroupKey::from_words(words);
            let flows = self.core.flows_of(group);
            looked += 1 + flows.len() as u32;
            if flows.is_empty() && !self.core.is_resting(&group) {
                self.core.sessions.taken.remove(&words);
            } else if !self.moves.is_moving(&group, &self.core.settings.seed) {
                if (self.core.settings.replicated || self.core.ledger.is_on())
                    && !wire::planted::is("taken_given_back")
                {
                    // It goes on elsewhere from a copy, with what it took: nothing is given back
                    // here.
                    if self.core.may_end_now() {
                        self.moves.give_up_copy(&mut self.core, group);
                    }
                    continue;
                }
                if flows.is_empty() && self.core.may_end_now() {
                    self.core.end_group_resting(&group);
                }
                for actor in flows {
                    if self.core.may_end_now() && self.core.flows.header(actor).phase == Phase::Active {
                        self.core.end_actor(actor);
                    }
                }
            }
        }
        usize::from(looked > 0)
    }

    /// The session of the link to a runtime is over: the worker there is gone. To be called
    /// whenever it changes, once what the link brought from before has been taken in.
    #[cold]
    pub fn peer_gone(&mut self, runtime: u16) {
        self.moves.peer_gone(&mut self.core, runtime);
        self.apply_moves();
    }
}
