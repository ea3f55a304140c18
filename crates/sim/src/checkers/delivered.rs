//! Invariants 1, 2 and 6 as users see them: a packet leaves with the bytes it came with, for the
//! host that it is meant for; answers reach the host that asked, and no other host's packets come
//! in.
//!
//! An answer goes where its external endpoint leads *now*. The mapping that it was for may be over,
//! and the endpoint another host's since. (That showed when that host sent by it, or shows in the
//! runtimes' tables: its packets may still be within the cluster.) Then the answer is late, and
//! goes there, as with every NAT. Likewise an error from inside about a packet for a mapping that
//! is over quotes the mapping that its flow has now. Both happen when flows end or a runtime begins
//! again; nothing else that goes to another host is let pass: the endpoint has to be that host's
//! alone at that time.

use super::{Sighting, Violation, endpoints};
use crate::frame::{End, Head, Transport};
use crate::scenario::{HAIRPIN, HAIRPIN_SERVER, POOL, POOL_PORTS, Variant};
use crate::script::{Manner, Script, Talk};
use crate::world::Packet;
use std::collections::BTreeMap;
use wire::Endpoint;

const NAME: &str = "delivered";

/// By protocol and external endpoint: the inside endpoint that was last seen with it.
#[derive(Default)]
pub(crate) struct Delivered {
    holders: BTreeMap<(u8, End), End>,
    /// By talk: with which ends its requests leave.
    outward: BTreeMap<u16, (End, End)>,
}

impl Delivered {
    /// Takes from the runtimes' tables which inside endpoint has which external one now, and with
    /// which ends talks' requests leave.
    pub fn learn(&mut self, script: &Script, flows: &[Sighting]) {
        let end = |endpoint: &Endpoint| Some(End::new(endpoint.addr.as_v4()?, endpoint.port));
        let mut now: BTreeMap<(u8, End), Option<End>> = BTreeMap::new();
        for (_, flow) in flows {
            let Some((protocol, external, inside)) = endpoints::pair(flow) else {
                continue;
            };
            let (Some(external), Some(inside)) = (end(&external), end(&inside)) else {
                continue;
            };
            // An external endpoint of two hosts counts for neither.
            let holder = now.entry((protocol, external)).or_insert(Some(inside));
            *holder = holder.filter(|holder| *holder == inside);
            let ends = flow.translated.as_ref();
            let ends = ends.and_then(|(from, to)| Some((end(from)?, turned(end(to)?))));
            let is_its = |talk: &Talk| {
                !flow.is_from_outside
                    && (talk.client == inside && end(&flow.ends.1) == Some(talk.to))
                    && protocol_of(talk.manner) == protocol
            };
            if let (Some(talk), Some(ends)) = (script.talks.iter().position(is_its), ends) {
                self.outward.insert(talk as u16, ends);
            }
        }
        for (external, holder) in now {
            if let Some(holder) = holder {
                self.holders.insert(external, holder);
            }
        }
    }

    /// A stranger's packet to an external endpoint goes to an endpoint that a host has, if there is
    /// one.
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
        let label = script.label(packet.talk, packet.label, payload);
        if label != packet.label || (label.is_none() && !payload.is_empty()) {
            return Err(Violation::new(
                NAME,
                format!("{packet} left with another payload"),
            ));
        }
        if (now.transport, now.is_v6) != (packet.head.transport, packet.head.is_v6) {
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
            // A balancer lets packets of no flow pass. Such are the answers on their way when a
            // flow ends before its time.
            let is_forgotten =
                script.scenario.has_balancer() && has_jumped && now.source == packet.head.source;
            if is_forgotten && now.destination == talk.client {
                return Ok(());
            }
            if now.destination != talk.client {
                return wrong("for a host that has not asked");
            }
            // A stranger tries whichever external endpoint there is.
            let is_tried = is_external(asked) && is_external(now.source);
            if now.source != asked && !is_tried {
                return wrong("from a host that was not asked");
            }
            return Ok(());
        }
        let is_balanced =
            !is_ping && Variant::is_backend(script.scenario, now.destination) && is_virtual(talk.to.addr);
        self.outward.insert(packet.talk, (now.source, now.destination));
        let is_turned = talk.to == HAIRPIN && now.destination == HAIRPIN_SERVER;
        if !same(now.destination, talk.to) && !is_balanced && !is_turned && !is_external(talk.to) {
            return wrong("for another host");
        }
        let is_translated = script.scenario.has_nat() && is_external(now.source) && !now.is_v6;
        if is_translated {
            self.holders.insert((protocol, now.source), talk.client);
        } else if now.source != talk.client
            || script.scenario.has_nat() && !now.is_v6 && talk.client.addr[0] == 10
        {
            return wrong("as another host's");
        }
        Ok(())
    }
}

