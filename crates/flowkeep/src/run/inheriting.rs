//! The thread by which timers of members that are gone fire here: with a coordinator, and where
//! members have a store in common.
//!
//! # Theory of operation
//!
//! ```text
//!   a view, or time ─► partitions with timers, of members of which the view has no runtime
//!                        └─► this member's runtime by the view ([`heir_of`])? ─► its turn? ─► claim
//!      ┌─ some timers: noted ─► armed at the worker, held ─► at the store ─► removed where they were ◄─┘
//!      └──────────────────────── they fire ◄──────────────── or the other has them: they go here ◄───┘
//! ```
//!
//! *Which members are gone* follows from the present view, not from an event: so a member that
//! begins takes over, too, the timers that no other has. A member that this process has seen in a
//! view is gone as soon as a view is without it. Any other may be about to begin: it is gone when
//! it is in no view `return_max` after this process began. A member that begins later finds that
//! its timers are gone, and they have fired or will: none twice.
//!
//! *One heir.* All members that have one view name the same runtime. Where views differ for a
//! moment, turns and claims at the store see to it that each timer has one place
//! ([`stores::taking`]).
//!
//! Where the store does not answer, timers that are on their way are held until it does. Where this
//! process ends, the next incarnation of this member, or the next heir, completes the moves under
//! way.
//!
//! Store and workers are asked on this thread, and no other waits for it. It ends with the process:
//! no timer of an unfinished move is lost.
//!
//! Not here: each step at the store (`stores::taking`); timers of the same member's runtimes
//! ([`super::adopting`]).

use super::Shared;
use super::handle::{Handle, Unanswered};
use super::links::WorkerLink;
use crate::events::{Declared, TIMERS_LEFT, TIMERS_TAKEN_OVER};
use crate::log::{self, Level};
use crate::store::{Common, Kept};
use nf::variables::open::Element;
use nf::variables::shelf::Said;
use runtime::Runtime;
use std::collections::BTreeSet;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};
use stores::taking::{Taking, Turn, heir_of};
use stores::{OpenError, PartitionName, Turns};

/// Between two looks at the view.
const LOOK: Duration = Duration::from_millis(100);
/// Between two tries, while something is left to be done.
const AGAIN: Duration = Duration::from_secs(1);
/// Between two looks at the store where the view stays.
const SLOWLY: Duration = Duration::from_secs(60);
/// Between two looks at a worker or a store that has not answered.
const STEP: Duration = Duration::from_millis(2);

/// Why a round is over.
enum Stopped {
    /// The process ends.
    Ends,
    /// The store fails.
    Store(OpenError),
    /// The heir's partition takes none: another process has claimed it, or the configuration has
    /// the variable no more. Moves under way end with this member.
    Heir,
}

impl From<OpenError> for Stopped {
    fn from(error: OpenError) -> Self {
        match error {
            OpenError::Closed => Stopped::Ends,
            other => Stopped::Store(other),
        }
    }
}

struct Inheritor {
    me: Weak<Shared>,
    /// The stores that members have in common.
    all: Vec<(Common, Turns)>,
    began: Instant,
    patience: Duration,
    /// Members of which a view had a runtime.
    seen: BTreeSet<String>,
}

/// Has timers of members that are gone taken over from now on.
pub(super) fn begin(shared: &Arc<Shared>, common: Vec<Common>, patience: Duration) {
    if common.is_empty() || shared.part.is_none() {
        return;
    }
    let with_turns = |common: Common| {
        let turns = Turns::of(&common.estate);
        (common, turns)
    };
    let inheritor = Inheritor {
        me: Weak::clone(&shared.me),
        all: common.into_iter().map(with_turns).collect(),
        began: Instant::now(),
        patience,
        seen: BTreeSet::new(),
    };
    let thread = std::thread::Builder::new().name("inheriting".into());
    if let Err(error) = thread.spawn(move || inheritor.run()) {
        log::say(
            Level::Warn,
            format_args!("timers of members that are gone do not fire here: no thread for it: {error}"),
        );
    }
}

impl Inheritor {
    fn run(mut self) {
        let (mut known, mut next, mut said) = (0, Instant::now(), String::new());
        loop {
            std::thread::sleep(LOOK);
            let Some(shared) = self.me.upgrade() else { return };
            if shared.stop.load(Ordering::Relaxed) {
                return;
            }
            let view = self.all.first().map_or(0, |(of, _)| of.estate.views().number());
            if view == known && Instant::now() < next {
                continue;
            }
            known = view;
            let wait = match self.round(&shared) {
                Ok(true) => SLOWLY,
                Ok(false) => AGAIN,
                Err(Stopped::Ends) => return,
                Err(Stopped::Heir) => SLOWLY,
                Err(Stopped::Store(error)) => {
                    // Said once while it lasts.
                    let error = error.to_string();
                    if error != said {
                        log::say(
                            Level::Warn,
                            format_args!("timers of members that are gone wait: {error}"),
                        );
                        said = error;
                    }
                    next = Instant::now() + AGAIN;
                    continue;
                }
            };
            said.clear();
            next = Instant::now() + wait;
        }
    }

