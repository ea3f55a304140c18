//! Objects that functions share, as a runtime drives them.
//!
//! # Theory of operation
//!
//! The machine ([`protocols::objects::Objects`]) decides; this carries out:
//!
//! ```text
//!   functions ─► pending calls ─► begin ─► machine ─► Send ─► bytes ─► pieces ─► records to a runtime
//!       ▲                           ▲  └──► Answered, Ended ─► pending calls, and calls that wait go on
//!       └── answers ◄───────────────┼──────────────┘
//!   records of a runtime ─► pieces ─► bytes ─► checked ─┘
//! ```
//!
//! A call to an object that is absent makes it: the machine says `Absent`, a reference is asked for
//! with the default as content, given back at once, and the call is made once more.
//!
//! ```text
//!   Calling ──Absent──► Creating ──Granted──► Calling ──Answered──► over
//! ```
//!
//! At most [`WINDOW`] calls of a runtime to one object are with the machine: others queue here, in
//! order.
//!
//! *Views.* A runtime takes no part before it is told of a view that has it: calls stay on the
//! table of pending calls, messages that come are dropped. Within one process the driver of the
//! runtimes tells them ([`protocols::objects::Conductor`]). Over several, decisions of the
//! coordinator do ([`protocols::objects::Sharing`]), each with its incarnations: a message goes to
//! such an incarnation, or to none.
//!
//! Invariants: each token is answered once; messages to one runtime arrive in their order; a
//! message is at most [`MESSAGE_MAX`] bytes, and calls that wait are bounded by [`FLIGHTS_MAX`].
//!
//! Not here: which runtime has an object (the machine), the effect of a call (`nf::objects`),
//! packets that wait (`runner::waiting`).

mod content;
mod counts;
mod loans;

use crate::outbox::Outbox;
use crate::parts::presence::Sessions;
use crate::record::Record;
use crate::stats::ObjectStats;
use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use content::{Answer, Call, Content, Kinds};
use counts::Counts;
use hashbrown::{HashMap, HashSet};
use loans::Loan;
use nf::objects::{Asked, Ended, Kind, PendingCalls, Shelf, What, Words, WorkerObjects};
use protocols::membership::Incarnation;
use protocols::objects::wire;
use protocols::objects::{
    self as protocol, Body, Caller, How, Input, Key, Objects, Output, Phase, Stage, WINDOW,
};
pub use protocols::objects::{Conductor, Decision, Directive, Instance, Members, Report};
use protocols::ownership::RuntimeId;

/// Calls that are not answered.
const FLIGHTS_MAX: usize = 4096;
/// Calls of the machine: a runtime that leaves begins all that are on the table of pending calls.
const REQUESTS_MAX: usize = 4 * FLIGHTS_MAX;
/// The longest message: a content, and the calls of 64 runtimes that are in it.
const MESSAGE_MAX: usize = 16 * 1024;
/// The longest piece of a message, in a frame of records.
const PIECE_MAX: usize = 1000;
/// Records that wait for buffers to one runtime, above which no further call is begun.
const PENDING_MAX: usize = 64;
/// Merged calls whose key's last ones are not answered are looked at again after so long.
const MERGED_AGAIN_NS: u64 = 1_000_000;
/// How many runtimes besides the holder have a copy of each object.
const COPIES: usize = 1;

/// Figures, and present numbers.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct ObjectTotals {
    /// Calls that functions here have made.
    pub calls: u64,
    /// Of those, how many ended without an answer.
    pub failed: u64,
    /// Keys of which something is here: an object, a copy, or where it is.
    pub keys: usize,
    /// Calls that are not answered.
    pub unanswered: usize,
    /// Messages that were dropped: of runtimes out of the view, or no message.
    pub refused: u64,
}

