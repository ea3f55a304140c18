//! Notes of orders and words while runtimes are asked, and afterwards. Each of these is one step,
//! under the lock.
//!
//! ```text
//!   order: reserved ─► being given ─► given, with its parts ─► over, or taken back: forgotten
//!                        └ unwanted, or resumed, by then: taken back as soon as it is given
//!   word:  begun ─► said: forgotten
//! ```
//!
//! Invariants: as many orders as there may be, orders that are being given among them; a part is of
//! one order; a runtime has one word.
//!
//! Not here: asking ([`super`]).

use crate::moving::{Order, OrderPart};
use runtime::mobility::ORDERS_MAX;
use std::collections::BTreeMap;

/// Orders that may be under way, and words that are being said to runtimes.
#[derive(Default)]
pub(in crate::run) struct OrderTable {
    given: u32,
    pub orders: BTreeMap<u32, Noted>,
    said: u64,
    /// By runtime.
    pub words: BTreeMap<u16, PendingDrain>,
}

pub struct Noted {
    pub order: Order,
    /// The parts that the runtimes have begun; not known while they are asked.
    pub parts: Option<Vec<OrderPart>>,
    /// The order empties a runtime that is drained.
    drains: bool,
    /// A caller took it back while the runtimes were asked.
    pub is_unwanted: bool,
    /// A caller resumed the runtime that gives while the runtimes were asked.
    is_resumed: bool,
}

/// A caller is having a runtime take no flows, or take them again.
#[derive(Clone, Copy)]
pub struct PendingDrain {
    /// Its place among all words.
    number: u64,
    pub leaves: bool,
}

impl OrderTable {
    /// A place for an order, and its number; `None` if as many as may be are under way.
    pub fn reserve(&mut self, order: &Order) -> Option<u32> {
        if self.orders.len() >= ORDERS_MAX {
            return None;
        }
        let number = self.given;
        self.given = self.given.wrapping_add(1);
        let noted = Noted {
            order: order.clone(),
            parts: None,
            drains: false,
            is_unwanted: false,
            is_resumed: false,
        };
        self.orders.insert(number, noted);
        Some(number)
    }

    /// Notes the given parts of an order; whether they are to be taken back.
    pub fn note(&mut self, number: u32, parts: &[OrderPart], drains: bool) -> bool {
        // A runtime that has come again counts its parts from 0: an order that had this part before
        // is over.
        for noted in self.orders.values_mut() {
            if let Some(had) = &mut noted.parts {
                had.retain(|part| !parts.contains(part));
            }
        }
        let Some(noted) = self.orders.get_mut(&number) else {
            return false;
        };
        (noted.parts, noted.drains) = (Some(parts.to_vec()), drains);
        let is_to_go = noted.is_unwanted || drains && noted.is_resumed;
        self.orders
            .retain(|_, noted| noted.parts.as_ref().is_none_or(|parts| !parts.is_empty()));
        is_to_go
    }

    /// The orders of drains of a runtime, to be taken back; an order that they give at this moment
    /// is taken back when it is given.
    pub fn resume(&mut self, runtime: u16) -> Vec<(u32, Vec<OrderPart>)> {
        let mut ordered = Vec::new();
        for (number, noted) in &mut self.orders {
            match &noted.parts {
                _ if noted.order.from != Some(runtime) => {}
                None => noted.is_resumed = true,
                Some(parts) if noted.drains => ordered.push((*number, parts.clone())),
                Some(_) => {}
            }
        }
        ordered
    }

    /// A word about a runtime, from now on; none while another is said.
    pub fn begin(&mut self, runtime: u16, leaves: bool) -> Option<u64> {
        if self.words.contains_key(&runtime) {
            return None;
        }
        let number = self.said;
        self.said += 1;
        self.words.insert(runtime, PendingDrain { number, leaves });
        Some(number)
    }

    /// The words that came before one and are not said yet.
    pub fn earlier(&self, than: u64) -> Vec<(u16, PendingDrain)> {
        let words = self.words.iter().map(|(runtime, word)| (*runtime, *word));
        words.filter(|(_, word)| word.number < than).collect()
    }
}
