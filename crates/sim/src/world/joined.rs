//! Where workers have joined a coordinator: its process, the members' agents, and the network
//! between these.
//!
//! ```text
//!   agent ── path ──► office (coordinator) ── path ──► agent ─► before the next step: view, suspects ─► worker
//!     ▲ each heartbeat                 └─ records: written a while later
//! ```
//!
//! A member is a process. It beats if a worker of it has taken a step. A process of which a worker
//! finds itself removed ends soon, with all its workers, and begins again with a greater
//! incarnation; so does a process that crashes. A process that begins joins first, and no worker of
//! it takes a step before all of them are members.
//!
//! An agent is a thread of its process: it beats while a worker of it lives and is not stopped, and
//! says nothing of those that have taken no step. All workers of a process are in one message.
//!
//! Not here: their state (`members`), decisions (`protocols::membership`), coordinators and agents
//! themselves ([`crate::coordinator`], [`crate::agent`]).

use super::members::{HOUR, YEAR, incarnation_of};
use super::{Due, World};
use crate::agent::Agent;
use crate::checkers::fenced;
use crate::coordinator::{Said, Told, id_of};
use crate::network::{Noise, Passage};
use crate::script::{Beyond, MILLI};
use crate::timeline::Event;
use protocols::membership::{Incarnation, Membership, View};

/// How often the coordinator looks at which members are silent.
const LOOK: u64 = 10 * MILLI;
/// The longest that a record takes until it is in the log.
const WRITING: u64 = 5 * MILLI;
/// The longest that a removed worker goes on before its process ends, and until it begins again.
const ENDING: u64 = 5 * MILLI;
const BEGINNING: u64 = 10 * MILLI;

