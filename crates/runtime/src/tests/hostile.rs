//! Records from another runtime may be anything: it is another process, perhaps.
//!
//! Real moves, of which the frames between the runtimes are tampered with: bytes, lengths, kinds,
//! order. Nothing panics, no packet is lost uncounted, and when the sessions are over all is at
//! rest.

use super::clocks::{Clocked, HOUR};
use super::flows::{Hosts, Masquerade, Meter};
use super::groups::{Leaser, Service};
use super::spread::{Cluster, cluster, cluster_of_clocks};
use super::*;
use crate::mobility::{MoveOrder, Selector};
use crate::switch::Policy;
use nf::{Cx, FlowState, Packet, Plain, Verdict, WorkerInfo, network_function};
use proptest::prelude::*;
use std::sync::Arc;
use std::vec;
use wire::packet::Kind;

const SECOND: u64 = 1_000_000_000;

/// A change of one frame on its way.
#[derive(Clone, Debug)]
struct Tampering {
    what: u8,
    frame: usize,
    at: usize,
    bytes: Vec<u8>,
}

fn tampering() -> impl Strategy<Value = Tampering> {
    let bytes = proptest::collection::vec(any::<u8>(), 1..60);
    (0u8..7, any::<u16>(), any::<u16>(), bytes).prop_map(|(what, frame, at, bytes)| Tampering {
        what,
        frame: usize::from(frame),
        at: usize::from(at),
        bytes,
    })
}

impl Tampering {
    fn apply(&self, queue: &mut VecDeque<PacketBox>) {
        if queue.is_empty() {
            return;
        }
        let count = queue.len();
        let packet = &mut queue[self.frame % count];
        let length = packet.frame().len();
        match (self.what, packet.kind()) {
            // Some bytes are others.
            (0 | 1, Kind::Message) if length > 0 => {
                let at = self.at % length;
                let place = &mut packet.frame_mut()[at..];
                let fits = place
                    .len()
                    .min(self.bytes.len())
                    .min(usize::from(self.what) * 8 + 1);
                place[..fits].copy_from_slice(&self.bytes[..fits]);
            }
            // Cut off.
            (2, Kind::Message) => {
                packet.set_length(self.at % (length + 1));
            }
            // Lost.
            (3, Kind::Message) => packet.set_kind(Kind::Empty),
            // Another record of the same frame's kind in its place: made of bytes, with a type that
            // there is.
            (4, Kind::Empty | Kind::Message) => {
                packet.set_length(0);
                packet.set_kind(Kind::Message);
                packet.set_length(self.bytes.len());
                packet.frame_mut().copy_from_slice(&self.bytes);
                packet.frame_mut()[0] = self.bytes[0] % 11;
            }
            // A packet of which no record has said anything, and that no worker has parsed.
            (5, Kind::Empty) => {
                packet.reset(self.bytes.len(), LinkType::Raw);
                packet.frame_mut().copy_from_slice(&self.bytes);
                packet.set_kind(Kind::Data);
            }
            (6, _) => queue.swap(self.frame % count, self.at % count),
            _ => {}
        }
    }
}

/// State of which most bytes are none.
#[derive(Plain, Default, Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub(super) enum Choice {
    #[default]
    None = 0,
    One = 1,
}

#[derive(FlowState, Default, Clone, Copy, Debug)]
#[repr(C)]
pub(super) struct Picky {
    choices: [Choice; 16],
    flags: [bool; 16],
}

/// Never sees a state that is none.
struct Careful;

fn look_at(state: &Picky) {
    for choice in &state.choices {
        // A byte that is neither would be undefined; read as one it shows.
        let byte = nf::plain::bytes_of(choice)[0];
        assert!(byte < 2, "{byte} is no choice");
    }
    for byte in nf::plain::bytes_of(&state.flags) {
        assert!(*byte < 2, "{byte} is no bool");
    }
}

#[network_function]
impl NetworkFunction for Careful {
    const NAME: &'static str = "careful";
    type Config = NoConfig;
    type Flow = Picky;
    type Group = Picky;
    fn new(_: &Arc<NoConfig>, _: &WorkerInfo) -> Result<Self, ConfigError> {
        Ok(Careful)
    }
    fn process(&self, _: &mut Packet, flow: &mut Picky, cx: &mut Cx<Self>) -> Verdict {
        look_at(flow);
        look_at(cx.group());
        flow.choices[3] = Choice::One;
        flow.flags[5] = true;
        *cx.group() = *flow;
        Verdict::Forward
    }
    fn arrived(&self, flow: &mut Picky, _: nf::Arrival, cx: &mut Cx<Self>) {
        look_at(flow);
        look_at(cx.group());
    }
    fn departed(&self, flow: &Picky, _: nf::Departure, _: &mut Cx<Self>) {
        look_at(flow);
    }
}

/// When none arrives just now.
fn check_flows(cluster: &Cluster) {
    for runtime in &cluster.runtimes {
        assert_conserved(runtime);
        let stats = runtime.stats();
        assert_eq!(
            stats.flows_opened + stats.flows_moved[0],
            stats.flows + stats.flows_ended + stats.flows_moved[1],
            "{stats:?}"
        );
    }
}

