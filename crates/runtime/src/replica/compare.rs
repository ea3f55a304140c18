//! Changes by packets, and which packets wait for them: a flow and its group before and behind a
//! chain.
//!
//! ```text
//!   observe(actor): committed bytes as they are ─► chain ─► commit(actor): ends, blocks; group, flow: runs or all bytes ─► mark at the gate
//! ```
//!
//! A packet that passes is compared once: again only if functions were called behind it
//! (`Before::passed`). A group is compared only if a function has taken its state
//! (`Runner::is_group_taken`), and noted before only where a packet of the chain did so lately.
//!
//! Most packets are of a flow and a group whose copies are up to date, of a chain that has not
//! taken a group's state lately. They are observed *plainly* (`Before::plain`): the functions'
//! calls are watched ([`crate::stage::Watched`]), and the runner says whether they changed anything
//! ([`Changed`]). All others take the longer way.
//!
//! A flow is sent whole, and its group with it, when its copy is not up to date, or when its bytes
//! were not observed before the call: a call that waited goes on. A group is sent whole when a flow
//! of it is over, which functions are told of; not if a packet's chain ends the flow, since the
//! group was observed before that chain.
//!
//! Invariant: after [`Core::commit`] the records sent so far have all committed bytes of the flow
//! and its group.

use super::policy::Policy;
use super::sender::COPIED;
use super::shadow::Shadow;
use crate::flows::actor::{Header, NO_GROUP, Phase, flag};
use crate::hold::mark_of;
use crate::parts::Core;
use crate::record::Copy;
use crate::runner::Changed;

/// So many records may wait for a replica that reads none, beyond what its link holds. Of a base,
/// too, which a packet waits for then.
pub(crate) const PENDING_MAX: usize = 16_384;

/// In [`Before`]: no flow, or no group.
pub(super) const NONE: u32 = NO_GROUP;

/// A flow's state before its packet's chain.
pub(super) struct Before {
    /// Whose, if any.
    pub(super) actor: u32,
    /// The same flow, if it was observed plainly.
    plain: u32,
    /// [`copied_header`] of it. Its committed bytes are in the stages' shadow.
    copied_header: u32,
    /// Its group, if that has a copy: calls are watched since for whether they take its state.
    pub(super) group: u32,
    /// Whether the group's committed bytes were noted, too.
    is_group_noted: bool,
    /// The bytes of that group, or of a flow that is its own.
    pub(super) group_shadow: Shadow,
    /// A packet of this flow has left, its changes are sent, and no function was called since.
    pub(super) passed: u32,
    /// A flow that begins: its group was looked at before functions were told.
    begins: u32,
}

impl Default for Before {
    fn default() -> Self {
        Before {
            actor: NONE,
            plain: NONE,
            copied_header: 0,
            group: NONE,
            is_group_noted: false,
            group_shadow: Shadow::default(),
            passed: NONE,
            begins: NONE,
        }
    }
}

impl Before {
    /// The next packet's flow was not observed.
    #[inline]
    pub(super) fn forget(&mut self) {
        (self.actor, self.plain, self.group) = (NONE, NONE, NONE);
    }
}

/// The facts that a copy has of a flow's header besides its keys and time, and which copy it is.
#[inline(always)]
fn copied_header(header: &Header) -> u32 {
    let (flags, answered) = (header.flags & COPIED, u8::from(header.answered));
    u32::from_le_bytes([header.chain, flags, answered, header.copied])
}

impl Core {
    // Packets.

    /// Whether so many records wait for the replica that no packet may make more.
    #[inline]
    pub fn is_replica_full(&self) -> bool {
        self.sender
            .to
            .is_some_and(|to| self.out.has_pending(to, PENDING_MAX))
    }

    /// Observes a flow and its group before a packet's chain, if no more is to be done: its copy is
    /// up to date, and the runner sees the chain's changes.
    #[inline(always)]
    pub fn observe_plainly(&mut self, actor: u32) -> bool {
        let header = self.flows.header(actor);
        let (chain, group, copied_header) = (header.chain, header.group, copied_header(header));
        let sender = &mut self.sender;
        let is_plain = header.copied == sender.base()
            && (sender.commits & !sender.taking) >> (chain % 64) & 1 == 1
            && self.runner.stages().is_watchable
            && !self.flows.has_ended();
        if !is_plain {
            return false;
        }
        // With a flow that has a copy its group has one.
        debug_assert!(group == NO_GROUP || sender.has_group(group));
        debug_assert!(sender.before.begins == NONE, "a flow that begins has no copy");
        let before = &mut sender.before;
        (before.actor, before.plain, before.passed) = (actor, actor, NONE);
        (before.group, before.is_group_noted) = (group, false);
        before.copied_header = copied_header;
        self.runner.watch_groups();
        true
    }

