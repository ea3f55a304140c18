//! A runtime's notes of watched packets.
//!
//! Not here: notes in a chain ([`crate::runner`]), the keeping of them ([`crate::watch`]).

use super::Runtime;
use super::data::{Lane, NOT_FOUND};
use crate::env::{Burst, Port};
use crate::watch::flows::{FlowEvent, Follower};
use crate::watch::trace::Event;
use crate::watch::{self, Seen, Watch, Worker};
use alloc::string::String;
use alloc::vec::Vec;
use wire::packet::flag::WATCHED;
use wire::{FlowKey, PacketBox};

impl<P: Port> Runtime<P> {
    /// Begins to watch; hands the watch back if there are as many as may be.
    pub fn watch(&mut self, mut watch: Watch) -> Result<(), Watch> {
        if let watch::What::Flow(trace) = &mut watch.what {
            // By all keys of the flow that has one of them.
            for key in trace.keys() {
                let hash = key.hash(&self.core.settings.seed);
                if let Some(value) = self.core.find(hash, &key) {
                    trace.learn(*self.core.flows.nth_key(value >> 1, 0));
                    if self.core.flows.header(value >> 1).flags & crate::flows::actor::flag::REPLY_KEY != 0 {
                        trace.learn(*self.core.flows.nth_key(value >> 1, 1));
                    }
                }
            }
        }
        watch::open(
            &mut self.core.out.tap,
            Worker::Runtime(self.core.settings.info.runtime),
            watch,
        )
    }

    /// Ends a watch, or a follower of flows.
    pub fn unwatch(&mut self, id: u32) {
        watch::close(&mut self.core.out.tap, id);
        self.core.followers.end(id);
    }

    /// Adds a follower of flows; it is handed back if there are as many as may be.
    pub fn follow(&mut self, follower: Follower) -> Result<(), Follower> {
        self.core.followers.add(follower)
    }

    /// Exchanges a follower's events for empty memory; how many were lost since the last time, or
    /// nothing if the follower is not known here.
    pub fn followed(&mut self, id: u32, events: &mut Vec<FlowEvent>) -> Option<u64> {
        self.core.followers.swap(id, events)
    }

    /// Exchanges what a watch has seen for empty memory; `false` if there is no such watch.
    pub fn watched(&mut self, id: u32, seen: &mut Seen) -> bool {
        self.core.out.tap.as_mut().is_some_and(|tap| tap.swap(id, seen))
    }

    /// Has a trace know its flow by one more key.
    pub fn learn_key(&mut self, id: u32, key: FlowKey) {
        if let Some(tap) = &mut self.core.out.tap {
            tap.learn(id, key);
        }
    }

    /// The functions' names, in the order of their numbers.
    pub fn function_names(&self) -> Vec<String> {
        self.core.runner.stages().names.clone()
    }

    /// The chains' names, in the order of their numbers.
    pub fn chain_names(&self) -> Vec<String> {
        let names = self
            .core
            .runner
            .plan()
            .chains()
            .iter()
            .map(|chain| chain.name.clone());
        names.collect()
    }

    /// Marks packets of a burst that are watched, and sends them the rare way.
    #[cold]
    pub(super) fn look_out(&mut self, burst: &mut Burst, lanes: &mut [Lane]) {
        for (packet, lane) in burst.iter_mut().zip(lanes) {
            if self.is_watched(packet, &lane.key) {
                lane.candidate = NOT_FOUND;
            }
        }
    }

    /// Whether a packet with this key is watched; it is marked then.
    fn is_watched(&mut self, packet: &mut PacketBox, key: &FlowKey) -> bool {
        if let Some(tap) = &mut self.core.out.tap {
            let new = tap.recognise(packet, key);
            // Behind a switch that knew it, it has come in there.
            if new != 0 && self.core.settings.switches == 0 {
                let event = Event::came(packet);
                tap.note_for(new, packet, self.core.now, event);
            }
        }
        packet.has(WATCHED)
    }
}
