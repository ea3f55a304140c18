//! Runs by seed: how one went, whether it goes the same way twice, and why one failed.

use crate::checkers::{Violation, asserted, same_run};
use crate::kernel::Planned;
use crate::scenario::Scenario;
use crate::script::Script;
use crate::shrink::shrink;
use crate::world::World;
use runtime::chain::Plan;

/// Makes a plan of a configuration, with whatever functions the caller has. It is asked for the
/// same configuration again and again, so it should remember.
pub type Planner<'p> = dyn FnMut(&str) -> Result<Planned, String> + 'p;

/// How a run went.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Outcome {
    /// Which configuration.
    pub scenario: Scenario,
    /// Which seed.
    pub seed: u64,
    /// Events simulated.
    pub events: u64,
    /// Packets that hosts sent.
    pub packets: u64,
    /// The moves, without those up to the last crash of everything.
    pub moved: Moved,
    /// Of all events, of the bytes of all frames that left, and of the event log.
    pub digest: u64,
    /// The finding of a checker, if there is one.
    pub violation: Option<Violation>,
}

/// The moves from runtime to runtime in a run, and their packets meanwhile.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Moved {
    /// Orders that were given.
    pub orders: u64,
    /// Flows that moved.
    pub flows: u64,
    /// Flows that were called back.
    pub called_back: u64,
    /// Flows that the target refused.
    pub refused: u64,
    /// Configurations that were put in force.
    pub changes: u64,
    /// Packets that one runtime handed to another.
    pub handed: u64,
    /// Packets that a target kept.
    pub kept: u64,
}

impl Moved {
    /// Both together.
    pub fn add(&mut self, other: &Moved) {
        self.orders += other.orders;
        self.flows += other.flows;
        self.called_back += other.called_back;
        self.refused += other.refused;
        self.changes += other.changes;
        self.handed += other.handed;
        self.kept += other.kept;
    }
}

/// Seeds that are divisible by this are run twice, to see whether both runs are the same.
const TWICE: u64 = 16;
/// Events of a shrunk timeline that are shown.
const LINES: usize = 120;

/// Runs a seed. An error is a configuration that the planner refuses.
pub fn run(scenario: Scenario, seed: u64, planner: &mut Planner<'_>) -> Result<Outcome, String> {
    let script = Script::of(scenario, seed);
    let twice = seed.is_multiple_of(TWICE);
    play(&script, planner, twice)
}

/// Plays a script, twice if told so.
pub(crate) fn play(script: &Script, planner: &mut Planner<'_>, twice: bool) -> Result<Outcome, String> {
    let mut outcome = play_once(script, planner)?;
    if twice && outcome.violation.is_none() {
        let again = play_once(script, planner)?;
        let found = same_run::check((outcome.digest, outcome.events), (again.digest, again.events));
        outcome.violation = found.err();
    }
    Ok(outcome)
}

/// By worker its process's plan. Processes have one, unless tables are of each process.
fn planned(script: &Script, planner: &mut Planner<'_>) -> Result<Vec<Planned>, String> {
    let text = script.variant.toml(script.scenario);
    let mut all: Vec<Planned> = Vec::new();
    for worker in 0..usize::from(script.shape.switches) + usize::from(script.shape.runtimes) {
        let known = all.get(script.tables_of(worker)).cloned();
        all.push(known.map_or_else(|| planner(&text), Ok)?);
    }
    Ok(all)
}

/// The plans of all configurations, where they change, each known by a number of its own.
fn configurations(script: &Script, planner: &mut Planner<'_>) -> Result<Vec<Plan>, String> {
    let mut plans = Vec::new();
    if !script.changes.is_empty() {
        for (number, variant) in (1..).zip(script.configurations()) {
            let planned = planner(&variant.toml(script.scenario))?;
            plans.push(planned.plan.known_by(number));
        }
    }
    Ok(plans)
}

fn play_once(script: &Script, planner: &mut Planner<'_>) -> Result<Outcome, String> {
    let (planned, others) = (planned(script, planner)?, configurations(script, planner)?);
    let mut world = World::new(script, &planned, others, false)?;
    let violation = asserted::check(|| world.play()).err();
    Ok(Outcome {
        moved: world.moved(),
        scenario: script.scenario,
        seed: script.seed,
        events: world.timeline.count,
        packets: world.packets.len() as u64 - 1,
        digest: world.timeline.digest(),
        violation,
    })
}

/// A failure, made small.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Failure {
    /// The finding in the run as its seed has it.
    pub violation: Violation,
    /// The finding in the smallest run that still fails: the same checker fired.
    pub shrunk: Violation,
    /// The rest of the script, a line each.
    pub script: Vec<String>,
    /// The events of the smallest run, a line each.
    pub timeline: Vec<String>,
    /// How many runs making it small took.
    pub runs: u32,
}

