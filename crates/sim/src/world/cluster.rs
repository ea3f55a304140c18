//! The production workers of a run, wired as `flowkeep` wires them: every switch with every runtime
//! and every other switch, every two runtimes.
//!
//! Workers are numbered: switches first, then runtimes. For each the cluster knows which queues
//! lead to it and from it, so that the world can see which workers have something to do.

use crate::apart::{DEAD_AFTER, Far, Heard, Link, SUSPENDED, Said, SharedEnd, Spared};
use crate::changes::Snapshots;
use crate::checkers::Sighting;
use crate::link::{Clock, Queue, Ring, SharedInterface, SharedQueue, Socket};
use crate::script::{Script, Shape};
use nf::{Side, WorkerInfo};
use runtime::Runtime;
use runtime::chain::Plan;
use runtime::replication::Copying;
use runtime::switch::{SideRule, Switch};
use std::cell::Ref;
use std::collections::BTreeMap;
use wire::memory::Region;
use wire::{HashSeed, LinkType, Pool, Prefix};

/// The longest frame of a script, with room.
const FRAME_MAX: usize = 512;
/// Buffers of runtimes, which are for words and states; as `flowkeep run` makes them.
const OWN_FRAME: usize = 2048;
/// Bytes of event log between two turns of a runtime.
const EVENTS_MAX: usize = 32 * 1024;

