//! Packets that wait until the store has what they changed: the policy `store_commit`.
//!
//! # Theory of operation
//!
//! ```text
//!   observe: committed bytes as they are ─► chain ─► others, or no entry yet?
//!                                              │ yes                         │ no
//!                                              ▼                             ▼
//!            group's entry, flow's entry: change n of the map         ticket of the latest change of its flow, or group
//!                                              │                             │
//!   store ◄══ agent ◄── at once ───────────────┘                             │
//!     └── has all up to n ──► gate (`hold::gate`): ticket n waits ◄──────────┘ ──► out
//! ```
//!
//! It is as with copies at a replica (`compare`), with the map's changes as records: they are
//! numbered, go out in order, and the store takes a batch whole. So the store gets the end of a
//! flow's use of something before another flow's use of it.
//!
//! A group is compared for each packet of its flows, whatever the policy of their chain: a packet
//! of one flow that waits may depend on another flow's change of the group.
//!
//! *A store that is down.* Packets wait, and no more than a quarter of the pool's buffers; beyond
//! is a counted drop (`store_full`). The same where the map has no room for one more flow, since
//! the store has yet to hear of others' ends. Packets of flows whose entries the store has, and
//! that change nothing, pass.
//!
//! Lazy bytes ([`nf::FlowState::COMMITTED`]), and the flow's deadline, are written `interval`
//! later, as with `store`.
//!
//! Invariants: a packet leaves when the store has its flow, and its group, with all committed
//! bytes that they had behind its chain; packets of a flow leave in order (the gate's).
//!
//! Not here: the form of an entry ([`super::form`]).

use super::Ledger;
use crate::flows::Ended;
use crate::flows::actor::{Header, NO_GROUP, Phase, flag};
use crate::hold::mark_of;
use crate::parts::Core;
use crate::replica::sender::COPIED;
use crate::replica::shadow::Shadow;
use crate::stats::DropReason;
use wire::PacketBox;

/// How long, in nanoseconds, until an idle runtime looks again whether the store has answered.
const LOOK: u64 = 50_000;

/// The chains whose packets wait, and the states before a chain.
#[derive(Default)]
pub(crate) struct Through {
    /// Chains whose packets wait, a bit each.
    chains: u64,
    /// The flow whose committed bytes were noted.
    actor: Option<u32>,
    flow: Shadow,
    answered: bool,
    flags: u8,
    /// The group whose were; and those, or of a flow that is its own.
    group: Option<u32>,
    group_shadow: Shadow,
    /// A flow that begins: its group was noted before functions were told.
    begins: Option<u32>,
    /// The changes of a packet of this flow are written, and no function was called since.
    passed: Option<u32>,
}

impl Through {
    /// Which chains' packets wait; answers whether some do that did not.
    pub fn set_chains(&mut self, chains: u64) -> bool {
        let before = core::mem::replace(&mut self.chains, chains);
        (self.actor, self.group, self.passed) = (None, None, None);
        chains & !before != 0
    }

    /// Whether packets of some chain wait.
    pub fn is_on(&self) -> bool {
        self.chains != 0
    }

    /// The committed bytes that the observed group had.
    pub fn observed_group(&self) -> &Shadow {
        &self.group_shadow
    }
}

impl Ledger {
    /// Whether packets of some chain wait.
    #[inline(always)]
    pub fn has_waiting(&self) -> bool {
        self.is_on && self.through.chains != 0
    }

    #[inline]
    pub(super) fn waits(&self, chain: u8) -> bool {
        self.is_on && self.through.chains >> (chain % 64) & 1 == 1
    }

    /// Functions were called, and what they changed was not looked for.
    pub fn note_more_calls(&mut self) {
        self.through.passed = None;
    }

    /// The next packet's flow was not observed before.
    pub fn forget_observed(&mut self) {
        let through = &mut self.through;
        (through.actor, through.group, through.passed) = (None, None, None);
    }
}

impl Core {
    /// The policies, or the ledger, are in force.
    #[cold]
    pub fn wait_for_store_as_configured(&mut self) {
        let chains = match self.ledger.is_on {
            true => self.ledger.through.chains,
            false => 0,
        };
        if chains != 0 {
            // Changes of blocks within a packet's claims are asked for behind it.
            self.flows.owners.note_changes();
            if !self.store_gate.is_closed() {
                self.store_gate.begin();
            }
        }
        self.store_gate.set_waiting(chains);
        self.follow();
    }

    /// Whether a packet of this flow is to pass the store's gate.
    pub fn waits_for_store(&self, actor: u32) -> bool {
        let chain = self.flows.header(actor).chain;
        // A packet of a chain that has another policy now does not overtake packets that wait.
        self.ledger.waits(chain) || !self.sender.is_on() && self.store_gate.packets() > 0
    }

