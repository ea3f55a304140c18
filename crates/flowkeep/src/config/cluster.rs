//! A cluster of several processes: its members, the keys of their links.
//!
//! ```toml
//! [cluster]
//! name = "edge"
//! keys = ["edge.key"]
//!
//! [[member]]
//! name = "front"
//! switches = 1
//!
//! [[member]]
//! name = "left"
//! runtimes = 1
//! ```
//!
//! All members read the same file. Workers are numbered in the order of the members, so every
//! process knows all numbers ([`layout`](super::layout)). Members of one host share memory, those
//! of different ones speak over Geneve in UDP ([decision
//! 13](../../../../docs/decisions/0013-links-between-processes.md)). `flowkeep run` has all members
//! in one process.
//!
//! Not here: the keys themselves, which only a member's process reads ([`crate::run`](crate)).

use super::document::Document;
use super::problem::write_instead;
use super::{Config, values};
use crate::member::socket_of;
use schemars::JsonSchema;
use serde::Deserialize;
use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;

/// The settings that the processes of a cluster share.
#[derive(Deserialize, JsonSchema, Clone, Debug, PartialEq, Default)]
#[serde(deny_unknown_fields, default)]
pub struct Cluster {
    /// Its name: letters, digits, `-` and `_`. Two clusters on one machine need two. Default
    /// `"flowkeep"`.
    #[schemars(example = &"edge")]
    pub name: Option<String>,
    /// Files with the keys of the links between hosts, 1 to 4: in each a number, 1 to 255, and 64
    /// hexadecimal digits, as `openssl rand -hex 32` prints them. Frames are sent with the first,
    /// and accepted with all.
    #[schemars(length(max = 4), example = ["edge.key"])]
    #[serde(deserialize_with = "values::files")]
    pub keys: Vec<String>,
    /// A file in the form of `keys`, from which the seed of all hashes is derived; it must not
    /// change while any member runs. Default: the first of `keys`.
    #[schemars(example = &"edge.key")]
    #[serde(deserialize_with = "values::file")]
    pub seed: Option<String>,
    /// `"keys"`: frames between hosts have a tag that needs the key. `"damage-only"`: a tag that
    /// any sender can make, for a wire that no stranger is on. Default `"keys"`.
    #[schemars(example = &"keys")]
    pub protection: Protection,
    /// UDP port of the links between hosts, the same on all of them. Default 6081, Geneve's.
    #[schemars(example = 6081)]
    pub port: Option<u16>,
    /// The longest frame that passes between processes, in bytes. Default: 3840 if all ports are
    /// network interfaces, otherwise 65535.
    #[schemars(range(min = 1514, max = 65535), example = 9018)]
    #[serde(deserialize_with = "values::frame")]
    pub frame_max: Option<u16>,
    /// Directory of the data that a member must keep from start to start. Default: `flowkeep/NAME`
    /// in `/var/lib` for root, otherwise in the directory that the environment variable
    /// `XDG_STATE_HOME` names, or in `~/.local/state`.
    #[schemars(example = &"/var/lib/flowkeep/edge")]
    #[serde(deserialize_with = "values::path")]
    pub directory: Option<PathBuf>,
}

/// How frames between hosts are protected.
#[derive(Deserialize, JsonSchema, Clone, Copy, Debug, PartialEq, Eq, Default)]
#[serde(rename_all = "kebab-case")]
pub enum Protection {
    /// By keys.
    #[default]
    Keys,
    /// Against damage only: any sender can make the tag.
    DamageOnly,
}

