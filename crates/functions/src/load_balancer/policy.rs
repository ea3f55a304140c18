//! The three ways to choose a server: least connections, round robin, Maglev.
//!
//! Each looks only at servers that are up, and each gives servers their share by weight:
//!
//! - *Least connections* takes the smallest (connections + 1) / weight, compared by
//!   cross-multiplication; among equals the next behind the one chosen last, so that an idle
//!   service does not lean on its first server. The counts are this runtime's own: with flows
//!   spread evenly over runtimes the sums are even too.
//! - *Round robin* is the smooth one (as nginx has it): each server gains its weight, the richest
//!   is chosen and pays the sum. Weights 5, 1, 1 give A A B A C A A and not A A A A A B C.
//! - *Maglev*: [`super::maglev`].
//!
//! A choice costs a pass over the service's servers (16 bytes each), Maglev's one look-up.
//!
//! Not here: which servers are up ([`super::LoadBalancer`] is told by command).

use super::config::Health;
use super::maglev::Table;
use core::cell::Cell;

/// The facts on a server that choosing needs.
pub struct Load {
    /// Flows at this runtime.
    pub connections: Cell<u32>,
    /// Flows it was chosen for here.
    pub opened: Cell<u64>,
    /// Round robin's savings.
    pub credit: Cell<i64>,
    /// Its share.
    pub weight: u16,
    /// Whether it takes connections.
    pub health: Cell<Health>,
}

impl Load {
    /// A server without connections.
    pub fn new(weight: u16, health: Health) -> Self {
        Load {
            connections: Cell::new(0),
            opened: Cell::new(0),
            credit: Cell::new(0),
            weight,
            health: Cell::new(health),
        }
    }

    /// Whether it takes connections.
    #[inline]
    pub fn takes(&self) -> bool {
        self.health.get() == Health::Up
    }
}

/// A policy with what it remembers between choices.
pub enum Policy {
    /// Fewest connections for its weight. Holds where the next search begins.
    LeastConnections(Cell<usize>),
    /// In turn.
    RoundRobin(Turn),
    /// By hash.
    Maglev(Table),
}

impl Policy {
    /// Index of the chosen server in `loads`, `None` if none is up. `hash` is of the client's
    /// endpoint.
    pub fn choose(&self, loads: &[Load], hash: u64) -> Option<usize> {
        match self {
            Policy::LeastConnections(start) => least_connections(loads, start),
            Policy::RoundRobin(turn) => turn.choose(loads),
            Policy::Maglev(table) => table.choose(hash),
        }
    }

    /// Servers have come or gone.
    pub fn on_health(&self, loads: &[Load]) {
        match self {
            Policy::LeastConnections(_) => {}
            Policy::RoundRobin(turn) => turn.begin(loads),
            Policy::Maglev(table) => table.fill(loads),
        }
    }

    /// Whether [`Policy::choose`] looks at the hash.
    pub fn wants_hash(&self) -> bool {
        matches!(self, Policy::Maglev(_))
    }
}

fn least_connections(loads: &[Load], start: &Cell<usize>) -> Option<usize> {
    let (before, after) = loads.split_at(start.get().min(loads.len()));
    let from = before.len();
    let indexed = after.iter().zip(from..).chain(before.iter().zip(0..));
    let mut best: Option<(usize, u64, u64)> = None;
    for (load, index) in indexed.filter(|(l, _)| l.takes()) {
        let (count, weight) = (u64::from(load.connections.get()) + 1, u64::from(load.weight));
        // count / weight < best count / best weight
        if best.is_none_or(|(_, c, w)| count * w < c * weight) {
            best = Some((index, count, weight));
        }
    }
    let (index, ..) = best?;
    start.set(index + 1);
    Some(index)
}

/// Whose turn it is. With equal weights the next one's; else that of the one with the most credit.
#[derive(Default)]
pub struct Turn {
    next: Cell<usize>,
    is_weighted: Cell<bool>,
}

impl Turn {
    fn begin(&self, loads: &[Load]) {
        loads.iter().for_each(|l| l.credit.set(0));
        let mut weights = loads.iter().filter(|l| l.takes()).map(|l| l.weight);
        let first = weights.next();
        self.next.set(0);
        self.is_weighted.set(weights.any(|weight| Some(weight) != first));
    }

    fn choose(&self, loads: &[Load]) -> Option<usize> {
        if self.is_weighted.get() {
            return by_credit(loads);
        }
        let next = self.next.get();
        let takes = |from: usize, to: usize| {
            let found = loads.get(from..to)?.iter().position(Load::takes)?;
            Some(from + found)
        };
        let index = takes(next, loads.len()).or_else(|| takes(0, next))?;
        self.next.set(index + 1);
        Some(index)
    }
}

/// Smooth weighted round robin: each server earns its weight, the richest is chosen and pays for
/// all.
pub(super) fn by_credit(loads: &[Load]) -> Option<usize> {
    let mut sum = 0;
    let mut richest: Option<(usize, i64)> = None;
    for (index, load) in loads.iter().enumerate().filter(|(_, l)| l.takes()) {
        let weight = i64::from(load.weight);
        let credit = load.credit.get() + weight;
        load.credit.set(credit);
        sum += weight;
        if richest.is_none_or(|(_, most)| credit > most) {
            richest = Some((index, credit));
        }
    }
    let (index, credit) = richest?;
    loads[index].credit.set(credit - sum);
    Some(index)
}
