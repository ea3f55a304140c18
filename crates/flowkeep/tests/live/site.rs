//! Firewall, NAT, load balancer and forwarding between hosts: the common part of the tests of
//! single protocols.
//!
//! ```text
//!   client ═════ left  gateway  right ═════════ server ════════ far
//!   10.0.1.1     .254  (flowkeep)  203.0.113.254    .1 | 198.51.100.1   198.51.100.9
//!   2001:db8:1::1                                   .11, .12            2001:db8:3::9
//!                                                   MTU 1400 from server to far
//!   NAT pool 203.0.113.64/29, in the servers' own network: the port answers hosts that ask for it
//!   virtual address 192.0.2.80, behind it .11 and .12; 2001:db8:1::80, in the clients' own network, behind it the server
//! ```
//!
//! A cluster of three processes on two hosts ([`Links`]) has a runtime where the ports' interfaces
//! are not, so nothing is forwarded there: frames leave as they came, and client and server take
//! each other's link address for the gateway's.
//!
//! ```text
//!   gateway: switch, runtime 1  link0 10.9.0.1 ═════════ eth0 10.9.0.2  other: runtime 0
//! ```
//!
//! Where that network is to be a bad one, [`BadCable`] is between the two.
//!
//! Each client notes its own failures ([`Log`]): no attempt at all fails the test, and so does any
//! failure. At the end every packet must be accounted for ([`Site::end`]).

use crate::impair::{BadCable, Counts};
use crate::log::Log;
use crate::network::{Network, PATIENCE, network_with, udp_overflows};
use lab::Namespace;
use lab::process::{Ended, Process, Run};
use serde_json::Value;
use std::fs;
use std::sync::Mutex;
use std::time::{Duration, Instant};

pub const SERVER: &str = "203.0.113.1";
pub const SERVER_V6: &str = "2001:db8:2::1";
pub const FAR: &str = "198.51.100.9";
pub const FAR_V6: &str = "2001:db8:3::9";
pub const VIRTUAL: &str = "192.0.2.80";
pub const VIRTUAL_V6: &str = "2001:db8:1::80";
/// In the pool: its port 8080 is the client's.
pub const PUBLISHED: &str = "203.0.113.70";

/// The kinds of links between the processes of a cluster.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Links {
    /// Shared memory: one host.
    Memory,
    /// Channels over Geneve, with a key, to another host.
    Geneve,
    /// The same over a network that loses, delays and reorders.
    Impaired,
    /// Channels on Ethernet, with a key, to another host.
    Ethernet,
}

impl Links {
    /// The configuration's lines on the host of the member with ports, and on the other one.
    fn places(self) -> [&'static str; 2] {
        match self {
            Links::Memory => ["", ""],
            Links::Geneve | Links::Impaired => [
                "host = \"gateway\"\naddress = \"10.9.0.1\"\n",
                "host = \"other\"\naddress = \"10.9.0.2\"\n",
            ],
            Links::Ethernet => [
                "host = \"gateway\"\ninterface = \"link0\"\nlink_address = \"02:00:00:00:09:01\"\n",
                "host = \"other\"\ninterface = \"eth0\"\nlink_address = \"02:00:00:00:09:02\"\n",
            ],
        }
    }

    /// Their name in `status`.
    fn kind(self) -> &'static str {
        match self {
            Links::Memory => "memory",
            _ => "channel",
        }
    }
}

/// Runs a program in a time namespace of its own, as if its host had started ten hours before this
/// one.
const OTHER_CLOCK: &str = "unshare --time --monotonic 36000 --boottime 36000";

