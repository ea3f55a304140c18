//! A view: the members of a cluster at one moment, by number.

use alloc::vec::Vec;

/// A worker's role.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Role {
    /// It has ports, and routes groups.
    Switch,
    /// It has flows.
    Runtime,
}

/// A worker, by its number among those of its role.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct WorkerId {
    /// Its role.
    pub role: Role,
    /// Its number.
    pub number: u16,
}

impl WorkerId {
    /// A switch.
    pub const fn switch(number: u16) -> Self {
        WorkerId {
            role: Role::Switch,
            number,
        }
    }

    /// A runtime.
    pub const fn runtime(number: u16) -> Self {
        WorkerId {
            role: Role::Runtime,
            number,
        }
    }
}

/// Which incarnation of a worker: a later one has a higher number.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Incarnation(pub u64);

/// How a member stands.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Standing {
    /// It is being linked, and gets no groups yet.
    Joining,
    /// It takes part.
    Running,
    /// It gets no new groups, and its groups move away.
    Leaving,
}

/// One worker of a view.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Member {
    /// The worker.
    pub id: WorkerId,
    /// Which incarnation of it.
    pub incarnation: Incarnation,
    /// How it stands.
    pub standing: Standing,
}

/// The members at one moment.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct View {
    /// Grows by one with each view.
    pub number: u32,
    /// Sorted by worker, each once.
    members: Vec<Member>,
}

impl View {
    /// A view of these members.
    ///
    /// # Panics
    /// If a worker is listed twice: only the coordinator makes views, from one entry a worker.
    pub fn new(number: u32, mut members: Vec<Member>) -> Self {
        members.sort_unstable();
        let is_once = members.windows(2).all(|pair| pair[0].id != pair[1].id);
        assert!(is_once, "a view lists each worker once");
        View { number, members }
    }

    /// All members, switches first.
    pub fn members(&self) -> &[Member] {
        &self.members
    }

    /// The member that a worker is.
    pub fn member(&self, id: WorkerId) -> Option<&Member> {
        let at = self.members.binary_search_by_key(&id, |member| member.id).ok()?;
        self.members.get(at)
    }

    /// Whether this incarnation of a worker is a member.
    pub fn has(&self, id: WorkerId, incarnation: Incarnation) -> bool {
        self.member(id)
            .is_some_and(|member| member.incarnation == incarnation)
    }

    /// The switches.
    pub fn switches(&self) -> impl Iterator<Item = &Member> {
        self.members
            .iter()
            .filter(|member| member.id.role == Role::Switch)
    }

    /// The weight of a worker's grant: one for a member, two for the first switch, nothing for any
    /// other worker.
    pub fn weight(&self, id: WorkerId) -> u32 {
        match self.members.first() {
            Some(first) if first.id == id && id.role == Role::Switch => 2,
            _ => u32::from(self.member(id).is_some()),
        }
    }

    /// The weight of all members.
    pub fn total(&self) -> u32 {
        self.members.iter().map(|member| self.weight(member.id)).sum()
    }

    /// Whether a weight is more than half.
    pub fn is_majority(&self, weight: u32) -> bool {
        2 * weight > self.total()
    }
}
