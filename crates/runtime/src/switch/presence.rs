//! Which runtimes are there: those that are not there yet, that have gone, and that restart; and
//! how long a restarted switch waits.
//!
//! # Theory of operation
//!
//! A link's session ([`Port::session`]) is looked at behind each burst that it brings.
//!
//! ```text
//!   0: none ──n──► present ──another number, or 0──► over: routes to there end (`directory`)
//!                     │ chosen for new groups, unless it is leaving and another is not
//! ```
//!
//! *A switch that restarts* knows no routes, and its runtimes tell it theirs
//! ([`Message::Resynced`](crate::message::Message) comes last). Until all have, or the time for it
//! is over ([`Presence::wait_for_resync`]), it reads neither ports nor peers. *Where workers go by
//! views* no time decides: it waits for each runtime that may have had groups when it began, until
//! that one has told or a view is without it ([`Waits::is_untold`]). A runtime that tells later
//! what another has been chosen for meanwhile, is told that it is
//! [taken](crate::message::Message::RouteConflict), and ends it: a group is at one runtime.
//!
//! *A runtime that restarts* knows nothing of blocks of its pool that it had leased with groups
//! that moved. When it has told what it has (a runtime that lives tells a switch that restarts,
//! too), it is told which blocks are in use elsewhere, some each step, and *all told* behind them;
//! the switch itself must have been told before, and flows of runtimes that have failed, whichever,
//! have gone on elsewhere or ended: a block of its pool may be with them. Until then it is not
//! chosen for new groups here. Until all switches have told it, it says that it is leaving
//! (`worker::sessions`), and a switch that begins where no other is to be chosen waits for that
//! before it reads its ports.
//!
//! Not here: the ends that follow a session's end (`directory`, `outbox`), the runtimes' messages
//! (`worker::sessions`), the link, which decides whether a worker is there.

use super::directory::{BlockStart, Blocks};
use super::outbox::Outbox;
use crate::env::Port;
use crate::message::Message;
use alloc::vec::Vec;
use wire::planted;

/// Blocks told in a step: some frames.
const TOLD: usize = 256;
/// Where packets carry the time and it does not go on without them: the time that a step counts
/// for, in nanoseconds.
const STEP: u64 = 1000;

#[derive(Clone, Copy)]
struct Runtime {
    /// Gets no new groups.
    is_leaving: bool,
    /// By the view; where there are no views, all are.
    is_member: bool,
    /// Has said what it has.
    has_resynced: bool,
    /// Has not been told yet which blocks are in use, and gets no new groups before.
    is_new: bool,
    /// A switch that begins waits for it to tell what it has.
    is_expected: bool,
    /// An incarnation of it has been at the link since this switch began.
    was_met: bool,
}

impl Runtime {
    /// Whether it is waited for.
    fn is_missed(&self) -> bool {
        self.is_expected && !self.has_resynced
    }
}

/// The conditions that a switch that restarts waits for besides its time.
#[derive(Clone, Copy, Debug)]
pub(super) struct Waits {
    /// It has its lease. As long as it has not, no time passes: to join may take longer than all
    /// runtimes to tell what they have.
    pub may_act: bool,
    /// A runtime that may have had groups before has not told which, and is a member by the view.
    pub is_untold: bool,
    /// Flows of a runtime that has failed are to go on elsewhere.
    pub is_recovering: bool,
}

/// See the module's page.
pub(super) struct Presence {
    runtimes: Vec<Runtime>,
    /// When this switch began, where packets carry the time.
    began: Option<u64>,
    /// Until when to wait for runtimes to tell what they have, and then for a runtime that new
    /// groups may go to.
    resynced_by: Option<u64>,
    ready_by: Option<u64>,
    /// How long it waits at most to be told.
    at_most: u64,
    /// Whether runtimes of other processes may be there, which say what they have when they meet
    /// this switch.
    is_among_others: bool,
    /// The runtimes that are told which blocks are in use, and those yet to be looked at once it
    /// has begun.
    resyncs: Vec<(usize, Option<Vec<BlockStart>>)>,
    waited: u64,
}

