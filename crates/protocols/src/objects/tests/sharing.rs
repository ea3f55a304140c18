//! Runtimes, members' views and a coordinator that is killed and goes on from its log, at random:
//! acknowledged updates stay, each call is applied once, and all are settled in the end.

use super::super::*;
use super::world::Bits;
use crate::membership::{Incarnation, Member, Standing, View, WorkerId};
use crate::ownership::RuntimeId;
use alloc::collections::BTreeMap;
use std::string::String;
use std::vec::Vec;
use std::{format, vec};

const RUNTIMES: usize = 4;
const KEYS: usize = 3;
/// Calls of a run to each object, one for each bit of it.
const CALLS: u32 = 60;

/// Numbers by a seed.
struct Random(u64);

impl Random {
    fn below(&mut self, most: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % most as u64) as usize
    }

    fn is_in(&mut self, most: usize) -> bool {
        self.below(most) == 0
    }
}

fn id(runtime: usize) -> RuntimeId {
    RuntimeId(runtime as u16)
}

fn key(place: usize) -> Key {
    Key::new(0, &[place as u8]).expect("it is short")
}

/// An incarnation of a runtime, as its driver has it.
struct Runtime {
    incarnation: u64,
    /// Before it is told of a view that has it, there is none.
    machine: Option<Objects<Bits>>,
    newest: Option<Decision>,
    reached: Option<Stage>,
    leaves: bool,
    /// The view that it has adopted.
    view: View,
    /// Which incarnation of each other is at the end of its link.
    sessions: [u64; RUNTIMES],
    /// By token, each call that is not answered: the place of its key, and its bit.
    calls: BTreeMap<u64, (usize, u32)>,
}

impl Runtime {
    fn new(incarnation: u64, view: View) -> Self {
        Runtime {
            incarnation,
            machine: None,
            newest: None,
            reached: None,
            leaves: false,
            view,
            sessions: [0; RUNTIMES],
            calls: BTreeMap::new(),
        }
    }
}

/// The messages on their way from one incarnation to another.
type Channel = Vec<(u64, u64, Message<Bits>)>;

struct World {
    runtimes: [Option<Runtime>; RUNTIMES],
    /// By sender and receiver, each message with the incarnations of both.
    channels: [[Channel; RUNTIMES]; RUNTIMES],
    view: View,
    coordinator: Sharing,
    log: Option<Decision>,
    on_its_way: Option<Decision>,
    next_incarnation: u64,
    asked: [u32; KEYS],
    acked: [u64; KEYS],
    now: u64,
    /// More than one runtime may have failed before all objects had copies again.
    is_lossy: bool,
    story: Vec<String>,
}

type Check = Result<(), String>;

impl World {
    fn new() -> Self {
        World {
            runtimes: Default::default(),
            channels: Default::default(),
            view: View::new(1, Vec::new()),
            coordinator: Sharing::default(),
            log: None,
            on_its_way: None,
            next_incarnation: 1,
            asked: [0; KEYS],
            acked: [0; KEYS],
            now: 0,
            is_lossy: false,
            story: vec![],
        }
    }

    /// Whether a runtime is there besides this one that does not want to leave: when all leave,
    /// objects end.
    fn stays_without(&self, r: usize) -> bool {
        let mut others = self.there().filter(|other| *other != r);
        others.any(|other| self.runtimes[other].as_ref().is_some_and(|other| !other.leaves))
    }

    fn there(&self) -> impl Iterator<Item = usize> {
        (0..RUNTIMES).filter(|r| self.runtimes[*r].is_some())
    }

    /// The members' coordinator makes another view.
    fn next_view(&mut self, change: impl FnOnce(&mut Vec<Member>)) {
        let mut members = self.view.members().to_vec();
        change(&mut members);
        self.view = View::new(self.view.number + 1, members);
    }

