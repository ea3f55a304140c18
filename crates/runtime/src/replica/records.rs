//! A primary's records: of ends and blocks, of groups and flows, whole or as runs of changed bytes.
//!
//! Invariant: a record is counted when it is sent, so that the count names it.

use super::compare::NONE;
use super::policy::Policy;
use super::sender::flow_header;
use crate::flows::actor::{Header, STALE};
use crate::flows::group::GroupKey;
use crate::flows::{Ended, FlowStore};
use crate::parts::Core;
use crate::record::Copy;
use crate::runner::Runner;
use alloc::vec::Vec;

/// Bytes of a state in one record.
const PIECE: usize = 1024;

impl Core {
    /// Says which groups that came have ended since that was said last.
    #[cold]
    pub(super) fn send_over(&mut self) {
        for group in core::mem::take(&mut self.sender.over) {
            self.send_copy(Copy::Over { group, is_over: true });
        }
    }

    /// A flow is about to be sent to the replica in use: the next one has its group before it.
    #[inline]
    fn lead_group_of(&mut self, actor: u32, group: u32) {
        if let Some(next) = &mut self.sender.next {
            next.lead(Some(actor), group, (&self.flows, self.now), &mut self.out);
        }
    }

    pub(super) fn send_blocks_of(&mut self, group: GroupKey, is_claimed: bool) {
        let blocks: Vec<_> = self.flows.owners.of(&group).collect();
        for block in blocks {
            self.send_copy(Copy::Block {
                is_claimed,
                block,
                group,
            });
        }
    }

    pub(super) fn send_copy(&mut self, copy: Copy<'_>) {
        self.send_change();
        if let Some(to) = self.sender.to {
            self.sender.put(to, &copy, &mut self.out);
        }
    }

    /// Ends and blocks, before any record that follows them.
    #[cold]
    pub(super) fn send_ends(&mut self) {
        let begins = self.begin_change();
        if !self.sender.over.is_empty() {
            self.send_over();
        }
        if self.flows.owners.has_changes() {
            for change in self.flows.owners.take_changes() {
                self.send_copy(Copy::Block {
                    is_claimed: change.is_claimed,
                    block: change.block,
                    group: change.group,
                });
            }
        }
        let ended = self.flows.take_ended();
        for over in &ended {
            let (slot, is_group) = match *over {
                Ended::Flow(actor, copied) => {
                    self.sender.forget(copied);
                    (actor, false)
                }
                Ended::Group(group) => {
                    self.sender.set_group(group, 0);
                    (group, true)
                }
                Ended::InGroup(_) | Ended::Rests(..) => continue,
            };
            self.send_copy(Copy::End { slot, is_group });
        }
        let mut sent = None;
        for over in &ended {
            let group = match *over {
                Ended::InGroup(group) => group,
                Ended::Rests(group, chain) => {
                    self.send_rest(group, chain);
                    continue;
                }
                Ended::Flow(..) | Ended::Group(_) => continue,
            };
            if sent != Some(group) && self.sender.before.group != group && self.sender.has_group(group) {
                sent = Some(group);
                self.send_group(group);
                self.gate.mark(group, self.sender.sent);
            }
        }
        self.flows.give_ended(ended);
        self.end_change(begins);
    }

    /// A group rests: its last flow, of this chain, is over. Its copy outlives that, and a group
    /// that no flow had copied gets a copy.
    fn send_rest(&mut self, group: u32, chain: (u8, u8)) {
        let has_copy = self.sender.has_group(group);
        let is_wanted = has_copy || self.sender.policy_of_chain(chain) != Policy::None;
        if !is_wanted || self.flows.groups().resting().until(group).is_none() {
            return;
        }
        // A group that was observed before the chain is sent behind it.
        if has_copy && self.sender.before.group == group {
            return self.send_time_left(group);
        }
        self.send_group(group);
        self.gate.mark(group, self.sender.sent);
    }

    /// How long a group rests, if it does.
    fn send_time_left(&mut self, slot: u32) {
        if let Some(left) = time_left(slot, &self.flows, self.now) {
            self.send_copy(Copy::Rests { slot, left });
        }
    }

    /// Copies a group that has come to rest here, if any chain's flows have copies, or are in a
    /// store.
    pub fn copy_resting(&mut self, group: u32) {
        if self.ledger.is_for_any() {
            self.ledger.note_group(group, true, self.now);
        }
        let mut policies = self.sender.policies.iter();
        if self.sender.is_on() && policies.any(|policy| *policy != Policy::None) {
            self.send_group(group);
        }
    }

    pub(super) fn send_group(&mut self, group: u32) {
        let Some(to) = self.sender.to else {
            return;
        };
        let rests = self.flows.groups().resting().until(group).is_some();
        let is_long = self.flows.groups().state_length() > PIECE;
        let begins = (rests || is_long) && self.begin_change();
        self.send_change();
        let (sender, out) = (&mut self.sender, &mut self.out);
        each_of_group(group, &self.flows, |copy| sender.put(to, &copy, out));
        self.sender.set_group(group, self.sender.base());
        if self.sender.before.group == group {
            self.sender.before.group = NONE;
        }
        self.send_time_left(group);
        self.end_change(begins);
    }

