//! A runtime's membership: leases asked for and granted, views, and its acts without a lease.
//!
//! ```text
//!   step ─► attend_leases: answers, questions ─► links ─► packets of a link without its lease: counted drops (`no_lease`)
//!                                                     ├─► packets that waited (a move, a call) without any lease: the same
//!                                                     ├─► transmit: packets that are left over without any lease: the same
//!                                                     └─► deadlines and timers without any lease: left for later
//! ```
//!
//! Messages are handled without a lease, too: grants are among them, and other workers judge this
//! one's messages by their own views. One word waits for a lease: that a group has arrived
//! (`mobility::stored`). Its source lets go then, though its view may have this runtime long after
//! another view removed it. A packet that is dropped counts as consumed, and a group that it would
//! have begun is idle, as a refused one.
//!
//! Any lease will do for packets that waited and for packets that leave: a view removes a runtime
//! only when none of its leases lasts.
//!
//! Not here: rules and bounds ([`crate::members`]), the effects of a worker's end (`sessions`).

use super::Runtime;
use crate::env::{Burst, Port};
use crate::message::Message;
use crate::record::{NO_VIEW, Record};
use crate::stats::DropReason;
use protocols::membership::WorkerId;
use wire::packet::{Kind, flag};

impl<P: Port> Runtime<P> {
    /// By which of its leases it may act until when.
    #[cold]
    pub(super) fn refresh_leases(&mut self) {
        let Some(leases) = &self.leases else {
            return;
        };
        for (link, until) in self.lease_until.iter_mut().enumerate() {
            *until = leases.machine.may_act_for_until(WorkerId::switch(link as u16));
        }
        self.core.leased_until = self.lease_until.iter().copied().max().unwrap_or(0);
        self.lease_due = leases.due();
    }

    /// Answers the questions of the step before, and asks for the own leases.
    #[cold]
    pub(super) fn attend_leases(&mut self) -> usize {
        let Some(leases) = &mut self.leases else {
            return 0;
        };
        let (now, incarnation, since) = (self.core.now, leases.incarnation(), leases.since());
        let (core, mut done) = (&mut self.core, 0);
        leases.grant_all(now, |switch, asked| {
            let link = usize::from(switch.number);
            if core.out.is_present(link) {
                core.out.send(link, &Message::LeaseGranted(incarnation, asked));
                done += 1;
            }
        });
        leases.ask_all(now, |switch| {
            let link = usize::from(switch.number);
            let is_there = core.out.is_present(link);
            if is_there {
                core.out.send(link, &Message::LeaseAsked(incarnation, since, now));
            }
            is_there
        });
        self.lease_due = leases.due();
        done
    }

    /// A switch asks for its lease, or grants this runtime's.
    #[cold]
    pub(super) fn handle_lease(&mut self, link: usize, message: Message) {
        let known = self.core.sessions.switches[link];
        let now = self.core.now;
        let Some(leases) = &mut self.leases else {
            return;
        };
        let switch = WorkerId::switch(link as u16);
        match message {
            Message::LeaseAsked(incarnation, since, asked) => {
                leases.note_question(switch, incarnation, asked);
                let view = leases.machine.view();
                self.core.sessions.switch_ends[link].note_incarnation(
                    switch,
                    incarnation,
                    since,
                    known,
                    view,
                );
            }
            Message::LeaseGranted(incarnation, asked) => leases.note_grant(now, switch, incarnation, asked),
            _ => return,
        }
        self.refresh_leases();
    }

    /// Another is at a switch's end: it is told at once which incarnation this is, and asked.
    pub(super) fn greet_switch(&mut self, link: usize) {
        let now = self.core.now;
        if let Some(leases) = &mut self.leases {
            leases.note_met(WorkerId::switch(link as u16));
            let asked = Message::LeaseAsked(leases.incarnation(), leases.since(), now);
            self.core.out.send(link, &asked);
        }
        // With views a lease says it.
        if self.core.sender.is_wanted() || self.leases.is_none() {
            let incarnation = Message::Incarnation(self.core.incarnation());
            self.core.out.send(link, &incarnation);
        }
    }

    /// The same at a runtime's.
    pub(super) fn greet_runtime(&mut self, runtime: usize) {
        if let Some(leases) = &self.leases {
            let incarnation = Record::Incarnation(leases.incarnation(), leases.since());
            self.core.out.send_record(runtime as u16, &incarnation);
        } else if !self.core.sender.is_wanted() {
            let incarnation = Record::Incarnation(self.core.incarnation(), NO_VIEW);
            self.core.out.send_record(runtime as u16, &incarnation);
        }
        if self.core.sender.is_wanted() {
            let incarnation = Record::Copy(self.core.no_base());
            self.core.out.send_record(runtime as u16, &incarnation);
        }
    }

    /// A runtime says which incarnation it is: by views, or by none. A runtime that begins says the
    /// latter first: its own views come behind its links.
    #[cold]
    pub(super) fn handle_incarnation(&mut self, runtime: usize, incarnation: u64, since: u32) {
        if since == NO_VIEW {
            return self.core.sessions.note_said(runtime, incarnation);
        }
        if let Some(leases) = &self.leases {
            let view = leases.machine.view();
            self.core
                .sessions
                .note_incarnation(runtime, incarnation, since, view);
            self.core.choose_replica();
        }
    }

    /// Packets and messages of a fenced switch are dropped.
    #[cold]
    pub(super) fn drop_fenced(&mut self, link: usize) {
        let mut burst = Burst::new();
        self.links[link].receive(self.core.now, self.core.out.pool_mut(), &mut burst);
        self.drop_unheard(&mut burst);
    }

    /// Packets put aside of a switch that is gone are dropped.
    pub(super) fn drop_backlog(&mut self, link: usize) {
        while let Some(packet) = self.backlog[link].pop() {
            let mut burst = Burst::from_iter([packet]);
            self.drop_unheard(&mut burst);
        }
    }

    /// Drops packets, and messages unread. Copies that functions held are in no count.
    pub(super) fn drop_unheard(&mut self, burst: &mut Burst) {
        for packet in burst.drain(..) {
            match packet.kind() {
                Kind::Data if !packet.has(flag::COPY) => {
                    self.received += 1;
                    self.core.out.drop_packet(packet, DropReason::PeerGone);
                }
                _ => self.core.out.recycle(packet),
            }
        }
    }

    /// Transmits; without any lease, packets that are left over are dropped.
    #[inline]
    pub(super) fn transmit(&mut self) {
        if self.core.is_unleased() && !crate::replica::is_broken("what leaves needs a lease") {
            self.core.out.drop_unleased();
        }
        let known = &self.core.sessions.runtimes;
        self.core.out.transmit(&mut self.links, &mut self.peers, known);
    }
}
