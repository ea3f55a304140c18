//! The target's end of a move: reserving, staging and installing.

use super::Moves;
use super::clocks::Clocks;
use super::{AHEAD, Buffered, Class, MOVES_MAX, Moving, order};
use crate::flows::actor::{Change, NO_GROUP, Phase, flag};
use crate::flows::group::GroupKey;
use crate::parts::Core;
use crate::record::{FlowHeader, InstallStats, Packets, Record};
use crate::stats::DropReason;
use crate::watch::flows::Change as Flow;
use alloc::collections::BTreeSet;
use alloc::vec::Vec;
use nf::Affinity;
use protocols::ownership::{Ownership, Phase as Part, Refusal, RuntimeId, RuntimeMessage, Take};
use wire::packet::flag as packet_flag;
use wire::{PacketBox, planted};

/// In [`Header::frame`](crate::flows::actor::Header) of an arriving actor: not all of its state has
/// come, or too much.
const UNSOUND: u32 = u32::MAX;
/// Blocks of a group, at most.
pub(crate) const BLOCKS_MAX: usize = 1024;

impl Moving {
    pub(crate) fn new(machine: Ownership, group: GroupKey) -> Self {
        Moving {
            is_silent: false,
            machine,
            group,
            actors: Vec::new(),
            reply_keys: Vec::new(),
            buffered: Vec::new(),
            dropped: 0,
            deadline: u64::MAX,
            again: super::AGAIN,
            taken_at: 0,
            order: order::NONE,
            to: 0,
            tried: 0,
            rerouted_at: 0,
            is_quiescing: false,
            is_pinned: false,
            is_resynced_late: false,
            blocks_tentative: Vec::new(),
            backs: Vec::new(),
            asked: Vec::new(),
            keys_asked: BTreeSet::new(),
            is_to_be_routed: false,
            is_unsound: false,
            weight: 0,
            reserved: 0,
            clocks: Clocks::default(),
            install_stats: InstallStats::default(),
            done_waiting: None,
            state: Vec::new(),
            rests: None,
            blocks: Vec::new(),
        }
    }
}

impl Moves {
    /// Whether a group of so many flows is welcome.
    pub(crate) fn admit(&mut self, core: &mut Core, group: GroupKey, flows: u32) -> Result<(), Refusal> {
        if core.takes_no_moves() {
            return Err(Refusal::Leaving);
        }
        if core.runner.is_changing() {
            return Err(Refusal::Busy);
        }
        if core.has_group(&group) {
            return Err(Refusal::Busy);
        }
        // No more than all runtimes may have on their way; and messages to switches about earlier
        // ones have been sent, as a rule.
        let most = MOVES_MAX as usize * usize::from(core.settings.info.runtimes.max(1));
        if self.under_way() >= most || self.key_messages.len() >= most {
            return Err(Refusal::Busy);
        }
        // A group that rests takes no other's place.
        let resting = match flows {
            0 => 0,
            _ => core.flows.groups().resting().len(),
        };
        let groups = core.flows.affinity() == Affinity::Flow
            || core.flows.groups().room() + resting > self.under_way();
        let room = core.flows.free().saturating_sub(core.reserved);
        if room < flows as usize || !groups {
            return Err(Refusal::Full);
        }
        Ok(())
    }

    pub(crate) fn begin_at_target(
        &mut self,
        core: &mut Core,
        of_group: u64,
        group: GroupKey,
        machine: Ownership,
        flows: u32,
        mut reply_keys: Vec<GroupKey>,
    ) {
        // Which of them another move has, or which is no reply key, this one has not.
        reply_keys.retain(|key| {
            let hash = key.hash(&core.settings.seed);
            self.at(hash).is_none() && of_group != hash
        });
        let mut moving = Moving::new(machine, group);
        if flows > 0 {
            moving.reserved = flows;
            core.reserved += flows as usize;
            moving.reply_keys = reply_keys;
        }
        self.insert(of_group, &core.settings.seed, moving);
    }

