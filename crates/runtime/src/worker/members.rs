//! The one door for views: a runtime begins to act by leases, and the incarnations that a view has
//! removed are over.
//!
//! Not here: leases (`leases`), the effects of an incarnation's end (`sessions`).

use super::Runtime;
use crate::env::Port;
use crate::members::{Leases, WorkerGone};
use crate::record::Record;
use protocols::membership::{Member, Membership, Role, Standing, WorkerId};
use protocols::ownership::Switches;

impl<P: Port> Runtime<P> {
    /// Begins to act by leases and views. To be called before the first step, behind
    /// [`Runtime::join`].
    pub fn begin_membership(&mut self, machine: Membership) {
        let leases = Leases::new(machine, self.links.len(), self.peers.len());
        let (incarnation, since) = (leases.incarnation(), leases.since());
        self.core.sessions.by_views = true;
        self.core.sessions.view = leases.machine.view().number;
        self.leases = Some(leases);
        self.refresh_leases();
        self.note_standings();
        // It takes part when the coordinator says so.
        self.share_objects(0, protocols::objects::Members::NONE, incarnation);
        for runtime in 0..self.peers.len() {
            if self.core.sessions.runtimes[runtime] != 0 {
                self.core
                    .out
                    .send_record(runtime as u16, &Record::Incarnation(incarnation, since));
            }
        }
    }

    /// Its membership, for the caller that hears the coordinator. Changes in it are in force with
    /// [`Runtime::members`].
    pub fn membership_mut(&mut self) -> Option<&mut Membership> {
        self.leases.as_mut().map(|leases| &mut leases.machine)
    }

    /// The one door for "these incarnations are over by this view". Views come in the order of
    /// their numbers; a view that is not newer changes nothing. All unhandled messages and packets
    /// of a removed worker are dropped.
    pub fn members(&mut self, view: u32, removed: &[WorkerGone]) {
        if view <= self.core.sessions.view {
            return;
        }
        self.core.sessions.view = view;
        let by_views = self.core.sessions.by_views;
        for gone in removed {
            let (number, incarnation) = (usize::from(gone.worker.number), gone.incarnation.0);
            let sessions = &mut self.core.sessions;
            match gone.worker.role {
                Role::Switch => {
                    if let Some(end) = sessions.switch_ends.get_mut(number)
                        && end.remove(incarnation, sessions.switches[number], by_views)
                    {
                        self.drop_backlog(number);
                        self.session_over(number);
                    }
                }
                Role::Runtime => {
                    if let Some(end) = sessions.runtime_ends.get_mut(number)
                        && end.remove(incarnation, sessions.runtimes[number], by_views)
                    {
                        self.runtime_session_over(number);
                    }
                }
            }
        }
        self.look_at_ends();
        self.refresh_leases();
        self.note_standings();
        let leases = self.leases.as_mut();
        if let Some(is_leaving) = leases.and_then(|leases| leases.machine.take_leaving()) {
            self.set_leaving(is_leaving);
        }
    }

    /// Sessions are over of incarnations that an earlier view has and the newest has not.
    fn look_at_ends(&mut self) {
        for link in 0..self.links.len() {
            let Some(leases) = &self.leases else { return };
            let (sessions, view) = (&mut self.core.sessions, leases.machine.view());
            let switch = WorkerId::switch(link as u16);
            if sessions.switch_ends[link].look_at_view(switch, sessions.switches[link], view) {
                self.drop_backlog(link);
                self.session_over(link);
            }
        }
        for runtime in 0..self.peers.len() {
            let Some(leases) = &self.leases else { return };
            let (sessions, view) = (&mut self.core.sessions, leases.machine.view());
            let id = WorkerId::runtime(runtime as u16);
            if sessions.runtime_ends[runtime].look_at_view(id, sessions.runtimes[runtime], view) {
                self.runtime_session_over(runtime);
            }
        }
    }

