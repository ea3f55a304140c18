//! Every state that a few members and a coordinator can get into, within some ticks of time,
//! explored with the production machines.
//!
//! # Theory of operation
//!
//! A [`World`] is the members, each with a clock of its own, the coordinator and its log, and the
//! messages on their way: a grant for each pair, one word of each member about each other.
//! [`World::actions`] lists what can happen next: a holder asks and is granted, the grant arrives
//! or is lost, a member hears the coordinator, or the coordinator it, the log takes an entry, the
//! coordinator restarts, time passes. A member to which nothing happens is cut off, or stalls.
//! Breadth first, each state once; a violation comes with the shortest way to it.
//!
//! Checkers: [`World::check`]: a worker that a published view does not have may not act; two views
//! of one number are the same.

use super::super::*;
use std::collections::hash_map::Entry as Slot;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::hash::{BuildHasher, RandomState};
use std::string::String;
use std::vec::Vec;
use std::{format, println, vec};

const TERM: Term = Term { lease: 2 };
const TIMING: Timing = Timing {
    term: TERM,
    suspicion: 1,
    settling: 0,
    unheard: 1000,
};
const ONE: Incarnation = Incarnation(1);
const S: WorkerId = WorkerId::switch(0);
const T: WorkerId = WorkerId::switch(1);
const R: WorkerId = WorkerId::runtime(0);
const Q: WorkerId = WorkerId::runtime(1);

/// How far to look.
#[derive(Clone)]
struct Bounds {
    members: Vec<WorkerId>,
    /// The members among them that are joining.
    newcomers: Vec<WorkerId>,
    /// Members that hold leases, that are heard by the coordinator without end, and that hear it.
    holders: Vec<WorkerId>,
    faithful: Vec<WorkerId>,
    ticks: u64,
    /// How often the coordinator may restart.
    restarts: u8,
    /// Whether a word of a member may stay on its way.
    slow_words: bool,
    /// Whether entries go from the log when they are needed no more.
    forgets: bool,
    /// At most so many states: those that take the fewest steps.
    states: usize,
    /// Of how many states one is healed, and must converge.
    heals: Option<u128>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Action {
    /// A holder asks a grantor, which reads that.
    Ask(usize, usize),
    /// The grant arrives.
    Arrive(usize, usize),
    /// The member hears the newest view and list.
    Hear(usize),
    /// The coordinator hears the member.
    Beat(usize),
    /// The member says what it has withdrawn.
    Say(usize),
    /// That word arrives.
    Word(usize),
    /// The log has the next entry.
    Logged,
    /// The coordinator dies, and another reads its log.
    Restart,
    /// Time passes.
    Tick,
}

#[derive(Clone, Hash, Debug)]
struct World {
    now: u64,
    members: Vec<Membership>,
    coordinator: Coordinator,
    log: Vec<(u64, Entry)>,
    /// Entries on their way to the log.
    writing: VecDeque<(u64, Entry)>,
    /// By holder and grantor: the time with which the holder asked.
    grants: BTreeMap<(usize, usize), u64>,
    /// By member: its words of what it has withdrawn.
    words: BTreeMap<usize, Vec<Notice>>,
    /// The newest view and list that members may have been told.
    view: View,
    suspects: (u64, Vec<(WorkerId, Incarnation)>),
    restarts: u8,
}

/// Members' clocks differ by this, and more.
fn clock(member: usize, now: u64) -> u64 {
    1000 * (member as u64 + 1) + now
}

fn replay(now: u64, log: &[(u64, Entry)]) -> Coordinator {
    Coordinator::replay(now, TIMING, log.iter().cloned()).expect("a log")
}

impl World {
    fn new(bounds: &Bounds) -> Self {
        let all = bounds.members.iter().map(|id| Member {
            id: *id,
            incarnation: ONE,
            standing: match bounds.newcomers.contains(id) {
                true => Standing::Joining,
                false => Standing::Running,
            },
        });
        let view = View::new(1, all.collect());
        let first = (0, Entry::View(view.clone()));
        let members = bounds.members.iter();
        World {
            now: 0,
            members: members
                .map(|id| Membership::new(*id, ONE, TERM, view.clone()))
                .collect(),
            coordinator: replay(0, core::slice::from_ref(&first)),
            log: vec![first],
            writing: VecDeque::new(),
            grants: BTreeMap::new(),
            words: BTreeMap::new(),
            view,
            suspects: (0, Vec::new()),
            restarts: 0,
        }
    }

