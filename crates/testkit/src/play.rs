//! Plays a script to a runtime, and holds its books against the function's verdicts.
//!
//! # Theory of operation
//! The clock belongs to the player. A packet is received at the clock's next nanosecond and the
//! runtime stepped at the one after, until it has nothing to do; so each packet's time of reception
//! is a name that nothing else has. A wait moves the clock in small steps, stopping wherever a call
//! is due.
//!
//! ```text
//! packet   clock+1 received    clock+2 step, step, … idle    what left is collected    books are checked
//! wait d   clock+d/1000 step … idle, clock+2d/1000 step …
//! end      numbers and flows are kept; then every flow is ended, and the books must be even
//! ```
//!
//! Not here: the runtime's work on a packet.

use crate::allocations;
use crate::build::{Conversations, Last};
use crate::outcome::{Came, Entry, Fate, Outcome, Transcript};
use crate::port::{Incoming, ScriptPort};
use crate::sent::{Copied, Sent};
use crate::step::{Step, What};
use crate::watch::{Notes, Watched, WatchedConfig};
use nf::cx::EMITTED_MAX;
use nf::{Endpoint, NetworkFunction, Side, Verdict, WorkerInfo};
use runtime::chain::{ChainRule, Plan};
use runtime::stage::Configured;
use runtime::stats::{Named, RuntimeStats};
use runtime::{Runtime, Settings};
use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use wire::memory::Region;
use wire::{LinkType, Pool};

/// Runs a function over a script's steps.
///
/// # Panics
/// If the configuration is refused, a step cannot be, or a check of the kit's own fails ([crate]
/// lists them).
#[track_caller]
pub fn run<F: NetworkFunction>(config: F::Config, script: impl IntoIterator<Item = Step>) -> Outcome {
    setup::<F>(config).run(script)
}

/// As [`run`], with the runtime's bounds to be chosen first.
pub fn setup<F: NetworkFunction>(config: F::Config) -> Setup<F> {
    Setup {
        config,
        settings: Settings::alone(1024),
    }
}

/// A function, its configuration and its runtime's bounds.
pub struct Setup<F: NetworkFunction> {
    config: F::Config,
    settings: Settings,
}

impl<F: NetworkFunction> Setup<F> {
    /// The most flows at once, 1024 otherwise.
    #[must_use]
    pub fn flows_max(mut self, flows: u32) -> Self {
        self.settings.info.flows_max = flows;
        self.settings.groups_max = flows;
        self
    }

    /// The function's view of its worker.
    #[must_use]
    pub fn worker(mut self, info: WorkerInfo) -> Self {
        self.settings.groups_max = info.flows_max;
        self.settings.info = info;
        self
    }

    /// All of the runtime's bounds.
    #[must_use]
    pub fn settings(mut self, settings: Settings) -> Self {
        self.settings = settings;
        self
    }

    /// Runs the script's steps.
    ///
    /// # Panics
    /// As [`run`].
    #[track_caller]
    pub fn run(self, script: impl IntoIterator<Item = Step>) -> Outcome {
        let script: Vec<Step> = script.into_iter().collect();
        let mut player = Player::<F>::new(self, &script);
        for step in &script {
            for _ in 0..step.times {
                player.play(step);
            }
        }
        player.end()
    }
}

/// The script's beginning: not zero, so that a time that was never set shows.
const BEGINNING: u64 = 1_000_000_000_000;
/// The parts into which a wait is divided.
const WAIT_PARTS: u64 = 1000;
/// A runtime that has had this many steps without coming to rest never will.
const STEPS_MAX: usize = 100_000;
const BUFFERS: usize = 4096;
const FRAME_MAX: usize = 2048;

struct Player<F: NetworkFunction> {
    runtime: Runtime<ScriptPort>,
    notes: Arc<Mutex<Notes>>,
    clock: u64,
    conversations: Conversations,
    last: Option<Last>,
    entries: Vec<Entry>,
    /// The step of each packet, by its time of reception.
    steps: HashMap<u64, usize>,
    /// The ends by which each step's conversation is known.
    known_as: HashMap<usize, (Endpoint, Endpoint)>,
    /// The runtime's own drops that no packet has been found for yet, with the step in which they
    /// were counted.
    unexplained: Vec<(usize, &'static str)>,
    /// Drops already looked at.
    drops: Vec<Named>,
    /// Verdicts already looked at, and how many of them were drops, by reason.
    heard: usize,
    said: HashMap<&'static str, u64>,
    sent: u64,
    events: String,
    reasons: &'static [&'static str],
    function: std::marker::PhantomData<F>,
}

