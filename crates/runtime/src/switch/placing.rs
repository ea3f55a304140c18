//! New groups go by what runtimes do: how many groups more than it has here a runtime counts for.
//!
//! # Theory of operation
//!
//! ```text
//!   loads of runtimes, groups here ── once a second ──► Placing::next ──► handicaps ──► Choice: the fewest groups and handicap
//!        heartbeats, this switch                         control side                     each new group
//! ```
//!
//! A switch knows its groups, and not how much each of them does. The control side says it: a
//! runtime that does 1.5 times what runtimes do on the average, counts for
//! 1.5 times the average number of groups here, however few it has. The difference to the groups
//! that it has is its *handicap*.
//!
//! Worked example: two runtimes have 100 groups each here, and runtime 0 does three times what
//! runtime 1 does. Their shares are 1500 and 500 thousandths, so they are
//! to count for 150 and 50 groups; the handicaps come to 100 and 0, and the next 100 new groups are
//! runtime 1's.
//!
//! *No herd*: each new group counts at once, by itself, so no runtime stays the least loaded until
//! the next word. With several switches each fills its own share of a
//! gap, by its own groups. The word may be late, so a handicap goes a quarter of the way each time,
//! and an eighth of the average at most.
//!
//! An unknown part of a runtime's load is left out: where all of it is unknown, it counts for its
//! groups. Where runtimes do too little to say anything ([`PACKETS_MIN`]), all do.
//!
//! Invariants: with equal loads handicaps do not change which runtime is chosen; the path of a
//! packet has one addition for each runtime, on a group's first packet only.
//!
//! Not here: where loads come from and when (`flowkeep::run::placing`), groups that have a route,
//! which stay ([`crate::mobility`]).

use alloc::vec::Vec;

/// Fewer packets a second, on the average, say nothing of load.
const PACKETS_MIN: u64 = 50;
/// The part of the way that a handicap goes each time.
const PART: i64 = 4;
/// It goes no more than this part of the average number of groups, but for [`STEP_MIN`].
const STEP: i64 = 8;
const STEP_MIN: i64 = 4;
/// No runtime counts for more times the average.
const SHARE_MAX: u64 = 16_000;

/// The load of a runtime.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Load {
    /// Packets a second.
    pub packets: u64,
    /// Thousandths of a processor.
    pub cpu: u64,
}

impl Load {
    /// Each runtime's share, in thousandths of the average load: half by packets, half by processor
    /// time. `None`: its load is unknown.
    pub fn shares(loads: &[Option<Load>]) -> Vec<Option<u64>> {
        let known = loads.iter().flatten().count() as u64;
        let sum = |of: fn(&Load) -> u64| {
            let all = loads.iter().flatten().map(of);
            all.fold(0_u64, u64::saturating_add)
        };
        let (packets, cpu) = (sum(|load| load.packets), sum(|load| load.cpu));
        if known == 0 || packets / known < PACKETS_MIN {
            return alloc::vec![None; loads.len()];
        }
        let part = |what: u64, sum: u64| match sum {
            0 => 1000,
            sum => (u128::from(what) * 1000 * u128::from(known) / u128::from(sum)) as u64,
        };
        let share = |load: &Load| {
            let both = part(load.packets, packets) + part(load.cpu, cpu);
            (both / 2).min(SHARE_MAX)
        };
        loads.iter().map(|load| load.as_ref().map(share)).collect()
    }
}

/// One switch's handicaps. See the module's page.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Placing {
    handicaps: Vec<i64>,
}

impl Placing {
    /// The handicaps from now on, by runtime, of what each does ([`Load::shares`]) and of the
    /// groups that it has at this switch.
    pub fn next(&mut self, shares: &[Option<u64>], groups: &[u64]) -> Vec<u32> {
        self.handicaps.resize(groups.len(), 0);
        let known = |index: usize| shares.get(index).copied().flatten();
        let of_known = || (0..groups.len()).filter(|index| known(*index).is_some());
        let sum = of_known().fold(0_u64, |sum, index| sum.saturating_add(groups[index]));
        let average = as_groups(sum / (of_known().count() as u64).max(1));
        let step = (average / STEP).max(STEP_MIN);
        for (index, handicap) in self.handicaps.iter_mut().enumerate() {
            let wanted = known(index).map_or(0, |share| {
                average.saturating_mul(as_groups(share)) / 1000 - as_groups(groups[index])
            });
            *handicap += ((wanted - *handicap) / PART).clamp(-step, step);
        }
        let least = self.handicaps.iter().copied().min().unwrap_or(0);
        let over = |handicap: &i64| u32::try_from(handicap - least).unwrap_or(u32::MAX);
        self.handicaps.iter().map(over).collect()
    }
}

