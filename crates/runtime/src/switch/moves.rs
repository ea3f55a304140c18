//! Groups that move: re-routing, and what is said about it in-band.
//!
//! # Theory of operation
//!
//! A runtime re-routes each key of a group that moves; whom the route may follow, and who is told what, is
//! [`protocols::ownership::Home`]'s to say, which is made of the route and put back. What is said goes into the link's burst as it is now,
//! behind all packets that were sent there, and before any that the new route will bring.
//!
//! ```text
//!   Reroute{S→T} from S ─► route: T ─► Rerouted, behind the last packet to S
//!   Behind{T} from S, behind S's last packet here ─► Clear to T
//! ```
//!
//! *Behind* is read when all packets before it have been put into their ports' bursts: what T sends comes later, whatever link is read
//! first. A block that goes back to another runtime's pool is told to that one in the same way.
//!
//! Invariants: a word waits, if there is no buffer or room for it, and none is lost (how many: `hearing`); it is behind everything that was sent there when it was
//! said, which is all that its hearer concludes from it.
//!
//! Not here: where groups go (`worker::migrate`).

use super::Switch;
use super::routes::NO_RUNTIME;
use crate::env::Port;
use crate::group::GroupKey;
use crate::message::{Message, Reroute};
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use protocols::ownership::{Epoch, Home, HomeInput, RuntimeId, SwitchSays};
use wire::{PacketBox, planted};

/// Words that are to be said, by runtime.
#[derive(Default)]
pub(super) struct Moves {
    unsaid: Vec<VecDeque<Message>>,
    /// How many that are.
    waiting: usize,
    /// For runtimes that are not there.
    early: Vec<VecDeque<Message>>,
    /// For one runtime, at most: more are nothing that groups and blocks can have caused (`hearing`).
    most: usize,
    refused: u64,
    /// Who is first when there are buffers again.
    next: usize,
}

impl Moves {
    pub fn new(runtimes: usize, most: usize) -> Self {
        Moves {
            unsaid: (0..runtimes).map(|_| VecDeque::new()).collect(),
            early: (0..runtimes).map(|_| VecDeque::new()).collect(),
            most,
            ..Self::default()
        }
    }

    pub fn is_empty(&self) -> bool {
        self.waiting == 0
    }

    /// Whether something is to be said to a runtime.
    pub fn has_unsaid(&self, runtime: usize) -> bool {
        !self.unsaid[runtime].is_empty()
    }

    /// How many words were more than may wait.
    pub fn refused(&self) -> u64 {
        self.refused
    }

    /// What waits for a runtime that is not there yet, now that it is.
    pub fn say_to_new(&mut self, runtime: usize) {
        for message in core::mem::take(&mut self.early[runtime]) {
            self.say(runtime, message);
        }
    }

    /// What was to be said to a runtime that is not there: words about moves wait for one that this switch has not met yet: others may have, and move
    /// groups to it.
    fn wait(&mut self, runtime: usize) {
        for message in self.forget(runtime) {
            if let Message::Switch(..) | Message::BlockDoubted(..) = message {
                if self.early[runtime].len() < self.most {
                    self.early[runtime].push_back(message);
                } else {
                    self.refused += 1;
                }
            }
        }
    }

    /// What was to be said to a runtime that has gone.
    pub fn forget(&mut self, runtime: usize) -> VecDeque<Message> {
        let its = core::mem::take(&mut self.unsaid[runtime]);
        self.waiting -= its.len();
        its
    }

    pub fn say(&mut self, runtime: usize, message: Message) {
        match self.unsaid.get_mut(runtime) {
            Some(unsaid) if unsaid.len() < self.most => {
                unsaid.push_back(message);
                self.waiting += 1;
            }
            _ => self.refused += 1,
        }
    }