    /// Takes in a piece of a state.
    pub(crate) fn take_piece(&mut self, core: &mut Core, peer: usize, record: Record<'_>) {
        let seed = core.settings.seed;
        let stream = &mut self.incoming[peer];
        match record {
            Record::ReplyKey { group, key } => {
                // No more than all flows there may be have.
                if stream.reply_keys.len() >= core.flows.capacity() {
                    core.out.reject();
                } else {
                    for _ in 0..stream.note_reply_key(group, key) {
                        core.out.reject();
                    }
                }
            }
            Record::Begin { group, now } => {
                let id = self.at(group.hash(&seed));
                let stream = &mut self.incoming[peer];
                (stream.group, stream.actor) = (id, None);
                let clocks = self.clocks(core, peer, now);
                match self.staging(peer).filter(|moving| moving.group == group) {
                    Some(moving) => moving.clocks = clocks,
                    None => {
                        self.incoming[peer].group = None;
                        core.out.reject();
                    }
                }
            }
            Record::Block(block) => {
                // Whether it may be noted is seen when it is.
                core.flows.owners.prefetch_place(&block);
                match self.staging(peer) {
                    Some(moving) if moving.blocks.len() < BLOCKS_MAX => moving.blocks.push(block),
                    Some(moving) => moving.is_unsound = true,
                    None => core.out.reject(),
                }
            }
            Record::Group(bytes) => {
                let length = core.flows.groups().state_length();
                match self.staging(peer) {
                    Some(moving) if moving.state.len() + bytes.len() <= length => {
                        moving.state.extend_from_slice(bytes);
                    }
                    Some(moving) => moving.is_unsound = true,
                    None => core.out.reject(),
                }
            }
            Record::Rests { left } => match self.staging(peer) {
                Some(moving) => moving.rests = Some(left),
                None => core.out.reject(),
            },
            Record::Flow(flow_header, bytes) => self.take_flow(core, peer, &flow_header, bytes),
            Record::More(bytes) => self.stage_bytes(core, peer, bytes),
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
            Record::Ownership { .. }
            | Record::Leaving(_)
            | Record::Incarnation(..)
            | Record::Wanted(..)
            | Record::Pool(..)
            | Record::Object(..)
            | Record::Copy(_) => {}
        }
    }

    /// Takes in a flow, and what its record has of its state.
    #[inline]
    pub(crate) fn take_flow(&mut self, core: &mut Core, peer: usize, flow_header: &FlowHeader, bytes: &[u8]) {
        self.incoming[peer].actor = None;
        let actor = self.stage_flow(core, peer, flow_header);
        self.incoming[peer].actor = actor.map(|actor| (actor, 0));
        self.stage_bytes(core, peer, bytes);
    }

    /// The group whose state comes from a runtime: accepted from it, and not yet complete.
    fn staging(&mut self, peer: usize) -> Option<&mut Moving> {
        let id = self.incoming[peer].group?;
        let source = RuntimeId(peer as u16);
        let is_staging = |moving: &&mut Moving| matches!(moving.machine.phase(), Part::Buffering { from, is_staged: false, .. } if from == source);
        self.moving(id).filter(is_staging)
    }

    #[inline]
    fn stage_flow(&mut self, core: &mut Core, peer: usize, flow_header: &FlowHeader) -> Option<u32> {
        let (now, timeout) = (core.now, core.settings.timeout_default);
        let Some(moving) = self.staging(peer).filter(|moving| moving.reserved > 0) else {
            // Of no group on its way, or more than were announced.
            self.flows_refused += 1;
            return None;
        };
        moving.reserved -= 1;
        let deadline = moving.clocks.deadline(flow_header.time_left, now, timeout);
        core.reserved -= 1;
        core.flows.prefetch_free_ahead(AHEAD);
        let actor = core.flows.arrive();
        debug_assert!(actor.is_some(), "what was reserved is there");
        let actor = actor?;
        if let Some(moving) = self.staging(peer) {
            moving.actors.push(actor);
        }
        let generation = core.runner.current_generation();
        let header = core.flows.header_mut(actor);
        header.generation = generation;
        header.key = flow_header.key;
        header.deadline = deadline;
        header.chain = flow_header.chain;
        header.flags = flow_header.flags & !(flag::HOLDS | flag::SETTLING);
        header.answered = flow_header.answered;
        header.group = NO_GROUP;
        // Until all of it is here.
        header.frame = UNSOUND;
        core.flows.set_reply_key(actor, flow_header.second);
        Some(actor)
    }

    fn stage_bytes(&mut self, core: &mut Core, peer: usize, bytes: &[u8]) {
        let Some((actor, at)) = &mut self.incoming[peer].actor else {
            return;
        };
        let (actor, from) = (*actor, *at);
        *at += bytes.len();
        // A chain that is not here has no length, so no bytes are all of it.
        let travelling = core
            .runner
            .travelling(core.flows.header(actor).chain, &core.flows);
        let length = travelling.map(|state| state.length());
        let at = travelling.map_or(0..0, |state| state.place(from));
        let state = core.flows.state_bytes_mut(actor);
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
        core.flows.header_mut(actor).frame = if is_whole { 0 } else { UNSOUND };
    }

