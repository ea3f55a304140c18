//! Three runtimes with shared objects, their channels and a coordinator, driven step by step with
//! the production machines.
//!
//! # Theory of operation
//!
//! A [`World`] is the machines, a queue for each ordered pair of them, the operations that each
//! runtime still has to ask for, and the acknowledged updates. [`World::actions`] lists everything
//! that can happen next: a runtime asks its next operation or gives a reference back, the head of a
//! queue is delivered, a runtime hears the coordinator's next stage, makes a step of its sweep,
//! fails, hears of a failure. A runtime that is suspected wrongly goes on for as long as it likes
//! (`Bounds::is_zombie`), and hears of no view.
//!
//! An object's content is a set of bits, one for each operation, and those that were set twice.
//!
//! Checkers: [`World::check`] (one holder, one record, nothing applied twice, nothing refused, few
//! forwards), [`World::saw`] (a read has every update that was acknowledged before),
//! [`World::check_end`] (acknowledged updates are there).

use super::super::*;
pub(super) use super::asks::Do;
use super::namer::name_of;
use std::collections::BTreeMap;
use std::format;
use std::rc::Rc;
use std::string::String;
use std::vec::Vec;

pub(super) const RUNTIMES: usize = 3;
/// No request is sent more often.
const FORWARDS_SEEN: u8 = 5;

/// Bits, by operation, and those that were set again.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub(super) struct Bits {
    pub(super) seen: u64,
    pub(super) twice: u64,
}

impl Body for Bits {
    type Call = u64;
    type Answer = u64;

    fn apply(&mut self, call: &u64) -> u64 {
        self.twice |= self.seen & call;
        self.seen |= call;
        self.seen
    }

    fn read(&self, _: &u64) -> u64 {
        self.seen
    }

    fn fold(into: &mut u64, later: &u64) -> bool {
        *into |= later;
        true
    }
}

/// The bounds of an exploration.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bounds {
    /// Members of the first view, and of the others.
    pub(super) members: u64,
    /// By key: its owner in the first view, and in the next one.
    pub(super) keys: &'static [(u16, u16)],
    pub(super) copies: usize,
    pub(super) scripts: [&'static [Do]; RUNTIMES],
    /// The coordinator's stages, in order; and those after a failure.
    pub(super) plan: &'static [(Stage, u64)],
    pub(super) after: &'static [(Stage, u64)],
    /// The runtime that may fail.
    pub(super) fails: Option<usize>,
    /// A runtime that may fail behind it, while others hear of the first failure or later.
    pub(super) fails_again: Option<usize>,
    /// It does not fail: it is suspected.
    pub(super) is_zombie: bool,
    /// References are given back at once.
    pub(super) is_quick: bool,
    /// They are given back when the object is to go, or no other runtime wants it.
    pub(super) is_lent: bool,
    /// A runtime may ask while it waits.
    pub(super) is_hasty: bool,
    /// Messages are bytes on their way.
    pub(super) is_written: bool,
}

/// An operation that was asked.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
struct Asked {
    what: Do,
    /// The updates that were acknowledged before.
    before: u64,
    is_over: bool,
    /// That it changed; of a removal, the latest that was known.
    generation: Option<Gen>,
}

/// A machine that is shared by the states in which it is the same.
#[derive(Clone, Debug)]
pub(super) struct Runtime {
    pub(super) machine: Objects<Bits>,
    hash: u128,
}

