//! The coordinator: suspects, withdraws, publishes.

use super::lease::Term;
use super::unheard::Unheard;
use super::view::{Incarnation, Member, Role, Standing, View, WorkerId};
use super::{Bug, has};
use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::vec::Vec;

/// When the coordinator does what. All in nanoseconds of its own clock.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Timing {
    /// The leases' term.
    pub term: Term,
    /// A member of which nothing was heard for so long is suspected.
    pub suspicion: u64,
    /// After a start no member is suspected for so long; nor is a newcomer, after the view that
    /// brings it in, until it is heard.
    pub settling: u64,
    /// Of a switch and a runtime that have not heard each other for so long, one is suspected. So
    /// is a member that is heard, and has not taken the newest view for so long.
    pub unheard: u64,
}

/// An entry of the log, logged before it is acted on.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Entry {
    /// The members from now on.
    View(View),
    /// A member is suspected, and its leases are withdrawn.
    Withdraw(WorkerId, Incarnation),
    /// It is suspected no more.
    Restore(WorkerId, Incarnation),
}

/// A word of the coordinator to a member.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Word {
    /// Adopt this view.
    View(View),
    /// Withdraw the leases of these incarnations, say when they are over, and grant those of all
    /// others. With the number of the last entry that changed the list: an older list says nothing.
    Suspects(u64, Vec<(WorkerId, Incarnation)>),
}

/// An input of the coordinator.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Input {
    /// A member lives, and has the view of this number and the suspects of that one.
    Heartbeat(WorkerId, Incarnation, u32, u64),
    /// A member has withdrawn an incarnation's leases, and they are over there.
    Withdrawn {
        /// The member.
        by: WorkerId,
        /// Which incarnation of it.
        incarnation: Incarnation,
        /// The worker that has no lease from there any more.
        of: (WorkerId, Incarnation),
        /// The number of the list of suspects that the member has.
        list: u64,
    },
    /// A member, of this incarnation, does not hear these incarnations of others. Incarnations that
    /// it named before and does not name now it hears again.
    Unheard(WorkerId, Incarnation, Vec<(WorkerId, Incarnation)>),
    /// The agent of its host has seen a worker's process end.
    Stopped(WorkerId, Incarnation),
    /// A process asks for all its workers to be members: one view has them all, if no earlier
    /// incarnation is in the way.
    Join(Vec<(WorkerId, Incarnation)>),
    /// A member's incarnation changes its standing. `None`: it has no flow left and acts no more,
    /// so it is no member any more.
    Stand(WorkerId, Incarnation, Option<Standing>),
    /// The log has this entry, by its number.
    Logged(u64),
    /// Time has passed.
    Tick,
}

