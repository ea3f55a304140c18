//! Orders to move flows, of this process: it looks which runtimes give and take, gives them parts,
//! and knows orders under way by a number.
//!
//! # Theory of operation
//!
//! ```text
//!   order ─► a number, noted ─► places ─► a part for each runtime that gives ─► over, or taken back
//!   drain ─► its word about the runtime ─► places ─► another takes flows ─► leaving ─► heard by the switches here ─► the word is said
//!   resume ─► its word ─► not leaving ─► orders of its drains are taken back ─► heard ─► the word is said
//! ```
//!
//! *No runtime is asked under the lock* ([`Shared::orders`]). Callers that need the answer of a
//! runtime wait for it; callers that list orders, take others back, or resume do not. A caller that
//! looks which runtimes take flows needs all answers. A caller leaves word in the [`OrderTable`]
//! before it asks.
//!
//! *One step.* Of two operators' drains of two runtimes at the same moment, the second sees the
//! first. Words come one after the other. A caller that looks which runtimes take flows counts the
//! runtimes of earlier unsaid words as drained. It asks the runtimes only then, so an earlier word
//! that has been said since shows in their answers. It takes no notice of later words, so of two
//! runtimes one is drained. A drain that an earlier word forbids is tried again for a moment: that
//! word may come to nothing. A runtime has one word at a time; the next one waits. Other processes
//! are not in it: a member has heard from them of their runtimes (`worker::sessions`), some
//! milliseconds ago.
//!
//! *Numbers.* An order has its number, and its place among the orders that may be under way, before
//! any runtime is asked. Once it has begun it goes on without its caller. It is found again by its
//! number ([`Shared::under_way`]) and can be taken back ([`Shared::take_back`]): groups that are on
//! their way arrive, or are refused, as they would have; groups that have not begun stay. An order
//! that is to be taken back while it is given is so as soon as it is given.
//!
//! Invariants: no more than [`ORDERS_MAX`](mobility::ORDERS_MAX) orders are noted, and so no
//! runtime has more parts under way; the last runtime of this process's knowledge that takes flows
//! is drained only where that is forced; a part is of one order.
//!
//! Not here: the notes ([`order_table`]); which runtimes give and take ([`crate::moving`]), how
//! flows move (`runtime::mobility`).

mod order_table;
#[cfg(test)]
mod tests;

pub(super) use order_table::OrderTable;

use super::handle::{PATIENCE, Question, Unanswered, WorkerAnswer};
use super::{HEARD, Handle, LOOK, Shared, lock, silent};
use crate::moving::{
    self, CandidateRuntime, Deletion, Leaving, Order, Receipt, UnderWay, may_leave, no_such_runtime,
};
use runtime::mobility::{self, Selector};
use std::sync::mpsc::Receiver;
use std::time::{Duration, Instant};

/// So long a word of another process may be on its way, and one here may come to nothing.
const SAID: Duration = Duration::from_secs(1);

impl Shared {
    /// Begins to move flows.
    pub(super) fn give(&self, order: &Order) -> Result<Vec<moving::OrderPart>, String> {
        let selector = order.selector()?;
        if let Some(from) = order.from
            && !self.runtimes().contains_key(&from)
        {
            return Err(self.elsewhere(from));
        }
        let number = self.place_for(order)?;
        let given = self.give_parts(order, &selector);
        let (parts, drains) = match given {
            Ok(given) => given,
            Err(problem) => {
                lock(&self.orders).orders.remove(&number);
                return Err(problem);
            }
        };
        let is_to_go = lock(&self.orders).note(number, &parts, drains);
        if is_to_go {
            self.cancel_parts(&parts)?;
        }
        Ok(parts)
    }

