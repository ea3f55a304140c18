//! Watching a running cluster: the same watch at every worker, and their observations put together.
//!
//! # Theory of operation
//!
//! ```text
//!   watch ── to each worker: the watch and its memory
//!   take ─── one worker after the other: empty memory for full ─► turned into records ─► cleared, for the next
//!   drop ─── to each worker: the watch is over
//! ```
//!
//! A trace's steps are numbered over all workers. Steps fetched from one worker may be ahead of
//! others that are yet to be fetched from another, so they are handed out as far as their numbers
//! have no gap; a gap that is there after two more rounds is no longer waited for. Packets get
//! numbers of their own: a buffer's place is a packet's name only as long as that is inside.
//!
//! When a cluster ends, it waits a moment ([`LAST`]) for its watchers to fetch the last
//! observations: a capture has the last drops, too.
//!
//! Invariants: however a [`Watcher`] goes, its watch ends with it; memory is a fixed amount, shared
//! out to the workers.

use super::handle::{Handle, Question, Unanswered, WorkerAnswer};
use super::{Shared, following};
use crate::capture::Frame;
use crate::cluster::{Observed, Subject, Watching};
use crate::trace::{Change, Ends, Event, Step};
use runtime::watch::bpf::Program;
use runtime::watch::capture::{Capture, Captured, Choice, Frames, Where};
use runtime::watch::trace::{self, Budget, How, Meeting, Trace, Verdict};
use runtime::watch::{CAPTURES_MAX, Seen, TRACES_MAX, Watch, What, Worker};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use wire::{FlowKey, LinkType};

/// Steps of a trace that a worker has room for between two visits.
const STEPS_MAX: usize = 4096;
/// The most packets of a trace.
const PACKETS_MAX: u32 = 100_000;
/// Bytes of frames that a worker has room for, at least.
const WORKER_BYTES_MIN: usize = 16 * 1024;
/// Bytes of frames for which there is room to note one: the smallest there are.
const FRAME_BYTES: usize = 64;
/// Memory for a capture, if its caller does not say.
const BYTES: u64 = 64 << 20;
/// The most memory for a capture.
const BYTES_MAX: u64 = 1 << 30;
/// How long the end of a cluster waits for watchers.
pub(super) const LAST: Duration = Duration::from_secs(1);
/// Rounds after which a step that is missing is no longer waited for.
const ROUNDS: u32 = 2;

/// The cluster's count of its watchers.
#[derive(Debug, Default)]
pub(super) struct WatchRegistry {
    ids: AtomicU32,
    /// Which slots of traces are taken.
    slots: [AtomicBool; TRACES_MAX],
    watchers: AtomicUsize,
    /// The cluster ends: a watcher that fetches now fetches for the last time.
    closing: AtomicBool,
}

impl WatchRegistry {
    /// Takes a free slot of traces, or this one.
    fn slot(&self, wanted: Option<usize>) -> Result<usize, String> {
        let mut all = self.slots.iter().enumerate();
        let is_meant = |slot: usize| wanted.is_none_or(|wanted| wanted == slot);
        let free = all.find(|(slot, taken)| is_meant(*slot) && !taken.swap(true, Ordering::SeqCst));
        free.map(|(slot, _)| slot).ok_or_else(|| {
            format!("{TRACES_MAX} flows are traced already; end one of those first (Ctrl-C there)")
        })
    }

    /// A watcher comes; its number.
    pub(super) fn come(&self) -> u32 {
        self.watchers.fetch_add(1, Ordering::SeqCst);
        self.ids.fetch_add(1, Ordering::Relaxed)
    }

    /// A watcher has fetched all there is for the last time, or has gone.
    pub(super) fn leave(&self) {
        self.watchers.fetch_sub(1, Ordering::SeqCst);
    }

    /// Whether a fetch that begins now is the last one.
    pub(super) fn is_closing(&self) -> bool {
        self.closing.load(Ordering::SeqCst)
    }

