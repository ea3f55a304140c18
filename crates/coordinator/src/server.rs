//! A coordinator in this process: its threads, started and ended.

use crate::decider::{Decider, Handle, replay};
use crate::identity::{Authority, AuthorityError, Identity, TlsError, server};
use crate::kept::Keeper;
use crate::log::{Log, LogError, Writer};
use crate::refusal::{Refusal, Refusals};
use crate::relay::{self, Judge, Relay, Scribe};
use crate::service::{self, Service};
use protocols::membership::Timing;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use tokio::sync::oneshot;

/// A coordinator's reports on itself, for logs and tests.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Event {
    /// It listens.
    Listens(SocketAddr),
    /// A decision is in force.
    Published {
        /// The view's number.
        view: u32,
        /// How many members it has.
        members: usize,
        /// How many of them are suspected.
        suspects: usize,
    },
    /// All members that are not suspected have the view of this number.
    Reached(u32),
    /// Something was refused.
    Refused {
        /// The refusal's name.
        name: &'static str,
        /// Where it came from.
        from: SocketAddr,
    },
    /// A configuration was not confirmed in time: the one before is decided, by another number.
    GoesBack {
        /// Its number.
        number: u64,
        /// The number of the configuration before, from now on.
        now: u64,
    },
    /// No decision is made, and why.
    Trouble(String),
    /// The log takes records again.
    LogTakes,
    /// Leases last as long as the log says, not as this start says.
    OtherTerm {
        /// By the start.
        said: Duration,
        /// By the log.
        is: Duration,
    },
}

impl std::fmt::Display for Event {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Event::Listens(address) => write!(f, "listening at {address}"),
            Event::Published {
                view,
                members,
                suspects,
            } => write!(f, "view {view}: {members} members, {suspects} suspected"),
            Event::Reached(view) => write!(f, "view {view} has reached its members"),
            Event::Refused { name, from } => write!(f, "refused {from}: {name}"),
            Event::GoesBack { number, now } => write!(
                f,
                "configuration {number} was not confirmed and goes back: the one before is configuration {now}"
            ),
            Event::Trouble(why) => write!(f, "no decisions: {why}"),
            Event::LogTakes => f.write_str("the log takes records again"),
            Event::OtherTerm { said, is } => write!(
                f,
                "leases last {is:?} as the log says, not {said:?}: members have them by that; another time is taken when no view has members"
            ),
        }
    }
}

/// The receiver of events. The coordinator's threads call it, so it must not wait.
pub type Events = Arc<dyn Fn(Event) + Send + Sync>;

/// The settings that a coordinator begins with.
pub struct CoordinatorSettings {
    /// Where it listens.
    pub listen: SocketAddr,
    /// Its certificate, with the cluster's authority.
    pub identity: Identity,
    /// Signs the certificates of processes that show tokens.
    pub authority: Authority,
    /// When it suspects, and how long leases last.
    pub timing: Timing,
    /// How long certificates are good that it makes.
    pub certificates: Duration,
    /// After which time a connection ends, so that certificates are judged again.
    pub age: Duration,
    /// For its events.
    pub events: Events,
    /// Which right a request for a member needs.
    pub judge: Judge,
    /// How orders are said to members.
    pub scribe: Scribe,
    /// Asks members for their counts, if those are to stay.
    pub keeper: Option<Keeper>,
}

impl CoordinatorSettings {
    /// The settings of a directory that `cluster init` has made, with the usual times: leases of 40
    /// ms, suspicion after 50 ms, a settling time of 1 s, and 2 s until one of two workers goes
    /// that do not hear each other. No request is relayed unless a judge is set.
    pub fn read(directory: &Path, listen: SocketAddr, events: Events) -> Result<Self, AuthorityError> {
        Ok(CoordinatorSettings {
            listen,
            identity: Identity::read(directory, "coordinator")?,
            authority: Authority::read(directory)?,
            timing: Timing {
                term: protocols::membership::Term { lease: 40_000_000 },
                suspicion: 50_000_000,
                settling: 1_000_000_000,
                unheard: 2_000_000_000,
            },
            certificates: Duration::from_secs(3650 * 86_400),
            age: service::AGE_MAX,
            events,
            judge: relay::none,
            scribe: relay::no_orders,
            keeper: None,
        })
    }
}

/// Why a coordinator does not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// Its log.
    #[error("the log cannot be used: {0}")]
    Log(#[from] LogError),
    /// The times do not go with those of the cluster.
    #[error(
        "leases of this cluster last {lease:?} by its log, so --suspicion {suspicion:?} is too short: say more than {lease:?}; another --lease is taken when no view has members"
    )]
    Suspicion {
        /// By the log.
        lease: Duration,
        /// As the start says.
        suspicion: Duration,
    },
    /// Its certificate.
    #[error("{0}")]
    Tls(#[from] TlsError),
    /// The address, or a thread.
    #[error("{what}: {source}")]
    System {
        /// The purpose that failed.
        what: String,
        /// Why.
        source: std::io::Error,
    },
}

impl StartError {
    /// Whether the same start may succeed later: a store that does not answer, a port that another
    /// process has. Errors of arguments and files do not pass.
    pub fn may_pass(&self) -> bool {
        use std::io::ErrorKind::{AddrNotAvailable, InvalidInput, PermissionDenied};
        match self {
            // Another coordinator is elected: this one waits for its turn again.
            StartError::Log(why) => why.may_pass() || matches!(why, LogError::Deposed),
            StartError::System { source, .. } => {
                !matches!(source.kind(), AddrNotAvailable | InvalidInput | PermissionDenied)
            }
            StartError::Suspicion { .. } | StartError::Tls(_) => false,
        }
    }
}

