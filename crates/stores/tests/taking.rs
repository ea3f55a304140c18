//! Timers of members that are gone, taken over by others: each is due at one place at most,
//! wherever a process dies and whatever two processes do at once.

use flowkeep_stores::drivers::memory::Memory;
use flowkeep_stores::migrate::Follower;
use flowkeep_stores::taking::{Taking, heir_of};
use flowkeep_stores::{
    Agency, Consistency, Defaults, Driver, Estate, Options, PartitionName, Store, Stores, Timers, Turns,
    Views,
};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;
use variables::open::{Element, Keeper, WorkerVariables};

const PATIENCE: Duration = Duration::from_secs(20);
/// The names of the timers' variables.
const NAMES: [&str; 1] = ["t"];
/// More than two chunks.
const MANY: u64 = 1200;
/// As many are in the first chunk.
const CHUNK: u64 = 512;

/// A member's process with one runtime, that a coordinator's view may have.
struct Process {
    memory: Memory,
    store: Store,
    worker: WorkerVariables,
    timers: Timers<u64, u8>,
    estate: Arc<Estate>,
    views: Arc<Views>,
    own: PartitionName,
    _agency: Agency,
}

fn name(member: &str, runtime: u32) -> PartitionName {
    PartitionName::new("f", member, runtime).unwrap()
}

fn names() -> Vec<String> {
    NAMES.map(str::to_owned).into()
}

impl Process {
    fn begin(memory: &Memory, member: &str, runtime: u32) -> Self {
        let (store, agency) = Store::start(Box::new(memory.clone()), PATIENCE, |_| ()).unwrap();
        let views = Arc::<Views>::default();
        let estate = Arc::new(Estate::of(&store, ("edge", member), &views));
        let stores = Stores {
            member: member.to_owned(),
            has_clock: false,
            usual: Some(Defaults {
                estate: Some(Arc::clone(&estate)),
                ..Defaults::new(store.clone(), Consistency::THROUGH)
            }),
            functions: Default::default(),
        };
        let mut variables = Keeper::of(Box::new(stores)).begin("f", runtime);
        let options = Options {
            capacity: 4096,
            consistency: Consistency::THROUGH,
        };
        let timers = variables.timers(NAMES[0], options).unwrap();
        let mut worker = WorkerVariables::default();
        worker.take(0, variables);
        Process {
            memory: memory.clone(),
            store,
            worker,
            timers,
            estate,
            views,
            own: name(member, runtime),
            _agency: agency,
        }
    }

    /// A member that has armed these, and dies.
    fn was_there(memory: &Memory, member: &str, keys: impl Iterator<Item = u64>) {
        let mut process = Process::begin(memory, member, 0);
        keys.for_each(|key| process.timers.arm(&key, key, 0).unwrap());
        assert!(process.worker.finish(PATIENCE));
        process.estate.arrive(1).unwrap();
    }

    /// Fires all that is due here.
    fn fire(&mut self) -> Vec<u64> {
        let fired = std::iter::from_fn(|| self.timers.fire(u64::MAX)).map(|(key, _)| key);
        let fired = fired.collect();
        assert!(self.worker.finish(PATIENCE));
        fired
    }

    fn taking(&self, from: &PartitionName) -> Taking {
        let seen = self.memory.clone().version(from).unwrap();
        let taking = Taking::begin(&self.store, from, &self.own, &names(), seen).unwrap();
        taking.expect("the version that was seen")
    }

    /// Arms timers and holds them, until the store has them.
    fn hold(&mut self, timers: &[Element]) {
        let (left, _) = self.worker.hold_timers(0, NAMES[0], timers.to_vec()).unwrap();
        assert!(left.is_empty() && self.worker.finish(PATIENCE));
    }

    fn release_timers(&mut self, are_ours: bool) {
        self.worker.release_timers(0, NAMES[0], are_ours).unwrap();
        assert!(self.worker.finish(PATIENCE));
    }