impl Presence {
    /// Runtimes that are there have begun with this switch. `began` where packets carry the time.
    pub fn new<L: Port>(outbox: &Outbox<L>, began: Option<u64>) -> Self {
        let runtimes = (0..outbox.runtimes()).map(|index| Runtime {
            is_leaving: false,
            is_member: true,
            has_resynced: outbox.is_there(index),
            is_new: false,
            is_expected: true,
            was_met: outbox.is_there(index),
        });
        Presence {
            runtimes: runtimes.collect(),
            began,
            resynced_by: None,
            ready_by: None,
            at_most: 0,
            is_among_others: false,
            resyncs: Vec::new(),
            waited: 0,
        }
    }

    /// Runtimes that new groups may go to.
    pub fn available<L: Port>(&self, outbox: &Outbox<L>) -> Vec<u16> {
        let there = (0..self.runtimes.len()).filter(|index| {
            let runtime = &self.runtimes[*index];
            outbox.is_there(*index) && runtime.is_member && !runtime.is_new
        });
        let (leaving, staying): (Vec<u16>, Vec<u16>) = there
            .map(|index| index as u16)
            .partition(|index| self.is_leaving(*index));
        if staying.is_empty() { leaving } else { staying }
    }

    /// Whether a runtime gets no new groups.
    pub fn is_leaving(&self, runtime: u16) -> bool {
        self.runtimes
            .get(usize::from(runtime))
            .is_some_and(|runtime| runtime.is_leaving)
    }

    /// Has a runtime get no new groups, or get some again.
    pub fn set_leaving(&mut self, runtime: u16, is_leaving: bool) {
        if let Some(runtime) = self.runtimes.get_mut(usize::from(runtime)) {
            runtime.is_leaving = is_leaving;
        }
    }

    /// Whether the view lists the runtime at a link's end as a member that may have groups.
    pub fn set_member(&mut self, runtime: usize, is_member: bool) {
        self.runtimes[runtime].is_member = is_member;
    }

    /// Whether a switch that begins waits for a runtime to tell what it has: a runtime that is not
    /// waited for is in no configuration, and in no view.
    pub fn set_expected(&mut self, runtime: usize, is_expected: bool) {
        self.runtimes[runtime].is_expected = is_expected;
    }

    /// A runtime has told what it has.
    pub fn note_resynced(&mut self, runtime: usize) {
        self.runtimes[runtime].has_resynced = true;
    }

    /// Whether the runtime at a link's end has told what it has.
    pub fn has_resynced(&self, runtime: usize) -> bool {
        self.runtimes[runtime].has_resynced
    }

    /// The runtime at a link's end is another one, or gone.
    pub fn session_over(&mut self, runtime: usize, was_there: bool, is_there: bool) {
        let known = &mut self.runtimes[runtime];
        *known = Runtime {
            is_leaving: known.is_leaving && !was_there,
            is_member: known.is_member,
            has_resynced: false,
            is_new: is_there,
            is_expected: known.is_expected,
            was_met: known.was_met || is_there,
        };
        self.resyncs.retain(|(to, _)| *to != runtime);
        if is_there {
            self.resyncs.push((runtime, None));
        }
    }

    // A switch that restarts.

    /// Reads no ports before all runtimes have told which groups they have, or for so long, in
    /// nanoseconds.
    pub fn wait_for_resync<L: Port>(&mut self, now: u64, at_most: u64, outbox: &Outbox<L>) {
        self.resynced_by = Some(now);
        self.ready_by = Some(now);
        self.at_most = at_most;
        self.put_off(now);
        self.is_among_others = true;
        // Runtimes that began with it in one process have lost their knowledge with it.
        let there = (0..self.runtimes.len()).filter(|index| outbox.is_there(*index));
        self.resyncs.extend(there.map(|index| (index, None)));
    }

    /// The runtimes that it waits for have all of the time yet, from now on.
    fn put_off(&mut self, now: u64) {
        self.resynced_by = self.resynced_by.map(|_| now.saturating_add(self.at_most));
        self.put_off_ready(now);
    }

