//! A simulated coordinator's process: the production machine
//! ([`protocols::membership::Coordinator`]) with its log in memory that survives a crash, or in a
//! store that several coordinators have ([`crate::candidate`], [`crate::store`]).
//!
//! ```text
//!   agents ── Told (delay, loss) ──► hear ──► machine ──► records ── written a while later ──► log
//!   agents ◄── Said (delay, loss) ── newest view, suspects ◄── machine ◄── Logged ──┘
//! ```
//!
//! The process has what `coordinator::decider` has around the machine: a settling time in which it
//! hears and decides nothing, the newest incarnation of each worker in the log before the machine
//! hears that it joins, and the comparison of heartbeats with the log. Records are written one
//! after the other. A record that was not written when the process crashes is lost, or was written
//! unheard.
//!
//! Invariants: a coordinator that begins again knows what its log has and nothing else; the log has
//! no record that is not needed for long.
//!
//! Not here: the network and the time of writing ([`crate::world`]); connections, names and rights,
//! which are the crate `coordinator`'s.

use protocols::membership::{
    Coordinator, Entry, Incarnation, Input, Member, Output, Role, Standing, Term, Timing, View, WorkerId,
};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// An incarnation of a worker.
pub(crate) type Instance = (WorkerId, Incarnation);

/// Records that the log has besides those that are needed, before they go.
const SPARE: usize = 4;

/// How long leases and the like last in a script, in nanoseconds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Joined {
    pub lease: u64,
    pub suspicion: u64,
    pub settling: u64,
    pub heartbeat: u64,
    pub unheard: u64,
    /// How many coordinators there are. Where there are several, their log is in a store by which
    /// one is elected.
    pub offices: u8,
}

impl Joined {
    pub fn term(&self) -> Term {
        Term { lease: self.lease }
    }

    fn timing(&self) -> Timing {
        Timing {
            term: self.term(),
            suspicion: self.suspicion,
            // As the production's decider has it: members connect again meanwhile.
            settling: 2 * self.settling,
            unheard: self.unheard,
        }
    }
}

/// A word of an agent.
#[derive(Clone, Debug)]
pub(crate) enum Told {
    /// These incarnations ask to be members, all workers of a process. Each process has one file of
    /// incarnations for ever, so its incarnations before have ended.
    Join(Vec<Instance>),
    /// Of those workers of a process that have taken a step.
    Beat(Vec<Beat>),
    /// These incarnations have no flow left, and take no more steps: all workers of a process.
    Leave(Vec<Instance>),
}

/// A heartbeat of a worker that has taken a step.
#[derive(Clone, Debug)]
pub(crate) struct Beat {
    pub incarnation: Instance,
    pub view: u32,
    pub list: u64,
    pub is_ready: bool,
    pub withdrawn: Vec<(WorkerId, Incarnation, u64)>,
    pub unheard: Vec<Instance>,
}

/// A word of a coordinator to an agent.
#[derive(Clone, Debug)]
pub(crate) enum Said {
    /// The newest view, and the suspects with their list's number.
    Newest(View, u64, Vec<Instance>),
    /// The incarnations that asked are members of this view.
    Member(View),
    /// It may not be one: a later incarnation has asked, or this one is over.
    Over,
    /// There is nothing new. Said where there are several coordinators.
    Nothing,
    /// This coordinator is not elected.
    NotHere,
}

/// A record of the log.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Record {
    Decision(u64, Entry),
    /// The newest incarnation of a worker that asked to be a member.
    Newest(Instance),
}

/// The memory of the process: nothing of it survives a crash.
struct Process {
    machine: Coordinator,
    /// When it begins to decide.
    decides_at: u64,
    looked: u64,
    newest: BTreeMap<WorkerId, Incarnation>,
    joining: BTreeSet<Instance>,
    /// Incarnations that join together, until the last of them is in the log.
    together: Vec<Vec<Instance>>,
    /// Incarnations that were said to leave, and how they are to stand. It is said once.
    leaving: BTreeSet<(Instance, Option<Standing>)>,
    /// Records on their way to the log, in order.
    pending: VecDeque<Record>,
}