/// The ports take routed packets and the chains forward them; or else they take everything, and
/// frames leave as they came.
fn config(scheme: &str, is_routed: bool, workers: &str, more: &str) -> String {
    let (take, forward) = match is_routed {
        true => ("", ", \"forward\""),
        false => ("?take=everything", ""),
    };
    format!(
        r#"
{workers}

[[port]]
name = "lan"
side = "inside"
input = "{scheme}:left{take}"
output = "{scheme}:left{take}"

[[port]]
name = "wan"
side = "outside"
input = "{scheme}:right{take}"
output = "{scheme}:right{take}"

[[chain]]
name = "six"
functions = ["firewall", "load_balancer"{forward}]
match = {{ source = ["::/0"] }}

[[chain]]
name = "four"
functions = ["firewall", "nat", "load_balancer"{forward}]

[[function.firewall.rules]]
name = "out"
from = "inside"
action = "allow"

[[function.firewall.rules]]
name = "published"
from = "outside"
protocol = "tcp"
destination_ports = [8080]
action = "allow"

[[function.firewall.rules]]
name = "refused politely"
from = "outside"
protocol = "tcp"
destination_ports = [81]
action = "reject"

[[function.load_balancer.services]]
name = "web6"
addresses = ["{VIRTUAL_V6}"]
ports = 80
protocol = "tcp"
backends = [{{ name = "six", endpoint = "[{SERVER_V6}]:80" }}]

[function.nat]
pool = ["203.0.113.64/29"]
static = [{{ inside = "10.0.1.1:8080", outside = "{PUBLISHED}:8080", protocol = "tcp" }}]

[[function.load_balancer.services]]
name = "web"
addresses = ["{VIRTUAL}"]
ports = 80
protocol = "tcp"
policy = "round_robin"
backends = [
    {{ name = "one", endpoint = "203.0.113.11:80" }},
    {{ name = "two", endpoint = "203.0.113.12:80" }},
]
{more}"#
    )
}

/// The output of dnsperf.
pub struct Names {
    pub sent: u64,
    /// Without an answer within five seconds.
    pub lost: u64,
    pub said: String,
}

impl Names {
    /// Asks the name server at this address from eight ports of an inside host, as often a second
    /// as is wanted.
    pub fn ask(network: &Network, address: &str, host: Option<&str>, seconds: u64) -> Self {
        let queries = network.folder.path("queries");
        fs::write(&queries, "a.example.test A\nb.example.test A\n").unwrap();
        let from = host.map(|host| format!("-a {host}")).unwrap_or_default();
        let words = format!("dnsperf -s {address} {from} -d {queries} -l {seconds} -Q 300 -c 8 -t 5");
        let said = said(&network.client, &words);
        let number = |name: &str| -> Option<u64> {
            let line = said.lines().find(|line| line.trim_start().starts_with(name))?;
            line.split(':').nth(1)?.split_whitespace().next()?.parse().ok()
        };
        let (sent, lost) = (number("Queries sent"), number("Queries lost"));
        println!("DNS {address}: {sent:?} queries, {lost:?} lost");
        Names {
            sent: sent.unwrap_or(0),
            lost: lost.unwrap_or(u64::MAX),
            said,
        }
    }

    /// Whether there were about as many questions as were wanted, and answers.
    pub fn are_good(&self, seconds: u64) -> bool {
        self.sent > 100 * seconds && self.said.contains("NOERROR")
    }
}

impl Log {
    /// Asks the name server at this address for some seconds; every question must be answered.
    pub fn names(&self, network: &Network, address: &str) {
        let names = Names::ask(network, address, None, 3);
        let good = names.are_good(3) && names.lost == 0;
        self.expect(&format!("dnsperf {address}"), good, &names.said);
    }
}

/// A program's output, whether it failed or not.
pub fn said(host: &Namespace, words: &str) -> String {
    match host.finish(words, Run::within(PATIENCE)) {
        Ok(ended) => format!("{}{}", ended.out, ended.err),
        Err(error) => error.to_string(),
    }
}

/// A program's exit code and output; no code if it was ended by a signal, or for taking too long.
pub fn outcome(host: &Namespace, words: &str) -> (Option<i32>, String) {
    match host.finish(words, Run::within(PATIENCE)) {
        Ok(ended) => (ended.status.code(), format!("{}{}", ended.out, ended.err)),
        Err(error) => (None, error.to_string()),
    }
}

/// Waits for a program that was started, for no longer than `limit`.
pub fn end_of(mut process: Process, limit: Duration) -> Result<Ended, String> {
    let began = Instant::now();
    loop {
        let ended = process.ended().unwrap();
        let (out, err) = process.printed().unwrap();
        match ended {
            Some(status) => return Ok(Ended { status, out, err }),
            None if began.elapsed() > limit => return Err(format!("did not end: {out}{err}")),
            None => std::thread::sleep(Duration::from_millis(5)),
        }
    }
}

