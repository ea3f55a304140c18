//! Carries scaling out: looks at the runtimes' loads, and orders the steps of [`Scaler`].
//!
//! ```text
//!   look ─► decide ─┬─ Add     a runtime comes ─► flows move to it
//!                   ├─ Move    flows move
//!                   └─ Remove  drained ─► its flows move, again while some keep beginning ─► it goes
//! ```
//!
//! All is asked by the requests that an operator's commands make, so the same loop serves one
//! process ([`crate::run`]) and all members. How a runtime comes and goes is the [`Ground`]'s.
//!
//! A step that fails leaves flows where they are, and all of them go on; a runtime that could not
//! go takes new flows again. The failure is said, and no step is tried for [`AFTER_FAILURE`].
//!
//! Not here: when which step is due (the parent).

use super::{Limit, Rules, Sample, Scaler, Step};
use crate::control::{Answer, FOREIGN, Request};
use crate::moving::{Leaving, Order, OrderPart, Receipt};
use crate::report::Status;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// How often an order is asked after.
const LOOK: Duration = Duration::from_millis(50);
/// How long a step may take. The begun part of it goes on by itself.
const PATIENCE: Duration = Duration::from_secs(60);
/// How long flows are offered to a runtime that has just come and takes none.
const NEWCOMER: Duration = Duration::from_secs(10);
/// How long nothing is tried behind a step that has failed.
const AFTER_FAILURE: Duration = Duration::from_secs(30);
/// The counted drops that say that runtimes have no room.
const NO_ROOM: &str = "runtime_busy";

/// The cluster that is scaled.
pub trait Ground {
    /// Asks all of it.
    fn ask(&mut self, request: &Request) -> Result<Answer, String>;
    /// Has a runtime come, and waits until it takes flows.
    fn add(&mut self) -> Result<u16, String>;
    /// Has a drained runtime go; whether it is gone, or has something yet.
    fn remove(&mut self, runtime: u16) -> Result<bool, String>;
    /// Whether a runtime may go.
    fn may_go(&self, _runtime: u16) -> bool {
        true
    }
    /// Whether to stop.
    fn is_over(&self) -> bool;
    /// Another look begins.
    fn begin(&mut self) -> Result<(), String> {
        Ok(())
    }
}

/// The messages of scaling.
#[derive(Clone, PartialEq, Debug)]
pub enum Said {
    /// A step is done.
    Done {
        /// Which.
        step: Step,
        /// The runtime that came, of [`Step::Add`].
        runtime: u16,
        /// Flows that moved.
        moved: u64,
        /// How long it took.
        took: Duration,
        /// Runtimes that take flows now.
        runtimes: usize,
    },
    /// A step has failed.
    Failed(Step, String),
    /// No step would help.
    Limit(Limit),
}

/// The runtimes' figures at the last look, and when that was.
struct Before {
    at: Instant,
    busy: BTreeMap<u16, f64>,
    dropped: u64,
}

/// See the module's page.
pub struct Actor<G> {
    ground: G,
    scaler: Scaler,
    began: Instant,
    before: Option<Before>,
    /// No step is taken before this.
    not_before: Option<Instant>,
}

impl<G: Ground> Actor<G> {
    /// By these rules.
    pub fn new(ground: G, rules: Rules) -> Self {
        Actor {
            ground,
            scaler: Scaler::new(rules),
            began: Instant::now(),
            before: None,
            not_before: None,
        }
    }

    /// The cluster that is scaled.
    pub fn ground_mut(&mut self) -> &mut G {
        &mut self.ground
    }

