//! A network interface as live ports see it: its properties, its driver's offloads, and the
//! conditions that it must meet before packets flow.
//!
//! # Theory of operation
//!
//! ```text
//!   rights.rs     may we?            capabilities, locked memory
//!   mod.rs        is it there?       index, state, MTU, link layer
//!   ethtool.rs    what does it do?   driver, queues, offloads
//!   filter.rs     whose packet?      a program in the kernel: ours, or the kernel's own (ARP, ND, local addresses, others' frames)
//!   claims.rs     whose address?     ARP and ND for translated and virtual addresses: the kernel has no answer
//!   offload.rs    is it whole?       partial checksums are completed, super-frames cut
//! ```
//!
//! A port checks all of it before it opens anything ([`Interface::find`], [`rights`]), so that a
//! missing condition is one error that names it and the command that mends it, not a dozen system
//! calls that fail one after the other.
//!
//! All questions are `ioctl`s on a socket of the calling thread's network namespace.
//!
//! Not here: the ports ([`crate::afpacket`], [`crate::afxdp`]).

pub mod addresses;
pub mod assembler;
pub mod bpf;
pub mod claims;
pub mod ethtool;
pub mod filter;
pub mod offer;
pub mod offload;
pub mod rights;
pub(crate) mod system;

use ethtool::Offloads;
use std::ffi::CStr;
use std::io;
use std::path::PathBuf;
use system::{ask, request_for, socket};

/// Why a live port cannot be, and what to do about it.
#[derive(Debug, thiserror::Error)]
pub enum InterfaceError {
    /// No interface has this name.
    #[error("there is no network interface `{name}`{}", others(existing))]
    Missing {
        /// The name.
        name: String,
        /// The interfaces that there are.
        existing: Vec<String>,
    },
    /// The interface is down.
    #[error("`{name}` is down; bring it up with: ip link set dev {name} up")]
    Down {
        /// The interface.
        name: String,
    },
    /// The interface has no Ethernet header.
    #[error(
        "`{name}` carries no Ethernet frames (its link type is {kind}); name an Ethernet interface (`ip link` shows `link/ether`), \
             or make one: ip link add flow0 type veth peer name flow1"
    )]
    NotEthernet {
        /// The interface.
        name: String,
        /// `ARPHRD_…`
        kind: u16,
    },
    /// Something about the interface cannot be read.
    #[error("`{name}`: its {what} cannot be read: {source}")]
    Unreadable {
        /// The interface.
        name: String,
        /// The property.
        what: &'static str,
        /// The system's error.
        source: io::Error,
    },
    /// Capabilities are missing.
    #[error("{port}: this process lacks {missing}; run it as root, or give the program what it needs once: \
             setcap cap_net_raw,cap_net_admin,cap_bpf,cap_ipc_lock+ep {}", program.display())]
    Capabilities {
        /// The port.
        port: String,
        /// Their names.
        missing: String,
        /// This program.
        program: PathBuf,
    },
    /// All capabilities are there, and some count for nothing.
    #[error(
        "{port}: this process is in a user namespace (unshare -U, a container without root), and its capabilities count \
             neither in a network of users outside nor for the kernel's filters (eBPF); run it as root outside of that namespace"
    )]
    UserNamespace {
        /// The port.
        port: String,
    },
    /// A frame of the interface's MTU does not fit into a buffer.
    #[error("`{name}` has an MTU of {mtu} bytes, and a buffer here holds an MTU of {room} at most; {remedy}")]
    FrameTooLong {
        /// The interface.
        name: String,
        /// Its MTU.
        mtu: u32,
        /// The longest that fits.
        room: u32,
        /// The remedy.
        remedy: String,
    },
    /// The driver changes frames in a way that the port cannot undo.
    #[error("`{name}`: {what}; turn it off with: {command}")]
    Offload {
        /// The interface.
        name: String,
        /// The driver's offload.
        what: &'static str,
        /// The command.
        command: String,
    },
    /// The interface has no such queue.
    #[error("`{name}` has no queue {queue}: it receives with {queues}, numbered from 0")]
    NoQueue {
        /// The interface.
        name: String,
        /// The queue.
        queue: u32,
        /// How many it has.
        queues: u32,
    },
    /// Two ports read one queue.
    #[error("two ports read queue {queue} of `{name}`; leave one out, or give each its own with queue=…")]
    QueueTwice {
        /// The interface.
        name: String,
        /// The queue.
        queue: u32,
    },
    /// Some queues of an interface are read, and others not.
    #[error(
        "no port reads queue {missing} of `{name}`, and what comes in there would be lost; \
             leave queue=… out to read all, add a port for each, or use one queue only: ethtool -L {name} combined 1 (or: rx 1)"
    )]
    QueuesMissing {
        /// The interface.
        name: String,
        /// The queues.
        missing: String,
    },
    /// Two ports open one interface in different ways.
    #[error("two ports open `{name}` with different `mode` or `take`; write the same for both")]
    Otherwise {
        /// The interface.
        name: String,
    },
    /// A system call failed.
    #[error("{port}: {what}: {source}{}", remedy(advice))]
    System {
        /// The port.
        port: String,
        /// The step that failed.
        what: &'static str,
        /// The system's error.
        source: io::Error,
        /// The remedy; empty if none is known.
        advice: String,
    },
}

