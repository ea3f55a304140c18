//! Whether live ports could be opened here and now, by what can be asked without opening one.
//!
//! Theory of operation. The ports look at all that they can before they open anything
//! ([`PacketPort::look`], [`XdpPort::look`]); [`Look`] does the same for all ports of a process and
//! joins what they say: whose queues two of them read, which queues none reads, and whether one
//! switch's buffers serve all its ports. No program is put on an interface, and no socket of one is
//! made.
//!
//! Not here: facts that only an attempt shows, by the kernel's answer: whether another program has
//! the interface, whether the driver has XDP of its own, whether its kernel is old.

use crate::afpacket::{Half, PacketPort, Taking};
use crate::afxdp::{CHUNK, FRAME, Mode, XdpPort, check_buffers};
use crate::buffers;
use crate::interface::InterfaceError;
use crate::uri::PortUri;
use runtime::env::AttachError;
use std::collections::{BTreeMap, BTreeSet};
use wire::packet::FRAME_MAX;

/// Interfaces whose queues ports read.
#[derive(Default)]
pub struct Look {
    read: BTreeMap<String, Read>,
}

/// An interface of which ports read queues.
struct Read {
    way: (Mode, Taking),
    there: u32,
    taken: BTreeSet<u32>,
}

/// The demands of a switch's ports on its buffers.
#[derive(Default)]
pub struct Buffers {
    frame_max: usize,
    /// Interfaces, and how many of their queues are used.
    xdp: Vec<(String, usize)>,
}

impl Look {
    /// Looks at a port, or at half of one, as it would be opened. `buffers` are those of its
    /// switch.
    pub fn at(&mut self, uri: &PortUri, half: Half, buffers: &mut Buffers) -> Result<(), InterfaceError> {
        // Of a port of two halves, the input says how long frames are.
        let frame_max = match uri {
            PortUri::Packet { interface, .. } => {
                let found = PacketPort::look(interface, half)?;
                match half {
                    Half::Transmit => 0,
                    Half::Receive | Half::Both => found.frame_max(),
                }
            }
            PortUri::Xdp { interface, settings } => {
                let (found, queues) = XdpPort::look(interface, settings)?;
                buffers.xdp.push((interface.clone(), queues.len()));
                if half != Half::Transmit {
                    let way = (settings.mode, settings.taking);
                    self.take(interface, way, found.receive_queues, &queues)?;
                }
                FRAME
            }
            _ => FRAME_MAX,
        };
        buffers.frame_max = buffers.frame_max.max(frame_max);
        Ok(())
    }

    fn take(
        &mut self,
        interface: &str,
        way: (Mode, Taking),
        there: u32,
        queues: &[u32],
    ) -> Result<(), InterfaceError> {
        let name = || interface.to_owned();
        let read = self.read.entry(name()).or_insert_with(|| Read {
            way,
            there,
            taken: BTreeSet::new(),
        });
        if read.way != way {
            return Err(InterfaceError::Otherwise { name: name() });
        }
        match queues.iter().find(|queue| !read.taken.insert(**queue)) {
            Some(queue) => Err(InterfaceError::QueueTwice {
                name: name(),
                queue: *queue,
            }),
            None => Ok(()),
        }
    }

    /// When all ports have been looked at: the first interface of which no port reads some queue.
    pub fn complete(&self) -> Result<(), InterfaceError> {
        for (name, read) in &self.read {
            let missing = (0..read.there).filter(|queue| !read.taken.contains(queue));
            let missing: Vec<String> = missing.map(|queue| queue.to_string()).collect();
            if !missing.is_empty() {
                return Err(InterfaceError::QueuesMissing {
                    name: name.clone(),
                    missing: missing.join(", "),
                });
            }
        }
        Ok(())
    }
}

impl Buffers {
    /// Whether a switch's `count` buffers serve all its ports.
    pub fn check(&self, count: usize) -> Result<(), AttachError> {
        let (_, length) = buffers::bytes(count, self.frame_max);
        let is_of_chunks = length == count * CHUNK;
        let mut each = self.xdp.iter();
        each.try_for_each(|(name, queues)| check_buffers(name, is_of_chunks, length, *queues))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queues_that_two_ports_read_or_none_does_are_told() {
        let way = (Mode::Native, Taking::Routed);
        let mut look = Look::default();
        assert!(look.take("a", way, 3, &[0]).is_ok());
        let twice = look.take("a", way, 3, &[1, 0]).unwrap_err();
        assert!(
            matches!(twice, InterfaceError::QueueTwice { queue: 0, .. }),
            "{twice}"
        );
        let other = look
            .take("a", (Mode::Generic, Taking::Routed), 3, &[2])
            .unwrap_err();
        assert!(matches!(other, InterfaceError::Otherwise { .. }), "{other}");
        let missing = look.complete().unwrap_err().to_string();
        assert!(missing.starts_with("no port reads queue 2 of `a`"), "{missing}");
        look.take("a", way, 3, &[2]).unwrap();
        assert!(look.complete().is_ok());
    }

    #[test]
    fn buffers_of_a_capture_are_none_for_an_interface() {
        let mut buffers = Buffers {
            frame_max: FRAME,
            xdp: vec![("a".to_owned(), 1)],
        };
        assert!(buffers.check(8).is_ok());
        buffers.frame_max = FRAME_MAX;
        let error = buffers.check(8).unwrap_err().to_string();
        assert!(
            error.contains("afxdp needs buffers of") && error.contains("afpacket:a"),
            "{error}"
        );
    }
}
