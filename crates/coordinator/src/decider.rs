//! The thread that decides: it drives the membership machine, and has names, numbers and loads.
//!
//! # Theory of operation
//!
//! ```text
//!   service ── Told (bounded queue) ──► decider ── records ──► log thread
//!                                          ▲  └─ newest view ─► NotifyView     │
//!                                          └───────── Report ──────────────────┘
//! ```
//!
//! Heartbeats count from when they came in, not from when they are looked at: a slow decider
//! suspects no worker for that. A coordinator that was stopped itself (more than half of a
//! suspicion between two looks, or since the service's last turn, which hears members) suspects no
//! worker for as long again: a suspicion at least, twice the settling time at most.
//!
//! A worker's number belongs to its member's name, its role and its place among the member's
//! workers of that role, for good. It is in the log, with the incarnation, before the machine hears
//! of the worker.
//!
//! States: *settling* (listens, decides nothing) → *deciding* ⇄ *in trouble* (the log takes
//! nothing) → *over* (the log is not to be trusted). Only *deciding* takes asks that need a record.
//!
//! *A runtime that is to be recovered* though it lives is heard no more from then on. So the
//! machine finds it silent, withdraws its leases and removes it by
//! a view, as any other that has failed; of a coordinator that begins again meanwhile it is heard
//! again, and stays.
//!
//! Not here: rights (`service`), the disk (`log`).

mod asks;
mod configured;
mod enlisted;
mod listed;
mod loads;
mod number_table;
mod recording;
mod shared;
mod standing;
mod status;
mod telling;
mod term;
mod trial;

pub use asks::{Ask, DeciderAnswer, Enlisting, Handle, Published, Question, Told};

pub use trial::TRIAL_MS;

use crate::log::{Log, LogError, Report, Writer};
use crate::proto;
use crate::refusal::Refusal;
use crate::server::{Event, Events, Turns};
use crate::translate;
use configured::Configured;
use number_table::{NoNumber, NumberTable, Slot};
use prost::Message;
use protocols::membership::{Coordinator, Entry, Incarnation, Input, Role, Standing, Timing, View, WorkerId};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};
use tokio::sync::{oneshot, watch};

/// Asks that wait for the decider at most.
pub const ASKS_MAX: usize = 1024;
/// Answers that wait for a view, and records of asks that wait for the log, at most.
const WAITING_MAX: usize = 256;
/// How long an answer waits for a view.
const PATIENCE: Duration = Duration::from_secs(20);
/// Behind the settling time: an agent that was with another coordinator finds that one silent, and
/// may find an address silent that it tries before this one.
const RETURNING: Duration = crate::agent::SILENCE.saturating_mul(2);
/// Records that the log has besides those that are needed, before they go.
const SPARE: usize = 64;

/// Work that waits for its record.
enum Pending {
    Entry(u64),
    /// The last of a member's workers.
    Join(Box<Joining>),
    Number,
    Token(oneshot::Sender<DeciderAnswer>),
    /// The last of the records by which a member has numbers.
    Enlisted(Box<proto::EnlistAnswer>, oneshot::Sender<DeciderAnswer>),
    /// Which runtimes share objects.
    Shared,
    /// The decided configuration, and the way back to the operator, if one asked for it.
    Configured(Box<proto::Configuration>, Option<oneshot::Sender<DeciderAnswer>>),
    /// The record in the place of a decision that was withdrawn.
    Instead,
}

struct Joining {
    incarnations: Vec<(WorkerId, Incarnation)>,
    answer: oneshot::Sender<DeciderAnswer>,
}

/// An answer that waits for a view.
struct Waiting {
    until: Instant,
    incarnations: Vec<(WorkerId, Incarnation)>,
    /// The standing that the view must have them in; `None`: it must not have them.
    standing: Option<Standing>,
    answer: oneshot::Sender<DeciderAnswer>,
}

/// Nanoseconds.
fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