/// Runs a seed again and makes its failure as small as it gets; `None` if it does not fail.
pub fn explain(scenario: Scenario, seed: u64, planner: &mut Planner<'_>) -> Result<Option<Failure>, String> {
    let script = Script::of(scenario, seed);
    let Some(violation) = play(&script, planner, seed.is_multiple_of(TWICE))?.violation else {
        return Ok(None);
    };
    let twice = violation.checker == "same_run";
    let (small, shrunk, runs) = shrink(script, &violation, twice, planner)?;
    let (planned, others) = (planned(&small, planner)?, configurations(&small, planner)?);
    let mut world = World::new(&small, &planned, others, true)?;
    let _ = asserted::check(|| world.play());
    Ok(Some(Failure {
        violation,
        shrunk,
        script: in_words(&small),
        timeline: world.timeline.lines(&small, &world.packets, LINES),
        runs,
    }))
}

/// Which workers are one process.
fn processes_in_words(script: &Script) -> String {
    let shape = &script.shape;
    let workers = 0..shape.switches + shape.runtimes as u8;
    let firsts = workers.filter(|worker| shape.first_of((*worker).into()) == usize::from(*worker));
    let names = firsts.map(|first| {
        let process = shape.process_of(first);
        let names: Vec<String> = process.iter().map(|worker| script.worker(*worker)).collect();
        names.join(" and ")
    });
    names.collect::<Vec<_>>().join("; ")
}

fn in_words(script: &Script) -> Vec<String> {
    let shape = &script.shape;
    let mut lines = vec![
        format!(
            "{} switches, {} runtimes, {} ports {}, {:?}, {}",
            shape.switches,
            shape.runtimes,
            shape.ports,
            if shape.by_address {
                "of both sides"
            } else {
                "by side"
            },
            shape.policy,
            if shape.is_roomy {
                "nothing is ever full"
            } else {
                "little room"
            }
        ),
        format!(
            "at most {} flows a runtime, {} routes and {} buffers a switch, {} packets on a ring, {} at a port",
            shape.flows_max, shape.routes_max, shape.buffers, shape.depth, shape.queue
        ),
    ];
    if let Some(apart) = &shape.apart {
        lines.push(format!(
            "processes of {}; frames between them take {} us, {:?}",
            processes_in_words(script),
            apart.delay / 1000,
            apart.noise
        ));
    }
    if let Some(joined) = script.joined() {
        let lease = joined.lease / 1000;
        lines.push(format!("{} coordinators, leases of {lease} us", joined.offices));
    }
    if let Some((worker, pace)) = shape.slow {
        lines.push(format!(
            "{} is slow: up to {} us",
            script.worker(worker),
            pace / 1000
        ));
    }
    if script.noise != crate::network::Noise::default() {
        lines.push(format!("all paths, all the time: {:?}", script.noise));
    }
    if script.kinds != crate::kinds::Kinds::default() {
        lines.push(format!("of a thousand: {:?}", script.kinds));
    }
    for timed in &script.faults {
        let at = crate::timeline::Millis(timed.at);
        lines.push(format!(
            "fault at {at}: {}",
            crate::timeline::in_words_of(&timed.fault, script)
        ));
    }
    if let Some(at) = script.comes_at {
        let at = crate::timeline::Millis(at);
        lines.push(format!("the last runtime is not listed, and begins at {at}"));
    }
    for going in &script.goings {
        let (at, away) = (
            crate::timeline::Millis(going.at),
            crate::timeline::Millis(going.away),
        );
        let how = if going.is_drained {
            ", drained by the coordinator first"
        } else {
            ""
        };
        let runtime = going.runtime;
        lines.push(format!(
            "runtime {runtime} leaves at {at}{how}, and begins again {away} later"
        ));
    }
    if let Some(snapshots) = script.snapshots() {
        lines.push(format!("copies are taken from time to time: {snapshots:?}"));
    }
    for (index, change) in script.changes.iter().enumerate() {
        let at = crate::timeline::Millis(change.at);
        let (part, to) = (change.part, script.configurations().nth(change.to.into()));
        lines.push(format!("change {index} at {at} of {part:?}: {to:?}"));
    }
    for order in &script.moves {
        let at = crate::timeline::Millis(order.at);
        let when = match order.part {
            crate::script::Part::Faults => "",
            crate::script::Part::Early => " after healing",
            crate::script::Part::Late => " after all flows' end",
        };
        let what = crate::timeline::in_words_of_move(order);
        lines.push(format!("order at {at}{when}: {what}"));
    }
    if !script.moves.is_empty() {
        lines.push(format!(
            "{} groups move at once, {} packets are kept, a move may take {}",
            shape.moves_max,
            shape.kept_max,
            crate::timeline::Millis(shape.move_timeout)
        ));
    }
    for (index, talk) in script.talks.iter().enumerate() {
        lines.push(format!("talk {index}: {talk}"));
    }
    lines
}
