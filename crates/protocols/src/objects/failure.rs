//! A view without runtimes that have failed: flush, claims, promotion, and requests that are sent
//! again.

use super::inputs::{Output, Phase, Stage};
use super::members::{Key, Members};
use super::message::{Body, Gen, Image, Message, Rank, Record};
use super::state::{Objects, Recovery};
use super::{Bug, has};
use crate::ownership::RuntimeId;
use alloc::collections::{BTreeMap, VecDeque};

impl<B: Body> Objects<B> {
    /// Installs the view: key owners' records are forgotten, and no object ships until each
    /// member's `Flush` has come.
    pub(super) fn on_failed(&mut self, view: u32, members: Members, removed: Members) {
        let newest = match self.stage.phase {
            Phase::Normal => self.stage.view,
            Phase::Prepared | Phase::Scaling => self.stage.view.wrapping_add(1),
        };
        if view <= newest || !members.has(self.me.runtime) {
            if view == newest && self.recovery.is_none() {
                self.outputs.push_back(Output::Reached(Stage::normal(view)));
            }
            return;
        }
        self.removed = self.removed.or(removed).minus(members);
        (self.stage, self.members, self.next) = (Stage::normal(view), members, members);
        (self.swept, self.cursor, self.is_complete) = (Members::NONE, None, false);
        self.recovery = Some(Recovery {
            is_claiming: false,
            done: Members::NONE,
            claims: BTreeMap::new(),
            delayed: VecDeque::new(),
        });
        self.forget(members);
        if self.flushed.0 != view {
            self.flushed = (view, Members::NONE);
        }
        for to in members.iter() {
            self.send(to, Message::Flush(view));
        }
    }

    fn forget(&mut self, members: Members) {
        for entry in self.entries.values_mut() {
            entry.record = None;
            entry.queue.clear();
            entry.parked.clear();
            entry.awaiting.adoption = false;
            if let Some(object) = &mut entry.object {
                (object.leave, object.is_offered) = (None, false);
                object.targets.clear();
                (object.draining, object.dropping) = (Members::NONE, Members::NONE);
                object.copies = object.copies.and(members);
                object.image.applied.retain(|caller| members.has(caller.runtime));
            }
        }
        self.entries.retain(|_, entry| !entry.is_empty());
    }

    /// Nothing of an earlier view comes from there any more.
    pub(super) fn on_flush(&mut self, from: RuntimeId, view: u32) {
        if view > self.flushed.0 {
            self.flushed = (view, Members::NONE);
        }
        if view == self.flushed.0 {
            self.flushed.1 = self.flushed.1.with(from);
        }
        let (flushed, members) = (self.flushed, self.members);
        let is_all = members.minus(flushed.1).is_empty() || has(Bug::NoWaitForFlush);
        match &mut self.recovery {
            Some(recovery) if !recovery.is_claiming && flushed.0 == self.stage.view && is_all => {
                recovery.is_claiming = true;
                self.claim();
            }
            _ => {}
        }
    }

    /// Claims each object and copy here at its key owner, and begins to copy again.
    fn claim(&mut self) {
        let (view, members, seed) = (self.stage.view, self.members, self.settings.seed);
        let mut from = None;
        while let Some(key) = self.key_after(from) {
            from = Some(key);
            let (Some(entry), Some(to)) = (self.entries.get(&key), members.first(&key, seed)) else {
                continue;
            };
            let object = entry.object.as_ref().map(|object| object.image.rank(true));
            let copy = entry
                .copy
                .as_ref()
                .filter(|_| !has(Bug::CopiesUnclaimed))
                .map(|copy| copy.rank(false));
            for rank in object.into_iter().chain(copy) {
                self.send(to, Message::Claim(view, key, rank));
            }
        }
        for to in members.iter() {
            self.send(to, Message::ClaimsDone(view));
        }
        let mut from = None;
        while let Some(key) = self.key_after(from) {
            self.retarget(key);
            from = Some(key);
        }
    }

    /// An object or a copy is there.
    pub(super) fn on_claim(&mut self, from: RuntimeId, view: u32, key: Key, rank: Rank) {
        let (is_now, max) = (view == self.stage.view, self.settings.keys_max);
        let is_mine = self.members.first(&key, self.settings.seed) == Some(self.me.runtime);
        if view < self.stage.view {
            // A failure view that another one followed.
            return self.discard();
        }
        let Some(recovery) = self.recovery.as_mut().filter(|_| is_now && is_mine) else {
            return self.refuse();
        };
        let has_room = recovery.claims.len() < max;
        match recovery.claims.get_mut(&key) {
            Some((best, holder, all)) => {
                *all = all.with(from);
                let is_better = match has(Bug::AnyClaimWins) {
                    true => rank < *best,
                    false => rank > *best,
                };
                if is_better {
                    (*best, *holder) = (rank, from);
                }
            }
            None if has_room => {
                recovery.claims.insert(key, (rank, from, Members::one(from)));
            }
            None => self.refuse(),
        }
    }

    /// All claims of a runtime are here; after the last one's, this runtime serves its keys.
    pub(super) fn on_claims_done(&mut self, now: u64, from: RuntimeId, view: u32) {
        let (is_now, members) = (view == self.stage.view, self.members);
        if view < self.stage.view {
            return self.discard();
        }
        let Some(recovery) = self.recovery.as_mut().filter(|_| is_now) else {
            return self.refuse();
        };
        recovery.done = recovery.done.with(from);
        let is_all = members.minus(recovery.done).is_empty() || has(Bug::ServesBeforeClaims);
        if let Some(recovery) = self.recovery.take_if(|_| is_all) {
            self.serve_again(now, recovery);
        }
    }

    fn serve_again(&mut self, now: u64, recovery: Recovery<B>) {
        for (key, (rank, holder, all)) in recovery.claims {
            let lease = match rank.is_holder {
                true => rank.lease,
                false => rank.lease.wrapping_add(1),
            };
            let Some(entry) = self.entry(key) else { continue };
            entry.record = Some(Record {
                generation: rank.generation,
                lease,
                tail: holder,
                removing: None,
            });
            if !rank.is_holder {
                let others = all.without(holder);
                let view = self.stage.view;
                self.send(
                    holder,
                    Message::Promote(view, key, rank.generation, lease, others),
                );
            }
        }
        self.local
            .extend(recovery.delayed.into_iter().map(Message::Request));
        if !has(Bug::NoResubmission) {
            self.resubmit(now);
        }
        self.outputs.push_back(Output::Reached(self.stage));
    }

    /// The copy that is here is the object now.
    pub(super) fn on_promote(
        &mut self,
        from: RuntimeId,
        view: u32,
        key: Key,
        name: (Gen, u64),
        copies: Members,
    ) {
        let is_owner = self.members.first(&key, self.settings.seed) == Some(from);
        match self.promoted(&key, name) {
            Some(image) if view == self.stage.view && is_owner => self.install(key, image, copies),
            _ => self.refuse(),
        }
    }

    /// The copy that is here, with its lease as the object.
    fn promoted(&mut self, key: &Key, (generation, lease): (Gen, u64)) -> Option<Image<B>> {
        let entry = self.entries.get(key)?;
        let copy = entry.copy.as_ref().filter(|_| entry.object.is_none())?;
        let is_it = copy.generation == generation && copy.lease < lease;
        is_it.then(|| Image {
            lease,
            ..copy.clone()
        })
    }
}
