//! The configuration: one TOML file.
//!
//! ```toml
//! runtimes = 2
//!
//! [[port]]
//! name = "lan"
//! side = "inside"
//! input = "pcap:in.pcap"
//!
//! [[port]]
//! name = "wan"
//! side = "outside"
//! output = "pcap:out.pcap"
//!
//! [function.nat]
//! pool = ["198.51.100.0/28"]
//!
//! [[chain]]
//! name = "web"
//! functions = ["firewall", "nat"]
//! match = { protocol = "tcp", destination_port = ["80", "8000-8100"] }
//! ```
//!
//! Reading goes in three steps, each of which finds all it can before it gives up:
//!
//! ```text
//! text ──parse──▶ tree with positions ──serde──▶ Config, and each function's own settings ──check──▶ Config
//!                 (document.rs)                  (this file; the function's crate)           (check.rs)
//! ```
//!
//! Whatever is wrong becomes a [`Problem`], which has file, line, the line's text, the value and
//! the remedy.
//!
//! Invariant: a [`Config`] that came out of [`read`] names only functions that exist, and its
//! chains can run.
//!
//! Not here: opening ports, making functions, threads ([`crate::run`](crate)).

pub mod chains;
pub mod check;
pub mod cluster;
pub mod document;
pub mod files;
pub mod layout;
pub mod page;
pub mod ports;
pub mod problem;
mod replication;
pub mod scaling;
pub mod schema;
pub mod store;
pub mod values;

#[cfg(test)]
mod tests;

use crate::registry::Registry;
pub use cluster::{Cluster, Member};
use document::Document;
pub use problem::Problem;
pub use replication::{Replication, ReplicationPolicy};
use runtime::chain::{ChainRule, Plan, PlanError};
use runtime::fused::Fused;
use runtime::stage::Factory;
use runtime::switch::SideRule;
pub use scaling::Scaling;
use schemars::JsonSchema;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::fmt;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
pub use values::{PortRange, Uri};
use wire::Prefix;

