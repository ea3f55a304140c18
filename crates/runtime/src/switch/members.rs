//! The one door for views: a switch begins to act by leases, and the incarnations that a view has
//! removed are over.
//!
//! Not here: leases (`leases`), the effects of an incarnation's end (`Switch::session_over`).

use super::Switch;
use crate::env::Port;
use crate::members::{Leases, WorkerGone};
use protocols::membership::{Membership, Role};

impl<P: Port, L: Port> Switch<P, L> {
    /// Begins to act by leases and views. To be called before the first step.
    pub fn begin_membership(&mut self, machine: Membership) {
        self.view = machine.view().number;
        let leases = Leases::new(machine, self.outbox.switches(), self.outbox.runtimes());
        self.leases = Some(leases);
        self.has_stepped = false;
        self.outbox.go_by_views();
        for runtime in 0..self.outbox.runtimes() {
            self.presence.set_member(runtime, false);
        }
        self.refresh_leases();
        self.note_members();
    }

    /// Of its runtimes so many are listed by the configuration. It waits for the others only where
    /// a view has them. To be called before [`Switch::begin_membership`].
    pub fn expect_listed(&mut self, listed: usize) {
        self.listed = listed;
        for runtime in listed..self.outbox.runtimes() {
            self.presence.set_expected(runtime, false);
        }
    }

    /// Its membership, for the caller that hears the coordinator. Changes in it are in force with
    /// [`Switch::members`].
    pub fn membership_mut(&mut self) -> Option<&mut Membership> {
        self.leases.as_mut().map(|leases| &mut leases.machine)
    }

    /// The one door for "these incarnations are over by this view". Views come in the order of
    /// their numbers; a view that is not newer changes nothing. All unhandled messages and packets
    /// of a removed runtime are dropped.
    pub fn members(&mut self, view: u32, removed: &[WorkerGone]) {
        if view <= self.view {
            return;
        }
        self.view = view;
        let of_runtimes = removed.iter().filter(|gone| gone.worker.role == Role::Runtime);
        for gone in of_runtimes {
            let runtime = usize::from(gone.worker.number);
            if self.outbox.remove(runtime, gone.incarnation.0) {
                self.session_over(runtime);
            }
        }
        for runtime in 0..self.outbox.runtimes() {
            let over = self.leases.as_ref();
            let over = over.is_some_and(|leases| self.outbox.look_at_view(runtime, leases.machine.view()));
            if over {
                self.session_over(runtime);
            }
        }
        self.refresh_leases();
        self.note_members();
    }

    /// The newest view that it has been told of; 0 before the first.
    pub fn view_number(&self) -> u32 {
        self.view
    }

    /// Whether it may act, and reads its ports.
    pub fn is_linked(&self) -> bool {
        self.is_leased() && !self.presence.is_waiting()
    }
}