pub(crate) struct Cluster {
    pub switches: Vec<Switch<Socket, Link>>,
    pub runtimes: Vec<Runtime<Link>>,
    /// By port.
    pub interfaces: Vec<SharedInterface>,
    /// By worker: the queues that lead to it.
    pub inputs: Vec<Vec<SharedQueue>>,
    /// By worker: the queues that lead from it, and the worker at the other end.
    pub outputs: Vec<Vec<(SharedQueue, u8)>>,
    /// Rings from switches to runtimes, which say how much room they have.
    bounded: Vec<SharedQueue>,
    /// Where the cluster is several processes: by worker and other worker, the ends of links
    /// between these.
    pub ends: BTreeMap<(usize, usize), SharedEnd>,
    /// By runtime: its words to switches.
    pub said: Vec<Said>,
    /// By worker: how often it has begun.
    pub incarnations: Vec<u64>,
    /// Frames taken in and sent, as seen from outside.
    pub entered: u64,
    pub left: u64,
    /// Of those sent, frames of no host, and damaged ones that are ICMP errors by their own words.
    pub own: u64,
    pub damaged_errors: u64,
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
    /// Makes all workers, each by its process's plan, whose clocks say what `clocks` says.
    pub fn new(
        script: &Script,
        plans: &[Plan],
        clock: &Clock,
        clocks: &[u64],
        incarnations: Vec<u64>,
    ) -> Result<Cluster, String> {
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
            ends: BTreeMap::new(),
            said: (0..runtimes).map(|_| Said::default()).collect(),
            incarnations,
            entered: 0,
            left: 0,
            own: 0,
            damaged_errors: 0,
        };
        let mut links: Vec<Vec<Option<Link>>> = (0..workers)
            .map(|_| (0..workers).map(|_| None).collect())
            .collect();
        for (a, b) in (0..workers).flat_map(|a| (a + 1..workers).map(move |b| (a, b))) {
            let (near, far) = cluster.pair(script, clock, clocks, a, b);
            links[a][b] = Some(near);
            links[b][a] = Some(far);
        }
        cluster.interfaces = vec![SharedInterface::default(); usize::from(shape.ports)];
        for (worker, links) in links.into_iter().enumerate() {
            match worker.checked_sub(switches) {
                None => {
                    let mut switch = cluster.switch(script, &plans[worker], worker, links, clocks[worker]);
                    if shape.apart.is_some() {
                        switch.wait_for_resync(TOLD_BY);
                    }
                    cluster.switches.push(switch);
                }
                Some(index) => {
                    let incarnation = cluster.incarnations[worker];
                    let links = cluster.hear(index, links, switches);
                    let runtime = runtime(script, &plans[worker], index, links, clocks[worker], incarnation)?;
                    cluster.runtimes.push(runtime);
                }
            }
        }
        Ok(cluster)
    }

    /// A link between two workers: a ring, or a channel if they are of different processes.
    fn pair(&mut self, script: &Script, clock: &Clock, clocks: &[u64], a: usize, b: usize) -> (Link, Link) {
        let shape = &script.shape;
        if shape.are_apart(a, b) {
            let (near, far) = (
                self.end(script, a, b, clocks[a]),
                self.end(script, b, a, clocks[b]),
            );
            return (near, far);
        }
        let switches = usize::from(shape.switches);
        let is_bounded = a < switches && b >= switches;
        let depth = if is_bounded {
            usize::from(shape.depth)
        } else {
            usize::MAX
        };
        let (near, far) = Ring::pair(clock, depth, shape.ring_delay);
        if is_bounded {
            self.bounded.push(near.outgoing());
        }
        self.join(a, &near, b);
        (Link::Near(near), Link::Near(far))
    }

    /// A worker's end of the link to another process's.
    fn end(&mut self, script: &Script, from: usize, to: usize, now: u64) -> Link {
        let switches = usize::from(script.shape.switches);
        let frames = script.shape.apart.map_or(512, |apart| apart.frames);
        // A runtime has more messages to send than a switch, and spares more buffers for them.
        // Links whose packets go on by other links stop being read first.
        let spared = match (from < switches, to < switches) {
            (true, false) => 8,
            (true, true) => 16,
            (false, true) => 16 * switches + 56,
            (false, false) => 16 * switches + 8,
        };
        let incarnation = 1 + (self.incarnations[from] << 32);
        let silence = match script.joined() {
            Some(_) => SUSPENDED,
            None => DEAD_AFTER,
        };
        let (far, end) = Far::new(from, to, incarnation, Spared(spared, frames, silence), now);
        if let Some(before) = self.ends.insert((from, to), end) {
            before.borrow_mut().is_dead = true;
        }
        Link::Far(Box::new(far))
    }

    /// Has what a runtime says to switches be read.
    fn hear(&self, runtime: usize, links: Vec<Option<Link>>, switches: usize) -> Vec<Option<Link>> {
        let said = &self.said[runtime];
        let hear = |(to, link): (usize, Option<Link>)| match link {
            Some(link) if to < switches => Some(Link::Heard(Box::new(Heard(link, to, said.clone())))),
            link => link,
        };
        links.into_iter().enumerate().map(hear).collect()
    }

    /// A process begins again, with nothing, all of its workers; the former ones are handed back,
    /// to be scrapped.
    pub fn begin_again(
        &mut self,
        script: &Script,
        plans: &[Plan],
        clock: &Clock,
        (process, now): (&[u8], u64),
    ) -> Result<Vec<Dead>, String> {
        let workers = self.incarnations.len();
        let clocks = vec![now; workers];
        for worker in process {
            let worker = usize::from(*worker);
            self.incarnations[worker] += 1;
            // Rings are within the process.
            self.inputs[worker].clear();
            self.outputs[worker].clear();
        }
        let mut links: BTreeMap<(usize, usize), Link> = BTreeMap::new();
        for worker in process.iter().map(|worker| usize::from(*worker)) {
            for other in (0..workers).filter(|other| *other != worker) {
                if script.shape.are_apart(worker, other) {
                    links.insert((worker, other), self.end(script, worker, other, now));
                } else if worker < other {
                    let (near, far) = self.pair(script, clock, &clocks, worker, other);
                    links.insert((worker, other), near);
                    links.insert((other, worker), far);
                }
            }
        }
        let mut dead = Vec::new();
        for worker in process.iter().map(|worker| usize::from(*worker)) {
            let links = (0..workers).map(|other| links.remove(&(worker, other)));
            dead.push(self.replace(script, &plans[worker], worker, links.collect(), now)?);
        }
        Ok(dead)
    }

    fn replace(
        &mut self,
        script: &Script,
        plan: &Plan,
        worker: usize,
        links: Vec<Option<Link>>,
        now: u64,
    ) -> Result<Dead, String> {
        let switches = usize::from(script.shape.switches);
        Ok(match worker.checked_sub(switches) {
            None => {
                for port in (worker..self.interfaces.len()).step_by(switches) {
                    self.interfaces[port].borrow_mut().incoming.clear();
                }
                let mut switch = self.switch(script, plan, worker, links, now);
                switch.wait_for_resync(TOLD_BY);
                Dead::Switch(Box::new(std::mem::replace(&mut self.switches[worker], switch)))
            }
            Some(index) => {
                let incarnation = self.incarnations[worker];
                // The former runtime goes on to speak while it is scrapped: no worker hears it.
                self.said[index] = Said::default();
                let links = self.hear(index, links, switches);
                let runtime = runtime(script, plan, index, links, now, incarnation)?;
                Dead::Runtime(Box::new(std::mem::replace(&mut self.runtimes[index], runtime)))
            }
        })
    }

    fn switch(
        &mut self,
        script: &Script,
        plan: &Plan,
        index: usize,
        mut links: Vec<Option<Link>>,
        now: u64,
    ) -> Switch<Socket, Link> {
        let shape = &script.shape;
        let switches = usize::from(shape.switches);
        let mut sockets = Vec::new();
        for port in (index..usize::from(shape.ports)).step_by(switches) {
            let (socket, interface) = Socket::new(usize::from(shape.queue), shape.waits, link_type(shape));
            self.interfaces[port] = interface;
            let rule = if shape.by_address {
                SideRule::BySource(inside())
            } else {
                SideRule::Fixed(side_of(shape, port))
            };
            sockets.push((socket, rule));
        }
        let to_runtimes = links.split_off(switches).into_iter().flatten().collect();
        let settings = switch_settings(script, index, now);
        let pool = pool(usize::from(shape.buffers), frame_max(shape, FRAME_MAX), index);
        let memory = Region::heap;
        let mut switch = Switch::new(settings, plan.clone(), sockets, to_runtimes, links, pool, memory);
        switch.expect_listed(usize::from(script.listed()));
        switch
    }

    fn join(&mut self, one: usize, near: &Ring, other: usize) {
        self.outputs[one].push((near.outgoing(), other as u8));
        self.inputs[other].push(near.outgoing());
        self.outputs[other].push((near.incoming(), one as u8));
        self.inputs[one].push(near.incoming());
    }

    /// Whether links between processes have nothing to do, and all workers have met each other.
    fn ends_are_at_rest(&self) -> bool {
        self.ends
            .values()
            .map(|end| end.borrow())
            .all(|end| end.session != 0 && end.is_drained())
    }

    /// Packets that links between processes lost, since they were for no worker.
    pub fn unsent(&self) -> u64 {
        self.ends.values().map(|end| end.borrow().lost).sum()
    }

    /// Whether nothing is on any ring, waits at any port, or is hairpinned and waits at a switch.
    pub fn is_at_rest(&self) -> bool {
        let rings = self.inputs.iter().flatten();
        rings
            .map(|queue| queue.borrow())
            .all(|queue: Ref<'_, Queue>| queue.len() == 0)
            && self
                .interfaces
                .iter()
                .all(|interface| interface.borrow().incoming.is_empty())
            && !self.switches.iter().any(Switch::has_hairpins)
            && self.ends_are_at_rest()
    }

    /// All flows of all runtimes.
    pub fn flows(&self) -> Vec<Sighting> {
        let mut seen = Vec::new();
        for (index, runtime) in self.runtimes.iter().enumerate() {
            runtime.each_flow(|flow| seen.push((index as u16, *flow)));
        }
        seen
    }

    /// Whether no call waits.
    pub fn waits_for_nothing(&self) -> bool {
        !self.runtimes.iter().any(Runtime::has_waiting)
    }

    /// Whether no group is on its way.
    pub fn moves_nothing(&self) -> bool {
        self.runtimes.iter().all(Runtime::finished)
    }

    /// The cluster's state in words, to find what does not move.
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

    /// Gives memory back after a crash: a pool whose buffers are out would leave it to them. The
    /// world sees nothing of this.
    pub fn scrap(mut self, clock: &Clock) {
        let now = clock.get();
        for interface in &self.interfaces {
            interface.borrow_mut().incoming.clear();
        }
        for round in 0..64 {
            // Items on rings are seen at once.
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

/// A worker that has crashed.
pub(crate) enum Dead {
    Switch(Box<Switch<Socket, Link>>),
    Runtime(Box<Runtime<Link>>),
}

impl Dead {
    /// Gives memory of a process back, as far as items on links let it; the world sees nothing of
    /// this.
    pub fn scrap(mut process: Vec<Dead>, clock: &Clock) {
        let now = clock.get();
        // Buffers on rings come home by them.
        let rounds = if process.len() > 1 { 64 } else { 8 };
        for round in 0..rounds {
            clock.set(now + round * 1_000_000);
            process.iter_mut().for_each(Dead::clear);
        }
        clock.set(now);
    }

    fn clear(&mut self) {
        match self {
            Dead::Switch(switch) => {
                switch.stop_reading();
                switch.finish();
                switch.step(0);
            }
            Dead::Runtime(runtime) => {
                runtime.step(0);
                runtime.finish(usize::MAX);
                runtime.take_events(&mut String::new());
            }
        }
    }
}

/// How long a switch that begins waits for what runtimes have to tell.
const TOLD_BY: u64 = 200_000_000;

fn frame_max(shape: &Shape, usual: usize) -> usize {
    match shape.apart {
        Some(_) => runtime::message::FRAME_MAX,
        None => usual,
    }
}

fn runtime(
    script: &Script,
    plan: &Plan,
    index: usize,
    mut links: Vec<Option<Link>>,
    now: u64,
    incarnation: u64,
) -> Result<Runtime<Link>, String> {
    let shape = &script.shape;
    let switches = usize::from(shape.switches);
    let between = links.split_off(switches);
    let settings = runtime_settings(script, index, now, incarnation);
    let frame = frame_max(shape, OWN_FRAME);
    let pool = pool(usize::from(shape.own_buffers), frame, switches + index);
    let links = links.into_iter().flatten().collect();
    let mut runtime = Runtime::new(settings, plan.clone(), links, pool, Region::heap)
        .map_err(|(function, error)| format!("function `{function}`: {error}"))?;
    runtime.join(between);
    Ok(runtime)
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
    ["10.0.0.0/8", "2001:db8::a00:0/104"]
        .map(|prefix| prefix.parse().expect("a prefix"))
        .to_vec()
}

/// By which port packets for inside, and for outside, leave.
fn egress(shape: &Shape) -> [usize; 2] {
    if shape.by_address { [0, 0] } else { [0, 1] }
}

fn switch_settings(script: &Script, index: usize, now: u64) -> runtime::switch::SwitchSettings {
    let shape = &script.shape;
    let switches = usize::from(shape.switches);
    runtime::switch::SwitchSettings {
        switch: index as u8,
        switches: shape.switches,
        seed: HashSeed::FIXED,
        routes_max: shape.routes_max,
        policy: shape.policy,
        fragments_max: shape.fragments_max,
        egress: egress(shape).map(|port| (port % switches == index).then_some((port / switches) as u8)),
        packet_clock: false,
        lead_max: u64::MAX,
        recovery_max: if is_copied(script) { RECOVERY_MAX } else { 0 },
        patient: shape.waits,
        now,
    }
}

/// How long packets of a failed runtime wait, in nanoseconds.
const RECOVERY_MAX: u64 = 500_000_000;

fn is_copied(script: &Script) -> bool {
    script.shape.apart.is_some_and(|apart| apart.copied)
}

/// An incarnation of a runtime, as its functions are told of it.
pub(crate) fn info(script: &Script, index: usize, incarnation: u64) -> WorkerInfo {
    WorkerInfo {
        runtime: index as u16,
        runtimes: script.listed(),
        flows_max: script.shape.flows_max,
        // A runtime that begins again draws again, as with `flowkeep node`.
        seed: script.seed.wrapping_add(incarnation << 32),
    }
}

fn copying(script: &Script) -> Copying {
    let usual = Copying::default();
    match script.snapshots() {
        Some(Snapshots { packets, interval }) => Copying {
            policy: runtime::replication::Policy::Snapshot,
            packets,
            interval,
            ..usual
        },
        None => usual,
    }
}

fn runtime_settings(script: &Script, index: usize, now: u64, incarnation: u64) -> runtime::Settings {
    let shape = &script.shape;
    runtime::Settings {
        info: info(script, index, incarnation),
        seed: HashSeed::FIXED,
        waiting_max: shape.calls_max.0,
        queued_max: shape.calls_max.1,
        held_max: 16,
        fragments_max: shape.fragments_max,
        events_max: EVENTS_MAX,
        moves_max: shape.moves_max,
        kept_max: shape.kept_max,
        move_timeout: shape.move_timeout,
        switches: shape.switches,
        egress: egress(shape).map(|port| (port % usize::from(shape.switches)) as u8),
        inside: if shape.by_address { inside() } else { Vec::new() },
        replicated: is_copied(script),
        copying: copying(script),
        replica_ranks: replica_ranks(script, index),
        now,
        ..runtime::Settings::alone(shape.flows_max)
    }
}

/// Copies are at another process, as `flowkeep` has it.
fn replica_ranks(script: &Script, index: usize) -> Vec<Option<u8>> {
    let shape = &script.shape;
    let switches = usize::from(shape.switches);
    let is_other = |other: usize| shape.are_apart(switches + index, switches + other);
    match script.scenario.has_processes() {
        true => (0..usize::from(shape.runtimes))
            .map(|other| is_other(other).then_some(0))
            .collect(),
        false => Vec::new(),
    }
}

fn pool(count: usize, frame: usize, origin: usize) -> Pool {
    let region = Region::heap(Pool::region_length(count, frame));
    Pool::new(region, count, frame, origin as u8)
}
