//! The program that hands an interface's frames to sockets, one for all ports on the interface.
//!
//! Theory of operation. An interface has room for one such program. The first port of the process
//! that opens an interface puts it there; further ones, for other queues, share it; it goes with
//! the last. It is held by a descriptor, so it goes with the process too. Frames of a queue that no
//! socket reads are dropped, not passed on: the kernel would forward them past every function.
//!
//! Not here: the program's text ([`crate::interface::filter`]).

use super::{Mode, XdpSettings};
use crate::afpacket::Taking;
use crate::interface::addresses::Addresses;
use crate::interface::bpf::{Attachment, Link, Map, MapKind, Program, ProgramKind};
use crate::interface::claims::Claims;
use crate::interface::filter::{Place, Take, program};
use crate::interface::{Interface, InterfaceError};
use std::collections::BTreeSet;
use std::io;
use std::sync::{Arc, Mutex, PoisonError, Weak};

/// A program on an interface, and the map by which it finds sockets.
#[derive(Debug)]
pub struct Redirect {
    index: u32,
    name: String,
    queues: u32,
    mode: Mode,
    taking: Taking,
    sockets: Map<4, 4>,
    taken: Mutex<BTreeSet<u32>>,
    _link: Link,
    /// The maps that the program looks at.
    looked_at: Option<(Arc<Addresses>, Claims)>,
}

/// The programs of this process, by interface.
#[derive(Clone, Debug, Default)]
pub struct Redirects(Arc<Mutex<Vec<Weak<Redirect>>>>);

/// The most queues of an interface.
const QUEUES_MAX: u32 = 1024;

impl Redirects {
    /// The program on an interface, put there if it is not.
    pub(super) fn of(
        &self,
        port: &str,
        interface: &Interface,
        settings: &XdpSettings,
        addresses: impl FnOnce() -> Result<Arc<Addresses>, InterfaceError>,
    ) -> Result<Arc<Redirect>, InterfaceError> {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.retain(|redirect| redirect.strong_count() > 0);
        let there = all
            .iter()
            .filter_map(Weak::upgrade)
            .find(|r| r.index == interface.index);
        if let Some(there) = there {
            if (there.mode, there.taking) != (settings.mode, settings.taking) {
                return Err(InterfaceError::Otherwise {
                    name: interface.name.clone(),
                });
            }
            return Ok(there);
        }
        let new = Arc::new(Redirect::attach(port, interface, settings, addresses)?);
        all.push(Arc::downgrade(&new));
        Ok(new)
    }

    /// An error for the first interface of which some queue has no socket: frames of that queue
    /// would be lost.
    pub fn complete(&self) -> Result<(), InterfaceError> {
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        for redirect in all.iter().filter_map(Weak::upgrade) {
            let taken = redirect.taken.lock().unwrap_or_else(PoisonError::into_inner);
            let missing: Vec<String> = (0..redirect.queues)
                .filter(|queue| !taken.contains(queue))
                .map(|queue| queue.to_string())
                .collect();
            if !missing.is_empty() {
                return Err(InterfaceError::QueuesMissing {
                    name: redirect.name.clone(),
                    missing: missing.join(", "),
                });
            }
        }
        Ok(())
    }
}

impl Redirect {
    fn attach(
        port: &str,
        interface: &Interface,
        settings: &XdpSettings,
        addresses: impl FnOnce() -> Result<Arc<Addresses>, InterfaceError>,
    ) -> Result<Self, InterfaceError> {
        let failed = |what, advice: String| {
            move |source: io::Error| InterfaceError::System {
                port: port.to_owned(),
                what,
                source,
                advice,
            }
        };
        let sockets = Map::new(
            MapKind::Sockets,
            QUEUES_MAX.max(interface.receive_queues),
            "fk_sockets",
        )
        .map_err(failed("no map for its sockets", String::new()))?;
        let looked_at = match settings.taking {
            Taking::Everything => None,
            Taking::Routed => {
                let claims = Claims::new().map_err(failed("no map for claimed addresses", String::new()))?;
                Some((addresses()?, claims))
            }
        };
        let take = match &looked_at {
            None => Take::Everything,
            Some((addresses, claims)) => Take::Routed {
                addresses: addresses.descriptor(),
                claims: claims.descriptor(),
                stations: addresses.stations(),
                interface: interface.index,
            },
        };
        let place = Place::Xdp {
            sockets: sockets.descriptor(),
        };
        let text = program(place, take);
        let link = Program::load(ProgramKind::Xdp, &text, "flowkeep").map_err(failed(
            "the kernel refuses the filter",
            "it needs Linux 5.18 or later".into(),
        ))?;
        let attachment = match settings.mode {
            Mode::Native => Attachment::XdpNative,
            Mode::Generic => Attachment::XdpGeneric,
        };
        let link = link.attach(interface.index, attachment).map_err(|source| {
            let advice = advice(interface, settings.mode, &source);
            failed("the filter cannot be put on the interface", advice)(source)
        })?;
        Ok(Redirect {
            index: interface.index,
            name: interface.name.clone(),
            queues: interface.receive_queues,
            mode: settings.mode,
            taking: settings.taking,
            sockets,
            taken: Mutex::default(),
            _link: link,
            looked_at,
        })
    }

    /// The claimed addresses of the interface; none of a bridge's.
    pub(super) fn claims(&self) -> Option<&Claims> {
        self.looked_at.as_ref().map(|(_, claims)| claims)
    }

    /// Says that a port will read a queue; `false` if another one does.
    pub(super) fn take_queue(&self, queue: u32) -> bool {
        let mut taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        taken.insert(queue)
    }

    /// From now on the queue's frames go to this socket.
    pub(super) fn lead_to(&self, queue: u32, socket: i32) -> io::Result<()> {
        self.sockets.insert(&queue.to_ne_bytes(), &socket.to_ne_bytes())
    }
}

/// The remedy when the program cannot be put on an interface.
fn advice(interface: &Interface, mode: Mode, error: &io::Error) -> String {
    let name = &interface.name;
    match (error.raw_os_error(), mode) {
        (Some(libc::EBUSY | libc::EEXIST), _) => {
            format!("another program is there; take it off with: ip link set dev {name} xdp off")
        }
        (Some(libc::ERANGE), Mode::Native) => {
            format!(
                "its MTU is too large for the driver's XDP: ip link set dev {name} mtu 1500 (of veth, the other end's too), or use mode=generic"
            )
        }
        (Some(libc::ENOSPC), Mode::Native) => {
            format!(
                "it must receive with as many queues as the other end sends with: ethtool -L {name} rx …, or use mode=generic"
            )
        }
        (Some(libc::EOPNOTSUPP | libc::EINVAL), Mode::Native) => {
            let driver = interface.driver.as_deref().unwrap_or("its");
            format!("the driver `{driver}` may have no XDP of its own: write afxdp:{name}?mode=generic")
        }
        _ => String::new(),
    }
}
