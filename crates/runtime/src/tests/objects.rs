//! Objects that functions share: the common count of runtimes is exact, through moves, runtimes
//! that come and go, and a failing runtime.

mod listed;
mod merged;
mod random;
mod single;

use super::failing::Process;
use super::*;
use crate::mobility::{MoveOrder, Selector};
use crate::stats::ObjectStats;
use core::time::Duration;
use nf::objects::{Ended, Objects, ObjectsHere, Shared, SharedObject, Single, SingleWriter};
use nf::variables::Variables;
use nf::{Cx, FlowState, Packet, Plain, Verdict, WorkerInfo, network_function};
use protocols::membership::Incarnation;
use protocols::objects::{Conductor, Decision, Members};
use protocols::ownership::RuntimeId;
use std::sync::Arc;
use std::vec;

/// Packets to one host outside that are let through, by all runtimes together.
const LIMIT: u64 = 100;

/// A content that is longer than a frame.
#[derive(Plain, Clone, Copy, Debug)]
#[repr(C)]
struct Total {
    packets: u64,
    filling: [u64; 300],
}

impl Default for Total {
    fn default() -> Self {
        Total {
            packets: 0,
            filling: [7; 300],
        }
    }
}

impl SharedObject for Total {
    type Call = u64;
    type Answer = u64;
    fn apply(&mut self, by: &u64) -> u64 {
        assert_eq!(self.filling, [7; 300]);
        self.packets += by;
        self.packets
    }
    fn read(&self, _: &u64) -> u64 {
        self.packets
    }
    fn merge(earlier: &mut u64, later: &u64) -> bool {
        *earlier += later;
        true
    }
}

impl SingleWriter for Total {
    type Call = u64;
    type Answer = u64;
    fn read(&self, _: &u64) -> u64 {
        assert_eq!(self.filling, [7; 300]);
        self.packets
    }
}

/// Ends when it was not called for long.
#[derive(Plain, Default, Clone, Copy, Debug)]
#[repr(C)]
struct Brief {
    packets: u64,
}

impl SharedObject for Brief {
    type Call = u64;
    type Answer = u64;
    const IDLE: Option<Duration> = Some(Duration::from_millis(10));
    fn apply(&mut self, by: &u64) -> u64 {
        self.packets += by;
        self.packets
    }
    fn read(&self, _: &u64) -> u64 {
        self.packets
    }
}

/// Lets so many packets through to each host outside, and says how many by a payload of one byte:
/// `r` reads that without a change, `s` sends a change, `m` merges it with others, `x` removes the
/// object. `g`, `f`, `q` and `y` count with one writer: `g` waits until its change is copied, `f`
/// does not, `q` reads, `y` removes. `i` counts with an object that ends by time.
struct Limit {
    hosts: Shared<Total>,
    totals: Single<Total>,
    brief: Shared<Brief>,
}

#[network_function]
impl Limit {
    /// Calls of objects of one writer.
    async fn single(&self, what: u8, key: &[u8], cx: &mut Cx<Self>) -> Verdict {
        let counted = match what {
            b'q' => {
                let count = self.totals.read(cx, key, &0, Duration::ZERO).await;
                cx.count_by("read", count.unwrap_or(u64::MAX));
                Ok(())
            }
            b'y' => self.totals.remove(cx, key).await,
            _ => match self.totals.get(cx, key).await {
                Ok(mut held) => {
                    assert_eq!(held.filling, [7; 300]);
                    held.packets += 1;
                    match what {
                        b'g' => held.release(cx).await,
                        _ => Ok(()),
                    }
                }
                Err(ended) => Err(ended),
            },
        };
        match counted {
            Ok(()) => Verdict::Forward,
            Err(_) => cx.drop("late"),
        }
    }
}

#[derive(FlowState, Default, Clone, Copy, Debug)]
#[repr(C)]
struct Seen {
    packets: u64,
}

