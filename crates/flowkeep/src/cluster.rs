//! The questions that the control thread may ask of a running cluster.
//!
//! The workers share nothing; the process that drives them answers for all of them. The control
//! socket, the metrics and the final report all take their figures from here, so that they cannot
//! differ.
//!
//! Every packet is accounted for: `in + made = out + held + passing + dropped`. *Made* are packets
//! that functions emitted, *held* those that functions, waiting calls and fragments keep, *passing*
//! those between two workers: the remainder of the equation, which is 0 in a cluster that has
//! stopped. The workers' figures are of slightly different moments, so while it runs *passing* is
//! off by the packets that passed in between, and may be negative.
//!
//! Not here: how the figures cross from the workers' threads ([`crate`]'s run), and how they are
//! shown ([`crate::report`]).

use crate::apply::Ask;
use crate::apply::joined as apply;
use crate::apply::report::Change;
use crate::apply::trial::{TrialStatus, WentBack};
use crate::capture::{Frame, Wanted};
use crate::config::ReplicationPolicy;
use crate::config::layout::WorkerId;
use crate::control::counted::Counts;
use crate::explain::{Explain, Explanation};
use crate::following::{self, FlowLine};
use crate::health::stats::BackendStatus;
use crate::moving::{Deletion, Killed, Leaving, Order, OrderPart, Receipt, Removal, UnderWay};
use crate::store::stats::{StoreStatus, VariablesStatus};
use crate::tables::Told;
use crate::trace::Step;
use protocols::channel::{AGREED, DropReason};
use runtime::PortCounters;
use runtime::stats::{Named, RuntimeStats, SwitchStats};
use runtime::worker::FlowView;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use wire::FlowKey;

/// A running cluster, seen from its control thread.
pub trait Cluster: Send + Sync {
    /// All figures, as they are now.
    fn snapshot(&self) -> Snapshot;

    /// Up to `limit` flows from `cursor` on, and where to go on; `None` behind the last. An error
    /// if a runtime does not answer: without its flows the list would look whole.
    fn flows(&self, cursor: Cursor, limit: usize) -> Result<(Vec<FlowView>, Option<Cursor>), String>;

    /// The flow that packets with this key belong to; either of its keys will do.
    fn flow(&self, key: &FlowKey) -> Option<FlowView>;

    /// Which way a packet that came in now would take; `None` where no switch is here.
    fn explain(&self, ask: &Explain) -> Option<Explanation> {
        let _ = ask;
        None
    }

    /// An operator's words to a function: each runtime's answer, and the last counts of gone
    /// runtimes.
    fn command(&self, function: &str, words: &[&str]) -> Result<Vec<Told>, String>;

    /// The counts of functions at this member's runtimes, also of ended ones.
    fn counted(&self) -> Counts {
        Counts::default()
    }

    /// Says what another configuration would do, or puts it in force ([`crate::apply`]).
    fn change(&self, ask: &Ask) -> Result<Change, String> {
        let _ = ask;
        Err("the configuration of this cluster cannot change while it runs".into())
    }

    /// This member's half of a change over all members ([`crate::apply::joined`]): its effects,
    /// held until it is decided.
    fn prepare_part(&self, part: &apply::PartRequest) -> Result<apply::Prepared, String> {
        let _ = part;
        Err("this process is no member with a coordinator".into())
    }

    /// The change that is held with this number for this command is not wanted.
    fn take_back_part(&self, number: u64, by: u64) {
        let _ = (number, by);
    }

    /// The result of a decision.
    fn part_done(&self, number: u64) -> Result<apply::PartDone, String> {
        let _ = number;
        Err("this process is no member with a coordinator".into())
    }

    /// The chains and functions in force, as text.
    fn chains(&self) -> Result<String, String> {
        Err("this process is no member with a coordinator".into())
    }

    /// The configuration on trial stays ([`crate::apply::trial`]); its number.
    fn confirm(&self) -> Result<u64, String> {
        Err("the configuration of this cluster cannot change while it runs".into())
    }

    /// Begins to move flows: the parts of the order, by which [`Cluster::receipt`] tells how it
    /// goes.
    fn order(&self, order: &Order) -> Result<Vec<OrderPart>, String> {
        let _ = order;
        Err("flows do not move here".into())
    }

    /// Ends the flows that an order names, as if they had expired; its targets mean nothing.
    fn delete(&self, order: &Order) -> Result<Deletion, String> {
        let _ = order;
        Err("flows are not deleted here".into())
    }

