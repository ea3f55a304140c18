//! Routes of groups that change hands: by which runtime's word they turn, and the answers.
//!
//! A runtime re-routes each key of a group that moves; which runtime the route may follow, and
//! which is told what, is [`protocols::ownership::Home`]'s to say, which is made of the route and
//! put back.
//!
//! ```text
//!   Reroute{S→T} from S ─► route: T ─► Rerouted, behind the last packet to S
//!   DrainMarker{T} from S, behind S's last packet here ─► Drained to T
//!   Reroute{T→S} from S, T is gone ─► T there, or suspended: no answer, S asks again │ else as above
//!                                 └─► the route is the heir's: Fenced
//! ```
//!
//! *DrainMarker* is read when all packets before it have been put into their ports' bursts: packets
//! of T come later, whatever link is read first.
//!
//! *Taken back.* T may have installed the group before it went, and its heir go on with it
//! ([`TakenBack`]). S is told so when the heir announces the group ([`Directory::routed`]). One
//! answer is for all keys of a group here, behind the last of them. So no answer is given while any
//! of them waits, and S says all of them again. A runtime says the keys of a group one behind the
//! other, so one group of each is remembered between two of its keys.
//!
//! *A group without a route that is taken back* has one with the answer: no packet finds it
//! without.
//!
//! *A switch that has begun since* has no route of such a group. Whether an heir has it is known
//! when all runtimes have told what they have, all have said what copies of T they have, and no
//! incarnation of T is suspended: until then S has no answer, and until S has asked again no port
//! is read ([`Directory::has_unrouted`]). Where S has told of the move before, the group has a
//! route to S and is *pending*: T is not there. Such a group is as undecided as one without a
//! route.
//!
//! Not here: the runtimes' end of a move (`mobility`), packets' places in the links.

use super::route::{AWAITED, NO_RUNTIME};
use super::{Directory, Pending, Unrouted};
use crate::env::Port;
use crate::group::GroupKey;
use crate::message::{Message, Reroute, Taken};
use crate::switch::outbox::Outbox;
use protocols::ownership::recovery::TakenBack;
use protocols::ownership::{Epoch, Home, HomeInput, RuntimeId, SwitchMessage};
use wire::planted;

/// Whether another incarnation of the target has agreed than this switch has met: that one knows
/// nothing of the group.
fn is_of_another_incarnation(reroute: &Reroute, met: u64) -> bool {
    let is_one = reroute.incarnation == 0 || met == 0 || reroute.incarnation == met;
    !is_one && !crate::replica::is_broken("a target's incarnation is named")
}

impl Directory {
    /// A runtime says that packets with a group's key go elsewhere. `is_undecided`: it is not known
    /// here yet whether an heir goes on with what the other runtime had.
    #[cold]
    pub fn reroute<L: Port>(
        &mut self,
        runtime: usize,
        reroute: &Reroute,
        is_undecided: bool,
        outbox: &mut Outbox<L>,
    ) {
        let to = usize::from(reroute.to.0);
        let found = self.find_live(&reroute.key);
        let verdict = match (found, is_undecided && reroute.taken != Taken::Not) {
            (None, true) => self.note_unrouted(runtime, reroute),
            (Some(_), true) if self.note_pending(runtime, reroute) => TakenBack::Waits,
            _ => self.taken_back(found, runtime, reroute),
        };
        if verdict != TakenBack::Waits {
            self.unrouted.remove(&reroute.key);
        }
        let has_waiting = self.note_waiting(runtime, reroute, verdict == TakenBack::Waits);
        match verdict {
            TakenBack::Follows => {}
            TakenBack::Waits => return,
            TakenBack::Fenced => {
                let epoch = found.map_or(reroute.epoch, |index| self.routes[index as usize].epoch);
                let fenced = Message::Switch(reroute.group, SwitchMessage::Fenced(epoch));
                return outbox.push_message(runtime, fenced);
            }
        }
        let found = found.filter(|index| !self.is_anothers(*index, runtime, reroute));
        // A route that has ended gets another in the usual way when the group begins again.
        let mut home = Home {
            route: None,
            epoch: Epoch::default(),
            source: None,
        };
        if let Some(index) = found {
            let route = &self.routes[index as usize];
            home = Home {
                route: Some(RuntimeId(route.runtime)),
                epoch: route.epoch,
                source: (route.source != NO_RUNTIME).then_some(RuntimeId(route.source)),
            };
        }
        if home.route == Some(reroute.to) && home.source.is_none() && reroute.key == reroute.group {
            // It had this re-routed before this switch restarted, and the target has told first.
            home.source = Some(RuntimeId(runtime as u16));
        }
        self.blocks.note_reroute(&reroute.group, runtime, reroute.to.0);
        self.forget_pending(&reroute.key);
        let input = HomeInput::Reroute {
            by: RuntimeId(runtime as u16),
            from: reroute.from,
            to: reroute.to,
            epoch: reroute.epoch,
            is_removed: !self.runtimes[to].is_there
                || is_of_another_incarnation(reroute, outbox.incarnation_to_name(to)),
        };
        home.handle(input, |(to, says)| {
            // One answer for all keys of the group: behind the last of them, if none waits.
            if !reroute.is_last || has_waiting {
                return;
            }
            let mut say = |to: RuntimeId, says| {
                outbox.push_message(usize::from(to.0), Message::Switch(reroute.group, says));
            };
            match says {
                // A reply key whose route is another's was refused to this one: its flow is about
                // to end, and the rest goes on.
                SwitchMessage::Fenced(_) if reroute.key != reroute.group => {
                    say(to, SwitchMessage::Rerouted(reroute.epoch));
                    if reroute.from != to && !planted::is("refused_key_not_called_back") {
                        // Called back: the runtime that was to have the group waits for each home's
                        // message.
                        say(reroute.from, SwitchMessage::Moved(reroute.to, reroute.epoch));
                    }
                }
                says => say(to, says),
            }
        });
        let is_back = reroute.taken != Taken::Not && to == runtime && !has_waiting;
        if found.is_none() && is_back && !crate::replica::is_broken("what is taken back has a route at once")
        {
            // Packets come before the source says its routes. Without room it hears so then.
            let _ = self.add(reroute.key, runtime);
            return;
        }
        let (Some(index), Some(RuntimeId(now))) = (found, home.route) else {
            return;
        };
        if !self.runtimes[to].is_there && usize::from(now) == runtime && reroute.epoch > home.epoch {
            let pending = Pending {
                source: now,
                target: reroute.to.0,
                epoch: reroute.epoch,
            };
            self.pending.insert(reroute.key, pending);
        }
        self.set_source(index, home.source, home.epoch);
        if self.runtime(index) != usize::from(now) && !planted::is("route_only_answered") {
            // A runtime that calls it back has had it all the time.
            self.routes[index as usize].set(AWAITED, usize::from(now) != runtime);
            self.turn(index, now);
        }
    }