#[network_function]
impl NetworkFunction for Limit {
    const NAME: &'static str = "limit";
    const REASONS: &'static [&'static str] = &["over", "late", "removed"];
    const COUNTERS: &'static [&'static str] = &["read", "lost"];
    const TABLES: &'static [nf::Table] = &[nf::Table {
        name: "objects",
        columns: &[
            ("kind", nf::Adds::Name),
            ("host", nf::Adds::Name),
            ("packets", nf::Adds::Sum),
        ],
        top: 0,
        metrics: &[],
    }];
    type Config = NoConfig;
    type Flow = Seen;
    type Group = ();

    fn with_objects(
        _: &Arc<NoConfig>,
        _: &WorkerInfo,
        _: &mut Variables,
        objects: &mut Objects<'_>,
    ) -> Result<Self, ConfigError> {
        Ok(Limit {
            hosts: objects.open("hosts")?,
            totals: objects.open_single("totals")?,
            brief: objects.open("brief")?,
        })
    }

    async fn process(&self, packet: &mut Packet, flow: &mut Seen, cx: &mut Cx<Self>) -> Verdict {
        let key = *packet.destination().addr.octets();
        flow.packets += 1;
        let stale = core::time::Duration::ZERO;
        match packet.payload().first() {
            Some(b'r') => {
                let count = self.hosts.read(cx, &key, &0, stale).await.unwrap_or(u64::MAX);
                cx.count_by("read", count);
                return Verdict::Forward;
            }
            Some(b's') => {
                assert_eq!(self.hosts.send(&key, &1), Ok(()));
                return Verdict::Forward;
            }
            Some(what @ (b'g' | b'f' | b'q' | b'y')) => return self.single(*what, &key, cx).await,
            Some(b'i') => {
                let count = self.brief.update(cx, &key, &1).await.unwrap_or(u64::MAX);
                cx.count_by("read", count);
                return Verdict::Forward;
            }
            Some(b'm') => {
                return match self.hosts.merge(&key, &1) {
                    Ok(()) => Verdict::Forward,
                    Err(_) => cx.drop("late"),
                };
            }
            Some(b'x') => {
                assert_eq!(self.hosts.remove(cx, &key).await, Ok(()));
                return cx.drop("removed");
            }
            _ => {}
        }
        match self.hosts.update(cx, &key, &1).await {
            Ok(..=LIMIT) => Verdict::Forward,
            Ok(_) => cx.drop("over"),
            Err(Ended::Unknown) => {
                cx.count("lost");
                cx.drop("late")
            }
            Err(_) => cx.drop("late"),
        }
    }

    fn object_rows(&self, _: &str, _: usize, here: ObjectsHere<'_>) -> Vec<nf::Row> {
        let row = |kind: &'static str| {
            move |(key, total): (&[u8], Total)| nf::row![kind, u64::from(key[15]), total.packets]
        };
        let shared = here.iter(&self.hosts).map(row("shared"));
        shared.chain(here.iter(&self.totals).map(row("single"))).collect()
    }
}

struct World {
    process: Process,
    conductor: Conductor,
}

fn set(runtimes: impl IntoIterator<Item = u16>) -> Members {
    let all = runtimes.into_iter().map(RuntimeId);
    all.fold(Members::NONE, Members::with)
}

impl World {
    /// So many runtimes, of which these share objects from the start.
    fn new(runtimes: usize, members: Members) -> Self {
        let mut process = Process::new(2, runtimes, false, plan(vec![factory::<Limit>()]));
        for runtime in process.runtimes.iter_mut().flatten() {
            runtime.share_objects(1, members, 1);
        }
        World {
            process,
            conductor: Conductor::new(1, members),
        }
    }

    /// Time passes, so that all due work is done.
    fn pass(&mut self) {
        for _ in 0..20 {
            self.process.now += 100_000;
            self.process.run_until_quiet();
        }
    }

    /// So much time passes that all merged calls have gone.
    fn pass_merged(&mut self) {
        for _ in 0..8 {
            self.pass();
        }
    }

    /// Tells the runtimes what they are to be told, and hears what they have reached.
    fn tell(&mut self) {
        let (to, told) = self.conductor.directive();
        for to in to.iter() {
            let runtime = self.process.runtimes[usize::from(to.0)].as_mut().unwrap();
            if let Some(stage) = runtime.objects_reached() {
                self.conductor.note_reached(to, stage);
            }
            runtime.handle_directive(&told);
        }
    }

    /// Has the runtimes go through what they are to be told.
    fn conduct(&mut self) {
        for _ in 0..100 {
            self.tell();
            self.pass();
            if self.conductor.has_reached_all() {
                return;
            }
        }
        panic!("it is never settled: {:?}", self.conductor);
    }

