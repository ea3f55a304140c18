//! The link between workers of different processes: the production's own ([`runtime::peer`]) over a
//! simulated network.
//!
//! ```text
//!   worker ─► Far (a Port) ─► Peer ─► Channel ─► Wire ─┐ outbox        ┌─► inbox ─► Wire ─► Channel ─► Peer ─► Far ─► worker
//!                                                      └─ world: Path ─┘
//! ```
//!
//! Frames that a [`Wire`] sends lie in its end's outbox until the world puts them on a
//! [`crate::network::Path`]; frames that come out there lie in the other end's inbox. The world
//! sees of each end whether it has something to do, which worker it has met, and how much it lost.
//!
//! Not here: the format of frames (`protocols::channel`), which workers crash (`world::crashes`).

use crate::Time;
use crate::link::Ring;
use protocols::channel::Protection;
use runtime::peer::{FrameLink, Peer, PeerSettings};
use runtime::{Burst, Port, PortCounters};
use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;
use wire::Pool;
use wire::packet::Kind;

/// One end of a link, as the world sees it.
#[derive(Default)]
pub(crate) struct End {
    pub inbox: VecDeque<Vec<u8>>,
    pub outbox: Vec<Vec<u8>>,
    /// There is something that waits to be sent, acknowledged or received.
    pub is_busy: bool,
    /// As [`Port::session`] has it.
    pub session: u64,
    /// Packets that were for no worker.
    pub lost: u64,
    /// No worker has this end any more.
    pub is_dead: bool,
}

impl End {
    /// Whether there is nothing to be sent, acknowledged or received.
    pub fn is_drained(&self) -> bool {
        !self.is_busy && self.outbox.is_empty() && self.inbox.is_empty()
    }
}

pub(crate) type SharedEnd = Rc<RefCell<End>>;

/// The link below a peer.
pub(crate) struct Wire {
    end: SharedEnd,
    at_hand: Vec<u8>,
    frame_max: usize,
}

impl FrameLink for Wire {
    fn frame_max(&self) -> usize {
        self.frame_max
    }
    fn receive(&mut self) -> Option<&mut [u8]> {
        self.at_hand = self.end.borrow_mut().inbox.pop_front()?;
        Some(&mut self.at_hand)
    }
    fn send(&mut self, frame: &[u8]) {
        let mut end = self.end.borrow_mut();
        if !end.is_dead {
            end.outbox.push(frame.to_vec());
        }
    }
    fn flush(&mut self) {}
    fn counters(&self) -> PortCounters {
        PortCounters::default()
    }
}

/// A link to a worker of another process.
pub(crate) struct Far {
    peer: Peer<Wire>,
    end: SharedEnd,
    spared: usize,
}

impl Far {
    /// One end; `incarnation` is greater than any that this worker had.
    pub fn new(from: usize, to: usize, incarnation: u64, shape: Spared, now: Time) -> (Far, SharedEnd) {
        let end = SharedEnd::default();
        let mut settings = PeerSettings::new(from as u16, to as u16, incarnation, Protection::DamageOnly);
        settings.dead_after_ns = shape.2;
        settings.spared = shape.0;
        settings.channel.send_frames = shape.1;
        settings.channel.receive_frames = shape.1;
        let wire = Wire {
            end: end.clone(),
            at_hand: Vec::new(),
            frame_max: settings.channel.frame_max,
        };
        let peer = Peer::new(wire, settings, now).expect("usual settings are good");
        let far = Far {
            peer,
            end: end.clone(),
            spared: shape.0,
        };
        (far, end)
    }

    /// Notes what the world wants to know.
    fn note(&mut self, received: bool, pool: &Pool) {
        let mut end = self.end.borrow_mut();
        end.session = self.peer.session();
        end.lost = self.peer.own_counters().lost_packets + self.peer.own_counters().too_long;
        end.is_busy =
            received || !self.peer.is_drained() || self.peer.waiting() > 0 || pool.free() <= self.spared;
    }
}

/// How many buffers a link leaves alone, how many frames it has room for, and after which silence
/// its other end is dead.
#[derive(Clone, Copy)]
pub(crate) struct Spared(pub usize, pub u16, pub u64);