/// A process of the cluster.
#[derive(Deserialize, JsonSchema, Clone, Debug, PartialEq)]
#[serde(deny_unknown_fields)]
pub struct Member {
    /// Its name, by which `flowkeep node` and `flowkeep switch` are told which member they are.
    #[schemars(example = &"left")]
    pub name: String,
    /// Its switches, 1 to 64, if it has ports.
    #[serde(default, deserialize_with = "values::workers")]
    #[schemars(range(min = 1, max = 64), example = 1)]
    pub switches: Option<u16>,
    /// Its runtimes, 1 to 64, if it has no ports.
    #[serde(default, deserialize_with = "values::workers")]
    #[schemars(range(min = 1, max = 64), example = 1)]
    pub runtimes: Option<u16>,
    /// Where it runs: members with the same word share memory. Default `"here"`.
    #[serde(default = "values::here", deserialize_with = "values::name")]
    #[schemars(example = &"rack1")]
    pub host: String,
    /// Hosts of one rack fail together: runtimes keep copies of their flows in another rack, if
    /// they may choose. Default: the host.
    #[serde(default, deserialize_with = "values::name_if_any")]
    #[schemars(example = &"row2")]
    pub rack: Option<String>,
    /// The host's address, for links to members of other hosts. Needed if there are any.
    #[serde(default, deserialize_with = "values::ip_address")]
    #[schemars(with = "Option<String>", example = &"10.0.0.1")]
    pub address: Option<IpAddr>,
    /// The host's interface on a network segment, with `link_address`: links to members of other
    /// hosts that have both, too, are then on Ethernet (EtherType 0x88b5) instead of UDP.
    #[serde(default, deserialize_with = "values::name_if_any")]
    #[schemars(example = &"eth1")]
    pub interface: Option<String>,
    /// The link address of `interface`.
    #[serde(default, deserialize_with = "values::link_address")]
    #[schemars(with = "Option<String>", example = &"52:54:00:12:34:56")]
    pub link_address: Option<[u8; 6]>,
    /// Its control socket, in place of `[control] socket`. Default: `flowkeep-NAME.sock` in the
    /// directory of that setting's default.
    #[serde(default, deserialize_with = "values::socket")]
    #[schemars(example = &"/run/flowkeep-left.sock")]
    pub socket: Option<PathBuf>,
    /// Where it answers Prometheus, in place of `[metrics] listen`. Default: nowhere.
    #[serde(default, deserialize_with = "values::address")]
    #[schemars(with = "Option<String>", example = &"127.0.0.1:9465")]
    pub metrics: Option<SocketAddr>,
    /// File for events of its functions, in place of `[log] events`. Default: nowhere.
    #[serde(default, deserialize_with = "values::file")]
    #[schemars(example = &"left.jsonl")]
    pub events: Option<String>,
    /// Of a member that is not listed: the number of its first runtime, which the coordinator has
    /// given.
    #[serde(skip)]
    pub first: Option<u16>,
}

impl Member {
    /// Its interface for links on Ethernet and that one's address, if it has such.
    pub fn segment(&self) -> Option<(&str, [u8; 6])> {
        Some((self.interface.as_deref()?, self.link_address?))
    }
}

/// The name of a cluster that has none.
pub const NAME: &str = "flowkeep";
/// Runtimes beyond those of the start, if `runtimes_max` does not say.
pub const ROOM: u16 = 8;
/// The most keys.
pub const KEYS_MAX: usize = protocols::channel::auth::KEYS_MAX;

impl Cluster {
    /// Its name.
    pub fn name(&self) -> &str {
        self.name.as_deref().unwrap_or(NAME)
    }
}

/// A name that can be part of a file's.
pub(crate) fn is_good_name(name: &str) -> bool {
    let good = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    !name.is_empty() && name.len() <= 32 && name.chars().all(good)
}

/// Checks members and their settings, and counts the cluster's workers.
pub(super) fn check(config: &mut Config, document: &mut Document<'_, '_>) {
    if let Some(name) = &config.cluster.name
        && !is_good_name(name)
    {
        let problem = format!("`{name}` is no name for a cluster");
        document.problem_at("cluster.name", &problem, GOOD_NAME);
    }
    if config.member.is_empty() {
        let named = config.port.iter().position(|port| port.member.is_some());
        if let Some(index) = named {
            let remedy =
                "take the line out, or list the members: [[member]], and below it name = … and switches = 1";
            document.problem_at(&format!("port[{index}].member"), "there are no members", remedy);
        }
        return;
    }
    names(config, document);
    workers(config, document);
    clock(config, document);
    addresses(config, document);
    files_and_sockets(config, document);
    keys(config, document);
    ports(config, document);
}

const GOOD_NAME: &str = "write 1 to 32 letters, digits, - and _";

