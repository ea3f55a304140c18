//! A runtime's membership: leases asked for and granted, views, and what it does without a lease.
//!
//! ```text
//!   step ─► attend_leases: answers, questions ─► links ─► packets of a link without its lease: counted drops (`no_lease`)
//!                                                     └─► transmit: packets that are left over without any lease: the same
//! ```
//!
//! Messages are handled without a lease, too: grants are among them, and what other workers hear of this one they judge by their own views. A packet that is
//! dropped counts as consumed, and a group that it would have begun is idle, as one that is refused.
//!
//! Any lease will do for what leaves: a view removes a runtime only when none of its leases lasts.
//!
//! Not here: rules and bounds ([`crate::members`]), what ends with a worker (`sessions`).

use super::Runtime;
use crate::env::{Burst, Port};
use crate::members::{Leases, WorkerGone};
use crate::message::Message;
use crate::record::Record;
use crate::stats::DropReason;
use protocols::membership::{Membership, Role, Standing, WorkerId};
use wire::packet::Kind;

impl<P: Port> Runtime<P> {
    /// Begins to act by leases and views. To be called before the first step, behind [`Runtime::join`].
    pub fn begin_membership(&mut self, machine: Membership) {
        let leases = Leases::new(machine, self.links.len(), self.peers.len());
        let life = leases.life();
        self.core.sessions.by_views = true;
        self.core.sessions.view = leases.machine.view().number;
        self.leases = Some(leases);
        self.refresh_leases();
        for runtime in 0..self.peers.len() {
            if self.core.sessions.runtimes[runtime] != 0 {
                self.core
                    .out
                    .send_record(runtime as u16, &Record::Incarnation(life));
            }
        }
    }

    /// Its membership, for who hears the coordinator. What has changed in it is in force with [`Runtime::members`].
    pub fn membership_mut(&mut self) -> Option<&mut Membership> {
        self.leases.as_mut().map(|leases| &mut leases.machine)
    }

    /// The one door for "these lives are over by this view". Views come in the order of their numbers; one that is not newer changes nothing. All that a
    /// removed worker has said and that was not handled is dropped.
    pub fn members(&mut self, view: u32, removed: &[WorkerGone]) {
        if view <= self.core.sessions.view {
            return;
        }
        self.core.sessions.view = view;
        let by_views = self.core.sessions.by_views;
        for gone in removed {
            let (number, life) = (usize::from(gone.worker.number), gone.incarnation.0);
            let sessions = &mut self.core.sessions;
            match gone.worker.role {
                Role::Switch => {
                    if let Some(end) = sessions.switch_ends.get_mut(number)
                        && end.remove(life, sessions.switches[number], by_views)
                    {
                        self.drop_backlog(number);
                        self.session_over(number);
                    }
                }
                Role::Runtime => {
                    if let Some(end) = sessions.runtime_ends.get_mut(number)
                        && end.remove(life, sessions.runtimes[number], by_views)
                    {
                        self.runtime_session_over(number);
                    }
                }
            }
        }
        self.refresh_leases();
        if let Some(leases) = &self.leases
            && leases.standing(leases.machine.me(), leases.life()) == Some(Standing::Leaving)
        {
            self.set_leaving(true);
        }
    }

    /// The newest view that it has been told of; 0 before the first.
    pub fn view_number(&self) -> u32 {
        self.core.sessions.view
    }

    /// Whether it may act, and knows what it must before groups may begin here.
    pub fn is_linked(&self) -> bool {
        self.core.now < self.lease_any && !self.core.sessions.is_beginning()
    }

    /// By which of its leases it may act until when.
    #[cold]
    pub(super) fn refresh_leases(&mut self) {
        let Some(leases) = &self.leases else {
            return;
        };
        for (link, until) in self.lease_until.iter_mut().enumerate() {
            *until = leases.machine.may_act_for_until(WorkerId::switch(link as u16));
        }
        self.lease_any = self.lease_until.iter().copied().max().unwrap_or(0);
        self.lease_due = leases.due();
    }

    /// Answers the questions of the step before, and asks for the own leases.
    #[cold]
    pub(super) fn attend_leases(&mut self) -> usize {
        let Some(leases) = &mut self.leases else {
            return 0;
        };
        let (now, life) = (self.core.now, leases.life());
        let (core, mut done) = (&mut self.core, 0);
        leases.grant_all(now, |switch, asked| {
            let link = usize::from(switch.number);
            if core.out.is_present(link) {
                core.out.send(link, &Message::LeaseGranted(life, asked));
                done += 1;
            }
        });
        leases.ask_all(now, |switch| {
            let link = usize::from(switch.number);
            let is_there = core.out.is_present(link);
            if is_there {
                core.out.send(link, &Message::LeaseAsked(life, now));
            }
            is_there
        });
        self.lease_due = leases.due();
        done
    }

    /// A switch asks for its lease, or grants this runtime's.
    #[cold]
    pub(super) fn hear_of_lease(&mut self, link: usize, message: Message) {
        let known = self.core.sessions.switches[link];
        let now = self.core.now;
        let Some(leases) = &mut self.leases else {
            return;
        };
        let switch = WorkerId::switch(link as u16);
        let life = match message {
            Message::LeaseAsked(life, asked) => {
                leases.note_question(switch, life, asked);
                life
            }
            Message::LeaseGranted(life, asked) => {
                leases.note_grant(now, switch, life, asked);
                life
            }
            _ => return,
        };
        // Whether it is over by that is looked at behind the burst.
        self.core.sessions.switch_ends[link].note_life(life, known);
        self.refresh_leases();
    }

    /// Another is at a switch's end: it is told at once which life this is, and asked.
    pub(super) fn greet_switch(&mut self, link: usize) {
        let now = self.core.now;
        if let Some(leases) = &mut self.leases {
            leases.note_met(WorkerId::switch(link as u16));
            let asked = Message::LeaseAsked(leases.life(), now);
            self.core.out.send(link, &asked);
        }
    }

    /// The same at a runtime's.
    pub(super) fn greet_runtime(&mut self, runtime: usize) {
        if let Some(leases) = &self.leases {
            let life = Record::Incarnation(leases.life());
            self.core.out.send_record(runtime as u16, &life);
        }
    }

    /// What a fenced switch has sent is dropped.
    #[cold]
    pub(super) fn drop_fenced(&mut self, link: usize) {
        let mut burst = Burst::new();
        self.links[link].receive(self.core.now, self.core.out.pool_mut(), &mut burst);
        self.drop_unheard(&mut burst);
    }

    /// What was put aside of a switch that is gone is dropped.
    fn drop_backlog(&mut self, link: usize) {
        while let Some(packet) = self.backlog[link].pop() {
            let mut burst = Burst::from_iter([packet]);
            self.drop_unheard(&mut burst);
        }
    }

    /// Drops packets, and messages unread.
    pub(super) fn drop_unheard(&mut self, burst: &mut Burst) {
        for packet in burst.drain(..) {
            match packet.kind() {
                Kind::Data => {
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
        if self.core.now >= self.lease_any {
            self.core.out.drop_unleased();
        }
        self.core.out.transmit(&mut self.links, &mut self.peers);
    }
}