    /// The state of an order so far.
    fn receipt(&self, parts: &[OrderPart]) -> Result<Receipt, String> {
        let _ = parts;
        Ok(Receipt::empty())
    }

    /// The orders that are under way.
    fn orders(&self) -> Vec<UnderWay> {
        Vec::new()
    }

    /// Takes an order back: moves on their way end, other moves do not begin. Its parts, by which
    /// [`Cluster::receipt`] tells when that is so.
    fn cancel(&self, number: u32) -> Result<Vec<OrderPart>, String> {
        Err(format!("there is no order {number}"))
    }

    /// Has a runtime take no new flows, or take them again; parts of orders that are taken back
    /// with that.
    fn set_leaving(&self, runtime: u16, leaving: Leaving) -> Result<Vec<OrderPart>, String> {
        let _ = (runtime, leaving);
        Err("no runtime leaves here".into())
    }

    /// Starts a runtime while the others go on: that one, or the first that is not there. Answers
    /// which.
    fn add_runtime(&self, runtime: Option<u16>) -> Result<u16, String> {
        let _ = runtime;
        Err("runtimes neither come nor go here".into())
    }

    /// Ends a runtime that is drained, or tells what it waits for.
    fn remove_runtime(&self, runtime: u16) -> Result<Removal, String> {
        let _ = runtime;
        Err("runtimes neither come nor go here".into())
    }

    /// Has a runtime fail between two of its steps, where the others of its process go on; its
    /// figures.
    fn kill_runtime(&self, runtime: u16) -> Result<Killed, String> {
        let _ = runtime;
        Err("runtimes neither come nor go here".into())
    }

    /// Has the process end at once, as a failure does, with all its runtimes; this is one of them.
    fn fail(&self, runtime: u16) -> Result<(), String> {
        let _ = runtime;
        Err("this process is no member of a cluster".into())
    }

    /// How a chain's flows are copied from now on, at the runtimes of this process; `None`: as the
    /// configuration says.
    fn set_replication(&self, chain: &str, policy: Option<ReplicationPolicy>) -> Result<(), String> {
        let _ = (chain, policy);
        Err("no copies are kept here".into())
    }

    /// Which runtime keeps the copies of a runtime's flows, of this process; `None`: the one that
    /// the layout says.
    fn set_replica(&self, runtime: u16, replica: Option<u16>) -> Result<(), String> {
        let _ = (runtime, replica);
        Err("no copies are kept here".into())
    }

    /// Asks for the end: packets inside are finished, records are written. Returns at once.
    fn stop(&self);

    /// Begins to watch a flow or packets. It ends when the answer is dropped.
    fn watch(&self, subject: &Subject) -> Result<Box<dyn Watching>, String> {
        let _ = subject;
        Err("this cluster cannot be watched".into())
    }

    /// Writes a copy of a store that this process has into a new `redb:` file.
    fn copy_store(&self, store: &str, to: &Path) -> Result<(), String> {
        Err(format!(
            "there is no store {store} to be copied to {}",
            to.display()
        ))
    }

    /// The threads that step workers, and how much of a processor each has had.
    fn threads(&self) -> Vec<ThreadShare> {
        Vec::new()
    }
}

/// The subject of a watch.
#[derive(Clone, Debug)]
pub enum Subject {
    /// The steps of a flow's packets.
    Flow {
        /// Any of its keys; the flow need not be there.
        key: FlowKey,
        /// Packets, at most.
        packets: u32,
    },
    /// The same at one of several processes, which trace it together.
    FlowPart {
        /// Any of its keys.
        key: FlowKey,
        /// Packets, at most; members without ports mark none.
        packets: u32,
        /// The mark that its packets have at all members.
        slot: u8,
    },
    /// Packets at ports, or where they are dropped.
    Packets(Wanted),
    /// The lives of flows.
    Flows(following::Choice),
}

/// A cluster being watched, as long as this lives.
pub trait Watching: Send {
    /// The ports' names, by their numbers.
    fn ports(&self) -> Vec<String>;

    /// Everything that was seen since the last time.
    fn take(&mut self) -> Observed;
}

