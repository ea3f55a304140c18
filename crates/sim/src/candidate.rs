//! A simulated coordinator's process where there are several: it waits to be elected, reads the
//! log, leads, and writes.
//!
//! ```text
//!   looking ─► granting ─► standing ─► reading ─► leading ─► deposed
//!      ▲  no answer, or another is elected │         │ lease over, by its own clock: the process ends
//!      └───────────────────────────────────┘         └ and begins again
//! ```
//!
//! Requests to the store, the meaning of answers, and how long the process takes itself for elected
//! are the production's (`protocols::election`). Calls are here as `coordinator::log` has them: one
//! at a time, and beside it one for the lease. A call without an answer is made at another member
//! of the store, then given up. A record that has not been taken is tried again; numbers that were
//! not forgotten are forgotten with the next.
//!
//! Not here: the network, and the process's decisions ([`crate::coordinator`]).

use crate::Time;
use crate::coordinator::Record;
use crate::script::MILLI;
use crate::store::{Reply, Request, Value};
use protocols::election::{self, Elected, Hold, NotTaken, Reading, Spare};
use std::collections::VecDeque;
use std::rc::Rc;

/// How long leases of coordinators last.
pub(crate) const TTL: u64 = 60 * MILLI;
/// How often one that waits to be elected looks, and one without an answer tries again.
const LOOK: u64 = 10 * MILLI;
const RETRY: u64 = 10 * MILLI;
/// How long an answer is waited for, and how often the same is asked.
const CALL: u64 = 15 * MILLI;
const TRIES: u8 = 2;

#[derive(Clone, Debug)]
enum Job {
    Append(u64, Value),
    Forget(Vec<u64>),
}

struct Call {
    id: u32,
    request: Request,
    /// When it was asked first, by the process's clock.
    asked: u64,
    tries: u8,
    until: Time,
}

enum Phase {
    Looking,
    Granting,
    Standing(i64),
    Reading(Elected, Reading<Value>),
    Leading(Elected),
    /// It writes no more.
    Deposed(Elected),
}

/// The step that an answer leads to.
pub(crate) enum Step {
    Nothing,
    /// It is elected, and the log has these records.
    Leads(Vec<(u64, Record)>),
    /// The first record on its way is in the log.
    Written,
}

/// See the module's page.
pub(crate) struct Candidate {
    /// Which process it is: answers to those before it are not heard.
    pub run: u32,
    phase: Phase,
    hold: Option<Hold>,
    main: Option<Call>,
    keeper: Option<Call>,
    next_call: u32,
    jobs: VecDeque<Job>,
    spare: Spare,
    look_at: Time,
    keep_at: Time,
    retry_at: Time,
    lease: i64,
}

impl Candidate {
    pub fn new(run: u32, now: Time) -> Self {
        Candidate {
            run,
            phase: Phase::Looking,
            hold: None,
            main: None,
            keeper: None,
            next_call: 0,
            jobs: VecDeque::new(),
            spare: Spare::default(),
            look_at: now,
            keep_at: now,
            retry_at: now,
            lease: 0,
        }
    }

    /// Whether it listens, and decides.
    pub fn leads(&self) -> bool {
        matches!(self.phase, Phase::Leading(_) | Phase::Deposed(_))
    }

    /// The revision of its election, while it takes itself for elected at `local` of its clock.
    pub fn elected(&self, local: u64) -> Option<i64> {
        let is_held = self.hold.is_some_and(|hold| !hold.is_over(local));
        match &self.phase {
            Phase::Reading(elected, _) | Phase::Leading(elected) | Phase::Deposed(elected) if is_held => {
                Some(elected.revision())
            }
            _ => None,
        }
    }

    /// Whether the process ends: its lease is over, as it knows.
    pub fn ends(&self, local: u64) -> bool {
        let was_elected = matches!(
            self.phase,
            Phase::Reading(..) | Phase::Leading(_) | Phase::Deposed(_)
        );
        was_elected && self.hold.is_none_or(|hold| hold.is_over(local))
    }

    /// The last word of a process that ends.
    pub fn resign(&self) -> Option<Request> {
        match &self.phase {
            Phase::Reading(elected, _) | Phase::Leading(elected) | Phase::Deposed(elected) => {
                Some(Request::Transact(elected.resign()))
            }
            _ => None,
        }
    }

    /// How far it is, and what it waits for.
    pub fn in_words(&self) -> String {
        let phase = match &self.phase {
            Phase::Looking => "looks",
            Phase::Granting => "asks for a lease",
            Phase::Standing(_) => "stands",
            Phase::Reading(..) => "reads",
            Phase::Leading(_) => "leads",
            Phase::Deposed(_) => "is deposed",
        };
        let waits = if self.main.is_some() { ", waits" } else { "" };
        format!("{phase}, {} to write{waits}", self.jobs.len())
    }

    /// A record is to be written, of this number.
    pub fn append(&mut self, number: u64, record: Record) {
        self.jobs.push_back(Job::Append(number, Some(Rc::new(record))));
    }

    /// Records are needed no more.
    pub fn forget(&mut self, numbers: Vec<u64>) {
        if !numbers.is_empty() {
            self.jobs.push_back(Job::Forget(numbers));
        }
    }

