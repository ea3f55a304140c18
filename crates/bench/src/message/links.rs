//! Messages between two processes over links as workers have them: a [`Port`] each.
//!
//! ```text
//!   this process   starts itself again ── meets it ── hears and checks, or asks ── until all is heard
//!   the other one                      ── meets it ── says so many, or answers  ── until its peer is gone
//! ```
//!
//! The other process is told by its environment what it is ([`PEER`]): `flowkeep bench message`
//! with that variable set is one.

use super::{BUFFERS, MESSAGE, Processors, ROUND_TRIPS, keyed, number, pool};
use adapters::clock::monotonic_ns;
use adapters::report::Reports;
use adapters::shm::{self, ShmLink};
use adapters::udp::{UdpLink, UdpSettings};
use protocols::link::geneve::Front;
use runtime::env::{Burst, Port};
use runtime::peer::{self, Peer};
use std::net::{IpAddr, Ipv4Addr};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;
use wire::packet::Kind;
use wire::{LinkType, Pool};

/// The other process's task: its link, its work, how often, on which processor, how long messages
/// are.
const PEER: &str = "FLOWKEEP_BENCH_MESSAGE_PEER";
/// A run that takes longer has gone wrong.
const PATIENCE_NS: u64 = 30_000_000_000;

/// The kind of a link.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Over {
    SharedMemory,
    Geneve,
}

/// One end: a link and buffers.
struct End {
    link: Box<dyn Port>,
    pool: Pool,
    burst: Burst,
    message: Vec<u8>,
    deadline: u64,
}

impl End {
    fn open(over: Over, near: u16, place: &Path, length: usize) -> Self {
        let far = 1 - near;
        let reports = Reports::default();
        let link: Box<dyn Port> = match over {
            Over::SharedMemory => {
                let settings = shm::ShmSettings::new(place.join("links"), near, far);
                Box::new(ShmLink::open(settings, reports).expect("a link through shared memory"))
            }
            Over::Geneve => {
                // Addresses of this bench alone: another one may run beside it.
                let parent = match near {
                    0 => std::process::id(),
                    _ => std::os::unix::process::parent_id(),
                };
                let [_, a, b, c] = parent.to_be_bytes();
                let address =
                    |worker: u16| IpAddr::V4(Ipv4Addr::new(127, 64 | (a << 1) | worker as u8, b, c));
                let front = Front {
                    network: 1,
                    from: near,
                    to: far,
                };
                let settings = UdpSettings::new(address(near), address(far), front);
                let link = UdpLink::open(settings, &reports).expect("a link over UDP");
                let mut settings = peer::PeerSettings::new(near, far, monotonic_ns(), keyed());
                settings.channel.salt = adapters::keys::salt().expect("the system has randomness");
                Box::new(Peer::new(link, settings, monotonic_ns()).expect("good settings"))
            }
        };
        End {
            link,
            pool: pool(near as u8),
            burst: Burst::new(),
            message: vec![7; length],
            deadline: monotonic_ns() + PATIENCE_NS,
        }
    }

    fn now(&self) -> u64 {
        let now = monotonic_ns();
        assert!(now < self.deadline, "the other process is stuck");
        now
    }

    /// Receives; each message goes to `hear`. How many there were.
    #[inline]
    fn receive(&mut self, now: u64, mut hear: impl FnMut(&[u8])) -> u64 {
        self.link.receive(now, &mut self.pool, &mut self.burst);
        let mut heard = 0;
        for packet in self.burst.drain(..) {
            hear(packet.frame());
            heard += 1;
            self.pool.give(packet);
        }
        heard
    }

    /// Says so many messages, numbered from `said` on, as far as there is room; how many it were.
    #[inline]
    fn say(&mut self, now: u64, said: u64, count: u64) -> u64 {
        let room = count.min(self.link.room() as u64);
        let mut more = 0;
        while more < room && !self.burst.is_full() {
            let Some(mut buffer) = self.pool.take() else { break };
            self.message[..8].copy_from_slice(&(said + more).to_be_bytes());
            assert!(buffer.set_frame(&self.message, LinkType::Raw));
            buffer.set_kind(Kind::Message);
            self.burst.push(buffer);
            more += 1;
        }
        self.link.transmit(now, &mut self.pool, &mut self.burst);
        more
    }

