//! Runtimes that fail, and come back.
//!
//! # Theory of operation
//! A runtime that fails is gone between two of its steps (*fail-stop*), with all that it had in
//! hand: packets in its queue and in its functions, lines of its log and counts since it was last
//! asked. Buffers on their way to it are lost. Buffers that it had sent arrive, or are lost too.
//! The links' sessions end, and all that follows is the workers' own business: they are the real
//! ones, with copies (`replicated`) and recovery.
//!
//! ```text
//!   0 ✗ ─► sessions end ─► reports, heir, recovery at 1
//!     ─► 0 begins, a new incarnation ─► base at 0 ─► 1 may fail
//! ```
//!
//! *With a packet in hand* ([`super::Way::FailAmid`]): the runtimes hear nothing of each other
//! while the packet is processed. So a packet that waits for its copy
//! waits, and its copy is lost. It comes again when the flows are at the other runtime, as TCP
//! would send it, with its own time of reception; the failed runtime's counts and log of it are
//! forgotten. A packet that has left all the same depends on nothing that is lost, or it is a
//! fault, which shows: it does not come again.
//!
//! Not here: the comparison (`story`).

use super::rig::Rig;
use runtime::Runtime;
use runtime::stats::RuntimeStats;

/// The counts of runtimes at a moment.
pub struct Counted(Vec<Option<RuntimeStats>>);

/// Turns in which workers take a packet as far as it gets while the runtimes hear nothing of each
/// other.
const TURNS: usize = 8;

impl Rig {
    /// Whether each worker is a process of its own.
    pub fn is_apart(&self) -> bool {
        self.shape.is_apart
    }

    fn worker(&self, runtime: usize) -> usize {
        usize::from(self.shape.switches) + runtime
    }

    /// The counts of all runtimes so far.
    pub fn counted(&self) -> Counted {
        let stats = |runtime: &Option<_>| runtime.as_ref().map(Runtime::stats);
        Counted(self.runtimes.iter().map(stats).collect())
    }

    /// The workers take a packet as far as it gets while the runtimes hear nothing of each other;
    /// answers which runtime has received it.
    pub fn take_amid(&mut self, before: &Counted) -> Option<usize> {
        self.cut(true);
        for _ in 0..TURNS {
            self.turn();
        }
        self.receiver(before)
    }

    /// Which runtime has received a packet since.
    pub fn receiver(&self, before: &Counted) -> Option<usize> {
        let received = |runtime: usize| before.0[runtime].as_ref().map_or(0, |stats| stats.received);
        (0..self.runtimes.len()).find(|runtime| self.received(*runtime) > received(*runtime))
    }

    fn cut(&mut self, is_cut: bool) {
        let ends = [self.worker(0), self.worker(1)];
        for (from, to) in [(ends[0], ends[1]), (ends[1], ends[0])] {
            self.cables.queue(from, to).cut(is_cut);
        }
    }

    /// The runtimes hear each other again.
    pub fn mend(&mut self) {
        self.cut(false);
    }

    /// A runtime fails. Its counts and log since `as_of` are forgotten.
    pub fn fail(&mut self, number: usize, as_of: Option<&Counted>) {
        match as_of {
            None => self.take_events(number),
            Some(_) => self.lose_what_is_said(number),
        }
        let Some(failed) = self.runtimes[number].take() else {
            return;
        };
        let now = failed.stats();
        let known = as_of.and_then(|counted| counted.0[number].clone());
        let stats = known.unwrap_or(now);
        self.gone.dropped.extend(stats.dropped);
        self.gone.counters.extend(stats.counters);
        self.gone.events_lost += stats.events_lost;
        self.moved += stats.recovered[0] + stats.groups_recovered;
        self.refused += stats.recovered[1];
        self.cables.end_incarnation(self.worker(number));
        for other in 0..self.worker(self.runtimes.len()) {
            let queue = self.cables.queue(other, self.worker(number));
            queue.lose();
        }
        self.mend();
    }

    /// Loses a runtime's messages that the other has not heard.
    pub fn lose_copies(&mut self, number: usize) {
        let (from, to) = (self.worker(number), self.worker(1 - number));
        self.cables.queue(from, to).lose();
    }

    /// Loses a runtime's messages that no worker has heard.
    fn lose_what_is_said(&mut self, number: usize) {
        for other in 0..self.worker(self.runtimes.len()) {
            let queue = self.cables.queue(self.worker(number), other);
            queue.lose();
        }
    }

    /// A runtime begins in the place of a failed one.
    pub fn come_back(&mut self, number: usize) -> Result<(), String> {
        self.cables.begin_incarnation(self.worker(number));
        self.make(number)
    }

    /// As [`Rig::come_back`], and all takes its course: copies are sent again, new groups begin at
    /// the first runtime.
    pub fn recover(&mut self, number: usize) -> Result<(), String> {
        self.come_back(number)?;
        self.run_until_quiet()?;
        self.prefer_first();
        self.run_until_quiet()?;
        let all = self.runtimes.iter().enumerate();
        let mut bare =
            all.filter(|(_, runtime)| runtime.as_ref().is_none_or(|r| r.stats().protected_by.is_none()));
        match bare.next() {
            None => Ok(()),
            Some((number, _)) => Err(format!(
                "all runtimes are there, but runtime {number} does not get copies of all its flows to the other"
            )),
        }
    }

    /// A runtime comes back and fails again while it gets copies, after so many turns.
    pub fn fail_again(&mut self, number: usize, turns: usize) -> Result<(), String> {
        self.come_back(number)?;
        for _ in 0..turns {
            self.turn();
        }
        self.fail(number, None);
        self.run_until_quiet()
    }

    /// Flows, and groups without, recovered so far, and flows that could not be, at runtimes that
    /// are there.
    pub fn recovered(&self) -> [u64; 2] {
        let mut sum = [0; 2];
        for stats in self.runtimes.iter().flatten().map(Runtime::stats) {
            sum[0] += stats.recovered[0] + stats.groups_recovered;
            sum[1] += stats.recovered[1];
        }
        sum
    }
}