    fn join(&mut self, r: usize) {
        let member = Member {
            id: WorkerId::runtime(r as u16),
            incarnation: Incarnation(self.next_incarnation),
            standing: Standing::Running,
        };
        self.next_view(|members| {
            members.retain(|member| member.id != WorkerId::runtime(r as u16));
            members.push(member);
        });
        self.runtimes[r] = Some(Runtime::new(self.next_incarnation, self.view.clone()));
        self.next_incarnation += 1;
    }

    /// A runtime adopts the newest view: links to incarnations that it has not got are over.
    fn adopt(&mut self, r: usize) {
        let Some(runtime) = &mut self.runtimes[r] else {
            return;
        };
        runtime.view = self.view.clone();
        for other in 0..RUNTIMES {
            let incarnation = &mut runtime.sessions[other];
            if *incarnation != 0
                && !self
                    .view
                    .has(WorkerId::runtime(other as u16), Incarnation(*incarnation))
            {
                *incarnation = 0;
            }
        }
    }

    /// The link between two comes up at one end.
    fn meet(&mut self, r: usize, other: usize) {
        let incarnation = self.runtimes[other].as_ref().map_or(0, |other| other.incarnation);
        if let Some(runtime) = &mut self.runtimes[r]
            && runtime.sessions[other] == 0
            && r != other
        {
            runtime.sessions[other] = incarnation;
        }
    }

    /// The runtime's driver takes a decision.
    fn hear(&mut self, r: usize) -> Check {
        let (Some(runtime), Some(decision)) = (&mut self.runtimes[r], self.log.clone()) else {
            return Ok(());
        };
        let me = Caller {
            runtime: id(r),
            incarnation: runtime.incarnation,
        };
        let is_newer = runtime
            .newest
            .as_ref()
            .is_none_or(|known| known.order() < decision.order());
        if !is_newer {
            return Ok(());
        }
        let is_for = decision.is_for((id(r), Incarnation(runtime.incarnation)));
        let course = decision.course;
        runtime.newest = Some(decision);
        if !is_for {
            return Ok(());
        }
        let settings = ObjectSettings {
            flush_ns: 0,
            retry_ns: 0,
            pace_ns: 0,
            ..ObjectSettings::default_with(7, 1)
        };
        if runtime.machine.is_none() {
            let (view, members) = course.before();
            runtime.machine = Some(Objects::new(me, view, members, settings));
        }
        self.handle(r, course.directive().into())
    }

    fn report(&mut self, r: usize) -> Check {
        let Some(runtime) = &self.runtimes[r] else {
            return Ok(());
        };
        let met = (0..RUNTIMES).filter(|other| runtime.sessions[*other] != 0);
        let report = Report {
            reached: runtime.reached,
            met: met
                .map(|other| (id(other), Incarnation(runtime.sessions[other])))
                .collect(),
            leaves: runtime.leaves,
        };
        let incarnation = (id(r), Incarnation(runtime.incarnation));
        if !self.view.has(WorkerId::runtime(r as u16), incarnation.1) {
            return Ok(());
        }
        match self.coordinator.hear(incarnation, report) {
            true => Ok(()),
            false => Err(format!("{r} has reached what is not in the log")),
        }
    }

    fn decide(&mut self) -> Check {
        if let Some(decision) = self.coordinator.look(&self.view) {
            if !decision.is_sound() {
                return Err(format!("{decision:?} has no incarnation for each"));
            }
            if self
                .log
                .as_ref()
                .is_some_and(|before| before.order() >= decision.order())
            {
                return Err(format!("{decision:?} is not behind {:?}", self.log));
            }
            self.on_its_way = Some(decision);
        }
        Ok(())
    }

    fn log(&mut self) {
        if let Some(decision) = self.on_its_way.take() {
            self.log = Some(decision);
            self.coordinator.logged();
        }
    }

    /// The coordinator dies, and another goes on with the log; a decision on its way may have
    /// arrived.
    fn crash(&mut self, has_arrived: bool) {
        if let Some(decision) = self.on_its_way.take()
            && has_arrived
        {
            self.log = Some(decision);
        }
        self.coordinator = Sharing::replay(self.log.clone());
    }

