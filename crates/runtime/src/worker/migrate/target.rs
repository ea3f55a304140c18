//! The target's end of a move: what is reserved, staged and installed.

use super::super::Runtime;
use super::bytes::{Facts, Figures, Packets, Record};
use super::clocks::Clocks;
use super::{AHEAD, Class, Kept, MOVES_MAX, Moving, order};
use crate::chain::FUNCTIONS_MAX;
use crate::env::Port;
use crate::flows::actor::{Change, Header, NO_GROUP, Phase, flag};
use crate::flows::group::GroupKey;
use crate::stats::DropReason;
use alloc::collections::BTreeSet;
use alloc::vec::Vec;
use nf::{Affinity, Arrival, Direction, Side};
use protocols::ownership::{Ownership, Phase as Part, Refusal, RuntimeId, Says, Take};
use wire::packet::flag as packet_flag;
use wire::{PacketBox, planted};

/// In [`Header::frame`](crate::flows::actor::Header) of an arriving actor: not all of its state has come, or too much.
const UNSOUND: u32 = u32::MAX;
/// Blocks of a group, at most.
pub(super) const BLOCKS_MAX: usize = 1024;

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
            again: super::AGAIN,
            order: order::NONE,
            to: 0,
            tried: 0,
            rerouted_at: 0,
            is_settling: false,
            is_pinned: false,
            is_told_late: false,
            blocks_told: Vec::new(),
            backs: Vec::new(),
            asked: Vec::new(),
            keys_asked: BTreeSet::new(),
            is_to_be_routed: false,
            is_unsound: false,
            weight: 0,
            reserved: 0,
            clocks: Clocks::default(),
            figures: Figures::default(),
            state: Vec::new(),
            blocks: Vec::new(),
        }
    }
}

impl<P: Port> Runtime<P> {
    /// Whether a group of so many flows is welcome.
    pub(super) fn admit(&mut self, group: GroupKey, flows: u32) -> Result<(), Refusal> {
        if self.takes_no_groups() {
            return Err(Refusal::Leaving);
        }
        if self.is_changing() {
            return Err(Refusal::Busy);
        }
        if self.has_group(&group) {
            return Err(Refusal::Busy);
        }
        // No more than all runtimes may have on their way; and what switches are to be told of earlier ones has been told, as a rule.
        let most = MOVES_MAX as usize * usize::from(self.settings.info.runtimes.max(1));
        if self.moves.under_way() >= most || self.moves.telling.len() >= most {
            return Err(Refusal::Busy);
        }
        let groups =
            self.flows.affinity() == Affinity::Flow || self.flows.groups().room() > self.moves.under_way();
        let room = self.flows.free().saturating_sub(self.moves.reserved);
        if room < flows as usize || !groups {
            return Err(Refusal::Full);
        }
        Ok(())
    }

    pub(super) fn begin_at_target(
        &mut self,
        of_group: u64,
        group: GroupKey,
        machine: Ownership,
        flows: u32,
        mut aliases: Vec<GroupKey>,
    ) {
        // Which of them another move has, or which is no second key, this one has not.
        aliases.retain(|key| {
            let hash = key.hash(&self.settings.seed);
            self.moves.at(hash).is_none() && of_group != hash
        });
        let mut moving = Moving::new(machine, group);
        if flows > 0 {
            moving.reserved = flows;
            self.moves.reserved += flows as usize;
            moving.aliases = aliases;
        }
        self.moves.insert(of_group, &self.settings.seed, moving);
    }

