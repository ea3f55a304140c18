//! A runtime around a function, as plain as can be: flows in a hash map, groups in another.
//!
//! A flow is found by key *and orientation*: its first key as it opened, and the key of what left
//! the chain reversed. The other two (a reply to the untranslated key, an opening packet with the
//! translated one) find it, too, unless another flow owns them. That matters for a hairpinned pair:
//! the packet that left the first flow comes in again with that flow's reply key in the opening
//! orientation, and is the second flow's.

extern crate std;

use super::super::{Config, Host, Nat, Translation};
use core::ptr::NonNull;
use core::time::Duration;
use nf::cx::{BlockEffect, EventLog, RawCx, effect};
use nf::{
    Addr, Arrival, Block, ConfigError, Cx, Departure, Direction, FlowKey, NetworkFunction, Reason, Recall,
    Side, Verdict, WorkerInfo,
};
use std::boxed::Box;
use std::collections::{BTreeMap, HashMap};
use std::string::String;
use std::sync::Arc;
use std::vec;
use std::vec::Vec;
use wire::memory::Region;
use wire::packet::flag;
use wire::{LinkType, Orientation, PacketBox, Pool};

/// The fate of a packet.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Out {
    /// It left, on this side.
    Sent(Side, Vec<u8>),
    /// An answer went back.
    Answered(Vec<u8>),
    Dropped(&'static str),
}

impl Out {
    pub fn sent(self) -> Vec<u8> {
        match self {
            Out::Sent(_, frame) => frame,
            Out::Answered(_) => panic!("answered"),
            Out::Dropped(reason) => panic!("dropped: {reason}"),
        }
    }
    pub fn reason(self) -> &'static str {
        match self {
            Out::Sent(..) => "sent",
            Out::Answered(..) => "answered",
            Out::Dropped(reason) => reason,
        }
    }
}

pub struct Actor {
    pub flow: Translation,
    pub group: Addr,
    /// Its number at its runtime.
    number: u32,
    key: FlowKey,
    opening: Orientation,
    keys: Vec<(FlowKey, bool)>,
}

struct Group {
    host: Box<Host>,
    flows: usize,
    runtime: usize,
}

pub struct Rig {
    pub nats: Vec<Nat>,
    pub actors: BTreeMap<usize, Actor>,
    /// Which group has which block, as the switches know it.
    pub blocks: HashMap<Block, Addr>,
    pub claims: u64,
    pub releases: u64,
    pub config: Arc<Config>,
    pub turned: u64,
    groups: HashMap<Addr, Group>,
    keys: HashMap<(FlowKey, bool), (usize, Direction, bool)>,
    counters: Vec<u64>,
    log: Box<EventLog>,
    pool: Pool,
    next: usize,
    numbers: Vec<u32>,
    /// Whether the function wants to be asked behind the next packet.
    pub recalls: bool,
    pub now: u64,
    /// Flows that were not asked since the settings changed.
    pub unasked: std::collections::BTreeSet<usize>,
    runtimes: (u16, u32),
}

pub fn worker(runtime: u16, runtimes: u16, flows_max: u32) -> WorkerInfo {
    WorkerInfo {
        runtime,
        runtimes,
        flows_max,
        seed: 42,
    }
}

pub fn pool_of(prefix: &str) -> Config {
    Config {
        pool: vec![prefix.parse().unwrap()],
        ..Config::default()
    }
}

impl Rig {
    pub fn new(config: Config) -> Rig {
        Rig::with(config, 1, 10_000).unwrap()
    }

    pub fn with(config: Config, runtimes: u16, flows_max: u32) -> Result<Rig, ConfigError> {
        let config = Arc::new(config);
        let nats = (0..runtimes).map(|r| Nat::new(&config, &worker(r, runtimes, flows_max)));
        Ok(Rig {
            nats: nats.collect::<Result<_, _>>()?,
            actors: BTreeMap::new(),
            blocks: HashMap::new(),
            claims: 0,
            releases: 0,
            config,
            turned: 0,
            groups: HashMap::new(),
            keys: HashMap::new(),
            counters: vec![0; Nat::COUNTERS.len() + 1],
            log: Box::new(EventLog::new(1 << 20, 0)),
            pool: Pool::new(Region::heap(Pool::region_length(2, 2048)), 2, 2048, 0),
            next: 1,
            numbers: (0..2 * flows_max + 8).rev().collect(),
            recalls: false,
            now: 0,
            unasked: std::collections::BTreeSet::new(),
            runtimes: (runtimes, flows_max),
        })
    }

    pub fn count(&self, name: &str) -> u64 {
        self.counters[Nat::COUNTERS.iter().position(|c| *c == name).unwrap()]
    }

