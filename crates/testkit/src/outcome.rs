//! The result of a script: fates, packets, counters and flows, and assertions that show the whole
//! story when they fail.
//!
//! # Theory of operation
//! An [`Outcome`] has one [`Entry`] per step. Its `Display` is the transcript that failed
//! assertions print:
//!
//! ```text
//!   step    at       came in                                              fate
//!      0    +0 ns    inside   tcp 10.0.0.1:1000 > 192.0.2.1:80 SYN        forwarded
//! >    1    +2 ns    outside  udp 198.51.100.7:53 > 10.0.0.1:53           dropped: from_outside
//!      2    +4 ns    wait 1s
//! ```
//!
//! Not here: how it came about (`play`), the packets (`sent`).

use crate::allocations::assert_installed;
use crate::sent::{Copied, Sent, Words, side_name};
use crate::step::Step;
use nf::Endpoint;
use runtime::stats::RuntimeStats;
use runtime::worker::FlowView;
use std::fmt::{self, Display};
use std::ops::RangeBounds;
use std::time::Duration;
use wire::FlowKey;

/// The fate of a packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fate {
    /// It left on the other side.
    Forwarded,
    /// It left, as an answer, where it came in.
    Answered,
    /// It was dropped, for a reason of the function's or one of the runtime's own (`not_ip`,
    /// `flows_full` and so on, see [`runtime::stats::DropReason`]).
    Dropped(&'static str),
    /// It was still there at the script's end: its call waits, or the function consumed it.
    Held,
}

impl Display for Fate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Fate::Forwarded => f.write_str("forwarded"),
            Fate::Answered => f.write_str("answered"),
            Fate::Dropped(reason) => write!(f, "dropped: {reason}"),
            Fate::Held => f.write_str("held"),
        }
    }
}

/// A step and its result.
pub(crate) struct Entry {
    /// From the script's beginning.
    pub at: Duration,
    pub came: Came,
    /// Packets that left for this step's packet, and packets that the function emitted during this
    /// step.
    pub sent: Vec<Sent>,
    pub fate: Option<Fate>,
    pub allocations: u64,
}

pub(crate) enum Came {
    Packet { packet: Copied, stamp: u64 },
    Waited(Duration),
}

/// The result of a script. Steps are numbered from 0, waits included.
pub struct Outcome {
    pub(crate) function: &'static str,
    pub(crate) entries: Vec<Entry>,
    /// As it stood when the script had ended.
    pub(crate) stats: RuntimeStats,
    pub(crate) flows: Vec<FlowView>,
    pub(crate) events: String,
}

impl Outcome {
    /// The fate of a step's packet.
    ///
    /// # Panics
    /// If there is no such step, or it is a wait.
    #[track_caller]
    pub fn fate(&self, step: usize) -> Fate {
        match self.entry(step).fate {
            Some(fate) => fate,
            None => panic!("step {step} is a wait: it has no fate\n{self}"),
        }
    }

    /// The fates of all packets, in the order of the steps; waits are passed over.
    pub fn fates(&self) -> Vec<Fate> {
        self.entries.iter().filter_map(|entry| entry.fate).collect()
    }

    /// Sees to it that the packets had these fates, in the order of the steps; waits are passed
    /// over.
    ///
    /// # Panics
    /// With the transcript, if one had another.
    #[track_caller]
    pub fn assert_fates(&self, expected: impl IntoIterator<Item = Fate>) {
        let expected: Vec<Fate> = expected.into_iter().collect();
        let packets = self
            .entries
            .iter()
            .enumerate()
            .filter_map(|(step, entry)| Some((step, entry.fate?)));
        let packets: Vec<(usize, Fate)> = packets.collect();
        for ((step, fate), expected) in packets.iter().zip(&expected) {
            if fate != expected {
                panic!(
                    "the packet of step {step} was to be {expected}, but it was {fate}:\n{}",
                    self.marked(*step)
                );
            }
        }
        if packets.len() != expected.len() {
            panic!(
                "the script has {} packets, but {} fates are given:\n{self}",
                packets.len(),
                expected.len()
            );
        }
    }

    /// Packets that left for a step's packet, and packets that the function emitted during the
    /// step, in the order of leaving.
    #[track_caller]
    pub fn sent(&self, step: usize) -> &[Sent] {
        &self.entry(step).sent
    }

    /// The one packet that left of a step.
    ///
    /// # Panics
    /// With the transcript, if none or several left.
    #[track_caller]
    pub fn only_sent(&self, step: usize) -> &Sent {
        match self.sent(step) {
            [one] => one,
            all => panic!(
                "{} packets left of step {step}, not one:\n{}",
                all.len(),
                self.marked(step)
            ),
        }
    }

    /// A counter of the function's.
    ///
    /// # Panics
    /// If the function has none of this name.
    #[track_caller]
    pub fn counter(&self, name: &str) -> u64 {
        let counters = &self.stats.counters;
        match counters.iter().find(|counter| counter.name == name) {
            Some(counter) => counter.count,
            None => {
                let names: Vec<&str> = counters.iter().map(|counter| counter.name).collect();
                panic!(
                    "`{}` has no counter `{name}`; its COUNTERS are {names:?}",
                    self.function
                )
            }
        }
    }