/// The observations of a watch.
#[derive(serde::Serialize, serde::Deserialize, Clone, Debug, Default, PartialEq)]
pub struct Observed {
    /// Of a trace: steps.
    pub steps: Vec<Step>,
    /// Steps that there was no room for.
    pub steps_lost: u64,
    /// Packets that may still be traced.
    pub left: Option<u32>,
    /// Of a capture: packets.
    pub frames: Vec<Frame>,
    /// By port: packets that were wanted and that there was no room for.
    pub lost: BTreeMap<u8, u64>,
    /// Of a follower of flows: their lives.
    #[serde(default)]
    pub flows: Vec<FlowLine>,
    /// Events of flows that there was no room for.
    #[serde(default)]
    pub flows_lost: u64,
    /// The cluster is ending: no more observations come.
    pub is_over: bool,
}

/// A thread of workers.
#[derive(serde::Serialize, serde::Deserialize, Clone, Debug, Default, PartialEq, Eq)]
pub struct ThreadShare {
    /// Its workers, like `switch 0`.
    pub workers: Vec<String>,
    /// Processor time it has had, in nanoseconds.
    pub cpu_ns: u64,
}

/// A place in the list of all flows: `RUNTIME:PLACE` in text and JSON.
#[derive(
    Clone, Copy, PartialEq, Eq, Debug, Default, serde::Serialize, serde::Deserialize, schemars::JsonSchema,
)]
#[serde(into = "String", try_from = "String")]
#[schemars(with = "String")]
pub struct Cursor {
    /// The runtime.
    pub runtime: u16,
    /// The actor in it.
    pub actor: u32,
}

impl std::fmt::Display for Cursor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}:{}", self.runtime, self.actor)
    }
}

impl From<Cursor> for String {
    fn from(cursor: Cursor) -> Self {
        cursor.to_string()
    }
}

impl TryFrom<String> for Cursor {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl std::str::FromStr for Cursor {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let parts = text.split_once(':');
        let cursor = parts.and_then(|(runtime, actor)| {
            Some(Cursor {
                runtime: runtime.parse().ok()?,
                actor: actor.parse().ok()?,
            })
        });
        cursor.ok_or_else(|| {
            format!("`{text}` is no place in the list; write what a list that was cut has named, like 0:4096")
        })
    }
}

/// A port's counters and its name.
#[derive(Clone, Debug, Default)]
pub struct PortStats {
    /// As configured.
    pub name: String,
    /// The switch whose port it is.
    pub switch: u16,
    /// Packets and bytes that passed.
    pub counters: PortCounters,
}

/// A link to a worker of another process.
#[derive(Clone, Debug)]
pub struct LinkStats {
    /// The worker of this process.
    pub from: WorkerId,
    /// The worker at the other end.
    pub to: WorkerId,
    /// The link's kind.
    pub kind: &'static str,
    /// The session of the worker at the other end; 0 while none is met.
    pub session: u64,
    /// Packets that passed.
    pub counters: PortCounters,
    /// The number of refused frames, by reason.
    pub refused: BTreeMap<&'static str, u64>,
    /// Frames that were sent again although the first of them had come.
    pub repeated: u64,
    /// How often the other end of a channel has been met: each time but the first, a session had
    /// ended.
    pub meetings: u64,
    /// The member at the other end.
    pub member: String,
    /// The bits that differ in the words which both members must have alike; 0 where they are
    /// equal.
    pub differs: [u64; AGREED],
    /// The functions of this one, in the order in which those words are on them.
    pub functions: Arc<[String]>,
    /// Why the last frame from the other end was refused, while there is no session.
    pub not_met_for: Option<DropReason>,
}

/// Another member of a cluster of several processes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OtherMember {
    /// Its name.
    pub name: String,
    /// Its host, as the configuration calls it.
    pub host: String,
    /// Its control socket there.
    pub socket: PathBuf,
}