    pub fn events(&mut self) -> String {
        let mut text = String::new();
        self.log.take(&mut text);
        text
    }

    pub fn send_inside(&mut self, frame: &[u8]) -> Out {
        self.send(Side::Inside, frame)
    }

    pub fn send_outside(&mut self, frame: &[u8]) -> Out {
        self.send(Side::Outside, frame)
    }

    pub fn send(&mut self, side: Side, frame: &[u8]) -> Out {
        self.send_with(side, frame, |_| {})
    }

    pub fn send_with(&mut self, side: Side, frame: &[u8], note: impl Fn(&mut nf::Packet)) -> Out {
        let mut packet = self.pool.take().unwrap();
        assert!(packet.set_frame(frame, LinkType::Ethernet));
        packet.set_side(side);
        let out = match wire::parse(&mut packet) {
            Ok(()) => {
                note(&mut packet);
                self.handle(&mut packet)
            }
            Err(_) => Out::Dropped("parse"),
        };
        self.pool.give(packet);
        if core::mem::take(&mut self.recalls) {
            self.recall();
        }
        out
    }

    /// Ends the flows that the function wants ended, as a runtime does between two bursts.
    pub fn recall(&mut self) {
        for runtime in 0..self.nats.len() {
            let mut later = 0;
            loop {
                match self.nats[runtime].recall() {
                    Recall::Flow(number) => {
                        let is_it = |(_, actor): &(&usize, &Actor)| {
                            actor.number == number && self.groups[&actor.group].runtime == runtime
                        };
                        let found = self.actors.iter().find(is_it).map(|(id, _)| *id);
                        self.expire(found.expect("a flow that there is"));
                    }
                    Recall::Later if later < 1000 => later += 1,
                    Recall::Later => panic!("it never ends"),
                    Recall::Nothing => break,
                }
            }
        }
    }

    /// Puts other settings in force, as a runtime does: all flows asked about the ones before, new
    /// instances, then flow by flow ([`Rig::ask`]).
    pub fn configure(&mut self, mut config: Config) -> Result<(), ConfigError> {
        self.ask_all();
        Nat::succeed(&mut config, &self.config)?;
        let config = Arc::new(config);
        let (runtimes, flows_max) = self.runtimes;
        let nats = (0..runtimes).map(|r| Nat::new(&config, &worker(r, runtimes, flows_max)));
        let nats = nats.collect::<Result<Vec<_>, _>>()?;
        for (nat, before) in nats.iter().zip(&self.nats) {
            nat.take_over(before);
        }
        (self.nats, self.config) = (nats, config);
        self.unasked = self.actors.keys().copied().collect();
        Ok(())
    }

    /// Asks a flow whether it goes on, if that is still to be done; if not, it has ended.
    pub fn ask(&mut self, id: usize) -> bool {
        if !self.unasked.remove(&id) {
            return true;
        }
        let (group, mut flow) = (self.actors[&id].group, self.actors[&id].flow);
        let side = match flow.how & 1 {
            0 => Side::Inside,
            _ => Side::Outside,
        };
        let keep = self.call(id, group, side, Direction::Opening, |nat, cx| {
            nat.configured(&mut flow, cx)
        });
        self.actors.get_mut(&id).unwrap().flow = flow;
        if keep != nf::Keep::Keep {
            self.expire(id);
        }
        keep == nf::Keep::Keep
    }

    pub fn ask_all(&mut self) {
        let ids: Vec<usize> = self.unasked.iter().copied().collect();
        ids.into_iter().for_each(|id| {
            self.ask(id);
        });
    }

    fn handle(&mut self, packet: &mut PacketBox) -> Out {
        let Some((key, way)) = FlowKey::of(packet) else {
            return Out::Dropped("no key");
        };
        let along = way == Orientation::Along;
        let found = self.keys.get(&(key, along)).copied();
        let found = found.filter(|(_, _, own)| *own || packet.hairpins() == 0);
        let found = found.filter(|(id, ..)| self.ask(*id));
        let (id, direction, launched) = match found {
            Some((id, direction, _)) => (id, direction, false),
            None => (self.launch(packet, key, way), Direction::Opening, true),
        };
        let (group, mut flow) = (self.actors[&id].group, self.actors[&id].flow);
        let side = packet.side();
        let verdict = self.call(id, group, side, direction, |nat, cx| {
            nat.process_now(packet, &mut flow, cx).unwrap()
        });
        self.actors.get_mut(&id).unwrap().flow = flow;
        match verdict {
            Verdict::Forward => {
                if launched {
                    self.register_second(id, packet);
                }
                self.leave(packet, side.opposite())
            }
            Verdict::Drop(reason) => {
                if launched {
                    self.expire(id);
                }
                Out::Dropped(Nat::REASONS[reason.index()])
            }
            Verdict::Answer => {
                // This verdict says that the flow ends.
                if launched {
                    self.expire(id);
                }
                Out::Answered(packet.frame().to_vec())
            }
            Verdict::Consume => panic!("NAT holds nothing"),
        }
    }