/// The coordinator.
pub(crate) struct Office {
    joined: Joined,
    /// Numbered. Where the log is in a store that several coordinators have, this is what a process
    /// knows of it.
    log: Vec<(u64, Record)>,
    next_record: u64,
    /// Numbers that have gone from it since this was asked last.
    spare: Vec<u64>,
    /// `None` while it is down.
    process: Option<Process>,
    /// How often it has begun.
    pub runs: u32,
    /// A record that a member knows of is not in the log.
    pub is_log_behind: Option<String>,
}

/// The first view of a run, with all workers in it.
pub(crate) fn first_view(incarnations: impl Iterator<Item = Instance>) -> View {
    let member = |(id, incarnation)| Member {
        id,
        incarnation,
        standing: Standing::Joining,
    };
    View::new(1, incarnations.map(member).collect())
}

impl Office {
    /// A coordinator whose log has this view, and which settled long ago.
    pub fn new(joined: Joined, now: u64, view: View) -> Self {
        let incarnations = view
            .members()
            .iter()
            .map(|member| (member.id, member.incarnation));
        let mut log: Vec<Record> = incarnations.map(Record::Newest).collect();
        log.push(Record::Decision(0, Entry::View(view)));
        let mut office = Office::waiting(joined);
        office.lead(now, 0, (0..).zip(log).collect());
        office
    }

    /// An office that waits to be elected.
    pub fn waiting(joined: Joined) -> Self {
        Office {
            joined,
            log: Vec::new(),
            next_record: 0,
            spare: Vec::new(),
            process: None,
            runs: 0,
            is_log_behind: None,
        }
    }

    /// The process begins to lead, and has read these records.
    pub fn lead(&mut self, now: u64, settling: u64, log: Vec<(u64, Record)>) {
        self.next_record = log.last().map_or(0, |(number, _)| number + 1);
        self.log = log;
        self.spare.clear();
        self.begin(now, settling);
    }

    /// The records of the log.
    pub fn records(&self) -> impl Iterator<Item = (u64, Record)> {
        self.log.iter().cloned()
    }

    /// The process begins, with what the log has.
    pub fn begin(&mut self, now: u64, settling: u64) {
        let mut newest = BTreeMap::new();
        let mut entries = Vec::new();
        for (_, record) in &self.log {
            match record {
                Record::Decision(number, entry) => entries.push((*number, entry.clone())),
                Record::Newest((id, incarnation)) => {
                    newest.insert(*id, *incarnation);
                }
            }
        }
        let timing = Timing {
            settling: 2 * settling,
            ..self.joined.timing()
        };
        let machine = match Coordinator::replay(now, timing, entries) {
            Ok(machine) => machine,
            Err(why) => {
                self.is_log_behind = Some(format!("the log is none that a coordinator wrote: {why:?}"));
                return;
            }
        };
        self.runs += 1;
        self.process = Some(Process {
            machine,
            decides_at: now.saturating_add(settling),
            looked: now,
            newest,
            joining: BTreeSet::new(),
            together: Vec::new(),
            leaving: BTreeSet::new(),
            pending: VecDeque::new(),
        });
    }

    /// How long it settles after a start.
    pub fn settling(&self) -> u64 {
        self.joined.settling
    }

    /// The process ends; of the records on their way so many are in the log.
    pub fn crash(&mut self, written: usize) {
        if let Some(process) = self.process.take() {
            for record in process.pending.into_iter().take(written) {
                self.keep(record);
            }
        }
    }

    fn keep(&mut self, record: Record) {
        self.log.push((self.next_record, record));
        self.next_record += 1;
    }

    /// Whether there is a process.
    pub fn is_up(&self) -> bool {
        self.process.is_some()
    }

    /// Records on their way to the log.
    pub fn pending(&self) -> usize {
        self.process.as_ref().map_or(0, |process| process.pending.len())
    }

    /// One of the records on their way, with its number.
    pub fn nth_pending(&self, index: usize) -> Option<(u64, Record)> {
        let record = self.process.as_ref()?.pending.get(index)?;
        Some((self.next_record + index as u64, record.clone()))
    }

    /// Which records have gone from the log since this was asked last.
    pub fn take_spare(&mut self) -> Vec<u64> {
        std::mem::take(&mut self.spare)
    }

    /// The numbers of the view and of the list of suspects that are in force, while there is a
    /// process.
    pub fn knows(&self) -> Option<(u32, u64)> {
        let machine = &self.process.as_ref()?.machine;
        Some((machine.view().number, machine.suspects().0))
    }