fn names(config: &Config, document: &mut Document<'_, '_>) {
    let mut names = BTreeSet::new();
    for (index, member) in config.member.iter().enumerate() {
        let path = format!("member[{index}].name");
        if !is_good_name(&member.name) {
            let problem = format!("`{}` is no name for a member", member.name);
            document.problem_at(&path, &problem, GOOD_NAME);
        } else if !names.insert(&member.name) {
            let problem = format!("there is another member `{}` before", member.name);
            document.problem_at(&path, &problem, "give each member a name of its own");
        }
    }
}

/// Of each kind the members' sum is the cluster's number.
fn workers(config: &mut Config, document: &mut Document<'_, '_>) {
    for (index, member) in config.member.iter().enumerate() {
        let path = format!("member[{index}]");
        match (member.switches, member.runtimes) {
            (None, None) => {
                let remedy = "add a line switches = 1 if it has ports, or runtimes = 1";
                document.problem_at(&path, "has neither switches nor runtimes", remedy);
            }
            (Some(_), Some(_)) => {
                let remedy = "make two members of it, one with the switches and one with the runtimes";
                document.problem_at(
                    &format!("{path}.runtimes"),
                    "is said of a member with switches",
                    remedy,
                );
            }
            _ => {}
        }
    }
    type Count = fn(&super::Member) -> u16;
    let kinds: [(&str, Count); 2] = [
        ("switches", |member| member.switches.unwrap_or(0)),
        ("runtimes", |member| member.runtimes.unwrap_or(0)),
    ];
    let sums = kinds.map(|(kind, of)| {
        if document.find(kind).is_some() {
            let problem = "is said of the cluster and of its members";
            document.problem_at(kind, problem, "take this line out; the members' sum counts");
        }
        let sum: usize = config.member.iter().map(of).map(usize::from).sum();
        if !(1..=64).contains(&sum) {
            let remedy = if sum == 0 {
                format!("add a member with {kind} = 1")
            } else {
                "take some out".to_owned()
            };
            let problem = format!("the members have {sum} {kind} together; a cluster has 1 to 64");
            document.problem_at("member[0]", &problem, &remedy);
        }
        sum.clamp(1, 64) as u16
    });
    [config.switches, config.runtimes] = sums;
    if let Some(most) = config.runtimes_max
        && most < config.runtimes
    {
        let problem = format!(
            "is {most}, and the members have {} runtimes together",
            config.runtimes
        );
        let remedy = format!(
            "write runtimes_max = {}, or more for members that are not listed",
            config.runtimes
        );
        document.problem_at("runtimes_max", &problem, &remedy);
    }
}

/// Of a capture's packets only one process would know the times.
fn clock(config: &Config, document: &mut Document<'_, '_>) {
    if config.clock == super::Clock::Capture {
        let problem =
            "a replay by a capture's own time is for one process: the others do not see its packets' times";
        let remedy = "write clock = \"machine\", or take the members out and run it with `flowkeep run`";
        document.problem_at("clock", problem, remedy);
    }
}

/// Files and sockets that members of one host cannot share: each would take them away from the
/// other, or write over the other's bytes.
fn files_and_sockets(config: &Config, document: &mut Document<'_, '_>) {
    let socket = |member: &super::Member| member.socket.clone().unwrap_or_else(|| socket_of(&member.name));
    for (index, member) in config.member.iter().enumerate() {
        let before = || {
            config.member[..index]
                .iter()
                // Of two of one name that is said.
                .filter(|other| other.host == member.host && other.name != member.name)
        };
        let mut same = |setting: &str, value: &str, other: &super::Member, remedy: &str| {
            let problem = format!("`{value}` is that of member `{}` on the same host", other.name);
            document.problem_at(&format!("member[{index}].{setting}"), &problem, remedy);
        };
        if let Some(other) = before().find(|other| socket(other) == socket(member)) {
            let remedy = "give each member a control socket of its own, or take the line out";
            same("socket", &socket(member).display().to_string(), other, remedy);
        }
        if let Some(own) = member.metrics
            && let Some(other) = before().find(|other| other.metrics.is_some_and(|there| collide(own, there)))
        {
            let remedy = "give each member a port of its own";
            same("metrics", &own.to_string(), other, remedy);
        }
        if let Some(own) = member.events.as_deref().filter(|file| !is_shared(file))
            && let Some(other) = before().find(|other| other.events.as_deref() == Some(own))
        {
            let remedy = "give each member a file of its own; their lines would be mixed up";
            same("events", own, other, remedy);
        }
        if let (Some((interface, own)), Some(other)) = (
            member.segment(),
            before().find(|other| {
                matches!((other.segment(), member.segment()), (Some((a, x)), Some((b, y))) if a == b && x != y)
            }),
        ) {
            let shown = own.map(|byte| format!("{byte:02x}")).join(":");
            let problem = format!(
                "`{shown}` is not what member `{}` says of `{interface}` on the same host",
                other.name
            );
            let remedy = format!("write the same for both: `ip link show {interface}` says which");
            document.problem_at(&format!("member[{index}].link_address"), &problem, &remedy);
        }
    }
}

