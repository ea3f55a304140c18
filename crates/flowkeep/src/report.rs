//! Figures and flows in the form in which they are handed out: JSON in base units, tables for
//! people.
//!
//! Each type here is an object that `--json` prints and that goes over the control socket; its
//! `Display` is the table. The names of the fields are stable: other people's scripts read them.

mod copies;
mod costs;
mod flows;
mod links;
pub(crate) mod objects;
mod standing;
mod values;
mod variables;
mod whole;

use crate::apply::joined::InForce;
use crate::apply::trial::{TrialStatus, WentBack};
use crate::cluster::Snapshot;
use crate::health::stats::BackendStatus;
use crate::shape::Shape;
use crate::store::stats::{StoreStatus, VariablesStatus};
pub use copies::Recovery;
pub use costs::CostStatus;
pub(crate) use flows::cut_table;
pub use flows::{Ends, Flow, FlowCopy, FlowList};
pub use links::LinkStatus;
pub use objects::ObjectsStatus;
use runtime::stats::Named;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
pub use standing::Standing;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::time::Duration;
pub use whole::MemberReport;

/// The balance of all packets: `in + made = out + held + passing + dropped`; `passing` is 0 at the
/// end. Of one of several processes, packets from others are beside `in`, and packets to them
/// beside `out`.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, Default, PartialEq, Eq)]
pub struct Packets {
    /// Came in at ports.
    pub r#in: u64,
    /// Made by functions.
    pub made: u64,
    /// Left by ports.
    pub out: u64,
    /// Came from other processes.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub from_others: u64,
    /// Went to other processes.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub to_others: u64,
    /// Kept by functions, waiting calls and fragments.
    pub held: u64,
    /// Between two workers, as far as figures of slightly different moments tell.
    pub passing: u64,
    /// In two of the other figures, since those are of slightly different moments; 0 at the end.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub recounted: u64,
    /// Dropped, by `function/reason`, or only the reason where Flowkeep itself dropped.
    pub dropped: BTreeMap<String, u64>,
}

fn is_zero(count: &u64) -> bool {
    *count == 0
}

fn is_nothing(share: &f64) -> bool {
    *share == 0.0
}

/// Flows of the cluster.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, Default, PartialEq, Eq)]
pub struct Flows {
    /// Now.
    pub active: u64,
    /// The most there may be.
    pub max: u64,
    /// Begun since the start.
    pub opened: u64,
    /// Gone on here since the start, when their runtime had failed. A runtime that is killed in its
    /// process ends its flows there: so in one process opened and recovered are active and ended.
    pub recovered: u64,
    /// Over since the start.
    pub ended: u64,
}

/// One runtime.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, Default, PartialEq)]
pub struct RuntimeStatus {
    /// Its number.
    pub runtime: u16,
    /// Asked over the cluster: the member that has it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub member: Option<String>,
    /// Whether it takes flows.
    #[serde(default)]
    pub standing: Standing,
    /// Packets it received.
    pub received: u64,
    /// Packets it passed on.
    pub passed: u64,
    /// Seconds in steps that had something to do, since its start.
    #[serde(default, skip_serializing_if = "is_nothing")]
    pub busy_seconds: f64,
    /// Packets it dropped.
    pub dropped: u64,
    /// Flows begun since the start.
    #[serde(default)]
    pub opened: u64,
    /// Flows now.
    pub flows: u64,
    /// The most flows.
    #[serde(default)]
    pub flows_max: u64,
    /// Groups of flows now.
    pub groups: u64,
    /// Calls that wait now.
    pub waiting: u64,
    /// Drained: it is sent no new flows, and takes none from other runtimes.
    #[serde(default)]
    pub leaving: bool,
    /// It is sent no new flows, since no block of external ports is free there, own or borrowed, and
    /// other runtimes have some.
    #[serde(default)]
    pub dry: bool,
    /// The runtime is not there: it was removed, or has yet to be added.
    #[serde(default)]
    pub absent: bool,
    /// The runtime that has a copy of each of its flows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub protected_by: Option<u16>,
    /// Packets that left without a copy of their flow's state, since no runtime could keep one.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub unprotected_packets: u64,
    /// Flows of which another runtime keeps copies.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub protected_flows: u64,
    /// Seconds until all flows had copies, since the replica was chosen or a policy changed;
    /// without, as long as some lack one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub protection_seconds: Option<f64>,
    /// The last recoveries of other runtimes' flows here, the oldest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub recoveries: Vec<Recovery>,
    /// Copies of other runtimes' flows that it keeps.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub copies: u64,
    /// Copies of these that would find no room here if their primaries failed.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub copies_without_room: u64,
    /// Flows of failed runtimes that go on here.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub recovered_flows: u64,
    /// Flows of failed runtimes that could not go on here.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub unrecovered_flows: u64,
    /// Flows that came from other runtimes and were over, since their bytes were no state of their
    /// functions or the runtime did not expect them.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub refused_flows: u64,
    /// Messages of other workers that were refused: not allowed to their sender, or without room.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub refused_words: u64,
    /// The cost of its functions' calls, of packets that were sampled.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub costs: Vec<CostStatus>,
}