/// Everything an operator says.
#[derive(Deserialize, JsonSchema, Debug, PartialEq)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// Workers that run flows, 1 to 64. Default 1.
    #[schemars(range(min = 1, max = 64), example = 2)]
    #[serde(deserialize_with = "values::from_1_to_64")]
    pub runtimes: u16,
    /// How many runtimes there may be, with those that `flowkeep runtime add` starts while it runs,
    /// 1 to 64; not fewer than `runtimes`. Runtimes beyond `runtimes` borrow ports of address
    /// translation from the others. With members: with runtimes of members that are not listed,
    /// which join while the others run; not fewer than the members have. Default: 8 more than there
    /// are from the start, and 64 at most; with `threads = 1`, as many as `runtimes`.
    #[schemars(range(min = 1, max = 64), example = 4)]
    #[serde(deserialize_with = "values::workers")]
    pub runtimes_max: Option<u16>,
    /// Workers that spread flows over the runtimes, 1 to 64. Default 1.
    #[schemars(range(min = 1, max = 64), example = 1)]
    #[serde(deserialize_with = "values::from_1_to_64")]
    pub switches: u16,
    /// `"auto"`: a thread per worker, as far as there are processors. `1`: everything takes turns
    /// on one thread, and equal input gives equal output. Default `"auto"`.
    #[schemars(example = &"auto")]
    pub threads: Threads,
    /// How threads wait for packets of live ports. `"spin"`: look again and again; shortest delay,
    /// a whole processor each. `"nap"`: after a while, sleep a tenth of a millisecond between
    /// looks. `"block"`: after a while longer, sleep until there is something. Default `"block"`.
    #[schemars(example = &"block")]
    pub idle: Idle,
    /// The time of functions and timers. `"capture"`: the packets' own timestamps. `"machine"`:
    /// this machine's clock. Default `"auto"`: the capture's if every input is a capture, otherwise
    /// the machine's.
    #[schemars(example = &"auto")]
    pub clock: Clock,
    /// The most flows of each runtime; the packet that would open one more is a counted drop. With
    /// firewall and NAT each takes some 0.6 KiB at the start; but for captures, used or not.
    /// Default 131,072.
    #[schemars(range(min = 1, max = 268435456), example = 1_000_000)]
    #[serde(deserialize_with = "values::flows")]
    pub flows_max: u32,
    /// The most packets of each runtime whose function waits for something. Default 4096.
    #[schemars(range(min = 1, max = 268435456), example = 4096)]
    #[serde(deserialize_with = "values::flows")]
    pub waiting_max: u32,
    /// The most packets of each runtime that functions hold with their flows, copies among them:
    /// the IDS and the HTTP parser hold TCP segments that come before their turn. Each takes a
    /// buffer of 2 KiB. Default 1024.
    #[schemars(range(min = 1, max = 65536), example = 1024)]
    #[serde(deserialize_with = "values::held")]
    pub held_max: u32,
    /// How a switch picks the runtime of new flows. Default `"least_loaded"` (NFVactor V-A).
    #[schemars(example = &"least_loaded")]
    pub policy: Policy,
    /// Source addresses that are inside, for ports whose side is `"by-address"`. A packet from one
    /// inside address to another stays inside: it is not translated, and leaves by the inside port.
    /// Default: the private addresses of RFC 1918 and RFC 4193.
    #[schemars(with = "Vec<String>", example = ["10.0.0.0/8"])]
    #[serde(deserialize_with = "values::prefixes")]
    pub inside: Vec<Prefix>,
    /// Where packets come from and go to.
    pub port: Vec<Port>,
    /// Which functions a flow passes: of the chains that match its first packet, the most specific
    /// one; of equals the first.
    pub chain: Vec<Chain>,
    /// The cluster's processes, if it has several; workers are numbered in their order.
    pub member: Vec<Member>,
    /// The settings that the members share.
    pub cluster: Cluster,
    /// Bounds on moves between runtimes at a time.
    pub migration: Migration,
    /// Whether flows go on when their runtime fails.
    pub replication: Replication,
    /// Runtimes come and go by load. Without this table no runtime comes or goes by itself.
    pub scaling: Option<Scaling>,
    /// The user, by name or number, that the process becomes once its ports are open; if it is
    /// started as root. Default: it stays root, with the few capabilities that it needs.
    #[schemars(example = &"flowkeep")]
    #[serde(deserialize_with = "values::name_if_any")]
    pub user: Option<String>,
    /// How this tool asks a running cluster.
    pub control: Control,
    /// Figures for Prometheus.
    pub metrics: Metrics,
    /// Where functions' variables are kept.
    pub store: store::Store,
    /// The logs that Flowkeep writes while it runs.
    pub log: Log,
    /// Each function's own settings, by the name that chains use. Read from the tables
    /// `[function.NAME]`; a function that a chain names and that has no table has the defaults.
    #[serde(skip)]
    #[schemars(skip)]
    pub functions: BTreeMap<String, Function>,
    /// The chains that the tool has in one piece.
    #[serde(skip)]
    #[schemars(skip)]
    pub fused: Vec<Fused>,
}

impl Default for Config {
    fn default() -> Self {
        Config {
            runtimes: 1,
            runtimes_max: None,
            switches: 1,
            threads: Threads::Auto,
            idle: Idle::Block,
            clock: Clock::Auto,
            flows_max: 131_072,
            waiting_max: 4096,
            held_max: 1024,
            policy: Policy::LeastLoaded,
            inside: values::private_addresses(),
            port: Vec::new(),
            chain: Vec::new(),
            member: Vec::new(),
            cluster: Cluster::default(),
            migration: Migration::default(),
            replication: Replication::default(),
            scaling: None,
            user: None,
            control: Control::default(),
            metrics: Metrics::default(),
            store: store::Store::default(),
            log: Log::default(),
            functions: BTreeMap::new(),
            fused: Vec::new(),
        }
    }
}

/// How many threads there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Threads {
    /// One per worker, as far as there are processors.
    Auto,
    /// One thread for all workers.
    One,
}

/// How a thread without work waits.
#[derive(Deserialize, JsonSchema, Clone, Copy, Debug, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
pub enum Idle {
    /// Looks again and again.
    Spin,
    /// Sleeps a little between looks.
    Nap,
    /// Sleeps until a port or another thread has something.
    Block,
}

