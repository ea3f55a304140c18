//! The target's end of a move: what is reserved, staged and installed.

use super::super::Runtime;
use super::bytes::{Facts, Figures, Packets, Record};
use super::{Class, Kept, Moving, order};
use crate::actor::{Change, NO_GROUP, Phase, flag};
use crate::env::Port;
use crate::group::GroupKey;
use crate::stats::DropReason;
use alloc::vec::Vec;
use nf::{Affinity, Arrival, Direction, Side};
use protocols::ownership::{Ownership, Phase as Part, Refusal, Says, Take};
use wire::{PacketBox, planted};

/// How many flows' table lines are fetched ahead.
const AHEAD: usize = 16;

impl Moving {
    pub(super) fn new(machine: Ownership, group: GroupKey) -> Self {
        Moving {
            machine,
            group,
            actors: Vec::new(),
            aliases: Vec::new(),
            kept: Vec::new(),
            dropped: 0,
            deadline: u64::MAX,
            order: order::NONE,
            rerouted_at: 0,
            is_settling: false,
            is_pinned: false,
            is_told_late: false,
            is_to_be_routed: false,
            reserved: 0,
            figures: Figures::default(),
            state: Vec::new(),
            blocks: Vec::new(),
        }
    }
}

impl<P: Port> Runtime<P> {
    /// Whether a group of so many flows is welcome.
    pub(super) fn admit(&mut self, group: GroupKey, flows: u32) -> Result<(), Refusal> {
        if self.moves.is_leaving {
            return Err(Refusal::Leaving);
        }
        if self.is_changing() {
            return Err(Refusal::Busy);
        }
        if self.has_group(&group) {
            return Err(Refusal::Busy);
        }
        let groups = self.affinity == Affinity::Flow || self.groups.room() > self.moves.index.len();
        let room = self.slab.free().saturating_sub(self.moves.reserved);
        if room < flows as usize || !groups {
            return Err(Refusal::Full);
        }
        Ok(())
    }

    pub(super) fn begin_at_target(
        &mut self,
        hash: u64,
        group: GroupKey,
        peer: u16,
        machine: Ownership,
        flows: u32,
        is_welcome: bool,
    ) {
        let aliases = self.moves.incoming[usize::from(peer)].take_aliases(group);
        let mut moving = Moving::new(machine, group);
        if is_welcome {
            moving.reserved = flows;
            self.moves.reserved += flows as usize;
            moving.aliases = aliases;
        }
        let aliases = moving.aliases.clone();
        let id = self.moves.insert(hash, moving);
        for alias in aliases {
            self.moves.index.insert(alias.hash(&self.settings.seed), id);
        }
    }

    /// Takes in a piece of a state.
    pub(super) fn take_piece(&mut self, peer: usize, record: Record<'_>) {
        let seed = self.settings.seed;
        let stream = &mut self.moves.incoming[peer];
        match record {
            Record::Alias { group, key } => stream.aliases.push((group, key)),
            Record::Begin(group) => {
                stream.group = self.moves.index.get(&group.hash(&seed)).copied();
                stream.actor = None;
            }
            Record::Block(block) => {
                if let Some(moving) = stream.group.and_then(|id| self.moves.moving(id)) {
                    moving.blocks.push(block);
                }
            }
            Record::Group(bytes) => {
                if let Some(moving) = stream.group.and_then(|id| self.moves.moving(id)) {
                    moving.state.extend_from_slice(bytes);
                }
            }
            Record::Flow(facts, bytes) => {
                let actor = stream.group.and_then(|id| self.stage_flow(id, &facts));
                self.moves.incoming[peer].actor = actor.map(|actor| (actor, 0));
                self.stage_bytes(peer, bytes);
            }
            Record::More(bytes) => self.stage_bytes(peer, bytes),
            Record::Held { at, opening, count } => {
                stream.packets = Packets::Held {
                    at,
                    opening,
                    left: count,
                };
            }
            Record::Handed { group, home, count } => {
                stream.packets = Packets::Handed {
                    group,
                    home,
                    left: count,
                };
            }
            Record::Says { .. } => {}
        }
    }