/// A call that is not answered.
struct Flight {
    /// 0: nothing waits.
    token: u64,
    key: Key,
    words: Words,
    doing: Doing,
    /// Several calls that were merged.
    is_merged: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Doing {
    Calling(How),
    Creating(How),
    Reading,
    Removing,
    /// An object with one writer is wanted.
    Getting,
    /// An object that was changed is copied.
    Writing,
}

impl Flight {
    fn of(token: u64, key: Key, doing: Doing) -> Self {
        Flight {
            token,
            key,
            words: Words::default(),
            doing,
            is_merged: false,
        }
    }
}

/// Calls by number.
#[derive(Default)]
struct Flights {
    all: HashMap<u64, Flight>,
    last: u64,
}

impl Flights {
    fn begin(&mut self, flight: Flight) -> u64 {
        self.last = self.last.wrapping_add(1);
        self.all.insert(self.last, flight);
        self.last
    }
}

/// Calls of this runtime to one object.
#[derive(Default)]
struct Queue {
    begun: usize,
    behind: VecDeque<u64>,
}

/// See the module's page.
pub(crate) struct SharedObjects {
    me: Caller,
    settings: protocol::ObjectSettings,
    machine: Objects<Content>,
    kinds: Kinds,
    /// Whether this runtime has been told of a view that has it.
    is_in: bool,
    /// The coordinator's newest decision, where there is one.
    newest: Option<Decision>,
    /// Whether this runtime wants to be in no view.
    leaves: bool,
    /// A view without it that it is told of, until its calls are over.
    departing: Option<Directive>,
    /// Keys of which merged calls are on their way.
    merging: HashSet<Key>,
    /// Objects with one writer that calls here want or have.
    loans: HashMap<Key, Loan>,
    /// By runtime, the message that comes, as far as it has.
    incoming: Vec<Vec<u8>>,
    /// To write messages in.
    buffer: Vec<u8>,
    flights: Flights,
    /// Reads that are not to be stale, behind calls of their key that were merged.
    behind_merged: Vec<u64>,
    queues: HashMap<Key, Queue>,
    reached: Option<Stage>,
    /// For the table of pending calls.
    answers: Vec<(u64, Result<Words, Ended>)>,
    counts: Counts,
    refused: u64,
}

/// By kind, how long objects live without use.
fn idle_of(kinds: &[Kind]) -> Vec<u64> {
    kinds.iter().map(|kind| kind.idle_ns).collect()
}

impl Shelf for SharedObjects {
    fn contents(&self, kind: u16) -> Box<dyn Iterator<Item = (&[u8], &[u8])> + '_> {
        Box::new(self.held(kind))
    }
}

impl SharedObjects {
    /// For functions with these kinds, at one incarnation of a runtime, in a view with these
    /// members.
    pub fn new(opened: &WorkerObjects, me: Caller, seed: u64, (view, members): (u32, Members)) -> Self {
        let settings = protocol::ObjectSettings {
            requests_max: REQUESTS_MAX,
            ..protocol::ObjectSettings::default_with(seed, COPIES)
        };
        SharedObjects {
            me,
            settings,
            newest: None,
            leaves: false,
            departing: None,
            merging: HashSet::new(),
            loans: HashMap::new(),
            machine: Objects::new(me, view, members, settings).with_idle(idle_of(opened.kinds())),
            kinds: opened.kinds().into(),
            is_in: members.has(me.runtime),
            incoming: Vec::new(),
            buffer: Vec::new(),
            flights: Flights::default(),
            behind_merged: Vec::new(),
            queues: HashMap::new(),
            reached: None,
            answers: Vec::new(),
            counts: Counts::new(opened.kinds().len()),
            refused: 0,
        }
    }

    /// Figures of shared objects here.
    pub fn totals(&self) -> ObjectTotals {
        let (keys, ..) = self.machine.counts();
        let stats = self.machine.stats();
        ObjectTotals {
            calls: self.counts.calls(),
            failed: self.counts.failed(),
            keys,
            unanswered: self.flights.all.len(),
            refused: self.refused + stats.refused + stats.discarded,
        }
    }

