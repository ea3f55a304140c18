//! Every state that two runtimes and one or two home switches can get into, explored with the
//! production machines themselves.
//!
//! # Theory of operation
//!
//! A [`World`] is the machines, the links between them (queues that keep order, and may lose a
//! message), the packets that each runtime keeps, and the state that it holds: how many packets of
//! each home it has seen. [`World::actions`] lists everything that can happen next: a packet comes
//! in, the head of any link is delivered or lost, a timer runs out, a call that was waited for is
//! done, an operator orders a move, a runtime crashes, the view without it is published, a live one
//! hears of it, recovery decides. `search` goes through all that follows.
//!
//! After a runtime's crash a switch hears the messages that were on their way; with the view's
//! publication the rest is dropped (the barrier of `Removed`). There are no copies here (`replicas`
//! has those): recovery makes the owner of a copy that is orphaned; where there is none, the route
//! ends.
//!
//! Checkers: [`World::process`] (each packet once, in order, on the latest state), [`World::leave`]
//! (order at the exits), [`World::check`] (one active, an active one holds the state, the state
//! survives), [`World::check_end`] (all is out or accounted for, and all agree), and `search` (the
//! end can be reached).

use super::super::*;
use std::format;
use std::string::String;
use std::vec;
use std::vec::Vec;

const RUNTIMES: usize = 2;
const HOMES_MAX: usize = 2;

/// The actions that may happen, and how often.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bounds {
    pub(super) homes: usize,
    /// Packets that come in at each home.
    pub(super) packets: u8,
    pub(super) moves: u8,
    pub(super) losses: u8,
    /// Retries although something is still on its way.
    pub(super) hasty: u8,
    pub(super) crash: bool,
    /// Whether one of the switches goes.
    pub(super) switch_goes: bool,
}

/// On a link.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum Item {
    /// The `n`-th packet of a home: to a runtime, on to another one, or out.
    Packet(u8, u8),
    RuntimeMessage(RuntimeMessage),
    /// With what the source had seen.
    State(Epoch, Copy),
    Tell(TellSwitch),
    SwitchMessage(SwitchMessage),
}

