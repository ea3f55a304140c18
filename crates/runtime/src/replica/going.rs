//! Runtimes that go, and what becomes of their copies here; and when this one may go.
//!
//! Invariant: of a runtime that is gone there is one heir, which has copies that count.
//!
//! Not here: how copies are kept (`keeper`), how flows go on (`recovery`).

use super::keeper::Keeper;
use super::recovery::{Recovery, still_until};
use crate::flows::group::GroupKey;
use crate::message::Message;
use crate::parts::Core;
use protocols::ownership::RuntimeId;
use protocols::ownership::recovery::Report;

impl Keeper {
    /// The groups of which there are copies of a runtime, and groups that had come there and are
    /// over; each once or more often.
    pub fn groups_of(&self, primary: u16) -> impl Iterator<Item = GroupKey> {
        let copies = self.primaries.get(usize::from(primary)).and_then(Option::as_ref);
        copies.into_iter().flat_map(|copies| {
            let over = copies.over.iter().map(|words| GroupKey::from_words(*words));
            copies.group_keys().chain(over)
        })
    }

    /// Whether a runtime that goes on has its copies here, and may have another keep them, as far
    /// as that is known here.
    pub fn is_needed(&self, core: &Core) -> bool {
        let (me, sessions) = (core.settings.info.runtime, &core.sessions);
        let stays = |other: u16| sessions.has_runtime(other) && !sessions.is_runtime_leaving(other);
        let all = 0..self.primaries.len() as u16;
        let has_other = |primary: u16| {
            let mut others = all.clone();
            others.any(|other| other != me && other != primary && stays(other))
        };
        let mut primaries = self.primaries.iter().zip(0..);
        primaries.any(|(copies, primary)| {
            let has = copies
                .as_ref()
                .is_some_and(|copies| copies.flows.used + copies.groups.used > 0);
            has && stays(primary) && has_other(primary)
        })
    }

    /// Runtimes of this process, and which incarnation of each was met.
    pub(super) fn mates(&self) -> impl Iterator<Item = (RuntimeId, u64)> {
        let incarnations = self.incarnations.iter().zip(&self.is_mate).zip(0..);
        let mates = incarnations.filter(|((incarnation, is_mate), _)| **is_mate && **incarnation != 0);
        mates.map(|((incarnation, _), runtime)| (RuntimeId(runtime), *incarnation))
    }

    /// An incarnation of a runtime is met: if switches were told that it is gone, they are told that
    /// it is not.
    pub(super) fn note_alive(&mut self, core: &mut Core, runtime: usize, incarnation: u64) {
        let reported = self.reported.get_mut(runtime).map_or(0, core::mem::take);
        if reported == incarnation && incarnation != 0 {
            let later = Message::Keeps(RuntimeId(runtime as u16), Report::LATER, incarnation);
            core.out.announce(later);
        }
    }

    /// A runtime is gone: its copies that another runtime has besides are void.
    #[cold]
    pub fn forget_second(&mut self, runtime: usize) {
        if let Some(place) = self.primaries.get_mut(runtime)
            && place.as_ref().is_some_and(|copies| !copies.counts)
        {
            *place = None;
        }
    }

    /// A runtime is gone: its copies, if there are any, are to be recovered once all switches say
    /// so.
    pub fn peer_gone(&mut self, core: &mut Core, runtime: u16) {
        if !core.sender.is_wanted() {
            return;
        }
        let copies = self
            .primaries
            .get_mut(usize::from(runtime))
            .and_then(Option::take);
        let number = copies.as_ref().map_or(0, |copies| copies.number);
        let known = self.incarnations.get_mut(usize::from(runtime));
        let incarnation = known.map_or(0, core::mem::take);
        if let Some(reported) = self.reported.get_mut(usize::from(runtime)) {
            *reported = incarnation;
        }
        if let Some(copies) = copies {
            self.recoveries.push(Recovery::new(runtime, copies, core.now));
            core.still_until = still_until(&self.recoveries);
        }
        core.out
            .announce(Message::Keeps(RuntimeId(runtime), number, incarnation));
        core.replica_gone(runtime);
    }
}
