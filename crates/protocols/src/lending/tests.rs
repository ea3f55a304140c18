//! The machine explored whole at small size: a home and a borrower, one or two switches, one block,
//! words under way on every link, and some misfortunes anywhere: a worker dies and another begins,
//! a session ends with what was under way on it.
//!
//! The home's side is played here as `runtime::mobility::answers` and `worker::sessions` have it:
//! it counts which switches say *returned*, and a home that begins is told what is lent before it
//! gives out.

use super::{Action, Borrower, QUARANTINE, Register};
use crate::ownership::{RuntimeId, Switches};
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use std::collections::HashSet;

const HOME: RuntimeId = RuntimeId(0);
const BORROWER: RuntimeId = RuntimeId(1);
const BLOCK: u8 = 7;

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum Word {
    Lent,
    Returned,
    Kept,
    Claimed,
    LendsOver,
    InUse,
    AllTold,
    /// The session is another's from here on.
    Begins,
}

/// Words under way from a runtime to a switch, and back.
type Link = [VecDeque<Word>; 2];

#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
struct Switch {
    register: Register<u8>,
    /// A group of the borrower has the block.
    is_claimed: bool,
    /// It has begun again, and the borrower has not told what it has; the home is to be told then.
    is_new: bool,
    owes_home: bool,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct World {
    /// By runtime and switch.
    links: [[Link; 2]; 2],
    switches: [Switch; 2],
    count: u8,
    /// Home: the block is free; a group here has it; which switches have said that it is back;
    /// which have told.
    is_free: bool,
    has_group: [bool; 2],
    returned: Switches,
    told: Switches,
    may_know: Switches,
    is_told_in_use: bool,
    borrower: Borrower<u8>,
    borrowed_free: bool,
    /// Which switches each runtime sees.
    sees: [Switches; 2],
    lends: u8,
    /// So often more a block is kept.
    keeps: u8,
    misfortunes: u8,
    /// The borrower's group has come from the home: no switch knows whose its block is.
    has_moved: bool,
    /// A loan was under way when a switch, a session or its borrower ended: no runtime may have the
    /// block then.
    is_lossy: bool,
}

/// A rule that is broken on purpose.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Broken {
    Nothing,
    FirstWordIsEnough,
    NotTold,
    NoQuarantine,
    KeptBySwitchOver,
    FirstReturnIsEnough,
    NotRegistered,
}

impl World {
    fn new(count: u8, lends: u8, keeps: u8, misfortunes: u8) -> World {
        let there = Switches::first(count);
        World {
            links: Default::default(),
            switches: Default::default(),
            count,
            is_free: true,
            has_group: [false; 2],
            returned: Switches::NONE,
            told: there,
            may_know: Switches::NONE,
            is_told_in_use: false,
            borrower: Borrower::default(),
            borrowed_free: false,
            sees: [there; 2],
            lends,
            keeps,
            misfortunes,
            has_moved: false,
            is_lossy: false,
        }
    }

    fn say(&mut self, runtime: usize, word: Word) {
        for switch in 0..self.count {
            if self.sees[runtime].has(switch) {
                self.links[runtime][usize::from(switch)][0].push_back(word);
            }
        }
    }

    fn carry_out_borrowed(&mut self, broken: Broken) {
        while let Some(action) = self.borrower.poll_action() {
            match action {
                Action::Take(..) => self.borrowed_free = true,
                Action::Return(..) => {
                    if broken != Broken::KeptBySwitchOver {
                        self.borrowed_free = false;
                    }
                    self.say(1, Word::Returned);
                }
            }
        }
    }

    fn carry_out_returned(&mut self, broken: Broken) {
        let wanted = match self.is_told_in_use {
            true => self.sees[0].0 & self.may_know.0,
            false => self.sees[0].0,
        };
        let missing = wanted & !self.returned.0;
        let is_back =
            self.returned != Switches::NONE && (missing == 0 || broken == Broken::FirstReturnIsEnough);
        if is_back {
            self.returned = Switches::NONE;
            (self.is_told_in_use, self.may_know) = (false, Switches::NONE);
            self.is_free = !self.has_group[0];
        }
    }

