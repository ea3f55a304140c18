//! Random lives of flows on two runtimes, by a plain list of where each flow is: from inside, from
//! outside, between inside hosts; expired, moved, lost and recovered, or under a new configuration.

use super::*;
use etherparse::PacketBuilder;
use nf::plain::{bytes_of, from_bytes};
use nf::{Direction, Endpoint};
use proptest::prelude::*;
use std::collections::BTreeMap;
use wire::memory::Region;
use wire::{FlowKey, LinkType, Pool};

const LIMIT: u32 = 4;
const HOSTS: u8 = 5;

#[derive(Clone, Debug)]
enum Step {
    /// A host, to the world.
    Out(u8),
    /// The world, to a host; behind NAT or in front of it.
    In(u8, bool),
    /// A host, to another one.
    InsideToInside(u8, u8),
    Expire(usize),
    /// A host's flows go to the other runtime, or were lost and are made again there.
    Move(u8, bool),
    Configure(u8),
    Wait(u64),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => (0..HOSTS).prop_map(Step::Out),
        4 => (0..HOSTS, any::<bool>()).prop_map(|(host, translated)| Step::In(host, translated)),
        2 => (0..HOSTS, 0..HOSTS).prop_map(|(from, to)| Step::InsideToInside(from, to)),
        6 => (0usize..64).prop_map(Step::Expire),
        2 => (0..HOSTS, any::<bool>()).prop_map(|(host, failed)| Step::Move(host, failed)),
        1 => (0u8..2).prop_map(Step::Configure),
        2 => (0u64..3).prop_map(Step::Wait),
    ]
}

fn address(host: u8) -> [u8; 4] {
    [10, 0, 0, host + 1]
}

struct Flow {
    state: Counted,
    /// Whose group it is in.
    group: u8,
    /// The host for which it must be counted.
    host: u8,
    direction: usize,
}

struct World {
    runtimes: [ByHand<HostLimits>; 2],
    pool: Pool,
    /// Where each group is, and its state.
    groups: Vec<(usize, Host)>,
    flows: BTreeMap<usize, Flow>,
    text: String,
    next: usize,
    now: u64,
}

impl World {
    fn new(hosts_max: u32) -> Self {
        let text = "new_flows_per_second = \"none\"";
        Self::with(&std::format!(
            "flows_per_host = {LIMIT}\n{text}\nhosts_max = {hosts_max}"
        ))
    }

    fn with(text: &str) -> Self {
        World {
            runtimes: [by_hand(text), by_hand(text)],
            pool: Pool::new(Region::heap(Pool::region_length(1, 512)), 1, 512, 0),
            groups: (0..HOSTS)
                .map(|host| (usize::from(host % 2), Host::default()))
                .collect(),
            flows: BTreeMap::new(),
            text: text.into(),
            next: 0,
            now: 1,
        }
    }

    fn is_rated(&self) -> bool {
        !self.text.contains("new_flows_per_second = \"none\"")
    }

    fn count(&self, at: usize, host: u8, direction: usize) -> u32 {
        let same = |f: &&Flow| {
            f.state.opened.direction() == Some(direction)
                && f.host == host
                && self.groups[usize::from(f.group)].0 == at
        };
        self.flows.values().filter(same).count() as u32
    }

