//! A run: production workers, hosts and the network between them, moved by one queue of events.
//!
//! # Theory of operation
//!
//! ```text
//!   client ─path─► port │ switch ═ring═ runtime ═ring═ switch │ port ─path─► server
//!                       └──────── turns, each at its time ────┘
//! ```
//!
//! Whatever happens, happens at a time: a frame arrives, a timer runs out, a worker takes its turn, a fault begins. Events of one time come in the order in
//! which they were made. A worker takes a turn soon after something has come for it, and now and then without; how soon is drawn anew each time, within its
//! pace, so workers take turns in any order. Each has a clock of its own, which starts elsewhere, runs faster or slower, and may jump.
//!
//! Checkers look at what enters and leaves, and, every few turns, at all flows. The first violation ends the run.
//!
//! | file | what |
//! |---|---|
//! | `cluster` | the workers and their links |
//! | `apart` | frames between processes, and processes that crash alone |
//! | `hosts` | clients and servers |
//! | `parts` | faults, healing, what must then be so |
//!
//! Not here: what happens when ([`crate::script`]); several runs ([`crate::run()`]).

mod apart;
mod cluster;
mod hosts;
mod parts;

use crate::Time;
use crate::checkers::delivered::Delivered;
use crate::checkers::order::Order;
use crate::checkers::read::Read;
use crate::checkers::{Sighting, Violation, conservation, delivered, endpoints, enforced, limited, one_actor};
use crate::frame::{self, Assembly, End, Frame, Head, Label, PARTS_MAX, Transport};
use crate::kinds::ROUTERS;
use crate::link::Clock;
use crate::network::{Arrival, Passage, Path};
use crate::random::{Random, Stream};
use crate::scenario::{STRANGER, inside_host, server};
use crate::script::{INSIDE_HOSTS, SERVERS, Script};
use crate::timeline::{Event, Timeline};
use apart::Past;
use cluster::{Cluster, link_type};
use hosts::{Client, Server, Wish};
use runtime::chain::Plan;
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
    /// How long its fragments are, if it was taken apart, and how often each, or the whole, has come and gone.
    pub split: u16,
    pub passages: [Passages; PARTS_MAX],
    /// What it is about, if it is an ICMP error.
    pub about: u16,
}

/// How often something has entered the cluster and left it.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) struct Passages {
    pub entered: u16,
    pub left: u16,
}

/// Those who put fragments together, by packet.
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
    /// A frame from one process to another.
    Carried(u8, u8, Vec<u8>),
    /// A process that crashed begins anew.
    Return(u8),
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
    /// What it has of packets in fragments.
    assemblies: Assemblies,
}

/// How often a worker takes a turn without anything to do, in nanoseconds.
const IDLE: u64 = 10_000_000;
/// How often a runtime takes one while groups are on their way to or from it: one that is at work asks again and again.
const BUSY: u64 = 20_000;
/// Clocks start here: before it lies what nobody asks for.
const EPOCH: u64 = 1_000_000_000;
/// How long a worker that could do nothing waits at most until it tries again by itself, in nanoseconds.
const VAIN_MAX: u64 = 1_000_000;
/// Flows are looked at every so many turns of runtimes.
const LOOKS: u32 = 8;

