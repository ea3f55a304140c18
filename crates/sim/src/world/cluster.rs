//! The production workers of a run, wired as `flowkeep run` wires them: every switch with every runtime and every other switch.
//!
//! Workers are numbered: switches first, then runtimes. For each the cluster knows which queues lead to it and from it, so that the world can
//! see who has something to do.

use crate::link::{Clock, Queue, Ring, SharedInterface, SharedQueue, Socket};
use crate::script::{Script, Shape};
use nf::{Side, WorkerInfo};
use runtime::Runtime;
use runtime::chain::Plan;
use runtime::switch::{SideRule, Switch};
use std::cell::Ref;
use wire::memory::Region;
use wire::{HashSeed, LinkType, Pool, Prefix};

/// The longest frame of a script, with room.
const FRAME_MAX: usize = 512;
/// Buffers of runtimes, which are for words and states; as `flowkeep run` makes them.
const OWN_FRAME: usize = 2048;
/// Bytes of event log between two turns of a runtime.
const EVENTS_MAX: usize = 32 * 1024;

pub(crate) struct Cluster {
    pub switches: Vec<Switch<Socket, Ring>>,
    pub runtimes: Vec<Runtime<Ring>>,
    /// By port.
    pub interfaces: Vec<SharedInterface>,
    /// By worker: what leads to it.
    pub inputs: Vec<Vec<SharedQueue>>,
    /// By worker: what leads from it, and to whom.
    pub outputs: Vec<Vec<(SharedQueue, u8)>>,
    /// Rings from switches to runtimes, which say how much room they have.
    bounded: Vec<SharedQueue>,
    /// Frames taken in and sent, as seen from outside.
    pub entered: u64,
    pub left: u64,
}

/// The link layer of a shape's ports.
pub(crate) fn link_type(shape: &Shape) -> LinkType {
    if shape.ethernet {
        LinkType::Ethernet
    } else {
        LinkType::Raw
    }
}

impl Cluster {
    /// Makes all workers, whose clocks say what `clocks` says.
    pub fn new(script: &Script, plan: &Plan, clock: &Clock, clocks: &[u64]) -> Result<Cluster, String> {
        let shape = &script.shape;
        let (switches, runtimes) = (usize::from(shape.switches), usize::from(shape.runtimes));
        let workers = switches + runtimes;
        let mut cluster = Cluster {
            switches: Vec::new(),
            runtimes: Vec::new(),
            interfaces: Vec::new(),
            inputs: vec![Vec::new(); workers],
            outputs: vec![Vec::new(); workers],
            bounded: Vec::new(),
            entered: 0,
            left: 0,
        };
        let mut to_runtimes: Vec<Vec<Ring>> = (0..switches).map(|_| Vec::new()).collect();
        let mut to_switches: Vec<Vec<Ring>> = (0..runtimes).map(|_| Vec::new()).collect();
        for (switch, links) in to_runtimes.iter_mut().enumerate() {
            for (runtime, ends) in to_switches.iter_mut().enumerate() {
                let (near, far) = Ring::pair(clock, usize::from(shape.depth), shape.ring_delay);
                cluster.bounded.push(near.outgoing());
                cluster.join(switch, &near, switches + runtime);
                links.push(near);
                ends.push(far);
            }
        }
        let mut peers: Vec<Vec<Option<Ring>>> = (0..switches)
            .map(|_| (0..switches).map(|_| None).collect())
            .collect();
        for (a, b) in (0..switches).flat_map(|a| (a + 1..switches).map(move |b| (a, b))) {
            let (near, far) = Ring::pair(clock, usize::MAX, shape.ring_delay);
            cluster.join(a, &near, b);
            peers[a][b] = Some(near);
            peers[b][a] = Some(far);
        }
        let mut between: Vec<Vec<Option<Ring>>> = (0..runtimes)
            .map(|_| (0..runtimes).map(|_| None).collect())
            .collect();
        for (a, b) in (0..runtimes).flat_map(|a| (a + 1..runtimes).map(move |b| (a, b))) {
            let (near, far) = Ring::pair(clock, usize::MAX, shape.ring_delay);
            cluster.join(switches + a, &near, switches + b);
            between[a][b] = Some(near);
            between[b][a] = Some(far);
        }
        let mut sockets: Vec<Vec<(Socket, SideRule)>> = (0..switches).map(|_| Vec::new()).collect();
        for port in 0..usize::from(shape.ports) {
            let (socket, interface) = Socket::new(usize::from(shape.queue), shape.waits, link_type(shape));
            cluster.interfaces.push(interface);
            let rule = if shape.by_address {
                SideRule::BySource(inside())
            } else {
                SideRule::Fixed(side_of(shape, port))
            };
            sockets[port % switches].push((socket, rule));
        }
        let links = to_runtimes.into_iter().zip(peers).zip(sockets);
        for (index, ((links, peers), ports)) in links.enumerate() {
            let settings = switch_settings(script, index, clocks[index]);
            let pool = pool(usize::from(shape.buffers), FRAME_MAX, index);
            let switch = Switch::new(settings, plan.clone(), ports, links, peers, pool, Region::heap);
            cluster.switches.push(switch);
        }
        for (index, (links, peers)) in to_switches.into_iter().zip(between).enumerate() {
            let settings = runtime_settings(script, index, clocks[switches + index]);
            let pool = pool(usize::from(shape.own_buffers), OWN_FRAME, switches + index);
            let mut runtime = Runtime::new(settings, plan.clone(), links, pool, Region::heap)
                .map_err(|(function, error)| format!("function `{function}`: {error}"))?;
            runtime.join(peers);
            cluster.runtimes.push(runtime);
        }
        Ok(cluster)
    }