fn addresses(network: &Network, far: &Namespace) {
    let (client, gateway, server) = (&network.client, &network.gateway, &network.server);
    for (host, interface, address) in [
        (client, "eth0", "10.0.1.1/24"),
        (client, "eth0", "2001:db8:1::1/64"),
        (gateway, "left", "10.0.1.254/24"),
        (gateway, "left", "2001:db8:1::fe/64"),
        (gateway, "right", "203.0.113.254/24"),
        (gateway, "right", "2001:db8:2::fe/64"),
        (server, "eth0", "203.0.113.1/24"),
        (server, "eth0", "203.0.113.11/24"),
        (server, "eth0", "203.0.113.12/24"),
        (server, "eth0", "2001:db8:2::1/64"),
        (server, "far0", "198.51.100.1/24"),
        (server, "far0", "2001:db8:3::1/64"),
        (far, "eth0", "198.51.100.9/24"),
        (far, "eth0", "2001:db8:3::9/64"),
    ] {
        host.address(interface, address).unwrap();
    }
    server.set("net.ipv4.ip_forward", "1").unwrap();
    server.set("net.ipv6.conf.all.forwarding", "1").unwrap();
    for (host, route) in [
        (client, "route add default via 10.0.1.254"),
        (client, "-6 route add default via 2001:db8:1::fe"),
        (gateway, "route add default via 203.0.113.1"),
        (gateway, "-6 route add default via 2001:db8:2::1"),
        (server, "route add 10.0.1.0/24 via 203.0.113.254"),
        (server, "-6 route add 2001:db8:1::/64 via 2001:db8:2::fe"),
        (far, "route add default via 198.51.100.1"),
        (far, "-6 route add default via 2001:db8:3::1"),
        (server, "link set far0 mtu 1400"),
    ] {
        host.ip(route).unwrap();
    }
}

/// The hosts, the cluster in the gateway, and how it goes.
pub struct Site {
    // Dropped in this order: the programs before the namespaces that they run in.
    cluster: Vec<Member>,
    bad_cable: Option<BadCable>,
    _meeting: Meeting,
    pub far: Namespace,
    /// Another host, for a runtime.
    pub other: Namespace,
    pub network: Network,
    pub log: Log,
    scheme: &'static str,
    /// The cluster ends by itself after this.
    pub lifetime: Duration,
}

/// Where processes of one host have met, gone however a test ends.
struct Meeting;

impl Drop for Meeting {
    fn drop(&mut self) {
        // The name has root's number: these tests run as root.
        let name = format!("flowkeep-0-{}-", cluster_name());
        for entry in fs::read_dir("/run").into_iter().flatten().flatten() {
            if entry.file_name().display().to_string().starts_with(&name) {
                let _ = fs::remove_dir_all(entry.path());
            }
        }
    }
}

fn cluster_name() -> String {
    format!("live-{}", std::process::id())
}

/// A process of the cluster, and the name of its control socket.
pub struct Member {
    socket: String,
    process: Mutex<Process>,
    /// How it was started: the host, and the words.
    host: Namespace,
    words: String,
}

impl Member {
    /// Its process.
    pub fn id(&self) -> u32 {
        self.process.lock().unwrap().id()
    }
}

/// The hosts with their addresses, nothing running yet; or a line that says what they lack.
pub fn site(scheme: &'static str, programs: &[(&str, &'static str)]) -> Option<Site> {
    let (network, (far, other)) = network_with(programs, |lab, network| {
        let (far, other) = (lab.namespace("far")?, lab.namespace("other")?);
        lab.cable((&network.server, "far0"), (&far, "eth0"))?;
        lab.cable((&network.gateway, "link0"), (&other, "eth0"))?;
        Ok((far, other))
    })?;
    addresses(&network, &far);
    Some(Site {
        cluster: Vec::new(),
        bad_cable: None,
        _meeting: Meeting,
        far,
        other,
        network,
        log: Log::default(),
        scheme,
        lifetime: Duration::from_secs(300),
    })
}

impl Site {
    /// Starts the cluster, with more configuration behind the usual, and waits until it answers.
    pub fn start(&mut self, more: &str) {
        self.start_with(2, more);
    }

