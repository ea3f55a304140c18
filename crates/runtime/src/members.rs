//! A worker's place in the cluster's membership: which incarnations of others are over, and the
//! leases that it acts by.
//!
//! # Theory of operation
//!
//! A worker that has begun with a membership ([`Leases`]) acts by leases and views. A worker
//! without it acts as if each lease lasted for ever, and takes the end of a link's session for the
//! end of the worker there.
//!
//! ```text
//!   step n      asker ── LeaseAsked(incarnation, its now) ──► grantor: keeps the question
//!   step n + 1                                         grantor: promises, with the time of this step
//!               asker ◄── LeaseGranted(incarnation, asked) ── grantor
//! ```
//!
//! A grantor answers in the step after that in which it read the question. The time of a step is
//! read before the step: a worker that is stopped in the middle of one would promise from a time
//! that is long over, and its promise would end before the lease.
//!
//! Views come by one door, `members` of a worker: each [`WorkerGone`] is an incarnation that a view
//! has removed. An [`End`] is the known state of the worker at a link's other end.
//!
//! ```text
//!              session ends                  removed
//!   present ────────────────► suspended ───────────────► gone: all that was that worker's ends; the next session begins
//!      └── removed: the session is fenced, its frames are dropped ──► gone
//! ```
//!
//! | suspended | effect |
//! |---|---|
//! | packets for it | counted drops, and packets still on the link wait |
//! | messages for it | wait |
//! | the next session of the link | is not read before the view has removed the incarnation of this one |
//!
//! Each end says its incarnation first in a session: in
//! [`LeaseAsked`](crate::message::Message::LeaseAsked) between switches and others, in
//! [`Record::Incarnation`](crate::record::Record::Incarnation) between runtimes, with the number of
//! a view that has it (where no copies are kept, runtimes of one process say one of no view before
//! that). An incarnation that the view here has not, if that is no older, is over: it
//! was removed before this worker began, or by a view that was never here. Words and packets behind
//! it are dropped, in the same frame and burst too. A runtime whose incarnation a switch has not
//! heard, or that its view does not list, gets no new groups.
//!
//! Invariants: an incarnation that a view has removed has no effect on this worker afterwards; a
//! worker looks at its lease by the time of its step, so it acts without a lease in no more than
//! the step in which the lease ends.
//!
//! Not here: views and leases themselves (`protocols::membership`), the coordinator; the effects of
//! a worker's end ([`crate::worker`], [`crate::switch`]).

use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use protocols::membership::{Incarnation, Member, Membership, Role, Standing, View, WorkerId};
use wire::planted;

/// A worker's incarnation that a view has removed, or one before it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct WorkerGone {
    /// The worker.
    pub worker: WorkerId,
    /// The newest of its incarnations that is over.
    pub incarnation: Incarnation,
}

/// The incarnations that are over by a view, and were not by one before it: of each worker the
/// newest.
///
/// An incarnation that begins is later than all others of its worker, so these are over. Such an
/// incarnation may be a member of neither view and at a link still: it was removed before this
/// worker began, or in a view that this worker has not heard of.
pub fn gone_between(before: &View, after: &View) -> Vec<WorkerGone> {
    let is_gone = |member: &&Member| !after.has(member.id, member.incarnation);
    let gone = before.members().iter().filter(is_gone);
    let gone = gone.map(|member| (member.id, member.incarnation.0));
    let is_new = |member: &&Member| {
        !before.has(member.id, member.incarnation) && !planted::is("earlier_incarnation_forgotten")
    };
    let begun = after.members().iter().filter(is_new);
    let earlier = begun.map(|member| (member.id, member.incarnation.0.saturating_sub(1)));
    let mut newest = BTreeMap::new();
    for (worker, incarnation) in gone.chain(earlier) {
        let known = newest.entry(worker).or_insert(0);
        *known = incarnation.max(*known);
    }
    let gone = newest.into_iter().filter(|(_, incarnation)| *incarnation > 0);
    gone.map(|(worker, incarnation)| WorkerGone {
        worker,
        incarnation: Incarnation(incarnation),
    })
    .collect()
}