/// One switch.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, Default, PartialEq, Eq)]
pub struct SwitchStatus {
    /// Its number.
    pub switch: u16,
    /// Asked over the cluster: the member that has it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub member: Option<String>,
    /// Messages of other workers that were refused: not allowed to their sender, or without room.
    pub refused_words: u64,
}

/// One port.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, Default, PartialEq, Eq)]
pub struct PortStatus {
    /// Its name.
    pub name: String,
    /// Asked over the cluster: the member that has it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub member: Option<String>,
    /// Packets received.
    pub received_packets: u64,
    /// Bytes received.
    pub received_bytes: u64,
    /// Packets sent.
    pub sent_packets: u64,
    /// Bytes sent.
    pub sent_bytes: u64,
    /// Frames that were no packets, and packets that could not be sent.
    pub failed_packets: u64,
    /// Frames that the kernel lost before the port could have them.
    #[serde(default)]
    pub lost_packets: u64,
    /// Requests for claimed addresses that the port answered by itself.
    #[serde(default)]
    pub answered_packets: u64,
}

/// The work and the state of a cluster.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, Default, PartialEq)]
pub struct Status {
    /// How long it runs.
    pub uptime_seconds: f64,
    /// The number of the configuration in force, from 1.
    #[serde(default)]
    pub generation: u64,
    /// Of a member with a coordinator: which of the cluster's configurations it has in force.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub configuration: Option<InForce>,
    /// Where all packets are.
    pub packets: Packets,
    /// Its flows.
    pub flows: Flows,
    /// Each runtime.
    pub runtimes: Vec<RuntimeStatus>,
    /// Each switch.
    #[serde(default)]
    pub switches: Vec<SwitchStatus>,
    /// Each port.
    pub ports: Vec<PortStatus>,
    /// The functions' own counters, by `function/counter`.
    pub counters: BTreeMap<String, u64>,
    /// Of a cluster of several processes: which member this is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub member: Option<String>,
    /// The other members, of which nothing is in these figures.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub others: Vec<OtherStatus>,
    /// Workers that have not answered, like `runtime 1`: these figures lack them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unanswered: Vec<String>,
    /// Asked over the cluster: each member.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub members: Vec<MemberReport>,
    /// Each link to another process.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub links: Vec<LinkStatus>,
    /// Each store of variables.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub stores: Vec<StoreStatus>,
    /// Each function's variables in them, on each runtime.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub variables: Vec<VariablesStatus>,
    /// Each kind of functions' shared objects, on each runtime.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub objects: Vec<ObjectsStatus>,
    /// Each server that this process checks.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub backends: Vec<BackendStatus>,
    /// The configuration that goes back unless it is confirmed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trial: Option<TrialStatus>,
    /// The last configuration that went back by itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub went_back: Option<WentBack>,
}

impl Shape for Status {
    const NAME: &'static str = "status";
}

/// Another member of a cluster of several processes.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, Default, PartialEq, Eq)]
pub struct OtherStatus {
    /// Its name.
    pub member: String,
    /// Its host, as the configuration calls it.
    pub host: String,
    /// Its control socket there.
    pub socket: String,
}