impl Delivered {
    /// An ICMP error has left: it goes to the host that sent the packet that it is about, and
    /// quotes that as it was sent.
    pub fn error_left(
        &self,
        script: &Script,
        packet: &Packet,
        about: &Packet,
        now: &Head,
    ) -> Result<(), Violation> {
        let wrong = |what: &str| {
            let what = format!(
                "{packet} left {what}: {} > {}, {:?}, about {about}",
                now.source, now.destination, now.transport
            );
            Err(Violation::new(NAME, what))
        };
        let (
            Transport::Error { kind, code, quote },
            Transport::Error {
                kind: k,
                code: c,
                quote: sent,
            },
        ) = (now.transport, packet.head.transport)
        else {
            return wrong("as no error");
        };
        if (now.is_v6, kind, code) != (packet.head.is_v6, k, c) {
            return wrong("as another error");
        }
        // A talk whose flow has begun again since, with other ends outside, is the same inside.
        let ends = (quote.destination, quote.source);
        let is_again = about.is_answer
            && self.outward.get(&packet.talk) == Some(&ends)
            && now.destination.addr == quote.source.addr;
        if is_again {
            return Ok(());
        }
        if now.destination.addr != about.head.source.addr {
            // The host that has the external endpoint now is told, as with answers.
            let holder = self.holders.get(&(quote.protocol, sent.source));
            return match holder.is_some_and(|holder| holder.addr == now.destination.addr) {
                true => Ok(()),
                false => wrong("for a host that has not sent what it is about"),
            };
        }
        let holder = self.holders.get(&(quote.protocol, sent.source));
        if holder.is_some_and(|holder| holder.addr == now.destination.addr && *holder == quote.source) {
            // The same host may have got the endpoint again, by another port of its own.
        } else if quote.source != about.head.source {
            return wrong("about another's packet");
        }
        let seq = match about.head.transport {
            Transport::Tcp { seq, .. } => seq,
            _ => 0,
        };
        let protocol = about.head.transport.protocol();
        if (quote.id, quote.protocol, quote.seq) != (about.head.id, protocol, seq)
            || quote.destination != about.head.destination
        {
            return wrong("about a packet that was not sent so");
        }
        if sent.is_sound && !quote.is_sound {
            return wrong("with a wrong checksum in what it quotes");
        }
        let is_private = script.scenario.has_nat() && !now.is_v6 && packet.head.source.addr[0] == 10;
        let is_own = now.source.addr == packet.head.source.addr && !is_private;
        if !is_own && now.source.addr != about.head.destination.addr {
            return wrong("from another host");
        }
        Ok(())
    }
}

/// A fragment that has left does not belong to the others of its packet.
pub(crate) fn wrong_part(packet: &Packet, part: u8, what: &str) -> Violation {
    Violation::new(NAME, format!("fragment {part} of {packet} left, and {what}"))
}

/// A packet of the cluster's own has left: its checksums are right, and all that it says of a
/// packet is as that was sent.
pub(crate) fn own(
    read: Option<(Head, &[u8])>,
    packet_of: impl Fn(u16) -> Option<Packet>,
) -> Result<(), Violation> {
    let Some((head, _)) = read else {
        return Err(Violation::new(NAME, "a packet of the cluster's own left damaged"));
    };
    // A later fragment has no ports.
    let is_end = |quoted: End, sent: End| quoted == sent || quoted == End::new(sent.addr, 0);
    if let Transport::Error { quote, .. } = head.transport
        && let Some(about) = packet_of(quote.id).filter(|about| !about.is_wild && quote.id != 0)
        && (!is_end(quote.source, about.head.source)
            || !is_end(quote.destination, about.head.destination)
            || head.destination.addr != about.head.source.addr
            || !quote.is_sound)
    {
        let what = format!(
            "an error of the cluster's own left for {}, about {about}, quoted as {quote:?}",
            head.destination
        );
        return Err(Violation::new(NAME, what));
    }
    Ok(())
}

fn protocol_of(manner: Manner) -> u8 {
    match manner {
        Manner::Tcp => wire::protocol::TCP,
        Manner::Udp => wire::protocol::UDP,
        Manner::Ping => wire::protocol::ICMP,
    }
}

/// For which end a packet leaves that a flow sends to this one. A hairpinned packet goes through a
/// second flow, that of the server inside, and only that flow shows the server's own end.
fn turned(end: End) -> End {
    if end == HAIRPIN { HAIRPIN_SERVER } else { end }
}

fn is_virtual(addr: [u8; 4]) -> bool {
    crate::scenario::VIRTUAL.contains(&addr)
}