    /// The requests that it makes now.
    pub fn poll(&mut self, now: Time, local: u64, mut ask: impl FnMut(u32, &Request)) {
        if self.main.as_ref().is_some_and(|call| now >= call.until) {
            self.main = self.main.take().and_then(|call| self.again(now, call, &mut ask));
            if self.main.is_none() {
                self.on_silence(now);
            }
        }
        if self.keeper.as_ref().is_some_and(|call| now >= call.until) {
            self.keeper = self
                .keeper
                .take()
                .and_then(|call| self.again(now, call, &mut ask));
            if self.keeper.is_none() {
                self.keep_at = now + TTL / 6;
            }
        }
        if self.main.is_none()
            && let Some(request) = self.wish(now)
        {
            self.main = Some(self.call(now, local, request, &mut ask));
        }
        let has_lease = matches!(
            self.phase,
            Phase::Reading(..) | Phase::Leading(_) | Phase::Deposed(_)
        );
        if has_lease && self.keeper.is_none() && now >= self.keep_at {
            self.keeper = Some(self.call(now, local, Request::Keep(self.lease), &mut ask));
        }
    }

    fn wish(&mut self, now: Time) -> Option<Request> {
        match &self.phase {
            Phase::Looking => (now >= self.look_at).then(|| Request::Transact(election::look())),
            Phase::Granting => Some(Request::Grant),
            Phase::Standing(lease) => Some(Request::Transact(election::stand(*lease))),
            Phase::Reading(_, reading) => reading.next().map(Request::Page),
            Phase::Leading(elected) if now >= self.retry_at => {
                let request = match self.jobs.front_mut()? {
                    Job::Append(number, record) => elected.append(*number, record),
                    Job::Forget(numbers) => {
                        self.spare.add(std::mem::take(numbers));
                        elected.forget(self.spare.all())
                    }
                };
                Some(Request::Transact(request))
            }
            Phase::Leading(_) | Phase::Deposed(_) => None,
        }
    }

    fn call(&mut self, now: Time, local: u64, request: Request, ask: &mut impl FnMut(u32, &Request)) -> Call {
        self.next_call += 1;
        ask(self.next_call, &request);
        Call {
            id: self.next_call,
            request,
            asked: local,
            tries: 1,
            until: now + CALL,
        }
    }

    /// The same at another member of the store, unless that was tried.
    fn again(&mut self, now: Time, mut call: Call, ask: &mut impl FnMut(u32, &Request)) -> Option<Call> {
        if call.tries >= TRIES {
            return None;
        }
        self.next_call += 1;
        ask(self.next_call, &call.request);
        (call.id, call.until) = (self.next_call, now + CALL);
        call.tries += 1;
        Some(call)
    }

    fn on_silence(&mut self, now: Time) {
        match &self.phase {
            Phase::Looking | Phase::Granting | Phase::Standing(_) => self.look_again(now),
            // A process that cannot read the log ends.
            Phase::Reading(..) => self.hold = None,
            Phase::Leading(_) => match self.jobs.front() {
                Some(Job::Forget(_)) => {
                    self.jobs.pop_front();
                    self.spare.done(false);
                }
                _ => self.retry_at = now + RETRY,
            },
            Phase::Deposed(_) => {}
        }
    }

    fn look_again(&mut self, now: Time) {
        self.phase = Phase::Looking;
        self.look_at = now + LOOK;
    }

    /// The store has answered, at `local` of the process's clock.
    pub fn hear(&mut self, now: Time, local: u64, id: u32, reply: Reply) -> Step {
        if let Some(call) = self.keeper.take_if(|call| call.id == id) {
            self.keep_at = now + TTL / 6;
            if let (Reply::Kept(is_kept), Some(hold)) = (reply, &mut self.hold) {
                hold.answered(call.asked, is_kept);
            }
            return Step::Nothing;
        }
        let Some(call) = self.main.take_if(|call| call.id == id) else {
            return Step::Nothing;
        };
        match (&mut self.phase, reply) {
            (Phase::Looking, Reply::Transacted(answer)) => {
                if election::is_vacant(&answer) {
                    self.phase = Phase::Granting;
                } else {
                    self.look_again(now);
                }
            }
            (Phase::Granting, Reply::Granted(lease)) => {
                self.hold = Some(Hold::new(call.asked, TTL));
                self.lease = lease;
                self.phase = Phase::Standing(lease);
            }
            (Phase::Standing(lease), Reply::Transacted(answer)) => match Elected::by(*lease, &answer) {
                Some(elected) => {
                    self.phase = Phase::Reading(elected, Reading::default());
                    self.keep_at = now;
                }
                None => self.look_again(now),
            },
            (Phase::Reading(elected, reading), Reply::Page(page, more)) => {
                reading.take(page, more);
                if reading.next().is_none() {
                    if self.hold.is_none_or(|hold| hold.is_over(local)) {
                        // Another coordinator may have decided since: a process that has read too
                        // long ends.
                        self.hold = None;
                        return Step::Nothing;
                    }
                    let elected = *elected;
                    let records = std::mem::take(reading).records();
                    let records = records.filter_map(|(number, record)| Some((number, (*record?).clone())));
                    let records = records.collect();
                    self.phase = Phase::Leading(elected);
                    return Step::Leads(records);
                }
            }
            (Phase::Leading(elected), Reply::Transacted(answer)) => match self.jobs.front() {
                Some(Job::Append(_, record)) => match elected.appended(record, &answer) {
                    Ok(()) => {
                        self.jobs.pop_front();
                        return Step::Written;
                    }
                    Err(NotTaken::Lost) => self.retry_at = now + RETRY,
                    Err(NotTaken::Other | NotTaken::Deposed) => self.phase = Phase::Deposed(*elected),
                },
                Some(Job::Forget(_)) => {
                    self.jobs.pop_front();
                    self.spare.done(answer.succeeded);
                }
                None => {}
            },
            _ => {}
        }
        Step::Nothing
    }
}
