//! A switch, for the thread that runs it: links, figures, ports, taps, the end.
//!
//! Not here: a switch's step (`step`); a tap's content ([`crate::watch`]).

use super::Switch;
use crate::env::{LinkTo, Port};
use crate::stats::{DropReason, Named, SwitchStats};
use crate::watch::{self, Seen, Watch, Worker};
use alloc::string::String;
use alloc::vec::Vec;
use nf::Prefix;
use wire::{FlowKey, Pool};

impl<P: Port, L: Port> Switch<P, L> {
    /// Its number.
    pub fn number(&self) -> u8 {
        self.settings.switch
    }

    /// Shows each link, and the worker at its other end.
    pub fn each_link(&mut self, show: impl FnMut(LinkTo, &mut L)) {
        self.outbox.each_link(show);
    }

    /// The links to runtimes, for tests and drivers.
    pub fn link_mut(&mut self, runtime: usize) -> &mut L {
        self.outbox.link_mut(runtime)
    }

    /// Whether a runtime is at the other end of its link, and whether it gets no new groups.
    pub fn presence(&self, runtime: u16) -> Option<(bool, bool)> {
        let is_there = self.outbox.is_there(usize::from(runtime));
        let is_one = usize::from(runtime) < self.outbox.runtimes();
        is_one.then(|| (is_there, self.presence.is_leaving(runtime)))
    }

    /// Whether ports are not read yet.
    pub fn is_waiting_for_resync(&self) -> bool {
        self.presence.is_waiting()
    }

    // Ports.

    /// Has each port answer for these addresses, by the ports' order, and for no others
    /// ([`Port::claim`]).
    pub fn claim(&mut self, addresses: &[Vec<Prefix>]) -> Result<(), crate::AttachError> {
        self.ports.claim(addresses)
    }

    /// Reads no more from its ports, but those that answer: the beginning of a graceful stop.
    pub fn stop_reading(&mut self) {
        self.ports.stop_reading();
    }

    /// Whether every port has brought all it ever will and nothing waits to be turned or asked.
    pub fn finished(&self) -> bool {
        self.ports.finished()
            && !self.has_hairpins()
            && !self.recovery.is_active()
            && !self.directory.has_suspects()
            && !self.outbox.has_messages()
    }

    /// Whether hairpinned packets wait here to be routed: they are on no link.
    pub fn has_hairpins(&self) -> bool {
        !self.turning.is_empty()
    }

    /// Has room for so many routes from now on, if that is more than before, in memory that
    /// `memory` provides, zeroed: before runtimes come on which
    /// [`SwitchSettings`](super::SwitchSettings) did not count.
    pub fn make_room(&mut self, routes: u32, mut memory: impl FnMut(usize) -> wire::memory::Region) {
        self.directory.make_room(routes as usize, &mut memory);
        let most = super::messages::messages_max(self.outbox.runtimes(), self.directory.blocks.most());
        self.outbox.make_room(most);
    }

    /// Its groups, by runtime.
    pub fn groups(&self) -> Vec<u64> {
        let all = 0..self.outbox.runtimes();
        all.map(|runtime| self.directory.groups(runtime)).collect()
    }

    /// For a switch whose policy is the least load: runtimes count for so many groups more than
    /// they have here ([`super::Placing`]).
    pub fn set_handicaps(&mut self, handicaps: Vec<u32>) {
        self.choice.set_handicaps(handicaps);
    }

    /// Whether flows of a runtime that has failed are to go on elsewhere, as far as this switch
    /// knows.
    pub fn is_recovering(&self) -> bool {
        self.recovery.is_active()
    }

    /// When a port has its next packet, if one knows.
    pub fn next_at(&self) -> Option<u64> {
        self.ports.each().filter_map(Port::next_at).min()
    }

    /// By which descriptors its ports say that there is something to receive; `None` if one of them
    /// does not.
    pub fn wakes_by(&self) -> Option<Vec<i32>> {
        let mut all = Vec::new();
        for port in self.ports.each() {
            all.extend(port.wakes_by()?);
        }
        Some(all)
    }

    /// Writes out what ports buffer.
    pub fn flush(&mut self) {
        self.ports.each_mut().for_each(Port::flush);
    }

    /// The ports, for tests and drivers.
    pub fn port_mut(&mut self, index: usize) -> &mut P {
        self.ports.port_mut(index)
    }

    /// The ports' own counters.
    pub fn port_counters(&self) -> Vec<crate::PortCounters> {
        self.ports.counters().collect()
    }

    /// How many of the pool's buffers its ports keep ready for reception.
    pub fn reserved(&self) -> usize {
        self.ports.each().map(Port::reserved).sum()
    }

    // Figures.

    /// The pool.
    pub fn pool(&self) -> &Pool {
        &self.local.pool
    }

    /// The numbers so far.
    pub fn stats(&self) -> SwitchStats {
        let drops = &self.local.drops;
        let unsent: u64 = self.ports.counters().map(|port| port.unsent_packets).sum();
        let dropped = DropReason::ALL.iter().map(|reason| (reason, drops.of(*reason)));
        let dropped = dropped.chain([(&DropReason::PortUnsent, unsent)]);
        let [received, sent, stalls] = self.ports.figures();
        SwitchStats {
            busy: 0,
            received,
            sent: sent - unsent,
            turned: self.turned,
            held: self.fragments.held() as u64 + self.recovery.packets() as u64,
            dropped: dropped
                .filter(|(_, count)| *count > 0)
                .map(|(reason, count)| Named {
                    function: String::new(),
                    name: reason.name(),
                    count,
                })
                .collect(),
            routes: self.directory.len() as u64,
            reply_keys: self.directory.reply_keys() as u64,
            blocks: self.directory.blocks.len() as u64,
            groups: self.groups(),
            sent_to: self.directory.sent_totals(),
            stalls,
            handed_over: self.handed_over,
            words_refused: self.outbox.rejected(),
            delays: self.ports.delays(),
        }
    }

    // Taps.

    /// Begins to watch; hands the watch back if there are as many as may be.
    pub fn watch(&mut self, watch: Watch) -> Result<(), Watch> {
        watch::open(&mut self.local.tap, Worker::Switch(self.settings.switch), watch)
    }

    /// Ends a watch.
    pub fn unwatch(&mut self, id: u32) {
        watch::close(&mut self.local.tap, id);
    }

    /// Exchanges what a watch has seen for empty memory; `false` if there is no such watch.
    pub fn watched(&mut self, id: u32, seen: &mut Seen) -> bool {
        self.local.tap.as_mut().is_some_and(|tap| tap.swap(id, seen))
    }

    /// Has a trace know its flow by one more key.
    pub fn learn_key(&mut self, id: u32, key: FlowKey) {
        if let Some(tap) = &mut self.local.tap {
            tap.learn(id, key);
        }
    }
}

#[cfg(test)]
impl<P: Port, L: Port> Switch<P, L> {
    /// As if so many packets of other groups had been sent to each runtime.
    pub fn age_links(&mut self, packets: u64) {
        self.directory.age(packets);
    }

    /// The routes there are, and their runtimes.
    pub fn route_keys(&self) -> Vec<(crate::group::GroupKey, u16)> {
        self.directory.keys()
    }

    /// The blocks there are, and their groups.
    pub fn blocks_known(&self) -> Vec<((nf::Addr, u16), crate::group::GroupKey)> {
        self.directory.blocks.known()
    }
}