    /// Behind the chain: whether at most committed bytes of the flow may be other than they were.
    /// Ends, blocks of ports and marks of the flow are others only behind a call that has effects,
    /// or where other flows were seen to since.
    #[inline(always)]
    pub fn is_plain(&self, actor: u32) -> bool {
        self.sender.before.plain == actor
            && self.runner.changed() != Changed::Unknown
            && !self.runner.is_group_taken()
    }

    /// Sends what such a flow has changed.
    #[inline(never)]
    pub fn send_plainly(&mut self, actor: u32) {
        if super::is_broken("state is copied") && self.sender.sent > 20 {
            return;
        }
        let begins = self.begin_with_ends();
        let header = self.flows.header(actor);
        let (chain, mark) = (header.chain, mark_of(header, actor));
        self.send_runs(actor, chain, false);
        self.end_change(begins);
        self.gate.mark(mark, self.sender.sent);
    }

    /// Notes the committed bytes of a flow before a packet's chain runs, and watches for its group.
    #[inline(never)]
    pub fn observe(&mut self, actor: u32) {
        let before = &mut self.sender.before;
        (before.actor, before.plain, before.passed) = (NONE, NONE, NONE);
        let has_begun = core::mem::replace(&mut before.begins, NONE) == actor;
        if !has_begun {
            before.group = NONE;
        }
        // Behind what was noted of a group: those belong to what the flow that begins changes.
        if self.flows.has_ended() && !has_begun {
            self.send_ends();
        }
        let header = self.flows.header(actor);
        let (chain, group) = (header.chain, header.group);
        let is_copied = header.copied == self.sender.base();
        let commits = self.sender.policy_of(header) == Policy::Commit;
        if is_copied && commits {
            self.observe_flow(actor);
        }
        // With a flow that lacks a copy, its group is sent whole.
        if !has_begun && (is_copied || !commits) && group != NO_GROUP && self.sender.has_group(group) {
            self.watch_group(group, chain);
        }
    }

    #[inline]
    fn observe_flow(&mut self, actor: u32) {
        let header = self.flows.header(actor);
        let before = &mut self.sender.before;
        (before.actor, before.plain, before.copied_header) = (actor, NONE, copied_header(header));
        let state = self.flows.state_bytes(actor);
        if let Some((shape, shadow)) = self.runner.stages_mut().shadow_of(header.chain) {
            shape.note_in(state, shadow);
        }
        let stages = self.runner.stages();
        if header.group == NO_GROUP && !stages.group_committed().is_empty() {
            let group = state.get(self.flows.group_offset()..).unwrap_or_default();
            stages.group_committed().note(group, &mut before.group_shadow);
        }
    }

    /// From now on it is known whether a function takes a group's state. That is noted if packets
    /// of the chain took it lately; if not, and one does, it is sent whole.
    #[inline]
    fn watch_group(&mut self, group: u32, chain: u8) {
        let taking = 1 << (chain % 64);
        if self.sender.taking & taking != 0 {
            self.sender.taking &= !taking;
            return self.observe_group(group);
        }
        self.runner.watch_groups();
        self.sender.before.group = group;
        self.sender.before.is_group_noted = false;
    }

    #[inline(never)]
    pub(super) fn observe_group_of(&mut self, actor: u32) {
        self.sender.before.group = NONE;
        if self.flows.has_ended() {
            self.send_ends();
        }
        self.sender.before.begins = actor;
        let group = self.flows.header(actor).group;
        if group != NO_GROUP && self.sender.has_group(group) {
            self.observe_group(group);
        }
    }

    /// A call that waited goes on: its changes were not observed. Answers its flow's group.
    pub fn observe_woken(&mut self, actor: u32) -> u32 {
        self.ledger.forget_observed();
        self.sender.before.group = NONE;
        let header = self.flows.header_mut(actor);
        header.outdate_copy();
        header.group
    }

    /// Behind such a call: its possible changes are sent, unless a packet of it has taken them
    /// along.
    pub fn commit_woken(&mut self, actor: u32, group: u32) {
        if self.sender.is_on() {
            let begins = self.begin_change();
            self.commit_all_woken(actor, group);
            self.end_change(begins);
        }
    }

    fn commit_all_woken(&mut self, actor: u32, group: u32) {
        self.sender.before.group = NONE;
        if self.flows.has_ended() {
            self.send_ends();
        }
        let is_observed = core::mem::replace(&mut self.sender.before.actor, NONE) == actor;
        let header = *self.flows.header(actor);
        if is_observed && header.phase == Phase::Active {
            // Changes by a later packet of the same call go with all bytes.
            self.flows.header_mut(actor).outdate_copy();
        }
        if self.is_to_be_sent(actor) {
            self.commit(actor);
            return;
        }
        let is_sent = header.phase == Phase::Active && self.sender.policy_of(&header) != Policy::None;
        if !is_sent && self.sender.has_group(group) {
            self.send_group(group);
            self.gate.mark(group, self.sender.sent);
        }
    }

