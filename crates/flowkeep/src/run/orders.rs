//! Orders to move flows, of this process: who gives and takes is looked at, parts are given to runtimes, what is under way is known by a number.
//!
//! # Theory of operation
//!
//! ```text
//!   order ─► places ─► a part for each runtime that gives ─► noted under a number ─► over, or taken back
//!   drain ─► places ─► another takes flows ─► leaving ─► heard by the switches here
//!   resume ─► what drains ordered of this runtime is taken back ─► not leaving
//! ```
//!
//! *One step.* Who looks which runtimes take flows, and acts on it, does so under one lock ([`Shared::orders`]): of two operators who drain two
//! runtimes at the same moment the second sees what the first has done. Other processes are not under it: what a member knows of their runtimes it has heard
//! from them (`worker::sessions`), some milliseconds ago.
//!
//! *Numbers.* An order that has begun goes on without whoever gave it. It is found again by its number ([`Shared::under_way`]) and can be taken back
//! ([`Shared::take_back`]): groups that are on their way arrive, or are refused, as they would have; those that have not begun stay.
//!
//! Invariants: no more than [`ORDERS_MAX`] orders are noted, and so no runtime has more parts under way; the last runtime of this process's knowledge that takes
//! flows is drained only where that is insisted on.
//!
//! Not here: which runtimes give and take ([`crate::moving`]), how flows move (`runtime::worker::migrate`).

use super::driver::{Answer, Question};
use super::{HEARD, LOOK, Shared, lock, silent};
use crate::moving::{self, Leaving, Order, Place, Receipt, UnderWay, may_leave, no_such_runtime};
use runtime::worker::migrate::{self, ORDERS_MAX};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// So long a word of another process may be on its way.
const SAID: Duration = Duration::from_secs(1);

/// Orders that may be under way.
#[derive(Default)]
pub(super) struct Book {
    given: u32,
    orders: BTreeMap<u32, Noted>,
}

struct Noted {
    order: Order,
    /// It empties a runtime that is drained.
    drains: bool,
    parts: Vec<moving::Part>,
}

impl Book {
    /// Forgets orders that are over.
    fn tidy(&mut self, shared: &Shared) {
        self.orders.retain(|_, noted| !shared.is_over(&noted.parts));
    }
}

impl Shared {
    /// Begins to move flows.
    pub(super) fn give(&self, order: &Order) -> Result<Vec<moving::Part>, String> {
        let selector = order.selector()?;
        if let Some(from) = order.from
            && !self.runtimes().contains_key(&from)
        {
            return Err(self.elsewhere(from));
        }
        let mut book = lock(&self.orders);
        // Before the next one: a runtime that has come anew counts its parts from 0 again.
        book.tidy(self);
        if book.orders.len() >= ORDERS_MAX {
            return Err(format!(
                "{}; nothing of this one has begun",
                migrate::OrderError::TooMany
            ));
        }
        let (chosen, drains) = self.look(|places| {
            if let Some(part) = &self.part
                && order.to.iter().all(|to| usize::from(*to) < places.len())
            {
                let here: Vec<u16> = self.runtimes().keys().copied().collect();
                let is_there = |number: u16| !places[usize::from(number)].absent;
                if let Some(problem) = part.cannot_move(order, &here, is_there) {
                    return Err(problem);
                }
            }
            let drains = order.from.is_some_and(|from| places[usize::from(from)].leaving);
            Ok((order.parts(places)?, drains))
        })?;
        // Where nobody has said who is to take them, whoever takes flows by then may.
        let others: Vec<u16> = match order.to.is_empty() {
            true => (0..self.layout.runtimes as u16).collect(),
            false => Vec::new(),
        };
        let mut parts = Vec::new();
        let mut problem = None;
        for (from, to) in chosen {
            let given = migrate::Order {
                selector: selector.clone(),
                to,
            };
            let Some(handle) = self.runtimes().remove(&from) else {
                continue;
            };
            match handle.ask(Question::Order(given, others.clone())) {
                Some(Answer::Ordered(Ok(number))) => parts.push((from, number)),
                Some(Answer::Ordered(Err(said))) => problem = Some(said),
                _ => problem = Some(silent(from, "it has begun to move nothing")),
            }
            if problem.is_some() {
                break;
            }
        }
        if let Some(said) = problem {
            self.cancel_parts(&parts)?;
            return Err(match parts.is_empty() {
                true => said,
                false => format!(
                    "{said}. Of the runtimes before it, what has begun to move goes on, and the rest stays: `flowkeep runtime list` shows where flows are"
                ),
            });
        }
        if !parts.is_empty() {
            let number = book.given;
            book.given = book.given.wrapping_add(1);
            let noted = Noted {
                order: order.clone(),
                drains,
                parts: parts.clone(),
            };
            book.orders.insert(number, noted);
        }
        Ok(parts)
    }

