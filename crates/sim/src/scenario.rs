//! The configurations that runs are about: a chain, its functions' settings, and what the hosts
//! around it may expect.
//!
//! Settings are TOML as in any configuration, read by the caller that has the functions. Within a
//! scenario the seed chooses among settings that change what the functions do. Timeouts are short,
//! so that flows end while others are at it.
//!
//! | scenario | chain | grouped by |
//! |---|---|---|
//! | `bridge` | firewall, flow monitor | flow |
//! | `balance` | load balancer, flow monitor; clients outside | flow |
//! | `nat` | NAT | inside address |
//! | `gateway` | firewall, NAT, load balancer, flow monitor | inside address |
//! | `dual` | as `bridge`; IPv6, fragments and ICMP errors, too | flow |
//! | `inspect` | limits per host, IDS, HTTP parser, flow monitor | inside address |
//! | `slow` | a function that waits, NAT | inside address |
//! | `members` | NAT; processes have several workers | inside address |
//! | `edge` | as `gateway`; IPv6, fragments, ICMP errors and hairpins, too | inside address |
//! | `forward` | forward, whose neighbours come and go | flow |
//! | `apply` | as `gateway`; settings change while flows live | inside address |

use crate::frame::End;
use crate::random::Random;
use crate::streams::NEEDLES;
use std::fmt;
use std::str::FromStr;

/// A kind of run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Scenario {
    /// Firewall and flow monitor; nothing is translated.
    Bridge,
    /// Clients outside, servers inside behind a virtual address.
    Balance,
    /// NAT alone.
    Nat,
    /// Firewall, NAT, load balancer and flow monitor.
    Gateway,
    /// Firewall and flow monitor, with IPv6, fragments and ICMP errors.
    Dual,
    /// Firewall, NAT, load balancer and flow monitor, with IPv6, fragments, ICMP errors and
    /// hairpins.
    Edge,
    /// Limits per host, IDS, HTTP parser and flow monitor: TCP talks are HTTP.
    Inspect,
    /// A function that waits, and NAT.
    Slow,
    /// NAT, over processes of several workers.
    Members,
    /// A router: packets wait for neighbours, which come and go.
    Forward,
    /// The functions of `gateway`, whose settings change while flows live.
    Apply,
}

impl Scenario {
    /// All of them.
    pub const ALL: [Scenario; 11] = [
        Scenario::Bridge,
        Scenario::Balance,
        Scenario::Nat,
        Scenario::Gateway,
        Scenario::Dual,
        Scenario::Edge,
        Scenario::Inspect,
        Scenario::Slow,
        Scenario::Members,
        Scenario::Forward,
        Scenario::Apply,
    ];

    /// As it is typed.
    pub fn name(self) -> &'static str {
        match self {
            Scenario::Bridge => "bridge",
            Scenario::Balance => "balance",
            Scenario::Nat => "nat",
            Scenario::Gateway => "gateway",
            Scenario::Dual => "dual",
            Scenario::Edge => "edge",
            Scenario::Inspect => "inspect",
            Scenario::Slow => "slow",
            Scenario::Members => "members",
            Scenario::Forward => "forward",
            Scenario::Apply => "apply",
        }
    }

    /// The one that a seed runs where none is asked for: of each ninth a third has processes of
    /// several workers, a third is a router, and of a third the configuration changes.
    pub fn of_seed(seed: u64) -> Scenario {
        match seed % 27 {
            8 => Scenario::Members,
            17 => Scenario::Forward,
            26 => Scenario::Apply,
            _ => Self::ALL[(seed % 8) as usize],
        }
    }

    pub(crate) fn has_firewall(self) -> bool {
        matches!(
            self,
            Scenario::Bridge | Scenario::Gateway | Scenario::Dual | Scenario::Edge | Scenario::Apply
        )
    }

    pub(crate) fn has_nat(self) -> bool {
        matches!(
            self,
            Scenario::Nat
                | Scenario::Gateway
                | Scenario::Edge
                | Scenario::Slow
                | Scenario::Members
                | Scenario::Apply
        )
    }

    pub(crate) fn has_balancer(self) -> bool {
        matches!(
            self,
            Scenario::Balance | Scenario::Gateway | Scenario::Edge | Scenario::Apply
        )
    }

    /// Whether talks are over IPv6 as well, packets taken apart, and answered with errors.
    pub(crate) fn has_kinds(self) -> bool {
        matches!(self, Scenario::Dual | Scenario::Edge)
    }

    /// Whether TCP talks are streams that functions read, and hosts have limits.
    pub(crate) fn has_streams(self) -> bool {
        self == Scenario::Inspect
    }

    /// Whether processes have several workers.
    pub(crate) fn has_processes(self) -> bool {
        self == Scenario::Members
    }

    /// Whether calls wait.
    pub(crate) fn has_waits(self) -> bool {
        matches!(self, Scenario::Slow | Scenario::Forward)
    }

    /// Whether the cluster is a router, with neighbours.
    pub(crate) fn has_neighbours(self) -> bool {
        self == Scenario::Forward
    }

    /// Whether the configuration changes.
    pub(crate) fn has_changes(self) -> bool {
        self == Scenario::Apply
    }

    /// Whether all packets that leave are in flow monitors' records.
    pub(crate) fn records_all(self) -> bool {
        matches!(self, Scenario::Bridge | Scenario::Dual | Scenario::Inspect)
    }

    /// Whether hosts inside talk with each other by external endpoints.
    pub(crate) fn has_hairpins(self) -> bool {
        self == Scenario::Edge
    }
}

