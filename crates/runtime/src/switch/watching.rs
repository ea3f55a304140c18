//! What a switch sees of packets that somebody watches: how they come in, where they are sent, and why there.
//!
//! Not here: what is kept of it ([`crate::watch`]); packets that ports take are shown where that is done (`ports.rs`).

use super::{Lane, NOBODY, Switch, home_of};
use crate::env::{Burst, Port};
use crate::watch::trace::{Event, How};
use crate::watch::{self, Seen, Watch, Worker};
use wire::packet::flag::WATCHED;
use wire::{FlowKey, Packet};

impl<P: Port, L: Port> Switch<P, L> {
    /// Begins to watch; hands the watch back if there are as many as may be.
    pub fn watch(&mut self, watch: Watch) -> Result<(), Watch> {
        watch::open(&mut self.eye, Worker::Switch(self.settings.switch), watch)
    }

    /// Ends a watch.
    pub fn unwatch(&mut self, id: u32) {
        watch::close(&mut self.eye, id);
    }

    /// Exchanges what a watch has seen for empty memory; `false` if there is no such watch.
    pub fn watched(&mut self, id: u32, seen: &mut Seen) -> bool {
        self.eye.as_mut().is_some_and(|eye| eye.swap(id, seen))
    }

    /// Has a trace know its flow by one more key.
    pub fn learn_key(&mut self, id: u32, key: FlowKey) {
        if let Some(eye) = &mut self.eye {
            eye.learn(id, key);
        }
    }

    /// Notes a step of a packet, if anybody wants to know.
    pub(super) fn see(&mut self, packet: &Packet, event: Event) {
        if let Some(eye) = &mut self.eye
            && packet.has(WATCHED)
        {
            eye.note(packet, self.now, event);
        }
    }

    /// [`Switch::forward`], with a look at each packet.
    #[cold]
    #[inline(never)]
    pub(super) fn forward_watched(&mut self, packets: &mut Burst, lanes: &[Lane], at_home: bool) {
        for (mut packet, lane) in packets.drain(..).zip(lanes) {
            if packet.turns() == 0
                && let Some((key, _)) = FlowKey::of(&packet)
                && let Some(eye) = &mut self.eye
            {
                let new = eye.recognise(&mut packet, &key);
                if new != 0 {
                    let event = Event::came(&packet);
                    eye.note_for(new, &packet, self.now, event);
                }
            }
            if packet.has(WATCHED) {
                self.forward_marked(packet, lane, at_home);
            } else {
                self.forward(packet, lane, at_home);
            }
        }
    }

    fn forward_marked(&mut self, packet: wire::PacketBox, lane: &Lane, at_home: bool) {
        let by_second = lane.second.and_then(|second| self.find(&second));
        let home = home_of(lane.hash, self.settings.switches);
        if by_second.is_none() && home != self.settings.switch {
            if !at_home {
                self.see(&packet, Event::HandedOver { home });
            }
            return self.forward(packet, lane, at_home);
        }
        let before = by_second.or_else(|| self.find(&lane.group));
        // What it is called, and whose it is: it is gone behind the next line, and cannot be at work elsewhere before this switch
        // has transmitted.
        let marks = packet.flags() & WATCHED;
        let name = watch::name_of(&packet);
        let dropped = self.drops.total();
        self.forward(packet, lane, at_home);
        if self.drops.total() != dropped {
            return;
        }
        let route = before.or_else(|| self.find(&lane.group)).unwrap_or(NOBODY);
        let Some(route) = self.routes.get(route as usize) else {
            return;
        };
        let runtime = route.runtime;
        let how = match (by_second, before) {
            (Some(_), _) => How::SecondKey,
            (None, Some(_)) => How::Route,
            (None, None) => How::Chosen(self.settings.policy),
        };
        if let Some(eye) = &mut self.eye {
            eye.note_named(marks, name, self.now, Event::Routed { runtime, how });
        }
    }
}
