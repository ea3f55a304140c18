//! Packets of groups that move: which are kept, which are handed over, and when what was kept is processed.
//!
//! ```text
//!   of no flow here ─► its group moves? ─► kept, handed over, or as ever
//!   of a flow that waits or is pinned ───► the same, or behind its call
//!   the group is here ─► what was kept, in the order of [`Class`], then what has become idle by it is said
//! ```
//!
//! Invariants: no more are kept than [`Settings::kept_max`](crate::Settings::kept_max); beyond is a counted drop (`moving_full`).
//!
//! Not here: whose packets they are (`protocols::ownership` says what to do with each).

use super::super::Runtime;
use super::telling::Word;
use super::{Class, Kept};
use crate::env::Port;
use crate::flows::actor::{Change, Phase};
use crate::flows::group::GroupKey;
use crate::stats::DropReason;
use alloc::vec::Vec;
use protocols::ownership::{Phase as Part, Take};
use wire::{FlowKey, PacketBox, planted};

impl<P: Port> Runtime<P> {
    /// What becomes of a packet that is of no flow here, while groups move; `None` if it was seen to.
    #[cold]
    pub(in super::super) fn divert(
        &mut self,
        packet: PacketBox,
        key: &FlowKey,
        link: usize,
    ) -> Option<PacketBox> {
        // By what it was routed, and what it would belong to: they may be two.
        let group = self.group_of(&packet, *key).hash(&self.settings.seed);
        let routed = packet.hash();
        let mut packet = packet;
        for hash in [routed, group] {
            if let Some(id) = self.moves.at(hash) {
                packet = self.divert_from(id, packet, link as u8)?;
            }
        }
        Some(packet)
    }

    fn divert_from(&mut self, id: u32, packet: PacketBox, home: u8) -> Option<PacketBox> {
        let Some(moving) = self.moves.moving(id) else {
            return Some(packet);
        };
        match (moving.machine.phase(), moving.machine.take(home)) {
            (Part::Returning { away, .. }, _) => {
                let class = if away.has(home) {
                    Class::Behind
                } else {
                    Class::Before
                };
                self.keep(id, packet, home, class);
            }
            (_, Take::Keep) => self.keep(id, packet, home, Class::Behind),
            // A flow would begin: not before the move is over.
            (
                Part::Opening { .. }
                | Part::Canceling { .. }
                | Part::Rerouting { .. }
                | Part::Settling { .. },
                _,
            ) if !planted::is("flow_begins_while_moving") => self.keep(id, packet, home, Class::Before),
            (_, Take::PassOn(to)) => self.hand_over(id, to.0, home, packet),
            _ => return Some(packet),
        }
        None
    }

    /// What becomes of a packet of a flow that waits, or is pinned; the packet, if it is to queue behind a call.
    #[cold]
    pub(in super::super) fn divert_known(
        &mut self,
        actor: u32,
        packet: PacketBox,
        link: usize,
    ) -> Option<PacketBox> {
        let phase = self.flows.header(actor).phase;
        let key = self.flows.group_key(actor);
        let moving = match self.moves.is_idle() {
            true => None,
            false => self.moves.at(key.hash(&self.settings.seed)),
        };
        let Some(id) = moving else {
            if phase == Phase::Waiting {
                return Some(packet);
            }
            debug_assert!(false, "a pinned flow's group moves");
            self.drop_packet(packet, DropReason::MovingFull);
            return None;
        };
        let home = link as u8;
        let moving = self.moves.moving(id)?;
        match (moving.machine.phase(), moving.machine.take(home)) {
            (Part::Returning { away, .. }, _) => {
                let class = if away.has(home) {
                    Class::Behind
                } else {
                    Class::Before
                };
                self.keep(id, packet, home, class);
            }
            (_, Take::PassOn(to)) => self.hand_over(id, to.0, home, packet),
            _ if phase == Phase::Waiting => return Some(packet),
            _ => self.keep(id, packet, home, Class::Before),
        }
        None
    }

    pub(super) fn keep(&mut self, id: u32, packet: PacketBox, home: u8, class: Class) {
        let is_full = self.moves.kept >= self.settings.kept_max as usize;
        let Some(moving) = self.moves.moving(id) else {
            return self.drop_packet(packet, DropReason::MovingFull);
        };
        if is_full {
            moving.dropped += 1;
            return self.drop_packet(packet, DropReason::MovingFull);
        }
        moving.kept.push(Kept { packet, home, class });
        self.moves.kept += 1;
    }

    /// Processes what was kept for a group, in order, and then says what has become idle by it.
    pub(super) fn process_kept(&mut self, kept: Vec<Kept>, group: GroupKey, aliases: Vec<GroupKey>) {
        self.moves.kept -= kept.len();
        let mut kept = kept;
        if planted::is("kept_in_wrong_class") {
            kept.sort_by_key(|kept| core::cmp::Reverse(kept.class));
        } else {
            kept.sort_by_key(|kept| kept.class);
        }
        let mut doubtful = aliases;
        doubtful.push(group);
        self.moves.draining = Some(doubtful);
        let routed = group.hash(&self.settings.seed);
        for Kept { mut packet, home, .. } in kept {
            // It is here because of this group, whose route leads here: no other group may begin with it, wherever that has gone.
            packet.set_hash(routed);
            let Some((mut key, way)) = FlowKey::of(&packet) else {
                self.drop_packet(packet, DropReason::FrameMalformed);
                continue;
            };
            if packet.turns() > 0 && !planted::is("kept_packet_not_turned") {
                key = key.turned(way);
            }
            let hash = key.hash(&self.settings.seed);
            self.meet_again(packet, key, hash, way, usize::from(home));
        }
        self.settle_all();
        let doubtful = self.moves.draining.take().unwrap_or_default();
        self.tell_keys(Word::Idle, doubtful, self.all_switches());
    }

    /// Pins the flows of a group that is called back: all its packets are kept until it is here again.
    pub(super) fn pin(&mut self, id: u32) {
        let now = self.moving_time();
        let Some(moving) = self.moves.moving(id) else {
            return;
        };
        if !core::mem::replace(&mut moving.is_pinned, true) {
            moving.deadline = now.saturating_add(moving.again);
            self.moves.pinned += 1;
        }
        let Some(moving) = self.moves.moving(id) else {
            return;
        };
        let (group, actors) = (moving.group, core::mem::take(&mut moving.actors));
        for actor in &actors {
            if self.flows.header(*actor).phase == Phase::Active && self.flows.group_key(*actor) == group {
                self.flows.header_mut(*actor).change(Change::Leave);
            }
        }
        if let Some(moving) = self.moves.moving(id) {
            moving.actors = actors;
        }
    }

    pub(super) fn unpin(&mut self, actors: &[u32], group: GroupKey) {
        for actor in actors {
            if self.flows.header(*actor).phase == Phase::Leaving && self.flows.group_key(*actor) == group {
                self.flows.header_mut(*actor).change(Change::Return);
            }
        }
    }
}
