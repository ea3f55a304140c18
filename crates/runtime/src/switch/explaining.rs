//! Where a packet would go, without one being sent: for an operator's question.
//!
//! ```text
//!   frame ─► parsed, its side told ─► chain by rule
//!                                  ─► group ─► reply key announced? ─► the route's runtime
//!                                            ─► home elsewhere?     ─► that switch knows
//!                                            ─► route?              ─► its runtime
//!                                            ─► the policy's choice, which is not made
//! ```
//!
//! Invariant: packets meet later the same state as if nothing had been asked. The frame is put into
//! a buffer of this switch's pool, and the buffer goes back.
//!
//! Not here: the functions' verdicts on the packet.

use super::{Switch, home_of};
use crate::Port;
use crate::chain::Plan;
use crate::stats::DropReason;
use nf::Side;
use protocols::ownership::Epoch;
use wire::packet::flag;
use wire::{LinkType, PacketBox};

/// Where a packet would go.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Whither {
    /// From which side it is taken to come.
    pub side: Side,
    /// Whether that was neither asked nor told by a port that tells sides by addresses.
    pub is_side_assumed: bool,
    /// Whether both ends are inside.
    pub is_inside_to_inside: bool,
    /// The chain whose rule matches, by its place in the plan.
    pub chain: Option<u8>,
    /// The home switch of its group.
    pub home: u8,
    /// Which runtime it goes to, and by what.
    pub route: Route,
    /// Which runtime gave its group away last, and in which change of hands; `None` if the group
    /// has not moved since this switch knows of it.
    pub moved: Option<(u16, Epoch)>,
}

/// Which runtime a packet goes to, and by what.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Route {
    /// A flow's reply key leads there.
    ReplyKey(u16),
    /// Its group is there.
    Group(u16),
    /// Its group is at none; the policy would choose this one.
    Policy(u16),
    /// There is no runtime to choose.
    None,
    /// Another switch is its home, and knows.
    AtHome,
}

impl<P: Port, L: Port> Switch<P, L> {
    /// The chains and functions by which it sends packets on.
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// Where a frame would go that came in now; from that side, or from the side that a port tells
    /// by its address, or from inside.
    ///
    /// # Errors
    /// For which reason it would be dropped, or that no buffer is free.
    pub fn explain(&mut self, frame: &[u8], side: Option<Side>) -> Result<Whither, DropReason> {
        let Some(mut packet) = self.local.pool.take() else {
            return Err(DropReason::RuntimeBusy);
        };
        let found = self.whither(&mut packet, frame, side);
        self.local.pool.give(packet);
        found
    }

    fn whither(
        &self,
        packet: &mut PacketBox,
        frame: &[u8],
        side: Option<Side>,
    ) -> Result<Whither, DropReason> {
        if !packet.set_frame(frame, LinkType::Ethernet) {
            return Err(DropReason::FrameTruncated);
        }
        packet.clear_hairpins();
        wire::parse(packet)?;
        let by_address = (0..self.ports.len()).find(|index| self.ports.inside(*index).is_some());
        let told = || by_address.map_or(Side::Inside, |index| self.ports.side(index, packet));
        let is_side_assumed = side.is_none() && by_address.is_none();
        let side = side.unwrap_or_else(told);
        packet.set_side(side);
        self.plan.judge_icmp_error(packet);
        if let Some(index) = by_address
            && side == Side::Inside
        {
            self.judge_inside_to_inside(index, packet);
        }
        let lane = self.identify(packet).ok_or(DropReason::FrameMalformed)?;
        let home = home_of(lane.hash, self.settings.switches);
        let at = |route| u16::try_from(self.directory.runtime(route)).unwrap_or(u16::MAX);
        let second = lane.reply.and_then(|key| self.directory.find(&key));
        let mut moved = second.and_then(|route| self.directory.moved(route));
        let route = match second {
            Some(route) => Route::ReplyKey(at(route)),
            None if home != self.settings.switch => Route::AtHome,
            None => match self.directory.find_hashed(lane.hash, &lane.group) {
                Some(route) => {
                    moved = self.directory.moved(route);
                    Route::Group(at(route))
                }
                None => {
                    let groups = |runtime| self.directory.groups(runtime);
                    let chosen = self.choice.would_choose(lane.hash, groups);
                    chosen.map_or(Route::None, Route::Policy)
                }
            },
        };
        Ok(Whither {
            side,
            is_side_assumed,
            is_inside_to_inside: packet.has(flag::INSIDE_TO_INSIDE),
            chain: self.plan.classify(packet),
            home,
            route,
            moved,
        })
    }
}