#[derive(Clone, Debug)]
pub(super) struct World {
    /// `None`: failed.
    pub(super) runtimes: [Option<Rc<Runtime>>; RUNTIMES],
    pub(super) channels: [[Vec<Message<Bits>>; RUNTIMES]; RUNTIMES],
    asked: [Vec<Asked>; RUNTIMES],
    /// References that the driver has, by operation.
    holds: [Vec<usize>; RUNTIMES],
    /// How many of the coordinator's stages a runtime has heard, and reached.
    heard: [usize; RUNTIMES],
    reached: [usize; RUNTIMES],
    failed: Members,
    /// References to objects that are to go.
    recalled: Members,
    /// Which runtimes have heard of the latest failure, and serve again.
    told: Members,
    serves: Members,
    /// The acknowledged updates, by incarnation of an object and in all.
    acked: BTreeMap<(usize, Gen), u64>,
    acked_all: u64,
    /// The content of objects when they ended by time.
    expired: u64,
    /// By runtime: the updates that were acknowledged when the read was asked whose answer it
    /// keeps.
    kept_since: [Option<u64>; RUNTIMES],
    /// By key: no object up to this incarnation is left.
    removed: BTreeMap<usize, Gen>,
    pub(super) forwards: u8,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Action {
    Ask(usize),
    Release(usize),
    Deliver(usize, usize),
    Stage(usize),
    Tick(usize),
    Fail(usize),
    Tell(usize),
}

pub(super) type Check = Result<(), String>;

pub(super) fn id(runtime: usize) -> RuntimeId {
    RuntimeId(runtime as u16)
}

const SEED: u64 = 7;
const FAILURE: u32 = 9;

/// A key with these owners in two views.
fn key_of(place: usize, first: u64, next: u64, (a, b): (u16, u16)) -> Key {
    let mut keys = (0..).filter_map(|n: u16| Key::new(n, &[place as u8]));
    keys.find(|key| {
        Members(first).first(key, SEED) == Some(RuntimeId(a))
            && Members(next).first(key, SEED) == Some(RuntimeId(b))
    })
    .expect("a key has these owners")
}

impl Bounds {
    fn key(&self, place: usize) -> Key {
        let next = self.plan.first().map_or(self.members, |(_, next)| *next);
        key_of(place, self.members, next, self.keys[place])
    }

    fn everyone(&self) -> u64 {
        self.plan.iter().fold(self.members, |all, (_, next)| all | next)
    }

    /// Without copies, the objects that a failed runtime may have had may be lost.
    fn is_lossy(&self) -> bool {
        let is_bare = |r: usize| !self.scripts[r].is_empty();
        let failures = usize::from(self.fails.is_some()) + usize::from(self.fails_again.is_some());
        self.copies < failures && self.fails.into_iter().chain(self.fails_again).any(is_bare)
    }

    fn has_removes(&self) -> bool {
        self.scripts
            .iter()
            .any(|script| script.iter().any(|what| matches!(what, Do::Remove(_))))
    }
}

fn bit(runtime: usize, at: usize) -> u64 {
    1 << (runtime * 20 + at)
}

fn token(runtime: usize, at: usize) -> u64 {
    (runtime * 100 + at) as u64
}

impl World {
    pub(super) fn new(bounds: &Bounds) -> Self {
        let settings = ObjectSettings {
            keys_max: 64,
            requests_max: 64,
            queue_max: 32,
            flush_ns: 0,
            retry_ns: 0,
            pace_ns: 0,
            ..ObjectSettings::default_with(SEED, bounds.copies)
        };
        let runtime = |number: usize| {
            let caller = Caller {
                runtime: id(number),
                incarnation: 1,
            };
            let is_there = bounds.everyone() >> number & 1 == 1;
            let machine = Objects::new(caller, 1, Members(bounds.members), settings);
            let hash = name_of(&machine);
            is_there.then(|| Rc::new(Runtime { machine, hash }))
        };
        World {
            runtimes: core::array::from_fn(runtime),
            channels: Default::default(),
            asked: Default::default(),
            holds: Default::default(),
            heard: [0; RUNTIMES],
            reached: [0; RUNTIMES],
            failed: Members::NONE,
            recalled: Members::NONE,
            told: Members::NONE,
            serves: Members::NONE,
            acked: BTreeMap::new(),
            acked_all: 0,
            expired: 0,
            kept_since: [None; RUNTIMES],
            removed: BTreeMap::new(),
            forwards: 0,
        }
    }

    pub(super) fn name(&self) -> u128 {
        let machines = self
            .runtimes
            .each_ref()
            .map(|runtime| runtime.as_ref().map(|runtime| runtime.hash));
        name_of(&(
            machines,
            &self.channels,
            &self.asked,
            &self.holds,
            (&self.heard, &self.reached, self.failed, self.told, self.serves),
            (&self.acked, self.acked_all, &self.removed),
            (self.recalled, self.expired, &self.kept_since),
        ))
    }