    /// Notes the committed bytes of a flow and its group before a packet's chain.
    #[inline(never)]
    pub fn observe_stored(&mut self, actor: u32) {
        let header = self.flows.header(actor);
        let has_begun = self.ledger.through.begins.take() == Some(actor);
        let waits = self.ledger.waits(header.chain);
        let through = &mut self.ledger.through;
        (through.actor, through.passed) = (None, None);
        if waits {
            observe_flow(through, actor, header, &self.runner, &self.flows);
        }
        if !has_begun {
            observe_group(through, header.group, &self.runner, &self.flows);
        }
    }

    /// Notes the committed bytes of a group before functions are told of a flow that begins in it.
    #[inline(never)]
    pub fn observe_stored_beginning(&mut self, actor: u32) {
        let group = self.flows.header(actor).group;
        let through = &mut self.ledger.through;
        through.begins = Some(actor);
        observe_group(through, group, &self.runner, &self.flows);
    }

    /// Writes what the store lacks of a flow that waits for it, and of its group. `false` if that
    /// found no room.
    #[inline(never)]
    pub fn commit_stored(&mut self, actor: u32) -> bool {
        // A place has another flow, or group, behind that.
        self.store_ends();
        let header = *self.flows.header(actor);
        if !matches!(header.phase, Phase::Active | Phase::Waiting | Phase::Leaving) {
            return true;
        }
        let has_group = self.is_group_behind(&header);
        let has_flow = self.is_flow_behind(actor, &header);
        let mut is_written = true;
        if has_group {
            if let Some(group) = self.ledger.groups.get_mut(header.group as usize) {
                (group.is_changed, group.is_behind) = (true, true);
            }
            is_written = self.store_group(header.group);
        }
        if has_flow && is_written {
            is_written = self.store_flow(actor);
        }
        if has_group || has_flow {
            self.note_written(actor, &header, is_written);
        }
        is_written
    }

    fn note_written(&mut self, actor: u32, header: &Header, is_written: bool) {
        if let Some(flow) = self.ledger.flows.get_mut(actor as usize) {
            flow.is_behind |= !is_written;
        }
        if let Some(entries) = &self.runner.stages().ledger {
            self.store_gate.mark(mark_of(header, actor), entries.changes());
        }
        // Changes by functions from here on are compared with this.
        let waits = self.ledger.waits(header.chain);
        let through = &mut self.ledger.through;
        if waits {
            observe_flow(through, actor, header, &self.runner, &self.flows);
        }
        observe_group(through, header.group, &self.runner, &self.flows);
    }

    /// Whether the store lacks something of a group that a packet may wait for.
    fn is_group_behind(&self, header: &Header) -> bool {
        let Some(known) = self.ledger.groups.get(header.group as usize) else {
            return false;
        };
        let through = &self.ledger.through;
        if known.entry == 0 {
            return self.ledger.waits(header.chain);
        }
        let state = self.flows.groups().state_bytes(header.group);
        known.is_behind
            || through.group != Some(header.group)
            || self.flows.owners.has_changes()
            || self
                .runner
                .stages()
                .group_committed()
                .differs(state, &through.group_shadow)
    }

    /// The same of a flow. A flow whose first packet is about to settle it is written then.
    fn is_flow_behind(&self, actor: u32, header: &Header) -> bool {
        let Some(known) = self.ledger.flows.get(actor as usize) else {
            return false;
        };
        let is_unsettled = header.flags & flag::SETTLING != 0 && known.entry == 0;
        if !self.ledger.waits(header.chain) || is_unsettled || self.is_to_be_judged(actor) {
            return false;
        }
        let through = &self.ledger.through;
        let is_noted = through.actor == Some(actor)
            && (through.answered, through.flags) == (header.answered, header.flags & COPIED);
        known.entry == 0
            || known.is_behind
            || !is_noted
            || differs_from_observed(through, actor, header, &self.runner, &self.flows)
    }

    /// Behind a packet's chain, whatever became of the packet, or behind what functions were told.
    pub fn commit_stored_rest(&mut self, actor: u32) {
        if self.ledger.through.passed != Some(actor) || self.flows.has_ended_stored() {
            self.commit_stored(actor);
        }
    }

    /// A flow of this group is over: its ports are another's only when the store has that.
    fn store_group_of_ended(&mut self, index: u32) {
        let known = self.ledger.groups.get(index as usize);
        if known.is_some_and(|known| known.entry != 0 || known.is_wanted) && self.store_group(index) {
            self.ledger.through.group = None;
            if let Some(entries) = &self.runner.stages().ledger {
                self.store_gate.mark(index, entries.changes());
            }
        }
    }