impl World<'_> {
    /// All workers begin with the first view.
    pub(super) fn begin_members(&mut self) {
        if let (Some(at), Some(last)) = (self.script.comes_at, self.turns.last_mut()) {
            last.down_until = at;
        }
        let Some(mut members) = self.members.take() else {
            return;
        };
        for worker in 0..members.agents.len() {
            let machine = members.agents[worker].sit_down(&members.joined, members.view.clone());
            self.begin_membership(worker, machine);
            if !self.has_agent(worker as u8) {
                continue;
            }
            let at = members.random.below(members.joined.heartbeat);
            self.plan_for(at, Due::Beat(worker as u8));
        }
        self.plan_for(LOOK, Due::Look);
        self.members = Some(members);
        self.begin_elections();
    }

    pub(super) fn begin_membership(&mut self, worker: usize, machine: Option<Membership>) {
        let Some(machine) = machine else { return };
        let switches = usize::from(self.script.shape.switches);
        match worker.checked_sub(switches) {
            None => self.cluster.switches[worker].begin_membership(machine),
            Some(runtime) => self.cluster.runtimes[runtime].begin_membership(machine),
        }
        self.timeline.note(self.now(), Event::Joined(worker as u8));
    }

    /// Whether a worker takes steps: it need not join, or has.
    pub(super) fn has_member_slot(&self, worker: u8) -> bool {
        let members = self.members.as_ref();
        members.is_none_or(|members| members.agents[usize::from(worker)].has_member_slot())
    }

    /// Before a worker's step at `local` of its clock.
    pub(super) fn attend(&mut self, worker: u8, local: u64) {
        let Some(mut members) = self.members.take() else {
            return;
        };
        let index = usize::from(worker);
        let switches = usize::from(self.script.shape.switches);
        let agent = &mut members.agents[index];
        let was_fenced = agent.is_fenced;
        let cluster = &mut self.cluster;
        match index.checked_sub(switches) {
            None => {
                let switch = &mut cluster.switches[index];
                let gone = switch.membership_mut().map(|machine| {
                    let gone = agent.attend(local, machine);
                    (gone, machine.view().clone())
                });
                if let Some((Some(gone), view)) = gone {
                    switch.members(view.number, &gone);
                    self.found = members.views.see(Some(agent.incarnation), &view).err();
                }
                agent.is_ready = switch.is_linked();
            }
            Some(runtime) => {
                let runtime = &mut cluster.runtimes[runtime];
                let gone = runtime.membership_mut().map(|machine| {
                    let gone = agent.attend(local, machine);
                    (gone, machine.view().clone())
                });
                if let Some((Some(gone), view)) = gone {
                    runtime.members(view.number, &gone);
                    self.found = members.views.see(Some(agent.incarnation), &view).err();
                }
                agent.is_ready = runtime.is_linked();
            }
        }
        if agent.is_fenced && !was_fenced {
            let (incarnation, after) = (agent.incarnation.1, members.random.below(ENDING));
            self.timeline.note(self.now(), Event::Fenced(worker));
            self.plan_for(self.now() + after, Due::Fenced(worker, incarnation));
        }
        self.members = Some(members);
        if let Some(found) = self.found.take() {
            self.fail(Err(found));
        }
    }

    /// Which incarnation a worker is, where workers have joined.
    pub(super) fn incarnation_of(&self, worker: usize) -> Option<Incarnation> {
        let members = self.members.as_ref()?;
        members.agents[worker]
            .has_member_slot()
            .then(|| members.agents[worker].incarnation.1)
    }

    /// An operator has the coordinator drain a worker.
    pub(super) fn drain_by_office(&mut self, worker: u8, incarnation: Incarnation) {
        let now = self.now();
        let Some(members) = &mut self.members else {
            return;
        };
        let Some(which) = members.leading() else {
            return;
        };
        let coordinator_host = &mut members.coordinator_hosts[which];
        if coordinator_host.stalled_until <= now {
            let (local, id) = (
                coordinator_host.local(now),
                members.agents[usize::from(worker)].incarnation.0,
            );
            coordinator_host.office.drain(local, (id, incarnation));
        }
        self.follow_office(which as u8);
    }

    /// A worker takes no more steps: its agent says that it leaves.
    pub(super) fn leave_view(&mut self, worker: u8) {
        if let Some(members) = &mut self.members {
            members.agents[usize::from(worker)].has_left = true;
        }
    }

    /// Whether the incarnation that a worker is was removed.
    pub(super) fn is_removed(&self, worker: usize) -> bool {
        let members = self.members.as_ref();
        members.is_some_and(|members| members.is_removed(worker))
    }

    /// Which runtimes have a lease, of any switch, and take steps.
    pub(super) fn which_may_act(&mut self) -> Vec<bool> {
        let (now, switches) = (self.now(), usize::from(self.script.shape.switches));
        let gone: Vec<bool> = (switches..self.turns.len())
            .map(|worker| self.is_gone(worker))
            .collect();
        let runtimes = self.cluster.runtimes.iter_mut().zip(&self.turns[switches..]);
        runtimes
            .zip(gone)
            .map(|((runtime, turn), is_gone)| {
                let until = runtime.membership_mut().map(|machine| machine.may_act_until());
                !is_gone && until.is_some_and(|until| until > turn.now(now))
            })
            .collect()
    }

    /// A removed runtime has taken a step.
    pub(super) fn look_at_removed(&mut self, worker: u8) {
        if !self.is_removed(usize::from(worker)) {
            return;
        }
        let runtime = usize::from(worker - self.script.shape.switches);
        let passed = self.cluster.runtimes[runtime].stats().passed;
        let Some(members) = &mut self.members else {
            return;
        };
        let before = std::mem::replace(&mut members.passed[usize::from(worker)], passed);
        if passed > before {
            let what = format!("passes {} packets on", passed - before);
            let name = self.script.worker(worker);
            self.fail(Err(fenced::has_effect(&name, &what)));
        }
    }

    /// A removed switch has read this many frames, and sent so many.
    pub(super) fn look_at_removed_switch(&mut self, switch: u8, read: usize, sent: usize) {
        if read + sent > 0 && self.is_removed(usize::from(switch)) {
            let what = format!("reads {read} frames and sends {sent}");
            let name = self.script.worker(switch);
            self.fail(Err(fenced::has_effect(&name, &what)));
        }
    }

    /// A coordinator hears an agent.
    pub(super) fn handle_agent(&mut self, worker: u8, office: u8, told: Box<Told>) {
        let now = self.now();
        let Some(members) = &mut self.members else {
            return;
        };
        let are_several = members.elections.is_some();
        let coordinator_host = &mut members.coordinator_hosts[usize::from(office)];
        if coordinator_host.stalled_until > now {
            let at = coordinator_host.stalled_until;
            return self.plan_for(at, Due::Told(worker, office, told));
        }
        let local = coordinator_host.local(now);
        let is_here = coordinator_host.office.is_up();
        let answer = coordinator_host.office.hear(local, *told);
        let answer = match answer {
            None if are_several => Some(if is_here { Said::Nothing } else { Said::NotHere }),
            answer => answer,
        };
        if let Some(said) = answer {
            self.send_to_agent(worker, office, &said);
        }
        self.follow_office(office);
    }

    /// Coordinators look at which members are silent.
    pub(super) fn look_at_silence(&mut self) {
        let now = self.now();
        let Some(members) = &mut self.members else {
            return;
        };
        for coordinator_host in &mut members.coordinator_hosts {
            if coordinator_host.stalled_until <= now {
                let local = coordinator_host.local(now);
                coordinator_host.office.look(local);
            }
        }
        let offices = members.joined.offices;
        self.plan_for(now + LOOK, Due::Look);
        for office in 0..offices {
            self.follow_office(office);
        }
    }

    /// A record is in the log of a coordinator's own.
    pub(super) fn note_written(&mut self, run: u32) {
        let now = self.now();
        let Some(members) = &mut self.members else {
            return;
        };
        let coordinator_host = &mut members.coordinator_hosts[0];
        if coordinator_host.office.runs != run || !coordinator_host.office.is_up() {
            return;
        }
        coordinator_host.planned -= 1;
        let local = coordinator_host.local(now);
        coordinator_host.office.note_written(local);
        self.follow_office(0);
    }

    /// Follows up on a coordinator's input: records are on their way to the log, and news is said
    /// to all.
    pub(super) fn follow_office(&mut self, office: u8) {
        let now = self.now();
        let Some(members) = &mut self.members else {
            return;
        };
        let coordinator_host = &mut members.coordinator_hosts[usize::from(office)];
        if members.elections.is_some() {
            self.follow_records(office);
        } else {
            let mut written = Vec::new();
            while coordinator_host.planned < coordinator_host.office.pending() {
                coordinator_host.planned += 1;
                coordinator_host.written_at =
                    coordinator_host.written_at.max(now) + members.random.below(WRITING);
                written.push(coordinator_host.written_at);
            }
            let run = coordinator_host.office.runs;
            for at in written {
                self.plan_for(at, Due::Written(run));
            }
        }
        self.look_at_views(office);
        let Some(members) = &mut self.members else {
            return;
        };
        let coordinator_host = &mut members.coordinator_hosts[usize::from(office)];
        let Some(Said::Newest(view, list, suspects)) = coordinator_host.office.newest() else {
            return;
        };
        if (view.number, list) == coordinator_host.said {
            return;
        }
        coordinator_host.said = (view.number, list);
        // A coordinator that was elected before says words that have been said.
        if view.number > members.view.number || list > members.list {
            let event = Event::InForce(view.number, list, suspects.len() as u16);
            self.come_into_force(view.clone(), list);
            self.timeline.note(now, event);
        }
        for worker in 0..self.turns.len() {
            let members = self.members.as_ref();
            if self.has_agent(worker as u8)
                && members.is_some_and(|members| members.agents[worker].office == office)
            {
                self.send_to_agent(
                    worker as u8,
                    office,
                    &Said::Newest(view.clone(), list, suspects.clone()),
                );
            }
        }
    }

    fn look_at_views(&mut self, office: u8) {
        let Some(members) = &mut self.members else {
            return;
        };
        let is_deposed = members.leading() != Some(usize::from(office));
        let office = &mut members.coordinator_hosts[usize::from(office)].office;
        if is_deposed {
            // A deposed coordinator does not know what another has decided since.
            office.is_log_behind = None;
        }
        let mut found = match &office.is_log_behind {
            Some(what) => Err(fenced::forgotten(what)),
            None => Ok(()),
        };
        if let Some(view) = office.view() {
            found = found.and(members.views.see(None, view));
        }
        self.fail(found);
    }

    /// A view is in the log: incarnations that it does not have are over, and have no lease by now.
    fn come_into_force(&mut self, view: View, list: u64) {
        let now = self.now();
        let Some(mut members) = self.members.take() else {
            return;
        };
        let was_removed: Vec<bool> = (0..self.turns.len())
            .map(|worker| members.is_removed(worker))
            .collect();
        members.list = list;
        members.view = view;
        for (worker, was_removed) in was_removed.into_iter().enumerate() {
            if was_removed || !members.is_removed(worker) {
                continue;
            }
            if !members.agents[worker].has_left {
                // Its flows are over, or go on elsewhere.
                self.order.cut();
            }
            let local = self.turns[worker].now(now);
            let switches = usize::from(self.script.shape.switches);
            let machine = match worker.checked_sub(switches) {
                None => self.cluster.switches[worker].membership_mut(),
                Some(runtime) => {
                    let runtime = &mut self.cluster.runtimes[runtime];
                    members.passed[worker] = runtime.stats().passed;
                    runtime.membership_mut()
                }
            };
            let until = machine.map_or(0, |machine| machine.may_act_until());
            // A worker that leaves takes no more steps.
            if until > local && !members.agents[worker].has_left {
                let name = self.script.worker(worker as u8);
                self.fail(Err(fenced::may_act(members.view.number, &name, until - local)));
            }
        }
        self.members = Some(members);
    }

    /// A coordinator crashes, and begins again after so long.
    pub(super) fn crash_office(&mut self, office: u8, time: u64) {
        let now = self.now();
        let Some(members) = &mut self.members else {
            return;
        };
        let coordinator_host = &mut members.coordinator_hosts[usize::from(office)];
        let written = members.random.below(coordinator_host.office.pending() as u64 + 1) as usize;
        coordinator_host.office.crash(written);
        coordinator_host.planned = 0;
        coordinator_host.written_at = 0;
        if let Some(elections) = &mut members.elections {
            elections.crash(office);
        }
        self.plan_for(now + time, Due::Office(office));
    }

    /// A coordinator is there again.
    pub(super) fn begin_office(&mut self, office: u8) {
        let now = self.now();
        let Some(members) = &mut self.members else {
            return;
        };
        if members.elections.is_some() {
            return self.stand_for_election(office);
        }
        let coordinator_host = &mut members.coordinator_hosts[usize::from(office)];
        if !coordinator_host.office.is_up() {
            coordinator_host.ahead = members.clocks.of_these(&[0, HOUR, YEAR]);
            let (local, settling) = (coordinator_host.local(now), coordinator_host.office.settling());
            coordinator_host.stalled_until = 0;
            coordinator_host.office.begin(local, settling);
        }
        self.follow_office(office);
    }

    /// A coordinator does nothing for so long.
    pub(super) fn stall_office(&mut self, office: u8, time: u64) {
        let until = self.now() + time;
        if let Some(members) = &mut self.members {
            let coordinator_host = &mut members.coordinator_hosts[usize::from(office)];
            coordinator_host.stalled_until = coordinator_host.stalled_until.max(until);
        }
    }

    /// Cuts a coordinator off from all members, or from the store, or joins them again.
    pub(super) fn cut_office_off(
        &mut self,
        office: u8,
        whom: Beyond,
        (to, from): (bool, bool),
        is_cut: bool,
    ) {
        let Some(members) = &mut self.members else {
            return;
        };
        let coordinator_host = &mut members.coordinator_hosts[usize::from(office)];
        if whom != Beyond::Store {
            if to {
                coordinator_host
                    .to
                    .iter_mut()
                    .for_each(|path| path.is_cut = is_cut);
            }
            if from {
                coordinator_host
                    .from
                    .iter_mut()
                    .for_each(|path| path.is_cut = is_cut);
            }
        }
        if let Some(elections) = &mut members.elections
            && whom != Beyond::Members
        {
            elections.cut(office, to, from, is_cut);
        }
    }

    /// Cuts a worker's agent off from all coordinators, or joins them again.
    pub(super) fn cut_office(&mut self, worker: u8, to: bool, from: bool, is_cut: bool) {
        let worker = self.script.shape.first_of(worker.into());
        if let Some(members) = &mut self.members {
            for coordinator_host in &mut members.coordinator_hosts {
                if to {
                    coordinator_host.to[worker].is_cut = is_cut;
                }
                if from {
                    coordinator_host.from[worker].is_cut = is_cut;
                }
            }
        }
    }

    /// All faults of members are over.
    pub(super) fn heal_members(&mut self) {
        if let Some(members) = &mut self.members {
            for coordinator_host in &mut members.coordinator_hosts {
                for path in coordinator_host.to.iter_mut().chain(&mut coordinator_host.from) {
                    path.noise = Noise::default();
                    path.is_cut = false;
                }
                coordinator_host.stalled_until = 0;
            }
            if let Some(elections) = &mut members.elections {
                elections.heal();
            }
        }
        let offices = self.members.as_ref().map_or(0, |members| members.joined.offices);
        for office in 0..offices {
            self.begin_office(office);
        }
    }

    /// Whether all workers are members that may act, and nothing is left to decide.
    pub(super) fn members_are_at_rest(&self) -> bool {
        let Some(members) = &self.members else {
            return true;
        };
        let cluster = &self.cluster;
        members.is_at_rest(self.now())
            && cluster.switches.iter().all(|switch| switch.is_linked())
            && cluster.runtimes.iter().all(|runtime| runtime.is_linked())
    }

    /// The members' state in words, to find what does not rest.
    pub(super) fn members_in_words(&self) -> String {
        let Some(members) = &self.members else {
            return String::new();
        };
        let switches = self.cluster.switches.iter().map(|switch| switch.is_linked());
        let linked = switches.chain(self.cluster.runtimes.iter().map(|runtime| runtime.is_linked()));
        let each = members.agents.iter().zip(linked).enumerate();
        let each: Vec<String> = each
            .map(|(worker, (agent, is_linked))| {
                let (view, list) = agent.knows();
                format!(
                    "{} incarnation {} view {view} list {list} linked {is_linked}",
                    self.script.worker(worker as u8),
                    agent.incarnation.1.0
                )
            })
            .collect();
        let offices = members
            .coordinator_hosts
            .iter()
            .enumerate()
            .map(|(which, coordinator_host)| {
                let process = members.elections.as_ref();
                let process = process.map_or(String::new(), |elections| elections.in_words(which));
                let (knows, pending) = (coordinator_host.office.knows(), coordinator_host.office.pending());
                format!("coordinator {which} {process} {knows:?} {pending} pending; ")
            });
        let offices: String = offices.collect();
        format!(
            ", {offices}view {} list {} at rest {}: {}",
            members.view.number,
            members.list,
            members.is_at_rest(self.now()),
            each.join(", ")
        )
    }

    /// Whether an agent is with this worker: it is the first of its process.
    pub(super) fn has_agent(&self, worker: u8) -> bool {
        self.script.shape.first_of(worker.into()) == usize::from(worker)
    }

    /// An agent says what there is.
    pub(super) fn beat(&mut self, worker: u8) {
        let now = self.now();
        let index = usize::from(worker);
        let process = self.script.shape.process_of(worker);
        let is_up = process.iter().any(|worker| {
            let turns = &self.turns[usize::from(*worker)];
            turns.down_until <= now && turns.stalled_until <= now
        });
        let Some(members) = &mut self.members else {
            return;
        };
        let pause = members.joined.heartbeat + members.random.below(members.joined.heartbeat / 8);
        members.agents[index].look_for_office(now, members.joined.offices, false);
        let told = is_up.then(|| members.tell(&process)).flatten();
        self.plan_for(now + pause, Due::Beat(worker));
        if let Some(told) = told {
            self.send_to_office(worker, &told);
        }
    }

    fn send_to_office(&mut self, worker: u8, told: &Told) {
        let now = self.now();
        let Some(members) = &mut self.members else {
            return;
        };
        let index = usize::from(worker);
        let office = members.agents[index].office;
        if let Passage::Arrives(first, second) =
            members.coordinator_hosts[usize::from(office)].to[index].put(now, 64)
        {
            for arrival in second.into_iter().chain([first]) {
                self.plan_for(arrival.at, Due::Told(worker, office, Box::new(told.clone())));
            }
        }
    }

    pub(super) fn send_to_agent(&mut self, worker: u8, office: u8, said: &Said) {
        let now = self.now();
        let Some(members) = &mut self.members else {
            return;
        };
        let index = usize::from(worker);
        let incarnation = members.agents[index].incarnation.1;
        if let Passage::Arrives(first, second) =
            members.coordinator_hosts[usize::from(office)].from[index].put(now, 256)
        {
            for arrival in second.into_iter().chain([first]) {
                self.plan_for(
                    arrival.at,
                    Due::Said(worker, office, incarnation, Box::new(said.clone())),
                );
            }
        }
    }

    /// An agent hears a coordinator.
    pub(super) fn handle_office(&mut self, worker: u8, office: u8, incarnation: Incarnation, said: Said) {
        let now = self.now();
        let index = usize::from(worker);
        let Some(members) = &mut self.members else {
            return;
        };
        let offices = members.joined.offices;
        let agent = &mut members.agents[index];
        if agent.office != office {
            return;
        }
        if let Said::NotHere = said {
            return agent.look_for_office(now, offices, true);
        }
        agent.heard_at = now;
        let process = self.script.shape.process_of(worker);
        if agent.has_left {
            let agents = &members.agents;
            let is_in =
                |view: &View, worker: &u8| view.has(agents[usize::from(*worker)].incarnation.0, incarnation);
            let is_over =
                matches!(&said, Said::Newest(view, ..) if !process.iter().any(|worker| is_in(view, worker)));
            if is_over && agents[index].incarnation.1 == incarnation {
                self.end_if_left(worker);
            }
            return;
        }
        if agent.incarnation.1 != incarnation
            || self.turns[index].down_until > now
            || matches!(said, Said::Nothing)
        {
            return;
        }
        for worker in process {
            self.handle_said(worker, &said);
        }
    }

    /// A worker's member slot hears what was said to its agent.
    fn handle_said(&mut self, worker: u8, said: &Said) {
        let index = usize::from(worker);
        let Some(members) = &mut self.members else {
            return;
        };
        let agent = &mut members.agents[index];
        match said {
            Said::Newest(..) if agent.has_member_slot() => agent.hear(said.clone()),
            Said::Member(view) => {
                let machine = agent.sit_down(&members.joined, view.clone());
                // The answer to a question that was asked twice says nothing.
                if machine.is_some() {
                    let seen = members.views.see(Some(agent.incarnation), view);
                    self.fail(seen);
                    self.begin_membership(index, machine);
                }
            }
            Said::Over if !agent.has_member_slot() => {
                self.cluster.incarnations[index] += 1;
                agent.give_up();
                return;
            }
            Said::Newest(..) | Said::Over | Said::NotHere | Said::Nothing => {}
        }
        self.rouse(worker, self.now());
    }

    /// A worker's process has ended: the next one has to join.
    pub(super) fn begin_agent(&mut self, worker: usize) {
        let begun = self.cluster.incarnations[worker];
        let switches = usize::from(self.script.shape.switches);
        if let Some(members) = &mut self.members {
            members.agents[worker] = Agent::new(incarnation_of(id_of(worker, switches), begun));
        }
    }

    /// A worker whose incarnation is over: its process ends, and begins again.
    pub(super) fn end_fenced(&mut self, worker: u8, incarnation: Incarnation) {
        let Some(members) = &mut self.members else {
            return;
        };
        if members.agents[usize::from(worker)].incarnation.1 == incarnation {
            let time = members.random.below(BEGINNING);
            self.crash_one(worker, time);
        }
    }
}
