//! The wires of `bench live` and what may be between them: the kernel's own forwarding, or
//! Flowkeep.
//!
//! ```text
//!   tester: client ═══ left  gateway  right ═══ server :tester      probe ═══ sink, both tester's: frames are lost at once
//!           10.0.0.0/16 behind 10.1.0.1         203.0.113.0/24, all else behind 203.0.113.1
//! ```
//!
//! The tester's ends have no addresses, and the gateway sends to other link addresses than theirs:
//! the interface counts a frame that arrives and drops it as another host's. That is done in a
//! softirq of the frame's sender, the gateway; it is the cheapest end there is, and the same for
//! both. The gateway's ends poll (`gro on`), without which veth takes no frames from a driver, for
//! the kernel's forwarding as for Flowkeep's. One of the two is there at a time: the kernel
//! forwards only while its rules are in place, and Flowkeep only while its process lives.
//!
//! Invariant: both have the same addresses, routes, neighbours and rules: packets of inside hosts
//! to the service's port, and replies, may pass and are translated; nothing else.

use super::frames::{PORT, SERVERS, VIRTUAL, link};
use lab::process::{Ended, Process, Run};
use lab::site::Folder;
use lab::{Lab, LabError, Namespace, need};
use std::net::Ipv4Addr;
use std::time::{Duration, Instant};

const PATIENCE: Duration = Duration::from_secs(20);
/// The kernel's own outside address, which masquerading takes.
const OWN: Ipv4Addr = Ipv4Addr::new(203, 0, 113, 254);
/// Flowkeep's, which must not be the host's own.
const POOL: Ipv4Addr = Ipv4Addr::new(203, 0, 113, 64);

/// The tester's interfaces at which frames arrive, inside and outside.
pub const ENDS: [&str; 2] = ["client", "server"];

/// Interfaces that nothing is sent to or from.
pub const PARKS: [&str; 2] = ["park", "yard"];

/// The system between the wires.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum System {
    /// nftables: filter with conntrack, masquerade.
    Kernel,
    /// The chain on ports of this kind.
    Flowkeep(&'static str),
}

impl System {
    /// Its name in tables.
    pub fn name(self) -> &'static str {
        match self {
            System::Kernel => "kernel (nftables)",
            System::Flowkeep("afxdp") => "flowkeep (afxdp)",
            System::Flowkeep(_) => "flowkeep (afpacket)",
        }
    }

    /// The address that inside hosts have outside.
    pub fn translated(self) -> Ipv4Addr {
        match self {
            System::Kernel => OWN,
            System::Flowkeep(_) => POOL,
        }
    }
}

/// Where softirqs run, and Flowkeep.
#[derive(Clone, Copy, Debug)]
pub struct Processors {
    /// The sender.
    pub sender: usize,
    /// Flowkeep's threads.
    pub device: usize,
}

/// The wires.
pub struct Site {
    /// Where frames are sent and arrive.
    pub tester: Namespace,
    gateway: Namespace,
    folder: Folder,
    _lab: Lab,
}

/// A system in its place; [`Device::stop`] takes it away.
pub struct Device<'a> {
    site: &'a Site,
    system: System,
    process: Option<Process>,
}

impl Site {
    /// Lays the wires.
    pub fn build() -> Result<Self, LabError> {
        for (program, package) in [
            ("nft", "nftables"),
            ("ethtool", "ethtool"),
            ("taskset", "util-linux"),
        ] {
            need(program, package)?;
        }
        let folder = Folder::new()?;
        let mut lab = Lab::new()?;
        let (tester, gateway) = (lab.namespace("bench-tester")?, lab.namespace("bench-gateway")?);
        for host in [&tester, &gateway] {
            host.set("net.ipv6.conf.all.disable_ipv6", "1")?;
            host.set("net.ipv6.conf.default.disable_ipv6", "1")?;
        }
        lab.cable((&tester, "client"), (&gateway, "left"))?;
        lab.cable((&tester, "server"), (&gateway, "right"))?;
        lab.cable((&tester, "probe"), (&tester, "sink"))?;
        lab.cable((&tester, PARKS[0]), (&tester, PARKS[1]))?;
        let text = |octets: [u8; 6]| octets.map(|octet| format!("{octet:02x}")).join(":");
        for (port, own) in [("left", link::LEFT), ("right", link::RIGHT)] {
            gateway.ip(&format!("link set {port} address {}", text(own)))?;
            gateway.offloads(port, "gro on")?;
        }
        gateway.address("left", "10.1.0.254/24")?;
        gateway.address("right", &format!("{OWN}/24"))?;
        gateway.ip("route add 10.0.0.0/16 via 10.1.0.1")?;
        gateway.ip("route add default via 203.0.113.1")?;
        let outside = [Ipv4Addr::new(203, 0, 113, 1), SERVERS[0], SERVERS[1]];
        let inside = [(Ipv4Addr::new(10, 1, 0, 1), "left", link::INSIDE)];
        let all = outside.map(|address| (address, "right", link::OUTSIDE));
        for (address, port, to) in all.into_iter().chain(inside) {
            gateway.ip(&format!(
                "neighbour replace {address} lladdr {} nud permanent dev {port}",
                text(to)
            ))?;
        }
        Ok(Site {
            tester,
            gateway,
            folder,
            _lab: lab,
        })
    }

