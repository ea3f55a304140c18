//! A switch's membership: the leases by which it acts and those it grants, and which runtimes are
//! members.
//!
//! A switch without its lease reads no port, sends nothing by any, and turns nothing around:
//! packets of ports wait there, packets from other workers are counted drops (`no_lease`). Messages
//! are handled. New groups go to runtimes that the view lists as running, and whose incarnation has
//! been heard.
//!
//! Between switches only leases are said; a packet that a removed switch has handed over is routed
//! as any other.
//!
//! Not here: rules and bounds ([`crate::members`]); the ends that follow a runtime's end
//! (`directory`, `outbox`).

use super::Switch;
use crate::env::Port;
use crate::message::Message;
use protocols::membership::{Role, Standing, WorkerId};
use wire::{PacketBox, planted};

impl<P: Port, L: Port> Switch<P, L> {
    /// Whether it has its lease, by the time of this step.
    #[inline(always)]
    pub(super) fn is_leased(&self) -> bool {
        self.local.now < self.lease_until || planted::is("switch_without_lease")
    }

    /// Which runtimes may get new groups.
    #[cold]
    pub(super) fn note_members(&mut self) {
        let Some(leases) = &self.leases else {
            return;
        };
        for runtime in 0..self.outbox.runtimes() {
            let id = WorkerId::runtime(runtime as u16);
            let standing = leases.standing(id, self.outbox.incarnation(runtime));
            let is_member = matches!(standing, Some(Standing::Running | Standing::Leaving));
            self.presence.set_member(runtime, is_member);
            if runtime >= self.listed {
                let is_expected = leases.machine.view().member(id).is_some();
                self.presence.set_expected(runtime, is_expected);
            }
        }
        self.offer_runtimes();
    }

    /// Whether a runtime that may have had groups before this switch began has not told it which.
    /// No time that passes decides that.
    #[cold]
    pub(super) fn is_member_untold(&self) -> bool {
        let Some(leases) = &self.leases else {
            return false;
        };
        let mut earlier = leases.machine.earlier();
        earlier.any(|(id, incarnation)| {
            let runtime = usize::from(id.number);
            let is_known = runtime < self.outbox.runtimes();
            is_known
                && (self.outbox.incarnation(runtime) != incarnation.0 || !self.presence.has_resynced(runtime))
        })
    }

    /// Whether an incarnation of a runtime is over which this switch, as it begins, has not met,
    /// and others have yet to say which copies they have of it: a view has removed it, or the next
    /// one is here.
    pub(super) fn awaits_word_of_removed(&mut self) -> bool {
        if self.presence.is_resynced()
            || crate::replica::is_broken("words of removed incarnations are awaited")
        {
            return false;
        }
        let (outbox, recovery, leases) = (&self.outbox, &mut self.recovery, self.leases.as_deref());
        let now = self.local.now;
        let is_there = |other| outbox.is_there(other);
        let is_removed = |runtime| {
            let mut removed = leases.into_iter().flat_map(|leases| leases.machine.removed());
            removed.any(|(id, _)| usize::from(id.number) == runtime)
        };
        let unmet = (0..outbox.runtimes()).filter(|runtime| self.presence.may_have_unmet(*runtime));
        let mut awaits = false;
        // Each is asked for, so that the time of all begins now.
        for runtime in unmet {
            awaits |= is_removed(runtime) && recovery.awaits_word_of(runtime, is_there, now)
                || recovery.awaits_word_before(runtime, is_there, now);
        }
        awaits
    }

    #[cold]
    pub(super) fn refresh_leases(&mut self) {
        if let Some(leases) = &self.leases {
            self.lease_until = leases.machine.may_act_until();
            self.lease_due = leases.due();
        }
    }

    /// Answers the questions of the step before, and asks for the own lease.
    #[cold]
    pub(super) fn attend_leases(&mut self) -> usize {
        let Some(leases) = &mut self.leases else {
            return 0;
        };
        let (now, incarnation, since) = (self.local.now, leases.incarnation(), leases.since());
        let (outbox, local, mut done) = (&mut self.outbox, &mut self.local, 0);
        leases.grant_all(now, |to, asked| {
            let is_sent = outbox.send_of_lease(to, Message::LeaseGranted(incarnation, asked), local);
            done += usize::from(is_sent);
        });
        leases.ask_all(now, |to| {
            outbox.send_of_lease(to, Message::LeaseAsked(incarnation, since, now), local)
        });
        self.lease_due = leases.due();
        // Without runtimes' leases it may be done.
        self.lease_until = leases.machine.may_act_until();
        done
    }

    /// A worker asks for its lease, or grants this switch's. Says whether a runtime's incarnation
    /// is another one than was known.
    #[cold]
    pub(super) fn handle_lease(&mut self, from: WorkerId, message: Message) {
        let now = self.local.now;
        let Some(leases) = &mut self.leases else {
            return;
        };
        let said = match message {
            Message::LeaseAsked(incarnation, since, asked) => {
                leases.note_question(from, incarnation, asked);
                Some((incarnation, since))
            }
            Message::LeaseGranted(incarnation, asked) => {
                leases.note_grant(now, from, incarnation, asked);
                None
            }
            _ => return,
        };
        let runtime = usize::from(from.number);
        let said = said.filter(|_| from.role == Role::Runtime);
        let view = leases.machine.view();
        let is_other = said.is_some_and(|(incarnation, since)| {
            self.outbox.note_incarnation(runtime, incarnation, since, view)
        });
        self.refresh_leases();
        if is_other {
            self.note_members();
        }
    }

    /// A runtime is met: it is told at once which incarnation this is, and asked.
    pub(super) fn greet(&mut self, runtime: usize) {
        if let Some(leases) = &mut self.leases {
            let id = WorkerId::runtime(runtime as u16);
            leases.note_met(id);
            let asked = Message::LeaseAsked(leases.incarnation(), leases.since(), self.local.now);
            if !self.outbox.send_of_lease(id, asked, &mut self.local) {
                // The incarnation of the sender is said before all else.
                self.outbox.push_message_first(runtime, asked);
            }
            self.lease_due = leases.due();
        }
    }

    /// Messages of another switch: of leases, and nothing else.
    #[cold]
    pub(super) fn handle_of_switch(&mut self, switch: usize, frame: PacketBox) {
        let mut bytes = frame.frame();
        while let Some((message, rest)) = Message::read(bytes) {
            bytes = rest;
            match message {
                Message::LeaseAsked(..) | Message::LeaseGranted(..) if self.leases.is_some() => {
                    self.handle_lease(WorkerId::switch(switch as u16), message);
                }
                _ => self.outbox.reject(),
            }
        }
        if !bytes.is_empty() {
            self.outbox.reject();
        }
        self.outbox.give_home(frame, &mut self.local);
    }

    /// New groups may go to other runtimes than before.
    pub(super) fn offer_runtimes(&mut self) {
        self.choice.offer(self.presence.available(&self.outbox));
    }
}