/// A switch has fewer groups than this by far.
fn as_groups(count: u64) -> i64 {
    count.min(1 << 40) as i64
}

#[cfg(test)]
mod tests {
    use super::super::choice::{Choice, Policy};
    use super::*;
    use alloc::vec;

    /// Switches and runtimes; a group has a weight, and lives for some seconds.
    struct World {
        switches: Vec<(Choice, Placing)>,
        /// By switch: groups as (runtime, packets a second, seconds left).
        groups: Vec<Vec<(usize, u64, u32)>>,
        runtimes: usize,
        /// Loads by heartbeats: late by some seconds.
        said: Vec<Vec<Option<Load>>>,
        seed: u64,
    }

    /// How late heartbeats are, in seconds.
    const LATE: usize = 2;

    impl World {
        fn new(switches: usize, runtimes: usize) -> Self {
            let choice = || {
                let mut choice = Choice::new(Policy::LeastLoaded);
                choice.offer((0..runtimes as u16).collect());
                (choice, Placing::default())
            };
            World {
                switches: (0..switches).map(|_| choice()).collect(),
                groups: vec![Vec::new(); switches],
                runtimes,
                said: Vec::new(),
                seed: 7,
            }
        }

        fn draw(&mut self, below: u64) -> u64 {
            self.seed = self.seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (self.seed >> 33) % below
        }

        fn counts(&self, switch: usize) -> Vec<u64> {
            let of = |runtime| self.groups[switch].iter().filter(move |group| group.0 == runtime);
            (0..self.runtimes)
                .map(|runtime| of(runtime).count() as u64)
                .collect()
        }

        fn loads(&self) -> Vec<u64> {
            let all = || self.groups.iter().flatten();
            let of = |runtime| all().filter(move |group| group.0 == runtime);
            (0..self.runtimes)
                .map(|runtime| of(runtime).map(|group| group.1).sum())
                .collect()
        }

        fn add(&mut self, switch: usize, packets: u64, seconds: u32) -> usize {
            let counts = self.counts(switch);
            let hash = self.draw(1 << 30);
            let chosen = self.switches[switch].0.choose(hash, |runtime| counts[runtime]);
            let chosen = chosen.expect("there are runtimes");
            self.groups[switch].push((chosen, packets, seconds));
            chosen
        }

        /// A second: groups end, loads are said, and handicaps follow from the loads of some
        /// seconds ago.
        fn tick(&mut self) {
            for groups in &mut self.groups {
                groups.retain_mut(|group| {
                    group.2 -= 1;
                    group.2 > 0
                });
            }
            let said = self.loads().into_iter();
            let said = said.map(|packets| {
                Some(Load {
                    packets,
                    cpu: packets / 100,
                })
            });
            self.said.push(said.collect());
            let Some(late) = self.said.len().checked_sub(1 + LATE) else {
                return;
            };
            let shares = Load::shares(&self.said[late]);
            for switch in 0..self.switches.len() {
                let counts = self.counts(switch);
                let (choice, placing) = &mut self.switches[switch];
                choice.set_handicaps(placing.next(&shares, &counts));
            }
        }
    }

    #[test]
    fn shares_are_of_packets_and_processors() {
        let load = |packets, cpu| Some(Load { packets, cpu });
        assert_eq!(
            Load::shares(&[load(3000, 750), load(1000, 250), None]),
            [Some(1500), Some(500), None]
        );
        // Workers that spin have the same processor time, so packets alone tell their loads apart.
        assert_eq!(
            Load::shares(&[load(3000, 1000), load(1000, 1000)]),
            [Some(1250), Some(750)]
        );
        // As many packets, and more work for each.
        assert_eq!(
            Load::shares(&[load(1000, 900), load(1000, 300)]),
            [Some(1250), Some(750)]
        );
        // Too few say nothing; a figure that cannot be does no harm.
        assert_eq!(Load::shares(&[load(60, 9), load(20, 1)]), [None, None]);
        let wrong = Load::shares(&[load(u64::MAX, u64::MAX), load(1000, 10)]);
        assert!(wrong.iter().flatten().all(|share| *share <= SHARE_MAX));
        assert!(Load::shares(&[]).is_empty());
    }

