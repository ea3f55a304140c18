//! Checks of servers: which a service asks for, and the mistakes in the settings of one.
//!
//! ```text
//!   settings ──► Check per server ──► the process checks ──► `check SERVICE BACKEND up|down` ──► [`Word`] ─┐
//!   settings, an operator's `backend NAME up|down|drain` ────────────────────────────────────► [`Word`] ─┴► Load::health
//! ```
//!
//! An operator's `down` and `draining` stay above checks. `up` leaves it to them.
//!
//! Not here: checking (`flowkeep`: health).

use super::config::{Health, LoadBalancerConfig, ServiceConfig, endpoint, ports};
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::cell::Cell;
use core::time::Duration;
use nf::{Check, ConfigError, Endpoint, Probe};

/// The most servers that one load balancer has checked.
const CHECKS_MAX: usize = 4096;
/// The longest path.
const PATH_MAX: usize = 1024;
const INTERVAL: Duration = Duration::from_secs(2);
const TIMEOUT: Duration = Duration::from_secs(1);
const RISE: u16 = 2;
const FALL: u16 = 3;

/// The words on a server.
pub struct Word {
    /// Its state by the settings.
    pub configured: Health,
    /// An operator's word; at first its settings.
    pub said: Cell<Health>,
    /// The result of checks; true where there are none, or none has ended.
    pub passes: Cell<bool>,
}

impl Word {
    /// Nothing was said but its settings.
    pub fn new(configured: Health) -> Self {
        Word {
            configured,
            said: Cell::new(configured),
            passes: Cell::new(true),
        }
    }

    /// The health that follows for its connections.
    pub fn health(&self) -> Health {
        match (self.said.get(), self.passes.get()) {
            (Health::Up, false) => Health::Down,
            (said, _) => said,
        }
    }

    /// The name that a table shows.
    pub fn name(&self) -> &'static str {
        match (self.said.get(), self.passes.get()) {
            (Health::Up, false) => "failing",
            (said, _) => said.name(),
        }
    }
}

/// The probe of a service's `check`, if it is one.
fn probe(text: &str) -> Option<Probe> {
    if text == "tcp" {
        return Some(Probe::Tcp);
    }
    // Behind two slashes would be a host's name: each server is asked by its own address.
    let path = text
        .strip_prefix("http:")
        .filter(|path| !path.starts_with("//"))?;
    // The path stands in the first line of a request.
    let is_path =
        path.starts_with('/') && path.len() <= PATH_MAX && path.bytes().all(|byte| byte.is_ascii_graphic());
    is_path.then(|| Probe::Http(path.to_string()))
}

/// Where a server is checked: a backend without a port has the service's, if that is one.
fn place(config: &ServiceConfig, server: Endpoint) -> Option<Endpoint> {
    match (server.port, ports(&config.ports)) {
        (0, Some((first, last))) if first == last => Some(Endpoint::new(server.addr, first)),
        (0, _) => None,
        _ => Some(server),
    }
}

/// Refuses settings of a check that mean nothing.
pub(super) fn compile(
    at: &dyn Fn(&str) -> String,
    config: &ServiceConfig,
    endpoints: &[Endpoint],
) -> Result<(), ConfigError> {
    let Some(check) = &config.check else {
        let said = [
            ("interval", config.interval.is_some()),
            ("timeout", config.timeout.is_some()),
            ("rise", config.rise.is_some()),
            ("fall", config.fall.is_some()),
        ];
        return match said.iter().find(|(_, is_said)| *is_said) {
            None => Ok(()),
            Some((name, _)) => Err(ConfigError::new(
                at(name),
                "this service has no check, so nothing goes by it",
                "write check = \"tcp\" or check = \"http:/path\" beside it, or take it out",
            )),
        };
    };
    if probe(check).is_none() {
        return Err(ConfigError::new(
            at("check"),
            format!("`{check}` is no check"),
            "write \"tcp\", or \"http:/path\" with a path without spaces; no host: each server is asked for that path",
        ));
    }
    if let Some(n) = endpoints
        .iter()
        .position(|server| place(config, *server).is_none())
    {
        return Err(ConfigError::new(
            at(&format!("backends[{n}].endpoint")),
            "it has no port, and the service has several: which one is to be checked is not known",
            "write the endpoint with its port, or take `check` out",
        ));
    }
    let interval = interval(config);
    if !(Duration::from_millis(100)..=Duration::from_secs(3600)).contains(&interval) {
        return Err(ConfigError::new(
            at("interval"),
            format!("{interval:?} is no interval"),
            "write \"100ms\" to \"1h\"",
        ));
    }
    if !(Duration::from_millis(10)..=interval).contains(&timeout(config)) {
        return Err(ConfigError::new(
            at("timeout"),
            format!("{:?} is no time for a check every {interval:?}", timeout(config)),
            "write \"10ms\" or more, and no more than `interval`",
        ));
    }
    for (name, count) in [("rise", config.rise), ("fall", config.fall)] {
        if count.is_some_and(|count| !(1..=100).contains(&count)) {
            return Err(ConfigError::new(
                at(name),
                "so many checks in a row mean nothing",
                "write 1 to 100",
            ));
        }
    }
    Ok(())
}

/// Refuses more checks than there may be.
pub(super) fn refuse_many(config: &LoadBalancerConfig) -> Result<(), ConfigError> {
    match checks(config).len() {
        0..=CHECKS_MAX => Ok(()),
        count => Err(ConfigError::new(
            "services",
            format!("{count} servers are to be checked, and {CHECKS_MAX} may be"),
            "take `check` out of some services, and say `backend NAME down` for their servers",
        )),
    }
}

fn interval(config: &ServiceConfig) -> Duration {
    config.interval.map_or(INTERVAL, Duration::from)
}

fn timeout(config: &ServiceConfig) -> Duration {
    let usual = TIMEOUT.min(interval(config));
    config.timeout.map_or(usual, Duration::from)
}

/// The servers to be checked, of settings that are good.
pub(super) fn checks(config: &LoadBalancerConfig) -> Vec<Check> {
    let mut all = Vec::new();
    for service in &config.services {
        let Some(probe) = service.check.as_deref().and_then(probe) else {
            continue;
        };
        for backend in &service.backends {
            let Some(at) = endpoint(&backend.endpoint).and_then(|end| place(service, end)) else {
                continue;
            };
            all.push(Check {
                service: service.name.clone(),
                backend: backend.name.clone(),
                at,
                probe: probe.clone(),
                interval: interval(service),
                timeout: timeout(service),
                rise: service.rise.unwrap_or(RISE),
                fall: service.fall.unwrap_or(FALL),
            });
        }
    }
    all
}