impl From<&Snapshot> for Status {
    fn from(snapshot: &Snapshot) -> Self {
        let packets = snapshot.packets();
        let sum = |of: fn(&runtime::stats::RuntimeStats) -> u64| snapshot.runtimes.iter().map(of).sum();
        let mut counters = BTreeMap::new();
        for Named {
            function,
            name,
            count,
        } in snapshot.runtimes.iter().flat_map(|runtime| &runtime.counters)
        {
            *counters.entry(joined(function, name)).or_default() += count;
        }
        Status {
            uptime_seconds: snapshot.uptime.as_secs_f64(),
            generation: snapshot
                .runtimes
                .iter()
                .map(|runtime| runtime.generation)
                .max()
                .unwrap_or(0),
            configuration: snapshot.configuration.clone(),
            packets: Packets {
                r#in: packets.received,
                made: packets.made,
                out: packets.sent,
                from_others: packets.others[0],
                to_others: packets.others[1],
                held: packets.held,
                passing: packets.passing,
                recounted: packets.recounted,
                dropped: packets
                    .dropped
                    .into_iter()
                    .map(|((function, reason), count)| (joined(&function, reason), count))
                    .collect(),
            },
            flows: Flows {
                active: sum(|runtime| runtime.flows),
                max: sum(|runtime| runtime.flows_max),
                opened: sum(|runtime| runtime.flows_opened),
                recovered: sum(|runtime| runtime.recovered[0]),
                ended: sum(|runtime| runtime.flows_ended),
            },
            runtimes: snapshot
                .runtimes
                .iter()
                .enumerate()
                .map(|(number, runtime)| RuntimeStatus {
                    runtime: snapshot.runtime_number(number),
                    member: None,
                    standing: Standing::of(
                        runtime,
                        snapshot.absent.contains(&snapshot.runtime_number(number)),
                    ),
                    received: runtime.received,
                    passed: runtime.passed,
                    busy_seconds: Duration::from_nanos(runtime.busy).as_secs_f64(),
                    dropped: runtime.dropped.iter().map(|named| named.count).sum(),
                    opened: runtime.flows_opened,
                    flows: runtime.flows,
                    flows_max: runtime.flows_max,
                    groups: runtime.groups,
                    waiting: runtime.waiting,
                    leaving: runtime.leaving,
                    dry: runtime.dry,
                    absent: snapshot.absent.contains(&snapshot.runtime_number(number)),
                    refused_flows: runtime.flows_refused,
                    refused_words: runtime.words_refused,
                    protected_by: runtime.protected_by,
                    protected_flows: runtime.protected_flows,
                    protection_seconds: (runtime.protection_took > 0)
                        .then(|| Duration::from_nanos(runtime.protection_took).as_secs_f64()),
                    recoveries: runtime.recoveries.iter().map(Recovery::from).collect(),
                    unprotected_packets: runtime.unprotected,
                    copies: runtime.copies,
                    copies_without_room: runtime.copies_without_room(),
                    recovered_flows: runtime.recovered[0],
                    unrecovered_flows: runtime.recovered[1],
                    costs: runtime.costs.iter().map(CostStatus::from).collect(),
                })
                .collect(),
            switches: snapshot
                .switches
                .iter()
                .enumerate()
                .map(|(place, switch)| SwitchStatus {
                    switch: snapshot.switch_number(place),
                    member: None,
                    refused_words: switch.words_refused,
                })
                .collect(),
            ports: snapshot
                .ports
                .iter()
                .map(|port| PortStatus {
                    name: port.name.clone(),
                    member: None,
                    received_packets: port.counters.received_packets,
                    received_bytes: port.counters.received_bytes,
                    sent_packets: port.counters.sent_packets,
                    sent_bytes: port.counters.sent_bytes,
                    failed_packets: port.counters.refused_packets + port.counters.unsent_packets,
                    lost_packets: port.counters.lost_packets,
                    answered_packets: port.counters.answered_packets,
                })
                .collect(),
            counters,
            member: snapshot.member.clone(),
            others: snapshot
                .others
                .iter()
                .map(|other| OtherStatus {
                    member: other.name.clone(),
                    host: other.host.clone(),
                    socket: other.socket.display().to_string(),
                })
                .collect(),
            members: Vec::new(),
            links: snapshot.links.iter().map(LinkStatus::from).collect(),
            stores: snapshot.stores.clone(),
            variables: snapshot.variables.clone(),
            objects: objects::of(snapshot),
            backends: snapshot.backends.clone(),
            trial: snapshot.trial.clone(),
            went_back: snapshot.went_back.clone(),
            unanswered: snapshot.unanswered.clone(),
        }
    }
}