    /// A switch speaks to a runtime: in vain, if that is another one by now.
    fn tell(&mut self, runtime: usize, switch: usize, word: Word) {
        let link = &mut self.links[runtime][switch];
        if !link[0].contains(&Word::Begins) {
            link[1].push_back(word);
        }
    }

    fn give_back(&mut self, switch: usize) {
        self.tell(0, switch, Word::Returned);
    }

    fn handle_at_switch(&mut self, runtime: usize, at: usize, word: Word, broken: Broken) {
        let switch = &mut self.switches[at];
        match word {
            Word::Lent => {
                switch.register.lend(BLOCK, HOME, BORROWER);
                self.tell(1, at, Word::Lent);
            }
            Word::Returned => {
                switch.register.forget(BLOCK);
                switch.is_claimed = false;
                self.give_back(at);
            }
            Word::Kept => {
                switch.is_claimed = false;
                if broken != Broken::NotRegistered {
                    switch.register.lend(BLOCK, HOME, BORROWER);
                }
            }
            Word::Claimed => {
                switch.is_claimed = runtime == 1;
                switch.register.claim(BLOCK, RuntimeId(runtime as u16));
            }
            // The session: knowledge of the one before ends, and the next is told.
            Word::Begins => {
                if runtime == 1 {
                    switch.is_claimed = false;
                    switch.is_new = false;
                    switch.register.let_go(BORROWER, 0, |_| false);
                } else {
                    switch.owes_home = true;
                    self.tell(1, at, Word::LendsOver);
                }
                self.tell_home(at, broken);
            }
            Word::AllTold => {
                switch.is_new = false;
                self.tell_home(at, broken);
            }
            Word::LendsOver | Word::InUse => {}
        }
    }

    /// A switch that has been told what there is tells a home that begins what is lent.
    fn tell_home(&mut self, at: usize, broken: Broken) {
        let switch = &mut self.switches[at];
        if switch.is_new || !core::mem::take(&mut switch.owes_home) {
            return;
        }
        let is_lent = switch.register.of_home(HOME).next().is_some();
        if (is_lent || switch.is_claimed) && broken != Broken::NotTold {
            self.tell(0, at, Word::InUse);
        }
        self.tell(0, at, Word::AllTold);
    }

    fn handle_at_runtime(&mut self, runtime: usize, at: u8, word: Word, broken: Broken) {
        let there = self.sees[1];
        match (runtime, word) {
            (0, Word::Returned) => {
                self.returned = self.returned.with(at);
                self.carry_out_returned(broken);
            }
            (0, Word::InUse) => {
                self.is_told_in_use |= self.is_free;
                self.is_free = false;
                self.may_know = self.may_know.with(at);
            }
            (0, Word::AllTold) => {
                self.told = self.told.with(at);
                if self.told == Switches::first(self.count) && !self.is_told_in_use {
                    self.returned = Switches::NONE;
                }
            }
            (1, Word::Lent) => {
                let there = match broken {
                    Broken::FirstWordIsEnough => Switches::one(at),
                    _ => there,
                };
                self.borrower.handle_lent(BLOCK, HOME, at, there);
                self.carry_out_borrowed(broken);
            }
            (1, Word::LendsOver) => {
                self.borrower.handle_lends_over(HOME, at, there);
                self.carry_out_borrowed(broken);
            }
            _ => {}
        }
    }

    fn is_told(&self) -> bool {
        self.told == Switches::first(self.count)
    }

    /// A runtime sees that a switch's session is another one.
    fn see_switch(&mut self, runtime: usize, switch: u8, broken: Broken) {
        if runtime == 1 {
            self.borrower.switch_over(switch, self.sees[1]);
            self.carry_out_borrowed(broken);
        } else {
            if self.returned != Switches::NONE {
                self.returned = self.returned.with(switch);
            }
            self.may_know = self.may_know.without(switch);
            self.carry_out_returned(broken);
        }
    }