    /// Ends the flows that an order names, at the runtimes of this process, one after the other.
    pub(super) fn end_flows(&self, order: &Order) -> Result<Deletion, String> {
        let selector = order.selector()?;
        if let Some(from) = order.from
            && !self.runtimes().contains_key(&from)
        {
            return Err(self.elsewhere(from));
        }
        let mut done = Deletion::default();
        let meant = |number: u16| order.from.is_none_or(|from| from == number);
        for (number, handle) in self.runtimes().into_iter().filter(|(number, _)| meant(*number)) {
            let (mut cursor, mut since) = (Some(0), Instant::now());
            while let Some(at) = cursor {
                let selector = selector.clone();
                let asked = handle.runtime(move |runtime| runtime.delete_flows(&selector, at));
                let Ok(looked) = asked else {
                    let state = format!("{done} before; ask again for the others");
                    return Err(silent(number, &asked, &state));
                };
                done.flows_ended += looked.ended;
                done.flows_busy += looked.busy;
                cursor = looked.next;
                if looked.ended > 0 || cursor != Some(at) {
                    since = Instant::now();
                } else if since.elapsed() > PATIENCE {
                    return Err(format!(
                        "runtime {number} has no room for its messages: {done} before; ask again for the others"
                    ));
                } else {
                    std::thread::sleep(LOOK);
                }
            }
        }
        Ok(done)
    }

    /// A place among the orders that may be under way.
    fn place_for(&self, order: &Order) -> Result<u32, String> {
        if let Some(number) = lock(&self.orders).reserve(order) {
            return Ok(number);
        }
        // This forgets the orders that are over.
        self.under_way();
        lock(&self.orders)
            .reserve(order)
            .ok_or_else(|| format!("{}; nothing of this one has begun", mobility::OrderError::TooMany))
    }

