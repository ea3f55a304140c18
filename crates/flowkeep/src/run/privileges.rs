//! The rights of a process once its ports are open: fewer than at its start.
//!
//! # Theory of operation
//!
//! ```text
//!   as started ──► files of keys, log and control socket; metrics' address; ports ──► drop ──► links, threads, packets
//! ```
//!
//! The thread that starts a cluster gives rights up before it starts another one, and threads have
//! the rights of the thread that starts them. So no thread that sees a packet, a word of another
//! process or a request ever has more. Rights are a thread's own on Linux: that order makes them
//! the process's.
//!
//! | started as | `user` | afterwards |
//! |---|---|---|
//! | root | named | that user, its groups, and [`kept`] |
//! | root | not named | root's files, [`kept`] and [`ROOTS`]; no module, no mount, no other process |
//! | another user, with capabilities of the file | – | [`kept`], as far as they are there |
//!
//! *The rights that stay* ([`kept`]) are those that workers need while they run: the neighbours
//! that a gateway has the kernel resolve (`CAP_NET_ADMIN`); the sockets and filters of live ports
//! and of links on Ethernet, which are made when their workers are (`CAP_NET_RAW`, `CAP_BPF`,
//! `CAP_IPC_LOCK`); the priority of a runtime that is added (`CAP_SYS_NICE`). A cluster without
//! live ports, members and functions that follow the kernel keeps the last one only.
//!
//! Files that are read again while it runs (`chain apply`, keys on SIGHUP) are read as that user.
//!
//! Invariants: no right comes back (`no_new_privs`, the bounding set); a cluster that cannot drop
//! the rights that it should does not start.
//!
//! Not here: the rights that a live port needs at its start (`adapters::interface`).

use crate::config::{Config, Uri};
use rustix::process::{Gid, Uid, getegid, geteuid};
use rustix::thread::{
    CapabilitySet, CapabilitySets, capabilities, remove_capability_from_bounding_set, set_capabilities,
    set_keep_capabilities, set_no_new_privs, set_thread_groups, set_thread_res_gid, set_thread_res_uid,
};
use std::fs;
use std::panic::resume_unwind;
use std::thread;

/// Further rights of a process that remains root: files of other users, which it reads again, and
/// low port numbers of links.
const ROOTS: CapabilitySet = CapabilitySet::DAC_OVERRIDE.union(CapabilitySet::NET_BIND_SERVICE);

/// The rights that a process keeps, and its user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Privileges {
    account: Option<Account>,
    keep: CapabilitySet,
}

/// A user of this machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Account {
    /// Its number.
    pub user: u32,
    group: u32,
    groups: Vec<u32>,
}

/// The last number of a user; the next one is none's, and asks the kernel for no change.
const NUMBER_MAX: u32 = u32::MAX - 1;

/// Whether useradd(8) takes it as a name.
fn is_name(name: &str) -> bool {
    let is_first = |first: char| first.is_ascii_lowercase() || first == '_';
    let is_other = |other: char| is_first(other) || other.is_ascii_digit() || other == '-';
    name.starts_with(is_first) && name.len() <= 32 && name.chars().all(is_other)
}

fn failed(what: &str, error: rustix::io::Errno) -> String {
    format!("{what} cannot be given up: {error}; start it as root, or without `user`")
}

impl Account {
    fn numbers(&self) -> (Uid, Gid) {
        (Uid::from_raw(self.user), Gid::from_raw(self.group))
    }

    /// Whether it is this process' already.
    fn is_own(&self) -> bool {
        (geteuid(), getegid()) == self.numbers()
    }

    /// The user that a configuration names, if it names one. The error says what to do.
    pub fn of(config: &Config) -> Result<Option<Self>, String> {
        let Some(name) = &config.user else { return Ok(None) };
        let read = |path| fs::read_to_string(path).unwrap_or_default();
        Self::find(name, &read("/etc/passwd"), &read("/etc/group"))
            .map(Some)
            .ok_or_else(|| match is_name(name) {
                true => format!("there is no user `{name}` in /etc/passwd; make it: useradd --system {name}"),
                false => format!(
                    "`{name}` is no user's name, nor a number from 0 to {NUMBER_MAX}; write one, like user = \"flowkeep\""
                ),
            })
    }

    /// A user by its name or number, as passwd(5) and group(5) have it. A number need not be in
    /// them; its group has then the same number.
    fn find(name: &str, passwd: &str, group: &str) -> Option<Self> {
        let entries = passwd.lines().map(|line| line.split(':').collect::<Vec<_>>());
        let mut users = entries.filter_map(|entry| match entry[..] {
            [user, _, number, group, ..] => {
                let number = number.parse().ok().filter(|number| *number <= NUMBER_MAX)?;
                Some((user, number, group.parse().ok()?))
            }
            _ => None,
        });
        let is_meant = |(user, number, _): &(&str, u32, u32)| *user == name || name.parse() == Ok(*number);
        let Some((login, user, own)) = users.find(is_meant) else {
            let number = name.parse().ok().filter(|number| *number <= NUMBER_MAX)?;
            return Some(Account {
                user: number,
                group: number,
                groups: Vec::new(),
            });
        };
        let mut groups = Vec::new();
        for line in group.lines() {
            let entry: Vec<_> = line.split(':').collect();
            if let [_, _, number, members, ..] = entry[..]
                && members.split(',').any(|member| member == login)
                && let Ok(number) = number.parse()
            {
                groups.push(number);
            }
        }
        Some(Account {
            user,
            group: own,
            groups,
        })
    }
}