/// The source of the time.
#[derive(Deserialize, JsonSchema, Clone, Copy, Debug, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
pub enum Clock {
    /// The capture's where all inputs are captures, otherwise the machine's.
    Auto,
    /// The packets' own timestamps.
    Capture,
    /// This machine's.
    Machine,
}

/// How a switch picks the runtime of a new group of flows.
#[derive(Deserialize, JsonSchema, Clone, Copy, Debug, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
pub enum Policy {
    /// The one with the least to do, by packets and processor time; where nothing is known of that,
    /// by flows.
    LeastLoaded,
    /// The runtimes in turn.
    RoundRobin,
    /// By consistent hashing (Maglev, NSDI 2016).
    Maglev,
}

/// A port.
#[derive(Deserialize, JsonSchema, Clone, Debug, PartialEq)]
#[serde(deny_unknown_fields)]
pub struct Port {
    /// Its name in messages and figures.
    #[schemars(example = &"lan")]
    #[serde(deserialize_with = "values::name")]
    pub name: String,
    /// Where packets come from.
    #[serde(default, deserialize_with = "values::input")]
    #[schemars(with = "Option<String>", example = &"pcap:in.pcap")]
    pub input: Option<Uri>,
    /// Where packets go.
    #[serde(default, deserialize_with = "values::output")]
    #[schemars(with = "Option<String>", example = &"pcap:out.pcap")]
    pub output: Option<Uri>,
    /// On which side its packets come in. Default `"by-address"`.
    #[serde(default)]
    #[schemars(example = &"inside")]
    pub side: Side,
    /// Which member has it, where several have switches.
    #[serde(default)]
    #[schemars(example = &"front")]
    pub member: Option<String>,
}

/// Where a port is.
#[derive(Deserialize, JsonSchema, Clone, Copy, Debug, PartialEq, Eq, Default)]
#[serde(rename_all = "kebab-case")]
pub enum Side {
    /// All packets that come in are from inside.
    Inside,
    /// All packets that come in are from outside.
    Outside,
    /// Each packet by its source: inside if one of the prefixes of `inside` has it. For captures of
    /// both directions.
    #[default]
    ByAddress,
}

/// Functions that flows pass one after the other, and which flows.
#[derive(Deserialize, JsonSchema, Clone, Debug, PartialEq)]
#[serde(deny_unknown_fields)]
pub struct Chain {
    /// Its name in messages and figures.
    #[schemars(example = &"default")]
    #[serde(deserialize_with = "values::name")]
    pub name: String,
    /// The functions, in the order in which a flow's opening direction passes them; replies go
    /// backward. 1 to 16.
    #[schemars(length(min = 1, max = 16), example = ["firewall", "nat"])]
    pub functions: Vec<String>,
    /// Which flows, by their first packet. Without it, all flows that no other chain matches.
    #[serde(default, rename = "match")]
    pub matches: Option<Match>,
    /// How its flows are copied, if not by `replication.policy`.
    #[schemars(example = &"commit")]
    pub replication: Option<ReplicationPolicy>,
}

/// The properties that a flow's first packet must have. All given settings must hold; of a list,
/// one is enough. Of several chains that match, the chain that fixes more bits of addresses, ports,
/// protocol and side takes the flow: the longest prefix, where that is all in which they differ.
#[derive(Deserialize, JsonSchema, Clone, Debug, PartialEq, Default)]
#[serde(deny_unknown_fields, default)]
pub struct Match {
    /// IP protocol: a name (`tcp`, `udp`, `icmp`, `icmpv6`, `sctp`, `gre`, `esp`) or a number.
    #[schemars(with = "Option<values::Named>", example = &"tcp")]
    #[serde(deserialize_with = "values::protocol")]
    pub protocol: Option<u8>,
    /// The side from which the flow is opened.
    #[schemars(example = &"inside")]
    pub side: Option<FromSide>,
    /// Prefixes of the source address.
    #[schemars(with = "values::OneOrMany<String>", example = ["10.0.0.0/8"])]
    #[serde(deserialize_with = "values::some_prefixes")]
    pub source: Vec<Prefix>,
    /// Prefixes of the destination address.
    #[schemars(with = "values::OneOrMany<String>", example = ["192.0.2.0/24"])]
    #[serde(deserialize_with = "values::some_prefixes")]
    pub destination: Vec<Prefix>,
    /// Source ports or ranges of them.
    #[schemars(with = "values::OneOrMany<values::Named>", example = ["1024-65535"])]
    #[serde(deserialize_with = "values::port_ranges")]
    pub source_port: Vec<PortRange>,
    /// Destination ports or ranges of them.
    #[schemars(with = "values::OneOrMany<values::Named>", example = ["80", "8000-8100"])]
    #[serde(deserialize_with = "values::port_ranges")]
    pub destination_port: Vec<PortRange>,
}

