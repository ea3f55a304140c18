//! Routes of a group that its source takes back, key by key.

use super::*;
use crate::message::{Reroute, Taken};
use crate::replica::BROKEN;
use crate::switch::Policy;
use crate::tests::QueuePort;
use nf::{Addr, Block};
use protocols::membership::View;
use protocols::ownership::SwitchMessage;
use std::vec;

const SOURCE: usize = 0;
const TARGET: usize = 1;
const HEIR: usize = 2;
const MOVED: Epoch = Epoch { view: 0, count: 1 };
const BACK: Epoch = Epoch { view: 0, count: 2 };

fn key(port: u64) -> GroupKey {
    GroupKey::of_flow(FlowKey::from_words([4, port, 0, 0, 0]))
}

struct Rig {
    directory: Directory,
    outbox: Outbox<QueuePort>,
    /// The target's incarnation that has agreed to have groups.
    agreed: u64,
}

impl Rig {
    /// Keys of a group, whose own key has its home elsewhere, lead from the source to the target.
    fn moved(keys: &[GroupKey]) -> Rig {
        let mut rig = Rig::at_source(keys);
        rig.reroute(keys, [SOURCE, TARGET], MOVED, Taken::Not);
        for key in keys {
            assert_eq!(rig.leads(key), Some(TARGET as u16));
        }
        rig
    }

    fn at_source(keys: &[GroupKey]) -> Rig {
        let settings = SwitchSettings {
            switch: 0,
            switches: 2,
            seed: HashSeed::FIXED,
            routes_max: 64,
            policy: Policy::RoundRobin,
            fragments_max: 64,
            packet_clock: false,
            lead_max: u64::MAX,
            recovery_max: 1000,
            patient: true,
            egress: [None; 2],
            now: 0,
        };
        let links = (0..3).map(|_| QueuePort::default()).collect();
        let mut rig = Rig {
            directory: Directory::new(&settings, Affinity::Flow, 3, &mut Region::heap),
            outbox: Outbox::new(links, vec![None, None], 1000),
            agreed: 0,
        };
        (0..3).for_each(|runtime| rig.directory.came(runtime));
        for key in keys {
            rig.routed(SOURCE, *key, false);
        }
        rig
    }

    fn routed(&mut self, runtime: usize, key: GroupKey, is_heir: bool) {
        let is_heir_of = |failed| is_heir && failed == TARGET;
        self.directory
            .routed(runtime, key, is_heir_of, || false, &mut self.outbox);
    }

    /// The source says all keys.
    fn reroute(&mut self, keys: &[GroupKey], [from, to]: [usize; 2], epoch: Epoch, taken: Taken) {
        for (at, key) in keys.iter().enumerate() {
            let reroute = Reroute {
                group: self::key(0),
                key: *key,
                from: RuntimeId(from as u16),
                to: RuntimeId(to as u16),
                incarnation: if to == TARGET { self.agreed } else { 0 },
                epoch,
                is_last: at + 1 == keys.len(),
                taken,
            };
            self.directory.reroute(SOURCE, &reroute, false, &mut self.outbox);
        }
    }

    fn take_back(&mut self, keys: &[GroupKey]) {
        self.reroute(keys, [TARGET, SOURCE], BACK, Taken::Back);
    }

    fn target_goes(&mut self) {
        self.directory.leave(TARGET);
        self.directory.suspend(TARGET, true);
    }

    fn leads(&self, key: &GroupKey) -> Option<u16> {
        let keys = self.directory.keys();
        keys.iter().find(|(known, _)| known == key).map(|(_, to)| *to)
    }

    /// How often the source was answered that all keys are back.
    fn answers(&self) -> usize {
        let back = Message::Switch(key(0), SwitchMessage::Rerouted(BACK));
        let messages = self.outbox.messages_for(SOURCE);
        messages.filter(|message| **message == back).count()
    }
}

/// A flow of the group has ended at the target, with its reply key; another's waits for the heir.
fn is_answered_too_early() -> bool {
    let keys = [key(1), key(2)];
    let mut rig = Rig::moved(&keys);
    rig.directory
        .installed(TARGET, (keys[1], MOVED), || false, &mut rig.outbox);
    rig.directory.group_empty(TARGET, keys[1], 1000);
    assert_eq!(rig.leads(&keys[1]), None);
    rig.target_goes();
    rig.take_back(&keys);
    let is_early = rig.answers() > 0;
    // The answer for another group is not held back by it.
    rig.take_back(&keys[1..]);
    assert_eq!(rig.answers(), 1 + usize::from(is_early));
    // The heir has nothing of the group.
    rig.directory.suspend(TARGET, false);
    rig.take_back(&keys);
    assert_eq!(rig.answers(), 2 + usize::from(is_early));
    is_early
}

