//! An operator's settings of services and their servers.
//!
//! ```toml
//! [[function.load_balancer.services]]
//! name = "web"
//! addresses = ["203.0.113.10"]
//! ports = 443                       # or "8000-8099"
//! protocol = "tcp"
//! policy = "maglev"
//!
//! [[function.load_balancer.services.backends]]
//! name = "web-1"
//! endpoint = "10.1.0.11:8443"       # without a port the client's choice of port stays
//! weight = 2
//! ```
//!
//! Reading happens in two steps: serde sees to the shape, `Service::compile` to the meaning, and
//! each complaint of the second step names the setting and what to write instead.
//!
//! Not here: the effect of the settings ([`super`], [`super::policy`]).

use super::check;
use super::maglev::{self, is_prime};
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;
use nf::{Addr, ConfigError, Endpoint, Period};
use schemars::JsonSchema;
use serde::Deserialize;
use serde::de::{Deserializer, Error, Unexpected, Visitor};

/// The table of the load balancer.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct LoadBalancerConfig {
    /// The services. Packets to no service pass untouched.
    #[serde(default)]
    pub services: Vec<ServiceConfig>,
    /// Seed of the hashes that Maglev uses. All runtimes and all nodes that serve the same
    /// addresses must have the same (they then choose alike); the default is 0.
    #[serde(default)]
    pub seed: u64,
}

/// A service: virtual addresses and ports that clients use, and the servers behind them.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ServiceConfig {
    /// Its name, in tables and commands.
    pub name: String,
    /// Virtual addresses, all IPv4 or all IPv6 (servers must be of the same version: nothing here
    /// translates between them).
    pub addresses: Vec<String>,
    /// A port, `443`, or a range, `"8000-8099"`.
    pub ports: PortsConfig,
    /// `tcp` or `udp`.
    pub protocol: ProtocolConfig,
    /// How a new connection's server is chosen. Default: `least_connections` (NFVactor VI-B).
    #[serde(default)]
    pub policy: PolicyConfig,
    /// Entries of Maglev's table: a prime, at least a hundred times the number of servers for an
    /// even spread. Default: 65537 (Eisenbud et al., Maglev, NSDI 2016, 5.3).
    #[serde(default = "table_size_default")]
    #[schemars(range(min = 2, max = maglev::TABLE_SIZE_MAX), example = 65537)]
    pub table_size: u32,
    /// Whether connections go on when their server goes down. Default: `keep`.
    #[serde(default)]
    pub when_down: WhenDownConfig,
    /// Seconds without a packet until a connection is forgotten, whatever its phase; 0 asks for
    /// nothing and leaves it to the other functions of the chain. Default: by phase: 4 min, an
    /// established TCP connection 2 h 4 min (RFC 5382 REQ-5), UDP 5 min (RFC 4787 REQ-5).
    #[serde(default)]
    pub idle_timeout: Option<u32>,
    /// How the process checks each server: `tcp`, a connection is taken; or `http:/path`, a GET is
    /// answered with a status of 200 to 399. Default: no check.
    #[serde(default)]
    pub check: Option<String>,
    /// The time from the beginning of a check to the beginning of the next: 100ms to 1h. Default:
    /// 2s (HAProxy's `inter`).
    #[serde(default)]
    #[schemars(with = "Option<String>")]
    pub interval: Option<Period>,
    /// How long a check may take: 10ms up to the interval. Default: 1s, or the interval if that is
    /// shorter.
    #[serde(default)]
    #[schemars(with = "Option<String>")]
    pub timeout: Option<Period>,
    /// Checks in a row that pass before a server that was down is up: 1 to 100. Default: 2
    /// (HAProxy's `rise`).
    #[serde(default)]
    #[schemars(range(min = 1, max = 100))]
    pub rise: Option<u16>,
    /// Checks in a row that fail before a server that was up is down: 1 to 100. Default: 3
    /// (HAProxy's `fall`).
    #[serde(default)]
    #[schemars(range(min = 1, max = 100))]
    pub fall: Option<u16>,
    /// The servers.
    pub backends: Vec<BackendConfig>,
}