/// A side, as a match names it.
#[derive(Deserialize, JsonSchema, Clone, Copy, Debug, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
pub enum FromSide {
    /// From inside.
    Inside,
    /// From outside.
    Outside,
}

/// Bounds on groups of flows that move from one runtime to another (NFVactor V-B). Groups that are
/// on their way together pause together: lower bounds make pauses shorter and the whole longer.
#[derive(Deserialize, JsonSchema, Clone, Copy, Debug, PartialEq)]
#[serde(deny_unknown_fields, default)]
pub struct Migration {
    /// The most groups on their way from a runtime at once, 1 to 256. Default 256.
    #[schemars(range(min = 1, max = 256), example = 64)]
    #[serde(deserialize_with = "values::moves")]
    pub moves_max: u32,
    /// The flows of groups on their way from a runtime after which no other group begins to move.
    /// Default 256.
    #[schemars(range(min = 1, max = 268435456), example = 1024)]
    #[serde(deserialize_with = "values::flows")]
    pub moved_flows_max: u32,
    /// The most packets that a runtime keeps for groups that are on their way; beyond is a counted
    /// drop (`moving_full`). Default 4096.
    #[schemars(range(min = 1, max = 268435456), example = 8192)]
    #[serde(deserialize_with = "values::flows")]
    pub kept_max: u32,
    /// After how long a group that has not arrived is called back, from `"10ms"` to `"1h"`. Default
    /// `"1s"`, with members `"4s"`: a switch of another host that is gone is missed after three
    /// seconds.
    #[schemars(with = "Option<String>", example = &"2s")]
    #[serde(deserialize_with = "values::move_timeout")]
    pub move_timeout: Option<nf::Period>,
}

impl Default for Migration {
    fn default() -> Self {
        let alone = runtime::Settings::alone(1);
        Migration {
            moves_max: alone.moves_max,
            moved_flows_max: alone.moved_flows_max,
            kept_max: alone.kept_max,
            move_timeout: None,
        }
    }
}

/// The control socket.
#[derive(Deserialize, JsonSchema, Clone, Debug, PartialEq, Default)]
#[serde(deny_unknown_fields, default)]
pub struct Control {
    /// Path of the socket; only the user that runs Flowkeep may use it. Default: `flowkeep.sock` in
    /// the directory that the environment variable `XDG_RUNTIME_DIR` names, or
    /// `flowkeep-UID/flowkeep.sock` in the directory for temporary files.
    #[schemars(example = &"/run/flowkeep.sock")]
    #[serde(deserialize_with = "values::socket")]
    pub socket: Option<PathBuf>,
}

/// The address for Prometheus.
#[derive(Deserialize, JsonSchema, Clone, Debug, PartialEq, Default)]
#[serde(deny_unknown_fields, default)]
pub struct Metrics {
    /// Address and port on which to answer `GET /metrics`. Default: nowhere.
    #[schemars(with = "Option<String>", example = &"127.0.0.1:9464")]
    #[serde(deserialize_with = "values::address")]
    pub listen: Option<SocketAddr>,
}