fn is_external(end: End) -> bool {
    let (first, count) = POOL_PORTS;
    POOL.contains(&end.addr) && (first..first + count).contains(&end.port)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frame::Quote;
    use crate::scenario::{Scenario, inside_host};
    use crate::script::{Fate, Part};
    use runtime::worker::FlowEnds;
    use wire::{Addr, FlowKey};

    const CLIENT: End = End::new(inside_host(4), 40_005);
    /// The client's external endpoint as it was answered, and as it is now.
    const BEFORE: End = End::new(POOL[0], 2013);
    const NOW: End = End::new(POOL[0], 1535);

    /// One talk: the client's with the server inside, by that one's external endpoint.
    fn script() -> Script {
        let mut script = Script::of(Scenario::Edge, 0);
        script.talks = vec![Talk {
            part: Part::Faults,
            start: 0,
            manner: Manner::Udp,
            is_v6: false,
            client: CLIENT,
            to: HAIRPIN,
            burst: 3,
            rounds: 2,
            gap: 0,
            size: 100,
            fate: Fate::Answered,
        }];
        script
    }

    /// A hairpinned flow, as the client's runtime and the server's show it.
    fn flows(external: End) -> [Sighting; 2] {
        let wide = |end: End| Endpoint::new(Addr::v4(end.addr), end.port);
        let flow = |ends: (End, End), translated: (End, End), is_from_outside| FlowEnds {
            key: FlowKey::new(wide(ends.0), wide(ends.1), wire::protocol::UDP, 0).0,
            reply_key: None,
            is_from_outside,
            is_undecided: false,
            ends: (wide(ends.0), wide(ends.1)),
            translated: Some((wide(translated.0), wide(translated.1))),
        };
        [
            (1, flow((CLIENT, HAIRPIN), (external, HAIRPIN), false)),
            (2, flow((external, HAIRPIN), (external, HAIRPIN_SERVER), true)),
        ]
    }

    fn packet(id: u16, is_answer: bool, head: Head) -> Packet {
        Packet {
            talk: 0,
            head: Head { id, ..head },
            label: None,
            is_answer,
            is_wild: false,
            split: 0,
            passages: Default::default(),
            about: 0,
            copy_of: 0,
            is_misled: false,
        }
    }

    fn head(source: End, destination: End, transport: Transport) -> Head {
        Head {
            id: 0,
            is_v6: false,
            source,
            destination,
            transport,
        }
    }

    /// An error about packet 24, with whence and whither that went as it is quoted.
    fn error(from: End, to: End, (source, destination): (End, End)) -> Head {
        let quote = Quote {
            id: 24,
            source,
            destination,
            protocol: wire::protocol::UDP,
            seq: 0,
            is_sound: true,
        };
        let (kind, code) = (3, 3);
        let [from, to] = [from, to].map(|end| End::new(end.addr, 0));
        head(from, to, Transport::Error { kind, code, quote })
    }

    /// All workers died since the client was answered, and its flow began again with another port
    /// (`edge` 91204573).
    #[test]
    fn an_error_about_a_hairpinned_answer_quotes_the_ends_that_its_flow_has_now() {
        let script = script();
        let about = packet(24, true, head(HAIRPIN_SERVER, BEFORE, Transport::Udp));
        let sent = packet(30, false, error(CLIENT, HAIRPIN, (HAIRPIN, CLIENT)));
        let may_leave = |delivered: &Delivered, to: End, quoted: (End, End)| {
            let now = error(NOW, to, quoted);
            delivered.error_left(&script, &sent, &about, &now).is_ok()
        };
        let mut delivered = Delivered::default();
        delivered.learn(&script, &flows(BEFORE));
        assert!(may_leave(&delivered, HAIRPIN_SERVER, (HAIRPIN_SERVER, BEFORE)));
        assert!(!may_leave(&delivered, HAIRPIN_SERVER, (HAIRPIN_SERVER, NOW)));
        delivered.learn(&script, &flows(NOW));
        assert!(may_leave(&delivered, HAIRPIN_SERVER, (HAIRPIN_SERVER, NOW)));
        for (to, quoted) in [
            // The error was not turned around, or its quote was not.
            (HAIRPIN, (HAIRPIN, NOW)),
            (HAIRPIN_SERVER, (HAIRPIN, NOW)),
            // A port of one of both ends was left as it was.
            (HAIRPIN_SERVER, (HAIRPIN_SERVER, End::new(NOW.addr, CLIENT.port))),
            (HAIRPIN_SERVER, (End::new(HAIRPIN_SERVER.addr, HAIRPIN.port), NOW)),
            // The error goes to another host.
            (End::new(inside_host(1), 0), (HAIRPIN_SERVER, NOW)),
        ] {
            assert!(!may_leave(&delivered, to, quoted), "{to} {quoted:?}");
        }
    }
}