    fn deliver(&mut self, from: usize, to: usize) -> Check {
        let Some(runtime) = &self.runtimes[to] else {
            self.channels[from][to].clear();
            return Ok(());
        };
        let Some((of, for_incarnation, _)) = self.channels[from][to].first() else {
            return Ok(());
        };
        let is_over = *for_incarnation != runtime.incarnation
            || runtime.sessions[from] > *of
            || !runtime.view.has(WorkerId::runtime(from as u16), Incarnation(*of))
                && runtime.sessions[from] != *of;
        if !is_over && runtime.sessions[from] != *of {
            // The link is not up at this end.
            return Ok(());
        }
        let (.., message) = self.channels[from][to].remove(0);
        if is_over {
            return Ok(());
        }
        if runtime.machine.is_none() {
            return Err(format!("{to} is sent a message and takes no part: {message:?}"));
        }
        self.handle(to, Input::Receive(id(from), message))
    }

    fn handle(&mut self, r: usize, input: Input<Bits>) -> Check {
        let mut inputs = vec![input];
        while !inputs.is_empty() {
            let now = self.now;
            let Some(runtime) = &mut self.runtimes[r] else {
                return Ok(());
            };
            let Some(machine) = &mut runtime.machine else {
                return Ok(());
            };
            for input in inputs.drain(..) {
                machine.handle(now, input);
            }
            let mut outputs = Vec::new();
            while let Some(output) = machine.poll() {
                outputs.push(output);
            }
            for output in outputs {
                let Some(runtime) = &mut self.runtimes[r] else {
                    return Ok(());
                };
                match output {
                    Output::Send(to, message) => {
                        let to = usize::from(to.0);
                        let incarnation = runtime.sessions[to];
                        // Another incarnation may be at the link's end than the one that is meant.
                        let meant = runtime
                            .newest
                            .as_ref()
                            .map(|newest| newest.has((id(to), Incarnation(incarnation))));
                        if incarnation != 0 && meant == Some(true) {
                            self.channels[r][to].push((runtime.incarnation, incarnation, message));
                        }
                    }
                    Output::Reached(stage) => runtime.reached = Some(stage),
                    Output::Granted(key, token) => {
                        let (_, bit) = runtime.calls[&token];
                        inputs.push(Input::Release(key, None));
                        inputs.push(Input::Call(key, 1 << bit, token, How::Waits));
                    }
                    Output::Ended(token, Ended::Absent) => {
                        let (place, _) = runtime.calls[&token];
                        inputs.push(Input::Acquire(key(place), token, Some(Bits::default())));
                    }
                    Output::Ended(token, Ended::Leaving) => drop(runtime.calls.remove(&token)),
                    Output::Answered(token, _) => {
                        if let Some((place, bit)) = runtime.calls.remove(&token) {
                            self.acked[place] |= 1 << bit;
                        }
                    }
                    other => return Err(format!("{r} says {other:?}")),
                }
            }
        }
        self.check()
    }

    fn call(&mut self, r: usize, place: usize) -> Check {
        let bit = self.asked[place];
        let Some(runtime) = &mut self.runtimes[r] else {
            return Ok(());
        };
        if bit >= CALLS || runtime.machine.is_none() || runtime.calls.len() >= 4 {
            return Ok(());
        }
        self.asked[place] += 1;
        let token = u64::from(bit) * KEYS as u64 + place as u64;
        runtime.calls.insert(token, (place, bit));
        self.handle(r, Input::Call(key(place), 1 << bit, token, How::Waits))
    }

    fn check(&self) -> Check {
        for r in self.there() {
            let machine = self.runtimes[r]
                .as_ref()
                .and_then(|runtime| runtime.machine.as_ref());
            for entry in machine.iter().flat_map(|machine| machine.entries.values()) {
                let bodies = entry.object.as_ref().map(|object| &object.image.body);
                if bodies.is_some_and(|body| body.twice != 0) {
                    return Err(format!("{r} has applied a call twice"));
                }
            }
        }
        Ok(())
    }