    /// Looks, and takes the step that is due; the message.
    pub fn turn(&mut self) -> Result<Option<Said>, String> {
        self.ground.begin()?;
        let status = self.status()?;
        let Some((samples, dropped)) = self.measure(&status) else {
            return Ok(None);
        };
        if self.not_before.is_some_and(|at| Instant::now() < at) {
            return Ok(None);
        }
        let decision = self.scaler.decide(self.began.elapsed(), &samples, dropped);
        if let Some(limit) = decision.limit {
            return Ok(Some(Said::Limit(limit)));
        }
        let Some(step) = decision.step else {
            return Ok(None);
        };
        let (began, there) = (Instant::now(), samples.len());
        let done = self.carry_out(step);
        // Work meanwhile is no interval's.
        self.before = None;
        Ok(Some(match done {
            Ok((runtime, moved)) => Said::Done {
                step,
                runtime,
                moved,
                took: began.elapsed(),
                runtimes: match step {
                    Step::Add { .. } => there + 1,
                    Step::Move { .. } => there,
                    Step::Remove(_) => there - 1,
                },
            },
            Err(problem) => {
                self.not_before = Some(Instant::now() + AFTER_FAILURE);
                self.scaler.forget_step();
                Said::Failed(step, problem)
            }
        }))
    }

    fn status(&mut self) -> Result<Status, String> {
        match self.ground.ask(&Request::Status)? {
            Answer::Status(status) => Ok(*status),
            _ => Err(FOREIGN.into()),
        }
    }

    /// The loads of runtimes that take flows since the last time, if there was one; and packets
    /// dropped for want of room.
    fn measure(&mut self, status: &Status) -> Option<(Vec<Sample>, u64)> {
        let active = || status.runtimes.iter().filter(|of| !of.absent && !of.leaving);
        let busy = active().map(|of| (of.runtime, of.busy_seconds)).collect();
        let dropped = status.packets.dropped.get(NO_ROOM).copied().unwrap_or(0);
        let now = Before {
            at: Instant::now(),
            busy,
            dropped,
        };
        let before = self.before.replace(now)?;
        let now = self.before.as_ref()?;
        let seconds = now.at.saturating_duration_since(before.at).as_secs_f64();
        let sample = |of: &crate::report::RuntimeStatus| {
            let worked = of.busy_seconds - before.busy.get(&of.runtime)?;
            Some(Sample {
                runtime: of.runtime,
                busy: (1000.0 * worked / seconds.max(1e-3)).clamp(0.0, 1000.0) as u64,
                flows: of.flows,
                // Where flows share no state, each is a group, and groups are not counted.
                groups: match of.groups {
                    0 => of.flows,
                    groups => groups,
                },
                may_go: self.ground.may_go(of.runtime),
            })
        };
        // A runtime that has just come is measured from the next time on.
        let samples = active().map(sample).collect::<Option<Vec<_>>>()?;
        Some((samples, dropped.saturating_sub(before.dropped)))
    }

    /// Answers the runtime that came or went or took flows, and how many flows moved.
    fn carry_out(&mut self, step: Step) -> Result<(u16, u64), String> {
        match step {
            Step::Add { from, count } => {
                let runtime = self.ground.add()?;
                Ok((runtime, self.give_newcomer(from, runtime, count)?))
            }
            Step::Move { from, to, count } => {
                let receipt = self.give(from, vec![to], Some(count))?;
                Ok((to, receipt.flows_moved))
            }
            Step::Remove(runtime) => match self.empty(runtime) {
                Ok(moved) => Ok((runtime, moved)),
                Err(problem) => {
                    let resumed = self.leaving(runtime, Leaving::Resumed);
                    Err(match resumed {
                        Ok(()) => format!("{problem}; it takes new flows again"),
                        Err(also) => format!("{problem}; it takes no new flows: {also}"),
                    })
                }
            },
        }
    }

    /// Links to a new runtime may not be laid yet, nor may its member answer: until then it takes
    /// no flows.
    fn give_newcomer(&mut self, from: u16, to: u16, count: u64) -> Result<u64, String> {
        let began = Instant::now();
        loop {
            let given = self.give(from, vec![to], Some(count));
            let moved = given.map(|receipt| receipt.flows_moved);
            let is_late = began.elapsed() > NEWCOMER || self.ground.is_over();
            if is_late || moved.as_ref().is_ok_and(|moved| *moved > 0) {
                return moved;
            }
            std::thread::sleep(LOOK);
        }
    }