    /// Waits until all watchers have fetched the last observations, or have had the time for it.
    pub(super) fn close(&self) {
        self.closing.store(true, Ordering::SeqCst);
        let began = Instant::now();
        while self.watchers.load(Ordering::SeqCst) > 0 && began.elapsed() < LAST {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

/// A watch: its memory for fetching from all workers, and the observations that it has put
/// together.
struct Watcher {
    shared: Arc<Shared>,
    id: u32,
    slot: Option<usize>,
    budget: Option<Arc<Budget>>,
    seen: Seen,
    keys: HashSet<FlowKey>,
    functions: Vec<String>,
    chains: Vec<String>,
    order: Order,
    numbers: Numbers,
    /// Nanoseconds from the workers' clock to the time of day.
    clock: u64,
    is_over: bool,
}

/// Steps in the order of their numbers.
#[derive(Default)]
struct Order {
    steps: BTreeMap<u64, trace::Step>,
    next: u64,
    waited: u32,
}

/// Which number a packet has, by its name.
#[derive(Default)]
struct Numbers {
    /// This process has no ports: packets come to its runtimes from others.
    come_by_links: bool,
    inside: HashMap<usize, u64>,
    last: u64,
}

impl Numbers {
    fn of(&mut self, step: &trace::Step) -> u64 {
        let begins = match step.event {
            trace::Event::In { .. } | trace::Event::Made { .. } => true,
            // A packet leaves such a process without a last step, and another has its place.
            trace::Event::Met(_) => self.come_by_links,
            _ => false,
        };
        let known = self.inside.get(&step.packet).copied().filter(|_| !begins);
        let number = known.unwrap_or_else(|| {
            self.last += 1;
            self.inside.insert(step.packet, self.last);
            self.last
        });
        if matches!(
            step.event,
            trace::Event::Out { .. } | trace::Event::Dropped { .. }
        ) {
            self.inside.remove(&step.packet);
        }
        number
    }
}

/// Begins to watch.
pub(super) fn begin(shared: Arc<Shared>, subject: &Subject) -> Result<Box<dyn Watching>, String> {
    if let Subject::Flows(choice) = subject {
        return following::begin(shared, choice);
    }
    let watch_registry = &shared.watch_registry;
    let workers = shared.workers().count();
    let id = watch_registry.come();
    let mut watcher = Watcher {
        id,
        slot: None,
        budget: None,
        seen: Seen::default(),
        keys: HashSet::new(),
        functions: Vec::new(),
        chains: Vec::new(),
        order: Order::default(),
        numbers: Numbers {
            come_by_links: shared.switches.is_empty(),
            ..Numbers::default()
        },
        clock: super::stamps::clock_offset(shared.packet_clock),
        is_over: false,
        shared: Arc::clone(&shared),
    };
    let what: Box<dyn Fn() -> What> = match subject {
        Subject::Flow { key, .. } | Subject::FlowPart { key, .. } => {
            let slot = watch_registry.slot(match subject {
                Subject::FlowPart { slot, .. } => Some(usize::from(*slot)),
                _ => None,
            })?;
            watcher.slot = Some(slot);
            let budget = Arc::new(Budget::default());
            watcher.budget = Some(Arc::clone(&budget));
            watcher.seen.steps = Vec::with_capacity(STEPS_MAX);
            let mut keys = vec![*key];
            if let Some(view) = crate::cluster::Cluster::flow(&*shared, key) {
                let both = [Some((view.source, view.destination)), view.translated];
                for (source, destination) in both.into_iter().flatten() {
                    let other = FlowKey::new(source, destination, view.key.protocol(), view.key.vlan()).0;
                    if !keys.contains(&other) {
                        keys.push(other);
                    }
                }
            }
            watcher.keys.extend(&keys);
            Box::new(move || {
                What::Flow(Box::new(Trace::new(
                    slot as u8,
                    &keys,
                    Arc::clone(&budget),
                    STEPS_MAX,
                )))
            })
        }
        Subject::Flows(_) => return Err("flows are followed, not watched".into()),
        Subject::Packets(wanted) => {
            let filter = wanted.filter.as_ref().map(|programs| {
                let each = programs.iter().map(|(link, instructions)| {
                    let link = LinkType::from_pcap(*link)
                        .ok_or_else(|| format!("Flowkeep reads no frames of link type {link}"))?;
                    let program = Program::new(instructions.iter().map(|i| (*i).into()).collect());
                    Ok((link, program.map_err(|error| error.to_string())?))
                });
                each.collect::<Result<Vec<_>, String>>()
            });
            let choice = Choice {
                incoming: wanted.incoming,
                outgoing: wanted.outgoing,
                dropped: wanted.dropped,
                filter: filter.transpose()?,
                snap_length: wanted.snap_length,
            };
            let bytes = wanted.buffer_bytes.unwrap_or(BYTES).min(BYTES_MAX) as usize;
            let each = (bytes / (workers + 1)).max(WORKER_BYTES_MIN);
            let room = move || Frames::with_room(each / FRAME_BYTES, each);
            watcher.seen.frames = room();
            Box::new(move || What::Packets(Box::new(Capture::new(choice.clone(), room()))))
        }
    };
    for handle in shared.workers() {
        let watch = Watch { id, what: what() };
        match handle.ask(Question::Watch(Box::new(watch))) {
            Ok(WorkerAnswer::Watching(true)) => {}
            Ok(WorkerAnswer::Watching(false)) => {
                return Err(format!(
                    "{CAPTURES_MAX} captures run already (`flowkeep top` counts as one); end one of those first (Ctrl-C there)"
                ));
            }
            Err(Unanswered::Gone) | Ok(_) => return Err("the cluster is ending".into()),
            Err(why) => return Err(format!("a worker cannot be watched: {why}")),
        }
    }
    match (&watcher.budget, subject) {
        (Some(budget), Subject::Flow { packets, .. }) => budget.open((*packets).clamp(1, PACKETS_MAX)),
        // Packets of a member without ports come marked, or were not wanted where they came in.
        (Some(budget), Subject::FlowPart { packets, .. }) if !shared.switches.is_empty() => {
            budget.open((*packets).clamp(1, PACKETS_MAX));
        }
        _ => {}
    }
    Ok(Box::new(watcher))
}

impl Drop for Watcher {
    fn drop(&mut self) {
        for handle in self.workers() {
            handle.unwatch(self.id);
        }
        if let Some(slot) = self.slot {
            self.shared.watch_registry.slots[slot].store(false, Ordering::SeqCst);
        }
        if !self.is_over {
            self.shared.watch_registry.leave();
        }
    }
}

impl Watching for Watcher {
    fn ports(&self) -> Vec<String> {
        self.shared.port_names()
    }

    fn take(&mut self) -> Observed {
        let mut observed = Observed {
            is_over: self.is_over,
            ..Observed::default()
        };
        if self.is_over {
            return observed;
        }
        // The observations fetched behind this look are all that there were before it.
        let closing = self.shared.watch_registry.is_closing();
        let mut learned = Vec::new();
        let shared = Arc::clone(&self.shared);
        for handle in shared.workers() {
            let seen = std::mem::take(&mut self.seen);
            let (seen, names) = match handle.ask(Question::Watched(self.id, Box::new(seen))) {
                Ok(WorkerAnswer::Watched(seen, names)) => (*seen, names),
                // The worker has gone, or has lost the watch's memory with its content.
                _ => {
                    observed.is_over = true;
                    break;
                }
            };
            self.seen = seen;
            if let Some((functions, chains)) = names {
                (self.functions, self.chains) = (functions, chains);
            }
            self.order
                .steps
                .extend(self.seen.steps.drain(..).map(|step| (step.order, step)));
            observed.steps_lost += self.seen.steps_lost;
            learned.extend(self.seen.keys.iter().filter(|key| self.keys.insert(**key)));
            self.take_frames(&mut observed);
        }
        for (key, handle) in learned
            .iter()
            .flat_map(|key| self.workers().map(move |handle| (key, handle)))
        {
            handle.learn(self.id, *key);
        }
        observed.is_over |= closing;
        self.hand_out(&mut observed);
        observed.frames.sort_by_key(|frame| frame.time_ns);
        observed.left = self.budget.as_ref().map(|budget| budget.left());
        if observed.is_over {
            self.is_over = true;
            self.shared.watch_registry.leave();
        }
        observed
    }
}

impl Watcher {
    fn workers(&self) -> impl Iterator<Item = Handle> {
        self.shared.workers()
    }

    fn take_frames(&mut self, observed: &mut Observed) {
        let frames = &self.seen.frames;
        let mut at = 0;
        for captured in &frames.captured {
            let bytes = &frames.bytes[at..at + captured.length as usize];
            at += captured.length as usize;
            observed.frames.push(self.frame(captured, bytes));
        }
        let lost = frames.lost.iter().enumerate().filter(|(_, count)| **count > 0);
        for (port, count) in lost {
            *observed.lost.entry(port as u8).or_default() += *count;
        }
        self.seen.frames.clear();
    }

    fn frame(&self, captured: &Captured, bytes: &[u8]) -> Frame {
        let (place, reason) = match captured.place {
            Where::In => (crate::capture::CapturePoint::In, None),
            Where::Out => (crate::capture::CapturePoint::Out, None),
            Where::Dropped { function, reason } => {
                let function = function.map(|function| self.function(function));
                let reason = match function {
                    Some(function) => format!("{function}: {reason}"),
                    None => reason.to_owned(),
                };
                (crate::capture::CapturePoint::Drop, Some(reason))
            }
        };
        Frame {
            time_ns: captured.at.saturating_add(self.clock),
            port: captured.port,
            link: captured.link.to_pcap(),
            place,
            reason,
            length: captured.wire_length,
            bytes: crate::capture::Hex(bytes.to_vec()),
            member: None,
        }
    }

    /// Hands out the steps that have come, in order, as far as none is missing.
    fn hand_out(&mut self, observed: &mut Observed) {
        loop {
            let Some((&number, _)) = self.order.steps.first_key_value() else {
                self.order.waited = 0;
                return;
            };
            if number > self.order.next && !observed.is_over {
                self.order.waited += 1;
                if self.order.waited <= ROUNDS {
                    return;
                }
            }
            self.order.waited = 0;
            self.order.next = number + 1;
            if let Some(step) = self.order.steps.remove(&number) {
                let step = self.step(&step);
                observed.steps.push(step);
            }
        }
    }

    fn function(&self, number: u8) -> String {
        let name = self.functions.get(usize::from(number));
        name.cloned().unwrap_or_else(|| format!("function {number}"))
    }

    fn port(&self, number: u8) -> String {
        let names = self.shared.port_names();
        let name = names.get(usize::from(number));
        name.cloned().unwrap_or_else(|| format!("port {number}"))
    }

    fn step(&mut self, step: &trace::Step) -> Step {
        Step {
            packet: self.numbers.of(step),
            time_ns: step.at.saturating_add(self.clock),
            worker: match step.worker {
                Worker::Switch(number) => format!("switch {number}"),
                Worker::Runtime(number) => format!("runtime {number}"),
            },
            member: None,
            event: self.event(&step.event),
        }
    }

    fn event(&self, event: &trace::Event) -> Event {
        match *event {
            trace::Event::In {
                port,
                side,
                ends,
                protocol,
                tcp_flags,
                length,
                is_error,
            } => Event::In {
                port: self.port(port),
                side: side_name(side).into(),
                protocol: wire::key::protocol_name(protocol).to_string(),
                ends: ends.into(),
                tcp_flags: (protocol == wire::protocol::TCP).then(|| flag_letters(tcp_flags)),
                length,
                is_error,
            },
            trace::Event::HandedOver { home } => Event::HandedOver { to: u16::from(home) },
            trace::Event::Routed { runtime, how } => Event::Routed {
                runtime,
                by: match how {
                    How::Route => "route",
                    How::ReplyKey => "reply_key",
                    How::Chosen(runtime::switch::Policy::LeastLoaded) => "least_loaded",
                    How::Chosen(runtime::switch::Policy::RoundRobin) => "round_robin",
                    How::Chosen(runtime::switch::Policy::Maglev) => "maglev",
                }
                .into(),
            },
            trace::Event::Turned => Event::Turned,
            trace::Event::Met(meeting) => Event::Flow {
                is: match meeting {
                    Meeting::Found => "found",
                    Meeting::Launched => "launched",
                    Meeting::Queued => "queued",
                    Meeting::Expired => "expired",
                }
                .into(),
            },
            trace::Event::Enters {
                chain,
                direction,
                passed,
                ..
            } => Event::Chain {
                chain: self.chains.get(usize::from(chain)).cloned().unwrap_or_default(),
                direction: match direction {
                    nf::Direction::Opening => "opening",
                    nf::Direction::Reply => "reply",
                }
                .into(),
                passed,
            },
            trace::Event::Passed {
                function,
                verdict,
                resumed,
                before,
                after,
            } => {
                let (verdict, reason) = match verdict {
                    Verdict::Forward => ("forward", None),
                    Verdict::Drop(reason) => ("drop", Some(reason.to_owned())),
                    Verdict::Answer => ("answer", None),
                    Verdict::Consume => ("consume", None),
                    Verdict::Wait => ("wait", None),
                };
                Event::Function {
                    function: self.function(function),
                    verdict: verdict.into(),
                    reason,
                    resumed,
                    changed: (before != after).then(|| Change {
                        before: before.into(),
                        after: after.into(),
                    }),
                }
            }
            trace::Event::Made { function, back } => Event::Made {
                function: self.function(function),
                way: if back { "back" } else { "onward" }.into(),
            },
            trace::Event::Released { function } => Event::Released {
                function: self.function(function),
            },
            trace::Event::ReplyKey { source, destination } => Event::ReplyKey {
                ends: Ends {
                    source: source.to_string(),
                    destination: destination.to_string(),
                },
            },
            trace::Event::Leaves { exit } => Event::Leaves {
                side: side_name(exit).into(),
            },
            trace::Event::Out { port, ends } => Event::Out {
                port: self.port(port),
                ends: ends.into(),
            },
            trace::Event::Dropped { function, reason } => Event::Dropped {
                function: function.map(|function| self.function(function)),
                reason: reason.to_owned(),
            },
        }
    }
}

impl From<runtime::watch::Ends> for Ends {
    fn from(ends: runtime::watch::Ends) -> Self {
        Ends {
            source: ends.source.to_string(),
            destination: ends.destination.to_string(),
        }
    }
}

fn side_name(side: nf::Side) -> &'static str {
    match side {
        nf::Side::Inside => "inside",
        nf::Side::Outside => "outside",
    }
}

/// TCP's flags as tcpdump writes them.
pub(crate) fn flag_letters(flags: u8) -> String {
    let letters = [(2, 'S'), (1, 'F'), (4, 'R'), (8, 'P'), (16, '.'), (32, 'U')];
    let set = letters.iter().filter(|(bit, _)| flags & bit != 0);
    set.map(|(_, letter)| *letter).collect()
}