/// A coordinator that runs. It ends when this is dropped.
pub struct Server {
    address: SocketAddr,
    handle: Handle,
    end: Option<oneshot::Sender<()>>,
    threads: Vec<JoinHandle<()>>,
    refused: Arc<Refusals>,
    turns: [Turns; 2],
}

/// Turns that a thread has taken, and when it took the last one, in nanoseconds since `begun`.
#[derive(Clone)]
pub(crate) struct Turns {
    begun: Instant,
    taken: Arc<AtomicU64>,
    last: Arc<AtomicU64>,
}

impl Turns {
    pub(crate) fn new(begun: Instant) -> Self {
        Turns {
            begun,
            taken: Arc::default(),
            last: Arc::default(),
        }
    }

    pub(crate) fn count(&self) {
        let last = u64::try_from(self.begun.elapsed().as_nanos()).unwrap_or(u64::MAX);
        self.last.store(last, Ordering::Relaxed);
        self.taken.fetch_add(1, Ordering::Relaxed);
    }

    /// How long ago the last one was.
    pub(crate) fn since_last(&self) -> Duration {
        let last = Duration::from_nanos(self.last.load(Ordering::Relaxed));
        self.begun.elapsed().saturating_sub(last)
    }

    /// Takes the turns of a thread that has tasks.
    async fn take(self, pause: Duration) {
        loop {
            self.count();
            tokio::time::sleep(pause).await;
        }
    }
}

/// Between two turns of the service: well within half of a suspicion, after which the decider
/// excuses members that are silent.
fn service_pause(suspicion: u64) -> Duration {
    let pause = Duration::from_nanos(suspicion / 10);
    pause.clamp(Duration::from_millis(1), Duration::from_millis(100))
}

impl Server {
    /// Starts one with this log.
    pub fn start(settings: CoordinatorSettings, mut log: Box<dyn Log>) -> Result<Self, StartError> {
        let system = |what: &str| {
            let what = what.to_owned();
            move |source| StartError::System { what, source }
        };
        let replayed = replay(&mut *log, settings.timing)?;
        let (said, timing) = (settings.timing.term.lease, replayed.timing);
        let [said, lease, suspicion] = [said, timing.term.lease, timing.suspicion].map(Duration::from_nanos);
        if said != lease && lease >= suspicion {
            return Err(StartError::Suspicion { lease, suspicion });
        }
        let tls = server(&settings.identity)?;
        let listener = std::net::TcpListener::bind(settings.listen)
            .map_err(system(&format!("cannot listen at {}", settings.listen)))?;
        let address = listener.local_addr().map_err(system("the socket"))?;
        listener.set_nonblocking(true).map_err(system("the socket"))?;

        let (handle, told) = Handle::new();
        let refused = Arc::new(Refusals::default());
        let reports = handle.clone();
        let writer = Writer::start(log, move |report| reports.report(report));
        let writer = writer.map_err(system("the log's thread"))?;
        let begun = Instant::now();
        let turns = [Turns::new(begun), Turns::new(begun)];
        let [serving, deciding] = turns.clone();
        let (decider, newest) = Decider::new(
            replayed,
            writer,
            (begun, serving.clone()),
            settings.events.clone(),
            refused.clone(),
        );
        let service = Service {
            handle: handle.clone(),
            newest,
            authority: Arc::new(settings.authority),
            certificates: settings.certificates,
            lease: timing.term.lease,
            refused: refused.clone(),
            events: settings.events.clone(),
            relay: Arc::new(Relay::default()),
            judge: settings.judge,
            scribe: settings.scribe,
            kept: Arc::default(),
            keeper: settings.keeper,
        };
        let age = settings.age;
        let pause = service_pause(timing.suspicion);
        let (end, ended) = oneshot::channel();
        let (ready, readiness) = mpsc::channel();
        let serve = thread::Builder::new()
            .name("coordinator service".to_owned())
            .spawn(move || {
                let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
                match runtime {
                    Ok(runtime) => {
                        let _ = ready.send(Ok(()));
                        runtime.block_on(async {
                            tokio::spawn(serving.take(pause));
                            service::serve(listener, tls, (service, age), ended).await;
                        });
                    }
                    Err(why) => {
                        let _ = ready.send(Err(why));
                    }
                }
            })
            .map_err(system("the service's thread"))?;
        let decide = thread::Builder::new()
            .name("coordinator".to_owned())
            .spawn(move || decider.run(&told, || deciding.count()))
            .map_err(system("the decider's thread"))?;
        let server = Server {
            address,
            handle,
            end: Some(end),
            threads: vec![serve, decide],
            turns,
            refused,
        };
        if let Ok(Err(why)) = readiness.recv() {
            return Err(system("the service's thread")(why));
        }
        (settings.events)(Event::Listens(address));
        if said != lease {
            (settings.events)(Event::OtherTerm { said, is: lease });
        }
        Ok(server)
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// How many turns the service and the decider have taken: more with each look, ten or more each
    /// second, as long as neither hangs. The log's thread may wait for its disk.
    pub fn turns(&self) -> [u64; 2] {
        let taken = |turns: &Turns| turns.taken.load(Ordering::Relaxed);
        self.turns.each_ref().map(taken)
    }

    /// How often something was refused by this name.
    pub fn refused(&self, refusal: Refusal) -> u64 {
        let mut all = self.refused.all();
        all.find(|(name, _)| *name == refusal.name())
            .map_or(0, |(_, count)| count)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.end.take().map(|end| end.send(()));
        self.handle.end();
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

/// By this host's clock.
pub fn since_1970() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}
