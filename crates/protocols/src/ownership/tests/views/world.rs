//! Two runtimes, a switch and a coordinator, with the production machines of membership and of
//! ownership. See the page of `views`.
//!
//! One place is set for each worker: the runtimes' numbers, then [`SWITCH`]. Clocks of workers are
//! a thousand apart. A worker acts in steps that take no time; a runtime's packets leave in a step
//! of their own ([`Action::Transmit`]), which may be much later.

mod ending;
mod members;
mod runtime;
mod switch;

use super::super::super::recovery::{self, Course, TakenBack};
use super::super::super::*;
use crate::membership::{self, Coordinator, Incarnation, Member, Membership, Term, Timing, View, WorkerId};
use std::collections::VecDeque;
use std::format;
use std::string::String;
use std::vec;
use std::vec::Vec;

pub(super) const RUNTIMES: usize = 2;
/// The switch's place among workers.
pub(super) const SWITCH: usize = RUNTIMES;

const TERM: Term = Term { lease: 1 };
/// The coordinator's clock is a finer one: heartbeats come at the begin of a step of time, and it
/// looks for those that have not come, and hears all else, in the middle of it.
const FINE: u64 = 10;
const MIDDLE: u64 = FINE / 2;
const TIMING: Timing = Timing {
    term: TERM,
    suspicion: FINE + 1,
    settling: 0,
    unheard: 1_000_000,
};
const ONE: Incarnation = Incarnation(1);

/// A runtime's trouble.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) enum Trouble {
    None,
    /// It takes no step.
    Stalls,
    /// Nothing passes between it and all others.
    CutOff,
    /// Nothing passes between it and the coordinator.
    Unheard,
    /// It was in trouble, and is no more.
    Over,
}

/// Rules of this model's drivers that a test breaks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Broken {
    /// The lease is not looked at before a packet from the switch is processed.
    ProcessesWithout,
    /// Nor before one that was kept, or handed over, is.
    ReleasesWithout,
    /// Nor before packets are transmitted.
    TransmitsWithout,
    /// A runtime takes one that it does not hear for removed.
    RemovedBySilence,
    /// Nor before a target says that it has the group.
    SaysDoneWithout,
    /// The switch reads what a removed runtime has sent.
    ReadsRemoved,
}

/// The actions that may happen, and how often.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bounds {
    pub(super) packets: u8,
    pub(super) moves: u8,
    /// The runtime that may get into trouble, and the kinds of trouble. The other one and the
    /// switch are never late.
    pub(super) troubled: usize,
    pub(super) troubles: &'static [Trouble],
    /// Whether trouble ends, at any time; or never.
    pub(super) ends: bool,
    /// Heartbeats of that runtime that are lost.
    pub(super) losses: u8,
    /// Whether a move may take too long.
    pub(super) deadlines: bool,
    /// Time that passes, but for what a removal still needs then.
    pub(super) ticks: u64,
    pub(super) broken: Option<Broken>,
}

/// On a link.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum Item {
    Packet(u8),
    // Between runtimes.
    RuntimeMessage(RuntimeMessage),
    /// With how many packets the state has seen.
    State(Epoch, u8),
    // To the switch.
    Tell(TellSwitch),
    Installed(Epoch),
    Routed,
    /// So many packets of the switch having been consumed.
    GroupEmpty(u8),
    Suspect,
    // From the switch.
    SwitchMessage(SwitchMessage),
    Probe,
    Taken,
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
    membership: Membership,
    /// The switch's grant on its way: the time with which this runtime asked.
    grant: Option<u64>,
    /// While the group is on its way.
    machine: Option<Ownership>,
    clock: Epoch,
    /// Packets that the switch has sent, and that are kept, processed or dropped.
    consumed: u8,
    /// The state: how many packets it has seen.
    seen: Option<u8>,
    /// The state that came in `State`.
    staged: Option<u8>,
    kept: Vec<(Class, u8)>,
    /// The items that are to be transmitted, in order.
    outbox: Vec<Item>,
    quiesces: bool,
    is_to_be_routed: bool,
    is_asked: bool,
    is_taken: bool,
    /// *Done*, until it has its lease.
    done: Option<RuntimeMessage>,
}