/// Whether only one of two listening sockets can be had.
fn collide(one: SocketAddr, other: SocketAddr) -> bool {
    let (a, b) = (one.ip(), other.ip());
    let overlap = a == b || a.is_unspecified() || b.is_unspecified();
    one.port() != 0 && one.port() == other.port() && overlap
}

/// A file that any number of processes may write to.
fn is_shared(file: &str) -> bool {
    file == "-" || file == "/dev/null"
}

/// Links between hosts need addresses, each host its own.
fn addresses(config: &Config, document: &mut Document<'_, '_>) {
    if config.cluster.port == Some(0) {
        document.problem_at(
            "cluster.port",
            "is no port that others can send to",
            "write port = 6081",
        );
    }
    let mut seen: BTreeMap<IpAddr, &super::Member> = BTreeMap::new();
    let mut families = None;
    for (index, member) in config.member.iter().enumerate() {
        let path = format!("member[{index}]");
        segment(config, member, &path, document);
        let Some(address) = member.address else {
            let needs_it = |other: &super::Member| {
                other.host != member.host && (member.segment().is_none() || other.segment().is_none())
            };
            if config.member.iter().any(needs_it) {
                let problem = format!(
                    "has no address, and there are members on other hosts than `{}`",
                    member.host
                );
                document.problem_at(&path, &problem, "add a line address = \"10.0.0.1\"");
            }
            continue;
        };
        let path = format!("{path}.address");
        if address.is_unspecified() || address.is_multicast() {
            let problem = format!("`{address}` is no address that others can send to");
            document.problem_at(&path, &problem, "write the host's own, like \"10.0.0.1\"");
        }
        if *families.get_or_insert(address.is_ipv4()) != address.is_ipv4() {
            let problem = "is of another family than that of a member before";
            document.problem_at(&path, problem, "write all of them in IPv4, or all in IPv6");
        }
        if let Some(other) = seen.insert(address, member)
            && other.host != member.host
        {
            let problem = format!("is that of member `{}`, on another host", other.name);
            document.problem_at(
                &path,
                &problem,
                "write each host's own, or the same host for both",
            );
        }
    }
}

/// Links on Ethernet need an interface and its address, each host its own.
fn segment(config: &Config, member: &super::Member, path: &str, document: &mut Document<'_, '_>) {
    match (&member.interface, member.link_address) {
        (Some(interface), None) => {
            let remedy = format!("add a line link_address = \"…\": `ip link show {interface}` says which");
            document.problem_at(
                &format!("{path}.interface"),
                "has no `link_address` beside it",
                &remedy,
            );
        }
        (None, Some(_)) => document.problem_at(
            &format!("{path}.link_address"),
            "has no `interface` beside it",
            "add a line interface = \"eth1\"",
        ),
        (Some(_), Some(address)) => {
            let path = format!("{path}.link_address");
            if address[0] & 1 != 0 || address == [0; 6] {
                let problem = "is no address of one interface";
                document.problem_at(&path, problem, "write what `ip link` shows for the interface");
            }
            let other = config
                .member
                .iter()
                .take_while(|other| !std::ptr::eq(*other, member));
            let same =
                |other: &&super::Member| other.host != member.host && other.link_address == Some(address);
            if let Some(other) = other.into_iter().find(same) {
                let problem = format!("is that of member `{}`, on another host", other.name);
                document.problem_at(&path, &problem, "write each host's own");
            }
        }
        (None, None) => {}
    }
}