    /// How this runtime stands, and which switches run.
    fn note_standings(&mut self) {
        let Some(leases) = &self.leases else {
            return;
        };
        let own = leases.standing(leases.machine.me(), leases.incarnation());
        self.core.sessions.is_joining = own == Some(Standing::Joining);
        let running = leases.machine.view().switches();
        let running = running.filter(|switch| switch.standing != Standing::Joining);
        let with = |all: Switches, switch: &Member| {
            u8::try_from(switch.id.number).map_or(all, |number| all.with(number))
        };
        self.core.sessions.running = running.fold(Switches::NONE, with);
        self.core.sessions.listed = leases.machine.view().switches().fold(Switches::NONE, with);
        let incarnations = (0..self.peers.len()).map(|runtime| {
            let member = leases.machine.view().member(WorkerId::runtime(runtime as u16));
            let runs = member.filter(|member| member.standing != Standing::Joining);
            runs.map_or(0, |member| member.incarnation.0)
        });
        self.core.sessions.running_incarnations = incarnations.collect();
        self.core.choose_replica();
    }

    /// The newest view that it has been told of; 0 before the first.
    pub fn view_number(&self) -> u32 {
        self.core.sessions.view
    }

    /// Whether it may act, all switches that run hear it, and it knows what it must before groups
    /// may begin here.
    pub fn is_linked(&self) -> bool {
        let now = self.core.now;
        let leases = self.leases.as_ref();
        now < self.core.leased_until
            && leases.is_none_or(|leases| leases.machine.has_all_leases(now))
            && !self.core.sessions.is_beginning()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::{alone, factory};
    use crate::worker::Settings;
    use nf::{ConfigError, Cx, NetworkFunction, NoConfig, Packet, Verdict, WorkerInfo, network_function};
    use protocols::membership::{Incarnation, Term, View};
    use std::sync::Arc;
    use std::vec;

    const ONE: Incarnation = Incarnation(1);

    /// Lets all packets pass.
    struct Pass;

    #[network_function]
    impl NetworkFunction for Pass {
        const NAME: &'static str = "pass";
        type Config = NoConfig;
        type Flow = ();
        type Group = ();
        fn new(_: &Arc<NoConfig>, _: &WorkerInfo) -> Result<Self, ConfigError> {
            Ok(Pass)
        }
        fn process(&self, _: &mut Packet, _: &mut (), _: &mut Cx<Self>) -> Verdict {
            Verdict::Forward
        }
    }

    /// A view with this runtime, and a switch.
    fn view(number: u32, standing: Standing) -> View {
        let member = |id, standing| Member {
            id,
            incarnation: ONE,
            standing,
        };
        let switch = member(WorkerId::switch(0), Standing::Running);
        View::new(number, vec![switch, member(WorkerId::runtime(0), standing)])
    }

    /// A runtime that a view has drained, and an operator has resumed at its own socket, is not
    /// drained again by the views that follow.
    #[test]
    fn a_runtime_leaves_once_by_views_that_say_the_same() {
        let mut runtime = alone(Settings::alone(16), vec![factory::<Pass>()]);
        let term = Term { lease: 1_000_000 };
        let first = view(1, Standing::Running);
        let machine = Membership::new(WorkerId::runtime(0), ONE, term, first);
        runtime.begin_membership(machine);
        let mut number = 1;
        let mut hear = |runtime: &mut Runtime<_>, standing| {
            number += 1;
            let machine = runtime.membership_mut().unwrap();
            machine.adopt(view(number, standing), |_| ());
            runtime.members(number, &[]);
            runtime.core.is_leaving
        };
        assert!(!hear(&mut runtime, Standing::Running));
        assert!(hear(&mut runtime, Standing::Leaving));
        assert!(hear(&mut runtime, Standing::Leaving));
        runtime.set_leaving(false);
        assert!(!hear(&mut runtime, Standing::Leaving), "a later view");
        assert!(!hear(&mut runtime, Standing::Running));
        assert!(hear(&mut runtime, Standing::Leaving), "it is drained again");
        assert!(!hear(&mut runtime, Standing::Running), "and resumed");
        // A runtime that was drained at its own socket alone stays so.
        runtime.set_leaving(true);
        assert!(hear(&mut runtime, Standing::Running));
    }
}
