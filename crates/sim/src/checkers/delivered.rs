//! What users see of 1, 2 and 6: a packet leaves with the bytes it came with, for whom it is meant; answers reach who asked, and
//! nobody else's packets come in.
//!
//! An answer goes where its external endpoint leads *now*. If the mapping it was for is over and the endpoint is another host's since (which showed when that host sent
//! by it), the answer is late, and goes there, as with every NAT.

use super::Violation;
use crate::frame::{End, Head};
use crate::scenario::{POOL, POOL_PORTS, Variant};
use crate::script::Script;
use crate::world::Packet;
use std::collections::BTreeMap;

const NAME: &str = "delivered";

/// Who was last seen with which external endpoint, by protocol.
#[derive(Default)]
pub(crate) struct Delivered {
    holders: BTreeMap<(u8, End), End>,
}

impl Delivered {
    /// What a stranger sends to an external endpoint goes to one that somebody has, if anybody has one.
    pub fn tempt(&self, head: &mut Head) {
        let protocol = head.transport.protocol();
        let held = self.holders.range((protocol, End::default())..);
        let held = held.take_while(|((of, _), _)| *of == protocol);
        let count = held.clone().count().max(1);
        let chosen = usize::from(head.destination.port) % count;
        if is_external(head.destination)
            && let Some(((_, external), _)) = held.clone().nth(chosen)
        {
            head.destination = *external;
        }
    }

    /// A packet has left with these headers and this payload.
    pub fn left(
        &mut self,
        script: &Script,
        packet: &Packet,
        now: &Head,
        payload: &[u8],
        has_jumped: bool,
    ) -> Result<(), Violation> {
        let talk = &script.talks[usize::from(packet.talk)];
        let label = crate::frame::label(payload);
        if label != packet.label || (label.is_none() && !payload.is_empty()) {
            return Err(Violation::new(
                NAME,
                format!("{packet} left with another payload"),
            ));
        }
        if now.transport != packet.head.transport {
            return Err(Violation::new(
                NAME,
                format!("{packet} left as {:?}", now.transport),
            ));
        }
        let is_ping = now.transport.protocol() == 1;
        // One identifier stands for both ends.
        let same = |a: End, b: End| a == b || (is_ping && a.addr == b.addr);
        let protocol = now.transport.protocol();
        let wrong = |what: &str| {
            let what = format!("{packet} left {what}: {} > {}", now.source, now.destination);
            Err(Violation::new(NAME, what))
        };
        if packet.is_answer {
            let asked = if is_ping {
                End::new(talk.to.addr, now.source.port)
            } else {
                talk.to
            };
            let holder = self.holders.get(&(protocol, packet.head.destination));
            if holder.is_some_and(|holder| *holder != talk.client && *holder == now.destination) {
                return Ok(());
            }
            // A balancer lets pass what is of no flow. Of none are the answers on their way when a flow ends before its time.
            let is_forgotten =
                script.scenario.has_balancer() && has_jumped && now.source == packet.head.source;
            if is_forgotten && now.destination == talk.client {
                return Ok(());
            }
            if now.destination != talk.client {
                return wrong("for somebody who has not asked");
            }
            // A stranger tries whichever external endpoint there is.
            let is_tried = is_external(asked) && is_external(now.source);
            if now.source != asked && !is_tried {
                return wrong("from somebody who was not asked");
            }
            return Ok(());
        }
        let is_balanced =
            !is_ping && Variant::is_backend(script.scenario, now.destination) && is_virtual(talk.to.addr);
        if !same(now.destination, talk.to) && !is_balanced && !is_external(talk.to) {
            return wrong("for somebody else");
        }
        let is_translated = script.scenario.has_nat() && is_external(now.source);
        if is_translated {
            self.holders.insert((protocol, now.source), talk.client);
        } else if now.source != talk.client || script.scenario.has_nat() && talk.client.addr[0] == 10 {
            return wrong("as somebody else's");
        }
        Ok(())
    }
}

fn is_virtual(addr: [u8; 4]) -> bool {
    crate::scenario::VIRTUAL.contains(&addr)
}

fn is_external(end: End) -> bool {
    let (first, count) = POOL_PORTS;
    POOL.contains(&end.addr) && (first..first + count).contains(&end.port)
}
