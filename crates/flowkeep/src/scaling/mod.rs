//! Scaling by load: runtimes come where there is too much to do, and go where there is little
//! (NFVactor III-D).
//!
//! # Theory of operation
//!
//! ```text
//!   each `interval`: each runtime's load ────► Scaler::decide ──┬─ nothing
//!          ▲                                                    ├─ Add     a runtime comes, and takes half of the busiest one's flows
//!          │                                                    ├─ Move    part of the busiest one's flows goes to the least busy one
//!          └───────────── carried out ([`acting`]) ◄────────────┴─ Remove  the one with the fewest flows is drained, and goes
//! ```
//!
//! *Busy* is the share of time that a worker spends in steps that had something to do: a thread
//! that polls uses a whole processor with or without packets, so processor time says little
//! (NFVactor goes by dropped packets for that reason; these count here, too).
//!
//! | a runtime is | while |
//! |---|---|
//! | hot | it is busier than `high`; or switches drop packets for want of room at runtimes, and none is busier |
//! | cool | it is less busy than `low` |
//!
//! A runtime that is hot for `out_after` gives flows away: to the least busy runtime where that is
//! cool, else to a new one. Where as many runtimes are there as may be, any runtime that is less
//! busy than the average takes them. If the work of all runtimes would fit into one fewer, each
//! below `low`, for `in_after`, one goes.
//!
//! *It does not swing.* After a removal no runtime is above `low` on the average, which is well
//! below `high`, so steady load asks for no addition behind it. A runtime that stays as hot after
//! it gave flows away has its load in one group, which cannot be divided, or far more than it can
//! do: it is left alone for [`STUBBORN`], and for twice as long each time that this happens again.
//! So is a runtime that became hot by flows that it took.
//!
//! A runtime that an operator has drained is none of these, and stays as it is.
//!
//! Invariants: never fewer than `min` or more than `max` runtimes take flows by this; one step is
//! under way at a time; loads measured before a step say nothing behind it.
//!
//! Not here: moves and drains (`runtime::mobility`), placement of new groups
//! (`crate::run::placing`).

pub mod acting;

use std::collections::BTreeMap;
use std::time::Duration;

/// How long a runtime is left alone whose load cannot be divided, at first and at most.
const STUBBORN: [Duration; 2] = [Duration::from_secs(60), Duration::from_secs(3600)];
/// Packets that switches drop in an interval for want of room at runtimes, above which the busiest
/// one is hot (the threshold of NFVactor III-D).
const DROPPED: u64 = 100;
/// A runtime that is not less busy by this part after it gave flows away cannot be divided.
const LESS: u64 = 10;
/// Two whose shares differ by less than this, in thousandths, are as busy as each other.
const ALIKE: u64 = 100;

/// When runtimes come and go.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Rules {
    /// The fewest and the most that take flows.
    pub min: u16,
    /// See `min`.
    pub max: u16,
    /// Thousandths of the time.
    pub high: u64,
    /// See `high`.
    pub low: u64,
    /// How long a runtime is hot before something is done.
    pub out_after: Duration,
    /// How long all would fit into one fewer.
    pub in_after: Duration,
}

/// The load of a runtime in an interval.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Sample {
    /// Which.
    pub runtime: u16,
    /// Thousandths of the interval in steps that had something to do.
    pub busy: u64,
    /// Flows now.
    pub flows: u64,
    /// Groups now: each can be moved by itself.
    pub groups: u64,
    /// The runtime goes where there is too little to do.
    pub may_go: bool,
}

/// The step to take.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Step {
    /// A runtime comes, and takes so many flows of this one.
    Add {
        /// The runtime that gives.
        from: u16,
        /// Flows.
        count: u64,
    },
    /// Flows move.
    Move {
        /// From.
        from: u16,
        /// To.
        to: u16,
        /// Flows.
        count: u64,
    },
    /// A runtime is drained, and goes.
    Remove(u16),
}

/// The limit that holds scaling up, to be said once.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Limit {
    /// As many runtimes are there as may be, and all have much to do.
    Most,
    /// This runtime's load is in one group.
    Undivided(u16),
}

/// The decision.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Decision {
    /// To be done now.
    pub step: Option<Step>,
    /// To be said now.
    pub limit: Option<Limit>,
}

/// See the module's page. Times are since any moment, the same for all.
pub struct Scaler {
    rules: Rules,
    hot_since: BTreeMap<u16, Duration>,
    cool_since: Option<Duration>,
    /// Until when a hot runtime is left alone, and for how long that was.
    stubborn: BTreeMap<u16, (Duration, Duration)>,
    /// Which gave flows away in the last step, and how busy it was.
    gave: Option<(u16, u64)>,
    /// Which took flows of others, and when: it does not give them back.
    took: BTreeMap<u16, Duration>,
    said: Option<Limit>,
}