    #[test]
    fn the_page_s_example_and_its_end() {
        let mut placing = Placing::default();
        let shares = [Some(1500), Some(500)];
        let first = placing.next(&shares, &[100, 100]);
        // Slowly: an eighth of the average each, at most.
        assert_eq!(first, [24, 0]);
        let last = (0..40).map(|_| placing.next(&shares, &[100, 100])).last();
        let [of_0, of_1] = last.expect("some")[..] else {
            panic!("two")
        };
        assert!(of_1 == 0 && (92..=100).contains(&of_0), "{of_0} {of_1}");
        // When nothing is known any more, groups count.
        let last = (0..40).map(|_| placing.next(&[None, None], &[100, 100])).last();
        assert!(last.expect("some").iter().all(|handicap| *handicap <= 6));
    }

    #[test]
    fn equal_loads_change_nothing() {
        let mut world = World::new(1, 4);
        let mut plain = World::new(1, 4);
        for second in 0..60 {
            for _ in 0..40 {
                let chosen = [world.add(0, 100, 20), plain.add(0, 100, 20)];
                assert_eq!(chosen[0], chosen[1], "second {second}");
            }
            world.tick();
            // This one is told nothing.
            plain.groups[0].retain_mut(|group| {
                group.2 -= 1;
                group.2 > 0
            });
        }
    }

    /// Of the loads' differences, in thousandths of the average, the largest since a second.
    fn spread(world: &World) -> u64 {
        let loads = world.loads();
        let average = loads.iter().sum::<u64>() / loads.len() as u64;
        let far = loads.iter().map(|load| load.abs_diff(average)).max();
        far.unwrap_or(0) * 1000 / average.max(1)
    }

    /// Some groups are elephants that last. By the number of groups alone, loads stay uneven; by
    /// load they become even, with all switches.
    #[test]
    fn loads_become_even_where_groups_are_not() {
        for switches in [1, 4] {
            let (mut told, mut untold) = (World::new(switches, 3), World::new(switches, 3));
            // The first groups of each switch do most, and all are one runtime's.
            for world in [&mut told, &mut untold] {
                for switch in 0..switches {
                    world.groups[switch].extend((0..40).map(|_| (0, 500, 10_000)));
                }
            }
            for _ in 0..300 {
                for switch in 0..switches {
                    for _ in 0..20 {
                        let packets = 50 + told.draw(100);
                        told.add(switch, packets, 30);
                        untold.add(switch, packets, 30);
                    }
                }
                told.tick();
                untold.said.clear();
                untold.tick();
            }
            let (by_load, by_groups) = (spread(&told), spread(&untold));
            assert!(by_load < 120, "{switches}: {by_load}");
            assert!(by_groups > 300, "{switches}: {by_groups}");
        }
    }

    /// A runtime that has just begun does nothing yet. It fills up, and no more than that, though
    /// what it does is said late.
    #[test]
    fn no_herd_runs_to_a_runtime_that_has_just_begun() {
        let mut world = World::new(4, 3);
        let others: Vec<u16> = vec![0, 1];
        world
            .switches
            .iter_mut()
            .for_each(|(choice, _)| choice.offer(others.clone()));
        let second = |world: &mut World| {
            for switch in 0..4 {
                for _ in 0..20 {
                    world.add(switch, 100, 30);
                }
            }
            world.tick();
        };
        (0..60).for_each(|_| second(&mut world));
        world
            .switches
            .iter_mut()
            .for_each(|(choice, _)| choice.offer(vec![0, 1, 2]));
        let mut most = 0;
        for _ in 0..120 {
            second(&mut world);
            let loads = world.loads();
            most = most.max(loads[2] * 3000 / loads.iter().sum::<u64>());
        }
        assert!(most < 1400, "at most {most} thousandths of the average");
        assert!(spread(&world) < 100, "{:?}", world.loads());
    }
}