    /// How many packets were dropped for a reason, the function's or the runtime's.
    pub fn dropped(&self, reason: &str) -> u64 {
        self.stats
            .dropped
            .iter()
            .filter(|drops| drops.name == reason)
            .map(|drops| drops.count)
            .sum()
    }

    /// The state of the flow to which a packet like this one belongs, as it stood at the script's
    /// end.
    ///
    /// # Panics
    /// If there is none, with those there are.
    #[track_caller]
    pub fn flow(&self, step: &Step) -> FlowFields {
        match self.find_flow(step) {
            Some(fields) => fields,
            None => {
                let flows: Vec<String> = self.flows.iter().map(|flow| flow.key.to_string()).collect();
                panic!("there is no such flow at the end; there are {flows:?}\n{self}")
            }
        }
    }

    /// As [`Outcome::flow`], `None` where there is no such flow.
    ///
    /// # Panics
    /// If the step is none of `tcp(…)`, `udp(…)` and `ping(…)`.
    #[track_caller]
    pub fn find_flow(&self, step: &Step) -> Option<FlowFields> {
        let Some((source, destination, protocol, vlan)) = step.tuple() else {
            panic!("a flow is found by a packet of `tcp(…)`, `udp(…)` or `ping(…)`")
        };
        let (key, _) = FlowKey::new(source, destination, protocol, vlan);
        let second = |flow: &FlowView| {
            let of = |(source, destination): (Endpoint, Endpoint)| {
                FlowKey::new(source, destination, protocol, vlan).0
            };
            flow.translated.map(of)
        };
        let flow = self
            .flows
            .iter()
            .find(|flow| flow.key == key || second(flow) == Some(key))?;
        let fields = flow
            .state
            .first()
            .map(|(_, fields)| fields.clone())
            .unwrap_or_default();
        Some(FlowFields {
            key: flow.key,
            fields,
        })
    }

    /// How many flows there were at the script's end.
    pub fn flows(&self) -> usize {
        self.flows.len()
    }

    /// The event log, a JSON object per line: the flows' ends after the script's are in it too.
    pub fn events(&self) -> &str {
        &self.events
    }

    /// How often the runtime and the function allocated memory in these steps.
    ///
    /// # Panics
    /// If [`crate::CountingAllocator`] is not the test's global allocator.
    #[track_caller]
    pub fn allocations(&self, steps: impl RangeBounds<usize>) -> u64 {
        assert_installed();
        let within = self
            .entries
            .iter()
            .enumerate()
            .filter(|(step, _)| steps.contains(step));
        within.map(|(_, entry)| entry.allocations).sum()
    }

    #[track_caller]
    fn entry(&self, step: usize) -> &Entry {
        match self.entries.get(step) {
            Some(entry) => entry,
            None => panic!(
                "there is no step {step}: the script has {}\n{self}",
                self.entries.len()
            ),
        }
    }

    /// The transcript with a mark at a step.
    pub(crate) fn marked(&self, step: usize) -> impl Display + '_ {
        Transcript {
            entries: &self.entries,
            marked: Some(step),
        }
    }
}

impl Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Transcript {
            entries: &self.entries,
            marked: None,
        }
        .fmt(f)
    }
}

impl fmt::Debug for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Display::fmt(self, f)
    }
}

/// The steps as a table.
pub(crate) struct Transcript<'a> {
    pub entries: &'a [Entry],
    pub marked: Option<usize>,
}

/// Steps shown before a marked one, and behind it: a script may have thousands.
const AROUND: usize = 20;

impl Display for Transcript<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let around = self.marked.unwrap_or(0);
        let first = around.saturating_sub(AROUND);
        let shown = self.entries.iter().enumerate().skip(first).take(2 * AROUND + 1);
        if first > 0 {
            writeln!(f, "  ({first} steps before)")?;
        }
        let mut behind = self.entries.len() - first;
        for (step, entry) in shown {
            behind -= 1;
            let mark = if self.marked == Some(step) { ">" } else { " " };
            write!(f, "{mark} {step:>4}  {:<12} ", format!("+{:?}", entry.at))?;
            match &entry.came {
                Came::Waited(time) => writeln!(f, "wait {time:?}")?,
                Came::Packet { packet, .. } => {
                    let words = Words(packet).to_string();
                    let fate = entry.fate.map(|fate| fate.to_string()).unwrap_or_default();
                    writeln!(f, "{} {words:<60} {fate}", side_name(packet.side()))?;
                }
            }
            for sent in &entry.sent {
                let how = if sent.emitted { "emitted to" } else { "left to" };
                writeln!(f, "{:>20} {how} {sent}", "")?;
            }
        }
        if behind > 0 {
            writeln!(f, "  ({behind} steps more)")?;
        }
        Ok(())
    }
}

/// A flow's state, field by field, each as its `Debug` shows it.
#[derive(Clone, Debug)]
pub struct FlowFields {
    key: FlowKey,
    fields: Vec<(&'static str, String)>,
}

impl FlowFields {
    /// A field as its `Debug` shows it.
    ///
    /// # Panics
    /// If the state has no field of this name.
    #[track_caller]
    pub fn field(&self, name: &str) -> &str {
        match self.fields.iter().find(|(field, _)| *field == name) {
            Some((_, value)) => value,
            None => {
                let names: Vec<&str> = self.fields.iter().map(|(field, _)| *field).collect();
                panic!(
                    "the state of {} has no field `{name}`; it has {names:?}",
                    self.key
                )
            }
        }
    }
}