impl<F: NetworkFunction> Player<F> {
    #[track_caller]
    fn new(setup: Setup<F>, script: &[Step]) -> Self {
        let mut notes = Notes::default();
        (notes.life.is_on, notes.life.warns) = (true, true);
        let notes = Arc::new(Mutex::new(notes));
        let config = WatchedConfig::<F> {
            config: Arc::new(setup.config),
            notes: notes.clone(),
        };
        let factory = Configured::<Watched<F>>::new(F::NAME, config);
        let rule = ChainRule {
            name: "test".into(),
            functions: vec![F::NAME.into()],
            ..ChainRule::default()
        };
        let plan = match Plan::new(vec![rule], vec![Box::new(factory)]) {
            Ok(plan) => plan,
            Err(error) => panic!("{error}"),
        };
        let longest = script.iter().map(|step| match &step.what {
            What::Frame(bytes, ..) => bytes.len(),
            What::Packet(described) => described.payload.len() + 128,
            What::Wait(_) => 0,
        });
        let frame_max = longest.max().unwrap_or(0).max(FRAME_MAX);
        let pool = Pool::new(
            Region::heap(Pool::region_length(BUFFERS, frame_max)),
            BUFFERS,
            frame_max,
            0,
        );
        let settings = Settings {
            now: BEGINNING,
            ..setup.settings
        };
        let runtime = match Runtime::new(settings, plan, vec![ScriptPort::new()], pool, Region::heap) {
            Ok(runtime) => runtime,
            Err((function, error)) => panic!("the configuration of `{function}` is refused: {error}"),
        };
        Player {
            runtime,
            notes,
            clock: BEGINNING,
            conversations: Conversations::default(),
            last: None,
            entries: Vec::new(),
            steps: HashMap::new(),
            known_as: HashMap::new(),
            unexplained: Vec::new(),
            drops: Vec::new(),
            heard: 0,
            said: HashMap::new(),
            sent: 0,
            events: String::new(),
            reasons: F::REASONS,
            function: std::marker::PhantomData,
        }
    }

    #[track_caller]
    fn play(&mut self, step: &Step) {
        if let Some(time) = step.after {
            self.pass(time);
        }
        match &step.what {
            What::Wait(time) => {
                self.begin(Came::Waited(*time));
                self.pass(*time);
            }
            What::Frame(bytes, link, side) => self.packet(bytes.clone(), *link, *side, step.wire_length),
            What::Packet(described) => {
                let step = self.entries.len();
                match self.conversations.build(described, self.last.as_ref()) {
                    Ok(built) => {
                        self.known_as.insert(step, built.known_as);
                        self.packet(built.frame, LinkType::Ethernet, built.side, None);
                    }
                    Err(why) => self.fail(format_args!("step {step} cannot be: {why}")),
                }
            }
        }
        self.check_books();
    }

    #[track_caller]
    fn packet(&mut self, frame: Vec<u8>, link: LinkType, side: Side, wire_length: Option<u32>) {
        let step = self.entries.len();
        if frame.len() > wire::packet::FRAME_MAX {
            self.fail(format_args!(
                "step {step} has a frame of {} bytes, more than any packet",
                frame.len()
            ));
        }
        let stamp = self.clock + 1;
        self.steps.insert(stamp, step);
        let packet = Copied::of_frame(&frame, link, side);
        self.begin(Came::Packet { packet, stamp });
        self.port().bring(Incoming {
            frame,
            link,
            side,
            wire_length,
            stamp,
        });
        self.clock += 2;
        self.step_until_idle();
        if !self.port().has_received() {
            self.fail(format_args!(
                "the packet of step {step} found no buffer: {BUFFERS} packets are held already"
            ));
        }
    }