    fn leave(&mut self, packet: &mut PacketBox, side: Side) -> Out {
        if !packet.has(flag::HAIRPIN) {
            return Out::Sent(side, packet.frame().to_vec());
        }
        assert!(packet.hairpins() < 2, "a packet is hairpinned once");
        self.turned += 1;
        packet.clear_flags(flag::HAIRPIN);
        packet.add_hairpin();
        packet.set_side(Side::Outside);
        wire::parse(packet).unwrap();
        self.handle(packet)
    }

    fn launch(&mut self, packet: &PacketBox, key: FlowKey, way: Orientation) -> usize {
        let group = match packet.side() {
            Side::Inside => packet.source_addr(),
            Side::Outside => self.owner(packet),
        };
        let runtimes = self.nats.len();
        let spread = group.octets().iter().map(|b| usize::from(*b)).sum::<usize>();
        let entry = self.groups.entry(group).or_insert_with(|| Group {
            host: Box::default(),
            flows: 0,
            runtime: spread % runtimes,
        });
        entry.flows += 1;
        let id = self.next;
        self.next += 1;
        let along = way == Orientation::Along;
        let actor = Actor {
            flow: Translation::default(),
            group,
            number: self.numbers.pop().expect("a number is free"),
            key,
            opening: way,
            keys: Vec::new(),
        };
        self.actors.insert(id, actor);
        self.register(id, key, along, Direction::Opening, true);
        self.register(id, key, !along, Direction::Reply, false);
        let mut flow = Translation::default();
        self.call(id, group, packet.side(), Direction::Opening, |nat, cx| {
            nat.arrived(&mut flow, Arrival::New, cx)
        });
        id
    }

    fn owner(&self, packet: &PacketBox) -> Addr {
        let to = packet.destination();
        if let Some(inside) = Nat::owner_of(&self.config, to, packet.protocol()) {
            return inside.addr;
        }
        let block = Block {
            addr: to.addr,
            first: to.port & !(self.config.block_size as u16 - 1),
            ports: self.config.block_size as u16,
        };
        self.blocks.get(&block).copied().unwrap_or(Addr::UNSPECIFIED)
    }

    fn register_second(&mut self, id: usize, packet: &PacketBox) {
        let (key, way) = FlowKey::of(packet).unwrap();
        let along = way == Orientation::Along;
        self.register(id, key, !along, Direction::Reply, true);
        self.register(id, key, along, Direction::Opening, false);
    }

    fn register(&mut self, id: usize, key: FlowKey, along: bool, direction: Direction, own: bool) {
        let entry = self.keys.entry((key, along)).or_insert((id, direction, own));
        if own && !entry.2 {
            *entry = (id, direction, true);
        }
        if entry.0 == id {
            self.actors.get_mut(&id).unwrap().keys.push((key, along));
        }
    }

    /// Calls into the NAT of the group's runtime, and applies what it asked for.
    fn call<R>(
        &mut self,
        id: usize,
        group: Addr,
        side: Side,
        direction: Direction,
        f: impl FnOnce(&Nat, &mut Cx<Nat>) -> R,
    ) -> R {
        let (mut key, opening) = self
            .actors
            .get(&id)
            .map_or((FlowKey::default(), Orientation::Along), |a| (a.key, a.opening));
        let flow = self.actors.get(&id).map_or(u32::MAX, |actor| actor.number);
        let entry = self.groups.get_mut(&group).unwrap();
        let mut raw = RawCx {
            now: self.now,
            wake_at: RawCx::NO_WAKE,
            waits_for: 0,
            token: 0,
            tokens: None,
            place: 0,
            timeout: 0,
            key: NonNull::from(&mut key),
            flow,
            opening,
            side,
            direction,
            effects: 0,
            lazy_kept: false,
            group: NonNull::from(&mut *entry.host).cast(),
            counters: NonNull::new(self.counters.as_mut_ptr()).unwrap(),
            log: NonNull::from(&mut *self.log),
            spares: Default::default(),
            held: None,
            held_room: 0,
            copy: None,
            let_go: Default::default(),
            emitted: Default::default(),
            blocks: Default::default(),
            discard: Reason::UNDECLARED,
            pinned: core::marker::PhantomPinned,
        };
        let nat = &self.nats[entry.runtime];
        // SAFETY: key, group, counters and log are the rig's own, alive and not referred to
        // otherwise during the call.
        let result = f(nat, unsafe { Cx::of(&mut raw) });
        self.recalls |= raw.effects & effect::RECALL != 0;
        for effect in raw.blocks {
            match effect {
                BlockEffect::Claimed(block) => {
                    self.claims += 1;
                    let before = self.blocks.insert(block, group);
                    assert_eq!(before, None, "{block:?} had an owner");
                }
                BlockEffect::Released(block) | BlockEffect::Returned(block, _) => {
                    self.releases += 1;
                    assert_eq!(
                        self.blocks.remove(&block),
                        Some(group),
                        "{block:?} was not the group's"
                    );
                    if let BlockEffect::Returned(_, home) = effect {
                        self.nats[usize::from(home)].block_returned(block);
                    }
                }
            }
        }
        result
    }