    fn join(&mut self, one: usize, near: &Ring, other: usize) {
        self.outputs[one].push((near.outgoing(), other as u8));
        self.inputs[other].push(near.outgoing());
        self.outputs[other].push((near.incoming(), one as u8));
        self.inputs[one].push(near.incoming());
    }

    /// Whether nothing is on any ring or waits at any port.
    pub fn is_at_rest(&self) -> bool {
        let rings = self.inputs.iter().flatten();
        rings
            .map(|queue| queue.borrow())
            .all(|queue: Ref<'_, Queue>| queue.len() == 0)
            && self
                .interfaces
                .iter()
                .all(|interface| interface.borrow().incoming.is_empty())
    }

    /// Whether no group is on its way.
    pub fn moves_nothing(&self) -> bool {
        self.runtimes.iter().all(Runtime::finished)
    }

    /// What is where, for whoever looks for what does not move.
    pub fn in_words(&self) -> String {
        let waiting: Vec<usize> = self
            .inputs
            .iter()
            .map(|rings| rings.iter().map(|ring| ring.borrow().len()).sum())
            .collect();
        let ports: Vec<usize> = self
            .interfaces
            .iter()
            .map(|port| port.borrow().incoming.len())
            .collect();
        let pools = self
            .switches
            .iter()
            .map(Switch::pool)
            .chain(self.runtimes.iter().map(Runtime::pool));
        let pools: Vec<String> = pools
            .map(|pool| format!("{}/{}", pool.free(), pool.total()))
            .collect();
        let stalls: Vec<u64> = self
            .runtimes
            .iter()
            .map(|runtime| runtime.stats().stalls)
            .collect();
        format!(
            "on rings to each worker {waiting:?}, at ports {ports:?}, buffers home {pools:?}, runtimes' stalls {stalls:?}"
        )
    }

    /// The most there ever were on rings to runtimes, with what there may be.
    pub fn rings(&self, shape: &Shape) -> Vec<(usize, usize)> {
        let most = |queue: &SharedQueue| queue.borrow().most;
        self.bounded
            .iter()
            .map(|queue| (most(queue), usize::from(shape.depth)))
            .collect()
    }

    /// Gives memory back after a crash: a pool whose buffers are out would leave it to them. Nothing of this is seen by anybody.
    pub fn scrap(mut self, clock: &Clock) {
        let now = clock.get();
        for interface in &self.interfaces {
            interface.borrow_mut().incoming.clear();
        }
        for round in 0..64 {
            // What is on rings is seen at once.
            clock.set(now + round * 1_000_000);
            for switch in &mut self.switches {
                switch.stop_reading();
                switch.finish();
                switch.step(0);
            }
            for runtime in &mut self.runtimes {
                runtime.step(0);
                runtime.finish(usize::MAX);
                runtime.take_events(&mut String::new());
            }
        }
        clock.set(now);
    }
}

/// By which side the port is, where ports are by side.
pub(crate) fn side_of(shape: &Shape, port: usize) -> Side {
    debug_assert!(!shape.by_address);
    if port.is_multiple_of(2) {
        Side::Inside
    } else {
        Side::Outside
    }
}

fn inside() -> Vec<Prefix> {
    vec!["10.0.0.0/8".parse().expect("a prefix")]
}

/// By which port packets for inside, and for outside, leave.
fn egress(shape: &Shape) -> [usize; 2] {
    if shape.by_address { [0, 0] } else { [0, 1] }
}

fn switch_settings(script: &Script, index: usize, now: u64) -> runtime::switch::Settings {
    let shape = &script.shape;
    let switches = usize::from(shape.switches);
    runtime::switch::Settings {
        switch: index as u8,
        switches: shape.switches,
        seed: HashSeed::FIXED,
        routes_max: shape.routes_max,
        policy: shape.policy,
        fragments_max: 16,
        egress: egress(shape).map(|port| (port % switches == index).then_some((port / switches) as u8)),
        packet_clock: false,
        lead_max: u64::MAX,
        patient: shape.waits,
        now,
    }
}

fn runtime_settings(script: &Script, index: usize, now: u64) -> runtime::Settings {
    let shape = &script.shape;
    runtime::Settings {
        info: WorkerInfo {
            runtime: index as u16,
            runtimes: shape.runtimes,
            flows_max: shape.flows_max,
            seed: script.seed,
        },
        seed: HashSeed::FIXED,
        waiting_max: 4,
        queued_max: 16,
        held_max: 16,
        fragments_max: 16,
        events_max: EVENTS_MAX,
        moves_max: shape.moves_max,
        kept_max: shape.kept_max,
        move_timeout: shape.move_timeout,
        switches: shape.switches,
        egress: egress(shape).map(|port| (port % usize::from(shape.switches)) as u8),
        inside: if shape.by_address { inside() } else { Vec::new() },
        now,
        ..runtime::Settings::alone(shape.flows_max)
    }
}

fn pool(count: usize, frame: usize, origin: usize) -> Pool {
    let region = Region::heap(Pool::region_length(count, frame));
    Pool::new(region, count, frame, origin as u8)
}