    fn stage_flow(&mut self, id: u32, facts: &Facts) -> Option<u32> {
        let moving = self.moves.moving(id)?;
        if moving.reserved == 0 || !matches!(moving.machine.phase(), Part::Buffering { .. }) {
            debug_assert!(false, "more flows come than were announced");
            return None;
        }
        moving.reserved -= 1;
        self.moves.reserved -= 1;
        let actor = self.slab.arrive();
        debug_assert!(actor.is_some(), "what was reserved is there");
        let actor = actor?;
        let generation = self.young();
        let header = self.slab.header_mut(actor);
        header.generation = generation;
        header.key = facts.key;
        header.deadline = facts.deadline;
        header.chain = facts.chain;
        header.flags = facts.flags & !flag::HOLDS;
        header.answered = facts.answered;
        header.group = NO_GROUP;
        self.slab.set_second_key(actor, facts.second);
        if let Some(moving) = self.moves.moving(id) {
            moving.actors.push(actor);
        }
        Some(actor)
    }

    fn stage_bytes(&mut self, peer: usize, bytes: &[u8]) {
        let Some((actor, at)) = &mut self.moves.incoming[peer].actor else {
            return;
        };
        let state = self.slab.state_bytes_mut(*actor);
        match state.get_mut(*at..*at + bytes.len()) {
            Some(place) => place.copy_from_slice(bytes),
            None => debug_assert!(false, "a flow's state has one length at all runtimes"),
        }
        *at += bytes.len();
    }

    /// A packet that another runtime held, or kept.
    pub(super) fn take_handed(&mut self, peer: usize, packet: PacketBox) {
        self.moves.packets_moved[0] += 1;
        let stream = &mut self.moves.incoming[peer];
        match &mut stream.packets {
            Packets::Held { at, opening, left } if *left > 0 => {
                *left -= 1;
                let place = stream.actor.map(|(actor, _)| (actor, *at, *opening));
                let Some(key) = place else {
                    return self.drop_packet(packet, DropReason::HeldAtEnd);
                };
                if self.held_count >= self.settings.held_max {
                    return self.drop_packet(packet, DropReason::HeldFull);
                }
                self.held_count += 1;
                self.slab.header_mut(key.0).flags |= flag::HOLDS;
                self.held.entry(key).or_default().push(packet);
            }
            Packets::Handed { group, home, left } if *left > 0 => {
                *left -= 1;
                let (hash, home) = (group.hash(&self.settings.seed), *home);
                match self.moves.at(hash) {
                    Some(id) => self.take_kept(id, packet, home),
                    None => self.drop_packet(packet, DropReason::MovingFull),
                }
            }
            _ => {
                debug_assert!(false, "packets are announced");
                self.drop_packet(packet, DropReason::MovingFull);
            }
        }
    }

    fn take_kept(&mut self, id: u32, packet: PacketBox, home: u8) {
        let Some(moving) = self.moves.moving(id) else {
            return self.drop_packet(packet, DropReason::MovingFull);
        };
        let (group, part) = (moving.group, moving.machine.phase());
        match moving.machine.take_handed(home) {
            Take::PassOn(to) => self.hand_over(id, to.0, home, packet),
            Take::Process if !matches!(part, Part::Returning { .. }) => {
                self.moves.kept += 1;
                let class = Class::Handed;
                self.process_kept(alloc::vec![Kept { packet, home, class }], group, &[]);
            }
            _ => self.keep(id, packet, home, Class::Handed),
        }
    }

    /// The group is here now: into the tables, and on with its packets.
    pub(super) fn install(&mut self, id: u32) {
        let now = self.moving_time();
        let Some(moving) = self.moves.moving(id) else {
            return;
        };
        let group = moving.group;
        self.note_installed(&group);
        let Some(moving) = self.moves.moving(id) else {
            return;
        };
        let (actors, state, blocks) = (
            core::mem::take(&mut moving.actors),
            core::mem::take(&mut moving.state),
            core::mem::take(&mut moving.blocks),
        );
        let (kept, left) = (
            core::mem::take(&mut moving.kept),
            core::mem::take(&mut moving.reserved),
        );
        moving.figures = Figures {
            kept: kept.len() as u32,
            dropped: moving.dropped,
            installed_at: now,
        };
        let (aliases, epoch) = (moving.aliases.clone(), moving.machine.latest());
        self.moves.reserved -= left as usize;
        if !actors.is_empty() {
            let place = self.install_group(group, &state, actors.len() as u32);
            for block in blocks {
                let claimed = self.owners.claim(block, group);
                debug_assert!(claimed, "a block has one owner");
            }
            self.install_flows(&actors, place);
        }
        self.moves.flows_moved[0] += actors.len() as u64;
        self.say_installed(group, &aliases, epoch);
        self.process_kept(kept, group, &aliases);
    }

