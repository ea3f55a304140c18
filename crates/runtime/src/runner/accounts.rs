//! Effects of calls that change no packet's way: blocks of ports, flows that a function wants
//! ended, packets that are not to be.
//!
//! Not here: effects on packets (`verdict`).

use super::Runner;
use crate::flows::FlowStore;
use crate::flows::group::GroupKey;
use crate::message::Message;
use crate::outbox::Outbox;
use crate::stats::DropReason;
use nf::cx::{BlockEffect, RawCx, effect};
use protocols::ownership::RuntimeId;

impl Runner {
    /// Routes for blocks change here and, by message, at the switches.
    #[inline]
    pub(super) fn apply_blocks(
        &mut self,
        cx: &mut RawCx,
        actor: u32,
        flows: &mut FlowStore,
        out: &mut Outbox,
    ) {
        if cx.effects & effect::BLOCKS != 0 {
            cx.effects &= !effect::BLOCKS;
            apply_each_block(cx, flows.group_key(actor), flows, out);
        }
    }

    /// Effects of a call without a packet: blocks change hands; there is no packet at hand to emit
    /// others beside.
    #[inline]
    pub(super) fn apply_block_effects(
        &mut self,
        cx: &mut RawCx,
        actor: u32,
        flows: &mut FlowStore,
        out: &mut Outbox,
    ) {
        if cx.effects != 0 {
            self.apply_block_effects_of(cx, flows.group_key(actor), flows, out);
        }
    }

    /// The same of a call that has no flow at hand either, but a group.
    pub(super) fn apply_block_effects_of(
        &mut self,
        cx: &mut RawCx,
        group: GroupKey,
        flows: &mut FlowStore,
        out: &mut Outbox,
    ) {
        if cx.effects & effect::BLOCKS != 0 {
            cx.effects &= !effect::BLOCKS;
            apply_each_block(cx, group, flows, out);
        }
        self.recalls |= core::mem::take(&mut cx.effects) & effect::RECALL != 0;
        self.forget_let_go(cx, out);
        for (packet, _) in core::mem::take(&mut cx.emitted) {
            self.emitted += 1;
            out.drop_packet(packet, DropReason::EmitOverflow);
        }
    }
}

fn apply_each_block(cx: &mut RawCx, group: GroupKey, flows: &mut FlowStore, out: &mut Outbox) {
    for change in core::mem::take(&mut cx.blocks) {
        match change {
            BlockEffect::Claimed(block) => {
                flows.borrowed.spend(block);
                if !flows.owners.claim(block, group) {
                    // Another runtime has claimed it for its group, and it was free here: the
                    // function knows. Switches do the same.
                    out.reject();
                    flows.owners.release(block);
                    flows.owners.claim(block, group);
                }
                out.announce(Message::BlockClaimed(block, group));
            }
            BlockEffect::Released(block) => {
                flows.owners.release(block);
                out.announce(Message::BlockReleased(block));
            }
            BlockEffect::Returned(block, runtime) => {
                flows.owners.release(block);
                let home = RuntimeId(runtime);
                flows.parting.part(Message::BlockKept(block, home), out);
            }
        }
    }
}