/// The known state of the worker at a link's other end.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct End {
    /// Its incarnation in this session; 0 before it has said so.
    incarnation: u64,
    /// A view that has that incarnation, by its own word.
    since: u32,
    /// No incarnation up to this one is a member any more.
    removed: u64,
    /// The session that is heard no more; 0 for none.
    fenced: u64,
}

impl End {
    /// A link's session, as far as it counts.
    #[inline]
    pub fn session(&self, link: u64) -> u64 {
        match link == self.fenced {
            true => 0,
            false => link,
        }
    }

    /// Whether frames of the link are dropped.
    pub fn is_fenced(&self, link: u64) -> bool {
        link != 0 && link == self.fenced
    }

    /// Whether the known session is over, and all that was its worker's ends. `by_views`: a worker
    /// goes by views only. A worker that has not said which incarnation it is has no lease, and its
    /// session ends with the link.
    pub fn is_over(&self, known: u64, link: u64, by_views: bool) -> bool {
        let may_end = known == 0 || !by_views || self.incarnation == 0 || self.is_removed();
        self.session(link) != known && may_end
    }

    /// Whether the link is down, and the worker a member still.
    pub fn is_suspended(&self, known: u64, link: u64, by_views: bool) -> bool {
        self.session(link) != known && !self.is_over(known, link, by_views)
    }

    /// Another session begins.
    pub fn begin(&mut self) {
        (self.incarnation, self.since) = (0, 0);
    }

    /// The incarnation that the other end has said that it is; 0 for none.
    pub fn incarnation(&self) -> u64 {
        self.incarnation
    }

    fn is_removed(&self) -> bool {
        self.incarnation != 0 && self.incarnation <= self.removed
    }

    /// The other end says which incarnation it is, and which view has it, in the session that is
    /// known. Says whether that session is over by it.
    pub fn note_incarnation(
        &mut self,
        worker: WorkerId,
        incarnation: u64,
        since: u32,
        known: u64,
        view: &View,
    ) -> bool {
        (self.incarnation, self.since) = (incarnation, since);
        self.look_at_view(worker, known, view)
    }

    /// Another view is in force. Says whether the session that is known is over by it: of an
    /// incarnation that an earlier view has and this one has not.
    pub fn look_at_view(&mut self, worker: WorkerId, known: u64, view: &View) -> bool {
        let is_told = self.incarnation != 0 && view.number >= self.since;
        if is_told
            && !view.has(worker, Incarnation(self.incarnation))
            && !planted::is("earlier_incarnation_forgotten")
        {
            self.removed = self.removed.max(self.incarnation);
        }
        self.fence(known)
    }

    /// Incarnations up to this one are over. Says whether the session that is known is over by it.
    /// Without views there is no incarnation to tell: it is.
    pub fn remove(&mut self, incarnation: u64, known: u64, by_views: bool) -> bool {
        self.removed = self.removed.max(incarnation);
        if !by_views && self.incarnation == 0 {
            self.incarnation = self.removed;
        }
        self.fence(known)
    }

    fn fence(&mut self, known: u64) -> bool {
        let is_over = known != 0 && self.is_removed();
        if is_over {
            self.fenced = known;
        }
        is_over
    }
}

/// Questions for a lease that may stay unanswered at the usual interval, and at the longer one.
const FEW: u32 = 8;
const MANY: u32 = 64;
/// The interval when still more are unanswered, in nanoseconds.
const SELDOM: u64 = 10_000_000_000;

/// A worker's questions to another.
#[derive(Clone, Copy, Default)]
struct Asking {
    unanswered: u32,
    at: u64,
}

/// A worker's membership, and what of it goes on in frames.
pub(crate) struct Leases {
    pub machine: Membership,
    /// Questions to be answered in the next step: one of each worker, the newest.
    asked: Vec<(WorkerId, u64, u64)>,
    /// By switch, and by runtime.
    asking: [Vec<Asking>; 2],
    due: u64,
    since: u32,
}

