//! Random runs: calls, moves of flows, runtimes that come, go and fail, in the midst of each other.

use super::super::{Runtime, udp};
use super::{LIMIT, World, set};
use crate::mobility::{MoveOrder, Selector};
use protocols::ownership::RuntimeId;
use std::vec;

/// Numbers by a seed.
struct Random(u64);

impl Random {
    fn below(&mut self, most: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % most
    }
}

/// Hosts of a random run, and what its packets to them are.
const HOSTS: [(u8, &[u8; 1]); 4] = [(0, b"u"), (1, b"u"), (2, b"u"), (4, b"g")];

/// Calls, moves of flows, runtimes that leave and join, and in every other run a failing runtime:
/// all in the midst of each other.
fn random_run(seed: u64) {
    const RUNTIMES: u64 = 4;
    let mut random = Random(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1);
    let mut world = World::new(RUNTIMES as usize, set(0..RUNTIMES as u16));
    let (mut fed, mut incarnation, mut may_fail) = ([0_u64; 4], 2, seed % 2 == 1);
    let mut merged = 0;
    let mut failed: Option<u16> = None;
    for _ in 0..400 {
        let (members, has_reached_all) = (world.conductor.view().1, world.conductor.has_reached_all());
        let runtime = random.below(RUNTIMES) as u16;
        match random.below(60) {
            0..20 => {
                // The last host's packets are counted with one writer.
                let place = random.below(4) as usize;
                if fed[place] < LIMIT {
                    fed[place] += 1;
                    let (host, what) = HOSTS[place];
                    let packet = udp(1, 1000 + random.below(40) as u16, host, 53, false, what);
                    world.process.switches[random.below(2) as usize]
                        .port_mut(0)
                        .input
                        .push_back(packet);
                }
            }
            20..23 => {
                let to = random.below(RUNTIMES) as u16;
                if let Some(from) = world.process.runtimes[usize::from(runtime)]
                    .as_mut()
                    .filter(|_| to != runtime)
                {
                    let (selector, to) = (Selector::All, vec![to]);
                    let _ = from.order(MoveOrder { selector, to });
                }
            }
            23 if has_reached_all && failed.is_none() && members == set(0..RUNTIMES as u16) => {
                assert!(world.conductor.change(members.without(RuntimeId(runtime))));
            }
            24 if has_reached_all && failed.is_none() && !members.has(RuntimeId(runtime)) => {
                // It comes back when no call of its flows is left in its former incarnation.
                world.pass();
                world.begin(runtime, incarnation);
                incarnation += 1;
            }
            25 if may_fail && members.has(RuntimeId(runtime)) => {
                (may_fail, failed) = (false, Some(runtime));
                world.process.fail(runtime.into());
                while !world.process.is_forgotten(runtime.into()) {
                    world.process.now += 1000;
                    for worker in 0..2 + RUNTIMES as usize {
                        world.process.step(worker);
                    }
                }
                world.conductor.fail(set([runtime]));
            }
            26 if has_reached_all && failed.is_some() => {
                let number = failed.take().unwrap_or_default();
                world.process.follow(number.into());
                world.begin(number, incarnation);
                incarnation += 1;
            }
            27..30 => world.tell(),
            30..35 => {
                merged += 1;
                let packet = udp(1, 1000 + random.below(40) as u16, 3, 53, false, b"m");
                world.process.switches[random.below(2) as usize]
                    .port_mut(0)
                    .input
                    .push_back(packet);
            }
            _ => {
                world.process.now += 1000 + 40_000 * random.below(2);
                world.process.step(random.below(2 + RUNTIMES) as usize);
            }
        }
    }
    world.conduct();
    for number in 0..RUNTIMES as u16 {
        if !world.conductor.view().1.has(RuntimeId(number)) {
            if failed.take_if(|failed| *failed == number).is_some() {
                world.process.follow(number.into());
            }
            world.begin(number, incarnation);
            incarnation += 1;
            world.conduct();
        }
    }
    world.pass();
    let has_failed = seed % 2 == 1 && !may_fail;
    for ((host, what), fed) in HOSTS.into_iter().zip(fed) {
        let sent = world.sent_to(host);
        let reads = if what == b"g" { b"q" } else { b"r" };
        let count = world.count(reads, 9, host);
        assert!(
            sent <= count && count <= fed,
            "seed {seed}: {sent} left, {count} counted, {fed} came"
        );
        let refused = world.dropped("late");
        assert!(
            has_failed || (count + refused >= fed),
            "seed {seed}: {count} of {fed} counted, {refused} late"
        );
    }
    world.pass_merged();
    let (count, refused) = (world.count(b"r", 9, 3), world.dropped("late"));
    assert!(
        count <= merged && (has_failed || count + refused >= merged),
        "seed {seed}: {count} of {merged} merged, {refused} late"
    );
    let unanswered = |runtime: &Runtime<_>| runtime.objects().map(|figures| figures.unanswered);
    assert!(
        world
            .process
            .runtimes
            .iter()
            .flatten()
            .all(|runtime| unanswered(runtime) == Some(0)),
        "seed {seed}"
    );
    world.process.assert_all_is_home("random");
}

#[test]
fn random_runs_lose_no_acknowledged_update() {
    let seeds = std::env::var("OBJECTS_SEEDS")
        .ok()
        .and_then(|seeds| seeds.parse().ok());
    for seed in 0..seeds.unwrap_or(60) {
        random_run(seed);
    }
}