    /// A flow's first packet; `seen` is its destination where the function stands.
    fn open(
        &mut self,
        group: u8,
        host: u8,
        side: Side,
        from: [u8; 4],
        seen: [u8; 4],
        inside_to_inside: bool,
    ) {
        let id = self.next;
        self.next += 1;
        let mut frame = Vec::new();
        PacketBuilder::ipv4(from, seen, 9)
            .udp(id as u16, 80)
            .write(&mut frame, b"")
            .unwrap();
        let (key, opening) = FlowKey::new(
            Endpoint::new(Addr::v4(from), id as u16),
            Endpoint::new(Addr::v4(seen), 80),
            17,
            0,
        );
        let (at, state) = self.groups[usize::from(group)];
        let mut packet = self.pool.take().unwrap();
        assert!(packet.set_frame(&frame, LinkType::Raw));
        wire::parse(&mut packet).unwrap();
        if inside_to_inside {
            packet.set_flags(flag::INSIDE_TO_INSIDE);
        }
        let runtime = &mut self.runtimes[at];
        *runtime.group() = state;
        runtime.set_key(key, opening);
        runtime.raw().set(self.now, side, Direction::Opening);
        let mut flow = Counted::default();
        let verdict = runtime.process_now(&mut packet, &mut flow).unwrap();
        self.groups[usize::from(group)].1 = *runtime.group();
        self.pool.give(packet);
        let direction = usize::from(side == Side::Outside);
        let before = self.count(at, host, direction);
        match verdict {
            Verdict::Forward => {
                assert!(before < LIMIT, "beyond the limit");
                assert_eq!(
                    (flow.host, flow.opened.direction()),
                    (Addr::v4(address(host)), Some(direction))
                );
                self.flows.insert(
                    id,
                    Flow {
                        state: flow,
                        group,
                        host,
                        direction,
                    },
                );
            }
            Verdict::Drop(reason) => {
                let reason = HostLimits::REASONS[reason.index()];
                assert!(
                    before >= LIMIT || reason != "too_many_flows",
                    "refused with {before} flows"
                );
                assert!(self.is_rated() || reason != "too_many_new_flows");
                assert_eq!(flow, Counted::default());
            }
            other => panic!("{other:?}"),
        }
    }

    fn depart(&mut self, at: usize, flow: &Counted, why: Departure) {
        self.runtimes[at].departed(flow, why);
    }

    fn run(&mut self, step: &Step) {
        match *step {
            Step::Out(host) => {
                self.open(host, host, Side::Inside, address(host), [192, 0, 2, 1], false);
            }
            Step::In(host, translated) => {
                // In front of NAT the packet is for an external address, and only the group knows
                // the host.
                let known = self.groups[usize::from(host)].1.inside != Addr::UNSPECIFIED;
                let seen = if translated && known {
                    [203, 0, 113, 1]
                } else {
                    address(host)
                };
                self.open(host, host, Side::Outside, [192, 0, 2, 1], seen, false);
            }
            Step::InsideToInside(from, to) => {
                self.open(from.min(to), from, Side::Inside, address(from), address(to), true);
            }
            Step::Expire(nth) => {
                let Some(id) = self.flows.keys().copied().nth(nth) else {
                    return;
                };
                let flow = self.flows.remove(&id).unwrap();
                self.depart(
                    self.groups[usize::from(flow.group)].0,
                    &flow.state,
                    Departure::Expired,
                );
            }
            Step::Move(group, failed) => {
                let (from, state) = self.groups[usize::from(group)];
                let to = 1 - from;
                let moved: Vec<usize> = self
                    .flows
                    .iter()
                    .filter(|(_, f)| f.group == group)
                    .map(|(id, _)| *id)
                    .collect();
                for id in &moved {
                    let state = self.flows[id].state;
                    // A runtime that has failed takes no part; its table goes with it, below.
                    if !failed {
                        self.depart(from, &state, Departure::Migrated);
                    }
                }
                let state: Host = from_bytes(bytes_of(&state)).unwrap();
                self.groups[usize::from(group)] = (to, state);
                for id in moved {
                    let mut flow: Counted = from_bytes(bytes_of(&self.flows[&id].state)).unwrap();
                    *self.runtimes[to].group() = state;
                    self.runtimes[to].arrived(
                        &mut flow,
                        if failed {
                            Arrival::Recovered
                        } else {
                            Arrival::Migrated
                        },
                    );
                    self.flows.get_mut(&id).unwrap().state = flow;
                }
                if failed {
                    self.rebuild(from);
                }
            }
            Step::Configure(at) => self.rebuild(usize::from(at)),
            Step::Wait(seconds) => self.now += seconds * 1_000_000_000,
        }
    }