    /// The verdict on the word of a source that takes a group back. Of a reply key it is as with
    /// any word if another runtime's flow has that key.
    fn taken_back(&self, found: Option<u32>, by: usize, reroute: &Reroute) -> TakenBack {
        if reroute.taken == Taken::Not || crate::replica::is_broken("what is taken back waits for an heir") {
            return TakenBack::Follows;
        }
        let route = found.map(|index| (RuntimeId(self.runtime(index) as u16), self.standing(index)));
        let words = (RuntimeId(by as u16), reroute.from);
        match TakenBack::of(route, words, reroute.taken == Taken::Late) {
            TakenBack::Fenced if reroute.key != reroute.group => TakenBack::Follows,
            verdict => verdict,
        }
    }

    /// A source takes back a group that has no route here, and it is not known yet whether an heir
    /// of the target has it: this switch has begun since.
    #[cold]
    fn note_unrouted(&mut self, runtime: usize, reroute: &Reroute) -> TakenBack {
        if self.unrouted.len() < self.routes_max {
            let source = runtime as u16;
            let epoch = reroute.epoch;
            self.unrouted.insert(reroute.key, Unrouted { source, epoch });
        }
        TakenBack::Waits
    }

    /// The same of a key that is on its way to a target which this switch has not met; whether it
    /// is.
    #[cold]
    fn note_pending(&mut self, runtime: usize, reroute: &Reroute) -> bool {
        let pending = self.pending.get_mut(&reroute.key);
        let ends = (runtime as u16, reroute.from.0);
        let Some(pending) = pending.filter(|key| (key.source, key.target) == ends) else {
            return false;
        };
        pending.epoch = pending.epoch.max(reroute.epoch);
        true
    }

    /// Notes whether a key of a group that is taken back waits for an heir; whether one of those
    /// does that were said with it.
    fn note_waiting(&mut self, runtime: usize, reroute: &Reroute, waits: bool) -> bool {
        let Some(known) = self.waiting.get_mut(runtime) else {
            return waits;
        };
        // Other words are said once, and each has its answer.
        let is_taken = reroute.taken != Taken::Not;
        let has_waiting = is_taken && (waits || *known == Some(reroute.group));
        *known = Some(reroute.group).filter(|_| has_waiting && !reroute.is_last);
        has_waiting && !crate::replica::is_broken("a key that waits holds the answer back")
    }

    /// Whether another runtime was chosen for a group that this one has and moves, while this
    /// switch, having restarted, did not know of it. The target is told so when it says that the
    /// group is installed.
    fn is_anothers(&self, index: u32, by: usize, reroute: &Reroute) -> bool {
        let route = &self.routes[index as usize];
        let others = [route.runtime, route.source];
        !others.contains(&(by as u16))
            && route.runtime != reroute.to.0
            && route.epoch < reroute.epoch
            && reroute.key == reroute.group
    }

    /// The target of a move has the group. Of the incarnation before that, which the route may lead
    /// to, a runtime says nothing by it, unless that incarnation is back: the route is the heir's,
    /// or the source's.
    pub fn installed<L: Port>(
        &mut self,
        runtime: usize,
        (key, epoch): (GroupKey, Epoch),
        is_back: impl Fn() -> bool,
        outbox: &mut Outbox<L>,
    ) {
        let incarnation = self.runtimes[runtime].incarnation;
        let is_any = crate::replica::is_broken("incarnations of a target are told apart");
        let found = self.find_live(&key).map(|index| &mut self.routes[index as usize]);
        match found {
            Some(route) if usize::from(route.runtime) == runtime => {
                if route.epoch == epoch && (route.incarnation == incarnation || is_back() || is_any) {
                    route.set(AWAITED, false);
                }
            }
            // The route has ended meanwhile, with a runtime that has gone or with all.
            _ => self.routed(runtime, key, |_| false, || true, outbox),
        }
    }

    /// The source of a move that this switch was told of late, having restarted: it is over. The
    /// target's word about the group may have come before.
    pub fn moved_before(&mut self, source: usize, key: &GroupKey) {
        if let Some(index) = self.find_live(key) {
            let route = &mut self.routes[index as usize];
            if usize::from(route.source) == source {
                route.set(AWAITED, false);
                self.suspect(index);
            } else if usize::from(route.runtime) == source && !route.has(AWAITED) {
                // The target was not there yet.
                self.suspect(index);
            }
        }
    }
}
