//! A worker's side of membership: its view, the leases it has and those it grants.

use super::lease::{Grant, Lease, Term};
use super::view::{Incarnation, Member, Role, Standing, View, WorkerId};
use super::{Bug, has};
use alloc::collections::BTreeMap;
use alloc::vec::Vec;

/// A notice to a worker's driver.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Notice {
    /// A view with this number is in force here.
    Adopted(u32),
    /// To the coordinator: this incarnation of a worker has no lease from here, and gets none. With
    /// the number of the list of suspects.
    Withdrawn(WorkerId, Incarnation, u64),
    /// This worker's incarnation is over by the view: it stops, and may begin another.
    Fenced,
}

/// One worker. See the module's page.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Membership {
    me: WorkerId,
    incarnation: Incarnation,
    term: Term,
    view: View,
    is_fenced: bool,
    /// By grantor.
    leases: BTreeMap<WorkerId, Lease>,
    /// By holder.
    grants: BTreeMap<WorkerId, Grant>,
    /// Incarnations that are granted nothing, and the number of the list that says so.
    suspects: Vec<(WorkerId, Incarnation)>,
    list: u64,
    /// Runtimes that may have had groups when this worker began.
    first: Vec<(WorkerId, Incarnation)>,
    /// The news whether this worker leaves.
    leaving: Option<bool>,
}

fn leaves(view: &View, id: WorkerId) -> bool {
    view.member(id)
        .is_some_and(|member| member.standing == Standing::Leaving)
}

fn may_have_groups(member: &&Member) -> bool {
    member.id.role == Role::Runtime && member.standing != Standing::Joining
}

impl Membership {
    /// A worker that begins with this view.
    pub fn new(me: WorkerId, incarnation: Incarnation, term: Term, view: View) -> Self {
        let first = view.members().iter().filter(may_have_groups);
        let first = first.map(|member| (member.id, member.incarnation)).collect();
        Membership {
            first,
            leaving: leaves(&view, me).then_some(true),
            me,
            incarnation,
            term,
            view,
            is_fenced: false,
            leases: BTreeMap::new(),
            grants: BTreeMap::new(),
            suspects: Vec::new(),
            list: 0,
        }
    }

    /// Which worker it is.
    pub fn me(&self) -> WorkerId {
        self.me
    }

    /// Which incarnation of it.
    pub fn incarnation(&self) -> Incarnation {
        self.incarnation
    }

    /// How long leases last.
    pub fn term(&self) -> Term {
        self.term
    }

    /// The view in force here.
    pub fn view(&self) -> &View {
        &self.view
    }

    /// Whether this worker leaves, or does no more, by a view that came since the last call. Later
    /// views that say the same are no news: its host may have decided otherwise meanwhile.
    pub fn take_leaving(&mut self) -> Option<bool> {
        self.leaving.take()
    }

    /// Whether a view has removed this worker.
    pub fn is_fenced(&self) -> bool {
        self.is_fenced
    }

    /// Takes over a view, if it is newer.
    pub fn adopt(&mut self, view: View, mut out: impl FnMut(Notice)) {
        if view.number <= self.view.number || self.is_fenced {
            return;
        }
        let is_same = |id: &WorkerId, old: &View| {
            let old = old.member(*id).map(|member| member.incarnation);
            old.is_some() && view.member(*id).map(|member| member.incarnation) == old
        };
        let before = &self.view;
        self.leases.retain(|id, _| is_same(id, before));
        self.grants.retain(|id, _| is_same(id, before));
        let is_leaving = leaves(&view, self.me);
        if is_leaving != leaves(before, self.me) {
            self.leaving = Some(is_leaving);
        }
        self.view = view;
        if !self.view.has(self.me, self.incarnation) {
            self.is_fenced = !has(Bug::RemovedUnaware);
            return out(Notice::Fenced);
        }
        out(Notice::Adopted(self.view.number));
    }

    /// A frame of a peer asks for its lease: the peer's reading to say back, if the lease is
    /// granted.
    pub fn grant(&mut self, now: u64, peer: WorkerId, incarnation: Incarnation, asked: u64) -> Option<u64> {
        let is_suspect = self.suspects.contains(&(peer, incarnation));
        let may = !self.is_fenced
            && (!is_suspect || has(Bug::GrantsOn))
            && self.view.has(peer, incarnation)
            && self.is_grantor_of(peer)
            && (self.me.role == Role::Runtime || self.may_act(now) || has(Bug::GrantsWithoutRight));
        let term = self.term;
        if may {
            self.grants.entry(peer).or_default().grant(now, term);
        }
        may.then_some(asked)
    }

    /// Runtimes have leases of switches, switches of all.
    fn is_grantor_of(&self, peer: WorkerId) -> bool {
        peer != self.me && (self.me.role == Role::Switch || peer.role == Role::Switch)
    }

    /// A frame of a peer grants its lease: with the reading that this worker asked with.
    pub fn renew(&mut self, now: u64, peer: WorkerId, incarnation: Incarnation, asked: u64) {
        if !self.is_fenced && self.view.has(peer, incarnation) {
            let term = self.term;
            self.leases.entry(peer).or_default().renew(now, asked, term);
        }
    }