    /// The same with so many runtimes.
    pub fn start_with(&mut self, runtimes: u16, more: &str) {
        self.start_workers(&format!("runtimes = {runtimes}"), more);
    }

    /// The same with this text on its workers.
    pub fn start_workers(&mut self, workers: &str, more: &str) {
        let file = self.write(&config(self.scheme, true, workers, more));
        self.start_member(&self.network.gateway.clone(), &format!("run {file}"), "socket");
    }

    /// The same as three processes: the switch, and two nodes with a runtime each, the first of
    /// them perhaps on another host, whose clock is ten hours ahead then.
    pub fn start_members(&mut self, links: Links, more: &str) {
        let gateway = self.network.gateway.clone();
        let host = match links {
            Links::Memory => gateway.clone(),
            _ => {
                if links == Links::Impaired {
                    self.impair();
                }
                self.connect_hosts();
                self.other.clone()
            }
        };
        let [ports, other] = links.places();
        let mut members = self.cluster_section();
        for (name, kind, at) in [
            ("front", "switches", ports),
            ("left", "runtimes", other),
            ("right", "runtimes", ports),
        ] {
            members += &format!("[[member]]\nname = \"{name}\"\n{kind} = 1\n{at}");
        }
        let is_routed = links == Links::Memory;
        let file = self.write(&config(self.scheme, is_routed, "", &format!("{more}\n{members}")));
        for (name, kind, host) in [
            ("front", "switch", &gateway),
            ("left", "node", &host),
            ("right", "node", &gateway),
        ] {
            let words = format!("{kind} {file} --member {name}");
            match name == "left" && links != Links::Memory {
                true => self.start_by(OTHER_CLOCK, host, &words, name),
                false => self.start_member(host, &words, name),
            }
        }
        let began = Instant::now();
        for member in 0..3 {
            loop {
                let status = self.status_of(member);
                let all = status["links"].as_array().cloned().unwrap_or_default();
                if all.len() == 2 && all.iter().all(|link| link["is_there"] == true) {
                    let to_left = all.iter().find(|link| link["to"] == "runtime 0");
                    assert!(
                        to_left.is_none_or(|link| link["kind"] == links.kind()),
                        "{status}"
                    );
                    break;
                }
                assert!(began.elapsed() < PATIENCE, "not all are there: {status}");
                std::thread::sleep(Duration::from_millis(20));
            }
        }
    }