pub(crate) struct Decider {
    begun: Instant,
    looked: Instant,
    /// The service's turns.
    serving: Turns,
    timing: Timing,
    machine: Coordinator,
    number_table: NumberTable,
    configured: Configured,
    shared: shared::Shared,
    writer: Writer,
    next_record: u64,
    /// Records that are not known to be in the log, in order.
    pending: VecDeque<(u64, Pending)>,
    /// Decisions in the log, and those on their way: by the machine's number.
    decisions: BTreeMap<u64, u64>,
    /// Numbers of records that are needed no more.
    spare: Vec<u64>,
    joining: BTreeSet<(WorkerId, Incarnation)>,
    waiting: Vec<Waiting>,
    heard: BTreeMap<WorkerId, (Instant, proto::Load)>,
    /// Workers whose last heartbeat named others that they do not hear.
    missing: BTreeSet<WorkerId>,
    /// Incarnations that are to be removed, and are heard no more.
    unheard: BTreeSet<(WorkerId, Incarnation)>,
    /// When members are told loads again.
    loads_at: Instant,
    trouble: Option<String>,
    is_over: Option<String>,
    published: watch::Sender<Arc<Published>>,
    events: Events,
    refused: Arc<crate::refusal::Refusals>,
}

/// The state that the log leads to.
pub(crate) struct Replayed {
    machine: Coordinator,
    number_table: NumberTable,
    configured: Configured,
    shared: shared::Shared,
    decisions: BTreeMap<u64, u64>,
    spare: Vec<u64>,
    next_record: u64,
    /// Leases last as long as the log says.
    pub timing: Timing,
}

/// Reads the log, or begins it with a view without members.
pub(crate) fn replay(log: &mut dyn Log, timing: Timing) -> Result<Replayed, LogError> {
    let mut records = log.read()?;
    if records.is_empty() {
        let first = Entry::View(View::new(1, Vec::new()));
        let what = proto::record::What::Decision(translate::decision(0, &first));
        let record = proto::Record { what: Some(what) }.encode_to_vec();
        log.append(0, &record)?;
        records.push((0, record));
    }
    let (mut number_table, mut decisions) = (NumberTable::default(), BTreeMap::new());
    let (mut configured, mut shared) = (Configured::default(), shared::Shared::default());
    let mut leases = term::Logged::default();
    let (mut entries, mut spare, mut next_record) = (Vec::new(), Vec::new(), 0);
    for (number, record) in records {
        next_record = number.saturating_add(1);
        let record = proto::Record::decode(&*record).map_err(|_| LogError::Meaning(number))?;
        match record.what.ok_or(LogError::Meaning(number))? {
            proto::record::What::Decision(decision) => {
                let entry = translate::to_decision(&decision).ok_or(LogError::Meaning(number))?;
                decisions.insert(entry.0, number);
                entries.push(entry);
            }
            proto::record::What::Numbered(numbered) => {
                let before = number_table
                    .number(number, &numbered)
                    .ok_or(LogError::Meaning(number))?;
                spare.extend(before);
            }
            proto::record::What::TokenUsed(token) => {
                number_table
                    .use_token(number, &token)
                    .ok_or(LogError::Meaning(number))?;
            }
            proto::record::What::Enlisted(contact) => spare.extend(number_table.enlist(number, contact)),
            proto::record::What::Configured(configuration) => {
                let before = configured.replay(number, configuration);
                spare.extend(before.ok_or(LogError::Meaning(number))?);
            }
            proto::record::What::Sharing(sharing) => {
                let before = shared.replay(number, &sharing);
                spare.extend(before.ok_or(LogError::Meaning(number))?);
            }
            proto::record::What::Leases(last) => {
                let before = leases.replay(number, &last);
                spare.extend(before.ok_or(LogError::Meaning(number))?);
            }
        }
    }
    let (timing, before) = leases.decide(log, timing, &entries, &mut next_record)?;
    spare.extend(before);
    let settling = timing.settling.saturating_mul(2);
    let machine = Coordinator::replay(0, Timing { settling, ..timing }, entries);
    let mut machine = machine.map_err(|why| LogError::Order(format!("{why:?}")))?;
    machine.wait_for_return(nanos(RETURNING));
    Ok(Replayed {
        machine,
        number_table,
        configured,
        shared,
        decisions,
        spare,
        next_record,
        timing,
    })
}