impl fmt::Display for Scenario {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Scenario {
    type Err = String;
    fn from_str(name: &str) -> Result<Self, String> {
        let names = Self::ALL.map(Scenario::name).join(", ");
        let found = Self::ALL.into_iter().find(|scenario| scenario.name() == name);
        found.ok_or_else(|| format!("there is no scenario `{name}`; there are: {names}"))
    }
}

/// External addresses of NAT.
pub(crate) const POOL: [[u8; 4]; 2] = [[203, 0, 113, 6], [203, 0, 113, 7]];
/// First external port, and how many there are of each address.
pub(crate) const POOL_PORTS: (u16, u16) = (1024, 1024);
/// The addresses that clients of a balanced service speak to: outside (`gateway`) and inside
/// (`balance`).
pub(crate) const VIRTUAL: [[u8; 4]; 2] = [[198, 51, 100, 96], [10, 9, 0, 96]];
/// The balanced port, the two that only the firewall lets pass, and those it does not.
pub(crate) const SERVED: u16 = 80;
pub(crate) const OPEN: [u16; 2] = [80, 53];
pub(crate) const REJECTED: u16 = 81;
pub(crate) const DENIED: [u16; 2] = [82, 83];
/// Where servers listen behind a virtual address.
pub(crate) const BACKEND_PORT: u16 = 8080;

/// The external endpoint of a server inside, and that server: hosts inside that ask the first are
/// turned around.
pub(crate) const HAIRPIN: End = End::new([203, 0, 113, 9], 80);
pub(crate) const HAIRPIN_SERVER: End = End::new(inside_host(0), BACKEND_PORT);

/// Flows that a host may have opened at a time, where there are limits.
pub(crate) const FLOWS_PER_HOST: u32 = 12;

/// The settings of what reads streams, and of the limits.
fn inspection() -> String {
    let rule = |id: usize, way: &str| {
        let needle = NEEDLES[id];
        format!(
            "alert tcp any any -> any any (msg:\"{needle}\"; flow:{way},established; content:\"{needle}\"; sid:{};)\n",
            id + 1
        )
    };
    format!(
        "[function.host_limits]\nflows_per_host = {FLOWS_PER_HOST}\nnew_flows_per_second = \"none\"\n\
         [function.ids]\nrules = '''\n{}{}'''\n",
        rule(0, "to_server"),
        rule(1, "to_client")
    )
}

/// Numbers whose bits are even in number: that of none becomes that of another by one bit, so no
/// damaged packet is one of another host's.
pub(crate) const fn even(index: u16) -> u16 {
    index << 1 | (index.count_ones() as u16 & 1)
}

/// The server with this number, outside.
pub(crate) fn server(index: u16) -> [u8; 4] {
    [192, 0, 2, even(index + 1) as u8]
}

/// The host with this number, inside.
pub(crate) const fn inside_host(index: u16) -> [u8; 4] {
    [10, 0, 0, even(index + 1) as u8]
}

/// A host that has no business here, outside.
pub(crate) const STRANGER: [u8; 4] = [192, 0, 2, 0xf0];

/// Settings chosen by seed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Variant {
    /// How long firewall and NAT let flows live without a packet, in milliseconds.
    pub timeout_ms: u64,
    pub endpoint_independent: bool,
    pub filtering: &'static str,
    pub preserve_ports: bool,
    pub policy: &'static str,
    pub tcp_loose: bool,
    /// Whether each packet is counted in its flow's state ([`crate::witness`]).
    pub is_witnessed: bool,
    /// Whether a rule that matches nothing stands before the others.
    pub has_more_rules: bool,
}

/// How long a flow may live at most without a packet: a flow that the load balancer only lets pass,
/// five minutes by its phase.
pub(crate) const TIMEOUT_MS_MAX: u64 = 300_000;

