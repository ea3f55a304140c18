//! Effects that moves leave to the worker: applied in one place, before the next packet or message.
//!
//! Not here: how a group moves ([`crate::mobility`]).

use super::Runtime;
use crate::env::Port;
use crate::mobility::{Buffered, Effect, KeyMessage};
use crate::stats::DropReason;
use alloc::vec::Vec;
use wire::{FlowKey, planted};

impl<P: Port> Runtime<P> {
    /// Applies what moves have left to do.
    #[inline]
    pub(super) fn apply_moves(&mut self) {
        while let Some(effect) = self.moves.next_effect() {
            match effect {
                Effect::BeginAgain(actors) => self.begin_again(&actors),
                Effect::Process { buffered, keys } => self.process_buffered(buffered, keys),
            }
        }
    }

    /// Processes the packets kept for a group, in order, and then says which keys have become idle
    /// by that. Of its keys the group's own is the last.
    #[cold]
    fn process_buffered(&mut self, mut buffered: Vec<Buffered>, keys: Vec<crate::flows::group::GroupKey>) {
        self.moves.note_processed(buffered.len());
        if planted::is("kept_in_wrong_class") {
            buffered.sort_by_key(|buffered| core::cmp::Reverse(buffered.class));
        } else if !planted::is("handed_not_first") {
            buffered.sort_by_key(|buffered| buffered.class);
        }
        let routed = keys
            .last()
            .map_or(0, |group| group.hash(&self.core.settings.seed));
        self.core.silent.begin_draining(keys);
        for Buffered { mut packet, home, .. } in buffered {
            // It is here because of this group, whose route leads here: no other group may begin
            // with it, wherever that has gone.
            packet.set_hash(routed);
            let Some((mut key, way)) = FlowKey::of(&packet) else {
                self.core.out.drop_packet(packet, DropReason::FrameMalformed);
                continue;
            };
            if packet.hairpins() > 0 && !planted::is("kept_packet_not_turned") {
                key = key.turned(way);
            }
            let hash = key.hash(&self.core.settings.seed);
            self.meet_again(packet, key, hash, way, usize::from(home));
        }
        self.core.learn_reply_keys();
        let doubtful = self.core.silent.end_draining();
        if self.core.sender.is_on() {
            return doubtful
                .into_iter()
                .for_each(|key| self.core.end_route_behind_copies(key));
        }
        self.moves
            .send_to_all(&mut self.core, KeyMessage::GroupEmpty, doubtful);
    }
}