    fn actions(&self, bounds: &Bounds) -> Vec<Action> {
        let mut all = Vec::new();
        for (holder, id) in bounds.members.iter().enumerate() {
            for grantor in 0..self.members.len() {
                let is_way = self.grants.contains_key(&(holder, grantor));
                if is_way {
                    all.push(Action::Arrive(holder, grantor));
                } else if bounds.holders.contains(id) && holder != grantor {
                    all.push(Action::Ask(holder, grantor));
                }
            }
            all.push(Action::Hear(holder));
            if !bounds.faithful.contains(id) {
                all.push(Action::Beat(holder));
            }
            match self.words.contains_key(&holder) {
                true => all.push(Action::Word(holder)),
                false => all.push(Action::Say(holder)),
            }
        }
        if !self.writing.is_empty() {
            all.push(Action::Logged);
        }
        if self.restarts < bounds.restarts {
            all.push(Action::Restart);
        }
        if self.now < bounds.ticks {
            all.push(Action::Tick);
        }
        all
    }

    fn step(&mut self, action: Action, bounds: &Bounds) -> Result<(), String> {
        match action {
            Action::Ask(holder, grantor) => {
                let asked = clock(holder, self.now);
                let id = bounds.members[holder];
                let granted = self.members[grantor].grant(clock(grantor, self.now), id, ONE, asked);
                if let Some(asked) = granted {
                    self.grants.insert((holder, grantor), asked);
                }
            }
            Action::Arrive(holder, grantor) => {
                if let Some(asked) = self.grants.remove(&(holder, grantor)) {
                    let id = bounds.members[grantor];
                    self.members[holder].renew(clock(holder, self.now), id, ONE, asked);
                }
            }
            Action::Hear(member) => {
                let (list, suspects) = &self.suspects;
                self.members[member].adopt(self.view.clone(), |_| ());
                self.members[member].suspect(*list, suspects);
            }
            Action::Beat(member) => self.beat(member, bounds)?,
            Action::Say(member) => {
                let mut words = Vec::new();
                self.members[member].poll(clock(member, self.now), |notice| words.push(notice));
                if !words.is_empty() {
                    self.words.insert(member, words);
                    if !bounds.slow_words {
                        self.step(Action::Word(member), bounds)?;
                    }
                }
            }
            Action::Word(member) => {
                for word in self.words.remove(&member).unwrap_or_default() {
                    if let Notice::Withdrawn(id, incarnation, list) = word {
                        self.tell(Input::Withdrawn {
                            by: bounds.members[member],
                            incarnation: ONE,
                            of: (id, incarnation),
                            list,
                        })?;
                    }
                }
            }
            Action::Logged => {
                if let Some((number, entry)) = self.writing.pop_front() {
                    self.log.push((number, entry));
                    self.tell(Input::Logged(number))?;
                    if bounds.forgets {
                        let needed = self.coordinator.needed();
                        self.log.retain(|(number, _)| needed.contains(number));
                    }
                }
            }
            Action::Restart => {
                self.restarts += 1;
                // An entry on its way to the log may be in it, or not: here it is not.
                self.writing.clear();
                self.coordinator = replay(self.now, &self.log);
            }
            Action::Tick => {
                self.now += 1;
                // Members that are never late are heard before the coordinator looks.
                for member in 0..self.members.len() {
                    if bounds.faithful.contains(&bounds.members[member]) {
                        self.beat(member, bounds)?;
                    }
                }
                self.tell(Input::Tick)?;
            }
        }
        self.check(bounds)
    }