#[test]
fn a_key_that_waits_for_an_heir_holds_the_answer_for_all_back() {
    assert!(!is_answered_too_early());
    BROKEN.set("a key that waits holds the answer back");
    let is_early = is_answered_too_early();
    BROKEN.set("");
    assert!(is_early, "a rule that is broken is noticed");
}

#[test]
fn a_source_is_fenced_when_the_heir_has_the_key_that_waited() {
    let keys = [key(1), key(2)];
    let mut rig = Rig::moved(&keys);
    rig.target_goes();
    rig.take_back(&keys);
    rig.routed(HEIR, keys[0], true);
    rig.routed(HEIR, keys[1], true);
    assert_eq!(rig.leads(&keys[1]), Some(HEIR as u16));
    rig.directory.suspend(TARGET, false);
    rig.take_back(&keys);
    // Not of reply keys, which may be another flow's; but no route is the source's.
    assert_eq!(keys.map(|key| rig.leads(&key)), [Some(HEIR as u16); 2]);
}

/// Where a key leads that has no route when its source takes the group back, and is answered.
fn leads_without_a_route() -> Option<u16> {
    let mut rig = Rig::at_source(&[]);
    rig.target_goes();
    rig.directory.suspend(TARGET, false);
    rig.take_back(&[key(1)]);
    assert_eq!(rig.answers(), 1);
    rig.leads(&key(1))
}

#[test]
fn what_is_taken_back_has_a_route_with_the_answer() {
    assert_eq!(leads_without_a_route(), Some(SOURCE as u16));
    BROKEN.set("what is taken back has a route at once");
    let leads = leads_without_a_route();
    BROKEN.set("");
    assert_eq!(leads, None, "a rule that is broken is noticed");
}

/// Where a key leads when an incarnation of the target has agreed to have it, and the switch has
/// met another incarnation, or an incarnation of no view.
fn leads_to_another_incarnation(agreed: u64, met: u64) -> Option<u16> {
    let keys = [key(1)];
    let mut rig = Rig::at_source(&keys);
    let view = View::new(1, vec![]);
    rig.outbox.note_incarnation(TARGET, met, 2, &view);
    rig.agreed = agreed;
    rig.reroute(&keys, [SOURCE, TARGET], MOVED, Taken::Not);
    rig.leads(&keys[0])
}

#[test]
fn a_route_turns_to_the_incarnation_of_a_target_that_has_agreed() {
    let [source, target] = [SOURCE, TARGET].map(|runtime| Some(runtime as u16));
    for (agreed, met, leads) in [
        (1, 1, target),
        (1, 2, source),
        (2, 1, source),
        (0, 1, target),
        (1, 0, target),
    ] {
        assert_eq!(
            leads_to_another_incarnation(agreed, met),
            leads,
            "{agreed} agreed, {met} is met"
        );
    }
    BROKEN.set("a target's incarnation is named");
    let leads = leads_to_another_incarnation(1, 2);
    BROKEN.set("");
    assert_eq!(leads, target, "a rule that is broken is noticed");
}

/// The same without views, where the target that is met has said which incarnation it is.
fn leads_to_another_that_has_said_so(agreed: u64, said: u64) -> Option<u16> {
    let keys = [key(1)];
    let mut rig = Rig::at_source(&keys);
    rig.outbox.note_said(TARGET, said);
    rig.agreed = agreed;
    rig.reroute(&keys, [SOURCE, TARGET], MOVED, Taken::Not);
    rig.leads(&keys[0])
}

#[test]
fn a_route_turns_to_the_incarnation_that_has_said_so_without_views() {
    let [source, target] = [SOURCE, TARGET].map(|runtime| Some(runtime as u16));
    for (agreed, said, leads) in [
        (1, 1, target),
        (1, 2, source),
        (2, 1, source),
        (0, 1, target),
        (1, 0, target),
    ] {
        let led = leads_to_another_that_has_said_so(agreed, said);
        assert_eq!(led, leads, "{agreed} agreed, {said} is met");
    }
}

