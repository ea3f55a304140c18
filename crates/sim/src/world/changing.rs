//! Changes of the configuration, in the steps in which `flowkeep` makes them.
//!
//! ```text
//!   order ─► prepare, at all runtimes ─► all surveyed ─► decided ─► each worker commits, soon
//!     ▲            └ one refuses, or is not there ┐        └ a worker that begins again has the decision
//!     └──────────── later, TRIES times ◄──────────┘
//! ```
//!
//! A worker that stands still commits when it goes on; until then its runtime has prepared, and no
//! group moves to it or from it. The next change waits until no flow of any runtime is of the
//! configuration before.
//!
//! Not here: a runtime's steps (`runtime::runner::change`); how processes agree on a decision
//! (`protocols::membership`, and `flowkeep`).

use super::Due;
use super::cluster::{Cluster, info};
use crate::Time;
use crate::checkers::{Violation, changed};
use crate::random::{Random, Stream};
use crate::script::{MILLI, Part, Script};
use crate::timeline::{Event, Timeline};
use nf::Generation;
use runtime::chain::Plan;
use runtime::worker::change::Prepared;

/// How often an order is tried that a runtime refuses, and after how long.
const TRIES: u16 = 50;
const AGAIN: u64 = 2 * MILLI;
/// How often it is looked at how far the survey is.
const LOOK: u64 = MILLI / 10;

/// How far changes are.
pub(super) struct Changing {
    plans: Vec<Plan>,
    /// Which of them new processes begin with.
    decided: usize,
    /// Which one has been prepared, and is not decided.
    prepared: Option<usize>,
    /// By worker: it is to commit.
    pending: Vec<bool>,
    /// By worker: a runtime has prepared, or has flows of the configuration before.
    under_way: Vec<bool>,
    /// Orders that are still to be carried out in this part.
    pub open: u32,
    /// Decisions so far.
    pub decisions: u64,
    random: Random,
}

impl Changing {
    pub fn new(script: &Script, plans: Vec<Plan>, workers: usize) -> Self {
        Changing {
            plans,
            decided: 0,
            prepared: None,
            pending: vec![false; workers],
            under_way: vec![false; workers],
            open: 0,
            decisions: 0,
            random: Random::of(script.seed, Stream::Changes, 64 + script.scenario as u64),
        }
    }

    /// Whether all workers have the decided configuration, and no other.
    pub fn is_over(&self) -> bool {
        self.prepared.is_none() && !self.pending.contains(&true) && !self.under_way.contains(&true)
    }

    /// Whether a runtime has yet to look at its flows.
    pub fn is_under_way(&self, worker: u8) -> bool {
        self.under_way[usize::from(worker)]
    }

    /// All begin again, with the decided configuration.
    pub fn crash(&mut self) {
        self.prepared = None;
        (0..self.pending.len()).for_each(|worker| self.forget(worker));
    }

    /// A worker's process begins again, with the decided configuration.
    pub fn forget(&mut self, worker: usize) {
        (self.pending[worker], self.under_way[worker]) = (false, false);
    }

    /// A part begins: when its orders are given.
    pub fn begin(&mut self, script: &Script, part: Part, now: Time) -> Vec<(Time, Due)> {
        let changes = script.changes.iter().enumerate();
        let its = changes.filter(|(_, change)| change.part == part);
        let dues: Vec<_> = its
            .map(|(index, change)| (now + change.at, Due::Change(index as u16, 0)))
            .collect();
        self.open += dues.len() as u32;
        dues
    }

    /// An operator has another configuration put in force. `is_all_there`: no worker is missing.
    pub fn order(&mut self, site: &mut Site<'_>, index: u16, tries: u16, is_all_there: bool) {
        let to = usize::from(site.script.changes[usize::from(index)].to);
        if is_all_there && self.is_over() && self.prepare(site, to) {
            self.prepared = Some(to);
            site.timeline.note(site.now, Event::Prepared(index));
            return site.dues.push((site.now + LOOK, Due::Decide(index, tries)));
        }
        self.try_again(site, index, tries);
    }

    fn try_again(&mut self, site: &mut Site<'_>, index: u16, tries: u16) {
        match tries < TRIES {
            true => site.dues.push((site.now + AGAIN, Due::Change(index, tries + 1))),
            false => self.open -= 1,
        }
    }

