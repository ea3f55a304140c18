//! Which workers are one process, where the cluster is several: these share memory, a clock and a
//! fate.
//!
//! ```text
//!   process of switch 0, 1     process of runtime 0, 1, 2     process of runtime 3
//!   rings between these ─┐     rings between these ─┐         a process of one worker
//!                        └──── channels: delay, loss ┴─────────┘
//! ```
//!
//! | of one process | as production has it |
//! |---|---|
//! | links between its workers | rings: order, no loss, buffers of one worker's pool at another |
//! | its clock | one for all of its workers |
//! | a crash, an incarnation that is over | takes all of them; they begin again together |
//! | a stop | suspends all of them ([`Fault::Stop`]); a thread may stand still alone ([`Fault::Stall`]) |
//! | a cut of its host | cuts all of them off |
//! | its agent | one: its workers join by one question, beat in one message, leave together |
//! | copies | at runtimes of other processes |
//!
//! Most scripts have processes of one worker. In [`Scenario::Members`](crate::Scenario) some
//! process has several: all switches or some, or runtimes whose numbers follow each other, as
//! members of a configuration have them.
//!
//! Not here: the work of processes ([`crate::world`]).

use crate::coordinator::Joined;
use crate::random::{Random, Stream};
use crate::script::{Fault, Script, Shape};

/// The most workers of a script.
const WORKERS_MAX: usize = 8;

/// By worker: the first worker of its process.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Processes([u8; WORKERS_MAX]);

impl Processes {
    /// Each worker is a process.
    pub fn single() -> Self {
        Processes(std::array::from_fn(|worker| worker as u8))
    }

    /// The first worker of a worker's process.
    pub fn first(&self, worker: u8) -> u8 {
        self.0.get(usize::from(worker)).copied().unwrap_or(worker)
    }

    /// From `from` on, so many workers are one process.
    fn join(&mut self, from: u8, count: u8) {
        for worker in from..from + count {
            self.0[usize::from(worker)] = from;
        }
    }

    /// A worker is a process of its own from now on: the last one of its process.
    fn part(&mut self, worker: u8) {
        self.0[usize::from(worker)] = worker;
    }
}

impl Shape {
    /// Whether two workers are of different processes.
    pub fn are_apart(&self, one: usize, other: usize) -> bool {
        let first = |apart: &super::script::Apart, worker: usize| apart.processes.first(worker as u8);
        self.apart
            .is_some_and(|apart| first(&apart, one) != first(&apart, other))
    }

    /// The first worker of a worker's process; itself where all workers are one process.
    pub fn first_of(&self, worker: usize) -> usize {
        self.apart
            .map_or(worker, |apart| apart.processes.first(worker as u8).into())
    }

    /// All workers of a worker's process; it alone where all workers are one process.
    pub fn process_of(&self, worker: u8) -> Vec<u8> {
        let workers = self.switches + self.runtimes as u8;
        let first = self.first_of(worker.into());
        (0..workers)
            .filter(|other| self.first_of((*other).into()) == first)
            .collect()
    }

    /// Whether a switch is of a worker's process.
    pub fn has_switch(&self, worker: u8) -> bool {
        self.first_of(worker.into()) < usize::from(self.switches)
    }

    /// Processes with runtimes.
    pub fn processes_of_runtimes(&self) -> usize {
        let switches = usize::from(self.switches);
        let firsts = (0..usize::from(self.runtimes)).map(|runtime| self.first_of(switches + runtime));
        firsts.collect::<std::collections::BTreeSet<_>>().len()
    }
}

impl Script {
    /// How many workers there are, and whether they have joined a coordinator, where processes have
    /// several.
    pub(crate) fn draw_members(&mut self) -> Option<Joined> {
        let mut random = Random::of(self.seed, Stream::Processes, self.scenario as u64);
        self.shape.runtimes = random.of_these(&[2, 3, 3, 4]);
        if self.shape.switches > 2 {
            self.shape.runtimes = self.shape.runtimes.min(3);
        }
        random
            .once_in(2)
            .then(|| Joined::of(&mut random, self.seed, self.scenario as u64))
    }

    /// Which workers are one process: some process has several.
    pub(crate) fn draw_processes(&mut self) {
        if !self.scenario.has_processes() {
            return;
        }
        let mut random = Random::of(self.seed, Stream::Processes, 16 + self.scenario as u64);
        let (switches, runtimes) = (self.shape.switches, self.shape.runtimes as u8);
        let mut processes = Processes::single();
        if switches > 1 && random.once_in(2) {
            processes.join(0, random.between(2, u64::from(switches)) as u8);
        }
        let mut from = 0;
        let mut is_joined = false;
        while from < runtimes {
            let count = random.between(1, u64::from(runtimes - from)) as u8;
            processes.join(switches + from, count);
            is_joined |= count > 1;
            from += count;
        }
        if !is_joined {
            processes.join(switches, 2);
        }
        if let Some(apart) = &mut self.shape.apart {
            apart.processes = processes;
        }
        let is_single = self.shape.processes_of_runtimes() < 2;
        if let Some(apart) = &mut self.shape.apart {
            apart.copied &= !is_single;
        }
    }

    /// The last runtime is of no other's process: it comes later.
    pub(crate) fn part_last(&mut self) {
        let last = self.shape.switches + self.shape.runtimes as u8 - 1;
        if let Some(apart) = &mut self.shape.apart {
            apart.processes.part(last);
        }
    }

    /// Half of the stalls are stops of the whole process.
    pub(crate) fn draw_stops(&mut self) {
        if !self.scenario.has_processes() {
            return;
        }
        let mut random = Random::of(self.seed, Stream::Processes, 32 + self.scenario as u64);
        for timed in &mut self.faults {
            if let Fault::Stall { worker, time } = timed.fault
                && random.once_in(2)
            {
                timed.fault = Fault::Stop { worker, time };
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Scenario;

    #[test]
    fn a_process_has_switches_or_runtimes_and_some_has_several() {
        for seed in 0..500 {
            let script = Script::of(Scenario::Members, seed);
            let shape = &script.shape;
            let workers = shape.switches + shape.runtimes as u8;
            let of = |worker: u8| shape.process_of(worker);
            let is_late = script.comes_at.is_some();
            assert!(
                (0..workers).any(|worker| of(worker).len() > 1) || is_late,
                "{seed}"
            );
            for worker in 0..workers {
                let is_switch = |other: &u8| *other < shape.switches;
                assert!(
                    of(worker)
                        .iter()
                        .all(|other| is_switch(other) == is_switch(&worker))
                );
                assert_eq!(shape.has_switch(worker), is_switch(&worker));
            }
            assert!(!script.is_copied() || shape.processes_of_runtimes() > 1, "{seed}");
        }
    }

    #[test]
    fn other_scenarios_have_processes_of_one_worker() {
        for seed in 0..200 {
            let script = Script::of(Scenario::Nat, seed);
            if let Some(apart) = script.shape.apart {
                assert_eq!(apart.processes, Processes::single());
            }
        }
    }
}
