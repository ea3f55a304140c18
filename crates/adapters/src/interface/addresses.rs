//! This host's own addresses and stations, in maps that the kernel's filter reads, kept as they are
//! now.
//!
//! Theory of operation. At start-up all addresses of this network namespace go into a map,
//! broadcast addresses too, and into another one the link addresses at which its interfaces receive
//! ([`crate::netlink::stations`]). A thread then waits on a netlink socket for the kernel to say
//! that an address or a link has come, changed or gone, and reads all of them again: that is rare,
//! and reading all cannot miss one. If the reading fails, the maps stay as they were and the
//! failure is reported once.
//! [`Addresses::follow`] starts the thread: it has the rights of the thread that starts it, and a
//! process gives some up once its ports are open. Messages that came meanwhile wait on the socket.
//!
//! ```text
//!   ip address add …      ─► netlink ─► this thread ─► map ─► filter: "that one is the kernel's"
//!   ip link set … address ─► netlink ─► this thread ─► map ─► filter: "that one is to this host"
//! ```
//!
//! Invariant: once the thread has settled, the maps hold exactly what the system lists. The thread
//! ends when the last port that uses it is gone.
//!
//! Not here: routes and neighbours.

use super::bpf::{Map, MapKind};
use super::filter::{Key, Station, station};
use super::system::{bind, socket};
use crate::netlink;
use crate::report::Reports;
use std::collections::BTreeSet;
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

/// The most addresses that are looked after.
const ADDRESSES_MAX: u32 = 65_536;
/// The most link addresses that are looked after.
const STATIONS_MAX: u32 = 65_536;
/// How long the thread waits before it looks whether it is still wanted, in milliseconds.
const LOOK_MS: i32 = 200;

/// The maps of this host's addresses, and the thread that keeps them.
#[derive(Debug)]
pub struct Addresses {
    maps: Arc<Maps>,
    ended: Arc<AtomicBool>,
    following: Mutex<Following>,
}

#[derive(Debug)]
struct Maps {
    addresses: Map<16, 1>,
    stations: Map<12, 1>,
}

/// The content of the maps.
#[derive(Debug, Default)]
struct Known {
    addresses: BTreeSet<Key>,
    stations: BTreeSet<Station>,
}

#[derive(Debug)]
enum Following {
    /// The thread's socket, addresses and reports, before it starts.
    Waits(OwnedFd, Known, Reports),
    Runs(JoinHandle<()>),
    Over,
}

impl Addresses {
    /// Reads the addresses of the calling thread's network namespace.
    pub fn read(reports: Reports) -> io::Result<Self> {
        let maps = Arc::new(Maps {
            addresses: Map::new(MapKind::Hash, ADDRESSES_MAX, "fk_addresses")?,
            stations: Map::new(MapKind::Hash, STATIONS_MAX, "fk_stations")?,
        });
        // Before the first reading, so that nothing between the two is missed.
        let events = subscribe()?;
        let mut known = Known::default();
        synchronise(&maps, &mut known)?;
        Ok(Addresses {
            maps,
            ended: Arc::default(),
            following: Mutex::new(Following::Waits(events, known, reports)),
        })
    }

    /// Keeps the maps up to date from now on, if it is not.
    pub fn follow(&self) -> io::Result<()> {
        let mut following = self.following.lock().unwrap_or_else(PoisonError::into_inner);
        *following = match std::mem::replace(&mut *following, Following::Over) {
            Following::Waits(events, known, reports) => {
                let (maps, ended) = (self.maps.clone(), self.ended.clone());
                let name = std::thread::Builder::new().name("addresses".into());
                Following::Runs(name.spawn(move || follow(&events, &maps, known, &ended, &reports))?)
            }
            other => other,
        };
        Ok(())
    }

    /// The descriptor of the map of addresses, for the filter.
    pub fn descriptor(&self) -> i32 {
        self.maps.addresses.descriptor()
    }

    /// The descriptor of the map of link addresses, for the filter.
    pub fn stations(&self) -> i32 {
        self.maps.stations.descriptor()
    }
}

impl Drop for Addresses {
    fn drop(&mut self) {
        self.ended.store(true, Ordering::Relaxed);
        let following = self.following.get_mut().unwrap_or_else(PoisonError::into_inner);
        if let Following::Runs(thread) = std::mem::replace(following, Following::Over) {
            let _ = thread.join();
        }
    }
}