    /// Whether a failure may still come.
    pub(super) fn may_fail(&self, bounds: &Bounds) -> bool {
        (0..RUNTIMES).any(|r| self.may_that_fail(r, bounds))
    }

    fn may_that_fail(&self, r: usize, bounds: &Bounds) -> bool {
        let is_next = match self.failures() {
            0 => bounds.fails == Some(r),
            1 => bounds.fails_again == Some(r),
            _ => false,
        };
        is_next && !self.has_failed(r)
    }

    fn failures(&self) -> u32 {
        self.failed.0.count_ones()
    }

    fn has_failed(&self, r: usize) -> bool {
        self.failed.has(id(r))
    }

    /// The view that follows the latest failure.
    fn failure_view(&self) -> u32 {
        FAILURE + self.failures().saturating_sub(1)
    }

    /// An action, and the message that it delivers.
    pub(super) fn story(&self, action: Action) -> String {
        match action {
            Action::Deliver(from, to) => format!("{action:?} {:?}", self.channels[from][to].first()),
            _ => format!("{action:?}"),
        }
    }

    fn machine(&self, runtime: usize) -> Option<&Objects<Bits>> {
        self.runtimes[runtime].as_ref().map(|runtime| &runtime.machine)
    }

    /// Runtimes that a checker looks at: a runtime that is suspected wrongly is to have stopped.
    fn live(&self) -> impl Iterator<Item = usize> {
        (0..RUNTIMES).filter(|r| self.runtimes[*r].is_some() && !self.has_failed(*r))
    }

    fn is_busy(&self, runtime: usize) -> bool {
        self.asked[runtime].iter().any(|asked| !asked.is_over)
    }

    /// Whether no other runtime has asked, or will.
    fn is_alone(&self, r: usize, bounds: &Bounds) -> bool {
        let is_done =
            |other: usize| self.asked[other].len() == bounds.scripts[other].len() && !self.is_busy(other);
        self.live().filter(|other| *other != r).all(is_done)
    }

    pub(super) fn actions(&self, bounds: &Bounds) -> Vec<Action> {
        let mut all = Vec::new();
        let given = self.coordinator(bounds);
        for r in 0..RUNTIMES {
            let Some(machine) = self.machine(r) else { continue };
            let has_more = self.asked[r].len() < bounds.scripts[r].len();
            if has_more && (bounds.is_hasty || !self.is_busy(r)) {
                all.push(Action::Ask(r));
            }
            let is_to_go = !bounds.is_lent || self.recalled.has(id(r)) || self.is_alone(r, bounds);
            if !self.holds[r].is_empty() && is_to_go {
                all.push(Action::Release(r));
            }
            for to in 0..RUNTIMES {
                if !self.channels[r][to].is_empty() && self.runtimes[to].is_some() {
                    all.push(Action::Deliver(r, to));
                }
            }
            let is_for = self.is_for(r, self.heard[r], bounds);
            if !self.has_failed(r) && self.heard[r] < given && is_for {
                all.push(Action::Stage(r));
            }
            if machine.next_timeout().is_some() {
                all.push(Action::Tick(r));
            }
            if self.may_that_fail(r, bounds) {
                all.push(Action::Fail(r));
            }
            if !self.failed.is_empty() && !self.has_failed(r) && !self.told.has(id(r)) {
                all.push(Action::Tell(r));
            }
        }
        // Messages of a failed runtime come until their receiver hears of the failure.
        for failed in (0..RUNTIMES).filter(|r| self.has_failed(*r) && self.runtimes[*r].is_none()) {
            let is_open = |to: &usize| !self.channels[failed][*to].is_empty() && self.runtimes[*to].is_some();
            all.extend(
                (0..RUNTIMES)
                    .filter(is_open)
                    .map(|to| Action::Deliver(failed, to)),
            );
        }
        all
    }

    /// The coordinator's stages, as far as it knows.
    fn plan(&self, bounds: &Bounds) -> &'static [(Stage, u64)] {
        if !self.failed.is_empty() {
            bounds.after
        } else {
            bounds.plan
        }
    }

