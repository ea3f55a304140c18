//! Packets of groups that move: which are kept, which are handed over, and when kept ones are
//! processed.
//!
//! ```text
//!   of no flow here ─► its group moves? ─► kept, handed over, or as ever
//!   of a flow that waits or is pinned ───► the same, or behind its call
//!   the group is here ─► kept packets, in the order of [`Class`], then keys that have become idle by them are said
//! ```
//!
//! Invariants: no more are kept than [`Settings::kept_max`](crate::Settings::kept_max); beyond is a
//! counted drop (`moving_full`).
//!
//! Not here: whose packets they are (`protocols::ownership` says what to do with each).

use super::Moves;
use super::{Buffered, Class};
use crate::flows::actor::{Change, Phase};
use crate::flows::group::GroupKey;
use crate::parts::Core;
use crate::record::Record;
use crate::stats::DropReason;
use alloc::vec::Vec;
use protocols::ownership::{Phase as Part, Take};
use wire::{FlowKey, PacketBox, PacketList, planted};

impl Moves {
    /// Takes a packet that is of no flow here, while groups move; `None` if it was seen to.
    #[cold]
    pub(crate) fn divert(
        &mut self,
        core: &mut Core,
        packet: PacketBox,
        key: &FlowKey,
        link: usize,
    ) -> Option<PacketBox> {
        // The group it was routed by, and the group it would belong to: they may be two.
        let group = core.group_of(&packet, *key).hash(&core.settings.seed);
        let routed = packet.hash();
        let mut packet = packet;
        for hash in [routed, group] {
            if let Some(id) = self.at(hash) {
                packet = self.divert_from(core, id, packet, link as u8)?;
            }
        }
        Some(packet)
    }

    fn divert_from(&mut self, core: &mut Core, id: u32, packet: PacketBox, home: u8) -> Option<PacketBox> {
        let Some(moving) = self.moving(id) else {
            return Some(packet);
        };
        match (moving.machine.phase(), moving.machine.take(home)) {
            (Part::Returning { away, .. }, _) => {
                let class = if away.has(home) {
                    Class::Behind
                } else {
                    Class::Before
                };
                self.keep(core, id, packet, home, class);
            }
            (_, Take::Keep) => self.keep(core, id, packet, home, Class::Behind),
            // A flow would begin: not before the move is over.
            (
                Part::Opening { .. }
                | Part::Canceling { .. }
                | Part::Rerouting { .. }
                | Part::Quiescing { .. },
                _,
            ) if !planted::is("flow_begins_while_moving") => self.keep(core, id, packet, home, Class::Before),
            (_, Take::PassOn(to)) => self.hand_over(core, id, to.0, home, packet),
            _ => return Some(packet),
        }
        None
    }

    /// Takes a packet of a flow that waits, or is pinned; the packet, if it is to queue behind a
    /// call.
    #[cold]
    pub(crate) fn divert_known(
        &mut self,
        core: &mut Core,
        actor: u32,
        packet: PacketBox,
        link: usize,
    ) -> Option<PacketBox> {
        let phase = core.flows.header(actor).phase;
        let key = core.flows.group_key(actor);
        let moving = match self.is_idle() {
            true => None,
            false => self.at(key.hash(&core.settings.seed)),
        };
        let Some(id) = moving else {
            if phase == Phase::Waiting {
                return Some(packet);
            }
            debug_assert!(false, "a pinned flow's group moves");
            core.out.drop_packet(packet, DropReason::MovingFull);
            return None;
        };
        let home = link as u8;
        let moving = self.moving(id)?;
        match (moving.machine.phase(), moving.machine.take(home)) {
            (Part::Returning { away, .. }, _) => {
                let class = if away.has(home) {
                    Class::Behind
                } else {
                    Class::Before
                };
                self.keep(core, id, packet, home, class);
            }
            (_, Take::PassOn(to)) => self.hand_over(core, id, to.0, home, packet),
            _ if phase == Phase::Waiting => return Some(packet),
            _ => self.keep(core, id, packet, home, Class::Before),
        }
        None
    }