impl Decider {
    pub(crate) fn new(
        replayed: Replayed,
        writer: Writer,
        (begun, serving): (Instant, Turns),
        events: Events,
        refused: Arc<crate::refusal::Refusals>,
    ) -> (Self, watch::Receiver<Arc<Published>>) {
        let contacts = enlisted::contacts(&replayed.machine, &replayed.number_table);
        let first = Published {
            sharing: replayed.shared.newest(),
            ..Published::of(&replayed.machine, replayed.configured.decided(), contacts)
        };
        let (published, newest) = watch::channel(Arc::new(first));
        let decider = Decider {
            begun,
            looked: begun,
            serving,
            timing: replayed.timing,
            machine: replayed.machine,
            number_table: replayed.number_table,
            configured: replayed.configured,
            shared: replayed.shared,
            writer,
            next_record: replayed.next_record,
            pending: VecDeque::new(),
            decisions: replayed.decisions,
            spare: replayed.spare,
            joining: BTreeSet::new(),
            waiting: Vec::new(),
            heard: BTreeMap::new(),
            missing: BTreeSet::new(),
            unheard: BTreeSet::new(),
            loads_at: begun,
            trouble: None,
            is_over: None,
            published,
            events,
            refused,
        };
        (decider, newest)
    }

    /// Until it is told to end, or no sender is left that could tell it anything.
    /// Says each of its turns.
    pub(crate) fn run(mut self, told: &Receiver<Told>, turn: impl Fn()) {
        let pause = Duration::from_nanos(self.timing.suspicion / 4);
        let pause = pause.clamp(Duration::from_millis(1), Duration::from_millis(10));
        loop {
            let first = match told.recv_timeout(pause) {
                Ok(Told::End) | Err(RecvTimeoutError::Disconnected) => return,
                Ok(first) => Some(first),
                Err(RecvTimeoutError::Timeout) => None,
            };
            self.look_at_clock();
            // Messages that have come in count before any worker is found silent.
            for told in first.into_iter().chain(told.try_iter().take(ASKS_MAX)) {
                match told {
                    Told::End => return,
                    told => self.handle(told),
                }
            }
            self.look();
            turn();
        }
    }

    /// A coordinator that was stopped, or whose service was, has heard no worker, and suspects none
    /// for that.
    fn look_at_clock(&mut self) {
        let now = Instant::now();
        let gap = now.saturating_duration_since(self.looked);
        let gap = nanos(gap.max(self.serving.since_last()));
        if gap > self.timing.suspicion / 2 {
            self.machine.stood_still(self.at(now), gap);
        }
        self.looked = now;
    }

    fn is_settling(&self) -> bool {
        nanos(self.begun.elapsed()) < self.timing.settling
    }

    fn handle(&mut self, told: Told) {
        match told {
            Told::Ask(ask) => self.on_ask(ask),
            Told::Workload(at, member, workload) => self.on_workload(at, &member, &workload),
            Told::Log(report) => self.on_report(report),
            Told::End => {}
        }
    }

    fn look(&mut self) {
        let now = Instant::now();
        if !self.is_settling() {
            self.tell(now, Input::Tick);
        }
        self.tell_loads(now);
        self.look_at_shared();
        if self.why_not_now().is_none() {
            self.look_at_trial(now);
        }
        let mut kept = Vec::new();
        for waiting in std::mem::take(&mut self.waiting) {
            if self.is_done(&waiting) {
                let _ = waiting.answer.send(DeciderAnswer::Done(waiting.incarnations));
            } else if now >= waiting.until {
                let answer = DeciderAnswer::Refused(Refusal::Late, self.why_late());
                let _ = waiting.answer.send(answer);
            } else if !waiting.answer.is_closed() {
                kept.push(waiting);
            }
        }
        self.waiting = kept;
        if self.spare.len() >= SPARE {
            self.writer.forget(std::mem::take(&mut self.spare));
        }
    }

    fn why_late(&self) -> String {
        match (&self.is_over, &self.trouble) {
            (Some(why), _) | (_, Some(why)) => why.clone(),
            _ => "an earlier incarnation of a worker is not fenced yet, or some member has not heard of the \
                  newest view"
                .to_owned(),
        }
    }

    fn is_done(&self, waiting: &Waiting) -> bool {
        let view = self.machine.view();
        waiting.incarnations.iter().all(|(id, incarnation)| {
            let member = view
                .member(*id)
                .filter(|member| member.incarnation == *incarnation);
            match waiting.standing {
                None => member.is_none(),
                // A worker that joins waits only to be in the view.
                Some(Standing::Joining) => member.is_some(),
                Some(standing) => member.is_some_and(|member| member.standing == standing),
            }
        })
    }