    /// Whether all that was acknowledged is at two runtimes at least, or no more than one is there.
    fn is_safe(&self) -> bool {
        let decided = self.coordinator.decided();
        let is_there = |r: usize| {
            let runtime = self.runtimes[r].as_ref();
            runtime.is_some_and(|runtime| {
                decided.has((id(r), Incarnation(runtime.incarnation)))
                    && runtime.reached == Some(decided.course.stage)
                    && runtime.machine.as_ref().is_some_and(|machine| {
                        let mut objects = machine.entries.values().filter_map(|entry| entry.object.as_ref());
                        objects.all(|object| object.is_copied() && !object.targets.is_empty())
                    })
            })
        };
        let stage = decided.course.stage;
        stage.phase == Phase::Normal
            && decided.course.members == decided.course.next
            && decided
                .course
                .members
                .iter()
                .all(|member| is_there(usize::from(member.0)))
            && self
                .channels
                .iter()
                .flatten()
                .flatten()
                .all(|(.., message)| !matches!(message, Message::Object(..)))
    }

    fn is_end(&self) -> bool {
        let decided = self.coordinator.decided();
        let is_in = |r: usize| {
            let runtime = self.runtimes[r].as_ref();
            runtime.is_some_and(|runtime| {
                decided.has((id(r), Incarnation(runtime.incarnation)))
                    && runtime.reached == Some(decided.course.stage)
                    && runtime.calls.is_empty()
                    && runtime.machine.as_ref().is_some_and(Objects::is_idle)
            })
        };
        decided.course.members == decided.course.next
            && self.there().all(is_in)
            && self.there().count() == decided.course.members.iter().count()
            && self.channels.iter().flatten().all(Vec::is_empty)
    }

    fn step(&mut self, random: &mut Random, may_fail: bool) -> Check {
        let (r, other) = (random.below(RUNTIMES), random.below(RUNTIMES));
        self.now += 1;
        match random.below(if may_fail { 120 } else { 100 }) {
            0..50 => self.deliver(r, other),
            50..60 => self.handle(r, Input::Tick),
            60..70 => self.call(r, random.below(KEYS)),
            70..76 => self.hear(r),
            76..84 => self.report(r),
            84..88 => self.decide(),
            88..92 => {
                self.log();
                Ok(())
            }
            92..94 => {
                self.adopt(r);
                Ok(())
            }
            94..99 => {
                self.meet(r, other);
                Ok(())
            }
            99 => {
                let has_arrived = random.is_in(2);
                self.story
                    .push(format!("the coordinator dies; arrived: {has_arrived}"));
                self.crash(has_arrived);
                Ok(())
            }
            100..106 => {
                // The view may have its former incarnation still.
                if self.runtimes[r].is_none() {
                    self.story.push(format!("{r} joins as {}", self.next_incarnation));
                    self.join(r);
                }
                Ok(())
            }
            106..109 => {
                let has_other = self.stays_without(r);
                if let Some(runtime) = self.runtimes[r].as_mut().filter(|_| has_other) {
                    runtime.leaves = true;
                    self.story.push(format!("{r} wants to leave"));
                }
                Ok(())
            }
            109..112 => {
                let may = self.is_safe() && self.stays_without(r);
                if (may || self.is_lossy) && self.runtimes[r].is_some() {
                    self.story.push(format!("{r} dies"));
                    self.runtimes[r] = None;
                }
                Ok(())
            }
            _ => {
                self.look_around(r);
                Ok(())
            }
        }
    }