/// Silence after which an end takes the other one for dead.
pub(crate) const DEAD_AFTER: u64 = 100_000_000;

/// The same where views alone say which workers are gone: as `flowkeep` has it for members that
/// have joined.
pub(crate) const SUSPENDED: u64 = 3_600_000_000_000;

/// Frames of messages that a worker has sent to switches since the world looked, each with the
/// switch's number.
pub(crate) type Said = Rc<RefCell<Vec<(usize, Vec<u8>)>>>;

/// A link of a runtime to a switch, whose messages the world reads.
pub(crate) struct Heard(pub Link, pub usize, pub Said);

/// A link to another worker, wherever that is.
pub(crate) enum Link {
    /// To a switch.
    Heard(Box<Heard>),
    /// In the same process.
    Near(Ring),
    /// In another one.
    Far(Box<Far>),
}

impl Port for Link {
    fn frame_max(&self) -> usize {
        match self {
            Link::Heard(heard) => heard.0.frame_max(),
            Link::Near(ring) => ring.frame_max(),
            Link::Far(far) => far.peer.frame_max(),
        }
    }
    fn receive(&mut self, now: u64, pool: &mut Pool, burst: &mut Burst) {
        match self {
            Link::Heard(heard) => heard.0.receive(now, pool, burst),
            Link::Near(ring) => ring.receive(now, pool, burst),
            Link::Far(far) => {
                let had = burst.len();
                let came = !far.end.borrow().inbox.is_empty();
                far.peer.receive(now, pool, burst);
                far.note(came || burst.len() > had, pool);
            }
        }
    }
    fn transmit(&mut self, now: u64, pool: &mut Pool, burst: &mut Burst) {
        match self {
            Link::Heard(heard) => {
                let Heard(link, switch, said) = &mut **heard;
                let frames = burst.iter().filter(|packet| packet.kind() == Kind::Message);
                said.borrow_mut()
                    .extend(frames.map(|packet| (*switch, packet.frame().to_vec())));
                link.transmit(now, pool, burst);
            }
            Link::Near(ring) => ring.transmit(now, pool, burst),
            Link::Far(far) => {
                far.peer.transmit(now, pool, burst);
                far.note(true, pool);
            }
        }
    }
    fn finished(&self) -> bool {
        match self {
            Link::Heard(heard) => heard.0.finished(),
            Link::Near(ring) => ring.finished(),
            Link::Far(far) => !far.end.borrow().is_busy,
        }
    }
    fn waits(&self) -> bool {
        match self {
            Link::Heard(heard) => heard.0.waits(),
            Link::Near(ring) => ring.waits(),
            Link::Far(far) => far.peer.waits(),
        }
    }
    fn room(&self) -> usize {
        match self {
            Link::Heard(heard) => heard.0.room(),
            Link::Near(ring) => ring.room(),
            Link::Far(far) => far.peer.room(),
        }
    }
    fn session(&self) -> u64 {
        match self {
            Link::Heard(heard) => heard.0.session(),
            Link::Near(ring) => ring.session(),
            Link::Far(far) => far.peer.session(),
        }
    }
    fn is_apart(&self) -> bool {
        match self {
            Link::Heard(heard) => heard.0.is_apart(),
            Link::Near(ring) => ring.is_apart(),
            Link::Far(far) => far.peer.is_apart(),
        }
    }
    fn has_other_clock(&self) -> bool {
        match self {
            Link::Heard(heard) => heard.0.has_other_clock(),
            Link::Near(ring) => ring.has_other_clock(),
            Link::Far(far) => far.peer.has_other_clock(),
        }
    }
    fn flush(&mut self) {
        match self {
            Link::Heard(heard) => heard.0.flush(),
            Link::Far(far) => far.peer.flush(),
            Link::Near(_) => {}
        }
    }
    fn counters(&self) -> PortCounters {
        match self {
            Link::Heard(heard) => heard.0.counters(),
            Link::Near(ring) => ring.counters(),
            Link::Far(far) => far.peer.counters(),
        }
    }
}