    fn on_report(&mut self, report: Report) {
        match report {
            Report::Written(number) => {
                if self.trouble.take().is_some() {
                    (self.events)(Event::LogTakes);
                }
                while let Some((first, _)) = self.pending.front()
                    && *first <= number
                    && let Some((written, pending)) = self.pending.pop_front()
                {
                    self.on_written(written, pending);
                }
            }
            Report::Trouble(why) => {
                let why = format!("the log takes no records: {why}");
                if self.trouble.as_ref() != Some(&why) {
                    (self.events)(Event::Trouble(why.clone()));
                }
                self.trouble = Some(why);
            }
            Report::Over(why) => self.end_deciding(format!("the log is not to be trusted: {why}")),
            Report::Withdrawn(number) => self.on_withdrawn(number),
        }
    }

    fn on_written(&mut self, record: u64, pending: Pending) {
        match pending {
            Pending::Entry(number) => self.tell(Instant::now(), Input::Logged(number)),
            Pending::Number => {}
            Pending::Shared => self.on_shared(record),
            Pending::Token(answer) => {
                let _ = answer.send(DeciderAnswer::Done(Vec::new()));
            }
            Pending::Enlisted(enlisted, answer) => {
                let _ = answer.send(DeciderAnswer::Enlisted(enlisted));
            }
            Pending::Join(joining) => self.bring_in(joining.incarnations, joining.answer),
            Pending::Configured(configuration, answer) => {
                self.on_configured(record, *configuration, answer);
            }
            Pending::Instead => self.spare.push(record),
        }
    }

    fn end_deciding(&mut self, why: String) {
        if self.is_over.is_none() {
            (self.events)(Event::Trouble(why.clone()));
            self.is_over = Some(why);
        }
    }

    fn on_workload(&mut self, at: Instant, member: &str, workload: &proto::Workload) {
        for beat in &workload.heartbeats {
            let Some((id, incarnation)) = beat.worker.as_ref().and_then(translate::to_worker) else {
                return self.refused.count(Refusal::Malformed);
            };
            if !self.number_table.is_of(id, member) {
                return self.refused.count(Refusal::Foreign);
            }
            if beat.view > self.machine.view().number || beat.list > self.machine.suspects().0 {
                self.refused.count(Refusal::LogBehind);
                return self.end_deciding(format!(
                    "the log has lost records: member `{member}` knows view {} and list {}, the log ends with {} and {}. \
                     Restore it from a copy",
                    beat.view,
                    beat.list,
                    self.machine.view().number,
                    self.machine.suspects().0
                ));
            }
            if self.unheard.contains(&(id, incarnation)) {
                continue;
            }
            if self.machine.view().has(id, incarnation) {
                self.heard.insert(id, (at, beat.load.unwrap_or_default()));
            }
            if let Some(shares) = &beat.shares
                && let Err(refusal) = self.on_shares(id, incarnation, shares)
            {
                self.refused.count(refusal);
                if refusal == Refusal::LogBehind {
                    self.end_deciding(self.shared.lost(id));
                }
                return;
            }
            if self.is_settling() {
                continue;
            }
            self.tell(at, Input::Heartbeat(id, incarnation, beat.view, beat.list));
            let stands = self.machine.view().member(id).copied();
            let stands = stands.filter(|stands| stands.incarnation == incarnation);
            // A member is ready in each of its heartbeats: that is no word against an operator's.
            let is_told = self.machine.is_to_stand(id, incarnation);
            let is_joining = stands.is_some_and(|stands| stands.standing == Standing::Joining);
            if beat.ready && is_joining && !is_told {
                self.tell(at, Input::Stand(id, incarnation, Some(Standing::Running)));
            }
            let Some(unheard) = translate::to_workers(&beat.unheard) else {
                return self.refused.count(Refusal::Malformed);
            };
            let was_missing = self.missing.remove(&id);
            if !unheard.is_empty() {
                self.missing.insert(id);
            }
            if was_missing || !unheard.is_empty() {
                self.tell(at, Input::Unheard(id, incarnation, unheard));
            }
            for withdrawn in &beat.withdrawn {
                let Some(of) = withdrawn.worker.as_ref().and_then(translate::to_worker) else {
                    return self.refused.count(Refusal::Malformed);
                };
                let (by, incarnation, list) = (id, incarnation, withdrawn.list);
                self.tell(
                    at,
                    Input::Withdrawn {
                        by,
                        incarnation,
                        of,
                        list,
                    },
                );
            }
        }
        self.on_in_force(member, workload.configuration);
        for (id, incarnation) in workload.stopped.iter().filter_map(translate::to_worker) {
            if self.number_table.is_of(id, member) && !self.is_settling() {
                self.tell(at, Input::Stopped(id, incarnation));
            }
        }
    }