    /// A configuration's section on a cluster of several processes, and the key file that it names.
    fn cluster_section(&self) -> String {
        let path = |name: &str| self.network.folder.path(name);
        let key = path("edge.key");
        fs::write(&key, format!("1 {}", "5a".repeat(32))).unwrap();
        fs::set_permissions(&key, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
        let (name, state) = (cluster_name(), path("state"));
        format!("[cluster]\nname = \"{name}\"\nkeys = [\"{key}\"]\ndirectory = \"{state}\"\n")
    }

    /// The configuration of members on several hosts, with more behind the usual.
    pub fn config_of_members(&self, members: &str, more: &str) -> String {
        let members = self.cluster_section() + members;
        config(self.scheme, false, "", &format!("{more}\n{members}"))
    }

    /// A bad cable between the hosts of the processes, instead of the good one.
    fn impair(&mut self) {
        let gateway = self.network.gateway.clone();
        gateway.ip("link delete link0").unwrap();
        let lab = self.network.lab();
        let between = lab.namespace("between").unwrap();
        lab.cable((&gateway, "link0"), (&between, "near")).unwrap();
        lab.cable((&between, "far"), (&self.other, "eth0")).unwrap();
        self.bad_cable = Some(BadCable::join(&between, ["near", "far"]));
    }

    /// The bad cable's counts, from the gateway to the other host, and back.
    pub fn impaired(&self) -> Option<[Counts; 2]> {
        self.bad_cable.as_ref().map(BadCable::counts)
    }

    /// Addresses of the hosts of the processes; and client and server face each other.
    fn connect_hosts(&self) {
        for (host, interface, number) in [(&self.network.gateway, "link0", 1), (&self.other, "eth0", 2)] {
            host.ip(&format!("link set {interface} address 02:00:00:00:09:0{number}"))
                .unwrap();
            host.address(interface, &format!("10.9.0.{number}/24")).unwrap();
        }
        self.face_each_other();
    }

    /// Client and server send to each other the packets for the gateway.
    pub fn face_each_other(&self) {
        let (client, server) = (&self.network.client, &self.network.server);
        server
            .ip("route add 203.0.113.64/29 via 203.0.113.254 dev eth0")
            .unwrap();
        for (host, own, other, gateways) in [
            (client, "02:00:00:00:00:02", "02:00:00:00:00:01", "10.0.1.254"),
            (server, "02:00:00:00:00:01", "02:00:00:00:00:02", "203.0.113.254"),
        ] {
            host.ip(&format!("link set eth0 address {own}")).unwrap();
            host.ip(&format!(
                "neigh replace {gateways} lladdr {other} dev eth0 nud permanent"
            ))
            .unwrap();
        }
    }

    /// Tells the server's kernel which neighbour has the pool. Else it asks when the first reply to
    /// each address leaves, and packets sent just as the answer comes may overtake those that wait
    /// for it: Linux says that a neighbour is known before it lets go the packets that waited.
    pub fn introduce_pool(&self) {
        let network = &self.network;
        let gateway = network
            .gateway
            .run("cat /sys/class/net/right/address", Run::within(PATIENCE))
            .unwrap();
        for host in 64..72 {
            let words = format!(
                "neigh replace 203.0.113.{host} lladdr {} dev eth0 nud permanent",
                gateway.trim()
            );
            network.server.ip(&words).unwrap();
        }
    }

    pub fn write(&self, config: &str) -> String {
        let file = self.network.folder.path("chain.toml");
        fs::write(&file, config).unwrap();
        file
    }

    fn start_member(&mut self, host: &Namespace, words: &str, socket: &str) {
        self.start_by("", host, words, socket);
    }

    /// Starts it by another program, which becomes it.
    fn start_by(&mut self, program: &str, host: &Namespace, words: &str, socket: &str) {
        let member = self.launch(program, host, words, socket);
        self.adopt(member);
    }

    /// The same, without it being one of the site's yet.
    pub fn launch(&self, program: &str, host: &Namespace, words: &str, socket: &str) -> Member {
        let socket = self.network.folder.path(socket);
        let flowkeep = env!("CARGO_BIN_EXE_flowkeep");
        let lifetime = self.lifetime.as_secs();
        let words = format!("{program} {flowkeep} {words} --json --for {lifetime}s --socket {socket}");
        let process = Mutex::new(host.start(&words).unwrap());
        Member {
            socket,
            process,
            host: host.clone(),
            words,
        }
    }

    /// Adds a process as the site's last one, and waits until it answers.
    pub fn adopt(&mut self, member: Member) {
        self.cluster.push(member);
        self.wait_for(self.cluster.len() - 1);
    }

    /// Sends a process of the cluster a signal.
    pub fn signal(&self, member: usize, signal: &str) {
        let number = self.cluster[member].process.lock().unwrap().id();
        let words = format!("kill -{signal} {number}");
        self.network.gateway.run(&words, Run::within(PATIENCE)).unwrap();
    }

    /// Kills processes of the cluster, and waits until they are gone.
    pub fn kill(&self, members: &[usize]) {
        members.iter().for_each(|member| self.signal(*member, "KILL"));
        let began = Instant::now();
        let has_ended = |member: &usize| {
            let mut process = self.cluster[*member].process.lock().unwrap();
            process.ended().unwrap().is_some()
        };
        while !members.iter().all(has_ended) {
            assert!(began.elapsed() < PATIENCE, "killed processes go on");
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Starts a process of the cluster again that was killed.
    pub fn revive(&self, member: usize) {
        let Member {
            process, host, words, ..
        } = &self.cluster[member];
        *process.lock().unwrap() = host.start(words).unwrap();
        self.wait_for(member);
    }

    /// Ends the cluster where a process was killed, whose packets are in no account.
    pub fn end_after_failures(mut self) {
        for member in self.cluster.drain(..) {
            let process = member.process.into_inner().unwrap();
            let kill = format!("kill -TERM {}", process.id());
            self.network.gateway.run(&kill, Run::within(PATIENCE)).unwrap();
            let ended = end_of(process, PATIENCE).unwrap();
            println!("{}", ended.err);
            let report: Value = serde_json::from_str(ended.out.lines().last().expect("a report")).unwrap();
            println!("{}", report["packets"]);
            self.log
                .expect("graceful end", ended.status.success(), format!("{ended:?}"));
        }
        self.log.end(1);
    }

    fn wait_for(&self, number: usize) {
        let began = Instant::now();
        let words = &self.cluster[number].words;
        while self.asked_of(number, "status --json").is_err() {
            let mut process = self.cluster[number].process.lock().unwrap();
            assert!(
                began.elapsed() < PATIENCE && process.ended().unwrap().is_none(),
                "{words}: {:?}",
                process.printed()
            );
        }
    }

    /// The tool's answer to these words; an error if it fails. Of several processes the switch's is
    /// asked.
    pub fn asked(&self, words: &str) -> Result<String, String> {
        self.asked_of(0, words)
    }

    /// The tool's answer at this process, in the order in which they were started.
    pub fn asked_of(&self, member: usize, words: &str) -> Result<String, String> {
        let socket = &self.cluster[member].socket;
        let words = format!("{} {words} --socket {socket}", env!("CARGO_BIN_EXE_flowkeep"));
        let answer = self.network.gateway.run(&words, Run::within(PATIENCE));
        answer.map_err(|error| error.to_string())
    }

    /// The cluster's figures; of several processes, the switch's.
    pub fn status(&self) -> Value {
        self.status_of(0)
    }

    /// Asks a process to end, and waits until it has.
    pub fn stop(&self, member: usize) {
        self.signal(member, "TERM");
        let began = Instant::now();
        while self.report_of(member).is_none() {
            assert!(
                began.elapsed() < PATIENCE,
                "{} does not end",
                self.cluster[member].words
            );
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// The report of a process that has ended.
    fn report_of(&self, member: usize) -> Option<Value> {
        let mut process = self.cluster[member].process.lock().unwrap();
        process.ended().unwrap()?;
        let (out, err) = process.printed().unwrap();
        let report = out
            .lines()
            .last()
            .and_then(|line| serde_json::from_str(line).ok());
        Some(report.unwrap_or_else(|| panic!("no report: {out}{err}")))
    }

    /// A process's standard error so far.
    pub fn complaints_of(&self, member: usize) -> String {
        self.cluster[member].process.lock().unwrap().printed().unwrap().1
    }

    /// The figures of one process, the last ones if it has ended.
    pub fn status_of(&self, member: usize) -> Value {
        if let Some(report) = self.report_of(member) {
            return report;
        }
        serde_json::from_str(&self.asked_of(member, "status --json").unwrap()).unwrap()
    }

    /// How many packets have been lost so far because something had no room, and was counted: in
    /// the cluster, at its ports and in the hosts' sockets.
    pub fn overload(&self) -> u64 {
        self.dropped("runtime_busy") + self.lost_at_interfaces()
    }

    /// The same, of ports and hosts' sockets alone: no losses within the cluster.
    pub fn lost_at_interfaces(&self) -> u64 {
        let overflows = self.network.udp_overflows() + udp_overflows(&self.far);
        let ports = self.of_ports("lost_packets");
        self.dropped("port_unsent") + ports.iter().sum::<u64>() + overflows
    }

    /// How many packets the cluster has dropped so far for this reason, which it calls by function
    /// and reason.
    pub fn dropped(&self, reason: &str) -> u64 {
        let statuses = (0..self.cluster.len()).map(|member| self.status_of(member));
        statuses
            .map(|status| status["packets"]["dropped"][reason].as_u64().unwrap_or(0))
            .sum()
    }

    /// A shell script in the test's folder; answers the words that run it.
    pub fn script(&self, name: &str, text: &str) -> String {
        let file = self.network.folder.path(name);
        fs::write(&file, text).unwrap();
        format!("sh {file}")
    }

    /// Runs a client inside.
    pub fn client(&self, words: &str) -> (Option<i32>, String) {
        outcome(&self.network.client, words)
    }

    /// Ends the cluster. It must end gracefully and account for every packet, and no client may
    /// have logged a failure.
    pub fn end(self) {
        self.end_within(PATIENCE);
    }

    /// The same; no process may take longer for its end.
    pub fn end_within(mut self, limit: Duration) {
        assert!(!self.cluster.is_empty(), "it was started");
        let figures = self.asked("status --json").unwrap_or_else(|error| error);
        let (mut came, mut went, mut reports) = (0, 0, Vec::new());
        for member in self.cluster.drain(..) {
            let (mut process, began) = (member.process.into_inner().unwrap(), Instant::now());
            if process.ended().unwrap().is_none() {
                let kill = format!("kill -TERM {}", process.id());
                self.network.gateway.run(&kill, Run::within(PATIENCE)).unwrap();
            }
            // On a busy machine it takes the kernel seconds to let go of an interface.
            let ended = end_of(process, limit).unwrap();
            println!("{}ended after {:?}", ended.err, began.elapsed());
            let report: Value = serde_json::from_str(ended.out.lines().last().expect("a report")).unwrap();
            let packets = &report["packets"];
            println!("{packets}\n{}", report["ports"]);
            let number = |value: &Value| value.as_u64().unwrap();
            let dropped: u64 = packets["dropped"].as_object().unwrap().values().map(number).sum();
            came += number(&packets["in"]) + number(&packets["made"]);
            went += number(&packets["out"]) + dropped + number(&packets["held"]);
            let good = ended.status.success();
            self.log.expect("graceful end", good, format!("{ended:?}"));
            reports.push(report);
        }
        let log = &self.log;
        log.expect("accounts", came == went, format!("{reports:?}"));
        let report = &reports[0];
        // Ports failed with packets that they could not send, which are drops, and with frames that
        // were no packets, of which no host sends any.
        let failed = |port: &Value| port["failed_packets"].as_u64().expect("it is counted");
        let ports = report["ports"].as_array().expect("ports");
        let failed: u64 = ports.iter().map(failed).sum();
        let unsent = report["packets"]["dropped"]["port_unsent"].as_u64().unwrap_or(0);
        log.expect("no frame refused", failed == unsent, &figures);
        self.log.end(1);
    }

    /// The answers of the cluster's ports for claimed addresses: inside, and outside.
    pub fn answered(&self) -> [u64; 2] {
        self.of_ports("answered_packets")
    }

    fn of_ports(&self, figure: &str) -> [u64; 2] {
        let status = self.status();
        [0, 1].map(|port| status["ports"][port][figure].as_u64().unwrap_or(0))
    }

    /// Measures with datagrams from the client: hardly any may be lost. `words` begin with the
    /// server.
    pub fn datagrams(&self, words: &str) {
        let overflows = |site: &Site| site.network.udp_overflows() + udp_overflows(&site.far);
        let (before, lost_before) = (overflows(self), self.of_ports("lost_packets"));
        let end = self.network.iperf3(words);
        let number = |name: &str| end["sum"][name].as_u64().unwrap_or(0);
        let (lost, datagrams) = (number("lost_packets"), number("packets"));
        // A receiver that had no processor for a while has lost datagrams by itself.
        let lost = lost.saturating_sub(overflows(self) - before);
        let lost_after = self.of_ports("lost_packets");
        println!(
            "UDP {words}: {lost} of {datagrams} lost; by the kernel, for want of room, {lost_before:?} to {lost_after:?}"
        );
        let good = datagrams > 500 && lost * 100 < datagrams;
        let why = if good { String::new() } else { self.circumstances() };
        self.log
            .expect(&format!("iperf3 {words}"), good, format!("{end}\n{why}"));
    }

    /// The counts of the hosts' kernels so far: they show where packets were lost.
    pub fn circumstances(&self) -> String {
        let network = &self.network;
        let hosts = [&network.client, &network.gateway, &network.server, &self.far];
        let words = "cat /proc/net/snmp /proc/net/snmp6 /proc/net/dev /proc/net/softnet_stat";
        let counted = hosts.map(|host| format!("{}: {}", host.name(), said(host, words)));
        format!(
            "ports lost {:?}\n{}",
            self.of_ports("lost_packets"),
            counted.join("\n")
        )
    }
}