/// A server.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct BackendConfig {
    /// Its name, unique within the service. Maglev's table depends on it, so keep it when the
    /// address changes.
    pub name: String,
    /// Address and port, `10.1.0.11:8443` or `[2001:db8::b]:8443`; or an address alone, which
    /// leaves the port as the client chose it.
    pub endpoint: String,
    /// Its share, relative to the other servers' of the service: 1 to 65535. Default: 1.
    #[serde(default = "weight_default")]
    #[schemars(range(min = 1, max = 65535))]
    pub weight: u16,
    /// Its state at the start. Default: `up`.
    #[serde(default)]
    pub state: Health,
}

/// One port or a range of them.
#[derive(Clone, Debug, JsonSchema)]
#[serde(untagged)]
pub enum PortsConfig {
    /// `443`
    One(u16),
    /// `"8000-8099"`
    Range(String),
}

impl<'de> Deserialize<'de> for PortsConfig {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_any(Ports)
    }
}

struct Ports;

impl Visitor<'_> for Ports {
    type Value = PortsConfig;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a port from 1 to 65535, or one range like \"8000-8099\"")
    }

    fn visit_i64<E: Error>(self, port: i64) -> Result<PortsConfig, E> {
        let wrong = || E::invalid_value(Unexpected::Signed(port), &self);
        u16::try_from(port).map(PortsConfig::One).map_err(|_| wrong())
    }

    fn visit_u64<E: Error>(self, port: u64) -> Result<PortsConfig, E> {
        let wrong = || E::invalid_value(Unexpected::Unsigned(port), &self);
        u16::try_from(port).map(PortsConfig::One).map_err(|_| wrong())
    }

    fn visit_str<E: Error>(self, range: &str) -> Result<PortsConfig, E> {
        Ok(PortsConfig::Range(range.into()))
    }
}

/// Transport protocols that can be balanced: those whose checksums can be mended after a change of
/// port.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ProtocolConfig {
    /// TCP.
    Tcp,
    /// UDP.
    Udp,
}

/// How a server is chosen.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum PolicyConfig {
    /// The server with the fewest connections for its weight, as this runtime counts them.
    #[default]
    LeastConnections,
    /// In turn, by weight.
    RoundRobin,
    /// By a hash of the client's address and port: equal on every runtime and node, and nearly
    /// unmoved when a server comes or goes.
    Maglev,
}

/// Whether connections go on when their server goes down.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum WhenDownConfig {
    /// The connections stay with the server: right where health checks err more often than servers
    /// die.
    #[default]
    Keep,
    /// The next packet of a connection is dropped and the flow ends; the client's packets after
    /// that open a flow with another server.
    Drop,
}

/// The state of a server.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Health {
    /// Takes connections.
    #[default]
    Up,
    /// Takes none; those it has go by `when_down`.
    Down,
    /// Takes none and keeps those it has.
    Draining,
}

impl Health {
    /// As it is written in tables.
    pub fn name(self) -> &'static str {
        match self {
            Health::Up => "up",
            Health::Down => "down",
            Health::Draining => "draining",
        }
    }
}

fn table_size_default() -> u32 {
    maglev::TABLE_SIZE_DEFAULT
}

fn weight_default() -> u16 {
    1
}

/// A service whose settings have been read and hold together.
pub(super) struct Service {
    pub addresses: Vec<Addr>,
    pub first_port: u16,
    pub last_port: u16,
    pub protocol: u8,
    /// Endpoint of each backend; port 0 keeps the client's.
    pub endpoints: Vec<Endpoint>,
}

