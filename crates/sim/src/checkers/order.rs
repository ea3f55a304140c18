//! Invariant 2: packets of a flow, in one direction and by one port, leave in the order in which they entered.
//!
//! What leaves of a lane must be a subsequence of what entered. A packet that the network doubled enters twice and may leave twice. When a clock jumps or the cluster
//! begins anew, flows end with packets on their way, and what comes then is another flow's: order is asked for among what entered since the last such
//! moment, and among what entered before. A load balancer's flow that begins anew then may be refused, and begin anew again, elsewhere, since its server still answers what
//! came before (`one_actor`): of its packets no order is asked for any more.

use super::Violation;
use crate::world::Packet;
use std::collections::BTreeMap;

/// Which packets are in order among themselves: talk, direction, port, and how many jumps there had been.
type Name = (u16, bool, u8, u16);

#[derive(Default)]
struct Lane {
    entered: Vec<u16>,
    /// How far those that left have got.
    passed: usize,
}

/// All lanes of a run.
#[derive(Default)]
pub(crate) struct Order {
    lanes: BTreeMap<Name, Lane>,
    era: u16,
    /// By packet: the last lane it entered.
    lane_of: BTreeMap<u16, Name>,
}

impl Order {
    /// Flows may end now that would not have.
    pub fn cut(&mut self) {
        self.era += 1;
    }

    /// Whether flows may have ended that would not have.
    pub fn is_cut(&self) -> bool {
        self.era > 0
    }

    pub fn entered(&mut self, port: u8, packet: &Packet) {
        if packet.is_wild {
            return;
        }
        let name = (packet.talk, packet.is_answer, port, self.era);
        self.lanes.entry(name).or_default().entered.push(packet.head.id);
        self.lane_of.insert(packet.head.id, name);
    }

    pub fn left(&mut self, packet: &Packet, may_be_refused: bool) -> Result<(), Violation> {
        let id = packet.head.id;
        let Some(name) = self.lane_of.get(&id).copied() else {
            return Ok(());
        };
        if may_be_refused && name.3 > 0 {
            return Ok(());
        }
        // Of copies that came in before and after a jump it is the earliest that may still leave.
        for era in 0..=name.3 {
            let Some(lane) = self.lanes.get_mut(&(name.0, name.1, name.2, era)) else {
                continue;
            };
            if let Some(at) = lane.entered[lane.passed..].iter().position(|other| *other == id) {
                lane.passed += at + 1;
                return Ok(());
            }
        }
        let lane = self.lanes.get(&name);
        let overtaken = lane.and_then(|lane| lane.entered.get(lane.passed.checked_sub(1)?));
        let by = overtaken.map_or_else(String::new, |by| {
            format!(", behind #{by}, which had entered after it")
        });
        Err(Violation::new("order", format!("{packet} left out of order{by}")))
    }
}
