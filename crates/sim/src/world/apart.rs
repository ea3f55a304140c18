//! Where the cluster is several processes: frames between them, and processes that crash alone, or
//! leave by plan (`leaving`).
//!
//! A process that crashes, with all its workers, is replaced at once by one that knows nothing, has
//! a greater incarnation, and takes no turn and hears no frame until it is there again. Frames that
//! the one before has sent may still arrive. Packets that it had in hand are lost; of these there
//! may be as many as were within the cluster when it crashed, or a session ended.
//!
//! Not here: the format of frames, and how a worker's end is noticed (`runtime::peer`).

use super::cluster::Dead;
use super::leaving::{HEARD, LOOK, Leaving, PATIENCE, QUIET, ROUNDS, Stage};
use super::{Due, World};
use crate::Time;
use crate::checkers::{Sighting, converged};
use crate::goings::Going;
use crate::network::{Passage, Path};
use crate::random::{Random, Stream};
use crate::script::{MILLI, Script};
use crate::timeline::Event;
use crate::witness::Account;
use protocols::membership::Incarnation;
use runtime::mobility::{MoveOrder, Selector};
use runtime::stats::{RuntimeStats, SwitchStats};
use std::collections::BTreeMap;

/// The counts of workers that crashed.
#[derive(Default)]
pub(crate) struct Past {
    pub switches: Vec<SwitchStats>,
    pub runtimes: Vec<RuntimeStats>,
    /// Packets that may be lost since a worker was gone.
    pub losses: u64,
    /// Packets that links of those that crashed lost.
    pub unsent: u64,
    /// Sessions of links that have ended.
    pub sessions: u64,
}

/// The network between processes.
pub(super) fn ways(script: &Script) -> BTreeMap<(usize, usize), Path> {
    let shape = &script.shape;
    let Some(apart) = shape.apart else {
        return BTreeMap::new();
    };
    let workers = usize::from(shape.switches) + usize::from(shape.runtimes);
    let pairs = (0..workers).flat_map(|from| (0..workers).map(move |to| (from, to)));
    let pairs = pairs.filter(|(from, to)| shape.are_apart(*from, *to));
    let path = |(from, to): (usize, usize)| {
        let random = Random::of(script.seed, Stream::Apart, 64 + (from * workers + to) as u64);
        ((from, to), Path::new(apart.delay, apart.noise, random))
    };
    pairs.map(path).collect()
}