/// `function/name`, or only the name.
fn joined(function: &str, name: &str) -> String {
    if function.is_empty() {
        name.to_owned()
    } else {
        format!("{function}/{name}")
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let dropped: u64 = self.packets.dropped.values().sum();
        let came = self.packets.r#in + self.packets.from_others + self.packets.made;
        // As many as the rows add up to.
        let total = came + self.packets.recounted;
        write!(
            f,
            "up {}",
            human_time(Duration::from_secs_f64(self.uptime_seconds.max(0.0)))
        )?;
        if let Some(member) = &self.member {
            write!(f, ", member {member} alone")?;
        }
        if self.generation > 0 {
            write!(f, ", generation {}", self.generation)?;
        }
        if let Some(of) = &self.configuration {
            write!(f, ", configuration {}", whole::shown(of))?;
        }
        writeln!(f)?;
        if let Some(trial) = &self.trial {
            writeln!(f, "{trial}")?;
        }
        if !self.unanswered.is_empty() {
            writeln!(
                f,
                "no answer from {}: nothing of them is in these figures",
                self.unanswered.join(", ")
            )?;
        }
        if let Some(went) = &self.went_back {
            writeln!(f, "{went}")?;
        }
        writeln!(f)?;
        self.write_members(f)?;
        let mut table = Table::new(&["Packets", ">Count", ">Share"]);
        let mut row =
            |name: &str, count: u64| table.row([name.to_owned(), grouped(count), share(count, total)]);
        row("in", self.packets.r#in);
        if self.packets.from_others > 0 {
            row("from other processes", self.packets.from_others);
        }
        if self.packets.made > 0 {
            row("made by functions", self.packets.made);
        }
        row("out", self.packets.out);
        if self.packets.to_others > 0 {
            row("to other processes", self.packets.to_others);
        }
        row("held", self.packets.held);
        if self.packets.passing > 0 {
            row("passing", self.packets.passing);
        }
        if self.packets.recounted > 0 {
            row("recounted", self.packets.recounted);
        }
        row("dropped", dropped);
        for (reason, count) in &self.packets.dropped {
            row(&format!("  {reason}"), *count);
        }
        writeln!(f, "{table}")?;
        let mut table = Table::new(&["Flows", ">Count"]);
        table.row(["active".into(), grouped(self.flows.active)]);
        table.row(["max".into(), grouped(self.flows.max)]);
        table.row(["opened".into(), grouped(self.flows.opened)]);
        if self.flows.recovered > 0 {
            table.row(["recovered".into(), grouped(self.flows.recovered)]);
        }
        table.row(["ended".into(), grouped(self.flows.ended)]);
        writeln!(f, "{table}")?;
        let mut table = Table::new(&[
            ">Runtime",
            "Member",
            ">Received",
            ">Passed",
            ">Dropped",
            ">Flows",
            ">Groups",
            ">Waiting",
        ]);
        for runtime in &self.runtimes {
            table.row([
                runtime.runtime.to_string(),
                runtime.member.clone().unwrap_or_default(),
                grouped(runtime.received),
                grouped(runtime.passed),
                grouped(runtime.dropped),
                grouped(runtime.flows),
                grouped(runtime.groups),
                grouped(runtime.waiting),
            ]);
        }
        if self.members.is_empty() {
            table.without("Member");
        }
        write!(f, "{table}")?;
        for runtime in self.runtimes.iter().filter(|runtime| runtime.dry) {
            writeln!(
                f,
                "runtime {} is dry: no block of external ports is free there, and new groups go to \
                 runtimes that have some",
                runtime.runtime
            )?;
        }
        self.write_copies(f)?;
        for runtime in &self.runtimes {
            let who = format!("runtime {}", runtime.runtime);
            refused(f, &who, "flows", "of other runtimes", runtime.refused_flows)?;
            refused(f, &who, "words", "of other workers", runtime.refused_words)?;
        }
        for switch in &self.switches {
            let who = format!("switch {}", switch.switch);
            refused(f, &who, "words", "of other workers", switch.refused_words)?;
        }
        if !self.ports.is_empty() {
            let mut table = Table::new(&["Port", ">Received", ">", ">Sent", ">", ">Failed", ">Lost"]);
            for port in &self.ports {
                table.row([
                    port.name.clone(),
                    grouped(port.received_packets),
                    human_size(port.received_bytes),
                    grouped(port.sent_packets),
                    human_size(port.sent_bytes),
                    grouped(port.failed_packets),
                    grouped(port.lost_packets),
                ]);
            }
            write!(f, "\n{table}")?;
        }
        if !self.links.is_empty() {
            let mut table = Table::new(&["Link", "", "", ">Received", ">Sent", ">Lost", ">Refused"]);
            for link in &self.links {
                table.row([
                    format!("{} – {} of {}", link.from, link.to, link.member),
                    link.kind.clone(),
                    if link.is_there { "there" } else { "not met" }.to_owned(),
                    grouped(link.received_packets),
                    grouped(link.sent_packets),
                    grouped(link.lost_packets),
                    grouped(link.refused.values().sum()),
                ]);
            }
            write!(f, "\n{table}")?;
            let mut said = BTreeSet::new();
            for link in self.links.iter().filter(|link| !link.why.is_empty()) {
                if said.insert((&link.member, &link.why)) {
                    writeln!(f, "member {} is not met: {}", link.member, link.why)?;
                }
            }
            for link in &self.links {
                for (reason, count) in &link.refused {
                    writeln!(
                        f,
                        "{} – {}: refused {} ({reason})",
                        link.from,
                        link.to,
                        grouped(*count)
                    )?;
                }
            }
        }
        if !self.others.is_empty() {
            let mut table = Table::new(&["Other member", "Host", "Asked by"]);
            for other in &self.others {
                table.row([
                    other.member.clone(),
                    other.host.clone(),
                    format!("--socket {}", other.socket),
                ]);
            }
            write!(f, "\n{table}")?;
        }
        if let Some(table) = variables::table(&self.variables) {
            write!(f, "\n{table}")?;
        }
        if let Some(table) = objects::table(&self.objects) {
            write!(f, "\n{table}")?;
        }
        self.write_backends(f)?;
        for problem in self.stores.iter().filter_map(|store| store.problem.as_ref()) {
            writeln!(f, "{problem}")?;
        }
        for side in self.stores.iter().flat_map(|store| &store.mirrored) {
            if side.behind > 0 {
                let (store, behind) = (&side.store, side.behind);
                let waiting = grouped(side.waiting_bytes);
                writeln!(
                    f,
                    "store {store} is behind its mirror with {behind} partitions, {waiting} bytes wait"
                )?;
            }
            if let Some(problem) = &side.problem {
                writeln!(f, "{problem}")?;
            }
        }
        if let Some(table) = costs::table(&self.runtimes) {
            write!(f, "\n{table}")?;
        }
        let counted: Vec<(&String, &u64)> = self.counters.iter().filter(|(_, count)| **count > 0).collect();
        if !counted.is_empty() {
            let mut table = Table::new(&["Counter", ">Count"]);
            for (name, count) in counted {
                table.row([name.clone(), grouped(*count)]);
            }
            write!(f, "\n{table}")?;
        }
        Ok(())
    }
}

impl Status {
    fn write_backends(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.backends.is_empty() {
            return Ok(());
        }
        let mut table = Table::new(&["Server", "Checked at", "State", ">For", ""]);
        for one in &self.backends {
            table.row([
                format!("{}/{}", one.service, one.backend),
                one.endpoint.clone(),
                one.state().to_owned(),
                human_time(Duration::from_secs_f64(one.seconds.max(0.0))),
                one.why.clone(),
            ]);
        }
        write!(f, "\n{table}")
    }
}

/// A line for refusals, of which a healthy cluster has none.
fn refused(f: &mut fmt::Formatter<'_>, who: &str, what: &str, whose: &str, count: u64) -> fmt::Result {
    match count {
        0 => Ok(()),
        _ => writeln!(f, "{who}: refused {what} {whose}: {}", grouped(count)),
    }
}

/// Columns as wide as their widest entry. A heading that begins with `>` has its column set to the
/// right.
#[derive(Debug)]
pub(crate) struct Table {
    right: Vec<bool>,
    rows: Vec<Vec<String>>,
}

impl Table {
    pub fn new(headings: &[&str]) -> Self {
        Table {
            right: headings.iter().map(|heading| heading.starts_with('>')).collect(),
            rows: vec![
                headings
                    .iter()
                    .map(|heading| heading.trim_start_matches('>').to_owned())
                    .collect(),
            ],
        }
    }

    /// Leaves a column out.
    fn without(&mut self, heading: &str) {
        let place = self
            .rows
            .first()
            .and_then(|headings| headings.iter().position(|of| of == heading));
        if let Some(place) = place {
            self.right.remove(place);
            self.rows.iter_mut().for_each(|row| drop(row.remove(place)));
        }
    }

    pub fn row<const N: usize>(&mut self, row: [String; N]) {
        self.rows.push(row.into());
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let widths: Vec<usize> = (0..self.right.len())
            .map(|column| {
                self.rows
                    .iter()
                    .map(|row| row[column].chars().count())
                    .max()
                    .unwrap_or(0)
            })
            .collect();
        for row in &self.rows {
            let mut line = String::new();
            for ((entry, width), right) in row.iter().zip(&widths).zip(&self.right) {
                let padding = " ".repeat(width - entry.chars().count());
                let (before, after) = if *right {
                    (padding.as_str(), "")
                } else {
                    ("", padding.as_str())
                };
                line.push_str(&format!("{before}{entry}{after}  "));
            }
            writeln!(f, "{}", line.trim_end())?;
        }
        Ok(())
    }
}

/// `1234567` as `1,234,567`.
pub fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

fn share(part: u64, whole: u64) -> String {
    if whole == 0 {
        "-".to_owned()
    } else {
        format!("{:.1}%", 100.0 * part as f64 / whole as f64)
    }
}

/// A time in its two largest units: `2h4m`, `61.5s`, `3ms`.
pub fn human_time(time: Duration) -> String {
    let seconds = time.as_secs();
    match seconds {
        86_400.. => format!("{}d{}h", seconds / 86_400, seconds % 86_400 / 3600),
        3600.. => format!("{}h{}m", seconds / 3600, seconds % 3600 / 60),
        60.. => format!("{}m{}s", seconds / 60, seconds % 60),
        1.. => format!("{:.1}s", time.as_secs_f64()),
        0 => format!("{}ms", time.as_millis()),
    }
}

/// A size in the unit that leaves up to four digits: `1.5 MB`.
pub fn human_size(bytes: u64) -> String {
    const UNITS: [&str; 6] = ["kB", "MB", "GB", "TB", "PB", "EB"];
    if bytes < 1000 {
        return format!("{bytes} B");
    }
    let mut value = bytes as f64 / 1000.0;
    let mut unit = 0;
    while value >= 999.95 && unit + 1 < UNITS.len() {
        value /= 1000.0;
        unit += 1;
    }
    format!("{value:.1} {}", UNITS[unit])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::{LinkStats, fake};
    use crate::config::layout::WorkerId;

    #[test]
    fn a_status_as_a_table() {
        let status = Status::from(&fake::snapshot());
        assert_eq!(
            status.to_string(),
            "\
up 1m1s

Packets            Count   Share
in                   100  100.0%
out                   89   89.0%
held                   1    1.0%
dropped               10   10.0%
  firewall/denied      7    7.0%
  not_ip               3    3.0%

Flows   Count
active      4
max     2,000
opened      6
ended       2

Runtime  Received  Passed  Dropped  Flows  Groups  Waiting
      0        50      45        4      2       0        0
      1        47      44        3      2       0        0

Port     Received          Sent          Failed  Lost
lan \"1\"       100  6.4 kB    89  5.7 kB       0     0

Counter       Count
nat/mappings      4
"
        );
    }

    #[test]
    fn copies_that_find_no_room_are_told() {
        let mut snapshot = fake::snapshot();
        let full = &mut snapshot.runtimes[1];
        (full.flows_max, full.flows, full.copies) = (1000, 700, 300);
        assert!(!Status::from(&snapshot).to_string().contains("no room"));
        snapshot.runtimes[1].copies = 340;
        let status = Status::from(&snapshot);
        assert_eq!(status.runtimes[1].copies_without_room, 40);
        let said = "runtime 1 has no room for 40 of its copies";
        assert!(status.to_string().contains(said), "{status}");
    }

    #[test]
    fn a_dry_runtime_is_told() {
        let mut snapshot = fake::snapshot();
        assert!(!Status::from(&snapshot).to_string().contains("dry"));
        snapshot.runtimes[1].dry = true;
        let status = Status::from(&snapshot);
        let said = "runtime 1 is dry: no block of external ports is free there";
        assert!(status.to_string().contains(said), "{status}");
        let json = serde_json::to_value(&status).unwrap();
        assert_eq!(
            (&json["runtimes"][0]["dry"], &json["runtimes"][1]["dry"]),
            (&false.into(), &true.into())
        );
    }

    #[test]
    fn what_others_said_and_may_not_is_told() {
        let mut snapshot = fake::snapshot();
        let status = Status::from(&snapshot);
        assert!(!status.to_string().contains("words"), "{status}");
        (
            snapshot.runtimes[1].flows_refused,
            snapshot.runtimes[1].words_refused,
        ) = (3, 1_200);
        snapshot.switches[0].words_refused = 5;
        snapshot.links = vec![LinkStats {
            from: WorkerId::Switch(0),
            to: WorkerId::Runtime(1),
            kind: "channel",
            session: 7,
            counters: Default::default(),
            refused: [("tag", 4)].into(),
            repeated: 9,
            meetings: 2,
            member: "b".into(),
            differs: Default::default(),
            functions: Default::default(),
            not_met_for: None,
        }];
        let status = Status::from(&snapshot);
        let text = status.to_string();
        for line in [
            "runtime 1: refused flows of other runtimes: 3\n",
            "runtime 1: refused words of other workers: 1,200\n",
            "switch 0: refused words of other workers: 5\n",
            "switch 0 – runtime 1: refused 4 (tag)\n",
        ] {
            assert!(text.contains(line), "{line} is not in\n{text}");
        }
        // A frame that comes again since an acknowledgement was late is not refused.
        assert!(
            !text.contains("duplicate") && !text.contains("refused 9"),
            "{text}"
        );
        let json = serde_json::to_value(&status).unwrap();
        assert_eq!(json["runtimes"][1]["refused_words"], 1200);
        assert_eq!(json["runtimes"][1]["refused_flows"], 3);
        assert_eq!(json["switches"][0]["refused_words"], 5);
        assert_eq!(json["links"][0]["repeated_frames"], 9);
        assert_eq!(json["links"][0]["meetings"], 2);
        assert_eq!(serde_json::from_value::<Status>(json).unwrap(), status);
    }

    #[test]
    fn a_status_as_json_has_base_units_and_reads_back() {
        let status = Status::from(&fake::snapshot());
        let json = serde_json::to_value(&status).unwrap();
        assert_eq!(json["packets"]["in"], 100);
        assert_eq!(json["packets"]["dropped"]["firewall/denied"], 7);
        assert_eq!(json["uptime_seconds"], 61.5);
        assert_eq!(serde_json::from_value::<Status>(json).unwrap(), status);
    }

    #[test]
    fn flows_as_a_table() {
        let list = FlowList {
            flows: fake::Fake::default().views.iter().map(Flow::from).collect(),
            ..FlowList::default()
        };
        assert_eq!(
            list.to_string(),
            "\
Proto  State        Source               Destination        Translated         Expires  Runtime  Chain
tcp    established  10.0.0.1:40000       192.0.2.1:443      -                     2h4m        0  default
tcp    established  10.0.0.2:40000       192.0.2.1:443      198.51.100.1:1024     2h4m        1  default
tcp    established  [2001:db8::1]:40000  [2001:db8::2]:443  -                     2h4m        1  default
"
        );
        assert_eq!(
            list.flows[1].to_string(),
            "\
tcp 10.0.0.2:40000 -> 192.0.2.1:443
  translated  198.51.100.1:1024 -> 192.0.2.1:443
  runtime     1
  chain       default
  expires in  2h4m
  firewall
    phase = established
    window = 512
  nat
"
        );
    }

    #[test]
    fn times_and_sizes() {
        let time = |ms| human_time(Duration::from_millis(ms));
        assert_eq!(
            [
                time(3),
                time(1500),
                time(61_000),
                time(7_440_000),
                time(90_000_000)
            ],
            ["3ms", "1.5s", "1m1s", "2h4m", "1d1h"]
        );
        assert_eq!(
            [
                human_size(999),
                human_size(1000),
                human_size(999_960),
                human_size(u64::MAX)
            ],
            ["999 B", "1.0 kB", "1.0 MB", "18.4 EB"]
        );
        assert_eq!(grouped(1_234_567), "1,234,567");
    }
}