/// The switch.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct Switch {
    membership: Membership,
    home: Home,
    is_awaited: bool,
    /// Packets to each runtime.
    sent: [u8; RUNTIMES],
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) struct World {
    now: u64,
    coordinator: Coordinator,
    /// The newest view that the coordinator says to be at all members.
    reached: u32,
    switch: Switch,
    runtimes: [Runtime; RUNTIMES],
    up: [Vec<Item>; RUNTIMES],
    down: [Vec<Item>; RUNTIMES],
    /// To the other runtime.
    across: [Vec<Item>; RUNTIMES],
    trouble: Trouble,
    losses: u8,
    moves: u8,
    came: u8,
    /// A bit for each packet; so in the next two.
    left: u8,
    dropped: u8,
    processed: u8,
    /// The runtime that had the group, or its state, when it heard that the other was removed.
    survivor: Option<usize>,
    /// The runtime that acted for the group last, with its lease; none once it has begun again.
    owner: Option<usize>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Action {
    /// A packet comes in; without a route it goes to this runtime.
    Come(usize),
    Up(usize),
    Down(usize),
    Across(usize),
    Transmit(usize),
    Order(usize),
    Quiesced(usize),
    Deadline(usize),
    /// A source says again that it takes the group back.
    Again(usize),
    /// A runtime asks the switch for its lease, and is granted it.
    Ask(usize),
    /// The grant comes.
    Granted(usize),
    /// A worker hears the coordinator.
    Hear(usize),
    /// Time passes; all heartbeats come.
    Tick,
    /// Time passes; the heartbeat of the runtime that may be in trouble is lost.
    TickUnheard,
    Begins(Trouble),
    Ends,
    /// [`Broken::RemovedBySilence`].
    Presume(usize),
}

pub(super) type Check = Result<(), String>;

fn id(runtime: usize) -> RuntimeId {
    RuntimeId(runtime as u16)
}

const S: WorkerId = WorkerId::switch(0);

fn worker(place: usize) -> WorkerId {
    match place {
        SWITCH => S,
        runtime => WorkerId::runtime(runtime as u16),
    }
}

fn first_view() -> View {
    let member = |place| Member {
        id: worker(place),
        incarnation: ONE,
        standing: membership::Standing::Running,
    };
    View::new(1, (0..=SWITCH).map(member).collect())
}

impl Runtime {
    fn new(me: usize) -> Self {
        Runtime {
            membership: Membership::new(worker(me), ONE, TERM, first_view()),
            grant: None,
            machine: None,
            clock: Epoch::default(),
            consumed: 0,
            seen: (me == 0).then_some(0),
            staged: None,
            kept: vec![],
            outbox: vec![],
            quiesces: false,
            is_to_be_routed: false,
            is_asked: false,
            is_taken: false,
            done: None,
        }
    }

    /// Whether it would process the group's packets, had it its lease. Packets of a group that is
    /// called back are all kept until it is here.
    fn is_actor(&self) -> bool {
        let acts =
            |machine: Ownership| machine.is_active() && !matches!(machine.phase(), Phase::Returning { .. });
        self.seen.is_some() && self.machine.is_none_or(acts)
    }
}

impl World {
    pub(super) fn new() -> Self {
        let first = (0, membership::Entry::View(first_view()));
        let coordinator = Coordinator::replay(0, TIMING, [first]);
        let mut world = World {
            now: 0,
            coordinator: coordinator.expect("a log with a view"),
            reached: 0,
            switch: Switch {
                membership: Membership::new(S, ONE, TERM, first_view()),
                home: Home::chosen(id(0)),
                is_awaited: false,
                sent: [0; RUNTIMES],
            },
            runtimes: [0, 1].map(Runtime::new),
            up: Default::default(),
            down: Default::default(),
            across: Default::default(),
            trouble: Trouble::None,
            losses: 0,
            moves: 0,
            came: 0,
            left: 0,
            dropped: 0,
            processed: 0,
            survivor: None,
            owner: Some(0),
        };
        for runtime in 0..RUNTIMES {
            world.renew_both(runtime);
        }
        for place in 0..=SWITCH {
            world.beat(place).expect("a first heartbeat");
        }
        world
    }

    pub(super) fn actions(&self, bounds: &Bounds) -> Vec<Action> {
        let mut all = vec![];
        if self.came < bounds.packets && self.switch.membership.may_act(self.clock(SWITCH)) {
            all.extend(self.choices().into_iter().map(Action::Come));
        }
        for r in 0..RUNTIMES {
            let is_cut = self.is_in(bounds, r, Trouble::CutOff);
            if !self.up[r].is_empty() && !is_cut {
                all.push(Action::Up(r));
            }
            if self.runs(bounds, r) {
                self.actions_of(bounds, r, is_cut, &mut all);
            }
        }
        if self.is_behind(SWITCH) {
            all.push(Action::Hear(SWITCH));
        }
        if self.may_tick(bounds) {
            all.push(Action::Tick);
            if self.is_heard(bounds, bounds.troubled) && self.losses < bounds.losses {
                all.push(Action::TickUnheard);
            }
        }
        match self.trouble {
            // Steps take no time: all that can be said and done before is, at this time.
            Trouble::None if self.now == 0 => all.extend(bounds.troubles.iter().copied().map(Action::Begins)),
            Trouble::None | Trouble::Over => {}
            _ if bounds.ends => all.push(Action::Ends),
            _ => {}
        }
        all
    }

    /// The actions of a runtime that runs.
    fn actions_of(&self, bounds: &Bounds, r: usize, is_cut: bool, all: &mut Vec<Action>) {
        let (runtime, other) = (&self.runtimes[r], 1 - r);
        if !runtime.outbox.is_empty() {
            all.push(Action::Transmit(r));
        }
        let knows = runtime.membership.view().has(worker(other), ONE);
        if self.moves < bounds.moves && runtime.machine.is_none() && runtime.seen.is_some() && knows {
            all.push(Action::Order(r));
        }
        let is_packet = |item: &Item| matches!(item, Item::Packet(_));
        if runtime.quiesces && !runtime.outbox.iter().any(is_packet) {
            all.push(Action::Quiesced(r));
        }
        if let Some(machine) = &runtime.machine {
            if bounds.deadlines && machine.is_armed(Timer::Deadline) {
                all.push(Action::Deadline(r));
            }
            let is_said = |item: &Item| matches!(item, Item::Tell(TellSwitch::Reroute { .. }));
            let is_answer = |item: &Item| {
                let answer = SwitchMessage::Rerouted(machine.latest());
                matches!(item, Item::SwitchMessage(SwitchMessage::Fenced(_)))
                    || *item == Item::SwitchMessage(answer)
            };
            let is_under_way =
                self.up[r].iter().chain(&runtime.outbox).any(is_said) || self.down[r].iter().any(is_answer);
            if machine.is_taken_back() && !is_under_way {
                all.push(Action::Again(r));
            }
        }
        let is_in_trouble = !matches!(self.trouble, Trouble::None | Trouble::Over);
        if bounds.broken == Some(Broken::RemovedBySilence) && is_in_trouble && r != bounds.troubled {
            all.push(Action::Presume(r));
        }
        if is_cut {
            return;
        }
        if !self.down[r].is_empty() {
            all.push(Action::Down(r));
        }
        if !self.across[other].is_empty() && !self.is_in(bounds, other, Trouble::CutOff) {
            all.push(Action::Across(other));
        }
        match runtime.grant {
            Some(_) => all.push(Action::Granted(r)),
            None if r == bounds.troubled => all.push(Action::Ask(r)),
            None => {}
        }
        if self.is_behind(r) && !self.is_in(bounds, r, Trouble::Unheard) {
            all.push(Action::Hear(r));
        }
    }

    pub(super) fn step(&mut self, action: Action, bounds: &Bounds) -> Check {
        match action {
            Action::Come(choice) => self.route(choice),
            Action::Up(r) => {
                let item = self.up[r].remove(0);
                self.at_switch(r, item)?;
            }
            Action::Down(r) => {
                let item = self.down[r].remove(0);
                self.at_runtime(r, true, item, bounds)?;
            }
            Action::Across(from) => {
                let item = self.across[from].remove(0);
                self.at_runtime(1 - from, false, item, bounds)?;
            }
            Action::Transmit(r) => self.transmit(r, bounds)?,
            Action::Order(r) => {
                self.moves += 1;
                let one = Switches::one(0);
                let runtime = &mut self.runtimes[r];
                runtime.machine = Some(Ownership::active(id(r), runtime.clock, one, one));
                runtime.clock = runtime.clock.next();
                self.drive(r, Input::Move(id(1 - r)), bounds)?;
            }
            Action::Quiesced(r) => {
                self.runtimes[r].quiesces = false;
                self.drive(r, Input::Quiesced, bounds)?;
            }
            Action::Deadline(r) => self.drive(r, Input::Fired(Timer::Deadline), bounds)?,
            Action::Again(r) => self.drive(r, Input::Fired(Timer::Retry), bounds)?,
            Action::Ask(r) => self.ask(r),
            Action::Granted(r) => {
                let now = self.clock(r);
                if let Some(asked) = self.runtimes[r].grant.take() {
                    self.runtimes[r].membership.renew(now, S, ONE, asked);
                }
                self.say_done(r, bounds);
            }
            Action::Hear(place) => self.hear(place, bounds)?,
            Action::Tick => self.tick(bounds, false)?,
            Action::TickUnheard => {
                self.losses += 1;
                self.tick(bounds, true)?;
            }
            Action::Begins(trouble) => self.trouble = trouble,
            Action::Ends => self.trouble = Trouble::Over,
            Action::Presume(r) => self.runtime_learns(r, 1 - r, bounds)?,
        }
        self.check()?;
        let is_owner = |r: &usize| self.runtimes[*r].is_actor() && self.may_act(*r);
        let owner = (0..RUNTIMES).find(is_owner);
        self.owner = self.owner.map(|before| owner.unwrap_or(before));
        Ok(())
    }

    // Links.

    fn drop_packet(&mut self, n: u8) {
        self.dropped |= 1 << n;
    }

    fn drop_packets(&mut self, items: &[Item]) {
        for item in items {
            if let Item::Packet(n) = item {
                self.drop_packet(*n);
            }
        }
    }

    /// The switch says nothing to an incarnation that is over by its view.
    fn send_down(&mut self, r: usize, item: Item) {
        if !self.has_at(SWITCH, r) {
            return self.drop_packets(&[item]);
        }
        self.switch.sent[r] += u8::from(matches!(item, Item::Packet(_)));
        self.down[r].push(item);
    }

    /// So does a runtime; and the words of such an incarnation are dropped there, as at the switch.
    fn send_across(&mut self, r: usize, item: Item) {
        match self.has_at(r, 1 - r) && self.has_at(1 - r, r) {
            true => self.across[r].push(item),
            false => self.drop_packets(&[item]),
        }
    }

    fn send_up(&mut self, r: usize, item: Item, bounds: &Bounds) {
        match self.has_at(SWITCH, r) || bounds.broken == Some(Broken::ReadsRemoved) {
            true => self.up[r].push(item),
            false => self.drop_packets(&[item]),
        }
    }

    // Checkers.

    /// Of an effect of a runtime: it is a member by the newest view, and has its lease.
    fn effect(&self, r: usize, what: &str) -> Check {
        let view = self.coordinator.view();
        if !view.has(worker(r), ONE) {
            let number = view.number;
            return Err(format!("{r} {what} a packet, and view {number} has removed it"));
        }
        match self.may_act(r) {
            true => Ok(()),
            false => Err(format!("{r} {what} a packet without its lease")),
        }
    }

    /// One runtime at most acts for the group; a runtime that a view has removed has no lease; no
    /// worker has a view that is not published.
    fn check(&self) -> Check {
        let actors = (0..RUNTIMES).filter(|r| self.runtimes[*r].is_actor() && self.may_act(*r));
        if actors.count() > 1 {
            return Err("two runtimes act".into());
        }
        let view = self.coordinator.view();
        for place in 0..=SWITCH {
            let membership = self.membership(place);
            if membership.may_act(self.clock(place)) && !view.has(worker(place), ONE) {
                let (id, number) = (worker(place), view.number);
                return Err(format!("{id:?} has its lease, and view {number} has removed it"));
            }
            if membership.view().number > view.number {
                return Err(format!("{:?} has a view that is not there", worker(place)));
            }
        }
        Ok(())
    }

    /// For a story.
    pub(super) fn told(&self) -> String {
        let mut told = format!(
            "{} {:?} view {} |",
            self.now,
            self.trouble,
            self.coordinator.view().number
        );
        for r in 0..RUNTIMES {
            let runtime = &self.runtimes[r];
            let (view, seen) = (runtime.membership.view().number, runtime.seen);
            let phase = runtime.machine.map(|machine| machine.phase());
            let lease = if self.may_act(r) { "leased" } else { "no lease" };
            told += &format!(" {r}: view {view} {lease} {seen:?} {phase:?} |");
        }
        let route = self.switch.home.route;
        told + &format!(" view {} {route:?}", self.switch.membership.view().number)
    }
}