    /// Whether a stage is for a runtime: it is in the view that is left, or in the next one.
    fn is_for(&self, r: usize, at: usize, bounds: &Bounds) -> bool {
        let plan = self.plan(bounds);
        let first = match self.failed.is_empty() {
            false => bounds.everyone() & !self.failed.0,
            true => bounds.members,
        };
        let earlier = at.checked_sub(3).and_then(|before| plan.get(before));
        let before = earlier.map_or(first, |(_, members)| *members);
        plan.get(at)
            .is_some_and(|(_, next)| (before | next) >> r & 1 == 1)
    }

    /// How many stages a runtime has reached, of those that are for it.
    fn reached(&self, r: usize, bounds: &Bounds) -> usize {
        match self.is_for(r, self.reached[r], bounds) {
            true => self.reached[r],
            false => self.plan(bounds).len(),
        }
    }

    /// How many stages the coordinator has given out.
    fn coordinator(&self, bounds: &Bounds) -> usize {
        let is_served = self.failed.is_empty() || self.live().all(|r| self.serves.has(id(r)));
        let slowest = self
            .live()
            .map(|r| self.reached(r, bounds))
            .min()
            .filter(|_| is_served);
        let (Some(slowest), plan) = (slowest, self.plan(bounds)) else {
            return 0;
        };
        // The next view's first stage implies that this one is in force.
        let is_normal = |at: usize| {
            plan.get(at)
                .is_some_and(|(stage, _)| stage.phase == Phase::Normal)
        };
        let next = if is_normal(slowest) {
            slowest + 2
        } else {
            slowest + 1
        };
        next.min(plan.len())
    }

    pub(super) fn step(&mut self, action: Action, bounds: &Bounds) -> Check {
        match action {
            Action::Ask(r) => self.ask(r, bounds)?,
            Action::Release(r) => {
                let at = self.holds[r].remove(0);
                self.release(r, at, bounds)?;
            }
            Action::Deliver(from, to) => {
                let message = self.channels[from][to].remove(0);
                self.handle(to, Input::Receive(id(from), message), bounds)?;
            }
            Action::Stage(r) => {
                let plan = self.plan(bounds);
                // A stage in force that the next one follows may be skipped.
                let is_next = |at: usize| {
                    let is_given = at + 1 < self.coordinator(bounds) && self.is_for(r, at + 1, bounds);
                    plan[at].0.phase == Phase::Normal && is_given
                };
                let at = self.heard[r] + usize::from(is_next(self.heard[r]));
                let (stage, members) = plan[at];
                self.heard[r] = at + 1;
                self.handle(r, Input::Stage(stage, Members(members)), bounds)?;
            }
            Action::Tick(r) => self.handle(r, Input::Tick, bounds)?,
            Action::Fail(r) => {
                self.failed = self.failed.with(id(r));
                (self.told, self.serves) = (Members::NONE, Members::NONE);
                if !bounds.is_zombie {
                    self.runtimes[r] = None;
                    self.holds[r].clear();
                    self.channels.iter_mut().for_each(|row| row[r].clear());
                }
            }
            Action::Tell(r) => {
                let (failed, view) = (self.failed, self.failure_view());
                let members = Members(bounds.everyone()).minus(failed);
                self.told = self.told.with(id(r));
                (self.heard[r], self.reached[r]) = (0, 0);
                for failed in failed.iter() {
                    self.channels[usize::from(failed.0)][r].clear();
                }
                self.handle(r, Input::Failed(view, members, failed), bounds)?;
            }
        }
        self.check(bounds)
    }