    /// Whether this worker, a switch, may act; or whether a runtime may on what any of its switches
    /// sent.
    pub fn may_act(&self, now: u64) -> bool {
        if self.is_fenced {
            return false;
        }
        let valid = self.leases.iter().filter(|(_, lease)| lease.is_valid(now));
        match self.me.role {
            Role::Runtime => valid.count() > 0,
            Role::Switch => {
                let weight: u32 = valid.map(|(id, _)| self.view.weight(*id)).sum();
                self.view.is_majority(weight + self.view.weight(self.me))
            }
        }
    }

    /// Until when this worker may act ([`Membership::may_act`]) with the leases that it has, in
    /// nanoseconds of its clock: the largest number where it needs none.
    pub fn may_act_until(&self) -> u64 {
        if self.is_fenced {
            return 0;
        }
        let mut untils: Vec<(u64, u32)> = Vec::new();
        for (id, lease) in &self.leases {
            untils.push((lease.until(), self.view.weight(*id)));
        }
        untils.sort_unstable_by(|a, b| b.cmp(a));
        if self.me.role == Role::Runtime {
            return untils.first().map_or(0, |(until, _)| *until);
        }
        let mut weight = self.view.weight(self.me);
        let mut until = u64::MAX;
        let mut others = untils.into_iter();
        while !self.view.is_majority(weight) {
            let Some((next, more)) = others.next() else {
                return 0;
            };
            until = next;
            weight += more;
        }
        until
    }

    /// Until when this worker, a runtime, may act on what a switch sent, in nanoseconds of its
    /// clock.
    pub fn may_act_for_until(&self, switch: WorkerId) -> u64 {
        match self.leases.get(&switch) {
            Some(lease) if !self.is_fenced => lease.until(),
            _ => 0,
        }
    }

    /// The coordinator lists the members whose leases are withdrawn; leases of all others are
    /// granted. `list` is the list's number.
    pub fn suspect(&mut self, list: u64, suspects: &[(WorkerId, Incarnation)]) {
        if list <= self.list {
            return;
        }
        self.list = list;
        self.suspects = suspects.to_vec();
    }

    /// The number of the list of suspects in force here, for the coordinator.
    pub fn list(&self) -> u64 {
        self.list
    }

    /// Says which withdrawn leases are over. It is said again as long as the member is in the view:
    /// the word may be lost.
    pub fn poll(&mut self, now: u64, mut out: impl FnMut(Notice)) {
        for (id, incarnation) in &self.suspects {
            let is_over = self.grants.get(id).is_none_or(|grant| grant.is_over(now));
            if *id != self.me && self.view.has(*id, *incarnation) && is_over {
                out(Notice::Withdrawn(*id, *incarnation, self.list));
            }
        }
    }

    /// Incarnations of runtimes that may have had groups before this worker began, and are members
    /// still.
    pub fn earlier(&self) -> impl Iterator<Item = (WorkerId, Incarnation)> {
        let first = self.first.iter().copied();
        first.filter(|(id, incarnation)| self.view.has(*id, *incarnation))
    }

    /// Incarnations of runtimes that may have had groups before this worker began, and that a view
    /// has removed since.
    pub fn removed(&self) -> impl Iterator<Item = (WorkerId, Incarnation)> {
        let first = self.first.iter().copied();
        first.filter(|(id, incarnation)| !self.view.has(*id, *incarnation))
    }

    /// To the coordinator, of a switch: incarnations of runtimes from which it has no lease, so
    /// that one of the two does not hear the other. A switch that joins tells only of runtimes that
    /// were there before it.
    pub fn unheard(&self, now: u64, mut out: impl FnMut(WorkerId, Incarnation)) {
        if self.me.role != Role::Switch || self.is_fenced {
            return;
        }
        let standing = self.view.member(self.me).map(|member| member.standing);
        let is_joining = standing == Some(Standing::Joining);
        for member in self.view.members().iter().filter(may_have_groups) {
            let incarnation = (member.id, member.incarnation);
            let is_heard = self
                .leases
                .get(&member.id)
                .is_some_and(|lease| lease.is_valid(now));
            if !is_heard && (!is_joining || self.first.contains(&incarnation)) {
                out(incarnation.0, incarnation.1);
            }
        }
    }

    /// Whether all switches that run grant this worker, a runtime, its leases.
    pub fn has_all_leases(&self, now: u64) -> bool {
        let mut switches = self.view.switches();
        let is_heard = |switch: &Member| {
            let lease = self.leases.get(&switch.id);
            switch.standing == Standing::Joining || lease.is_some_and(|lease| lease.is_valid(now))
        };
        !self.is_fenced && switches.all(is_heard)
    }

    /// When [`Membership::poll`] has something new to say, in nanoseconds of this worker's clock.
    pub fn next_timeout(&self) -> Option<u64> {
        let suspects = self.suspects.iter();
        let grants = suspects.filter_map(|(id, _)| self.grants.get(id));
        grants.map(Grant::promised).min()
    }
}