impl Leases {
    pub fn new(machine: Membership, switches: usize, runtimes: usize) -> Box<Self> {
        Box::new(Leases {
            since: machine.view().number,
            machine,
            asked: Vec::with_capacity(switches + runtimes),
            asking: [switches, runtimes].map(|count| alloc::vec![Asking::default(); count]),
            due: 0,
        })
    }

    /// When a lease is to be asked for or granted next, in nanoseconds.
    pub fn due(&self) -> u64 {
        self.due
    }

    /// Which incarnation this worker is.
    pub fn incarnation(&self) -> u64 {
        self.machine.incarnation().0
    }

    /// The number of a view that has this incarnation.
    pub fn since(&self) -> u32 {
        self.since
    }

    /// A question has come; it is answered in the next step.
    pub fn note_question(&mut self, from: WorkerId, incarnation: u64, asked: u64) {
        self.due = 0;
        self.asked.retain(|(known, ..)| *known != from);
        if self.asked.len() < self.asked.capacity() {
            self.asked.push((from, incarnation, asked));
        }
    }

    /// A grant has come.
    pub fn note_grant(&mut self, now: u64, from: WorkerId, incarnation: u64, asked: u64) {
        self.machine.renew(now, from, Incarnation(incarnation), asked);
        if !self.asked.is_empty() {
            self.due = 0;
        }
        let Some(asking) = self.asking_of(from) else {
            return;
        };
        let before = core::mem::take(&mut asking.unanswered);
        if before > FEW {
            // It is back; an old question is of no use.
            asking.at = 0;
            self.due = 0;
        }
    }

    fn asking_of(&mut self, worker: WorkerId) -> Option<&mut Asking> {
        let all = match worker.role {
            Role::Switch => &mut self.asking[0],
            Role::Runtime => &mut self.asking[1],
        };
        all.get_mut(usize::from(worker.number))
    }

    /// Questions of the step before that are granted: the worker, and its reading.
    pub fn grant_all(&mut self, now: u64, mut grant: impl FnMut(WorkerId, u64)) {
        let machine = &mut self.machine;
        // A question that is not granted yet may be later: the lease counts from when it was asked
        // for.
        self.asked.retain(|(from, incarnation, asked)| {
            let granted = machine.grant(now, *from, Incarnation(*incarnation), *asked);
            granted.inspect(|asked| grant(*from, *asked)).is_none()
        });
    }

    /// The workers to be asked for their leases now; `ask` says whether it could, with `now`, by
    /// [`Message::LeaseAsked`](crate::message::Message::LeaseAsked).
    pub fn ask_all(&mut self, now: u64, mut ask: impl FnMut(WorkerId) -> bool) {
        let lease = self.machine.term().lease;
        let every = (lease / 4).max(1);
        self.due = now.saturating_add(every);
        let me = self.machine.me();
        let roles = [(Role::Switch, 0), (Role::Runtime, 1)];
        for (role, place) in roles {
            if role == Role::Runtime && me.role == Role::Runtime {
                continue;
            }
            for (number, asking) in self.asking[place].iter_mut().enumerate() {
                let number = number as u16;
                let worker = WorkerId { role, number };
                if worker == me || now < asking.at {
                    continue;
                }
                let interval = match asking.unanswered {
                    ..FEW => every,
                    FEW..MANY => lease.saturating_mul(2),
                    _ => SELDOM.max(lease),
                };
                match ask(worker) {
                    true => {
                        asking.at = now.saturating_add(interval);
                        asking.unanswered = asking.unanswered.saturating_add(1);
                    }
                    // No worker is there.
                    false => *asking = Asking::default(),
                }
            }
        }
    }

    /// A worker is met: it is asked at once.
    pub fn note_met(&mut self, worker: WorkerId) {
        self.due = 0;
        if let Some(asking) = self.asking_of(worker) {
            *asking = Asking::default();
        }
    }

    /// Whether a worker runs by the view: it is a member, and not joining.
    pub fn runs(&self, worker: WorkerId) -> bool {
        let member = self.machine.view().member(worker);
        member.is_some_and(|member| member.standing != Standing::Joining)
    }