    fn install_group(&mut self, group: GroupKey, state: &[u8], flows: u32) -> u32 {
        if self.affinity == Affinity::Flow {
            return NO_GROUP;
        }
        let Some((index, is_new)) = self.groups.enter(group) else {
            // `admit` has seen to it.
            panic!("room for the group was reserved");
        };
        debug_assert!(is_new, "a group is at one runtime");
        self.groups.join(index, flows - 1);
        let place = self.groups.state_bytes_mut(index);
        let length = place.len().min(state.len());
        if !planted::is("group_state_lost") {
            place[..length].copy_from_slice(&state[..length]);
        }
        index
    }

    fn install_flows(&mut self, actors: &[u32], group: u32) {
        for (at, actor) in actors.iter().enumerate() {
            // Each would wait for its own cache misses.
            if at % AHEAD == 0 {
                for next in &actors[at..(at + AHEAD).min(actors.len())] {
                    let header = self.slab.header(*next);
                    self.table.prefetch(header.key.hash(&self.settings.seed));
                    if header.flags & flag::SECOND_KEY != 0 {
                        let second = self.slab.second_key(*next);
                        self.table.prefetch(second.hash(&self.settings.seed));
                    }
                    self.wheel.prefetch(*next);
                }
            }
            self.install_flow(*actor, group);
        }
    }

    fn install_flow(&mut self, actor: u32, group: u32) {
        let header = self.slab.header_mut(actor);
        header.group = group;
        header.change(Change::Install);
        let header = *header;
        let seed = self.settings.seed;
        let hash = header.key.hash(&seed);
        // A flow that has the key here already, of another group, keeps it.
        let is_taken = self
            .table
            .find(hash, |value| self.has_key(value, &header.key))
            .is_some();
        let mut fits = self.table.insert(hash, actor << 1).is_ok();
        if header.flags & flag::SECOND_KEY != 0 {
            let second = self.slab.second_key(actor).hash(&seed);
            fits &= self.table.insert(second, actor << 1 | 1).is_ok();
        }
        debug_assert!(fits, "the table has room for every actor's keys");
        if header.deadline != 0 {
            self.wheel.file_by(actor, header.deadline);
        }
        self.arrive_flow(actor, &header);
        if is_taken || !fits {
            self.end_actor(actor);
        }
    }

    fn arrive_flow(&mut self, actor: u32, header: &crate::actor::Header) {
        let state = self.slab.state(actor);
        let group = self.group_state(header.group, state);
        let side = if header.flags & flag::FROM_OUTSIDE != 0 {
            Side::Outside
        } else {
            Side::Inside
        };
        let cx = self.prepare(actor, side, Direction::Opening);
        for step in self.stages.way(header.chain, Direction::Opening) {
            if planted::is("arrived_not_called") {
                break;
            }
            let stage = &self.stages.functions[usize::from(step.function)];
            cx.counters = step.counters;
            // SAFETY: the state is this actor's, with the bytes that the same chain left at another runtime of this process.
            unsafe {
                cx.group = group.add(step.group as usize);
                stage.arrived(state.add(step.flow as usize), Arrival::Migrated, cx);
            }
        }
        self.settle_accounts(cx, actor);
    }

    /// Says that the group is installed, with what was seen meanwhile.
    pub(super) fn say_done(&mut self, id: u32, to: u16, says: Says) {
        let Some(moving) = self.moves.moving(id) else {
            return;
        };
        let record = Record::Says {
            group: moving.group,
            says,
            flows: 0,
            figures: moving.figures,
        };
        self.append_record(to, &record);
    }

    /// The move came to nothing: what was reserved and staged is free again.
    pub(super) fn close_slot(&mut self, id: u32) {
        let Some(moving) = self.moves.moving(id) else {
            return;
        };
        let (actors, kept) = (
            core::mem::take(&mut moving.actors),
            core::mem::take(&mut moving.kept),
        );
        self.moves.kept -= kept.len();
        for actor in actors {
            debug_assert_eq!(self.slab.header(actor).phase, Phase::Arriving);
            self.drop_held(actor);
            self.slab.end(actor);
        }
        for kept in kept {
            self.drop_packet(kept.packet, DropReason::MovingFull);
        }
    }
}