impl Privileges {
    /// The rights that a cluster of this configuration is to have.
    pub fn of(config: &Config) -> Result<Self, String> {
        Ok(Privileges {
            account: Account::of(config)?,
            keep: kept(config),
        })
    }

    /// Why this thread could not give up the rights of its user; nothing is given up.
    pub fn refused(&self) -> Option<String> {
        let becomes = self.account.as_ref().is_some_and(|account| !account.is_own());
        let needed = CapabilitySet::SETUID | CapabilitySet::SETGID;
        let may = capabilities(None).is_ok_and(|sets| sets.effective.contains(needed));
        (becomes && !may).then(|| failed("the user's rights", rustix::io::Errno::PERM))
    }

    /// The answer with these rights, from a thread of its own: this thread keeps its rights.
    pub fn with<R: Send>(&self, ask: impl FnOnce() -> R + Send) -> Result<R, String> {
        let answered = thread::scope(|scope| {
            let asking = thread::Builder::new().spawn_scoped(scope, move || self.drop().map(|()| ask()));
            asking.map(|asking| asking.join().unwrap_or_else(|panic| resume_unwind(panic)))
        });
        answered.map_err(|error| format!("no thread can be started: {error}"))?
    }

    /// Gives up all other rights, of this thread and of threads that it starts from now on. The
    /// error says what to do.
    pub fn drop(&self) -> Result<(), String> {
        let is_root = geteuid().is_root();
        let mut keep = self.keep;
        if self.account.is_none() && is_root {
            keep |= ROOTS;
        }
        let had = capabilities(None).map_err(|error| failed("capabilities", error))?;
        if had.effective.contains(CapabilitySet::SETPCAP) {
            for bit in (0..64).map(|bit| CapabilitySet::from_bits_retain(1 << bit)) {
                // The kernel refuses rights that it does not have.
                if !keep.contains(bit) && remove_capability_from_bounding_set(bit).is_err() {
                    break;
                }
            }
        }
        if let Some(account) = &self.account {
            self.become_user(account)
                .map_err(|error| failed("the user's rights", error))?;
        }
        let left = had.permitted & keep;
        let sets = CapabilitySets {
            effective: left,
            permitted: left,
            inheritable: CapabilitySet::empty(),
        };
        set_capabilities(None, sets).map_err(|error| failed("capabilities", error))?;
        set_no_new_privs(true).map_err(|error| failed("new rights", error))
    }

    fn become_user(&self, account: &Account) -> rustix::io::Result<()> {
        let (user, group) = account.numbers();
        if account.is_own() {
            return Ok(());
        }
        let groups: Vec<Gid> = account.groups.iter().map(|group| Gid::from_raw(*group)).collect();
        // The kept rights are taken away with the user otherwise.
        set_keep_capabilities(true)?;
        set_thread_groups(&groups)?;
        set_thread_res_gid(group, group, group)?;
        set_thread_res_uid(user, user, user)?;
        set_keep_capabilities(false)
    }
}

/// The rights that workers of this configuration need while they run.
fn kept(config: &Config) -> CapabilitySet {
    let mut uris = config
        .port
        .iter()
        .flat_map(|port| [&port.input, &port.output])
        .flatten();
    let is_live = |uri: &Uri| {
        ["afpacket:", "afxdp:"]
            .iter()
            .any(|kind| uri.as_str().starts_with(kind))
    };
    let mut kept = CapabilitySet::SYS_NICE;
    let follows_kernel = config
        .functions
        .values()
        .any(|function| function.factory.feed().is_some());
    if uris.any(is_live) || follows_kernel || !config.member.is_empty() {
        kept |=
            CapabilitySet::NET_ADMIN | CapabilitySet::NET_RAW | CapabilitySet::IPC_LOCK | CapabilitySet::BPF;
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_is_found_by_name_and_number_with_its_groups() {
        let passwd = "root:x:0:0:root:/root:/bin/sh\nflow:x:990:991::/:/bin/false\nbroken\n";
        let group = "root:x:0:\nflow:x:991:\nnet:x:7:a,flow\nlog:x:8:flow,b\nnone:x:9:flower\n";
        let flow = Account {
            user: 990,
            group: 991,
            groups: vec![7, 8],
        };
        assert_eq!(Account::find("flow", passwd, group), Some(flow.clone()));
        assert_eq!(Account::find("990", passwd, group), Some(flow));
        let number = Account {
            user: 4000,
            group: 4000,
            groups: vec![],
        };
        assert_eq!(Account::find("4000", passwd, group), Some(number));
        assert_eq!(Account::find("absent", passwd, group), None);
        // A number that the kernel takes for no change is no user, in whichever file it stands.
        for number in ["4294967295", "4294967296"] {
            assert_eq!(
                Account::find(number, "odd:x:4294967295:1::/:/bin/sh\n", group),
                None
            );
        }
    }

    #[test]
    fn only_what_live_ports_need_is_kept() {
        let of = |input: &str| {
            let text = format!(
                "[[port]]\nname = \"a\"\ninput = \"{input}\"\n[[chain]]\nname = \"all\"\nfunctions = [\"flow_monitor\"]\n"
            );
            kept(&crate::config::parse("a.toml", &text, &crate::functions()).unwrap())
        };
        assert_eq!(of("pcap:in.pcap"), CapabilitySet::SYS_NICE);
        let live = of("afpacket:eth0");
        assert!(live.contains(CapabilitySet::NET_RAW | CapabilitySet::NET_ADMIN));
        assert!(
            !live.intersects(CapabilitySet::SYS_ADMIN | CapabilitySet::DAC_OVERRIDE | CapabilitySet::SETUID)
        );
    }
}