    /// How an incarnation of another stands by the view, if it is a member.
    pub fn standing(&self, worker: WorkerId, incarnation: u64) -> Option<Standing> {
        let member = self.machine.view().member(worker)?;
        (member.incarnation.0 == incarnation).then_some(member.standing)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ME: WorkerId = WorkerId::switch(0);

    #[test]
    fn a_session_is_over_by_views_only() {
        let none = View::new(1, Vec::new());
        let mut end = End::default();
        assert!(end.is_over(0, 7, true), "one that begins is met");
        end.begin();
        assert!(!end.note_incarnation(ME, 3, 9, 7, &none));
        assert!(!end.is_over(7, 7, true) && !end.is_over(7, 0, true));
        assert!(end.is_suspended(7, 0, true) && end.is_suspended(7, 8, true));
        assert!(end.is_over(7, 0, false), "without views it is the session");
        // An earlier incarnation has been removed, and this one has not.
        assert!(!end.remove(2, 7, true));
        assert!(!end.is_over(7, 8, true));
        assert!(end.remove(3, 7, true));
        assert!(end.is_over(7, 7, true) && end.is_over(7, 8, true));
        assert_eq!((end.session(7), end.session(8)), (0, 8));
    }

    #[test]
    fn incarnations_before_one_that_begins_are_over() {
        let view = |number, incarnations: &[(WorkerId, u64)]| {
            let member = |(id, incarnation): &(WorkerId, u64)| Member {
                id: *id,
                incarnation: Incarnation(*incarnation),
                standing: Standing::Running,
            };
            View::new(number, incarnations.iter().map(member).collect())
        };
        let (switch, runtime) = (WorkerId::switch(0), WorkerId::runtime(0));
        let gone = |before: &View, after: &View| -> Vec<(WorkerId, u64)> {
            let all = gone_between(before, after).into_iter();
            all.map(|gone| (gone.worker, gone.incarnation.0)).collect()
        };
        let without = view(3, &[(switch, 1)]);
        // Removed before the first of the two views, or in one between them.
        assert_eq!(
            gone(&without, &view(4, &[(switch, 1), (runtime, 7)])),
            [(runtime, 6)]
        );
        let both = view(3, &[(switch, 1), (runtime, 2)]);
        assert_eq!(
            gone(&both, &view(9, &[(switch, 1), (runtime, 7)])),
            [(runtime, 6)]
        );
        assert_eq!(gone(&both, &without), [(runtime, 2)]);
        assert_eq!(gone(&without, &view(4, &[(switch, 1), (runtime, 1)])), []);
        assert_eq!(gone(&both, &both), []);
    }

    #[test]
    fn an_incarnation_that_no_view_has_since_is_over() {
        let incarnation = |number, incarnations: &[u64]| {
            let member = |incarnation: &u64| Member {
                id: ME,
                incarnation: Incarnation(*incarnation),
                standing: Standing::Running,
            };
            View::new(number, incarnations.iter().map(member).collect())
        };
        // Removed before this worker began: no view that it had has the incarnation.
        let mut end = End::default();
        end.begin();
        assert!(end.note_incarnation(ME, 5, 3, 7, &incarnation(3, &[])));
        // Brought in by a view that is not here yet, and removed by a view that was never here.
        let mut end = End::default();
        end.begin();
        assert!(!end.note_incarnation(ME, 5, 4, 7, &incarnation(3, &[])));
        assert!(!end.clone().look_at_view(ME, 7, &incarnation(4, &[5])));
        assert!(end.look_at_view(ME, 7, &incarnation(6, &[])));
    }

    #[test]
    fn an_incarnation_that_is_heard_of_late_is_fenced() {
        let none = View::new(1, Vec::new());
        let mut end = End::default();
        end.begin();
        assert!(
            !end.remove(5, 7, true),
            "which incarnation it is has not been said"
        );
        assert!(!end.is_over(7, 7, true));
        assert!(end.note_incarnation(ME, 5, 9, 7, &none));
        assert!(end.is_over(7, 7, true) && end.is_fenced(7));
        // The next one.
        end.begin();
        assert!(!end.note_incarnation(ME, 6, 9, 8, &none));
        assert!(!end.is_over(8, 8, true));
    }
}