    /// Has every runtime take in a configuration; if one does not, none does.
    fn prepare(&mut self, site: &mut Site<'_>, to: usize) -> bool {
        let switches = usize::from(site.script.shape.switches);
        for index in 0..site.cluster.runtimes.len() {
            let worker = switches + index;
            let info = info(site.script, index, site.cluster.incarnations[worker]);
            let runtime = &mut site.cluster.runtimes[index];
            let generation = Generation(runtime.change().generation.0 + 1);
            let (plan, before) = (self.plans[to].clone(), &self.plans[self.decided]);
            let made = Prepared::new(generation, plan, before, &info, 0);
            let taken =
                made.and_then(|prepared| runtime.prepare_change(prepared).map_err(|(error, _)| error));
            if let Err(error) = taken {
                site.found = changed::refused(&site.script.worker(worker as u8), &error);
                self.abandon(site);
                return false;
            }
            self.under_way[worker] = true;
            site.roused.push(worker as u8);
        }
        true
    }

    fn abandon(&mut self, site: &mut Site<'_>) {
        self.prepared = None;
        for runtime in &mut site.cluster.runtimes {
            runtime.abandon_change();
        }
        self.under_way.fill(false);
    }

    /// Decides, once all runtimes have looked at their flows.
    pub fn decide(&mut self, site: &mut Site<'_>, index: u16, tries: u16) {
        let Some(to) = self.prepared else {
            // All crashed.
            return self.try_again(site, index, tries);
        };
        let states = site.cluster.runtimes.iter().map(|runtime| runtime.change());
        let states: Vec<_> = states
            .map(|state| (state.is_prepared, state.is_through))
            .collect();
        if states.iter().any(|(is_prepared, _)| !is_prepared) {
            self.abandon(site);
            return self.try_again(site, index, tries);
        }
        if states.iter().any(|(_, is_through)| !is_through) {
            return site.dues.push((site.now + LOOK, Due::Decide(index, tries)));
        }
        site.timeline.note(site.now, Event::Decided(index));
        self.open -= 1;
        self.decisions += 1;
        (self.prepared, self.decided) = (None, to);
        site.plans.fill(self.plans[to].clone());
        let spread = site.script.changes[usize::from(index)].spread;
        for worker in 0..self.pending.len() {
            self.pending[worker] = true;
            let at = site.now + self.random.below(spread);
            site.dues
                .push((at, Due::Commit(worker as u8, site.cluster.incarnations[worker])));
        }
    }

    /// A worker puts the decided configuration in force, between two steps, once it stands still no
    /// more.
    pub fn commit(&mut self, site: &mut Site<'_>, worker: u8, incarnation: u64, stands_until: Time) {
        let place = usize::from(worker);
        if site.cluster.incarnations[place] != incarnation || !self.pending[place] {
            return;
        }
        if stands_until > site.now {
            return site.dues.push((stands_until, Due::Commit(worker, incarnation)));
        }
        self.pending[place] = false;
        site.timeline.note(site.now, Event::Committed(worker));
        match place.checked_sub(usize::from(site.script.shape.switches)) {
            None => site.cluster.switches[place].change(site.plans[place].clone()),
            Some(runtime) => {
                if !site.cluster.runtimes[runtime].commit_change() {
                    site.found = changed::unprepared(&site.script.worker(worker));
                }
            }
        }
        site.roused.push(worker);
    }

    /// Looks how far a runtime is with its flows.
    pub fn look(&mut self, site: &mut Site<'_>, worker: u8) {
        let index = usize::from(worker - site.script.shape.switches);
        let runtime = &mut site.cluster.runtimes[index];
        let state = runtime.change();
        if state.is_prepared {
            return;
        }
        if runtime.take_before().is_some() {
            self.under_way[usize::from(worker)] = false;
        }
        site.found = changed::cut(&site.script.worker(worker), &state.cut);
    }
}

/// The parts of the world that changes are handed, and what follows for it.
pub(super) struct Site<'w> {
    pub script: &'w Script,
    pub cluster: &'w mut Cluster,
    /// By worker, for processes that begin again.
    pub plans: &'w mut Vec<Plan>,
    pub timeline: &'w mut Timeline,
    pub now: Time,
    pub dues: Vec<(Time, Due)>,
    /// Workers for which there is something.
    pub roused: Vec<u8>,
    pub found: Result<(), Violation>,
}
