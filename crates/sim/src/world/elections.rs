//! Where there are several coordinators: their processes, of which one is elected, and the store by
//! which it is.
//!
//! ```text
//!   candidate ── path: delay, loss, doubling, late for long ──► store ── path ──► candidate
//!      └─ elected, and has read the log: its office leads ([`super::joined`])
//! ```
//!
//! A process polls what there is to ask now and then, so a process that was deposed while it stood
//! still goes on for a moment, as that of `flowkeep coordinator` does. Then it ends, and begins
//! again.
//!
//! Not here: a coordinator's process ([`crate::candidate`]), the store ([`crate::store`]).

use super::members::CoordinatorHost;
use super::{Due, World};
use crate::Time;
use crate::candidate::{Candidate, Step, TTL};
use crate::checkers::elected::{self, Records};
use crate::network::{Noise, Passage, Path};
use crate::random::{Random, Stream};
use crate::script::{MILLI, Script};
use crate::store::{Reply, Request, Store};
use crate::timeline::Event;

/// How often a process sees what there is to ask, at most.
const POLL: u64 = 5 * MILLI;
/// The longest until a process that has ended begins again.
const GUARD: u64 = 10 * MILLI;
/// One request in so many is carried out late, by so much at most.
const LATE_IN: u64 = 32;
const LATE: u64 = 200 * MILLI;

/// See the module's page.
pub(super) struct Elections {
    store: Store,
    /// By coordinator; `None` while its process is down.
    candidates: Vec<Option<Candidate>>,
    runs: Vec<u32>,
    /// To the store and from it.
    to: Vec<Path>,
    from: Vec<Path>,
    records: Records,
    is_healed: bool,
    is_calm: bool,
    random: Random,
}

impl Elections {
    /// Where there are several.
    pub fn new(script: &Script, coordinator_hosts: &[CoordinatorHost]) -> Option<Self> {
        if coordinator_hosts.len() < 2 {
            return None;
        }
        let apart = script.shape.apart?;
        let noise = Noise {
            corrupted: 0,
            ..apart.noise
        };
        let path = |index: usize| {
            let random = Random::of(script.seed, Stream::Offices, 64 + index as u64);
            Path::new(apart.delay, noise, random)
        };
        let store = Store::new(TTL, coordinator_hosts.first()?.office.records());
        Some(Elections {
            store,
            candidates: coordinator_hosts
                .iter()
                .map(|_| Some(Candidate::new(0, 0)))
                .collect(),
            runs: vec![0; coordinator_hosts.len()],
            to: (0..coordinator_hosts.len()).map(path).collect(),
            from: (coordinator_hosts.len()..2 * coordinator_hosts.len())
                .map(path)
                .collect(),
            records: Records::default(),
            is_healed: false,
            is_calm: script.is_calm,
            random: Random::of(script.seed, Stream::Offices, 32),
        })
    }

    /// The elected one, if it leads.
    pub fn leading(&self) -> Option<usize> {
        let (office, _) = self.store.leader()?;
        let candidate = self.candidates.get(usize::from(office))?.as_ref()?;
        candidate.leads().then_some(usize::from(office))
    }

    /// How far a process is.
    pub fn in_words(&self, office: usize) -> String {
        let candidate = self.candidates.get(office).and_then(Option::as_ref);
        candidate.map_or("is down".to_owned(), Candidate::in_words)
    }

    /// A process ends, without a word.
    pub fn crash(&mut self, office: u8) {
        self.candidates[usize::from(office)] = None;
    }

    /// Cuts a coordinator off from the store, or joins them again. `to`: the way to the
    /// coordinator.
    pub fn cut(&mut self, office: u8, to: bool, from: bool, is_cut: bool) {
        if from {
            self.to[usize::from(office)].is_cut = is_cut;
        }
        if to {
            self.from[usize::from(office)].is_cut = is_cut;
        }
    }

    /// All faults are over.
    pub fn heal(&mut self) {
        for path in self.to.iter_mut().chain(&mut self.from) {
            path.noise = Noise::default();
            path.is_cut = false;
        }
        self.store.heal();
        self.is_healed = true;
    }
}