    fn on_ask(&mut self, ask: Ask) {
        let Ask { question, answer } = ask;
        let needs_log = !matches!(question, Question::Status | Question::Configuration);
        let refusal = match needs_log {
            true => self.why_not_now(),
            false => None,
        };
        if let Some((refusal, why)) = refusal {
            let _ = answer.send(DeciderAnswer::Refused(refusal, why));
            return;
        }
        match question {
            Question::Status => {
                let _ = answer.send(DeciderAnswer::Status(Box::new(self.status())));
            }
            Question::Token { id, expires } => self.on_token(id, expires, answer),
            Question::Join {
                member,
                incarnation,
                first,
                roles,
                numbers,
                plan,
            } => self.on_join(&member, (incarnation, first), (&roles, &numbers), plan, answer),
            Question::Enlist(enlisting) => self.on_enlist(*enlisting, answer),
            Question::Leave { member, incarnation } => {
                let incarnations = self.incarnations_of(&member);
                let incarnations = incarnations.into_iter().filter(|(_, of)| *of == incarnation);
                let incarnations: Vec<_> = incarnations.collect();
                self.configured.leaves(&incarnations);
                self.stand(incarnations, None, answer);
            }
            Question::Configuration => {
                let configuration = self.configured.newest().clone();
                let _ = answer.send(DeciderAnswer::Configuration(Box::new(configuration)));
            }
            Question::Configure { view, configuration } => self.on_configure(view, *configuration, answer),
            Question::Confirm => self.on_confirm(answer),
            Question::Recover { runtime } => self.on_recover(WorkerId::runtime(runtime), answer),
            Question::Drain { member } => self.on_stand(&member, Standing::Leaving, answer),
            Question::Resume { member } => self.on_stand(&member, Standing::Running, answer),
        }
    }

    fn why_not_now(&self) -> Option<(Refusal, String)> {
        if let Some(why) = &self.is_over {
            return Some((Refusal::LogBehind, why.clone()));
        }
        if let Some(why) = &self.trouble {
            return Some((Refusal::LogUnwritable, why.clone()));
        }
        if self.is_settling() {
            let left = Duration::from_nanos(self.timing.settling).saturating_sub(self.begun.elapsed());
            let why = format!("the coordinator has just begun; ask again in {left:.1?}");
            return Some((Refusal::Settling, why));
        }
        let is_full = self.waiting.len() >= WAITING_MAX || self.pending.len() >= WAITING_MAX;
        is_full.then(|| (Refusal::Busy, "too many ask at once; ask again".to_owned()))
    }

    fn on_token(&mut self, id: [u8; 16], expires: u64, answer: oneshot::Sender<DeciderAnswer>) {
        let now = crate::server::since_1970();
        self.spare.extend(self.number_table.forget_tokens(now.as_secs()));
        let token = proto::TokenUsed {
            id: id.to_vec(),
            expires,
        };
        let room = match self.number_table.has_token(&id) {
            true => Err((
                Refusal::TokenReplayed,
                "the token was used before; get another one".to_owned(),
            )),
            false => self.number_table.make_room_for_token(now.as_secs()).map_err(|left| {
                let why = format!(
                    "as many tokens were used as are remembered, and none has been over for long: ask again in {left} s, and make tokens that are good for a shorter time (--valid)"
                );
                (Refusal::Busy, why)
            }),
        };
        match room {
            Ok(gone) => self.spare.extend(gone),
            Err((refusal, why)) => {
                let _ = answer.send(DeciderAnswer::Refused(refusal, why));
                return;
            }
        }
        // Used from now on, whether its record is in the log yet or not.
        let _ = self.number_table.use_token(self.next_record, &token);
        let what = proto::record::What::TokenUsed(token);
        self.record(what, Pending::Token(answer));
    }