    /// Takes over all timers that are this process' to take; answers whether none of them is left.
    fn round(&mut self, shared: &Shared) -> Result<bool, Stopped> {
        let Some((first, _)) = self.all.first() else {
            return Ok(true);
        };
        let (view, runtimes) = first.estate.views().runtimes();
        let here = shared.runtimes();
        if !here.keys().any(|own| first.estate.views().has((*own).into())) {
            return Ok(false);
        }
        // A store that does not answer holds up no other.
        let (mut is_done, mut failed) = (true, None);
        for (common, _) in &self.all {
            match common.estate.arrive(view) {
                Ok(has_arrived) => is_done &= has_arrived,
                Err(error) => failed = Some(Stopped::from(error)),
            }
        }
        let Some(members) = members(shared, &runtimes) else {
            // The view has a runtime of which it is not known yet whose it is.
            return Ok(false);
        };
        self.seen.extend(members.iter().cloned());
        let gone = Gone {
            view,
            runtimes,
            members,
            // A member that was seen in no view may be about to begin.
            known: (self.began.elapsed() < self.patience).then_some(&self.seen),
        };
        for (common, turns) in &mut self.all {
            match gone.round(shared, common, turns) {
                Ok(done) => is_done &= done,
                Err(Stopped::Ends) => return Err(Stopped::Ends),
                Err(error) => failed = Some(error),
            }
        }
        failed.map_or(Ok(is_done), Err)
    }
}

/// By which view members are gone.
struct Gone<'i> {
    view: u32,
    runtimes: Vec<u32>,
    members: BTreeSet<String>,
    /// Only these; `None`: all others.
    known: Option<&'i BTreeSet<String>>,
}

impl Gone<'_> {
    /// Takes over the timers of gone members in a store that are this process' to take; answers
    /// whether none of them is left.
    fn round(&self, shared: &Shared, common: &Common, turns: &mut Turns) -> Result<bool, Stopped> {
        let (mut is_done, here) = (true, shared.runtimes());
        let estate = Arc::clone(&common.estate);
        let heir_here = |member: &str| {
            let heir = heir_of(member, &self.runtimes).and_then(|heir| u16::try_from(heir).ok());
            heir.and_then(|heir| Some((heir, here.get(&heir)?)))
        };
        let is_ours = |member: &str| !self.members.contains(member) && heir_here(member).is_some();
        for function in &common.functions {
            let Some(worker) = here.values().next() else {
                return Ok(true);
            };
            let names = timer_names(shared, worker, function)?;
            if names.is_empty() {
                continue;
            }
            for (member, partitions) in estate.left(&function.name, &names, is_ours)? {
                let Some((heir, worker)) = heir_here(&member) else {
                    continue;
                };
                if self.known.is_some_and(|known| !known.contains(&member)) {
                    is_done = false;
                    continue;
                }
                if !estate.knows(&member)? {
                    continue;
                }
                // The member says by which view it is there, and the next round goes by that.
                if estate.views().number() != self.view {
                    return Ok(false);
                }
                let heir = estate.own(&function.name, heir.into())?;
                estate.forget(&heir)?;
                let Some(mut turn) = turns.turn(&member, heir.runtime(), self.view)? else {
                    is_done = false;
                    continue;
                };
                let to = Heir {
                    shared,
                    worker,
                    partition: &heir,
                    uri: &common.uri,
                };
                is_done &= to.inherit(&mut turn, &partitions, &names)?;
                turn.end()?;
            }
        }
        Ok(is_done)
    }
}

/// The members that have these runtimes; `None` where it is not known of one.
fn members(shared: &Shared, runtimes: &[u32]) -> Option<BTreeSet<String>> {
    let part = shared.part.as_ref()?;
    let owner = |runtime: &u32| Some(part.owner(u16::try_from(*runtime).ok()?)?.0);
    runtimes.iter().map(owner).collect()
}

fn timer_names(shared: &Shared, worker: &Handle, function: &Kept) -> Result<Vec<String>, Stopped> {
    let all = ask(shared, worker, |runtime| runtime.timer_names())?;
    let mut own = all.into_iter().filter(|(_, name, _)| *name == function.name);
    let names = own.next().map(|(_, _, names)| names).unwrap_or_default();
    // Timers of a variable that is in no store any more stay where they were.
    let is_kept = |name: &String| function.said.get(name) != Some(&Said::Local);
    Ok(names.into_iter().filter(is_kept).collect())
}

