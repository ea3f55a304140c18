//! An operator ends flows.
//!
//! ```text
//!   selector ─► flows that live ─► their functions give back what they took, their keys and, with its last flow, a group go
//!            └► flows that wait for a call: counted, and left
//! ```
//!
//! A deleted flow ends as an expired one does: at once, and its next packet, if its functions let
//! it, opens a flow of its own. A selector's flow is that one alone, not its group. Flows on their
//! way to another runtime are not looked at.
//!
//! Invariant: one call looks at a bounded number of flows, and ends none for whose words there is
//! no room.

use super::Runtime;
use crate::env::Port;
use crate::flows::actor::Phase;
use crate::mobility::Selector;

/// The outcome of one look.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Deleted {
    /// Flows that have ended.
    pub ended: u64,
    /// Flows that are meant and that wait for a call: they go on.
    pub busy: u64,
    /// The actor to go on from; `None` behind the last.
    pub next: Option<u32>,
}

/// Flows that one call looks at, and ends, at most: packets wait meanwhile.
const LOOKS: u32 = 16_384;
const ENDS: u64 = 256;

impl<P: Port> Runtime<P> {
    /// Ends flows that a selector names, from actor number `cursor` on.
    pub fn delete_flows(&mut self, selector: &Selector, cursor: u32) -> Deleted {
        self.core.learn_reply_keys();
        let last = self.core.flows.capacity() as u32;
        let places = match selector {
            Selector::Flow(key) => match self.core.flows.find(key) {
                Some(value) => value >> 1..(value >> 1) + 1,
                None => return Deleted::default(),
            },
            _ => cursor..last.min(cursor.saturating_add(LOOKS)),
        };
        let mut done = Deleted::default();
        for actor in places.clone() {
            if done.ended == ENDS || !self.core.runner.may_end() || !self.core.out.has_room() {
                done.next = Some(actor);
                return done;
            }
            let phase = self.core.flows.header(actor).phase;
            if !matches!(phase, Phase::Active | Phase::Waiting) || !self.core.is_selected(selector, actor) {
                continue;
            }
            if phase == Phase::Waiting {
                done.busy += 1;
                continue;
            }
            self.core.end_actor(actor);
            done.ended += 1;
        }
        done.next = (places.end < last && !matches!(selector, Selector::Flow(_))).then_some(places.end);
        done
    }
}