fn keys(config: &Config, document: &mut Document<'_, '_>) {
    let cluster = &config.cluster;
    if cluster.keys.len() > KEYS_MAX {
        let problem = format!("are {}; there are at most {KEYS_MAX}", cluster.keys.len());
        document.problem_at(
            "cluster.keys",
            &problem,
            "take those out that no member sends with any more",
        );
    }
    match cluster.protection {
        Protection::Keys if cluster.keys.is_empty() => {
            let remedy = "make a key (echo \"1 $(openssl rand -hex 32)\" > edge.key; chmod 600 edge.key), and below [cluster] write keys = [\"edge.key\"]";
            document.problem_at("cluster", "members have no key", remedy);
        }
        Protection::DamageOnly if !cluster.keys.is_empty() => {
            let remedy = "take the keys out, or the protection; a file that only the hashes' seed is derived from is `seed`";
            document.problem_at(
                "cluster.keys",
                "are of no use with protection = \"damage-only\"",
                remedy,
            );
        }
        Protection::DamageOnly if cluster.seed.is_none() => {
            let remedy = "make one (echo \"1 $(openssl rand -hex 32)\" > edge.seed; chmod 600 edge.seed), and write seed = \"edge.seed\"";
            document.problem_at(
                "cluster.protection",
                "without keys there must be a seed for the hashes",
                remedy,
            );
        }
        _ => {}
    }
}