    /// Takes in a piece of a state.
    pub(super) fn take_piece(&mut self, peer: usize, record: Record<'_>) {
        let seed = self.settings.seed;
        let stream = &mut self.moves.incoming[peer];
        match record {
            Record::Alias { group, key } => {
                // No more than all flows there may be have.
                if stream.aliases.len() >= self.flows.capacity() {
                    self.moves.words_refused += 1;
                } else {
                    self.moves.words_refused += stream.note_alias(group, key) as u64;
                }
            }
            Record::Begin { group, now } => {
                let id = self.moves.at(group.hash(&seed));
                let stream = &mut self.moves.incoming[peer];
                (stream.group, stream.actor) = (id, None);
                let clocks = self.clocks(peer, now);
                match self.staging(peer).filter(|moving| moving.group == group) {
                    Some(moving) => moving.clocks = clocks,
                    None => {
                        self.moves.incoming[peer].group = None;
                        self.moves.words_refused += 1;
                    }
                }
            }
            Record::Block(block) => {
                // Whether it may be noted is seen when it is.
                self.flows.owners.prefetch_place(&block);
                match self.staging(peer) {
                    Some(moving) if moving.blocks.len() < BLOCKS_MAX => moving.blocks.push(block),
                    Some(moving) => moving.is_unsound = true,
                    None => self.moves.words_refused += 1,
                }
            }
            Record::Group(bytes) => {
                let length = self.flows.groups().state_length();
                match self.staging(peer) {
                    Some(moving) if moving.state.len() + bytes.len() <= length => {
                        moving.state.extend_from_slice(bytes);
                    }
                    Some(moving) => moving.is_unsound = true,
                    None => self.moves.words_refused += 1,
                }
            }
            Record::Flow(facts, bytes) => self.take_flow(peer, &facts, bytes),
            Record::More(bytes) => self.stage_bytes(peer, bytes),
            Record::Held {
                at,
                opening,
                copies,
                count,
            } => {
                stream.packets = Packets::Held {
                    at,
                    opening,
                    copies,
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
            Record::Says { .. } | Record::Leaving(_) => {}
        }
    }

    /// Takes in a flow, and what its record has of its state.
    #[inline]
    pub(super) fn take_flow(&mut self, peer: usize, facts: &Facts, bytes: &[u8]) {
        self.moves.incoming[peer].actor = None;
        let actor = self.stage_flow(peer, facts);
        self.moves.incoming[peer].actor = actor.map(|actor| (actor, 0));
        self.stage_bytes(peer, bytes);
    }

    /// The group whose state comes from a runtime: one that was accepted from it, and of which not all has come.
    fn staging(&mut self, peer: usize) -> Option<&mut Moving> {
        let id = self.moves.incoming[peer].group?;
        let source = RuntimeId(peer as u16);
        let is_staging = |moving: &&mut Moving| matches!(moving.machine.phase(), Part::Buffering { from, is_staged: false, .. } if from == source);
        self.moves.moving(id).filter(is_staging)
    }

    #[inline]
    fn stage_flow(&mut self, peer: usize, facts: &Facts) -> Option<u32> {
        let (now, timeout) = (self.now, self.settings.timeout_default);
        let Some(moving) = self.staging(peer).filter(|moving| moving.reserved > 0) else {
            // Nobody's, or more than were announced.
            self.moves.flows_refused += 1;
            return None;
        };
        moving.reserved -= 1;
        let deadline = moving.clocks.deadline(facts.time_left, now, timeout);
        self.moves.reserved -= 1;
        self.flows.prefetch_free_ahead(AHEAD);
        let actor = self.flows.arrive();
        debug_assert!(actor.is_some(), "what was reserved is there");
        let actor = actor?;
        if let Some(moving) = self.staging(peer) {
            moving.actors.push(actor);
        }
        let generation = self.young();
        let header = self.flows.header_mut(actor);
        header.generation = generation;
        header.key = facts.key;
        header.deadline = deadline;
        header.chain = facts.chain;
        header.flags = facts.flags & !(flag::HOLDS | flag::SETTLING);
        header.answered = facts.answered;
        header.group = NO_GROUP;
        // Until all of it is here.
        header.frame = UNSOUND;
        self.flows.set_second_key(actor, facts.second);
        Some(actor)
    }

    fn stage_bytes(&mut self, peer: usize, bytes: &[u8]) {
        let Some((actor, at)) = &mut self.moves.incoming[peer].actor else {
            return;
        };
        let (actor, from) = (*actor, *at);
        *at += bytes.len();
        // A chain that is not here has no length, so no bytes are all of it.
        let travelling = self.travelling(self.flows.header(actor).chain);
        let length = travelling.map(|state| state.length());
        let at = travelling.map_or(0..0, |state| state.place(from));
        let state = self.flows.state_bytes_mut(actor);
        let place = match bytes.len() <= at.len() {
            true => state.get_mut(at.start..at.start + bytes.len()),
            false => None,
        };
        let fits = place.is_some();
        if let Some(place) = place
            && !(from >= 1024 && planted::is("long_state_cut"))
        {
            place.copy_from_slice(bytes);
        }
        // Exactly as long as its chain's is at all runtimes.
        let is_whole = fits && Some(from + bytes.len()) == length;
        self.flows.header_mut(actor).frame = if is_whole { 0 } else { UNSOUND };
    }

    /// Whether what came for a flow is one: its chain is there, and its functions' states are states.
    fn is_flow(&self, actor: u32) -> bool {
        let header = self.flows.header(actor);
        if header.frame == UNSOUND || usize::from(header.chain) >= self.stages.chains() {
            return false;
        }
        let has = |bit: u8| header.flags & bit != 0;
        if has(flag::ANNOUNCED) && !has(flag::SECOND_KEY) {
            return false;
        }
        let state = self.flows.state(actor);
        let mut steps = self.stages.way(header.chain, Direction::Opening).iter();
        // SAFETY: the actor's state has room for every chain's, and nobody has a reference to it.
        let is_sound = steps.all(|step| unsafe {
            let stage = &self.stages.functions[usize::from(step.function)];
            stage.is_valid(state.add(step.flow as usize))
        });
        // SAFETY: a flow that is by itself has the group's state behind its own.
        is_sound
            && (self.flows.affinity() != Affinity::Flow
                || unsafe { self.is_group_state(self.flows.group_state(NO_GROUP, state)) })
    }

    /// Whether these bytes are the group's states of all functions.
    ///
    /// # Safety
    /// There are so many bytes, aligned as groups' states are, and nobody writes to them meanwhile.
    unsafe fn is_group_state(&self, state: core::ptr::NonNull<u8>) -> bool {
        let mut functions = self.stages.functions.iter().zip(&self.stages.group_offsets);
        // SAFETY: the caller's promise.
        functions.all(|(stage, offset)| unsafe { stage.is_valid_group(state.add(*offset as usize)) })
    }

    /// A packet that another runtime held, or kept.
    pub(super) fn take_handed(&mut self, peer: usize, mut packet: PacketBox) {
        if let Packets::Held {
            copies: true,
            left: 1..,
            ..
        } = self.moves.incoming[peer].packets
        {
            return self.take_copy(peer, packet);
        }
        self.moves.packets_moved[0] += 1;
        packet.clear_flags(packet_flag::COPY);
        if !packet.has(packet_flag::PARSED) {
            if let Err(reason) = wire::parse(&mut packet) {
                return self.drop_packet(packet, reason.into());
            }
            self.plan.judge_icmp_error(&mut packet);
        }
        let stream = &mut self.moves.incoming[peer];
        match &mut stream.packets {
            Packets::Held {
                at, opening, left, ..
            } if *left > 0 => {
                *left -= 1;
                let place = (*at, *opening);
                let Some((actor, _)) = stream.actor else {
                    return self.drop_packet(packet, DropReason::HeldAtEnd);
                };
                self.hold_told(actor, place, packet);
            }
            Packets::Handed { group, home, left } if *left > 0 => {
                *left -= 1;
                let (hash, home) = (group.hash(&self.settings.seed), *home);
                match self.moves.at(hash) {
                    Some(id) if home < self.settings.switches => self.take_kept(id, packet, home),
                    _ => self.drop_packet(packet, DropReason::MovingFull),
                }
            }
            // Nobody said what it is.
            _ => self.drop_packet(packet, DropReason::MovingFull),
        }
    }

    /// A copy that another runtime held. One that is none, or finds no room, is gone, as copies are; its function goes on without.
    fn take_copy(&mut self, peer: usize, mut packet: PacketBox) {
        let stream = &mut self.moves.incoming[peer];
        let actor = stream.actor.map(|(actor, _)| actor);
        let Packets::Held {
            at, opening, left, ..
        } = &mut stream.packets
        else {
            return self.recycle(packet);
        };
        *left -= 1;
        let key = actor.map(|actor| (actor, *at, *opening));
        let is_parsed = packet.has(packet_flag::PARSED) || wire::parse(&mut packet).is_ok();
        match key.filter(|key| is_parsed && usize::from(key.1) < FUNCTIONS_MAX) {
            Some(key) if self.held_count < self.settings.held_max => {
                packet.set_flags(packet_flag::COPY);
                self.put_held(key, packet);
            }
            _ => self.recycle(packet),
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
                self.process_kept(alloc::vec![Kept { packet, home, class }], group, Vec::new());
            }
            _ => self.keep(id, packet, home, Class::Handed),
        }
    }

    /// The group is here now: into the tables, and on with its packets. Flows whose bytes are no state, all if the group's are none, are
    /// over: the source has let go of them.
    pub(super) fn install(&mut self, id: u32) {
        let Some(moving) = self.moves.moving(id) else {
            return;
        };
        let (group, by) = (moving.group, moving.clocks.by());
        self.note_installed(&group);
        let Some(moving) = self.moves.moving(id) else {
            return;
        };
        let (mut actors, state, blocks) = (
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
            is_unclear: moving.figures.is_unclear,
        };
        let is_unclear = moving.figures.is_unclear;
        let mut is_unsound = core::mem::take(&mut moving.is_unsound);
        let (aliases, epoch) = (moving.aliases.clone(), moving.machine.latest());
        self.moves.reserved -= left as usize;
        is_unsound |= !blocks.iter().all(|block| self.flows.owners.may_have(block));
        self.refuse_unsound(&mut actors, is_unsound);
        let place = match actors.is_empty() {
            true => None,
            false => self.install_group(group, &state, by),
        };
        match place {
            Some(place) => {
                for block in blocks {
                    // One that came twice, or overlaps, keeps its first owner.
                    self.flows.owners.claim(block, group);
                }
                if is_unclear {
                    // A switch that is told late may have nobody who tells it, should the source go.
                    self.claim_again(group);
                }
                self.moves.flows_moved[0] += actors.len() as u64;
                self.rebase_flows(&actors, by);
                self.install_flows(&actors, place);
            }
            None => self.refuse_unsound(&mut actors, true),
        }
        self.say_installed(group, aliases.clone(), epoch);
        self.begin_again(&actors);
        self.process_kept(kept, group, aliases);
    }

    /// Ends those of a group's flows that are none.
    fn refuse_unsound(&mut self, actors: &mut Vec<u32>, all: bool) {
        actors.retain(|actor| {
            let is_one = !all && self.is_flow(*actor);
            if !is_one {
                self.moves.flows_refused += 1;
                self.drop_held(*actor);
                self.flows.end(*actor);
            }
            is_one
        });
    }

    /// The group's place; `None` if its state is none, or, by whatever mistake, there is no room.
    fn install_group(&mut self, group: GroupKey, state: &[u8], by: i64) -> Option<u32> {
        if self.flows.affinity() == Affinity::Flow {
            return Some(NO_GROUP);
        }
        if state.len() != self.flows.groups().state_length() {
            return None;
        }
        self.flows.groups().prefetch_free(2);
        let (index, is_new) = self.flows.enter_group(group)?;
        debug_assert!(is_new, "a group is at one runtime");
        if !planted::is("group_state_lost") {
            self.flows.group_bytes_mut(index).copy_from_slice(state);
        }
        // SAFETY: the group's place has room for all functions' states.
        if unsafe { self.is_group_state(self.flows.groups().state(index)) } {
            self.rebase_group(index, by);
            return Some(index);
        }
        self.flows.abandon_group(index);
        None
    }

    fn install_flows(&mut self, actors: &[u32], group: u32) {
        // Each would wait for its own cache misses.
        for actor in actors.iter().take(AHEAD) {
            self.prefetch_installing(*actor);
        }
        // All of them first: a flow that ends at once must not be the group's last.
        for actor in actors {
            self.flows.join_group(*actor, group);
        }
        for (at, actor) in actors.iter().enumerate() {
            if let Some(ahead) = actors.get(at + AHEAD) {
                self.prefetch_installing(*ahead);
            }
            self.install_flow(*actor);
        }
    }

    fn prefetch_installing(&self, actor: u32) {
        self.prefetch_moving(actor, false);
        self.flows.prefetch_joining(actor);
    }

    /// Fetches what the arrival, or departure, of a flow will look at in tables: the runtime's and the functions'.
    pub(super) fn prefetch_moving(&self, actor: u32, leaves: bool) {
        self.flows.prefetch_keys(actor);
        let header = self.flows.header(actor);
        let state = self.flows.state(actor);
        for step in self.stages.way(header.chain, Direction::Opening) {
            let stage = &self.stages.functions[usize::from(step.function)];
            // SAFETY: the state is this actor's, laid out for this chain; no call of it waits.
            unsafe { stage.prefetch_moving(state.add(step.flow as usize), &header.key, leaves) };
        }
    }

    fn install_flow(&mut self, actor: u32) {
        let header = *self.flows.header(actor);
        let place = self.flows.header_mut(actor);
        place.frame = 0;
        place.change(Change::Install);
        let is_found = self.flows.insert_keys(actor);
        self.flows.file(actor);
        self.arrive_flow(actor, &header);
        if !is_found {
            self.end_actor(actor);
        }
    }

    fn arrive_flow(&mut self, actor: u32, header: &Header) {
        let state = self.flows.state(actor);
        let group = self.flows.group_state(header.group, state);
        let side = if header.flags & flag::FROM_OUTSIDE != 0 {
            Side::Outside
        } else {
            Side::Inside
        };
        let cx = self.prepare(actor, side, Direction::Opening);
        for at in 0..self.stages.way(header.chain, Direction::Opening).len() {
            let step = self.stages.way(header.chain, Direction::Opening)[at];
            if planted::is("arrived_not_called") {
                break;
            }
            let stage = &self.stages.functions[usize::from(step.function)];
            cx.counters = step.counters;
            // SAFETY: the state is this actor's, with bytes that `is_flow` has found to be its functions'.
            unsafe {
                cx.group = group.add(step.group as usize);
                stage.arrived(state.add(step.flow as usize), Arrival::Migrated, cx);
            }
            self.settle_accounts(cx, actor);
        }
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
            debug_assert_eq!(self.flows.header(actor).phase, Phase::Arriving);
            self.drop_held(actor);
            self.flows.end(actor);
        }
        for kept in kept {
            self.drop_packet(kept.packet, DropReason::PeerGone);
        }
    }
}
