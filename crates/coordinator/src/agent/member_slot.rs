//! A worker's end: its membership, and the rings and atomics that it shares with the agent.

use protocols::membership::{Incarnation, Membership, Notice, Term, View, WorkerId};
use protocols::objects::{Decision, Report};
use rtrb::{Consumer, Producer, RingBuffer};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

/// Words of the coordinator that wait for a worker at most.
const WORDS_MAX: usize = 8;
/// Withdrawn leases that wait for the agent at most.
const WITHDRAWN_MAX: usize = 64;
/// How often a worker says its withdrawals again, in nanoseconds of its clock.
const AGAIN: u64 = 10_000_000;

/// An incarnation that has no lease any more, by the list of this number.
pub(super) type Withdrawn = (WorkerId, Incarnation, u64);

/// Incarnations that a worker does not hear, all of them.
pub(super) type Unheard = Vec<(WorkerId, Incarnation)>;

/// A word of the coordinator, on its way to the worker.
#[derive(Clone, Debug)]
pub(super) enum Word {
    View(View),
    Suspects(u64, Vec<(WorkerId, Incarnation)>),
}

/// A worker's load; see `Load` in `proto/flowkeep.proto` for units.
#[derive(Debug, Default)]
pub struct WorkerStats {
    /// Packets since the start.
    pub packets: AtomicU64,
    /// Of them, those that were dropped.
    pub dropped_packets: AtomicU64,
    /// Thousandths of a processor.
    pub cpu: AtomicU32,
    /// Bytes.
    pub memory: AtomicU64,
    /// Flows there are.
    pub flows: AtomicU64,
    /// Packets a second, lately.
    pub packet_rate: AtomicU64,
}

#[derive(Debug, Default)]
pub(super) struct Shared {
    pub steps: AtomicU64,
    pub view: AtomicU32,
    pub list: AtomicU64,
    pub ready: AtomicBool,
    /// The member slot is no more, so the worker acts no more.
    pub gone: AtomicBool,
    pub figures: WorkerStats,
}

/// The agent's end of a member slot.
pub(super) struct AgentEnd {
    pub id: WorkerId,
    pub incarnation: Incarnation,
    pub shared: Arc<Shared>,
    pub words: Producer<Word>,
    pub withdrawn: Consumer<Withdrawn>,
    /// The runtimes that the worker does not hear, on their way, and as they were said last.
    pub unheards: Consumer<Unheard>,
    pub unheard: Unheard,
    /// The worker's reports on shared objects, on their way, and the last one.
    pub reports: Consumer<Report>,
    pub report: Option<Report>,
    /// Decisions on them, on their way.
    pub decisions: Producer<Decision>,
    pub steps: u64,
    /// The newest that there was no room for.
    pub view: Option<View>,
    pub suspects: Option<(u64, Vec<(WorkerId, Incarnation)>)>,
    pub decision: Option<Decision>,
}

impl AgentEnd {
    /// Hands the worker the words that wait for it.
    pub fn hand(&mut self) {
        if let Some(view) = self.view.take()
            && let Err(rtrb::PushError::Full(Word::View(view))) = self.words.push(Word::View(view))
        {
            self.view = Some(view);
        }
        if let Some((list, suspects)) = self.suspects.take() {
            let word = Word::Suspects(list, suspects);
            if let Err(rtrb::PushError::Full(Word::Suspects(list, suspects))) = self.words.push(word) {
                self.suspects = Some((list, suspects));
            }
        }
        if let Some(decision) = self.decision.take()
            && let Err(rtrb::PushError::Full(decision)) = self.decisions.push(decision)
        {
            self.decision = Some(decision);
        }
    }
}

/// A worker's place in the cluster. Only the worker's thread has it.
pub struct MemberSlot {
    membership: Membership,
    id: WorkerId,
    incarnation: Incarnation,
    speaking: Speaking,
    sharing: Sharing,
}

