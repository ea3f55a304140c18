//! Three runtimes, each of which keeps another's copies, and one switch, with the production
//! machines and decisions.
//!
//! # Theory of operation
//!
//! A [`World`] is what the workers know of one group, and the links between them, which keep order
//! and lose nothing but what a runtime that crashed had sent last. Its drivers do what
//! `runtime::mobility`, `runtime::replica`, `runtime::switch::recovery` and
//! `runtime::switch::directory` do with the machines and decisions of this module:
//!
//! ```text
//!   runtime: Ownership while the group is on its way · state · packets that wait for the replica · copies of others · recoveries
//!   switch:  Home and recovery::Standing of the route · gone runtimes, reports, heirs · packets that wait for an heir
//! ```
//!
//! *A crash.* Messages on their way to the runtime are lost at once. Its own are delivered link by
//! link, until the reader notices: then the rest of that link is lost. Each worker notices by
//! itself, at any time.
//!
//! *The measure.* The state is how many packets it has seen. [`World::holders`] are the live
//! runtimes that have it, as actors, as sources that wait for *Done*, or as copies that count.
//!
//! Not here: runtimes that are given up and live (`membership`), and such as begin again; time that
//! ends a suspension; a group that begins again: a packet without a group is a counted drop.

mod copies;
mod runtime;
mod switch;

use super::super::super::recovery::{
    Course, Heard, Heir, Report, Standing, TakenBack, Withdrawn, goes_on_from_copies, heir, may_begin,
    may_leave,
};
use super::super::super::*;
use std::format;
use std::string::String;
use std::vec;
use std::vec::Vec;

pub(super) const RUNTIMES: usize = 3;
/// The switch, among those that notice.
const SWITCH: usize = RUNTIMES;

/// The actions that may happen, and how often.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bounds {
    pub(super) packets: u8,
    pub(super) moves: u8,
    /// Runtimes that crash.
    pub(super) crashes: u8,
    /// Whether the flow may end.
    pub(super) ends: bool,
    /// Whether *Done* may be among what a runtime that crashed had sent last, and is lost.
    pub(super) loses_done: bool,
}

/// On a link.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum Item {
    Packet(u8),
    // Between runtimes.
    RuntimeMessage(RuntimeMessage),
    /// With how many packets the state has seen; none: the flow has ended.
    State(Epoch, Option<u8>),
    Base(u32),
    Copy(u8),
    /// The copy is void. Whether the group, which has just come, is over, as one change with that.
    End(bool),
    /// Whether such a group is.
    Over(bool),
    Acknowledged(u32, u64),
    // To the switch.
    Tell(TellSwitch),
    Installed(Epoch),
    Routed,
    GroupEmpty,
    Suspect,
    Keeps(u8, u32),
    Recovered(u8),
    // From the switch.
    SwitchMessage(SwitchMessage),
    Heir(u8),
    Probe,
    Taken,
}

/// Copies of another runtime.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
struct Copies {
    number: u32,
    count: u64,
    seen: Option<u8>,
    is_over: bool,
}

/// When a packet that is kept is processed, as `mobility::Class`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
enum Class {
    Before,
    Handed,
    Behind,
}

/// A runtime.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct Runtime {
    /// While the group is on its way.
    machine: Option<Ownership>,
    clock: Epoch,
    /// The state: how many packets it has seen.
    seen: Option<u8>,
    /// The state that came in `State`.
    staged: Option<u8>,
    /// The state is sent, or about to be.
    is_leaving: bool,
    quiesces: bool,
    is_to_be_routed: bool,
    is_asked: bool,
    is_taken: bool,
    /// It came by a move, and has ended, before its source is known to have read *Done*.
    is_over: bool,
    /// The replica was sent the state, and not told that it counts no more.
    is_copied: bool,
    kept: Vec<(Class, u8)>,
    // As a primary.
    replica: Option<u8>,
    number: u32,
    sent: u64,
    acknowledged: u64,
    /// Packets that wait for so many records.
    gate: Vec<(u8, u64)>,
    /// `State` of this epoch waits for the replica.
    withdrawn: Option<(RuntimeId, Epoch, Withdrawn)>,
    /// *Done* waits for so many records of a base.
    done: Option<(RuntimeId, RuntimeMessage, Withdrawn)>,
    // As a replica.
    copies: [Option<Copies>; RUNTIMES],
    /// Of runtimes that are gone, and whether the switch has let them go.
    recoveries: [Option<(Copies, bool)>; RUNTIMES],
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct Suspension {
    heir: Option<u8>,
    is_recovered: bool,
    waiting: Vec<u8>,
}