impl Scaler {
    /// By these rules, with nothing measured.
    pub fn new(rules: Rules) -> Self {
        Scaler {
            rules,
            hot_since: BTreeMap::new(),
            cool_since: None,
            stubborn: BTreeMap::new(),
            gave: None,
            took: BTreeMap::new(),
            said: None,
        }
    }

    /// Decides by the loads of the runtimes that take flows in the last interval; `dropped`:
    /// packets for which there was no room at any.
    pub fn decide(&mut self, now: Duration, samples: &[Sample], dropped: u64) -> Decision {
        let Some(busiest) = samples.iter().max_by_key(|of| (of.busy, of.runtime)) else {
            return Decision::default();
        };
        self.judge_last(now, samples);
        let is_hot =
            |of: &Sample| of.busy >= self.rules.high || dropped > DROPPED && of.runtime == busiest.runtime;
        let hot: Vec<&Sample> = samples.iter().filter(|of| is_hot(of)).collect();
        self.hot_since
            .retain(|runtime, _| hot.iter().any(|of| of.runtime == *runtime));
        for of in &hot {
            self.hot_since.entry(of.runtime).or_insert(now);
        }
        // A stubborn runtime is remembered for as long again.
        self.stubborn.retain(|_, (until, wait)| now < *until + *wait);
        let long = |of: &&&Sample| {
            let since = self.hot_since.get(&of.runtime);
            let is_long = since.is_some_and(|since| now.saturating_sub(*since) >= self.rules.out_after);
            let until = self.stubborn.get(&of.runtime).map(|(until, _)| *until);
            is_long && until.is_none_or(|until| until <= now)
        };
        let hottest = hot.iter().filter(long).max_by_key(|of| (of.busy, of.runtime));
        if let Some(hottest) = hottest.copied().copied() {
            self.cool_since = None;
            return self.relieve(now, hottest, samples);
        }
        if !hot.is_empty() {
            self.cool_since = None;
            return Decision::default();
        }
        self.said = None;
        self.shrink(now, samples)
    }

    /// A runtime that gave flows away and is as busy as before has a load that cannot be divided.
    fn judge_last(&mut self, now: Duration, samples: &[Sample]) {
        let Some((runtime, before)) = self.gave.take() else {
            return;
        };
        let of = samples.iter().find(|of| of.runtime == runtime);
        if of.is_some_and(|of| of.busy >= self.rules.high && of.busy + before / LESS > before) {
            self.leave_alone(now, runtime);
        }
    }

    fn has_taken(&self, now: Duration, runtime: u16) -> bool {
        let took = self.took.get(&runtime);
        took.is_some_and(|took| now.saturating_sub(*took) < STUBBORN[0])
    }

    fn leave_alone(&mut self, now: Duration, runtime: u16) {
        let [first, most] = STUBBORN;
        let before = self.stubborn.get(&runtime).map(|(_, wait)| *wait * 2);
        let wait = before.unwrap_or(first).min(most);
        self.stubborn.insert(runtime, (now + wait, wait));
    }

    fn relieve(&mut self, now: Duration, hot: Sample, samples: &[Sample]) -> Decision {
        if hot.groups < 2 {
            self.leave_alone(now, hot.runtime);
            return self.say(Limit::Undivided(hot.runtime));
        }
        let others = samples.iter().filter(|of| of.runtime != hot.runtime);
        let coolest = others.min_by_key(|of| (of.busy, of.runtime));
        let mean = samples.iter().map(|of| of.busy).sum::<u64>() / samples.len() as u64;
        let may_add = samples.len() < usize::from(self.rules.max);
        let step = match coolest {
            Some(of)
                if of.busy + ALIKE < hot.busy && (of.busy < self.rules.low || !may_add && of.busy < mean) =>
            {
                if self.has_taken(now, hot.runtime) {
                    self.leave_alone(now, hot.runtime);
                    return self.say(Limit::Most);
                }
                self.took.insert(of.runtime, now);
                let surplus = (hot.busy - of.busy) / 2;
                Step::Move {
                    from: hot.runtime,
                    to: of.runtime,
                    count: (hot.flows * surplus / hot.busy.max(1)).max(1),
                }
            }
            _ if may_add => Step::Add {
                from: hot.runtime,
                count: (hot.flows / 2).max(1),
            },
            _ => return self.say(Limit::Most),
        };
        self.gave = Some((hot.runtime, hot.busy));
        self.did();
        Decision {
            step: Some(step),
            limit: None,
        }
    }

