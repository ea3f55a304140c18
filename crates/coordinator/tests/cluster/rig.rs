//! A cluster for tests: a coordinator (in this process, or in one of its own that can be killed),
//! members with worker threads that grant each other leases.

use flowkeep_coordinator::agent::{Agent, AgentError, AgentSettings, MemberSlot};
use flowkeep_coordinator::identity::{Authority, Caller, Identity, Right};
use flowkeep_coordinator::log::Embedded;
use flowkeep_coordinator::proto;
use flowkeep_coordinator::server::{CoordinatorSettings, Event, Server};
use protocols::membership::{Incarnation, Role, Term, Timing, WorkerId};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

pub const YEAR: Duration = Duration::from_secs(365 * 86_400);
pub const PATIENCE: Duration = Duration::from_secs(60);

/// Slow, since machines that run tests are: suspicion after 1 s, leases of 300 ms.
pub const TIMING: Timing = Timing {
    term: Term { lease: 300_000_000 },
    suspicion: 1_000_000_000,
    settling: 500_000_000,
    unheard: 3_000_000_000,
};

/// Runs a test whose members must not be suspected. A machine that pauses for half of that time
/// makes them so, and the test is done again then.
pub fn unsuspected(test: impl Fn()) {
    super::machine::unless_paused(Duration::from_nanos(TIMING.suspicion / 2), test);
}

/// A directory that is gone with this.
pub struct Directory(PathBuf);