/// How many packets of each home a state has seen.
type Copy = [u8; HOMES_MAX];

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) struct World {
    /// `None`: crashed.
    pub(super) runtimes: [Option<Ownership>; RUNTIMES],
    copies: [Option<Copy>; RUNTIMES],
    kept: [Vec<(u8, u8)>; RUNTIMES],
    quiescing: [bool; RUNTIMES],
    homes: [Home; HOMES_MAX],
    /// By switch and runtime.
    down: [[Vec<Item>; RUNTIMES]; HOMES_MAX],
    /// By runtime and switch.
    up: [[Vec<Item>; HOMES_MAX]; RUNTIMES],
    /// To the other runtime.
    across: [Vec<Item>; RUNTIMES],
    came: [u8; HOMES_MAX],
    left: [u8; HOMES_MAX],
    /// A bit for each packet that was dropped and counted, or whose trace a crash may wipe out.
    dropped: [u8; HOMES_MAX],
    moves: u8,
    losses: u8,
    hasty: u8,
    is_published: bool,
    /// Which workers have heard of the removal: the runtimes, then the switches.
    told: [bool; RUNTIMES + HOMES_MAX],
    must_survive: bool,
    /// The switch that is gone, and which runtimes know.
    gone: Option<usize>,
    noticed: [bool; RUNTIMES],
    /// *Back*, until it is known that the home is gone.
    back: [Vec<RuntimeMessage>; RUNTIMES],
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Action {
    Come(usize),
    Down(usize, usize),
    Up(usize, usize),
    Across(usize),
    AcrossRefused(usize),
    LoseDown(usize, usize),
    LoseUp(usize, usize),
    LoseAcross(usize),
    Order(usize),
    Quiesced(usize),
    Fire(usize, Timer),
    Crash(usize),
    Publish,
    TellRuntime(usize),
    TellSwitch(usize),
    Grant(usize),
    Forget,
    GoSwitch(usize),
    Notice(usize),
}

pub(super) type Check = Result<(), String>;

fn id(runtime: usize) -> RuntimeId {
    RuntimeId(runtime as u16)
}

impl World {
    pub(super) fn new(bounds: &Bounds) -> Self {
        let all = Switches::first(bounds.homes as u8);
        World {
            runtimes: [
                Some(Ownership::active(id(0), Epoch::default(), all, all)),
                Some(Ownership::absent(id(1), all)),
            ],
            copies: [Some([0; HOMES_MAX]), None],
            kept: Default::default(),
            quiescing: [false; RUNTIMES],
            homes: [Home::chosen(id(0)); HOMES_MAX],
            down: Default::default(),
            up: Default::default(),
            across: Default::default(),
            came: [0; HOMES_MAX],
            left: [0; HOMES_MAX],
            dropped: [0; HOMES_MAX],
            moves: 0,
            losses: 0,
            hasty: 0,
            is_published: false,
            told: [false; RUNTIMES + HOMES_MAX],
            must_survive: true,
            gone: None,
            noticed: [false; RUNTIMES],
            back: Default::default(),
        }
    }

    fn crashed(&self) -> Option<usize> {
        self.runtimes.iter().position(Option::is_none)
    }

    fn is_quiet(&self) -> bool {
        self.down.iter().flatten().all(Vec::is_empty)
            && self.up.iter().flatten().all(Vec::is_empty)
            && self.across.iter().all(Vec::is_empty)
    }

    fn all_told(&self, bounds: &Bounds) -> bool {
        self.is_published
            && (0..RUNTIMES).all(|r| self.runtimes[r].is_none() || self.told[r])
            && (0..bounds.homes).all(|h| self.told[RUNTIMES + h])
    }

    pub(super) fn actions(&self, bounds: &Bounds) -> Vec<Action> {
        let mut all = vec![];
        let is_message = |queue: &[Item]| !matches!(queue[0], Item::Packet(..));
        let may_lose = self.losses < bounds.losses;
        for h in 0..bounds.homes {
            if self.came[h] < bounds.packets {
                all.push(Action::Come(h));
            }
            for r in 0..RUNTIMES {
                if !self.down[h][r].is_empty() {
                    all.push(Action::Down(h, r));
                    if may_lose && is_message(&self.down[h][r]) {
                        all.push(Action::LoseDown(h, r));
                    }
                }
                if !self.up[r][h].is_empty() {
                    all.push(Action::Up(r, h));
                    if may_lose && is_message(&self.up[r][h]) {
                        all.push(Action::LoseUp(r, h));
                    }
                }
            }
            if self.is_published && !self.told[RUNTIMES + h] {
                all.push(Action::TellSwitch(h));
            }
            if bounds.switch_goes && self.gone.is_none() {
                all.push(Action::GoSwitch(h));
            }
        }
        for r in 0..RUNTIMES {
            if !self.across[r].is_empty() {
                all.push(Action::Across(r));
                if matches!(self.across[r][0], Item::RuntimeMessage(RuntimeMessage::Open(..))) {
                    all.push(Action::AcrossRefused(r));
                }
                if may_lose && is_message(&self.across[r]) {
                    all.push(Action::LoseAcross(r));
                }
            }
            let Some(machine) = &self.runtimes[r] else {
                continue;
            };
            if machine.may_move() && self.moves < bounds.moves && !(self.is_published && self.told[r]) {
                all.push(Action::Order(r));
            }
            if self.quiescing[r] {
                all.push(Action::Quiesced(r));
            }
            for timer in [Timer::Retry, Timer::Deadline, Timer::Forget] {
                let may = timer != Timer::Retry || self.hasty < bounds.hasty || self.is_quiet();
                if machine.is_armed(timer) && may {
                    all.push(Action::Fire(r, timer));
                }
            }
            if bounds.crash && self.crashed().is_none() {
                all.push(Action::Crash(r));
            }
            if self.is_published && !self.told[r] {
                all.push(Action::TellRuntime(r));
            }
            if self.gone.is_some() && !self.noticed[r] {
                all.push(Action::Notice(r));
            }
            if self.all_told(bounds) && matches!(machine.phase(), Phase::Forwarding { is_removed: true, .. })
            {
                all.push(Action::Grant(r));
            }
        }
        if self.crashed().is_some() && !self.is_published {
            all.push(Action::Publish);
        }
        let is_lost = self.copies.iter().all(Option::is_none);
        if self.all_told(bounds) && is_lost && self.homes[..bounds.homes].iter().any(|h| h.route.is_some()) {
            all.push(Action::Forget);
        }
        all
    }

    pub(super) fn step(&mut self, action: Action, bounds: &Bounds) -> Check {
        match action {
            Action::Come(h) => {
                let n = self.came[h];
                self.came[h] += 1;
                match self.homes[h].route.filter(|_| self.gone != Some(h)) {
                    Some(RuntimeId(r)) => self.send_down(h, usize::from(r), Item::Packet(h as u8, n)),
                    None => self.drop_packet(h as u8, n),
                }
            }
            Action::Down(h, r) => {
                let item = self.down[h][r].remove(0);
                self.at_runtime(r, Some(h), item, Ok(()), bounds)?;
            }
            Action::Up(r, h) => {
                let item = self.up[r][h].remove(0);
                self.at_switch(r, h, item)?;
            }
            Action::Across(r) => {
                let item = self.across[r].remove(0);
                self.at_runtime(1 - r, None, item, Ok(()), bounds)?;
            }
            Action::AcrossRefused(r) => {
                let item = self.across[r].remove(0);
                self.at_runtime(1 - r, None, item, Err(Refusal::Full), bounds)?;
            }
            Action::LoseDown(h, r) => {
                self.down[h][r].remove(0);
                self.losses += 1;
            }
            Action::LoseUp(r, h) => {
                self.up[r][h].remove(0);
                self.losses += 1;
            }
            Action::LoseAcross(r) => {
                self.across[r].remove(0);
                self.losses += 1;
            }
            Action::Order(r) => {
                self.moves += 1;
                self.handle(r, Input::Move(id(1 - r)), bounds)?;
            }
            Action::Quiesced(r) => {
                self.quiescing[r] = false;
                self.handle(r, Input::Quiesced, bounds)?;
            }
            Action::Fire(r, timer) => {
                if timer == Timer::Retry && !self.is_quiet() {
                    self.hasty += 1;
                }
                self.handle(r, Input::Fired(timer), bounds)?;
            }
            Action::Crash(r) => self.crash(r),
            Action::Publish => self.publish(),
            Action::TellRuntime(r) => {
                self.told[r] = true;
                self.handle(r, Input::Removed(id(1 - r)), bounds)?;
            }
            Action::TellSwitch(h) => self.told[RUNTIMES + h] = true,
            Action::Grant(r) => self.handle(r, Input::Grant(Epoch { view: 1, count: 0 }), bounds)?,
            Action::Forget => {
                for home in &mut self.homes[..bounds.homes] {
                    home.handle(HomeInput::Forget, |_| {});
                }
            }
            Action::GoSwitch(h) => {
                self.gone = Some(h);
                for r in 0..RUNTIMES {
                    let lost = packets(&core::mem::take(&mut self.up[r][h]));
                    self.lose(lost);
                }
            }
            Action::Notice(r) => self.notice(r, bounds)?,
        }
        self.check()
    }

    fn crash(&mut self, r: usize) {
        let was = self.copies[r].take();
        self.runtimes[r] = None;
        self.quiescing[r] = false;
        self.back[r].clear();
        // Once it has said that it holds the state, the other one is right to drop it.
        let has_said = self.across[r]
            .iter()
            .any(|item| matches!(item, Item::RuntimeMessage(RuntimeMessage::Done(_))));
        self.must_survive = self.copies[1 - r].is_some() && !has_said;
        // Packets that it had seen, and told no worker of, may be seen no more.
        if let (Some(was), Some(other)) = (was, self.copies[1 - r]) {
            for h in 0..HOMES_MAX {
                (other[h]..was[h]).for_each(|n| self.dropped[h] |= 1 << n);
            }
        }
        let mut gone = core::mem::take(&mut self.kept[r]);
        for queue in self.down.iter_mut().map(|down| &mut down[r]) {
            gone.extend(packets(&core::mem::take(queue)));
        }
        gone.extend(packets(&core::mem::take(&mut self.across[1 - r])));
        gone.into_iter().for_each(|(h, n)| self.drop_packet(h, n));
    }

    /// A runtime hears that the switch is gone: behind all that it sent, or a part of it that is
    /// lost.
    fn notice(&mut self, r: usize, bounds: &Bounds) -> Check {
        let Some(h) = self.gone else { return Ok(()) };
        self.noticed[r] = true;
        let lost = packets(&core::mem::take(&mut self.down[h][r]));
        self.lose(lost);
        self.answer_for_gone(r, bounds)?;
        for message in core::mem::take(&mut self.back[r]) {
            self.handle(r, Input::FromRuntime(id(1 - r), message, Ok(())), bounds)?;
        }
        Ok(())
    }

    fn answer_for_gone(&mut self, r: usize, bounds: &Bounds) -> Check {
        let Some(h) = self.gone.filter(|_| self.noticed[r]) else {
            return Ok(());
        };
        let awaits = |machine: Ownership| machine.awaits(h as u8) && !has(Bug::WaitsForGone);
        if self.runtimes[r].is_some_and(awaits) {
            self.handle(r, Input::SwitchGone(h as u8), bounds)?;
        }
        Ok(())
    }

    fn lose(&mut self, packets: Vec<(u8, u8)>) {
        packets.into_iter().for_each(|(h, n)| self.drop_packet(h, n));
    }

    fn publish(&mut self) {
        self.is_published = true;
        let Some(r) = self.crashed() else { return };
        let mut gone = vec![];
        for queue in &mut self.up[r] {
            gone.extend(packets(&core::mem::take(queue)));
        }
        gone.extend(packets(&core::mem::take(&mut self.across[r])));
        gone.into_iter().for_each(|(h, n)| self.drop_packet(h, n));
    }

    fn drop_packet(&mut self, h: u8, n: u8) {
        self.dropped[usize::from(h)] |= 1 << n;
    }

    fn send_down(&mut self, h: usize, r: usize, item: Item) {
        if self.runtimes[r].is_some() {
            self.down[h][r].push(item);
        } else if let Item::Packet(home, n) = item {
            self.drop_packet(home, n);
        }
    }

    fn send_across(&mut self, r: usize, item: Item) {
        if self.runtimes[1 - r].is_some() {
            self.across[r].push(item);
        } else if let Item::Packet(home, n) = item {
            self.drop_packet(home, n);
        }
    }

    fn at_switch(&mut self, r: usize, h: usize, item: Item) -> Check {
        match item {
            Item::Packet(home, n) => return self.leave(home, n),
            Item::Tell(TellSwitch::DrainMarker {
                to: RuntimeId(to),
                epoch,
            }) => {
                self.send_down(
                    h,
                    usize::from(to),
                    Item::SwitchMessage(SwitchMessage::Drained(epoch)),
                );
            }
            Item::Tell(TellSwitch::Reroute { from, to, epoch, .. }) => {
                let is_removed = self.told[RUNTIMES + h] && self.runtimes[usize::from(to.0)].is_none();
                let mut said = vec![];
                let input = HomeInput::Reroute {
                    by: id(r),
                    from,
                    to,
                    epoch,
                    is_removed,
                };
                self.homes[h].handle(input, |output| said.push(output));
                for (RuntimeId(to), message) in said {
                    self.send_down(h, usize::from(to), Item::SwitchMessage(message));
                }
            }
            _ => return Err(format!("{item:?} is nothing for a switch")),
        }
        Ok(())
    }

    fn at_runtime(
        &mut self,
        r: usize,
        home: Option<usize>,
        item: Item,
        room: Result<(), Refusal>,
        bounds: &Bounds,
    ) -> Check {
        let Some(machine) = self.runtimes[r] else {
            return Ok(());
        };
        let other = id(1 - r);
        match item {
            Item::Packet(h, n) => {
                let take = match home {
                    Some(_) => machine.take(h),
                    None => machine.take_handed(h),
                };
                match take {
                    Take::Process => self.process(r, h, n, bounds),
                    Take::Keep => {
                        self.kept[r].push((h, n));
                        Ok(())
                    }
                    Take::PassOn(_) => {
                        self.send_across(r, item);
                        Ok(())
                    }
                    Take::Stray => {
                        self.drop_packet(h, n);
                        Ok(())
                    }
                }
            }
            Item::RuntimeMessage(message @ RuntimeMessage::Back(..)) if !self.noticed[r] => {
                self.back[r].push(message);
                Ok(())
            }
            Item::RuntimeMessage(message) => self.handle(r, Input::FromRuntime(other, message, room), bounds),
            Item::State(epoch, copy) => {
                if machine.wants_state(epoch) {
                    self.copies[r] = Some(copy);
                }
                self.handle(
                    r,
                    Input::FromRuntime(other, RuntimeMessage::State(epoch), room),
                    bounds,
                )
            }
            Item::SwitchMessage(message) => {
                let switch = home.expect("a switch said it") as u8;
                self.handle(r, Input::FromSwitch(switch, message), bounds)
            }
            Item::Tell(_) => Err(format!("{item:?} is nothing for a runtime")),
        }
    }

    fn handle(&mut self, r: usize, input: Input, bounds: &Bounds) -> Check {
        let Some(machine) = &mut self.runtimes[r] else {
            return Ok(());
        };
        let mut outputs = vec![];
        machine.handle(input, |output| outputs.push(output));
        for output in outputs {
            self.carry_out(r, output, bounds)?;
        }
        self.answer_for_gone(r, bounds)
    }

    fn carry_out(&mut self, r: usize, output: Output, bounds: &Bounds) -> Check {
        match output {
            Output::Tell(_, message) => self.send_across(r, Item::RuntimeMessage(message)),
            Output::TellSwitches(switches, words) => {
                for switch in switches.iter().map(usize::from) {
                    if self.gone != Some(switch) {
                        self.up[r][switch].push(Item::Tell(words));
                    }
                }
            }
            Output::Quiesce => self.quiescing[r] = true,
            Output::SendState(_, epoch) => {
                let Some(copy) = self.copies[r] else {
                    return Err("a state is sent that is not there".into());
                };
                self.send_across(r, Item::State(epoch, copy));
            }
            Output::Install => {
                for (h, n) in core::mem::take(&mut self.kept[r]) {
                    self.process(r, h, n, bounds)?;
                }
            }
            Output::Release(home) => {
                for (h, n) in self.take_kept(r, home) {
                    self.process(r, h, n, bounds)?;
                }
            }
            Output::HandOver(_, home) => {
                for (h, n) in self.take_kept(r, home) {
                    self.send_across(r, Item::Packet(h, n));
                }
            }
            Output::Depart => self.copies[r] = None,
            Output::CloseSlot | Output::Stop => {
                self.copies[r] = None;
                for (h, n) in core::mem::take(&mut self.kept[r]) {
                    self.drop_packet(h, n);
                }
            }
            Output::Orphaned | Output::Finished(_) => {}
        }
        Ok(())
    }

    fn take_kept(&mut self, r: usize, home: u8) -> Vec<(u8, u8)> {
        let (of_it, rest) = self.kept[r].iter().partition(|(h, _)| *h == home);
        self.kept[r] = rest;
        of_it
    }

    /// Checker: each packet is processed once, in order, on the latest state.
    fn process(&mut self, r: usize, h: u8, n: u8, bounds: &Bounds) -> Check {
        let home = usize::from(h);
        let Some(copy) = &mut self.copies[r] else {
            return Err(format!(
                "packet {n} of home {h} is processed by {r}, which has no state"
            ));
        };
        let missed = (copy[home]..n).any(|n| self.dropped[home] & 1 << n == 0);
        if n < copy[home] || missed {
            let seen = copy[home];
            return Err(format!(
                "packet {n} of home {h} is processed by {r} on a state that has seen {seen} of them"
            ));
        }
        copy[home] = n + 1;
        let exit = (home + 1) % bounds.homes;
        match self.gone == Some(exit) {
            true => self.drop_packet(h, n),
            false => self.up[r][exit].push(Item::Packet(h, n)),
        }
        Ok(())
    }

    /// Checker: packets leave in the order in which they came.
    fn leave(&mut self, h: u8, n: u8) -> Check {
        let left = &mut self.left[usize::from(h)];
        if n < *left {
            return Err(format!(
                "packet {n} of home {h} leaves behind packet {}",
                *left - 1
            ));
        }
        *left = n + 1;
        Ok(())
    }

    /// Checkers: one active runtime at most, which has the state; and a runtime has it.
    fn check(&self) -> Check {
        let live = || (0..RUNTIMES).filter_map(|r| Some((r, self.runtimes[r].as_ref()?)));
        if live().filter(|(_, machine)| machine.is_active()).count() > 1 {
            return Err("two runtimes are active".into());
        }
        if live().any(|(r, machine)| machine.is_active() && self.copies[r].is_none()) {
            return Err("a runtime is active without the state".into());
        }
        if self.must_survive && live().all(|(r, _)| self.copies[r].is_none()) {
            return Err("the state is lost".into());
        }
        Ok(())
    }

    pub(super) fn is_end(&self, bounds: &Bounds) -> bool {
        let live = self.runtimes.iter().flatten();
        self.is_quiet()
            && self.kept.iter().all(Vec::is_empty)
            && self.came[..bounds.homes]
                .iter()
                .all(|came| *came == bounds.packets)
            && live.clone().all(Ownership::is_over)
            && (self.crashed().is_none() || self.all_told(bounds))
            && (self.gone.is_none() || (0..RUNTIMES).all(|r| self.noticed[r] || self.runtimes[r].is_none()))
            && self.back.iter().all(Vec::is_empty)
    }

    /// Checkers of an end: everything is out or accounted for, and all agree on which runtime has
    /// the group.
    pub(super) fn check_end(&self, bounds: &Bounds) -> Check {
        let active = (0..RUNTIMES).find(|r| self.runtimes[*r].is_some_and(|machine| machine.is_active()));
        for h in 0..bounds.homes {
            let is_calm = self.crashed().is_none() && self.gone.is_none();
            if is_calm && (self.dropped[h] != 0 || self.left[h] != bounds.packets) {
                return Err(format!("of home {h} a packet is lost, and no worker has crashed"));
            }
            let copy = active.and_then(|r| self.copies[r]);
            if copy.is_some_and(|copy| (copy[h]..bounds.packets).any(|n| self.dropped[h] & 1 << n == 0)) {
                return Err(format!("of home {h} a packet is missing, and not counted"));
            }
            if self.gone != Some(h) && self.homes[h].route != active.map(id) {
                return Err(format!(
                    "home {h} sends to {:?}, and {active:?} has it",
                    self.homes[h].route
                ));
            }
        }
        if self.must_survive && active.is_none() {
            return Err("no runtime is active".into());
        }
        Ok(())
    }
}

fn packets(queue: &[Item]) -> Vec<(u8, u8)> {
    let mut all = vec![];
    for item in queue {
        if let Item::Packet(h, n) = item {
            all.push((*h, *n));
        }
    }
    all
}
