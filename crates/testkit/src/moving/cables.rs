//! The links between the workers: rings of one process, or links between processes.
//!
//! Workers are numbered with switches first.

use super::clock;
use super::wire::{Queue, SharedIncarnation, Wire};
use crate::link::{Link, link_of_clocks};
use runtime::Port;
use std::collections::HashMap;

/// See the module's page.
pub struct Cables {
    switches: usize,
    /// Other ends of rings, by the worker that has one and the worker at the other end.
    rings: HashMap<(usize, usize), Link>,
    /// Of links between processes: buffers on their way, by sender and receiver.
    queues: HashMap<(usize, usize), Queue>,
    /// By worker; none where all are of one process.
    incarnations: Vec<SharedIncarnation>,
    begun: u64,
}

/// Workers at most.
const WORKERS: usize = 4;

impl Cables {
    pub fn new(switches: usize, is_apart: bool) -> Self {
        let workers = if is_apart { WORKERS } else { 0 };
        let incarnation = |worker: usize| SharedIncarnation::new((worker as u64 + 1).into());
        Cables {
            switches,
            rings: HashMap::new(),
            queues: HashMap::new(),
            incarnations: (0..workers).map(incarnation).collect(),
            begun: workers as u64,
        }
    }

    fn ahead(&self, worker: usize) -> i64 {
        let runtime = worker.checked_sub(self.switches);
        runtime.map_or(0, |runtime| clock::ahead(runtime as u16).cast_signed())
    }

    /// The queue from one worker to another.
    pub fn queue(&mut self, from: usize, to: usize) -> Queue {
        self.queues.entry((from, to)).or_default().clone()
    }

    /// A worker's end of its link to another.
    pub fn end(&mut self, here: usize, there: usize) -> Box<dyn Port> {
        let ahead = self.ahead(here) - self.ahead(there);
        let Some(incarnation) = self.incarnations.get(here) else {
            return Box::new(self.ring(here, there, ahead));
        };
        Box::new(Wire {
            here: incarnation.get(),
            there: self.incarnations[there].clone(),
            incoming: self.queue(there, here),
            outgoing: self.queue(here, there),
            ahead,
            session: 0,
        })
    }

    fn ring(&mut self, here: usize, there: usize, ahead: i64) -> Link {
        self.rings.remove(&(here, there)).unwrap_or_else(|| {
            let (other, mine) = link_of_clocks(ahead);
            self.rings.insert((there, here), other);
            mine
        })
    }

    /// A worker's incarnation is over.
    pub fn end_incarnation(&mut self, worker: usize) {
        self.incarnations[worker].set(0);
    }

    /// Another begins in its place.
    pub fn begin_incarnation(&mut self, worker: usize) {
        self.begun += 1;
        self.incarnations[worker].set(self.begun);
    }
}
