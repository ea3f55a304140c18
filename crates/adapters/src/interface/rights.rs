//! The rights of this process: capabilities, and how much memory it may keep from being swapped.
//!
//! A missing capability shows up as "operation not permitted" at one of a dozen system calls. So
//! they are looked at first, and the error names the missing capability and the command that gives
//! it. In a user namespace of its own a process may have all of them, and none counts in the
//! network of the users outside, nor for loading filters: that is an error of its own.

use super::{InterfaceError, system};
use std::fs;

/// A capability that a live port needs; the value is its bit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Capability {
    /// Programs and links on interfaces, rings, promiscuous mode.
    NetAdmin = 12,
    /// Sockets below IP.
    NetRaw = 13,
    /// Keeping memory resident beyond the limit.
    IpcLock = 14,
    /// Older kernels want it for `bpf`; it includes `Bpf`.
    SysAdmin = 21,
    /// Loading programs for the kernel's filters.
    Bpf = 39,
}

impl Capability {
    const fn name(self) -> &'static str {
        match self {
            Capability::NetAdmin => "CAP_NET_ADMIN",
            Capability::NetRaw => "CAP_NET_RAW",
            Capability::IpcLock => "CAP_IPC_LOCK",
            Capability::SysAdmin => "CAP_SYS_ADMIN",
            Capability::Bpf => "CAP_BPF",
        }
    }
}

/// The effective capabilities of the calling thread, a bit each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rights(u64);

impl Rights {
    /// The rights of the calling thread.
    pub fn of_this_thread() -> Self {
        Self::parse(&fs::read_to_string("/proc/thread-self/status").unwrap_or_default())
    }

    /// From `/proc/…/status`. Where the line is missing, nothing is known to be missing: the system
    /// calls will tell.
    fn parse(status: &str) -> Self {
        let line = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
        let bits = line.and_then(|line| u64::from_str_radix(line.trim(), 16).ok());
        Rights(bits.unwrap_or(u64::MAX))
    }

    /// Whether a capability is there.
    pub fn has(self, capability: Capability) -> bool {
        let bit = |capability: Capability| self.0 >> (capability as u8) & 1 == 1;
        bit(capability) || (capability == Capability::Bpf && bit(Capability::SysAdmin))
    }

    /// An error that names all of `needed` that are missing.
    pub fn need(self, port: &str, needed: &[Capability]) -> Result<(), InterfaceError> {
        let missing: Vec<&str> = needed
            .iter()
            .filter(|capability| !self.has(**capability))
            .map(|capability| capability.name())
            .collect();
        if missing.is_empty() {
            let is_barred = is_network_of_outer_users()
                || needed.contains(&Capability::Bpf) && system::is_in_user_namespace();
            return match is_barred {
                true => Err(InterfaceError::UserNamespace {
                    port: port.to_owned(),
                }),
                false => Ok(()),
            };
        }
        let program = std::env::current_exe().unwrap_or_else(|_| "flowkeep".into());
        Err(InterfaceError::Capabilities {
            port: port.to_owned(),
            missing: missing.join(", "),
            program,
        })
    }
}

/// Whether this thread is in a network that its capabilities do not count in. Where that cannot be
/// known, the system calls will tell.
fn is_network_of_outer_users() -> bool {
    let network = fs::File::open("/proc/thread-self/ns/net");
    network.is_ok_and(|network| system::is_of_outer_users(&network))
}

/// How many bytes this process may keep from being swapped; `None` without a limit.
pub fn locked_memory_max() -> Option<u64> {
    let limit = rustix::process::getrlimit(rustix::process::Resource::Memlock);
    limit.current
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn capabilities_are_bits_of_a_line() {
        let rights = Rights::parse("Name:\tx\nCapEff:\t0000000000003000\n");
        assert!(rights.has(Capability::NetAdmin) && rights.has(Capability::NetRaw));
        assert!(!rights.has(Capability::Bpf) && !rights.has(Capability::IpcLock));
        // By the older rule, a process that may administer the system may load programs.
        assert!(Rights::parse("CapEff:\t0000000000200000").has(Capability::Bpf));
        assert!(Rights::parse("nothing").has(Capability::Bpf));
    }

    #[test]
    fn what_is_missing_is_named_with_the_command_that_gives_it() {
        let needed = [Capability::NetAdmin, Capability::NetRaw, Capability::Bpf];
        let error = Rights::parse("CapEff: 1000")
            .need("afpacket:eth0", &needed)
            .unwrap_err();
        let text = error.to_string();
        assert!(
            text.starts_with("afpacket:eth0: this process lacks CAP_NET_RAW, CAP_BPF"),
            "{text}"
        );
        assert!(
            text.contains("setcap cap_net_raw,cap_net_admin,cap_bpf,cap_ipc_lock+ep"),
            "{text}"
        );
    }
}