    /// A packet that another runtime held, or kept.
    pub(crate) fn take_handed(&mut self, core: &mut Core, peer: usize, mut packet: PacketBox) {
        if let Packets::Held {
            copies: true,
            left: 1..,
            ..
        } = self.incoming[peer].packets
        {
            return self.take_copy(core, peer, packet);
        }
        self.packets_moved[0] += 1;
        packet.clear_flags(packet_flag::COPY);
        if !packet.has(packet_flag::PARSED) {
            if let Err(reason) = wire::parse(&mut packet) {
                return core.out.drop_packet(packet, reason.into());
            }
            core.runner.plan().judge_icmp_error(&mut packet);
        }
        let stream = &mut self.incoming[peer];
        match &mut stream.packets {
            Packets::Held {
                at, opening, left, ..
            } if *left > 0 => {
                *left -= 1;
                let place = (*at, *opening);
                let Some((actor, _)) = stream.actor else {
                    return core.out.drop_packet(packet, DropReason::HeldAtEnd);
                };
                core.runner
                    .hold_told(actor, place, packet, &mut core.flows, &mut core.out);
            }
            Packets::Handed { group, home, left } if *left > 0 => {
                *left -= 1;
                let (hash, home) = (group.hash(&core.settings.seed), *home);
                match self.at(hash) {
                    Some(id) if home < core.settings.switches => self.take_kept(core, id, packet, home),
                    _ => core.out.drop_packet(packet, DropReason::MovingFull),
                }
            }
            // No record said what it is.
            _ => core.out.drop_packet(packet, DropReason::MovingFull),
        }
    }

    /// A copy that another runtime held. A malformed copy, or one without room, is gone, as copies
    /// are; its function goes on without.
    fn take_copy(&mut self, core: &mut Core, peer: usize, mut packet: PacketBox) {
        let stream = &mut self.incoming[peer];
        let actor = stream.actor.map(|(actor, _)| actor);
        let Packets::Held {
            at, opening, left, ..
        } = &mut stream.packets
        else {
            return core.out.recycle(packet);
        };
        *left -= 1;
        let key = actor.map(|actor| (actor, *at, *opening));
        let is_parsed = packet.has(packet_flag::PARSED) || wire::parse(&mut packet).is_ok();
        let key = key.filter(|_| is_parsed);
        core.runner
            .hold_copy_told(key, packet, &mut core.flows, &mut core.out);
    }

    fn take_kept(&mut self, core: &mut Core, id: u32, packet: PacketBox, home: u8) {
        let Some(moving) = self.moving(id) else {
            return core.out.drop_packet(packet, DropReason::MovingFull);
        };
        let (group, part) = (moving.group, moving.machine.phase());
        match moving.machine.take_handed(home) {
            Take::PassOn(to) => self.hand_over(core, id, to.0, home, packet),
            Take::Process if !matches!(part, Part::Returning { .. }) => {
                self.buffered += 1;
                let class = Class::Handed;
                self.process(alloc::vec![Buffered { packet, home, class }], group, Vec::new());
            }
            _ => self.keep(core, id, packet, home, Class::Handed),
        }
    }

    /// The group is here now: into the tables, and on with its packets. Flows whose bytes are no
    /// state, all if the group's are none, are over: the source has let go of them.
    pub(crate) fn install(&mut self, core: &mut Core, id: u32) {
        let Some(moving) = self.moving(id) else {
            return;
        };
        let (group, by) = (moving.group, moving.clocks.by());
        core.note_installed(&group);
        let Some(moving) = self.moving(id) else {
            return;
        };
        let (mut actors, state, blocks) = (
            core::mem::take(&mut moving.actors),
            core::mem::take(&mut moving.state),
            core::mem::take(&mut moving.blocks),
        );
        let (buffered, left) = (
            core::mem::take(&mut moving.buffered),
            core::mem::take(&mut moving.reserved),
        );
        moving.install_stats = InstallStats {
            buffered: buffered.len() as u32,
            dropped: moving.dropped,
            is_unclear: moving.install_stats.is_unclear,
        };
        let is_unclear = moving.install_stats.is_unclear;
        let mut is_unsound = core::mem::take(&mut moving.is_unsound);
        let (reply_keys, epoch) = (moving.reply_keys.clone(), moving.machine.latest());
        let rests = moving.rests.take();
        let until = rests.map(|left| moving.clocks.deadline(left, core.now, 0));
        core.reserved -= left as usize;
        let owners = &core.flows.owners;
        is_unsound |= !blocks.iter().all(|block| {
            // A block that was claimed for a copy of this group is its own.
            let owner = owners.at(block.addr, block.first);
            owners.may_note(block) && owner.is_none_or(|owner| owner == group)
        });
        self.refuse_unsound(core, &mut actors, is_unsound);
        let rests = actors.is_empty() && !is_unsound && rests.is_some() && core.runner.stages().outlives;
        let place = match actors.is_empty() && !rests {
            true => None,
            false => self.install_group(core, group, &state, by),
        };
        match place {
            Some(place) => {
                core.begin_coming(group, place);
                if let Some(until) = until.filter(|_| rests) {
                    core.flows.rest_arrived(place, until);
                }
                core.disclaim(group);
                for block in blocks {
                    // A block that came twice, or overlaps, keeps its first owner.
                    core.flows.owners.claim(block, group);
                }
                if is_unclear {
                    // Should the source go, no runtime tells a switch that is told late.
                    self.claim_again(core, group);
                }
                self.flows_moved[0] += actors.len() as u64;
                core.runner.rebase_flows(&actors, by, &core.flows);
                self.install_flows(core, &actors, place);
                core.copy_arrived(group, &actors);
            }
            None => self.refuse_unsound(core, &mut actors, true),
        }
        self.say_installed(core, group, reply_keys.clone(), epoch);
        self.begin_again(actors);
        self.process(buffered, group, reply_keys);
    }