/// All figures of a cluster at one time.
#[derive(Clone, Debug, Default)]
pub struct Snapshot {
    /// How long it runs, by the machine's clock.
    pub uptime: Duration,
    /// Of a member with a coordinator: which of the cluster's configurations is in force.
    pub configuration: Option<apply::InForce>,
    /// Each switch's figures.
    pub switches: Vec<SwitchStats>,
    /// Each runtime's figures.
    pub runtimes: Vec<RuntimeStats>,
    /// Each port's figures.
    pub ports: Vec<PortStats>,
    /// The switches' and the runtimes' numbers in the cluster, where they are not simply counted
    /// from 0.
    pub numbers: [Vec<u16>; 2],
    /// Runtimes that are not there: their figures are the last ones.
    pub absent: Vec<u16>,
    /// Workers that have not answered, and so are in no figure here.
    pub unanswered: Vec<String>,
    /// Each link to another process, of a cluster of several.
    pub links: Vec<LinkStats>,
    /// Of such a cluster: which member this is.
    pub member: Option<String>,
    /// And the others.
    pub others: Vec<OtherMember>,
    /// Each store of variables.
    pub stores: Vec<StoreStatus>,
    /// Each function's variables in them, on each runtime.
    pub variables: Vec<VariablesStatus>,
    /// Each server that is checked.
    pub backends: Vec<BackendStatus>,
    /// The configuration that is on trial.
    pub trial: Option<TrialStatus>,
    /// The last configuration that went back by itself.
    pub went_back: Option<WentBack>,
}

/// Where all packets are.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Packets {
    /// Came in at ports.
    pub received: u64,
    /// Made by functions.
    pub made: u64,
    /// Left by ports.
    pub sent: u64,
    /// Came from, and went to, workers of other processes.
    pub others: [u64; 2],
    /// Kept by functions, waiting calls and fragments.
    pub held: u64,
    /// Between two workers, as far as the figures tell; 0 of a cluster that has stopped.
    pub passing: u64,
    /// In two of the other figures, since those are of slightly different moments; 0 of a cluster
    /// that has stopped.
    pub recounted: u64,
    /// Dropped, by function (empty: Flowkeep itself) and reason.
    pub dropped: BTreeMap<(String, &'static str), u64>,
}

impl Packets {
    /// All drops.
    pub fn dropped_total(&self) -> u64 {
        self.dropped.values().sum()
    }

    /// Whether every packet is accounted for, and no packet is on its way: of a cluster that has
    /// stopped.
    pub fn add_up(&self) -> bool {
        (self.passing, self.recounted) == (0, 0)
    }
}

impl Snapshot {
    /// The number in the cluster of the switch at a place of the list.
    pub fn switch_number(&self, place: usize) -> u16 {
        self.numbers[0].get(place).copied().unwrap_or(place as u16)
    }

    /// The number in the cluster of the runtime at a place of the list.
    pub fn runtime_number(&self, place: usize) -> u16 {
        self.numbers[1].get(place).copied().unwrap_or(place as u16)
    }

    /// Whether all workers have answered, and no packet is held or on its way.
    pub fn is_empty(&self) -> bool {
        let packets = self.packets();
        self.unanswered.is_empty() && packets.held == 0 && packets.passing == 0
    }

    /// Where all packets are.
    pub fn packets(&self) -> Packets {
        let mut packets = Packets {
            received: self.switches.iter().map(|switch| switch.received).sum(),
            made: self.runtimes.iter().map(|runtime| runtime.emitted).sum(),
            sent: self.switches.iter().map(|switch| switch.sent).sum(),
            others: [
                self.links.iter().map(|link| link.counters.received_packets).sum(),
                self.links.iter().map(|link| link.counters.sent_packets).sum(),
            ],
            held: self.runtimes.iter().map(|runtime| runtime.held).sum::<u64>()
                + self.switches.iter().map(|switch| switch.held).sum::<u64>(),
            passing: 0,
            recounted: 0,
            dropped: BTreeMap::new(),
        };
        let drops = self.switches.iter().map(|switch| &switch.dropped);
        for Named {
            function,
            name,
            count,
        } in drops
            .chain(self.runtimes.iter().map(|runtime| &runtime.dropped))
            .flatten()
        {
            *packets.dropped.entry((function.clone(), name)).or_default() += count;
        }
        // Packets to workers that were not there any more.
        let lost: u64 = self.links.iter().map(|link| link.counters.unsent_packets).sum();
        if lost > 0 {
            packets.dropped.insert((String::new(), "link_over"), lost);
        }
        let [came, went] = packets.others;
        let accounted = packets.sent + went + packets.held + packets.dropped_total();
        let there = packets.received + came + packets.made;
        packets.passing = there.saturating_sub(accounted);
        packets.recounted = accounted.saturating_sub(there);
        packets
    }
}

#[cfg(test)]
pub(crate) mod fake {
    //! A cluster with made-up figures, for tests of their display.

    use super::*;
    use std::sync::Mutex;
    use wire::Endpoint;

    /// Two runtimes, three flows, and a record of the questions.
    #[derive(Debug)]
    pub struct Fake {
        pub views: Vec<FlowView>,
        pub asked: Mutex<Vec<String>>,
    }

