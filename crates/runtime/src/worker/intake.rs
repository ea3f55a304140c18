//! Packets, homecoming buffers and messages from links to switches, each message behind all packets
//! before it.
//!
//! Not here: the effects of each ([`crate::parts`], [`crate::mobility`]).

use super::Runtime;
use crate::env::{Burst, Port};
use crate::message::Message;
use crate::stats::DropReason;
use wire::packet::{Kind, flag};
use wire::{PacketBox, PacketList, planted};

impl<P: Port> Runtime<P> {
    /// Processes what a link brought.
    #[inline]
    pub(super) fn data(&mut self, link: usize, burst: &mut Burst) {
        if burst.is_empty() {
            return;
        }
        if self.core.settings.switches > 0 {
            self.sort_out(link, burst);
        } else {
            // Straight from a port: the notes of a buffer's former packet are over.
            burst.iter_mut().for_each(|packet| packet.clear_hairpins());
        }
        self.received += burst.len() as u64;
        self.take_up_leased(link, burst);
    }

    /// Looks at the lease of the switch that sent a burst before it is processed.
    #[inline(always)]
    fn take_up_leased(&mut self, link: usize, burst: &mut Burst) {
        match self.core.now < self.lease_until[link] || planted::is("runtime_without_lease") {
            true => self.take_up(link, burst),
            false => self.refuse_all(link, burst, DropReason::NoLease),
        }
    }

    /// Takes buffers that came home out of a burst, and acts on messages, each behind the packets
    /// before it.
    fn sort_out(&mut self, link: usize, burst: &mut Burst) {
        let mut packets = Burst::new();
        let mut all = burst.take().into_iter();
        while let Some(mut packet) = all.next() {
            match packet.kind() {
                Kind::Data => {
                    packet.clear_flags(flag::COPY);
                    packets.push(packet);
                }
                Kind::Empty => self.core.out.recycle(packet),
                Kind::Message => {
                    self.received += packets.len() as u64;
                    self.take_up_leased(link, &mut packets);
                    self.handle(link, &packet);
                    self.core.out.recycle(packet);
                    if self.is_known_fenced(link) {
                        self.drop_unheard(&mut all.by_ref().collect());
                        break;
                    }
                    if !self.core.out.has_room() {
                        // Answers to messages take the buffers for a step's own messages: the other
                        // messages come later.
                        self.put_aside(link, &mut all);
                    }
                }
            }
        }
        *burst = packets;
    }

    /// Puts the rest of a burst in front of the packets put aside.
    #[cold]
    fn put_aside(&mut self, link: usize, rest: &mut dyn Iterator<Item = PacketBox>) {
        let mut list = PacketList::new();
        let aside = &mut self.backlog[link];
        for packet in rest.chain(core::iter::from_fn(|| aside.pop())) {
            list.push(packet);
        }
        *aside = list;
    }

    /// Acts on what a switch says and asks, all packets before them being processed.
    #[cold]
    fn handle(&mut self, link: usize, frame: &PacketBox) {
        let mut bytes = frame.frame();
        while let Some((message, rest)) = Message::read(bytes) {
            bytes = rest;
            match message {
                Message::RouteSuspect(key) => self.moves.handle_route_suspect(&mut self.core, link, key),
                Message::BlockSuspect(block, group) => {
                    self.moves
                        .handle_block_suspect(&mut self.core, link, block, group)
                }
                Message::RouteConflict(group) => self.core.handle_route_conflict(group),
                Message::Switch(group, says) => {
                    self.moves
                        .handle_switch_message(&mut self.core, link, group, says)
                }
                Message::BlockReturned(block, home) if home.0 == self.core.settings.info.runtime => {
                    self.moves.handle_block_returned(&mut self.core, block, link);
                }
                Message::BlockLent(block, home, to) if to.0 == self.core.settings.info.runtime => {
                    self.core.handle_lent(link, block, home);
                }
                Message::LendsOver(home) => self.core.handle_lends_over(link, home),
                Message::BlockClaimed(block, _) => self.core.handle_block_in_use(link, block),
                Message::Resynced => self.core.handle_resynced(link),
                Message::Heir(failed, incarnation) => self.keeper.note_heir(link, failed, incarnation),
                Message::Keeps(failed, 0, incarnation) => {
                    self.keeper.note_late(&mut self.core, link, failed, incarnation);
                }
                lease @ (Message::LeaseAsked(..) | Message::LeaseGranted(..)) => {
                    self.handle_lease(link, lease);
                    if self.is_known_fenced(link) {
                        return;
                    }
                }
                Message::BarrierAcknowledged(round) => self.core.out.barrier_mut().acknowledge(link, round),
                // A switch says no such message.
                _ => self.core.out.reject(),
            }
            self.apply_moves();
        }
        if !bytes.is_empty() {
            // No record.
            self.core.out.reject();
        }
    }
}