    #[track_caller]
    fn pass(&mut self, time: Duration) {
        let until = self.clock + u64::try_from(time.as_nanos()).unwrap_or(u64::MAX / 2);
        let part = (until - self.clock).div_ceil(WAIT_PARTS).max(1);
        while self.clock < until {
            let due = self
                .runtime
                .next_at()
                .map_or(until, |due| due.max(self.clock + 1));
            self.clock = (self.clock + part).min(until).min(due);
            self.step_until_idle();
        }
    }

    fn begin(&mut self, came: Came) {
        let at = Duration::from_nanos(self.clock - BEGINNING);
        self.entries.push(Entry {
            at,
            came,
            sent: Vec::new(),
            fate: None,
            allocations: 0,
        });
        self.notes().make_room();
    }

    #[track_caller]
    fn step_until_idle(&mut self) {
        for _ in 0..STEPS_MAX {
            let before = allocations::so_far();
            let work = self.runtime.step(self.clock);
            let made = allocations::so_far() - before;
            if let Some(entry) = self.entries.last_mut() {
                entry.allocations += made;
            }
            self.collect();
            if work.is_idle() {
                return;
            }
        }
        self.fail(format_args!(
            "the runtime does not come to rest: does `{}` sleep for no time?",
            F::NAME
        ));
    }

    /// Takes packets that have left, lines of the log and drop counters.
    #[track_caller]
    fn collect(&mut self) {
        let left = std::mem::take(&mut self.port().left);
        let at = Duration::from_nanos(self.clock - BEGINNING);
        self.sent += left.len() as u64;
        for packet in &left {
            let origin = self.steps.get(&packet.timestamp()).copied();
            let step = origin.unwrap_or(self.entries.len() - 1);
            let known_as = self
                .known_as
                .get(&step)
                .copied()
                .unwrap_or((packet.source(), packet.destination()));
            self.last = Some(Last::of(packet, known_as));
            self.entries[step]
                .sent
                .push(Sent::new(packet, origin.is_none(), at));
        }
        let port = self.port();
        port.done.extend(left);
        port.left = Vec::with_capacity(256);
        let mut events = std::mem::take(&mut self.events);
        self.runtime.take_events(&mut events);
        self.events = events;
    }

    fn port(&mut self) -> &mut ScriptPort {
        &mut self.runtime.links_mut()[0]
    }

