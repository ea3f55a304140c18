//! A run: production workers, hosts and the network between them, moved by one queue of events.
//!
//! # Theory of operation
//!
//! ```text
//!   client ─path─► port │ switch ═ring═ runtime ═ring═ switch │ port ─path─► server
//!                       └──────── turns, each at its time ────┘
//! ```
//!
//! Everything happens at a time: a frame arrives, a timer runs out, a worker takes its turn, a
//! fault begins. Events of one time come in the order in which they were made. A worker takes a
//! turn soon after something has come for it, and now and then without; how soon is drawn again
//! each time, within its pace, so workers take turns in any order. Each has a clock of its own,
//! which starts elsewhere, runs faster or slower, and may jump.
//!
//! Checkers look at what enters and leaves, and, every few turns, at all flows. The first violation
//! ends the run.
//!
//! | file | what |
//! |---|---|
//! | `cluster` | the workers and their links |
//! | `apart` | frames between processes, and processes that crash alone |
//! | `joined` | a coordinator, and the agents of its members |
//! | `members` | what there is of both |
//! | `elections` | several coordinators, and their store |
//! | `changing` | another configuration while flows live |
//! | `leaving` | runtimes that leave by plan |
//! | `neighbours` | kernels, and what they know of hosts |
//! | `frames` | frames in the network, in and out |
//! | `hosts` | clients and servers |
//! | `parts` | faults, healing, what must then be so |
//!
//! Not here: the script ([`crate::script`]); several runs ([`crate::run()`]).

mod apart;
mod changing;
mod cluster;
mod elections;
mod frames;
mod hosts;
mod joined;
mod leaving;
mod members;
mod neighbours;
mod parts;

use crate::Time;
use crate::checkers::delivered::Delivered;
use crate::checkers::order::Order;
use crate::checkers::read::Read;
use crate::checkers::{
    Sighting, Violation, addressed, announced, conservation, endpoints, kept, limited, one_actor,
};
use crate::coordinator::{Said, Told};
use crate::frame::{self, Assembly, End, Frame, Head, Label, PARTS_MAX};
use crate::kernel::Planned;
use crate::link::Clock;
use crate::network::Path;
use crate::random::{Random, Stream};
use crate::scenario::{STRANGER, inside_host, server};
use crate::script::{INSIDE_HOSTS, SERVERS, Script};
use crate::store::{Reply, Request};
use crate::timeline::{Event, Timeline};
use apart::Past;
use changing::{Changing, Site};
use cluster::{Cluster, link_type};
use frames::port_of;
use hosts::{Client, Server, Wish};
use leaving::Leaving;
use members::Members;
use neighbours::Neighbours;
use protocols::membership::Incarnation;
use runtime::chain::Plan;
use runtime::group::GroupKey;
use std::cell::Cell;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::rc::Rc;
use wire::LinkType;

/// A packet that a host sent, by its identifier.
#[derive(Clone, Debug)]
pub(crate) struct Packet {
    pub talk: u16,
    pub head: Head,
    pub label: Option<Label>,
    /// From the server to the client.
    pub is_answer: bool,
    /// Damaged: it may be anything.
    pub is_wild: bool,
    /// How long its fragments are, if it was taken apart, and how often each, or the whole, has
    /// come and gone.
    pub split: u16,
    pub passages: [Passages; PARTS_MAX],
    /// The packet that it is about, if it is an ICMP error.
    pub about: u16,
    /// Of which packet it is the first fragment, damaged, by whose number the others go (0: of
    /// none); and whether such a one of this packet's has come in.
    pub copy_of: u16,
    pub is_misled: bool,
}

/// How often something has entered the cluster and left it.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) struct Passages {
    pub entered: u16,
    pub left: u16,
}

/// Fragments that are being put together, by packet.
type Assemblies = BTreeMap<u16, Assembly>;

