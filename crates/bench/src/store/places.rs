//! Where the stores of `bench store` are: agents and servers off the packets' processor, and a way
//! with a delay to a server.
//!
//! ```text
//!   packets' processor        the other one
//!   worker ══ rings ══ agent ──────────────────────────► server      local
//!                      agent ──► relay, 0.25 ms each way ─► server   remote
//! ```
//!
//! Threads and servers started here stay on the other processor: they have the mask of the thread
//! that starts them. The worker's thread is pinned before, so [`aside`] takes the first processor
//! that its own mask lacks.

use super::servers::{Guarded, Server, of_cassandra};
use adapters::clock::{allowed_cpus, pin_to};
use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::path::PathBuf;
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};
use stores::{Agency, Report, Store};

/// How long bytes are on their way to a distant server, and back again.
pub const DELAY: Duration = Duration::from_micros(250);
pub const PATIENCE: Duration = Duration::from_secs(5);
/// No machine has more processors.
const CPUS_MAX: usize = 1024;

/// A store whose agent is on another processor than the packets.
pub struct Place {
    pub store: Store,
    pub agency: Agency,
}

/// Does something on another processor than this thread's. Threads that it starts stay there.
pub fn aside<T: Send>(work: impl FnOnce() -> T + Send) -> T {
    let ours = allowed_cpus();
    std::thread::scope(|scope| {
        let thread = scope.spawn(move || {
            // The mask that this thread has from the other one says nothing of the machine.
            let mut others = (0..CPUS_MAX).filter(|cpu| !ours.contains(cpu));
            others.any(|cpu| pin_to(cpu).is_ok());
            work()
        });
        thread.join().expect("it does not panic")
    })
}

fn place(uri: &str) -> Result<Place, String> {
    aside(|| {
        let driver = stores::driver_of(uri).map_err(|failure| failure.to_string())?;
        // How late changes are is a figure of its own.
        let tell = |report| {
            if let Report::Failing(failure) = report {
                eprintln!("{}: {}; {}", failure.store, failure.problem, failure.remedy);
            }
        };
        let started = Store::start(driver, PATIENCE, tell);
        let (store, agency) = started.map_err(|error| error.to_string())?;
        Ok(Place { store, agency })
    })
}

/// Hands the bytes of each connection on, [`DELAY`] after they came, each way. Ends with the
/// process.
fn relay(server: u16) -> Option<u16> {
    let listener = TcpListener::bind("127.0.0.1:0").ok()?;
    let port = listener.local_addr().ok()?.port();
    aside(|| {
        std::thread::spawn(move || {
            for client in listener.incoming().flatten() {
                if let Ok(server) = TcpStream::connect(("127.0.0.1", server)) {
                    let _ = carry(&client, &server).and_then(|()| carry(&server, &client));
                }
            }
        });
    });
    Some(port)
}

/// One way of a connection: a thread that reads, and a thread that writes when the time has come.
fn carry(from: &TcpStream, into: &TcpStream) -> std::io::Result<()> {
    let (mut from, mut into) = (from.try_clone()?, into.try_clone()?);
    into.set_nodelay(true)?;
    let (queue, queued) = channel::<(Instant, Vec<u8>)>();
    std::thread::spawn(move || {
        let mut buffer = [0; 1 << 16];
        while let Ok(length @ 1..) = from.read(&mut buffer) {
            let due = Instant::now() + DELAY;
            if queue.send((due, buffer[..length].to_vec())).is_err() {
                return;
            }
        }
    });
    std::thread::spawn(move || {
        for (due, bytes) in queued {
            std::thread::sleep(due.saturating_duration_since(Instant::now()));
            if into.write_all(&bytes).is_err() {
                break;
            }
        }
        let _ = into.shutdown(Shutdown::Both);
    });
    Ok(())
}

/// A kind of store, and whether there is a way with a delay to it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Kind {
    pub name: &'static str,
    pub is_distant: bool,
}

impl Kind {
    const fn near(name: &'static str) -> Self {
        Kind {
            name,
            is_distant: false,
        }
    }

    const fn distant(name: &'static str) -> Self {
        Kind {
            name,
            is_distant: true,
        }
    }

    /// All of them. A store in the process, or in a file, has no distance.
    pub const ALL: [Kind; 6] = [
        Kind::near("memory"),
        Kind::near("redb"),
        Kind::near("redis"),
        Kind::distant("redis"),
        Kind::near("cassandra"),
        Kind::distant("cassandra"),
    ];

    /// As cases are called.
    pub fn shown(self) -> String {
        match self.is_distant {
            true => format!("{} afar", self.name),
            false => self.name.to_owned(),
        }
    }
}

/// Where the stores are, for as long as it measures.
pub struct Places {
    folder: PathBuf,
    /// Removes the folder, where there is no server, too.
    _guard: Option<Guarded>,
    redis: Option<Server>,
    redis_afar: Option<u16>,
    cassandra: Option<Server>,
    cassandra_afar: Option<u16>,
}

impl Places {
    pub fn find() -> Self {
        let name = format!("flowkeep-bench-store-{}", std::process::id());
        let beside = |what: &str| std::env::temp_dir().join(format!("{name}{what}"));
        let folder = beside("");
        if let Err(error) = std::fs::create_dir_all(&folder) {
            eprintln!("not run with redb: {error}");
        }
        let guard = Guarded::start(&folder, &["true"]);
        let had = |name: &str, server: Result<Server, String>| {
            let left_out = |why: &String| eprintln!("not run with {name}: {why}");
            server.inspect_err(left_out).ok()
        };
        let redis = had("Redis", Server::redis(&beside("-redis")));
        let cassandra = had("Cassandra", Server::cassandra(&beside("-cassandra")));
        let afar = |server: &Option<Server>| server.as_ref().and_then(|server| relay(server.port));
        Places {
            folder,
            _guard: guard,
            redis_afar: afar(&redis),
            redis,
            cassandra_afar: afar(&cassandra),
            cassandra,
        }
    }

    /// The store of a case, with its agent; nothing where there is none.
    pub fn open(&self, store: Kind, case: &str) -> Option<Place> {
        let port = |near: u16, afar: Option<u16>| if store.is_distant { afar } else { Some(near) };
        let uri = match store.name {
            "redb" => format!("redb:{}", self.folder.join(case.replace(' ', "-")).display()),
            "redis" => {
                let near = self.redis.as_ref()?.port;
                format!("redis://127.0.0.1:{}", port(near, self.redis_afar)?)
            }
            "cassandra" => {
                let near = self.cassandra.as_ref()?.port;
                of_cassandra(port(near, self.cassandra_afar)?)
            }
            _ => "memory:".to_owned(),
        };
        let left_out = |why: &String| eprintln!("{case}: not run: {why}");
        place(&uri).inspect_err(left_out).ok()
    }
}