    /// Gives an order to the runtimes that it concerns; its parts, and whether it empties a runtime
    /// that is drained.
    fn give_parts(
        &self,
        order: &Order,
        selector: &Selector,
    ) -> Result<(Vec<moving::OrderPart>, bool), String> {
        let (chosen, drains) = self.look(u64::MAX, |places| {
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
        // Where the order names no target, any runtime that takes flows by then may take these.
        let others: Vec<u16> = match order.to.is_empty() {
            true => (0..self.layout.runtimes as u16).collect(),
            false => Vec::new(),
        };
        // A single runtime gives where a count is said.
        let count = order.count.unwrap_or(u32::MAX);
        let mut parts = Vec::new();
        let mut problem = None;
        for (from, to) in chosen {
            let given = mobility::MoveOrder {
                selector: selector.clone(),
                to,
            };
            let Some(handle) = self.runtimes().remove(&from) else {
                continue;
            };
            match handle.ask(Question::Order(given, others.clone(), count)) {
                Ok(WorkerAnswer::Ordered(Ok(number))) => parts.push((from, number)),
                Ok(WorkerAnswer::Ordered(Err(said))) => problem = Some(said),
                other => {
                    problem = Some(silent(
                        from,
                        &other,
                        "it may still begin when it goes on; `flowkeep runtime list` shows where flows are",
                    ))
                }
            }
            if problem.is_some() {
                break;
            }
        }
        let Some(said) = problem else {
            return Ok((parts, drains));
        };
        self.cancel_parts(&parts)?;
        Err(match parts.is_empty() {
            true => said,
            false => format!(
                "{said}. Of the runtimes before it, flows that have begun to move go on, and the others stay: `flowkeep runtime list` shows where flows are"
            ),
        })
    }

    /// The receipt of parts of an order.
    pub(super) fn receipt_of(&self, parts: &[moving::OrderPart]) -> Result<Receipt, String> {
        let mut whole = Receipt::empty();
        for (runtime, number) in parts {
            let Some(handle) = self.runtimes().remove(runtime) else {
                return Err(no_such_runtime(*runtime));
            };
            match handle.ask(Question::Receipt(*number)) {
                Ok(WorkerAnswer::Receipt(Some(part))) => whole.add(&part),
                Ok(_) => {
                    return Err(format!(
                        "runtime {runtime} no longer keeps the receipt of this order: others were given since; the order is over, \
                         and `flowkeep runtime list` shows where flows are"
                    ));
                }
                other => {
                    return Err(silent(
                        *runtime,
                        &other,
                        "flows that were on their way go on by themselves; `flowkeep runtime list` shows where they are",
                    ));
                }
            }
        }
        Ok(whole)
    }

    /// The orders that are under way; orders that are over are forgotten.
    pub(super) fn under_way(&self) -> Vec<UnderWay> {
        let noted: Vec<(u32, Order, Option<Vec<moving::OrderPart>>)> = {
            let order_table = lock(&self.orders);
            let orders = order_table.orders.iter();
            orders
                .map(|(number, noted)| (*number, noted.order.clone(), noted.parts.clone()))
                .collect()
        };
        // All are asked at once, and waited for together.
        let deadline = Instant::now() + PATIENCE;
        let asked: Vec<_> = noted
            .into_iter()
            .map(|(number, order, parts)| {
                let asked = parts.map(|parts| self.ask_parts(&parts, Question::Receipt));
                (number, order, asked)
            })
            .collect();
        let mut under_way = Vec::new();
        let mut over = Vec::new();
        for (number, order, asked) in asked {
            // While runtimes are asked to begin it, it is not over.
            let receipt = asked.map_or_else(Receipt::default, |asked| so_far(asked, deadline));
            match receipt.over {
                true => over.push(number),
                false => under_way.push(UnderWay {
                    number,
                    order,
                    receipt,
                }),
            }
        }
        lock(&self.orders)
            .orders
            .retain(|number, _| !over.contains(number));
        under_way
    }

    /// Asks for the receipts of parts of an order.
    pub(super) fn receipts_of(&self, parts: &[moving::OrderPart]) -> Vec<(u16, Asked)> {
        self.ask_parts(parts, Question::Receipt)
    }

    /// Asks the runtimes of these parts that are there; a runtime that is gone moves nothing.
    fn ask_parts(
        &self,
        parts: &[moving::OrderPart],
        question: impl Fn(u32) -> Question,
    ) -> Vec<(u16, Asked)> {
        let runtimes = self.runtimes();
        let ask = |(runtime, number): &moving::OrderPart| {
            let asked = runtimes.get(runtime)?.ask_later(question(*number));
            Some((*runtime, Asked(asked)))
        };
        parts.iter().filter_map(ask).collect()
    }

    /// Takes an order back; its parts, by which is known when moves under way have ended.
    pub(super) fn take_back(&self, number: u32) -> Result<Vec<moving::OrderPart>, String> {
        let deadline = Instant::now() + PATIENCE;
        let parts = loop {
            let mut order_table = lock(&self.orders);
            let Some(noted) = order_table.orders.get_mut(&number) else {
                return Err(not_under_way(number));
            };
            if let Some(parts) = &noted.parts {
                break parts.clone();
            }
            noted.is_unwanted = true;
            drop(order_table);
            if Instant::now() > deadline {
                return Err(format!(
                    "order {number} is canceled as soon as all runtimes that it concerns have heard it: one has not answered yet. `flowkeep order list` shows it until it is over"
                ));
            }
            std::thread::sleep(LOOK);
        };
        match self.recall(number, &parts)? {
            true => Ok(parts),
            false => Err(not_under_way(number)),
        }
    }

    /// Takes back the given parts of an order; `false` if they are over.
    fn recall(&self, number: u32, parts: &[moving::OrderPart]) -> Result<bool, String> {
        let asked = self.ask_parts(parts, Question::Receipt);
        if so_far(asked, Instant::now() + PATIENCE).over {
            lock(&self.orders).orders.remove(&number);
            return Ok(false);
        }
        self.cancel_parts(parts)?;
        Ok(true)
    }

    fn cancel_parts(&self, parts: &[moving::OrderPart]) -> Result<(), String> {
        let deadline = Instant::now() + PATIENCE;
        for (runtime, answer) in self.ask_parts(parts, Question::Cancel) {
            let answer = answer.by(deadline);
            if !matches!(answer, Ok(WorkerAnswer::Done)) {
                return Err(silent(
                    runtime,
                    &answer,
                    "flows that have not begun to move may still begin; say it again",
                ));
            }
        }
        Ok(())
    }

    /// Takes all orders back: this process ends, and where its flows go it says itself.
    pub(super) fn take_all_back(&self) {
        let mut all = Vec::new();
        lock(&self.orders).orders.retain(|_, noted| {
            noted.is_unwanted = true;
            all.extend(noted.parts.iter().flatten().copied());
            noted.parts.is_none()
        });
        // A runtime that does not answer now will not do so in the next steps either.
        let _ = self.cancel_parts(&all);
    }

    /// Has a runtime take no new flows, or take them again; the parts of orders that were taken
    /// back for that.
    pub(super) fn leave(&self, runtime: u16, leaving: Leaving) -> Result<Vec<moving::OrderPart>, String> {
        let Some(handle) = self.runtimes().remove(&runtime) else {
            return Err(self.elsewhere(runtime));
        };
        let word = self.begin_word(runtime, leaving != Leaving::Resumed)?;
        let said = self.say_leaving(runtime, &handle, leaving, word);
        lock(&self.orders).words.remove(&runtime);
        said
    }

    /// Leaves word that a runtime is to take no flows, or to take them again; its number.
    fn begin_word(&self, runtime: u16, leaves: bool) -> Result<u64, String> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            if let Some(number) = lock(&self.orders).begin(runtime, leaves) {
                return Ok(number);
            }
            if Instant::now() > deadline {
                return Err(format!(
                    "runtime {runtime} is just being drained or resumed by another caller, and not all have answered yet; nothing of this has begun. Try again"
                ));
            }
            std::thread::sleep(LOOK);
        }
    }