    /// The next of a runtime's number begins, and is to be a member.
    fn begin(&mut self, runtime: u16, incarnation: u64) {
        let (view, members) = self.conductor.view();
        let begun = self.process.runtimes[usize::from(runtime)].as_mut().unwrap();
        begun.share_objects(view, members, incarnation);
        assert!(self.conductor.change(members.with(RuntimeId(runtime))));
    }

    /// Packets that left to a host outside.
    fn sent_to(&mut self, host: u8) -> u64 {
        let sent = self.process.sent().into_iter();
        sent.filter(|(_, frame)| frame[16..20] == [192, 0, 2, host])
            .count() as u64
    }

    fn feed(&mut self, packets: impl IntoIterator<Item = super::Sent>) {
        self.process.feed(0, packets);
        self.pass();
    }

    fn dropped(&self, name: &str) -> u64 {
        let runtimes = self.process.runtimes.iter().flatten();
        let dropped = runtimes.flat_map(|runtime| runtime.stats().dropped);
        dropped
            .filter(|named| named.name == name)
            .map(|named| named.count)
            .sum()
    }

    fn counted(&self, name: &str) -> u64 {
        let runtimes = self.process.runtimes.iter().flatten();
        let counted = runtimes.flat_map(|runtime| runtime.stats().counters);
        counted
            .filter(|named| named.name == name)
            .map(|named| named.count)
            .sum()
    }

    /// Each runtime's figures of a kind.
    fn kind(&self, name: &str) -> Vec<ObjectStats> {
        let runtimes = self.process.runtimes.iter().flatten();
        let all = runtimes.flat_map(|runtime| runtime.stats().objects);
        all.filter(|of| of.kind == name).collect()
    }

    fn kinds(&self) -> Vec<ObjectStats> {
        self.kind("hosts")
    }

    /// The count of reads that one more packet with this payload makes.
    fn count(&mut self, what: &[u8], port: u16, host: u8) -> u64 {
        let before = self.counted("read");
        self.feed([udp(9, port, host, 53, false, what)]);
        self.counted("read") - before
    }

    /// The count that one more packet reads.
    fn read(&mut self, port: u16) -> u64 {
        let before = self.counted("read");
        self.feed([udp(9, port, 1, 53, false, b"r")]);
        self.counted("read") - before
    }

    fn sent(&mut self) -> u64 {
        self.process.sent().len() as u64
    }
}

/// A packet of each of so many flows to one host.
fn packets(ports: core::ops::Range<u16>) -> impl Iterator<Item = super::Sent> {
    ports.map(|port| udp(1, port, 1, 53, false, b"u"))
}

#[test]
fn a_count_is_exact_over_all_runtimes() {
    let mut world = World::new(3, set(0..3));
    world.feed(packets(1000..1090));
    assert_eq!((world.sent(), world.read(1)), (90, 90));
    world.feed(packets(1080..1180));
    // One packet has read.
    assert_eq!((world.sent(), world.dropped("over")), (LIMIT + 1, 90));
    let flows: Vec<u64> = world
        .process
        .runtimes
        .iter()
        .flatten()
        .map(|r| r.stats().flows)
        .collect();
    assert!(flows.iter().all(|flows| *flows > 10), "{flows:?}");
    let asked = world
        .process
        .runtimes
        .iter()
        .flatten()
        .map(|r| r.objects().unwrap());
    let asked: Vec<_> = asked.collect();
    assert_eq!(asked.iter().map(|figures| figures.calls).sum::<u64>(), 191);
    assert_eq!(
        asked
            .iter()
            .map(|figures| (figures.unanswered, figures.refused))
            .max(),
        Some((0, 0))
    );
    let kinds: Vec<_> = world.kinds();
    let sum = |of: fn(&ObjectStats) -> u64| kinds.iter().map(of).sum::<u64>();
    // One object, 190 updates and a read; two of three runtimes asked for each over a message.
    assert_eq!(
        (kinds.len(), sum(|of| of.objects), sum(|of| of.copies)),
        (3, 1, 1)
    );
    assert_eq!(sum(|of| of.bytes), 2 * size_of::<Total>() as u64);
    assert_eq!((sum(|of| of.calls[0]), sum(|of| of.calls[4])), (190, 1));
    assert!(sum(|of| of.remote) > 100 && sum(|of| of.copied) > 1);
    assert_eq!((sum(|of| of.failed), sum(|of| of.moves)), (0, 0));
    world.process.assert_conserved("exact");
    world.process.assert_all_is_home("exact");
}