    /// Ends the malformed flows of a group.
    fn refuse_unsound(&mut self, core: &mut Core, actors: &mut Vec<u32>, all: bool) {
        actors.retain(|actor| {
            let is_one = !all
                && core.flows.header(*actor).frame != UNSOUND
                && core.runner.is_flow(*actor, &core.flows);
            if !is_one {
                self.flows_refused += 1;
                core.runner.drop_held(*actor, &mut core.flows, &mut core.out);
                core.flows.end(*actor);
            }
            is_one
        });
    }

    /// The group's place; `None` if its state is none, or, by whatever mistake, there is no room.
    fn install_group(&mut self, core: &mut Core, group: GroupKey, state: &[u8], by: i64) -> Option<u32> {
        if core.flows.affinity() == Affinity::Flow {
            return Some(NO_GROUP);
        }
        if state.len() != core.flows.groups().state_length() {
            return None;
        }
        core.flows.groups().prefetch_free(2);
        if core.flows.groups().room() == 0 {
            core.evict_group();
        }
        let (index, is_new) = core.flows.enter_group(group)?;
        debug_assert!(is_new, "a group is at one runtime");
        if !planted::is("group_state_lost") {
            core.flows.group_bytes_mut(index).copy_from_slice(state);
        }
        if core.runner.is_group(index, &core.flows) {
            core.runner.rebase_group(index, by, &core.flows);
            return Some(index);
        }
        core.flows.abandon_group(index);
        None
    }

    fn install_flows(&mut self, core: &mut Core, actors: &[u32], group: u32) {
        // Each would wait for its own cache misses.
        for actor in actors.iter().take(AHEAD) {
            self.prefetch_installing(core, *actor);
        }
        // All of them first: a flow that ends at once must not be the group's last.
        for actor in actors {
            core.flows.join_group(*actor, group);
        }
        for (at, actor) in actors.iter().enumerate() {
            if let Some(ahead) = actors.get(at + AHEAD) {
                self.prefetch_installing(core, *ahead);
            }
            self.install_flow(core, *actor);
        }
    }

    fn prefetch_installing(&self, core: &Core, actor: u32) {
        core.runner.prefetch_moving(actor, false, &core.flows);
        core.flows.prefetch_joining(actor);
    }

    fn install_flow(&mut self, core: &mut Core, actor: u32) {
        let place = core.flows.header_mut(actor);
        place.frame = 0;
        place.change(Change::Install);
        let is_found = core.flows.insert_keys(actor);
        core.flows.file(actor);
        core.runner.arrive(actor, &mut core.flows, &mut core.out);
        core.note_arrived(actor);
        core.witness(actor, Flow::MovedIn);
        if !is_found {
            core.end_actor(actor);
        }
    }

    /// Says that the group is installed, with the figures seen meanwhile.
    pub(crate) fn say_done(&mut self, core: &mut Core, id: u32, to: u16, message: RuntimeMessage) {
        let Some(moving) = self.moving(id) else {
            return;
        };
        let record = Record::Ownership {
            group: moving.group,
            message,
            flows: 0,
            install_stats: moving.install_stats,
        };
        core.out.send_record(to, &record);
    }

    /// The move came to nothing: its reservations and staged state are free again.
    pub(crate) fn close_slot(&mut self, core: &mut Core, id: u32) {
        let Some(moving) = self.moving(id) else {
            return;
        };
        let (actors, buffered) = (
            core::mem::take(&mut moving.actors),
            core::mem::take(&mut moving.buffered),
        );
        self.buffered -= buffered.len();
        for actor in actors {
            debug_assert_eq!(core.flows.header(actor).phase, Phase::Arriving);
            core.runner.drop_held(actor, &mut core.flows, &mut core.out);
            core.flows.end(actor);
        }
        for buffered in buffered {
            core.out.drop_packet(buffered.packet, DropReason::PeerGone);
        }
    }
}