    /// Whether a flow is to be sent though no packet has passed: a function keeps it, its copy is
    /// too old, or its first packet waits in a call. Its group knows of that flow already, and
    /// without a copy the group would never be told of its end.
    fn is_to_be_sent(&self, actor: u32) -> bool {
        let header = self.flows.header(actor);
        let is_here = match header.phase {
            Phase::Active => header.copied != self.sender.base(),
            Phase::Waiting => header.copied == 0,
            _ => false,
        };
        is_here && !is_unsettled(header) && self.sender.policy_of(header) != Policy::None
    }

    /// Notes a group's committed bytes.
    fn observe_group(&mut self, group: u32) {
        self.runner.watch_groups();
        let before = &mut self.sender.before;
        (before.plain, before.group, before.is_group_noted) = (NONE, group, true);
        let state = self.flows.groups().state_bytes(group);
        let shape = self.runner.stages().group_committed();
        shape.note(state, &mut before.group_shadow);
    }

    /// Behind a packet's chain, whatever became of the packet: its changes are sent.
    #[inline(always)]
    pub fn commit_after(&mut self, actor: u32) {
        let before = &mut self.sender.before;
        if (before.plain, before.passed) == (actor, actor) && !self.flows.has_ended() {
            return before.forget();
        }
        self.commit_behind(actor);
    }

    /// [`Core::commit_after`] for all but the plain case.
    #[inline(never)]
    pub fn commit_behind(&mut self, actor: u32) {
        let header = self.flows.header(actor);
        if header.phase == Phase::Active && self.sender.policy_of(header) == Policy::Snapshot {
            self.note_for_snapshot(actor);
        }
        // The changes of a packet that has left are sent, and no function was called since.
        if self.sender.before.passed != actor || self.flows.has_ended() {
            self.commit_rest(actor);
        }
        self.sender.before.forget();
    }

    /// The same where the packet did not pass, or more was done behind it.
    fn commit_rest(&mut self, actor: u32) {
        let group = self.sender.before.group;
        let header = self.flows.header(actor);
        let chain = header.chain;
        let is_observed = header.phase == Phase::Active && self.sender.before.actor == actor;
        if is_observed || self.is_to_be_sent(actor) {
            self.commit(actor);
        } else if group != NONE {
            let begins = self.begin_with_ends();
            if self.sender.has_group(group) {
                self.commit_group(group, chain, Policy::None);
                self.gate.mark(group, self.sender.sent);
            }
            self.end_change(begins);
        }
    }

    /// Sends what the copies of a flow and its group lack.
    #[inline]
    pub fn commit(&mut self, actor: u32) {
        if super::is_broken("state is copied") && self.sender.sent > 20 {
            return;
        }
        let begins = self.begin_with_ends();
        if !self.lacks_nothing(actor) {
            self.commit_changes(actor);
        }
        self.end_change(begins);
    }

    /// Sends ends and blocks, if there are any: whether they begin a change.
    #[inline]
    fn begin_with_ends(&mut self) -> bool {
        let has_ends = self.flows.has_ended() || self.flows.owners.has_changes();
        let begins = has_ends && self.begin_change();
        if has_ends {
            self.send_ends();
        }
        begins
    }

    /// Whether the copies of a flow and its group are as they are, as far as that is seen at a
    /// glance.
    #[inline]
    fn lacks_nothing(&self, actor: u32) -> bool {
        let header = self.flows.header(actor);
        let policy = self.sender.policy_of(header);
        let before = &self.sender.before;
        let is_group_known = match header.group {
            NO_GROUP => true,
            group if before.group == group => !self.runner.is_group_taken(),
            group => policy != Policy::Commit && !self.sender.has_group(group),
        };
        let is_flow_known = || match policy {
            Policy::None | Policy::Store | Policy::StoreCommit => header.copied == 0,
            Policy::Snapshot => header.copied == self.sender.base(),
            Policy::Commit => {
                let is_noted = header.copied == self.sender.base() && before.actor == actor;
                is_noted && before.copied_header == copied_header(header) && !self.differs(actor, header)
            }
        };
        is_group_known && is_flow_known()
    }

    #[inline]
    fn differs(&self, actor: u32, header: &Header) -> bool {
        let (stages, before) = (self.runner.stages(), &self.sender.before);
        let state = self.flows.state_bytes(actor);
        let shared = stages.group_committed();
        let shape = stages.committed(header.chain);
        if header.group == NO_GROUP && !shared.is_empty() {
            let group = state.get(self.flows.group_offset()..).unwrap_or_default();
            if shared.differs(group, &before.group_shadow) {
                return true;
            }
        }
        shape.is_none_or(|shape| shape.differs_from(state, stages.shadow()))
    }