    fn ask(&mut self, r: usize, bounds: &Bounds) -> Check {
        let at = self.asked[r].len();
        let what = bounds.scripts[r][at];
        let of_key = |(place, _): &&(usize, Gen)| *place == what.key();
        let latest = self.acked.keys().rfind(of_key).map(|(_, latest)| *latest);
        self.asked[r].push(Asked {
            what,
            before: self.acked_all,
            is_over: false,
            generation: latest.filter(|_| matches!(what, Do::Remove(_))),
        });
        let (key, token) = (bounds.key(what.key()), token(r, at));
        let input = match what {
            Do::Write(_) => Input::Acquire(key, token, Some(Bits::default())),
            Do::Get(_) => Input::Acquire(key, token, None),
            Do::Read(_) => Input::Read(key, 0, token, 0),
            Do::Call(_) => Input::Call(key, bit(r, at), token, How::Waits),
            Do::Untethered(_) => Input::Call(key, bit(r, at), token, How::Untethered),
            Do::Merge(_) => Input::Call(key, bit(r, at), token, How::Merged),
            Do::Remove(_) => Input::Remove(key, token),
            Do::Stale(_) => {
                self.asked[r][at].before = self.kept_since[r].unwrap_or(self.acked_all);
                Input::Read(key, 0, token, u64::MAX)
            }
            Do::Expire(_) => {
                self.asked[r][at].is_over = true;
                return self.expire(r, key, bounds);
            }
        };
        if matches!(what, Do::Untethered(_) | Do::Merge(_)) {
            self.asked[r][at].is_over = true;
        }
        self.handle(r, input, bounds)
    }

    /// The object ends by time, if it is here and may: its content may be lost then.
    fn expire(&mut self, r: usize, key: Key, bounds: &Bounds) -> Check {
        if let Some(runtime) = &mut self.runtimes[r] {
            let machine = &mut Rc::make_mut(runtime).machine;
            machine.expire(key);
            let entry = machine.entries.get(&key).and_then(|entry| entry.object.as_ref());
            if let Some(object) = entry.filter(|object| object.leave == Some(Leave::Idle)) {
                self.expired |= object.image.body.seen;
            }
        }
        self.handle(r, Input::Tick, bounds)
    }

    fn release(&mut self, r: usize, at: usize, bounds: &Bounds) -> Check {
        if self.holds[r].is_empty() {
            self.recalled = self.recalled.without(id(r));
        }
        let key = bounds.key(self.asked[r][at].what.key());
        self.handle(r, Input::Release(key, Some(token(r, at))), bounds)
    }

    fn handle(&mut self, r: usize, input: Input<Bits>, bounds: &Bounds) -> Check {
        let Some(runtime) = &mut self.runtimes[r] else {
            return Ok(());
        };
        let runtime = Rc::make_mut(runtime);
        runtime.machine.handle(0, input);
        let mut outputs = Vec::new();
        while let Some(output) = runtime.machine.poll() {
            outputs.push(output);
        }
        let stats = core::mem::take(&mut runtime.machine.stats);
        if stats.refused > 0 || stats.retries > 0 || stats.full > 0 {
            return Err(format!("{r} refuses a message: {stats:?}"));
        }
        for output in outputs {
            self.carry_out(r, output, bounds)?;
        }
        if let Some(runtime) = &mut self.runtimes[r] {
            let runtime = Rc::make_mut(runtime);
            runtime.hash = name_of(&runtime.machine);
        }
        Ok(())
    }

    fn carry_out(&mut self, r: usize, output: Output<Bits>, bounds: &Bounds) -> Check {
        let of = |token: u64| (token % 100) as usize;
        match output {
            Output::Send(to, message) => {
                let to = usize::from(to.0);
                if let Message::Request(request) | Message::Forward(request) = &message {
                    self.forwards = self.forwards.max(request.forwards);
                }
                if self.runtimes[to].is_some() {
                    self.channels[r][to].push(match bounds.is_written {
                        true => super::messages::sent(&message),
                        false => message,
                    });
                }
            }
            Output::Granted(key, token) => self.granted(r, key, of(token), bounds)?,
            Output::Recalled(_) => self.recalled = self.recalled.with(id(r)),
            Output::Written(_, token) => {
                let (at, bit) = (of(token), bit(r, of(token)));
                self.asked[r][at].is_over = true;
                if let Some(generation) = self.asked[r][at].generation {
                    let place = self.asked[r][at].what.key();
                    *self.acked.entry((place, generation)).or_default() |= bit;
                }
                self.acked_all |= bit;
            }
            Output::Answered(token, answer) => {
                let at = of(token);
                self.asked[r][at].is_over = true;
                if matches!(self.asked[r][at].what, Do::Read(_) | Do::Stale(_)) {
                    if let Some(seen) = answer {
                        self.saw(r, at, seen, bounds)?;
                        if matches!(self.asked[r][at].what, Do::Stale(_)) {
                            self.kept_since[r].get_or_insert(self.asked[r][at].before);
                        }
                    }
                } else {
                    self.acked_all |= bit(r, at);
                }
            }
            Output::Ended(token, how) => {
                let at = of(token);
                self.asked[r][at].is_over = true;
                let asked = self.asked[r][at];
                if let (Ended::Removed, true, Some(latest)) = (how, self.failed.is_empty(), asked.generation)
                {
                    let removed = self.removed.entry(asked.what.key()).or_insert(latest);
                    *removed = latest.max(*removed);
                }
                if how == Ended::Full {
                    return Err(format!("{r} has no room"));
                }
            }
            Output::Reached(stage) => {
                if !self.failed.is_empty() && stage == Stage::normal(self.failure_view()) {
                    self.serves = self.serves.with(id(r));
                } else if let Some(at) = self
                    .plan(bounds)
                    .iter()
                    .position(|(planned, _)| *planned == stage)
                {
                    self.reached[r] = self.reached[r].max(at + 1);
                }
            }
        }
        Ok(())
    }