    /// Passes a packet when the store has what it changed.
    pub fn pass_stored(&mut self, actor: u32, packet: PacketBox, is_written: bool) {
        if self.sender.is_on() {
            self.commit(actor);
            self.sender.before.passed = actor;
        }
        self.ledger.through.passed = Some(actor);
        if !is_written {
            return self.out.drop_packet(packet, DropReason::StoreFull);
        }
        let header = self.flows.header(actor);
        self.store_gate.pass(actor, header, packet, &mut self.out);
    }

    /// Lets go what the store has by now; answers how many packets.
    #[inline]
    pub fn acknowledge_stored(&mut self) -> usize {
        match self.store_gate.is_closed() {
            true => self.let_go_stored(),
            false => 0,
        }
    }

    #[inline(never)]
    fn let_go_stored(&mut self) -> usize {
        let Some(entries) = &self.runner.stages().ledger else {
            return 0;
        };
        let stored = match crate::replica::is_broken("the store is waited for") {
            true => entries.changes(),
            false => self.ledger.handed.limit(entries.stored_up_to()),
        };
        self.store_gate.acknowledge(stored, &mut self.out)
    }

    /// When a runtime without packets looks whether the store has answered; `waits`: words of moves
    /// wait for that.
    pub fn look_at_store_at(&self, waits: bool) -> Option<u64> {
        (waits || self.store_gate.packets() > 0).then(|| self.now.saturating_add(LOOK))
    }

    /// Removes the entries of ended flows and groups, before their places have others.
    #[inline]
    pub(super) fn store_ends(&mut self) {
        if self.flows.has_ended_stored() {
            self.store_each_end();
        }
    }

    #[cold]
    fn store_each_end(&mut self) {
        let ended = self.flows.take_ended_stored();
        let Some(entries) = &self.runner.stages().ledger else {
            return;
        };
        // No flow is in the store without its group.
        for over in &ended {
            if let Ended::Flow(actor, _) = *over {
                self.ledger.remove(entries, false, actor);
            }
        }
        for over in &ended {
            match *over {
                Ended::Flow(..) => {}
                Ended::Group(index) => self.ledger.remove(entries, true, index),
                Ended::InGroup(index) => self.ledger.note_group(index, false, self.now),
                Ended::Rests(index, chain) => {
                    let is_wanted = self.ledger.has_policy_of(chain);
                    self.ledger.note_group(index, is_wanted, self.now);
                }
            }
        }
        if self.ledger.has_waiting() {
            for over in &ended {
                if let Ended::InGroup(index) | Ended::Rests(index, _) = *over {
                    self.store_group_of_ended(index);
                }
            }
        }
        self.flows.give_ended_stored(ended);
    }

    /// The runtime ends: packets are dropped whose changes the store does not have.
    #[cold]
    pub fn end_waiting_for_store(&mut self) {
        self.acknowledge_stored();
        self.store_gate.drop_all(&mut self.out);
    }
}

/// Whether a flow's committed bytes are others than they were; `true` of a flow that was not
/// observed.
pub(super) fn differs_from_observed(
    through: &Through,
    actor: u32,
    header: &Header,
    runner: &crate::runner::Runner,
    flows: &crate::flows::FlowStore,
) -> bool {
    if through.actor != Some(actor) {
        return true;
    }
    let (stages, state) = (runner.stages(), flows.state_bytes(actor));
    let shared = stages.group_committed();
    if header.group == NO_GROUP && !shared.is_empty() {
        let group = state.get(flows.group_offset()..).unwrap_or_default();
        if shared.differs(group, &through.group_shadow) {
            return true;
        }
    }
    let shape = stages.committed(header.chain);
    shape.is_none_or(|shape| shape.differs(state, &through.flow))
}

pub(super) fn observe_flow(
    through: &mut Through,
    actor: u32,
    header: &Header,
    runner: &crate::runner::Runner,
    flows: &crate::flows::FlowStore,
) {
    through.actor = Some(actor);
    (through.answered, through.flags) = (header.answered, header.flags & COPIED);
    let (stages, state) = (runner.stages(), flows.state_bytes(actor));
    if let Some(shape) = stages.committed(header.chain) {
        shape.note(state, &mut through.flow);
    }
    if header.group == NO_GROUP && !stages.group_committed().is_empty() {
        let group = state.get(flows.group_offset()..).unwrap_or_default();
        stages.group_committed().note(group, &mut through.group_shadow);
    }
}

pub(super) fn observe_group(
    through: &mut Through,
    group: u32,
    runner: &crate::runner::Runner,
    flows: &crate::flows::FlowStore,
) {
    if group == NO_GROUP {
        return;
    }
    through.group = Some(group);
    let shape = runner.stages().group_committed();
    shape.note(flows.groups().state_bytes(group), &mut through.group_shadow);
}