/// The logs.
#[derive(Deserialize, JsonSchema, Clone, Debug, PartialEq)]
#[serde(deny_unknown_fields, default)]
pub struct Log {
    /// File for events of functions (flow records, mappings), a JSON object a line; `"-"` is
    /// standard output. Lines are appended, and the file is opened again by its name on SIGUSR1.
    /// Default: nowhere.
    #[schemars(example = &"events.jsonl")]
    #[serde(deserialize_with = "values::file")]
    pub events: Option<String>,
    /// A file that would grow beyond this by one write (whole lines, up to 64 KiB and one line) is
    /// renamed: `events.jsonl` to `events.jsonl.1`, that to `events.jsonl.2`, and so on. Default:
    /// it grows.
    #[schemars(example = &"64 MiB")]
    #[serde(deserialize_with = "values::some_size")]
    pub max_size: Option<nf::ByteSize>,
    /// A file whose first line is so old is renamed likewise. Default: no file is too old.
    #[schemars(example = &"24h")]
    #[serde(deserialize_with = "values::some_time")]
    pub max_age: Option<nf::Period>,
    /// How many renamed files are kept, besides the current one. Default 4.
    pub keep: u32,
    /// Address and port of a syslog collector: each line is sent there over UDP, too (RFC 5424).
    /// Default: nowhere.
    #[schemars(with = "Option<String>", example = &"192.0.2.9:514")]
    #[serde(deserialize_with = "values::syslog")]
    pub syslog: Option<SocketAddr>,
    /// Address and port of an IPFIX collector: NAT's log is sent there over UDP, too (RFC 8158).
    /// Default: nowhere.
    #[schemars(with = "Option<String>", example = &"192.0.2.9:4739")]
    #[serde(deserialize_with = "values::ipfix")]
    pub ipfix: Option<SocketAddr>,
}

impl Default for Log {
    fn default() -> Self {
        Log {
            events: None,
            max_size: None,
            max_age: None,
            keep: 4,
            syslog: None,
            ipfix: None,
        }
    }
}

/// A function as configured.
pub struct Function {
    /// Which registered function it is.
    pub kind: &'static str,
    /// The function with its settings; it makes the instances.
    pub factory: Box<dyn Factory>,
}

impl fmt::Debug for Function {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Function({})", self.kind)
    }
}

impl PartialEq for Function {
    /// Settings are each function's own business; only the kind is compared.
    fn eq(&self, other: &Self) -> bool {
        self.kind == other.kind
    }
}

/// The most runtimes of a cluster.
const RUNTIMES_MAX: u16 = 64;

impl Config {
    /// How many runtimes there may be.
    pub fn most_runtimes(&self) -> u16 {
        let room = match (self.member.is_empty(), self.threads) {
            // Equal input shall give equal output.
            (true, Threads::One) => self.runtimes,
            _ => (self.runtimes + cluster::ROOM).min(RUNTIMES_MAX),
        };
        self.runtimes_max.unwrap_or(room).max(self.runtimes)
    }

    /// How many runtimes the configuration counts on. Room for those beyond is made when they come.
    pub fn planned_runtimes(&self) -> u16 {
        match self.member.is_empty() {
            true => self.runtimes_max.unwrap_or(0).max(self.runtimes),
            false => self.most_runtimes(),
        }
    }

    /// Whether runtimes keep copies of each other's flows.
    pub fn keeps_copies(&self) -> bool {
        use ReplicationPolicy::{Commit, Snapshot};
        self.policies().any(|policy| matches!(policy, Snapshot | Commit))
    }

    /// Whether flows of some chain are in a data store.
    pub fn keeps_stored(&self) -> bool {
        self.policies().any(ReplicationPolicy::is_stored)
    }

    /// The policy of each chain's copies.
    fn policies(&self) -> impl Iterator<Item = ReplicationPolicy> {
        let own = self.chain.iter().map(|chain| chain.replication);
        own.map(|own| own.unwrap_or(self.replication.policy))
    }

    /// How flows are kept in a store, if they are.
    pub fn storing(&self) -> Option<runtime::replication::Storing> {
        let (_, consistency) = self.store.of(runtime::replication::STORED_AS)?;
        self.keeps_stored().then_some(runtime::replication::Storing {
            interval: consistency.interval_ns(),
            lazy: self.replication.lazy_interval.duration().as_nanos() as u64,
            bound: consistency.bound_ns(),
        })
    }