    /// Goes on with what an earlier incarnation here has counted.
    pub fn count_on(&mut self, before: &SharedObjects) {
        self.counts = before.counts.clone();
    }

    /// Figures by kind; a look at all objects that are here.
    pub fn stats(&self, pending_calls: &PendingCalls) -> Vec<ObjectStats> {
        self.counts.stats(&self.kinds, &self.machine, pending_calls)
    }

    /// Keys and contents of the objects of a kind that are here.
    fn held(&self, kind: u16) -> impl Iterator<Item = (&[u8], &[u8])> {
        let all = self.machine.contents();
        let held = all.filter_map(|(key, object, _)| Some((key, object?)));
        let of_kind = held.filter(move |(key, _)| key.kind() == kind);
        of_kind.map(|(key, content)| (key.bytes(), content.bytes()))
    }

    /// The newest stage that this runtime has reached since it was told of one.
    pub fn reached(&self) -> Option<Stage> {
        self.reached
    }

    /// When there is something to do by the time alone.
    pub fn next_at(&self, pending_calls: &PendingCalls) -> Option<u64> {
        let of_machine = self.machine.next_timeout();
        let of_pending_calls = pending_calls.next_due().filter(|_| self.is_in);
        of_machine.into_iter().chain(of_pending_calls).min()
    }

    /// Is told of views; the next [`SharedObjects::go_on`] acts on them.
    pub fn handle_directive(&mut self, now: u64, directive: &Directive, pending_calls: &PendingCalls) {
        let (Directive::Stage(_, members) | Directive::Failed(_, members, _)) = directive;
        let is_member = members.has(self.me.runtime);
        match directive {
            Directive::Stage(stage, _) if stage.phase == Phase::Prepared && !is_member && self.is_in => {
                self.depart(now, *directive, pending_calls);
            }
            _ => {
                if is_member {
                    (self.is_in, self.departing) = (true, None);
                    pending_calls.open(true);
                }
                self.machine.handle(now, (*directive).into());
            }
        }
    }

    /// A view without this runtime: it takes no calls any more, and calls in flight end before the
    /// machine hears of it, which begins nothing then.
    fn depart(&mut self, now: u64, directive: Directive, pending_calls: &PendingCalls) {
        if self.departing.replace(directive).is_some() {
            return;
        }
        pending_calls.open(false);
        while let Some(asked) = pending_calls.next() {
            self.begin(now, asked, pending_calls);
        }
        self.close_deltas(now, true, pending_calls);
    }

    /// Merged calls that are due go to their objects, one of a key at a time; all do where this
    /// runtime leaves.
    fn close_deltas(&mut self, now: u64, is_all: bool, pending_calls: &PendingCalls) {
        let later = now.saturating_add(MERGED_AGAIN_NS);
        pending_calls.close(now, is_all, later, |kind, key, call, calls| {
            let is_free = self.flights.all.len() < FLIGHTS_MAX
                && Key::new(kind, key).is_some_and(|key| !self.merging.contains(&key));
            if is_all || is_free {
                let what = What::Merged(call.clone(), calls);
                self.begin_call(now, 0, kind, key, what);
            }
            is_all || is_free
        });
    }

    /// Hears a decision of the coordinator; a decision that is not behind the newest changes
    /// nothing.
    pub fn handle_decision(&mut self, now: u64, decision: &Decision, pending_calls: &PendingCalls) {
        let newest = self.newest.as_ref();
        if newest.is_some_and(|newest| newest.order() >= decision.order()) {
            return;
        }
        self.newest = Some(decision.clone());
        if !decision.is_for(self.incarnation()) {
            return;
        }
        if !self.is_in {
            let (view, members) = decision.course.before();
            let idle = idle_of(&self.kinds);
            self.machine = Objects::new(self.me, view, members, self.settings).with_idle(idle);
        }
        self.handle_directive(now, &decision.course.directive(), pending_calls);
    }