impl Directory {
    pub fn new(name: &str) -> Self {
        let base = Path::new(env!("CARGO_TARGET_TMPDIR"));
        static DIRECTORIES: AtomicU64 = AtomicU64::new(0);
        let number = DIRECTORIES.fetch_add(1, Ordering::Relaxed);
        let path = base.join(format!("{name}-{}-{number}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        std::fs::create_dir_all(&path).unwrap();
        Directory(path)
    }

    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Waits until something holds.
pub fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let end = Instant::now() + PATIENCE;
    while !holds() {
        assert!(Instant::now() < end, "not in {PATIENCE:?}: {what}");
        thread::sleep(Duration::from_millis(10));
    }
}

/// An authority, and where the log is.
pub struct Cluster {
    pub directory: Directory,
    pub authority: Authority,
    pub events: Arc<Mutex<Vec<Event>>>,
}

impl Cluster {
    pub fn new(name: &str) -> Self {
        let directory = Directory::new(name);
        let authority = Authority::create(YEAR).unwrap();
        authority.write(directory.path()).unwrap();
        let identity = authority.issue(&Caller::Coordinator, YEAR).unwrap();
        identity.write(directory.path(), "coordinator").unwrap();
        Cluster {
            directory,
            authority,
            events: Arc::default(),
        }
    }

    pub fn log_path(&self) -> PathBuf {
        self.directory.path().join("log")
    }

    pub fn settings(&self, listen: SocketAddr) -> CoordinatorSettings {
        let events = self.events.clone();
        let note = move |event| events.lock().unwrap().push(event);
        let mut settings = CoordinatorSettings::read(self.directory.path(), listen, Arc::new(note)).unwrap();
        settings.timing = TIMING;
        settings
    }

    pub fn start(&self) -> Server {
        let log = Embedded::open(&self.log_path()).unwrap();
        let server = Server::start(self.settings("127.0.0.1:0".parse().unwrap()), Box::new(log)).unwrap();
        // Asks that need a decision are answered from then on.
        thread::sleep(Duration::from_nanos(TIMING.settling));
        server
    }

    pub fn identity(&self, caller: &Caller) -> Identity {
        self.authority.issue(caller, YEAR).unwrap()
    }

    pub fn operator(&self, right: Right) -> Identity {
        self.identity(&Caller::Operator("test".into(), right))
    }

    pub fn member(&self, name: &str, incarnation: u64, roles: &[Role], at: SocketAddr) -> AgentSettings {
        AgentSettings {
            coordinators: vec![at.to_string()],
            identity: self.identity(&Caller::Member(name.into())),
            incarnation,
            first: 0,
            roles: roles.to_vec(),
            numbers: Vec::new(),
            plan: None,
            contacts: Arc::default(),
            heartbeat: Duration::from_millis(50),
            renewal: Duration::from_secs(3600),
            patience: PATIENCE,
            decided: Arc::default(),
            loads: Arc::default(),
            keep: Arc::new(|_| Ok(())),
            events: Arc::new(|_| ()),
        }
    }
}

/// The links of all members' workers: leases travel here, as in frames.
#[derive(Default)]
pub struct Links {
    /// By holder and grantor: the reading that is asked with.
    asked: Mutex<BTreeMap<(WorkerId, WorkerId), (Incarnation, u64)>>,
    granted: Mutex<BTreeMap<(WorkerId, WorkerId), (Incarnation, u64)>>,
    /// Incarnations that have acted: when last, and by which view.
    pub acted: Mutex<BTreeMap<(WorkerId, Incarnation), (Instant, u32)>>,
    /// When a worker had a view that lacks this incarnation.
    removed: Mutex<BTreeMap<(WorkerId, Incarnation), Instant>>,
    pub wrong: Mutex<Vec<String>>,
}

/// A worker thread that takes steps until it is told to stop, hang or end.
pub struct Worker {
    pub id: WorkerId,
    pub view: Arc<AtomicU64>,
    pub is_fenced: Arc<AtomicBool>,
    hang: Arc<AtomicBool>,
    end: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Worker {
    pub fn start(mut member_slot: MemberSlot, links: Arc<Links>) -> Self {
        let (view, is_fenced) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
        let (hang, end) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
        let shared = (view.clone(), is_fenced.clone(), hang.clone(), end.clone());
        let id = member_slot.id();
        let thread = thread::spawn(move || {
            let (view, is_fenced, hang, end) = shared;
            member_slot.set_ready();
            let begun = Instant::now();
            // Workers' clocks are years apart.
            let ahead = u64::from(id.number) * 365 * 86_400_000_000_000;
            while !end.load(Ordering::Relaxed) {
                if !hang.load(Ordering::Relaxed) {
                    let now = || ahead + begun.elapsed().as_nanos() as u64;
                    member_slot.turn(now());
                    links.step(&mut member_slot, &now);
                    member_slot.figures().packets.fetch_add(1, Ordering::Relaxed);
                    member_slot.figures().dropped_packets.store(3, Ordering::Relaxed);
                    view.store(member_slot.membership().view().number.into(), Ordering::Relaxed);
                    is_fenced.store(member_slot.membership().is_fenced(), Ordering::Relaxed);
                }
                thread::sleep(Duration::from_millis(5));
            }
        });
        Worker {
            id,
            view,
            is_fenced,
            hang,
            end,
            thread: Some(thread),
        }
    }

    pub fn hang(&self, is: bool) {
        self.hang.store(is, Ordering::Relaxed);
    }

    pub fn view(&self) -> u64 {
        self.view.load(Ordering::Relaxed)
    }

    /// The thread ends, and its member slot with it.
    pub fn end(&mut self) {
        self.end.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            thread.join().unwrap();
        }
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.end();
    }
}

impl Links {
    /// Asks for leases, grants, takes grants, acts if it may; and notes errors.
    fn step(&self, member_slot: &mut MemberSlot, now: &dyn Fn() -> u64) {
        let (me, incarnation) = (member_slot.id(), member_slot.incarnation());
        let membership = member_slot.membership();
        let view = membership.view().clone();
        for (peer, other) in view
            .members()
            .iter()
            .map(|member| (member.id, member.incarnation))
        {
            if peer == me {
                continue;
            }
            self.asked
                .lock()
                .unwrap()
                .insert((me, peer), (incarnation, now()));
            let question = self.asked.lock().unwrap().get(&(peer, me)).copied();
            if let Some((asker, asked)) = question
                && asker == other
                && let Some(asked) = membership.grant(now(), peer, other, asked)
            {
                self.granted
                    .lock()
                    .unwrap()
                    .insert((peer, me), (incarnation, asked));
            }
            let grant = self.granted.lock().unwrap().get(&(me, peer)).copied();
            if let Some((grantor, asked)) = grant
                && grantor == other
            {
                membership.renew(now(), peer, other, asked);
            }
        }
        for ((id, incarnation), (_, by)) in self.acted.lock().unwrap().iter() {
            // A view before may be without a worker that joins.
            if view.number > *by && !view.has(*id, *incarnation) {
                let mut removed = self.removed.lock().unwrap();
                removed.entry((*id, *incarnation)).or_insert_with(Instant::now);
            }
        }
        let removed = self.removed.lock().unwrap().get(&(me, incarnation)).copied();
        let moment = Instant::now();
        if membership.may_act(now()) {
            let acted = (moment, view.number);
            self.acted.lock().unwrap().insert((me, incarnation), acted);
            if removed.is_some_and(|removed| removed < moment) {
                let why = format!("{me:?} of {incarnation:?} acts, and a view has removed it");
                self.wrong.lock().unwrap().push(why);
            }
        }
    }

    pub fn check(&self) {
        let wrong = self.wrong.lock().unwrap();
        assert!(wrong.is_empty(), "{wrong:?}");
    }

    /// Whether a worker has acted lately.
    pub fn acts(&self, id: WorkerId) -> bool {
        let acted = self.acted.lock().unwrap();
        let lately = acted.iter().filter(|((who, _), _)| *who == id);
        lately
            .map(|(_, (at, _))| at.elapsed())
            .min()
            .is_some_and(|ago| ago < Duration::from_millis(250))
    }
}

/// A member with its worker threads.
pub struct Process {
    pub agent: Option<Agent>,
    pub workers: Vec<Worker>,
}

impl Process {
    pub fn join(settings: AgentSettings, links: &Arc<Links>) -> Result<Self, AgentError> {
        let (agent, member_slots) = Agent::join(settings)?;
        let workers = member_slots
            .into_iter()
            .map(|member_slot| Worker::start(member_slot, links.clone()));
        Ok(Process {
            workers: workers.collect(),
            agent: Some(agent),
        })
    }

    pub fn ids(&self) -> Vec<WorkerId> {
        self.workers.iter().map(|worker| worker.id).collect()
    }
}

/// Calls without a runtime of one's own.
pub fn block_on<T>(future: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.unwrap().block_on(future)
}

pub fn status(identity: &Identity, at: SocketAddr) -> Option<proto::StatusAnswer> {
    block_on(async {
        let mut client = flowkeep_coordinator::agent::connect(&at.to_string(), identity)
            .await
            .ok()?;
        let answer = client.status(proto::StatusRequest {}).await.ok()?;
        Some(answer.into_inner())
    })
}

/// Decisions of the coordinator in this process with suspects.
pub fn suspicions(cluster: &Cluster) -> usize {
    let events = cluster.events.lock().unwrap();
    let is_suspicion = |event: &&Event| matches!(event, Event::Published { suspects: 1.., .. });
    events.iter().filter(is_suspicion).count()
}

/// The names of members that run, by status.
pub fn running(status: &proto::StatusAnswer) -> Vec<String> {
    let is_running = |member: &&proto::MemberStatus| {
        let standing = member.member.as_ref().map(|member| member.standing());
        standing == Some(proto::Standing::Running)
    };
    let members = status.members.iter().filter(is_running);
    members.map(|member| member.name.clone()).collect()
}
