//! Where the stores of `bench store` are: agents and servers off the packets' processor, and a way
//! with a delay to a server.
//!
//! ```text
//!   packets' processor        the other one
//!   worker ══ rings ══ agent ──────────────────────────► server      local
//!                      agent ──► relay, 0.25 ms each way ─► server   remote
//! ```
//!
//! What is started here stays on the other processor: threads and servers have the mask of the
//! thread that starts them. The worker's thread is pinned before, so [`aside`] takes the first
//! processor that its own mask lacks.

use adapters::clock::{allowed_cpus, pin_to};
use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};
use stores::{Agency, Report, Store};

/// How long bytes are on their way to a distant server, and back again.
pub const DELAY: Duration = Duration::from_micros(250);
pub const PATIENCE: Duration = Duration::from_secs(5);
/// The variable of the environment that names a Cassandra.
const CASSANDRA: &str = "FLOWKEEP_BENCH_CASSANDRA";
/// No machine has more processors.
const CPUS_MAX: usize = 1024;

/// A store whose agent is on another processor than the packets.
pub struct Place {
    pub store: Store,
    pub agency: Agency,
}

/// Does something on another processor than this thread's: what it starts stays there.
fn aside<T: Send>(work: impl FnOnce() -> T + Send) -> T {
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

fn place(uri: &str) -> Option<Place> {
    aside(|| {
        let driver = stores::driver_of(uri).ok()?;
        // How late changes are is a figure of its own.
        let tell = |report| {
            if let Report::Failing(failure) = report {
                eprintln!("{}: {}; {}", failure.store, failure.problem, failure.remedy);
            }
        };
        let (store, agency) = Store::start(driver, PATIENCE, tell).ok()?;
        Some(Place { store, agency })
    })
}

/// Waits until its standard input ends, which is when this process does, however: then it ends the
/// server and removes the folder.
const GUARD: &str = "folder=$1; shift; \"$@\" </dev/null >/dev/null 2>&1 & \
                     read -r _; kill -9 $! 2>/dev/null; wait; rm -rf -- \"$folder\"";

/// A server and the folder of the measurement, which a shell of their own ends with this process.
struct Guarded(Child);

impl Guarded {
    /// Starts `server` behind a shell. The group is its own: an interrupt from the keyboard does
    /// not reach it.
    fn start(folder: &Path, server: &[&str]) -> Option<Self> {
        aside(|| {
            let mut command = Command::new("sh");
            command.args(["-c", GUARD, "sh"]).arg(folder).args(server);
            command.stdin(Stdio::piped()).stdout(Stdio::null());
            command.stderr(Stdio::null()).process_group(0).spawn().ok()
        })
        .map(Guarded)
    }
}

impl Drop for Guarded {
    fn drop(&mut self) {
        drop(self.0.stdin.take());
        let _ = self.0.wait();
    }
}

/// A redis-server of its own, without a log: as in the paper, its memory is what counts.
struct Server {
    port: u16,
    /// The server ends with it.
    _guard: Guarded,
}

impl Server {
    fn start(folder: &Path) -> Option<Self> {
        Command::new("redis-server").arg("--version").output().ok()?;
        let port = TcpListener::bind("127.0.0.1:0").ok()?.local_addr().ok()?.port();
        let number = port.to_string();
        let words = [
            "redis-server",
            "--bind",
            "127.0.0.1",
            "--save",
            "",
            "--port",
            &number,
        ];
        let server = Server {
            port,
            _guard: Guarded::start(folder, &words)?,
        };
        let began = Instant::now();
        while TcpStream::connect(("127.0.0.1", port)).is_err() {
            if began.elapsed() > Duration::from_secs(20) {
                return None;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Some(server)
    }
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

/// One way of a connection: a thread that reads, and one that writes when the time has come.
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

    /// All of them. What is in the process, or a file, has no distance.
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
    /// Of a node on the loopback: its port, and what its URI has behind it.
    cassandra: Option<(u16, String)>,
    cassandra_afar: Option<u16>,
}

impl Places {
    pub fn find() -> Self {
        let folder = std::env::temp_dir().join(format!("flowkeep-bench-store-{}", std::process::id()));
        if let Err(error) = std::fs::create_dir_all(&folder) {
            eprintln!("not run with redb: {error}");
        }
        let guard = Guarded::start(&folder, &["true"]);
        let redis = Server::start(&folder);
        if redis.is_none() {
            eprintln!("not run with Redis: there is no redis-server");
        }
        let cassandra = std::env::var(CASSANDRA).ok().and_then(|uri| of_loopback(&uri));
        if cassandra.is_none() {
            eprintln!(
                "not run with Cassandra: start one (`tools/cassandra/run.sh FOLDER PORT`) and set {CASSANDRA} to \
                 cassandra://127.0.0.1:PORT/bench"
            );
        }
        Places {
            folder,
            _guard: guard,
            redis_afar: redis.as_ref().and_then(|server| relay(server.port)),
            redis,
            cassandra_afar: cassandra.as_ref().and_then(|(port, _)| relay(*port)),
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
                let (near, rest) = self.cassandra.as_ref()?;
                format!(
                    "cassandra://127.0.0.1:{}{rest}",
                    port(*near, self.cassandra_afar)?
                )
            }
            _ => "memory:".to_owned(),
        };
        place(&uri)
    }
}

/// Port and rest of `cassandra://127.0.0.1:PORT…`.
fn of_loopback(uri: &str) -> Option<(u16, String)> {
    let behind = uri.strip_prefix("cassandra://127.0.0.1:")?;
    let end = behind
        .find(|letter: char| !letter.is_ascii_digit())
        .unwrap_or(behind.len());
    let (port, rest) = behind.split_at(end);
    Some((port.parse().ok()?, rest.to_owned()))
}