    /// A runtime dies, with the words under way to it; its own are heard, or not. Another begins.
    fn kill_runtime(&mut self, runtime: usize, is_heard: bool) {
        for switch in 0..usize::from(self.count) {
            let link = &mut self.links[runtime][switch];
            link[1].clear();
            if !is_heard {
                link[0].clear();
            }
            link[0].push_back(Word::Begins);
        }
        // Of a loan that not all switches have heard of, some have returned it and some will not.
        let mut words = self.links[0].iter().flat_map(|link| &link[0]);
        let is_under_way = runtime == 1 && words.any(|word| *word == Word::Lent);
        let is_moved = runtime == 1 && self.has_moved;
        self.is_lossy |= !is_heard || is_under_way || is_moved;
        self.has_moved &= runtime == 0;
        if runtime == 0 {
            self.is_free = true;
            (self.returned, self.told) = (Switches::NONE, Switches::NONE);
            (self.may_know, self.is_told_in_use) = (Switches::NONE, false);
        } else {
            self.borrower = Borrower::default();
            self.borrowed_free = false;
        }
        self.has_group[runtime] = false;
    }

    /// All worlds that follow from this one in one step.
    fn next(&self, broken: Broken) -> Vec<World> {
        let mut all = Vec::new();
        let mut add = |act: &dyn Fn(&mut World)| {
            let mut next = self.clone();
            act(&mut next);
            all.push(next);
        };
        for runtime in 0..2 {
            for switch in 0..usize::from(self.count) {
                if let Some(word) = self.links[runtime][switch][0].front().copied() {
                    add(&|w| {
                        w.links[runtime][switch][0].pop_front();
                        w.handle_at_switch(runtime, switch, word, broken);
                    });
                }
                if let Some(word) = self.links[runtime][switch][1].front().copied() {
                    add(&|w| {
                        w.links[runtime][switch][1].pop_front();
                        w.handle_at_runtime(runtime, switch as u8, word, broken);
                    });
                }
            }
        }
        for at in 0..usize::from(self.count) {
            // A quarantine lasts longer than the borrower takes to see that its session has ended.
            let is_late = self.switches[at].register.is_waiting()
                && (broken == Broken::NoQuarantine
                    || self.links[1][at][0].iter().all(|word| *word != Word::Begins));
            if is_late {
                add(&|w| {
                    while w.switches[at].register.take_due(QUARANTINE).is_some() {
                        w.give_back(at);
                    }
                });
            }
        }
        if self.is_free && self.is_told() {
            if self.lends > 0 {
                add(&|w| {
                    (w.is_free, w.lends) = (false, w.lends - 1);
                    // To two incarnations of the borrower, if a switch has not seen yet that one
                    // has ended.
                    w.is_lossy |= w.links[1].iter().any(|link| link[0].contains(&Word::Begins));
                    w.say(0, Word::Lent);
                });
            }
            add(&|w| {
                (w.is_free, w.has_group[0]) = (false, true);
                w.say(0, Word::Claimed);
            });
        }
        if self.borrowed_free {
            add(&|w| {
                (w.borrowed_free, w.has_group[1]) = (false, true);
                w.borrower.spend(BLOCK);
                w.say(1, Word::Claimed);
            });
            add(&|w| {
                w.borrower.give_back(BLOCK);
                w.carry_out_borrowed(Broken::Nothing);
            });
        }
        // A group moves with its block, of which switches are told before it is there. They know
        // both incarnations: a move names them.
        let mut words = self.links.iter().flatten().flat_map(|link| &link[0]);
        let are_known = words.all(|word| *word != Word::Begins && *word != Word::Claimed);
        if self.has_group[0] && self.keeps > 0 && are_known {
            add(&|w| {
                (w.has_group, w.has_moved) = ([false, true], true);
                for switch in &mut w.switches {
                    switch.is_claimed = true;
                }
                w.say(1, Word::Claimed);
            });
        }
        if self.has_group[1] {
            add(&|w| {
                (w.has_group[1], w.has_moved) = (false, false);
                w.say(1, Word::Returned);
            });
            if self.keeps > 0 {
                add(&|w| {
                    (w.has_group[1], w.has_moved) = (false, false);
                    w.keeps -= 1;
                    w.say(1, Word::Kept);
                    w.borrower.keep(BLOCK, HOME);
                    w.carry_out_borrowed(broken);
                });
            }
        }
        if self.misfortunes > 0 {
            for (runtime, is_heard) in [(0, true), (0, false), (1, true), (1, false)] {
                add(&|w| {
                    w.misfortunes -= 1;
                    w.kill_runtime(runtime, is_heard);
                });
            }
            for switch in 0..self.count {
                add(&|w| {
                    w.misfortunes -= 1;
                    w.restart_switch(switch, broken);
                });
            }
        }
        all
    }