/// Where a key leads when the target has failed before it said that it has the group, and its next
/// incarnation says so of it.
fn leads_behind_a_next_incarnation(is_back: bool) -> Option<u16> {
    let keys = [key(1)];
    let mut rig = Rig::moved(&keys);
    rig.target_goes();
    rig.directory.came(TARGET);
    rig.directory
        .installed(TARGET, (keys[0], MOVED), || is_back, &mut rig.outbox);
    rig.directory.suspend(TARGET, false);
    while rig.directory.tidy() > 0 {}
    rig.leads(&keys[0])
}

#[test]
fn a_later_incarnation_of_a_target_says_nothing_of_the_one_before() {
    assert_eq!(
        leads_behind_a_next_incarnation(false),
        Some(SOURCE as u16),
        "it returns"
    );
    assert_eq!(leads_behind_a_next_incarnation(true), None, "it was the target's");
    BROKEN.set("incarnations of a target are told apart");
    let leads = leads_behind_a_next_incarnation(false);
    BROKEN.set("");
    assert_eq!(leads, None, "a rule that is broken is noticed");
}

#[test]
fn routes_beyond_the_first_room_are_taken_where_room_is_made() {
    let mut rig = Rig::at_source(&[]);
    let taken = |rig: &mut Rig, ports: core::ops::Range<u64>| {
        let mut ports = ports.clone();
        ports.all(|port| rig.directory.choose(key(port), SOURCE).is_some())
    };
    assert!(taken(&mut rig, 0..64));
    assert!(!taken(&mut rig, 64..65));
    rig.directory.make_room(64, &mut Region::heap);
    assert!(!taken(&mut rig, 64..65), "that is no more than before");
    rig.directory.make_room(200, &mut Region::heap);
    assert!(taken(&mut rig, 64..200));
    assert!(!taken(&mut rig, 200..201));
    for port in 0..200 {
        assert_eq!(rig.leads(&key(port)), Some(SOURCE as u16), "{port}");
        assert!(rig.directory.find(&key(port)).is_some(), "{port}");
    }
}

/// A switch that knows blocks of one group, and what runtimes have of them.
struct Asker {
    blocks: Blocks,
    outbox: Outbox<QueuePort>,
    /// By runtime: the first port of the block that it has, and how many questions it has answered.
    has: [Option<u16>; 3],
    read: [usize; 3],
}

const GROUP: u64 = 9;

fn block(first: u16) -> Block {
    Block {
        addr: Addr::v4([203, 0, 113, 1]),
        first,
        ports: 64,
    }
}

impl Asker {
    fn new() -> Asker {
        Asker {
            blocks: Blocks::new(64, 3, HashSeed::FIXED),
            outbox: Rig::at_source(&[]).outbox,
            has: [None; 3],
            read: [0; 3],
        }
    }

    fn claims(&mut self, runtime: usize, first: u16) {
        self.has[runtime] = Some(first);
        self.blocks.claimed(runtime, block(first), key(GROUP));
    }

    /// A runtime goes, and nothing waits for an heir any more.
    fn goes(&mut self, runtime: usize) {
        self.fails(runtime);
        self.blocks.gone(runtime, &mut self.outbox);
    }

    /// An incarnation of a runtime has failed, and the next one has nothing.
    fn fails(&mut self, runtime: usize) {
        self.has[runtime] = None;
        self.blocks.leave(runtime);
    }

    /// Runtimes answer what they are asked, in turn, so much of it at once.
    fn answer(&mut self, (order, at_once): ([usize; 3], usize)) {
        for runtime in [order; 16].into_iter().flatten() {
            for _ in 0..at_once {
                let asked = self.outbox.messages_for(runtime).nth(self.read[runtime]).copied();
                let Some(asked) = asked else { break };
                self.read[runtime] += 1;
                let Message::BlockSuspect(of, group) = asked else {
                    panic!("{asked:?}");
                };
                match self.has[runtime] == Some(of.first) {
                    true => self.blocks.claimed(runtime, of, group),
                    false => self.blocks.suspected(runtime, of, group, &mut self.outbox),
                }
            }
        }
        assert!(!self.blocks.is_asking(), "all have answered");
    }

    /// Whether a runtime that has begun is told of a block.
    fn is_told(&mut self, runtime: usize, first: u16) -> bool {
        let place = (block(first).addr, first);
        self.blocks.tell(runtime, place, &mut self.outbox);
        let told = self.outbox.messages_for(runtime).nth(self.read[runtime]).copied();
        self.read[runtime] += usize::from(told.is_some());
        told == Some(Message::BlockClaimed(block(first), key(GROUP)))
    }