    fn notes(&self) -> std::sync::MutexGuard<'_, Notes> {
        self.notes
            .lock()
            .expect("a thread that panicked has ended the test")
    }

    /// Packets in = out + held + dropped, and drops by reason as the function said.
    #[track_caller]
    fn check_books(&mut self) {
        let stats = self.runtime.stats();
        let dropped: u64 = stats.dropped.iter().map(|drops| drops.count).sum();
        let (came, went) = (
            stats.received + stats.emitted,
            stats.passed + stats.held + dropped,
        );
        if came != went {
            self.fail(format_args!(
                "the runtime's books do not add up: {} received and {} emitted, but {} passed, {} held and {dropped} \
                 dropped",
                stats.received, stats.emitted, stats.passed, stats.held
            ));
        }
        if stats.passed != self.sent {
            self.fail(format_args!(
                "the runtime counted {} packets as passed, but {} left",
                stats.passed, self.sent
            ));
        }
        self.check_drops(&stats);
        let forgotten = self.notes().life.forgotten.clone();
        if let Some(words) = forgotten {
            self.fail(format_args!("{words}"));
        }
    }

    #[track_caller]
    fn check_drops(&mut self, stats: &RuntimeStats) {
        let step = self.entries.len() - 1;
        for drops in &stats.dropped {
            let same = |known: &&Named| known.function == drops.function && known.name == drops.name;
            let before = self.drops.iter().find(same).map_or(0, |known| known.count);
            if drops.function.is_empty() {
                self.unexplained
                    .extend((before..drops.count).map(|_| (step, drops.name)));
            }
        }
        self.drops = stats.dropped.clone();
        let new = self.notes().verdicts[self.heard..].to_vec();
        self.heard += new.len();
        for (_, verdict) in new {
            if let Verdict::Drop(reason) = verdict {
                *self.said.entry(self.reason(reason.index())).or_default() += 1;
            }
        }
        for (&reason, &times) in &self.said {
            let counted = stats
                .dropped
                .iter()
                .filter(|d| !d.function.is_empty() && d.name == reason);
            let counted: u64 = counted.map(|drops| drops.count).sum();
            // More than that are held packets that the function discarded.
            if counted < times {
                self.fail(format_args!(
                    "the function dropped {times} for `{reason}`, but {counted} are counted"
                ));
            }
        }
    }

    fn reason(&self, index: usize) -> &'static str {
        self.reasons.get(index).copied().unwrap_or("undeclared")
    }

    #[track_caller]
    fn end(mut self) -> Outcome {
        let (stats, mut flows) = (self.runtime.stats(), Vec::new());
        let mut cursor = Some(0);
        while let Some(from) = cursor {
            let (some, next) = self.runtime.flows(from, 1024);
            flows.extend(some);
            cursor = next;
        }
        self.decide_fates();
        self.finish();
        let Player { entries, events, .. } = self;
        Outcome {
            function: F::NAME,
            entries,
            stats,
            flows,
            events,
        }
    }

    /// Each packet's fate from the packets that left, the function's verdicts, and the runtime's
    /// counts; and whether they agree.
    #[track_caller]
    fn decide_fates(&mut self) {
        let mut verdicts: HashMap<u64, Verdict> = HashMap::new();
        verdicts.extend(self.notes().verdicts.iter().copied());
        for step in 0..self.entries.len() {
            let Came::Packet { packet, stamp } = &self.entries[step].came else {
                continue;
            };
            let came_from = packet.side();
            let verdict = verdicts.get(stamp).copied();
            let left: Vec<&Sent> = self.entries[step]
                .sent
                .iter()
                .filter(|sent| !sent.emitted)
                .collect();
            let fate = match (left.as_slice(), verdict) {
                ([], Some(Verdict::Drop(reason))) => Fate::Dropped(self.reason(reason.index())),
                ([], _) => self.unseen(step),
                ([one], Some(Verdict::Answer)) if one.exit() == came_from => Fate::Answered,
                ([one], Some(Verdict::Forward | Verdict::Consume))
                    if one.hairpins() > 0 || one.exit() == came_from.opposite() =>
                {
                    Fate::Forwarded
                }
                (left, verdict) => {
                    let (left, verdict) = (left.len(), format!("{verdict:?}"));
                    self.fail(format_args!(
                        "the runtime did not obey: of the packet of step {step}, about which the function said last \
                         {verdict}, {left} left as shown"
                    ))
                }
            };
            self.entries[step].fate = Some(fate);
        }
    }

    /// The fate of a packet that neither left nor was dropped by the function.
    fn unseen(&mut self, step: usize) -> Fate {
        let at = self.unexplained.iter().position(|(when, _)| *when == step);
        let at = at.or_else(|| self.unexplained.iter().position(|(when, _)| *when > step));
        match at {
            Some(at) => Fate::Dropped(self.unexplained.remove(at).1),
            None => Fate::Held,
        }
    }

    /// Ends every flow, after which nothing may be left of any.
    #[track_caller]
    fn finish(&mut self) {
        let mut left = STEPS_MAX;
        while !self.runtime.finish(1024) {
            self.collect();
            self.step_until_idle();
            left -= 1;
            if left == 0 {
                self.fail(format_args!("flows are left that cannot be ended"));
            }
        }
        self.step_until_idle();
        // The buffers that left with the last step go back with the next.
        self.step_until_idle();
        let stats = self.runtime.stats();
        let (arrived, departed) = self.notes().flows();
        if arrived != departed {
            self.fail(format_args!("{arrived} flows arrived, but {departed} departed"));
        }
        if stats.held != 0 {
            self.fail(format_args!(
                "{} packets are held, but their flows are over",
                stats.held
            ));
        }
        let pool = self.runtime.pool();
        let (free, total) = (pool.free(), pool.total());
        // Some lie ready for `Cx::emit`.
        if free + EMITTED_MAX < total {
            self.fail(format_args!(
                "{} of {total} buffers have not come back",
                total - free
            ));
        }
    }

    #[track_caller]
    fn fail(&self, why: std::fmt::Arguments<'_>) -> ! {
        let marked = self.entries.len().checked_sub(1);
        panic!(
            "{why}\n{}",
            Transcript {
                entries: &self.entries,
                marked
            }
        );
    }
}