    fn meet(&mut self) {
        while self.link.session() == 0 {
            let now = self.now();
            self.receive(now, |_| {});
            // At a real-time priority, a process that spins here may keep the other from starting.
            std::thread::sleep(Duration::from_micros(50));
        }
    }
}

/// The other process; killed when dropped.
struct Other(Child);

impl Other {
    fn start(
        processors: &Processors,
        over: Over,
        place: &Path,
        task: &str,
        count: u64,
        length: usize,
    ) -> Self {
        let program = std::env::current_exe().expect("this program's file");
        let over = match over {
            Over::SharedMemory => "shm",
            Over::Geneve => "geneve",
        };
        // Said, because it inherits what this thread is pinned to.
        let cpu = processors.0.first().copied().unwrap_or_default();
        let child = Command::new(program)
            .args(["bench", "message"])
            .env(
                PEER,
                format!("{over} {task} {count} {cpu} {length} {}", place.display()),
            )
            .stdout(Stdio::null())
            .spawn();
        Other(child.expect("this program runs again"))
    }
}

impl Drop for Other {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A directory of this process's own, removed when dropped.
struct Place(PathBuf);

impl Place {
    fn new() -> Self {
        let name = format!("flowkeep-bench-{}", std::process::id());
        let shared = Path::new("/dev/shm");
        let path = match shared.is_dir() {
            true => shared.join(name),
            false => std::env::temp_dir().join(name),
        };
        std::fs::create_dir_all(&path).expect("a directory for links");
        Place(path)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Runs as the other process, if this process was started as that.
pub fn serve() -> bool {
    let Ok(words) = std::env::var(PEER) else {
        return false;
    };
    let mut words = words.splitn(6, ' ');
    let mut next = || words.next().expect("six words");
    let over = match next() {
        "shm" => Over::SharedMemory,
        _ => Over::Geneve,
    };
    let (task, count) = (next(), next().parse().expect("a number"));
    Processors(vec![next().parse().expect("a processor")]).first();
    let length = next().parse().expect("a length");
    let mut end = End::open(over, 1, Path::new(next()), length);
    end.meet();
    match task {
        "say" => {
            let mut said = 0;
            while said < count {
                let now = end.now();
                said += end.say(now, said, count - said);
                end.receive(now, |_| {});
            }
        }
        _ => {
            let mut answered = 0;
            while answered < count {
                let now = end.now();
                let asked = end.receive(now, |_| {});
                answered += asked;
                if asked > 0 {
                    let now = end.now();
                    end.say(now, answered, asked);
                }
            }
        }
    }
    // The process is killed when all is heard.
    while end.link.session() != 0 {
        let now = end.now();
        end.receive(now, |_| {});
    }
    true
}

/// Million messages per second from another process.
pub(super) fn rate(processors: &Processors, over: Over, messages: u64, length: usize) -> f64 {
    on_second(processors, || {
        let place = Place::new();
        let _other = Other::start(processors, over, &place.0, "say", messages, length);
        let mut end = End::open(over, 0, &place.0, length);
        end.meet();
        let before = monotonic_ns();
        let mut heard = 0;
        while heard < messages {
            let now = end.now();
            end.receive(now, |message| {
                assert_eq!(number(message), heard, "the next message");
                heard += 1;
            });
        }
        let rate = messages as f64 * 1e3 / (monotonic_ns() - before) as f64;
        assert_eq!(end.pool.free(), BUFFERS);
        rate
    })
}

/// Nanoseconds one way for a lone message between processes.
pub(super) fn one_way(processors: &Processors, over: Over) -> f64 {
    on_second(processors, || {
        let place = Place::new();
        let _other = Other::start(processors, over, &place.0, "answer", ROUND_TRIPS as u64, MESSAGE);
        let mut end = End::open(over, 0, &place.0, MESSAGE);
        end.meet();
        let before = monotonic_ns();
        for trip in 0..ROUND_TRIPS as u64 {
            let now = monotonic_ns();
            end.say(now, trip, 1);
            while end.receive(monotonic_ns(), |_| {}) == 0 {}
            end.now();
        }
        (monotonic_ns() - before) as f64 / (2 * ROUND_TRIPS) as f64
    })
}

/// On a thread that is pinned, so that this one is not.
fn on_second(processors: &Processors, run: impl FnOnce() -> f64 + Send) -> f64 {
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            processors.second();
            run()
        });
        thread.join().expect("the receiver ends well")
    })
}