    /// Takes all that is left of a taking.
    fn take(&mut self, taking: &mut Taking) -> usize {
        let mut taken = 0;
        while let Some(chunk) = taking.take_some().unwrap() {
            self.hold(&chunk.timers);
            let are_ours = taking.commit(&[]).unwrap();
            self.release_timers(are_ours);
            taking.finish().unwrap();
            if !are_ours {
                break;
            }
            taken += chunk.timers.len();
        }
        taken
    }
}

/// The heir dies behind each of its steps; then it begins again, or another takes over what it and
/// the first have left.
#[test]
fn a_crash_at_any_point_leaves_each_timer_at_one_place() {
    for step in 0..6 {
        for is_third in [false, true] {
            let memory = Memory::default();
            Process::was_there(&memory, "left", 1..4);
            let mut heir = Process::begin(&memory, "right", 1);
            heir.timers.arm(&9, 9, 0).unwrap();
            heir.estate.arrive(2).unwrap();
            let mut taking = heir.taking(&name("left", 0));
            let chunk = (step > 0).then(|| taking.take_some().unwrap().unwrap());
            if step > 1 {
                heir.hold(&chunk.unwrap().timers);
                assert_eq!(heir.timers.len(), 4);
                assert_eq!(heir.timers.next_at(), Some(9), "what is held is not due");
            }
            if step > 2 {
                assert!(taking.commit(&[]).unwrap());
            }
            if step > 3 {
                heir.release_timers(true);
                assert_eq!(heir.timers.next_at(), Some(1));
            }
            if step > 4 {
                taking.finish().unwrap();
            }
            assert!(heir.worker.finish(PATIENCE));
            drop((heir, taking));
            let mut all = match is_third {
                false => Process::begin(&memory, "right", 1).fire(),
                true => {
                    let mut third = Process::begin(&memory, "third", 2);
                    third.views.tell(3, [(2, 30)].into_iter(), 30);
                    let mut turns = Turns::of(&third.estate);
                    let mut turn = turns
                        .turn("right", 2, third.views.number())
                        .unwrap()
                        .expect("a turn");
                    let right = [name("right", 1)];
                    assert!(turn.finish_takings(&right, &names()).unwrap());
                    let mut taking = turn.take(&right[0], &third.own, &names()).unwrap().unwrap();
                    third.take(&mut taking);
                    third.fire()
                }
            };
            let at_the_heir = all.len();
            assert_eq!(at_the_heir, if step > 2 { 4 } else { 1 }, "step {step}: {all:?}");
            all.extend(Process::begin(&memory, "left", 0).fire());
            all.sort_unstable();
            assert_eq!(all, [1, 2, 3, 9], "step {step}, {is_third}");
        }
    }
}

/// A store is copied while timers are taken over in it: the record of a taking that is over is gone
/// at the copy too.
#[test]
fn a_taking_that_is_over_is_over_in_a_copy() {
    let (memory, target) = (Memory::default(), Memory::default());
    Process::was_there(&memory, "left", 0..MANY);
    let mut heir = Process::begin(&memory, "right", 1);
    heir.estate.arrive(2).unwrap();
    let mut taking = heir.taking(&name("left", 0));
    let chunk = taking.take_some().unwrap().unwrap();
    heir.hold(&chunk.timers);
    assert!(taking.commit(&[]).unwrap());
    heir.release_timers(true);
    let (mut from, mut to) = (memory.clone(), target.clone());
    let are_alike = |(memory, target): (&Memory, &Memory)| {
        let records = |of: &Memory| of.clone().records().unwrap();
        assert_eq!(records(target), records(memory));
    };
    // An earlier copying ended here.
    Follower::new(&mut from, &mut to).pass().unwrap();
    taking.finish().unwrap();
    let mut copying = Follower::new(&mut from, &mut to);
    copying.pass().unwrap();
    are_alike((&memory, &target));
    let chunk = taking.take_some().unwrap().unwrap();
    heir.hold(&chunk.timers);
    assert!(taking.commit(&[]).unwrap());
    heir.release_timers(true);
    copying.pass().unwrap();
    are_alike((&memory, &target));
    taking.finish().unwrap();
    heir.take(&mut taking);
    copying.pass().unwrap();
    are_alike((&memory, &target));
    drop((heir, taking));
    let mut fired = Process::begin(&target, "right", 1).fire();
    fired.sort_unstable();
    assert_eq!(fired, (0..MANY).collect::<Vec<_>>());
    assert!(Process::begin(&target, "left", 0).fire().is_empty());
}