/// Asks a runtime until it answers.
fn ask<T: Send + 'static>(
    shared: &Shared,
    worker: &Handle,
    call: impl Fn(&mut Runtime<WorkerLink>) -> T + Clone + Send + 'static,
) -> Result<T, Stopped> {
    loop {
        match worker.runtime(call.clone()) {
            Ok(answer) => return Ok(answer),
            Err(Unanswered::Gone) => return Err(Stopped::Ends),
            Err(_) if shared.stop.load(Ordering::Relaxed) => return Err(Stopped::Ends),
            // The call may be made yet; each call may be made twice.
            Err(_) => std::thread::sleep(STEP),
        }
    }
}

/// The runtime that takes timers over.
struct Heir<'h> {
    shared: &'h Shared,
    worker: &'h Handle,
    partition: &'h PartitionName,
    uri: &'h str,
}

impl Heir<'_> {
    /// Takes over the timers of a member in these partitions; answers whether these are all of
    /// them.
    fn inherit(
        &self,
        turn: &mut Turn<'_>,
        partitions: &[PartitionName],
        names: &[String],
    ) -> Result<bool, Stopped> {
        if !turn.finish_takings(partitions, names)? {
            return Ok(false);
        }
        for from in partitions {
            let Some(mut taking) = turn.take(from, self.partition, names)? else {
                return Ok(false);
            };
            let (mut taken, mut left) = (0, 0);
            let mut is_ours = true;
            while is_ours && let Some(chunk) = taking.take_some()? {
                let rest = self.hold(&chunk.name, &chunk.timers)?;
                is_ours = self.commit(&taking, &rest)?;
                self.release_timers(&chunk.name, is_ours)?;
                taking.finish()?;
                if self.shared.stop.load(Ordering::Relaxed) {
                    return Err(Stopped::Ends);
                }
                if is_ours {
                    taken += chunk.timers.len() - rest.len();
                    left += rest.len();
                    is_ours = turn.is_still_ours()?;
                }
            }
            self.tell(from, &TIMERS_TAKEN_OVER, taken);
            self.tell(from, &TIMERS_LEFT, left);
            if !is_ours {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Arms timers at the worker, which holds them; answers the timers that found no room, once the
    /// store has the others.
    fn hold(&self, name: &str, timers: &[Element]) -> Result<Vec<Element>, Stopped> {
        let (function, of, armed) = (
            self.partition.function().to_owned(),
            name.to_owned(),
            timers.to_vec(),
        );
        let call =
            move |runtime: &mut Runtime<WorkerLink>| runtime.hold_timers((&function, &of), armed.clone());
        match ask(self.shared, self.worker, call)? {
            Some((left, change)) => self.wait(name, change).map(|()| left),
            None => Err(Stopped::Heir),
        }
    }

    fn release_timers(&self, name: &str, are_ours: bool) -> Result<(), Stopped> {
        let (function, of) = (self.partition.function().to_owned(), name.to_owned());
        let call =
            move |runtime: &mut Runtime<WorkerLink>| runtime.release_timers((&function, &of), are_ours);
        match ask(self.shared, self.worker, call)? {
            Some(change) => self.wait(name, change),
            None => Err(Stopped::Heir),
        }
    }

    /// Waits until the store has a change.
    fn wait(&self, name: &str, change: u64) -> Result<(), Stopped> {
        let (function, of) = (self.partition.function().to_owned(), name.to_owned());
        let call =
            move |runtime: &mut Runtime<WorkerLink>| runtime.are_timers_stored((&function, &of), change);
        let mut step = STEP;
        loop {
            match ask(self.shared, self.worker, call.clone())? {
                Some(true) => return Ok(()),
                None => return Err(Stopped::Heir),
                Some(false) if self.shared.stop.load(Ordering::Relaxed) => return Err(Stopped::Ends),
                Some(false) => std::thread::sleep(step),
            }
            step = (step * 2).min(LOOK);
        }
    }

    /// Removes timers where they were; answers whether they are this runtime's. It is asked until
    /// that is known.
    fn commit(&self, taking: &Taking, left: &[Element]) -> Result<bool, Stopped> {
        loop {
            match taking.commit(left) {
                Ok(are_ours) => return Ok(are_ours),
                Err(OpenError::Closed) => return Err(Stopped::Ends),
                Err(_) if self.shared.stop.load(Ordering::Relaxed) => return Err(Stopped::Ends),
                Err(_) => std::thread::sleep(LOOK),
            }
        }
    }

    fn tell(&self, from: &PartitionName, event: &'static Declared, timers: usize) {
        if timers > 0 {
            let fields = [
                ("store", self.uri.into()),
                ("partition", from.to_string().into()),
                ("timers", timers.to_string().into()),
            ];
            self.shared.notices.tell(event, &fields);
        }
    }
}