impl World<'_> {
    /// The first coordinator is the elected one at the beginning; the others wait.
    pub(super) fn begin_elections(&mut self) {
        let Some(members) = &mut self.members else {
            return;
        };
        let Some(elections) = &mut members.elections else {
            return;
        };
        let local = members.coordinator_hosts[0].local(0);
        let mut asked = Vec::new();
        // Without a network between them: it was elected long ago.
        while let Some(candidate) = &mut elections.candidates[0]
            && !candidate.leads()
        {
            candidate.poll(0, local, |call, request| asked.push((call, request.clone())));
            for (call, request) in asked.drain(..) {
                let reply = elections.store.carry_out(0, 0, request);
                candidate.hear(0, local, call, reply);
            }
        }
        let offices = members.joined.offices;
        for office in 0..offices {
            self.poll_soon(office, 0);
        }
    }

    fn poll_soon(&mut self, office: u8, run: u32) {
        let now = self.now();
        if let Some(members) = &mut self.members
            && let Some(elections) = &mut members.elections
        {
            let at = now.max(members.coordinator_hosts[usize::from(office)].stalled_until);
            let at = at + 1 + elections.random.below(POLL);
            self.plan_for(at, Due::Poll(office, run));
        }
    }

    /// A process sees what there is to ask of the store, or that it is elected no more.
    pub(super) fn poll_office(&mut self, office: u8, run: u32) {
        let now = self.now();
        let index = usize::from(office);
        let Some(members) = &mut self.members else {
            return;
        };
        let (Some(elections), coordinator_host) = (&mut members.elections, &members.coordinator_hosts[index])
        else {
            return;
        };
        let Some(candidate) = elections.candidates[index].as_mut() else {
            return;
        };
        if candidate.run != run {
            return;
        }
        let (local, is_stalled) = (coordinator_host.local(now), coordinator_host.stalled_until > now);
        if !is_stalled && candidate.ends(local) {
            return self.end_office(office);
        }
        if !is_stalled {
            self.ask(office);
        }
        self.poll_soon(office, run);
    }

    /// A process whose lease is over ends, and its guard begins it again.
    fn end_office(&mut self, office: u8) {
        let now = self.now();
        let index = usize::from(office);
        let Some(members) = &mut self.members else {
            return;
        };
        let Some(elections) = &mut members.elections else {
            return;
        };
        let candidate = elections.candidates[index].take();
        let time = 1 + elections.random.below(GUARD);
        let coordinator_host = &mut members.coordinator_hosts[index];
        coordinator_host.office.crash(0);
        coordinator_host.planned = 0;
        self.timeline.note(now, Event::Deposed(office));
        if let Some(candidate) = candidate
            && let Some(word) = candidate.resign()
        {
            self.send_to_store(office, candidate.run, 0, &word);
        }
        self.plan_for(now + time, Due::Office(office));
    }

    /// A process begins, and waits to be elected.
    pub(super) fn stand_for_election(&mut self, office: u8) {
        let now = self.now();
        let index = usize::from(office);
        if let Some(members) = &mut self.members
            && let Some(elections) = &mut members.elections
            && elections.candidates[index].is_none()
        {
            elections.runs[index] += 1;
            let run = elections.runs[index];
            elections.candidates[index] = Some(Candidate::new(run, now));
            members.coordinator_hosts[index].stalled_until = 0;
            self.poll_soon(office, run);
        }
    }

    fn ask(&mut self, office: u8) {
        let now = self.now();
        let index = usize::from(office);
        let mut asked = Vec::new();
        let mut run = 0;
        if let Some(members) = &mut self.members
            && let Some(elections) = &mut members.elections
            && let Some(candidate) = &mut elections.candidates[index]
        {
            run = candidate.run;
            let local = members.coordinator_hosts[index].local(now);
            candidate.poll(now, local, |call, request| asked.push((call, request.clone())));
        }
        for (call, request) in asked {
            self.send_to_store(office, run, call, &request);
        }
    }

    fn send_to_store(&mut self, office: u8, run: u32, call: u32, request: &Request) {
        let now = self.now();
        let Some(elections) = self
            .members
            .as_mut()
            .and_then(|members| members.elections.as_mut())
        else {
            return;
        };
        let is_noisy = !elections.is_calm && !elections.is_healed;
        if let Passage::Arrives(first, second) = elections.to[usize::from(office)].put(now, 128) {
            let mut planned = Vec::new();
            for arrival in second.into_iter().chain([first]) {
                let is_late = is_noisy && elections.random.once_in(LATE_IN);
                let more = if is_late { elections.random.below(LATE) } else { 0 };
                planned.push(arrival.at + more);
            }
            for at in planned {
                self.plan_for(at, Due::Asked(office, run, call, Box::new(request.clone())));
            }
        }
    }

    /// A request has come to the store.
    pub(super) fn ask_store(&mut self, office: u8, run: u32, call: u32, request: Box<Request>) {
        let now = self.now();
        let Some(elections) = self
            .members
            .as_mut()
            .and_then(|members| members.elections.as_mut())
        else {
            return;
        };
        let ready_at = elections.store.ready_at(now);
        if ready_at > now {
            return self.plan_for(ready_at, Due::Asked(office, run, call, request));
        }
        let before = elections.store.leader();
        let reply = elections.store.carry_out(now, office, *request);
        let is_another = elections.store.leader().filter(|leader| Some(*leader) != before);
        let mut found = Ok(());
        for written in elections.store.take_written() {
            found = found.and(elections.records.see(written));
        }
        if let Passage::Arrives(first, second) = elections.from[usize::from(office)].put(now, 128) {
            for arrival in second.into_iter().chain([first]) {
                let reply = Box::new(reply.clone());
                self.plan_for(arrival.at, Due::Replied(office, run, call, reply));
            }
        }
        self.fail(found);
        if let Some((leader, revision)) = is_another {
            self.timeline.note(now, Event::Leads(leader, revision));
            self.look_at_elected(now, leader);
        }
    }

    /// The store carries nothing out for so long.
    pub(super) fn stall_store(&mut self, time: u64) {
        let now = self.now();
        if let Some(elections) = self
            .members
            .as_mut()
            .and_then(|members| members.elections.as_mut())
        {
            elections.store.stall(now, now + time);
        }
    }

    /// A coordinator was elected: all that take themselves for elected are shown to the checker.
    fn look_at_elected(&mut self, now: Time, leader: u8) {
        let Some(members) = &self.members else { return };
        let Some(elections) = &members.elections else {
            return;
        };
        let candidates = elections.candidates.iter().zip(&members.coordinator_hosts);
        let others = candidates
            .zip(0..)
            .filter_map(|((candidate, coordinator_host), office)| {
                let elected = candidate.as_ref()?.elected(coordinator_host.local(now));
                (office != leader && elected.is_some()).then_some(office)
            });
        let elected: Vec<u8> = [leader].into_iter().chain(others).collect();
        self.fail(elected::are_few(&elected));
    }

    /// The store's answer has come back.
    pub(super) fn handle_store_reply(&mut self, office: u8, run: u32, call: u32, reply: Box<Reply>) {
        let now = self.now();
        let index = usize::from(office);
        let Some(members) = &mut self.members else {
            return;
        };
        let coordinator_host = &mut members.coordinator_hosts[index];
        if coordinator_host.stalled_until > now {
            let at = coordinator_host.stalled_until;
            return self.plan_for(at, Due::Replied(office, run, call, reply));
        }
        let candidate = members
            .elections
            .as_mut()
            .map(|elections| &mut elections.candidates[index]);
        let Some(candidate) = candidate.and_then(Option::as_mut) else {
            return;
        };
        if candidate.run != run {
            return;
        }
        let local = coordinator_host.local(now);
        match candidate.hear(now, local, call, *reply) {
            Step::Nothing => {}
            Step::Written => {
                coordinator_host.planned -= 1;
                coordinator_host.office.note_written(local);
            }
            Step::Leads(records) => {
                let settling = coordinator_host.office.settling();
                coordinator_host.planned = 0;
                coordinator_host.office.lead(local, settling, records);
                if let Some(knows) = coordinator_host.office.knows() {
                    let in_force = (members.view.number, members.list);
                    let found = elected::knows(office, knows, in_force);
                    self.fail(found);
                }
            }
        }
        self.follow_office(office);
        self.ask(office);
    }

    /// Records of a coordinator are on their way to the store, and others may go.
    pub(super) fn follow_records(&mut self, office: u8) {
        let index = usize::from(office);
        let Some(members) = &mut self.members else {
            return;
        };
        let coordinator_host = &mut members.coordinator_hosts[index];
        let candidate = members
            .elections
            .as_mut()
            .map(|elections| &mut elections.candidates[index]);
        let Some(candidate) = candidate.and_then(Option::as_mut) else {
            return;
        };
        while let Some((number, record)) = coordinator_host.office.nth_pending(coordinator_host.planned) {
            coordinator_host.planned += 1;
            candidate.append(number, record);
        }
        candidate.forget(coordinator_host.office.take_spare());
    }
}