    fn put_off_ready(&mut self, now: u64) {
        let at_most = self.at_most.saturating_mul(2);
        self.ready_by = self.ready_by.map(|_| now.saturating_add(at_most));
    }

    /// Runtimes that are there have begun with this switch, and tell what they have out of a store;
    /// of others nothing is waited for.
    pub fn expect_stored<L: Port>(&mut self, outbox: &Outbox<L>) {
        for (index, runtime) in self.runtimes.iter_mut().enumerate() {
            runtime.has_resynced = !outbox.is_there(index);
        }
    }

    /// Whether ports are not read yet.
    #[inline]
    pub fn is_waiting(&self) -> bool {
        self.ready_by.is_some()
    }

    /// Whether it knows what runtimes have, as far as they say so in time.
    pub fn is_resynced(&self) -> bool {
        self.resynced_by.is_none()
    }

    /// Whether flows of an incarnation before may yet go on elsewhere: a runtime that is there has
    /// not been told which blocks are in use.
    pub fn may_have_predecessor(&self, runtime: usize) -> bool {
        !self.runtimes[runtime].has_resynced || self.runtimes[runtime].is_new
    }

    /// Whether an incarnation may have failed of which this switch knows nothing: it has met none,
    /// or only the next one, which has not been told which blocks are in use.
    pub fn may_have_unmet(&self, runtime: usize) -> bool {
        let known = &self.runtimes[runtime];
        !known.was_met || known.is_new
    }

    /// Whether it is too early to read ports and peers, as it has been so far.
    #[cold]
    pub fn wait_on(&mut self, now: u64, available: &[u16], waits: Waits) -> bool {
        self.waited += STEP;
        let now = self.began.map_or(now, |began| began + self.waited);
        if !waits.may_act {
            self.put_off(now);
        }
        if let Some(until) = self.resynced_by {
            if waits.is_untold {
                self.put_off_ready(now);
                return true;
            }
            if until > now && self.runtimes.iter().any(Runtime::is_missed) {
                return true;
            }
            self.resynced_by = None;
        }
        let has_ready = available.iter().any(|index| !self.is_leaving(*index));
        if (!has_ready || waits.is_recovering || !self.resyncs.is_empty())
            && self.ready_by.is_some_and(|until| until > now)
        {
            return true;
        }
        self.ready_by = None;
        false
    }

    // Runtimes that restart.

    /// Whether runtimes are to be told which blocks are in use.
    #[inline]
    pub fn is_resyncing(&self) -> bool {
        !self.resyncs.is_empty() && self.resynced_by.is_none()
    }

    /// Tells runtimes that have begun which blocks are others', behind all earlier messages to
    /// them; answers how many were told some.
    #[cold]
    pub fn tell_some<L: Port>(
        &mut self,
        is_recovering: bool,
        blocks: &Blocks,
        outbox: &mut Outbox<L>,
    ) -> usize {
        let mut done = 0;
        for (runtime, mut left) in core::mem::take(&mut self.resyncs) {
            // Flows of its predecessor may yet go on elsewhere; and so may flows of another in
            // blocks of its pool.
            let is_early = self.is_among_others && !self.runtimes[runtime].has_resynced
                || is_recovering && !planted::is("told_before_recovered");
            if is_early || outbox.has_messages_for(runtime) || blocks.is_asking() || !outbox.has_room(runtime)
            {
                self.resyncs.push((runtime, left));
                continue;
            }
            done += 1;
            let places = left.get_or_insert_with(|| blocks.places());
            for place in places.split_off(places.len().saturating_sub(TOLD)) {
                blocks.tell(runtime, place, outbox);
            }
            if places.is_empty() {
                blocks.tell_lent(runtime, outbox);
                outbox.push_message(runtime, Message::Resynced);
                self.runtimes[runtime].is_new = false;
            } else {
                self.resyncs.push((runtime, left));
            }
        }
        done
    }
}