    /// The chains as the runtime knows them.
    pub fn rules(&self) -> Vec<ChainRule> {
        let rule = |chain: &Chain| ChainRule {
            name: chain.name.clone(),
            matching: chain.matches.as_ref().map(Match::rule).unwrap_or_default(),
            functions: chain.functions.clone(),
            replication: chain.replication.map(Into::into),
        };
        self.chain.iter().map(rule).collect()
    }

    /// The same without the functions, which cannot be copied.
    #[must_use]
    pub fn without_functions(&self) -> Config {
        Config {
            runtimes: self.runtimes,
            runtimes_max: self.runtimes_max,
            switches: self.switches,
            threads: self.threads,
            idle: self.idle,
            clock: self.clock,
            flows_max: self.flows_max,
            waiting_max: self.waiting_max,
            held_max: self.held_max,
            policy: self.policy,
            inside: self.inside.clone(),
            port: self.port.clone(),
            chain: self.chain.clone(),
            member: self.member.clone(),
            cluster: self.cluster.clone(),
            migration: self.migration,
            replication: self.replication,
            scaling: self.scaling,
            user: self.user.clone(),
            control: self.control.clone(),
            metrics: self.metrics.clone(),
            store: self.store.clone(),
            log: self.log.clone(),
            functions: BTreeMap::new(),
            fused: self.fused.clone(),
        }
    }

    /// Takes the functions out, for the runtime's plan.
    pub fn take_factories(&mut self) -> Vec<Box<dyn Factory>> {
        let functions = std::mem::take(&mut self.functions);
        functions.into_values().map(|function| function.factory).collect()
    }

    /// The functions that chains have, by name.
    pub fn used(&self) -> impl Iterator<Item = (&str, &Function)> {
        let is_used = |name: &String| self.chain.iter().any(|chain| chain.functions.contains(name));
        let used = self.functions.iter().filter(move |(name, _)| is_used(name));
        used.map(|(name, function)| (name.as_str(), function))
    }

    /// The runtime's plan: all chains, and these functions.
    pub fn plan(&self, factories: Vec<Box<dyn Factory>>) -> Result<Plan, PlanError> {
        Ok(Plan::new(self.rules(), factories)?.fusing(&self.fused))
    }

    /// How the switch tells the side of packets that come in by a port.
    pub fn side_rule(&self, port: &Port) -> SideRule {
        match port.side {
            Side::Inside => SideRule::Fixed(nf::Side::Inside),
            Side::Outside => SideRule::Fixed(nf::Side::Outside),
            Side::ByAddress => SideRule::BySource(self.inside.clone()),
        }
    }
}

fn ranges(ports: &[PortRange]) -> Vec<std::ops::RangeInclusive<u16>> {
    ports.iter().map(|range| range.first..=range.last).collect()
}

impl Match {
    fn rule(&self) -> runtime::chain::Match {
        runtime::chain::Match {
            protocol: self.protocol,
            side: self.side.map(|side| match side {
                FromSide::Inside => nf::Side::Inside,
                FromSide::Outside => nf::Side::Outside,
            }),
            source: self.source.clone(),
            destination: self.destination.clone(),
            source_port: ranges(&self.source_port),
            destination_port: ranges(&self.destination_port),
        }
    }
}

impl From<Policy> for runtime::switch::Policy {
    fn from(policy: Policy) -> Self {
        match policy {
            Policy::LeastLoaded => Self::LeastLoaded,
            Policy::RoundRobin => Self::RoundRobin,
            Policy::Maglev => Self::Maglev,
        }
    }
}

/// Reads a configuration file.
pub fn read(path: &Path, registry: &Registry) -> Result<Config, Vec<Problem>> {
    match std::fs::read_to_string(path) {
        Ok(text) => parse(&path.display().to_string(), &text, registry),
        Err(error) => Err(vec![Problem::unreadable(path, &error)]),
    }
}