    fn say_leaving(
        &self,
        runtime: u16,
        handle: &Handle,
        leaving: Leaving,
        word: u64,
    ) -> Result<Vec<moving::OrderPart>, String> {
        match leaving {
            Leaving::Forced if self.part.is_none() && self.runtimes().len() < 2 => {
                return Err(moving::alone(self.layout.runtimes));
            }
            Leaving::Drained => self.look(word, |places| may_leave(runtime, places))?,
            Leaving::Forced | Leaving::Resumed => {}
        }
        let leaves = leaving != Leaving::Resumed;
        let answer = handle.ask(Question::Leaving(leaves));
        if !matches!(answer, Ok(WorkerAnswer::Leaving)) {
            return Err(silent(
                runtime,
                &answer,
                "whether it takes new flows is not known; try again",
            ));
        }
        // An order of its flows from here on sees that it is not drained.
        let ordered = match leaves {
            true => Vec::new(),
            false => lock(&self.orders).resume(runtime),
        };
        let mut taken_back = Vec::new();
        for (number, parts) in ordered {
            if self.recall(number, &parts)? {
                taken_back.extend(parts);
            }
        }
        // The runtime tells the switches itself; the switches here have heard it when this is
        // answered.
        let deadline = Instant::now() + HEARD;
        let has_heard = |switch: &Handle| {
            matches!(
                switch.ask(Question::Presence(runtime)),
                Ok(WorkerAnswer::Presence { leaving: heard, .. }) if heard == leaves
            )
        };
        // A runtime without a free block of ports goes on to tell switches that it takes no new
        // groups.
        let is_dry = || !leaves && handle.runtime(|runtime| runtime.is_dry()).unwrap_or(false);
        while !self.switches.values().all(has_heard) && !is_dry() {
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

    /// Chooses by the runtimes' answers, and by words about them that came before this one. A
    /// runtime's state may change meanwhile: the word of another process that it takes flows again
    /// may be on its way, or an earlier word here comes to nothing. So a refusal is looked at again
    /// for a moment.
    fn look<T>(
        &self,
        word: u64,
        choose: impl Fn(&[CandidateRuntime]) -> Result<T, String>,
    ) -> Result<T, String> {
        let began = Instant::now();
        loop {
            // Before the runtimes are asked: a runtime that is drained meanwhile says so itself.
            let words = lock(&self.orders).earlier(word);
            let mut places = self.places()?;
            for (runtime, _) in words.iter().filter(|(_, word)| word.leaves) {
                if let Some(place) = places.get_mut(usize::from(*runtime)) {
                    place.is_drained_now = true;
                }
            }
            let chosen = choose(&places);
            let is_said = !words.is_empty() || places.iter().any(|place| place.elsewhere && place.leaving);
            if chosen.is_ok() || !is_said || began.elapsed() > SAID {
                return chosen;
            }
            std::thread::sleep(LOOK);
        }
    }

    /// The states of the runtimes by their answers, to choose among them. Runtimes of other
    /// processes are not asked: a runtime here has heard whether they are there, and take flows.
    fn places(&self) -> Result<Vec<CandidateRuntime>, String> {
        let runtimes = self.runtimes();
        let others = match runtimes.iter().next().filter(|_| self.part.is_some()) {
            None => Vec::new(),
            Some((number, handle)) => match handle.ask(Question::Others) {
                Ok(WorkerAnswer::Others(others)) => others,
                other => return Err(silent(*number, &other, "nothing has changed; try again")),
            },
        };
        let place = |number: u16| match runtimes.get(&number).map(|handle| handle.ask(Question::Stats)) {
            None => {
                let known = others.iter().find(|(other, _)| *other == number);
                Ok(CandidateRuntime {
                    elsewhere: self.part.is_some(),
                    absent: known.is_none(),
                    spare: known.is_none()
                        && self.part.as_ref().is_none_or(|part| part.owner(number).is_none()),
                    leaving: known.is_some_and(|(_, leaving)| *leaving),
                    ..CandidateRuntime::default()
                })
            }
            Some(Ok(WorkerAnswer::Runtime(stats))) => Ok(CandidateRuntime::from(&*stats)),
            Some(other) => Err(silent(number, &other, "nothing has changed; try again")),
        };
        (0..self.layout.runtimes as u16).map(place).collect()
    }
}

/// A question to a runtime.
pub(super) struct Asked(Result<Receiver<WorkerAnswer>, Unanswered>);

impl Asked {
    /// Whether it could not be asked, for this reason.
    pub fn is_refused(&self, why: Unanswered) -> bool {
        self.0.as_ref().err() == Some(&why)
    }

    /// Its answer, if it comes by then.
    fn by(&self, deadline: Instant) -> Result<WorkerAnswer, Unanswered> {
        let time = deadline.saturating_duration_since(Instant::now());
        let receiver = self.0.as_ref().map_err(|why| *why)?;
        receiver.recv_timeout(time).map_err(Unanswered::from)
    }
}

/// The receipt of an order by then, without runtimes that do not answer: it is not over then.
pub(super) fn so_far(asked: Vec<(u16, Asked)>, deadline: Instant) -> Receipt {
    let mut receipt = Receipt::empty();
    for (_, answer) in asked {
        match answer.by(deadline) {
            Ok(WorkerAnswer::Receipt(Some(part))) => receipt.add(&part),
            // The part is long over there.
            Ok(WorkerAnswer::Receipt(None)) => {}
            _ => receipt.over = false,
        }
    }
    receipt
}

fn not_under_way(number: u32) -> String {
    format!(
        "no order {number} is under way: it is over, or there was none; nothing has changed. `flowkeep order list` shows those that are"
    )
}