#[test]
fn of_two_that_take_one_has_each_timer() {
    let memory = Memory::default();
    Process::was_there(&memory, "left", 0..MANY);
    let left = name("left", 0);
    let (mut first, mut second) = (
        Process::begin(&memory, "right", 1),
        Process::begin(&memory, "third", 2),
    );
    let mut of_first = first.taking(&left);
    let chunk = of_first.take_some().unwrap().unwrap();
    first.hold(&chunk.timers);
    assert!(of_first.commit(&[]).unwrap());
    first.release_timers(true);
    of_first.finish().unwrap();
    // The first holds more, and the second takes all that is there.
    let chunk = of_first.take_some().unwrap().unwrap();
    first.hold(&chunk.timers);
    let mut of_second = second.taking(&left);
    assert_eq!(second.take(&mut of_second) as u64, MANY - CHUNK);
    assert!(!of_first.commit(&[]).unwrap());
    first.release_timers(false);
    of_first.finish().unwrap();
    let (first, second) = (first.fire(), second.fire());
    assert_eq!((first.len() as u64, second.len() as u64), (CHUNK, MANY - CHUNK));
    assert_eq!(
        first.into_iter().chain(second).collect::<BTreeSet<_>>().len() as u64,
        MANY
    );
    assert!(Process::begin(&memory, "left", 0).fire().is_empty());
}

#[test]
fn the_owner_that_begins_again_has_what_is_not_committed() {
    let memory = Memory::default();
    Process::was_there(&memory, "left", 0..MANY);
    let mut heir = Process::begin(&memory, "right", 1);
    let mut taking = heir.taking(&name("left", 0));
    let chunk = taking.take_some().unwrap().unwrap();
    heir.hold(&chunk.timers);
    assert!(taking.commit(&[]).unwrap());
    let mut owner = Process::begin(&memory, "left", 0);
    assert_eq!(owner.timers.len() as u64, MANY - CHUNK);
    // Its answer was lost, and it is asked again.
    assert!(taking.commit(&[]).unwrap());
    heir.release_timers(true);
    taking.finish().unwrap();
    let chunk = taking.take_some().unwrap().unwrap();
    heir.hold(&chunk.timers);
    // A timer that the heir arms itself meanwhile is its own.
    let own = chunk
        .timers
        .iter()
        .find_map(|(field, _)| variables::decoded::<u64>(field));
    heir.timers.arm(&own.unwrap(), 7, 1).unwrap();
    assert!(!taking.commit(&[]).unwrap());
    heir.release_timers(false);
    taking.finish().unwrap();
    assert_eq!(owner.fire().len() as u64, MANY - CHUNK);
    let fired = heir.fire();
    assert_eq!(fired.len() as u64, CHUNK + 1);
    assert!(fired.contains(&own.unwrap()));
    drop((heir, owner));
    assert!(Process::begin(&memory, "right", 1).fire().is_empty());
    assert!(Process::begin(&memory, "left", 0).fire().is_empty());
}