    fn known(&self) -> Vec<u16> {
        self.blocks.known().iter().map(|((_, first), _)| *first).collect()
    }
}

/// In which order runtimes answer, and how much at once.
const TURNS: [([usize; 3], usize); 4] = [([0, 1, 2], 1), ([2, 1, 0], 1), ([0, 1, 2], 9), ([2, 1, 0], 9)];

/// So many groups with a block each have gone on at another runtime, which is asked about all: the
/// time of an answer, in nanoseconds.
fn answer_takes(groups: u32) -> u64 {
    let mut rig = Asker::new();
    rig.blocks = Blocks::new(1 << 16, 3, HashSeed::FIXED);
    let of = |n: u32| {
        let addr = Addr::v4([203, 0, 113, (n >> 10) as u8]);
        let first = (n & 1023) as u16 * 64;
        (
            Block {
                addr,
                first,
                ports: 64,
            },
            GroupKey::from_words([1, 0, 0, 0, u64::from(n)]),
        )
    };
    for runtime in [2, 1] {
        (0..groups)
            .map(of)
            .for_each(|(block, group)| rig.blocks.claimed(runtime, block, group));
    }
    rig.goes(2);
    let began = std::time::Instant::now();
    (0..groups)
        .map(of)
        .for_each(|(block, group)| rig.blocks.claimed(1, block, group));
    assert!(!rig.blocks.is_asking());
    assert_eq!(rig.blocks.len(), groups as usize);
    began.elapsed().as_nanos() as u64 / u64::from(groups)
}

#[test]
fn an_answer_about_a_block_takes_the_same_time_however_many_are_asked_about() {
    // The least of three: other work of the machine only adds.
    let least = |groups| (0..3).map(|_| answer_takes(groups)).min().unwrap();
    let (few, many) = (least(500), least(20_000));
    // A scan of all takes 10 µs for each.
    assert!(many < 8 * few + 3000, "{few} ns, then {many}");
}

/// A group had a block at a runtime that has failed, of which this switch waits for an heir. It has
/// begun again elsewhere, with another block (nat 93024058).
#[test]
fn a_block_that_is_nowhere_takes_none_of_its_group_along() {
    // The block with the lower port is asked about first.
    for (old, new) in [(1024, 1088), (1088, 1024)] {
        for turns in TURNS {
            let mut rig = Asker::new();
            rig.claims(2, old);
            rig.fails(2);
            rig.claims(1, new);
            // Another goes, and may have taken words with it.
            rig.goes(0);
            rig.answer(turns);
            assert_eq!(rig.known(), [new]);
            assert!(
                rig.is_told(2, new),
                "the next incarnation of the one that has failed"
            );
            // No heir has come.
            rig.blocks.gone(2, &mut rig.outbox);
            rig.answer(turns);
            assert_eq!(rig.known(), [new], "its flows go on");
            rig.goes(1);
            rig.answer(turns);
            assert!(rig.known().is_empty());
        }
    }
}

/// The other one has a block of the group, too, and goes.
#[test]
fn a_block_stays_when_a_runtime_goes_that_has_another_of_its_group() {
    for (one, other) in [(1024, 1088), (1088, 1024)] {
        for turns in TURNS {
            let mut rig = Asker::new();
            rig.claims(2, one);
            rig.claims(1, other);
            rig.goes(0);
            rig.answer(turns);
            assert_eq!(rig.blocks.len(), 2);
            rig.goes(2);
            rig.answer(turns);
            assert_eq!(rig.known(), [other]);
        }
    }
}

/// It claimed all again when it was met again, and has let go of the group that had begun
/// elsewhere, from where that moves meanwhile.
#[test]
fn a_block_is_asked_for_where_its_group_has_moved_to() {
    let mut rig = Asker::new();
    rig.claims(1, 1024);
    rig.claims(0, 1024);
    rig.has[0] = None;
    rig.blocks.suspected(0, block(1024), key(GROUP), &mut rig.outbox);
    rig.blocks.note_move(&key(GROUP), 1, 2);
    (rig.has[1], rig.has[2]) = (None, Some(1024));
    rig.answer(TURNS[0]);
    assert_eq!(rig.known(), [1024]);
}