    /// The newest view that is in force, while there is a process.
    pub fn view(&self) -> Option<&View> {
        self.process.as_ref().map(|process| process.machine.view())
    }

    /// The newest word to agents.
    pub fn newest(&self) -> Option<Said> {
        let machine = &self.process.as_ref()?.machine;
        let (list, suspects) = machine.suspects();
        Some(Said::Newest(machine.view().clone(), list, suspects))
    }

    /// Whether all is decided that there is to decide: no suspect, all members run, and have the
    /// newest view.
    pub fn has_decided_all(&self, now: u64) -> bool {
        let Some(process) = &self.process else {
            return false;
        };
        let is_running = |member: &Member| member.standing == Standing::Running;
        process.pending.is_empty()
            && now >= process.decides_at
            && process.machine.suspects().1.is_empty()
            && process.machine.view().members().iter().all(is_running)
    }

    /// An agent is heard, which may be answered.
    pub fn hear(&mut self, now: u64, told: Told) -> Option<Said> {
        let suspicion = self.joined.suspicion;
        let process = self.process.as_mut()?;
        process.look_at_clock(now, suspicion);
        let is_settling = now < process.decides_at;
        let answer = match told {
            Told::Join(..) if is_settling => None,
            Told::Join(incarnations) => {
                process.end_those_before(now, &incarnations);
                process.on_join(now, incarnations)
            }
            Told::Leave(incarnations) if !is_settling => {
                for incarnation in &incarnations {
                    process.stand(now, *incarnation, None);
                }
                let view = process.machine.view();
                let is_over = !incarnations
                    .iter()
                    .any(|(id, incarnation)| view.has(*id, *incarnation));
                is_over.then(|| process.newest())
            }
            Told::Leave(_) => None,
            Told::Beat(beats) => {
                let mut is_old = false;
                for beat in beats {
                    let (list, view) = (process.machine.suspects().0, process.machine.view().number);
                    if beat.view > view || beat.list > list {
                        let what = format!(
                            "{:?} knows view {} and list {}, the log ends with {view} and {list}",
                            beat.incarnation, beat.view, beat.list
                        );
                        self.is_log_behind.get_or_insert(what);
                        return None;
                    }
                    is_old |= beat.view < view || beat.list < list;
                    if !is_settling {
                        process.on_beat(now, beat);
                    }
                }
                is_old.then(|| process.newest())
            }
        };
        self.tidy();
        answer
    }

    /// An operator has an incarnation get no new groups.
    pub fn drain(&mut self, now: u64, incarnation: Instance) {
        if let Some(process) = self.process.as_mut()
            && now >= process.decides_at
        {
            process.stand(now, incarnation, Some(Standing::Leaving));
        }
    }

    /// Looks at which members are silent.
    pub fn look(&mut self, now: u64) {
        let suspicion = self.joined.suspicion;
        let Some(process) = self.process.as_mut() else {
            return;
        };
        process.look_at_clock(now, suspicion);
        if now >= process.decides_at {
            process.tell(now, Input::Tick);
        }
        self.tidy();
    }

    /// The first record on its way is in the log.
    pub fn note_written(&mut self, now: u64) {
        let Some(process) = self.process.as_mut() else {
            return;
        };
        let Some(record) = process.pending.pop_front() else {
            return;
        };
        self.log.push((self.next_record, record.clone()));
        self.next_record += 1;
        match record {
            Record::Decision(number, _) => process.tell(now, Input::Logged(number)),
            Record::Newest(incarnation) => process.on_newest(now, incarnation),
        }
        self.tidy();
    }

    /// Takes unneeded records out of the log if there are more than `SPARE`.
    fn tidy(&mut self) {
        let Some(process) = &self.process else {
            return;
        };
        let needed = process.machine.needed();
        let is_needed = |(_, record): &(u64, Record)| match record {
            Record::Decision(number, _) => needed.contains(number),
            Record::Newest((id, incarnation)) => process.newest.get(id) == Some(incarnation),
        };
        let spare = self.log.iter().filter(|record| !is_needed(record)).count();
        if spare > SPARE {
            let gone = self.log.iter().filter(|record| !is_needed(record));
            self.spare.extend(gone.map(|(number, _)| *number));
            self.log.retain(is_needed);
        }
    }
}