    /// A switch dies and another begins: both runtimes have seen so, and are told by the new one.
    fn restart_switch(&mut self, switch: u8, broken: Broken) {
        let at = usize::from(switch);
        self.is_lossy = true;
        self.switches[at] = Switch {
            is_new: true,
            owes_home: true,
            is_claimed: self.has_group[1],
            ..Switch::default()
        };
        for runtime in 0..2 {
            self.links[runtime][at] = Link::default();
        }
        for runtime in 0..2 {
            self.see_switch(runtime, switch, broken);
        }
        self.links[1][at][0].push_back(Word::AllTold);
    }

    /// How many may give the block out, or have it.
    fn owners(&self) -> usize {
        let home = self.is_free && self.is_told();
        [home, self.borrowed_free, self.has_group[0], self.has_group[1]]
            .iter()
            .filter(|is_one| **is_one)
            .count()
    }

    fn is_quiet(&self) -> bool {
        let links = self.links.iter().flatten().flatten();
        links.into_iter().all(VecDeque::is_empty) && !self.switches.iter().any(|s| s.register.is_waiting())
    }
}

/// How many states there are; or how it came to one in which something is wrong.
fn explore(start: World, broken: Broken) -> Result<usize, std::string::String> {
    let mut seen = HashSet::new();
    let mut all = std::vec![(start.clone(), 0)];
    seen.insert(start);
    let mut at = 0;
    while at < all.len() {
        let world = all[at].0.clone();
        let is_lost = world.is_quiet() && world.owners() == 0 && !world.is_lossy;
        if world.owners() > 1 || is_lost {
            let mut way = std::string::String::new();
            while at > 0 {
                way = std::format!("{:?}\n{way}", all[at].0);
                at = all[at].1;
            }
            return Err(std::format!("{} have the block:\n{way}", world.owners()));
        }
        for next in world.next(broken) {
            if seen.insert(next.clone()) {
                all.push((next, at));
            }
        }
        at += 1;
    }
    Ok(all.len())
}

#[test]
fn a_block_has_one_that_may_give_it_out() {
    for (switches, lends, keeps, misfortunes) in [
        (1, 2, 0, 2),
        (1, 1, 2, 2),
        (2, 2, 0, 0),
        (2, 2, 1, 0),
        (2, 1, 0, 1),
        (2, 1, 1, 1),
    ] {
        let states = explore(World::new(switches, lends, keeps, misfortunes), Broken::Nothing);
        let states = states.unwrap_or_else(|wrong| panic!("{wrong}"));
        std::eprintln!(
            "{switches} switches, {lends} lends, {keeps} kept, {misfortunes} misfortunes: {states} states"
        );
        assert!(states > 20);
    }
}

#[test]
fn rules_that_are_broken_on_purpose_are_noticed() {
    for (broken, misfortunes) in [
        (Broken::FirstWordIsEnough, 1),
        (Broken::NotTold, 1),
        (Broken::KeptBySwitchOver, 1),
        (Broken::FirstReturnIsEnough, 1),
        (Broken::NotRegistered, 1),
    ] {
        let found = explore(World::new(2, 2, 1, misfortunes), broken);
        assert!(found.is_err(), "{broken:?} is not noticed");
    }
}