/// Something that is to happen.
enum Due {
    Turn(u8, u32),
    ToPort(Frame, usize),
    ToHost(Frame, usize),
    Wake(u16, u32),
    Begin(u16),
    End(u16),
    Order(u16),
    /// A configuration is to be put in force, after so many vain tries; is to be decided; and a
    /// incarnation of a worker is to commit.
    Change(u16, u16),
    Decide(u16, u16),
    Commit(u8, u64),
    /// A frame from one process to another.
    Carried(u8, u8, Vec<u8>),
    /// A process that crashed begins again.
    Return(u8),
    /// A member's agent says what there is.
    Beat(u8),
    /// A word of an agent has come to a coordinator.
    Told(u8, u8, Box<Told>),
    /// A word of a coordinator has come to an incarnation of a worker.
    Said(u8, u8, Incarnation, Box<Said>),
    /// Coordinators look at which members are silent.
    Look,
    /// A record of a run of a coordinator is in its log.
    Written(u32),
    /// A coordinator begins again.
    Office(u8),
    /// A coordinator's process sees what there is to ask of the store.
    Poll(u8, u32),
    /// A request of a coordinator's run has come to the store; the answer has come back.
    Asked(u8, u32, u32, Box<Request>),
    Replied(u8, u32, u32, Box<Reply>),
    /// A runtime is to leave by plan; and how far it is.
    Going(u16),
    Leaves(u8, Incarnation),
    /// A worker's process ends, since this incarnation of it is over.
    Fenced(u8, Incarnation),
    /// A kernel looks at the wanted hosts; and has heard of a host.
    Kernel(u8),
    Resolved(u8, u8),
}

/// When, in which order among those of one time, and what.
struct Entry(Time, u64, Due);

impl PartialEq for Entry {
    fn eq(&self, other: &Self) -> bool {
        self.1 == other.1
    }
}
impl Eq for Entry {}
impl PartialOrd for Entry {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for Entry {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.0, self.1).cmp(&(other.0, other.1))
    }
}

/// When a worker takes its turns, and what time it takes it to be.
struct Turns {
    next: Time,
    version: u32,
    stalled_until: Time,
    /// It has crashed, and is not there again before.
    down_until: Time,
    /// Its clock is ahead of true time by so much, and gains so many parts in a million.
    ahead: u64,
    drift_ppm: u64,
    pace: u64,
    /// Turns in a row in which it could do nothing.
    vain: u32,
    random: Random,
}

/// A host, and its paths to the cluster and from it.
struct Host {
    addr: [u8; 4],
    port: usize,
    to: Path,
    from: Path,
    server: Server,
    /// Its packets in fragments.
    assemblies: Assemblies,
}

/// How often a worker takes a turn without anything to do, in nanoseconds.
const IDLE: u64 = 10_000_000;
/// The same where it has a member slot in a cluster with a coordinator: as threads of `flowkeep`
/// do.
const IDLE_IN_MEMBER_SLOT: u64 = 4_000_000;
/// How often a runtime takes one while groups are on their way to or from it: a runtime that is at
/// work asks again and again.
const BUSY: u64 = 20_000;
/// Clocks start here: no run needs a time before.
const EPOCH: u64 = 1_000_000_000;
/// Where the cluster is several processes, each clock counts from its own machine's start: some are
/// moments old, some years.
const UPTIME_MAX: u64 = 30 * 365 * 24 * 3600 * 1_000_000_000;
/// How long a worker that could do nothing waits at most until it tries again by itself, in
/// nanoseconds.
const VAIN_MAX: u64 = 1_000_000;
/// Flows are looked at every so many turns of runtimes.
const LOOKS: u32 = 8;

