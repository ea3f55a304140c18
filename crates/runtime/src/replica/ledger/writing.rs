//! Entries of the ledger: a group as it is now, a flow as it is now.
//!
//! Invariant: no flow is written before its group has what the flow knows.
//!
//! Not here: when an entry is written ([`super`], [`super::through`]), and its bytes
//! ([`super::form`]).

use super::form::{self, Stamp};
use crate::flows::actor::{NO_GROUP, Phase};
use crate::parts::Core;
use crate::record::NO_DEADLINE;

impl Core {
    fn stamp(&self) -> Stamp {
        Stamp {
            clock: self.now,
            wall: self.ledger.wall.saturating_add(self.now),
        }
    }

    pub(super) fn store_group(&mut self, index: u32) -> bool {
        let Some(known) = self.ledger.groups.get_mut(index as usize) else {
            return true;
        };
        let rests_until = self.flows.groups().resting().until(index);
        let is_there = rests_until.is_some() || self.flows.groups().flows(index) > 0;
        if !core::mem::take(&mut known.is_changed) || !is_there {
            return true;
        }
        let (is_coming, rests) = (
            known.is_coming,
            rests_until.map(|until| until.saturating_sub(self.now)),
        );
        let stamp = self.stamp();
        let Some(entries) = &self.runner.stages().ledger else {
            return true;
        };
        let groups = self.flows.groups();
        let (key, state) = (groups.key(index), groups.state_bytes(index));
        let group = form::Group {
            is_coming,
            rests,
            state,
            blocks: &[],
        };
        let owners = &self.flows.owners;
        let layout = self.ledger.group_layout;
        let is_written = self.ledger.write(entries, true, index, |into| {
            form::write_group(into, layout, stamp, key, &group, owners.of(&key));
        });
        if let Some(known) = self.ledger.groups.get_mut(index as usize) {
            known.is_changed = !is_written;
            known.is_behind &= !is_written;
        }
        is_written
    }

    pub(super) fn store_flow(&mut self, actor: u32) -> bool {
        let header = *self.flows.header(actor);
        // Where nothing is written below, its next packet is to have it written.
        self.flows.header_mut(actor).stored = 0;
        // A flow on its way from here is the target's soon. A flow of the configuration before is
        // noted when it was asked.
        let is_here = matches!(header.phase, Phase::Active | Phase::Waiting | Phase::Leaving);
        if !is_here || self.is_to_be_judged(actor) {
            return true;
        }
        if !self.ledger.has_policy(header.chain) {
            if let Some(entries) = &self.runner.stages().ledger {
                self.ledger.remove(entries, false, actor);
            }
            return true;
        }
        let is_group_behind = header.group != NO_GROUP
            && !crate::replica::is_broken("group is stored before its flow")
            && !self.store_group(header.group);
        if is_group_behind {
            return false;
        }
        let Some(travelling) = self.runner.travelling(header.chain, &self.flows) else {
            return true;
        };
        let layout = self.ledger.layouts.get(usize::from(header.chain)).copied();
        let (Some(entries), Some(layout)) = (&self.runner.stages().ledger, layout) else {
            return true;
        };
        let stamp = self.stamp();
        let bytes = self.flows.state_bytes(actor);
        let own = bytes.get(..travelling.own).unwrap_or_default();
        let (at, length) = travelling.group;
        let shared = bytes.get(at..at + length).unwrap_or_default();
        let mut flow_header =
            crate::replica::sender::flow_header(&header, *self.flows.reply_key(actor), self.now);
        if flow_header.time_left != NO_DEADLINE {
            let left = flow_header.time_left.saturating_add(self.ledger.lazy.margin());
            flow_header.time_left = left.min(NO_DEADLINE - 1);
        }
        let group = self.flows.group_key(actor);
        let is_written = self.ledger.write(entries, false, actor, |into| {
            form::write_flow(into, layout, stamp, group, &flow_header, [own, shared]);
        });
        if let Some(known) = self.ledger.flows.get_mut(actor as usize) {
            known.is_behind &= !is_written;
        }
        if is_written {
            self.ledger.lazy.forget(actor);
            let (bits, to) = self.ledger.lazy.marks(header.deadline, false);
            let header = self.flows.header_mut(actor);
            (header.stored, header.stored_to) = (bits, to);
        }
        is_written
    }
}