    fn shrink(&mut self, now: Duration, samples: &[Sample]) -> Decision {
        let left = samples.len() as u64 - 1;
        let busy: u64 = samples.iter().map(|of| of.busy).sum();
        let fits = samples.len() > usize::from(self.rules.min.max(1)) && busy <= self.rules.low * left;
        if !fits {
            self.cool_since = None;
            return Decision::default();
        }
        let since = *self.cool_since.get_or_insert(now);
        if now.saturating_sub(since) < self.rules.in_after {
            return Decision::default();
        }
        let least = samples
            .iter()
            .filter(|of| of.may_go)
            .min_by_key(|of| (of.flows, std::cmp::Reverse(of.runtime)));
        let step = least.map(|of| Step::Remove(of.runtime));
        if step.is_some() {
            self.did();
        }
        Decision { step, limit: None }
    }

    /// The step that was decided last has failed: its runtimes' loads say nothing of it.
    pub fn forget_step(&mut self) {
        self.gave = None;
        self.took.clear();
    }

    /// A step begins: the measured loads are of before.
    fn did(&mut self) {
        self.hot_since.clear();
        (self.cool_since, self.said) = (None, None);
    }

    fn say(&mut self, limit: Limit) -> Decision {
        let is_new = self.said.replace(limit) != Some(limit);
        Decision {
            step: None,
            limit: is_new.then_some(limit),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const RULES: Rules = Rules {
        min: 1,
        max: 4,
        high: 800,
        low: 500,
        out_after: Duration::from_secs(2),
        in_after: Duration::from_secs(5),
    };

    fn of(runtime: u16, busy: u64) -> Sample {
        Sample {
            runtime,
            busy,
            flows: 1000,
            groups: 100,
            may_go: true,
        }
    }

    /// Second by second: the decisions, with the second.
    fn decided(scaler: &mut Scaler, from: u64, seconds: u64, samples: &[Sample]) -> Vec<(u64, Decision)> {
        let all = (from..from + seconds).map(|second| {
            let now = Duration::from_secs(second);
            (second, scaler.decide(now, samples, 0))
        });
        all.filter(|(_, decision)| *decision != Decision::default())
            .collect()
    }

    fn step(second: u64, step: Step) -> Vec<(u64, Decision)> {
        let step = Some(step);
        vec![(second, Decision { step, limit: None })]
    }

    #[test]
    fn a_hot_runtime_gives_half_to_one_that_comes() {
        let mut scaler = Scaler::new(RULES);
        let added = Step::Add { from: 0, count: 500 };
        assert_eq!(decided(&mut scaler, 0, 3, &[of(0, 900)]), step(2, added));
    }

    #[test]
    fn a_moment_of_load_changes_nothing() {
        let mut scaler = Scaler::new(RULES);
        for second in 0..20 {
            let busy = if second % 2 == 0 { 950 } else { 790 };
            let decision = scaler.decide(Duration::from_secs(second), &[of(0, busy)], 0);
            assert_eq!(decision, Decision::default(), "{second}");
        }
    }

    #[test]
    fn where_another_is_cool_flows_move_there() {
        let mut scaler = Scaler::new(RULES);
        let two = [of(0, 900), of(3, 100)];
        let moved = Step::Move {
            from: 0,
            to: 3,
            count: 444,
        };
        assert_eq!(decided(&mut scaler, 0, 3, &two), step(2, moved));
    }

    #[test]
    fn dropped_packets_make_the_busiest_hot() {
        let mut scaler = Scaler::new(RULES);
        let at = |second| Duration::from_secs(second);
        let two = [of(0, 600), of(1, 700)];
        assert_eq!(scaler.decide(at(0), &two, 101), Decision::default());
        assert_eq!(scaler.decide(at(1), &two, 101), Decision::default());
        let added = Step::Add { from: 1, count: 500 };
        assert_eq!(scaler.decide(at(2), &two, 101).step, Some(added));
    }

    #[test]
    fn at_the_bound_the_less_busy_take_some_and_then_it_is_said() {
        let mut scaler = Scaler::new(RULES);
        let four = [of(0, 1000), of(1, 900), of(2, 600), of(3, 900)];
        let moved = Step::Move {
            from: 0,
            to: 2,
            count: 200,
        };
        assert_eq!(decided(&mut scaler, 0, 3, &four), step(2, moved));
        let four = [of(0, 900), of(1, 900), of(2, 900), of(3, 900)];
        let all = decided(&mut scaler, 3, 30, &four);
        let limits: Vec<_> = all.iter().filter_map(|(_, decision)| decision.limit).collect();
        assert_eq!(limits, [Limit::Most], "{all:?}");
        assert!(all.iter().all(|(_, decision)| decision.step.is_none()));
    }

    #[test]
    fn what_cannot_be_divided_is_said_once_and_left_alone() {
        let mut scaler = Scaler::new(RULES);
        let one = [Sample {
            groups: 1,
            ..of(0, 990)
        }];
        let all = decided(&mut scaler, 0, 50, &one);
        let limit = Some(Limit::Undivided(0));
        assert_eq!(all, [(2, Decision { step: None, limit })]);
        // An elephant among mice: after one step it is as hot as before.
        let mut scaler = Scaler::new(RULES);
        assert_eq!(decided(&mut scaler, 0, 3, &[of(0, 990)]).len(), 1);
        let two = [of(0, 980), of(1, 10)];
        assert_eq!(decided(&mut scaler, 3, 50, &two), []);
    }

    #[test]
    fn a_step_that_has_failed_is_decided_again() {
        let mut scaler = Scaler::new(RULES);
        let hot = [of(0, 990)];
        let added = Step::Add { from: 0, count: 500 };
        assert_eq!(decided(&mut scaler, 0, 3, &hot), step(2, added));
        scaler.forget_step();
        assert_eq!(decided(&mut scaler, 3, 3, &hot), step(5, added));
    }

    #[test]
    fn the_one_with_the_fewest_flows_goes_when_the_others_can_take_its_load() {
        let mut scaler = Scaler::new(RULES);
        let mut three = [of(0, 300), of(1, 300), of(2, 300)];
        three[1].flows = 10;
        assert_eq!(decided(&mut scaler, 0, 6, &three), step(5, Step::Remove(1)));
        // Two would be above `low`.
        let two = [of(0, 300), of(2, 300)];
        assert_eq!(decided(&mut scaler, 6, 60, &two), []);
        // And the last stays.
        let mut scaler = Scaler::new(RULES);
        assert_eq!(decided(&mut scaler, 0, 60, &[of(0, 0)]), []);
        assert_eq!(decided(&mut scaler, 60, 60, &[]), []);
    }

    #[test]
    fn one_that_is_to_stay_stays() {
        let mut scaler = Scaler::new(RULES);
        let mut two = [of(0, 100), of(1, 100)];
        two[0].flows = 1;
        two[0].may_go = false;
        assert_eq!(decided(&mut scaler, 0, 6, &two), step(5, Step::Remove(1)));
        two[1].may_go = false;
        assert_eq!(decided(&mut scaler, 6, 60, &two), []);
    }

    proptest! {
        /// Groups with any steady loads, placed anywhere: within the bounds, and in bounded time
        /// nearly quiet.
        #[test]
        fn steady_load_comes_to_rest(
            loads in prop::collection::vec(1_u64..300, 1..60),
            begin in 1_u16..=4,
            place in prop::collection::vec(0_u16..4, 60),
        ) {
            let mut at: Vec<u16> = place.iter().take(loads.len()).map(|at| at % begin).collect();
            let mut there: Vec<u16> = (0..begin).collect();
            let mut scaler = Scaler::new(RULES);
            let mut late = 0;
            for second in 0..2000_u64 {
                let samples: Vec<Sample> = there
                    .iter()
                    .map(|runtime| {
                        let mine = loads.iter().zip(&at).filter(|(_, at)| *at == runtime);
                        let (busy, groups) = mine.fold((0, 0), |(busy, groups), (load, _)| (busy + load, groups + 1));
                        Sample { runtime: *runtime, busy: busy.min(1000), flows: groups, groups, may_go: true }
                    })
                    .collect();
                let Some(step) = scaler.decide(Duration::from_secs(second), &samples, 0).step else {
                    continue;
                };
                late += u64::from(second > 1000);
                let give = |at: &mut Vec<u16>, from: u16, to: u16, count: u64| {
                    let mine = at.iter_mut().filter(|at| **at == from);
                    mine.take(count as usize).for_each(|at| *at = to);
                };
                match step {
                    Step::Add { from, count } => {
                        let new = (0..).find(|number| !there.contains(number)).unwrap();
                        there.push(new);
                        give(&mut at, from, new, count);
                    }
                    Step::Move { from, to, count } => give(&mut at, from, to, count),
                    Step::Remove(runtime) => {
                        there.retain(|other| *other != runtime);
                        let to = there.clone();
                        for (turn, at) in at.iter_mut().filter(|at| **at == runtime).enumerate() {
                            *at = to[turn % to.len()];
                        }
                    }
                }
                prop_assert!(!there.is_empty() && there.len() <= 4);
            }
            prop_assert!(late < 40, "it goes on and on: {late}");
        }
    }
}