    pub fn endpoint(text: &str) -> Endpoint {
        let address: std::net::SocketAddr = text.parse().unwrap();
        Endpoint::new(address.ip().into(), address.port())
    }

    pub fn view(runtime: u16, source: &str, destination: &str) -> FlowView {
        let (source, destination) = (endpoint(source), endpoint(destination));
        FlowView {
            runtime,
            key: FlowKey::new(source, destination, wire::protocol::TCP, 0).0,
            source,
            destination,
            is_from_outside: false,
            translated: None,
            chain: "default".into(),
            waiting: false,
            expires_in: 7_440_000_000_000,
            copy: None,
            state: vec![
                (
                    "firewall".into(),
                    vec![("phase", "Established".into()), ("window", "512".into())],
                ),
                ("nat".into(), vec![]),
            ],
        }
    }

    impl Default for Fake {
        fn default() -> Self {
            let mut translated = view(1, "10.0.0.2:40000", "192.0.2.1:443");
            translated.translated = Some((endpoint("198.51.100.1:1024"), endpoint("192.0.2.1:443")));
            Fake {
                views: vec![
                    view(0, "10.0.0.1:40000", "192.0.2.1:443"),
                    translated,
                    view(1, "[2001:db8::1]:40000", "[2001:db8::2]:443"),
                ],
                asked: Mutex::default(),
            }
        }
    }

    fn named(function: &str, name: &'static str, count: u64) -> Named {
        Named {
            function: function.into(),
            name,
            count,
        }
    }

    pub fn snapshot() -> Snapshot {
        let runtime = |received, drops: u64, held| RuntimeStats {
            received,
            held,
            passed: received - drops - held,
            dropped: vec![named("firewall", "denied", drops)],
            counters: vec![named("nat", "mappings", 2)],
            flows: 2,
            flows_max: 1000,
            flows_opened: 3,
            flows_ended: 1,
            ..RuntimeStats::default()
        };
        Snapshot {
            uptime: Duration::from_millis(61_500),
            switches: vec![SwitchStats {
                received: 100,
                sent: 89,
                dropped: vec![named("", "not_ip", 3)],
                groups: vec![2, 2],
                sent_to: vec![50, 47],
                ..SwitchStats::default()
            }],
            runtimes: vec![runtime(50, 4, 1), runtime(47, 3, 0)],
            ports: vec![PortStats {
                name: "lan \"1\"".into(),
                switch: 0,
                counters: PortCounters {
                    received_packets: 100,
                    received_bytes: 6400,
                    sent_packets: 89,
                    sent_bytes: 5696,
                    ..PortCounters::default()
                },
            }],
            ..Snapshot::default()
        }
    }

    impl Cluster for Fake {
        fn snapshot(&self) -> Snapshot {
            snapshot()
        }

        fn flows(&self, cursor: Cursor, limit: usize) -> Result<(Vec<FlowView>, Option<Cursor>), String> {
            let start = (cursor.actor as usize).min(self.views.len());
            let end = (start + limit).min(self.views.len());
            let next = (end < self.views.len()).then_some(Cursor {
                runtime: 0,
                actor: end as u32,
            });
            Ok((self.views[start..end].to_vec(), next))
        }

        fn flow(&self, key: &FlowKey) -> Option<FlowView> {
            self.views.iter().find(|view| view.key == *key).cloned()
        }

        fn command(&self, function: &str, words: &[&str]) -> Result<Vec<Told>, String> {
            self.asked
                .lock()
                .unwrap()
                .push(format!("{function} {}", words.join(" ")));
            match function {
                "load_balancer" => {
                    let said = || crate::tables::Said::Text("web1 up".into());
                    Ok([0, 1].map(|runtime| Told::there(runtime, said())).into())
                }
                _ => Err(format!("there is no function `{function}`")),
            }
        }

        fn stop(&self) {
            self.asked.lock().unwrap().push("stop".into());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_packet_is_accounted_for() {
        let packets = fake::snapshot().packets();
        assert_eq!(packets.dropped[&("firewall".into(), "denied")], 7);
        assert_eq!(packets.dropped_total(), 10);
        assert!(packets.add_up(), "{packets:?}");
        let mut lost = fake::snapshot();
        lost.switches[0].sent -= 1;
        assert!(!lost.packets().add_up());
    }
}