impl Variant {
    pub fn draw(random: &mut Random) -> Self {
        Variant {
            timeout_ms: random.of_these(&[8000, 8000, 200]),
            endpoint_independent: !random.once_in(3),
            filtering: random.of_these(&[
                "address-dependent",
                "endpoint-independent",
                "address-and-port-dependent",
            ]),
            preserve_ports: random.once_in(2),
            policy: random.of_these(&["least_connections", "round_robin", "maglev"]),
            tcp_loose: random.once_in(2),
            is_witnessed: false,
            has_more_rules: false,
        }
    }

    /// Settings that let in what these do, and may follow them. Where workers are processes, flows
    /// live longer than whatever holds up their packets.
    pub fn another(&self, random: &mut Random, is_apart: bool) -> Self {
        let drawn = Variant::draw(random);
        Variant {
            timeout_ms: if is_apart {
                self.timeout_ms
            } else {
                drawn.timeout_ms
            },
            // The grouping of flows, and which port a host has for which peer, stay.
            endpoint_independent: self.endpoint_independent,
            is_witnessed: self.is_witnessed,
            has_more_rules: random.once_in(2),
            ..drawn
        }
    }

    /// Whether NAT lets in hosts that were never spoken to.
    pub fn admits_strangers(&self, scenario: Scenario) -> bool {
        let is_nat_alone = scenario.has_nat() && !scenario.has_firewall();
        is_nat_alone && self.filtering == "endpoint-independent"
            || scenario.has_streams()
            || scenario.has_neighbours()
    }

    /// The configuration.
    pub fn toml(&self, scenario: Scenario) -> String {
        let chain: &[&str] = match scenario {
            Scenario::Bridge | Scenario::Dual => &["firewall", "flow_monitor"],
            Scenario::Balance => &["load_balancer", "flow_monitor"],
            Scenario::Nat | Scenario::Members => &["nat"],
            Scenario::Inspect => &["host_limits", "ids", "http_parser", "flow_monitor"],
            Scenario::Slow => &["dawdler", "nat"],
            Scenario::Forward => &["forward"],
            Scenario::Gateway | Scenario::Edge | Scenario::Apply => {
                &["firewall", "nat", "load_balancer", "flow_monitor"]
            }
        };
        let witness: &[&str] = if self.is_witnessed { &["witness"] } else { &[] };
        let functions = [witness, chain].concat();
        let mut text = format!("[[chain]]\nname = \"{scenario}\"\nfunctions = {functions:?}\n");
        if scenario.has_firewall() {
            text += &self.firewall(scenario);
        }
        if scenario.has_nat() {
            text += &self.nat(scenario);
        }
        if scenario.has_balancer() {
            text += &self.balancer(scenario);
        }
        if scenario.has_streams() {
            text += &inspection();
        }
        if scenario.has_neighbours() {
            text += "[function.forward]\nresolve_timeout = \"200ms\"\nsilent_for = \"300ms\"\n";
        }
        if chain.contains(&"flow_monitor") {
            text += "[function.flow_monitor]\nidle_timeout = \"1s\"\nclosed_timeout = \"100ms\"\n";
        }
        text
    }

    fn firewall(&self, scenario: Scenario) -> String {
        let time = format!("\"{}ms\"", self.timeout_ms);
        let mut text = format!(
            "[function.firewall]\ntcp_loose = {}\n[function.firewall.timeouts]\n",
            self.tcp_loose
        );
        for name in [
            "tcp_established",
            "tcp_opening",
            "tcp_closing",
            "tcp_time_wait",
            "tcp_reset",
            "udp_unreplied",
            "udp_replied",
            "udp_stream",
            "icmp",
            "other",
        ] {
            text += &format!("{name} = {time}\n");
        }
        let rule = |name: &str, rest: &str| {
            format!("[[function.firewall.rules]]\nname = \"{name}\"\nfrom = \"inside\"\n{rest}\n")
        };
        if self.has_more_rules {
            text += &rule(
                "other",
                "protocol = \"udp\"\ndestination_ports = [9]\naction = \"drop\"",
            );
        }
        text += &rule(
            "open",
            &format!("protocol = [\"tcp\", \"udp\"]\ndestination_ports = {OPEN:?}\naction = \"allow\""),
        );
        text += &rule(
            "ping",
            "protocol = \"icmp\"\nicmp_type = [\"echo-request\"]\naction = \"allow\"",
        );
        if scenario.has_kinds() {
            text += &rule(
                "ping6",
                "protocol = \"icmpv6\"\nicmp_type = [\"echo-request\"]\naction = \"allow\"",
            );
        }
        text += &rule(
            "rejected",
            &format!("protocol = [\"tcp\", \"udp\"]\ndestination_ports = [{REJECTED}]\naction = \"reject\""),
        );
        text += &rule(
            "denied",
            &format!(
                "protocol = [\"tcp\", \"udp\"]\ndestination_ports = [{}]\naction = \"drop\"",
                DENIED[0]
            ),
        );
        if scenario.has_hairpins() {
            let [a, b, c, d] = HAIRPIN.addr;
            text += &format!(
                "[[function.firewall.rules]]\nname = \"turned\"\nprotocol = [\"tcp\", \"udp\"]\n\
                 destination = [\"{a}.{b}.{c}.{d}/32\"]\naction = \"allow\"\n"
            );
        }
        text
    }