impl World<'_> {
    /// Puts on their way what a worker has for other processes; whether it has still to do with
    /// them.
    pub(super) fn carry(&mut self, worker: u8) -> bool {
        if self.script.shape.apart.is_none() {
            return false;
        }
        let from = usize::from(worker);
        let mut is_busy = false;
        let now = self.now();
        for to in 0..self.turns.len() {
            let Some(mut end) = self.cluster.ends.get(&(from, to)).map(|end| end.borrow_mut()) else {
                continue;
            };
            let frames = std::mem::take(&mut end.outbox);
            let session = end.session;
            is_busy |= end.is_busy;
            drop(end);
            let known = self.sessions.get(&(from, to)).copied().unwrap_or(0);
            if known != session {
                self.sessions.insert((from, to), session);
                self.timeline.note(now, Event::Session(worker, to as u8, session));
                if known != 0 {
                    self.past.sessions += 1;
                    self.note_losses(0);
                    self.note_let_go(from, to);
                }
            }
            for frame in frames {
                self.timeline.fold(&frame);
                let Some(path) = self.ways.get_mut(&(from, to)) else {
                    continue;
                };
                if let Passage::Arrives(first, second) = path.put(now, frame.len()) {
                    for arrival in second.into_iter().chain([first]) {
                        let mut frame = frame.clone();
                        if let Some(bit) = arrival.flipped {
                            let bit = (bit % (8 * frame.len().max(1) as u64)) as usize;
                            frame[bit / 8] ^= 1 << (bit % 8);
                        }
                        self.plan_for(arrival.at, Due::Carried(from as u8, to as u8, frame));
                    }
                }
            }
        }
        is_busy
    }

    /// A session between two workers is over.
    fn note_let_go(&mut self, one: usize, other: usize) {
        let switches = usize::from(self.script.shape.switches);
        let (switch, runtime) = (one.min(other), one.max(other));
        if self.script.has_silence() && switch < switches && runtime >= switches {
            self.let_go[runtime - switches] = true;
        }
    }

    /// Takes out the flows of runtimes that a switch has let go, until it knows what each has: they
    /// have no effect, or [`crate::checkers::kept`] sees it.
    pub(super) fn forget_let_go(&mut self, flows: &mut Vec<Sighting>) {
        for runtime in 0..self.let_go.len() {
            self.let_go[runtime] = self.let_go[runtime] && !self.is_known(runtime);
        }
        flows.retain(|(runtime, _)| !self.let_go[usize::from(*runtime)]);
    }

    /// Whether all switches have met a runtime, and it has told them all that it has, and heard
    /// what they say of it.
    fn is_known(&self, runtime: usize) -> bool {
        let switches = usize::from(self.script.shape.switches);
        let is_drained = |switch: usize| {
            let ends = [(switch, switches + runtime), (switches + runtime, switch)];
            let [Some(one), Some(other)] = ends.map(|ends| self.cluster.ends.get(&ends)) else {
                // A ring.
                return true;
            };
            let [one, other] = [one.borrow(), other.borrow()];
            let is_met = one.session != 0 && one.session == other.session;
            is_met && one.is_drained() && other.is_drained()
        };
        self.cluster.runtimes[runtime].has_resynced() && (0..switches).all(is_drained)
    }

    pub(super) fn arrive_at_worker(&mut self, from: u8, to: u8, frame: Vec<u8>) {
        if self.turns[usize::from(to)].down_until > self.now() {
            return;
        }
        if let Some(end) = self.cluster.ends.get(&(usize::from(to), usize::from(from))) {
            end.borrow_mut().inbox.push_back(frame);
            self.rouse(to, self.now());
        }
    }

    /// Whether all workers are there and know each other, no flow is yet to go on elsewhere or to
    /// end where it was, and each has a copy that its runtime knows of.
    pub(super) fn is_all_copied(&self) -> bool {
        let now = self.now();
        // A worker that is silent has flows that others have no word of.
        if self.silent_until > now {
            return false;
        }
        let mut sums = [0, 0];
        let is_protected = self.cluster.runtimes.iter().all(|runtime| {
            let stats = runtime.stats();
            sums[0] += stats.flows;
            sums[1] += stats.copies;
            stats.protected_by.is_some() && runtime.finished() && runtime.has_resynced()
        });
        let incarnations = &self.cluster.incarnations;
        // Not those of before (`Cluster::end`), and not those that have met no worker.
        let is_met = |(from, to): (usize, usize), session: u64| {
            session != 0 && session >> 32 == incarnations[from] + incarnations[to]
        };
        let mut ends = self.cluster.ends.iter();
        let is_met = ends.all(|(ends, end)| is_met(*ends, end.borrow().session));
        let is_up = self.turns.iter().all(|turns| turns.down_until <= now);
        let is_recovered = !self.cluster.switches.iter().any(|switch| switch.is_recovering());
        is_protected && is_met && is_up && is_recovered && sums[0] == sums[1]
    }

    /// All packets that are within the cluster now may be lost; of those that workers hold, so
    /// many.
    pub(super) fn note_losses(&mut self, held: u64) {
        let within = self.figures().missing() + held as i64;
        self.past.losses = self.past.losses.max(within.max(0) as u64);
    }

    /// The process of one worker crashes, and begins again after `time`.
    pub(super) fn crash_one(&mut self, worker: u8, time: u64) {
        self.end_process(worker, time, false);
    }

    /// The process of a worker ends, and begins again after `time`. `is_empty`: nothing may be lost
    /// by that.
    pub(super) fn end_process(&mut self, worker: u8, time: u64, is_empty: bool) {
        let now = self.now();
        let process = self.script.shape.process_of(worker);
        let switches = usize::from(self.script.shape.switches);
        if !is_empty {
            self.order.cut();
        }
        let held = process.iter().map(|worker| {
            let index = usize::from(*worker);
            match index.checked_sub(switches) {
                None => self.cluster.switches[index].stats().held,
                Some(runtime) => self.cluster.runtimes[runtime].stats().held,
            }
        });
        let held = held.sum();
        if !is_empty {
            self.note_losses(held);
        }
        let local = self.turns[usize::from(worker)].now(now);
        let before = self.cluster.unsent();
        let begun = (process.as_slice(), local);
        let begun = self
            .cluster
            .begin_again(self.script, &self.plans, &self.clock, begun);
        let Ok(dead) = begun else {
            return;
        };
        self.past.unsent += before - self.cluster.unsent();
        for (dead, worker) in dead.iter().zip(&process) {
            match dead {
                Dead::Switch(switch) => self.past.switches.push(switch.stats()),
                Dead::Runtime(runtime) => {
                    self.past.runtimes.push(runtime.stats());
                    let from = usize::from(*worker) - switches;
                    Account::note_crash(from as u16);
                    self.orders.retain(|(of, _)| usize::from(*of) != from);
                }
            }
        }
        Account::unseen(|| Dead::scrap(dead, &self.clock));
        for worker in process {
            let index = usize::from(worker);
            self.departing[index] = None;
            self.changing.forget(index);
            self.begin_agent(index);
            for other in 0..self.turns.len() {
                self.sessions.remove(&(index, other));
            }
            let turns = &mut self.turns[index];
            turns.down_until = now + time;
            turns.next = crate::Time::MAX;
            turns.version += 1;
            self.plan_for(now + time, Due::Return(worker));
        }
        self.ask_no_order_if_late();
    }

    /// A runtime begins to leave, unless it is not there, or does already.
    pub(super) fn begin_going(&mut self, index: u16) {
        self.open_goings -= 1;
        let (now, going) = (self.now(), self.script.goings[usize::from(index)]);
        let worker = self.script.shape.switches + going.runtime as u8;
        let process = self.script.shape.process_of(worker);
        let may_leave = |worker: &u8| {
            let place = usize::from(*worker);
            let is_there = self.turns[place].down_until <= now && self.has_member_slot(*worker);
            is_there && !self.is_removed(place) && self.departing[place].is_none()
        };
        if self.script.shape.has_switch(worker) || !process.iter().all(may_leave) {
            return;
        }
        for worker in process {
            self.begin_leaving(worker, &going);
        }
    }

    fn begin_leaving(&mut self, worker: u8, going: &Going) {
        let (now, place) = (self.now(), usize::from(worker));
        let Some(incarnation) = self.incarnation_of(place) else {
            return;
        };
        self.timeline.note(now, Event::Leaves(worker));
        let stage = match going.is_drained {
            true => Stage::Drained,
            false => Stage::Said,
        };
        if stage == Stage::Said {
            let runtime = worker - self.script.shape.switches;
            self.cluster.runtimes[usize::from(runtime)].set_leaving(true);
        }
        self.departing[place] = Some(Leaving {
            incarnation,
            stage,
            since: now,
            seen: 0,
            quiet: now,
            is_quiet: false,
            rounds: 0,
            away: going.away,
        });
        self.rouse(worker, now);
        self.plan_for(now + LOOK, Due::Leaves(worker, incarnation));
    }

    /// How far a runtime is that leaves.
    pub(super) fn go_on_leaving(&mut self, worker: u8, incarnation: Incarnation) {
        let (now, place) = (self.now(), usize::from(worker));
        let is_its = |leaving: &Leaving| leaving.incarnation == incarnation;
        let Some(mut leaving) = self.departing[place].take_if(|leaving| is_its(leaving)) else {
            return;
        };
        if self.turns[place].stalled_until <= now {
            let stage = self.next_stage(worker, &mut leaving);
            if stage != leaving.stage {
                // Its words in this stage have all of the time to go out.
                (leaving.stage, leaving.since) = (stage, now);
                (leaving.quiet, leaving.is_quiet) = (now, false);
            }
        }
        if leaving.stage == Stage::Gone && now >= leaving.since + PATIENCE {
            if self.script.is_calm {
                self.fail(Err(converged::not_left(&self.script.worker(worker))));
            }
            return self.end_left(worker, leaving.away);
        }
        self.departing[place] = Some(leaving);
        self.rouse(worker, now);
        self.plan_for(now + LOOK, Due::Leaves(worker, incarnation));
    }

    fn next_stage(&mut self, worker: u8, leaving: &mut Leaving) -> Stage {
        let (now, switches) = (self.now(), self.script.shape.switches);
        let index = usize::from(worker - switches);
        let is_late = now >= leaving.since + PATIENCE;
        match leaving.stage {
            Stage::Drained => {
                let knows = self.cluster.runtimes[index].stats().leaving;
                if !knows && !is_late {
                    self.drain_by_office(worker, leaving.incarnation);
                    return Stage::Drained;
                }
                self.cluster.runtimes[index].set_leaving(true);
                Stage::Said
            }
            Stage::Said if now < leaving.since + HEARD => Stage::Said,
            Stage::Said => self.order_away(index, leaving),
            Stage::Moving(order) => {
                let runtime = &mut self.cluster.runtimes[index];
                match runtime.receipt(order) {
                    Some(receipt) if !receipt.is_over && !is_late => Stage::Moving(order),
                    Some(receipt) if receipt.moved > 0 => self.order_away(index, leaving),
                    _ => Stage::Draining,
                }
            }
            Stage::Draining | Stage::Finishing => {
                let runtime = &mut self.cluster.runtimes[index];
                if leaving.stage == Stage::Finishing && runtime.stats().flows > 0 && !self.script.is_calm {
                    // Groups that could not move end with it, and packets that come now are of no
                    // flow: a balancer lets such answers pass.
                    self.order.cut();
                }
                let has_ended = leaving.stage == Stage::Draining || runtime.finish(usize::MAX);
                let stats = runtime.stats();
                let is_home = has_ended && runtime.finished() && !runtime.has_waiting() && stats.held == 0;
                let seen = stats.received + stats.packets_moved[0];
                if !is_home || seen != leaving.seen {
                    (leaving.seen, leaving.quiet) = (seen, now);
                }
                leaving.is_quiet = now >= leaving.quiet + QUIET || is_late;
                match leaving.stage {
                    stage if !leaving.is_quiet => stage,
                    Stage::Draining => Stage::Finishing,
                    _ => self.rest_with_others(worker),
                }
            }
            Stage::Gone => Stage::Gone,
        }
    }

    /// The process takes no more steps once the flows that were left have ended at all of its
    /// runtimes, and nothing comes to any.
    fn rest_with_others(&mut self, worker: u8) -> Stage {
        let process = self.script.shape.process_of(worker);
        let is_done = |other: &u8| {
            let leaving = self.departing[usize::from(*other)].as_ref();
            let is_its = |leaving: &Leaving| leaving.stage == Stage::Finishing && leaving.is_quiet;
            *other == worker || leaving.is_some_and(is_its)
        };
        if !process.iter().all(is_done) {
            return Stage::Finishing;
        }
        let now = self.now();
        for other in process {
            if let Some(leaving) = &mut self.departing[usize::from(other)] {
                (leaving.stage, leaving.since) = (Stage::Gone, now);
            }
            self.rest_for_good(other);
        }
        Stage::Gone
    }

    /// Moves all groups to runtimes that do not leave.
    fn order_away(&mut self, index: usize, leaving: &mut Leaving) -> Stage {
        let (switches, runtimes) = (
            usize::from(self.script.shape.switches),
            self.script.shape.runtimes,
        );
        let runtime = &mut self.cluster.runtimes[index];
        let stats = runtime.stats();
        let takes = |other: &u16| {
            let is_met = self
                .sessions
                .get(&(switches + index, switches + usize::from(*other)));
            is_met.is_some_and(|session| *session != 0) && !runtime.knows_leaving(*other)
        };
        let to: Vec<u16> = (0..runtimes).filter(takes).collect();
        leaving.rounds += 1;
        if stats.flows + stats.groups_resting == 0 || to.is_empty() || leaving.rounds > ROUNDS {
            return Stage::Draining;
        }
        let selector = Selector::All;
        match runtime.order(MoveOrder { selector, to }) {
            Ok(number) => {
                self.orders.push((index as u16, number));
                Stage::Moving(number)
            }
            Err(_) => Stage::Draining,
        }
    }

    /// A runtime that has left the view, as its agent has heard: its process ends.
    pub(super) fn end_if_left(&mut self, worker: u8) {
        let place = usize::from(worker);
        if let Some(leaving) = self.departing[place].take_if(|leaving| leaving.stage == Stage::Gone) {
            self.end_left(worker, leaving.away);
        }
    }

    fn end_left(&mut self, worker: u8, away: u64) {
        let away = if self.now() >= self.script.heals_at {
            MILLI
        } else {
            away
        };
        self.end_process(worker, away, self.script.is_calm);
    }

    /// Whether a runtime takes no more steps, and has its member slot given up.
    pub(super) fn is_gone(&self, worker: usize) -> bool {
        let leaving = self.departing[worker].as_ref();
        leaving.is_some_and(|leaving| leaving.stage == Stage::Gone)
    }

    /// A worker takes no more steps.
    fn rest_for_good(&mut self, worker: u8) {
        let turns = &mut self.turns[usize::from(worker)];
        turns.next = Time::MAX;
        turns.version += 1;
        self.leave_view(worker);
    }
}