impl Process {
    fn newest(&self) -> Said {
        let (list, suspects) = self.machine.suspects();
        Said::Newest(self.machine.view().clone(), list, suspects)
    }

    fn tell(&mut self, now: u64, input: Input) {
        let pending = &mut self.pending;
        self.machine.handle(now, input, |output| {
            if let Output::Log(number, entry) = output {
                pending.push_back(Record::Decision(number, entry));
            }
        });
        let view = self.machine.view();
        self.joining
            .retain(|(id, incarnation)| !view.has(*id, *incarnation));
    }

    /// Has an incarnation of a member stand otherwise, as soon as a view can say so.
    fn stand(&mut self, now: u64, incarnation: Instance, standing: Option<Standing>) {
        if self.leaving.insert((incarnation, standing)) {
            self.tell(now, Input::Stand(incarnation.0, incarnation.1, standing));
        }
    }

    /// A coordinator that stood still has heard no member meanwhile.
    fn look_at_clock(&mut self, now: u64, suspicion: u64) {
        let gap = now.saturating_sub(self.looked);
        if gap > suspicion / 2 {
            self.machine.stood_still(now, gap);
        }
        self.looked = now;
    }

    fn end_those_before(&mut self, now: u64, incarnations: &[Instance]) {
        for (id, incarnation) in incarnations {
            let there = self.machine.view().member(*id).map(|member| member.incarnation);
            if let Some(there) = there.filter(|there| there < incarnation) {
                self.tell(now, Input::Stopped(*id, there));
            }
        }
    }

    fn on_join(&mut self, now: u64, incarnations: Vec<Instance>) -> Option<Said> {
        let view = self.machine.view();
        if incarnations
            .iter()
            .all(|(id, incarnation)| view.has(*id, *incarnation))
        {
            return Some(Said::Member(view.clone()));
        }
        let is_new =
            |(id, incarnation): &Instance| self.newest.get(id).is_none_or(|newest| newest < incarnation);
        if incarnations.iter().all(is_new) {
            for incarnation in &incarnations {
                self.newest.insert(incarnation.0, incarnation.1);
                self.joining.insert(*incarnation);
                self.pending.push_back(Record::Newest(*incarnation));
            }
            self.together.push(incarnations);
            return None;
        }
        let is_under_way = |incarnation: &Instance| {
            view.has(incarnation.0, incarnation.1) || self.joining.contains(incarnation)
        };
        if !incarnations.iter().all(is_under_way) {
            return Some(Said::Over);
        }
        if !self.together.contains(&incarnations) {
            self.tell(now, Input::Join(incarnations));
        }
        None
    }

    /// The newest incarnation of a worker is in the log. The last record stands for all that join
    /// together: they are written in order.
    fn on_newest(&mut self, now: u64, incarnation: Instance) {
        let whole = self
            .together
            .iter()
            .position(|incarnations| incarnations.last() == Some(&incarnation));
        if let Some(whole) = whole {
            let incarnations = self.together.swap_remove(whole);
            self.tell(now, Input::Join(incarnations));
        }
    }

    fn on_beat(&mut self, now: u64, beat: Beat) {
        let (by, incarnation) = beat.incarnation;
        self.tell(now, Input::Heartbeat(by, incarnation, beat.view, beat.list));
        let stands = self.machine.view().member(by);
        let is_joining =
            |member: &Member| member.incarnation == incarnation && member.standing == Standing::Joining;
        if beat.is_ready && stands.is_some_and(is_joining) {
            self.tell(now, Input::Stand(by, incarnation, Some(Standing::Running)));
        }
        self.tell(now, Input::Unheard(by, incarnation, beat.unheard));
        for (id, of, list) in beat.withdrawn {
            let input = Input::Withdrawn {
                by,
                incarnation,
                of: (id, of),
                list,
            };
            self.tell(now, input);
        }
    }
}

/// Which worker of the cluster one is, by its number among all: switches come first.
pub(crate) fn id_of(worker: usize, switches: usize) -> WorkerId {
    match worker.checked_sub(switches) {
        None => WorkerId {
            role: Role::Switch,
            number: worker as u16,
        },
        Some(runtime) => WorkerId::runtime(runtime as u16),
    }
}