    fn empty(&mut self, runtime: u16) -> Result<u64, String> {
        self.leaving(runtime, Leaving::Drained)?;
        let (began, mut moved) = (Instant::now(), 0);
        while began.elapsed() < PATIENCE && !self.ground.is_over() {
            let receipt = self.give(runtime, Vec::new(), None)?;
            moved += receipt.flows_moved;
            if receipt.flows_refused + receipt.groups_canceled > 0 {
                return Err("not all of its flows are taken by others".into());
            }
            if self.ground.remove(runtime)? {
                return Ok(moved);
            }
            std::thread::sleep(LOOK);
        }
        Err(format!(
            "it was not empty within {} s: flows keep beginning there, or calls wait",
            PATIENCE.as_secs()
        ))
    }

    fn leaving(&mut self, runtime: u16, leaving: Leaving) -> Result<(), String> {
        match self.ground.ask(&Request::Leaving { runtime, leaving })? {
            Answer::Leaving(_) => Ok(()),
            _ => Err(FOREIGN.into()),
        }
    }

    /// Flows of a runtime go to these, or to all others; waits until that is over.
    fn give(&mut self, from: u16, to: Vec<u16>, count: Option<u64>) -> Result<Receipt, String> {
        let order = Order {
            from: Some(from),
            to,
            count: count.map(|count| u32::try_from(count).unwrap_or(u32::MAX)),
            ..Order::default()
        };
        let Answer::Ordered(parts) = self.ground.ask(&Request::Move(order))? else {
            return Err(FOREIGN.into());
        };
        let began = Instant::now();
        loop {
            let receipt = self.receipt(&parts)?;
            if receipt.over {
                return Ok(receipt);
            }
            if began.elapsed() > PATIENCE || self.ground.is_over() {
                return Err(format!(
                    "the order to move flows is not over after {} s, and goes on",
                    began.elapsed().as_secs()
                ));
            }
            std::thread::sleep(LOOK);
        }
    }