    fn on_join(
        &mut self,
        member: &str,
        (incarnation, first): (Incarnation, u64),
        (roles, numbers): (&[Role], &[u16]),
        plan: Option<proto::Plan>,
        answer: oneshot::Sender<DeciderAnswer>,
    ) {
        self.end_those_before(member, incarnation, first);
        let mut places = BTreeMap::new();
        let mut slots = Vec::new();
        for role in roles {
            let place = places.entry(*role).or_insert(0);
            slots.push(Slot::new(member, *role, *place));
            *place += 1;
        }
        let ids = match self.number_table.numbers_for(&slots, numbers) {
            Ok(ids) => ids,
            Err(NoNumber::Full) => {
                let why = format!("a cluster has {} workers at most", translate::WORKERS_MAX);
                let _ = answer.send(DeciderAnswer::Refused(Refusal::Full, why));
                return;
            }
            Err(NoNumber::Taken(id, owner)) => {
                let why = format!(
                    "{id:?} is `{owner}`'s by the log, or this place of `{member}` has another number: members have the numbers that they had first"
                );
                let _ = answer.send(DeciderAnswer::Refused(Refusal::NumberTaken, why));
                return;
            }
        };
        if let Err((refusal, why)) = self.may_bring(member, &ids, plan.as_ref()) {
            let _ = answer.send(DeciderAnswer::Refused(refusal, why));
            return;
        }
        let is_under_way = |id: &WorkerId| {
            self.machine.view().has(*id, incarnation) || self.joining.contains(&(*id, incarnation))
        };
        let newest = slots
            .iter()
            .filter_map(|slot| self.number_table.incarnation(slot))
            .max();
        let is_new = newest.is_none_or(|newest| newest < incarnation);
        let incarnations: Vec<_> = ids.iter().map(|id| (*id, incarnation)).collect();
        if !is_new && !ids.iter().all(is_under_way) {
            let newest = newest.map_or(0, |newest| newest.0);
            let why = format!(
                "incarnation {} of `{member}` is over or was never there; {newest} was the newest: take a higher one, or another name where there is none",
                incarnation.0
            );
            let _ = answer.send(DeciderAnswer::Over(newest, why));
            return;
        }
        if !is_new {
            return self.bring_in(incarnations, answer);
        }
        for (slot, (id, incarnation)) in slots.iter().zip(&incarnations) {
            let plan = plan.clone();
            let numbered = proto::Numbered {
                plan,
                first,
                since: self.number_table.since(slot, *incarnation, first).0,
                ..slot.record(*id, *incarnation)
            };
            let before = self.number_table.number(self.next_record, &numbered);
            self.spare.extend(before.unwrap_or_default());
            self.joining.insert((*id, *incarnation));
            self.record(proto::record::What::Numbered(numbered), Pending::Number);
        }
        // The last record stands for all: they are written in order.
        if let Some((_, pending)) = self.pending.back_mut() {
            *pending = Pending::Join(Box::new(Joining { incarnations, answer }));
        }
    }

    /// Which incarnations in the view are over, since a process asks that has the lock which theirs
    /// had. Without it the coordinator waits until their leases are over, and for ever where too
    /// few members are left to say so. A process need not know those incarnations: it may be the
    /// last of many that began while no coordinator decided. It is so whether that process may
    /// join or not.
    fn end_those_before(&mut self, member: &str, incarnation: Incarnation, first: u64) {
        let view = self.machine.view();
        let of_file = self.number_table.slots_of(member).filter_map(|(slot, id)| {
            let there = view.member(id)?.incarnation;
            let is_over = there < incarnation && self.number_table.is_of_file(slot, there, first);
            is_over.then_some((id, there))
        });
        for (id, there) in of_file.collect::<Vec<_>>() {
            self.tell(Instant::now(), Input::Stopped(id, there));
        }
    }

    fn bring_in(
        &mut self,
        incarnations: Vec<(WorkerId, Incarnation)>,
        answer: oneshot::Sender<DeciderAnswer>,
    ) {
        self.tell(Instant::now(), Input::Join(incarnations.clone()));
        self.wait(incarnations, Some(Standing::Joining), answer);
    }
}