    fn incarnation(&self) -> Instance {
        (self.me.runtime, Incarnation(self.me.incarnation))
    }

    /// Wants to be in no view: its objects go to others.
    pub fn leave(&mut self) {
        self.leaves = true;
    }

    /// Whether it is in no view, by the coordinator's newest decision.
    pub fn has_left(&self) -> bool {
        let incarnation = self.incarnation();
        !self.is_in
            || self
                .newest
                .as_ref()
                .is_some_and(|newest| !newest.has(incarnation))
    }

    /// The report to the coordinator.
    pub fn report(&self, sessions: &Sessions) -> Report {
        Report {
            reached: self.reached,
            met: sessions
                .incarnations()
                .map(|(runtime, incarnation)| (RuntimeId(runtime), Incarnation(incarnation)))
                .collect(),
            leaves: self.leaves,
        }
    }

    /// The session of the link to a runtime is over: the pieces of an unfinished message are no
    /// message.
    pub fn peer_gone(&mut self, peer: usize) {
        if let Some(incoming) = self.incoming.get_mut(peer) {
            incoming.clear();
        }
    }

    /// Takes in a piece of a runtime's message; `false` if it is to be counted as no message.
    #[cold]
    pub fn take(&mut self, now: u64, peer: usize, is_last: bool, piece: &[u8]) -> bool {
        if self.incoming.len() <= peer {
            self.incoming.resize(peer + 1, Vec::new());
        }
        let Some(incoming) = self.incoming.get_mut(peer) else {
            return false;
        };
        // A message that is too long stays so until its last piece has come.
        if incoming.len() <= MESSAGE_MAX {
            incoming.extend_from_slice(piece);
        }
        if !is_last {
            return true;
        }
        let message = match incoming.len() <= MESSAGE_MAX {
            true => wire::read::<Content>(incoming, &self.kinds),
            false => None,
        };
        incoming.clear();
        match message {
            Some(message) if self.is_in => {
                let from = RuntimeId(peer as u16);
                self.machine.handle(now, Input::Receive(from, message));
                true
            }
            Some(_) => {
                self.refused += 1;
                true
            }
            None => false,
        }
    }

    /// Takes calls off the table of pending calls, carries out what the machine has decided, and
    /// puts answers on the table of pending calls; says how much was done, and whether there are
    /// answers.
    #[cold]
    pub fn go_on(
        &mut self,
        now: u64,
        pending_calls: &PendingCalls,
        out: &mut Outbox,
        sessions: &Sessions,
    ) -> (usize, bool) {
        pending_calls.turn(now);
        let mut work = 0;
        if self.machine.next_timeout().is_some_and(|due| due <= now) {
            self.machine.handle(now, Input::Tick);
            work += 1;
        }
        work += self.take_back(now, pending_calls);
        let is_congested = |out: &Outbox| out.records_pending() >= PENDING_MAX;
        while self.is_in
            && self.flights.all.len() < FLIGHTS_MAX
            && !is_congested(out)
            && let Some(asked) = pending_calls.next()
        {
            self.begin(now, asked, pending_calls);
            work += 1;
        }
        if self.is_in && !is_congested(out) {
            self.close_deltas(now, false, pending_calls);
        }
        while let Some(output) = self.machine.poll() {
            self.carry_out(now, output, pending_calls, out, sessions);
            work += 1;
        }
        if let Some(directive) = self.departing.take_if(|_| self.flights.all.is_empty()) {
            self.machine.handle(now, directive.into());
            work += 1;
        }
        let has_answers = !self.answers.is_empty() || pending_calls.has_told();
        for (token, answer) in self.answers.drain(..) {
            pending_calls.answer(token, answer);
        }
        (work, has_answers)
    }

