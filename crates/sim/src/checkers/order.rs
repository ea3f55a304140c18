//! Invariant 2: packets of a flow, in one direction and by one port, leave in the order in which
//! they entered.
//!
//! The packets that leave of a lane must be a subsequence of those that entered. A packet that the
//! network doubled enters twice and may leave twice. When a clock jumps or the cluster begins
//! again, flows end with packets on their way, and packets that come then are another flow's: order
//! is asked for among packets that entered since the last such moment, and among those that entered
//! before. A load balancer's flow that begins again then may be refused, and begin once more,
//! elsewhere, since its server still answers earlier packets (`one_actor`): of its packets no order
//! is asked for any more.
//!
//! Of packets that were on their way at such a moment, those that leave with other ends than the
//! one before are another flow's: the first waits for its mapping to be heard of, and ends as it
//! waits.
//!
//! Without a coordinator a switch that stands still while a runtime crashes may read packets of
//! flows that go on elsewhere before those that the runtime had sent: those are two links, and it
//! has missed no session yet. Of packets that entered before no order is asked then
//! ([`Order::ask_no_more`]).
//!
//! A host outside that talks to a port of NAT's pool is answered by the host that has the port now:
//! packets with other ends are another flow's.
//!
//! Fragments. A fragment that comes before its packet's first waits for it, so of those no order is
//! asked, nor of fragments that the network doubled. Where there are several switches, a packet's
//! fragments take a way of their own, over a switch that is chosen by packet: there, and where they
//! come in by several ports, they are in order among themselves, port by port. Nor is anything
//! asked of ICMP errors.

use super::Violation;
use crate::frame::{End, Transport};
use crate::world::Packet;
use std::collections::{BTreeMap, BTreeSet};

/// Which packets are in order among themselves: talk, direction, port, how many jumps there had
/// been, the packet, if its fragments go by themselves, and whence and whither.
type Name = (u16, bool, u8, u16, u16, [End; 2]);
/// A packet's identifier, and which part of it.
type Part = (u16, u8);

#[derive(Default)]
struct Lane {
    entered: Vec<Part>,
    /// How far those that left have got.
    passed: usize,
    /// Whence and whither the last of them went.
    ends: Option<[End; 2]>,
}

/// All lanes of a run.
#[derive(Default)]
pub(crate) struct Order {
    lanes: BTreeMap<Name, Lane>,
    era: u16,
    /// The first jump of which behind it something is asked.
    asked_from: u16,
    /// By packet: the last lane it entered.
    lane_of: BTreeMap<Part, Name>,
    /// Fragments of which no order is asked.
    unasked: BTreeSet<Part>,
}

impl Order {
    /// Flows may end now that would not have.
    pub fn cut(&mut self) {
        self.era += 1;
    }

    /// Packets within the cluster may leave in any order.
    pub fn ask_no_more(&mut self) {
        self.cut();
        self.asked_from = self.era;
    }

    /// Whether flows may have ended that would not have.
    pub fn is_cut(&self) -> bool {
        self.era > 0
    }

    pub fn entered(&mut self, port: u8, packet: &Packet, part: u8, is_by_itself: bool) {
        if packet.is_wild || matches!(packet.head.transport, Transport::Error { .. }) {
            return;
        }
        let name = (packet.head.id, part);
        // A packet that is complete is not remembered: a fragment that comes once more may wait,
        // too.
        let is_once = packet.passages[usize::from(part)].entered == 1;
        if packet.split > 0 && (!is_once || part > 0 && packet.passages[0].entered != 1) {
            self.unasked.insert(name);
        }
        if self.unasked.contains(&name) {
            return;
        }
        let apart = if packet.split > 0 && is_by_itself {
            packet.head.id
        } else {
            0
        };
        let ends = [packet.head.source, packet.head.destination];
        let lane = (packet.talk, packet.is_answer, port, self.era, apart, ends);
        self.lanes.entry(lane).or_default().entered.push(name);
        self.lane_of.insert(name, lane);
    }

    /// A packet has left, with these ends if they can be read.
    pub fn left(
        &mut self,
        (packet, part): (&Packet, u8),
        ends: Option<[End; 2]>,
        may_be_refused: bool,
    ) -> Result<(), Violation> {
        let part = (packet.head.id, part);
        let Some(name) = self.lane_of.get(&part).copied() else {
            return Ok(());
        };
        if self.unasked.contains(&part) {
            return Ok(());
        }
        if may_be_refused && name.3 > 0 || name.3 < self.asked_from {
            return Ok(());
        }
        // Of copies that came in before and after a jump it is the earliest that may still leave.
        for era in 0..=name.3 {
            let Some(lane) = self.lanes.get_mut(&(name.0, name.1, name.2, era, name.4, name.5)) else {
                continue;
            };
            if let Some(at) = lane.entered[lane.passed..]
                .iter()
                .position(|other| *other == part)
            {
                lane.passed += at + 1;
                lane.ends = ends;
                return Ok(());
            }
        }
        let lane = self.lanes.get(&name);
        if name.3 < self.era && lane.is_some_and(|lane| lane.ends != ends) {
            return Ok(());
        }
        let overtaken = lane.and_then(|lane| lane.entered.get(lane.passed.checked_sub(1)?));
        let by = overtaken.map_or_else(String::new, |(by, _)| {
            format!(", behind #{by}, which had entered after it")
        });
        Err(Violation::new("order", format!("{packet} left out of order{by}")))
    }
}