impl MemberSlot {
    pub(super) fn new(id: WorkerId, incarnation: Incarnation, term: Term, view: View) -> (Self, AgentEnd) {
        let (producer, words) = RingBuffer::new(WORDS_MAX);
        let (says, withdrawn) = RingBuffer::new(WITHDRAWN_MAX);
        let (misses, unheards) = RingBuffer::new(WORDS_MAX);
        let (reported, reports) = RingBuffer::new(WORDS_MAX);
        let (decided, decisions) = RingBuffer::new(WORDS_MAX);
        let shared = Arc::new(Shared::default());
        shared.view.store(view.number, Ordering::Relaxed);
        let member_slot = MemberSlot {
            membership: Membership::new(id, incarnation, term, view),
            id,
            incarnation,
            speaking: Speaking {
                shared: shared.clone(),
                words,
                withdrawn: says,
                unheards: misses,
                unheard: Unheard::new(),
                missed: Unheard::new(),
                say_at: 0,
            },
            sharing: Sharing {
                decisions,
                reports: reported,
                said: None,
            },
        };
        let agent_end = AgentEnd {
            id,
            incarnation,
            shared,
            words: producer,
            withdrawn,
            unheards,
            unheard: Unheard::new(),
            reports,
            report: None,
            decisions: decided,
            steps: 0,
            view: None,
            suspects: None,
            decision: None,
        };
        (member_slot, agent_end)
    }

    /// Which worker it is.
    pub fn id(&self) -> WorkerId {
        self.id
    }

    /// Which incarnation of it.
    pub fn incarnation(&self) -> Incarnation {
        self.incarnation
    }

    /// Its view and its leases, to ask and grant by.
    pub fn membership(&mut self) -> &mut Membership {
        &mut self.membership
    }

    /// Where the worker writes its figures.
    pub fn figures(&self) -> &WorkerStats {
        &self.speaking.shared.figures
    }

    /// The worker is linked, and may get groups.
    pub fn set_ready(&self) {
        self.speaking.shared.ready.store(true, Ordering::Relaxed);
    }

    /// One step of the worker, at `now` of its clock (nanoseconds): takes over the coordinator's
    /// words. Says whether its view is another one than before.
    pub fn turn(&mut self, now: u64) -> bool {
        self.speaking.turn(now, &mut self.membership)
    }

    /// The next decision on which runtimes share objects.
    pub fn decision(&mut self) -> Option<Decision> {
        self.sharing.decisions.pop().ok()
    }

    /// Takes this worker's report on the objects that its runtime shares.
    pub fn report(&mut self, report: Report) {
        let sharing = &mut self.sharing;
        // A report without room is said next time.
        if sharing.said.as_ref() != Some(&report) && sharing.reports.push(report.clone()).is_ok() {
            sharing.said = Some(report);
        }
    }

    /// The same for a worker that has its membership itself, as this member slot had it at the
    /// beginning.
    pub fn turn_with(&mut self, now: u64, membership: &mut Membership) -> bool {
        self.speaking.turn(now, membership)
    }
}

/// The rings between a runtime that shares objects and the agent.
struct Sharing {
    decisions: Consumer<Decision>,
    reports: Producer<Report>,
    said: Option<Report>,
}

/// The atomics and rings between a worker and the agent.
struct Speaking {
    shared: Arc<Shared>,
    words: Consumer<Word>,
    withdrawn: Producer<Withdrawn>,
    unheards: Producer<Unheard>,
    /// As the agent was told last, and as it is.
    unheard: Unheard,
    missed: Unheard,
    say_at: u64,
}

impl Speaking {
    fn turn(&mut self, now: u64, membership: &mut Membership) -> bool {
        let steps = self.shared.steps.load(Ordering::Relaxed);
        self.shared.steps.store(steps.wrapping_add(1), Ordering::Relaxed);
        let before = membership.view().number;
        let was_fenced = membership.is_fenced();
        while let Ok(word) = self.words.pop() {
            match word {
                Word::View(view) => membership.adopt(view, |_| ()),
                Word::Suspects(list, suspects) => membership.suspect(list, &suspects),
            }
            self.say_at = now;
        }
        if now >= self.say_at {
            self.say_at = now.saturating_add(AGAIN);
            let withdrawn = &mut self.withdrawn;
            membership.poll(now, |notice| {
                if let Notice::Withdrawn(id, incarnation, list) = notice {
                    // A withdrawal without room is said again.
                    let _ = withdrawn.push((id, incarnation, list));
                }
            });
            self.missed.clear();
            let missed = &mut self.missed;
            membership.unheard(now, |id, incarnation| missed.push((id, incarnation)));
            // Runtimes without room are said next time.
            if self.missed != self.unheard && self.unheards.push(self.missed.clone()).is_ok() {
                self.unheard.clone_from(&self.missed);
            }
        }
        let view = membership.view().number;
        self.shared.view.store(view, Ordering::Release);
        self.shared.list.store(membership.list(), Ordering::Release);
        view != before || was_fenced != membership.is_fenced()
    }
}

impl Drop for MemberSlot {
    fn drop(&mut self) {
        self.speaking.shared.gone.store(true, Ordering::Release);
    }
}