    /// Another incarnation of this runtime begins: which calls were applied is not known.
    pub fn give_up(self, pending_calls: &PendingCalls) {
        pending_calls.forget_lent();
        for flight in self.flights.all.into_values() {
            pending_calls.answer(flight.token, Err(Ended::Late));
        }
    }

    fn begin(&mut self, now: u64, asked: Asked, pending_calls: &PendingCalls) {
        let Asked {
            token,
            kind,
            key,
            what,
        } = asked;
        match (&what, Key::new(kind, &key)) {
            (What::Get, Some(key)) => {
                let number = self.flights.begin(Flight::of(token, key, Doing::Getting));
                self.want(now, key, number, pending_calls);
            }
            _ => self.begin_call(now, token, kind, &key, what),
        }
    }

    fn begin_call(&mut self, now: u64, token: u64, kind: u16, key: &[u8], what: What) {
        self.counts.call(kind, &what);
        let is_merged = matches!(what, What::Merged(..));
        let Some(key) = Key::new(kind, key) else {
            return self.answer(kind, token, Err(Ended::KeyTooLong));
        };
        let (doing, words, bound) = match what {
            What::Update(words) => (Doing::Calling(How::Waits), words, 0),
            What::Send(words) => (Doing::Calling(How::Untethered), words, 0),
            What::Merged(words, _) => (Doing::Calling(How::Waits), words, 0),
            What::Read(words, bound) => (Doing::Reading, words, bound),
            What::Remove | What::Get => (Doing::Removing, Words::default(), 0),
        };
        if is_merged {
            self.merging.insert(key);
        }
        let number = self.flights.begin(Flight {
            token,
            key,
            words: words.clone(),
            doing,
            is_merged,
        });
        match doing {
            // Merged calls may have to make their object first.
            Doing::Reading if bound == 0 && self.merging.contains(&key) => {
                self.behind_merged.push(number);
            }
            Doing::Reading => self
                .machine
                .handle(now, Input::Read(key, Call(words), number, bound)),
            Doing::Removing => self.machine.handle(now, Input::Remove(key, number)),
            _ => self.line_up(now, key, number),
        }
    }

    /// Makes a call, if few enough of its object are not answered.
    fn line_up(&mut self, now: u64, key: Key, number: u64) {
        let queue = self.queues.entry(key).or_default();
        if queue.begun >= WINDOW {
            return queue.behind.push_back(number);
        }
        queue.begun += 1;
        self.call(now, number);
    }

    fn call(&mut self, now: u64, number: u64) {
        let Some(flight) = self.flights.all.get(&number) else {
            return;
        };
        if let Doing::Calling(how) = flight.doing {
            let input = Input::Call(flight.key, Call(flight.words.clone()), number, how);
            self.machine.handle(now, input);
        }
    }

    fn carry_out(
        &mut self,
        now: u64,
        output: Output<Content>,
        pending_calls: &PendingCalls,
        out: &mut Outbox,
        sessions: &Sessions,
    ) {
        match output {
            Output::Send(to, message) => {
                self.buffer.clear();
                wire::write(&message, &mut self.buffer);
                self.counts.sent(self.me, &message, self.buffer.len());
                self.send(to.0, out, sessions);
            }
            Output::Granted(key, number) if self.is_getting(number) => self.lend(key, number, pending_calls),
            Output::Granted(key, number) => {
                self.machine.handle(now, Input::Release(key, None));
                if let Some(flight) = self.flights.all.get_mut(&number)
                    && let Doing::Creating(how) = flight.doing
                {
                    flight.doing = Doing::Calling(how);
                    self.call(now, number);
                }
            }
            Output::Recalled(key) => self.recall(&key, pending_calls),
            Output::Written(_, number) => self.end(now, number, Ok(Words::default())),
            Output::Answered(number, answer) => {
                let answer = answer.map(|Answer(words)| words).ok_or(Ended::Unknown);
                self.end(now, number, answer);
            }
            Output::Ended(number, ended) => self.on_ended(now, number, ended),
            Output::Reached(stage) => self.reached = Some(stage),
        }
    }