    /// Checker: a runtime that has the object sees every update that was acknowledged. Then it
    /// changes it.
    fn granted(&mut self, r: usize, key: Key, at: usize, bounds: &Bounds) -> Check {
        let Some(runtime) = &mut self.runtimes[r] else {
            return Ok(());
        };
        let machine = &mut Rc::make_mut(runtime).machine;
        let Some((generation, _, body)) = machine.held(&key) else {
            return Err(format!("{r} has a reference and no object"));
        };
        let place = self.asked[r][at].what.key();
        let missing = self.acked.get(&(place, generation)).copied().unwrap_or(0) & !body.seen;
        let is_removed = self
            .removed
            .get(&place)
            .is_some_and(|removed| generation <= *removed);
        let Some(body) = machine.body_mut(&key) else {
            return Err(format!("{r} has no reference"));
        };
        body.apply(&bit(r, at));
        let is_checked = !self.has_failed(r) && (self.failed.is_empty() || !bounds.is_lossy());
        if is_checked && missing != 0 {
            return Err(format!(
                "an acknowledged update is lost: {r} gets the object without {missing:#b}"
            ));
        }
        if is_checked && is_removed {
            return Err(format!("{r} gets an object that was removed"));
        }
        self.asked[r][at].generation = Some(generation);
        match bounds.is_quick {
            true => self.release(r, at, bounds),
            false => {
                self.holds[r].push(at);
                Ok(())
            }
        }
    }

    /// Checker: a read has every update that was acknowledged before it was asked.
    fn saw(&self, r: usize, at: usize, seen: u64, bounds: &Bounds) -> Check {
        let missing = self.asked[r][at].before & !seen & !self.expired;
        let is_checked = !self.has_failed(r)
            && !bounds.has_removes()
            && bounds.keys.len() == 1
            && (self.failed.is_empty() || !bounds.is_lossy());
        match is_checked && missing != 0 {
            true => Err(format!(
                "{r} reads {seen:#b} without {missing:#b}, an acknowledged update"
            )),
            false => Ok(()),
        }
    }