#[test]
fn a_count_is_exact_while_flows_move() {
    let mut world = World::new(3, set(0..3));
    for round in 0..4 {
        world.process.feed(0, packets(1000..1060));
        let from = round % 3;
        for to in (0..3).filter(|to| *to != from) {
            let order = MoveOrder {
                selector: Selector::All,
                to: vec![to as u16],
            };
            world.process.runtimes[from]
                .as_mut()
                .unwrap()
                .order(order)
                .unwrap();
        }
        // Calls are made while their groups are on their way.
        world.process.switches[0]
            .port_mut(0)
            .input
            .extend(packets(1030..1050));
        world.pass();
    }
    let moved: u64 = world
        .process
        .runtimes
        .iter()
        .flatten()
        .map(|r| r.stats().flows_moved[1])
        .sum();
    assert!(moved > 60, "{moved} flows moved");
    assert_eq!((world.sent(), world.dropped("over")), (LIMIT, 320 - LIMIT));
    assert_eq!(world.read(1), 320);
    world.process.assert_all_is_home("moves");
}

#[test]
fn what_is_sent_is_counted_and_what_is_removed_begins_as_the_default() {
    let mut world = World::new(2, set(0..2));
    world.feed((1000..1040).map(|port| udp(1, port, 1, 53, false, b"s")));
    assert_eq!(world.read(1), 40);
    world.feed([udp(1, 1, 1, 53, false, b"x")]);
    assert_eq!(world.read(2), 0);
    world.feed(packets(1000..1003));
    assert_eq!(world.read(3), 3);
    world.process.assert_all_is_home("sent");
}

#[test]
fn no_acknowledged_update_is_lost_with_a_runtime() {
    for failing in 0..3 {
        let mut world = World::new(3, set(0..3));
        world.feed(packets(1000..1050));
        assert_eq!(world.sent(), 50);
        // It fails in the middle of calls.
        world.process.switches[0]
            .port_mut(0)
            .input
            .extend(packets(1050..1080));
        for step in 0..7 {
            world.process.now += 1000;
            world.process.step(step % 5);
        }
        world.process.fail(failing);
        world.process.run_until_quiet();
        world.conductor.fail(set([failing as u16]));
        world.conduct();
        let (sent, lost) = (world.sent(), world.counted("lost"));
        let count = world.read(1);
        assert!(
            count >= sent && count <= 80,
            "{failing}: {sent} left, {count} counted, {lost} lost"
        );
        // The next of its number joins.
        world.process.follow(failing);
        world.begin(failing as u16, 2);
        world.conduct();
        assert_eq!(world.read(2), count);
        world.feed(packets(2000..2100));
        assert_eq!(world.read(3), count + 100);
        assert!(world.sent() <= LIMIT + 3);
        world.process.assert_all_is_home("failure");
    }
}

#[test]
fn a_runtime_that_leaves_takes_no_object_with_it() {
    let mut world = World::new(3, set(0..3));
    world.feed(packets(1000..1050));
    for leaving in 0..3 {
        assert!(
            world
                .conductor
                .change(set((0..3).filter(|runtime| *runtime != leaving)))
        );
        world.conduct();
        let left = world.process.runtimes[usize::from(leaving)].as_ref().unwrap();
        assert_eq!(left.objects().unwrap().keys, 0);
        let moves: u64 = world.kinds().iter().map(|of| of.moves).sum();
        assert!(moves <= u64::from(leaving) + 1, "{moves} moves of one object");
        // It comes back as another incarnation, and its flows' calls wait for that.
        world.begin(leaving, u64::from(leaving) + 2);
        world.process.feed(0, packets(1000..1010));
        world.conduct();
    }
    assert_eq!(world.read(1), 80);
    assert_eq!(world.dropped("late"), 0);
    world.process.assert_all_is_home("leaving");
}

/// A call that waits borrows its function's handle until it is dropped.
#[test]
fn a_runtime_ends_while_calls_wait() {
    let mut world = World::new(2, Members::NONE);
    world.feed(packets(1000..1010));
    let asked = world.process.runtimes.iter().flatten().map(|r| r.stats().waiting);
    assert_eq!(asked.sum::<u64>(), 10);
    drop(world);
}