    /// Puts words to a runtime into a frame, as many as fit.
    fn fill(&mut self, runtime: usize, frame: &mut PacketBox) {
        let unsaid = &mut self.unsaid[runtime];
        while unsaid.front().is_some_and(|message| message.append(frame)) {
            unsaid.pop_front();
            self.waiting -= 1;
        }
    }
}

impl<P: Port, L: Port> Switch<P, L> {
    /// A runtime says that packets with a group's key go elsewhere.
    #[cold]
    pub(super) fn reroute(&mut self, runtime: usize, reroute: &Reroute) {
        let to = usize::from(reroute.to.0);
        let found = self
            .find_live(&reroute.key)
            .filter(|index| !self.is_anothers(*index, runtime, reroute));
        let mut home = match found {
            Some(index) => {
                let route = &self.routes[index as usize];
                Home {
                    route: Some(RuntimeId(route.runtime)),
                    epoch: route.epoch,
                    source: (route.source != NO_RUNTIME).then_some(RuntimeId(route.source)),
                }
            }
            // It has ended; whoever begins it anew gets a route by the usual way.
            None => Home {
                route: None,
                epoch: Default::default(),
                source: None,
            },
        };
        if home.route == Some(reroute.to) && home.source.is_none() && reroute.key == reroute.group {
            // It had this re-routed before this switch began anew, and the target has told first.
            home.source = Some(RuntimeId(runtime as u16));
        }
        self.sessions.note_reroute(&reroute.group, runtime, reroute.to.0);
        self.sessions.forget_unmet(&reroute.key);
        let input = HomeInput::Reroute {
            by: RuntimeId(runtime as u16),
            from: reroute.from,
            to: reroute.to,
            epoch: reroute.epoch,
            is_removed: self.runtimes[to].session == 0,
        };
        let moves = &mut self.moves;
        home.handle(input, |(to, says)| {
            // One answer for all keys of the group: behind the last of them.
            if !reroute.is_last {
                return;
            }
            let mut say =
                |to: RuntimeId, says| moves.say(usize::from(to.0), Message::Switch(reroute.group, says));
            match says {
                // A second key whose route is another's was refused to this one: its flow is about to end, and the rest goes on.
                SwitchSays::Fenced(_) if reroute.key != reroute.group => {
                    say(to, SwitchSays::Rerouted(reroute.epoch));
                    if reroute.from != to && !planted::is("refused_key_not_called_back") {
                        // Called back: who was to have the group waits for each home's word.
                        say(reroute.from, SwitchSays::Moved(reroute.to, reroute.epoch));
                    }
                }
                says => say(to, says),
            }
        });
        let (Some(index), Some(RuntimeId(now))) = (found, home.route) else {
            return;
        };
        if self.runtimes[to].session == 0 && usize::from(now) == runtime && reroute.epoch > home.epoch {
            self.sessions
                .note_unmet(reroute.key, now, reroute.to.0, reroute.epoch);
        }
        let route = &mut self.routes[index as usize];
        route.epoch = home.epoch;
        route.source = home.source.map_or(NO_RUNTIME, |source| source.0);
        route.source_life = home
            .source
            .map_or(0, |source| self.runtimes[usize::from(source.0)].life);
        if route.runtime != now && !planted::is("route_only_answered") {
            // Who calls it back has had it all the time.
            route.set_awaited(usize::from(now) != runtime);
            self.turn_route(index, now);
        }
    }

    /// Whether another runtime was chosen for a group that this one has and moves, while this switch, having begun anew, did not know of it. Whoever
    /// gets it is told so ([`Switch::installed`]).
    fn is_anothers(&self, index: u32, by: usize, reroute: &Reroute) -> bool {
        let route = &self.routes[index as usize];
        let others = [route.runtime, route.source];
        !others.contains(&(by as u16))
            && route.runtime != reroute.to.0
            && route.epoch < reroute.epoch
            && reroute.key == reroute.group
    }