    /// Ends a flow; and its group, if it was the last.
    pub fn expire(&mut self, id: usize) {
        if !self.ask(id) {
            return;
        }
        let (flow, group) = (self.actors[&id].flow, self.actors[&id].group);
        self.call(id, group, Side::Inside, Direction::Opening, |nat, cx| {
            nat.departed(&flow, Departure::Expired, cx)
        });
        let actor = self.actors.remove(&id).unwrap();
        self.numbers.push(actor.number);
        for key in actor.keys {
            if self.keys.get(&key).is_some_and(|found| found.0 == id) {
                self.keys.remove(&key);
            }
        }
        let entry = self.groups.get_mut(&group).unwrap();
        entry.flows -= 1;
        if entry.flows == 0 {
            let mut host = *entry.host;
            self.call(0, group, Side::Inside, Direction::Opening, |nat, cx| {
                nat.group_ended(&mut host, cx)
            });
            assert_eq!(
                host.blocks(),
                &[] as &[u16],
                "a group that has ended has no blocks"
            );
            self.groups.remove(&group);
        }
    }

    pub fn expire_all(&mut self) {
        let ids: Vec<usize> = self.actors.keys().copied().collect();
        ids.into_iter().for_each(|id| self.expire(id));
    }

    /// Moves a host with all its flows to another runtime; every state goes through its bytes.
    pub fn migrate(&mut self, group: Addr, to: usize, why: Arrival) {
        let ids: Vec<usize> = self
            .actors
            .iter()
            .filter(|(_, a)| a.group == group)
            .map(|(id, _)| *id)
            .collect();
        if why == Arrival::Migrated {
            for id in &ids {
                let flow = self.actors[id].flow;
                self.call(*id, group, Side::Inside, Direction::Opening, |nat, cx| {
                    nat.departed(&flow, Departure::Migrated, cx)
                });
            }
        }
        let entry = self.groups.get_mut(&group).unwrap();
        entry.runtime = to;
        *entry.host = nf::plain::from_bytes(nf::plain::bytes_of(&*entry.host)).unwrap();
        for id in ids {
            let mut flow: Translation =
                nf::plain::from_bytes(nf::plain::bytes_of(&self.actors[&id].flow)).unwrap();
            self.call(id, group, Side::Inside, Direction::Opening, |nat, cx| {
                nat.arrived(&mut flow, why, cx)
            });
            self.actors.get_mut(&id).unwrap().flow = flow;
        }
    }

    pub fn groups(&self) -> impl Iterator<Item = Addr> {
        self.groups.keys().copied()
    }

    pub fn host(&self, group: Addr) -> Host {
        *self.groups[&group].host
    }

    pub fn flow_count(&self) -> usize {
        self.actors.len()
    }

    /// The timeout of the only flow, or of the one launched last.
    pub fn timeout(&self) -> Option<Duration> {
        let actor = self.actors.values().next_back().unwrap();
        self.nats[0].timeout(&actor.flow)
    }

    pub fn mappings(&self) -> usize {
        self.nats.iter().map(|n| n.tables.borrow().mappings.count()).sum()
    }

    /// Asserts that nothing is held any more.
    pub fn assert_empty(&self) {
        assert_eq!(self.flow_count(), 0);
        assert_eq!(self.mappings(), 0);
        assert!(self.blocks.is_empty() && self.groups.is_empty() && self.keys.is_empty());
        assert_eq!(self.claims, self.releases, "blocks are given back once");
        assert_eq!(self.count("mappings_created"), self.count("mappings_released"));
        for nat in &self.nats {
            let tables = nat.tables.borrow();
            assert_eq!(tables.ports.slots_used(), 0);
            assert_eq!(tables.mappings.peers(), 0);
            assert_eq!(tables.sessions.count(), 0);
            assert_eq!(tables.sessions.idle(), &[] as &[u32]);
        }
    }
}
