//! Groups on their way when a switch goes that they have to do with.
//!
//! ```text
//!   a switch goes:   it has answered all that it owed, since nothing comes from it any more
//!                    (Rerouted at the source; Drained, or Moved, at the target)
//!   it begins again: the source says again where the group's packets go, and that nothing of it is behind
//! ```
//!
//! Two links have no common order: such a switch may hear the source's messages about the group,
//! its routes and blocks, after all those of the target, and would keep it for ever. So the source
//! has all switches *doubt* the group's keys and blocks at the end of a move of which a switch was
//! told late. The same where the target has answered in a switch's stead, or met a switch that
//! begins again (`InstallStats::is_unclear`). Each switch then asks the runtime that it thinks has
//! them. By then that runtime has them, or knows that it has not; if it is moving the group in its
//! turn, it answers when that is over.
//!
//! ```text
//!   source: on its way ─told late─► over ─► RouteSuspect, BlockSuspect ─► switch asks the holder ─► has it: silence
//!                                                                                       └─► has not: GroupEmpty, BlockSuspect ─► forgotten
//! ```
//!
//! Groups on their way are told first, and only so: all else is told as being here, and as staying
//! here as far as is known.
//!
//! A group may be called back because its home is gone, or its home may go when it is called back:
//! then no home tells the target, so the source does (`Back`). The target acts on that when it has
//! seen the end of that switch, too, and so has all its packets. If it has seen another switch
//! begin there, the source tells that one, which tells the target.

use super::{Moves, TAKEN_AGAIN};
use crate::flows::group::GroupKey;
use crate::message::Message;
use crate::parts::Core;
use alloc::vec::Vec;
use protocols::ownership::{Phase as Part, Switches};

impl Moves {
    /// A switch is gone, and all that it sent has been heard.
    #[cold]
    pub(crate) fn switch_gone(&mut self, core: &mut Core, switch: u8) {
        self.barred.admit_all();
        for id in 0..self.all.len() as u32 {
            self.answer_for(core, id, switch);
        }
        // Blocks that it would have returned: it knows them no more.
        let returned: Vec<_> = self.returned.keys().copied().collect();
        for block in returned {
            self.handle_block_returned(core, block, usize::from(switch));
        }
    }

    /// Whether no group is on its way, no order waits, and nothing is to be said.
    pub(crate) fn finished_moving_all(&self, core: &Core) -> bool {
        self.is_idle()
            && self.orders.is_idle()
            && self.has_said_all()
            && self.returned.is_empty()
            && core.out.is_empty_for_runtimes()
    }

    /// How many places moves have.
    pub(crate) fn moving_places(&self) -> u32 {
        self.all.len() as u32
    }

    /// Tells a switch that begins again of a group that is on its way from here, or has just come.
    /// No switch has been told that its flows are over: so its routes are told whether it has flows
    /// or not.
    #[cold]
    pub(crate) fn tell_move(&mut self, core: &mut Core, switch: u8, id: u32) {
        let (me, now) = (self.me(core), self.moving_time(core));
        let Some(moving) = self.moving(id) else {
            return;
        };
        let (group, epoch, part) = (moving.group, moving.machine.latest(), moving.machine.phase());
        let reroute = match part {
            Part::Opening { .. } | Part::Canceling { .. } | Part::Announcing { .. } => None,
            Part::Rerouting { to, .. } | Part::Quiescing { to } | Part::Forwarding { to, .. } => {
                Some((me, to))
            }
            Part::Returning { peer, .. } => Some((peer, me)),
            Part::Buffering { .. } => {
                // Its source may be kept from this switch until the move is over, and then has
                // nothing to tell it.
                moving.install_stats.is_unclear = true;
                return;
            }
            _ => return,
        };
        // An heir may have a group that is taken back: it has no route here before that is known.
        let is_here = !moving.machine.is_taken_back();
        if !is_here {
            (moving.again, moving.deadline) = (TAKEN_AGAIN, now.saturating_add(TAKEN_AGAIN));
        }
        let reply_keys = moving.reply_keys.clone();
        let blocks: Vec<_> = core.flows.owners.of(&group).collect();
        for key in reply_keys.into_iter().chain([group]) {
            if is_here && self.is_home(core, &key, switch) {
                core.out.send(usize::from(switch), &Message::Routed(key));
                if let Part::Announcing { .. } = part {
                    core.out
                        .send(usize::from(switch), &Message::Installed(key, epoch));
                }
            }
        }
        for block in &blocks {
            let message = match reroute {
                None => Message::BlockClaimed(*block, group),
                Some(_) => Message::BlockTentative(*block, group),
            };
            core.out.send(usize::from(switch), &message);
        }
        if let Some((from, to)) = reroute {
            // It may be there, and over, before the switch hears of this.
            if let Some(moving) = self.moving(id) {
                moving.is_resynced_late = true;
                moving.blocks_tentative.extend(blocks);
            }
            self.reroute(core, id, Switches::NONE.with(switch), from, to, epoch);
        }
        if let Part::Forwarding { to, .. } = part {
            core.out
                .send(usize::from(switch), &Message::DrainMarker(group, to, epoch));
        }
    }

    /// Whether a switch that begins again is told of this key with the group that is on its way
    /// from here.
    pub(crate) fn is_resynced_with_move(&mut self, core: &mut Core, key: &GroupKey) -> bool {
        let id = self.at(key.hash(&core.settings.seed));
        let moving = id.and_then(|id| self.moving(id));
        moving.is_some_and(|moving| {
            matches!(
                moving.machine.phase(),
                Part::Opening { .. }
                    | Part::Canceling { .. }
                    | Part::Rerouting { .. }
                    | Part::Quiescing { .. }
                    | Part::Forwarding { .. }
                    | Part::Returning { .. }
            )
        })
    }

    /// Groups on their way, for tests.
    #[cfg(test)]
    pub fn moves_under_way(&self) -> Vec<(crate::group::GroupKey, Part)> {
        let all = self.all.iter().flatten();
        all.map(|moving| (moving.group, moving.machine.phase())).collect()
    }
}