#[test]
fn a_member_that_begins_or_is_in_a_later_view_is_left_alone() {
    let memory = Memory::default();
    let right = Process::begin(&memory, "right", 1);
    right.views.tell(5, [(1, 20)].into_iter(), 20);
    assert!(!right.estate.knows("left").unwrap());
    let left = Process::begin(&memory, "left", 0);
    assert!(right.estate.knows("left").unwrap());
    let mut turns = Turns::of(&right.estate);
    assert!(
        turns.turn("left", 1, right.views.number()).unwrap().is_none(),
        "it begins"
    );
    left.estate.arrive(7).unwrap();
    assert!(
        turns.turn("left", 1, right.views.number()).unwrap().is_none(),
        "a later view has it"
    );
    right.views.tell(8, [(1, 20)].into_iter(), 20);
    let before = turns.turn("left", 1, 5).unwrap();
    assert!(before.is_none(), "by a view in which it may not have been");
    let mut turn = turns
        .turn("left", 1, right.views.number())
        .unwrap()
        .expect("a turn");
    assert!(turn.is_still_ours().unwrap());
    // The member begins again, and waits while the other has its turn.
    let (begun, has_begun) = std::sync::mpsc::channel();
    let again = {
        let memory = memory.clone();
        std::thread::spawn(move || {
            let left = Process::begin(&memory, "left", 0);
            begun.send(()).unwrap();
            left.estate.arrive(9).unwrap();
            drop(left);
        })
    };
    assert!(has_begun.recv_timeout(Duration::from_millis(300)).is_err());
    turn.end().unwrap();
    has_begun.recv_timeout(PATIENCE).unwrap();
    again.join().unwrap();
    // The turn is over, whatever came behind it.
    assert!(turns.turn("left", 1, right.views.number()).unwrap().is_none());
    // A view that comes meanwhile ends a turn.
    right.views.tell(10, [(1, 20)].into_iter(), 20);
    let mut turn = turns
        .turn("left", 1, right.views.number())
        .unwrap()
        .expect("a turn");
    right.views.tell(11, [(0, 3), (1, 20)].into_iter(), 20);
    assert!(!turn.is_still_ours().unwrap());
    let from = name("left", 0);
    assert!(turn.take(&from, &right.own, &names()).unwrap().is_none());
}

/// From a member that takes timers over itself none is taken, until that is settled.
#[test]
fn what_is_under_way_to_a_member_is_not_taken_from_it() {
    let memory = Memory::default();
    Process::was_there(&memory, "left", 0..3);
    let mid = Process::begin(&memory, "mid", 1);
    let mut taking = mid.taking(&name("left", 0));
    taking.take_some().unwrap().unwrap();
    let right = Process::begin(&memory, "right", 2);
    let seen = memory.clone().version(&mid.own).unwrap();
    let begun = Taking::begin(&right.store, &mid.own, &right.own, &names(), seen).unwrap();
    assert!(begun.is_none());
}

/// The function used the same key before, and does meanwhile.
#[test]
fn a_timer_that_is_held_is_due_only_as_the_function_arms_it() {
    let memory = Memory::default();
    Process::was_there(&memory, "left", 1..4);
    let mut heir = Process::begin(&memory, "right", 1);
    // The timer was armed for the same time here, with the same number, and cancelled.
    heir.timers.arm(&1, 1, 0).unwrap();
    heir.timers.cancel(&1).unwrap();
    let mut taking = heir.taking(&name("left", 0));
    let chunk = taking.take_some().unwrap().unwrap();
    heir.hold(&chunk.timers);
    assert!(heir.fire().is_empty());
    heir.timers.arm(&2, 7, 1).unwrap();
    // All are put in order again.
    heir.hold(&[]);
    assert_eq!(heir.fire(), [2]);
    assert!(taking.commit(&[]).unwrap());
    heir.release_timers(true);
    assert_eq!(heir.fire(), [1, 3]);
}

/// Another process has the heir's partition: it takes none, and says so.
#[test]
fn an_heir_that_is_fenced_takes_none() {
    let memory = Memory::default();
    Process::was_there(&memory, "left", 0..3);
    let mut heir = Process::begin(&memory, "right", 1);
    assert_eq!(heir.worker.timer_names(), [(0, names())]);
    let mut taking = heir.taking(&name("left", 0));
    let chunk = taking.take_some().unwrap().unwrap();
    memory.clone().claim(&heir.own, 0).unwrap();
    let (_, change) = heir.worker.hold_timers(0, NAMES[0], chunk.timers).unwrap();
    assert!(!heir.worker.finish(Duration::from_secs(2)));
    assert_eq!(heir.worker.are_timers_stored(0, NAMES[0], change), None);
    assert_eq!(heir.worker.timer_names(), [(0, Vec::new())]);
    // The timers are where they were.
    drop((heir, taking));
    assert_eq!(Process::begin(&memory, "left", 0).fire(), [0, 1, 2]);
}

