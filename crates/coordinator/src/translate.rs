//! Between messages and the machine's words. What comes from outside is checked here.

use crate::proto;
use protocols::membership::{Entry, Incarnation, Member, Role, Standing, View, WorkerId};

/// Workers of a cluster at most.
pub const WORKERS_MAX: usize = 1024;

/// A worker's life as a message has it.
pub fn worker(id: WorkerId, incarnation: Incarnation) -> proto::Worker {
    let role = match id.role {
        Role::Switch => proto::WorkerRole::Switch,
        Role::Runtime => proto::WorkerRole::Runtime,
    };
    proto::Worker {
        role: role.into(),
        number: id.number.into(),
        incarnation: incarnation.0,
    }
}

/// A role, if it is one.
pub fn to_role(role: i32) -> Option<Role> {
    match proto::WorkerRole::try_from(role).ok()? {
        proto::WorkerRole::Switch => Some(Role::Switch),
        proto::WorkerRole::Runtime => Some(Role::Runtime),
        proto::WorkerRole::Unspecified => None,
    }
}

/// A role as a message has it.
pub fn role(role: Role) -> i32 {
    worker(WorkerId { role, number: 0 }, Incarnation(0)).role
}

/// The life of a worker that a message names.
pub fn to_worker(worker: &proto::Worker) -> Option<(WorkerId, Incarnation)> {
    let role = to_role(worker.role)?;
    let number = u16::try_from(worker.number).ok()?;
    Some((WorkerId { role, number }, Incarnation(worker.incarnation)))
}

/// A member as a message has it.
pub fn member(member: &Member) -> proto::Member {
    let standing = match member.standing {
        Standing::Joining => proto::Standing::Joining,
        Standing::Running => proto::Standing::Running,
        Standing::Leaving => proto::Standing::Leaving,
    };
    proto::Member {
        worker: Some(worker(member.id, member.incarnation)),
        standing: standing.into(),
    }
}

fn to_member(member: &proto::Member) -> Option<Member> {
    let (id, incarnation) = to_worker(member.worker.as_ref()?)?;
    let standing = match proto::Standing::try_from(member.standing).ok()? {
        proto::Standing::Joining => Standing::Joining,
        proto::Standing::Running => Standing::Running,
        proto::Standing::Leaving => Standing::Leaving,
        proto::Standing::Unspecified => return None,
    };
    Some(Member {
        id,
        incarnation,
        standing,
    })
}

/// A view as a message has it.
pub fn view(view: &View) -> proto::View {
    proto::View {
        number: view.number,
        members: view.members().iter().map(member).collect(),
    }
}

/// The view that a message has, if each worker is in it once.
pub fn to_view(view: &proto::View) -> Option<View> {
    if view.members.len() > WORKERS_MAX {
        return None;
    }
    let mut members: Vec<Member> = view.members.iter().map(to_member).collect::<Option<_>>()?;
    members.sort_unstable();
    let is_once = members.windows(2).all(|pair| pair[0].id != pair[1].id);
    is_once.then(|| View::new(view.number, members))
}

/// Lives of workers as messages have them.
pub fn workers(lives: &[(WorkerId, Incarnation)]) -> Vec<proto::Worker> {
    lives.iter().map(|(id, life)| worker(*id, *life)).collect()
}

/// The lives that a message names.
pub fn to_workers(workers: &[proto::Worker]) -> Option<Vec<(WorkerId, Incarnation)>> {
    (workers.len() <= WORKERS_MAX).then_some(())?;
    workers.iter().map(to_worker).collect()
}

/// A decision as the log has it.
pub fn decision(number: u64, entry: &Entry) -> proto::Decision {
    use proto::decision::Entry as Written;
    let entry = match entry {
        Entry::View(all) => Written::View(view(all)),
        Entry::Withdraw(id, life) => Written::Withdraw(worker(*id, *life)),
        Entry::Restore(id, life) => Written::Restore(worker(*id, *life)),
    };
    proto::Decision {
        number,
        entry: Some(entry),
    }
}

/// The decision that a record of the log has.
pub fn to_decision(decision: &proto::Decision) -> Option<(u64, Entry)> {
    use proto::decision::Entry as Written;
    let entry = match decision.entry.as_ref()? {
        Written::View(all) => Entry::View(to_view(all)?),
        Written::Withdraw(worker) => {
            let (id, life) = to_worker(worker)?;
            Entry::Withdraw(id, life)
        }
        Written::Restore(worker) => {
            let (id, life) = to_worker(worker)?;
            Entry::Restore(id, life)
        }
    };
    Some((decision.number, entry))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all() -> View {
        let members = [WorkerId::switch(3), WorkerId::runtime(65535)];
        let standings = [Standing::Leaving, Standing::Joining];
        let members = members.into_iter().zip(standings);
        let members = members.map(|(id, standing)| Member {
            id,
            incarnation: Incarnation(u64::MAX),
            standing,
        });
        View::new(7, members.collect())
    }

    #[test]
    fn what_is_written_reads_back() {
        assert_eq!(to_view(&view(&all())), Some(all()));
        let id = WorkerId::runtime(1);
        let entries = [
            Entry::View(all()),
            Entry::Withdraw(id, Incarnation(2)),
            Entry::Restore(id, Incarnation(2)),
        ];
        for entry in entries {
            assert_eq!(to_decision(&decision(9, &entry)), Some((9, entry)));
        }
    }

    #[test]
    fn what_no_view_can_be_is_refused() {
        let mut twice = view(&all());
        twice.members.push(twice.members[0]);
        assert_eq!(to_view(&twice), None);
        let mut large = view(&all());
        large.members[0].worker = Some(proto::Worker {
            number: 65536,
            ..large.members[0].worker.unwrap()
        });
        assert_eq!(to_view(&large), None);
        let mut absent = view(&all());
        absent.members[0].worker = None;
        assert_eq!(to_view(&absent), None);
        let mut standing = view(&all());
        standing.members[0].standing = 9;
        assert_eq!(to_view(&standing), None);
        let many = proto::View {
            number: 1,
            members: vec![proto::Member::default(); WORKERS_MAX + 1],
        };
        assert_eq!(to_view(&many), None);
    }
}
