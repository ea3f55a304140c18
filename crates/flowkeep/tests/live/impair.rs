//! A bad cable between two hosts: it loses, delays and reorders frames by itself, since not every
//! kernel can (netem).
//!
//! ```text
//!   gateway link0 ═══ near  between  far ═══ eth0 other
//!                       │ a thread: packet sockets on both, a queue each way by the time when a frame is due
//!                       └──► [`Weather`]: lost, or due after so long, or late
//! ```
//!
//! *Weather*, drawn from a seed, each way by its own: one frame in a hundred is lost. The delay is
//! drawn again every 5 ms, up to 10 ms, and frames stay in order through that. One in twenty is
//! late: by up to 10 ms more, and later frames overtake it.
//!
//! [`Counts`] has the events, not the draws: a frame counts as reordered when it leaves behind a
//! later one.
//!
//! Invariants: a frame is kept in one of [`BUFFERS`] buffers, and without a free one it waits in
//! the kernel; the thread ends, and its sockets go, when the cable is dropped.

use adapters::afpacket::{Half, PacketPort, PacketSettings, Taking};
use adapters::interface::InterfaceError;
use adapters::report::Reports;
use lab::Namespace;
use runtime::env::{Burst, Port};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};
use wire::memory::Region;
use wire::{PacketBox, Pool};

/// The most of the delay that comes and goes, each way.
pub const JITTER: Duration = Duration::from_millis(10);
/// How much later a late frame is at most.
const LATE: Duration = Duration::from_millis(10);
/// How long a delay stays.
const STAYS: Duration = Duration::from_millis(5);
/// Of a hundred frames.
const LOST: u64 = 1;
const OVERTAKEN: u64 = 5;
/// Both ways together: a fifth of a second of 40,000 frames a second.
const BUFFERS: usize = 8192;
const LENGTH: usize = 2048;
/// Between two looks.
const NAP: Duration = Duration::from_micros(300);
const SEED: u64 = 0x9e37_79b9_7f4a_7c15;

/// The counts of one way's frames.
#[derive(Clone, Copy, Default, Debug)]
pub struct Counts {
    pub passed: u64,
    pub lost: u64,
    /// Left behind a frame that had come after it.
    pub reordered: u64,
    /// Left a millisecond or more after it had come.
    pub delayed: u64,
    /// The longest that a frame was kept.
    pub longest: Duration,
}

/// Decides a frame's fate.
struct Weather {
    random: u64,
    delay: Duration,
    /// Until when the delay stays.
    until: Duration,
    /// When the last frame is due that is not late.
    last: Duration,
}

impl Weather {
    fn new(seed: u64) -> Self {
        Weather {
            random: seed,
            delay: Duration::ZERO,
            until: Duration::ZERO,
            last: Duration::ZERO,
        }
    }

    /// A number below this.
    fn draw(&mut self, below: u64) -> u64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        (self.random >> 16) % below
    }

    fn drawn(&mut self, most: Duration) -> Duration {
        Duration::from_nanos(self.draw(most.as_nanos() as u64))
    }

    /// When a frame is due that comes now; `None`: it is lost.
    fn due(&mut self, now: Duration) -> Option<Duration> {
        if now >= self.until {
            (self.delay, self.until) = (self.drawn(JITTER), now + STAYS);
        }
        let luck = self.draw(100);
        if luck < LOST {
            return None;
        }
        self.last = self.last.max(now + self.delay);
        Some(match luck < LOST + OVERTAKEN {
            true => self.last + self.drawn(LATE),
            false => self.last,
        })
    }
}

/// One way of the cable.
struct Way {
    weather: Weather,
    /// By the time when it is due, and its number: the frame, and when it came.
    queue: BTreeMap<(Duration, u64), (PacketBox, Duration)>,
    came: u64,
    /// The highest number that has left.
    ahead: u64,
    counts: Counts,
}

impl Way {
    fn new(seed: u64) -> Self {
        Way {
            weather: Weather::new(seed),
            queue: BTreeMap::new(),
            came: 0,
            ahead: 0,
            counts: Counts::default(),
        }
    }