    pub(crate) fn keep(&mut self, core: &mut Core, id: u32, packet: PacketBox, home: u8, class: Class) {
        let is_full = self.buffered >= core.settings.kept_max as usize;
        let Some(moving) = self.moving(id) else {
            return core.out.drop_packet(packet, DropReason::MovingFull);
        };
        if is_full {
            moving.dropped += 1;
            return core.out.drop_packet(packet, DropReason::MovingFull);
        }
        moving.buffered.push(Buffered { packet, home, class });
        self.buffered += 1;
    }

    /// Hands out all packets that are kept: the runtime fails.
    pub(crate) fn take_all(&mut self, lost: &mut PacketList) {
        for moving in self.all.iter_mut().flatten() {
            for buffered in core::mem::take(&mut moving.buffered) {
                lost.push(buffered.packet);
            }
        }
    }

    /// Pins the flows of a group that is called back: all its packets are kept until it is here
    /// again.
    pub(crate) fn pin(&mut self, core: &mut Core, id: u32) {
        let now = self.moving_time(core);
        let Some(moving) = self.moving(id) else {
            return;
        };
        if !core::mem::replace(&mut moving.is_pinned, true) {
            moving.deadline = now.saturating_add(moving.again);
            self.pinned += 1;
        }
        let Some(moving) = self.moving(id) else {
            return;
        };
        let (group, actors) = (moving.group, core::mem::take(&mut moving.actors));
        for actor in &actors {
            if core.flows.header(*actor).phase == Phase::Active && core.flows.group_key(*actor) == group {
                core.flows.header_mut(*actor).change(Change::Leave);
            }
        }
        if let Some(moving) = self.moving(id) {
            moving.actors = actors;
        }
    }

    pub(crate) fn unpin(&mut self, core: &mut Core, actors: &[u32], group: GroupKey) {
        for actor in actors {
            if core.flows.header(*actor).phase == Phase::Leaving && core.flows.group_key(*actor) == group {
                core.flows.header_mut(*actor).change(Change::Return);
            }
        }
        core.restore_copies(group, actors);
    }

    /// Hands one packet over, late.
    pub(crate) fn hand_over(&mut self, core: &mut Core, id: u32, to: u16, home: u8, packet: PacketBox) {
        let Some(group) = self.moving(id).map(|moving| moving.group) else {
            return core.out.drop_packet(packet, DropReason::MovingFull);
        };
        core.out.send_record(
            to,
            &Record::Handed {
                group,
                home,
                count: 1,
            },
        );
        self.send_packet(core, to, packet);
    }

    /// Hands over the kept packets, from one home or from all, in order.
    pub(crate) fn hand_over_kept(&mut self, core: &mut Core, id: u32, to: u16, home: Option<u8>) {
        let Some(moving) = self.moving(id) else {
            return;
        };
        let (group, order) = (moving.group, moving.order);
        let all = core::mem::take(&mut moving.buffered);
        let (mut going, staying): (Vec<Buffered>, Vec<Buffered>) = all
            .into_iter()
            .partition(|buffered| home.is_none_or(|home| home == buffered.home));
        moving.buffered = staying;
        // The target of a recalled group has kept what it was handed, too: that came first.
        going.sort_by_key(|buffered| buffered.class != Class::Handed);
        self.buffered -= going.len();
        if let Some(receipt) = self.orders.receipt(order) {
            receipt.handed_on += going.len() as u64;
        }
        // A word for as many as come by one home, one behind the other.
        let runs: Vec<u16> = going
            .chunk_by(|one, next| one.home == next.home)
            .flat_map(|run| run.chunks(u16::MAX as usize))
            .map(|run| run.len() as u16)
            .collect();
        let (mut runs, mut left) = (runs.into_iter(), 0);
        for Buffered { packet, home, .. } in going {
            if planted::is("kept_packet_lost") {
                core.out.drop_packet(packet, DropReason::HeldAtEnd);
                continue;
            }
            if left == 0 {
                left = runs.next().unwrap_or(1);
                core.out.send_record(
                    to,
                    &Record::Handed {
                        group,
                        home,
                        count: left,
                    },
                );
            }
            left -= 1;
            self.send_packet(core, to, packet);
        }
    }

    pub(super) fn send_packet(&mut self, core: &mut Core, to: u16, packet: PacketBox) {
        self.packets_moved[1] += 1;
        core.out.send_packet(to, packet);
    }
}