/// Reads a configuration file; answers its settings as a tree, too, and its text.
pub fn read_tree(path: &Path, registry: &Registry) -> Result<(Config, toml::Table, String), Vec<Problem>> {
    let text = std::fs::read_to_string(path).map_err(|error| vec![Problem::unreadable(path, &error)])?;
    let (config, tree) = read_text(&path.display().to_string(), &text, registry)?;
    Ok((config, tree, text))
}

/// The same of a text; `file` is the name for messages.
pub fn read_text(file: &str, text: &str, registry: &Registry) -> Result<(Config, toml::Table), Vec<Problem>> {
    let config = parse(file, text, registry)?;
    let mut tree: toml::Table = text
        .parse()
        .map_err(|error: toml::de::Error| vec![Problem::of_file(file).saying("", error.message(), "")])?;
    name_files(&mut tree, registry);
    hide_passwords(&mut tree);
    Ok((config, tree))
}

/// Replaces the URIs of stores by their public parts, and a word on the rest.
fn hide_passwords(tree: &mut toml::Table) {
    use std::hash::{DefaultHasher, Hash, Hasher};
    for (name, value) in tree
        .get_mut("store")
        .and_then(toml::Value::as_table_mut)
        .into_iter()
        .flatten()
    {
        match value {
            toml::Value::String(uri) if name == "uri" || name == "mirror" => {
                let shown = stores::without_secret(uri);
                if shown != *uri {
                    let mut hasher = DefaultHasher::new();
                    uri.hash(&mut hasher);
                    *uri = format!("{shown} ({:08x})", hasher.finish() as u32);
                }
            }
            toml::Value::Table(functions) if name == "function" => {
                for own in functions.iter_mut().filter_map(|(_, own)| own.as_table_mut()) {
                    let mut tree = toml::Table::new();
                    tree.insert("store".to_owned(), toml::Value::Table(std::mem::take(own)));
                    hide_passwords(&mut tree);
                    if let Some(toml::Value::Table(hidden)) = tree.remove("store") {
                        *own = hidden;
                    }
                }
            }
            _ => {}
        }
    }
}

/// Puts a word on a file's content beside its name in each setting, so that it counts when
/// configurations are compared.
fn name_files(tree: &mut toml::Table, registry: &Registry) {
    use std::hash::{DefaultHasher, Hash, Hasher};
    let Some(toml::Value::Table(functions)) = tree.get_mut("function") else {
        return;
    };
    for (name, table) in functions.iter_mut() {
        let toml::Value::Table(table) = table else {
            continue;
        };
        let kind = table.get("kind").and_then(|kind| kind.as_str()).unwrap_or(name);
        let Some(entry) = registry.entry(kind) else {
            continue;
        };
        for file in entry.files {
            if let Some(toml::Value::String(path)) = table.get_mut(*file)
                && let Ok(text) = std::fs::read_to_string(&*path)
            {
                let mut hasher = DefaultHasher::new();
                text.hash(&mut hasher);
                *path = format!(
                    "{path} ({} lines, {:08x})",
                    text.lines().count(),
                    hasher.finish() as u32
                );
            }
        }
    }
}

/// A problem at a setting of a text that has been read before.
pub fn point(file: &str, text: &str, registry: &Registry, at: &str, problem: &str, remedy: &str) -> Problem {
    let said = Document::parse(file, text, registry)
        .ok()
        .and_then(|mut document| {
            document.problem_at(at, problem, remedy);
            document.problems.pop()
        });
    said.unwrap_or_else(|| Problem::of_file(file).saying(at, problem, remedy))
}

/// Reads a configuration from text; `file` is the name for messages.
pub fn parse(file: &str, text: &str, registry: &Registry) -> Result<Config, Vec<Problem>> {
    let mut document = Document::parse(file, text, registry)?;
    let tables = document.take_functions();
    let mut config: Option<Config> = document.read_rest();
    let functions = document.read_functions(tables);
    if let Some(config) = &mut config {
        config.functions = functions;
        config.fused = registry.fused().to_vec();
        check::check(config, registry, &mut document);
    }
    match config {
        Some(config) if document.problems.is_empty() => Ok(config),
        _ => Err(document.problems_in_order()),
    }
}