/// The switch.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct Switch {
    route: Option<u8>,
    epoch: Epoch,
    source: Option<u8>,
    is_awaited: bool,
    suspended: [Option<Suspension>; RUNTIMES],
    reports: [[Option<Report>; RUNTIMES]; RUNTIMES],
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) struct World {
    /// `None`: crashed.
    runtimes: [Option<Runtime>; RUNTIMES],
    switch: Switch,
    up: [Vec<Item>; RUNTIMES],
    down: [Vec<Item>; RUNTIMES],
    across: [[Vec<Item>; RUNTIMES]; RUNTIMES],
    /// By runtime that crashed: which workers have noticed, a bit each.
    noticed: [u8; RUNTIMES],
    came: u8,
    left: u8,
    dropped: u8,
    /// A bit for each, as in `dropped`.
    processed: u8,
    moves: u8,
    /// Whether the flow has ended.
    ended: bool,
    /// The state may be lost, for one of the reasons of [`World::crash`].
    pub(super) may_be_lost: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Action {
    Come,
    Up(usize),
    Down(usize),
    Across(usize, usize),
    Refused(usize, usize),
    Order(usize, usize),
    Quiesced(usize),
    Deadline(usize),
    /// A source says again that it takes the group back.
    Again(usize),
    End(usize),
    Crash(usize),
    Notice(usize, usize),
}

pub(super) type Check = Result<(), String>;

fn id(runtime: usize) -> RuntimeId {
    RuntimeId(runtime as u16)
}

/// A runtime's incarnation; no runtime begins again.
const fn incarnation(runtime: usize) -> u64 {
    runtime as u64 + 1
}

impl Runtime {
    fn new(me: usize) -> Self {
        let has_it = me == 0;
        let primary = (me + RUNTIMES - 1) % RUNTIMES;
        let mut copies = [None; RUNTIMES];
        copies[primary] = Some(Copies {
            number: 1,
            count: if primary == 0 { 2 } else { 1 },
            seen: (primary == 0).then_some(0),
            is_over: false,
        });
        Runtime {
            machine: None,
            clock: Epoch::default(),
            seen: has_it.then_some(0),
            staged: None,
            is_leaving: false,
            quiesces: false,
            is_to_be_routed: false,
            is_asked: false,
            is_taken: false,
            is_over: false,
            is_copied: has_it,
            kept: vec![],
            replica: Some(((me + 1) % RUNTIMES) as u8),
            number: 1,
            sent: if has_it { 2 } else { 1 },
            acknowledged: if has_it { 2 } else { 1 },
            gate: vec![],
            withdrawn: None,
            done: None,
            copies,
            recoveries: [None; RUNTIMES],
        }
    }

    /// Whether it processes the group's packets. Packets of a group that is called back are all
    /// kept until it is here.
    fn is_actor(&self) -> bool {
        let acts =
            |machine: Ownership| machine.is_active() && !matches!(machine.phase(), Phase::Returning { .. });
        self.seen.is_some() && self.machine.is_none_or(acts)
    }
}

impl World {
    pub(super) fn new() -> Self {
        World {
            runtimes: [0, 1, 2].map(|me| Some(Runtime::new(me))),
            switch: Switch {
                route: Some(0),
                epoch: Epoch::default(),
                source: None,
                is_awaited: false,
                suspended: [const { None }; RUNTIMES],
                reports: [[None; RUNTIMES]; RUNTIMES],
            },
            up: Default::default(),
            down: Default::default(),
            across: Default::default(),
            noticed: [0; RUNTIMES],
            came: 0,
            left: 0,
            dropped: 0,
            processed: 0,
            moves: 0,
            ended: false,
            may_be_lost: false,
        }
    }

    fn crashes(&self) -> usize {
        self.runtimes.iter().filter(|runtime| runtime.is_none()).count()
    }

    /// Whether a worker has noticed that a runtime is gone.
    fn knows(&self, worker: usize, gone: usize) -> bool {
        self.noticed[gone] >> worker & 1 == 1
    }

    fn incarnations(&self) -> impl Iterator<Item = (usize, &Runtime)> + Clone {
        (0..RUNTIMES).filter_map(|r| Some((r, self.runtimes[r].as_ref()?)))
    }

    fn is_quiet(&self) -> bool {
        let links = self
            .up
            .iter()
            .chain(&self.down)
            .chain(self.across.iter().flatten());
        links.into_iter().all(Vec::is_empty)
    }

    pub(super) fn actions(&self, bounds: &Bounds) -> Vec<Action> {
        let mut all = vec![];
        if self.came < bounds.packets {
            all.push(Action::Come);
        }
        for r in 0..RUNTIMES {
            if !self.up[r].is_empty() {
                all.push(Action::Up(r));
            }
            if !self.down[r].is_empty() {
                all.push(Action::Down(r));
            }
            for to in 0..RUNTIMES {
                if let Some(first) = self.across[r][to].first() {
                    all.push(Action::Across(r, to));
                    if matches!(first, Item::RuntimeMessage(RuntimeMessage::Open(..))) {
                        all.push(Action::Refused(r, to));
                    }
                }
            }
            let Some(runtime) = &self.runtimes[r] else {
                for worker in 0..=SWITCH {
                    let is_there = worker == SWITCH || self.runtimes[worker].is_some();
                    let is_done = |item: &Item| matches!(item, Item::RuntimeMessage(RuntimeMessage::Done(_)));
                    let is_to_come =
                        worker != SWITCH && !bounds.loses_done && self.across[r][worker].iter().any(is_done);
                    if is_there && !self.knows(worker, r) && !is_to_come {
                        all.push(Action::Notice(worker, r));
                    }
                }
                continue;
            };
            let is_still = runtime.recoveries.iter().any(Option::is_some);
            if self.moves < bounds.moves && runtime.machine.is_none() && runtime.seen.is_some() && !is_still {
                let others = (0..RUNTIMES).filter(|to| *to != r && !self.knows(r, *to));
                all.extend(others.map(|to| Action::Order(r, to)));
            }
            if runtime.quiesces && runtime.gate.is_empty() {
                all.push(Action::Quiesced(r));
            }
            let is_armed = |machine: Ownership| machine.is_armed(Timer::Deadline);
            if runtime.machine.is_some_and(is_armed) {
                all.push(Action::Deadline(r));
            }
            let is_answer = |item: &Item| {
                matches!(
                    item,
                    Item::SwitchMessage(SwitchMessage::Rerouted(_) | SwitchMessage::Fenced(_))
                )
            };
            let is_said = |item: &Item| matches!(item, Item::Tell(TellSwitch::Reroute { .. }));
            if runtime.machine.is_some_and(|machine| machine.is_taken_back())
                && !self.up[r].iter().any(is_said)
                && !self.down[r].iter().any(is_answer)
            {
                all.push(Action::Again(r));
            }
            if bounds.ends && !self.ended && runtime.is_actor() && !runtime.is_leaving {
                all.push(Action::End(r));
            }
            if self.crashes() < usize::from(bounds.crashes) {
                all.push(Action::Crash(r));
            }
        }
        all
    }

    pub(super) fn step(&mut self, action: Action) -> Check {
        let held = self.holders().next().is_some();
        match action {
            Action::Come => {
                let n = self.came;
                self.came += 1;
                self.route(n);
            }
            Action::Up(r) => {
                let item = self.up[r].remove(0);
                self.at_switch(r, item)?;
            }
            Action::Down(r) => {
                let item = self.down[r].remove(0);
                self.at_runtime(r, None, item, Ok(()))?;
            }
            Action::Across(r, to) => {
                let item = self.across[r][to].remove(0);
                self.at_runtime(to, Some(r), item, Ok(()))?;
            }
            Action::Refused(r, to) => {
                let item = self.across[r][to].remove(0);
                self.at_runtime(to, Some(r), item, Err(Refusal::Full))?;
            }
            Action::Order(r, to) => {
                self.moves += 1;
                let runtime = self.live(r);
                let one = Switches::one(0);
                runtime.machine = Some(Ownership::active(id(r), runtime.clock, one, one));
                runtime.clock = runtime.clock.next();
                self.drive(r, Input::Move(id(to)))?;
            }
            Action::Quiesced(r) => {
                self.live(r).quiesces = false;
                self.drive(r, Input::Quiesced)?;
            }
            Action::Deadline(r) => self.drive(r, Input::Fired(Timer::Deadline))?,
            Action::Again(r) => self.drive(r, Input::Fired(Timer::Retry))?,
            Action::End(r) => {
                self.ended = true;
                let has_come = |machine: Ownership| matches!(machine.phase(), Phase::Announcing { .. });
                let has_come = self.live(r).machine.is_some_and(has_come);
                self.live(r).is_over = has_come && !has(Bug::EndIsNotSaid);
                self.let_go(r);
                if self.live(r).machine.is_none() {
                    self.up[r].push(Item::GroupEmpty);
                }
            }
            Action::Crash(r) => self.crash(r)?,
            Action::Notice(SWITCH, r) => self.switch_notices(r),
            Action::Notice(worker, r) => self.runtime_notices(worker, r)?,
        }
        self.check(held && !matches!(action, Action::Crash(_)))
    }

    fn live(&mut self, r: usize) -> &mut Runtime {
        self.runtimes[r].as_mut().expect("it lives")
    }

    fn drop_packet(&mut self, n: u8) {
        self.dropped |= 1 << n;
    }

    fn drop_packets(&mut self, items: Vec<Item>) {
        for item in items {
            if let Item::Packet(n) = item {
                self.drop_packet(n);
            }
        }
    }

    // Runtimes that go.

    /// A crash may cost nothing while the state is at another live runtime. A first crash costs the
    /// group where `docs/replication.md` says so: its state is on the link, and its copies are
    /// withdrawn.
    fn crash(&mut self, r: usize) -> Check {
        let runtime = self.runtimes[r].take().expect("it lives");
        let mut lost: Vec<u8> = runtime.kept.iter().map(|(_, n)| *n).collect();
        lost.extend(runtime.gate.iter().map(|(n, _)| *n));
        lost.into_iter().for_each(|n| self.drop_packet(n));
        let gone = core::mem::take(&mut self.down[r]);
        self.drop_packets(gone);
        for from in 0..RUNTIMES {
            let gone = core::mem::take(&mut self.across[from][r]);
            self.drop_packets(gone);
        }
        let best = self.holders().max();
        let is_at_no_other = best.is_none_or(|best| best < self.left);
        // Not a copy that is being withdrawn, or replaced.
        let is_copied = self.incarnations().any(|(replica, keeper)| {
            let is_over = |item: &Item| matches!(item, Item::End(_) | Item::Base(_));
            let seen = keeper.copies[r].and_then(|copies| copies.seen);
            seen >= Some(self.left) && !self.across[r][replica].iter().any(is_over)
        });
        let is_unprotected = runtime.seen.is_some() && !is_copied;
        let may_be_lost = runtime.is_leaving
            || (is_unprotected && self.crashes() > 1)
            || (self.crashes() > 1
                && (is_at_no_other || self.incarnations().any(|(_, other)| other.is_leaving)));
        if is_at_no_other && !may_be_lost && !self.may_be_lost && !self.ended {
            return Err(format!("runtime {r} crashes, and its group was at no other"));
        }
        self.may_be_lost |= may_be_lost;
        // Packets that it had seen, and told no worker of, may be seen no more.
        let seen = runtime.seen.unwrap_or(0);
        let survives = best.unwrap_or(0);
        (survives..seen).for_each(|n| self.drop_packet(n));
        Ok(())
    }

    // Links.

    fn send_down(&mut self, r: usize, item: Item) {
        if self.runtimes[r].is_some() {
            self.down[r].push(item);
        } else {
            self.drop_packets(vec![item]);
        }
    }

    fn send_across(&mut self, r: usize, to: usize, item: Item) {
        if self.runtimes[to].is_some() && !self.knows(r, to) {
            self.across[r][to].push(item);
        } else {
            self.drop_packets(vec![item]);
        }
    }

    /// Checker: packets leave in the order in which they came, but for those that a runtime that
    /// crashed had sent. Its target has not waited for them.
    fn leave(&mut self, r: usize, n: u8) -> Check {
        if n < self.left && self.runtimes[r].is_some() {
            return Err(format!("packet {n} leaves behind packet {}", self.left - 1));
        }
        self.left = self.left.max(n + 1);
        Ok(())
    }

    // Checkers.

    /// How many packets the states have seen that live runtimes have.
    fn holders(&self) -> impl Iterator<Item = u8> {
        self.incarnations().flat_map(|(_, runtime)| {
            let copies = runtime.copies.iter().flatten().copied();
            let recoveries = runtime.recoveries.iter().flatten().map(|(copies, _)| *copies);
            let own = [runtime.seen, runtime.staged].into_iter().flatten();
            own.chain(copies.chain(recoveries).filter_map(|copies| copies.seen))
        })
    }

    /// One runtime at most acts for the group, on all that has left; a state that was there is lost
    /// by a crash only.
    fn check(&self, must_survive: bool) -> Check {
        let actors = self.incarnations().filter(|(_, runtime)| runtime.is_actor());
        if actors.clone().count() > 1 {
            return Err("two runtimes act".into());
        }
        if let Some((r, _)) = actors.clone().find(|(_, runtime)| runtime.seen < Some(self.left)) {
            return Err(format!("runtime {r} acts on a state from before what has left"));
        }
        if must_survive && !self.ended && !self.may_be_lost && self.holders().next().is_none() {
            return Err("the state is lost".into());
        }
        Ok(())
    }

    pub(super) fn is_end(&self, bounds: &Bounds) -> bool {
        let is_noticed = |gone: usize| {
            let workers = (0..=SWITCH).filter(|w| *w == SWITCH || self.runtimes[*w].is_some());
            self.runtimes[gone].is_some() || workers.clone().all(|worker| self.knows(worker, gone))
        };
        self.is_quiet()
            && self.came == bounds.packets
            && (0..RUNTIMES).all(is_noticed)
            && self.switch.suspended.iter().all(Option::is_none)
            && self.incarnations().all(|(_, runtime)| {
                runtime.machine.is_none() && runtime.kept.is_empty() && runtime.gate.is_empty()
            })
    }

    /// Checkers of an end: everything is out or accounted for; all agree on which runtime has the
    /// group, and one has it unless it may be lost, or has ended.
    pub(super) fn check_end(&self, bounds: &Bounds) -> Check {
        let actor = self.incarnations().find(|(_, runtime)| runtime.is_actor());
        let is_calm = self.crashes() == 0 && !self.ended;
        if is_calm && (self.dropped != 0 || self.left != bounds.packets) {
            return Err("a packet is lost, and no runtime has crashed".into());
        }
        if (0..bounds.packets).any(|n| (self.dropped | self.processed) >> n & 1 == 0) {
            return Err("a packet is missing, and not counted".into());
        }
        if self.switch.route.map(usize::from) != actor.map(|(r, _)| r) {
            let (route, actor) = (self.switch.route, actor.map(|(r, _)| r));
            return Err(format!("the switch sends to {route:?}, and {actor:?} acts"));
        }
        if actor.is_none() && !self.ended && !self.may_be_lost {
            return Err("no runtime acts".into());
        }
        let recovers = |(_, runtime): (usize, &Runtime)| runtime.recoveries.iter().any(Option::is_some);
        if self.incarnations().any(recovers) {
            return Err("copies wait for a switch that has let go".into());
        }
        Ok(())
    }

    /// For a story: the group's phase at each runtime.
    pub(super) fn told(&self) -> String {
        let each = self.incarnations().map(|(r, runtime)| {
            let phase = runtime.machine.map(|machine| machine.phase());
            format!("{r}: {:?} {phase:?}", runtime.seen)
        });
        each.collect::<Vec<_>>().join(" | ")
    }
}
