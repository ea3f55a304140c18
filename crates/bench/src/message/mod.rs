//! `bench message`: messages of 64 bytes between two workers (NFVactor VII-A2, figure 6d).
//!
//! | case | |
//! |---|---|
//! | bare ring | two threads, a buffer for each message |
//! | channel | two threads over a ring that carries its frames; with losses; encrypted |
//! | shared memory | two processes, a buffer for each message, as in links between processes of one host |
//! | geneve | two processes over UDP on loopback, a buffer for each message, encrypted, as in links between hosts |
//! | both ends on one thread | what a message over a channel takes of processors in all, on a busy machine too |
//!
//! The one-way time is half of a round trip of one message that is answered by one, with nothing
//! else under way. The receiver checks that each message is the next one. The second process is
//! this program again ([`serve`]).
//!
//! Runs of all cases alternate, with a pause between two in which other programs have the
//! processors. Each thread has a processor of its own, if there are two; on a machine that does
//! other work the figures say little, unless it is run at a real-time priority (`chrt -f 60`). No
//! further round is begun after [`BUDGET`].

mod channel;
mod links;

use super::report::{Case, Parameters};
use super::{Memory, Options};
use adapters::clock::{allowed_cpus, pin_to};
use links::Over;
pub use links::serve;
use protocols::channel::{Key, Keys, Protection};
use std::time::{Duration, Instant};
use wire::Pool;
use wire::memory::Region;

const MESSAGE: usize = 64;
/// Bytes of a long message, at which the cost of two copies shows.
const LONG: usize = 1400;
/// Buffers of each end.
const BUFFERS: usize = 1024;
/// Round trips of a run.
const ROUND_TRIPS: usize = 20_000;
/// The machine is left alone for so long between two runs.
const PAUSE: Duration = Duration::from_millis(50);
/// No round begins after so long.
const BUDGET: Duration = Duration::from_secs(40);

fn pool(origin: u8) -> Pool {
    let room = 2048;
    let region = Region::heap(Pool::region_length(BUFFERS, room));
    Pool::new(region, BUFFERS, room, origin)
}

fn number(message: &[u8]) -> u64 {
    u64::from_be_bytes(*message.first_chunk().expect("64 bytes"))
}

fn keyed() -> Protection {
    Protection::Keyed(Keys::new(Key::new(1, [1; 32]).expect("1 is a number of a key")))
}

/// The two processors, read before any thread is pinned.
struct Processors(Vec<usize>);

impl Processors {
    fn read() -> Self {
        Processors(allowed_cpus())
    }

    fn first(&self) {
        let _ = self.0.first().map(|cpu| pin_to(*cpu));
    }

    fn second(&self) {
        let _ = self.0.last().map(|cpu| pin_to(*cpu));
    }
}

/// A case: its measurement, a run with this seed, and the figures so far.
struct Measured<'a> {
    name: &'static str,
    unit: &'static str,
    run: Box<dyn Fn(u64) -> f64 + 'a>,
    /// The case it is compared with.
    against: Option<&'static str>,
    goal: Option<f64>,
    samples: Vec<f64>,
}

/// Measures rates, rates with losses and one-way times, with the bare ring beside them.
pub(super) fn measure(options: &Options, memory: &Memory) -> Vec<Case> {
    memory.begin_case();
    let messages = 16 * options.packets as u64;
    let processors = &Processors::read();
    let plain = &Protection::SharedMemory;
    let keyed = &keyed();
    let case = |name, unit, against, goal, run: Box<dyn Fn(u64) -> f64>| Measured {
        name,
        unit,
        run,
        against,
        goal,
        samples: Vec::new(),
    };
    let rate = |name, against, run| case(name, "M/s", against, None, run);
    let (ring, channel, both) = ("bare ring", "channel", "both ends on one thread");
    let mut cases = [
        rate(ring, None, Box::new(|_| channel::ring_rate(processors, messages))),
        case(
            channel,
            "M/s",
            Some(ring),
            Some(15.0),
            Box::new(|seed| channel::rate(processors, messages, 0, seed, plain)),
        ),
        rate(
            "channel, 1 % of frames lost",
            Some(channel),
            Box::new(|seed| channel::rate(processors, messages, 100, seed, plain)),
        ),
        case(
            "channel, encrypted",
            "M/s",
            Some(channel),
            Some(15.0),
            Box::new(|seed| channel::rate(processors, messages, 0, seed, keyed)),
        ),
        rate(
            "encrypted, 1 % lost",
            Some(channel),
            Box::new(|seed| channel::rate(processors, messages, 100, seed, keyed)),
        ),
        case(
            "shared memory, 2 processes",
            "M/s",
            Some(ring),
            Some(15.0),
            Box::new(|_| links::rate(processors, Over::SharedMemory, messages, MESSAGE)),
        ),
        rate(
            "the same, 1,400 bytes each",
            Some("shared memory, 2 processes"),
            Box::new(|_| links::rate(processors, Over::SharedMemory, messages / 8, LONG)),
        ),
        rate(
            "geneve, keyed, 2 processes",
            Some(ring),
            Box::new(|_| links::rate(processors, Over::Geneve, messages / 4, MESSAGE)),
        ),
        rate(
            both,
            None,
            Box::new(|seed| channel::both_rate(messages, 0, seed, plain)),
        ),
        rate(
            "the same, 1 % of frames lost",
            Some(both),
            Box::new(|seed| channel::both_rate(messages, 100, seed, plain)),
        ),
        rate(
            "the same, encrypted",
            Some(both),
            Box::new(|seed| channel::both_rate(messages / 2, 0, seed, keyed)),
        ),
        case(
            "one way: channel",
            "ns",
            None,
            Some(2000.0),
            Box::new(|seed| channel::one_way(processors, seed)),
        ),
        case(
            "one way: shared memory",
            "ns",
            None,
            Some(2000.0),
            Box::new(|_| links::one_way(processors, Over::SharedMemory)),
        ),
        case(
            "one way: geneve",
            "ns",
            None,
            None,
            Box::new(|_| links::one_way(processors, Over::Geneve)),
        ),
    ];
    let began = Instant::now();
    for run in 0..options.runs as u64 {
        if run > 0 && began.elapsed() > BUDGET {
            break;
        }
        for case in &mut cases {
            case.samples.push((case.run)(options.seed * 1000 + run));
            std::thread::sleep(PAUSE);
        }
    }
    let mut done: Vec<Case> = Vec::new();
    for measured in cases {
        let parameters = Parameters {
            flows: 0,
            popularity: "-",
            frame_bytes: MESSAGE,
            packets_per_run: messages as usize,
            live: None,
        };
        let metric = match measured.unit {
            "ns" => "nanoseconds",
            _ => "million messages per second (one way: nanoseconds)",
        };
        let mut case = Case::new(measured.name, parameters, metric, measured.unit, measured.samples);
        if let Some(other) = done
            .iter()
            .find(|done| Some(done.name.as_str()) == measured.against)
        {
            case = case.against(other);
        }
        done.push(case.goal(measured.goal));
    }
    done
}