    fn receipt(&mut self, parts: &[OrderPart]) -> Result<Receipt, String> {
        let parts = parts.to_vec();
        match self.ground.ask(&Request::Receipt { parts })? {
            Answer::Receipt(receipt) => Ok(receipt),
            _ => Err(FOREIGN.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::RuntimeStatus;
    use std::collections::VecDeque;

    /// A process whose runtimes are as busy as the test says, and a list of its requests.
    struct Fake {
        runtimes: Vec<RuntimeStatus>,
        asked: Vec<String>,
        refuses: bool,
        /// So many orders are answered by an error.
        away: u32,
        removals: VecDeque<bool>,
    }

    fn of(runtime: u16, flows: u64) -> RuntimeStatus {
        RuntimeStatus {
            runtime,
            flows,
            ..RuntimeStatus::default()
        }
    }

    impl Ground for &mut Fake {
        fn ask(&mut self, request: &Request) -> Result<Answer, String> {
            Ok(match request {
                Request::Status => Answer::Status(Box::new(Status {
                    runtimes: self.runtimes.clone(),
                    ..Status::default()
                })),
                Request::Move(order) => {
                    self.asked
                        .push(format!("move {:?} {:?} {:?}", order.from, order.to, order.count));
                    if self.away > 0 {
                        self.away -= 1;
                        return Err("member-away".into());
                    }
                    Answer::Ordered(Vec::new())
                }
                Request::Receipt { .. } => Answer::Receipt(Receipt {
                    over: true,
                    flows_moved: 7,
                    flows_refused: u64::from(self.refuses),
                    ..Receipt::empty()
                }),
                Request::Leaving { runtime, leaving } => {
                    self.asked.push(format!("{leaving:?} {runtime}"));
                    Answer::Leaving(Vec::new())
                }
                other => panic!("{other:?}"),
            })
        }
        fn add(&mut self) -> Result<u16, String> {
            self.asked.push("add".into());
            self.runtimes.push(of(9, 0));
            Ok(9)
        }
        fn remove(&mut self, runtime: u16) -> Result<bool, String> {
            self.asked.push(format!("remove {runtime}"));
            Ok(self.removals.pop_front().unwrap_or(true))
        }
        fn is_over(&self) -> bool {
            false
        }
    }

    const RULES: Rules = Rules {
        min: 1,
        max: 3,
        high: 800,
        low: 500,
        out_after: Duration::ZERO,
        in_after: Duration::ZERO,
    };

    /// Two turns, between which the runtimes do as much as they say.
    fn turned(fake: &mut Fake, busy: &[f64]) -> Option<Said> {
        let mut actor = Actor::new(fake, RULES);
        assert_eq!(actor.turn(), Ok(None));
        let pause = Duration::from_millis(40);
        std::thread::sleep(pause);
        let took = actor.before.as_ref().unwrap().at.elapsed().as_secs_f64();
        for (of, share) in actor.ground.runtimes.iter_mut().zip(busy) {
            of.busy_seconds += share * took;
        }
        actor.turn().unwrap()
    }

    fn fake(runtimes: Vec<RuntimeStatus>) -> Fake {
        Fake {
            runtimes,
            asked: Vec::new(),
            refuses: false,
            away: 0,
            removals: VecDeque::new(),
        }
    }

    #[test]
    fn one_comes_and_takes_half_of_the_flows() {
        let mut fake = fake(vec![of(0, 100)]);
        let said = turned(&mut fake, &[1.0]);
        let Some(Said::Done {
            step,
            runtime,
            moved,
            runtimes,
            ..
        }) = said
        else {
            panic!("{said:?}");
        };
        assert_eq!(step, Step::Add { from: 0, count: 50 });
        assert_eq!((runtime, moved, runtimes), (9, 7, 2));
        assert_eq!(fake.asked, ["add", "move Some(0) [9] Some(50)"]);
    }

    #[test]
    fn one_that_comes_and_does_not_answer_yet_is_asked_again() {
        let mut fake = fake(vec![of(0, 100)]);
        fake.away = 2;
        let said = turned(&mut fake, &[1.0]);
        assert!(matches!(said, Some(Said::Done { moved: 7, .. })), "{said:?}");
        assert_eq!(fake.asked.len(), 4);
    }

    #[test]
    fn one_goes_when_it_is_empty() {
        let mut fake = fake(vec![of(0, 100), of(1, 20)]);
        fake.removals = [false, true].into();
        let said = turned(&mut fake, &[0.1, 0.1]);
        let Some(Said::Done {
            step: Step::Remove(1),
            moved: 14,
            runtimes: 1,
            ..
        }) = said
        else {
            panic!("{said:?}");
        };
        let all = [
            "Drained 1",
            "move Some(1) [] None",
            "remove 1",
            "move Some(1) [] None",
            "remove 1",
        ];
        assert_eq!(fake.asked, all);
    }

    #[test]
    fn one_whose_flows_are_refused_takes_new_flows_again() {
        let mut fake = fake(vec![of(0, 100), of(1, 20)]);
        fake.refuses = true;
        let said = turned(&mut fake, &[0.1, 0.1]);
        let Some(Said::Failed(Step::Remove(1), why)) = said else {
            panic!("{said:?}");
        };
        assert!(why.contains("takes new flows again"), "{why}");
        assert_eq!(fake.asked.last().map(String::as_str), Some("Resumed 1"));
    }

    #[test]
    fn a_runtime_that_is_drained_is_not_looked_at() {
        let mut drained = of(1, 0);
        drained.leaving = true;
        let mut fake = fake(vec![of(0, 100), drained]);
        assert_eq!(turned(&mut fake, &[0.1, 0.0]), None);
        assert!(fake.asked.is_empty());
    }
}