    /// A call ended without an answer: for now, or for good.
    fn on_ended(&mut self, now: u64, number: u64, ended: protocol::Ended) {
        let Some(flight) = self.flights.all.get_mut(&number) else {
            return;
        };
        let answer = match (ended, flight.doing) {
            (protocol::Ended::Absent, Doing::Calling(how)) => {
                flight.doing = Doing::Creating(how);
                let key = flight.key;
                let born = self.kinds.get(usize::from(key.kind())).map(Content::born);
                return self.machine.handle(now, Input::Acquire(key, number, born));
            }
            (protocol::Ended::Absent, Doing::Reading) => {
                let kind = self.kinds.get(usize::from(flight.key.kind()));
                let read = |content: Content| content.read(&Call(flight.words.clone())).0;
                kind.map(Content::born).map(read).ok_or(Ended::Unknown)
            }
            (protocol::Ended::Absent | protocol::Ended::Removed, Doing::Removing) => Ok(Words::default()),
            (protocol::Ended::Leaving, _) => Err(Ended::Leaving),
            _ => Err(Ended::Full),
        };
        let getting = self
            .flights
            .all
            .get(&number)
            .filter(|flight| flight.doing == Doing::Getting);
        let wanted = getting.map(|flight| flight.key);
        self.end(now, number, answer);
        if let Some(key) = wanted {
            self.refuse_loan(now, key);
        }
    }

    /// Merged calls have gone: the reads behind them follow.
    fn read_behind(&mut self, now: u64, key: Key) {
        for number in core::mem::take(&mut self.behind_merged) {
            match self.flights.all.get(&number) {
                Some(flight) if flight.key == key => {
                    let call = Call(flight.words.clone());
                    self.machine.handle(now, Input::Read(key, call, number, 0));
                }
                Some(_) => self.behind_merged.push(number),
                None => {}
            }
        }
    }

    fn is_getting(&self, number: u64) -> bool {
        let flight = self.flights.all.get(&number);
        flight.is_some_and(|flight| flight.doing == Doing::Getting)
    }

    /// A call is over: the next of its object is made.
    fn end(&mut self, now: u64, number: u64, answer: Result<Words, Ended>) {
        let Some(flight) = self.flights.all.remove(&number) else {
            return;
        };
        if flight.is_merged {
            self.merging.remove(&flight.key);
            self.read_behind(now, flight.key);
        }
        self.answer(flight.key.kind(), flight.token, answer);
        if !matches!(flight.doing, Doing::Calling(_) | Doing::Creating(_)) {
            return;
        }
        let Some(queue) = self.queues.get_mut(&flight.key) else {
            return;
        };
        match queue.behind.pop_front() {
            Some(next) => self.call(now, next),
            None => {
                queue.begun = queue.begun.saturating_sub(1);
                if queue.begun == 0 {
                    self.queues.remove(&flight.key);
                }
            }
        }
    }

    fn answer(&mut self, kind: u16, token: u64, answer: Result<Words, Ended>) {
        if answer.is_err() {
            self.counts.fail(kind);
        }
        if token != 0 {
            self.answers.push((token, answer));
        }
    }

    /// Sends the message in the buffer. To a runtime that is not there, or another incarnation of
    /// it, nothing is sent: a view without it follows.
    fn send(&mut self, to: u16, out: &mut Outbox, sessions: &Sessions) {
        let is_meant = |decision: &Decision| {
            let incarnation = sessions.incarnation(to);
            decision.has((RuntimeId(to), Incarnation(incarnation)))
        };
        if !sessions.has_runtime(to) || !self.newest.as_ref().is_none_or(is_meant) {
            return;
        }
        let mut pieces = self.buffer.chunks(PIECE_MAX).peekable();
        while let Some(piece) = pieces.next() {
            out.send_record(to, &Record::Object(pieces.peek().is_none(), piece));
        }
    }
}