    fn check(&self, bounds: &Bounds) -> Check {
        if self.forwards > FORWARDS_SEEN {
            return Err(format!("a request was sent on {} times", self.forwards));
        }
        for r in self.live() {
            let is_out =
                |machine: &&Objects<Bits>| machine.stage() > Stage::scaling(1) && !machine.members.has(id(r));
            let Some(machine) = self.machine(r).filter(is_out) else {
                continue;
            };
            let has_object = machine.entries.values().any(|entry| entry.object.is_some());
            if has_object || !machine.pending.is_empty() {
                return Err(format!("{r} is out, and has an object or waits for an answer"));
            }
        }
        for place in 0..bounds.keys.len() {
            let key = bounds.key(place);
            let entries = || {
                self.live()
                    .filter_map(|r| Some((r, self.machine(r)?.entries.get(&key)?)))
            };
            let mut holders: Vec<usize> = entries()
                .filter(|(_, entry)| entry.object.is_some())
                .map(|(r, _)| r)
                .collect();
            let mut owners: Vec<usize> = entries()
                .filter(|(_, entry)| entry.record.is_some())
                .map(|(r, _)| r)
                .collect();
            for from in self.live() {
                for to in self.live() {
                    for message in &self.channels[from][to] {
                        match message {
                            Message::Object(of, ..) if *of == key => holders.push(10 + from),
                            Message::Grant(_, of, _) if *of == key => owners.push(10 + from),
                            _ => {}
                        }
                    }
                }
            }
            if holders.len() > 1 {
                return Err(format!("two runtimes have the object: {holders:?}"));
            }
            if self.failed.is_empty() && owners.len() > 1 {
                return Err(format!("two runtimes have a record: {owners:?}"));
            }
            let bodies = entries().filter_map(|(_, entry)| {
                let object = entry.object.as_ref().map(|object| &object.image.body);
                object.or(entry.copy.as_ref().map(|copy| &copy.body))
            });
            if let Some(body) = bodies.into_iter().find(|body| body.twice != 0) {
                return Err(format!("a call is applied twice: {body:?}"));
            }
        }
        Ok(())
    }

    pub(super) fn is_end(&self, bounds: &Bounds) -> bool {
        let is_quiet = |r: usize| self.live().all(|to| self.channels[r][to].is_empty());
        let is_done = |r: usize| {
            self.asked[r].len() == bounds.scripts[r].len()
                && !self.is_busy(r)
                && self.holds[r].is_empty()
                && self.machine(r).is_some_and(Objects::is_idle)
        };
        let is_serving = self.failed.is_empty() || self.live().all(|r| self.serves.has(id(r)));
        let is_planned = is_serving
            && self
                .live()
                .all(|r| self.reached(r, bounds) == self.plan(bounds).len());
        is_planned && self.live().all(is_quiet) && self.live().all(is_done)
    }

    /// Checker of an end: the object has every acknowledged update, and its key owner knows the
    /// holder.
    pub(super) fn check_end(&self, bounds: &Bounds) -> Check {
        let is_lossy = !self.failed.is_empty() && bounds.is_lossy();
        for place in 0..bounds.keys.len() {
            let key = bounds.key(place);
            let entries = || {
                self.live()
                    .filter_map(|r| Some((r, self.machine(r)?.entries.get(&key)?)))
            };
            let record = entries().find_map(|(_, entry)| entry.record);
            let object = entries().find_map(|(r, entry)| Some((r, entry.object.as_ref()?)));
            match (record, object) {
                (Some(record), Some((r, object))) => {
                    let name = (object.image.generation, object.image.lease);
                    if record.tail != id(r) || (record.generation, record.lease) != name {
                        return Err(format!("{record:?} leads to another than {r} with {name:?}"));
                    }
                    let acked = self.acked.get(&(place, name.0)).copied().unwrap_or(0);
                    let missing = acked & !object.image.body.seen;
                    if missing != 0 && !is_lossy {
                        return Err(format!("acknowledged updates are lost: {missing:#b}"));
                    }
                }
                (None, None) => {
                    let copies = entries().filter(|(_, entry)| entry.copy.is_some()).count();
                    if copies > 0 {
                        return Err("a copy is left of an object that is no more".into());
                    }
                }
                (record, object) => {
                    return Err(format!("{record:?} and {:?}", object.map(|(r, _)| r)));
                }
            }
        }
        self.check_acked(bounds)
    }

    /// Checker of an end with one key that no script removes: acknowledged updates are there, of
    /// calls too.
    fn check_acked(&self, bounds: &Bounds) -> Check {
        let is_lossy = !self.failed.is_empty() && bounds.is_lossy();
        if bounds.keys.len() > 1 || bounds.has_removes() || is_lossy {
            return Ok(());
        }
        let key = bounds.key(0);
        let held = self.live().find_map(|r| self.machine(r)?.held(&key));
        let missing = self.acked_all & !self.expired & !held.map_or(0, |(_, _, body)| body.seen);
        match missing {
            0 => Ok(()),
            _ => Err(format!("acknowledged updates are lost: {missing:#b}")),
        }
    }
}