    /// A route leads elsewhere from now on.
    pub(super) fn turn_route(&mut self, index: u32, to: u16) {
        let route = &mut self.routes[index as usize];
        self.sessions.forget_unmet(&route.key);
        let before = usize::from(core::mem::replace(&mut route.runtime, to));
        let link = &mut self.runtimes[usize::from(to)];
        route.set_last_sent(link.sent);
        route.life = link.life;
        link.groups += 1;
        self.runtimes[before].groups -= 1;
    }

    /// The target of a move has the group.
    pub(super) fn installed(&mut self, runtime: usize, key: &GroupKey, epoch: Epoch) {
        let found = self.find_live(key).map(|index| &mut self.routes[index as usize]);
        match found {
            Some(route) if usize::from(route.runtime) == runtime => {
                if route.epoch == epoch {
                    route.set_awaited(false);
                }
            }
            // The route was forgotten meanwhile, with somebody who is gone or with all.
            _ => self.routed(runtime, *key),
        }
    }

    /// The source of a move that this switch was told of late, having begun anew: it is over. What the target has said of it may have come
    /// before.
    pub(super) fn doubt_after(&mut self, source: usize, key: &GroupKey) {
        if let Some(index) = self.find_live(key) {
            let route = &mut self.routes[index as usize];
            if usize::from(route.source) == source {
                route.set_awaited(false);
                self.doubt_anyway(index);
            } else if usize::from(route.runtime) == source && !route.is_awaited() {
                // The target was not there yet.
                self.doubt_anyway(index);
            }
        }
    }

    /// As if so many packets of other groups had been sent to each runtime.
    #[cfg(test)]
    pub fn age_links(&mut self, packets: u64) {
        for runtime in &mut self.runtimes {
            runtime.sent += packets;
        }
    }

    /// The routes there are, and their runtimes.
    #[cfg(test)]
    pub fn route_keys(&self) -> Vec<(GroupKey, u16)> {
        let routes = self.routes.iter().filter(|route| route.runtime != NO_RUNTIME);
        routes.map(|route| (route.key, route.runtime)).collect()
    }

    /// The blocks there are, and their groups.
    #[cfg(test)]
    pub fn blocks_known(&self) -> Vec<((nf::Addr, u16), GroupKey)> {
        let places = self.blocks.places().into_iter();
        places
            .filter_map(|(addr, first)| Some(((addr, first), self.blocks.at(addr, first)?)))
            .collect()
    }

    pub(super) fn say(&mut self, to: RuntimeId, group: GroupKey, says: SwitchSays) {
        self.moves.say(usize::from(to.0), Message::Switch(group, says));
    }

    /// Says what is to be said, as far as there are buffers and links have room: who does not read shall not have all buffers.
    #[inline]
    pub(super) fn answer_moves(&mut self) {
        if !self.moves.is_empty() {
            self.answer_each();
        }
    }

    #[cold]
    fn answer_each(&mut self) {
        let count = self.runtimes.len();
        let first = self.moves.next;
        for runtime in (first..count).chain(0..first) {
            if self.moves.has_unsaid(runtime) && !self.say_to(runtime) {
                self.moves.next = runtime;
                return;
            }
        }
    }

    /// Says what is to be said to a runtime; `false` if there is no buffer.
    fn say_to(&mut self, runtime: usize) -> bool {
        if self.runtimes[runtime].session == 0 {
            self.moves.wait(runtime);
            return true;
        }
        loop {
            let link = &mut self.runtimes[runtime];
            if !self.moves.has_unsaid(runtime) || link.link.room() <= link.burst.len() {
                return true;
            }
            let Some(mut frame) = self.pool.take() else {
                return false;
            };
            Message::begin(&mut frame);
            self.moves.fill(runtime, &mut frame);
            if link.burst.is_full() {
                link.link.transmit(self.now, &mut self.pool, &mut link.burst);
            }
            link.burst.push(frame);
        }
    }
}