    /// What has come of parts of an order.
    pub(super) fn receipt_of(&self, parts: &[moving::Part]) -> Result<Receipt, String> {
        let mut whole = Receipt::empty();
        for (runtime, number) in parts {
            let Some(handle) = self.runtimes().remove(runtime) else {
                return Err(no_such_runtime(*runtime));
            };
            match handle.ask(Question::Receipt(*number)) {
                Some(Answer::Receipt(Some(part))) => whole.add(&part),
                Some(_) => {
                    return Err(format!(
                        "runtime {runtime} no longer keeps the receipt of this order: others were given since; the order is over, \
                         and `flowkeep runtime list` shows where flows are"
                    ));
                }
                None => {
                    return Err(silent(
                        *runtime,
                        "flows that were on their way go on by themselves; `flowkeep runtime list` shows where they are",
                    ));
                }
            }
        }
        Ok(whole)
    }

    /// Whether nothing of an order is still to be done: each runtime says so, is gone, or has forgotten it.
    fn is_over(&self, parts: &[moving::Part]) -> bool {
        parts.iter().all(|(runtime, number)| {
            let Some(handle) = self.runtimes().remove(runtime) else {
                return true;
            };
            match handle.ask(Question::Receipt(*number)) {
                Some(Answer::Receipt(part)) => part.is_none_or(|part| part.is_over),
                _ => false,
            }
        })
    }

    /// The orders that are under way.
    pub(super) fn under_way(&self) -> Vec<UnderWay> {
        let mut book = lock(&self.orders);
        book.tidy(self);
        let orders = book.orders.iter().map(|(number, noted)| UnderWay {
            number: *number,
            order: noted.order.clone(),
            receipt: self.receipt_of(&noted.parts).unwrap_or_default(),
        });
        orders.collect()
    }

    /// Takes an order back; its parts, by which is known when what is under way has ended.
    pub(super) fn take_back(&self, number: u32) -> Result<Vec<moving::Part>, String> {
        let mut book = lock(&self.orders);
        book.tidy(self);
        let Some(noted) = book.orders.get(&number) else {
            return Err(format!(
                "no order {number} is under way: it is over, or there was none; nothing has changed. `flowkeep order list` shows those that are"
            ));
        };
        self.cancel_parts(&noted.parts)?;
        Ok(noted.parts.clone())
    }

    fn cancel_parts(&self, parts: &[moving::Part]) -> Result<(), String> {
        for (runtime, number) in parts {
            // Whoever is gone moves nothing.
            let Some(handle) = self.runtimes().remove(runtime) else {
                continue;
            };
            if !matches!(handle.ask(Question::Cancel(*number)), Some(Answer::Done)) {
                return Err(silent(
                    *runtime,
                    "what it has not begun may still begin to move; say it again",
                ));
            }
        }
        Ok(())
    }