    /// Puts a system between the wires, with a load balancer or without.
    pub fn place(&self, system: System, balanced: bool, on: Processors) -> Result<Device<'_>, LabError> {
        let mut device = Device {
            site: self,
            system,
            process: None,
        };
        match system {
            System::Kernel => self.kernel(balanced)?,
            System::Flowkeep(scheme) => device.process = Some(self.flowkeep(scheme, balanced, on)?),
        }
        Ok(device)
    }

    fn kernel(&self, balanced: bool) -> Result<(), LabError> {
        let balancing = format!(
            "chain pre {{ type nat hook prerouting priority dstnat; policy accept;\n\
             ip daddr {VIRTUAL} udp dport {PORT} dnat to numgen inc mod 2 map {{ 0 : {}, 1 : {} }}\n}}\n",
            SERVERS[0], SERVERS[1]
        );
        let rules = format!(
            "table ip bench {{\n\
             chain forward {{ type filter hook forward priority filter; policy drop;\n\
             ct state established,related accept\n\
             iifname \"left\" oifname \"right\" meta l4proto udp udp dport {PORT} ct state new accept\n}}\n\
             chain input {{ type filter hook input priority filter; policy drop;\n}}\n\
             chain post {{ type nat hook postrouting priority srcnat; policy accept;\n\
             oifname \"right\" masquerade\n}}\n{}}}\n",
            if balanced { &balancing } else { "" }
        );
        let loaded = self.gateway.run("nft -f -", Run::with_input(PATIENCE, &rules));
        loaded.map_err(|error| match error {
            LabError::Failed { command, problem } => LabError::Failed {
                command,
                problem: format!(
                    "{problem}\nThis kernel may lack nftables' NAT or conntrack (CONFIG_NF_TABLES, NFT_CT, NFT_NAT, NFT_MASQ, NFT_NUMGEN); \
                     without them there is nothing to compare with"
                ),
            },
            other => other,
        })?;
        // Flowkeep does not look at UDP checksums either.
        self.gateway.set("net.netfilter.nf_conntrack_checksum", "0")?;
        self.gateway.set("net.ipv4.ip_forward", "1")
    }

    fn flowkeep(&self, scheme: &str, balanced: bool, on: Processors) -> Result<Process, LabError> {
        let config = self
            .folder
            .write("bench.toml", config(scheme, balanced).as_bytes())?;
        let program = std::env::current_exe().map_err(|source| LabError::System {
            what: "this program's own file".into(),
            source,
        })?;
        let (program, socket) = (program.display(), self.folder.path("socket"));
        let socket = socket.display();
        let words = format!(
            "taskset -c {} {program} run {config} --json --socket {socket}",
            on.device
        );
        let mut process = self.gateway.start(&words)?;
        let status = format!("{program} status --json --socket {socket}");
        let began = Instant::now();
        while self.gateway.run(&status, Run::within(PATIENCE)).is_err() {
            if process.ended()?.is_some() || began.elapsed() > PATIENCE {
                let (_, problem) = process.printed()?;
                return Err(LabError::Failed {
                    command: words,
                    problem,
                });
            }
        }
        Ok(process)
    }
}

impl Device<'_> {
    /// Its process, if it is one.
    pub fn process(&self) -> Option<u32> {
        self.process.as_ref().map(Process::id)
    }

    /// Takes it away; answers what it said of itself at its end.
    pub fn stop(mut self) -> Result<Option<String>, LabError> {
        if let Some(process) = self.process.take() {
            let Ended { status, out, err } = process.stop()?;
            return match status.success() {
                true => Ok(Some(out)),
                false => Err(LabError::Failed {
                    command: self.system.name().into(),
                    problem: err,
                }),
            };
        }
        self.site.gateway.set("net.ipv4.ip_forward", "0")?;
        self.site
            .gateway
            .run("nft flush ruleset", Run::within(PATIENCE))?;
        Ok(None)
    }
}

fn config(scheme: &str, balanced: bool) -> String {
    let balancer = if balanced { "\"load_balancer\", " } else { "" };
    let service = format!(
        "[[function.load_balancer.services]]\nname = \"bench\"\naddresses = [\"{VIRTUAL}\"]\nports = {PORT}\nprotocol = \"udp\"\n\
         policy = \"round_robin\"\nbackends = [{{ name = \"one\", endpoint = \"{}:{PORT}\" }}, {{ name = \"two\", endpoint = \"{}:{PORT}\" }}]\n",
        SERVERS[0], SERVERS[1]
    );
    format!(
        "flows_max = 200000\n\
         [[port]]\nname = \"lan\"\nside = \"inside\"\ninput = \"{scheme}:left\"\noutput = \"{scheme}:left\"\n\
         [[port]]\nname = \"wan\"\nside = \"outside\"\ninput = \"{scheme}:right\"\noutput = \"{scheme}:right\"\n\
         [[chain]]\nname = \"bench\"\nfunctions = [\"firewall\", \"nat\", {balancer}\"forward\"]\n\
         [[function.firewall.rules]]\nname = \"service\"\nfrom = \"inside\"\nprotocol = \"udp\"\ndestination_ports = [{PORT}]\naction = \"allow\"\n\
         [function.nat]\npool = [\"{POOL}/32\"]\nblock_size = 64\nlog = \"none\"\n{}",
        if balanced { &service } else { "" }
    )
}