/// A member that waits to begin has its turn while another takes for long.
#[test]
fn a_turn_is_over_after_some_seconds() {
    let memory = Memory::default();
    Process::was_there(&memory, "left", 0..3);
    let right = Process::begin(&memory, "right", 1);
    right.views.tell(5, [(1, 20)].into_iter(), 20);
    let mut turns = Turns::of(&right.estate);
    let mut turn = turns.turn("left", 1, 5).unwrap().expect("a turn");
    let began = std::time::Instant::now();
    while turn.is_still_ours().unwrap() {
        assert!(began.elapsed() < PATIENCE, "it has no end");
        std::thread::sleep(Duration::from_millis(50));
    }
    assert!(began.elapsed() > Duration::from_secs(4));
}

/// A store that lost which members have begun is told again.
#[test]
fn a_member_that_is_there_is_known_again() {
    let memory = Memory::default();
    let left = Process::begin(&memory, "left", 0);
    left.estate.arrive(3).unwrap();
    let lock = memory.clone().records().unwrap();
    let lock = lock.iter().find(|name| name.starts_with("lock/")).unwrap();
    let has = memory.clone().record(lock).unwrap();
    memory.clone().swap(lock, has.as_deref(), None).unwrap();
    assert!(!left.estate.knows("left").unwrap());
    assert!(left.estate.arrive(4).unwrap());
    assert!(left.estate.knows("left").unwrap());
}

/// A member was killed while its runtime 0 armed what its runtime 1 had left.
#[test]
fn a_timer_that_a_member_has_twice_is_taken_once() {
    let memory = Memory::default();
    Process::was_there(&memory, "left", 0..3);
    {
        let other = Process::begin(&memory, "left", 1);
        let mut elements = Vec::new();
        let variable = name("left", 0)
            .variable(flowkeep_stores::Kind::Timers, NAMES[0])
            .unwrap();
        let load = &mut |field: &[u8], value: &[u8]| elements.push((field.to_vec(), value.to_vec()));
        memory.clone().load(&variable, load).unwrap();
        let mut other = other;
        other.hold(&elements);
        other.release_timers(true);
        other.estate.arrive(2).unwrap();
    }
    let mut heir = Process::begin(&memory, "right", 2);
    heir.views.tell(3, [(2, 30)].into_iter(), 30);
    let partitions = heir
        .estate
        .left("f", &names(), |member| member == "left")
        .unwrap();
    let partitions = partitions["left"].clone();
    assert_eq!(partitions, [name("left", 0), name("left", 1)]);
    let mut turns = Turns::of(&heir.estate);
    let mut turn = turns
        .turn("left", 2, heir.views.number())
        .unwrap()
        .expect("a turn");
    assert!(!turn.finish_takings(&partitions, &names()).unwrap());
    assert!(turn.finish_takings(&partitions, &names()).unwrap());
    for from in &partitions {
        let mut taking = turn.take(from, &name("right", 2), &names()).unwrap().unwrap();
        heir.take(&mut taking);
    }
    let mut fired = heir.fire();
    fired.sort_unstable();
    assert_eq!(fired, [0, 1, 2]);
}

#[test]
fn one_runtime_of_a_view_is_a_members_heir() {
    let all: Vec<u32> = (0..8).collect();
    let mut heirs = BTreeSet::new();
    for member in 0..200 {
        let member = format!("node-{member}");
        let heir = heir_of(&member, &all).unwrap();
        heirs.insert(heir);
        let backwards: Vec<u32> = all.iter().rev().copied().collect();
        assert_eq!(heir_of(&member, &backwards), Some(heir));
        // The heir stays while others go.
        let fewer: Vec<u32> = all
            .iter()
            .copied()
            .filter(|other| *other == heir || other % 2 == 0)
            .collect();
        assert_eq!(heir_of(&member, &fewer), Some(heir));
    }
    assert_eq!(heirs.len(), all.len(), "all take their part");
    assert_eq!(heir_of("m", &[]), None);
}