pub(crate) struct World<'s> {
    script: &'s Script,
    /// By worker.
    plans: Vec<Plan>,
    /// Where the cluster is a router: the kernels.
    neighbours: Option<Neighbours>,
    clock: Clock,
    due: BinaryHeap<Reverse<Entry>>,
    made: u64,
    cluster: Cluster,
    turns: Vec<Turns>,
    hosts: Vec<Host>,
    clients: Vec<Client>,
    /// Between processes, by sender and receiver.
    ways: BTreeMap<(usize, usize), Path>,
    sessions: BTreeMap<(usize, usize), u64>,
    /// By worker: until when its process is cut off, whatever partition ends before.
    cut_until: Vec<Time>,
    /// The end of the silence that began once all was copied.
    silent_until: Time,
    /// Where workers have joined a coordinator.
    members: Option<Members>,
    found: Option<Violation>,
    /// The counts of crashed workers.
    past: Past,
    /// Frames in the network.
    flying: u32,
    /// Talks that have begun, or are about to, and are not over.
    open_talks: u32,
    pub packets: Vec<Packet>,
    /// Packets in fragments that leave.
    leaving: Assemblies,
    pub timeline: Timeline,
    order: Order,
    delivered: Delivered,
    read: Read,
    /// Orders to move groups: the runtime that they leave, and the number that it gave the order.
    orders: Vec<(u16, u32)>,
    changing: Changing,
    /// By worker: how far it is, if it leaves.
    departing: Vec<Option<Leaving>>,
    /// Runtimes that are still to leave.
    open_goings: u32,
    /// Orders that are still to be given in this part.
    open_orders: u32,
    looks: u32,
    /// By runtime: a switch has let it go, or has met it since, and does not know yet what it has.
    let_go: Vec<bool>,
    seen: Vec<Sighting>,
    wishes: Vec<Wish>,
    lines: String,
    violation: Option<Violation>,
    link: LinkType,
}

/// The address of a host by its number: inside ones, servers, the stranger.
pub(crate) fn address_of(host: usize) -> std::net::Ipv4Addr {
    addr_of(host).into()
}

fn addr_of(host: usize) -> [u8; 4] {
    let host = host as u16;
    match host.checked_sub(INSIDE_HOSTS) {
        None => inside_host(host),
        Some(outside) if outside < SERVERS => server(outside),
        Some(_) => STRANGER,
    }
}

const HOSTS: usize = (INSIDE_HOSTS + SERVERS + 1) as usize;