fn others(existing: &[String]) -> String {
    match existing {
        [] => "; there is none here at all. Is this the right network namespace?".into(),
        some => format!(". There are: {}", some.join(", ")),
    }
}

fn remedy(advice: &str) -> String {
    match advice {
        "" => String::new(),
        advice => format!("; {advice}"),
    }
}

/// The properties of an interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interface {
    /// Its name.
    pub name: String,
    /// Its number in this network namespace.
    pub index: u32,
    /// The longest IP packet it carries, in bytes.
    pub mtu: u32,
    /// Its own link-layer address.
    pub mac: [u8; 6],
    /// Its driver, if it has a name.
    pub driver: Option<String>,
    /// How many queues it receives with.
    pub receive_queues: u32,
    /// Its driver's offloads.
    pub offloads: Offloads,
}

/// Bytes of an Ethernet header and one VLAN tag, which a frame has beyond its interface's MTU.
pub const LINK_HEADER_MAX: u32 = 18;

impl Interface {
    /// The interface called `name`, if it is up and carries Ethernet.
    pub fn find(name: &str) -> Result<Self, InterfaceError> {
        let unreadable = |what| {
            move |source| InterfaceError::Unreadable {
                name: name.to_owned(),
                what,
                source,
            }
        };
        let missing = || InterfaceError::Missing {
            name: name.to_owned(),
            existing: names(),
        };
        let fd = socket(libc::AF_INET, libc::SOCK_DGRAM, 0).map_err(unreadable("state"))?;
        let question = |number: libc::c_ulong, what| {
            let mut request = request_for(name).ok_or_else(missing)?;
            // SAFETY: the requests below are those of `ifreq`, and none of them follows a pointer.
            match unsafe { ask(&fd, number, &mut request) } {
                Ok(()) => Ok(request),
                Err(error) if error.raw_os_error() == Some(libc::ENODEV) => Err(missing()),
                Err(error) => Err(unreadable(what)(error)),
            }
        };
        let index = question(libc::SIOCGIFINDEX, "number")?;
        let flags = question(libc::SIOCGIFFLAGS, "state")?;
        let mtu = question(libc::SIOCGIFMTU, "MTU")?;
        let address = question(libc::SIOCGIFHWADDR, "link-layer address")?;
        // SAFETY: the kernel has written the member that belongs to each request; all are integers.
        let (index, flags, mtu, address) = unsafe {
            (
                index.ifr_ifru.ifru_ifindex,
                flags.ifr_ifru.ifru_flags,
                mtu.ifr_ifru.ifru_mtu,
                address.ifr_ifru.ifru_hwaddr,
            )
        };
        if address.sa_family != libc::ARPHRD_ETHER {
            return Err(InterfaceError::NotEthernet {
                name: name.to_owned(),
                kind: address.sa_family,
            });
        }
        if i32::from(flags) & libc::IFF_UP == 0 {
            return Err(InterfaceError::Down {
                name: name.to_owned(),
            });
        }
        Ok(Interface {
            name: name.to_owned(),
            index: index.max(0) as u32,
            mtu: mtu.max(0) as u32,
            mac: std::array::from_fn(|octet| address.sa_data[octet] as u8),
            driver: ethtool::driver(&fd, name),
            receive_queues: ethtool::receive_queues(&fd, name),
            offloads: ethtool::offloads(&fd, name),
        })
    }

    /// The longest frame that the interface carries, in bytes, its tag included.
    pub fn frame_max(&self) -> usize {
        (self.mtu + LINK_HEADER_MAX) as usize
    }

    /// Whether frames may come straight from another network stack of this machine, with checksums
    /// not computed yet and segments not cut.
    pub fn is_virtual(&self) -> bool {
        let known = [
            "veth",
            "virtio_net",
            "tun",
            "bridge",
            "netkit",
            "ipvlan",
            "macvlan",
        ];
        self.driver
            .as_deref()
            .is_some_and(|driver| known.contains(&driver))
    }
}

/// The names of all interfaces of this network namespace.
pub fn names() -> Vec<String> {
    let mut names = Vec::new();
    // SAFETY: the list that `if_nameindex` makes ends with an index of 0, its names are strings,
    // and it is freed once, behind its last use.
    unsafe {
        let list = libc::if_nameindex();
        let mut at = list;
        while !at.is_null() && (*at).if_index != 0 {
            names.push(CStr::from_ptr((*at).if_name).to_string_lossy().into_owned());
            at = at.add(1);
        }
        if !list.is_null() {
            libc::if_freenameindex(list);
        }
    }
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interface_that_is_not_there_is_named_with_those_that_are() {
        for name in ["fk-nowhere", "", "much-too-long-for-an-interface", "a/b"] {
            let error = Interface::find(name).unwrap_err().to_string();
            assert!(
                error.starts_with(&format!("there is no network interface `{name}`")),
                "{error}"
            );
        }
    }

    #[test]
    fn the_loopback_is_no_port() {
        if !names().contains(&"lo".to_owned()) {
            println!("not run: needs a loopback interface");
            return;
        }
        let error = Interface::find("lo").unwrap_err();
        assert!(
            matches!(
                error,
                InterfaceError::NotEthernet { .. } | InterfaceError::Down { .. }
            ),
            "{error}"
        );
    }
}