    pub(super) fn send_flow(&mut self, actor: u32) {
        let header = *self.flows.header(actor);
        let Some(state) = self.runner.travelling_of(actor, &self.flows) else {
            return;
        };
        let Some(to) = self.sender.to else {
            return;
        };
        self.lead_group_of(actor, header.group);
        let has_more = state.place(0).len().min(PIECE) < state.length();
        let begins = has_more && self.begin_change();
        self.send_change();
        let (sender, out) = (&mut self.sender, &mut self.out);
        let from = (&self.runner, &self.flows, self.now);
        each_of_flow(actor, &header, from, |copy| sender.put(to, &copy, out));
        self.end_change(begins);
        let base = self.sender.base();
        self.sender.flows += u64::from(header.copied & !STALE != base);
        self.flows.header_mut(actor).copied = base;
    }

    /// Sends what differs of a flow's committed bytes, and of its group's if it is by itself.
    pub(super) fn send_runs(&mut self, actor: u32, chain: u8, is_alone: bool) {
        let mut runs = core::mem::take(&mut self.sender.runs);
        let before = &mut self.sender.before;
        let bytes = self.flows.state_bytes(actor);
        if let Some((shape, shadow)) = self.runner.stages_mut().shadow_of(chain) {
            shape.runs_from(bytes, shadow, &mut runs, |at| at);
        }
        let stages = self.runner.stages();
        if is_alone
            && !stages.group_committed().is_empty()
            && let Some(state) = self.runner.travelling(chain, &self.flows)
        {
            let shared = bytes.get(self.flows.group_offset()..).unwrap_or_default();
            let words = &mut before.group_shadow;
            stages
                .group_committed()
                .runs(shared, words, &mut runs, |at| state.own + at);
        }
        self.send_all_runs(actor, false, &mut runs);
        self.sender.runs = runs;
    }

    pub(super) fn send_group_runs(&mut self, group: u32) {
        let mut runs = core::mem::take(&mut self.sender.runs);
        let shape = self.runner.stages().group_committed();
        let bytes = self.flows.groups().state_bytes(group);
        let words = &mut self.sender.before.group_shadow;
        shape.runs(bytes, words, &mut runs, |at| at);
        self.send_all_runs(group, true, &mut runs);
        self.sender.runs = runs;
    }

    fn send_all_runs(&mut self, slot: u32, is_group: bool, runs: &mut Vec<u8>) {
        if let Some(to) = self.sender.to
            && !runs.is_empty()
        {
            let begins = runs.len() > PIECE && self.begin_change();
            self.send_change();
            for piece in split_runs(runs) {
                self.sender.put_runs(to, (slot, is_group), piece, &mut self.out);
            }
            self.end_change(begins);
        }
        runs.clear();
    }
}

/// How long a group rests, if it does, in nanoseconds from now on.
pub(super) fn time_left(group: u32, flows: &FlowStore, now: u64) -> Option<u64> {
    let until = flows.groups().resting().until(group);
    until.map(|until| until.saturating_sub(now))
}

/// The records of a group: all of its bytes.
#[inline]
pub(super) fn each_of_group(group: u32, flows: &FlowStore, mut each: impl FnMut(Copy<'_>)) {
    let bytes = flows.groups().state_bytes(group);
    let mut pieces = bytes.chunks(PIECE);
    each(Copy::Group {
        slot: group,
        group: flows.groups().key(group),
        length: bytes.len() as u16,
        piece: pieces.next().unwrap_or_default(),
    });
    pieces.for_each(|piece| each(Copy::More(piece)));
}

/// The records of a flow: all of its bytes.
#[inline]
pub(super) fn each_of_flow(
    actor: u32,
    header: &Header,
    (runner, flows, now): (&Runner, &FlowStore, u64),
    mut each: impl FnMut(Copy<'_>),
) {
    let Some(state) = runner.travelling_of(actor, flows) else {
        return;
    };
    let mut sent = 0;
    let mut is_first = true;
    while is_first || sent < state.length() {
        let place = state.place(sent);
        let place = place.start..place.end.min(place.start + PIECE);
        let piece = flows.state_bytes(actor).get(place).unwrap_or_default();
        sent += piece.len();
        each(match is_first {
            true => Copy::Flow {
                slot: actor,
                group: header.group,
                length: state.length() as u16,
                generation: header.generation,
                flow_header: flow_header(header, *flows.reply_key(actor), now),
                piece,
            },
            false => Copy::More(piece),
        });
        if piece.is_empty() {
            break;
        }
        is_first = false;
    }
}

/// Runs in records of bounded length.
fn split_runs(runs: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut rest = runs;
    core::iter::from_fn(move || {
        let mut length = 0;
        while let Some(run) = rest.get(length + 2) {
            let next = length + 3 + usize::from(*run);
            if next > PIECE && length > 0 {
                break;
            }
            length = next.min(rest.len());
        }
        let (piece, left) = rest.split_at(length);
        rest = left;
        (!piece.is_empty()).then_some(piece)
    })
}