pub(crate) struct World<'s> {
    script: &'s Script,
    plan: Plan,
    clock: Clock,
    due: BinaryHeap<Reverse<Entry>>,
    made: u64,
    cluster: Cluster,
    turns: Vec<Turns>,
    hosts: Vec<Host>,
    clients: Vec<Client>,
    /// Between processes, by who sends and who receives.
    ways: BTreeMap<(usize, usize), Path>,
    sessions: BTreeMap<(usize, usize), u64>,
    /// What crashed workers had counted.
    past: Past,
    /// Frames in the network.
    flying: u32,
    /// Talks that have begun, or are about to, and are not over.
    open_talks: u32,
    pub packets: Vec<Packet>,
    /// What has left of packets in fragments.
    leaving: Assemblies,
    pub timeline: Timeline,
    order: Order,
    delivered: Delivered,
    read: Read,
    /// What groups were ordered to move: from which runtime, and the number it gave the order.
    orders: Vec<(u16, u32)>,
    /// Orders that are still to be given in this part.
    open_orders: u32,
    looks: u32,
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
    pub fn new(script: &'s Script, plan: Plan, records: bool) -> Result<World<'s>, String> {
        let shape = &script.shape;
        let clock: Clock = Rc::new(Cell::new(0));
        let workers = usize::from(shape.switches) + usize::from(shape.runtimes);
        let turns: Vec<Turns> = (0..workers).map(|worker| Turns::new(script, worker)).collect();
        let clocks: Vec<u64> = turns.iter().map(|turns| turns.now(0)).collect();
        let cluster = Cluster::new(script, &plan, &clock, &clocks, vec![0; workers])?;
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
        // Nobody sends the identifier 0: that is what the cluster makes.
        let nobody = Packet {
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
        };
        Ok(World {
            plan,
            clock,
            due: BinaryHeap::new(),
            made: 0,
            cluster,
            turns,
            hosts: hosts.collect(),
            clients: script.talks.iter().map(|_| Client::new()).collect(),
            ways: apart::ways(script),
            sessions: BTreeMap::new(),
            past: Past::default(),
            flying: 0,
            open_talks: 0,
            packets: vec![nobody],
            leaving: Assemblies::new(),
            timeline: Timeline::new(records),
            order: Order::default(),
            delivered: Delivered::default(),
            read: Read::default(),
            orders: Vec::new(),
            open_orders: 0,
            looks: 0,
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

    /// Lets time pass up to `until`, or, if told so, until nothing moves any more; answers whether it came to that.
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
        let is_silent = self.flying == 0 && self.open_talks == 0 && self.open_orders == 0;
        let is_over = self.cluster.moves_nothing() && self.cluster.waits_for_nothing();
        is_silent && self.cluster.is_at_rest() && is_over
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
            Due::Carried(from, to, frame) => self.arrive_at_worker(from, to, frame),
            Due::Return(worker) => self.rouse(worker, self.now()),
        }
    }

    /// Has a worker take a turn soon, since there is something for it from `at` on.
    fn rouse(&mut self, worker: u8, at: Time) {
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
        let idle = now + IDLE + turns.random.below(IDLE / 4);
        let busy = turns.pace + BUSY + turns.random.below(BUSY);
        let stalled_until = turns.stalled_until;
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
        let is_moving = worker
            .checked_sub(switches)
            .is_some_and(|runtime| !self.cluster.runtimes[usize::from(runtime)].finished());
        let is_talking = self.carry(worker);
        let next = if is_moving || is_talking { now + busy } else { idle };
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
        // Who can do nothing with what there is waits for others, and tries less and less often.
        let patience = if work > 0 {
            0
        } else {
            (turns.pace << turns.vain.min(11)).min(VAIN_MAX)
        };
        // Calls that wait are due by the worker's own clock.
        let runtime = worker.checked_sub(switches);
        let waiting = runtime.map(|runtime| &self.cluster.runtimes[usize::from(runtime)]);
        if let Some(due) = waiting.filter(|runtime| runtime.has_waiting()).and_then(|runtime| runtime.next_at()) {
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

    /// What a switch has taken in and sent since its last turn.
    fn look_at_ports(&mut self, switch: u8) {
        let switches = usize::from(self.script.shape.switches);
        for port in (usize::from(switch)..self.cluster.interfaces.len()).step_by(switches) {
            let interface = self.cluster.interfaces[port].clone();
            let (entered, left) = {
                let mut interface = interface.borrow_mut();
                (
                    std::mem::take(&mut interface.entered),
                    std::mem::take(&mut interface.left),
                )
            };
            for (id, part) in entered {
                self.cluster.entered += 1;
                self.timeline.note(self.now(), Event::Entered(port as u8, id));
                let packet = &mut self.packets[usize::from(id)];
                packet.passages[usize::from(part)].entered += 1;
                let is_by_itself = self.script.shape.switches > 1 || self.script.kinds.is_spread;
                self.order.entered(port as u8, packet, part, is_by_itself);
            }
            for bytes in left {
                self.cluster.left += 1;
                let is_own = frame::id_of(self.link, &bytes).is_none_or(|id| id == 0);
                self.cluster.own += u64::from(is_own);
                self.leave(port, bytes);
            }
        }
    }

    /// A frame has left by a port.
    fn leave(&mut self, port: usize, bytes: Vec<u8>) {
        let id = frame::id_of(self.link, &bytes).unwrap_or(0);
        let now = self.now();
        self.timeline.note(now, Event::Left(port as u8, id));
        self.timeline.fold(&bytes);
        let found = self.judge(id, &bytes);
        self.fail(found);
        let destination = frame::destination_of(self.link, &bytes);
        let Some(host) = destination.and_then(|addr| self.hosts.iter().position(|host| host.addr == addr))
        else {
            return;
        };
        let passage = self.hosts[host].from.put(now, bytes.len());
        let part = self.part_of(id, &bytes);
        self.fly(Frame { id, part, bytes }, passage, |frame| {
            Due::ToHost(frame, host)
        });
    }

    /// Which part of its packet a frame is, by its own words.
    fn part_of(&self, id: u16, bytes: &[u8]) -> u8 {
        match self.packets.get(usize::from(id)) {
            Some(packet) if packet.split > 0 => {
                frame::part_of(self.link, bytes, packet.split).unwrap_or(0)
            }
            _ => 0,
        }
    }

    /// What the checkers say of a frame that has left.
    fn judge(&mut self, id: u16, bytes: &[u8]) -> Result<(), Violation> {
        let part = self.part_of(id, bytes);
        let (script, link) = (self.script, self.link);
        let about = |packets: &[Packet], id: u16| packets.get(usize::from(id)).cloned();
        let whole = match self.packets.get_mut(usize::from(id)) {
            Some(packet) if id != 0 => {
                packet.passages[usize::from(part)].left += 1;
                conservation::left(packet, part)?;
                if packet.is_wild {
                    return Ok(());
                }
                let talk = &script.talks[usize::from(packet.talk)];
                enforced::left(packet, talk)?;
                self.order.left(packet, part, script.scenario.has_balancer())?;
                if packet.split == 0 {
                    None
                } else {
                    let assembly = self.leaving.entry(id).or_default();
                    match assembly.take(link, part, bytes) {
                        // Its flow may have ended and begun anew in between.
                        Ok(_) | Err(_) if self.order.is_cut() => return Ok(()),
                        Ok(Some(whole)) => Some(whole),
                        Ok(None) => return Ok(()),
                        Err(what) => return Err(delivered::wrong_part(packet, part, &what)),
                    }
                }
            }
            // The cluster's own.
            // About one with damaged addresses.
            _ if !frame::is_between_hosts(link, bytes) => return Ok(()),
            _ => return delivered::own(frame::read(link, bytes), |id| about(&self.packets, id)),
        };
        let packet = &self.packets[usize::from(id)];
        let Some((head, payload)) = frame::read(link, whole.as_deref().unwrap_or(bytes)) else {
            return Err(Violation::new("delivered", format!("{packet} left damaged")));
        };
        if packet.about != 0 {
            let about = &self.packets[usize::from(packet.about)];
            return self.delivered.error_left(script, packet, about, &head);
        }
        let has_jumped = self.order.is_cut();
        self.delivered.left(script, packet, &head, payload, has_jumped)
    }

    /// A frame is on its way, or lost.
    fn fly(&mut self, frame: Frame, passage: Passage, due: impl Fn(Frame) -> Due) {
        let now = self.now();
        match passage {
            Passage::Arrives(first, second) => {
                if let Some(second) = second {
                    self.fly_once(frame.clone(), second, &due);
                }
                self.fly_once(frame, first, &due);
            }
            Passage::Lost => self.timeline.note(now, Event::Lost(frame.id, false)),
            Passage::Cut => self.timeline.note(now, Event::Lost(frame.id, true)),
        }
    }

    fn fly_once(&mut self, mut frame: Frame, arrival: Arrival, due: &impl Fn(Frame) -> Due) {
        if let Some(bit) = arrival.flipped {
            let Some(mut packet) = self.packets.get(usize::from(frame.id)).cloned() else {
                return;
            };
            let Some(id) = self.new_id() else { return };
            self.timeline.note(self.now(), Event::Damaged(frame.id, id));
            frame::damage(self.link, &mut frame.bytes, bit, id);
            (packet.head.id, packet.is_wild, packet.split, packet.passages) =
                (id, true, 0, Default::default());
            frame.part = 0;
            self.packets.push(packet);
            frame.id = id;
        }
        self.flying += 1;
        self.plan_for(arrival.at, due(frame));
    }

    /// The identifier of the next packet; none if all are used, which no script comes near.
    fn new_id(&self) -> Option<u16> {
        u16::try_from(self.packets.len()).ok()
    }

    fn arrive_at_port(&mut self, frame: Frame, port: usize) {
        self.flying -= 1;
        let id = frame.id;
        let now = self.now();
        let offered = self.cluster.interfaces[port].borrow_mut().offer(frame);
        if !offered {
            self.timeline.note(now, Event::Overflowed(id));
        }
        self.rouse((port % usize::from(self.script.shape.switches)) as u8, now);
    }

    fn arrive_at_host(&mut self, frame: &Frame, host: usize) {
        self.flying -= 1;
        let is_part = self.packets[usize::from(frame.id)].split > 0;
        let whole = if is_part {
            let assembly = self.hosts[host].assemblies.entry(frame.id).or_default();
            assembly.take(self.link, frame.part, &frame.bytes).ok().flatten()
        } else {
            None
        };
        let is_short = is_part && whole.is_none();
        let bytes = whole.as_deref().unwrap_or(&frame.bytes);
        let read = frame::read(self.link, bytes).filter(|_| !is_short);
        self.timeline
            .note(self.now(), Event::Arrived(host as u8, frame.id, read.is_some()));
        let Some((heard, payload)) = read else { return };
        let packet = &self.packets[usize::from(frame.id)];
        let (talk_index, is_answer, is_own) = (packet.talk, packet.is_answer, frame.id == 0);
        let label = self.script.label(talk_index, packet.label, payload);
        let mut wishes = std::mem::take(&mut self.wishes);
        let talks = &self.script.talks;
        // A reset that the cluster made says itself whom it is for.
        let resets = || {
            talks
                .iter()
                .position(|talk| talk.client == heard.destination && talk.to == heard.source)
        };
        let index = if is_own {
            resets()
        } else {
            Some(usize::from(talk_index))
        };
        let is_for_client = is_own || is_answer;
        if let Some(index) = index {
            let talk = &talks[index];
            if !is_for_client {
                self.hosts[host]
                    .server
                    .hear(self.clock.get(), &heard, (label, payload.len()), &mut wishes);
            } else if talk.client == heard.destination {
                self.clients[index].hear(index as u16, talk, &heard, label, &mut wishes);
            }
            self.grant(host, index as u16, !is_for_client, &mut wishes);
        }
        self.wishes = wishes;
        if !is_part {
            self.complain(host, frame, &heard);
        }
    }

    /// A host, or a router before it, answers what arrived with an ICMP error.
    fn complain(&mut self, host: usize, frame: &Frame, heard: &Head) {
        let about = &self.packets[usize::from(frame.id)];
        let is_error = matches!(heard.transport, Transport::Error { .. } | Transport::Other(_));
        if self.script.kinds.errors == 0 || is_error || frame.id == 0 || about.is_wild {
            return;
        }
        let Some((is_router, is_whole, which)) = self.script.error_about(frame.id) else {
            return;
        };
        let own = self.hosts[host].addr;
        let from = match is_router {
            true => ROUTERS[usize::from(own[0] == 10)],
            false => own,
        };
        let (talk, is_answer) = (about.talk, !about.is_answer);
        let error = frame::error(self.link, frame, heard, from, is_whole, which);
        let (Some((mut head, quoted)), Some(id)) = (error, self.new_id()) else {
            return;
        };
        head.id = id;
        let bytes = frame::write(self.link, &head, &quoted);
        self.packets.push(Packet {
            talk,
            head,
            label: None,
            is_answer,
            is_wild: false,
            split: 0,
            passages: Default::default(),
            about: frame.id,
        });
        self.put(host, id, 0, bytes);
    }

    fn wake_client(&mut self, talk: u16) {
        let mut wishes = std::mem::take(&mut self.wishes);
        let of = &self.script.talks[usize::from(talk)];
        self.clients[usize::from(talk)].wake(talk, of, &mut wishes);
        if let Some(host) = self.hosts.iter().position(|host| host.addr == of.client.addr) {
            self.grant(host, talk, false, &mut wishes);
        }
        self.wishes = wishes;
    }

    /// Does what a host wants.
    fn grant(&mut self, host: usize, talk: u16, is_answer: bool, wishes: &mut Vec<Wish>) {
        for wish in wishes.drain(..) {
            match wish {
                Wish::Send(head, label) => self.send(host, talk, is_answer, head, label),
                Wish::Wake(after) => {
                    let client = &mut self.clients[usize::from(talk)];
                    client.timer += 1;
                    let timer = client.timer;
                    self.plan_for(self.now() + after, Due::Wake(talk, timer));
                }
                Wish::Over(done) => {
                    self.open_talks -= 1;
                    self.timeline.note(self.now(), Event::Over(talk, done));
                }
            }
        }
    }

    fn send(&mut self, host: usize, talk: u16, is_answer: bool, mut head: Head, label: Option<Label>) {
        let Some(id) = self.new_id() else { return };
        head.id = id;
        if head.source.addr == STRANGER {
            self.delivered.tempt(&mut head);
        }
        let payload = label.map_or_else(Vec::new, |label| self.script.payload(&label));
        let bytes = frame::write(self.link, &head, &payload);
        self.packets.push(Packet {
            talk,
            head,
            label,
            is_answer,
            is_wild: false,
            split: 0,
            passages: Default::default(),
            about: 0,
        });
        let talk = &self.script.talks[usize::from(talk)];
        let Some((count, order)) = self.script.parts_of(talk, id) else {
            return self.put(host, id, 0, bytes);
        };
        let (parts, length) = frame::split(self.link, &bytes, count);
        if let Some(packet) = self.packets.last_mut() {
            packet.split = length;
        }
        for part in order {
            if let Some(bytes) = parts.get(part) {
                self.put(host, id, part as u8, bytes.clone());
            }
        }
    }

    /// Puts a frame on a host's path to the cluster.
    fn put(&mut self, host: usize, id: u16, part: u8, bytes: Vec<u8>) {
        let now = self.now();
        self.timeline.note(now, Event::Sent(id));
        let port = match self.script.kinds.is_spread {
            true => port_of(self.script, host, usize::from(part)),
            false => self.hosts[host].port,
        };
        let passage = self.hosts[host].to.put(now, bytes.len());
        self.fly(Frame { id, part, bytes }, passage, |frame| {
            Due::ToPort(frame, port)
        });
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
        let variant = &self.script.variant;
        let is_refusal_under_way = self.script.scenario.has_balancer() && !self.is_at_rest();
        self.fail(one_actor::check(&seen, is_refusal_under_way));
        if self.script.scenario.has_nat() {
            self.fail(endpoints::check(&seen, variant.endpoint_independent));
        }
        if self.script.scenario.has_streams() {
            self.fail(limited::check(&seen));
        }
        let rings = self.cluster.rings(&self.script.shape);
        self.fail(conservation::bounds(&self.script.shape, &counts, &rings));
        self.seen = seen;
    }
}

/// By which port a host is connected: one of its side; a fragment perhaps by a later one.
fn port_of(script: &Script, host: usize, part: usize) -> usize {
    let shape = &script.shape;
    let is_inside = host < usize::from(INSIDE_HOSTS);
    let ports: Vec<usize> = (0..usize::from(shape.ports))
        .filter(|port| shape.by_address || (cluster::side_of(shape, *port) == nf::Side::Inside) == is_inside)
        .collect();
    ports[(host + part) % ports.len()]
}

impl Turns {
    fn new(script: &Script, worker: usize) -> Self {
        let shape = &script.shape;
        let mut random = Random::of(script.seed, Stream::Worker, worker as u64);
        let slow = shape.slow.filter(|(slow, _)| usize::from(*slow) == worker);
        let most = u64::from(shape.drift_ppm);
        Turns {
            next: Time::MAX,
            version: 0,
            stalled_until: 0,
            down_until: 0,
            ahead: EPOCH + if most > 0 { random.below(50_000_000) } else { 0 },
            drift_ppm: random.below(most + 1),
            pace: slow.map_or(shape.pace, |(_, pace)| pace),
            vain: 0,
            random,
        }
    }

    /// What its clock says at a true time.
    fn now(&self, at: Time) -> u64 {
        self.ahead + at + at / 1_000_000 * self.drift_ppm
    }
}