    /// Moves frames that have come into the queue, and due ones out of it.
    fn go_on(&mut self, epoch: Instant, pool: &mut Pool, from: &mut PacketPort, to: &mut PacketPort) {
        let mut burst = Burst::new();
        loop {
            from.receive(0, pool, &mut burst);
            if burst.is_empty() {
                break;
            }
            let now = epoch.elapsed();
            for frame in burst.drain(..) {
                self.came += 1;
                match self.weather.due(now) {
                    Some(due) => drop(self.queue.insert((due, self.came), (frame, now))),
                    None => {
                        self.counts.lost += 1;
                        pool.give(frame);
                    }
                }
            }
        }
        let now = epoch.elapsed();
        while let Some(first) = self.queue.first_entry()
            && first.key().0 <= now
        {
            let ((_, number), (frame, came)) = first.remove_entry();
            let kept = now.saturating_sub(came);
            self.counts.passed += 1;
            self.counts.reordered += u64::from(number < self.ahead);
            self.counts.delayed += u64::from(kept >= Duration::from_millis(1));
            self.counts.longest = self.counts.longest.max(kept);
            self.ahead = self.ahead.max(number);
            burst.push(frame);
            if burst.is_full() {
                to.transmit(0, pool, &mut burst);
            }
        }
        to.transmit(0, pool, &mut burst);
    }
}

#[derive(Default)]
struct Shared {
    is_over: AtomicBool,
    counts: Mutex<[Counts; 2]>,
}

/// The cable, bad as long as this is there. Nothing passes without it.
pub struct BadCable {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

impl BadCable {
    /// Joins these two interfaces of a namespace that has nothing else to do.
    pub fn join(between: &Namespace, names: [&'static str; 2]) -> Self {
        let shared = Arc::new(Shared::default());
        let (there, namespace) = (shared.clone(), between.clone());
        let (begun, begins) = std::sync::mpsc::channel();
        let thread = thread::spawn(move || {
            namespace.enter().unwrap();
            let [one, other] = names.map(|name| open(name).unwrap());
            begun.send(()).unwrap();
            forward(&there, one, other);
        });
        begins.recv().expect("the ports open");
        BadCable {
            shared,
            thread: Some(thread),
        }
    }

    /// The counts so far, from the first to the second, and back.
    pub fn counts(&self) -> [Counts; 2] {
        *self.shared.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for BadCable {
    fn drop(&mut self) {
        self.shared.is_over.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn open(name: &str) -> Result<PacketPort, InterfaceError> {
    let settings = PacketSettings {
        taking: Taking::Everything,
        ..Default::default()
    };
    PacketPort::open(
        name,
        settings,
        Half::Both,
        || unreachable!("it takes everything"),
        Reports::default(),
    )
}

fn forward(shared: &Shared, mut one: PacketPort, mut other: PacketPort) {
    let region = Region::heap(Pool::region_length(BUFFERS, LENGTH));
    let mut pool = Pool::new(region, BUFFERS, LENGTH, 0);
    one.attach(&mut pool).unwrap();
    other.attach(&mut pool).unwrap();
    let (epoch, mut ways) = (Instant::now(), [Way::new(SEED), Way::new(!SEED)]);
    while !shared.is_over.load(Ordering::Relaxed) {
        ways[0].go_on(epoch, &mut pool, &mut one, &mut other);
        ways[1].go_on(epoch, &mut pool, &mut other, &mut one);
        let counts = ways.each_ref().map(|way| way.counts);
        *shared.counts.lock().unwrap_or_else(PoisonError::into_inner) = counts;
        thread::sleep(NAP);
    }
    for (name, port) in [("near", &one), ("far", &other)] {
        let counters = port.counters();
        println!(
            "bad cable, {name}: lost for want of room {}, refused {}, not sent {}",
            counters.lost_packets, counters.refused_packets, counters.unsent_packets
        );
    }
}

#[test]
fn the_weather_is_as_bad_as_it_says_and_the_same_again() {
    const COUNT: u64 = 100_000;
    let seen = || {
        let mut weather = Weather::new(SEED);
        let dues = (0..COUNT).map(|number| weather.due(Duration::from_micros(100) * number as u32));
        dues.collect::<Vec<_>>()
    };
    let dues = seen();
    assert!(dues == seen());
    let (mut lost, mut overtaken, mut longest) = (0, 0, Duration::ZERO);
    let mut before = Duration::MAX;
    for (number, due) in dues.iter().enumerate().rev() {
        let Some(due) = due else {
            lost += 1;
            continue;
        };
        overtaken += u64::from(*due > before);
        before = before.min(*due);
        longest = longest.max(*due - Duration::from_micros(100) * number as u32);
    }
    assert!((COUNT / 120..COUNT / 80).contains(&lost), "{lost}");
    assert!((COUNT / 25..COUNT / 15).contains(&overtaken), "{overtaken}");
    assert!(longest > JITTER && longest < JITTER + LATE, "{longest:?}");
}