    /// Takes all orders back: this process ends, and where its flows go it says itself.
    pub(super) fn take_all_back(&self) {
        let mut book = lock(&self.orders);
        for noted in std::mem::take(&mut book.orders).into_values() {
            // Who does not answer now will not in what follows either.
            let _ = self.cancel_parts(&noted.parts);
        }
    }

    /// Has a runtime take no new flows, or take them again; what was taken back of orders for that.
    pub(super) fn leave(&self, runtime: u16, leaving: Leaving) -> Result<Vec<moving::Part>, String> {
        let Some(handle) = self.runtimes().remove(&runtime) else {
            return Err(self.elsewhere(runtime));
        };
        let mut book = lock(&self.orders);
        let mut taken_back = Vec::new();
        match leaving {
            Leaving::Insisted => {}
            Leaving::Drained => self.look(|places| may_leave(runtime, places))?,
            Leaving::Resumed => {
                book.tidy(self);
                let drains = |noted: &&Noted| noted.drains && noted.order.from == Some(runtime);
                for noted in book.orders.values().filter(drains) {
                    self.cancel_parts(&noted.parts)?;
                    taken_back.extend_from_slice(&noted.parts);
                }
            }
        }
        let leaves = leaving != Leaving::Resumed;
        if !matches!(handle.ask(Question::Leaving(leaves)), Some(Answer::Leaving)) {
            return Err(silent(
                runtime,
                "whether it takes new flows is not known; try again",
            ));
        }
        // It tells the switches itself; those here have heard it when this is answered.
        let deadline = Instant::now() + HEARD;
        let has_heard = |switch: &super::Handle| {
            matches!(
                switch.ask(Question::Presence(runtime)),
                Some(Answer::Presence { leaving: heard, .. }) if heard == leaves
            )
        };
        while !self.switches.values().all(has_heard) {
            if Instant::now() > deadline {
                let word = if leaves { "drain" } else { "resume" };
                return Err(format!(
                    "a switch did not answer, so some of them take runtime {runtime} for drained and some do not; no flow has moved. \
                     Say `flowkeep runtime {word} {runtime}` again"
                ));
            }
            std::thread::sleep(LOOK / 8);
        }
        Ok(taken_back)
    }

    /// Chooses by what the runtimes say. Where another process's has said that it takes no flows, the word that it does again may be on its way: what is refused is looked
    /// at again for a moment.
    fn look<T>(&self, choose: impl Fn(&[Place]) -> Result<T, String>) -> Result<T, String> {
        let began = Instant::now();
        loop {
            let places = self.places()?;
            let chosen = choose(&places);
            let is_said = places.iter().any(|place| place.elsewhere && place.leaving);
            if chosen.is_ok() || !is_said || began.elapsed() > SAID {
                return chosen;
            }
            std::thread::sleep(LOOK);
        }
    }

    /// What the runtimes say of themselves, to choose among them; those of other processes are not asked: whether they are there, and take flows, is what was heard
    /// of them.
    fn places(&self) -> Result<Vec<Place>, String> {
        let runtimes = self.runtimes();
        let others = match runtimes.iter().next().filter(|_| self.part.is_some()) {
            None => Vec::new(),
            Some((number, handle)) => match handle.ask(Question::Others) {
                Some(Answer::Others(others)) => others,
                _ => return Err(silent(*number, "nothing has changed; try again")),
            },
        };
        let place = |number: u16| match runtimes.get(&number).map(|handle| handle.ask(Question::Stats)) {
            None => {
                let known = others.iter().find(|(other, _)| *other == number);
                Ok(Place {
                    absent: known.is_none(),
                    leaving: known.is_some_and(|(_, leaving)| *leaving),
                    ..Place::elsewhere()
                })
            }
            Some(Some(Answer::Runtime(stats))) => Ok(Place::from(&stats)),
            Some(_) => Err(silent(number, "nothing has changed; try again")),
        };
        (0..self.layout.runtimes as u16).map(place).collect()
    }
}