/// An output of the coordinator.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Output {
    /// Write this entry, of this number, and answer with [`Input::Logged`].
    Log(u64, Entry),
    /// Say this to a member.
    Say(WorkerId, Word),
    /// Every member that is not suspected, and has been heard, has the view of this number.
    Reached(u32),
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct Suspect {
    incarnation: Incarnation,
    /// The entry that made it one.
    entry: u64,
    /// Incarnations of members whose leases of it are over.
    withdrawn: BTreeSet<(WorkerId, Incarnation)>,
    /// Since when it is fenced.
    fenced_at: Option<u64>,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
struct Heard {
    at: u64,
    view: u32,
    list: u64,
    /// Since when it has lacked a newer view than its own. Says nothing where it has the newest.
    behind: u64,
}

impl Heard {
    fn nothing(at: u64) -> Self {
        Heard {
            at,
            view: 0,
            list: 0,
            behind: at,
        }
    }

    /// Whether nothing has been heard. Views count from 1.
    fn is_nothing(&self) -> bool {
        self.view == 0
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
struct Gone {
    /// When it was fenced, or was seen to act no more.
    at: u64,
    /// The entry by which it was suspected, if it was.
    entry: Option<u64>,
    /// When it was known that its process has ended, or that it has left: it grants nothing more by
    /// any view.
    ended_at: Option<u64>,
}

/// Views before the newest that are remembered for members that may still have them. No view is
/// made beyond that.
const OLDER_MAX: usize = 64;

/// The coordinator. See the module's page.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Coordinator {
    timing: Timing,
    view: View,
    /// The entry that made it.
    view_entry: u64,
    /// Views before it that some member may still have, oldest first, each with its entry.
    older: VecDeque<(u64, View)>,
    suspects: BTreeMap<WorkerId, Suspect>,
    /// The last entry that changed them.
    list: u64,
    /// Incarnations that are members of older views alone.
    gone: BTreeMap<(WorkerId, Incarnation), Gone>,
    heard: BTreeMap<WorkerId, Heard>,
    unheard: Unheard,
    /// Incarnations whose processes have ended.
    stopped: BTreeSet<(WorkerId, Incarnation)>,
    joining: BTreeMap<WorkerId, Incarnation>,
    /// How incarnations of members are to stand, until a view has them so.
    standing: BTreeMap<(WorkerId, Incarnation), Option<Standing>>,
    settled_at: u64,
    /// Members may take so long to come to this coordinator, behind the settling time; and until
    /// when none is suspected that was not heard yet.
    returning: u64,
    returned_at: u64,
    /// Entries that are not known to be in the log, in order.
    unlogged: VecDeque<(u64, Entry)>,
    next_entry: u64,
    reached: u32,
}

/// Why a log is none of a coordinator's.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Unreadable {
    /// It has no view.
    NoView,
    /// This entry's number is not above the one before it.
    Order(u64),
    /// The view that is this entry does not follow the one before it.
    View(u64),
}

impl Coordinator {
    /// A coordinator that begins, or restarts, at `now` with what its log has: each entry with its
    /// number. Entries that [`Coordinator::needed`] did not name may be missing.
    pub fn replay(
        now: u64,
        timing: Timing,
        log: impl IntoIterator<Item = (u64, Entry)>,
    ) -> Result<Self, Unreadable> {
        let log: Vec<_> = log.into_iter().collect();
        let first = log.iter().find_map(|(number, entry)| match entry {
            Entry::View(view) => Some((*number, view.clone())),
            _ => None,
        });
        let (view_entry, view) = first.ok_or(Unreadable::NoView)?;
        let mut coordinator = Coordinator {
            timing,
            view,
            view_entry,
            older: VecDeque::new(),
            suspects: BTreeMap::new(),
            list: 0,
            gone: BTreeMap::new(),
            heard: BTreeMap::new(),
            unheard: Unheard::default(),
            stopped: BTreeSet::new(),
            joining: BTreeMap::new(),
            standing: BTreeMap::new(),
            settled_at: now.saturating_add(timing.settling),
            returning: 0,
            returned_at: 0,
            unlogged: VecDeque::new(),
            next_entry: 0,
            reached: 0,
        };
        for member in coordinator.view.members() {
            coordinator.heard.insert(member.id, Heard::nothing(now));
        }
        for (number, entry) in log {
            if number < coordinator.next_entry {
                return Err(Unreadable::Order(number));
            }
            coordinator.next_entry = number.saturating_add(1);
            if number == view_entry {
                // An entry before it may be there for its number alone, and suspect an incarnation
                // that this view has no more.
                let Coordinator { suspects, view, .. } = &mut coordinator;
                suspects.retain(|id, suspect| view.has(*id, suspect.incarnation));
                continue;
            }
            if let Entry::View(view) = &entry
                && view.number != coordinator.view.number.saturating_add(1)
            {
                return Err(Unreadable::View(number));
            }
            coordinator.apply(now, number, entry);
        }
        Ok(coordinator)
    }

    /// The numbers of the entries without which a log does not lead to what this coordinator has
    /// decided. All others may go. They are no more than [`OLDER_MAX`], two, and one for each
    /// member that is suspected or was.
    pub fn needed(&self) -> BTreeSet<u64> {
        let mut all: BTreeSet<u64> = self.older.iter().map(|(entry, _)| *entry).collect();
        all.extend(self.suspects.values().map(|suspect| suspect.entry));
        all.extend(self.gone.values().filter_map(|gone| gone.entry));
        all.insert(self.view_entry);
        // Numbers of entries and of lists go on from here.
        all.extend(self.next_entry.checked_sub(1));
        all.extend((self.list > 0).then_some(self.list));
        all.extend(self.unlogged.iter().map(|(number, _)| *number));
        all
    }

    /// The suspects, and the number of the list of them.
    pub fn suspects(&self) -> (u64, Vec<(WorkerId, Incarnation)>) {
        let suspects = self.suspects.iter();
        let suspects = suspects.map(|(id, suspect)| (*id, suspect.incarnation));
        (self.list, suspects.collect())
    }

    /// Members that were with another coordinator may take so long to come to this one, behind the
    /// settling time. Until then it suspects none that it has not heard yet.
    pub fn wait_for_return(&mut self, returning: u64) {
        self.returning = returning;
        self.returned_at = self.settled_at.saturating_add(returning);
    }

    /// The coordinator itself stood still for so long, and has heard no member meanwhile. It
    /// suspects none for as long again: for a suspicion at least, for a settling time at most.
    pub fn stood_still(&mut self, now: u64, gap: u64) {
        let Timing {
            suspicion, settling, ..
        } = self.timing;
        let patience = gap.max(suspicion).min(settling);
        self.settled_at = self.settled_at.max(now.saturating_add(patience));
    }

    /// Whether it was said how an incarnation is to stand, and no view has it so yet.
    pub fn is_to_stand(&self, id: WorkerId, incarnation: Incarnation) -> bool {
        self.standing.contains_key(&(id, incarnation))
    }

    /// The newest view.
    pub fn view(&self) -> &View {
        &self.view
    }

    /// Takes an input in; outputs go to `out`, in order.
    pub fn handle(&mut self, now: u64, input: Input, mut out: impl FnMut(Output)) {
        let out = &mut out;
        match input {
            Input::Heartbeat(id, incarnation, view, list) => {
                self.on_heartbeat(now, id, incarnation, (view, list), out);
            }
            Input::Withdrawn {
                by,
                incarnation,
                of,
                list,
            } => {
                if self.view.has(by, incarnation)
                    && let Some(suspect) = self.suspects.get_mut(&of.0)
                    && suspect.incarnation == of.1
                    // A word of an earlier suspicion says nothing: leases were granted since.
                    && (list >= suspect.entry || has(Bug::OldWordCounts))
                {
                    suspect.withdrawn.insert((by, incarnation));
                }
            }
            Input::Unheard(by, incarnation, incarnations) => {
                self.unheard
                    .note(now, (by, incarnation), &incarnations, &self.view);
            }
            Input::Stopped(id, incarnation) => {
                if self.view.has(id, incarnation) {
                    self.stopped.insert((id, incarnation));
                    self.suspect(now, id, incarnation, out);
                } else if let Some(gone) = self.gone.get_mut(&(id, incarnation)) {
                    gone.ended_at.get_or_insert(now);
                }
            }
            Input::Join(incarnations) => {
                self.hear(now);
                let most = if has(Bug::FirstWorkerJoins) {
                    1
                } else {
                    incarnations.len()
                };
                for (id, incarnation) in incarnations.into_iter().take(most) {
                    let known = self.view.member(id).map(|member| member.incarnation);
                    if known.is_none_or(|known| known < incarnation) {
                        self.joining.insert(id, incarnation);
                    }
                }
            }
            Input::Stand(id, incarnation, standing) => {
                if standing.is_none() {
                    self.hear(now);
                }
                // A worker that is to be in no view acts no more, whatever is said of it later.
                let is_over = self.standing.get(&(id, incarnation)) == Some(&None);
                if self.view.has(id, incarnation) && !is_over {
                    self.standing.insert((id, incarnation), standing);
                }
            }
            Input::Logged(number) => self.on_logged(now, number, out),
            Input::Tick => {}
        }
        self.look_for_silence(now, out);
        self.go_on(now, out);
    }

    /// Says again to each member what it may have missed: the newest view, and the suspects.
    pub fn say_again(&self, mut out: impl FnMut(Output)) {
        for member in self.view.members() {
            let heard = self.heard.get(&member.id);
            if heard.is_none_or(|heard| heard.view < self.view.number) {
                out(Output::Say(member.id, Word::View(self.view.clone())));
            }
            if heard.is_none_or(|heard| heard.list < self.list) {
                out(Output::Say(member.id, self.suspects_word()));
            }
        }
    }

    fn suspects_word(&self) -> Word {
        let (list, suspects) = self.suspects();
        Word::Suspects(list, suspects)
    }

    /// Puts a decision into the log; it is acted on when it is there.
    fn decide(&mut self, now: u64, entry: Entry, out: &mut impl FnMut(Output)) {
        let number = self.next_entry;
        self.next_entry += 1;
        out(Output::Log(number, entry.clone()));
        if has(Bug::ActsBeforeLog) {
            return self.act(now, number, entry, out);
        }
        self.unlogged.push_back((number, entry));
    }

    fn on_logged(&mut self, now: u64, number: u64, out: &mut impl FnMut(Output)) {
        while let Some((first, _)) = self.unlogged.front()
            && *first <= number
            && let Some((number, entry)) = self.unlogged.pop_front()
        {
            self.act(now, number, entry, out);
        }
    }

    fn act(&mut self, now: u64, number: u64, entry: Entry, out: &mut impl FnMut(Output)) {
        let is_view = matches!(entry, Entry::View(_));
        self.apply(now, number, entry);
        for member in self.view.members() {
            let word = match is_view {
                true => Word::View(self.view.clone()),
                false => self.suspects_word(),
            };
            out(Output::Say(member.id, word));
        }
    }

    /// Applies an entry of the log.
    fn apply(&mut self, now: u64, number: u64, entry: Entry) {
        match entry {
            Entry::View(view) => {
                let is_in = |id: &WorkerId, incarnation| view.has(*id, incarnation);
                let leave = self.view.members().iter();
                for member in leave.filter(|member| !is_in(&member.id, member.incarnation)) {
                    let incarnation = (member.id, member.incarnation);
                    let suspect = self.suspects.get(&member.id);
                    let suspect = suspect.filter(|suspect| suspect.incarnation == member.incarnation);
                    let has_ended = suspect.is_none()
                        || self.stopped.contains(&incarnation)
                        || self.standing.get(&incarnation) == Some(&None);
                    let gone = Gone {
                        at: suspect.and_then(|suspect| suspect.fenced_at).unwrap_or(now),
                        entry: suspect.map(|suspect| suspect.entry),
                        // A member that was suspected may act on, and know of no later view.
                        ended_at: has_ended.then_some(now),
                    };
                    self.gone.insert(incarnation, gone);
                }
                self.suspects.retain(|id, suspect| is_in(id, suspect.incarnation));
                for (id, suspect) in &mut self.suspects {
                    // The suspect was fenced while this view was on its way to the log: members
                    // that begin with this view may grant it a lease.
                    let has_ended = self.stopped.contains(&(*id, suspect.incarnation));
                    if !has_ended && !has(Bug::FencedForGood) {
                        suspect.fenced_at = None;
                    }
                }
                self.joining.retain(|id, incarnation| !is_in(id, *incarnation));
                self.stopped.retain(|(id, incarnation)| is_in(id, *incarnation));
                self.heard.retain(|id, _| view.member(*id).is_some());
                self.unheard.adopt(&view);
                let newest = self.view.number;
                for heard in self.heard.values_mut().filter(|heard| heard.view == newest) {
                    heard.behind = now;
                }
                for member in view.members() {
                    if !self.view.has(member.id, member.incarnation) {
                        self.heard.insert(member.id, Heard::nothing(now));
                    }
                }
                // Standings said while this view was on its way to the log are for the next.
                self.standing.retain(|(id, incarnation), standing| {
                    let member = view
                        .member(*id)
                        .filter(|member| member.incarnation == *incarnation);
                    member.is_some_and(|member| *standing != Some(member.standing))
                });
                let before = core::mem::replace(&mut self.view, view);
                let entry = core::mem::replace(&mut self.view_entry, number);
                self.older.push_back((entry, before));
            }
            Entry::Withdraw(id, incarnation) => {
                self.suspects.insert(
                    id,
                    Suspect {
                        incarnation,
                        entry: number,
                        withdrawn: BTreeSet::new(),
                        fenced_at: None,
                    },
                );
                self.list = number;
            }
            Entry::Restore(id, _) => {
                self.suspects.remove(&id);
                self.list = number;
            }
        }
    }

    fn on_heartbeat(
        &mut self,
        now: u64,
        id: WorkerId,
        incarnation: Incarnation,
        (view, list): (u32, u64),
        out: &mut impl FnMut(Output),
    ) {
        if !self.view.has(id, incarnation) {
            // An incarnation that is over by the newest view may not know it.
            return out(Output::Say(id, Word::View(self.view.clone())));
        }
        self.hear(now);
        let known = self.heard.get(&id).copied().unwrap_or(Heard::nothing(now));
        let view = view.max(known.view).min(self.view.number);
        let heard = Heard {
            at: now,
            view,
            list: list.max(known.list),
            // A member that goes on is slow, and no more.
            behind: match view {
                newest if newest == self.view.number => 0,
                later if later > known.view => now,
                _ => known.behind,
            },
        };
        self.heard.insert(id, heard);
        self.forget_older();
        let suspect = self.suspects.get(&id);
        let is_fenced = suspect.is_none_or(|suspect| suspect.fenced_at.is_some());
        if !is_fenced && !self.is_deciding() && self.is_back(now, (id, incarnation)) {
            self.decide(now, Entry::Restore(id, incarnation), out);
        }
    }

    /// Whether a suspect is heard again and may stay. Its record may have to wait for others.
    fn is_back(&self, now: u64, incarnation: (WorkerId, Incarnation)) -> bool {
        let heard = self.heard.get(&incarnation.0).filter(|heard| !heard.is_nothing());
        heard.is_some_and(|heard| now.saturating_sub(heard.at) < self.timing.suspicion)
            && !self.stopped.contains(&incarnation)
            && !self.is_to_go(now, incarnation)
    }

    /// A process is heard. Where members would have been suspected if the coordinator had not been
    /// cut off, no member is for twice as long again: a connection sends again what was lost after
    /// twice the time that it was cut, at most. A member that was late when the cut began is not
    /// excused.
    fn hear(&mut self, now: u64) {
        let Timing {
            suspicion, settling, ..
        } = self.timing;
        let Some(gap) = self.cut_off(now) else {
            return;
        };
        let is_late = |(id, heard): (&WorkerId, &Heard)| {
            let silent = now.saturating_sub(heard.at);
            silent >= suspicion
                && silent.saturating_sub(gap) < suspicion
                && !heard.is_nothing()
                && !self.suspects.contains_key(id)
        };
        if self.heard.iter().any(is_late) {
            let longest = settling.saturating_add(self.returning);
            let patience = gap.saturating_mul(2).max(suspicion).min(longest);
            self.settled_at = self.settled_at.max(now.saturating_add(patience));
        }
    }

    /// For how long the coordinator has heard none of the members that it had heard, if for so long
    /// that it takes itself for cut off. Or all have failed: then none is left to withdraw a lease.
    /// A process that waits to join, or to be no member any more, is there.
    fn cut_off(&self, now: u64) -> Option<u64> {
        let heard = self.heard.values().filter(|heard| !heard.is_nothing());
        let newest = heard.map(|heard| heard.at).max()?;
        let gap = now.saturating_sub(newest);
        // When a cut begins, one member was heard a little later than another.
        let is_long = gap >= self.timing.suspicion.div_ceil(2);
        let is_asked = !self.joining.is_empty() || self.standing.values().any(Option::is_none);
        (is_long && !is_asked).then_some(gap)
    }

    /// Forgets views that no member has any more, and what was known of their members.
    fn forget_older(&mut self) {
        let oldest = self.heard.values().map(|heard| heard.view).min().unwrap_or(0);
        while self.older.front().is_some_and(|(_, view)| view.number < oldest) {
            self.older.pop_front();
        }
        let older = &self.older;
        self.gone
            .retain(|(id, incarnation), _| older.iter().any(|(_, view)| view.has(*id, *incarnation)));
    }

    fn is_deciding(&self) -> bool {
        !self.unlogged.is_empty()
    }

    fn look_for_silence(&mut self, now: u64, out: &mut impl FnMut(Output)) {
        if now < self.settled_at || self.cut_off(now).is_some() {
            return;
        }
        let Timing {
            suspicion, settling, ..
        } = self.timing;
        let silent = |member: &&Member| {
            let heard = self.heard.get(&member.id).copied().unwrap_or(Heard::nothing(0));
            if heard.is_nothing() && now < self.returned_at {
                return false;
            }
            let longest = match self.is_newcomer(member) {
                true => suspicion.max(settling),
                false => suspicion,
            };
            now.saturating_sub(heard.at) >= longest || self.is_stuck(now, member.id)
        };
        let silent: Vec<_> = self.view.members().iter().filter(silent).copied().collect();
        for member in silent {
            self.suspect(now, member.id, member.incarnation, out);
        }
        for (id, incarnation) in self.are_to_go(now) {
            self.suspect(now, id, incarnation, out);
        }
    }

    /// Whether a member may not have got its first view yet: its process waits for that, and is not
    /// heard meanwhile.
    fn is_newcomer(&self, member: &Member) -> bool {
        let heard = self.heard.get(&member.id);
        member.standing == Standing::Joining && heard.is_none_or(Heard::is_nothing)
    }

    /// Whether a member is heard, and does not take the newest view. No other view follows before
    /// it has, so it is as one that is silent.
    fn is_stuck(&self, now: u64, id: WorkerId) -> bool {
        let heard = self.heard.get(&id).filter(|heard| !heard.is_nothing());
        heard.is_some_and(|heard| {
            heard.view < self.view.number && now.saturating_sub(heard.behind) >= self.timing.unheard
        })
    }

    fn is_to_go(&self, now: u64, incarnation: (WorkerId, Incarnation)) -> bool {
        if self.is_stuck(now, incarnation.0) {
            return true;
        }
        self.are_to_go(now).contains(&incarnation) && !has(Bug::RestoredUnheard)
    }

    /// Incarnations that live, and go since others do not hear them.
    fn are_to_go(&self, now: u64) -> Vec<(WorkerId, Incarnation)> {
        let is_suspect = |id| self.suspects.contains_key(&id);
        self.unheard
            .to_go(now, self.timing.unheard, &self.view, is_suspect)
    }

    fn suspect(&mut self, now: u64, id: WorkerId, incarnation: Incarnation, out: &mut impl FnMut(Output)) {
        let entry = Entry::Withdraw(id, incarnation);
        let is_known =
            self.suspects.contains_key(&id) || self.unlogged.iter().any(|(_, unlogged)| *unlogged == entry);
        if !is_known {
            self.decide(now, entry, out);
        }
    }

    /// Notes which suspects are fenced by now, whether the newest view has reached its members, and
    /// makes the next one if there is cause.
    fn go_on(&mut self, now: u64, out: &mut impl FnMut(Output)) {
        for round in [Role::Switch, Role::Runtime] {
            let ids: Vec<_> = self
                .suspects
                .keys()
                .filter(|id| id.role == round)
                .copied()
                .collect();
            for id in ids {
                let is_fenced = self.is_fenced(now, id);
                let suspect = self.suspects.get(&id);
                let is_back = suspect.is_some_and(|suspect| self.is_back(now, (id, suspect.incarnation)));
                if let Some(suspect) = self.suspects.get_mut(&id)
                    && is_fenced
                    && !is_back
                {
                    suspect.fenced_at.get_or_insert(now);
                }
            }
        }
        let number = self.view.number;
        let has_it = |member: &Member| {
            self.suspects.contains_key(&member.id)
                || self.is_newcomer(member)
                || self
                    .heard
                    .get(&member.id)
                    .is_some_and(|heard| heard.view == number)
        };
        let is_reached = self.view.members().iter().all(has_it);
        if is_reached && self.reached < number {
            self.reached = number;
            out(Output::Reached(number));
        }
        if self.is_deciding() || !is_reached || self.older.len() >= OLDER_MAX {
            return;
        }
        if let Some(members) = self.next_members() {
            let view = View::new(number + 1, members);
            self.decide(now, Entry::View(view), out);
        }
    }

    /// The members of the next view, if they differ from those of the newest.
    fn next_members(&self) -> Option<Vec<Member>> {
        let mut members = Vec::new();
        for member in self.view.members() {
            let suspect = self.suspects.get(&member.id);
            let is_gone = suspect.is_some_and(|suspect| suspect.fenced_at.is_some());
            let standing = self
                .standing
                .get(&(member.id, member.incarnation))
                .copied()
                .unwrap_or(Some(member.standing));
            if let (false, Some(standing)) = (is_gone, standing) {
                members.push(Member { standing, ..*member });
            }
        }
        for (id, incarnation) in &self.joining {
            // The incarnation before is fenced first.
            if members.iter().all(|member| member.id != *id) {
                members.push(Member {
                    id: *id,
                    incarnation: *incarnation,
                    standing: Standing::Joining,
                });
            }
        }
        members.sort_unstable();
        (members != self.view.members()).then_some(members)
    }

    /// Whether a suspect cannot act any more, whichever view it has.
    fn is_fenced(&self, now: u64, id: WorkerId) -> bool {
        let Some(suspect) = self.suspects.get(&id) else {
            return false;
        };
        if self.stopped.contains(&(id, suspect.incarnation)) || suspect.fenced_at.is_some() {
            return true;
        }
        let least = self.heard.get(&id).map_or(0, |heard| heard.view);
        let may_have = |view: &&View| {
            view.number >= least && view.has(id, suspect.incarnation) && !has(Bug::OldViewForgotten)
        };
        let older = self.older.iter().map(|(_, view)| view);
        let mut views = older.filter(may_have).chain([&self.view]);
        views.all(|view| self.is_fenced_by(now, id, suspect, view))
    }

    fn is_fenced_by(&self, now: u64, id: WorkerId, suspect: &Suspect, view: &View) -> bool {
        // One incarnation of a member knows nothing of what another has granted, or will.
        let has_withdrawn = |by: &Member| {
            let is_any = |(id, _): &(WorkerId, Incarnation)| *id == by.id && has(Bug::LaterIncarnationCounts);
            suspect.withdrawn.contains(&(by.id, by.incarnation)) || suspect.withdrawn.iter().any(is_any)
        };
        let grants_no_more = |by: &Member| {
            let gone = self.gone.get(&(by.id, by.incarnation));
            let ended_at = gone.and_then(|gone| gone.ended_at);
            has_withdrawn(by) || ended_at.is_some_and(|at| self.is_promise_over(now, at))
        };
        match id.role {
            Role::Switch => {
                let withdrawn = view.members().iter().filter(|by| grants_no_more(by));
                let weight: u32 = withdrawn.map(|by| view.weight(by.id)).sum();
                2 * weight >= view.total() || (has(Bug::FewAreEnough) && weight > 0)
            }
            Role::Runtime if has(Bug::OneSwitchIsEnough) => view.switches().any(has_withdrawn),
            Role::Runtime => view
                .switches()
                .all(|switch| has_withdrawn(switch) || self.are_promises_over(now, switch)),
        }
    }

    /// Whether a switch is fenced so long that no lease which it granted lasts.
    fn are_promises_over(&self, now: u64, switch: &Member) -> bool {
        let suspect = self.suspects.get(&switch.id);
        let suspect = suspect.filter(|suspect| suspect.incarnation == switch.incarnation);
        let gone = self.gone.get(&(switch.id, switch.incarnation));
        let gone = gone.map(|gone| gone.at);
        let fenced_at = suspect.and_then(|suspect| suspect.fenced_at).or(gone);
        fenced_at.is_some_and(|at| self.is_promise_over(now, at))
    }

    /// Whether a lease granted until then is over.
    fn is_promise_over(&self, now: u64, granted: u64) -> bool {
        let promise = match has(Bug::PromisesForgotten) {
            true => 0,
            false => self.timing.term.promise(),
        };
        now.saturating_sub(granted) >= promise
    }
}
