//! What is between the workers: rings of one process, or links between processes.
//!
//! Workers are numbered with switches first.

use super::clock;
use super::wire::{Life, Queue, Wire};
use crate::link::{Link, link_of_clocks};
use runtime::Port;
use std::collections::HashMap;

/// See the module's page.
pub struct Cables {
    switches: usize,
    /// Other ends of rings, by the worker that has one and the worker at the other end.
    rings: HashMap<(usize, usize), Link>,
    /// Of links between processes: what is on its way, by sender and receiver.
    queues: HashMap<(usize, usize), Queue>,
    /// By worker; none where all are of one process.
    lives: Vec<Life>,
    begun: u64,
}

/// Workers at most.
const WORKERS: usize = 4;

impl Cables {
    pub fn new(switches: usize, is_apart: bool) -> Self {
        let workers = if is_apart { WORKERS } else { 0 };
        let life = |worker: usize| Life::new((worker as u64 + 1).into());
        Cables {
            switches,
            rings: HashMap::new(),
            queues: HashMap::new(),
            lives: (0..workers).map(life).collect(),
            begun: workers as u64,
        }
    }

    fn ahead(&self, worker: usize) -> i64 {
        let runtime = worker.checked_sub(self.switches);
        runtime.map_or(0, |runtime| clock::ahead(runtime as u16).cast_signed())
    }

    /// What goes from one worker to another.
    pub fn queue(&mut self, from: usize, to: usize) -> Queue {
        self.queues.entry((from, to)).or_default().clone()
    }

    /// A worker's end of its link to another.
    pub fn end(&mut self, here: usize, there: usize) -> Box<dyn Port> {
        let ahead = self.ahead(here) - self.ahead(there);
        let Some(life) = self.lives.get(here) else {
            return Box::new(self.ring(here, there, ahead));
        };
        Box::new(Wire {
            here: life.get(),
            there: self.lives[there].clone(),
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

    /// A worker's life is over.
    pub fn end_life(&mut self, worker: usize) {
        self.lives[worker].set(0);
    }

    /// Another begins in its place.
    pub fn begin_life(&mut self, worker: usize) {
        self.begun += 1;
        self.lives[worker].set(self.begun);
    }
}