/// A socket on which the kernel says that an address or a link has come, changed or gone.
fn subscribe() -> io::Result<OwnedFd> {
    let fd = socket(libc::AF_NETLINK, libc::SOCK_RAW, libc::NETLINK_ROUTE)?;
    // SAFETY: zeros are a value of `sockaddr_nl`, which is integers.
    let mut address: libc::sockaddr_nl = unsafe { std::mem::zeroed() };
    address.nl_family = libc::AF_NETLINK as libc::sa_family_t;
    address.nl_groups = (libc::RTMGRP_LINK | libc::RTMGRP_IPV4_IFADDR | libc::RTMGRP_IPV6_IFADDR) as u32;
    // SAFETY: it is the address structure of netlink.
    unsafe { bind(&fd, &address) }?;
    Ok(fd)
}

fn follow(events: &OwnedFd, maps: &Maps, mut known: Known, ended: &AtomicBool, reports: &Reports) {
    while !ended.load(Ordering::Relaxed) {
        if !wait(events) {
            continue;
        }
        drain(events);
        if let Err(error) = synchronise(maps, &mut known) {
            reports.tell(
                "addresses of this host",
                format_args!("cannot be read any more: {error}"),
                "those known before stay; restart to have the new ones",
            );
            return;
        }
    }
}

/// Whether something is there to be read; waits a while for it.
fn wait(events: &OwnedFd) -> bool {
    let mut poll = libc::pollfd {
        fd: events.as_raw_fd(),
        events: libc::POLLIN,
        revents: 0,
    };
    // SAFETY: one structure, borrowed for the call.
    unsafe { libc::poll(&raw mut poll, 1, LOOK_MS) > 0 }
}

/// Reads the kernel's messages. Their content is of no interest, nor whether some were lost: all
/// addresses are read again in any case.
fn drain(events: &OwnedFd) {
    let mut bytes = [0_u8; 4096];
    // SAFETY: the kernel writes at most the buffer's length; the socket does not block.
    while unsafe { libc::recv(events.as_raw_fd(), bytes.as_mut_ptr().cast(), bytes.len(), 0) } > 0 {}
}

/// Makes the maps hold what the system lists.
fn synchronise(maps: &Maps, known: &mut Known) -> io::Result<()> {
    renew(&maps.addresses, &mut known.addresses, addresses()?)?;
    let stations = netlink::stations().map_err(io::Error::other)?;
    let stations = stations
        .into_iter()
        .map(|(index, address)| station(index, address));
    renew(&maps.stations, &mut known.stations, stations.collect())
}

/// Makes a map hold these and no others. New ones go in before old ones go out.
fn renew<const K: usize>(
    map: &Map<K, 1>,
    known: &mut BTreeSet<[u8; K]>,
    now: BTreeSet<[u8; K]>,
) -> io::Result<()> {
    for key in now.difference(known) {
        map.insert(key, &[1])?;
    }
    for key in known.difference(&now) {
        map.remove(key)?;
    }
    *known = now;
    Ok(())
}

/// All addresses of this network namespace, and the broadcast addresses of its networks.
fn addresses() -> io::Result<BTreeSet<Key>> {
    let mut list: *mut libc::ifaddrs = std::ptr::null_mut();
    // SAFETY: the function writes the list's beginning, or fails.
    super::system::checked(unsafe { libc::getifaddrs(&raw mut list) })?;
    let mut found = BTreeSet::new();
    let mut at = list;
    while !at.is_null() {
        // SAFETY: an element of the list, which lives until it is freed below.
        let entry = unsafe { &*at };
        // SAFETY: each is null or an address with its family in it, as the list's contract says.
        unsafe {
            found.extend(key_of(entry.ifa_addr));
            if entry.ifa_flags & libc::IFF_BROADCAST as u32 != 0 {
                found.extend(key_of(entry.ifa_ifu));
            }
        }
        at = entry.ifa_next;
    }
    // SAFETY: the list that was made above, freed once, behind its last use.
    unsafe { libc::freeifaddrs(list) };
    Ok(found)
}

/// # Safety
/// The pointer is null, or leads to an address as long as its family says.
unsafe fn key_of(address: *const libc::sockaddr) -> Option<Key> {
    if address.is_null() {
        return None;
    }
    // SAFETY: by the caller's promise there is a family, and behind it what the family says.
    unsafe {
        match i32::from((*address).sa_family) {
            libc::AF_INET => {
                let address = (*address.cast::<libc::sockaddr_in>()).sin_addr.s_addr;
                Some(Ipv4Addr::from(u32::from_be(address)).to_ipv6_mapped().octets())
            }
            libc::AF_INET6 => {
                Some(Ipv6Addr::from((*address.cast::<libc::sockaddr_in6>()).sin6_addr.s6_addr).octets())
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_loopback_address_is_this_hosts() {
        let found = addresses().unwrap();
        if found.is_empty() {
            println!("not run: needs a network interface with an address");
            return;
        }
        let loopback = Ipv4Addr::LOCALHOST.to_ipv6_mapped().octets();
        assert!(found.contains(&loopback), "{found:?}");
    }
}
