//! Between messages and the machine's words. Messages from outside are checked here.

use crate::proto;
use protocols::membership::{Entry, Incarnation, Member, Role, Standing, View, WorkerId};
use protocols::objects::{Course, Decision, Instance, Members, Phase, Report, Stage};
use protocols::ownership::RuntimeId;

/// Workers of a cluster at most.
pub const WORKERS_MAX: usize = 1024;
/// No incarnation is so high: members' files keep none that is.
pub const INCARNATIONS_END: u64 = i64::MAX as u64;

/// A worker's incarnation as a message has it.
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

/// The incarnation of a worker that a message names.
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

/// Incarnations of workers as messages have them.
pub fn workers(incarnations: &[(WorkerId, Incarnation)]) -> Vec<proto::Worker> {
    incarnations
        .iter()
        .map(|(id, incarnation)| worker(*id, *incarnation))
        .collect()
}

/// The incarnations that a message names.
pub fn to_workers(workers: &[proto::Worker]) -> Option<Vec<(WorkerId, Incarnation)>> {
    (workers.len() <= WORKERS_MAX).then_some(())?;
    workers.iter().map(to_worker).collect()
}

/// A decision as the log has it.
pub fn decision(number: u64, entry: &Entry) -> proto::Decision {
    use proto::decision::Entry as Written;
    let entry = match entry {
        Entry::View(all) => Written::View(view(all)),
        Entry::Withdraw(id, incarnation) => Written::Withdraw(worker(*id, *incarnation)),
        Entry::Restore(id, incarnation) => Written::Restore(worker(*id, *incarnation)),
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
            let (id, incarnation) = to_worker(worker)?;
            Entry::Withdraw(id, incarnation)
        }
        Written::Restore(worker) => {
            let (id, incarnation) = to_worker(worker)?;
            Entry::Restore(id, incarnation)
        }
    };
    Some((decision.number, entry))
}

fn stage(stage: Stage) -> proto::Stage {
    let phase = match stage.phase {
        Phase::Normal => proto::Phase::Normal,
        Phase::Prepared => proto::Phase::Prepared,
        Phase::Scaling => proto::Phase::Scaling,
    };
    proto::Stage {
        view: stage.view,
        phase: phase.into(),
    }
}

fn to_stage(stage: &proto::Stage) -> Option<Stage> {
    let phase = match proto::Phase::try_from(stage.phase).ok()? {
        proto::Phase::Normal => Phase::Normal,
        proto::Phase::Prepared => Phase::Prepared,
        proto::Phase::Scaling => Phase::Scaling,
        proto::Phase::Unspecified => return None,
    };
    let view = stage.view;
    Some(Stage { view, phase })
}

fn runtime((runtime, incarnation): Instance) -> proto::Worker {
    worker(WorkerId::runtime(runtime.0), incarnation)
}

fn to_runtimes(workers: &[proto::Worker]) -> Option<Vec<Instance>> {
    (workers.len() <= usize::from(Members::MAX)).then_some(())?;
    let of = |(id, incarnation): (WorkerId, Incarnation)| {
        let is_one = id.role == Role::Runtime && id.number < Members::MAX;
        is_one.then_some((RuntimeId(id.number), incarnation))
    };
    workers
        .iter()
        .map(|worker| to_worker(worker).and_then(of))
        .collect()
}

/// A runtime's report on the objects that it shares, as a message.
pub fn shares(report: &Report) -> proto::Shares {
    proto::Shares {
        reached: report.reached.map(stage),
        met: report.met.iter().copied().map(runtime).collect(),
        leaves: report.leaves,
    }
}

/// The report in a message on the objects that a runtime shares.
pub fn to_shares(shares: &proto::Shares) -> Option<Report> {
    let reached = match &shares.reached {
        Some(reached) => Some(to_stage(reached)?),
        None => None,
    };
    Some(Report {
        reached,
        met: to_runtimes(&shares.met)?,
        leaves: shares.leaves,
    })
}