    /// An instance made from the configuration, which is told of the flows there are.
    fn rebuild(&mut self, at: usize) {
        self.runtimes[at] = by_hand(&self.text);
        for flow in self.flows.values_mut() {
            if self.groups[usize::from(flow.group)].0 == at {
                self.runtimes[at].function.recount(&mut flow.state);
            }
        }
    }

    fn check(&self) {
        for (at, runtime) in self.runtimes.iter().enumerate() {
            let hosts = runtime.function.hosts.borrow();
            let mut idle = 0;
            for entry in hosts.known() {
                let host = entry.host.as_v4().unwrap()[3] - 1;
                assert_eq!(
                    entry.flows,
                    [0, 1].map(|direction| self.count(at, host, direction)),
                    "of {} at {at}",
                    entry.host
                );
                idle += usize::from(entry.flows == [0, 0]);
            }
            assert_eq!(hosts.idle(), [idle; 2]);
            let here =
                |f: &&Flow| f.state.opened.direction().is_some() && self.groups[usize::from(f.group)].0 == at;
            assert_eq!(hosts.flows(), self.flows.values().filter(here).count() as u64);
        }
        for flow in self.flows.values() {
            assert!(
                flow.state
                    .opened
                    .direction()
                    .is_none_or(|direction| direction == flow.direction)
            );
        }
    }
}

proptest! {

    #[test]
    fn counts_are_the_flows_and_all_is_given_back(
        hosts_max in 2u32..8,
        steps in proptest::collection::vec(step(), 1..200),
    ) {
        let mut world = World::new(hosts_max);
        for step in &steps {
            world.run(step);
            world.check();
        }
        while !world.flows.is_empty() {
            world.run(&Step::Expire(0));
        }
        world.check();
        for runtime in &world.runtimes {
            assert_eq!(runtime.function.hosts.borrow().flows(), 0);
        }
    }
}

/// Closing what it has opened gives a host no tokens back, nor does moving, nor does being
/// forgotten for another host.
#[test]
fn what_a_host_has_spent_it_has_spent() {
    let mut world = World::with("new_flows_per_second = 1\nburst = 3\nhosts_max = 1");
    let mut passed = Vec::new();
    for upheaval in [
        None,
        Some(Step::Move(0, false)),
        Some(Step::Out(1)),
        Some(Step::Move(0, true)),
        Some(Step::Wait(2)),
    ] {
        while !world.flows.is_empty() {
            world.run(&Step::Expire(0));
        }
        if let Some(step) = upheaval {
            world.run(&step);
            while !world.flows.is_empty() {
                world.run(&Step::Expire(0));
            }
        }
        world.run(&Step::Out(0));
        passed.push(world.flows.len());
    }
    assert_eq!(passed, [1, 1, 1, 0, 1]);
}

#[test]
fn numbers_at_their_end_are_served() {
    for rate in ["", "new_flows_per_second = \"none\""] {
        let mut world = World::with(&std::format!("flows_per_host = 4\n{rate}"));
        let bytes = std::vec![0xff; size_of::<Host>()];
        let brought = from_bytes::<Host>(&bytes).expect("numbers only");
        world.groups[0].1 = Host {
            inside: Addr::v4(address(0)),
            account: Addr::v4(address(0)),
            ..brought
        };
        for _ in 0..6 {
            world.open(0, 0, Side::Inside, address(0), [192, 0, 2, 1], false);
        }
        assert_eq!(world.groups[0].1.refused, [u64::MAX; 2]);
        let rows = world.runtimes[0].function.rows("hosts", 9);
        assert_eq!(rows, [row!["10.0.0.1", 4u32, u64::MAX, 0u32, u64::MAX]]);
    }
}