impl Service {
    /// Reads the settings of service number `index`.
    pub fn compile(index: usize, config: &ServiceConfig) -> Result<Service, ConfigError> {
        let at = |setting: &str| format!("services[{index}].{setting}");
        if config.name.trim().is_empty() {
            return Err(unnamed(at("name")));
        }
        if config.addresses.is_empty() {
            return Err(ConfigError::new(
                at("addresses"),
                "a service without an address can never be reached",
                "name at least one virtual address",
            ));
        }
        let mut addresses = Vec::new();
        for (n, text) in config.addresses.iter().enumerate() {
            let addr: Addr = text.parse().map_err(|_| {
                ConfigError::new(
                    at(&format!("addresses[{n}]")),
                    format!("`{text}` is not an IPv4 or IPv6 address"),
                    "write an address without port or prefix, like \"203.0.113.10\"",
                )
            })?;
            addresses.push(addr);
        }
        let version = addresses[0].version();
        if let Some(n) = addresses.iter().position(|a| a.version() != version) {
            return Err(ConfigError::new(
                at(&format!("addresses[{n}]")),
                "IPv4 and IPv6 addresses are mixed",
                "make two services, one for each IP version",
            ));
        }
        let (first_port, last_port) = ports(&config.ports).ok_or_else(|| {
            ConfigError::new(
                at("ports"),
                "neither a port nor a range of ports",
                "write a number from 1 to 65535, or a range like \"8000-8099\"",
            )
        })?;
        table_size(&at("table_size"), config)?;
        let endpoints = endpoints(&at, config, version)?;
        check::compile(&at, config, &endpoints)?;
        Ok(Service {
            addresses,
            first_port,
            last_port,
            protocol: match config.protocol {
                ProtocolConfig::Tcp => wire::protocol::TCP,
                ProtocolConfig::Udp => wire::protocol::UDP,
            },
            endpoints,
        })
    }
}

fn endpoints(
    at: &dyn Fn(&str) -> String,
    config: &ServiceConfig,
    version: u8,
) -> Result<Vec<Endpoint>, ConfigError> {
    if config.backends.is_empty() {
        return Err(ConfigError::new(
            at("backends"),
            "a service without servers drops everything",
            "add at least one backend",
        ));
    }
    let mut endpoints = Vec::new();
    for (n, backend) in config.backends.iter().enumerate() {
        let at = |setting: &str| at(&format!("backends[{n}].{setting}"));
        if backend.name.trim().is_empty() {
            return Err(unnamed(at("name")));
        }
        if config.backends[..n].iter().any(|b| b.name == backend.name) {
            return Err(ConfigError::new(
                at("name"),
                format!("there are two backends `{}` in this service", backend.name),
                "give each its own name",
            ));
        }
        if backend.weight == 0 {
            return Err(ConfigError::new(
                at("weight"),
                "a weight of 0 means nothing",
                "write 1 to 65535, and state = \"draining\" for a server that shall take no connections",
            ));
        }
        let endpoint = endpoint(&backend.endpoint).ok_or_else(|| {
            ConfigError::new(
                at("endpoint"),
                format!(
                    "`{}` is neither address and port nor an address",
                    backend.endpoint
                ),
                "write \"10.1.0.11:8443\", \"[2001:db8::b]:8443\", or the address alone",
            )
        })?;
        if endpoint.addr.version() != version {
            return Err(ConfigError::new(
                at("endpoint"),
                format!("the service's addresses are IPv{version}, this is not"),
                "make two services, one for each IP version",
            ));
        }
        endpoints.push(endpoint);
    }
    Ok(endpoints)
}

fn unnamed(at: String) -> ConfigError {
    ConfigError::new(
        at,
        "the name is empty",
        "name it: commands and tables go by that name",
    )
}

fn table_size(at: &str, config: &ServiceConfig) -> Result<(), ConfigError> {
    if config.policy != PolicyConfig::Maglev {
        return Ok(());
    }
    let size = config.table_size;
    if size > maglev::TABLE_SIZE_MAX || !is_prime(size) || (size as usize) < config.backends.len() {
        return Err(ConfigError::new(
            at,
            format!("{size} is no size for Maglev's table"),
            "write a prime above the number of servers and below 16777216: 251, 65537, 655373",
        ));
    }
    Ok(())
}

pub(super) fn ports(config: &PortsConfig) -> Option<(u16, u16)> {
    let (first, last) = match config {
        PortsConfig::One(port) => (*port, *port),
        PortsConfig::Range(text) => match text.split_once('-') {
            Some((first, last)) => (first.trim().parse().ok()?, last.trim().parse().ok()?),
            None => {
                let port = text.trim().parse().ok()?;
                (port, port)
            }
        },
    };
    (first != 0 && first <= last).then_some((first, last))
}

pub(super) fn endpoint(text: &str) -> Option<Endpoint> {
    match text.parse::<Endpoint>() {
        Ok(endpoint) if endpoint.port == 0 => None,
        Ok(endpoint) => Some(endpoint),
        Err(_) => text.parse::<Addr>().ok().map(|addr| Endpoint::new(addr, 0)),
    }
}