/// Each port is at a member that has switches.
fn ports(config: &Config, document: &mut Document<'_, '_>) {
    let with_switches: Vec<&str> = config
        .member
        .iter()
        .filter(|member| member.switches.is_some())
        .map(|member| member.name.as_str())
        .collect();
    for (index, port) in config.port.iter().enumerate() {
        let path = format!("port[{index}]");
        match &port.member {
            None if with_switches.len() > 1 => {
                let remedy = format!("add a line member = \"{}\"", with_switches[0]);
                let problem = "does not say which member has it";
                document.problem_at(&path, problem, &remedy);
            }
            Some(name) if !with_switches.contains(&name.as_str()) => {
                let problem = match config.member.iter().any(|member| member.name == *name) {
                    true => format!("member `{name}` has no switches, so it has no ports"),
                    false => format!("there is no member `{name}`"),
                };
                let remedy = write_instead(name, &with_switches);
                document.problem_at(&format!("{path}.member"), &problem, &remedy);
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::layout::{Layout, PortPlace, WorkerId};
    use super::super::{Config, Problem, parse};

    const CLUSTER: &str = "[cluster]\nname = \"edge\"\nkeys = [\"edge.key\"]\n";
    const CHAIN: &str = "[[chain]]\nname = \"all\"\nfunctions = [\"flow_monitor\"]\n";

    fn member(name: &str, more: &str) -> String {
        format!("[[member]]\nname = \"{name}\"\n{more}\n")
    }

    fn port(name: &str, more: &str) -> String {
        format!("[[port]]\nname = \"{name}\"\ninput = \"pcap:{name}.pcap\"\n{more}\n")
    }

    fn read(parts: &[&str]) -> Result<Config, Vec<Problem>> {
        let text = format!("{}{CHAIN}", parts.concat());
        parse("f.toml", &text, &crate::functions())
    }

    /// The only problem: its line's text, the message, and the remedy.
    #[track_caller]
    fn wrong(parts: &[&str]) -> (String, String, String) {
        let problems = read(parts).unwrap_err();
        assert_eq!(problems.len(), 1, "{problems:?}");
        let problem = problems.into_iter().next().unwrap();
        assert!(problem.line > 0, "{problem}");
        (problem.text, problem.problem, problem.remedy)
    }

    #[test]
    fn workers_and_ports_are_numbered_by_members() {
        let config = read(&[
            CLUSTER,
            &member("left", "runtimes = 1"),
            &member("front", "switches = 2"),
            &member("right", "runtimes = 2"),
            &member("back", "switches = 1"),
            &port("a", "member = \"front\""),
            &port("b", "member = \"back\""),
            &port("c", "member = \"front\""),
            &port("d", "member = \"front\""),
        ])
        .unwrap();
        assert_eq!((config.switches, config.runtimes), (3, 3));
        let place = |switch, place| PortPlace { switch, place };
        let right = Layout::of_member(&config, 2);
        assert_eq!(right.ports, [place(0, 0), place(2, 0), place(1, 0), place(0, 1)]);
        assert_eq!(
            (right.switches_here.clone(), right.runtimes_here.clone()),
            (2..2, 1..3)
        );
        assert!(!right.is_whole() && Layout::whole(&config).is_whole());
        let numbers: Vec<usize> = right.ports.iter().map(|port| port.number(3)).collect();
        assert_eq!(numbers, [0, 2, 1, 3]);
        assert_eq!(right.number(WorkerId::Switch(2)), 2);
        assert_eq!(right.number(WorkerId::Runtime(0)), 3);
        let of = |worker| Layout::member_of(&config, worker).unwrap();
        assert_eq!(
            [
                of(WorkerId::Switch(1)),
                of(WorkerId::Switch(2)),
                of(WorkerId::Runtime(2))
            ],
            [1, 3, 2]
        );
        let front = Layout::of_member(&config, 1);
        assert!(front.is_here(WorkerId::Switch(1)) && !front.is_here(WorkerId::Runtime(0)));
    }

    /// Without members, ports are dealt out as ever.
    #[test]
    fn without_members_nothing_changes() {
        let config = read(&[
            "switches = 2\nruntimes = 3\n",
            &port("a", ""),
            &port("b", ""),
            &port("c", ""),
        ])
        .unwrap();
        let layout = Layout::whole(&config);
        let numbers: Vec<usize> = layout.ports.iter().map(|port| port.number(2)).collect();
        assert_eq!(numbers, [0, 1, 2]);
        assert_eq!(Layout::member_of(&config, WorkerId::Switch(1)), None);
    }

    #[test]
    fn what_members_cannot_be_is_said_with_its_place() {
        let (front, left) = (member("front", "switches = 1"), member("left", "runtimes = 1"));
        let (line, problem, remedy) = wrong(&[CLUSTER, &front, &left, &member("left", "runtimes = 1")]);
        assert_eq!(line, "name = \"left\"");
        assert!(problem.contains("another member `left`") && remedy.contains("a name of its own"));

        let (line, problem, _) = wrong(&[CLUSTER, &front, &left, &member("a/b", "runtimes = 1")]);
        assert_eq!(
            (line.as_str(), problem.as_str()),
            ("name = \"a/b\"", "`a/b` is no name for a member")
        );

        let (line, problem, remedy) = wrong(&[CLUSTER, &front, &left, &member("x", "")]);
        assert_eq!(
            (line.as_str(), problem.as_str()),
            ("[[member]]", "has neither switches nor runtimes")
        );
        assert!(remedy.contains("runtimes = 1"));

        let (line, _, remedy) = wrong(&[CLUSTER, &left, &member("x", "switches = 1\nruntimes = 2")]);
        assert_eq!(line, "runtimes = 2");
        assert!(remedy.contains("two members"));

        let (line, problem, _) = wrong(&["runtimes = 2\n", CLUSTER, &front, &left]);
        assert_eq!(
            (line.as_str(), problem.as_str()),
            ("runtimes = 2", "is said of the cluster and of its members")
        );

        let two = member("left", "runtimes = 2");
        let (line, problem, remedy) = wrong(&["runtimes_max = 1\n", CLUSTER, &front, &two]);
        assert_eq!(
            (line.as_str(), problem.as_str()),
            (
                "runtimes_max = 1",
                "is 1, and the members have 2 runtimes together"
            )
        );
        assert!(remedy.contains("runtimes_max = 2"));
        let most = |first: &str, nodes: &str| read(&[first, CLUSTER, &front, nodes]).unwrap().most_runtimes();
        assert_eq!([most("", &two), most("runtimes_max = 3\n", &two)], [10, 3]);
        assert_eq!(most("", &member("left", "runtimes = 60")), 64);

        let (_, problem, remedy) = wrong(&[CLUSTER, &left]);
        assert_eq!(
            problem,
            "the members have 0 switches together; a cluster has 1 to 64"
        );
        assert_eq!(remedy, "add a member with switches = 1");

        let (line, problem, _) = wrong(&[CLUSTER, &front, &member("x", "runtimes = 65")]);
        assert_eq!(line, "runtimes = 65");
        assert!(problem.contains("from 1 to 64"), "{problem}");
    }

    #[test]
    fn links_between_hosts_need_addresses_and_keys() {
        let front = |more: &str| member("front", &format!("switches = 1\n{more}"));
        let left = |more: &str| member("left", &format!("runtimes = 1\nhost = \"b\"\n{more}"));
        let at = |address: &str| format!("address = \"{address}\"");
        let (a, b) = (at("10.0.0.1"), at("10.0.0.2"));
        assert!(read(&[CLUSTER, &front(&a), &left(&b)]).is_ok());

        let (line, problem, remedy) = wrong(&[CLUSTER, &front(&a), &left("")]);
        assert_eq!(line, "[[member]]");
        assert_eq!(
            problem,
            "has no address, and there are members on other hosts than `b`"
        );
        assert!(remedy.contains("address = "));

        let (_, problem, _) = wrong(&[CLUSTER, &front(&a), &left(&a)]);
        assert_eq!(problem, "is that of member `front`, on another host");
        let (line, problem, _) = wrong(&[CLUSTER, &front(&a), &left(&at("0.0.0.0"))]);
        assert_eq!(line, "address = \"0.0.0.0\"");
        assert!(problem.contains("no address that others can send to"));
        let (_, problem, _) = wrong(&[CLUSTER, &front(&a), &left(&at("fd00::1"))]);
        assert!(problem.contains("another family"));

        let (line, problem, remedy) = wrong(&["[cluster]\nname = \"edge\"\n", &front(&a), &left(&b)]);
        assert_eq!(
            (line.as_str(), problem.as_str()),
            ("[cluster]", "members have no key")
        );
        assert!(remedy.contains("openssl rand -hex 32"));
        let (line, problem, _) = wrong(&["[cluster]\nprotection = \"damage-only\"\n", &front(&a), &left(&b)]);
        assert_eq!(line, "protection = \"damage-only\"");
        assert!(problem.contains("must be a seed"));
        let unprotected = "[cluster]\nprotection = \"damage-only\"\nseed = \"edge.seed\"\n";
        assert!(read(&[unprotected, &front(&a), &left(&b)]).is_ok());
        let five = "[cluster]\nkeys = [\"1\", \"2\", \"3\", \"4\", \"5\"]\n";
        let (_, problem, _) = wrong(&[five, &front(&a), &left(&b)]);
        assert_eq!(problem, "are 5; there are at most 4");
    }

    #[test]
    fn links_on_ethernet_need_an_interface_and_its_address() {
        let front = |more: &str| member("front", &format!("switches = 1\n{more}"));
        let left = |more: &str| member("left", &format!("runtimes = 1\nhost = \"b\"\n{more}"));
        let on = |address: &str| format!("interface = \"eth1\"\nlink_address = \"{address}\"");
        let (a, b) = (on("52:54:00:00:00:01"), on("52:54:00:00:00:02"));
        let config = read(&[CLUSTER, &front(&a), &left(&b)]).unwrap();
        assert_eq!(
            config.member[1].segment(),
            Some(("eth1", [0x52, 0x54, 0, 0, 0, 2]))
        );

        let both = format!("{a}\naddress = \"10.0.0.1\"");
        let (_, problem, _) = wrong(&[CLUSTER, &front(&both), &left("")]);
        assert!(problem.contains("has no address"), "{problem}");
        let (line, problem, remedy) = wrong(&[
            CLUSTER,
            &front(&both),
            &left("interface = \"eth1\"\naddress = \"10.0.0.2\""),
        ]);
        assert_eq!(
            (line.as_str(), problem.as_str()),
            ("interface = \"eth1\"", "has no `link_address` beside it")
        );
        assert!(remedy.contains("ip link show eth1"));
        let (_, problem, _) = wrong(&[CLUSTER, &front(&a), &left(&a)]);
        assert_eq!(problem, "is that of member `front`, on another host");
        let (_, problem, _) = wrong(&[CLUSTER, &front(&a), &left(&on("01:00:5e:00:00:01"))]);
        assert_eq!(problem, "is no address of one interface");
        let (line, problem, _) = wrong(&[CLUSTER, &front(&a), &left(&on("52:54:00:12:34"))]);
        assert_eq!(line, "link_address = \"52:54:00:12:34\"");
        assert!(problem.contains("no link address"), "{problem}");
    }

    /// Settings that two members of a host cannot both have; on different hosts they can.
    #[test]
    fn what_cannot_be_had_twice_is_said_with_its_place() {
        for (one, other, line, says) in [
            (
                "socket = \"/run/a.sock\"",
                "socket = \"/run/a.sock\"",
                "socket = \"/run/a.sock\"",
                "`/run/a.sock` is that of member `front` on the same host",
            ),
            (
                "metrics = \"127.0.0.1:9465\"",
                "metrics = \"127.0.0.1:9465\"",
                "metrics = \"127.0.0.1:9465\"",
                "`127.0.0.1:9465` is that of member `front`",
            ),
            (
                "metrics = \"127.0.0.1:9465\"",
                "metrics = \"0.0.0.0:9465\"",
                "metrics = \"0.0.0.0:9465\"",
                "`0.0.0.0:9465` is that of member `front`",
            ),
            (
                "events = \"all.jsonl\"",
                "events = \"all.jsonl\"",
                "events = \"all.jsonl\"",
                "`all.jsonl` is that of member `front`",
            ),
            (
                "interface = \"eth1\"\nlink_address = \"52:54:00:00:00:01\"",
                "interface = \"eth1\"\nlink_address = \"52:54:00:00:00:02\"",
                "link_address = \"52:54:00:00:00:02\"",
                "`52:54:00:00:00:02` is not what member `front` says of `eth1`",
            ),
        ] {
            let front = member("front", &format!("switches = 1\n{one}"));
            let left = |more: &str| member("left", &format!("runtimes = 1\n{more}"));
            let (found, problem, remedy) = wrong(&[CLUSTER, &front, &left(other)]);
            assert_eq!(found, line);
            assert!(problem.starts_with(says), "{problem}");
            assert!(!remedy.is_empty());
            let elsewhere = format!("{other}\nhost = \"b\"\naddress = \"10.0.0.2\"");
            let front = member("front", &format!("switches = 1\n{one}\naddress = \"10.0.0.1\""));
            assert!(read(&[CLUSTER, &front, &left(&elsewhere)]).is_ok(), "{other}");
        }
        for fine in [
            "events = \"-\"",
            "events = \"/dev/null\"",
            "metrics = \"127.0.0.1:0\"",
        ] {
            let front = member("front", &format!("switches = 1\n{fine}"));
            assert!(read(&[CLUSTER, &front, &member("left", &format!("runtimes = 1\n{fine}"))]).is_ok());
        }
        // The default socket of a member.
        let default = crate::member::socket_of("left");
        let front = member("front", &format!("switches = 1\nsocket = {default:?}"));
        let (line, problem, _) = wrong(&[CLUSTER, &front, &member("left", "runtimes = 1")]);
        assert!(
            line == "[[member]]" && problem.contains("is that of member `front`"),
            "{line}: {problem}"
        );

        let (front, left) = (member("front", "switches = 1"), member("left", "runtimes = 1"));
        let (line, problem, remedy) = wrong(&["clock = \"capture\"\n", CLUSTER, &front, &left]);
        assert_eq!(line, "clock = \"capture\"");
        assert!(problem.contains("is for one process") && remedy.contains("clock = \"machine\""));
    }

    #[test]
    fn a_port_is_at_a_member_with_switches() {
        let (front, back, left) = (
            member("front", "switches = 1"),
            member("back", "switches = 1"),
            member("left", "runtimes = 1"),
        );
        assert!(read(&[CLUSTER, &front, &left, &port("a", "")]).is_ok());
        let (line, problem, remedy) = wrong(&[CLUSTER, &front, &back, &left, &port("a", "")]);
        assert_eq!(
            (line.as_str(), problem.as_str()),
            ("[[port]]", "does not say which member has it")
        );
        assert_eq!(remedy, "add a line member = \"front\"");
        let (line, problem, _) = wrong(&[CLUSTER, &front, &left, &port("a", "member = \"left\"")]);
        assert_eq!(line, "member = \"left\"");
        assert_eq!(problem, "member `left` has no switches, so it has no ports");
        let (_, problem, remedy) = wrong(&[CLUSTER, &front, &left, &port("a", "member = \"fornt\"")]);
        assert_eq!(
            (problem.as_str(), remedy.as_str()),
            ("there is no member `fornt`", "write `front`")
        );
        let (_, problem, _) = wrong(&[&port("a", "member = \"front\"")]);
        assert_eq!(problem, "there are no members");
    }
}