    fn beat(&mut self, member: usize, bounds: &Bounds) -> Result<(), String> {
        let (view, list) = (self.members[member].view().number, self.members[member].list());
        self.tell(Input::Heartbeat(bounds.members[member], ONE, view, list))
    }

    fn tell(&mut self, input: Input) -> Result<(), String> {
        let (mut writing, mut said) = (Vec::new(), Vec::new());
        self.coordinator.handle(self.now, input, |output| match output {
            Output::Log(number, entry) => writing.push((number, entry)),
            Output::Say(_, word) => said.push(word),
            Output::Reached(_) => {}
        });
        self.writing.extend(writing);
        for word in said {
            match word {
                Word::View(view) => {
                    if view.number == self.view.number && view != self.view {
                        return Err(format!("two views of one number: {view:?} and {:?}", self.view));
                    }
                    if view.number > self.view.number {
                        self.view = view;
                    }
                }
                Word::Suspects(list, suspects) => {
                    if list > self.suspects.0 {
                        self.suspects = (list, suspects);
                    }
                }
            }
        }
        Ok(())
    }

    fn check(&self, bounds: &Bounds) -> Result<(), String> {
        for (index, id) in bounds.members.iter().enumerate() {
            let (member, now) = (&self.members[index], clock(index, self.now));
            // The time that a worker keeps for its bursts says the same as the machine.
            if (now < member.may_act_until()) != member.may_act(now) {
                return Err(format!("{id:?} may act until {}", member.may_act_until()));
            }
            let acts = match id.role {
                Role::Switch => member.may_act(now),
                Role::Runtime => {
                    let switches = bounds.members.iter().filter(|id| id.role == Role::Switch);
                    let mut until = switches.map(|switch| member.may_act_for_until(*switch));
                    until.any(|until| now < until)
                }
            };
            if acts && !self.view.has(*id, ONE) {
                return Err(format!(
                    "{id:?} acts, and view {} has removed it",
                    self.view.number
                ));
            }
        }
        Ok(())
    }
}

/// Faults stop: whatever is on its way arrives, all are heard and hear. Each member must have the
/// newest view in the end, and none be suspected; a member that was removed must know it.
fn heal(world: &World, bounds: &Bounds) -> Result<(), String> {
    // A word said at a time is heard at the next; a suspect that is fenced needs the log twice,
    // with promises in between.
    const ROUNDS: u64 = 4 * TERM.promise() + 8;
    let mut world = world.clone();
    for _ in 0..ROUNDS {
        while !world.writing.is_empty() {
            world.step(Action::Logged, bounds)?;
        }
        for member in 0..world.members.len() {
            world.step(Action::Word(member), bounds)?;
            for action in [
                Action::Hear(member),
                Action::Say(member),
                Action::Word(member),
                Action::Beat(member),
            ] {
                world.step(action, bounds)?;
            }
        }
        world.step(Action::Tick, bounds)?;
    }
    let newest = world.coordinator.view();
    for (index, id) in bounds.members.iter().enumerate() {
        let member = &world.members[index];
        let is_told = match newest.has(*id, ONE) {
            true => member.view() == newest && !member.is_fenced(),
            false => member.is_fenced(),
        };
        if !is_told {
            return Err(format!(
                "{id:?} has view {} and the newest is {}, after all faults have stopped",
                member.view().number,
                newest.number
            ));
        }
    }
    match world.coordinator.suspects().1 {
        suspects if suspects.is_empty() => Ok(()),
        suspects => Err(format!("{suspects:?} are suspected for ever")),
    }
}

/// The number of states within the bounds, and how many views were made in one at most; or a
/// violation and the shortest way to it.
fn explore(bounds: &Bounds) -> Result<(usize, u32), String> {
    let hashers = [RandomState::new(), RandomState::new()];
    let name = |world: &World| {
        let [a, b] = hashers.each_ref().map(|hasher| hasher.hash_one(world));
        u128::from(a) << 64 | u128::from(b)
    };
    let first = World::new(bounds);
    let mut ways: HashMap<u128, Option<(u128, Action)>> = HashMap::from([(name(&first), None)]);
    let mut frontier = VecDeque::from([first]);
    let mut views = 1;
    while let Some(world) = frontier.pop_front()
        && ways.len() < bounds.states
    {
        let from = name(&world);
        views = views.max(world.view.number);
        for action in world.actions(bounds) {
            let mut next = world.clone();
            if let Err(why) = next.step(action, bounds) {
                let mut actions = vec![action];
                let mut at = from;
                while let Some(Some((before, action))) = ways.get(&at) {
                    actions.push(*action);
                    at = *before;
                }
                actions.reverse();
                return Err(format!("{why}\n{actions:?}"));
            }
            let named = name(&next);
            if let Slot::Vacant(place) = ways.entry(named) {
                if bounds.heals.is_some_and(|every| named % every == 0)
                    && let Err(why) = heal(&next, bounds)
                {
                    return Err(format!("{why}\n{action:?} from {world:?}"));
                }
                place.insert(Some((from, action)));
                frontier.push_back(next);
            }
        }
    }
    Ok((ways.len(), views))
}

/// A runtime that is suspected, cut off and heard again; its switch is always heard.
fn one_runtime() -> Bounds {
    Bounds {
        members: vec![S, R],
        newcomers: vec![],
        holders: vec![R],
        faithful: vec![S],
        ticks: 4,
        restarts: 0,
        slow_words: false,
        forgets: false,
        states: usize::MAX,
        heals: None,
    }
}

/// Of a cluster of three: a minute of a processor is enough for so many states.
const LARGE: usize = 300_000;

fn hold(name: &str, bounds: &Bounds) {
    let (states, views) = explore(bounds).unwrap_or_else(|story| panic!("{name}: {story}"));
    let whole = if states < bounds.states {
        "all"
    } else {
        "the first"
    };
    println!("{name}: {whole} {states} states, up to view {views}");
    assert!(views > 1, "{name}: no view has removed a member");
}

#[test]
fn a_runtime_that_is_removed_does_not_act() {
    hold("one switch, one runtime", &one_runtime());
}

#[test]
fn a_coordinator_that_restarts_with_a_short_log_removes_no_member_that_acts() {
    let restarts = Bounds {
        restarts: 1,
        forgets: true,
        ticks: 3,
        ..one_runtime()
    };
    hold("one switch, one runtime, a restart", &restarts);
}

#[test]
fn of_two_switches_and_a_runtime_none_acts_that_is_removed() {
    let bounds = Bounds {
        members: vec![S, T, R],
        holders: vec![R],
        faithful: vec![S, T],
        ticks: 2,
        states: LARGE,
        ..one_runtime()
    };
    hold("two switches, one runtime", &bounds);
}

#[test]
fn of_a_switch_and_two_runtimes_none_acts_that_is_removed() {
    let bounds = Bounds {
        members: vec![S, R, Q],
        holders: vec![S],
        faithful: vec![R, Q],
        ticks: 2,
        states: LARGE,
        ..one_runtime()
    };
    hold("one switch, two runtimes", &bounds);
}

/// No view waits for a switch that joins; it may grant leases by the view that it has.
#[test]
fn of_a_switch_that_joins_and_a_runtime_none_acts_that_is_removed() {
    let bounds = Bounds {
        members: vec![S, T, R],
        newcomers: vec![T],
        holders: vec![R, T],
        faithful: vec![S],
        ticks: 2,
        states: LARGE,
        ..one_runtime()
    };
    hold("two switches, of which one joins, one runtime", &bounds);
}

#[test]
fn a_runtime_that_joins_and_is_removed_does_not_act() {
    let bounds = Bounds {
        newcomers: vec![R],
        ..one_runtime()
    };
    hold("one switch, one runtime that joins", &bounds);
}

#[test]
fn once_faults_stop_each_member_gets_the_newest_view() {
    let bounds = Bounds {
        heals: Some(32),
        ticks: 3,
        ..one_runtime()
    };
    hold("one switch, one runtime, healed", &bounds);
}

#[test]
fn a_member_that_never_learns_is_noticed_when_faults_have_stopped() {
    let bounds = Bounds {
        heals: Some(1),
        ticks: 1,
        ..one_runtime()
    };
    assert!(explore(&bounds).is_ok(), "the rule holds");
    PLANTED.set(Some(Bug::RemovedUnaware));
    let found = explore(&bounds);
    PLANTED.set(None);
    let why = found.expect_err("it is noticed");
    assert!(why.contains("after all faults have stopped"), "{why}");
}

/// Each broken rule, and the shortest way to where it shows, as [`explore`] has found it.
#[test]
fn every_rule_that_is_broken_is_noticed() {
    use Action::*;
    let one = one_runtime();
    let two_switches = Bounds {
        members: vec![S, T, R],
        holders: vec![R, T],
        faithful: vec![S, T],
        ..one_runtime()
    };
    let a_switch = Bounds {
        members: vec![S, R, Q],
        holders: vec![S],
        faithful: vec![R, Q],
        ..one_runtime()
    };
    let restarts = Bounds {
        restarts: 1,
        ..one_runtime()
    };
    let slow = Bounds {
        slow_words: true,
        ..one_runtime()
    };
    let stories: [(Bug, &Bounds, &[Action]); 7] = [
        (
            Bug::CountsFromGrant,
            &one,
            &[
                Ask(1, 0),
                Tick,
                Logged,
                Hear(0),
                Tick,
                Arrive(1, 0),
                Tick,
                Say(0),
                Logged,
            ],
        ),
        (
            Bug::WithdrawsAtOnce,
            &one,
            &[Ask(1, 0), Arrive(1, 0), Tick, Logged, Hear(0), Say(0), Logged],
        ),
        (
            Bug::GrantsOn,
            &one,
            &[Tick, Logged, Hear(0), Say(0), Ask(1, 0), Arrive(1, 0), Logged],
        ),
        (
            Bug::OneSwitchIsEnough,
            &two_switches,
            &[
                Tick,
                Logged,
                Logged,
                Hear(0),
                Tick,
                Say(0),
                Logged,
                Logged,
                Hear(0),
                Ask(1, 0),
                Arrive(1, 0),
                Ask(2, 1),
                Arrive(2, 1),
            ],
        ),
        (
            Bug::FewAreEnough,
            &a_switch,
            &[
                Ask(0, 1),
                Arrive(0, 1),
                Tick,
                Logged,
                Hear(2),
                Say(2),
                Logged,
                Logged,
            ],
        ),
        (
            Bug::ActsBeforeLog,
            &restarts,
            &[
                Tick,
                Hear(0),
                Beat(1),
                Logged,
                Restart,
                Say(0),
                Hear(0),
                Ask(1, 0),
                Arrive(1, 0),
                Tick,
            ],
        ),
        (
            Bug::OldWordCounts,
            &slow,
            &[
                Tick,
                Logged,
                Hear(0),
                Say(0),
                Beat(1),
                Logged,
                Hear(0),
                Ask(1, 0),
                Arrive(1, 0),
                Tick,
                Logged,
                Word(0),
                Logged,
            ],
        ),
    ];
    for (bug, bounds, story) in stories {
        assert_eq!(told(bounds, story), Ok(()), "{bug:?}: the rule holds");
        PLANTED.set(Some(bug));
        let found = told(bounds, story);
        PLANTED.set(None);
        let why = found.expect_err("a broken rule is noticed");
        assert!(why.contains("acts, and view"), "{bug:?}: {why}");
    }
}

/// Takes the steps of a story that the search has found as the shortest way to a violation.
fn told(bounds: &Bounds, story: &[Action]) -> Result<(), String> {
    let mut world = World::new(bounds);
    story.iter().try_for_each(|action| world.step(*action, bounds))
}