#[test]
fn a_state_that_is_none_is_refused_and_the_others_go_on() {
    for (plan, whole) in [
        (plan(vec![factory::<Careful>()]), false),
        (plan(vec![factory::<Hosts>(), factory::<Careful>()]), true),
    ] {
        let mut cluster = cluster(1, 2, Policy::RoundRobin, &plan, 64);
        let feed =
            |cluster: &mut Cluster| cluster.feed(0, (0..8).map(|n| udp(1, 1000 + n, 1, 80, false, b"x")));
        cluster.switches[0].set_leaving(1, true);
        feed(&mut cluster);
        assert_eq!(cluster.runtimes[0].stats().flows, 8);
        let order = MoveOrder {
            selector: Selector::All,
            to: vec![1],
        };
        let number = cluster.runtimes[0].order(order).unwrap();
        // The flag that the function sets, on its way: of one flow, or of the group.
        let mut changed = 0;
        for _ in 0..100 {
            cluster.now += 1000;
            cluster.runtimes[0].step(cluster.now);
            for queue in &cluster.between[0].0 {
                for packet in queue
                    .borrow_mut()
                    .iter_mut()
                    .filter(|p| p.kind() == Kind::Message)
                {
                    let frame = packet.frame_mut();
                    let pattern = [[0; 3].as_slice(), &[1], &[0; 12], &[0; 5], &[1], &[0; 10]].concat();
                    let found = frame.windows(32).position(|part| part == pattern);
                    if let Some(at) = found.filter(|_| changed == 0) {
                        frame[at + 3 + 18] = 2;
                        changed += 1;
                    }
                }
            }
            cluster.runtimes[1].step(cluster.now);
            cluster.switches[0].step(cluster.now);
        }
        assert_eq!(changed, 1, "no state was seen");
        cluster.run_until_quiet();
        let receipt = cluster.runtimes[0].receipt(number).unwrap();
        assert!(receipt.is_over, "{receipt:?}");
        let refused = if whole { 8 } else { 1 };
        let stats = cluster.runtimes[1].stats();
        assert_eq!(
            (stats.flows_refused, stats.flows),
            (refused, 8 - refused),
            "{stats:?}"
        );
        check_flows(&cluster);
        // They begin again.
        feed(&mut cluster);
        assert_eq!(cluster.sent().len(), 16);
        cluster.now += 400 * SECOND;
        cluster.run_until_quiet();
        cluster.check();
        assert_eq!(cluster.routes(), 0);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(ProptestConfig::default().cases * 2))]
    #[test]
    fn whatever_comes_from_a_runtime_does_no_harm(
        chain in 0usize..5,
        events in proptest::collection::vec((0u8..4, 0u8..8, 0u8..6, proptest::option::of(tampering())), 1..120),
    ) {
        let plan = match chain {
            0 => plan(vec![factory::<Meter>(), factory::<Masquerade>(), factory::<Careful>()]),
            1 => plan(vec![factory::<Hosts>(), factory::<Meter>(), factory::<Masquerade>()]),
            2 => plan(vec![factory::<Leaser>(), factory::<Careful>(), factory::<Service>()]),
            3 => plan(vec![factory::<Careful>()]),
            _ => plan(vec![factory::<Clocked>(), factory::<Careful>()]),
        };
        // Of two hosts, with the last.
        let ahead = if chain == 4 { 10 * HOUR } else { 0 };
        let mut cluster = cluster_of_clocks(2, &plan, 64, &[0, ahead]);
        for (worker, packet, order, tampering) in events {
            // Port 5: held until a packet says 1.
            let port = if packet == 7 { 5 } else { 80 };
            let (flow, payload) = (1000 + u16::from(packet), [packet % 3]);
            let frame = udp(packet % 2 + 1, flow, 1, port, false, &payload);
            cluster.switches[usize::from(packet % 2)].port_mut(0).input.push_back(frame);
            if order < 2 {
                let to = vec![1 - u16::from(order)];
                cluster.runtimes[usize::from(order)].order(MoveOrder { selector: Selector::All, to }).unwrap();
            }
            cluster.now += 1000;
            match worker {
                0 => { cluster.switches[0].step(cluster.now); }
                1 => { cluster.switches[1].step(cluster.now); }
                other => {
                    let runtime = usize::from(other) - 2;
                    cluster.runtimes[runtime].step(cluster.now + cluster.ahead[runtime]);
                }
            }
            if let Some(tampering) = tampering {
                let queue = &cluster.between[0].0[tampering.frame % 2];
                tampering.apply(&mut queue.borrow_mut());
            }
            cluster.runtimes.iter().for_each(assert_conserved);
        }
        cluster.lose_sessions(2);
        for runtime in 0..2 {
            cluster.runtimes[runtime].peer_gone(1 - runtime as u16);
        }
        // Until moves that wait for a word that was never said are called back, or taken back from
        // a target that switches have not lost.
        for _ in 0..600 {
            cluster.now += SECOND / 100;
            cluster.switches.iter_mut().for_each(|switch| { switch.step(cluster.now); });
            for (runtime, ahead) in cluster.runtimes.iter_mut().zip(&cluster.ahead) {
                runtime.step(cluster.now + ahead);
            }
        }
        for runtime in &cluster.runtimes {
            prop_assert_eq!(runtime.moves_left(), Vec::<std::string::String>::new());
        }
        cluster.now += 400 * SECOND;
        cluster.run_until_quiet();
        check_flows(&cluster);
        // Flows that came with a deadline that is weeks away.
        for runtime in &mut cluster.runtimes {
            while !runtime.finish(100) {}
        }
        cluster.run_until_quiet();
        for runtime in &cluster.runtimes {
            let stats = runtime.stats();
            prop_assert_eq!((stats.flows, stats.held, stats.groups), (0, 0, 0));
        }
        for switch in &cluster.switches {
            prop_assert_eq!(switch.pool().free(), switch.pool().total(), "buffers are missing");
        }
    }
}