    fn nat(&self, scenario: Scenario) -> String {
        let [[a, b, c, d], _] = POOL;
        let (first, count) = POOL_PORTS;
        let mapping = if self.endpoint_independent {
            "endpoint-independent"
        } else {
            "address-and-port-dependent"
        };
        let turned = if scenario.has_hairpins() {
            let each = ["tcp", "udp"].map(|protocol| {
                format!(
                    "{{ inside = \"{}\", outside = \"{HAIRPIN}\", protocol = \"{protocol}\" }}",
                    HAIRPIN_SERVER
                )
            });
            format!("static = [{}]\n", each.join(", "))
        } else {
            String::new()
        };
        let mut text = format!(
            "[function.nat]\npool = [\"{a}.{b}.{c}.{d}/31\"]\nports = \"{first}-{}\"\nblock_size = 64\nblocks_per_host = 2\n\
             mapping = \"{mapping}\"\nfiltering = \"{}\"\npreserve_ports = {}\n{turned}[function.nat.timeouts]\nbelow_rfc = true\n",
            first + count - 1,
            self.filtering,
            self.preserve_ports
        );
        for name in [
            "tcp_established",
            "tcp_opening",
            "tcp_closing",
            "udp",
            "udp_well_known",
            "icmp_query",
        ] {
            text += &format!("{name} = \"{}ms\"\n", self.timeout_ms);
        }
        text
    }

    fn balancer(&self, scenario: Scenario) -> String {
        let mut text = String::from("[function.load_balancer]\n");
        let (addr, backends) = match scenario {
            Scenario::Balance => (VIRTUAL[1], [inside_host(0), inside_host(1)]),
            _ => (VIRTUAL[0], [server(0), server(1)]),
        };
        let of = |[a, b, c, d]: [u8; 4]| format!("{a}.{b}.{c}.{d}");
        for protocol in ["tcp", "udp"] {
            text += &format!(
                "[[function.load_balancer.services]]\nname = \"{protocol}\"\naddresses = [\"{}\"]\nports = {SERVED}\n\
                 protocol = \"{protocol}\"\npolicy = \"{}\"\ntable_size = 251\nidle_timeout = 1\nbackends = [\n",
                of(addr),
                self.policy
            );
            for (index, backend) in backends.into_iter().enumerate() {
                text += &format!(
                    "  {{ name = \"server-{index}\", endpoint = \"{}:{BACKEND_PORT}\", weight = {} }},\n",
                    of(backend),
                    index + 1
                );
            }
            text += "]\n";
        }
        text
    }

    /// Whether `end` is where a packet for `to` may go behind the load balancer.
    pub fn is_backend(scenario: Scenario, end: End) -> bool {
        let servers = match scenario {
            Scenario::Balance => [inside_host(0), inside_host(1)],
            _ => [server(0), server(1)],
        };
        scenario.has_balancer() && end.port == BACKEND_PORT && servers.contains(&end.addr)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_bit_makes_one_address_anothers() {
        let all: Vec<u16> = (0..100).map(even).collect();
        for a in &all {
            assert!(all.iter().all(|b| a == b || (a ^ b).count_ones() >= 2));
        }
        assert_eq!(0xf0_u8.count_ones() % 2, 0);
    }

    #[test]
    fn seeds_run_all_scenarios() {
        let of = |scenario| {
            (0..216)
                .filter(|seed| Scenario::of_seed(*seed) == scenario)
                .count()
        };
        let rare = [Scenario::Members, Scenario::Forward, Scenario::Apply];
        for scenario in Scenario::ALL {
            assert_eq!(of(scenario), if rare.contains(&scenario) { 8 } else { 24 });
        }
    }

    #[test]
    fn names_read_back() {
        for scenario in Scenario::ALL {
            assert_eq!(scenario.name().parse(), Ok(scenario));
        }
        assert!("nothing".parse::<Scenario>().unwrap_err().contains("gateway"));
    }
}
