//! Says that a process is ready: a line on standard error for people, and datagrams for a service
//! manager.
//!
//! ```text
//!   ports open, workers running, socket answered ──► `ready: …`     READY=1, STATUS=…
//!   all links of a member are there ──────────────► `ready: …`     STATUS=…
//!   asked to end ─────────────────────────────────►                STOPPING=1, STATUS=…
//! ```
//!
//! The environment variable `NOTIFY_SOCKET` names the service manager (sd_notify(3)): systemd with
//! `Type=notify`. Without it only the lines are said. A datagram that cannot be sent is no reason
//! to end, and is not reported: the service manager sees by itself that it has heard nothing.
//!
//! Not here: figures (`status`), watchdogs.

use super::LinkStats;
use crate::config::Config;
use crate::config::layout::Layout;
use crate::log::{self, Level};
use std::ffi::OsStr;
use std::net::SocketAddr;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr as UnixAddress, UnixDatagram};
use std::path::Path;

/// The service manager, if there is one.
#[derive(Debug, Default)]
pub struct Manager(Option<UnixAddress>);

impl Manager {
    /// The service manager that the environment names.
    pub fn of_process() -> Self {
        let name = std::env::var_os("NOTIFY_SOCKET");
        Manager(name.as_deref().and_then(address))
    }

    /// Sends it states, a line each.
    pub fn tell(&self, states: &str) {
        if let Some(address) = &self.0 {
            let _ =
                UnixDatagram::unbound().and_then(|socket| socket.send_to_addr(states.as_bytes(), address));
        }
    }
}

/// A path, or with `@` in front an abstract name; no other text is an address here.
fn address(name: &OsStr) -> Option<UnixAddress> {
    match name.as_bytes() {
        [b'@', name @ ..] if !name.is_empty() => UnixAddress::from_abstract_name(name).ok(),
        [b'/', ..] => UnixAddress::from_pathname(name).ok(),
        _ => None,
    }
}

/// The lines on a process.
#[derive(Debug)]
pub struct Parts {
    said: String,
    has_links: bool,
    links_said: bool,
}

impl Parts {
    /// Of a cluster, or of the part of it that a member has.
    pub fn new(config: &Config, layout: &Layout, member: Option<&str>) -> Self {
        let (switches, most) = (&layout.switches_here, layout.runtimes_here.len());
        let ports = config.port.iter().zip(&layout.ports);
        let ports = ports.filter(|(_, place)| switches.contains(&place.switch));
        let ports: Vec<&str> = ports.map(|(port, _)| port.name.as_str()).collect();
        let mut parts: Vec<String> = Vec::new();
        parts.extend(member.map(|name| format!("member {name}")));
        if !ports.is_empty() {
            parts.push(format!("ports {}", ports.join(", ")));
        }
        // A member has all of its runtimes from the start; in one process others may come. Those
        // that no setting speaks of are no news.
        let (begins, most) = match member {
            Some(_) => (most, most),
            None => (config.runtimes.into(), config.planned_runtimes().into()),
        };
        if begins > 0 && most > 0 {
            let room = match begins < most {
                true => format!(" of at most {most}"),
                false => String::new(),
            };
            parts.push(format!("runtimes {begins}{room}"));
        }
        if let Some(events) = &config.log.events {
            parts.push(match events.as_str() {
                "-" => "events to standard output".to_owned(),
                path => format!("events to {path}"),
            });
        }
        Parts {
            said: parts.join("; "),
            has_links: member.is_some(),
            links_said: false,
        }
    }

    /// The process runs, and answers there.
    pub fn say(&self, manager: &Manager, socket: Option<&Path>, metrics: Option<SocketAddr>) {
        let mut said = self.said.clone();
        if let Some(socket) = socket {
            said += &format!("; control socket {}", socket.display());
        }
        if let Some(address) = metrics {
            said += &format!("; metrics http://{address}/metrics");
        }
        if self.has_links {
            said += "; waits for the other members";
        }
        log::say(Level::Info, format_args!("ready: {said}"));
        manager.tell(&format!("READY=1\nSTATUS={said}"));
    }

    /// Once all links of a member are there for the first time.
    pub fn look(&mut self, manager: &Manager, links: &[LinkStats]) {
        if self.links_said || !self.has_links || !links.iter().all(|link| link.session != 0) {
            return;
        }
        self.links_said = true;
        let mut others: Vec<String> = links.iter().map(|link| link.to.to_string()).collect();
        others.sort_unstable();
        others.dedup();
        let said = format!("linked with {}", others.join(", "));
        log::say(Level::Info, format_args!("ready: {said}"));
        manager.tell(&format!("STATUS={}; {said}", self.said));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_service_manager_is_a_path_or_an_abstract_name() {
        let abstract_name = address(OsStr::new("@flowkeep/test")).unwrap();
        assert_eq!(abstract_name.as_abstract_name(), Some(&b"flowkeep/test"[..]));
        let path = address(OsStr::new("/run/notify")).unwrap();
        assert_eq!(path.as_pathname(), Some(Path::new("/run/notify")));
        for none in ["", "@", "notify", "vsock:2:1"] {
            assert!(address(OsStr::new(none)).is_none(), "{none}");
        }
        assert!(address(OsStr::new(&format!("/{}", "x".repeat(200)))).is_none());
    }

    #[test]
    fn states_are_sent_in_one_datagram() {
        let name = format!("flowkeep-ready-{}", std::process::id());
        let at = UnixAddress::from_abstract_name(&name).unwrap();
        let socket = UnixDatagram::bind_addr(&at).unwrap();
        Manager(Some(at)).tell("READY=1\nSTATUS=x");
        let mut buffer = [0; 64];
        let length = socket.recv(&mut buffer).unwrap();
        assert_eq!(&buffer[..length], b"READY=1\nSTATUS=x");
        // No manager, or a gone one, does no harm.
        drop(socket);
        Manager(UnixAddress::from_abstract_name(&name).ok()).tell("STOPPING=1");
        Manager::default().tell("STOPPING=1");
    }
}
