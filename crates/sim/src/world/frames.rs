//! Frames: from hosts to ports and back, and the checkers' words on frames that leave.
//!
//! ```text
//!   wish ─► send ─► put ─► (path) ─► arrive_at_port ─► look_at_ports ─► leave ─► judge ─► (path) ─► arrive_at_host ─► wishes
//!                                                                                                └─► complain: an ICMP error, put as any other
//! ```
//!
//! A packet in fragments is put, arrives and leaves part by part; hosts and checkers look at the
//! whole, once all of it is there.
//!
//! Not here: the hosts' side ([`super::hosts`]).

use super::hosts::Wish;
use super::{Due, Packet, World, cluster};
use crate::checkers::{Violation, conservation, delivered, enforced, kept};
use crate::frame::{self, Frame, Head, Label, Transport};
use crate::kinds::ROUTERS;
use crate::network::{Arrival, Passage};
use crate::scenario::STRANGER;
use crate::script::{INSIDE_HOSTS, Script};
use crate::timeline::Event;
use crate::witness::Account;

impl World<'_> {
    /// Looks at the frames that a switch has taken in and sent since its last turn.
    pub(super) fn look_at_ports(&mut self, switch: u8) {
        let switches = usize::from(self.script.shape.switches);
        for port in (usize::from(switch)..self.cluster.interfaces.len()).step_by(switches) {
            let interface = self.cluster.interfaces[port].clone();
            let (entered, left) = {
                let mut interface = interface.borrow_mut();
                (
                    std::mem::take(&mut interface.entered),
                    std::mem::take(&mut interface.left),
                )
            };
            self.look_at_removed_switch(switch, entered.len(), left.len());
            for (id, part) in entered {
                self.cluster.entered += 1;
                self.timeline.note(self.now(), Event::Entered(port as u8, id));
                let now = self.now();
                if let Some(neighbours) = &mut self.neighbours {
                    neighbours.note_entered(id, now);
                }
                let copy_of = usize::from(self.packets[usize::from(id)].copy_of);
                if copy_of > 0 {
                    self.packets[copy_of].is_misled = true;
                }
                let packet = &mut self.packets[usize::from(id)];
                packet.passages[usize::from(part)].entered += 1;
                self.read.entered(packet);
                let is_by_itself = self.script.shape.switches > 1 || self.script.kinds.is_spread;
                self.order.entered(port as u8, packet, part, is_by_itself);
            }
            for bytes in left {
                self.cluster.left += 1;
                let is_own = frame::id_of(self.link, &bytes).is_none_or(|id| id == 0);
                self.cluster.own += u64::from(is_own);
                let packet = frame::id_of(self.link, &bytes).and_then(|id| self.packets.get(usize::from(id)));
                let is_damaged = !is_own && packet.is_some_and(|packet| packet.is_wild);
                self.cluster.damaged_errors += u64::from(is_damaged && frame::is_error(self.link, &bytes));
                self.leave(port, bytes);
            }
        }
    }

    /// A frame has left by a port.
    fn leave(&mut self, port: usize, bytes: Vec<u8>) {
        let id = frame::id_of(self.link, &bytes).unwrap_or(0);
        let now = self.now();
        self.timeline.note(now, Event::Left(port as u8, id));
        self.timeline.fold(&bytes);
        let found = self.judge(id, &bytes);
        self.fail(found);
        if let Some(neighbours) = &self.neighbours {
            let found = neighbours.look_at_link(self.script, (port, &bytes), (id, &self.packets));
            self.fail(found);
        }
        let destination = frame::destination_of(self.link, &bytes);
        let Some(host) = destination.and_then(|addr| self.hosts.iter().position(|host| host.addr == addr))
        else {
            return;
        };
        let passage = self.hosts[host].from.put(now, bytes.len());
        let part = self.part_of(id, &bytes);
        self.fly(Frame { id, part, bytes }, passage, |frame| {
            Due::ToHost(frame, host)
        });
    }

    /// Which part of its packet a frame is, by its own words.
    fn part_of(&self, id: u16, bytes: &[u8]) -> u8 {
        match self.packets.get(usize::from(id)) {
            Some(packet) if packet.split > 0 => frame::part_of(self.link, bytes, packet.split).unwrap_or(0),
            _ => 0,
        }
    }

    /// Has the checkers judge a frame that has left.
    fn judge(&mut self, id: u16, bytes: &[u8]) -> Result<(), Violation> {
        let part = self.part_of(id, bytes);
        let (script, link) = (self.script, self.link);
        let about = |packets: &[Packet], id: u16| packets.get(usize::from(id)).cloned();
        let whole = match self.packets.get_mut(usize::from(id)) {
            Some(packet) if id != 0 => {
                packet.passages[usize::from(part)].left += 1;
                conservation::left(packet, part)?;
                // Fragments behind a damaged first one are judged by what that one says.
                if packet.is_wild || packet.is_misled {
                    return Ok(());
                }
                let talk = &script.talks[usize::from(packet.talk)];
                enforced::left(packet, talk)?;
                let ends = frame::read(link, bytes).map(|(head, _)| [head.source, head.destination]);
                self.order
                    .left((packet, part), ends, script.scenario.has_balancer())?;
                if script.is_copied() {
                    Account::note_left(id);
                }
                if packet.split == 0 {
                    None
                } else {
                    let assembly = self.leaving.entry(id).or_default();
                    match assembly.take(link, part, bytes) {
                        // Its flow may have ended and begun again in between.
                        Ok(_) | Err(_) if self.order.is_cut() => return Ok(()),
                        Ok(Some(whole)) => Some(whole),
                        Ok(None) => return Ok(()),
                        Err(what) => return Err(delivered::wrong_part(packet, part, &what)),
                    }
                }
            }
            // The cluster's own.
            // About one with damaged addresses.
            _ if !frame::is_between_hosts(link, bytes) => return Ok(()),
            _ => return delivered::own(frame::read(link, bytes), |id| about(&self.packets, id)),
        };
        let packet = &self.packets[usize::from(id)];
        let Some((head, payload)) = frame::read(link, whole.as_deref().unwrap_or(bytes)) else {
            return Err(Violation::new("delivered", format!("{packet} left damaged")));
        };
        if packet.about != 0 {
            let about = &self.packets[usize::from(packet.about)];
            let found = self.delivered.error_left(script, packet, about, &head);
            if found.is_ok() {
                return found;
            }
            self.delivered.learn(script, &self.cluster.flows());
            return self.delivered.error_left(script, packet, about, &head);
        }
        let has_jumped = self.order.is_cut();
        let found = self.delivered.left(script, packet, &head, payload, has_jumped);
        if found.is_ok() {
            return found;
        }
        // The work of runtimes may not have left yet.
        self.delivered.learn(script, &self.cluster.flows());
        self.delivered.left(script, packet, &head, payload, has_jumped)
    }

    /// A frame is on its way, or lost.
    fn fly(&mut self, frame: Frame, passage: Passage, due: impl Fn(Frame) -> Due) {
        let now = self.now();
        match passage {
            Passage::Arrives(first, second) => {
                if let Some(second) = second {
                    self.fly_once(frame.clone(), second, &due);
                }
                self.fly_once(frame, first, &due);
            }
            Passage::Lost => self.timeline.note(now, Event::Lost(frame.id, false)),
            Passage::Cut => self.timeline.note(now, Event::Lost(frame.id, true)),
        }
    }

    fn fly_once(&mut self, mut frame: Frame, arrival: Arrival, due: &impl Fn(Frame) -> Due) {
        if let Some(bit) = arrival.flipped {
            let Some(mut packet) = self.packets.get(usize::from(frame.id)).cloned() else {
                return;
            };
            let Some(id) = self.new_id() else { return };
            self.timeline.note(self.now(), Event::Damaged(frame.id, id));
            frame::damage(self.link, &mut frame.bytes, bit, id);
            // Over IPv6 its own fragments' number is another field, and stays.
            let is_first = packet.split > 0 && frame.part == 0 && packet.head.is_v6;
            packet.copy_of = if is_first { frame.id } else { 0 };
            (packet.head.id, packet.is_wild, packet.split, packet.passages) =
                (id, true, 0, Default::default());
            frame.part = 0;
            self.packets.push(packet);
            frame.id = id;
        }
        self.flying += 1;
        self.plan_for(arrival.at, due(frame));
    }

    /// The identifier of the next packet; `None` if all are used, which no script comes near.
    fn new_id(&self) -> Option<u16> {
        u16::try_from(self.packets.len()).ok()
    }

    pub(super) fn arrive_at_port(&mut self, frame: Frame, port: usize) {
        self.flying -= 1;
        let id = frame.id;
        let now = self.now();
        let offered = self.cluster.interfaces[port].borrow_mut().offer(frame);
        if !offered {
            self.timeline.note(now, Event::Overflowed(id));
        }
        self.rouse((port % usize::from(self.script.shape.switches)) as u8, now);
    }

    pub(super) fn arrive_at_host(&mut self, frame: &Frame, host: usize) {
        self.flying -= 1;
        let is_part = self.packets[usize::from(frame.id)].split > 0;
        let whole = if is_part {
            let assembly = self.hosts[host].assemblies.entry(frame.id).or_default();
            assembly.take(self.link, frame.part, &frame.bytes).ok().flatten()
        } else {
            None
        };
        let is_short = is_part && whole.is_none();
        let bytes = whole.as_deref().unwrap_or(&frame.bytes);
        let read = frame::read(self.link, bytes).filter(|_| !is_short);
        self.timeline
            .note(self.now(), Event::Arrived(host as u8, frame.id, read.is_some()));
        let Some((heard, payload)) = read else { return };
        let packet = &self.packets[usize::from(frame.id)];
        let (talk_index, is_answer, is_own) = (packet.talk, packet.is_answer, frame.id == 0);
        let label = self.script.label(talk_index, packet.label, payload);
        let mut wishes = std::mem::take(&mut self.wishes);
        let talks = &self.script.talks;
        // A reset that the cluster made says itself which host it is for.
        let resets = || {
            talks
                .iter()
                .position(|talk| talk.client == heard.destination && talk.to == heard.source)
        };
        let index = if is_own {
            resets()
        } else {
            Some(usize::from(talk_index))
        };
        let is_for_client = is_own || is_answer;
        if is_own
            && let (Some(talk), Transport::Tcp { flags, .. }) = (index, heard.transport)
            && flags & frame::flags::RST != 0
        {
            self.fail(kept::reset(self.script, talk));
        }
        if let Some(index) = index {
            let talk = &talks[index];
            if !is_for_client {
                self.hosts[host]
                    .server
                    .hear(self.clock.get(), &heard, (label, payload.len()), &mut wishes);
            } else if talk.client == heard.destination {
                self.clients[index].hear(index as u16, talk, &heard, label, &mut wishes);
            }
            self.grant(host, index as u16, !is_for_client, &mut wishes);
        }
        self.wishes = wishes;
        if !is_part {
            self.complain(host, frame, &heard);
        }
    }

    /// A host, or a router before it, answers what arrived with an ICMP error.
    fn complain(&mut self, host: usize, frame: &Frame, heard: &Head) {
        let about = &self.packets[usize::from(frame.id)];
        let is_error = matches!(heard.transport, Transport::Error { .. } | Transport::Other(_));
        if self.script.kinds.errors == 0 || is_error || frame.id == 0 || about.is_wild {
            return;
        }
        let Some((is_router, is_whole, which)) = self.script.error_about(frame.id) else {
            return;
        };
        let own = self.hosts[host].addr;
        let from = match is_router {
            true => ROUTERS[usize::from(own[0] == 10)],
            false => own,
        };
        let (talk, is_answer) = (about.talk, !about.is_answer);
        let error = frame::error(self.link, frame, heard, from, is_whole, which);
        let (Some((mut head, quoted)), Some(id)) = (error, self.new_id()) else {
            return;
        };
        head.id = id;
        let bytes = frame::write(self.link, &head, &quoted);
        self.packets.push(Packet {
            talk,
            head,
            label: None,
            is_answer,
            is_wild: false,
            split: 0,
            passages: Default::default(),
            about: frame.id,
            copy_of: 0,
            is_misled: false,
        });
        self.put(host, id, 0, bytes);
    }

    pub(super) fn wake_client(&mut self, talk: u16) {
        let mut wishes = std::mem::take(&mut self.wishes);
        let of = &self.script.talks[usize::from(talk)];
        self.clients[usize::from(talk)].wake(talk, of, &mut wishes);
        if let Some(host) = self.hosts.iter().position(|host| host.addr == of.client.addr) {
            self.grant(host, talk, false, &mut wishes);
        }
        self.wishes = wishes;
    }

    /// Does what a host wants.
    fn grant(&mut self, host: usize, talk: u16, is_answer: bool, wishes: &mut Vec<Wish>) {
        for wish in wishes.drain(..) {
            match wish {
                Wish::Send(head, label) => self.send(host, talk, is_answer, head, label),
                Wish::Wake(after) => {
                    let client = &mut self.clients[usize::from(talk)];
                    client.timer += 1;
                    let timer = client.timer;
                    self.plan_for(self.now() + after, Due::Wake(talk, timer));
                }
                Wish::Over(done) => {
                    self.open_talks -= 1;
                    self.timeline.note(self.now(), Event::Over(talk, done));
                }
            }
        }
    }

    fn send(&mut self, host: usize, talk: u16, is_answer: bool, mut head: Head, label: Option<Label>) {
        let Some(id) = self.new_id() else { return };
        head.id = id;
        if head.source.addr == STRANGER {
            self.delivered.tempt(&mut head);
        }
        let payload = label.map_or_else(Vec::new, |label| self.script.payload(&label));
        let bytes = frame::write(self.link, &head, &payload);
        self.packets.push(Packet {
            talk,
            head,
            label,
            is_answer,
            is_wild: false,
            split: 0,
            passages: Default::default(),
            about: 0,
            copy_of: 0,
            is_misled: false,
        });
        let talk = &self.script.talks[usize::from(talk)];
        let Some((count, order)) = self.script.parts_of(talk, id) else {
            return self.put(host, id, 0, bytes);
        };
        let (parts, length) = frame::split(self.link, &bytes, count);
        if let Some(packet) = self.packets.last_mut() {
            packet.split = length;
        }
        for part in order {
            if let Some(bytes) = parts.get(part) {
                self.put(host, id, part as u8, bytes.clone());
            }
        }
    }

    /// Puts a frame on a host's path to the cluster.
    fn put(&mut self, host: usize, id: u16, part: u8, bytes: Vec<u8>) {
        let now = self.now();
        self.timeline.note(now, Event::Sent(id));
        let port = match self.script.kinds.is_spread {
            true => port_of(self.script, host, usize::from(part)),
            false => self.hosts[host].port,
        };
        let passage = self.hosts[host].to.put(now, bytes.len());
        self.fly(Frame { id, part, bytes }, passage, |frame| {
            Due::ToPort(frame, port)
        });
    }
}

/// By which port a host is connected: one of its side; a fragment perhaps by a later one.
pub(super) fn port_of(script: &Script, host: usize, part: usize) -> usize {
    let shape = &script.shape;
    let is_inside = host < usize::from(INSIDE_HOSTS);
    let ports: Vec<usize> = (0..usize::from(shape.ports))
        .filter(|port| shape.by_address || (cluster::side_of(shape, *port) == nf::Side::Inside) == is_inside)
        .collect();
    ports[(host + part) % ports.len()]
}