impl<'s> World<'s> {
    /// `planned`: by worker. `configurations`: all that there are in turn, if they change.
    pub fn new(
        script: &'s Script,
        planned: &[Planned],
        configurations: Vec<Plan>,
        records: bool,
    ) -> Result<World<'s>, String> {
        let mut plans: Vec<Plan> = planned.iter().map(|planned| planned.plan.clone()).collect();
        if let Some(first) = configurations.first() {
            plans.fill(first.clone());
        }
        let shape = &script.shape;
        let clock: Clock = Rc::new(Cell::new(0));
        let workers = usize::from(shape.switches) + usize::from(shape.runtimes);
        let turns: Vec<Turns> = (0..workers).map(|worker| Turns::new(script, worker)).collect();
        let clocks: Vec<u64> = turns.iter().map(|turns| turns.now(0)).collect();
        let cluster = Cluster::new(script, &plans, &clock, &clocks, vec![0; workers])?;
        let hosts = (0..HOSTS).map(|host| {
            let path = |way: u64| {
                let random = Random::of(script.seed, Stream::Path, 2 * host as u64 + way);
                Path::new(script.delay, script.noise, random)
            };
            Host {
                addr: addr_of(host),
                port: port_of(script, host, 0),
                to: path(0),
                from: path(1),
                server: Server::default(),
                assemblies: Assemblies::new(),
            }
        });
        // No host sends the identifier 0: that is what the cluster makes.
        let own = Packet {
            talk: 0,
            head: Head {
                id: 0,
                is_v6: false,
                source: End::default(),
                destination: End::default(),
                transport: frame::Transport::Other(0),
            },
            label: None,
            is_answer: false,
            is_wild: true,
            split: 0,
            passages: Default::default(),
            about: 0,
            copy_of: 0,
            is_misled: false,
        };
        Ok(World {
            neighbours: Neighbours::new(script, planned),
            plans,
            clock,
            due: BinaryHeap::new(),
            made: 0,
            cluster,
            turns,
            hosts: hosts.collect(),
            clients: script.talks.iter().map(|_| Client::new()).collect(),
            ways: apart::ways(script),
            sessions: BTreeMap::new(),
            cut_until: vec![0; workers],
            silent_until: 0,
            members: Members::new(script),
            found: None,
            past: Past::default(),
            flying: 0,
            open_talks: 0,
            packets: vec![own],
            leaving: Assemblies::new(),
            timeline: Timeline::new(records),
            order: Order::default(),
            delivered: Delivered::default(),
            read: Read::default(),
            orders: Vec::new(),
            changing: Changing::new(script, configurations, workers),
            departing: (0..workers).map(|_| None).collect(),
            open_goings: 0,
            open_orders: 0,
            looks: 0,
            let_go: vec![false; usize::from(shape.runtimes)],
            seen: Vec::new(),
            wishes: Vec::new(),
            lines: String::new(),
            violation: None,
            link: link_type(shape),
            script,
        })
    }

    fn now(&self) -> Time {
        self.clock.get()
    }

    fn plan_for(&mut self, at: Time, due: Due) {
        self.made += 1;
        self.due.push(Reverse(Entry(at.max(self.now()), self.made, due)));
    }

    fn fail(&mut self, found: Result<(), Violation>) {
        if let (Err(violation), None) = (found, &self.violation) {
            self.violation = Some(violation);
        }
    }

    /// Lets time pass up to `until`, or, if told so, until nothing moves any more; answers whether
    /// it came to that.
    fn pass(&mut self, until: Time, to_rest: bool) -> Result<bool, Violation> {
        loop {
            if to_rest && self.is_at_rest() && self.orders_are_over() {
                return Ok(true);
            }
            match self.due.peek() {
                Some(Reverse(entry)) if entry.0 <= until => {}
                _ => break,
            }
            let Some(Reverse(Entry(at, _, due))) = self.due.pop() else {
                break;
            };
            self.clock.set(at);
            self.happen(due);
            if let Some(violation) = self.violation.take() {
                return Err(violation);
            }
        }
        self.clock.set(until);
        Ok(false)
    }

    fn is_at_rest(&self) -> bool {
        let is_stable = self.open_goings == 0 && self.departing.iter().all(Option::is_none);
        let is_silent = self.flying == 0 && self.open_talks == 0 && self.open_orders == 0 && is_stable;
        let is_changed = self.changing.open == 0 && self.changing.is_over();
        let is_over = self.cluster.moves_nothing() && self.cluster.waits_for_nothing();
        is_silent && is_changed && self.cluster.is_at_rest() && is_over && self.members_are_at_rest()
    }

    fn happen(&mut self, due: Due) {
        match due {
            Due::Turn(worker, version) => {
                if self.turns[usize::from(worker)].version == version {
                    self.turn(worker);
                }
            }
            Due::ToPort(frame, port) => self.arrive_at_port(frame, port),
            Due::ToHost(frame, host) => self.arrive_at_host(&frame, host),
            Due::Wake(talk, timer) => {
                if self.clients[usize::from(talk)].timer == timer {
                    self.wake_client(talk);
                }
            }
            Due::Begin(fault) => self.begin_fault(fault),
            Due::End(fault) => self.end_fault(fault),
            Due::Order(index) => self.order_move(index),
            Due::Change(index, tries) => {
                let is_all_there = self.is_all_there();
                self.have_changes(|changing, site| changing.order(site, index, tries, is_all_there));
            }
            Due::Decide(index, tries) => {
                self.have_changes(|changing, site| changing.decide(site, index, tries))
            }
            Due::Commit(worker, incarnation) => {
                let stands_until = self.turns[usize::from(worker)].stalled_until;
                self.have_changes(|changing, site| changing.commit(site, worker, incarnation, stands_until));
            }
            Due::Carried(from, to, frame) => self.arrive_at_worker(from, to, frame),
            Due::Return(worker) => self.rouse(worker, self.now()),
            Due::Going(index) => self.begin_going(index),
            Due::Leaves(worker, incarnation) => self.go_on_leaving(worker, incarnation),
            Due::Beat(worker) => self.beat(worker),
            Due::Told(worker, office, told) => self.handle_agent(worker, office, told),
            Due::Said(worker, office, incarnation, said) => {
                self.handle_office(worker, office, incarnation, *said)
            }
            Due::Look => self.look_at_silence(),
            Due::Written(run) => self.note_written(run),
            Due::Office(office) => self.begin_office(office),
            Due::Poll(office, run) => self.poll_office(office, run),
            Due::Asked(office, run, call, request) => self.ask_store(office, run, call, request),
            Due::Replied(office, run, call, reply) => self.handle_store_reply(office, run, call, reply),
            Due::Fenced(worker, incarnation) => self.end_fenced(worker, incarnation),
            Due::Kernel(index) => self.have_kernels(|kernels, _, now| kernels.look(index, now)),
            Due::Resolved(index, host) => self.have_tables(|kernels, script, now| {
                kernels.hear(script, index, host, now);
            }),
        }
    }

    /// Has changes of the configuration go on, and plans what follows.
    fn have_changes(&mut self, act: impl FnOnce(&mut Changing, &mut Site<'_>)) {
        let now = self.now();
        let mut site = Site {
            script: self.script,
            cluster: &mut self.cluster,
            plans: &mut self.plans,
            timeline: &mut self.timeline,
            now,
            dues: Vec::new(),
            roused: Vec::new(),
            found: Ok(()),
        };
        act(&mut self.changing, &mut site);
        let Site {
            dues, roused, found, ..
        } = site;
        for (at, due) in dues {
            self.plan_for(at, due);
        }
        for worker in roused {
            self.rouse(worker, now);
        }
        self.fail(found);
    }

    /// Whether no worker is missing.
    fn is_all_there(&self) -> bool {
        let now = self.now();
        (0..self.turns.len()).all(|worker| {
            let is_up = self.turns[worker].down_until <= now;
            is_up && self.has_member_slot(worker as u8) && !self.is_gone(worker)
        })
    }

    /// Has kernels do something, and plans what follows.
    fn have_kernels(&mut self, act: impl FnOnce(&mut Neighbours, &Script, Time) -> Vec<(Time, Due)>) {
        let now = self.now();
        if let Some(neighbours) = &mut self.neighbours {
            for (at, due) in act(neighbours, self.script, now) {
                self.plan_for(at, due);
            }
        }
    }

    /// Has kernels tell of other tables: calls that wait look at them.
    fn have_tables(&mut self, act: impl FnOnce(&mut Neighbours, &Script, Time)) {
        let now = self.now();
        if let Some(neighbours) = &mut self.neighbours {
            act(neighbours, self.script, now);
            for worker in self.script.shape.switches..self.turns.len() as u8 {
                self.rouse(worker, now);
            }
        }
    }

    /// Has a worker take a turn soon, since there is something for it from `at` on.
    fn rouse(&mut self, worker: u8, at: Time) {
        if !self.has_member_slot(worker) || self.is_gone(usize::from(worker)) {
            return;
        }
        let turns = &mut self.turns[usize::from(worker)];
        let at = at.max(self.clock.get()) + turns.random.below(turns.pace);
        let at = at.max(turns.stalled_until).max(turns.down_until);
        if at < turns.next {
            self.set_turn(worker, at);
        }
    }

    fn set_turn(&mut self, worker: u8, at: Time) {
        let turns = &mut self.turns[usize::from(worker)];
        turns.next = at;
        turns.version += 1;
        let version = turns.version;
        self.plan_for(at, Due::Turn(worker, version));
    }

    /// A worker takes its turn.
    fn turn(&mut self, worker: u8) {
        let now = self.now();
        let turns = &mut self.turns[usize::from(worker)];
        let local = turns.now(now);
        let has_member_slot = self.members.is_some();
        let idle = if has_member_slot {
            IDLE_IN_MEMBER_SLOT
        } else {
            IDLE
        };
        let idle = now + idle + turns.random.below(idle / 4);
        let busy = turns.pace + BUSY + turns.random.below(BUSY);
        // A worker that waits for a cut to be over takes few turns.
        let busy = if has_member_slot {
            (busy << turns.vain.min(6)).min(VAIN_MAX)
        } else {
            busy
        };
        let stalled_until = turns.stalled_until;
        self.attend(worker, local);
        let switches = self.script.shape.switches;
        let work = match worker.checked_sub(switches) {
            None => self.cluster.switches[usize::from(worker)].step(local),
            Some(runtime) => {
                let runtime = &mut self.cluster.runtimes[usize::from(runtime)];
                let work = runtime.step(local);
                runtime.take_events(&mut self.lines);
                work.packets + work.other
            }
        };
        if !self.lines.is_empty() {
            self.timeline.fold(self.lines.as_bytes());
            self.read.hear(self.script, &self.lines);
            self.lines.clear();
        }
        if work > 0 {
            self.timeline.note(now, Event::Stepped(worker));
        }
        if worker < switches {
            self.look_at_ports(worker);
        } else if work > 0 {
            self.looks += 1;
            if self.looks.is_multiple_of(LOOKS) {
                self.look_at_flows();
            }
        }
        if worker >= switches {
            if self.changing.is_under_way(worker) {
                self.have_changes(|changing, site| changing.look(site, worker));
            }
            self.look_at_removed(worker);
            self.look_at_said(worker);
        }
        let is_moving = worker
            .checked_sub(switches)
            .is_some_and(|runtime| !self.cluster.runtimes[usize::from(runtime)].finished());
        let is_talking = self.carry(worker);
        let is_changing = self.changing.is_under_way(worker);
        let next = if is_moving || is_talking || is_changing {
            now + busy
        } else {
            idle
        };
        self.set_turn(worker, next.max(stalled_until));
        for output in 0..self.cluster.outputs[usize::from(worker)].len() {
            let (queue, reader) = &self.cluster.outputs[usize::from(worker)][output];
            let (at, reader) = (queue.borrow().next_at(), *reader);
            if let Some(at) = at {
                self.rouse(reader, at);
            }
        }
        let turns = &mut self.turns[usize::from(worker)];
        turns.vain = if work > 0 { 0 } else { turns.vain + 1 };
        // A worker that can do nothing with what there is waits for others, and tries less and less
        // often.
        let patience = if work > 0 {
            0
        } else {
            (turns.pace << turns.vain.min(11)).min(VAIN_MAX)
        };
        // Calls that wait are due by the worker's own clock.
        let runtime = worker.checked_sub(switches);
        let waiting = runtime.map(|runtime| &self.cluster.runtimes[usize::from(runtime)]);
        if let Some(due) = waiting
            .filter(|runtime| runtime.has_waiting())
            .and_then(|runtime| runtime.next_at())
        {
            self.rouse(worker, now + due.saturating_sub(local));
        }
        if let Some(at) = self.pending(worker) {
            self.rouse(worker, at.max(now + patience));
        }
    }

    /// From when on there is something for a worker.
    fn pending(&self, worker: u8) -> Option<Time> {
        let inputs = self.cluster.inputs[usize::from(worker)].iter();
        let rings = inputs.filter_map(|queue| queue.borrow().next_at()).min();
        let switches = usize::from(self.script.shape.switches);
        let mut ports = self
            .cluster
            .interfaces
            .iter()
            .skip(usize::from(worker))
            .step_by(switches);
        let has_frames =
            usize::from(worker) < switches && ports.any(|port| !port.borrow().incoming.is_empty());
        if has_frames { Some(self.now()) } else { rings }
    }

    /// Shows what a runtime has said in a step to the checker of it.
    fn look_at_said(&mut self, worker: u8) {
        let index = usize::from(worker - self.script.shape.switches);
        let said = std::mem::take(&mut *self.cluster.said[index].borrow_mut());
        if self.script.shape.is_roomy && !said.is_empty() {
            let runtime = &self.cluster.runtimes[index];
            let name = self.script.worker(worker);
            let others = self.cluster.runtimes.iter().enumerate();
            let others: Vec<_> = others.filter(|(other, _)| *other != index).collect();
            let is_elsewhere = |key: &GroupKey| {
                let mut is_there = false;
                for (_, other) in &others {
                    other.each_flow(|flow| {
                        let (from, to) = flow.ends;
                        let inside = if flow.is_from_outside { to } else { from };
                        let is_its =
                            key.address() == Some(inside.addr) || GroupKey::of_flow(flow.key) == *key;
                        is_there |= is_its && !flow.is_undecided;
                    });
                }
                is_there
            };
            let found = announced::check(
                self.script,
                &name,
                &said,
                |key| runtime.has_key(key),
                is_elsewhere,
            );
            self.fail(found);
        }
    }

    /// Shows all flows to the checkers of them.
    fn look_at_flows(&mut self) {
        let mut seen = std::mem::take(&mut self.seen);
        seen.clear();
        let mut counts = Vec::with_capacity(self.cluster.runtimes.len());
        for (index, runtime) in self.cluster.runtimes.iter().enumerate() {
            let before = seen.len();
            runtime.each_flow(|flow| seen.push((index as u16, *flow)));
            counts.push(seen.len() - before);
        }
        self.forget_let_go(&mut seen);
        if self.members.is_some() {
            let acts = self.which_may_act();
            seen.retain(|(runtime, _)| acts.get(usize::from(*runtime)) == Some(&true));
        }
        let variant = &self.script.variant;
        let is_refusal_under_way = self.script.scenario.has_balancer() && !self.is_at_rest();
        self.fail(one_actor::check(&seen, is_refusal_under_way));
        if self.script.scenario.has_nat() {
            self.fail(endpoints::check(&seen, variant.endpoint_independent));
        }
        if self.script.scenario.has_streams() {
            self.fail(limited::check(&seen));
        }
        self.fail(kept::check(self.script));
        if self.neighbours.is_some() {
            let most = u64::from(self.script.shape.calls_max.0);
            let waiting = self
                .cluster
                .runtimes
                .iter()
                .map(|runtime| runtime.stats().waiting);
            let found = addressed::bound(waiting, most);
            self.fail(found);
        }
        let rings = self.cluster.rings(&self.script.shape);
        self.fail(conservation::bounds(&self.script.shape, &counts, &rings));
        self.seen = seen;
    }
}