    #[inline(never)]
    fn commit_changes(&mut self, actor: u32) {
        let header = *self.flows.header(actor);
        if header.phase == Phase::Free || header.phase == Phase::Arriving {
            return;
        }
        let sent = self.sender.sent;
        let policy = self.sender.policy_of(&header);
        let mut begins = self.is_group_due(header.group) && self.begin_change();
        if header.group != NO_GROUP {
            self.commit_group(header.group, header.chain, policy);
        }
        if policy == Policy::Commit && self.sender.sent == sent {
            // If anything has changed, it is the flow alone.
            self.end_change(core::mem::take(&mut begins));
        }
        if policy == Policy::Commit {
            self.commit_flow(actor, &header);
        }
        if self.sender.sent != sent {
            let index = mark_of(self.flows.header(actor), actor);
            self.gate.mark(index, self.sender.sent);
        }
        match policy {
            Policy::Commit => {}
            Policy::Snapshot if header.copied == self.sender.base() => {}
            Policy::Snapshot => self.take_snapshot(actor),
            Policy::None | Policy::Store | Policy::StoreCommit => self.withdraw_copy(actor),
        }
        self.end_change(begins);
    }

    /// Whether the copy of a group may lack something.
    fn is_group_due(&self, group: u32) -> bool {
        let is_known = self.sender.has_group(group) && self.sender.before.group == group;
        group != NO_GROUP && (!is_known || self.runner.is_group_taken())
    }

    /// Sends what the copy of a group lacks, as far as it is to have one.
    fn commit_group(&mut self, group: u32, chain: u8, policy: Policy) {
        let has_copy = self.sender.has_group(group);
        let is_watched = self.sender.before.group == group;
        let is_noted = is_watched && self.sender.before.is_group_noted;
        if has_copy && is_watched {
            if !self.runner.is_group_taken() {
                return;
            }
            self.sender.taking |= 1 << (chain % 64);
        }
        if has_copy && is_noted {
            self.send_group_runs(group);
        } else if has_copy || policy == Policy::Commit {
            self.send_group(group);
            self.observe_group(group);
        }
    }

    /// Sends what the copy of a flow lacks.
    fn commit_flow(&mut self, actor: u32, header: &Header) {
        let before = &self.sender.before;
        let is_noted = header.copied == self.sender.base() && before.actor == actor;
        if is_noted && before.copied_header == copied_header(header) {
            self.send_runs(actor, header.chain, header.group == NO_GROUP);
        } else {
            self.send_flow(actor);
            // A later packet of the same call is compared with the state that was sent.
            self.observe_flow(actor);
        }
    }

    // Snapshots.

    /// A packet of a flow has run its chain.
    #[inline(never)]
    fn note_for_snapshot(&mut self, actor: u32) {
        if self.flows.header(actor).copied != self.sender.base() {
            // A flow has its first snapshot when its first packet passes.
            return;
        }
        let (now, copying) = (self.now, self.sender.copying);
        if self.sender.snapshots.note(actor, now, &copying) {
            self.take_snapshot(actor);
        }
    }

    #[cold]
    pub(super) fn take_snapshot(&mut self, actor: u32) {
        let header = *self.flows.header(actor);
        let is_here = matches!(header.phase, Phase::Active | Phase::Waiting) && !self.is_to_be_judged(actor);
        if !is_here || self.sender.policy_of(&header) != Policy::Snapshot {
            return;
        }
        let is_group_sent =
            self.sender.has_group(header.group) || wire::planted::is("snapshot_without_group");
        let lacks_group = header.group != NO_GROUP && !is_group_sent;
        let begins = lacks_group && self.begin_change();
        if lacks_group {
            self.send_group(header.group);
            self.gate.mark(header.group, self.sender.sent);
        }
        self.send_flow(actor);
        self.end_change(begins);
        self.sender.snapshots.taken(actor);
    }

    pub(super) fn withdraw_copy(&mut self, actor: u32) {
        let copied = core::mem::take(&mut self.flows.header_mut(actor).copied);
        if copied != 0 {
            self.sender.forget(copied);
            self.send_copy(Copy::End {
                slot: actor,
                is_group: false,
            });
        }
    }

    pub(super) fn is_to_be_judged(&self, actor: u32) -> bool {
        self.flows.header(actor).phase != Phase::Free && self.runner.is_of_before(actor, &self.flows)
    }
}

/// Whether a flow's first packet is yet to settle it, by which it is sent. A packet that waits for
/// switches has settled its flow, and the flow has a copy.
pub(super) fn is_unsettled(header: &Header) -> bool {
    header.flags & flag::SETTLING != 0 && header.copied == 0
}