/// Which runtimes share objects, as a message has it.
pub fn sharing(decision: &Decision) -> proto::Sharing {
    let course = &decision.course;
    let of = |members: Members| {
        let incarnations = members
            .iter()
            .filter_map(|number| Some((number, *decision.incarnations.get(&number)?)));
        incarnations.map(runtime).collect()
    };
    let removed = course.failed.unwrap_or_default();
    proto::Sharing {
        stage: Some(stage(course.stage)),
        members: of(course.members),
        next: of(course.next),
        failure: course.failed.is_some(),
        removed: removed.iter().map(|number| number.0.into()).collect(),
        open: course.is_open,
    }
}

/// The decision that a message has, if each number has one incarnation in it.
pub fn to_sharing(sharing: &proto::Sharing) -> Option<Decision> {
    let (members, next) = (to_runtimes(&sharing.members)?, to_runtimes(&sharing.next)?);
    let set = |all: &[Instance]| {
        all.iter()
            .fold(Members::NONE, |set, (number, _)| set.with(*number))
    };
    let numbers = sharing.removed.iter().map(|number| {
        let number = u16::try_from(*number)
            .ok()
            .filter(|number| *number < Members::MAX)?;
        Some(RuntimeId(number))
    });
    let removed: Option<Vec<RuntimeId>> = numbers.collect();
    let removed = removed?.into_iter().fold(Members::NONE, Members::with);
    let course = Course {
        stage: to_stage(sharing.stage.as_ref()?)?,
        members: set(&members),
        next: set(&next),
        failed: sharing.failure.then_some(removed),
        is_open: sharing.open,
    };
    let mut incarnations = std::collections::BTreeMap::new();
    for (number, incarnation) in members.into_iter().chain(next) {
        let known = *incarnations.entry(number).or_insert(incarnation);
        (known == incarnation).then_some(())?;
    }
    Some(Decision { course, incarnations })
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

    fn shared() -> Decision {
        let members = [
            (RuntimeId(0), Incarnation(3)),
            (RuntimeId(63), Incarnation(u64::MAX)),
        ];
        let all = members
            .iter()
            .fold(Members::NONE, |all, (number, _)| all.with(*number));
        Decision {
            course: Course {
                stage: Stage::prepared(9),
                members: Members::one(RuntimeId(0)),
                next: all,
                failed: None,
                is_open: false,
            },
            incarnations: members.into_iter().collect(),
        }
    }

    #[test]
    fn decisions_on_shared_objects_read_back() {
        let mut failed = shared();
        failed.course.stage = Stage::normal(10);
        failed.course.failed = Some(Members::one(RuntimeId(5)));
        failed.course.is_open = true;
        for decision in [shared(), failed, Decision::default()] {
            assert_eq!(to_sharing(&sharing(&decision)), Some(decision));
        }
        let report = Report {
            reached: Some(Stage::scaling(9)),
            met: vec![(RuntimeId(63), Incarnation(1))],
            leaves: true,
        };
        assert_eq!(to_shares(&shares(&report)), Some(report));
    }

    #[test]
    fn what_no_decision_on_shared_objects_can_be_is_refused() {
        let good = sharing(&shared());
        let refused = |change: &dyn Fn(&mut proto::Sharing)| {
            let mut sharing = good.clone();
            change(&mut sharing);
            assert_eq!(to_sharing(&sharing), None, "{sharing:?}");
        };
        refused(&|sharing| sharing.stage = None);
        refused(&|sharing| sharing.stage = Some(proto::Stage { view: 1, phase: 7 }));
        refused(&|sharing| sharing.removed = vec![64]);
        // Two incarnations of one number; a number that no set has; a switch; too many.
        refused(&|sharing| sharing.members[0].incarnation += 1);
        refused(&|sharing| sharing.next[0].number = 64);
        refused(&|sharing| sharing.next[0].role = proto::WorkerRole::Switch.into());
        refused(&|sharing| sharing.next = vec![sharing.next[0]; 65]);
        let met = vec![good.next[0]; 65];
        let many = proto::Shares {
            met,
            ..proto::Shares::default()
        };
        assert_eq!(to_shares(&many), None);
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