/// The time of a worker's clock at the beginning.
fn epoch(script: &Script, worker: usize) -> u64 {
    if script.shape.apart.is_none() {
        return EPOCH;
    }
    let mut random = Random::of(script.seed, Stream::Clock, worker as u64);
    let most = random.of_these(&[1, 60 * EPOCH, UPTIME_MAX]);
    EPOCH + random.below(most)
}

impl Turns {
    fn new(script: &Script, worker: usize) -> Self {
        let shape = &script.shape;
        let mut random = Random::of(script.seed, Stream::Worker, worker as u64);
        // A process has one clock.
        let first = shape.first_of(worker);
        let mut of_first = Random::of(script.seed, Stream::Worker, first as u64);
        let slow = shape.slow.filter(|(slow, _)| usize::from(*slow) == worker);
        let most = u64::from(shape.drift_ppm);
        let clock = |random: &mut Random| {
            let ahead = if most > 0 { random.below(50_000_000) } else { 0 };
            (ahead, random.below(most + 1))
        };
        let _ = clock(&mut random);
        let (ahead, drift_ppm) = clock(&mut of_first);
        Turns {
            next: Time::MAX,
            version: 0,
            stalled_until: 0,
            down_until: 0,
            ahead: epoch(script, first) + ahead,
            drift_ppm,
            pace: slow.map_or(shape.pace, |(_, pace)| pace),
            vain: 0,
            random,
        }
    }

    /// The time of its clock at a true time.
    fn now(&self, at: Time) -> u64 {
        self.ahead + at + at / 1_000_000 * self.drift_ppm
    }
}