/// Decisions of a coordinator bring runtimes in, one after another, and a message goes to the
/// incarnation that its sender's newest decision means, or to none.
#[test]
fn decisions_bring_runtimes_in_and_say_which_incarnations_are_meant() {
    let mut world = World::new(2, Members::NONE);
    for runtime in world.process.runtimes.iter_mut().flatten() {
        // No incarnation is said at the ends of links without views: 0.
        runtime.share_objects(0, Members::NONE, 0);
        assert!(runtime.has_left_objects());
    }
    let decision = |conductor: &Conductor, incarnations: [u64; 2]| {
        let course = conductor.course();
        let incarnation = |runtime: RuntimeId| (runtime, Incarnation(incarnations[usize::from(runtime.0)]));
        let incarnations = course.everyone().iter().map(incarnation).collect();
        Decision { course, incarnations }
    };
    // Calls that come before wait.
    world.feed(packets(1000..1010));
    assert_eq!(world.sent(), 0);
    let mut conductor = Conductor::new(1, set([0]));
    for round in 0..20 {
        let decision = decision(&conductor, [0, 0]);
        for (number, runtime) in (0..).zip(world.process.runtimes.iter_mut().flatten()) {
            runtime.handle_decision(&decision);
            if let Some(stage) = runtime.objects_reached() {
                conductor.note_reached(RuntimeId(number), stage);
            }
        }
        world.pass();
        if round == 0 {
            assert!(conductor.change(set(0..2)));
        }
    }
    assert!(conductor.has_reached_all() && conductor.view().1 == set(0..2));
    assert_eq!((world.sent(), world.read(1)), (10, 10));
    let left = world
        .process
        .runtimes
        .iter()
        .flatten()
        .map(Runtime::has_left_objects);
    assert_eq!(left.collect::<Vec<_>>(), [false, false]);
    // To runtime 0 another incarnation is meant than the one at the link's end: nothing goes there.
    assert!(conductor.change(set([1])));
    let runtime = world.process.runtimes[0].as_mut().unwrap();
    runtime.handle_decision(&decision(&conductor, [0, 7]));
    world.feed(packets(2000..2010));
    let answered = world.sent();
    assert!(
        answered < 21,
        "{answered} packets, of which some ask at the other runtime"
    );
    // An older decision changes nothing.
    let runtime = world.process.runtimes[0].as_mut().unwrap();
    let before = runtime.objects_reached();
    runtime.handle_decision(&Decision::default());
    assert_eq!(runtime.objects_reached(), before);
}

#[test]
fn what_is_no_message_is_refused() {
    let mut world = World::new(2, set(0..2));
    world.feed(packets(1000..1020));
    let runtime = world.process.runtimes[0].as_mut().unwrap();
    let refused = |runtime: &Runtime<super::failing::Ring>| runtime.stats().words_refused;
    let before = refused(runtime);
    runtime.take_object(1, true, b"");
    runtime.take_object(1, true, &[255; 40]);
    // A copy whose content is too short for its kind.
    let copy = [&[14, 0, 0, 1, 1][..], &[0; 30], &[0, 0, 0, 2, 1, 1, 0]].concat();
    runtime.take_object(1, true, &copy);
    assert_eq!(refused(runtime), before + 3);
    // More than a message has.
    for _ in 0..40 {
        runtime.take_object(1, false, &[1; 1000]);
    }
    assert_eq!(refused(runtime), before + 3);
    runtime.take_object(1, true, &[1; 1000]);
    assert_eq!(refused(runtime), before + 4);
    // From runtimes that there are not.
    runtime.take_object(77, true, &[18, 0, 0, 0, 9]);
    runtime.take_object(1, true, &[18, 0, 0, 0, 0]);
    assert_eq!(world.read(1), 20);
}

#[test]
fn without_shared_objects_there_is_no_part() {
    let mut process = Process::new(1, 2, false, plan(vec![factory::<super::flows::Hosts>()]));
    for runtime in process.runtimes.iter_mut().flatten() {
        runtime.share_objects(1, set(0..2), 1);
        assert_eq!((runtime.object_kinds().len(), runtime.objects()), (0, None));
    }
}