    /// An incarnation that is dead is removed from the view; an incarnation that has left goes.
    fn look_around(&mut self, r: usize) {
        let worker = WorkerId::runtime(r as u16);
        let has_left = self.runtimes[r].as_ref().is_some_and(|runtime| {
            let me = (id(r), Incarnation(runtime.incarnation));
            let is_out = runtime.newest.as_ref().is_some_and(|newest| !newest.has(me));
            runtime.leaves && is_out && self.channels.iter().all(|row| row[r].is_empty())
        });
        if has_left {
            self.story.push(format!("{r} has left"));
            self.runtimes[r] = None;
        }
        if self.runtimes[r].is_none() && self.view.member(worker).is_some() {
            self.next_view(|members| members.retain(|member| member.id != worker));
        }
    }

    /// All goes well from now on, and comes to an end.
    fn end(&mut self) -> Check {
        for r in 0..RUNTIMES {
            if self.runtimes[r].is_none() {
                self.join(r);
            }
        }
        for round in 0..3000 {
            self.now += 1;
            for r in 0..RUNTIMES {
                self.look_around(r);
                if self.runtimes[r].is_none() {
                    self.join(r);
                }
                self.adopt(r);
                self.hear(r)?;
                self.handle(r, Input::Tick)?;
                self.report(r)?;
                for other in 0..RUNTIMES {
                    self.meet(r, other);
                    for _ in 0..3 {
                        self.deliver(r, other)?;
                    }
                }
            }
            self.decide()?;
            self.log();
            if round > 10 && self.is_end() {
                return self.check_end();
            }
        }
        Err(format!("no end: {:?}", self.coordinator))
    }

    fn check_end(&self) -> Check {
        for place in 0..KEYS {
            let held = self.there().filter_map(|r| {
                let machine = self.runtimes[r].as_ref()?.machine.as_ref()?;
                Some((r, machine.held(&key(place))?.2))
            });
            let held: Vec<_> = held.collect();
            let seen = match held[..] {
                [] => 0,
                [(_, body)] if body.twice == 0 => body.seen,
                _ => return Err(format!("key {place} is at {held:?}")),
            };
            let missing = self.acked[place] & !seen;
            if missing != 0 && !self.is_lossy {
                return Err(format!("acknowledged updates are lost: {missing:#b} of {place}"));
            }
        }
        Ok(())
    }
}

fn run(seed: u64, is_lossy: bool) -> Result<[u32; 2], String> {
    let mut random = Random(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1);
    let mut world = World::new();
    world.is_lossy = is_lossy;
    let steps = 2000 + random.below(6000);
    let mut outcome = Ok(());
    for step in 0..steps {
        outcome = outcome.and_then(|()| world.step(&mut random, step % 500 < 400));
    }
    let outcome = outcome.and_then(|()| world.end());
    let acked: u32 = world.acked.iter().map(|acked| acked.count_ones()).sum();
    let views = world.coordinator.decided().course.stage.view;
    match outcome {
        Ok(()) => Ok([acked, views]),
        Err(why) => Err(format!(
            "seed {seed}, lossy {is_lossy}: {why}\n{}",
            world.story.join("\n")
        )),
    }
}

/// With `OBJECTS_SHARING=from..to`, those seeds.
#[test]
fn runtimes_share_through_deaths_of_runtimes_and_coordinators() {
    let range = std::env::var("OBJECTS_SHARING").ok();
    let ends = range.as_ref().and_then(|range| range.split_once(".."));
    let number = |text: &str| text.parse().expect("OBJECTS_SHARING is two numbers: from..to");
    let seeds = ends.map_or(0..300, |(from, to)| number(from)..number(to));
    for is_lossy in [false, true] {
        let mut sums = [0_u64; 2];
        for seed in seeds.clone() {
            let counts = run(seed, is_lossy).unwrap_or_else(|story| panic!("{story}"));
            sums = [sums[0] + u64::from(counts[0]), sums[1] + u64::from(counts[1])];
        }
        let count = seeds.end - seeds.start;
        std::println!(
            "lossy {is_lossy}: {} calls acknowledged, {} views in {count} runs",
            sums[0],
            sums[1]
        );
        assert!(sums[0] > 20 * count && sums[1] > 3 * count, "{sums:?}");
    }
}
